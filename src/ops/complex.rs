//! Complex numbers: construction, parts and arithmetic.
//!
//! An operation over real numbers accepts complex operands if its function names a complex version
//! ([`MapFn::complex`]); others reject them. A complex tensor is an array of pairs, so its parts are views of the same
//! memory, and parts are summed separately.

use super::composed::{call, t};
use super::gradient::{Back, Var};
use super::known;
use super::params::{UNARY, X};
use super::shape::MAX_RANK;
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, error};
use crate::array::{Dims, Dtype, Layout, Operand, Strides, result_type};
use crate::base::Result;
use crate::kernel::host::complex::{self as number, C64, C128};
use crate::kernel::host::define::{host_map, host_unary};
use crate::kernel::{COMPLEX, ComplexFn, CudaText, HostMap, MapFn};
use crate::plan::error::not_over_complex;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "complex",
        doc: "Makes complex numbers from real and imaginary parts, which broadcast: `c128` of `f64`, `c64` of all \
              others. Script numbers stay real; this is how a complex one is written. Source: `torch.complex`.",
        search: &["imaginary", "i", "j", "c64", "c128", "cartesian"],
        params: &[Param::new("real", Kind::TensorOrNumber), Param::new("imag", Kind::TensorOrNumber)],
        form: Form::FUNCTION,
        example: "let z = complex([1.0, 3.0], [2.0, -4.0])\n\
                  assert(z.dtype == c64)\n\
                  assert(equal(z * complex(0, 1), complex([-2.0, 4.0], [1.0, 3.0])))",
        run: Run::Primitive(|rt, args| made(rt, "complex", &COMPLEX, args)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().unary("real"));
            b.to(1, || b.g().unary("imag"));
        }),
        ..Op::BASE
    },
    Op {
        name: "polar",
        doc: "Makes complex numbers from absolute values and angles, which broadcast. Source: `torch.polar`.",
        search: &["phase", "argument", "magnitude", "cis", "euler"],
        params: &[Param::new("abs", Kind::TensorOrNumber), Param::new("angle", Kind::TensorOrNumber)],
        form: Form::FUNCTION,
        example: "assert(allclose(polar([2.0], [math.pi / 2]), complex([0.0], [2.0]), atol=1e-6))",
        run: Run::Primitive(|rt, args| made(rt, "polar", &POLAR, args)),
        gradient: Gradient::Rule(
            Keeps::Y.and_result().when(|_, kept, param| (kept == 1) == (param == 0)),
            |b| {
                b.to(0, || b.g() * b.op("polar", &[Arg::Float(1.0), b.x(1).arg()]).conj());
                b.to(1, || (b.g() * b.y().conj()).unary("imag"));
            },
        ),
        ..Op::BASE
    },
    Op {
        name: "real",
        doc: "Returns the real part: a view of a complex tensor, so that writing to it writes to the tensor; any other \
              tensor is returned itself. `x.real` is the same. Source: `torch.real`.",
        search: &["part", "complex", "view"],
        params: UNARY,
        form: Form::FUNCTION,
        example: "assert(equal(real(complex([1.0], [2.0])), [1.0]))",
        run: Run::Primitive(|_, args| real(args.tensor(0)?).map(Out::Tensor)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "imag",
        doc: "Returns the imaginary part of a complex tensor; a view. `x.imag` is the same. Source: `torch.imag`.",
        search: &["imaginary", "part", "complex", "view"],
        params: UNARY,
        form: Form::FUNCTION,
        example: "let z = zeros(2, dtype=c64)\nz.imag.fill_(3)\nassert(equal(imag(z), [3.0, 3.0]))",
        run: Run::Primitive(|_, args| imag(args.tensor(0)?).map(Out::Tensor)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.op("complex", &[Arg::Float(0.0), b.g().arg()]))
        }),
        ..Op::BASE
    },
    Op {
        name: "conj",
        doc: "Returns the complex conjugate; a real tensor is returned itself. Source: `torch.conj`.",
        search: &["conjugate", "complex"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(complex([1.0], [2.0]).conj(), complex([1.0], [-2.0])))",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            match x.dtype().is_complex() {
                true => conjugate(rt, "conj", x).map(Out::Tensor),
                false => Ok(Out::Tensor(x.clone())),
            }
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().conj())),
        ..Op::BASE
    },
    Op {
        name: "conj_physical",
        doc: "Returns the complex conjugate, as `conj` does; `conj_physical_` conjugates a tensor in place. Source: \
              `torch.conj_physical`.",
        search: &["conjugate", "complex"],
        params: UNARY,
        form: Form::ALL,
        example: "let z = complex([1.0], [2.0])\nz.conj_physical_()\nassert(equal(z, complex([1.0], [-2.0])))",
        run: Run::Composed(|rt, args| call(rt, "conj", &[t(args.tensor(0)?)]).map(Out::Tensor)),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "angle",
        doc: "Returns the angle in radians, from -pi to pi: for a real number 0, or pi where it is negative. Source: \
              `torch.angle`.",
        search: &["phase", "argument", "atan2", "complex"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(allclose(angle(complex([0.0, 1.0], [1.0, 0.0])), [math.pi / 2, 0.0]))\n\
                  assert(allclose(angle([-2.0]), [math.pi]))",
        run: Run::Map(MapOp { rule: Rule::Float, f: &ANGLE }),
        gradient: Gradient::Rule(Keeps::X, angle_back),
        ..Op::BASE
    },
    Op {
        name: "view_as_real",
        doc: "Returns a complex tensor as real numbers with a last dimension of two, the real part first; a view. \
              Source: `torch.view_as_real`.",
        search: &["complex", "parts", "interleaved", "pairs"],
        params: UNARY,
        form: Form::FUNCTION,
        example: "assert(equal(view_as_real(complex([1.0], [2.0])), [[1.0, 2.0]]))",
        run: Run::Primitive(|_, args| as_real(args.tensor(0)?, "view_as_real").map(Out::Tensor)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().unary("clone").unary("view_as_complex"))
        }),
        ..Op::BASE
    },
    Op {
        name: "view_as_complex",
        doc: "Returns real numbers whose last dimension holds pairs as complex numbers; a view. Needs `f32` or `f64`, \
              pairs side by side in memory, and even other strides. Source: `torch.view_as_complex`.",
        search: &["complex", "pairs", "interleaved"],
        params: &[X],
        form: Form::FUNCTION,
        example: "let z = view_as_complex(tensor([[1.0, 2.0], [3.0, 4.0]]))\n\
                  assert(equal(z, complex([1.0, 3.0], [2.0, 4.0])))",
        run: Run::Primitive(|_, args| as_complex(args.tensor(0)?).map(Out::Tensor)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().unary("view_as_real"))),
        ..Op::BASE
    },
];

