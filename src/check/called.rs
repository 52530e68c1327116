//! Finds the functions that a program calls outside of `try`.
//!
//! Invariant: a call inside of `try`, or inside of a lambda without parameters (which is often called inside of `try`),
//! does not count.

use super::scope::{Id, Resolved};
use crate::syntax::ast::*;
use crate::syntax::{Part, parts};
use foldhash::HashSet;

/// The bindings of functions that are called by name, outside of code that may be tried.
pub fn called(block: &Block, names: &Resolved) -> HashSet<Id> {
    let mut reader = Reader { names, called: HashSet::default() };
    reader.block(block);
    reader.called
}

struct Reader<'n> {
    names: &'n Resolved,
    called: HashSet<Id>,
}

impl Reader<'_> {
    fn block(&mut self, block: &Block) {
        block.body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign(a, b) | StmtKind::Update(a, _, b) => {
                self.expr(a);
                self.expr(b);
            }
            StmtKind::For(_, e, body) | StmtKind::While(e, body) => {
                self.expr(e);
                self.block(body);
            }
            StmtKind::Fn(_, function) => self.block(&function.body),
            StmtKind::Let(_, e)
            | StmtKind::Return(Some(e))
            | StmtKind::Throw(e)
            | StmtKind::Defer(e)
            | StmtKind::Expr(e)
            | StmtKind::Discard(e) => self.expr(e),
            StmtKind::Test(_, body) => self.block(body),
            StmtKind::Return(None)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Import(_)
            | StmtKind::Error => {}
        }
    }

    fn expr(&mut self, e: &Expr) {
        if let ExprKind::Call(f, _) = &e.kind
            && let ExprKind::Name(_) = &f.kind
            && let Some(id) = self.names.uses.get(&f.span.lo)
        {
            self.called.insert(*id);
        }
        if let ExprKind::Try(_, _, catch) = &e.kind {
            return self.block(catch);
        }
        parts(e, &mut |part| match part {
            Part::Expr(e) => self.expr(e),
            Part::Block(block) | Part::Catch(_, block) => self.block(block),
            Part::Arm(arm) => arm.guard.iter().chain([&arm.body]).for_each(|e| self.expr(e)),
            Part::Function(function) if function.params.is_empty() => {}
            Part::Function(function) => self.block(&function.body),
        });
    }
}
