//! Fourier transforms on the CPU with `rustfft` and `realfft`, line by line; lines run in parallel.
//!
//! A transform of several dimensions transforms the lines along each dimension. The result bits do not depend
//! on the number of threads, but may depend on the machine's vector width, since `rustfft` does.

mod long;

use super::positions::element;
use super::tasks::{self, Until, threads};
use crate::array::Dtype;
use crate::kernel::Launch;
use crate::kernel::fft::{Fft, FftPlan, FftSpec, Transform};
use long::Line;
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{FftDirection, FftNum, FftPlanner};
use smallvec::SmallVec;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// The number of adjacent lines processed together: a cache line of `c64`.
const SIDE: usize = 8;

/// A plan of the host.
struct Plan {
    spec: FftSpec,
    single: OnceLock<Lines<f32>>,
    double: OnceLock<Lines<f64>>,
}

/// The line transforms along each dimension, in one precision.
struct Lines<T: FftNum> {
    /// Per dimension: forwards, backwards.
    complex: SmallVec<[[Line<T>; 2]; 3]>,
    from_real: Option<FromReal<T>>,
    to_real: Option<ToReal<T>>,
}

/// The transform of real lines. Long lines use the complex transform.
enum FromReal<T: FftNum> {
    Short(Arc<dyn RealToComplex<T>>),
    Long(Line<T>),
}

/// The inverse of [`FromReal`].
enum ToReal<T: FftNum> {
    Short(Arc<dyn ComplexToReal<T>>),
    Long(Line<T>),
}

/// Makes a plan for the host and emulated devices.
pub fn plan(spec: &FftSpec) -> Arc<dyn FftPlan> {
    let plan = Plan { spec: spec.clone(), single: OnceLock::new(), double: OnceLock::new() };
    plan.prepare();
    Arc::new(plan)
}

impl Plan {
    /// Plans once.
    fn prepare(&self) {
        match self.spec.part {
            Dtype::F64 => drop(self.double.get_or_init(|| Lines::new(&self.spec))),
            _ => drop(self.single.get_or_init(|| Lines::new(&self.spec))),
        }
    }
}

