//! The CUDA backend: drivers of real devices. Only this folder uses the bindings.
//!
//! `probe` finds the driver and the devices, `dynamic` the libraries above it; `driver` is one device's
//! [`Driver`](crate::driver::Driver) over its primary context, together with `memory`, `mapping` and
//! `stream`; `nvrtc` compiles the CUDA C of kernel programs (`kernel::cuda`) behind the cache on disk
//! (`kernel_cache`), `background` does so beside other work, and `library` keeps the loaded kernels; `queue`
//! and `scratch` queue one launch on a stream, `graph` many at once; `blas` is cuBLAS, `fft` cuFFT, `nccl`
//! NCCL. Independent of tensors, operations, races or the allocator.
//!
//! Invariant: the bindings are called only after `probe` has found the driver, and every result is checked.

mod background;
mod blas;
mod compilers;
mod context;
mod driver;
mod dynamic;
pub mod error;
mod fault;
mod fft;
mod find;
mod graph;
mod library;
mod link;
mod mapping;
mod memory;
#[cfg(feature = "dist")]
mod nccl;
mod nvrtc;
mod probe;
mod queue;
mod ready;
mod ready_tests;
mod scratch;
mod shipped;
mod shipped_tests;
mod sources;
mod stream;
mod tiles;
mod translated_tests;

/// Ends the background work of all devices: the process is about to exit.
pub fn prepare_exit() {
    background::prepare_exit();
}

/// Loads cuBLAS in the background, for `f32` or for halves, on devices that are open or opened later.
pub fn expect_products(halves: bool) {
    driver::expect_products(halves);
}

/// Loads cuFFT in the same way.
pub fn expect_transforms() {
    driver::expect_transforms();
}

/// Tests on a real device, next to the other suites that need special hardware.
#[cfg(test)]
#[path = "../../../tests/gpu/mod.rs"]
mod gpu;

#[cfg(test)]
pub(crate) use gpu::on_cpu::interpret as interpret_on_cpu;

/// The functions that translated programs contain.
#[cfg(test)]
pub(crate) fn shipped_functions() -> crate::kernel::cuda::translate::bodies::Bodies {
    ready::read_bodies(1, true).unwrap()
}

/// True when the kernels of a source ship.
#[cfg(test)]
pub(crate) fn ships(text: &str) -> bool {
    shipped::has(text, nvrtc::Arch { major: 9, minor: 0 })
}

/// Prints that a test is skipped, and adds a line to the file named by `RUNNEL_SKIPPED`: what is missing, and the test.
/// CI prints how many there are.
#[cfg(test)]
fn skip(need: &str, why: impl std::fmt::Display) {
    use std::io::Write;
    println!("skipped: {why}");
    let Some(path) = std::env::var_os("RUNNEL_SKIPPED") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    let test = std::thread::current().name().unwrap_or("?").to_string();
    file.write_all(format!("{need}\t{test}\n").as_bytes()).unwrap();
}

pub use compilers::use_processes;
pub use driver::open;
pub use dynamic::{LibraryInfo, libraries};
pub use find::find;
pub use nvrtc::arch_list;
pub use probe::{Probe, probe};
pub use stream::set_interrupt;
