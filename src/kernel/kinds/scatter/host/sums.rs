//! Sums of floats of up to 32 bits: the note in [`definition`]. They are independent of order, so threads also share
//! the elements of one box. The number of targets chooses one of three methods:
//!
//! - *direct*: the tops and sums of all targets of a box fit in a cache; without tops where sums are exact ([`exact`]);
//! - *runs*: rows are sorted by target, and the rows of each target are summed;
//! - *dealt*: single elements are distributed to ranges of targets that fit in a cache.

use super::super::{Scatter, sums as definition};
use super::exact::{self, Scale, Spread};
use super::overlap::{self, Flat};
use super::{AHEAD, Dim, Dims, Element, FEWEST, Launch, Steps, Until, Walk, boxes, count, fetch, lines};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::scratch::Buffer;
use crate::kernel::host::tasks::{self, PARALLEL, threads};
use definition::{SHORT, higher, short_units, sum_of, top_of, units};
use parking_lot::Mutex;
use std::ops::Range;

/// Targets whose tops and sums fit in a cache: preferred, and maximum.
const PREFERRED_CACHED: usize = 1 << 15;
const MAX_CACHED: usize = 1 << 17;
/// Minimum logarithm of a range's targets, and maximum number of ranges.
const RANGE: u32 = 14;
const RANGES: usize = 1024;
/// Elements whose exponents a task compares.
const SPREAD: usize = 1 << 15;
/// Targets whose sums a task adds.
const TARGETS: usize = 1 << 12;
/// Neighbouring elements that are summed together in a run.
const TOGETHER: usize = 256;

/// The memory for a launch of this many elements.
pub(super) fn scratch(count: u64) -> u64 {
    let threads = threads(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(3)) as u64;
    let direct = count.saturating_mul(4).min(MAX_CACHED as u64) * definition::BYTES;
    count.saturating_mul(16).saturating_add(direct * threads)
}

/// Runs a launch.
///
/// # Safety
/// As for a launch; distinct coordinates of the target are distinct elements.
pub(super) unsafe fn run<M: Element<Lane = f32>>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    let walk = Walk::<M>::of(launch);
    let total: usize = launch.shape.iter().product();
    let all = count(&walk.fold);
    // Rows are not cut: *runs* of whole rows take less time than *direct* sums of pieces.
    let lanes =
        if walk.has_rows() { walk.lanes.extent } else { (PREFERRED_CACHED / walk.limit.max(1)).max(FEWEST) };
    let lanes = lanes.min(walk.lanes.extent);
    let places = walk.limit.saturating_mul(lanes);
    let flat = Flat::<M>::of(launch);
    let sums = Sums { walk, all, total, room: definition::room(total as u64), faults };
    // SAFETY: guaranteed by the caller.
    unsafe {
        if places <= MAX_CACHED && (all * lanes).saturating_mul(4) >= places {
            sums.direct(lanes, places);
        } else if sums.walk.has_rows() {
            sums.runs();
        } else if u32::try_from(flat.places).is_ok() {
            sums.add_by_ranges(&flat);
        } else {
            overlap::run(scatter, launch, faults);
        }
    }
}

/// Raises tops to those of adjacent elements.
unsafe fn raise_row<M: Element<Lane = f32>>(tops: &mut [u32], from: *const M) {
    #[inline(always)]
    fn each<M: Element<Lane = f32>>(tops: &mut [u32], from: *const M) {
        for (i, top) in tops.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller of `raise_row`.
            *top = higher(*top, top_of(unsafe { from.add(i).read_unaligned() }.widen()));
        }
    }
    multiversion!([M: Element<Lane = f32>] each(tops: &mut [u32] = tops, from: *const M = from));
}

