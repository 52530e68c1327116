//! One CUDA device.

use super::background;
use super::blas::{self, Blas};
use super::compilers;
use super::context::{Context, check};
use super::fault::FaultSlot;
use super::fft;
use super::graph::Graphs;
use super::library::{Library, Loaded};
use super::mapping::Mapping;
use super::memory::Peers;
use super::nvrtc::Arch;
use super::probe;
use super::queue::Queue;
use super::ready::{self, InterpretMode};
use super::scratch::Scratch;
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::graph::{GraphHandle, Step};
use crate::driver::{Compiled, CopyKind, Driver, EventHandle, KernelStats, Properties, StreamHandle};
use crate::kernel::cuda::{Queue as _, basics};
use crate::kernel::fft::{FftPlan, FftSpec};
use crate::kernel::{self, Fault, Launch, Ptr};
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// A device and its primary context.
///
/// Invariant: the context is retained as long as this value lives, and every handle in it belongs to that
/// context. Each device has at most one.
pub struct CudaDriver {
    pub(super) index: u32,
    pub(super) device: CUdevice,
    pub(super) context: Context,
    pub(super) properties: Properties,
    pub(super) streams: Mutex<Vec<u64>>,
    pub(super) peers: Mutex<Peers>,
    pub(super) mapping: Mapping,
    pub(super) scratch: Scratch,
    pub(super) fault: FaultSlot,
    pub(super) library: Arc<Library>,
    pub(super) blas: Arc<Mutex<Option<Blas>>>,
    pub(super) graphs: Mutex<Graphs>,
    /// Held while a graph is built, and while the host waits for the whole context.
    pub(super) capturing: Mutex<()>,
    /// The kernels of `kernels/device.cu`.
    own: OnceLock<Arc<Loaded>>,
}

thread_local! {
    /// While a profile is open: the event that marks the beginning of the work this thread queues next.
    static BEGINS: Cell<Option<EventHandle>> = const { Cell::new(None) };
}

/// Returns the driver of a visible device. The first call creates it with its primary context.
pub fn open(index: u32) -> Result<Arc<dyn Driver>> {
    Ok(open_device(index)?)
}

/// The drivers of the process.
static OPEN: Mutex<Option<HashMap<u32, Weak<CudaDriver>>>> = Mutex::new(None);

/// The matrix products that programs of this process contain: none, `f32` only, or halves too.
static MULTIPLIES: AtomicU8 = AtomicU8::new(0);
const HALVES: u8 = 2;

/// Whether programs of the process contain Fourier transforms.
static TRANSFORMS: AtomicBool = AtomicBool::new(false);

pub(super) fn open_device(index: u32) -> Result<Arc<CudaDriver>> {
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    if let Some(driver) = open.get(&index).and_then(Weak::upgrade) {
        return Ok(driver);
    }
    let driver = Arc::new(CudaDriver::new(index)?);
    open.insert(index, Arc::downgrade(&driver));
    if MULTIPLIES.load(Relaxed) > 0 {
        driver.expect_products();
    }
    if TRANSFORMS.load(Relaxed) {
        driver.expect_transforms();
    }
    Ok(driver)
}

/// Loads cuBLAS on all devices, including ones opened later.
pub(super) fn expect_products(halves: bool) {
    if MULTIPLIES.fetch_max(if halves { HALVES } else { 1 }, Relaxed) > 0 {
        return;
    }
    open_devices().iter().for_each(|driver| driver.expect_products());
}

/// Loads cuFFT on all devices, including ones opened later.
pub(super) fn expect_transforms() {
    if !TRANSFORMS.swap(true, Relaxed) {
        open_devices().iter().for_each(|driver| driver.expect_transforms());
    }
}

/// The drivers of the process, for use without the lock: dropping a driver waits for background work.
fn open_devices() -> Vec<Arc<CudaDriver>> {
    OPEN.lock().iter().flat_map(HashMap::values).filter_map(Weak::upgrade).collect()
}

