//! Joining, repeating and reversing: `cat`, `stack`, `repeat`, `flip`, `roll`.

use super::composed::{apart, call, expand, narrow, reshape, t};
use super::gradient::joined;
use super::index::{as_positions, pick};
use super::known;
use super::params::{FIRST_DIM, X};
use super::shape::{MAX_RANK, expanded, narrowed, needs_dim, reshaped, selected, unsqueezed};
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, assertion, dims, error, make};
use crate::array::{
    Dims, Dtype, Layout, Operand, Scalar, Strides, element_count, joined_layout, result_type, stacked_layout,
};
use crate::base::Result;
use crate::plan::{MOST_JOINED, Runtime, Turn};
use crate::tensor::Tensor;
use smallvec::SmallVec;

const TENSORS: Param = Param::new("tensors", Kind::Tensors);

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "cat",
        aliases: &["concat", "concatenate"],
        doc: "Joins tensors along a dimension. Other extents must be equal; dtypes promote; all tensors are on one \
              device. Source: `torch.cat`.",
        search: &["concatenate", "join", "append", "concat"],
        params: &[TENSORS, FIRST_DIM],
        form: Form::FUNCTION,
        example: "assert(equal(cat([tensor([1, 2]), tensor([3])]), [1, 2, 3]))\n\
                  assert(cat([zeros(2, 3), zeros(2, 4)], dim=1).shape == (2, 7))",
        run: Run::Primitive(cat),
        shape: known::CAT,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| joined::cat(b, b.dim(1, b.g().rank()))),
        ..Op::BASE
    },
    Op {
        name: "stack",
        doc: "Joins tensors of one shape along a new dimension. Source: `torch.stack`.",
        search: &["join", "batch", "new dimension"],
        params: &[TENSORS, FIRST_DIM],
        form: Form::FUNCTION,
        example: "assert(equal(stack([tensor([1, 2]), tensor([3, 4])]), [[1, 2], [3, 4]]))\n\
                  assert(equal(stack([tensor([1, 2]), tensor([3, 4])], dim=1), [[1, 3], [2, 4]]))",
        run: Run::Primitive(stack),
        shape: known::STACK,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            for i in 0..b.shapes(0).len() {
                b.to_element(0, i, || b.g().call("select", &[b.arg(1), Arg::Int(i as i64)]));
            }
        }),
        ..Op::BASE
    },
    Op {
        name: "hstack",
        doc: "Joins tensors side by side: along the second dimension, or the first for vectors. Source: \
              `torch.hstack`.",
        search: &["join", "columns", "concatenate"],
        params: &[TENSORS],
        form: Form::FUNCTION,
        example: "assert(equal(hstack([tensor([1]), tensor([2, 3])]), [1, 2, 3]))",
        run: Run::Primitive(|rt, args| {
            let tensors = raised(args.tensors(0)?, 1)?;
            let dim = i64::from(tensors.first().is_some_and(|t| t.rank() > 1));
            cat(rt, &Args(&[Arg::Tensors(tensors), Arg::Int(dim)]))
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| joined::cat(b, i64::from(b.g().rank() > 1))),
        ..Op::BASE
    },
    Op {
        name: "vstack",
        aliases: &["row_stack"],
        doc: "Joins tensors one below the other: along the first dimension; vectors are rows. \
              Source: `torch.vstack`.",
        search: &["join", "rows", "concatenate"],
        params: &[TENSORS],
        form: Form::FUNCTION,
        example: "assert(equal(vstack([tensor([1, 2]), tensor([3, 4])]), [[1, 2], [3, 4]]))",
        run: Run::Primitive(|rt, args| {
            let tensors = raised(args.tensors(0)?, 2)?;
            cat(rt, &Args(&[Arg::Tensors(tensors), Arg::Int(0)]))
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| joined::cat(b, 0)),
        ..Op::BASE
    },
    Op {
        name: "repeat",
        doc: "Repeats a tensor along each dimension, copying; if there are more repeats than dimensions, dimensions \
              are added in front. Source: `torch.Tensor.repeat`.",
        search: &["tile", "copy", "duplicate", "expand"],
        params: &[X, Param::rest("repeats", Kind::Shape)],
        form: Form::METHOD,
        example: "assert(equal(tensor([1, 2]).repeat(2), [1, 2, 1, 2]))\nassert(zeros(2, 3).repeat(4, 1, 2).shape == (4, 2, 6))",
        run: Run::Primitive(|rt, args| {
            let (x, repeats) = (args.tensor(0)?, args.ints(1).unwrap_or(&[]));
            if repeats.len() < x.rank() {
                let wanted = format!("at most {} dimensions for {} repeats", repeats.len(), repeats.len());
                return Err(error::wrong_rank("repeat", 0, x, &wanted, "give a repeat for every dimension"));
            }
            repeated(rt, x, repeats).map(Out::Tensor)
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, joined::repeat),
        ..Op::BASE
    },
    Op {
        name: "tile",
        doc: "Repeats a tensor along its last dimensions, copying; missing ones count as 1. Source: `torch.tile`.",
        search: &["repeat", "copy", "duplicate"],
        params: &[X, Param::rest("dims", Kind::Shape)],
        form: Form::BOTH,
        example: "assert(equal(tile([[1, 2]], 2), [[1, 2, 1, 2]]))",
        run: Run::Primitive(|rt, args| {
            let (x, given) = (args.tensor(0)?, args.ints(1).unwrap_or(&[]));
            let mut repeats = vec![1; x.rank().saturating_sub(given.len())];
            repeats.extend_from_slice(given);
            repeated(rt, x, &repeats).map(Out::Tensor)
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, joined::repeat),
        ..Op::BASE
    },
    Op {
        name: "repeat_interleave",
        doc: "Repeats each element (or each slice along `dim`) `repeats` times, one after the other: a number, or a \
              vector with a number for each of them. Unless `output_size` is given, the sum of the repeats is read, \
              which waits for the device. Without `repeats` the tensor is a vector of repeat counts, and positions are \
              repeated. Source: `torch.repeat_interleave`.",
        search: &["repeat", "duplicate", "upsample", "expand counts"],
        params: &[
            X,
            Param::or("repeats", Kind::TensorOrNumber, Default::None),
            Param::or("dim", Kind::Int, Default::None),
            Param::named("output_size", Kind::Int, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(tensor([1, 2]).repeat_interleave(2), [1, 1, 2, 2]))\n\
                  assert(equal(repeat_interleave([[1, 2], [3, 4]], [1, 2], dim=0), [[1, 2], [3, 4], [3, 4]]))\n\
                  assert(equal(repeat_interleave([2, 0, 1]), [0, 0, 2]))",
        run: Run::Primitive(repeat_interleave),
        gradient: Gradient::Rule(Keeps::Y, joined::interleaved),
        ..Op::BASE
    },
    Op {
        name: "flip",
        doc: "Reverses the order along the named dimensions. A copy. Source: `torch.flip`.",
        search: &["reverse", "mirror", "backwards"],
        params: &[X, Param::rest("dims", Kind::Dims)],
        form: Form::BOTH,
        example: "assert(equal(tensor([1, 2, 3]).flip(0), [3, 2, 1]))",
        run: Run::Primitive(flip),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().call("flip", &[b.arg(1)]))),
        ..Op::BASE
    },
    Op {
        name: "rot90",
        doc: "Rotates the plane of two dimensions by 90 degrees, `k` times, from the first towards the second of \
              `dims` (0 and 1). Source: `torch.rot90`.",
        search: &["rotate", "turn", "image"],
        params: &[
            X,
            Param::or("k", Kind::Int, Default::Int(1)),
            Param::or("dims", Kind::Dims, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(rot90(tensor([[1, 2], [3, 4]])), [[2, 4], [1, 3]]))",
        run: Run::Composed(rot90),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "fliplr",
        doc: "Reverses the order of columns, the second dimension. Source: `torch.fliplr`.",
        search: &["mirror", "reverse", "flip"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(equal(fliplr(tensor([[1, 2], [3, 4]])), [[2, 1], [4, 3]]))",
        run: Run::Composed(|rt, args| mirrored(rt, "fliplr", args.tensor(0)?, 1)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "flipud",
        doc: "Reverses the order of rows, the first dimension. Source: `torch.flipud`.",
        search: &["mirror", "reverse", "flip"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(equal(flipud(tensor([[1, 2], [3, 4]])), [[3, 4], [1, 2]]))",
        run: Run::Composed(|rt, args| mirrored(rt, "flipud", args.tensor(0)?, 0)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "roll",
        doc: "Shifts elements along dimensions; elements that leave at one end return at the other. Without `dims` the \
              flattened tensor is shifted. A copy. Source: `torch.roll`.",
        search: &["shift", "rotate", "circular", "cyclic"],
        params: &[X, Param::new("shifts", Kind::Dims), Param::or("dims", Kind::Dims, Default::None)],
        form: Form::BOTH,
        example: "assert(equal(tensor([1, 2, 3]).roll(1), [3, 1, 2]))\n\
                  assert(equal(tensor([[1, 2], [3, 4]]).roll(1, 0), [[3, 4], [1, 2]]))",
        run: Run::Primitive(roll),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || {
                let back = b.args().ints(1).unwrap_or(&[]).iter().map(|by| -by).collect();
                b.g().call("roll", &[Arg::Ints(back), b.arg(2)])
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "diff",
        doc: "Returns the differences of neighbours along a dimension, `n` times; first `prepend` is joined before \
              `x`, and `append` after it. Source: `torch.diff`.",
        search: &["difference", "derivative", "delta", "neighbours"],
        params: &[
            X,
            Param::or("n", Kind::Int, Default::Int(1)),
            Param::or("dim", Kind::Int, Default::Int(-1)),
            Param::or("prepend", Kind::Tensor, Default::None),
            Param::or("append", Kind::Tensor, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(diff(tensor([1, 4, 9])), [3, 5]))\n\
                  assert(equal(diff(tensor([1, 4, 9]), prepend=[0], append=[9, 9]), [1, 3, 5, 0, 0]))",
        run: Run::Composed(diff),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "meshgrid",
        doc: "Expands vectors to grids: the i-th result varies along dimension i (`indexing=\"ij\"`), or the first two \
              are swapped (`\"xy\"`). The results are views. Source: `torch.meshgrid`.",
        search: &["grid", "coordinates", "cartesian"],
        params: &[
            Param::rest("tensors", Kind::Tensors),
            Param::named("indexing", Kind::Str, Default::Str("ij")),
        ],
        form: Form::FUNCTION,
        example: "let (x, y) = meshgrid(tensor([1, 2]), tensor([3, 4, 5]))\nassert(x.shape == (2, 3))\n\
                  assert(equal(y[1], [3, 4, 5]))",
        run: Run::Primitive(meshgrid),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

fn cat(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let tensors = args.tensors(0)?;
    let Some(first) = tensors.first() else { return Err(error::nothing_to_join("cat")) };
    let device = rt.common_device("cat", tensors).map_err(|e| e.in_list(0))?;
    // Empty vectors can be joined with anything, as in PyTorch.
    let joined: Vec<(usize, &Tensor)> =
        tensors.iter().enumerate().filter(|(_, t)| t.shape().as_slice() != [0]).collect();
    let Some(&(first_at, model)) = joined.first() else { return joined_nothing(rt, first, tensors) };
    let dim = needs_dim("cat", model, 1, args.int(1)?)?;
    let mut extent = 0usize;
    for &(i, tensor) in &joined {
        let fits = tensor.rank() == model.rank()
            && (0..model.rank()).all(|d| d == dim || tensor.shape()[d] == model.shape()[d]);
        if !fits {
            return Err(error::cannot_join("cat", (first_at, model), (i, tensor), dim).in_list(0));
        }
        extent = extent.saturating_add(tensor.shape()[dim]);
    }
    let dtype = result_type(tensors.iter().map(|t| Operand::Tensor(t.dtype())));
    let mut shape = model.shape().clone();
    shape[dim] = extent;
    if element_count(&shape).is_none_or(|n| n > isize::MAX as usize / 8) {
        return Err(error::bad_value(0, "the joined tensor has too many elements", "join fewer tensors"));
    }
    rt.finish_reductions(tensors)?;
    let order = joined_layout(&shape, joined.iter().map(|(_, tensor)| tensor.layout()));
    if order.is_contiguous() {
        let parts: SmallVec<[&Tensor; 4]> = joined.iter().map(|&(_, tensor)| tensor).collect();
        if let Some(out) = rt.joined("cat", (&parts, dim, false), (&shape, dtype, device))? {
            return Ok(Out::Tensor(out));
        }
    }
    let out = rt.empty_ordered(&order, dtype, device)?;
    let mut at = 0;
    let part = |(_, tensor): (usize, _)| {
        let tensor: &Tensor = tensor;
        let length = tensor.shape()[dim];
        at += length;
        (narrowed(&out, dim, at - length, length), tensor)
    };
    write_parts(rt, "cat", &joined.into_iter().map(part).collect::<Vec<_>>())?;
    Ok(Out::Tensor(out))
}

/// Writes `target[...] = source` for parts that do not overlap.
pub(super) fn write_parts(rt: &mut Runtime, name: &'static str, parts: &[(Tensor, &Tensor)]) -> Result<()> {
    if rt.copy_parts(name, parts)? {
        return Ok(());
    }
    // A pending value is stored directly to its part. These parts come first, because work over another shape would end
    // the value's group.
    let goes_first = |(target, source): &&(Tensor, &Tensor)| {
        rt.is_open(source) && parts.iter().any(|(other, _)| other.shape() != target.shape())
    };
    let (first, then): (Vec<_>, Vec<_>) = parts.iter().partition(goes_first);
    first.into_iter().chain(then).try_for_each(|(target, source)| rt.assign(name, target, source))
}

/// The tensors with at least `rank` dimensions; new ones are added in front.
fn raised(tensors: &[Tensor], rank: usize) -> Result<Vec<Tensor>> {
    let raise = |tensor: &Tensor| {
        let mut tensor = tensor.clone();
        while tensor.rank() < rank {
            tensor = unsqueezed(&tensor, 0)?;
        }
        Ok(tensor)
    };
    tensors.iter().map(raise).collect()
}

/// `cat` when all tensors are empty vectors.
fn joined_nothing(rt: &mut Runtime, first: &Tensor, tensors: &[Tensor]) -> Result<Out> {
    let dtype = result_type(tensors.iter().map(|t| Operand::Tensor(t.dtype())));
    rt.empty(&[0], dtype, first.device()).map(Out::Tensor)
}

fn stack(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let tensors = args.tensors(0)?;
    let Some(first) = tensors.first() else { return Err(error::nothing_to_join("stack")) };
    let device = rt.common_device("stack", tensors).map_err(|e| e.in_list(0))?;
    let dim = dims::one(1, args.int(1)?, first.rank() + 1)?;
    if let Some(i) = tensors.iter().position(|t| t.shape() != first.shape()) {
        return Err(error::cannot_join("stack", (0, first), (i, &tensors[i]), dim).in_list(0));
    }
    let dtype = result_type(tensors.iter().map(|t| Operand::Tensor(t.dtype())));
    let mut shape = unsqueezed(first, dim)?.shape().clone();
    shape[dim] = tensors.len();
    rt.finish_reductions(tensors)?;
    let order = stacked_layout(&shape, dim, tensors.iter().map(Tensor::layout));
    if order.is_contiguous() && tensors.len() <= MOST_JOINED {
        let raised =
            tensors.iter().map(|tensor| unsqueezed(tensor, dim)).collect::<Result<SmallVec<[_; 4]>>>()?;
        let parts: SmallVec<[&Tensor; 4]> = raised.iter().collect();
        if let Some(out) = rt.joined("stack", (&parts, dim, true), (&shape, dtype, device))? {
            return Ok(Out::Tensor(out));
        }
    }
    let out = rt.empty_ordered(&order, dtype, device)?;
    let part = |(i, tensor)| (selected(&out, dim, i), tensor);
    write_parts(rt, "stack", &tensors.iter().enumerate().map(part).collect::<Vec<_>>())?;
    Ok(Out::Tensor(out))
}

/// Makes a single copy of a view with two dimensions for each dimension of `x`: a broadcast one for the repeats, and
/// the dimension itself.
fn repeated(rt: &mut Runtime, x: &Tensor, repeats: &[i64]) -> Result<Tensor> {
    if repeats.len() > MAX_RANK {
        return Err(error::too_many_dims(repeats.len()));
    }
    let repeats = error::shape(1, repeats)?;
    let added = repeats.len() - x.rank().min(repeats.len());
    let mut wide = Layout { shape: Dims::new(), strides: Strides::new(), offset: x.layout().offset };
    let mut shape = Dims::new();
    for (i, &times) in repeats.iter().enumerate() {
        let (extent, stride) = match i.checked_sub(added) {
            Some(d) => (x.shape()[d], x.layout().strides[d]),
            None => (1, 0),
        };
        wide.shape.extend([times, extent]);
        wide.strides.extend([0, stride]);
        shape.push(times.saturating_mul(extent));
    }
    if element_count(&shape).is_none_or(|n| n > isize::MAX as usize / 8) {
        return Err(error::bad_value(1, "the repeated tensor has too many elements", "repeat less often"));
    }
    if let Some(joined) = repeated_in_place(rt, x, &wide, &shape)? {
        return Ok(joined);
    }
    let copy = rt.contiguous_copy(&x.with_layout(wide))?;
    Ok(copy.with_layout(Layout::contiguous(&shape)))
}

/// A few repeats along one dimension, joined: they may be read in place. `wide` has the repeats of each dimension, then the
/// dimension itself; dimensions of extent 1 are broadcast.
fn repeated_in_place(rt: &mut Runtime, x: &Tensor, wide: &Layout, shape: &[usize]) -> Result<Option<Tensor>> {
    let mut part = Layout { shape: shape.into(), strides: Strides::new(), offset: wide.offset };
    let mut repeats = None;
    for (d, pair) in wide.shape.chunks(2).enumerate() {
        let &[times, extent] = pair else { return Ok(None) };
        part.strides.push(if extent == 1 { 0 } else { wide.strides[2 * d + 1] });
        if times != 1 && extent != 1 {
            part.shape[d] = extent;
            if repeats.replace((d, times)).is_some() {
                return Ok(None);
            }
        }
    }
    let Some((dim, times)) = repeats.filter(|&(_, times)| times <= MOST_JOINED) else { return Ok(None) };
    let part = x.with_layout(part);
    let parts: SmallVec<[&Tensor; 4]> = SmallVec::from_elem(&part, times);
    rt.joined("repeat", (&parts, dim, false), (shape, x.dtype(), x.device()))
}

fn repeat_interleave(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "repeat_interleave";
    let given = args.tensor(0)?;
    if !args.is_given(1) {
        if let Some(dim) = args.opt_int(2) {
            return Err(error::bad_value(
                2,
                format!("`dim={dim}` without `repeats`"),
                "write how often to repeat",
            ));
        }
        let each = repeats_of(rt, NAME, 0, given)?;
        let ids = each_at(rt, &each, 0, args.opt_int(3))?;
        return Ok(Out::Tensor(ids));
    }
    let (x, dim) = match args.opt_int(2) {
        Some(dim) => (given.clone(), needs_dim(NAME, given, 2, dim)?),
        None => (reshaped(rt, given, &[given.count()])?, 0),
    };
    let times = match args.opt_tensor(1) {
        Some(repeats) if repeats.count() != 1 || args.is_given(3) => {
            rt.common_device(NAME, [given, repeats])?;
            let each = repeats_of(rt, NAME, 1, repeats)?;
            let extent = x.shape()[dim];
            if each.count() != extent && each.count() != 1 {
                let message = format!("{} repeats for {extent} elements of dimension {dim}", each.count());
                return Err(error::bad_value(1, message, "write one number, or one for each"));
            }
            let each = expanded(NAME, &each, &[extent as i64])?;
            let ids = each_at(rt, &each, 1, args.opt_int(3))?;
            return pick(rt, NAME, &x, dim, &ids).map(Out::Tensor);
        }
        Some(repeats) => {
            let repeats = repeats_of(rt, NAME, 1, repeats)?;
            rt.item(&repeats)?.as_i64()
        }
        None => args.int(1)?,
    };
    let count = usize::try_from(times)
        .map_err(|_| error::bad_value(1, format!("{times} repeats"), "write 0 or more"))?;
    let inner = unsqueezed(&x, dim + 1)?;
    let mut wide: Vec<i64> = inner.shape().iter().map(|&n| n as i64).collect();
    wide[dim + 1] = times;
    let wide = expanded(NAME, &inner, &wide)?;
    let copy = rt.contiguous_copy(&wide)?;
    let mut shape = x.shape().clone();
    shape[dim] = shape[dim].saturating_mul(count);
    Ok(Out::Tensor(copy.with_layout(Layout::contiguous(&shape))))
}

/// A tensor argument of repeat counts, as an `i64` vector.
fn repeats_of(rt: &mut Runtime, name: &'static str, argument: usize, repeats: &Tensor) -> Result<Tensor> {
    if repeats.rank() > 1 {
        return Err(error::wrong_rank(name, argument, repeats, "a vector of repeat counts", "flatten it"));
    }
    let repeats = as_positions(rt, argument, repeats)?;
    reshaped(rt, &repeats, &[repeats.count()])
}

/// Repeats each position by its count: `[2, 0, 1]` gives `[0, 0, 2]`. Without `total`, reads the sum of the
/// counts, which waits.
fn each_at(rt: &mut Runtime, each: &Tensor, argument: usize, total: Option<i64>) -> Result<Tensor> {
    let ends = call(rt, "cumsum", &[t(each), Arg::Int(0)])?;
    let total = match total {
        Some(total) => {
            let fits = adds_up(rt, each, &ends, total)?;
            assertion::holds(rt, &fits, "`output_size` is the sum of the repeats")?;
            total
        }
        None if each.count() == 0 => 0,
        None => {
            let least = call(rt, "amin", &[t(each)])?;
            let last = selected(&ends, 0, each.count() - 1);
            // One wait for both.
            let both = call(rt, "stack", &[Arg::Tensors(vec![least, last])])?;
            let bytes = rt.read(&both)?;
            let (least, last) = bytes.split_at(bytes.len() / 2);
            let [least, last] = [least, last].map(|bytes| Scalar::decode(bytes, Dtype::I64).as_i64());
            if least < 0 {
                return Err(error::bad_value(argument, format!("{least} repeats"), "write 0 or more"));
            }
            last
        }
    };
    let count = usize::try_from(total)
        .map_err(|_| error::bad_value(3, format!("an `output_size` of {total}"), "write 0 or more"))?;
    let positions = make::positions(rt, each.device(), count, 0, 1)?;
    call(rt, "searchsorted", &[t(&ends), t(&positions), Arg::Bool(false), Arg::Bool(true)])
}

/// Whether counts, none of them negative, add up to `total`. The last of `ends` is their sum.
fn adds_up(rt: &mut Runtime, each: &Tensor, ends: &Tensor, total: i64) -> Result<Tensor> {
    if each.count() == 0 {
        return make::filled(rt, &[], Dtype::Bool, each.device(), Scalar::Bool(total == 0));
    }
    let least = call(rt, "amin", &[t(each)])?;
    let counts = call(rt, "ge", &[t(&least), Arg::Int(0)])?;
    let equal = call(rt, "eq", &[t(&selected(ends, 0, each.count() - 1)), Arg::Int(total)])?;
    call(rt, "logical_and", &[t(&counts), t(&equal)])
}

fn flip(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let mut turns = vec![Turn::default(); x.rank()];
    if let Some(named) = args.ints(1).filter(|named| !named.is_empty()) {
        for dim in dims::many(1, Some(named), x.rank())? {
            turns[dim] = Turn::flip(x.shape()[dim]);
        }
    }
    // The result keeps the memory order, and `turned` gives row-major ones.
    let kept = x.layout().kept();
    let Some(order) = kept.outermost_first() else {
        return rt.turned("flip", x, &turns).map(Out::Tensor);
    };
    let turns: Vec<Turn> = order.iter().map(|&dim| turns[dim]).collect();
    let rows = x.with_layout(x.layout().permute(&order));
    let turned = rt.turned("flip", &rows, &turns)?;
    Ok(Out::Tensor(turned.with_layout(kept)))
}

fn roll(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let shifts = args.ints(1).unwrap_or(&[]);
    let Some(named) = args.ints(2).filter(|d| !d.is_empty()) else {
        let [shift] = shifts else {
            let message = format!("{} shifts without dimensions", shifts.len());
            return Err(error::bad_value(1, message, "name a dimension for each shift: `dims=`"));
        };
        let flat = reshaped(rt, x, &[x.count()])?;
        let rolled = rolled(rt, &flat, *shift, 0)?;
        return reshaped(rt, &rolled, x.shape()).map(Out::Tensor);
    };
    if named.len() != shifts.len() {
        let message = format!("{} shifts for {} dimensions", shifts.len(), named.len());
        return Err(error::bad_value(1, message, "give a shift for each dimension"));
    }
    let mut turns = vec![Turn::default(); x.rank()];
    for (&shift, &dim) in shifts.iter().zip(named) {
        let dim = needs_dim("roll", x, 2, dim)?;
        let extent = x.shape()[dim];
        turns[dim] = Turn::roll(shift, extent).after(turns[dim], extent);
    }
    rt.turned("roll", x, &turns).map(Out::Tensor)
}

/// Rolls a tensor: elements move towards the end of a dimension and wrap around.
pub(super) fn rolled(rt: &mut Runtime, x: &Tensor, shift: i64, dim: usize) -> Result<Tensor> {
    let mut turns = vec![Turn::default(); x.rank()];
    turns[dim] = Turn::roll(shift, x.shape()[dim]);
    rt.turned("roll", x, &turns)
}

fn diff(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let mut x = args.tensor(0)?.clone();
    let dim = needs_dim("diff", &x, 2, args.int(2)?)?;
    let times = args.int(1)?;
    if times < 0 {
        return Err(error::bad_value(1, format!("{times} times"), "write 0 or more"));
    }
    for (at, other) in [3, 4].into_iter().filter_map(|at| Some((at, args.opt_tensor(at)?))) {
        let fits = |d: usize| d == dim || other.shape()[d] == x.shape()[d];
        if other.rank() != x.rank() || !(0..x.rank()).all(fits) {
            return Err(error::cannot_join("diff", (0, args.tensor(0)?), (at, other), dim));
        }
    }
    if times > 0 && (args.is_given(3) || args.is_given(4)) {
        let joined = [args.opt_tensor(3), Some(&x), args.opt_tensor(4)];
        let joined: Vec<Tensor> = joined.into_iter().flatten().cloned().collect();
        rt.common_device("diff", &joined)
            .map_err(|e| e.reorder(if args.is_given(3) { &[3, 0, 4] } else { &[0, 4] }))?;

        x = call(rt, "cat", &[Arg::Tensors(joined), Arg::Int(dim as i64)])?;
    }
    let differ = if x.dtype() == Dtype::Bool { "logical_xor" } else { "sub" };
    for _ in 0..times {
        let Some(rest) = x.shape()[dim].checked_sub(1) else { break };
        let (after, before) = (narrow(rt, &x, dim, 1, rest)?, narrow(rt, &x, dim, 0, rest)?);
        x = call(rt, differ, &[t(&after), t(&before)])?;
    }
    apart(rt, args.tensor(0)?, x).map(Out::Tensor)
}

fn mirrored(rt: &mut Runtime, name: &str, x: &Tensor, dim: usize) -> Result<Out> {
    if x.rank() <= dim {
        let wanted = if dim == 0 { "at least one dimension" } else { "at least two dimensions" };
        return Err(error::wrong_rank(name, 0, x, wanted, "give it one: `x.unsqueeze(0)`"));
    }
    call(rt, "flip", &[t(x), Arg::Ints(vec![dim as i64])]).map(Out::Tensor)
}

fn rot90(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let given = args.ints(2).unwrap_or(&[0, 1]);
    let &[from, to] = given else {
        return Err(error::bad_value(
            2,
            format!("{} dimensions", given.len()),
            "a plane has two: `dims=[0, 1]`",
        ));
    };
    let (from, to) = (needs_dim("rot90", x, 2, from)?, needs_dim("rot90", x, 2, to)?);
    if from == to {
        return Err(error::dim_twice(2, from));
    }
    let flip = |rt: &mut Runtime, dims: &[usize]| {
        call(rt, "flip", &[t(x), Arg::Ints(dims.iter().map(|&dim| dim as i64).collect())])
    };
    let turn = |rt: &mut Runtime, dim: usize| {
        let flipped = flip(rt, &[dim])?;
        call(rt, "transpose", &[t(&flipped), Arg::Int(from as i64), Arg::Int(to as i64)])
    };
    let found = match args.int(1)?.rem_euclid(4) {
        0 => {
            let rows = call(rt, "contiguous", &[t(x)])?;
            if rows.same(x) { call(rt, "clone", &[t(x)])? } else { rows }
        }
        1 => turn(rt, to)?,
        2 => flip(rt, &[from, to])?,
        _ => turn(rt, from)?,
    };
    Ok(Out::Tensor(found))
}

fn meshgrid(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let tensors = args.tensors(0)?;
    rt.common_device("meshgrid", tensors).map_err(|e| e.in_list(0))?;
    let swap = match args.text(1) {
        Some("xy") => tensors.len() > 1,
        None | Some("ij") => false,
        Some(other) => return Err(error::not_one_of(1, "indexing", other, &["ij", "xy"])),
    };
    if let Some((i, x)) = tensors.iter().enumerate().find(|(_, t)| t.rank() > 1) {
        let help = "flatten it first: `x.flatten()`";
        return Err(error::wrong_rank("meshgrid", i, x, "vectors", help).in_list(0));
    }
    let mut shape: Vec<usize> = tensors.iter().map(|t| t.count()).collect();
    if swap {
        shape.swap(0, 1);
    }
    let mut grids = Vec::new();
    for (i, tensor) in tensors.iter().enumerate() {
        let at = if swap && i < 2 { 1 - i } else { i };
        let mut column = vec![1usize; tensors.len()];
        column[at] = tensor.count();
        let column = reshape(rt, tensor, &column)?;
        grids.push(expand(rt, &column, &shape)?);
    }
    Ok(Out::Tuple(grids))
}
