//! Indexing `x[0, 1..3, ..., none, mask, ids]`: reads and writes.
//!
//! Integers, slices, new axes and `...` create views; masks and index tensors select, which copies. The rules are
//! PyTorch's: integers apply first; several index tensors broadcast and select together. The selected dimensions
//! replace the index tensors if these were adjacent, else they come first. Source:
//! <https://numpy.org/doc/stable/user/basics.indexing.html>

use super::compare::{GE, LT};
use super::folds::SUM;
use super::index::{Along, as_positions, gather_from, true_positions, value_for};
use super::logic::OR;
use super::make::{AFFINE, DIGIT};
use super::scatter::scatter_into;
use super::select::{CLAMP, WHERE};
use super::shape::{MAX_RANK, narrowed, position};
use super::{Arg, Args, Gradient, Keeps, Op, Out, Run, complex, composed, error, make};
use crate::array::{Dims, Dtype, Layout, Scalar, Strides, broadcast};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{CAST, MapFn, ReduceFn};
use crate::plan::error::check_number;
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::stream::{Meaning, Misplaced};
use crate::tensor::Tensor;
use std::sync::Arc;

/// One index between brackets.
#[derive(Clone)]
pub enum Index {
    /// A position; negative ones count from the end. Removes the dimension.
    Int(i64),
    /// Every `step`-th position from `start` up to but excluding `end`; clamped as in Python.
    Slice {
        /// The first position; negative counts from the end; `None` is the beginning.
        start: Option<i64>,
        /// One past the last position; negative counts from the end; `None` is the end.
        end: Option<i64>,
        /// 1 or more.
        step: i64,
    },
    /// `none`: a dimension of extent 1.
    NewAxis,
    /// `...`: all dimensions not covered by other indices.
    Ellipsis,
    /// A bool tensor; it covers as many dimensions as it has.
    Mask(Tensor),
    /// Positions.
    Ids(Tensor),
}

impl Index {
    /// Converts a tensor to an index: bools are a mask, all other tensors positions.
    pub fn of(tensor: Tensor) -> Index {
        if tensor.dtype() == Dtype::Bool { Index::Mask(tensor) } else { Index::Ids(tensor) }
    }

    /// The tensor of this index, if it has one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Index::Mask(tensor) | Index::Ids(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A whole dimension: `..`
    pub const ALL: Index = Index::Slice { start: None, end: None, step: 1 };
}

/// `x[indices]`
pub static INDEX: Op = Op {
    name: "index",
    run: Run::Primitive(|rt, args| get(rt, args.tensor(0)?, args.indices(1)?).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        let is_part =
            b.args().indices(1).is_ok_and(|indices| indices.iter().all(|index| index.tensor().is_none()));
        b.to_part(0, is_part.then(|| b.arg(1)), || {
            b.call(&SPREAD, &[b.g().arg(), b.arg(1), Arg::Ints(b.shape(0))])
        });
    }),
    ..Op::BASE
};

/// The gradient of [`INDEX`]: zeros of a shape, with elements added at the indices.
pub static SPREAD: Op = Op {
    name: "spread",
    run: Run::Primitive(|rt, args| {
        let (x, indices) = (args.tensor(0)?, args.indices(1)?);
        let out = make::filled(rt, &args.shape(2)?, x.dtype(), x.device(), Scalar::Int(0))?;
        match as_view(&out, indices)? {
            Some(view) => set(rt, &view, &[], MapArg::Tensor(x))?,
            None => set_with(rt, "index", &out, indices, MapArg::Tensor(x), Some(&SUM))?,
        }
        Ok(Out::Tensor(out))
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.call(&INDEX, &[b.g().arg(), b.arg(1)]))),
    ..Op::BASE
};

/// `x[indices] = value`
pub static SET_INDEX: Op = Op {
    name: "index_put",
    run: Run::Primitive(|rt, args| {
        set(rt, args.tensor(0)?, args.indices(1)?, args.operand(2)?)?;
        Ok(Out::None)
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || {
            b.given(|rt| {
                let copy = composed::call(rt, "clone", &[b.g().arg()])?;
                let args = [Arg::Tensor(copy.clone()), b.arg(1), Arg::Int(0)];
                super::apply(rt, &SET_INDEX, super::Call::Plain(Args(&args)))?;
                Ok(copy)
            })
        });
        b.to(2, || b.call(&INDEX, &[b.g().arg(), b.arg(1)]));
    }),
    ..Op::BASE
};

