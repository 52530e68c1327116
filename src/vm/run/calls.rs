//! Calls of everything except a script function with plain arguments.

use std::rc::Rc;

use smallvec::SmallVec;

use super::super::function::{CallShape, MethodSite, Native, Passed, QUICK_ARGS, Run};
use super::super::limits::NATIVE;
use super::super::raced;
use super::super::value::Value;
use super::super::{Vm, bind, error};
use super::Frame;
use super::registers::transfer;
use crate::base::{Error, Result};

/// Positional arguments.
pub(in crate::vm) type Positional = SmallVec<[Value; 6]>;
/// Named arguments.
pub(in crate::vm) type Named = SmallVec<[(Rc<str>, Value); 2]>;
/// Argument numbers as written in the source.
type Written = SmallVec<[usize; 8]>;

/// Up to this many arguments of a native are passed without a vector.
const NATIVE_ARGS: usize = 4;
/// The same maximum for an operation.
const OPERATION_ARGS: usize = 8;
/// The number of an argument that is not written in the source.
const NOT_WRITTEN: usize = usize::MAX - 1;

/// The outcome of [`Vm::call_method_at`].
pub(in crate::vm) enum MethodCall {
    /// Called it.
    Done(Value),
    /// Put a function in the receiver's place; the arguments are still there.
    Function,
    /// Put a script function there and bound its parameters.
    Bound,
}

/// Returns whether a function of a record receives that record as an argument: its first parameter is `self`.
fn takes_self(function: &Value) -> bool {
    matches!(function, Value::Fn(f) if f.proto.params.first().is_some_and(|param| &*param.name == "self"))
}

/// Converts an error of a native that was called with `given` positional arguments, then those named `names`:
/// labels refer to the arguments as passed, and the error names the function.
#[cold]
fn of_call(error: Error, native: &Native, given: usize, names: &[Rc<str>]) -> Error {
    if error.is_located() {
        return error;
    }
    let params = native.signature.params;
    let error = error.passed(|parameter| bind::passed(params, parameter, given, names));
    let error = error.called(&native.name);
    match error.help_text() {
        None if error.code().id == "E0350" => {
            error.help(format!("`runnel doc {}` shows what it takes, with an example", native.name))
        }
        _ => error,
    }
}

impl Vm {
    /// Moves `count` arguments out of the registers after `index`.
    #[inline]
    fn take_args(&mut self, index: usize, count: usize) -> Positional {
        self.calls.stack[index + 1..index + 1 + count].iter_mut().map(std::mem::take).collect()
    }

    /// Calls the value at `index` with the plain arguments after it, if it is not a script function of that
    /// arity. Returns the result, or `None` if a bound script call is ready to begin.
    #[inline(never)]
    pub(super) fn prepare_call(&mut self, index: usize, argc: usize) -> Result<Option<Value>> {
        let args = self.take_args(index, argc);
        let callee = std::mem::take(&mut self.calls.stack[index]);
        self.begin(index, callee, args, Named::new())
    }

    /// Calls `callee`, or builds its window at `index`.
    fn begin(
        &mut self,
        index: usize,
        mut callee: Value,
        args: Positional,
        named: Named,
    ) -> Result<Option<Value>> {
        // A record of layers is called through its field `forward`, like a module in PyTorch.
        while let Value::Record(record) = &callee {
            match record.get("forward") {
                Some(forward) if takes_self(forward) => {
                    let (forward, record) = (forward.clone(), callee);
                    return self.begin_with_self(index, forward, record, args, named);
                }
                Some(forward) => callee = forward.clone(),
                None => break,
            }
        }
        // `bool` is both a dtype and a library function.
        if let Value::Dtype(dtype) = callee
            && let Some(function) = self.natives.functions().get(dtype.name())
        {
            callee = function.clone();
        }
        if let Value::Module(module) = &callee
            && let Some(function) = module.function()
        {
            callee = Value::Native(function);
        }
        match callee {
            Value::Fn(closure) => {
                let bound = bind::script(&closure.proto, args, named)?;
                let needed = index + closure.proto.registers as usize;
                if needed > self.calls.stack.len() {
                    self.calls.grow_stack(needed);
                }
                for (i, value) in bound.into_iter().enumerate() {
                    self.calls.stack[index + 1 + i] = value;
                }
                self.calls.stack[index] = Value::Fn(closure);
                Ok(None)
            }
            Value::Native(native) => self.call_native(&native, args, named).map(Some),
            Value::Bound(bound) => {
                let mut all = Positional::new();
                all.push(bound.receiver.clone());
                all.extend(args);
                self.call_native(&bound.method, all, named).map(Some).map_err(Error::received)
            }
            other => Err(error::not_callable(other.type_name())),
        }
    }

