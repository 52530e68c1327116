//! Registers tensor functions for scripts: every operation in its forms, the operators, and attributes.

use crate::base::Result;
use crate::ops::{Arg, Args, Call, apply, table};
use crate::tensor::Tensor;
use crate::vm::arith::symbol;
use crate::vm::{AttributeDef, Natives, Value, Values, Vm};

/// The attributes of tensors.
pub static ATTRIBUTES: &[AttributeDef] = &[
    AttributeDef {
        name: "shape",
        receiver: "tensor",
        doc: "The extents of the dimensions, as a tuple.",
        example: "assert(zeros(2, 3).shape == (2, 3))",
        read: |vm, v| extents(vm, v, shape),
    },
    AttributeDef {
        name: "dtype",
        receiver: "tensor",
        doc: "The element type.",
        example: "assert(ones(2).dtype == f32)",
        read: |vm, v| with(vm, v, |t| Value::Dtype(t.dtype())),
    },
    AttributeDef {
        name: "device",
        receiver: "tensor",
        doc: "The device that holds it.",
        example: "assert(ones(2, device=cpu).device == cpu)",
        read: |vm, v| with(vm, v, |t| Value::Device(t.device())),
    },
    AttributeDef {
        name: "ndim",
        receiver: "tensor",
        doc: "The number of dimensions.",
        example: "assert(zeros(2, 3).ndim == 2)",
        read: |vm, v| extents(vm, v, |t| Value::Int(t.rank() as i64)),
    },
    AttributeDef {
        name: "is_cuda",
        receiver: "tensor",
        doc: "Whether it is on a CUDA device.",
        example: "assert((ones(2) on cuda).is_cuda and not (ones(2) on cpu).is_cuda)",
        read: |vm, v| with(vm, v, |t| Value::Bool(t.device().cuda_index().is_some())),
    },
    AttributeDef {
        name: "real",
        receiver: "tensor",
        doc: "The real part: a view of a complex tensor; any other tensor is returned itself.",
        example: "assert(equal(complex([1.0], [2.0]).real, [1.0]))",
        read: |vm, v| applied(vm, v, "real", &[]),
    },
    AttributeDef {
        name: "imag",
        receiver: "tensor",
        doc: "The imaginary part of a complex tensor; a view.",
        example: "assert(equal(complex([1.0], [2.0]).imag, [2.0]))",
        read: |vm, v| applied(vm, v, "imag", &[]),
    },
    AttributeDef {
        name: "itemsize",
        receiver: "tensor",
        doc: "The bytes of one element.",
        example: "assert(zeros(2).itemsize == 4)",
        read: |vm, v| with(vm, v, |t| Value::Int(t.dtype().size() as i64)),
    },
    AttributeDef {
        name: "nbytes",
        receiver: "tensor",
        doc: "The bytes of all elements.",
        example: "assert(zeros(2, 3).nbytes == 24)",
        read: |vm, v| extents(vm, v, |t| Value::Int((t.count() * t.dtype().size()) as i64)),
    },
    AttributeDef {
        name: "T",
        receiver: "tensor",
        doc: "The tensor with its dimensions in reverse order; a view.",
        example: "assert(zeros(2, 3).T.shape == (3, 2))",
        read: |vm, v| {
            let tensor = of(vm, v)?;
            let order = (0..tensor.rank() as i64).rev().collect();
            applied(vm, &Value::Tensor(tensor), "permute", &[Arg::Ints(order)])
        },
    },
    AttributeDef {
        name: "mT",
        receiver: "tensor",
        doc: "The tensor with its last two dimensions swapped, each matrix of a batch transposed; a view.",
        example: "assert(zeros(5, 2, 3).mT.shape == (5, 3, 2))",
        read: |vm, v| {
            let tensor = of(vm, v)?;
            if tensor.rank() < 2 {
                let rank = tensor.rank();
                let message = format!("`mT` swaps the last two dimensions, and this tensor has {rank}");
                return Err(crate::ops::error::bad_value(0, message, "`unsqueeze` adds a dimension"));
            }
            applied(vm, &Value::Tensor(tensor), "transpose", &[Arg::Int(-2), Arg::Int(-1)])
        },
    },
    AttributeDef {
        name: "mH",
        receiver: "tensor",
        doc: "The conjugate of `mT`: each matrix of a batch transposed and conjugated.",
        example: "let z = complex([[1.0, 2.0]], [[3.0, 4.0]])\nassert(equal(z.mH.imag, [[-3.0], [-4.0]]))",
        read: |vm, v| conjugated(vm, v, "mH"),
    },
    AttributeDef {
        name: "H",
        receiver: "tensor",
        doc: "A matrix transposed and conjugated.",
        example: "let z = complex([[1.0, 2.0]], [[3.0, 4.0]])\nassert(equal(z.H.imag, [[-3.0], [-4.0]]))",
        read: |vm, v| {
            let rank = of(vm, v)?.rank();
            if rank != 2 {
                let message = format!("`H` takes a matrix, and this tensor has {rank} dimensions");
                return Err(crate::ops::error::bad_value(0, message, "`x.mH` takes batches of matrices"));
            }
            conjugated(vm, v, "H")
        },
    },
];

/// The last two dimensions swapped, and the conjugate of that.
fn conjugated(vm: &mut Vm, value: &Value, name: &str) -> Result<Value> {
    let tensor = of(vm, value)?;
    if tensor.rank() < 2 {
        let message =
            format!("`{name}` swaps the last two dimensions, and this tensor has {}", tensor.rank());
        return Err(crate::ops::error::bad_value(0, message, "`unsqueeze` adds a dimension"));
    }
    let swapped = applied(vm, &Value::Tensor(tensor), "transpose", &[Arg::Int(-2), Arg::Int(-1)])?;
    applied(vm, &swapped, "conj", &[])
}

/// Adds operations, operators and attributes.
pub(super) fn add(natives: &mut Natives) {
    for op in table::all() {
        natives.add_op(op);
        op.aliases.iter().for_each(|alias| natives.add_alias(alias, op));
    }
    for operator in crate::vm::arith::BINARY {
        if let Some(op) = table::binary_operator(symbol(operator)) {
            natives.operators.set(operator, op);
        }
    }
    natives.operators.neg = table::unary_operator("-");
    natives.operators.bit_not = table::unary_operator("~");
    for attribute in ATTRIBUTES {
        natives.add_attribute(attribute);
    }
}

/// As [`with`], where the result depends on the extents.
fn extents(vm: &mut Vm, value: &Value, read: impl FnOnce(&Tensor) -> Value) -> Result<Value> {
    vm.rt.shapes_read += 1;
    with(vm, value, read)
}

fn with(vm: &mut Vm, value: &Value, read: impl FnOnce(&Tensor) -> Value) -> Result<Value> {
    match value {
        Value::Tensor(tensor) => Ok(read(tensor)),
        list => of(vm, list).map(|tensor| read(&tensor)),
    }
}

/// Applies an operation to the tensor of a value, with further arguments.
fn applied(vm: &mut Vm, value: &Value, name: &str, rest: &[Arg]) -> Result<Value> {
    let tensor = of(vm, value)?;
    let op = table::find(name).ok_or_else(|| crate::ops::error::wrong_argument(0, "an operation"))?;
    let args = [&[Arg::Tensor(tensor)], rest].concat();
    let out = apply(&mut vm.rt, op, Call::Plain(Args(&args)));
    out.and_then(crate::vm::from_out)
}

/// The tensor of a value; a list of numbers is converted.
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
    Value::tuple(tensor.shape().iter().map(|&n| Value::Int(n as i64)).collect::<Values>())
}
