//! The device modules that share memory between threads, with stubs for the modules they import.

#![allow(dead_code, unused_imports)] // Only the parts that concern threads are called here.

#[path = "../../../src/device/alloc/mod.rs"]
mod alloc;
#[path = "../../../src/device/context.rs"]
mod context;
#[path = "../../../src/device/driver.rs"]
mod driver;
pub mod emu;
#[path = "../../../src/device/error.rs"]
pub mod error;
#[path = "../../../src/device/failure.rs"]
pub mod failure;
#[path = "../../../src/device/faults.rs"]
mod faults;
#[path = "../../../src/device/in_flight.rs"]
mod in_flight;
#[path = "../../../src/device/graph.rs"]
pub mod graph;
#[path = "../../../src/device/passing.rs"]
mod passing;
#[path = "../../../src/device/pinned.rs"]
mod pinned;
#[path = "../../../src/device/place.rs"]
mod place;
#[path = "../../../src/device/plans.rs"]
mod plans;
#[path = "../../../src/device/races/mod.rs"]
pub mod races;
#[path = "../../../src/device/stream.rs"]
mod stream;

pub use alloc::{AllocConf, SegmentInfo};
pub use context::{Block, Device};
pub use driver::{CopyKind, Driver, EventHandle, Properties, StreamHandle, Work};
pub use faults::{Indices, Suspect};
pub use in_flight::Ticket;
pub use passing::when_passed;
pub use pinned::PinnedBlock;
pub use place::DeviceId;
pub use plans::PlanCache;
pub use stream::Stream;

use crate::base::Result;
use std::sync::Arc;

/// `cuda:0` with a driver.
pub fn open(driver: Arc<dyn Driver>) -> Arc<Device> {
    Device::new(DeviceId::Cuda(0), driver, &AllocConf::default())
}

/// The page-locked memory of a machine.
pub struct Pinned(Arc<pinned::PinnedPool>);

impl Pinned {
    pub fn new() -> Pinned {
        Pinned(pinned::PinnedPool::new(AllocConf::default()))
    }

    /// Allocates this many bytes; memory that is not cached comes from `driver`.
    pub fn alloc(&self, bytes: u64, driver: &Arc<dyn Driver>) -> Result<PinnedBlock> {
        self.0.alloc(bytes, alloc::Effort::Last, || Ok(driver.clone()))
    }

    pub fn empty_cache(&self) -> Result<()> {
        self.0.empty_cache()
    }
}

/// Threads are started through the checker.
mod threads {
    pub(super) fn start(_: &str, work: impl FnOnce() + Send + 'static) -> bool {
        crate::checker::thread::spawn(work);
        true
    }
}
