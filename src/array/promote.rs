//! The result dtype of an operation with several operands: PyTorch's `result_type`.
//!
//! Operands have three ranks: tensors with dimensions, tensors without, and script numbers. A lower rank
//! matters only when its kind (bool < int < float < complex) is above that of every higher rank. A complex
//! operand of a lower rank then takes its width from a float of a higher rank. Source:
//! <https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc>

use super::{Dtype, Scalar};

/// The properties of an operand that matter for promotion.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operand {
    /// A tensor with at least one dimension.
    Tensor(Dtype),
    /// A tensor without dimensions.
    ZeroDim(Dtype),
    /// A script number: its dtype is weak.
    Number(Scalar),
}

/// The smallest dtype that holds both, from PyTorch's table.
///
/// ```
/// use runnel::array::{promote, Dtype::*};
/// assert_eq!(promote(U8, I8), I16);
/// assert_eq!(promote(F16, BF16), F32);
/// assert_eq!(promote(I64, F16), F16);
/// ```
pub fn promote(a: Dtype, b: Dtype) -> Dtype {
    PROMOTED[a as usize][b as usize]
}

/// The promotion of every two dtypes.
const PROMOTED: [[Dtype; Dtype::ALL.len()]; Dtype::ALL.len()] = {
    let mut table = [Dtype::ALL; Dtype::ALL.len()];
    let mut a = 0;
    while a < table.len() {
        let mut b = 0;
        while b < a {
            table[a][b] = joined(Dtype::ALL[b], Dtype::ALL[a]);
            table[b][a] = table[a][b];
            b += 1;
        }
        a += 1;
    }
    table
};

const fn joined(low: Dtype, high: Dtype) -> Dtype {
    let mut others = high.promoted();
    while let [(other, result), rest @ ..] = others {
        if *other as u8 == low as u8 {
            return *result;
        }
        others = rest;
    }
    high
}

/// The dtype in which an operation over these operands computes; `bool` without operands.
pub fn result_type(operands: impl IntoIterator<Item = Operand>) -> Dtype {
    let (mut dimensioned, mut zero_dim, mut number) = (None, None, None);
    for operand in operands {
        let (slot, dtype): (&mut Option<Dtype>, Dtype) = match operand {
            Operand::Tensor(dtype) => (&mut dimensioned, dtype),
            Operand::ZeroDim(dtype) => (&mut zero_dim, dtype),
            Operand::Number(scalar) => (&mut number, scalar.dtype()),
        };
        *slot = Some(slot.map_or(dtype, |d| promote(d, dtype)));
    }
    let combine = |high: Option<Dtype>, low: Option<Dtype>| match (high, low) {
        // A float keeps its width; there are no complex numbers of halves.
        (Some(h), Some(l)) if h.is_float() && l.is_complex() => Some(h.complex()),
        (Some(h), Some(l)) if l.kind() > h.kind() => Some(l),
        (Some(h), _) => Some(h),
        (None, low) => low,
    };
    combine(combine(dimensioned, zero_dim), number).unwrap_or(Dtype::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dtype::*;

    #[test]
    fn promotion_is_pytorchs_table() {
        // Rows and columns: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128.
        let table = [
            [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, C64, C128],
            [U8, U8, I16, I16, I32, I64, F16, BF16, F32, F64, C64, C128],
            [I8, I16, I8, I16, I32, I64, F16, BF16, F32, F64, C64, C128],
            [I16, I16, I16, I16, I32, I64, F16, BF16, F32, F64, C64, C128],
            [I32, I32, I32, I32, I32, I64, F16, BF16, F32, F64, C64, C128],
            [I64, I64, I64, I64, I64, I64, F16, BF16, F32, F64, C64, C128],
            [F16, F16, F16, F16, F16, F16, F16, F32, F32, F64, C64, C128],
            [BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64, C64, C128],
            [F32, F32, F32, F32, F32, F32, F32, F32, F32, F64, C64, C128],
            [F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, C128, C128],
            [C64, C64, C64, C64, C64, C64, C64, C64, C64, C128, C64, C128],
            [C128; 12],
        ];
        for (i, a) in Dtype::ALL.into_iter().enumerate() {
            for (j, b) in Dtype::ALL.into_iter().enumerate() {
                assert_eq!(promote(a, b), table[i][j], "{a} {b}");
            }
        }
    }

    #[test]
    fn numbers_and_zero_dim_tensors_are_weak() {
        use Operand::*;
        let float = Number(Scalar::Float(2.5));
        assert_eq!(result_type([Tensor(I64), float]), F32);
        assert_eq!(result_type([Tensor(F16), float]), F16);
        assert_eq!(result_type([Tensor(U8), Number(Scalar::Int(300))]), U8);
        assert_eq!(result_type([Tensor(F32), ZeroDim(F64)]), F32);
        assert_eq!(result_type([Tensor(I32), ZeroDim(F16)]), F16);
        assert_eq!(result_type([ZeroDim(F64), Number(Scalar::Int(1))]), F64);
        assert_eq!(result_type([Tensor(Bool), Number(Scalar::Bool(true))]), Bool);
        assert_eq!(result_type([Tensor(Bool), Number(Scalar::Int(1))]), I64);
    }

    #[test]
    fn weak_complex_numbers_take_the_width_of_floats_above() {
        use Operand::*;
        let i = Number(Scalar::Complex(0.0, 1.0));
        // Tensors with dimensions, combined with a complex number and with a zero-dimensional c128.
        let cases = [
            (Bool, C64, C128),
            (I64, C64, C128),
            (F16, C64, C64),
            (BF16, C64, C64),
            (F32, C64, C64),
            (F64, C128, C128),
            (C64, C64, C64),
            (C128, C128, C128),
        ];
        for (dtype, with_number, with_zero_dim) in cases {
            assert_eq!(result_type([Tensor(dtype), i]), with_number, "{dtype}");
            assert_eq!(result_type([Tensor(dtype), ZeroDim(C128)]), with_zero_dim, "{dtype}");
        }
        assert_eq!(result_type([Tensor(C64), ZeroDim(F64)]), C64);
        assert_eq!(result_type([Tensor(C64), Number(Scalar::Float(0.5))]), C64);
        assert_eq!(result_type([ZeroDim(F64), i]), C128);
    }
}
