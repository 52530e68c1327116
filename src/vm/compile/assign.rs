//! Assignments.
//!
//! Records are immutable: `r.field = e` rebinds the root variable to a copy with another field value. Lists,
//! dicts and tensors change in place.

use std::rc::Rc;

use super::super::bytecode::Op;
use super::super::error;
use super::super::function::PatternShape;
use super::expr::{binary_op, writes_late};
use super::scope::Location;
use super::{Compiler, Reg, mentions};
use crate::base::{Result, Span};
use crate::syntax::ast::*;

/// An assignment target whose parts have been evaluated.
enum Target<'a> {
    Variable(&'a Rc<str>, Span),
    /// `clear`: the container is in a temporary register, which is cleared at the end.
    Index {
        container: Reg,
        index: Reg,
        clear: bool,
        spans: Vec<Span>,
        span: Span,
    },
    Field {
        record: Reg,
        name: &'a Rc<str>,
        spans: Vec<Span>,
        span: Span,
        parent: Option<Box<Target<'a>>>,
    },
}

impl<'a> Compiler<'_, '_, 'a> {
    /// `target = value`.
    pub(super) fn assign(&mut self, target: &'a Expr, value: &'a Expr) -> Result<()> {
        if let ExprKind::Name(name) = &target.kind
            && let Some(Location::Register(dst)) = self.resolve(name)?
            && writes_late(value)
        {
            return self.expr_of_variable(value, dst);
        }
        self.temporary(|c| {
            let dead = c.last().next;
            // A variable's value is read from the variable's register, unless evaluating the target may assign the
            // variable.
            let src = match &target.kind {
                ExprKind::Index(..) if !mentions::has_block(target) => c.operand(value)?,
                _ => {
                    let src = c.temp()?;
                    c.expr(value, src)?;
                    src
                }
            };
            c.store_to(target, value.span, src, dead)
        })
    }

    /// `target op= value`: the target's parts are evaluated once.
    pub(super) fn update(&mut self, target: &'a Expr, op: Binary, value: &'a Expr, span: Span) -> Result<()> {
        let kept = self.is_kept(target);
        self.temporary(|c| {
            let spans = vec![target.span, value.span];
            if let ExprKind::Name(name) = &target.kind
                && let Some(Location::Register(dst)) = c.resolve(name)?
            {
                let dead = c.last().next;
                let a = c.operand_before(target, value)?;
                let small = match value.kind {
                    ExprKind::Int(i) => i16::try_from(i).ok(),
                    _ => None,
                };
                let op = match (op, small, c.number_constant(value)) {
                    (Binary::Add, Some(value), _) => Op::AddInt { dst, a, value },
                    (Binary::Add, _, Some(k)) => Op::AddK { dst, a, k },
                    (Binary::Sub, Some(value), _) => Op::SubInt { dst, a, value },
                    (Binary::Sub, _, Some(k)) => Op::SubK { dst, a, k },
                    (Binary::Mul, _, Some(k)) => Op::MulK { dst, a, k },
                    (Binary::Div, _, Some(k)) => Op::DivK { dst, a, k },
                    _ => binary_op(op, dst, a, c.operand(value)?),
                };
                let at = c.emit_at(op, span, spans, dead);
                if kept {
                    c.last().places.updates.push(at as u32);
                }
                return Ok(());
            }
            let temporaries = c.last().next;
            let target = c.target(target, Some(value))?;
            let dst = c.temp()?;
            match &target {
                Target::Variable(name, span) => c.read(name, *span, dst)?,
                Target::Index { container, index, spans, span, .. } => {
                    let read = Op::Index { dst, a: *container, b: *index };
                    let at = c.emit_at(read, *span, spans.clone(), u16::MAX);
                    // Gradients of sums do not need the old elements.
                    if !matches!(op, Binary::Add | Binary::Sub) {
                        c.last().places.updates.push(at as u32);
                    }
                }
                Target::Field { record, name, spans, span, .. } => {
                    let k = c.name_constant(name)?;
                    c.emit_at(Op::Field { dst, a: *record, k }, *span, spans.clone(), u16::MAX);
                }
            }
            let dead = c.last().next;
            let b = c.operand(value)?;
            let at = c.emit_at(binary_op(op, dst, dst, b), span, spans, dead);
            if kept {
                c.last().places.updates.push(at as u32);
            }
            if matches!(target, Target::Index { .. }) {
                // Storing the result begins with the instruction that writes it.
                let at = c.last().code.len();
                c.last().places.updates.push(at as u32);
            }
            c.store(target, dst, value.span, temporaries)
        })
    }

    /// Returns whether an update of `target` must not replace a tensor with a gradient, because only a `for`
    /// variable would change. (PyTorch writes in place there.)
    fn is_kept(&mut self, target: &Expr) -> bool {
        let function = self.last();
        let of_loop = |name: &Rc<str>| function.loops.iter().any(|l| l.names.contains(name));
        matches!(&target.kind, ExprKind::Name(name) if of_loop(name))
    }