/// `x[indices]`: a view when all indices are basic, else a copy.
pub fn get(rt: &mut Runtime, x: &Tensor, indices: &[Index]) -> Result<Tensor> {
    get_for(rt, "index", x, indices)
}

/// [`get`] for the operation `name`, which errors of the device name.
pub(super) fn get_for(rt: &mut Runtime, name: &'static str, x: &Tensor, indices: &[Index]) -> Result<Tensor> {
    let (view, selectors) = basic(x, indices)?;
    if selectors.is_empty() {
        return Ok(view);
    }
    let picks = Picks::new(rt, &view, selectors)?;
    let out = gather_from(rt, name, picks.of(&view), &picks.ids)?;
    Ok(make::in_shape(out, &picks.shape))
}

/// The view that indices without masks and index tensors select; `None` with them.
pub(super) fn as_view(x: &Tensor, indices: &[Index]) -> Result<Option<Tensor>> {
    let (view, selectors) = basic(x, indices)?;
    Ok(selectors.is_empty().then_some(view))
}

/// `x[indices] = value`: the value is broadcast to the selection and converted.
pub fn set(rt: &mut Runtime, x: &Tensor, indices: &[Index], value: MapArg<'_>) -> Result<()> {
    set_with(rt, "index_put", x, indices, value, None)
}

/// As [`set`]; with `f`, combines the value with the existing elements.
pub(super) fn set_with(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    indices: &[Index],
    value: MapArg<'_>,
    f: Option<&'static ReduceFn>,
) -> Result<()> {
    let (view, selectors) = basic(x, indices)?;
    if let MapArg::Number(number) = value {
        check_number(indices.len() + 1, number, x.dtype())?;
    }
    let without;
    let value = match value {
        // Remove leading dimensions of extent 1 that the selection does not have.
        MapArg::Tensor(given) if given.rank() > 0 && given.shape()[0] == 1 => {
            without = given.with_layout(trimmed(given.layout(), selected_rank(&view, &selectors)));
            MapArg::Tensor(&without)
        }
        value => value,
    };
    if selectors.is_empty() && f.is_none() {
        let compute = match value {
            MapArg::Tensor(value) => value.dtype(),
            _ => view.dtype(),
        };
        let single = !matches!(value, MapArg::Tensor(t) if t.rank() > 0);
        if single && crate::plan::overlaps_itself(view.layout()) {
            return each_apart(&view, None, &mut |part, _| {
                rt.map_into(part, Elementwise::new(name, &CAST, &[value], compute, view.dtype()))
            });
        }
        return rt.map_into(&view, Elementwise::new(name, &CAST, &[value], compute, view.dtype()));
    }
    let single = !matches!(value, MapArg::Tensor(t) if t.rank() > 0);
    if let ([Selector { argument, dim, ids: Index::Mask(mask) }], true, None) =
        (selectors.as_slice(), single, f)
    {
        let mask = mask_over(rt, &view, *dim, (*argument, mask))?;
        return fill_where(rt, name, &view, &mask, value);
    }
    let value = value_for(rt, &view, value, indices.len() + 1)?;
    let picks = Picks::new(rt, &view, selectors)?;
    let Some(wide) = value.layout().broadcast_to(&picks.shape) else {
        return Err(error::value_does_not_fit((indices.len() + 1, &value), x, &picks.shape));
    };
    // Broadcast over the launch shape, which has one more dimension if the selection has none.
    let mut wide = wide;
    if picks.ids.rank() > wide.rank() {
        wide.shape.insert(picks.axis, 1);
        wide.strides.insert(picks.axis, 0);
    }
    let value = value.with_layout(wide);
    scatter_into(rt, name, picks.of(&view), &picks.ids, &value, f)
}

/// `target[mask] = value` for a single value. Elements of the target may share memory; the shared memory is
/// written if any of them is masked.
pub(super) fn fill_where(
    rt: &mut Runtime,
    name: &'static str,
    target: &Tensor,
    mask: &Tensor,
    value: MapArg<'_>,
) -> Result<()> {
    let dtype = target.dtype();
    let (choose, _) = complex::over(name, &WHERE, dtype)?;
    let mut write = |part: &Tensor, mask: &Tensor| {
        let operands = [MapArg::Tensor(mask), value, MapArg::Tensor(part)];
        rt.map_into(part, Elementwise::new(name, choose, &operands, dtype, dtype))
    };
    let wide =
        mask.layout().broadcast_to(target.shape()).filter(|_| crate::plan::overlaps_itself(target.layout()));
    match wide {
        None => write(target, mask),
        Some(wide) => {
            let mask = mask.with_layout(wide);
            each_apart(target, Some(&mask), &mut |part, mask| match mask {
                Some(mask) => write(part, mask),
                None => Ok(()),
            })
        }
    }
}

