//! CUDA C to machine code: NVRTC, behind the cache on disk.

use super::dynamic::{self, NVRTC};
use super::{background, compilers, error};
use crate::base::{Error, Result};
use crate::driver::error::driver_failed;
use crate::driver::kernel_cache::Cache;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

/// `nvrtcProgram`
type Handle = *mut c_void;
/// `nvrtcResult`
type Outcome = c_int;

dynamic::api! {
    NVRTC:
    get_version = c"nvrtcVersion"(*mut c_int, *mut c_int) -> Outcome;
    get_arch_count = c"nvrtcGetNumSupportedArchs"(*mut c_int) -> Outcome;
    get_archs = c"nvrtcGetSupportedArchs"(*mut c_int) -> Outcome;
    get_error_string = c"nvrtcGetErrorString"(Outcome) -> *const c_char;
    create = c"nvrtcCreateProgram"(
        *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    ) -> Outcome;
    compile = c"nvrtcCompileProgram"(Handle, c_int, *const *const c_char) -> Outcome;
    destroy = c"nvrtcDestroyProgram"(*mut Handle) -> Outcome;
    get_log_size = c"nvrtcGetProgramLogSize"(Handle, *mut usize) -> Outcome;
    get_log = c"nvrtcGetProgramLog"(Handle, *mut c_char) -> Outcome;
    get_cubin_size = c"nvrtcGetCUBINSize"(Handle, *mut usize) -> Outcome;
    get_cubin = c"nvrtcGetCUBIN"(Handle, *mut c_char) -> Outcome;
    get_ptx_size = c"nvrtcGetPTXSize"(Handle, *mut usize) -> Outcome;
    get_ptx = c"nvrtcGetPTX"(Handle, *mut c_char) -> Outcome;
}

impl Api {
    /// NVRTC's message for an error; `None` for success.
    fn problem(&self, result: Outcome) -> Option<String> {
        // SAFETY: the call returns a static string for every number.
        (result != 0).then(|| unsafe { dynamic::text((self.get_error_string)(result)) })
    }
}

/// A compute capability: `Arch { major: 9, minor: 0 }` is `sm_90`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Arch {
    pub major: u32,
    pub minor: u32,
}

impl Arch {
    fn number(self) -> u32 {
        self.major * 10 + self.minor
    }
}

/// The compiler that is installed.
struct Compiler {
    api: &'static Api,
    version: (i32, i32),
    /// Compute capabilities that it can generate machine code for, ascending.
    archs: Vec<u32>,
}

/// Rounding is part of Runnel's semantics: no contraction to fused multiply-add, denormals kept, IEEE
/// division and square root. Source: Note [Fusion never changes a bit].
const OPTIONS: [&str; 6] =
    ["--std=c++17", "--device-int128", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

fn compiler() -> Result<&'static Compiler> {
    static FOUND: OnceLock<Result<Compiler>> = OnceLock::new();
    FOUND.get_or_init(load).as_ref().map_err(Error::clone)
}

fn load() -> Result<Compiler> {
    let api = Api::get()?;
    let check = |result, call| match api.problem(result) {
        None => Ok(()),
        Some(problem) => Err(driver_failed("NVRTC", call, &problem)),
    };
    let (mut major, mut minor, mut count) = (0, 0, 0);
    // SAFETY: the calls write integers, as many as the first call counted.
    let mut archs = unsafe {
        check((api.get_version)(&mut major, &mut minor), "nvrtcVersion")?;
        check((api.get_arch_count)(&mut count), "nvrtcGetNumSupportedArchs")?;
        let mut archs: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        check((api.get_archs)(archs.as_mut_ptr()), "nvrtcGetSupportedArchs")?;
        archs.into_iter().map(i32::unsigned_abs).collect::<Vec<u32>>()
    };
    archs.sort_unstable();
    Ok(Compiler { api, version: (major, minor), archs })
}

/// NVRTC's version: `13.0`.
pub(super) fn version() -> Result<String> {
    let (major, minor) = compiler()?.version;
    Ok(format!("{major}.{minor}"))
}

/// The compute capabilities that NVRTC supports, named as in `torch.cuda.get_arch_list`: `sm_90`. Empty
/// without NVRTC.
pub fn arch_list() -> Vec<String> {
    compiler().map_or(Vec::new(), |c| c.archs.iter().map(|arch| format!("sm_{arch}")).collect())
}

/// The image for a source, if it is in the cache.
pub(super) fn cached(source: &str, arch: Arch) -> Option<Vec<u8>> {
    let target = target(compiler().ok()?, arch);
    Cache::of_user()?.get(&key(source, &target).ok()?)
}

/// Compiles a source, or takes it from the cache; the flag is true for a cached image. The image is a cubin
/// for this exact architecture, or PTX for the nearest older one if NVRTC does not support it. `label` names
/// the program in errors. Runs in another process if possible ([`compilers`]); a job of the background threads may then
/// not return ([`background::outside`]).
pub(super) fn compile(source: &str, arch: Arch, label: &str) -> Result<(Vec<u8>, bool)> {
    // An error if there is no compiler.
    compiler()?;
    match background::outside(|| compilers::compile(source, arch, label)) {
        Some(compiled) => compiled,
        None => {
            background::warm_up();
            compile_here(source, arch).map_err(|log| error::kernel_rejected(label, &log))
        }
    }
}

