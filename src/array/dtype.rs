//! Element types, and single values of them.

/// The type of a tensor's elements. Names are the ones users write.
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
}

/// How a register of a kernel program holds a value: halves compute in `f32` and are rounded to
/// their own type after every instruction; `bool` and all integers compute in `i64` and wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Class {
    F32,
    F64,
    I64,
}

impl Dtype {
    /// All of them, narrow to wide within a kind.
    pub const ALL: [Dtype; 10] = [
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

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::I16 | Dtype::F16 | Dtype::BF16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
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
        }
    }

    /// The dtype of that name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.name() == name)
    }

    /// `f16 bf16 f32 f64`
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64)
    }

    /// `u8 i8 i16 i32 i64`
    pub const fn is_int(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
    }

    /// How kernel registers hold it.
    pub const fn class(self) -> Class {
        match self {
            Dtype::F16 | Dtype::BF16 | Dtype::F32 => Class::F32,
            Dtype::F64 => Class::F64,
            _ => Class::I64,
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One value, as a script number or as `item()` gives it.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Scalar {
    Bool(bool),
    Int(i64),
    Float(f64),
}

impl Scalar {
    /// The value as a float; integers round to nearest.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
        }
    }

    /// The value as an integer; floats truncate and saturate, nan is 0.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::Float(f) => f as i64,
        }
    }

    /// The dtype a tensor made of it has: `bool`, `i64`, `f32`.
    pub fn dtype(self) -> Dtype {
        match self {
            Scalar::Bool(_) => Dtype::Bool,
            Scalar::Int(_) => Dtype::I64,
            Scalar::Float(_) => Dtype::F32,
        }
    }

    /// The register bits of this value read as a dtype: for `bool`, whether it is not 0; otherwise
    /// [`Scalar::bits`] of the dtype's class.
    pub fn bits_as(self, dtype: Dtype) -> u64 {
        match dtype {
            Dtype::Bool => u64::from(self.as_f64() != 0.0),
            dtype => self.bits(dtype.class()),
        }
    }

    /// The register bits of this value in a class: the `f32` in the low half, the `f64`, or the `i64`.
    pub fn bits(self, class: Class) -> u64 {
        match class {
            Class::F32 => u64::from((self.as_f64() as f32).to_bits()),
            Class::F64 => self.as_f64().to_bits(),
            Class::I64 => self.as_i64() as u64,
        }
    }
}
