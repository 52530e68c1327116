//! Powers: the choice of the function, and the gradient.

use super::arith::{RECIPROCAL, RSQRT, SQRT, SQUARE};
use super::gradient::{Back, Keeps, Var};
use super::{Arg, Args, MapOp, Out, Rule, complex, error, map};
use crate::array::{Dtype, Operand, result_type};
use crate::base::Result;
use crate::kernel::host::define::{host_binary, host_unary};
use crate::kernel::host::math;
use crate::kernel::{CudaText, MapFn};
use crate::plan::{MapArg, Runtime};

static POW: MapFn = MapFn {
    name: "pow",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "powf(a, b)", f64: "pow(a, b)", i64: "integer_power(a, b)" },
    host: host_binary!(float: |a, b| math::pow(a, b), i64: |a, b| integer_power(a, b)),
    complex: Some(&complex::POW),
};

static CUBE: MapFn = MapFn {
    name: "cube",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(a * a * a)", f64: "(a * a * a)", i64: "(i64)((u64)a * (u64)a * (u64)a)" },
    host: host_unary!(float: |a| a * a * a, i64: |a| a.wrapping_mul(a).wrapping_mul(a)),
    complex: Some(&complex::CUBE),
};

static INVERSE_SQUARE: MapFn = MapFn {
    name: "inverse_square",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(1.0f / (a * a))", f64: "(1.0 / (a * a))", i64: "" },
    host: host_unary!(float: |a| 1.0 / (a * a)),
    complex: Some(&complex::INVERSE_SQUARE),
};

/// `base` to the power of `exponent` by repeated squaring, wrapping. For a negative exponent the result is the
/// truncated inverse: 1 for 1, 1 or -1 for -1, else 0.
#[inline(always)]
fn integer_power(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut result, mut factor, mut left) = (1i64, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = result.wrapping_mul(factor);
        }
        factor = factor.wrapping_mul(factor);
        left >>= 1;
    }
    result
}

/// Exponents for which the power is computed by products and roots.
static SIMPLE_POWERS: &[(f64, &MapFn)] = &[
    (2.0, &SQUARE),
    (3.0, &CUBE),
    (0.5, &SQRT),
    (-0.5, &RSQRT),
    (-1.0, &RECIPROCAL),
    (-2.0, &INVERSE_SQUARE),
];

/// `x ** exponent`
pub(super) fn pow(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (base, exponent) = (args.operand(0)?, args.operand(1)?);
    let operands = [base, exponent];
    let general = MapOp { rule: Rule::Elements, f: &POW };
    if let (MapArg::Tensor(x), MapArg::Number(number)) = (base, exponent) {
        let dtype = result_type([rank_of(x), Operand::Number(number)]);
        if dtype.is_int() && number.as_i64() < 0 {
            return Err(error::negative_integer_power(number.as_i64()));
        }
        let simple = SIMPLE_POWERS.iter().find(|(n, _)| *n == number.as_f64());
        if let Some((_, f)) = simple
            && dtype != Dtype::Bool
        {
            let (f, dtype) = complex::over("pow", f, dtype)?;
            return Ok(Out::Tensor(rt.map_ordered("pow", f, &[base], dtype, dtype)?));
        }
    }
    Ok(Out::Tensor(map(rt, "pow", &general, &operands)?))
}

fn rank_of(x: &crate::tensor::Tensor) -> Operand {
    if x.rank() == 0 { Operand::ZeroDim(x.dtype()) } else { Operand::Tensor(x.dtype()) }
}

/// Only the exponent's gradient needs the result.
pub(super) const KEPT: Keeps =
    Keeps::XY.and_result().when(|_, kept, param| kept != Keeps::RESULTS || param == 1);

/// `x ** (exponent - 1)`, by the function for that number.
fn less_by_one<'b>(x: Var<'b>, exponent: f64) -> Var<'b> {
    match exponent - 1.0 {
        1.0 => x,
        less => x.call("pow", &[Arg::Float(less)]),
    }
}

/// The gradient of `pow`.
pub(super) fn back(b: &Back<'_>) {
    // 0 ** 0 is 1 for every base, and x ** (e - 1) would be infinite there.
    b.to(0, || {
        match b.arg(1) {
            Arg::Int(0) => return b.g().zeros_like(),
            Arg::Float(0.0) => return b.g().zeros_like(),
            Arg::Int(1) => return b.g(),
            Arg::Float(1.0) => return b.g(),
            Arg::Tensor(_) => {}
            Arg::Int(n) => return b.g() * (b.x(1) * less_by_one(b.x(0), n as f64)).conj(),
            Arg::Float(e) => return b.g() * (b.x(1) * less_by_one(b.x(0), e)).conj(),
            _ => return b.g() * (b.x(1) * b.x(0).pow(b.x(1) - 1.0)).conj(),
        }
        let less = b.select(&b.x(1).eq(0.0), 0.0, b.x(1) - 1.0);
        let slope = b.x(1) * b.x(0).pow(less);
        b.select(&b.x(1).eq(0.0), 0.0, b.g() * slope.conj())
    });
    b.to(1, || {
        // Also correct for a negative base with a complex exponent.
        let base = if b.y().dtype().is_complex() { b.x(0).to(b.y().dtype()) } else { b.x(0) };
        let slope = b.y() * base.unary("log");
        let still = b.x(0).eq(0.0).call("logical_and", &[b.x(1).call("real", &[]).ge(0.0).arg()]);
        b.g() * b.select(&still, 0.0, slope).conj()
    });
}
