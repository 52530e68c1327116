//! Views: the same elements with another shape. Storage is shared and nothing is copied, except by `reshape`,
//! `flatten` and `contiguous` if the strides do not allow a view.

use super::composed::{call, t};
use super::gradient::{Back, error::no_rule, rules};
use super::known;
use super::params::{UNARY, X};
use super::signature::{Default, Kind, Param};
use super::subscript::Index;
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, dims, error};
use crate::array::{Dims, Dtype};
use crate::base::{Error, Result};
use crate::plan::Runtime;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// The maximum number of dimensions of a tensor, as in PyTorch.
pub const MAX_RANK: usize = 64;

const SHAPE: &[Param] = &[X, Param::rest("shape", Kind::Shape)];
const SIZE: &[Param] = &[X, Param::rest("size", Kind::Shape)];
const OTHER: &[Param] = &[X, Param::new("other", Kind::Tensor)];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "reshape",
        doc: "Returns the elements in another shape: a view where the strides allow it, else a copy. One extent may be \
              `-1`: it is inferred. Source: `torch.reshape`.",
        search: &["shape", "resize", "view", "dimensions"],
        params: SHAPE,
        form: Form::BOTH,
        example: "let x = zeros(2, 6)\nassert(x.reshape(3, -1).shape == (3, 4))\nassert(x.reshape(-1).shape == (12,))",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            let shape = resolve("reshape", x, args.ints(1).unwrap_or(&[]))?;
            reshaped(rt, x, &shape).map(Out::Tensor)
        }),
        shape: known::RESHAPE,
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "reshape_as",
        doc: "Returns the elements in the shape of another tensor. Source: `torch.Tensor.reshape_as`.",
        search: &["shape", "like"],
        params: OTHER,
        form: Form::METHOD,
        example: "assert(zeros(6).reshape_as(zeros(2, 3)).shape == (2, 3))",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            let shape = resolve("reshape_as", x, &extents(args.tensor(1)?))?;
            reshaped(rt, x, &shape).map(Out::Tensor)
        }),
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "view",
        doc: "Views the elements with another shape, never copying; an error where the strides do not allow it. One \
              extent may be `-1`. With a dtype instead of a shape, views the same bytes as elements of that dtype: if \
              its size differs, the last dimension grows or shrinks. Source: `torch.Tensor.view`.",
        search: &["shape", "reshape", "alias", "bits", "bitcast", "reinterpret"],
        params: &[X, Param::rest("size", Kind::ShapeOrDtype)],
        form: Form::METHOD,
        example: "let x = zeros(4)\nx.view(2, 2)[0, 1] = 5\nassert(x[1].item() == 5)\n\
                  assert(tensor([1.0]).view(i32).item() == 0x3f800000)",
        run: Run::Primitive(|_, args| {
            let x = args.tensor(0)?;
            if let Some(dtype) = args.dtype(1) {
                return viewed_as(x, dtype).map(Out::Tensor);
            }
            let shape = resolve("view", x, args.ints(1).unwrap_or(&[]))?;
            viewed(x, &shape).map(Out::Tensor)
        }),
        shape: known::RESHAPE,
        gradient: Gradient::Rule(Keeps::NOTHING, view_back),
        ..Op::BASE
    },
    Op {
        name: "view_as",
        doc: "Views the elements with the shape of another tensor, never copying. Source: `torch.Tensor.view_as`.",
        search: &["shape", "like"],
        params: OTHER,
        form: Form::METHOD,
        example: "assert(zeros(6).view_as(zeros(2, 3)).shape == (2, 3))",
        run: Run::Primitive(|_, args| {
            let x = args.tensor(0)?;
            let shape = resolve("view_as", x, &extents(args.tensor(1)?))?;
            viewed(x, &shape).map(Out::Tensor)
        }),
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "permute",
        doc: "Puts the dimensions into another order. A view. Source: `torch.permute`.",
        search: &["transpose", "axes", "order", "swap"],
        params: &[X, Param::rest("dims", Kind::Dims)],
        form: Form::BOTH,
        example: "assert(zeros(2, 3, 4).permute(2, 0, 1).shape == (4, 2, 3))",
        run: Run::Primitive(permute),
        shape: known::PERMUTE,
        gradient: Gradient::Rule(Keeps::NOTHING, permute_back),
        ..Op::BASE
    },
    Op {
        name: "transpose",
        aliases: &["swapaxes", "swapdims"],
        doc: "Swaps two dimensions. A view; `transpose_` changes the shape of the tensor itself. Source: `torch.transpose`.",
        search: &["swap", "axes", "swapaxes", "mT"],
        params: &[X, Param::new("dim0", Kind::Int), Param::new("dim1", Kind::Int)],
        form: Form::ALL,
        example: "assert(zeros(2, 3, 4).transpose(0, -1).shape == (4, 3, 2))",
        run: Run::View(|_, args| {
            let x = args.tensor(0)?;
            let (a, b) = (dims::one(1, args.int(1)?, x.rank())?, dims::one(2, args.int(2)?, x.rank())?);
            Ok(Out::Tensor(swapped(x, a, b)))
        }),
        shape: known::TRANSPOSE,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().call("transpose", &[b.arg(1), b.arg(2)]))
        }),
        ..Op::BASE
    },
    Op {
        name: "t",
        doc: "Transposes a matrix; a vector or a tensor without dimensions stays as it is. A view; `t_` changes the \
              shape of the tensor itself. Source: `torch.t`.",
        search: &["transpose", "matrix"],
        params: &[X],
        form: Form::ALL,
        example: "assert(equal(tensor([[1, 2], [3, 4]]).t(), [[1, 3], [2, 4]]))",
        run: Run::View(|_, args| {
            let x = args.tensor(0)?;
            match x.rank() {
                0 | 1 => Ok(Out::Tensor(alias(x))),
                2 => Ok(Out::Tensor(swapped(x, 0, 1))),
                _ => {
                    let help = "name the dimensions: `x.transpose(-2, -1)`";
                    Err(error::wrong_rank("t", 0, x, "at most 2 dimensions", help))
                }
            }
        }),
        shape: known::T,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().unary("t"))),
        ..Op::BASE
    },
    Op {
        name: "movedim",
        aliases: &["moveaxis"],
        doc: "Moves dimensions to other positions; the others keep their order. A view. Source: `torch.movedim`.",
        search: &["moveaxis", "permute", "channels last"],
        params: &[X, Param::new("source", Kind::Dims), Param::new("destination", Kind::Dims)],
        form: Form::BOTH,
        example: "assert(zeros(2, 3, 4).movedim(0, -1).shape == (3, 4, 2))",
        run: Run::Primitive(movedim),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().call("movedim", &[b.arg(2), b.arg(1)]))
        }),
        ..Op::BASE
    },
    Op {
        name: "squeeze",
        doc: "Drops dimensions of extent 1: all of them, or those in `dim` (longer ones are kept). A view; `squeeze_` \
              changes the shape of the tensor itself. Source: `torch.squeeze`.",
        search: &["remove dimension", "drop", "unsqueeze"],
        params: &[X, Param::rest("dim", Kind::Dims)],
        form: Form::ALL,
        example: "assert(zeros(1, 3, 1).squeeze().shape == (3,))\nassert(zeros(1, 3, 1).squeeze(0).shape == (3, 1))",
        run: Run::View(|_, args| {
            let x = args.tensor(0)?;
            let dropped = match args.ints(1) {
                Some([]) => return Ok(Out::Tensor(alias(x))),
                named => dims::many(1, named, x.rank())?,
            };
            Ok(Out::Tensor(without_ones(x, &dropped)))
        }),
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "unsqueeze",
        doc: "Inserts a dimension of extent 1. A view; `unsqueeze_` changes the shape of the tensor itself. Source: `torch.unsqueeze`.",
        search: &["add dimension", "new axis", "expand_dims", "none"],
        params: &[X, Param::new("dim", Kind::Int)],
        form: Form::ALL,
        example: "assert(zeros(3).unsqueeze(0).shape == (1, 3))\nassert(zeros(3).unsqueeze(-1).shape == (3, 1))",
        run: Run::View(|_, args| {
            let x = args.tensor(0)?;
            let at = dims::one(1, args.int(1)?, x.rank() + 1)?;
            unsqueezed(x, at).map(Out::Tensor)
        }),
        shape: known::UNSQUEEZE,
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "expand",
        doc: "Stretches dimensions of extent 1 and adds dimensions in front, without a copy; `-1` keeps an extent. \
              Elements of the result share memory, so it cannot be written in place. Source: `torch.Tensor.expand`.",
        search: &["broadcast", "repeat", "stretch"],
        params: SIZE,
        form: Form::METHOD,
        example: "assert(tensor([[1], [2]]).expand(-1, 3).shape == (2, 3))",
        run: Run::Primitive(|_, args| {
            expanded("expand", args.tensor(0)?, args.ints(1).unwrap_or(&[])).map(Out::Tensor)
        }),
        gradient: SAME,
        ..Op::BASE
    },
    Op {
        name: "expand_as",
        doc: "Stretches a tensor to the shape of another, without a copy. Source: `torch.Tensor.expand_as`.",
        search: &["broadcast", "like"],
        params: OTHER,
        form: Form::METHOD,
        example: "assert(zeros(1, 3).expand_as(zeros(2, 3)).shape == (2, 3))",
        run: Run::Primitive(|_, args| {
            expanded("expand_as", args.tensor(0)?, &extents(args.tensor(1)?)).map(Out::Tensor)
        }),
        gradient: SAME,
        ..Op::BASE
    },
    Op {
        name: "broadcast_to",
        doc: "Stretches a tensor to a shape, without a copy. Source: `torch.broadcast_to`.",
        search: &["expand", "stretch"],
        params: SHAPE,
        form: Form::BOTH,
        example: "assert(broadcast_to(tensor([1, 2]), [3, 2]).shape == (3, 2))",
        run: Run::Primitive(|_, args| {
            expanded("broadcast_to", args.tensor(0)?, args.ints(1).unwrap_or(&[])).map(Out::Tensor)
        }),
        gradient: SAME,
        ..Op::BASE
    },
    Op {
        name: "flatten",
        doc: "Merges the dimensions from `start_dim` to `end_dim` into one: a view where the strides allow it, else \
              a copy. Source: `torch.flatten`.",
        search: &["merge", "reshape"],
        params: &[
            X,
            Param::or("start_dim", Kind::Int, Default::Int(0)),
            Param::or("end_dim", Kind::Int, Default::Int(-1)),
        ],
        form: Form::BOTH,
        example: "assert(zeros(2, 3, 4).flatten().shape == (24,))\nassert(zeros(2, 3, 4).flatten(1).shape == (2, 12))",
        run: Run::Primitive(flatten),
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "ravel",
        doc: "Returns all elements in one dimension, adjacent in memory: a view of a row-major tensor, else a copy. \
              Source: `torch.ravel`.",
        search: &["flatten", "merge", "reshape"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(zeros(2, 3).ravel().shape == (6,))\n\
                  assert(zeros(2, 3)[.., 0].ravel().is_contiguous())",
        run: Run::Composed(|rt, args| {
            let x = call(rt, "contiguous", &[t(args.tensor(0)?)])?;
            call(rt, "view", &[t(&x), Arg::Ints(vec![-1])]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "unfold",
        doc: "Returns all windows of `size` elements along a dimension, `step` apart: the dimension counts the windows, \
              and a new last dimension holds the elements of each. A view. Source: `torch.Tensor.unfold`.",
        search: &["sliding window", "patches", "strided", "convolution"],
        params: &[
            X,
            Param::new("dimension", Kind::Int),
            Param::new("size", Kind::Int),
            Param::new("step", Kind::Int),
        ],
        form: Form::METHOD,
        example: "assert(equal(arange(5).unfold(0, 3, 1), [[0, 1, 2], [1, 2, 3], [2, 3, 4]]))",
        run: Run::Primitive(|_, args| {
            let x = args.tensor(0)?;
            let lone = if x.rank() == 0 { unsqueezed(x, 0)? } else { x.clone() };
            let dim = needs_dim("unfold", &lone, 1, args.int(1)?)?;
            let (size, step, extent) = (args.int(2)?, args.int(3)?, lone.shape()[dim]);
            let Some(size) = usize::try_from(size).ok().filter(|&size| size <= extent) else {
                let message = format!("windows of {size} in a dimension of size {extent}");
                return Err(error::bad_value(2, message, format!("write 0 to {extent}")));
            };
            let Some(step) = usize::try_from(step).ok().filter(|&step| step > 0) else {
                return Err(error::bad_value(3, format!("steps of {step}"), "write 1 or more"));
            };
            if lone.rank() == MAX_RANK {
                return Err(error::too_many_dims(MAX_RANK + 1));
            }
            let mut layout = lone.layout().clone();
            let stride = layout.strides[dim];
            layout.shape[dim] = (extent - size) / step + 1;
            layout.strides[dim] = stride.saturating_mul(isize::try_from(step).unwrap_or(isize::MAX));
            layout.shape.push(size);
            layout.strides.push(stride);
            if x.rank() == 0 {
                // A tensor without dimensions has no dimension that counts the windows.
                (layout.shape, layout.strides) = (Dims::from_elem(size, 1), smallvec![1]);
            }
            Ok(Out::Tensor(lone.with_layout(layout)))
        }),
        gradient: Gradient::View,
        ..Op::BASE
    },
    Op {
        name: "unflatten",
        doc: "Splits a dimension into several; one extent may be `-1`. A view. Source: `torch.unflatten`.",
        search: &["split dimension", "reshape", "heads"],
        params: &[X, Param::new("dim", Kind::Int), Param::new("sizes", Kind::Shape)],
        form: Form::BOTH,
        example: "assert(zeros(2, 12).unflatten(1, [3, -1]).shape == (2, 3, 4))",
        run: Run::Primitive(unflatten),
        gradient: RESHAPED,
        ..Op::BASE
    },
    Op {
        name: "contiguous",
        doc: "Returns the tensor itself if its elements are row-major without gaps, else a row-major copy. Source: \
              `torch.Tensor.contiguous`.",
        search: &["memory", "layout", "copy", "strides"],
        params: &[X],
        form: Form::METHOD,
        example: "let x = zeros(2, 3).t()\nassert(not x.is_contiguous())\nassert(x.contiguous().is_contiguous())",
        run: Run::Primitive(|rt, args| rt.contiguous(args.tensor(0)?).map(Out::Tensor)),
        shape: known::SAME,
        gradient: SAME,
        ..Op::BASE
    },
    Op {
        name: "narrow",
        doc: "Keeps `length` positions of a dimension, from `start` on. A view. Source: `torch.narrow`.",
        search: &["slice", "window", "crop"],
        params: &[
            X,
            Param::new("dim", Kind::Int),
            Param::new("start", Kind::Int),
            Param::new("length", Kind::Int),
        ],
        form: Form::BOTH,
        example: "assert(equal(narrow([1, 2, 3, 4], 0, 1, 2), [2, 3]))",
        run: Run::Primitive(narrow),
        gradient: Gradient::Rule(Keeps::NOTHING, narrow_back),
        ..Op::BASE
    },
    Op {
        name: "select",
        doc: "Takes one position of a dimension, which is dropped: `x.select(0, i)` is `x[i]`. A view. \
              Source: `torch.select`.",
        search: &["index", "row", "slice"],
        params: &[X, Param::new("dim", Kind::Int), Param::new("index", Kind::Int)],
        form: Form::BOTH,
        example: "assert(equal(tensor([[1, 2], [3, 4]]).select(1, 0), [1, 3]))",
        run: Run::Primitive(|_, args| {
            let x = args.tensor(0)?;
            let dim = needs_dim("select", x, 1, args.int(1)?)?;
            let at = position(2, args.int(2)?, dim, x.shape()[dim])?;
            Ok(Out::Tensor(selected(x, dim, at)))
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || {
                let dim = b.dim(1, b.form(0).shape.len());
                rules::spread(b, &b.g(), dim, Index::Int(b.args().opt_int(2).unwrap_or(0)))
            });
        }),
        ..Op::BASE
    },
];

/// The elements in their order: the gradient has the operand's shape.
const RESHAPED: Gradient = Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().reshape(&b.shape(0))));

