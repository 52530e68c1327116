//! The caching allocator: PyTorch's policy, figure for figure, over any [`Driver`].
//!
//! # Policy
//!
//! Taking memory from a driver is slow and may wait for the whole device. So memory is taken in
//! *segments*, cut into *blocks*, and kept when a block is freed. A freed block is handed out again
//! at once, while work on it may still be queued: it goes only to the stream it was allocated on,
//! where program order keeps the two users apart.
//!
//! - Sizes are rounded up to 512 bytes. With `roundup_power2_divisions` they are rounded up to one
//!   of that many steps between two powers of two.
//! - Requests up to 1 MiB come from the *small pool*, whose segments have 2 MiB. Larger requests come
//!   from the *large pool*: segments of 20 MiB for requests under 10 MiB, otherwise segments of the
//!   request's size rounded up to 2 MiB.
//! - Where the device can map memory, and `expandable_segments` is not `false`, a segment is an *extent*
//!   of reserved addresses, one per pool, that grows by pages of 2 MiB where a request needs the fewest,
//!   and gives free pages back from its end and its middle. So the order of requests does not matter: a
//!   freed block and the one that grows beside it are one. Such segments are split wherever 512 bytes
//!   remain, are never oversize, and count nothing as *inactive split*. What follows on segment sizes
//!   holds for plain ones.
//! - Each stream has its own pair of pools. A request takes the smallest free block of its pool that
//!   is large enough, the lowest address among equals.
//! - A block is split when what remains is at least 512 bytes (small pool), or more than 1 MiB (large
//!   pool). With `max_split_size_mb`, blocks of that size and above (*oversize*) are never split, and
//!   are only given to requests of that size which leave less than 20 MiB unused
//!   (`max_non_split_rounding_mb`).
//! - A freed block is merged with free neighbours of its segment.
//! - A block that other streams used is *pending* after it was freed: an event is recorded on each of
//!   those streams at that moment, and the block is free when all of them have passed. Nobody has to
//!   call `record_stream`.
//!
//! When no block fits, in this order:
//!
//! 1. with `garbage_collection_threshold` and a memory fraction, old unused segments go back first;
//! 2. a new segment is taken from the driver, or the pool's own grows; when much lies unused between its
//!    blocks, by pages from there (`extent`);
//! 3. pending blocks are waited for, and the pool is searched again (PyTorch does not search again), and
//!    2 again where segments grow;
//! 4. with `max_split_size_mb`, just enough oversize blocks of this pool go back, and 2 again;
//! 5. all unused segments and pages go back, and 2 again (`num_alloc_retries`);
//! 6. free blocks of the other pool and of other streams serve, after a wait for their stream (PyTorch
//!    does not look there);
//! 7. the request fails with the facts and the source lines that hold the most (`num_ooms`).
//!
//! Between 2 and 3 the caller gives up what nobody needs any more (`plan/memory.rs`): see [`Effort`].
//!
//! A private pool (`pools`) has segments of its own, and keeps them as long as somebody holds it.
//!
//! A segment or page goes back to the driver only after the host has waited for its stream: drivers do not
//! look whether memory that is freed is still in use.
//!
//! Requests of 0 bytes take nothing, change no figure, and have the null pointer.
//!
//! Knows nothing of tensors, nor of who orders the streams.

mod book;
mod conf;
mod extent;
mod free;
mod grow;
mod pending;
mod pools;
mod snapshot;
mod stats;
mod summary;
mod trace;
mod viewer;

pub use conf::AllocConf;
pub use pools::PoolId;
pub(crate) use pools::{Route, StreamFilter};
pub use snapshot::{BlockInfo, BlockState, SegmentInfo};
pub use stats::{Pool, PoolStat, Stat, Stats};
pub use trace::{TraceAction, TraceEvent};
pub use viewer::{DeviceMemory, Frame, snapshot_pickle};

use crate::base::{Place, Result, Span};
use crate::driver::{Driver, error};
use crate::kernel::Ptr;
use crate::stream::Stream;
pub(crate) use book::NONE as NO_BLOCK;
use book::{ArenaId, Book, State};
use extent::Extents;
use pending::Pending;
use pools::Pools;
use std::sync::Arc;
use trace::Trace;

