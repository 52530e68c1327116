//! Page-locked host memory, cached.
//!
//! Sizes are rounded up to a power of two, unless the settings ([`AllocConf`]) say otherwise, and a freed block is
//! kept for the next request of its size. Copies read and write pinned memory while the host goes on, so a block that streams used
//! is handed out again only after events recorded on them at its drop have passed; each request
//! looks for such blocks first. Before a request fails, copies are waited for and cached blocks go back.
//! Source: PyTorch's caching host allocator.

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

/// The largest request.
const LARGEST: u64 = 1 << 62;

/// The figures of `torch.cuda.host_memory_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedStats {
    /// Blocks handed out and not free again.
    pub active_requests: Stat,
    pub active_bytes: Stat,
    /// Blocks taken from the driver.
    pub allocations: Stat,
    pub allocated_bytes: Stat,
    /// Microseconds spent in the driver.
    pub alloc_time: Times,
    pub free_time: Times,
}

/// How long calls took, in microseconds.
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
    /// The most that may be taken from drivers.
    limit: Option<u64>,
    /// By size.
    free: BTreeMap<u64, Vec<Chunk>>,
    pending: Vec<Waiting>,
    stats: PinnedStats,
}

/// Memory of a driver.
struct Chunk {
    driver: Arc<dyn Driver>,
    ptr: Ptr,
    size: u64,
}

/// A dropped block, with the events that its last uses lie before.
struct Waiting {
    chunk: Chunk,
    /// `None`: no event could be recorded, and the stream has to become idle.
    points: SmallVec<[(Arc<Stream>, Option<EventHandle>); 2]>,
}

/// Page-locked host memory, owned; dropping it gives it back to its cache.
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

    /// Memory for `bytes`; what is not cached is taken through `driver`.
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
        reclaim::took(chunk.as_ref().map_or(0, |chunk| chunk.size));
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

    /// Memory that is free, or of the driver; cached blocks go back first where there is too little.
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
        // Opening a device and locking pages both take long: others may use the pool meanwhile.
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

    /// The error of a request that does not fit the limit.
    fn limit_refuses(&self, size: u64) -> Option<Error> {
        let state = self.state.lock();
        let taken = state.stats.allocated_bytes.current;
        let limit = state.limit.filter(|&limit| taken.saturating_add(size) > limit)?;
        Some(error::memory_limit("page-locked memory", limit, taken, size))
    }

    /// Waits for the copies that still use dropped blocks.
    fn wait_for_pending(&self) -> Result<()> {
        let streams: Vec<Arc<Stream>> = {
            let state = self.state.lock();
            let points = state.pending.iter().flat_map(|waiting| &waiting.points);
            points.map(|(stream, _)| stream.clone()).collect()
        };
        // Others may use the pool meanwhile.
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        self.state.lock().collect(&self.conf)
    }

    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        self.state.lock().limit = limit;
    }

    /// Gives memory that nobody uses back to the drivers. Does not wait for copies.
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
    /// A free block of that size.
    fn reuse(&mut self, size: u64) -> Option<Chunk> {
        let chunk = self.free.get_mut(&size).and_then(Vec::pop)?;
        self.hand_out(size);
        Some(chunk)
    }

    /// Gives a free block back to its driver.
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

    /// Makes blocks free whose last uses are over.
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
    /// The machine closes. Copies that still run are waited for.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for waiting in state.pending.drain(..) {
            let kept = waiting.chunk.driver.keeps_memory();
            for (stream, event) in waiting.points {
                if !kept {
                    // A device that fails here has lost its work already; its memory goes back all the same.
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
    /// The streams whose work uses it.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.uses.lock().to_vec()
    }

    /// The address of the first byte, the same on the host and for copies.
    pub fn ptr(&self) -> Ptr {
        self.chunk.as_ref().map_or(0, |c| c.ptr)
    }

    /// The size that was asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that a copy on a stream uses the block: after the drop it is handed out again only when
    /// the stream has passed what it has queued by then.
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
            reclaim::gave(chunk.size);
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
