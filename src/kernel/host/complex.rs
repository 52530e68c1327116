//! Complex arithmetic, as host code and, line by line, as CUDA C in `kernels/complex.cuh`.
//!
//! A product is four real products and two sums, a quotient uses Smith's scaling, and nothing is contracted:
//! these give the same bits on every machine. Functions that need logarithms or angles agree only as closely
//! as those do.

use super::define;
use super::math::{self, Real};
use num_complex::Complex;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// An element of `c64`, in memory and in registers.
pub type C64 = Complex<f32>;

/// An element of `c128`, in memory and in registers.
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
    const ZERO: Self;
    const HALF: Self;
    const ONE: Self;
    const TWO: Self;
    const LN_2: Self;
    const LN_10: Self;
    /// Above this, adding 1 to the square of a number does not change the square.
    const HUGE: Self;
    /// Above this, the hyperbolic tangent is 1.
    const FLAT: Self;
    /// Above this, e to the power of a number overflows.
    const FAR: Self;
    /// Above this, the magnitude of a complex number may overflow.
    const TOP: Self;
    /// Below this, the magnitude of a complex number may lose precision.
    const LOW: Self;
    /// 2^64, its logarithm, and its inverse root.
    const UP: Self;
    const UP_LN: Self;
    const UP_ROOT: Self;
    /// Below this, the square of the imaginary part of a number near 1 may underflow.
    const NEAR_POLE: Self;
    fn magnitude(self) -> Self;
    fn root(self) -> Self;
    fn with_sign(self, sign: Self) -> Self;
    fn finite(self) -> bool;
    fn infinite(self) -> bool;
}

