//! Finds the argument that a race report points at.
//!
//! The planner labels the memory of the race ([`Place::Memory`]); this file finds it among the arguments.

use super::value::Value;
use crate::base::{Error, ErrorKind, Piece, Place};
use crate::ops::Arg;
use crate::tensor::Tensor;

/// A race error with its label on the argument of the operation.
#[cold]
pub(super) fn label_args(error: Error, args: &[Arg]) -> Error {
    label(error, args.iter().enumerate().flat_map(|(i, arg)| tensors_of(i, arg)))
}

/// The tensors of an argument, with their places.
fn tensors_of(i: usize, arg: &Arg) -> Vec<(Place, &Tensor)> {
    match arg {
        Arg::Tensor(tensor) => vec![(Place::Operand(i), tensor)],
        Arg::Tensors(list) => {
            list.iter().enumerate().map(|(at, tensor)| (Place::Element(i, at), tensor)).collect()
        }
        _ => Vec::new(),
    }
}

/// [`label_args`] for the arguments of a native function.
#[cold]
pub(super) fn label_values(error: Error, args: &[Value]) -> Error {
    if error.kind() != ErrorKind::Race {
        return error;
    }
    let mut tensors: Vec<(Place, Tensor)> = Vec::new();
    for (i, value) in args.iter().enumerate() {
        let elements = match value {
            Value::Tensor(tensor) => {
                tensors.push((Place::Operand(i), tensor.clone()));
                continue;
            }
            Value::List(list) => list.borrow().to_vec(),
            Value::Tuple(tuple) => tuple.items().to_vec(),
            _ => continue,
        };
        for (at, value) in elements.into_iter().enumerate() {
            let inner = match value {
                Value::List(list) => list.borrow().to_vec(),
                Value::Tuple(tuple) => tuple.items().to_vec(),
                value => vec![value],
            };
            tensors.extend(inner.into_iter().filter_map(|value| match value {
                Value::Tensor(tensor) => Some((Place::Element(i, at), tensor)),
                _ => None,
            }));
        }
    }
    label(error, tensors.iter().map(|(place, tensor)| (*place, tensor)))
}

/// A race error with its label on the tensor, if the call has several.
#[cold]
pub(super) fn label<'t>(error: Error, tensors: impl Iterator<Item = (Place, &'t Tensor)>) -> Error {
    let tensors: Vec<(Place, Piece)> = tensors.map(|(place, tensor)| (place, tensor.piece())).collect();
    if tensors.len() < 2 {
        return error;
    }
    error.of_memory(|piece| {
        let find = |is_it: &dyn Fn(&Piece) -> bool| tensors.iter().find(|(_, own)| is_it(own));
        let found = find(&|own| *own == piece)
            .or_else(|| find(&|own| own.meets(&piece)))
            .or_else(|| find(&|own| own.id == piece.id));
        found.map(|(place, _)| *place)
    })
}
