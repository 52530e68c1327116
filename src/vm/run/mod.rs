//! The loop that runs bytecode.
//!
//! One loop serves all script calls of one entry from Rust: a call pushes a frame, a return pops
//! one. Registers are a window of one contiguous stack. The loop knows the plain case of each
//! instruction: numbers, lists at a position, functions that take their arguments as they are.
//! Everything else it leaves to [`Vm::step`], which does the whole instruction; so the loop holds
//! little that takes registers of the processor from the plain cases. Invariant: while the loop
//! runs, `base` is the start of the running call's window, which holds `proto.registers`
//! initialised values, and `pc` points into `proto.code`; `base` is reloaded after a step.

pub mod arith;
pub(super) mod calls;
mod index;
mod iterate;
mod registers;
mod step;
mod steps;
mod unwind;

use std::rc::Rc;

use super::Vm;
use super::bytecode::Op;
use super::function::{Capture, Closure, Proto};
use super::heap::Cell;
use super::value::Value;
use crate::base::{Error, Result};
use registers::{copy, put, put_float, put_function, put_int, release_function};

/// What a call returns to.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// The caller's next instruction.
    pub(super) pc: *const Op,
    /// The caller's code; its register 0 keeps it alive.
    pub(super) proto: *const Proto,
    /// Where the caller's registers begin.
    pub(super) base: u32,
    /// The caller's register for the result.
    pub(super) dst: u16,
    /// The caller is Rust.
    pub(super) entry: bool,
}

/// How the loop goes on after a step.
pub(super) enum Flow {
    /// At the next instruction.
    Next,
    /// This far from the next instruction.
    Jump(i32),
    /// In the script function whose window, with its arguments in place, begins here; there is room
    /// for its registers. Its result goes to the register `dst`.
    Begin { index: usize, dst: u16 },
    /// In Rust, with the result of the entry.
    Return(Value),
}

/// Where an error goes.
pub(super) struct Handler {
    /// Frames when it was pushed.
    pub(super) depth: usize,
    /// Contexts when it was pushed.
    pub(super) contexts: usize,
    /// The instruction, the register.
    pub(super) target: usize,
    pub(super) dst: u16,
    /// False for cleanups, which see interrupts too.
    pub(super) catch: bool,
}

