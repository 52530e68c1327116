//! Functions on script numbers: `abs`, `round`, and the module `math`.
//!
//! Tensors have operations of the same names; these take and return script numbers.

use super::core::whole;
use super::{any, takes};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param};
use crate::vm::{NativeDef, Quick, Value, Vm, error};

/// A function of one float in the module `math`.
macro_rules! float_function {
    ($name:literal, $doc:literal, $example:literal, $f:expr) => {
        NativeDef {
            name: concat!("math.", $name),
            receiver: "",
            signature: takes(&[Param::new("x", Kind::Float)]),
            doc: $doc,
            example: $example,
            run: |_, args| {
                let f: fn(f64) -> f64 = $f;
                Ok(Value::Float(f(args[0].as_float().unwrap_or(f64::NAN))))
            },
        }
    };
}

/// A function of two floats in the module `math`.
macro_rules! float_pair {
    ($name:literal, $a:literal, $b:literal, $doc:literal, $example:literal, $f:expr) => {
        NativeDef {
            name: concat!("math.", $name),
            receiver: "",
            signature: takes(&[Param::new($a, Kind::Float), Param::new($b, Kind::Float)]),
            doc: $doc,
            example: $example,
            run: |_, args| {
                let f: fn(f64, f64) -> f64 = $f;
                Ok(Value::Float(f(
                    args[0].as_float().unwrap_or(f64::NAN),
                    args[1].as_float().unwrap_or(f64::NAN),
                )))
            },
        }
    };
}

/// The fast paths of this file's natives.
pub static QUICK: &[(&str, &str, Quick)] = &[("", "abs", |value, args, out| {
    *out = match (value, args) {
        (Value::Int(i), []) if *i != i64::MIN => Value::Int(i.abs()),
        (Value::Float(f), []) => Value::Float(f.abs()),
        _ => return false,
    };
    true
})];

