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

/// The sources of each index, and the runs of indices with more sources than a chunk.
pub(super) struct Runs<M, L> {
    /// The number of sources of an index; after the first chunk, `CHUNK` and the number of sources of its open chunk.
    counts: Vec<u32>,
    /// One more than the number of the first run of an index; 0 if it has none. Empty as long as there are no runs.
    runs: Vec<u32>,
    /// The open chunk of each target; has elements if there are runs.
    open: Vec<L>,
    /// The runs, each with the index.
    long: Vec<(Run<M, L>, usize)>,
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

    /// Begins the runs of an index that has as many sources as a chunk.
    #[cold]
    unsafe fn begin_runs<M: Element>(
        &self,
        state: &mut Runs<M, M::Lane>,
        place: usize,
        to: *mut M,
        lanes: usize,
    ) {
        if state.runs.is_empty() {
            state.runs = vec![0; state.counts.len()];
            state.open = vec![M::Lane::default(); state.counts.len() * lanes];
        }
        state.runs[place] = state.long.len() as u32 + 1;
        state.long.extend((0..lanes).map(|lane| {
            // SAFETY: guaranteed by the caller.
            let (to, held) = unsafe { (to.add(lane), to.add(lane).read_unaligned().widen()) };
            (Run::new(to, held), place)
        }));
    }

    /// Adds the open chunks of an index to its runs.
    #[cold]
    fn close<M: Element>(&self, state: &mut Runs<M, M::Lane>, place: usize, lanes: usize)
    where
        F: Fn(M::Lane, M::Lane) -> M::Lane,
    {
        state.counts[place] = CHUNK;
        let first = state.runs[place] as usize - 1;
        let open = &state.open[place * lanes..][..lanes];
        for ((run, _), &open) in state.long[first..first + lanes].iter_mut().zip(open) {
            run.add_chunk(open, |a, b| self.step::<M>(a, b));
        }
    }

    /// Adds sources of an index that has as many sources as a chunk.
    #[inline(always)]
    unsafe fn add<M: Element>(
        &self,
        state: &mut Runs<M, M::Lane>,
        place: usize,
        to: *mut M,
        from: *const M,
        lanes: usize,
    ) where
        F: Fn(M::Lane, M::Lane) -> M::Lane,
    {
        let parts = state.counts[place] - CHUNK;
        if parts == 0 && state.runs.get(place).is_none_or(|&run| run == 0) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.begin_runs(state, place, to, lanes) };
        }
        for (lane, open) in state.open[place * lanes..][..lanes].iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            let new = unsafe { from.add(lane).read_unaligned() }.widen();
            *open = if parts == 0 { new } else { self.step::<M>(*open, new) };
        }
        state.counts[place] += 1;
        if parts + 1 == CHUNK {
            self.close(state, place, lanes);
        }
    }
}

impl<M: Element, F: Fn(M::Lane, M::Lane) -> M::Lane + Sync> Write<M> for Ordered<F> {
    type State = Runs<M, M::Lane>;

    fn begin(&self, places: usize, most: usize) -> Self::State {
        // Untouched pages cost nothing.
        let counts = if self.counts && most > CHUNK as usize { vec![0; places] } else { Vec::new() };
        Runs { counts, runs: Vec::new(), open: Vec::new(), long: Vec::new() }
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

    unsafe fn end(&self, mut state: Self::State) {
        for (number, (run, place)) in state.long.iter_mut().enumerate() {
            let (parts, first) = (state.counts[*place] - CHUNK, state.runs[*place] as usize - 1);
            if parts > 0 {
                // All indices have as many targets.
                let lanes = state.open.len() / state.counts.len();
                run.set_open(state.open[*place * lanes + number - first], parts);
            }
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
    let run = size_of::<(Run<f64, f64>, usize)>() as u64;
    if count <= u64::from(CHUNK) {
        0
    } else {
        targets.saturating_mul(24).saturating_add(count / u64::from(CHUNK) * run)
    }
}
