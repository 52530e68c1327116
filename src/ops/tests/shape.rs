use crate::array::{Dtype, Scalar};
use crate::ops::testing::{GPU, Lab};
use crate::ops::{Arg, Out};
use crate::tensor::Tensor;
use Dtype::*;

fn ints(values: &[i64]) -> Arg {
    values.into()
}

fn counted(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

/// True if a write to `view` is visible in `x`.
fn shares(lab: &mut Lab, x: &Tensor, view: &Tensor) -> bool {
    std::ptr::eq(x.storage(), view.storage()) && {
        let before = lab.values(x);
        lab.call("add_", &[view.into(), 100.into()]);
        let changed = lab.values(x) != before;
        lab.call("sub_", &[view.into(), 100.into()]);
        changed
    }
}

#[test]
fn views_share_storage_and_copies_do_not() {
    let mut lab = Lab::new();
    let x = lab.counted(&[2, 3, 4]);
    let t = lab.call("transpose", &[(&x).into(), 0.into(), 2.into()]);
    for (name, args, shape) in [
        ("reshape", vec![ints(&[6, -1])], &[6, 4][..]),
        ("view", vec![ints(&[-1])], &[24]),
        ("view", vec![ints(&[2, 3, 2, 2, 1])], &[2, 3, 2, 2, 1]),
        ("permute", vec![ints(&[2, 0, -2])], &[4, 2, 3]),
        ("transpose", vec![(-1).into(), 0.into()], &[4, 3, 2]),
        ("movedim", vec![0.into(), (-1).into()], &[3, 4, 2]),
        ("movedim", vec![ints(&[0, 1]), ints(&[2, 0])], &[3, 4, 2]),
        ("unsqueeze", vec![0.into()], &[1, 2, 3, 4]),
        ("unsqueeze", vec![(-1).into()], &[2, 3, 4, 1]),
        ("squeeze", vec![], &[2, 3, 4]),
        ("flatten", vec![], &[24]),
        ("flatten", vec![1.into()], &[2, 12]),
        ("flatten", vec![0.into(), 1.into()], &[6, 4]),
        ("unflatten", vec![2.into(), ints(&[2, -1])], &[2, 3, 2, 2]),
        ("narrow", vec![1.into(), (-2).into(), 2.into()], &[2, 2, 4]),
        ("select", vec![2.into(), (-1).into()], &[2, 3]),
        ("contiguous", vec![], &[2, 3, 4]),
        ("diagonal", vec![0.into(), 1.into(), 2.into()], &[2, 3]),
    ] {
        let mut given = vec![(&x).into()];
        given.extend(args);
        let view = lab.call(name, &given);
        assert_eq!(view.shape().as_slice(), shape, "{name}");
        assert!(shares(&mut lab, &x, &view), "{name}");
    }
    for (name, args) in
        [("reshape", vec![ints(&[-1])]), ("flatten", vec![]), ("contiguous", vec![]), ("clone", vec![])]
    {
        let mut given = vec![(&t).into()];
        given.extend(args);
        let copy = lab.call(name, &given);
        assert!(!shares(&mut lab, &x, &copy), "{name}");
        let mut want = Vec::new();
        for k in 0..4 {
            for j in 0..3 {
                want.extend((0..2).map(|i| f64::from(i * 12 + j * 4 + k)));
            }
        }
        assert_eq!(lab.values(&copy), want, "{name}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let mut lab = Lab::new();
    let x = lab.counted(&[2, 3]);
    for shape in [&[4, 2][..], &[-1, -1], &[-1, 4], &[-2, 3], &[7], &[], &[i64::MAX, 2], &[0, -1]] {
        let error = lab.fails("reshape", &[(&x).into(), ints(shape)], &[]);
        assert_eq!(error.code().id, "E0411", "{shape:?}");
        assert_eq!(error.labels()[0].text(), "this is f32[2, 3] on cuda:0");
    }
    let t = lab.call("t", &[(&x).into()]);
    let error = lab.fails("view", &[(&t).into(), ints(&[6])], &[]);
    assert_eq!(error.code().id, "E0412");
    assert_eq!(error.help_text(), Some("write `reshape`, which copies when it must"));
    let none = lab.tensor(&[0, 3], &[], F32);
    let out = lab.call("reshape", &[(&none).into(), ints(&[5, 0])]);
    lab.same(&out, &[5, 0], &[]);
    assert_eq!(lab.fails("reshape", &[(&none).into(), ints(&[-1, 0])], &[]).code().id, "E0411");
    assert_eq!(lab.fails("permute", &[(&x).into(), ints(&[0])], &[]).code().id, "E0414");
    assert!(lab.try_call("permute", &[(&x).into(), ints(&[0, 0])], &[]).is_err());
    let (cube, one) = (lab.counted(&[1, 1, 1]), lab.counted(&[1]));
    assert_eq!(lab.fails("t", &[(&cube).into()], &[]).code().id, "E0414");
    assert_eq!(lab.fails("narrow", &[(&x).into(), 1.into(), 2.into(), 2.into()], &[]).code().id, "E0353");
    assert_eq!(lab.fails("narrow", &[(&x).into(), 1.into(), 4.into(), 0.into()], &[]).code().id, "E0416");
    let error = lab.fails("select", &[(&x).into(), 0.into(), 2.into()], &[]);
    assert_eq!(error.message(), "index 2 is out of range for dimension 0 of size 2");
    assert_eq!(lab.fails("flatten", &[(&x).into(), 1.into(), 0.into()], &[]).code().id, "E0353");
    let many = vec![1; 65];
    assert_eq!(lab.fails("reshape", &[(&one).into(), ints(&many)], &[]).code().id, "E0423");
}

#[test]
fn zero_dimensional_tensors_have_views_too() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[], &[7.0], F32);
    for (name, args, shape) in [
        ("reshape", vec![ints(&[1, 1])], &[1, 1][..]),
        ("view", vec![ints(&[])], &[]),
        ("flatten", vec![], &[1]),
        ("unsqueeze", vec![0.into()], &[1]),
        ("unsqueeze", vec![(-1).into()], &[1]),
        ("squeeze", vec![], &[]),
        ("squeeze", vec![0.into()], &[]),
        ("t", vec![], &[]),
        ("transpose", vec![0.into(), (-1).into()], &[]),
        ("permute", vec![ints(&[])], &[]),
        ("expand", vec![ints(&[3])], &[3]),
        ("repeat", vec![ints(&[2])], &[2]),
        ("flip", vec![ints(&[])], &[]),
    ] {
        let mut given = vec![(&x).into()];
        given.extend(args);
        let out = lab.call(name, &given);
        lab.same(&out, shape, &vec![7.0; shape.iter().product()]);
    }
    assert_eq!(lab.fails("select", &[(&x).into(), 0.into(), 0.into()], &[]).code().id, "E0414");
}

#[test]
fn expansion_stretches_ones_and_cannot_be_written() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 1], &[1.0, 2.0], F32);
    let wide = lab.call("expand", &[(&x).into(), ints(&[3, -1, 2])]);
    lab.same(&wide, &[3, 2, 2], &[1.0, 1.0, 2.0, 2.0].repeat(3));
    let error = lab.fails("add_", &[(&wide).into(), 1.into()], &[]);
    assert!(error.help_text().unwrap().contains("clone"));
    for shape in [&[-1, 2, 1][..], &[3, 2], &[2], &[2, -2], &[i64::MAX, 2, 1]] {
        let error = lab.fails("expand", &[(&x).into(), ints(shape)], &[]);
        assert_eq!(error.code().id, "E0419", "{shape:?}");
    }
    let like = lab.counted(&[2, 5]);
    let out = lab.call("expand_as", &[(&x).into(), (&like).into()]);
    assert_eq!(out.shape().as_slice(), &[2, 5]);
    let out = lab.call("broadcast_to", &[(&x).into(), ints(&[2, 0])]);
    lab.same(&out, &[2, 0], &[]);
}

