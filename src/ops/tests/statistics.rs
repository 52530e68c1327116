//! Quantiles, means without nan, histograms, covariance and integrals against naive references, in every
//! layout.

use crate::array::Dtype::*;
use crate::array::Scalar;
use crate::ops::testing::Lab;
use crate::ops::{Arg, Data};

const NAN: f64 = f64::NAN;

fn values() -> Vec<f64> {
    (0..24).map(|i| f64::from(i * 7 % 11) / 2.0 - 1.0).collect()
}

fn range_of(low: f64, high: f64) -> Arg {
    Arg::Data(Data::List([low, high].map(|end| Data::Number(Scalar::Float(end))).to_vec()))
}

fn quantile_of(row: &[f64], q: f64, how: &str) -> f64 {
    let mut row: Vec<f64> = row.iter().copied().filter(|x| !x.is_nan()).collect();
    row.sort_by(f64::total_cmp);
    if row.is_empty() {
        return NAN;
    }
    let rank = q * (row.len() - 1) as f64;
    let (low, high) = (row[rank.floor() as usize], row[rank.ceil() as usize]);
    match how {
        "lower" => low,
        "higher" => high,
        "nearest" => row[rank.round_ties_even() as usize],
        "midpoint" => (low + high) / 2.0,
        _ => low + (high - low) * rank.fract(),
    }
}

#[test]
fn quantiles_are_those_of_the_sorted_rows() {
    let mut lab = Lab::new();
    let values = values();
    for dtype in [F32, F64] {
        for x in lab.layouts(&[2, 3, 4], &values, dtype) {
            for how in ["linear", "lower", "higher", "nearest", "midpoint"] {
                let how_arg = || [("interpolation", Arg::Str(how.into()))];
                let want: Vec<f64> = values.chunks(4).map(|row| quantile_of(row, 0.4, how)).collect();
                let y = lab.call_with("quantile", &[(&x).into(), 0.4.into(), 2.into()], &how_arg());
                lab.near(&y, &[2, 3], &want, 1e-6);
                assert_eq!(y.dtype(), dtype);
                let y = lab.call_with(
                    "quantile",
                    &[(&x).into(), 0.4.into(), (-1).into(), true.into()],
                    &how_arg(),
                );
                lab.near(&y, &[2, 3, 1], &want, 1e-6);
                let q = lab.tensor(&[3], &[0.0, 0.4, 1.0], dtype);
                let want: Vec<f64> = [0.0, 0.4, 1.0].iter().map(|&q| quantile_of(&values, q, how)).collect();
                let y = lab.call_with("quantile", &[(&x).into(), (&q).into()], &how_arg());
                lab.near(&y, &[3], &want, 1e-6);
                let y = lab.call_with(
                    "nanquantile",
                    &[(&x).into(), (&q).into(), Arg::None, true.into()],
                    &how_arg(),
                );
                lab.near(&y, &[3, 1, 1, 1], &want, 1e-6);
            }
        }
    }
    let x = lab.tensor(&[2, 3], &[3.0, NAN, 1.0, NAN, NAN, NAN], F32);
    let y = lab.call("quantile", &[(&x).into(), 0.5.into(), 1.into()]);
    lab.same(&y, &[2], &[NAN, NAN]);
    let y = lab.call("nanquantile", &[(&x).into(), 0.5.into(), 1.into()]);
    lab.same(&y, &[2], &[2.0, NAN]);
    let whole = lab.tensor(&[2], &[1.0, 2.0], I64);
    assert_eq!(lab.fails("quantile", &[(&whole).into(), 0.5.into()], &[]).kind().to_string(), "Type");
    assert_eq!(lab.fails("quantile", &[(&x).into(), 1.5.into()], &[]).code().id, "E0353");
    for (outside, length) in [(-0.1, 3), (1.1, 3), (NAN, 3), (1.1, 1), (-0.1, 1)] {
        let q = lab.tensor(&[1], &[outside], F32);
        let x = lab.tensor(&[2, length], &vec![1.0; 2 * length], F32);
        for how in ["linear", "lower", "higher", "nearest", "midpoint"] {
            let how = [("interpolation", Arg::Str(how.into()))];
            let y = lab.call_with("quantile", &[(&x).into(), (&q).into(), 1.into()], &how);
            assert_eq!(lab.rt.read(&y).unwrap_err().code().id, "E0802", "{outside}");
        }
    }
}

