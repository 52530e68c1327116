//! Finds this machine's driver and devices. Never panics.
//!
//! The bindings panic when the driver's library is missing, so call [`driver`] before any other use of them.

use super::error;
use crate::base::{Error, Result};
use cudarc::driver::sys;
use std::sync::OnceLock;

/// The oldest supported driver, as `cuDriverGetVersion` counts: CUDA 12.0, whose functions are bound.
const OLDEST: i32 = 12_000;

/// The result of the probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Visible devices; 0 when `problem` is set.
    pub devices: u32,
    /// The CUDA version of the driver, `(13, 0)`.
    pub version: Option<(u32, u32)>,
    /// The reason why CUDA cannot be used, if any.
    pub problem: Option<Error>,
}

/// Probes the driver and its devices without creating a context. The result is cached.
pub fn probe() -> Probe {
    match driver() {
        Ok((devices, version)) => Probe { devices, version: Some(pair(version)), problem: None },
        Err(problem) => Probe { devices: 0, version: None, problem: Some(problem) },
    }
}

pub(super) fn pair(version: i32) -> (u32, u32) {
    ((version / 1000).unsigned_abs(), (version % 1000 / 10).unsigned_abs())
}

/// The number of devices and the driver's version, once the driver is known to work.
pub(super) fn driver() -> Result<(u32, i32)> {
    static FOUND: OnceLock<Result<(u32, i32)>> = OnceLock::new();
    FOUND.get_or_init(open).clone()
}

fn open() -> Result<(u32, i32)> {
    let file = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    // SAFETY: opening the driver's library runs its initialisers, as in any CUDA program; the check of the
    // bindings opens and closes it again.
    let present = unsafe {
        // Stays open for the life of the process, since opening it is slow.
        libloading::Library::new(file).map(std::mem::forget).ok();
        sys::is_culib_present()
    };
    if !present {
        return Err(error::no_driver(&format!("`{file}` was not found")));
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: the library is loaded; the calls write one integer each.
    unsafe {
        let started = sys::cuInit(0);
        if started == sys::CUresult::CUDA_ERROR_NO_DEVICE {
            return Err(error::no_device());
        }
        if started != sys::CUresult::CUDA_SUCCESS {
            return Err(error::no_driver(&text(started)));
        }
        if sys::cuDriverGetVersion(&mut version) != sys::CUresult::CUDA_SUCCESS {
            version = 0;
        }
        if version < OLDEST {
            return Err(error::old_driver(version));
        }
        let counted = sys::cuDeviceGetCount(&mut count);
        if counted != sys::CUresult::CUDA_SUCCESS {
            return Err(error::no_driver(&text(counted)));
        }
    }
    match u32::try_from(count) {
        Ok(0) | Err(_) => Err(error::no_device()),
        Ok(count) => Ok((count, version)),
    }
}

/// The driver's description of an error: `CUDA_ERROR_INVALID_VALUE (invalid argument)`.
///
/// Takes only results of driver calls, so the library is known to be loaded.
pub(super) fn text(result: sys::CUresult) -> String {
    let mut words = std::ptr::null();
    // SAFETY: the call stores a pointer to a static string, or leaves null for unknown codes.
    let words = unsafe {
        match sys::cuGetErrorString(result, &mut words) {
            sys::CUresult::CUDA_SUCCESS if !words.is_null() => {
                std::ffi::CStr::from_ptr(words).to_string_lossy().into_owned()
            }
            _ => "unknown error".into(),
        }
    };
    format!("{result:?} ({words})")
}
