//! Several reductions on the host: what they reduce is computed once, in pieces, and then reduced.

use super::{Reduce, host, several};
use crate::array::Strides;
use crate::kernel::cuda::element::counts;
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, Map, Ptr, Source, Store, View};

/// The bytes of computed values that are held at a time.
const HELD: usize = 4 << 20;

/// Launches over parts of a kept dimension, with the values that they compute.
struct Pieces {
    /// Registers of the map that are computed, and reduced.
    values: Vec<u16>,
    /// The kept dimension that is divided, and its extent in a piece.
    divided: Option<(usize, usize)>,
    /// Elements of a piece.
    elements: usize,
}

impl Pieces {
    /// `None` if the values of one piece would take too much memory.
    fn of(reduce: &Reduce, launch: &Launch) -> Option<Pieces> {
        let mut values: Vec<u16> = reduce.all().map(|(value, _)| value).collect();
        values.retain(|&value| usize::from(value) >= reduce.map.sources.len());
        values.sort_unstable();
        values.dedup();
        let bytes: usize = values.iter().map(|&value| reduce.map.dtype(value).size().max(8)).sum();
        let elements: usize = launch.shape.iter().product();
        let most = HELD / bytes.max(1);
        if elements <= most {
            return Some(Pieces { values, divided: None, elements });
        }
        let kept = 0..launch.shape.len() - launch.reduced;
        let longest = kept.max_by_key(|&d| launch.shape[d])?;
        let rest = elements / launch.shape[longest];
        let extent = most / rest;
        (extent > 0).then_some(Pieces { values, divided: Some((longest, extent)), elements: extent * rest })
    }
}

/// The bytes that [`run`] allocates.
pub(super) fn scratch(reduce: &Reduce, launch: &Launch) -> u64 {
    let pieces = Pieces::of(reduce, launch);
    pieces.map_or(0, |pieces| (8 * pieces.values.len() * pieces.elements) as u64)
}

/// Runs the reductions of a launch, then stores its elements.
///
/// # Safety
/// As for [`host::run`].
pub(super) unsafe fn run(reduce: &Reduce, launch: &Launch, faults: &FaultSlot) {
    let (alone, stores) = reduce.parts();
    let pieces = Pieces::of(reduce, launch);
    let is_computed = |value: u16| usize::from(value) >= reduce.map.sources.len();
    for (one, (value, _)) in alone.zip(reduce.all()) {
        if pieces.is_none() || !is_computed(value) {
            // SAFETY: guaranteed by the caller.
            unsafe { host::run(&one, launch, faults) };
        }
    }
    let Some(pieces) = pieces.filter(|pieces| !pieces.values.is_empty()) else {
        if let Some(map) = stores {
            // SAFETY: as above.
            unsafe { map.run(&several::elements(&map, launch), faults) };
        }
        return;
    };
    let mut memory: Vec<u64> = vec![0; pieces.values.len() * pieces.elements];
    let Some((dim, extent)) = pieces.divided else {
        // SAFETY: the memory has room for all values of the launch.
        return unsafe { run_piece(reduce, launch, &pieces.values, &mut memory, faults) };
    };
    for start in (0..launch.shape[dim]).step_by(extent) {
        let mut piece = launch.clone();
        piece.shape[dim] = extent.min(launch.shape[dim] - start);
        for view in &mut piece.views {
            let step = view.strides[dim] * view.dtype.size() as isize;
            view.ptr = view.ptr.wrapping_add_signed((step * start as isize) as i64);
        }
        // SAFETY: the memory has room for all values of the largest piece.
        unsafe { run_piece(reduce, &piece, &pieces.values, &mut memory, faults) };
    }
}

/// Computes the values of a piece, which are held in `memory`, stores its elements, and reduces the values.
unsafe fn run_piece(reduce: &Reduce, piece: &Launch, values: &[u16], memory: &mut [u64], faults: &FaultSlot) {
    let elements: usize = piece.shape.iter().product();
    let strides = order_of(piece, counts(&reduce.map).0);
    let held = |(number, &value): (usize, &u16)| {
        let ptr = memory.as_mut_ptr().wrapping_add(number * elements) as Ptr;
        View::new(ptr, reduce.map.dtype(value), strides.clone())
    };
    let held: Vec<View> = values.iter().enumerate().map(held).collect();
    let mut map = reduce.map.clone();
    let mut work = several::elements(&map, piece);
    for (&reg, view) in values.iter().zip(&held) {
        map.stores.push(Store { reg, view: work.views.len() as u16 });
        work.views.push(view.clone());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { map.run(&work, faults) };
    for (one, (value, _)) in reduce.parts().0.zip(reduce.all()) {
        let Ok(number) = values.binary_search(&value) else { continue };
        let source = Source::Load { view: 0, dtype: held[number].dtype };
        let mut work = Launch { views: [held[number].clone()].into_iter().collect(), ..piece.clone() };
        let mut moved = |view: u16| {
            work.views.push(piece.views[usize::from(view)].clone());
            work.views.len() as u16 - 1
        };
        let out = if one.store_value { moved(one.out) } else { 0 };
        let out_index = one.out_index.map(moved);
        let map = Map { sources: vec![source], ..Map::default() };
        let one = Reduce { map, value: 0, out, out_index, ..one };
        // SAFETY: guaranteed by the caller.
        unsafe { host::run(&one, &work, faults) };
    }
}

/// Strides of dense memory in the order of an operand's.
fn order_of(piece: &Launch, views: usize) -> Strides {
    let is_whole =
        |view: &&View| piece.shape.iter().zip(&view.strides).all(|(&n, &stride)| n == 1 || stride != 0);
    let like = piece.views[..views].iter().find(is_whole);
    let mut order: Vec<usize> = (0..piece.shape.len()).collect();
    if let Some(like) = like {
        order.sort_by_key(|&d| std::cmp::Reverse(like.strides[d].unsigned_abs()));
    }
    let mut strides: Strides = piece.shape.iter().map(|_| 0).collect();
    let mut step = 1;
    for &d in order.iter().rev() {
        strides[d] = step;
        step *= piece.shape[d] as isize;
    }
    strides
}
