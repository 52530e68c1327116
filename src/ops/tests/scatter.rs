//! Writing to positions: every dtype and combination against a model, out of place and in place, and the launches of
//! in-place forms.

#![cfg(test)]

use super::super::Arg;
use super::super::testing::Lab;
use super::launches::labels;
use crate::array::Dtype::{self, *};
use crate::tensor::Tensor;

/// A pseudo-random number.
fn mix(i: usize) -> usize {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as usize
}

/// A combination of two elements.
fn combined(how: &str, a: f64, b: f64) -> f64 {
    let nan = a.is_nan() || b.is_nan();
    match how {
        "sum" | "mean" => a + b,
        "prod" => a * b,
        _ if nan => f64::NAN,
        "amax" => a.max(b),
        _ => a.min(b),
    }
}

/// The result for one target: its old value combined with its sources.
fn model(how: &str, held: f64, sources: &[f64], own: bool, dtype: Dtype) -> f64 {
    let mut all = sources.iter().copied();
    let first = if own || sources.is_empty() { held } else { all.next().unwrap_or(held) };
    let found = all.fold(first, |a, b| combined(how, a, b));
    if how != "mean" {
        return found;
    }
    let mean = found / (sources.len() + usize::from(own)).max(1) as f64;
    if dtype.is_float() { mean } else { mean.floor() }
}

/// Numbers of sources and targets.
const FORMS: &[(usize, usize)] = &[(0, 3), (1, 1), (5, 4), (400, 1), (400, 3), (6, 500), (40, 40)];

#[test]
fn sources_are_combined_as_a_model_does() {
    let mut lab = Lab::new();
    for dtype in [U8, I16, I32, I64, F16, BF16, F32, F64] {
        for how in ["sum", "prod", "mean", "amax", "amin"] {
            for (number, &(count, places)) in FORMS.iter().enumerate() {
                for own in [true, false] {
                    // Sums are exact in every dtype and order; some elements are special numbers.
                    let value = |i: usize| match (mix(i) % 50, how) {
                        (0, _) if dtype.is_float() && number % 2 == 0 => f64::NAN,
                        (1, "amax" | "amin") if dtype.is_float() => f64::INFINITY,
                        (2, "amax" | "amin") if dtype.is_float() => -0.0,
                        (at, "prod") => {
                            if at % 2 == 1 && dtype != U8 {
                                -1.0
                            } else {
                                1.0
                            }
                        }
                        (at, "sum" | "mean") => (at % 2) as f64 * f64::from(u8::from(dtype != U8)),
                        (at, _) => at as f64,
                    };
                    let source: Vec<f64> = (0..count).map(value).collect();
                    let held: Vec<f64> = (0..places).map(|i| (mix(i ^ 77) % 3 + 1) as f64).collect();
                    let ids: Vec<usize> = (0..count).map(|i| mix(i ^ 5555) % places).collect();
                    let of = |place: usize| -> Vec<f64> {
                        (0..count).filter(|&i| ids[i] == place).map(|i| source[i]).collect()
                    };
                    let want: Vec<f64> =
                        (0..places).map(|p| model(how, held[p], &of(p), own, dtype)).collect();
                    let values = lab.tensor(&[count], &source, dtype);
                    let index: Vec<f64> = ids.iter().map(|&i| i as f64).collect();
                    let index = lab.tensor(&[count], &index, I64);
                    let tolerance = if matches!(dtype, F16 | BF16) { 0.02 } else { 1e-6 };
                    for x in lab.layouts(&[places], &held, dtype) {
                        let args =
                            [(&x).into(), 0.into(), (&index).into(), (&values).into(), Arg::Str(how.into())];
                        let own = [("include_self", own.into())];
                        let out = lab.call_with("scatter_reduce", &args, &own);
                        lab.near(&out, &[places], &want, tolerance);
                        lab.same(&x, &[places], &held);
                        lab.call_with("scatter_reduce_", &args, &own);
                        // The bits are equal.
                        let bits = [&x, &out].map(|x| lab.rt.read(x).unwrap());
                        assert!(bits[0] == bits[1], "{dtype} {how} {count} {places}");
                    }
                }
            }
        }
    }
}

/// Products of complex numbers, in one launch for any number of sources.
#[test]
fn complex_numbers_are_multiplied() {
    let mut lab = Lab::new();
    for dtype in [C64, C128] {
        for (count, places) in [(1, 1), (300, 2), (9, 4)] {
            let parts: Vec<f64> = (0..2 * count).map(|i| [0.5, -1.0, 1.0, 0.25][mix(i) % 4]).collect();
            let source = lab.tensor(&[count, 2], &parts, dtype.real());
            let ids: Vec<f64> = (0..count).map(|i| (mix(i ^ 99) % places) as f64).collect();
            let index = lab.tensor(&[count], &ids, I64);
            let source = lab.call("view_as_complex", &[(&source).into()]);
            let options = [Arg::Ints(vec![places as i64]), Arg::Dtype(dtype), Arg::Device(index.device())];
            let x = lab.call("ones", &options);
            let args = [(&x).into(), 0.into(), (&index).into(), (&source).into(), Arg::Str("prod".into())];
            let found = labels(&mut lab, |lab| drop(lab.call("scatter_reduce_", &args)));
            assert_eq!(found, ["scatter_prod"]);
            let mut want = vec![(1.0, 0.0); places];
            for (part, &at) in parts.chunks(2).zip(&ids) {
                let (a, b) = want[at as usize];
                want[at as usize] = (a * part[0] - b * part[1], a * part[1] + b * part[0]);
            }
            let out = lab.call("view_as_real", &[(&x).into()]);
            let want: Vec<f64> = want.iter().flat_map(|&(a, b)| [a, b]).collect();
            lab.near(&out, &[places, 2], &want, 1e-4);
        }
    }
}