/// Adds adjacent elements to their sums.
unsafe fn add_row<M: Element<Lane = f32>>(sums: &mut [i64], tops: &[u32], from: *const M, room: u32) {
    #[inline(always)]
    fn each<M: Element<Lane = f32>>(
        sums: &mut [i64],
        tops: &[u32],
        from: *const M,
        units: impl Fn(f32, u32) -> i64,
    ) {
        for (i, (sum, top)) in sums.iter_mut().zip(tops).enumerate() {
            // SAFETY: guaranteed by the caller of `add_row`.
            let new = unsafe { from.add(i).read_unaligned() }.widen();
            *sum = sum.wrapping_add(units(new, *top));
        }
    }
    #[inline(always)]
    fn of_room<M: Element<Lane = f32>>(sums: &mut [i64], tops: &[u32], from: *const M, room: u32) {
        match room {
            0..=SHORT => each(sums, tops, from, |a, top| short_units(a, top, room)),
            _ => each(sums, tops, from, |a, top| units(a, top, room)),
        }
    }
    multiversion!([M: Element<Lane = f32>] of_room(
        sums: &mut [i64] = sums,
        tops: &[u32] = tops,
        from: *const M = from,
        room: u32 = room,
    ));
}

/// Raises the tops of targets at a constant distance to those of their old values, where they have sources.
unsafe fn hold_line<M: Element<Lane = f32>>(tops: &mut [u32], to: *const M, step: isize) {
    #[inline(always)]
    fn each<M: Element<Lane = f32>>(tops: &mut [u32], to: *const M, step: isize) {
        for (i, top) in tops.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller of `hold_line`.
            let old = unsafe { to.wrapping_offset(i as isize * step).read_unaligned() }.widen();
            *top = if *top == 0 { 0 } else { higher(*top, top_of(old)) };
        }
    }
    #[inline(always)]
    fn of_step<M: Element<Lane = f32>>(tops: &mut [u32], to: *const M, step: isize) {
        // With a constant step, the loop is vectorised.
        if step == 1 { each(tops, to, 1) } else { each(tops, to, step) }
    }
    multiversion!([M: Element<Lane = f32>] of_step(
        tops: &mut [u32] = tops,
        to: *const M = to,
        step: isize = step,
    ));
}

/// Adds sums to targets at a constant distance, where they have sources, and clears tops and sums.
unsafe fn finish_line<M: Element<Lane = f32>>(
    tops: &mut [u32],
    sums: &mut [i64],
    to: *mut M,
    (step, room): (isize, u32),
) {
    #[inline(always)]
    fn each<M: Element<Lane = f32>>(
        tops: &mut [u32],
        sums: &mut [i64],
        to: *mut M,
        step: isize,
        units: impl Fn(f32, u32) -> i64,
        room: u32,
    ) {
        for (i, (top, sum)) in tops.iter_mut().zip(sums).enumerate() {
            let to = to.wrapping_offset(i as isize * step);
            // SAFETY: guaranteed by the caller of `finish_line`.
            unsafe {
                let old = to.read_unaligned();
                let all = sum.wrapping_add(units(old.widen(), *top));
                let new = M::narrow(sum_of(all, *top, room));
                to.write_unaligned(if *top == 0 { old } else { new });
            }
            (*top, *sum) = (0, 0);
        }
    }
    #[inline(always)]
    fn of_step<M: Element<Lane = f32>>(
        tops: &mut [u32],
        sums: &mut [i64],
        to: *mut M,
        step: isize,
        room: u32,
    ) {
        match step {
            1 if room <= SHORT => each(tops, sums, to, 1, |a, top| short_units(a, top, room), room),
            _ => each(tops, sums, to, step, |a, top| units(a, top, room), room),
        }
    }
    multiversion!([M: Element<Lane = f32>] of_step(
        tops: &mut [u32] = tops,
        sums: &mut [i64] = sums,
        to: *mut M = to,
        step: isize = step,
        room: u32 = room,
    ));
}

/// Raises a top. Most numbers leave it as it is.
#[inline(always)]
fn raise(top: &mut u32, new: f32) {
    let exponent = new.to_bits() >> 23 & 255;
    if exponent == 255 {
        special(top, new);
    } else if exponent.max(1) > *top {
        // The tops of infinities and nan are greater.
        *top = exponent.max(1);
    }
}

#[cold]
fn special(top: &mut u32, new: f32) {
    *top = higher(*top, top_of(new));
}

/// Tops and sums, 0 between uses.
struct Held {
    tops: Vec<u32>,
    sums: Vec<i64>,
}