/// The CUDA driver's handle of a visible device.
pub(super) fn device_handle(index: u32) -> Result<CUdevice> {
    let (count, _) = probe::driver()?;
    if index >= count {
        return Err(crate::driver::error::bad_device(i64::from(index), count as usize));
    }
    let mut device = 0;
    // SAFETY: the driver is loaded, and the index is below the count.
    check(unsafe { sys::cuDeviceGet(&mut device, index as i32) }, "cuDeviceGet")?;
    Ok(device)
}

impl CudaDriver {
    fn new(index: u32) -> Result<CudaDriver> {
        let device = device_handle(index)?;
        let context = std::thread::scope(|scope| {
            if compilers::are_used() {
                compilers::start_early(background::COMPILERS.threads());
            } else {
                let warm_up = std::thread::Builder::new().spawn_scoped(scope, background::warm_up);
                if warm_up.is_err() {
                    background::warm_up();
                }
            }
            if MULTIPLIES.load(Relaxed) > 0 {
                // Only opens the file.
                let _ = std::thread::Builder::new().spawn_scoped(scope, blas::is_missing);
            }
            if TRANSFORMS.load(Relaxed) {
                let _ = std::thread::Builder::new().spawn_scoped(scope, fft::is_missing);
            }
            Context::retain(device)
        })?;
        context.enter()?;
        let properties = describe(device)?;
        let arch = Arch { major: properties.major, minor: properties.minor };
        Ok(CudaDriver {
            index,
            device,
            context,
            properties,
            streams: Mutex::default(),
            peers: Mutex::default(),
            mapping: Mapping::new(device)?,
            scratch: Scratch::new(context, device)?,
            fault: FaultSlot::new()?,
            library: Arc::new(Library::new(context, arch)),
            blas: Arc::default(),
            graphs: Mutex::default(),
            capturing: Mutex::default(),
            own: OnceLock::new(),
        })
    }

    /// Loads cuBLAS on a background thread.
    fn expect_products(&self) {
        let (library, context, blas) = (self.library.clone(), self.context, self.blas.clone());
        let job = move || {
            if !library.is_closed() {
                let dtype = if MULTIPLIES.load(Relaxed) == HALVES { Dtype::BF16 } else { Dtype::F32 };
                // The first product reports the same error.
                let _ = blas::warm_up(&blas, context, dtype);
            }
        };
        // Ahead of jobs of interpreted programs.
        background::COMPILERS.run(Arc::new(AtomicU64::new(u64::MAX)), Box::new(job));
    }

    /// Loads cuFFT on a background thread.
    fn expect_transforms(&self) {
        let (library, context) = (self.library.clone(), self.context);
        let job = move || {
            if !library.is_closed() {
                // The first transform reports the same error.
                let _ = fft::warm_up(context);
            }
        };
        background::COMPILERS.run(Arc::new(AtomicU64::new(u64::MAX)), Box::new(job));
    }

    /// Makes the device's context current on this thread.
    #[inline]
    pub(super) fn enter(&self) -> Result<()> {
        self.context.enter()
    }

    /// Records the event that marks the beginning of this thread's work, if one is set.
    pub(super) fn mark_begin(&self, stream: StreamHandle) -> Result<()> {
        BEGINS.get().map_or(Ok(()), |event| self.event_record(event, stream))
    }

    /// Compiles and loads the kernels of a launch, and allocates the memory that launches on its stream share.
    pub(super) fn get_ready(&self, launch: &Launch, stream: StreamHandle) -> Result<()> {
        let kind = &*launch.program.kind;
        if kind.multiplies(launch) && !blas::is_missing() {
            self.with_blas(stream, |_| Ok(()))?;
        }
        kind.parts(launch).iter().try_for_each(|part| self.get_ready(part, stream))?;
        match self.library.get(launch, kind.signature(launch)) {
            // The launch itself finds out whether it can be interpreted.
            Err(_) if ready::interpret_mode() != InterpretMode::Never && self.library.ready().is_some() => {
                Ok(())
            }
            got => got.map(drop),
        }
    }

    /// Queues a pause.
    pub(super) fn queue_sleep(&self, cycles: u64, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        self.run_own(1, (1, 1), &[cycles, 0, 0, 0], stream)
    }

