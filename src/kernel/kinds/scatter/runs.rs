//! The kernels that combine elements after a sort by target.

use super::ordered;
use super::sorted::SortedIndex;
use super::{Mode, Scatter};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::index::Words;
use crate::kernel::cuda::{Queue, blocks};
use crate::kernel::{Launch, Program, Sort, View};
use smallvec::smallvec;
use std::sync::Arc;

/// Sorted positions per thread of sums, or per warp for wide rows, also in the template.
const CHUNK: u64 = 32;

/// Threads of a warp.
const WARP: u64 = 32;

/// Sorted positions and threads of a block that sums single elements, also in kernels/sorted.cu.
const TILE: u64 = 2048;
const TILE_THREADS: u32 = 256;

/// The kernels that sum runs of equal targets.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Runs {
    /// A block for each tile of single elements.
    Single,
    /// A thread for each inner element of a chunk.
    Narrow,
    /// A warp for 32 inner elements of a chunk.
    Wide,
}

/// True if sums after a sort are of single elements; general kernels always have an inner dimension.
pub(super) fn is_single(mode: Mode, any: bool, inner_rank: usize) -> bool {
    mode == Mode::SumRuns && !any && inner_rank == 0
}

impl Scatter {
    /// The work after the sort. `first` is its first entry.
    pub(super) fn combine_sorted(
        &self,
        queue: &mut dyn Queue,
        mode: Mode,
        first: usize,
        runs: Runs,
        words: &mut Words,
    ) -> Result<()> {
        let (count, rows) = (words[0], words[11]);
        if mode == Mode::SumRuns {
            // Each chunk starts at most one run that later chunks continue.
            let chunks = count.div_ceil(if runs == Runs::Single { TILE } else { CHUNK });
            let sums = chunks * rows;
            words[12] = queue.scratch(4 * sums)?;
            words[13] = queue.scratch(8 * sums)?;
            queue.clear(words[12], 4 * sums)?;
            queue.clear(words[13], 8 * sums)?;
            if runs == Runs::Single {
                queue.run(first, chunks as u32, TILE_THREADS, words)?;
                queue.run(first + 1, chunks as u32, TILE_THREADS, words)?;
                return queue.run(first + 2, blocks(chunks, 256), 256, words);
            }
            let threads = chunks * if runs == Runs::Wide { rows.next_multiple_of(WARP) } else { rows };
            return (first..first + 3)
                .try_for_each(|entry| queue.run(entry, blocks(threads, 256), 256, words));
        }
        let size = self.dtype.class().dtype().size() as u64;
        let most = u64::BITS - count.saturating_sub(1).leading_zeros();
        // A run of more than a chunk leaves partial results.
        let mut room = |shift: u32| match shift < most {
            true => queue.scratch(ordered::partial(count, shift) * rows * size),
            false => Ok(0),
        };
        let step = ordered::CHUNK_LOG;
        let parts = [room(step)?, room(2 * step)?];
        for (pass, shift) in (0..most.max(1)).step_by(step as usize).enumerate() {
            (words[12], words[13], words[14]) = (parts[(pass + 1) % 2], parts[pass % 2], shift.into());
            queue.run(first, blocks(count.div_ceil(1 << shift) * rows, 256), 256, words)?;
        }
        Ok(())
    }

    /// The sort of a general kernel, by the program that sorts tensors; keys are as wide as this dtype.
    pub(super) fn sort_targets(
        &self,
        queue: &mut dyn Queue,
        mode: Mode,
        key: Dtype,
        mut words: Words,
        sorted: Option<SortedIndex>,
    ) -> Result<()> {
        let count = words[0];
        if let Some(sorted) = sorted.filter(|sorted| sorted.is_ready) {
            (words[8], words[9], words[18]) = (sorted.keys, sorted.positions, 1);
            return self.combine_sorted(queue, mode, 1, Runs::Narrow, &mut words);
        }
        let mut view = |dtype: Dtype| -> Result<View> {
            Ok(View::new(queue.scratch(dtype.size() as u64 * count)?, dtype, smallvec![1]))
        };
        let from = view(key)?;
        let (keys, positions) = match sorted {
            Some(sorted) => (
                View::new(sorted.keys, key, smallvec![1]),
                View::new(sorted.positions, Dtype::I64, smallvec![1]),
            ),
            None => (view(key)?, view(Dtype::I64)?),
        };
        words[8] = from.ptr;
        queue.run(0, blocks(count, 256), 256, &words)?;
        (words[8], words[9]) = (keys.ptr, positions.ptr);
        queue.launch(&Launch {
            // The maximum key.
            limit: words[10] as usize,
            ..Launch::new(
                Arc::new(Program::new(&Sort { dtype: key, descending: false })),
                smallvec![count as usize],
                smallvec![from, keys, positions],
            )
        })?;
        self.combine_sorted(queue, mode, 1, Runs::Narrow, &mut words)
    }
}
