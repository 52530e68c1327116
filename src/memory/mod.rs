//! Memory of devices and of the host: the caching allocator, page-locked memory, and their statistics.
//!
//! Implements policy over any [`Driver`](crate::driver::Driver). A request names the stream that will use the
//! memory; freed memory is reused in that stream's order. Independent of device objects, tensors, and how
//! streams are ordered.

pub mod alloc;
pub mod pinned;

pub use alloc::{
    AllocConf, BlockInfo, BlockState, DeviceMemory, Effort, Frame, Pool, PoolId, PoolStat, SegmentInfo, Stat,
    Stats, TraceAction, TraceEvent,
};
pub use pinned::{PinnedBlock, PinnedStats, Times};
