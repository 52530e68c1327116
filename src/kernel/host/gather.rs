//! Gathers by an index tensor. A bad index is reported and replaced by 0.

use super::map::PARALLEL;
use super::tasks::{self, SOME, Until};
use super::{FaultSlot, bytes};
use crate::array::Dims;
use crate::kernel::{Fault, Gather, Launch, Ptr, View};
use smallvec::smallvec;

/// Elements per task.
const TASK: usize = 8 << 10;

/// Runs a gather.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(gather: &Gather, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match gather.dtype.size() {
            1 => sized::<u8>(launch, faults),
            2 => sized::<u16>(launch, faults),
            4 => sized::<u32>(launch, faults),
            8 => sized::<u64>(launch, faults),
            _ => sized::<u128>(launch, faults),
        }
    }
}

unsafe fn sized<E: Copy + Default>(launch: &Launch, faults: &FaultSlot) {
    let count: usize = launch.shape.iter().product();
    if count * 3 < PARALLEL {
        // SAFETY: guaranteed by the caller.
        return unsafe { range::<E>(launch, faults, 0..count) };
    }
    tasks::each(count.div_ceil(TASK), true, |task| {
        let elements = task * TASK..((task + 1) * TASK).min(count);
        // SAFETY: guaranteed by the caller; tasks write different elements.
        unsafe { range::<E>(launch, faults, elements) };
    });
}

unsafe fn range<E: Copy + Default>(launch: &Launch, faults: &FaultSlot, elements: std::ops::Range<usize>) {
    let [source, index, out] = [0, 1, 2].map(|view| &launch.views[view]);
    let axis = launch.axis;
    let step = |view: &View| view.strides.last().copied().unwrap_or(0);
    let last = launch.shape.len().saturating_sub(1);
    let axis_stride = source.strides.get(axis).copied().unwrap_or(0);
    let source_step = if axis == last { 0 } else { step(source) };
    // A range is short.
    runs(&launch.shape, elements, &Until::default(), |position, at, run| {
        let from = element::<E>(source) as *const E;
        let from = from.wrapping_offset(offset(source, at, Some(axis)));
        let indices = element::<i64>(index).wrapping_offset(offset(index, at, None));
        let to = element::<E>(out).wrapping_offset(offset(out, at, None));
        let (index_step, out_step) = (step(index), step(out));
        let check = |i: usize| {
            // SAFETY: the element lies in the index view.
            let value = unsafe { indices.wrapping_offset(i as isize * index_step).read_unaligned() };
            resolve(value, launch, faults, position + i)
        };
        if index_step == 0 && axis != last {
            let found = check(0);
            if let (Some(found), 1, 1) = (found, source_step, out_step) {
                let from = from.wrapping_offset(found as isize * axis_stride);
                // SAFETY: the index is below the limit, the rows lie in the views, and a launch does not
                // write a view that it reads at another position.
                unsafe { bytes::copy(to.cast(), from.cast(), run * size_of::<E>()) };
                return;
            }
            for i in 0..run {
                // SAFETY: the index is below the limit, and the other coordinates lie in the views.
                unsafe {
                    take(from, found, axis_stride, i as isize * source_step, to, i as isize * out_step)
                };
            }
            return;
        }
        for i in 0..run {
            let found = check(i);
            // SAFETY: as above.
            unsafe { take(from, found, axis_stride, i as isize * source_step, to, i as isize * out_step) };
        }
    });
}

/// Copies one element; writes zero when there is none to read.
#[inline(always)]
unsafe fn take<E: Copy + Default>(
    from: *const E,
    found: Option<usize>,
    axis_stride: isize,
    along: isize,
    to: *mut E,
    out: isize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let value = match found {
            Some(found) => from.wrapping_offset(found as isize * axis_stride + along).read_unaligned(),
            None => E::default(),
        };
        to.wrapping_offset(out).write_unaligned(value);
    }
}

/// Resolves an index; negative values count from the end. A bad index is reported and becomes 0, or `None`
/// when the limit is 0.
#[inline]
pub(super) fn resolve(value: i64, launch: &Launch, faults: &FaultSlot, position: usize) -> Option<usize> {
    let limit = launch.limit as i64;
    let wrapped = if value < 0 { value.wrapping_add(limit) } else { value };
    if (0..limit).contains(&wrapped) {
        return Some(wrapped as usize);
    }
    faults.report(Fault { tag: launch.tag, position: position as u64, value });
    (limit > 0).then_some(0)
}

/// Calls `each(position, coordinates, run)` for the runs along the last dimension that make up a
/// range of row-major positions. Ends early when it is told to.
pub(super) fn runs(
    shape: &[usize],
    elements: std::ops::Range<usize>,
    until: &Until,
    mut each: impl FnMut(usize, &[usize], usize),
) {
    let mut at: Dims = smallvec![0; shape.len()];
    let (mut i, mut seen) = (elements.start, elements.start);
    while i < elements.end {
        if i - seen >= SOME {
            seen = i;
            if until.ended() {
                return;
            }
        }
        let mut rest = i;
        for d in (0..shape.len()).rev() {
            at[d] = rest % shape[d];
            rest /= shape[d];
        }
        let left = match (shape.last(), at.last()) {
            (Some(&extent), Some(&first)) => extent - first,
            _ => 1,
        };
        let run = left.min(elements.end - i).min(SOME);
        each(i, &at, run);
        i += run;
    }
}

/// A pointer to the view's first element.
pub(super) fn element<E>(view: &View) -> *mut E {
    view.ptr as Ptr as usize as *mut E
}

/// The offset of coordinates in a view, in elements, optionally without one dimension.
pub(super) fn offset(view: &View, at: &[usize], without: Option<usize>) -> isize {
    let steps = at.iter().zip(&view.strides).enumerate();
    steps.filter(|&(d, _)| Some(d) != without).map(|(_, (&i, &s))| i as isize * s).sum()
}
