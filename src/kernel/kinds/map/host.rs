//! Elementwise programs: covers the launch's shape with tiles; runs in parallel when it is large.

use super::fast_path;
use crate::array::Dims;
use crate::base::stop;
use crate::base::stop::Stop;
use crate::kernel::host::interp::{Interpreter, Plane};
use crate::kernel::host::tasks::{ELEMENTS_PER_CHECK, PARALLEL, each, threads};
use crate::kernel::host::{CHUNK, FaultSlot};
use crate::kernel::{Launch, Map, Source};

/// Tiles between two checks for an early end.
const TILES_PER_CHECK: usize = ELEMENTS_PER_CHECK / CHUNK;

/// Runs a map over the launch's shape.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(map: &Map, launch: &Launch, faults: &FaultSlot) {
    #[cfg(debug_assertions)]
    crate::kernel::host::hazards::check(map, launch);
    // SAFETY: guaranteed by the caller.
    if unsafe { fast_path::run(map, launch) } {
        return;
    }
    let count: usize = launch.shape.iter().product();
    if count == 0 {
        return;
    }
    let cover = Cover::of(map, launch);
    if cover.tiles == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { cover.run((map, launch, faults), 0..1) };
    }
    let visits = count.saturating_mul(launch.views.len() + map.instrs.len());
    let threads = threads(visits);
    if threads == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { cover.run((map, launch, faults), 0..cover.tiles) };
    }
    let tasks = (visits / (PARALLEL / 4)).min(threads * 8).min(cover.tiles);
    each(tasks, true, |task| {
        let from = |task: usize| (cover.tiles as u128 * task as u128 / tasks as u128) as usize;
        // SAFETY: guaranteed by the caller; tasks write different elements.
        unsafe { cover.run((map, launch, faults), from(task)..from(task + 1)) };
    });
}

/// The cover of a shape by tiles: their plane and size. Other dimensions are iterated one by one.
struct Cover<'a> {
    shape: &'a [usize],
    plane: Plane,
    h: usize,
    w: usize,
    tiles: usize,
    /// May end the work early; the result is then invalid.
    stop: Option<Stop>,
    /// Number of tiles down the rows before the next column of tiles; see [`GROUP`].
    group: usize,
}

/// In a transposition, the number of consecutive tiles down the rows, which is the direction of the load's
/// memory. A tile is as high as one cache line of the load, and as wide as a chunk allows: long runs of
/// stores matter more than long runs of loads.
const GROUP: usize = 32;
const LINE: usize = 64;

