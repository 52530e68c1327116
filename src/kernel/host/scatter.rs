//! Scatters by an index tensor, in row-major order of the source. A bad index is reported and its element
//! dropped.
//!
//! Threads split the work along a dimension of the target that the index does not select, so that no two
//! threads write the same element. Without such a dimension one thread does all the work.

use super::FaultSlot;
use super::element::Element;
use super::fold::Accumulator;
use super::gather::{element, offset, resolve, runs};
use super::map::{PARALLEL, threads};
use super::tasks::{self, Until};
use crate::array::{Dims, dispatch};
use crate::kernel::{Launch, Scatter};

/// Runs a scatter.
///
/// # Safety
/// The launch upholds its invariant, and nothing else accesses the memory it reads or writes during the call.
pub(in crate::kernel) unsafe fn run(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    dispatch!(scatter.dtype, M => unsafe {
        typed::<M>(scatter, launch, faults)
    });
}

unsafe fn typed<M: Element>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot)
where
    M::Lane: Accumulator,
{
    let one = match scatter.f {
        Some(f) => match M::Lane::combine(&f.host) {
            Some(combine) => Some(combine.one),
            None => return,
        },
        None => None,
    };
    let count: usize = launch.shape.iter().product();
    let out = &launch.views[2];
    let free = |&d: &usize| d != launch.axis && out.strides[d] != 0;
    let shared = (0..launch.shape.len()).filter(free).max_by_key(|&d| launch.shape[d]);
    let parts = shared.map_or(1, |d| launch.shape[d].min(threads(count * 3) * 2));
    if count == 0 {
        return;
    }
    let until = Until::now();
    let Some(shared) = shared.filter(|_| parts > 1 && count * 3 >= PARALLEL) else {
        let origin: Dims = launch.shape.iter().map(|_| 0).collect();
        // SAFETY: the caller's.
        return unsafe { part::<M>(launch, faults, one, &origin, &launch.shape, &until) };
    };
    tasks::each(parts, true, |i| {
        let extent = launch.shape[shared];
        let (from, to) = (extent * i / parts, extent * (i + 1) / parts);
        let mut origin: Dims = launch.shape.iter().map(|_| 0).collect();
        let mut shape = launch.shape.clone();
        (origin[shared], shape[shared]) = (from, to - from);
        // SAFETY: the caller's; parts differ in a coordinate of the target.
        unsafe { part::<M>(launch, faults, one, &origin, &shape, &until) };
    });
}

/// Combines two accumulators.
type One<T> = fn(T, T) -> T;

/// Scatters a box of the source, row-major.
unsafe fn part<M: Element>(
    launch: &Launch,
    faults: &FaultSlot,
    one: Option<One<M::Lane>>,
    origin: &[usize],
    shape: &[usize],
    until: &Until,
) {
    let [source, index, out] = [0, 1, 2].map(|view| &launch.views[view]);
    let axis = launch.axis;
    let last = launch.shape.len().saturating_sub(1);
    let step = |strides: &[isize]| strides.last().copied().unwrap_or(0);
    let axis_stride = out.strides.get(axis).copied().unwrap_or(0);
    let out_step = if axis == last { 0 } else { step(&out.strides) };
    let (source_step, index_step) = (step(&source.strides), step(&index.strides));
    let mut place: Dims = origin.into();
    runs(shape, 0..shape.iter().product(), until, |_, at, run| {
        place.iter_mut().zip(origin).zip(at).for_each(|((p, &o), &a)| *p = o + a);
        let position = place.iter().zip(&launch.shape).fold(0, |sum, (&i, &n)| sum * n + i);
        let from = element::<M>(source).wrapping_offset(offset(source, &place, None));
        let indices = element::<i64>(index).wrapping_offset(offset(index, &place, None));
        let to = element::<M>(out).wrapping_offset(offset(out, &place, Some(axis)));
        for i in 0..run {
            let along = i as isize;
            // SAFETY: the element lies in the index view.
            let value = unsafe { indices.wrapping_offset(along * index_step).read_unaligned() };
            let limit = launch.limit as i64;
            if !(-limit..limit).contains(&value) {
                resolve(value, launch, faults, position + i);
                continue;
            }
            let found = if value < 0 { value + limit } else { value } as isize;
            let to = to.wrapping_offset(found * axis_stride + along * out_step);
            // SAFETY: the index is below the limit, and the other coordinates lie in the views.
            unsafe {
                let new = from.wrapping_offset(along * source_step).read_unaligned();
                to.write_unaligned(match one {
                    Some(one) => M::narrow(one(to.read_unaligned().widen(), new.widen())),
                    None => new,
                });
            }
        }
    });
}
