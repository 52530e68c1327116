//! Devices: a driver with its streams, memory, launches in flight and plans, and the machine that opens them.
//!
//! A [`Machine`] holds the visible devices and opens each on first use. A [`Device`] allocates memory as
//! [`Block`]s and provides queues as [`Stream`](crate::stream::Stream)s. Everything here is `Send` and
//! `Sync`. Independent of tensors, operations or the language.
//!
//! Lock order, outermost first: a machine's opening lock, pinned memory or a device's allocator, streams and
//! spare events, drivers. The race checker's lock is taken alone.

mod context;
mod machine;
mod plans;
mod pool;

pub use context::{Block, Device};
pub use machine::{Config, Machine};
pub use plans::PlanCache;
pub use pool::{MemoryPool, PoolScope};

pub use crate::driver::backend::{
    Backend, compile_in_processes, expect_products, expect_transforms, prepare_exit,
};

#[cfg(test)]
mod tests;
