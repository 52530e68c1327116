//! Devices: a driver with its streams, its memory, its launches in flight and its plans, and the machine that opens them.
//!
//! A [`Machine`] holds the visible devices and opens them when they are first used. A [`Device`] hands
//! out memory as [`Block`]s and queues as [`Stream`](crate::stream::Stream)s. Everything here is `Send` and `Sync`.
//! Knows nothing of tensors, operations or the language.
//! Order of locks, outermost first: a machine's opening, pinned memory or a device's allocator,
//! streams and spare events, drivers. The race checker's lock is taken alone.

mod backend;
mod context;
mod machine;
mod plans;
mod pool;

pub use context::{Block, Device};
pub use machine::{Backend, Config, Machine};
pub use plans::PlanCache;
pub use pool::{MemoryPool, PoolScope};

#[cfg(test)]
mod tests;
