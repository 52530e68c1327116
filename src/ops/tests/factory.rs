//! Factories and ranges.

use crate::array::Dtype::{self, *};
use crate::array::Scalar;
use crate::driver::DeviceId;
use crate::ops::testing::{GPU, Lab};
use crate::ops::{Arg, Data, table};
use crate::tensor::Tensor;

fn ints(values: &[i64]) -> Arg {
    Arg::Ints(values.to_vec())
}

fn list(items: &[Data]) -> Data {
    Data::List(items.to_vec())
}

fn number(value: f64) -> Data {
    Data::Number(Scalar::Float(value))
}

#[test]
fn constants_have_their_shape_dtype_and_device() {
    let mut lab = Lab::new();
    for dtype in Dtype::REAL {
        let zeros = lab.call_with("zeros", &[ints(&[2, 3])], &[("dtype", dtype.into())]);
        assert_eq!((zeros.dtype(), zeros.device()), (dtype, GPU));
        lab.same(&zeros, &[2, 3], &[0.0; 6]);
        let ones = lab.call_with("ones", &[ints(&[])], &[("dtype", dtype.into())]);
        lab.same(&ones, &[], &[1.0]);
        let like = lab.call("full_like", &[(&zeros).into(), 1.into()]);
        assert_eq!(like.dtype(), dtype);
        lab.same(&like, &[2, 3], &[1.0; 6]);
        let near = lab.call("new_zeros", &[(&zeros).into(), ints(&[0, 4])]);
        assert_eq!((near.dtype(), near.shape().as_slice()), (dtype, &[0usize, 4][..]));
    }
    let there = Arg::Device(DeviceId::Cuda(1));
    let full = lab.call_with("full", &[ints(&[2]), Arg::Float(0.5)], &[("device", there)]);
    assert_eq!((full.dtype(), full.device()), (F32, DeviceId::Cuda(1)));
    let near = lab.call("new_full", &[(&full).into(), ints(&[1]), 3.into()]);
    assert_eq!((near.dtype(), near.device()), (F32, DeviceId::Cuda(1)));
    assert_eq!(lab.call("full", &[ints(&[2]), 7.into()]).dtype(), I64);
    assert_eq!(lab.call("full", &[ints(&[2]), true.into()]).dtype(), Bool);
}

#[test]
fn memory_is_bound_at_the_factorys_line() {
    let mut lab = Lab::new();
    // 1 PiB cannot fit, and fails before any result is read.
    for name in ["zeros", "rand", "randn", "empty"] {
        let error = lab.fails(name, &[ints(&[1 << 48])], &[]);
        assert_eq!(error.kind(), crate::base::ErrorKind::OutOfMemory, "{name}");
    }
    let error = lab.fails("zeros", &[ints(&[1 << 40, 1 << 40])], &[]);
    assert_eq!(error.code().id, "E0401");
    let error = lab.fails("zeros", &[ints(&[2, -1])], &[]);
    assert_eq!(error.code().id, "E0401");
    let fine = lab.call("zeros", &[ints(&[4])]);
    lab.same(&fine, &[4], &[0.0; 4]);
}

#[test]
fn pinned_factories_are_on_the_host() {
    let mut lab = Lab::new();
    let on_host = ("device", Arg::Device(DeviceId::Cpu));
    let pinned = lab.call_with("ones", &[ints(&[3])], &[on_host.clone(), ("pin_memory", true.into())]);
    assert!(pinned.storage().is_pinned());
    lab.same(&pinned, &[3], &[1.0; 3]);
    let plain = lab.call_with("ones", &[ints(&[3])], &[on_host]);
    assert!(!plain.storage().is_pinned());
    assert_eq!(lab.fails("ones", &[ints(&[3])], &[("pin_memory", true.into())]).code().id, "E0353");
}