#[test]
fn means_and_medians_leave_nan_out() {
    let mut lab = Lab::new();
    let values = [3.0, NAN, 1.0, 2.0, NAN, NAN, NAN, NAN, 5.0, 4.0, NAN, 7.0];
    let rows: Vec<Vec<f64>> =
        values.chunks(4).map(|row| row.iter().copied().filter(|x| !x.is_nan()).collect()).collect();
    for dtype in [F16, BF16, F32, F64] {
        for x in lab.layouts(&[3, 4], &values, dtype) {
            let means: Vec<f64> = rows.iter().map(|row| row.iter().sum::<f64>() / row.len() as f64).collect();
            let y = lab.call("nanmean", &[(&x).into(), 1.into()]);
            lab.near(&y, &[3], &means, 3e-2);
            let y = lab.call("nanmean", &[(&x).into()]);
            lab.near(&y, &[], &[22.0 / 6.0], 3e-2);
            let out = lab.parts("nanmedian", &[(&x).into(), 1.into(), true.into()], &[]);
            lab.same(&out[0], &[3, 1], &[2.0, NAN, 5.0]);
            let places = lab.values(&out[1]);
            assert_eq!((places[0], places[2]), (3.0, 0.0));
            let y = lab.call("nanmedian", &[(&x).into()]);
            lab.same(&y, &[], &[3.0]);
        }
    }
    let whole = lab.tensor(&[3], &[3.0, 1.0, 2.0], I32);
    let y = lab.call("nanmedian", &[(&whole).into()]);
    lab.same(&y, &[], &[2.0]);
}

#[test]
fn histograms_count_elements_in_the_range() {
    let mut lab = Lab::new();
    let values = values();
    let count = |bins: usize, low: f64, high: f64| {
        let mut counts = vec![0.0; bins];
        for &x in values.iter().filter(|x| (low..=high).contains(*x)) {
            counts[(((x - low) * bins as f64 / (high - low)) as usize).min(bins - 1)] += 1.0;
        }
        counts
    };
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    for x in lab.layouts(&[4, 6], &values, F32) {
        let y = lab.call("histc", &[(&x).into(), 5.into(), 0.into(), 3.into()]);
        lab.same(&y, &[5], &count(5, 0.0, 3.0));
        let y = lab.call("histc", &[(&x).into(), 4.into()]);
        lab.same(&y, &[4], &count(4, -1.0, most));
        // More than fit the kernel of few counts.
        let y = lab.call("histc", &[(&x).into(), 8200.into(), 0.into(), 3.into()]);
        lab.same(&y, &[8200], &count(8200, 0.0, 3.0));
    }
    let same = lab.tensor(&[3], &[2.0, 2.0, NAN], F32);
    let y = lab.call("histc", &[(&same).into(), 2.into(), 1.into(), 3.into()]);
    lab.same(&y, &[2], &[0.0, 2.0]);
    let same = lab.tensor(&[3], &[2.0; 3], F32);
    let y = lab.call("histc", &[(&same).into(), 2.into()]);
    lab.same(&y, &[2], &[0.0, 3.0]);
    assert_eq!(lab.fails("histc", &[(&same).into(), 0.into()], &[]).code().id, "E0353");
    assert_eq!(lab.fails("histc", &[(&same).into(), 2.into(), 3.into(), 1.into()], &[]).code().id, "E0353");
}