const fn twin(name: &'static str, arity: u8, text: &'static str, host: HostMap) -> ComplexFn {
    let f = MapFn { name, arity, select: false, cuda: CudaText::complex(text), host, complex: None };
    ComplexFn { f, to_real: false }
}

const fn to_real(name: &'static str, text: &'static str, host: HostMap) -> ComplexFn {
    ComplexFn { to_real: true, ..twin(name, 1, text, host) }
}

/// Host code for both widths.
macro_rules! both {
    (|$($a:ident),+| $e:expr) => {
        host_map!(($($a: C64),+) -> C64: $e, ($($a: C128),+) -> C128: $e)
    };
    (real: |$a:ident| $e:expr) => {
        host_map!(($a: C64) -> f32: $e, ($a: C128) -> f64: $e)
    };
    (test: |$($a:ident),+| $e:expr) => {
        host_map!(($($a: C64),+) -> i64: i64::from($e), ($($a: C128),+) -> i64: i64::from($e))
    };
}

// --- Complex versions of functions over real numbers, named in the `complex` field of those functions ---

pub(super) static ADD: ComplexFn =
    twin("complex_add", 2, "complex_add(a, b)", both!(|a, b| number::add(a, b)));
pub(super) static SUB: ComplexFn =
    twin("complex_sub", 2, "complex_sub(a, b)", both!(|a, b| number::sub(a, b)));