/// The numbers of the module `math`.
pub static CONSTANTS: &[(&str, f64)] = &[
    ("pi", std::f64::consts::PI),
    ("e", std::f64::consts::E),
    ("tau", std::f64::consts::TAU),
    ("inf", f64::INFINITY),
    ("nan", f64::NAN),
];

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "abs",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Number)]),
        doc: "The magnitude of a number.",
        example: "assert(abs(-3) == 3)",
        run: |_, args| match args[0] {
            Value::Int(i) => i.checked_abs().map(Value::Int).ok_or_else(|| error::overflow("-", 0, i)),
            Value::Float(f) => Ok(Value::Float(f.abs())),
            ref other => Ok(Value::Int(other.as_int().unwrap_or(0))),
        },
    },
    NativeDef {
        name: "round",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Number), Param::or("digits", Kind::Int, Default::None)]),
        doc: "The nearest int, ties to even; with `digits`, the nearest float with that many decimals.",
        example: "assert(round(2.5) == 2)\nassert(round(2.675, 2) == 2.67)",
        run: round,
    },
    NativeDef {
        name: "pow",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Number), Param::new("exponent", Kind::Number)]),
        doc: "A number to a power: `x ** exponent`.",
        example: "assert(pow(2, 3) == 8 and pow(2, -1) == 0.5)",
        run: |vm, args| {
            let (x, exponent) = (args[0].clone(), args[1].clone());
            crate::vm::arith::binary(vm, crate::syntax::ast::Binary::Pow, x, exponent)
        },
    },
    NativeDef {
        name: "divmod",
        receiver: "",
        signature: takes(&[any("a"), any("b")]),
        doc: "`(a // b, a % b)`.",
        example: "assert(divmod(7, 2) == (3, 1))",
        run: |vm, args| {
            use crate::syntax::ast::Binary;
            let (a, b) = (args[0].clone(), args[1].clone());
            let quotient = crate::vm::arith::binary(vm, Binary::FloorDiv, a.clone(), b.clone())?;
            let rest = crate::vm::arith::binary(vm, Binary::Mod, a, b)?;
            Ok(Value::tuple(vec![quotient, rest]))
        },
    },
    float_function!("sqrt", "The square root; nan below zero.", "assert(math.sqrt(9) == 3.0)", f64::sqrt),
    float_function!("exp", "e to the power of `x`.", "assert(math.exp(0) == 1.0)", f64::exp),
    float_function!("exp2", "2 to the power of `x`.", "assert(math.exp2(3) == 8.0)", f64::exp2),
    float_function!(
        "degrees",
        "Radians as degrees.",
        "assert(math.degrees(math.pi) == 180.0)",
        f64::to_degrees
    ),
    float_function!(
        "radians",
        "Degrees as radians.",
        "assert(math.radians(180) == math.pi)",
        f64::to_radians
    ),
    float_function!("log2", "The logarithm to base 2.", "assert(math.log2(8) == 3.0)", f64::log2),
    float_function!("log10", "The logarithm to base 10.", "assert(math.log10(100) == 2.0)", f64::log10),
    float_function!("log1p", "`log(1 + x)`, accurate near zero.", "assert(math.log1p(0) == 0.0)", f64::ln_1p),
    float_function!(
        "expm1",
        "`exp(x) - 1`, accurate near zero.",
        "assert(math.expm1(0) == 0.0)",
        f64::exp_m1
    ),
    float_function!("sin", "The sine of an angle in radians.", "assert(math.sin(0) == 0.0)", f64::sin),
    float_function!("cos", "The cosine of an angle in radians.", "assert(math.cos(0) == 1.0)", f64::cos),
    float_function!("tan", "The tangent of an angle in radians.", "assert(math.tan(0) == 0.0)", f64::tan),
    float_function!("asin", "The angle whose sine is `x`.", "assert(math.asin(0) == 0.0)", f64::asin),
    float_function!("acos", "The angle whose cosine is `x`.", "assert(math.acos(1) == 0.0)", f64::acos),
    float_function!("atan", "The angle whose tangent is `x`.", "assert(math.atan(0) == 0.0)", f64::atan),
    float_function!("sinh", "The hyperbolic sine.", "assert(math.sinh(0) == 0.0)", f64::sinh),
    float_function!("cosh", "The hyperbolic cosine.", "assert(math.cosh(0) == 1.0)", f64::cosh),
    float_function!("tanh", "The hyperbolic tangent.", "assert(math.tanh(0) == 0.0)", f64::tanh),
    float_function!("asinh", "The inverse of `sinh`.", "assert(math.asinh(0) == 0.0)", f64::asinh),
    float_function!(
        "acosh",
        "The inverse of `cosh`; nan below 1.",
        "assert(math.acosh(1) == 0.0)",
        f64::acosh
    ),
    float_function!(
        "atanh",
        "The inverse of `tanh`; nan beyond -1 and 1.",
        "assert(math.atanh(0) == 0.0)",
        f64::atanh
    ),
    float_function!("cbrt", "The cube root.", "assert(math.cbrt(-27) == -3.0)", f64::cbrt),
    float_function!("fabs", "The magnitude, as a float.", "assert(math.fabs(-3) == 3.0)", f64::abs),
    float_function!("erf", "The error function.", "assert(math.erf(0) == 0.0)", libm::erf),
    float_function!(
        "erfc",
        "`1 - erf(x)`, accurate for large `x`.",
        "assert(math.erfc(0) == 1.0)",
        libm::erfc
    ),
    float_function!(
        "gamma",
        "The gamma function: the factorial of `x - 1`.",
        "assert(math.gamma(5) == 24.0)",
        libm::tgamma
    ),
    float_function!(
        "lgamma",
        "The logarithm of the magnitude of the gamma function.",
        "assert(math.lgamma(1) == 0.0)",
        libm::lgamma
    ),
    NativeDef {
        name: "math.log",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Float), Param::or("base", Kind::Float, Default::None)]),
        doc: "The natural logarithm, or the logarithm to a base.",
        example: "assert(math.log(1) == 0.0)",
        run: |_, args| {
            let x = args[0].as_float().unwrap_or(f64::NAN).ln();
            Ok(Value::Float(args[1].as_float().map_or(x, |base| x / base.ln())))
        },
    },
    float_pair!(
        "atan2",
        "y",
        "x",
        "The angle of the point (x, y).",
        "assert(math.atan2(0, 1) == 0.0)",
        f64::atan2
    ),
    float_pair!(
        "hypot",
        "x",
        "y",
        "The length of the vector (x, y).",
        "assert(math.hypot(3, 4) == 5.0)",
        f64::hypot
    ),
    float_pair!(
        "copysign",
        "x",
        "y",
        "The magnitude of `x` with the sign of `y`.",
        "assert(math.copysign(3, -0.0) == -3.0)",
        f64::copysign
    ),
    float_pair!(
        "fmod",
        "x",
        "y",
        "The remainder of a division rounded towards zero: it has the sign of `x`, where `%` has that of `y`. Source: C's \
         `fmod`.",
        "assert(math.fmod(-7, 3) == -1.0 and -7 % 3 == 2)",
        |x, y| x % y
    ),
    float_pair!(
        "remainder",
        "x",
        "y",
        "The remainder of a division rounded to the nearest int, halves to the even one. Source: IEEE 754.",
        "assert(math.remainder(7, 4) == -1.0)",
        libm::remainder
    ),
    NativeDef {
        name: "math.floor",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Number)]),
        doc: "The largest int that is not above `x`.",
        example: "assert(math.floor(-0.5) == -1)",
        run: |_, args| whole_of(&args[0], f64::floor),
    },
    NativeDef {
        name: "math.ceil",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Number)]),
        doc: "The smallest int that is not below `x`.",
        example: "assert(math.ceil(0.5) == 1)",
        run: |_, args| whole_of(&args[0], f64::ceil),
    },
    NativeDef {
        name: "math.trunc",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Number)]),
        doc: "The number rounded towards zero to an int.",
        example: "assert(math.trunc(-1.5) == -1)",
        run: |_, args| whole_of(&args[0], f64::trunc),
    },
    NativeDef {
        name: "math.gcd",
        receiver: "",
        signature: takes(&[Param::new("a", Kind::Int), Param::new("b", Kind::Int)]),
        doc: "The greatest common divisor.",
        example: "assert(math.gcd(12, 18) == 6)",
        run: |_, args| {
            let divisor = common_divisor(&args[0], &args[1]);
            i64::try_from(divisor)
                .map(Value::Int)
                .map_err(|_| error::bad_value(0, "the divisor does not fit in an int"))
        },
    },
    NativeDef {
        name: "math.lcm",
        receiver: "",
        signature: takes(&[Param::new("a", Kind::Int), Param::new("b", Kind::Int)]),
        doc: "The least common multiple; 0 if one of the numbers is 0.",
        example: "assert(math.lcm(4, 6) == 12)",
        run: |_, args| {
            let divisor = common_divisor(&args[0], &args[1]).max(1);
            let (a, b) = (args[0].as_int().unwrap_or(0), args[1].as_int().unwrap_or(0));
            (a.unsigned_abs() / divisor)
                .checked_mul(b.unsigned_abs())
                .and_then(|multiple| i64::try_from(multiple).ok())
                .map(Value::Int)
                .ok_or_else(|| error::bad_value(0, "the multiple does not fit in an int"))
        },
    },
    NativeDef {
        name: "math.isqrt",
        receiver: "",
        signature: takes(&[Param::new("n", Kind::Int)]),
        doc: "The square root of an int, rounded down.",
        example: "assert(math.isqrt(17) == 4)",
        run: |_, args| {
            let root = args[0].as_int().and_then(i64::checked_isqrt);
            root.map(Value::Int).ok_or_else(|| {
                error::bad_value(0, "the square root of an int below 0").help("pass an int from 0 on")
            })
        },
    },
    NativeDef {
        name: "math.isclose",
        receiver: "",
        signature: takes(&[
            Param::new("a", Kind::Float),
            Param::new("b", Kind::Float),
            Param::named("rel_tol", Kind::Float, Default::Float(1e-9)),
            Param::named("abs_tol", Kind::Float, Default::Float(0.0)),
        ]),
        doc: "Whether two numbers differ by at most `rel_tol` of the larger one, or `abs_tol`. `isclose` and `allclose` compare tensors. \
              Source: Python's `math.isclose`.",
        example: "assert(math.isclose(0.1 + 0.2, 0.3) and not math.isclose(1, 1.1))",
        run: |_, args| {
            let [a, b, relative, absolute] = [0, 1, 2, 3].map(|i| args[i].as_float().unwrap_or(f64::NAN));
            let close = |a: f64, b: f64| (a - b).abs() <= (relative * a.abs().max(b.abs())).max(absolute);
            Ok(Value::Bool(a == b || (a.is_finite() && b.is_finite() && close(a, b))))
        },
    },
    NativeDef {
        name: "math.factorial",
        receiver: "",
        signature: takes(&[Param::new("n", Kind::Int)]),
        doc: "The product of the ints from 1 to `n`, up to 20.",
        example: "assert(math.factorial(5) == 120 and math.factorial(0) == 1)",
        run: |_, args| {
            let n = args[0].as_int().unwrap_or(0);
            if n < 0 {
                return Err(
                    error::bad_value(0, "the factorial of an int below 0").help("pass an int from 0 to 20")
                );
            }
            let product = (2..=n.min(21)).try_fold(1_i64, i64::checked_mul);
            product.map(Value::Int).ok_or_else(|| {
                error::bad_value(0, format!("the factorial of {n} does not fit in an int"))
                    .help("`lgamma(x + 1)` is the logarithm of a factorial")
            })
        },
    },
    NativeDef {
        name: "math.comb",
        receiver: "",
        signature: takes(&[Param::new("n", Kind::Int), Param::new("k", Kind::Int)]),
        doc: "The number of ways to choose `k` of `n` things; 0 if `k` is more than `n`.",
        example: "assert(math.comb(5, 2) == 10 and math.comb(2, 3) == 0)",
        run: |_, args| {
            let (n, k) = (args[0].as_int().unwrap_or(0), args[1].as_int().unwrap_or(0));
            if n < 0 || k < 0 {
                let at = usize::from(n >= 0);
                return Err(error::bad_value(at, "a choice of fewer than 0").help("pass ints from 0 on"));
            }
            if k > n {
                return Ok(Value::Int(0));
            }
            // After 66 steps no binomial coefficient fits in an int, and each step is exact.
            let k = i128::from(k.min(n - k));
            let step = |product: i128, i| {
                let next = product.checked_mul(i128::from(n) - k + i)? / i;
                (next <= i128::from(i64::MAX)).then_some(next)
            };
            let found = (1..=k).try_fold(1, step).and_then(|found| i64::try_from(found).ok());
            found.map(Value::Int).ok_or_else(|| {
                error::bad_value(0, "the number of choices does not fit in an int")
                    .help("`lgamma` gives the logarithm of a factorial")
            })
        },
    },
    NativeDef {
        name: "math.isfinite",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Float)]),
        doc: "Whether a number is neither infinite nor nan.",
        example: "assert(math.isfinite(1.5) and not math.isfinite(inf))",
        run: |_, args| Ok(Value::Bool(args[0].as_float().is_some_and(f64::is_finite))),
    },
    NativeDef {
        name: "math.isnan",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Float)]),
        doc: "Whether a number is nan.",
        example: "assert(math.isnan(nan))",
        run: |_, args| Ok(Value::Bool(args[0].as_float().is_some_and(f64::is_nan))),
    },
    NativeDef {
        name: "math.isinf",
        receiver: "",
        signature: takes(&[Param::new("x", Kind::Float)]),
        doc: "Whether a number is infinite.",
        example: "assert(math.isinf(-inf))",
        run: |_, args| Ok(Value::Bool(args[0].as_float().is_some_and(f64::is_infinite))),
    },
];

