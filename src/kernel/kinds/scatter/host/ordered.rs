//! Ways of writing elements to targets, and ordered combinations (the note in [`definition`]).

use super::super::ordered as definition;
use super::{Element, Scatter};
use crate::kernel::ReduceFn;
use crate::kernel::host::fold::Accumulator;
use definition::{CHUNK, Run};

/// A way of processing a box's elements.
pub(super) trait Write<M>: Sync {
    /// Its state between elements.
    type State;

    /// The state of a box whose targets have this many indices, and at most this many sources each.
    fn begin(&self, places: usize, most: usize) -> Self::State;
    /// Writes adjacent elements to the adjacent targets of this index.
    ///
    /// # Safety
    /// The elements and targets are valid; no other thread has these targets.
    unsafe fn row(&self, state: &mut Self::State, place: usize, to: *mut M, from: *const M, lanes: usize);
    /// Writes the remaining targets.
    ///
    /// # Safety
    /// The targets are those of the box.
    unsafe fn end(&self, state: Self::State);
}

/// Combines the target with a new element, in any order.
pub(super) struct Plain<F>(pub F);

impl<M: Copy, F: Fn(M, M) -> M + Sync> Write<M> for Plain<F> {
    type State = ();

    fn begin(&self, _: usize, _: usize) {}

    #[inline(always)]
    unsafe fn row(&self, (): &mut (), _: usize, to: *mut M, from: *const M, lanes: usize) {
        for lane in 0..lanes {
            // SAFETY: guaranteed by the caller.
            unsafe {
                to.add(lane)
                    .write_unaligned((self.0)(to.add(lane).read_unaligned(), from.add(lane).read_unaligned()))
            };
        }
    }

    unsafe fn end(&self, (): ()) {}
}

/// Combines in the order of the note.
pub(super) struct Ordered<F> {
    combine: F,
    counts: bool,
}

/// Flag: the count is the number of the first long run instead.
const LONG: u32 = 1 << 31;

/// The number of sources of each index, and the runs of indices with more sources than a chunk.
pub(super) struct Runs<M, L> {
    counts: Vec<u32>,
    long: Vec<Run<M, L>>,
}

impl<F> Ordered<F> {
    pub fn new(scatter: &Scatter, combine: F) -> Ordered<F> {
        Ordered { combine, counts: scatter.has_order() }
    }

    /// A combination, rounded.
    #[inline(always)]
    fn step<M: Element>(&self, a: M::Lane, b: M::Lane) -> M::Lane
    where
        F: Fn(M::Lane, M::Lane) -> M::Lane,
    {
        M::narrow((self.combine)(a, b)).widen()
    }

    /// Adds elements to runs that are longer than a chunk.
    #[inline(never)]
    unsafe fn add<M: Element>(
        &self,
        Runs { counts, long }: &mut Runs<M, M::Lane>,
        place: usize,
        to: *mut M,
        from: *const M,
        lanes: usize,
    ) where
        F: Fn(M::Lane, M::Lane) -> M::Lane,
    {
        if counts[place] & LONG == 0 {
            counts[place] = LONG | long.len() as u32;
            // SAFETY: guaranteed by the caller.
            long.extend((0..lanes).map(|lane| unsafe {
                let to = to.add(lane);
                Run::new(to, to.read_unaligned().widen())
            }));
        }
        let first = (counts[place] & !LONG) as usize;
        for (lane, run) in long[first..first + lanes].iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            run.add(unsafe { from.add(lane).read_unaligned() }.widen(), |a, b| self.step::<M>(a, b));
        }
    }
}

impl<M: Element, F: Fn(M::Lane, M::Lane) -> M::Lane + Sync> Write<M> for Ordered<F> {
    type State = Runs<M, M::Lane>;

    fn begin(&self, places: usize, most: usize) -> Self::State {
        // Untouched pages cost nothing.
        let counts = if self.counts && most > CHUNK as usize { vec![0; places] } else { Vec::new() };
        Runs { counts, long: Vec::new() }
    }

    #[inline(always)]
    unsafe fn row(&self, state: &mut Self::State, place: usize, to: *mut M, from: *const M, lanes: usize) {
        if let Some(count) = state.counts.get_mut(place) {
            if *count >= CHUNK {
                // SAFETY: guaranteed by the caller.
                return unsafe { self.add(state, place, to, from, lanes) };
            }
            *count += 1;
        }
        for lane in 0..lanes {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let (to, new) = (to.add(lane), from.add(lane).read_unaligned());
                to.write_unaligned(M::narrow((self.combine)(to.read_unaligned().widen(), new.widen())));
            }
        }
    }

    unsafe fn end(&self, state: Self::State) {
        for run in &state.long {
            if let Some(result) = run.result(|a, b| self.step::<M>(a, b)) {
                // SAFETY: guaranteed by the caller.
                unsafe { run.to.write_unaligned(M::narrow(result)) };
            }
        }
    }
}

/// The code of a combination.
pub(super) fn step<L: Accumulator>(f: &'static ReduceFn) -> Option<fn(L, L) -> L> {
    match f.name {
        "prod" => Some(L::times),
        _ => L::combine(&f.host).map(|combine| combine.one),
    }
}

/// The memory in bytes for a launch of `count` elements over this many targets.
pub(super) fn scratch(count: u64, targets: u64) -> u64 {
    let run = size_of::<Run<f64, f64>>() as u64;
    if count <= u64::from(CHUNK) {
        0
    } else {
        targets.saturating_mul(4).saturating_add(count / u64::from(CHUNK) * run)
    }
}
