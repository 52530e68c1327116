//! Segments that grow in place and can return pages from anywhere.
//!
//! An *extent* is a range of reserved addresses, larger than the device's memory, owned by one pool of one
//! stream. Memory is mapped where a request needs it, and is unmapped in the same *pieces*, because drivers
//! cannot unmap part of a piece. A growth is mapped in about 32 equal pieces, between one unit and
//! [`LARGEST_PIECE`]. This keeps the number of driver calls small, and a block that stays in use keeps at
//! most one such piece from being returned at either of its ends.
//!
//! When more than a quarter of the reserved memory lies unused in pieces too small for a request, whole pages
//! among them are unmapped and the same amount is mapped where the request needs it. The host waits for the
//! stream, and the reserved memory stays the same. Over its lifetime an allocator moves no more bytes than
//! its peak of reserved bytes, unless the device is nearly full. So a loop that repeats reaches a layout that
//! fits and then makes no more driver calls. The wait is the reason for the threshold of a quarter: with a
//! twentieth, a random mix of sizes reserves 1.10 times what it uses instead of 1.20, but it moves pages, and
//! waits, at almost every request that finds no block.

use super::book::{ArenaId, ExtentId, Gap};
use super::{Allocator, BlockId, Pool, TraceAction};
use crate::base::{ErrorKind, Result, Span};
use crate::kernel::Ptr;
use std::collections::BTreeMap;

/// The size of the largest piece.
const LARGEST_PIECE: u64 = 256 << 20;
/// Approximate number of pieces per growth. Source: PyTorch makes 51 for 1 GiB.
const PIECES: u64 = 32;
/// Free pages are moved instead of mapping new ones when the unused memory exceeds this fraction (one
/// quarter) of the reserved memory, and [`SLACK_BYTES`].
const SLACK: u64 = 4;
const SLACK_BYTES: u64 = 64 << 20;

/// All extents of one device.
#[derive(Default)]
pub(super) struct Extents {
    /// The mapping granularity in bytes; `None` when mapping is unavailable or disabled.
    unit: Option<u64>,
    /// Bytes of an extent.
    size: u64,
    list: Vec<Option<Extent>>,
    /// Total bytes moved, and the peak of reserved bytes.
    moved: u64,
    peak: u64,
}

struct Extent {
    base: Ptr,
    size: u64,
    /// The mapped pieces, start to length.
    pieces: BTreeMap<Ptr, u64>,
}

/// The result of a growth.
pub(super) enum Growth {
    /// A large enough block, free and in no pool.
    Block(BlockId),
    /// Out of memory.
    NoMemory,
    /// Out of addresses.
    NoAddresses,
}

impl Extents {
    /// Extents of a device with `total` bytes that maps memory in units.
    pub(super) fn new(unit: Option<u64>, total: u64) -> Extents {
        // Larger than the memory, so that gaps in the middle rarely require a second extent.
        let size = unit.map_or(0, |unit| {
            (total / 8).saturating_add(total).checked_next_multiple_of(unit).unwrap_or(total)
        });
        Extents { unit, size, list: Vec::new(), moved: 0, peak: 0 }
    }

    pub(super) fn unit(&self) -> Option<u64> {
        self.unit
    }

    fn get_mut(&mut self, id: ExtentId) -> Option<&mut Extent> {
        self.list.get_mut(id as usize)?.as_mut()
    }

    fn add(&mut self, base: Ptr, size: u64) -> ExtentId {
        let extent = Some(Extent { base, size, pieces: BTreeMap::new() });
        match self.list.iter().position(Option::is_none) {
            Some(spare) => {
                self.list[spare] = extent;
                spare as ExtentId
            }
            None => {
                self.list.push(extent);
                (self.list.len() - 1) as ExtentId
            }
        }
    }
}

