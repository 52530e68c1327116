//! Arithmetic with lists where another language would join or repeat them.

use super::error;
use super::scope::{Found, Names};
use crate::base::Error;
use crate::syntax::ast::*;

/// Notes that a `let` gives a name a list.
pub fn note(names: &mut Names, pattern: &Pattern, value: &Expr) {
    if let (PatternKind::Bind(name), ExprKind::List(_)) = (&pattern.kind, &value.kind)
        && let Found::Bound(id) = names.find(&name.text)
    {
        names.bindings[id].list = true;
    }
}

/// `found += [x]`, where `found` is a list.
pub fn added(names: &Names, name: &str, stmt: &Stmt) -> Option<Error> {
    let StmtKind::Update(_, Binary::Add, value) = &stmt.kind else { return None };
    let Found::Bound(id) = names.find(name) else { return None };
    let one = matches!(&value.kind, ExprKind::List(items) if items.len() == 1);
    (one && names.bindings[id].list).then(|| error::added(value.span, name))
}

/// `[0] * 3`, `[0.0] * n`: a list of one literal, and a count.
pub fn repeated(e: &Expr) -> Option<Error> {
    let ExprKind::Binary(Binary::Mul, a, b) = &e.kind else { return None };
    (counts(a, b) || counts(b, a)).then(|| error::repeated(e.span))
}

fn counts(list: &Expr, count: &Expr) -> bool {
    let ExprKind::List(items) = &list.kind else { return false };
    let [Item::One(item)] = items.as_slice() else { return false };
    let is_zero = match item.kind {
        ExprKind::Int(i) => i == 0,
        ExprKind::Float(f) => f == 0.0,
        ExprKind::Bool(_) => true,
        _ => false,
    };
    matches!(count.kind, ExprKind::Int(_)) || (is_zero && matches!(count.kind, ExprKind::Name(_)))
}
