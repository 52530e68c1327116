//! Composed operations: softmax and the norms, rounding to digits, powers, bounds.

use crate::array::Dtype::*;
use crate::ops::Arg;
use crate::ops::testing::Lab;
use crate::plan::Settings;

fn ints(values: &[i64]) -> Arg {
    Arg::Ints(values.to_vec())
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / sum).collect()
}

#[test]
fn softmax_sums_to_one_along_any_dimension_and_layout() {
    let mut lab = Lab::new();
    let values: Vec<f64> = (0..24).map(|i| f64::from(i * 5 % 11) - 4.0).collect();
    let rows: Vec<f64> = values.chunks(4).flat_map(softmax_of).collect();
    for (dtype, tolerance) in [(F16, 1e-3), (BF16, 8e-3), (F32, 2e-7), (F64, 1e-15)] {
        for x in lab.layouts(&[2, 3, 4], &values, dtype) {
            let y = lab.call("softmax", &[(&x).into(), Arg::Int(-1)]);
            assert_eq!(y.dtype(), dtype);
            lab.near(&y, &[2, 3, 4], &rows, tolerance);
            let y = lab.call("log_softmax", &[(&x).into(), 2.into()]);
            let logs: Vec<f64> = rows.iter().map(|p| p.ln()).collect();
            lab.near(&y, &[2, 3, 4], &logs, tolerance);
        }
    }
    let x = lab.tensor(&[2, 3], &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0], F32);
    let y = lab.call("softmax", &[(&x).into(), 0.into()]);
    lab.same(&y, &[2, 3], &[0.5; 6]);
}

#[test]
fn softmax_of_extremes_matches_pytorch() {
    let mut lab = Lab::new();
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let x = lab.tensor(&[3, 2], &[-inf, 0.0, -inf, -inf, nan, 0.0], F32);
    let y = lab.call("softmax", &[(&x).into(), 1.into()]);
    lab.same(&y, &[3, 2], &[0.0, 1.0, nan, nan, nan, nan]);
    let far = lab.tensor(&[2], &[1000.0, 0.0], F32);
    let y = lab.call("log_softmax", &[(&far).into(), 0.into()]);
    lab.same(&y, &[2], &[0.0, -1000.0]);
    let point = lab.tensor(&[], &[3.0], F32);
    let y = lab.call("softmax", &[(&point).into(), 0.into()]);
    lab.same(&y, &[], &[1.0]);
    let none = lab.tensor(&[0, 3], &[], F32);
    assert_eq!(lab.call("softmax", &[(&none).into(), 1.into()]).shape().as_slice(), [0, 3]);
    assert_eq!(lab.call("softmax", &[(&none).into(), 0.into()]).shape().as_slice(), [0, 3]);
    let whole = lab.tensor(&[2], &[1.0, 1.0], I32);
    let y = lab.call("softmax", &[(&whole).into(), 0.into()]);
    assert_eq!(y.dtype(), F32);
    let y = lab.call("softmax", &[(&whole).into(), 0.into(), F64.into()]);
    assert_eq!(y.dtype(), F64);
    assert_eq!(lab.fails("softmax", &[(&whole).into(), 1.into()], &[]).code().id, "E0405");
}

#[test]
fn layer_norm_gives_mean_0_and_variance_1() {
    let mut lab = Lab::new();
    let values: Vec<f64> = (0..24).map(|i| f64::from(i * 7 % 13)).collect();
    let (weight, bias): (Vec<f64>, Vec<f64>) = (0..12).map(|i| (f64::from(i) / 4.0, f64::from(i))).unzip();
    let want: Vec<f64> = values
        .chunks(12)
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / 12.0;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 12.0;
            let (weight, bias) = (&weight, &bias);
            (0..12).map(move |i| (row[i] - mean) / (variance + 1e-5).sqrt() * weight[i] + bias[i])
        })
        .collect();
    for (dtype, tolerance) in [(F16, 2e-3), (BF16, 1e-2), (F32, 1e-6), (F64, 1e-14)] {
        for x in lab.layouts(&[2, 3, 4], &values, dtype) {
            let w = lab.tensor(&[3, 4], &weight, dtype);
            let b = lab.tensor(&[3, 4], &bias, dtype);
            let y = lab.call("layer_norm", &[(&x).into(), ints(&[3, 4]), (&w).into(), (&b).into()]);
            assert_eq!(y.dtype(), dtype);
            lab.near(&y, &[2, 3, 4], &want, tolerance);
        }
    }
    let x = lab.counted(&[2, 4]);
    let plain = lab.call("layer_norm", &[(&x).into(), 4.into()]);
    let have = lab.values(&plain);
    assert!(have[..4].iter().sum::<f64>().abs() < 1e-6);
    for bad in [ints(&[3]), ints(&[]), ints(&[1, 2, 4])] {
        assert_eq!(lab.fails("layer_norm", &[(&x).into(), bad], &[]).code().id, "E0406");
    }
}