#[test]
fn joining_promotes_and_checks() {
    let mut lab = Lab::new();
    let (a, b) = (lab.tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0], I32), lab.tensor(&[2, 1], &[5.0, 6.5], F16));
    let list = Arg::Tensors(vec![a.clone(), b.clone()]);
    let out = lab.call("cat", &[list.clone(), (-1).into()]);
    assert_eq!(out.dtype(), F16);
    lab.same(&out, &[2, 3], &[1.0, 2.0, 5.0, 3.0, 4.0, 6.5]);
    let error = lab.fails("cat", &[list.clone(), 0.into()], &[]);
    assert_eq!(error.code().id, "E0415");
    assert_eq!(lab.fails("stack", &[list], &[]).code().id, "E0415");
    assert_eq!(lab.fails("cat", &[Arg::Tensors(vec![])], &[]).code().id, "E0415");
    let t = lab.call("t", &[(&a).into()]);
    for (dim, shape, want) in [
        (0, &[2, 2, 2], [1.0, 2.0, 3.0, 4.0, 1.0, 3.0, 2.0, 4.0]),
        (1, &[2, 2, 2], [1.0, 2.0, 1.0, 3.0, 3.0, 4.0, 2.0, 4.0]),
        (-1, &[2, 2, 2], [1.0, 1.0, 2.0, 3.0, 3.0, 2.0, 4.0, 4.0]),
    ] {
        let out = lab.call("stack", &[Arg::Tensors(vec![a.clone(), t.clone()]), dim.into()]);
        lab.same(&out, shape, &want);
    }
    let none = lab.tensor(&[0], &[], F32);
    let out = lab.call("cat", &[Arg::Tensors(vec![none.clone(), a.clone()])]);
    lab.same(&out, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let out = lab.call("cat", &[Arg::Tensors(vec![none.clone(), none])]);
    lab.same(&out, &[0], &[]);
    let other = lab.tensor_on(&[2, 2], &[0.0; 4], I32, crate::driver::DeviceId::Cuda(1));
    let error = lab.fails("cat", &[Arg::Tensors(vec![a, other])], &[]);
    assert_eq!(error.kind(), crate::base::ErrorKind::Device);
}