pub(super) static MUL: ComplexFn =
    twin("complex_mul", 2, "complex_mul(a, b)", both!(|a, b| number::mul(a, b)));
pub(super) static DIV: ComplexFn =
    twin("complex_div", 2, "complex_div(a, b)", both!(|a, b| number::div(a, b)));
pub(super) static NEG: ComplexFn = twin("complex_neg", 1, "complex_neg(a)", both!(|a| number::neg(a)));
pub(super) static ADD_SCALED: ComplexFn = twin(
    "complex_add_scaled",
    3,
    "complex_add(a, complex_mul(c, b))",
    both!(|a, b, c| number::add(a, number::mul(c, b))),
);
pub(super) static SUB_SCALED: ComplexFn = twin(
    "complex_sub_scaled",
    3,
    "complex_sub(a, complex_mul(c, b))",
    both!(|a, b, c| number::sub(a, number::mul(c, b))),
);
pub(super) static COMBINED: ComplexFn = twin(
    "complex_combined",
    4,
    "complex_add(complex_mul(a, c), complex_mul(b, d))",
    both!(|a, b, c, d| number::add(number::mul(a, c), number::mul(b, d))),
);
pub(super) static SQUARE: ComplexFn =
    twin("complex_square", 1, "complex_mul(a, a)", both!(|a| number::mul(a, a)));
pub(super) static CUBE: ComplexFn = twin(
    "complex_cube",
    1,
    "complex_mul(complex_mul(a, a), a)",
    both!(|a| number::mul(number::mul(a, a), a)),
);
pub(super) static INVERSE_SQUARE: ComplexFn = twin(
    "complex_inverse_square",
    1,
    "complex_reciprocal(complex_mul(a, a))",
    both!(|a| number::reciprocal(number::mul(a, a))),
);
pub(super) static RECIPROCAL: ComplexFn =
    twin("complex_reciprocal", 1, "complex_reciprocal(a)", both!(|a| number::reciprocal(a)));
pub(super) static SQRT: ComplexFn = twin("complex_sqrt", 1, "complex_sqrt(a)", both!(|a| number::sqrt(a)));
pub(super) static RSQRT: ComplexFn = twin(
    "complex_rsqrt",
    1,
    "complex_reciprocal(complex_sqrt(a))",
    both!(|a| number::reciprocal(number::sqrt(a))),
);
pub(super) static EXP: ComplexFn = twin("complex_exp", 1, "complex_exp(a)", both!(|a| number::exp(a)));
pub(super) static LOG: ComplexFn = twin("complex_log", 1, "complex_log(a)", both!(|a| number::ln(a)));
pub(super) static POW: ComplexFn = twin(
    "complex_pow",
    2,
    "complex_pow(a, b)",
    // The exponent multiplies the error of the logarithm, so `c64` computes in `c128`.
    host_map!(
        (a: C64, b: C64) -> C64: number::narrow(number::pow(number::wide(a), number::wide(b))),
        (a: C128, b: C128) -> C128: number::pow(a, b),
    ),
);
pub(super) static SIN: ComplexFn = twin("complex_sin", 1, "complex_sin(a)", both!(|a| number::sin(a)));
pub(super) static COS: ComplexFn = twin("complex_cos", 1, "complex_cos(a)", both!(|a| number::cos(a)));
pub(super) static SINH: ComplexFn = twin("complex_sinh", 1, "complex_sinh(a)", both!(|a| number::sinh(a)));
pub(super) static COSH: ComplexFn = twin("complex_cosh", 1, "complex_cosh(a)", both!(|a| number::cosh(a)));
pub(super) static TAN: ComplexFn = twin("complex_tan", 1, "complex_tan(a)", both!(|a| number::tan(a)));
pub(super) static TANH: ComplexFn = twin("complex_tanh", 1, "complex_tanh(a)", both!(|a| number::tanh(a)));
pub(super) static SIGMOID: ComplexFn =
    twin("complex_sigmoid", 1, "complex_sigmoid(a)", both!(|a| number::sigmoid(a)));
