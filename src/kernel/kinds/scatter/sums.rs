//! Note [Sums in any order]. Scattered sums of floats of up to 32 bits are sums of integers, which have the same bits
//! in every order. So elements are added as they arrive, on any number of threads. The integers of a target are
//! multiples of its unit, a power of two. The number of maximum magnitude at the target determines the unit: in units
//! it has [`room`] bits, at least 35 for launches of up to 2^26 elements. So only numbers that are small relative to
//! another number at the same target have rounding errors, and the sum is rounded once. The old value is one of the
//! numbers.
//!
//! A target's top is its maximum biased exponent, at least 1; 0 if there are no numbers. Higher bits mark numbers that
//! are not finite; the sum is then an infinity or nan, as in other sums. The same definitions are in
//! `kernels/sums.cuh`.

/// Bytes per target of a top and a sum.
pub const BYTES: u64 = 12;

const PLUS_INFINITY: u32 = 1 << 29;
const MINUS_INFINITY: u32 = 1 << 30;
const NOT_A_NUMBER: u32 = 1 << 31;

/// The number of bits for the largest number of a target, such that no sum of `count` elements overflows.
pub fn room(count: u64) -> u32 {
    62 - (u64::BITS - count.leading_zeros()).min(60)
}

/// The top of a target with one number.
#[inline(always)]
pub fn top_of(a: f32) -> u32 {
    // Without branches, so that loops over rows are vectorised.
    let (bits, size) = (a.to_bits(), a.to_bits() & 0x7fff_ffff);
    let exponent = (size >> 23).max(1);
    let infinity = if bits == size { PLUS_INFINITY } else { MINUS_INFINITY };
    let special = if size > 0x7f80_0000 { NOT_A_NUMBER } else { infinity };
    if exponent == 255 { special } else { exponent }
}

/// The top of a target with the numbers of both.
#[inline(always)]
pub fn higher(a: u32, b: u32) -> u32 {
    if (a | b) >= PLUS_INFINITY { (a | b) & !255 } else { a.max(b) }
}

/// 2 to the power of an exponent of normal numbers.
#[inline(always)]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits((1023i32.wrapping_add(exponent) as u64) << 52)
}

/// Adding this number rounds to an integer, which the lowest bits of the sum then hold.
const ROUNDING: f64 = 1.5 * (1u64 << 52) as f64;

/// The unit of a target.
#[inline(always)]
pub fn unit(top: u32, room: u32) -> f64 {
    power_of_two((top as i32).wrapping_sub(room as i32 + 126))
}

/// The lowest bits of a sum with this number are a multiple of the target's unit, for a room of at most [`SHORT`] bits.
pub fn rounding(top: u32, room: u32) -> f64 {
    ROUNDING * unit(top, room)
}

/// A number as a multiple of the target's unit.
#[inline(always)]
pub fn units(a: f32, top: u32, room: u32) -> i64 {
    match room {
        0..=SHORT => short_units(a, top, room),
        _ if top >= PLUS_INFINITY => 0,
        _ => rounded(scaled(a, top, room)) as i64,
    }
}

/// Maximum number of bits that [`short_units`] supports.
pub const SHORT: u32 = 50;

/// [`units`] for a room of at most [`SHORT`] bits.
#[inline(always)]
pub fn short_units(a: f32, top: u32, room: u32) -> i64 {
    if top >= PLUS_INFINITY {
        return 0;
    }
    ((scaled(a, top, room) + ROUNDING).to_bits() as i64).wrapping_sub(ROUNDING.to_bits() as i64)
}

#[inline(always)]
fn scaled(a: f32, top: u32, room: u32) -> f64 {
    // The subtraction wraps for the tops of infinities and nan; their results are not used.
    f64::from(a) * power_of_two((room as i32 + 126).wrapping_sub(top as i32))
}

/// A number of at most 24 bits, rounded to an integer, ties to even. `round_ties_even` is a call on processors
/// without an instruction for it.
fn rounded(a: f64) -> f64 {
    // Numbers too large for the addition have no fraction anyway.
    if a.abs() < (1u64 << 51) as f64 { a + ROUNDING - ROUNDING } else { a }
}

