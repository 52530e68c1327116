use crate::array::{Dtype, Scalar};
use crate::ops::testing::{Lab, reduced};
use crate::ops::{Arg, Out};
use crate::plan::Settings;
use Dtype::*;

const SHAPE: [usize; 3] = [3, 4, 5];

/// Small integers, including zeros and duplicates.
fn small() -> Vec<f64> {
    (0..60).map(|i| f64::from((i * 7 + 3) % 11 % 5)).collect()
}

fn sum(v: &[f64]) -> f64 {
    v.iter().sum()
}

fn most(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn least(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::INFINITY, f64::min)
}

fn place_of(v: &[f64], wanted: f64) -> f64 {
    v.iter().position(|&x| x == wanted).unwrap() as f64
}

#[test]
fn reductions_equal_naive_ones_over_dtypes_layouts_and_dimensions() {
    let mut lab = Lab::new();
    type Reference = fn(&[f64]) -> f64;
    let operations: [(&str, Reference); 6] = [
        ("sum", sum),
        ("amax", most),
        ("amin", least),
        ("any", |v| f64::from(u8::from(v.iter().any(|&x| x != 0.0)))),
        ("all", |v| f64::from(u8::from(v.iter().all(|&x| x != 0.0)))),
        ("count_nonzero", |v| v.iter().filter(|&&x| x != 0.0).count() as f64),
    ];
    for dtype in Dtype::REAL {
        let values: Vec<f64> = match dtype {
            Bool => small().iter().map(|&x| f64::from(u8::from(x != 0.0))).collect(),
            _ => small(),
        };
        for x in lab.layouts(&SHAPE, &values, dtype) {
            for (name, f) in operations {
                for dims in [&[][..], &[0], &[1], &[2], &[-1, 0], &[0, 1, 2], &[1, 2]] {
                    let real: Vec<usize> = match dims.is_empty() {
                        // As in PyTorch, `any` and `all` over no dimensions keep every element.
                        true if matches!(name, "any" | "all") => Vec::new(),
                        true => (0..3).collect(),
                        false => dims.iter().map(|&d| if d < 0 { d + 3 } else { d } as usize).collect(),
                    };
                    let want = reduced(&SHAPE, &values, &real, f);
                    let kept: Vec<usize> = (0..3).filter(|d| !real.contains(d)).map(|d| SHAPE[d]).collect();
                    let out = lab.call(name, &[(&x).into(), dims.into()]);
                    lab.same(&out, &kept, &want);
                    if name != "count_nonzero" {
                        let kept: Vec<usize> =
                            (0..3).map(|d| if real.contains(&d) { 1 } else { SHAPE[d] }).collect();
                        let out = lab.call(name, &[(&x).into(), dims.into(), true.into()]);
                        lab.same(&out, &kept, &want);
                    }
                }
            }
        }
    }
}

#[test]
fn positions_are_those_of_the_first_of_equals() {
    let mut lab = Lab::new();
    for dtype in [U8, I8, I16, I32, I64, F16, BF16, F32, F64] {
        for x in lab.layouts(&SHAPE, &small(), dtype) {
            for (dim, real) in [(0, 0), (1, 1), (-1, 2)] {
                for (name, full, f) in
                    [("argmax", "max", most as fn(&[f64]) -> f64), ("argmin", "min", least)]
                {
                    let want = reduced(&SHAPE, &small(), &[real], |v| place_of(v, f(v)));
                    let kept: Vec<usize> = (0..3).filter(|&d| d != real).map(|d| SHAPE[d]).collect();
                    let out = lab.call(name, &[(&x).into(), dim.into()]);
                    assert_eq!(out.dtype(), I64);
                    lab.same(&out, &kept, &want);
                    let both = lab.parts(full, &[(&x).into(), dim.into()], &[]);
                    lab.same(&both[0], &kept, &reduced(&SHAPE, &small(), &[real], f));
                    lab.same(&both[1], &kept, &want);
                    assert_eq!(both[0].dtype(), dtype);
                }
            }
            let flat = lab.call("argmax", &[(&x).into()]);
            lab.same(&flat, &[], &[place_of(&small(), most(&small()))]);
            let kept = lab.call("argmin", &[(&x).into(), Arg::None, true.into()]);
            lab.same(&kept, &[1, 1, 1], &[place_of(&small(), least(&small()))]);
        }
    }
}

