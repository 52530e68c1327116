//! The interpreter loop.
//!
//! One loop runs all script calls of one entry from Rust: a call pushes a frame, a return pops one. Registers
//! are a window of one contiguous stack. The loop handles the fast path of each instruction: numbers, lists
//! at a position, functions with plain arguments. It leaves everything else to [`Vm::step`], which executes
//! the whole instruction; this keeps processor registers free for the fast paths. Invariant: while the loop
//! runs, `base` is the start of the running call's window, which holds `proto.registers` initialised values,
//! and `pc` points into `proto.code`; `base` is reloaded after a step.

pub mod arith;
pub(super) mod calls;
mod index;
mod iterate;
pub use iterate::Each;
mod registers;
mod short;
mod step;
mod steps;
#[cfg(test)]
mod tests;
mod unwind;
mod windows;

use std::rc::Rc;

use super::Vm;
use super::bytecode::Op;
use super::function::Proto;
use super::heap::Record;
use super::object::Exit;
use super::value::Value;
use crate::base::{Error, Result};
use registers::{
    copy, copy_plain, is_shared, put_float, put_function, put_int, release, release_function, transfer,
};
use short::{Done, short};

/// The state that a call returns to.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// The caller's next instruction.
    pub(super) pc: *const Op,
    /// The caller's code; its register 0 keeps it alive.
    pub(super) proto: *const Proto,
    /// Start of the caller's registers.
    pub(super) base: u32,
    /// The caller's register for the result.
    pub(super) dst: u16,
    /// The caller is Rust.
    pub(super) entry: bool,
    /// The caller's registers may hold values that own something.
    pub(super) owns: bool,
}

/// The remaining work of an instruction that its fast path does not handle.
enum Rest {
    /// Execute it in full.
    Step,
    /// Copy the second value over the first.
    Copy(*mut Value, *const Value),
    /// Release this value and execute the instruction again.
    Release(*mut Value),
    /// Call the function in the register `first`, which runs `proto`, with plain arguments.
    Call { proto: *const Proto, first: u16, argc: u8, dst: u16 },
    /// Return this register from a call whose registers may own something.
    Leave(u16),
    /// Execute it in [`Vm::short`], or in full if that does not handle it.
    Short,
}

/// The continuation of the loop after a step.
pub(super) enum Flow {
    /// At the next instruction.
    Next,
    /// At this offset from the next instruction.
    Jump(i32),
    /// In the script function whose window begins `first` registers further on, with its arguments in place
    /// and enough room for its registers. Its result goes to the register `dst`.
    Begin { first: u16, dst: u16 },
    /// In Rust: the result of the entry is in [`Calls::left`].
    Return,
    /// At a handler: the error is in [`Calls::left`].
    Raise,
}

/// A step's result besides the [`Flow`], which must fit in a processor register.
#[derive(Default)]
pub(super) enum Left {
    #[default]
    Nothing,
    Value(Value),
    Error(Error),
}

/// The running calls: registers, frames, handlers and contexts.
///
/// Invariant: the windows of the running calls lie below `top`, in the order of the calls, with one frame for each
/// but the first. Registers from `top` on are unused.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) stack: Vec<Value>,
    /// One past the running call's registers.
    pub(super) top: usize,
    pub(super) frames: Vec<Frame>,
    handlers: Vec<Handler>,
    left: Left,
    contexts: Vec<Exit>,
    /// Number of errors propagating through contexts.
    pub(super) failing: usize,
    pub(super) depth_limit: usize,
    /// Up to this many frames a call needs no check of the depth limit or the frame space.
    pub(super) frame_room: usize,
    /// Number of nested calls from natives into the script.
    pub(super) callbacks: usize,
}

/// [`Record::get`]. Cold and out of line: inlining its loop, or a call that is not cold, would spill the interpreter
/// loop's state from processor registers.
#[cold]
#[inline(never)]
fn field<'a>(record: &'a Record, name: &str) -> Option<&'a Value> {
    record.get(name)
}

