//! One device in use: its driver, its memory, its streams, its faults.

use crate::base::{Error, ErrorKind, Result, Span, reclaim};
use crate::device::PlanCache;
use crate::driver::{DeviceId, Driver, Properties, StreamHandle, error};
use crate::kernel::Ptr;
use crate::kernel::fft::{FftPlan, FftSpec};
use crate::memory::alloc::{
    AllocConf, Allocator, BlockId, DeviceMemory, Effort, NO_BLOCK, SegmentInfo, Stats,
};
use crate::stream::races::NOW;
use crate::stream::{Faults, InFlight, Stream, StreamPool, Suspect, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A device that has been opened.
///
/// CUDA devices, real and emulated, hand out memory through the caching allocator. The host asks its
/// driver each time and has no figures but the bytes in use.
///
/// Locks: a device's allocator comes before the locks of its streams' spare events and of drivers;
/// no code holds one of those while it takes the allocator's. Blocks must not be dropped on a
/// driver's own worker threads, because the allocator may wait for those while it is locked.
pub struct Device {
    id: DeviceId,
    driver: Arc<dyn Driver>,
    streams: StreamPool,
    default_stream: Arc<Stream>,
    memory: Memory,
    /// Bytes in use at the last request or release, and those above which the device is nearly full.
    in_use: AtomicU64,
    roomy: AtomicU64,
    faults: Faults,
    in_flight: InFlight,
    plans: Mutex<PlanCache>,
    /// What memory is overwritten with whenever it is handed out.
    poison: OnceLock<u8>,
}

enum Memory {
    Cached(Box<Mutex<Allocator>>),
    Plain(Plain),
}

/// Memory that is asked for each time.
struct Plain {
    in_use: AtomicU64,
    /// The most that may be in use; `u64::MAX` without a limit.
    limit: AtomicU64,
}

/// Host requests from this size on are compared with what the system has left: it would promise the
/// memory, and end the process when it is touched.
const LARGE_HOST_REQUEST: u64 = 64 << 20;

/// Memory of one device, owned. Dropping it gives it back at once: to the cache of the stream
/// it belongs to, after the last use on every other stream that was noted with [`Block::used_on`].
///
/// Invariant: `ptr` is aligned to 512 bytes on CUDA devices, and valid for `bytes` bytes; it is the
/// null pointer exactly when `bytes` is 0.
pub struct Block {
    device: Arc<Device>,
    stream: Arc<Stream>,
    ptr: Ptr,
    bytes: u64,
    id: BlockId,
    freed_at: u64,
    uses: Mutex<SmallVec<[Arc<Stream>; 1]>>,
}

impl Device {
    pub(crate) fn new(id: DeviceId, driver: Arc<dyn Driver>, conf: &AllocConf) -> Arc<Device> {
        let (streams, default_stream) = StreamPool::new(id, driver.clone());
        let memory = match id {
            DeviceId::Cpu => {
                Memory::Plain(Plain { in_use: AtomicU64::new(0), limit: AtomicU64::new(u64::MAX) })
            }
            DeviceId::Cuda(index) => {
                Memory::Cached(Box::new(Mutex::new(Allocator::new(driver.clone(), index, conf.clone()))))
            }
        };
        let device = Device {
            id,
            driver,
            streams,
            default_stream,
            memory,
            in_use: AtomicU64::new(0),
            roomy: AtomicU64::new(u64::MAX),
            faults: Faults::default(),
            in_flight: InFlight::default(),
            plans: Mutex::default(),
            poison: OnceLock::new(),
        };
        device.note_limit();
        Arc::new(device)
    }

    /// Which one.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// Its machinery.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// What it is.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// The stream that work goes to unless another is current.
    pub fn default_stream(&self) -> &Arc<Stream> {
        &self.default_stream
    }

    /// A side stream of a priority: 32 per priority, handed out in turn. 0 is low, -1 high; lower
    /// numbers are clamped to what the driver has, and numbers above 0 are an error.
    pub fn stream(&self, priority: i64) -> Result<Arc<Stream>> {
        self.streams.next(priority)
    }

    /// Names a stream that was made outside. Source: `torch.cuda.ExternalStream`.
    pub fn external_stream(&self, handle: StreamHandle) -> Arc<Stream> {
        self.streams.external(handle)
    }

    /// The stream with a number ([`Stream::id`]), if there is one.
    pub fn stream_by_id(&self, id: u32) -> Option<Arc<Stream>> {
        self.streams.get(id)
    }

    /// Every stream made so far; the default one first.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.all()
    }

    /// Takes memory for work on `stream`, a stream of this device (another's is taken for the default
    /// one); `span` is the source that asks. Its contents are arbitrary. 0 bytes take nothing. Errors:
    /// out of memory, with the facts. Sessions go through [`Runtime`](crate::plan::Runtime), which gives up what
    /// nobody needs any more before a request fails.
    pub fn alloc(self: &Arc<Self>, bytes: u64, stream: &Arc<Stream>, span: Span) -> Result<Block> {
        self.alloc_with(bytes, stream, span, Effort::Last)
    }

    /// [`Device::alloc`] with less than everything done before it fails; then the error says nothing more.
    #[inline]
    pub fn alloc_with(
        self: &Arc<Self>,
        bytes: u64,
        stream: &Arc<Stream>,
        span: Span,
        effort: Effort,
    ) -> Result<Block> {
        let stream = if stream.device() == self.id { stream } else { &self.default_stream };
        let mut uses = SmallVec::new();
        let mut owner = None;
        let (ptr, id, freed_at) = match &self.memory {
            _ if bytes == 0 => (0, NO_BLOCK, 0),
            Memory::Cached(allocator) => {
                let mut allocator = allocator.lock();
                let taken = allocator.alloc(bytes, stream, span, effort)?;
                self.note_in_use(&allocator);
                owner = taken.owner;
                (taken.ptr, taken.id, taken.freed_at)
            }
            Memory::Plain(plain) => (self.alloc_plain(plain, bytes, effort)?, NO_BLOCK, 0),
        };
        reclaim::took(bytes);
        let owner = match owner {
            None => stream.clone(),
            Some(owner) => {
                uses.push(stream.clone());
                owner
            }
        };
        let uses = Mutex::new(uses);
        let mut block = Block { device: self.clone(), stream: owner, ptr, bytes, id, freed_at, uses };
        if self.poison(ptr, bytes, stream)? {
            block.freed_at = NOW;
        }
        Ok(block)
    }

    /// True when less than a quarter of the memory that may be taken would be left after so many more bytes.
    #[inline]
    pub fn is_nearly_full(&self, more: u64) -> bool {
        let in_use = match &self.memory {
            Memory::Cached(_) => &self.in_use,
            Memory::Plain(plain) => &plain.in_use,
        };
        in_use.load(Ordering::Relaxed).saturating_add(more) > self.roomy.load(Ordering::Relaxed)
    }

    #[inline]
    fn note_in_use(&self, allocator: &Allocator) {
        self.in_use.store(allocator.stats().active_bytes.all().current, Ordering::Relaxed);
    }

    /// Notes what may be taken at most, after it has changed.
    fn note_limit(&self) {
        let limit = match &self.memory {
            Memory::Cached(allocator) => {
                self.driver.properties().total_memory.min(allocator.lock().most_reserved())
            }
            Memory::Plain(plain) => plain.limit.load(Ordering::Relaxed),
        };
        self.roomy.store(limit / 4 * 3, Ordering::Relaxed);
    }

    /// Overwrites memory with a byte from now on whenever it is handed out. A second call changes nothing.
    pub(super) fn set_poison(&self, byte: u8) {
        let _ = self.poison.set(byte);
    }

    /// Overwrites memory of the caching allocator that is handed out, as work of its stream; true where it does. In
    /// a capture that would be part of the graph.
    fn poison(&self, ptr: Ptr, bytes: u64, stream: &Stream) -> Result<bool> {
        let (Some(&byte), Some(allocator)) = (self.poison.get(), self.allocator()) else { return Ok(false) };
        if bytes == 0 || allocator.lock().is_capturing() {
            return Ok(false);
        }
        self.driver.fill(ptr, u64::from(byte), 1, bytes, stream.handle())?;
        Ok(true)
    }

    /// Takes host memory within the limit.
    fn alloc_plain(&self, plain: &Plain, bytes: u64, effort: Effort) -> Result<Ptr> {
        if effort != Effort::Quick {
            self.driver.trim();
        }
        let limit = plain.limit.load(Ordering::Relaxed);
        let before = plain.in_use.fetch_add(bytes, Ordering::Relaxed);
        let taken = if before.checked_add(bytes).is_none_or(|sum| sum > limit) {
            Err(error::memory_limit("host memory", limit, before, bytes))
        } else if bytes >= LARGE_HOST_REQUEST && self.driver.memory_info().is_ok_and(|(free, _)| free < bytes)
        {
            Err(error::host_out_of_memory(bytes, false))
        } else {
            self.driver.alloc(bytes).map_err(|e| host_memory_error(e, bytes))
        };
        if taken.is_err() {
            plain.in_use.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Limits what may be reserved on a device, or be in use on the host, to so many bytes; a request
    /// beyond is an error of kind `Limit`. What is there already stays.
    pub fn set_memory_limit(&self, limit: Option<u64>) {
        match &self.memory {
            Memory::Cached(allocator) => allocator.lock().set_cap(limit),
            Memory::Plain(plain) => plain.limit.store(limit.unwrap_or(u64::MAX), Ordering::Relaxed),
        }
        self.note_limit();
    }

    /// Gives unused cached memory back to the driver; waits for the device where it must.
    pub fn empty_cache(&self) -> Result<()> {
        self.allocator().map_or(Ok(()), |a| a.lock().empty_cache())
    }

    /// Gives unused cached memory back before a driver's request for memory of its own fails; also during a
    /// capture, which keeps its pool.
    pub fn give_back_unused(&self) -> Result<()> {
        self.driver.trim();
        self.allocator().map_or(Ok(()), |a| a.lock().give_back_unused())
    }

    /// The figures of `torch.cuda.memory_stats`; of the host, zeros.
    pub fn stats(&self) -> Stats {
        self.allocator().map(|a| *a.lock().stats()).unwrap_or_default()
    }

    /// Bytes in use: `torch.cuda.memory_allocated`.
    pub fn memory_allocated(&self) -> u64 {
        match &self.memory {
            Memory::Cached(allocator) => allocator.lock().stats().allocated_bytes.all().current,
            Memory::Plain(plain) => plain.in_use.load(Ordering::Relaxed),
        }
    }

    /// The table of `torch.cuda.memory_summary`.
    pub fn summary(&self, abbreviated: bool) -> String {
        self.stats().summary(self.id.cuda_index().unwrap_or(0) as u32, abbreviated)
    }

    /// The source places whose live tensors hold the most memory: place, bytes, blocks; largest first.
    pub fn holders(&self, count: usize) -> Vec<(Span, u64, usize)> {
        self.allocator().map(|a| a.lock().holders(count)).unwrap_or_default()
    }

    /// Segments and blocks, by address: `torch.cuda.memory_snapshot`.
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        self.allocator().map(|a| a.lock().snapshot()).unwrap_or_default()
    }

    /// Records the allocator's last `limit` steps from now on; 0 stops, and forgets.
    pub fn record_history(&self, limit: usize) {
        if let Some(allocator) = self.allocator() {
            allocator.lock().record_history(limit);
        }
    }

    /// Segments and recorded steps at one moment; for [`Machine::snapshot_pickle`](crate::device::Machine::snapshot_pickle).
    pub fn memory(&self) -> DeviceMemory {
        let take = |a: &Mutex<Allocator>| {
            let allocator = a.lock();
            DeviceMemory { segments: allocator.snapshot(), trace: allocator.history() }
        };
        self.allocator().map(take).unwrap_or_default()
    }

    /// Sets every peak to the present value.
    pub fn reset_peak(&self) {
        if let Some(allocator) = self.allocator() {
            allocator.lock().reset_peak();
        }
    }

    /// Sets every total to 0.
    pub fn reset_accumulated(&self) {
        if let Some(allocator) = self.allocator() {
            allocator.lock().reset_accumulated();
        }
    }

    /// Limits what this process may reserve to a part of the device's memory, from 0 to 1.
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        // The driver is asked outside of the lock; the total never changes.
        let total = self.driver.memory_info()?.1;
        self.allocator().map_or(Ok(()), |a| a.lock().set_fraction(fraction, total))?;
        self.note_limit();
        Ok(())
    }

    /// The limit that was set; 1 without one.
    pub fn fraction(&self) -> f64 {
        self.allocator().map_or(1.0, |a| a.lock().fraction())
    }

    /// Free and total bytes as the driver sees them: `torch.cuda.mem_get_info`.
    pub fn mem_get_info(&self) -> Result<(u64, u64)> {
        self.driver.memory_info()
    }

    /// Waits for every stream of the device. Tell the race checker.
    pub fn synchronize(&self) -> Result<()> {
        self.driver.synchronize()
    }

    /// A number for a launch that can report a fault. Never 0. The last few thousand are remembered.
    pub fn tag_for(&self, suspect: Suspect) -> u32 {
        self.faults.tag(suspect)
    }

    /// The same for a launch that a graph repeats: its number is remembered for good.
    pub fn kept_tag_for(&self, suspect: Suspect) -> u32 {
        self.faults.keep(suspect)
    }

    /// Notes a launch or a copy, so that a failure of the device before the next wait is blamed on it.
    pub fn note_launch(&self, stream: &Stream, name: &'static str, span: Span) -> Ticket {
        self.in_flight.launch(stream, name, span)
    }

    /// Notes that everything on a stream has been waited for; with `None`, on every stream.
    pub fn note_waited(&self, stream: Option<&Stream>) {
        match stream {
            Some(stream) => self.in_flight.mark_complete(stream),
            None => self.in_flight.mark_all_complete(),
        }
    }

    /// Loses a launch that its driver refused.
    pub fn lose(&self, ticket: Ticket) {
        self.in_flight.mark_lost(ticket);
    }

    /// The number of the newest launch.
    pub fn newest_launch(&self) -> u64 {
        self.in_flight.newest()
    }

    /// How many launches after the one with a number no wait has passed.
    pub fn launches_left(&self, after: u64) -> u64 {
        self.in_flight.left(after)
    }

    /// Loses what was launched on a stream after the launch with a number and was not waited for, also what it was
    /// to copy to memory of the host: the driver has given it up.
    pub fn give_up(&self, stream: &Stream, after: u64, host: Option<&Device>) {
        let work = self.in_flight.give_up(stream, after);
        if let Some(host) = host {
            host.in_flight.give_up_copies(&work);
        }
    }

    /// The launch of a ticket, if it was given up and is remembered: what it was, and where it stands.
    pub fn given_up(&self, ticket: Ticket) -> Option<(&'static str, Span)> {
        self.in_flight.given_up(ticket)
    }

    /// Loses everything in flight: work that it waited for has ended without its results.
    pub fn lose_in_flight(&self) {
        self.in_flight.mark_all_lost();
    }

    /// True until a wait has passed that launch, or it was lost.
    pub fn is_in_flight(&self, ticket: Ticket) -> bool {
        self.in_flight.is_in_flight(ticket)
    }

    /// True when the device failed while that launch was in flight: what it wrote is not there.
    #[inline]
    pub fn is_lost(&self, ticket: Ticket) -> bool {
        self.in_flight.is_lost(ticket)
    }

    /// An error of a wait: where it says that the device failed, everything in flight is lost, and the
    /// error shows the lines that launched it.
    pub fn blame(&self, e: Error) -> Error {
        if !error::is_driver_failure(&e) {
            return e;
        }
        let name = |id: u32| match id {
            0 => format!("the default stream of {}", self.id),
            id => format!("stream {id} of {}", self.id),
        };
        self.in_flight.attribute(e, name)
    }

    /// An error of a call that queues work or takes memory: only a device that has failed for good loses
    /// what was in flight before.
    pub fn blame_if_sticky(&self, e: Error) -> Error {
        if error::is_sticky(&e) { self.blame(e) } else { e }
    }

    /// After a wait: the fault that kernels have reported since the last call, as an error at the
    /// source that launched them.
    pub fn check_faults(&self) -> Result<()> {
        let fault = self.driver.take_fault();
        match self.faults.take_held().or(fault) {
            None => Ok(()),
            Some(fault) => Err(self.faults.error(fault)),
        }
    }

    /// The newest launch that may report a fault, for [`Device::forget_faults`].
    pub fn newest_tag(&self) -> u32 {
        self.faults.newest()
    }

    /// Forgets a fault of a launch after the one with a tag: its operands were given up, so it tested memory that was
    /// never written.
    pub fn forget_faults(&self, after: u32) {
        if let Some(fault) = self.driver.take_fault() {
            self.faults.hold_until(fault, after);
        }
    }

    /// The plan for a Fourier transform: kept from last time, or made.
    pub fn fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        self.plans.lock().get(spec, |spec| self.driver.fft_plan(spec))
    }

    /// The plans that this device keeps.
    pub fn fft_plans(&self) -> parking_lot::MutexGuard<'_, PlanCache> {
        self.plans.lock()
    }

    pub(super) fn allocator(&self) -> Option<&Mutex<Allocator>> {
        match &self.memory {
            Memory::Cached(allocator) => Some(allocator),
            Memory::Plain(_) => None,
        }
    }

    #[inline]
    fn give_back(&self, ptr: Ptr, bytes: u64, id: BlockId, uses: &[Arc<Stream>]) {
        match &self.memory {
            _ if ptr == 0 => {}
            Memory::Cached(allocator) => {
                let mut allocator = allocator.lock();
                allocator.free(id, uses);
                self.note_in_use(&allocator);
            }
            Memory::Plain(plain) => {
                // Copies to and from pageable memory are over when the call that queued them returns,
                // so nothing can still use it.
                self.driver.free(ptr, bytes);
                plain.in_use.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }
}

/// A driver's bare out-of-memory error of the host gets its size.
fn host_memory_error(e: Error, bytes: u64) -> Error {
    if e.kind() == ErrorKind::OutOfMemory { error::host_out_of_memory(bytes, false) } else { e }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.id, self.driver.backend())
    }
}

