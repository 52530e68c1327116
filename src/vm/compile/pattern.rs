//! Patterns of `let`, `for`, parameters and `match`.

use std::rc::Rc;

use super::super::bytecode::Op;
use super::super::error;
use super::super::function::PatternShape;
use super::scope::Scope;
use super::{Compiler, Reg};
use crate::base::{Result, Span};
use crate::check::bound_names;
use crate::syntax::ast::*;

/// The index of a pattern's shape, the inner patterns, and the rest.
type Sequence<'a> = (u16, Vec<&'a Pattern>, Option<&'a Rest>);

impl<'a> Compiler<'_, '_, 'a> {
    /// Binds a pattern to the value in `reg`, which the pattern now owns.
    pub(super) fn pattern(&mut self, pattern: &'a Pattern, reg: Reg) -> Result<()> {
        self.pattern_of(pattern, reg, None)
    }

    /// [`Self::pattern`] with the span of the value.
    pub(super) fn pattern_of(&mut self, pattern: &'a Pattern, reg: Reg, value: Option<Span>) -> Result<()> {
        self.deeper(pattern.span, |c| c.located(pattern.span, |c| c.bind(pattern, reg, value)))
    }

    fn bind(&mut self, pattern: &'a Pattern, reg: Reg, value: Option<Span>) -> Result<()> {
        match &pattern.kind {
            PatternKind::Discard => drop(self.emit(Op::Clear { from: reg, count: 1 })),
            PatternKind::Bind(name) => self.declare(&name.text, reg),
            PatternKind::Tuple(..) | PatternKind::List(..) | PatternKind::Record(..) => {
                let Some((shape, parts, rest)) = self.sequence(pattern)? else { return Ok(()) };
                let base = self.reserve(parts.len() as u16 + u16::from(rest.is_some()))?;
                self.emit_at(
                    Op::Unpack { src: reg, base, shape },
                    pattern.span,
                    value.into_iter().collect(),
                    u16::MAX,
                );
                self.emit(Op::Clear { from: reg, count: 1 });
                self.parts(parts, rest, base)?;
            }
            PatternKind::Value(_) | PatternKind::Or(_) => {
                return Err(error::pattern_of_match(pattern.span));
            }
        }
        Ok(())
    }

    /// The patterns inside a sequence pattern, and the rest.
    fn parts(&mut self, parts: Vec<&'a Pattern>, rest: Option<&'a Rest>, base: Reg) -> Result<()> {
        let at = rest.map_or(usize::MAX, |r| r.at);
        for (i, part) in parts.into_iter().enumerate() {
            let reg = base + i as u16 + u16::from(i >= at);
            self.pattern(part, reg)?;
        }
        match rest.map(|r| (&r.name, base + r.at as u16)) {
            Some((Some(name), reg)) => self.declare(&name.text, reg),
            Some((None, reg)) => drop(self.emit(Op::Clear { from: reg, count: 1 })),
            None => {}
        }
        Ok(())
    }

