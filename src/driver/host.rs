//! The CPU as a device: everything runs at once on the calling thread.
//!
//! Streams and events exist so that higher layers can treat all devices alike; they are always complete. Has
//! no memory limit of its own: it allocates what the system provides.

use crate::base::{Result, room};
use crate::driver::{CopyKind, Driver, EventHandle, Failure, Properties, StreamHandle, error};
use crate::kernel::host::{self, FaultSlot, bytes};
use crate::kernel::{Fault, Launch, Ptr};
use foldhash::HashMap;
use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;
use std::alloc::Layout;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The driver of `cpu`.
pub struct HostDriver {
    properties: Properties,
    faults: FaultSlot,
    handles: AtomicU64,
    recorded: Mutex<HashMap<EventHandle, Instant>>,
    large: Mutex<Large>,
    failure: Option<Failure>,
    /// The byte that overwrites new allocations.
    poison: Option<u8>,
}

/// Maximum number of bytes of a block that are overwritten.
const POISONED: usize = 64 << 20;

/// Alignment of every block: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// Blocks up to this size come from the thread's free lists, one per multiple of [`ALIGN`].
const SMALL: usize = 1024;

/// The largest number of free blocks in a list.
const KEPT: usize = 64;

/// Freed blocks from this size are kept, up to the second number of bytes in total: the system would have to
/// clear new pages.
const LARGE: usize = 256 << 10;
const LARGE_KEPT: usize = 256 << 20;

/// Blocks from this size are separate mappings, with huge pages if the system supports them: the first touch
/// causes 512 times fewer faults, and reads across rows miss fewer translations.
const MAPPED: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Free blocks of this thread, by size.
struct Small([Vec<*mut u8>; SMALL / ALIGN]);

thread_local! {
    static FREE: RefCell<Small> = const { RefCell::new(Small([const { Vec::new() }; SMALL / ALIGN])) };
}

impl Drop for Small {
    fn drop(&mut self) {
        for (class, list) in self.0.iter_mut().enumerate() {
            for block in list.drain(..) {
                // SAFETY: the lists hold blocks of this size made by `take`.
                unsafe { give((class + 1) * ALIGN, block) };
            }
        }
    }
}

/// Large free blocks, oldest first, and the mappings of all live blocks.
#[derive(Default)]
struct Large {
    blocks: Vec<(usize, usize)>,
    bytes: usize,
    mapped: HashMap<usize, MmapMut>,
}

impl Large {
    fn take(&mut self, size: usize) -> Option<*mut u8> {
        if size < MAPPED {
            return take(size);
        }
        let map = MmapOptions::new().len(size.checked_add(HUGE_PAGE)?).map_anon().ok()?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let block = (map.as_ptr() as usize).next_multiple_of(HUGE_PAGE);
        self.mapped.insert(block, map);
        Some(block as *mut u8)
    }

    /// Returns a block to the system.
    fn give(&mut self, size: usize, block: usize) {
        if self.mapped.remove(&block).is_none() {
            // SAFETY: a block that is not mapped was made by `take` with this size; it was removed from the
            // list of free blocks, so nothing uses it.
            unsafe { give(size, block as *mut u8) };
        }
    }

    /// Returns all free blocks to the system.
    fn release(&mut self) {
        for (size, block) in std::mem::take(&mut self.blocks) {
            self.give(size, block);
        }
        self.bytes = 0;
    }
}

impl Default for HostDriver {
    fn default() -> HostDriver {
        HostDriver::new()
    }
}

impl HostDriver {
    /// The driver of this process's memory and threads.
    pub fn new() -> HostDriver {
        HostDriver::with(None, crate::driver::default_poison())
    }

    /// As [`HostDriver::new`], with an allocation that fails on purpose and a byte that overwrites new
    /// memory.
    pub fn with(failure: Option<Failure>, poison: Option<u8>) -> HostDriver {
        let total = system_memory().1;
        HostDriver {
            properties: Properties {
                name: "cpu".into(),
                major: 0,
                minor: 0,
                total_memory: total,
                multi_processor_count: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
                l2_cache_size: 0,
                warp_size: 1,
                max_threads_per_multi_processor: 1,
                uuid: String::new(),
                greatest_priority: 0,
            },
            faults: FaultSlot::default(),
            handles: AtomicU64::new(1),
            recorded: Mutex::default(),
            large: Mutex::default(),
            failure,
            poison,
        }
    }

    fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    #[cold]
    fn alloc_large(&self, size: usize) -> Option<*mut u8> {
        let mut large = self.large.lock();
        // `free` receives only the requested size, so blocks are kept by requested size.
        if let Some(index) = large.blocks.iter().position(|&(have, _)| have == size) {
            let (have, block) = large.blocks.remove(index);
            large.bytes -= have;
            return Some(block as *mut u8);
        }
        large.take(size).or_else(|| {
            large.release();
            large.take(size)
        })
    }