    pub(super) fn own_kernels(&self) -> Result<&Arc<Loaded>> {
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        if let Some(ready) = self.library.ready() {
            return Ok(self.own.get_or_init(|| ready));
        }
        let text = format!("{}\n{}", basics(), include_str!("../../../kernels/device.cu"));
        let own = self.library.compile(&text, &ready::ENTRIES[..2], "device")?;
        Ok(self.own.get_or_init(|| own))
    }

    /// Fills with a 64-bit pattern.
    pub(super) fn fill_pairs(&self, dst: Ptr, pattern: u64, count: u64, stream: StreamHandle) -> Result<()> {
        let grid = count.div_ceil(1024).min(1 << 16) as u32;
        self.run_own(0, (grid, 256), &[dst, pattern, count, 0], stream)
    }

    /// Queues one of the kernels of `kernels/device.cu`.
    fn run_own(
        &self,
        entry: usize,
        (grid, block): (u32, u32),
        words: &[u64],
        stream: StreamHandle,
    ) -> Result<()> {
        let own = self.own_kernels()?.clone();
        Queue::new(self, stream).with(own, |queue| queue.run(entry, grid, block, words))
    }
}

fn describe(device: CUdevice) -> Result<Properties> {
    use CUdevice_attribute::*;
    let attribute = |which| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the device exists; the call writes one integer.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }, "cuDeviceGetAttribute")?;
        Ok(value.unsigned_abs())
    };
    let mut name = [0; 256];
    let mut total = 0;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the device exists and its context is current; the buffer has room for the name and its zero
    // byte.
    let name = unsafe {
        check(sys::cuDeviceGetName(name.as_mut_ptr(), 255, device), "cuDeviceGetName")?;
        check(sys::cuDeviceTotalMem_v2(&mut total, device), "cuDeviceTotalMem")?;
        check(sys::cuDeviceGetUuid_v2(&mut uuid, device), "cuDeviceGetUuid")?;
        check(sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest), "cuCtxGetStreamPriorityRange")?;
        std::ffi::CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let mut text = String::with_capacity(36);
    for (i, byte) in uuid.bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", *byte as u8));
    }
    Ok(Properties {
        name,
        major: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        minor: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        total_memory: total as u64,
        multi_processor_count: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_cache_size: u64::from(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        warp_size: attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        max_threads_per_multi_processor: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        uuid: text,
        greatest_priority: greatest,
    })
}

