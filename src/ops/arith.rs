//! Arithmetic: the operators `+ - * / // % **`, unary `-`, and related functions.
//!
//! Integers wrap. Integer division or remainder by zero is 0 and never traps; floats follow IEEE 754.

use super::complex::{self, unit};
use super::gradient::{Back, Var};
use super::params::{BINARY, UNARY, X, X_OR_NUMBER};
use super::signature::{Default, Kind, Param};
use super::{Arg, Form, Gradient, Keeps, MapOp, Op, Rule, Run, error, power};
use crate::kernel::host::define::{host_binary, host_quaternary, host_ternary, host_unary};
use crate::kernel::host::math;
use crate::kernel::host::quotients::{Part, divide};
use crate::kernel::{CudaText, HostMap, MapFn};

/// Rounded quotients have gradients of 0.
const DIVIDED: Keeps =
    Keeps::XY.when(|args, kept, param| args.text(2).is_none() && (kept == 1 || param == 1));
/// Both gradients need the result, and each needs its own operand.
const HYPOT_KEPT: Keeps =
    Keeps::XY.and_result().when(|_, kept, param| kept == Keeps::RESULTS || kept == param);

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "add",
        doc: "Adds elementwise: `x + other`. With `alpha`, adds `alpha * other`, rounded once per step. \
              Bools add as `or`. Source: `torch.add`.",
        search: &["plus", "sum of two", "+", "alpha", "axpy"],
        params: SCALED,
        form: Form::ALL,
        example: "assert(equal([1, 2] + 1, [2, 3]))\n\
                  assert(equal(add([1.0, 2.0], [3.0, 4.0], alpha=10), [31.0, 42.0]))",
        run: Run::Scaled(MapOp { rule: Rule::Promote, f: &ADD }, &ADD_SCALED),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g());
            b.to(1, || scaled_back(b, b.g()));
        }),
        ..Op::BASE
    },
    Op {
        name: "sub",
        aliases: &["subtract"],
        doc: "Subtracts elementwise: `x - other`. With `alpha`, subtracts `alpha * other`. Not defined for \
              bools. Source: `torch.sub`.",
        search: &["minus", "subtract", "difference", "-"],
        params: SCALED,
        form: Form::ALL,
        example: "assert(equal([5, 7] - [1, 2], [4, 5]))",
        run: Run::Scaled(MapOp { rule: Rule::NoBools, f: &SUB }, &SUB_SCALED),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g());
            b.to(1, || scaled_back(b, -b.g()));
        }),
        ..Op::BASE
    },
    Op {
        name: "mul",
        aliases: &["multiply"],
        doc: "Multiplies elementwise: `x * other`. Bools multiply as `and`. Source: `torch.mul`.",
        search: &["times", "multiply", "product", "scale", "hadamard", "*"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([1.5, 2.0] * 2, [3.0, 4.0]))",
        run: Run::Map(MapOp { rule: Rule::Promote, f: &MUL }),
        gradient: Gradient::Rule(Keeps::OTHER, |b| {
            b.to(0, || b.g() * b.x(1).conj());
            b.to(1, || b.g() * b.x(0).conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "div",
        aliases: &["divide", "true_divide"],
        doc: "Divides elementwise: `x / other`. Integers and bools divide as floats and give `f32`; for an integer \
              quotient write `//`, or `rounding_mode=\"floor\"`, or `\"trunc\"` to round towards zero; these keep \
              integers, and an integer divided by zero is 0. Source: `torch.div`.",
        search: &["divide", "true_divide", "quotient", "/", "truncate", "floor"],
        params: &[
            X_OR_NUMBER,
            Param::new("other", Kind::TensorOrNumber),
            Param::named("rounding_mode", Kind::Str, Default::None),
        ],
        form: Form::ALL,
        example: "assert(equal([1, 3] / 2, [0.5, 1.5]))\n\
                  assert(equal(div([7, -7], 2, rounding_mode=\"trunc\"), [3, -3]))",
        run: Run::Chosen(MapOp { rule: Rule::Float, f: &DIV }, |args| match args.text(2) {
            None => Ok(MapOp { rule: Rule::Float, f: &DIV }),
            Some("floor") => Ok(MapOp { rule: Rule::NotBool, f: &FLOOR_DIVIDE }),
            Some("trunc") => Ok(MapOp { rule: Rule::NotBool, f: &TRUNC_DIVIDE }),
            Some(other) => Err(error::not_one_of(2, "rounding_mode", other, &["floor", "trunc"])),
        }),
        gradient: Gradient::Rule(DIVIDED, |b| {
            if b.args().text(2).is_some() {
                // Also where the gradient of the result is infinite or nan.
                b.to(0, || b.g().zeros_like());
                b.to(1, || b.g().zeros_like());
                return;
            }
            b.to(0, || b.g() / b.x(1).conj());
            b.to(1, || -b.g() * ((b.x(0) / b.x(1)) / b.x(1)).conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "floor_divide",
        doc: "Divides elementwise and rounds down: `x // other`, as in Python. An integer divided by zero is 0. \
              Source: `torch.floor_divide`.",
        search: &["integer division", "whole quotient", "//"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([7, -7] // 2, [3, -4]))",
        run: Run::Map(MapOp { rule: Rule::NotBool, f: &FLOOR_DIVIDE }),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "remainder",
        doc: "Returns the remainder with the sign of the divisor: `x % other`, as in Python. The remainder of \
              an integer by zero is 0. Source: `torch.remainder`.",
        search: &["modulo", "mod", "rest", "%"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([7, -7] % 3, [1, 2]))",
        run: Run::Map(MapOp { rule: Rule::Elements, f: &REMAINDER }),
        gradient: Gradient::Rule(Keeps::XY.when(|_, _, param| param == 1), |b| {
            b.to(0, || b.g());
            b.to(1, || -b.g() * quotient(b, "floor"));
        }),
        ..Op::BASE
    },
    Op {
        name: "fmod",
        doc: "Returns the remainder with the sign of the dividend, as C's `fmod`. The remainder of an integer by \
              zero is 0. Source: `torch.fmod`.",
        search: &["modulo", "truncated remainder"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(fmod([7, -7], 3), [1, -1]))",
        run: Run::Map(MapOp { rule: Rule::Elements, f: &FMOD }),
        gradient: Gradient::Rule(Keeps::XY.when(|_, _, param| param == 1), |b| {
            b.to(0, || b.g());
            b.to(1, || -b.g() * quotient(b, "trunc"));
        }),
        ..Op::BASE
    },
    Op {
        name: "pow",
        doc: "Raises to a power elementwise: `x ** exponent`. Integers wrap; an integer with a negative \
              exponent is an error where the exponent is a number, and truncates (0, 1 or -1) where it is a \
              tensor. Exponents 2, 3, 0.5, -0.5, -1 and -2 are computed by products and roots. Source: \
              `torch.pow`.",
        search: &["power", "exponent", "**", "square", "cube"],
        params: &[X_OR_NUMBER, Param::new("exponent", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal([1, 2, 3] ** 2, [1, 4, 9]))\n\
                  assert(equal(pow(2.0, [3.0, -1.0]), [8.0, 0.5]))",
        run: Run::Primitive(power::pow),
        gradient: Gradient::Rule(power::KEPT, power::back),
        ..Op::BASE
    },
    Op {
        name: "neg",
        aliases: &["negative"],
        doc: "Negates elementwise: `-x`. Not defined for bools. Source: `torch.neg`.",
        search: &["negative", "minus", "sign change"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(-tensor([1, -2]), [-1, 2]))",
        run: Run::Map(MapOp { rule: Rule::NotBool, f: &NEG }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || -b.g())),
        ..Op::BASE
    },
    Op {
        name: "abs",
        aliases: &["absolute"],
        doc: "Returns the absolute value. The minimum integer of a dtype wraps to itself. Source: `torch.abs`.",
        search: &["absolute", "magnitude", "modulus"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(abs([-1.5, 2.0]), [1.5, 2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Promote,
            f: &MapFn {
                name: "abs",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "fabsf(a)", f64: "fabs(a)", i64: "(a < 0 ? (i64)(0 - (u64)a) : a)" },
                host: host_unary!(float: |a| a.abs(), whole: |a| a.wrapping_abs()),
                complex: Some(&complex::ABS),
            },
        }),
        gradient: Gradient::Rule(Keeps::X, |b| b.to(0, || b.g() * unit(b, &b.x(0)))),
        ..Op::BASE
    },
    Op {
        name: "sign",
        doc: "Returns -1, 0 or 1 by the sign, and 0 for nan. Source: `torch.sign`.",
        search: &["signum", "sgn"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(sign([-3.0, 0.0, 2.0]), [-1.0, 0.0, 1.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Promote,
            f: &MapFn {
                name: "sign",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : 0.0f)",
                    f64: "(a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : 0.0)",
                    i64: "(i64)((a > 0) - (a < 0))",
                },
                host: host_unary!(
                    float: |a| if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { 0.0 },
                    i64: |a| a.signum(),
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
    Op {
        name: "square",
        doc: "Multiplies each element by itself. Source: `torch.square`.",
        search: &["power of two", "x * x"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(square([3.0, -4.0]), [9.0, 16.0]))",
        run: Run::Map(MapOp { rule: Rule::Whole, f: &SQUARE }),
        gradient: Gradient::Derivative(|x| x * 2.0),
        ..Op::BASE
    },
    Op {
        name: "reciprocal",
        doc: "Returns `1 / x`; integers give `f32`. Source: `torch.reciprocal`.",
        search: &["inverse", "1 / x"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(reciprocal([2.0, 4.0]), [0.5, 0.25]))",
        run: Run::Map(MapOp { rule: Rule::Float, f: &RECIPROCAL }),
        gradient: Gradient::OfResult(|y| -y.square()),
        ..Op::BASE
    },
    Op {
        name: "sqrt",
        doc: "Returns the square root, correctly rounded; nan for a negative number. Source: `torch.sqrt`.",
        search: &["square root"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(sqrt([4, 9]), [2.0, 3.0]))",
        run: Run::Map(MapOp { rule: Rule::Float, f: &SQRT }),
        gradient: Gradient::OfResult(|y| 0.5 / y),
        ..Op::BASE
    },
    Op {
        name: "rsqrt",
        doc: "Returns `1 / sqrt(x)`. Source: `torch.rsqrt`.",
        search: &["reciprocal square root", "inverse square root"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(rsqrt([4.0, 16.0]), [0.5, 0.25]))",
        run: Run::Map(MapOp { rule: Rule::Float, f: &RSQRT }),
        gradient: Gradient::OfResult(|y| y.square() * y * -0.5),
        ..Op::BASE
    },
    Op {
        name: "maximum",
        doc: "Returns the larger of two elements; nan if either is nan. Source: `torch.maximum`.",
        search: &["max of two", "greater"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(maximum([1, 5], [3, 2]), [3, 5]))",
        run: Run::Map(MapOp { rule: Rule::AtLeast, f: &MAXIMUM }),
        gradient: Gradient::Rule(Keeps::XY, |b| greater_back(b, 1)),
        ..Op::BASE
    },
    Op {
        name: "minimum",
        doc: "Returns the smaller of two elements; nan if either is nan. Source: `torch.minimum`.",
        search: &["min of two", "smaller"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(minimum([1, 5], [3, 2]), [1, 2]))",
        run: Run::Map(MapOp { rule: Rule::AtMost, f: &MINIMUM }),
        gradient: Gradient::Rule(Keeps::XY, |b| smaller_back(b, 1)),
        ..Op::BASE
    },
    Op {
        name: "fmax",
        doc: "Returns the larger of two elements; a number is preferred to nan. Source: `torch.fmax`.",
        search: &["max of two", "ignore nan"],
        params: BINARY,
        form: Form::BOTH,
        example: "assert(equal(fmax([1.0, nan], [3.0, 2.0]), [3.0, 2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::AtLeast,
            f: &MapFn {
                name: "fmax",
                arity: 2,
                select: false,
                cuda: CudaText {
                    f32: "(b != b || a > b ? a : b)",
                    f64: "(b != b || a > b ? a : b)",
                    i64: "(a > b ? a : b)",
                },
                host: host_binary!(
                    float: |a, b| if b.is_nan() || a > b { a } else { b },
                    i64: |a, b| a.max(b),
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::XY, |b| {
            let first = || b.x(0).gt(b.x(1)).call("logical_or", &[b.x(1).unary("isnan").arg()]);
            let tie = || b.select(&b.x(0).eq(b.x(1)), b.g() * 0.5, 0.0);
            b.to(0, || b.select(&first(), b.g(), tie()));
            b.to(1, || b.select(&first(), 0.0, halved_on_ties(b, &b.x(0), &b.x(1))));
        }),
        ..Op::BASE
    },
    Op {
        name: "fmin",
        doc: "Returns the smaller of two elements; a number is preferred to nan. Source: `torch.fmin`.",
        search: &["min of two", "ignore nan"],
        params: BINARY,
        form: Form::BOTH,
        example: "assert(equal(fmin([1.0, nan], [3.0, 2.0]), [1.0, 2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::AtMost,
            f: &MapFn {
                name: "fmin",
                arity: 2,
                select: false,
                cuda: CudaText {
                    f32: "(b != b || a < b ? a : b)",
                    f64: "(b != b || a < b ? a : b)",
                    i64: "(a < b ? a : b)",
                },
                host: host_binary!(
                    float: |a, b| if b.is_nan() || a < b { a } else { b },
                    i64: |a, b| a.min(b),
                ),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::XY, |b| {
            let first = || b.x(0).lt(b.x(1)).call("logical_or", &[b.x(1).unary("isnan").arg()]);
            let tie = || b.select(&b.x(0).eq(b.x(1)), b.g() * 0.5, 0.0);
            b.to(0, || b.select(&first(), b.g(), tie()));
            b.to(1, || b.select(&first(), 0.0, halved_on_ties(b, &b.x(0), &b.x(1))));
        }),
        ..Op::BASE
    },
    Op {
        name: "lerp",
        doc: "Interpolates from `x` to `end` by `weight` (0 is `x`, 1 is `end`, both exactly). \
              Source: `torch.lerp`.",
        search: &["interpolate", "mix", "blend", "moving average"],
        params: &[X, Param::new("end", Kind::TensorOrNumber), Param::new("weight", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(lerp([0.0, 10.0], [10.0, 20.0], 0.5), [5.0, 15.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "lerp",
                arity: 3,
                select: false,
                cuda: CudaText {
                    f32: "(fabsf(c) < 0.5f ? a + c * (b - a) : b - (b - a) * (1.0f - c))",
                    f64: "(fabs(c) < 0.5 ? a + c * (b - a) : b - (b - a) * (1.0 - c))",
                    i64: "",
                },
                host: host_ternary!(
                    float: |a, b, c| if c.abs() < 0.5 { a + c * (b - a) } else { b - (b - a) * (1.0 - c) },
                ),
                complex: Some(&complex::LERP),
            },
        }),
        // The gradients of the ends need the weight, and that of the weight needs the ends.
        gradient: Gradient::Rule(Keeps::ALL.when(|_, kept, param| (kept == 2) != (param == 2)), |b| {
            b.to(0, || b.g() * (1.0 - b.x(2)).conj());
            b.to(1, || b.g() * b.x(2).conj());
            b.to(2, || b.g() * (b.x(1) - b.x(0)).conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "addcmul",
        doc: "Returns `x + value * tensor1 * tensor2`. Source: `torch.addcmul`.",
        search: &["multiply add", "fused", "optimizer step"],
        params: ADDC,
        form: Form::ALL,
        example: "assert(equal(addcmul([1.0], [2.0], [3.0], value=10), [61.0]))",
        run: Run::Map(MapOp {
            rule: Rule::NotBool,
            f: &MapFn {
                name: "addcmul",
                arity: 4,
                select: false,
                cuda: CudaText {
                    f32: "(a + d * b * c)",
                    f64: "(a + d * b * c)",
                    i64: "(i64)((u64)a + (u64)d * (u64)b * (u64)c)",
                },
                host: host_quaternary!(
                    float: |a, b, c, d| a + d * b * c,
                    i64: |a, b, c, d| a.wrapping_add(d.wrapping_mul(b).wrapping_mul(c)),
                ),
                complex: Some(&complex::ADDCMUL),
            },
        }),
        // The gradient of each factor needs the other factor.
        gradient: Gradient::Rule(Keeps::operands(0b110).when(|_, kept, param| kept + param == 3), |b| {
            b.to(0, || b.g());
            b.to(1, || b.g() * (b.x(2) * b.arg(3)).conj());
            b.to(2, || b.g() * (b.x(1) * b.arg(3)).conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "addcdiv",
        doc: "Returns `x + value * tensor1 / tensor2`; integers compute as `f32`. Source: `torch.addcdiv`.",
        search: &["divide add", "optimizer step", "adam"],
        params: ADDC,
        form: Form::ALL,
        example: "assert(equal(addcdiv([1.0], [6.0], [3.0], value=10), [21.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "addcdiv",
                arity: 4,
                select: false,
                cuda: CudaText { f32: "(a + d * (b / c))", f64: "(a + d * (b / c))", i64: "" },
                host: host_quaternary!(float: |a, b, c, d| a + d * (b / c)),
                complex: Some(&complex::ADDCDIV),
            },
        }),
        // The gradient of the divisor needs the dividend, and both need the divisor.
        gradient: Gradient::Rule(Keeps::operands(0b110).when(|_, kept, param| kept + param > 2), |b| {
            b.to(0, || b.g());
            b.to(1, || b.g() * (b.x(2).reciprocal() * b.arg(3)).conj());
            b.to(2, || -b.g() * (b.x(1) * b.arg(3) / b.x(2).square()).conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "hypot",
        doc: "Returns `sqrt(x^2 + other^2)` without overflow. Source: `torch.hypot`.",
        search: &["euclidean", "length", "distance"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(hypot([3.0], [4.0]), [5.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "hypot",
                arity: 2,
                select: false,
                cuda: CudaText { f32: "hypotf(a, b)", f64: "hypot(a, b)", i64: "" },
                host: host_binary!(float: |a, b| math::hypot(a, b)),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(HYPOT_KEPT, |b| {
            b.to(0, || b.g() * (b.x(0) / b.y()));
            b.to(1, || b.g() * (b.x(1) / b.y()));
        }),
        ..Op::BASE
    },
    Op {
        name: "copysign",
        doc: "Returns the magnitude of `x` with the sign of `other`. Source: `torch.copysign`.",
        search: &["sign transfer"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(copysign([1.0, -2.0], [-1.0, 1.0]), [-1.0, 2.0]))",
        run: Run::Map(MapOp {
            rule: Rule::Float,
            f: &MapFn {
                name: "copysign",
                arity: 2,
                select: false,
                cuda: CudaText { f32: "copysignf(a, b)", f64: "copysign(a, b)", i64: "" },
                host: host_binary!(float: |a, b| a.copysign(b)),
                complex: None,
            },
        }),
        gradient: Gradient::Rule(Keeps::X.and_result().when(|_, _, param| param == 0), |b| {
            b.to(0, || b.g() * (b.x(0).unary("sign") * b.y().unary("sign")));
            b.to(1, || b.g().zeros_like());
        }),
        ..Op::BASE
    },
];

/// `(x, other, *, alpha=1)`
const SCALED: &[Param] = &[
    X_OR_NUMBER,
    Param::new("other", Kind::TensorOrNumber),
    Param::named("alpha", Kind::Number, Default::Int(1)),
];

/// `(x, tensor1, tensor2, *, value=1)`
const ADDC: &[Param] = &[
    X,
    Param::new("tensor1", Kind::Tensor),
    Param::new("tensor2", Kind::Tensor),
    Param::named("value", Kind::Number, Default::Int(1)),
];

/// `a + b`
pub static ADD: MapFn = MapFn {
    name: "add",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(a + b)", f64: "(a + b)", i64: "(i64)((u64)a + (u64)b)" },
    host: host_binary!(float: |a, b| a + b, whole: |a, b| a.wrapping_add(b)),
    complex: Some(&complex::ADD),
};

static ADD_SCALED: MapFn = MapFn {
    name: "add_scaled",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "(a + c * b)", f64: "(a + c * b)", i64: "(i64)((u64)a + (u64)c * (u64)b)" },
    host: host_ternary!(
        float: |a, b, c| a + c * b,
        i64: |a, b, c| a.wrapping_add(c.wrapping_mul(b)),
    ),
    complex: Some(&complex::ADD_SCALED),
};

/// `a - b`
pub static SUB: MapFn = MapFn {
    name: "sub",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(a - b)", f64: "(a - b)", i64: "(i64)((u64)a - (u64)b)" },
    host: host_binary!(float: |a, b| a - b, whole: |a, b| a.wrapping_sub(b)),
    complex: Some(&complex::SUB),
};

static SUB_SCALED: MapFn = MapFn {
    name: "sub_scaled",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "(a - c * b)", f64: "(a - c * b)", i64: "(i64)((u64)a - (u64)c * (u64)b)" },
    host: host_ternary!(
        float: |a, b, c| a - c * b,
        i64: |a, b, c| a.wrapping_sub(c.wrapping_mul(b)),
    ),
    complex: Some(&complex::SUB_SCALED),
};

/// `a * b`
pub static MUL: MapFn = MapFn {
    name: "mul",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(a * b)", f64: "(a * b)", i64: "(i64)((u64)a * (u64)b)" },
    host: host_binary!(float: |a, b| a * b, whole: |a, b| a.wrapping_mul(b)),
    complex: Some(&complex::MUL),
};

/// `a / b`
pub static DIV: MapFn = MapFn {
    name: "div",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(a / b)", f64: "(a / b)", i64: "" },
    host: host_binary!(float: |a, b| a / b),
    complex: Some(&complex::DIV),
};

/// The quotient, rounded towards zero; an integer divided by zero is 0.
pub static TRUNC_DIVIDE: MapFn = MapFn {
    name: "trunc_divide",
    arity: 2,
    select: false,
    cuda: CudaText {
        f32: "truncf(a / b)",
        f64: "trunc(a / b)",
        i64: "(b == 0 ? 0 : b == -1 ? (i64)(0 - (u64)a) : a / b)",
    },
    host: host_binary!(
        float: |a, b| (a / b).trunc(),
        i64: |a, b| if b == 0 { 0 } else { a.wrapping_div(b) },
    ),
    complex: None,
};

static FLOOR_DIVIDE: MapFn = MapFn {
    name: "floor_divide",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "floor_divide(a, b)", f64: "floor_divide(a, b)", i64: "floor_divide(a, b)" },
    host: &|args, mut out| divide(args, &mut out, Part::Quotient) || FLOOR_DIVIDE_EACH(args, out),
    complex: None,
};

static FLOOR_DIVIDE_EACH: HostMap = host_binary!(
    float: |a, b| {
        let rest = math::fmod(a, b);
        let whole = (a - rest) / b - if rest != 0.0 && (b < 0.0) != (rest < 0.0) { 1.0 } else { 0.0 };
        let down = whole.floor();
        let near = if whole - down > 0.5 { down + 1.0 } else { down };
        if b == 0.0 {
            a / b
        } else if whole != 0.0 {
            near
        } else {
            (0.0 * a).copysign(a / b)
        }
    },
    whole: |a, b| {
        if b == 0 {
            0
        } else {
            let whole = a.wrapping_div(b);
            if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { whole - 1 } else { whole }
        }
    },
);

static REMAINDER: MapFn = MapFn {
    name: "remainder",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "remainder_of(a, b)", f64: "remainder_of(a, b)", i64: "remainder_of(a, b)" },
    host: &|args, mut out| divide(args, &mut out, Part::Rest) || REMAINDER_EACH(args, out),
    complex: None,
};

static REMAINDER_EACH: HostMap = host_binary!(
    float: |a, b| {
        let rest = math::fmod(a, b);
        if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
    },
    i64: |a, b| {
        if b == 0 {
            0
        } else {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
    },
);

static FMOD: MapFn = MapFn {
    name: "fmod",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "fmodf(a, b)", f64: "fmod(a, b)", i64: "(b == 0 || b == -1 ? 0 : a % b)" },
    host: host_binary!(
        float: |a, b| math::fmod(a, b),
        i64: |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) },
    ),
    complex: None,
};

static NEG: MapFn = MapFn {
    name: "neg",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(-a)", f64: "(-a)", i64: "(i64)(0 - (u64)a)" },
    host: host_unary!(float: |a| -a, whole: |a| a.wrapping_neg()),
    complex: Some(&complex::NEG),
};

/// `a * a`
pub static SQUARE: MapFn = MapFn {
    name: "square",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(a * a)", f64: "(a * a)", i64: "(i64)((u64)a * (u64)a)" },
    host: host_unary!(float: |a| a * a, whole: |a| a.wrapping_mul(a)),
    complex: Some(&complex::SQUARE),
};

pub static RECIPROCAL: MapFn = MapFn {
    name: "reciprocal",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(1.0f / a)", f64: "(1.0 / a)", i64: "" },
    host: host_unary!(float: |a| 1.0 / a),
    complex: Some(&complex::RECIPROCAL),
};

pub static SQRT: MapFn = MapFn {
    name: "sqrt",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "sqrtf(a)", f64: "sqrt(a)", i64: "" },
    host: host_unary!(float: |a| a.sqrt()),
    complex: Some(&complex::SQRT),
};

pub static RSQRT: MapFn = MapFn {
    name: "rsqrt",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(1.0f / sqrtf(a))", f64: "(1.0 / sqrt(a))", i64: "" },
    host: host_unary!(float: |a| 1.0 / a.sqrt()),
    complex: Some(&complex::RSQRT),
};

/// The maximum; nan if either is nan.
pub static MAXIMUM: MapFn = MapFn {
    name: "maximum",
    arity: 2,
    select: false,
    cuda: CudaText {
        f32: "(a != a || a > b ? a : b)",
        f64: "(a != a || a > b ? a : b)",
        i64: "(a > b ? a : b)",
    },
    host: host_binary!(float: |a, b| if a.is_nan() || a > b { a } else { b }, whole: |a, b| a.max(b)),
    complex: None,
};

/// The minimum; nan if either is nan.
pub static MINIMUM: MapFn = MapFn {
    name: "minimum",
    arity: 2,
    select: false,
    cuda: CudaText {
        f32: "(a != a || a < b ? a : b)",
        f64: "(a != a || a < b ? a : b)",
        i64: "(a < b ? a : b)",
    },
    host: host_binary!(float: |a, b| if a.is_nan() || a < b { a } else { b }, whole: |a, b| a.min(b)),
    complex: None,
};

/// The gradient of the second operand of `add`, whose factor is `alpha`.
fn scaled_back<'a>(b: &'a Back<'_>, g: Var<'a>) -> Var<'a> {
    match b.arg(2) {
        Arg::None | Arg::Int(1) => g,
        alpha => g * alpha,
    }
}

/// The rounded quotient of the operands.
fn quotient<'a>(b: &'a Back<'_>, mode: &str) -> Var<'a> {
    b.op("div", &[b.x(0).arg(), b.x(1).arg(), Arg::Str(mode.into())])
}

/// Each of two equal operands gets half of the gradient.
fn halved_on_ties<'a>(b: &'a Back<'_>, x: &Var<'a>, other: &Var<'a>) -> Var<'a> {
    b.select(&x.eq(other), b.g() * 0.5, b.g())
}

/// The gradient of the maximum of the first operand and the operand of parameter `other`.
pub(super) fn greater_back(b: &Back<'_>, other: usize) {
    let (x, y) = (|| b.x(0), || b.x(other));
    b.to(0, || b.select(&x().lt(y()), 0.0, halved_on_ties(b, &x(), &y())));
    b.to(other, || b.select(&x().gt(y()), 0.0, halved_on_ties(b, &x(), &y())));
}

/// The gradient of the minimum of the first operand and the operand of parameter `other`.
pub(super) fn smaller_back(b: &Back<'_>, other: usize) {
    let (x, y) = (|| b.x(0), || b.x(other));
    b.to(0, || b.select(&x().gt(y()), 0.0, halved_on_ties(b, &x(), &y())));
    b.to(other, || b.select(&x().lt(y()), 0.0, halved_on_ties(b, &x(), &y())));
}
