//! Padding.
//!
//! Note [Padding]. [`PADDED`] is a tensor with a number or copies of its elements beside it, which later work reads without
//! storing it (Note [Padded values] in `plan/pad.rs`). The gradient for a number is a slice. That for copies, [`FOLDED`],
//! takes one launch per dimension over few elements, in reverse order: it adds both ends to the middle. Each is the other's
//! gradient. Where many elements are added to others, and for complex numbers, the elements are gathered instead.

use super::composed::{call, narrow, t};
use super::formula::formula;
use super::gradient::Var;
use super::shape::narrowed;
use super::{Arg, Args, Call, Gradient, Keeps, Op, Out, Run, apply, arith, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::kernel::{Instr, Map, Source, Store};
use crate::plan::error::check_number;
use crate::plan::{Beyond, Padding, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// Maximum number of elements beside a dimension whose gradients are added in place; more are gathered.
const MOST_COPIED: usize = 16;
/// Maximum number of additions in a launch.
const MOST_PAIRS: usize = 8;

/// `padded(x, sizes, mode, value)`: three sizes for each padded dimension: its number, and the elements before and after.
static PADDED: Op = Op {
    name: "pad",
    run: Run::Primitive(|rt, args| {
        let x = args.tensor(0)?;
        let beyond = match args.text(2).unwrap_or("replicate") {
            "constant" => Beyond::Number(number(args.get(3)).unwrap_or(Scalar::Int(0))),
            "replicate" => Beyond::Nearest,
            "reflect" => Beyond::Mirrored,
            _ => Beyond::Wrapped,
        };
        let mut padding = Padding { sizes: SmallVec::from_elem([0, 0], x.rank()), beyond };
        for one in Added::of(args)? {
            padding.sizes[one.dim] = [one.before, one.after];
        }
        rt.padded("pad", x, &padding).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || {
            if b.args().text(2).unwrap_or("") != "constant" {
                return b.call(&FOLDED, &[b.g().arg(), b.arg(1), b.arg(2)]);
            }
            let (mut inner, shape) = (b.g(), b.shape(0));
            for sizes in b.args().ints(1).unwrap_or(&[]).chunks_exact(3) {
                let length = shape.get(sizes[0] as usize).copied().unwrap_or(0);
                inner = inner.call("narrow", &[sizes[0], sizes[1], length].map(Arg::Int));
            }
            inner
        });
    }),
    ..Op::BASE
};

/// `folded(g, sizes, mode)`: adds the elements of each end to those of which they are copies, and removes the ends.
static FOLDED: Op = Op {
    name: "pad",
    run: Run::Primitive(|rt, args| {
        let (g, added) = (args.tensor(0)?, Added::of(args)?);
        let mut left = rt.contiguous_copy(g)?;
        for one in added.iter().rev() {
            one.pairs(&left).chunks(MOST_PAIRS).try_for_each(|pairs| add(rt, &left, one.dim, pairs))?;
            left = one.middle(&left);
        }
        rt.contiguous_copy(&left).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || b.call(&PADDED, &[b.g().arg(), b.arg(1), b.arg(2), Arg::None]));
    }),
    ..Op::BASE
};

/// The elements added to a dimension.
struct Added<'a> {
    mode: &'a str,
    dim: usize,
    before: usize,
    after: usize,
}

impl<'a> Added<'a> {
    /// The additions that the arguments of [`PADDED`] state.
    fn of(args: &'a Args<'a>) -> Result<SmallVec<[Added<'a>; 4]>> {
        let (sizes, mode) = (args.ints(1).unwrap_or(&[]), args.text(2).unwrap_or("replicate"));
        let size = |n: i64| usize::try_from(n).map_err(|_| error::wrong_argument(1, "sizes"));
        let one = |sizes: &[i64]| {
            Ok(Added { mode, dim: size(sizes[0])?, before: size(sizes[1])?, after: size(sizes[2])? })
        };
        sizes.chunks_exact(3).map(one).collect()
    }

    /// The part of a padded tensor that lies between the ends.
    fn middle(&self, whole: &Tensor) -> Tensor {
        let length = whole.shape()[self.dim] - self.before - self.after;
        narrowed(whole, self.dim, self.before, length)
    }

