//! Every elementwise operation against a reference in plain `f64`, over all dtypes and layouts.

use crate::array::Dtype::{self, *};
use crate::ops::testing::{GPU, Lab};
use crate::ops::{Arg, Op, Run, table};
use crate::plan::Settings;
use crate::tensor::Tensor;
use half::{bf16, f16};

/// The dtypes that an operation accepts, and the dtype of its result.
#[derive(Clone, Copy, PartialEq)]
enum Gives {
    /// The operands' dtype.
    Same,
    /// The operands' dtype, which must not be `bool`.
    SameNotBool,
    /// The operands' dtype; `bool` becomes `i64`.
    Whole,
    /// The operands' dtype, which must be an int.
    Ints,
    /// The operands' dtype, which must be an int or `bool`.
    Bits,
    /// Floats keep their dtype; all others become `f32`.
    Float,
    /// `bool`.
    Truth,
}
use Gives::*;

/// The reference: takes the arguments, and whether they are integers.
type Reference = fn(&[f64], bool) -> f64;

fn truth(b: bool) -> f64 {
    f64::from(u8::from(b))
}

fn python_floor(a: f64, b: f64, ints: bool) -> f64 {
    if b == 0.0 { if ints { 0.0 } else { a / b } } else { (a / b).floor() }
}

fn python_rest(a: f64, b: f64, ints: bool) -> f64 {
    if b == 0.0 { if ints { 0.0 } else { f64::NAN } } else { a - b * (a / b).floor() }
}