    /// The shape of a tuple, list or record pattern, with its inner patterns.
    fn sequence(&mut self, pattern: &'a Pattern) -> Result<Option<Sequence<'a>>> {
        let (parts, rest, names): (Vec<&Pattern>, _, Vec<&Name>) = match &pattern.kind {
            PatternKind::Tuple(list, rest) | PatternKind::List(list, rest) => {
                (list.iter().collect(), rest, Vec::new())
            }
            PatternKind::Record(fields, rest) => {
                let names = fields.iter().filter_map(|(name, _)| name.as_ref()).collect();
                (fields.iter().map(|(_, p)| p).collect(), rest, names)
            }
            _ => return Ok(None),
        };
        let count = u16::try_from(parts.len()).map_err(|_| error::function_size())?;
        let names = names.into_iter().map(|n| self.intern(&n.text)).collect();
        let shape = self.pattern_shape(PatternShape {
            count,
            rest: rest.as_ref().map(|r| (r.at as u16, r.name.is_some())),
            names,
            list: matches!(pattern.kind, PatternKind::List(..)),
        })?;
        Ok(Some((shape, parts, rest.as_ref())))
    }

    pub(super) fn pattern_shape(&mut self, shape: PatternShape) -> Result<u16> {
        let shapes = &mut self.last().shapes.patterns;
        shapes.push(shape);
        u16::try_from(shapes.len() - 1).map_err(|_| error::function_size())
    }

    /// `match`.
    pub(super) fn match_arms(&mut self, subject: &'a Expr, arms: &'a [Arm], dst: Reg) -> Result<()> {
        let from = self.last().next;
        let value = self.temp()?;
        self.expr(subject, value)?;
        // A variable keeps its value and the value's parts alive.
        let is_variable = matches!(subject.kind, ExprKind::Name(_));
        let (mut ends, mut most) = (Vec::new(), value + 1);
        for arm in arms {
            self.open_scope();
            let mut fails = Vec::new();
            self.test(&arm.pattern, value, &mut fails)?;
            if let Some(guard) = &arm.guard {
                self.condition(guard, false, &mut fails)?;
            }
            most = most.max(self.last().next);
            if !is_variable {
                self.clear_unbound(value, most);
            }
            match &arm.body.kind {
                ExprKind::Block(block) => self.located(arm.body.span, |c| c.last_block(block, dst))?,
                _ => self.expr(&arm.body, dst)?,
            }
            most = most.max(self.last().next);
            if let Some(from) = self.leave_scope() {
                self.last().next = from;
            }
            ends.push(self.emit(Op::Jump { offset: 0 }));
            self.patch_all(fails);
        }
        self.emit_at(Op::NoArm { src: value }, subject.span, vec![subject.span], u16::MAX);
        self.patch_all(ends);
        // One release for all arms: their bindings are above the subject.
        self.emit(Op::Clear { from, count: most - from });
        self.last().next = from;
        Ok(())
    }

    /// Releases the registers from `from` to `end` that hold no variable of the innermost scope.
    fn clear_unbound(&mut self, from: Reg, end: Reg) {
        let mut bound: Vec<Reg> = self.last().scopes.last().map(Scope::registers).unwrap_or_default();
        bound.sort_unstable();
        let mut from = from;
        for reg in bound.into_iter().chain([end]) {
            if reg > from {
                self.emit(Op::Clear { from, count: reg - from });
            }
            from = from.max(reg.saturating_add(1));
        }
    }

    /// Jumps away if the value in `reg` does not match; otherwise moves the bound values to the registers
    /// shared by all alternatives. Its registers stay reserved until the arm ends.
    fn alternative(
        &mut self,
        pattern: &'a Pattern,
        reg: Reg,
        shared: &[(Rc<str>, Reg)],
        fails: &mut Vec<usize>,
    ) -> Result<()> {
        self.open_scope();
        self.test(pattern, reg, fails)?;
        for (name, dst) in shared {
            self.read(name, pattern.span, *dst)?;
        }
        self.leave_scope();
        Ok(())
    }

    /// Jumps away if the value in `reg` does not match; binds names on the way.
    fn test(&mut self, pattern: &'a Pattern, reg: Reg, fails: &mut Vec<usize>) -> Result<()> {
        self.deeper(pattern.span, |c| c.located(pattern.span, |c| c.test_kind(pattern, reg, fails)))
    }

    fn test_kind(&mut self, pattern: &'a Pattern, reg: Reg, fails: &mut Vec<usize>) -> Result<()> {
        match &pattern.kind {
            PatternKind::Discard => Ok(()),
            PatternKind::Bind(name) => {
                let dst = self.temp()?;
                self.emit(Op::Move { take: false, dst, src: reg });
                self.declare(&name.text, dst);
                Ok(())
            }
            PatternKind::Value(e) => self.temporary(|c| {
                let b = c.operand(e)?;
                let dst = c.temp()?;
                c.emit_at(Op::FitsValue { dst, a: reg, b }, e.span, vec![e.span], u16::MAX);
                fails.push(c.emit(Op::JumpIf { sense: false, a: dst, offset: 0 }));
                Ok(())
            }),
            PatternKind::Or(list) => {
                let mut names: Vec<Rc<str>> = Vec::new();
                bound_names(pattern, &mut |name, _| names.push(Rc::clone(name)));
                let mut shared = Vec::with_capacity(names.len());
                for name in names {
                    shared.push((name, self.temp()?));
                }
                let mut fits = Vec::new();
                let Some((last, before)) = list.split_last() else { return Ok(()) };
                for alternative in before {
                    let mut next = Vec::new();
                    self.alternative(alternative, reg, &shared, &mut next)?;
                    fits.push(self.emit(Op::Jump { offset: 0 }));
                    self.patch_all(next);
                }
                self.alternative(last, reg, &shared, fails)?;
                self.patch_all(fits);
                for (name, reg) in shared {
                    self.declare(&name, reg);
                }
                Ok(())
            }
            PatternKind::Tuple(..) | PatternKind::List(..) | PatternKind::Record(..) => {
                let Some((shape, parts, rest)) = self.sequence(pattern)? else { return Ok(()) };
                let base = self.reserve(parts.len() as u16 + 1 + u16::from(rest.is_some()))?;
                self.emit(Op::Fits { src: reg, base, shape });
                fails.push(self.emit(Op::JumpIf { sense: false, a: base, offset: 0 }));
                let at = rest.map_or(usize::MAX, |r| r.at);
                for (i, part) in parts.into_iter().enumerate() {
                    self.test(part, base + 1 + i as u16 + u16::from(i >= at), fails)?;
                }
                if let Some(Rest { at, name: Some(name) }) = rest {
                    let dst = self.temp()?;
                    self.emit(Op::Move { take: true, dst, src: base + 1 + *at as u16 });
                    self.declare(&name.text, dst);
                }
                Ok(())
            }
        }
    }
}
