//! The number of launches of operations.

#![cfg(test)]

use crate::array::Dtype::{F32, I64};
use crate::array::Scalar;
use crate::ops::Arg;
use crate::ops::subscript::{Index, get, set};
use crate::ops::testing::Lab;
use crate::plan::MapArg;
use crate::tensor::Tensor;

/// The labels of the launches of some work.
pub(super) fn labels(lab: &mut Lab, work: impl FnOnce(&mut Lab)) -> Vec<String> {
    lab.rt.flush().unwrap();
    lab.rt.start_listing(false).unwrap();
    work(lab);
    lab.rt.flush().unwrap();
    lab.rt.stop_listing().launches.into_iter().map(|listed| listed.launch.program.label.clone()).collect()
}

/// Several index tensors are converted to offsets in the launch that reads at them.
#[test]
fn several_indices_are_one_launch() {
    let mut lab = Lab::new();
    let x = lab.counted(&[5, 7]);
    let (i, j) = (lab.tensor(&[3], &[1.0, -1.0, 4.0], I64), lab.tensor(&[2, 1], &[0.0, 6.0], I64));
    let indices = [Index::Ids(i), Index::Ids(j)];
    let mut out = None;
    let read = labels(&mut lab, |lab| out = Some(get(&mut lab.rt, &x, &indices).unwrap()));
    assert_eq!(read.len(), 1, "{read:?}");
    lab.same(&out.unwrap(), &[2, 3], &[7.0, 28.0, 28.0, 13.0, 34.0, 34.0]);
    let written = labels(&mut lab, |lab| {
        set(&mut lab.rt, &x, &indices, MapArg::Number(Scalar::Int(9))).unwrap();
    });
    assert!(written.len() <= 3, "{written:?}");
}

/// Reductions end before their results are joined, so they stay one launch, and so do the copies.
#[test]
fn joined_reductions_are_two_launches() {
    let mut lab = Lab::new();
    let x = lab.counted(&[4, 6]);
    let mut out = Vec::new();
    for (name, keepdim) in [("stack", false), ("cat", true)] {
        for dim in [0, 1] {
            let found = labels(&mut lab, |lab| {
                let rows: Vec<Tensor> = ["sum", "amax", "amin"]
                    .map(|f| lab.call(f, &[(&x).into(), 1.into(), keepdim.into()]))
                    .into();
                out.push(lab.call(name, &[Arg::Tensors(rows), dim.into()]));
            });
            assert_eq!(found.len(), 2, "{name} {dim}: {found:?}");
        }
    }
    // Reductions of different shapes are separate launches; one launch joins their results.
    let all: Vec<Tensor> = (2..9).map(|n| lab.counted(&[n, 3])).collect();
    let found = labels(&mut lab, |lab| {
        let sums: Vec<Tensor> = all.iter().map(|x| lab.call("sum", &[x.into()])).collect();
        out.push(lab.call("stack", &[Arg::Tensors(sums)]));
    });
    assert_eq!(found.len(), 8, "{found:?}");
}