    #[cold]
    fn free_large(&self, size: usize, block: *mut u8) {
        let mut large = self.large.lock();
        large.blocks.push((size, block as usize));
        large.bytes += size;
        while large.bytes > LARGE_KEPT {
            let (size, block) = large.blocks.remove(0);
            large.bytes -= size;
            large.give(size, block);
        }
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        self.large.lock().release();
    }
}

/// Allocates a block from the system.
fn take(size: usize) -> Option<*mut u8> {
    let layout = Layout::from_size_align(size, ALIGN).ok()?;
    // SAFETY: the size is not 0.
    let block = unsafe { std::alloc::alloc(layout) };
    (!block.is_null()).then_some(block)
}

/// Returns a block to the system.
///
/// # Safety
/// `take(size)` made the block, and nothing uses it.
unsafe fn give(size: usize, block: *mut u8) {
    if let Ok(layout) = Layout::from_size_align(size, ALIGN) {
        // SAFETY: guaranteed by the caller.
        unsafe { std::alloc::dealloc(block, layout) };
    }
}

/// The size of the block for a request: a multiple of the alignment.
fn block_size(bytes: u64) -> Option<usize> {
    usize::try_from(bytes).ok()?.checked_next_multiple_of(ALIGN)
}

/// Free and total bytes of the system; the maximum if the system does not say. Free memory respects the
/// limits on this process.
fn system_memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let most = i64::MAX as u64;
    (room::left().min(most), field("MemTotal:").unwrap_or(most))
}

/// Rejects a request for more than the system's free memory, since allocating it could end the process. Small
/// requests are not checked.
pub fn check_room(bytes: u64) -> Result<()> {
    const SMALL: u64 = 64 << 20;
    if bytes >= SMALL && system_memory().0 < bytes {
        return Err(error::host_out_of_memory(bytes, false));
    }
    Ok(())
}

