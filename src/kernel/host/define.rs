//! Macros that define an operation's host code in one line per function.
//!
//! Each macro expands to a [`HostMap`](crate::kernel::HostMap) for a `static MapFn`. The body works on single
//! values; the macro adds the loop over the chunk, compiled for every instruction set. Bodies that use only
//! arithmetic, comparisons, `if` and the functions of [`math`](super::math) vectorise.
//!
//! ```text
//! host: host_unary!(float: |a| math::tanh(a)),
//! host: host_unary!(float: |a| -a, i64: |a| a.wrapping_neg()),
//! host: host_binary!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
//! host: host_ternary!(float: |a, b, c| a + b * c),
//! host: host_test!(float: |a| a.is_nan(), i64: |_a| false),            // a bool, of one value
//! host: host_compare!(all: |a, b| a < b),                              // a bool, of two values
//! host: host_select!(|c, a, b| Selected::select(c, a, b)),             // the first is a condition
//! host: host_map!((a: i64, b: i64) -> f32: uniform(a, b), (a: i64, b: i64) -> f64: ...),
//! ```
//!
//! A combining reduction is defined by how two accumulators (`a` held, `b` new) combine. An indexed one is
//! defined by when the new value replaces the held one. Its body can ignore nan and ties: nan always wins,
//! and among equal values the lowest position wins.
//!
//! ```text
//! host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
//! host: host_better!(all: |a, b| b > a),
//! ```
//!
//! The key names the argument classes of a body: `f32`, `f64`, `i64`, `float` (the first two), `all`. The function is
//! undefined for classes without a key, like an empty text in `CudaText`. Integer bodies must use the `wrapping_`
//! forms: nothing may panic. The executor rounds results to their dtype and wraps `i64` to narrower integers. `whole`
//! (and `all`) stands for `i64` and, with loops of their own, all narrower integers: for functions that run much faster
//! in a narrow type. Other functions get narrow integers as `i64`. Helper functions called by a body should be
//! `#[inline(always)]`, or the loop stays scalar.

use super::complex::{C64, C128};
use crate::array::{Bool, for_integers};
use crate::kernel::{Reg, RegMut};

/// Returns whether a value differs from itself, as only nan does.
#[allow(clippy::eq_op, reason = "only nan differs from itself")]
#[inline(always)]
pub fn is_nan<T: PartialEq + Copy>(x: T) -> bool {
    x != x
}

/// Values that a mask selects.
pub trait Selected {
    /// `a` if the condition holds, otherwise `b`. The compiler may turn an `if` into a load from one of two addresses, a gather
    /// in vector code, which takes several times longer.
    fn select(condition: bool, a: Self, b: Self) -> Self;
}

impl Selected for i64 {
    #[inline(always)]
    fn select(condition: bool, a: i64, b: i64) -> i64 {
        let mask = -i64::from(condition);
        (a & mask) | (b & !mask)
    }
}

impl Selected for f32 {
    #[inline(always)]
    fn select(condition: bool, a: f32, b: f32) -> f32 {
        let mask = u32::from(condition).wrapping_neg();
        f32::from_bits((a.to_bits() & mask) | (b.to_bits() & !mask))
    }
}

impl Selected for f64 {
    #[inline(always)]
    fn select(condition: bool, a: f64, b: f64) -> f64 {
        let mask = u64::from(condition).wrapping_neg();
        f64::from_bits((a.to_bits() & mask) | (b.to_bits() & !mask))
    }
}

/// A register element: `f32`, `f64`, `i64`, a complex number or a narrow integer.
pub trait Lane: Copy + Send + Sync + Default + 'static {
    /// The register's slice, if it has this class.
    fn of<'a>(reg: Reg<'a>) -> Option<&'a [Self]>;
    /// A slice as a register.
    fn register(slice: &[Self]) -> Reg<'_>;
    /// A mutable slice as a register.
    fn register_mut(slice: &mut [Self]) -> RegMut<'_>;
    /// As `of`, mutable.
    fn of_mut<'r>(reg: &'r mut RegMut<'_>) -> Option<&'r mut [Self]>;
}

