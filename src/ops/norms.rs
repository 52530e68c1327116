//! Norms over channels, dimension 1: by batch, group and sample.
//!
//! The norm itself is one operation with its own gradient, which keeps only the operand; weights are composed.
//! Halves compute in `f32` and are rounded once.

use super::composed::{call, ints, reshape, t, to};
use super::formula::{formula, several};
use super::gates::floats;
use super::gradient::back::Back;
use super::gradient::record::unrecorded;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{
    Arg, Args, Call, Form, Gradient, Keeps, Op, Out, Run, activation, apply, dims, error, known, table,
};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;

const EPS: Param = Param::or("eps", Kind::Float, Default::Float(1e-5));
const MOMENTUM: Param = Param::or("momentum", Kind::TensorOrNumber, Default::Float(0.1));

const fn optional(name: &'static str) -> Param {
    Param::or(name, Kind::Tensor, Default::None)
}

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "batch_norm",
        doc: "Shifts and scales each channel, dimension 1, to mean 0 and variance 1, then multiplies by `weight` and \
              adds `bias` where they are given. With `training`, mean and variance are those of the batch, and \
              `running_mean` and `running_var` move toward them in place by the fraction `momentum`; otherwise the \
              running statistics are used. Source: `torch.nn.functional.batch_norm`.",
        search: &["normalise", "batch normalization", "channels"],
        params: &[
            X,
            optional("running_mean"),
            optional("running_var"),
            optional("weight"),
            optional("bias"),
            Param::or("training", Kind::Bool, Default::Bool(false)),
            MOMENTUM,
            EPS,
        ],
        form: Form::BOTH,
        example: "let (mean, spread) = (zeros(1), ones(1))\n\
                  let y = batch_norm([[1.0], [3.0]], mean, spread, training=true, eps=0)\n\
                  assert(allclose(y, [[-1.0], [1.0]]) and allclose(mean, [0.2]) and allclose(spread, [1.1]))",
        run: Run::Composed(batch_norm),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "group_norm",
        doc: "Shifts and scales groups of channels, dimension 1, of each sample to mean 0 and variance 1, then \
              multiplies by `weight` and adds `bias`, which have an element per channel. Source: \
              `torch.nn.functional.group_norm`.",
        search: &["normalise", "group normalization", "channels"],
        params: &[X, Param::new("num_groups", Kind::Int), optional("weight"), optional("bias"), EPS],
        form: Form::BOTH,
        example: "assert(allclose(group_norm([[1.0, 3.0, 5.0, 5.0]], 2, eps=1e-9), [[-1.0, 1.0, 0.0, 0.0]]))",
        run: Run::Composed(group_norm),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "instance_norm",
        doc: "Shifts and scales each channel of each sample of `(n, c, ...)` to mean 0 and variance 1, then \
              multiplies by `weight` and adds `bias`. `running_mean` and `running_var`, where given, move toward \
              the means over samples; without `use_input_stats` they are used instead. Source: \
              `torch.nn.functional.instance_norm`.",
        search: &["normalise", "instance normalization", "style"],
        params: &[
            X,
            optional("running_mean"),
            optional("running_var"),
            optional("weight"),
            optional("bias"),
            Param::or("use_input_stats", Kind::Bool, Default::Bool(true)),
            MOMENTUM,
            EPS,
        ],
        form: Form::BOTH,
        example: "assert(allclose(instance_norm([[[1.0, 3.0]]], eps=1e-9), [[[-1.0, 1.0]]]))",
        run: Run::Composed(instance_norm),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

/// The norm without weights, with its statistics: `(y, mean, variance)` in the wider dtype.
const STANDARDISED: Op = Op {
    name: "batch_norm",
    params: &[X, Param::new("dims", Kind::Dims), EPS],
    run: Run::Primitive(standardised),
    gradient: Gradient::Rule(Keeps::X, standardised_back),
    ..Op::BASE
};
static BATCH: Op = STANDARDISED;
static GROUP: Op = Op { name: "group_norm", ..STANDARDISED };
static INSTANCE: Op = Op { name: "instance_norm", ..STANDARDISED };