    /// Calls a function of a record whose first parameter is `self` with that record.
    fn begin_with_self(
        &mut self,
        index: usize,
        function: Value,
        record: Value,
        mut args: Positional,
        named: Named,
    ) -> Result<Option<Value>> {
        args.insert(0, record);
        self.begin(index, function, args, named).map_err(Error::received)
    }

    /// Calls the native in constant `callee` with the `argc` arguments after `index`.
    pub(super) fn call_native_at(&mut self, index: usize, argc: usize, callee: &Value) -> Result<Value> {
        match callee {
            Value::Native(native) => self.call_native_in(native, index + 1, argc),
            other => Err(error::not_callable(other.type_name())),
        }
    }

    /// Calls a method of the value at `index`.
    pub(super) fn call_method_at(
        &mut self,
        index: usize,
        argc: usize,
        site: &MethodSite,
    ) -> Result<MethodCall> {
        let receiver = &self.calls.stack[index];
        let type_name = receiver.type_name();
        let other;
        let method = match site.found.get() {
            Some((of, method)) if std::ptr::eq(*of, type_name) => Some(method),
            found => {
                other = self.natives.method(receiver, &site.name);
                if let (None, Some(method)) = (found, &other) {
                    let _ = site.found.set((type_name, Rc::clone(method)));
                    let quick = method.quick.get().filter(|_| argc <= QUICK_ARGS);
                    site.quick.set(quick.map(|quick| (receiver.tag(), quick)));
                }
                other.as_ref()
            }
        };
        if let Some(method) = method {
            let method = Rc::clone(method);
            let called = self.call_native_in(&method, index, argc + 1);
            return called.map(MethodCall::Done).map_err(Error::received);
        }
        let receiver = receiver.clone();
        let function = self.attribute(&receiver, &site.name)?;
        if matches!(receiver, Value::Record(_)) && takes_self(&function) {
            let args = self.take_args(index, argc);
            return Ok(match self.begin_with_self(index, function, receiver, args, Named::new())? {
                Some(value) => MethodCall::Done(value),
                None => MethodCall::Bound,
            });
        }
        self.calls.stack[index] = function;
        Ok(MethodCall::Function)
    }

    /// Calls a native with the `count` values from `index` on as positional arguments.
    fn call_native_in(&mut self, native: &Rc<Native>, index: usize, count: usize) -> Result<Value> {
        let params = native.signature.params;
        let registers = &mut self.calls.stack[index..index + count];
        let Run::Static(run) = native.run else {
            if let Some(result) = self.call_op_at(native, index, count, [].iter()) {
                return result;
            }
            let args = self.calls.stack[index..index + count].iter_mut().map(std::mem::take).collect();
            return self.call_native(native, args, Named::new());
        };
        if params.len() > NATIVE_ARGS || !bind::takes_all(params, count) {
            let args = registers.iter_mut().map(std::mem::take).collect();
            return self.call_native(native, args, Named::new());
        }
        // The common case of library calls: few arguments, in order.
        let mut args = [const { Value::None }; NATIVE_ARGS];
        for (arg, register) in args.iter_mut().zip(registers) {
            // SAFETY: `arg` is `none`, and both point to values.
            unsafe { transfer(arg, register) };
        }
        for (arg, param) in args[count..params.len()].iter_mut().zip(&params[count..]) {
            *arg = bind::default(param.default);
        }
        let read = self.charge_texts(&args[..count]);
        let checked = read.and_then(|()| bind::check_all(self, native, &mut args[..count]));
        let result = checked.and_then(|()| run(self, &mut args[..params.len()]));
        // Failed calls count as work too.
        let result = self.worked(NATIVE).and(result);
        result.map_err(|e| of_call(raced::label_values(e, &args), native, count, &[]))
    }

