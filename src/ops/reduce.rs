//! Reductions over all dimensions or over some.
//!
//! Integers and bools sum in `i64`; halves accumulate in `f32` and are rounded once. The order of combination
//! depends on the shape alone, so results are bit-identical in every run. An empty reduction returns its
//! identity (a sum 0, a product 1); one without an identity (a maximum) is an error.

use super::apply::again;
use super::arith::{MAXIMUM, MINIMUM, MUL};
use super::compare::{EQ, GE, GT, LE};
use super::composed::{call, t};
use super::folds::{ALL, MAX, MEAN, SUM};
use super::gradient::{products, rules};
use super::known;
use super::logic::OR;
use super::params::{DTYPE, X};
use super::shape::{narrowed, permuted, reshaped};
use super::signature::{Default, Kind, Param};
use super::{
    Arg, Args, Call, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, complex, composed, dims, error, make,
};
use crate::array::{Class, Dtype, Layout, Scalar};
use crate::base::Result;
use crate::kernel::host::define::{host_better, host_binary, host_combine, host_unary};
use crate::kernel::host::math;
use crate::kernel::{CudaText, MapFn, ReduceFn, Unrolled};
use crate::plan::{MapArg, Reduction, Runtime};
use crate::tensor::Tensor;
use smallvec::SmallVec;

