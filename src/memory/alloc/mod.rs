//! The caching allocator: PyTorch's policy, with the same statistics, over any [`Driver`].
//!
//! # Policy
//!
//! Allocating from a driver is slow and may wait for the whole device. So memory is taken in *segments*,
//! split into *blocks*, and cached when a block is freed. A freed block is reused immediately, while work on
//! it may still be queued. That is safe because it returns only to the stream it was allocated on, where
//! program order separates the two users.
//!
//! - Sizes are rounded up to 512 bytes. With `roundup_power2_divisions` they are rounded up to one of that
//!   many steps between two powers of two.
//! - Requests up to 1 MiB come from the *small pool*, whose segments have 2 MiB. Larger requests come from
//!   the *large pool*: segments of 20 MiB for requests under 10 MiB, otherwise segments of the request's size
//!   rounded up to 2 MiB.
//! - If the device can map memory, and `expandable_segments` is not `false`, a segment is an *extent* of
//!   reserved addresses, one per pool. It grows by pages of 2 MiB where a request needs the fewest, and
//!   returns free pages from its end and its middle. So the order of requests does not matter: a freed block
//!   merges with the growth beside it. Such segments are split whenever 512 bytes remain, are never oversize,
//!   and do not count as *inactive split*. The segment sizes below apply to plain segments.
//! - Each stream has its own pair of pools. A request takes the smallest free block of its pool that is large
//!   enough, the lowest address among equals.
//! - A block is split when the rest is at least 512 bytes (small pool), or more than 1 MiB (large pool). With
//!   `max_split_size_mb`, blocks of that size and above (*oversize*) are never split, and only serve requests
//!   of that size which leave less than 20 MiB unused (`max_non_split_rounding_mb`).
//! - A freed block is merged with free neighbours of its segment.
//! - A freed block that other streams used is *pending*: an event is recorded on each of those streams at the free, and
//!   the block becomes free when all events have completed. Scripts need not call `record_stream`. No event is needed
//!   if the block's own stream already waits for that use, because its next use of the block comes later. So a loop's
//!   memory does not depend on how far its device lags behind.
//!
//! When no block fits, in this order:
//!
//! 1. with `garbage_collection_threshold` and a memory fraction, return old unused segments first;
//! 2. take a new segment from the driver, or grow the pool's own; when much memory lies unused between its
//!    blocks, grow with pages moved from there (`extent`);
//! 3. wait for pending blocks and search the pool again (PyTorch does not search again), then repeat 2 if
//!    segments grow;
//! 4. with `max_split_size_mb`, return just enough oversize blocks of this pool, and repeat 2;
//! 5. return all unused segments and pages, and repeat 2 (`num_alloc_retries`);
//! 6. use free blocks of the other pool and of other streams, after waiting for their stream (PyTorch does
//!    not look there);
//! 7. fail with the statistics and the source lines that hold the most memory (`num_ooms`).
//!
//! Between 2 and 3 the caller releases unreachable memory (`plan/memory.rs`): see [`Effort`].
//!
//! A private pool (`pools`) has its own segments and keeps them while a handle to it exists.
//!
//! A segment or page is returned to the driver only after the host has waited for its stream: drivers do not
//! check whether freed memory is still in use.
//!
//! Requests of 0 bytes allocate nothing, change no statistic, and have the null pointer.
//!
//! Independent of tensors and of how streams are ordered.

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
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use trace::Trace;

/// Every size is a multiple of this.
pub const MIN_BLOCK: u64 = 512;
/// The largest request of the small pool.
pub const SMALL_REQUEST: u64 = 1 << 20;
/// A segment of the small pool.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// A segment of the large pool for requests below [`LARGE_REQUEST`], unless the settings say otherwise.
pub const LARGE_SEGMENT: u64 = 20 << 20;
/// Requests of at least this size get a segment of their own size.
pub const LARGE_REQUEST: u64 = 10 << 20;
/// The sizes of such segments are multiples of this.
pub const LARGE_STEP: u64 = 2 << 20;
/// Requests above this fail without asking the driver. Source: `one_exa_bytes`.
const EXABYTE: u64 = 1 << 60;

/// The effort to make before a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Free blocks and new memory: steps 1 and 2. A failure is not counted.
    Quick,
    /// All steps. A failure is not counted, because the caller retries.
    Thorough,
    /// All steps. A failure is final and counted.
    Last,
}

/// A block's number; reused after the block is gone.
pub(crate) type BlockId = u32;

/// A stream's use of a block that another stream owns.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) stream: Arc<Stream>,
    /// The stream's epoch when the last work that uses the block was queued.
    pub(crate) epoch: u64,
}

impl Use {
    /// By work that is queued now.
    pub(crate) fn now(stream: &Arc<Stream>) -> Use {
        Use { stream: stream.clone(), epoch: stream.epoch().load(Ordering::Relaxed) }
    }

    /// By work that others queue, at any time.
    pub(crate) fn unknown(stream: &Arc<Stream>) -> Use {
        Use { stream: stream.clone(), epoch: u64::MAX }
    }
}

/// A block that was handed out.
pub(crate) struct Taken {
    pub(crate) id: BlockId,
    pub(crate) ptr: Ptr,
    /// The stream that owns the block, if it is not the requesting one.
    pub(crate) owner: Option<Arc<Stream>>,
    /// The epoch of the stream's newest work when any of its memory was last freed; 0 before.
    pub(crate) freed_at: u64,
}