#[test]
fn dtypes_of_results_are_pytorchs() {
    let mut lab = Lab::new();
    for dtype in Dtype::REAL {
        let x = lab.tensor(&[2], &[1.0, 1.0], dtype);
        let out = lab.call("sum", &[(&x).into()]);
        assert_eq!(out.dtype(), if dtype.is_float() { dtype } else { I64 });
        let out = lab.call_with("prod", &[(&x).into()], &[("dtype", F64.into())]);
        assert_eq!(out.dtype(), F64);
        assert_eq!(lab.call("any", &[(&x).into()]).dtype(), Bool);
        assert_eq!(lab.call("max", &[(&x).into()]).dtype(), dtype);
        assert_eq!(
            lab.call("logsumexp", &[(&x).into(), 0.into()]).dtype(),
            if dtype.is_float() { dtype } else { F32 }
        );
        for name in ["mean", "var", "std", "norm"] {
            match dtype.is_float() {
                true => assert_eq!(lab.call(name, &[(&x).into()]).dtype(), dtype),
                false => {
                    let error = lab.fails(name, &[(&x).into()], &[]);
                    assert_eq!(error.code().id, "E0360");
                    assert_eq!(error.help_text(), Some("convert first: `x.to(f32)`"));
                }
            }
        }
    }
    let x = lab.tensor(&[3], &[1.0, 2.0, 4.0], I32);
    let out = lab.call_with("mean", &[(&x).into()], &[("dtype", F64.into())]);
    lab.same(&out, &[], &[7.0 / 3.0]);
    assert_eq!(lab.fails("mean", &[(&x).into()], &[("dtype", I64.into())]).code().id, "E0360");
}

#[test]
fn halves_accumulate_in_single_precision() {
    let mut lab = Lab::new();
    let ones = vec![1.0; 4096];
    let x = lab.tensor(&[4096], &ones, F16);
    let out = lab.call("sum", &[(&x).into()]);
    lab.same(&out, &[], &[4096.0]);
    let out = lab.call("norm", &[(&x).into()]);
    lab.same(&out, &[], &[64.0]);
    let big = lab.tensor(&[4], &[300.0; 4], F16);
    let out = lab.call("norm", &[(&big).into()]);
    lab.same(&out, &[], &[600.0]);
    let mut values = vec![2048.0; 4000];
    values.extend([2050.0; 4000]);
    let x = lab.tensor(&[8000], &values, BF16);
    let out = lab.call_with("var", &[(&x).into()], &[("correction", 0.into())]);
    assert_eq!(lab.values(&out).len(), 1);
}

#[test]
fn spread_and_norms_equal_their_definitions() {
    let mut lab = Lab::new();
    let values: Vec<f64> = (0..60).map(|i| f64::from(i % 7) * 0.75 - 1.5).collect();
    let variance = |v: &[f64], correction: f64| {
        let mean = sum(v) / v.len() as f64;
        v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (v.len() as f64 - correction).max(0.0)
    };
    for x in lab.layouts(&SHAPE, &values, F64) {
        for correction in [0, 1, 2] {
            let want = reduced(&SHAPE, &values, &[1], |v| variance(v, correction as f64));
            let named = [("correction", Arg::Int(correction))];
            let out = lab.call_with("var", &[(&x).into(), 1.into()], &named);
            lab.near(&out, &[3, 5], &want, 1e-12);
            let roots: Vec<f64> = want.iter().map(|v| v.sqrt()).collect();
            let out =
                lab.call_with("std", &[(&x).into(), 1.into()], &[named[0].clone(), ("keepdim", true.into())]);
            lab.near(&out, &[3, 1, 5], &roots, 1e-12);
        }
        for p in [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
            let want = reduced(&SHAPE, &values, &[0, 2], |v| {
                let a = v.iter().map(|x| x.abs());
                match p {
                    0.0 => a.filter(|&x| x != 0.0).count() as f64,
                    f64::INFINITY => a.fold(0.0, f64::max),
                    f64::NEG_INFINITY => a.fold(f64::INFINITY, f64::min),
                    p => a.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
                }
            });
            let out = lab.call("norm", &[(&x).into(), p.into(), [0i64, 2].as_slice().into()]);
            lab.near(&out, &[4], &want, 1e-12);
        }
        let want = reduced(&SHAPE, &values, &[2], |v| v.iter().map(|x| x.exp()).sum::<f64>().ln());
        let out = lab.call("logsumexp", &[(&x).into(), 2.into()]);
        lab.near(&out, &[3, 4], &want, 1e-12);
        let out = lab.call("logsumexp", &[(&x).into(), 2.into(), true.into()]);
        lab.near(&out, &[3, 4, 1], &want, 1e-12);
    }
    let one = lab.tensor(&[1], &[3.0], F32);
    let out = lab.call("var", &[(&one).into()]);
    lab.same(&out, &[], &[f64::NAN]);
}