pub(super) static SILU: ComplexFn = twin("complex_silu", 1, "complex_silu(a)", both!(|a| number::silu(a)));
pub(super) static SOFTSIGN: ComplexFn =
    twin("complex_softsign", 1, "complex_softsign(a)", both!(|a| number::softsign(a)));
pub(super) static EXPM1: ComplexFn =
    twin("complex_expm1", 1, "complex_expm1(a)", both!(|a| number::expm1(a)));
pub(super) static EXP2: ComplexFn = twin("complex_exp2", 1, "complex_exp2(a)", both!(|a| number::exp2(a)));
pub(super) static LOG2: ComplexFn = twin("complex_log2", 1, "complex_log2(a)", both!(|a| number::log2(a)));
pub(super) static LOG10: ComplexFn =
    twin("complex_log10", 1, "complex_log10(a)", both!(|a| number::log10(a)));
pub(super) static LOG1P: ComplexFn =
    twin("complex_log1p", 1, "complex_log1p(a)", both!(|a| number::log1p(a)));
pub(super) static ASIN: ComplexFn = twin("complex_asin", 1, "complex_asin(a)", both!(|a| number::asin(a)));
pub(super) static ACOS: ComplexFn = twin("complex_acos", 1, "complex_acos(a)", both!(|a| number::acos(a)));
pub(super) static ATAN: ComplexFn = twin("complex_atan", 1, "complex_atan(a)", both!(|a| number::atan(a)));
pub(super) static ASINH: ComplexFn =
    twin("complex_asinh", 1, "complex_asinh(a)", both!(|a| number::asinh(a)));
pub(super) static ACOSH: ComplexFn =
    twin("complex_acosh", 1, "complex_acosh(a)", both!(|a| number::acosh(a)));
pub(super) static ATANH: ComplexFn =
    twin("complex_atanh", 1, "complex_atanh(a)", both!(|a| number::atanh(a)));
pub(super) static LOGADDEXP: ComplexFn =
    twin("complex_logaddexp", 2, "complex_log_add_exp(a, b)", both!(|a, b| number::log_add_exp(a, b)));
pub(super) static NAN_TO_NUM: ComplexFn = twin(
    "complex_nan_to_num",
    4,
    "complex_nan_to_num(a, b.re, c.re, d.re)",
    both!(|a, b, c, d| number::nan_to_num(a, b.re, c.re, d.re)),
);
pub(super) static ADDCMUL: ComplexFn = twin(
    "complex_addcmul",
    4,
    "complex_add(a, complex_mul(complex_mul(d, b), c))",
    both!(|a, b, c, d| number::add(a, number::mul(number::mul(d, b), c))),
);
pub(super) static ADDCDIV: ComplexFn = twin(
    "complex_addcdiv",
    4,
    "complex_add(a, complex_mul(d, complex_div(b, c)))",
    both!(|a, b, c, d| number::add(a, number::mul(d, number::div(b, c)))),
);
pub(super) static LERP: ComplexFn =
    twin("complex_lerp", 3, "complex_lerp(a, b, c)", both!(|a, b, c| number::lerp(a, b, c)));
pub(super) static ABS: ComplexFn = to_real("complex_abs", "complex_abs(a)", both!(real: |a| number::abs(a)));
static COMPLEX_ANGLE: ComplexFn =
    to_real("complex_angle", "complex_angle(a)", both!(real: |a| number::angle(a)));
pub(super) static EQ: ComplexFn = twin("complex_eq", 2, "complex_equal(a, b)", both!(test: |a, b| a == b));
pub(super) static NE: ComplexFn =
    twin("complex_ne", 2, "(i64)(!complex_equal(a, b))", both!(test: |a, b| a != b));
