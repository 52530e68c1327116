//! Runs kernel programs on the CPU: for host tensors, and for emulated devices.

pub mod define;
mod fold;
pub mod isa;
pub mod math;

pub use fold::{Choice, Combine, HostReduce, LANES};

use super::{Reg, RegMut};

/// Elements per register chunk: four registers of `f64` fit in half of a small L1 cache.
pub const CHUNK: usize = 1024;

/// [`CAST`](super::CAST): any class to any class, without the rounding to the result's dtype.
pub fn cast(args: &[Reg<'_>], out: RegMut<'_>) {
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
    }
}
