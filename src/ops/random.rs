//! Random numbers.
//!
//! An element's value is a function of the generator's seed, the generator's offset at the draw, and the
//! element's row-major position. Draws are therefore bit-identical on every backend. Each draw advances the
//! generator by [`STEP`]. A draw uses the generator of its device unless `generator` is given.

use super::composed::{call, t};
use super::factory::{PIN_MEMORY, TensorOptions, allocate, allocate_as};
use super::folds::{ALL, SUM};
use super::known;
use super::params::{DEVICE, DTYPE, GENERATOR, REQUIRES_GRAD, X};
use super::signature::{Default, Kind, Param};
use super::{
    Arg, Args, Form, Gradient, Op, Out, Run, arith, assertion, complex, error, scan, search, shape, sort,
};
use crate::array::{Dims, Dtype, Scalar, broadcast};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::host::define::{host_compare, host_ternary, host_test};
use crate::kernel::{CudaText, MapFn};
use crate::plan::{Drawn, Elementwise, MapArg, Reduction, Runtime};
use crate::tensor::Tensor;

pub(super) mod bounds;
mod draws;
pub(super) mod laws;

use bounds::Whole;
use draws::{BELOW, EXPONENTIAL, EXPONENTIAL_WIDE, NORMAL, NORMAL_WIDE, UNIFORM, UNIFORM_WIDE};

