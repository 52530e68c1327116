//! Transforms of long lines, cut into short ones.
//!
//! One call of `rustfft` over a line of millions of elements runs on one thread and cannot be interrupted. So
//! a long line is cut: by the four-step method (Bailey, "FFTs in external or hierarchical memory", 1990) if
//! its length has a divisor, and by Bluestein's convolution over a power of two if its length is prime. The
//! pieces run on all threads and end early when asked to stop. Twiddle factors are computed in f64 for both
//! precisions.

use super::{along, zeros};
use crate::kernel::host::tasks::{self, ELEMENTS_PER_CHECK, Until, threads};
use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::f64::consts::TAU;
use std::sync::Arc;

/// The longest line that one call of `rustfft` transforms: takes a few milliseconds, 20 for a prime length.
pub(super) const LONGEST: usize = 1 << 18;

/// Rows and columns of a block of a transposition.
const BLOCK: usize = 32;

/// The transform of a line in one direction.
pub(super) enum Line<T: FftNum> {
    Short(Arc<dyn Fft<T>>),
    /// `first` times `second` elements.
    Split {
        first: Box<Line<T>>,
        second: Box<Line<T>>,
        twiddles: Twiddles,
    },
    /// A prime number of elements, as a convolution of the length of `forward`.
    Prime {
        length: usize,
        sign: f64,
        forward: Box<Line<T>>,
        backward: Box<Line<T>>,
    },
}

impl<T: FftNum> Line<T> {
    pub(super) fn new(planner: &mut FftPlanner<T>, length: usize, direction: FftDirection) -> Line<T> {
        Line::cut(planner, length, direction, LONGEST)
    }

    /// As [`Line::new`], with the longest line that is not cut as a parameter.
    fn cut(planner: &mut FftPlanner<T>, length: usize, direction: FftDirection, longest: usize) -> Line<T> {
        if length <= longest {
            return Line::Short(planner.plan_fft(length, direction));
        }
        let sign = if direction == FftDirection::Forward { -1.0 } else { 1.0 };
        let mut part = |length, direction| Box::new(Line::cut(planner, length, direction, longest));
        match middle_divisor(length) {
            1 => {
                let whole = (2 * length).next_power_of_two();
                Line::Prime {
                    length,
                    sign,
                    forward: part(whole, FftDirection::Forward),
                    backward: part(whole, FftDirection::Inverse),
                }
            }
            divisor => Line::Split {
                first: part(divisor, direction),
                second: part(length / divisor, direction),
                twiddles: Twiddles::new(length, sign),
            },
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Line::Short(transform) => transform.len(),
            Line::Split { first, second, .. } => first.len() * second.len(),
            Line::Prime { length, .. } => *length,
        }
    }

    /// Transforms one line of this length.
    pub(super) fn run(&self, line: &mut [Complex<T>]) {
        match self {
            _ if Until::now().ended() => {}
            Line::Short(transform) => transform.process(line),
            Line::Split { first, second, twiddles } => split(first, second, twiddles, line),
            Line::Prime { sign, forward, backward, .. } => prime(*sign, forward, backward, line),
        }
    }
}

/// The largest divisor whose square is at most `length`: 1 for a prime.
fn middle_divisor(length: usize) -> usize {
    (1..=length.isqrt()).rev().find(|&divisor| length.is_multiple_of(divisor)).unwrap_or(1)
}

/// The powers of a root of unity, by two short tables.
pub(super) struct Twiddles {
    coarse: Vec<Complex<f64>>,
    fine: Vec<Complex<f64>>,
}

impl Twiddles {
    /// The powers of `exp(sign * 2 pi i / length)`.
    fn new(length: usize, sign: f64) -> Twiddles {
        let step = length.isqrt() + 1;
        let power = |k: usize| Complex::from_polar(1.0, sign * TAU * (k as f64 / length as f64));
        Twiddles {
            coarse: (0..=length / step).map(|k| power(k * step)).collect(),
            fine: (0..step).map(power).collect(),
        }
    }

    /// The power `k`, which is below the length.
    fn power(&self, k: usize) -> Complex<f64> {
        let step = self.fine.len();
        self.coarse[k / step] * self.fine[k % step]
    }
}

fn rounded<T: FftNum>(z: Complex<f64>) -> Complex<T> {
    let part = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
    Complex::new(part(z.re), part(z.im))
}

/// The four-step method: columns, twiddle factors, rows, transposition.
fn split<T: FftNum>(first: &Line<T>, second: &Line<T>, twiddles: &Twiddles, line: &mut [Complex<T>]) {
    let (rows, columns) = (first.len(), second.len());
    let until = Until::now();
    along(first, line, columns);
    each_element(line, |at, z| *z = *z * rounded::<T>(twiddles.power(at / columns * (at % columns))));
    along(second, line, 1);
    // After an early end, no more buffers are made, because that takes time.
    if until.ended() {
        return;
    }
    let mut out = zeros::<T>(line.len());
    let (from, to) = (&*line, out.as_mut_ptr() as usize);
    let (down, across) = (rows.div_ceil(BLOCK), columns.div_ceil(BLOCK));
    tasks::each(down * across, threads(line.len() * 8) > 1, |block| {
        let (top, left) = (block / across * BLOCK, block % across * BLOCK);
        for column in left..(left + BLOCK).min(columns) {
            for row in top..(top + BLOCK).min(rows) {
                let to = (to as *mut Complex<T>).wrapping_add(column * rows + row);
                // SAFETY: the element lies in `out`; blocks are disjoint.
                unsafe { to.write(from[row * columns + column]) };
            }
        }
    });
    each_pair(line, &out, |to, from| *to = from);
}