    /// The places of a padded dimension that are copies, each with the place that it copies.
    fn pairs(&self, whole: &Tensor) -> SmallVec<[[usize; 2]; MOST_COPIED]> {
        let whole = whole.shape()[self.dim];
        let (first, end) = (self.before, whole - self.after);
        let from = |to: usize| match (self.mode, to < first) {
            ("replicate", true) => first,
            ("replicate", false) => end - 1,
            ("reflect", true) => 2 * first - to,
            ("reflect", false) => 2 * (end - 1) - to,
            (_, true) => to + end - first,
            (_, false) => to + first - end,
        };
        (0..first).chain(end..whole).map(|to| [to, from(to)]).collect()
    }
}

/// A real number that an argument gives.
fn number(arg: &Arg) -> Option<Scalar> {
    match *arg {
        Arg::Int(value) => Some(Scalar::Int(value)),
        Arg::Float(value) => Some(Scalar::Float(value)),
        Arg::Bool(value) => Some(Scalar::Bool(value)),
        _ => None,
    }
}

/// Adds places of a dimension to others.
fn add(rt: &mut Runtime, x: &Tensor, dim: usize, pairs: &[[usize; 2]]) -> Result<()> {
    let mut sums: SmallVec<[usize; MOST_PAIRS]> = pairs.iter().map(|&[_, from]| from).collect();
    sums.sort_unstable();
    sums.dedup();
    let places: Vec<(usize, bool)> =
        sums.iter().map(|&sum| (sum, true)).chain(pairs.iter().map(|&[to, _]| (to, false))).collect();
    let mut registers: SmallVec<[u16; MOST_PAIRS]> = (0..sums.len() as u16).collect();
    let mut instrs = Vec::new();
    for (i, &[_, from]) in pairs.iter().enumerate() {
        let Some(sum) = sums.iter().position(|&sum| sum == from) else { continue };
        let args = [registers[sum], (sums.len() + i) as u16].into_iter().collect();
        registers[sum] = (places.len() + instrs.len()) as u16;
        instrs.push(Instr { f: &arith::ADD, args, class: x.dtype().class(), dtype: x.dtype() });
    }
    let map = Map {
        sources: (0..places.len()).map(|view| Source::Load { view: view as u16, dtype: x.dtype() }).collect(),
        instrs,
        stores: registers.iter().enumerate().map(|(view, &reg)| Store { reg, view: view as u16 }).collect(),
    };
    submit(rt, &map, (x, dim), places.into_iter())
}

/// Launches a map over places of a dimension; `true` for those that it writes.
fn submit(
    rt: &mut Runtime,
    map: &Map,
    (x, dim): (&Tensor, usize),
    places: impl Iterator<Item = (usize, bool)>,
) -> Result<()> {
    let tensors: Vec<(Tensor, bool)> = places.map(|(at, write)| (narrowed(x, dim, at, 1), write)).collect();
    let Some((first, _)) = tensors.first() else { return Ok(()) };
    let views = tensors.iter().map(|(tensor, write)| SubmittedView {
        tensor,
        strides: tensor.layout().strides.clone(),
        write: *write,
    });
    let (shape, views) = (first.shape().clone(), views.collect());
    rt.submit(Submission { name: "pad", kind: map, shape, views, axis: 0, limit: 0 })
}

