//! The allocator's books: blocks, their order in segments, and the free ones by size.
//!
//! Knows nothing of policy, drivers or figures.

use super::BlockId;
use super::stats::Pool;
use crate::base::Span;
use crate::device::Stream;
use crate::kernel::Ptr;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

/// No block.
pub(in crate::device) const NONE: BlockId = u32::MAX;

/// A part of a segment.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) ptr: Ptr,
    pub(super) size: u64,
    /// What was asked for, while it is live or pending.
    pub(super) requested: u64,
    /// Who asked.
    pub(super) span: Span,
    /// The neighbours in the segment.
    prev: BlockId,
    next: BlockId,
    /// The stream that owns the segment.
    pub(super) stream: u32,
    pub(super) pool: Pool,
    pub(super) state: State,
    /// How many searches its pool had seen when it became free.
    since: u64,
}

/// What a block is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In its pool.
    Free,
    /// Somebody's, or on the way there.
    Live,
    /// Freed, and waiting for that many streams.
    Pending(u32),
    /// Not a block: the number is spare.
    Gone,
}

impl Block {
    /// True when it is not the whole segment.
    pub(super) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }
}

/// All blocks of one device.
#[derive(Default)]
pub(super) struct Book {
    blocks: Vec<Block>,
    spare: Vec<BlockId>,
    /// By stream number.
    owners: Vec<Option<Owner>>,
    /// Searches per pool, counted only while garbage is collected by age.
    searches: [u64; 2],
}

/// A stream that owns segments, and its free blocks by pool: (size, address, number).
struct Owner {
    stream: Arc<Stream>,
    /// The epoch of the stream's newest work when its memory was freed last; 0 before.
    freed_at: u64,
    free: [BTreeSet<(u64, Ptr, BlockId)>; 2],
}

impl Book {
    pub(super) fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    /// Makes pools for a stream that has none.
    pub(super) fn open(&mut self, stream: &Arc<Stream>) {
        let index = stream.id() as usize;
        if self.owners.len() <= index {
            self.owners.resize_with(index + 1, || None);
        }
        if self.owners[index].is_none() {
            self.owners[index] =
                Some(Owner { stream: stream.clone(), freed_at: 0, free: Default::default() });
        }
    }

    pub(super) fn stream(&self, stream: u32) -> Option<&Arc<Stream>> {
        self.owners.get(stream as usize)?.as_ref().map(|o| &o.stream)
    }

    /// Notes that memory of a stream is freed now.
    pub(super) fn note_free(&mut self, stream: u32) {
        if let Some(Some(owner)) = self.owners.get_mut(stream as usize) {
            owner.freed_at = owner.stream.worked_at();
        }
    }

    /// The epoch of a stream's newest work when its memory was freed last.
    pub(super) fn freed_at(&self, stream: u32) -> u64 {
        self.owners.get(stream as usize).and_then(|o| o.as_ref()).map_or(0, |o| o.freed_at)
    }

    fn free_of(&mut self, stream: u32, pool: Pool) -> Option<&mut BTreeSet<(u64, Ptr, BlockId)>> {
        self.owners.get_mut(stream as usize)?.as_mut().map(|o| &mut o.free[pool as usize])
    }

    /// The smallest free block of at least `size`, with its size.
    pub(super) fn best_fit(&self, pool: Pool, stream: u32, size: u64) -> Option<(u64, BlockId)> {
        let owner = self.owners.get(stream as usize)?.as_ref()?;
        owner.free[pool as usize].range((size, 0, 0)..).next().map(|&(size, _, id)| (size, id))
    }

    /// The free blocks of a pool with their sizes, largest first.
    pub(super) fn largest_first(&self, pool: Pool, stream: u32) -> impl Iterator<Item = (u64, BlockId)> {
        let owner = self.owners.get(stream as usize).and_then(|o| o.as_ref());
        let blocks = owner.into_iter().flat_map(move |o| o.free[pool as usize].iter().rev());
        blocks.map(|&(size, _, id)| (size, id))
    }

    pub(super) fn count_search(&mut self, pool: Pool) {
        self.searches[pool as usize] += 1;
    }

    /// Takes a block out of its pool.
    pub(super) fn remove_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        block.state = State::Live;
        let (key, stream, pool) = ((block.size, block.ptr, id), block.stream, block.pool);
        if let Some(free) = self.free_of(stream, pool) {
            free.remove(&key);
        }
    }

    /// Puts a block into its pool.
    pub(super) fn insert_free(&mut self, id: BlockId) {
        let searches = self.searches;
        let block = &mut self.blocks[id as usize];
        block.state = State::Free;
        block.since = searches[block.pool as usize];
        let (key, stream, pool) = ((block.size, block.ptr, id), block.stream, block.pool);
        if let Some(free) = self.free_of(stream, pool) {
            free.insert(key);
        }
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

    /// A new segment of one block that is in no pool.
    pub(super) fn add_segment(&mut self, ptr: Ptr, size: u64, pool: Pool, stream: u32) -> BlockId {
        self.add(Block {
            ptr,
            size,
            requested: 0,
            span: Span::NONE,
            prev: NONE,
            next: NONE,
            stream,
            pool,
            state: State::Live,
            since: 0,
        })
    }

    /// Forgets a segment of one block that is in no pool.
    pub(super) fn drop_segment(&mut self, id: BlockId) {
        self.blocks[id as usize].state = State::Gone;
        self.spare.push(id);
    }

    /// Cuts a block that is in no pool: it keeps the first `size` bytes, the rest becomes a free block
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

    /// Joins a block that is in no pool with its free neighbours, and returns the number of the whole;
    /// `absorbed` hears the size of each neighbour.
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

    /// The first blocks of all segments.
    pub(super) fn heads(&self) -> impl Iterator<Item = BlockId> {
        self.all().filter(|(_, b)| b.prev == NONE).map(|(id, _)| id)
    }

    /// A segment's blocks from its first on.
    pub(super) fn chain(&self, head: BlockId) -> impl Iterator<Item = &Block> {
        std::iter::successors(Some(self.get(head)), |b| (b.next != NONE).then(|| self.get(b.next)))
    }

    /// Addresses and sizes of all segments.
    pub(super) fn segments(&self) -> Vec<(Ptr, u64)> {
        self.heads().map(|head| (self.get(head).ptr, self.chain(head).map(|b| b.size).sum())).collect()
    }

    /// Free blocks that are whole segments.
    pub(super) fn unused(&self) -> impl Iterator<Item = BlockId> {
        self.all().filter(|(_, b)| b.state == State::Free && !b.is_split()).map(|(id, _)| id)
    }

    /// Those of the large pool, with the number of searches since they became free.
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

    /// The source places whose live blocks hold the most: place, bytes, blocks; largest first.
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