#[rustfmt::skip]
const ROWS: &[(&str, usize, Gives, Reference)] = &[
    ("add", 2, Same, |x, _| x[0] + x[1]),
    ("sub", 2, SameNotBool, |x, _| x[0] - x[1]),
    ("mul", 2, Same, |x, _| x[0] * x[1]),
    ("div", 2, Float, |x, _| x[0] / x[1]),
    ("floor_divide", 2, SameNotBool, |x, ints| python_floor(x[0], x[1], ints)),
    ("remainder", 2, SameNotBool, |x, ints| python_rest(x[0], x[1], ints)),
    ("fmod", 2, SameNotBool, |x, ints| if ints && x[1] == 0.0 { 0.0 } else { x[0] % x[1] }),
    ("maximum", 2, Same, |x, _| x[0].max(x[1])),
    ("minimum", 2, Same, |x, _| x[0].min(x[1])),
    ("fmax", 2, Same, |x, _| x[0].max(x[1])),
    ("fmin", 2, Same, |x, _| x[0].min(x[1])),
    ("hypot", 2, Float, |x, _| x[0].hypot(x[1])),
    ("copysign", 2, Float, |x, _| x[0].copysign(x[1])),
    ("atan2", 2, Float, |x, _| x[0].atan2(x[1])),
    ("logaddexp", 2, Float, |x, _| (x[0].exp() + x[1].exp()).ln()),
    ("xlogy", 2, Float, |x, _| if x[0] == 0.0 { 0.0 } else { x[0] * x[1].ln() }),
    ("addcmul", 4, SameNotBool, |x, _| x[0] + x[3] * x[1] * x[2]),
    ("addcdiv", 4, Float, |x, _| x[0] + x[3] * (x[1] / x[2])),
    ("lerp", 3, Float, |x, _| x[0] + x[2] * (x[1] - x[0])),
    ("neg", 1, SameNotBool, |x, _| -x[0]),
    ("abs", 1, Same, |x, _| x[0].abs()),
    ("angle", 1, Float, |x, _| if x[0].is_nan() { x[0] } else if x[0] < 0.0 { std::f64::consts::PI } else { 0.0 }),
    ("sign", 1, Same, |x, _| if x[0] > 0.0 { 1.0 } else if x[0] < 0.0 { -1.0 } else { 0.0 }),
    ("square", 1, Whole, |x, _| x[0] * x[0]),
    ("reciprocal", 1, Float, |x, _| 1.0 / x[0]),
    ("sqrt", 1, Float, |x, _| x[0].sqrt()),
    ("rsqrt", 1, Float, |x, _| 1.0 / x[0].sqrt()),
    ("eq", 2, Truth, |x, _| truth(x[0] == x[1])),
    ("ne", 2, Truth, |x, _| truth(x[0] != x[1])),
    ("lt", 2, Truth, |x, _| truth(x[0] < x[1])),
    ("le", 2, Truth, |x, _| truth(x[0] <= x[1])),
    ("gt", 2, Truth, |x, _| truth(x[0] > x[1])),
    ("ge", 2, Truth, |x, _| truth(x[0] >= x[1])),
    ("isnan", 1, Truth, |x, _| truth(x[0].is_nan())),
    ("isinf", 1, Truth, |x, _| truth(x[0].is_infinite())),
    ("isfinite", 1, Truth, |x, _| truth(x[0].is_finite())),
    ("isposinf", 1, Truth, |x, _| truth(x[0] == f64::INFINITY)),
    ("isneginf", 1, Truth, |x, _| truth(x[0] == f64::NEG_INFINITY)),
    ("signbit", 1, Truth, |x, ints| truth(x[0].is_sign_negative() && !(ints && x[0] == 0.0))),
    ("logical_and", 2, Truth, |x, _| truth(x[0] != 0.0 && x[1] != 0.0)),
    ("logical_or", 2, Truth, |x, _| truth(x[0] != 0.0 || x[1] != 0.0)),
    ("logical_xor", 2, Truth, |x, _| truth((x[0] != 0.0) != (x[1] != 0.0))),
    ("logical_not", 1, Truth, |x, _| truth(x[0] == 0.0)),
    ("bitwise_and", 2, Bits, |x, _| (x[0] as i64 & x[1] as i64) as f64),
    ("bitwise_or", 2, Bits, |x, _| (x[0] as i64 | x[1] as i64) as f64),
    ("bitwise_xor", 2, Bits, |x, _| (x[0] as i64 ^ x[1] as i64) as f64),
    ("bitwise_left_shift", 2, Ints, |x, _| if x[1] < 0.0 { 0.0 } else { ((x[0] as i64) << x[1] as i64) as f64 }),
    ("bitwise_right_shift", 2, Ints, |x, _| (x[0] as i64 >> if x[1] < 0.0 { 63 } else { x[1] as i64 }) as f64),
    ("floor", 1, Same, |x, _| x[0].floor()),
    ("ceil", 1, Same, |x, _| x[0].ceil()),
    ("trunc", 1, Same, |x, _| x[0].trunc()),
    ("frac", 1, Same, |x, _| x[0].fract()),
    ("round", 1, Same, |x, _| x[0].round_ties_even()),
    ("exp", 1, Float, |x, _| libm::exp(x[0])),
    ("exp2", 1, Float, |x, _| libm::exp2(x[0])),
    ("expm1", 1, Float, |x, _| libm::expm1(x[0])),
    ("log", 1, Float, |x, _| libm::log(x[0])),
    ("log2", 1, Float, |x, _| libm::log2(x[0])),
    ("log10", 1, Float, |x, _| libm::log10(x[0])),
    ("log1p", 1, Float, |x, _| libm::log1p(x[0])),
    ("sin", 1, Float, |x, _| libm::sin(x[0])),
    ("cos", 1, Float, |x, _| libm::cos(x[0])),
    ("tan", 1, Float, |x, _| libm::tan(x[0])),
    ("asin", 1, Float, |x, _| libm::asin(x[0])),
    ("acos", 1, Float, |x, _| libm::acos(x[0])),
    ("atan", 1, Float, |x, _| libm::atan(x[0])),
    ("sinh", 1, Float, |x, _| libm::sinh(x[0])),
    ("cosh", 1, Float, |x, _| libm::cosh(x[0])),
    ("tanh", 1, Float, |x, _| libm::tanh(x[0])),
    ("asinh", 1, Float, |x, _| libm::asinh(x[0])),
    ("acosh", 1, Float, |x, _| if x[0] < 1.0 { f64::NAN } else { libm::acosh(x[0]) }),
    ("atanh", 1, Float, |x, _| libm::atanh(x[0])),
    ("erf", 1, Float, |x, _| libm::erf(x[0])),
    ("erfc", 1, Float, |x, _| libm::erfc(x[0])),
    ("lgamma", 1, Float, |x, _| libm::lgamma(x[0])),
    ("deg2rad", 1, Float, |x, _| x[0].to_radians()),
    ("rad2deg", 1, Float, |x, _| x[0].to_degrees()),
    ("sigmoid", 1, Float, |x, _| 1.0 / (1.0 + libm::exp(-x[0]))),
    ("clamp_min", 2, Same, |x, _| x[0].max(x[1])),
    ("clamp_max", 2, Same, |x, _| x[0].min(x[1])),
    ("relu", 1, SameNotBool, |x, _| x[0].max(0.0)),
    ("leaky_relu", 2, Same, |x, _| if x[0] > 0.0 { x[0] } else { x[0] * x[1] }),
    ("elu", 2, Float, |x, _| if x[0] > 0.0 { x[0] } else { x[1] * libm::expm1(x[0]) }),
    ("selu", 1, Float, |x, _| 1.0507009873554805 * if x[0] > 0.0 { x[0] } else { 1.6732632423543772 * libm::expm1(x[0]) }),
    ("softplus", 3, Float, |x, _| if x[0] * x[1] > x[2] { x[0] } else { libm::log1p(libm::exp(x[0] * x[1])) / x[1] }),
    ("softsign", 1, Float, |x, _| x[0] / (1.0 + x[0].abs())),
    ("logsigmoid", 1, Float, |x, _| x[0].min(0.0) - libm::log1p(libm::exp(-x[0].abs()))),
    ("silu", 1, Float, |x, _| x[0] / (1.0 + libm::exp(-x[0]))),
    ("mish", 1, Float, |x, _| x[0] * libm::tanh(libm::log1p(libm::exp(x[0])))),
    ("hardsigmoid", 1, Float, |x, _| ((x[0] + 3.0) / 6.0).clamp(0.0, 1.0)),
    ("hardswish", 1, Float, |x, _| x[0] * ((x[0] + 3.0) / 6.0).clamp(0.0, 1.0)),
];

