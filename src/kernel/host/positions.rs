//! Positions of a shape: coordinates, offsets in views, and indices that kernels read.

use super::FaultSlot;
use super::element::{self, Element, Tile};
use super::isa::multiversion;
use super::tasks::{ELEMENTS_PER_CHECK, Until};
use crate::array::Dims;
use crate::kernel::{Fault, Indexed, Launch, Ptr, View};
use smallvec::smallvec;
use std::ops::Range;

/// An index that counts from the start; negative ones count from the end.
#[inline(always)]
pub(in crate::kernel) fn from_start(value: i64, limit: i64) -> i64 {
    if value < 0 { value.wrapping_add(limit) } else { value }
}

/// Resolves an index; negative values count from the end. A bad index is reported and becomes 0, or `None`
/// when the limit is 0.
#[inline]
pub(in crate::kernel) fn resolve(
    value: i64,
    launch: &Launch,
    faults: &FaultSlot,
    position: usize,
) -> Option<usize> {
    let limit = launch.limit as i64;
    let wrapped = from_start(value, limit);
    if (0..limit).contains(&wrapped) {
        return Some(wrapped as usize);
    }
    faults.report(Fault { tag: launch.tag, position: position as u64, value });
    (limit > 0).then_some(0)
}

/// The value of all elements of a register, if they are equal.
pub fn one_value<T: Copy + PartialEq>(all: &[T]) -> Option<T> {
    let first = *all.first()?;
    let are_equal = all.chunks(64).all(|some| some.iter().fold(true, |equal, &one| equal & (one == first)));
    are_equal.then_some(first)
}

/// Splits positions in matrices of `columns` columns into runs of adjacent positions of one row. Calls `each(lanes, row,
/// column)` with the lanes of a run and the row and column of its first position. Divides once per run.
#[inline(always)]
pub fn along_rows(positions: &[i64], columns: i64, mut each: impl FnMut(Range<usize>, i64, i64)) {
    let mut lane = 0;
    while let Some(&first) = positions.get(lane) {
        let (row, column) = (first.wrapping_div(columns), first.wrapping_rem(columns));
        let most = usize::try_from(columns - column).unwrap_or(1).min(positions.len() - lane);
        let some = &positions[lane..lane + most];
        let follows = |(at, &one): (usize, &i64)| one.wrapping_sub(first) == at as i64;
        let are_adjacent = some.iter().enumerate().fold(true, |adjacent, one| adjacent & follows(one));
        let count =
            if are_adjacent { most } else { some.iter().enumerate().take_while(|&one| follows(one)).count() };
        let count = count.max(1);
        each(lane..lane + count, row, column);
        lane += count;
    }
}

/// Loads a tile whose elements each have an index along another dimension; `one` if a row has one index. `bad(lane,
/// index)` reports a bad index, which becomes 0.
///
/// # Safety
/// `from` is the first element at index 0. The tile's elements are readable at each index below the limit, and `to`
/// holds the tile's lanes.
pub(in crate::kernel) unsafe fn gather<M: Element>(
    from: *const M,
    tile: Tile,
    (indices, one, indexed): (&[i64], bool, &Indexed),
    bad: impl Fn(usize, i64),
    to: *mut M::Lane,
) {
    let Tile { h, w, rs, cs } = tile;
    let limit = indexed.limit as i64;
    let mut block = [0; BLOCK];
    for row in 0..h {
        let mut column = 0;
        while column < w {
            let lane = row * w + column;
            let start = from.wrapping_offset(row as isize * rs + column as isize * cs);
            if !one {
                // Most indices differ: a loop without branches.
                let found = &mut block[..BLOCK.min(w - column)];
                if are_apart(&indices[lane..lane + found.len()], limit, found) {
                    // SAFETY: guaranteed by the caller: the indices are below the limit.
                    unsafe { collect(start, (indexed.step, cs), found, to.add(lane)) };
                    column += found.len();
                    continue;
                }
            }
            let value = indices[lane];
            let same = || indices[lane..row * w + w].iter().take_while(|&&index| index == value).count();
            let run = if one { w } else { same() };
            let mut found = from_start(value, limit);
            if !(0..limit).contains(&found) {
                bad(lane, value);
                found = 0;
            }
            // SAFETY: guaranteed by the caller: the index is below the limit.
            unsafe {
                let from = start.wrapping_offset(found as isize * indexed.step);
                if run == 1 {
                    to.add(lane).write(from.read_unaligned().widen());
                    column += 1;
                    continue;
                }
                element::load(from, Tile { h: 1, w: run, rs: 0, cs }, to.add(lane));
            }
            column += run;
        }
    }
}

