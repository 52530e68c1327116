//! The host side of a reduction: loops over slices, for each class.
//!
//! Note [The order of a reduction]. The elements of one result, row-major over the reduced dimensions, are
//! split into blocks of [`BLOCK`]. Within a block element `i` goes to lane `i % LANES`. Each lane starts from
//! `init`; the lanes are combined by halving. The block results are combined by a balanced tree: the left
//! subtree of `n` blocks holds the largest power of two below `n`. So the order depends only on the number of
//! reduced elements, the error grows with its logarithm, and both row-wise and column-wise loops can follow
//! it.

use super::complex::{self, C64, C128};
use super::define::Lane;

/// Number of parallel accumulators within a block; `host_folds` halves as many.
pub const LANES: usize = 16;

/// Number of elements whose lanes are combined before the tree over blocks.
pub const BLOCK: usize = 1024;

/// The host code of a reduction, for the classes it is defined for.
#[derive(Clone, Copy)]
pub struct HostReduce {
    f32: Loops<f32>,
    f64: Loops<f64>,
    i64: Loops<i64>,
}

#[derive(Clone, Copy)]
struct Loops<T: 'static> {
    combine: Option<Combine<T>>,
    choice: Option<Choice<T>>,
}

/// Folds blocks: from an initial value, the length of each, and their elements, to a result for each.
pub type Blocks<T> = fn(T, usize, &[T], &mut [T]);

/// Loops that combine accumulators.
#[derive(Clone, Copy)]
pub struct Combine<T: 'static> {
    /// Combines two accumulators.
    pub one: fn(T, T) -> T,
    /// Folds consecutive blocks of one length (at most [`BLOCK`]), each from `init`: lanes, then halving. `None` for what
    /// only scans and scatters combine; [`Combine::fold`] does it one by one.
    pub blocks: Option<Blocks<T>>,
    /// Combines the second slice into the first, element by element.
    pub across: fn(&mut [T], &[T]),
    /// A running combination: writes every intermediate value and returns the last.
    pub along: fn(T, &[T], &mut [T]) -> T,
}

impl<T: Copy> Combine<T> {
    /// Folds consecutive blocks of one length, each from `init`, as `blocks` does.
    pub fn fold(&self, init: T, length: usize, values: &[T], out: &mut [T]) {
        if let Some(blocks) = self.blocks {
            return blocks(init, length, values, out);
        }
        for (out, block) in out.iter_mut().zip(values.chunks_exact(length)) {
            let mut lanes = [init; LANES];
            block
                .iter()
                .enumerate()
                .for_each(|(i, &new)| lanes[i % LANES] = (self.one)(lanes[i % LANES], new));
            for half in [8, 4, 2, 1] {
                (0..half).for_each(|i| lanes[i] = (self.one)(lanes[i], lanes[i + half]));
            }
            *out = lanes[0];
        }
    }
}

/// Loops that choose one element.
#[derive(Clone, Copy)]
pub struct Choice<T: 'static> {
    /// True when the second value replaces the first. nan replaces every number; nothing replaces nan.
    pub better: fn(T, T) -> bool,
    /// Scans a slice. Returns the final held value and the position in the slice where it first occurs
    /// (`None` if the initial value stayed).
    pub best: fn(T, &[T]) -> (T, Option<usize>),
    /// Element by element: held values, their positions, new values, position of the new values.
    pub across: fn(&mut [T], &mut [i64], &[T], i64),
}

/// An accumulator class.
pub trait Accumulator: Lane + PartialEq {
    /// The combining loops of this class.
    fn combine(reduce: &HostReduce) -> Option<&Combine<Self>>;
    /// The choosing loops of this class.
    fn choice(reduce: &HostReduce) -> Option<&Choice<Self>>;
    /// Converts from register bits.
    fn from_bits64(bits: u64) -> Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// Divides by a count, for `mean`. Integers truncate, and division by 0 gives 0.
    fn divided(self, count: usize) -> Self;
}

impl HostReduce {
    /// The result of `host_combine!`.
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

    /// Without loops over blocks, whose code is long: for what no reduction uses.
    pub const fn without_blocks(self) -> HostReduce {
        const fn without<T: 'static>(loops: Loops<T>) -> Loops<T> {
            match loops.combine {
                Some(combine) => Loops { combine: Some(Combine { blocks: None, ..combine }), ..loops },
                None => loops,
            }
        }
        HostReduce { f32: without(self.f32), f64: without(self.f64), i64: without(self.i64) }
    }

    /// The result of `host_better!`.
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
    #[inline(always)]
    fn plus(self, other: f32) -> f32 {
        self + other
    }
    fn times(self, other: f32) -> f32 {
        self * other
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
    #[inline(always)]
    fn plus(self, other: f64) -> f64 {
        self + other
    }
    fn times(self, other: f64) -> f64 {
        self * other
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
    #[inline(always)]
    fn plus(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
    fn times(self, other: i64) -> i64 {
        self.wrapping_mul(other)
    }
    fn divided(self, count: usize) -> i64 {
        i64::try_from(count).ok().and_then(|n| self.checked_div(n)).unwrap_or(0)
    }
}

// Complex numbers are summed by parts, as real numbers; no reduction sees them.
macro_rules! of_complex {
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
            fn plus(self, other: $t) -> $t {
                self + other
            }
            fn times(self, other: $t) -> $t {
                complex::mul(self, other)
            }
            fn divided(self, count: usize) -> $t {
                self / count as $part
            }
        }
    };
}

of_complex!(C64, f32);
of_complex!(C128, f64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::host::define::{host_better, host_combine};
    use crate::kernel::host::isa::at_every_level;

    static SUM: HostReduce = host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b));
    static SUM_WITHOUT_BLOCKS: HostReduce =
        host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)).without_blocks();
    static MOST: HostReduce = host_better!(all: |a, b| b > a);
    static XOR: HostReduce = host_combine!(i64: |a, b| a ^ b);

    #[test]
    fn lanes_are_interleaved_at_every_level() {
        let x: Vec<f32> = (0..100).map(|i| 0.1 * i as f32).collect();
        let mut want = [0f32; LANES];
        x.iter().enumerate().for_each(|(i, v)| want[i % LANES] += v);
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|i| want[i] += want[i + half]);
        }
        let sum = f32::combine(&SUM).unwrap();
        at_every_level(|level| {
            let mut out = [0f32; 2];
            sum.fold(0.0, 100, &[&x[..], &x[..]].concat(), &mut out);
            assert_eq!(out, [want[0]; 2], "{level:?}");
        });
        // As many elements as blocks of any length have: short ones are folded side by side.
        let without = SUM_WITHOUT_BLOCKS.f32.combine.unwrap();
        for length in (1..70).chain([100, 512, 1023, 1024]) {
            let x: Vec<f32> = (0..length * 9).map(|i| (i * 7919 % 1009) as f32 * 0.01 - 3.0).collect();
            let (mut want, mut have) = ([0f32; 9], [0f32; 9]);
            without.fold(-0.0, length, &x, &mut want);
            at_every_level(|level| {
                sum.fold(-0.0, length, &x, &mut have);
                assert_eq!(have.map(f32::to_bits), want.map(f32::to_bits), "{length} {level:?}");
            });
        }
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
