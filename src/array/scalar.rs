//! Single values.

use super::dtype::dispatch;
use super::element::Convert;
use super::{Class, Dtype};

/// One value, as a script number or a result of `item()`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Real and imaginary part; scripts see a record of both.
    Complex(f64, f64),
}

impl Scalar {
    /// The value as a float. Integers round to nearest; a complex number gives its real part.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) | Scalar::Complex(f, _) => f,
        }
    }

    /// The value as an integer. Floats truncate and saturate, nan is 0; a complex number gives its real part.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::Float(f) | Scalar::Complex(f, _) => f as i64,
        }
    }

    /// The dtype of a tensor made from this value: `bool`, `i64`, `f32`, `c64`.
    pub fn dtype(self) -> Dtype {
        match self {
            Scalar::Bool(_) => Dtype::Bool,
            Scalar::Int(_) => Dtype::I64,
            Scalar::Float(_) => Dtype::F32,
            Scalar::Complex(..) => Dtype::C64,
        }
    }

    /// The register bits of this value read as a dtype. `bool` tests for non-zero; other dtypes use
    /// [`Scalar::bits`] of their class.
    pub fn bits_as(self, dtype: Dtype) -> u64 {
        match dtype {
            Dtype::Bool => u64::from(!self.is_zero()),
            dtype => self.bits(dtype.class()),
        }
    }

    /// The value as an element of a dtype: integers wrap, floats are rounded.
    pub fn rounded(self, dtype: Dtype) -> Scalar {
        dispatch!(dtype, T => T::of(self).scalar())
    }

    /// True if an element of the dtype can be set to this value: it may be rounded or truncated, but not
    /// overflow. Negative ints fit unsigned dtypes if they can be meant modulo 2^n: `-1` is 255 in `u8`. Source:
    /// `c10::overflows`.
    pub fn fits(self, dtype: Dtype) -> bool {
        match (self, dtype.range()) {
            _ if dtype == Dtype::Bool => true,
            (Scalar::Complex(re, im), _) => {
                let im_fits = if dtype.is_complex() { Scalar::Float(im).fits(dtype) } else { im == 0.0 };
                im_fits && Scalar::Float(re).fits(dtype)
            }
            (Scalar::Int(i), Some((least, most))) => i <= most && i >= if least == 0 { -most } else { least },
            // It is truncated, so 255.5 fits `u8`.
            (other, Some((least, most))) => {
                other.as_f64() >= least as f64 && other.as_f64() < most as f64 + 1.0
            }
            (other, None) => !other.as_f64().is_finite() || other.as_f64().abs() <= dtype.greatest(),
        }
    }

    /// Appends the bytes of an element. Integers wrap; the imaginary part of a real number is 0.
    pub fn encode(self, dtype: Dtype, bytes: &mut Vec<u8>) {
        dispatch!(dtype, T => T::of(self).put(bytes));
    }

    /// The value of an element's bytes; too few bytes are 0.
    pub fn decode(bytes: &[u8], dtype: Dtype) -> Scalar {
        dispatch!(dtype, T => T::take(bytes).scalar())
    }

    /// True for 0, `false`, and the complex zero.
    pub fn is_zero(self) -> bool {
        match self {
            Scalar::Bool(b) => !b,
            Scalar::Int(i) => i == 0,
            Scalar::Float(f) => f == 0.0,
            Scalar::Complex(re, im) => re == 0.0 && im == 0.0,
        }
    }

    /// The register bits of this value in a class: the `f32` in the low half, the `f64`, or the `i64`. For
    /// complex classes: the bits of the real part.
    pub fn bits(self, class: Class) -> u64 {
        match class {
            Class::F32 | Class::C64 => u64::from((self.as_f64() as f32).to_bits()),
            Class::F64 | Class::C128 => self.as_f64().to_bits(),
            Class::I64 => self.as_i64() as u64,
        }
    }
}