/// Indices that are read at a time.
const BLOCK: usize = 64;

/// Writes indices that count from the start. Returns whether all are valid and few equal the one before.
fn are_apart(indices: &[i64], limit: i64, to: &mut [i64]) -> bool {
    #[inline(always)]
    fn each(indices: &[i64], limit: i64, to: &mut [i64]) -> bool {
        let mut bad = false;
        for (&value, to) in indices.iter().zip(&mut *to) {
            let found = from_start(value, limit);
            bad |= found < 0 || found >= limit;
            *to = found;
        }
        let equal: usize = to.iter().zip(to.get(1..).unwrap_or(&[])).map(|(a, b)| usize::from(a == b)).sum();
        !bad && equal <= to.len() / 4
    }
    multiversion!(each(indices: &[i64] = indices, limit: i64 = limit, to: &mut [i64] = to) -> bool)
}

/// Loads the elements at these indices.
///
/// # Safety
/// The elements are readable, and `to` holds their lanes.
unsafe fn collect<M: Element>(from: *const M, (step, cs): (isize, isize), found: &[i64], to: *mut M::Lane) {
    #[inline(always)]
    fn each<M: Element>(from: *const M, (step, cs): (isize, isize), found: &[i64], to: *mut M::Lane) {
        for (i, &found) in found.iter().enumerate() {
            // SAFETY: guaranteed by the caller of `collect`.
            unsafe {
                let from = from.wrapping_offset(found as isize * step + i as isize * cs);
                to.add(i).write(from.read_unaligned().widen());
            }
        }
    }
    // With constant steps, the loop takes fewer instructions.
    match (step, cs) {
        (1, 0) => each(from, (1, 0), found, to),
        (_, 1) => each(from, (step, 1), found, to),
        _ => each(from, (step, cs), found, to),
    }
}

/// Calls `each(position, coordinates, run)` for the runs along the last dimension that make up a range of
/// row-major positions. Ends early when asked to stop.
pub(in crate::kernel) fn runs(
    shape: &[usize],
    elements: std::ops::Range<usize>,
    until: &Until,
    mut each: impl FnMut(usize, &[usize], usize),
) {
    let mut at: Dims = smallvec![0; shape.len()];
    let mut rest = elements.start;
    for (at, &extent) in at.iter_mut().zip(shape).rev() {
        *at = rest % extent.max(1);
        rest /= extent.max(1);
    }
    let (mut i, mut seen) = (elements.start, elements.start);
    while i < elements.end {
        if i - seen >= ELEMENTS_PER_CHECK {
            seen = i;
            if until.ended() {
                return;
            }
        }
        let left = match (shape.last(), at.last()) {
            (Some(&extent), Some(&first)) => extent - first,
            _ => 1,
        };
        let run = left.min(elements.end - i).min(ELEMENTS_PER_CHECK);
        each(i, &at, run);
        i += run;
        // Advance to the next run without divisions, because short rows are frequent.
        let mut more = run;
        for (at, &extent) in at.iter_mut().zip(shape).rev() {
            *at += more;
            if *at < extent {
                break;
            }
            (*at, more) = (0, 1);
        }
    }
}

/// A pointer to the view's first element.
pub(in crate::kernel) fn element<E>(view: &View) -> *mut E {
    view.ptr as Ptr as usize as *mut E
}

/// The offset of coordinates in a view, in elements, optionally without one dimension.
pub(in crate::kernel) fn offset(view: &View, at: &[usize], without: Option<usize>) -> isize {
    let steps = at.iter().zip(&view.strides).enumerate();
    steps.filter(|&(d, _)| Some(d) != without).map(|(_, (&i, &s))| i as isize * s).sum()
}