    /// Evaluates the parts of `target` and stores `src`, which is released if it is among the registers from
    /// `dead` on.
    fn store_to(&mut self, target: &'a Expr, value_span: Span, src: Reg, dead: Reg) -> Result<()> {
        match &target.kind {
            ExprKind::Paren(inner) => self.deeper(target.span, |c| c.store_to(inner, value_span, src, dead)),
            ExprKind::Tuple(items) | ExprKind::List(items) => self.temporary(|c| {
                let count = u16::try_from(items.len()).map_err(|_| error::function_size())?;
                let base = c.reserve(count)?;
                let spread = items.iter().position(|i| matches!(i, Item::Spread(_)));
                let rest = spread.map(|at| (at as u16, true));
                let count = count - u16::from(rest.is_some());
                let shape = PatternShape { count, rest, names: Box::default(), list: false };
                let shape = c.pattern_shape(shape)?;
                c.emit_at(Op::Unpack { src, base, shape }, target.span, vec![value_span], u16::MAX);
                c.emit(Op::Clear { from: src, count: 1 });
                for (reg, Item::One(e) | Item::Spread(e)) in (base..).zip(items) {
                    c.deeper(target.span, |c| c.store_to(e, value_span, reg, dead))?;
                }
                Ok(())
            }),
            _ => self.temporary(|c| {
                let target = c.target(target, None)?;
                c.store(target, src, value_span, dead)
            }),
        }
    }

    /// Evaluates the parts of a target. Parts that are variables are used in their own registers, unless
    /// evaluating the indices or `later` before the write may assign them.
    fn target(&mut self, target: &'a Expr, later: Option<&'a Expr>) -> Result<Target<'a>> {
        match &target.kind {
            ExprKind::Paren(inner) => self.deeper(target.span, |c| c.target(inner, later)),
            ExprKind::Name(name) => Ok(Target::Variable(name, target.span)),
            ExprKind::Index(inner, indices) => {
                let spans = super::expr::index_spans(inner, indices);
                let own = self.last().next;
                let (container, index) = if indices.iter().chain(later).any(mentions::has_block) {
                    let container = self.temp()?;
                    self.expr(inner, container)?;
                    let index = self.temp()?;
                    let src = self.index_value(indices)?;
                    self.emit(Op::Move { take: false, dst: index, src });
                    (container, index)
                } else {
                    (self.operand(inner)?, self.index_value(indices)?)
                };
                let clear = container >= own;
                Ok(Target::Index { container, index, clear, spans, span: target.span })
            }
            ExprKind::Member(inner, name) => {
                let parent = match &inner.kind {
                    ExprKind::Name(_) | ExprKind::Index(..) | ExprKind::Member(..) | ExprKind::Paren(_) => {
                        self.deeper(target.span, |c| c.target(inner, later)).ok().map(Box::new)
                    }
                    _ => None,
                };
                let record = self.temp()?;
                match parent.as_deref() {
                    Some(Target::Variable(name, span)) => self.read(name, *span, record)?,
                    Some(Target::Index { container, index, spans, span, .. }) => {
                        let op = Op::Index { dst: record, a: *container, b: *index };
                        let (spans, span) = (spans.clone(), *span);
                        self.emit_at(op, span, spans, u16::MAX);
                    }
                    Some(Target::Field { record: outer, name, spans, span, .. }) => {
                        let (outer, name, spans, span) = (*outer, *name, spans.clone(), *span);
                        let k = self.name_constant(name)?;
                        self.emit_at(Op::Field { dst: record, a: outer, k }, span, spans, u16::MAX);
                    }
                    None => self.expr(inner, record)?,
                }
                let spans = vec![inner.span, name.span];
                Ok(Target::Field { record, name: &name.text, spans, span: target.span, parent })
            }
            _ => Err(error::not_assignable(
                "only names, elements and attributes can be assigned to".into(),
                "assign to a name, `x[i]` or `r.name`",
            )
            .at(target.span, "this cannot be assigned to")),
        }
    }

    /// Stores `src`. Registers from `dead` on are temporary: this releases them.
    fn store(&mut self, target: Target<'a>, src: Reg, value_span: Span, dead: Reg) -> Result<()> {
        match target {
            Target::Variable(name, span) => self.write(name, span, src),
            Target::Index { container, index, clear, mut spans, span } => {
                spans.push(value_span);
                self.emit_at(Op::SetIndex { a: container, b: index, src }, span, spans, dead);
                if clear {
                    self.emit(Op::Clear { from: container, count: 1 });
                }
                Ok(())
            }
            Target::Field { record, name, mut spans, span, parent } => {
                spans.push(value_span);
                let k = self.name_constant(name)?;
                self.emit_at(Op::SetField { a: record, k, src }, span, spans, dead);
                match parent.map(|p| *p) {
                    // The root is a native or a literal: there is nothing to rebind, and its attribute was
                    // assigned in place.
                    None => {
                        self.emit(Op::Clear { from: record, count: 1 });
                        Ok(())
                    }
                    Some(Target::Variable(name, _))
                        if matches!(self.resolve(name)?, Some(Location::Builtin(_))) =>
                    {
                        Ok(())
                    }
                    Some(parent) => self.store(parent, record, value_span, dead),
                }
            }
        }
    }

    /// Rebinds an existing name.
    fn write(&mut self, name: &Rc<str>, span: Span, src: Reg) -> Result<()> {
        match self.resolve(name)? {
            _ if &**name == "_" => drop(self.emit(Op::Clear { from: src, count: 1 })),
            Some(Location::Register(dst)) => drop(self.emit(Op::Move { take: true, dst, src })),
            Some(Location::Cell(cell)) => drop(self.emit(Op::SetCell { take: true, cell, src })),
            Some(Location::Capture(index)) => drop(self.emit(Op::SetCapture { take: true, src, index })),
            Some(Location::Global(slot)) => drop(self.emit(Op::SetGlobal { take: true, src, slot })),
            Some(Location::Builtin(_)) => {
                let help = format!("make a new name: `let {name} = ...`");
                return Err(error::not_assignable(format!("`{name}` is part of Runnel"), help)
                    .at(span, "assigned here"));
            }
            None => {
                let error = self.unknown(name, span);
                return Err(match error.help_text() {
                    Some(_) => error,
                    None => error.help(format!("a new name is made with `let {name} = ...`")),
                });
            }
        }
        Ok(())
    }
}
