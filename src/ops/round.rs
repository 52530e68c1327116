//! Rounding. Integers are left as they are.

use super::params::{UNARY, X};
use super::signature::{Default, Kind, Param};
use super::{Args, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, error, map};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::kernel::host::define::{host_binary, host_unary};
use crate::kernel::{CudaText, MapFn};
use crate::plan::{MapArg, Runtime};

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "floor",
        doc: "Rounds down to an integer. Source: `torch.floor`.",
        search: &["round down", "integer part"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(floor([1.5, -1.5]), [1.0, -2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Round,
            f: &MapFn {
                name: "floor",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "floorf(a)", f64: "floor(a)", i64: "a" },
                host: host_unary!(float: |a| a.floor(), i64: |a| a),
                complex: None,
            },
        }),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "ceil",
        doc: "Rounds up to an integer. Source: `torch.ceil`.",
        search: &["round up", "ceiling"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(ceil([1.5, -1.5]), [2.0, -1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Round,
            f: &MapFn {
                name: "ceil",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "ceilf(a)", f64: "ceil(a)", i64: "a" },
                host: host_unary!(float: |a| a.ceil(), i64: |a| a),
                complex: None,
            },
        }),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "trunc",
        aliases: &["fix"],
        doc: "Rounds toward zero to an integer. Source: `torch.trunc`.",
        search: &["truncate", "fix", "integer part"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(trunc([1.7, -1.7]), [1.0, -1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Round,
            f: &MapFn {
                name: "trunc",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "truncf(a)", f64: "trunc(a)", i64: "a" },
                host: host_unary!(float: |a| a.trunc(), i64: |a| a),
                complex: None,
            },
        }),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "frac",
        doc: "Returns the fractional part, with the sign of the element: `x - trunc(x)`. Source: \
              `torch.frac`.",
        search: &["fraction", "fractional part"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(frac([1.5, -1.25]), [0.5, -0.25]))",
        run: Run::Map(MapOp {
            rule: Rule::Round,
            f: &MapFn {
                name: "frac",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "(a - truncf(a))", f64: "(a - trunc(a))", i64: "0" },
                host: host_unary!(float: |a| a - a.trunc(), i64: |_a| 0),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "round",
        doc: "Rounds to the nearest integer, ties to even; with `decimals`, to that many digits after the point \
              (negative: before it). Source: `torch.round`.",
        search: &["nearest", "digits", "decimals", "half to even"],
        params: &[X, Param::named("decimals", Kind::Int, Default::Int(0))],
        form: Form::ALL,
        example: "assert(equal(round([0.5, 1.5, 2.4]), [0.0, 2.0, 2.0]))\n\
                  assert(equal(round([1234.0], decimals=-2), [1200.0]))",
        run: Run::Primitive(round),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
];

static ROUND: MapFn = MapFn {
    name: "round",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "rintf(a)", f64: "rint(a)", i64: "a" },
    host: host_unary!(float: |a| a.round_ties_even(), i64: |a| a),
    complex: None,
};

/// Rounds to digits after the decimal point; `b` is the power of ten.
static ROUND_FINE: MapFn = MapFn {
    name: "round_fine",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(rintf(a * b) / b)", f64: "(rint(a * b) / b)", i64: "" },
    host: host_binary!(float: |a, b| (a * b).round_ties_even() / b),
    complex: None,
};

/// Rounds to digits before the decimal point; `b` is the power of ten.
static ROUND_COARSE: MapFn = MapFn {
    name: "round_coarse",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(rintf(a / b) * b)", f64: "(rint(a / b) * b)", i64: "" },
    host: host_binary!(float: |a, b| (a / b).round_ties_even() * b),
    complex: None,
};

fn round(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, decimals) = (args.tensor(0)?, args.int(1)?);
    let x_arg = MapArg::Tensor(x);
    if decimals == 0 {
        let op = MapOp { rule: Rule::Round, f: &ROUND };
        return map(rt, "round", &op, &[x_arg]).map(Out::Tensor);
    }
    if !x.dtype().is_float() {
        return Err(error::floats_alone("round(decimals=)", 0, x));
    }
    let f = if decimals > 0 { &ROUND_FINE } else { &ROUND_COARSE };
    let power = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
    let dtype: Dtype = x.dtype();
    let power = MapArg::Number(Scalar::Float(power));
    rt.map_ordered("round", f, &[x_arg, power], dtype, dtype).map(Out::Tensor)
}
