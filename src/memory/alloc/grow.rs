//! The slow path when no free block fits: steps 1 to 7 of the policy.

use super::book::ArenaId;
use super::extent::Growth;
use super::{Allocator, BlockId, Effort, Pool, TraceAction};
use super::{LARGE_REQUEST, LARGE_STEP, SMALL_REQUEST, SMALL_SEGMENT};
use crate::base::{Error, ErrorKind, Place, Result, Span, bytes_text};
use crate::driver::error;

/// The number of source lines that an out-of-memory error shows.
const HOLDERS: usize = 3;

impl Allocator {
    /// Steps 1 to 7 of the policy; only 1 and 2 for a quick request.
    #[cold]
    pub(super) fn grow(&mut self, size: u64, pool: Pool, arena: ArenaId, effort: Effort) -> Result<BlockId> {
        self.collect_garbage()?;
        if let Some(id) = self.take(size, pool, arena)? {
            return Ok(id);
        }
        if effort == Effort::Quick {
            return Err(error::out_of_memory());
        }
        // Captured work has not reached the driver, so work outside the capture can be waited for.
        let mut synced = false;
        if !self.pending.is_empty() {
            self.stats.num_sync_all_streams += 1;
            synced = true;
            self.wait_for_pending()?;
            if let Some(id) = self.search(size, pool, arena) {
                return Ok(id);
            }
            // A few pages more may make the newly freed memory large enough.
            if self.extents.unit().is_some()
                && let Some(id) = self.take(size, pool, arena)?
            {
                return Ok(id);
            }
        }
        if self.release_oversize(size, pool, arena)?
            && let Some(id) = self.take(size, pool, arena)?
        {
            return Ok(id);
        }
        self.stats.num_sync_all_streams += u64::from(!synced);
        self.release_unused()?;
        self.stats.num_alloc_retries += 1;
        if let Some(id) = self.take(size, pool, arena)? {
            return Ok(id);
        }
        if let Some(id) = self.borrow(size, pool, arena)? {
            return Ok(id);
        }
        if effort == Effort::Thorough {
            return Err(error::out_of_memory());
        }
        self.stats.num_ooms += 1;
        if self.trace.is_on() {
            let device_free = self.driver.memory_info().map_or(0, |(free, _)| free);
            self.note(TraceAction::OutOfMemory { device_free }, 0, size, arena, self.asks);
        }
        let segment = match self.extents.unit() {
            Some(unit) => size.checked_next_multiple_of(unit).unwrap_or(size),
            None => self.segment_size(size),
        };
        match self.cap {
            Some(cap) if self.reserved.saturating_add(segment) > cap => {
                let what = format!("memory of cuda:{}", self.index);
                Err(error::memory_limit(&what, cap, self.reserved, segment))
            }
            _ => Err(self.out_of_memory(segment)),
        }
    }