#[test]
fn histograms_with_edges_are_those_of_a_search() {
    let mut lab = Lab::new();
    let mut values = values();
    values.extend([NAN, f64::INFINITY, -7.0, 0.75]);
    let edges_of = |bins: usize, low: f64, high: f64| -> Vec<f64> {
        (0..=bins).map(|i| low + (high - low) * i as f64 / bins as f64).collect()
    };
    let count = |values: &[f64], edges: &[f64], weight: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let (last, parts) = (edges[edges.len() - 1], edges.len() - 1);
        let mut counts = vec![0.0; parts];
        for (i, &x) in values.iter().enumerate().filter(|(_, x)| (edges[0]..=last).contains(*x)) {
            let at = edges.iter().filter(|edge| **edge <= x).count() - 1;
            counts[at.min(parts - 1)] += weight(i);
        }
        counts
    };
    for dtype in [F32, F64] {
        let weights: Vec<f64> = (0..28).map(|i| f64::from(i % 5)).collect();
        let weight = lab.tensor(&[4, 7], &weights, dtype);
        for x in lab.layouts(&[4, 7], &values, dtype) {
            for (bins, low, high) in [(4i64, -1.0, 3.0), (3, 0.0, 2.0), (1, 0.5, 1.0)] {
                let range = || ("range", range_of(low, high));
                let want = edges_of(bins as usize, low, high);
                let found = lab.parts("histogram", &[(&x).into(), bins.into()], &[range()]);
                lab.near(&found[1], &[bins as usize + 1], &want, 1e-6);
                let edges: Vec<f64> = lab.values(&found[1]);
                lab.same(&found[0], &[bins as usize], &count(&values, &edges, &|_| 1.0));
                let given = ("weight", Arg::Tensor(weight.clone()));
                let found = lab.parts("histogram", &[(&x).into(), bins.into()], &[range(), given]);
                lab.same(&found[0], &[bins as usize], &count(&values, &edges, &|i| weights[i]));
            }
            let edges = [-1.0, 0.0, 0.75, 3.0];
            let listed = lab.tensor(&[4], &edges, dtype);
            let found = lab.parts("histogram", &[(&x).into(), (&listed).into()], &[]);
            lab.same(&found[0], &[3], &count(&values, &edges, &|_| 1.0));
            lab.same(&found[1], &[4], &edges);
        }
    }
    // The default range is that of the elements; around the value for a single one; 0 to 1 without elements.
    let few = lab.tensor(&[5], &[1.0, 2.0, 4.0, 9.0, 4.0], F32);
    let found = lab.parts("histogram", &[(&few).into(), 4.into()], &[]);
    lab.same(&found[0], &[4], &[2.0, 2.0, 0.0, 1.0]);
    lab.same(&found[1], &[5], &[1.0, 3.0, 5.0, 7.0, 9.0]);
    let one = lab.tensor(&[2], &[3.0, 3.0], F64);
    let found = lab.parts("histogram", &[(&one).into(), 2.into()], &[]);
    lab.same(&found[0], &[2], &[0.0, 2.0]);
    lab.same(&found[1], &[3], &[2.5, 3.0, 3.5]);
    let none = lab.tensor(&[0], &[], F32);
    let found = lab.parts("histogram", &[(&none).into(), 2.into()], &[]);
    lab.same(&found[0], &[2], &[0.0, 0.0]);
    lab.same(&found[1], &[3], &[0.0, 0.5, 1.0]);
    // The examples from PyTorch's documentation.
    let x = lab.tensor(&[3], &[1.0, 2.0, 1.0], F32);
    let weight = lab.tensor(&[3], &[1.0, 2.0, 4.0], F32);
    let range = || ("range", range_of(0.0, 3.0));
    let found =
        lab.parts("histogram", &[(&x).into(), 4.into()], &[range(), ("weight", Arg::Tensor(weight.clone()))]);
    lab.same(&found[0], &[4], &[0.0, 5.0, 2.0, 0.0]);
    let named = [range(), ("weight", Arg::Tensor(weight)), ("density", Arg::Bool(true))];
    let found = lab.parts("histogram", &[(&x).into(), 4.into()], &named);
    lab.near(&found[0], &[4], &[0.0, 0.952_381, 0.380_952, 0.0], 1e-5);
    for wrong in [0.into(), 2.5.into(), Arg::Tensor(lab.tensor(&[1, 2], &[0.0, 1.0], F32))] {
        lab.fails("histogram", &[(&x).into(), wrong], &[]);
    }
    let wrong = lab.fails("histogram", &[(&x).into()], &[("range", range_of(3.0, 1.0))]);
    assert_eq!(wrong.code().id, "E0353");
}

