//! Scatters on the host: threads split the work along a dimension of the target that the index does not select, so
//! that no two threads write the same element. Without such a dimension one thread does all the work.

use super::{Scatter, extent, sums};
use crate::array::{Dims, Dtype, dispatch};
use crate::kernel::Launch;
use crate::kernel::host::FaultSlot;
use crate::kernel::host::element::Element;
use crate::kernel::host::fold::Accumulator;
use crate::kernel::host::positions::{element, resolve};
use crate::kernel::host::tasks::{self, PARALLEL, SOME, Until, threads};
use half::{bf16, f16};
use smallvec::SmallVec;

/// Runs a scatter.
///
/// # Safety
/// The launch upholds its invariant, and nothing else accesses the memory it reads or writes during the call.
pub(super) unsafe fn run(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    if launch.shape.contains(&0) {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scatter.dtype {
            Dtype::F32 if scatter.is_scaled() => summed::<f32>(launch, faults),
            Dtype::F16 if scatter.is_scaled() => summed::<f16>(launch, faults),
            Dtype::BF16 if scatter.is_scaled() => summed::<bf16>(launch, faults),
            _ => dispatch!(scatter.dtype, M => in_order::<M>(scatter, launch, faults)),
        }
    }
}

/// Writes or combines elements in row-major order.
unsafe fn in_order<M: Element>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot)
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
    parts(launch, |part| {
        let write = |to: *mut M, new: M| {
            // SAFETY: the target lies in the view, and no other thread writes it.
            unsafe {
                to.write_unaligned(match one {
                    Some(one) => M::narrow(one(to.read_unaligned().widen(), new.widen())),
                    None => new,
                });
            }
        };
        // SAFETY: guaranteed by the caller.
        unsafe { walk(launch, Some(faults), part, |run: Run<M>| run.each(write)) };
    });
}

/// Elements of the source next to each other along a dimension, and their targets.
struct Run<M> {
    to: *mut M,
    from: *const M,
    count: usize,
    to_step: isize,
    from_step: isize,
}

impl<M: Element> Run<M> {
    /// Calls `each` with the targets and the elements.
    ///
    /// # Safety
    /// The elements lie in live memory.
    unsafe fn each(self, mut each: impl FnMut(*mut M, M)) {
        for i in 0..self.count as isize {
            // SAFETY: guaranteed by the caller.
            let new = unsafe { self.from.wrapping_offset(i * self.from_step).read_unaligned() };
            each(self.to.wrapping_offset(i * self.to_step), new);
        }
    }
}

/// Tops and sums of all targets, by their offsets from the first one.
struct Places<M> {
    first: *const M,
    tops: *mut u32,
    sums: *mut i64,
}

// SAFETY: threads use the places of different targets.
unsafe impl<M> Sync for Places<M> {}

impl<M> Places<M> {
    /// Calls `each` with top, sum, target and element of each element of a run.
    ///
    /// # Safety
    /// The run lies in the views, and no other thread uses its targets.
    #[inline(always)]
    unsafe fn each(&self, run: Run<M>, mut each: impl FnMut(&mut u32, &mut i64, *mut M, M)) {
        let first = (run.to as usize - self.first as usize) / size_of::<M>();
        // SAFETY: there are as many places as offsets of targets.
        unsafe {
            let (tops, sums) = (self.tops.add(first), self.sums.add(first));
            // With constant steps, the loop is vectorised.
            if run.to_step == 1 && run.from_step == 1 {
                for i in 0..run.count {
                    let new = run.from.add(i).read_unaligned();
                    each(&mut *tops.add(i), &mut *sums.add(i), run.to.add(i), new);
                }
                return;
            }
            for i in 0..run.count as isize {
                let (at, new) = (i * run.to_step, run.from.offset(i * run.from_step).read_unaligned());
                each(&mut *tops.offset(at), &mut *sums.offset(at), run.to.offset(at), new);
            }
        }
    }
}

/// The number of offsets of targets.
pub(super) fn places(launch: &Launch) -> usize {
    let strides = launch.views[2].strides.iter().enumerate();
    strides.map(|(d, s)| (extent(launch, d).max(1) as usize - 1) * s.unsigned_abs()).sum::<usize>() + 1
}

/// Sums floats: the note in [`sums`].
unsafe fn summed<M: Element<Lane = f32>>(launch: &Launch, faults: &FaultSlot) {
    let out = &launch.views[2];
    let before = out.strides.iter().enumerate().filter(|(_, s)| **s < 0);
    let before: isize = before.map(|(d, s)| (extent(launch, d).max(1) as isize - 1) * s).sum();
    let (mut tops, mut sums_of) = (vec![0u32; places(launch)], vec![0i64; places(launch)]);
    let first = element::<M>(out).wrapping_offset(before);
    let places = Places { first, tops: tops.as_mut_ptr(), sums: sums_of.as_mut_ptr() };
    let room = sums::room(launch.shape.iter().map(|&n| n as u64).product());
    parts(launch, |part| {
        let places = &places;
        // SAFETY: targets lie in the view, and no other thread uses theirs; each is written once.
        unsafe {
            walk(launch, Some(faults), part, |run: Run<M>| {
                places.each(run, |top, _, to, new| {
                    let before = sums::top_of(to.read_unaligned().widen());
                    let held = if *top == 0 { before } else { *top };
                    *top = sums::higher(held, sums::top_of(new.widen()));
                });
            });
            walk(launch, None, part, |run: Run<M>| {
                places.each(run, |top, sum, _, new| {
                    *sum = sum.wrapping_add(sums::units(new.widen(), *top, room));
                });
            });
            walk(launch, None, part, |run: Run<M>| {
                places.each(run, |top, sum, to, _| {
                    if *top != 0 {
                        let all = sum.wrapping_add(sums::units(to.read_unaligned().widen(), *top, room));
                        to.write_unaligned(M::narrow(sums::sum_of(all, *top, room)));
                        *top = 0;
                    }
                });
            });
        }
    });
}