/// The gradient as it is; the pass sums over dimensions that were stretched.
const SAME: Gradient = Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g()));

fn view_back(b: &Back<'_>) {
    b.to(0, || {
        if b.args().dtype(1).is_some() && b.form(0).dtype != b.result(0).dtype {
            let help = "to convert numbers, write `x.to(dtype)`; for complex parts, `view_as_real(x)`";
            b.fail(no_rule("view", b.span(), help));
        }
        b.g().reshape(&b.shape(0))
    });
}

fn permute_back(b: &Back<'_>) {
    b.to(0, || {
        let order = b.dims(1, b.form(0).shape.len());
        let mut back = vec![0; order.len()];
        for (place, &dim) in order.iter().enumerate() {
            back[dim as usize] = place as i64;
        }
        b.g().call("permute", &[Arg::Ints(back)])
    });
}

fn narrow_back(b: &Back<'_>) {
    b.to(0, || {
        let shape = b.shape(0);
        let dim = b.dim(1, shape.len());
        let (start, length) = (b.args().opt_int(2).unwrap_or(0), b.args().opt_int(3).unwrap_or(0));
        let start = if start < 0 { start + shape[dim as usize] } else { start };
        rules::spread(b, &b.g(), dim, Index::Slice { start: Some(start), end: Some(start + length), step: 1 })
    });
}

