//! Runs kernel programs on the CPU, for host tensors and emulated devices.
//!
//! This module holds what the kinds of programs (`kinds`) share. Maps and reductions cut the
//! launch's shape into tiles and run them through `interp`, which interprets the code over chunks of
//! registers. Operations bring their own loops, made by the macros of [`define`].
//!
//! Invariant: the bits of a result depend only on the program, the shape and the values, not on strides,
//! threads, tiles or the machine's vector width. (Exception: the kernels of a float matrix product differ
//! between machines.)

pub mod bytes;
pub mod complex;
pub mod define;
pub(super) mod element;
mod fault;
pub mod fft;
pub(super) mod fold;
#[cfg(debug_assertions)]
pub(super) mod hazards;
pub(super) mod interp;
pub mod isa;
pub mod math;
pub mod math_f32;
mod math_f64;
pub mod positions;
pub mod quotients;
pub mod scratch;
pub(super) mod tasks;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tests_moves;
#[cfg(test)]
mod tests_order;

pub use element::Element;
pub use fault::FaultSlot;
pub use fold::{Choice, Combine, HostReduce, LANES};

use super::{HostMap, Launch, Reg, RegMut};
use crate::array::Bool;
use complex::{C64, C128};
use define::host_map;

/// Elements per register chunk: four `f64` registers fit in half of a small L1 cache.
pub const CHUNK: usize = 1024;

/// Runs a launch to completion, in parallel when large. Faults go to the slot.
///
/// # Safety
/// Every element that a view of the launch reaches lies in live memory of this process, aligned to its dtype
/// or not. During the call nothing else writes the elements it reads, or accesses those it writes.
pub unsafe fn run(launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe { launch.program.kind.run(launch, faults) }
}

/// [`CAST`](super::CAST): any register to any other, rounded to narrow integers and `bool`. Other
/// integers are converted through `i64` registers.
pub fn cast(args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    /// Converts to every register type from one whose element `a` converts to each class.
    macro_rules! from {
        ($t:ty, |$a:ident| $truth:expr, $whole:expr, $single:expr, $double:expr, $complex:expr, $wide:expr) => {
            host_map!(
                ($a: $t) -> f32: $single, ($a: $t) -> f64: $double, ($a: $t) -> i64: $whole,
                ($a: $t) -> Bool: i64::from($truth), ($a: $t) -> u8: $whole, ($a: $t) -> i32: $whole,
                ($a: $t) -> i16: $whole, ($a: $t) -> i8: $whole, ($a: $t) -> C64: $complex, ($a: $t) -> C128: $wide,
            )
        };
    }
    macro_rules! from_whole {
        ($t:ty) => {
            from!($t, |a| a != 0, a, a as f32, a as f64, C64::from(a as f32), C128::from(a as f64))
        };
    }
    let whole = |reg: Reg<'_>| -> Option<HostMap> {
        match reg {
            Reg::Bool(_) => Some(from_whole!(Bool)),
            Reg::U8(_) => Some(from_whole!(u8)),
            Reg::I8(_) => Some(from_whole!(i8)),
            Reg::I16(_) => Some(from_whole!(i16)),
            Reg::I32(_) => Some(from_whole!(i32)),
            Reg::I64(_) => Some(from_whole!(i64)),
            _ => None,
        }
    };
    let cast: HostMap = match args[0] {
        Reg::F32(_) => {
            from!(f32, |a| a != 0.0, a as i64, a, f64::from(a), C64::from(a), C128::from(f64::from(a)))
        }
        Reg::F64(_) => from!(f64, |a| a != 0.0, a as i64, a as f32, a, C64::from(a as f32), C128::from(a)),
        Reg::C64(_) => from!(
            C64,
            |a| a != C64::default(),
            a.re as i64,
            a.re,
            f64::from(a.re),
            a,
            C128::new(f64::from(a.re), f64::from(a.im))
        ),
        Reg::C128(_) => from!(
            C128,
            |a| a != C128::default(),
            a.re as i64,
            a.re as f32,
            a.re,
            C64::new(a.re as f32, a.im as f32),
            a
        ),
        reg => match whole(reg) {
            Some(cast) => cast,
            None => return false,
        },
    };
    cast(args, out)
}
