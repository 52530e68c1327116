//! Element types: one row of a table each. Everything that depends on the dtype alone is derived from its row.

/// The properties of a dtype.
struct Row {
    /// The name that users write. The CUDA prelude names its conversions after it (`load_f16`).
    name: &'static str,
    /// Bytes of one element.
    size: usize,
    kind: Kind,
    /// The class of the kernel registers that hold it.
    class: Class,
    /// True when its format in memory is that of the registers.
    native: bool,
    /// The complex dtype whose parts can represent it.
    complex: Dtype,
    /// Pairs of a lower dtype and their promotion. Without an entry the higher of two dtypes is the result.
    promoted: &'static [(Dtype, Dtype)],
    /// The type code in `.npy` files, without the byte order.
    npy: Option<&'static str>,
    /// The name in `.safetensors` files.
    safetensors: Option<&'static str>,
    /// `DLDataTypeCode`
    dlpack: u8,
    /// `ncclDataType_t`, for dtypes that collectives reduce.
    nccl: Option<i32>,
}

impl Row {
    const fn of<T: super::Element>(self) -> Row {
        Row { size: size_of::<T>(), native: self.class.dtype() as u8 == T::DTYPE as u8, ..self }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    /// Minimum and maximum.
    Int(i64, i64),
    /// Bits of the significand with the implicit one, and the maximum finite value.
    Float(u32, f64),
    /// The dtype of both parts.
    Complex(Dtype),
}

/// Declares [`Dtype`], its table, the Rust type of each dtype, `dispatch` and `for_integers`, from one row per dtype. `bool`
/// and a `whole` dtype compute in `i64`, which wraps; a `half` computes in `f32` and is rounded, a `native` one computes in
/// its own type. The order of the rows is the order of promotion.
macro_rules! dtypes {
    (
        $d:tt
        bool { $bool:ident: $bool_type:ty = $bool_row:expr; }
        whole { $($whole:ident: $whole_type:ty = $whole_row:expr;)* }
        half { $($half:ident: $half_type:ty = $half_row:expr;)* }
        native { $($native:ident: $native_type:ty = $native_row:expr;)* }
    ) => {
        /// The element type of a tensor. `name` gives the name that users write.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Dtype { $bool, $($whole,)* $($half,)* $($native,)* }

        impl Dtype {
            /// All dtypes, narrow to wide within a kind.
            pub const ALL: [Dtype; ROWS.len()] =
                [Dtype::$bool, $(Dtype::$whole,)* $(Dtype::$half,)* $(Dtype::$native,)*];
        }

        const ROWS: &[Row] = &[
            $bool_row.of::<$bool_type>(),
            $($whole_row.of::<$whole_type>(),)*
            $($half_row.of::<$half_type>(),)*
            $($native_row.of::<$native_type>(),)*
        ];

        impl super::Element for $bool_type { const DTYPE: Dtype = Dtype::$bool; }
        $(impl super::Element for $whole_type { const DTYPE: Dtype = Dtype::$whole; })*
        $(impl super::Element for $half_type { const DTYPE: Dtype = Dtype::$half; })*
        $(impl super::Element for $native_type { const DTYPE: Dtype = Dtype::$native; })*

        /// Evaluates a body with a type alias for the Rust type of a dtype's elements; or one of three bodies, by how the
        /// dtype computes.
        macro_rules! dispatch {
            ($d dtype:expr, $d T:ident => $d body:expr) => {
                $crate::array::dispatch!(
                    $d dtype, whole $d T => $d body, half $d T => $d body, native $d T => $d body
                )
            };
            (
                $d dtype:expr,
                whole $d Whole:ident => $d whole:expr,
                half $d Half:ident => $d half:expr,
                native $d Native:ident => $d native:expr
            ) => {
                match $d dtype {
                    $crate::array::Dtype::$bool => { type $d Whole = $bool_type; $d whole }
                    $($crate::array::Dtype::$whole => { type $d Whole = $whole_type; $d whole })*
                    $($crate::array::Dtype::$half => { type $d Half = $half_type; $d half })*
                    $($crate::array::Dtype::$native => { type $d Native = $native_type; $d native })*
                }
            };
        }

        /// Invokes a macro with the variant and the Rust type of each integer dtype.
        macro_rules! for_integers {
            ($d callback:ident) => { $d callback! { $($whole $whole_type,)* } };
        }
    };
}

const WHOLE: Row = Row {
    name: "",
    size: 0,
    kind: Kind::Bool,
    class: Class::I64,
    native: false,
    complex: Dtype::C64,
    promoted: &[],
    npy: None,
    safetensors: None,
    dlpack: 0,
    nccl: None,
};
const HALF: Row = Row { class: Class::F32, dlpack: 2, ..WHOLE };
const NATIVE: Row = Row { dlpack: 2, ..WHOLE };

dtypes! { $
    bool {
        Bool: crate::array::Bool = Row {
            name: "bool", kind: Kind::Bool,
            npy: Some("b1"), safetensors: Some("BOOL"), dlpack: 6, nccl: Some(1), ..WHOLE
        };
    }
    whole {
        U8: u8 = Row {
            name: "u8", kind: Kind::Int(0, u8::MAX as i64),
            npy: Some("u1"), safetensors: Some("U8"), dlpack: 1, nccl: Some(1), ..WHOLE
        };
        I8: i8 = Row {
            name: "i8", kind: Kind::Int(i8::MIN as i64, i8::MAX as i64), promoted: &[(Dtype::U8, Dtype::I16)],
            npy: Some("i1"), safetensors: Some("I8"), nccl: Some(0), ..WHOLE
        };
        I16: i16 = Row {
            name: "i16", kind: Kind::Int(i16::MIN as i64, i16::MAX as i64),
            npy: Some("i2"), safetensors: Some("I16"), ..WHOLE
        };
        I32: i32 = Row {
            name: "i32", kind: Kind::Int(i32::MIN as i64, i32::MAX as i64),
            npy: Some("i4"), safetensors: Some("I32"), nccl: Some(2), ..WHOLE
        };
        I64: i64 = Row {
            name: "i64", kind: Kind::Int(i64::MIN, i64::MAX),
            npy: Some("i8"), safetensors: Some("I64"), nccl: Some(4), ..WHOLE
        };
    }
    half {
        F16: ::half::f16 = Row {
            name: "f16", kind: Kind::Float(11, 65504.0),
            npy: Some("f2"), safetensors: Some("F16"), nccl: Some(6), ..HALF
        };
        BF16: ::half::bf16 = Row {
            name: "bf16", kind: Kind::Float(8, ::half::bf16::MAX.to_f64_const()), promoted: &[(Dtype::F16, Dtype::F32)],
            safetensors: Some("BF16"), dlpack: 4, nccl: Some(9), ..HALF
        };
    }
    native {
        F32: f32 = Row {
            name: "f32", kind: Kind::Float(24, f32::MAX as f64), class: Class::F32,
            npy: Some("f4"), safetensors: Some("F32"), nccl: Some(7), ..NATIVE
        };
        F64: f64 = Row {
            name: "f64", kind: Kind::Float(53, f64::MAX), class: Class::F64, complex: Dtype::C128,
            npy: Some("f8"), safetensors: Some("F64"), nccl: Some(8), ..NATIVE
        };
        C64: ::num_complex::Complex<f32> = Row {
            name: "c64", kind: Kind::Complex(Dtype::F32), class: Class::C64, promoted: &[(Dtype::F64, Dtype::C128)],
            npy: Some("c8"), safetensors: Some("C64"), dlpack: 5, ..NATIVE
        };
        C128: ::num_complex::Complex<f64> = Row {
            name: "c128", kind: Kind::Complex(Dtype::F64), class: Class::C128, complex: Dtype::C128,
            npy: Some("c16"), dlpack: 5, ..NATIVE
        };
    }
}

pub(crate) use {dispatch, for_integers};

/// The type in which a kernel register holds a value. Halves compute in `f32` and are rounded to their own
/// type after every instruction; `bool` and all integers compute in `i64` and wrap. Complex numbers are
/// (real, imaginary) pairs: `c64` of `f32`, `c128` of `f64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    F32,
    F64,
    I64,
    C64,
    C128,
}

