//! Running sums, products, maxima and minima.

use super::folds::{MAX, SUM};
use super::gradient::{products, rules};
use super::known;
use super::params::{DTYPE, X};
use super::reduce::{MIN, PROD};
use super::select::WHERE;
use super::shape::{narrowed, reshaped};
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, complex, dims, error, make};
use crate::array::{Class, Dims, Dtype, Scalar, Strides};
use crate::base::Result;
use crate::kernel::host::define::{host_combine, host_compare};
use crate::kernel::host::math;
use crate::kernel::{CudaText, MapFn, ReduceFn, Scan};
use crate::plan::error::not_over_complex;
use crate::plan::{MapArg, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::smallvec;

/// A running maximum or minimum: gradients go to the positions where it occurred.
const TO_POSITIONS: Gradient = Gradient::Rule(Keeps::INDICES, |b| {
    b.to(0, || b.zeros_of(0).call("scatter_add", &[b.arg(1), b.y_of(1).arg(), b.g().arg()]));
});

const PARAMS: &[Param] = &[X, Param::new("dim", Kind::Int), DTYPE];
const EXTREME: &[Param] = &[X, Param::new("dim", Kind::Int)];
const VALUES_INDICES: &[&str] = &["values", "indices"];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "cumsum",
        doc: "Returns running sums along a dimension: element i is the sum of the elements up to i. Integers and bools \
              give `i64`. Source: `torch.cumsum`.",
        search: &["running total", "prefix sum", "cumulative", "scan", "integral"],
        params: PARAMS,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 2, 3]).cumsum(0), [1, 3, 6]))",
        run: Run::Primitive(|rt, args| running(rt, "cumsum", &SUM, args)),
        shape: known::SAME,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || rules::sums_from_end(&b.g(), b.dim(1, b.g().rank())))
        }),
        ..Op::BASE
    },
    Op {
        name: "cumprod",
        doc: "Returns running products along a dimension. Integers and bools give `i64`. Source: `torch.cumprod`.",
        search: &["running product", "cumulative", "scan"],
        params: PARAMS,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 2, 3]).cumprod(0), [1, 2, 6]))",
        run: Run::Primitive(|rt, args| running(rt, "cumprod", &PROD, args)),
        shape: known::SAME,
        gradient: Gradient::Rule(Keeps::X, products::running),
        ..Op::BASE
    },
    Op {
        name: "cummax",
        doc: "Returns running maxima along a dimension: a record of `values`, and of the `indices` where each last \
              occurred. After a nan, all are nan. Source: `torch.cummax`.",
        search: &["running maximum", "cumulative", "scan", "greatest so far"],
        params: EXTREME,
        form: Form::BOTH,
        example: "let best = tensor([1, 3, 2, 3]).cummax(0)\nassert(equal(best.values, [1, 3, 3, 3]))\n\
                  assert(equal(best.indices, [0, 1, 1, 3]))",
        run: Run::Primitive(|rt, args| extreme(rt, "cummax", &MAX, args)),
        gradient: TO_POSITIONS,
        ..Op::BASE
    },
    Op {
        name: "cummin",
        doc: "Returns running minima along a dimension: a record of `values`, and of the `indices` where each last \
              occurred. After a nan, all are nan. Source: `torch.cummin`.",
        search: &["running minimum", "cumulative", "scan", "least so far"],
        params: EXTREME,
        form: Form::BOTH,
        example: "assert(equal(tensor([3, 1, 2]).cummin(0).values, [3, 1, 1]))",
        run: Run::Primitive(|rt, args| extreme(rt, "cummin", &MIN, args)),
        gradient: TO_POSITIONS,
        ..Op::BASE
    },
    Op {
        name: "logcumsumexp",
        doc: "Returns the logarithms of running sums of exponentials along a dimension, without overflow. Needs \
              floats. Source: `torch.logcumsumexp`.",
        search: &["log sum exp", "cumulative", "stable"],
        params: EXTREME,
        form: Form::BOTH,
        example: "assert(allclose(tensor([1000.0, 1000.0]).logcumsumexp(0), [1000.0, 1000.6931472]))",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            if !x.dtype().is_float() && !x.dtype().is_complex() {
                return Err(error::floats_alone("logcumsumexp", 0, x));
            }
            running(rt, "logcumsumexp", &LOG_SUM, args)
        }),
        gradient: Gradient::Rule(Keeps::X.and_result(), products::log_running),
        ..Op::BASE
    },
];

/// The logarithm of a sum of exponentials; nan if any element is nan.
pub static LOG_SUM: ReduceFn = ReduceFn {
    name: "log_sum",
    indexed: false,
    init: |class| match class {
        Class::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
        _ => f64::NEG_INFINITY.to_bits(),
    },
    cuda: CudaText {
        // The two terms may cancel, so `f32` computes in `f64`.
        f32: "(a == b ? a + 0.69314718055994531f : a != a || b != b ? a + b : log_sum_of(a, b))",
        f64: "(a == b ? a + 0.69314718055994531 : a != a || b != b ? a + b : fmax(a, b) + log1p(exp(-fabs(a - b))))",
        i64: "",
    },
    host: host_combine!(
        f32: |a, b| {
            let (x, y) = (f64::from(a), f64::from(b));
            let far = x.max(y) + math::log1p(math::exp(-(x - y).abs()));
            if a == b { a + std::f32::consts::LN_2 } else if a.is_nan() || b.is_nan() { a + b } else { far as f32 }
        },
        f64: |a, b| {
            let far = a.max(b) + math::log1p(math::exp(-(a - b).abs()));
            if a == b { a + std::f64::consts::LN_2 } else if a.is_nan() || b.is_nan() { a + b } else { far }
        },
    )
    .without_blocks(),
    mean: false,
    unrolled: None,
};

