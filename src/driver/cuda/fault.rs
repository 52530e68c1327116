//! The device's fault slot: a record in device memory, and a copy of it that the host can read.
//!
//! Kernels keep the fault with the lowest position of the first launch that reports one, so a report does not
//! depend on which thread came first. Taking a fault starts a new epoch: for launches queued from then on the
//! record counts as empty.

use super::context::check;
use crate::base::Result;
use crate::kernel::Fault;
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU32, Ordering};

/// As `FaultCopy` in `kernels/prelude.cuh`; page-locked host memory.
#[repr(C)]
struct Copy {
    epoch: AtomicU32,
    tag: u32,
    position: u64,
    value: i64,
}

/// As `FaultRecord` in `kernels/prelude.cuh`.
#[repr(C)]
struct Record {
    words: [u32; 4],
    position: u64,
    copy: u64,
}

/// One device's slot.
pub(super) struct FaultSlot {
    copy: *mut Copy,
    record: u64,
    epoch: AtomicU32,
}

// SAFETY: the copy is page-locked host memory that is never freed; `epoch` guards its fields.
unsafe impl Send for FaultSlot {}
// SAFETY: as above; only the caller whose exchange of the epoch succeeds takes the fault.
unsafe impl Sync for FaultSlot {}

impl FaultSlot {
    /// The device's context must be current.
    pub fn new() -> Result<FaultSlot> {
        let (mut copy, mut record) = (std::ptr::null_mut(), 0);
        let mut empty = Record { words: [0; 4], position: 0, copy: 0 };
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: a context is current; both parts are cleared before they are shared, and the copy into
        // device memory completes before the call returns.
        unsafe {
            check(sys::cuMemHostAlloc(&mut copy, size_of::<Copy>(), flags), "cuMemHostAlloc")?;
            copy.cast::<u8>().write_bytes(0, size_of::<Copy>());
            let mapped = sys::cuMemHostGetDevicePointer_v2(&mut empty.copy, copy, 0);
            check(mapped, "cuMemHostGetDevicePointer")?;
            check(sys::cuMemAlloc_v2(&mut record, size_of::<Record>()), "cuMemAlloc")?;
            let filled = sys::cuMemcpyHtoD_v2(record, (&raw const empty).cast(), size_of::<Record>());
            check(filled, "cuMemcpyHtoD")?;
        }
        Ok(FaultSlot { copy: copy.cast(), record, epoch: AtomicU32::new(1) })
    }

    /// The record's address on the device.
    pub fn address(&self) -> u64 {
        self.record
    }

    /// A launch's tag, with the epoch in the high half.
    pub fn stamp(&self, tag: u32) -> u64 {
        u64::from(tag) | u64::from(self.epoch.load(Ordering::Relaxed)) << 32
    }

    /// The stamp of a launch that a graph repeats. Its kernels read the epoch from
    /// [`FaultSlot::graph_epoch`].
    pub fn graph_stamp(tag: u32) -> u64 {
        u64::from(tag)
    }

    /// The address where the kernels of graphs read the epoch: the last word of the record before the
    /// position.
    pub fn graph_epoch(&self) -> u64 {
        self.record + 3 * size_of::<u32>() as u64
    }

    /// The current epoch; never 0.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Takes the fault and clears the slot for the next one.
    pub fn take(&self) -> Option<Fault> {
        // SAFETY: the copy lives as long as the process. A kernel writes its fields before `epoch`.
        unsafe {
            let copy = self.copy;
            let told = &(*copy).epoch;
            let epoch = told.load(Ordering::Acquire);
            if epoch == 0 || told.compare_exchange(epoch, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return None;
            }
            // 0 means no fault, so the epoch skips it when it wraps.
            let next = self.epoch.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if next == 0 {
                self.epoch.store(1, Ordering::Relaxed);
            }
            Some(Fault {
                tag: (&raw const (*copy).tag).read_volatile(),
                position: (&raw const (*copy).position).read_volatile(),
                value: (&raw const (*copy).value).read_volatile(),
            })
        }
    }
}