/// The extents as ints.
fn extents(x: &Tensor) -> Vec<i64> {
    x.shape().iter().map(|&n| n as i64).collect()
}

/// Replaces the `-1` of a shape with the extent that the number of elements of `x` determines.
pub(super) fn resolve(name: &str, x: &Tensor, shape: &[i64]) -> Result<Dims> {
    resolve_count(x.count(), shape, || error::counts_differ(name, x, shape))
}

/// As [`resolve`], for `count` elements.
fn resolve_count(count: usize, shape: &[i64], wrong: impl Fn() -> Error) -> Result<Dims> {
    if shape.len() > MAX_RANK {
        return Err(error::too_many_dims(shape.len()));
    }
    let mut known = 1usize;
    let mut open = None;
    let mut resolved = Dims::new();
    for (i, &extent) in shape.iter().enumerate() {
        if extent == -1 && open.is_none() {
            open = Some(i);
            resolved.push(1);
            continue;
        }
        let extent = usize::try_from(extent).map_err(|_| wrong())?;
        known = if extent == 0 { 0 } else { known.checked_mul(extent).ok_or_else(&wrong)? };
        resolved.push(extent);
    }
    match open {
        Some(i) if known > 0 && count.is_multiple_of(known) => resolved[i] = count / known,
        Some(_) => return Err(wrong()),
        None if crate::array::element_count(&resolved) != Some(count) => return Err(wrong()),
        None => {}
    }
    Ok(resolved)
}

