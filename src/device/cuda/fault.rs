//! The device's fault slot: page-locked host memory that kernels write and the host reads.

use super::context::check;
use crate::base::Result;
use crate::kernel::Fault;
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// As `FaultSlot` in `kernels/prelude.cuh`.
#[repr(C)]
struct Record {
    claimed: AtomicU32,
    tag: u32,
    position: u64,
    value: i64,
    ready: AtomicU32,
}

/// One device's slot.
pub(super) struct FaultSlot {
    host: *mut Record,
    device: u64,
}

// SAFETY: the record is page-locked host memory, live until drop; its fields are read only behind `ready`.
unsafe impl Send for FaultSlot {}
// SAFETY: as above; `take` hands a fault to one caller by an atomic exchange.
unsafe impl Sync for FaultSlot {}

impl FaultSlot {
    /// Needs the device's context current.
    pub fn new() -> Result<FaultSlot> {
        let mut host = std::ptr::null_mut();
        let mut device = 0;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: a context is current; the record is cleared before anyone sees it.
        unsafe {
            check(sys::cuMemHostAlloc(&mut host, size_of::<Record>(), flags), "cuMemHostAlloc")?;
            host.cast::<u8>().write_bytes(0, size_of::<Record>());
            let slot = FaultSlot { host: host.cast(), device: 0 };
            check(sys::cuMemHostGetDevicePointer_v2(&mut device, host, 0), "cuMemHostGetDevicePointer")?;
            Ok(FaultSlot { device, ..slot })
        }
    }

    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.device
    }

    /// Takes the fault and opens the slot for the next one.
    pub fn take(&self) -> Option<Fault> {
        // SAFETY: the record lives as long as `self`. `ready` is set after the other fields.
        unsafe {
            let record = self.host;
            let ready = &(*record).ready;
            if ready.load(Ordering::Relaxed) == 0 || ready.swap(0, Ordering::Acquire) == 0 {
                return None;
            }
            let fault = Fault {
                tag: (&raw const (*record).tag).read_volatile(),
                position: (&raw const (*record).position).read_volatile(),
                value: (&raw const (*record).value).read_volatile(),
            };
            fence(Ordering::Release);
            (*record).claimed.store(0, Ordering::Release);
            Some(fault)
        }
    }
}