impl Dtype {
    /// The dtypes that are not complex, in the order of [`Dtype::ALL`].
    pub const REAL: [Dtype; REALS] = {
        let mut reals = [Dtype::Bool; REALS];
        let mut i = 0;
        while i < REALS {
            reals[i] = Dtype::ALL[i];
            i += 1;
        }
        reals
    };

    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        self.row().size
    }

    /// `f32`
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.name() == name)
    }

    /// `f16 bf16 f32 f64`
    pub const fn is_float(self) -> bool {
        matches!(self.row().kind, Kind::Float(..))
    }

    /// `c64 c128`
    pub const fn is_complex(self) -> bool {
        matches!(self.row().kind, Kind::Complex(_))
    }

    /// `u8 i8 i16 i32 i64`
    pub const fn is_int(self) -> bool {
        matches!(self.row().kind, Kind::Int(..))
    }

    /// A float that kernels compute in a wider one: `f16 bf16`
    pub const fn is_half(self) -> bool {
        self.is_float() && !self.is_native()
    }

    /// True when kernel registers hold values as memory does: `i64 f32 f64 c64 c128`
    pub const fn is_native(self) -> bool {
        self.row().native
    }

    /// The dtype in which sums of this dtype accumulate and formulas of several steps compute: `f32` for halves,
    /// the dtype itself for all others.
    pub const fn accumulator(self) -> Dtype {
        if self.is_float() { self.class().dtype() } else { self }
    }

    /// The dtype of the parts of a complex number; the dtype itself for all others.
    pub const fn real(self) -> Dtype {
        match self.row().kind {
            Kind::Complex(part) => part,
            _ => self,
        }
    }

    /// The complex dtype whose real part holds this dtype: `c128` for `f64` and `c128`, `c64` for all others.
    pub const fn complex(self) -> Dtype {
        self.row().complex
    }

    /// Rank of the dtype's kind: `bool` 0, integers 1, floats 2, complex 3. A value does not fit a lower
    /// kind.
    pub const fn kind(self) -> u8 {
        match self.row().kind {
            Kind::Bool => 0,
            Kind::Int(..) => 1,
            Kind::Float(..) => 2,
            Kind::Complex(_) => 3,
        }
    }

    /// The register class of this dtype.
    pub const fn class(self) -> Class {
        self.row().class
    }

    /// Minimum and maximum of `bool` and integers.
    pub const fn range(self) -> Option<(i64, i64)> {
        match self.row().kind {
            Kind::Bool => Some((0, 1)),
            Kind::Int(least, greatest) => Some((least, greatest)),
            Kind::Float(..) | Kind::Complex(_) => None,
        }
    }

    /// Bits of the significand of floats and of the parts of complex numbers, with the implicit one; 0 for all others.
    pub const fn digits(self) -> u32 {
        match self.real().row().kind {
            Kind::Float(digits, _) => digits,
            _ => 0,
        }
    }

    /// Maximum finite value of floats and of the parts of complex numbers; that of `f64` for all others.
    pub const fn greatest(self) -> f64 {
        match self.real().row().kind {
            Kind::Float(_, greatest) => greatest,
            _ => f64::MAX,
        }
    }

    /// The distance from 1 to the next number, for floats and the parts of complex numbers.
    pub fn epsilon(self) -> f64 {
        2f64.powi(1 - self.digits() as i32)
    }

    /// The bits of the positive infinity of a float: all ones in the exponent.
    pub(crate) const fn infinity_bits(self) -> u64 {
        let exponent = 8 * self.size() as u32 - self.digits();
        ((1 << exponent) - 1) << (self.digits() - 1)
    }

    /// The type code in `.npy` files, without the byte order.
    pub const fn npy(self) -> Option<&'static str> {
        self.row().npy
    }

    /// The name in `.safetensors` files.
    pub const fn safetensors(self) -> Option<&'static str> {
        self.row().safetensors
    }

    /// `DLDataTypeCode`
    pub(crate) const fn dlpack(self) -> u8 {
        self.row().dlpack
    }

    /// `ncclDataType_t`, for dtypes that collectives reduce.
    pub const fn nccl(self) -> Option<i32> {
        self.row().nccl
    }

    /// Pairs of a lower dtype and their promotion, where that is not the higher dtype.
    pub(super) const fn promoted(self) -> &'static [(Dtype, Dtype)] {
        self.row().promoted
    }
}

