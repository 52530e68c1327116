//! Quotients and remainders as straight-line code that vectorises.

use super::isa::multiversion;
use super::positions::one_value;
use crate::kernel::{Reg, RegMut};

/// The wanted part of a division.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The quotient, rounded down.
    Quotient,
    /// The remainder, which has the sign of the divisor.
    Rest,
}

/// Divides the first register by the second. Returns false, without a result, unless the second holds one positive integer,
/// or f32 of which the remainder is wanted, and the dividends are small enough.
pub fn divide(args: &[Reg<'_>], out: &mut RegMut<'_>, part: Part) -> bool {
    match (args, out) {
        ([Reg::I64(a), Reg::I64(b)], RegMut::I64(out)) => {
            small(a) && number(b).is_some_and(|b| b <= LIMIT && long(a, b, out, part))
        }
        ([Reg::I32(a), Reg::I32(b)], RegMut::I32(out)) => number(b).is_some_and(|b| medium(a, b, out, part)),
        ([Reg::I16(a), Reg::I16(b)], RegMut::I16(out)) => number(b).is_some_and(|b| short(a, b, out, part)),
        ([Reg::I8(a), Reg::I8(b)], RegMut::I8(out)) => {
            number(b).is_some_and(|b| signed_byte(a, b, out, part))
        }
        ([Reg::U8(a), Reg::U8(b)], RegMut::U8(out)) => number(b).is_some_and(|b| byte(a, b, out, part)),
        ([Reg::F32(a), Reg::F32(b)], RegMut::F32(out)) if part == Part::Rest => rests(a, b, out),
        _ => false,
    }
}

/// Integers up to this one are exact in f64, and the product with an inverse is off by less than 1.
const LIMIT: i64 = 1 << 50;

/// The number that fills a register, if it is above 0.
fn number<T: Copy + PartialOrd + Default>(all: &[T]) -> Option<T> {
    one_value(all).filter(|&one| one > T::default())
}

/// True if the absolute values of all integers are at most [`LIMIT`].
fn small(all: &[i64]) -> bool {
    #[inline(always)]
    fn row(all: &[i64]) -> bool {
        all.iter().fold(true, |small, &one| small & (-LIMIT..=LIMIT).contains(&one))
    }
    multiversion!(row(all: &[i64] = all) -> bool)
}

/// Remainders of f32, which f64 holds exactly.
fn rests(a: &[f32], b: &[f32], out: &mut [f32]) -> bool {
    /// Below this, a quotient is rounded to an integer only if it is one, and its product with the divisor is exact.
    const MOST: f64 = (1 << 28) as f64;
    #[inline(always)]
    fn are_small(a: &[f32], b: &[f32]) -> bool {
        a.iter().zip(b).fold(true, |small, (&a, &b)| {
            let (a, b) = (f64::from(a).abs(), f64::from(b).abs());
            small & (a <= MOST * b) & (b > 0.0) & (b < f64::INFINITY)
        })
    }
    #[inline(always)]
    fn row(a: &[f32], b: &[f32], out: &mut [f32]) {
        for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
            let (x, y) = (f64::from(a), f64::from(b));
            let rest = ((x - (x / y).trunc() * y) as f32).copysign(a);
            *out = if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest };
        }
    }
    if !multiversion!(are_small(a: &[f32] = a, b: &[f32] = b) -> bool) {
        return false;
    }
    multiversion!(row(a: &[f32] = a, b: &[f32] = b, out: &mut [f32] = out));
    true
}

/// A function that divides elements of a type by means of a float and of a wider integer.
macro_rules! division {
    ($name:ident, $t:ty, $float:ty, $wide:ty) => {
        fn $name(a: &[$t], b: $t, out: &mut [$t], part: Part) -> bool {
            #[inline(always)]
            fn row(a: &[$t], b: $t, out: &mut [$t], part: Part) {
                let (divisor, inverse) = (b as $wide, 1.0 / b as $float);
                for (out, &a) in out.iter_mut().zip(a) {
                    let near = (a as $float * inverse).floor();
                    // SAFETY: the dividend is within the type, and the divisor is at least 1.
                    let near: $wide = unsafe { near.to_int_unchecked() };
                    let rest = a as $wide - near * divisor;
                    // `near` may be off by 1.
                    let off = <$wide>::from(rest >= divisor) - <$wide>::from(rest < 0);
                    let (quotient, rest) = (near + off, rest - off * divisor);
                    *out = if part == Part::Quotient { quotient } else { rest } as $t;
                }
            }
            multiversion!(row(a: &[$t] = a, b: $t = b, out: &mut [$t] = out, part: Part = part));
            true
        }
    };
}

