//! Selection between elements: by a condition, by bounds, or by replacing nan and infinities.

use super::arith::{MAXIMUM, MINIMUM, greater_back, smaller_back};
use super::composed::{call, out_of, t};
use super::gradient::{Back, Var};
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::subscript::fill_where;
use super::{Arg, Args, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, complex, error, map};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::kernel::host::define::{host_quaternary, host_ternary};
use crate::kernel::{CudaText, MapFn, SELECT};
use crate::plan::error::check_number;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "heaviside",
        doc: "Returns 0 where `x` is below 0 (or nan), `values` where it is 0, and 1 above. Source: `torch.heaviside`.",
        search: &["step function", "threshold", "unit step"],
        params: &[X, Param::new("values", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(heaviside(tensor([-1.5, 0.0, 2.0]), 0.5), [0.0, 0.5, 1.0]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            let at = call(rt, "eq", &[t(x), Arg::Int(0)])?;
            let above = call(rt, "gt", &[t(x), Arg::Int(0)])?;
            let above = rt.convert(&above, x.dtype())?;
            call(rt, "where", &[t(&at), args.get(1).clone(), t(&above)]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "where",
        doc: "Takes `x` where `condition` is true (not 0) and `other` elsewhere; the three broadcast. With only a \
              condition, returns the positions of its true elements, `nonzero(condition, as_tuple=true)`, which waits. \
              Source: `torch.where`.",
        search: &["choose", "select", "if else", "ternary", "mask"],
        params: &[
            Param::new("condition", Kind::Tensor),
            Param::or("x", Kind::TensorOrNumber, Default::None),
            Param::or("other", Kind::TensorOrNumber, Default::None),
        ],
        form: Form::FUNCTION,
        example: "let x = tensor([-1.0, 2.0])\nassert(equal(where(x > 0, x, 0), [0.0, 2.0]))\n\
                  let (places,) = where(x > 0)\nassert(equal(places, [1]))",
        run: Run::MapOr(MapOp { rule: Rule::Select, f: &WHERE }, true_places),
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(1, || b.select(&b.x(0), b.g(), 0.0));
            b.to(2, || b.select(&b.x(0), 0.0, b.g()));
        }),
        ..Op::BASE
    },
    Op {
        name: "clamp",
        aliases: &["clip"],
        doc: "Limits elements to `min` .. `max`; either may be a number, a tensor or none. Where `min` is above \
              `max` the result is `max`; nan stays nan. Source: `torch.clamp`.",
        search: &["clip", "limit", "bound", "saturate", "min", "max"],
        params: &[
            X,
            Param::or("min", Kind::TensorOrNumber, Default::None),
            Param::or("max", Kind::TensorOrNumber, Default::None),
        ],
        form: Form::ALL,
        example: "assert(equal(clamp([-2.0, 0.5, 3.0], 0, 1), [0.0, 0.5, 1.0]))\n\
                  assert(equal(clamp([-2, 5], max=2), [-2, 2]))",
        run: Run::Primitive(clamp),
        gradient: Gradient::Rule(Keeps::ALL, |b| {
            let given = |bound: usize| b.args().is_given(bound).then_some(bound);
            bounded_back(b, given(1), given(2));
        }),
        ..Op::BASE
    },
    Op {
        name: "clamp_min",
        doc: "Raises elements below `min` to it. Source: `torch.clamp_min`.",
        search: &["clip", "lower bound", "at least"],
        params: &[X, Param::new("min", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(clamp_min([-2.0, 3.0], 0), [0.0, 3.0]))",
        run: Run::Map(MapOp { rule: Rule::AtLeast, f: &MAXIMUM }),
        gradient: Gradient::Rule(Keeps::XY, |b| bounded_back(b, Some(1), None)),
        ..Op::BASE
    },
    Op {
        name: "clamp_max",
        doc: "Lowers elements above `max` to it. Source: `torch.clamp_max`.",
        search: &["clip", "upper bound", "at most"],
        params: &[X, Param::new("max", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(clamp_max([-2.0, 3.0], 0), [-2.0, 0.0]))",
        run: Run::Map(MapOp { rule: Rule::AtMost, f: &MINIMUM }),
        gradient: Gradient::Rule(Keeps::XY, |b| bounded_back(b, None, Some(1))),
        ..Op::BASE
    },
    Op {
        name: "nan_to_num",
        doc: "Replaces nan by `nan`, and infinities by `posinf` and `neginf` (by default the maximum and minimum \
              finite numbers of the dtype). Source: `torch.nan_to_num`.",
        search: &["replace nan", "replace infinity", "clean"],
        params: &[
            X,
            Param::or("nan", Kind::Float, Default::Float(0.0)),
            Param::or("posinf", Kind::Float, Default::None),
            Param::or("neginf", Kind::Float, Default::None),
        ],
        form: Form::ALL,
        example: "assert(equal(nan_to_num([nan, inf, 1.0], posinf=9.0), [0.0, 9.0, 1.0]))",
        run: Run::Primitive(nan_to_num),
        gradient: Gradient::Rule(Keeps::X, |b| b.to(0, || b.select(&b.x(0).unary("isfinite"), b.g(), 0.0))),
        ..Op::BASE
    },
    Op {
        name: "masked_fill",
        doc: "Returns `x` with `value` where `mask` is true; the mask broadcasts, the dtype stays that of `x`. \
              Source: `torch.masked_fill`.",
        search: &["mask", "fill", "where", "attention mask"],
        params: &[X, Param::new("mask", Kind::Tensor), Param::new("value", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(masked_fill([1.0, 2.0], [true, false], -1), [-1.0, 2.0]))",
        run: Run::Both(masked_fill, |rt, name, args| {
            let (x, mask, value) = masked(args)?;
            let value = super::index::value_for(rt, x, value, 2)?;
            fill_where(rt, name, x, mask, MapArg::Tensor(&value)).map_err(|e| e.reorder(&[1, 2, 0]))
        }),
        gradient: Gradient::Rule(Keeps::Y, |b| {
            b.to(0, || b.select(&b.x(1), 0.0, b.g()));
            b.to(2, || b.select(&b.x(1), b.g(), 0.0));
        }),
        ..Op::BASE
    },
];

/// `a` if the condition holds, else `b`.
pub static WHERE: MapFn = MapFn {
    name: "where",
    arity: 3,
    select: true,
    cuda: CudaText { f32: "(a ? b : c)", f64: "(a ? b : c)", i64: "(a ? b : c)" },
    host: SELECT.host,
    complex: Some(&complex::WHERE),
};

/// Clamps to `b` .. `c`; the upper bound takes precedence, and nan stays.
pub static CLAMP: MapFn = MapFn {
    name: "clamp",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "clamp_to(a, b, c)", f64: "clamp_to(a, b, c)", i64: "clamp_to(a, b, c)" },
    host: host_ternary!(
        float: |a, b, c| {
            let low = if a.is_nan() || a > b { a } else { b };
            if low.is_nan() || low < c { low } else { c }
        },
        whole: |a, b, c| a.max(b).min(c),
    ),
    complex: None,
};

static NAN_TO_NUM: MapFn = MapFn {
    name: "nan_to_num",
    arity: 4,
    select: false,
    cuda: CudaText {
        f32: "(a != a ? b : a == INFINITY ? c : a == -INFINITY ? d : a)",
        f64: "(a != a ? b : a == (double)INFINITY ? c : a == -(double)INFINITY ? d : a)",
        i64: "a",
    },
    host: host_quaternary!(
        f32: |a, b, c, d| {
            if a.is_nan() { b } else if a == f32::INFINITY { c } else if a == f32::NEG_INFINITY { d } else { a }
        },
        f64: |a, b, c, d| {
            if a.is_nan() { b } else if a == f64::INFINITY { c } else if a == f64::NEG_INFINITY { d } else { a }
        },
        i64: |a, _b, _c, _d| a,
    ),
    complex: Some(&complex::NAN_TO_NUM),
};

/// `where(condition)`
fn true_places(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    if args.is_given(1) || args.is_given(2) {
        let missing = if args.is_given(1) { "other" } else { "x" };
        let help = "give both, or the condition alone for the positions where it is true";
        return Err(error::bad_value(1, format!("`where` without `{missing}`"), help));
    }
    out_of(rt, "nonzero", &[args.get(0).clone(), Arg::Bool(true)])
}

const LIMITED: MapOp = MapOp { rule: Rule::Within, f: &CLAMP };
const RAISED: MapOp = MapOp { rule: Rule::AtLeast, f: &MAXIMUM };
const LOWERED: MapOp = MapOp { rule: Rule::AtMost, f: &MINIMUM };

fn clamp(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.operand(0)?;
    let bound = |index: usize| args.is_given(index).then(|| args.operand(index)).transpose();
    let (op, operands): (_, smallvec::SmallVec<[MapArg<'_>; 3]>) = match (bound(1)?, bound(2)?) {
        (Some(low), Some(high)) => (LIMITED, smallvec::smallvec![x, low, high]),
        (Some(low), None) => (RAISED, smallvec::smallvec![x, low]),
        (None, Some(high)) => {
            let lowered = map(rt, "clamp", &LOWERED, &[x, high]);
            return lowered.map(Out::Tensor).map_err(|e| e.reorder(&[0, 2]));
        }
        (None, None) => return Err(error::no_bounds()),
    };
    map(rt, "clamp", &op, &operands).map(Out::Tensor)
}

fn nan_to_num(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let greatest = x.dtype().greatest();
    let given = |index: usize, or: f64| -> Result<MapArg<'_>> {
        let value = if args.is_given(index) { args.float(index)? } else { or };
        Ok(MapArg::Number(Scalar::Float(value)))
    };
    let operands = [MapArg::Tensor(x), given(1, 0.0)?, given(2, greatest)?, given(3, -greatest)?];
    let (f, _) = complex::over("nan_to_num", &NAN_TO_NUM, x.dtype())?;
    rt.map_ordered("nan_to_num", f, &operands, x.dtype(), x.dtype()).map(Out::Tensor)
}

/// The checked arguments of `masked_fill`.
fn masked<'a>(args: &Args<'a>) -> Result<(&'a Tensor, &'a Tensor, MapArg<'a>)> {
    let (x, mask, value) = (args.tensor(0)?, args.tensor(1)?, args.operand(2)?);
    if mask.dtype() != Dtype::Bool {
        let help = "compare to get one, `x > 0`, or convert: `mask.to(bool)`";
        return Err(error::wrong_tensor(1, "a mask of bools", mask, help));
    }
    let dtype = match value {
        MapArg::Number(number) => number.dtype(),
        MapArg::Tensor(tensor) => tensor.dtype(),
        _ => x.dtype(),
    };
    if let MapArg::Tensor(value) = value
        && value.rank() > 0
    {
        let help = "take one element, `value[0]`, or write all: `where(mask, value, x)`";
        return Err(error::wrong_tensor(2, "a number or a tensor without dimensions", value, help));
    }
    if let MapArg::Number(number) = value {
        check_number(2, number, x.dtype())?;
    }
    // Real values are converted to the tensor's dtype.
    if dtype.is_complex() {
        super::map::check_fits("masked_fill", dtype, x)?;
    }
    Ok((x, mask, value))
}

fn masked_fill(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, mask, value) = masked(args)?;
    let operands = [MapArg::Tensor(mask), value, MapArg::Tensor(x)];
    let (choose, _) = complex::over("masked_fill", &WHERE, x.dtype())?;
    let out = rt.map("masked_fill", choose, &operands, x.dtype(), x.dtype());
    out.map(Out::Tensor).map_err(|e| e.reorder(&[1, 2, 0]))
}

