//! The free blocks of one pool, by size.
//!
//! Knows nothing of what a block is.

use super::BlockId;
use crate::kernel::Ptr;
use std::collections::BTreeSet;

/// Free blocks in order of size, then of address.
#[derive(Default)]
pub(super) struct FreeList(BTreeSet<(u64, Ptr, BlockId)>);

impl FreeList {
    pub(super) fn insert(&mut self, size: u64, ptr: Ptr, id: BlockId) {
        self.0.insert((size, ptr, id));
    }

    pub(super) fn remove(&mut self, size: u64, ptr: Ptr, id: BlockId) {
        self.0.remove(&(size, ptr, id));
    }

    /// The smallest block of at least `size`, the lowest address among equals: its size and number.
    pub(super) fn best_fit(&self, size: u64) -> Option<(u64, BlockId)> {
        self.0.range((size, 0, 0)..).next().map(|&(size, _, id)| (size, id))
    }

    /// The blocks with their sizes, largest first.
    pub(super) fn largest_first(&self) -> impl Iterator<Item = (u64, BlockId)> {
        self.0.iter().rev().map(|&(size, _, id)| (size, id))
    }
}