/// Splits a target whose elements share memory into parts without sharing, and calls `write` with each in
/// turn. With a mask, `write` also gets the matching part of the mask, and the parts cover every element of
/// the target; without one, they cover every byte.
fn each_apart(
    target: &Tensor,
    mask: Option<&Tensor>,
    write: &mut dyn FnMut(&Tensor, Option<&Tensor>) -> Result<()>,
) -> Result<()> {
    if !crate::plan::overlaps_itself(target.layout()) {
        return write(target, mask);
    }
    let layout = target.layout();
    let longer = (0..target.rank()).filter(|&d| layout.shape[d] > 1);
    if let Some(same) = longer.clone().find(|&d| layout.strides[d] == 0)
        && mask.is_none_or(|mask| mask.layout().strides[same] == 0)
    {
        let mask = mask.map(|mask| narrowed(mask, same, 0, 1));
        return each_apart(&narrowed(target, same, 0, 1), mask.as_ref(), write);
    }
    // Of the dimensions whose step another dimension reaches within its extent, the one with the fewest
    // positions.
    let meets = |d: usize| {
        longer.clone().any(|other| {
            other != d && layout.strides[other] * (layout.shape[other] as isize - 1) >= layout.strides[d]
        }) || layout.strides[d] == 0
    };
    let Some(shortest) = longer.clone().filter(|&d| meets(d)).min_by_key(|&d| layout.shape[d]) else {
        return write(target, mask);
    };
    for at in 0..layout.shape[shortest] {
        let mask = mask.map(|mask| narrowed(mask, shortest, at, 1));
        each_apart(&narrowed(target, shortest, at, 1), mask.as_ref(), write)?;
    }
    Ok(())
}

/// The number of dimensions that indices select.
fn selected_rank(view: &Tensor, selectors: &[Selector]) -> usize {
    let (mut taken, mut together) = (0, 0);
    for selector in selectors {
        let (takes, gives) = match &selector.ids {
            Index::Mask(mask) => (mask.rank(), 1),
            Index::Ids(ids) => (1, ids.rank()),
            _ => (0, 0),
        };
        (taken, together) = (taken + takes, together.max(gives));
    }
    view.rank() - taken + together
}

/// Removes leading dimensions of extent 1, down to a rank.
fn trimmed(layout: &Layout, rank: usize) -> Layout {
    let ones = layout.shape.iter().take_while(|&&extent| extent == 1).count();
    let without = ones.min(layout.rank().saturating_sub(rank));
    Layout {
        shape: layout.shape[without..].into(),
        strides: layout.strides[without..].into(),
        offset: layout.offset,
    }
}

/// An index tensor, and the first dimension of the view that it applies to.
struct Selector {
    /// The number of the index, from 1; errors label it.
    argument: usize,
    dim: usize,
    ids: Index,
}