impl FftPlan for Plan {
    fn workspace(&self) -> u64 {
        0
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<T: FftNum> Lines<T> {
    fn new(spec: &FftSpec) -> Lines<T> {
        let mut planner = FftPlanner::new();
        let mut real = RealFftPlanner::new();
        let last = spec.extents.last().copied().unwrap_or(1);
        let whole = match spec.transform {
            Transform::Complex => spec.extents.len(),
            _ => spec.extents.len().saturating_sub(1),
        };
        let [forward, inverse] = [FftDirection::Forward, FftDirection::Inverse];
        let is_long = last > long::LONGEST;
        let from_real = (spec.transform == Transform::FromReal).then(|| match is_long {
            true => FromReal::Long(Line::new(&mut planner, last, forward)),
            false => FromReal::Short(real.plan_fft_forward(last)),
        });
        let to_real = (spec.transform == Transform::ToReal).then(|| match is_long {
            true => ToReal::Long(Line::new(&mut planner, last, inverse)),
            false => ToReal::Short(real.plan_fft_inverse(last)),
        });
        let both = |&n: &usize| [forward, inverse].map(|direction| Line::new(&mut planner, n, direction));
        Lines { complex: spec.extents[..whole].iter().map(both).collect(), from_real, to_real }
    }
}

/// Runs a transform.
///
/// # Safety
/// The launch upholds its invariant, the out view is aligned, and nothing else accesses the memory it reads
/// or writes during the call.
pub(in crate::kernel) unsafe fn run(fft: &Fft, launch: &Launch) {
    let Some(plan) = fft.plan.as_any().downcast_ref::<Plan>() else { return };
    // SAFETY: guaranteed by the caller; the precision is the plan's.
    unsafe {
        match fft.spec.part {
            Dtype::F64 => {
                let lines = plan.double.get_or_init(|| Lines::new(&plan.spec));
                transform::<f64>(lines, fft, launch);
            }
            _ => {
                let lines = plan.single.get_or_init(|| Lines::new(&plan.spec));
                transform::<f32>(lines, fft, launch);
            }
        }
    }
}

unsafe fn transform<T: FftNum>(lines: &Lines<T>, fft: &Fft, launch: &Launch) {
    let (spec, until) = (&fft.spec, Until::now());
    let [input, out] = [0, 1].map(|view| &launch.views[view]);
    let signal: usize = spec.extents.iter().product();
    let half = spec.half();
    let spectrum: usize = half.iter().product();
    let direction = usize::from(fft.inverse);
    let last = spec.extents.last().copied().unwrap_or(1);
    match spec.transform {
        Transform::Complex => {
            let count = signal * spec.batch;
            let (from, to) = (element::<u8>(input), element::<Complex<T>>(out));
            // SAFETY: both views hold this many elements, and they belong to different tensors.
            let to = unsafe {
                super::bytes::copy(to.cast(), from, count * size_of::<Complex<T>>());
                std::slice::from_raw_parts_mut(to, count)
            };
            along_all(lines, to, &spec.extents, direction);
        }
        Transform::FromReal => {
            let Some(forward) = &lines.from_real else { return };
            let rows = signal / last * spec.batch;
            // SAFETY: the out view holds this many elements.
            let to =
                unsafe { std::slice::from_raw_parts_mut(element::<Complex<T>>(out), spectrum * spec.batch) };
            // SAFETY: the input holds this many rows.
            unsafe { from_real(forward, element::<u8>(input) as usize, to, [rows, last], &until) };
            along_all(lines, to, &half, 0);
        }
        Transform::ToReal => {
            let Some(backward) = &lines.to_real else { return };
            let count = spectrum * spec.batch;
            let mut from = zeros::<T>(count);
            // SAFETY: the views hold this many elements.
            let to = unsafe {
                let bytes = count * size_of::<Complex<T>>();
                super::bytes::copy(from.as_mut_ptr().cast(), element::<u8>(input), bytes);
                std::slice::from_raw_parts_mut(element::<T>(out), signal * spec.batch)
            };
            along_all(lines, &mut from, &half, 1);
            to_real(backward, &mut from, to, last, &until);
        }
    }
}

/// Transforms rows of `last` real numbers, which may be unaligned.
///
/// # Safety
/// `from` is the address of this many rows.
unsafe fn from_real<T: FftNum>(
    transform: &FromReal<T>,
    from: usize,
    to: &mut [Complex<T>],
    [rows, last]: [usize; 2],
    until: &Until,
) {
    let held = last / 2 + 1;
    let bytes = last * size_of::<T>();
    let read = |i: usize, line: &mut [T]| {
        let from = (from + i * bytes) as *const u8;
        // SAFETY: guaranteed by the caller; `line` holds one row.
        unsafe { super::bytes::copy(line.as_mut_ptr().cast(), from, bytes) };
    };
    match transform {
        FromReal::Short(transform) => {
            let space = || (vec![T::zero(); last], transform.make_scratch_vec());
            let row = |(line, scratch): &mut (Vec<T>, Vec<Complex<T>>), i: usize, to: &mut [Complex<T>]| {
                read(i, line);
                // Can fail only on wrong lengths; these are the plan's.
                let _ = transform.process_with_scratch(line, to, scratch);
            };
            let base = to.as_mut_ptr() as usize;
            tasks::each_with(rows, threads(rows * last * 8) > 1, space, |space, i| {
                // SAFETY: the row lies in `to`; rows are disjoint.
                row(space, i, unsafe { part(base, i, held) });
            });
        }
        FromReal::Long(line) => {
            let mut whole = zeros::<T>(last);
            for (i, to) in to.chunks_exact_mut(held).enumerate() {
                if until.ended() {
                    return;
                }
                let row = from + i * bytes;
                long::each_element(&mut whole, |k, z| {
                    // SAFETY: guaranteed by the caller.
                    let x = unsafe { (row as *const T).add(k).read_unaligned() };
                    *z = Complex::new(x, T::zero());
                });
                line.run(&mut whole);
                long::each_element(to, |k, z| *z = whole[k]);
            }
        }
    }
}

/// Transforms half spectra to rows of `last` real numbers. Ignores parts that a real signal's spectrum cannot
/// have.
fn to_real<T: FftNum>(
    transform: &ToReal<T>,
    from: &mut [Complex<T>],
    to: &mut [T],
    last: usize,
    until: &Until,
) {
    let held = last / 2 + 1;
    match transform {
        ToReal::Short(transform) => {
            let row = |scratch: &mut Vec<Complex<T>>, from: &mut [Complex<T>], to: &mut [T]| {
                if let Some(first) = from.first_mut() {
                    first.im = T::zero();
                }
                if last.is_multiple_of(2)
                    && let Some(middle) = from.last_mut()
                {
                    middle.im = T::zero();
                }
                // Can fail only on wrong lengths; these are the plan's.
                let _ = transform.process_with_scratch(from, to, scratch);
            };
            let space = || transform.make_scratch_vec();
            let (count, threaded) = (to.len() / last, threads(from.len() * 8) > 1);
            let (from, to) = (from.as_mut_ptr() as usize, to.as_mut_ptr() as usize);
            tasks::each_with(count, threaded, space, |space, i| {
                // SAFETY: the rows lie in `from` and `to`; rows are disjoint.
                unsafe { row(space, part(from, i, held), part(to, i, last)) };
            });
        }
        ToReal::Long(line) => {
            let mut whole = zeros::<T>(last);
            for (from, to) in from.chunks_exact(held).zip(to.chunks_exact_mut(last)) {
                if until.ended() {
                    return;
                }
                long::each_element(&mut whole, |k, z| {
                    *z = match k {
                        0 => Complex::new(from[0].re, T::zero()),
                        k if 2 * k == last => Complex::new(from[k].re, T::zero()),
                        k if k < held => from[k],
                        k => from[last - k].conj(),
                    }
                });
                line.run(&mut whole);
                long::each_element(to, |k, x| *x = whole[k].re);
            }
        }
    }
}

/// Number `i` of the rows of `length` elements that start at `base`.
///
/// # Safety
/// The row lies in memory that nothing else uses.
unsafe fn part<'a, E>(base: usize, i: usize, length: usize) -> &'a mut [E] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut((base as *mut E).add(i * length), length) }
}

