//! Writing by masks and by groups, composed of other operations.

use super::composed::{call, call_in_place, expand, reshape, t, to};
use super::formula::formula;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, assertion, dims, error};
use crate::array::{Dims, Dtype, broadcast};
use crate::base::Result;
use crate::plan::Runtime;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "masked_scatter",
        doc: "Writes the elements of `source`, one after the other, where `mask` is true; `x` and `mask` broadcast. There must be \
              enough of them. Source: `torch.Tensor.masked_scatter`.",
        search: &["mask", "fill", "expand", "scatter"],
        params: &[X, Param::new("mask", Kind::Tensor), Param::stored("source", Kind::Tensor)],
        form: Form::ALL,
        example: "let x = zeros(4).masked_scatter(tensor([false, true, false, true]), [1.0, 2.0])\n\
                  assert(equal(x, [0.0, 1.0, 0.0, 2.0]))",
        run: Run::Composed(masked_scatter),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "index_reduce",
        doc: "Combines the slices of `source` with the slices at the positions `index` of a dimension: `reduce` is \
              `prod`, `mean`, `amax` or `amin`. With `include_self=false` the old values are not included. Source: \
              `torch.index_reduce`.",
        search: &["segment", "group by", "accumulate", "scatter_reduce"],
        params: &[
            X,
            Param::new("dim", Kind::Int),
            Param::new("index", Kind::Tensor),
            Param::stored("source", Kind::Tensor),
            Param::new("reduce", Kind::Str),
            Param::named("include_self", Kind::Bool, Default::Bool(true)),
        ],
        form: Form::ALL,
        example: "let x = tensor([1.0, 2.0, 3.0])\n\
                  assert(equal(x.index_reduce(0, [0, 0, 2], [4.0, 6.0, 1.0], \"amax\"), [6.0, 2.0, 3.0]))",
        run: Run::Both(
            |rt, args| {
                let args = as_scatter(rt, args)?;
                call(rt, "scatter_reduce", &args).map(Out::Tensor)
            },
            |rt, _, args| {
                let args = as_scatter(rt, args)?;
                call_in_place(rt, "scatter_reduce", &args)
            },
        ),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "unravel_index",
        doc: "Returns the coordinates, one tensor for each dimension, of elements that are counted in row-major order in a \
              tensor of the shape `shape`. Source: `torch.unravel_index`.",
        search: &["coordinates", "flat", "argmax", "position"],
        params: &[Param::new("indices", Kind::Tensor), Param::new("shape", Kind::Shape)],
        form: Form::FUNCTION,
        example: "let (row, column) = unravel_index(tensor([1, 5]), (2, 3))\n\
                  assert(equal(row, [0, 1]) and equal(column, [1, 2]))",
        run: Run::Composed(unravel_index),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

fn unravel_index(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (indices, shape) = (args.tensor(0)?, args.shape(1)?);
    if !indices.dtype().is_int() {
        return Err(error::wrong_tensor(0, "ints", indices, "positions are ints: `x.to(i64)`"));
    }
    let indices = to(rt, indices, Dtype::I64)?;
    let mut below =
        shape.iter().try_fold(1i64, |n, &extent| n.checked_mul(extent as i64)).unwrap_or(i64::MAX);
    let mut found = Vec::with_capacity(shape.len());
    for &extent in &shape {
        below = if extent == 0 { 0 } else { below / extent as i64 };
        let units = call(rt, "floor_divide", &[t(&indices), Arg::Int(below)])?;
        found.push(call(rt, "remainder", &[t(&units), Arg::Int(extent as i64)])?);
    }
    Ok(Out::Tuple(found))
}

fn masked_scatter(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, mask, source) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    if mask.dtype() != Dtype::Bool {
        return Err(error::wrong_tensor(1, "a mask of bools", mask, "compare first: `x > 0`"));
    }
    if source.dtype() != x.dtype() {
        let help = format!("convert it: `source.to({})`", x.dtype());
        return Err(error::wrong_tensor(2, "the dtype of `x`", source, &help));
    }
    let Some(shape) = broadcast(x.shape(), mask.shape()) else {
        return Err(error::wrong_tensor(
            1,
            "a mask that broadcasts with `x`",
            mask,
            "give it the shape of `x`",
        ));
    };
    let (x, mask) = (expand(rt, x, &shape)?, expand(rt, mask, &shape)?);
    if x.count() == 0 {
        return call(rt, "clone", &[t(&x)]).map(Out::Tensor);
    }
    if source.count() == 0 {
        let none = call(rt, "any", &[t(&mask)]).and_then(|any| call(rt, "logical_not", &[t(&any)]))?;
        assertion::holds(
            rt,
            &none,
            "`source` of `masked_scatter` has an element for each true one of `mask`",
        )?;
        return call(rt, "clone", &[t(&x)]).map(Out::Tensor);
    }
    let found = formula(rt, |f| {
        let (x, mask) = (f.var(&x), f.var(&mask));
        let flat = mask.reshape(&[mask.count() as i64]);
        let place = flat.to(Dtype::I64).call("cumsum", &[Arg::Int(0)]) - 1i64;
        let place = f.select(&flat, &place, 0i64).reshape(&x.shape());
        // A position past the end raises a fault at this line.
        f.select(&mask, f.var(source).call("take", &[place.arg()]), &x)
    });
    call(rt, "contiguous", &[t(&found?)]).map(Out::Tensor)
}

/// The arguments of `index_reduce` as those of `scatter_reduce`.
fn as_scatter(rt: &mut Runtime, args: &Args<'_>) -> Result<Vec<Arg>> {
    let (x, index, source) = (args.tensor(0)?, args.tensor(2)?, args.tensor(3)?);
    let dim = dims::one(1, args.int(1)?, x.rank())?;
    let reduce = args.text(4).unwrap_or("");
    if !["prod", "mean", "amax", "amin"].contains(&reduce) {
        return Err(error::not_one_of(4, "reduce", reduce, &["prod", "mean", "amax", "amin"]));
    }
    if index.rank() > 1 {
        return Err(error::wrong_rank("index_reduce", 2, index, "a vector", "write `index.flatten()`"));
    }
    let fits = source.rank() == x.rank()
        && (0..x.rank()).all(|i| source.shape()[i] == if i == dim { index.count() } else { x.shape()[i] });
    if !fits {
        let help = "it has a slice for each index, and else the shape of `x`";
        return Err(error::wrong_tensor(3, "slices of `x`", source, help));
    }
    let mut along: Dims = Dims::from_elem(1, x.rank());
    if let Some(extent) = along.get_mut(dim) {
        *extent = index.count();
    }
    let index = reshape(rt, index, &along)?;
    let index = expand(rt, &index, source.shape())?;
    let rest = [args.get(4).clone(), args.get(5).clone()];
    Ok([&[t(x), Arg::Int(dim as i64), t(&index), t(source)], &rest[..]].concat())
}