pub(super) const DIM: Param = Param::or("dim", Kind::Dims, Default::None);
pub(super) const KEEPDIM: Param = Param::or("keepdim", Kind::Bool, Default::Bool(false));
const VALUES_INDICES: &[&str] = &["values", "indices"];
const CHOICE: &[Param] = &[
    X,
    Param::or("dim", Kind::TensorOrNumber, Default::None),
    KEEPDIM,
    Param::named("other", Kind::TensorOrNumber, Default::None),
];
const PLAIN: &[Param] = &[X, DIM, KEEPDIM];
const TYPED: &[Param] = &[X, DIM, KEEPDIM, DTYPE];
/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "sum",
        doc: "Adds all elements, or those along `dim`. Integers and bools give `i64`; `dtype` converts before \
              adding. The sum of no elements is 0. Source: `torch.sum`.",
        search: &["add up", "total", "reduce", "accumulate"],
        params: TYPED,
        form: Form::BOTH,
        example: "let x = tensor([[1.0, 2.0], [3.0, 4.0]])\n\
                  assert(x.sum().item() == 10.0)\n\
                  assert(equal(x.sum(0), [4.0, 6.0]))\n\
                  assert(x.sum(dim=1, keepdim=true).shape == (2, 1))",
        run: Run::Primitive(sum),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || {
                let (dims, shape) = (b.dims(1, b.form(0).shape.len()), b.shape(0));
                b.g().restore(&dims, b.args().flag(2), shape.len()).expand(&shape)
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "mean",
        doc: "Averages all elements, or those along `dim`. Needs floats, or `dtype=`; the mean of no elements is \
              nan. Source: `torch.mean`.",
        search: &["average", "expectation", "reduce"],
        params: TYPED,
        form: Form::BOTH,
        example: "let x = tensor([[1.0, 2.0], [3.0, 4.0]])\n\
                  assert(x.mean().item() == 2.5)\n\
                  assert(equal(x.mean(1), [1.5, 3.5]))\n\
                  assert(tensor([1, 2]).mean(dtype=f32).item() == 1.5)",
        run: Run::Primitive(mean),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || {
                let (dims, shape) = (b.dims(1, b.form(0).shape.len()), b.shape(0));
                let count: i64 = dims.iter().map(|&d| shape.get(d as usize).copied().unwrap_or(1)).product();
                let g = b.g().restore(&dims, b.args().flag(2), shape.len()) / count as f64;
                g.expand(&shape)
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "prod",
        doc: "Multiplies all elements, or those along `dim`. Integers and bools give `i64`. The product of no \
              elements is 1. Source: `torch.prod`.",
        search: &["product", "multiply", "reduce"],
        params: TYPED,
        form: Form::BOTH,
        example: "assert(tensor([2, 3, 4]).prod().item() == 24)",
        run: Run::Primitive(prod),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::X, products::prod),
        ..Op::BASE
    },
    Op {
        name: "max",
        doc: "Returns the maximum; with `dim` a record of `values` and `indices` (the first of equal ones); with a \
              second tensor the elementwise maximum. nan is greater than every number. Source: `torch.max`.",
        search: &["maximum", "greatest", "largest", "reduce", "argmax"],
        params: CHOICE,
        form: Form::BOTH,
        example: "let x = tensor([[1.0, 5.0], [7.0, 2.0]])\n\
                  assert(x.max().item() == 7.0)\n\
                  let best = x.max(dim=1)\n\
                  assert(equal(best.values, [5.0, 7.0]))\n\
                  assert(equal(best.indices, [1, 0]))\n\
                  assert(equal(max(tensor([1, 4]), [3, 2]), [3, 4]))",
        run: Run::Primitive(|rt, args| choose(rt, args, &OF_MAX)),
        shape: known::WHOLE,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "min",
        doc: "Returns the minimum; with `dim` a record of `values` and `indices` (the first of equal ones); with a \
              second tensor the elementwise minimum. nan is less than every number. Source: `torch.min`.",
        search: &["minimum", "least", "smallest", "reduce", "argmin"],
        params: CHOICE,
        form: Form::BOTH,
        example: "let x = tensor([[1.0, 5.0], [7.0, 2.0]])\n\
                  assert(x.min().item() == 1.0)\n\
                  assert(equal(x.min(0).indices, [0, 1]))",
        run: Run::Primitive(|rt, args| choose(rt, args, &OF_MIN)),
        shape: known::WHOLE,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "amax",
        doc: "Returns the maxima along `dim` (one or several dimensions), without positions. Source: `torch.amax`.",
        search: &["maximum", "greatest", "reduce", "max"],
        params: PLAIN,
        form: Form::BOTH,
        example: "assert(equal(tensor([[1, 5], [7, 2]]).amax(dim=0), [7, 5]))",
        run: Run::Primitive(amax),
        shape: known::REDUCE,
        gradient: rules::OF_DIMS,
        ..Op::BASE
    },
    Op {
        name: "amin",
        doc: "Returns the minima along `dim` (one or several dimensions), without positions. Source: `torch.amin`.",
        search: &["minimum", "least", "reduce", "min"],
        params: PLAIN,
        form: Form::BOTH,
        example: "assert(equal(tensor([[1, 5], [7, 2]]).amin(dim=0), [1, 2]))",
        run: Run::Primitive(amin),
        shape: known::REDUCE,
        gradient: rules::OF_DIMS,
        ..Op::BASE
    },
    Op {
        name: "argmax",
        doc: "Returns the position of the maximum along `dim`, or in the flattened tensor; the first of equal ones. \
              Source: `torch.argmax`.",
        search: &["index of maximum", "best", "class", "prediction"],
        params: &[X, Param::or("dim", Kind::Int, Default::None), KEEPDIM],
        form: Form::BOTH,
        example: "let x = tensor([[1.0, 5.0], [7.0, 2.0]])\n\
                  assert(x.argmax().item() == 2)\n\
                  assert(equal(x.argmax(dim=1), [1, 0]))",
        run: Run::Primitive(argmax),
        shape: known::REDUCE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "argmin",
        doc: "Returns the position of the minimum along `dim`, or in the flattened tensor; the first of equal ones. \
              Source: `torch.argmin`.",
        search: &["index of minimum", "nearest"],
        params: &[X, Param::or("dim", Kind::Int, Default::None), KEEPDIM],
        form: Form::BOTH,
        example: "assert(tensor([3, 1, 2]).argmin().item() == 1)",
        run: Run::Primitive(argmin),
        shape: known::REDUCE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "any",
        doc: "Returns whether any element is true (not 0), over all or along `dim`. Source: `torch.any`.",
        search: &["exists", "or", "some", "reduce"],
        params: PLAIN,
        form: Form::BOTH,
        example: "assert(tensor([0, 2]).any().item())\nassert(not any(tensor([false, false])).item())",
        run: Run::Primitive(any),
        shape: known::REDUCE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "all",
        doc: "Returns whether all elements are true (not 0), over all or along `dim`. Source: `torch.all`.",
        search: &["every", "and", "reduce"],
        params: PLAIN,
        form: Form::BOTH,
        example: "assert(not tensor([0, 2]).all().item())\nassert(all(tensor([1, 2]) > 0).item())",
        run: Run::Primitive(all),
        shape: known::REDUCE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "aminmax",
        doc: "Returns the minimum and the maximum as a record of `min` and `max`, over all elements or along `dim`. \
              Source: `torch.aminmax`.",
        search: &["range", "extent", "bounds"],
        params: &[
            X,
            Param::named("dim", Kind::Int, Default::None),
            Param::named("keepdim", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::BOTH,
        example: "let r = tensor([3, 1, 2]).aminmax()\nassert(r.min.item() == 1 and r.max.item() == 3)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            let dims = match args.opt_int(1) {
                Some(dim) => dims::many(1, Some(&[dim]), x.rank())?,
                None => all_dims(x),
            };
            not_empty("aminmax", x, &dims)?;
            let dtype = x.dtype();
            let least =
                rt.reduce(x, Reduction::new("aminmax", &MIN, &dims, dtype, dtype).keepdim(args.flag(2)))?;
            let most =
                rt.reduce(x, Reduction::new("aminmax", &MAX, &dims, dtype, dtype).keepdim(args.flag(2)))?;
            Ok(Out::Record(&["min", "max"], vec![least, most]))
        }),
        gradient: Gradient::Rule(Keeps::X.and_result(), |b| {
            b.to(0, || {
                let dims = b.dims(1, b.x(0).rank());
                let part = |i| rules::shared(b, &b.y_of(i), &b.g_of(i), &dims, b.args().flag(2), false);
                match (b.has_g(0), b.has_g(1)) {
                    (true, true) => part(0) + part(1),
                    (true, false) => part(0),
                    _ => part(1),
                }
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "nansum",
        doc: "Adds the elements that are numbers, over all or along `dim`; nan counts as 0. Source: `torch.nansum`.",
        search: &["missing", "ignore nan", "total"],
        params: TYPED,
        form: Form::BOTH,
        example: "assert(tensor([1.0, nan, 2.0]).nansum().item() == 3.0)",
        run: Run::Primitive(|rt, args| {
            let given = args.tensor(0)?;
            let x = match given.dtype().is_float() {
                true => {
                    rt.map("nansum", &ZERO_IF_NAN, &[MapArg::Tensor(given)], given.dtype(), given.dtype())?
                }
                false => given.clone(),
            };
            let rest = [Arg::Tensor(x), args.get(1).clone(), args.get(2).clone(), args.get(3).clone()];
            sum(rt, &Args(&rest))
        }),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(0, || {
                let rank = b.x(0).rank();
                let g = b.g().restore(&b.dims(1, rank), b.args().flag(2), rank);
                b.select(&b.x(0).unary("isnan"), 0.0, g)
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "logsumexp",
        doc: "Returns the logarithm of the sum of exponentials along `dim`, without overflow. \
              Source: `torch.logsumexp`.",
        search: &["softmax", "log sum exp", "normaliser", "partition"],
        params: &[X, Param::new("dim", Kind::Dims), KEEPDIM],
        form: Form::BOTH,
        example: "let x = tensor([1000.0, 1000.0])\nassert(abs(x.logsumexp(0).item() - 1000.6931) < 1e-3)",
        run: Run::Primitive(logsumexp),
        gradient: Gradient::Rule(Keeps::X.and_result(), |b| {
            b.to(0, || {
                let (x, keep) = (b.x(0), b.args().flag(2));
                let dims = b.dims(1, x.rank());
                let y = b.y().restore(&dims, keep, x.rank());
                b.g().restore(&dims, keep, x.rank()) * (&x - y).unary("exp").conj()
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "count_nonzero",
        doc: "Counts the elements that are not 0, over all or along `dim`. Source: `torch.count_nonzero`.",
        search: &["count", "number of", "nonzero"],
        params: &[X, Param::rest("dim", Kind::Dims)],
        form: Form::BOTH,
        example: "assert(tensor([0, 3, 0, 5]).count_nonzero().item() == 2)",
        run: Run::Primitive(count_nonzero),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

/// The product; integers wrap.
pub static PROD: ReduceFn = ReduceFn {
    name: "prod",
    indexed: false,
    init: |class| Scalar::Int(1).bits(class),
    cuda: CudaText { f32: "a * b", f64: "a * b", i64: "(i64)((u64)a * (u64)b)" },
    host: host_combine!(float: |a, b| a * b, i64: |a, b| a.wrapping_mul(b)),
    mean: false,
    unrolled: Some(Unrolled::Combined { f: &MUL, divide: None }),
};

/// The minimum; nan if any element is nan.
pub static MIN: ReduceFn = ReduceFn {
    name: "min",
    indexed: false,
    init: greatest,
    cuda: CudaText {
        f32: "(a != a || a < b ? a : b)",
        f64: "(a != a || a < b ? a : b)",
        i64: "(a < b ? a : b)",
    },
    host: host_combine!(float: |a, b| if a.is_nan() || a < b { a } else { b }, i64: |a, b| a.min(b)),
    mean: false,
    unrolled: Some(Unrolled::Combined { f: &MINIMUM, divide: None }),
};

/// The minimum in any order: nan is less than every number, and -0 is less than 0. Scatters combine with it.
pub static AMIN: ReduceFn = ReduceFn {
    name: "amin",
    cuda: CudaText {
        f32: "(a != a ? a : b != b ? NAN : a < b || (a == b && bits(a) > bits(b)) ? a : b)",
        f64: "(a != a ? a : b != b ? NAN : a < b || (a == b && bits(a) > bits(b)) ? a : b)",
        ..MIN.cuda
    },
    host: host_combine!(
        float: |a, b| match b.is_nan() {
            true => if a.is_nan() { a } else { b.abs() },
            false => if a.is_nan() || a.total_cmp(&b).is_lt() { a } else { b },
        },
        i64: |a, b| a.min(b),
    )
    .without_blocks(),
    unrolled: None,
    ..MIN
};

/// True if any element is true; over `bool`.
pub static ANY: ReduceFn = ReduceFn {
    name: "any",
    indexed: false,
    init: |_| 0,
    cuda: CudaText { f32: "", f64: "", i64: "(a | b)" },
    host: host_combine!(i64: |a, b| a | b),
    mean: false,
    unrolled: Some(Unrolled::Combined { f: &OR, divide: None }),
};

/// The maximum and its position.
pub static ARGMAX: ReduceFn = ReduceFn {
    name: "argmax",
    indexed: true,
    init: least,
    cuda: CudaText { f32: "b > a", f64: "b > a", i64: "b > a" },
    host: host_better!(all: |a, b| b > a),
    mean: false,
    unrolled: Some(Unrolled::Chosen { keeps: &GE, equal: &EQ, greater: &GT }),
};

/// The minimum and its position.
pub static ARGMIN: ReduceFn = ReduceFn {
    name: "argmin",
    indexed: true,
    init: greatest,
    cuda: CudaText { f32: "b < a", f64: "b < a", i64: "b < a" },
    host: host_better!(all: |a, b| b < a),
    mean: false,
    unrolled: Some(Unrolled::Chosen { keeps: &LE, equal: &EQ, greater: &GT }),
};

fn least(class: Class) -> u64 {
    match class {
        Class::I64 => i64::MIN as u64,
        float => Scalar::Float(f64::NEG_INFINITY).bits(float),
    }
}

fn greatest(class: Class) -> u64 {
    match class {
        Class::I64 => i64::MAX as u64,
        float => Scalar::Float(f64::INFINITY).bits(float),
    }
}

static ZERO_IF_NAN: MapFn = MapFn {
    name: "zero_if_nan",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(a != a ? 0.0f : a)", f64: "(a != a ? 0.0 : a)", i64: "" },
    host: host_unary!(float: |a| if a.is_nan() { 0.0 } else { a }),
    complex: None,
};

/// e^(a - b), where an infinite b (the maximum of a row) counts as 0.
static EXP_BELOW: MapFn = MapFn {
    name: "exp_below",
    arity: 2,
    select: false,
    cuda: CudaText {
        f32: "expf(fabsf(b) == INFINITY ? a : a - b)",
        f64: "exp(fabs(b) == (double)INFINITY ? a : a - b)",
        i64: "",
    },
    host: host_binary!(float: |a, b| math::exp(if b.is_infinite() { a } else { a - b })),
    complex: None,
};

/// ln(a) + b, where an infinite b counts as 0.
static LOG_ABOVE: MapFn = MapFn {
    name: "log_above",
    arity: 2,
    select: false,
    cuda: CudaText {
        // The two terms may cancel, so `f32` computes in `f64`.
        f32: "(fabsf(b) == INFINITY ? logf(a) : (float)(log((double)a) + (double)b))",
        f64: "(fabs(b) == (double)INFINITY ? log(a) : log(a) + b)",
        i64: "",
    },
    host: host_binary!(
        f32: |a, b| {
            if b.is_infinite() { math::ln(a) } else { (math::ln(f64::from(a)) + f64::from(b)) as f32 }
        },
        f64: |a, b| if b.is_infinite() { math::ln(a) } else { math::ln(a) + b },
    ),
    complex: None,
};

type DimList = SmallVec<[usize; 6]>;

fn summed(dtype: Dtype) -> Dtype {
    if dtype.is_float() { dtype } else { Dtype::I64 }
}

/// `sum` and `prod`.
fn accumulate(rt: &mut Runtime, name: &'static str, f: &'static ReduceFn, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dims = dims::many(1, args.ints(1), x.rank())?;
    if complex::is_summed(x, args.dtype(3)) && std::ptr::eq(f, &SUM) {
        return complex::by_parts(rt, x, args.dtype(3), |rt, parts| {
            rt.reduce(
                parts,
                Reduction::new(name, f, &dims, parts.dtype(), parts.dtype()).keepdim(args.flag(2)),
            )
        });
    }
    let dtype = args.dtype(3).unwrap_or(summed(x.dtype()));
    let compute = args.dtype(3).unwrap_or(x.dtype());
    rt.reduce(x, Reduction::new(name, f, &dims, compute, dtype).keepdim(args.flag(2))).map(Out::Tensor)
}

fn sum(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    accumulate(rt, "sum", &SUM, args)
}

fn prod(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    if complex::is_summed(x, args.dtype(3)) {
        return complex_prod(rt, x, args).map(Out::Tensor);
    }
    accumulate(rt, "prod", &PROD, args)
}

/// Multiplies complex numbers: repeatedly multiplies the two halves elementwise until one element is left.
fn complex_prod(rt: &mut Runtime, given: &Tensor, args: &Args<'_>) -> Result<Tensor> {
    const NAME: &str = "prod";
    let dims = dims::many(1, args.ints(1), given.rank())?;
    let dtype = args.dtype(3).unwrap_or(given.dtype());
    let shape = kept_shape(given, &dims, args.flag(2));
    let x = if given.dtype() == dtype { given.clone() } else { rt.convert(given, dtype)? };
    let kept = (0..x.rank()).filter(|d| !dims.contains(d));
    let order: crate::array::Dims = dims.iter().copied().chain(kept).collect();
    let rest: usize = (0..x.rank()).filter(|d| !dims.contains(d)).map(|d| x.shape()[d]).product();
    let mut left = count(&x, &dims);
    if left == 0 {
        return make::filled(rt, &shape, dtype, x.device(), Scalar::Int(1));
    }
    let mut x = reshaped(rt, &permuted(&x, &order), &[left, rest])?;
    let (mul, _) = complex::over(NAME, &MUL, dtype)?;
    while left > 1 {
        let half = left / 2;
        let operands = [narrowed(&x, 0, 0, half), narrowed(&x, 0, half, half)];
        let mut next = rt.map(NAME, mul, &operands.each_ref().map(MapArg::Tensor), dtype, dtype)?;
        if left % 2 == 1 {
            // For an odd count, multiply the last element into the first product.
            let first = narrowed(&next, 0, 0, 1);
            let operands = [first, narrowed(&x, 0, left - 1, 1)];
            let product = rt.map(NAME, mul, &operands.each_ref().map(MapArg::Tensor), dtype, dtype)?;
            next = rt.contiguous_copy(&next)?;
            rt.assign(NAME, &narrowed(&next, 0, 0, 1), &product)?;
        }
        (x, left) = (next, half);
    }
    let product = reshaped(rt, &x, &shape)?;
    composed::apart(rt, given, product)
}

pub(super) fn mean(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dims = dims::many(1, args.ints(1), x.rank())?;
    if complex::is_summed(x, args.dtype(3)) {
        return complex::by_parts(rt, x, args.dtype(3), |rt, parts| {
            rt.reduce(
                parts,
                Reduction::new("mean", &MEAN, &dims, parts.dtype(), parts.dtype()).keepdim(args.flag(2)),
            )
        });
    }
    let dtype = match args.dtype(3) {
        Some(dtype) if dtype.is_float() => dtype,
        Some(dtype) => return Err(error::not_a_float("mean", 3, dtype)),
        None if x.dtype().is_float() => x.dtype(),
        None => return Err(error::needs_float("mean", x)),
    };
    rt.reduce(x, Reduction::new("mean", &MEAN, &dims, dtype, dtype).keepdim(args.flag(2))).map(Out::Tensor)
}

/// The three forms of `max` and `min`, each a separate operation.
struct Choice {
    all: Op,
    along: Op,
    pair: Op,
}

static OF_MAX: Choice = Choice {
    all: Op {
        name: "max",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            choose_value(rt, "max", &MAX, x, &all_dims(x), args.flag(2))
        }),
        gradient: rules::OF_ALL,
        ..Op::BASE
    },
    along: Op {
        name: "max",
        run: Run::Primitive(|rt, args| choose_indexed(rt, "max", &ARGMAX, args)),
        gradient: rules::ALONG,
        ..Op::BASE
    },
    pair: Op {
        name: "max",
        run: Run::Map(MapOp { f: &MAXIMUM, rule: Rule::Promote }),
        gradient: Gradient::Rule(Keeps::XY, |b| rules::of_pair(b, "lt")),
        ..Op::BASE
    },
};

static OF_MIN: Choice = Choice {
    all: Op {
        name: "min",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            choose_value(rt, "min", &MIN, x, &all_dims(x), args.flag(2))
        }),
        gradient: rules::OF_ALL,
        ..Op::BASE
    },
    along: Op {
        name: "min",
        run: Run::Primitive(|rt, args| choose_indexed(rt, "min", &ARGMIN, args)),
        gradient: rules::ALONG,
        ..Op::BASE
    },
    pair: Op {
        name: "min",
        run: Run::Map(MapOp { f: &MINIMUM, rule: Rule::Promote }),
        gradient: Gradient::Rule(Keeps::XY, |b| rules::of_pair(b, "gt")),
        ..Op::BASE
    },
};

fn choose(rt: &mut Runtime, args: &Args<'_>, choice: &'static Choice) -> Result<Out> {
    let second = if args.is_given(3) { 3 } else { 1 };
    match args.get(second) {
        Arg::None => again(rt, &choice.all, Call::Plain(*args)),
        Arg::Int(_) if second == 1 => again(rt, &choice.along, Call::Plain(*args)),
        Arg::Tensor(_) | Arg::Int(_) | Arg::Float(_) | Arg::Bool(_)
            if second == 3 || args.opt_tensor(1).is_some() =>
        {
            again(rt, &choice.pair, Call::Plain(Args(&[args.get(0).clone(), args.get(second).clone()])))
        }
        _ => Err(error::wrong_argument(1, "a dimension (an int) or a tensor")),
    }
}

fn choose_indexed(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static ReduceFn,
    args: &Args<'_>,
) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = dims::one(1, args.int(1)?, x.rank())?;
    let (values, indices) = choose_along(rt, name, f, x, dim, args.flag(2))?;
    Ok(Out::Record(VALUES_INDICES, vec![values, indices]))
}

/// Values and positions along one dimension.
pub(super) fn choose_along(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static ReduceFn,
    x: &Tensor,
    dim: usize,
    keepdim: bool,
) -> Result<(Tensor, Tensor)> {
    let dims: &[usize] = if x.rank() == 0 { &[] } else { &[dim] };
    not_empty(name, x, dims)?;
    match rt.reduce_indexed(x, Reduction::new(name, f, dims, x.dtype(), x.dtype()).keepdim(keepdim), true)? {
        (Some(values), indices) => Ok((values, indices)),
        (None, indices) => Ok((x.clone(), indices)),
    }
}

fn choose_value(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static ReduceFn,
    x: &Tensor,
    dims: &[usize],
    keepdim: bool,
) -> Result<Out> {
    not_empty(name, x, dims)?;
    rt.reduce(x, Reduction::new(name, f, dims, x.dtype(), x.dtype()).keepdim(keepdim)).map(Out::Tensor)
}

fn amax(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dims = dims::many(1, args.ints(1), x.rank())?;
    choose_value(rt, "amax", &MAX, x, &dims, args.flag(2))
}

fn amin(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dims = dims::many(1, args.ints(1), x.rank())?;
    choose_value(rt, "amin", &MIN, x, &dims, args.flag(2))
}

fn argmax(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    arg_choice(rt, "argmax", &ARGMAX, args)
}

fn argmin(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    arg_choice(rt, "argmin", &ARGMIN, args)
}

fn arg_choice(rt: &mut Runtime, name: &'static str, f: &'static ReduceFn, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    error::refuse_bool(name, 0, x)?;
    let dims = match args.opt_int(1) {
        Some(dim) => dims::many(1, Some(&[dim]), x.rank())?,
        None => all_dims(x),
    };
    not_empty(name, x, &dims)?;
    let reduction = Reduction::new(name, f, &dims, x.dtype(), x.dtype()).keepdim(args.flag(2));
    let (_, indices) = rt.reduce_indexed(x, reduction, false)?;
    Ok(Out::Tensor(indices))
}

fn any(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    logic(rt, "any", &ANY, args)
}

fn all(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    logic(rt, "all", &ALL, args)
}

fn logic(rt: &mut Runtime, name: &'static str, f: &'static ReduceFn, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dims = match args.ints(1) {
        // As in PyTorch, an empty list reduces no dimension; only `any` and `all` behave this way.
        Some([]) if x.dtype() == Dtype::Bool => return rt.contiguous_copy(x).map(Out::Tensor),
        Some([]) => return rt.convert(x, Dtype::Bool).map(Out::Tensor),
        named => dims::many(1, named, x.rank())?,
    };
    rt.reduce(x, Reduction::new(name, f, &dims, Dtype::Bool, Dtype::Bool).keepdim(args.flag(2)))
        .map(Out::Tensor)
}

fn count_nonzero(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dims = dims::many(1, args.ints(1), x.rank())?;
    rt.reduce(x, Reduction::new("count_nonzero", &SUM, &dims, Dtype::Bool, Dtype::I64)).map(Out::Tensor)
}

fn logsumexp(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let name = "logsumexp";
    let given = args.tensor(0)?;
    if given.dtype().is_complex() {
        return complex_logsumexp(rt, given, args);
    }
    let x = match given.dtype().is_float() {
        true => given.clone(),
        false => rt.convert(given, Dtype::F32)?,
    };
    let dims = dims::many(1, args.ints(1), x.rank())?;
    let shape = kept_shape(&x, &dims, args.flag(2));
    if count(&x, &dims) == 0 {
        let nothing = Scalar::Float(f64::NEG_INFINITY);
        return make::filled(rt, &shape, x.dtype(), x.device(), nothing).map(Out::Tensor);
    }
    let acc = x.dtype().accumulator();
    let most = rt.reduce(&x, Reduction::new(name, &MAX, &dims, x.dtype(), acc).keepdim(true))?;
    let terms = rt.map(name, &EXP_BELOW, &[MapArg::Tensor(&x), MapArg::Tensor(&most)], acc, acc)?;
    let sum = rt.reduce(&terms, Reduction::new(name, &SUM, &dims, acc, acc).keepdim(args.flag(2)))?;
    // Released, so that later work does not store them.
    drop(terms);
    let most = most.with_layout(Layout::contiguous(&shape));
    rt.map(name, &LOG_ABOVE, &[MapArg::Tensor(&sum), MapArg::Tensor(&most)], acc, x.dtype()).map(Out::Tensor)
}

/// `logsumexp` of complex numbers, shifted by the maximum real part.
fn complex_logsumexp(rt: &mut Runtime, x: &Tensor, args: &Args<'_>) -> Result<Out> {
    let dims = dims::many(1, args.ints(1), x.rank())?;
    let shape = kept_shape(x, &dims, args.flag(2));
    if count(x, &dims) == 0 {
        let nothing = Scalar::Float(f64::NEG_INFINITY);
        return make::filled(rt, &shape, x.dtype(), x.device(), nothing).map(Out::Tensor);
    }
    let part = x.dtype().real();
    let most =
        rt.reduce(&complex::real(x)?, Reduction::new("logsumexp", &MAX, &dims, part, part).keepdim(true))?;
    let finite = call(rt, "isfinite", &[t(&most)])?;
    let most = call(rt, "where", &[t(&finite), t(&most), Arg::Float(0.0)])?;
    let below = call(rt, "sub", &[t(x), t(&most)])?;
    let terms = call(rt, "exp", &[t(&below)])?;
    let sum = match dims.is_empty() {
        true => terms,
        false => {
            let dims = dims.iter().map(|&dim| dim as i64).collect();
            call(rt, "sum", &[t(&terms), Arg::Ints(dims), args.get(2).clone()])?
        }
    };
    let logs = call(rt, "log", &[t(&sum)])?;
    let most = most.with_layout(Layout { offset: most.layout().offset, ..Layout::contiguous(&shape) });
    call(rt, "add", &[t(&logs), t(&most)]).map(Out::Tensor)
}

pub(super) fn all_dims(x: &Tensor) -> DimList {
    (0..x.rank()).collect()
}

/// The number of elements of `x` that are combined into one.
pub(super) fn count(x: &Tensor, dims: &[usize]) -> usize {
    dims.iter().map(|&d| x.shape()[d]).product()
}

fn kept_shape(x: &Tensor, dims: &[usize], keepdim: bool) -> crate::array::Dims {
    let extent = |(d, &n): (usize, &usize)| match dims.contains(&d) {
        true => keepdim.then_some(1),
        false => Some(n),
    };
    x.shape().iter().enumerate().filter_map(extent).collect()
}

/// Rejects a choice from no elements.
pub(super) fn not_empty(name: &str, x: &Tensor, dims: &[usize]) -> Result<()> {
    match dims.iter().find(|&&d| x.shape()[d] == 0) {
        Some(_) if dims.len() == x.rank() => Err(error::nothing_to_reduce(name, x, None)),
        Some(&d) => Err(error::nothing_to_reduce(name, x, Some(d))),
        None => Ok(()),
    }
}