/// A view if the strides allow it, else a copy; the element counts are equal.
pub(super) fn reshaped(rt: &mut Runtime, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if let Some(layout) = x.layout().view(shape) {
        return Ok(x.with_layout(layout));
    }
    let copy = rt.contiguous_copy(x)?;
    viewed(&copy, shape)
}

fn viewed(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    match x.layout().view(shape) {
        Some(layout) => Ok(x.with_layout(layout)),
        None => Err(error::cannot_view(x, shape)),
    }
}

/// The tensor's bytes as elements of another dtype.
fn viewed_as(x: &Tensor, dtype: Dtype) -> Result<Tensor> {
    let (own, new) = (x.dtype().size(), dtype.size());
    let mut layout = x.layout().clone();
    if own != new {
        let Some(inner) = layout.shape.len().checked_sub(1) else {
            return Err(error::cannot_view_as(x, dtype, "it has no dimension that could grow or shrink"));
        };
        if layout.strides[inner] != 1 && layout.shape[inner] != 1 {
            return Err(error::cannot_view_as(x, dtype, "the last dimension must have stride 1"));
        }
        // Sizes are powers of two: one divides the other.
        let fits = |n: usize| (n * own).is_multiple_of(new);
        let others = (0..inner).filter(|&d| layout.shape[d] != 1);
        if !fits(layout.shape[inner]) {
            return Err(error::cannot_view_as(
                x,
                dtype,
                "the last dimension is not a multiple of the new size",
            ));
        }
        if !fits(layout.offset) || others.into_iter().any(|d| !fits(layout.strides[d].unsigned_abs())) {
            let why = "its rows do not begin at multiples of the new size";
            return Err(error::cannot_view_as(x, dtype, why));
        }
        let scaled = |n: usize| n / new.div_ceil(own) * own.div_ceil(new);
        layout.offset = scaled(layout.offset);
        layout.shape[inner] = scaled(layout.shape[inner]);
        for d in 0..inner {
            layout.strides[d] = scaled(layout.strides[d].unsigned_abs()) as isize;
        }
        layout.strides[inner] = 1;
    }
    Ok(x.view(layout, dtype))
}

