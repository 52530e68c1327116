use crate::array::{Dtype, broadcast};
use crate::driver::DeviceId;
use crate::ops::Arg;
use crate::ops::testing::{GPU, Lab};
use Dtype::*;

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 5) % 9) as f64 - 4.0).collect()
}

/// `torch.matmul`, naively: batches broadcast, vectors are rows or columns.
fn reference(a: (&[usize], &[f64]), b: (&[usize], &[f64])) -> (Vec<usize>, Vec<f64>) {
    let (row, column) = (a.0.len() == 1, b.0.len() == 1);
    let sa = if row { vec![1, a.0[0]] } else { a.0.to_vec() };
    let sb = if column { vec![b.0[0], 1] } else { b.0.to_vec() };
    let (ba, bb) = (&sa[..sa.len() - 2], &sb[..sb.len() - 2]);
    let (m, k, n) = (sa[sa.len() - 2], sa[sa.len() - 1], sb[sb.len() - 1]);
    let batch = broadcast(ba, bb).unwrap();
    let place = |own: &[usize], mut at: usize| {
        let (mut flat, mut step) = (0, 1);
        for i in (0..batch.len()).rev() {
            let index = at % batch[i];
            at /= batch[i];
            if let Some(d) = (i + own.len()).checked_sub(batch.len()) {
                flat += step * if own[d] == 1 { 0 } else { index };
                step *= own[d];
            }
        }
        flat
    };
    let mut out = Vec::new();
    for at in 0..batch.iter().product() {
        let (x, y) = (place(ba, at) * m * k, place(bb, at) * k * n);
        for i in 0..m {
            for j in 0..n {
                out.push((0..k).map(|l| a.1[x + i * k + l] * b.1[y + l * n + j]).sum());
            }
        }
    }
    let mut shape = batch.to_vec();
    shape.extend((!row).then_some(m));
    shape.extend((!column).then_some(n));
    (shape, out)
}

#[test]
fn products_of_all_ranks_equal_the_naive_one() {
    let mut lab = Lab::new();
    let shapes: [(&[usize], &[usize]); 16] = [
        (&[3], &[3]),
        (&[3], &[3, 4]),
        (&[2, 3], &[3]),
        (&[2, 3], &[3, 4]),
        (&[5, 2, 3], &[3, 4]),
        (&[5, 2, 3], &[3]),
        (&[3], &[5, 3, 4]),
        (&[2, 3], &[5, 3, 4]),
        (&[5, 2, 3], &[5, 3, 4]),
        (&[5, 1, 2, 3], &[6, 3, 4]),
        (&[1, 2, 3], &[7, 3, 1]),
        (&[2, 3, 2, 3], &[2, 3, 3, 4]),
        (&[2, 1, 2, 3], &[1, 3, 3, 4]),
        (&[1, 1], &[1, 1]),
        (&[17, 33], &[33, 19]),
        (&[2, 2, 2, 2, 3], &[3, 2]),
    ];
    for (a, b) in shapes {
        let (va, vb) = (numbers(a.iter().product(), 1), numbers(b.iter().product(), 2));
        let (shape, want) = reference((a, &va), (b, &vb));
        for dtype in [I32, I64, F16, BF16, F32, F64] {
            for x in lab.layouts(a, &va, dtype) {
                for y in lab.layouts(b, &vb, dtype) {
                    let out = lab.call("matmul", &[(&x).into(), (&y).into()]);
                    assert_eq!(out.dtype(), dtype);
                    lab.same(&out, &shape, &want.iter().map(|&v| round(v, dtype)).collect::<Vec<_>>());
                }
            }
        }
    }
}

fn round(v: f64, dtype: Dtype) -> f64 {
    match dtype {
        BF16 => half::bf16::from_f32(v as f32).to_f64(),
        F16 => half::f16::from_f32(v as f32).to_f64(),
        _ => v,
    }
}

#[test]
fn empty_products_are_empty_or_zero() {
    let mut lab = Lab::new();
    let (a, b) = (lab.tensor(&[2, 0], &[], F32), lab.tensor(&[0, 3], &[], F32));
    let out = lab.call("matmul", &[(&a).into(), (&b).into()]);
    lab.same(&out, &[2, 3], &[0.0; 6]);
    let c = lab.counted(&[3, 2]);
    let out = lab.call("matmul", &[(&b).into(), (&c).into()]);
    lab.same(&out, &[0, 2], &[]);
    let none = lab.tensor(&[0], &[], F32);
    let out = lab.call("dot", &[(&none).into(), (&none).into()]);
    lab.same(&out, &[], &[0.0]);
}