/// An error handler.
pub(super) struct Handler {
    /// Number of frames when it was pushed.
    pub(super) depth: usize,
    /// Number of contexts when it was pushed.
    pub(super) contexts: usize,
    /// The instruction, the register.
    pub(super) target: usize,
    pub(super) dst: u16,
    /// False for cleanup handlers, which receive interrupts too.
    pub(super) catch: bool,
}

impl Vm {
    /// Runs the call whose window begins at `start` until it returns to Rust.
    pub(super) fn run_loop(&mut self, start: usize) -> Result<Value> {
        let floor = self.calls.frames.len();
        let contexts = self.calls.contexts.len();
        let mut at = start;
        let mut from = 0;
        loop {
            match self.execute(at, from) {
                Ok(value) => return Ok(value),
                Err((error, base, pc)) => match self.unwind(error, base, pc, floor, contexts) {
                    Ok((base, pc)) => (at, from) = (base, pc),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Runs from instruction `from` of the call at `start`. Errors carry their source position.
    #[inline(never)]
    fn execute(&mut self, start: usize, from: usize) -> Result<Value, (Error, usize, usize)> {
        // SAFETY: the window at `start` was made by `begin`, so it holds a closure and
        // `registers` initialised values (the invariant of `Proto`).
        let mut base: *mut Value = unsafe { self.calls.stack.as_mut_ptr().add(start) };
        let mut proto: *const Proto = self.calls.proto_at(start);
        // SAFETY: `proto` is kept alive by the closure in register 0, which is never written; `from`
        // is inside the code.
        let mut pc: *const Op = unsafe { (*proto).code.as_ptr().add(from) };

        // Whether the running call's registers may hold values that own something: arguments, copies and
        // results of steps. Otherwise the return has nothing to release. (Values above a caller's arguments
        // belong to the caller, who releases them.)
        let mut owns = true;

        // SAFETY (of all register, constant and instruction access below): the compiler's
        // invariant on `Proto` keeps every operand in range; `base`, `proto` and `pc` belong to
        // the running call and are set anew whenever it changes or the stack may have moved.
        macro_rules! slot {
            ($i:expr) => {
                base.wrapping_add($i as usize)
            };
        }
        macro_rules! reg {
            ($i:expr) => {
                // SAFETY: see above.
                unsafe { &*slot!($i) }
            };
        }
        macro_rules! konst {
            ($i:expr) => {
                // SAFETY: see above.
                unsafe { &*(*proto).consts.as_ptr().add($i as usize) }
            };
        }
        // The start of the running call's window.
        macro_rules! window {
            () => {
                // SAFETY: `base` points into the stack.
                unsafe { base.offset_from(self.calls.stack.as_ptr()) as usize }
            };
        }
        macro_rules! here {
            () => {
                // SAFETY: `pc` points into the code.
                unsafe { pc.offset_from((*proto).code.as_ptr()) as usize }
            };
        }
        // Makes the window `$first` registers further on, which runs `$callee`, the running call. `frames`
        // must have room.
        macro_rules! enter {
            ($window:expr, $first:expr, $callee:expr, $dst:expr) => {{
                let (base_index, first): (usize, usize) = ($window, $first);
                let (pc_after, base_index) = (pc.wrapping_add(1), base_index as u32);
                let frame = Frame { pc: pc_after, proto, base: base_index, dst: $dst, entry: false, owns };
                let depth = self.calls.frames.len();
                proto = $callee;
                // SAFETY: the stack has room for the window, and `frames` for one more; the function, in
                // its register 0, keeps `proto` alive.
                unsafe {
                    self.calls.frames.as_mut_ptr().add(depth).write(frame);
                    self.calls.frames.set_len(depth + 1);
                    base = base.add(first);
                    pc = (*proto).code.as_ptr();
                }
            }};
        }

        'next: loop {
            // Continues at the next instruction.
            macro_rules! next {
                () => {{
                    // SAFETY: the last instruction returns, so there is always a next one.
                    pc = unsafe { pc.add(1) };
                    continue 'next;
                }};
            }
            // The fast paths continue from inside this block. They call nothing, so that the loop's state
            // stays in processor registers; the code after the block is shared between instructions.
            let rest = 'plain: {
                // Exits the fast path to release the register's value and then retry, if the value owns
                // something. Operands have been checked to be numbers, so the value is not one of them.
                macro_rules! free {
                    ($i:expr) => {
                        if !reg!($i).is_plain() {
                            break 'plain Rest::Release(slot!($i));
                        }
                    };
                }
                macro_rules! set_int {
                    ($i:expr, $value:expr) => {{
                        let value = $value;
                        free!($i);
                        // SAFETY: see above.
                        unsafe { put_int(slot!($i), value) }
                    }};
                }
                macro_rules! set_float {
                    ($i:expr, $value:expr) => {{
                        let value = $value;
                        free!($i);
                        // SAFETY: see above.
                        unsafe { put_float(slot!($i), value) }
                    }};
                }
                // Copies a value and continues.
                macro_rules! copy {
                    ($i:expr, $value:expr) => {{
                        let value: *const Value = $value;
                        let slot = slot!($i);
                        // SAFETY: see above.
                        unsafe {
                            if !(*slot).is_plain() || !(*value).is_plain() {
                                break 'plain Rest::Copy(slot, value);
                            }
                            copy_plain(slot, value);
                        }
                        next!();
                    }};
                }
                // Writes a register's value to a variable, if both values own nothing.
                macro_rules! store {
                    ($slot:expr, $src:expr) => {{
                        let slot: *mut Value = $slot;
                        let value = slot!($src);
                        // SAFETY: see above.
                        if unsafe { (*slot).is_plain() && (*value).is_plain() } {
                            // SAFETY: as above.
                            unsafe { copy_plain(slot, value) };
                            next!();
                        }
                    }};
                }
                // Jumps and continues. A backward jump that must check the limits is left to `step`.
                macro_rules! jump {
                    ($offset:expr) => {{
                        let offset = $offset as isize;
                        if offset < 0 {
                            if self.meter.budget <= 1 {
                                break 'plain Rest::Step;
                            }
                            self.meter.budget -= 1;
                        }
                        // SAFETY: jumps land inside the code.
                        pc = unsafe { pc.offset(1 + offset) };
                        continue 'next;
                    }};
                }
                macro_rules! arith {
                    ($dst:expr, $a:expr, $b:expr, $int:ident, $float:tt) => {{
                        match ($a, $b) {
                            (&Value::Int(x), &Value::Int(y)) => {
                                if let Some(value) = x.$int(y) {
                                    set_int!($dst, value);
                                    next!();
                                }
                            }
                            (&Value::Float(x), &Value::Float(y)) => {
                                set_float!($dst, x $float y);
                                next!();
                            }
                            (&Value::Float(x), &Value::Int(y)) => {
                                set_float!($dst, x $float y as f64);
                                next!();
                            }
                            (&Value::Int(x), &Value::Float(y)) => {
                                set_float!($dst, x as f64 $float y);
                                next!();
                            }
                            _ => {}
                        }
                    }};
                }
                macro_rules! arith_small {
                    ($dst:expr, $a:expr, $value:expr, $int:ident, $float:tt) => {{
                        match *reg!($a) {
                            Value::Int(x) => {
                                if let Some(value) = x.$int(i64::from($value)) {
                                    set_int!($dst, value);
                                    next!();
                                }
                            }
                            Value::Float(x) => {
                                set_float!($dst, x $float f64::from($value));
                                next!();
                            }
                            _ => {}
                        }
                    }};
                }
                macro_rules! divide {
                    ($dst:expr, $a:expr, $b:expr) => {{
                        let quotient = match ($a, $b) {
                            (&Value::Float(x), &Value::Float(y)) => Some(x / y),
                            (&Value::Int(x), &Value::Int(y)) if y != 0 && arith::are_exact(x, y) => {
                                Some(x as f64 / y as f64)
                            }
                            _ => None,
                        };
                        if let Some(quotient) = quotient {
                            set_float!($dst, quotient);
                            next!();
                        }
                    }};
                }
                // For a positive divisor, floor division equals Euclidean division.
                macro_rules! whole {
                    ($dst:expr, $a:expr, $b:expr, $int:ident) => {
                        if let (&Value::Int(x), &Value::Int(y)) = ($a, $b)
                            && y > 0
                        {
                            set_int!($dst, x.$int(y));
                            next!();
                        }
                    };
                }
                macro_rules! compare {
                    ($sense:expr, $a:expr, $b:expr, $offset:expr, $op:tt) => {{
                        let truth = match ($a, $b) {
                            (&Value::Int(x), &Value::Int(y)) => Some(x $op y),
                            (&Value::Float(x), &Value::Float(y)) => Some(x $op y),
                            _ => None,
                        };
                        if let Some(truth) = truth {
                            if truth != $sense {
                                next!();
                            }
                            jump!($offset);
                        }
                    }};
                }

                // SAFETY: see above.
                match *unsafe { &*pc } {
                    Op::Load { dst, k } => copy!(dst, konst!(k)),
                    Op::LoadInt { dst, value } => {
                        set_int!(dst, i64::from(value));
                        next!();
                    }
                    Op::Move { take: false, dst, src } => copy!(dst, reg!(src)),
                    Op::Move { take: true, dst, src } => {
                        free!(dst);
                        // SAFETY: see above; the value in `dst` owns nothing.
                        unsafe { transfer(slot!(dst), slot!(src)) };
                        next!();
                    }
                    Op::GetGlobal { dst, slot } => {
                        let value = &self.globals.values[slot as usize];
                        if !matches!(value, Value::Unset) {
                            copy!(dst, value);
                        }
                    }
                    Op::SetGlobal { take: _, src, slot } => {
                        store!(&mut self.globals.values[slot as usize], src)
                    }
                    Op::GetCell { dst, cell } => {
                        if let Value::Cell(cell) = reg!(cell) {
                            // SAFETY: the variable is not written while it is read.
                            let value = unsafe { &*cell.as_ptr() };
                            if !matches!(value, Value::Unset) {
                                copy!(dst, value);
                            }
                        }
                    }
                    Op::SetCell { take: _, cell, src } => {
                        if let Value::Cell(cell) = reg!(cell) {
                            store!(cell.as_ptr(), src);
                        }
                    }
                    Op::GetCapture { dst, index } => {
                        if let Value::Fn(closure) = reg!(0) {
                            // SAFETY: as for `GetCell`.
                            let value = unsafe { &*closure.captures[index as usize].as_ptr() };
                            if !matches!(value, Value::Unset) {
                                copy!(dst, value);
                            }
                        }
                    }
                    Op::SetCapture { take: _, src, index } => {
                        if let Value::Fn(closure) = reg!(0) {
                            store!(closure.captures[index as usize].as_ptr(), src);
                        }
                    }
                    Op::Clear { from, count } => {
                        for i in from..from + count {
                            free!(i);
                        }
                        next!();
                    }

                    Op::Add { dst, a, b } => arith!(dst, reg!(a), reg!(b), checked_add, +),
                    Op::Sub { dst, a, b } => arith!(dst, reg!(a), reg!(b), checked_sub, -),
                    Op::Mul { dst, a, b } => arith!(dst, reg!(a), reg!(b), checked_mul, *),
                    Op::AddInt { dst, a, value } => arith_small!(dst, a, value, checked_add, +),
                    Op::SubInt { dst, a, value } => arith_small!(dst, a, value, checked_sub, -),
                    Op::AddK { dst, a, k } => arith!(dst, reg!(a), konst!(k), checked_add, +),
                    Op::SubK { dst, a, k } => arith!(dst, reg!(a), konst!(k), checked_sub, -),
                    Op::MulK { dst, a, k } => arith!(dst, reg!(a), konst!(k), checked_mul, *),
                    Op::Div { dst, a, b } => divide!(dst, reg!(a), reg!(b)),
                    Op::DivK { dst, a, k } => divide!(dst, reg!(a), konst!(k)),
                    Op::FloorDiv { dst, a, b } => whole!(dst, reg!(a), reg!(b), div_euclid),
                    Op::FloorDivK { dst, a, k } => whole!(dst, reg!(a), konst!(k), div_euclid),
                    Op::Mod { dst, a, b } => whole!(dst, reg!(a), reg!(b), rem_euclid),
                    Op::ModK { dst, a, k } => whole!(dst, reg!(a), konst!(k), rem_euclid),
                    Op::Neg { dst, a } => match *reg!(a) {
                        Value::Int(x) if x != i64::MIN => {
                            set_int!(dst, -x);
                            next!();
                        }
                        Value::Float(x) => {
                            set_float!(dst, -x);
                            next!();
                        }
                        _ => {}
                    },
                    Op::Not { dst, a } => {
                        if let Value::Bool(b) = *reg!(a) {
                            free!(dst);
                            // SAFETY: see above; the old value owns nothing.
                            unsafe { slot!(dst).write(Value::Bool(!b)) };
                            next!();
                        }
                    }

                    // `while true` uses it to jump backwards.
                    Op::Jump { offset } => jump!(offset),
                    Op::Loop { offset } => jump!(offset),
                    Op::JumpIf { sense, a, offset } => {
                        if let Value::Bool(b) = *reg!(a) {
                            if b != sense {
                                next!();
                            }
                            jump!(offset);
                        }
                    }
                    Op::Chained { a } => {
                        if matches!(*reg!(a), Value::Bool(_)) {
                            next!();
                        }
                    }
                    Op::JumpIfSet { a, offset } => {
                        if matches!(reg!(a), Value::Unset) {
                            next!();
                        }
                        jump!(offset);
                    }
                    Op::JumpEq { sense, a, b, offset } => compare!(sense, reg!(a), reg!(b), offset, ==),
                    Op::JumpNe { sense, a, b, offset } => compare!(sense, reg!(a), reg!(b), offset, !=),
                    Op::JumpLt { sense, a, b, offset } => compare!(sense, reg!(a), reg!(b), offset, <),
                    Op::JumpLe { sense, a, b, offset } => compare!(sense, reg!(a), reg!(b), offset, <=),
                    Op::JumpGt { sense, a, b, offset } => compare!(sense, reg!(a), reg!(b), offset, >),
                    Op::JumpGe { sense, a, b, offset } => compare!(sense, reg!(a), reg!(b), offset, >=),
                    Op::JumpEqK { sense, a, k, offset } => compare!(sense, reg!(a), konst!(k), offset, ==),
                    Op::JumpNeK { sense, a, k, offset } => compare!(sense, reg!(a), konst!(k), offset, !=),
                    Op::JumpLtK { sense, a, k, offset } => compare!(sense, reg!(a), konst!(k), offset, <),
                    Op::JumpLeK { sense, a, k, offset } => compare!(sense, reg!(a), konst!(k), offset, <=),
                    Op::JumpGtK { sense, a, k, offset } => compare!(sense, reg!(a), konst!(k), offset, >),
                    Op::JumpGeK { sense, a, k, offset } => compare!(sense, reg!(a), konst!(k), offset, >=),

                    Op::RangeNext { base: first, dst, offset } => {
                        // The remaining count is after the next value, and the step after the count.
                        if let (&Value::Int(next), &Value::Int(left), &Value::Int(by)) =
                            (reg!(first), reg!(first + 1), reg!(first + 2))
                        {
                            if left <= 0 {
                                next!();
                            }
                            if self.meter.budget > 1 {
                                set_int!(dst, next);
                                // SAFETY: see above; the registers hold ints, which own nothing.
                                unsafe {
                                    put_int(slot!(first), next.wrapping_add(by));
                                    put_int(slot!(first + 1), left - 1);
                                }
                                jump!(offset);
                            }
                        }
                    }
                    Op::SequenceNext { base: first, dst, offset } => {
                        if let (Value::List(list), &Value::Int(at)) = (reg!(first), reg!(first + 1))
                            && self.meter.budget > 1
                            && let Some(value) = list.slot(at)
                        {
                            set_int!(first + 1, at + 1);
                            if offset < 0 {
                                self.meter.budget -= 1;
                            }
                            // SAFETY: jumps land inside the code; the copy continues from there.
                            pc = unsafe { pc.offset(offset as isize) };
                            copy!(dst, value);
                        }
                    }

                    Op::Call { argc, base: first, dst } => {
                        if let Value::Fn(closure) = reg!(first)
                            && closure.proto.plain == u16::from(argc)
                        {
                            break 'plain Rest::Call { proto: Rc::as_ptr(&closure.proto), first, argc, dst };
                        }
                    }
                    Op::CallLocal { argc, base: first, dst, callee } => {
                        if let Value::Fn(closure) = reg!(callee)
                            && closure.proto.plain == u16::from(argc)
                        {
                            free!(first);
                            // SAFETY: see above; the old value owns nothing.
                            unsafe { put_function(slot!(first), Rc::clone(closure)) };
                            break 'plain Rest::Call { proto: Rc::as_ptr(&closure.proto), first, argc, dst };
                        }
                    }
                    Op::CallCapture { argc, base: first, dst, index } => {
                        if let Value::Fn(running) = reg!(0)
                            // SAFETY: as for `GetCell`.
                            && let Value::Fn(closure) = unsafe { &*running.captures[index as usize].as_ptr() }
                            && closure.proto.plain == u16::from(argc)
                        {
                            free!(first);
                            // SAFETY: see above; the old value owns nothing.
                            unsafe { put_function(slot!(first), Rc::clone(closure)) };
                            break 'plain Rest::Call { proto: Rc::as_ptr(&closure.proto), first, argc, dst };
                        }
                    }
                    Op::CallGlobal { argc, base: first, dst, slot } => {
                        if let Value::Fn(closure) = &self.globals.values[slot as usize]
                            && closure.proto.plain == u16::from(argc)
                        {
                            free!(first);
                            // SAFETY: see above; the old value owns nothing.
                            unsafe { put_function(slot!(first), Rc::clone(closure)) };
                            break 'plain Rest::Call { proto: Rc::as_ptr(&closure.proto), first, argc, dst };
                        }
                    }
                    Op::CallNative { .. } | Op::CallMethod { .. } | Op::CallMethodOf { .. } => {
                        break 'plain Rest::Short;
                    }
                    Op::Return { src } => {
                        // SAFETY: a call has a frame.
                        let frame = unsafe { *self.calls.frames.as_ptr().add(self.calls.frames.len() - 1) };
                        // SAFETY: see above; a call's result goes to a register of its caller.
                        let (slot, shared) = unsafe {
                            let at = frame.base as usize + frame.dst as usize;
                            (self.calls.stack.as_mut_ptr().add(at), is_shared(base))
                        };
                        if frame.entry {
                            break 'plain Rest::Step;
                        }
                        // SAFETY: see above.
                        if owns || src == 0 || !shared || unsafe { !(*slot).is_plain() } {
                            break 'plain Rest::Leave(src);
                        }
                        // SAFETY: see above; the result's register is below the window.
                        unsafe {
                            transfer(slot, slot!(src));
                            release_function(base);
                            self.calls.frames.set_len(self.calls.frames.len() - 1);
                            base = self.calls.stack.as_mut_ptr().add(frame.base as usize);
                        }
                        (pc, proto, owns) = (frame.pc, frame.proto, frame.owns);
                        continue 'next;
                    }

                    Op::Index { dst, a, b } => {
                        if let (Value::List(list), &Value::Int(at)) = (reg!(a), reg!(b))
                            && let Some(value) = list.at(at)
                        {
                            copy!(dst, value);
                        }
                        if let (Value::Dict(dict), &Value::Int(at)) = (reg!(a), reg!(b))
                            && let Some(value) = dict.slot_int(at)
                        {
                            copy!(dst, value);
                        }
                        break 'plain Rest::Short;
                    }
                    Op::SetIndex { a, b, src } => {
                        if let (Value::List(list), &Value::Int(at)) = (reg!(a), reg!(b))
                            && let Some(slot) = list.slot(at)
                        {
                            store!(slot, src);
                        }
                        if let (Value::Dict(dict), &Value::Int(at)) = (reg!(a), reg!(b))
                            && let Some(slot) = dict.slot_int(at)
                        {
                            store!(slot, src);
                        }
                        if let (Value::Dict(dict), Value::Str(text)) = (reg!(a), reg!(b))
                            && let Some(slot) = dict.slot_text(text)
                        {
                            store!(slot, src);
                        }
                        break 'plain Rest::Short;
                    }
                    Op::Binary { op: op @ (arith::IN | arith::NOT_IN), dst, a, b } => {
                        if let (&Value::Int(at), Value::Dict(dict)) = (reg!(a), reg!(b))
                            && let Some(found) = dict.has_int(at)
                        {
                            free!(dst);
                            // SAFETY: see above; the old value owns nothing.
                            unsafe { slot!(dst).write(Value::Bool(found == (op == arith::IN))) };
                            next!();
                        }
                        break 'plain Rest::Short;
                    }
                    Op::Field { dst, a, k } => {
                        if let (Value::Record(record), Value::Str(name)) = (reg!(a), konst!(k))
                            && let Some(value) = field(record, name.as_str())
                        {
                            copy!(dst, value);
                        }
                    }
                    _ => {}
                }
                Rest::Step
            };
            // A call usually needs only a frame.
            if let Rest::Call { proto: callee, first, argc, dst } = rest {
                let window = window!();
                // SAFETY: the function in its register keeps the callee alive.
                let end = window + first as usize + unsafe { (*callee).registers } as usize;
                if self.meter.budget > 1
                    && self.calls.frames.len() < self.calls.frame_room
                    && end <= self.calls.stack.len()
                {
                    self.meter.budget -= 1;
                    enter!(window, first as usize, callee, dst);
                    let mut argument = base;
                    owns = false;
                    for _ in 0..argc {
                        argument = argument.wrapping_add(1);
                        // SAFETY: the arguments follow the function.
                        owns |= unsafe { !(*argument).is_plain() };
                    }
                    continue 'next;
                }
            }
            if let Rest::Short = rest {
                // SAFETY: the registers of the running call are `base` on, and `pc` is an instruction of `proto`.
                match unsafe { short(base, pc, proto) } {
                    Done::No => {}
                    done => {
                        owns |= done == Done::Owner;
                        next!();
                    }
                }
            }
            match rest {
                // SAFETY: see above; the value stays in place until it is copied.
                Rest::Copy(slot, value) => unsafe {
                    copy(slot, value);
                    owns = true;
                    pc = pc.add(1);
                },
                Rest::Release(slot) => {
                    // SAFETY: see above.
                    unsafe { release(slot) };
                }
                Rest::Leave(src) => {
                    let frame = self.calls.leave_window(window!(), src);
                    (pc, proto, owns) = (frame.pc, frame.proto, frame.owns);
                    // SAFETY: the caller's window is still in the stack.
                    base = unsafe { self.calls.stack.as_mut_ptr().add(frame.base as usize) };
                }
                _ => {
                    let (window, at) = (window!(), here!());
                    owns = true;
                    // SAFETY: the function of the running call stays in its register 0 while a step runs.
                    let flow = self.step(window, at, unsafe { &*proto });
                    // SAFETY: the window is still in the stack, which may have moved.
                    base = unsafe { self.calls.stack.as_mut_ptr().add(window) };
                    match flow {
                        // SAFETY: the last instruction returns, so there is always a next one.
                        Flow::Next => pc = unsafe { pc.add(1) },
                        // SAFETY: jumps land inside the code.
                        Flow::Jump(offset) => pc = unsafe { pc.offset(1 + offset as isize) },
                        Flow::Begin { first, dst } => {
                            let callee = self.calls.proto_at(window + first as usize);
                            enter!(window, first as usize, callee, dst);
                        }
                        Flow::Return | Flow::Raise => match std::mem::take(&mut self.calls.left) {
                            Left::Error(error) => return Err((error, window, at)),
                            Left::Value(value) => {
                                self.calls.stack[window] = Value::None;
                                return Ok(value);
                            }
                            Left::Nothing => unreachable!("a step that ends the loop leaves why"),
                        },
                    }
                }
            }
        }
    }
}
