//! The allocator's state as plain data. Source: `torch.cuda.memory_snapshot`.

use super::book::{Book, State};
use super::pools::PoolId;
use super::stats::Pool;
use crate::base::Span;
use crate::kernel::Ptr;

/// One segment.
#[derive(Clone, PartialEq, Debug)]
pub struct SegmentInfo {
    pub address: Ptr,
    /// Total bytes. All sizes are in bytes.
    pub total_size: u64,
    /// Bytes in blocks that are handed out.
    pub allocated_size: u64,
    /// Bytes in blocks that are handed out or pending.
    pub active_size: u64,
    /// Bytes requested for the active blocks.
    pub requested_size: u64,
    /// The number of the stream that owns it.
    pub stream: u32,
    pub pool: Pool,
    /// The pool that it belongs to, private or general.
    pub owner: PoolId,
    pub is_expandable: bool,
    /// Sorted by address; they tile the segment.
    pub blocks: Vec<BlockInfo>,
}

/// One block.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockInfo {
    pub address: Ptr,
    pub size: u64,
    /// 0 for free blocks.
    pub requested_size: u64,
    pub state: BlockState,
    /// The requesting source; none for free blocks.
    pub span: Span,
}

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Handed out.
    Allocated,
    /// Freed, but still in use by other streams.
    PendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// The state's name in PyTorch's snapshots.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::Allocated => "active_allocated",
            BlockState::PendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

pub(super) fn take(book: &Book) -> Vec<SegmentInfo> {
    let mut segments: Vec<SegmentInfo> = book.heads().map(|head| segment(book, head)).collect();
    segments.sort_by_key(|s| s.address);
    segments
}

fn segment(book: &Book, head: u32) -> SegmentInfo {
    let first = book.get(head);
    let mut info = SegmentInfo {
        address: first.ptr,
        total_size: 0,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        stream: book.stream(first.arena).id(),
        pool: first.pool,
        owner: book.pool_of(first.arena),
        is_expandable: first.is_expandable(),
        blocks: Vec::new(),
    };
    for block in book.chain(head) {
        let state = match block.state {
            State::Live => BlockState::Allocated,
            State::Pending(_) => BlockState::PendingFree,
            State::Free | State::Unmapped | State::Gone => BlockState::Inactive,
        };
        let active = state != BlockState::Inactive;
        info.total_size += block.size;
        info.allocated_size += if state == BlockState::Allocated { block.size } else { 0 };
        info.active_size += if active { block.size } else { 0 };
        info.requested_size += if active { block.requested } else { 0 };
        info.blocks.push(BlockInfo {
            address: block.ptr,
            size: block.size,
            requested_size: if active { block.requested } else { 0 },
            state,
            span: if active { block.span } else { Span::NONE },
        });
    }
    info
}