division!(long, i64, f64, i64);
division!(medium, i32, f64, i64);
division!(short, i16, f32, i32);
division!(signed_byte, i8, f32, i32);
division!(byte, u8, f32, i32);

/// `a / b % c`, and 0 where `b` or `c` is 0. Integers below 2^51 are divided as floats, several at a time: rounding moves a
/// quotient by less than its distance to the next integer.
pub fn digits(args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    #[inline(always)]
    fn short(a: &[i64], b: &[i64], c: &[i64], out: &mut [i64]) {
        const WHOLE: f64 = (1u64 << 52) as f64;
        let float = |x: i64| f64::from_bits(x as u64 | WHOLE.to_bits()) - WHOLE;
        for (i, out) in out.iter_mut().enumerate() {
            let (b, c) = (float(b[i]), float(c[i]));
            let quotient = (float(a[i]) / b).trunc();
            let digit = quotient - (quotient / c).trunc() * c;
            *out = ((digit + WHOLE).to_bits() ^ WHOLE.to_bits()) as i64;
        }
    }
    #[inline(always)]
    fn are_short(a: &[i64], b: &[i64], c: &[i64]) -> bool {
        const LONG: i64 = -1 << 51;
        let (mut bits, mut least) = (0, 1);
        for ((&a, &b), &c) in a.iter().zip(b).zip(c) {
            bits |= a | b | c;
            least = least.min(b).min(c);
        }
        bits & LONG == 0 && least > 0
    }
    let (&[Reg::I64(a), Reg::I64(b), Reg::I64(c)], RegMut::I64(out)) = (args, out) else { return false };
    let n = out.len();
    let (a, b, c) = (&a[..n], &b[..n], &c[..n]);
    if multiversion!(are_short(a: &[i64] = a, b: &[i64] = b, c: &[i64] = c) -> bool) {
        multiversion!(short(a: &[i64] = a, b: &[i64] = b, c: &[i64] = c, out: &mut [i64] = out));
        return true;
    }
    for (i, out) in out.iter_mut().enumerate() {
        let (a, b, c) = (a[i], b[i], c[i]);
        *out = if b == 0 || c == 0 { 0 } else { a.wrapping_div(b).wrapping_rem(c) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::host::isa::at_every_level;

    macro_rules! check {
        ($name:ident, $t:ident, $class:ident, $values:expr, $divisors:expr) => {
            #[test]
            fn $name() {
                let values: Vec<$t> = $values;
                at_every_level(|level| {
                    for divisor in $divisors {
                        let all = vec![divisor; values.len()];
                        for part in [Part::Quotient, Part::Rest] {
                            let mut out = vec![0; values.len()];
                            let args = [Reg::$class(&values), Reg::$class(&all)];
                            assert!(divide(&args, &mut RegMut::$class(&mut out), part));
                            for (&a, &have) in values.iter().zip(&out) {
                                let quotient = i128::from(a).div_euclid(i128::from(divisor));
                                let rest = i128::from(a).rem_euclid(i128::from(divisor));
                                let want = if part == Part::Quotient { quotient } else { rest };
                                assert_eq!(i128::from(have), want, "{a} by {divisor}, {level:?}");
                            }
                        }
                    }
                });
            }
        };
    }

    /// Numbers of all sizes up to a limit, and those near them.
    fn spread(limit: i64) -> impl Iterator<Item = i64> {
        let sizes = (0..63).map(|bit| 1i64 << bit).take_while(move |&size| size <= limit);
        let near = sizes.flat_map(|size| [size - 1, size, size / 3 * 2 + 1, size / 7 * 5]);
        let last = (0..200).map(move |i| limit - i).filter(|&one| one >= 0);
        near.chain(last).filter(move |&one| one <= limit)
    }

    check!(
        long_integers_are_divided_exactly,
        i64,
        I64,
        spread(LIMIT).flat_map(|one| [one, -one]).collect(),
        spread(LIMIT).filter(|&one| one > 0)
    );
    check!(
        medium_integers_are_divided_exactly,
        i32,
        I32,
        spread(i64::from(i32::MAX)).flat_map(|one| [one as i32, -one as i32 - 1]).collect(),
        spread(i64::from(i32::MAX)).filter(|&one| one > 0).map(|one| one as i32)
    );
    check!(
        short_integers_are_divided_exactly,
        i16,
        I16,
        (i16::MIN..=i16::MAX).collect(),
        (1..=i16::MAX).step_by(if cfg!(debug_assertions) { 211 } else { 1 })
    );
    check!(signed_bytes_are_divided_exactly, i8, I8, (i8::MIN..=i8::MAX).collect(), 1..=i8::MAX);
    check!(bytes_are_divided_exactly, u8, U8, (0..=u8::MAX).collect(), 1..=u8::MAX);

    #[test]
    fn remainders_of_floats_have_the_bits_of_fmod() {
        let some: Vec<f32> = (0..=u32::MAX).step_by(8_000_009).map(f32::from_bits).collect();
        let near = [0.3, 1.0, 7.5, 1e-40, 3e38].into_iter().flat_map(|b: f32| {
            [1.0, 3.0, 4_194_304.0].map(|n: f32| [b * n, (b * n).next_up(), (b * n).next_down()])
        });
        let some: Vec<f32> = some.into_iter().chain(near.flatten()).collect();
        let mut count = 0;
        for &b in &some {
            for &a in &some {
                let mut out = [0.0];
                if !divide(&[Reg::F32(&[a]), Reg::F32(&[b])], &mut RegMut::F32(&mut out), Part::Rest) {
                    continue;
                }
                let rest = a % b;
                let want = if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest };
                assert_eq!(out[0].to_bits(), want.to_bits(), "{a:e} by {b:e}");
                count += 1;
            }
        }
        assert!(count > some.len() * some.len() / 4);
    }

    #[test]
    fn other_divisions_are_left_to_the_caller() {
        let mut out = [7; 3];
        let mut left = |a: &[i64; 3], b: &[i64; 3]| {
            !divide(&[Reg::I64(a), Reg::I64(b)], &mut RegMut::I64(&mut out), Part::Rest)
        };
        assert!(left(&[1, 2, 3], &[2, 2, 3]) && left(&[1, 2, 3], &[0; 3]) && left(&[1, 2, 3], &[-2; 3]));
        assert!(left(&[1, i64::MIN, 3], &[2; 3]) && left(&[1, 2, LIMIT + 1], &[2; 3]));
        assert_eq!(out, [7; 3]);
    }

    #[test]
    fn digits_are_those_of_integer_divisions() {
        let edges =
            [0, 1, 2, 3, 7, 1000, (1 << 26) - 1, 1 << 26, (1 << 51) - 1, 1 << 51, i64::MAX, -1, -7, i64::MIN];
        at_every_level(|_| {
            for b in edges {
                for c in edges {
                    let products =
                        edges.iter().flat_map(|&q| [-1, 0, 1].map(|d| q.wrapping_mul(b).wrapping_add(d)));
                    let all: Vec<i64> = edges.into_iter().chain(products).collect();
                    // All numbers, and those that are divided as floats.
                    for a in [all.clone(), all.into_iter().filter(|a| (0..1 << 51).contains(a)).collect()] {
                        let (many_b, many_c) = (vec![b; a.len()], vec![c; a.len()]);
                        let mut out = vec![0; a.len()];
                        assert!(digits(
                            &[Reg::I64(&a), Reg::I64(&many_b), Reg::I64(&many_c)],
                            RegMut::I64(&mut out)
                        ));
                        for (&a, &out) in a.iter().zip(&out) {
                            let want = if b == 0 || c == 0 { 0 } else { a.wrapping_div(b).wrapping_rem(c) };
                            assert_eq!(out, want, "{a} {b} {c}");
                        }
                    }
                }
            }
        });
    }
}