#[test]
fn rms_norm_divides_by_the_root_mean_square() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 2], &[3.0, 4.0, 0.0, 0.0], F32);
    let w = lab.tensor(&[2], &[1.0, 2.0], F32);
    let root = 12.5f64.sqrt();
    let y = lab.call("rms_norm", &[(&x).into(), 2.into(), (&w).into()]);
    lab.near(&y, &[2, 2], &[3.0 / root, 8.0 / root, 0.0, 0.0], 1e-6);
    // Halves compute in f32, with its epsilon. Expected: PyTorch 2.15.
    let small: Vec<f64> = (1..9).map(|i| f64::from(i) / 8000.0).collect();
    for (dtype, first) in
        [(F16, 0.173_828_125), (BF16, 0.173_828_125), (F32, 0.173_737_37), (F64, 0.198_029_5)]
    {
        let x = lab.tensor(&[8], &small, dtype);
        let y = lab.call("rms_norm", &[(&x).into(), 8.into()]);
        let y = lab.values(&y)[0];
        assert!((y - first).abs() < 1e-6, "{dtype}: {y}");
    }
}

#[test]
fn compositions_do_not_depend_on_fusion() {
    let values: Vec<f64> = (0..600).map(|i| f64::from(i * 37 % 101) / 10.0 - 5.0).collect();
    let run = |fuse| {
        let mut lab = Lab::with(Settings { fuse, ..Settings::default() });
        let mut found = Vec::new();
        for dtype in [F16, BF16, F32] {
            let x = lab.tensor(&[20, 30], &values, dtype);
            let before = lab.call("mul", &[(&x).into(), 0.7.into()]);
            for y in [
                lab.call("softmax", &[(&before).into(), 1.into()]),
                lab.call("softmax", &[(&before).into(), 0.into()]),
                lab.call("log_softmax", &[(&before).into(), 1.into()]),
                lab.call("layer_norm", &[(&before).into(), 30.into()]),
                lab.call("gelu", &[(&before).into()]),
                lab.call_with("gelu", &[(&before).into()], &[("approximate", Arg::Str("tanh".into()))]),
            ] {
                let after = lab.call("add", &[(&y).into(), (&before).into()]);
                found.push(lab.rt.read(&after).unwrap());
            }
        }
        found
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn gelu_has_two_forms() {
    let mut lab = Lab::new();
    let values = [-6.0, -1.0, -0.1, 0.0, 0.5, 2.0, 9.0];
    let x = lab.tensor(&[7], &values, F32);
    let exact = values.map(|v| 0.5 * v * (1.0 + libm::erf(v / 2f64.sqrt())));
    let y = lab.call("gelu", &[(&x).into()]);
    lab.near(&y, &[7], &exact, 3e-7);
    // The tail keeps its digits in single precision too; half precision computes in single precision.
    let tail: Vec<f64> = (20..=52).map(|i| f64::from(i) / -4.0).collect();
    for (dtype, off) in [(F64, 1e-13), (F32, 1e-6), (BF16, 4e-3)] {
        let x = lab.tensor(&[33], &tail, dtype);
        let y = lab.call("gelu", &[(&x).into()]);
        for (x, y) in tail.iter().zip(lab.values(&y)) {
            let exact = 0.5 * x * libm::erfc(-x / 2f64.sqrt());
            assert!((y - exact).abs() <= off * exact.abs(), "{dtype} gelu({x}) = {y:e}, not {exact:e}");
        }
    }
    let c = (2.0 / std::f64::consts::PI).sqrt();
    let smooth = values.map(|v| 0.5 * v * (1.0 + (c * (v + 0.044715 * v * v * v)).tanh()));
    let y = lab.call_with("gelu", &[(&x).into()], &[("approximate", Arg::Str("tanh".into()))]);
    lab.near(&y, &[7], &smooth, 4e-7);
    let bad = [("approximate", Arg::Str("fast".into()))];
    assert_eq!(lab.fails("gelu", &[(&x).into()], &bad).code().id, "E0353");
}

#[test]
fn powers_of_ints_wrap_and_refuse_negative_numbers() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[4], &[-2.0, -1.0, 1.0, 3.0], I32);
    let y = lab.call("pow", &[(&x).into(), 5.into()]);
    assert_eq!(y.dtype(), I32);
    lab.same(&y, &[4], &[-32.0, -1.0, 1.0, 243.0]);
    let y = lab.call("pow", &[(&x).into(), 33.into()]);
    lab.same(&y, &[4], &[0.0, -1.0, 1.0, f64::from(5_559_060_566_555_523i64 as i32)]);
    assert_eq!(lab.fails("pow", &[(&x).into(), Arg::Int(-1)], &[]).code().id, "E0353");
    let down = lab.tensor(&[4], &[-1.0, -3.0, -2.0, -1.0], I32);
    let y = lab.call("pow", &[(&x).into(), (&down).into()]);
    lab.same(&y, &[4], &[0.0, -1.0, 1.0, 0.0]);
    let y = lab.call("pow", &[(&x).into(), 0.5.into()]);
    assert_eq!(y.dtype(), F32);
    let f = lab.tensor(&[3], &[0.25, 2.0, -3.0], F64);
    for (exponent, want) in [
        (2.0, [0.0625, 4.0, 9.0]),
        (3.0, [0.015625, 8.0, -27.0]),
        (-1.0, [4.0, 0.5, -1.0 / 3.0]),
        (-2.0, [16.0, 0.25, 1.0 / 9.0]),
        (0.5, [0.5, 2f64.sqrt(), f64::NAN]),
        (1.5, [0.125, 2f64.powf(1.5), f64::NAN]),
    ] {
        let y = lab.call("pow", &[(&f).into(), exponent.into()]);
        lab.near(&y, &[3], &want, 1e-15);
    }
    let y = lab.call("pow", &[2.into(), (&f).into()]);
    lab.near(&y, &[3], &[2f64.powf(0.25), 4.0, 0.125], 1e-15);
}

