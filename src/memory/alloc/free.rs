//! The free list of one pool, ordered by size.
//!
//! Blocks lie in *bins* of similar sizes, eight per power of two. A bin is sorted by size, then by address,
//! and a bitmap marks the nonempty bins. A search inspects one short list and a few words, independent of the
//! number of free blocks. Uses only the size, address and number of a block.

use super::{BlockId, MIN_BLOCK};
use crate::kernel::Ptr;

/// Log2 of the number of bins per power of two.
const STEPS: u32 = 3;
/// Number of bins that covers every 64-bit multiple of [`MIN_BLOCK`].
const BINS: usize = 64 << STEPS;

/// A free block: size, address, number.
type Entry = (u64, Ptr, BlockId);

/// Free blocks ordered by size, then by address.
///
/// Invariant: every entry lies in the bin of its size, bins are sorted, and a bit is set exactly when its bin
/// is not empty.
#[derive(Default)]
pub(super) struct FreeList {
    /// Grows to the largest bin ever used.
    bins: Vec<Vec<Entry>>,
    held: [u64; BINS / 64],
}

/// The bin of a size. Sizes up to eight units have one bin each; larger sizes share a bin when they agree in
/// the three bits after the leading one.
#[inline]
fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    if units < 1 << STEPS {
        return units as usize;
    }
    let shift = units.ilog2() - STEPS;
    ((shift as usize) << STEPS) + (units >> shift) as usize
}

impl FreeList {
    #[inline]
    pub(super) fn insert(&mut self, size: u64, ptr: Ptr, id: BlockId) {
        let bin = bin_of(size);
        if self.bins.len() <= bin {
            self.bins.resize_with(bin + 1, Vec::new);
        }
        let entries = &mut self.bins[bin];
        let at = entries.partition_point(|&(s, p, _)| (s, p) < (size, ptr));
        entries.insert(at, (size, ptr, id));
        self.held[bin / 64] |= 1 << (bin % 64);
    }

    #[inline]
    pub(super) fn remove(&mut self, size: u64, ptr: Ptr) {
        let bin = bin_of(size);
        let Some(entries) = self.bins.get_mut(bin) else { return };
        let at = entries.partition_point(|&(s, p, _)| (s, p) < (size, ptr));
        if entries.get(at).is_some_and(|&(s, p, _)| (s, p) == (size, ptr)) {
            entries.remove(at);
        }
        if entries.is_empty() {
            self.held[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// The size and number of the smallest block of at least `size` bytes, the lowest address among equals.
    #[inline]
    pub(super) fn best_fit(&self, size: u64) -> Option<(u64, BlockId)> {
        let bin = bin_of(size);
        let entries = self.bins.get(bin)?;
        let at = entries.partition_point(|&(s, _, _)| s < size);
        let found = entries.get(at).or_else(|| self.bins[self.held_from(bin + 1)?].first());
        found.map(|&(size, _, id)| (size, id))
    }

    /// The first nonempty bin from `bin` on.
    #[inline]
    fn held_from(&self, bin: usize) -> Option<usize> {
        let mut word = bin / 64;
        let mut bits = self.held.get(word)? & (u64::MAX << (bin % 64));
        while bits == 0 {
            word += 1;
            bits = *self.held.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The blocks with their sizes, largest first.
    pub(super) fn largest_first(&self) -> impl Iterator<Item = (u64, BlockId)> {
        self.bins.iter().rev().flat_map(|entries| entries.iter().rev()).map(|&(size, _, id)| (size, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn bins_follow_sizes() {
        let mut last = 0;
        for units in 1..100_000 {
            let bin = bin_of(units * MIN_BLOCK);
            assert!(bin == last || bin == last + 1, "{units}");
            last = bin;
        }
        assert!(bin_of(u64::MAX) < BINS);
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_set(steps in prop::collection::vec((any::<bool>(), 1..5000_u64, 0..40_u64), 1..200)) {
            let (mut list, mut set) = (FreeList::default(), BTreeSet::new());
            for (insert, units, ptr) in steps {
                // Few distinct sizes, so that some are equal.
                let size = (if units % 2 == 0 { units % 24 + 1 } else { units }) * MIN_BLOCK;
                let id = (size / MIN_BLOCK * 64 + ptr) as BlockId;
                match insert {
                    true if set.insert((size, ptr, id)) => list.insert(size, ptr, id),
                    true => {}
                    false => {
                        set.remove(&(size, ptr, id));
                        list.remove(size, ptr);
                    }
                }
                let expected = set.range((size, 0, 0)..).next().map(|&(s, _, id)| (s, id));
                prop_assert_eq!(list.best_fit(size), expected);
                prop_assert_eq!(list.best_fit(512), set.first().map(|&(s, _, id)| (s, id)));
                let all: Vec<_> = set.iter().rev().map(|&(s, _, id)| (s, id)).collect();
                prop_assert_eq!(list.largest_first().collect::<Vec<_>>(), all);
            }
        }
    }
}