/// Bluestein's method: the transform as a convolution with a chirp.
fn prime<T: FftNum>(sign: f64, forward: &Line<T>, backward: &Line<T>, line: &mut [Complex<T>]) {
    let (length, whole) = (line.len(), forward.len());
    // The square is reduced before it becomes an angle, to keep full precision.
    let chirp = |k: usize| {
        let square = (k as u128 * k as u128 % (2 * length as u128)) as f64;
        Complex::from_polar(1.0, sign * TAU * (square / (2 * length) as f64))
    };
    let until = Until::now();
    let mut signal = zeros::<T>(whole);
    each_pair(&mut signal[..length], line, |to, from| *to = from);
    each_element(&mut signal[..length], |k, z| *z = *z * rounded::<T>(chirp(k)));
    let mut filter = zeros::<T>(whole);
    each_element(&mut filter, |k, z| match k.min(whole - k) {
        k if k < length => *z = rounded(chirp(k).conj()),
        _ => {}
    });
    forward.run(&mut signal);
    if until.ended() {
        return;
    }
    forward.run(&mut filter);
    each_pair(&mut signal, &filter, |z, by| *z = *z * by);
    backward.run(&mut signal);
    each_pair(line, &signal[..length], |to, from| *to = from);
    let scale = 1.0 / whole as f64;
    each_element(line, |k, z| *z = *z * rounded::<T>(chirp(k) * scale));
}

/// Calls `change` with each element and its index, on all threads.
pub(super) fn each_element<E: Send>(data: &mut [E], change: impl Fn(usize, &mut E) + Sync) {
    let (count, base) = (data.len(), data.as_mut_ptr() as usize);
    tasks::each(count.div_ceil(ELEMENTS_PER_CHECK), threads(count * 8) > 1, |task| {
        for at in task * ELEMENTS_PER_CHECK..((task + 1) * ELEMENTS_PER_CHECK).min(count) {
            // SAFETY: the element lies in `data`, and tasks are disjoint.
            change(at, unsafe { &mut *(base as *mut E).add(at) });
        }
    });
}

/// Calls `change` with each element and the element of `beside` at the same index, on all threads.
fn each_pair<T: FftNum>(
    data: &mut [Complex<T>],
    beside: &[Complex<T>],
    change: impl Fn(&mut Complex<T>, Complex<T>) + Sync,
) {
    each_element(data, |at, z| change(z, beside[at]));
}

#[cfg(test)]
mod tests {
    use super::super::BUFFERS;
    use super::*;
    use crate::base::stop::{self, Stop};
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;

    fn noise<T: FftNum>(count: usize) -> Vec<Complex<T>> {
        let part = |k: usize| (k * k * 7919 % 1009) as f64 / 1009.0 - 0.5;
        (0..count).map(|k| rounded(Complex::new(part(k), part(k + 501)))).collect()
    }

    /// The largest distance from the result of one `rustfft` call, relative to the norm of the result.
    fn distance<T: FftNum + Into<f64>>(length: usize, longest: usize, direction: FftDirection) -> f64 {
        let mut planner = FftPlanner::new();
        let cut = Line::cut(&mut planner, length, direction, longest);
        assert!(!matches!(cut, Line::Short(_)));
        assert_eq!(cut.len(), length);
        let (mut got, mut want) = (noise::<T>(length), noise::<f64>(length));
        cut.run(&mut got);
        FftPlanner::new().plan_fft(length, direction).process(&mut want);
        let norm = want.iter().map(|z| z.norm_sqr()).sum::<f64>().sqrt();
        let far = got.iter().zip(&want).map(|(a, b)| (Complex::new(a.re.into(), a.im.into()) - b).norm());
        far.fold(0.0, f64::max) / norm
    }

    #[test]
    fn cut_lines_are_transformed_as_whole_ones() {
        // Powers, products, primes, and products with a large prime; cut once and many times.
        for length in [64, 96, 210, 211, 2 * 211, 13 * 13, 1000, 1009, 3 * 1009, 4096, 10007] {
            for longest in [4, 16, 50] {
                for direction in [FftDirection::Forward, FftDirection::Inverse] {
                    let far = distance::<f64>(length, longest, direction);
                    assert!(far < 1e-13, "{length} cut at {longest}: {far}");
                    let far = distance::<f32>(length, longest, direction);
                    assert!(far < 1e-5, "{length} cut at {longest} in f32: {far}");
                }
            }
        }
    }

    /// Large buffers take long to make and to free, so they would delay an interrupt.
    #[test]
    fn a_line_that_ended_early_makes_no_buffers() {
        for length in [LONGEST + 2, LONGEST + 3] {
            let line = Line::<f32>::new(&mut FftPlanner::new(), length, FftDirection::Forward);
            let mut data = noise(length);
            let made = || BUFFERS.with(Cell::get);
            let before = made();
            let asked = Stop { flag: Arc::new(AtomicBool::new(true)), deadline: None };
            stop::under(asked, || line.run(&mut data));
            assert_eq!(made(), before, "{length}");
            line.run(&mut data);
            assert!(made() > before, "{length}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_keep_their_bits_on_any_number_of_threads() {
        for length in [LONGEST + 2, LONGEST + 3] {
            assert!(distance::<f32>(length, LONGEST, FftDirection::Forward) < 1e-5);
            let line = Line::<f32>::new(&mut FftPlanner::new(), length, FftDirection::Forward);
            let (mut shared, mut alone) = (noise(length), noise(length));
            line.run(&mut shared);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.install(|| line.run(&mut alone));
            assert!(shared == alone);
        }
    }
}
