use crate::array::{Dtype, Scalar};
use crate::driver::DeviceId::{Cpu, Cuda};
use crate::ops::testing::{GPU, Lab, bytes_of};
use crate::ops::{Arg, Data, Out, show};
use crate::tensor::PrintOptions;
use Dtype::*;

#[test]
fn transfers_without_effect_return_the_tensor_itself() {
    let mut lab = Lab::new();
    let x = lab.counted(&[3]);
    let y = lab.call("cuda", &[(&x).into()]);
    assert!(y.same(&x));
    for args in [vec![Arg::Device(GPU)], vec![F32.into()], vec![(&x).into()], vec![0.into()], vec![Arg::None]]
    {
        let mut given = vec![(&x).into()];
        given.extend(args);
        assert!(lab.call("to", &given).same(&x));
        let copy = lab.call_with("to", &given, &[("copy", true.into())]);
        assert!(!std::ptr::eq(copy.storage(), x.storage()));
        lab.same(&copy, &[3], &[0.0, 1.0, 2.0]);
    }
    let far = lab.call("cuda", &[(&x).into(), Arg::Device(Cuda(1))]);
    assert_eq!(far.device(), Cuda(1));
    assert!(lab.call("cuda", &[(&far).into(), Arg::Device(Cuda(1))]).same(&far));
    let back = lab.call("cuda", &[(&far).into()]);
    assert_eq!(back.device(), GPU);
    let near = lab.call("cpu", &[(&back).into()]);
    assert_eq!(near.device(), Cpu);
    assert!(lab.call("cpu", &[(&near).into()]).same(&near));
    assert_eq!(lab.number("get_device", &[(&near).into()]), Scalar::Int(-1));
    for wrong in ["cuda0", "cuda:-1", "cuda:1.5", "gpu"] {
        let error = lab.fails("to", &[(&x).into(), Arg::Str(wrong.into())], &[]);
        assert!(error.message().starts_with("invalid device string"), "{error}");
    }
    assert!(lab.try_call("cuda", &[(&x).into(), Arg::Device(Cuda(7))], &[]).is_err());
    assert!(lab.try_call("cuda", &[(&x).into(), Arg::Device(Cpu)], &[]).is_err());
}

#[test]
fn every_layout_dtype_and_device_pair_copies_right() {
    let mut lab = Lab::new();
    let values = [0.0, 1.0, 2.0, 3.0, 100.0, 7.0];
    for from in Dtype::REAL {
        for to in [Bool, U8, I64, F16, F64] {
            for device in [Cpu, GPU, Cuda(1)] {
                for x in lab.layouts(&[2, 3], &values, from) {
                    let out = lab.call("to", &[(&x).into(), Arg::Device(device), to.into()]);
                    assert_eq!((out.dtype(), out.device()), (to, device));
                    let want: Vec<f64> = match from == Bool || to == Bool {
                        true => values.iter().map(|&v| f64::from(u8::from(v != 0.0))).collect(),
                        false => values.to_vec(),
                    };
                    lab.same(&out, &[2, 3], &want);
                }
            }
        }
    }
}

#[test]
fn copies_write_into_views_across_devices() {
    let mut lab = Lab::new();
    for device in [Cpu, GPU, Cuda(1)] {
        let x = lab.counted(&[2, 3]);
        let column = lab.call("select", &[(&x).into(), 1.into(), 1.into()]);
        let src = lab.tensor_on(&[1], &[9.5], F64, device);
        let out = lab.call("copy_", &[(&column).into(), (&src).into()]);
        assert!(out.same(&column));
        lab.same(&x, &[2, 3], &[0.0, 9.5, 2.0, 3.0, 9.5, 5.0]);
        let back = lab.tensor_on(&[2, 3], &[0.0; 6], I32, device);
        lab.call("copy_", &[(&back).into(), (&x).into()]);
        lab.same(&back, &[2, 3], &[0.0, 9.0, 2.0, 3.0, 9.0, 5.0]);
        let wrong = lab.tensor_on(&[4], &[0.0; 4], F32, device);
        assert!(lab.try_call("copy_", &[(&x).into(), (&wrong).into()], &[]).is_err());
    }
    let x = lab.counted(&[2]);
    lab.call("copy_", &[(&x).into(), 7.into()]);
    lab.same(&x, &[2], &[7.0, 7.0]);
}

