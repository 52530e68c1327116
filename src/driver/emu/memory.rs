//! The memory of an emulated device: an address range whose pages the system provides on first touch.
//!
//! Reserved addresses are separate ranges: mapping counts their bytes as used, and unmapping releases their
//! pages to the system. Address ranges stay reserved while the device lives. So work that uses freed memory
//! (a script's race) reads poison or another tensor's data, and never faults.

use crate::kernel::Ptr;
use crate::kernel::host::bytes;
use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};
use std::collections::BTreeMap;

/// Alignment and unit of every allocation. Source: `cudaMalloc` aligns to 256 bytes at least.
const UNIT: u64 = 512;

/// The alignment of the first allocation.
const HUGE_PAGE: u64 = 2 << 20;

/// The number of bytes of a range that are poisoned when it is allocated or freed. The rest of a freed range
/// is released to the system and reads as zero, so untouched memory costs nothing.
const POISONED: u64 = 64 << 20;

/// One device's memory.
///
/// Invariant: `free` holds disjoint ranges (start to length, in bytes from the base) that do not
/// touch each other; `used` is at most `total`.
pub(super) struct Memory {
    total: u64,
    used: u64,
    /// Overwrites fresh and freed bytes, so that reads of unwritten or freed memory become visible.
    poison: Option<u8>,
    range: Option<MmapMut>,
    free: BTreeMap<u64, u64>,
    reserved: Vec<Reserved>,
    /// New address ranges (start and bytes) that `take_fresh` has not returned yet.
    fresh: Vec<(Ptr, u64)>,
}

/// Reserved addresses to map memory at, aligned to [`HUGE_PAGE`].
struct Reserved {
    range: MmapMut,
    base: Ptr,
    bytes: u64,
    in_use: bool,
}

