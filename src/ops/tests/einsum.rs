use crate::array::Dtype;
use crate::ops::Arg;
use crate::ops::testing::Lab;
use crate::tensor::Tensor;
use Dtype::*;

fn call(lab: &mut Lab, equation: &str, tensors: &[Tensor]) -> Tensor {
    lab.call("einsum", &[Arg::Str(equation.into()), Arg::Tensors(tensors.to_vec())])
}

/// The sum over all letters, one element at a time. Supports only letters, with an explicit output.
fn reference(equation: &str, operands: &[(&[usize], Vec<f64>)]) -> (Vec<usize>, Vec<f64>) {
    let (inputs, output) = equation.split_once("->").unwrap();
    let mut letters: Vec<(char, usize)> = Vec::new();
    for (group, (shape, _)) in inputs.split(',').zip(operands) {
        for (c, &extent) in group.chars().zip(*shape) {
            match letters.iter_mut().find(|(l, _)| *l == c) {
                Some((_, known)) => *known = (*known).max(extent),
                None => letters.push((c, extent)),
            }
        }
    }
    let extent = |c: char| letters.iter().find(|(l, _)| *l == c).unwrap().1;
    let shape: Vec<usize> = output.chars().map(extent).collect();
    let mut out = vec![0.0; shape.iter().product()];
    for at in 0..letters.iter().map(|(_, n)| n).product::<usize>() {
        let mut rest = at;
        let values: Vec<(char, usize)> = letters
            .iter()
            .map(|&(c, n)| {
                let i = rest % n;
                rest /= n;
                (c, i)
            })
            .collect();
        let value = |c: char| values.iter().find(|(l, _)| *l == c).unwrap().1;
        let mut term = 1.0;
        for (group, (shape, data)) in inputs.split(',').zip(operands) {
            let flat =
                group.chars().zip(*shape).fold(0, |f, (c, &n)| f * n + if n == 1 { 0 } else { value(c) });
            term *= data[flat];
        }
        out[output.chars().fold(0, |f, c| f * extent(c) + value(c))] += term;
    }
    (shape, out)
}

#[test]
fn contractions_equal_the_sum_over_all_letters() {
    let mut lab = Lab::new();
    let cases: [(&str, &[&[usize]]); 18] = [
        ("ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("ij,kj->ki", &[&[2, 3], &[4, 3]]),
        ("bij,bjk->bik", &[&[2, 2, 3], &[2, 3, 4]]),
        ("bhqd,bhkd->bhqk", &[&[2, 2, 3, 4], &[2, 2, 5, 4]]),
        ("i,j->ij", &[&[3], &[4]]),
        ("i,i->", &[&[5], &[5]]),
        ("ij->ji", &[&[2, 3]]),
        ("ij->", &[&[2, 3]]),
        ("ij->j", &[&[2, 3]]),
        ("ii->i", &[&[3, 3]]),
        ("ii->", &[&[3, 3]]),
        ("iji->j", &[&[3, 2, 3]]),
        ("ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 2]]),
        ("ij,ij->ij", &[&[2, 3], &[2, 3]]),
        ("ijk,jil->kl", &[&[2, 3, 4], &[3, 2, 5]]),
        ("ijk,l->li", &[&[2, 3, 4], &[2]]),
        ("ij,jk->ik", &[&[2, 1], &[3, 4]]),
        ("i,i,i->i", &[&[3], &[3], &[3]]),
    ];
    for (equation, shapes) in cases {
        let operands: Vec<(&[usize], Vec<f64>)> = shapes
            .iter()
            .enumerate()
            .map(|(k, &s)| {
                (s, (0..s.iter().product()).map(|i: usize| ((i * 5 + k * 3) % 7) as f64 - 2.0).collect())
            })
            .collect();
        let (shape, want) = reference(equation, &operands);
        for dtype in [I64, F32] {
            for layout in 0..3 {
                let tensors: Vec<Tensor> =
                    operands.iter().map(|(s, v)| lab.layouts(s, v, dtype).swap_remove(layout)).collect();
                let out = call(&mut lab, equation, &tensors);
                lab.same(&out, &shape, &want);
            }
        }
    }
}

#[test]
fn the_arrow_and_batch_dimensions_may_be_left_out() {
    let mut lab = Lab::new();
    let (a, b) = (lab.counted(&[2, 3]), lab.counted(&[3, 4]));
    let product = lab.call("matmul", &[(&a).into(), (&b).into()]);
    let want = lab.values(&product);
    let out = call(&mut lab, "ij, jk", &[a.clone(), b.clone()]);
    lab.same(&out, &[2, 4], &want);
    // Without an arrow, the remaining letters are in alphabetical order.
    let out = call(&mut lab, "ba", std::slice::from_ref(&a));
    lab.same(&out, &[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let (x, y) = (lab.counted(&[5, 1, 2, 3]), lab.counted(&[4, 3, 6]));
    let product = lab.call("matmul", &[(&x).into(), (&y).into()]);
    let want = lab.values(&product);
    for equation in ["...ij,...jk->...ik", "...ij,...jk"] {
        let out = call(&mut lab, equation, &[x.clone(), y.clone()]);
        lab.same(&out, &[5, 4, 2, 6], &want);
    }
    let out = call(&mut lab, "...->", std::slice::from_ref(&a));
    lab.same(&out, &[], &[15.0]);
    let scalar = lab.tensor(&[], &[2.0], F32);
    let out = call(&mut lab, ",ij->ij", &[scalar, a]);
    lab.same(&out, &[2, 3], &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
}

/// Bools can be multiplied, but their products cannot be summed, whatever the extent.
#[test]
fn products_of_bools_are_not_summed() {
    let mut lab = Lab::new();
    let (a, b) = (lab.tensor(&[2], &[1.0, 0.0], Bool), lab.tensor(&[2], &[1.0, 1.0], Bool));
    let out = call(&mut lab, "i,j->ij", &[a, b]);
    assert_eq!(out.dtype(), Bool);
    lab.same(&out, &[2, 2], &[1.0, 1.0, 0.0, 0.0]);
    for inner in [1, 2] {
        let (a, b) = (
            lab.tensor(&[2, inner], &vec![1.0; 2 * inner], Bool),
            lab.tensor(&[inner, 2], &vec![1.0; 2 * inner], Bool),
        );
        let args = [Arg::Str("ij,jk->ik".into()), Arg::Tensors(vec![a, b])];
        assert_eq!(lab.fails("einsum", &args, &[]).code().id, "E0351");
    }
}

#[test]
fn equations_that_do_not_fit_are_refused() {
    let mut lab = Lab::new();
    let a = lab.counted(&[2, 3]);
    for (equation, count) in [
        ("ij,jk->ik", 1),
        ("ijk->i", 1),
        ("i->i", 1),
        ("ij->k", 1),
        ("ij->ii", 1),
        ("ii->i", 1),
        ("ij,ij->->", 2),
        ("i1->i", 1),
        ("ij,jk->ik", 2),
        ("", 0),
        ("......ij->i", 1),
    ] {
        let list = Arg::Tensors(vec![a.clone(); count]);
        let error = lab.fails("einsum", &[Arg::Str(equation.into()), list], &[]);
        assert_eq!(error.code().id, "E0353", "{equation}");
    }
}