/// The greatest common divisor, by Euclid's algorithm.
fn common_divisor(a: &Value, b: &Value) -> u64 {
    let of = |value: &Value| value.as_int().unwrap_or(0).unsigned_abs();
    let (mut a, mut b) = (of(a), of(b));
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn whole_of(value: &Value, f: fn(f64) -> f64) -> Result<Value> {
    match value {
        Value::Float(x) => whole(f(*x)),
        other => Ok(Value::Int(other.as_int().unwrap_or(0))),
    }
}

/// Formatting rounds the exact binary value, so 2.675, which is slightly below its decimal form, becomes 2.67.
fn round_float(x: f64, digits: i64) -> f64 {
    // Beyond these bounds every float is kept, and every float is less than half a unit.
    if !x.is_finite() || x == 0.0 || digits > 323 {
        return x;
    }
    if digits < -308 {
        return 0.0_f64.copysign(x);
    }
    let text = match digits {
        0.. => format!("{x:.*}", digits as usize),
        _ => {
            let exponent =
                format!("{x:e}").split_once('e').and_then(|(_, e)| e.parse::<i64>().ok()).unwrap_or(0);
            match exponent + digits {
                kept @ 0.. => format!("{x:.*e}", kept as usize),
                // Between a tenth of a unit and a unit: a tie goes to 0, which is even.
                -1 if exact(x.abs()).as_str() > "5" => {
                    format!("{}1e{}", if x < 0.0 { "-" } else { "" }, -digits)
                }
                _ => return 0.0_f64.copysign(x),
            }
        }
    };
    text.parse().unwrap_or(x)
}

/// All significant digits of a float above 0: `5` for 500, `512` for 5.12.
fn exact(x: f64) -> String {
    let text = format!("{x:.770e}");
    let digits = text.split_once('e').map_or(text.as_str(), |(digits, _)| digits);
    digits.replacen('.', "", 1).trim_end_matches('0').to_string()
}

fn round(_: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let digits = args[1].as_int();
    match (&args[0], digits) {
        (Value::Float(x), None) => whole(x.round_ties_even()),
        (Value::Float(x), Some(digits)) => Ok(Value::Float(round_float(*x, digits))),
        (other, Some(digits)) if digits < 0 => {
            let x = other.as_int().unwrap_or(0);
            // No int is as large as half of 10^20.
            let scale = 10i128.pow(digits.unsigned_abs().min(20) as u32);
            let (low, rest) = (i128::from(x).div_euclid(scale), i128::from(x).rem_euclid(scale));
            let up = rest * 2 > scale || (rest * 2 == scale && low % 2 != 0);
            let units = low + i128::from(up);
            i64::try_from(units * scale)
                .map(Value::Int)
                .map_err(|_| error::overflow("rounded to a multiple of 10 **", x, digits.saturating_neg()))
        }
        (other, _) => Ok(Value::Int(other.as_int().unwrap_or(0))),
    }
}
