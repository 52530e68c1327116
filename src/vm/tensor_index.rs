//! Indexing tensors from scripts: script values become [`Index`]es; `ops::subscript` does the rest.

use super::Vm;
use super::error;
use super::object::Handle;
use super::tensors::{from_out, scalar_arg};
use super::value::Value;
use crate::base::{Error, ErrorKind, Place, Result};
use crate::ops::subscript::{self, Index};
use crate::ops::{Arg, Args, Call, apply};
use crate::tensor::Tensor;

impl Vm {
    /// `tensor[index]`.
    pub(super) fn tensor_index(&mut self, container: &Value, index: &Value) -> Result<Value> {
        let Value::Tensor(tensor) = container else { return Ok(Value::None) };
        let args = [Arg::Tensor(tensor.clone()), Arg::Indices(self.tensor_indices(tensor, index)?)];
        let out = apply(&mut self.rt, &subscript::INDEX, Call::Plain(Args(&args)));
        out.and_then(from_out).map_err(|e| of_index(raced(e, &args), tensor))
    }

    /// `tensor[index] = value`.
    pub(super) fn tensor_set_index(&mut self, container: &Value, index: &Value, value: Value) -> Result<()> {
        let Value::Tensor(tensor) = container else { return Ok(()) };
        let indices = self.tensor_indices(tensor, index)?;
        let source = match value.as_scalar() {
            Some(number) => scalar_arg(number),
            None => match self.stored(&value, tensor, 1 + indices.len())? {
                Some(source) => Arg::Tensor(source),
                None => {
                    let (at, found) = (1 + indices.len(), value.type_name());
                    return Err(error::argument_type("[]", at, "value", "a tensor or a number", found));
                }
            },
        };
        let args = [Arg::Tensor(tensor.clone()), Arg::Indices(indices), source];
        let set = apply(&mut self.rt, &subscript::SET_INDEX, Call::Plain(Args(&args)));
        set.map(drop).map_err(|e| of_index(raced(e, &args), tensor))
    }

    /// The indices between the brackets. A tuple is several indices; a list of numbers selects like a tensor;
    /// a tensor without dimensions is read.
    fn tensor_indices(&mut self, tensor: &Tensor, index: &Value) -> Result<Vec<Index>> {
        let single = [index.clone()];
        let values: &[Value] = match index {
            Value::Tuple(tuple) => tuple.items(),
            _ => &single,
        };
        let mut indices = Vec::with_capacity(values.len());
        for value in values {
            indices.push(match value {
                Value::None => Index::NewAxis,
                Value::Ellipsis => Index::Ellipsis,
                Value::Int(position) => Index::Int(*position),
                Value::Range(range) => Index::Slice { start: range.start, end: range.end, step: range.step },
                Value::Tensor(ids) if ids.rank() == 0 && ids.dtype().is_int() => {
                    Index::Int(self.rt.item(ids)?.as_i64())
                }
                Value::Tensor(ids) => Index::of(ids.clone()),
                Value::List(_) | Value::Bool(_) => match self.as_tensor(value, Some(tensor.device()))? {
                    Some(ids) => Index::of(ids),
                    None => return Err(error::index_type("tensor", "list")),
                },
                other => return Err(error::index_type("tensor", other.type_name())),
            });
        }
        Ok(indices)
    }

    /// `object[index]` for values of types defined outside of the VM.
    pub(super) fn object_index(&mut self, container: &Value, index: &Value) -> Result<Value> {
        let Value::Object(handle) = container else { return Ok(Value::None) };
        let handle: std::rc::Rc<Handle> = std::rc::Rc::clone(handle);
        match handle.get().index(self, index)? {
            Some(value) => Ok(value),
            None => Err(error::not_indexable(container.type_name())),
        }
    }
}

/// A race error with its label on the racing operand: the tensor, an index, or the written value.
#[cold]
fn raced(error: Error, args: &[Arg]) -> Error {
    if error.kind() != ErrorKind::Race {
        return error;
    }
    let mut all = Vec::new();
    for arg in args {
        match arg {
            Arg::Tensor(tensor) => all.push(Some(tensor)),
            Arg::Indices(indices) => all.extend(indices.iter().map(Index::tensor)),
            _ => all.push(None),
        }
    }
    let places = all.into_iter().enumerate();
    super::raced::label(error, places.filter_map(|(i, tensor)| Some((Place::Operand(i), tensor?))))
}

/// An index error with a label on the tensor.
#[cold]
fn of_index(error: Error, tensor: &Tensor) -> Error {
    match error.kind() {
        ErrorKind::Index | ErrorKind::Type | ErrorKind::Shape | ErrorKind::Value if !error.is_located() => {
            error.described(0, &tensor.describe())
        }
        _ => error,
    }
}
