//! Running combinations along the last dimension. Rows run in parallel, each row in order.

use super::element::{self, Element, Tile};
use super::fold::Accumulator;
use super::map::PARALLEL;
use super::tasks::{self, SOME, Until};
use crate::array::{Class, Dims, dispatch};
use crate::kernel::{Launch, Scan};
use smallvec::smallvec;

/// Rows processed side by side, so that adjacent columns share cache lines.
const ROWS: usize = 16;

/// Elements of a row per step.
const COLUMNS: usize = 256;

/// Runs a scan.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(scan: &Scan, launch: &Launch) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scan.dtype.class() {
            Class::F32 => with_class::<f32>(scan, launch),
            Class::F64 => with_class::<f64>(scan, launch),
            Class::I64 => with_class::<i64>(scan, launch),
            // The planner rejects these.
            Class::C64 | Class::C128 => {}
        }
    }
}

unsafe fn with_class<T: Accumulator>(scan: &Scan, launch: &Launch) {
    let Some(combine) = T::combine(&scan.f.host) else { return };
    let Some((&length, outer)) = launch.shape.split_last() else {
        // A scalar: one row of one element.
        let mut launch = launch.clone();
        launch.shape.push(1);
        launch.views.iter_mut().for_each(|view| view.strides.push(1));
        // SAFETY: guaranteed by the caller.
        return unsafe { with_class::<T>(scan, &launch) };
    };
    let rows: usize = outer.iter().product();
    if rows == 0 || length == 0 {
        return;
    }
    let init = T::from_bits64((scan.f.init)(scan.dtype.class()));
    let (side, side_extent) = match outer.split_last() {
        Some((&extent, _)) => (Some(outer.len() - 1), extent),
        None => (None, 1),
    };
    let parts = side_extent.div_ceil(ROWS);
    let strips = rows / side_extent * parts;
    let until = Until::now();
    let strip = |number: usize| {
        let mut at: Dims = smallvec![0; launch.shape.len()];
        let (mut rest, part) = (number / parts, number % parts);
        for d in (0..outer.len().saturating_sub(1)).rev() {
            at[d] = rest % outer[d];
            rest /= outer[d];
        }
        if let Some(side) = side {
            at[side] = part * ROWS;
        }
        let h = ROWS.min(side_extent - part * ROWS);
        let mut held = [init; ROWS];
        let mut new = [T::default(); ROWS * COLUMNS];
        let mut out = [T::default(); ROWS * COLUMNS];
        let (mut from, mut seen) = (0, 0);
        while from < length {
            if from - seen >= SOME {
                seen = from;
                if until.ended() {
                    return;
                }
            }
            let w = COLUMNS.min(length - from);
            at[outer.len()] = from;
            // SAFETY: the tile lies in the shape, and the buffers hold it.
            unsafe {
                let (tile, ptr) = place(launch, 0, &at, side, h, w);
                load::<T>(scan, ptr, tile, &mut new);
                let rows = new.chunks_exact(w).zip(out.chunks_exact_mut(w));
                for (held, (new, out)) in held.iter_mut().zip(rows).take(h) {
                    *held = (combine.along)(*held, new, out);
                }
                let (tile, ptr) = place(launch, 1, &at, side, h, w);
                store::<T>(scan, &out, tile, ptr);
            }
            from += w;
        }
    };
    let shared = rows.saturating_mul(length).saturating_mul(2) >= PARALLEL && strips > 1;
    tasks::each(strips, shared, strip);
}

/// A tile of a view: `h` rows along `side`, `w` elements of each.
fn place(
    launch: &Launch,
    view: usize,
    at: &[usize],
    side: Option<usize>,
    h: usize,
    w: usize,
) -> (Tile, *mut u8) {
    let view = &launch.views[view];
    let offset: isize = at.iter().zip(&view.strides).map(|(&i, &s)| i as isize * s).sum();
    let rs = side.map_or(0, |side| view.strides[side]);
    let cs = view.strides[at.len() - 1];
    let base = view.ptr as usize as *mut u8;
    (Tile { h, w, rs, cs }, base.wrapping_offset(offset * view.dtype.size() as isize))
}

unsafe fn load<T: Accumulator>(scan: &Scan, from: *const u8, tile: Tile, to: &mut [T]) {
    let to = to.as_mut_ptr();
    // SAFETY: guaranteed by the caller; `T` is the lane type of the dtype's class.
    dispatch!(scan.dtype, M => unsafe {
        element::load::<M>(from.cast(), tile, to.cast::<<M as Element>::Lane>())
    });
}

unsafe fn store<T: Accumulator>(scan: &Scan, from: &[T], tile: Tile, to: *mut u8) {
    let from = from.as_ptr();
    // SAFETY: as in `load`.
    dispatch!(scan.dtype, M => unsafe {
        element::store::<M>(from.cast::<<M as Element>::Lane>(), tile, to.cast())
    });
}
