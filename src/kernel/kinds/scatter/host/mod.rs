//! Scatters on the host. A launch is split into boxes without common targets: one box per coordinate of the dimensions
//! along which the target advances independently of the index. Threads take boxes. Sums of floats, which are
//! independent of order, are also split within a box ([`sums`]).

mod exact;
mod ordered;
mod overlap;
mod sums;
mod tests;

use super::{Scatter, extent, joined, sums as definition, targets_differ};
use crate::array::{Dtype, dispatch};
use crate::kernel::Launch;
use crate::kernel::host::FaultSlot;
use crate::kernel::host::element::Element;
use crate::kernel::host::fold::Accumulator;
use crate::kernel::host::positions::{element, from_start, resolve};
use crate::kernel::host::tasks::{self, ELEMENTS_PER_CHECK, PARALLEL, Until};
use ordered::{Ordered, Plain, Write};
use smallvec::SmallVec;
use std::ops::Range;

/// Elements of a group of small boxes, and minimum number of neighbouring elements of a box.
const GROUP: usize = 1 << 14;
const FEWEST: usize = 16;

/// Bytes of a cache line, and lines of lanes that are fetched ahead.
const LINE: usize = 64;
const AHEAD: usize = 4;

/// Runs a scatter.
///
/// # Safety
/// The launch upholds its invariant, and nothing else accesses the memory it reads or writes during the call.
pub(super) unsafe fn run(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    if launch.shape.contains(&0) {
        return;
    }
    let launch = &joined(launch);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scatter.dtype {
            _ if launch.limit == 0 || !targets_differ(launch) => overlap::run(scatter, launch, faults),
            Dtype::F32 if scatter.is_scaled() => sums::run::<f32>(scatter, launch, faults),
            // Inline additions, because a function call per element takes longer than the addition.
            Dtype::F64 if scatter.f.is_some_and(|f| f.name == "sum") => {
                written::<f64>(launch, faults, Ordered::new(scatter, |a: f64, b: f64| a + b));
            }
            dtype => dispatch!(
                dtype,
                whole M => whole::<M>(scatter, launch, faults),
                half M => match scatter.is_scaled() {
                    true => sums::run::<M>(scatter, launch, faults),
                    false => floats::<M>(scatter, launch, faults),
                },
                native M => floats::<M>(scatter, launch, faults)
            ),
        }
    }
}

/// Scratch memory that a launch needs.
pub(super) fn scratch(scatter: &Scatter, launch: &Launch) -> u64 {
    let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
    if scatter.has_order() {
        return ordered::scratch(count, targets(launch));
    }
    match launch.limit > 0 && targets_differ(launch) {
        _ if !scatter.is_scaled() => 0,
        true => sums::scratch(count),
        false => overlap::Flat::<f32>::of(launch).places as u64 * definition::BYTES,
    }
}

/// An upper bound on the targets.
fn targets(launch: &Launch) -> u64 {
    let extents = (0..launch.shape.len()).map(|d| extent(launch, d));
    extents.fold(1, |targets, extent| targets.saturating_mul(extent.max(1)))
}

/// The steps of one coordinate: in the source, the index and the target, in elements, and in row-major positions.
type Steps = [isize; 4];

fn along(from: Steps, by: isize, steps: &Steps) -> Steps {
    std::array::from_fn(|i| from[i] + by * steps[i])
}

/// A dimension.
#[derive(Clone, Copy)]
struct Dim {
    extent: usize,
    steps: Steps,
}

impl Dim {
    const ONE: Dim = Dim { extent: 1, steps: [0; 4] };

    fn of(launch: &Launch, d: usize) -> Dim {
        let [source, index, out] = [0, 1, 2].map(|view| launch.views[view].strides[d]);
        let own = if d == launch.axis { 0 } else { out };
        let number: usize = launch.shape[d + 1..].iter().product();
        Dim { extent: launch.shape[d], steps: [source, index, own, number as isize] }
    }
}

type Dims = SmallVec<[Dim; 4]>;

fn count(dims: &[Dim]) -> usize {
    dims.iter().map(|dim| dim.extent).product()
}

