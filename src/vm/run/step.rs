//! Execution of every instruction in full, for the cases that the loop does not handle inline.

use std::rc::Rc;

use super::super::bytecode::Op;
use super::super::counted::Counted;
use super::super::function::Proto;
use super::super::heap::{Cell, Record};
use super::super::last_uses::LastUses;
use super::super::limits::STEP;
use super::super::value::Value;
use super::super::values::Values;
use super::super::{Vm, error, habits, tensors};
use super::calls::MethodCall;
use super::registers::set;
use super::{Flow, Left, arith, steps};
use crate::base::Result;
use crate::ops::gradient;
use crate::syntax::ast::{Binary, Unary};

impl Vm {
    // Cold, so that the loop's processor registers are saved here and not in the fast paths.
    /// Executes the instruction at `at` in `proto` for the call whose window begins at `base`. Tensor work
    /// that it submits is attributed to its source position.
    ///
    /// An error is left for the loop, without a source position.
    #[cold]
    #[inline(never)]
    pub(super) fn step(&mut self, base: usize, at: usize, proto: &Proto) -> Flow {
        self.calls.top = base + proto.registers as usize;
        self.enter_call(proto, at);
        let flow = match proto.places.updates.is_empty() {
            true => Ok(()),
            false => self.check_update(proto.code[at], base, at, proto),
        };
        let flow = flow.and_then(|()| self.worked(STEP));
        let flow = flow.and_then(|()| self.instruction(proto.code[at], base, at, proto));
        self.release_unread(base, at, proto);
        self.report_warnings(base, at);
        match flow {
            Ok(flow) => flow,
            Err(error) => {
                self.calls.left = Left::Error(error);
                Flow::Raise
            }
        }
    }

    /// Passes the source position of the next operation to the runtime.
    #[inline]
    pub(super) fn enter_call(&mut self, proto: &Proto, at: usize) {
        self.rt.enter(proto.places.span(at));
        if proto.is_library {
            self.rt.outer = self.outer_span();
        }
    }

    /// Refuses `w -= g` where it would silently replace a parameter instead of writing into it, and `x[i] += v` where the
    /// result loses what the dtype of `x` does not hold.
    fn check_update(&mut self, op: Op, base: usize, at: usize, proto: &Proto) -> Result<()> {
        if proto.places.updates.binary_search(&(at as u32)).is_err() {
            return Ok(());
        }
        let (left, op) = match op {
            Op::SetIndex { a, src, .. } => {
                let [target, value] = [a, src].map(|reg| &self.calls.stack[base + reg as usize]);
                return match (target, value) {
                    (Value::Tensor(target), Value::Tensor(value)) => habits::keep_digits(target, value),
                    _ => Ok(()),
                };
            }
            Op::Add { a, .. } | Op::AddInt { a, .. } | Op::AddK { a, .. } => (a, Binary::Add),
            Op::Sub { a, .. } | Op::SubInt { a, .. } | Op::SubK { a, .. } => (a, Binary::Sub),
            Op::Mul { a, .. } | Op::MulK { a, .. } => (a, Binary::Mul),
            Op::Div { a, .. } | Op::DivK { a, .. } => (a, Binary::Div),
            Op::FloorDiv { a, .. } => (a, Binary::FloorDiv),
            Op::Mod { a, .. } => (a, Binary::Mod),
            Op::Binary { op, a, .. } => (a, arith::BINARY[op as usize]),
            _ => return Ok(()),
        };
        match &self.calls.stack[base + left as usize] {
            Value::Tensor(tensor) => habits::keep_parameter(&mut self.rt, op, tensor),
            _ => Ok(()),
        }
    }

