//! Values in values: lists, tuples, records and dicts as trees whose leaves are everything else.

use super::{any, takes};
use crate::base::Result;
use crate::ops::signature::{Kind, Param};
use crate::vm::{Dict, Key, NativeDef, Record, Value, Vm, charge_values, error};
use std::rc::Rc;

/// How deep a tree may be.
const MAX_DEPTH: usize = 200;

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "tree_leaves",
        receiver: "",
        signature: takes(&[any("tree")]),
        doc: "A list of everything inside a value that is no list, tuple, record or dict, in order. A value that is none of these is its own leaf.\n\nSource: `torch.utils._pytree.tree_leaves`.",
        example: "let params = (w = ones(2), layers = [(1, 2), 3])\nassert(len(tree_leaves(params)) == 4)",
        run: |_, args| {
            let mut leaves = Vec::new();
            collect(&args[0], &mut leaves, 0)?;
            Ok(Value::list(leaves))
        },
    },
    NativeDef {
        name: "tree_map",
        receiver: "",
        signature: takes(&[Param::new("f", Kind::Fn), any("tree")]),
        doc: "The same lists, tuples, records and dicts with `f(leaf)` in the place of each leaf: of everything that is none of these.\n\nSource: `torch.utils._pytree.tree_map`.",
        example: "let params = (w = 1, layers = [(2, 3)])\nassert(tree_map(|x| x * 10, params) == (w = 10, layers = [(20, 30)]))",
        run: |vm, args| {
            let (f, tree) = (args[0].clone(), args[1].clone());
            rebuilt(vm, &tree, &mut |vm, leaf| vm.callback(&f, std::slice::from_ref(leaf)), 0)
        },
    },
];

fn collect(tree: &Value, leaves: &mut Vec<Value>, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(error::nesting("a tree"));
    }
    let mut each = |values: &[Value]| {
        charge_values(leaves.len() + values.len())?;
        values.iter().try_for_each(|value| collect(value, leaves, depth + 1))
    };
    match tree {
        Value::List(list) => each(&list.to_vec()),
        Value::Tuple(tuple) => each(tuple.items()),
        Value::Record(record) => each(record.values()),
        Value::Dict(dict) => each(&dict.borrow().values().cloned().collect::<Vec<_>>()),
        leaf => {
            leaves.push(leaf.clone());
            Ok(())
        }
    }
}

/// The tree with other leaves.
pub(super) fn rebuilt(
    vm: &mut Vm,
    tree: &Value,
    leaf: &mut dyn FnMut(&mut Vm, &Value) -> Result<Value>,
    depth: usize,
) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(error::nesting("a tree"));
    }
    let mut each = |values: &[Value]| -> Result<Vec<Value>> {
        charge_values(values.len())?;
        values.iter().map(|value| rebuilt(vm, value, leaf, depth + 1)).collect()
    };
    Ok(match tree {
        Value::List(list) => Value::list(each(&list.to_vec())?),
        Value::Tuple(tuple) => Value::tuple(each(tuple.items())?),
        Value::Record(record) => {
            let values = each(record.values())?;
            Value::Record(Rc::new(Record::new(record.names().clone(), values)))
        }
        Value::Dict(dict) => {
            let entries: Vec<(Key, Value)> =
                dict.borrow().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            let values = each(&entries.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>())?;
            let other = Dict::new();
            for ((key, _), value) in entries.into_iter().zip(values) {
                other.insert(key, value)?;
            }
            Value::dict(other)
        }
        value => leaf(vm, value)?,
    })
}