#[test]
fn the_ranked_forms_take_their_ranks_only() {
    let mut lab = Lab::new();
    let (v, m, b) = (lab.counted(&[3]), lab.counted(&[3, 3]), lab.counted(&[2, 3, 3]));
    for (name, good, bad) in [
        ("mm", [&m, &m], [&v, &m]),
        ("mm", [&m, &m], [&m, &b]),
        ("mv", [&m, &v], [&m, &m]),
        ("dot", [&v, &v], [&v, &m]),
        ("bmm", [&b, &b], [&m, &b]),
        ("outer", [&v, &v], [&m, &v]),
    ] {
        lab.call(name, &good.map(Arg::from));
        let error = lab.fails(name, &bad.map(Arg::from), &[]);
        assert_eq!(error.code().id, "E0414", "{name}");
    }
    let scalar = lab.tensor(&[], &[2.0], F32);
    let error = lab.fails("matmul", &[(&scalar).into(), (&m).into()], &[]);
    assert_eq!(error.help_text(), Some("to scale a tensor by a number, write `*`"));
    let other = lab.counted(&[3, 3, 3]);
    assert_eq!(lab.fails("bmm", &[(&b).into(), (&other).into()], &[]).code().id, "E0413");
    let out = lab.call("outer", &[(&v).into(), (&v).into()]);
    lab.same(&out, &[3, 3], &[0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 2.0, 4.0]);
}

#[test]
fn errors_label_both_operands_and_say_what_to_write() {
    let mut lab = Lab::new();
    let (a, b) = (lab.counted(&[3, 4]), lab.counted(&[5]));
    let error = lab.fails("matmul", &[(&a).into(), (&b).into()], &[]);
    assert_eq!(error.code().id, "E0413");
    assert_eq!(error.labels()[0].text(), "this is f32[3, 4] on cuda:0");
    assert_eq!(error.labels()[1].text(), "this is f32[5] on cuda:0");
    let b = lab.counted(&[3, 4]);
    let error = lab.fails("matmul", &[(&a).into(), (&b).into()], &[]);
    assert!(error.help_text().unwrap().contains("transpose the right operand: `.t()`"));
    let (x, y) = (lab.counted(&[2, 3, 4]), lab.counted(&[5, 4, 6]));
    let error = lab.fails("matmul", &[(&x).into(), (&y).into()], &[]);
    assert!(error.message().contains("batch dimensions [2] and [5]"), "{error}");
    let wide = lab.tensor(&[4, 3], &[0.0; 12], F64);
    let error = lab.fails("matmul", &[(&a).into(), (&wide).into()], &[]);
    assert_eq!((error.code().id, error.help_text()), ("E0361", Some("convert one of them: `.to(f32)`")));
    let truth = lab.tensor(&[2, 2], &[1.0; 4], Bool);
    assert_eq!(lab.fails("matmul", &[(&truth).into(), (&truth).into()], &[]).code().id, "E0351");
}

#[test]
fn devices_must_be_the_same() {
    let mut lab = Lab::new();
    let cpu = lab.tensor_on(&[10, 10], &numbers(100, 1), F32, DeviceId::Cpu);
    let gpu = lab.tensor_on(&[10, 10], &numbers(100, 1), F32, GPU);
    for (a, b) in [(&cpu, &gpu), (&gpu, &cpu)] {
        let error = lab.fails("matmul", &[a.into(), b.into()], &[]);
        assert!(error.message().starts_with("expected all tensors to be on the same device"), "{error}");
        assert_eq!(error.labels().len(), 2);
    }
    for i in 0..8 {
        let pick = |bit: i32| if i >> bit & 1 == 0 { &cpu } else { &gpu };
        let args = [pick(0).into(), pick(1).into(), pick(2).into()];
        match i {
            0 | 7 => drop(lab.call("addmm", &args)),
            _ => {
                let error = lab.fails("addmm", &args, &[]);
                assert!(error.message().starts_with("expected all tensors to be on the same device"));
            }
        }
    }
}

