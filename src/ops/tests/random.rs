//! Draws: equal for equal seeds, different for different offsets, with the right distribution.

use crate::array::Dtype::*;
use crate::driver::DeviceId;
use crate::kernel::philox;
use crate::ops::testing::{GPU, Lab};
use crate::ops::{Arg, random::STEP};
use crate::plan::Settings;
use crate::tensor::Generator;

fn ints(values: &[i64]) -> Arg {
    Arg::Ints(values.to_vec())
}

fn seeded(lab: &mut Lab, device: DeviceId, seed: u64) {
    lab.rt.generator(device).unwrap().manual_seed(seed);
}

#[test]
fn equal_seeds_draw_equal_numbers_on_every_device() {
    let mut lab = Lab::new();
    let mut draws = Vec::new();
    for device in [DeviceId::Cpu, GPU, DeviceId::Cuda(1)] {
        seeded(&mut lab, device, 42);
        let on = ("device", Arg::Device(device));
        let mut bytes = Vec::new();
        for name in ["rand", "randn"] {
            for dtype in [F16, BF16, F32, F64] {
                let x = lab.call_with(name, &[ints(&[5, 7])], &[on.clone(), ("dtype", dtype.into())]);
                assert_eq!((x.device(), x.dtype()), (device, dtype));
                bytes.push(lab.rt.read(&x).unwrap());
            }
        }
        let x = lab.call_with("randint", &[3.into(), 99.into(), ints(&[20])], std::slice::from_ref(&on));
        bytes.push(lab.rt.read(&x).unwrap());
        let x = lab.call_with("randperm", &[50.into()], &[on]);
        bytes.push(lab.rt.read(&x).unwrap());
        assert_eq!(lab.rt.generator(device).unwrap().state().offset, 10 * STEP);
        draws.push(bytes);
    }
    assert_eq!(draws[0], draws[1]);
    assert_eq!(draws[0], draws[2]);
}

#[test]
fn an_element_is_a_function_of_seed_offset_and_position() {
    let mut lab = Lab::new();
    seeded(&mut lab, GPU, 7);
    lab.call("rand", &[ints(&[3])]);
    let x = lab.call("rand", &[ints(&[2, 3])]);
    let want: Vec<f64> = (0..6).map(|i| f64::from(philox::uniform(i, 7, 4, 24))).collect();
    lab.same(&x, &[2, 3], &want);
    let x = lab.call_with("randn", &[ints(&[6])], &[("dtype", F64.into())]);
    let want: Vec<f64> = (0..6).map(|i| philox::normal_wide(i, 7, 8)).collect();
    lab.same(&x, &[6], &want);
    // In place through a view: positions are row-major in the view.
    let base = lab.counted(&[2, 4]);
    let mut layout = base.layout().clone();
    (layout.shape[1], layout.strides[1], layout.offset) = (2, 2, 1);
    lab.call("normal_", &[(&base.with_layout(layout)).into()]);
    let n = |i| f64::from(philox::normal(i, 7, 12));
    lab.same(&base, &[2, 4], &[0.0, n(0), 2.0, n(1), 4.0, n(2), 6.0, n(3)]);
}

#[test]
fn consecutive_draws_do_not_overlap() {
    let mut lab = Lab::new();
    let (a, b) = (lab.call("rand", &[ints(&[4096])]), lab.call("rand", &[ints(&[4096])]));
    let (a, b) = (lab.values(&a), lab.values(&b));
    let equal = a.iter().filter(|x| b.contains(x)).count();
    assert!(equal < 20, "{equal} of 4096 numbers are drawn again");
}