#[test]
fn rounding_takes_a_number_of_digits() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[4], &[0.125, 2.5, -3.5, 1234.567], F64);
    for (decimals, want) in
        [(0, [0.0, 2.0, -4.0, 1235.0]), (2, [0.12, 2.5, -3.5, 1234.57]), (-2, [0.0, 0.0, 0.0, 1200.0])]
    {
        let y = lab.call_with("round", &[(&x).into()], &[("decimals", decimals.into())]);
        lab.near(&y, &[4], &want, 1e-15);
    }
    let whole = lab.tensor(&[1], &[15.0], I64);
    let same = lab.call("round", &[(&whole).into()]);
    lab.same(&same, &[1], &[15.0]);
    let digits = [("decimals", Arg::Int(-1))];
    assert_eq!(lab.fails("round", &[(&whole).into()], &digits).code().id, "E0351");
}

#[test]
fn bounds_may_be_numbers_tensors_or_none() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[3], &[-5.0, 0.5, 5.0], F32);
    let low = lab.tensor(&[3], &[-1.0, 1.0, 9.0], F32);
    let y = lab.call("clamp", &[(&x).into(), (&low).into(), 3.into()]);
    lab.same(&y, &[3], &[-1.0, 1.0, 3.0]);
    let y = lab.call_with("clamp", &[(&x).into()], &[("max", 0.into())]);
    lab.same(&y, &[3], &[-5.0, 0.0, 0.0]);
    assert_eq!(lab.fails("clamp", &[(&x).into()], &[]).code().id, "E0353");
    let whole = lab.tensor(&[2], &[1.0, 5.0], I64);
    let y = lab.call("clamp", &[(&whole).into(), Arg::Float(1.5)]);
    assert_eq!(y.dtype(), F32);
    lab.same(&y, &[2], &[1.5, 5.0]);
    assert_eq!(lab.fails("clamp_", &[(&whole).into(), Arg::Float(1.5)], &[]).code().id, "E0352");
}

