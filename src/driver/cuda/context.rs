//! Results of driver calls, and each thread's current context.

use super::probe;
use crate::base::Result;
use crate::driver::error;
use cudarc::driver::sys::{self, CUcontext, CUresult};
use std::cell::Cell;

thread_local! {
    /// The context this thread made current last. Setting a context costs a driver call, and for almost every
    /// call the right one is already current.
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

/// True for errors after which the context is lost: those whose documentation says that the process must be
/// terminated. Source: the CUDA driver API, `CUresult`.
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

/// A retained primary context. Handles are addresses within the driver, valid on every thread.
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
        // SAFETY: the driver is loaded, since the caller has a device; the call writes one handle.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) }, "cuDevicePrimaryCtxRetain")?;
        Ok(Context(context))
    }

    /// Makes the context current on this thread.
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
