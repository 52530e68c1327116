//! Layers whose `forward` reads their own tensors as variables. A functional form differentiates aliases of its
//! argument's tensors, so their gradients would silently be zeros.

use std::rc::Rc;

use foldhash::HashSet;

use super::forms::is_continuous;
use crate::base::Result;
use crate::library::tree;
use crate::ops::gradient;
use crate::vm::{Closure, Record, Value, Values, Vm, error};

/// The field that makes a record a layer.
const FORWARD: &str = "forward";

/// Rejects an argument with a record whose `forward` refers to a tensor of the argument by a variable.
pub(super) fn check(vm: &mut Vm, argument: &Value) -> Result<()> {
    let mut layers = Vec::new();
    layers_of(vm, argument, &mut layers, 0)?;
    if layers.is_empty() {
        return Ok(());
    }
    let own = storages(vm, argument)?;
    let mut known = HashSet::default();
    for (record, forward) in layers {
        let mut found = None;
        let mut functions = vec![forward];
        while let (Some(function), None) = (functions.pop(), &found) {
            if !known.insert(Rc::as_ptr(&function) as usize) {
                continue;
            }
            for value in vm.variables_of(&function) {
                match value {
                    Value::Fn(other) => functions.push(other),
                    Value::Tensor(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Record(_)
                    | Value::Dict(_) => {
                        found = found.or(storages(vm, &value)?.intersection(&own).next().copied());
                    }
                    _ => {}
                }
            }
        }
        if let Some(storage) = found {
            let is_it = |value: &Value| matches!(value, Value::Tensor(t) if address(t) == storage);
            let at = record.values().iter().position(is_it);
            let field = at.and_then(|at| record.names().get(at).map(|name| name.to_string()));
            return Err(gradient::error::captured_parameter(field.as_deref()));
        }
    }
    Ok(())
}

/// The records with a `forward` of the script, at any depth.
fn layers_of(
    vm: &mut Vm,
    value: &Value,
    found: &mut Vec<(Rc<Record>, Rc<Closure>)>,
    depth: usize,
) -> Result<()> {
    if depth > tree::MAX_DEPTH {
        return Err(error::nesting("a tree"));
    }
    vm.charge(1)?;
    let mut each = |value: &Value| layers_of(vm, value, found, depth + 1);
    match value {
        Value::List(list) => list.borrow().iter().try_for_each(&mut each),
        Value::Tuple(tuple) => tuple.items().iter().try_for_each(&mut each),
        Value::Dict(dict) => dict.borrow().values().try_for_each(&mut each),
        Value::Record(record) => {
            record.values().iter().try_for_each(&mut each)?;
            if let Some(Value::Fn(forward)) = record.get(FORWARD) {
                found.push((record.clone(), forward.clone()));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The storages of the floating-point tensors of a value.
fn storages(vm: &mut Vm, value: &Value) -> Result<HashSet<usize>> {
    let mut leaves = Values::new();
    tree::leaves(vm, value, &mut leaves, 0)?;
    let address = |leaf: &Value| match leaf {
        Value::Tensor(tensor) if is_continuous(leaf) => Some(address(tensor)),
        _ => None,
    };
    Ok(leaves.iter().filter_map(address).collect())
}

fn address(tensor: &crate::tensor::Tensor) -> usize {
    std::ptr::from_ref(tensor.storage()) as usize
}