impl Driver for CudaDriver {
    fn backend(&self) -> &'static str {
        "cuda"
    }
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn memory_info(&self) -> Result<(u64, u64)> {
        self.memory_free_total()
    }

    fn alloc(&self, bytes: u64) -> Result<Ptr> {
        self.take_memory(bytes)
    }
    fn free(&self, ptr: Ptr, _bytes: u64) {
        self.give_memory(ptr);
    }
    fn map_unit(&self) -> Option<u64> {
        self.mapping.unit()
    }
    fn reserve(&self, bytes: u64) -> Result<Ptr> {
        self.reserve_addresses(bytes)
    }
    fn unreserve(&self, ptr: Ptr, bytes: u64) {
        self.free_addresses(ptr, bytes);
    }
    fn map(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        self.map_memory(ptr, bytes)
    }
    fn unmap(&self, ptr: Ptr, _bytes: u64) {
        self.unmap_memory(ptr);
    }
    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr> {
        self.take_pinned(bytes)
    }
    fn pinned_free(&self, ptr: Ptr, _bytes: u64) {
        self.give_pinned(ptr);
    }

    fn stream(&self, priority: i32) -> Result<StreamHandle> {
        self.make_stream(priority)
    }
    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        self.stream_done(stream)
    }
    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.stream_wait(stream)
    }
    fn synchronize(&self) -> Result<()> {
        self.wait_all()
    }

    fn event(&self, timing: bool) -> Result<EventHandle> {
        self.make_event(timing)
    }
    fn event_free(&self, event: EventHandle) {
        self.drop_event(event);
    }
    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.record(event, stream)
    }
    fn event_wait(&self, stream: StreamHandle, event: EventHandle, owner: &dyn Driver) -> Result<()> {
        debug_assert_eq!(owner.backend(), self.backend());
        self.wait_on_stream(stream, event)
    }
    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.event_done(event)
    }
    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.event_wait_host(event)
    }
    fn event_interprocess(&self) -> Result<EventHandle> {
        self.make_shared_event()
    }
    fn event_export(&self, event: EventHandle) -> Result<[u8; 64]> {
        self.export_event(event)
    }
    fn event_import(&self, handle: &[u8; 64]) -> Result<EventHandle> {
        self.import_event(handle)
    }
    fn event_elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64> {
        self.elapsed(start, end)
    }

    fn copy(&self, dst: Ptr, src: Ptr, bytes: u64, kind: CopyKind, stream: StreamHandle) -> Result<()> {
        self.queue_copy(dst, src, bytes, kind, stream)
    }
    fn fill(&self, dst: Ptr, pattern: u64, width: u32, count: u64, stream: StreamHandle) -> Result<()> {
        self.queue_fill(dst, pattern, width, count, stream)
    }
    fn launch(&self, launch: &Launch, stream: StreamHandle) -> Result<()> {
        Queue::new(self, stream).launch(launch)
    }
    fn prepared(&self, launch: &Launch) -> bool {
        // An empty launch has no signature and needs no kernel.
        if launch.shape.contains(&0) {
            return true;
        }
        let signature = launch.program.kind.signature(launch);
        match self.library.find(launch, signature) {
            Ok(Some(_)) => true,
            Ok(None) => {
                self.library.compile_later(launch, signature);
                false
            }
            Err(_) => false,
        }
    }
    fn make_ready(&self, launch: Option<&Launch>, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        let Some(launch) = launch.filter(|launch| !launch.program.kind.is_empty(launch)) else {
            return self.own_kernels().map(drop);
        };
        self.get_ready(launch, stream)
    }
    fn begins_at(&self, event: Option<EventHandle>) {
        BEGINS.set(event);
    }
    fn take_compiled(&self) -> Vec<Compiled> {
        self.library.take_compiled()
    }
    fn kernel_stats(&self) -> KernelStats {
        self.library.counts.stats()
    }
    fn takes_rows(&self, rows: usize, length: usize) -> bool {
        kernel::takes_rows(rows, length)
    }
    fn maps_products(&self) -> bool {
        // Our own products without cuBLAS add in another order.
        (self.properties.major, self.properties.minor) == (9, 0) && !blas::is_missing()
    }
    fn sleep(&self, cycles: u64, stream: StreamHandle) -> Result<()> {
        self.queue_sleep(cycles, stream)
    }

    fn graph(&self, steps: Arc<[Step]>) -> Result<GraphHandle> {
        self.make_graph(steps)
    }
    fn graph_launch(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()> {
        self.launch_graph(graph, stream)
    }
    fn graph_free(&self, graph: GraphHandle) {
        self.drop_graph(graph);
    }

    fn can_access_peer(&self, peer: u32) -> bool {
        self.reads_peer(peer)
    }
    fn reach_peer(&self, peer: u32) -> Result<bool> {
        Ok(self.peer(peer)?.direct)
    }
    fn take_fault(&self) -> Option<Fault> {
        self.fault.take()
    }
    fn fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        self.make_fft_plan(spec)
    }
    #[cfg(feature = "dist")]
    fn links(&self) -> Option<&dyn crate::driver::links::Links> {
        Some(self)
    }
    fn blas_handle(&self, stream: StreamHandle) -> Result<u64> {
        self.enter()?;
        self.with_blas(stream, |blas| Ok(blas.handle()))
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        self.library.close();
        // After a sticky error every call fails; the end of the process then cleans up.
        if self.wait_all().is_err() {
            return;
        }
        self.release_graphs();
        if let Some(blas) = self.blas.lock().take() {
            blas.release();
        }
        self.scratch.release();
        self.library.release();
        for &stream in self.streams.get_mut().iter() {
            // SAFETY: made by this driver, and idle.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream as sys::CUstream) };
        }
    }
}
