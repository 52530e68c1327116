//! Moving gradients between layouts of one memory.
//!
//! The gradient of a view belongs to the elements that the view reads. [`MOVE`] takes values in one layout of a memory
//! and returns them in another: elements that the first layout does not cover are 0, and elements that it reads several
//! times are summed. It is its own gradient with the layouts exchanged.

use super::{Back, Gradient, Keeps, Var};
use crate::array::{Dims, Dtype, Layout, Scalar, Strides, contiguous_strides};
use crate::base::Result;
use crate::ops::{Arg, Args, Call, Op, Out, Run, apply, composed, error, subscript, table};
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;
use smallvec::smallvec;

/// `move(x, from, to)`: layouts are encoded by [`encoded`].
pub static MOVE: Op = Op {
    name: "strided",
    run: Run::Primitive(|rt, args| moved(rt, args).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || b.call(&MOVE, &[b.g().arg(), b.arg(2), b.arg(1)]))
    }),
    ..Op::BASE
};

/// `erase(x, whole, part)`: `x`, which has the layout `whole`, with 0 at the elements of `part`.
pub static ERASE: Op = Op {
    name: "erase",
    run: Run::Primitive(|rt, args| erased(rt, args).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || b.call(&ERASE, &[b.g().arg(), b.arg(1), b.arg(2)]))
    }),
    ..Op::BASE
};

/// The gradient of a view's operand, which has the layout `from`. Operand elements at the same address each get an
/// equal share of the gradient; the operation that expanded them sums the shares.
pub(super) fn view_back<'a>(b: &'a Back<'_>, view: Arg, from: &Layout) -> Var<'a> {
    let own = encoded(from);
    let same = matches!((&view, &own), (Arg::Ints(view), Arg::Ints(own)) if view == own);
    let g = b.call(&MOVE, &[b.g().arg(), view, own.clone()]);
    if same || !crate::plan::overlaps_itself(from) {
        return g;
    }
    let flat = encoded(&Layout::contiguous(&[from.extent().end]));
    let ones = b.call(&MOVE, &[g.unary("ones_like").arg(), own.clone(), flat.clone()]);
    g / b.call(&MOVE, &[ones.arg(), flat, own])
}

fn erased(rt: &mut Runtime, args: &Args<'_>) -> Result<Tensor> {
    let of =
        |index| args.ints(index).and_then(decoded).ok_or_else(|| error::wrong_argument(index, "a layout"));
    let (x, whole, part) = (args.tensor(0)?, of(1)?, of(2)?);
    let memory = rt.empty(&[whole.count()], x.dtype(), x.device())?;
    let result = memory.with_layout(whole);
    subscript::set(rt, &result, &[], MapArg::Tensor(x))?;
    subscript::set(rt, &memory.with_layout(part), &[], MapArg::Number(Scalar::Int(0)))?;
    Ok(result)
}

/// Applies [`MOVE`].
pub fn move_between(rt: &mut Runtime, x: &Tensor, from: &Layout, to: &Layout) -> Result<Tensor> {
    let args = [Arg::Tensor(x.clone()), encoded(from), encoded(to)];
    match apply(rt, &MOVE, Call::Plain(Args(&args)))? {
        Out::Tensor(tensor) => Ok(tensor),
        _ => Err(error::wrong_argument(0, "a tensor")),
    }
}

/// The gradient of memory in the layout `from`, of which a view has the layout `to`. One of them may be complex
/// and the other its parts.
pub fn relaid<'a>(b: &'a Back<'_>, from: &Layout, to: &Layout) -> Var<'a> {
    let (own, seen) = (b.form(0).dtype, b.result(0).dtype);
    let moved =
        |g: Var<'_>, to: &Layout, from: &Layout| b.call(&MOVE, &[g.arg(), encoded(to), encoded(from)]);
    match own.is_complex() {
        _ if own == seen => moved(b.g(), to, from),
        true if own.real() == seen => {
            moved(b.g(), to, &in_parts(from)).unary("clone").unary("view_as_complex")
        }
        false if own == seen.real() => moved(b.g().unary("view_as_real"), &in_parts(to), from),
        _ => {
            b.fail(super::error::no_rule(b.name(), b.span(), ""));
            b.g()
        }
    }
}

