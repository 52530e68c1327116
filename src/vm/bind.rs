//! Binding arguments to parameters: the one place, for script functions, natives and operations.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use super::error;
use super::function::{Native, ParamInfo, Proto};
use super::run::calls::{Named, Positional};
use super::value::Value;
use super::values::Values;
use super::{Vm, account};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param};

/// The argument of each parameter of an operation. Arguments are numbered as they are passed.
pub(super) struct Sources {
    /// One per parameter; [`LEFT_OUT`] for a missing argument and for the rest parameter.
    pub of: SmallVec<[u8; 8]>,
    /// The arguments of the rest parameter.
    pub rest: Range<usize>,
}

/// The source of a parameter that takes its default.
pub(super) const LEFT_OUT: u8 = u8::MAX;

/// Assigns an argument to each parameter: `given` positional arguments, then those named `names`. `None` if
/// they do not fit; [`places`] reports why.
pub(super) fn sources<'n>(
    params: &[Param],
    given: usize,
    names: impl Iterator<Item = &'n Rc<str>>,
) -> Option<Sources> {
    let taken = params.iter().take_while(|p| !p.rest && !p.named_only).count().min(given);
    let mut of: SmallVec<[u8; 8]> = SmallVec::from_elem(LEFT_OUT, params.len());
    of[..taken].iter_mut().zip(0..).for_each(|(source, i)| *source = i);
    if taken < given && !params.iter().any(|p| p.rest) {
        return None;
    }
    let mut rest = taken..given;
    for (i, name) in names.enumerate() {
        let at = params.iter().position(|p| p.is_called(name) && (!p.rest || p.listed()))?;
        if params[at].rest {
            if !rest.is_empty() {
                return None;
            }
            rest = given + i..given + i + 1;
            continue;
        }
        if of[at] != LEFT_OUT {
            return None;
        }
        of[at] = u8::try_from(given + i).ok()?;
    }
    let complete = params.iter().zip(&of).all(|(p, source)| !p.required() || *source != LEFT_OUT);
    complete.then_some(Sources { of, rest })
}

/// The properties of a parameter that binding needs.
trait Slot {
    fn name(&self) -> &str;
    fn is_called(&self, name: &str) -> bool {
        self.name() == name
    }
    fn required(&self) -> bool;
    fn rest(&self) -> bool;
    fn named_only(&self) -> bool;
    /// Returns whether it is a rest parameter that may be given by name, as one list.
    fn listed(&self) -> bool;
}

impl Slot for Param {
    fn name(&self) -> &str {
        self.name
    }
    fn is_called(&self, name: &str) -> bool {
        Param::is_called(self, name)
    }
    fn required(&self) -> bool {
        self.default == Default::Required && !self.rest
    }
    fn rest(&self) -> bool {
        self.rest
    }
    fn named_only(&self) -> bool {
        self.named_only
    }
    fn listed(&self) -> bool {
        Param::listed(self)
    }
}

impl Slot for ParamInfo {
    fn name(&self) -> &str {
        &self.name
    }
    fn required(&self) -> bool {
        !self.optional && !self.rest
    }
    fn rest(&self) -> bool {
        self.rest
    }
    fn named_only(&self) -> bool {
        self.named_only
    }
    fn listed(&self) -> bool {
        false
    }
}

/// Arguments assigned to parameters.
pub(super) struct Places {
    /// One value per parameter; `Value::Unset` for a missing argument and for the rest parameter.
    pub values: Positional,
    /// The arguments of the rest parameter, in order.
    pub rest: Positional,
}

impl Places {
    /// One value per parameter, with a list for the rest parameter.
    fn listed(mut self, at: Option<usize>) -> Result<Positional> {
        if let Some(at) = at {
            account::charge_values(self.rest.len())?;
            self.values[at] = Value::list(self.rest.into_iter().collect::<Values>());
        }
        Ok(self.values)
    }
}

