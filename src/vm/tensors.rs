//! Conversions between script values and tensors: numeric lists, operators, indices, places.

use std::rc::Rc;

use smallvec::SmallVec;

use super::account::charge;
use super::bind::Sources;
use super::error;
use super::function::Native;
use super::literals::RANKS;
use super::object::Exit;
use super::run::arith::symbol;
use super::run::calls::{Named, Positional};
use super::value::Value;
use super::values::Values;
use super::{Natives, Vm, bind};
use crate::array::Scalar;
use crate::base::{Error, ErrorKind, Place, Result, this_is};
use crate::driver::DeviceId;
use crate::ops::signature::{Kind, Param};
use crate::ops::{Arg, Args, Call, Data, Op, Out, apply};
use crate::plan::{MapArg, Runtime};
use crate::syntax::ast::{Binary, Unary};
use crate::tensor::Tensor;

/// Applies an elementwise operator to tensors, or a tensor and a number, in their registers, at the runtime's
/// current source position. `None`: the operands are something else, and nothing has been done.
#[inline]
pub(super) fn operator(
    rt: &mut Runtime,
    natives: &Natives,
    op: Binary,
    left: &Value,
    right: &Value,
) -> Result<Option<Value>> {
    let ((Value::Tensor(_), _) | (_, Value::Tensor(_))) = (left, right) else { return Ok(None) };
    let (Some(a), Some(b)) = (map_operand(left), map_operand(right)) else { return Ok(None) };
    let Some(operation) = natives.operators.get(op) else { return Ok(None) };
    if operation.elementwise().is_none() {
        return Ok(None);
    }
    match apply(rt, operation, Call::Operands(&[a, b])) {
        Ok(Out::Tensor(tensor)) => Ok(Some(Value::Tensor(tensor))),
        Ok(out) => from_out(out).map(Some),
        Err(error) => {
            let operands = [a, b].map(|operand| match operand {
                MapArg::Tensor(tensor) => Arg::Tensor(tensor.clone()),
                MapArg::Number(Scalar::Bool(b)) => Arg::Bool(b),
                MapArg::Number(Scalar::Int(i)) => Arg::Int(i),
                MapArg::Number(number) => Arg::Float(number.as_f64()),
                MapArg::Raw(..) | MapArg::Position => Arg::None,
            });
            Err(label_tensors(written(error, operation.name, symbol(op)), &operands))
        }
    }
}

impl Vm {
    /// The device that bare `cuda` refers to.
    pub(super) fn current_cuda(&self) -> DeviceId {
        self.rt.current_cuda()
    }

    /// Returns whether an operator on these values is a tensor operation.
    pub(super) fn takes_tensor(&self, op: Binary, left: &Value, right: &Value) -> bool {
        let fits = |v: &Value| v.as_scalar().is_some() || matches!(v, Value::List(_) | Value::Tensor(_));
        match (left, right) {
            (Value::Tensor(_), other) | (other, Value::Tensor(_)) => {
                !matches!(op, Binary::In | Binary::NotIn) && fits(other)
            }
            (Value::List(a), Value::List(b)) => {
                is_arithmetic(op) && numeric(&a.borrow()) && numeric(&b.borrow())
            }
            (Value::List(list), other) | (other, Value::List(list)) => {
                (is_arithmetic(op) || is_order(op)) && other.as_scalar().is_some() && numeric(&list.borrow())
            }
            _ => false,
        }
    }