/// Applies all indices except masks and index tensors; their dimensions are kept.
fn basic(x: &Tensor, indices: &[Index]) -> Result<(Tensor, Vec<Selector>)> {
    let takes = |index: &Index| match index {
        Index::Int(_) | Index::Slice { .. } | Index::Ids(_) => 1,
        Index::Mask(mask) => mask.rank(),
        Index::NewAxis | Index::Ellipsis => 0,
    };
    let used: usize = indices.iter().map(takes).sum();
    let Some(free) = x.rank().checked_sub(used) else { return Err(error::too_many_indices(x, used)) };
    let ellipses = indices.iter().filter(|i| matches!(i, Index::Ellipsis)).count();
    if ellipses > 1 {
        return Err(error::two_ellipses());
    }
    let layout = x.layout();
    let mut view = Layout { shape: Dims::new(), strides: Strides::new(), offset: layout.offset };
    let mut selectors = Vec::new();
    let mut at = 0;
    let implied = (ellipses == 0).then_some(Index::Ellipsis);
    for (i, index) in indices.iter().chain(&implied).enumerate() {
        let argument = i + 1;
        match index {
            Index::Int(given) => {
                let place = position(argument, *given, at, layout.shape[at])?;
                view.offset += place * layout.strides[at] as usize;
                at += 1;
            }
            Index::Slice { start, end, step } => {
                let (first, length) = slice(argument, *start, *end, *step, layout.shape[at])?;
                if length > 0 {
                    view.offset += first * layout.strides[at] as usize;
                }
                view.shape.push(length);
                view.strides.push(layout.strides[at].saturating_mul(*step as isize));
                at += 1;
            }
            Index::NewAxis => {
                view.shape.push(1);
                view.strides.push(layout.stride_of_one(at));
            }
            Index::Ellipsis => {
                view.shape.extend_from_slice(&layout.shape[at..at + free]);
                view.strides.extend_from_slice(&layout.strides[at..at + free]);
                at += free;
            }
            Index::Ids(ids) => {
                check_ids(argument, ids)?;
                selectors.push(Selector { argument, dim: view.shape.len(), ids: index.clone() });
                view.shape.push(layout.shape[at]);
                view.strides.push(layout.strides[at]);
                at += 1;
            }
            Index::Mask(mask) => {
                let dim = view.shape.len();
                if mask.rank() == 0 {
                    // A mask without dimensions selects all or nothing along a new dimension.
                    view.shape.push(1);
                    view.strides.push(1);
                    let mask = mask.with_layout(mask.layout().view(&[1]).unwrap_or(mask.layout().clone()));
                    selectors.push(Selector { argument, dim, ids: Index::Mask(mask) });
                    continue;
                }
                let next = at + mask.rank();
                if mask.shape().as_slice() != &layout.shape[at..next] {
                    return Err(error::mask_differs(x, at, (argument, mask)));
                }
                selectors.push(Selector { argument, dim, ids: index.clone() });
                view.shape.extend_from_slice(&layout.shape[at..next]);
                view.strides.extend_from_slice(&layout.strides[at..next]);
                at = next;
            }
        }
    }
    if view.shape.len() > MAX_RANK {
        return Err(error::too_many_dims(view.shape.len()));
    }
    if view.shape.contains(&0) {
        view.offset = layout.offset;
    }
    Ok((x.with_layout(view), selectors))
}

fn check_ids(argument: usize, ids: &Tensor) -> Result<()> {
    match ids.dtype() {
        Dtype::U8 => Err(error::ambiguous_bytes(argument, ids)),
        dtype if dtype.is_int() || ids.count() == 0 => Ok(()),
        _ => Err(error::not_indices(argument, ids)),
    }
}

/// First position and length of a slice, clamped as in Python.
fn slice(
    argument: usize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
    extent: usize,
) -> Result<(usize, usize)> {
    if step < 1 {
        let message = format!("a slice with the step `{step}`");
        return Err(error::bad_value(argument, message, "write a step of 1 or more; `flip` reverses"));
    }
    let clamp = |at: i64| -> usize {
        let from_start = if at < 0 { at.saturating_add(extent as i64) } else { at };
        usize::try_from(from_start).map_or(0, |at| at.min(extent))
    };
    let (first, last) = (start.map_or(0, clamp), end.map_or(extent, clamp));
    let length = last.saturating_sub(first).div_ceil(usize::try_from(step).unwrap_or(usize::MAX));
    Ok((first, length))
}

/// A mask broadcast over the whole view; new dimensions are added after it.
fn mask_over(rt: &mut Runtime, view: &Tensor, dim: usize, mask: (usize, &Tensor)) -> Result<Tensor> {
    let mask = brought(rt, view, mask)?;
    let mut layout = mask.layout().clone();
    for _ in dim + mask.rank()..view.rank() {
        layout.shape.push(1);
        layout.strides.push(0);
    }
    Ok(mask.with_layout(layout))
}

/// An index tensor on the device of the indexed tensor. As in PyTorch, host indices can index a tensor on any
/// device.
fn brought(rt: &mut Runtime, view: &Tensor, (argument, ids): (usize, &Tensor)) -> Result<Tensor> {
    match ids.device() {
        DeviceId::Cpu if view.device() != DeviceId::Cpu => rt.copy_to(ids, view.device(), false),
        _ => {
            rt.common_device("index", [view, ids]).map_err(|e| e.reorder(&[0, argument]))?;
            Ok(ids.clone())
        }
    }
}