/// The gradient of `clamp` with bounds in these parameters. The gradient of an element at a bound is 0 if the bound is
/// a number; an element and a bound that is a tensor share the gradient. The upper bound takes precedence.
fn bounded_back(b: &Back<'_>, low: Option<usize>, high: Option<usize>) {
    let both = |x: Var<'_>, y: Var<'_>| b.op("logical_and", &[x.arg(), y.arg()]);
    let either = |x: Var<'_>, y: Var<'_>| b.op("logical_or", &[x.arg(), y.arg()]);
    let x = || b.x(0);
    let tensors = [low, high].into_iter().flatten().any(|bound| b.has_x(bound));
    match (low, high) {
        (Some(low), None) if tensors => greater_back(b, low),
        (None, Some(high)) if tensors => smaller_back(b, high),
        (Some(low), Some(high)) if tensors => {
            let is_low = || both(x().lt(b.x(low)), b.x(low).le(b.x(high)));
            let is_high = || either(x().gt(b.x(high)), b.x(high).lt(b.x(low)));
            let at = |bound: usize| both(x().eq(b.x(bound)), b.x(low).lt(b.x(high)));
            let half = |condition: Var<'_>| b.select(&condition, b.g() * 0.5, 0.0);
            b.to(0, || {
                let shared = b.select(&either(at(low), at(high)), b.g() * 0.5, b.g());
                b.select(&either(is_low(), is_high()), 0.0, shared)
            });
            b.to(low, || b.select(&is_low(), b.g(), half(at(low))));
            b.to(high, || b.select(&is_high(), b.g(), half(at(high))));
        }
        _ => b.to(0, || {
            let above = low.map(|low| x().gt(b.x(low)));
            let below = high.map(|high| x().lt(b.x(high)));
            match (above, below) {
                (Some(above), Some(below)) => b.select(&both(above, below), b.g(), 0.0),
                (Some(inside), None) | (None, Some(inside)) => b.select(&inside, b.g(), 0.0),
                (None, None) => b.g(),
            }
        }),
    }
}
