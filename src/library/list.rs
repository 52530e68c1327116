//! Methods of lists and tuples.

use std::rc::Rc;

use super::{any, optional, takes};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::{Held, List, NativeDef, Quick, Range, Value, Values, Vm, compare, error};

/// The fast paths of this file's natives.
pub static QUICK: &[(&str, &str, Quick)] = &[
    ("list", "append", |list, args, _| match (list, args) {
        (Value::List(list), [value]) => list.push_in_room(value),
        _ => false,
    }),
    ("list", "pop", |list, args, out| match (list, args) {
        (Value::List(list), []) => list.pop().map(|last| *out = last).is_some(),
        _ => false,
    }),
];

const INDEX: Signature = takes(&[
    any("self"),
    any("x"),
    Param::or("start", Kind::Int, Default::Int(0)),
    optional("end", Kind::Int),
]);

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "append",
        receiver: "list",
        signature: takes(&[any("self"), any("x")]),
        doc: "Adds an element at the end.",
        example: "let a = [1]\na.append(2)\nassert(a == [1, 2])",
        run: |_, args| {
            let value = std::mem::take(&mut args[1]);
            this(&args[0])?.push(value)?;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "extend",
        receiver: "list",
        signature: takes(&[any("self"), any("items")]),
        doc: "Adds the elements of a sequence at the end.",
        example: "let a = [1]\na.extend([2, 3])\nassert(a == [1, 2, 3])",
        run: |vm, args| {
            let items = vm.collect(&args[1])?;
            vm.extend(this(&args[0])?, items).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "insert",
        receiver: "list",
        signature: takes(&[any("self"), Param::new("index", Kind::Int), any("x")]),
        doc: "Inserts an element before the element at `index`; an index past the end appends.",
        example: "let a = [1, 3]\na.insert(1, 2)\nassert(a == [1, 2, 3])",
        run: |vm, args| {
            let (list, index) = (this(&args[0])?, args[1].as_int().unwrap_or(0));
            let length = list.len() as i64;
            let at = if index < 0 { index.saturating_add(length).max(0) } else { index.min(length) };
            vm.charge((length - at) as usize / 64)?;
            list.insert(at as usize, args[2].clone()).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "pop",
        receiver: "list",
        signature: takes(&[any("self"), Param::or("index", Kind::Int, Default::Int(-1))]),
        doc: "Removes the element at `index`, by default the last one, and returns it.",
        example: "let a = [1, 2]\nassert(a.pop() == 2)\nassert(a == [1])",
        run: |vm, args| {
            let (list, index) = (this(&args[0])?, args[1].as_int().unwrap_or(-1));
            let length = list.len();
            let at = if index < 0 { index.checked_add(length as i64) } else { Some(index) };
            match at.and_then(|i| usize::try_from(i).ok()) {
                Some(at) if at < length => {
                    vm.charge((length - at) / 64)?;
                    Ok(list.change(|all| all.remove(at)))
                }
                _ => Err(error::index_range("list", index, length)),
            }
        },
    },
    NativeDef {
        name: "remove",
        receiver: "list",
        signature: takes(&[any("self"), any("x")]),
        doc: "Removes the first element that is equal to `x`.",
        example: "let a = [1, 2, 1]\na.remove(1)\nassert(a == [2, 1])",
        run: |vm, args| {
            let at = position(vm, &args[0], &args[1], 0..usize::MAX)?;
            let list = this(&args[0])?;
            vm.charge((list.len() - at) / 64)?;
            let old = list.change(|all| all.remove(at));
            drop(old);
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "index",
        receiver: "list",
        signature: INDEX,
        doc: "The index of the first element between two positions that is equal to `x`.",
        example: "assert([5, 7, 5].index(5, 1) == 2)",
        run: index,
    },
    NativeDef {
        name: "count",
        receiver: "list",
        signature: takes(&[any("self"), any("x")]),
        doc: "The number of elements equal to `x`.",
        example: "assert([1, 2, 1].count(1) == 2)",
        run: |vm, args| count(vm, &args[0], &args[1]),
    },
    NativeDef {
        name: "sort",
        receiver: "list",
        signature: takes(&[
            any("self"),
            Param::or("key", Kind::Fn, Default::None),
            Param::or("reverse", Kind::Bool, Default::Bool(false)),
        ]),
        doc: "Sorts the elements, in place; equal ones keep their order. `key` computes the value to compare; it must not change the list.",
        example: "let a = [3, 1]\na.sort()\nassert(a == [1, 3])",
        run: |vm, args| {
            let list = this(&args[0])?;
            let reverse = matches!(args[2], Value::Bool(true));
            let items = vm.copies(&list.borrow())?;
            let before = match args[1] {
                Value::None => Values::new(),
                _ => vm.copies(&items)?,
            };
            let _before = Held::new(before.len().saturating_mul(size_of::<Value>()))?;
            let items = super::sequence::sort(vm, items, &args[1].clone(), reverse)?;
            if !args[1].is_none() {
                vm.charge(before.len() / 8)?;
                let now = list.borrow();
                if now.len() != before.len() || !now.iter().zip(&before).all(|(a, b)| a.is(b)) {
                    let help =
                        "compute the keys without changing the list, or sort a copy: `sorted(l, key=f)`";
                    return Err(error::changed(
                        "the list was changed by its `key` while it was sorted",
                        help,
                    ));
                }
            }
            let old = list.change(|all| std::mem::replace(all, items));
            drop(old);
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "reverse",
        receiver: "list",
        signature: takes(&[any("self")]),
        doc: "Reverses the list, in place.",
        example: "let a = [1, 2]\na.reverse()\nassert(a == [2, 1])",
        run: |vm, args| {
            let list = this(&args[0])?;
            vm.charge(list.len() / 8)?;
            list.change(|all| all.reverse());
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "copy",
        receiver: "list",
        signature: takes(&[any("self")]),
        doc: "A new list of the same elements.",
        example: "let a = [1]\nlet b = a.copy()\nb.append(2)\nassert(a == [1])",
        run: |vm, args| vm.copies(&this(&args[0])?.borrow()).map(Value::list),
    },
    NativeDef {
        name: "clear",
        receiver: "list",
        signature: takes(&[any("self")]),
        doc: "Removes all elements.",
        example: "let a = [1]\na.clear()\nassert(a == [])",
        run: |_, args| {
            let old = this(&args[0])?.change(std::mem::take);
            drop(old);
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "index",
        receiver: "tuple",
        signature: INDEX,
        doc: "The index of the first element between two positions that is equal to `x`.",
        example: "assert((5, 7).index(7) == 1)",
        run: index,
    },
    NativeDef {
        name: "count",
        receiver: "tuple",
        signature: takes(&[any("self"), any("x")]),
        doc: "The number of elements equal to `x`.",
        example: "assert((1, 1).count(1) == 2)",
        run: |vm, args| count(vm, &args[0], &args[1]),
    },
    NativeDef {
        name: "keys",
        receiver: "record",
        signature: takes(&[any("self")]),
        doc: "The names of the fields.",
        example: "assert((a = 1, b = 2).keys() == [\"a\", \"b\"])",
        run: |vm, args| match &args[0] {
            Value::Record(record) => {
                let mut names = Values::with_capacity(record.names().len());
                for name in record.names().iter() {
                    vm.charge(1)?;
                    names.push(Value::str(&**name));
                }
                Ok(Value::list(names))
            }
            _ => Ok(Value::None),
        },
    },
    NativeDef {
        name: "values",
        receiver: "record",
        signature: takes(&[any("self")]),
        doc: "The values of the fields.",
        example: "assert((a = 1, b = 2).values() == [1, 2])",
        run: |vm, args| match &args[0] {
            Value::Record(record) => vm.copies(record.values()).map(Value::list),
            _ => Ok(Value::None),
        },
    },
    NativeDef {
        name: "items",
        receiver: "record",
        signature: takes(&[any("self")]),
        doc: "The (name, value) pairs of the fields.",
        example: "assert((a = 1).items() == [(\"a\", 1)])",
        run: |vm, args| vm.collect(&args[0]).map(Value::list),
    },
    NativeDef {
        name: "get",
        receiver: "record",
        signature: takes(&[any("self"), super::text_param("name"), optional("default", Kind::Any)]),
        doc: "The value of a field by its name, or the default.",
        example: "assert((a = 1).get(\"b\", 2) == 2)",
        run: |_, args| match &args[0] {
            Value::Record(record) => {
                let found = record.get(args[1].as_str().unwrap_or("")).cloned();
                Ok(found.unwrap_or_else(|| args[2].clone()))
            }
            _ => Ok(Value::None),
        },
    },
];

fn this(value: &Value) -> Result<&Rc<List>> {
    match value {
        Value::List(list) => Ok(list),
        other => Err(error::argument_type("method", 0, "self", "a list", other.type_name())),
    }
}

fn elements(vm: &mut Vm, value: &Value) -> Result<Values> {
    match value {
        Value::List(list) => vm.copies(&list.borrow()),
        Value::Tuple(tuple) => vm.copies(tuple.items()),
        _ => Ok(Values::new()),
    }
}

/// `index(x, start, end)`
fn index(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let count = vm.length(&args[0])?;
    let (start, _, length) = Range { start: args[2].as_int(), end: args[3].as_int(), step: 1 }.slice(count);
    position(vm, &args[0], &args[1], start..start + length).map(|i| Value::Int(i as i64))
}

fn position(vm: &mut Vm, sequence: &Value, wanted: &Value, within: std::ops::Range<usize>) -> Result<usize> {
    for (i, item) in elements(vm, sequence)?.iter().enumerate().take(within.end).skip(within.start) {
        vm.charge(1)?;
        if compare::equal(vm, item, wanted)? {
            return Ok(i);
        }
    }
    Err(error::bad_value(1, format!("the {} has no such element", sequence.type_name())))
}

fn count(vm: &mut Vm, sequence: &Value, wanted: &Value) -> Result<Value> {
    let mut count = 0;
    for item in elements(vm, sequence)? {
        vm.charge(1)?;
        count += i64::from(compare::equal(vm, &item, wanted)?);
    }
    Ok(Value::Int(count))
}