/// Numbers that a dtype holds exactly.
fn samples(dtype: Dtype) -> Vec<f64> {
    match dtype {
        Bool => vec![0.0, 1.0],
        U8 => vec![0.0, 1.0, 2.0, 7.0, 30.0],
        dtype if dtype.is_int() => vec![-7.0, -1.0, 0.0, 1.0, 2.0, 5.0],
        _ => vec![-2.5, -1.0, -0.25, 0.0, 0.5, 1.0, 3.0, 7.25],
    }
}

/// The number as a dtype stores it: rounded or wrapped.
fn stored(x: f64, dtype: Dtype) -> f64 {
    match dtype {
        Bool => truth(x != 0.0),
        U8 => f64::from(x as i64 as u8),
        I8 => f64::from(x as i64 as i8),
        I16 => f64::from(x as i64 as i16),
        I32 => f64::from(x as i64 as i32),
        I64 => x as i64 as f64,
        F16 => f16::from_f32(x as f32).to_f64(),
        BF16 => bf16::from_f32(x as f32).to_f64(),
        F32 => f64::from(x as f32),
        _ => x,
    }
}

/// The allowed error, relative to the larger of the result and 1: one step of the dtype.
fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        F16 => 1.0 / 1024.0,
        BF16 => 1.0 / 128.0,
        F32 => 2.5e-7,
        F64 => 1e-15,
        _ => 0.0,
    }
}

impl Gives {
    fn result(self, dtype: Dtype) -> Option<Dtype> {
        match self {
            SameNotBool if dtype == Bool => None,
            Whole if dtype == Bool => Some(I64),
            Ints if !dtype.is_int() => None,
            Bits if dtype.is_float() => None,
            Float if !dtype.is_float() => Some(F32),
            Truth => Some(Bool),
            _ => Some(dtype),
        }
    }
}

fn op(name: &str) -> &'static Op {
    table::find(name).unwrap()
}

/// All combinations of the samples, one list per argument.
fn combinations(dtype: Dtype, count: usize) -> Vec<Vec<f64>> {
    let samples = samples(dtype);
    // Four lists of samples make too many combinations, so thin out the later ones.
    let thin = |i: usize| if i >= 2 { samples.iter().step_by(3).copied().collect() } else { samples.clone() };
    let mut lists = vec![Vec::new(); count];
    let mut rows: Vec<Vec<f64>> = vec![vec![]];
    for i in 0..count {
        let choices: Vec<f64> = thin(i);
        rows = rows.iter().flat_map(|r| choices.iter().map(|&c| [r.clone(), vec![c]].concat())).collect();
    }
    for row in &rows {
        row.iter().zip(&mut lists).for_each(|(&x, list)| list.push(x));
    }
    lists
}

