//! Kernel programs: what a device runs, as data.
//!
//! A [`Program`] is the structure of a launch: its instructions and dtypes. A [`Launch`] binds it to sizes,
//! pointers and numbers. `cuda` translates programs to CUDA C; `emu` and the host interpret them
//! (`kernel::host`). This module does not depend on operations: elementwise functions and reductions are
//! values ([`MapFn`], [`ReduceFn`]) that carry their CUDA text and host code.
//!
//! Note [Fusion never changes a bit]. A register has a class (`f32`, `f64`, `i64`) and a dtype. After
//! **every** instruction the value is rounded or wrapped to its dtype, as if it had been stored and loaded.
//! No executor may contract `a * b + c`. The order in which a reduction combines depends only on the shape,
//! never on strides or on what was fused into it.
//!
//! Note [Kernels never trap]. A kernel that meets a bad index writes (tag, position, value) to its device's
//! fault slot ([`Fault`]) and continues with a harmless index. The next wait raises the error at the line
//! that launched the kernel.

pub mod cuda;
mod functions;
pub mod host;
mod kind;
mod kinds;
mod launch;
mod listing;
pub mod philox;

pub use functions::{
    CAST, COMPLEX, ComplexFn, CudaText, HostMap, MapFn, ReduceFn, Reg, RegMut, SELECT, Unrolled,
};
pub use kind::{Identity, Kind, Program};
pub use kinds::*;
pub use launch::{Beside, Fault, Indexed, Launch, Padding, Ptr, View};