/// Products without a sum are elementwise: they join the work around them, and no product is launched.
#[test]
fn products_without_a_sum_are_elementwise() {
    let mut lab = Lab::new();
    let (a, b) = (lab.counted(&[4, 3]), lab.counted(&[4, 5]));
    let (row, column) = (lab.counted(&[4, 1, 3]), lab.counted(&[4, 2, 1]));
    let (x, w) = (lab.counted(&[7, 1]), lab.counted(&[6, 1]));
    let plus = |lab: &mut Lab, x: Tensor| lab.call("add", &[(&x).into(), 1.into()]);
    let einsum = |lab: &mut Lab, equation: &str, a: &Tensor, b: &Tensor| {
        lab.call("einsum", &[Arg::Str(equation.into()), Arg::Tensors(vec![a.clone(), b.clone()])])
    };
    let mut all: Vec<(Tensor, Vec<f64>)> = Vec::new();
    type Work<'a> = &'a dyn Fn(&mut Lab) -> Tensor;
    let work: [(&str, Work<'_>); 7] = [
        ("einsum", &|lab| einsum(lab, "ni,nj->nij", &a, &b)),
        ("einsum, transposed", &|lab| einsum(lab, "ni,nj->jin", &a, &b)),
        ("einsum over an extent of 1", &|lab| einsum(lab, "nki,njk->nji", &row, &column)),
        ("bmm", &|lab| lab.call("bmm", &[(&column).into(), (&row).into()])),
        ("matmul", &|lab| lab.call("matmul", &[(&column).into(), (&row).into()])),
        ("linear", &|lab| lab.call("linear", &[(&x).into(), (&w).into()])),
        ("tensordot", &|lab| lab.call("tensordot", &[(&x).into(), (&w).into(), 0.into()])),
    ];
    for (name, run) in work {
        let mut out = None;
        let found = labels(&mut lab, |lab| {
            let product = run(lab);
            out = Some(plus(lab, product));
        });
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(!found[0].contains("matmul"), "{name}: {found:?}");
        all.extend(out.map(|out| (out.clone(), lab.values(&out))));
    }
    // Element [n, i, j] is (3n + i)(5n + j).
    let product = |n: usize, i: usize, j: usize| ((3 * n + i) * (5 * n + j) + 1) as f64;
    let whole: Vec<f64> = (0..60).map(|at| product(at / 15, at / 5 % 3, at % 5)).collect();
    let transposed: Vec<f64> = (0..60).map(|at| product(at % 4, at / 4 % 3, at / 12)).collect();
    lab.same(&all[0].0, &[4, 3, 5], &whole);
    lab.same(&all[1].0, &[5, 3, 4], &transposed);
    // Element [n, j, i] is (2n + j)(3n + i).
    let batch: Vec<f64> =
        (0..24).map(|at| ((2 * (at / 6) + at / 3 % 2) * (3 * (at / 6) + at % 3) + 1) as f64).collect();
    all[2..5].iter().for_each(|(out, _)| lab.same(out, &[4, 2, 3], &batch));
    let grid: Vec<f64> = (0..42).map(|at| (at / 6 * (at % 6) + 1) as f64).collect();
    lab.same(&all[5].0, &[7, 6], &grid);
    lab.same(&all[6].0, &[7, 1, 6, 1], &grid);
}

/// The positions of the ones are computed and checked in one launch, and the result is written once, by the launch of
/// the work that reads it.
#[test]
fn one_hot_writes_its_result_once() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 3], &[0.0, 4.0, 1.0, 1.0, 3.0, 2.0], I64);
    let mut out = None;
    let found = labels(&mut lab, |lab| {
        let hot = lab.call("one_hot", &[(&x).into(), 5.into()]);
        out = Some(lab.call("mul", &[(&hot).into(), 7.into()]));
    });
    assert_eq!(found.len(), 2, "{found:?}");
    let want: Vec<f64> = [0, 4, 1, 1, 3, 2]
        .iter()
        .flat_map(|&at| (0..5).map(move |i| if i == at { 7.0 } else { 0.0 }))
        .collect();
    lab.same(&out.unwrap(), &[2, 3, 5], &want);
    let scalar = lab.tensor(&[], &[2.0], I64);
    let out = lab.call("one_hot", &[(&scalar).into(), 4.into()]);
    lab.same(&out, &[4], &[0.0, 0.0, 1.0, 0.0]);
    let transposed = lab.call("t", &[(&x).into()]);
    let out = lab.call("one_hot", &[(&transposed).into()]);
    let want: Vec<f64> =
        [0, 1, 4, 3, 1, 2].iter().flat_map(|&at| (0..5).map(move |i| f64::from(i == at))).collect();
    lab.same(&out, &[3, 2, 5], &want);
}

/// Interleaved parts are written by one launch.
#[test]
fn parts_between_each_other_are_written_together() {
    let mut lab = Lab::new();
    let columns: Vec<Tensor> = (0..5).map(|i| lab.tensor(&[3], &[f64::from(i), 1.0, 2.0], F32)).collect();
    let mut out = None;
    let found = labels(&mut lab, |lab| out = Some(lab.call("stack", &[Arg::Tensors(columns), 1.into()])));
    assert_eq!(found.len(), 1, "{found:?}");
    let want: Vec<f64> = [[0.0, 1.0, 2.0, 3.0, 4.0], [1.0; 5], [2.0; 5]].concat();
    lab.same(&out.unwrap(), &[3, 5], &want);
    // A part that is read before it is written, and one that is written twice.
    let x = lab.counted(&[2, 3]);
    let column = |x: &Tensor, i: i64, lab: &mut Lab| lab.call("select", &[x.into(), 1.into(), i.into()]);
    let (a, b, c) = (column(&x, 0, &mut lab), column(&x, 1, &mut lab), column(&x, 2, &mut lab));
    let y = lab.tensor(&[2], &[7.0, 8.0], F32);
    for (to, from) in [(&a, &y), (&b, &c), (&c, &a), (&a, &b)] {
        lab.call("copy_", &[to.into(), from.into()]);
    }
    lab.same(&x, &[2, 3], &[2.0, 2.0, 7.0, 5.0, 5.0, 8.0]);
}

/// Rows that are written to parts of a tensor: each chain of reductions stays one launch.
#[test]
fn rows_written_to_parts_stay_together() {
    let mut lab = Lab::new();
    let (x, whole) = (lab.counted(&[4, 6]), lab.counted(&[2, 4, 6]));
    let part = |i: i64, lab: &mut Lab| lab.call("select", &[(&whole).into(), 0.into(), i.into()]);
    let parts = [part(0, &mut lab), part(1, &mut lab)];
    let found = labels(&mut lab, |lab| {
        for part in &parts {
            let y = lab.call("softmax", &[(&x).into(), 1.into()]);
            lab.call("copy_", &[part.into(), (&y).into()]);
        }
    });
    assert_eq!(found.len(), 2, "{found:?}");
    let y = lab.call("softmax", &[(&x).into(), 1.into()]);
    let y = lab.rt.read(&y).unwrap();
    assert_eq!(lab.rt.read(&whole).unwrap(), [y.clone(), y].concat());
}