macro_rules! lanes {
    ($($class:ident $t:ty,)*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn register(slice: &[$t]) -> Reg<'_> {
                Reg::$class(slice)
            }
            #[inline(always)]
            fn register_mut(slice: &mut [$t]) -> RegMut<'_> {
                RegMut::$class(slice)
            }
            #[inline(always)]
            fn of<'a>(reg: Reg<'a>) -> Option<&'a [$t]> {
                if let Reg::$class(slice) = reg { Some(slice) } else { None }
            }
            #[inline(always)]
            fn of_mut<'r>(reg: &'r mut RegMut<'_>) -> Option<&'r mut [$t]> {
                if let RegMut::$class(slice) = reg { Some(slice) } else { None }
            }
        }
    )*};
}

lanes!(Bool Bool, F32 f32, F64 f64, C64 C64, C128 C128,);
for_integers!(lanes);

/// The general form: one or more signatures (argument classes, result class), each with a body.
macro_rules! host_map {
    ($(($($a:ident: $t:ty),*) -> $o:ty: $e:expr),+ $(,)?) => {{
        fn host(args: &[$crate::kernel::Reg<'_>], mut out: $crate::kernel::RegMut<'_>) -> bool {
            $($crate::kernel::host::define::host_arm!(args, out, ($($a: $t),*) -> $o: $e);)+
            let _ = (args, &mut out);
            false
        }
        &host as $crate::kernel::HostMap
    }};
}

/// One signature of [`host_map`]: runs and returns true if the registers have these types. The body sees narrow integers as
/// `i64`; the compiler computes in the narrow type where that gives the same bits.
macro_rules! host_arm {
    ($args:ident, $out:ident, ($($a:ident: $t:ty),*) -> $o:ty: $e:expr) => {
        if let ([$($a),*], Some(out)) =
            ($args, <$o as $crate::kernel::host::define::Lane>::of_mut(&mut $out))
            && let ($(Some($a),)*) = ($(<$t as $crate::kernel::host::define::Lane>::of(*$a),)*)
        {
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "as many as the operation has")]
            fn one(
                $($a: <$t as $crate::kernel::host::Element>::Lane),*
            ) -> <$o as $crate::kernel::host::Element>::Lane {
                $e
            }
            #[inline(always)]
            fn chunk($($a: &[$t],)* out: &mut [$o]) {
                let n = out.len();
                $(let $a = &$a[..n];)*
                for i in 0..n {
                    let value = one($($crate::kernel::host::Element::widen($a[i])),*);
                    out[i] = $crate::kernel::host::Element::narrow(value);
                }
            }
            $crate::kernel::host::isa::multiversion!(chunk($($a: &[$t] = $a,)* out: &mut [$o] = out));
            return true;
        }
    };
}

