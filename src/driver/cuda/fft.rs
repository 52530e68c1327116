//! cuFFT: plans that own no memory. They run on the launch's stream with its workspace.
//!
//! Transforms are deterministic: cuFFT uses no atomics, and a plan always runs the same kernels on the same
//! device.

use super::context::Context;
use super::driver::CudaDriver;
use super::dynamic::{self, CUFFT};
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::StreamHandle;
use crate::driver::error::driver_failed;
use crate::kernel::cuda::Planned;
use crate::kernel::fft::{FftPlan, FftSpec, OwnPlan, Transform};
use parking_lot::Mutex;
use std::any::Any;
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::Arc;

/// `cufftHandle`
type Handle = c_int;
/// `cufftResult`
type Outcome = c_int;
/// Device memory, or a stream.
type Data = *mut c_void;

dynamic::api! {
    CUFFT:
    create = c"cufftCreate"(*mut Handle) -> Outcome;
    destroy = c"cufftDestroy"(Handle) -> Outcome;
    get_property = c"cufftGetProperty"(c_int, *mut c_int) -> Outcome;
    set_auto_allocation = c"cufftSetAutoAllocation"(Handle, c_int) -> Outcome;
    set_stream = c"cufftSetStream"(Handle, Data) -> Outcome;
    set_work_area = c"cufftSetWorkArea"(Handle, Data) -> Outcome;
    make_plan_many = c"cufftMakePlanMany64"(
        Handle, c_int, *mut c_longlong, *mut c_longlong, c_longlong, c_longlong, *mut c_longlong, c_longlong,
        c_longlong, c_int, c_longlong, *mut usize
    ) -> Outcome;
    c2c = c"cufftExecC2C"(Handle, Data, Data, c_int) -> Outcome;
    z2z = c"cufftExecZ2Z"(Handle, Data, Data, c_int) -> Outcome;
    r2c = c"cufftExecR2C"(Handle, Data, Data) -> Outcome;
    d2z = c"cufftExecD2Z"(Handle, Data, Data) -> Outcome;
    c2r = c"cufftExecC2R"(Handle, Data, Data) -> Outcome;
    z2d = c"cufftExecZ2D"(Handle, Data, Data) -> Outcome;
}

/// The length of the plan that is made to load the state shared by all plans.
const WARM_UP: usize = 1024;

/// A plan. Each run sets its stream and workspace under the lock.
struct Plan {
    api: &'static Api,
    context: Context,
    handle: Mutex<Handle>,
    workspace: u64,
    transform: Transform,
    /// Transforms `f64` numbers.
    wide: bool,
}

fn check(result: Outcome, call: &'static str) -> Result<()> {
    let reason = match result {
        0 => return Ok(()),
        2 => return Err(crate::driver::error::out_of_memory()),
        1 => "CUFFT_INVALID_PLAN",
        3 => "CUFFT_INVALID_TYPE",
        4 => "CUFFT_INVALID_VALUE",
        5 => "CUFFT_INTERNAL_ERROR",
        6 => "CUFFT_EXEC_FAILED",
        7 => "CUFFT_SETUP_FAILED",
        8 => "CUFFT_INVALID_SIZE",
        13 => "CUFFT_NO_WORKSPACE",
        result => return Err(driver_failed("cuFFT", call, &format!("error {result}"))),
    };
    Err(driver_failed("cuFFT", call, reason))
}

/// cuFFT's version.
pub(super) fn version() -> Result<String> {
    dynamic::version_of(Api::get()?.get_property)
        .ok_or_else(|| driver_failed("cuFFT", "cufftGetProperty", "it does not report its version"))
}

/// Loads the library and everything that the first plan loads. Does nothing without the library.
pub(super) fn warm_up(context: Context) -> Result<()> {
    if is_missing() {
        return Ok(());
    }
    context.enter()?;
    let extents = [WARM_UP].into_iter().collect();
    make(context, &FftSpec { transform: Transform::Complex, part: Dtype::F32, extents, batch: 1 }).map(drop)
}

/// `cufftType`
fn kind(spec: &FftSpec) -> c_int {
    match (spec.transform, spec.part == Dtype::F64) {
        (Transform::FromReal, false) => 0x2a,
        (Transform::FromReal, true) => 0x6a,
        (Transform::ToReal, false) => 0x2c,
        (Transform::ToReal, true) => 0x6c,
        (Transform::Complex, false) => 0x29,
        (Transform::Complex, true) => 0x69,
    }
}

