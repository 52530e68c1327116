//! Elementary functions for host code, generic over `f32` and `f64`.
//!
//! Operation definitions call these, not the methods of `f32`: they give the same bits on every
//! machine, and the common ones compile to vector code inside [`host_map`](super::define) loops.

use super::{math_f32, math_f64};

/// The two float types of registers, with the functions that host code needs.
pub trait Real: Copy {
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn expm1(self) -> Self;
    fn ln(self) -> Self;
    fn log1p(self) -> Self;
    fn log2(self) -> Self;
    fn log10(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn tanh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
    fn sigmoid(self) -> Self;
    fn erf(self) -> Self;
    fn erfc(self) -> Self;
    fn gelu(self) -> Self;
    fn lgamma(self) -> Self;
    fn tgamma(self) -> Self;
    fn cbrt(self) -> Self;
    fn pow(self, exponent: Self) -> Self;
    fn atan2(self, x: Self) -> Self;
    fn hypot(self, other: Self) -> Self;
    fn fmod(self, divisor: Self) -> Self;
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($more:ident),*)),+ $(,)?) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name<T: Real>(a: T $(, $more: T)*) -> T {
            Real::$name(a $(, $more)*)
        })+
    };
}

functions! {
    /// e^a
    exp(),
    /// 2^a
    exp2(),
    /// e^a - 1, accurate near 0
    expm1(),
    /// The natural logarithm.
    ln(),
    /// ln(1 + a), accurate near 0
    log1p(),
    /// The binary logarithm.
    log2(),
    /// The decimal logarithm.
    log10(),
    /// Sine of radians.
    sin(),
    /// Cosine of radians.
    cos(),
    /// Tangent of radians.
    tan(),
    /// Arc sine.
    asin(),
    /// Arc cosine.
    acos(),
    /// Arc tangent.
    atan(),
    /// Hyperbolic sine.
    sinh(),
    /// Hyperbolic cosine.
    cosh(),
    /// Hyperbolic tangent.
    tanh(),
    /// Inverse hyperbolic sine.
    asinh(),
    /// Inverse hyperbolic cosine.
    acosh(),
    /// Inverse hyperbolic tangent.
    atanh(),
    /// 1 / (1 + e^-a)
    sigmoid(),
    /// The error function.
    erf(),
    /// 1 - erf(a), accurate where the result is small.
    erfc(),
    /// a times the cumulative normal distribution at a, accurate where the result is small.
    gelu(),
    /// ln |gamma(a)|
    lgamma(),
    /// The gamma function.
    tgamma(),
    /// The cube root.
    cbrt(),
    /// a to the power of `exponent`, as C's `pow`.
    pow(exponent),
    /// The angle of the point (x, a).
    atan2(x),
    /// sqrt(a^2 + other^2) without overflow.
    hypot(other),
    /// The remainder with the sign of a, as C's `fmod`.
    fmod(divisor),
}

macro_rules! methods {
    ($wide:ty, $($name:ident($($more:ident),*) = $e:expr),+ $(,)?) => {
        $(#[inline(always)]
        fn $name(self $(, $more: Self)*) -> Self {
            let f: fn($wide $(, methods!(@ $more $wide))*) -> $wide = $e;
            f(<$wide>::from(self) $(, <$wide>::from($more))*) as Self
        })+
    };
    (@ $more:ident $wide:ty) => { $wide };
}

/// Methods implemented in [`single`].
macro_rules! vectors {
    ($($name:ident($($more:ident)?)),+ $(,)?) => {
        $(#[inline(always)]
        fn $name(self $(, $more: Self)?) -> Self {
            math_f32::$name(self $(, $more)?)
        })+
    };
}

impl Real for f64 {
    methods! {
        f64,
        exp() = math_f64::exp, exp2() = libm::exp2, expm1() = libm::expm1, ln() = math_f64::ln, log1p() = libm::log1p,
        log2() = libm::log2, log10() = libm::log10, sin() = libm::sin, cos() = libm::cos, tan() = libm::tan,
        asin() = libm::asin, acos() = libm::acos, atan() = libm::atan, sinh() = libm::sinh, cosh() = libm::cosh,
        tanh() = libm::tanh, asinh() = libm::asinh, acosh() = acosh_wide, atanh() = libm::atanh,
        sigmoid() = |a| 1.0 / (1.0 + math_f64::exp(-a)),
        erf() = libm::erf, erfc() = libm::erfc, gelu() = gelu_wide, lgamma() = libm::lgamma, tgamma() = libm::tgamma,
        cbrt() = libm::cbrt, pow(exponent) = libm::pow, atan2(x) = libm::atan2, hypot(other) = libm::hypot,
        fmod(divisor) = |a, b| a % b,
    }
}