    /// Releases the variables for which the instruction at `at` was the last use, if their tensors are pending; see
    /// Note [Last uses].
    #[inline]
    fn release_unread(&mut self, base: usize, at: usize, proto: &Proto) {
        let last_uses = match proto.last_uses.get() {
            Some(last_uses) => last_uses,
            None if self.rt.has_pending() => proto.last_uses.get_or_init(|| LastUses::of(proto)),
            None => return,
        };
        for &reg in last_uses.at(at) {
            let value = &mut self.calls.stack[base + usize::from(reg)];
            if let Value::Tensor(tensor) = value
                && (tensor.storage().pending().is_some() && tensor.storage().memory().is_none()
                    || self.rt.holds(tensor.storage()))
            {
                *value = Value::None;
            }
        }
    }

    /// Copies the elements that `x[i] *= v` has read from `x`, if a gradient may need them after the write.
    fn keep_old(&mut self, base: usize, read: u16, from: u16) -> Result<()> {
        let [read, from] = [read, from].map(|reg| base + reg as usize);
        if let (Value::Tensor(part), Value::Tensor(whole)) =
            (&self.calls.stack[read], &self.calls.stack[from])
        {
            let part = gradient::before_update(&mut self.rt, whole, part)?;
            self.calls.stack[read] = Value::Tensor(part);
        }
        Ok(())
    }