/// Few sources and a large tensor: no launch visits the whole tensor.
#[test]
fn in_place_forms_copy_nothing() {
    let mut lab = Lab::new();
    let values = vec![1.0; 1000];
    for turned in [false, true] {
        let x = lab.tensor(&[10, 100], &values, F32);
        let x = if turned { lab.call("t", &[(&x).into()]) } else { x };
        let wide = x.shape()[1];
        let ids = lab.tensor(&[3], &[1.0, 0.0, 1.0], I64);
        let rows = lab.tensor(&[3, wide], &vec![2.0; 3 * wide], F32);
        let one = lab.tensor(&[3, 1], &[1.0, 0.0, 1.0], I64);
        let each = lab.tensor(&[3, 1], &[1.0, 2.0, 3.0], F32);
        let at = |x: &Tensor, ids: &Tensor, value: Arg| -> Vec<Arg> {
            vec![x.into(), 0.into(), ids.into(), value]
        };
        let with = |mut args: Vec<Arg>, more: &[Arg]| {
            args.extend_from_slice(more);
            args
        };
        let how = |how: &str| Arg::Str(how.into());
        let calls: Vec<(&str, Vec<Arg>, &[&str])> = vec![
            ("index_add_", at(&x, &ids, (&rows).into()), &["scatter_sum"]),
            ("index_copy_", at(&x, &ids, (&rows).into()), &["scatter_"]),
            ("scatter_", at(&x, &one, (&each).into()), &["scatter_"]),
            ("scatter_", with(at(&x, &one, (&each).into()), &[how("multiply")]), &["scatter_prod"]),
            ("scatter_add_", at(&x, &one, (&each).into()), &["scatter_sum"]),
            ("scatter_reduce_", with(at(&x, &one, (&each).into()), &[how("amax")]), &["scatter_amax"]),
            ("index_reduce_", with(at(&x, &ids, (&rows).into()), &[how("amin")]), &["scatter_amin"]),
            (
                "index_put_",
                vec![(&x).into(), Arg::Tensors(vec![ids.clone()]), (&rows).into(), true.into()],
                &["scatter_sum"],
            ),
        ];
        for (name, args, want) in calls {
            let found = labels(&mut lab, |lab| drop(lab.call(name, &args)));
            assert_eq!(found, want, "{name}");
        }
        let fill = at(&x, &ids, 5.into());
        let found = labels(&mut lab, |lab| drop(lab.call("index_fill_", &fill)));
        assert_eq!(found.last().map(String::as_str), Some("scatter_"), "{found:?}");
    }
}

/// An in-place form that fails writes nothing, and one whose operands share its memory reads them first.
#[test]
fn in_place_forms_check_and_read_before_they_write() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[4], &[1.0, 2.0, 3.0, 4.0], F32);
    let ids = lab.tensor(&[2], &[0.0, 1.0], I64);
    let (long, short) = (lab.tensor(&[2], &[9.0, 9.0], F64), lab.tensor(&[1], &[9.0], F32));
    for wrong in [&long, &short] {
        let args = [(&x).into(), 0.into(), (&ids).into(), wrong.into(), Arg::Str("sum".into())];
        lab.fails("scatter_reduce_", &args, &[("include_self", false.into())]);
        lab.fails("index_add_", &args[..4], &[]);
        lab.same(&x, &[4], &[1.0, 2.0, 3.0, 4.0]);
    }
    let all = lab.tensor(&[4], &[1.0, 2.0, 3.0, 3.0], I64);
    let args = [(&all).into(), 0.into(), (&all).into(), (&all).into(), Arg::Str("sum".into())];
    lab.call_with("scatter_reduce_", &args, &[("include_self", false.into())]);
    lab.same(&all, &[4], &[1.0, 1.0, 2.0, 6.0]);
    let all = lab.tensor(&[4], &[1.0, 2.0, 3.0, 3.0], I64);
    let args = [(&all).into(), 0.into(), (&all).into(), (&all).into(), Arg::Str("mean".into())];
    lab.call_with("scatter_reduce_", &args, &[("include_self", false.into())]);
    lab.same(&all, &[4], &[1.0, 1.0, 2.0, 3.0]);
    let x = lab.tensor(&[1], &[1.0], F32);
    let wide = lab.call("expand", &[(&x).into(), Arg::Ints(vec![4])]);
    let overlap = lab.fails("add_", &[(&wide).into(), 1.into()], &[]).code().id;
    let args = [(&wide).into(), 0.into(), (&ids).into(), 1.into()];
    assert_eq!(lab.fails("scatter_", &args, &[]).code().id, overlap);
    let none = lab.tensor(&[0], &[], I64);
    let args = [(&wide).into(), 0.into(), (&none).into(), 1.into()];
    lab.fails("scatter_", &args, &[]);
}