/// The tensor with dimensions in another order.
pub(super) fn permuted(x: &Tensor, order: &[usize]) -> Tensor {
    x.with_layout(x.layout().permute(order))
}

/// The tensor with two dimensions swapped; a tensor without dimensions is returned unchanged.
pub(super) fn swapped(x: &Tensor, a: usize, b: usize) -> Tensor {
    let mut layout = x.layout().clone();
    if x.rank() > 0 {
        layout.shape.swap(a, b);
        layout.strides.swap(a, b);
    }
    x.with_layout(layout)
}

/// Another view of the same elements: unlike a copy of the handle, it keeps its shape when `x` changes shape in place.
fn alias(x: &Tensor) -> Tensor {
    x.with_layout(x.layout().clone())
}

/// The tensor with a new dimension of extent 1 before `at`.
pub(super) fn unsqueezed(x: &Tensor, at: usize) -> Result<Tensor> {
    if x.rank() >= MAX_RANK {
        return Err(error::too_many_dims(x.rank() + 1));
    }
    let mut layout = x.layout().clone();
    let stride = layout.stride_of_one(at);
    layout.shape.insert(at, 1);
    layout.strides.insert(at, stride);
    Ok(x.with_layout(layout))
}

/// The tensor without those of `dims` whose extent is 1.
pub(super) fn without_ones(x: &Tensor, dims: &[usize]) -> Tensor {
    let layout = x.layout();
    let kept = (0..x.rank()).filter(|d| !dims.contains(d) || layout.shape[*d] != 1);
    let order: Vec<usize> = kept.collect();
    permuted(x, &order)
}