    /// Calls an operation with the arguments from `index` on: `given` positional ones, then those named
    /// `names`. `None`: it is not an operation, or the general path must report an error; nothing has been
    /// done.
    fn call_op_at<'n>(
        &mut self,
        native: &Native,
        index: usize,
        given: usize,
        names: impl Iterator<Item = &'n Rc<str>> + Clone,
    ) -> Option<Result<Value>> {
        let (op, in_place) = match native.run {
            Run::Op(op) => (op, false),
            Run::OpInPlace(op) => (op, true),
            Run::Static(_) | Run::Dynamic(_) => return None,
        };
        let count = given + names.clone().count();
        let registers = &mut self.calls.stack[index..index + count];
        if count > OPERATION_ARGS
            || native.of_plain_values(registers, names.clone().map(|name| &**name)).is_some()
        {
            return None;
        }
        let sources = bind::sources(op.params, given, names.clone())?;
        let mut args = [const { Value::None }; OPERATION_ARGS];
        for (arg, register) in args.iter_mut().zip(registers) {
            // SAFETY: `arg` is `none`, and both point to values.
            unsafe { transfer(arg, register) };
        }
        let result = self.call_op_of(op, native, &mut args[..count], &sources, in_place);
        Some(result.map_err(|e| {
            let names: SmallVec<[Rc<str>; 2]> = names.map(Rc::clone).collect();
            of_call(e, native, given, &names)
        }))
    }

    /// [`Vm::call_op_at`] for a call with a shape.
    fn call_shaped_op(&mut self, index: usize, shape: &CallShape) -> Option<Result<Value>> {
        let given = shape.by_position()?;
        let result = match (&shape.method, &self.calls.stack[index]) {
            (Some(name), receiver) => {
                let method = self.natives.method(receiver, name)?;
                let result = self.call_op_at(&method, index, given + 1, shape.names())?;
                result.map_err(Error::received)
            }
            (None, Value::Native(native)) => {
                let native = Rc::clone(native);
                let result = self.call_op_at(&native, index + 1, given, shape.names())?;
                self.calls.stack[index] = Value::None;
                result
            }
            (None, _) => return None,
        };
        let written = |i| if i < shape.args.len() { i } else { NOT_WRITTEN };
        Some(result.map_err(|e| e.written(written)))
    }

    /// Calls with named or spread arguments. `None`: the window at `index` is bound.
    pub(super) fn call_shaped_at(&mut self, index: usize, shape: &CallShape) -> Result<Option<Value>> {
        if let Some(result) = self.call_shaped_op(index, shape) {
            return result.map(Some);
        }
        let mut callee = std::mem::take(&mut self.calls.stack[index]);
        let (mut args, mut named) = (Positional::new(), Named::new());
        // The source arguments that the values come from: positional ones, then named ones.
        let (mut placed, mut by_name): (Written, Written) = (Written::new(), Written::new());
        let mut received = false;
        if let Some(name) = &shape.method {
            match self.natives.method(&callee, name) {
                Some(method) => {
                    args.push(std::mem::replace(&mut callee, Value::Native(method)));
                    received = true;
                }
                None => {
                    let function = self.attribute(&callee, name)?;
                    let receiver = std::mem::replace(&mut callee, function);
                    if matches!(receiver, Value::Record(_)) && takes_self(&callee) {
                        args.push(receiver);
                        received = true;
                    }
                }
            }
        }
        for (i, passed) in shape.args.iter().enumerate() {
            let value = std::mem::take(&mut self.calls.stack[index + 1 + i]);
            match passed {
                Passed::One => {
                    args.push(value);
                    placed.push(i);
                }
                Passed::Named(name) => {
                    named.push((Rc::clone(name), value));
                    by_name.push(i);
                }
                Passed::Spread => match &value {
                    Value::Record(record) => {
                        named.extend(record.fields().map(|(n, v)| (Rc::clone(n), v.clone())));
                        by_name.resize(named.len(), i);
                    }
                    other => {
                        args.extend(self.collect(other)?);
                        placed.resize(args.len() - usize::from(received), i);
                    }
                },
            }
        }
        self.begin(index, callee, args, named).map_err(|e| {
            let e = if received { e.received() } else { e };
            e.written(|i| placed.iter().chain(&by_name).nth(i).copied().unwrap_or(NOT_WRITTEN))
        })
    }

    /// Binds the arguments of a native and runs it. Errors label the arguments as they are passed here.
    pub(in crate::vm) fn call_native(
        &mut self,
        native: &Rc<Native>,
        args: Positional,
        named: Named,
    ) -> Result<Value> {
        let native = native.of_plain_values(&args, named.iter().map(|(name, _)| &**name)).unwrap_or(native);
        let given = args.len();
        let names: SmallVec<[Rc<str>; 2]> = named.iter().map(|(name, _)| Rc::clone(name)).collect();
        self.run_native(native, args, named).map_err(|e| of_call(e, native, given, &names))
    }

    fn run_native(&mut self, native: &Rc<Native>, mut args: Positional, named: Named) -> Result<Value> {
        match &native.run {
            Run::Static(run) => {
                bind::native(self, native, &mut args, named)?;
                self.charge_texts(&args)?;
                let result = run(self, &mut args).map_err(|e| raced::label_values(e, &args));
                self.worked(NATIVE).and(result)
            }
            Run::Op(op) => self.call_op(op, native, args, named, false),
            Run::OpInPlace(op) => self.call_op(op, native, args, named, true),
            Run::Dynamic(function) => {
                bind::native(self, native, &mut args, named)?;
                match function.try_borrow_mut() {
                    // The running time of an embedder's function is unknown, so check the limits after it.
                    Ok(mut function) => {
                        function(self, &mut args).and_then(|v| self.check_limits().map(|()| v))
                    }
                    Err(_) => Err(error::bad_value(0, format!("`{}` is running already", native.name))),
                }
            }
        }
    }

    /// Calls a function value from a native.
    pub fn callback(&mut self, function: &Value, args: &[Value]) -> Result<Value> {
        let count = u8::try_from(args.len()).map(u16::from);
        let Value::Fn(closure) = function else {
            return self.call_from_rust(function, args.to_vec(), Vec::new());
        };
        if count != Ok(closure.proto.plain) {
            return self.call_from_rust(function, args.to_vec(), Vec::new());
        }
        // Fast path: the function takes these arguments as they are.
        self.check_callback()?;
        let index = self.calls.top;
        let needed = index + closure.proto.registers as usize;
        if needed > self.calls.stack.len() {
            self.calls.grow_stack(needed);
        }
        self.calls.stack[index] = function.clone();
        for (register, arg) in self.calls.stack[index + 1..].iter_mut().zip(args) {
            *register = arg.clone();
        }
        self.run_window(index)
    }

    pub(in crate::vm) fn call_from_rust(
        &mut self,
        function: &Value,
        args: Vec<Value>,
        named: Vec<(Rc<str>, Value)>,
    ) -> Result<Value> {
        self.check_callback()?;
        let index = self.calls.top;
        if index >= self.calls.stack.len() {
            self.calls.grow_stack(index + 1);
        }
        match self.begin(index, function.clone(), args.into(), named.into())? {
            Some(value) => Ok(value),
            None => self.run_window(index),
        }
    }

    /// Runs the call from Rust whose window at `index` is bound.
    fn run_window(&mut self, index: usize) -> Result<Value> {
        if self.calls.frames.len() >= self.calls.depth_limit {
            return Err(self.too_deep());
        }
        let before = self.calls.top;
        let needed = index + self.calls.registers_at(index);
        if needed > self.calls.stack.len() {
            self.calls.grow_stack(needed);
        }
        self.calls.frames.push(Frame {
            pc: std::ptr::null(),
            proto: std::ptr::null(),
            base: before as u32,
            dst: 0,
            entry: true,
            owns: true,
        });
        self.calls.top = needed;
        self.calls.callbacks += 1;
        let (span, outer) = (self.rt.span, self.rt.outer);
        let result = self.run_loop(index);
        (self.rt.span, self.rt.outer) = (span, outer);
        self.calls.callbacks -= 1;
        self.calls.top = before;
        result
    }
}
