//! Dicts.

use std::rc::Rc;

use super::{any, optional, takes};
use crate::base::Result;
use crate::ops::signature::Kind;
use crate::vm::{
    Dict, FieldNames, Held, Key, NativeDef, Quick, Record, Table, Value, Values, Vm, charge_values, error,
};

/// The fast paths of this file's natives.
pub static QUICK: &[(&str, &str, Quick)] = &[("dict", "get", |dict, args, out| match (dict, args) {
    (Value::Dict(dict), [key @ (Value::Int(_) | Value::Str(_)), default @ ..]) if default.len() < 2 => {
        match (dict.borrow().get(key), default) {
            (Some(value), _) => *out = value.clone(),
            (None, [default]) => *out = (*default).clone(),
            (None, _) => {}
        }
        true
    }
    _ => false,
})];

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "dict",
        receiver: "",
        signature: takes(&[optional("items", Kind::Any)]),
        doc: "A dict: empty, or of a record's fields, another dict's entries, or (key, value) pairs. Keeps the order of insertion.",
        example: "let d = dict((a = 1))\nd[\"b\"] = 2\nassert(d.keys() == [\"a\", \"b\"])",
        run: |vm, args| {
            let dict = Dict::empty();
            update(vm, &dict, &args[0])?;
            Ok(Value::dict(dict))
        },
    },
    NativeDef {
        name: "record",
        receiver: "",
        signature: takes(&[any("items")]),
        doc: "A record of a dict's entries, or of (name, value) pairs; a record is returned unchanged.",
        example: "assert(record([(\"a\", 1), (\"b\", 2)]) == (a = 1, b = 2))\nassert(record(dict((a = 1))).a == 1)",
        run: |vm, args| {
            if let Value::Record(_) = args[0] {
                return Ok(args[0].clone());
            }
            let dict = Dict::empty();
            update(vm, &dict, &args[0])?;
            let table = dict.borrow();
            charge_values(2 * table.len())?;
            let (mut names, mut values) = (Vec::new(), Vec::new());
            for (key, value) in table.iter() {
                vm.charge(1)?;
                let name = key.value().as_str().map(std::rc::Rc::from);
                let name =
                    name.ok_or_else(|| error::bad_value(0, "the names of a record's fields are strings"))?;
                names.push(name);
                values.push(value.clone());
            }
            Ok(Value::Record(std::rc::Rc::new(Record::new(FieldNames::shared(names), values))))
        },
    },
    NativeDef {
        name: "keys",
        receiver: "dict",
        signature: takes(&[any("self")]),
        doc: "A list of the keys.",
        example: "assert(dict((a = 1)).keys() == [\"a\"])",
        run: |vm, args| {
            let table = this(&args[0])?.borrow();
            charge_values(table.len())?;
            let mut keys = Values::with_capacity(table.len());
            for key in table.keys() {
                vm.charge(1)?;
                keys.push(key.value().clone());
            }
            Ok(Value::list(keys))
        },
    },
    NativeDef {
        name: "values",
        receiver: "dict",
        signature: takes(&[any("self")]),
        doc: "A list of the values.",
        example: "assert(dict((a = 1)).values() == [1])",
        run: |vm, args| {
            let table = this(&args[0])?.borrow();
            charge_values(table.len())?;
            let mut values = Values::with_capacity(table.len());
            for value in table.values() {
                vm.charge(1)?;
                values.push(value.clone());
            }
            Ok(Value::list(values))
        },
    },
    NativeDef {
        name: "items",
        receiver: "dict",
        signature: takes(&[any("self")]),
        doc: "A list of the (key, value) pairs.",
        example: "for (k, v) in dict((a = 1)).items() { assert(k == \"a\") }",
        run: |vm, args| {
            let table = this(&args[0])?.borrow();
            charge_values(8 * table.len())?;
            let mut pairs = Values::with_capacity(table.len());
            for (key, value) in table.iter() {
                vm.charge(1)?;
                pairs.push(Value::pair(key.value().clone(), value.clone()));
            }
            Ok(Value::list(pairs))
        },
    },
    NativeDef {
        name: "get",
        receiver: "dict",
        signature: takes(&[any("self"), any("key"), optional("default", Kind::Any)]),
        doc: "The value of a key, or the default.",
        example: "assert(dict().get(\"a\", 0) == 0)",
        run: |_, args| {
            let found = this(&args[0])?.get(&args[1])?;
            Ok(found.unwrap_or_else(|| args[2].clone()))
        },
    },
    NativeDef {
        name: "pop",
        receiver: "dict",
        signature: takes(&[any("self"), any("key"), optional("default", Kind::Any)]),
        doc: "Removes a key and returns its value; without the key, the default.",
        example: "let d = dict((a = 1))\nassert(d.pop(\"a\") == 1)\nassert(len(d) == 0)",
        run: |vm, args| {
            Key::new(&args[1])?;
            let dict = this(&args[0])?;
            // Later entries move up.
            let behind = dict.borrow().position(&args[1]).map_or(0, |at| dict.borrow().len() - at);
            vm.charge(behind / 16)?;
            let found = dict.change(|table| table.remove(&args[1]));
            Ok(found.map_or_else(|| args[2].clone(), |(_, value)| value))
        },
    },
    NativeDef {
        name: "setdefault",
        receiver: "dict",
        signature: takes(&[any("self"), any("key"), optional("default", Kind::Any)]),
        doc: "The value of a key. A missing key is first set to the default.",
        example: "let d = dict()\nd.setdefault(\"a\", []).append(1)\nassert(d[\"a\"] == [1])",
        run: |_, args| {
            let dict = this(&args[0])?;
            match dict.get(&args[1])? {
                Some(value) => Ok(value),
                None => {
                    dict.insert(Key::new(&args[1])?, args[2].clone())?;
                    Ok(args[2].clone())
                }
            }
        },
    },
    NativeDef {
        name: "update",
        receiver: "dict",
        signature: takes(&[any("self"), any("items")]),
        doc: "Sets the entries of a record, a dict, or (key, value) pairs.",
        example: "let d = dict((a = 1))\nd.update((a = 2))\nassert(d[\"a\"] == 2)",
        run: |vm, args| {
            update(vm, this(&args[0])?, &args[1])?;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "copy",
        receiver: "dict",
        signature: takes(&[any("self")]),
        doc: "A new dict of the same entries.",
        example: "let d = dict((a = 1))\nlet c = d.copy()\nc.clear()\nassert(len(d) == 1)",
        run: |vm, args| {
            let copy = Dict::empty();
            update(vm, &copy, &args[0])?;
            Ok(Value::dict(copy))
        },
    },
    NativeDef {
        name: "clear",
        receiver: "dict",
        signature: takes(&[any("self")]),
        doc: "Removes all entries.",
        example: "let d = dict((a = 1))\nd.clear()\nassert(len(d) == 0)",
        run: |_, args| {
            let old = this(&args[0])?.change(Table::take);
            drop(old);
            Ok(Value::None)
        },
    },
];

fn this(value: &Value) -> Result<&Rc<Dict>> {
    match value {
        Value::Dict(dict) => Ok(dict),
        other => Err(error::argument_type("method", 0, "self", "a dict", other.type_name())),
    }
}

fn update(vm: &mut Vm, dict: &Rc<Dict>, items: &Value) -> Result<()> {
    match items {
        Value::None => Ok(()),
        Value::Dict(other) => {
            let _entries = Held::new(other.borrow().len().saturating_mul(2 * size_of::<Value>()))?;
            let mut entries = Vec::new();
            for (key, value) in other.borrow().iter() {
                vm.charge(1)?;
                entries.push((key.clone(), value.clone()));
            }
            for (key, value) in entries {
                vm.charge(1)?;
                dict.insert(key, value)?;
            }
            Ok(())
        }
        other => {
            for pair in vm.collect(other)? {
                vm.charge(1)?;
                match &vm.collect(&pair)?[..] {
                    [key, value] => dict.insert(Key::new(key)?, value.clone())?,
                    parts => {
                        let message = format!("a dict is made of pairs, not of {} elements", parts.len());
                        return Err(error::bad_value(0, message));
                    }
                }
            }
            Ok(())
        }
    }
}
