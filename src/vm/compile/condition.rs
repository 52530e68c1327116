//! Conditions: comparisons fused with the jump they decide.

use super::super::bytecode::Op;
use super::{Compiler, Reg};
use crate::base::{Result, Span};
use crate::syntax::ast::{Binary, Expr, ExprKind, Unary};

impl<'a> Compiler<'_, '_, 'a> {
    /// Jumps when `expr` evaluates to `sense`; the unpatched jumps are added to `jumps`.
    pub(super) fn condition(&mut self, expr: &'a Expr, sense: bool, jumps: &mut Vec<usize>) -> Result<()> {
        self.deeper(expr.span, |c| c.condition_kind(expr, sense, jumps))
    }

    fn condition_kind(&mut self, expr: &'a Expr, sense: bool, jumps: &mut Vec<usize>) -> Result<()> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.condition(inner, sense, jumps),
            ExprKind::Unary(Unary::Not, inner) => self.condition(inner, !sense, jumps),
            ExprKind::And(a, b) => self.both(a, b, sense, false, jumps),
            ExprKind::Or(a, b) => self.both(a, b, sense, true, jumps),
            ExprKind::Binary(op, a, b) if self.fuse && is_comparison(*op) => {
                self.comparison(*op, (a, b), expr.span, sense, jumps)
            }
            ExprKind::Bool(b) => {
                if *b == sense {
                    jumps.push(self.emit(Op::Jump { offset: 0 }));
                }
                Ok(())
            }
            _ => self.temporary(|c| {
                let dead = c.last().next;
                let a = c.operand(expr)?;
                let op = Op::JumpIf { sense, a, offset: 0 };
                jumps.push(c.emit_at(op, expr.span, vec![expr.span], dead));
                Ok(())
            }),
        }
    }

    /// Compiles `and`, which a false side decides, or `or`, which a true side decides (`decides`).
    fn both(
        &mut self,
        a: &'a Expr,
        b: &'a Expr,
        sense: bool,
        decides: bool,
        jumps: &mut Vec<usize>,
    ) -> Result<()> {
        if sense == decides {
            self.condition(a, sense, jumps)?;
            return self.condition(b, sense, jumps);
        }
        let mut skip = Vec::new();
        self.condition(a, decides, &mut skip)?;
        self.condition(b, sense, jumps)?;
        self.patch_all(skip);
        Ok(())
    }

    fn comparison(
        &mut self,
        op: Binary,
        (left, right): (&'a Expr, &'a Expr),
        span: Span,
        sense: bool,
        jumps: &mut Vec<usize>,
    ) -> Result<()> {
        self.temporary(|c| {
            let dead = c.last().next;
            let a = c.operand_before(left, right)?;
            let spans = vec![left.span, right.span];
            let jump = match c.number_constant(right) {
                Some(k) => jump_constant(op, sense, a, k),
                None => jump(op, sense, a, c.operand(right)?),
            };
            jumps.push(c.emit_at(jump, span, spans, dead));
            Ok(())
        })
    }
}

fn is_comparison(op: Binary) -> bool {
    matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
}

fn jump(op: Binary, sense: bool, a: Reg, b: Reg) -> Op {
    let offset = 0;
    match op {
        Binary::Eq => Op::JumpEq { sense, a, b, offset },
        Binary::Ne => Op::JumpNe { sense, a, b, offset },
        Binary::Lt => Op::JumpLt { sense, a, b, offset },
        Binary::Le => Op::JumpLe { sense, a, b, offset },
        Binary::Gt => Op::JumpGt { sense, a, b, offset },
        _ => Op::JumpGe { sense, a, b, offset },
    }
}

fn jump_constant(op: Binary, sense: bool, a: Reg, k: u16) -> Op {
    let offset = 0;
    match op {
        Binary::Eq => Op::JumpEqK { sense, a, k, offset },
        Binary::Ne => Op::JumpNeK { sense, a, k, offset },
        Binary::Lt => Op::JumpLtK { sense, a, k, offset },
        Binary::Le => Op::JumpLeK { sense, a, k, offset },
        Binary::Gt => Op::JumpGtK { sense, a, k, offset },
        _ => Op::JumpGeK { sense, a, k, offset },
    }
}
