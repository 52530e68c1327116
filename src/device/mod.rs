//! Devices: drivers below, policy above.
//!
//! A [`Driver`] is one device's bare machinery (memory, queues, events, launches). Everything that
//! makes it PyTorch's semantics sits above and is the same code for every backend: the caching
//! allocator (`alloc`), stream pools, events, the race checker (`races`), pinned host memory.
//! Knows nothing of tensors, operations or the language.

mod driver;
pub mod error;
mod place;

pub use driver::{CopyKind, Driver, EventHandle, Properties, StreamHandle};
pub use place::DeviceId;
