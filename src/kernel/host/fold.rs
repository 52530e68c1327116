//! The host side of a reduction: loops over slices, per class.
//!
//! Note [The order of a reduction]. The elements of one result, row-major over the reduced
//! dimensions, are cut into blocks of [`BLOCK`]. Within a block element `i` goes to lane
//! `i % LANES`, each lane starting from `init`; the lanes are combined by halving. The blocks'
//! results are combined by a balanced tree: the left half of `n` blocks is the largest power of two
//! below `n`. So the order depends on the number of reduced elements alone, the error grows with
//! its logarithm, and both row-wise and column-wise loops can keep it.

use super::complex::{C64, C128};
use super::define::Lane;

/// Accumulators that run side by side within a block.
pub const LANES: usize = 16;

/// Elements whose lanes are combined before the tree over blocks.
pub const BLOCK: usize = 1024;

/// How a reduction runs on the host, for the classes that it is defined for.
pub struct HostReduce {
    f32: Loops<f32>,
    f64: Loops<f64>,
    i64: Loops<i64>,
}

struct Loops<T: 'static> {
    combine: Option<Combine<T>>,
    choice: Option<Choice<T>>,
}

/// Loops that combine accumulators.
#[derive(Clone, Copy)]
pub struct Combine<T: 'static> {
    /// Two accumulators become one.
    pub one: fn(T, T) -> T,
    /// Element `i` of the slice goes to lane `i % LANES`.
    pub lanes: fn(&mut [T; LANES], &[T]),
    /// Element by element, into the first slice.
    pub across: fn(&mut [T], &[T]),
    /// A running combination: every intermediate is written; returns the last.
    pub along: fn(T, &[T], &mut [T]) -> T,
}

/// Loops that choose one element.
#[derive(Clone, Copy)]
pub struct Choice<T: 'static> {
    /// True when the second replaces the first; a nan replaces every number and nothing a nan.
    pub better: fn(T, T) -> bool,
    /// Runs over a slice: the value held at last, and where in the slice it was found first
    /// (`None` when what was held before stayed).
    pub best: fn(T, &[T]) -> (T, Option<usize>),
    /// Element by element: held values, their positions, new values, the new values' position.
    pub across: fn(&mut [T], &mut [i64], &[T], i64),
}

/// A class, as reductions see it.
pub trait Accumulator: Lane + PartialEq {
    /// This class's combining loops.
    fn combine(reduce: &HostReduce) -> Option<&Combine<Self>>;
    /// This class's choosing loops.
    fn choice(reduce: &HostReduce) -> Option<&Choice<Self>>;
    /// From register bits.
    fn from_bits64(bits: u64) -> Self;
    /// Divides by a count, for `mean`; integers truncate, and nothing divided by 0 is 0.
    fn divided(self, count: usize) -> Self;
}

impl HostReduce {
    /// What `host_combine!` makes.
    pub const fn combining(
        f32: Option<Combine<f32>>,
        f64: Option<Combine<f64>>,
        i64: Option<Combine<i64>>,
    ) -> HostReduce {
        HostReduce {
            f32: Loops { combine: f32, choice: None },
            f64: Loops { combine: f64, choice: None },
            i64: Loops { combine: i64, choice: None },
        }
    }

    /// What `host_better!` makes.
    pub const fn choosing(
        f32: Option<Choice<f32>>,
        f64: Option<Choice<f64>>,
        i64: Option<Choice<i64>>,
    ) -> HostReduce {
        HostReduce {
            f32: Loops { combine: None, choice: f32 },
            f64: Loops { combine: None, choice: f64 },
            i64: Loops { combine: None, choice: i64 },
        }
    }
}

impl Accumulator for f32 {
    fn combine(reduce: &HostReduce) -> Option<&Combine<f32>> {
        reduce.f32.combine.as_ref()
    }
    fn choice(reduce: &HostReduce) -> Option<&Choice<f32>> {
        reduce.f32.choice.as_ref()
    }
    fn from_bits64(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
    fn divided(self, count: usize) -> f32 {
        self / count as f32
    }
}

impl Accumulator for f64 {
    fn combine(reduce: &HostReduce) -> Option<&Combine<f64>> {
        reduce.f64.combine.as_ref()
    }
    fn choice(reduce: &HostReduce) -> Option<&Choice<f64>> {
        reduce.f64.choice.as_ref()
    }
    fn from_bits64(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    fn divided(self, count: usize) -> f64 {
        self / count as f64
    }
}

impl Accumulator for i64 {
    fn combine(reduce: &HostReduce) -> Option<&Combine<i64>> {
        reduce.i64.combine.as_ref()
    }
    fn choice(reduce: &HostReduce) -> Option<&Choice<i64>> {
        reduce.i64.choice.as_ref()
    }
    fn from_bits64(bits: u64) -> i64 {
        bits as i64
    }
    fn divided(self, count: usize) -> i64 {
        i64::try_from(count).ok().and_then(|n| self.checked_div(n)).unwrap_or(0)
    }
}

// Complex numbers are summed by their parts, as real numbers; no reduction is over them.
macro_rules! complex {
    ($t:ident, $part:ty) => {
        impl Accumulator for $t {
            fn combine(_: &HostReduce) -> Option<&Combine<$t>> {
                None
            }
            fn choice(_: &HostReduce) -> Option<&Choice<$t>> {
                None
            }
            fn from_bits64(_: u64) -> $t {
                $t::default()
            }
            fn divided(self, count: usize) -> $t {
                self / count as $part
            }
        }
    };
}

complex!(C64, f32);
complex!(C128, f64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::host::define::{host_better, host_combine};
    use crate::kernel::host::isa::at_every_level;

    static SUM: HostReduce = host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b));
    static MOST: HostReduce = host_better!(all: |a, b| b > a);
    static XOR: HostReduce = host_combine!(i64: |a, b| a ^ b);

    #[test]
    fn lanes_take_elements_in_turn_at_every_level() {
        let x: Vec<f32> = (0..100).map(|i| 0.1 * i as f32).collect();
        let mut want = [0f32; LANES];
        x.iter().enumerate().for_each(|(i, v)| want[i % LANES] += v);
        let sum = f32::combine(&SUM).unwrap();
        at_every_level(|level| {
            let mut held = [0f32; LANES];
            (sum.lanes)(&mut held, &x);
            assert_eq!(held, want, "{level:?}");
        });
        let mut out = [0.0; 3];
        assert_eq!((sum.along)(1.0, &[1.0, 2.0, 3.0], &mut out), 7.0);
        assert_eq!(out, [2.0, 4.0, 7.0]);
        assert!(f32::combine(&XOR).is_none() && i64::combine(&XOR).is_some());
    }

    #[test]
    fn the_first_nan_is_the_best_and_of_equals_the_first() {
        let most = f64::choice(&MOST).unwrap();
        let nan = f64::NAN;
        assert_eq!((most.best)(f64::NEG_INFINITY, &[1.0, 3.0, 3.0]), (3.0, Some(1)));
        assert_eq!((most.best)(1.0, &[4.0, nan, 9.0, nan]).1, Some(1));
        assert_eq!((most.best)(nan, &[4.0, nan]).1, None);
        assert!((most.better)(9.0, nan) && !(most.better)(nan, 9.0) && !(most.better)(nan, nan));
    }
}