/// The offset by which a draw advances its generator; offsets stay multiples of 4.
pub const STEP: u64 = 4;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "rand",
        doc: "Draws uniformly from 0 .. 1, excluding 1 (`f32` unless `dtype` is given; of complex numbers both parts). \
              Source: `torch.rand`.",
        search: &["random", "uniform"],
        params: SIZED,
        form: Form::FUNCTION,
        example: "let x = rand(100)\nassert((x >= 0).all().item())\nassert((x < 1).all().item())",
        run: Run::Primitive(|rt, args| {
            let target = sized(rt, args)?;
            uniform_into(rt, "rand", &target, args.generator(4))
        }),
        shape: known::SIZED,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "randn",
        doc: "Draws from the normal distribution with mean 0 and deviation 1 (`f32` unless `dtype` is given; of \
              complex numbers each part has half of the variance). Source: `torch.randn`.",
        search: &["random", "normal", "gaussian"],
        params: SIZED,
        form: Form::FUNCTION,
        example: "assert(randn(2, 3).shape == (2, 3))",
        run: Run::Primitive(|rt, args| {
            let target = sized(rt, args)?;
            normal_into(rt, "randn", &target, args.generator(4))
        }),
        shape: known::SIZED,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "randint",
        doc: "Draws integers uniformly from `low` .. `high`, excluding `high`: `randint(high, size)` or `randint(low, \
              high, size)` (`i64` unless `dtype` is given). Source: `torch.randint`.",
        search: &["random", "integers", "dice"],
        params: &[
            Param::new("low", Kind::Int),
            Param::new("high", Kind::Shape),
            Param::or("size", Kind::Shape, Default::None),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            GENERATOR,
        ],
        form: Form::FUNCTION,
        example: "let x = randint(1, 7, [100])\nassert((x >= 1).all().item())\nassert((x <= 6).all().item())",
        run: Run::Primitive(randint),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "randperm",
        doc: "Returns the numbers from 0 to `n - 1` in random order (`i64` unless `dtype` is given). Source: \
              `torch.randperm`.",
        search: &["random", "permutation", "shuffle"],
        params: &[Param::new("n", Kind::Int), DTYPE, DEVICE, PIN_MEMORY, GENERATOR],
        form: Form::FUNCTION,
        example: "assert(equal(randperm(10).sort().values, arange(10)))",
        run: Run::Primitive(randperm),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "normal",
        doc: "Draws from normal distributions: `mean` and `std` are tensors that broadcast, or numbers with a `size`. \
              Source: `torch.normal`.",
        search: &["random", "gaussian"],
        params: &[
            Param::or("mean", Kind::TensorOrNumber, Default::Float(0.0)),
            Param::or("std", Kind::TensorOrNumber, Default::Float(1.0)),
            Param::or("size", Kind::Shape, Default::None),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            GENERATOR,
            REQUIRES_GRAD,
        ],
        form: Form::FUNCTION,
        example: "assert(equal(normal(5.0, 0.0, [2]), [5.0, 5.0]))",
        run: Run::Primitive(normal),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "bernoulli",
        doc: "Draws 1 with the probability in each element, else 0; with `p`, with that probability. The result has \
              the dtype of `x`. Source: `torch.bernoulli`.",
        search: &["random", "coin", "dropout", "mask"],
        params: &[X, Param::or("p", Kind::TensorOrNumber, Default::None), GENERATOR],
        form: Form::BOTH,
        example: "assert(equal(bernoulli([0.0, 1.0]), [0.0, 1.0]))",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            let given = args.is_given(1);
            if !given && !x.dtype().is_float() {
                return Err(error::floats_alone("bernoulli", 0, x));
            }
            let p = if given { args.operand(1)? } else { MapArg::Tensor(x) };
            let target = rt.empty(x.shape(), x.dtype(), x.device())?;
            bernoulli_into(rt, "bernoulli", &target, p, args.generator(2))
        }),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "multinomial",
        doc: "Draws positions with probabilities in proportion to the elements of a vector, or of each row of a \
              matrix: `num_samples` of each, independent with `replacement`, else all different. Elements are 0 or \
              more, and not all 0. Source: `torch.multinomial`.",
        search: &["random", "sample", "choice", "categorical", "weights"],
        params: &[
            Param::new("input", Kind::Tensor),
            Param::new("num_samples", Kind::Int),
            Param::or("replacement", Kind::Bool, Default::Bool(false)),
            GENERATOR,
        ],
        form: Form::BOTH,
        example: "assert(equal(multinomial([0.0, 3.0, 0.0], 1), [1]))\n\
                  assert(multinomial(ones(2, 5), 7, replacement=true).shape == (2, 7))",
        run: Run::Composed(multinomial),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "rand_like",
        doc: "Draws uniformly from 0 .. 1 with the shape, dtype and device of `x`. Source: `torch.rand_like`.",
        search: &["random", "uniform", "same shape"],
        params: LIKE,
        form: Form::FUNCTION,
        example: "assert(rand_like(zeros(3, dtype=f64)).dtype == f64)",
        run: Run::Primitive(|rt, args| {
            let target = like(rt, args, 1)?;
            uniform_into(rt, "rand_like", &target, args.generator(4))
        }),
        shape: known::SAME_SHAPE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "randn_like",
        doc: "Draws from the normal distribution with the shape, dtype and device of `x`. Source: \
              `torch.randn_like`.",
        search: &["random", "normal", "gaussian", "noise", "same shape"],
        params: LIKE,
        form: Form::FUNCTION,
        example: "assert(randn_like(zeros(3, 2)).shape == (3, 2))",
        run: Run::Primitive(|rt, args| {
            let target = like(rt, args, 1)?;
            normal_into(rt, "randn_like", &target, args.generator(4))
        }),
        shape: known::SAME_SHAPE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "randint_like",
        doc: "Draws integers from `low` .. `high`, excluding `high`, with the shape, dtype and device of `x`: \
              `randint_like(x, high)` or `randint_like(x, low, high)`. Source: `torch.randint_like`.",
        search: &["random", "integers", "same shape"],
        params: &[
            X,
            Param::new("low", Kind::Int),
            Param::or("high", Kind::Int, Default::None),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            GENERATOR,
        ],
        form: Form::FUNCTION,
        example: "assert((randint_like(zeros(9), 3) < 3).all().item())",
        run: Run::Primitive(|rt, args| {
            let first = args.int(1)?;
            let (low, high, at) = args.opt_int(2).map_or((0, first, [1, 1]), |high| (first, high, [1, 2]));
            let dtype = args.dtype(3).unwrap_or(args.tensor(0)?.dtype());
            let range = Whole::between("randint_like", dtype, low, high, at)?;
            let target = like(rt, args, 3)?;
            integers_into(rt, "randint_like", &target, range, args.generator(6))
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "uniform_",
        doc: "Sets the elements to numbers drawn uniformly from `from` .. `to`, excluding `to`; of complex numbers both \
              parts. Source: `torch.Tensor.uniform_`.",
        search: &["random", "in place", "initialise"],
        params: &[
            X,
            Param::or("from", Kind::Float, Default::Float(0.0)),
            Param::or("to", Kind::Float, Default::Float(1.0)),
            GENERATOR,
        ],
        form: Form::METHOD,
        example: "let x = zeros(100).uniform_(2, 3)\nassert((x >= 2).all().item())",
        run: Run::Primitive(uniform_in_place),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
    Op {
        name: "normal_",
        doc: "Sets the elements to numbers drawn from the normal distribution; of complex numbers each part has the \
              mean `mean` and half of the variance. Source: `torch.Tensor.normal_`.",
        search: &["random", "gaussian", "in place", "initialise"],
        params: &[
            X,
            Param::or("mean", Kind::Float, Default::Float(0.0)),
            Param::or("std", Kind::Float, Default::Float(1.0)),
            GENERATOR,
        ],
        form: Form::METHOD,
        example: "let x = zeros(2).normal_(5, 0)\nassert(equal(x, [5.0, 5.0]))",
        run: Run::Primitive(|rt, args| {
            let (target, parts) = float_parts(args, "normal_")?;
            let (mean, std) = (args.number(1)?, args.number(2)?);
            check_deviation(rt, "normal_", MapArg::Number(std))?;
            let std = match target.dtype().is_complex() {
                true => Scalar::Float(std.as_f64() * std::f64::consts::FRAC_1_SQRT_2),
                false => std,
            };
            let drawn = normals(rt, "normal_", &parts, args.generator(3))?;
            let operands = [MapArg::Tensor(&drawn), MapArg::Number(std), MapArg::Number(mean)];
            spread_into(rt, "normal_", &parts, &operands)?;
            Ok(Out::Tensor(target.clone()))
        }),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
    Op {
        name: "random_",
        doc: "Sets the elements to integers drawn from `from` .. `to`, excluding `to`; by default, from all integers \
              from 0 on that the dtype holds (for floats, up to the first gap). Source: `torch.Tensor.random_`.",
        search: &["random", "integers", "in place"],
        params: &[
            X,
            Param::or("from", Kind::Int, Default::None),
            Param::or("to", Kind::Int, Default::None),
            GENERATOR,
        ],
        form: Form::METHOD,
        example: "let x = zeros(100, dtype=u8).random_(1, 4)\nassert((x < 4).all().item())",
        run: Run::Primitive(|rt, args| {
            let target = args.tensor(0)?;
            let between = |low, high, at| Whole::between("random_", target.dtype(), low, high, at);
            let range = match (args.opt_int(1), args.opt_int(2)) {
                (None, None) => Whole::all("random_", target.dtype())?,
                (Some(high), None) => between(0, high, [1, 1])?,
                (low, Some(high)) => between(low.unwrap_or(0), high, [1, 2])?,
            };
            integers_into(rt, "random_", target, range, args.generator(3))
        }),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
    Op {
        name: "bernoulli_",
        doc: "Sets the elements to 1 with probability `p`, a number or a tensor that broadcasts, else to 0. \
              Source: `torch.Tensor.bernoulli_`.",
        search: &["random", "coin", "dropout", "mask", "in place"],
        params: &[X, Param::or("p", Kind::TensorOrNumber, Default::Float(0.5)), GENERATOR],
        form: Form::METHOD,
        example: "let x = zeros(3).bernoulli_(1)\nassert(equal(x, [1.0, 1.0, 1.0]))",
        run: Run::Primitive(|rt, args| {
            bernoulli_into(rt, "bernoulli_", args.tensor(0)?, args.operand(1)?, args.generator(2))
        }),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
    Op {
        name: "exponential_",
        doc: "Sets the elements to numbers drawn from the exponential distribution with rate `lambd`. Source: \
              `torch.Tensor.exponential_`.",
        search: &["random", "in place", "waiting time"],
        params: &[X, Param::or("lambd", Kind::Float, Default::Float(1.0)), GENERATOR],
        form: Form::METHOD,
        example: "let x = zeros(100).exponential_(2)\nassert((x >= 0).all().item())",
        run: Run::Primitive(exponential_in_place),
        gradient: Gradient::Writes(None),
        ..Op::BASE
    },
];

/// `(*size, dtype=none, device=none, pin_memory=false, generator=none, requires_grad=false)`
const SIZED: &[Param] =
    &[Param::rest("size", Kind::Shape), DTYPE, DEVICE, PIN_MEMORY, GENERATOR, REQUIRES_GRAD];

/// `(x, *, dtype=none, device=none, pin_memory=false, generator=none, requires_grad=false)`
const LIKE: &[Param] = &[X, DTYPE, DEVICE, PIN_MEMORY, GENERATOR, REQUIRES_GRAD];

/// `a * b + c`
static SPREAD: MapFn = MapFn {
    name: "spread",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "(a * b + c)", f64: "(a * b + c)", i64: "" },
    host: host_ternary!(float: |a, b, c| a * b + c),
    complex: None,
};

/// `a < b`, for a uniform number `a` and a probability `b`.
static HAPPENS: MapFn = MapFn {
    name: "happens",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(i64)(a < b)", f64: "(i64)(a < b)", i64: "" },
    host: host_compare!(float: |a, b| a < b),
    complex: None,
};

type Chosen<'a> = Option<&'a crate::tensor::Generator>;

/// Takes the seed and offset of the next draw on a device.
fn draw(rt: &mut Runtime, device: DeviceId, chosen: Chosen<'_>) -> Result<Drawn> {
    match chosen {
        Some(generator) if generator.device() != device => {
            Err(error::generator_elsewhere(generator.device(), device))
        }
        Some(generator) => rt.draw(generator, STEP),
        None => {
            let own = rt.generator(device)?;
            rt.draw(&own, STEP)
        }
    }
}

/// A pending draw with the shape and device of `target`.
fn drawn(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static MapFn,
    operands: &[MapArg<'_>],
    dtype: Dtype,
    target: &Tensor,
) -> Result<Tensor> {
    rt.map_over(
        Elementwise::new(name, f, operands, Dtype::I64, dtype),
        target.shape().clone(),
        target.device(),
    )
}

fn uniforms(rt: &mut Runtime, name: &'static str, target: &Tensor, chosen: Chosen<'_>) -> Result<Tensor> {
    let state = draw(rt, target.device(), chosen)?;
    let [seed, offset] = state.operands();
    if target.dtype() == Dtype::F64 {
        return drawn(rt, name, &UNIFORM_WIDE, &[MapArg::Position, seed, offset], Dtype::F64, target);
    }
    // Draw the number of digits that the dtype holds, so that no value rounds to 1.
    let digits = MapArg::Raw(target.dtype().digits().into(), Dtype::I64);
    drawn(rt, name, &UNIFORM, &[MapArg::Position, seed, offset, digits], Dtype::F32, target)
}

fn normals(rt: &mut Runtime, name: &'static str, target: &Tensor, chosen: Chosen<'_>) -> Result<Tensor> {
    let state = draw(rt, target.device(), chosen)?;
    let [seed, offset] = state.operands();
    let operands = [MapArg::Position, seed, offset];
    match target.dtype() {
        Dtype::F64 => drawn(rt, name, &NORMAL_WIDE, &operands, Dtype::F64, target),
        _ => drawn(rt, name, &NORMAL, &operands, Dtype::F32, target),
    }
}

fn exponentials(rt: &mut Runtime, name: &'static str, target: &Tensor, chosen: Chosen<'_>) -> Result<Tensor> {
    let state = draw(rt, target.device(), chosen)?;
    let [seed, offset] = state.operands();
    let operands = [MapArg::Position, seed, offset];
    let (f, dtype) = match target.dtype() {
        Dtype::F64 => (&EXPONENTIAL_WIDE, Dtype::F64),
        _ => (&EXPONENTIAL, Dtype::F32),
    };
    let times = drawn(rt, name, f, &operands, dtype, target)?;
    // The logarithm of a uniform number that rounds to 1 is 0, whose own logarithm and inverse are infinite. As in
    // PyTorch's kernels, it is replaced by half of a unit.
    let least = 0.5f64.powi(dtype.digits() as i32);
    call(rt, "clamp_min", &[t(&times), Arg::Float(least)])
}

fn sized(rt: &mut Runtime, args: &Args<'_>) -> Result<Tensor> {
    let (shape, options) = (args.shape(0)?, TensorOptions::of(rt, args, 1, Dtype::F32));
    match options.dtype.is_complex() {
        true => allocate(rt, &shape, options),
        false => float_tensor(rt, &shape, options, 1),
    }
}

fn like(rt: &mut Runtime, args: &Args<'_>, index: usize) -> Result<Tensor> {
    let x = args.tensor(0)?;
    allocate_as(rt, x, TensorOptions::beside(args, index, x))
}

/// A tensor to fill with floats; `index` is the dtype's argument.
fn float_tensor(rt: &mut Runtime, shape: &[usize], options: TensorOptions, index: usize) -> Result<Tensor> {
    if !options.dtype.is_float() {
        return Err(error::not_with_dtype("rand", index, options.dtype));
    }
    allocate(rt, shape, options)
}

fn float_target<'a>(args: &Args<'a>, name: &str) -> Result<&'a Tensor> {
    let target = args.tensor(0)?;
    if target.dtype().is_float() { Ok(target) } else { Err(error::floats_alone(name, 0, target)) }
}

/// A target of floats or of complex numbers, and the floats to write: the parts of complex numbers.
fn float_parts<'a>(args: &Args<'a>, name: &str) -> Result<(&'a Tensor, Tensor)> {
    let target = args.tensor(0)?;
    match target.dtype().is_complex() {
        true => Ok((target, complex::as_real(target, name)?)),
        false => float_target(args, name).map(|target| (target, target.clone())),
    }
}

/// Writes uniform numbers into a target; for a complex target, into both parts.
fn uniform_into(rt: &mut Runtime, name: &'static str, target: &Tensor, chosen: Chosen<'_>) -> Result<Out> {
    if target.dtype().is_complex() {
        uniform_into(rt, name, &complex::as_real(target, name)?, chosen)?;
        return Ok(Out::Tensor(target.clone()));
    }
    if !target.dtype().is_float() {
        return Err(error::floats_alone(name, 0, target));
    }
    let numbers = uniforms(rt, name, target, chosen)?;
    rt.assign(name, target, &numbers)?;
    Ok(Out::Tensor(target.clone()))
}

/// Writes normal numbers into a target; for a complex target, each part has half of the variance.
fn normal_into(rt: &mut Runtime, name: &'static str, target: &Tensor, chosen: Chosen<'_>) -> Result<Out> {
    if target.dtype().is_complex() {
        let parts = complex::as_real(target, name)?;
        let numbers = normals(rt, name, &parts, chosen)?;
        let number = |value| MapArg::Number(Scalar::Float(value));
        let operands = [MapArg::Tensor(&numbers), number(std::f64::consts::FRAC_1_SQRT_2), number(0.0)];
        spread_into(rt, name, &parts, &operands)?;
        return Ok(Out::Tensor(target.clone()));
    }
    if !target.dtype().is_float() {
        return Err(error::floats_alone(name, 0, target));
    }
    let numbers = normals(rt, name, target, chosen)?;
    rt.assign(name, target, &numbers)?;
    Ok(Out::Tensor(target.clone()))
}

/// Writes `a * b + c` into a target, computed in `f32` (`f64` for an `f64` target).
fn spread_into(
    rt: &mut Runtime,
    name: &'static str,
    target: &Tensor,
    operands: &[MapArg<'_>],
) -> Result<Out> {
    let dtype = if target.dtype() == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    rt.map_into(target, Elementwise::new(name, &SPREAD, operands, dtype, target.dtype()))?;
    Ok(Out::Tensor(target.clone()))
}

fn uniform_in_place(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (target, parts) = float_parts(args, "uniform_")?;
    let (from, to) = (args.float(1)?, args.float(2)?);
    let (dtype, most) = (parts.dtype(), parts.dtype().greatest());
    for (index, bound) in [(1, from), (2, to)] {
        if bound.is_nan() || bound.abs() > most {
            return Err(crate::plan::error::does_not_fit(index, Scalar::Float(bound), dtype));
        }
    }
    if from > to {
        let message = format!("there is nothing from `{from:?}` to `{to:?}`");
        return Err(error::bad_value(2, message, "write the smaller number first"));
    }
    if to - from > most {
        let message = format!("from `{from:?}` to `{to:?}` is more than {dtype} can hold");
        return Err(error::bad_value(2, message, format!("stay within a distance of {most:?}")));
    }
    let numbers = uniforms(rt, "uniform_", &parts, args.generator(3))?;
    let number = |value| MapArg::Number(Scalar::Float(value));
    let operands = [MapArg::Tensor(&numbers), number(to - from), number(from)];
    let wide = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    let spread = rt.map("uniform_", &SPREAD, &operands, wide, dtype)?;
    // The largest numbers may round to `to`. PyTorch's CUDA kernels write `from` for them too.
    let beyond = call(rt, "ge", &[t(&spread), Arg::Float(to)])?;
    let drawn = call(rt, "where", &[t(&beyond), Arg::Float(from), t(&spread)])?;
    rt.assign("uniform_", &parts, &drawn)?;
    Ok(Out::Tensor(target.clone()))
}

fn exponential_in_place(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "exponential_";
    let target = float_target(args, NAME)?;
    let rate = args.float(1)?;
    if rate.is_nan() || rate <= 0.0 {
        return Err(error::bad_value(1, format!("the rate is `{rate:?}`"), "write a rate above 0"));
    }
    let times = exponentials(rt, NAME, target, args.generator(2))?;
    let dtype = times.dtype();
    let operands = [MapArg::Tensor(&times), MapArg::Number(Scalar::Float(rate))];
    rt.map_into(target, Elementwise::new(NAME, &arith::DIV, &operands, dtype, target.dtype()))?;
    Ok(Out::Tensor(target.clone()))
}

fn bernoulli_into(
    rt: &mut Runtime,
    name: &'static str,
    target: &Tensor,
    p: MapArg<'_>,
    chosen: Chosen<'_>,
) -> Result<Out> {
    if target.dtype().is_complex() {
        return Err(error::floats_alone(name, 0, target));
    }
    let wide = match p {
        MapArg::Number(p) if !(0.0..=1.0).contains(&p.as_f64()) => {
            let message = format!("`{:?}` is not a probability", p.as_f64());
            return Err(error::bad_value(1, message, "write a number from 0 to 1"));
        }
        MapArg::Tensor(p) => {
            if !p.dtype().is_float() {
                return Err(error::floats_alone(name, 1, p));
            }
            all_hold(rt, name, &IS_PROBABILITY, p, "a probability is not a number from 0 to 1")?;
            p.dtype() == Dtype::F64
        }
        _ => false,
    };
    let state = draw(rt, target.device(), chosen)?;
    let [seed, offset] = state.operands();
    let digits = MapArg::Raw(Dtype::F32.digits().into(), Dtype::I64);
    let (numbers, dtype) = if wide {
        let operands = [MapArg::Position, seed, offset];
        (drawn(rt, name, &UNIFORM_WIDE, &operands, Dtype::F64, target)?, Dtype::F64)
    } else {
        let operands = [MapArg::Position, seed, offset, digits];
        (drawn(rt, name, &UNIFORM, &operands, Dtype::F32, target)?, Dtype::F32)
    };
    rt.map_into(
        target,
        Elementwise::new(name, &HAPPENS, &[MapArg::Tensor(&numbers), p], dtype, Dtype::Bool),
    )?;
    Ok(Out::Tensor(target.clone()))
}

fn integers_into(
    rt: &mut Runtime,
    name: &'static str,
    target: &Tensor,
    range: Whole,
    chosen: Chosen<'_>,
) -> Result<Out> {
    let state = draw(rt, target.device(), chosen)?;
    let [seed, offset] = state.operands();
    let operands = [MapArg::Position, seed, offset, MapArg::Raw(range.count, Dtype::I64)];
    let numbers = drawn(rt, name, &BELOW, &operands, Dtype::I64, target)?;
    let operands = [MapArg::Tensor(&numbers), MapArg::Number(Scalar::Int(range.low))];
    rt.map_into(target, Elementwise::new(name, &arith::ADD, &operands, Dtype::I64, Dtype::I64))?;
    Ok(Out::Tensor(target.clone()))
}

fn randint(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let first = args.int(0)?;
    let second = args.ints(1).unwrap_or(&[]);
    let (low, high, shape) = match (args.is_given(2), second) {
        (false, _) => (0, first, args.shape(1)?),
        (true, &[high]) => (first, high, args.shape(2)?),
        (true, _) => return Err(error::wrong_argument(1, "an int")),
    };
    let options = TensorOptions::of(rt, args, 3, Dtype::I64);
    let range = Whole::between("randint", options.dtype, low, high, [0, usize::from(args.is_given(2))])?;
    let target = allocate(rt, &shape, options)?;
    integers_into(rt, "randint", &target, range, args.generator(6))
}

fn randperm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "randperm";
    let shape = error::shape(0, &[args.int(0)?])?;
    let options = TensorOptions::of(rt, args, 1, Dtype::I64);
    bounds::check_permutation(NAME, options.dtype, shape[0])?;
    let target = allocate(rt, &shape, options)?;
    let state = draw(rt, options.device, args.generator(4))?;
    let [seed, offset] = state.operands();
    let operands = [MapArg::Position, seed, offset, MapArg::Raw(0, Dtype::I64)];
    // Sort random keys of 64 bits: up to 10^5 elements, the probability of equal keys is below 10^-9.
    let keys = drawn(rt, NAME, &BELOW, &operands, Dtype::I64, &target)?;
    let (_, order) = sort::sorted(rt, NAME, &keys, 0, false)?;
    if options.dtype == Dtype::I64 && !options.pinned {
        return Ok(Out::Tensor(order));
    }
    rt.assign(NAME, &target, &order)?;
    Ok(Out::Tensor(target))
}

/// 1 if an element is a probability.
static IS_PROBABILITY: MapFn = MapFn {
    name: "is_probability",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(i64)(a >= 0.0f && a <= 1.0f)", f64: "(i64)(a >= 0.0 && a <= 1.0)", i64: "" },
    host: host_test!(float: |a| (0.0..=1.0).contains(&a)),
    complex: None,
};

/// 1 if an element is at least 0.
static IS_DEVIATION: MapFn = MapFn {
    name: "is_deviation",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(i64)(a >= 0.0f)", f64: "(i64)(a >= 0.0)", i64: "(i64)(a >= 0)" },
    host: host_test!(float: |a| a >= 0.0, i64: |a| a >= 0),
    complex: None,
};

/// 1 if an element is a valid weight.
static IS_WEIGHT: MapFn = MapFn {
    name: "is_weight",
    arity: 1,
    select: false,
    cuda: CudaText {
        f32: "(i64)(a >= 0.0f && a < INFINITY)",
        f64: "(i64)(a >= 0.0 && a < (double)INFINITY)",
        i64: "",
    },
    host: host_test!(float: |a| a >= 0.0 && a.is_finite()),
    complex: None,
};

fn multinomial(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "multinomial";
    let given = args.tensor(0)?;
    if !matches!(given.rank(), 1 | 2) {
        let help = "write a row for each distribution";
        return Err(error::wrong_rank(NAME, 0, given, "a vector or a matrix", help));
    }
    if !given.dtype().is_float() {
        return Err(error::needs_float(NAME, given));
    }
    let (along, chosen, replacement) = (given.rank() - 1, args.generator(3), args.flag(2));
    let choices = given.shape()[along];
    let most = if replacement { usize::MAX } else { choices };
    let Some(count) = usize::try_from(args.int(1)?).ok().filter(|n| (1..=most).contains(n)) else {
        let message = format!("{} of {choices} positions", args.int(1)?);
        let help =
            if replacement { "write 1 or more" } else { "write 1 to that many, or `replacement=true`" };
        return Err(error::bad_value(1, message, help));
    };
    if choices == 0 {
        return Err(error::nothing_to_reduce(NAME, given, Some(along)));
    }
    let dtype = if given.dtype() == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    let weights = if given.dtype() == dtype { given.clone() } else { rt.convert(given, dtype)? };
    let mut shape = weights.shape().clone();
    shape[along] = count;
    // The device detects an invalid distribution; the error is raised at the line of the draw.
    all_hold(rt, NAME, &IS_WEIGHT, &weights, "a probability is not a number of 0 or more")?;
    let sums = scan::scanned(rt, NAME, &SUM, &weights, along)?;
    let totals = shape::narrowed(&sums, along, choices - 1, 1);
    let zero = MapArg::Number(Scalar::Int(0));
    let some = rt.map(NAME, &HAPPENS, &[zero, MapArg::Tensor(&totals)], dtype, Dtype::Bool)?;
    whole(rt, NAME, &some, "no probability is above 0")?;
    if !replacement {
        if count > 1 {
            let above = rt.map(NAME, &HAPPENS, &[zero, MapArg::Tensor(&weights)], dtype, Dtype::Bool)?;
            let above = rt
                .reduce(&above, Reduction::new(NAME, &SUM, &[along], Dtype::I64, Dtype::I64).keepdim(true))?;

            let enough = call(rt, "ge", &[t(&above), Arg::Int(count as i64)])?;
            whole(
                rt,
                NAME,
                &enough,
                "without replacement, at least `num_samples` probabilities are above 0",
            )?;
        }
        // Of independent exponential variables whose rates are the weights, each is the minimum with a probability
        // proportional to its weight. These are released before the sort, so that they are not stored.
        let scores = {
            let times = exponentials(rt, NAME, &weights, chosen)?;
            let operands = [MapArg::Tensor(&weights), MapArg::Tensor(&times)];
            rt.map(NAME, &arith::DIV, &operands, dtype, dtype)?
        };
        let (_, order) = sort::sorted(rt, NAME, &scores, along, true)?;
        return rt.contiguous_copy(&shape::narrowed(&order, along, 0, count)).map(Out::Tensor);
    }
    let shape = error::shape(1, &shape.iter().map(|&n| i64::try_from(n).unwrap_or(-1)).collect::<Vec<_>>())?;
    let target = rt.fresh(&shape, dtype, weights.device())?;
    let marks = {
        let numbers = uniforms(rt, NAME, &target, chosen)?;
        let operands = [MapArg::Tensor(&numbers), MapArg::Tensor(&totals)];
        rt.map(NAME, &arith::MUL, &operands, dtype, dtype)?
    };
    let rows = if along == 0 { search::Rows::One(&sums) } else { search::Rows::Each(&sums) };
    let found = search::places(rt, NAME, &rows, &marks, true)?;
    // If the sum is nan, no element is found; the assertion reports it at its line.
    let last = MapArg::Number(Scalar::Int(choices as i64 - 1));
    let operands = [MapArg::Tensor(&found), last];
    rt.map(NAME, &arith::MINIMUM, &operands, Dtype::I64, Dtype::I64).map(Out::Tensor)
}

/// Asserts that `f` is true for every element, without waiting for the device.
fn all_hold(rt: &mut Runtime, name: &'static str, f: &'static MapFn, x: &Tensor, text: &str) -> Result<()> {
    let fits = rt.map(name, f, &[MapArg::Tensor(x)], x.dtype(), Dtype::Bool)?;
    whole(rt, name, &fits, text)
}

/// Asserts that every element of a bool tensor is true, without waiting for the device.
fn whole(rt: &mut Runtime, name: &'static str, fits: &Tensor, text: &str) -> Result<()> {
    let fits = rt
        .reduce(fits, Reduction::new(name, &ALL, &super::reduce::all_dims(fits), Dtype::Bool, Dtype::Bool))?;
    assertion::holds(rt, &fits, text)
}

fn check_deviation(rt: &mut Runtime, name: &'static str, std: MapArg<'_>) -> Result<()> {
    match std {
        MapArg::Tensor(std) if std.dtype().is_complex() => Err(error::floats_alone(name, 1, std)),
        MapArg::Tensor(std) => {
            all_hold(rt, name, &IS_DEVIATION, std, "a deviation is not a number of 0 or more")
        }
        MapArg::Number(std) if std.as_f64().is_nan() || std.as_f64() < 0.0 => {
            let message = format!("the deviation is `{:?}`", std.as_f64());
            Err(error::bad_value(1, message, "write a deviation of 0 or more"))
        }
        _ => Ok(()),
    }
}

fn normal(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "normal";
    let (mean, std) = (args.operand(0)?, args.operand(1)?);
    check_deviation(rt, NAME, std)?;
    let tensors = [mean, std].into_iter().filter_map(|arg| match arg {
        MapArg::Tensor(tensor) => Some(tensor),
        _ => None,
    });
    let tensors: Vec<&Tensor> = tensors.collect();
    let shape = match (args.is_given(2), tensors.as_slice()) {
        (true, _) => args.shape(2)?,
        (false, []) => return Err(error::wrong_argument(2, "a size, beside two numbers,")),
        (false, [one]) => one.shape().clone(),
        (false, [one, other, ..]) => match broadcast(one.shape(), other.shape()) {
            Some(shape) => shape,
            // The planner reports the error.
            None => Dims::from_slice(one.shape()),
        },
    };
    let mut options = TensorOptions::of(rt, args, 3, Dtype::F32);
    if let Some(first) = tensors.first() {
        options.device = rt.common_device(NAME, tensors.iter().copied())?;
        options.dtype = args.dtype(3).unwrap_or(first.dtype());
    }
    let target = float_tensor(rt, &shape, options, 3)?;
    let drawn = normals(rt, NAME, &target, args.generator(6))?;
    spread_into(rt, NAME, &target, &[MapArg::Tensor(&drawn), std, mean])
}
