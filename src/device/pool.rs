//! A device's private memory pools.
//!
//! Knows nothing of what is allocated; the policy is `alloc`'s.

use super::alloc::{PoolId, Route, StreamFilter};
use super::{Device, SegmentInfo, Stream};
use std::sync::Arc;

/// Memory of one device that only some requests are served from. Source: `torch.cuda.MemPool`.
///
/// Clones are the same pool. When the last is dropped, unused memory goes back to the driver; blocks
/// in use live on, and their memory goes back with a later [`Device::empty_cache`]. While a clone is
/// there nothing goes back, so that a captured graph may write to memory that is free in its pool.
#[derive(Clone)]
pub struct MemoryPool(Arc<Held>);

struct Held {
    device: Arc<Device>,
    id: PoolId,
}

/// As long as this lives, requests go to a private pool. Scopes may end in any order; a request goes
/// to the one that was entered last.
#[must_use]
pub struct PoolScope {
    pool: MemoryPool,
    route: Option<Route>,
}

impl MemoryPool {
    /// A new pool without memory.
    pub fn new(device: &Arc<Device>) -> MemoryPool {
        let id = PoolId::fresh();
        if let Some(allocator) = device.allocator() {
            allocator.lock().hold_pool(id);
        }
        MemoryPool(Arc::new(Held { device: device.clone(), id }))
    }

    /// Its number, unique in the process; never 0.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// Whose memory it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Serves the requests of all streams from the pool. Source: `torch.cuda.use_mem_pool`.
    pub fn enter(&self) -> PoolScope {
        self.open(false, Box::new(|_| true))
    }

    /// Serves the requests of the streams that `takes` names from the pool while a graph is captured:
    /// until the scope ends, the allocator records no events, waits for nothing and gives no memory
    /// back to the driver. `takes` is called under the allocator's lock.
    pub fn capture(&self, takes: impl Fn(&Stream) -> bool + Send + Sync + 'static) -> PoolScope {
        self.open(true, Box::new(takes))
    }

    /// The pool's segments, by address.
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        let mut segments = self.0.device.snapshot();
        segments.retain(|segment| segment.owner == self.0.id);
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
            // A device that fails here has lost its work; its memory goes back when it closes.
            let _ = allocator.lock().release_pool(self.id);
        }
    }
}

impl PoolScope {
    /// The pool that serves.
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
