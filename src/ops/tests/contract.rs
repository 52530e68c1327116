//! Products of tensors, windows, rotations and scattered reductions against naive references, in every
//! layout.

use crate::array::Dtype::*;
use crate::array::Scalar;
use crate::ops::testing::Lab;
use crate::ops::{Arg, Data};

fn values(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 5 + 3) % 7) as f64 - 2.0).collect()
}

#[test]
fn kronecker_products_put_blocks_together() {
    let mut lab = Lab::new();
    let (a, b) = (values(6), values(8));
    for dtype in [I32, I64, F32, F64] {
        for x in lab.layouts(&[2, 3], &a, dtype) {
            let y = lab.tensor(&[2, 2, 2], &b, dtype);
            let mut want = Vec::new();
            for p in 0..2 {
                for i in 0..4 {
                    for j in 0..6 {
                        want.push(a[i / 2 * 3 + j / 2] * b[p * 4 + i % 2 * 2 + j % 2]);
                    }
                }
            }
            let out = lab.call("kron", &[(&x).into(), (&y).into()]);
            lab.same(&out, &[2, 4, 6], &want);
        }
    }
}

#[test]
fn cross_products_are_orthogonal() {
    let mut lab = Lab::new();
    let (a, b) = (values(12), values(3));
    let naive = |u: &[f64], v: &[f64]| {
        [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]
    };
    let want: Vec<f64> = a.chunks(3).flat_map(|u| naive(u, &b)).collect();
    for x in lab.layouts(&[4, 3], &a, F32) {
        let y = lab.tensor(&[3], &b, F32);
        let out = lab.call("cross", &[(&x).into(), (&y).into()]);
        lab.same(&out, &[4, 3], &want);
        let out = lab.call("cross", &[(&x).into(), (&y).into(), (-1).into()]);
        lab.same(&out, &[4, 3], &want);
        assert_eq!(
            lab.fails("cross", &[(&x).into(), (&y).into(), 0.into()], &[]).kind().to_string(),
            "Shape"
        );
    }
}

#[test]
fn contractions_sum_over_pairs_of_dimensions() {
    let mut lab = Lab::new();
    let (a, b) = (values(24), values(24));
    let list = |dims: &[i64]| Data::List(dims.iter().map(|&d| Data::Number(Scalar::Int(d))).collect());
    for x in lab.layouts(&[2, 3, 4], &a, F64) {
        let y = lab.tensor(&[3, 4, 2], &b, F64);
        let mut want = vec![0.0; 4];
        for (i, sum) in want.iter_mut().enumerate() {
            *sum = (0..12).map(|k| a[i / 2 * 12 + k] * b[k * 2 + i % 2]).sum();
        }
        let out = lab.call("tensordot", &[(&x).into(), (&y).into()]);
        lab.same(&out, &[2, 2], &want);
        let dims = Arg::Data(Data::List(vec![list(&[2, -2]), list(&[1, 0])]));
        let out = lab.call("tensordot", &[(&x).into(), (&y).into(), dims]);
        lab.same(&out, &[2, 2], &want);
        let z = lab.tensor(&[5, 4], &values(20), F64);
        let mut want = Vec::new();
        for row in a.chunks(4) {
            want.extend(
                values(20).chunks(4).map(|other| row.iter().zip(other).map(|(p, q)| p * q).sum::<f64>()),
            );
        }
        let out = lab.call("inner", &[(&x).into(), (&z).into()]);
        lab.same(&out, &[2, 3, 5], &want);
        assert_eq!(lab.fails("inner", &[(&x).into(), (&y).into()], &[]).kind().to_string(), "Shape");
        assert_eq!(lab.fails("tensordot", &[(&x).into(), (&y).into(), 9.into()], &[]).code().id, "E0353");
    }
    let (p, q) = (lab.tensor(&[2], &[1.0, 2.0], I64), lab.tensor(&[2], &[3.0, 4.0], I64));
    let out = lab.call("tensordot", &[(&p).into(), (&q).into(), 0.into()]);
    lab.same(&out, &[2, 2], &[3.0, 4.0, 6.0, 8.0]);
}

#[test]
fn powers_and_combinations() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[3], &[2.0, -1.0, 3.0], I32);
    let out = lab.call("vander", &[(&x).into(), 4.into(), true.into()]);
    lab.same(&out, &[3, 4], &[1.0, 2.0, 4.0, 8.0, 1.0, -1.0, 1.0, -1.0, 1.0, 3.0, 9.0, 27.0]);
    let out = lab.call("vander", &[(&x).into(), 0.into()]);
    assert_eq!(out.shape().as_slice(), [3, 0]);
    let y = lab.tensor(&[2], &[7.0, 8.0], I32);
    let out = lab.call("cartesian_prod", &[Arg::Tensors(vec![x.clone(), y])]);
    lab.same(&out, &[6, 2], &[2.0, 7.0, 2.0, 8.0, -1.0, 7.0, -1.0, 8.0, 3.0, 7.0, 3.0, 8.0]);
    let out = lab.call("cartesian_prod", &[Arg::Tensors(vec![x])]);
    lab.same(&out, &[3], &[2.0, -1.0, 3.0]);
}

