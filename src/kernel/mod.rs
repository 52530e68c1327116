//! Kernel programs: what a device runs, as data.
//!
//! A [`Program`] is the structure of a launch: which instructions, over which dtypes. A [`Launch`]
//! binds it to sizes, pointers and numbers. `cuda` turns programs into CUDA C, `emu` and the host
//! interpret them (`kernel::host`). Nothing here knows an operation: elementwise functions and
//! reductions arrive as values ([`MapFn`], [`ReduceFn`]) that hold their own CUDA text and host code.
//!
//! Note [Fusion never changes a bit]. Registers have a class (`f32`, `f64`, `i64`) and a dtype;
//! after **every** instruction the value is rounded or wrapped to its dtype, exactly as if it had
//! been stored and loaded. No executor may contract `a * b + c`, and the order in which a
//! reduction combines depends on the shape alone, never on strides or on what was fused into it.
//!
//! Note [Kernels never trap]. A bad index writes (tag, position, value) into its device's fault
//! slot ([`Fault`]) and goes on with a harmless index; the next wait raises it at the line that
//! launched it.

pub mod fft;
pub mod host;
mod launch;
mod listing;
mod map;
pub mod philox;
mod program;
mod rows;

pub use launch::{Fault, Launch, Ptr, View};
pub use map::{CAST, COMPLEX, CudaText, HostMap, Instr, Map, MapFn, Reg, RegMut, Regs, Source, Store};
pub use program::{Body, Gather, Matmul, PART_ALIGN, Program, Reduce, ReduceFn, Scan, Scatter, Search, Sort};
pub use rows::{Fold, Rows, Step, Temporary};
