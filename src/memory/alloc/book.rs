//! The allocator's bookkeeping: blocks, their order in segments, and free blocks by size.
//!
//! Independent of policy, drivers and statistics.

use super::BlockId;
use super::free::FreeList;
use super::pools::PoolId;
use super::stats::Pool;
use crate::base::Span;
use crate::kernel::Ptr;
use crate::stream::Stream;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of an arena; reused after its pool is gone.
pub(super) type ArenaId = u32;

/// The number of an extent: a range of reserved addresses, parts of which are mapped.
pub(super) type ExtentId = u32;

/// No block.
pub(crate) const NONE: BlockId = u32::MAX;

/// A part of a segment.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) ptr: Ptr,
    pub(super) size: u64,
    /// The requested size, while the block is live or pending.
    pub(super) requested: u64,
    /// The source of the request.
    pub(super) span: Span,
    /// Neighbours in the segment.
    prev: BlockId,
    next: BlockId,
    /// The arena that owns the segment.
    pub(super) arena: ArenaId,
    pub(super) pool: Pool,
    pub(super) state: State,
    /// The extent that contains the block; [`NONE`] in plain segments.
    pub(super) extent: ExtentId,
    /// The pool's search count when the block became free.
    since: u64,
}

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In its pool's free list.
    Free,
    /// Handed out, or about to be.
    Live,
    /// Freed, and waiting for this many streams.
    Pending(u32),
    /// Unmapped addresses of an extent.
    Unmapped,
    /// Not a block: the number is unused.
    Gone,
}

impl Block {
    /// True for a part of a plain segment. Blocks of extents do not count, because their free pages can be
    /// returned regardless of their neighbours. Source: `inactive_split` in PyTorch.
    pub(super) fn is_split(&self) -> bool {
        self.extent == NONE && (self.prev != NONE || self.next != NONE)
    }

    /// True when it belongs to an extent.
    pub(super) fn is_expandable(&self) -> bool {
        self.extent != NONE
    }

    /// The end address (exclusive).
    pub(super) fn end(&self) -> Ptr {
        self.ptr + self.size
    }
}

/// All blocks of one device.
#[derive(Default)]
pub(super) struct Book {
    blocks: Vec<Block>,
    spare: Vec<BlockId>,
    arenas: Vec<Arena>,
    /// The arena of each stream in the general pool, by stream number; [`NONE`] for no arena.
    general: Vec<ArenaId>,
    /// Searches per pool; counted only while garbage is collected by age.
    searches: [u64; 2],
}

/// The segments that one stream owns in one pool, private or general.
struct Arena {
    pool: PoolId,
    stream: Arc<Stream>,
    /// False when the arena's private pool is gone with all its blocks: the number is unused.
    in_use: bool,
    /// The epoch of the stream's newest work when memory of the arena was last freed; 0 before.
    freed_at: u64,
    /// [`Stream::waits`] when pending blocks were last searched for uses that the stream waits for.
    waits: u64,
    free: [FreeList; 2],
    /// Unmapped blocks.
    gaps: [Vec<BlockId>; 2],
}

/// An unmapped block, and the free blocks that it would join once mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) id: BlockId,
    pub(super) ptr: Ptr,
    pub(super) size: u64,
    /// Bytes of the free blocks before and after it.
    pub(super) before: u64,
    pub(super) behind: u64,
}

impl Book {
    pub(super) fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    /// The arena of a stream in a pool; created if missing.
    #[inline]
    pub(super) fn open(&mut self, pool: PoolId, stream: &Arc<Stream>) -> ArenaId {
        match self.general.get(stream.id() as usize) {
            Some(&arena) if pool == PoolId::GENERAL && arena != NONE => arena,
            _ => self.open_slowly(pool, stream),
        }
    }

    #[cold]
    fn open_slowly(&mut self, pool: PoolId, stream: &Arc<Stream>) -> ArenaId {
        let owns = |a: &Arena| a.in_use && a.pool == pool && a.stream.id() == stream.id();
        if let Some(found) = self.arenas.iter().position(owns) {
            return found as ArenaId;
        }
        let arena = Arena {
            pool,
            stream: stream.clone(),
            in_use: true,
            freed_at: 0,
            waits: 0,
            free: Default::default(),
            gaps: Default::default(),
        };
        let id = match self.arenas.iter().position(|a| !a.in_use) {
            Some(spare) => {
                self.arenas[spare] = arena;
                spare
            }
            None => {
                self.arenas.push(arena);
                self.arenas.len() - 1
            }
        } as ArenaId;
        if pool == PoolId::GENERAL {
            let index = stream.id() as usize;
            if self.general.len() <= index {
                self.general.resize(index + 1, NONE);
            }
            self.general[index] = id;
        }
        id
    }