/// The arguments of a call of each factory; those that take options only.
fn factory_calls(x: &Tensor) -> Vec<(&'static str, Vec<Arg>)> {
    let (size, x) = (ints(&[2, 3]), Arg::from(x));
    vec![
        ("tensor", vec![Arg::Data(list(&[number(1.0), number(2.0)]))]),
        ("zeros", vec![size.clone()]),
        ("ones", vec![size.clone()]),
        ("empty", vec![size.clone()]),
        ("full", vec![size.clone(), 3.0.into()]),
        ("zeros_like", vec![x.clone()]),
        ("ones_like", vec![x.clone()]),
        ("empty_like", vec![x.clone()]),
        ("full_like", vec![x.clone(), 3.0.into()]),
        ("new_tensor", vec![x.clone(), Arg::Data(list(&[number(1.0)]))]),
        ("new_full", vec![x.clone(), size.clone(), 3.0.into()]),
        ("new_zeros", vec![x.clone(), size.clone()]),
        ("new_ones", vec![x.clone(), size.clone()]),
        ("new_empty", vec![x.clone(), size.clone()]),
        ("arange", vec![3.0.into()]),
        ("linspace", vec![0.into(), 1.into(), 5.into()]),
        ("logspace", vec![0.into(), 1.into(), 5.into()]),
        ("eye", vec![3.into()]),
        ("rand", vec![size.clone()]),
        ("randn", vec![size.clone()]),
        ("rand_like", vec![x.clone()]),
        ("randn_like", vec![x.clone()]),
        ("normal", vec![0.0.into(), 1.0.into(), size.clone()]),
        ("randint", vec![0.into(), ints(&[9]), size]),
        ("randint_like", vec![x, 9.into()]),
        ("randperm", vec![5.into()]),
        ("fft.fftfreq", vec![5.into()]),
        ("fft.rfftfreq", vec![5.into()]),
    ]
}

#[test]
fn every_factory_takes_every_option() {
    let mut lab = Lab::new();
    let x = lab.counted(&[2, 2]);
    let calls = factory_calls(&x);
    for op in table::all() {
        let known = calls.iter().any(|(name, _)| *name == op.name);
        let has = |name: &str| op.params.iter().any(|param| param.name == name);
        assert!(
            known || !(has("pin_memory") || has("requires_grad")),
            "`{}` is not among the calls",
            op.name
        );
    }
    for (name, args) in &calls {
        let op = table::all().find(|op| op.name == *name).unwrap();
        let gradients = op.params.last().is_some_and(|param| param.name == "requires_grad");
        assert_eq!(gradients, !name.starts_with("randint") && *name != "randperm", "{name}");
        for bits in 0..16 {
            let on = |bit: usize| bits >> bit & 1 == 1;
            let (device, pinned, gradient) = (on(1).then_some(DeviceId::Cpu), on(2), on(3) && gradients);
            let dtype = on(0).then_some(F64);
            let mut named: Vec<(&str, Arg)> = Vec::new();
            named.extend(dtype.map(|dtype| ("dtype", dtype.into())));
            named.extend(device.map(|device| ("device", Arg::Device(device))));
            named.extend(pinned.then(|| ("pin_memory", true.into())));
            named.extend(gradient.then(|| ("requires_grad", true.into())));
            let what =
                format!("{name} with {dtype:?} {device:?} pin_memory={pinned} requires_grad={gradient}");
            if pinned && device.is_none() {
                assert_eq!(lab.fails(name, args, &named).code().id, "E0353", "{what}");
                continue;
            }
            let made = lab.call_with(name, args, &named);
            assert_eq!(made.device(), device.unwrap_or(GPU), "{what}");
            assert!(dtype.is_none_or(|dtype| made.dtype() == dtype), "{what}");
            assert_eq!(made.storage().is_pinned(), pinned, "{what}");
            assert_eq!(crate::ops::gradient::requires_gradient(&mut lab.rt, &made), gradient, "{what}");
        }
    }
}

#[test]
fn nested_numbers_become_tensors_of_every_dtype() {
    let mut lab = Lab::new();
    let rows = list(&[list(&[number(0.0), number(1.0)]), list(&[number(1.0), number(0.0)])]);
    for dtype in Dtype::REAL {
        let x = lab.call_with("tensor", &[Arg::Data(rows.clone())], &[("dtype", dtype.into())]);
        assert_eq!(x.dtype(), dtype);
        lab.same(&x, &[2, 2], &[0.0, 1.0, 1.0, 0.0]);
    }
    assert_eq!(lab.call("tensor", &[Arg::Data(rows.clone())]).dtype(), F32);
    let one = lab.call("tensor", &[Arg::Data(Data::Number(Scalar::Int(5)))]);
    assert_eq!(one.dtype(), I64);
    lab.same(&one, &[], &[5.0]);
    let none = lab.call("tensor", &[Arg::Data(list(&[list(&[]), list(&[])]))]);
    assert_eq!((none.dtype(), none.shape().as_slice()), (F32, &[2usize, 0][..]));
    let ragged = list(&[list(&[number(1.0)]), list(&[])]);
    assert_eq!(lab.fails("tensor", &[Arg::Data(ragged)], &[]).code().id, "E0404");
    let big = Arg::Data(list(&[Data::Number(Scalar::Int(300))]));
    assert_eq!(lab.fails("tensor", &[big], &[("dtype", U8.into())]).code().id, "E0353");
    // A tensor is copied: changes to one do not affect the other.
    let copy = lab.call("tensor", &[(&one).into()]);
    lab.call("add_", &[(&one).into(), 1.into()]);
    lab.same(&copy, &[], &[5.0]);
    let moved = lab.call_with(
        "tensor",
        &[(&one).into()],
        &[("device", Arg::Device(DeviceId::Cpu)), ("dtype", F16.into())],
    );
    assert_eq!((moved.device(), moved.dtype()), (DeviceId::Cpu, F16));
    lab.same(&moved, &[], &[6.0]);
    let near = lab.call("new_tensor", &[(&moved).into(), Arg::Data(rows)]);
    assert_eq!((near.device(), near.dtype()), (DeviceId::Cpu, F16));
}

