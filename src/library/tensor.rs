//! What scripts see of tensors: every operation under its forms, the operators, and attributes.

use crate::base::Result;
use crate::ops::table;
use crate::tensor::Tensor;
use crate::vm::arith::symbol;
use crate::vm::{Natives, Value, Vm};

/// An attribute of tensors: `x.shape`.
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub doc: &'static str,
    read: fn(&mut Vm, &Value) -> Result<Value>,
}

/// The attributes of tensors.
pub static ATTRIBUTES: &[Attribute] = &[
    Attribute {
        name: "shape",
        doc: "The extents of the dimensions, as a tuple.",
        read: |vm, v| with(vm, v, shape),
    },
    Attribute {
        name: "dtype",
        doc: "The element type.",
        read: |vm, v| with(vm, v, |t| Value::Dtype(t.dtype())),
    },
    Attribute {
        name: "device",
        doc: "Where it lives.",
        read: |vm, v| with(vm, v, |t| Value::Device(t.device())),
    },
    Attribute {
        name: "ndim",
        doc: "The number of dimensions.",
        read: |vm, v| with(vm, v, |t| Value::Int(t.rank() as i64)),
    },
    Attribute {
        name: "is_cuda",
        doc: "Whether it lives on a CUDA device.",
        read: |vm, v| with(vm, v, |t| Value::Bool(t.device().cuda_index().is_some())),
    },
    Attribute {
        name: "real",
        doc: "The real part: of a complex tensor a view, of any other the tensor itself.",
        read: |vm, v| with_result(vm, v, crate::ops::complex::real),
    },
    Attribute {
        name: "imag",
        doc: "The imaginary part of a complex tensor; a view.",
        read: |vm, v| with_result(vm, v, crate::ops::complex::imag),
    },
    Attribute {
        name: "itemsize",
        doc: "The bytes of one element.",
        read: |vm, v| with(vm, v, |t| Value::Int(t.dtype().size() as i64)),
    },
    Attribute {
        name: "nbytes",
        doc: "The bytes of all elements.",
        read: |vm, v| with(vm, v, |t| Value::Int((t.count() * t.dtype().size()) as i64)),
    },
    Attribute {
        name: "T",
        doc: "The tensor with its dimensions in reverse order; a view.",
        read: |vm, v| {
            with(vm, v, |t| {
                let order: Vec<usize> = (0..t.rank()).rev().collect();
                Value::Tensor(t.with_layout(t.layout().permute(&order)))
            })
        },
    },
];

/// Adds operations, operators and attributes.
pub(super) fn add(natives: &mut Natives) {
    table::all().for_each(|op| natives.add_op(op));
    for operator in crate::vm::arith::BINARY {
        if let Some(op) = table::binary_operator(symbol(operator)) {
            natives.operators.set(operator, op);
        }
    }
    natives.operators.neg = table::unary_operator("-");
    natives.operators.bit_not = table::unary_operator("~");
    for attribute in ATTRIBUTES {
        natives.attribute_of("tensor", attribute.name, attribute.read);
    }
}

fn with(vm: &mut Vm, value: &Value, read: impl FnOnce(&Tensor) -> Value) -> Result<Value> {
    match value {
        Value::Tensor(tensor) => Ok(read(tensor)),
        list => of(vm, list).map(|tensor| read(&tensor)),
    }
}

fn with_result(vm: &mut Vm, value: &Value, read: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Value> {
    of(vm, value).and_then(|tensor| read(&tensor)).map(Value::Tensor)
}

/// The tensor that a value is; a list of numbers becomes one.
fn of(vm: &mut Vm, value: &Value) -> Result<Tensor> {
    match value {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        list => match vm.as_tensor(list, None)? {
            Some(tensor) => Ok(tensor),
            None => Err(crate::ops::error::wrong_argument(0, "a tensor")),
        },
    }
}

fn shape(tensor: &Tensor) -> Value {
    Value::tuple(tensor.shape().iter().map(|&n| Value::Int(n as i64)).collect())
}