#[test]
fn logsumexp_keeps_infinities() {
    let mut lab = Lab::new();
    let (inf, none) = (f64::INFINITY, f64::NEG_INFINITY);
    let x = lab.tensor(&[4, 2], &[1e4, 1e4, inf, 0.0, none, none, none, 2.0], F32);
    let out = lab.call("logsumexp", &[(&x).into(), 1.into()]);
    lab.near(&out, &[4], &[1e4 + 2f64.ln(), inf, none, 2.0], 1e-6);
}

#[test]
fn an_empty_reduction_has_a_sum_but_no_maximum() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 0], &[], F32);
    let whole = Arg::from(&x);
    for (name, want) in
        [("sum", 0.0), ("prod", 1.0), ("mean", f64::NAN), ("any", 0.0), ("all", 1.0), ("norm", 0.0)]
    {
        let out = lab.call(name, std::slice::from_ref(&whole));
        lab.same(&out, &[], &[want]);
        if name != "norm" {
            let out = lab.call(name, &[whole.clone(), 1.into()]);
            lab.same(&out, &[2], &[want, want]);
            let out = lab.call(name, &[whole.clone(), 0.into()]);
            lab.same(&out, &[0], &[]);
        }
    }
    let out = lab.call("logsumexp", &[whole.clone(), 1.into()]);
    lab.same(&out, &[2], &[f64::NEG_INFINITY; 2]);
    for name in ["max", "min", "amax", "amin", "argmax", "argmin", "median"] {
        if name != "median" {
            assert_eq!(lab.fails(name, std::slice::from_ref(&whole), &[]).code().id, "E0410");
        }
        let error = lab.fails(name, &[whole.clone(), 1.into()], &[]);
        assert_eq!(error.code().id, "E0410");
        assert!(error.message().contains("dimension 1 has size 0"), "{error}");
    }
    let out = lab.call("median", std::slice::from_ref(&whole));
    lab.same(&out, &[], &[f64::NAN]);
    let out = lab.call("amax", &[whole, 0.into()]);
    lab.same(&out, &[0], &[]);
}

#[test]
fn nan_wins_every_choice() {
    let mut lab = Lab::new();
    let nan = f64::NAN;
    let x = lab.tensor(&[2, 3], &[1.0, nan, 5.0, 4.0, 2.0, 3.0], F32);
    for (name, want) in [("amax", [nan, 4.0]), ("amin", [nan, 2.0])] {
        let out = lab.call(name, &[(&x).into(), 1.into()]);
        lab.same(&out, &[2], &want);
    }
    for (name, want) in [("argmax", [1.0, 0.0]), ("argmin", [1.0, 1.0])] {
        let out = lab.call(name, &[(&x).into(), 1.into()]);
        lab.same(&out, &[2], &want);
    }
    let out = lab.call("median", &[(&x).into()]);
    lab.same(&out, &[], &[nan]);
}

#[test]
fn the_pair_form_is_the_elementwise_maximum() {
    let mut lab = Lab::new();
    let (a, b) = (lab.tensor(&[2], &[1.0, 4.0], I32), lab.tensor(&[2], &[3.0, 2.0], F32));
    let out = lab.call("max", &[(&a).into(), (&b).into()]);
    assert_eq!(out.dtype(), F32);
    lab.same(&out, &[2], &[3.0, 4.0]);
    let out = lab.call_with("min", &[(&a).into()], &[("other", (&b).into())]);
    lab.same(&out, &[2], &[1.0, 2.0]);
    assert_eq!(lab.fails("max", &[(&a).into(), 0.5.into()], &[]).code().id, "E0350");
}

#[test]
fn zero_dimensions_reduce_to_themselves() {
    let mut lab = Lab::new();
    for device in [super::super::testing::GPU, crate::driver::DeviceId::Cpu] {
        let x = lab.tensor_on(&[], &[3.0], F32, device);
        for name in ["sum", "mean", "prod", "amax", "norm"] {
            let out = lab.call(name, &[(&x).into()]);
            lab.same(&out, &[], &[3.0]);
        }
        for dim in [0, -1] {
            let out = lab.call("sum", &[(&x).into(), dim.into(), true.into()]);
            lab.same(&out, &[], &[3.0]);
            let both = lab.parts("max", &[(&x).into(), dim.into()], &[]);
            lab.same(&both[0], &[], &[3.0]);
            lab.same(&both[1], &[], &[0.0]);
            let out = lab.call("cumsum", &[(&x).into(), dim.into()]);
            lab.same(&out, &[], &[3.0]);
        }
        assert!(lab.try_call("sum", &[(&x).into(), 1.into()], &[]).is_err());
    }
}