/// The selection of index tensors, ready for a gather or scatter.
struct Picks {
    /// Positions over the shape of the launch.
    ids: Tensor,
    /// The strides of the view over the launch shape.
    own: Strides,
    /// The axis along which the positions apply.
    axis: usize,
    /// The extent for positions.
    limit: usize,
    /// What a position out of range means.
    meaning: Meaning,
    /// The shape of the selection: the launch shape, without the axis if the index tensors have no
    /// dimensions.
    shape: Dims,
}

impl Picks {
    /// The selected elements of the view.
    fn of<'a>(&self, view: &'a Tensor) -> Along<'a> {
        let meaning = self.meaning.clone();
        Along { tensor: view, strides: self.own.clone(), axis: self.axis, limit: self.limit, meaning }
    }

    fn new(rt: &mut Runtime, view: &Tensor, selectors: Vec<Selector>) -> Result<Picks> {
        let mut taken = Dims::new();
        let mut tensors = Vec::new();
        for selector in &selectors {
            match &selector.ids {
                Index::Mask(mask) => {
                    let mask = brought(rt, view, (selector.argument, mask))?;
                    taken.extend(selector.dim..selector.dim + mask.rank());
                    tensors.push((selector.dim, mask.rank(), true, true_positions(rt, &mask)?));
                }
                Index::Ids(ids) => {
                    let ids = brought(rt, view, (selector.argument, ids))?;
                    taken.push(selector.dim);
                    tensors.push((selector.dim, 1, false, as_positions(rt, selector.argument, &ids)?));
                }
                _ => {}
            }
        }
        let mut together = Dims::new();
        for (_, _, _, ids) in &tensors {
            together = match broadcast(&together, ids.shape()) {
                Some(shape) => shape,
                None => {
                    let places = selectors.iter().map(|s| s.argument).zip(tensors.iter().map(|t| &t.3));
                    return Err(error::indices_do_not_broadcast(&places.collect::<Vec<_>>()));
                }
            };
        }
        let neighbours = taken.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let before = if neighbours { taken.first().copied().unwrap_or(0) } else { 0 };
        let rest: Vec<usize> = (0..view.rank()).filter(|d| !taken.contains(d)).collect();
        let single = tensors.len() == 1 && tensors[0].1 == 1;
        // Use positions directly for a single dimension; otherwise convert them to offsets.
        let (positions, step, limit, meaning) = match tensors.as_slice() {
            [(dim, 1, _, ids)] if single => {
                (ids.clone(), view.layout().strides[*dim], view.shape()[*dim], Meaning::Index)
            }
            _ => {
                let places = offsets(rt, view, &tensors, &together)?;
                (places.offsets, 1, places.reach, Meaning::Place(places.extents))
            }
        };
        let mut shape = Dims::new();
        let mut launch =
            Layout { shape: Dims::new(), strides: Strides::new(), offset: positions.layout().offset };
        let mut own = Strides::new();
        let wide = positions.layout().broadcast_to(&together).unwrap_or_else(|| positions.layout().clone());
        let plain = |dims: &[usize], shape: &mut Dims, launch: &mut Layout, own: &mut Strides| {
            for &d in dims {
                shape.push(view.shape()[d]);
                launch.shape.push(view.shape()[d]);
                launch.strides.push(0);
                own.push(view.layout().strides[d]);
            }
        };
        let split = rest.iter().filter(|&&d| d < before).count();
        plain(&rest[..split], &mut shape, &mut launch, &mut own);
        let axis = launch.shape.len();
        shape.extend_from_slice(&together);
        if together.is_empty() {
            launch.shape.push(1);
            launch.strides.push(0);
            own.push(step);
        }
        for (i, (&extent, &stride)) in together.iter().zip(&wide.strides).enumerate() {
            launch.shape.push(extent);
            launch.strides.push(stride);
            own.push(if i == 0 { step } else { 0 });
        }
        plain(&rest[split..], &mut shape, &mut launch, &mut own);
        if shape.len() > MAX_RANK {
            return Err(error::too_many_dims(shape.len()));
        }
        Ok(Picks { ids: positions.with_layout(launch), own, axis, limit, meaning, shape })
    }
}

/// The elements that several index tensors select together.
struct Places {
    /// Element offsets within the view; lower values encode an index out of range ([`Misplaced`]).
    offsets: Tensor,
    /// The offsets are below this.
    reach: usize,
    /// The extents that the indices must stay below.
    extents: Arc<[usize]>,
}

