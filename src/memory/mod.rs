//! Memory of devices and of the host: the caching allocator, page-locked memory, and what they report.
//!
//! Policy over any [`Driver`](crate::driver::Driver). A request names the stream that will use the memory; what is
//! freed is handed out again in that stream's order. Knows no device object, no tensors, and not who orders streams.

pub mod alloc;
pub mod pinned;

pub use alloc::{
    AllocConf, BlockInfo, BlockState, DeviceMemory, Effort, Frame, Pool, PoolId, PoolStat, SegmentInfo, Stat,
    Stats, TraceAction, TraceEvent,
};
pub use pinned::{PinnedBlock, PinnedStats, Times};