    fn instruction(&mut self, op: Op, base: usize, at: usize, proto: &Proto) -> Result<Flow> {
        let register = |reg: u16| base + reg as usize;
        match op {
            Op::Load { dst, k } => self.calls.stack[register(dst)] = proto.consts[k as usize].clone(),
            Op::LoadInt { dst, value } => self.calls.stack[register(dst)] = Value::Int(i64::from(value)),
            Op::LoadCuda { dst } => self.calls.stack[register(dst)] = Value::Device(self.current_cuda()),
            Op::Move { take, dst, src } => {
                self.calls.stack[register(dst)] = self.taken(take, register(src));
            }
            Op::GetGlobal { dst, slot } => self.calls.stack[register(dst)] = self.global_at(slot)?,
            Op::SetGlobal { take, src, slot } => {
                let value = self.taken(take, register(src));
                let old = std::mem::replace(&mut self.globals.values[slot as usize], value);
                drop(old);
            }
            Op::NewCell { reg } => {
                let value = self.taken(true, register(reg));
                self.calls.stack[register(reg)] = Value::Cell(Rc::new(Cell::new(value)));
            }
            Op::GetCell { dst, cell } => {
                let value = match &self.calls.stack[register(cell)] {
                    Value::Cell(cell) => cell.get(),
                    other => other.clone(),
                };
                self.calls.stack[register(dst)] = match value {
                    Value::Unset => {
                        let names = proto.places.names.iter().rev();
                        let name =
                            names.filter(|named| named.register == cell).map(|named| &named.name).next();
                        self.unset_variable(name)?
                    }
                    value => value,
                };
            }
            Op::SetCell { take, cell, src } => {
                let value = self.taken(take, register(src));
                if let Value::Cell(cell) = &self.calls.stack[register(cell)] {
                    cell.set(value);
                }
            }
            Op::GetCapture { dst, index } => {
                self.calls.stack[register(dst)] = self.captured(base, index)?;
            }
            Op::SetCapture { take, src, index } => {
                let value = self.taken(take, register(src));
                if let Value::Fn(closure) = &self.calls.stack[base] {
                    closure.captures[index as usize].set(value);
                }
            }
            Op::Closure { dst, proto: index } => {
                let closure = self.calls.make_closure(base, index as usize);
                self.calls.stack[register(dst)] = Value::Fn(closure);
            }
            Op::Clear { from, count } => {
                self.calls.stack[register(from)..register(from + count)].fill_with(Value::default);
            }

            Op::Add { dst, a, b } => self.binary_step(base, at, Binary::Add, dst, (a, b))?,
            Op::Sub { dst, a, b } => self.binary_step(base, at, Binary::Sub, dst, (a, b))?,
            Op::Mul { dst, a, b } => self.binary_step(base, at, Binary::Mul, dst, (a, b))?,
            Op::Div { dst, a, b } => self.binary_step(base, at, Binary::Div, dst, (a, b))?,
            Op::FloorDiv { dst, a, b } => self.binary_step(base, at, Binary::FloorDiv, dst, (a, b))?,
            Op::Mod { dst, a, b } => self.binary_step(base, at, Binary::Mod, dst, (a, b))?,
            Op::Binary { op, dst, a, b } => {
                match (arith::BINARY[op as usize], &self.calls.stack[register(b)]) {
                    (op @ (Binary::In | Binary::NotIn), Value::Dict(dict)) => {
                        let found = dict.has(&self.calls.stack[register(a)])?;
                        self.calls.stack[register(dst)] = Value::Bool(found == (op == Binary::In));
                    }
                    (op, _) => self.binary_step(base, at, op, dst, (a, b))?,
                }
            }
            Op::AddInt { dst, a, value } => {
                let right = Value::Int(i64::from(value));
                self.binary_value_step(base, at, Binary::Add, dst, (a, right))?;
            }
            Op::SubInt { dst, a, value } => {
                let right = Value::Int(i64::from(value));
                self.binary_value_step(base, at, Binary::Sub, dst, (a, right))?;
            }
            Op::AddK { dst, a, k } => {
                self.binary_value_step(base, at, Binary::Add, dst, (a, proto.constant(k)))?;
            }
            Op::SubK { dst, a, k } => {
                self.binary_value_step(base, at, Binary::Sub, dst, (a, proto.constant(k)))?;
            }
            Op::MulK { dst, a, k } => {
                self.binary_value_step(base, at, Binary::Mul, dst, (a, proto.constant(k)))?;
            }
            Op::DivK { dst, a, k } => {
                self.binary_value_step(base, at, Binary::Div, dst, (a, proto.constant(k)))?;
            }
            Op::FloorDivK { dst, a, k } => {
                self.binary_value_step(base, at, Binary::FloorDiv, dst, (a, proto.constant(k)))?;
            }
            Op::ModK { dst, a, k } => {
                self.binary_value_step(base, at, Binary::Mod, dst, (a, proto.constant(k)))?;
            }
            Op::Neg { dst, a } => self.unary_step(base, at, Unary::Neg, dst, a)?,
            Op::Not { dst, a } => self.unary_step(base, at, Unary::Not, dst, a)?,
            Op::BitNot { dst, a } => self.unary_step(base, at, Unary::BitNot, dst, a)?,

            Op::Jump { offset } | Op::Loop { offset } => return self.jump(true, true, offset),
            Op::JumpIf { sense, a, offset } => {
                let truth = self.truth_step(base, at, a)?;
                return self.jump(truth, sense, offset);
            }
            Op::Chained { a } => {
                if matches!(self.calls.stack[register(a)], Value::Tensor(_)) {
                    return Err(tensors::chained());
                }
            }
            Op::JumpIfSet { a, offset } => {
                let set = !matches!(self.calls.stack[register(a)], Value::Unset);
                return self.jump(set, true, offset);
            }
            Op::JumpEq { sense, a, b, offset } => {
                let truth = self.compare_step(base, at, Binary::Eq, a, b)?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpNe { sense, a, b, offset } => {
                let truth = self.compare_step(base, at, Binary::Ne, a, b)?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpLt { sense, a, b, offset } => {
                let truth = self.compare_step(base, at, Binary::Lt, a, b)?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpLe { sense, a, b, offset } => {
                let truth = self.compare_step(base, at, Binary::Le, a, b)?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpGt { sense, a, b, offset } => {
                let truth = self.compare_step(base, at, Binary::Gt, a, b)?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpGe { sense, a, b, offset } => {
                let truth = self.compare_step(base, at, Binary::Ge, a, b)?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpEqK { sense, a, k, offset } => {
                let truth = self.compare_value_step(base, at, Binary::Eq, a, proto.constant(k))?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpNeK { sense, a, k, offset } => {
                let truth = self.compare_value_step(base, at, Binary::Ne, a, proto.constant(k))?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpLtK { sense, a, k, offset } => {
                let truth = self.compare_value_step(base, at, Binary::Lt, a, proto.constant(k))?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpLeK { sense, a, k, offset } => {
                let truth = self.compare_value_step(base, at, Binary::Le, a, proto.constant(k))?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpGtK { sense, a, k, offset } => {
                let truth = self.compare_value_step(base, at, Binary::Gt, a, proto.constant(k))?;
                return self.jump(truth, sense, offset.into());
            }
            Op::JumpGeK { sense, a, k, offset } => {
                let truth = self.compare_value_step(base, at, Binary::Ge, a, proto.constant(k))?;
                return self.jump(truth, sense, offset.into());
            }

            Op::RangeLoop { base: first } => self.range_loop(base, first)?,
            Op::RangeNext { base: first, dst, offset } => {
                let more = self.range_next(base, first, dst);
                return self.jump(more, true, offset.into());
            }
            Op::SequenceLoop { base: first } => self.sequence_loop(base, first)?,
            Op::ElementsLoop { base: first } => self.elements_loop(base, first)?,
            Op::SequenceNext { base: first, dst, offset } => {
                let found = self.sequence_next(base, first)?;
                let more = found.is_some();
                if let Some(value) = found {
                    self.calls.stack[register(dst)] = value;
                }
                return self.jump(more, true, offset.into());
            }

            Op::Call { argc, base: first, dst } => return self.call_at(base, first, argc, dst),
            Op::CallLocal { argc, base: first, dst, callee } => {
                self.calls.stack[register(first)] = self.calls.stack[register(callee)].clone();
                return self.call_at(base, first, argc, dst);
            }
            Op::CallCapture { argc, base: first, dst, index } => {
                self.calls.stack[register(first)] = self.captured(base, index)?;
                return self.call_at(base, first, argc, dst);
            }
            Op::CallGlobal { argc, base: first, dst, slot } => {
                self.calls.stack[register(first)] = self.global_at(u32::from(slot))?;
                return self.call_at(base, first, argc, dst);
            }
            Op::CallNative { argc, base: first, dst, k } => {
                let callee = &proto.consts[k as usize];
                let value = self.call_native_at(register(first), argc as usize, callee)?;
                set(&mut self.calls.stack[register(dst)], value);
            }
            Op::CallMethod { argc, base: first, dst, site }
            | Op::CallMethodOf { argc, base: first, dst, site } => {
                let site = &proto.shapes.methods[site as usize];
                if let Some(receiver) = site.receiver {
                    self.calls.stack[register(first)] = self.calls.stack[register(receiver)].clone();
                    for (place, &arg) in (first + 1..).zip(&site.args) {
                        if arg != place {
                            self.calls.stack[register(place)] = self.calls.stack[register(arg)].clone();
                        }
                    }
                }
                match self.call_method_at(register(first), argc as usize, site)? {
                    MethodCall::Done(value) => set(&mut self.calls.stack[register(dst)], value),
                    MethodCall::Function => return self.call_at(base, first, argc, dst),
                    MethodCall::Bound => return self.begin_at(base, first, dst),
                }
            }
            Op::CallShaped { base: first, dst, shape } => {
                let shape = &proto.shapes.calls[shape as usize];
                match self.call_shaped_at(register(first), shape)? {
                    Some(value) => self.calls.stack[register(dst)] = value,
                    // The arguments are bound: every parameter's register is filled.
                    None => return self.begin_at(base, first, dst),
                }
            }
            Op::Return { src } => {
                let value = self.taken(true, register(src));
                let window = base + 1..base + proto.registers as usize;
                self.calls.stack[window].fill_with(Value::default);
                if let Some(frame) = self.calls.frames.pop() {
                    self.calls.top = frame.base as usize;
                }
                // The function owns the code and is released last, by the loop.
                self.calls.left = Left::Value(value);
                return Ok(Flow::Return);
            }

            Op::NewList { dst, base: first, count } => {
                let items = self.take_values(base, first, count)?;
                self.calls.stack[register(dst)] = Value::list(items);
            }
            Op::ListPush { list, base: first, count } => {
                let items = self.take_values(base, first, count)?;
                if let Value::List(list) = &self.calls.stack[register(list)] {
                    list.change(|all| all.extend(items));
                }
            }
            Op::ListExtend { list, src } => self.list_extend(base, at, list, src)?,
            Op::NewTuple { dst, base: first, count } => {
                let items = self.take_values(base, first, count)?;
                self.calls.stack[register(dst)] = Value::tuple(items);
            }
            Op::TupleOfList { dst, src } => {
                let items = match &self.taken(true, register(src)) {
                    Value::List(list) => list.to_vec(),
                    _ => Values::new(),
                };
                self.calls.stack[register(dst)] = Value::tuple(items);
            }
            Op::NewRecord { dst, base: first, shape } => {
                let names = Rc::clone(&proto.shapes.records[shape as usize]);
                let values = self.take_values(base, first, names.len() as u16)?;
                self.calls.stack[register(dst)] = Value::Record(Rc::new(Record::new(names, values)));
            }
            Op::RecordMerge { dst, a, b } => {
                let value = steps::merge(&self.calls.stack[register(a)], &self.calls.stack[register(b)])?;
                self.calls.stack[register(dst)] = value;
            }
            Op::NewRange { dst, base: first } => {
                let range = self.range_of(base, first)?;
                self.calls.stack[register(dst)] = Value::Range(Counted::shared(range));
            }
            Op::Index { dst, a, b } => {
                self.index_step(base, at, dst, a, b)?;
                if !proto.places.updates.is_empty()
                    && proto.places.updates.binary_search(&(at as u32)).is_ok()
                {
                    self.keep_old(base, dst, a)?;
                }
            }
            Op::SetIndex { a, b, src } => self.set_index_step(base, at, a, b, src)?,
            Op::Field { dst, a, k } => self.field_step(base, at, dst, a, &proto.consts[k as usize])?,
            Op::SetField { a, k, src } => self.set_field_step(base, at, a, &proto.consts[k as usize], src)?,

            Op::Unpack { src, base: first, shape } => {
                self.unpack_step(base, src, first, &proto.shapes.patterns[shape as usize])?;
            }
            Op::Fits { src, base: first, shape } => {
                self.fits_step(base, src, first, &proto.shapes.patterns[shape as usize])?;
            }
            Op::FitsValue { dst, a, b } => {
                let (a, b) = (self.calls.stack[register(a)].clone(), self.calls.stack[register(b)].clone());
                self.calls.stack[register(dst)] = Value::Bool(self.fits_value(&a, &b)?);
            }
            Op::NoArm { src } => {
                return Err(error::no_arm(&self.short_repr(&self.calls.stack[register(src)])));
            }

            Op::Format { dst, src, spec } => {
                let (value, spec) =
                    (self.calls.stack[register(src)].clone(), self.calls.stack[register(spec)].clone());
                let text = self.format_value(&value, spec.as_str().unwrap_or(""))?;
                self.calls.stack[register(dst)] = Value::str(text);
            }
            Op::Concat { dst, base: first, count } => {
                self.calls.stack[register(dst)] = self.concat(base, first, count)?;
            }

            Op::PushHandler { catch, dst, offset } => {
                let (depth, contexts) = (self.calls.frames.len(), self.calls.contexts.len());
                let target = (at as i64 + 1 + i64::from(offset)) as usize;
                self.calls.handlers.push(super::Handler { depth, contexts, target, dst, catch });
            }
            Op::PopHandler { flush } => {
                if flush {
                    // Errors of the block's pending work surface inside it.
                    self.flush()?;
                }
                self.calls.handlers.pop();
            }
            Op::Throw { src } => return Err(self.thrown(&self.calls.stack[register(src)])),
            Op::Rethrow { src } => {
                return Err(match &self.calls.stack[register(src)] {
                    Value::Error(error) => error.error.clone(),
                    other => error::throw_type(other.type_name()),
                });
            }
            Op::EnterContext { src } => self.enter_context(base, at, src)?,
            Op::EnterDevice { src } => self.enter_device(base, src)?,
            Op::ExitContext { count } => {
                let left = self.calls.contexts.len().saturating_sub(count as usize);
                self.leave_contexts(left)?;
            }
            Op::Place { dst, src, device } => {
                let (value, device) =
                    (self.taken(true, register(src)), self.calls.stack[register(device)].clone());
                self.calls.stack[register(dst)] = self.place_value(value, &device)?;
            }
            Op::Typed { dst, a, b } => {
                let (value, dtype) = (self.taken(true, register(a)), self.calls.stack[register(b)].clone());
                self.calls.stack[register(dst)] = self.typed_literal(&value, &dtype)?;
            }

            Op::Import { file, dst, k } => {
                let path = &proto.consts[k as usize];
                let module = self.import(path.as_str().unwrap_or(""), file, proto.places.span(at))?;
                self.calls.stack[register(dst)] = module;
            }
            Op::Test { src, k } => {
                let name = proto.consts[k as usize].as_str().unwrap_or("").to_string();
                let function = self.taken(true, register(src));
                self.tests.push((name, function));
            }
        }
        Ok(Flow::Next)
    }

    /// The value of a register; `take` leaves `none` there.
    fn taken(&mut self, take: bool, index: usize) -> Value {
        if take { std::mem::take(&mut self.calls.stack[index]) } else { self.calls.stack[index].clone() }
    }

    fn global_at(&mut self, slot: u32) -> Result<Value> {
        match &self.globals.values[slot as usize] {
            Value::Unset => self.unset_global(slot),
            value => Ok(value.clone()),
        }
    }

    fn captured(&self, base: usize, index: u16) -> Result<Value> {
        match &self.calls.stack[base] {
            Value::Fn(closure) => match closure.captures[index as usize].get() {
                Value::Unset => self.unset_variable(closure.proto.captured.get(usize::from(index))),
                value => Ok(value),
            },
            _ => Ok(Value::None),
        }
    }

    /// Jumps when `truth` equals `sense`. Backward jumps check the limits periodically.
    fn jump(&mut self, truth: bool, sense: bool, offset: i32) -> Result<Flow> {
        if truth != sense {
            return Ok(Flow::Next);
        }
        if offset < 0 {
            self.spend()?;
        }
        Ok(Flow::Jump(offset))
    }

    /// Counts a backward jump or a call.
    fn spend(&mut self) -> Result<()> {
        self.meter.budget -= 1;
        if self.meter.budget == 0 { self.refill() } else { Ok(()) }
    }

    /// Calls the value in register `first` with the arguments after it.
    fn call_at(&mut self, base: usize, first: u16, argc: u8, dst: u16) -> Result<Flow> {
        let index = base + first as usize;
        let plain = matches!(&self.calls.stack[index], Value::Fn(f) if f.proto.plain == u16::from(argc));
        if !plain && let Some(value) = self.prepare_call(index, argc as usize)? {
            self.calls.stack[base + dst as usize] = value;
            return Ok(Flow::Next);
        }
        self.begin_at(base, first, dst)
    }

    /// Begins the script call whose window begins at register `first`, with its arguments in place.
    fn begin_at(&mut self, base: usize, first: u16, dst: u16) -> Result<Flow> {
        self.spend()?;
        if self.calls.frames.len() >= self.calls.depth_limit {
            return Err(self.too_deep());
        }
        let index = base + first as usize;
        let needed = index + self.calls.registers_at(index);
        if needed > self.calls.stack.len() {
            self.calls.grow_stack(needed);
        }
        self.calls.frames.reserve(1);
        self.calls.frame_room = self.calls.depth_limit.min(self.calls.frames.capacity());
        Ok(Flow::Begin { first, dst })
    }
}