pub(super) fn pad(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, sizes) = (args.tensor(0)?, args.ints(1).unwrap_or(&[]));
    let mode = args.text(2).unwrap_or("constant");
    if !["constant", "reflect", "replicate", "circular"].contains(&mode) {
        return Err(error::not_one_of(2, "mode", mode, &["constant", "reflect", "replicate", "circular"]));
    }
    if !sizes.len().is_multiple_of(2) || sizes.len() / 2 > x.rank() {
        let message = format!("{} sizes for a tensor of {} dimensions", sizes.len(), x.rank());
        return Err(error::bad_value(1, message, "write two sizes per dimension, the last dimension first"));
    }
    if mode != "constant" && args.is_given(3) {
        return Err(error::bad_value(3, format!("`value` beside `mode=\"{mode}\"`"), "leave it out"));
    }
    if mode == "replicate" && !keeps_some(x, sizes) {
        let mut out = x.clone();
        for (i, pair) in sizes.chunks_exact(2).enumerate().filter(|(_, pair)| **pair != [0, 0]) {
            out = replicated(rt, &out, x.rank() - 1 - i, [pair[0], pair[1]])?;
        }
        return if out.same(x) { call(rt, "clone", &[t(x)]).map(Out::Tensor) } else { Ok(Out::Tensor(out)) };
    }
    let is_mixed = |pair: &[i64]| pair.iter().any(|&size| size < 0) && pair.iter().any(|&size| size > 0);
    if mode == "reflect" && sizes.chunks_exact(2).any(is_mixed) {
        // Elements that a size removes are still reflected on the other side.
        let part = |from: fn(i64) -> i64| Arg::Ints(sizes.iter().map(|&size| from(size)).collect());
        let grown = call(rt, "pad", &[t(x), part(|size| size.max(0)), Arg::Str(mode.into())])?;
        return call(rt, "pad", &[t(&grown), part(|size| size.min(0))]).map(Out::Tensor);
    }
    let mut inner = x.clone();
    let mut around: Vec<(usize, [usize; 2])> = Vec::new();
    for (i, pair) in sizes.chunks_exact(2).enumerate() {
        let dim = x.rank() - 1 - i;
        let cut = |size: i64| usize::try_from(size.saturating_neg()).unwrap_or(0);
        let (before, after, extent) = (cut(pair[0]), cut(pair[1]), x.shape()[dim]);
        let Some(length) = extent.checked_sub(before).and_then(|n| n.checked_sub(after)) else {
            let message = format!("dimension {dim} has {extent} elements, fewer than are removed");
            return Err(error::bad_value(1, message, "write smaller sizes"));
        };
        if length < extent {
            inner = narrow(rt, &inner, dim, before, length)?;
        }
        let added = |size: i64| usize::try_from(size).unwrap_or(0);
        around.push((dim, [added(pair[0]), added(pair[1])]));
    }
    around.retain(|(_, added)| added.iter().any(|&n| n > 0));
    if around.is_empty() {
        return call(rt, "clone", &[t(&inner)]).map(Out::Tensor);
    }
    match mode {
        "constant" => {
            let (mut shape, mut starts) = (inner.shape().to_vec(), vec![0; inner.rank()]);
            for &(dim, [before, after]) in &around {
                shape[dim] = shape[dim].saturating_add(before).saturating_add(after);
                starts[dim] = before;
            }
            let value = if args.is_given(3) { args.get(3).clone() } else { Arg::Int(0) };
            if args.is_given(3) {
                // The padding is a float as in PyTorch, so -1 does not fit `u8`.
                check_number(3, Scalar::Float(args.float(3)?), x.dtype())?;
            }
            // Channels-last images stay so, as in PyTorch: dimension 1 is the last one in memory.
            let is_last = x.layout().is_channels_last();
            if !is_last && inner.count() > 0 && !x.dtype().is_complex() && number(&value).is_some() {
                return padded(rt, &inner, &around, mode, value);
            }
            if is_last {
                shape[1..].rotate_left(1);
            }
            let shape: Vec<i64> = shape.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect();
            let whole = [Arg::Ints(shape), value, Arg::Dtype(x.dtype()), Arg::Device(x.device())];
            let mut whole = call(rt, "full", &whole)?;
            if is_last {
                whole = call(rt, "movedim", &[t(&whole), Arg::Int(-1), Arg::Int(1)])?;
            }
            let mut place = whole.clone();
            for (dim, &start) in starts.iter().enumerate() {
                place = narrow(rt, &place, dim, start, inner.shape()[dim])?;
            }
            call(rt, "copy_", &[t(&place), t(&inner)])?;
            Ok(Out::Tensor(whole))
        }
        _ => {
            let is_few =
                around.iter().all(|(_, [before, after])| before.saturating_add(*after) <= MOST_COPIED);
            // The sum of complex numbers is not one instruction of a program.
            if is_few && inner.count() > 0 && !x.dtype().is_complex() {
                around.iter().try_for_each(|&(dim, added)| check_sizes(&inner, mode, dim, added))?;
                return padded(rt, &inner, &around, mode, Arg::None);
            }
            for (dim, added) in around {
                inner = mirrored(rt, &inner, mode, dim, added)?;
            }
            Ok(Out::Tensor(inner))
        }
    }
}

