//! Arguments of draws that a dtype cannot hold, or that are invalid as probabilities, weights or deviations.

use crate::array::Dtype::{self, *};
use crate::driver::DeviceId;
use crate::ops::Arg;
use crate::ops::testing::{GPU, Lab};

fn ints(values: &[i64]) -> Arg {
    Arg::Ints(values.to_vec())
}

/// The minimum and maximum integers of each dtype; those of `bf16` and wider floats are outside the range of `i64`.
fn ends(dtype: Dtype) -> (i64, i64) {
    match dtype {
        Bool => (0, 1),
        U8 => (0, 255),
        I8 => (-128, 127),
        I16 => (-32768, 32767),
        I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        F16 => (-65504, 65504),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Returns whether a dtype holds an integer exactly.
fn holds(dtype: Dtype, number: i64) -> bool {
    let digits = match dtype {
        F16 => 11,
        BF16 => 8,
        F32 => 24,
        F64 => 53,
        _ => 64,
    };
    let number = number.unsigned_abs();
    number == 0 || 64 - number.leading_zeros() - number.trailing_zeros() <= digits
}

#[test]
fn whole_numbers_stay_within_their_bounds_in_every_dtype() {
    let mut lab = Lab::new();
    let near = |x: i64| [x.checked_sub(1), Some(x), x.checked_add(1)].into_iter().flatten();
    for dtype in Dtype::REAL {
        let (least, most) = ends(dtype);
        let corners = [least, most, 0, -1, 1, 2, 255, 256, 2049, 4097, 65504, 1 << 24, (1 << 53) + 1];
        let mut bounds: Vec<i64> = corners.into_iter().flat_map(near).collect();
        bounds.sort_unstable();
        bounds.dedup();
        for &low in &bounds {
            for &high in bounds.iter().filter(|&&high| high == low || high > low && high % 3 != 0) {
                let fits = low < high && low >= least && high - 1 <= most;
                // Whether the dtype holds at least one integer between the bounds.
                let step = i64::try_from(high.wrapping_sub(1).unsigned_abs() >> 7).unwrap_or(1).max(1);
                let some = high.saturating_sub(low) > step || (low..high).take(300).any(|x| holds(dtype, x));
                let target = lab.tensor(&[8], &[1.0; 8], dtype);
                let calls = [
                    ("randint", vec![low.into(), ints(&[high]), ints(&[8])], vec![("dtype", dtype.into())]),
                    ("randint_like", vec![(&target).into(), low.into(), high.into()], vec![]),
                    ("random_", vec![(&target).into(), low.into(), high.into()], vec![]),
                ];
                for (name, args, named) in calls {
                    if !(fits && some) {
                        let code = lab.fails(name, &args, &named).code().id;
                        assert_eq!(code, "E0353", "{name} {low} {high} {dtype}");
                        continue;
                    }
                    let x = lab.call_with(name, &args, &named);
                    let values = lab.values(&x);
                    let inside = |&v: &f64| v >= low as f64 && (v < high as f64 || v <= (high - 1) as f64);
                    assert!(values.iter().all(inside), "{name} {low} {high} {dtype}: {values:?}");
                }
            }
        }
        let all = lab.tensor(&[4096], &[1.0; 4096], dtype);
        let x = lab.call("random_", &[(&all).into()]);
        assert!(lab.values(&x).iter().all(|v| v.is_finite() && *v >= 0.0), "{dtype}");
    }
    for dtype in [C64, C128] {
        let named = [("dtype", dtype.into())];
        assert_eq!(lab.fails("randint", &[0.into(), ints(&[2]), ints(&[3])], &named).code().id, "E0351");
        let target = lab.tensor(&[2], &[0.0; 2], dtype);
        assert_eq!(lab.fails("random_", &[(&target).into()], &[]).code().id, "E0351");
        assert_eq!(lab.fails("bernoulli_", &[(&target).into()], &[]).code().id, "E0351");
    }
}

#[test]
fn permutations_repeat_nothing_in_any_dtype() {
    let mut lab = Lab::new();
    let most = [(U8, 256), (I8, 128), (I16, 32768), (F16, 2049), (BF16, 257)];
    for (dtype, most) in most {
        let named = [("dtype", dtype.into())];
        for n in [0, 1, most - 1, most] {
            let x = lab.call_with("randperm", &[n.into()], &named);
            let mut values = lab.values(&x);
            values.sort_by(f64::total_cmp);
            assert!(values.iter().enumerate().all(|(i, &v)| v == i as f64), "{dtype} {n}");
        }
        for n in [most + 1, most + 300, 1 << 40] {
            assert_eq!(lab.fails("randperm", &[n.into()], &named).code().id, "E0353", "{dtype} {n}");
        }
    }
    for dtype in [Bool, C64, C128] {
        let named = [("dtype", dtype.into())];
        assert_eq!(lab.fails("randperm", &[2.into()], &named).code().id, "E0351", "{dtype}");
    }
}

#[test]
fn uniform_bounds_fit_the_dtype() {
    let mut lab = Lab::new();
    for (dtype, most) in [(F16, 65504.0), (BF16, 3.389e38), (F32, f64::from(f32::MAX)), (F64, f64::MAX)] {
        let x = lab.tensor(&[64], &[0.0; 64], dtype);
        for (from, to) in [(0.0, most), (-most, 0.0), (-most / 2.0, most / 2.0), (1.0, 1.0), (-1.0, 2.0)] {
            let found = lab.call("uniform_", &[(&x).into(), from.into(), to.into()]);
            let values = lab.values(&found);
            assert!(
                values.iter().all(|&v| v.is_finite() && v >= from && v <= to * 1.01),
                "{dtype} {from} {to}"
            );
        }
        let inf = f64::INFINITY;
        let wrong = [
            (0.0, most * 1.01),
            (-most * 1.01, 0.0),
            (-most, most),
            (2.0, 1.0),
            (0.0, inf),
            (-inf, 0.0),
            (f64::NAN, 1.0),
            (0.0, f64::NAN),
        ];
        for (from, to) in wrong {
            let code = lab.fails("uniform_", &[(&x).into(), from.into(), to.into()], &[]).code().id;
            assert_eq!(code, "E0353", "{dtype} {from} {to}");
        }
    }
}

/// The error raised by a call, or by the next wait for its device.
fn raised(lab: &mut Lab, device: DeviceId, name: &str, args: &[Arg]) -> Option<&'static str> {
    if let Err(error) = lab.try_call(name, args, &[]) {
        return Some(error.code().id);
    }
    let stream = lab.rt.current_stream(device).unwrap();
    lab.rt.synchronize_stream(&stream).err().map(|error| error.code().id)
}

#[test]
fn probabilities_weights_and_deviations_are_tested_on_every_device() {
    let mut lab = Lab::new();
    for device in [DeviceId::Cpu, GPU] {
        for dtype in [F16, BF16, F32, F64] {
            for bad in [-0.5, 1.5, 2.0, f64::NAN, f64::INFINITY, -1e-3] {
                let mut values = vec![0.25; 1500];
                values[1100] = bad;
                let p = lab.tensor_on(&[1500], &values, dtype, device);
                let zeros = lab.tensor_on(&[1500], &[0.0; 1500], dtype, device);
                assert!(raised(&mut lab, device, "bernoulli", &[(&p).into()]).is_some(), "{bad} {dtype}");
                let args = [(&zeros).into(), (&p).into()];
                assert!(raised(&mut lab, device, "bernoulli_", &args).is_some(), "{bad} {dtype}");
                assert!(raised(&mut lab, device, "bernoulli", &args).is_some(), "{bad} {dtype}");
                let negative = bad.is_nan() || bad < 0.0;
                let code = raised(&mut lab, device, "normal", &args);
                assert_eq!(code.is_some(), negative, "normal {bad} {dtype}");
                let weight = negative || bad.is_infinite();
                for replacement in [false, true] {
                    let args = [(&p).into(), 2.into(), replacement.into()];
                    let code = raised(&mut lab, device, "multinomial", &args);
                    assert_eq!(code.is_some(), weight, "multinomial {bad} {dtype}");
                }
            }
            let p = lab.tensor_on(&[3], &[0.0, 1.0, 0.5], dtype, device);
            assert_eq!(raised(&mut lab, device, "bernoulli", &[(&p).into()]), None);
            // At most as many draws as there are positive weights.
            let weights = [0.0, 3.0, 0.0, 1.0, 2.0, 0.0];
            let one = lab.tensor_on(&[6], &weights, dtype, device);
            let rows = lab.tensor_on(&[2, 3], &[1.0, 2.0, 3.0, 0.0, 0.0, 4.0], dtype, device);
            for (x, most, count) in [(&one, 3, 6), (&rows, 1, 3)] {
                for n in 1..=count {
                    let args = [x.into(), n.into()];
                    let code = raised(&mut lab, device, "multinomial", &args);
                    assert_eq!(code.is_some(), n > most, "{n} of {:?} {dtype}", x.shape());
                    let args = [x.into(), n.into(), true.into()];
                    assert_eq!(raised(&mut lab, device, "multinomial", &args), None);
                }
            }
            let drawn = lab.call("multinomial", &[(&one).into(), 3.into()]);
            let mut drawn = lab.values(&drawn);
            drawn.sort_by(f64::total_cmp);
            assert_eq!(drawn, [1.0, 3.0, 4.0]);
            let none = lab.tensor_on(&[2, 2], &[1.0, 1.0, 0.0, 0.0], dtype, device);
            assert!(raised(&mut lab, device, "multinomial", &[(&none).into(), 1.into()]).is_some());
        }
        let whole = lab.tensor_on(&[2], &[0.0, 1.0], I64, device);
        let x = lab.tensor_on(&[2], &[0.0; 2], F32, device);
        assert_eq!(raised(&mut lab, device, "bernoulli_", &[(&x).into(), (&whole).into()]), Some("E0351"));
    }
}