#[test]
fn unfold_and_rot90_match_their_definitions() {
    let mut lab = Lab::new();
    let a = values(24);
    for x in lab.layouts(&[4, 6], &a, I64) {
        let out = lab.call("unfold", &[(&x).into(), 1.into(), 3.into(), 2.into()]);
        let mut want = Vec::new();
        for i in 0..4 {
            for from in [0, 2] {
                want.extend_from_slice(&a[i * 6 + from..i * 6 + from + 3]);
            }
        }
        lab.same(&out, &[4, 2, 3], &want);
        for k in -4..5i64 {
            let (mut want, mut rows, mut columns) = (a.clone(), 4, 6);
            for _ in 0..k.rem_euclid(4) {
                let old = want.clone();
                want = (0..24).map(|p| old[p % rows * columns + columns - 1 - p / rows]).collect();
                (rows, columns) = (columns, rows);
            }
            let out = lab.call("rot90", &[(&x).into(), k.into()]);
            lab.same(&out, &[rows, columns], &want);
        }
        let out = lab.call("fliplr", &[(&x).into()]);
        let want: Vec<f64> = a.chunks(6).flat_map(|row| row.iter().rev().copied()).collect();
        lab.same(&out, &[4, 6], &want);
        let out = lab.call("flipud", &[(&x).into()]);
        let want: Vec<f64> = a.chunks(6).rev().flatten().copied().collect();
        lab.same(&out, &[4, 6], &want);
        assert_eq!(lab.fails("unfold", &[(&x).into(), 0.into(), 5.into(), 1.into()], &[]).code().id, "E0353");
        assert_eq!(lab.fails("unfold", &[(&x).into(), 0.into(), 1.into(), 0.into()], &[]).code().id, "E0353");
    }
}

#[test]
fn steps_go_from_zero_to_one() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[4], &[-2.0, 0.0, 3.0, f64::NAN], F32);
    let at = lab.tensor(&[4], &[5.0, 6.0, 7.0, 8.0], F32);
    let out = lab.call("heaviside", &[(&x).into(), (&at).into()]);
    lab.same(&out, &[4], &[0.0, 6.0, 1.0, 0.0]);
}

#[test]
fn scattered_values_are_combined() {
    let mut lab = Lab::new();
    let own = [10.0, 20.0, 30.0, 40.0];
    let (src, ids) = ([5.0, 3.0, 4.0, 9.0, 1.0], [0usize, 2, 0, 2, 0]);
    for dtype in [U8, I16, I32, I64, F32, F64] {
        for (reduce, f) in [
            ("sum", (|a, b| a + b) as fn(f64, f64) -> f64),
            ("amax", f64::max),
            ("amin", f64::min),
            ("mean", |a, b| a + b),
        ] {
            for include in [true, false] {
                let mut want = own.to_vec();
                let mut counts = [f64::from(u8::from(include)); 4];
                for (&value, &at) in src.iter().zip(&ids) {
                    want[at] = if counts[at] == 0.0 { value } else { f(want[at], value) };
                    counts[at] += 1.0;
                }
                if reduce == "mean" {
                    for (sum, count) in want.iter_mut().zip(counts) {
                        *sum /= count.max(1.0);
                        *sum = if dtype.is_float() { *sum } else { sum.floor() };
                    }
                }
                let x = lab.tensor(&[4], &own, dtype);
                let values = lab.tensor(&[5], &src, dtype);
                let index = lab.tensor(&[5], &ids.map(|i| i as f64), I64);
                let args =
                    [(&x).into(), 0.into(), (&index).into(), (&values).into(), Arg::Str(reduce.into())];
                let out = lab.call_with("scatter_reduce", &args, &[("include_self", include.into())]);
                lab.near(&out, &[4], &want, 1e-6);
                lab.same(&x, &[4], &own);
            }
        }
    }
    let x = lab.tensor(&[2], &[2.0, 3.0], F32);
    let index = lab.tensor(&[3], &[0.0, 0.0, 1.0], I64);
    let values = lab.tensor(&[3], &[4.0, 5.0, 6.0], F32);
    let args = |how: &str| [(&x).into(), 0.into(), (&index).into(), (&values).into(), Arg::Str(how.into())];
    let out = lab.call_with("scatter_reduce", &args("prod"), &[("include_self", false.into())]);
    lab.same(&out, &[2], &[20.0, 6.0]);
    assert_eq!(lab.fails("scatter_reduce", &args("median"), &[]).code().id, "E0353");
}

/// Maxima and minima do not depend on the order of the elements: nan wins, and -0 is less than 0.
#[test]
fn scattered_extremes_order_zeros() {
    let mut lab = Lab::new();
    for dtype in [F16, BF16, F32, F64] {
        for reversed in [false, true] {
            let mut values = vec![0.0, -0.0, -0.0, f64::NAN, 1.0];
            let mut ids = vec![0.0, 0.0, 1.0, 2.0, 2.0];
            if reversed {
                values.reverse();
                ids.reverse();
            }
            let x = lab.tensor(&[3], &[-0.0, 0.0, 2.0], dtype);
            let (values, index) = (lab.tensor(&[5], &values, dtype), lab.tensor(&[5], &ids, I64));
            for (how, signs) in [("amax", [false, false]), ("amin", [true, true])] {
                let args = [(&x).into(), 0.into(), (&index).into(), (&values).into(), Arg::Str(how.into())];
                let out = lab.call("scatter_reduce", &args);
                let got = lab.values(&out);
                assert_eq!(got[..2], [0.0; 2]);
                assert_eq!([got[0], got[1]].map(f64::is_sign_negative), signs, "{dtype} {how}");
                assert!(got[2].is_nan(), "{dtype} {how}");
            }
        }
    }
}
