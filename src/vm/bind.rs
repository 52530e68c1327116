//! Binding arguments to parameters: the one place, for script functions, natives and operations.

use std::rc::Rc;

use super::error;
use super::function::{Native, Proto};
use super::run::calls::{Named, Positional};
use super::value::Value;
use super::{Vm, heap};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param};

/// What binding needs to know of a parameter.
struct Slot<'a> {
    name: &'a str,
    required: bool,
    rest: bool,
    named_only: bool,
}

/// Puts arguments into one place per parameter; `Value::Unset` where one was left out, a list for
/// the rest parameter.
fn assign(
    function: &str,
    slots: &[Slot<'_>],
    positional: Positional,
    named: Named,
    signature: &dyn Fn() -> String,
) -> Result<Positional> {
    let mut bound: Positional = slots.iter().map(|_| Value::Unset).collect();
    let given = positional.len();
    let taken = slots.iter().take_while(|s| !s.rest && !s.named_only).count();
    let rest = slots.iter().position(|s| s.rest);
    let mut positional = positional.into_iter();
    for (slot, value) in bound.iter_mut().zip(positional.by_ref().take(taken)) {
        *slot = value;
    }
    match rest {
        Some(at) => {
            let values: Vec<Value> = positional.collect();
            heap::charge_values(values.len())?;
            bound[at] = Value::list(values);
        }
        None if given > taken => {
            return Err(error::argument_extra(function, taken, given, taken, &signature()));
        }
        None => {}
    }
    for (i, (name, value)) in named.into_iter().enumerate() {
        let operand = given + i;
        match slots.iter().position(|s| *s.name == *name && !s.rest) {
            Some(at) if !matches!(bound[at], Value::Unset) => {
                return Err(error::argument_twice(function, &name, operand));
            }
            Some(at) => bound[at] = value,
            None => {
                let names = slots.iter().filter(|s| !s.rest).map(|s| s.name);
                return Err(error::argument_unknown(function, &name, operand, names, &signature()));
            }
        }
    }
    for (slot, value) in slots.iter().zip(&bound) {
        if slot.required && matches!(value, Value::Unset) {
            return Err(error::argument_missing(function, slot.name, &signature()));
        }
    }
    Ok(bound)
}

/// Binds a call of a script function: one value per parameter, `Unset` for a default.
pub(super) fn script(proto: &Proto, args: Positional, named: Named) -> Result<Positional> {
    if named.is_empty() && proto.plain.is_some_and(|n| usize::from(n) == args.len()) {
        return Ok(args);
    }
    let slots: Vec<Slot> = proto
        .params
        .iter()
        .map(|p| Slot {
            name: &p.name,
            required: !p.optional && !p.rest,
            rest: p.rest,
            named_only: p.named_only,
        })
        .collect();
    assign(&proto.name, &slots, args, named, &|| script_signature(proto))
}

/// `(a, b=..., *rest)`
pub fn script_signature(proto: &Proto) -> String {
    let param = |p: &super::function::ParamInfo| match (p.rest, p.optional) {
        (true, _) => format!("*{}", p.name),
        (_, true) => format!("{}=...", p.name),
        _ => p.name.to_string(),
    };
    format!("({})", proto.params.iter().map(param).collect::<Vec<_>>().join(", "))
}

/// Binds a call of a native: one checked value per parameter.
pub(super) fn native(vm: &mut Vm, native: &Rc<Native>, args: Positional, named: Named) -> Result<Positional> {
    let params = native.signature.params;
    let plain =
        named.is_empty() && args.len() == params.len() && params.iter().all(|p| !p.rest && !p.named_only);
    let mut bound = if plain { args } else { places(native, args, named)? };
    for (i, (param, value)) in params.iter().zip(bound.iter_mut()).enumerate() {
        if let Value::Unset = value {
            *value = default(param.default);
        } else if !param.rest {
            check(vm, &native.name, i, param, value)?;
        }
    }
    Ok(bound)
}

/// One value per parameter, unchecked; `Unset` where one was left out.
pub(super) fn places(native: &Native, args: Positional, named: Named) -> Result<Positional> {
    let slots: Vec<Slot> = native
        .signature
        .params
        .iter()
        .map(|p| Slot {
            name: p.name,
            required: p.default == Default::Required && !p.rest,
            rest: p.rest,
            named_only: p.named_only,
        })
        .collect();
    assign(&native.name, &slots, args, named, &|| native.signature.to_string())
}

/// The value of a parameter that was left out.
pub(super) fn default(default: Default) -> Value {
    match default {
        Default::Required | Default::None => Value::None,
        Default::Bool(b) => Value::Bool(b),
        Default::Int(i) => Value::Int(i),
        Default::Float(f) => Value::Float(f),
        Default::Str(s) => Value::str(s),
    }
}

/// The int that a value is: an int, a bool.
pub fn int_of(value: &Value) -> Option<i64> {
    value.as_int()
}

/// How errors call what a parameter accepts.
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
fn check(vm: &mut Vm, function: &str, index: usize, param: &Param, value: &mut Value) -> Result<()> {
    if param.default == Default::None && value.is_none() {
        return Ok(());
    }
    let fits = match param.kind {
        Kind::Any => true,
        Kind::Int => match value {
            Value::Int(_) => true,
            Value::Bool(b) => {
                *value = Value::Int(i64::from(*b));
                true
            }
            Value::Tensor(tensor) if tensor.count() == 1 && !tensor.dtype().is_float() => {
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
                Value::Tensor(tensor) if tensor.count() == 1 => {
                    *value = Value::Float(vm.rt.item(tensor)?.as_f64());
                    true
                }
                _ => false,
            },
        },
        Kind::Number => match value {
            Value::Tensor(tensor) if tensor.count() == 1 => {
                *value = Value::scalar(vm.rt.item(tensor)?);
                true
            }
            _ => value.as_scalar().is_some(),
        },
        Kind::Bool => matches!(value, Value::Bool(_)),
        Kind::Str => matches!(value, Value::Str(_)),
        Kind::Fn => {
            matches!(value, Value::Fn(_) | Value::Native(_) | Value::Bound(_) | Value::Dtype(_))
                || matches!(value, Value::Record(r) if r.position("forward").is_some())
        }
        Kind::Dtype => matches!(value, Value::Dtype(_)),
        Kind::Device => match value {
            Value::Device(_) => true,
            Value::Int(i) => match u32::try_from(*i) {
                Ok(i) => {
                    *value = Value::Device(crate::device::DeviceId::Cuda(i));
                    true
                }
                Err(_) => false,
            },
            _ => false,
        },
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
        Kind::Shape | Kind::Dims => {
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
