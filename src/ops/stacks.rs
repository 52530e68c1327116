//! Joining and splitting along fixed dimensions, and adding dimensions.

use super::composed::{call, expand, t};
use super::params::X;
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dims, broadcast};
use crate::base::Result;
use crate::plan::error::shapes_do_not_broadcast;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;

const TENSORS: &[Param] = &[Param::new("tensors", Kind::Tensors)];
const ANY: &[Param] = &[Param::rest("tensors", Kind::Tensors)];
const PARTS: &[Param] = &[X, Param::new("sections", Kind::Dims)];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "dstack",
        doc: "Joins tensors along the third dimension, with at least three dimensions each, as `atleast_3d` returns \
              them. Source: `torch.dstack`.",
        search: &["join", "depth", "concatenate", "stack"],
        params: TENSORS,
        form: Form::FUNCTION,
        example: "assert(dstack([ones(2, 3), ones(2, 3)]).shape == (2, 3, 2))",
        run: Run::Composed(|rt, args| joined(rt, "dstack", args, 2, at_least_3d)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "column_stack",
        doc: "Joins tensors side by side, vectors as columns. Source: `torch.column_stack`.",
        search: &["join", "columns", "concatenate"],
        params: TENSORS,
        form: Form::FUNCTION,
        example: "assert(equal(column_stack([tensor([1, 2]), tensor([3, 4])]), [[1, 3], [2, 4]]))",
        run: Run::Composed(|rt, args| {
            joined(rt, "column_stack", args, 1, |rt, x| match x.rank() {
                0 | 1 => super::composed::reshape(rt, x, &[x.count(), 1]),
                _ => Ok(x.clone()),
            })
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "broadcast_tensors",
        doc: "Stretches tensors to their common shape, without copies; returns a tuple of views. Source: \
              `torch.broadcast_tensors`.",
        search: &["expand", "stretch", "common shape"],
        params: ANY,
        form: Form::FUNCTION,
        example: "let (a, b) = broadcast_tensors(tensor([1, 2, 3]), tensor([[0], [1]]))\n\
                  assert(equal(a, [[1, 2, 3], [1, 2, 3]]) and b.shape == (2, 3))",
        run: Run::Composed(|rt, args| {
            let tensors = args.tensors(0)?;
            let mut shape = Dims::new();
            for (i, x) in tensors.iter().enumerate() {
                shape = broadcast(&shape, x.shape()).ok_or_else(|| {
                    let operands: Vec<_> = tensors.iter().map(MapArg::Tensor).collect();
                    shapes_do_not_broadcast("broadcast_tensors", &operands, i).in_list(0)
                })?;
            }
            tensors.iter().map(|x| expand(rt, x, &shape)).collect::<Result<_>>().map(Out::Tuple)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "atleast_1d",
        doc: "Returns a tensor with at least one dimension; for several tensors, a tuple. Source: `torch.atleast_1d`.",
        search: &["rank", "dimensions", "unsqueeze"],
        params: ANY,
        form: Form::FUNCTION,
        example: "assert(atleast_1d(tensor(3)).shape == (1,))",
        run: Run::Composed(|rt, args| each(rt, args, |rt, x| at_least(rt, x, 1))),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "atleast_2d",
        doc: "Returns a tensor with at least two dimensions: a vector becomes a row. For several tensors, returns a \
              tuple. Source: `torch.atleast_2d`.",
        search: &["rank", "dimensions", "unsqueeze"],
        params: ANY,
        form: Form::FUNCTION,
        example: "assert(atleast_2d(tensor([1, 2])).shape == (1, 2))",
        run: Run::Composed(|rt, args| each(rt, args, |rt, x| at_least(rt, x, 2))),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "atleast_3d",
        doc: "Returns a tensor with at least three dimensions: a vector of `n` becomes `(1, n, 1)`, a matrix gets a \
              last dimension; for several tensors, a tuple. Source: `torch.atleast_3d`.",
        search: &["rank", "dimensions", "unsqueeze"],
        params: ANY,
        form: Form::FUNCTION,
        example: "assert(atleast_3d(tensor([1, 2])).shape == (1, 2, 1))",
        run: Run::Composed(|rt, args| each(rt, args, at_least_3d)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "hsplit",
        doc: "Splits the second dimension (the only one of a vector) into `sections` equal parts, or at the \
              positions of a list. The parts are views. Source: \
              `torch.hsplit`.",
        search: &["cut", "columns", "parts"],
        params: PARTS,
        form: Form::BOTH,
        example: "let (a, b) = hsplit(tensor([[1, 2, 3, 4]]), 2)\nassert(equal(b, [[3, 4]]))",
        run: Run::Composed(|rt, args| {
            let dim = usize::from(args.tensor(0)?.rank() > 1);
            cut(rt, "hsplit", args, 1, dim)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "vsplit",
        doc: "Splits the first dimension into `sections` equal parts, or at the positions of a list. The parts are \
              views. Source: `torch.vsplit`.",
        search: &["cut", "rows", "parts"],
        params: PARTS,
        form: Form::BOTH,
        example: "let (a, b) = vsplit(tensor([[1, 2], [3, 4]]), [1])\nassert(equal(b, [[3, 4]]))",
        run: Run::Composed(|rt, args| cut(rt, "vsplit", args, 2, 0)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "dsplit",
        doc: "Splits the third dimension into `sections` equal parts, or at the positions of a list. The parts are \
              views. Source: `torch.dsplit`.",
        search: &["cut", "depth", "parts"],
        params: PARTS,
        form: Form::BOTH,
        example: "let (a, b) = dsplit(ones(1, 2, 4), 2)\nassert(b.shape == (1, 2, 2))",
        run: Run::Composed(|rt, args| cut(rt, "dsplit", args, 3, 2)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

fn joined(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    dim: i64,
    raise: fn(&mut Runtime, &Tensor) -> Result<Tensor>,
) -> Result<Out> {
    let given = args.tensors(0)?;
    if given.is_empty() {
        return Err(error::nothing_to_join(name));
    }
    let raised = given.iter().map(|x| raise(rt, x)).collect::<Result<Vec<_>>>()?;
    call(rt, "cat", &[Arg::Tensors(raised), Arg::Int(dim)]).map(Out::Tensor)
}

/// The tensor with leading dimensions of extent 1 added.
fn at_least(rt: &mut Runtime, x: &Tensor, rank: usize) -> Result<Tensor> {
    (x.rank()..rank).try_fold(x.clone(), |x, _| super::composed::unsqueeze(rt, &x, 0))
}

fn each(
    rt: &mut Runtime,
    args: &Args<'_>,
    raise: impl Fn(&mut Runtime, &Tensor) -> Result<Tensor>,
) -> Result<Out> {
    match args.tensors(0)? {
        [one] => raise(rt, one).map(Out::Tensor),
        several => several.iter().map(|x| raise(rt, x)).collect::<Result<_>>().map(Out::Tuple),
    }
}

fn at_least_3d(rt: &mut Runtime, x: &Tensor) -> Result<Tensor> {
    let x = at_least(rt, x, 2)?;
    if x.rank() > 2 { Ok(x) } else { super::composed::unsqueeze(rt, &x, 2) }
}

fn cut(rt: &mut Runtime, name: &'static str, args: &Args<'_>, rank: usize, dim: usize) -> Result<Out> {
    let x = args.tensor(0)?;
    if x.rank() < rank {
        let wanted = ["", "a dimension", "two dimensions", "three dimensions"][rank];
        return Err(error::wrong_rank(name, 0, x, wanted, "add dimensions with `unsqueeze`"));
    }
    if let Some(sections) = args.opt_int(1)
        && (sections < 1 || x.shape()[dim] as i64 % sections != 0)
    {
        let message = format!("{} elements in {sections} equal parts", x.shape()[dim]);
        return Err(error::bad_value(
            1,
            message,
            "give a number that divides the extent, or a list of positions",
        ));
    }
    match super::composed::out_of(rt, "tensor_split", &[t(x), args.get(1).clone(), Arg::Int(dim as i64)])? {
        Out::Tuple(parts) => Ok(Out::Tuple(parts)),
        _ => Err(error::wrong_argument(0, "an operation that gives tensors")),
    }
}
