//! Page-locked host memory, cached.
//!
//! Sizes are rounded up to a power of two, unless the settings ([`AllocConf`]) say otherwise, and a freed
//! block is cached for the next request of its size. Copies access pinned memory while the host continues. So
//! a block that streams used is reused only after the events recorded on them at its drop have completed;
//! each request checks these events first. Before a request fails, pending copies are waited for and cached
//! blocks are returned. Source: PyTorch's caching host allocator.

use crate::base::{Error, ErrorKind, Result, reclaim};
use crate::driver::{Driver, EventHandle, error};
use crate::kernel::Ptr;
use crate::memory::alloc::{AllocConf, Effort, Stat};
use crate::stream::Stream;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum size of a request.
const LARGEST: u64 = 1 << 62;

/// The statistics of `torch.cuda.host_memory_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedStats {
    /// Blocks handed out and not freed.
    pub active_requests: Stat,
    pub active_bytes: Stat,
    /// Blocks taken from the driver.
    pub allocations: Stat,
    pub allocated_bytes: Stat,
    /// Microseconds spent in the driver.
    pub alloc_time: Times,
    pub free_time: Times,
}

/// Call durations in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub total: u64,
    pub max: u64,
    pub min: u64,
    pub count: u64,
}

/// The page-locked memory of one machine.
pub(crate) struct PinnedPool {
    conf: AllocConf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Limit on the bytes taken from drivers.
    limit: Option<u64>,
    /// Free blocks by size.
    free: BTreeMap<u64, Vec<Chunk>>,
    pending: Vec<Waiting>,
    stats: PinnedStats,
}

/// Memory from a driver.
struct Chunk {
    driver: Arc<dyn Driver>,
    ptr: Ptr,
    size: u64,
}

/// A dropped block, with events recorded after its last uses.
struct Waiting {
    chunk: Chunk,
    /// `None`: no event could be recorded, so the stream must become idle.
    points: SmallVec<[(Arc<Stream>, Option<EventHandle>); 2]>,
}

/// Owned page-locked host memory; dropping it returns it to its cache.
///
/// Invariant: valid for `bytes` bytes; the null pointer exactly when `bytes` is 0.
pub struct PinnedBlock {
    pool: Arc<PinnedPool>,
    chunk: Option<Chunk>,
    bytes: u64,
    uses: Mutex<SmallVec<[Arc<Stream>; 1]>>,
}

impl PinnedPool {
    pub(crate) fn new(conf: AllocConf) -> Arc<PinnedPool> {
        Arc::new(PinnedPool { conf, state: Mutex::new(State::default()) })
    }

    /// Allocates `bytes` from the cache, or else through `driver`.
    pub(crate) fn alloc(
        self: &Arc<Self>,
        bytes: u64,
        effort: Effort,
        driver: impl Fn() -> Result<Arc<dyn Driver>>,
    ) -> Result<PinnedBlock> {
        let chunk = match self.conf.round_pinned(bytes).filter(|_| bytes <= LARGEST) {
            _ if bytes == 0 => None,
            Some(size) => Some(self.take(size, effort, driver)?),
            None => return Err(error::host_out_of_memory(bytes, true)),
        };
        reclaim::allocated(chunk.as_ref().map_or(0, |chunk| chunk.size));
        Ok(PinnedBlock { pool: self.clone(), chunk, bytes, uses: Mutex::new(SmallVec::new()) })
    }

    fn take(&self, size: u64, effort: Effort, driver: impl Fn() -> Result<Arc<dyn Driver>>) -> Result<Chunk> {
        match self.take_quickly(size, &driver) {
            Err(e) if error::is_shortage(&e) && effort != Effort::Quick => {
                self.wait_for_pending()?;
                self.take_quickly(size, &driver)
            }
            taken => taken,
        }
    }