/// Calls `each` for the runs along the last dimension that make up a range of positions, with the steps to the first
/// element and the length. Ends early when asked to stop.
fn lines(dims: &[Dim], range: Range<usize>, start: Steps, until: &Until, mut each: impl FnMut(Steps, usize)) {
    if range.is_empty() {
        return;
    }
    let (last, outer) = dims.split_last().unwrap_or((&Dim::ONE, &[]));
    let (mut at, mut seen, mut first) = (range.start, 0, range.start % last.extent);
    let mut rest = range.start / last.extent;
    let mut line = start;
    let mut coordinates: SmallVec<[usize; 4]> = outer.iter().map(|_| 0).collect();
    for (coordinate, dim) in coordinates.iter_mut().zip(outer).rev() {
        *coordinate = rest % dim.extent;
        line = along(line, *coordinate as isize, &dim.steps);
        rest /= dim.extent;
    }
    loop {
        let run = (last.extent - first).min(range.end - at).min(ELEMENTS_PER_CHECK);
        each(along(line, first as isize, &last.steps), run);
        (at, seen, first) = (at + run, seen + run, first + run);
        if at == range.end {
            return;
        }
        if seen >= ELEMENTS_PER_CHECK {
            seen = 0;
            if until.ended() {
                return;
            }
        }
        if first < last.extent {
            continue;
        }
        first = 0;
        for (coordinate, dim) in coordinates.iter_mut().zip(outer).rev() {
            *coordinate += 1;
            line = along(line, 1, &dim.steps);
            if *coordinate < dim.extent {
                break;
            }
            line = along(line, -(dim.extent as isize), &dim.steps);
            *coordinate = 0;
        }
    }
}

/// Fetches elements into a cache. They may lie outside of memory.
#[inline(always)]
fn fetch<T>(first: *const T, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for i in (0..count).step_by(LINE / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(i).cast()) };
    }
    let _ = (first, count);
}

/// A launch as dimensions.
struct Walk<'a, M> {
    launch: &'a Launch,
    source: *const M,
    index: *const i64,
    out: *mut M,
    /// The dimensions along which the target depends only on the index.
    fold: Dims,
    /// The other dimensions, along which the target has a stride, except for `lanes`.
    free: Dims,
    /// The last dimension of the launch, if the target has a stride along it.
    lanes: Dim,
    limit: usize,
    /// The target's stride along the axis.
    step: isize,
}

// SAFETY: threads write different elements.
unsafe impl<M> Sync for Walk<'_, M> {}