#[cfg(test)]
thread_local! {
    /// The number of buffers that this thread has made.
    static BUFFERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A zeroed buffer. Pages of a large buffer are cleared on first use, by the threads that use them, so this
/// takes no time.
fn zeros<T: FftNum>(count: usize) -> Vec<Complex<T>> {
    #[cfg(test)]
    BUFFERS.with(|made| made.set(made.get() + 1));
    let Ok(layout) = Layout::array::<Complex<T>>(count) else { return Vec::new() };
    if layout.size() == 0 {
        return Vec::new();
    }
    // SAFETY: the layout has a size. The vector owns memory of the global allocator, and zero bytes are 0: `T` is `f32`
    // or `f64`.
    unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Vec::from_raw_parts(start.cast(), count, count)
    }
}

fn zero<T: FftNum>() -> Complex<T> {
    Complex::new(T::zero(), T::zero())
}

/// Transforms in place along every dimension with a complex transform, the last one first.
fn along_all<T: FftNum>(lines: &Lines<T>, data: &mut [Complex<T>], extents: &[usize], direction: usize) {
    for (d, transforms) in lines.complex.iter().enumerate().rev() {
        let inner: usize = extents[d + 1..].iter().product();
        along(&transforms[direction], data, inner);
    }
}

/// Transforms the lines whose elements are `inner` apart.
fn along<T: FftNum>(line: &Line<T>, data: &mut [Complex<T>], inner: usize) {
    let length = line.len();
    if length <= 1 || data.is_empty() {
        return;
    }
    let Line::Short(transform) = line else { return along_long(line, data, inner) };
    let threaded = threads(data.len() * 8) > 1;
    let scratch = || vec![zero::<T>(); transform.get_inplace_scratch_len()];
    if inner == 1 {
        let base = data.as_mut_ptr() as usize;
        return tasks::each_with(data.len() / length, threaded, scratch, |scratch, number| {
            // SAFETY: the line lies in `data`; lines are disjoint.
            let line = unsafe {
                std::slice::from_raw_parts_mut((base as *mut Complex<T>).add(number * length), length)
            };
            transform.process_with_scratch(line, scratch);
        });
    }
    let blocks = inner.div_ceil(SIDE);
    let outer = data.len() / (length * inner);
    let base = data.as_mut_ptr() as usize;
    let space = || (vec![zero::<T>(); length * SIDE], scratch());
    let block = |(lines, scratch): &mut (Vec<Complex<T>>, Vec<Complex<T>>), number: usize| {
        let (plane, first) = (number / blocks, number % blocks * SIDE);
        let side = SIDE.min(inner - first);
        let at = |k: usize, j: usize| {
            (base as *mut Complex<T>).wrapping_add((plane * length + k) * inner + first + j)
        };
        for k in 0..length {
            for j in 0..side {
                // SAFETY: the element lies in `data`; blocks are disjoint.
                lines[j * length + k] = unsafe { at(k, j).read() };
            }
        }
        transform.process_with_scratch(&mut lines[..side * length], scratch);
        for k in 0..length {
            for j in 0..side {
                // SAFETY: as above.
                unsafe { at(k, j).write(lines[j * length + k]) };
            }
        }
    };
    tasks::each_with(outer * blocks, threaded, space, block);
}