/// Every size is a multiple of this.
pub const MIN_BLOCK: u64 = 512;
/// The largest request of the small pool.
pub const SMALL_REQUEST: u64 = 1 << 20;
/// A segment of the small pool.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// A segment of the large pool for requests below [`LARGE_REQUEST`], unless the settings say otherwise.
pub const LARGE_SEGMENT: u64 = 20 << 20;
/// From here on a request has a segment of its own size.
pub const LARGE_REQUEST: u64 = 10 << 20;
/// Such segments are multiples of this.
pub const LARGE_STEP: u64 = 2 << 20;
/// Requests above this are refused without asking. Source: `one_exa_bytes`.
const EXABYTE: u64 = 1 << 60;

/// How much is done before a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Free blocks and new memory: steps 1 and 2. A failure counts nowhere.
    Quick,
    /// All steps. A failure counts nowhere: the caller goes on.
    Thorough,
    /// All steps. A failure is final, and is counted.
    Last,
}

/// A block's number; reused after the block has gone.
pub(crate) type BlockId = u32;

/// A block that was handed out.
pub(crate) struct Taken {
    pub(crate) id: BlockId,
    pub(crate) ptr: Ptr,
    /// The stream that owns the block, where it is not the one that asked.
    pub(crate) owner: Option<Arc<Stream>>,
    /// The epoch of the stream's newest work when any of its memory was freed last; 0 before.
    pub(crate) freed_at: u64,
}

/// The allocator of one device.
///
/// Invariant: the blocks of a segment tile it in address order; no two neighbours are both free;
/// every free block is in exactly one stream's pool; `stats` are what [`Stats::of_segments`] computes from
/// the snapshot; `reserved` is the sum of all segments.
pub(crate) struct Allocator {
    driver: Arc<dyn Driver>,
    index: u32,
    conf: AllocConf,
    book: Book,
    pending: Pending,
    pools: Pools,
    extents: Extents,
    stats: Stats,
    reserved: u64,
    /// The most that may be reserved, from a memory fraction, and the fraction itself.
    limit: Option<(u64, f64)>,
    /// The most that may be reserved, set from outside.
    cap: Option<u64>,
    trace: Trace,
    /// The source of the request that takes memory from the driver, for the trace.
    asks: Span,
}

impl Allocator {
    pub(crate) fn new(driver: Arc<dyn Driver>, index: u32, mut conf: AllocConf) -> Allocator {
        let stats = Stats { max_split_size: conf.max_split_size, ..Stats::default() };
        let unit = driver.map_unit().filter(|_| conf.expandable_segments != Some(false));
        if unit.is_some() {
            // Pages go back from the middle of any segment, so that none needs to be kept whole.
            conf.max_split_size = None;
        }
        let total = driver.properties().total_memory;
        let extents = Extents::new(unit, total);
        let fraction = conf.per_process_memory_fraction;
        Allocator {
            driver,
            index,
            conf,
            book: Book::default(),
            pending: Pending::default(),
            pools: Pools::default(),
            extents,
            stats,
            reserved: 0,
            limit: fraction.map(|fraction| ((fraction * total as f64) as u64, fraction)),
            cap: None,
            trace: Trace::default(),
            asks: Span::NONE,
        }
    }

    /// Hands out a block of at least `bytes` (above 0) to a stream; `span` is the source that asks.
    pub(crate) fn alloc(
        &mut self,
        bytes: u64,
        stream: &Arc<Stream>,
        span: Span,
        effort: Effort,
    ) -> Result<Taken> {
        if bytes > EXABYTE {
            return Err(error::more_than_an_exabyte().label(Place::Here, "this asks for more than 1 EB"));
        }
        if !self.pending.is_empty() && !self.pools.capturing() {
            self.collect()?;
        }
        let size = self.conf.round(bytes);
        let pool = Pool::of(size);
        let arena = self.book.open(self.pools.pool_for(stream), stream);
        if self.limit.is_some() && self.conf.garbage_collection_threshold.is_some() {
            self.book.count_search(pool);
        }
        let id = match self.search(size, pool, arena) {
            Some(id) => id,
            None => {
                self.asks = span;
                self.grow(size, pool, arena, effort)?
            }
        };
        let mut taken = self.hand_out(id, size, bytes, span);
        let owner = self.book.stream(self.book.get(taken.id).arena);
        if !Arc::ptr_eq(owner, stream) && **owner != **stream {
            taken.owner = Some(owner.clone());
        }
        Ok(taken)
    }

