//! Memory that kernels need between their passes.
//!
//! Each stream has a small region of its own that lives as long as the driver. The driver's pool allocates
//! and frees larger requests in stream order. Work on one stream runs in order, so the next launch can use
//! the region while the last one is still running. A launch leases its stream's region until it is queued, so
//! that two threads do not interleave the passes of their launches on one stream; no lock is held meanwhile.
//! Nested launches share the lease of their outer launch.

use super::context::{Context, check};
use crate::base::Result;
use crate::kernel::Ptr;
use cudarc::driver::sys::{self, CUmemPool_attribute, CUresult, CUstream};
use foldhash::HashMap;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

/// Bytes of a stream's own region: the partial results of a large reduction fit.
const REGION: u64 = 1 << 20;

/// Bytes the pool may keep for the next request.
const KEPT: u64 = 256 << 20;

/// One device's scratch memory.
pub(super) struct Scratch {
    context: Context,
    /// Null on devices without memory pools.
    pool: sys::CUmemoryPool,
    /// By stream.
    regions: Mutex<HashMap<u64, Region>>,
    returned: Condvar,
}

/// A stream's own memory.
#[derive(Clone, Copy)]
enum Region {
    /// Leased to a launch.
    Leased,
    Here(Ptr),
}

// SAFETY: the pool is a handle of the driver, valid on every thread.
unsafe impl Send for Scratch {}
// SAFETY: as above; a lock guards the regions.
unsafe impl Sync for Scratch {}

/// The scratch memory of one launch. Dropping it returns the region, and frees large parts in stream order.
pub(super) struct Lease<'a> {
    scratch: &'a Scratch,
    stream: CUstream,
    /// The stream's region, if it has been allocated.
    region: Option<Ptr>,
    used: u64,
    large: SmallVec<[Ptr; 4]>,
}

impl Scratch {
    /// The device's context must be current.
    pub fn new(context: Context, device: sys::CUdevice) -> Result<Scratch> {
        let mut pool = std::ptr::null_mut();
        let mut kept = KEPT;
        // SAFETY: the device exists; the attributes are a 32-bit and a 64-bit number.
        unsafe {
            let which = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
            let mut supported = 0;
            check(sys::cuDeviceGetAttribute(&mut supported, which, device), "cuDeviceGetAttribute")?;
            if supported == 0 {
                return Ok(Scratch { context, pool, regions: Mutex::default(), returned: Condvar::new() });
            }
            check(sys::cuDeviceGetDefaultMemPool(&mut pool, device), "cuDeviceGetDefaultMemPool")?;
            let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let value = (&raw mut kept).cast();
            check(sys::cuMemPoolSetAttribute(pool, attribute, value), "cuMemPoolSetAttribute")?;
        }
        Ok(Scratch { context, pool, regions: Mutex::default(), returned: Condvar::new() })
    }

    /// Returns the pool's unused memory to the device; false when the driver refuses.
    pub fn trim(&self) -> bool {
        if self.pool.is_null() || self.context.enter().is_err() {
            return false;
        }
        // SAFETY: the pool belongs to the device.
        unsafe { sys::cuMemPoolTrimTo(self.pool, 0) == CUresult::CUDA_SUCCESS }
    }

    /// Opens a launch's scratch memory on a stream; waits while another thread queues a launch there.
    pub fn lease(&self, stream: CUstream) -> Lease<'_> {
        let mut regions = self.regions.lock();
        let region = loop {
            match regions.insert(stream as u64, Region::Leased) {
                None => break None,
                Some(Region::Here(region)) => break Some(region),
                Some(Region::Leased) => self.returned.wait(&mut regions),
            }
        };
        Lease { scratch: self, stream, region, used: 0, large: SmallVec::new() }
    }

    /// Frees the regions. The device must be idle.
    pub fn release(&self) {
        for (_, region) in self.regions.lock().drain() {
            if let Region::Here(ptr) = region {
                // SAFETY: the caller guarantees that the device is idle.
                let _ = unsafe { sys::cuMemFree_v2(ptr) };
            }
        }
    }
}

impl Lease<'_> {
    /// Memory aligned to 256 bytes; live until the launch's last kernel has run.
    pub fn take(&mut self, bytes: u64) -> Result<Ptr> {
        let bytes = bytes.max(1).next_multiple_of(256);
        if self.used + bytes <= REGION {
            let region = match self.region {
                Some(region) => region,
                None => {
                    let mut region = 0;
                    // SAFETY: the context is current while a launch is queued.
                    check(unsafe { sys::cuMemAlloc_v2(&mut region, REGION as usize) }, "cuMemAlloc")?;
                    *self.region.insert(region)
                }
            };
            self.used += bytes;
            return Ok(region + self.used - bytes);
        }
        let mut ptr = 0;
        // SAFETY: as above; the memory is freed on the same stream, or after a wait for it.
        unsafe {
            match self.pooled() {
                true => {
                    check(sys::cuMemAllocAsync(&mut ptr, bytes as usize, self.stream), "cuMemAllocAsync")?
                }
                false => check(sys::cuMemAlloc_v2(&mut ptr, bytes as usize), "cuMemAlloc")?,
            }
        }
        self.large.push(ptr);
        Ok(ptr)
    }

    /// False on devices without memory pools, where large parts wait for the stream instead.
    fn pooled(&self) -> bool {
        !self.scratch.pool.is_null()
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.pooled() && !self.large.is_empty() {
            // SAFETY: the stream belongs to this device; the next wait reports an error again.
            let _ = unsafe { sys::cuStreamSynchronize(self.stream) };
        }
        for &ptr in &self.large {
            // SAFETY: allocated on this stream; the launch's kernels were queued before this, or have
            // completed.
            let _ = unsafe {
                match self.pooled() {
                    true => sys::cuMemFreeAsync(ptr, self.stream),
                    false => sys::cuMemFree_v2(ptr),
                }
            };
        }
        let mut regions = self.scratch.regions.lock();
        match self.region {
            Some(region) => regions.insert(self.stream as u64, Region::Here(region)),
            None => regions.remove(&(self.stream as u64)),
        };
        drop(regions);
        self.scratch.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Needs no device: leases that take no memory do not call the driver.
    #[test]
    fn a_stream_has_one_lease_at_a_time_and_streams_do_not_wait_for_each_other() {
        let scratch = Scratch {
            context: Context(std::ptr::null_mut()),
            pool: std::ptr::null_mut(),
            regions: Mutex::default(),
            returned: Condvar::new(),
        };
        let other = scratch.lease(2 as CUstream);
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _lease = scratch.lease(1 as CUstream);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        drop(other);
        assert!(scratch.regions.lock().is_empty());
    }
}