    /// Releases the arena numbers of a private pool once the pool has no blocks left.
    pub(super) fn close(&mut self, pool: PoolId) -> bool {
        let holds = |b: &Block| b.state != State::Gone && self.pool_of(b.arena) == pool;
        let empty = pool != PoolId::GENERAL && !self.blocks.iter().any(holds);
        if empty {
            self.arenas.iter_mut().filter(|a| a.pool == pool).for_each(|a| a.in_use = false);
        }
        empty
    }

    pub(super) fn stream(&self, arena: ArenaId) -> &Arc<Stream> {
        &self.arenas[arena as usize].stream
    }

    pub(super) fn pool_of(&self, arena: ArenaId) -> PoolId {
        self.arenas[arena as usize].pool
    }

    /// The arenas of a pool.
    pub(super) fn arenas_of(&self, pool: PoolId) -> impl Iterator<Item = ArenaId> {
        let all = self.arenas.iter().enumerate();
        all.filter(move |(_, a)| a.in_use && a.pool == pool).map(|(id, _)| id as ArenaId)
    }

    /// Notes that memory of an arena is being freed.
    pub(super) fn note_free(&mut self, arena: ArenaId) {
        let arena = &mut self.arenas[arena as usize];
        arena.freed_at = arena.stream.worked_at();
    }

    /// True when an arena's stream has waited for others since the last call.
    #[inline]
    pub(super) fn has_waited(&mut self, arena: ArenaId) -> bool {
        let arena = &mut self.arenas[arena as usize];
        let waits = arena.stream.waits();
        std::mem::replace(&mut arena.waits, waits) != waits
    }

    /// Notes that memory may be free because the arena's stream waits for its last use. Other users of that memory must
    /// be ordered after this wait, not only after the stream's work. Recorded whether or not there was such memory,
    /// because that depends on timing.
    pub(super) fn note_order(&mut self, arena: ArenaId) {
        let arena = &mut self.arenas[arena as usize];
        if arena.freed_at != 0 {
            arena.freed_at = arena.stream.epoch().load(Ordering::Relaxed);
        }
    }

    /// The epoch of the stream's newest work when memory of the arena was last freed.
    pub(super) fn freed_at(&self, arena: ArenaId) -> u64 {
        self.arenas[arena as usize].freed_at
    }

    fn free_of(&mut self, arena: ArenaId, pool: Pool) -> &mut FreeList {
        &mut self.arenas[arena as usize].free[pool as usize]
    }

    /// The smallest free block of at least `size`, with its size.
    pub(super) fn best_fit(&self, pool: Pool, arena: ArenaId, size: u64) -> Option<(u64, BlockId)> {
        self.arenas[arena as usize].free[pool as usize].best_fit(size)
    }

    /// The free blocks of a pool with their sizes, largest first.
    pub(super) fn largest_first(&self, pool: Pool, arena: ArenaId) -> impl Iterator<Item = (u64, BlockId)> {
        self.arenas[arena as usize].free[pool as usize].largest_first()
    }

    pub(super) fn count_search(&mut self, pool: Pool) {
        self.searches[pool as usize] += 1;
    }