/// [`compile`] in this process; the error is NVRTC's log.
pub(super) fn compile_here(source: &str, arch: Arch) -> std::result::Result<(Vec<u8>, bool), String> {
    let found = compiler().and_then(|compiler| {
        let target = target(compiler, arch);
        Ok((key(source, &target)?, target))
    });
    let (key, target) = found.map_err(|error| error.to_string())?;
    let cache = Cache::of_user();
    if let Some(image) = cache.as_ref().and_then(|cache| cache.get(&key)) {
        return Ok((image, true));
    }
    let image = translate(source, &target, &[])?;
    if let Some(cache) = cache {
        cache.put(&key, &image);
    }
    Ok((image, false))
}

/// The library's file.
pub(super) fn path() -> Result<&'static Path> {
    Ok(NVRTC.find()?.path())
}

/// Opens this file as NVRTC, unless NVRTC is open.
pub(super) fn open(path: &Path) {
    NVRTC.open_file(path);
}

/// Compiles a small source if NVRTC is installed, which initialises it, and registers its exit handlers.
pub(super) fn warm_up() {
    const TEXT: &str = r#"extern "C" __global__ void warm(float* x) { x[threadIdx.x] = sinf(x[0]) / x[1]; }"#;
    if let Ok(compiler) = compiler()
        && let Some(arch) = compiler.archs.last()
    {
        let _ = compile_now(TEXT, &format!("sm_{arch}"), "warm");
    }
}

/// `sm_80` for machine code, `compute_80` for PTX. Devices of compute capability 9.0 get `sm_90a`, which allows the
/// instructions that only they have (`kernels/wgmma.cu`).
fn target(compiler: &Compiler, arch: Arch) -> String {
    let number = arch.number();
    if compiler.archs.contains(&number) {
        return format!("sm_{number}{}", if number == 90 { "a" } else { "" });
    }
    let older = compiler.archs.iter().rev().find(|&&a| a < number).or(compiler.archs.first());
    format!("compute_{}", older.copied().unwrap_or(number))
}

fn key(source: &str, target: &str) -> Result<String> {
    let (major, minor) = compiler()?.version;
    Ok(format!("nvrtc {major}.{minor} {target} {}\n{source}", OPTIONS.join(" ")))
}

/// Compiles without the cache. The image ends with a zero byte when it is PTX.
pub(super) fn compile_now(source: &str, target: &str, label: &str) -> Result<Vec<u8>> {
    compile_with(source, target, label, &[])
}

/// [`compile_now`] with more options.
pub(super) fn compile_with(source: &str, target: &str, label: &str, more: &[&str]) -> Result<Vec<u8>> {
    compiler()?;
    translate(source, target, more).map_err(|log| error::kernel_rejected(label, &log))
}

/// The image of a source, or NVRTC's log.
fn translate(source: &str, target: &str, more: &[&str]) -> std::result::Result<Vec<u8>, String> {
    let api = compiler().map_err(|error| error.to_string())?.api;
    let check = |result| api.problem(result).map_or(Ok(()), Err);
    let text = CString::new(source).map_err(|_| "it contains a zero byte")?;
    let mut program = Program { api, handle: std::ptr::null_mut() };
    // SAFETY: both texts end with a zero byte and outlive the call; there are no headers. The call writes one
    // handle.
    check(unsafe {
        let none = std::ptr::null();
        (api.create)(&mut program.handle, text.as_ptr(), c"runnel.cu".as_ptr(), 0, none, none)
    })?;
    let target = format!("--gpu-architecture={target}");
    let options: Vec<CString> = OPTIONS
        .iter()
        .chain([&&*target])
        .chain(more)
        .filter_map(|option| CString::new(*option).ok())
        .collect();
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program is live, and so are the options, each of which ends with a zero byte.
    let result = unsafe { (api.compile)(program.handle, options.len() as c_int, options.as_ptr()) };
    if let Some(problem) = api.problem(result) {
        return Err(program.log().unwrap_or(problem));
    }
    let machine_code = target.contains("=sm_");
    let image = match machine_code {
        true => program.output(api.get_cubin_size, api.get_cubin),
        false => program.output(api.get_ptx_size, api.get_ptx),
    };
    let mut image = image.map_err(|result| api.problem(result).unwrap_or_default())?;
    if !machine_code {
        image.push(0);
    }
    Ok(image)
}

/// An NVRTC program; its handle is null until it is created.
struct Program {
    api: &'static Api,
    handle: Handle,
}

impl Program {
    /// One of the program's outputs: its size, then its bytes.
    fn output(
        &self,
        size: unsafe extern "C" fn(Handle, *mut usize) -> Outcome,
        bytes: unsafe extern "C" fn(Handle, *mut c_char) -> Outcome,
    ) -> std::result::Result<Vec<u8>, Outcome> {
        let mut count = 0;
        // SAFETY: the program is live; the calls write the size, then that many bytes.
        unsafe {
            match size(self.handle, &mut count) {
                0 => {}
                result => return Err(result),
            }
            let mut output = vec![0u8; count];
            match bytes(self.handle, output.as_mut_ptr().cast()) {
                0 => Ok(output),
                result => Err(result),
            }
        }
    }

    fn log(&self) -> Option<String> {
        let log = self.output(self.api.get_log_size, self.api.get_log).ok()?;
        let log = CStr::from_bytes_until_nul(&log).ok()?;
        Some(log.to_string_lossy().into_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: created by `compile_now`, and destroyed once.
            let _ = unsafe { (self.api.destroy)(&mut self.handle) };
        }
    }
}
