//! Splitting into views: `split`, `chunk`, `tensor_split`, `unbind`.

use super::gradient::joined;
use super::params::{FIRST_DIM, X};
use super::shape::{narrowed, needs_dim, selected};
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "split",
        doc: "Splits a dimension into parts of one size (the last may be smaller), or of the sizes in a list. The \
              parts are views. Source: `torch.split`.",
        search: &["cut", "divide", "parts", "chunk"],
        params: &[X, Param::new("sizes", Kind::Dims), FIRST_DIM],
        form: Form::BOTH,
        example: "let (a, b) = tensor([1, 2, 3]).split(2)\nassert(equal(a, [1, 2]))\nassert(equal(b, [3]))\n\
                  let (c, d) = tensor([1, 2, 3]).split([1, 2])\nassert(equal(d, [2, 3]))",
        run: Run::Primitive(split),
        gradient: Gradient::Rule(Keeps::NOTHING, joined::parts),
        ..Op::BASE
    },
    Op {
        name: "chunk",
        doc: "Splits a dimension into `chunks` parts of equal size, the last smaller; there may be fewer parts. The \
              parts are views. Source: `torch.chunk`.",
        search: &["cut", "divide", "parts", "split"],
        params: &[X, Param::new("chunks", Kind::Int), FIRST_DIM],
        form: Form::BOTH,
        example: "let (a, b) = tensor([1, 2, 3, 4]).chunk(2)\nassert(equal(b, [3, 4]))",
        run: Run::Primitive(chunk),
        gradient: Gradient::Rule(Keeps::NOTHING, joined::parts),
        ..Op::BASE
    },
    Op {
        name: "tensor_split",
        doc: "Splits a dimension into a number of parts, of which the first ones may be longer by one, or before each \
              position in a list. An i64 tensor may hold either; it is read, which waits. The parts are views. Source: \
              `torch.tensor_split`.",
        search: &["cut", "divide", "parts", "array_split"],
        params: &[X, Param::new("indices_or_sections", Kind::Any), FIRST_DIM],
        form: Form::BOTH,
        example: "let (a, b) = tensor([1, 2, 3]).tensor_split(2)\nassert(equal(a, [1, 2]))\n\
                  let (c, d, e) = arange(5).tensor_split([1, 3])\nassert(equal(d, [1, 2]))",
        run: Run::Primitive(tensor_split),
        gradient: Gradient::Rule(Keeps::Y, joined::parts),
        ..Op::BASE
    },
    Op {
        name: "unbind",
        doc: "Returns the slices along a dimension, which is dropped, as a tuple of views. Source: `torch.unbind`.",
        search: &["slices", "rows", "unstack", "iterate"],
        params: &[X, FIRST_DIM],
        form: Form::BOTH,
        example: "let (a, b) = tensor([[1, 2], [3, 4]]).unbind()\nassert(equal(b, [3, 4]))",
        run: Run::Primitive(unbind),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || {
                let all = (0..b.results()).filter_map(|i| b.g_of(i).get().cloned()).collect();
                b.op("stack", &[Arg::Tensors(all), b.arg(1)])
            });
        }),
        ..Op::BASE
    },
];

/// Views of the given lengths, which add up to the extent.
fn parts(rt: &mut Runtime, x: &Tensor, dim: usize, lengths: impl IntoIterator<Item = usize>) -> Result<Out> {
    let mut at = 0;
    let part = |length| {
        let part = narrowed(x, dim, at, length);
        at += length;
        part
    };
    views(rt, lengths.into_iter().map(part))
}

/// A tuple of views. There may be as many as elements, so this respects the limits.
fn views(rt: &mut Runtime, views: impl Iterator<Item = Tensor>) -> Result<Out> {
    /// Approximate bytes of a view and its script value.
    const BYTES: usize = 160;
    /// Number of views between two checks of the limits.
    const VIEWS_PER_CHECK: usize = 256;
    let mut all = Vec::new();
    for view in views {
        if all.len() % VIEWS_PER_CHECK == 0 {
            rt.spend(VIEWS_PER_CHECK.min(all.len() + 1))?;
            rt.check_host_room(all.len().saturating_mul(BYTES))?;
        }
        crate::driver::error::paced(16)?;
        all.push(view);
    }
    Ok(Out::Tuple(all))
}

/// The lengths of equal parts.
fn equal_parts(extent: usize, size: usize) -> impl Iterator<Item = usize> {
    let count = if extent == 0 { 1 } else { extent.div_ceil(size.max(1)) };
    (0..count).map(move |i| size.min(extent - i * size))
}