/// Calls [`PADDED`].
fn padded(
    rt: &mut Runtime,
    x: &Tensor,
    around: &[(usize, [usize; 2])],
    mode: &str,
    value: Arg,
) -> Result<Out> {
    let flat = around.iter().flat_map(|&(dim, added)| [dim, added[0], added[1]]);
    let sizes = Arg::Ints(flat.map(|n| i64::try_from(n).unwrap_or(i64::MAX)).collect());
    apply(rt, &PADDED, Call::Plain(Args(&[t(x), sizes, Arg::Str(mode.into()), value])))
}

/// True when each dimension has elements, and keeps some of them where sizes are negative.
fn keeps_some(x: &Tensor, sizes: &[i64]) -> bool {
    let extents = x.shape().iter().rev().zip(sizes.chunks_exact(2));
    extents.into_iter().all(|(&extent, pair)| {
        let cut = |size: i64| usize::try_from(size.saturating_neg()).unwrap_or(0);
        extent > cut(pair[0]).saturating_add(cut(pair[1]))
    })
}

/// Checks that a dimension has the elements that a mode adds beside it.
fn check_sizes(x: &Tensor, mode: &str, dim: usize, added: [usize; 2]) -> Result<()> {
    let extent = x.shape()[dim];
    let most = match mode {
        "replicate" => return Ok(()),
        "reflect" => extent.saturating_sub(1),
        _ => extent,
    };
    match added.into_iter().find(|&size| size > most) {
        Some(size) => {
            let message = format!("{size} elements beside dimension {dim} of {extent}");
            Err(error::bad_value(1, message, format!("`mode=\"{mode}\"` adds at most {most}")))
        }
        None => Ok(()),
    }
}

/// Pads a dimension with copies of its own elements.
fn mirrored(rt: &mut Runtime, x: &Tensor, mode: &str, dim: usize, added: [usize; 2]) -> Result<Tensor> {
    check_sizes(x, mode, dim, added)?;
    let extent = x.shape()[dim];
    let last = extent as i64 - 1;
    taken(rt, x, dim, added.map(|n| n as i64), |at| match mode {
        "replicate" => at.call("clamp", &[Arg::Int(0), Arg::Int(last)]),
        "reflect" => ((at.unary("abs") - last).unary("abs") - last).unary("neg"),
        _ => at.call("remainder", &[Arg::Int(last + 1)]),
    })
}

/// Repeats the first and the last element of a dimension; negative sizes remove elements.
fn replicated(rt: &mut Runtime, x: &Tensor, dim: usize, added: [i64; 2]) -> Result<Tensor> {
    let extent = x.shape()[dim] as i64;
    let length = added.iter().try_fold(extent, |n, &size| n.checked_add(size)).unwrap_or(-1);
    if extent == 0 || length < 0 {
        let message = format!("sizes {added:?} for dimension {dim} of {extent}");
        return Err(error::bad_value(1, message, "give a tensor with elements, and keep some of them"));
    }
    taken(rt, x, dim, added, |at| at.call("clamp", &[Arg::Int(0), Arg::Int(extent - 1)]))
}

/// The elements of a dimension at positions from `-before` to `extent + after`, which `from` maps into the dimension.
fn taken(
    rt: &mut Runtime,
    x: &Tensor,
    dim: usize,
    [before, after]: [i64; 2],
    from: impl for<'f> Fn(Var<'f>) -> Var<'f>,
) -> Result<Tensor> {
    let end = Arg::Int((x.shape()[dim] as i64).saturating_add(after));
    let places = [Arg::Int(-before), end, Arg::Int(1), Arg::Dtype(Dtype::I64), Arg::Device(x.device())];
    formula(rt, |f| {
        let from = from(f.op("arange", &places));
        f.var(x).call("index_select", &[Arg::Int(dim as i64), from.arg()])
    })
}