#[test]
fn ranges_follow_pytorch() {
    let mut lab = Lab::new();
    let x = lab.call("arange", &[5.into()]);
    assert_eq!(x.dtype(), I64);
    lab.same(&x, &[5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
    let x = lab.call("arange", &[10.into(), 3.into(), Arg::Int(-3)]);
    lab.same(&x, &[3], &[10.0, 7.0, 4.0]);
    let x = lab.call("arange", &[0.5.into(), 2.into(), 0.5.into()]);
    assert_eq!(x.dtype(), F32);
    lab.same(&x, &[3], &[0.5, 1.0, 1.5]);
    let none = lab.call("arange", &[3.into(), 3.into()]);
    lab.same(&none, &[0], &[]);
    for dtype in Dtype::REAL.into_iter().filter(|&d| d != Bool) {
        let x = lab.call_with("arange", &[1.into(), 4.into()], &[("dtype", dtype.into())]);
        assert_eq!(x.dtype(), dtype);
        lab.same(&x, &[3], &[1.0, 2.0, 3.0]);
        let x = lab.call_with("linspace", &[0.into(), 8.into(), 5.into()], &[("dtype", dtype.into())]);
        lab.same(&x, &[5], &[0.0, 2.0, 4.0, 6.0, 8.0]);
    }
    let x = lab.call("linspace", &[Arg::Float(-1.0), 1.into(), 4.into()]);
    lab.near(&x, &[4], &[-1.0, -1.0 / 3.0, 1.0 / 3.0, 1.0], 1e-7);
    assert_eq!(lab.call("linspace", &[3.into(), 9.into(), 0.into()]).count(), 0);
    let x = lab.call("logspace", &[0.into(), 3.into(), 4.into()]);
    lab.near(&x, &[4], &[1.0, 10.0, 100.0, 1000.0], 1e-6);
    for bad in [
        vec![Arg::Int(0), Arg::Int(5), Arg::Int(0)],
        vec![Arg::Int(0), Arg::Int(5), Arg::Int(-1)],
        vec![Arg::Float(0.0), Arg::Float(f64::INFINITY)],
        vec![Arg::Float(0.0), Arg::Float(f64::NAN)],
    ] {
        assert_eq!(lab.fails("arange", &bad, &[]).code().id, "E0353");
    }
    assert!(lab.try_call("arange", &[Arg::Int(i64::MIN), Arg::Int(i64::MAX)], &[]).is_err());
}

#[test]
fn identities_have_ones_on_the_diagonal() {
    let mut lab = Lab::new();
    for dtype in Dtype::REAL {
        let x = lab.call_with("eye", &[2.into(), 3.into()], &[("dtype", dtype.into())]);
        lab.same(&x, &[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }
    assert_eq!(lab.call("eye", &[0.into()]).shape().as_slice(), [0, 0]);
    assert!(lab.try_call("eye", &[Arg::Int(-1)], &[]).is_err());
}

#[test]
fn filling_writes_through_views() {
    let mut lab = Lab::new();
    let base = lab.counted(&[2, 3]);
    let mut layout = base.layout().clone();
    (layout.shape[1], layout.offset) = (1, 1);
    let column = base.with_layout(layout);
    lab.call("fill_", &[(&column).into(), 9.into()]);
    lab.same(&base, &[2, 3], &[0.0, 9.0, 2.0, 3.0, 9.0, 5.0]);
    lab.call("zero_", &[(&column).into()]);
    lab.same(&base, &[2, 3], &[0.0, 0.0, 2.0, 3.0, 0.0, 5.0]);
    let point = lab.tensor(&[], &[4.0], I64);
    lab.call("fill_", &[(&column).into(), (&point).into()]);
    lab.same(&base, &[2, 3], &[0.0, 4.0, 2.0, 3.0, 4.0, 5.0]);
    let row = lab.tensor(&[1], &[4.0], F32);
    assert_eq!(lab.fails("fill_", &[(&column).into(), (&row).into()], &[]).code().id, "E0350");
}
