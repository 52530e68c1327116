//! Element types and single values.

/// The element type of a tensor. `name` gives the name that users write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
}

/// How a kernel register holds a value. Halves compute in `f32` and are rounded to their own type after every
/// instruction; `bool` and all integers compute in `i64` and wrap. Complex numbers are (real, imaginary)
/// pairs: `c64` of `f32`, `c128` of `f64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Class {
    F32,
    F64,
    I64,
    C64,
    C128,
}

impl Dtype {
    /// The dtypes that are not complex, in the order of [`Dtype::ALL`].
    pub const REAL: [Dtype; 10] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::F16,
        Dtype::BF16,
        Dtype::F32,
        Dtype::F64,
    ];

    /// All dtypes, narrow to wide within a kind.
    pub const ALL: [Dtype; 12] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::F16,
        Dtype::BF16,
        Dtype::F32,
        Dtype::F64,
        Dtype::C64,
        Dtype::C128,
    ];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::I16 | Dtype::F16 | Dtype::BF16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::F64 | Dtype::C64 => 8,
            Dtype::C128 => 16,
        }
    }

    /// `f32`
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "u8",
            Dtype::I8 => "i8",
            Dtype::I16 => "i16",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::F16 => "f16",
            Dtype::BF16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::C64 => "c64",
            Dtype::C128 => "c128",
        }
    }

    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.name() == name)
    }

    /// `f16 bf16 f32 f64`
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64)
    }

    /// `c64 c128`
    pub const fn is_complex(self) -> bool {
        matches!(self, Dtype::C64 | Dtype::C128)
    }

    /// The dtype of the parts of a complex number; the dtype itself for all others.
    pub const fn real(self) -> Dtype {
        match self {
            Dtype::C64 => Dtype::F32,
            Dtype::C128 => Dtype::F64,
            other => other,
        }
    }

    /// The complex dtype whose real part holds this dtype: `c128` for `f64` and `c128`, `c64` for all others.
    pub const fn complex(self) -> Dtype {
        match self {
            Dtype::F64 | Dtype::C128 => Dtype::C128,
            _ => Dtype::C64,
        }
    }

    /// Rank of the dtype's kind: `bool` 0, integers 1, floats 2, complex 3. A value does not fit a lower
    /// kind.
    pub const fn kind(self) -> u8 {
        match self {
            Dtype::Bool => 0,
            Dtype::C64 | Dtype::C128 => 3,
            other if other.is_float() => 2,
            _ => 1,
        }
    }

    /// `u8 i8 i16 i32 i64`
    pub const fn is_int(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
    }

    /// How kernel registers hold this dtype.
    pub const fn class(self) -> Class {
        match self {
            Dtype::F16 | Dtype::BF16 | Dtype::F32 => Class::F32,
            Dtype::F64 => Class::F64,
            Dtype::C64 => Class::C64,
            Dtype::C128 => Class::C128,
            _ => Class::I64,
        }
    }
}

impl Class {
    /// True for complex numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self, Class::C64 | Class::C128)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One value, as a script number or a result of `item()`.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
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