impl<'a> Cover<'a> {
    /// Columns follow the dimension along which the stores are contiguous. If a load is contiguous along
    /// another dimension, rows follow that one, so that a transposition reads and writes whole cache lines.
    /// Otherwise rows follow the neighbouring dimension if that fills up a short row.
    fn of(map: &Map, launch: &'a Launch) -> Cover<'a> {
        let shape = &launch.shape[..];
        let extent = |dim: Option<usize>| dim.map_or(1, |d| shape[d]);
        if shape.len() <= 1 {
            let plane = Plane { row: None, col: (shape.len() == 1).then_some(0) };
            let w = extent(plane.col).min(CHUNK);
            let tiles = extent(plane.col).div_ceil(w);
            return Cover { shape, plane, h: 1, w, tiles, stop: stop::current(), group: 1 };
        }
        let long = |d: &usize| shape[*d] > 1;
        let follows = |view: u16| {
            let strides = &launch.views[usize::from(view)].strides;
            (0..shape.len()).rev().filter(long).find(|&d| strides[d].abs() == 1)
        };
        let loads = map.sources.iter().filter_map(|source| match source {
            Source::Load { view, .. } => Some(*view),
            _ => None,
        });
        let longest = (0..shape.len()).rev().find(long).unwrap_or(shape.len() - 1);
        let col = map.stores.iter().find_map(|s| follows(s.view)).unwrap_or(longest);
        let crosswise = |number: u16| {
            let view = &launch.views[usize::from(number)];
            let row =
                follows(number).filter(|&d| d != col && view.strides[col].abs() > 1 && shape[d] >= 4)?;
            Some((row, LINE / view.dtype.size()))
        };
        let crossing = loads.clone().find_map(crosswise);
        // Without instructions no chunk is passed to a function, so a tile may be larger.
        let most = if map.instrs.is_empty() { 4 * CHUNK } else { CHUNK };
        let (row, w) = match crossing {
            Some((row, line)) => (Some(row), shape[col].min(most / line.min(shape[row]))),
            None if shape[col] >= CHUNK => (None, CHUNK),
            None => {
                let others = (0..shape.len()).filter(|&d| d != col);
                // Rows that follow each other in the store's memory are stored faster.
                let is_next = |d: usize| {
                    map.stores.first().is_some_and(|store| {
                        let strides = &launch.views[usize::from(store.view)].strides;
                        strides[col] == 1 && strides[d] == shape[col] as isize
                    })
                };
                let rows = |d: usize| shape[d].min(CHUNK / shape[col]) * if is_next(d) { 4 } else { 1 };
                (others.max_by_key(|&d| (rows(d), d)), shape[col])
            }
        };
        let most = if crossing.is_some() { most } else { CHUNK };
        let h = extent(row).min((most / w).max(1));
        let plane = Plane { row, col: Some(col) };
        let outer = (0..shape.len()).filter(|&d| d != col && Some(d) != row).map(|d| shape[d]);
        let (rows, columns) = (extent(row).div_ceil(h), shape[col].div_ceil(w));
        let group = if crossing.is_some() { rows.min(GROUP) } else { 1 };
        let tiles = outer.product::<usize>() * rows.next_multiple_of(group) * columns;
        Cover { shape, plane, h, w, tiles, stop: stop::current(), group }
    }

    /// The row and column of a tile's number within one plane. Rows are padded to whole groups, so some
    /// numbers have no tile.
    fn place(&self, number: usize, rows: usize, columns: usize) -> Option<(usize, usize)> {
        let (group, within) = (number / self.group, number % self.group);
        let row = group / columns * self.group + within;
        (row < rows).then_some((row, group % columns))
    }

    /// Runs tiles by number. Order, fastest first: rows of a group, columns, groups, other dimensions.
    unsafe fn run(&self, (map, launch, faults): (&Map, &Launch, &FaultSlot), tiles: std::ops::Range<usize>) {
        let &Cover { shape, plane, h, w, .. } = self;
        // SAFETY: guaranteed by the caller.
        let mut machine = unsafe { Interpreter::new(map, launch, plane, h * w, None, faults) };
        let mut at: Dims = smallvec::smallvec![0; shape.len()];
        let parts = |dim: Option<usize>, size: usize| dim.map_or(1, |d| shape[d].div_ceil(size));
        let (rows, columns) = (parts(plane.row, h), parts(plane.col, w));
        let plane_tiles = rows.next_multiple_of(self.group) * columns;
        for tile in tiles {
            if tile.is_multiple_of(TILES_PER_CHECK)
                && self.stop.as_ref().is_some_and(|stop| stop.reason().is_some())
            {
                return;
            }
            let Some((row, column)) = self.place(tile % plane_tiles, rows, columns) else { continue };
            let mut rest = tile / plane_tiles;
            for d in (0..shape.len()).rev().filter(|&d| Some(d) != plane.col && Some(d) != plane.row) {
                at[d] = rest % shape[d];
                rest /= shape[d];
            }
            let mut cut = |dim: Option<usize>, part: usize, size: usize| {
                dim.map_or(1, |d| {
                    at[d] = part * size;
                    size.min(shape[d] - at[d])
                })
            };
            let (h, w) = (cut(plane.row, row, h), cut(plane.col, column, w));
            // SAFETY: the tile was cut from the shape.
            unsafe { machine.run(&at, h, w) };
        }
    }
}
