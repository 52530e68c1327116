//! The loop that runs bytecode.
//!
//! One loop serves all script calls of one entry from Rust: a call pushes a frame, a return pops
//! one. Registers are a window of one contiguous stack. Invariant: while the loop runs, `base` is
//! the start of the running call's window, which holds `proto.registers` initialised values, and
//! `pc` points into `proto.code`; both are reloaded after anything that may move them.

pub mod arith;
pub(super) mod calls;
mod index;
mod iterate;
mod registers;
mod steps;
mod unwind;

use std::rc::Rc;

use super::bytecode::Op;
use super::function::{Capture, Closure, Proto};
use super::heap::{Cell, Record};
use super::value::Value;
use super::{Vm, error};
use crate::base::{Error, Result};
use crate::syntax::ast::{Binary, Unary};
use registers::{put, put_float, put_function, put_int};

/// What a call returns to.
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
    #[allow(unused_assignments)]
    fn execute(&mut self, start: usize, from: usize) -> Result<Value, (Error, usize, usize)> {
        let mut base_index = start;
        // SAFETY: the window at `start` was made by `enter`, so it holds a closure and
        // `registers` initialised values (the invariant of `Proto`).
        let mut base: *mut Value = unsafe { self.stack.as_mut_ptr().add(base_index) };
        let mut proto: *const Proto = self.proto_at(base_index);
        // SAFETY: `proto` is kept alive by the closure in register 0, which is never written; `from`
        // is inside the code.
        let mut pc: *const Op = unsafe { (*proto).code.as_ptr().add(from) };
        // SAFETY: as above.
        let mut consts: *const Value = unsafe { (*proto).consts.as_ptr() };

        // SAFETY (of all register, constant and instruction access below): the compiler's
        // invariant on `Proto` keeps every operand in range; `base`, `pc` and `consts` belong to
        // the running call and are reloaded whenever it changes or the stack may have moved.
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
            ($i:expr, $value:expr) => {
                match $value {
                    &Value::Int(i) => set_int!($i, i),
                    &Value::Float(f) => set_float!($i, f),
                    value => set!($i, value.clone()),
                }
            };
        }
        macro_rules! here {
            () => {
                // SAFETY: `pc` is one past the running instruction, inside the same code.
                unsafe { pc.offset_from((*proto).code.as_ptr()) as usize - 1 }
            };
        }
        macro_rules! fail {
            ($error:expr) => {
                return Err(($error, base_index, here!()))
            };
        }
        macro_rules! reload {
            () => {{
                // SAFETY: the window is still there; the stack may have moved.
                base = unsafe { self.stack.as_mut_ptr().add(base_index) };
            }};
        }
        macro_rules! step {
            ($call:expr) => {{
                // Whatever the step submits stands here.
                let at = here!();
                // SAFETY: `proto` is the running function.
                self.rt.span = unsafe { (&(*proto).places).span(at) };
                let result = $call;
                self.tell(base_index);
                reload!();
                match result {
                    Ok(value) => value,
                    Err(error) => fail!(error),
                }
            }};
        }
        macro_rules! jump {
            ($offset:expr) => {{
                let offset = $offset as isize;
                if offset < 0 {
                    self.budget -= 1;
                    if self.budget == 0 {
                        step!(self.refill());
                    }
                }
                // SAFETY: jumps land inside the code.
                pc = unsafe { pc.offset(offset) };
            }};
        }
        // Pushes a frame for `$callee`, whose window at `$index` holds it and its arguments.
        macro_rules! begin {
            ($index:expr, $callee:expr, $dst:expr) => {{
                self.budget -= 1;
                if self.budget == 0 {
                    step!(self.refill());
                }
                if self.frames.len() >= self.depth_limit {
                    fail!(self.too_deep());
                }
                self.frames.push(Frame { pc, proto, base: base_index as u32, dst: $dst, entry: false });
                // SAFETY: the callee is alive: its closure stands in its register 0.
                let (registers, code) = unsafe { ((*$callee).registers, (*$callee).code.as_ptr()) };
                let needed = $index + registers as usize;
                if needed > self.stack.len() {
                    self.grow_stack(needed);
                }
                switch!($index, $callee, code);
            }};
        }
        // Makes the window at `$index`, which runs `$proto`, the running call; goes on at `$pc`.
        macro_rules! switch {
            ($index:expr, $proto:expr, $pc:expr) => {{
                base_index = $index;
                reload!();
                proto = $proto;
                pc = $pc;
                // SAFETY: as at the start.
                unsafe {
                    consts = (*proto).consts.as_ptr();
                    self.top = base_index + (*proto).registers as usize;
                }
            }};
        }
        macro_rules! arith {
            ($dst:expr, $a:expr, $b:expr, $int:ident, $float:tt, $slow:expr) => {{
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
                step!($slow)
            }};
        }
        macro_rules! compare {
            ($sense:expr, $a:expr, $b:expr, $offset:expr, $op:tt, $slow:expr) => {{
                let truth = match ($a, $b) {
                    (&Value::Int(x), &Value::Int(y)) => x $op y,
                    (&Value::Float(x), &Value::Float(y)) => x $op y,
                    _ => step!($slow),
                };
                if truth == $sense {
                    jump!($offset);
                }
            }};
        }
        macro_rules! call {
            ($argc:expr, $base:expr, $dst:expr, $plain:expr) => {{
                let index = base_index + $base as usize;
                if !$plain && let Some(value) = step!(self.prepare_call(index, $argc as usize)) {
                    set!($dst, value);
                    continue;
                }
                let callee = self.proto_at(index);
                begin!(index, callee, $dst);
            }};
        }

        loop {
            // SAFETY: see above.
            let op = unsafe { *pc };
            // SAFETY: the last instruction returns, so there is always a next one.
            pc = unsafe { pc.add(1) };
            match op {
                Op::Load { dst, k } => copy!(dst, konst!(k)),
                Op::LoadInt { dst, value } => set_int!(dst, i64::from(value)),
                Op::LoadCuda { dst } => {
                    let device = self.current_cuda();
                    set!(dst, Value::Device(device));
                }
                Op::Move { take: false, dst, src } => copy!(dst, reg!(src)),
                Op::Move { take: true, dst, src } => {
                    // SAFETY: as for `reg!`.
                    let value = unsafe { std::mem::take(&mut *base.add(src as usize)) };
                    set!(dst, value);
                }
                Op::GetGlobal { dst, slot } => {
                    if let Value::Unset = self.globals[slot as usize] {
                        let value = step!(self.unset_global(slot));
                        set!(dst, value);
                    } else {
                        copy!(dst, &self.globals[slot as usize]);
                    }
                }
                Op::SetGlobal { take, src, slot } => {
                    // SAFETY: as for `reg!`.
                    let register = unsafe { &mut *base.add(src as usize) };
                    let value = if take { std::mem::take(register) } else { register.clone() };
                    let old = std::mem::replace(&mut self.globals[slot as usize], value);
                    drop(old);
                }
                Op::NewCell { reg } => {
                    // SAFETY: as for `reg!`.
                    let register = unsafe { &mut *base.add(reg as usize) };
                    let value = std::mem::take(register);
                    *register = Value::Cell(Rc::new(Cell::new(value)));
                }
                Op::GetCell { dst, cell } => {
                    let value = match reg!(cell) {
                        Value::Cell(cell) => cell.get(),
                        other => other.clone(),
                    };
                    if let Value::Unset = value {
                        fail!(self.unset_name());
                    }
                    set!(dst, value);
                }
                Op::SetCell { take, cell, src } => {
                    // SAFETY: as for `reg!`.
                    let register = unsafe { &mut *base.add(src as usize) };
                    let value = if take { std::mem::take(register) } else { register.clone() };
                    if let Value::Cell(cell) = reg!(cell) {
                        cell.set(value);
                    }
                }
                Op::GetCapture { dst, index } => {
                    let value = match reg!(0) {
                        Value::Fn(closure) => closure.captures[index as usize].get(),
                        _ => Value::None,
                    };
                    if let Value::Unset = value {
                        fail!(self.unset_name());
                    }
                    set!(dst, value);
                }
                Op::SetCapture { take, src, index } => {
                    // SAFETY: as for `reg!`.
                    let register = unsafe { &mut *base.add(src as usize) };
                    let value = if take { std::mem::take(register) } else { register.clone() };
                    if let Value::Fn(closure) = reg!(0) {
                        closure.captures[index as usize].set(value);
                    }
                }
                Op::Closure { dst, proto: index } => {
                    let closure = self.make_closure(base_index, index as usize);
                    set!(dst, Value::Fn(Rc::new(closure)));
                }
                Op::Clear { from, count } => {
                    for i in from..from + count {
                        set!(i, Value::None);
                    }
                }

                Op::Add { dst, a, b } => {
                    arith!(dst, reg!(a), reg!(b), checked_add, +, self.binary_step(base_index, here!(), Binary::Add, dst, a, b))
                }
                Op::Sub { dst, a, b } => {
                    arith!(dst, reg!(a), reg!(b), checked_sub, -, self.binary_step(base_index, here!(), Binary::Sub, dst, a, b))
                }
                Op::Mul { dst, a, b } => {
                    arith!(dst, reg!(a), reg!(b), checked_mul, *, self.binary_step(base_index, here!(), Binary::Mul, dst, a, b))
                }
                Op::AddInt { dst, a, value } => {
                    match *reg!(a) {
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
                    }
                    let right = Value::Int(i64::from(value));
                    step!(self.binary_value_step(base_index, here!(), Binary::Add, dst, a, right));
                }
                Op::AddK { dst, a, k } => {
                    arith!(dst, reg!(a), konst!(k), checked_add, +, self.binary_value_step(base_index, here!(), Binary::Add, dst, a, konst!(k).clone()))
                }
                Op::SubK { dst, a, k } => {
                    arith!(dst, reg!(a), konst!(k), checked_sub, -, self.binary_value_step(base_index, here!(), Binary::Sub, dst, a, konst!(k).clone()))
                }
                Op::MulK { dst, a, k } => {
                    arith!(dst, reg!(a), konst!(k), checked_mul, *, self.binary_value_step(base_index, here!(), Binary::Mul, dst, a, konst!(k).clone()))
                }
                Op::Div { dst, a, b } => {
                    if let (&Value::Float(x), &Value::Float(y)) = (reg!(a), reg!(b)) {
                        set_float!(dst, x / y);
                    } else {
                        step!(self.binary_step(base_index, here!(), Binary::Div, dst, a, b));
                    }
                }
                Op::DivK { dst, a, k } => {
                    if let (&Value::Float(x), &Value::Float(y)) = (reg!(a), konst!(k)) {
                        set_float!(dst, x / y);
                    } else {
                        let right = konst!(k).clone();
                        step!(self.binary_value_step(base_index, here!(), Binary::Div, dst, a, right));
                    }
                }
                Op::FloorDiv { dst, a, b } => {
                    step!(self.binary_step(base_index, here!(), Binary::FloorDiv, dst, a, b))
                }
                Op::Mod { dst, a, b } => match (reg!(a), reg!(b)) {
                    (&Value::Int(x), &Value::Int(y)) if x >= 0 && y > 0 => set_int!(dst, x % y),
                    _ => step!(self.binary_step(base_index, here!(), Binary::Mod, dst, a, b)),
                },
                Op::FloorDivK { dst, a, k } => match (reg!(a), konst!(k)) {
                    (&Value::Int(x), &Value::Int(y)) if x >= 0 && y > 0 => set_int!(dst, x / y),
                    (_, right) => {
                        let right = right.clone();
                        step!(self.binary_value_step(base_index, here!(), Binary::FloorDiv, dst, a, right));
                    }
                },
                Op::ModK { dst, a, k } => match (reg!(a), konst!(k)) {
                    (&Value::Int(x), &Value::Int(y)) if x >= 0 && y > 0 => set_int!(dst, x % y),
                    (_, right) => {
                        let right = right.clone();
                        step!(self.binary_value_step(base_index, here!(), Binary::Mod, dst, a, right));
                    }
                },
                Op::Binary { op, dst, a, b } => {
                    step!(self.binary_step(base_index, here!(), arith::BINARY[op as usize], dst, a, b));
                }
                Op::Neg { dst, a } => match *reg!(a) {
                    Value::Int(x) if x != i64::MIN => set_int!(dst, -x),
                    Value::Float(x) => set_float!(dst, -x),
                    _ => step!(self.unary_step(base_index, here!(), Unary::Neg, dst, a)),
                },
                Op::Not { dst, a } => match *reg!(a) {
                    Value::Bool(b) => set!(dst, Value::Bool(!b)),
                    _ => step!(self.unary_step(base_index, here!(), Unary::Not, dst, a)),
                },
                Op::BitNot { dst, a } => {
                    step!(self.unary_step(base_index, here!(), Unary::BitNot, dst, a));
                }

                // `while true` jumps back with it.
                Op::Jump { offset } => jump!(offset),
                Op::Loop { offset } => jump!(offset),
                Op::JumpIf { sense, a, offset } => {
                    let truth = match *reg!(a) {
                        Value::Bool(b) => b,
                        _ => step!(self.truth_step(base_index, here!(), a)),
                    };
                    if truth == sense {
                        jump!(offset);
                    }
                }
                Op::JumpIfSet { a, offset } => {
                    if !matches!(reg!(a), Value::Unset) {
                        jump!(offset);
                    }
                }
                Op::JumpEq { sense, a, b, offset } => {
                    compare!(sense, reg!(a), reg!(b), offset, ==, self.compare_step(base_index, here!(), Binary::Eq, a, b))
                }
                Op::JumpNe { sense, a, b, offset } => {
                    compare!(sense, reg!(a), reg!(b), offset, !=, self.compare_step(base_index, here!(), Binary::Ne, a, b))
                }
                Op::JumpLt { sense, a, b, offset } => {
                    compare!(sense, reg!(a), reg!(b), offset, <, self.compare_step(base_index, here!(), Binary::Lt, a, b))
                }
                Op::JumpLe { sense, a, b, offset } => {
                    compare!(sense, reg!(a), reg!(b), offset, <=, self.compare_step(base_index, here!(), Binary::Le, a, b))
                }
                Op::JumpGt { sense, a, b, offset } => {
                    compare!(sense, reg!(a), reg!(b), offset, >, self.compare_step(base_index, here!(), Binary::Gt, a, b))
                }
                Op::JumpGe { sense, a, b, offset } => {
                    compare!(sense, reg!(a), reg!(b), offset, >=, self.compare_step(base_index, here!(), Binary::Ge, a, b))
                }
                Op::JumpEqK { sense, a, k, offset } => {
                    compare!(sense, reg!(a), konst!(k), offset, ==, self.compare_value_step(base_index, here!(), Binary::Eq, a, konst!(k).clone()))
                }
                Op::JumpNeK { sense, a, k, offset } => {
                    compare!(sense, reg!(a), konst!(k), offset, !=, self.compare_value_step(base_index, here!(), Binary::Ne, a, konst!(k).clone()))
                }
                Op::JumpLtK { sense, a, k, offset } => {
                    compare!(sense, reg!(a), konst!(k), offset, <, self.compare_value_step(base_index, here!(), Binary::Lt, a, konst!(k).clone()))
                }
                Op::JumpLeK { sense, a, k, offset } => {
                    compare!(sense, reg!(a), konst!(k), offset, <=, self.compare_value_step(base_index, here!(), Binary::Le, a, konst!(k).clone()))
                }
                Op::JumpGtK { sense, a, k, offset } => {
                    compare!(sense, reg!(a), konst!(k), offset, >, self.compare_value_step(base_index, here!(), Binary::Gt, a, konst!(k).clone()))
                }
                Op::JumpGeK { sense, a, k, offset } => {
                    compare!(sense, reg!(a), konst!(k), offset, >=, self.compare_value_step(base_index, here!(), Binary::Ge, a, konst!(k).clone()))
                }

                Op::RangeLoop { base: first } => step!(self.range_loop(base_index, first)),
                Op::RangeNext { base: first, dst, offset } => {
                    // The remaining count stands beside the next value, and the step after it.
                    if let (&Value::Int(next), &Value::Int(left), &Value::Int(by)) =
                        (reg!(first), reg!(first + 1), reg!(first + 2))
                        && left > 0
                    {
                        set_int!(dst, next);
                        set_int!(first, next.wrapping_add(by));
                        set_int!(first + 1, left - 1);
                        jump!(offset);
                    }
                }
                Op::SequenceLoop { base: first } => step!(self.sequence_loop(base_index, first)),
                Op::SequenceNext { base: first, dst, offset } => {
                    if let Some(value) = step!(self.sequence_next(base_index, first)) {
                        set!(dst, value);
                        jump!(offset);
                    }
                }

                Op::Call { argc, base: first, dst } => {
                    let plain = matches!(reg!(first), Value::Fn(f) if f.proto.plain == Some(argc));
                    call!(argc, first, dst, plain);
                }
                Op::CallGlobal { argc, base: first, dst, slot } => {
                    if let Value::Fn(closure) = &self.globals[slot as usize]
                        && closure.proto.plain == Some(argc)
                    {
                        let (callee, closure) = (Rc::as_ptr(&closure.proto), Rc::clone(closure));
                        // SAFETY: as for `reg!`.
                        unsafe { put_function(base.add(first as usize), closure) };
                        begin!(base_index + first as usize, callee, dst);
                        continue;
                    }
                    let callee = match &self.globals[slot as usize] {
                        Value::Unset => step!(self.unset_global(u32::from(slot))),
                        callee => callee.clone(),
                    };
                    set!(first, callee);
                    call!(argc, first, dst, false);
                }
                Op::CallNative { argc, base: first, dst, k } => {
                    let value =
                        step!(self.call_native_at(base_index + first as usize, argc as usize, konst!(k)));
                    set!(dst, value);
                }
                Op::CallMethod { argc, base: first, dst, k } => {
                    let index = base_index + first as usize;
                    match step!(self.call_method_at(index, argc as usize, konst!(k))) {
                        Some(value) => set!(dst, value),
                        None => call!(argc, first, dst, false),
                    }
                }
                Op::CallShaped { base: first, dst, shape } => {
                    // SAFETY: the compiler's invariant.
                    let shape = unsafe { &(&(*proto).shapes.calls)[shape as usize] };
                    let index = base_index + first as usize;
                    match step!(self.call_shaped_at(index, shape)) {
                        Some(value) => set!(dst, value),
                        None => {
                            // The arguments are bound: every parameter's register is filled.
                            call!(0u8, first, dst, true);
                        }
                    }
                }
                Op::Return { src } => {
                    let value = match reg!(src) {
                        Value::Int(i) => Value::Int(*i),
                        Value::Float(f) => Value::Float(*f),
                        // SAFETY: as for `reg!`.
                        _ => unsafe { std::mem::take(&mut *base.add(src as usize)) },
                    };
                    // SAFETY: as above.
                    let count = unsafe { (*proto).registers };
                    for i in 1..count {
                        // SAFETY: as for `reg!`.
                        let register = unsafe { &mut *base.add(i as usize) };
                        if !register.is_plain() {
                            *register = Value::None;
                        }
                    }
                    let Some(frame) = self.frames.pop() else { return Ok(value) };
                    // The closure, which owns the code, goes last.
                    set!(0, Value::None);
                    if frame.entry {
                        self.top = frame.base as usize;
                        return Ok(value);
                    }
                    switch!(frame.base as usize, frame.proto, frame.pc);
                    match value {
                        Value::Int(i) => set_int!(frame.dst, i),
                        Value::Float(f) => set_float!(frame.dst, f),
                        value => set!(frame.dst, value),
                    }
                }

                Op::NewList { dst, base: first, count } => {
                    let items = step!(self.take_values(base_index, first, count));
                    set!(dst, Value::list(items));
                }
                Op::ListPush { list, base: first, count } => {
                    let items = step!(self.take_values(base_index, first, count));
                    if let Value::List(list) = reg!(list) {
                        list.change(|all| all.extend(items));
                    }
                }
                Op::ListExtend { list, src } => step!(self.list_extend(base_index, list, src)),
                Op::NewTuple { dst, base: first, count } => {
                    let items = step!(self.take_values(base_index, first, count));
                    set!(dst, Value::tuple(items));
                }
                Op::TupleOfList { dst, src } => {
                    let items = match reg!(src) {
                        Value::List(list) => list.to_vec(),
                        _ => Vec::new(),
                    };
                    set!(dst, Value::tuple(items));
                }
                Op::NewRecord { dst, base: first, shape } => {
                    // SAFETY: the compiler's invariant.
                    let names = unsafe { Rc::clone(&(&(*proto).shapes.records)[shape as usize]) };
                    let values = step!(self.take_values(base_index, first, names.len() as u16));
                    set!(dst, Value::Record(Rc::new(Record::new(names, values))));
                }
                Op::RecordMerge { dst, a, b } => {
                    let value = step!(steps::merge(reg!(a), reg!(b)));
                    set!(dst, value);
                }
                Op::NewRange { dst, base: first } => {
                    let value = step!(self.new_range(base_index, first));
                    set!(dst, value);
                }
                Op::Index { dst, a, b } => {
                    if let (Value::List(list), &Value::Int(i)) = (reg!(a), reg!(b))
                        && let Some(value) = usize::try_from(i).ok().and_then(|i| list.get(i))
                    {
                        set!(dst, value);
                    } else {
                        step!(self.index_step(base_index, here!(), dst, a, b));
                    }
                }
                Op::SetIndex { a, b, src } => step!(self.set_index_step(base_index, a, b, src)),
                Op::Field { dst, a, k } => {
                    if let (Value::Record(record), Value::Str(name)) = (reg!(a), konst!(k))
                        && let Some(value) = record.get(name.as_str())
                    {
                        let value = value.clone();
                        set!(dst, value);
                    } else {
                        step!(self.field_step(base_index, here!(), dst, a, konst!(k)));
                    }
                }
                Op::SetField { a, k, src } => step!(self.set_field_step(base_index, a, konst!(k), src)),

                Op::Unpack { src, base: first, shape } => {
                    // SAFETY: the compiler's invariant.
                    let shape = unsafe { &(&(*proto).shapes.patterns)[shape as usize] };
                    step!(self.unpack_step(base_index, src, first, shape));
                }
                Op::Fits { src, base: first, shape } => {
                    // SAFETY: the compiler's invariant.
                    let shape = unsafe { &(&(*proto).shapes.patterns)[shape as usize] };
                    step!(self.fits_step(base_index, src, first, shape));
                }
                Op::FitsValue { dst, a, b } => {
                    let (a, b) = (reg!(a).clone(), reg!(b).clone());
                    let fits = step!(self.fits_value(&a, &b));
                    set!(dst, Value::Bool(fits));
                }
                Op::NoArm { src } => {
                    let text = self.short_repr(reg!(src));
                    fail!(error::no_arm(&text));
                }

                Op::Format { dst, src, spec } => {
                    let (value, spec) = (reg!(src).clone(), reg!(spec).clone());
                    let text = step!(self.format_value(&value, spec.as_str().unwrap_or("")));
                    set!(dst, Value::str(text));
                }
                Op::Concat { dst, base: first, count } => {
                    let value = step!(self.concat(base_index, first, count));
                    set!(dst, value);
                }

                Op::PushHandler { catch, dst, offset } => {
                    let (depth, contexts) = (self.frames.len(), self.contexts.len());
                    let target = (here!() as i64 + 1 + i64::from(offset)) as usize;
                    self.handlers.push(Handler { depth, contexts, target, dst, catch });
                }
                Op::PopHandler { flush } => {
                    if flush {
                        // What the block left pending fails inside it.
                        step!(self.flush());
                    }
                    self.handlers.pop();
                }
                Op::Throw { src } => {
                    let error = self.thrown(reg!(src));
                    fail!(error);
                }
                Op::Rethrow { src } => match reg!(src) {
                    Value::Error(error) => fail!(error.error.clone()),
                    other => fail!(error::throw_type(other.type_name())),
                },
                Op::EnterContext { src } => step!(self.enter_context(base_index, src)),
                Op::EnterDevice { src } => step!(self.enter_device(base_index, src)),
                Op::ExitContext { count } => {
                    let left = self.contexts.len().saturating_sub(count as usize);
                    step!(self.leave_contexts(left));
                }
                Op::Place { dst, src, device } => {
                    let (value, device) = (reg!(src).clone(), reg!(device).clone());
                    set!(src, Value::None);
                    let value = step!(self.place_value(value, &device));
                    set!(dst, value);
                }
                Op::Typed { dst, a, b } => {
                    let (value, dtype) = (reg!(a).clone(), reg!(b).clone());
                    let value = step!(self.typed_literal(&value, &dtype));
                    set!(dst, value);
                }

                Op::Import { file, dst, k } => {
                    let path = konst!(k).clone();
                    let span = self.span_at(base_index, here!());
                    let module = step!(self.import(path.as_str().unwrap_or(""), file, span));
                    set!(dst, module);
                }
                Op::Test { src, k } => {
                    let test = (konst!(k).as_str().unwrap_or("").to_string(), reg!(src).clone());
                    self.tests.push(test);
                }
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
