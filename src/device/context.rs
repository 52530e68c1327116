//! One open device: its driver, memory, streams and faults.

use crate::base::{Error, ErrorKind, Result, Span, bytes_text, reclaim};
use crate::device::PlanCache;
use crate::driver::{DeviceId, Driver, Properties, StreamHandle, error};
use crate::kernel::Ptr;
use crate::kernel::fft::{FftPlan, FftSpec};
use crate::memory::alloc::{
    AllocConf, Allocator, BlockId, DeviceMemory, Effort, NO_BLOCK, SegmentInfo, Stats, Use,
};
use crate::stream::races::NOW;
use crate::stream::{Faults, InFlight, Stream, StreamPool, Suspect, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// An open device.
///
/// CUDA devices, real and emulated, allocate through the caching allocator. The host allocates from its
/// driver on every request, and its only statistic is the bytes in use.
///
/// Lock order: a device's allocator comes before its streams' spare events and before drivers; never take the
/// allocator's lock while holding one of those. Blocks must not be dropped on a driver's worker threads: the
/// allocator may wait for those threads while it is locked.
pub struct Device {
    id: DeviceId,
    driver: Arc<dyn Driver>,
    streams: StreamPool,
    default_stream: Arc<Stream>,
    memory: Memory,
    /// Bytes in use after the latest request or release, and the bytes above which the device counts as
    /// nearly full.
    in_use: AtomicU64,
    roomy: AtomicU64,
    faults: Faults,
    in_flight: InFlight,
    plans: Mutex<PlanCache>,
    /// The bytes of tensors that gradient records keep.
    recorded: AtomicU64,
    /// Bytes of live tensors, including views, without their elements.
    tensors: AtomicUsize,
    /// The byte that overwrites memory whenever it is allocated.
    poison: OnceLock<u8>,
}

enum Memory {
    Cached(Box<Mutex<Allocator>>),
    Plain(Plain),
}

/// Memory that is allocated from the driver on every request.
struct Plain {
    in_use: AtomicU64,
    /// Limit on the bytes in use; `u64::MAX` for none.
    limit: AtomicU64,
}

/// Host requests from this size on are checked against free system memory. The system would grant them and
/// kill the process when it touches the memory.
const LARGE_HOST_REQUEST: u64 = 64 << 20;

/// Owned memory of one device. Dropping it returns it at once to the cache of its stream; it becomes free
/// after the last use on each other stream noted with [`Block::used_on`].
///
/// Invariant: `ptr` is aligned to 512 bytes on CUDA devices and valid for `bytes` bytes; it is null exactly
/// when `bytes` is 0.
pub struct Block {
    device: Arc<Device>,
    stream: Arc<Stream>,
    ptr: Ptr,
    bytes: u64,
    id: BlockId,
    freed_at: u64,
    uses: Mutex<SmallVec<[Use; 1]>>,
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
            recorded: AtomicU64::new(0),
            tensors: AtomicUsize::new(0),
            poison: OnceLock::new(),
        };
        device.note_limit();
        Arc::new(device)
    }

    /// The device's id.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// The device's driver.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The device's properties.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// The default stream, used unless another stream is current.
    pub fn default_stream(&self) -> &Arc<Stream> {
        &self.default_stream
    }

    /// A side stream of a priority, from a pool of 32 per priority in rotation. 0 is low, -1 high. Lower
    /// numbers are clamped to the driver's range; numbers above 0 are an error.
    pub fn stream(&self, priority: i64) -> Result<Arc<Stream>> {
        self.streams.next(priority)
    }

    /// Wraps a stream created elsewhere. Source: `torch.cuda.ExternalStream`.
    pub fn external_stream(&self, handle: StreamHandle) -> Arc<Stream> {
        self.streams.external(handle)
    }

    /// The stream with this [`Stream::id`].
    pub fn stream_by_id(&self, id: u32) -> Option<Arc<Stream>> {
        self.streams.get(id)
    }

    /// Every stream created so far, the default stream first.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.all()
    }

    /// Allocates memory for work on `stream`; a stream of another device counts as the default stream. `span`
    /// is the requesting source. The contents are arbitrary; 0 bytes allocate nothing. Errors: out of memory,
    /// with the statistics. Sessions call [`Runtime`](crate::plan::Runtime) instead, which releases
    /// unreachable memory before a request fails.
    pub fn alloc(self: &Arc<Self>, bytes: u64, stream: &Arc<Stream>, span: Span) -> Result<Block> {
        self.alloc_with(bytes, stream, span, Effort::Last)
    }

    /// [`Device::alloc`] with limited effort before it fails. The error of a limited attempt has no details.
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
        reclaim::allocated(bytes);
        let owner = match owner {
            None => stream.clone(),
            Some(owner) => {
                uses.push(Use::now(stream));
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

    /// True when allocating `more` bytes would leave less than a quarter of the available memory.
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

    /// Updates the nearly-full threshold after a limit changed.
    fn note_limit(&self) {
        let limit = match &self.memory {
            Memory::Cached(allocator) => {
                self.driver.properties().total_memory.min(allocator.lock().most_reserved())
            }
            Memory::Plain(plain) => plain.limit.load(Ordering::Relaxed),
        };
        self.roomy.store(limit / 4 * 3, Ordering::Relaxed);
    }

    /// Overwrites memory with this byte on every later allocation. A second call has no effect.
    pub(super) fn set_poison(&self, byte: u8) {
        let _ = self.poison.set(byte);
    }

    /// Overwrites memory from the caching allocator, as work on its stream, and returns true if it did.
    /// During a capture it does nothing, because the write would become part of the graph.
    fn poison(&self, ptr: Ptr, bytes: u64, stream: &Stream) -> Result<bool> {
        let (Some(&byte), Some(allocator)) = (self.poison.get(), self.allocator()) else { return Ok(false) };
        if bytes == 0 || allocator.lock().is_capturing() {
            return Ok(false);
        }
        self.driver.fill(ptr, u64::from(byte), 1, bytes, stream.handle())?;
        Ok(true)
    }

    /// Allocates host memory within the limit.
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

    /// Limits the bytes reserved on a device, or in use on the host. A request beyond the limit is an error
    /// of kind `Limit`. Existing memory stays.
    pub fn set_memory_limit(&self, limit: Option<u64>) {
        match &self.memory {
            Memory::Cached(allocator) => allocator.lock().set_cap(limit),
            Memory::Plain(plain) => plain.limit.store(limit.unwrap_or(u64::MAX), Ordering::Relaxed),
        }
        self.note_limit();
    }

    /// Returns unused cached memory to the driver; waits for the device if necessary.
    pub fn empty_cache(&self) -> Result<()> {
        self.allocator().map_or(Ok(()), |a| a.lock().empty_cache())
    }

    /// Returns unused cached memory before a driver's own memory request fails. Also works during a capture,
    /// whose pool is kept.
    pub fn give_back_unused(&self) -> Result<()> {
        self.driver.trim();
        self.allocator().map_or(Ok(()), |a| a.lock().give_back_unused())
    }

    /// The statistics of `torch.cuda.memory_stats`; zeros for the host.
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

    /// The source positions whose live tensors hold the most memory, largest first: position, bytes, blocks.
    pub fn holders(&self, count: usize) -> Vec<(Span, u64, usize)> {
        self.allocator().map(|a| a.lock().holders(count)).unwrap_or_default()
    }

    /// Segments and blocks, by address: `torch.cuda.memory_snapshot`.
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        self.allocator().map(|a| a.lock().snapshot()).unwrap_or_default()
    }

    /// Records the last `limit` allocator steps from now on; 0 stops recording and clears the history.
    pub fn record_history(&self, limit: usize) {
        if let Some(allocator) = self.allocator() {
            allocator.lock().record_history(limit);
        }
    }

    /// The segments and recorded steps at one moment, for
    /// [`Machine::snapshot_pickle`](crate::device::Machine::snapshot_pickle).
    pub fn memory(&self) -> DeviceMemory {
        let take = |a: &Mutex<Allocator>| {
            let allocator = a.lock();
            DeviceMemory { segments: allocator.snapshot(), trace: allocator.history() }
        };
        self.allocator().map(take).unwrap_or_default()
    }

    /// Resets every peak to the current value.
    pub fn reset_peak(&self) {
        if let Some(allocator) = self.allocator() {
            allocator.lock().reset_peak();
        }
    }

    /// Resets every total to 0.
    pub fn reset_accumulated(&self) {
        if let Some(allocator) = self.allocator() {
            allocator.lock().reset_accumulated();
        }
    }

    /// Limits this process to a fraction of the device's memory, from 0 to 1.
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        // Query the driver without the lock; the total never changes.
        let total = self.driver.memory_info()?.1;
        self.allocator().map_or(Ok(()), |a| a.lock().set_fraction(fraction, total))?;
        self.note_limit();
        Ok(())
    }

    /// The fraction that was set; 1 by default.
    pub fn fraction(&self) -> f64 {
        self.allocator().map_or(1.0, |a| a.lock().fraction())
    }

    /// Free and total bytes as the driver reports them: `torch.cuda.mem_get_info`.
    pub fn mem_get_info(&self) -> Result<(u64, u64)> {
        self.driver.memory_info()
    }

    /// Waits for every stream of the device. The caller must tell the race checker.
    pub fn synchronize(&self) -> Result<()> {
        self.driver.synchronize()
    }

    /// A tag for a launch that can report a fault; never 0. The last few thousand are remembered.
    pub fn tag_for(&self, suspect: Suspect) -> u32 {
        self.faults.tag(suspect)
    }

    /// A tag for a launch that a graph repeats; it is remembered forever.
    pub fn kept_tag_for(&self, suspect: Suspect) -> u32 {
        self.faults.keep(suspect)
    }

    /// Notes a launch or copy, so that a device failure before the next wait is attributed to it.
    pub fn note_launch(&self, stream: &Stream, name: &'static str, span: Span) -> Ticket {
        self.in_flight.launch(stream, name, span)
    }

    /// Notes that everything on a stream, or with `None` on every stream, has been waited for.
    pub fn note_waited(&self, stream: Option<&Stream>) {
        match stream {
            Some(stream) => self.in_flight.mark_complete(stream),
            None => self.in_flight.mark_all_complete(),
        }
    }

    /// Marks a launch as lost because its driver refused it.
    pub fn lose(&self, ticket: Ticket) {
        self.in_flight.mark_lost(ticket);
    }

    /// The number of the newest launch.
    pub fn newest_launch(&self) -> u64 {
        self.in_flight.newest()
    }

    /// The number of launches after launch `after` that no wait has covered.
    pub fn launches_left(&self, after: u64) -> u64 {
        self.in_flight.left(after)
    }

    /// Marks as lost the work launched on a stream after launch `after` and not waited for, including its
    /// copies to host memory: the driver has discarded this work.
    pub fn give_up(&self, stream: &Stream, after: u64, host: Option<&Device>) {
        let work = self.in_flight.give_up(stream, after);
        if let Some(host) = host {
            host.in_flight.give_up_copies(&work);
        }
    }

    /// The operation and source of a ticket's launch, if it was discarded and is remembered.
    pub fn given_up(&self, ticket: Ticket) -> Option<(&'static str, Span)> {
        self.in_flight.given_up(ticket)
    }

    /// Marks everything in flight as lost, because work it waited for ended without results.
    pub fn lose_in_flight(&self) {
        self.in_flight.mark_all_lost();
    }

    /// True until a wait has covered that launch or it was lost.
    pub fn is_in_flight(&self, ticket: Ticket) -> bool {
        self.in_flight.is_in_flight(ticket)
    }

    /// True when the device failed while that launch was in flight: its results do not exist.
    #[inline]
    pub fn is_lost(&self, ticket: Ticket) -> bool {
        self.in_flight.is_lost(ticket)
    }

    /// Processes the error of a wait. If the device failed, everything in flight is lost, and the error shows
    /// the lines that launched it.
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

    /// Processes the error of a call that queues work or allocates. Only a permanent device failure loses the
    /// work in flight.
    pub fn blame_if_sticky(&self, e: Error) -> Error {
        if error::is_sticky(&e) { self.blame(e) } else { e }
    }

    /// Counts bytes that a tensor whose storage is on this device takes in addition to its elements.
    #[inline]
    pub(crate) fn begin_tensor(&self, bytes: usize) {
        self.tensors.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts the end of these bytes.
    #[inline]
    pub(crate) fn end_tensor(&self, bytes: usize) {
        self.tensors.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes that live tensors, including views, take in addition to their elements.
    pub(crate) fn tensors(&self) -> usize {
        self.tensors.load(Ordering::Relaxed)
    }

    /// Adds bytes that gradient records now keep.
    pub(crate) fn keep_recorded(&self, bytes: u64) {
        self.recorded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that gradient records no longer keep.
    pub(crate) fn release_recorded(&self, bytes: u64) {
        self.recorded.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The error of a launch that found no scratch memory of this many bytes, which drivers report without details.
    pub(crate) fn lacks_scratch(&self, error: Error, bytes: u64) -> Error {
        match self.allocator().filter(|_| error::lacks_details(&error)) {
            Some(allocator) => self.blame_records(allocator.lock().out_of_memory(bytes)),
            None => error,
        }
    }

    /// Adds the memory that gradient records keep to the error of a request.
    pub(crate) fn blame_records(&self, error: Error) -> Error {
        let bytes = self.recorded.load(Ordering::Relaxed);
        if bytes == 0 || !error::is_shortage(&error) {
            return error;
        }
        let message = format!("{}; records of gradients keep {}", error.message(), bytes_text(bytes));
        error.with_message(message).help(
            "run `backward()` before more is recorded, record less with `checkpoint` or `no_grad()`, or ask for less",
        )
    }

    /// Called after a wait. Raises the fault that kernels have reported since the last call, at the source
    /// that launched them.
    pub fn check_faults(&self) -> Result<()> {
        let held = self.faults.take_held();
        match held.or_else(|| self.driver.take_fault()) {
            None => Ok(()),
            Some(fault) => Err(self.faults.error(fault)),
        }
    }

    /// The newest launch that may report a fault, for [`Device::forget_faults`].
    pub fn newest_tag(&self) -> u32 {
        self.faults.newest()
    }

    /// Drops a fault of a launch after tag `after`. The inputs of that launch were discarded, so it tested
    /// memory that was never written.
    pub fn forget_faults(&self, after: u32) {
        if let Some(fault) = self.driver.take_fault() {
            self.faults.hold_until(fault, after);
        }
    }

    /// The plan of a Fourier transform, cached or new.
    pub fn fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        self.plans.lock().get(spec, |spec| self.driver.fft_plan(spec))
    }

    /// The cached plans of this device.
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
    fn give_back(&self, ptr: Ptr, bytes: u64, id: BlockId, uses: &[Use]) {
        match &self.memory {
            _ if ptr == 0 => {}
            Memory::Cached(allocator) => {
                let mut allocator = allocator.lock();
                allocator.free(id, uses);
                self.note_in_use(&allocator);
            }
            Memory::Plain(plain) => {
                // Copies to and from pageable memory complete before the call that queued them returns, so
                // nothing uses the memory any more.
                self.driver.free(ptr, bytes);
                plain.in_use.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }
}

/// Adds the size to the host driver's out-of-memory error.
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

    /// The requested size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device that owns the memory.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The stream that owns the block. Usually the stream it was allocated on; if the request could not be
    /// served otherwise, the stream that freed the memory.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The epoch of the stream's newest work when the stream last freed memory: that work may still use this
    /// block. For [`Checker::reuse`](crate::stream::races::Checker::reuse). `None` if the stream has freed
    /// nothing. It does not depend on whether this very block was in use before: that depends on timing, and
    /// race verdicts must not. [`NOW`] if the stream overwrites the block first.
    pub fn freed_at(&self) -> Option<u64> {
        (self.freed_at != 0).then_some(self.freed_at)
    }

    /// The streams whose work may use the block: its owner and those of [`Block::used_on`].
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        let uses = self.uses.lock();
        std::iter::once(&self.stream).chain(uses.iter().map(|one| &one.stream)).cloned().collect()
    }

    /// Notes that work which is being queued on a stream, of this device or a peer, uses the block. After the drop the
    /// block is reused only when that stream has passed everything it has queued by then, or when the block's own
    /// stream waits for this work. Not needed for the stream it was allocated on, nor for host memory.
    pub fn used_on(&self, stream: &Arc<Stream>) {
        self.note_use(stream, Use::now);
    }

    /// Notes that other code will queue work on a stream that uses the block.
    pub fn lent_to(&self, stream: &Arc<Stream>) {
        self.note_use(stream, Use::unknown);
    }

    #[inline]
    fn note_use(&self, stream: &Arc<Stream>, made: fn(&Arc<Stream>) -> Use) {
        if Arc::ptr_eq(stream, &self.stream) || **stream == *self.stream || self.id == NO_BLOCK {
            return;
        }
        let (mut uses, new) = (self.uses.lock(), made(stream));
        match uses.iter_mut().find(|one| one.stream == *stream) {
            Some(known) => known.epoch = known.epoch.max(new.epoch),
            None => uses.push(new),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        reclaim::freed(self.bytes);
        self.device.give_back(self.ptr, self.bytes, self.id, self.uses.get_mut());
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x} of {}", self.bytes, self.ptr, self.device.id)
    }
}