/// a times the cumulative normal distribution at a. The rounding of `a / sqrt(2)` would cost the tail its
/// last digits. So the rounding error is computed with products of halves, which are exact, and corrected to
/// first order.
fn gelu_wide(a: f64) -> f64 {
    // sqrt(1/2): its first 26 bits, and the remainder.
    const HIGH: f64 = 0.707_106_769_084_930_4;
    const LOW: f64 = 1.210_161_710_447_897e-8;
    let y = -a * std::f64::consts::FRAC_1_SQRT_2;
    let high = f64::from_bits(a.to_bits() & !0x3ff_ffff);
    let lost = (high * HIGH + y) + (high * LOW + (a - high) * std::f64::consts::FRAC_1_SQRT_2);
    let correction = if y > 1.0 && y < 28.0 { 2.0 * y * lost } else { 0.0 };
    let tail = libm::erfc(y);
    0.5 * a * (tail + tail * correction)
}

/// The inverse hyperbolic cosine. `libm` loses the sign of large arguments.
#[inline(always)]
fn acosh_wide(a: f64) -> f64 {
    if a < 1.0 { f64::NAN } else { libm::acosh(a) }
}

impl Real for f32 {
    methods! {
        f64,
        sin() = libm::sin, cos() = libm::cos, tan() = libm::tan,
        asinh() = libm::asinh, acosh() = acosh_wide, atanh() = libm::atanh,
        lgamma() = libm::lgamma, tgamma() = libm::tgamma, cbrt() = libm::cbrt,
        fmod(divisor) = |a, b| a % b,
    }
    vectors! {
        exp(), exp2(), expm1(), ln(), log1p(), log2(), log10(), sinh(), cosh(), tanh(), sigmoid(), erf(),
        erfc(), gelu(), pow(exponent), asin(), acos(), atan(), atan2(x), hypot(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_keeps_the_digits_of_its_tail() {
        // x Phi(x), computed with 60 digits.
        let table: [(f64, f64); 14] = [
            (-13.0, -7.952313719414843e-38),
            (-12.5, -4.665705373597142e-35),
            (-11.0, -2.1017255319485433e-27),
            (-9.75, -8.992828186815932e-22),
            (-8.0, -4.976768459417427e-15),
            (-7.25, -1.5107971650372503e-12),
            (-6.0, -5.9195258702261885e-09),
            (-5.5, -1.0444259356238245e-07),
            (-5.0, -1.4332578593959695e-06),
            (-3.25, -0.0018753313877699928),
            (-1.0, -0.15865525393145705),
            (-0.5, -0.15426876936299344),
            (0.75, 0.5800294857173488),
            (2.0, 1.9544997361036416),
        ];
        for (x, exact) in table {
            let off = (gelu(x) - exact).abs() / exact.abs();
            assert!(off < 2e-15, "{x}: off by {off:e}");
            let single = f64::from(gelu(x as f32));
            assert!((single - exact).abs() <= exact.abs() * 1e-7, "{x}: {single:e} for {exact:e}");
        }
        assert_eq!((gelu(-40.0), gelu(40.0), gelu(1e300), gelu(-1e300)), (0.0, 40.0, 1e300, 0.0));
        assert_eq!((gelu(-20.0f32), gelu(20.0f32), gelu(3e38f32), gelu(-3e38f32)), (0.0, 20.0, 3e38, 0.0));
        assert!(gelu(f32::NAN).is_nan() && gelu(f64::NAN).is_nan());
    }

    #[test]
    fn single_precision_rounds_once() {
        assert_eq!(exp(1.0f32), std::f32::consts::E);
        assert_eq!(ln(10.0f32), std::f32::consts::LN_10);
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(sigmoid(0.0f64), 0.5);
        assert!(erf(f32::NAN).is_nan());
        assert_eq!(pow(2.0f32, 10.0), 1024.0);
    }
}