#[test]
fn masks_choose_and_fill() {
    let mut lab = Lab::new();
    let x = lab.counted(&[2, 2]);
    let mask = lab.tensor(&[2], &[1.0, 0.0], Bool);
    let y = lab.call("masked_fill", &[(&x).into(), (&mask).into(), Arg::Int(-1)]);
    lab.same(&y, &[2, 2], &[-1.0, 1.0, -1.0, 3.0]);
    let y = lab.call("where", &[(&mask).into(), (&x).into(), 0.5.into()]);
    lab.same(&y, &[2, 2], &[0.0, 0.5, 2.0, 0.5]);
    let whole = lab.tensor(&[2], &[1.0, 2.0], I64);
    let y = lab.call("where", &[(&whole).into(), 1.into(), 2.into()]);
    assert_eq!(y.dtype(), I64);
    assert_eq!(lab.fails("masked_fill", &[(&x).into(), (&whole).into(), 0.into()], &[]).code().id, "E0350");
    let half = Arg::Float(0.5);
    let y = lab.call("masked_fill", &[(&whole).into(), (&mask).into(), half]);
    lab.same(&y, &[2], &[0.0, 2.0]);
    lab.call("masked_fill_", &[(&x).into(), (&mask).into(), 7.into()]);
    lab.same(&x, &[2, 2], &[7.0, 1.0, 7.0, 3.0]);
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let x = lab.tensor(&[4], &[nan, inf, -inf, 1.0], F16);
    let y = lab.call("nan_to_num", &[(&x).into()]);
    lab.same(&y, &[4], &[0.0, 65504.0, -65504.0, 1.0]);
}

#[test]
fn closeness_and_equality_are_plain_bools() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[3], &[1.0, 2.0, f64::INFINITY], F32);
    let y = lab.tensor(&[3], &[1.0, 2.00001, f64::INFINITY], F32);
    let close = lab.call("isclose", &[(&x).into(), (&y).into()]);
    assert_eq!(close.dtype(), Bool);
    lab.same(&close, &[3], &[1.0, 1.0, 1.0]);
    assert_eq!(lab.number("allclose", &[(&x).into(), (&y).into()]).as_i64(), 1);
    assert_eq!(lab.number("allclose", &[(&x).into(), (&y).into(), 0.into()]).as_i64(), 0);
    assert_eq!(lab.number("equal", &[(&x).into(), (&x).into()]).as_i64(), 1);
    assert_eq!(lab.number("equal", &[(&x).into(), (&y).into()]).as_i64(), 0);
    let none = lab.tensor(&[0], &[], F32);
    assert_eq!(lab.number("equal", &[(&none).into(), (&none).into()]).as_i64(), 1);
    assert_eq!(lab.number("equal", &[(&none).into(), (&x).into()]).as_i64(), 0);
    let whole = lab.tensor(&[3], &[1.0, 2.0, 3.0], I64);
    let float = lab.tensor(&[3], &[1.0, 2.0, 3.0], F16);
    assert_eq!(lab.number("equal", &[(&whole).into(), (&float).into()]).as_i64(), 1);
}

#[test]
fn a_factor_scales_the_second_operand() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2], &[1.0, 2.0], F32);
    let g = lab.tensor(&[2], &[10.0, 20.0], F32);
    let named = [("alpha", Arg::Float(-0.5))];
    let y = lab.call_with("add", &[(&x).into(), (&g).into()], &named);
    lab.same(&y, &[2], &[-4.0, -8.0]);
    let y = lab.call_with("sub", &[(&x).into(), (&g).into()], &named);
    lab.same(&y, &[2], &[6.0, 12.0]);
    lab.call_with("add_", &[(&x).into(), (&g).into()], &[("alpha", Arg::Int(2))]);
    lab.same(&x, &[2], &[21.0, 42.0]);
}

#[test]
fn large_angles_are_exact() {
    let mut lab = Lab::new();
    let values = [1e5, 1.5e6, 1e10, 3e38, -7e7, 0.5].map(|v: f64| f64::from(v as f32));
    let x = lab.tensor(&[6], &values, F32);
    for (name, exact) in [("sin", libm::sin as fn(f64) -> f64), ("cos", libm::cos), ("tan", libm::tan)] {
        let y = lab.call(name, &[(&x).into()]);
        lab.near(&y, &[6], &values.map(exact), 2e-7);
    }
}
