//! Results of driver calls, and which context a thread works in.

use super::probe;
use crate::base::Result;
use crate::driver::error;
use cudarc::driver::sys::{self, CUcontext, CUresult};
use std::cell::Cell;

thread_local! {
    /// The context this thread made current last. Setting a context costs a driver call, and
    /// almost every call finds the right one in place.
    static CURRENT: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

/// Turns a result into an error that names the call.
#[inline]
pub(super) fn check(result: CUresult, call: &'static str) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(result, call)) }
}

#[cold]
fn failed(result: CUresult, call: &'static str) -> crate::base::Error {
    match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => error::out_of_memory(),
        result if is_sticky(result) => error::device_failed("cuda", call, &probe::text(result)),
        result => error::driver_failed("cuda", call, &probe::text(result)),
    }
}

/// True for errors after which the context is lost: each is what its documentation says of itself, that
/// the process must be ended to go on. Source: the CUDA driver API, `CUresult`.
fn is_sticky(result: CUresult) -> bool {
    use CUresult::*;
    matches!(
        result,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

/// Like [`check`] for queries: `Ok(false)` when the work is not done.
#[inline]
pub(super) fn ready(result: CUresult, call: &'static str) -> Result<bool> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(true),
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        result => Err(failed(result, call)),
    }
}

/// A primary context, retained. Handles are addresses of the driver's, good on every thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Context(pub CUcontext);

// SAFETY: the driver's handles may be used on any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks internally.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device.
    pub fn retain(device: sys::CUdevice) -> Result<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver works (the caller has a device), and writes one handle.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) }, "cuDevicePrimaryCtxRetain")?;
        Ok(Context(context))
    }

    /// Makes it the calling thread's.
    #[inline]
    pub fn enter(self) -> Result<()> {
        if CURRENT.get() == self.0 {
            return Ok(());
        }
        // SAFETY: the context is retained.
        check(unsafe { sys::cuCtxSetCurrent(self.0) }, "cuCtxSetCurrent")?;
        CURRENT.set(self.0);
        Ok(())
    }
}
