use crate::array::{Dtype, Scalar};
use crate::base::ErrorKind;
use crate::driver::DeviceId;
use crate::ops::Arg;
use crate::ops::subscript::{Index, get, set};
use crate::ops::testing::{GPU, Lab};
use crate::plan::MapArg;
use crate::tensor::Tensor;
use Dtype::*;

fn counted(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

fn slice(start: impl Into<Option<i64>>, end: impl Into<Option<i64>>, step: i64) -> Index {
    Index::Slice { start: start.into(), end: end.into(), step }
}

fn ids(lab: &mut Lab, values: &[f64]) -> Tensor {
    lab.tensor(&[values.len()], values, I64)
}

/// The position in each dimension of the element at row-major position `at`, computed naively.
fn positions(shape: &[usize], at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    let mut rest = at;
    for d in (0..shape.len()).rev() {
        index[d] = rest % shape[d];
        rest /= shape[d];
    }
    index
}

#[test]
fn basic_indices_give_views() {
    let mut lab = Lab::new();
    let x = lab.counted(&[3, 4]);
    for (indices, shape, want) in [
        (vec![Index::Int(1)], &[4][..], vec![4.0, 5.0, 6.0, 7.0]),
        (vec![Index::Int(-1), Index::Int(-1)], &[], vec![11.0]),
        (vec![slice(1, 3, 1)], &[2, 4], counted(12)[4..].to_vec()),
        (vec![Index::ALL, slice(None, None, 2)], &[3, 2], vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        (vec![Index::ALL, slice(3, 100, 1)], &[3, 1], vec![3.0, 7.0, 11.0]),
        (vec![slice(-2, None, 1), Index::Int(0)], &[2], vec![4.0, 8.0]),
        (vec![slice(2, 1, 1)], &[0, 4], vec![]),
        (vec![Index::NewAxis, Index::Int(0)], &[1, 4], counted(4)),
        (vec![Index::Ellipsis, Index::Int(1)], &[3], vec![1.0, 5.0, 9.0]),
        (vec![Index::Int(2), Index::Ellipsis, Index::NewAxis], &[4, 1], vec![8.0, 9.0, 10.0, 11.0]),
        (vec![Index::Ellipsis], &[3, 4], counted(12)),
        (vec![], &[3, 4], counted(12)),
    ] {
        let view = get(&mut lab.rt, &x, &indices).unwrap();
        lab.same(&view, shape, &want);
        assert!(std::ptr::eq(view.storage(), x.storage()));
    }
}

#[test]
fn constants_out_of_range_are_refused_at_once() {
    let mut lab = Lab::new();
    let x = lab.counted(&[3, 4]);
    for (indices, code) in [
        (vec![Index::Int(3)], "E0416"),
        (vec![Index::Int(0), Index::Int(-5)], "E0416"),
        (vec![Index::Int(i64::MIN)], "E0416"),
        (vec![Index::Int(0); 3], "E0417"),
        (vec![Index::Ellipsis, Index::Ellipsis], "E0417"),
        (vec![slice(None, None, 0)], "E0353"),
        (vec![slice(None, None, -1)], "E0353"),
    ] {
        let error = get(&mut lab.rt, &x, &indices).err().unwrap();
        assert_eq!(error.code().id, code);
    }
    let error = get(&mut lab.rt, &x, &[Index::Int(0), Index::Int(4)]).err().unwrap();
    assert_eq!(error.message(), "index 4 is out of range for dimension 1 of size 4");
    assert_eq!(error.kind(), ErrorKind::Index);
    let floats = lab.counted(&[2]);
    assert_eq!(get(&mut lab.rt, &x, &[Index::of(floats)]).err().unwrap().code().id, "E0362");
    let bytes = lab.tensor(&[2], &[0.0, 1.0], U8);
    assert_eq!(get(&mut lab.rt, &x, &[Index::of(bytes)]).err().unwrap().code().id, "E0363");
    let mask = lab.tensor(&[2], &[0.0, 1.0], Bool);
    assert_eq!(get(&mut lab.rt, &x, &[Index::of(mask)]).err().unwrap().code().id, "E0420");
    let (a, b) = (ids(&mut lab, &[0.0, 1.0]), ids(&mut lab, &[0.0, 1.0, 2.0]));
    let error = get(&mut lab.rt, &x, &[Index::Ids(a), Index::Ids(b)]).err().unwrap();
    assert_eq!(error.code().id, "E0421");
}

#[test]
fn one_index_tensor_selects_along_its_dimension() {
    let mut lab = Lab::new();
    let shape = [3, 4, 2];
    for dtype in [Bool, I16, F16, F32, F64] {
        let values: Vec<f64> = counted(24)
            .iter()
            .map(|&v| if dtype == Bool { f64::from(u8::from(v % 3.0 == 0.0)) } else { v })
            .collect();
        for x in lab.layouts(&shape, &values, dtype) {
            for dim in 0..3 {
                let picks = [shape[dim] as f64 - 1.0, 0.0, -1.0, 1.0];
                let mut want_shape = shape;
                want_shape[dim] = 4;
                let want: Vec<f64> = (0..want_shape.iter().product())
                    .map(|at| {
                        let mut index = positions(&want_shape, at);
                        index[dim] = (picks[index[dim]] as i64).rem_euclid(shape[dim] as i64) as usize;
                        values[(index[0] * 4 + index[1]) * 2 + index[2]]
                    })
                    .collect();
                let t = ids(&mut lab, &picks);
                let mut indices = vec![Index::ALL; dim];
                indices.push(Index::Ids(t.clone()));
                let out = get(&mut lab.rt, &x, &indices).unwrap();
                lab.same(&out, &want_shape, &want);
                let out = lab.call("index_select", &[(&x).into(), (dim as i64).into(), (&t).into()]);
                lab.same(&out, &want_shape, &want);
                assert_eq!(out.dtype(), dtype);
            }
        }
    }
    let x = lab.counted(&[4]);
    let grid = lab.tensor(&[2, 2], &[3.0, 0.0, 1.0, -4.0], I32);
    let out = get(&mut lab.rt, &x, &[Index::Ids(grid)]).unwrap();
    lab.same(&out, &[2, 2], &[3.0, 0.0, 1.0, 0.0]);
    let point = lab.tensor(&[], &[2.0], I64);
    let out = get(&mut lab.rt, &x, &[Index::Ids(point.clone())]).unwrap();
    lab.same(&out, &[], &[2.0]);
    let m = lab.counted(&[3, 4]);
    let out = get(&mut lab.rt, &m, &[Index::ALL, Index::Ids(point)]).unwrap();
    lab.same(&out, &[3], &[2.0, 6.0, 10.0]);
}

#[test]
fn several_index_tensors_select_together() {
    let mut lab = Lab::new();
    for x in lab.layouts(&[3, 4, 5], &counted(60), I32) {
        let at = |i: i64, j: i64, k: i64| (i * 20 + j * 5 + k) as f64;
        let (a, b) = (ids(&mut lab, &[0.0, 2.0, -1.0]), ids(&mut lab, &[3.0, -4.0, 1.0]));
        let pairs = [(0, 3), (2, 0), (2, 1)];
        // Adjacent index tensors: their dimension stays in place.
        let out = get(&mut lab.rt, &x, &[Index::Ids(a.clone()), Index::Ids(b.clone())]).unwrap();
        let want: Vec<f64> = pairs.iter().flat_map(|&(i, j)| (0..5).map(move |k| at(i, j, k))).collect();
        lab.same(&out, &[3, 5], &want);
        let out = get(&mut lab.rt, &x, &[Index::ALL, Index::Ids(a.clone()), Index::Ids(b.clone())]).unwrap();
        let want: Vec<f64> =
            (0..3).flat_map(|i| [(0, 3), (2, 1), (3, 1)].map(move |(j, k)| at(i, j, k))).collect();
        lab.same(&out, &[3, 3], &want);
        // Separated index tensors: their dimension comes first.
        let out = get(&mut lab.rt, &x, &[Index::Ids(a.clone()), Index::ALL, Index::Ids(b.clone())]).unwrap();
        let want: Vec<f64> =
            [(0, 3), (2, 1), (2, 1)].iter().flat_map(|&(i, k)| (0..4).map(move |j| at(i, j, k))).collect();
        lab.same(&out, &[3, 4], &want);
        // Index tensors broadcast.
        let column = lab.tensor(&[2, 1], &[0.0, 1.0], I64);
        let out = get(&mut lab.rt, &x, &[Index::Ids(column), Index::Ids(b.clone()), Index::Int(4)]).unwrap();
        lab.same(
            &out,
            &[2, 3],
            &[at(0, 3, 4), at(0, 0, 4), at(0, 1, 4), at(1, 3, 4), at(1, 0, 4), at(1, 1, 4)],
        );
        // Integers apply first and do not separate index tensors.
        let out = get(&mut lab.rt, &x, &[Index::Int(1), Index::ALL, Index::Ids(a.clone())]).unwrap();
        let want: Vec<f64> = (0..4).flat_map(|j| [0, 2, 4].map(|k| at(1, j, k))).collect();
        lab.same(&out, &[4, 3], &want);
    }
}

#[test]
fn masks_select_true_elements() {
    let mut lab = Lab::new();
    for x in lab.layouts(&[2, 3, 2], &counted(12), F32) {
        let whole: Vec<f64> = (0..12).map(|i| f64::from(u8::from(i % 5 == 1))).collect();
        let mask = lab.tensor(&[2, 3, 2], &whole, Bool);
        let out = get(&mut lab.rt, &x, &[Index::Mask(mask.clone())]).unwrap();
        lab.same(&out, &[3], &[1.0, 6.0, 11.0]);
        let out = lab.call("masked_select", &[(&x).into(), (&mask).into()]);
        lab.same(&out, &[3], &[1.0, 6.0, 11.0]);
        let front = lab.tensor(&[2, 3], &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0], Bool);
        let out = get(&mut lab.rt, &x, &[Index::Mask(front.clone())]).unwrap();
        lab.same(&out, &[2, 2], &[2.0, 3.0, 10.0, 11.0]);
        let out = get(&mut lab.rt, &x, &[Index::Mask(front), Index::Int(0)]).unwrap();
        lab.same(&out, &[2], &[2.0, 10.0]);
        let back = lab.tensor(&[3], &[1.0, 0.0, 1.0], Bool);
        let out = get(&mut lab.rt, &x, &[Index::ALL, Index::Mask(back.clone())]).unwrap();
        lab.same(&out, &[2, 2, 2], &[0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 10.0, 11.0]);
        // A mask together with an index tensor.
        let last = ids(&mut lab, &[1.0, 0.0]);
        let out = get(&mut lab.rt, &x, &[Index::Int(1), Index::Mask(back), Index::Ids(last)]).unwrap();
        lab.same(&out, &[2], &[7.0, 10.0]);
        let none = lab.tensor(&[2], &[0.0, 0.0], Bool);
        let out = get(&mut lab.rt, &x, &[Index::Mask(none)]).unwrap();
        lab.same(&out, &[0, 3, 2], &[]);
        for (truth, count) in [(1.0, 1), (0.0, 0)] {
            let one = lab.tensor(&[], &[truth], Bool);
            let out = get(&mut lab.rt, &x, &[Index::Mask(one)]).unwrap();
            assert_eq!(out.shape().as_slice(), &[count, 2, 3, 2]);
        }
    }
    let x = lab.counted(&[3]);
    let column = lab.tensor(&[2, 1], &[1.0, 0.0], Bool);
    let out = lab.call("masked_select", &[(&x).into(), (&column).into()]);
    lab.same(&out, &[3], &[0.0, 1.0, 2.0]);
}

#[test]
fn assignment_writes_through_every_kind_of_index() {
    let mut lab = Lab::new();
    for layout in 0..3 {
        let fresh = |lab: &mut Lab| lab.layouts(&[3, 4], &counted(12), F32).swap_remove(layout);
        let number = MapArg::Number(Scalar::Int(-1));
        let x = fresh(&mut lab);
        set(&mut lab.rt, &x, &[Index::Int(1)], number).unwrap();
        set(&mut lab.rt, &x, &[Index::ALL, slice(None, None, 3)], number).unwrap();
        lab.same(&x, &[3, 4], &[-1.0, 1.0, 2.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 9.0, 10.0, -1.0]);
        let x = fresh(&mut lab);
        let row = lab.tensor(&[4], &[5.0, 6.0, 7.0, 8.0], I64);
        let rows = ids(&mut lab, &[2.0, 0.0]);
        set(&mut lab.rt, &x, &[Index::Ids(rows.clone())], MapArg::Tensor(&row)).unwrap();
        lab.same(&x, &[3, 4], &[5.0, 6.0, 7.0, 8.0, 4.0, 5.0, 6.0, 7.0, 5.0, 6.0, 7.0, 8.0]);
        // Of several writes to one position, the last one remains.
        let (a, b) = (ids(&mut lab, &[1.0, 1.0, 0.0]), ids(&mut lab, &[2.0, 2.0, -1.0]));
        let pairs = [Index::Ids(a), Index::Ids(b)];
        let value = lab.tensor(&[3], &[50.0, 60.0, 70.0], F32);
        set(&mut lab.rt, &x, &pairs, MapArg::Tensor(&value)).unwrap();
        lab.same(&x, &[3, 4], &[5.0, 6.0, 7.0, 70.0, 4.0, 5.0, 60.0, 7.0, 5.0, 6.0, 7.0, 8.0]);
        let x = fresh(&mut lab);
        let mask = lab.call("gt", &[(&x).into(), 5.into()]);
        set(&mut lab.rt, &x, &[Index::Mask(mask)], number).unwrap();
        lab.same(&x, &[3, 4], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0]);
        let mask = lab.tensor(&[3], &[0.0, 1.0, 1.0], Bool);
        let value = lab.tensor(&[2, 4], &counted(8), F32);
        set(&mut lab.rt, &x, &[Index::Mask(mask.clone())], MapArg::Tensor(&value)).unwrap();
        lab.same(&x, &[3, 4], &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        set(&mut lab.rt, &x, &[Index::Mask(mask)], MapArg::Number(Scalar::Float(0.5))).unwrap();
        lab.same(&x, &[3, 4], &[0.0, 1.0, 2.0, 3.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]);
        // The value is read before any element is written.
        let x = fresh(&mut lab);
        let turned = get(&mut lab.rt, &x, &[slice(0, 2, 1)]).unwrap();
        let order = ids(&mut lab, &[1.0, 2.0]);
        set(&mut lab.rt, &x, &[Index::Ids(order)], MapArg::Tensor(&turned)).unwrap();
        lab.same(&x, &[3, 4], &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }
    let x = lab.counted(&[2, 2]);
    let value = lab.counted(&[3]);
    assert!(set(&mut lab.rt, &x, &[Index::Int(0)], MapArg::Tensor(&value)).is_err());
    let rows = ids(&mut lab, &[0.0]);
    let error = set(&mut lab.rt, &x, &[Index::Ids(rows.clone())], MapArg::Tensor(&value)).unwrap_err();
    assert_eq!(error.code().id, "E0419");
    let row = lab.counted(&[1, 2]);
    let wide = lab.call("expand", &[(&row).into(), [2i64, 2].as_slice().into()]);
    assert!(set(&mut lab.rt, &wide, &[Index::Ids(rows)], MapArg::Number(Scalar::Int(1))).is_err());
}

#[test]
fn positions_out_of_range_on_the_device_are_raised_by_the_next_wait() {
    let mut lab = Lab::new();
    let x = lab.counted(&[3, 4]);
    let bad = ids(&mut lab, &[0.0, 7.0]);
    let good = ids(&mut lab, &[0.0, 1.0]);
    let out = get(&mut lab.rt, &x, &[Index::Ids(bad.clone())]).unwrap();
    let error = lab.rt.read(&out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Index);
    assert!(error.message().contains("index 7 is out of range for a dimension of size 3"), "{error}");
    // The session remains usable, and the error for combined indices gives the position as it was written.
    let out = get(&mut lab.rt, &x, &[Index::Ids(good.clone()), Index::Ids(bad.clone())]).unwrap();
    let error = lab.rt.read(&out).unwrap_err();
    assert!(error.message().contains("index 7 is out of range for a dimension of size 4"), "{error}");
    let number = MapArg::Number(Scalar::Int(1));
    set(&mut lab.rt, &x, &[Index::Ids(bad.clone())], number).unwrap();
    assert!(lab.rt.read(&x).is_err());
    assert!(lab.rt.read(&x).is_ok());
    for name in ["take", "index_select"] {
        let args = match name {
            "take" => vec![(&lab.counted(&[7])).into(), (&bad).into()],
            _ => vec![(&x).into(), 1.into(), (&bad).into()],
        };
        let out = lab.call(name, &args);
        let error = lab.rt.read(&out).unwrap_err();
        assert!(error.message().contains("index 7") && error.message().contains(name), "{error}");
    }
    let none = lab.tensor(&[0, 2], &[], F32);
    let error = get(&mut lab.rt, &none, &[Index::Ids(good)]).err().unwrap();
    assert_eq!(error.code().id, "E0416");
}

#[test]
fn host_indices_select_on_any_device_and_others_do_not() {
    let mut lab = Lab::new();
    let x = lab.counted(&[3]);
    let near = lab.tensor_on(&[2], &[2.0, 0.0], I64, DeviceId::Cpu);
    let out = get(&mut lab.rt, &x, &[Index::Ids(near)]).unwrap();
    assert_eq!(out.device(), GPU);
    lab.same(&out, &[2], &[2.0, 0.0]);
    let far = lab.tensor_on(&[2], &[2.0, 0.0], I64, DeviceId::Cuda(1));
    let error = get(&mut lab.rt, &x, &[Index::Ids(far.clone())]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Device);
    let error = lab.fails("gather", &[(&x).into(), 0.into(), (&far).into()], &[]);
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
fn gather_and_scatter_equal_their_definitions() {
    let mut lab = Lab::new();
    let shape = [3, 4];
    let index = [2.0, 0.0, 1.0, 1.0, 0.0, 2.0];
    for x in lab.layouts(&shape, &counted(12), F32) {
        for (dim, own) in [(0, [2, 3]), (1, [3, 2])] {
            for t in lab.layouts(&own, &index, I64) {
                let out = lab.call("gather", &[(&x).into(), dim.into(), (&t).into()]);
                let target = |at: usize| {
                    let i = positions(&own, at);
                    let p = index[at] as usize;
                    if dim == 0 { p * 4 + i[1] } else { i[0] * 4 + p }
                };
                let want: Vec<f64> = (0..6).map(|at| target(at) as f64).collect();
                lab.same(&out, &own, &want);
                let src = lab.tensor(&own, &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0], F32);
                let args = [(&x).into(), dim.into(), (&t).into(), (&src).into()];
                let (mut set, mut added) = (counted(12), counted(12));
                for at in 0..6 {
                    set[target(at)] = (at as f64 + 1.0) * 10.0;
                    added[target(at)] += (at as f64 + 1.0) * 10.0;
                }
                let out = lab.call("scatter", &args);
                lab.same(&out, &shape, &set);
                let out = lab.call("scatter_add", &args);
                lab.same(&out, &shape, &added);
                let out = lab.call_with("scatter", &args, &[("reduce", Arg::Str("add".into()))]);
                lab.same(&out, &shape, &added);
            }
        }
        lab.same(&x, &shape, &counted(12));
    }
    let x = lab.counted(&[2, 2]);
    let t = lab.tensor(&[2, 1], &[1.0, 0.0], I64);
    let out = lab.call("scatter", &[(&x).into(), 1.into(), (&t).into(), 9.0.into()]);
    lab.same(&out, &[2, 2], &[0.0, 9.0, 9.0, 3.0]);
    lab.call("scatter_", &[(&x).into(), 1.into(), (&t).into(), 9.into()]);
    lab.same(&x, &[2, 2], &[0.0, 9.0, 9.0, 3.0]);
    let long = lab.tensor(&[3, 1], &[0.0; 3], I64);
    assert_eq!(lab.fails("gather", &[(&x).into(), 1.into(), (&long).into()], &[]).code().id, "E0421");
    let flat = ids(&mut lab, &[0.0]);
    assert_eq!(lab.fails("gather", &[(&x).into(), 1.into(), (&flat).into()], &[]).code().id, "E0421");
    let wrong = lab.tensor(&[2, 1], &[1.0, 2.0], F64);
    let args = [(&x).into(), 1.into(), (&t).into(), (&wrong).into()];
    assert_eq!(lab.fails("scatter", &args, &[]).code().id, "E0361");
    assert_eq!(lab.fails("gather", &[(&x).into(), 1.into(), (&wrong).into()], &[]).code().id, "E0362");
}

#[test]
fn slices_are_added_copied_and_filled() {
    let mut lab = Lab::new();
    let x = lab.counted(&[3, 2]);
    let rows = ids(&mut lab, &[2.0, 0.0, 2.0]);
    let source = lab.tensor(&[3, 2], &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0], F32);
    let args = [(&x).into(), 0.into(), (&rows).into(), (&source).into()];
    let out = lab.call("index_add", &args);
    lab.same(&out, &[3, 2], &[30.0, 41.0, 2.0, 3.0, 64.0, 85.0]);
    let out = lab.call_with("index_add", &args, &[("alpha", 2.into())]);
    lab.same(&out, &[3, 2], &[60.0, 81.0, 2.0, 3.0, 124.0, 165.0]);
    let out = lab.call("index_copy", &args);
    lab.same(&out, &[3, 2], &[30.0, 40.0, 2.0, 3.0, 50.0, 60.0]);
    let last = ids(&mut lab, &[-1.0]);
    let out = lab.call("index_fill", &[(&x).into(), 1.into(), (&last).into(), 7.into()]);
    lab.same(&out, &[3, 2], &[0.0, 7.0, 2.0, 7.0, 4.0, 7.0]);
    let list = Arg::Tensors(vec![rows.clone()]);
    let out = lab.call("index_put", &[(&x).into(), list.clone(), 1.into(), true.into()]);
    lab.same(&out, &[3, 2], &[1.0, 2.0, 2.0, 3.0, 6.0, 7.0]);
    lab.call("index_put_", &[(&x).into(), list, 0.into()]);
    lab.same(&x, &[3, 2], &[0.0, 0.0, 2.0, 3.0, 0.0, 0.0]);
}

#[test]
fn take_reads_the_flattened_tensor() {
    let mut lab = Lab::new();
    for x in lab.layouts(&[2, 3], &counted(6), F64) {
        let t = lab.tensor(&[2, 2], &[5.0, -6.0, 2.0, 3.0], I64);
        let out = lab.call("take", &[(&x).into(), (&t).into()]);
        lab.same(&out, &[2, 2], &[5.0, 0.0, 2.0, 3.0]);
        let one = lab.tensor(&[], &[4.0], I64);
        let out = lab.call("take", &[(&x).into(), (&one).into()]);
        lab.same(&out, &[], &[4.0]);
        let order = lab.tensor(&[1, 3], &[2.0, 0.0, 1.0], I64);
        let out = lab.call("take_along_dim", &[(&x).into(), (&order).into(), 1.into()]);
        lab.same(&out, &[2, 3], &[2.0, 0.0, 1.0, 5.0, 3.0, 4.0]);
    }
}

#[test]
fn nonzero_lists_positions_in_order() {
    let mut lab = Lab::new();
    for dtype in Dtype::REAL {
        let values = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
        for x in lab.layouts(&[2, 3], &values, dtype) {
            let out = lab.call("nonzero", &[(&x).into()]);
            assert_eq!(out.dtype(), I64);
            lab.same(&out, &[3, 2], &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
            let parts = lab.parts("nonzero", &[(&x).into()], &[("as_tuple", true.into())]);
            lab.same(&parts[1], &[3], &[1.0, 0.0, 1.0]);
        }
    }
    let x = lab.tensor(&[3], &[f64::NAN, -0.0, 0.5], F32);
    let out = lab.call("nonzero", &[(&x).into()]);
    lab.same(&out, &[2, 1], &[0.0, 2.0]);
    let none = lab.tensor(&[0, 3], &[], F32);
    let out = lab.call("nonzero", &[(&none).into()]);
    lab.same(&out, &[0, 2], &[]);
    let one = lab.tensor(&[], &[3.0], F32);
    let out = lab.call("nonzero", &[(&one).into()]);
    lab.same(&out, &[1, 0], &[]);
}

#[test]
fn rows_are_looked_up_and_written_as_one_hot() {
    let mut lab = Lab::new();
    let weight = lab.counted(&[3, 2]);
    let words = lab.tensor(&[2, 2], &[2.0, 0.0, 1.0, 2.0], I32);
    let out = lab.call("embedding", &[(&words).into(), (&weight).into()]);
    lab.same(&out, &[2, 2, 2], &[4.0, 5.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let out = lab.call("one_hot", &[(&words).into()]);
    assert_eq!((out.shape().as_slice(), out.dtype()), (&[2, 2, 3][..], I64));
    let (good, bad) = (ids(&mut lab, &[1.0, 3.0]), ids(&mut lab, &[9.0]));
    let out = lab.call("one_hot", &[(&good).into(), 4.into()]);
    lab.same(&out, &[2, 4], &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let none = lab.tensor(&[0], &[], I64);
    assert_eq!(lab.fails("one_hot", &[(&none).into()], &[]).code().id, "E0410");
    let out = lab.call("one_hot", &[(&bad).into(), 2.into()]);
    assert_eq!(lab.rt.read(&out).unwrap_err().kind(), ErrorKind::Index);
}
