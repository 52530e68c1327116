//! Device memory, page-locked memory, copies and fills.

use super::context::{Context, check};
use super::driver::CudaDriver;
use crate::base::Result;
use crate::driver::{CopyKind, StreamHandle};
use crate::kernel::Ptr;
use cudarc::driver::sys::{self, CUresult, CUstream};
use std::collections::HashMap;

/// Peers whose memory this device has tried to access.
pub(super) type Peers = HashMap<u32, Peer>;

/// Another device, from this device's point of view.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    context: Context,
    /// This device's kernels and copies can access its memory; otherwise the driver stages copies through the
    /// host.
    pub(super) direct: bool,
}

impl CudaDriver {
    pub(super) fn memory_free_total(&self) -> Result<(u64, u64)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn take_memory(&self, bytes: u64) -> Result<Ptr> {
        self.enter()?;
        let size = usize::try_from(bytes).map_err(|_| crate::driver::error::out_of_memory())?;
        let mut ptr = 0;
        // SAFETY: the context is current; the driver aligns to 512 bytes.
        let mut result = unsafe { sys::cuMemAlloc_v2(&mut ptr, size) };
        // SAFETY: the device exists; the call releases unused scratch memory of graphs.
        let trim_graphs = || unsafe { sys::cuDeviceGraphMemTrim(self.device) == CUresult::CUDA_SUCCESS };
        let trim = || self.scratch.trim() | trim_graphs();
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY && trim() {
            // SAFETY: as above.
            result = unsafe { sys::cuMemAlloc_v2(&mut ptr, size) };
        }
        check(result, "cuMemAlloc")?;
        Ok(ptr)
    }

    pub(super) fn give_memory(&self, ptr: Ptr) {
        if self.enter().is_ok() {
            // SAFETY: the pointer came from `take_memory`, and the caller guarantees that nothing uses it. A
            // failure here is a sticky one of earlier work, which the next wait reports.
            let _ = unsafe { sys::cuMemFree_v2(ptr) };
        }
    }

    pub(super) fn take_pinned(&self, bytes: u64) -> Result<Ptr> {
        self.enter()?;
        let size = usize::try_from(bytes).map_err(|_| crate::driver::error::out_of_memory())?;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the context is current; portable memory is page-locked for every context.
        let result = unsafe { sys::cuMemHostAlloc(&mut ptr, size, sys::CU_MEMHOSTALLOC_PORTABLE) };
        check(result, "cuMemHostAlloc")?;
        Ok(ptr as Ptr)
    }

    pub(super) fn give_pinned(&self, ptr: Ptr) {
        if self.enter().is_ok() {
            // SAFETY: the pointer came from `take_pinned`, and the caller guarantees that nothing uses it.
            let _ = unsafe { sys::cuMemFreeHost(ptr as *mut _) };
        }
    }

    pub(super) fn queue_copy(
        &self,
        dst: Ptr,
        src: Ptr,
        bytes: u64,
        kind: CopyKind,
        stream: StreamHandle,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        let (stream, bytes) = (stream as CUstream, bytes as usize);
        // SAFETY: the contract of `Driver::copy`: both ends are live memory of that size until the copy has
        // completed. For pageable host memory the driver itself waits.
        unsafe {
            match kind {
                CopyKind::HostToDevice => {
                    check(sys::cuMemcpyHtoDAsync_v2(dst, src as *const _, bytes, stream), "cuMemcpyHtoDAsync")
                }
                CopyKind::DeviceToHost => {
                    check(sys::cuMemcpyDtoHAsync_v2(dst as *mut _, src, bytes, stream), "cuMemcpyDtoHAsync")
                }
                CopyKind::DeviceToDevice => {
                    check(sys::cuMemcpyDtoDAsync_v2(dst, src, bytes, stream), "cuMemcpyDtoDAsync")
                }
                CopyKind::FromPeer(peer) => {
                    let from = self.peer(peer)?;
                    check(
                        sys::cuMemcpyPeerAsync(dst, self.context.0, src, from.context.0, bytes, stream),
                        "cuMemcpyPeerAsync",
                    )
                }
                CopyKind::ToPeer(peer) => {
                    let to = self.peer(peer)?;
                    check(
                        sys::cuMemcpyPeerAsync(dst, to.context.0, src, self.context.0, bytes, stream),
                        "cuMemcpyPeerAsync",
                    )
                }
            }
        }
    }

    /// Returns a peer. The first call enables direct access to the peer's memory if the machine supports it.
    pub(super) fn peer(&self, peer: u32) -> Result<Peer> {
        if let Some(&known) = self.peers.lock().get(&peer) {
            return Ok(known);
        }
        let context = Context::retain(super::driver::device_handle(peer)?)?;
        let direct = self.reads_peer(peer);
        if direct {
            self.enter()?;
            // SAFETY: both contexts are retained.
            let result = unsafe { sys::cuCtxEnablePeerAccess(context.0, 0) };
            if result != CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                && result != CUresult::CUDA_ERROR_TOO_MANY_PEERS
            {
                check(result, "cuCtxEnablePeerAccess")?;
            }
            self.reach_mapped(peer, context)?;
        }
        let known = Peer { context, direct };
        self.peers.lock().insert(peer, known);
        Ok(known)
    }

    pub(super) fn reads_peer(&self, peer: u32) -> bool {
        if peer == self.index {
            return false;
        }
        let Ok(other) = super::driver::device_handle(peer) else { return false };
        let mut can = 0;
        // SAFETY: both devices belong to this driver.
        let result = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, other) };
        result == CUresult::CUDA_SUCCESS && can == 1
    }

    pub(super) fn queue_fill(
        &self,
        dst: Ptr,
        pattern: u64,
        width: u32,
        count: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.enter()?;
        let (cu, n) = (stream as CUstream, count as usize);
        let (low, high) = (pattern as u32, (pattern >> 32) as u32);
        // SAFETY: `count` elements of `width` bytes at `dst` are live until the fill has completed.
        unsafe {
            match width {
                1 => check(sys::cuMemsetD8Async(dst, pattern as u8, n, cu), "cuMemsetD8Async"),
                2 => check(sys::cuMemsetD16Async(dst, pattern as u16, n, cu), "cuMemsetD16Async"),
                4 => check(sys::cuMemsetD32Async(dst, low, n, cu), "cuMemsetD32Async"),
                _ if low == high => check(sys::cuMemsetD32Async(dst, low, 2 * n, cu), "cuMemsetD32Async"),
                _ => self.fill_pairs(dst, pattern, count, stream),
            }
        }
    }
}