fn standardised(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "standardise";
    let x = args.tensor(0)?;
    let dims = dims::many(1, args.ints(1), x.rank())?;
    let wide = x.dtype().accumulator();
    let (mean, variance) = activation::mean_and_variance(rt, NAME, x, &dims, wide)?;
    let eps = MapArg::Number(Scalar::Float(args.float(2)?));
    let operands = [MapArg::Tensor(x), MapArg::Tensor(&mean), MapArg::Tensor(&variance), eps];
    let y = rt.map(NAME, &activation::STANDARDISE, &operands, wide, wide)?;
    Ok(Out::Tuple(vec![y, mean, variance]))
}

fn standardised_back(b: &Back<'_>) {
    b.to(0, || {
        let dims = b.args().ints(1).unwrap_or(&[]).to_vec();
        activation::standardised_gradient(b.g(), &b.x(0).to(b.g().dtype()), &dims, b.arg(2))
    });
}

/// Checks that parameters have the extents of the normalised dimensions: others would broadcast.
pub(super) fn of_shape(args: &Args<'_>, parameters: &[usize], wanted: &[usize]) -> Result<()> {
    for &i in parameters {
        if let Some(x) = args.opt_tensor(i).filter(|x| x.shape().as_slice() != wanted) {
            let message =
                format!("the shape {:?} for elements of the shape {wanted:?}", x.shape().as_slice());
            return Err(error::bad_value(i, message, "give an element for each of the normalised ones"));
        }
    }
    Ok(())
}

/// Checks that parameters have an element per channel.
fn per_channel(args: &Args<'_>, parameters: &[usize], channels: usize) -> Result<()> {
    for &i in parameters {
        if let Some(x) = args.opt_tensor(i).filter(|x| x.shape().as_slice() != [channels]) {
            let message = format!("{} elements for {channels} channels", x.count());
            return Err(error::bad_value(
                i,
                message,
                "give a vector with an element per channel, dimension 1",
            ));
        }
    }
    Ok(())
}

/// The operand of a norm over channels, which are dimension 1.
fn with_channels<'a>(args: &Args<'a>, name: &str) -> Result<(&'a Tensor, usize)> {
    let x = floats(args, name)?;
    match x.shape().get(1) {
        Some(&channels) => Ok((x, channels)),
        None => Err(error::wrong_rank(name, 0, x, "samples and channels", "give `(n, c)` or `(n, c, ...)`")),
    }
}

/// `y * weight + bias` with an element per channel, rounded to a dtype.
fn affine(
    rt: &mut Runtime,
    y: &Tensor,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    dtype: Dtype,
) -> Result<Out> {
    let mut across = vec![1; y.rank()];
    across[1] = -1;
    let out = formula(rt, |f| {
        let mut y = f.var(y);
        if let Some(weight) = weight {
            y = y * f.var(weight).reshape(&across);
        }
        if let Some(bias) = bias {
            y = y + f.var(bias).reshape(&across);
        }
        y.to(dtype)
    });
    out.map(Out::Tensor)
}

/// Moves the running statistics of `batch_norm` and `instance_norm` toward the mean and the variance of `count`
/// elements each; toward the means over samples if each sample has its own statistics.
fn move_running(
    rt: &mut Runtime,
    args: &Args<'_>,
    (mean, variance): (&Tensor, &Tensor),
    count: usize,
) -> Result<()> {
    if mean.count() == 0 || count == 0 {
        return Ok(());
    }
    unrecorded(rt, |rt| -> Result<()> {
        if let Some(running) = args.opt_tensor(1) {
            move_toward(rt, running, mean, args.get(6))?;
        }
        if let Some(running) = args.opt_tensor(2) {
            // Bessel's correction.
            let factor = count as f64 / count.saturating_sub(1).max(1) as f64;
            let variance = call(rt, "mul", &[t(variance), Arg::Float(factor)])?;
            move_toward(rt, running, &variance, args.get(6))?;
        }
        Ok(())
    })
}