/// The number of dtypes that are not complex; they come first.
const REALS: usize = {
    let mut count = 0;
    while count < ROWS.len() && !matches!(ROWS[count].kind, Kind::Complex(_)) {
        count += 1;
    }
    count
};

impl Class {
    /// True for complex numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self, Class::C64 | Class::C128)
    }

    /// The dtype whose memory format equals the registers of this class.
    pub const fn dtype(self) -> Dtype {
        match self {
            Class::F32 => Dtype::F32,
            Class::F64 => Dtype::F64,
            Class::I64 => Dtype::I64,
            Class::C64 => Dtype::C64,
            Class::C128 => Dtype::C128,
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Scalar;
    use half::{bf16, f16};

    #[test]
    fn every_row_describes_its_rust_type() {
        for dtype in Dtype::ALL {
            let (size, own) = dispatch!(dtype, T => (size_of::<T>(), <T as crate::array::Element>::DTYPE));
            assert_eq!((dtype.size(), dtype), (size, own));
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
            let group = dispatch!(dtype, whole T => size_of::<T>() < 8, half T => size_of::<T>() < 4, native T => size_of::<T>() < 4);
            assert_eq!(group, !dtype.is_native(), "{dtype}");
            assert!(dtype.complex().is_complex() && !dtype.real().is_complex());
        }
    }

    #[test]
    fn float_limits_are_those_of_the_types() {
        let limits = |dtype: Dtype| (dtype.greatest(), dtype.epsilon(), dtype.infinity_bits());
        let of_f16 = (f16::MAX.to_f64(), f16::EPSILON.to_f64(), f16::INFINITY.to_bits().into());
        let of_bf16 = (bf16::MAX.to_f64(), bf16::EPSILON.to_f64(), bf16::INFINITY.to_bits().into());
        assert_eq!(limits(Dtype::F16), of_f16);
        assert_eq!(limits(Dtype::BF16), of_bf16);
        assert_eq!(
            limits(Dtype::F32),
            (f32::MAX.into(), f32::EPSILON.into(), f32::INFINITY.to_bits().into())
        );
        assert_eq!(limits(Dtype::F64), (f64::MAX, f64::EPSILON, f64::INFINITY.to_bits()));
    }

    #[test]
    fn elements_round_trip_through_bytes() {
        for dtype in Dtype::ALL {
            let (least, greatest) = dtype.range().unwrap_or((-3, 100));
            for value in [least, 0, 1, greatest] {
                let mut bytes = Vec::new();
                Scalar::Int(value).encode(dtype, &mut bytes);
                assert_eq!(bytes.len(), dtype.size());
                let back = Scalar::decode(&bytes, dtype);
                match dtype.range() {
                    Some(_) => assert_eq!(back.as_i64(), value, "{dtype}"),
                    None => assert_eq!(back.as_f64(), value as f64, "{dtype}"),
                }
                assert_eq!(back.dtype().kind(), dtype.kind(), "{dtype}");
            }
            assert!(Scalar::decode(&[], dtype).is_zero());
        }
    }
}
