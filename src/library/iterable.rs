//! Sequences that a script makes up as it goes: `iterable(begin)`.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use super::{optional, takes};
use crate::base::Result;
use crate::ops::signature::{Kind, Param};
use crate::vm::{NativeDef, Object, Tuple, Value, Vm, error};

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[NativeDef {
    name: "iterable",
    receiver: "",
    signature: takes(&[Param::new("begin", Kind::Fn), optional("length", Kind::Any)]),
    doc: "A value that `for` goes through. Each `for` calls `begin()`, which gives a function; that is called for \
          each element, and gives `none` after the last one. `length` is what `len` gives: an int, or a function \
          that computes it.",
    example: "let countdown = iterable(|| {\n    let n = 3\n    || { n = n - 1; if n >= 0 { n } else { none } }\n}, 3)\n\
              let seen = []\nfor n in countdown { seen.append(n) }\nassert(seen == [2, 1, 0])\nassert(len(countdown) == 3)",
    run: |_, args| match &args[1] {
        Value::Int(n) if *n < 0 => Err(error::bad_value(1, "a length is 0 or more")),
        Value::None | Value::Int(_) | Value::Fn(_) | Value::Native(_) | Value::Bound(_) => {
            let parts = Value::tuple(vec![args[0].clone(), args[1].clone()]);
            Ok(Value::object(Iterable(tuple(parts))))
        }
        other => Err(error::argument_type("iterable", 1, "length", "an int or a fn", other.type_name())),
    },
}];

/// What begins, and the length. In a tuple: chains of such values of any depth are dropped with
/// bounded stack.
struct Iterable(Rc<Tuple>);

/// The function that gives the next element.
struct Elements(Rc<Tuple>);

/// The elements of an iterable with their numbers, one by one.
pub(super) fn numbered(sequence: &Value, start: i64) -> Value {
    Value::object(Numbered { of: tuple(Value::tuple(vec![sequence.clone()])), start: Cell::new(start) })
}

/// An iterable, or its elements, and the next number.
struct Numbered {
    of: Rc<Tuple>,
    start: Cell<i64>,
}

impl Numbered {
    fn of(&self) -> Option<&dyn Object> {
        match &self.of.items()[0] {
            Value::Object(handle) => Some(handle.get()),
            _ => None,
        }
    }
}

impl Object for Numbered {
    fn type_name(&self) -> &'static str {
        "iterable"
    }

    fn text(&self) -> String {
        "<iterable>".into()
    }

    fn iterate(&self, vm: &mut Vm) -> Result<Option<Value>> {
        let Some(of) = self.of() else { return Ok(None) };
        match of.iterate(vm)? {
            Some(elements) => Ok(Some(numbered(&elements, self.start.get()))),
            None => Err(error::not_iterable(of.type_name())),
        }
    }

    fn next(&self, vm: &mut Vm) -> Result<Option<Value>> {
        let Some(of) = self.of() else { return Ok(None) };
        let Some(value) = of.next(vm)? else { return Ok(None) };
        let number = self.start.get();
        self.start.set(number.wrapping_add(1));
        Ok(Some(Value::tuple(vec![Value::Int(number), value])))
    }

    fn length(&self, vm: &mut Vm) -> Result<Option<usize>> {
        self.of().map_or(Ok(None), |of| of.length(vm))
    }

    fn holds(&self) -> Option<&Rc<Tuple>> {
        Some(&self.of)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn tuple(value: Value) -> Rc<Tuple> {
    match value {
        Value::Tuple(tuple) => tuple,
        other => Rc::new(Tuple::new(vec![other])),
    }
}

impl Object for Iterable {
    fn type_name(&self) -> &'static str {
        "iterable"
    }

    fn text(&self) -> String {
        "<iterable>".into()
    }

    fn iterate(&self, vm: &mut Vm) -> Result<Option<Value>> {
        let next = vm.callback(&self.0.items()[0], &[])?;
        match next {
            Value::Fn(_) | Value::Native(_) | Value::Bound(_) => {
                Ok(Some(Value::object(Elements(tuple(Value::tuple(vec![next]))))))
            }
            other => Err(error::not_callable(other.type_name()).help(
                "the function given to `iterable` returns the function that is called for each element",
            )),
        }
    }

    fn length(&self, vm: &mut Vm) -> Result<Option<usize>> {
        let length = match &self.0.items()[1] {
            Value::None => return Ok(None),
            Value::Int(n) => Value::Int(*n),
            function => vm.callback(function, &[])?,
        };
        let count = length.as_int().and_then(|n| usize::try_from(n).ok());
        count
            .map(Some)
            .ok_or_else(|| error::bad_value(0, "the length function did not return an int of 0 or more"))
    }

    fn holds(&self) -> Option<&Rc<Tuple>> {
        Some(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for Elements {
    fn type_name(&self) -> &'static str {
        "elements"
    }

    fn text(&self) -> String {
        "<elements>".into()
    }

    fn next(&self, vm: &mut Vm) -> Result<Option<Value>> {
        let value = vm.callback(&self.0.items()[0], &[])?;
        Ok(Some(value).filter(|v| !v.is_none()))
    }

    fn holds(&self) -> Option<&Rc<Tuple>> {
        Some(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