pub(super) static ISNAN: ComplexFn =
    twin("complex_isnan", 1, "complex_nan(a)", both!(test: |a| number::is_nan(a)));
pub(super) static ISINF: ComplexFn =
    twin("complex_isinf", 1, "complex_infinite(a)", both!(test: |a| number::is_infinite(a)));
pub(super) static ISFINITE: ComplexFn =
    twin("complex_isfinite", 1, "complex_finite(a)", both!(test: |a| number::is_finite(a)));
pub(super) static ISCLOSE: ComplexFn = twin(
    "complex_isclose",
    4,
    "complex_close(a, b, c.re, d.re)",
    both!(test: |a, b, c, d| number::is_close(a, b, c.re, d.re)),
);
pub(super) static ISCLOSE_OR_NAN: ComplexFn = twin(
    "complex_isclose_or_nan",
    4,
    "(i64)(complex_close(a, b, c.re, d.re) || (complex_nan(a) && complex_nan(b)))",
    both!(test: |a, b, c, d| number::is_close(a, b, c.re, d.re) || number::is_nan(a) && number::is_nan(b)),
);
pub(super) static WHERE: ComplexFn = ComplexFn {
    f: MapFn {
        name: "complex_where",
        arity: 3,
        select: true,
        cuda: CudaText::complex("(a != 0 ? b : c)"),
        host: host_map!(
            (a: i64, b: C64, c: C64) -> C64: if a != 0 { b } else { c },
            (a: i64, b: C128, c: C128) -> C128: if a != 0 { b } else { c },
        ),
        complex: None,
    },
    to_real: false,
};

pub(super) static POLAR: MapFn = MapFn {
    name: "polar",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "complex_polar(a, b)", f64: "complex_polar(a, b)", i64: "" },
    host: host_map!(
        (abs: f32, angle: f32) -> C64: number::polar(abs, angle),
        (abs: f64, angle: f64) -> C128: number::polar(abs, angle),
    ),
    complex: None,
};

pub(super) static CONJ: MapFn = MapFn {
    name: "conj",
    arity: 1,
    select: false,
    cuda: CudaText::complex("complex_conj(a)"),
    host: both!(|a| number::conj(a)),
    complex: None,
};

static ANGLE: MapFn = MapFn {
    name: "angle",
    arity: 1,
    select: false,
    cuda: CudaText {
        f32: "(a != a ? a : a < 0.0f ? 3.14159265358979323846f : 0.0f)",
        f64: "(a != a ? a : a < 0.0 ? 3.14159265358979323846 : 0.0)",
        i64: "",
    },
    host: host_unary!(
        f32: |a| if a.is_nan() { a } else if a < 0.0 { std::f32::consts::PI } else { 0.0 },
        f64: |a| if a.is_nan() { a } else if a < 0.0 { std::f64::consts::PI } else { 0.0 },
    ),
    complex: Some(&COMPLEX_ANGLE),
};

/// The function to use for `f` over operands of `dtype` (`f` itself, or its complex version) and the dtype of its
/// result. The result of a comparison is `bool` for complex operands too. An error if `f` has no complex version.
pub(super) fn over(name: &str, f: &'static MapFn, dtype: Dtype) -> Result<(&'static MapFn, Dtype)> {
    if !dtype.is_complex() {
        return Ok((f, dtype));
    }
    match f.complex {
        Some(twin) => Ok((&twin.f, if twin.to_real { dtype.real() } else { dtype })),
        None => Err(not_over_complex(name, dtype)),
    }
}

