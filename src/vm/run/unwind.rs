//! Error propagation to handlers, and exits from contexts.

use std::rc::Rc;

use super::super::heap::ErrorValue;
use super::super::value::Value;
use super::super::{Vm, account, error};
use crate::base::{Error, ErrorKind, Result, Span, guard};
use crate::ops::Arg;
use crate::ops::signature::Kind;
use crate::stream::error::stream_token;
use crate::stream::races::Where;
use crate::syntax::ast::{ExprKind, Item, Stmt, StmtKind};

/// Longer lists are not parsed again to find the position of an element.
const SHORT: usize = 1 << 16;

impl Vm {
    /// Takes an error to the innermost handler above `floor` frames, leaving contexts on the way. Returns
    /// where to continue, or the error if no handler of this entry takes it.
    #[cold]
    #[inline(never)]
    pub(super) fn unwind(
        &mut self,
        error: Error,
        mut base: usize,
        pc: usize,
        floor: usize,
        contexts: usize,
    ) -> Result<(usize, usize)> {
        let error = self.counted(error);
        self.note_stop(&error);
        let mut error = self.locate(error, base, pc);
        loop {
            let here = |h: &super::Handler| h.depth == self.calls.frames.len();
            while let Some(handler) = self.calls.handlers.pop_if(|h| here(h)) {
                if handler.catch && !error.kind().can_be_caught() {
                    continue;
                }
                if !error::is_spent(&error) && error.kind() != ErrorKind::Interrupted {
                    // The VM continues, for instance after running out of memory.
                    account::hurry(false);
                }
                error = self.leave_failed(handler.contexts, error);
                let at = base + handler.dst as usize;
                self.calls.top = base + self.calls.registers_at(base);
                // Release the registers of the failed region.
                for register in &mut self.calls.stack[at..self.calls.top] {
                    *register = Value::None;
                }
                if let Some(panic) = guard::take() {
                    error = error.and(panic);
                }
                let line = self.line(error.span());
                let source = self.sources.hold(error.span());
                self.calls.stack[at] = Value::Error(Rc::new(ErrorValue::new(error, line, source)));
                return Ok((base, handler.target));
            }
            let count = self.calls.registers_at(base);
            let Some(frame) = self.calls.frames.pop() else { return Err(error) };
            for register in &mut self.calls.stack[base..base + count] {
                *register = Value::None;
            }
            if frame.entry {
                self.calls.top = frame.base as usize;
                debug_assert!(self.calls.frames.len() + 1 == floor);
                return Err(self.leave_failed(contexts, error));
            }
            base = frame.base as usize;
            let code = match &self.calls.stack[base] {
                Value::Fn(closure) => closure.proto.code.as_ptr(),
                _ => frame.pc,
            };
            // SAFETY: a frame's `pc` points into its own function's code, after the call.
            let at = unsafe { frame.pc.offset_from(code) } as usize - 1;
            error = error.call(self.calls.span_at(base, at));
        }
    }

    /// Counts the work of making and locating an error, and returns the error, or that of a limit that is
    /// reached. An error takes microseconds, and longer if its text or its line is long.
    fn counted(&self, error: Error) -> Error {
        const RAISED: usize = 512;
        const BYTES_PER_UNIT: usize = 64;
        if error.kind() == ErrorKind::Interrupted || error::is_spent(&error) {
            return error;
        }
        let units = RAISED + error.message().len() / BYTES_PER_UNIT;
        self.worked(u32::try_from(units).unwrap_or(u32::MAX)).err().unwrap_or(error)
    }

    /// Adds source positions to an error of the instruction at `pc`.
    fn locate(&self, error: Error, base: usize, pc: usize) -> Error {
        let Value::Fn(closure) = &self.calls.stack[base] else { return error };
        let site = closure.proto.site(pc);
        let here = site.here;
        if error.is_located() && !error.span().is_none() {
            // The error comes from a callback or a module: this instruction is one of its callers.
            let inside = error.span().lo >= here.lo && error.span().hi <= here.hi;
            return if inside { error } else { error.call(here) };
        }
        let error = error.elements(&site, |list, at| self.element_written(list, at));
        self.name_streams(error.locate(&site), Some((base, pc)))
    }

    /// The span of an element of the list literal at `list`.
    fn element_written(&self, list: Span, at: usize) -> Option<Span> {
        let text = self.sources.snippet(list);
        if text.len() > SHORT {
            return None;
        }
        let parsed = crate::syntax::parse(list.lo, text);
        let [Stmt { kind: StmtKind::Expr(whole), .. }] = parsed.block.body.as_slice() else { return None };
        let mut whole = whole;
        while let ExprKind::Paren(inner) = &whole.kind {
            whole = inner;
        }
        let (ExprKind::List(items) | ExprKind::Tuple(items)) = &whole.kind else { return None };
        let is_one = |item: &Item| matches!(item, Item::One(_));
        match items.get(at) {
            Some(Item::One(e)) if items[..at].iter().all(is_one) => Some(e.span),
            _ => None,
        }
    }

