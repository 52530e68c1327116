//! Script values.
//!
//! A [`Value`] is 16 bytes: a tag, and a number or a counted pointer into the script heap. The tag has eight
//! bytes, so that a value written in halves is also read in halves: reading two narrower writes at once
//! stalls store forwarding. Invariant: tags below [`FIRST_HEAP`] own nothing, so such values are copied
//! bitwise and forgotten without a destructor; `is_plain` is the only test for it.

use std::rc::Rc;

use compact_str::CompactString;

use super::counted::{Counted, FieldNames};
use super::function::{Bound, Closure, Module, Native};
use super::heap::{Cell, Dict, ErrorValue, List, Range, Record, Tuple};
use super::object::Handle;
use super::text::Text;
use super::values::Values;
use crate::array::{Dtype, Scalar};
use crate::driver::DeviceId;
use crate::tensor::Tensor;

/// A script value.
///
/// Example: `[1, "a"]` is a `List` of `Int(1)` and a `Str`.
#[repr(u64)]
#[derive(Default)]
pub enum Value {
    /// `none`
    #[default]
    None = TAG_NONE,
    /// A name whose definition has not run; never visible to scripts.
    Unset,
    /// `...` in an index.
    Ellipsis,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64) = TAG_INT,
    /// `float`
    Float(f64) = TAG_FLOAT,
    /// `dtype`
    Dtype(Dtype),
    /// `device`
    Device(DeviceId),
    /// `str`; the first tag that owns something.
    Str(Rc<Text>) = FIRST_HEAP,
    /// `list`
    List(Rc<List>),
    /// `tuple`
    Tuple(Rc<Tuple>),
    /// `record`
    Record(Rc<Record>),
    /// `dict`
    Dict(Rc<Dict>),
    /// `range`
    Range(Rc<Counted<Range>>),
    /// `fn`, written in Runnel
    Fn(Rc<Closure>) = TAG_FN,
    /// `fn`, native
    Native(Rc<Native>),
    /// `fn`, a method with its receiver
    Bound(Rc<Counted<Bound>>),
    /// `module`
    Module(Rc<Module>),
    /// `error`
    Error(Rc<ErrorValue>),
    /// `stream`, `event`, `generator`, `graph`, a context
    Object(Rc<Handle>),
    /// `tensor`
    Tensor(Tensor),
    /// A captured variable; never visible to scripts.
    Cell(Rc<Cell>),
}

/// The tag of the first variant that owns something.
pub const FIRST_HEAP: u64 = 8;

/// The tag of `none`, which has no payload.
pub(super) const TAG_NONE: u64 = 0;
/// The tag of an int; the number is at offset eight.
pub(super) const TAG_INT: u64 = 4;
/// The tag of a float; the number is at offset eight.
pub(super) const TAG_FLOAT: u64 = 5;
/// The tag of a script function; the pointer is at offset eight.
pub(super) const TAG_FN: u64 = 14;

const _: () = assert!(std::mem::size_of::<Rc<Closure>>() == 8);

const _: () = assert!(std::mem::size_of::<Value>() == 16);

impl Value {
    /// A string.
    pub fn str(text: impl Into<CompactString>) -> Value {
        Value::Str(Rc::new(Text::new(text.into())))
    }

    /// A list.
    pub fn list(items: impl Into<Values>) -> Value {
        Value::List(Rc::new(List::new(items)))
    }

    /// A tuple.
    pub fn tuple(items: impl Into<Values>) -> Value {
        Value::Tuple(Rc::new(Tuple::new(items.into().into_vec())))
    }

    /// A tuple of two.
    pub fn pair(first: Value, second: Value) -> Value {
        Value::Tuple(Rc::new(Tuple::new([first, second])))
    }