/// The sum, from its value in units.
#[inline(always)]
pub fn sum_of(units: i64, top: u32, room: u32) -> f32 {
    // Without branches, so that loops over rows are vectorised.
    let sum = (units as f64 * unit(top, room)) as f32;
    let infinity = if top < MINUS_INFINITY { f32::INFINITY } else { f32::NEG_INFINITY };
    let special = if top > MINUS_INFINITY { f32::NAN } else { infinity };
    if top < PLUS_INFINITY { sum } else { special }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of a target's numbers in a launch of this many elements.
    fn sum(numbers: impl Iterator<Item = f32> + Clone, room: u32) -> f32 {
        let top = numbers.clone().map(top_of).fold(0, higher);
        sum_of(numbers.map(|a| units(a, top, room)).sum(), top, room)
    }

    #[test]
    fn no_sum_overflows_and_small_numbers_are_as_exact_as_large_ones() {
        for (count, room) in [(1u64, 61), (3, 60), (1 << 26, 35), ((1 << 26) - 1, 36)] {
            assert_eq!(super::room(count), room, "{count}");
            // `count` copies of the largest number, and the old value.
            let most = i128::from(units(f32::MAX, top_of(f32::MAX), room)) * i128::from(count + 1);
            assert!(most <= i128::from(i64::MAX), "{count}");
            if count < 1000 {
                continue;
            }
            for scale in [f32::from_bits(1), f32::MIN_POSITIVE, 1e-30, 1.0, 1e30] {
                let numbers = (1..1000).map(|i| i as f32 * scale);
                let exact = numbers.clone().map(f64::from).sum::<f64>();
                assert_eq!(sum(numbers, room), exact as f32, "{scale}");
            }
        }
    }

    #[test]
    fn short_and_long_integers_are_the_same() {
        for bits in (0..u32::MAX).step_by(65_521) {
            let a = f32::from_bits(bits);
            let top = top_of(a);
            let class = match a.to_bits() >> 23 & 255 {
                255 if a.is_nan() => NOT_A_NUMBER,
                255 if a < 0.0 => MINUS_INFINITY,
                255 => PLUS_INFINITY,
                exponent => exponent.max(1),
            };
            assert_eq!(top, class, "{a}");
            for top in [top, higher(top, 130), higher(top, 200)].into_iter().filter(|top| *top < 255) {
                for room in [1, 20, 35, 50] {
                    let scaled = f64::from(a) * power_of_two(room as i32 + 126 - top as i32);
                    assert_eq!(units(a, top, room), rounded(scaled) as i64, "{a} {top} {room}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_rounded_to_even() {
        let tails = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 3.5, 0.499_999_97, 0.500_000_06];
        for power in 0..63 {
            for tail in tails {
                let a = f64::from((tail + 2f64.powi(power)) as f32);
                for a in [a, -a, a - 0.5, a / 3.0, tail] {
                    let a = f64::from(a as f32);
                    assert_eq!(rounded(a), a.round_ties_even(), "{a}");
                }
            }
        }
    }

    #[test]
    fn sums_that_overflow_on_the_way_are_finite_and_others_are_as_usual() {
        let of = |numbers: &[f32]| sum(numbers.iter().copied(), 40);
        assert_eq!(of(&[f32::MAX, f32::MAX, -f32::MAX]), f32::MAX);
        assert_eq!(of(&[f32::MAX, f32::MAX]), f32::INFINITY);
        assert_eq!(of(&[1.0, f32::NEG_INFINITY, f32::MAX]), f32::NEG_INFINITY);
        assert_eq!(of(&[1.0, f32::INFINITY]), f32::INFINITY);
        assert!(of(&[f32::INFINITY, f32::NEG_INFINITY]).is_nan() && of(&[f32::NAN, f32::INFINITY]).is_nan());
        assert_eq!(of(&[-0.0, 0.0]).to_bits(), 0);
    }
}