    /// Replaces the stream tokens of a race report by script expressions: a variable that holds the stream,
    /// else `cuda.default_stream()`, else the stream's number. `at` is the running instruction and the start
    /// of its registers.
    pub(in crate::vm) fn name_streams(&self, error: Error, at: Option<(usize, usize)>) -> Error {
        if error.kind() != ErrorKind::Race {
            return error;
        }
        // Globals, then the variables of the running calls, outermost first.
        let mut held = self.globals();
        let callers = self.calls.frames.iter().filter(|frame| !frame.entry).map(|frame| {
            // SAFETY: a frame's `proto` lives as long as the frame, and `pc` points into its code, after the
            // call.
            let next = unsafe { frame.pc.offset_from((*frame.proto).code.as_ptr()) };
            (frame.base as usize, next as usize - 1)
        });
        for (base, pc) in callers.chain(at) {
            let Some(Value::Fn(closure)) = self.calls.stack.get(base) else { continue };
            for named in closure.proto.places.names_at(pc) {
                let value = match self.calls.stack.get(base + named.register as usize) {
                    Some(Value::Cell(cell)) => cell.get(),
                    Some(value) => value.clone(),
                    None => continue,
                };
                let name = named.name.split('\0').next().unwrap_or_default();
                held.push((name.into(), value));
            }
        }
        let mut names: Vec<(String, String)> = Vec::new();
        for (name, value) in held.iter().rev() {
            let Value::Object(handle) = value else { continue };
            let Some(Arg::Stream(stream)) = handle.get().as_arg(Kind::Stream) else { continue };
            if !stream.is_default() {
                names.push((stream_token(Where::Stream(stream.device(), stream.id())), name.to_string()));
            }
        }
        error.rewrite(|text| {
            let mut text = text.to_string();
            for (token, name) in &names {
                text = text.replace(token, name);
            }
            while let Some((before, rest)) = text.split_once('\u{27e6}') {
                let Some((token, after)) = rest.split_once('\u{27e7}') else { break };
                let name = match token.split_once('#') {
                    Some(("cuda:0", "0")) => "cuda.default_stream()".to_string(),
                    Some((device, "0")) => format!("{device}.default_stream()"),
                    Some((device, id)) => format!("<stream {id} of {device}>"),
                    None => token.to_string(),
                };
                text = format!("{before}{name}{after}");
            }
            text
        })
    }

    /// The innermost call that is not in code of a library module.
    pub(super) fn outer_span(&self) -> Span {
        let mut callers = self.calls.frames.iter().rev().filter(|frame| !frame.entry).map(|frame| {
            // SAFETY: a frame's `proto` lives as long as the frame, and `pc` points into its code, after the
            // call.
            unsafe {
                let proto = &*frame.proto;
                (proto, frame.pc.offset_from(proto.code.as_ptr()))
            }
        });
        let found = callers.find(|(proto, _)| !proto.is_library);
        found.map_or(Span::NONE, |(proto, next)| proto.places.span(next as usize - 1))
    }

    /// Leaves contexts down to the `count`-th, innermost first; the first error is returned.
    pub(super) fn leave_contexts(&mut self, count: usize) -> Result<()> {
        let mut result = Ok(());
        while self.calls.contexts.len() > count {
            if let Some(exit) = self.calls.contexts.pop() {
                let left = exit(self);
                result = result.and(left);
            }
        }
        result
    }

    /// [`Vm::leave_contexts`] during an error, which stays the main one.
    fn leave_failed(&mut self, count: usize, error: Error) -> Error {
        self.calls.failing += 1;
        let left = self.leave_contexts(count);
        self.calls.failing -= 1;
        match left {
            Ok(()) => error,
            Err(other) => error.and(other),
        }
    }

    pub(super) fn enter_context(&mut self, base: usize, at: usize, src: u16) -> Result<()> {
        let dead = self.dead_from(base, at);
        let context = self.operand(base, src, dead);
        let exit = match &context {
            Value::Object(handle) => {
                let handle = Rc::clone(handle);
                handle.get().enter(self)?
            }
            Value::Device(device) => self.device_context(*device)?,
            other => return Err(error::not_context(other.type_name())),
        };
        self.calls.contexts.push(exit);
        Ok(())
    }

    pub(super) fn enter_device(&mut self, base: usize, src: u16) -> Result<()> {
        let exit = match &self.calls.stack[base + src as usize] {
            Value::Device(device) => self.device_context(*device)?,
            other => return Err(error::argument_type("on", 0, "device", "a device", other.type_name())),
        };
        self.calls.contexts.push(exit);
        Ok(())
    }

    /// The error of `throw value`.
    #[cold]
    pub(super) fn thrown(&self, value: &Value) -> Error {
        match value {
            Value::Str(text) => error::thrown(text.as_str()),
            Value::Error(caught) => caught.error.clone(),
            other => error::throw_type(other.type_name()),
        }
    }

    /// Reads a variable in a cell that has no value: one that is defined later. It is the native of that name, if it hides
    /// one.
    #[cold]
    pub(super) fn unset_variable(&self, name: Option<&Rc<str>>) -> Result<Value> {
        // A name of the top level may have a number; see `compile::scope`.
        let (name, is_top) = match name.and_then(|name| name.split_once('\0')) {
            Some((name, _)) => (name, true),
            None => (name.map_or("it", |name| name), false),
        };
        match self.natives.functions().get(name).filter(|_| is_top) {
            Some(value) => Ok(value.clone()),
            None => Err(error::unset(name)),
        }
    }

    /// Reads an undefined global name: the native of that name, if the name hides one.
    #[cold]
    #[inline(never)]
    pub(super) fn unset_global(&mut self, slot: u32) -> Result<Value> {
        let find = |module: &super::super::Module| {
            let names = module.names.borrow();
            names.iter().find(|(_, s)| **s == slot).map(|(name, _)| Rc::clone(name))
        };
        let loaded = self.modules.loaded();
        let name = find(&self.globals.main).or_else(|| loaded.iter().find_map(|m| find(m)));
        let name = name.unwrap_or_else(|| "it".into());
        match self.natives.functions().get(&name) {
            Some(value) => Ok(value.clone()),
            None => Err(error::unset(&name)),
        }
    }
}
