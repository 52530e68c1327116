//! Call windows on the register stack.

use std::rc::Rc;

use super::super::function::{Capture, Closure, Proto};
use super::super::heap::Cell;
use super::super::value::Value;
use super::{Calls, Frame};
use crate::base::Span;

impl Calls {
    /// Leaves the call at `base`, returning its register `src` to a script, whatever value it holds.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_window(&mut self, base: usize, src: u16) -> Frame {
        let Some(mut frame) = self.frames.pop() else { unreachable!("a call that returns has a frame") };
        let end = base + self.registers_at(base);
        let value = std::mem::take(&mut self.stack[base + src as usize]);
        for register in &mut self.stack[base + 1..end] {
            *register = Value::None;
        }
        // The function owns the code and is released last.
        self.stack[base] = Value::None;
        frame.owns |= !value.is_plain();
        self.stack[frame.base as usize + frame.dst as usize] = value;
        frame
    }

    /// The code of the call whose window begins at `index`.
    #[inline(always)]
    pub(super) fn proto_at(&self, index: usize) -> *const Proto {
        match &self.stack[index] {
            Value::Fn(closure) => Rc::as_ptr(&closure.proto),
            // Register 0 always holds the running closure; see `Proto`.
            _ => unreachable!("register 0 holds the running function"),
        }
    }

    #[inline(always)]
    pub(super) fn registers_at(&self, index: usize) -> usize {
        match &self.stack[index] {
            Value::Fn(closure) => closure.proto.registers as usize,
            _ => 0,
        }
    }

    #[cold]
    pub(in crate::vm) fn grow_stack(&mut self, needed: usize) {
        let length = needed.max(self.stack.len() * 2).max(1024);
        self.stack.resize_with(length, Value::default);
    }

    pub(super) fn make_closure(&self, base: usize, index: usize) -> Rc<Closure> {
        let Value::Fn(outer) = &self.stack[base] else {
            unreachable!("register 0 holds the running function")
        };
        let proto = Rc::clone(&outer.proto.protos[index]);
        let captures = proto.captures.iter().map(|capture| match *capture {
            Capture::Register(reg) => match &self.stack[base + reg as usize] {
                Value::Cell(cell) => Rc::clone(cell),
                other => Rc::new(Cell::new(other.clone())),
            },
            Capture::Outer(index) => Rc::clone(&outer.captures[index as usize]),
        });
        let captures = captures.collect();
        Closure::shared(proto, captures)
    }

    /// The span of the instruction at `pc` of the call at `base`.
    pub(super) fn span_at(&self, base: usize, pc: usize) -> Span {
        match &self.stack[base] {
            Value::Fn(closure) => closure.proto.places.span(pc),
            _ => Span::NONE,
        }
    }
}