impl Memory {
    /// Memory of that size; reserves nothing yet.
    pub(super) fn new(total: u64, poison: Option<u8>) -> Memory {
        Memory {
            total,
            used: 0,
            poison,
            range: None,
            free: BTreeMap::new(),
            reserved: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// Free and total bytes.
    pub(super) fn info(&self) -> (u64, u64) {
        (self.total - self.used, self.total)
    }

    /// Allocates memory; `None` when the device's total would be exceeded.
    pub(super) fn alloc(&mut self, bytes: u64) -> Option<Ptr> {
        let length = bytes.max(1).checked_next_multiple_of(UNIT)?;
        if length > self.total - self.used {
            return None;
        }
        self.reserve()?;
        let base = self.range.as_mut()?.as_mut_ptr() as usize as u64;
        let (start, have) = self.free.iter().find(|&(_, &have)| have >= length).map(|(&s, &h)| (s, h))?;
        self.free.remove(&start);
        if have > length {
            self.free.insert(start + length, have - length);
        }
        self.used += length;
        if let Some(range) = self.range.as_mut() {
            poison(range, start, length, self.poison);
        }
        Some(base + start)
    }

    /// Frees memory.
    pub(super) fn free(&mut self, ptr: Ptr, bytes: u64) {
        let Some(range) = self.range.as_mut() else { return };
        let base = range.as_mut_ptr() as usize as u64;
        let length = bytes.max(1).next_multiple_of(UNIT);
        let Some(start) = ptr.checked_sub(base).filter(|&s| s + length <= range.len() as u64) else { return };
        forget(range, start, length, self.poison);
        self.used -= length;
        let (mut start, mut length) = (start, length);
        if let Some((&before, &have)) = self.free.range(..start).next_back()
            && before + have == start
        {
            self.free.remove(&before);
            (start, length) = (before, have + length);
        }
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        self.free.insert(start, length);
    }

    /// Reserves addresses, or reuses released ones; `None` when the system refuses.
    pub(super) fn reserve_range(&mut self, bytes: u64) -> Option<Ptr> {
        if let Some(spare) = self.reserved.iter_mut().find(|r| !r.in_use && r.bytes == bytes) {
            spare.in_use = true;
            return Some(spare.base);
        }
        let length = usize::try_from(bytes.checked_add(HUGE_PAGE)?).ok()?;
        let range = MmapOptions::new().len(length).no_reserve_swap().map_anon().ok()?;
        // As for the main range below.
        #[cfg(target_os = "linux")]
        let _ = range.advise(memmap2::Advice::HugePage);
        let base = (range.as_ptr() as usize as u64).next_multiple_of(HUGE_PAGE);
        self.reserved.push(Reserved { range, base, bytes, in_use: true });
        self.fresh.push((base, bytes));
        Some(base)
    }

    /// The address ranges added since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<(Ptr, u64)> {
        std::mem::take(&mut self.fresh)
    }

    /// Releases reserved addresses; a later reservation of the same size reuses them.
    pub(super) fn unreserve_range(&mut self, base: Ptr) {
        if let Some(reserved) = self.reserved.iter_mut().find(|r| r.base == base) {
            reserved.in_use = false;
        }
    }

    /// Maps memory to reserved addresses; `None` when the device's total would be exceeded.
    pub(super) fn map(&mut self, ptr: Ptr, bytes: u64) -> Option<()> {
        self.used = self.used.checked_add(bytes).filter(|&used| used <= self.total)?;
        let holds = |r: &&mut Reserved| r.base <= ptr && ptr + bytes <= r.base + r.bytes;
        if let Some(reserved) = self.reserved.iter_mut().find(holds) {
            let start = ptr - reserved.range.as_ptr() as usize as u64;
            poison(&mut reserved.range, start, bytes, self.poison);
        }
        Some(())
    }

    /// Unmaps memory: the addresses read as poison or zero from now on.
    pub(super) fn unmap(&mut self, ptr: Ptr, bytes: u64) {
        let holds = |r: &&mut Reserved| r.base <= ptr && ptr + bytes <= r.base + r.bytes;
        let Some(reserved) = self.reserved.iter_mut().find(holds) else { return };
        self.used -= bytes;
        let start = ptr - reserved.range.as_ptr() as usize as u64;
        forget(&mut reserved.range, start, bytes, self.poison);
    }

    /// Reserves four times the total, so that fragmented free memory can still serve large requests, as a
    /// real device's page tables can; less if the system refuses.
    fn reserve(&mut self) -> Option<()> {
        if self.range.is_some() {
            return Some(());
        }
        let mut length = self.total.saturating_mul(4).min(1 << 44);
        while length >= self.total.min(64 << 20) {
            length += HUGE_PAGE;
            let wanted = usize::try_from(length).ok()?;
            if let Ok(range) = MmapOptions::new().len(wanted).no_reserve_swap().map_anon() {
                // Huge pages make first touches and scattered reads cheaper, if the system supports them.
                #[cfg(target_os = "linux")]
                let _ = range.advise(memmap2::Advice::HugePage);
                let base = range.as_ptr() as usize as u64;
                self.fresh.push((base, length));
                let start = base.next_multiple_of(HUGE_PAGE) - base;
                self.free.insert(start, (length - start) / UNIT * UNIT);
                self.range = Some(range);
                return Some(());
            }
            length /= 2;
        }
        None
    }
}

/// Poisons the first bytes of a freed range if poisoning is on, and releases the rest to the system.
fn forget(range: &mut MmapMut, start: u64, length: u64, with: Option<u8>) {
    let poisoned = poison(range, start, length, with);
    if poisoned < length {
        release(range, (start + poisoned) as usize, (length - poisoned) as usize);
    }
}

/// Poisons the first bytes of a range if poisoning is on; returns how many.
fn poison(range: &mut MmapMut, start: u64, length: u64, with: Option<u8>) -> u64 {
    let Some(byte) = with else { return 0 };
    let poisoned = length.min(POISONED);
    if let Some(bytes) = range.get_mut(start as usize..(start + poisoned) as usize) {
        // SAFETY: the bytes lie in the range. Only racing work uses fresh or freed memory, and it runs under
        // the same machine's lock.
        unsafe { bytes::fill(bytes.as_mut_ptr(), u64::from(byte), 1, bytes.len()) };
    }
    poisoned
}

/// Releases the whole pages of a freed range to the system; they read as zero afterwards.
fn release(range: &mut MmapMut, start: usize, length: usize) {
    const PAGE: usize = 64 << 10;
    let (first, last) = (start.next_multiple_of(PAGE), (start + length) / PAGE * PAGE);
    if first < last {
        // SAFETY: the pages are anonymous and private, and their contents are no longer needed.
        let _ = unsafe { range.unchecked_advise_range(UncheckedAdvice::DontNeed, first, last - first) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_finite_and_freed_memory_is_reused() {
        let mut memory = Memory::new(4 << 20, None);
        let a = memory.alloc(1 << 20).unwrap();
        let b = memory.alloc(3 << 20).unwrap();
        assert_eq!((a % UNIT, b % UNIT, memory.info()), (0, 0, (0, 4 << 20)));
        assert!(memory.alloc(1).is_none());
        memory.free(a, 1 << 20);
        assert_eq!(memory.alloc(1), Some(a));
        memory.free(a, 1);
        memory.free(b, 3 << 20);
        assert_eq!((memory.free.len(), memory.used), (1, 0));
        assert!(memory.alloc(u64::MAX).is_none());
    }

    #[test]
    fn free_memory_in_pieces_serves_a_large_request() {
        let mut memory = Memory::new(8 << 20, None);
        let blocks: Vec<Ptr> = (0..8).map(|_| memory.alloc(1 << 20).unwrap()).collect();
        blocks.iter().step_by(2).for_each(|&b| memory.free(b, 1 << 20));
        assert!(memory.alloc(4 << 20).is_some());
    }

    #[test]
    fn fresh_and_freed_memory_reads_as_poison() {
        let mut memory = Memory::new(1 << 20, Some(0xff));
        let a = memory.alloc(4096).unwrap();
        let at = a as usize as *mut f32;
        // SAFETY: the address stays mapped while the memory lives.
        assert!(unsafe { at.read() }.is_nan());
        // SAFETY: as above.
        unsafe { at.write(1.0) };
        memory.free(a, 4096);
        // SAFETY: the address stays mapped while the memory lives.
        assert!(unsafe { (a as usize as *const f32).read() }.is_nan());
    }

    #[test]
    fn mapped_memory_is_finite_and_reads_as_poison_afterwards() {
        let mut memory = Memory::new(8 << 20, Some(0xff));
        let base = memory.reserve_range(16 << 20).unwrap();
        assert_eq!((base % HUGE_PAGE, memory.info()), (0, (8 << 20, 8 << 20)));
        memory.map(base, 6 << 20).unwrap();
        assert!(memory.map(base + (6 << 20), 4 << 20).is_none());
        assert_eq!(memory.info().0, 2 << 20);
        let at = base as usize as *mut f32;
        // SAFETY: the address stays reserved while the memory lives.
        unsafe { at.write(1.0) };
        memory.unmap(base, 6 << 20);
        // SAFETY: as above.
        assert!(unsafe { at.read() }.is_nan());
        assert_eq!(memory.info().0, 8 << 20);
        memory.unreserve_range(base);
        assert_eq!(memory.reserve_range(16 << 20), Some(base), "addresses are used again");
        assert_ne!(memory.reserve_range(16 << 20), Some(base));
        assert!(memory.reserve_range(u64::MAX).is_none());
    }

    #[test]
    fn sixteen_gibibytes_cost_nothing_until_touched() {
        let mut devices: Vec<Memory> = (0..4).map(|_| Memory::new(4 << 30, None)).collect();
        assert!(devices.iter_mut().all(|m| m.alloc(3 << 30).is_some()));
    }
}