    /// A record of these fields.
    pub fn record<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
        let (names, values): (Vec<Rc<str>>, Values) =
            fields.into_iter().map(|(n, v)| (Rc::from(n), v)).unzip();
        Value::Record(Rc::new(Record::new(FieldNames::shared(names), values)))
    }

    /// A dict.
    pub fn dict(dict: Rc<Dict>) -> Value {
        Value::Dict(dict)
    }

    /// A range; `None` for an open end.
    pub fn range(start: Option<i64>, end: Option<i64>, step: i64) -> Value {
        Value::Range(Counted::shared(Range { start, end, step }))
    }

    /// A number; a complex number becomes a record of its parts.
    pub fn scalar(scalar: Scalar) -> Value {
        match scalar {
            Scalar::Bool(b) => Value::Bool(b),
            Scalar::Int(i) => Value::Int(i),
            Scalar::Float(f) => Value::Float(f),
            Scalar::Complex(re, im) => Value::record([("re", Value::Float(re)), ("im", Value::Float(im))]),
        }
    }

    /// The number, if the value is one.
    pub fn as_scalar(&self) -> Option<Scalar> {
        match *self {
            Value::Bool(b) => Some(Scalar::Bool(b)),
            Value::Int(i) => Some(Scalar::Int(i)),
            Value::Float(f) => Some(Scalar::Float(f)),
            _ => None,
        }
    }

    /// The value as an int, if it is an `int` or a `bool`.
    pub fn as_int(&self) -> Option<i64> {
        match *self {
            Value::Int(i) => Some(i),
            Value::Bool(b) => Some(i64::from(b)),
            _ => None,
        }
    }

    /// The value as a float, if it is a number.
    pub fn as_float(&self) -> Option<f64> {
        self.as_scalar().map(Scalar::as_f64)
    }

    /// The text of a `str`.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// True for `none`.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// Returns whether it can be called: functions, dtypes (they convert), and records with a field
    /// `forward`.
    pub fn is_callable(&self) -> bool {
        matches!(self, Value::Fn(_) | Value::Native(_) | Value::Bound(_) | Value::Dtype(_))
            || matches!(self, Value::Record(r) if r.position("forward").is_some())
    }

    /// The type's name, as `type(x)` and errors show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::None | Value::Unset => "none",
            Value::Ellipsis => "ellipsis",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Dtype(_) => "dtype",
            Value::Device(_) => "device",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Record(_) => "record",
            Value::Dict(_) => "dict",
            Value::Range(_) => "range",
            Value::Fn(_) | Value::Native(_) | Value::Bound(_) => "fn",
            Value::Module(_) => "module",
            Value::Error(_) => "error",
            Value::Object(handle) => handle.get().type_name(),
            Value::Tensor(_) => "tensor",
            Value::Cell(_) => "variable",
        }
    }

    /// True when this owns nothing.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.tag() < FIRST_HEAP
    }

    /// True if it may hold other values, so that storing it can close a cycle.
    #[inline]
    pub(super) fn links(&self) -> bool {
        matches!(
            self,
            Value::List(_)
                | Value::Tuple(_)
                | Value::Record(_)
                | Value::Dict(_)
                | Value::Fn(_)
                | Value::Bound(_)
                | Value::Object(_)
                | Value::Cell(_)
        )
    }

    #[inline(always)]
    pub(super) fn tag(&self) -> u64 {
        // SAFETY: the enum is `repr(u64)`, so it begins with the discriminant.
        unsafe { *(self as *const Value).cast::<u64>() }
    }

    /// True for equal numbers, and for references to the same object.
    pub fn is(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Dtype(a), Value::Dtype(b)) => a == b,
            (Value::Device(a), Value::Device(b)) => a == b,
            _ if self.tag() != other.tag() => false,
            (Value::None | Value::Unset | Value::Ellipsis, _) => true,
            _ => {
                // SAFETY: numbers and counted pointers are eight initialised bytes at offset eight.
                let payload = |value: &Value| unsafe { (&raw const *value).cast::<u64>().add(1).read() };
                payload(self) == payload(other)
            }
        }
    }

    /// Increments the reference count: a bitwise copy is then a valid value.
    pub(super) fn retain(&self) {
        use std::mem::forget;
        match self {
            Value::Str(x) => forget(Rc::clone(x)),
            Value::List(x) => forget(Rc::clone(x)),
            Value::Tuple(x) => forget(Rc::clone(x)),
            Value::Record(x) => forget(Rc::clone(x)),
            Value::Dict(x) => forget(Rc::clone(x)),
            Value::Range(x) => forget(Rc::clone(x)),
            Value::Fn(x) => forget(Rc::clone(x)),
            Value::Native(x) => forget(Rc::clone(x)),
            Value::Bound(x) => forget(Rc::clone(x)),
            Value::Module(x) => forget(Rc::clone(x)),
            Value::Error(x) => forget(Rc::clone(x)),
            Value::Object(x) => forget(Rc::clone(x)),
            Value::Tensor(x) => forget(x.clone()),
            Value::Cell(x) => forget(Rc::clone(x)),
            _ => {}
        }
    }
}

impl Clone for Value {
    #[inline(always)]
    fn clone(&self) -> Value {
        match self {
            // Field by field: a copy of all sixteen bytes would wait for the two writes that just made the
            // number.
            Value::Int(i) => Value::Int(*i),
            Value::Float(f) => Value::Float(*f),
            _ => {
                if !self.is_plain() {
                    self.retain();
                }
                // SAFETY: an owned reference was counted once more; a plain value owns nothing.
                unsafe { std::ptr::read(self) }
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::str(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::str(text)
    }
}

impl From<i64> for Value {
    fn from(i: i64) -> Value {
        Value::Int(i)
    }
}

impl From<f64> for Value {
    fn from(f: f64) -> Value {
        Value::Float(f)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::list(items)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::None, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_at_the_offset_that_registers_write() {
        assert_eq!((Value::Int(7).tag(), Value::Float(7.0).tag()), (TAG_INT, TAG_FLOAT));
        let payload = |value: &Value| {
            // SAFETY: both kinds of number have eight initialised bytes at offset eight.
            unsafe { (&raw const *value).cast::<u8>().add(8).cast::<u64>().read() }
        };
        assert_eq!(payload(&Value::Int(-3)), -3_i64 as u64);
        assert_eq!(payload(&Value::Float(1.5)), 1.5_f64.to_bits());
    }

    #[test]
    fn identity_compares_numbers_and_references() {
        let all = [
            Value::None,
            Value::Ellipsis,
            Value::Bool(false),
            Value::Bool(true),
            Value::Int(0),
            Value::Float(0.0),
            Value::Float(-0.0),
            Value::Float(f64::NAN),
            Value::Device(DeviceId::Cpu),
            Value::Device(DeviceId::Cuda(0)),
            Value::Dtype(Dtype::F32),
            Value::str("a"),
            Value::str("a"),
            Value::list(vec![]),
            Value::tuple(vec![Value::None]),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a.is(&b.clone()), i == j, "{i} {j}");
            }
        }
    }

    #[test]
    fn plain_values_own_nothing_and_others_do() {
        for plain in
            [Value::None, Value::Unset, Value::Bool(true), Value::Float(1.0), Value::Device(DeviceId::Cpu)]
        {
            assert!(plain.is_plain());
        }
        for owner in [Value::str(""), Value::list(vec![]), Value::range(None, None, 1)] {
            assert!(!owner.is_plain());
        }
    }
}
