//! Draws from more distributions, in place, computed from exponential, normal and uniform numbers.

use super::draws::{EXPONENTIAL, EXPONENTIAL_WIDE, UNIFORM_WIDE};
use super::{SPREAD, draw, drawn, float_target, normals};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::ops::composed::{call, t};
use crate::ops::params::{GENERATOR, X};
use crate::ops::signature::{Default, Kind, Param};
use crate::ops::{Arg, Args, Form, Gradient, Op, Out, Run, error};
use crate::plan::{MapArg, Runtime};

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "geometric_",
        doc: "Sets the elements to numbers of attempts up to the first success, each of which has probability `p`: 1, \
              2, ..; numbers above the maximum of the dtype become the maximum. Source: `torch.Tensor.geometric_`.",
        search: &["random", "in place", "attempts", "waiting time"],
        params: &[X, Param::new("p", Kind::Float), GENERATOR],
        form: Form::METHOD,
        example: "let x = zeros(100, dtype=i32).geometric_(0.5)\nassert((x >= 1).all().item())",
        run: Run::Primitive(geometric),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
    Op {
        name: "log_normal_",
        doc: "Sets the elements to numbers whose logarithms have the normal distribution with this mean and deviation. \
              Source: `torch.Tensor.log_normal_`.",
        search: &["random", "in place", "gaussian"],
        params: &[
            X,
            Param::or("mean", Kind::Float, Default::Float(1.0)),
            Param::or("std", Kind::Float, Default::Float(2.0)),
            GENERATOR,
        ],
        form: Form::METHOD,
        example: "let x = zeros(100).log_normal_(0, 0.5)\nassert((x > 0).all().item())",
        run: Run::Primitive(log_normal),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
    Op {
        name: "cauchy_",
        doc: "Sets the elements to numbers drawn from the Cauchy distribution. Source: `torch.Tensor.cauchy_`.",
        search: &["random", "in place", "lorentz"],
        params: &[
            X,
            Param::or("median", Kind::Float, Default::Float(0.0)),
            Param::or("sigma", Kind::Float, Default::Float(1.0)),
            GENERATOR,
        ],
        form: Form::METHOD,
        example: "let x = zeros(100).cauchy_(5, 0.01)\nassert((x.median() - 5).abs().item() < 0.1)",
        run: Run::Primitive(cauchy),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
];

fn number(value: f64) -> MapArg<'static> {
    MapArg::Number(Scalar::Float(value))
}

/// The argument `index`, which must be above 0.
fn above_zero(args: &Args<'_>, index: usize, name: &str) -> Result<f64> {
    let value = args.float(index)?;
    match value > 0.0 {
        true => Ok(value),
        false => Err(error::bad_value(
            index,
            format!("`{name}` is `{value:?}`"),
            "write a number above 0".to_string(),
        )),
    }
}

fn geometric(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "geometric_";
    let (target, p) = (args.tensor(0)?, args.float(1)?);
    let dtype = target.dtype();
    if dtype == Dtype::Bool || dtype.is_complex() {
        return Err(error::not_for_dtype(NAME, dtype, &[MapArg::Tensor(target)]));
    }
    if p.is_nan() || p <= 0.0 || p >= 1.0 {
        let message = format!("`{p:?}` is not a probability between 0 and 1");
        return Err(error::bad_value(1, message, "write a number above 0 and below 1"));
    }
    // Numbers of these dtypes may need more digits than f32 has.
    let wide = matches!(dtype, Dtype::F64 | Dtype::I32 | Dtype::I64);
    let (f, of) = if wide { (&EXPONENTIAL_WIDE, Dtype::F64) } else { (&EXPONENTIAL, Dtype::F32) };
    let state = draw(rt, target.device(), args.generator(2))?;
    let [seed, offset] = state.operands();
    let times = drawn(rt, NAME, f, &[MapArg::Position, seed, offset], of, target)?;
    let attempts = call(rt, "div", &[t(&times), Arg::Float(-libm::log1p(-p))])?;
    let whole = call(rt, "ceil", &[t(&attempts)])?;
    let most = dtype.range().map_or(dtype.greatest(), |(_, most)| most as f64);
    let bounded = call(rt, "clamp", &[t(&whole), Arg::Float(1.0), Arg::Float(most)])?;
    rt.assign(NAME, target, &bounded)?;
    Ok(Out::Tensor(target.clone()))
}

fn log_normal(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "log_normal_";
    let target = float_target(args, NAME)?;
    let (mean, std) = (args.float(1)?, above_zero(args, 2, "std")?);
    let numbers = normals(rt, NAME, target, args.generator(3))?;
    let dtype = numbers.dtype();
    let operands = [MapArg::Tensor(&numbers), number(std), number(mean)];
    let logarithms = rt.map(NAME, &SPREAD, &operands, dtype, dtype)?;
    let drawn = call(rt, "exp", &[t(&logarithms)])?;
    rt.assign(NAME, target, &drawn)?;
    Ok(Out::Tensor(target.clone()))
}

fn cauchy(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "cauchy_";
    let target = float_target(args, NAME)?;
    let (median, sigma) = (args.float(1)?, above_zero(args, 2, "sigma")?);
    let state = draw(rt, target.device(), args.generator(3))?;
    let [seed, offset] = state.operands();
    // Computed in f64, so that the tails have enough digits.
    let numbers = drawn(rt, NAME, &UNIFORM_WIDE, &[MapArg::Position, seed, offset], Dtype::F64, target)?;
    let pi = std::f64::consts::PI;
    let operands = [MapArg::Tensor(&numbers), number(pi), number(-pi / 2.0)];
    let angles = rt.map(NAME, &SPREAD, &operands, Dtype::F64, Dtype::F64)?;
    let tangents = call(rt, "tan", &[t(&angles)])?;
    let operands = [MapArg::Tensor(&tangents), number(sigma), number(median)];
    let drawn = rt.map(NAME, &SPREAD, &operands, Dtype::F64, Dtype::F64)?;
    rt.assign(NAME, target, &drawn)?;
    Ok(Out::Tensor(target.clone()))
}