impl Held {
    fn new(places: usize) -> Held {
        Held { tops: vec![0; places], sums: vec![0; places] }
    }
}

/// A distributed element.
#[derive(Clone, Copy)]
struct Item {
    place: u32,
    value: f32,
}

/// A launch.
struct Sums<'a, M> {
    walk: Walk<'a, M>,
    /// Number of elements along the summed dimensions, and in the launch.
    all: usize,
    total: usize,
    room: u32,
    faults: &'a FaultSlot,
}

/// A box: its start, and its lanes.
type Cut = (Steps, usize);

impl<M: Element<Lane = f32>> Sums<'_, M> {
    unsafe fn direct(&self, lanes: usize, places: usize) {
        let walk = &self.walk;
        let number = count(&walk.free) * walk.lanes.extent.div_ceil(lanes);
        let cut = |number: usize| -> Cut {
            let (start, own) = walk.cut(number, lanes);
            (start, own.len())
        };
        let threads = threads(self.total * 3);
        let parts =
            if number < 2 * threads { threads.min(self.all * lanes / (2 * places)).min(self.all) } else { 1 };
        if parts <= 1 {
            let until = Until::now();
            // The lines of a box are short: those of the whole launch take less time.
            let whole = (number > 1 && lanes > 1 && !walk.has_rows()).then(|| self.spread_of_all(&until));
            return boxes(
                number,
                self.all * lanes,
                || Held::new(places),
                |held, number| {
                    let cut = cut(number);
                    // SAFETY: guaranteed by the caller; no other box has these targets.
                    unsafe {
                        let spread = whole.unwrap_or_else(|| self.spread(cut, 0..self.all, &until));
                        if let Some(scale) = self.scale(cut, spread) {
                            self.add_exact(cut, 0..self.all, scale, &mut held.sums, &until);
                            self.lines_of_targets(cut, 0..walk.limit, |places, to, step| {
                                scale.finish(&mut held.sums[places], to, step);
                            });
                            return;
                        }
                        self.raise(cut, 0..self.all, &mut held.tops, &until);
                        self.hold(cut, &mut held.tops);
                        self.add(cut, 0..self.all, &held.tops, &mut held.sums, &until);
                        self.finish(cut, &mut held.tops, &mut held.sums);
                    }
                },
            );
        }
        let part = |i: usize| self.all * i / parts..self.all * (i + 1) / parts;
        let until = &Until::now();
        for number in 0..number {
            let cut = cut(number);
            let spreads: Vec<_> = (0..parts).map(|_| Mutex::new(Spread::NONE)).collect();
            // SAFETY: as above.
            tasks::each(parts, true, |i| *spreads[i].lock() = unsafe { self.spread(cut, part(i), until) });
            let spread = spreads.into_iter().map(Mutex::into_inner).fold(Spread::NONE, Spread::and);
            // SAFETY: as above.
            if let Some(scale) = unsafe { self.scale(cut, spread) } {
                let sums: Vec<_> = (0..parts).map(|_| Mutex::new(vec![0; places])).collect();
                tasks::each(parts, true, |i| {
                    // SAFETY: as above.
                    unsafe { self.add_exact(cut, part(i), scale, &mut sums[i].lock(), until) };
                });
                let sums: Vec<Vec<i64>> = sums.into_iter().map(Mutex::into_inner).collect();
                // SAFETY: as above.
                unsafe { self.finish_parts(cut, scale, &sums) };
                continue;
            }
            let tops: Vec<_> = (0..parts).map(|_| Mutex::new(vec![0; places])).collect();
            // SAFETY: as above.
            tasks::each(parts, true, |i| unsafe { self.raise(cut, part(i), &mut tops[i].lock(), until) });
            let mut tops = tops.into_iter().map(Mutex::into_inner);
            let mut all = tops.next().unwrap_or_default();
            tops.for_each(|tops| all.iter_mut().zip(tops).for_each(|(a, b)| *a = higher(*a, b)));
            // SAFETY: as above.
            unsafe { self.hold(cut, &mut all) };
            let sums: Vec<_> = (0..parts).map(|_| Mutex::new(vec![0; places])).collect();
            // SAFETY: as above.
            tasks::each(parts, true, |i| unsafe { self.add(cut, part(i), &all, &mut sums[i].lock(), until) });
            let mut sums = sums.into_iter().map(Mutex::into_inner);
            let mut sum = sums.next().unwrap_or_default();
            sums.for_each(|sums| {
                sum.iter_mut().zip(sums).for_each(|(a, b): (&mut i64, i64)| *a = a.wrapping_add(b))
            });
            // SAFETY: as above.
            unsafe { self.finish(cut, &mut all, &mut sum) };
        }
    }

    /// Raises the tops of a box by a part of its elements.
    unsafe fn raise(&self, (start, lanes): Cut, fold: Range<usize>, tops: &mut [u32], until: &Until) {
        let about = (until, Some(self.faults));
        // SAFETY: guaranteed by the caller; there are as many tops as targets.
        unsafe {
            if self.walk.has_rows() {
                return self.walk.rows((start, lanes), fold, about, |found, from| {
                    raise_row(&mut tops[found * lanes..][..lanes], from);
                });
            }
            let tops = tops.as_mut_ptr();
            self.walk.elements((start, lanes), fold, about, move |lane, found, from| {
                raise(&mut *tops.add(found * lanes + lane), from.read_unaligned().widen());
            });
        }
    }

    /// Adds a part of the elements of a box.
    unsafe fn add(
        &self,
        (start, lanes): Cut,
        fold: Range<usize>,
        tops: &[u32],
        sums: &mut [i64],
        until: &Until,
    ) {
        let (about, room) = ((until, None), self.room);
        // SAFETY: as for `raise`.
        unsafe {
            if self.walk.has_rows() {
                return self.walk.rows((start, lanes), fold, about, |found, from| {
                    let first = found * lanes;
                    add_row(&mut sums[first..][..lanes], &tops[first..][..lanes], from, room);
                });
            }
            let (tops, sums) = (tops.as_ptr(), sums.as_mut_ptr());
            if lanes == 1 && room <= SHORT {
                return self.walk.elements((start, 1), fold, about, move |_, found, from| {
                    let part = short_units(from.read_unaligned().widen(), *tops.add(found), room);
                    *sums.add(found) = (*sums.add(found)).wrapping_add(part);
                });
            }
            self.walk.elements((start, lanes), fold, about, move |lane, found, from| {
                let place = found * lanes + lane;
                let part = units(from.read_unaligned().widen(), *tops.add(place), room);
                *sums.add(place) = (*sums.add(place)).wrapping_add(part);
            });
        }
    }

    /// The exponents of a part of the elements of a box; not all of them if the sums cannot be exact.
    unsafe fn spread(&self, (start, lanes): Cut, fold: Range<usize>, until: &Until) -> Spread {
        let walk = &self.walk;
        let inner = walk.fold.last().copied().unwrap_or(Dim::ONE).steps;
        let mut spread = Spread::NONE;
        let mut of_line = |from: isize, count: usize, step: isize| {
            if spread.scale(self.room).is_some() {
                // SAFETY: guaranteed by the caller.
                spread = spread
                    .and(unsafe { exact::spread(walk.source.wrapping_offset(from), count, step, false) });
            }
        };
        lines(&walk.fold, fold, start, until, |first, run| {
            if lanes == 1 {
                of_line(first[0], run, inner[0]);
            } else if walk.lanes.steps[0] == 1 && inner[0] == lanes as isize {
                of_line(first[0], run * lanes, 1);
            } else {
                (0..run as isize).for_each(|i| of_line(first[0] + i * inner[0], lanes, walk.lanes.steps[0]));
            }
        });
        spread
    }

    /// The exponents of all elements, in the order of the launch.
    fn spread_of_all(&self, until: &Until) -> Spread {
        let launch = self.walk.launch;
        let dims: Dims = (0..launch.shape.len()).map(|d| Dim::of(launch, d)).collect();
        let step = dims.last().unwrap_or(&Dim::ONE).steps[0];
        let parts = self.total.div_ceil(SPREAD);
        let spreads: Vec<_> = (0..parts).map(|_| Mutex::new(Spread::NONE)).collect();
        tasks::each(parts, threads(self.total * 3) > 1, |part| {
            let mut spread = Spread::NONE;
            let range = part * SPREAD..self.total.min((part + 1) * SPREAD);
            lines(&dims, range, [0; 4], until, |first, run| {
                let from = self.walk.source.wrapping_offset(first[0]);
                // SAFETY: guaranteed by the caller of `run`: the elements lie in the source.
                spread = spread.and(unsafe { exact::spread(from, run, step, false) });
            });
            *spreads[part].lock() = spread;
        });
        spreads.into_iter().map(Mutex::into_inner).fold(Spread::NONE, Spread::and)
    }

    /// The unit in which the sums of a box are exact, given the exponents of its elements.
    unsafe fn scale(&self, cut: Cut, mut spread: Spread) -> Option<Scale> {
        spread.scale(self.room)?;
        self.lines_of_targets(cut, 0..self.walk.limit, |places, to, step| {
            // SAFETY: guaranteed by the caller.
            spread = spread.and(unsafe { exact::spread(to.cast_const(), places.len(), step, true) });
        });
        spread.scale(self.room)
    }

    /// Adds a part of the elements of a box, whose sums are exact.
    unsafe fn add_exact(
        &self,
        (start, lanes): Cut,
        fold: Range<usize>,
        scale: Scale,
        sums: &mut [i64],
        until: &Until,
    ) {
        let about = (until, Some(self.faults));
        // SAFETY: as for `raise`.
        unsafe {
            if self.walk.has_rows() {
                return self.walk.rows((start, lanes), fold, about, |found, from| {
                    scale.add_row(&mut sums[found * lanes..][..lanes], from);
                });
            }
            let sums = sums.as_mut_ptr();
            if lanes == 1 {
                return self.walk.elements((start, 1), fold, about, move |_, found, from| {
                    let sum = sums.add(found);
                    *sum = (*sum).wrapping_add(scale.units(from.read_unaligned().widen()));
                });
            }
            self.walk.elements((start, lanes), fold, about, move |lane, found, from| {
                let sum = sums.add(found * lanes + lane);
                *sum = (*sum).wrapping_add(scale.units(from.read_unaligned().widen()));
            });
        }
    }

    /// Adds the sums of all parts to the targets of a box.
    unsafe fn finish_parts(&self, cut: Cut, scale: Scale, sums: &[Vec<i64>]) {
        let (limit, lanes) = (self.walk.limit, cut.1);
        let each = (TARGETS / lanes).max(1);
        tasks::each(limit.div_ceil(each), limit * lanes * sums.len() >= PARALLEL, |task| {
            let found = task * each..limit.min((task + 1) * each);
            let mut all = vec![0; found.len() * lanes];
            for sums in sums {
                let own = &sums[found.start * lanes..found.end * lanes];
                all.iter_mut().zip(own).for_each(|(a, b): (&mut i64, &i64)| *a = a.wrapping_add(*b));
            }
            let first = found.start * lanes;
            self.lines_of_targets(cut, found, |places, to, step| {
                // SAFETY: guaranteed by the caller; no other task has these targets.
                unsafe { scale.finish(&mut all[places.start - first..places.end - first], to, step) };
            });
        });
    }

    /// Calls `each` with the positions of a box, the target of the first, and the distance of their targets, for the lines
    /// that make up the targets of a range of indices.
    fn lines_of_targets(
        &self,
        (start, lanes): Cut,
        found: Range<usize>,
        mut each: impl FnMut(Range<usize>, *mut M, isize),
    ) {
        let walk = &self.walk;
        let out = walk.out.wrapping_offset(start[2]);
        let row = |found: usize| out.wrapping_offset(found as isize * walk.step);
        let step = walk.lanes.steps[2];
        let whole = found.start * lanes..found.end * lanes;
        match lanes {
            1 => each(whole, row(found.start), walk.step),
            _ if walk.step == lanes as isize * step => each(whole, row(found.start), step),
            _ => found.for_each(|found| each(found * lanes..(found + 1) * lanes, row(found), step)),
        }
    }

    /// Raises tops to those of the old values.
    unsafe fn hold(&self, cut: Cut, tops: &mut [u32]) {
        self.lines_of_targets(cut, 0..self.walk.limit, |places, to, step| {
            // SAFETY: guaranteed by the caller.
            unsafe { hold_line(&mut tops[places], to.cast_const(), step) };
        });
    }

    /// Writes the sums, and clears tops and sums.
    unsafe fn finish(&self, cut: Cut, tops: &mut [u32], sums: &mut [i64]) {
        self.lines_of_targets(cut, 0..self.walk.limit, |places, to, step| {
            // SAFETY: guaranteed by the caller.
            unsafe { finish_line(&mut tops[places.clone()], &mut sums[places], to, (step, self.room)) };
        });
    }

    /// Writes a sum, and clears it and its top.
    #[inline(always)]
    unsafe fn write(&self, to: *mut M, top: &mut u32, sum: &mut i64) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let all = sum.wrapping_add(units(to.read_unaligned().widen(), *top, self.room));
            to.write_unaligned(M::narrow(sum_of(all, *top, self.room)));
        }
        (*top, *sum) = (0, 0);
    }

    unsafe fn runs(&self) {
        let walk = &self.walk;
        let number = count(&walk.free);
        let shared = threads(self.total * 3) > 1;
        let apart = shared && number >= 2 * threads(self.total * 3);
        tasks::each(number, apart, |number| {
            let (start, _) = walk.cut(number, walk.lanes.extent);
            let (mut rows, until) = (Vec::with_capacity(self.all), Until::now());
            // SAFETY: guaranteed by the caller.
            unsafe {
                let cut = (start, walk.lanes.extent);
                let add = |found: usize, from: *const M| rows.push((found, from as usize));
                walk.rows(cut, 0..self.all, (&until, Some(self.faults)), add);
            }
            let rows = &by_target(rows, walk.limit);
            let parts = if shared && !apart { threads(self.total * 3) * 4 } else { 1 };
            let mut ends: Vec<usize> = (0..=parts).map(|i| rows.len() * i / parts).collect();
            for end in ends.iter_mut().filter(|end| **end > 0) {
                while *end < rows.len() && rows[*end].0 == rows[*end - 1].0 {
                    *end += 1;
                }
            }
            let blocks = walk.lanes.extent.div_ceil(TOGETHER);
            tasks::each(parts * blocks, parts > 1, |task| {
                let own = ends[task / blocks]..ends[task / blocks + 1].max(ends[task / blocks]);
                let first = task % blocks * TOGETHER;
                let lanes = TOGETHER.min(walk.lanes.extent - first);
                let mut held = Held::new(lanes);
                let mut ahead = rows[own.clone()].iter().skip(AHEAD);
                for run in rows[own].chunk_by(|a, b| a.0 == b.0) {
                    if until.ended() {
                        return;
                    }
                    // Rows lie anywhere in memory.
                    for next in ahead.by_ref().take(run.len()) {
                        fetch((next.1 as *const M).wrapping_add(first), lanes);
                    }
                    let to = walk.out.wrapping_offset(start[2] + run[0].0 as isize * walk.step);
                    // SAFETY: guaranteed by the caller; no other run has these targets.
                    unsafe { self.run(to.add(first), run, first, &mut held) };
                }
            });
        });
    }

    /// Sums the rows of one target.
    unsafe fn run(&self, to: *mut M, rows: &[(usize, usize)], first: usize, Held { tops, sums }: &mut Held) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            raise_row(tops, to.cast_const());
            rows.iter().for_each(|row| raise_row(tops, (row.1 as *const M).add(first)));
            rows.iter().for_each(|row| add_row(sums, tops, (row.1 as *const M).add(first), self.room));
            finish_line(tops, sums, to, (1, self.room));
        }
    }

    unsafe fn add_by_ranges(&self, flat: &Flat<'_, M>) {
        let shift = RANGE.max((flat.places / RANGES).max(1).ilog2() + 1);
        let ranges = (flat.places >> shift) + 1;
        let parts = threads(self.total * 3);
        let part = |part: usize| self.total * part / parts..self.total * (part + 1) / parts;
        let until = &Until::now();
        let to = flat.first() as usize;
        let counts: Vec<_> = (0..parts).map(|_| Mutex::new(vec![0usize; ranges])).collect();
        tasks::each(parts, parts > 1, |number| {
            let mut counts = counts[number].lock();
            // SAFETY: guaranteed by the caller.
            unsafe {
                flat.each(part(number), (until, Some(self.faults)), |place, _| counts[place >> shift] += 1)
            };
        });
        if until.ended() {
            return;
        }
        // The start of each range, and of each part within it.
        let mut counts: Vec<Vec<usize>> = counts.into_iter().map(Mutex::into_inner).collect();
        let mut begins = Vec::with_capacity(ranges + 1);
        let mut next = 0;
        for range in 0..ranges {
            begins.push(next);
            for counts in &mut counts {
                next += std::mem::replace(&mut counts[range], next);
            }
        }
        begins.push(next);
        let items = &Buffer::<Item>::new(next);
        let counts: Vec<_> = counts.into_iter().map(Mutex::new).collect();
        tasks::each(parts, parts > 1, |number| {
            let mut next = counts[number].lock();
            // SAFETY: guaranteed by the caller; there is room for what was counted.
            unsafe {
                flat.each(part(number), (until, None), |place, from| {
                    let next = &mut next[place >> shift];
                    items.write(*next, Item { place: place as u32, value: from.read_unaligned().widen() });
                    *next += 1;
                });
            }
        });
        if until.ended() {
            return;
        }
        let space = || Held::new(1 << shift);
        tasks::each_with(ranges, parts > 1, space, |held, range| {
            let first = range << shift;
            // SAFETY: all of them were written.
            let items = unsafe { items.slice(begins[range]..begins[range + 1]) };
            // SAFETY: guaranteed by the caller; no other range has these targets.
            unsafe { self.range((to as *mut M).wrapping_add(first), first, items, held) };
        });
    }

    /// Sums the elements of a range of targets that starts at a position.
    unsafe fn range(&self, to: *mut M, first: usize, items: &[Item], held: &mut Held) {
        let (tops, sums) = (&mut held.tops[..], &mut held.sums[..]);
        let own = tops.len() - 1;
        // The number of positions in a range is a power of two.
        let place = |item: &Item| item.place as usize & own;
        debug_assert!(first & own == 0);
        // SAFETY: guaranteed by the caller; targets lie in the view.
        unsafe {
            let before = |place: usize| to.wrapping_add(place).read_unaligned().widen();
            for item in items {
                raise(&mut tops[place(item)], item.value);
            }
            // For few elements, revisit the elements, not all positions.
            let dense = items.len() * 2 > tops.len();
            if dense {
                for (place, top) in tops.iter_mut().enumerate().filter(|(_, top)| **top != 0) {
                    raise(top, before(place));
                }
            } else {
                items.iter().for_each(|item| raise(&mut tops[place(item)], before(place(item))));
            }
            for item in items {
                let at = place(item);
                sums[at] = sums[at].wrapping_add(units(item.value, tops[at], self.room));
            }
            if dense {
                let all = tops.iter_mut().zip(sums).enumerate().filter(|(_, (top, _))| **top != 0);
                all.for_each(|(place, (top, sum))| self.write(to.wrapping_add(place), top, sum));
                return;
            }
            for item in items {
                let at = place(item);
                if tops[at] != 0 {
                    self.write(to.wrapping_add(at), &mut tops[at], &mut sums[at]);
                }
            }
        }
    }
}

/// Rows sorted by target.
fn by_target(mut rows: Vec<(usize, usize)>, limit: usize) -> Vec<(usize, usize)> {
    if limit > rows.len().saturating_mul(4) {
        rows.sort_unstable();
        return rows;
    }
    let mut next = vec![0; limit + 1];
    rows.iter().for_each(|row| next[row.0 + 1] += 1);
    (0..limit).for_each(|i| next[i + 1] += next[i]);
    let mut sorted = vec![(0, 0); rows.len()];
    for row in rows {
        sorted[next[row.0]] = row;
        next[row.0] += 1;
    }
    sorted
}