    /// Removes a block from its pool.
    pub(super) fn remove_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        block.state = State::Live;
        let (size, ptr, arena, pool) = (block.size, block.ptr, block.arena, block.pool);
        self.free_of(arena, pool).remove(size, ptr);
    }

    /// Puts a block into its pool.
    pub(super) fn insert_free(&mut self, id: BlockId) {
        let searches = self.searches;
        let block = &mut self.blocks[id as usize];
        block.state = State::Free;
        block.since = searches[block.pool as usize];
        let (size, ptr, arena, pool) = (block.size, block.ptr, block.arena, block.pool);
        self.free_of(arena, pool).insert(size, ptr, id);
    }

    fn add(&mut self, block: Block) -> BlockId {
        match self.spare.pop() {
            Some(id) => {
                self.blocks[id as usize] = block;
                id
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as BlockId
            }
        }
    }

    /// A new segment consisting of one block, in no pool.
    pub(super) fn add_segment(&mut self, ptr: Ptr, size: u64, pool: Pool, arena: ArenaId) -> BlockId {
        self.add(Block {
            ptr,
            size,
            requested: 0,
            span: Span::NONE,
            prev: NONE,
            next: NONE,
            arena,
            pool,
            state: State::Live,
            extent: NONE,
            since: 0,
        })
    }

    /// A new extent consisting of one unmapped block.
    pub(super) fn add_extent(&mut self, extent: ExtentId, ptr: Ptr, size: u64, pool: Pool, arena: ArenaId) {
        let id = self.add_segment(ptr, size, pool, arena);
        let block = self.get_mut(id);
        (block.state, block.extent) = (State::Unmapped, extent);
        self.arenas[arena as usize].gaps[pool as usize].push(id);
    }

    /// Removes an extent without memory; `gap` is its only block.
    pub(super) fn drop_extent(&mut self, gap: BlockId) {
        self.forget_gap(gap);
        self.drop_segment(gap);
    }

    fn forget_gap(&mut self, id: BlockId) {
        let block = &self.blocks[id as usize];
        self.arenas[block.arena as usize].gaps[block.pool as usize].retain(|&gap| gap != id);
    }

    /// The unmapped blocks of a pool.
    pub(super) fn gaps(&self, pool: Pool, arena: ArenaId) -> impl Iterator<Item = Gap> {
        self.arenas[arena as usize].gaps[pool as usize].iter().map(|&id| {
            let block = self.get(id);
            let free = |id: BlockId| match id {
                NONE => 0,
                id if self.get(id).state == State::Free => self.get(id).size,
                _ => 0,
            };
            let (before, behind) = (free(block.prev), free(block.next));
            Gap { id, ptr: block.ptr, size: block.size, before, behind }
        })
    }

    fn is_mapped(&self, id: BlockId) -> bool {
        id != NONE && self.get(id).state != State::Unmapped
    }

    /// Turns the first `bytes` of an unmapped block into a mapped block in no pool. Returns its number and
    /// the change in the number of mapped runs.
    pub(super) fn fill_gap(&mut self, gap: BlockId, bytes: u64) -> (BlockId, i64) {
        let (prev, next) = (self.get(gap).prev, self.get(gap).next);
        let mut runs = 1 - i64::from(self.is_mapped(prev));
        if self.get(gap).size == bytes {
            runs -= i64::from(self.is_mapped(next));
            self.forget_gap(gap);
            self.get_mut(gap).state = State::Live;
            return (gap, runs);
        }
        let mut filled = self.get(gap).clone();
        (filled.size, filled.state, filled.next) = (bytes, State::Live, gap);
        let filled = self.add(filled);
        if prev != NONE {
            self.get_mut(prev).next = filled;
        }
        let gap = self.get_mut(gap);
        (gap.ptr, gap.size, gap.prev) = (gap.ptr + bytes, gap.size - bytes, filled);
        (filled, runs)
    }

    /// Unmaps a part of a free block of an extent, and joins it with unmapped neighbours; the rest of the
    /// block stays free. Returns the unmapped block and the change in the number of mapped runs.
    pub(super) fn clear(&mut self, id: BlockId, ptr: Ptr, bytes: u64) -> (BlockId, i64) {
        self.remove_free(id);
        let mut part = id;
        if self.get(id).ptr < ptr {
            let first = ptr - self.get(id).ptr;
            self.split(id, first);
            part = self.get(id).next;
            self.remove_free(part);
            self.insert_free(id);
        }
        if self.get(part).size > bytes {
            self.split(part, bytes);
        }
        let (prev, next) = (self.get(part).prev, self.get(part).next);
        let runs = i64::from(self.is_mapped(prev)) + i64::from(self.is_mapped(next)) - 1;
        let (arena, pool) = (self.get(part).arena, self.get(part).pool);
        self.get_mut(part).state = State::Unmapped;
        self.arenas[arena as usize].gaps[pool as usize].push(part);
        if next != NONE && !self.is_mapped(next) {
            self.forget_gap(next);
            self.swallow(part, next);
        }
        if prev != NONE && !self.is_mapped(prev) {
            self.forget_gap(part);
            self.swallow(prev, part);
            part = prev;
        }
        (part, runs)
    }

    /// Removes a segment that consists of one block in no pool.
    pub(super) fn drop_segment(&mut self, id: BlockId) {
        self.blocks[id as usize].state = State::Gone;
        self.spare.push(id);
    }

    /// Splits a block that is in no pool: it keeps the first `size` bytes, and the rest becomes a free block
    /// after it.
    pub(super) fn split(&mut self, id: BlockId, size: u64) {
        let first = &mut self.blocks[id as usize];
        let mut rest = first.clone();
        first.size = size;
        rest.ptr += size;
        rest.size -= size;
        rest.prev = id;
        let after = rest.next;
        let rest = self.add(rest);
        self.blocks[id as usize].next = rest;
        if after != NONE {
            self.blocks[after as usize].prev = rest;
        }
        self.insert_free(rest);
    }

    /// Merges a block that is in no pool with its free neighbours, and returns the merged block. Calls
    /// `absorbed` with the size of each neighbour.
    pub(super) fn merge(&mut self, id: BlockId, mut absorbed: impl FnMut(u64)) -> BlockId {
        let mut whole = id;
        let (prev, next) = (self.get(id).prev, self.get(id).next);
        if prev != NONE && self.get(prev).state == State::Free {
            absorbed(self.get(prev).size);
            self.remove_free(prev);
            self.swallow(prev, whole);
            whole = prev;
        }
        if next != NONE && self.get(next).state == State::Free {
            absorbed(self.get(next).size);
            self.remove_free(next);
            self.swallow(whole, next);
        }
        whole
    }

    /// Appends `second` to `first`, its neighbour.
    fn swallow(&mut self, first: BlockId, second: BlockId) {
        let (size, after) = (self.get(second).size, self.get(second).next);
        self.blocks[first as usize].size += size;
        self.blocks[first as usize].next = after;
        if after != NONE {
            self.blocks[after as usize].prev = first;
        }
        self.drop_segment(second);
    }

    fn all(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().enumerate().map(|(i, b)| (i as BlockId, b)).filter(|(_, b)| b.state != State::Gone)
    }

    /// The first block of every segment; a run of mapped blocks of an extent counts as a segment.
    pub(super) fn heads(&self) -> impl Iterator<Item = BlockId> {
        let first = |b: &Block| b.state != State::Unmapped && !self.is_mapped(b.prev);
        self.all().filter(move |(_, b)| first(b)).map(|(id, _)| id)
    }

    /// A segment's blocks, starting at its first.
    pub(super) fn chain(&self, head: BlockId) -> impl Iterator<Item = &Block> {
        std::iter::successors(Some(self.get(head)), |b| self.is_mapped(b.next).then(|| self.get(b.next)))
    }

    /// Addresses and sizes of the plain segments.
    pub(super) fn plain_segments(&self) -> Vec<(Ptr, u64)> {
        let plain = self.heads().filter(|&head| !self.get(head).is_expandable());
        plain.map(|head| (self.get(head).ptr, self.chain(head).map(|b| b.size).sum())).collect()
    }

    /// Free blocks that are whole segments or parts of extents.
    pub(super) fn unused(&self) -> impl Iterator<Item = BlockId> {
        self.all().filter(|(_, b)| b.state == State::Free && !b.is_split()).map(|(id, _)| id)
    }

    /// The unused blocks of the large pool, with the number of searches since each became free.
    pub(super) fn unused_large_ages(&self) -> impl Iterator<Item = (BlockId, u64)> {
        let searches = self.searches[Pool::Large as usize];
        self.unused()
            .filter(|&id| self.get(id).pool == Pool::Large)
            .map(move |id| (id, searches - self.get(id).since))
    }

    /// The size of the largest free block of any stream.
    pub(super) fn largest_free(&self) -> u64 {
        self.all().filter(|(_, b)| b.state == State::Free).map(|(_, b)| b.size).max().unwrap_or(0)
    }

    /// The source positions whose live blocks hold the most memory, largest first: position, bytes, blocks.
    pub(super) fn holders(&self, count: usize) -> Vec<(Span, u64, usize)> {
        let mut sums: HashMap<Span, (u64, usize)> = HashMap::new();
        for (_, block) in self.all() {
            let active = matches!(block.state, State::Live | State::Pending(_));
            if active && !block.span.is_none() {
                let sum = sums.entry(block.span).or_default();
                *sum = (sum.0 + block.size, sum.1 + 1);
            }
        }
        let mut sums: Vec<_> =
            sums.into_iter().map(|(span, (bytes, blocks))| (span, bytes, blocks)).collect();
        sums.sort_by_key(|&(span, bytes, _)| (std::cmp::Reverse(bytes), span.lo, span.hi));
        sums.truncate(count);
        sums
    }
}