    /// Takes a free block or driver memory, without waiting for copies. Returns cached blocks if memory is
    /// short.
    fn take_quickly(&self, size: u64, driver: impl Fn() -> Result<Arc<dyn Driver>>) -> Result<Chunk> {
        let mut state = self.state.lock();
        state.collect(&self.conf)?;
        if let Some(chunk) = state.reuse(size) {
            return Ok(chunk);
        }
        drop(state);
        if self.limit_refuses(size).is_some() {
            self.empty_cache()?;
            if let Some(refused) = self.limit_refuses(size) {
                return Err(refused);
            }
        }
        // Opening a device and locking pages are slow, so the pool is not locked meanwhile.
        let driver = driver()?;
        let start = Instant::now();
        let mut taken = driver.pinned_alloc(size);
        if matches!(&taken, Err(e) if e.kind() == ErrorKind::OutOfMemory) {
            self.empty_cache()?;
            taken = driver.pinned_alloc(size);
        }
        let ptr = taken.map_err(|e| match e.kind() {
            ErrorKind::OutOfMemory => error::host_out_of_memory(size, true),
            _ => e,
        })?;
        let mut state = self.state.lock();
        state.stats.alloc_time.add(start.elapsed());
        state.stats.allocations.increase(1);
        state.stats.allocated_bytes.increase(size);
        state.hand_out(size);
        Ok(Chunk { driver, ptr, size })
    }

    /// The error of a request beyond the limit.
    fn limit_refuses(&self, size: u64) -> Option<Error> {
        let state = self.state.lock();
        let taken = state.stats.allocated_bytes.current;
        let limit = state.limit.filter(|&limit| taken.saturating_add(size) > limit)?;
        Some(error::memory_limit("page-locked memory", limit, taken, size))
    }

    /// Waits for copies that still use dropped blocks.
    fn wait_for_pending(&self) -> Result<()> {
        let streams: Vec<Arc<Stream>> = {
            let state = self.state.lock();
            let points = state.pending.iter().flat_map(|waiting| &waiting.points);
            points.map(|(stream, _)| stream.clone()).collect()
        };
        // The pool is not locked meanwhile.
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        self.state.lock().collect(&self.conf)
    }

    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        self.state.lock().limit = limit;
    }

    /// Returns unused memory to the drivers. Does not wait for copies.
    pub(crate) fn empty_cache(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.collect(&self.conf)?;
        let kept = std::mem::take(&mut state.free);
        kept.into_values().flatten().for_each(|chunk| state.release(chunk));
        Ok(())
    }

    pub(crate) fn stats(&self) -> PinnedStats {
        self.state.lock().stats
    }

    pub(crate) fn reset_peak(&self) {
        self.state.lock().stats.each().into_iter().for_each(Stat::reset_peak);
    }

    pub(crate) fn reset_accumulated(&self) {
        let mut state = self.state.lock();
        state.stats.each().into_iter().for_each(Stat::reset_accumulated);
        state.stats.alloc_time = Times::default();
        state.stats.free_time = Times::default();
    }

    fn give_back(&self, chunk: Chunk, uses: &[Arc<Stream>]) {
        let points: SmallVec<_> = uses.iter().map(|s| (s.clone(), s.mark().ok())).collect();
        let mut state = self.state.lock();
        match points.is_empty() {
            true => state.retire(chunk, &self.conf),
            false => state.pending.push(Waiting { chunk, points }),
        }
    }
}

impl State {
    /// A free block of this size.
    fn reuse(&mut self, size: u64) -> Option<Chunk> {
        let chunk = self.free.get_mut(&size).and_then(Vec::pop)?;
        self.hand_out(size);
        Some(chunk)
    }

    /// Returns a free block to its driver.
    fn release(&mut self, chunk: Chunk) {
        let start = Instant::now();
        chunk.driver.pinned_free(chunk.ptr, chunk.size);
        self.stats.free_time.add(start.elapsed());
        self.stats.allocations.decrease(1);
        self.stats.allocated_bytes.decrease(chunk.size);
    }

    fn hand_out(&mut self, size: u64) {
        self.stats.active_requests.increase(1);
        self.stats.active_bytes.increase(size);
    }