#[test]
fn diff_joins_prepend_and_append() {
    let mut lab = Lab::new();
    // The examples from PyTorch's documentation.
    let (a, b) = (lab.tensor(&[3], &[1.0, 3.0, 2.0], I64), lab.tensor(&[2], &[4.0, 5.0], I64));
    let y = lab.call_with("diff", &[(&a).into()], &[("append", Arg::Tensor(b.clone()))]);
    lab.same(&y, &[4], &[2.0, -1.0, 2.0, 1.0]);
    let y = lab.call_with("diff", &[(&a).into()], &[("prepend", Arg::Tensor(b.clone()))]);
    lab.same(&y, &[4], &[1.0, -4.0, 2.0, -1.0]);
    let y = lab.call("diff", &[(&a).into(), 2.into(), 0.into(), (&b).into(), (&b).into()]);
    lab.same(&y, &[5], &[-5.0, 6.0, -3.0, 3.0, -1.0]);
    // Differences of order 0: no differences are taken, and nothing is joined.
    let y = lab.call("diff", &[(&a).into(), 0.into(), 0.into(), (&b).into()]);
    lab.same(&y, &[3], &[1.0, 3.0, 2.0]);
    for x in lab.layouts(&[2, 3], &[1.0, 2.0, 4.0, 3.0, 5.0, 9.0], F32) {
        let row = lab.tensor(&[1, 3], &[1.0; 3], F32);
        let y = lab.call("diff", &[(&x).into(), 1.into(), 0.into(), (&row).into()]);
        lab.same(&y, &[2, 3], &[0.0, 1.0, 3.0, 2.0, 3.0, 5.0]);
        let column = lab.tensor(&[2, 1], &[0.0; 2], F64);
        let y = lab.call_with("diff", &[(&x).into()], &[("append", Arg::Tensor(column))]);
        assert_eq!(y.dtype(), F64);
        lab.same(&y, &[2, 3], &[1.0, 2.0, -4.0, 2.0, 4.0, -9.0]);
        let wrong = lab.fails("diff", &[(&x).into()], &[("prepend", Arg::Tensor(row))]);
        assert_eq!(wrong.code().id, "E0415");
    }
}

#[test]
fn covariance_is_that_of_the_definition() {
    let mut lab = Lab::new();
    let values: Vec<f64> = (0..12).map(|i| f64::from(i * i % 7)).collect();
    let (f, a) = ([1.0, 2.0, 0.0, 3.0], [0.5, 1.0, 2.0, 0.25]);
    let naive = |f: &[f64], a: &[f64], correction: f64| -> Vec<f64> {
        let w: Vec<f64> = f.iter().zip(a).map(|(f, a)| f * a).collect();
        let sum: f64 = w.iter().sum();
        let share = w.iter().zip(a).map(|(w, a)| w * a).sum::<f64>() / sum;
        let rows: Vec<Vec<f64>> = values
            .chunks(4)
            .map(|row| {
                let mean = row.iter().zip(&w).map(|(x, w)| x * w).sum::<f64>() / sum;
                row.iter().map(|x| x - mean).collect()
            })
            .collect();
        let dot = |p: &[f64], q: &[f64]| p.iter().zip(q).zip(&w).map(|((x, y), w)| x * y * w).sum::<f64>();
        let norm = sum - correction * share;
        rows.iter().flat_map(|p| rows.iter().map(|q| dot(p, q) / norm).collect::<Vec<f64>>()).collect()
    };
    let ones = [1.0; 4];
    for x in lab.layouts(&[3, 4], &values, F64) {
        let y = lab.call("cov", &[(&x).into()]);
        lab.near(&y, &[3, 3], &naive(&ones, &ones, 1.0), 1e-12);
        let y = lab.call_with("cov", &[(&x).into()], &[("correction", 0.into())]);
        lab.near(&y, &[3, 3], &naive(&ones, &ones, 0.0), 1e-12);
        let (often, much) = (lab.tensor(&[4], &f, I64), lab.tensor(&[4], &a, F64));
        let named = [("fweights", (&often).into()), ("aweights", (&much).into())];
        let y = lab.call_with("cov", &[(&x).into()], &named);
        lab.near(&y, &[3, 3], &naive(&f, &a, 1.0), 1e-12);
        let plain = naive(&ones, &ones, 1.0);
        let r: Vec<f64> = (0..9).map(|i| plain[i] / (plain[i / 3 * 4] * plain[i % 3 * 4]).sqrt()).collect();
        let y = lab.call("corrcoef", &[(&x).into()]);
        lab.near(&y, &[3, 3], &r, 1e-12);
    }
    let row = lab.tensor(&[4], &values[..4], F32);
    let y = lab.call("cov", &[(&row).into()]);
    lab.near(&y, &[], &naive(&ones, &ones, 1.0)[..1], 1e-6);
    let y = lab.call("corrcoef", &[(&row).into()]);
    lab.same(&y, &[], &[1.0]);
    let short = lab.tensor(&[3], &[1.0; 3], I64);
    assert_eq!(
        lab.fails("cov", &[(&row).into()], &[("fweights", (&short).into())]).kind().to_string(),
        "Shape"
    );
}