/// Makes complex numbers from two real operands.
fn made(rt: &mut Runtime, name: &'static str, f: &'static MapFn, args: &Args<'_>) -> Result<Out> {
    let operands = [args.operand(0)?, args.operand(1)?];
    if let [MapArg::Tensor(one), MapArg::Tensor(other)] = operands
        && one.dtype() != other.dtype()
    {
        return Err(error::dtypes_differ(name, (0, one), (1, other)));
    }
    let rank = |x: &MapArg<'_>| match x {
        MapArg::Tensor(x) if x.rank() == 0 => Operand::ZeroDim(x.dtype()),
        MapArg::Tensor(x) => Operand::Tensor(x.dtype()),
        MapArg::Number(n) => Operand::Number(*n),
        MapArg::Raw(_, dtype) => Operand::Tensor(*dtype),
        MapArg::Position => Operand::Tensor(Dtype::I64),
    };
    let common = result_type(operands.iter().map(rank));
    if common.is_complex() {
        return Err(not_over_complex(name, common));
    }
    let part = common.complex().real();
    rt.map_ordered(name, f, &operands, part, part.complex()).map(Out::Tensor)
}

/// The real part: a view of a complex tensor; any other tensor is returned unchanged.
pub fn real(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() { part(x, 0, "real") } else { Ok(x.clone()) }
}

/// The imaginary part of a complex tensor, as a view.
pub fn imag(x: &Tensor) -> Result<Tensor> {
    part(x, 1, "imag")
}

/// One of the two parts: `which` is 0 or 1.
fn part(x: &Tensor, which: usize, name: &str) -> Result<Tensor> {
    let parts = as_real(x, name)?;
    let mut layout = parts.layout().clone();
    layout.shape.pop();
    layout.strides.pop();
    layout.offset += which;
    Ok(parts.with_layout(layout))
}

/// A complex tensor as pairs along a new last dimension, as a view.
pub(super) fn as_real(x: &Tensor, name: &str) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return Err(error::needs_complex(name, x));
    }
    if x.rank() >= MAX_RANK {
        return Err(error::too_many_dims(x.rank() + 1));
    }
    let layout = x.layout();
    let shape: Dims = layout.shape.iter().copied().chain([2]).collect();
    let strides: Strides = layout.strides.iter().map(|s| s.saturating_mul(2)).chain([1]).collect();
    let layout = Layout { shape, strides, offset: layout.offset * 2 };
    Ok(x.view(layout, x.dtype().real()))
}

/// Pairs along the last dimension as complex numbers, as a view.
fn as_complex(x: &Tensor) -> Result<Tensor> {
    let name = "view_as_complex";
    if !matches!(x.dtype(), Dtype::F32 | Dtype::F64) {
        return Err(error::floats_alone(name, 0, x));
    }
    let layout = x.layout();
    let (Some((&2, shape)), Some((&step, strides))) =
        (layout.shape.split_last(), layout.strides.split_last())
    else {
        return Err(error::no_pairs(x, "the last dimension must have size 2"));
    };
    if step != 1 {
        return Err(error::no_pairs(x, "the last dimension must have stride 1"));
    }
    let extents = || shape.iter().zip(strides);
    if extents().any(|(&n, s)| n > 1 && s % 2 != 0) {
        return Err(error::no_pairs(x, "all strides but the last must be even"));
    }
    if !layout.offset.is_multiple_of(2) {
        return Err(error::no_pairs(x, "it must start at an even position of its storage"));
    }
    let strides = strides.iter().map(|s| s / 2).collect();
    let layout = Layout { shape: shape.into(), strides, offset: layout.offset / 2 };
    Ok(x.view(layout, x.dtype().complex()))
}

/// True if a sum of `x`, converted to `dtype` if given, has a complex result.
pub(super) fn is_summed(x: &Tensor, dtype: Option<Dtype>) -> bool {
    dtype.unwrap_or(x.dtype()).is_complex()
}

/// Converts `x` to `dtype` if given, then applies `run` to both parts alike. The operand and the result of
/// `run` have a last dimension of two.
pub(super) fn by_parts(
    rt: &mut Runtime,
    x: &Tensor,
    dtype: Option<Dtype>,
    run: impl FnOnce(&mut Runtime, &Tensor) -> Result<Tensor>,
) -> Result<Out> {
    let x = match dtype {
        Some(dtype) if dtype != x.dtype() => rt.convert(x, dtype)?,
        _ => x.clone(),
    };
    let parts = as_real(&x, "sum")?;
    as_complex(&run(rt, &parts)?).map(Out::Tensor)
}