/// One position of a dimension; it must be in range.
pub(super) fn selected(x: &Tensor, dim: usize, at: usize) -> Tensor {
    let mut layout = x.layout().clone();
    layout.offset += at * layout.strides[dim] as usize;
    layout.shape.remove(dim);
    layout.strides.remove(dim);
    x.with_layout(layout)
}

/// `length` positions of a dimension, starting at `start`; they must be in range.
pub(super) fn narrowed(x: &Tensor, dim: usize, start: usize, length: usize) -> Tensor {
    let mut layout = x.layout().clone();
    if length > 0 {
        layout.offset += start * layout.strides[dim] as usize;
    }
    layout.shape[dim] = length;
    x.with_layout(layout)
}

/// A checked position; a negative one counts from the end. `index` is its argument.
pub(super) fn position(index: usize, position: i64, dim: usize, extent: usize) -> Result<usize> {
    let from_start = if position < 0 { position.checked_add(extent as i64) } else { Some(position) };
    match from_start.and_then(|p| usize::try_from(p).ok()).filter(|&p| p < extent) {
        Some(at) => Ok(at),
        None => Err(error::index_out_of_range(index, position, dim, extent)),
    }
}

/// A dimension of a tensor that must have at least one.
pub(super) fn needs_dim(name: &str, x: &Tensor, index: usize, dim: i64) -> Result<usize> {
    if x.rank() == 0 {
        let help = "add a dimension first: `x.unsqueeze(0)`";
        return Err(error::wrong_rank(name, 0, x, "at least 1 dimension", help));
    }
    dims::one(index, dim, x.rank())
}

/// `expand`: `-1` keeps an extent.
pub(super) fn expanded(name: &str, x: &Tensor, shape: &[i64]) -> Result<Tensor> {
    if shape.len() > MAX_RANK {
        return Err(error::too_many_dims(shape.len()));
    }
    let wrong = || error::cannot_expand(name, x, shape);
    let added = shape.len().checked_sub(x.rank()).ok_or_else(wrong)?;
    let mut resolved = Dims::new();
    for (i, &extent) in shape.iter().enumerate() {
        resolved.push(match usize::try_from(extent) {
            Ok(extent) => extent,
            Err(_) if extent == -1 && i >= added => x.shape()[i - added],
            Err(_) => return Err(wrong()),
        });
    }
    crate::array::element_count(&resolved)
        .and_then(|n| n.checked_mul(8))
        .filter(|&n| isize::try_from(n).is_ok())
        .ok_or_else(wrong)?;
    let layout = x.layout().broadcast_to(&resolved).ok_or_else(wrong)?;
    Ok(x.with_layout(layout))
}