#[test]
fn parts_are_views_that_make_up_the_whole() {
    let mut lab = Lab::new();
    let x = lab.counted(&[5, 2]);
    let lengths = |parts: &[Tensor], d: usize| parts.iter().map(|p| p.shape()[d]).collect::<Vec<_>>();
    for (name, args, want) in [
        ("split", vec![2.into()], vec![2, 2, 1]),
        ("split", vec![5.into()], vec![5]),
        ("split", vec![9.into()], vec![5]),
        ("split", vec![ints(&[1, 0, 4])], vec![1, 0, 4]),
        ("chunk", vec![2.into()], vec![3, 2]),
        ("chunk", vec![4.into()], vec![2, 2, 1]),
        ("chunk", vec![9.into()], vec![1; 5]),
    ] {
        let mut given = vec![(&x).into()];
        given.extend(args);
        let parts = lab.parts(name, &given, &[]);
        assert_eq!(lengths(&parts, 0), want, "{name}");
        let whole = lab.call("cat", &[Arg::Tensors(parts.clone())]);
        lab.same(&whole, &[5, 2], &counted(10));
        assert!(std::ptr::eq(parts[0].storage(), x.storage()));
    }
    for args in [vec![ints(&[2, 2])], vec![ints(&[6, -1])], vec![ints(&[i64::MAX, i64::MAX])]] {
        let mut given = vec![(&x).into()];
        given.extend(args);
        assert_eq!(lab.fails("split", &given, &[]).code().id, "E0418");
    }
    assert_eq!(lab.fails("split", &[(&x).into(), 0.into()], &[]).code().id, "E0353");
    assert_eq!(lab.fails("chunk", &[(&x).into(), 0.into()], &[]).code().id, "E0353");
    let rows = lab.parts("unbind", &[(&x).into(), 1.into()], &[]);
    assert_eq!(rows.len(), 2);
    lab.same(&rows[1], &[5], &[1.0, 3.0, 5.0, 7.0, 9.0]);
}