    /// An operator on tensors or values that convert to tensors.
    pub(super) fn tensor_binary(&mut self, op: Binary, left: Value, right: Value) -> Result<Value> {
        let Some(operation) = self.natives().operators.get(op) else {
            return Err(error::operator_types(symbol(op), left.type_name(), right.type_name()));
        };
        if let Some(value) = operator(&mut self.rt, &self.natives, op, &left, &right)? {
            return Ok(value);
        }
        let near = match (&left, &right) {
            (Value::Tensor(t), _) | (_, Value::Tensor(t)) => Some(t.device()),
            _ => None,
        };
        let (of_left, of_right) = (left.type_name(), right.type_name());
        let args = (self.operand_arg(left, 0, near)?, self.operand_arg(right, 1, near)?);
        let (Some(left), Some(right)) = args else {
            return Err(error::operator_types(symbol(op), of_left, of_right));
        };
        if operation.elementwise().is_some() {
            let out = apply(&mut self.rt, operation, Call::Operands(&[map_arg(&left), map_arg(&right)]));
            return out
                .and_then(from_out)
                .map_err(|e| label_tensors(written(e, operation.name, symbol(op)), &[left, right]));
        }
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        args.extend([left, right]);
        for param in operation.params.iter().skip(2) {
            args.push(default_arg(param));
        }
        let out = apply(&mut self.rt, operation, Call::Plain(Args(&args)));
        out.and_then(from_out).map_err(|e| label_tensors(written(e, operation.name, symbol(op)), &args))
    }