impl Vm {
    /// Runs the call whose window begins at `start` until it returns to Rust.
    pub(super) fn run_loop(&mut self, start: usize) -> Result<Value> {
        let floor = self.frames.len();
        let contexts = self.contexts.len();
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

    /// Runs from instruction `from` of the call at `start`. An error comes with its place.
    fn execute(&mut self, start: usize, from: usize) -> Result<Value, (Error, usize, usize)> {
        // SAFETY: the window at `start` was made by `begin`, so it holds a closure and
        // `registers` initialised values (the invariant of `Proto`).
        let mut base: *mut Value = unsafe { self.stack.as_mut_ptr().add(start) };
        let mut proto: *const Proto = self.proto_at(start);
        // SAFETY: `proto` is kept alive by the closure in register 0, which is never written; `from`
        // is inside the code.
        let mut pc: *const Op = unsafe { (*proto).code.as_ptr().add(from) };
        // SAFETY: as above.
        let mut consts: *const Value = unsafe { (*proto).consts.as_ptr() };

        // SAFETY (of all register, constant and instruction access below): the compiler's
        // invariant on `Proto` keeps every operand in range; `base`, `pc` and `consts` belong to
        // the running call and are set anew whenever it changes or the stack may have moved.
        macro_rules! reg {
            ($i:expr) => {
                // SAFETY: see above.
                unsafe { &*base.add($i as usize) }
            };
        }
        macro_rules! konst {
            ($i:expr) => {
                // SAFETY: see above.
                unsafe { &*consts.add($i as usize) }
            };
        }
        macro_rules! set {
            ($i:expr, $value:expr) => {{
                let value = $value;
                // SAFETY: see above.
                unsafe { put(base.add($i as usize), value) }
            }};
        }
        macro_rules! set_int {
            ($i:expr, $value:expr) => {{
                let value = $value;
                // SAFETY: see above.
                unsafe { put_int(base.add($i as usize), value) }
            }};
        }
        macro_rules! set_float {
            ($i:expr, $value:expr) => {{
                let value = $value;
                // SAFETY: see above.
                unsafe { put_float(base.add($i as usize), value) }
            }};
        }
        macro_rules! copy {
            ($i:expr, $value:expr) => {{
                let value: *const Value = $value;
                // SAFETY: see above; the value is read before what stands in the register goes.
                unsafe { copy(base.add($i as usize), value) }
            }};
        }
        macro_rules! take {
            ($take:expr, $i:expr) => {{
                // SAFETY: see above.
                let register = unsafe { &mut *base.add($i as usize) };
                if $take { std::mem::take(register) } else { register.clone() }
            }};
        }
        // Where the running call's window begins.
        macro_rules! base_index {
            () => {
                // SAFETY: `base` points into the stack.
                unsafe { base.offset_from(self.stack.as_ptr()) as usize }
            };
        }
        macro_rules! here {
            () => {
                // SAFETY: `pc` is one past the running instruction, inside the same code.
                unsafe { pc.offset_from((*proto).code.as_ptr()) as usize - 1 }
            };
        }
        // Jumps and goes on. A jump backwards that is due to look at the limits is left to the step.
        macro_rules! jump {
            ($offset:expr) => {{
                let offset = $offset as isize;
                if offset >= 0 {
                    // SAFETY: jumps land inside the code.
                    pc = unsafe { pc.offset(offset) };
                    continue;
                }
                if self.budget > 1 {
                    self.budget -= 1;
                    // SAFETY: as above.
                    pc = unsafe { pc.offset(offset) };
                    continue;
                }
            }};
        }
        // Makes the window `$first` registers further on, which runs `$callee`, the running call.
        macro_rules! enter {
            ($first:expr, $callee:expr, $dst:expr) => {{
                let first: usize = $first;
                self.frames.push(Frame { pc, proto, base: base_index!() as u32, dst: $dst, entry: false });
                proto = $callee;
                // SAFETY: the stack has room for the window; its function, in its register 0, keeps
                // `proto` alive.
                unsafe {
                    base = base.add(first);
                    pc = (*proto).code.as_ptr();
                    consts = (*proto).consts.as_ptr();
                }
            }};
        }
        // Whether a call of `$callee` needs nothing but its frame.
        macro_rules! is_free {
            ($first:expr, $callee:expr) => {{
                // SAFETY: the callee is alive: something that is called holds it.
                let registers = unsafe { (*$callee).registers } as usize;
                let end = base.wrapping_add($first as usize + registers).cast_const();
                self.budget > 1
                    && self.frames.len() < self.depth_limit
                    && end <= self.stack.as_ptr_range().end
            }};
        }
        // Leaves the running call: gives the register for its result.
        macro_rules! leave {
            ($frame:expr) => {{
                let frame: Frame = $frame;
                // SAFETY: as for `reg!`. The function, which owns the code, goes last.
                unsafe {
                    for i in 1..(*proto).registers as usize {
                        let register = &mut *base.add(i);
                        if !register.is_plain() {
                            *register = Value::None;
                        }
                    }
                    release_function(base);
                }
                self.frames.truncate(self.frames.len() - 1);
                proto = frame.proto;
                pc = frame.pc;
                // SAFETY: as at the start.
                unsafe {
                    base = self.stack.as_mut_ptr().add(frame.base as usize);
                    consts = (*proto).consts.as_ptr();
                }
                frame.dst
            }};
        }
        macro_rules! arith {
            ($dst:expr, $a:expr, $b:expr, $int:ident, $float:tt) => {{
                match ($a, $b) {
                    (&Value::Int(x), &Value::Int(y)) => {
                        if let Some(value) = x.$int(y) {
                            set_int!($dst, value);
                            continue;
                        }
                    }
                    (&Value::Float(x), &Value::Float(y)) => {
                        set_float!($dst, x $float y);
                        continue;
                    }
                    (&Value::Float(x), &Value::Int(y)) => {
                        set_float!($dst, x $float y as f64);
                        continue;
                    }
                    (&Value::Int(x), &Value::Float(y)) => {
                        set_float!($dst, x as f64 $float y);
                        continue;
                    }
                    _ => {}
                }
            }};
        }
        macro_rules! divide {
            ($dst:expr, $a:expr, $b:expr) => {{
                let quotient = match ($a, $b) {
                    (&Value::Float(x), &Value::Float(y)) => Some(x / y),
                    (&Value::Int(x), &Value::Int(y)) if y != 0 => Some(x as f64 / y as f64),
                    _ => None,
                };
                if let Some(quotient) = quotient {
                    set_float!($dst, quotient);
                    continue;
                }
            }};
        }
        // For a positive divisor rounding down is Euclid's division.
        macro_rules! whole {
            ($dst:expr, $a:expr, $b:expr, $int:ident) => {
                if let (&Value::Int(x), &Value::Int(y)) = ($a, $b)
                    && y > 0
                {
                    set_int!($dst, x.$int(y));
                    continue;
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
                        continue;
                    }
                    jump!($offset);
                }
            }};
        }

