//! What a storage keeps of indices that it contains; see Note [Sorted indices] in `plan/sorted.rs`.

use super::Tensor;
use crate::stream::Ticket;
use parking_lot::Mutex;

/// The indices of a storage that were sorted, or that were used once.
pub type SortedIndices = Mutex<Vec<SortedIndex>>;

/// An index along one dimension, as a part of its storage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IndexPart {
    /// The first element, in elements.
    pub offset: usize,
    /// Elements from one index to the next.
    pub stride: isize,
    /// The number of indices.
    pub count: usize,
    /// The extent that they must stay below.
    pub limit: usize,
    /// The stream that uses it.
    pub stream: u32,
}

/// An index, and its order.
#[derive(Clone)]
pub struct SortedIndex {
    /// The index.
    pub part: IndexPart,
    /// The launch that wrote it: of a later one, it may have other values.
    pub written: Ticket,
    /// The sorted indices (`i32`) and their positions (`i64`), if the index was used again.
    pub order: Option<[Tensor; 2]>,
}
