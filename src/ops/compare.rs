//! Comparisons and classification of numbers (nan, infinite, ...). Results are `bool`.

use super::folds::ALL;
use super::params::{BINARY, UNARY, X, X_OR_NUMBER};
use super::signature::{Default, Kind, Param};
use super::{Args, Form, Gradient, MapOp, Op, Out, Rule, Run, complex, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::kernel::host::define::{host_bool, host_compare, host_test};
use crate::kernel::{CudaText, MapFn};
use crate::plan::{MapArg, Reduction, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "eq",
        doc: "Tests elementwise whether `x == other`; nan equals nothing. For whole tensors see `equal`. \
              Source: `torch.eq`.",
        search: &["equal", "same", "=="],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 2, 3]) == [1, 0, 3], [true, false, true]))",
        run: Run::Map(MapOp { rule: Rule::Compare, f: &EQ }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "ne",
        aliases: &["not_equal"],
        doc: "Tests elementwise whether `x != other`; nan differs from everything. Source: `torch.ne`.",
        search: &["not equal", "different", "!="],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 2]) != 2, [true, false]))",
        run: Run::Map(MapOp {
            rule: Rule::Compare,
            f: &MapFn {
                name: "ne",
                arity: 2,
                select: false,
                cuda: comparison("(i64)(a != b)"),
                host: host_compare!(all: |a, b| a != b),
                complex: Some(&complex::NE),
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "lt",
        aliases: &["less"],
        doc: "Tests elementwise whether `x < other`. Source: `torch.lt`.",
        search: &["less", "smaller", "<"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([1, 2, 3] < 2, [true, false, false]))",
        run: Run::Map(MapOp { rule: Rule::Compare, f: &LT }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "le",
        aliases: &["less_equal"],
        doc: "Tests elementwise whether `x <= other`. Source: `torch.le`.",
        search: &["less or equal", "at most", "<="],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([1, 2, 3] <= 2, [true, true, false]))",
        run: Run::Map(MapOp { rule: Rule::Compare, f: &LE }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "gt",
        aliases: &["greater"],
        doc: "Tests elementwise whether `x > other`. Source: `torch.gt`.",
        search: &["greater", "larger", ">"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([1, 2, 3] > 2, [false, false, true]))",
        run: Run::Map(MapOp { rule: Rule::Compare, f: &GT }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "ge",
        aliases: &["greater_equal"],
        doc: "Tests elementwise whether `x >= other`. Source: `torch.ge`.",
        search: &["greater or equal", "at least", ">="],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal([1, 2, 3] >= 2, [false, true, true]))",
        run: Run::Map(MapOp { rule: Rule::Compare, f: &GE }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "isnan",
        doc: "Tests which elements are not a number. Source: `torch.isnan`.",
        search: &["not a number", "invalid"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(isnan([1.0, nan]), [false, true]))",
        run: Run::Map(MapOp {
            rule: Rule::Compare,
            f: &MapFn {
                name: "isnan",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "(i64)(a != a)", f64: "(i64)(a != a)", i64: "0" },
                host: host_test!(float: |a| a.is_nan(), i64: |_a| false),
                complex: Some(&complex::ISNAN),
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "isinf",
        doc: "Tests which elements are infinite, of either sign. Source: `torch.isinf`.",
        search: &["infinity", "overflow"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(isinf([1.0, inf, -inf]), [false, true, true]))",
        run: Run::Map(MapOp {
            rule: Rule::Compare,
            f: &MapFn {
                name: "isinf",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(i64)(fabsf(a) == INFINITY)",
                    f64: "(i64)(fabs(a) == (double)INFINITY)",
                    i64: "0",
                },
                host: host_test!(float: |a| a.is_infinite(), i64: |_a| false),
                complex: Some(&complex::ISINF),
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "isfinite",
        doc: "Tests which elements are neither infinite nor nan. Source: `torch.isfinite`.",
        search: &["infinity", "nan", "valid"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(isfinite([1.0, inf, nan]), [true, false, false]))",
        run: Run::Map(MapOp { rule: Rule::Compare, f: &IS_FINITE }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "isposinf",
        doc: "Tests which elements are positive infinity. Source: `torch.isposinf`.",
        search: &["infinity"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(isposinf([inf, -inf]), [true, false]))",
        run: Run::Map(MapOp {
            rule: Rule::Compare,
            f: &MapFn {
                name: "isposinf",
                arity: 1,
                select: false,
                cuda: CudaText { f32: "(i64)(a == INFINITY)", f64: "(i64)(a == (double)INFINITY)", i64: "0" },
                host: host_test!(float: |a| a.is_infinite() && a > 0.0, i64: |_a| false),
                complex: None,
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "isneginf",
        doc: "Tests which elements are negative infinity. Source: `torch.isneginf`.",
        search: &["infinity"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(isneginf([inf, -inf]), [false, true]))",
        run: Run::Map(MapOp {
            rule: Rule::Compare,
            f: &MapFn {
                name: "isneginf",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(i64)(a == -INFINITY)",
                    f64: "(i64)(a == -(double)INFINITY)",
                    i64: "0",
                },
                host: host_test!(float: |a| a.is_infinite() && a < 0.0, i64: |_a| false),
                complex: None,
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "signbit",
        doc: "Tests which elements have their sign bit set: negative numbers, and `-0.0`. Source: `torch.signbit`.",
        search: &["negative zero", "sign"],
        params: UNARY,
        form: Form::BOTH,
        example: "assert(equal(signbit([1.0, -0.0]), [false, true]))",
        run: Run::Map(MapOp {
            rule: Rule::Compare,
            f: &MapFn {
                name: "signbit",
                arity: 1,
                select: false,
                cuda: CudaText {
                    f32: "(i64)(bits(a) >> 31)",
                    f64: "(i64)(bits(a) >> 63)",
                    i64: "(i64)(a < 0)",
                },
                host: host_test!(float: |a| a.is_sign_negative(), i64: |a| a < 0),
                complex: None,
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "isclose",
        doc: "Tests elementwise whether `|x - other| <= atol + rtol * |other|`, computed in `f64`. Infinities \
              are close only to themselves, nan to nan only with `equal_nan`. Source: `torch.isclose`.",
        search: &["approximately equal", "tolerance", "almost"],
        params: CLOSE,
        form: Form::BOTH,
        example: "assert(equal(isclose([1.0, 2.0], [1.0000001, 2.1]), [true, false]))",
        run: Run::Primitive(|rt, args| is_close(rt, "isclose", args).map(Out::Tensor)),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "allclose",
        doc: "Returns whether all elements are close, as `isclose` defines it: a `bool`, so it waits. \
              Source: `torch.allclose`.",
        search: &["approximately equal", "tolerance", "almost", "compare tensors"],
        params: CLOSE,
        form: Form::BOTH,
        example: "assert(allclose([1.0, 2.0], [1.0000001, 2.0]))\n\
                  assert(not allclose([1.0, nan], [1.0, nan]))\n\
                  assert(allclose([1.0, nan], [1.0, nan], equal_nan=true))",
        run: Run::Primitive(|rt, args| {
            let close = is_close(rt, "allclose", args)?;
            all(rt, "allclose", &close).map(Out::Number)
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "equal",
        doc: "Returns whether two tensors have the same shape and equal elements: a `bool`, so it waits. Dtypes \
              may differ; nan equals nothing. Source: `torch.equal`.",
        search: &["same", "identical", "compare tensors"],
        params: &[X, Param::new("other", Kind::Tensor)],
        form: Form::BOTH,
        example: "assert(equal([1, 2], [1, 2]))\nassert(not equal([1, 2], [[1, 2]]))",
        run: Run::Primitive(equal),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

/// `(x, other, rtol=1e-05, atol=1e-08, equal_nan=false)`
const CLOSE: &[Param] = &[
    X_OR_NUMBER,
    Param::new("other", Kind::TensorOrNumber),
    Param::or("rtol", Kind::Float, Default::Float(1e-5)),
    Param::or("atol", Kind::Float, Default::Float(1e-8)),
    Param::or("equal_nan", Kind::Bool, Default::Bool(false)),
];

/// `a == b`
pub static EQ: MapFn = MapFn {
    name: "eq",
    arity: 2,
    select: false,
    cuda: comparison("(i64)(a == b)"),
    host: host_compare!(all: |a, b| a == b),
    complex: Some(&complex::EQ),
};

/// `a < b`
pub static LT: MapFn = MapFn {
    name: "lt",
    arity: 2,
    select: false,
    cuda: comparison("(i64)(a < b)"),
    host: host_compare!(all: |a, b| a < b),
    complex: None,
};

/// `a >= b`
pub static GE: MapFn = MapFn {
    name: "ge",
    arity: 2,
    select: false,
    cuda: comparison("(i64)(a >= b)"),
    host: host_compare!(all: |a, b| a >= b),
    complex: None,
};

/// `a <= b`
pub static LE: MapFn = MapFn {
    name: "le",
    arity: 2,
    select: false,
    cuda: comparison("(i64)(a <= b)"),
    host: host_compare!(all: |a, b| a <= b),
    complex: None,
};

static IS_FINITE: MapFn = MapFn {
    name: "isfinite",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(i64)(fabsf(a) < INFINITY)", f64: "(i64)(fabs(a) < (double)INFINITY)", i64: "1" },
    host: host_test!(float: |a| a.is_finite(), i64: |_a| true),
    complex: Some(&complex::ISFINITE),
};

static IS_CLOSE: MapFn = MapFn {
    name: "isclose",
    arity: 4,
    select: false,
    cuda: CudaText {
        f32: "",
        f64: "(i64)(a == b || (fabs(a - b) < (double)INFINITY && fabs(a - b) <= d + fabs(c * b)))",
        i64: "",
    },
    host: host_bool!(
        f64: |a, b, c, d| a == b || ((a - b).is_finite() && (a - b).abs() <= d + (c * b).abs())
    ),
    complex: Some(&complex::ISCLOSE),
};

static IS_CLOSE_OR_NAN: MapFn = MapFn {
    name: "isclose_or_nan",
    arity: 4,
    select: false,
    cuda: CudaText {
        f32: "",
        f64: "(i64)(a == b || (a != a && b != b) || (fabs(a - b) < (double)INFINITY && fabs(a - b) <= d + fabs(c * b)))",
        i64: "",
    },
    host: host_bool!(
        f64: |a, b, c, d| {
            a == b
                || (a.is_nan() && b.is_nan())
                || ((a - b).is_finite() && (a - b).abs() <= d + (c * b).abs())
        }
    ),
    complex: Some(&complex::ISCLOSE_OR_NAN),
};

const fn comparison(text: &'static str) -> CudaText {
    CudaText { f32: text, f64: text, i64: text }
}

fn is_close(rt: &mut Runtime, name: &'static str, args: &Args<'_>) -> Result<Tensor> {
    let number = |value: f64| MapArg::Number(Scalar::Float(value));
    for (index, what) in [(2, "rtol"), (3, "atol")] {
        let tolerance = args.float(index)?;
        if tolerance.is_nan() || tolerance < 0.0 {
            return Err(error::bad_value(index, format!("`{what}` is `{tolerance:?}`"), "write 0 or more"));
        }
    }
    let tolerances = (number(args.float(2)?), number(args.float(3)?));
    let operands = [args.operand(0)?, args.operand(1)?, tolerances.0, tolerances.1];
    let f = if args.flag(4) { &IS_CLOSE_OR_NAN } else { &IS_CLOSE };
    let is_complex = |x: &MapArg<'_>| matches!(x, MapArg::Tensor(x) if x.dtype().is_complex());
    if operands.iter().any(is_complex) {
        let (f, _) = complex::over(name, f, Dtype::C128)?;
        return rt.map_ordered(name, f, &operands, Dtype::C128, Dtype::Bool);
    }
    rt.map_ordered(name, f, &operands, Dtype::F64, Dtype::Bool)
}

fn equal(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, other) = (args.tensor(0)?, args.tensor(1)?);
    if x.shape() != other.shape() {
        rt.common_device("equal", [x, other])?;
        return Ok(Out::Number(Scalar::Bool(false)));
    }
    let op = MapOp { rule: Rule::Compare, f: &EQ };
    let same = super::map(rt, "equal", &op, &[MapArg::Tensor(x), MapArg::Tensor(other)])?;
    all(rt, "equal", &same).map(Out::Number)
}

/// Returns whether all elements of a `bool` tensor are true; waits for it.
fn all(rt: &mut Runtime, name: &'static str, x: &Tensor) -> Result<Scalar> {
    let dims: Vec<usize> = (0..x.rank()).collect();
    let all = rt.reduce(x, Reduction::new(name, &ALL, &dims, Dtype::Bool, Dtype::Bool))?;
    rt.item(&all)
}

/// `a > b`
pub(super) static GT: MapFn = MapFn {
    name: "gt",
    arity: 2,
    select: false,
    cuda: comparison("(i64)(a > b)"),
    host: host_compare!(all: |a, b| a > b),
    complex: None,
};
