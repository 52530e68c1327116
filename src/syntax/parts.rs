//! The direct parts of an expression: the single place that knows the structure of all kinds.
//!
//! Invariant: parts are visited in source order, each once; nested parts are not.

use super::ast::{Arg, Arm, Block, Expr, ExprKind, Field, Function, Item, Name, StrPiece};

/// A part of an expression.
pub enum Part<'e> {
    /// An operand, an argument, an element, a condition.
    Expr(&'e Expr),
    /// `{ ... }`
    Block(&'e Block),
    /// `catch e { }`
    Catch(Option<&'e Name>, &'e Block),
    /// An arm of `match`.
    Arm(&'e Arm),
    /// `|a| ...`
    Function(&'e Function),
}

/// Visits the parts of an expression.
pub fn parts<'e>(e: &'e Expr, visit: &mut impl FnMut(Part<'e>)) {
    match &e.kind {
        ExprKind::None
        | ExprKind::Bool(_)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Device(_)
        | ExprKind::Dtype(_)
        | ExprKind::Name(_)
        | ExprKind::Ellipsis
        | ExprKind::Error => {}
        ExprKind::Str(list) => pieces(list, visit),
        ExprKind::List(items) | ExprKind::Typed(_, items) | ExprKind::Tuple(items) => {
            for Item::One(e) | Item::Spread(e) in items {
                visit(Part::Expr(e));
            }
        }
        ExprKind::Record(fields) => {
            for Field::Named(_, e) | Field::Spread(e) in fields {
                visit(Part::Expr(e));
            }
        }
        ExprKind::Paren(a) | ExprKind::Unary(_, a) | ExprKind::Member(a, _) => visit(Part::Expr(a)),
        ExprKind::Binary(_, a, b)
        | ExprKind::And(a, b)
        | ExprKind::Or(a, b)
        | ExprKind::On(a, b)
        | ExprKind::Pipe(a, b) => {
            visit(Part::Expr(a));
            visit(Part::Expr(b));
        }
        ExprKind::Chain(first, rest) => {
            visit(Part::Expr(first));
            rest.iter().for_each(|(_, e)| visit(Part::Expr(e)));
        }
        ExprKind::Range(a, b, step) => [a, b, step].into_iter().flatten().for_each(|e| visit(Part::Expr(e))),
        ExprKind::Call(f, args) => {
            visit(Part::Expr(f));
            for Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e) in args {
                visit(Part::Expr(e));
            }
        }
        ExprKind::Index(base, indices) => {
            visit(Part::Expr(base));
            indices.iter().for_each(|e| visit(Part::Expr(e)));
        }
        ExprKind::Lambda(function) => visit(Part::Function(function)),
        ExprKind::Block(block) => visit(Part::Block(block)),
        ExprKind::If(arms, last) => {
            for (condition, block) in arms {
                visit(Part::Expr(condition));
                visit(Part::Block(block));
            }
            last.iter().for_each(|block| visit(Part::Block(block)));
        }
        ExprKind::With(contexts, block) => {
            contexts.iter().for_each(|e| visit(Part::Expr(e)));
            visit(Part::Block(block));
        }
        ExprKind::Try(body, name, catch) => {
            visit(Part::Block(body));
            visit(Part::Catch(name.as_ref(), catch));
        }
        ExprKind::Match(value, arms) => {
            visit(Part::Expr(value));
            arms.iter().for_each(|arm| visit(Part::Arm(arm)));
        }
    }
}

/// The expressions in a string; those in a format come after the formatted one.
fn pieces<'e>(list: &'e [StrPiece], visit: &mut impl FnMut(Part<'e>)) {
    let mut open = vec![list.iter()];
    while let Some(pieces) = open.last_mut() {
        match pieces.next() {
            Some(StrPiece::Expr(e, format)) => {
                visit(Part::Expr(e));
                open.push(format.iter());
            }
            Some(StrPiece::Text(_)) => {}
            None => drop(open.pop()),
        }
    }
}