impl Allocator {
    /// Maps memory for a request where it needs the fewest new bytes.
    pub(super) fn take_pages(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Result<Growth> {
        let Some(unit) = self.extents.unit else { return Ok(Growth::NoAddresses) };
        let Some(whole) = size.checked_next_multiple_of(unit) else { return Ok(Growth::NoMemory) };
        if !self.allows(unit) {
            return Ok(Growth::NoMemory);
        }
        let mut best = self.best_gap(size, unit, pool, arena);
        if best.is_none() {
            if !self.allows(whole) {
                return Ok(Growth::NoMemory);
            }
            let length = self.extents.size.max(whole);
            let base = match self.driver.reserve(length) {
                Ok(base) => base,
                Err(e) if e.kind() == ErrorKind::OutOfMemory => return Ok(Growth::NoAddresses),
                Err(e) => return Err(e),
            };
            let extent = self.extents.add(base, length);
            self.book.add_extent(extent, base, length, pool, arena);
            best = self.best_gap(size, unit, pool, arena);
        }
        let Some((bytes, gap)) = best else { return Ok(Growth::NoAddresses) };
        if !self.allows(bytes) {
            return Ok(Growth::NoMemory);
        }
        let mapped = self.map(self.book.get(gap.id).extent, gap.ptr, bytes, unit);
        if !matches!(mapped, Ok(true)) {
            self.drop_empty(gap.id);
            return mapped.map(|_| Growth::NoMemory);
        }
        self.reserved += bytes;
        self.extents.peak = self.extents.peak.max(self.reserved);
        self.stats.reserved_bytes.increase(pool, bytes);
        self.stats.num_device_alloc += 1;
        self.note(TraceAction::SegmentMap, gap.ptr, bytes, arena, self.asks);
        let (id, runs) = self.book.fill_gap(gap.id, bytes);
        self.stats.segment.change(pool, runs);
        Ok(Growth::Block(self.book.merge(id, |_| {})))
    }

    /// Frees pages of the pool for a request when enough of them lie unused between its blocks. A held pool
    /// keeps every page in place, because a graph writes there.
    pub(super) fn spare_pages(&mut self, size: u64, pool: Pool, arena: ArenaId) -> Result<()> {
        let Some(unit) = self.extents.unit else { return Ok(()) };
        let unused = self.reserved.saturating_sub(self.stats.active_bytes.all().current);
        let held = self.pools.capturing() || self.pools.is_held(self.book.pool_of(arena));
        if held || unused < (self.reserved / SLACK).max(SLACK_BYTES) {
            return Ok(());
        }
        let most = self.driver.properties().total_memory.min(self.most_reserved());
        if self.extents.moved >= self.extents.peak && self.reserved < most / 4 * 3 {
            return Ok(());
        }
        let best = self.best_gap(size, unit, pool, arena);
        let needed = best.map_or(size, |(bytes, _)| bytes);
        // Blocks next to the growth position are useful where they are.
        let beside = |id: BlockId| {
            let block = self.book.get(id);
            best.is_some_and(|(_, gap)| block.end() == gap.ptr || block.ptr == gap.ptr + gap.size)
        };
        let (mut ids, mut sum) = (Vec::new(), 0);
        for (_, id) in self.book.largest_first(pool, arena) {
            if sum >= needed {
                break;
            }
            let bytes =
                if self.book.get(id).is_expandable() && !beside(id) { self.pages_of(id).1 } else { 0 };
            if bytes > 0 {
                ids.push(id);
                sum += bytes;
            }
        }
        if sum < needed {
            return Ok(());
        }
        self.extents.moved += sum;
        self.release(&ids)
    }

    /// The gap where a request needs the fewest new bytes (the lowest address among equals), and that number.
    fn best_gap(&self, size: u64, unit: u64, pool: Pool, arena: ArenaId) -> Option<(u64, Gap)> {
        let needs = |gap: Gap| {
            let new = size.saturating_sub(gap.before).max(1).checked_next_multiple_of(unit)?;
            if new <= gap.size {
                return Some((new, gap));
            }
            (gap.before + gap.size + gap.behind >= size).then_some((gap.size, gap))
        };
        self.book.gaps(pool, arena).filter_map(needs).min_by_key(|(new, gap)| (*new, gap.ptr))
    }

    /// Maps a whole range or nothing; false when out of memory.
    fn map(&mut self, extent: ExtentId, ptr: Ptr, bytes: u64, unit: u64) -> Result<bool> {
        let piece = (bytes / PIECES / unit).max(1);
        let piece = (1 << piece.ilog2()) * unit;
        let piece = piece.min(LARGEST_PIECE.max(unit));
        let mut mapped = 0;
        while mapped < bytes {
            let length = piece.min(bytes - mapped);
            if let Err(e) = self.driver.map(ptr + mapped, length) {
                for at in (0..mapped).step_by(piece as usize) {
                    self.driver.unmap(ptr + at, piece);
                }
                return if e.kind() == ErrorKind::OutOfMemory { Ok(false) } else { Err(e) };
            }
            mapped += length;
        }
        if let Some(extent) = self.extents.get_mut(extent) {
            for at in (0..bytes).step_by(piece as usize) {
                extent.pieces.insert(ptr + at, piece.min(bytes - at));
            }
        }
        Ok(true)
    }

    /// The whole pieces inside a free block: their start and total bytes.
    pub(super) fn pages_of(&self, id: BlockId) -> (Ptr, u64) {
        let block = self.book.get(id);
        let Some(Some(extent)) = self.extents.list.get(block.extent as usize) else { return (block.ptr, 0) };
        let inside = extent.pieces.range(block.ptr..block.end());
        let inside = inside.filter(|&(&ptr, &bytes)| ptr + bytes <= block.end());
        // Pieces tile the mapped range, so those inside a block are adjacent.
        inside.fold((block.ptr, 0), |(start, sum), (&ptr, &bytes)| {
            (if sum == 0 { ptr } else { start }, sum + bytes)
        })
    }

    /// Returns the whole pieces inside a free block. The caller has waited for its stream.
    pub(super) fn release_pages(&mut self, id: BlockId) {
        let (ptr, bytes) = self.pages_of(id);
        if bytes == 0 {
            return;
        }
        let block = self.book.get(id);
        let (pool, arena, extent) = (block.pool, block.arena, block.extent);
        self.note(TraceAction::SegmentUnmap, ptr, bytes, arena, Span::NONE);
        if let Some(extent) = self.extents.list.get_mut(extent as usize).and_then(Option::as_mut) {
            let mut behind = extent.pieces.split_off(&ptr);
            extent.pieces.append(&mut behind.split_off(&(ptr + bytes)));
            for (ptr, bytes) in behind {
                self.driver.unmap(ptr, bytes);
            }
        }
        let (gap, runs) = self.book.clear(id, ptr, bytes);
        self.reserved -= bytes;
        self.stats.num_device_free += 1;
        self.stats.reserved_bytes.decrease(pool, bytes);
        self.stats.segment.change(pool, runs);
        self.drop_empty(gap);
    }

    /// Returns the addresses of an extent that has no memory left; `gap` is one of its unmapped blocks.
    fn drop_empty(&mut self, gap: BlockId) {
        let id = self.book.get(gap).extent as usize;
        let Some(slot) = self.extents.list.get_mut(id) else { return };
        if let Some(extent) = slot.take_if(|extent| extent.pieces.is_empty()) {
            self.book.drop_extent(gap);
            self.driver.unreserve(extent.base, extent.size);
        }
    }

    /// Returns everything when the device closes.
    pub(super) fn close_extents(&mut self) {
        for extent in self.extents.list.drain(..).flatten() {
            for (&ptr, &bytes) in &extent.pieces {
                self.driver.unmap(ptr, bytes);
            }
            self.driver.unreserve(extent.base, extent.size);
        }
    }
}