/// The layout of the real and imaginary parts of complex numbers.
fn in_parts(layout: &Layout) -> Layout {
    let mut parts = layout.clone();
    parts.strides.iter_mut().for_each(|stride| *stride *= 2);
    parts.shape.push(2);
    parts.strides.push(1);
    parts.offset *= 2;
    parts
}

/// A layout as an argument: shape, strides, offset.
pub fn encoded(layout: &Layout) -> Arg {
    let shape = layout.shape.iter().map(|&extent| extent as i64);
    let strides = layout.strides.iter().map(|&stride| stride as i64);
    Arg::Ints(shape.chain(strides).chain([layout.offset as i64]).collect())
}

/// The inverse of [`encoded`].
pub(super) fn decoded(ints: &[i64]) -> Option<Layout> {
    let (&offset, both) = ints.split_last()?;
    let (shape, strides) = both.split_at(both.len() / 2);
    Some(Layout {
        shape: shape.iter().map(|&extent| extent as usize).collect(),
        strides: strides.iter().map(|&stride| stride as isize).collect(),
        offset: offset as usize,
    })
}

/// True if a layout covers each of `count` elements exactly once.
pub fn covers(layout: &Layout, count: usize) -> bool {
    layout.count() == count && layout.extent() == (0..count) && !crate::plan::overlaps_itself(layout)
}

fn moved(rt: &mut Runtime, args: &Args<'_>) -> Result<Tensor> {
    let x = args.tensor(0)?;
    let of =
        |index| args.ints(index).and_then(decoded).ok_or_else(|| error::wrong_argument(index, "a layout"));
    let (mut from, mut to): (Layout, Layout) = (of(1)?, of(2)?);
    if from == to {
        return Ok(x.clone());
    }
    // The relevant memory starts at the first element of either layout.
    let ends = [from.extent(), to.extent()];
    let used = ends.iter().filter(|range| !range.is_empty());
    let first = used.clone().map(|range| range.start).min().unwrap_or(0);
    let length = used.map(|range| range.end).max().unwrap_or(0) - first;
    from.offset = from.offset.saturating_sub(first);
    to.offset = to.offset.saturating_sub(first);
    let memory = if from.is_contiguous() && from.offset == 0 && from.count() == length {
        let flat = rt.contiguous(x)?;
        let layout = flat.layout().view(&[length]);
        flat.with_layout(layout.unwrap_or_else(|| Layout::contiguous(&[length])))
    } else {
        scattered(rt, x, &from, length)?
    };
    let base = memory.layout().offset;
    Ok(memory.with_layout(Layout { offset: to.offset + base, ..to }))
}

/// A memory of `length` elements with `x` in a layout and 0 elsewhere.
fn scattered(rt: &mut Runtime, x: &Tensor, layout: &Layout, length: usize) -> Result<Tensor> {
    let (x, layout) = summed_over_repeats(rt, x, layout)?;
    let dtype = x.dtype();
    let overlaps = crate::plan::overlaps_itself(&layout);
    let mut parts = Vec::new();
    if overlaps && apart(layout.clone(), smallvec![0; layout.rank()], &mut parts) {
        return added(rt, &x, length, parts);
    }
    let memory = match covers(&layout, length) {
        true => rt.empty(&[length], dtype, x.device())?,
        false => zeros(rt, length, dtype, &x)?,
    };
    if !overlaps {
        subscript::set(rt, &memory.with_layout(layout), &[], MapArg::Tensor(&x))?;
        return Ok(memory);
    }
    // Positions that many elements share.
    let positions = positions(rt, &layout, length, x.device())?;
    let flat = rt.contiguous(&x)?;
    let flat = flat.with_layout(flat.layout().view(&[x.count()]).unwrap_or_else(|| flat.layout().clone()));
    let args = [Arg::Tensor(memory), Arg::Int(0), Arg::Tensor(positions), Arg::Tensor(flat)];
    composed::call(rt, "index_add", &args)
}

/// Up to this many parts of a layout are added one by one.
const PARTS: usize = 32;

