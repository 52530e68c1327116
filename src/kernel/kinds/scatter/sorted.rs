//! Sorted indices of launches (Note [Sorted indices] in `plan/sorted.rs`).

use super::{FIELDS, Mode, Scatter, Split, joined};
use crate::array::{Dtype, Strides};
use crate::kernel::{Kind, Launch, Ptr, View};

/// From this many elements on, an index is worth keeping sorted.
pub const LEAST_SORTED: usize = 1 << 14;

/// The sorted index of a launch.
#[derive(Clone, Copy)]
pub(super) struct SortedIndex {
    /// The index of each element, from 0, in order; the limit for elements that are dropped.
    pub keys: Ptr,
    /// The positions of the elements along the axis.
    pub positions: Ptr,
    /// Both are in memory; otherwise the launch writes them.
    pub is_ready: bool,
}

impl SortedIndex {
    /// That of a launch of [`Scatter`], if it has one.
    pub fn of(launch: &Launch) -> Option<SortedIndex> {
        let [_, _, _, keys, positions] = &launch.views[..] else { return None };
        let is_ready = launch.numbers.last() == Some(&1);
        Some(SortedIndex { keys: keys.ptr, positions: positions.ptr, is_ready })
    }
}

/// The strides of a sorted index over a launch of this rank.
pub fn sorted_strides(rank: usize, axis: usize) -> Strides {
    (0..rank).map(|d| isize::from(d == axis)).collect()
}

impl Scatter {
    /// Maximum bytes of single elements that a sorted index makes faster.
    const MOST_SINGLE: usize = 32 << 20;

    /// True for a launch that sorts its index and would be faster with a sorted one. The launch has no sorted index, and
    /// needs no addresses.
    pub fn gains_from_sorted(&self, launch: &Launch) -> bool {
        let count = launch.shape.get(launch.axis).copied().unwrap_or(0);
        let varies = |d: usize| d != launch.axis && launch.shape[d] > 1 && launch.views[1].strides[d] != 0;
        let step = launch.views[2].strides.get(launch.axis).copied().unwrap_or(0);
        if self.f.is_none() || count < LEAST_SORTED || step <= 0 || (0..launch.shape.len()).any(varies) {
            return false;
        }
        let [wide, far, few, mode, ..] = self.signature(launch).fields(FIELDS);
        let (mode, small) = (Mode::ALL[mode], wide == 0 && far == 0 && launch.limit < 1 << 31);
        let after = if self.is_scaled() { Mode::SumRuns } else { Mode::Combine };
        // Single elements are read in any order, which is fast as long as they fit the cache.
        let is_near = count * self.dtype.size() <= Self::MOST_SINGLE;
        let is_single = mode == Mode::Buckets || mode == Mode::Sum && few == 0;
        let sorts = mode.sorts() || is_single && is_near;
        // General kernels have one inner dimension.
        let joined = joined(launch);
        sorts
            && small
            && self.is_frequent(after)
            && joined.shape.len() <= 2
            && Split::of(after, launch, false).outer.iter().all(|&d| d == launch.axis || launch.shape[d] == 1)
    }
}

/// The launch on the host. What it reads from the sorted index is a copy of the index, so that both see the same values as on
/// a CUDA device.
///
/// # Safety
/// The launch upholds its invariant, and nothing else accesses the memory it reads or writes during the call.
pub(super) unsafe fn on_host(launch: &Launch, sorted: SortedIndex) -> Launch {
    let count = launch.shape[launch.axis];
    let index = &launch.views[1];
    if !sorted.is_ready {
        let (from, to) = (index.ptr as *const i64, sorted.positions as *mut i64);
        for at in 0..count {
            // SAFETY: guaranteed by the caller; the positions have one element per element along the axis.
            unsafe { *to.add(at) = *from.offset(at as isize * index.strides[launch.axis]) };
        }
    }
    let mut plain = launch.clone();
    plain.views.truncate(3);
    plain.numbers.clear();
    let strides = sorted_strides(launch.shape.len(), launch.axis);
    plain.views[1] = View::new(sorted.positions, Dtype::I64, strides);
    plain
}
