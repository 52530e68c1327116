//! cuFFT: plans without memory of their own, run on the launch's stream with its workspace.
//!
//! Transforms are deterministic: cuFFT uses no atomics, and one plan on one device always runs the
//! same kernels.

use super::context::Context;
use super::driver::CudaDriver;
use super::{error, probe};
use crate::array::Dtype;
use crate::base::Result;
use crate::device::StreamHandle;
use crate::device::error::driver_failed;
use crate::kernel::Launch;
use crate::kernel::fft::{Fft, FftPlan, FftSpec, Transform};
use cudarc::cufft::sys::{self, cufftHandle, cufftResult, cufftType};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;

/// A plan. Its stream and workspace are set for each run, under the lock.
struct Plan {
    context: Context,
    handle: Mutex<cufftHandle>,
    workspace: u64,
}

fn check(result: cufftResult, call: &'static str) -> Result<()> {
    match result {
        cufftResult::CUFFT_SUCCESS => Ok(()),
        cufftResult::CUFFT_ALLOC_FAILED => Err(crate::device::error::out_of_memory()),
        result => Err(driver_failed("cuFFT", call, &format!("{result:?}"))),
    }
}

fn kind(spec: &FftSpec) -> cufftType {
    match (spec.transform, spec.part == Dtype::F64) {
        (Transform::Complex, false) => cufftType::CUFFT_C2C,
        (Transform::Complex, true) => cufftType::CUFFT_Z2Z,
        (Transform::FromReal, false) => cufftType::CUFFT_R2C,
        (Transform::FromReal, true) => cufftType::CUFFT_D2Z,
        (Transform::ToReal, false) => cufftType::CUFFT_C2R,
        (Transform::ToReal, true) => cufftType::CUFFT_Z2D,
    }
}

impl FftPlan for Plan {
    fn workspace(&self) -> u64 {
        self.workspace
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: made by `cufftCreate`, and used by nobody any more; cuFFT waits for the device
            // where its tables are still in use.
            let _ = unsafe { sys::cufftDestroy(*self.handle.get_mut()) };
        }
    }
}

impl CudaDriver {
    /// Makes a plan.
    pub(super) fn make_fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        self.enter()?;
        if !probe::load("cufft", sys::is_culib_present) {
            return Err(error::no_library("cuFFT", &probe::file_name("cufft")));
        }
        let mut handle = 0;
        // SAFETY: the library is there and a context is current; the call writes one handle.
        check(unsafe { sys::cufftCreate(&mut handle) }, "cufftCreate")?;
        let mut plan = Plan { context: self.context, handle: Mutex::new(handle), workspace: 0 };
        let distance = |extents: &[usize]| extents.iter().product::<usize>() as i64;
        let (signal, spectrum) = (distance(&spec.extents), distance(&spec.half()));
        let (from, to) = match spec.transform {
            Transform::Complex => (signal, signal),
            Transform::FromReal => (signal, spectrum),
            Transform::ToReal => (spectrum, signal),
        };
        let mut extents: Vec<i64> = spec.extents.iter().map(|&n| n as i64).collect();
        let mut bytes = 0usize;
        // SAFETY: the handle is new. Null for the embeddings means contiguous operands, as every
        // launch's are; the distances are then not read, but hold.
        unsafe {
            check(sys::cufftSetAutoAllocation(handle, 0), "cufftSetAutoAllocation")?;
            let made = sys::cufftMakePlanMany64(
                handle,
                extents.len() as i32,
                extents.as_mut_ptr(),
                std::ptr::null_mut(),
                1,
                from,
                std::ptr::null_mut(),
                1,
                to,
                kind(spec),
                spec.batch as i64,
                &mut bytes,
            );
            check(made, "cufftMakePlanMany64")?;
        }
        plan.workspace = bytes as u64;
        Ok(Arc::new(plan))
    }

    /// Queues a transform.
    pub(super) fn queue_fft(&self, fft: &Fft, launch: &Launch, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        let Some(plan) = fft.plan.as_any().downcast_ref::<Plan>() else {
            return Err(driver_failed("cuFFT", "launch", "the plan belongs to another device"));
        };
        let [input, out] = [0, 1].map(|view| launch.views[view].ptr);
        let workspace = launch.views.get(2).map_or(0, |view| view.ptr);
        let handle = plan.handle.lock();
        // `CUFFT_INVERSE` and `CUFFT_FORWARD`.
        let direction = if fft.inverse { 1 } else { -1 };
        // SAFETY: the plan is for these operands, which lie in live memory by the launch's contract,
        // as does the workspace; the stream is this device's.
        unsafe {
            check(sys::cufftSetStream(*handle, stream as sys::cudaStream_t), "cufftSetStream")?;
            if plan.workspace > 0 {
                check(sys::cufftSetWorkArea(*handle, workspace as *mut _), "cufftSetWorkArea")?;
            }
            match kind(&fft.spec) {
                cufftType::CUFFT_C2C => check(
                    sys::cufftExecC2C(*handle, input as *mut _, out as *mut _, direction),
                    "cufftExecC2C",
                ),
                cufftType::CUFFT_Z2Z => check(
                    sys::cufftExecZ2Z(*handle, input as *mut _, out as *mut _, direction),
                    "cufftExecZ2Z",
                ),
                cufftType::CUFFT_R2C => {
                    check(sys::cufftExecR2C(*handle, input as *mut _, out as *mut _), "cufftExecR2C")
                }
                cufftType::CUFFT_D2Z => {
                    check(sys::cufftExecD2Z(*handle, input as *mut _, out as *mut _), "cufftExecD2Z")
                }
                cufftType::CUFFT_C2R => {
                    check(sys::cufftExecC2R(*handle, input as *mut _, out as *mut _), "cufftExecC2R")
                }
                cufftType::CUFFT_Z2D => {
                    check(sys::cufftExecZ2D(*handle, input as *mut _, out as *mut _), "cufftExecZ2D")
                }
            }
        }
    }
}