/// The allocator of one device.
///
/// Invariant: the blocks of a segment tile it in address order; no two neighbours are both free; every free
/// block is in exactly one stream's pool; `stats` equals [`Stats::of_segments`] of the snapshot; `reserved`
/// is the sum of all segments.
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
    /// Limit on reserved bytes from a memory fraction, and the fraction.
    limit: Option<(u64, f64)>,
    /// Limit on reserved bytes, set from outside.
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
            // Pages can be returned from the middle of any segment, so no segment needs to stay whole.
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

    /// Allocates a block of at least `bytes` (above 0) for a stream; `span` is the requesting source.
    pub(crate) fn alloc(
        &mut self,
        bytes: u64,
        stream: &Arc<Stream>,
        span: Span,
        effort: Effort,
    ) -> Result<Taken> {
        if bytes > EXABYTE {
            return Err(error::more_than_an_exabyte().label(Place::Here, "this requests more than 1 EB"));
        }
        if !self.pending.is_empty() && !self.pools.capturing() {
            self.collect()?;
        }
        let size = self.conf.round(bytes);
        let pool = Pool::of(size);
        let arena = self.book.open(self.pools.pool_for(stream), stream);
        if !self.pools.capturing() && self.book.has_waited(arena) {
            self.collect_ordered(arena);
        }
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

    /// Frees a block. `uses` are the other streams that used it.
    pub(crate) fn free(&mut self, id: BlockId, uses: &[Use]) {
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
        if self.pools.capturing() {
            // An event recorded now would become part of the graph.
            self.book.get_mut(id).state = State::Pending(uses.len() as u32);
            return self.pools.defer(id, uses);
        }
        let owner = self.book.stream(arena);
        let open: SmallVec<[&Use; 2]> =
            uses.iter().filter(|one| !owner.is_after(&one.stream, one.epoch)).collect();
        if open.len() < uses.len() {
            self.book.note_order(arena);
        }
        if open.is_empty() {
            return self.retire(id);
        }
        self.book.get_mut(id).state = State::Pending(open.len() as u32);
        open.iter().for_each(|one| self.pending.add(one, id));
    }

    /// True while a graph is captured in this allocator's memory.
    pub(crate) fn is_capturing(&self) -> bool {
        self.pools.capturing()
    }

    /// Returns all unused segments to the driver, but none during a capture. Source:
    /// `torch.cuda.empty_cache`.
    pub(crate) fn empty_cache(&mut self) -> Result<()> {
        if self.pools.capturing() { Ok(()) } else { self.give_back_unused() }
    }

    /// Returns all unused segments to the driver, even during a capture.
    pub(crate) fn give_back_unused(&mut self) -> Result<()> {
        self.stats.num_sync_all_streams += 1;
        self.wait_for_pending()?;
        self.release_unused()
    }

    /// The source positions whose live blocks hold the most memory, largest first: position, bytes, blocks.
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

    /// Limits the reserved bytes to a fraction of `total`.
    pub(crate) fn set_fraction(&mut self, fraction: f64, total: u64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(error::bad_fraction(fraction));
        }
        self.limit = Some(((fraction * total as f64) as u64, fraction));
        Ok(())
    }

    /// The effective limit on reserved bytes.
    pub(crate) fn most_reserved(&self) -> u64 {
        let fraction = self.limit.map_or(u64::MAX, |(bytes, _)| bytes);
        fraction.min(self.cap.unwrap_or(u64::MAX))
    }

    /// Limits the reserved bytes.
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

    /// Records the last `limit` steps from now on; 0 stops recording and clears the history.
    pub(crate) fn record_history(&mut self, limit: usize) {
        self.trace.record(limit);
    }

    /// The recorded steps, oldest first.
    pub(crate) fn history(&self) -> Vec<TraceEvent> {
        self.trace.events()
    }

    /// Records a step on a block.
    #[inline]
    fn note_block(&mut self, action: TraceAction, id: BlockId) {
        if self.trace.is_on() {
            let block = self.book.get(id);
            let (ptr, size, arena, span) = (block.ptr, block.requested, block.arena, block.span);
            self.note(action, ptr, size, arena, span);
        }
    }

    /// Records a step.
    fn note(&mut self, action: TraceAction, ptr: Ptr, size: u64, arena: ArenaId, span: Span) {
        self.trace.note(action, ptr, size, self.book.stream(arena).id(), span);
    }

    /// Frees pending blocks whose last uses are over, without waiting.
    fn collect(&mut self) -> Result<()> {
        while let Some(id) = self.pending.next_done()? {
            self.passed(id);
        }
        Ok(())
    }

    /// Frees pending blocks of an arena whose stream has been told to wait for their last uses.
    fn collect_ordered(&mut self, arena: ArenaId) {
        self.book.note_order(arena);
        let Allocator { pending, book, .. } = self;
        let owner = book.stream(arena);
        let passed =
            pending.take(|one, id| book.get(id).arena == arena && owner.is_after(&one.stream, one.epoch));
        passed.into_iter().for_each(|id| self.passed(id));
    }

    fn wait_for_pending(&mut self) -> Result<()> {
        while let Some(id) = self.pending.wait_next()? {
            self.passed(id);
        }
        Ok(())
    }

    /// Called when one of the streams of a pending block has passed its last use.
    fn passed(&mut self, id: BlockId) {
        let block = self.book.get_mut(id);
        match &mut block.state {
            State::Pending(left) if *left > 1 => *left -= 1,
            _ => self.retire(id),
        }
    }

    /// Takes the best free block out of a stream's pool.
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

    /// Splits a block if the rest is worth keeping, and marks it live.
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

    /// Frees a block without remaining uses: merges it, and puts it into its pool.
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
    /// The device closes. Every block has been dropped, because blocks keep their device alive.
    fn drop(&mut self) {
        if self.driver.keeps_memory() {
            self.pending.forget();
            return;
        }
        // Memory is returned in any case; a device that fails here has already lost its work.
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