#[test]
fn draws_do_not_depend_on_fusion() {
    let run = |fuse| {
        let mut lab = Lab::with(Settings { fuse, ..Settings::default() });
        let x = lab.call("randn", &[ints(&[100])]);
        let y = lab.call("rand", &[ints(&[100])]);
        let z = lab.call("mul", &[(&x).into(), (&y).into()]);
        let noisy = lab.call("bernoulli", &[(&y).into()]);
        (lab.rt.read(&z).unwrap(), lab.rt.read(&noisy).unwrap())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn distributions_have_their_bounds_and_means() {
    let mut lab = Lab::new();
    let count = 20_000;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    for dtype in [F16, BF16, F32, F64] {
        let x = lab.call_with("rand", &[ints(&[count])], &[("dtype", dtype.into())]);
        let values = lab.values(&x);
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)), "{dtype}");
        assert!((mean(&values) - 0.5).abs() < 0.02, "{dtype}");
        lab.call("uniform_", &[(&x).into(), Arg::Float(-2.0), Arg::Float(6.0)]);
        let values = lab.values(&x);
        assert!(values.iter().all(|v| (-2.0..6.0).contains(v)), "{dtype}");
        assert!((mean(&values) - 2.0).abs() < 0.1, "{dtype}");
        lab.call("normal_", &[(&x).into(), 3.into(), 2.into()]);
        let values = lab.values(&x);
        let square: Vec<f64> = values.iter().map(|v| (v - 3.0) * (v - 3.0)).collect();
        assert!((mean(&values) - 3.0).abs() < 0.06 && (mean(&square) - 4.0).abs() < 0.2, "{dtype}");
        lab.call("exponential_", &[(&x).into(), 2.into()]);
        let values = lab.values(&x);
        assert!(values.iter().all(|&v| v >= 0.0) && (mean(&values) - 0.5).abs() < 0.02, "{dtype}");
        lab.call("bernoulli_", &[(&x).into(), 0.25.into()]);
        let values = lab.values(&x);
        assert!(values.iter().all(|&v| v == 0.0 || v == 1.0), "{dtype}");
        assert!((mean(&values) - 0.25).abs() < 0.02, "{dtype}");
    }
    let bytes = lab.call_with("zeros", &[ints(&[count])], &[("dtype", U8.into())]);
    lab.call("random_", &[(&bytes).into()]);
    let values = lab.values(&bytes);
    assert!(values.contains(&0.0) && values.contains(&255.0) && (mean(&values) - 127.5).abs() < 2.0);
    lab.call("random_", &[(&bytes).into(), 5.into(), 7.into()]);
    assert!(lab.values(&bytes).iter().all(|v| (5.0..7.0).contains(v)));
    let wide = lab.call("randint", &[Arg::Int(i64::MIN), ints(&[i64::MAX]), ints(&[100])]);
    assert!(lab.values(&wide).iter().any(|&v| v < -1e18));
    let dice = lab.call_with("randint", &[6.into(), ints(&[count])], &[("dtype", F32.into())]);
    assert_eq!(dice.dtype(), F32);
    assert!((mean(&lab.values(&dice)) - 2.5).abs() < 0.05);
}

#[test]
fn uniform_numbers_stay_below_their_bound() {
    let mut lab = Lab::new();
    // There are few numbers between these bounds, so some draws round to the upper bound.
    for (dtype, from, to) in
        [(F16, 2.0, 3.0), (BF16, -3.0, -2.0), (F32, 65536.0, 65537.0), (F64, 2e15, 2e15 + 64.0)]
    {
        let x = lab.call_with("zeros", &[ints(&[20_000])], &[("dtype", dtype.into())]);
        lab.call("uniform_", &[(&x).into(), Arg::Float(from), Arg::Float(to)]);
        let values = lab.values(&x);
        assert!(values.iter().all(|&v| v >= from && v < to), "{dtype}");
        assert!(values.iter().any(|&v| v > from + (to - from) * 0.9), "{dtype}");
    }
}

#[test]
fn parts_of_complex_numbers_are_drawn_as_in_pytorch() {
    let mut lab = Lab::new();
    for dtype in [C64, C128] {
        let z = lab.call_with("zeros", &[ints(&[20_000])], &[("dtype", dtype.into())]);
        lab.call("normal_", &[(&z).into(), Arg::Float(-2.0), Arg::Float(0.5)]);
        let pairs = lab.call("view_as_real", &[(&z).into()]);
        for part in 0..2 {
            let values: Vec<f64> = lab.values(&pairs).into_iter().skip(part).step_by(2).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
            assert!(
                (mean + 2.0).abs() < 0.02 && (variance - 0.125).abs() < 0.01,
                "{dtype} {mean} {variance}"
            );
        }
        lab.call("uniform_", &[(&z).into(), Arg::Float(1.0), Arg::Float(3.0)]);
        let values = lab.values(&pairs);
        assert!(values.iter().all(|v| (1.0..3.0).contains(v)), "{dtype}");
        assert!((values.iter().sum::<f64>() / values.len() as f64 - 2.0).abs() < 0.02, "{dtype}");
    }
    let whole = lab.tensor(&[2], &[1.0, 2.0], I64);
    assert_eq!(lab.fails("uniform_", &[(&whole).into()], &[]).code().id, "E0351");
}