    fn retire(&mut self, chunk: Chunk, conf: &AllocConf) {
        self.stats.active_requests.decrease(1);
        self.stats.active_bytes.decrease(chunk.size);
        match conf.keeps_pinned(chunk.size) {
            true => self.free.entry(chunk.size).or_default().push(chunk),
            false => self.release(chunk),
        }
    }

    /// Frees blocks whose last uses are over.
    fn collect(&mut self, conf: &AllocConf) -> Result<()> {
        let mut index = 0;
        while index < self.pending.len() {
            let points = &mut self.pending[index].points;
            while let Some((stream, event)) = points.last() {
                let done = match event {
                    Some(event) => stream.driver().event_query(*event)?,
                    None => stream.query()?,
                };
                if !done {
                    break;
                }
                if let Some((stream, Some(event))) = points.pop() {
                    stream.unmark(event);
                }
            }
            if points.is_empty() {
                let done = self.pending.swap_remove(index);
                self.retire(done.chunk, conf);
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}

impl Drop for PinnedPool {
    /// The machine closes. Waits for running copies.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for waiting in state.pending.drain(..) {
            let kept = waiting.chunk.driver.keeps_memory();
            for (stream, event) in waiting.points {
                if !kept {
                    // A device that fails here has already lost its work; its memory is returned anyway.
                    let _ = stream.synchronize();
                }
                if let Some(event) = event {
                    stream.unmark(event);
                }
            }
            if kept {
                continue;
            }
            waiting.chunk.driver.pinned_free(waiting.chunk.ptr, waiting.chunk.size);
        }
        for chunk in state.free.values_mut().flat_map(|list| list.drain(..)) {
            chunk.driver.pinned_free(chunk.ptr, chunk.size);
        }
    }
}

impl PinnedBlock {
    /// The streams whose work uses the block.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.uses.lock().to_vec()
    }

    /// The address of the first byte, the same for the host and for copies.
    pub fn ptr(&self) -> Ptr {
        self.chunk.as_ref().map_or(0, |c| c.ptr)
    }

    /// The requested size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that a copy on a stream uses the block. After the drop the block is reused only when the stream
    /// has passed everything it has queued by then.
    pub fn used_on(&self, stream: &Arc<Stream>) {
        let mut uses = self.uses.lock();
        if !uses.iter().any(|s| s == stream) {
            uses.push(stream.clone());
        }
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            reclaim::freed(chunk.size);
            self.pool.give_back(chunk, self.uses.get_mut());
        }
    }
}

impl std::fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pinned bytes at {:#x}", self.bytes, self.ptr())
    }
}

impl Times {
    fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.min = if self.count == 0 { micros } else { self.min.min(micros) };
        self.max = self.max.max(micros);
        self.total = self.total.saturating_add(micros);
        self.count += 1;
    }
}

impl PinnedStats {
    /// Every key of `torch.cuda.host_memory_stats` with its value, sorted by key.
    pub fn entries(&self) -> Vec<(String, i64)> {
        let int = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let stats = [
            ("active_requests", &self.active_requests),
            ("active_bytes", &self.active_bytes),
            ("allocations", &self.allocations),
            ("allocated_bytes", &self.allocated_bytes),
        ];
        let mut entries = Vec::new();
        for (name, stat) in stats {
            entries.extend(stat.parts().map(|(part, v)| (format!("{name}.{part}"), int(v))));
        }
        for (name, t) in [("host_alloc_time", &self.alloc_time), ("host_free_time", &self.free_time)] {
            let average = t.total.checked_div(t.count).unwrap_or(0);
            let parts =
                [("total", t.total), ("max", t.max), ("min", t.min), ("count", t.count), ("avg", average)];
            entries.extend(parts.map(|(part, v)| (format!("{name}.{part}"), int(v))));
        }
        entries.push(("num_host_alloc".to_string(), int(self.alloc_time.count)));
        entries.push(("num_host_free".to_string(), int(self.free_time.count)));
        entries.sort();
        entries
    }

    fn each(&mut self) -> [&mut Stat; 4] {
        [&mut self.active_requests, &mut self.active_bytes, &mut self.allocations, &mut self.allocated_bytes]
    }
}
