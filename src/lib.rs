//! Runnel: a tensor scripting language with PyTorch's CUDA semantics and without its traps.
//!
//! This crate is both the program `runnel` and a library that runs scripts inside other programs. An
//! [`Engine`] is a session over CUDA devices, or over emulated ones where there is no GPU:
//!
//! ```
//! use runnel::{Backend, DeviceId, Engine, Tensor};
//!
//! fn main() -> runnel::Result<()> {
//!     let mut engine = Engine::builder().backend(Backend::Emu).build()?;
//!
//!     // Rust functions and tensors for the script ...
//!     engine.register_fn("rate", |step: i64| 0.5 / (1 + step) as f64);
//!     let w = engine.tensor(&[1.0f32, 2.0, 3.0], &[3], DeviceId::Cuda(1))?;
//!
//!     // ... and the script's functions and values for Rust.
//!     engine.eval::<()>("fn step(w, at) { w - rate(at) * (2 * w) }")?;
//!     let w: Tensor = engine.call("step", (w, 1))?;
//!     assert_eq!(w.device(), DeviceId::Cuda(1));
//!     assert_eq!(engine.read::<f32>(&w)?, [0.5, 1.0, 1.5]);
//!
//!     // Errors have a stable code, a place and a help; nothing prints, exits or panics.
//!     let error = engine.eval::<i64>("let n = 1\nn + missing").unwrap_err();
//!     assert!(engine.report(&error).contains("missing"));
//!     Ok(())
//! }
//! ```
//!
//! This page lists the public API. The language itself is described in the repository's
//! `README.md` and `docs/`.

/// The tests run the Rust code of these documents.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/language.md")]
    struct Tutorial;
}

#[doc(hidden)]
pub mod array;
#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod check;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod device;
#[doc(hidden)]
pub mod driver;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod files;
#[cfg(feature = "dist")]
#[doc(hidden)]
pub mod group;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod library;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod stream;
#[doc(hidden)]
pub mod syntax;
#[doc(hidden)]
pub mod tensor;
#[doc(hidden)]
pub mod vm;

pub use array::Dtype;
pub use base::{Code, Error, ErrorKind, Result, SourceMap};
pub use device::Backend;
pub use driver::DeviceId;
pub use engine::{
    Arguments, Array, Builder, Described, Dlpack, DlpackDevice, DlpackDtype, DlpackManaged, DlpackVersion,
    DlpackView, Element, Engine, FromValue, Function, FunctionType, HostFunction, HostMethod, HostModule,
    HostType, InterruptHandle, IntoValue, Program, RawTensor, Ready, Shared, Test,
};
pub use num_complex::Complex;
pub use plan::RaceMode;
pub use stream::Stream;
pub use tensor::Tensor;
pub use vm::{Colors, FileAccess, Progress};