/// True if the element equals the maximum or minimum so far, or is nan.
static MET: MapFn = MapFn {
    name: "met",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(i64)(a == b || a != a)", f64: "(i64)(a == b || a != a)", i64: "(i64)(a == b)" },
    host: host_compare!(float: |a, b| a == b || a.is_nan(), i64: |a, b| a == b),
    complex: None,
};

fn running(rt: &mut Runtime, name: &'static str, f: &'static ReduceFn, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    let dim = dims::one(1, args.int(1)?, given.rank())?;
    if complex::is_summed(given, args.dtype(2)) {
        let dtype = args.dtype(2).unwrap_or(given.dtype());
        if given.rank() == 0 {
            return rt.convert(given, dtype).map(Out::Tensor);
        }
        if !std::ptr::eq(f, &SUM) {
            let x = if given.dtype() == dtype { given.clone() } else { rt.convert(given, dtype)? };
            return doubled(rt, name, f, &x, dim).map(Out::Tensor);
        }
        return complex::by_parts(rt, given, args.dtype(2), |rt, parts| {
            match running(rt, name, f, &Args(&[Arg::Tensor(parts.clone()), Arg::Int(dim as i64)]))? {
                Out::Tensor(sums) => Ok(sums),
                _ => Ok(parts.clone()),
            }
        });
    }
    let natural = if given.dtype().is_float() { given.dtype() } else { Dtype::I64 };
    let dtype = args.dtype(2).unwrap_or(natural);
    if given.rank() == 0 {
        return rt.convert(given, dtype).map(Out::Tensor);
    }
    let x = if given.dtype() == dtype { given.clone() } else { rt.convert(given, dtype)? };
    scanned(rt, name, f, &x, dim).map(Out::Tensor)
}

/// A running combination of complex numbers: each element is combined with the one 1, then 2, 4, 8 positions
/// before it.
fn doubled(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static ReduceFn,
    x: &Tensor,
    dim: usize,
) -> Result<Tensor> {
    let combine = if std::ptr::eq(f, &PROD) { &super::arith::MUL } else { &super::elementary::LOG_ADD_EXP };
    let dtype = x.dtype();
    let (combine, _) = complex::over(name, combine, dtype)?;
    let mut out = rt.contiguous_copy(x)?;
    let (extent, mut by) = (x.shape()[dim], 1);
    while by < extent && x.count() > 0 {
        let (before, after) = (narrowed(&out, dim, 0, extent - by), narrowed(&out, dim, by, extent - by));
        let taken =
            rt.map(name, combine, &[MapArg::Tensor(&before), MapArg::Tensor(&after)], dtype, dtype)?;
        let next = rt.contiguous_copy(&out)?;
        rt.assign(name, &narrowed(&next, dim, by, extent - by), &taken)?;
        (out, by) = (next, by * 2);
    }
    Ok(out)
}

/// A running combination along a dimension, in the tensor's own dtype.
pub(super) fn scanned(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static ReduceFn,
    x: &Tensor,
    dim: usize,
) -> Result<Tensor> {
    if x.count() == 0 {
        return rt.empty(x.shape(), x.dtype(), x.device());
    }
    let out = rt.fresh(x.shape(), x.dtype(), x.device())?;
    let (shape, own) = last(x, dim);
    let (_, target) = last(&out, dim);
    let views = smallvec![
        SubmittedView { tensor: x, strides: own, write: false },
        SubmittedView { tensor: &out, strides: target, write: true },
    ];
    let kind = &Scan { f, dtype: x.dtype() };
    rt.submit(Submission { name, kind, shape, views, axis: 0, limit: 0 })?;
    Ok(out)
}

/// Running maxima or minima and their positions; of equal elements, the last position.
fn extreme(rt: &mut Runtime, name: &'static str, f: &'static ReduceFn, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = dims::one(1, args.int(1)?, x.rank())?;
    if x.dtype().is_complex() {
        return Err(not_over_complex(name, x.dtype()));
    }
    if x.rank() == 0 {
        let place = make::filled(rt, &[], Dtype::I64, x.device(), Scalar::Int(0))?;
        return Ok(Out::Record(VALUES_INDICES, vec![rt.contiguous_copy(x)?, place]));
    }
    let values = scanned(rt, name, f, x, dim)?;
    let mut shape: Dims = smallvec![1; x.rank()];
    shape[dim] = x.shape()[dim];
    let places = make::positions(rt, x.device(), shape[dim], 0, 1)?;
    let places = reshaped(rt, &places, &shape)?;
    let met = [MapArg::Tensor(x), MapArg::Tensor(&values)];
    let met = rt.map(name, &MET, &met, x.dtype(), Dtype::Bool)?;
    let nowhere = MapArg::Number(Scalar::Int(-1));
    let places = [MapArg::Tensor(&met), MapArg::Tensor(&places), nowhere];
    let places = rt.map(name, &WHERE, &places, Dtype::I64, Dtype::I64)?;
    let indices = scanned(rt, name, &MAX, &places, dim)?;
    Ok(Out::Record(VALUES_INDICES, vec![values, indices]))
}

/// Shape and strides with one dimension moved to the end.
pub(super) fn last(x: &Tensor, dim: usize) -> (Dims, Strides) {
    let order: Dims = (0..x.rank()).filter(|&d| d != dim).chain([dim]).collect();
    let layout = x.layout().permute(&order);
    (layout.shape, layout.strides)
}
