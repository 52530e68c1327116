//! Errors of the CUDA backend that no other backend has.

use crate::base::{Code, Error, ErrorKind};
use std::ffi::CStr;
use std::path::Path;

/// Every code of this module.
pub static CODES: &[&Code] =
    &[&NO_DRIVER, &NO_DEVICE, &OLD_DRIVER, &NO_LIBRARY, &KERNEL_REJECTED, &PROGRAM_TOO_LARGE];

/// The NVIDIA driver's library is not on this machine.
pub static NO_DRIVER: Code = Code {
    id: "E0810",
    kind: ErrorKind::Device,
    title: "no CUDA driver",
    page: "The library of NVIDIA's driver (`libcuda.so.1`, `nvcuda.dll`) was not found, or it would not \
           start.\n\nInstall NVIDIA's driver; in a container, start it with access to the GPU \
           (`--gpus all`). Without a GPU, `--backend emu` runs every script on emulated devices.",
    example: "",
};

/// The driver sees no device.
pub static NO_DEVICE: Code = Code {
    id: "E0811",
    kind: ErrorKind::Device,
    title: "no CUDA device",
    page: "NVIDIA's driver works, but no device is visible to this process.\n\nLook at \
           `CUDA_VISIBLE_DEVICES`: an empty value hides every device. `nvidia-smi -L` lists what the \
           machine has.",
    example: "",
};

/// The driver lacks functions that Runnel calls.
pub static OLD_DRIVER: Code = Code {
    id: "E0812",
    kind: ErrorKind::Device,
    title: "CUDA driver too old",
    page: "Runnel needs a driver for CUDA 12.0 or newer (525 or newer on Linux).\n\nUpdate NVIDIA's \
           driver.",
    example: "",
};

/// A CUDA library that comes with the toolkit is missing.
pub static NO_LIBRARY: Code = Code {
    id: "E0813",
    kind: ErrorKind::Cuda,
    title: "CUDA library not found",
    page: "Kernels that ship with Runnel do most work on any machine with NVIDIA's driver. NVRTC compiles faster ones, \
           and those for functions that an embedding program defines in CUDA C; cuBLAS and cuFFT make matrix products \
           and Fourier transforms faster. These come with the CUDA toolkit, not with the driver. Groups of several \
           processes need NCCL, which is a separate package.\n\nThe libraries of CUDA 13 and of CUDA 12 both serve; those of CUDA 13 need a driver for CUDA \
           13. They are looked for on the system's library path, then under `CUDA_HOME`, `CUDA_PATH` and \
           `/usr/local/cuda`, then among the packages of the active Python environment (`VIRTUAL_ENV`, \
           `CONDA_PREFIX`). `runnel devices` shows what was found.\n\nInstall the toolkit; or the packages \
           `nvidia-cuda-nvrtc`, `nvidia-cublas`, `nvidia-cufft` and `nvidia-nccl-cu13`, for CUDA 12 those with \
           `-cu12` at the end of their names, and add their folders to `LD_LIBRARY_PATH`.",
    example: "",
};

/// NVRTC refused a kernel.
pub static KERNEL_REJECTED: Code = Code {
    id: "E0814",
    kind: ErrorKind::Cuda,
    title: "kernel does not compile",
    page: "NVRTC refused the source of a kernel; its log is in the message. For a kernel written in a \
           script, the log's line numbers count from the start of its text. For one of Runnel's own \
           kernels, this is a bug in Runnel: please report the message.",
    example: "",
};

/// A fused program has more operands than a kernel can take.
pub static PROGRAM_TOO_LARGE: Code = Code {
    id: "E0815",
    kind: ErrorKind::Limit,
    title: "kernel program too large",
    page: "A kernel takes its addresses, strides and numbers as parameters, and there is room for 4 KiB \
           of them.",
    example: "",
};

/// No driver library; `why` is the message of the loader or the driver.
pub fn no_driver(why: &str) -> Error {
    Error::new(&NO_DRIVER, format!("no usable NVIDIA driver: {why}"))
        .help("install NVIDIA's driver, or run with `--backend emu`")
}

/// A driver without visible devices.
pub fn no_device() -> Error {
    Error::new(&NO_DEVICE, "NVIDIA's driver shows no device to this process")
        .help("check `CUDA_VISIBLE_DEVICES`, or run with `--backend emu`")
}

/// A driver version (from `cuDriverGetVersion`) below the required one.
pub fn old_driver(version: i32) -> Error {
    let (major, minor) = (version / 1000, version % 1000 / 10);
    Error::new(&OLD_DRIVER, format!("the NVIDIA driver supports CUDA {major}.{minor}, and 12.0 is needed"))
        .help("update NVIDIA's driver")
}

/// `name`: `NVRTC`, `cuBLAS`; `files`: the names searched for; `install`: what to install.
pub fn no_library(name: &str, files: &[&str], install: &str) -> Error {
    let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
    Error::new(&NO_LIBRARY, format!("{name} was not found (looked for {})", files.join(" and ")))
        .help(format!("install {install}; or add its folder to `LD_LIBRARY_PATH`"))
}

/// A library lacks a function that Runnel calls.
pub(super) fn incomplete_library(file: &Path, function: &CStr) -> Error {
    let (file, function) = (file.display(), function.to_string_lossy());
    Error::new(&NO_LIBRARY, format!("`{file}` has no function `{function}`"))
        .help("install a newer version of the library")
}

/// A library that is too old; both versions as text.
#[cfg(feature = "dist")]
pub(super) fn old_library(name: &str, version: &str, oldest: &str) -> Error {
    Error::new(&NO_LIBRARY, format!("{name} has version {version}, and {oldest} is needed"))
        .help("install a newer version of the library")
}

/// NVRTC's log for the program `label`.
pub fn kernel_rejected(label: &str, log: &str) -> Error {
    Error::new(&KERNEL_REJECTED, format!("the kernel `{label}` does not compile: {}", log.trim()))
}

/// `words` parameter words exceed the limit.
pub fn program_too_large(words: usize) -> Error {
    Error::new(
        &PROGRAM_TOO_LARGE,
        format!("a fused program needs {words} parameter words, more than a kernel takes"),
    )
}
