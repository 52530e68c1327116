//! Finds statements after which control never continues.

use crate::syntax::ast::*;

/// True if control never continues after the statement: it always leaves its block, or never ends.
pub fn leaves(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Return(_) | StmtKind::Throw(_) | StmtKind::Break | StmtKind::Continue => true,
        StmtKind::Expr(e) | StmtKind::Discard(e) => expr_leaves(e),
        StmtKind::While(Expr { kind: ExprKind::Bool(true), .. }, body) => !body.body.iter().any(breaks),
        _ => false,
    }
}

fn block_leaves(block: &Block) -> bool {
    block.body.iter().any(leaves)
}

fn expr_leaves(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Paren(e) => expr_leaves(e),
        ExprKind::Block(block) => block_leaves(block),
        ExprKind::If(arms, Some(last)) => {
            arms.iter().all(|(_, block)| block_leaves(block)) && block_leaves(last)
        }
        // A `match` without a matching arm raises an error.
        ExprKind::Match(_, arms) => arms.iter().all(|arm| expr_leaves(&arm.body)),
        ExprKind::With(_, block) => block_leaves(block),
        ExprKind::Try(body, _, catch) => block_leaves(body) && block_leaves(catch),
        _ => false,
    }
}

/// Returns whether a statement of a loop's body may end that loop.
fn breaks(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Break => true,
        StmtKind::Expr(e)
        | StmtKind::Discard(e)
        | StmtKind::Let(_, e)
        | StmtKind::Assign(_, e)
        | StmtKind::Update(_, _, e) => expr_breaks(e),
        _ => false,
    }
}

fn expr_breaks(e: &Expr) -> bool {
    let any = |block: &Block| block.body.iter().any(breaks);
    match &e.kind {
        ExprKind::Paren(e) => expr_breaks(e),
        ExprKind::Block(block) | ExprKind::With(_, block) => any(block),
        ExprKind::If(arms, last) => arms.iter().any(|(_, b)| any(b)) || last.as_ref().is_some_and(any),
        ExprKind::Match(_, arms) => arms.iter().any(|arm| expr_breaks(&arm.body)),
        ExprKind::Try(body, _, catch) => any(body) || any(catch),
        ExprKind::Unary(_, a) | ExprKind::Member(a, _) => expr_breaks(a),
        ExprKind::Binary(_, a, b) | ExprKind::And(a, b) | ExprKind::Or(a, b) | ExprKind::Pipe(a, b) => {
            expr_breaks(a) || expr_breaks(b)
        }
        ExprKind::Chain(first, rest) => expr_breaks(first) || rest.iter().any(|(_, e)| expr_breaks(e)),
        ExprKind::Call(f, args) => {
            let of = |arg: &Arg| match arg {
                Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e) => expr_breaks(e),
            };
            expr_breaks(f) || args.iter().any(of)
        }
        ExprKind::None
        | ExprKind::Bool(_)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Str(_)
        | ExprKind::Name(_)
        | ExprKind::Device(_)
        | ExprKind::Dtype(_)
        | ExprKind::Lambda(_) => false,
        // A `break` may be in any part.
        _ => true,
    }
}
