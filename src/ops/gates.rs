//! Activations composed of other operations: gates, thresholds, and random ones.
//!
//! Halves compute in `f32` and are rounded once.

use super::composed::{call, t};
use super::dims;
use super::formula::formula;
use super::params::{GENERATOR, UNARY, X};
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, error, known};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

const LAMBD: Param = Param::or("lambd", Kind::Float, Default::Float(0.5));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "softmin",
        doc: "Returns `softmax(-x, dim)`. Source: `torch.nn.functional.softmin`.",
        search: &["probabilities", "classes"],
        params: &[X, Param::new("dim", Kind::Int), Param::or("dtype", Kind::Dtype, Default::None)],
        form: Form::BOTH,
        example: "assert(equal(softmin([0.0, 1000.0], dim=0), [1.0, 0.0]))",
        run: Run::Composed(|rt, args| {
            let negative = call(rt, "neg", &[t(args.tensor(0)?)])?;
            call(rt, "softmax", &[t(&negative), args.get(1).clone(), args.get(2).clone()]).map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "threshold",
        doc: "Returns `x` where it is above `threshold`, else `value`; nan stays nan. Source: \
              `torch.nn.functional.threshold`.",
        search: &["cut", "step", "activation"],
        params: &[X, Param::new("threshold", Kind::Number), Param::new("value", Kind::Number)],
        form: Form::BOTH,
        example: "assert(equal(threshold([0.0, 1.0, 2.0], 1, 9), [9.0, 9.0, 2.0]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            error::refuse_bool("threshold", 0, x)?;
            let (limit, value) = (args.number(1)?, args.number(2)?);
            crate::plan::error::check_number(2, value, x.dtype())?;
            let value = if x.dtype().is_int() { Scalar::Int(value.as_f64() as i64) } else { value };
            let out = formula(rt, |f| {
                let x = f.var(x);
                f.select(&x.le(limit), value, &x)
            });
            out.map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "hardshrink",
        doc: "Sets elements from `-lambd` to `lambd` to 0; nan stays nan. Source: \
              `torch.nn.functional.hardshrink`.",
        search: &["cut", "sparse", "activation"],
        params: &[X, LAMBD],
        form: Form::BOTH,
        example: "assert(equal(hardshrink([-0.5, 0.25, 2.0]), [0.0, 0.0, 2.0]))",
        run: Run::Composed(|rt, args| {
            let (x, limit) = (floats(args, "hardshrink")?, args.float(1)?);
            let out = formula(rt, |f| {
                let x = f.var(x);
                f.select(&x.unary("abs").le(limit), 0.0, &x)
            });
            out.map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "softshrink",
        doc: "Moves each element toward 0 by `lambd`; elements nearer to 0 become 0; nan stays nan. Source: \
              `torch.nn.functional.softshrink`.",
        search: &["soft threshold", "sparse", "lasso", "activation"],
        params: &[X, LAMBD],
        form: Form::BOTH,
        example: "assert(equal(softshrink([-1.0, 0.25, 2.0]), [-0.5, 0.0, 1.5]))",
        run: Run::Composed(softshrink),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "tanhshrink",
        doc: "Returns `x - tanh(x)`. Source: `torch.nn.functional.tanhshrink`.",
        search: &["activation"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(tanhshrink([0.0]), [0.0]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            let out = formula(rt, |f| {
                let wide = f.var(x).to(x.dtype().accumulator());
                let out = &wide - wide.unary("tanh");
                if x.dtype().is_half() { out.to(x.dtype()) } else { out }
            });
            out.map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "celu",
        doc: "Returns `x` where it is positive, else `alpha * (exp(x / alpha) - 1)`. Source: \
              `torch.nn.functional.celu`.",
        search: &["exponential linear unit", "activation"],
        params: &[X, Param::or("alpha", Kind::Float, Default::Float(1.0))],
        form: Form::ALL,
        example: "assert(equal(celu([-inf, 2.0], 0.5), [-0.5, 2.0]))",
        run: Run::Composed(|rt, args| {
            let (x, alpha) = (floats(args, "celu")?, args.float(1)?);
            if alpha == 0.0 {
                return Err(error::bad_value(1, "`alpha` is 0", "write another number"));
            }
            let dtype = x.dtype();
            let out = formula(rt, |f| {
                let x = f.var(x).to(dtype.accumulator());
                // The branch that is not chosen must not overflow, or its gradient would be nan.
                // At 0 the second derivative is 0, as in PyTorch.
                let low = f.select(&x.lt(0.0), &x, 0.0);
                let below = (low / alpha).unary("expm1") * alpha;
                f.select(&x.lt(0.0), below, &x).to(dtype)
            });
            out.map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "prelu",
        doc: "Returns `x` where it is positive, else `weight * x`; `weight` has one element, or one per channel, \
              dimension 1. Source: `torch.nn.functional.prelu`.",
        search: &["rectifier", "parametric", "learned slope", "activation"],
        params: &[X, Param::new("weight", Kind::Tensor)],
        form: Form::BOTH,
        example: "assert(equal(prelu([[-2.0, -2.0]], [0.5, 0.25]), [[-1.0, -0.5]]))",
        run: Run::Composed(prelu),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "rrelu",
        doc: "Returns `x` where it is positive, else `x` times a slope: with `training`, one drawn from `lower` .. \
              `upper` for each element, else their mean. Source: `torch.nn.functional.rrelu`.",
        search: &["rectifier", "random", "activation"],
        params: &[
            X,
            Param::or("lower", Kind::Float, Default::Float(1.0 / 8.0)),
            Param::or("upper", Kind::Float, Default::Float(1.0 / 3.0)),
            Param::or("training", Kind::Bool, Default::Bool(false)),
            GENERATOR,
        ],
        form: Form::BOTH,
        example: "assert(equal(rrelu([-2.0, 1.0], 0.25, 0.75), [-1.0, 1.0]))\n\
                  let y = rrelu(-ones(100), 0.25, 0.75, training=true)\n\
                  assert(((y <= -0.25) & (y >= -0.75)).all())",
        run: Run::Composed(rrelu),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "glu",
        doc: "Splits `dim` into two halves and returns the first times the sigmoid of the second. Source: \
              `torch.nn.functional.glu`.",
        search: &["gated linear unit", "activation"],
        params: &[X, Param::or("dim", Kind::Int, Default::Int(-1))],
        form: Form::BOTH,
        example: "assert(equal(glu([3.0, 4.0, 1000.0, 0.0]), [3.0, 2.0]))",
        run: Run::Composed(glu),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "gumbel_softmax",
        doc: "Draws from the distribution with these `logits` along `dim`, in a differentiable way: \
              `softmax((logits + g) / tau)` with noise `g` of a Gumbel distribution. With `hard`, the result is \
              one-hot and has the gradient of the soft result. `eps` has no effect. Source: \
              `torch.nn.functional.gumbel_softmax`.",
        search: &["categorical", "sample", "straight through", "random"],
        params: &[
            Param::new("logits", Kind::Tensor),
            Param::or("tau", Kind::Float, Default::Float(1.0)),
            Param::or("hard", Kind::Bool, Default::Bool(false)),
            Param::or("eps", Kind::Float, Default::Float(1e-10)),
            Param::or("dim", Kind::Int, Default::Int(-1)),
            GENERATOR,
        ],
        form: Form::BOTH,
        example: "assert(allclose(gumbel_softmax(zeros(4, 3)).sum(-1), ones(4)))",
        run: Run::Composed(gumbel_softmax),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

/// The first argument, which holds real floats.
pub(super) fn floats<'a>(args: &Args<'a>, name: &str) -> Result<&'a Tensor> {
    let x = args.tensor(0)?;
    if x.dtype().is_float() { Ok(x) } else { Err(error::floats_alone(name, 0, x)) }
}

fn softshrink(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, limit) = (floats(args, "softshrink")?, args.float(1)?);
    if limit < 0.0 || limit.is_nan() {
        return Err(error::bad_value(1, format!("`lambd` is {limit}"), "write 0 or more"));
    }
    // Rounded to the dtype, as in comparisons.
    let limit = Scalar::Float(limit).rounded(x.dtype()).as_f64();
    let out = formula(rt, |f| {
        let x = f.var(x);
        // A zero with the sign of `x`, and nan as it is.
        let near = f.select(&x.eq(&x), x.unary("detach") * 0.0, &x);
        let low = f.select(&x.lt(-limit), &x + limit, near);
        f.select(&x.gt(limit), &x - limit, low)
    });
    out.map(Out::Tensor)
}

fn prelu(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, weight) = (floats(args, "prelu")?, args.tensor(1)?);
    let channels = if x.rank() < 2 { 1 } else { x.shape()[1] };
    if weight.count() != 1 && (weight.rank() != 1 || weight.count() != channels) {
        let message = format!("{} slopes for {channels} channels", weight.count());
        return Err(error::bad_value(1, message, "give one slope, or one per channel, which is dimension 1"));
    }
    let mut across = vec![1; x.rank()];
    if weight.count() != 1 {
        across[1] = -1;
    }
    let out = formula(rt, |f| {
        let (x, weight) = (f.var(x), f.var(weight).reshape(&across));
        f.select(&x.gt(0.0), &x, &x * weight)
    });
    out.map(Out::Tensor)
}

fn rrelu(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, lower, upper) = (floats(args, "rrelu")?, args.float(1)?, args.float(2)?);
    if lower > upper {
        let message = format!("`lower` is {lower}, above {upper}");
        return Err(error::bad_value(1, message, "write the smaller number first"));
    }
    if !args.flag(3) {
        return call(rt, "leaky_relu", &[t(x), Arg::Float((lower + upper) / 2.0)]).map(Out::Tensor);
    }
    let slope = uniform(rt, x, x.shape(), args.get(4))?;
    let out = formula(rt, |f| {
        let (x, slope) = (f.var(x), f.var(&slope) * (upper - lower) + lower);
        f.select(&x.gt(0.0), &x, &x * slope.to(x.dtype()))
    });
    out.map(Out::Tensor)
}

fn glu(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = floats(args, "glu")?;
    if x.rank() == 0 {
        return Err(error::wrong_rank("glu", 0, x, "a dimension", "give a tensor of one dimension or more"));
    }
    let dim = dims::one(1, args.int(1)?, x.rank())?;
    let (whole, dtype) = (x.shape()[dim], x.dtype());
    if !whole.is_multiple_of(2) {
        let message = format!("dimension {dim} has size {whole}, which is odd");
        return Err(error::bad_value(0, message, "give a dimension of even size"));
    }
    let (dim, half) = (dim as i64, (whole / 2) as i64);
    let out = formula(rt, |f| {
        let x = f.var(x).to(dtype.accumulator());
        (x.narrow(dim, 0, half) * x.narrow(dim, half, half).unary("sigmoid")).to(dtype)
    });
    out.map(Out::Tensor)
}

fn gumbel_softmax(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (logits, tau, hard) = (floats(args, "gumbel_softmax")?, args.float(1)?, args.flag(2));
    let (dim, dtype) = (args.get(4).clone(), logits.dtype());
    let like = [t(logits), Arg::Dtype(dtype.accumulator())];
    let noise = call(rt, "empty_like", &like)?;
    call(rt, "exponential_", &[t(&noise), Arg::Float(1.0), args.get(5).clone()])?;
    let out = formula(rt, |f| {
        let drawn = (f.var(logits) - f.var(&noise).unary("log")) / tau;
        let soft = drawn.call("softmax", std::slice::from_ref(&dim));
        if !hard {
            return soft.to(dtype);
        }
        let chosen = soft.call("argmax", &[dim.clone(), Arg::Bool(true)]);
        let one_hot = soft.zeros_like().call("scatter", &[dim.clone(), chosen.arg(), Arg::Float(1.0)]);
        ((one_hot - soft.unary("detach")) + soft).to(dtype)
    });
    out.map(Out::Tensor)
}

/// Numbers from 0 .. 1 on the device of `x`: `f32`, and `f64` for `f64`.
pub(super) fn uniform(rt: &mut Runtime, x: &Tensor, shape: &[usize], generator: &Arg) -> Result<Tensor> {
    let shape = Arg::Ints(shape.iter().map(|&n| n as i64).collect());
    let dtype = if x.dtype() == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    call(
        rt,
        "rand",
        &[shape, Arg::Dtype(dtype), Arg::Device(x.device()), Arg::Bool(false), generator.clone()],
    )
}
