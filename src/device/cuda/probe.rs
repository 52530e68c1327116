//! What of CUDA this machine has: libraries, driver version, devices. Never panics.
//!
//! The bindings panic when a library is missing, so every use of one is guarded by this file:
//! [`driver`] for the driver, [`load`] for NVRTC and cuBLAS. A library that only `CUDA_HOME` and
//! its like lead to is opened here by its path; the bindings then find it by name, already loaded.

use super::error;
use crate::base::{Error, Result};
use cudarc::driver::sys;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The oldest driver that serves, as `cuDriverGetVersion` counts: CUDA 12.8 (`cuEventElapsedTime_v2`).
const OLDEST: i32 = 12_080;

/// What was found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Visible devices; 0 when `problem` is set.
    pub devices: u32,
    /// The CUDA version of the driver, `(13, 0)`.
    pub version: Option<(u32, u32)>,
    /// Why CUDA cannot be used.
    pub problem: Option<Error>,
}

/// Looks at the driver and its devices, without making a context. The answer is kept.
pub fn probe() -> Probe {
    match driver() {
        Ok((devices, version)) => Probe { devices, version: Some(pair(version)), problem: None },
        Err(problem) => Probe { devices: 0, version: None, problem: Some(problem) },
    }
}

fn pair(version: i32) -> (u32, u32) {
    ((version / 1000).unsigned_abs(), (version % 1000 / 10).unsigned_abs())
}

/// The number of devices and the driver's version, once the driver is known to work.
pub(super) fn driver() -> Result<(u32, i32)> {
    static FOUND: OnceLock<Result<(u32, i32)>> = OnceLock::new();
    FOUND.get_or_init(look).clone()
}

fn look() -> Result<(u32, i32)> {
    let file = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    keep_open(Path::new(file));
    if !is_present(sys::is_culib_present) {
        return Err(error::no_driver(&format!("`{file}` was not found")));
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: the library is there; the calls write one integer each.
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

/// What the driver says of an error: `CUDA_ERROR_INVALID_VALUE (invalid argument)`.
///
/// Only for results of driver calls, so the library is known to be there.
pub(super) fn text(result: sys::CUresult) -> String {
    let mut words = std::ptr::null();
    // SAFETY: the call stores a pointer to a constant string, or leaves null for unknown codes.
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

/// Opens a toolkit library, unless it is open: by its names, then in the folders of the toolkit.
/// `stem` is `nvrtc`, `cublas`, `cufft`. True when the bindings will find it.
pub(super) fn load(stem: &str, present: unsafe fn() -> bool) -> bool {
    // By name alone first: the system's library path.
    let named = files(stem).into_iter().map(PathBuf::from);
    let found = folders().into_iter().flat_map(|folder| files(stem).map(|file| folder.join(file)));
    named.chain(found).any(|path| keep_open(&path) && is_present(present)) || is_present(present)
}

/// Opens a library by one of its names, as [`load`] finds them.
pub(super) fn open(names: &[&str]) -> Option<libloading::Library> {
    let named = names.iter().map(PathBuf::from);
    let found = folders().into_iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    // SAFETY: as in `keep_open`.
    named.chain(found).find_map(|path| unsafe { libloading::Library::new(path) }.ok())
}

/// Opens a library for the life of the process, so that the bindings find it by name, and at once:
/// a large one takes long to open, and a look alone would close it again.
fn keep_open(path: &Path) -> bool {
    // SAFETY: opening NVIDIA's libraries runs their initialisers, which any CUDA program runs.
    unsafe { libloading::Library::new(path) }.map(std::mem::forget).is_ok()
}

fn is_present(present: unsafe fn() -> bool) -> bool {
    // SAFETY: as in `keep_open`; the bindings' look opens the library and closes it.
    unsafe { present() }
}

/// `libnvrtc.so.13`; cuFFT counts one behind the toolkit.
pub(super) fn file_name(stem: &str) -> String {
    let version = if stem == "cufft" { 12 } else { 13 };
    if cfg!(windows) { format!("{stem}64_{version}.dll") } else { format!("lib{stem}.so.{version}") }
}

fn files(stem: &str) -> [String; 4] {
    if cfg!(windows) {
        ["130_0", "13", "12", "11"].map(|version| format!("{stem}64_{version}.dll"))
    } else {
        [".13", ".12", "", ".11"].map(|version| format!("lib{stem}.so{version}"))
    }
}

fn folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    roots.extend(["/usr/local/cuda", "/usr/local/cuda-13", "/opt/cuda"].map(PathBuf::from));
    let inside = ["lib64", "lib", "bin", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
    roots.iter().flat_map(|root| inside.map(|folder| root.join(folder))).collect()
}
