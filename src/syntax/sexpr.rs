//! The tree as compact s-expressions, for tests.

use super::ast::*;
use std::fmt::Write;

/// The statements, one per line.
pub fn block_lines(block: &Block) -> String {
    block.body.iter().map(stmt).collect::<Vec<_>>().join("\n")
}

fn list<X>(head: &str, parts: impl IntoIterator<Item = X>, show: impl Fn(X) -> String) -> String {
    let mut out = format!("({head}");
    for part in parts {
        let _ = write!(out, " {}", show(part));
    }
    out + ")"
}

fn block(b: &Block) -> String {
    list("do", &b.body, stmt)
}

fn stmt(s: &Stmt) -> String {
    match &s.kind {
        StmtKind::Let(p, e) => format!("(let {} {})", pattern(p), expr(e)),
        StmtKind::Assign(t, e) => format!("(= {} {})", expr(t), expr(e)),
        StmtKind::Update(t, op, e) => format!("({op:?}= {} {})", expr(t), expr(e)),
        StmtKind::Fn(name, f) => format!("(fn {} {})", name.text, function(f)),
        StmtKind::For(p, e, b) => format!("(for {} {} {})", pattern(p), expr(e), block(b)),
        StmtKind::While(e, b) => format!("(while {} {})", expr(e), block(b)),
        StmtKind::Break => "break".into(),
        StmtKind::Continue => "continue".into(),
        StmtKind::Return(None) => "(return)".into(),
        StmtKind::Return(Some(e)) => format!("(return {})", expr(e)),
        StmtKind::Throw(e) => format!("(throw {})", expr(e)),
        StmtKind::Defer(e) => format!("(defer {})", expr(e)),
        StmtKind::Import(i) => {
            format!("(import {}{:?} {})", if i.file { "file " } else { "" }, i.path, i.name.text)
        }
        StmtKind::Test(name, b) => format!("(test {name:?} {})", block(b)),
        StmtKind::Expr(e) => expr(e),
        StmtKind::Discard(e) => format!("(; {})", expr(e)),
        StmtKind::Error => "ERROR".into(),
    }
}

fn function(f: &Function) -> String {
    let doc = f.doc.as_ref().map_or(String::new(), |d| format!("{d:?} "));
    let params = f.params.iter().map(|p| {
        let star = if p.rest { "*" } else { "" };
        let default = p.default.as_ref().map_or(String::new(), |d| format!("={}", expr(d)));
        format!("{star}{}{default}", pattern(&p.pattern))
    });
    format!("{doc}[{}] {}", params.collect::<Vec<_>>().join(" "), block(&f.body))
}

fn option(e: &Option<Box<Expr>>) -> String {
    e.as_ref().map_or("_".into(), |e| expr(e))
}

fn item(i: &Item) -> String {
    match i {
        Item::One(e) => expr(e),
        Item::Spread(e) => format!("..{}", expr(e)),
    }
}

fn piece(p: &StrPiece) -> String {
    match p {
        StrPiece::Text(t) => format!("{t:?}"),
        StrPiece::Expr(e, format) if format.is_empty() => format!("{{{}}}", expr(e)),
        StrPiece::Expr(e, format) => {
            format!("{{{}:{}}}", expr(e), format.iter().map(piece).collect::<Vec<_>>().join(" "))
        }
    }
}