/// Assigns arguments to parameters.
fn assign<S: Slot>(
    function: &str,
    slots: &[S],
    positional: Positional,
    named: Named,
    signature: &dyn Fn() -> String,
) -> Result<Places> {
    let called = || error::Called::new(function, &signature());
    let mut values: Positional = slots.iter().map(|_| Value::Unset).collect();
    let given = positional.len();
    let taken = slots.iter().take_while(|s| !s.rest() && !s.named_only()).count();
    let mut positional = positional.into_iter();
    for (slot, value) in values.iter_mut().zip(positional.by_ref().take(taken)) {
        *slot = value;
    }
    let mut rest: Positional = positional.collect();
    if !rest.is_empty() && !slots.iter().any(S::rest) {
        return Err(error::argument_extra(&called(), taken, given));
    }
    for (i, (name, value)) in named.into_iter().enumerate() {
        let operand = given + i;
        match slots.iter().position(|s| s.is_called(&name) && (!s.rest() || s.listed())) {
            Some(at) if slots[at].rest() => {
                if !rest.is_empty() {
                    let by_place = (taken < given).then_some(taken);
                    return Err(error::argument_twice(&called(), &name, operand, by_place));
                }
                rest.push(value);
            }
            Some(at) if !matches!(values[at], Value::Unset) => {
                let by_place = (at < taken.min(given)).then_some(at);
                return Err(error::argument_twice(&called(), &name, operand, by_place));
            }
            Some(at) => values[at] = value,
            None => {
                let names = slots.iter().filter(|s| !s.rest()).map(S::name);
                return Err(error::argument_unknown(&called(), &name, operand, names));
            }
        }
    }
    for (slot, value) in slots.iter().zip(&values) {
        if slot.required() && matches!(value, Value::Unset) {
            return Err(error::argument_missing(&called(), slot.name()));
        }
    }
    Ok(Places { values, rest })
}

/// The range of arguments that a parameter receives: `given` positional arguments, then those named `names`.
/// The range is empty if there is none.
pub(super) fn passed(params: &[Param], parameter: usize, given: usize, names: &[Rc<str>]) -> (usize, usize) {
    let by_place = params.iter().take_while(|p| !p.rest && !p.named_only).count();
    let Some(param) = params.get(parameter) else { return (0, 0) };
    if param.rest && (given > by_place || !param.listed()) {
        return (by_place, given.max(by_place));
    }
    if parameter < by_place.min(given) {
        return (parameter, parameter + 1);
    }
    match names.iter().position(|name| param.is_called(name)) {
        Some(at) => (given + at, given + at + 1),
        None => (0, 0),
    }
}

/// Binds a call of a script function: one value per parameter, `Unset` for a default.
pub(super) fn script(proto: &Proto, args: Positional, named: Named) -> Result<Positional> {
    if named.is_empty() && args.len() == usize::from(proto.plain) {
        return Ok(args);
    }
    let rest = proto.params.iter().position(|p| p.rest);
    assign(&proto.name, &proto.params, args, named, &|| script_signature(proto))?.listed(rest)
}

/// `(a, b=..., *rest)`
pub fn script_signature(proto: &Proto) -> String {
    format!("({})", proto.params.iter().map(ParamInfo::to_string).collect::<Vec<_>>().join(", "))
}

/// Binds a call of a native. Afterwards `args` holds one checked value per parameter.
pub(super) fn native(vm: &mut Vm, native: &Native, args: &mut Positional, named: Named) -> Result<()> {
    let params = native.signature.params;
    if named.is_empty() && takes_all(params, args.len()) {
        let given = args.len();
        args.extend(params[given..].iter().map(|param| default(param.default)));
        return check_all(vm, native, &mut args[..given]);
    }
    let rest = params.iter().position(|p| p.rest);
    *args = places(native, std::mem::take(args), named)?.listed(rest)?;
    for (i, (param, value)) in params.iter().zip(args.iter_mut()).enumerate() {
        if let Value::Unset = value {
            *value = default(param.default);
        } else if !param.rest {
            check(vm, &native.name, i, param, value)?;
        }
    }
    Ok(())
}

/// Checks a native's first arguments, converting where the kind allows it.
#[inline]
pub(super) fn check_all(vm: &mut Vm, native: &Native, args: &mut [Value]) -> Result<()> {
    for (i, (param, value)) in native.signature.params.iter().zip(args).enumerate() {
        check(vm, &native.name, i, param, value)?;
    }
    Ok(())
}

/// Returns whether `count` positional arguments fill the first parameters, and the others are optional.
pub(super) fn takes_all(params: &[Param], count: usize) -> bool {
    count <= params.len()
        && params
            .iter()
            .enumerate()
            .all(|(i, p)| !p.rest && if i < count { !p.named_only } else { !p.required() })
}

/// A native's arguments assigned to its parameters, unchecked.
pub(super) fn places(native: &Native, args: Positional, named: Named) -> Result<Places> {
    assign(&native.name, native.signature.params, args, named, &|| native.signature.to_string())
}