#[test]
fn areas_are_sums_of_trapezoids() {
    let mut lab = Lab::new();
    let values = values();
    let places = [0.0, 0.5, 2.0, 2.5];
    for y in lab.layouts(&[2, 3, 4], &values, F64) {
        let x = lab.tensor(&[4], &places, F64);
        let parts = |row: &[f64], step: &dyn Fn(usize) -> f64| -> Vec<f64> {
            (0..3).map(|i| (row[i] + row[i + 1]) / 2.0 * step(i)).collect()
        };
        let at = |i: usize| places[i + 1] - places[i];
        let want: Vec<f64> = values.chunks(4).map(|row| parts(row, &at).iter().sum()).collect();
        let got = lab.call("trapezoid", &[(&y).into(), (&x).into()]);
        lab.near(&got, &[2, 3], &want, 1e-12);
        let got = lab.call_with("trapezoid", &[(&y).into()], &[("dx", 0.25.into()), ("dim", 2.into())]);
        let want: Vec<f64> = values.chunks(4).map(|row| parts(row, &|_| 0.25).iter().sum()).collect();
        lab.near(&got, &[2, 3], &want, 1e-12);
        let mut running = Vec::new();
        for row in values.chunks(4) {
            let mut sum = 0.0;
            running.extend(parts(row, &at).iter().map(|part| {
                sum += part;
                sum
            }));
        }
        let got = lab.call("cumulative_trapezoid", &[(&y).into(), (&x).into()]);
        lab.near(&got, &[2, 3, 3], &running, 1e-12);
        let short = lab.tensor(&[3], &places[..3], F64);
        assert_eq!(lab.fails("trapezoid", &[(&y).into(), (&short).into()], &[]).kind().to_string(), "Shape");
    }
    let one = lab.tensor(&[1], &[3.0], F32);
    let got = lab.call("trapezoid", &[(&one).into()]);
    lab.same(&got, &[], &[0.0]);
}

#[test]
fn running_logarithms_of_sums_of_exponentials() {
    let mut lab = Lab::new();
    let values: Vec<f64> = (0..24).map(|i| f64::from(i * 13 % 17) * 40.0 - 300.0).collect();
    let mut want = Vec::new();
    for row in values.chunks(4) {
        for end in 1..=4 {
            let most = row[..end].iter().copied().fold(f64::MIN, f64::max);
            want.push(most + row[..end].iter().map(|x| (x - most).exp()).sum::<f64>().ln());
        }
    }
    for (dtype, tolerance) in [(F32, 1e-4), (F64, 1e-10)] {
        for x in lab.layouts(&[2, 3, 4], &values, dtype) {
            let y = lab.call("logcumsumexp", &[(&x).into(), 2.into()]);
            lab.near(&y, &[2, 3, 4], &want, tolerance);
        }
    }
    let inf = f64::INFINITY;
    let x = lab.tensor(&[5], &[-inf, 0.0, inf, 1.0, NAN], F32);
    let y = lab.call("logcumsumexp", &[(&x).into(), 0.into()]);
    lab.same(&y, &[5], &[-inf, 0.0, inf, inf, NAN]);
    // An infinite result stays infinite, whatever follows.
    let x = lab.tensor(&[5], &[1.0, inf, -inf, inf, 2.0], F64);
    let y = lab.call("logcumsumexp", &[(&x).into(), 0.into()]);
    lab.same(&y, &[5], &[1.0, inf, inf, inf, inf]);
    let whole = lab.tensor(&[2], &[1.0, 2.0], I64);
    assert_eq!(lab.fails("logcumsumexp", &[(&whole).into(), 0.into()], &[]).kind().to_string(), "Type");
}
