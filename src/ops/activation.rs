//! Activations of neural networks, and normalisations built from reductions and maps.

use super::complex;
use super::composed::{call, t};
use super::folds::{MAX, MEAN, SUM};
use super::gradient::{Back, Var, rules};
use super::halves::{GELU_HALF, GELU_TANH_HALF, SILU_HALF, for_dtype};
use super::known;
use super::map::check_bound;
use super::params::{UNARY, X};
use super::select::CLAMP;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, error, map};
use crate::array::{Dtype, Layout, Scalar};
use crate::base::Result;
use crate::kernel::host::define::{host_binary, host_quaternary, host_ternary, host_unary};
use crate::kernel::host::math;
use crate::kernel::{CudaText, MapFn};
use crate::plan::error::check_number;
use crate::plan::{MapArg, Reduction, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "relu",
        doc: "Returns `max(x, 0)`; nan stays nan. Source: `torch.relu`.",
        search: &["rectifier", "rectified linear unit", "activation"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(relu([-1.0, 2.0]), [0.0, 2.0]))",
        run: Run::Map(MapOp { rule: Rule::NotBool, f: &RELU }),
        gradient: Gradient::Rule(Keeps::RESULT, |b| b.to(0, || b.select(&b.y().le(0.0), 0.0, b.g()))),
        ..Op::BASE
    },
    Op {
        name: "relu6",
        doc: "Limits elements to 0 .. 6. Source: `torch.nn.functional.relu6`.",
        search: &["rectifier", "activation", "mobile"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(relu6([-1.0, 2.0, 9.0]), [0.0, 2.0, 6.0]))",
        run: Run::Primitive(|rt, args| {
            clamped(rt, "relu6", args.tensor(0)?, (Scalar::Int(0), Scalar::Int(6)))
        }),
        gradient: Gradient::Rule(Keeps::X, |b| b.to(0, || rules::within(b, 0.0, 6.0))),
        ..Op::BASE
    },
    Op {
        name: "leaky_relu",
        doc: "Returns `x` where it is positive, else `negative_slope * x`. Source: \
              `torch.nn.functional.leaky_relu`.",
        search: &["rectifier", "activation"],
        params: &[X, Param::or("negative_slope", Kind::Number, Default::Float(0.01))],
        form: Form::ALL,
        example: "assert(equal(leaky_relu([-2.0, 2.0], 0.5), [-1.0, 2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Promote,
            f: &MapFn {
                name: "leaky_relu",
                arity: 2,
                select: false,
                cuda: CudaText {
                    f32: "(a > 0.0f ? a : a * b)",
                    f64: "(a > 0.0 ? a : a * b)",
                    i64: "(a > 0 ? a : a * b)",
                },
                host: host_binary!(
                    float: |a, b| if a > 0.0 { a } else { a * b },
                    i64: |a, b| if a > 0 { a } else { a.wrapping_mul(b) },
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(0, || b.select(&b.x(0).gt(0.0), b.g(), b.g() * b.arg(1)));
        }),
        ..Op::BASE
    },
    Op {
        name: "elu",
        doc: "Returns `x` where it is positive, else `alpha * (exp(x) - 1)`. Source: \
              `torch.nn.functional.elu`.",
        search: &["exponential linear unit", "activation"],
        params: &[X, Param::or("alpha", Kind::Number, Default::Float(1.0))],
        form: Form::ALL,
        example: "assert(equal(elu([-inf, 2.0]), [-1.0, 2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "elu",
                arity: 2,
                select: false,
                cuda: CudaText {
                    f32: "(a > 0.0f ? a : b * expm1f(a))",
                    f64: "(a > 0.0 ? a : b * expm1(a))",
                    i64: "",
                },
                host: host_binary!(float: |a, b| if a > 0.0 { a } else { b * math::expm1(a) }),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(0, || b.select(&b.x(0).le(0.0), b.g() * b.arg(1) * power_below_0(&b.x(0)), b.g()));
        }),
        ..Op::BASE
    },
    Op {
        name: "selu",
        doc: "Returns the scaled exponential linear unit, which keeps mean 0 and variance 1. Source: \
              `torch.selu`.",
        search: &["self-normalizing", "activation"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(allclose(selu([1.0]), [1.0507010]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "selu",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(1.0507009873554804934193349852946f * (a > 0.0f ? a : 1.6732632423543772848170429916717f * expm1f(a)))",
                    f64: "(1.0507009873554804934193349852946 * (a > 0.0 ? a : 1.6732632423543772848170429916717 * expm1(a)))",
                    i64: "",
                },
                host: host_unary!(
                    f32: |a| 1.050_701 * if a > 0.0 { a } else { 1.673_263_2 * math::expm1(a) },
                    f64: |a| {
                        1.050_700_987_355_480_5
                            * if a > 0.0 { a } else { 1.673_263_242_354_377_2 * math::expm1(a) }
                    },
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(0, || {
                let (above, below) = (1.050_700_987_355_480_5, 1.758_099_340_847_376_6);
                b.select(&b.x(0).le(0.0), b.g() * below * power_below_0(&b.x(0)), b.g() * above)
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "softplus",
        doc: "Returns `log(1 + exp(beta * x)) / beta`, and `x` itself where `beta * x` is above `threshold`. \
              Source: `torch.nn.functional.softplus`.",
        search: &["smooth rectifier", "activation"],
        params: &[
            X,
            Param::or("beta", Kind::Number, Default::Float(1.0)),
            Param::or("threshold", Kind::Number, Default::Float(20.0)),
        ],
        form: Form::BOTH,
        example: "assert(allclose(softplus([0.0, 30.0]), [0.6931472, 30.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "softplus",
                arity: 3,
                select: false,
                cuda: CudaText { f32: "softplus_of(a, b, c)", f64: "softplus_of(a, b, c)", i64: "" },
                host: host_ternary!(
                    float: |a, b, c| if a * b > c { a } else { math::log1p(math::exp(a * b)) / b },
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(0, || {
                let scaled = b.x(0) * b.arg(1);
                b.select(&scaled.gt(b.arg(2)), b.g(), b.g() * scaled.unary("sigmoid"))
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "softsign",
        doc: "Returns `x / (1 + |x|)`. Source: `torch.nn.functional.softsign`.",
        search: &["squash", "activation"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(softsign([1.0, -1.0]), [0.5, -0.5]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "softsign",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "(a / (1.0f + fabsf(a)))", f64: "(a / (1.0 + fabs(a)))", i64: "" },
                host: host_unary!(float: |a| a / (1.0 + a.abs())),
                complex: Some(&complex::SOFTSIGN),
            },
        }),
        gradient: Gradient::Rule(Keeps::X, softsign_back),
        ..Op::BASE
    },
    Op {
        name: "logsigmoid",
        doc: "Returns `log(sigmoid(x))` without overflow. Source: `torch.nn.functional.logsigmoid`.",
        search: &["logistic", "binary cross entropy"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(allclose(logsigmoid([0.0, -1000.0]), [-0.6931472, -1000.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "logsigmoid",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "log_sigmoid_of(a)", f64: "log_sigmoid_of(a)", i64: "" },
                host: host_unary!(
                    float: |a| if a < 0.0 { a } else { 0.0 } - math::log1p(math::exp(-a.abs())),
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Derivative(|x| (-x).unary("sigmoid")),
        ..Op::BASE
    },
    Op {
        name: "gelu",
        doc: "Returns the Gaussian error linear unit, `x * (1 + erf(x / sqrt(2))) / 2`, or with \
              `approximate=\"tanh\"` its approximation by `tanh`. Source: `torch.nn.functional.gelu`.",
        search: &["gaussian", "transformer", "activation"],
        params: &[X, Param::named("approximate", Kind::Str, Default::Str("none"))],
        form: Form::BOTH,
        example: "assert(allclose(gelu([1.0]), [0.8413447]))\n\
                  assert(allclose(gelu([1.0], approximate=\"tanh\"), [0.8411920]))",
        run: Run::Primitive(gelu),
        gradient: Gradient::Rule(Keeps::X, gelu_back),
        ..Op::BASE
    },
    Op {
        name: "silu",
        doc: "Returns `x * sigmoid(x)`. Source: `torch.nn.functional.silu`.",
        search: &["swish", "sigmoid linear unit", "activation"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(silu([0.0]), [0.0]))",
        run: Run::Chosen(MapOp { rule: Rule::Float, f: &SILU }, |args| for_dtype(args, &SILU, &SILU_HALF)),
        gradient: Gradient::Derivative(|x| {
            let s = x.unary("sigmoid");
            &s * ((1.0 - &s) * x + 1.0)
        }),
        ..Op::BASE
    },
    Op {
        name: "mish",
        doc: "Returns `x * tanh(softplus(x))`. Source: `torch.nn.functional.mish`.",
        search: &["activation"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(mish([0.0]), [0.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "mish",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(a * tanhf(softplus_of(a, 1.0f, 20.0f)))",
                    f64: "(a * tanh(softplus_of(a, 1.0, 20.0)))",
                    i64: "",
                },
                host: host_unary!(
                    float: |a| a * math::tanh(if a > 20.0 { a } else { math::log1p(math::exp(a)) }),
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Derivative(|x| {
            let t = x.unary("softplus").unary("tanh");
            x * (1.0 - t.square()) * x.unary("sigmoid") + t
        }),
        ..Op::BASE
    },
    Op {
        name: "hardtanh",
        doc: "Limits elements to `min_val` .. `max_val`. Source: `torch.nn.functional.hardtanh`.",
        search: &["clip", "activation"],
        params: &[
            X,
            Param::or("min_val", Kind::Number, Default::Int(-1)),
            Param::or("max_val", Kind::Number, Default::Int(1)),
        ],
        form: Form::ALL,
        example: "assert(equal(hardtanh([-3.0, 0.5, 3.0]), [-1.0, 0.5, 1.0]))",
        run: Run::Primitive(|rt, args| {
            let (low, high) = (args.number(1)?, args.number(2)?);
            if low.as_f64() > high.as_f64() {
                let message = format!("`min_val` is `{:?}`, above `{:?}`", low.as_f64(), high.as_f64());
                return Err(error::bad_value(1, message, "write the smaller number first"));
            }
            clamped(rt, "hardtanh", args.tensor(0)?, (low, high))
        }),
        gradient: Gradient::Rule(Keeps::X, |b| b.to(0, || rules::within(b, b.arg(1), b.arg(2)))),
        ..Op::BASE
    },
    Op {
        name: "hardsigmoid",
        doc: "Returns `clamp(x / 6 + 1 / 2, 0, 1)`. Source: `torch.nn.functional.hardsigmoid`.",
        search: &["activation", "mobile"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(hardsigmoid([-3.0, 0.0, 3.0]), [0.0, 0.5, 1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "hardsigmoid",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(clamp_to(a + 3.0f, 0.0f, 6.0f) / 6.0f)",
                    f64: "(clamp_to(a + 3.0, 0.0, 6.0) / 6.0)",
                    i64: "",
                },
                host: host_unary!(float: |a| {
                    let up = a + 3.0;
                    if up < 0.0 { 0.0 } else if up > 6.0 { 1.0 } else { up / 6.0 }
                }),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| b.to(0, || rules::inside(b, -3.0, 3.0, b.g() / 6.0))),
        ..Op::BASE
    },
    Op {
        name: "hardswish",
        doc: "Returns `x * hardsigmoid(x)`. Source: `torch.nn.functional.hardswish`.",
        search: &["activation", "mobile"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(hardswish([-3.0, 0.0, 3.0]), [0.0, 0.0, 3.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "hardswish",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(a * clamp_to(a + 3.0f, 0.0f, 6.0f) / 6.0f)",
                    f64: "(a * clamp_to(a + 3.0, 0.0, 6.0) / 6.0)",
                    i64: "",
                },
                host: host_unary!(float: |a| {
                    a * (a + 3.0).clamp(0.0, 6.0) / 6.0
                }),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| {
            b.to(0, || {
                // The gradient of nan is that of numbers above 3, as in PyTorch.
                let x = b.x(0);
                // The factor is finite where it is not chosen, or its own gradient would be nan.
                let near = x.call("clamp", &[Arg::Float(-3.0), Arg::Float(3.0)]);
                let low = b.select(&x.le(-3.0), 0.0, b.g() * (near / 3.0 + 0.5));
                b.select(&x.lt(3.0), low, b.g())
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "softmax",
        doc: "Returns `exp(x)` divided by its sum along `dim`, computed without overflow; halves are summed in \
              `f32`. With `dtype`, `x` is converted first; integers give `f32`. Source: `torch.softmax`.",
        search: &["probabilities", "attention", "normalise", "classes"],
        params: SOFTMAX,
        form: Form::BOTH,
        example: "assert(equal(softmax([[0.0, 0.0], [1000.0, 1000.0]], dim=1), [[0.5, 0.5], [0.5, 0.5]]))",
        run: Run::Primitive(|rt, args| softmax(rt, "softmax", &SOFTMAX_LAST, args)),
        shape: known::SAME,
        gradient: Gradient::Rule(Keeps::RESULT.or_narrower(), |b| {
            b.to(0, || {
                let y = b.y_or(|x| x.call("softmax", &[b.arg(1), b.arg(2)]));
                let weighted = b.g() * &y;
                &weighted - y * row_sum(b, &weighted)
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "log_softmax",
        doc: "Returns the logarithm of `softmax`, accurate even where `softmax` is tiny. Source: `torch.log_softmax`.",
        search: &["log probabilities", "cross entropy", "classes"],
        params: SOFTMAX,
        form: Form::BOTH,
        example: "assert(allclose(log_softmax([0.0, 0.0], dim=0), [-0.6931472, -0.6931472]))",
        run: Run::Primitive(|rt, args| softmax(rt, "log_softmax", &LOG_SOFTMAX_LAST, args)),
        shape: known::SAME,
        gradient: Gradient::Rule(Keeps::RESULT.or_narrower(), |b| {
            let y = || b.y_or(|x| x.call("log_softmax", &[b.arg(1), b.arg(2)]));
            b.to(0, || b.g() - y().unary("exp") * row_sum(b, &b.g()));
        }),
        ..Op::BASE
    },
    Op {
        name: "layer_norm",
        doc: "Shifts and scales to mean 0 and variance 1 over the last dimensions (`normalized_shape`), then \
              multiplies by `weight` and adds `bias` where they are given. The variance is the biased one; \
              halves compute in `f32`. Source: `torch.nn.functional.layer_norm`.",
        search: &["normalise", "transformer", "mean", "variance"],
        params: &[
            X,
            Param::new("normalized_shape", Kind::Dims),
            Param::or("weight", Kind::Tensor, Default::None),
            Param::or("bias", Kind::Tensor, Default::None),
            Param::or("eps", Kind::Float, Default::Float(1e-5)),
        ],
        form: Form::BOTH,
        example: "assert(allclose(layer_norm([[1.0, 3.0]], 2, eps=0), [[-1.0, 1.0]]))",
        run: Run::Primitive(layer_norm),
        gradient: Gradient::Rule(Keeps::operands(0b101), layer_norm_back),
        ..Op::BASE
    },
    Op {
        name: "rms_norm",
        doc: "Divides by the root of the mean square over the last dimensions (`normalized_shape`), then multiplies by \
              `weight` where it is given. By default `eps` is the machine epsilon of the dtype that it computes in: \
              that of `f32` for halves. Source: `torch.nn.functional.rms_norm`.",
        search: &["normalise", "transformer", "root mean square"],
        params: &[
            X,
            Param::new("normalized_shape", Kind::Dims),
            Param::or("weight", Kind::Tensor, Default::None),
            Param::or("eps", Kind::Float, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(allclose(rms_norm([[3.0, 3.0]], 2), [[1.0, 1.0]]))",
        run: Run::Primitive(rms_norm),
        gradient: Gradient::Rule(Keeps::operands(0b101), rms_norm_back),
        ..Op::BASE
    },
];

/// `(x, dim, dtype=none)`
const SOFTMAX: &[Param] = &[X, Param::new("dim", Kind::Int), Param::or("dtype", Kind::Dtype, Default::None)];

pub(super) static GELU: MapFn = MapFn {
    name: "gelu",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "gelu_of(a)", f64: "gelu_of(a)", i64: "" },
    host: host_unary!(float: |a| math::gelu(a)),
    complex: None,
};

/// `a / (1 + exp(-a))`
pub(super) static SILU: MapFn = MapFn {
    name: "silu",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(a / (1.0f + expf(-a)))", f64: "(a / (1.0 + exp(-a)))", i64: "" },
    host: host_unary!(float: |a| a / (1.0 + math::exp(-a))),
    complex: Some(&complex::SILU),
};

pub(super) static GELU_TANH: MapFn = MapFn {
    name: "gelu_tanh",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "gelu_tanh_of(a)", f64: "gelu_tanh_of(a)", i64: "" },
    host: host_unary!(
        f32: |a| 0.5 * a * (1.0 + math::tanh(0.797_884_6 * (a + 0.044_715 * (a * a * a)))),
        f64: |a| 0.5 * a * (1.0 + math::tanh(0.797_884_560_802_865_4 * (a + 0.044_715 * (a * a * a)))),
    ),
    complex: None,
};

/// `exp(a - b)`, where `b` is the maximum of the row.
pub(super) static SOFTMAX_TERM: MapFn = MapFn {
    name: "softmax_term",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "expf(a - b)", f64: "exp(a - b)", i64: "" },
    host: host_binary!(float: |a, b| math::exp(a - b)),
    complex: None,
};

/// `exp(a - b) * (1 / c)`, where `c` is the row's sum: one division per row.
static SOFTMAX_LAST: MapFn = MapFn {
    name: "softmax_last",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "(expf(a - b) * (1.0f / c))", f64: "(exp(a - b) * (1.0 / c))", i64: "" },
    host: host_ternary!(float: |a, b, c| math::exp(a - b) * (1.0 / c)),
    complex: None,
};

/// `a - b - log(c)`
static LOG_SOFTMAX_LAST: MapFn = MapFn {
    name: "log_softmax_last",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "((a - b) - logf(c))", f64: "((a - b) - log(c))", i64: "" },
    host: host_ternary!(float: |a, b, c| (a - b) - math::ln(c)),
    complex: None,
};

/// The square of a difference.
pub(super) static SQUARE_OFF: MapFn = MapFn {
    name: "square_off",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "((a - b) * (a - b))", f64: "((a - b) * (a - b))", i64: "" },
    host: host_binary!(float: |a, b| (a - b) * (a - b)),
    complex: None,
};

/// `(a - b) / sqrt(c + d)`: mean `b`, variance `c`, `eps` `d`.
pub(super) static STANDARDISE: MapFn = MapFn {
    name: "standardise",
    arity: 4,
    select: false,
    cuda: CudaText {
        f32: "((a - b) * (1.0f / sqrtf(c + d)))",
        f64: "((a - b) * (1.0 / sqrt(c + d)))",
        i64: "",
    },
    host: host_quaternary!(float: |a, b, c, d| (a - b) * (1.0 / (c + d).sqrt())),
    complex: None,
};

/// `a / sqrt(b + c)`: mean square `b`, `eps` `c`.
static RESCALE: MapFn = MapFn {
    name: "rescale",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "(a * (1.0f / sqrtf(b + c)))", f64: "(a * (1.0 / sqrt(b + c)))", i64: "" },
    host: host_ternary!(float: |a, b, c| a * (1.0 / (b + c).sqrt())),
    complex: None,
};

/// Clamps to bounds converted to the dtype of `x`, which is the result's dtype; integer bounds are truncated.
fn clamped(rt: &mut Runtime, name: &'static str, x: &Tensor, (low, high): (Scalar, Scalar)) -> Result<Out> {
    error::refuse_bool(name, 0, x)?;
    let dtype = x.dtype();
    if dtype.is_complex() {
        return Err(crate::plan::error::not_over_complex(name, dtype));
    }
    let compute = if dtype.is_int() { Dtype::I64 } else { dtype };
    let bound = |index: usize, value: Scalar| {
        check_number(index, value, compute)?;
        let value = if dtype.is_int() { Scalar::Int(value.as_i64()) } else { value };
        check_bound(index, value, dtype, index == 1)?;
        Ok(MapArg::Number(value))
    };
    let operands = [MapArg::Tensor(x), bound(1, low)?, bound(2, high)?];
    rt.map_ordered(name, &CLAMP, &operands, compute, dtype).map(Out::Tensor)
}

fn gelu(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = MapArg::Tensor(args.tensor(0)?);
    let [full, half] = match args.text(1) {
        None | Some("none") => [&GELU, &GELU_HALF],
        Some("tanh") => [&GELU_TANH, &GELU_TANH_HALF],
        Some(other) => return Err(error::not_one_of(1, "approximate", other, &["none", "tanh"])),
    };
    map(rt, "gelu", &for_dtype(args, full, half)?, &[x]).map(Out::Tensor)
}

/// The common part of softmax and its logarithm. `last` takes the element, the row's maximum and the row's
/// sum of exponentials. Rows too long for one kernel take three passes over `x`, with no temporary of its
/// size.
fn softmax(rt: &mut Runtime, name: &'static str, last: &'static MapFn, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    let x = match args.dtype(2) {
        Some(dtype) if !dtype.is_float() => return Err(error::not_a_float(name, 2, dtype)),
        Some(dtype) if dtype != given.dtype() => &rt.cast(given, dtype)?,
        _ => given,
    };
    let dtype = if x.dtype().is_float() { x.dtype() } else { Dtype::F32 };
    let wide = dtype.accumulator();
    let dim = super::dims::one(1, args.int(1)?, x.rank())?;
    let row = if x.rank() == 0 { &x.with_layout(one_dimension(x)) } else { x };
    let greatest = rt.reduce(row, Reduction::new(name, &MAX, &[dim], wide, wide).keepdim(true))?;
    let (element, most) = (MapArg::Tensor(row), MapArg::Tensor(&greatest));
    let powers = rt.map(name, &SOFTMAX_TERM, &[element, most], wide, wide)?;
    let sum = rt.reduce(&powers, Reduction::new(name, &SUM, &[dim], wide, wide).keepdim(true))?;
    drop(powers);
    let result = rt.map(name, last, &[element, most, MapArg::Tensor(&sum)], wide, dtype)?;
    Ok(Out::Tensor(if x.rank() == 0 { result.with_layout(Layout::contiguous(&[])) } else { result }))
}

/// A tensor without dimensions, seen as a vector of one element.
fn one_dimension(x: &Tensor) -> Layout {
    Layout { offset: x.layout().offset, ..Layout::contiguous(&[1]) }
}

/// The last dimensions; checks that they, and the given `parameters`, have the extents given by the caller.
fn normalised_dims(x: &Tensor, args: &Args<'_>, parameters: &[usize]) -> Result<Vec<usize>> {
    let stated = args.ints(1).unwrap_or(&[]);
    let first = x.rank().checked_sub(stated.len()).filter(|_| !stated.is_empty());
    let Some(first) = first else { return Err(error::not_the_last_extents(stated, x)) };
    let same = |(&want, &have): (&i64, &usize)| usize::try_from(want) == Ok(have);
    if !stated.iter().zip(&x.shape()[first..]).all(same) {
        return Err(error::not_the_last_extents(stated, x));
    }
    super::norms::of_shape(args, parameters, &x.shape()[first..]).map(|()| (first..x.rank()).collect())
}

/// The mean and the variance over dimensions, which keep extent 1.
pub(super) fn mean_and_variance(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    dims: &[usize],
    dtype: Dtype,
) -> Result<(Tensor, Tensor)> {
    let average = Reduction::new(name, &MEAN, dims, dtype, dtype).keepdim(true);
    let mean = rt.reduce(x, average)?;
    let squares = rt.map(name, &SQUARE_OFF, &[MapArg::Tensor(x), MapArg::Tensor(&mean)], dtype, dtype)?;
    let variance = rt.reduce(&squares, average)?;
    Ok((mean, variance))
}

fn layer_norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "layer_norm";
    let x = args.tensor(0)?;
    let dims = normalised_dims(x, args, &[2, 3])?;
    let dtype = if x.dtype().is_float() { x.dtype() } else { Dtype::F32 };
    let wide = dtype.accumulator();
    let (mean, variance) = mean_and_variance(rt, NAME, x, &dims, wide)?;
    let eps = MapArg::Number(Scalar::Float(args.float(4)?));
    let operands = [MapArg::Tensor(x), MapArg::Tensor(&mean), MapArg::Tensor(&variance), eps];
    affine(rt, NAME, &STANDARDISE, &operands, (args.opt_tensor(2), args.opt_tensor(3)), (wide, dtype))
}

fn rms_norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "rms_norm";
    let x = args.tensor(0)?;
    let dims = normalised_dims(x, args, &[2])?;
    if x.dtype().is_complex() {
        return complex_rms_norm(rt, x, &dims, args);
    }
    let dtype = if x.dtype().is_float() { x.dtype() } else { Dtype::F32 };
    let wide = dtype.accumulator();
    let element = MapArg::Tensor(x);
    let squares = rt.map(NAME, &super::arith::SQUARE, &[element], wide, wide)?;
    let mean = rt.reduce(&squares, Reduction::new(NAME, &MEAN, &dims, wide, wide).keepdim(true))?;
    drop(squares);
    let eps = if args.is_given(3) { args.float(3)? } else { wide.epsilon() };
    let operands = [element, MapArg::Tensor(&mean), MapArg::Number(Scalar::Float(eps))];
    affine(rt, NAME, &RESCALE, &operands, (args.opt_tensor(2), None), (wide, dtype))
}

/// `rms_norm` of complex numbers; their squares are complex too.
fn complex_rms_norm(rt: &mut Runtime, x: &Tensor, dims: &[usize], args: &Args<'_>) -> Result<Out> {
    let eps = if args.is_given(3) { args.float(3)? } else { x.dtype().epsilon() };
    let dims = dims.iter().map(|&dim| dim as i64).collect();
    let squares = call(rt, "square", &[t(x)])?;
    let mean = call(rt, "mean", &[t(&squares), Arg::Ints(dims), Arg::Bool(true)])?;
    let mean = call(rt, "add", &[t(&mean), Arg::Float(eps)])?;
    let scale = call(rt, "rsqrt", &[t(&mean)])?;
    let out = call(rt, "mul", &[t(x), t(&scale)])?;
    match args.opt_tensor(2) {
        Some(weight) => call(rt, "mul", &[t(&out), t(weight)]).map(Out::Tensor),
        None => Ok(Out::Tensor(out)),
    }
}

/// `f(operands) * weight + bias`, computed in the dtype `wide` and rounded to `dtype` once.
fn affine(
    rt: &mut Runtime,
    name: &'static str,
    f: &'static MapFn,
    operands: &[MapArg<'_>],
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    (wide, dtype): (Dtype, Dtype),
) -> Result<Out> {
    let steps = [(&super::arith::MUL, weight), (&super::arith::ADD, bias)];
    let mut left = steps.iter().filter(|(_, operand)| operand.is_some()).count();
    let mut result = rt.map(name, f, operands, wide, if left == 0 { dtype } else { wide })?;
    for (step, operand) in steps {
        let Some(operand) = operand else { continue };
        left -= 1;
        let operands = [MapArg::Tensor(&result), MapArg::Tensor(operand)];
        result = rt.map(name, step, &operands, wide, if left == 0 { dtype } else { wide })?;
    }
    Ok(Out::Tensor(result))
}

/// `exp(x)` where `x` is at most 0. Elsewhere the result is 1 and its gradient 0, so neither is infinite.
fn power_below_0<'a>(x: &Var<'a>) -> Var<'a> {
    x.call("clamp_max", &[Arg::Int(0)]).unary("exp")
}

/// The sums along the dimension of `softmax`.
fn row_sum<'a>(b: &'a Back<'_>, x: &Var<'a>) -> Var<'a> {
    match (x.rank(), b.arg(1)) {
        (0, _) => x.clone(),
        (_, Arg::Int(dim)) => x.sum(&[dim], true),
        _ => x.clone(),
    }
}

fn softsign_back(b: &Back<'_>) {
    b.to(0, || {
        let x = b.x(0);
        let size = x.unary("abs") + 1.0;
        if !x.dtype().is_complex() {
            return b.g() / size.square();
        }
        let of_size = (b.g() * x.conj() / size.square()).unary("real");
        b.g() / size - complex::unit(b, &x) * of_size
    });
}

fn gelu_back(b: &Back<'_>) {
    b.to(0, || {
        let x = b.x(0).wide();
        let slope = if b.args().text(1) == Some("tanh") {
            let scale = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
            let inner = (x.square() * &x * 0.044_715 + &x) * scale;
            let inner_slope = (x.square() * (3.0 * 0.044_715) + 1.0) * scale;
            let t = inner.unary("tanh");
            (&t + 1.0) * 0.5 + &x * 0.5 * (1.0 - t.square()) * inner_slope
        } else {
            let below = (&x * -std::f64::consts::FRAC_1_SQRT_2).unary("erfc") * 0.5;
            let density = 0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
            below + &x * (x.square() * -0.5).unary("exp") * density
        };
        b.g().wide() * slope
    });
}

/// The common parts of the gradients of norms: the last dimensions, and the dtype to compute in.
fn normalised<'a>(b: &'a Back<'_>) -> (Vec<i64>, impl Fn(Var<'a>) -> Var<'a>) {
    let (rank, dtype) = (b.result(0).shape.len() as i64, b.result(0).dtype);
    let count = b.args().ints(1).map_or(0, <[i64]>::len) as i64;
    ((rank - count..rank).collect(), move |x: Var<'a>| x.to(dtype.accumulator()))
}

fn row_mean<'a>(x: &Var<'a>, dims: &[i64]) -> Var<'a> {
    x.call("mean", &[Arg::Ints(dims.to_vec()), Arg::Bool(true)])
}

/// `x` standardised to mean 0 and variance 1 over dimensions, and the scale factor.
fn standardised<'a>(x: &Var<'a>, dims: &[i64], eps: Arg) -> (Var<'a>, Var<'a>) {
    let off = x - row_mean(x, dims);
    let scale = (row_mean(&off.square(), dims) + eps).unary("rsqrt");
    (off * &scale, scale)
}

/// The gradient of `x`, given the gradient `g` of the standardised `x` (mean 0 and variance 1 over dimensions).
pub(super) fn standardised_gradient<'a>(g: Var<'a>, x: &Var<'a>, dims: &[i64], eps: Arg) -> Var<'a> {
    let (y, scale) = standardised(x, dims, eps);
    through_standardised(&g, &y, scale, dims)
}

fn through_standardised<'a>(g: &Var<'a>, y: &Var<'a>, scale: Var<'a>, dims: &[i64]) -> Var<'a> {
    let along = row_mean(&(g * y), dims);
    (g - row_mean(g, dims) - y * along) * scale
}

fn layer_norm_back(b: &Back<'_>) {
    let (dims, wide) = normalised(b);
    b.to(3, || b.g());
    if !b.wants(0) && !b.wants(2) {
        return;
    }
    let (y, scale) = standardised(&wide(b.x(0)), &dims, b.arg(4));
    let g = wide(b.g());
    b.to(0, || {
        let g = if b.has_x(2) { &g * wide(b.x(2)) } else { g.clone() };
        through_standardised(&g, &y, scale, &dims)
    });
    b.to(2, || g * y);
}

fn rms_norm_back(b: &Back<'_>) {
    let (dims, wide) = normalised(b);
    let eps = b.args().float(3).unwrap_or(b.result(0).dtype.accumulator().epsilon());
    let (x, g) = (wide(b.x(0)), wide(b.g()));
    let scale = (row_mean(&x.square(), &dims) + eps).unary("rsqrt");
    b.to(0, || {
        let g = if b.has_x(2) { &g * wide(b.x(2)).conj() } else { g.clone() };
        let along = row_mean(&(&g * x.conj()), &dims);
        g * scale.conj() - (scale.square() * &scale * &x).conj() * along
    });
    b.to(2, || g * (x * scale).conj());
}

/// `max(a, 0)`; nan stays nan.
pub(super) static RELU: MapFn = MapFn {
    name: "relu",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(a <= 0.0f ? 0.0f : a)", f64: "(a <= 0.0 ? 0.0 : a)", i64: "(a < 0 ? 0 : a)" },
    host: host_unary!(float: |a| if a <= 0.0 { 0.0 } else { a }, whole: |a| a.max(0)),
    complex: None,
};
