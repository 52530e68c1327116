//! Memory that kernels need between their passes.
//!
//! Each stream has a small region of its own that lives as long as the driver; larger requests are
//! allocated and freed in stream order by the driver's pool. Work on one stream runs in order, so a
//! region can be handed to the next launch while the last one still runs. The lock keeps two
//! threads from weaving the passes of their launches on one stream into each other.

use super::context::{Context, check};
use crate::base::Result;
use crate::kernel::Ptr;
use cudarc::driver::sys::{self, CUmemPool_attribute, CUresult, CUstream};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Bytes of a stream's own region: the partial results of a large reduction fit.
const REGION: u64 = 1 << 20;

/// Bytes the pool may keep for the next request.
const KEPT: u64 = 256 << 20;

/// One device's scratch memory.
pub(super) struct Scratch {
    context: Context,
    pool: sys::CUmemoryPool,
    regions: Mutex<FxHashMap<u64, Ptr>>,
}

// SAFETY: the pool is a handle of the driver's, good on every thread.
unsafe impl Send for Scratch {}
// SAFETY: as above; the regions are behind a lock.
unsafe impl Sync for Scratch {}

/// The scratch memory of one launch; large parts go back to the pool, in stream order, on drop.
pub(super) struct Lease<'a> {
    stream: CUstream,
    /// False on devices without memory pools, where large parts wait for the stream instead.
    pooled: bool,
    used: u64,
    regions: MutexGuard<'a, FxHashMap<u64, Ptr>>,
    large: SmallVec<[Ptr; 4]>,
}

impl Scratch {
    /// Needs the device's context current.
    pub fn new(context: Context, device: sys::CUdevice) -> Result<Scratch> {
        let mut pool = std::ptr::null_mut();
        let mut kept = KEPT;
        // SAFETY: the device exists; the attributes are a 32-bit and a 64-bit number.
        unsafe {
            let which = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
            let mut supported = 0;
            check(sys::cuDeviceGetAttribute(&mut supported, which, device), "cuDeviceGetAttribute")?;
            if supported == 0 {
                return Ok(Scratch { context, pool, regions: Mutex::default() });
            }
            check(sys::cuDeviceGetDefaultMemPool(&mut pool, device), "cuDeviceGetDefaultMemPool")?;
            let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let value = (&raw mut kept).cast();
            check(sys::cuMemPoolSetAttribute(pool, attribute, value), "cuMemPoolSetAttribute")?;
        }
        Ok(Scratch { context, pool, regions: Mutex::default() })
    }

    /// Gives what the pool keeps unused back to the device; false when the driver refuses.
    pub fn trim(&self) -> bool {
        if self.pool.is_null() || self.context.enter().is_err() {
            return false;
        }
        // SAFETY: the pool is the device's own.
        unsafe { sys::cuMemPoolTrimTo(self.pool, 0) == CUresult::CUDA_SUCCESS }
    }

    /// Opens a launch's scratch memory on a stream.
    pub fn lease(&self, stream: CUstream) -> Lease<'_> {
        let pooled = !self.pool.is_null();
        Lease { stream, pooled, used: 0, regions: self.regions.lock(), large: SmallVec::new() }
    }

    /// Frees the regions. The device must be idle.
    pub fn release(&self) {
        for (_, ptr) in self.regions.lock().drain() {
            // SAFETY: nothing runs any more, by the caller.
            let _ = unsafe { sys::cuMemFree_v2(ptr) };
        }
    }
}

impl Lease<'_> {
    /// Memory aligned to 256 bytes; live until the launch's last kernel has run.
    pub fn take(&mut self, bytes: u64) -> Result<Ptr> {
        let bytes = bytes.max(1).next_multiple_of(256);
        if self.used + bytes <= REGION {
            let base = match self.regions.get(&(self.stream as u64)) {
                Some(&base) => base,
                None => {
                    let mut base = 0;
                    // SAFETY: the context is current while a launch is queued.
                    check(unsafe { sys::cuMemAlloc_v2(&mut base, REGION as usize) }, "cuMemAlloc")?;
                    self.regions.insert(self.stream as u64, base);
                    base
                }
            };
            self.used += bytes;
            return Ok(base + self.used - bytes);
        }
        let mut ptr = 0;
        // SAFETY: as above; the memory is freed on the same stream, or after a wait for it.
        unsafe {
            match self.pooled {
                true => {
                    check(sys::cuMemAllocAsync(&mut ptr, bytes as usize, self.stream), "cuMemAllocAsync")?
                }
                false => check(sys::cuMemAlloc_v2(&mut ptr, bytes as usize), "cuMemAlloc")?,
            }
        }
        self.large.push(ptr);
        Ok(ptr)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.pooled && !self.large.is_empty() {
            // SAFETY: the stream is this device's; an error comes again at the next wait.
            let _ = unsafe { sys::cuStreamSynchronize(self.stream) };
        }
        for &ptr in &self.large {
            // SAFETY: allocated on this stream; the launch's kernels are queued before this, or done.
            let _ = unsafe {
                match self.pooled {
                    true => sys::cuMemFreeAsync(ptr, self.stream),
                    false => sys::cuMemFree_v2(ptr),
                }
            };
        }
    }
}