macro_rules! parts {
    ($($t:ident, $huge:literal, $flat:literal, $far:literal, $top:literal, $low:literal);*) => {
        $(impl Part for $t {
            const LN_2: $t = std::$t::consts::LN_2;
            const LN_10: $t = std::$t::consts::LN_10;
            const HUGE: $t = $huge;
            const FLAT: $t = $flat;
            const FAR: $t = $far;
            const TOP: $t = $top;
            const LOW: $t = $low;
            const UP: $t = 18446744073709551616.0;
            const UP_LN: $t = 64.0 * std::$t::consts::LN_2;
            const UP_ROOT: $t = 1.0 / 4294967296.0;
            const NEAR_POLE: $t = 1e-10;
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

parts!(f32, 1e5, 12.0, 88.72, 8e37, 1e-30; f64, 1e9, 24.0, 709.78, 4e307, 1e-290);

/// A complex number from its parts.
#[inline(always)]
pub fn pair<T>(re: T, im: T) -> Complex<T> {
    Complex { re, im }
}

/// A `c64` as a `c128`.
#[inline(always)]
pub fn wide(a: C64) -> C128 {
    pair(f64::from(a.re), f64::from(a.im))
}

/// A `c128` rounded to a `c64`.
#[inline(always)]
pub fn narrow(a: C128) -> C64 {
    pair(a.re as f32, a.im as f32)
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

/// a / b, by Smith's algorithm; division by zero follows NumPy and PyTorch.
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

/// The number with this absolute value and angle.
#[inline(always)]
pub fn polar<T: Part>(abs: T, angle: T) -> Complex<T> {
    pair(abs * math::cos(angle), abs * math::sin(angle))
}

/// e^x t, also where e^x alone overflows; 0 where t is 0.
#[inline(always)]
fn grown<T: Part>(x: T, t: T) -> T {
    if t == T::ZERO {
        return t;
    }
    let far = x > T::FAR;
    let size = math::exp(if far { T::HALF * x } else { x });
    if far { size * t * size } else { size * t }
}

/// cosh(x) t, in the same way: far from 0, cosh(x) is 2 cosh(x / 2)^2.
#[inline(always)]
fn cosh_of<T: Part>(x: T, t: T) -> T {
    if t == T::ZERO {
        return t;
    }
    if x.magnitude() > T::FAR {
        let size = math::cosh(T::HALF * x);
        return T::TWO * (size * t * size);
    }
    t * math::cosh(x)
}

/// sinh(x) t, in the same way; also 0 where x is 0.
#[inline(always)]
fn sinh_of<T: Part>(x: T, t: T) -> T {
    if t == T::ZERO {
        return T::ONE.with_sign(x) * t;
    }
    if x == T::ZERO {
        return if t < T::ZERO { -x } else { x };
    }
    if x.magnitude() > T::FAR {
        let size = math::sinh(T::HALF * x);
        return T::TWO * (size * t * size.magnitude());
    }
    t * math::sinh(x)
}

/// The cosine in the real part of e^(x + i angle): 1 if x is infinite and the angle is not finite.
#[inline(always)]
fn turned<T: Part>(x: T, angle: T) -> T {
    if x.infinite() && !angle.finite() { T::ONE } else { math::cos(angle) }
}

/// e^a
#[inline(always)]
pub fn exp<T: Part>(a: Complex<T>) -> Complex<T> {
    let re = grown(a.re, turned(a.re, a.im));
    if a.re.infinite() && a.re < T::ZERO && !a.im.finite() {
        return pair(re, T::ZERO);
    }
    pair(re, grown(a.re, math::sin(a.im)))
}

/// A factor that keeps the magnitude of a complex number from overflowing and from losing precision; its
/// logarithm; and the inverse of its root. `most` is the larger magnitude of the two parts.
#[inline(always)]
fn scaled<T: Part>(most: T) -> (T, T, T) {
    if most > T::TOP {
        (T::HALF * T::HALF, -(T::TWO * T::LN_2), T::TWO)
    } else if most < T::LOW {
        (T::UP, T::UP_LN, T::UP_ROOT)
    } else {
        (T::ONE, T::ZERO, T::ONE)
    }
}

/// The natural logarithm; also accurate near |a| = 1.
#[inline(always)]
pub fn ln<T: Part>(a: Complex<T>) -> Complex<T> {
    let (x, y) = (a.re.magnitude(), a.im.magnitude());
    let (most, least) = if x < y { (y, x) } else { (x, y) };
    let near = most > T::HALF && most < T::TWO;
    let size = if near {
        T::HALF * math::log1p((most - T::ONE) * (most + T::ONE) + least * least)
    } else {
        let (by, off, _) = scaled(most);
        math::ln(math::hypot(by * a.re, by * a.im)) - off
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
    let (re, im) = (a.re.magnitude(), a.im.magnitude());
    let (by, _, scale) = scaled(if re < im { im } else { re });
    let (x, y) = (by * a.re, by * a.im);
    let size = (T::HALF * x.magnitude() + T::HALF * math::hypot(x, y)).root();
    if a.re >= T::ZERO {
        pair(scale * size, scale * (y / (T::TWO * size)))
    } else {
        pair(scale * (y.magnitude() / (T::TWO * size)), scale * size.with_sign(y))
    }
}

/// a to the power of b: e^(b ln a). It is 1 where b is 0 or a is 1, a where b is 1, and 0 where a is 0 and b has a
/// positive real part.
#[inline(always)]
pub fn pow<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let real = |a: Complex<T>, number: T| a.re == number && a.im == T::ZERO;
    if real(b, T::ZERO) || real(a, T::ONE) {
        return pair(T::ONE, T::ZERO);
    }
    if real(b, T::ONE) {
        return a;
    }
    if real(a, T::ZERO) && b.re > T::ZERO {
        return pair(T::ZERO, T::ZERO);
    }
    exp(mul(b, ln(a)))
}

/// The sine.
#[inline(always)]
pub fn sin<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(cosh_of(a.im, math::sin(a.re)), sinh_of(a.im, turned(a.im, a.re)))
}

/// The cosine.
#[inline(always)]
pub fn cos<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(cosh_of(a.im, turned(a.im, a.re)), -sinh_of(a.im, math::sin(a.re)))
}

/// The hyperbolic sine.
#[inline(always)]
pub fn sinh<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(sinh_of(a.re, turned(a.re, a.im)), cosh_of(a.re, math::sin(a.im)))
}

/// The hyperbolic cosine.
#[inline(always)]
pub fn cosh<T: Part>(a: Complex<T>) -> Complex<T> {
    pair(cosh_of(a.re, turned(a.re, a.im)), sinh_of(a.re, math::sin(a.im)))
}

/// The tangent.
#[inline(always)]
pub fn tan<T: Part>(a: Complex<T>) -> Complex<T> {
    let b = tanh(pair(-a.im, a.re));
    pair(b.im, -b.re)
}

/// The hyperbolic tangent. Source: W. Kahan, "Branch cuts for complex elementary functions".
#[inline(always)]
pub fn tanh<T: Part>(a: Complex<T>) -> Complex<T> {
    if a.re.finite() && !a.im.finite() {
        let none = a.im * T::ZERO;
        return pair(if a.re == T::ZERO { a.re } else { none }, none);
    }
    let real = |im: T| if a.im == T::ZERO { a.im } else { im };
    if a.re.magnitude() > T::FLAT {
        let four = T::TWO * T::TWO;
        let small = four * math::exp(-T::TWO * a.re.magnitude());
        let im = if a.im.finite() { math::sin(a.im) * math::cos(a.im) * small } else { T::ZERO };
        return pair(T::ONE.with_sign(a.re), real(im));
    }
    let (t, s) = (math::tan(a.im), math::sinh(a.re));
    let (beta, rho) = (T::ONE + t * t, (T::ONE + s * s).root());
    let scale = T::ONE / (T::ONE + beta * s * s);
    match t.infinite() {
        true => pair(rho / s, T::ONE / t),
        false => pair(beta * rho * s * scale, real(t * scale)),
    }
}

/// 1 / (1 + e^-a): by e^a on the left and e^-a on the right, so that neither overflows.
#[inline(always)]
pub fn sigmoid<T: Part>(a: Complex<T>) -> Complex<T> {
    let one = pair(T::ONE, T::ZERO);
    if a.re < T::ZERO {
        let size = exp(a);
        return div(size, add(one, size));
    }
    div(one, add(one, exp(neg(a))))
}

/// a / (1 + e^-a), in the same way.
#[inline(always)]
pub fn silu<T: Part>(a: Complex<T>) -> Complex<T> {
    let one = pair(T::ONE, T::ZERO);
    if a.re < T::ZERO {
        let size = exp(a);
        return div(mul(a, size), add(one, size));
    }
    div(a, add(one, exp(neg(a))))
}

/// a / (1 + |a|)
#[inline(always)]
pub fn softsign<T: Part>(a: Complex<T>) -> Complex<T> {
    let scale = T::ONE + abs(a);
    pair(a.re / scale, a.im / scale)
}

/// e^a - 1, accurate near 0.
#[inline(always)]
pub fn expm1<T: Part>(a: Complex<T>) -> Complex<T> {
    let whole = exp(a);
    if a.re.magnitude() > T::FAR {
        return pair(whole.re - T::ONE, whole.im);
    }
    let half = math::sin(T::HALF * a.im);
    pair(math::expm1(a.re) * math::cos(a.im) - T::TWO * half * half, whole.im)
}

/// 2^a
#[inline(always)]
pub fn exp2<T: Part>(a: Complex<T>) -> Complex<T> {
    exp(pair(a.re * T::LN_2, a.im * T::LN_2))
}

/// The binary logarithm.
#[inline(always)]
pub fn log2<T: Part>(a: Complex<T>) -> Complex<T> {
    let b = ln(a);
    pair(b.re / T::LN_2, b.im / T::LN_2)
}

/// The decimal logarithm.
#[inline(always)]
pub fn log10<T: Part>(a: Complex<T>) -> Complex<T> {
    let b = ln(a);
    pair(b.re / T::LN_10, b.im / T::LN_10)
}

/// ln(1 + a), accurate near 0.
#[inline(always)]
pub fn log1p<T: Part>(a: Complex<T>) -> Complex<T> {
    let far = ln(pair(T::ONE + a.re, a.im));
    let near = a.re.magnitude() < T::HALF && a.im.magnitude() < T::HALF;
    let size = T::HALF * math::log1p(a.re * (a.re + T::TWO) + a.im * a.im);
    pair(if near { size } else { far.re }, far.im)
}

/// ln(e^a + e^b), scaled by the number with the larger real part.
#[inline(always)]
pub fn log_add_exp<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let (least, most) = if a.re < b.re { (a, b) } else { (b, a) };
    if is_nan(a) || is_nan(b) {
        return add(a, pair(b.re + b.im, b.re + b.im));
    }
    if least.re.infinite() && least.re == most.re {
        return if least.re < T::ZERO { least } else { ln(add(exp(least), exp(most))) };
    }
    add(log1p(exp(sub(least, most))), most)
}

/// ln(2 |a|), without overflow.
#[inline(always)]
fn ln_of_twice<T: Part>(a: Complex<T>) -> T {
    math::ln(math::hypot(T::HALF * a.re, T::HALF * a.im)) + T::LN_2 + T::LN_2
}

#[inline(always)]
fn is_huge<T: Part>(a: Complex<T>) -> bool {
    a.re.magnitude() > T::HUGE || a.im.magnitude() > T::HUGE
}

/// pi / 2
#[inline(always)]
fn quarter_turn<T: Part>() -> T {
    math::atan2(T::ONE, T::ZERO)
}

/// The arc sine. Source, also for the other inverses: W. Kahan, "Branch cuts for complex elementary
/// functions".
#[inline(always)]
pub fn asin<T: Part>(a: Complex<T>) -> Complex<T> {
    let real = |re: T| if a.re == T::ZERO { a.re } else { re };
    if is_huge(a) {
        return pair(real(math::atan2(a.re, a.im.magnitude())), ln_of_twice(a).with_sign(a.im));
    }
    let (less, more) = (sqrt(pair(T::ONE - a.re, -a.im)), sqrt(pair(T::ONE + a.re, a.im)));
    let re = math::atan2(a.re, less.re * more.re - less.im * more.im);
    pair(real(re), math::asinh(less.re * more.im - less.im * more.re))
}

/// The arc cosine.
#[inline(always)]
pub fn acos<T: Part>(a: Complex<T>) -> Complex<T> {
    let real = |re: T| if a.re == T::ZERO { quarter_turn() } else { re };
    if is_huge(a) {
        return pair(real(math::atan2(a.im.magnitude(), a.re)), ln_of_twice(a).with_sign(-a.im));
    }
    let (less, more) = (sqrt(pair(T::ONE - a.re, -a.im)), sqrt(pair(T::ONE + a.re, a.im)));
    let re = T::TWO * math::atan2(less.re, more.re);
    pair(real(re), math::asinh(more.re * less.im - more.im * less.re))
}

/// The inverse hyperbolic sine.
#[inline(always)]
pub fn asinh<T: Part>(a: Complex<T>) -> Complex<T> {
    let b = asin(pair(-a.im, a.re));
    pair(b.im, -b.re)
}

/// The inverse hyperbolic cosine.
#[inline(always)]
pub fn acosh<T: Part>(a: Complex<T>) -> Complex<T> {
    let turn = |im: T| if a.re == T::ZERO { quarter_turn::<T>().with_sign(a.im) } else { im };
    if is_huge(a) {
        return pair(ln_of_twice(a), turn(math::atan2(a.im, a.re)));
    }
    let (less, more) = (sqrt(pair(a.re - T::ONE, a.im)), sqrt(pair(a.re + T::ONE, a.im)));
    let im = turn(T::TWO * math::atan2(less.im, more.re));
    pair(math::asinh(less.re * more.re + less.im * more.im), im)
}

/// The inverse hyperbolic tangent.
#[inline(always)]
pub fn atanh<T: Part>(a: Complex<T>) -> Complex<T> {
    let four = T::TWO * T::TWO;
    let lost = define::is_nan(a.im) || define::is_nan(a.re) && !a.im.infinite();
    let parts =
        |re: T, im: T| pair(if a.re == T::ZERO { a.re } else { re }, if lost { a.re + a.im } else { im });
    if is_huge(a) {
        // 1 / a, whose parts may underflow.
        let size = math::hypot(a.re, a.im);
        let re = if size.infinite() { T::ZERO } else { a.re / size / size };
        return parts(re.with_sign(a.re), quarter_turn::<T>().with_sign(a.im));
    }
    // From the magnitude: near -1 the logarithm would cancel.
    let (size, square, angle) = (a.re.magnitude(), a.im * a.im, a.im.magnitude());
    let less = T::ONE - size;
    let re = if less == T::ZERO && angle < T::NEAR_POLE {
        T::HALF * (T::LN_2 - math::ln(angle))
    } else {
        math::log1p(four * size / (less * less + square)) / four
    };
    parts(re.with_sign(a.re), T::HALF * math::atan2(T::TWO * a.im, less * (T::ONE + size) - square))
}

/// The arc tangent.
#[inline(always)]
pub fn atan<T: Part>(a: Complex<T>) -> Complex<T> {
    let b = atanh(pair(-a.im, a.re));
    pair(b.im, -b.re)
}

/// Limits each part as `nan_to_num` does.
#[inline(always)]
pub fn nan_to_num<T: Part>(a: Complex<T>, nan: T, above: T, below: T) -> Complex<T> {
    let part = |a: T| {
        if define::is_nan(a) {
            nan
        } else if !a.infinite() {
            a
        } else if a > T::ZERO {
            above
        } else {
            below
        }
    };
    pair(part(a.re), part(a.im))
}

/// a + c (b - a), computed from the nearer end.
#[inline(always)]
pub fn lerp<T: Part>(a: Complex<T>, b: Complex<T>, c: Complex<T>) -> Complex<T> {
    let way = sub(b, a);
    match abs(c) < T::HALF {
        true => add(a, mul(c, way)),
        false => sub(b, mul(way, sub(pair(T::ONE, T::ZERO), c))),
    }
}

/// Returns whether both parts are finite.
#[inline(always)]
pub fn is_finite<T: Part>(a: Complex<T>) -> bool {
    a.re.finite() && a.im.finite()
}

/// Returns whether a part is infinite.
#[inline(always)]
pub fn is_infinite<T: Part>(a: Complex<T>) -> bool {
    a.re.infinite() || a.im.infinite()
}

/// Returns whether a part is nan.
#[inline(always)]
pub fn is_nan<T: Part>(a: Complex<T>) -> bool {
    define::is_nan(a.re) || define::is_nan(a.im)
}

/// Returns whether a equals b, or |a - b| <= absolute + relative * |b|.
#[inline(always)]
pub fn is_close<T: Part>(a: Complex<T>, b: Complex<T>, relative: T, absolute: T) -> bool {
    let apart = abs(sub(a, b));
    let most = absolute + abs(pair(relative * b.re, relative * b.im));
    a.re == b.re && a.im == b.im || apart.finite() && apart <= most
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
            assert!(close(tan(a), a.tan()) && close(tanh(a), a.tanh()), "{a}");
            assert!(close(asin(a), a.asin()) && close(acos(a), a.acos()) && close(atan(a), a.atan()), "{a}");
            assert!(
                close(asinh(a), a.asinh()) && close(acosh(a), a.acosh()) && close(atanh(a), a.atanh()),
                "{a}"
            );
            assert!(close(exp(log1p(a)), a + 1.0) && close(expm1(a), a.exp() - 1.0), "{a}");
            assert!(
                close(exp2(a), a.exp2()) && close(log2(a), a.log2()) && close(log10(a), a.log10()),
                "{a}"
            );
            assert!(close(exp(log_add_exp(a, b)), a.exp() + b.exp()), "{a} {b}");
            let (power, want) = (pow(a, b), a.powc(b));
            assert!((power - want).norm() <= 1e-12 * (1.0 + want.norm()), "{a} {b}");
            assert!(close(polar(abs(a), angle(a)), a));
        }
    }

    #[test]
    fn logarithms_and_roots_hold_where_the_magnitude_overflows() {
        for (re, im) in [(3e38f32, 3e38f32), (-3e38, 3e38), (3.4e38, -1e38), (-1e30, 3.4e38), (1e38, 0.0)] {
            let wide = pair(f64::from(re), f64::from(im));
            let near = |a: Complex<f32>, b: C128| {
                let a = pair(f64::from(a.re), f64::from(a.im));
                (a - b).norm() <= 1e-6 * b.norm()
            };
            assert!(near(ln(pair(re, im)), wide.ln()) && near(sqrt(pair(re, im)), wide.sqrt()), "{re} {im}");
        }
        let a = pair(1.7e308, -1.7e308);
        assert!(close(ln(a), (a / 4.0).ln() + 4f64.ln()));
        assert!((sqrt(a) / 2.0 - (a / 4.0).sqrt()).norm() <= 1e-14 * sqrt(a).norm());
        for endless in [pair(f64::INFINITY, 1.0), pair(f64::NEG_INFINITY, -1.0), pair(1.0, f64::INFINITY)] {
            assert!(ln(endless).re == f64::INFINITY && abs(sqrt(endless)) == f64::INFINITY, "{endless}");
        }
    }

    #[test]
    fn functions_hold_where_a_factor_overflows() {
        // The functions of c64, in f64 and rounded.
        type Functions<T> = [(&'static str, fn(Complex<T>) -> Complex<T>); 9];
        fn functions<T: Part>() -> Functions<T> {
            [
                ("exp", exp),
                ("expm1", expm1),
                ("sin", sin),
                ("cos", cos),
                ("sinh", sinh),
                ("cosh", cosh),
                ("sqrt", sqrt),
                ("ln", ln),
                ("atanh", atanh),
            ]
        }
        for re in [0.0, 1e-45, -1e-38, 1.0, -1.0, 89.0, 100.0, -100.0, 1e30] {
            for im in [0.0, 1e-45, -1e-38, 1.0, std::f32::consts::PI, 89.5, 100.0, -100.0] {
                for ((name, f), (_, g)) in functions().into_iter().zip(functions()) {
                    let (found, want) = (f(pair(re, im)), g(wide(pair(re, im))));
                    let near = |f: f32, w: f64| {
                        let size = if want.norm().is_finite() { want.norm() } else { 0.0 };
                        let rounded = w as f32;
                        f == rounded || (f64::from(f) - w).abs() <= 4e-7 * w.abs().max(size) + 3e-45
                    };
                    assert!(
                        near(found.re, want.re) && near(found.im, want.im),
                        "{name}({re}, {im}): {found}, {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn infinities_and_nans_are_those_of_the_standard() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let same = |found: Complex<f32>, re: f32, im: f32| {
            let part = |a: f32, b: f32| a == b || a.is_nan() && b.is_nan();
            assert!(part(found.re, re) && part(found.im, im), "{found} for {re} {im}");
        };
        same(exp(pair(-inf, inf)), 0.0, 0.0);
        same(exp(pair(inf, nan)), inf, nan);
        same(exp(pair(inf, 0.0)), inf, 0.0);
        same(expm1(pair(-inf, nan)), -1.0, 0.0);
        same(cos(pair(0.0, 1e4)), inf, 0.0);
        same(cos(pair(inf, 0.0)), nan, 0.0);
        same(cosh(pair(-inf, inf)), inf, nan);
        same(tanh(pair(20.0, inf)), nan, nan);
        same(tanh(pair(nan, 0.0)), nan, 0.0);
        same(tanh(pair(inf, inf)), 1.0, 0.0);
        same(asin(pair(0.0, nan)), 0.0, nan);
        same(atanh(pair(nan, inf)), 0.0, std::f32::consts::FRAC_PI_2);
        same(atanh(pair(1e30, nan)), nan, nan);
        assert!(is_finite(sigmoid(pair(-200.0f32, 1.0))) && is_finite(silu(pair(-200.0f32, 1.0))));
        same(pow(pair(1.0, inf), pair(1.0, 0.0)), 1.0, inf);
        same(pow(pair(1.0, 0.0), pair(inf, 2.0)), 1.0, 0.0);
        same(pow(pair(-2.5, 1.5), pair(-inf, 0.0)), 0.0, 0.0);
        let big = f64::MAX;
        assert!(!is_close(pair(0.0, 0.0), pair(big, big), 1e-5, 1e-8));
    }

    #[test]
    fn inverse_functions_hold_for_large_and_small_numbers() {
        for exponent in [-300, -150, -20, -9, -3, 3, 8, 10, 20, 150, 300] {
            let size = 10f64.powi(exponent);
            for (re, im) in [(1.0, 0.5), (-1.0, 0.5), (0.5, -1.0), (-0.7, -0.7)] {
                let a = pair(re * size, im * size);
                for (name, b) in
                    [("asin", asin(a)), ("asinh", asinh(a)), ("acos", acos(a)), ("acosh", acosh(a))]
                {
                    assert!(is_finite(b), "{name} {a}");
                }
                if exponent < 0 {
                    for (name, b) in
                        [("asin", asin(a)), ("asinh", asinh(a)), ("atan", atan(a)), ("atanh", atanh(a))]
                    {
                        assert!(exponent > -9 || (b - a).norm() <= 1e-12 * a.norm(), "{name} {a}: {b}");
                    }
                } else if exponent < 9 {
                    assert!(
                        (sin(asin(a)) - a).norm() <= 1e-12 * size
                            && (cosh(acosh(a)) - a).norm() <= 1e-12 * size
                    );
                    let one = mul(atanh(a), a);
                    assert!(is_finite(one) && (tanh(atanh(a)) - a).norm() <= 1e-2 * size * size, "{a}");
                }
            }
        }
        assert_eq!(tanh(pair(400.0f64, 1.0)), pair(1.0, 0.0));
        assert!((tanh(pair(20.0f64, 1.0)) - pair(20.0f64, 1.0).tanh()).norm() < 1e-15);
        assert!(is_nan(tan(pair(f64::NAN, 0.0))) && is_nan(asin(pair(f64::NAN, 1.0))));
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