/// A box of the source, of which no other part has a target.
struct Part {
    origin: Dims,
    shape: Dims,
    until: Until,
}

/// Calls `each` with parts that together are the launch.
fn parts(launch: &Launch, each: impl Fn(&Part) + Sync) {
    let count: usize = launch.shape.iter().product();
    let out = &launch.views[2];
    let free = |&d: &usize| d != launch.axis && out.strides[d] != 0;
    let shared = (0..launch.shape.len()).filter(free).max_by_key(|&d| launch.shape[d]);
    let parts = shared.map_or(1, |d| launch.shape[d].min(threads(count * 3) * 2));
    let origin: Dims = launch.shape.iter().map(|_| 0).collect();
    let whole = || Part { origin: origin.clone(), shape: launch.shape.clone(), until: Until::now() };
    let Some(shared) = shared.filter(|_| parts > 1 && count * 3 >= PARALLEL) else {
        return each(&whole());
    };
    tasks::each(parts, true, |i| {
        let extent = launch.shape[shared];
        let (from, to) = (extent * i / parts, extent * (i + 1) / parts);
        let mut part = whole();
        (part.origin[shared], part.shape[shared]) = (from, to - from);
        each(&part);
    });
}

/// The steps of one coordinate: in the source, the index and the target, in elements, and in row-major positions.
type Steps = [isize; 4];

/// Calls `each` with the positions of a part, row-major, and reports bad indices.
///
/// # Safety
/// The launch upholds its invariant.
unsafe fn walk<M: Element>(
    launch: &Launch,
    faults: Option<&FaultSlot>,
    part: &Part,
    mut each: impl FnMut(Run<M>),
) {
    let Part { origin, shape, until } = part;
    let [source, index, out] = [0, 1, 2].map(|view| &launch.views[view]);
    let own = |d: usize| if d == launch.axis { 0 } else { out.strides[d] };
    let steps = |d: usize| -> Steps {
        let position: usize = launch.shape[d + 1..].iter().product();
        [source.strides[d], index.strides[d], own(d), position as isize]
    };
    // What is along dimensions of one element is in `at` from the start.
    let mut at: Steps = [0; 4];
    for (d, &o) in origin.iter().enumerate() {
        at.iter_mut().zip(steps(d)).for_each(|(at, step)| *at += o as isize * step);
    }
    let mut dims: SmallVec<[(usize, Steps); 6]> = (0..shape.len()).map(|d| (shape[d], steps(d))).collect();
    dims.retain(|(extent, _)| *extent != 1);
    let (run, [source_step, index_step, out_step, _]) = dims.pop().unwrap_or((1, [0; 4]));
    let axis_stride = out.strides.get(launch.axis).copied().unwrap_or(0);
    let limit = launch.limit as i64;
    let target = |value: i64| -> Option<isize> {
        let found = if value < 0 { value.wrapping_add(limit) } else { value };
        (0..limit).contains(&found).then_some(found as isize * axis_stride)
    };
    let report = |value: i64, position: isize| {
        if let Some(faults) = faults {
            resolve(value, launch, faults, position as usize);
        }
    };
    let mut place: SmallVec<[usize; 6]> = dims.iter().map(|_| 0).collect();
    let mut unseen = 0;
    for _ in 0..dims.iter().map(|(extent, _)| extent).product::<usize>() {
        let [from, indices, to, position] = at;
        let from = element::<M>(source).wrapping_offset(from);
        let indices = element::<i64>(index).wrapping_offset(indices);
        let to = element::<M>(out).wrapping_offset(to);
        // SAFETY: these elements lie in the index view.
        let index_of = |i: isize| unsafe { indices.wrapping_offset(i * index_step).read_unaligned() };
        let run_of = |found: isize, first: isize, count: usize| Run {
            to: to.wrapping_offset(found + first * out_step),
            from: from.wrapping_offset(first * source_step),
            count,
            to_step: out_step,
            from_step: source_step,
        };
        for start in (0..run).step_by(SOME) {
            let end = run.min(start + SOME);
            unseen += end - start;
            if unseen >= SOME {
                unseen = 0;
                if until.ended() {
                    return;
                }
            }
            let some = start as isize..end as isize;
            // A row with one index.
            if index_step == 0 {
                match target(index_of(0)) {
                    Some(found) => each(run_of(found, some.start, some.len())),
                    None => some.for_each(|i| report(index_of(0), position + i)),
                }
                continue;
            }
            for i in some {
                match target(index_of(i)) {
                    Some(found) => each(run_of(found, i, 1)),
                    None => report(index_of(i), position + i),
                }
            }
        }
        for (place, (extent, steps)) in place.iter_mut().zip(&dims).rev() {
            *place += 1;
            at.iter_mut().zip(steps).for_each(|(at, step)| *at += step);
            if *place < *extent {
                break;
            }
            at.iter_mut().zip(steps).for_each(|(at, step)| *at -= *extent as isize * step);
            *place = 0;
        }
    }
}
