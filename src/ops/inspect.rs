//! Properties of a tensor: its extents, strides, address. Nothing is computed.

use super::dims;
use super::map::rank;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Args, Foreign, Form, Gradient, Op, Out, Run};
use crate::array::{Scalar, result_type};
use crate::base::Result;

const OPTIONAL_DIM: &[Param] = &[X, Param::or("dim", Kind::Int, Default::None)];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "size",
        doc: "Returns the shape as a tuple, or the extent of one dimension. Source: `torch.Tensor.size`.",
        search: &["shape", "length", "extent", "dimensions"],
        params: OPTIONAL_DIM,
        form: Form::METHOD,
        example: "assert(zeros(2, 3).size() == (2, 3))\nassert(zeros(2, 3).size(-1) == 3)",
        run: Run::Primitive(|_, args| {
            let x = args.tensor(0)?;
            let extents = x.shape().iter().map(|&n| n as i64);
            one_or_all(args, extents.collect())
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "stride",
        doc: "Returns the strides in elements: of all dimensions, or of one. Source: `torch.Tensor.stride`.",
        search: &["strides", "memory", "layout"],
        params: OPTIONAL_DIM,
        form: Form::METHOD,
        example: "assert(zeros(2, 3).stride() == (3, 1))\nassert(zeros(2, 3).t().stride(0) == 1)",
        run: Run::Primitive(|_, args| {
            let strides = args.tensor(0)?.layout().strides.iter().map(|&s| s as i64);
            one_or_all(args, strides.collect())
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "dim",
        doc: "Returns the number of dimensions. Source: `torch.Tensor.dim`.",
        search: &["ndim", "rank", "dimensions"],
        params: &[X],
        form: Form::METHOD,
        example: "assert(zeros(2, 3).dim() == 2)",
        run: Run::Primitive(|_, args| int(args.tensor(0)?.rank())),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "numel",
        doc: "Returns the number of elements. Source: `torch.numel`.",
        search: &["count", "size", "length", "elements"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(zeros(2, 3).numel() == 6)",
        run: Run::Primitive(|_, args| int(args.tensor(0)?.count())),
        foreign: Foreign { names: &["nelement"], help: "write `x.numel()`" },
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "element_size",
        doc: "Returns the bytes of one element. Source: `torch.Tensor.element_size`.",
        search: &["bytes", "itemsize", "dtype"],
        params: &[X],
        form: Form::METHOD,
        example: "assert(zeros(2, dtype=f16).element_size() == 2)",
        run: Run::Primitive(|_, args| int(args.tensor(0)?.dtype().size())),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "storage_offset",
        doc: "Returns the position of the first element in the storage, in elements. \
              Source: `torch.Tensor.storage_offset`.",
        search: &["view", "memory", "offset"],
        params: &[X],
        form: Form::METHOD,
        example: "assert(zeros(4)[1..].storage_offset() == 1)",
        run: Run::Primitive(|_, args| int(args.tensor(0)?.layout().offset)),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "is_contiguous",
        doc: "Returns whether the elements are row-major without gaps. Source: `torch.Tensor.is_contiguous`.",
        search: &["memory", "layout", "strides"],
        params: &[X],
        form: Form::METHOD,
        example: "assert(zeros(2, 3).is_contiguous())\nassert(not zeros(2, 3).t().is_contiguous())",
        run: Run::Primitive(|_, args| truth(args.tensor(0)?.layout().is_contiguous())),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "data_ptr",
        doc: "Returns the address of the first element on its device; 0 for a tensor without elements. Pending work \
              that computes the tensor is submitted first. Source: `torch.Tensor.data_ptr`.",
        search: &["address", "pointer", "memory"],
        params: &[X],
        form: Form::METHOD,
        example: "let x = zeros(4)\nassert(x.view(2, 2).data_ptr() == x.data_ptr())",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            if x.storage().memory().is_none() || x.storage().pending().is_some() || rt.holds(x.storage()) {
                rt.flush_for(x.storage())?;
            }
            let first = x.storage().memory().map_or(0, |memory| memory.ptr());
            let offset = if first == 0 { 0 } else { (x.layout().offset * x.dtype().size()) as u64 };
            Ok(Out::Number(Scalar::Int(first.wrapping_add(offset) as i64)))
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "is_floating_point",
        doc: "Returns whether the dtype is a float. Source: `torch.is_floating_point`.",
        search: &["dtype", "float", "type"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(zeros(2).is_floating_point())\nassert(not tensor([1]).is_floating_point())",
        run: Run::Primitive(|_, args| truth(args.tensor(0)?.dtype().is_float())),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "is_complex",
        doc: "Returns whether the dtype is complex. Source: `torch.is_complex`.",
        search: &["dtype", "c64", "c128", "type"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(zeros(2, dtype=c64).is_complex())\nassert(not zeros(2).is_complex())",
        run: Run::Primitive(|_, args| truth(args.tensor(0)?.dtype().is_complex())),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "get_device",
        doc: "Returns the index of the CUDA device, or -1 for a host tensor. Source: `torch.Tensor.get_device`.",
        search: &["device", "index", "where"],
        params: &[X],
        form: Form::METHOD,
        example: "assert((zeros(2) on cpu).get_device() == -1)",
        run: Run::Primitive(|_, args| {
            let index = args.tensor(0)?.device().cuda_index();
            Ok(Out::Number(Scalar::Int(index.map_or(-1, |i| i as i64))))
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "is_pinned",
        doc: "Returns whether the tensor is in page-locked host memory. Source: `torch.Tensor.is_pinned`.",
        search: &["pinned", "page-locked", "host"],
        params: &[X],
        form: Form::METHOD,
        example: "let x = zeros(2) on cpu\nassert(not x.is_pinned())\nassert(x.pin_memory().is_pinned())",
        run: Run::Primitive(|_, args| truth(args.tensor(0)?.storage().is_pinned())),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "result_type",
        doc: "Returns the dtype of arithmetic with two operands. Script numbers are weak, and so are tensors without \
              dimensions: they count only if their kind (bool, int, float, complex) is above that of the other operand. \
              Source: `torch.result_type`.",
        search: &["dtype", "promotion", "promote", "weak"],
        params: &[Param::new("tensor1", Kind::TensorOrNumber), Param::new("tensor2", Kind::TensorOrNumber)],
        form: Form::FUNCTION,
        example: "assert(result_type(i64[1], 2.5) == f32 and result_type(f16[1.0], f64[2.0]) == f64)\n\
                  assert(result_type(f16[1.0], tensor(2.0)) == f16)",
        run: Run::Primitive(|_, args| {
            let operands = [args.operand(0)?, args.operand(1)?];
            Ok(Out::Dtype(result_type(operands.iter().map(rank))))
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

fn int(value: usize) -> Result<Out> {
    Ok(Out::Number(Scalar::Int(value as i64)))
}

fn truth(value: bool) -> Result<Out> {
    Ok(Out::Number(Scalar::Bool(value)))
}

/// The value for the dimension given by argument 1, or for all dimensions.
fn one_or_all(args: &Args<'_>, all: Vec<i64>) -> Result<Out> {
    match args.opt_int(1) {
        None => Ok(Out::Ints(all)),
        Some(dim) => {
            let dim = dims::one(1, dim, all.len())?;
            match all.get(dim) {
                Some(&value) => Ok(Out::Number(Scalar::Int(value))),
                None => Err(super::error::no_such_dim(1, dim as i64, 0)),
            }
        }
    }
}
