//! Elementary functions: exponentials, logarithms, trigonometry. The result of integers and bools is `f32`.
//!
//! On the host, `f32` results are within two units in the last place of the exact value; on CUDA, within the
//! bounds that its documentation states.

use super::complex;
use super::gradient::{Back, Var};
use super::halves::{SIGMOID_HALF, TANH_HALF, for_dtype};
use super::params::{BINARY, UNARY, X, X_OR_NUMBER};
use super::signature::{Default, Kind, Param};
use super::{Args, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, map};
use crate::array::Scalar;
use crate::base::Result;
use crate::kernel::host::define::{host_binary, host_unary};
use crate::kernel::host::{math, math_f32};
use crate::kernel::{CudaText, HostMap, MapFn, Reg, RegMut};
use crate::plan::{MapArg, Runtime};

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "exp",
        doc: "Returns e to the power of each element. Source: `torch.exp`.",
        search: &["exponential", "e^x"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(exp([0.0]), [1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "exp",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "expf(a)", f64: "exp(a)", i64: "" },
                host: host_unary!(float: |a| math::exp(a)),
                complex: Some(&complex::EXP),
            },
        }),
        gradient: Gradient::OfResult(|y| y.clone()),
        ..Op::BASE
    },
    Op {
        name: "exp2",
        doc: "Returns 2 to the power of each element. Source: `torch.exp2`.",
        search: &["power of two"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(exp2([3.0, -1.0]), [8.0, 0.5]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "exp2",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "exp2f(a)", f64: "exp2(a)", i64: "" },
                host: host_unary!(float: |a| math::exp2(a)),
                complex: Some(&complex::EXP2),
            },
        }),
        gradient: Gradient::OfResult(|y| y * std::f64::consts::LN_2),
        ..Op::BASE
    },
    Op {
        name: "expm1",
        doc: "Returns `exp(x) - 1`, accurate where `x` is small. Source: `torch.expm1`.",
        search: &["exponential", "minus one"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(expm1([1e-10]), [1e-10]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "expm1",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "expm1f(a)", f64: "expm1(a)", i64: "" },
                host: host_unary!(float: |a| math::expm1(a)),
                complex: Some(&complex::EXPM1),
            },
        }),
        gradient: Gradient::OfResult(|y| y + 1.0),
        ..Op::BASE
    },
    Op {
        name: "log",
        doc: "Returns the natural logarithm; `-inf` for 0, nan for a negative number. Source: `torch.log`.",
        search: &["ln", "logarithm"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(log([1.0, 0.0]), [0.0, -inf]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "log",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "logf(a)", f64: "log(a)", i64: "" },
                host: host_unary!(float: |a| math::ln(a)),
                complex: Some(&complex::LOG),
            },
        }),
        gradient: Gradient::Derivative(|x| x.reciprocal()),
        ..Op::BASE
    },
    Op {
        name: "log2",
        doc: "Returns the binary logarithm. Source: `torch.log2`.",
        search: &["logarithm", "base two", "bits"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(log2([8.0]), [3.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "log2",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "log2f(a)", f64: "log2(a)", i64: "" },
                host: host_unary!(float: |a| math::log2(a)),
                complex: Some(&complex::LOG2),
            },
        }),
        gradient: Gradient::Derivative(|x| (x * std::f64::consts::LN_2).reciprocal()),
        ..Op::BASE
    },
    Op {
        name: "log10",
        doc: "Returns the decimal logarithm. Source: `torch.log10`.",
        search: &["logarithm", "base ten", "decibel"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(log10([1000.0]), [3.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "log10",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "log10f(a)", f64: "log10(a)", i64: "" },
                host: host_unary!(float: |a| math::log10(a)),
                complex: Some(&complex::LOG10),
            },
        }),
        gradient: Gradient::Derivative(|x| (x * std::f64::consts::LN_10).reciprocal()),
        ..Op::BASE
    },
    Op {
        name: "log1p",
        doc: "Returns `log(1 + x)`, accurate where `x` is small. Source: `torch.log1p`.",
        search: &["logarithm", "one plus"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(log1p([1e-10]), [1e-10]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "log1p",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "log1pf(a)", f64: "log1p(a)", i64: "" },
                host: host_unary!(float: |a| math::log1p(a)),
                complex: Some(&complex::LOG1P),
            },
        }),
        gradient: Gradient::Derivative(|x| (x + 1.0).reciprocal()),
        ..Op::BASE
    },
    Op {
        name: "sin",
        doc: "Returns the sine of radians. Source: `torch.sin`.",
        search: &["sine", "trigonometry", "angle"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(sin([0.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "sin",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "sinf(a)", f64: "sin(a)", i64: "" },
                host: &sin,
                complex: Some(&complex::SIN),
            },
        }),
        gradient: Gradient::Derivative(|x| x.unary("cos")),
        ..Op::BASE
    },
    Op {
        name: "cos",
        doc: "Returns the cosine of radians. Source: `torch.cos`.",
        search: &["cosine", "trigonometry", "angle"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(cos([0.0]), [1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "cos",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "cosf(a)", f64: "cos(a)", i64: "" },
                host: &cos,
                complex: Some(&complex::COS),
            },
        }),
        gradient: Gradient::Derivative(|x| -x.unary("sin")),
        ..Op::BASE
    },
    Op {
        name: "tan",
        doc: "Returns the tangent of radians. Source: `torch.tan`.",
        search: &["tangent", "trigonometry", "angle"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(tan([0.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "tan",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "tanf(a)", f64: "tan(a)", i64: "" },
                host: &tan,
                complex: Some(&complex::TAN),
            },
        }),
        gradient: Gradient::OfResult(|y| y.square() + 1.0),
        ..Op::BASE
    },
    Op {
        name: "asin",
        aliases: &["arcsin"],
        doc: "Returns the angle in radians whose sine is the element; outside -1 .. 1, nan. Source: `torch.asin`.",
        search: &["arcsin", "arc sine", "inverse sine"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(asin([1.0]), [1.5707964]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "asin",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "asinf(a)", f64: "asin(a)", i64: "" },
                host: host_unary!(float: |a| math::asin(a)),
                complex: Some(&complex::ASIN),
            },
        }),
        gradient: Gradient::Derivative(|x| (1.0 - x.square()).unary("rsqrt")),
        ..Op::BASE
    },
    Op {
        name: "acos",
        aliases: &["arccos"],
        doc: "Returns the angle in radians whose cosine is the element; outside -1 .. 1, nan. Source: `torch.acos`.",
        search: &["arccos", "arc cosine", "inverse cosine"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(acos([1.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "acos",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "acosf(a)", f64: "acos(a)", i64: "" },
                host: host_unary!(float: |a| math::acos(a)),
                complex: Some(&complex::ACOS),
            },
        }),
        gradient: Gradient::Derivative(|x| -(1.0 - x.square()).unary("rsqrt")),
        ..Op::BASE
    },
    Op {
        name: "atan",
        aliases: &["arctan"],
        doc: "Returns the angle in radians whose tangent is the element. Source: `torch.atan`.",
        search: &["arctan", "arc tangent", "inverse tangent"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(atan([1.0]), [0.7853982]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "atan",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "atanf(a)", f64: "atan(a)", i64: "" },
                host: host_unary!(float: |a| math::atan(a)),
                complex: Some(&complex::ATAN),
            },
        }),
        gradient: Gradient::Derivative(|x| (x.square() + 1.0).reciprocal()),
        ..Op::BASE
    },
    Op {
        name: "sinh",
        doc: "Returns the hyperbolic sine. Source: `torch.sinh`.",
        search: &["hyperbolic"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(sinh([0.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "sinh",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "sinhf(a)", f64: "sinh(a)", i64: "" },
                host: host_unary!(float: |a| math::sinh(a)),
                complex: Some(&complex::SINH),
            },
        }),
        gradient: Gradient::Derivative(|x| x.unary("cosh")),
        ..Op::BASE
    },
    Op {
        name: "cosh",
        doc: "Returns the hyperbolic cosine. Source: `torch.cosh`.",
        search: &["hyperbolic"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(cosh([0.0]), [1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "cosh",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "coshf(a)", f64: "cosh(a)", i64: "" },
                host: host_unary!(float: |a| math::cosh(a)),
                complex: Some(&complex::COSH),
            },
        }),
        gradient: Gradient::Derivative(|x| x.unary("sinh")),
        ..Op::BASE
    },
    Op {
        name: "tanh",
        doc: "Returns the hyperbolic tangent. Source: `torch.tanh`.",
        search: &["hyperbolic", "activation", "squash"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(tanh([0.0, inf]), [0.0, 1.0]))",
        run: Run::Chosen(MapOp { rule: Rule::Float, f: &TANH }, |args| for_dtype(args, &TANH, &TANH_HALF)),
        gradient: Gradient::OfResult(|y| 1.0 - y.square()),
        ..Op::BASE
    },
    Op {
        name: "asinh",
        aliases: &["arcsinh"],
        doc: "Returns the inverse hyperbolic sine. Source: `torch.asinh`.",
        search: &["arcsinh", "hyperbolic"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(asinh([0.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "asinh",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "asinhf(a)", f64: "asinh(a)", i64: "" },
                host: host_unary!(float: |a| math::asinh(a)),
                complex: Some(&complex::ASINH),
            },
        }),
        gradient: Gradient::Derivative(|x| (x.square() + 1.0).unary("rsqrt")),
        ..Op::BASE
    },
    Op {
        name: "acosh",
        aliases: &["arccosh"],
        doc: "Returns the inverse hyperbolic cosine; below 1, nan. Source: `torch.acosh`.",
        search: &["arccosh", "hyperbolic"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(acosh([1.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "acosh",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "acoshf(a)", f64: "acosh(a)", i64: "" },
                host: host_unary!(float: |a| math::acosh(a)),
                complex: Some(&complex::ACOSH),
            },
        }),
        gradient: Gradient::Derivative(acosh_slope),
        ..Op::BASE
    },
    Op {
        name: "atanh",
        aliases: &["arctanh"],
        doc: "Returns the inverse hyperbolic tangent; outside -1 .. 1, nan. Source: `torch.atanh`.",
        search: &["arctanh", "hyperbolic"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(atanh([0.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "atanh",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "atanhf(a)", f64: "atanh(a)", i64: "" },
                host: host_unary!(float: |a| math::atanh(a)),
                complex: Some(&complex::ATANH),
            },
        }),
        gradient: Gradient::Derivative(|x| (1.0 - x.square()).reciprocal()),
        ..Op::BASE
    },
    Op {
        name: "erf",
        doc: "Returns the error function. Source: `torch.erf`.",
        search: &["error function", "gauss", "normal distribution"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(erf([1.0]), [0.8427008]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "erf",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "erff(a)", f64: "erf(a)", i64: "" },
                host: host_unary!(float: |a| math::erf(a)),
                complex: None,
            },
        }),
        gradient: Gradient::Derivative(|x| (-x.square()).unary("exp") * std::f64::consts::FRAC_2_SQRT_PI),
        ..Op::BASE
    },
    Op {
        name: "erfc",
        doc: "Returns `1 - erf(x)`, accurate where that is small. Source: `torch.erfc`.",
        search: &["complementary error function", "gauss"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(erfc([0.0]), [1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "erfc",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "erfcf(a)", f64: "erfc(a)", i64: "" },
                host: host_unary!(float: |a| math::erfc(a)),
                complex: None,
            },
        }),
        gradient: Gradient::Derivative(|x| (-x.square()).unary("exp") * -std::f64::consts::FRAC_2_SQRT_PI),
        ..Op::BASE
    },
    Op {
        name: "lgamma",
        doc: "Returns the logarithm of the absolute value of the gamma function. Source: `torch.lgamma`.",
        search: &["gamma", "factorial", "gammaln"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(lgamma([4.0]), log([6.0])))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "lgamma",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "lgammaf(a)", f64: "lgamma(a)", i64: "" },
                host: host_unary!(float: |a| math::lgamma(a)),
                complex: None,
            },
        }),
        gradient: Gradient::Derivative(|x| x.unary("digamma")),
        ..Op::BASE
    },
    Op {
        name: "deg2rad",
        doc: "Converts degrees to radians. Source: `torch.deg2rad`.",
        search: &["angle", "degrees"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(deg2rad([180.0]), [3.1415927]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "deg2rad",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(a * 0.017453292519943296f)",
                    f64: "(a * 0.017453292519943295)",
                    i64: "",
                },
                host: host_unary!(f32: |a| a * 0.017_453_292, f64: |a| a * 0.017_453_292_519_943_295),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g() * 0.017_453_292_519_943_295)),
        ..Op::BASE
    },
    Op {
        name: "rad2deg",
        doc: "Converts radians to degrees. Source: `torch.rad2deg`.",
        search: &["angle", "radians"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(rad2deg([3.1415927]), [180.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "rad2deg",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "(a * 57.29577951308232f)", f64: "(a * 57.29577951308232)", i64: "" },
                host: host_unary!(f32: |a| a * 57.295_78, f64: |a| a * 57.295_779_513_082_32),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g() * 57.295_779_513_082_32)),
        ..Op::BASE
    },
    Op {
        name: "sigmoid",
        doc: "Returns `1 / (1 + exp(-x))`. Source: `torch.sigmoid`.",
        search: &["logistic", "expit", "activation", "squash"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(sigmoid([0.0]), [0.5]))",
        run: Run::Chosen(MapOp { rule: Rule::Float, f: &SIGMOID }, |args| {
            for_dtype(args, &SIGMOID, &SIGMOID_HALF)
        }),
        gradient: Gradient::OfResult(|y| (1.0 - y) * y),
        ..Op::BASE
    },
    Op {
        name: "logit",
        doc: "Returns `log(x / (1 - x))`, the inverse of `sigmoid`; with `eps`, `x` is first limited to \
              `eps` .. `1 - eps`. Source: `torch.logit`.",
        search: &["log odds", "inverse sigmoid"],
        params: &[X, Param::or("eps", Kind::Float, Default::None)],
        form: Form::ALL,
        example: "assert(equal(logit([0.5]), [0.0]))",
        run: Run::Primitive(logit),
        gradient: Gradient::Rule(Keeps::X, logit_back),
        ..Op::BASE
    },
    Op {
        name: "atan2",
        aliases: &["arctan2"],
        doc: "Returns the angle in radians of the point (`other`, `x`), from -pi to pi. Source: `torch.atan2`.",
        search: &["angle", "arctan2", "polar", "direction"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(allclose(atan2([1.0], [-1.0]), [2.3561945]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "atan2",
                arity: 2,
                select: false,
                cuda: CudaText { f32: "atan2f(a, b)", f64: "atan2(a, b)", i64: "" },
                host: host_binary!(float: |a, b| math::atan2(a, b)),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::XY, |b| {
            let squares = || b.x(0).square() + b.x(1).square();
            // The gradient at the origin is 0, as PyTorch's.
            let scale = || b.select(&squares().eq(0.0), 1.0, squares()).reciprocal();
            b.to(0, || b.g() * b.x(1) * scale());
            b.to(1, || -b.g() * b.x(0) * scale());
        }),
        ..Op::BASE
    },
    Op {
        name: "logaddexp",
        doc: "Returns `log(exp(x) + exp(other))` without overflow. Source: `torch.logaddexp`.",
        search: &["log sum exp", "stable"],
        params: BINARY,
        form: Form::BOTH,
        example: "assert(allclose(logaddexp([1000.0], [1000.0]), [1000.6931472]))",
        run: Run::Map(MapOp { rule: Rule::Float, f: &LOG_ADD_EXP }),
        gradient: Gradient::Rule(Keeps::XY, |b| {
            b.to(0, || b.g() * (b.x(0) - b.x(1)).unary("sigmoid").conj());
            b.to(1, || b.g() * (b.x(1) - b.x(0)).unary("sigmoid").conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "xlogy",
        doc: "Returns `x * log(other)`, and 0 where `x` is 0 unless `other` is nan. Source: `torch.xlogy`.",
        search: &["entropy", "cross entropy"],
        params: &[X_OR_NUMBER, Param::new("other", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(xlogy([0.0, 2.0], [0.0, 1.0]), [0.0, 0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "xlogy",
                arity: 2,
                select: false,
                cuda: CudaText {
                    f32: "(b != b ? b : a == 0.0f ? 0.0f : a * logf(b))",
                    f64: "(b != b ? b : a == 0.0 ? 0.0 : a * log(b))",
                    i64: "",
                },
                host: host_binary!(
                    float: |a, b| if b.is_nan() { b } else if a == 0.0 { 0.0 } else { a * math::ln(b) },
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::XY, |b| {
            b.to(0, || {
                let still = b.x(0).eq(0.0).call("logical_and", &[b.x(1).le(0.0).arg()]);
                b.select(&still, 0.0, b.g().call("xlogy", &[b.x(1).arg()]))
            });
            b.to(1, || b.g() * b.x(0) / b.x(1));
        }),
        ..Op::BASE
    },
];

fn sin(args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    let fast = host_unary!(f32: |a| math_f32::sin(a), f64: |a| math::sin(a));
    of_angle(fast, math::sin, args, out)
}

fn cos(args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    let fast = host_unary!(f32: |a| math_f32::cos(a), f64: |a| math::cos(a));
    of_angle(fast, math::cos, args, out)
}

fn tan(args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    let fast = host_unary!(f32: |a| math_f32::tan(a), f64: |a| math::tan(a));
    of_angle(fast, math::tan, args, out)
}

/// Runs vector code over a chunk, then recomputes the `f32` angles that are too large for it one by one.
fn of_angle(fast: HostMap, exact: fn(f32) -> f32, args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    match (args, out) {
        (&[Reg::F32(angles)], RegMut::F32(out)) => {
            fast(args, RegMut::F32(&mut *out));
            for (&angle, out) in angles.iter().zip(out) {
                if angle.abs() > math_f32::MAX_ANGLE {
                    *out = exact(angle);
                }
            }
            true
        }
        (args, out) => fast(args, out),
    }
}

/// ln(e^a + e^b)
pub static LOG_ADD_EXP: MapFn = MapFn {
    name: "logaddexp",
    arity: 2,
    select: false,
    cuda: CudaText {
        // The two terms may cancel, so `f32` computes in `f64`.
        f32: "(a == b ? a + 0.69314718055994531f : a != a || b != b ? a + b : log_sum_of(a, b))",
        f64: "(a == b ? a + 0.69314718055994531 : fmax(a, b) + log1p(exp(-fabs(a - b))))",
        i64: "",
    },
    host: host_binary!(
        f32: |a, b| {
            let (x, y) = (f64::from(a), f64::from(b));
            let far = x.max(y) + math::log1p(math::exp(-(x - y).abs()));
            if a == b { a + std::f32::consts::LN_2 } else { far as f32 }
        },
        f64: |a, b| {
            let far = a.max(b) + math::log1p(math::exp(-(a - b).abs()));
            if a == b { a + std::f64::consts::LN_2 } else { far }
        },
    ),
    complex: Some(&complex::LOGADDEXP),
};

/// Near 1/2 the logarithm cancels nearly all digits of the quotient, so `f32` computes in `f64`.
static LOGIT: MapFn = MapFn {
    name: "logit",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "logit_of(a)", f64: "logit_of(a)", i64: "" },
    host: host_unary!(
        f32: |a| math::ln(f64::from(a) / (1.0 - f64::from(a))) as f32,
        f64: |a| math::ln(a / (1.0 - a)),
    ),
    complex: None,
};

/// `b` is the minimum distance of elements from 0 and 1.
static LOGIT_CLAMPED: MapFn = MapFn {
    name: "logit_clamped",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "logit_clamped(a, b)", f64: "logit_clamped(a, b)", i64: "" },
    host: host_binary!(
        f32: |a, b| {
            let high = 1.0 - b;
            let inner = f64::from(if a < b { b } else if a > high { high } else { a });
            math::ln(inner / (1.0 - inner)) as f32
        },
        f64: |a, b| {
            let high = 1.0 - b;
            let inner = if a < b { b } else if a > high { high } else { a };
            math::ln(inner / (1.0 - inner))
        },
    ),
    complex: None,
};

fn logit(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = MapArg::Tensor(args.tensor(0)?);
    if !args.is_given(1) {
        return map(rt, "logit", &MapOp { rule: Rule::Float, f: &LOGIT }, &[x]).map(Out::Tensor);
    }
    let eps = MapArg::Number(Scalar::Float(args.float(1)?));
    map(rt, "logit", &MapOp { rule: Rule::Float, f: &LOGIT_CLAMPED }, &[x, eps]).map(Out::Tensor)
}

/// The derivative of `acosh`; for complex numbers, its branch cut is that of `acosh`.
fn acosh_slope<'a>(x: &Var<'a>) -> Var<'a> {
    match x.dtype().is_complex() {
        true => ((x + 1.0).unary("sqrt") * (x - 1.0).unary("sqrt")).reciprocal(),
        false => (x.square() - 1.0).unary("rsqrt"),
    }
}

/// The gradient of `logit`: nan outside of 0 .. 1; with `eps` 0 outside of `eps` .. `1 - eps`.
fn logit_back(b: &Back<'_>) {
    b.to(0, || {
        let x = b.x(0);
        let eps = b.args().float(1).ok();
        let low = eps.unwrap_or(0.0);
        let beyond = x.lt(low).call("logical_or", &[x.gt(1.0 - low).arg()]);
        // A quotient that is not chosen must be finite, or its own gradient would be nan.
        let inside = b.select(&beyond, if eps.is_some() { 0.5 } else { f64::NAN }, &x);
        let quotient = b.g() / (&inside * (1.0 - &inside));
        if eps.is_some() { b.select(&beyond, 0.0, quotient) } else { quotient }
    });
}

/// `1 / (1 + exp(-a))`
pub(super) static SIGMOID: MapFn = MapFn {
    name: "sigmoid",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "sigmoid_of(a)", f64: "sigmoid_of(a)", i64: "" },
    host: host_unary!(float: |a| math::sigmoid(a)),
    complex: Some(&complex::SIGMOID),
};

/// `tanh(a)`
pub(super) static TANH: MapFn = MapFn {
    name: "tanh",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "tanhf(a)", f64: "tanh(a)", i64: "" },
    host: host_unary!(float: |a| math::tanh(a)),
    complex: Some(&complex::TANH),
};
