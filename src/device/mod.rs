//! Devices: drivers below, policy above.
//!
//! A [`Driver`] is one device's bare machinery (memory, queues, events, launches). Everything that
//! makes it PyTorch's semantics sits above and is the same code for every backend: the caching
//! allocator (`alloc`), stream pools, events, the race checker (`races`), pinned host memory.
//! Knows nothing of tensors, operations or the language.
//!
//! A [`Machine`] holds the visible devices and opens them when they are first used. A [`Device`] hands
//! out memory as [`Block`]s and queues as [`Stream`]s. Everything here is `Send` and `Sync`.
//! Order of locks, outermost first: a machine's opening, pinned memory or a device's allocator,
//! streams and spare events, drivers. The race checker's lock is taken alone.

mod alloc;
mod backend;
mod context;
#[cfg(feature = "cuda")]
pub mod cuda;
mod driver;
pub mod emu;
pub mod error;
mod event;
pub mod failure;
mod faults;
mod foreign;
pub mod graph;
#[cfg(feature = "dist")]
pub mod group;
pub mod host;
mod in_flight;
pub mod kernel_cache;
mod machine;
#[cfg(test)]
mod mock;
pub mod nvtx;
mod passing;
mod pinned;
mod place;
mod plans;
mod pool;
pub mod races;
mod stream;
mod threads;

pub use alloc::{
    AllocConf, BlockInfo, BlockState, DeviceMemory, Effort, Frame, Pool, PoolId, PoolStat, SegmentInfo, Stat,
    Stats,
};
pub use alloc::{TraceAction, TraceEvent};
pub use context::{Block, Device};
pub use driver::{Compiled, CopyKind, Driver, EventHandle, Properties, StreamHandle, Work};
pub use emu::{Orders, Schedule};
pub use event::{CapturedRecord, Event, EventFlags};
pub use failure::Failure;
pub use faults::{Indices, Suspect};
pub use foreign::Foreign;
pub use in_flight::Ticket;
pub use machine::{Backend, Config, Machine, default_poison};
pub use passing::{when_all_passed, when_passed};
pub use pinned::{PinnedBlock, PinnedStats, Times};
pub use place::DeviceId;
pub use plans::PlanCache;
pub use pool::{MemoryPool, PoolScope};
pub use stream::{STREAMS_PER_PRIORITY, Stream};

#[cfg(test)]
mod tests;
