//! Memory mapped to reserved addresses.
//!
//! Only the devices that were granted access can use mapped memory: peer access between contexts does not
//! cover it. So each device records its mapped ranges and the devices with access, and updates access
//! whenever either set grows.

use super::context::{Context, check};
use super::driver::CudaDriver;
use crate::base::Result;
use crate::driver::error;
use crate::kernel::Ptr;
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUresult};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Memory is mapped in multiples of this and of the driver's granularity. Source: PyTorch.
const UNIT: u64 = 2 << 20;

/// One device's mapped memory.
pub(super) struct Mapping {
    device: CUdevice,
    /// `None` if the device cannot map memory.
    unit: Option<u64>,
    /// Network cards can read mapped memory of this device.
    direct: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The mapped ranges, start to length.
    ranges: BTreeMap<Ptr, u64>,
    /// Other devices with access to all ranges.
    peers: Vec<CUdevice>,
}

impl Mapping {
    /// Queries the device's abilities; needs no context.
    pub fn new(device: CUdevice) -> Result<Mapping> {
        use CUdevice_attribute::*;
        let supports = |which| -> Result<bool> {
            let mut value = 0;
            // SAFETY: the device exists; the call writes one integer.
            check(unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }, "cuDeviceGetAttribute")?;
            Ok(value != 0)
        };
        let can_map = supports(CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)?;
        let direct = supports(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)?;
        let mut mapping = Mapping { device, unit: None, direct, state: Mutex::default() };
        if can_map {
            let mut step = 0;
            let which = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
            let properties = mapping.properties();
            // SAFETY: the call reads the properties and writes one number.
            let result = unsafe { sys::cuMemGetAllocationGranularity(&mut step, &properties, which) };
            mapping.unit =
                (result == CUresult::CUDA_SUCCESS && step > 0).then(|| UNIT.next_multiple_of(step as u64));
        }
        Ok(mapping)
    }

    fn properties(&self) -> sys::CUmemAllocationProp {
        sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: location(self.device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(self.direct),
                usage: 0,
                reserved: [0; 4],
            },
        }
    }

    pub fn unit(&self) -> Option<u64> {
        self.unit
    }

    /// Gives another device access to all memory that is mapped now and later.
    fn admit(&self, peer: CUdevice) -> Result<()> {
        let mut state = self.state.lock();
        if peer == self.device || state.peers.contains(&peer) {
            return Ok(());
        }
        for (&ptr, &bytes) in &state.ranges {
            allow(ptr, bytes, &[peer])?;
        }
        state.peers.push(peer);
        Ok(())
    }

    /// Maps memory to reserved addresses. The device's context must be current.
    fn map(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        let size = usize::try_from(bytes).map_err(|_| error::out_of_memory())?;
        let properties = self.properties();
        let mut state = self.state.lock();
        let mut handle = 0;
        // SAFETY: the properties name this device, and the size is a multiple of its unit.
        check(unsafe { sys::cuMemCreate(&mut handle, size, &properties, 0) }, "cuMemCreate")?;
        // SAFETY: the contract of `Driver::map`: the range is reserved and not mapped. The mapping keeps the
        // memory alive, so the handle can be released.
        let mapped = unsafe {
            let mapped = check(sys::cuMemMap(ptr, size, 0, handle, 0), "cuMemMap");
            let _ = sys::cuMemRelease(handle);
            mapped
        };
        mapped?;
        let devices: Vec<CUdevice> =
            std::iter::once(self.device).chain(state.peers.iter().copied()).collect();
        if let Err(e) = allow(ptr, bytes, &devices) {
            // SAFETY: mapped above, and not used yet.
            let _ = unsafe { sys::cuMemUnmap(ptr, size) };
            return Err(e);
        }
        state.ranges.insert(ptr, bytes);
        Ok(())
    }

    fn unmap(&self, ptr: Ptr) {
        let mut state = self.state.lock();
        if let Some(bytes) = state.ranges.remove(&ptr) {
            // SAFETY: the contract of `Driver::unmap`: one whole mapping that is no longer used. A failure
            // here is a sticky one of earlier work, which the next wait reports.
            let _ = unsafe { sys::cuMemUnmap(ptr, bytes as usize) };
        }
    }
}

fn location(device: CUdevice) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// Gives devices read and write access to a mapped range.
fn allow(ptr: Ptr, bytes: u64, devices: &[CUdevice]) -> Result<()> {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let list: Vec<_> =
        devices.iter().map(|&d| sys::CUmemAccessDesc { location: location(d), flags }).collect();
    // SAFETY: the range is mapped, and the list has the given length.
    check(unsafe { sys::cuMemSetAccess(ptr, bytes as usize, list.as_ptr(), list.len()) }, "cuMemSetAccess")
}

impl CudaDriver {
    pub(super) fn reserve_addresses(&self, bytes: u64) -> Result<Ptr> {
        self.enter()?;
        let size = usize::try_from(bytes).map_err(|_| error::out_of_memory())?;
        let unit = self.mapping.unit.unwrap_or(UNIT) as usize;
        let mut ptr = 0;
        // SAFETY: the call writes one address.
        check(unsafe { sys::cuMemAddressReserve(&mut ptr, size, unit, 0, 0) }, "cuMemAddressReserve")?;
        Ok(ptr)
    }

    pub(super) fn free_addresses(&self, ptr: Ptr, bytes: u64) {
        if self.enter().is_ok() {
            // SAFETY: the contract of `Driver::unreserve`: a whole reservation with nothing mapped.
            let _ = unsafe { sys::cuMemAddressFree(ptr, bytes as usize) };
        }
    }

    pub(super) fn map_memory(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        self.enter()?;
        let mapped = self.mapping.map(ptr, bytes);
        match mapped {
            // Freeing the scratch memory kept for kernels may be enough.
            Err(e) if e.kind() == crate::base::ErrorKind::OutOfMemory && self.scratch.trim() => {
                self.mapping.map(ptr, bytes)
            }
            mapped => mapped,
        }
    }

    pub(super) fn unmap_memory(&self, ptr: Ptr) {
        if self.enter().is_ok() {
            self.mapping.unmap(ptr);
        }
    }

    /// Gives this device access to a peer's mapped memory; `context` is the peer's.
    pub(super) fn reach_mapped(&self, peer: u32, context: Context) -> Result<()> {
        let owner = super::driver::open_device(peer)?;
        debug_assert_eq!(owner.context, context);
        owner.enter()?;
        let admitted = owner.mapping.admit(self.device);
        self.enter()?;
        admitted
    }
}
