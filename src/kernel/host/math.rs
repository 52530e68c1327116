//! Elementary functions for host code, generic over `f32` and `f64`.
//!
//! Operation definitions call these, not the methods of `f32`: they give the same bits on every
//! machine, and the common ones compile to vector code inside [`host_map`](super::define) loops.

use super::single;

/// The two float types of registers, with the functions that host code needs.
pub trait Real: Copy {
    #![allow(missing_docs)]
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
    /// e^a - 1, exact near 0
    expm1(),
    /// The natural logarithm.
    ln(),
    /// ln(1 + a), exact near 0
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
    /// 1 - erf(a), exact where that is small.
    erfc(),
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

/// Methods that [`single`] has.
macro_rules! vectors {
    ($($name:ident($($more:ident)?)),+ $(,)?) => {
        $(#[inline(always)]
        fn $name(self $(, $more: Self)?) -> Self {
            single::$name(self $(, $more)?)
        })+
    };
}

impl Real for f64 {
    methods! {
        f64,
        exp() = libm::exp, exp2() = libm::exp2, expm1() = libm::expm1, ln() = libm::log, log1p() = libm::log1p,
        log2() = libm::log2, log10() = libm::log10, sin() = libm::sin, cos() = libm::cos, tan() = libm::tan,
        asin() = libm::asin, acos() = libm::acos, atan() = libm::atan, sinh() = libm::sinh, cosh() = libm::cosh,
        tanh() = libm::tanh, asinh() = libm::asinh, acosh() = libm::acosh, atanh() = libm::atanh,
        sigmoid() = |a| 1.0 / (1.0 + libm::exp(-a)),
        erf() = libm::erf, erfc() = libm::erfc, lgamma() = libm::lgamma, tgamma() = libm::tgamma,
        cbrt() = libm::cbrt, pow(exponent) = libm::pow, atan2(x) = libm::atan2, hypot(other) = libm::hypot,
        fmod(divisor) = |a, b| a % b,
    }
}

impl Real for f32 {
    methods! {
        f64,
        sin() = libm::sin, cos() = libm::cos, tan() = libm::tan,
        asin() = libm::asin, acos() = libm::acos, atan() = libm::atan,
        asinh() = libm::asinh, acosh() = libm::acosh, atanh() = libm::atanh,
        erfc() = libm::erfc, lgamma() = libm::lgamma, tgamma() = libm::tgamma,
        cbrt() = libm::cbrt, atan2(x) = libm::atan2, hypot(other) = libm::hypot,
        fmod(divisor) = |a, b| a % b,
    }
    vectors! {
        exp(), exp2(), expm1(), ln(), log1p(), log2(), log10(), sinh(), cosh(), tanh(), sigmoid(), erf(),
        pow(exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