/// Splits a layout whose elements share positions (`unfold`) into parts without shared positions, each with the
/// coordinates at which it begins. False if there would be too many parts.
fn apart(layout: Layout, first: Dims, parts: &mut Vec<(Dims, Layout)>) -> bool {
    let mut dims: Vec<usize> = (0..layout.rank()).filter(|&d| layout.shape[d] > 1).collect();
    dims.sort_by_key(|&d| (layout.strides[d], layout.shape[d]));
    let (mut below, mut before): (isize, Option<usize>) = (0, None);
    for &d in &dims {
        let stride = layout.strides[d];
        let Some(inner) = before.replace(d) else { continue };
        let (step, extent) = (layout.strides[inner], layout.shape[inner]);
        if step < 1 {
            return false;
        }
        if stride > below + step * (extent as isize - 1) {
            below += step * (extent as isize - 1);
            continue;
        }
        // Positions of the inner dimension up to the next position of the outer one.
        let block = ((stride - 1 - below) / step).max(0) as usize + 1;
        return (0..extent).step_by(block).all(|start| {
            let (mut part, mut at) = (layout.clone(), first.clone());
            part.shape[inner] = block.min(extent - start);
            part.offset += start * step as usize;
            at[inner] += start;
            apart(part, at, parts)
        });
    }
    parts.push((first, layout));
    parts.len() <= PARTS
}

/// A memory of `length` elements: 0, and the parts of `x` added in order. Halves are added in `f32`.
fn added(rt: &mut Runtime, x: &Tensor, length: usize, parts: Vec<(Dims, Layout)>) -> Result<Tensor> {
    let dtype = x.dtype();
    let sum = zeros(rt, length, dtype.accumulator(), x)?;
    let add = table::find("add").ok_or_else(|| error::wrong_argument(0, "an operation"))?;
    for (first, to) in parts {
        let mut from = x.layout().clone();
        let skipped: isize = first.iter().zip(&from.strides).map(|(&at, &stride)| at as isize * stride).sum();
        from.offset = from.offset.saturating_add_signed(skipped);
        from.shape.clone_from(&to.shape);
        let to = Layout { offset: to.offset + sum.layout().offset, ..to };
        let args = [Arg::Tensor(sum.with_layout(to)), Arg::Tensor(x.with_layout(from)), Arg::Int(1)];
        apply(rt, add, Call::InPlace(Args(&args)))?;
    }
    match sum.dtype() == dtype {
        true => Ok(sum),
        false => composed::call(rt, "to", &[Arg::Tensor(sum), Arg::Dtype(dtype)]),
    }
}

/// Sums over dimensions of stride 0, which read the same elements repeatedly.
fn summed_over_repeats(rt: &mut Runtime, x: &Tensor, layout: &Layout) -> Result<(Tensor, Layout)> {
    let repeated = |d: &usize| layout.strides[*d] == 0 && layout.shape[*d] > 1;
    let dims: Vec<i64> = (0..layout.rank()).filter(repeated).map(|d| d as i64).collect();
    if dims.is_empty() {
        return Ok((x.clone(), layout.clone()));
    }
    let mut once = layout.clone();
    for &d in &dims {
        once.shape[d as usize] = 1;
    }
    let args = [Arg::Tensor(x.clone()), Arg::Ints(dims), Arg::Bool(true)];
    Ok((composed::call(rt, "sum", &args)?, once))
}

fn zeros(rt: &mut Runtime, length: usize, dtype: Dtype, like: &Tensor) -> Result<Tensor> {
    let args = [Arg::Ints(vec![length as i64]), Arg::Dtype(dtype), Arg::Device(like.device())];
    composed::call(rt, "zeros", &args)
}

/// The positions that a layout reads, in its order.
fn positions(
    rt: &mut Runtime,
    layout: &Layout,
    length: usize,
    device: crate::driver::DeviceId,
) -> Result<Tensor> {
    let all = composed::call(
        rt,
        "arange",
        &[Arg::Int(0), Arg::Int(length as i64), Arg::Int(1), Arg::None, Arg::Device(device)],
    )?;
    let base = all.layout().offset;
    let read = all.with_layout(Layout { offset: layout.offset + base, ..layout.clone() });
    let copy = rt.contiguous_copy(&read)?;
    let strides: Strides = contiguous_strides(&[layout.count()]);
    Ok(copy.with_layout(Layout { shape: [layout.count()].as_slice().into(), strides, offset: 0 }))
}
