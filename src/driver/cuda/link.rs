//! PTX to machine code by the driver's own assembler, behind the cache on disk.

use super::context::check;
use super::error::kernel_rejected;
use super::nvrtc::Arch;
use crate::base::Result;
use crate::driver::kernel_cache::Cache;
use cudarc::driver::sys::{self, CUjit_option, CUjitInputType, CUlinkState, CUresult};
use std::ffi::{CStr, CString, c_int, c_void};

/// A cubin for the device whose context is current.
pub(super) fn assemble(ptx: &str, arch: Arch) -> Result<Vec<u8>> {
    let mut version: c_int = 0;
    // SAFETY: the call writes an integer.
    check(unsafe { sys::cuDriverGetVersion(&mut version) }, "cuDriverGetVersion")?;
    let key = format!("driver {version} sm_{}{}\n{ptx}", arch.major, arch.minor);
    let cache = Cache::of_user();
    if let Some(image) = cache.as_ref().and_then(|cache| cache.get(&key)) {
        return Ok(image);
    }
    let image = assemble_now(ptx)?;
    if let Some(cache) = cache {
        cache.put(&key, &image);
    }
    Ok(image)
}

fn assemble_now(ptx: &str) -> Result<Vec<u8>> {
    let text = CString::new(ptx).unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    let mut log = vec![0u8; 4096];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), (log.len() - 1) as *mut c_void];
    let mut linker = Linker(std::ptr::null_mut());
    let (mut image, mut size) = (std::ptr::null_mut::<c_void>(), 0usize);
    let none = std::ptr::null_mut;
    // SAFETY: a context is current. The options and the log outlive the linker's work. The text ends with a zero byte,
    // and the driver copies it. The image belongs to the linker, and is copied while that exists.
    unsafe {
        let result = sys::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut linker.0);
        check(result, "cuLinkCreate")?;
        let result = sys::cuLinkAddData_v2(
            linker.0,
            CUjitInputType::CU_JIT_INPUT_PTX,
            bytes.as_ptr() as *mut c_void,
            bytes.len(),
            c"runnel.ptx".as_ptr(),
            0,
            none(),
            std::ptr::null_mut(),
        );
        if result == CUresult::CUDA_SUCCESS {
            check(sys::cuLinkComplete(linker.0, &mut image, &mut size), "cuLinkComplete")?;
            return Ok(std::slice::from_raw_parts(image.cast::<u8>(), size).to_vec());
        }
    }
    let text = CStr::from_bytes_until_nul(&log).unwrap_or_default();
    Err(kernel_rejected("translated", &text.to_string_lossy()))
}

struct Linker(CUlinkState);

impl Drop for Linker {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: created by `assemble_now`, and destroyed once.
            let _ = unsafe { sys::cuLinkDestroy(self.0) };
        }
    }
}