impl Block {
    /// The address of the first byte.
    pub fn ptr(&self) -> Ptr {
        self.ptr
    }

    /// The size that was asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whose memory it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The stream that it belongs to: the one it was allocated on, or, where a request could not be served
    /// otherwise, the one that had freed it.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The epoch of its stream's newest work when memory of that stream was freed last, so that this may
    /// be memory which that work still uses; for [`Checker::reuse`](crate::stream::races::Checker::reuse). `None` when the
    /// stream has freed none. It does not tell whether this very block was in use before: that
    /// would depend on when other streams pass, and so would verdicts. [`NOW`]: its stream overwrites it first.
    pub fn freed_at(&self) -> Option<u64> {
        (self.freed_at != 0).then_some(self.freed_at)
    }

    /// The streams whose work may use it: the one that it belongs to, and those of [`Block::used_on`].
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        std::iter::once(&self.stream).chain(self.uses.lock().iter()).cloned().collect()
    }

    /// Notes that work on a stream, of this device or a peer, uses the block: after the drop it is
    /// handed out again only when that stream has passed what it has queued by then. Nothing to note
    /// for the stream it was allocated on, nor for the host's memory.
    pub fn used_on(&self, stream: &Arc<Stream>) {
        if Arc::ptr_eq(stream, &self.stream) || **stream == *self.stream || self.id == NO_BLOCK {
            return;
        }
        let mut uses = self.uses.lock();
        if !uses.iter().any(|s| s == stream) {
            uses.push(stream.clone());
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        reclaim::gave(self.bytes);
        self.device.give_back(self.ptr, self.bytes, self.id, self.uses.get_mut());
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x} of {}", self.bytes, self.ptr, self.device.id)
    }
}
