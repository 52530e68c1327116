//! The kernels that ship with Runnel as machine code: the interpreter of programs (`kernels/interpret.cu`), and those
//! of `kernels/device.cu`. The interpreter of programs with complex numbers is a separate image.
//!
//! An image in `kernels/ready` serves devices of one major compute capability, from one minor version on. A file holds
//! a hash of the source, then the compressed image. Images of a different source are not used.

use super::nvrtc::{self, Arch};
use crate::kernel::cuda::interpret::table::{COMPLEX_FUNCTIONS, FUNCTIONS, complex_source, source};
use crate::kernel::cuda::translate::bodies::{self, Bodies};
use std::io::Read;
use std::sync::OnceLock;

/// The names of the kernels: those of `kernels/device.cu`, and the interpreter.
pub(super) const ENTRIES: [&str; 3] = ["fill64", "pause", "interpret"];

/// The index of the interpreter in [`ENTRIES`].
pub(super) const INTERPRET: usize = 2;

/// The kernel of the image for complex numbers.
pub(super) const COMPLEX_ENTRIES: [&str; 1] = ["interpret"];

/// An image.
pub(super) struct File {
    pub arch: Arch,
    /// The version of NVRTC that made it.
    pub compiler: &'static str,
    pub bytes: &'static [u8],
    /// The interpreter of programs with complex numbers.
    pub complex: &'static [u8],
    /// The version that made the images of `shipped`.
    #[cfg(test)]
    pub kinds_compiler: &'static str,
    /// The images of `shipped`.
    pub kinds: &'static [u8],
}

macro_rules! files {
    ($($compiler:literal: $($arch:literal = ($major:literal, $minor:literal) $kinds:literal),+;)+) => {
        &[$($(File {
            arch: Arch { major: $major, minor: $minor },
            compiler: $compiler,
            #[cfg(test)]
            kinds_compiler: $kinds,
            bytes: include_bytes!(concat!("../../../kernels/ready/sm_", $arch, "-", $compiler, ".bin")),
            complex: include_bytes!(concat!("../../../kernels/ready/complex_", $arch, "-", $compiler, ".bin")),
            kinds: include_bytes!(concat!("../../../kernels/ready/kinds_", $arch, "-", $kinds, ".bin")),
        }),+),+]
    };
}

/// All images. Drivers of CUDA 12 load those of NVRTC 12. Kinds other than programs have one image per device, from the
/// oldest compiler that supports the device. Their bits do not depend on the installed NVRTC.
pub(super) static FILES: &[File] = files! {
    "12.0": "75" = (7, 5) "12.0", "80" = (8, 0) "12.0", "90" = (9, 0) "12.0";
    "13.0": "75" = (7, 5) "12.0", "80" = (8, 0) "12.0", "90" = (9, 0) "12.0",
        "100" = (10, 0) "13.0", "120" = (12, 0) "13.0";
};

/// The functions as PTX, by the version of NVRTC that made them: those of real numbers, and those of complex ones.
pub(super) static FUNCTIONS_PTX: [(&str, [&[u8]; 2]); 2] = [
    (
        "12.0",
        [
            include_bytes!("../../../kernels/ready/functions-12.0.bin"),
            include_bytes!("../../../kernels/ready/complex-12.0.bin"),
        ],
    ),
    (
        "13.0",
        [
            include_bytes!("../../../kernels/ready/functions-13.0.bin"),
            include_bytes!("../../../kernels/ready/complex-13.0.bin"),
        ],
    ),
];

/// The sources of the two files of a version.
pub(super) fn functions_sources() -> [String; 2] {
    [bodies::source(FUNCTIONS), bodies::complex_source(COMPLEX_FUNCTIONS)]
}

/// The functions with the bits of the image for this device; without `complex`, only those of real numbers.
/// `None` if the PTX does not support the device.
pub(super) fn bodies(arch: Arch, complex: bool) -> Option<&'static Bodies> {
    static READ: [[OnceLock<Option<Bodies>>; 2]; 2] = [const { [const { OnceLock::new() }; 2] }; 2];
    if arch < (Arch { major: 8, minor: 0 }) {
        return None;
    }
    let compiler = find(arch)?.compiler;
    let at = FUNCTIONS_PTX.iter().position(|(version, _)| *version == compiler)?;
    READ[at][usize::from(complex)].get_or_init(|| read_bodies(at, complex)).as_ref()
}

/// The functions of one of [`FUNCTIONS_PTX`].
pub(super) fn read_bodies(at: usize, complex: bool) -> Option<Bodies> {
    let files = FUNCTIONS_PTX[at].1.iter().zip(functions_sources()).take(1 + usize::from(complex));
    let texts: Option<Vec<_>> =
        files.map(|(file, source)| String::from_utf8(unpack(file, &source)?).ok()).collect();
    Bodies::read(&texts?.concat(), complex)
}

/// The image for a device: from the major version of the installed NVRTC, so that functions have the same bits;
/// otherwise the oldest.
pub(super) fn find(arch: Arch) -> Option<&'static File> {
    let fits = |file: &&File| file.arch.major == arch.major && file.arch.minor <= arch.minor;
    let here = nvrtc::version().unwrap_or_default();
    let major = here.split('.').next().unwrap_or_default();
    let like = |file: &&File| file.compiler.split('.').next() == Some(major);
    FILES.iter().filter(fits).find(like).or_else(|| FILES.iter().find(fits))
}

/// Bytes of the hash.
pub(super) const HEAD: usize = 16;

/// When programs are interpreted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InterpretMode {
    /// While their own kernels are not compiled.
    Meanwhile,
    Always,
    /// Always, by their translations.
    Translated,
    Never,
}

/// `RUNNEL_INTERPRET`: `always`, `translated` or `never`, for tests and measurements.
pub(super) fn interpret_mode() -> InterpretMode {
    static MODE: OnceLock<InterpretMode> = OnceLock::new();
    *MODE.get_or_init(|| match std::env::var("RUNNEL_INTERPRET").as_deref() {
        Ok("always") => InterpretMode::Always,
        Ok("translated") => InterpretMode::Translated,
        Ok("never") => InterpretMode::Never,
        _ => InterpretMode::Meanwhile,
    })
}

/// The image for a device; `None` if this build has none.
pub(super) fn image(arch: Arch) -> Option<Vec<u8>> {
    unpack(find(arch)?.bytes, &source(FUNCTIONS))
}

/// The image for programs with complex numbers.
pub(super) fn complex_image(arch: Arch) -> Option<Vec<u8>> {
    unpack(find(arch)?.complex, &complex_source(FUNCTIONS, COMPLEX_FUNCTIONS))
}

/// A file's image; `None` if it was made from another source.
fn unpack(file: &[u8], source: &str) -> Option<Vec<u8>> {
    let (head, packed) = file.split_at_checked(HEAD)?;
    if head != hash(source) {
        return None;
    }
    let mut content = Vec::new();
    flate2::read::DeflateDecoder::new(packed).read_to_end(&mut content).ok()?;
    Some(content)
}

/// A hash of a source (FNV-1a).
pub(super) fn hash(text: &str) -> [u8; HEAD] {
    crate::driver::kernel_cache::hash(text.as_bytes()).to_le_bytes()
}
