//! Queues one launch on a stream: its kernels, and the scratch memory between them.

use super::blas;
use super::context::check;
use super::driver::CudaDriver;
use super::error;
use super::fault::FaultSlot;
use super::library::{self, Loaded};
use super::ready::{self, InterpretMode};
use super::scratch::Lease;
use super::tiles;
use crate::base::{Error, Result};
use crate::driver::StreamHandle;
use crate::driver::error::driver_failed;
use crate::kernel::cuda::interpret::Encoded;
use crate::kernel::cuda::{MAX_WORDS, Planned, Product, Queue as _, Tiles};
use crate::kernel::fft::OwnPlan;
use crate::kernel::{Addresses, Launch, Ptr, ThinProduct, TiledProduct, cuda};
use cudarc::driver::sys::{self, CUstream};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The queue to which a program kind adds its kernels.
///
/// Invariant: the driver's context is current.
pub(super) struct Queue<'a> {
    driver: &'a CudaDriver,
    stream: StreamHandle,
    /// Whether a graph repeats this launch.
    pub repeated: bool,
    /// Whether one of its kernels, or work before it, is already in the stream.
    pub queued: bool,
    /// The kernels of the program being queued.
    loaded: Option<Arc<Loaded>>,
    lease: Option<Lease<'a>>,
}