        loop {
            // SAFETY: see above.
            let op = unsafe { *pc };
            // SAFETY: the last instruction returns, so there is always a next one.
            pc = unsafe { pc.add(1) };
            match op {
                Op::Load { dst, k } => {
                    copy!(dst, konst!(k));
                    continue;
                }
                Op::LoadInt { dst, value } => {
                    set_int!(dst, i64::from(value));
                    continue;
                }
                Op::Move { take: false, dst, src } => {
                    copy!(dst, reg!(src));
                    continue;
                }
                Op::Move { take: true, dst, src } => {
                    set!(dst, take!(true, src));
                    continue;
                }
                Op::GetGlobal { dst, slot } => {
                    let value = &self.globals[slot as usize];
                    if !matches!(value, Value::Unset) {
                        copy!(dst, value);
                        continue;
                    }
                }
                Op::SetGlobal { take, src, slot } => {
                    let value = take!(take, src);
                    let old = std::mem::replace(&mut self.globals[slot as usize], value);
                    drop(old);
                    continue;
                }
                Op::GetCell { dst, cell } => {
                    if let Value::Cell(cell) = reg!(cell) {
                        // SAFETY: nothing writes the variable while it is read.
                        let value = unsafe { &*cell.as_ptr() };
                        if !matches!(value, Value::Unset) {
                            copy!(dst, value);
                            continue;
                        }
                    }
                }
                Op::SetCell { take, cell, src } => {
                    let value = take!(take, src);
                    if let Value::Cell(cell) = reg!(cell) {
                        cell.set(value);
                    }
                    continue;
                }
                Op::GetCapture { dst, index } => {
                    if let Value::Fn(closure) = reg!(0) {
                        // SAFETY: as for `GetCell`.
                        let value = unsafe { &*closure.captures[index as usize].as_ptr() };
                        if !matches!(value, Value::Unset) {
                            copy!(dst, value);
                            continue;
                        }
                    }
                }
                Op::SetCapture { take, src, index } => {
                    let value = take!(take, src);
                    if let Value::Fn(closure) = reg!(0) {
                        closure.captures[index as usize].set(value);
                    }
                    continue;
                }
                Op::Clear { from, count } => {
                    for i in from..from + count {
                        set!(i, Value::None);
                    }
                    continue;
                }

                Op::Add { dst, a, b } => arith!(dst, reg!(a), reg!(b), checked_add, +),
                Op::Sub { dst, a, b } => arith!(dst, reg!(a), reg!(b), checked_sub, -),
                Op::Mul { dst, a, b } => arith!(dst, reg!(a), reg!(b), checked_mul, *),
                Op::AddK { dst, a, k } => arith!(dst, reg!(a), konst!(k), checked_add, +),
                Op::SubK { dst, a, k } => arith!(dst, reg!(a), konst!(k), checked_sub, -),
                Op::MulK { dst, a, k } => arith!(dst, reg!(a), konst!(k), checked_mul, *),
                Op::AddInt { dst, a, value } => match *reg!(a) {
                    Value::Int(x) => {
                        if let Some(sum) = x.checked_add(i64::from(value)) {
                            set_int!(dst, sum);
                            continue;
                        }
                    }
                    Value::Float(x) => {
                        set_float!(dst, x + f64::from(value));
                        continue;
                    }
                    _ => {}
                },
                Op::SubInt { dst, a, value } => match *reg!(a) {
                    Value::Int(x) => {
                        if let Some(difference) = x.checked_sub(i64::from(value)) {
                            set_int!(dst, difference);
                            continue;
                        }
                    }
                    Value::Float(x) => {
                        set_float!(dst, x - f64::from(value));
                        continue;
                    }
                    _ => {}
                },
                Op::Div { dst, a, b } => divide!(dst, reg!(a), reg!(b)),
                Op::DivK { dst, a, k } => divide!(dst, reg!(a), konst!(k)),
                Op::FloorDiv { dst, a, b } => whole!(dst, reg!(a), reg!(b), div_euclid),
                Op::FloorDivK { dst, a, k } => whole!(dst, reg!(a), konst!(k), div_euclid),
                Op::Mod { dst, a, b } => whole!(dst, reg!(a), reg!(b), rem_euclid),
                Op::ModK { dst, a, k } => whole!(dst, reg!(a), konst!(k), rem_euclid),
                Op::Neg { dst, a } => match *reg!(a) {
                    Value::Int(x) if x != i64::MIN => {
                        set_int!(dst, -x);
                        continue;
                    }
                    Value::Float(x) => {
                        set_float!(dst, -x);
                        continue;
                    }
                    _ => {}
                },
                Op::Not { dst, a } => {
                    if let Value::Bool(b) = *reg!(a) {
                        set!(dst, Value::Bool(!b));
                        continue;
                    }
                }

                // `while true` jumps back with it.
                Op::Jump { offset } => jump!(offset),
                Op::Loop { offset } => jump!(offset),
                Op::JumpIf { sense, a, offset } => {
                    if let Value::Bool(b) = *reg!(a) {
                        if b != sense {
                            continue;
                        }
                        jump!(offset);
                    }
                }
                Op::JumpIfSet { a, offset } => {
                    if matches!(reg!(a), Value::Unset) {
                        continue;
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
                    // The remaining count stands beside the next value, and the step after it.
                    if let (&Value::Int(next), &Value::Int(left), &Value::Int(by)) =
                        (reg!(first), reg!(first + 1), reg!(first + 2))
                    {
                        if left <= 0 {
                            continue;
                        }
                        if self.budget > 1 {
                            set_int!(dst, next);
                            set_int!(first, next.wrapping_add(by));
                            set_int!(first + 1, left - 1);
                            jump!(offset);
                        }
                    }
                }
                Op::SequenceNext { base: first, dst, offset } => {
                    if let (Value::List(list), &Value::Int(at)) = (reg!(first), reg!(first + 1))
                        && self.budget > 1
                        && let Some(value) = list.slot(at)
                    {
                        copy!(dst, value);
                        set_int!(first + 1, at + 1);
                        jump!(offset);
                    }
                }

                Op::Call { argc, base: first, dst } => {
                    if let Value::Fn(closure) = reg!(first)
                        && closure.proto.plain == Some(argc)
                    {
                        let callee = Rc::as_ptr(&closure.proto);
                        if is_free!(first, callee) {
                            self.budget -= 1;
                            enter!(first as usize, callee, dst);
                            continue;
                        }
                    }
                }
                Op::CallGlobal { argc, base: first, dst, slot } => {
                    if let Value::Fn(closure) = &self.globals[slot as usize]
                        && closure.proto.plain == Some(argc)
                    {
                        let callee = Rc::as_ptr(&closure.proto);
                        if is_free!(first, callee) {
                            let closure = Rc::clone(closure);
                            // SAFETY: as for `reg!`.
                            unsafe { put_function(base.add(first as usize), closure) };
                            self.budget -= 1;
                            enter!(first as usize, callee, dst);
                            continue;
                        }
                    }
                }
                Op::Return { src } => {
                    if let Some(&frame) = self.frames.last()
                        && !frame.entry
                    {
                        match *reg!(src) {
                            Value::Int(i) => {
                                let dst = leave!(frame);
                                set_int!(dst, i);
                            }
                            Value::Float(f) => {
                                let dst = leave!(frame);
                                set_float!(dst, f);
                            }
                            _ => {
                                let value = take!(true, src);
                                let dst = leave!(frame);
                                set!(dst, value);
                            }
                        }
                        continue;
                    }
                }

                Op::Index { dst, a, b } => {
                    if let (Value::List(list), &Value::Int(at)) = (reg!(a), reg!(b))
                        && let Some(value) = list.slot(at)
                    {
                        copy!(dst, value);
                        continue;
                    }
                }
                Op::SetIndex { a, b, src } => {
                    if let (Value::List(list), &Value::Int(at)) = (reg!(a), reg!(b))
                        && let Some(slot) = list.slot(at)
                    {
                        let value: *const Value = reg!(src);
                        // SAFETY: the register keeps the list alive, and a destructor changes no list
                        // that is alive.
                        unsafe { copy(slot, value) };
                        continue;
                    }
                }
                Op::Field { dst, a, k } => {
                    if let (Value::Record(record), Value::Str(name)) = (reg!(a), konst!(k))
                        && let Some(value) = record.get(name.as_str())
                    {
                        copy!(dst, value);
                        continue;
                    }
                }
                _ => {}
            }
            let (at, window) = (here!(), base_index!());
            // SAFETY: the function of the running call stays in its register 0 while a step runs.
            let flow = self.step(op, window, at, unsafe { &*proto });
            // SAFETY: the window is still there; the stack may have moved.
            base = unsafe { self.stack.as_mut_ptr().add(window) };
            match flow {
                Ok(Flow::Next) => {}
                // SAFETY: jumps land inside the code.
                Ok(Flow::Jump(offset)) => pc = unsafe { pc.offset(offset as isize) },
                Ok(Flow::Begin { index, dst }) => {
                    let callee = self.proto_at(index);
                    enter!(index - window, callee, dst);
                }
                Ok(Flow::Return(value)) => {
                    set!(0, Value::None);
                    return Ok(value);
                }
                Err(error) => return Err((error, window, at)),
            }
        }
    }

    /// The code of the call whose window begins at `index`.
    #[inline(always)]
    fn proto_at(&self, index: usize) -> *const Proto {
        match &self.stack[index] {
            Value::Fn(closure) => Rc::as_ptr(&closure.proto),
            // Register 0 always holds the running closure; see `Proto`.
            _ => unreachable!("register 0 holds the running function"),
        }
    }

    #[inline(always)]
    fn registers_at(&self, index: usize) -> usize {
        match &self.stack[index] {
            Value::Fn(closure) => closure.proto.registers as usize,
            _ => 0,
        }
    }

    #[cold]
    pub(super) fn grow_stack(&mut self, needed: usize) {
        let length = needed.max(self.stack.len() * 2).max(1024);
        self.stack.resize_with(length, Value::default);
    }

    fn make_closure(&self, base: usize, index: usize) -> Closure {
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
        Closure { proto, captures }
    }
}
