//! Nested values: lists, tuples, records and dicts as trees whose leaves are all other values.

use super::sequence::function_first;
use super::{any, optional, takes};
use crate::base::Result;
use crate::ops::signature::{Kind, Param};
use crate::vm::{Dict, Key, NativeDef, Record, Value, Values, Vm, charge_values, error};
use smallvec::SmallVec;
use std::rc::Rc;

/// Maximum depth of a tree.
pub(super) const MAX_DEPTH: usize = 200;

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "tree_leaves",
        receiver: "",
        signature: takes(&[any("tree"), optional("like", Kind::Any)]),
        doc: "A list of everything inside a value that is not a list, tuple, record or dict, in order. A value that is none of these is its own leaf. With `like`, another tree: the values of `tree` at the positions of its leaves.\n\nSource: `torch.utils._pytree.tree_leaves`, and `optree.PyTreeSpec.flatten_up_to`.",
        example: "let params = (w = ones(2), layers = [(1, 2), 3])\nassert(len(tree_leaves(params)) == 4)\nassert(tree_leaves([(1, 2), 3], [0, 0]) == [(1, 2), 3])",
        run: |vm, args| {
            let mut found = Values::new();
            match &args[1] {
                Value::None => leaves(vm, &args[0], &mut found, 0)?,
                like => beside(vm, like, &args[0], 0, &mut found, 0)?,
            }
            Ok(Value::list(found))
        },
    },
    NativeDef {
        name: "tree_map",
        receiver: "",
        signature: takes(&[any("f"), any("tree"), Param::rest("more", Kind::Any)]),
        doc: "The same lists, tuples, records and dicts with each leaf replaced by `f(leaf)`. Leaves are all other \
              values. With several trees of the same structure, `f` receives the leaves at the same position.\n\nThe \
              tree may come first, for pipelines: `params |> tree_map(f)`. Source: `torch.utils._pytree.tree_map`.",
        example: "let params = (w = 1, layers = [(2, 3)])\nassert(tree_map(|x| x * 10, params) == (w = 10, layers = [(20, 30)]))\nlet gradients = (w = 0.5, layers = [(1, 2)])\nassert(tree_map(|p, g| p - g, params, gradients) == (w = 0.5, layers = [(1, 1)]))",
        run: |vm, args| {
            function_first("tree_map", args)?;
            let (f, tree) = (args[0].clone(), args[1].clone());
            let more = vm.collect(&args[2])?;
            if more.is_empty() {
                return rebuilt(vm, &tree, &mut |vm, leaf| vm.callback(&f, std::slice::from_ref(leaf)), 0);
            }
            let mut columns = Vec::new();
            for other in &more {
                let mut leaves = Values::new();
                beside(vm, &tree, other, 2, &mut leaves, 0)?;
                columns.push(leaves.into_iter());
            }
            rebuilt(
                vm,
                &tree,
                &mut |vm, leaf| {
                    let others = columns.iter_mut().map(|column| column.next().unwrap_or_default());
                    let row: SmallVec<[Value; 4]> = std::iter::once(leaf.clone()).chain(others).collect();
                    vm.callback(&f, &row)
                },
                0,
            )
        },
    },
];

/// The leaves of a tree, in order.
pub(super) fn leaves(vm: &mut Vm, tree: &Value, found: &mut Values, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(error::nesting("a tree"));
    }
    vm.charge(1)?;
    let mut each = |vm: &mut Vm, values: &[Value]| {
        charge_values(found.len() + values.len())?;
        values.iter().try_for_each(|value| leaves(vm, value, found, depth + 1))
    };
    match tree {
        // Lists and dicts do not change here.
        Value::List(list) => each(vm, &list.borrow()),
        Value::Tuple(tuple) => each(vm, tuple.items()),
        Value::Record(record) => each(vm, record.values()),
        Value::Dict(dict) => {
            let table = dict.borrow();
            charge_values(found.len() + table.len())?;
            table.values().try_for_each(|value| leaves(vm, value, found, depth + 1))
        }
        leaf => push(found, leaf),
    }
}

/// Appends a leaf. While the leaves move, the old and the new buffer both exist.
fn push(found: &mut Values, leaf: &Value) -> Result<()> {
    if found.len() == found.capacity() {
        charge_values(found.len().max(4) * 3)?;
    }
    found.push(leaf.clone());
    Ok(())
}

