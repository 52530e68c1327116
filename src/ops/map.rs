//! Elementwise operations: the dtype rules; the planner does the rest.

use super::{Args, complex, error};
use crate::array::{Dtype, Operand, Scalar, result_type};
use crate::base::Result;
use crate::kernel::MapFn;
use crate::plan::error::{check_number, does_not_fit, not_over_complex};
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// An elementwise operation: a function and its dtype rule.
pub struct MapOp {
    /// The function.
    pub f: &'static MapFn,
    /// The dtype rule.
    pub rule: Rule,
}

/// The dtype to which operands are promoted, and the dtype of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Operands are promoted; the result has the promoted dtype. `add`
    Promote,
    /// Promoted; a number is a lower bound. `maximum`
    AtLeast,
    /// Promoted; a number is an upper bound. `minimum`
    AtMost,
    /// Promoted: an element, a lower and an upper bound. `clamp`
    Within,
    /// Promoted, but `bool` is an error. `neg`
    NotBool,
    /// As `NotBool`, but numbers are elements first ([`MapOp::elements`]). `remainder`
    Elements,
    /// Promoted, but an error if an operand is `bool`. `sub`
    NoBools,
    /// Promoted; bools become `i64`. `square`
    Whole,
    /// Promoted; ints and bools become `f32`. `div`, `exp`
    Float,
    /// Promoted floats; integers are left as they are (`floor` of ints is the identity), so the function has
    /// an `i64` text that returns its argument.
    Round,
    /// Promoted operands, `bool` result; numbers are elements first ([`MapOp::elements`]). `lt`, `isnan`
    Compare,
    /// Operands are converted to `bool`; `bool` result. `logical_and`
    Logic,
    /// Promoted, ints and `bool` only. `bitwise_and`
    Bits,
    /// Promoted, ints only. `bitwise_left_shift`
    Ints,
    /// The first is a condition (`bool`), the others are promoted. `where`
    Select,
}

impl MapOp {
    /// The function, the dtype to compute in, and the dtype of the result. For complex numbers, the function is the
    /// complex version ([`complex::over`]).
    pub(super) fn resolve(
        &self,
        name: &str,
        operands: &[MapArg<'_>],
    ) -> Result<(&'static MapFn, Dtype, Dtype)> {
        let (compute, dtype) = self.dtypes(name, operands)?;
        if !compute.is_complex() {
            return Ok((self.f, compute, dtype));
        }
        let (f, result) = complex::over(name, self.f, compute)?;
        Ok((f, compute, if dtype == Dtype::Bool { dtype } else { result }))
    }

    /// (dtype to compute in, dtype of the result).
    fn dtypes(&self, name: &str, operands: &[MapArg<'_>]) -> Result<(Dtype, Dtype)> {
        let promoted = match self.rule {
            Rule::Select => &operands[1..],
            _ => operands,
        };
        let common = match promoted {
            // The common case: two tensors of one dtype, which is also the result's dtype for any ranks.
            [MapArg::Tensor(a), MapArg::Tensor(b)] if a.dtype() == b.dtype() => a.dtype(),
            _ => result_type(promoted.iter().map(rank)),
        };
        Ok(match self.rule {
            Rule::Promote | Rule::Round => (common, common),
            Rule::Select => {
                for (i, operand) in promoted.iter().enumerate() {
                    // Halves may be infinite: PyTorch converts the number's tensor.
                    if let MapArg::Number(number) = operand
                        && !common.is_half()
                    {
                        check_number(i + 1, *number, common)?;
                    }
                }
                (common, common)
            }
            Rule::AtLeast | Rule::AtMost | Rule::Within => {
                for (i, operand) in operands.iter().enumerate() {
                    let is_lower = self.rule == Rule::AtLeast || self.rule == Rule::Within && i == 1;
                    if let MapArg::Number(number) = operand {
                        check_bound(i, *number, common, is_lower)?;
                    }
                }
                (common, common)
            }
            Rule::NotBool | Rule::Elements if common == Dtype::Bool => {
                return Err(error::not_for_dtype(name, common, operands));
            }
            Rule::NotBool | Rule::Elements => (common, common),
            Rule::NoBools if common == Dtype::Bool || operands.iter().any(is_bool) => {
                return Err(error::not_for_dtype(name, Dtype::Bool, operands));
            }
            Rule::NoBools => (common, common),
            Rule::Whole if common == Dtype::Bool => (Dtype::I64, Dtype::I64),
            Rule::Whole => (common, common),
            Rule::Float if common.is_float() || common.is_complex() => (common, common),
            Rule::Float => (Dtype::F32, Dtype::F32),
            Rule::Compare => (common, Dtype::Bool),
            Rule::Logic => (Dtype::Bool, Dtype::Bool),
            Rule::Bits | Rule::Ints if common.is_complex() => return Err(not_over_complex(name, common)),
            Rule::Bits if common.is_float() => return Err(error::not_for_dtype(name, common, operands)),
            Rule::Bits => (common, common),
            Rule::Ints if !common.is_int() => return Err(error::not_for_dtype(name, common, operands)),
            Rule::Ints => (common, common),
        })
    }

    /// The operands with numbers rounded to the dtype of halves, if the operation compares or divides elements:
    /// `f16[0.3] == 0.3`, as in PyTorch. Sums and products take numbers unrounded. Numbers beyond the dtype stay
    /// as they are, so that comparisons with them are exact. `None` if nothing changes.
    #[inline(always)]
    pub(super) fn elements<'a>(
        &self,
        operands: &[MapArg<'a>],
        compute: Dtype,
    ) -> Option<SmallVec<[MapArg<'a>; 4]>> {
        match self.rule {
            Rule::Compare | Rule::Elements if compute.is_half() => Some(rounded(operands, compute)),
            _ => None,
        }
    }
}

/// The operands with numbers rounded to a dtype, unless that makes them infinite.
fn rounded<'a>(operands: &[MapArg<'a>], compute: Dtype) -> SmallVec<[MapArg<'a>; 4]> {
    let element = |operand: &MapArg<'a>| match *operand {
        MapArg::Number(number) => match number.rounded(compute) {
            Scalar::Float(rounded) if rounded.is_finite() => MapArg::Number(Scalar::Float(rounded)),
            _ => *operand,
        },
        _ => *operand,
    };
    operands.iter().map(element).collect()
}