/// The value of a parameter without an argument.
pub(super) fn default(default: Default) -> Value {
    match default {
        Default::Required | Default::None => Value::None,
        Default::Absent => Value::Unset,
        Default::Bool(b) => Value::Bool(b),
        Default::Int(i) => Value::Int(i),
        Default::Float(f) => Value::Float(f),
        Default::Str(s) => Value::str(s),
    }
}

/// The value as an int, if it is an int or a bool.
pub fn int_of(value: &Value) -> Option<i64> {
    value.as_int()
}

/// The description of a parameter's accepted values in error messages.
pub(super) fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Tensor => "a tensor",
        Kind::TensorOrNumber => "a tensor or a number",
        Kind::Number => "a number",
        Kind::Int => "an int",
        Kind::Float => "a float",
        Kind::Bool => "a bool",
        Kind::Str => "a str",
        Kind::Shape => "a shape (ints, or a list of them)",
        Kind::ShapeOrDtype => "a shape (ints, or a list of them) or a dtype",
        Kind::Dims => "a dimension or a list of them",
        Kind::Tensors => "a list of tensors",
        Kind::Dtype => "a dtype",
        Kind::Device => "a device",
        Kind::Stream => "a stream",
        Kind::Event => "an event",
        Kind::Generator => "a generator",
        Kind::Data => "a number, a list of numbers or a tensor",
        Kind::Fn => "a function",
        Kind::Any => "a value",
    }
}

/// Checks a native's argument, converting where the kind allows it.
#[inline]
fn check(vm: &mut Vm, function: &str, index: usize, param: &Param, value: &mut Value) -> Result<()> {
    if param.default == Default::None && value.is_none() {
        return Ok(());
    }
    if param.kind == Kind::Any {
        return Ok(());
    }
    check_kind(vm, function, index, param, value)
}

fn check_kind(vm: &mut Vm, function: &str, index: usize, param: &Param, value: &mut Value) -> Result<()> {
    let fits = match param.kind {
        Kind::Any => true,
        Kind::Int => match value {
            Value::Int(_) => true,
            Value::Bool(b) => {
                *value = Value::Int(i64::from(*b));
                true
            }
            Value::Tensor(tensor) if tensor.count() == 1 && tensor.dtype().is_int() => {
                *value = Value::Int(vm.rt.item(tensor)?.as_i64());
                true
            }
            _ => false,
        },
        Kind::Float => match value.as_float() {
            Some(f) => {
                *value = Value::Float(f);
                true
            }
            None => match value {
                Value::Tensor(tensor) if tensor.is_real_number() => {
                    *value = Value::Float(vm.rt.item(tensor)?.as_f64());
                    true
                }
                _ => false,
            },
        },
        Kind::Number => match value {
            Value::Tensor(tensor) if tensor.is_real_number() => {
                *value = Value::scalar(vm.rt.item(tensor)?);
                true
            }
            _ => value.as_scalar().is_some(),
        },
        Kind::Bool => matches!(value, Value::Bool(_)),
        Kind::Str => matches!(value, Value::Str(_)),
        Kind::Fn => value.is_callable(),
        Kind::Dtype => matches!(value, Value::Dtype(_)),
        Kind::Device => {
            let device = vm.device_named(value).map_err(|e| e.operand(index, "this device"))?;
            *value = Value::Device(device);
            true
        }
        Kind::Tensor => {
            if let Some(tensor) = vm.as_tensor(value, None)? {
                *value = Value::Tensor(tensor);
                true
            } else {
                false
            }
        }
        Kind::TensorOrNumber => match value {
            Value::List(_) => match vm.as_tensor(value, None)? {
                Some(tensor) => {
                    *value = Value::Tensor(tensor);
                    true
                }
                None => false,
            },
            Value::Tensor(_) => true,
            _ => value.as_scalar().is_some(),
        },
        Kind::Shape | Kind::ShapeOrDtype | Kind::Dims => {
            matches!(value, Value::Int(_) | Value::List(_) | Value::Tuple(_))
        }
        Kind::Tensors => matches!(value, Value::List(_) | Value::Tuple(_)),
        Kind::Data => matches!(
            value,
            Value::Int(_)
                | Value::Float(_)
                | Value::Bool(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Tensor(_)
        ),
        Kind::Stream => value.type_name() == "stream",
        Kind::Event => value.type_name() == "event",
        Kind::Generator => value.type_name() == "generator",
    };
    if fits {
        Ok(())
    } else {
        Err(error::argument_type(function, index, param.name, expected(param.kind), value.type_name()))
    }
}
