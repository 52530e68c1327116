//! Arithmetic of complex numbers, as host code and, word for word, as CUDA C in
//! `kernels/complex.cuh`.
//!
//! Products are four products and two sums, quotients go by Smith's scaling, and nothing is
//! contracted: these give the same bits on every machine. Functions that need logarithms or angles
//! agree as far as those do.

use super::math::{self, Real};
use num_complex::Complex;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number of `c64`, in memory and in registers.
pub type C64 = Complex<f32>;

/// A number of `c128`.
pub type C128 = Complex<f64>;

/// A part of a complex number.
pub trait Part:
    Real
    + PartialOrd
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    #![allow(missing_docs)]
    const ZERO: Self;
    const HALF: Self;
    const ONE: Self;
    const TWO: Self;
    fn magnitude(self) -> Self;
    fn root(self) -> Self;
    fn with_sign(self, sign: Self) -> Self;
    fn finite(self) -> bool;
    fn infinite(self) -> bool;
}

macro_rules! parts {
    ($($t:ty),*) => {
        $(impl Part for $t {
            const ZERO: $t = 0.0;
            const HALF: $t = 0.5;
            const ONE: $t = 1.0;
            const TWO: $t = 2.0;
            #[inline(always)]
            fn magnitude(self) -> $t {
                self.abs()
            }
            #[inline(always)]
            fn root(self) -> $t {
                self.sqrt()
            }
            #[inline(always)]
            fn with_sign(self, sign: $t) -> $t {
                self.copysign(sign)
            }
            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }
            #[inline(always)]
            fn infinite(self) -> bool {
                self.is_infinite()
            }
        })*
    };
}

parts!(f32, f64);

/// A complex number of its parts.
#[inline(always)]
pub fn pair<T>(re: T, im: T) -> Complex<T> {
    Complex { re, im }
}

/// a + b
#[inline(always)]
pub fn add<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    pair(a.re + b.re, a.im + b.im)
}

/// a - b
#[inline(always)]
pub fn sub<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    pair(a.re - b.re, a.im - b.im)
}

/// -a
#[inline(always)]
pub fn neg<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(-a.re, -a.im)
}

/// The conjugate.
#[inline(always)]
pub fn conj<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(a.re, -a.im)
}

/// a * b
#[inline(always)]
pub fn mul<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    pair(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
}

/// a / b, by Smith's algorithm; by zero as NumPy and PyTorch have it.
#[inline(always)]
pub fn div<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let (re, im) = (b.re.magnitude(), b.im.magnitude());
    if re >= im {
        if re == T::ZERO && im == T::ZERO {
            return pair(a.re / re, a.im / im);
        }
        let ratio = b.im / b.re;
        let scale = T::ONE / (b.re + b.im * ratio);
        pair((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale)
    } else {
        let ratio = b.re / b.im;
        let scale = T::ONE / (b.re * ratio + b.im);
        pair((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale)
    }
}

/// 1 / a
#[inline(always)]
pub fn reciprocal<T: Part>(a: Complex<T>) -> Complex<T> {
    div(pair(T::ONE, T::ZERO), a)
}

/// |a|, without overflow.
#[inline(always)]
pub fn abs<T: Part>(a: Complex<T>) -> T {
    math::hypot(a.re, a.im)
}

/// The angle, from -pi to pi.
#[inline(always)]
pub fn angle<T: Part>(a: Complex<T>) -> T {
    math::atan2(a.im, a.re)
}

/// The number of that absolute value and angle.
#[inline(always)]
pub fn polar<T: Part>(abs: T, angle: T) -> Complex<T> {
    pair(abs * math::cos(angle), abs * math::sin(angle))
}

/// e^a
#[inline(always)]
pub fn exp<T: Part>(a: Complex<T>) -> Complex<T> {
    let size = math::exp(a.re);
    if a.im == T::ZERO { pair(size, a.im) } else { polar(size, a.im) }
}

/// The natural logarithm; exact near |a| = 1, too.
#[inline(always)]
pub fn ln<T: Part>(a: Complex<T>) -> Complex<T> {
    let (x, y) = (a.re.magnitude(), a.im.magnitude());
    let (most, least) = if x < y { (y, x) } else { (x, y) };
    let near = most > T::HALF && most < T::TWO;
    let size = if near {
        T::HALF * math::log1p((most - T::ONE) * (most + T::ONE) + least * least)
    } else {
        math::ln(math::hypot(a.re, a.im))
    };
    pair(size, angle(a))
}

/// The square root with a real part of 0 or more.
#[inline(always)]
pub fn sqrt<T: Part>(a: Complex<T>) -> Complex<T> {
    if a.re == T::ZERO && a.im == T::ZERO {
        return pair(T::ZERO, a.im);
    }
    if a.im.infinite() {
        return pair(a.im.magnitude(), a.im);
    }
    let size = (T::HALF * a.re.magnitude() + T::HALF * math::hypot(a.re, a.im)).root();
    if a.re >= T::ZERO {
        pair(size, a.im / (T::TWO * size))
    } else {
        pair(a.im.magnitude() / (T::TWO * size), size.with_sign(a.im))
    }
}

/// a to the power of b: e^(b ln a); 1 where b is 0, 0 where a is 0 and b has a positive real part.
#[inline(always)]
pub fn pow<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    if b.re == T::ZERO && b.im == T::ZERO {
        return pair(T::ONE, T::ZERO);
    }
    if a.re == T::ZERO && a.im == T::ZERO && b.re > T::ZERO {
        return pair(T::ZERO, T::ZERO);
    }
    exp(mul(b, ln(a)))
}