/// Checks that a bound may be a result in a dtype. An integer bound may be outside the dtype's range on the side
/// where it limits nothing.
pub(super) fn check_bound(index: usize, bound: Scalar, dtype: Dtype, is_lower: bool) -> Result<()> {
    let fits = match (bound, dtype.range()) {
        (Scalar::Int(bound), Some((least, most))) => {
            if is_lower {
                bound <= most
            } else {
                bound >= least
            }
        }
        _ => bound.fits(dtype),
    };
    if fits { Ok(()) } else { Err(does_not_fit(index, bound, dtype)) }
}

/// Runs an elementwise operation; operands broadcast.
pub fn map(rt: &mut Runtime, name: &'static str, op: &MapOp, operands: &[MapArg<'_>]) -> Result<Tensor> {
    let (f, compute, dtype) = op.resolve(name, operands)?;
    if let Some(operands) = op.elements(operands, compute) {
        return rt.map_ordered(name, f, &operands, compute, dtype);
    }
    rt.map_ordered(name, f, operands, compute, dtype)
}

/// Runs an elementwise operation and writes the result into `target`, which keeps its shape and dtype. A
/// result of a higher kind than the target's (float into int) is an error.
pub fn in_place(
    rt: &mut Runtime,
    name: &'static str,
    op: &MapOp,
    target: &Tensor,
    operands: &[MapArg<'_>],
) -> Result<()> {
    let (f, compute, dtype) = op.resolve(name, operands)?;
    check_fits(name, dtype, target)?;
    let elements = op.elements(operands, compute);
    rt.map_into(target, Elementwise::new(name, f, elements.as_deref().unwrap_or(operands), compute, dtype))
}

/// Checks that a result of `dtype` may be written into `target`: its kind must not be above the target's
/// (bool < int < float < complex).
pub(super) fn check_fits(name: &str, dtype: Dtype, target: &Tensor) -> Result<()> {
    if dtype.kind() > target.dtype().kind() {
        return Err(error::result_does_not_fit(name, dtype, target));
    }
    Ok(())
}

/// The operation to use for a factor in the third argument: the plain one if the factor is 1.
pub(super) fn scaled(plain: &MapOp, scaled: &'static MapFn, args: &Args<'_>) -> Result<MapOp> {
    let alpha = args.number(2)?;
    let f = if alpha.as_f64() == 1.0 { plain.f } else { scaled };
    Ok(MapOp { f, rule: plain.rule })
}

/// Runs a bound call.
pub(super) fn call(rt: &mut Runtime, name: &'static str, op: &MapOp, args: &Args<'_>) -> Result<Tensor> {
    map(rt, name, op, &operands(op, args)?)
}

/// Runs a bound call of the in-place form.
pub(super) fn call_in_place(rt: &mut Runtime, name: &'static str, op: &MapOp, args: &Args<'_>) -> Result<()> {
    let target = args.tensor(0)?;
    if target.dtype().is_complex() && name == "abs_" {
        return Err(not_over_complex(name, target.dtype()));
    }
    in_place(rt, name, op, target, &operands(op, args)?)
}

fn operands<'a>(op: &MapOp, args: &Args<'a>) -> Result<SmallVec<[MapArg<'a>; 4]>> {
    (0..usize::from(op.f.arity)).map(|i| args.operand(i)).collect()
}

fn is_bool(arg: &MapArg<'_>) -> bool {
    match arg {
        MapArg::Tensor(t) => t.dtype() == Dtype::Bool,
        MapArg::Number(n) => matches!(n, Scalar::Bool(_)),
        _ => false,
    }
}

pub(super) fn rank(arg: &MapArg<'_>) -> Operand {
    match arg {
        MapArg::Tensor(t) if t.rank() == 0 => Operand::ZeroDim(t.dtype()),
        MapArg::Tensor(t) => Operand::Tensor(t.dtype()),
        MapArg::Number(n) => Operand::Number(*n),
        MapArg::Raw(_, dtype) => Operand::Tensor(*dtype),
        MapArg::Position => Operand::Tensor(Dtype::I64),
    }
}
