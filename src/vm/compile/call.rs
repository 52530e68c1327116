//! Calls.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use super::super::bytecode::Op;
use super::super::error;
use super::super::function::{CallShape, MethodSite, Passed};
use super::super::value::Value;
use super::scope::Location;
use super::{Compiler, Reg, mentions};
use crate::base::{Result, Span};
use crate::syntax::ast::*;

/// The callee of a call.
enum Callee<'a> {
    /// The value in the first register.
    Value,
    /// A method of the value in the first register, or of a variable in a register that is not assigned
    /// before the call.
    Method(&'a Rc<str>, Option<Reg>),
    /// A variable in a register that is not assigned before the call.
    Local(Reg),
    /// A captured variable that is not assigned before the call.
    Capture(u16),
    Global(u16),
    Native(u16),
}

impl<'a> Compiler<'_, '_, 'a> {
    /// `x |> f(2)`, `x |> f`.
    pub(super) fn pipe(&mut self, receiver: &'a Expr, call: &'a Expr, span: Span, dst: Reg) -> Result<()> {
        match &call.kind {
            ExprKind::Call(callee, args) => self.call(callee, Some(receiver), args, span, dst),
            _ => self.call(call, Some(receiver), &[], span, dst),
        }
    }

    /// `callee(first, args...)`.
    pub(super) fn call(
        &mut self,
        callee: &'a Expr,
        first: Option<&'a Expr>,
        args: &'a [Arg],
        span: Span,
        dst: Reg,
    ) -> Result<()> {
        self.temporary(|c| {
            let base = c.temp()?;
            debug_assert!(dst < base, "a call's result goes below its window");
            let mut spans = Vec::with_capacity(args.len() + 2);
            let (mut names, mut method) = (Vec::new(), None);
            let target = c.callee(callee, first, args, base)?;
            if let Callee::Method(..) = target
                && let ExprKind::Member(receiver, name) = &unparen(callee).kind
            {
                spans.push(receiver.span);
                method = Some(name.span);
            }
            let mut places = Vec::new();
            if let Some(e) = first {
                let reg = c.temp()?;
                places.push(reg);
                c.expr(e, reg)?;
                spans.push(e.span);
            }
            for (i, arg) in args.iter().enumerate() {
                let reg = c.temp()?;
                if let (Callee::Method(_, Some(_)), Arg::One(e)) = (&target, arg)
                    && let ExprKind::Name(name) = &e.kind
                    && u8::try_from(args.len() + 1).is_ok()
                    && args.iter().all(|arg| matches!(arg, Arg::One(_)))
                    && let Some(Location::Register(variable)) = c.resolve(name)?
                {
                    // This variable is not assigned before the call either.
                    places.push(variable);
                    spans.push(e.span);
                    continue;
                }
                places.push(reg);
                if let Arg::Named(name, _) = arg {
                    names.push((i + usize::from(first.is_some()), name.span));
                }
                let (Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e)) = arg;
                c.expr(e, reg)?;
                spans.push(e.span);
            }
            let count = args.len() + usize::from(first.is_some());
            let plain = args.iter().all(|a| matches!(a, Arg::One(_)));
            let op = match (u8::try_from(count), &target) {
                (Ok(argc), Callee::Value) if plain => Op::Call { argc, base, dst },
                (Ok(argc), Callee::Local(callee)) if plain => {
                    Op::CallLocal { argc, base, dst, callee: *callee }
                }
                (Ok(argc), Callee::Capture(index)) if plain => {
                    Op::CallCapture { argc, base, dst, index: *index }
                }
                (Ok(argc), Callee::Global(slot)) if plain => Op::CallGlobal { argc, base, dst, slot: *slot },
                (Ok(argc), Callee::Native(k)) if plain => Op::CallNative { argc, base, dst, k: *k },
                (Ok(argc), &Callee::Method(name, receiver)) if plain => {
                    let (name, found, quick) = (c.intern(name), OnceCell::new(), Cell::new(None));
                    let args = places.into();
                    let methods = &mut c.last().shapes.methods;
                    methods.push(MethodSite { name, receiver, args, found, quick });
                    let site = u16::try_from(methods.len() - 1).map_err(|_| error::function_size())?;
                    match receiver {
                        Some(_) => Op::CallMethodOf { argc, base, dst, site },
                        None => Op::CallMethod { argc, base, dst, site },
                    }
                }
                _ => {
                    let shape = c.call_shape(&target, first.is_some(), args)?;
                    match target {
                        Callee::Global(slot) => drop(c.emit(Op::GetGlobal { dst: base, slot: slot.into() })),
                        Callee::Native(k) => drop(c.emit(Op::Load { dst: base, k: k.into() })),
                        Callee::Local(src) | Callee::Method(_, Some(src)) => {
                            c.emit(Op::Move { take: false, dst: base, src });
                        }
                        Callee::Capture(index) => drop(c.emit(Op::GetCapture { dst: base, index })),
                        Callee::Value | Callee::Method(_, None) => {}
                    }
                    Op::CallShaped { base, dst, shape }
                }
            };
            let at = c.emit_at(op, span, spans, u16::MAX) as u32;
            let places = &mut c.last().places;
            places.methods.extend(method.map(|span| (at, span)));
            if !names.is_empty() {
                places.given.push((at, names.into()));
            }
            Ok(())
        })
    }

    fn callee(
        &mut self,
        callee: &'a Expr,
        first: Option<&'a Expr>,
        args: &'a [Arg],
        base: Reg,
    ) -> Result<Callee<'a>> {
        let is_looped = std::mem::take(&mut self.loops_over_call);
        match &unparen(callee).kind {
            ExprKind::Member(receiver, name) => {
                let operand = |(Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e)): &'a Arg| e;
                if let ExprKind::Name(variable) = &unparen(receiver).kind
                    && let Some(Location::Register(reg)) = self.resolve(variable)?
                    && !first.into_iter().chain(args.iter().map(operand)).any(mentions::has_block)
                {
                    return Ok(Callee::Method(&name.text, Some(reg)));
                }
                self.expr(receiver, base)?;
                return Ok(Callee::Method(&name.text, None));
            }
            // `bool(x)` converts.
            ExprKind::Name(name) | ExprKind::Dtype(name) => match self.resolve(name)? {
                Some(place @ (Location::Register(_) | Location::Capture(_))) => {
                    let operand = |(Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e)): &'a Arg| e;
                    if !first.into_iter().chain(args.iter().map(operand)).any(mentions::has_block) {
                        return Ok(match place {
                            Location::Register(reg) => Callee::Local(reg),
                            Location::Capture(index) => Callee::Capture(index),
                            _ => Callee::Value,
                        });
                    }
                }
                Some(Location::Global(slot)) => {
                    if let Ok(slot) = u16::try_from(slot) {
                        return Ok(Callee::Global(slot));
                    }
                }
                Some(Location::Builtin(Value::Native(native))) => {
                    let lazy = if is_looped { native.lazy.get().cloned() } else { None };
                    let native = lazy.unwrap_or(native);
                    let key = super::emit::ConstKey::Native(Rc::as_ptr(&native) as usize);
                    let k = self.constant(key, || Value::Native(native));
                    if let Ok(k) = u16::try_from(k) {
                        return Ok(Callee::Native(k));
                    }
                }
                _ => {}
            },
            _ => {}
        }
        self.expr(callee, base)?;
        Ok(Callee::Value)
    }

    fn call_shape(&mut self, target: &Callee<'a>, first: bool, args: &'a [Arg]) -> Result<u16> {
        let method = match target {
            Callee::Method(name, _) => Some(self.intern(name)),
            _ => None,
        };
        let mut passed: Vec<Passed> = Vec::with_capacity(args.len() + 1);
        if first {
            passed.push(Passed::One);
        }
        for arg in args {
            passed.push(match arg {
                Arg::One(_) => Passed::One,
                Arg::Named(name, _) => Passed::Named(self.intern(&name.text)),
                Arg::Spread(_) => Passed::Spread,
            });
        }
        let calls = &mut self.last().shapes.calls;
        calls.push(CallShape { method, args: passed.into() });
        u16::try_from(calls.len() - 1).map_err(|_| error::function_size())
    }
}

pub(super) fn unparen(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}