/// The sine.
#[inline(always)]
pub fn sin<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(math::sin(a.re) * math::cosh(a.im), math::cos(a.re) * math::sinh(a.im))
}

/// The cosine.
#[inline(always)]
pub fn cos<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(math::cos(a.re) * math::cosh(a.im), -(math::sin(a.re) * math::sinh(a.im)))
}

/// The hyperbolic sine.
#[inline(always)]
pub fn sinh<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(math::sinh(a.re) * math::cos(a.im), math::cosh(a.re) * math::sin(a.im))
}

/// The hyperbolic cosine.
#[inline(always)]
pub fn cosh<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(math::cosh(a.re) * math::cos(a.im), math::sinh(a.re) * math::sin(a.im))
}

/// Whether both parts are finite.
#[inline(always)]
pub fn is_finite<T: Part>(a: Complex<T>) -> bool {
    a.re.finite() && a.im.finite()
}

/// Whether a part is infinite.
#[inline(always)]
pub fn is_infinite<T: Part>(a: Complex<T>) -> bool {
    a.re.infinite() || a.im.infinite()
}

/// Whether a part is nan.
#[inline(always)]
#[allow(clippy::eq_op)]
pub fn is_nan<T: Part>(a: Complex<T>) -> bool {
    a.re != a.re || a.im != a.im
}

/// Whether a is b, or |a - b| <= absolute + relative * |b|.
#[inline(always)]
pub fn is_close<T: Part>(a: Complex<T>, b: Complex<T>, relative: T, absolute: T) -> bool {
    let apart = sub(a, b);
    a.re == b.re && a.im == b.im
        || is_finite(apart) && abs(apart) <= absolute + (relative * abs(b)).magnitude()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: C128, b: C128) -> bool {
        (a - b).norm() <= 1e-14 * (1.0 + b.norm())
    }

    #[test]
    fn functions_agree_with_num_complex() {
        for i in 0..400 {
            let part = |k: u64| ((i * 2654435761 + k * 40503) % 2000) as f64 / 250.0 - 4.0;
            let (a, b) = (pair(part(1), part(2)), pair(part(3), part(4)));
            if b.norm() < 1e-3 || a.norm() < 1e-3 {
                continue;
            }
            assert!(close(mul(a, b), a * b) && close(div(a, b), a / b), "{a} {b}");
            assert!(close(exp(a), a.exp()) && close(ln(a), a.ln()) && close(sqrt(a), a.sqrt()), "{a}");
            assert!(close(sin(a), a.sin()) && close(cos(a), a.cos()), "{a}");
            assert!(close(sinh(a), a.sinh()) && close(cosh(a), a.cosh()), "{a}");
            let (power, want) = (pow(a, b), a.powc(b));
            assert!((power - want).norm() <= 1e-12 * (1.0 + want.norm()), "{a} {b}");
            assert!(close(polar(abs(a), angle(a)), a));
        }
    }

    #[test]
    fn limits_are_those_of_the_definition() {
        let zero = pair(0.0f32, 0.0);
        assert_eq!(pow(zero, zero), pair(1.0, 0.0));
        assert_eq!(pow(zero, pair(2.0, 0.0)), zero);
        assert_eq!(sqrt(pair(-4.0f32, 0.0)), pair(0.0, 2.0));
        assert_eq!(sqrt(pair(-4.0f32, -0.0)), pair(0.0, -2.0));
        assert!(div(pair(1.0f32, 0.0), zero).re.is_infinite());
        assert_eq!(div(pair(1e30f32, 1e30), pair(1e30, 1e30)), pair(1.0, 0.0));
        assert_eq!(abs(pair(3e30f32, 4e30)), 5e30);
        let near = ln(pair(1.0f64, 1e-9));
        assert!((near.re - 5e-19).abs() < 1e-30 && near.im == 1e-9);
    }
}