/// Combines several index tensors into one, each checked against its own dimension.
fn offsets(
    rt: &mut Runtime,
    view: &Tensor,
    tensors: &[(usize, usize, bool, Tensor)],
    together: &[usize],
) -> Result<Places> {
    let number = |n: i64| MapArg::Number(Scalar::Int(n));
    let (shape, strides) = (view.shape(), &view.layout().strides);
    let mut sum: Option<Tensor> = None;
    let mut reach = 1usize;
    let mut add = |rt: &mut Runtime, ids: &Tensor, stride: isize| -> Result<()> {
        let held = sum.as_ref().map_or(number(0), MapArg::Tensor);
        let terms = [MapArg::Tensor(ids), number(stride as i64), held];
        sum = Some(rt.map("index", &AFFINE, &terms, Dtype::I64, Dtype::I64)?);
        Ok(())
    };
    // All have one shape, so that they are one launch.
    let over = |ids: &Tensor| match ids.layout().broadcast_to(together) {
        Some(layout) => ids.with_layout(layout),
        None => ids.clone(),
    };
    let wide: Vec<Tensor> = tensors.iter().map(|(_, _, _, ids)| over(ids)).collect();
    let (mut extents, mut outside) = (Vec::new(), Vec::new());
    for ((dim, rank, is_mask, _), ids) in tensors.iter().zip(&wide) {
        let dims = *dim..dim + rank;
        for d in dims.clone() {
            reach = reach.saturating_add(strides[d] as usize * shape[d].saturating_sub(1));
        }
        if *is_mask {
            // Dimensions that follow each other in memory count as one.
            let follows = |d: usize| d + 1 < dims.end && strides[d] == strides[d + 1] * shape[d + 1] as isize;
            let mut step: usize = dims.clone().map(|d| shape[d]).product();
            let (all, mut extent) = (step, 1);
            for d in dims.clone() {
                step /= shape[d].max(1);
                extent *= shape[d];
                if follows(d) {
                    continue;
                }
                let place = match extent == all {
                    true => (*ids).clone(),
                    false => {
                        let digits = [MapArg::Tensor(ids), number(step as i64), number(extent as i64)];
                        rt.map("index", &DIGIT, &digits, Dtype::I64, Dtype::I64)?
                    }
                };
                add(rt, &place, strides[d])?;
                extent = 1;
            }
        } else {
            let extent = shape[*dim] as i64;
            let wrapped = [MapArg::Tensor(ids), number(extent)];
            let place = rt.map("index", &super::make::WRAPPED, &wrapped, Dtype::I64, Dtype::I64)?;
            add(rt, &place, strides[*dim])?;
            outside.push((ids, extents.len(), extent));
            extents.push(shape[*dim]);
        }
    }
    let mut offsets = match sum {
        Some(sum) => sum,
        None => rt.empty(together, Dtype::I64, view.device())?,
    };
    // The first index out of range is reported, so it is written last.
    for (ids, i, extent) in outside.into_iter().rev() {
        offsets = marked(rt, &offsets, ids, i, extent)?;
    }
    Ok(Places { offsets, reach, extents: extents.into() })
}

/// The offsets, with [`Misplaced`] where an index is out of range.
fn marked(rt: &mut Runtime, offsets: &Tensor, ids: &Tensor, i: usize, extent: i64) -> Result<Tensor> {
    let number = |n: i64| MapArg::Number(Scalar::Int(n));
    let far = Misplaced::GREATEST;
    let map = |rt: &mut Runtime, f: &'static MapFn, operands: &[MapArg<'_>], dtype| {
        rt.map("index", f, operands, Dtype::I64, dtype)
    };
    let low = map(rt, &LT, &[MapArg::Tensor(ids), number(-extent)], Dtype::Bool)?;
    let high = map(rt, &GE, &[MapArg::Tensor(ids), number(extent)], Dtype::Bool)?;
    let outside =
        rt.map("index", &OR, &[MapArg::Tensor(&low), MapArg::Tensor(&high)], Dtype::Bool, Dtype::Bool)?;
    let near = map(rt, &CLAMP, &[MapArg::Tensor(ids), number(-far), number(far)], Dtype::I64)?;
    let mark = map(rt, &AFFINE, &[MapArg::Tensor(&near), number(1), number(Misplaced::base(i))], Dtype::I64)?;
    map(rt, &WHERE, &[MapArg::Tensor(&outside), MapArg::Tensor(&mark), MapArg::Tensor(offsets)], Dtype::I64)
}
