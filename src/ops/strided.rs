//! Views with given strides, and copies of a tensor with one of its views replaced.

use super::composed::{call, call_in_place, reshape, t};
use super::index::as_positions;
use super::params::X;
use super::shape::MAX_RANK;
use super::signature::{Default, Kind, Param};
use super::subscript::{INDEX, Index};
use super::{Arg, Args, Call, Form, Gradient, Op, Out, Run, apply, dims, error};
use crate::array::{Layout, Strides, element_count};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

const SRC: Param = Param::new("src", Kind::Tensor);
const DIM: Param = Param::or("dim", Kind::Int, Default::Int(0));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "as_strided",
        doc: "Returns a view of the memory of `x` with this shape, these strides (in elements, 0 or more) and this \
              first element, counted from the beginning of the memory; without `storage_offset`, that of `x`. All \
              elements must be in the memory. Elements may be reached several times: their gradients are added. Elements that are not in `x` \
              get no gradient. \
              Source: `torch.as_strided`.",
        search: &["strides", "view", "sliding window", "storage_offset"],
        params: &[
            X,
            Param::new("shape", Kind::Shape),
            Param::new("stride", Kind::Shape),
            Param::or("storage_offset", Kind::Int, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(arange(6).as_strided([2, 2], [1, 3], 1), [[1, 4], [2, 5]]))",
        run: Run::Primitive(as_strided),
        gradient: Gradient::View,
        ..Op::BASE
    },
    Op {
        name: "select_scatter",
        doc: "Returns a copy of `x` with `src` at one position of a dimension: `y.select(dim, index)` is `src`. Source: \
              `torch.select_scatter`.",
        search: &["select", "set", "row", "functional"],
        params: &[X, SRC, Param::new("dim", Kind::Int), Param::new("index", Kind::Int)],
        form: Form::BOTH,
        example: "assert(equal(select_scatter(zeros(2, 2), [1.0, 2.0], 0, 1), [[0.0, 0.0], [1.0, 2.0]]))",
        run: Run::Composed(|rt, args| {
            replaced(rt, "select_scatter", args, |rt, x| {
                call(rt, "select", &[t(x), args.get(2).clone(), args.get(3).clone()])
            })
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "slice_scatter",
        doc: "Returns a copy of `x` with `src` at every `step`-th position of a dimension from `start` up to but \
              excluding `end`. Source: `torch.slice_scatter`.",
        search: &["slice", "set", "narrow", "functional"],
        params: &[
            X,
            SRC,
            DIM,
            Param::or("start", Kind::Int, Default::None),
            Param::or("end", Kind::Int, Default::None),
            Param::or("step", Kind::Int, Default::Int(1)),
        ],
        form: Form::BOTH,
        example: "assert(equal(slice_scatter(zeros(4), [1.0, 2.0], 0, 1, 4, 2), [0.0, 1.0, 0.0, 2.0]))",
        run: Run::Composed(|rt, args| {
            let dim = dims::one(2, args.int(2)?, args.tensor(0)?.rank())?;
            let step = args.int(5)?;
            if step < 1 {
                return Err(error::bad_value(5, format!("steps of {step}"), "write 1 or more"));
            }
            let mut indices = vec![Index::ALL; dim];
            indices.push(Index::Slice { start: args.opt_int(3), end: args.opt_int(4), step });
            replaced(rt, "slice_scatter", args, |rt, x| {
                let args = [t(x), Arg::Indices(indices.clone())];
                match apply(rt, &INDEX, Call::Plain(Args(&args)))? {
                    Out::Tensor(part) => Ok(part),
                    _ => Err(error::wrong_argument(0, "a tensor")),
                }
            })
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "diagonal_scatter",
        doc: "Returns a copy of `x` with `src` on the diagonal between two dimensions: \
              `y.diagonal(offset, dim1, dim2)` is `src`. Source: `torch.diagonal_scatter`.",
        search: &["diagonal", "set", "functional"],
        params: &[
            X,
            SRC,
            Param::or("offset", Kind::Int, Default::Int(0)),
            Param::or("dim1", Kind::Int, Default::Int(0)),
            Param::or("dim2", Kind::Int, Default::Int(1)),
        ],
        form: Form::BOTH,
        example: "assert(equal(diagonal_scatter(zeros(2, 2), [1.0, 2.0]), [[1.0, 0.0], [0.0, 2.0]]))",
        run: Run::Composed(|rt, args| {
            let form = [args.get(2).clone(), args.get(3).clone(), args.get(4).clone()];
            replaced(rt, "diagonal_scatter", args, |rt, x| {
                call(rt, "diagonal", &[&[t(x)], &form[..]].concat())
            })
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "put",
        doc: "Writes the elements of `source` to the positions `index` of the flattened tensor; with `accumulate` they \
              are added, with the same bits in every run. `index` and `source` have equally many elements. Source: \
              `torch.put`.",
        search: &["flat", "assign", "write", "take", "index_put"],
        params: &[
            X,
            Param::new("index", Kind::Tensor),
            Param::stored("source", Kind::Tensor),
            Param::or("accumulate", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::ALL,
        example: "assert(equal(put([[1, 2], [3, 4]], [0, -1], [7, 8]), [[7, 2], [3, 8]]))",
        run: Run::Both(
            |rt, args| {
                let out = call(rt, "clone", &[t(args.tensor(0)?)])?;
                put(rt, "put", &out, args)?;
                Ok(Out::Tensor(out))
            },
            |rt, name, args| put(rt, name, args.tensor(0)?, args),
        ),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

fn as_strided(_: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let (shape, strides) = (args.shape(1)?, args.ints(2).unwrap_or_default());
    if shape.len() > MAX_RANK {
        return Err(error::too_many_dims(shape.len()));
    }
    if strides.len() != shape.len() {
        let message = format!("{} strides for {} dimensions", strides.len(), shape.len());
        return Err(error::bad_value(2, message, "give one stride for each dimension of the result"));
    }
    let offset = args.opt_int(3).unwrap_or(x.layout().offset as i64);
    let Ok(offset) = usize::try_from(offset) else {
        return Err(error::bad_value(3, format!("a first element of {offset}"), "write 0 or more"));
    };
    if let Some(stride) = strides.iter().find(|&&stride| stride < 0) {
        return Err(error::bad_value(2, format!("a stride of {stride}"), "write 0 or more; `flip` reverses"));
    }
    let held = x.storage().bytes() / x.dtype().size() as u64;
    let last = shape.iter().zip(strides).try_fold(offset as u64, |last, (&extent, &stride)| {
        (extent.max(1) as u64 - 1).checked_mul(stride as u64)?.checked_add(last)
    });
    let is_empty = shape.contains(&0);
    if element_count(&shape).is_none() || !is_empty && last.is_none_or(|last| last >= held) {
        let message = "the view reaches beyond the memory of the tensor";
        return Err(error::bad_value(1, message, format!("the memory holds {held} elements")));
    }
    let strides: Strides = strides.iter().map(|&stride| stride as isize).collect();
    Ok(Out::Tensor(x.with_layout(Layout { shape, strides, offset })))
}

/// A copy of the first argument, with the part that `view` selects replaced by the second.
fn replaced(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    view: impl Fn(&mut Runtime, &Tensor) -> Result<Tensor>,
) -> Result<Out> {
    let (x, src) = (args.tensor(0)?, args.tensor(1)?);
    rt.common_device(name, [x, src])?;
    let part = view(rt, x)?;
    if part.shape() != src.shape() {
        return Err(error::value_does_not_fit((1, src), x, part.shape()));
    }
    let out = call(rt, "clone", &[t(x)])?;
    let part = view(rt, &out)?;
    call(rt, "copy_", &[t(&part), t(src)])?;
    Ok(Out::Tensor(out))
}

/// `put` into a tensor.
fn put(rt: &mut Runtime, name: &'static str, out: &Tensor, args: &Args<'_>) -> Result<()> {
    let (index, source) = (args.tensor(1)?, args.tensor(2)?);
    rt.common_device(name, [out, index, source])?;
    if index.count() != source.count() {
        let help = format!("give it {} elements, as `index` has", index.count());
        return Err(error::wrong_tensor(2, "an element for each index", source, &help));
    }
    let ids = as_positions(rt, 1, index)?;
    let ids = reshape(rt, &ids, &[index.count()])?;
    let source = reshape(rt, source, &[index.count()])?;
    let flat = reshape(rt, out, &[out.count()])?;
    let write = [t(&flat), Arg::Tensors(vec![ids]), t(&source), args.get(3).clone()];
    if flat.storage_ref().is(out.storage()) {
        return call_in_place(rt, "index_put", &write);
    }
    // `out` has no flat view.
    call_in_place(rt, "index_put", &write)?;
    let shaped = reshape(rt, &flat, out.shape())?;
    call(rt, "copy_", &[t(out), t(&shaped)]).map(drop)
}
