//! Equality, order and membership. Depth is bounded: comparing structures that contain themselves raises a
//! coded error and does not overflow the stack.

use std::cmp::Ordering;

use super::run::arith::{number_order, symbol};
use super::value::Value;
use super::{Vm, error};
use crate::base::Result;
use crate::syntax::ast::Binary;

/// Maximum depth of compared containers.
const DEPTH: u32 = 200;

/// Returns whether two values are equal; those of different types are not. A tensor is equal to itself, and
/// to a number or another tensor of one element if `==` is true, which reads it.
///
/// # Errors
/// E0327 for a number or tensor compared with a tensor of several elements.
pub fn equal(vm: &mut Vm, left: &Value, right: &Value) -> Result<bool> {
    if let Some(order) = number_order(left, right) {
        return Ok(order == Some(Ordering::Equal));
    }
    Ok(match (left, right) {
        (Value::None, Value::None) | (Value::Ellipsis, Value::Ellipsis) => true,
        (Value::Str(a), Value::Str(b)) => same_text(vm, a.as_str(), b.as_str())?,
        (Value::Dtype(a), Value::Dtype(b)) => a == b,
        (Value::Device(a), Value::Device(b)) => a == b,
        (Value::Range(a), Value::Range(b)) => ***a == ***b,
        (Value::List(a), Value::List(b)) => {
            if std::rc::Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            sequences(vm, &a.borrow(), &b.borrow())?
        }
        (Value::Tuple(a), Value::Tuple(b)) => sequences(vm, a.items(), b.items())?,
        (Value::Record(a), Value::Record(b)) => {
            ***a.names() == ***b.names() && sequences(vm, a.values(), b.values())?
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if std::rc::Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            let (a, b) = (a.borrow(), b.borrow());
            if a.len() != b.len() {
                return Ok(false);
            }
            nested(vm, |vm| {
                for (key, value) in a.iter() {
                    vm.walk(1)?;
                    match b.get(key.value()) {
                        Some(other) if equal(vm, value, other)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            })?
        }
        (Value::Fn(a), Value::Fn(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Native(a), Value::Native(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Bound(a), Value::Bound(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Module(a), Value::Module(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Error(a), Value::Error(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Tensor(a), Value::Tensor(b)) if a.same(b) => true,
        (Value::Tensor(_), other) | (other, Value::Tensor(_))
            if matches!(other, Value::Tensor(_)) || other.as_scalar().is_some() =>
        {
            return tensors(vm, left, right);
        }
        (Value::Object(a), Value::Object(b)) => {
            let same_type = a.get().type_name() == b.get().type_name();
            let own = if same_type { a.get().equals(b.get()) } else { None };
            own.unwrap_or_else(|| std::rc::Rc::ptr_eq(a, b))
        }
        _ => false,
    })
}

/// Returns whether a tensor of one element and a number, or another such tensor, are equal.
fn tensors(vm: &mut Vm, left: &Value, right: &Value) -> Result<bool> {
    let shown = |value: &Value| match value {
        Value::Tensor(tensor) => tensor.describe().to_string(),
        other => error::a(other.type_name()),
    };
    if [left, right].into_iter().any(|v| matches!(v, Value::Tensor(t) if t.count() != 1)) {
        return Err(error::ambiguous(&shown(left), &shown(right)));
    }
    let equal = vm.tensor_binary(Binary::Eq, left.clone(), right.clone())?;
    vm.truth(&equal)
}

fn sequences(vm: &mut Vm, a: &[Value], b: &[Value]) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    nested(vm, |vm| {
        for (a, b) in a.iter().zip(b) {
            vm.walk(1)?;
            if !equal(vm, a, b)? {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Returns whether two strings are equal. Long ones are compared in pieces.
fn same_text(vm: &Vm, a: &str, b: &str) -> Result<bool> {
    Ok(a.len() == b.len() && text_order(vm, a, b)?.is_eq())
}

fn text_order(vm: &Vm, a: &str, b: &str) -> Result<Ordering> {
    /// Bytes between two checks of the limits.
    const PIECE: usize = 1 << 20;
    if a.len().min(b.len()) < PIECE {
        return Ok(a.cmp(b));
    }
    for (a, b) in a.as_bytes().chunks(PIECE).zip(b.as_bytes().chunks(PIECE)) {
        vm.walk(a.len() / 64)?;
        if a != b {
            return Ok(a.cmp(b));
        }
    }
    Ok(a.len().cmp(&b.len()))
}

fn nested<V: std::ops::Deref<Target = Vm>, T>(
    mut vm: V,
    body: impl FnOnce(&mut V) -> Result<T>,
) -> Result<T> {
    let depth = vm.nesting.get();
    if depth >= DEPTH {
        return Err(error::nesting("a value that is compared"));
    }
    vm.walk(1)?;
    vm.nesting.set(depth + 1);
    let result = body(&mut vm);
    vm.nesting.set(depth);
    result
}

/// The order of two values for `op`. nan is unordered and counts as equal here; comparisons of numbers are
/// handled elsewhere.
pub fn order(vm: &Vm, op: Binary, left: &Value, right: &Value) -> Result<Ordering> {
    match compare(vm, left, right)? {
        Some(order) => Ok(order),
        None => Err(error::operator_types(symbol(op), left.type_name(), right.type_name())),
    }
}

/// The order of two elements for sorting: numbers before nan.
pub fn sort_order(vm: &Vm, left: &Value, right: &Value) -> Result<Ordering> {
    match compare(vm, left, right)? {
        Some(order) => Ok(order),
        None => Err(error::no_order(left.type_name(), right.type_name())),
    }
}

fn compare(vm: &Vm, left: &Value, right: &Value) -> Result<Option<Ordering>> {
    if let Some(found) = number_order(left, right) {
        let nan = |v: &Value| matches!(v, Value::Float(f) if f.is_nan());
        return Ok(Some(found.unwrap_or_else(|| nan(left).cmp(&nan(right)))));
    }
    match (left, right) {
        (Value::Str(a), Value::Str(b)) => text_order(vm, a.as_str(), b.as_str()).map(Some),
        (Value::Tuple(a), Value::Tuple(b)) => lexical(vm, a.items(), b.items()),
        (Value::List(a), Value::List(b)) => {
            if std::rc::Rc::ptr_eq(a, b) {
                return Ok(Some(Ordering::Equal));
            }
            lexical(vm, &a.borrow(), &b.borrow())
        }
        _ => Ok(None),
    }
}

fn lexical(vm: &Vm, a: &[Value], b: &[Value]) -> Result<Option<Ordering>> {
    nested(vm, |vm| {
        for (a, b) in a.iter().zip(b) {
            vm.walk(1)?;
            match compare(vm, a, b)? {
                Some(Ordering::Equal) => {}
                other => return Ok(other),
            }
        }
        Ok(Some(a.len().cmp(&b.len())))
    })
}

/// `item in container`.
pub fn contains(vm: &mut Vm, container: &Value, item: &Value) -> Result<bool> {
    let mut any = |items: &[Value]| {
        for value in items {
            vm.walk(1)?;
            if equal(vm, value, item)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match container {
        Value::Str(text) => match item {
            Value::Str(part) => Ok(super::search::find(vm, text.as_str(), part.as_str())?.is_some()),
            other => Err(error::operator_types("in", other.type_name(), "str")),
        },
        Value::List(list) => any(&list.borrow()),
        Value::Tuple(tuple) => any(tuple.items()),
        Value::Dict(dict) => dict.has(item),
        Value::Record(record) => Ok(item.as_str().is_some_and(|name| record.position(name).is_some())),
        Value::Range(range) => Ok(match item {
            Value::Float(f) if f.fract() == 0.0 && f.abs() < 9.2e18 => range.contains(*f as i64),
            other => other.as_int().is_some_and(|i| range.contains(i)),
        }),
        other => Err(error::operator_types("in", item.type_name(), other.type_name())),
    }
}
