//! Functions that are formulas of other operations.

use super::composed::{call, number, t};
use super::formula::{Formula, formula};
use super::gradient::Var;
use super::known;
use super::params::{BINARY, UNARY, X, X_OR_NUMBER};
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dtype, result_type};
use crate::base::Result;
use crate::kernel::host::define::host_unary;
use crate::kernel::host::math_f32;
use crate::kernel::{CudaText, MapFn};
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;
use std::f64::consts::{LN_2, PI};

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "rsub",
        doc: "Subtracts in the other order, elementwise: `other - x`. With `alpha`, returns `other - alpha * x`. \
              Source: `torch.rsub`.",
        search: &["subtract", "minus", "reversed"],
        params: &[
            X_OR_NUMBER,
            Param::new("other", Kind::TensorOrNumber),
            Param::named("alpha", Kind::Number, Default::Int(1)),
        ],
        form: Form::FUNCTION,
        example: "assert(equal(rsub([1, 2], 10), [9, 8]))\nassert(equal(rsub([1.0], [3.0], alpha=2), [1.0]))",
        run: Run::Composed(|rt, args| {
            let (x, other) = (args.get(0).clone(), args.get(1).clone());
            call(rt, "sub", &[other, x, args.get(2).clone()]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "mvlgamma",
        aliases: &["multigammaln"],
        doc: "Returns the logarithm of the multivariate gamma function of dimension `p`: the sum of \
              `lgamma(x - i / 2)` for `i` below `p`, and `p * (p - 1) / 4 * log(pi)`. Source: `torch.mvlgamma`.",
        search: &["gamma", "multivariate", "wishart"],
        params: &[X, Param::new("p", Kind::Int)],
        form: Form::ALL,
        example: "assert(allclose(mvlgamma([3.0], 1), lgamma([3.0])))",
        run: Run::Composed(|rt, args| {
            let p = args.int(1)?;
            if !(1..=MOST_GAMMAS).contains(&p) {
                let help = format!("write 1 to {MOST_GAMMAS}");
                return Err(error::bad_value(
                    1,
                    format!("the multivariate gamma function of dimension {p}"),
                    help,
                ));
            }
            of_floats(rt, args, |_, x| {
                let sum = (1..p).fold(x.unary("lgamma"), |sum, i| sum + (x - 0.5 * i as f64).unary("lgamma"));
                sum + 0.25 * (p * (p - 1)) as f64 * PI.ln()
            })
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "positive",
        doc: "Returns `x` itself; bools are an error. Source: `torch.positive`.",
        search: &["plus", "identity"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(positive([-1.0, 2.0]), [-1.0, 2.0]))",
        run: Run::Composed(|_, args| {
            let x = args.tensor(0)?;
            if x.dtype() == Dtype::Bool {
                return Err(error::not_for_dtype("positive", Dtype::Bool, &[MapArg::Tensor(x)]));
            }
            Ok(Out::Tensor(x.clone()))
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "sgn",
        doc: "Returns the sign: -1, 0 or 1. For a complex number, returns `x / abs(x)`, and 0 for 0. Source: \
              `torch.sgn`.",
        search: &["sign", "direction", "phase"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(sgn([-3.0, 0.0]), [-1.0, 0.0]) and allclose(sgn(complex([3.0], [4.0])).real, [0.6]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            if !x.dtype().is_complex() {
                return call(rt, "sign", &[t(x)]).map(Out::Tensor);
            }
            let found = formula(rt, |f| {
                let x = f.var(x);
                let length = x.unary("abs");
                let zero = length.eq(0.0);
                f.select(&zero, 0.0, &x / f.select(&zero, 1.0, &length))
            });
            found.map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "sinc",
        doc: "Returns `sin(pi * x) / (pi * x)`, and 1 at 0. Source: `torch.sinc`.",
        search: &["cardinal sine", "filter"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(sinc([0.0, 0.5, 1.0]), [1.0, 0.6366198, 0.0], atol=1e-6))",
        run: Run::Composed(|rt, args| {
            of_floats(rt, args, |f, x| {
                // Near 0, the derivatives of the quotient are differences of almost equal numbers; the series has none.
                let small = x.unary("abs").lt(NEAR);
                let angle = f.select(&small, 1.0, x * PI);
                let square = f.select(&small, x * PI, 0.0).unary("square");
                let series = 1.0 - &square * (1.0 / 6.0 - &square * (1.0 / 120.0));
                f.select(&small, series, angle.unary("sin") / &angle)
            })
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "digamma",
        doc: "Returns the derivative of `lgamma`. Source: `torch.digamma`.",
        search: &["psi", "gamma function", "logarithmic derivative"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(digamma([1.0, 0.5]), [-0.5772157, -1.9635100]))",
        run: Run::Composed(|rt, args| of_floats(rt, args, |f, x| f32_or(f, x, &DIGAMMA, |_, x| digamma(x)))),
        gradient: Gradient::Derivative(trigamma),
        ..Op::BASE
    },
    Op {
        name: "erfinv",
        doc: "Returns the inverse of `erf`: infinite at -1 and 1, nan outside. Source: `torch.erfinv`.",
        search: &["inverse error function", "normal quantile", "probit"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(erfinv([0.0, 0.5]), [0.0, 0.4769363]))",
        run: Run::Composed(|rt, args| of_floats(rt, args, |f, x| f32_or(f, x, &ERFINV, inverse_erf))),
        gradient: Gradient::OfResult(|y| y.square().unary("exp") * (PI.sqrt() / 2.0)),
        ..Op::BASE
    },
    Op {
        name: "logaddexp2",
        doc: "Returns `log2(2 ** x + 2 ** other)` without overflow. Source: `torch.logaddexp2`.",
        search: &["log sum exp", "stable", "base two"],
        params: BINARY,
        form: Form::BOTH,
        example: "assert(allclose(logaddexp2([1000.0], [1000.0]), [1001.0]))",
        run: Run::Composed(|rt, args| {
            let dtype = promoted(args)?;
            let (x, other) = (args.get(0).clone(), args.get(1).clone());
            let found = formula(rt, |f| {
                let scaled = |x: &Arg| match x {
                    Arg::Tensor(x) => (f.var(x).to(dtype).wide() * LN_2).arg(),
                    other => f.op("mul", &[other.clone(), Arg::Float(LN_2)]).arg(),
                };
                (f.op("logaddexp", &[scaled(&x), scaled(&other)]) / LN_2).to(dtype)
            });
            found.map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "float_power",
        doc: "Raises to a power in f64, or in c128 if one of the two is complex. Source: `torch.float_power`.",
        search: &["pow", "exponent", "double precision"],
        params: &[X_OR_NUMBER, Param::new("exponent", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(float_power(tensor([3, 4]), 2).dtype == f64)",
        run: Run::Both(
            |rt, args| float_power(rt, args).map(Out::Tensor),
            |rt, name, args| {
                let (target, result) = (args.tensor(0)?, float_power(rt, args)?);
                if target.dtype() != result.dtype() {
                    return Err(error::result_does_not_fit(name, result.dtype(), target));
                }
                rt.assign(name, target, &result)
            },
        ),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "ldexp",
        doc: "Returns `x * 2 ** other`. Source: `torch.ldexp`.",
        search: &["exponent", "scale", "power of two", "mantissa"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(ldexp([1.0, 3.0], [2, -1]), [4.0, 1.5]))",
        run: Run::Composed(|rt, args| {
            // Integer exponents keep the dtype of `x`, but the power of two itself may overflow it.
            let whole = args
                .opt_tensor(1)
                .is_none_or(|other| !other.dtype().is_float() && !other.dtype().is_complex());
            let kept =
                args.opt_tensor(0).filter(|x| whole && (x.dtype().is_float() || x.dtype().is_complex()));
            let found = formula(rt, |f| match (kept, args.get(1)) {
                (Some(x), Arg::Tensor(other)) => {
                    let wide = if x.dtype().is_complex() { Dtype::C128 } else { Dtype::F64 };
                    let power =
                        |exponent: &Var<'_>| f.op("pow", &[Arg::Float(2.0), exponent.to(Dtype::F64).arg()]);
                    // In three steps: 2 ** 2100 is outside the range of f64, but 5e-324 * 2 ** 2100 is infinite, and
                    // 0 * 2 ** 2100 is 0.
                    let range = [Arg::Int(-2148), Arg::Int(2148)];
                    let exponent = f.var(other).to(Dtype::I64).call("clamp", &range);
                    let third = exponent.call("floor_divide", &[Arg::Int(3)]);
                    let rest = &exponent - &third - &third;
                    let third = power(&third);
                    (f.var(x).to(wide) * &third * &third * power(&rest)).to(x.dtype())
                }
                (_, other) => {
                    let power = f.op("pow", &[Arg::Float(2.0), other.clone()]);
                    f.op("mul", &[args.get(0).clone(), power.arg()])
                }
            });
            found.map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

fn float_power(rt: &mut Runtime, args: &Args<'_>) -> Result<Tensor> {
    let is_complex = (0..2).any(|i| args.opt_tensor(i).is_some_and(|x| x.dtype().is_complex()));
    let dtype = if is_complex { Dtype::C128 } else { Dtype::F64 };
    let wide = |rt: &mut Runtime, i: usize| match args.get(i) {
        Arg::Tensor(x) => call(rt, "to", &[t(x), Arg::Dtype(dtype)]).map(Arg::Tensor),
        _ => args.number(i).map(number),
    };
    let (mut x, exponent) = (wide(rt, 0)?, wide(rt, 1)?);
    if !matches!((&x, &exponent), (Arg::Tensor(_), _) | (_, Arg::Tensor(_))) {
        x = call(rt, "full", &[Arg::Ints(Vec::new()), x, Arg::Dtype(dtype)]).map(Arg::Tensor)?;
    }
    call(rt, "pow", &[x, exponent])
}

/// Maximum dimension of `mvlgamma`, whose formula has a term for each.
const MOST_GAMMAS: i64 = 256;

/// `sinc` of numbers below this is its series, whose next term is below the precision of `f64`.
const NEAR: f64 = 0.002;

/// A formula of a tensor, in its dtype; ints and bools as `f32`, and halves by way of `f32`.
fn of_floats(
    rt: &mut Runtime,
    args: &Args<'_>,
    code: impl for<'f> FnOnce(&'f Formula<'_>, &Var<'f>) -> Var<'f>,
) -> Result<Out> {
    let x = args.tensor(0)?;
    let dtype = if x.dtype().is_float() || x.dtype().is_complex() { x.dtype() } else { Dtype::F32 };
    formula(rt, |f| code(f, &f.var(x).to(dtype).wide()).to(dtype)).map(Out::Tensor)
}

/// A function of `f32`; other dtypes by a formula.
fn f32_or<'f>(
    f: &'f Formula<'_>,
    x: &Var<'f>,
    single: &'static MapFn,
    formula: impl FnOnce(&'f Formula<'_>, &Var<'f>) -> Var<'f>,
) -> Var<'f> {
    match x.get().filter(|x| x.dtype() == Dtype::F32) {
        Some(x) => f.given(|rt| rt.map(single.name, single, &[MapArg::Tensor(x)], Dtype::F32, Dtype::F32)),
        None => formula(f, x),
    }
}

/// The inverse of `erf` in `f32`.
static ERFINV: MapFn = MapFn {
    name: "erfinv",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "erfinvf(a)", f64: "", i64: "" },
    host: host_unary!(f32: |a| math_f32::erfinv(a)),
    complex: None,
};

/// `digamma` in `f32`.
static DIGAMMA: MapFn = MapFn {
    name: "digamma",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "digamma_of(a)", f64: "", i64: "" },
    host: host_unary!(f32: |a| math_f32::digamma(a)),
    complex: None,
};

/// The common floating dtype of two operands.
fn promoted(args: &Args<'_>) -> Result<Dtype> {
    use crate::array::Operand;
    let rank = |arg: MapArg<'_>| match arg {
        MapArg::Tensor(t) if t.rank() == 0 => Operand::ZeroDim(t.dtype()),
        MapArg::Tensor(t) => Operand::Tensor(t.dtype()),
        MapArg::Number(n) => Operand::Number(n),
        MapArg::Raw(_, dtype) => Operand::Tensor(dtype),
        MapArg::Position => Operand::Tensor(Dtype::I64),
    };
    let operands = [rank(args.operand(0)?), rank(args.operand(1)?)];
    let dtype = result_type(operands);
    Ok(if dtype.is_float() || dtype.is_complex() { dtype } else { Dtype::F32 })
}

/// The derivative of `lgamma`.
fn digamma<'a>(x: &Var<'a>) -> Var<'a> {
    let select = |at: &Var<'a>, a: Var<'a>, b: Arg| at.call("where", &[a.arg(), b]);
    // At the poles, the series gets another number. The value is infinite at 0 and nan at the others.
    let pole = x.le(0.0).call("logical_and", &[x.eq(x.unary("floor")).arg()]);
    let zero = select(&pole, x.call("fmod", &[Arg::Int(1)]), Arg::Float(1.0));
    let undefined = x.lt(0.0).call("where", &[Arg::Float(f64::NAN), Arg::Float(0.0)]);
    let at_pole = undefined - zero.reciprocal();
    let x = &pole.call("where", &[Arg::Float(1.0), x.arg()]);
    // Below 1/2 by reflection: the value at `1 - x`, minus pi / tan(pi x).
    let low = x.lt(0.5);
    let y = select(&low, 1.0 - x, x.arg());
    // The asymptotic series, after ten steps up.
    let steps = (1..10).fold(y.reciprocal(), |sum, k| sum + (&y + f64::from(k)).reciprocal());
    let far = y + 10.0;
    let square = far.reciprocal().square();
    let terms =
        [-1.0 / 12.0, 691.0 / 32760.0, -1.0 / 132.0, 1.0 / 240.0, -1.0 / 252.0, 1.0 / 120.0, -1.0 / 12.0];
    let series = terms[1..].iter().fold(&square * terms[0], |sum, term| (sum + *term) * &square);
    let value = far.unary("log") - 0.5 / far + series - steps;
    let near = select(&low, x - x.unary("round"), Arg::Float(0.25)) * PI;
    let cot = near.unary("cos") / near.unary("sin");
    let value = select(&low, &value - PI * cot, value.arg());
    select(&pole, at_pole, value.arg())
}

/// The derivative of `digamma`, by the derivatives of its terms. It has derivatives of any order.
fn trigamma<'a>(x: &Var<'a>) -> Var<'a> {
    let select = |at: &Var<'a>, a: Var<'a>, b: Arg| at.call("where", &[a.arg(), b]);
    // At the poles, the series gets another number, so that its derivative there, times 0, is no nan. All values and
    // derivatives are infinite there.
    let pole = x.le(0.0).call("logical_and", &[x.eq(x.unary("floor")).arg()]);
    let zero = select(&pole, x.call("fmod", &[Arg::Int(1)]), Arg::Float(1.0));
    let at_pole = zero.reciprocal().square();
    let x = &pole.call("where", &[Arg::Float(1.0), x.arg()]);
    let low = x.lt(0.5);
    let y = select(&low, 1.0 - x, x.arg());
    let square = |x: Var<'a>| x.reciprocal().square();
    let steps = (1..10).fold(square(y.clone()), |sum, k| sum + square(&y + f64::from(k)));
    let part = (y + 10.0).reciprocal();
    let terms = [7.0 / 6.0, -691.0 / 2730.0, 5.0 / 66.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 1.0 / 6.0];
    let squared = part.square();
    let series = terms[1..].iter().fold(&squared * terms[0], |sum, term| (sum + *term) * &squared);
    let value = &part + &squared * 0.5 + series * &part + steps;
    // By reflection, as `digamma`. No tangent, whose terms in the next derivative cancel at halves.
    let near = select(&low, x - x.unary("round"), Arg::Float(0.25)) * PI;
    let reflected = square(near.unary("sin")) * (PI * PI) - &value;
    let value = select(&low, reflected, value.arg());
    select(&pole, at_pole, value.arg())
}

/// Rational approximations, near 0 and far from it, and two steps of Newton's method.
fn inverse_erf<'f>(f: &'f Formula<'_>, x: &Var<'f>) -> Var<'f> {
    const NEAR: [&[f64]; 2] = [
        &[-0.140543331, 0.914624893, -1.645349621, 0.886226899],
        &[0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0],
    ];
    const FAR: [&[f64]; 2] =
        [&[1.641345311, 3.429567803, -1.62490649, -1.970840454], &[1.6370678, 3.5438892, 1.0]];
    let horner = |z: &Var<'f>, terms: &[f64]| {
        terms[2..].iter().fold(z * terms[0] + terms[1], |sum, term| sum * z + *term)
    };
    let size = x.unary("abs");
    let near = size.le(0.7);
    // The branch that is not taken must not produce nan.
    let square = f.select(&near, x.square(), 0.0);
    let center = x * (horner(&square, NEAR[0]) / horner(&square, NEAR[1]));
    let inside = size.lt(1.0);
    let rest = f.select(&inside.call("logical_and", &[near.unary("logical_not").arg()]), 1.0 - &size, 0.25);
    let depth = (rest / 2.0).unary("log") * -1.0;
    let depth = depth.unary("sqrt");
    let tail = (horner(&depth, FAR[0]) / horner(&depth, FAR[1])).call("copysign", &[x.arg()]);
    let mut y = f.select(&near, &center, &tail);
    for _ in 0..2 {
        // `erf(y) - x`; near 1 by `erfc`, which loses no digits.
        let far = (1.0 - &size - y.unary("abs").unary("erfc")) * x.unary("sign");
        let off = f.select(&near, y.unary("erf") - x, &far);
        y = &y - off / ((y.square() * -1.0).unary("exp") * (2.0 / PI.sqrt()));
    }
    let edge = f.select(&size.eq(1.0), x * f64::INFINITY, f64::NAN);
    f.select(&inside, &y, &edge)
}
