//! Private pools: memory reserved for selected requests.
//!
//! A request goes to the innermost open *route* that accepts its stream, otherwise to the general pool. A
//! pool lives while a handle to it exists. After that its blocks live until they are freed, and its unused
//! memory is returned like any other. Source: `torch.cuda.MemPool`, and the pools of graphs.

use super::{Allocator, BlockId, Use};
use crate::base::Result;
use crate::stream::Stream;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pool's number, unique in the process; its captured part has the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(u64);

impl PoolId {
    /// The general pool, for all requests that no private pool accepts.
    pub const GENERAL: PoolId = PoolId(0);

    /// This bit marks the number of a pool's captured part.
    const CAPTURED: u64 = 1 << 63;

    /// A new unique number.
    pub fn fresh() -> PoolId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        PoolId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The part of this pool that captures use. Its memory is kept apart from that of other requests, because
    /// every replay writes there, even to free memory. It has the same number.
    pub fn captured(self) -> PoolId {
        PoolId(self.0 | PoolId::CAPTURED)
    }

    /// The number; 0 for the general pool.
    pub fn number(self) -> u64 {
        self.0 & !PoolId::CAPTURED
    }
}

/// Whether a route accepts the requests of a stream.
pub(crate) type StreamFilter = Box<dyn Fn(&Stream) -> bool + Send + Sync>;

/// The number of an open route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route(u64);

/// The private pools of one allocator.
#[derive(Default)]
pub(super) struct Pools {
    /// Pools with a live handle.
    held: Vec<PoolId>,
    /// Pools without a handle that still have memory.
    left: Vec<PoolId>,
    routes: Vec<Open>,
    next: u64,
    /// Blocks freed during a capture, with the streams that used them.
    deferred: Vec<(BlockId, Vec<Use>)>,
}

struct Open {
    route: Route,
    pool: PoolId,
    takes: StreamFilter,
    capture: bool,
}

impl Pools {
    /// The pool that serves a stream's requests.
    #[inline]
    pub(super) fn pool_for(&self, stream: &Stream) -> PoolId {
        if self.routes.is_empty() {
            return PoolId::GENERAL;
        }
        let taken = self.routes.iter().rev().find(|open| (open.takes)(stream));
        taken.map_or(PoolId::GENERAL, |open| open.pool)
    }

    /// True while a graph is captured on the device: events must not be recorded or waited for.
    #[inline]
    pub(super) fn capturing(&self) -> bool {
        self.routes.iter().any(|open| open.capture)
    }

    pub(super) fn is_held(&self, pool: PoolId) -> bool {
        self.held.contains(&pool)
    }

    /// Keeps a freed block until no capture is active.
    pub(super) fn defer(&mut self, block: BlockId, uses: &[Use]) {
        self.deferred.push((block, uses.to_vec()));
    }
}

impl Allocator {
    /// Opens a private pool with one handle.
    pub(crate) fn hold_pool(&mut self, pool: PoolId) {
        self.pools.held.push(pool);
    }

    /// Drops a handle. After the last one, the pool's unused memory returns to the driver: immediately if its
    /// streams can be waited for, otherwise when the cache is next emptied.
    pub(crate) fn release_pool(&mut self, pool: PoolId) -> Result<()> {
        if let Some(at) = self.pools.held.iter().position(|&p| p == pool) {
            self.pools.held.swap_remove(at);
        }
        if self.pools.is_held(pool) {
            return Ok(());
        }
        self.pools.left.push(pool);
        if self.pools.capturing() {
            return Ok(());
        }
        self.collect()?;
        let of_pool =
            |&id: &BlockId| self.book.pool_of(self.book.get(id).arena) == pool && self.releasable(id) > 0;
        let unused: Vec<BlockId> = self.book.unused().filter(of_pool).collect();
        self.release(&unused)?;
        self.close_pools();
        Ok(())
    }

    /// Serves requests of the streams that `takes` selects from a private pool until the route ends. During a
    /// `capture`, events are not recorded or waited for, and no memory is returned to the driver.
    pub(crate) fn begin_pool(&mut self, pool: PoolId, capture: bool, takes: StreamFilter) -> Route {
        self.pools.next += 1;
        let route = Route(self.pools.next);
        self.pools.routes.push(Open { route, pool, takes, capture });
        route
    }

    /// Ends a route. After the last capture, blocks freed meanwhile start to wait for the streams that used
    /// them.
    pub(crate) fn end_pool(&mut self, route: Route) {
        self.pools.routes.retain(|open| open.route != route);
        if self.pools.capturing() {
            return;
        }
        for (block, uses) in std::mem::take(&mut self.pools.deferred) {
            uses.iter().for_each(|one| self.pending.add(one, block));
        }
    }

    /// Removes pools without a handle and without memory.
    pub(super) fn close_pools(&mut self) {
        let Allocator { pools, book, .. } = self;
        pools.left.retain(|&pool| !book.close(pool));
    }
}