    /// Returns whether an element equals `item`; reads the answer.
    pub(super) fn tensor_contains(&mut self, tensor: Value, item: Value) -> Result<bool> {
        if item.as_scalar().is_none() && !matches!(item, Value::Tensor(_)) {
            return Ok(false);
        }
        match self.tensor_binary(Binary::Eq, tensor, item)? {
            Value::Tensor(equal) => {
                for some in self.rt.read(&equal)?.chunks(1 << 16) {
                    self.worked(some.len() as u32 / 16)?;
                    if some.iter().any(|byte| *byte != 0) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// `-x` and `~x` on a tensor or a numeric list.
    pub(super) fn tensor_unary(&mut self, op: Unary, value: Value) -> Result<Value> {
        let operators = &self.natives().operators;
        let (operation, sign) = match op {
            Unary::BitNot => (operators.bit_not, "~"),
            _ => (operators.neg, "-"),
        };
        let tensor = self.as_tensor(&value, None)?;
        match (operation, tensor) {
            (Some(operation), Some(tensor)) => {
                let args = [Arg::Tensor(tensor)];
                let out = apply(&mut self.rt, operation, Call::Plain(Args(&args)));
                out.and_then(from_out).map_err(|e| label_tensors(written(e, operation.name, sign), &args))
            }
            _ => Err(error::unary_type(sign, value.type_name())),
        }
    }

    /// None for a value that is no operand, such as a list with a string in it.
    fn operand_arg(&mut self, value: Value, index: usize, near: Option<DeviceId>) -> Result<Option<Arg>> {
        Ok(Some(match value {
            Value::Tensor(tensor) => Arg::Tensor(tensor),
            Value::Bool(b) => Arg::Bool(b),
            Value::Int(i) => Arg::Int(i),
            Value::Float(f) => Arg::Float(f),
            other => {
                let found = self.as_tensor(&other, near).map_err(|e| e.reorder(&[index]))?;
                return Ok(found.map(Arg::Tensor));
            }
        }))
    }

    /// Moves a tensor, a numeric literal, or the tensors in a record, tuple or list to a device.
    pub(super) fn place_value(&mut self, value: Value, device: &Value) -> Result<Value> {
        let Value::Device(device) = device else { return Ok(value) };
        self.place_at(&value, *device, 0)
    }

    fn place_at(&mut self, value: &Value, device: DeviceId, depth: usize) -> Result<Value> {
        if depth > RANKS {
            return Err(error::nesting("a value that is moved"));
        }
        self.charge(1)?;
        match value {
            Value::Tensor(tensor) if tensor.device() == device => Ok(value.clone()),
            Value::Tensor(tensor) => {
                let args = [Arg::Tensor(tensor.clone()), Arg::Device(device)];
                apply(&mut self.rt, &crate::ops::transfer::ON, Call::Plain(Args(&args))).and_then(from_out)
            }
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                Ok(self.as_tensor(value, Some(device))?.map_or(Value::None, Value::Tensor))
            }
            Value::List(list) => match self.as_tensor(value, Some(device))? {
                Some(tensor) => Ok(Value::Tensor(tensor)),
                None => {
                    let items = self.copies(&list.borrow())?;
                    let placed: Result<Vec<Value>> =
                        items.iter().map(|v| self.place_inside(v, device, depth)).collect();
                    placed.map(Value::list)
                }
            },
            Value::Tuple(tuple) => {
                let placed: Result<Vec<Value>> =
                    tuple.items().iter().map(|v| self.place_inside(v, device, depth)).collect();
                placed.map(Value::tuple)
            }
            Value::Record(record) => {
                let placed: Result<Vec<Value>> =
                    record.values().iter().map(|v| self.place_inside(v, device, depth)).collect();
                let names = Rc::clone(record.names());
                placed.map(|values| Value::Record(Rc::new(super::heap::Record::new(names, values))))
            }
            other => Ok(other.clone()),
        }
    }

    /// Inside containers, numbers stay numbers.
    fn place_inside(&mut self, value: &Value, device: DeviceId, depth: usize) -> Result<Value> {
        self.charge(1)?;
        match value {
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => Ok(value.clone()),
            other => self.place_at(other, device, depth + 1),
        }
    }

    /// Makes a device the current one; leaving restores the previous one.
    pub(super) fn device_context(&mut self, device: DeviceId) -> Result<Exit> {
        let saved = self.rt.selection();
        self.rt.set_device(device)?;
        Ok(Box::new(move |vm| {
            vm.rt.select(saved);
            Ok(())
        }))
    }

    /// The truth of a tensor with one element; reads it.
    pub(super) fn tensor_truth(&mut self, tensor: &Tensor) -> Result<bool> {
        if tensor.count() != 1 {
            let what = tensor.describe();
            return Err(crate::base::Error::new(
                &error::NO_TRUTH,
                format!("{what} has no single truth value"),
            )
            .operand(0, this_is(what.to_string()))
            .help("write `.any()` or `.all()`"));
        }
        Ok(!self.rt.item(tensor)?.is_zero())
    }

    /// Refuses to iterate a tensor without rows.
    pub(super) fn check_rows(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Tensor(tensor) if tensor.rank() == 0 => {
                Err(error::not_iterable("tensor").help("it has no dimensions; `x.item()` gives its value"))
            }
            _ => Ok(()),
        }
    }

    /// The row of a tensor at a position.
    pub(super) fn row(&mut self, value: &Value, at: i64) -> Result<Option<Value>> {
        let Value::Tensor(tensor) = value else { return Ok(None) };
        match tensor.shape().first() {
            Some(&rows) if (at as usize) < rows => self.tensor_index(value, &Value::Int(at)).map(Some),
            _ => Ok(None),
        }
    }

    /// Calls an operation with script arguments.
    pub(super) fn call_op(
        &mut self,
        op: &'static Op,
        native: &Native,
        args: Positional,
        named: Named,
        in_place: bool,
    ) -> Result<Value> {
        let bind::Places { mut values, rest } = bind::places(native, args, named)?;
        let left_out = |value: &Value| matches!(value, Value::Unset);
        let source = |(i, value)| if left_out(value) { bind::LEFT_OUT } else { i };
        let of = (0..).zip(&values).map(source).collect();
        let end = values.len() + rest.len();
        let sources = Sources { of, rest: values.len()..end };
        values.extend(rest);
        self.call_op_of(op, native, &mut values, &sources, in_place)
    }

    /// [`Vm::call_op`] with known sources of the arguments. Moves the arguments out.
    pub(super) fn call_op_of(
        &mut self,
        op: &'static Op,
        native: &Native,
        args: &mut [Value],
        sources: &Sources,
        in_place: bool,
    ) -> Result<Value> {
        self.charge_texts(args)?;
        let near =
            sources.of.iter().map(|&at| usize::from(at)).chain(sources.rest.clone()).find_map(
                |at| match args.get(at) {
                    Some(Value::Tensor(tensor)) => Some(tensor.device()),
                    _ => None,
                },
            );
        let mut values: SmallVec<[Arg; 6]> = SmallVec::new();
        for (i, (param, &at)) in op.params.iter().zip(&sources.of).enumerate() {
            let value = if param.rest {
                self.rest_arg(&native.name, i, param, &args[sources.rest.clone()], near)?
            } else if at == bind::LEFT_OUT {
                default_arg(param)
            } else {
                let given = std::mem::take(&mut args[usize::from(at)]);
                let stored = match values.first() {
                    Some(Arg::Tensor(target)) if param.stored && matches!(given, Value::List(_)) => {
                        self.stored(&given, target, i)?
                    }
                    _ => None,
                };
                // One call, so that it is inlined.
                match stored {
                    Some(tensor) => Arg::Tensor(tensor),
                    None => self.op_arg(&native.name, i, param, given, near)?,
                }
            };
            values.push(value);
        }
        let args = Args(&values);
        let call = if in_place { Call::InPlace(args) } else { Call::Plain(args) };
        apply(&mut self.rt, op, call)
            .and_then(from_out)
            .map_err(|e| label_tensors(of_call(e, op, &values), &values))
    }

    /// The device that a value names: a device, a number, or a string. The caller checks whether it exists.
    ///
    /// # Errors
    ///
    /// E0501 if it names no device.
    pub fn device_named(&self, value: &Value) -> Result<DeviceId> {
        use crate::driver::error;
        let count = || self.rt.machine().device_count();
        match value {
            Value::Device(device) => Ok(*device),
            Value::Int(index) => {
                let numbered = u32::try_from(*index).map(DeviceId::Cuda);
                numbered.map_err(|_| error::bad_device(*index, count()))
            }
            Value::Str(text) => DeviceId::named(text.as_str(), self.rt.current_cuda())
                .ok_or_else(|| error::invalid_device_string(text.as_str(), count())),
            other => Err(error::invalid_device_type(other.type_name(), count())),
        }
    }

    /// Converts a script value to an operation's argument.
    fn op_arg(
        &mut self,
        function: &str,
        index: usize,
        param: &Param,
        value: Value,
        near: Option<DeviceId>,
    ) -> Result<Arg> {
        if value.is_none() && param.default == crate::ops::signature::Default::None {
            return Ok(Arg::None);
        }
        if let (Kind::Dtype | Kind::Any, Value::Native(native)) = (param.kind, &value)
            && let Some(dtype) = super::habits::dtype_of(native)
        {
            return Ok(Arg::Dtype(dtype));
        }
        let found = match (param.kind, &value) {
            (Kind::Tensor, _) => self.as_tensor(&value, near)?.map(Arg::Tensor),
            (Kind::TensorOrNumber, Value::Tensor(_) | Value::List(_)) => {
                self.as_tensor(&value, near)?.map(Arg::Tensor)
            }
            (Kind::TensorOrNumber | Kind::Number | Kind::Any, Value::Bool(b)) => Some(Arg::Bool(*b)),
            (Kind::TensorOrNumber | Kind::Number | Kind::Any, Value::Int(i)) => Some(Arg::Int(*i)),
            (Kind::TensorOrNumber | Kind::Number | Kind::Any, Value::Float(f)) => Some(Arg::Float(*f)),
            (Kind::Number, Value::Tensor(t)) if t.is_real_number() => Some(scalar_arg(self.rt.item(t)?)),
            (Kind::Int, Value::Tensor(t)) if t.count() == 1 && t.dtype().is_int() => {
                Some(Arg::Int(self.rt.item(t)?.as_i64()))
            }
            // Not a bool: `x.sum(true)` means `keepdim`.
            (Kind::Int, Value::Int(i)) => Some(Arg::Int(*i)),
            (Kind::Float, Value::Tensor(t)) if t.is_real_number() => {
                Some(Arg::Float(self.rt.item(t)?.as_f64()))
            }
            (Kind::Float, _) => value.as_float().map(Arg::Float),
            (Kind::Bool, Value::Bool(b)) => Some(Arg::Bool(*b)),
            (Kind::Str | Kind::Any, Value::Str(text)) => Some(Arg::Str(text.as_str().to_string())),
            // A few operations (`split`) distinguish one dimension from a list of one.
            (Kind::Dims, Value::Int(i)) => Some(Arg::Int(*i)),
            (Kind::Shape | Kind::Dims, _) => self.ints(&value)?.map(Arg::Ints),
            // One number for all of them.
            (Kind::Tensors, Value::Int(_) | Value::Float(_))
                if matches!(param.default, crate::ops::signature::Default::Float(_)) =>
            {
                value.as_float().map(Arg::Float)
            }
            (Kind::Tensors, _) => self.tensors(&value, near)?.map(Arg::Tensors),
            (Kind::Dtype | Kind::Any, Value::Dtype(dtype)) => Some(Arg::Dtype(*dtype)),
            (Kind::Device | Kind::Any, Value::Device(device)) => Some(Arg::Device(*device)),
            (Kind::Device, value) => {
                Some(Arg::Device(self.device_named(value).map_err(|e| e.operand(index, "this device"))?))
            }
            (Kind::Any | Kind::Data, Value::Tensor(tensor)) => Some(Arg::Tensor(tensor.clone())),
            (Kind::Any, Value::List(_) | Value::Tuple(_)) => self.ints(&value)?.map(Arg::Ints),
            (Kind::Data, _) => data(self, &value, 0, &mut 0)?.map(Arg::Data),
            (Kind::Stream | Kind::Event | Kind::Generator, Value::Object(handle)) => {
                handle.get().as_arg(param.kind)
            }
            _ => None,
        };
        let wrong = || {
            let expected = bind::expected(param.kind);
            match misfit(param.kind, &value) {
                Some(found) => error::element_type(function, index, param.name, expected, found),
                None => error::argument_type(function, index, param.name, expected, value.type_name()),
            }
        };
        found.ok_or_else(wrong)
    }

    fn rest_arg(
        &mut self,
        function: &str,
        index: usize,
        param: &Param,
        items: &[Value],
        near: Option<DeviceId>,
    ) -> Result<Arg> {
        // One list or tuple instead of several arguments.
        let single = match items {
            [one @ (Value::List(_) | Value::Tuple(_))] => Some(one),
            _ => None,
        };
        if let (Kind::ShapeOrDtype, [Value::Dtype(dtype)]) = (param.kind, items) {
            return Ok(Arg::Dtype(*dtype));
        }
        // No dimensions are all of them, in contrast to an empty list.
        if let (Kind::Dims, [] | [Value::None]) = (param.kind, items) {
            return Ok(Arg::None);
        }
        let found = match (param.kind, single) {
            (Kind::Shape | Kind::ShapeOrDtype | Kind::Dims | Kind::Int, Some(list)) => {
                self.ints(list)?.map(Arg::Ints)
            }
            (Kind::Shape | Kind::ShapeOrDtype | Kind::Dims | Kind::Int, None) => {
                self.each_int(items)?.map(Arg::Ints)
            }
            (_, Some(list)) => self.tensors(list, near)?.map(Arg::Tensors),
            (_, None) => self.each_tensor(items, near)?.map(Arg::Tensors),
        };
        found.ok_or_else(|| {
            let expected = bind::expected(param.kind);
            match (single, misfit_of(param.kind, items)) {
                (Some(list), _) => match misfit(param.kind, list) {
                    Some(found) => error::element_type(function, index, param.name, expected, found),
                    None => error::argument_type(function, index, param.name, expected, list.type_name()),
                },
                (None, Some((at, name))) => {
                    error::argument_type(function, at, param.name, expected, name).in_list(index)
                }
                (None, None) => error::argument_type(function, index, param.name, expected, "list"),
            }
        })
    }

    /// The ints of an int, a list or a tuple.
    fn ints(&mut self, value: &Value) -> Result<Option<Vec<i64>>> {
        match value {
            Value::Int(i) => Ok(Some(vec![*i])),
            Value::List(_) | Value::Tuple(_) => {
                let items = self.collect(value)?;
                self.charge(items.len())?;
                self.each_int(&items)
            }
            _ => Ok(None),
        }
    }

    /// Ints; reads one-element int tensors.
    fn each_int(&mut self, items: &[Value]) -> Result<Option<Vec<i64>>> {
        let int = |item: &Value| match item {
            Value::Tensor(t) if t.count() == 1 && t.dtype().is_int() => {
                self.rt.item(t).map(|scalar| Some(scalar.as_i64()))
            }
            other => Ok(other.as_int()),
        };
        items.iter().map(int).collect()
    }

    fn tensors(&mut self, value: &Value, near: Option<DeviceId>) -> Result<Option<Vec<Tensor>>> {
        let items = match value {
            Value::List(_) | Value::Tuple(_) => self.collect(value)?,
            Value::Record(record) => self.copies(record.values())?,
            Value::Tensor(tensor) => return Ok(Some(vec![tensor.clone()])),
            _ => return Ok(None),
        };
        self.each_tensor(&items, near)
    }

    fn each_tensor(&mut self, items: &[Value], near: Option<DeviceId>) -> Result<Option<Vec<Tensor>>> {
        let near = near.or_else(|| {
            items.iter().find_map(|v| match v {
                Value::Tensor(t) => Some(t.device()),
                _ => None,
            })
        });
        let mut tensors = Vec::with_capacity(items.len());
        for item in items {
            self.charge(1)?;
            match self.as_tensor(item, near)? {
                Some(tensor) => tensors.push(tensor),
                None => return Ok(None),
            }
        }
        Ok(Some(tensors))
    }
}

/// Replaces the operation's name in an error by the operator that the script wrote. Race reports keep
/// operation names, which may belong to other lines.
#[cold]
fn written(error: Error, name: &str, operator: &str) -> Error {
    if error.kind() == ErrorKind::Race || error.is_located() {
        return error;
    }
    let (name, operator) = (format!("`{name}`"), format!("`{operator}`"));
    error.rewrite(|text| text.replace(&name, &operator))
}

/// An error of operands on different devices, with the operands of the call.
#[cold]
fn of_call(error: Error, op: &Op, args: &[Arg]) -> Error {
    let tensors = args.iter().enumerate().filter_map(|(i, arg)| match arg {
        Arg::Tensor(tensor) => Some((i, tensor)),
        _ => None,
    });
    crate::plan::error::devices_of_call(error, op.name, tensors)
}

/// Labels each tensor of an operation's error with its dtype, shape and device. Labels that the operation set
/// keep their text.
#[cold]
pub(super) fn label_tensors(error: Error, args: &[Arg]) -> Error {
    use ErrorKind::*;
    if error.kind() == Race {
        return super::raced::label_args(error, args);
    }
    if error.is_located() || !matches!(error.kind(), Type | Value | Shape | Index | Device) {
        return error;
    }
    args.iter().enumerate().fold(error, |error, (i, arg)| match arg {
        Arg::Tensor(tensor) => error.described(i, &tensor.describe()),
        _ => error,
    })
}

pub(super) fn is_arithmetic(op: Binary) -> bool {
    !matches!(op, Binary::Join | Binary::In | Binary::NotIn | Binary::Eq | Binary::Ne) && !is_order(op)
}

fn is_order(op: Binary) -> bool {
    matches!(op, Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
}

/// Returns whether a list may be a tensor literal, judging by its first elements.
fn numeric(items: &[Value]) -> bool {
    match items.first() {
        Some(Value::List(inner)) => {
            let mut inner = Rc::clone(inner);
            for _ in 0..RANKS {
                let first = inner.get(0);
                match first {
                    Some(Value::List(next)) => inner = next,
                    Some(value) => return value.as_scalar().is_some(),
                    None => return true,
                }
            }
            false
        }
        Some(value) => value.as_scalar().is_some(),
        None => true,
    }
}

/// Converts an operand that elementwise operations take directly.
fn map_operand(value: &Value) -> Option<MapArg<'_>> {
    match value {
        Value::Tensor(tensor) => Some(MapArg::Tensor(tensor)),
        number => number.as_scalar().map(MapArg::Number),
    }
}

fn map_arg(arg: &Arg) -> MapArg<'_> {
    match arg {
        Arg::Tensor(tensor) => MapArg::Tensor(tensor),
        Arg::Bool(b) => MapArg::Number(Scalar::Bool(*b)),
        Arg::Int(i) => MapArg::Number(Scalar::Int(*i)),
        Arg::Float(f) => MapArg::Number(Scalar::Float(*f)),
        _ => MapArg::Number(Scalar::Int(0)),
    }
}

pub(super) fn scalar_arg(scalar: Scalar) -> Arg {
    match scalar {
        Scalar::Bool(b) => Arg::Bool(b),
        Scalar::Int(i) => Arg::Int(i),
        // The real part of a complex number: no parameter of kind `Number` takes one.
        Scalar::Float(f) | Scalar::Complex(f, _) => Arg::Float(f),
    }
}

fn default_arg(param: &Param) -> Arg {
    use crate::ops::signature::Default;
    match param.default {
        Default::Required | Default::None | Default::Absent => Arg::None,
        Default::Bool(b) => Arg::Bool(b),
        Default::Int(i) => Arg::Int(i),
        Default::Float(f) => Arg::Float(f),
        Default::Str(s) => Arg::Str(s.to_string()),
    }
}

/// Converts nested lists of numbers to the form that `tensor(...)` takes; `bytes` counts what it takes.
fn data(vm: &mut Vm, value: &Value, depth: usize, bytes: &mut usize) -> Result<Option<Data>> {
    if depth > RANKS {
        return Err(error::nesting("a tensor literal"));
    }
    vm.charge(1)?;
    if let Some(scalar) = value.as_scalar() {
        return Ok(Some(Data::Number(scalar)));
    }
    let items = match value {
        Value::List(_) | Value::Tuple(_) | Value::Range(_) => vm.collect(value)?,
        _ => return Ok(None),
    };
    *bytes = bytes.saturating_add(items.len().saturating_mul(size_of::<Data>()));
    charge(*bytes)?;
    let mut all = Vec::with_capacity(items.len());
    for item in &items {
        match data(vm, item, depth + 1, bytes)? {
            Some(inner) => all.push(inner),
            None => return Ok(None),
        }
    }
    Ok(Some(Data::List(all)))
}

/// Converts an operation's result to a script value.
pub fn from_out(out: Out) -> Result<Value> {
    Ok(match out {
        Out::None => Value::None,
        Out::Tensor(tensor) => Value::Tensor(tensor),
        Out::Tuple(tensors) => Value::tuple(tensors.into_iter().map(Value::Tensor).collect::<Values>()),
        Out::Record(names, tensors) => {
            Value::record(names.iter().copied().zip(tensors.into_iter().map(Value::Tensor)))
        }
        Out::Number(scalar) => Value::scalar(scalar),
        Out::Str(text) => Value::str(text),
        Out::Ints(ints) => Value::tuple(ints.into_iter().map(Value::Int).collect::<Values>()),
        Out::Dtype(dtype) => Value::Dtype(dtype),
        Out::Device(device) => Value::Device(device),
        Out::Data(data) => return from_data(data),
    })
}

fn from_data(data: Data) -> Result<Value> {
    crate::driver::error::paced(1)?;
    match data {
        Data::Number(scalar) => Ok(Value::scalar(scalar)),
        Data::List(items) => {
            let mut all = Values::with_capacity(items.len());
            for item in items {
                all.push(from_data(item)?);
            }
            Ok(Value::list(all))
        }
    }
}

/// The first element of a list or tuple that a parameter of this kind does not accept: its index and type.
#[cold]
fn misfit(kind: Kind, value: &Value) -> Option<(usize, &'static str)> {
    match value {
        Value::List(list) => misfit_of(kind, &list.borrow()),
        Value::Tuple(tuple) => misfit_of(kind, tuple.items()),
        _ => None,
    }
}

fn misfit_of(kind: Kind, items: &[Value]) -> Option<(usize, &'static str)> {
    let fits = |value: &Value| match kind {
        Kind::Shape | Kind::ShapeOrDtype | Kind::Dims | Kind::Int => value.as_int().is_some(),
        Kind::Tensors => {
            matches!(
                value,
                Value::Tensor(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::List(_)
            )
        }
        _ => true,
    };
    let by_name = |(_, value): &(usize, &Value)| matches!(value, Value::Dtype(_) | Value::Device(_));
    let found = items.iter().enumerate().filter(|(_, value)| !fits(value));
    let found = found.clone().find(by_name).or_else(|| found.clone().next());
    found.map(|(at, value)| (at, value.type_name()))
}

/// `a < b < c` with a tensor.
#[cold]
pub(super) fn chained() -> Error {
    Error::new(&error::NO_TRUTH, "comparisons of tensors do not chain")
        .label(Place::Here, "this comparison gives a tensor")
        .help("compare element by element: `(a < b) & (b < c)`")
}
