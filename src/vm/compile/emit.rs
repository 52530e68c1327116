//! Instructions, constants, registers and jumps of the function being compiled.

use std::rc::Rc;

use super::super::bytecode::{Offset, Op};
use super::super::error;
use super::super::value::Value;
use super::{Compiler, MAX_REGISTERS, Reg};
use crate::base::{Result, Span};

/// Equal constants share an index.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum ConstKey {
    Int(i64),
    Float(u64),
    Str(Rc<str>),
    Native(usize),
}

impl<'a> Compiler<'_, '_, 'a> {
    /// Appends an instruction with the current span; returns its position.
    pub(super) fn emit(&mut self, op: Op) -> usize {
        self.emitted += 1;
        let function = self.last();
        function.code.push(op);
        function.places.spans.push(function.here);
        function.places.dead_from.push(u16::MAX);
        function.code.len() - 1
    }

    /// Appends an instruction at `span` with the spans of its operands. The instruction releases operands in
    /// registers from `dead` on.
    pub(super) fn emit_at(&mut self, op: Op, span: Span, operands: Vec<Span>, dead: Reg) -> usize {
        self.emitted += 1;
        let function = self.last();
        let at = function.code.len();
        function.code.push(op);
        function.places.spans.push(span);
        function.places.dead_from.push(dead);
        function.places.operands.push((at as u32, operands.into()));
        at
    }

    /// The position of the next instruction.
    pub(super) fn position(&mut self) -> usize {
        self.last().code.len()
    }

    /// Makes the jump at `at` target the next instruction.
    pub(super) fn patch(&mut self, at: usize) {
        let target = self.position();
        self.patch_to(at, target);
    }

    pub(super) fn patch_all(&mut self, jumps: Vec<usize>) {
        jumps.into_iter().for_each(|at| self.patch(at));
    }

    /// Makes the jump at `at` target `target`.
    pub(super) fn patch_to(&mut self, at: usize, target: usize) {
        let distance = target as i64 - at as i64 - 1;
        let reached = match self.last().code[at].offset_mut() {
            Some(Offset::Short(offset)) => i16::try_from(distance).map(|d| *offset = d).is_ok(),
            Some(Offset::Long(offset)) => i32::try_from(distance).map(|d| *offset = d).is_ok(),
            None => true,
        };
        self.too_far |= !reached;
    }

    pub(super) fn constant(&mut self, key: ConstKey, value: impl FnOnce() -> Value) -> u32 {
        let function = self.last();
        if let Some(&at) = function.const_index.get(&key) {
            return at;
        }
        let at = function.consts.len() as u32;
        function.consts.push(value());
        function.const_index.insert(key, at);
        at
    }

    /// A string constant.
    pub(super) fn text(&mut self, text: &Rc<str>) -> u32 {
        let text = self.intern(text);
        self.constant(ConstKey::Str(Rc::clone(&text)), || Value::str(&*text))
    }

    /// A name as a 16-bit operand.
    pub(super) fn name_constant(&mut self, name: &Rc<str>) -> Result<u16> {
        let k = self.text(name);
        u16::try_from(k).map_err(|_| error::function_size())
    }

    /// Loads a constant.
    pub(super) fn load(&mut self, dst: Reg, value: Value) {
        let k = match &value {
            Value::Int(i) if i32::try_from(*i).is_ok() => {
                let value = *i as i32;
                self.emit(Op::LoadInt { dst, value });
                return;
            }
            Value::Int(i) => self.constant(ConstKey::Int(*i), || value),
            Value::Float(f) => self.constant(ConstKey::Float(f.to_bits()), || value),
            Value::Native(native) => {
                let address = Rc::as_ptr(native) as usize;
                self.constant(ConstKey::Native(address), || value)
            }
            _ => {
                let consts = &mut self.last().consts;
                consts.push(value);
                consts.len() as u32 - 1
            }
        };
        self.emit(Op::Load { dst, k });
    }

    /// A fresh register above all others in use.
    pub(super) fn temp(&mut self) -> Result<Reg> {
        self.reserve(1)
    }

    /// `count` fresh adjacent registers; returns the first.
    pub(super) fn reserve(&mut self, count: u16) -> Result<Reg> {
        let function = self.last();
        let first = function.next;
        match first.checked_add(count) {
            Some(next) if next <= MAX_REGISTERS => {
                function.next = next;
                function.most = function.most.max(next);
                Ok(first)
            }
            _ => {
                let here = function.here;
                Err(error::function_size().at(here, "in this function"))
            }
        }
    }

    /// Runs `body`, then frees the registers it took.
    pub(super) fn temporary<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mark = self.last().next;
        let result = body(self);
        self.last().next = mark;
        result
    }

    /// Runs `body` with `span` as the current span.
    pub(super) fn located<T>(&mut self, span: Span, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = std::mem::replace(&mut self.last().here, span);
        let result = body(self);
        self.last().here = before;
        result
    }

    /// Releases the used registers from `from` on.
    pub(super) fn clear_from(&mut self, from: Reg) {
        let next = self.last().next;
        if next > from {
            self.emit(Op::Clear { from, count: next - from });
        }
    }
}
