use crate::array::Dtype;
use crate::ops::Arg;
use crate::ops::testing::Lab;
use Dtype::*;

const SHAPE: [usize; 3] = [3, 4, 5];

fn values() -> Vec<f64> {
    (0..60).map(|i| f64::from((i * 17 + 5) % 23 % 9)).collect()
}

/// The stable sort of one dimension, naively.
fn reference(dim: usize, descending: bool) -> (Vec<f64>, Vec<f64>) {
    let (mut sorted, mut places) = (values(), vec![0.0; 60]);
    let step: usize = SHAPE[dim + 1..].iter().product();
    for start in (0..60).filter(|i| i / step % SHAPE[dim] < 1) {
        let mut row: Vec<(f64, usize)> = (0..SHAPE[dim]).map(|i| (values()[start + i * step], i)).collect();
        row.sort_by(|a, b| if descending { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
        for (i, (value, place)) in row.into_iter().enumerate() {
            sorted[start + i * step] = value;
            places[start + i * step] = place as f64;
        }
    }
    (sorted, places)
}

#[test]
fn sorting_is_stable_along_any_dimension() {
    let mut lab = Lab::new();
    for dtype in [U8, I8, I16, I32, I64, F16, BF16, F32, F64] {
        for x in lab.layouts(&SHAPE, &values(), dtype) {
            for (dim, real) in [(0, 0), (1, 1), (-1, 2)] {
                for descending in [false, true] {
                    let (want, places) = reference(real, descending);
                    let out = lab.parts("sort", &[(&x).into(), dim.into(), descending.into()], &[]);
                    lab.same(&out[0], &SHAPE, &want);
                    lab.same(&out[1], &SHAPE, &places);
                    assert_eq!((out[0].dtype(), out[1].dtype()), (dtype, I64));
                    let out = lab.call("argsort", &[(&x).into(), dim.into(), descending.into()]);
                    lab.same(&out, &SHAPE, &places);
                }
            }
        }
    }
}

#[test]
fn nan_is_the_greatest() {
    let mut lab = Lab::new();
    let nan = f64::NAN;
    let x = lab.tensor(&[4], &[2.0, nan, f64::INFINITY, -1.0], F32);
    let out = lab.parts("sort", &[(&x).into()], &[]);
    lab.same(&out[0], &[4], &[-1.0, 2.0, f64::INFINITY, nan]);
    let out = lab.parts("sort", &[(&x).into(), 0.into(), true.into()], &[]);
    lab.same(&out[0], &[4], &[nan, f64::INFINITY, 2.0, -1.0]);
    let out = lab.parts("topk", &[(&x).into(), 2.into()], &[]);
    lab.same(&out[1], &[2], &[1.0, 2.0]);
}

#[test]
fn small_and_empty_tensors_sort() {
    let mut lab = Lab::new();
    let one = lab.tensor(&[], &[5.0], F32);
    let out = lab.parts("sort", &[(&one).into()], &[]);
    lab.same(&out[0], &[], &[5.0]);
    lab.same(&out[1], &[], &[0.0]);
    let none = lab.tensor(&[2, 0], &[], F32);
    let out = lab.parts("sort", &[(&none).into(), 0.into()], &[]);
    lab.same(&out[0], &[2, 0], &[]);
    let out = lab.parts("topk", &[(&one).into(), 1.into()], &[]);
    lab.same(&out[0], &[], &[5.0]);
}

#[test]
fn the_few_greatest_and_least() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 4], &[4.0, 1.0, 3.0, 2.0, 5.0, 8.0, 6.0, 7.0], I32);
    let out = lab.parts("topk", &[(&x).into(), 2.into()], &[]);
    lab.same(&out[0], &[2, 2], &[4.0, 3.0, 8.0, 7.0]);
    lab.same(&out[1], &[2, 2], &[0.0, 2.0, 1.0, 3.0]);
    let out = lab.parts("topk", &[(&x).into(), 1.into(), 0.into(), false.into()], &[]);
    lab.same(&out[0], &[1, 4], &[4.0, 1.0, 3.0, 2.0]);
    let out = lab.parts("topk", &[(&x).into(), 0.into()], &[]);
    lab.same(&out[0], &[2, 0], &[]);
    let out = lab.parts("kthvalue", &[(&x).into(), 3.into(), 1.into(), true.into()], &[]);
    lab.same(&out[0], &[2, 1], &[3.0, 7.0]);
    for k in [-1, 5, i64::MAX] {
        assert_eq!(lab.fails("topk", &[(&x).into(), k.into()], &[]).code().id, "E0353");
    }
    assert_eq!(lab.fails("kthvalue", &[(&x).into(), 0.into()], &[]).code().id, "E0353");
}

