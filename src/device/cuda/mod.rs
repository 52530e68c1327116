//! The CUDA backend: drivers of real devices. The only folder that names the bindings.
//!
//! `probe` says what the machine has and guards every library; `driver` is one device's
//! [`Driver`](super::Driver) over its primary context, with `memory`, `mapping` and `stream` beside it;
//! `nvrtc` compiles the CUDA C of kernel programs (`kernel::cuda`) behind the `cache` on disk, and
//! `library` keeps what is loaded; `queue` and `scratch` carry one launch into a stream, `graph` many
//! at once; `blas` is cuBLAS, `fft` cuFFT, `nccl` NCCL. Knows nothing of tensors, operations, races or the allocator.
//!
//! Invariant: no call into a library that was not probed first, and every result is checked.

mod blas;
pub mod cache;
mod context;
mod driver;
pub mod error;
mod fault;
mod fft;
mod gpu;
mod graph;
mod library;
mod mapping;
mod memory;
mod nccl;
mod nvrtc;
mod probe;
mod queue;
mod scratch;
mod sources;
mod stream;

pub use driver::open;
pub use nvrtc::arch_list;
pub use probe::{Probe, probe};
pub use stream::set_interrupt;