impl<'a, M: Element> Walk<'a, M> {
    fn of(launch: &'a Launch) -> Walk<'a, M> {
        let [source, index, out] = [0, 1, 2].map(|view| &launch.views[view]);
        let rank = launch.shape.len();
        let dims = (0..rank).map(|d| Dim::of(launch, d));
        let (mut free, fold): (Dims, Dims) = dims.partition(|dim| dim.steps[2] != 0);
        let is_last = rank > 0 && Dim::of(launch, rank - 1).steps[2] != 0;
        Walk {
            launch,
            source: element(source),
            index: element(index),
            out: element(out),
            fold,
            lanes: if is_last { free.pop().unwrap_or(Dim::ONE) } else { Dim::ONE },
            free,
            limit: launch.limit,
            step: out.strides.get(launch.axis).copied().unwrap_or(0),
        }
    }

    /// The start and the lanes of box `number`, for boxes of at most `lanes` lanes.
    fn cut(&self, number: usize, lanes: usize) -> (Steps, Range<usize>) {
        let per = self.lanes.extent.div_ceil(lanes);
        let (mut rest, from) = (number / per, number % per * lanes);
        let mut start = [0; 4];
        for dim in self.free.iter().rev() {
            start = along(start, (rest % dim.extent) as isize, &dim.steps);
            rest /= dim.extent;
        }
        (along(start, from as isize, &self.lanes.steps), from..(from + lanes).min(self.lanes.extent))
    }

    /// Returns whether all lanes share an index and their elements are adjacent.
    fn has_rows(&self) -> bool {
        self.lanes.extent >= 8 && self.lanes.steps[..3] == [1, 0, 1]
    }

    /// Calls `each` with the lane, the position along the axis and the source of every element of a box with a valid
    /// index, in row-major order.
    ///
    /// # Safety
    /// The launch upholds its invariant.
    #[inline(always)]
    unsafe fn elements(
        &self,
        (start, lanes): (Steps, usize),
        fold: Range<usize>,
        (until, faults): (&Until, Option<&FaultSlot>),
        mut each: impl FnMut(usize, usize, *const M),
    ) {
        let inner = self.fold.last().copied().unwrap_or(Dim::ONE).steps;
        let steps = self.lanes.steps;
        lines(&self.fold, fold, start, until, |first, run| {
            // SAFETY: guaranteed by the caller.
            unsafe {
                if lanes == 1 {
                    return self.line(first, (run, inner), faults, |_, found, from| each(0, found, from));
                }
                for i in 0..run {
                    self.fetch(along(first, (i + AHEAD) as isize, &inner), lanes);
                    self.line(along(first, i as isize, &inner), (lanes, steps), faults, &mut each);
                }
            }
        });
    }

    /// Fetches the indices and sources of lanes into a cache, if they are adjacent. They may lie outside the views.
    #[inline(always)]
    fn fetch(&self, first: Steps, lanes: usize) {
        if self.lanes.steps[..2] == [1, 1] {
            fetch(self.index.wrapping_offset(first[1]), lanes);
            fetch(self.source.wrapping_offset(first[0]), lanes);
        }
    }

    /// Calls `each` with the number, the position along the axis and the source of each element along a dimension.
    ///
    /// # Safety
    /// As for `elements`.
    #[inline(always)]
    unsafe fn line(
        &self,
        first: Steps,
        (count, steps): (usize, Steps),
        faults: Option<&FaultSlot>,
        each: impl FnMut(usize, usize, *const M),
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match steps {
                // With constant steps, the loop takes half of the instructions.
                [1, 1, ..] => self.stepped(first, (count, [1, 1], steps[3]), faults, each),
                _ => self.stepped(first, (count, [steps[0], steps[1]], steps[3]), faults, each),
            }
        }
    }

    #[inline(always)]
    unsafe fn stepped(
        &self,
        first: Steps,
        (count, [source_step, index_step], number): (usize, [isize; 2], isize),
        faults: Option<&FaultSlot>,
        mut each: impl FnMut(usize, usize, *const M),
    ) {
        let (source, index) = (self.source.wrapping_offset(first[0]), self.index.wrapping_offset(first[1]));
        let limit = self.limit as i64;
        for i in 0..count as isize {
            // SAFETY: guaranteed by the caller.
            let value = unsafe { index.wrapping_offset(i * index_step).read_unaligned() };
            let found = from_start(value, limit);
            if (found as u64) < limit as u64 {
                each(i as usize, found as usize, source.wrapping_offset(i * source_step));
            } else {
                self.bad(value, first[3] + i * number, faults);
            }
        }
    }

    /// Reports a bad index.
    #[cold]
    fn bad(&self, value: i64, number: isize, faults: Option<&FaultSlot>) {
        if let Some(faults) = faults {
            resolve(value, self.launch, faults, number as usize);
        }
    }

    /// The same for rows: calls `each` with the position along the axis and the source of each first lane.
    ///
    /// # Safety
    /// As for `elements`.
    #[inline(always)]
    unsafe fn rows(
        &self,
        (start, lanes): (Steps, usize),
        fold: Range<usize>,
        (until, faults): (&Until, Option<&FaultSlot>),
        mut each: impl FnMut(usize, *const M),
    ) {
        let inner = self.fold.last().copied().unwrap_or(Dim::ONE).steps;
        lines(&self.fold, fold, start, until, |first, run| {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let rows = [inner[0], inner[1], 0, 0];
                // A bad index counts for each element of its row.
                self.line(first, (run, rows), None, |_, found, from| each(found, from));
                if faults.is_some() {
                    self.reported(first, (run, inner), lanes, faults);
                }
            }
        });
    }

    /// Reports the bad indices of rows.
    unsafe fn reported(
        &self,
        first: Steps,
        (count, steps): (usize, Steps),
        lanes: usize,
        faults: Option<&FaultSlot>,
    ) {
        let (index, limit) = (self.index.wrapping_offset(first[1]), self.limit as i64);
        for i in 0..count as isize {
            // SAFETY: guaranteed by the caller.
            let value = unsafe { index.wrapping_offset(i * steps[1]).read_unaligned() };
            if !(-limit..limit).contains(&value) {
                (0..lanes as isize).for_each(|lane| {
                    self.bad(value, first[3] + i * steps[3] + lane * self.lanes.steps[3], faults);
                });
            }
        }
    }
}