fn args_of(tensors: &[Tensor]) -> Vec<Arg> {
    tensors.iter().map(Arg::from).collect()
}

#[test]
fn every_elementwise_operation_has_a_reference() {
    let missing: Vec<&str> = table::all()
        .filter(|op| matches!(op.run, Run::Map(_) | Run::MapOr(..) | Run::Scaled(..) | Run::Chosen(..)))
        .filter(|op| op.name != "where" && !ROWS.iter().any(|row| row.0 == op.name))
        .map(|op| op.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn all_dtypes_give_the_reference_or_a_coded_error() {
    let mut lab = Lab::new();
    for &(name, count, gives, reference) in ROWS {
        for dtype in Dtype::REAL {
            let lists = combinations(dtype, count);
            let n = lists[0].len();
            let tensors: Vec<Tensor> = lists.iter().map(|l| lab.tensor(&[n], l, dtype)).collect();
            let Some(result) = gives.result(dtype) else {
                assert_eq!(lab.fails(name, &args_of(&tensors), &[]).code().id, "E0351", "{name} {dtype}");
                continue;
            };
            let found = lab.call(name, &args_of(&tensors));
            assert_eq!(found.dtype(), result, "{name} {dtype}");
            let ints = !dtype.is_float();
            let want: Vec<f64> = (0..n)
                .map(|i| {
                    let row: Vec<f64> = lists.iter().map(|l| l[i]).collect();
                    stored(reference(&row, ints && gives != Float), result)
                })
                .collect();
            let have = lab.values(&found);
            for i in 0..n {
                let (a, b) = (have[i], want[i]);
                let row: Vec<f64> = lists.iter().map(|l| l[i]).collect();
                let scale = row.iter().fold(b.abs().max(1.0), |most, x| most.max(x.abs()));
                let close =
                    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance(result) * scale;
                assert!(close, "{name}{row:?} in {dtype} is {a}, not {b}");
            }
        }
    }
}

#[test]
fn layouts_do_not_change_a_bit() {
    let mut lab = Lab::new();
    for &(name, count, gives, _) in ROWS {
        for dtype in [I32, F16, F32] {
            if gives.result(dtype).is_none() {
                continue;
            }
            let values: Vec<f64> =
                (0..12).map(|i| stored(f64::from(i * 7 % 12) / 4.0 - 1.0, dtype)).collect();
            let mut want: Option<Vec<u8>> = None;
            for layout in 0..3 {
                let tensors: Vec<Tensor> = (0..count)
                    .map(|i| lab.layouts(&[3, 4], &values, dtype).swap_remove((layout + i) % 3))
                    .collect();
                let found = lab.call(name, &args_of(&tensors));
                let bytes = lab.rt.read(&found).unwrap();
                assert!(!found.layout().strides.contains(&0), "{name} {dtype}: a result shares no elements");
                assert_eq!(*want.get_or_insert_with(|| bytes.clone()), bytes, "{name} {dtype}");
            }
        }
    }
}

#[test]
fn operands_broadcast_and_may_be_empty_or_without_dimensions() {
    let mut lab = Lab::new();
    for &(name, count, gives, reference) in ROWS.iter().filter(|row| row.1 == 2) {
        let dtype = if matches!(gives, Ints | Bits) { I32 } else { F64 };
        let (a, b) = ([1.0, 2.0], [3.0, 1.0, 2.0]);
        let column = lab.tensor(&[2, 1], &a, dtype);
        let row = lab.tensor(&[3], &b, dtype);
        let found = lab.call(name, &[(&column).into(), (&row).into()]);
        let want: Vec<f64> = (0..6).map(|i| reference(&[a[i / 3], b[i % 3]], dtype == I32)).collect();
        lab.near(&found, &[2, 3], &want, 1e-15);
        let point = lab.tensor(&[], &[2.0], dtype);
        let found = lab.call(name, &[(&point).into(), (&point).into()]);
        lab.near(&found, &[], &[reference(&[2.0, 2.0], dtype == I32)], 1e-15);
        let nothing = lab.tensor(&[0, 3], &[], dtype);
        let found = lab.call(name, &[(&nothing).into(), (&row).into()]);
        assert_eq!(found.shape().as_slice(), [0, 3]);
        assert!(lab.values(&found).is_empty());
        let wrong = lab.tensor(&[2, 2], &[1.0; 4], dtype);
        assert!(lab.try_call(name, &[(&wrong).into(), (&row).into()], &[]).is_err(), "{name} {count}");
    }
}

#[test]
fn in_place_forms_write_through_views_and_keep_the_dtype() {
    let mut lab = Lab::new();
    for &(name, count, gives, reference) in ROWS.iter().filter(|row| op(row.0).form.in_place) {
        let dtype = if matches!(gives, Ints | Bits) { I16 } else { F32 };
        let values: Vec<f64> = (0..12).map(|i| f64::from(i % 5) + 1.0).collect();
        let base = lab.tensor(&[3, 4], &values, dtype);
        // The second and fourth columns.
        let mut layout = base.layout().clone();
        (layout.shape[1], layout.strides[1], layout.offset) = (2, 2, 1);
        let view = base.with_layout(layout);
        let other = lab.tensor(&[2], &[2.0, 3.0], dtype);
        let mut args: Vec<Arg> = vec![(&view).into()];
        args.extend((1..count).map(|_| Arg::from(&other)));
        let returned = lab.call(&format!("{name}_"), &args);
        assert!(returned.same(&view), "{name}_ gives its receiver");
        let want: Vec<f64> = (0..12)
            .map(|i| match i % 2 {
                0 => values[i],
                _ => {
                    let mut row = vec![values[i]];
                    row.extend((1..count).map(|_| [2.0, 3.0][i / 2 % 2]));
                    stored(reference(&row, dtype == I16), dtype)
                }
            })
            .collect();
        assert_eq!(base.dtype(), dtype);
        lab.near(&base, &[3, 4], &want, 3e-7);
    }
}

#[test]
fn floats_are_not_written_into_ints() {
    let mut lab = Lab::new();
    let ints = lab.tensor(&[2], &[1.0, 4.0], I64);
    for (name, args) in [("div_", vec![Arg::Int(2)]), ("add_", vec![Arg::Float(0.5)]), ("sqrt_", vec![])] {
        let args = [vec![Arg::from(&ints)], args].concat();
        assert_eq!(lab.fails(name, &args, &[]).code().id, "E0352", "{name}");
    }
    lab.call("add_", &[(&ints).into(), 3.into()]);
    lab.same(&ints, &[2], &[4.0, 7.0]);
    let error = lab.fails("pow_", &[(&ints).into(), 0.5.into()], &[]);
    assert_eq!(error.code().id, "E0352", "also where the operation is composed");
}

#[test]
fn numbers_are_weak() {
    let mut lab = Lab::new();
    let rows = [
        (I64, Arg::Float(2.5), F32),
        (F16, Arg::Float(2.5), F16),
        (U8, Arg::Int(300), U8),
        (Bool, Arg::Int(1), I64),
        (Bool, Arg::Bool(true), Bool),
        (F64, Arg::Int(1), F64),
    ];
    for (dtype, number, result) in rows {
        let x = lab.tensor(&[1], &[1.0], dtype);
        assert_eq!(lab.call("add", &[(&x).into(), number.clone()]).dtype(), result);
        assert_eq!(lab.call("mul", &[number, (&x).into()]).dtype(), result);
    }
    // A tensor without dimensions does not determine the dtype if another operand has dimensions.
    let (row, point) = (lab.tensor(&[1], &[1.0], F32), lab.tensor(&[], &[1.0], F64));
    assert_eq!(lab.call("add", &[(&row).into(), (&point).into()]).dtype(), F32);
}

#[test]
fn fusion_changes_no_bit_of_any_operation() {
    let mut fused = Lab::new();
    let mut plain = Lab::with(Settings { fuse: false, ..Settings::default() });
    for &(name, count, gives, _) in ROWS {
        for dtype in [I8, F16, BF16, F32] {
            if gives.result(dtype).is_none() {
                continue;
            }
            let values: Vec<f64> = (0..40).map(|i| stored(f64::from(i) * 0.37 - 5.0, dtype)).collect();
            let run = |lab: &mut Lab| {
                let x = lab.tensor(&[40], &values, dtype);
                // Work is pending before and after, so the operation is in the middle of a program.
                let before = lab.call("mul", &[(&x).into(), 3.into()]);
                let args: Vec<Arg> =
                    (0..count).map(|i| Arg::from(if i == 0 { &before } else { &x })).collect();
                let result = lab.call(name, &args);
                let after = lab.call("add", &[(&result).into(), (&before).into()]);
                (lab.rt.read(&after).unwrap(), lab.rt.read(&result).unwrap())
            };
            assert_eq!(run(&mut fused), run(&mut plain), "{name} {dtype}");
        }
    }
}

#[test]
fn nan_propagates_as_in_pytorch() {
    let mut lab = Lab::new();
    let nan = f64::NAN;
    for dtype in [F16, F32, F64] {
        let x = lab.tensor(&[4], &[nan, 1.0, nan, 2.0], dtype);
        let y = lab.tensor(&[4], &[1.0, nan, nan, 1.0], dtype);
        let mut pair = |name: &str, want: [f64; 4]| {
            let found = lab.call(name, &[(&x).into(), (&y).into()]);
            lab.same(&found, &[4], &want);
        };
        pair("maximum", [nan, nan, nan, 2.0]);
        pair("minimum", [nan, nan, nan, 1.0]);
        pair("fmax", [1.0, 1.0, nan, 2.0]);
        pair("fmin", [1.0, 1.0, nan, 1.0]);
        pair("eq", [0.0; 4]);
        pair("ne", [1.0; 4]);
        let clamped = lab.call("clamp", &[(&x).into(), 0.into(), 1.into()]);
        lab.same(&clamped, &[4], &[nan, 1.0, nan, 1.0]);
        let rectified = lab.call("relu", &[(&x).into()]);
        lab.same(&rectified, &[4], &[nan, 1.0, nan, 2.0]);
    }
}

#[test]
fn integers_wrap_and_never_trap() {
    let mut lab = Lab::new();
    let low = i64::MIN as f64;
    let x = lab.tensor(&[3], &[low, 5.0, -5.0], I64);
    let by = lab.tensor(&[3], &[-1.0, 0.0, 0.0], I64);
    for (name, want) in
        [("floor_divide", [low, 0.0, 0.0]), ("remainder", [0.0, 0.0, 0.0]), ("fmod", [0.0, 0.0, 0.0])]
    {
        let found = lab.call(name, &[(&x).into(), (&by).into()]);
        lab.same(&found, &[3], &want);
    }
    let bytes = lab.tensor(&[2], &[-128.0, 100.0], I8);
    let found = lab.call("abs", &[(&bytes).into()]);
    lab.same(&found, &[2], &[-128.0, 100.0]);
    let found = lab.call("mul", &[(&bytes).into(), 2.into()]);
    lab.same(&found, &[2], &[0.0, -56.0]);
    let shifts = lab.tensor(&[4], &[-1.0, 31.0, 32.0, 64.0], I32);
    let ones = lab.tensor(&[4], &[-3.0; 4], I32);
    let left = lab.call("bitwise_left_shift", &[(&ones).into(), (&shifts).into()]);
    lab.same(&left, &[4], &[0.0, f64::from(i32::MIN), 0.0, 0.0]);
    let right = lab.call("bitwise_right_shift", &[(&ones).into(), (&shifts).into()]);
    lab.same(&right, &[4], &[-1.0; 4]);
}

#[test]
fn operands_of_two_devices_are_refused() {
    let mut lab = Lab::new();
    let here = lab.tensor(&[2], &[1.0, 2.0], F32);
    let there = lab.tensor_on(&[2], &[1.0, 2.0], F32, crate::driver::DeviceId::Cuda(1));
    let error = lab.fails("add", &[(&here).into(), (&there).into()], &[]);
    assert_eq!(error.kind(), crate::base::ErrorKind::Device);
    assert_eq!(error.labels().len(), 2);
    let host = lab.tensor_on(&[], &[3.0], F32, crate::driver::DeviceId::Cpu);
    let sum = lab.call("add", &[(&here).into(), (&host).into()]);
    assert_eq!(sum.device(), GPU);
    lab.same(&sum, &[2], &[4.0, 5.0]);
}