/// The conjugates of a complex tensor.
pub(super) fn conjugate(rt: &mut Runtime, name: &'static str, x: &Tensor) -> Result<Tensor> {
    rt.map_ordered(name, &CONJ, &[MapArg::Tensor(x)], x.dtype(), x.dtype())
}

/// The absolute values of a complex tensor; any other tensor is returned unchanged.
pub(super) fn magnitude(rt: &mut Runtime, name: &'static str, x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return Ok(x.clone());
    }
    rt.map_ordered(name, &ABS.f, &[MapArg::Tensor(x)], x.dtype(), x.dtype().real())
}

/// The gradient of `angle`: `i x / |x|^2` of complex numbers, 0 at 0.
fn angle_back(b: &Back<'_>) {
    b.to(0, || {
        let x = b.x(0);
        if !x.dtype().is_complex() {
            return b.g().zeros_like();
        }
        let turned = b.op("complex", &[(-x.unary("imag")).arg(), x.unary("real").arg()]);
        let square = x.unary("abs").square();
        b.g() * (turned / b.select(&square.eq(0.0), 1.0, square))
    });
}

/// `x / |x|`: the sign of real numbers, and 0 at 0, where its derivative is 0, too.
pub(super) fn unit<'a>(b: &'a Back<'_>, x: &Var<'a>) -> Var<'a> {
    if !x.dtype().is_complex() {
        return x.unary("sign");
    }
    let length = x.unary("abs");
    let zero = length.eq(0.0);
    b.select(&zero, 0.0, x / b.select(&zero, 1.0, length))
}

/// Every function over complex numbers, for the tests of backends.
#[cfg(test)]
pub(crate) fn functions() -> impl Iterator<Item = &'static MapFn> {
    TWINS.iter().map(|twin| &twin.f).chain([&CONJ])
}

#[cfg(test)]
static TWINS: &[&ComplexFn] = &[
    &ADD,
    &SUB,
    &MUL,
    &DIV,
    &NEG,
    &ADD_SCALED,
    &SUB_SCALED,
    &COMBINED,
    &SQUARE,
    &CUBE,
    &INVERSE_SQUARE,
    &RECIPROCAL,
    &SQRT,
    &RSQRT,
    &EXP,
    &LOG,
    &POW,
    &SIN,
    &COS,
    &SINH,
    &COSH,
    &TAN,
    &TANH,
    &SIGMOID,
    &SILU,
    &SOFTSIGN,
    &EXPM1,
    &EXP2,
    &LOG2,
    &LOG10,
    &LOG1P,
    &ASIN,
    &ACOS,
    &ATAN,
    &ASINH,
    &ACOSH,
    &ATANH,
    &LOGADDEXP,
    &NAN_TO_NUM,
    &ADDCMUL,
    &ADDCDIV,
    &LERP,
    &ABS,
    &COMPLEX_ANGLE,
    &EQ,
    &NE,
    &ISNAN,
    &ISINF,
    &ISFINITE,
    &ISCLOSE,
    &ISCLOSE_OR_NAN,
    &WHERE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::table;

    #[test]
    fn all_complex_versions_are_listed_and_named_after_their_functions() {
        let defined = include_str!("complex.rs").matches(": ComplexFn =").count() - 1;
        assert_eq!(TWINS.len(), defined);
        for op in table::all() {
            let Some(map) = op.elementwise() else { continue };
            let Some(twin) = map.f.complex else { continue };
            assert_eq!(twin.f.name, format!("complex_{}", map.f.name));
            assert!(TWINS.iter().any(|other| std::ptr::eq(*other, twin)), "{}", twin.f.name);
        }
    }
}
