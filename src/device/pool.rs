//! Private memory pools of a device.
//!
//! Handles only; the policy is in `alloc`.

use crate::device::Device;
use crate::memory::SegmentInfo;
use crate::memory::alloc::{PoolId, Route, StreamFilter};
use crate::stream::Stream;
use std::sync::Arc;

/// Device memory that serves only selected requests. Source: `torch.cuda.MemPool`.
///
/// Clones refer to the same pool. When the last one is dropped, unused memory returns to the driver. Blocks
/// in use stay valid, and their memory returns with a later [`Device::empty_cache`]. While a clone exists no
/// memory returns, so that a captured graph may write to free memory of its pool.
#[derive(Clone)]
pub struct MemoryPool(Arc<Held>);

struct Held {
    device: Arc<Device>,
    id: PoolId,
}

/// While this exists, requests go to a private pool. Scopes may end in any order; of several, the one entered
/// last applies.
#[must_use]
pub struct PoolScope {
    pool: MemoryPool,
    route: Option<Route>,
}

impl MemoryPool {
    /// A new empty pool.
    pub fn new(device: &Arc<Device>) -> MemoryPool {
        MemoryPool::numbered(device, PoolId::fresh())
    }

    /// A new pool with an existing number that no other pool of the device has.
    pub fn numbered(device: &Arc<Device>, id: PoolId) -> MemoryPool {
        if let Some(allocator) = device.allocator() {
            allocator.lock().hold_pool(id);
        }
        MemoryPool(Arc::new(Held { device: device.clone(), id }))
    }

    /// The pool's id, unique in the process; never 0.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// The device that owns the memory.
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Serves requests of all streams from the pool. Source: `torch.cuda.use_mem_pool`.
    pub fn enter(&self) -> PoolScope {
        self.open(false, Box::new(|_| true))
    }

    /// Serves requests of the streams selected by `takes` from the pool while a graph is captured. Until the
    /// scope ends, the allocator records no events, does not wait, and returns no memory to the driver.
    /// `takes` is called with the allocator's lock held.
    pub fn capture(&self, takes: impl Fn(&Stream) -> bool + Send + Sync + 'static) -> PoolScope {
        self.open(true, Box::new(takes))
    }

    /// The pool's segments, by address; also those of captures.
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        let mut segments = self.0.device.snapshot();
        segments.retain(|segment| segment.owner.number() == self.0.id.number());
        segments
    }

    fn open(&self, capture: bool, takes: StreamFilter) -> PoolScope {
        let route = self.0.device.allocator().map(|a| a.lock().begin_pool(self.0.id, capture, takes));
        PoolScope { pool: self.clone(), route }
    }
}

impl PartialEq for MemoryPool {
    fn eq(&self, other: &MemoryPool) -> bool {
        self.0.id == other.0.id
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(allocator) = self.device.allocator() {
            // A device that fails here has lost its work; its memory is released when it closes.
            let _ = allocator.lock().release_pool(self.id);
        }
    }
}

impl PoolScope {
    /// The pool in use.
    pub fn pool(&self) -> &MemoryPool {
        &self.pool
    }
}

impl Drop for PoolScope {
    fn drop(&mut self) {
        if let (Some(route), Some(allocator)) = (self.route.take(), self.pool.0.device.allocator()) {
            allocator.lock().end_pool(route);
        }
    }
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory pool {} of {}", self.0.id.number(), self.0.device.id())
    }
}