#[test]
fn pinned_memory_is_host_memory() {
    let mut lab = Lab::new();
    let x = lab.tensor_on(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], F32, Cpu);
    let t = lab.call("t", &[(&x).into()]);
    let pinned = lab.call("pin_memory", &[(&t).into()]);
    assert_eq!(lab.number("is_pinned", &[(&pinned).into()]), Scalar::Bool(true));
    assert_eq!(lab.number("is_pinned", &[(&x).into()]), Scalar::Bool(false));
    lab.same(&pinned, &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert!(lab.call("pin_memory", &[(&pinned).into()]).same(&pinned));
    let gpu = lab.counted(&[2]);
    let error = lab.fails("pin_memory", &[(&gpu).into()], &[]);
    assert_eq!(error.message(), "only dense CPU tensors can be pinned");
    let near = lab.call("cpu", &[(&gpu).into(), true.into()]);
    assert_eq!(lab.number("is_pinned", &[(&near).into()]), Scalar::Bool(true));
}

#[test]
fn shorthands_convert() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[2], &[2.75, -1.0], F32);
    for (name, dtype) in [
        ("float", F32),
        ("double", F64),
        ("half", F16),
        ("bfloat16", BF16),
        ("long", I64),
        ("int", I32),
        ("short", I16),
        ("char", I8),
        ("bool", Bool),
    ] {
        let out = lab.call(name, &[(&x).into()]);
        assert_eq!(out.dtype(), dtype, "{name}");
        let want = if dtype.is_float() {
            [2.75, -1.0]
        } else if dtype == Bool {
            [1.0, 1.0]
        } else {
            [2.0, -1.0]
        };
        lab.same(&out, &[2], &want);
    }
    let other = lab.tensor_on(&[1], &[1.0], I16, Cpu);
    let out = lab.call("type_as", &[(&x).into(), (&other).into()]);
    assert_eq!((out.dtype(), out.device()), (I16, Cpu));
}

#[test]
fn elements_are_returned_as_numbers() {
    let mut lab = Lab::new();
    let x = lab.tensor(&[1, 1], &[2.5], F16);
    assert_eq!(lab.number("item", &[(&x).into()]), Scalar::Float(2.5));
    let y = lab.tensor(&[], &[1.0], Bool);
    assert_eq!(lab.number("item", &[(&y).into()]), Scalar::Bool(true));
    let z = lab.counted(&[2]);
    let error = lab.fails("item", &[(&z).into()], &[]);
    assert_eq!(error.code().id, "E0422");
    let none = lab.tensor(&[0], &[], F32);
    assert_eq!(lab.fails("item", &[(&none).into()], &[]).code().id, "E0422");
    let m = lab.tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0], I64);
    let t = lab.call("t", &[(&m).into()]);
    let Ok(Out::Data(Data::List(rows))) = lab.try_call("tolist", &[(&t).into()], &[]) else { panic!() };
    let text = format!("{rows:?}");
    assert_eq!(text, "[List([Number(Int(1)), Number(Int(3))]), List([Number(Int(2)), Number(Int(4))])]");
    let Ok(Out::Data(Data::Number(Scalar::Bool(true)))) = lab.try_call("tolist", &[(&y).into()], &[]) else {
        panic!()
    };
}

#[test]
fn printing_reads_only_the_corners() {
    let mut lab = Lab::new();
    let options = PrintOptions::default();
    let shape = [30, 50];
    let values: Vec<f64> = (0..1500).map(f64::from).collect();
    for x in lab.layouts(&shape, &values, I64) {
        let text = show::text(&mut lab.rt, &x, &options).unwrap();
        let want = crate::tensor::format_tensor(&bytes_of(&values, I64), &shape, I64, GPU, &options);
        assert_eq!(text, want);
        assert!(text.starts_with("tensor([[   0,    1,    2,  ...,   47,   48,   49]"), "{text}");
        assert!(text.ends_with("device='cuda:0')"), "{text}");
        assert_eq!(show::source(&mut lab.rt, &x, &options).unwrap(), want);
    }
    let odd = PrintOptions { threshold: 3, edge_items: 2, ..options };
    let x = lab.counted(&[5, 5]);
    let text = show::text(&mut lab.rt, &x, &odd).unwrap();
    assert!(text.starts_with("tensor([[ 0.,  1.,  ...,  3.,  4.]"), "{text}");
    let small = lab.tensor(&[2], &[0.5, 1.0], F32);
    assert_eq!(show::source(&mut lab.rt, &small, &options).unwrap(), "tensor([0.5, 1.0], device=cuda:0)");
}