/// An expression.
pub fn expr(e: &Expr) -> String {
    match &e.kind {
        ExprKind::None => "none".into(),
        ExprKind::Bool(b) => b.to_string(),
        ExprKind::Int(i) => i.to_string(),
        ExprKind::Float(f) => format!("{f:?}"),
        ExprKind::Str(pieces) => list("str", pieces, piece),
        ExprKind::Device(DeviceLit::Cpu) => "cpu".into(),
        ExprKind::Device(DeviceLit::Current) => "cuda".into(),
        ExprKind::Device(DeviceLit::Cuda(n)) => format!("cuda:{n}"),
        ExprKind::Dtype(d) => format!("dtype:{d}"),
        ExprKind::Name(n) => n.to_string(),
        ExprKind::List(items) => list("list", items, item),
        ExprKind::Typed(d, items) => list(d, items, item),
        ExprKind::Tuple(items) => list("tuple", items, item),
        ExprKind::Record(fields) => list("record", fields, |f| match f {
            Field::Named(n, e) => format!("{}={}", n.text, expr(e)),
            Field::Spread(e) => format!("..{}", expr(e)),
        }),
        ExprKind::Paren(e) => format!("(paren {})", expr(e)),
        ExprKind::Unary(op, e) => format!("({op:?} {})", expr(e)),
        ExprKind::Binary(op, a, b) => format!("({op:?} {} {})", expr(a), expr(b)),
        ExprKind::Chain(first, rest) => {
            let rest: String = rest.iter().map(|(op, e)| format!(" {op:?} {}", expr(e))).collect();
            format!("(chain {}{rest})", expr(first))
        }
        ExprKind::And(a, b) => format!("(and {} {})", expr(a), expr(b)),
        ExprKind::Or(a, b) => format!("(or {} {})", expr(a), expr(b)),
        ExprKind::Range(a, b, s) => format!("(.. {} {} {})", option(a), option(b), option(s)),
        ExprKind::Ellipsis => "...".into(),
        ExprKind::Call(f, args) => list(&format!("call {}", expr(f)), args, |a| match a {
            Arg::One(e) => expr(e),
            Arg::Named(n, e) => format!("{}={}", n.text, expr(e)),
            Arg::Spread(e) => format!("..{}", expr(e)),
        }),
        ExprKind::Member(e, n) => format!("(. {} {})", expr(e), n.text),
        ExprKind::Index(e, i) => list(&format!("index {}", expr(e)), i, expr),
        ExprKind::On(e, d) => format!("(on {} {})", expr(e), expr(d)),
        ExprKind::Pipe(a, b) => format!("(|> {} {})", expr(a), expr(b)),
        ExprKind::Lambda(f) => format!("(lambda {})", function(f)),
        ExprKind::Block(b) => block(b),
        ExprKind::If(arms, last) => {
            let arms = list("if", arms, |(c, b)| format!("{} {}", expr(c), block(b)));
            match last {
                Some(last) => format!("{} else {})", &arms[..arms.len() - 1], block(last)),
                None => arms,
            }
        }
        ExprKind::With(contexts, b) => {
            let all = list("with", contexts, expr);
            format!("{} {})", &all[..all.len() - 1], block(b))
        }
        ExprKind::Try(b, name, c) => {
            format!("(try {} {} {})", block(b), name.as_ref().map_or("_", |n| &n.text), block(c))
        }
        ExprKind::Match(e, arms) => list(&format!("match {}", expr(e)), arms, |a| {
            let guard = a.guard.as_ref().map_or(String::new(), |g| format!(" if {}", expr(g)));
            format!("({}{guard} => {})", pattern(&a.pattern), expr(&a.body))
        }),
        ExprKind::Error => "ERROR".into(),
    }
}

fn pattern(p: &Pattern) -> String {
    let rest = |rest: &Option<Rest>| match rest {
        Some(Rest { at, name }) => format!(" ..{}@{at}", name.as_ref().map_or("", |n| &n.text)),
        None => String::new(),
    };
    let parts = |head: &str, parts: &[Pattern], r: &Option<Rest>| {
        let all = list(head, parts, pattern);
        format!("{}{})", &all[..all.len() - 1], rest(r))
    };
    match &p.kind {
        PatternKind::Discard => "_".into(),
        PatternKind::Bind(n) => n.text.to_string(),
        PatternKind::Tuple(p, r) => parts("tuple", p, r),
        PatternKind::List(p, r) => parts("list", p, r),
        PatternKind::Record(fields, r) => {
            let all = list("record", fields, |(n, p)| match n {
                Some(n) => format!("{}={}", n.text, pattern(p)),
                None => pattern(p),
            });
            format!("{}{})", &all[..all.len() - 1], rest(r))
        }
        PatternKind::Value(e) => format!("'{}", expr(e)),
        PatternKind::Or(p) => list("|", p, pattern),
    }
}