#[test]
fn repeats_flips_and_rolls_move_elements() {
    let mut lab = Lab::new();
    for x in lab.layouts(&[2, 3], &counted(6), I16) {
        let out = lab.call("repeat", &[(&x).into(), ints(&[2, 1, 2])]);
        let row = |a: f64| vec![a, a + 1.0, a + 2.0, a, a + 1.0, a + 2.0];
        lab.same(&out, &[2, 2, 6], &[row(0.0), row(3.0)].concat().repeat(2));
        let out = lab.call("tile", &[(&x).into(), ints(&[2])]);
        lab.same(&out, &[2, 6], &[row(0.0), row(3.0)].concat());
        let out = lab.call("repeat_interleave", &[(&x).into(), 2.into(), 0.into()]);
        lab.same(&out, &[4, 3], &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
        let out = lab.call("repeat_interleave", &[(&x).into(), 2.into()]);
        assert_eq!(out.shape().as_slice(), &[12]);
        let each = lab.tensor(&[3], &[2.0, 0.0, 1.0], I64);
        let out = lab.call("repeat_interleave", &[(&x).into(), (&each).into(), 1.into()]);
        lab.same(&out, &[2, 3], &[0.0, 0.0, 2.0, 3.0, 3.0, 5.0]);
        let told = [(&x).into(), (&each).into(), 1.into(), 3.into()];
        assert_eq!(lab.call("repeat_interleave", &told).shape().as_slice(), &[2, 3]);
        let out = lab.call("repeat_interleave", &[(&each).into()]);
        lab.same(&out, &[3], &[0.0, 0.0, 2.0]);
        let wrong = lab.tensor(&[3], &[2.0, -1.0, 1.0], I64);
        let error = lab.fails("repeat_interleave", &[(&x).into(), (&wrong).into(), 1.into()], &[]);
        assert!(error.message().contains("-1 repeats"), "{error:?}");
        let error = lab.fails("repeat_interleave", &[(&x).into(), (&each).into(), 0.into()], &[]);
        assert!(error.message().contains("3 repeats for 2 elements of dimension 0"), "{error:?}");
        let out = lab.call("flip", &[(&x).into(), ints(&[0, -1])]);
        lab.same(&out, &[2, 3], &[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
        let out = lab.call("flip", &[(&x).into(), ints(&[1])]);
        lab.same(&out, &[2, 3], &[2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
        let out = lab.call("flip", &[(&x).into(), ints(&[])]);
        assert!(!std::ptr::eq(out.storage(), x.storage()));
        let out = lab.call("roll", &[(&x).into(), 1.into()]);
        lab.same(&out, &[2, 3], &[5.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        let out = lab.call("roll", &[(&x).into(), ints(&[1, -4]), ints(&[0, 1])]);
        lab.same(&out, &[2, 3], &[4.0, 5.0, 3.0, 1.0, 2.0, 0.0]);
    }
    let x = lab.counted(&[2, 3]);
    assert_eq!(lab.fails("repeat", &[(&x).into(), ints(&[2])], &[]).code().id, "E0414");
    assert!(lab.try_call("repeat", &[(&x).into(), ints(&[-1, 1])], &[]).is_err());
    assert!(lab.try_call("roll", &[(&x).into(), ints(&[1, 1]), ints(&[0])], &[]).is_err());
    let out = lab.call("repeat", &[(&x).into(), ints(&[0, 1])]);
    lab.same(&out, &[0, 3], &[]);
    let out = lab.call("roll", &[(&x).into(), i64::MIN.into(), 1.into()]);
    assert_eq!(out.shape().as_slice(), &[2, 3]);
}

#[test]
fn triangles_and_diagonals() {
    let mut lab = Lab::new();
    let values = counted(2 * 3 * 4);
    for dtype in [Bool, I64, F16, F32] {
        let values: Vec<f64> = match dtype {
            Bool => vec![1.0; 24],
            _ => values.clone(),
        };
        for x in lab.layouts(&[2, 3, 4], &values, dtype) {
            for k in [-9, -1, 0, 2, 9] {
                for (name, keep) in [("tril", -1i64), ("triu", 1)] {
                    let want: Vec<f64> = (0..24i64)
                        .map(|i| {
                            let above = i % 4 - i / 4 % 3;
                            if (above - k) * keep >= 0 { values[i as usize] } else { 0.0 }
                        })
                        .collect();
                    let out = lab.call(name, &[(&x).into(), k.into()]);
                    lab.same(&out, &[2, 3, 4], &want);
                }
            }
        }
    }
    let m = lab.counted(&[2, 3]);
    for (k, want) in [(0, &[0.0, 4.0][..]), (1, &[1.0, 5.0]), (2, &[2.0]), (-1, &[3.0]), (5, &[])] {
        let out = lab.call("diag", &[(&m).into(), k.into()]);
        lab.same(&out, &[want.len()], want);
    }
    let v = lab.tensor(&[2], &[1.0, 2.0], I32);
    let out = lab.call("diag", &[(&v).into(), (-1).into()]);
    lab.same(&out, &[3, 3], &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
    assert!(lab.try_call("diag", &[(&v).into(), i64::MIN.into()], &[]).is_err());
    assert_eq!(lab.fails("tril", &[(&v).into()], &[]).code().id, "E0414");
    lab.call("triu_", &[(&m).into(), 1.into()]);
    lab.same(&m, &[2, 3], &[0.0, 1.0, 2.0, 0.0, 0.0, 5.0]);
}

#[test]
fn meshgrids_vary_along_one_dimension_each() {
    let mut lab = Lab::new();
    let (a, b) = (lab.counted(&[2]), lab.counted(&[3]));
    let list = Arg::Tensors(vec![a, b]);
    let grids = lab.parts("meshgrid", std::slice::from_ref(&list), &[]);
    lab.same(&grids[0], &[2, 3], &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    lab.same(&grids[1], &[2, 3], &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    let grids = lab.parts("meshgrid", std::slice::from_ref(&list), &[("indexing", Arg::Str("xy".into()))]);
    lab.same(&grids[0], &[3, 2], &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(lab.fails("meshgrid", &[list], &[("indexing", Arg::Str("yx".into()))]).code().id, "E0353");
}

#[test]
fn tensors_describe_themselves() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2, 3], &[0.0; 6], F16);
    let t = lab.call("t", &[(&x).into()]);
    assert_eq!(lab.number("dim", &[(&t).into()]), Scalar::Int(2));
    assert_eq!(lab.number("numel", &[(&t).into()]), Scalar::Int(6));
    assert_eq!(lab.number("element_size", &[(&t).into()]), Scalar::Int(2));
    assert_eq!(lab.number("size", &[(&t).into(), (-1).into()]), Scalar::Int(2));
    assert_eq!(lab.number("stride", &[(&t).into(), 0.into()]), Scalar::Int(1));
    assert_eq!(lab.number("is_contiguous", &[(&t).into()]), Scalar::Bool(false));
    assert_eq!(lab.number("is_floating_point", &[(&t).into()]), Scalar::Bool(true));
    assert_eq!(lab.number("get_device", &[(&t).into()]), Scalar::Int(0));
    let Ok(Out::Ints(shape)) = lab.try_call("size", &[(&t).into()], &[]) else { panic!() };
    assert_eq!(shape, [3, 2]);
    let row = lab.call("select", &[(&x).into(), 0.into(), 1.into()]);
    assert_eq!(lab.number("storage_offset", &[(&row).into()]), Scalar::Int(3));
    let (Scalar::Int(whole), Scalar::Int(part)) =
        (lab.number("data_ptr", &[(&x).into()]), lab.number("data_ptr", &[(&row).into()]))
    else {
        panic!()
    };
    assert_eq!(part - whole, 6);
    let pending = lab.call("add", &[(&x).into(), 1.into()]);
    assert_ne!(lab.number("data_ptr", &[(&pending).into()]), Scalar::Int(0));
    let none = lab.rt.empty(&[0], F32, GPU).unwrap();
    assert_eq!(lab.number("data_ptr", &[(&none).into()]), Scalar::Int(0));
    assert!(lab.try_call("size", &[(&x).into(), 2.into()], &[]).is_err());
}

#[test]
fn stacks_and_differences() {
    let mut lab = Lab::new();
    let (v, m) = (lab.counted(&[2]), lab.counted(&[2, 2]));
    let two = Arg::Tensors(vec![v.clone(), v.clone()]);
    let out = lab.call("hstack", std::slice::from_ref(&two));
    lab.same(&out, &[4], &[0.0, 1.0, 0.0, 1.0]);
    let out = lab.call("vstack", std::slice::from_ref(&two));
    lab.same(&out, &[2, 2], &[0.0, 1.0, 0.0, 1.0]);
    let out = lab.call("hstack", &[Arg::Tensors(vec![m.clone(), m.clone()])]);
    lab.same(&out, &[2, 4], &[0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0]);
    let out = lab.call("vstack", &[Arg::Tensors(vec![v, m])]);
    lab.same(&out, &[3, 2], &[0.0, 1.0, 0.0, 1.0, 2.0, 3.0]);
    let x = lab.tensor(&[2, 3], &[1.0, 4.0, 9.0, 0.0, 0.0, 1.0], I32);
    let out = lab.call("diff", &[(&x).into()]);
    lab.same(&out, &[2, 2], &[3.0, 5.0, 0.0, 1.0]);
    let out = lab.call("diff", &[(&x).into(), 2.into(), 1.into()]);
    lab.same(&out, &[2, 1], &[2.0, 1.0]);
    let out = lab.call("diff", &[(&x).into(), i64::MAX.into(), 0.into()]);
    lab.same(&out, &[0, 3], &[]);
}
