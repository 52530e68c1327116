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
