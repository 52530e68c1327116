//! Variances, standard deviations and norms.
//!
//! Variances take two passes for accuracy. Halves compute in `f32` and are rounded once.

use super::arith::SQUARE;
use super::composed::{call, t};
use super::folds::{MAX, MEAN, SUM};
use super::gradient::{Back, Var};
use super::known;
use super::params::{DTYPE, X};
use super::reduce::{DIM, KEEPDIM, MIN, count, mean, not_empty};
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, complex, dims, error};
use crate::array::Scalar;
use crate::base::Result;
use crate::kernel::host::define::{host_binary, host_unary};
use crate::kernel::host::math;
use crate::kernel::{CudaText, MapFn};
use crate::plan::{MapArg, Reduction, Runtime};

const SPREAD: &[Param] = &[
    X,
    Param::or("dim", Kind::Any, Default::None),
    Param::or("unbiased", Kind::Bool, Default::None),
    KEEPDIM,
    Param::named("correction", Kind::Number, Default::None),
];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "var",
        doc: "Returns the variance, over all or along `dim`: the squared distances from the mean, added and divided \
              by the count minus `correction` (1 by default: Bessel's correction). `unbiased=false` means \
              `correction=0`, as in `x.var(dim, false)` and `x.var(false)`. Needs floats. Source: `torch.var`.",
        search: &["variance", "spread", "second moment"],
        params: SPREAD,
        form: Form::BOTH,
        example: "let x = tensor([1.0, 2.0, 3.0, 4.0])\n\
                  assert(abs(x.var().item() - 1.6666666) < 1e-6)\n\
                  assert(x.var(correction=0).item() == 1.25)",
        run: Run::Primitive(var),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::X, |b| b.to(0, || var_back(b, b.g()))),
        ..Op::BASE
    },
    Op {
        name: "std",
        doc: "Returns the standard deviation: the root of `var`. Needs floats. Source: `torch.std`.",
        search: &["standard deviation", "spread", "sigma"],
        params: SPREAD,
        form: Form::BOTH,
        example: "assert(tensor([1.0, 3.0]).std(correction=0).item() == 1.0)",
        run: Run::Primitive(std),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::X.and_result(), |b| b.to(0, || var_back(b, var_of_std(b)))),
        ..Op::BASE
    },
    Op {
        name: "var_mean",
        doc: "Returns the variance and the mean as a tuple, over all or along `dim`. Needs floats. \
              Source: `torch.var_mean`.",
        search: &["variance", "average", "moments"],
        params: SPREAD,
        form: Form::FUNCTION,
        example: "let (v, m) = var_mean(tensor([1.0, 3.0]), correction=0)\n\
                  assert(v.item() == 1.0 and m.item() == 2.0)",
        run: Run::Primitive(|rt, args| spread_and_mean(rt, args, var)),
        gradient: Gradient::Rule(Keeps::X, |b| spread_and_mean_back(b, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "std_mean",
        doc: "Returns the standard deviation and the mean as a tuple, over all or along `dim`. Needs floats. \
              Source: `torch.std_mean`.",
        search: &["standard deviation", "average", "moments"],
        params: SPREAD,
        form: Form::FUNCTION,
        example: "let (s, m) = std_mean(tensor([1.0, 3.0]), correction=0)\n\
                  assert(s.item() == 1.0 and m.item() == 2.0)",
        run: Run::Primitive(|rt, args| spread_and_mean(rt, args, std)),
        gradient: Gradient::Rule(Keeps::X.and_result(), |b| spread_and_mean_back(b, || var_of_std(b))),
        ..Op::BASE
    },
    Op {
        name: "norm",
        doc: "Returns the vector norm of order `p` over all elements or along `dim`: 2 is the Euclidean norm, 1 sums \
              magnitudes, `inf` is the maximum magnitude, 0 counts non-zero elements. For matrices, `\"fro\"` is the \
              Frobenius norm and `\"nuc\"` the nuclear norm, the sum of the singular values (computed on the host, \
              which waits). Needs floats. Source: `torch.linalg.vector_norm`.",
        search: &["length", "magnitude", "euclidean", "l2", "l1"],
        params: &[X, Param::or("p", Kind::Any, Default::Float(2.0)), DIM, KEEPDIM, DTYPE],
        form: Form::BOTH,
        example: "let x = tensor([3.0, -4.0])\n\
                  assert(x.norm().item() == 5.0)\n\
                  assert(x.norm(1).item() == 7.0)\n\
                  assert(x.norm(inf).item() == 4.0)\n\
                  assert(norm([[3.0, 0.0], [0.0, 4.0]], \"nuc\").item() == 7.0)",
        run: Run::Primitive(norm),
        shape: known::REDUCE,
        gradient: Gradient::Rule(Keeps::X.and_result(), norm_back),
        ..Op::BASE
    },
];

static SQUARED_DISTANCE: MapFn = MapFn {
    name: "squared_distance",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "((a - b) * (a - b))", f64: "((a - b) * (a - b))", i64: "" },
    host: host_binary!(float: |a, b| (a - b) * (a - b)),
    complex: None,
};