/// Calls `each` with the numbers of boxes of this many elements; small boxes are grouped.
fn boxes<T>(
    boxes: usize,
    elements: usize,
    init: impl Fn() -> T + Sync + Send,
    each: impl Fn(&mut T, usize) + Sync,
) {
    let group = (GROUP / elements.max(1)).clamp(1, boxes);
    let shared = boxes > group && boxes.saturating_mul(elements).saturating_mul(3) >= PARALLEL;
    tasks::each_with(boxes.div_ceil(group), shared, init, |state, number| {
        (number * group..((number + 1) * group).min(boxes)).for_each(|number| each(state, number));
    });
}

/// Writes integers, or combines them in any order.
unsafe fn whole<M: Element<Lane: Accumulator>>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scatter.f {
            None => written::<M>(launch, faults, Plain(|_, new| new)),
            Some(f) if f.name == "sum" => {
                written::<M>(
                    launch,
                    faults,
                    Plain(|held: M, new: M| M::narrow(held.widen().plus(new.widen()))),
                );
            }
            Some(f) => {
                let Some(step) = ordered::step(f) else { return };
                written::<M>(
                    launch,
                    faults,
                    Plain(|held: M, new: M| M::narrow(step(held.widen(), new.widen()))),
                );
            }
        }
    }
}

/// Writes floats, or combines them.
unsafe fn floats<M: Element<Lane: Accumulator>>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scatter.f {
            None => written::<M>(launch, faults, Plain(|_, new| new)),
            Some(f) => {
                let Some(step) = ordered::step::<M::Lane>(f) else { return };
                written::<M>(launch, faults, Ordered::new(scatter, step));
            }
        }
    }
}

/// Writes each element's target.
unsafe fn written<M: Element>(launch: &Launch, faults: &FaultSlot, write: impl Write<M>) {
    let walk = &Walk::<M>::of(launch);
    let all = count(&walk.fold);
    let wanted = tasks::threads(launch.shape.iter().product::<usize>() * 3) * 4;
    let most = wanted.div_ceil(count(&walk.free));
    let lanes = walk.lanes.extent.div_ceil(most).max(FEWEST).min(walk.lanes.extent);
    let number = count(&walk.free) * walk.lanes.extent.div_ceil(lanes);
    boxes(number, all * lanes, Until::now, |until, number| {
        let (start, own) = walk.cut(number, lanes);
        let (out, lanes) = (walk.out.wrapping_offset(start[2]), own.len());
        let about = (&*until, Some(faults));
        // SAFETY: guaranteed by the caller; targets lie in the view, and no other box has them.
        unsafe {
            if walk.has_rows() {
                let mut state = write.begin(walk.limit, all);
                walk.rows((start, lanes), 0..all, about, |found, from| {
                    write.row(
                        &mut state,
                        found,
                        out.wrapping_offset(found as isize * walk.step),
                        from,
                        lanes,
                    );
                });
                return write.end(state);
            }
            let step = walk.lanes.steps[2];
            let mut state = write.begin(walk.limit * lanes, all);
            walk.elements((start, lanes), 0..all, about, |lane, found, from| {
                let to = out.wrapping_offset(found as isize * walk.step + lane as isize * step);
                write.row(&mut state, found * lanes + lane, to, from, 1);
            });
            write.end(state);
        }
    });
}