/// Expands one body for each class of its key. `$r` is the result: `same` or `bool`.
macro_rules! host_classes {
    ($args:ident, $out:ident, f32, $r:ident, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_classes!(@$r $args, $out, f32, |$($a),+| $e)
    };
    ($args:ident, $out:ident, f64, $r:ident, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_classes!(@$r $args, $out, f64, |$($a),+| $e)
    };
    ($args:ident, $out:ident, i64, $r:ident, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_classes!(@$r $args, $out, i64, |$($a),+| $e)
    };
    ($args:ident, $out:ident, float, $r:ident, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_classes!(@$r $args, $out, f32, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!(@$r $args, $out, f64, |$($a),+| $e);
    };
    ($args:ident, $out:ident, whole, $r:ident, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_classes!(@$r $args, $out, i64, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!(@$r $args, $out, u8, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!(@$r $args, $out, i32, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!(@$r $args, $out, i16, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!(@$r $args, $out, i8, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!(@$r $args, $out, $crate::array::Bool, |$($a),+| $e);
    };
    ($args:ident, $out:ident, all, $r:ident, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_classes!($args, $out, float, $r, |$($a),+| $e);
        $crate::kernel::host::define::host_classes!($args, $out, whole, $r, |$($a),+| $e);
    };
    (@same $args:ident, $out:ident, $t:ty, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_arm!($args, $out, ($($a: $t),+) -> $t: $e)
    };
    (@bool $args:ident, $out:ident, $t:ty, |$($a:ident),+| $e:expr) => {
        $crate::kernel::host::define::host_arm!($args, $out, ($($a: $t),+) -> $crate::array::Bool: i64::from($e));
        $crate::kernel::host::define::host_arm!($args, $out, ($($a: $t),+) -> i64: i64::from($e))
    };
}

/// A function of one value; the result has the same class.
macro_rules! host_unary {
    ($($class:ident: |$a:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::define::host_same!($($class: |$a| $e),+)
    };
}

/// A function of two values of one class; the result has the same class.
macro_rules! host_binary {
    ($($class:ident: |$a:ident, $b:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::define::host_same!($($class: |$a, $b| $e),+)
    };
}

/// A function of three values of one class; the result has the same class.
macro_rules! host_ternary {
    ($($class:ident: |$a:ident, $b:ident, $c:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::define::host_same!($($class: |$a, $b, $c| $e),+)
    };
}

/// A function of four values of one class; the result has the same class.
macro_rules! host_quaternary {
    ($($class:ident: |$a:ident, $b:ident, $c:ident, $d:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::define::host_same!($($class: |$a, $b, $c, $d| $e),+)
    };
}

/// A function of any number of values of one class; the result has the same class.
macro_rules! host_same {
    ($($class:ident: |$($a:ident),+| $e:expr),+) => {{
        fn host(args: &[$crate::kernel::Reg<'_>], mut out: $crate::kernel::RegMut<'_>) -> bool {
            $($crate::kernel::host::define::host_classes!(args, out, $class, same, |$($a),+| $e);)+
            let _ = (args, &mut out);
            false
        }
        &host as $crate::kernel::HostMap
    }};
}

/// A condition on one value: the body is a `bool`.
macro_rules! host_test {
    ($($class:ident: |$a:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::define::host_bool!($($class: |$a| $e),+)
    };
}

/// A condition on two values: the body is a `bool`.
macro_rules! host_compare {
    ($($class:ident: |$a:ident, $b:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::define::host_bool!($($class: |$a, $b| $e),+)
    };
}

/// A function of any number of values with a `bool` result.
macro_rules! host_bool {
    ($($class:ident: |$($a:ident),+| $e:expr),+) => {{
        fn host(args: &[$crate::kernel::Reg<'_>], mut out: $crate::kernel::RegMut<'_>) -> bool {
            $($crate::kernel::host::define::host_classes!(args, out, $class, bool, |$($a),+| $e);)+
            let _ = (args, &mut out);
            false
        }
        &host as $crate::kernel::HostMap
    }};
}

/// A function of a condition and two values of one class. The body sees the condition as a `bool`.
macro_rules! host_select {
    (|$c:ident, $a:ident, $b:ident| $e:expr) => {
        $crate::kernel::host::define::host_select!(
            |$c, $a, $b| $e; Bool f32, Bool f64, Bool i64, Bool u8, Bool i32, Bool i16, Bool i8, Bool Bool,
            i64 f32, i64 f64, i64 i64
        )
    };
    (|$c:ident, $a:ident, $b:ident| $e:expr; $($condition:ident $t:ident),+) => {{
        use $crate::array::Bool;
        $crate::kernel::host::define::host_map!(
            $(($c: $condition, $a: $t, $b: $t) -> $t: { let $c = $c != 0; $e }),+
        )
    }};
}

/// The combining function of a reduction, per class: a [`HostReduce`](super::HostReduce).
macro_rules! host_combine {
    ($($class:ident: |$a:ident, $b:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::HostReduce::combining(
            $crate::kernel::host::define::host_pair!(f32, host_folds, $($class |$a, $b| $e,)+),
            $crate::kernel::host::define::host_pair!(f64, host_folds, $($class |$a, $b| $e,)+),
            $crate::kernel::host::define::host_pair!(i64, host_folds, $($class |$a, $b| $e,)+),
        )
    };
}

/// The test whether a new value replaces the held one, per class: a [`HostReduce`](super::HostReduce).
macro_rules! host_better {
    ($($class:ident: |$a:ident, $b:ident| $e:expr),+ $(,)?) => {
        $crate::kernel::host::HostReduce::choosing(
            $crate::kernel::host::define::host_pair!(f32, host_choice, $($class |$a, $b| $e,)+),
            $crate::kernel::host::define::host_pair!(f64, host_choice, $($class |$a, $b| $e,)+),
            $crate::kernel::host::define::host_pair!(i64, host_choice, $($class |$a, $b| $e,)+),
        )
    };
}

/// Finds the body for a class and passes it to another macro; `None` if there is none.
macro_rules! host_pair {
    ($t:ident, $then:ident, ) => { None };
    (f32, $then:ident, f32 |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        Some($crate::kernel::host::define::$then!(f32, |$a, $b| $e))
    };
    (f64, $then:ident, f64 |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        Some($crate::kernel::host::define::$then!(f64, |$a, $b| $e))
    };
    (i64, $then:ident, i64 |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        Some($crate::kernel::host::define::$then!(i64, |$a, $b| $e))
    };
    (f32, $then:ident, float |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        Some($crate::kernel::host::define::$then!(f32, |$a, $b| $e))
    };
    (f64, $then:ident, float |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        Some($crate::kernel::host::define::$then!(f64, |$a, $b| $e))
    };
    ($t:ident, $then:ident, all |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        Some($crate::kernel::host::define::$then!($t, |$a, $b| $e))
    };
    ($t:ident, $then:ident, $other:ident |$a:ident, $b:ident| $e:expr, $($rest:tt)*) => {
        $crate::kernel::host::define::host_pair!($t, $then, $($rest)*)
    };
}

/// The loops of a combining reduction for one class.
macro_rules! host_folds {
    ($t:ident, |$a:ident, $b:ident| $e:expr) => {{
        #[inline(always)]
        fn one($a: $t, $b: $t) -> $t {
            $e
        }
        /// Combines lanes by halving. Lanes from `n` on hold `init`, which changes nothing.
        #[inline(always)]
        fn halve(mut lanes: [$t; $crate::kernel::host::LANES], n: usize) -> $t {
            for half in [8, 4, 2, 1] {
                for i in 0..half {
                    if i + half < n {
                        lanes[i] = one(lanes[i], lanes[i + half]);
                    }
                }
            }
            lanes[0]
        }
        /// Folds blocks of `N` elements, at most one element per lane. A vector holds several blocks.
        #[inline(always)]
        fn short<const N: usize>(init: $t, values: &[$t], out: &mut [$t]) {
            for (out, block) in out.iter_mut().zip(values.as_chunks::<N>().0) {
                let mut lanes = [init; $crate::kernel::host::LANES];
                for i in 0..N {
                    lanes[i] = one(init, block[i]);
                }
                *out = halve(lanes, N);
            }
        }
        /// Folds `K` blocks side by side, which hides the latency of each step. The lanes are copied so that the compiler
        /// keeps them in registers.
        #[inline(always)]
        fn several<const K: usize>(init: $t, blocks: [&[$t]; K]) -> [$t; K] {
            const LANES: usize = $crate::kernel::host::LANES;
            let mut lanes = [[init; LANES]; K];
            let (rows, rest) = (blocks[0].len() / LANES, blocks[0].len() % LANES);
            for row in 0..rows {
                for k in 0..K {
                    let new = &blocks[k].as_chunks::<LANES>().0[row];
                    let mut held = lanes[k];
                    for i in 0..LANES {
                        held[i] = one(held[i], new[i]);
                    }
                    lanes[k] = held;
                }
            }
            let mut out = [init; K];
            for k in 0..K {
                let mut held = lanes[k];
                if rest > 0 {
                    for (held, &new) in held.iter_mut().zip(&blocks[k][rows * LANES..]) {
                        *held = one(*held, new);
                    }
                }
                out[k] = halve(held, LANES);
            }
            out
        }
        #[inline(always)]
        fn blocks_loop(init: $t, length: usize, values: &[$t], out: &mut [$t]) {
            match length {
                1 => return short::<1>(init, values, out),
                2 => return short::<2>(init, values, out),
                3 => return short::<3>(init, values, out),
                4 => return short::<4>(init, values, out),
                5 => return short::<5>(init, values, out),
                6 => return short::<6>(init, values, out),
                8 => return short::<8>(init, values, out),
                16 => return short::<16>(init, values, out),
                _ => {}
            }
            // As many as fit in the registers of AVX2.
            const SIDE: usize = 16 / size_of::<$t>();
            let (whole, rest) = out.as_chunks_mut::<SIDE>();
            for (number, out) in whole.iter_mut().enumerate() {
                let mut blocks = [values; SIDE];
                for k in 0..SIDE {
                    blocks[k] = &values[(number * SIDE + k) * length..][..length];
                }
                *out = several(init, blocks);
            }
            for (k, out) in rest.iter_mut().enumerate() {
                [*out] = several(init, [&values[(whole.len() * SIDE + k) * length..][..length]]);
            }
        }
        /// [`blocks_loop`] in less code, for processors without AVX2.
        fn blocks_one_by_one(init: $t, length: usize, values: &[$t], out: &mut [$t]) {
            for (out, block) in out.iter_mut().zip(values.chunks_exact(length)) {
                [*out] = several(init, [block]);
            }
        }
        fn blocks(init: $t, length: usize, values: &[$t], out: &mut [$t]) {
            $crate::kernel::host::isa::avx2_version!(blocks_loop or blocks_one_by_one(
                init: $t = init, length: usize = length, values: &[$t] = values, out: &mut [$t] = out
            ))
        }
        #[inline(always)]
        fn across_loop(held: &mut [$t], new: &[$t]) {
            let n = held.len();
            let new = &new[..n];
            for i in 0..n {
                held[i] = one(held[i], new[i]);
            }
        }
        fn across(held: &mut [$t], new: &[$t]) {
            $crate::kernel::host::isa::multiversion!(across_loop(held: &mut [$t] = held, new: &[$t] = new))
        }
        fn along(mut held: $t, new: &[$t], out: &mut [$t]) -> $t {
            for (out, &new) in out.iter_mut().zip(new) {
                held = one(held, new);
                *out = held;
            }
            held
        }
        $crate::kernel::host::Combine { one, blocks: Some(blocks), across, along }
    }};
}

/// The loops of a choosing reduction for one class.
macro_rules! host_choice {
    ($t:ident, |$a:ident, $b:ident| $e:expr) => {{
        use $crate::kernel::host::define::is_nan;
        #[inline(always)]
        fn one($a: $t, $b: $t) -> bool {
            $e
        }
        #[inline(always)]
        fn wins(held: $t, new: $t) -> bool {
            one(held, new) || (is_nan(new) && !is_nan(held))
        }
        #[inline(always)]
        fn better(held: $t, new: $t) -> bool {
            !is_nan(held) && wins(held, new)
        }
        /// In any order, the best of the values that are not nan; and whether there is a nan.
        #[inline(always)]
        fn best_value(held: $t, new: &[$t]) -> ($t, bool) {
            const LANES: usize = $crate::kernel::host::LANES;
            let (mut lanes, mut nan) = ([held; LANES], [false; LANES]);
            let (rows, rest) = new.as_chunks::<LANES>();
            for row in rows {
                for i in 0..LANES {
                    lanes[i] = if one(lanes[i], row[i]) { row[i] } else { lanes[i] };
                    nan[i] |= is_nan(row[i]);
                }
            }
            let (mut best, mut has_nan) = (held, false);
            for (&value, nan) in lanes.iter().zip(nan).chain(rest.iter().map(|value| (value, is_nan(*value)))) {
                best = if one(best, value) { value } else { best };
                has_nan |= nan;
            }
            (best, has_nan)
        }
        fn best(mut held: $t, new: &[$t]) -> ($t, Option<usize>) {
            let mut at = None;
            if new.len() < 64 {
                for (i, &new) in new.iter().enumerate() {
                    if wins(held, new) && !is_nan(held) {
                        (held, at) = (new, Some(i));
                    }
                }
                return (held, at);
            }
            if is_nan(held) {
                return (held, None);
            }
            let (best, has_nan) =
                $crate::kernel::host::isa::avx2_version!(best_value or best_value(held: $t = held, new: &[$t] = new) -> ($t, bool));
            at = match has_nan {
                true => new.iter().position(|&new| is_nan(new)),
                false if one(held, best) => new.iter().position(|&new| !one(new, best)),
                false => None,
            };
            (at.map_or(held, |at| new[at]), at)
        }
        #[inline(always)]
        fn across_loop(held: &mut [$t], at: &mut [i64], new: &[$t], position: i64) {
            let n = held.len();
            let (at, new) = (&mut at[..n], &new[..n]);
            for i in 0..n {
                let replace = better(held[i], new[i]);
                held[i] = if replace { new[i] } else { held[i] };
                at[i] = if replace { position } else { at[i] };
            }
        }
        fn across(held: &mut [$t], at: &mut [i64], new: &[$t], position: i64) {
            $crate::kernel::host::isa::multiversion!(across_loop(
                held: &mut [$t] = held,
                at: &mut [i64] = at,
                new: &[$t] = new,
                position: i64 = position
            ))
        }
        $crate::kernel::host::Choice { better, best, across }
    }};
}

pub(crate) use {
    host_arm, host_binary, host_bool, host_classes, host_compare, host_map, host_quaternary, host_same,
    host_select, host_ternary, host_test, host_unary,
};
pub(crate) use {host_better, host_choice, host_combine, host_folds, host_pair};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::HostMap;
    use crate::kernel::host::isa::at_every_level;

    static ADD: HostMap = host_binary!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b));
    static LESS: HostMap = host_compare!(all: |a, b| a < b);
    static NAN: HostMap = host_test!(float: |a| a.is_nan(), i64: |_a| false);
    static WHERE: HostMap = host_select!(|c, a, b| if c { a } else { b });
    static HALF: HostMap = host_map!((a: i64) -> f32: a as f32 * 0.5);
    static ONE: HostMap = host_map!(() -> f32: 1.0, () -> i64: 1);
    static AXPY: HostMap = host_ternary!(float: |a, b, c| a * b + c);
    static LERP: HostMap = host_quaternary!(f64: |a, b, c, d| a * b + c * d);

    #[test]
    fn one_line_definitions_run_per_class() {
        let a: Vec<f32> = (0..37).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..37).map(|i| 20.0 - i as f32).collect();
        let mut out = vec![0f32; 37];
        ADD(&[Reg::F32(&a), Reg::F32(&b)], RegMut::F32(&mut out));
        assert_eq!(out, [20.0; 37]);
        let mut truth = vec![7i64; 37];
        LESS(&[Reg::F32(&a), Reg::F32(&b)], RegMut::I64(&mut truth));
        assert!(truth.iter().enumerate().all(|(i, &t)| t == i64::from(i < 10)));
        WHERE(&[Reg::I64(&truth), Reg::F32(&a), Reg::F32(&b)], RegMut::F32(&mut out));
        assert_eq!((out[9], out[10], out[36]), (9.0, 10.0, -16.0));
        let mut wide = [0i64; 1];
        ADD(&[Reg::I64(&[i64::MAX]), Reg::I64(&[1])], RegMut::I64(&mut wide));
        assert_eq!(wide, [i64::MIN]);
        NAN(&[Reg::F64(&[f64::NAN])], RegMut::I64(&mut wide));
        assert_eq!(wide, [1]);
        let mut two = [0f32; 2];
        HALF(&[Reg::I64(&[3, 4])], RegMut::F32(&mut two));
        assert_eq!(two, [1.5, 2.0]);
        ONE(&[], RegMut::F32(&mut two));
        assert_eq!(two, [1.0, 1.0]);
        let mut d = [0f64; 1];
        LERP(&[Reg::F64(&[1.0]), Reg::F64(&[2.0]), Reg::F64(&[3.0]), Reg::F64(&[4.0])], RegMut::F64(&mut d));
        assert_eq!(d, [14.0]);
    }

    #[test]
    fn no_level_contracts_a_product_and_a_sum() {
        // (1 + 2^-23) squared is not a float: contracted with -1 it would keep 2^-46.
        let a = [1.0 + f32::EPSILON; 33];
        let c = [-1.0f32; 33];
        at_every_level(|level| {
            let mut out = [0f32; 33];
            AXPY(&[Reg::F32(&a), Reg::F32(&a), Reg::F32(&c)], RegMut::F32(&mut out));
            assert_eq!(out, [2.0 * f32::EPSILON; 33], "{level:?}");
        });
    }
}