static QUOTIENT: MapFn = MapFn {
    name: "quotient",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(a / b)", f64: "(a / b)", i64: "" },
    host: host_binary!(float: |a, b| a / b),
    complex: None,
};

static ROOT_OF_QUOTIENT: MapFn = MapFn {
    name: "root_of_quotient",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "sqrtf(a / b)", f64: "sqrt(a / b)", i64: "" },
    host: host_binary!(float: |a, b| (a / b).sqrt()),
    complex: None,
};

static ROOT: MapFn = MapFn {
    name: "root",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "sqrtf(a)", f64: "sqrt(a)", i64: "" },
    host: host_unary!(float: |a| a.sqrt()),
    complex: None,
};

static MAGNITUDE: MapFn = MapFn {
    name: "magnitude",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "fabsf(a)", f64: "fabs(a)", i64: "" },
    host: host_unary!(float: |a| a.abs()),
    complex: None,
};

static POWER_OF_MAGNITUDE: MapFn = MapFn {
    name: "power_of_magnitude",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "powf(fabsf(a), b)", f64: "pow(fabs(a), b)", i64: "" },
    host: host_binary!(float: |a, b| math::pow(a.abs(), b)),
    complex: None,
};

static ONE_IF_NOT_ZERO: MapFn = MapFn {
    name: "one_if_not_zero",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(a != 0.0f ? 1.0f : 0.0f)", f64: "(a != 0.0 ? 1.0 : 0.0)", i64: "" },
    host: host_unary!(float: |a| if a != 0.0 { 1.0 } else { 0.0 }),
    complex: None,
};

fn var(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    spread(rt, "var", &QUOTIENT, args)
}

fn std(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    spread(rt, "std", &ROOT_OF_QUOTIENT, args)
}

fn spread_and_mean(
    rt: &mut Runtime,
    args: &Args<'_>,
    spread: fn(&mut Runtime, &Args<'_>) -> Result<Out>,
) -> Result<Out> {
    let dim = if let Arg::Bool(_) = args.get(1) { Arg::None } else { args.get(1).clone() };
    let Out::Tensor(spread) = spread(rt, args)? else { return Ok(Out::None) };
    let Out::Tensor(mean) = mean(rt, &Args(&[args.get(0).clone(), dim, args.get(3).clone()]))? else {
        return Ok(Out::None);
    };
    Ok(Out::Tuple(vec![spread, mean]))
}

/// The dimensions and the correction (subtracted from the count) for `var` and related functions. A bool in
/// place of the dimensions is `unbiased`.
fn spread_of<'a>(args: &Args<'a>) -> Result<(Option<&'a [i64]>, f64)> {
    let unbiased = match (args.get(1), args.get(2)) {
        (Arg::Bool(unbiased), Arg::None) => Some(*unbiased),
        (Arg::None | Arg::Int(_) | Arg::Ints(_), Arg::Bool(unbiased)) => Some(*unbiased),
        (Arg::None | Arg::Int(_) | Arg::Ints(_), _) => None,
        _ => return Err(error::wrong_argument(1, "a dimension or a list of them")),
    };
    let correction = match (unbiased, args.is_given(4)) {
        (Some(_), true) => {
            let help = "`unbiased=false` is `correction=0`";
            return Err(error::bad_value(4, "`unbiased` and `correction` mean the same", help));
        }
        (Some(unbiased), false) => f64::from(u8::from(unbiased)),
        (None, true) => args.float(4)?,
        (None, false) => 1.0,
    };
    Ok((args.ints(1), correction))
}

