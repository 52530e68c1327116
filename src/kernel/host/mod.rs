//! Runs kernel programs on the CPU, for host tensors and emulated devices.
//!
//! One file per kind of program. `map` and `reduce` cut the launch's shape into tiles and run them through
//! `interp`, which interprets the code over chunks of registers. `fast_path` is for tiny maps.
//! Operations bring their own loops, made by the macros of [`define`].
//!
//! Invariant: the bits of a result depend only on the program, the shape and the values, not on strides,
//! threads, tiles or the machine's vector width. (Exception: the kernels of a float matrix product differ
//! between machines.)

pub mod bytes;
pub mod complex;
pub mod define;
mod element;
mod fast_path;
mod fault;
pub mod fft;
mod fold;
mod gather;
mod interp;
pub mod isa;
mod map;
pub mod math;
pub mod math_f32;
mod matmul;
mod nonzero;
mod pack;
mod reduce;
mod rows;
mod scan;
mod scatter;
mod search;
mod sort;
mod tasks;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_moves;

pub use fault::FaultSlot;
pub use fold::{Choice, Combine, HostReduce, LANES};

use super::{Body, Launch, Reg, RegMut};
use num_complex::Complex;

/// Elements per register chunk: four `f64` registers fit in half of a small L1 cache.
pub const CHUNK: usize = 1024;

/// Runs a launch to its end, in parallel when large. Faults go to the slot.
///
/// # Safety
/// Every element that a view of the launch reaches lies in live memory of this process, aligned to its dtype
/// or not. During the call nothing else writes the elements it reads, or accesses those it writes.
pub unsafe fn run(launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match &launch.program.body {
            Body::Map(map) => map::run(map, launch),
            Body::Reduce(reduce) => reduce::run(reduce, launch),
            Body::Rows(rows) => rows::run(rows, launch),
            Body::Scan(scan) => scan::run(scan, launch),
            Body::Gather(gather) => gather::run(gather, launch, faults),
            Body::Scatter(scatter) => scatter::run(scatter, launch, faults),
            Body::Sort(sort) => sort::run(sort, launch),
            Body::Search(search) => search::run(search, launch),
            Body::NonZero(dtype) => nonzero::run(*dtype, launch),
            Body::Matmul(matmul) => matmul::run(matmul, launch),
            Body::Pack => pack::run(launch),
            Body::Fft(fft) => fft::run(fft, launch),
        }
    }
}

/// Estimates the host memory in bytes that a launch allocates while it runs: proportional to its operands for
/// sorts and products, otherwise a few pages.
pub fn scratch(launch: &Launch) -> u64 {
    let extent = |d: usize| launch.shape.iter().rev().nth(d).map_or(1, |&n| n as u64);
    let product = |a: u64, b: u64, size: u64| a.saturating_mul(b).saturating_mul(size);
    match &launch.program.body {
        Body::Sort(_) => {
            let rows = launch.shape.iter().skip(1).fold(1u64, |all, &n| all.saturating_mul(n as u64));
            product(extent(0), rows.min(rayon::current_num_threads() as u64).max(1), 48)
        }
        Body::Matmul(matmul) => {
            let (k, n, m) = (extent(0), extent(1), extent(2));
            match matmul.dtype {
                dtype if dtype.is_half() => {
                    product(m, k, 4).saturating_add(product(k, n, 4)).saturating_add(product(m, n, 4))
                }
                dtype if dtype.is_float() => 0,
                _ => product(k, n, 8),
            }
        }
        _ => 0,
    }
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