#[test]
fn addmm_scales_and_adds() {
    let mut lab = Lab::new();
    let (a, b) = (lab.counted(&[2, 3]), lab.counted(&[3, 2]));
    let bias = lab.tensor(&[2], &[100.0, f64::NAN], F32);
    let args = [(&bias).into(), (&a).into(), (&b).into()];
    let out = lab.call("addmm", &args);
    lab.same(&out, &[2, 2], &[110.0, f64::NAN, 128.0, f64::NAN]);
    let named = [("beta", 2.into()), ("alpha", 0.5.into())];
    let out = lab.call_with("addmm", &args, &named);
    lab.same(&out, &[2, 2], &[205.0, f64::NAN, 214.0, f64::NAN]);
    let out = lab.call_with("addmm", &args, &[("beta", 0.into())]);
    lab.same(&out, &[2, 2], &[10.0, 13.0, 28.0, 40.0]);
    let bad = lab.counted(&[3]);
    let error = lab.fails("addmm", &[(&bad).into(), (&a).into(), (&b).into()], &[]);
    assert_eq!(error.code().id, "E0419");
    let (x, y) = (lab.counted(&[2, 1, 2]), lab.counted(&[2, 2, 1]));
    let zero = lab.tensor(&[1], &[0.5], F32);
    let out = lab.call("baddbmm", &[(&zero).into(), (&x).into(), (&y).into()]);
    lab.same(&out, &[2, 1, 1], &[1.5, 13.5]);
    let target = lab.tensor(&[2, 2], &[1.0; 4], F32);
    lab.call("addmm_", &[(&target).into(), (&a).into(), (&b).into()]);
    lab.same(&target, &[2, 2], &[11.0, 14.0, 29.0, 41.0]);
}

#[test]
fn sums_of_halves_are_scaled_and_added_to_before_they_are_rounded() {
    let mut lab = Lab::new();
    // The sum is outside the range of f16, but its multiple is inside.
    let (a, b) = (lab.tensor(&[1, 4], &[256.0; 4], F16), lab.tensor(&[4, 1], &[256.0; 4], F16));
    let x = lab.tensor(&[1], &[1.0], F16);
    let args = [(&x).into(), (&a).into(), (&b).into()];
    let out = lab.call_with("addmm", &args, &[("alpha", (1.0 / 1024.0).into())]);
    assert_eq!(out.dtype(), F16);
    lab.same(&out, &[1, 1], &[257.0]);
    let out = lab.call_with("addmm", &args, &[("alpha", (1.0 / 1024.0).into()), ("beta", 0.into())]);
    lab.same(&out, &[1, 1], &[256.0]);
    // bf16 cannot represent 257, but it can represent 257 - 256.
    let (a, b) = (lab.tensor(&[1, 1, 2], &[1.0; 2], BF16), lab.tensor(&[1, 2, 1], &[256.0, 1.0], BF16));
    let x = lab.tensor(&[1], &[-256.0], BF16);
    let out = lab.call("baddbmm", &[(&x).into(), (&a).into(), (&b).into()]);
    assert_eq!(out.dtype(), BF16);
    lab.same(&out, &[1, 1, 1], &[1.0]);
    // An empty sum is 0 in the dtype.
    let (a, b) = (lab.tensor(&[1, 0], &[], F16), lab.tensor(&[0, 1], &[], F16));
    let x = lab.tensor(&[1], &[3.0], F16);
    let out = lab.call("addmm", &[(&x).into(), (&a).into(), (&b).into()]);
    lab.same(&out, &[1, 1], &[3.0]);
}

#[test]
fn linear_is_a_product_with_the_transposed_weight() {
    let mut lab = Lab::new();
    let (x, w) = (lab.counted(&[2, 2, 3]), lab.counted(&[4, 3]));
    let turned = lab.call("t", &[(&w).into()]);
    let product = lab.call("matmul", &[(&x).into(), (&turned).into()]);
    let want = lab.values(&product);
    let out = lab.call("linear", &[(&x).into(), (&w).into()]);
    lab.same(&out, &[2, 2, 4], &want);
    let bias = lab.tensor(&[4], &[1.0; 4], F32);
    let out = lab.call("linear", &[(&x).into(), (&w).into(), (&bias).into()]);
    lab.same(&out, &[2, 2, 4], &want.iter().map(|v| v + 1.0).collect::<Vec<_>>());
    let wrong = lab.counted(&[3, 4]);
    let error = lab.fails("linear", &[(&x).into(), (&wrong).into()], &[]);
    assert_eq!((error.code().id, &*error.labels()[1].text()), ("E0413", "this is f32[3, 4] on cuda:0"));
}