/// Two passes, for accuracy: the mean, then the squared distances from it.
fn spread(rt: &mut Runtime, name: &'static str, last: &'static MapFn, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    let (dims, correction) = spread_of(args)?;
    let dims = dims::many(1, dims, given.rank())?;
    // The variance of complex numbers is the sum of the variances of their real and imaginary parts.
    let parts = given.dtype().is_complex();
    let x = &if parts { complex::as_real(given, name)? } else { given.clone() };
    if !x.dtype().is_float() {
        return Err(error::needs_float(name, x));
    }
    let acc = x.dtype().accumulator();
    let mean = rt.reduce(x, Reduction::new(name, &MEAN, &dims, x.dtype(), acc).keepdim(true))?;
    let mut sum = {
        // Released before later work ends the group, so that they are not stored.
        let operands = [MapArg::Tensor(x), MapArg::Tensor(&mean)];
        let distances = rt.map(name, &SQUARED_DISTANCE, &operands, acc, acc)?;
        rt.reduce(&distances, Reduction::new(name, &SUM, &dims, acc, acc).keepdim(args.flag(3)))?
    };
    if parts {
        let last = sum.rank() - 1;
        sum = rt.reduce(&sum, Reduction::new(name, &SUM, &[last], acc, acc))?;
    }
    let divisor = (count(x, &dims) as f64 - correction).max(0.0);
    let operands = [MapArg::Tensor(&sum), MapArg::Number(Scalar::Float(divisor))];
    rt.map(name, last, &operands, acc, x.dtype()).map(Out::Tensor)
}

fn norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let p = match args.get(1) {
        Arg::Str(kind) if kind == "fro" => {
            if let Some(dims) = args.ints(2).filter(|dims| dims.len() > 2) {
                let message = format!("`\"fro\"` over {} dimensions", dims.len());
                return Err(error::bad_value(2, message, "a matrix has two"));
            }
            2.0
        }
        Arg::Str(kind) if kind == "nuc" => return super::nuclear::norm(rt, args).map(Out::Tensor),
        Arg::Str(other) => return Err(error::not_one_of(1, "p", other, &["fro", "nuc"])),
        _ => args.float(1)?,
    };
    let given = &complex::magnitude(rt, "norm", args.tensor(0)?)?;
    let x = match args.dtype(4) {
        Some(dtype) if !dtype.is_float() => return Err(error::not_a_float("norm", 4, dtype)),
        Some(dtype) if dtype != given.dtype() => rt.convert(given, dtype)?,
        _ => given.clone(),
    };
    if !x.dtype().is_float() {
        return Err(error::needs_float("norm", &x));
    }
    let dims = dims::many(2, args.ints(2), x.rank())?;
    let keepdim = args.flag(3);
    let (acc, dtype) = (x.dtype().accumulator(), x.dtype());
    let power = MapArg::Number(Scalar::Float(p));
    let x = MapArg::Tensor(&x);
    let total = |rt: &mut Runtime, f: &'static MapFn, args: &[MapArg<'_>], fold, dtype| {
        let terms = rt.map("norm", f, args, acc, acc)?;
        rt.reduce(&terms, Reduction::new("norm", fold, &dims, acc, dtype).keepdim(keepdim))
    };
    if p.is_infinite() {
        if let MapArg::Tensor(x) = x {
            not_empty("norm", x, &dims)?;
        }
        let fold = if p > 0.0 { &MAX } else { &MIN };
        return total(rt, &MAGNITUDE, &[x], fold, dtype).map(Out::Tensor);
    }
    if p == 0.0 {
        return total(rt, &ONE_IF_NOT_ZERO, &[x], &SUM, dtype).map(Out::Tensor);
    }
    if p == 1.0 {
        return total(rt, &MAGNITUDE, &[x], &SUM, dtype).map(Out::Tensor);
    }
    if p == 2.0 {
        let sum = total(rt, &SQUARE, &[x], &SUM, acc)?;
        return rt.map("norm", &ROOT, &[MapArg::Tensor(&sum)], acc, dtype).map(Out::Tensor);
    }
    let sum = total(rt, &POWER_OF_MAGNITUDE, &[x, power], &SUM, acc)?;
    let root = MapArg::Number(Scalar::Float(1.0 / p));
    rt.map("norm", &POWER_OF_MAGNITUDE, &[MapArg::Tensor(&sum), root], acc, dtype).map(Out::Tensor)
}

