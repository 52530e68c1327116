//! Elementwise programs: covers the launch's shape with tiles, in parallel when it is large.

use super::CHUNK;
use super::machine::{Machine, Plane};
use super::small;
use crate::array::Dims;
use crate::kernel::{Launch, Map, Source};
use rayon::prelude::*;

/// Element visits (elements times views and instructions) from which threads pay.
pub(super) const PARALLEL: usize = 1 << 17;

/// How many threads share so many visits. Asking rayon starts its threads, so small launches do not.
pub(super) fn threads(visits: usize) -> usize {
    if visits < PARALLEL { 1 } else { rayon::current_num_threads() }
}

/// Runs a map over the launch's shape.
///
/// # Safety
/// The launch keeps its invariant, and no other code writes what it reads meanwhile.
pub(super) unsafe fn run(map: &Map, launch: &Launch) {
    // SAFETY: the caller's.
    if unsafe { small::run(map, launch) } {
        return;
    }
    let count: usize = launch.shape.iter().product();
    if count == 0 {
        return;
    }
    let cover = Cover::of(map, launch);
    if cover.tiles == 1 {
        // SAFETY: the caller's.
        return unsafe { cover.run(map, launch, 0..1) };
    }
    let visits = count.saturating_mul(launch.views.len() + map.instrs.len());
    let threads = threads(visits);
    if threads == 1 {
        // SAFETY: the caller's.
        return unsafe { cover.run(map, launch, 0..cover.tiles) };
    }
    let tasks = (visits / (PARALLEL / 4)).min(threads * 8).min(cover.tiles);
    (0..tasks).into_par_iter().for_each(|task| {
        let from = |task: usize| (cover.tiles as u128 * task as u128 / tasks as u128) as usize;
        // SAFETY: the caller's; tasks write different elements.
        unsafe { cover.run(map, launch, from(task)..from(task + 1)) };
    });
}

/// How tiles lie in a shape: their plane and size. The other dimensions go one by one.
struct Cover<'a> {
    shape: &'a [usize],
    plane: Plane,
    h: usize,
    w: usize,
    tiles: usize,
    /// True when some load runs across the stores.
    crossing: bool,
}

/// Tiles of a transposition go in groups of so many rows and columns of tiles, rows first, so that
/// neighbours in memory are met while the caches and the address translation still hold them.
const GROUP: (usize, usize) = (16, 4);

impl<'a> Cover<'a> {
    /// Columns go along the dimension that the stores follow in memory. Rows go along the dimension
    /// that some load follows instead, so that a transposition reads and writes whole cache lines;
    /// without one, along the neighbour that fills up a short row.
    fn of(map: &Map, launch: &'a Launch) -> Cover<'a> {
        let shape = &launch.shape[..];
        let extent = |dim: Option<usize>| dim.map_or(1, |d| shape[d]);
        if shape.len() <= 1 {
            let plane = Plane { row: None, col: (shape.len() == 1).then_some(0) };
            let w = extent(plane.col).min(CHUNK);
            let tiles = extent(plane.col).div_ceil(w);
            return Cover { shape, plane, h: 1, w, tiles, crossing: false };
        }
        let long = |d: &usize| shape[*d] > 1;
        let follows = |view: u16| {
            let strides = &launch.views[usize::from(view)].strides;
            (0..shape.len()).rev().filter(long).find(|&d| strides[d] == 1)
        };
        let loads = map.sources.iter().filter_map(|source| match source {
            Source::Load { view, .. } => Some(*view),
            _ => None,
        });
        let longest = (0..shape.len()).rev().find(long).unwrap_or(shape.len() - 1);
        let col = map.stores.iter().find_map(|s| follows(s.view)).unwrap_or(longest);
        let crosswise = |view: u16| {
            let along = launch.views[usize::from(view)].strides[col];
            follows(view).filter(|&d| d != col && along > 1 && shape[d] >= 4)
        };
        let crossing = loads.clone().find_map(crosswise);
        let (row, w) = match crossing {
            Some(row) => (Some(row), shape[col].min((CHUNK / shape[row].min(32)).max(32))),
            None if shape[col] >= CHUNK => (None, CHUNK),
            None => {
                let others = (0..shape.len()).filter(|&d| d != col);
                (others.max_by_key(|&d| (shape[d].min(CHUNK), d)), shape[col])
            }
        };
        let h = extent(row).min((CHUNK / w).max(1));
        let plane = Plane { row, col: Some(col) };
        let outer = (0..shape.len()).filter(|&d| d != col && Some(d) != row).map(|d| shape[d]);
        let (rows, columns) = (extent(row).div_ceil(h), shape[col].div_ceil(w));
        let crossing = crossing.is_some();
        let plane_tiles = match crossing {
            true => rows.div_ceil(GROUP.0) * columns.div_ceil(GROUP.1) * (GROUP.0 * GROUP.1),
            false => rows * columns,
        };
        let tiles = outer.product::<usize>() * plane_tiles;
        Cover { shape, plane, h, w, tiles, crossing }
    }

    /// The row and column of tiles of a number within one plane. With `crossing` the plane is
    /// filled up to whole groups, and some numbers have no tile.
    fn place(&self, number: usize, rows: usize, columns: usize) -> Option<(usize, usize)> {
        if !self.crossing {
            return Some((number / columns, number % columns));
        }
        let (group, within) = (number / (GROUP.0 * GROUP.1), number % (GROUP.0 * GROUP.1));
        let across = columns.div_ceil(GROUP.1);
        let row = group / across * GROUP.0 + within % GROUP.0;
        let column = group % across * GROUP.1 + within / GROUP.0;
        (row < rows && column < columns).then_some((row, column))
    }

    /// Runs tiles by number: columns fastest, then rows, then the other dimensions.
    unsafe fn run(&self, map: &Map, launch: &Launch, tiles: std::ops::Range<usize>) {
        let Cover { shape, plane, h, w, .. } = *self;
        // SAFETY: the caller's.
        let mut machine = unsafe { Machine::new(map, launch, plane, h * w, None) };
        let mut at: Dims = smallvec::smallvec![0; shape.len()];
        let parts = |dim: Option<usize>, size: usize| dim.map_or(1, |d| shape[d].div_ceil(size));
        let (rows, columns) = (parts(plane.row, h), parts(plane.col, w));
        let plane_tiles = match self.crossing {
            true => rows.div_ceil(GROUP.0) * columns.div_ceil(GROUP.1) * (GROUP.0 * GROUP.1),
            false => rows * columns,
        };
        for tile in tiles {
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