#[test]
fn permutations_hold_every_number_once() {
    let mut lab = Lab::new();
    for n in [0, 1, 2, 1000] {
        let x = lab.call("randperm", &[n.into()]);
        let mut values = lab.values(&x);
        let shuffled = values.clone();
        values.sort_by(f64::total_cmp);
        assert_eq!(values, (0..n).map(|i| i as f64).collect::<Vec<_>>());
        assert!(n < 1000 || values != shuffled);
    }
    let x = lab.call_with("randperm", &[5.into()], &[("dtype", I32.into())]);
    assert_eq!(x.dtype(), I32);
}

#[test]
fn a_given_generator_is_used_and_must_be_of_the_device() {
    let mut lab = Lab::new();
    let own = Generator::new(GPU);
    own.manual_seed(3);
    let named = [("generator", Arg::Generator(own.clone()))];
    let x = lab.call_with("rand", &[ints(&[4])], &named);
    assert_eq!(own.state().offset, STEP);
    assert_eq!(lab.rt.generator(GPU).unwrap().state().offset, 0);
    let want: Vec<f64> = (0..4).map(|i| f64::from(philox::uniform(i, 3, 0, 24))).collect();
    lab.same(&x, &[4], &want);
    let like = lab.call_with("randn_like", &[(&x).into()], &named);
    assert_eq!(own.state().offset, 2 * STEP);
    assert_eq!(like.count(), 4);
    let elsewhere = [("generator", Arg::Generator(Generator::new(DeviceId::Cpu)))];
    assert_eq!(lab.fails("rand", &[ints(&[4])], &elsewhere).code().id, "E0353");
}

#[test]
fn invalid_arguments_are_errors() {
    let mut lab = Lab::new();
    let x = lab.counted(&[2]);
    let whole = lab.tensor(&[2], &[1.0, 2.0], I64);
    for (name, args, code) in [
        ("randint", vec![5.into(), ints(&[5]), ints(&[1])], "E0353"),
        ("randint", vec![0.into(), ints(&[1])], "E0353"),
        ("bernoulli_", vec![(&x).into(), 1.5.into()], "E0353"),
        ("bernoulli", vec![(&whole).into()], "E0351"),
        ("exponential_", vec![(&x).into(), 0.into()], "E0353"),
        ("geometric_", vec![(&x).into(), 1.into()], "E0353"),
        ("log_normal_", vec![(&x).into(), 0.into(), 0.into()], "E0353"),
        ("cauchy_", vec![(&x).into(), 0.into(), Arg::Float(f64::NAN)], "E0353"),
        ("cauchy_", vec![(&whole).into()], "E0351"),
        ("uniform_", vec![(&x).into(), 2.into(), 1.into()], "E0353"),
        ("normal_", vec![(&x).into(), 0.into(), Arg::Int(-1)], "E0353"),
        ("normal_", vec![(&whole).into()], "E0351"),
        ("randperm", vec![Arg::Int(-1)], "E0401"),
        ("normal", vec![], "E0350"),
    ] {
        assert_eq!(lab.fails(name, &args, &[]).code().id, code, "{name}");
    }
    let error = lab.fails("rand", &[ints(&[2])], &[("dtype", I64.into())]);
    assert_eq!(error.code().id, "E0351");
}

#[test]
fn normal_takes_tensors_that_broadcast() {
    let mut lab = Lab::new();
    let mean = lab.tensor(&[2, 1], &[10.0, 20.0], F32);
    let still = lab.tensor(&[3], &[0.0; 3], F32);
    let x = lab.call("normal", &[(&mean).into(), (&still).into()]);
    lab.same(&x, &[2, 3], &[10.0, 10.0, 10.0, 20.0, 20.0, 20.0]);
    let x = lab.call("normal", &[1.into(), 0.into(), ints(&[2])]);
    lab.same(&x, &[2], &[1.0, 1.0]);
}