/// The gradient of a variance: `2 (x - mean) / (count - correction)`.
fn var_back<'a>(b: &'a Back<'_>, g: Var<'a>) -> Var<'a> {
    let x = b.x(0);
    let rank = x.rank();
    let (Ok((_, correction)), dims) = (spread_of(&b.args()), b.dims(1, rank)) else { return g };
    let count: i64 = dims.iter().map(|&d| x.shape().get(d as usize).copied().unwrap_or(1)).product();
    let mean = x.call("mean", &[Arg::Ints(dims.clone()), Arg::Bool(true)]);
    let factor = 2.0 / (count as f64 - correction).max(0.0);
    g.restore(&dims, b.args().flag(3), rank) * factor * (x - mean)
}

/// The gradient of the variance, given the gradient of the standard deviation; 0 where the standard deviation is 0.
fn var_of_std<'a>(b: &'a Back<'_>) -> Var<'a> {
    let std = b.y();
    let is_zero = std.eq(0.0);
    // Each factor is chosen, not their product: its gradient by `g` would be nan where there is no deviation.
    b.select(&is_zero, 0.0, b.g()) * b.select(&is_zero, 0.0, 0.5 / &std)
}

fn spread_and_mean_back<'a>(b: &'a Back<'_>, g: impl FnOnce() -> Var<'a>) {
    b.to(0, || {
        let shape = b.x(0).shape();
        let dims = b.dims(1, shape.len());
        let of_mean = || {
            let count: i64 = dims.iter().map(|&d| shape.get(d as usize).copied().unwrap_or(1)).product();
            b.g_of(1).restore(&dims, b.args().flag(3), shape.len()) / count as f64
        };
        match (b.has_g(0), b.has_g(1)) {
            (true, true) => var_back(b, g()) + of_mean(),
            (true, false) => var_back(b, g()),
            _ => of_mean().expand(&shape),
        }
    });
}

/// The norms of differences along the last dimension, with the gradients of `torch.cdist`: each of the largest differences
/// takes the whole gradient for an infinite `p`, and differences and norms of 0 have second derivatives of 0. The
/// differences, which may be many more than the operands and the results, are computed again instead of being kept.
pub(super) static DISTANCE: Op = Op {
    name: "distance",
    params: &[X, Param::new("other", Kind::Tensor), Param::new("p", Kind::Any)],
    run: Run::Primitive(|rt, args| {
        let off = call(rt, "sub", &[args.get(0).clone(), args.get(1).clone()])?;
        norm(rt, &Args(&[t(&off), args.get(2).clone(), Arg::Int(-1)]))
    }),
    gradient: Gradient::Rule(Keeps::XY.and_result(), |b| {
        let p = b.args().float(2).unwrap_or(2.0);
        if p == 2.0 && are_all_pairs(b) {
            return distances_back(b);
        }
        let term = || {
            let off = b.x(0) - b.x(1);
            let last = [off.rank() as i64 - 1];
            norm_term(b, off, &last, p, true)
        };
        b.to(0, || b.fitted(0, term()));
        b.to(1, || b.fitted(1, -term()));
    }),
    ..Op::BASE
};

/// From this many rows on, `torch.cdist` computes with matrix products (`use_mm_for_euclid_dist_if_necessary`).
const MANY_ROWS: i64 = 26;

/// True for the distances between all rows of two real matrices, or batches of them, if one has many rows.
fn are_all_pairs(b: &Back<'_>) -> bool {
    let (rows, others) = (b.x(0).shape(), b.x(1).shape());
    let ([.., n, one, _], [.., another, k, _]) = (&rows[..], &others[..]) else { return false };
    // Products of halves would cancel most of their digits.
    let is_wide = b.g().dtype() == b.g().dtype().accumulator();
    let is_wide = is_wide && !b.x(0).dtype().is_complex() && !b.x(1).dtype().is_complex();
    is_wide && *one == 1 && *another == 1 && (*n).max(*k) >= MANY_ROWS
}