/// As [`along`], for long lines: one after another, each on all threads.
fn along_long<T: FftNum>(line: &Line<T>, data: &mut [Complex<T>], inner: usize) {
    let (length, until) = (line.len(), Until::now());
    if inner == 1 {
        return data.chunks_exact_mut(length).take_while(|_| !until.ended()).for_each(|data| line.run(data));
    }
    let mut space = zeros::<T>(length);
    for plane in data.chunks_exact_mut(length * inner) {
        for first in 0..inner {
            if until.ended() {
                return;
            }
            long::each_element(&mut space, |k, z| *z = plane[k * inner + first]);
            line.run(&mut space);
            let plane = plane.as_mut_ptr() as usize;
            long::each_element(&mut space, |k, z| {
                // SAFETY: the element lies in `plane`, and each is written once.
                unsafe { (plane as *mut Complex<T>).add(k * inner + first).write(*z) };
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::host::complex::{C64, C128};
    use crate::kernel::{Program, View};
    use proptest::prelude::*;
    use smallvec::smallvec;

    fn launch(spec: &FftSpec, inverse: bool, from: u64, to: u64) -> Launch {
        let plan = plan(spec);
        let (complex, real) = (spec.part.complex(), spec.part);
        let (input, out) = match spec.transform {
            Transform::Complex => (complex, complex),
            Transform::FromReal => (real, complex),
            Transform::ToReal => (complex, real),
        };
        let view = |ptr, dtype| View::new(ptr, dtype, Default::default());
        Launch::new(
            Arc::new(Program::new(&Fft { spec: spec.clone(), inverse, plan })),
            std::iter::once(spec.batch).chain(spec.extents.iter().copied()).collect(),
            smallvec![view(from, input), view(to, out)],
        )
    }

    fn execute<A: Clone, B: Clone + Default>(
        spec: &FftSpec,
        inverse: bool,
        input: &[A],
        count: usize,
    ) -> Vec<B> {
        let mut out = vec![B::default(); count];
        let launch = launch(spec, inverse, input.as_ptr() as u64, out.as_mut_ptr() as u64);
        // SAFETY: both vectors hold what the spec says.
        unsafe { super::super::run(&launch, &super::super::FaultSlot::default()) };
        out
    }

    /// The definition, applied dimension by dimension.
    fn slow(data: &[C128], batch: usize, extents: &[usize], inverse: bool) -> Vec<C128> {
        let mut data = data.to_vec();
        let turn = std::f64::consts::TAU * if inverse { 1.0 } else { -1.0 };
        for d in 0..extents.len() {
            let (n, inner) = (extents[d], extents[d + 1..].iter().product::<usize>());
            let outer = batch * extents[..d].iter().product::<usize>();
            let from = data.clone();
            for o in 0..outer {
                for i in 0..inner {
                    for k in 0..n {
                        data[(o * n + k) * inner + i] = (0..n)
                            .map(|j| {
                                from[(o * n + j) * inner + i]
                                    * C128::from_polar(1.0, turn * (j * k % n) as f64 / n as f64)
                            })
                            .sum();
                    }
                }
            }
        }
        data
    }

    fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn spec(transform: Transform, part: Dtype, extents: &[usize], batch: usize) -> FftSpec {
        FftSpec { transform, part, extents: extents.into(), batch }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn transforms_are_their_definition(
            extents in proptest::collection::vec(1usize..14, 1..4),
            batch in 1usize..4,
            inverse: bool,
            seed: u64,
        ) {
            let count = batch * extents.iter().product::<usize>();
            let parts = noise(2 * count, seed);
            let data: Vec<C128> = parts.chunks_exact(2).map(|p| C128::new(p[0], p[1])).collect();
            let want = slow(&data, batch, &extents, inverse);
            let whole = spec(Transform::Complex, Dtype::F64, &extents, batch);
            let got: Vec<C128> = execute(&whole, inverse, &data, count);
            prop_assert!(got.iter().zip(&want).all(|(a, b)| (a - b).norm() < 1e-10 * count as f64));
            // The sum of squares is preserved up to a factor of the number of elements.
            let energy = |x: &[C128]| x.iter().map(|z| z.norm_sqr()).sum::<f64>();
            let signal = (count / batch) as f64;
            prop_assert!((energy(&got) - signal * energy(&data)).abs() < 1e-9 * signal * (1.0 + energy(&data)));
            let single: Vec<C64> = data.iter().map(|z| C64::new(z.re as f32, z.im as f32)).collect();
            let got: Vec<C64> =
                execute(&FftSpec { part: Dtype::F32, ..whole }, inverse, &single, count);
            let near = |a: &C64, b: &C128| (f64::from(a.re) - b.re).hypot(f64::from(a.im) - b.im);
            prop_assert!(got.iter().zip(&want).all(|(a, b)| near(a, b) < 1e-5 * count as f64));
        }

        #[test]
        fn real_transforms_are_half_of_complex_ones_and_come_back(
            extents in proptest::collection::vec(1usize..14, 1..4),
            batch in 1usize..4,
            seed: u64,
        ) {
            let signal = extents.iter().product::<usize>();
            let data = noise(batch * signal, seed);
            let forward = spec(Transform::FromReal, Dtype::F64, &extents, batch);
            let half = forward.half();
            let spectrum: Vec<C128> =
                execute(&forward, false, &data, batch * half.iter().product::<usize>());
            let complex: Vec<C128> = data.iter().map(|&x| C128::new(x, 0.0)).collect();
            let want = slow(&complex, batch, &extents, false);
            let (n, held) = (extents[extents.len() - 1], half[half.len() - 1]);
            for (row, line) in spectrum.chunks_exact(held).enumerate() {
                for (k, z) in line.iter().enumerate() {
                    prop_assert!((z - want[row * n + k]).norm() < 1e-10 * signal as f64);
                }
            }
            let backward = FftSpec { transform: Transform::ToReal, ..forward };
            let back: Vec<f64> = execute(&backward, true, &spectrum, batch * signal);
            let size = signal as f64;
            prop_assert!(back.iter().zip(&data).all(|(a, b)| (a / size - b).abs() < 1e-12 * (1.0 + size)));
        }
    }

    #[test]
    fn large_transforms_share_their_lines_and_keep_their_bits() {
        let whole = spec(Transform::Complex, Dtype::F32, &[64, 48, 40], 3);
        let data: Vec<C64> = noise(2 * 3 * 64 * 48 * 40, 7)
            .chunks_exact(2)
            .map(|p| C64::new(p[0] as f32, p[1] as f32))
            .collect();
        let parallel: Vec<C64> = execute(&whole, false, &data, data.len());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let serial: Vec<C64> = pool.install(|| execute(&whole, false, &data, data.len()));
        assert!(parallel == serial);
    }

    #[test]
    fn parts_that_no_real_signal_has_are_not_read() {
        let backward = spec(Transform::ToReal, Dtype::F64, &[4], 1);
        let clean = [C128::new(1.0, 0.0), C128::new(2.0, 3.0), C128::new(4.0, 0.0)];
        let dirty = [C128::new(1.0, 9.0), C128::new(2.0, 3.0), C128::new(4.0, -5.0)];
        assert_eq!(
            execute::<_, f64>(&backward, true, &clean, 4),
            execute::<_, f64>(&backward, true, &dirty, 4)
        );
    }
}
