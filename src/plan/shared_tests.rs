//! Functions that are defined at run time are fused like those of operations.

#![cfg(test)]

use super::{MapArg, Runtime, Settings};
use crate::array::Dtype;
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::kernel::{MapFn, Reg, RegMut};
use crate::ops::arith::ADD;
use crate::ops::testing::bytes_of;
use crate::tensor::Tensor;
use DeviceId::{Cpu, Cuda};

fn value(coefficients: &[f32], x: f32) -> f32 {
    coefficients.iter().rev().fold(0.0, |inner, &c| inner * x + c)
}

/// `c[0] + c[1] x + c[2] x^2 ...`; the host interprets the coefficients.
fn polynomial(coefficients: &[f32]) -> &'static MapFn {
    let text =
        coefficients.iter().rev().fold("0.0f".to_string(), |inner, c| format!("({inner} * a + {c:?}f)"));
    let coefficients = coefficients.to_vec();
    MapFn::shared("polynomial", 1, [&text, "", ""], move |args, out| {
        if let (Reg::F32(x), RegMut::F32(out)) = (args[0], out) {
            out.iter_mut().zip(x).for_each(|(out, &x)| *out = value(&coefficients, x));
        }
    })
}

#[test]
fn equal_definitions_are_one_function() {
    let first = polynomial(&[1.0, 2.0]);
    assert!(std::ptr::eq(first, polynomial(&[1.0, 2.0])));
    assert!(first != polynomial(&[1.0, 3.0]), "the same name with another text");
    assert_eq!(first.cuda.f32, "((0.0f * a + 2.0f) * a + 1.0f)");
}

#[test]
fn a_function_defined_at_run_time_is_fused() {
    const COUNT: usize = 3000;
    let machine =
        Machine::open(&Config { backend: Backend::Emu, devices: Some(1), ..Config::default() }).unwrap();
    let numbers: Vec<f64> = (0..COUNT).map(|i| (i as f64 - 1500.0) / 64.0).collect();
    let (first, second) = ([0.1f32, -2.5, 0.3], [1.0f32, 0.7]);
    for dtype in [Dtype::F32, Dtype::F16] {
        for device in [Cpu, Cuda(0)] {
            let run = |fuse: bool| {
                let mut rt = Runtime::new(machine.clone(), Settings { fuse, ..Settings::default() });
                let x = rt.from_host(&bytes_of(&numbers, dtype), &[COUNT], dtype, device).unwrap();
                rt.start_listing(false).unwrap();
                let mut map = |f, args: &[&Tensor]| {
                    let args: Vec<MapArg<'_>> = args.iter().map(|x| MapArg::Tensor(x)).collect();
                    rt.map("map", f, &args, dtype, dtype).unwrap()
                };
                let result = {
                    let y = map(polynomial(&first), &[&x]);
                    let z = map(&ADD, &[&y, &x]);
                    map(polynomial(&second), &[&z])
                };
                let bytes = rt.read(&result).unwrap();
                let launches = rt.stop_listing().launches;
                (bytes, launches.iter().map(|l| l.launch.program.label.clone()).collect::<Vec<_>>())
            };
            let (fused, labels) = run(true);
            assert!(fused == run(false).0, "{dtype} on {device}");
            if dtype == Dtype::F32 {
                let want = numbers.iter().map(|&x| {
                    let x = x as f32;
                    value(&second, value(&first, x) + x).to_le_bytes()
                });
                assert!(fused == want.collect::<Vec<_>>().concat(), "{device}");
            }
            assert_eq!(labels, ["polynomial+add+polynomial"], "{dtype} on {device}");
        }
    }
}