    /// Takes a block back. `uses` are the other streams that worked on it.
    pub(crate) fn free(&mut self, id: BlockId, uses: &[Arc<Stream>]) {
        let block = self.book.get(id);
        let (size, pool, arena) = (block.size, block.pool, block.arena);
        self.note_block(TraceAction::FreeRequested, id);
        self.stats.allocation.decrease(pool, 1);
        self.stats.allocated_bytes.decrease(pool, size);
        if self.conf.is_oversize(size) {
            self.stats.oversize_allocations.decrease(1);
        }
        self.book.note_free(arena);
        if uses.is_empty() {
            return self.retire(id);
        }
        self.book.get_mut(id).state = State::Pending(uses.len() as u32);
        match self.pools.capturing() {
            // An event recorded now would become part of the graph.
            true => self.pools.defer(id, uses),
            false => uses.iter().for_each(|stream| self.pending.add(stream, id)),
        }
    }

    /// True while a graph is captured in its memory.
    pub(crate) fn is_capturing(&self) -> bool {
        self.pools.capturing()
    }

    /// Gives all unused segments back to the driver; during a capture, none. Source: `torch.cuda.empty_cache`.
    pub(crate) fn empty_cache(&mut self) -> Result<()> {
        if self.pools.capturing() { Ok(()) } else { self.give_back_unused() }
    }

    /// The same, whatever is captured.
    pub(crate) fn give_back_unused(&mut self) -> Result<()> {
        self.stats.num_sync_all_streams += 1;
        self.wait_for_pending()?;
        self.release_unused()
    }

    /// The source places whose live blocks hold the most: place, bytes, blocks; largest first.
    pub(crate) fn holders(&self, count: usize) -> Vec<(Span, u64, usize)> {
        self.book.holders(count)
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    pub(crate) fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.stats.reset_accumulated();
    }

