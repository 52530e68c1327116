//! CUDA C to machine code: NVRTC, behind the disk cache.

use super::{error, probe};
use crate::base::Result;
use crate::device::kernel_cache::Cache;
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

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

/// The compiler that was found.
struct Compiler {
    version: (i32, i32),
    /// Compute capabilities it can make machine code for, ascending.
    archs: Vec<u32>,
}

/// Rounding is part of Runnel's semantics: no contraction to fused multiply-add, denormals kept,
/// division and square root as IEEE has them. Source: Note [Fusion never changes a bit].
const OPTIONS: [&str; 6] =
    ["--std=c++17", "--device-int128", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

fn compiler() -> Result<&'static Compiler> {
    static FOUND: OnceLock<Option<Compiler>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if !probe::load("nvrtc", sys::is_culib_present) {
            return None;
        }
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the library is there; the calls write integers, as many archs as they counted.
        unsafe {
            sys::nvrtcVersion(&mut major, &mut minor).result().ok()?;
            sys::nvrtcGetNumSupportedArchs(&mut count).result().ok()?;
            let mut archs = vec![0; usize::try_from(count).ok()?];
            sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()).result().ok()?;
            let mut archs: Vec<u32> = archs.into_iter().map(i32::unsigned_abs).collect();
            archs.sort_unstable();
            Some(Compiler { version: (major, minor), archs })
        }
    });
    found.as_ref().ok_or_else(|| error::no_library("NVRTC", &probe::file_name("nvrtc")))
}

/// The compute capabilities that NVRTC knows, as `torch.cuda.get_arch_list` names them: `sm_90`.
/// Empty without NVRTC.
pub fn arch_list() -> Vec<String> {
    compiler().map_or(Vec::new(), |c| c.archs.iter().map(|arch| format!("sm_{arch}")).collect())
}

/// The image for a source when the cache has it.
pub(super) fn cached(source: &str, arch: Arch) -> Option<Vec<u8>> {
    let target = target(compiler().ok()?, arch);
    Cache::of_user()?.get(&key(source, &target).ok()?)
}

/// Compiles a source, or takes it from the cache; true when it was there. The image is a cubin for this very arch; PTX for
/// the nearest older arch when NVRTC does not know it. `label` names the program in errors.
pub(super) fn compile(source: &str, arch: Arch, label: &str) -> Result<(Vec<u8>, bool)> {
    let compiler = compiler()?;
    let target = target(compiler, arch);
    let key = key(source, &target)?;
    let cache = Cache::of_user();
    if let Some(image) = cache.as_ref().and_then(|cache| cache.get(&key)) {
        return Ok((image, true));
    }
    let image = compile_now(source, &target, label)?;
    if let Some(cache) = cache {
        cache.put(&key, &image);
    }
    Ok((image, false))
}

/// `sm_90` for machine code, `compute_90` for PTX.
fn target(compiler: &Compiler, arch: Arch) -> String {
    let number = arch.number();
    if compiler.archs.contains(&number) {
        return format!("sm_{number}");
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
    compiler()?;
    let fail = |e: result::NvrtcError| error::kernel_rejected(label, &format!("{:?}", e.0));
    let text = CString::new(source).map_err(|_| error::kernel_rejected(label, "it contains a zero byte"))?;
    let program = Program(result::create_program(&text, Some(c"runnel.cu")).map_err(fail)?);
    let mut options: Vec<String> = OPTIONS.iter().map(|s| s.to_string()).collect();
    options.push(format!("--gpu-architecture={target}"));
    // SAFETY: the program is live, and the options are plain texts.
    if let Err(e) = unsafe { result::compile_program(program.0, &options) } {
        return Err(error::kernel_rejected(label, &program.log().unwrap_or_else(|| format!("{:?}", e.0))));
    }
    program.image(target.starts_with("sm_")).map_err(fail)
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn image(&self, machine_code: bool) -> std::result::Result<Vec<u8>, result::NvrtcError> {
        let mut size = 0;
        // SAFETY: the program was compiled; the calls write the size, then that many bytes.
        unsafe {
            if machine_code {
                sys::nvrtcGetCUBINSize(self.0, &mut size).result()?;
                let mut image = vec![0u8; size];
                sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()).result()?;
                Ok(image)
            } else {
                sys::nvrtcGetPTXSize(self.0, &mut size).result()?;
                let mut image = vec![0u8; size];
                sys::nvrtcGetPTX(self.0, image.as_mut_ptr().cast()).result()?;
                image.push(0);
                Ok(image)
            }
        }
    }

    fn log(&self) -> Option<String> {
        // SAFETY: the program is live.
        let log = unsafe { result::get_program_log(self.0) }.ok()?;
        // SAFETY: NVRTC ends its log with a zero byte.
        Some(unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `create_program`, destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