fn move_toward(rt: &mut Runtime, running: &Tensor, found: &Tensor, momentum: &Arg) -> Result<()> {
    let found = match found.shape()[0] {
        1 => found.clone(),
        _ => call(rt, "mean", &[t(found), Arg::Int(0), Arg::Bool(true)])?,
    };
    let found = reshape(rt, &found, running.shape())?;
    let found = to(rt, &found, running.dtype())?;
    let op = table::find("lerp").ok_or_else(|| error::wrong_argument(0, "an operation"))?;
    apply(rt, op, Call::InPlace(Args(&[t(running), t(&found), momentum.clone()]))).map(drop)
}

/// The norm with running statistics.
fn by_running(rt: &mut Runtime, args: &Args<'_>, x: &Tensor, name: &str) -> Result<Tensor> {
    let (Some(mean), Some(variance)) = (args.opt_tensor(1), args.opt_tensor(2)) else {
        let missing = if args.opt_tensor(1).is_none() { 1 } else { 2 };
        let message = format!("`{name}` needs running statistics, or those of the batch");
        return Err(error::bad_value(missing, message, "give `running_mean` and `running_var`"));
    };
    let mut across = vec![1; x.rank()];
    across[1] = -1;
    let dtype = x.dtype().accumulator();
    formula(rt, |f| {
        let (mean, variance) = (f.var(mean).reshape(&across), f.var(variance).reshape(&across));
        (f.var(x).to(dtype) - mean) * (variance.to(dtype) + args.get(7).clone()).unary("rsqrt")
    })
}

fn batch_norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "batch_norm";
    let (x, channels) = with_channels(args, NAME)?;
    per_channel(args, &[1, 2, 3, 4], channels)?;
    let y = if args.flag(5) {
        let count = x.count() / channels.max(1);
        if count == 1 {
            let help = "give more samples, or write `training=false`";
            return Err(error::bad_value(0, "each channel has one element, whose variance is 0", help));
        }
        let over: Vec<usize> = (0..x.rank()).filter(|&dim| dim != 1).collect();
        let all = several(rt, &BATCH, &[t(x), ints(&over), args.get(7).clone()])?;
        move_running(rt, args, (&all[1], &all[2]), count)?;
        all[0].clone()
    } else {
        by_running(rt, args, x, NAME)?
    };
    affine(rt, &y, (args.opt_tensor(3), args.opt_tensor(4)), x.dtype())
}

fn group_norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, channels) = with_channels(args, "group_norm")?;
    per_channel(args, &[2, 3], channels)?;
    let groups = usize::try_from(args.int(1)?).ok().filter(|&n| n > 0 && channels.is_multiple_of(n));
    let Some(groups) = groups else {
        let message = format!("{channels} channels do not form {} equal groups", args.int(1)?);
        return Err(error::bad_value(1, message, "write a number that divides the channels"));
    };
    let (shape, samples) = (x.shape().clone(), x.shape()[0]);
    let each = shape[1..].iter().product::<usize>() / groups;
    if each == 0 {
        return Err(error::bad_value(0, "a group has no elements", "give channels and places with elements"));
    }
    let rows = reshape(rt, x, &[samples, groups, each])?;
    let all = several(rt, &GROUP, &[t(&rows), Arg::Ints(vec![2]), args.get(4).clone()])?;
    let y = reshape(rt, &all[0], &shape)?;
    affine(rt, &y, (args.opt_tensor(2), args.opt_tensor(3)), x.dtype())
}

fn instance_norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "instance_norm";
    let (x, channels) = with_channels(args, NAME)?;
    per_channel(args, &[1, 2, 3, 4], channels)?;
    let y = if args.flag(5) {
        let count: usize = x.shape()[2..].iter().product();
        if count == 1 {
            let help = "give `(n, c, ...)` with more elements per channel";
            return Err(error::bad_value(0, "each channel has one element, whose variance is 0", help));
        }
        let over: Vec<usize> = (2..x.rank()).collect();
        let all = several(rt, &INSTANCE, &[t(x), ints(&over), args.get(7).clone()])?;
        move_running(rt, args, (&all[1], &all[2]), count)?;
        all[0].clone()
    } else {
        by_running(rt, args, x, NAME)?
    };
    affine(rt, &y, (args.opt_tensor(3), args.opt_tensor(4)), x.dtype())
}