    /// Step 6: the smallest free block that is large enough in the same private or general pool, small or
    /// large, of any stream.
    fn borrow(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Result<Option<BlockId>> {
        let owner = self.book.pool_of(arena);
        // Captured work may use a private pool, and waiting now orders nothing in a replay.
        let apart = self.pools.is_held(owner);
        let arenas = self.book.arenas_of(owner).filter(|&other| !apart || other == arena);
        let all = arenas.flat_map(|arena| [(Pool::Small, arena), (Pool::Large, arena)]);
        let others = all.filter(|&other| other != (pool, arena));
        let found = others.filter_map(|(pool, arena)| self.book.best_fit(pool, arena, size));
        let Some((_, id)) = found.min() else { return Ok(None) };
        self.book.stream(self.book.get(id).arena).synchronize()?;
        self.book.remove_free(id);
        Ok(Some(id))
    }

    /// New memory for a request, as one block in no pool; `None` when there is no memory.
    fn take(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Result<Option<BlockId>> {
        self.spare_pages(size, pool, arena)?;
        match self.take_pages(size, pool, arena)? {
            Growth::Block(id) => Ok(Some(id)),
            Growth::NoMemory => Ok(None),
            Growth::NoAddresses => self.take_segment(self.segment_size(size), pool, arena),
        }
    }

    /// A new plain segment, as one block in no pool; `None` when it does not fit.
    fn take_segment(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Result<Option<BlockId>> {
        if !self.allows(size) {
            return Ok(None);
        }
        let ptr = match self.driver.alloc(size) {
            Ok(ptr) => ptr,
            Err(e) if e.kind() == ErrorKind::OutOfMemory => return Ok(None),
            Err(e) => return Err(e),
        };
        self.reserved += size;
        self.stats.segment.increase(pool, 1);
        self.stats.reserved_bytes.increase(pool, size);
        if self.conf.is_oversize(size) {
            self.stats.oversize_segments.increase(1);
        }
        self.stats.num_device_alloc += 1;
        self.note(TraceAction::SegmentAlloc, ptr, size, arena, self.asks);
        Ok(Some(self.book.add_segment(ptr, size, pool, arena)))
    }

    /// True when the limits allow this many more bytes.
    pub(super) fn allows(&self, bytes: u64) -> bool {
        let reserved = self.reserved.saturating_add(bytes);
        self.limit.is_none_or(|(limit, _)| reserved <= limit) && self.cap.is_none_or(|cap| reserved <= cap)
    }

    /// Returns unused segments, given by the numbers of their only blocks, and the whole pages of free blocks
    /// of extents, after waiting for the streams that own them.
    pub(super) fn release(&mut self, ids: &[BlockId]) -> Result<()> {
        let mut arenas: Vec<ArenaId> = ids.iter().map(|&id| self.book.get(id).arena).collect();
        arenas.sort_unstable_by_key(|&arena| self.book.stream(arena).id());
        arenas.dedup_by_key(|&mut arena| self.book.stream(arena).id());
        for arena in arenas {
            self.book.stream(arena).synchronize()?;
        }
        for &id in ids {
            let block = self.book.get(id);
            if block.is_expandable() {
                self.release_pages(id);
                continue;
            }
            let (ptr, size, pool, arena) = (block.ptr, block.size, block.pool, block.arena);
            self.note(TraceAction::SegmentFree, ptr, size, arena, Span::NONE);
            self.book.remove_free(id);
            self.book.drop_segment(id);
            self.driver.free(ptr, size);
            self.reserved -= size;
            self.stats.num_device_free += 1;
            self.stats.segment.decrease(pool, 1);
            self.stats.reserved_bytes.decrease(pool, size);
            if self.conf.is_oversize(size) {
                self.stats.oversize_segments.decrease(1);
            }
        }
        Ok(())
    }

    /// Returns all unused memory except that of held private pools, which graphs write to when they run.
    pub(super) fn release_unused(&mut self) -> Result<()> {
        let unused: Vec<BlockId> = self.book.unused().filter(|&id| self.may_go(id)).collect();
        self.release(&unused)?;
        self.close_pools();
        Ok(())
    }

    /// False for memory of a held private pool, and for blocks without a whole free page.
    fn may_go(&self, id: BlockId) -> bool {
        !self.pools.is_held(self.book.pool_of(self.book.get(id).arena)) && self.releasable(id) > 0
    }

    /// The number of returnable bytes of an unused block.
    pub(super) fn releasable(&self, id: BlockId) -> u64 {
        let block = self.book.get(id);
        if block.is_expandable() { self.pages_of(id).1 } else { block.size }
    }

    /// Step 4: returns the smallest oversize block that is large enough, or several from the largest down.
    fn release_oversize(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Result<bool> {
        let Some(oversize) = self.conf.max_split_size else { return Ok(false) };
        if self.pools.is_held(self.book.pool_of(arena)) {
            return Ok(false);
        }
        let wanted = size.max(oversize);
        if let Some((_, id)) = self.book.best_fit(pool, arena, wanted) {
            return self.release(&[id]).map(|()| true);
        }
        let (mut ids, mut sum) = (Vec::new(), 0);
        for (size, id) in self.book.largest_first(pool, arena) {
            if sum >= wanted || size < oversize {
                break;
            }
            ids.push(id);
            sum += size;
        }
        self.release(&ids)?;
        Ok(sum >= wanted)
    }

    /// Step 1: returns unused segments of the large pool that are older than average, until the reserved
    /// memory falls below the threshold.
    fn collect_garbage(&mut self) -> Result<()> {
        if self.pools.capturing() {
            return Ok(());
        }
        let (Some(threshold), Some((limit, _))) = (self.conf.garbage_collection_threshold, self.limit) else {
            return Ok(());
        };
        let threshold = (threshold * limit as f64) as u64;
        let mut left = self.reserved.saturating_sub(threshold);
        while left > 0 {
            let aged: Vec<(BlockId, u64)> =
                self.book.unused_large_ages().filter(|&(id, _)| self.may_go(id)).collect();
            let total: u64 = aged.iter().map(|&(_, age)| age).sum();
            let average = total as f64 / aged.len().max(1) as f64;
            let old: Vec<BlockId> =
                aged.iter().filter(|&&(_, age)| age as f64 >= average).map(|&(id, _)| id).collect();
            if old.is_empty() {
                break;
            }
            let bytes: u64 = old.iter().map(|&id| self.releasable(id)).sum();
            self.release(&old)?;
            left = left.saturating_sub(bytes);
        }
        Ok(())
    }

    /// The number of bytes to take from the driver for a rounded request.
    fn segment_size(&self, size: u64) -> u64 {
        match size {
            0..=SMALL_REQUEST => SMALL_SEGMENT,
            _ if size < LARGE_REQUEST.min(self.conf.large_segment) => self.conf.large_segment,
            _ => size.next_multiple_of(LARGE_STEP),
        }
    }

    /// The error of step 7, and of launches without room for their scratch memory. Its first sentence is PyTorch's.
    pub fn out_of_memory(&self, segment: u64) -> Error {
        let (free, total) = self.driver.memory_info().unwrap_or((0, 0));
        let allocated = self.stats.allocated_bytes.all().current;
        let allowed = match self.limit {
            Some((limit, _)) => format!(" {} allowed;", bytes_text(limit)),
            None => String::new(),
        };
        let message = format!(
            "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is \
             free.{allowed} Of the reserved memory {} is allocated, and {} is free in blocks of at most {}",
            bytes_text(segment),
            self.index,
            bytes_text(total),
            bytes_text(free),
            bytes_text(allocated),
            bytes_text(self.reserved.saturating_sub(allocated)),
            bytes_text(self.book.largest_free()),
        );
        let mut error = Error::new(&error::OUT_OF_MEMORY, message);
        error = error.label(Place::Here, format!("this asks for {}", bytes_text(segment)));
        let holders = self.book.holders(HOLDERS);
        for &(span, bytes, blocks) in &holders {
            let bytes = bytes_text(bytes);
            let label = match blocks {
                1 => format!("1 block from here holds {bytes}"),
                _ => format!("{blocks} blocks from here hold {bytes}"),
            };
            error = error.at(span, label);
        }
        match holders.is_empty() {
            true => error.help("ask for less, or use a smaller dtype"),
            false => {
                error.help("drop tensors of the labelled lines that are no longer needed, or ask for less")
            }
        }
    }
}
