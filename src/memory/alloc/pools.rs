//! Private pools: memory that only some requests are served from.
//!
//! A request goes to the innermost open *route* that takes its stream, and without one to the general
//! pool. A pool lives while somebody holds it; afterwards its blocks live on until they are freed, and
//! its unused memory goes back like any other. Source: `torch.cuda.MemPool`, and the pools of graphs.

use super::{Allocator, BlockId};
use crate::base::Result;
use crate::stream::Stream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pool's number, unique in the process but for its captured part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(u64);

impl PoolId {
    /// What serves all requests that no private pool takes.
    pub const GENERAL: PoolId = PoolId(0);

    /// Set in the number of a pool's captured part.
    const CAPTURED: u64 = 1 << 63;

    /// A number that no other pool has.
    pub fn fresh() -> PoolId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        PoolId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The part of this pool that captures use. Its memory is kept apart from that of other requests, because
    /// every replay writes there, also where it is free; it has the same number.
    pub fn captured(self) -> PoolId {
        PoolId(self.0 | PoolId::CAPTURED)
    }

    /// The number; 0 for the general pool.
    pub fn number(self) -> u64 {
        self.0 & !PoolId::CAPTURED
    }
}

/// Whether a route takes the requests of a stream.
pub(crate) type StreamFilter = Box<dyn Fn(&Stream) -> bool + Send + Sync>;

/// An open route's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route(u64);

/// The private pools of one allocator.
#[derive(Default)]
pub(super) struct Pools {
    /// Pools that somebody holds.
    held: Vec<PoolId>,
    /// Pools that nobody holds any more, and that still have memory.
    left: Vec<PoolId>,
    routes: Vec<Open>,
    next: u64,
    /// Blocks that were freed during a capture, with the streams that used them.
    deferred: Vec<(BlockId, Vec<Arc<Stream>>)>,
}

struct Open {
    route: Route,
    pool: PoolId,
    takes: StreamFilter,
    capture: bool,
}

impl Pools {
    /// The pool for a request of a stream.
    #[inline]
    pub(super) fn pool_for(&self, stream: &Stream) -> PoolId {
        if self.routes.is_empty() {
            return PoolId::GENERAL;
        }
        let taken = self.routes.iter().rev().find(|open| (open.takes)(stream));
        taken.map_or(PoolId::GENERAL, |open| open.pool)
    }

    /// True while a graph is captured on the device: no event may be recorded or waited for.
    #[inline]
    pub(super) fn capturing(&self) -> bool {
        self.routes.iter().any(|open| open.capture)
    }

    pub(super) fn is_held(&self, pool: PoolId) -> bool {
        self.held.contains(&pool)
    }

    /// Keeps a freed block until no graph is captured any more.
    pub(super) fn defer(&mut self, block: BlockId, uses: &[Arc<Stream>]) {
        self.deferred.push((block, uses.to_vec()));
    }
}

impl Allocator {
    /// Opens a private pool, held once.
    pub(crate) fn hold_pool(&mut self, pool: PoolId) {
        self.pools.held.push(pool);
    }

    /// Ends a hold. When it was the last, the pool's unused memory goes back to the driver, now if its
    /// streams can be waited for, otherwise with the next cache that is emptied.
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

    /// Serves requests of the streams that `takes` names from a private pool, until the route ends.
    /// During a `capture` no event is recorded or waited for and no memory goes back to the driver.
    pub(crate) fn begin_pool(&mut self, pool: PoolId, capture: bool, takes: StreamFilter) -> Route {
        self.pools.next += 1;
        let route = Route(self.pools.next);
        self.pools.routes.push(Open { route, pool, takes, capture });
        route
    }

    /// Ends a route. After the last capture, blocks that were freed meanwhile start to wait for the
    /// streams that used them.
    pub(crate) fn end_pool(&mut self, route: Route) {
        self.pools.routes.retain(|open| open.route != route);
        if self.pools.capturing() {
            return;
        }
        for (block, uses) in std::mem::take(&mut self.pools.deferred) {
            uses.iter().for_each(|stream| self.pending.add(stream, block));
        }
    }

    /// Forgets pools that nobody holds and that have no memory any more.
    pub(super) fn close_pools(&mut self) {
        let Allocator { pools, book, .. } = self;
        pools.left.retain(|&pool| !book.close(pool));
    }
}
