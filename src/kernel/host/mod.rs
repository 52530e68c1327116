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
pub(super) mod interp;
pub mod isa;
pub mod math;
pub mod math_f32;
pub(super) mod positions;
pub(super) mod tasks;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_moves;

pub use fault::FaultSlot;
pub use fold::{Choice, Combine, HostReduce, LANES};

use super::{Launch, Reg, RegMut};
use num_complex::Complex;

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

/// [`CAST`](super::CAST): any class to any class, without rounding to the result's dtype.
pub fn cast(args: &[Reg<'_>], out: RegMut<'_>) {
    fn each<A: Copy, O>(from: &[A], out: &mut [O], f: impl Fn(A) -> O) {
        from.iter().zip(out).for_each(|(&a, o)| *o = f(a));
    }
    match (args[0], out) {
        (Reg::F32(a), RegMut::F32(out)) => out.copy_from_slice(a),
        (Reg::F32(a), RegMut::F64(out)) => a.iter().zip(out).for_each(|(&a, o)| *o = f64::from(a)),
        (Reg::F32(a), RegMut::I64(out)) => a.iter().zip(out).for_each(|(&a, o)| *o = a as i64),
        (Reg::F64(a), RegMut::F32(out)) => a.iter().zip(out).for_each(|(&a, o)| *o = a as f32),
        (Reg::F64(a), RegMut::F64(out)) => out.copy_from_slice(a),
        (Reg::F64(a), RegMut::I64(out)) => a.iter().zip(out).for_each(|(&a, o)| *o = a as i64),
        (Reg::I64(a), RegMut::F32(out)) => a.iter().zip(out).for_each(|(&a, o)| *o = a as f32),
        (Reg::I64(a), RegMut::F64(out)) => a.iter().zip(out).for_each(|(&a, o)| *o = a as f64),
        (Reg::I64(a), RegMut::I64(out)) => out.copy_from_slice(a),
        (Reg::C64(a), RegMut::C64(out)) => out.copy_from_slice(a),
        (Reg::C128(a), RegMut::C128(out)) => out.copy_from_slice(a),
        (Reg::C64(a), RegMut::C128(out)) => {
            each(a, out, |a| Complex::new(f64::from(a.re), f64::from(a.im)));
        }
        (Reg::C128(a), RegMut::C64(out)) => each(a, out, |a| Complex::new(a.re as f32, a.im as f32)),
        (Reg::F32(a), RegMut::C64(out)) => each(a, out, Complex::from),
        (Reg::F32(a), RegMut::C128(out)) => each(a, out, |a| Complex::from(f64::from(a))),
        (Reg::F64(a), RegMut::C64(out)) => each(a, out, |a| Complex::from(a as f32)),
        (Reg::F64(a), RegMut::C128(out)) => each(a, out, Complex::from),
        (Reg::I64(a), RegMut::C64(out)) => each(a, out, |a| Complex::from(a as f32)),
        (Reg::I64(a), RegMut::C128(out)) => each(a, out, |a| Complex::from(a as f64)),
        (Reg::C64(a), RegMut::F32(out)) => each(a, out, |a| a.re),
        (Reg::C64(a), RegMut::F64(out)) => each(a, out, |a| f64::from(a.re)),
        (Reg::C64(a), RegMut::I64(out)) => each(a, out, |a| a.re as i64),
        (Reg::C128(a), RegMut::F32(out)) => each(a, out, |a| a.re as f32),
        (Reg::C128(a), RegMut::F64(out)) => each(a, out, |a| a.re),
        (Reg::C128(a), RegMut::I64(out)) => each(a, out, |a| a.re as i64),
    }
}