#[test]
fn the_few_of_long_rows_are_those_of_a_sort() {
    let mut lab = Lab::new();
    for (shape, dim) in [([3, 5000], 1), ([900, 4], 0), ([1, 200_000], 1)] {
        let count: usize = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|i| ((i * 7919) % 4001 % 97) as f64).collect();
        for dtype in [U8, F32, F64] {
            for x in lab.layouts(&shape, &values, dtype) {
                for (k, largest) in [(1, true), (7, false), (512, true)] {
                    let args = [(&x).into(), Arg::Int(k), Arg::Int(dim), largest.into()];
                    let found = lab.parts("topk", &args, &[]);
                    let sorted = lab.parts("sort", &[(&x).into(), Arg::Int(dim), largest.into()], &[]);
                    for (found, sorted) in found.iter().zip(&sorted) {
                        let args = [sorted.into(), Arg::Int(dim), Arg::Int(0), Arg::Int(k)];
                        let want = lab.call("narrow", &args);
                        let values = lab.values(&want);
                        lab.same(found, want.shape(), &values);
                    }
                }
            }
        }
    }
}

#[test]
fn the_median_is_the_lower_middle() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 4], &[4.0, 1.0, 3.0, 2.0, 5.0, f64::NAN, 6.0, 7.0], F32);
    let out = lab.parts("median", &[(&x).into(), 1.into()], &[]);
    lab.same(&out[0], &[2], &[2.0, f64::NAN]);
    lab.same(&out[1], &[2], &[3.0, 1.0]);
    let y = lab.tensor(&[5], &[9.0, 1.0, 7.0, 3.0, 5.0], I16);
    let out = lab.call("median", &[(&y).into()]);
    lab.same(&out, &[], &[5.0]);
    let out = lab.parts("median", &[(&y).into(), 0.into(), true.into()], &[]);
    lab.same(&out[1], &[1], &[4.0]);
}

/// Selection from rows: over all elements and along each dimension.
#[test]
fn medians_of_long_rows_are_those_of_a_sort() {
    let mut lab = Lab::new();
    let length = 2100;
    let mut values: Vec<f64> = (0..2 * length).map(|i| (i * 7919 % 997) as f64 - 400.0).collect();
    for nan in [false, true] {
        if nan {
            values[5] = f64::NAN;
        }
        for dtype in [F32, I64].into_iter().filter(|dtype| !nan || dtype.is_float()) {
            for x in lab.layouts(&[2, length], &values, dtype) {
                for (operation, args) in [
                    ("median", vec![1.into()]),
                    ("median", vec![1.into(), true.into()]),
                    ("kthvalue", vec![1500.into(), 1.into()]),
                    ("kthvalue", vec![1.into(), 1.into(), true.into()]),
                ] {
                    let args: Vec<Arg> = [Arg::from(&x)].into_iter().chain(args).collect();
                    let found = lab.parts(operation, &args, &[]);
                    let keepdim = matches!(args.last(), Some(Arg::Bool(true)));
                    let shape = if keepdim { &[2, 1][..] } else { &[2] };
                    let mut wanted = [Vec::new(), Vec::new()];
                    for row in values.chunks(length) {
                        let mut order: Vec<usize> = (0..length).collect();
                        order.sort_by(|&a, &b| {
                            row[a].is_nan().cmp(&row[b].is_nan()).then(row[a].total_cmp(&row[b]))
                        });
                        let last = order[length - 1];
                        let at = match operation {
                            "median" if row[last].is_nan() => last,
                            "median" => order[(length - 1) / 2],
                            _ => order[if keepdim { 0 } else { 1499 }],
                        };
                        wanted[0].push(row[at]);
                        wanted[1].push(at as f64);
                    }
                    lab.same(&found[0], shape, &wanted[0]);
                    lab.same(&found[1], shape, &wanted[1]);
                }
                let all = lab.call("median", &[(&x).into()]);
                let mut sorted = values.clone();
                sorted.sort_by(f64::total_cmp);
                lab.same(&all, &[], &[if nan { f64::NAN } else { sorted[length - 1] }]);
            }
        }
    }
}