    /// Limits what may be reserved to a part of `total`.
    pub(crate) fn set_fraction(&mut self, fraction: f64, total: u64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(error::bad_fraction(fraction));
        }
        self.limit = Some(((fraction * total as f64) as u64, fraction));
        Ok(())
    }

    /// The most bytes that may be reserved, as far as that is limited.
    pub(crate) fn most_reserved(&self) -> u64 {
        let fraction = self.limit.map_or(u64::MAX, |(bytes, _)| bytes);
        fraction.min(self.cap.unwrap_or(u64::MAX))
    }

    /// Limits what may be reserved to so many bytes.
    pub(crate) fn set_cap(&mut self, cap: Option<u64>) {
        self.cap = cap;
    }

    pub(crate) fn fraction(&self) -> f64 {
        self.limit.map_or(1.0, |(_, fraction)| fraction)
    }

    /// The segments, by address.
    pub(crate) fn snapshot(&self) -> Vec<SegmentInfo> {
        snapshot::take(&self.book)
    }

    /// Records the last `limit` steps from now on; 0 stops, and forgets.
    pub(crate) fn record_history(&mut self, limit: usize) {
        self.trace.record(limit);
    }

    /// The recorded steps, oldest first.
    pub(crate) fn history(&self) -> Vec<TraceEvent> {
        self.trace.events()
    }

    /// Notes a step on a block.
    #[inline]
    fn note_block(&mut self, action: TraceAction, id: BlockId) {
        if self.trace.is_on() {
            let block = self.book.get(id);
            let (ptr, size, arena, span) = (block.ptr, block.requested, block.arena, block.span);
            self.note(action, ptr, size, arena, span);
        }
    }

    /// Notes a step.
    fn note(&mut self, action: TraceAction, ptr: Ptr, size: u64, arena: ArenaId, span: Span) {
        self.trace.note(action, ptr, size, self.book.stream(arena).id(), span);
    }

    /// Makes blocks free whose last uses are over, without waiting.
    fn collect(&mut self) -> Result<()> {
        while let Some(id) = self.pending.next_done()? {
            self.passed(id);
        }
        Ok(())
    }

    fn wait_for_pending(&mut self) -> Result<()> {
        while let Some(id) = self.pending.wait_next()? {
            self.passed(id);
        }
        Ok(())
    }

    /// One of the streams that a pending block waits for has passed its last use.
    fn passed(&mut self, id: BlockId) {
        let block = self.book.get_mut(id);
        match &mut block.state {
            State::Pending(left) if *left > 1 => *left -= 1,
            _ => self.retire(id),
        }
    }

    /// The best free block of a stream's pool, taken out of it.
    fn search(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Option<BlockId> {
        let (found, id) = self.book.best_fit(pool, arena, size)?;
        let fits = match (self.conf.is_oversize(size), self.conf.is_oversize(found)) {
            (false, oversize) => !oversize,
            (true, _) => found < size.saturating_add(self.conf.max_non_split_rounding),
        };
        fits.then(|| {
            self.book.remove_free(id);
            id
        })
    }

    /// Cuts a block to size, if the rest is worth keeping, and marks it live.
    fn hand_out(&mut self, id: BlockId, size: u64, requested: u64, span: Span) -> Taken {
        let block = self.book.get(id);
        let (whole, pool, was_split) = (block.size, block.pool, block.is_split());
        let expandable = block.is_expandable();
        let rest = whole - size;
        let split = match pool {
            _ if expandable => rest >= MIN_BLOCK,
            Pool::Small => rest >= MIN_BLOCK,
            Pool::Large => !self.conf.is_oversize(size) && rest > SMALL_REQUEST,
        };
        if split {
            self.book.split(id, size);
        }
        match (was_split, split) {
            _ if expandable => {}
            (true, true) => self.stats.inactive_split_bytes.decrease(pool, size),
            (false, true) => {
                self.stats.inactive_split_bytes.increase(pool, rest);
                self.stats.inactive_split.increase(pool, 1);
            }
            (true, false) => {
                self.stats.inactive_split_bytes.decrease(pool, whole);
                self.stats.inactive_split.decrease(pool, 1);
            }
            (false, false) => {}
        }
        let block = self.book.get_mut(id);
        block.state = State::Live;
        block.requested = requested;
        block.span = span;
        let (ptr, size, arena) = (block.ptr, block.size, block.arena);
        self.note_block(TraceAction::Alloc, id);
        self.stats.allocation.increase(pool, 1);
        self.stats.allocated_bytes.increase(pool, size);
        self.stats.active.increase(pool, 1);
        self.stats.active_bytes.increase(pool, size);
        self.stats.requested_bytes.increase(pool, requested);
        if self.conf.is_oversize(size) {
            self.stats.oversize_allocations.increase(1);
        }
        Taken { id, ptr, owner: None, freed_at: self.book.freed_at(arena) }
    }

    /// Makes a block free that nothing uses any more: merges it, and puts it into its pool.
    fn retire(&mut self, id: BlockId) {
        let block = self.book.get(id);
        let (size, requested, pool) = (block.size, block.requested, block.pool);
        let expandable = block.is_expandable();
        self.note_block(TraceAction::FreeCompleted, id);
        let (mut blocks, mut bytes) = (0, 0);
        let id = self.book.merge(id, |absorbed| {
            blocks -= 1;
            bytes -= absorbed as i64;
        });
        let block = self.book.get(id);
        if block.is_split() {
            blocks += 1;
            bytes += block.size as i64;
        }
        self.book.insert_free(id);
        if !expandable {
            self.stats.inactive_split.change(pool, blocks);
            self.stats.inactive_split_bytes.change(pool, bytes);
        }
        self.stats.active.decrease(pool, 1);
        self.stats.active_bytes.decrease(pool, size);
        self.stats.requested_bytes.decrease(pool, requested);
    }
}

impl Drop for Allocator {
    /// The device closes: every block has been dropped, since blocks keep their device alive.
    fn drop(&mut self) {
        if self.driver.keeps_memory() {
            self.pending.forget();
            return;
        }
        // Memory is given back in any case; a device that fails here has lost its work already.
        let _ = self.driver.synchronize();
        self.pending.forget();
        for (ptr, size) in self.book.plain_segments() {
            self.driver.free(ptr, size);
        }
        self.close_extents();
    }
}

#[cfg(test)]
mod tests;