/// The values of another tree, the argument `at`, at the leaf positions of a tree, in order.
pub(super) fn beside(
    vm: &mut Vm,
    tree: &Value,
    other: &Value,
    at: usize,
    found: &mut Values,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(error::nesting("a tree"));
    }
    vm.charge(1)?;
    let differ = || {
        let first = if at == 0 { "the other tree" } else { "the first tree" };
        let message = format!("{} is where {first} has {}", form(other), form(tree));
        error::bad_value(at, message)
    };
    let mut each = |ours: &[Value], theirs: &[Value]| {
        if ours.len() != theirs.len() {
            return Err(differ());
        }
        charge_values(found.len() + ours.len())?;
        ours.iter().zip(theirs).try_for_each(|(a, b)| beside(vm, a, b, at, found, depth + 1))
    };
    match (tree, other) {
        (Value::List(a), Value::List(b)) => each(&a.borrow(), &b.borrow()),
        (Value::Tuple(a), Value::Tuple(b)) => each(a.items(), b.items()),
        (Value::Record(a), Value::Record(b)) => {
            let theirs: Option<Values> = a.names().iter().map(|name| b.get(name).cloned()).collect();
            match theirs {
                Some(theirs) if b.values().len() == theirs.len() => each(a.values(), &theirs),
                _ => Err(differ()),
            }
        }
        (Value::Dict(a), Value::Dict(b)) => {
            let (a, b) = (a.borrow(), b.borrow());
            let theirs: Option<Values> = a.keys().map(|key| b.get(key.value()).cloned()).collect();
            match theirs {
                Some(theirs) if b.keys().len() == theirs.len() => each(a.all_values(), &theirs),
                _ => Err(differ()),
            }
        }
        (Value::List(_) | Value::Tuple(_) | Value::Record(_) | Value::Dict(_), _) => Err(differ()),
        _ => push(found, other),
    }
}

/// `a list of 2`, `a record of w, b`
fn form(tree: &Value) -> String {
    match tree {
        Value::List(list) => format!("a list of {}", list.len()),
        Value::Tuple(tuple) => format!("a tuple of {}", tuple.items().len()),
        Value::Record(record) => {
            let names: Vec<String> = record.names().iter().take(8).map(|name| format!("`{name}`")).collect();
            format!("a record of {}", names.join(", "))
        }
        Value::Dict(dict) => format!("a dict with {} keys", dict.borrow().keys().len()),
        leaf => crate::vm::error::a(leaf.type_name()),
    }
}

/// The tree with new leaves.
pub(super) fn rebuilt(
    vm: &mut Vm,
    tree: &Value,
    leaf: &mut dyn FnMut(&mut Vm, &Value) -> Result<Value>,
    depth: usize,
) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(error::nesting("a tree"));
    }
    vm.charge(1)?;
    // The call of `leaf` may change lists and dicts.
    let copy = match tree {
        Value::List(list) => vm.copies(&list.borrow())?,
        Value::Dict(dict) => vm.copies(dict.borrow().all_values())?,
        _ => Values::new(),
    };
    let keys: Vec<Key> = match tree {
        Value::Dict(dict) => {
            charge_values(copy.len())?;
            vm.charge(copy.len() / 8)?;
            dict.borrow().keys().cloned().collect()
        }
        _ => Vec::new(),
    };
    let mut each = |values: &[Value]| -> Result<Values> {
        charge_values(values.len())?;
        let mut others = Values::with_capacity(values.len());
        for value in values {
            others.push(rebuilt(vm, value, leaf, depth + 1)?);
        }
        Ok(others)
    };
    Ok(match tree {
        Value::List(_) => Value::list(each(&copy)?),
        Value::Tuple(tuple) => Value::tuple(each(tuple.items())?),
        Value::Record(record) => {
            let values = each(record.values())?;
            Value::Record(Rc::new(Record::new(record.names().clone(), values)))
        }
        Value::Dict(_) => {
            let values = each(&copy)?;
            let other = Dict::empty();
            for (key, value) in keys.into_iter().zip(values) {
                other.insert(key, value)?;
            }
            Value::dict(other)
        }
        value => leaf(vm, value)?,
    })
}