impl<'a> Queue<'a> {
    pub fn new(driver: &'a CudaDriver, stream: StreamHandle) -> Queue<'a> {
        Queue { driver, stream, repeated: false, queued: false, loaded: None, lease: None }
    }

    /// Runs `work` with these kernels.
    pub fn with<T>(&mut self, loaded: Arc<Loaded>, work: impl FnOnce(&mut Queue<'a>) -> T) -> T {
        let outer = self.loaded.replace(loaded);
        let result = work(self);
        self.loaded = outer;
        result
    }

    /// Queues one of the kernels, with `shared` bytes of shared memory besides its own.
    fn start(
        &mut self,
        entry: usize,
        grid: (u32, u32, u32),
        block: u32,
        shared: u32,
        words: &[u64],
    ) -> Result<()> {
        if words.len() > MAX_WORDS {
            return Err(error::program_too_large(words.len()));
        }
        let function = self.loaded.as_ref().and_then(|loaded| loaded.functions.get(entry).copied());
        let Some(function) = function else { return Err(no_kernel()) };
        self.queued = true;
        let mut params = [words.as_ptr() as *mut std::ffi::c_void];
        // SAFETY: the kernel takes one parameter, a struct with as many words as its source declares, and its
        // kind passes exactly that number; the driver copies it before it returns.
        let result = unsafe {
            sys::cuLaunchKernel(
                function,
                grid.0,
                grid.1,
                grid.2,
                block,
                1,
                1,
                shared,
                self.stream as CUstream,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check(result, "cuLaunchKernel")
    }

    /// Queues a launch by ready-made kernels: those of its kind for any such launch, or the interpreter. False if that is
    /// not possible.
    fn interpreted(&mut self, launch: &Launch) -> Result<bool> {
        if ready::interpret_mode() == InterpretMode::Never {
            return Ok(false);
        }
        let library = &self.driver.library;
        let done = self.by_general(launch)?
            || match library.ready() {
                Some(ready) => self.with(ready, |queue| launch.program.kind.interpret(launch, queue))?,
                None => false,
            };
        library.counts.interpreted.fetch_add(u64::from(done), Relaxed);
        Ok(done)
    }

    /// Queues a launch by the general kernels that ship for its form; false if there are none.
    pub fn by_general(&mut self, launch: &Launch) -> Result<bool> {
        let kind = &launch.program.kind;
        let Some(signature) = kind.general(launch) else { return Ok(false) };
        let Some(loaded) = self.driver.library.shipped(&launch.program, signature) else { return Ok(false) };
        self.with(loaded, |queue| kind.enqueue(launch, signature, queue))?;
        Ok(true)
    }

    /// Queues a product without outer dimensions.
    fn multiply_batch(&mut self, product: &Product) -> Result<()> {
        if let Some(launch) = ThinProduct::launch(product) {
            return self.launch(&launch);
        }
        if blas::is_missing() {
            return self.launch(&TiledProduct::launch(product));
        }
        self.driver.with_blas(self.stream, |blas| blas.multiply(product))
    }
}

/// A batch of at least this many bytes takes longer to multiply than to launch.
const LONG: usize = 1 << 24;

impl cuda::Queue for Queue<'_> {
    fn run_grid(&mut self, entry: usize, grid: (u32, u32, u32), block: u32, words: &[u64]) -> Result<()> {
        self.start(entry, grid, block, 0, words)
    }

    fn interpret(&mut self, program: &Encoded) -> Result<bool> {
        if program.varies && !self.driver.library.ready_is_exact() {
            return Ok(false);
        }
        if let Some(translated) = self.driver.library.translated(program)? {
            let (blocks, threads) = program.translated_grid();
            let words = program.translated_words();
            self.with(translated, |queue| queue.start(0, (blocks, 1, 1), threads, 0, words))?;
            return Ok(true);
        }
        let (grid, block, shared) =
            ((program.blocks as u32, 1, 1), program.threads as u32, program.shared as u32);
        if program.complex {
            let Some(complex) = self.driver.library.complex() else { return Ok(false) };
            self.with(complex, |queue| queue.start(0, grid, block, shared, &program.words))?;
        } else {
            self.start(ready::INTERPRET, grid, block, shared, &program.words)?;
        }
        Ok(true)
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let kind = &*launch.program.kind;
        if kind.is_empty(launch) {
            return Ok(());
        }
        self.driver.enter()?;
        let library = &self.driver.library;
        library.counts.launches.fetch_add(1, Relaxed);
        let signature = kind.signature(launch);
        if matches!(ready::interpret_mode(), InterpretMode::Always | InterpretMode::Translated)
            && self.interpreted(launch)?
        {
            return Ok(());
        }
        let found = library.find(launch, signature);
        if let Ok(Some(loaded)) = found {
            return self.with(loaded, |queue| kind.enqueue(launch, signature, queue));
        }
        if self.interpreted(launch)? {
            // A failure, such as a missing compiler, is permanent: the program is interpreted from now on.
            if found.is_ok() {
                library.compile_later(launch, signature);
            }
            return Ok(());
        }
        let loaded = library.get(launch, signature)?;
        if !self.queued {
            self.driver.mark_begin(self.stream)?;
        }
        self.with(loaded, |queue| kind.enqueue(launch, signature, queue))
    }

    fn multiply(&mut self, product: &Product) -> Result<()> {
        if product.outer.is_empty() {
            return self.multiply_batch(product);
        }
        let thin = product.batch_bytes() >= LONG
            && product.batches().next().is_some_and(|batch| ThinProduct::launch(&batch).is_some());
        if !thin
            && !blas::is_missing()
            && let Some((launch, place)) = Addresses::launch(product, |bytes| self.scratch(bytes))?
        {
            self.launch(&launch)?;
            return self.driver.with_blas(self.stream, |blas| blas.multiply_at(product, place));
        }
        product.batches().try_for_each(|batch| self.multiply_batch(&batch))
    }

    fn run_tiles(&mut self, tiles: &Tiles, words: &[u64]) -> Result<()> {
        let mut all: SmallVec<[u64; 128]> = SmallVec::new();
        for (operand, extents, lines) in &tiles.operands {
            all.extend_from_slice(&tiles::tensor_map(operand, *extents, *lines)?);
        }
        all.extend_from_slice(words);
        if let Some(&function) = self.loaded.as_ref().and_then(|loaded| loaded.functions.first()) {
            library::allow_shared(function, tiles.shared)?;
        }
        let most = self.driver.properties.multi_processor_count / tiles.cluster;
        let clusters = tiles.clusters.min(most).max(1);
        self.start(0, (clusters * tiles.cluster, 1, 1), tiles.block, tiles.shared, &all)
    }

    fn transform(&mut self, transform: &Planned<'_>) -> Result<()> {
        if let Some(own) = transform.plan.as_any().downcast_ref::<OwnPlan>() {
            return self.launch(&own.launch(transform));
        }
        self.driver.queue_fft(transform, self.stream)
    }

    fn clear(&mut self, ptr: Ptr, bytes: u64) -> Result<()> {
        self.driver.queue_fill(ptr, 0, 1, bytes, self.stream)
    }

    fn scratch(&mut self, bytes: u64) -> Result<Ptr> {
        let (driver, stream) = (self.driver, self.stream as CUstream);
        self.lease.get_or_insert_with(|| driver.scratch.lease(stream)).take(bytes)
    }

    fn fault_record(&self) -> u64 {
        self.driver.fault.address()
    }

    fn fault_stamp(&self, tag: u32) -> u64 {
        match self.repeated {
            true => FaultSlot::graph_stamp(tag),
            false => self.driver.fault.stamp(tag),
        }
    }
}

#[cold]
fn no_kernel() -> Error {
    driver_failed("cuda", "cuLaunchKernel", "the program has no such kernel")
}