/// The gradients of [`are_all_pairs`] by products: `x1 * sum(w) - w @ x2` for the weights `g / distance`, as in PyTorch.
fn distances_back(b: &Back<'_>) {
    let weights = || {
        let (g, y) = (b.g(), b.y());
        let is_zero = y.eq(0.0);
        // Each factor is chosen, not their quotient: its gradient by `g` would be nan where the distance is 0.
        b.select(&is_zero, 0.0, g) / b.select(&is_zero, 1.0, &y)
    };
    let squeezed =
        |operand: usize, dim: i64| b.x(operand).call("squeeze", &[Arg::Int(dim)]).to(b.g().dtype());
    fn term<'a>(w: Var<'a>, own: Var<'a>, other: Var<'a>, dim: i64) -> Var<'a> {
        let gradient = own * w.sum(&[w.rank() as i64 - 1], true) - w.call("matmul", &[other.arg()]);
        gradient.call("unsqueeze", &[Arg::Int(dim)])
    }
    b.to(0, || b.fitted(0, term(weights(), squeezed(0, -2), squeezed(1, -3), -2)));
    b.to(1, || b.fitted(1, term(weights().mt(), squeezed(1, -3), squeezed(0, -2), -3)));
}

fn norm_back(b: &Back<'_>) {
    let p = match b.args().get(1) {
        Arg::Str(kind) if kind == "nuc" => {
            return b.to(0, || {
                let (x, dims) = (b.x(0), b.dims(2, b.x(0).rank()));
                let g = b.g().restore(&dims, b.args().flag(3), x.rank());
                b.call(&super::nuclear::POLAR, &[x.arg(), Arg::Ints(dims)]) * g
            });
        }
        Arg::Str(_) => 2.0,
        _ => b.args().float(1).unwrap_or(2.0),
    };
    b.to(0, || {
        let x = b.x(0);
        let dims = b.dims(2, x.rank());
        norm_term(b, x, &dims, p, false)
    });
}

/// The gradient of the norm of `x` over `dims`.
fn norm_term<'a>(b: &'a Back<'_>, x: Var<'a>, dims: &[i64], p: f64, is_distance: bool) -> Var<'a> {
    let (rank, keep) = (x.rank(), !is_distance && b.args().flag(3));
    let x = if x.dtype().is_complex() { x } else { x.to(b.g().dtype()) };
    let (g, norm) = (b.g().restore(dims, keep, rank), b.y().restore(dims, keep, rank));
    let size = x.unary("abs");
    // Derivatives of quotients and powers at 0 are infinite or nan, also where they are not used.
    let (norm_or_one, size_or_one) = match is_distance {
        true => (b.select(&norm.eq(0.0), 1.0, &norm), b.select(&size.eq(0.0), 1.0, &size)),
        false => (norm.clone(), size.clone()),
    };
    let sign = || match x.dtype().is_complex() {
        true => b.select(&size.eq(0.0), 0.0, &x / &size),
        false => x.unary("sign"),
    };
    if p == 0.0 {
        return x.zeros_like();
    }
    if p == 1.0 {
        return g * sign();
    }
    if p == 2.0 && is_distance {
        // A distance of 0 passes no gradient, even an infinite one.
        return b.select(&norm.eq(0.0), 0.0, g) * (&x / &norm_or_one);
    }
    if p == 2.0 {
        return g * b.select(&norm.eq(0.0), 0.0, &x / &norm_or_one);
    }
    if p.is_infinite() {
        let met = size.eq(&norm).call("logical_or", &[size.unary("isnan").arg()]);
        if is_distance {
            return sign() * b.select(&met, g, 0.0);
        }
        let count = if rank == 0 { met.call("to", &[Arg::Dtype(g.dtype())]) } else { met.sum(dims, true) };
        return sign() * b.select(&met, g / count, 0.0);
    }
    let is_zero = norm.eq(0.0);
    // Each factor is chosen, not their product: the gradient of the product by `g` would be nan where the norm is 0.
    let scale = b.select(&is_zero, 0.0, g) * b.select(&is_zero, 0.0, norm_or_one.pow(1.0 - p));
    if p < 1.0 || is_distance {
        return sign() * b.select(&size.eq(0.0), 0.0, size_or_one.pow(p - 1.0)) * scale;
    }
    if p < 2.0 {
        return sign() * size.pow(p - 1.0) * scale;
    }
    x * size.pow(p - 2.0) * scale
}
