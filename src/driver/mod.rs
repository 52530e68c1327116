//! Drivers: low-level access to one device.
//!
//! A [`Driver`] allocates memory, queues work and makes events; `cuda`, `emu` and `host` implement it.
//! PyTorch's semantics live in the modules above (`stream`, `memory`, `device`), with the same code for every
//! backend. Independent of script-level streams, the allocator or tensors.

pub mod backend;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod emu;
pub mod error;
pub mod failure;
pub mod graph;
pub mod host;
mod id;
mod interface;
pub mod kernel_cache;
#[cfg(feature = "dist")]
pub mod links;
#[cfg(test)]
pub(crate) mod mock;
pub mod nvtx;

pub use emu::{Orders, Schedule};
pub use failure::Failure;
pub use id::DeviceId;
pub use interface::{Compiled, CopyKind, Driver, EventHandle, KernelStats, Properties, StreamHandle, Work};

/// The byte that fresh memory is overwritten with: 0xff (nan in every float dtype) in debug builds and with
/// `RUNNEL_POISON`, otherwise none.
pub fn default_poison() -> Option<u8> {
    (cfg!(debug_assertions) || std::env::var_os("RUNNEL_POISON").is_some()).then_some(0xff)
}
