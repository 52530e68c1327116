//! Indexing tensors: plain indices are views, made here; tensors as indices go to an operation.

use super::Vm;
use super::error;
use super::heap::Range;
use super::object::Handle;
use super::value::Value;
use crate::array::{Dtype, Layout, Strides};
use crate::base::Result;
use crate::tensor::Tensor;

/// A view being made: what is left of the shape, and the tensors that index the result's dimensions.
struct View {
    layout: Layout,
    /// The next dimension that an index applies to.
    at: usize,
    by: Vec<Option<Tensor>>,
}

impl Vm {
    /// `tensor[index]`.
    pub(super) fn tensor_index(&mut self, container: &Value, index: &Value) -> Result<Value> {
        let Value::Tensor(tensor) = container else { return Ok(Value::None) };
        let (view, by) = self.view(tensor, index)?;
        if by.iter().all(Option::is_none) {
            return Ok(Value::Tensor(view));
        }
        match self.natives().operators.index {
            Some(pick) => pick(&mut self.rt, &view, &by).map(Value::Tensor),
            None => Err(error::index_type("tensor", "tensor")),
        }
    }

    /// `tensor[index] = value`.
    pub(super) fn tensor_set_index(&mut self, container: &Value, index: &Value, value: Value) -> Result<()> {
        let Value::Tensor(tensor) = container else { return Ok(()) };
        let (view, by) = self.view(tensor, index)?;
        if by.iter().all(Option::is_none) {
            return self.store(&view, &value);
        }
        let source = match self.as_tensor(&value, Some(view.device()))? {
            Some(source) => source,
            None => {
                return Err(error::argument_type(
                    "[]",
                    2,
                    "value",
                    "a tensor or a number",
                    value.type_name(),
                ));
            }
        };
        match self.natives().operators.assign {
            Some(put) => put(&mut self.rt, &view, &by, &source),
            None => Err(error::index_type("tensor", "tensor")),
        }
    }

    /// The view that the plain indices give, and the tensors among the indices by dimension.
    fn view(&mut self, tensor: &Tensor, index: &Value) -> Result<(Tensor, Vec<Option<Tensor>>)> {
        let single = [index.clone()];
        let indices: &[Value] = match index {
            Value::Tuple(tuple) => tuple.items(),
            _ => &single,
        };
        let mut resolved = Vec::with_capacity(indices.len());
        for value in indices {
            // A list of numbers picks as a tensor does.
            resolved.push(match value {
                Value::List(_) => match self.as_tensor(value, Some(tensor.device()))? {
                    Some(tensor) => Value::Tensor(tensor),
                    None => return Err(error::index_type("tensor", "list")),
                },
                other => other.clone(),
            });
        }
        let taken: usize = resolved.iter().map(consumed).sum();
        let rank = tensor.rank();
        if taken > rank {
            let plural = if rank == 1 { "" } else { "s" };
            let message = format!("{taken} indices for {} with {rank} dimension{plural}", tensor.describe());
            return Err(crate::base::Error::new(&error::INDEX_RANGE, message)
                .operand(0, format!("this is {}", tensor.describe())));
        }
        let mut view = View { layout: tensor.layout().clone(), at: 0, by: Vec::new() };
        for value in &resolved {
            match value {
                Value::None => view.new_axis(),
                Value::Ellipsis => view.skip(rank - taken),
                Value::Int(i) => view.select(*i)?,
                Value::Range(range) => view.slice(range)?,
                Value::Bool(_) => return Err(error::index_type("tensor", "bool")),
                Value::Tensor(by) if by.rank() == 0 && by.dtype() != Dtype::Bool => {
                    let at = self.rt.item(by)?.as_i64();
                    view.select(at)?;
                }
                Value::Tensor(by) => view.pick(by),
                other => return Err(error::index_type("tensor", other.type_name())),
            }
        }
        let by = view.by;
        Ok((tensor.with_layout(view.layout), by))
    }

    /// `object[index]` for values of the rooms below.
    pub(super) fn object_index(&mut self, container: &Value, index: &Value) -> Result<Value> {
        let Value::Object(handle) = container else { return Ok(Value::None) };
        let handle: std::rc::Rc<Handle> = std::rc::Rc::clone(handle);
        match handle.get().index(self, index)? {
            Some(value) => Ok(value),
            None => Err(error::not_indexable(container.type_name())),
        }
    }
}

/// How many dimensions an index takes up.
fn consumed(index: &Value) -> usize {
    match index {
        Value::None | Value::Ellipsis => 0,
        Value::Tensor(by) if by.dtype() == Dtype::Bool => by.rank(),
        _ => 1,
    }
}

impl View {
    fn new_axis(&mut self) {
        self.layout.shape.insert(self.at, 1);
        let mut strides: Strides = self.layout.strides.clone();
        strides.insert(self.at, 0);
        self.layout.strides = strides;
        self.skip(1);
    }

    fn skip(&mut self, count: usize) {
        self.at += count;
        self.by.resize(self.at, None);
    }

    fn select(&mut self, index: i64) -> Result<()> {
        let extent = self.layout.shape[self.at];
        let at = if index < 0 { index.checked_add(extent as i64) } else { Some(index) };
        let Some(at) = at.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < extent) else {
            let message = format!("index {index} is out of range for dimension {} of {extent}", self.at);
            return Err(crate::base::Error::new(&error::INDEX_RANGE, message)
                .operand(0, format!("this dimension has {extent} elements"))
                .operand(1, format!("this is {index}")));
        };
        let stride = self.layout.strides.remove(self.at);
        self.layout.shape.remove(self.at);
        self.layout.offset += at * stride.unsigned_abs();
        Ok(())
    }

    fn slice(&mut self, range: &Range) -> Result<()> {
        if range.step < 0 {
            return Err(error::bad_value(1, "a tensor is not sliced backwards")
                .help("`.flip(dim)` turns a dimension round"));
        }
        let (start, step, count) = range.slice(self.layout.shape[self.at]);
        let stride = self.layout.strides[self.at];
        if count > 0 {
            self.layout.offset += start * stride.unsigned_abs();
        }
        self.layout.shape[self.at] = count;
        self.layout.strides[self.at] = stride * step as isize;
        self.skip(1);
        Ok(())
    }

    /// A tensor index keeps its dimensions for the operation that gathers.
    fn pick(&mut self, by: &Tensor) {
        let taken = if by.dtype() == Dtype::Bool { by.rank() } else { 1 };
        let at = self.at;
        self.skip(taken.max(1));
        self.by[at] = Some(by.clone());
    }
}
