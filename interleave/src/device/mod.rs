//! A device and its page-locked memory, as the tests use them.

#![allow(dead_code, unused_imports)] // Only the parts that concern threads are called here.

#[path = "../../../src/device/context.rs"]
mod context;
#[path = "../../../src/device/plans.rs"]
mod plans;

pub use crate::driver::{CopyKind, Driver, EventHandle, Properties, StreamHandle, emu, error};
pub use crate::stream::{Stream, when_passed};
pub use context::{Block, Device};
pub use plans::PlanCache;

use crate::driver::DeviceId;
use crate::memory::pinned::PinnedPool;
use crate::memory::{AllocConf, Effort, PinnedBlock};
use crate::base::Result;
use std::sync::Arc;

/// `cuda:0` with a driver.
pub fn open(driver: Arc<dyn Driver>) -> Arc<Device> {
    Device::new(DeviceId::Cuda(0), driver, &AllocConf::default())
}

/// The page-locked memory of a machine.
pub struct Pinned(Arc<PinnedPool>);

impl Pinned {
    pub fn new() -> Pinned {
        Pinned(PinnedPool::new(AllocConf::default()))
    }

    /// Allocates this many bytes; memory that is not cached comes from `driver`.
    pub fn alloc(&self, bytes: u64, driver: &Arc<dyn Driver>) -> Result<PinnedBlock> {
        self.0.alloc(bytes, Effort::Last, || Ok(driver.clone()))
    }

    pub fn empty_cache(&self) -> Result<()> {
        self.0.empty_cache()
    }
}