#[test]
fn wrong_dimensions_are_refused() {
    let mut lab = Lab::new();
    let x = lab.counted(&[2, 3]);
    for dims in [&[2][..], &[-3], &[0, 0], &[1, -1], &[i64::MIN]] {
        let error = lab.fails("sum", &[(&x).into(), dims.into()], &[]);
        assert_eq!(error.kind(), crate::base::ErrorKind::Index, "{dims:?}");
    }
}

#[test]
fn running_sums_and_products_go_along_any_dimension() {
    let mut lab = Lab::new();
    for dtype in [Bool, U8, I32, I64, F16, F32, F64] {
        let values: Vec<f64> = (0..60).map(|i| f64::from(u8::from(i % 3 > 0))).collect();
        for x in lab.layouts(&SHAPE, &values, dtype) {
            for (dim, real) in [(0, 0), (1, 1), (-1, 2)] {
                let mut want = values.clone();
                let step: usize = SHAPE[real + 1..].iter().product();
                (0..60usize)
                    .filter(|i| !(i / step).is_multiple_of(SHAPE[real]))
                    .for_each(|i| want[i] += want[i - step]);
                let out = lab.call("cumsum", &[(&x).into(), dim.into()]);
                lab.same(&out, &SHAPE, &want);
                assert_eq!(out.dtype(), if dtype.is_float() { dtype } else { I64 });
            }
        }
    }
    let x = lab.tensor(&[4], &[1.0, 2.0, 3.0, 4.0], I16);
    let out = lab.call_with("cumprod", &[(&x).into(), 0.into()], &[("dtype", F32.into())]);
    lab.same(&out, &[4], &[1.0, 2.0, 6.0, 24.0]);
    let none = lab.tensor(&[0, 2], &[], F32);
    let out = lab.call("cumsum", &[(&none).into(), 0.into()]);
    lab.same(&out, &[0, 2], &[]);
}

#[test]
fn fused_and_unfused_reductions_give_the_same_bytes() {
    let run = |fuse: bool| {
        let mut lab = Lab::with(Settings { fuse, ..Settings::default() });
        let values: Vec<f64> = (0..5000).map(|i| (f64::from(i) * 0.37).sin()).collect();
        let x = lab.tensor(&[50, 100], &values, F16);
        let y = lab.call("mul", &[(&x).into(), (&x).into()]);
        let y = lab.call("exp", &[(&y).into()]);
        let mut bytes = Vec::new();
        for (name, dim) in [("sum", 0), ("mean", 1), ("var", 0), ("norm", 0), ("logsumexp", 1), ("amax", 1)] {
            let args = match name {
                "norm" => vec![(&y).into(), 2.0.into(), dim.into()],
                _ => vec![(&y).into(), dim.into()],
            };
            let out = lab.call(name, &args);
            bytes.push(lab.rt.read(&out).unwrap());
        }
        bytes
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_number_that_is_counted_is_an_int() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 2], &[0.0, 3.0, 0.5, -0.0], F32);
    let Ok(Out::Tensor(count)) = lab.try_call("count_nonzero", &[(&x).into()], &[]) else { panic!() };
    assert_eq!(lab.rt.item(&count).unwrap(), Scalar::Int(2));
}

#[test]
fn pairs_of_reductions_match_single_ones() {
    let mut lab = Lab::new();
    let values: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 7)).collect();
    for x in lab.layouts(&[3, 4], &values, F64) {
        for (name, first) in [("var_mean", "var"), ("std_mean", "std")] {
            let both = lab.parts(name, &[(&x).into(), 1.into()], &[("keepdim", true.into())]);
            let one = lab.call_with(first, &[(&x).into(), 1.into()], &[("keepdim", true.into())]);
            let (want, mean) = (lab.values(&one), reduced(&[3, 4], &values, &[1], |v| sum(v) / 4.0));
            lab.same(&both[0], &[3, 1], &want);
            lab.near(&both[1], &[3, 1], &mean, 1e-12);
        }
        let ends = lab.parts("aminmax", &[(&x).into()], &[("dim", 0.into())]);
        lab.same(&ends[0], &[4], &reduced(&[3, 4], &values, &[0], least));
        lab.same(&ends[1], &[4], &reduced(&[3, 4], &values, &[0], most));
    }
    let x = lab.tensor(&[2, 2], &[1.0, f64::NAN, 3.0, 4.0], F16);
    let out = lab.call("nansum", &[(&x).into(), 1.into()]);
    lab.same(&out, &[2], &[1.0, 7.0]);
    let m = lab.tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], I16);
    let out = lab.call("trace", &[(&m).into()]);
    assert_eq!(out.dtype(), I64);
    lab.same(&out, &[], &[6.0]);
}