fn split(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim("split", x, 2, args.int(2)?)?;
    let extent = x.shape()[dim];
    let sizes = args.ints(1).unwrap_or(&[]);
    if let Arg::Int(size) = args.get(1) {
        return match usize::try_from(*size) {
            Ok(size) if size > 0 || extent == 0 => parts(rt, x, dim, equal_parts(extent, size)),
            _ => Err(error::bad_value(1, format!("parts of size {size}"), "write a size of 1 or more")),
        };
    }
    let lengths: Option<Vec<usize>> = sizes.iter().map(|&s| usize::try_from(s).ok()).collect();
    let total = |lengths: &Vec<usize>| lengths.iter().try_fold(0usize, |a, &b| a.checked_add(b));
    match lengths.filter(|l| total(l) == Some(extent)) {
        Some(lengths) => parts(rt, x, dim, lengths),
        None => Err(error::does_not_add_up("split", x, sizes, dim)),
    }
}

fn chunk(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim("chunk", x, 2, args.int(2)?)?;
    let extent = x.shape()[dim];
    let chunks = match usize::try_from(args.int(1)?) {
        Ok(chunks) if chunks > 0 => chunks,
        _ => return Err(error::bad_value(1, format!("{} chunks", args.int(1)?), "write 1 or more")),
    };
    if extent == 0 {
        return parts(rt, x, dim, std::iter::repeat_n(0, chunks.min(MOST_PARTS)));
    }
    parts(rt, x, dim, equal_parts(extent, extent.div_ceil(chunks)))
}

/// The ints of an `i64` tensor of at most one dimension. A tensor without dimensions is read as an int.
fn ints_of(rt: &mut Runtime, index: usize, x: &Tensor) -> Result<Arg> {
    if x.dtype() != Dtype::I64 {
        return Err(error::wrong_tensor(index, "i64", x, "convert it: `.to(i64)`"));
    }
    if x.rank() == 0 {
        return Ok(Arg::Int(rt.item(x)?.as_i64()));
    }
    if x.rank() > 1 {
        return Err(error::wrong_rank("tensor_split", index, x, "a number or a vector", "flatten it"));
    }
    let bytes = rt.read(x)?;
    Ok(Arg::Ints(bytes.chunks_exact(8).map(|b| Scalar::decode(b, Dtype::I64).as_i64()).collect()))
}

fn tensor_split(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim("tensor_split", x, 2, args.int(2)?)?;
    let extent = x.shape()[dim];
    let given = match args.get(1) {
        Arg::Tensor(given) => ints_of(rt, 1, given)?,
        given @ (Arg::Int(_) | Arg::Ints(_)) => given.clone(),
        _ => return Err(error::wrong_argument(1, "an int, a list of ints or a tensor of them")),
    };
    if let Arg::Int(sections) = &given {
        let Some(count) = usize::try_from(*sections).ok().filter(|n| (1..=MOST_PARTS).contains(n)) else {
            let help = format!("write 1 to {MOST_PARTS}");
            return Err(error::bad_value(1, format!("{sections} sections"), help));
        };
        let longer = extent % count;
        return parts(rt, x, dim, (0..count).map(|i| extent / count + usize::from(i < longer)));
    }
    let cuts = cuts_of(rt, &given, extent)?;
    let mut from = 0;
    let part = |to: usize| {
        let start = std::mem::replace(&mut from, to);
        narrowed(x, dim, start.min(to), to.saturating_sub(start))
    };
    views(rt, cuts.into_iter().map(part))
}

/// The ends of the parts that start at the given positions, and the extent.
pub(super) fn cuts_of(rt: &mut Runtime, given: &Arg, extent: usize) -> Result<Vec<usize>> {
    let given = if let Arg::Tensor(given) = given { ints_of(rt, 1, given)? } else { given.clone() };
    let clamp = |at: i64| {
        let at = if at < 0 { at.saturating_add(extent as i64) } else { at };
        usize::try_from(at).map_or(0, |at| at.min(extent))
    };
    let places = if let Arg::Ints(places) = &given { places.as_slice() } else { &[] };
    let mut cuts: Vec<usize> = places.iter().map(|&at| clamp(at)).collect();
    cuts.push(extent);
    Ok(cuts)
}

/// The maximum number of empty parts.
const MOST_PARTS: usize = 1 << 16;

fn unbind(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim("unbind", x, 1, args.int(1)?)?;
    views(rt, (0..x.shape()[dim]).map(|i| selected(x, dim, i)))
}