/// Makes a plan of cuFFT. The context is current.
fn make(context: Context, spec: &FftSpec) -> Result<Plan> {
    let api = Api::get()?;
    let mut handle = 0;
    // SAFETY: the library is loaded and a context is current; the call writes one handle.
    check(unsafe { (api.create)(&mut handle) }, "cufftCreate")?;
    let mut plan = Plan {
        api,
        context,
        handle: Mutex::new(handle),
        workspace: 0,
        transform: spec.transform,
        wide: spec.part == Dtype::F64,
    };
    let distance = |extents: &[usize]| extents.iter().product::<usize>() as i64;
    let (signal, spectrum) = (distance(&spec.extents), distance(&spec.half()));
    let (from, to) = match spec.transform {
        Transform::Complex => (signal, signal),
        Transform::FromReal => (signal, spectrum),
        Transform::ToReal => (spectrum, signal),
    };
    let mut extents: Vec<i64> = spec.extents.iter().map(|&n| n as i64).collect();
    let mut bytes = 0usize;
    // SAFETY: the handle is new. Null embeddings mean contiguous operands, which every launch has; cuFFT
    // then ignores the distances, which are correct anyway.
    unsafe {
        check((api.set_auto_allocation)(handle, 0), "cufftSetAutoAllocation")?;
        let made = (api.make_plan_many)(
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
    Ok(plan)
}

/// True when transforms need kernels of our own.
pub(super) fn is_missing() -> bool {
    CUFFT.find().is_err()
}

/// The plan of a machine without cuFFT.
pub(super) fn own_plan(spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
    let longest = spec.extents.iter().copied().max().unwrap_or(1);
    if longest > OwnPlan::LONGEST {
        let text =
            format!("cuFFT is missing; without it, a dimension has at most 2^31 elements, not {longest}");
        return Err(driver_failed("cuda", "fft", &text));
    }
    Ok(Arc::new(OwnPlan::new(spec)))
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
            // SAFETY: made by `cufftCreate`, and no longer used; cuFFT waits for the device if its tables are
            // still in use.
            let _ = unsafe { (self.api.destroy)(*self.handle.get_mut()) };
        }
    }
}

impl CudaDriver {
    /// Makes a plan.
    pub(super) fn make_fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        if is_missing() {
            return own_plan(spec);
        }
        self.enter()?;
        Ok(Arc::new(make(self.context, spec)?))
    }

    /// Queues a transform.
    pub(super) fn queue_fft(&self, transform: &Planned<'_>, stream: StreamHandle) -> Result<()> {
        let &Planned { inverse, input, out, workspace, .. } = transform;
        let Some(plan) = transform.plan.as_any().downcast_ref::<Plan>() else {
            return Err(driver_failed("cuFFT", "launch", "the plan belongs to another device"));
        };
        let (api, handle) = (plan.api, plan.handle.lock());
        // `CUFFT_INVERSE` and `CUFFT_FORWARD`.
        let direction = if inverse { 1 } else { -1 };
        // SAFETY: the plan fits these operands. The launch guarantees that they and the workspace lie in live
        // memory; the stream belongs to this device.
        unsafe {
            check((api.set_stream)(*handle, stream as Data), "cufftSetStream")?;
            if plan.workspace > 0 {
                check((api.set_work_area)(*handle, workspace as Data), "cufftSetWorkArea")?;
            }
            let (input, out) = (input as Data, out as Data);
            match (plan.transform, plan.wide) {
                (Transform::Complex, false) => {
                    check((api.c2c)(*handle, input, out, direction), "cufftExecC2C")
                }
                (Transform::Complex, true) => {
                    check((api.z2z)(*handle, input, out, direction), "cufftExecZ2Z")
                }
                (Transform::FromReal, false) => check((api.r2c)(*handle, input, out), "cufftExecR2C"),
                (Transform::FromReal, true) => check((api.d2z)(*handle, input, out), "cufftExecD2Z"),
                (Transform::ToReal, false) => check((api.c2r)(*handle, input, out), "cufftExecC2R"),
                (Transform::ToReal, true) => check((api.z2d)(*handle, input, out), "cufftExecZ2D"),
            }
        }
    }
}