impl Driver for HostDriver {
    fn backend(&self) -> &'static str {
        "cpu"
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        Ok(system_memory())
    }

    fn alloc(&self, bytes: u64) -> Result<Ptr> {
        let failed = || error::host_out_of_memory(bytes, false);
        let size = block_size(bytes).ok_or_else(failed)?;
        if let Some(failure) = &self.failure {
            failure.call("cpu", "host_alloc").map_err(|_| failed())?;
        }
        let block = match size {
            0 => return Ok(0),
            1..=SMALL => {
                let free = FREE.try_with(|lists| lists.borrow_mut().0[size / ALIGN - 1].pop());
                free.ok().flatten().or_else(|| take(size))
            }
            LARGE.. => self.alloc_large(size),
            _ => take(size),
        };
        let block = block.ok_or_else(failed)?;
        if let Some(byte) = self.poison {
            // SAFETY: the block has that many bytes, and is not shared yet.
            unsafe { block.write_bytes(byte, size.min(POISONED)) };
        }
        Ok(block as usize as Ptr)
    }

    fn free(&self, ptr: Ptr, bytes: u64) {
        let (block, Some(size)) = (ptr as usize as *mut u8, block_size(bytes)) else { return };
        if ptr == 0 || size == 0 {
            return;
        }
        if size >= LARGE {
            return self.free_large(size, block);
        }
        let kept = size <= SMALL
            && FREE
                .try_with(|lists| {
                    let list = &mut lists.borrow_mut().0[size / ALIGN - 1];
                    let room = list.len() < KEPT;
                    if room {
                        list.push(block);
                    }
                    room
                })
                .unwrap_or(false);
        if !kept {
            // SAFETY: guaranteed by the caller: `alloc` made the block for this size, and nothing uses it.
            unsafe { give(size, block) };
        }
    }

    fn trim(&self) {
        self.large.lock().release();
        host::scratch::release();
    }

    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr> {
        self.alloc(bytes)
    }

    fn pinned_free(&self, ptr: Ptr, bytes: u64) {
        self.free(ptr, bytes);
    }

    fn stream(&self, _priority: i32) -> Result<StreamHandle> {
        Ok(self.handle())
    }

    fn stream_query(&self, _stream: StreamHandle) -> Result<bool> {
        Ok(true)
    }

    fn stream_synchronize(&self, _stream: StreamHandle) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn event(&self, _timing: bool) -> Result<EventHandle> {
        Ok(self.handle())
    }

    fn event_free(&self, event: EventHandle) {
        self.recorded.lock().remove(&event);
    }

    fn event_record(&self, event: EventHandle, _stream: StreamHandle) -> Result<()> {
        self.recorded.lock().insert(event, Instant::now());
        Ok(())
    }

    fn event_wait(&self, _stream: StreamHandle, _event: EventHandle, _owner: &dyn Driver) -> Result<()> {
        Ok(())
    }

    fn event_query(&self, _event: EventHandle) -> Result<bool> {
        Ok(true)
    }

    fn event_synchronize(&self, _event: EventHandle) -> Result<()> {
        Ok(())
    }

    fn event_elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64> {
        let recorded = self.recorded.lock();
        match (recorded.get(&start), recorded.get(&end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(*start).as_secs_f64() * 1e3),
            _ => Err(error::event_not_recorded()),
        }
    }

    fn copy(&self, dst: Ptr, src: Ptr, bytes: u64, _kind: CopyKind, _stream: StreamHandle) -> Result<()> {
        // SAFETY: guaranteed by the caller, as the trait requires: both ends are live memory of this process.
        let whole =
            unsafe { bytes::copy(dst as usize as *mut u8, src as usize as *const u8, bytes as usize) };
        if whole { Ok(()) } else { error::stopped() }
    }

    fn fill(&self, dst: Ptr, pattern: u64, width: u32, count: u64, _stream: StreamHandle) -> Result<()> {
        // SAFETY: as in `copy`.
        let whole = unsafe { bytes::fill(dst as usize as *mut u8, pattern, width as usize, count as usize) };
        if whole { Ok(()) } else { error::stopped() }
    }

    fn launch(&self, launch: &Launch, _stream: StreamHandle) -> Result<()> {
        check_room(launch.program.kind.scratch(launch))?;
        // SAFETY: the invariant of `Launch`.
        unsafe { host::run(launch, &self.faults) };
        // Work that ended early has no result.
        error::stopped()
    }

    fn prepared(&self, _launch: &Launch) -> bool {
        true
    }

    fn sleep(&self, _cycles: u64, _stream: StreamHandle) -> Result<()> {
        Ok(())
    }

    fn can_access_peer(&self, _peer: u32) -> bool {
        false
    }

    fn take_fault(&self) -> Option<Fault> {
        self.faults.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stop;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn blocks_are_aligned_distinct_and_used_again() {
        let driver = HostDriver::new();
        for bytes in [1, 32, 64, 65, 1024, 1025, 1 << 20] {
            let (a, b) = (driver.alloc(bytes).unwrap(), driver.alloc(bytes).unwrap());
            assert!(a != b && a % ALIGN as u64 == 0 && b % ALIGN as u64 == 0);
            driver.fill(a, 0x11, 1, bytes, 0).unwrap();
            driver.copy(b, a, bytes, CopyKind::DeviceToDevice, 0).unwrap();
            // SAFETY: `b` holds at least one byte, just written.
            assert_eq!(unsafe { *(b as usize as *const u8) }, 0x11);
            driver.free(a, bytes);
            if !(SMALL as u64..LARGE as u64).contains(&(bytes + 64)) {
                assert_eq!(driver.alloc(bytes).unwrap(), a, "{bytes}");
                driver.free(a, bytes);
            }
            driver.free(b, bytes);
        }
        assert_eq!(driver.alloc(0).unwrap(), 0);
        driver.free(0, 0);
    }

    #[test]
    fn copies_and_fills_that_end_early_are_errors() {
        let driver = HostDriver::new();
        const BYTES: u64 = 16 << 20;
        let (a, b) = (driver.alloc(BYTES).unwrap(), driver.alloc(BYTES).unwrap());
        let asked = stop::Stop { flag: Arc::new(AtomicBool::new(true)), deadline: None };
        stop::under(asked, || {
            assert!(driver.fill(a, 1, 1, BYTES, 0).is_err());
            assert!(driver.copy(b, a, BYTES, CopyKind::DeviceToDevice, 0).is_err());
            // A short copy always completes.
            driver.copy(b, a, 64, CopyKind::DeviceToDevice, 0).unwrap();
        });
        driver.fill(a, 1, 1, BYTES, 0).unwrap();
        driver.copy(b, a, BYTES, CopyKind::DeviceToDevice, 0).unwrap();
        driver.free(a, BYTES);
        driver.free(b, BYTES);
    }

    #[test]
    fn memory_refused_by_the_system_is_an_error() {
        let driver = HostDriver::new();
        for bytes in [u64::MAX, i64::MAX as u64, 1 << 60] {
            assert_eq!(driver.alloc(bytes).unwrap_err().kind(), crate::base::ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn timed_events_read_the_clock() {
        let driver = HostDriver::new();
        let (a, b) = (driver.event(true).unwrap(), driver.event(true).unwrap());
        driver.event_record(a, 0).unwrap();
        assert!(driver.event_elapsed(a, b).is_err());
        driver.event_record(b, 0).unwrap();
        assert!(driver.event_elapsed(a, b).unwrap() >= 0.0);
        driver.event_free(a);
        driver.event_free(b);
    }
}