#[test]
fn distinct_values_with_their_places_and_counts() {
    let mut lab = Lab::new();
    for x in lab.layouts(&[2, 3], &[3.0, 1.0, 3.0, 2.0, 1.0, 3.0], F32) {
        let out = lab.call("unique", &[(&x).into()]);
        lab.same(&out, &[3], &[1.0, 2.0, 3.0]);
        let named = [("return_inverse", Arg::Bool(true)), ("return_counts", Arg::Bool(true))];
        let out = lab.parts("unique", &[(&x).into()], &named);
        lab.same(&out[1], &[2, 3], &[2.0, 0.0, 2.0, 1.0, 0.0, 2.0]);
        lab.same(&out[2], &[3], &[2.0, 1.0, 3.0]);
    }
    let none = lab.tensor(&[0], &[], I64);
    let out = lab.parts("unique", &[(&none).into()], &[("return_counts", true.into())]);
    lab.same(&out[0], &[0], &[]);
    lab.same(&out[1], &[0], &[]);
}

/// Few and many counts; counts of bytes with and without a wait for the maximum byte.
#[test]
fn counts_have_the_length_that_is_asked_for() {
    let mut lab = Lab::new();
    for dtype in [Dtype::U8, Dtype::I8, Dtype::I16, I64] {
        for values in [&[3.0, 0.0, 3.0, 7.0][..], &[0.0], &[]] {
            for least in [0, 2, 8, 256, 300, 8192, 8193, 10_000] {
                for x in lab.layouts(&[values.len()], values, dtype) {
                    let length = values.iter().fold(least as f64, |n, &x| n.max(x + 1.0)) as usize;
                    let mut want = vec![0.0; length];
                    values.iter().for_each(|&x| want[x as usize] += 1.0);
                    let out = lab.call("bincount", &[(&x).into(), Arg::None, least.into()]);
                    lab.same(&out, &[length], &want);
                }
            }
        }
    }
    let far = lab.tensor(&[2], &[9000.0, 1.0], Dtype::I16);
    let out = lab.call("bincount", &[(&far).into()]);
    let mut want = vec![0.0; 9001];
    (want[1], want[9000]) = (1.0, 1.0);
    lab.same(&out, &[9001], &want);
    let bad = lab.tensor(&[2], &[3.0, -2.0], Dtype::I8);
    assert_eq!(lab.fails("bincount", &[(&bad).into()], &[]).code().id, "E0353");
    let bad = lab.tensor(&[2], &[3.0, 2.0], F32);
    assert_eq!(lab.fails("bincount", &[(&bad).into()], &[]).code().id, "E0362");
}

#[test]
fn counts_of_small_integers() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[5], &[1.0, 3.0, 1.0, 0.0, 3.0], I32);
    let out = lab.call("bincount", &[(&x).into()]);
    lab.same(&out, &[4], &[1.0, 2.0, 0.0, 2.0]);
    let weights = lab.tensor(&[5], &[0.5, 1.0, 0.25, 2.0, 4.0], F32);
    let out = lab.call("bincount", &[(&x).into(), (&weights).into(), 6.into()]);
    lab.same(&out, &[6], &[2.0, 0.75, 0.0, 5.0, 0.0, 0.0]);
    let bad = lab.tensor(&[1], &[-2.0], I64);
    assert_eq!(lab.fails("bincount", &[(&bad).into()], &[]).code().id, "E0353");
    let none = lab.tensor(&[0], &[], I64);
    let out = lab.call("bincount", &[(&none).into(), Arg::None, 2.into()]);
    lab.same(&out, &[2], &[0.0, 0.0]);
}