fn permute(_: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let given = args.ints(1).unwrap_or(&[]);
    let mut order = Dims::new();
    for &dim in given {
        let dim = dims::one(1, dim, x.rank())?;
        if order.contains(&dim) {
            return Err(error::dim_twice(1, dim));
        }
        order.push(dim);
    }
    if order.len() != x.rank() {
        let wanted = format!("{} dimensions to name", order.len());
        return Err(error::wrong_rank("permute", 0, x, &wanted, "name every dimension once"));
    }
    Ok(Out::Tensor(permuted(x, &order)))
}

fn movedim(_: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let list = |index: usize| -> Result<Dims> {
        let mut found = Dims::new();
        for &dim in args.ints(index).unwrap_or(&[]) {
            let dim = dims::one(index, dim, x.rank())?;
            if found.contains(&dim) {
                return Err(error::dim_twice(index, dim));
            }
            found.push(dim);
        }
        Ok(found)
    };
    let (from, to) = (list(1)?, list(2)?);
    if from.len() != to.len() {
        let message = format!("`movedim` moves {} dimensions to {} places", from.len(), to.len());
        return Err(error::bad_value(2, message, "give a place for each dimension"));
    }
    if x.rank() == 0 {
        return Ok(Out::Tensor(alias(x)));
    }
    let mut rest = (0..x.rank()).filter(|d| !from.contains(d));
    let order: Vec<usize> = (0..x.rank())
        .filter_map(|place| match to.iter().position(|&t| t == place) {
            Some(i) => Some(from[i]),
            None => rest.next(),
        })
        .collect();
    Ok(Out::Tensor(permuted(x, &order)))
}

fn flatten(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let (start, end) = (dims::one(1, args.int(1)?, x.rank())?, dims::one(2, args.int(2)?, x.rank())?);
    if x.rank() == 0 {
        return reshaped(rt, x, &[1]).map(Out::Tensor);
    }
    if start > end {
        let message = format!("`flatten` from dimension {start} to {end}");
        return Err(error::bad_value(2, message, "`start_dim` must not come after `end_dim`"));
    }
    // As in PyTorch, the tensor itself: a leaf stays a leaf.
    if start == end {
        return Ok(Out::Tensor(x.clone()));
    }
    let mut shape = Dims::from_slice(&x.shape()[..start]);
    shape.push(x.shape()[start..=end].iter().product());
    shape.extend_from_slice(&x.shape()[end + 1..]);
    reshaped(rt, x, &shape).map(Out::Tensor)
}

fn unflatten(_: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim("unflatten", x, 1, args.int(1)?)?;
    let sizes = args.ints(2).unwrap_or(&[]);
    let sizes = resolve_count(x.shape()[dim], sizes, || error::extents_differ(x, dim, sizes))?;
    if x.rank() - 1 + sizes.len() > MAX_RANK {
        return Err(error::too_many_dims(x.rank() - 1 + sizes.len()));
    }
    let mut shape = x.shape().clone();
    shape.remove(dim);
    shape.insert_from_slice(dim, &sizes);
    let Some(layout) = x.layout().view(&shape) else { return Err(error::cannot_view(x, &shape)) };
    Ok(Out::Tensor(x.with_layout(layout)))
}

fn narrow(_: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim("narrow", x, 1, args.int(1)?)?;
    let extent = x.shape()[dim];
    let (start, length) = (args.int(2)?, args.int(3)?);
    let from = if start < 0 { start.checked_add(extent as i64) } else { Some(start) };
    let from = from.and_then(|s| usize::try_from(s).ok()).filter(|&s| s <= extent);
    let Some(from) = from else { return Err(error::index_out_of_range(2, start, dim, extent)) };
    match usize::try_from(length) {
        Ok(length) if length <= extent - from => Ok(Out::Tensor(narrowed(x, dim, from, length))),
        _ => {
            let message =
                format!("{length} positions from {from} on do not fit in a dimension of size {extent}");
            Err(error::bad_value(3, message, format!("write at most {}", extent - from)))
        }
    }
}
