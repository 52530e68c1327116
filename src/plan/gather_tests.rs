//! Tests of results that wait for their readers.

#![cfg(test)]

use super::*;
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::ops::arith::MUL;
use crate::ops::folds::SUM;
use crate::ops::testing::bytes_of;
use crate::plan::{MapArg, Reduction, Settings};
use std::cell::Cell;

thread_local! {
    /// Kernels are not compiled yet.
    pub(in crate::plan) static IS_LATE: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn results_are_stored_until_their_readers_are_compiled() {
    let machine =
        Machine::open(&Config { backend: Backend::Emu, devices: Some(1), ..Config::default() }).unwrap();
    let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f64 / 8.0).collect::<Vec<f64>>();
    let ids: Vec<f64> = (0..50).map(|i| (i * 7 % 24) as f64 - 12.0).collect();
    let run = |fuse: bool, late: bool| {
        IS_LATE.set(late);
        let mut rt = Runtime::new(machine.clone(), Settings { fuse, ..Settings::default() });
        let device = DeviceId::Cuda(0);
        let mut tensor = |values: &[f64], shape: &[usize], dtype| {
            rt.from_host(&bytes_of(values, dtype), shape, dtype, device).unwrap()
        };
        let table = tensor(&numbers(12 * 20), &[12, 20], Dtype::F32);
        let other = tensor(&numbers(50 * 20), &[50, 20], Dtype::F32);
        let index = tensor(&ids, &[50], Dtype::I64);
        let index = index.with_layout(index.layout().broadcast_to(&[20, 50]).unwrap().permute(&[1, 0]));
        rt.start_listing(false).unwrap();
        let sums = {
            let name = "gather";
            let (strides, meaning) = (table.layout().strides.clone(), Meaning::Index);
            let work =
                Gathering { name, source: &table, strides, axis: 0, limit: 12, index: &index, meaning };
            let rows = rt.gather_at(work).unwrap();
            let args = [MapArg::Tensor(&rows), MapArg::Tensor(&other)];
            let product = rt.map("mul", &MUL, &args, Dtype::F32, Dtype::F32).unwrap();
            let sum = Reduction::new("sum", &SUM, &[1], Dtype::F32, Dtype::F32);
            rt.reduce(&product, sum).unwrap()
        };
        rt.flush().unwrap();
        let launches = rt.stop_listing().launches.len();
        IS_LATE.set(false);
        (rt.read(&sums).unwrap(), launches)
    };
    let (expected, all) = run(false, false);
    assert_eq!(all, 3);
    assert_eq!(run(true, false), (expected.clone(), 1));
    assert_eq!(run(true, true), (expected, 2));
}

/// Scripts that gather at computed indices give the same results and errors while no kernel that gathers is compiled.
#[test]
fn computed_indices_are_stored_until_their_readers_are_compiled() {
    let data = "let (t, i, c) = (arange(96).float() * 37 % 101, arange(24) * 5 % 24, arange(24).float() * 3 % 7)\n\
                let m = t.reshape(12, 8)\n";
    let ends = |code: &str, late: bool| {
        IS_LATE.set(late);
        let engine = crate::Engine::builder().backend(Backend::Emu).devices(1).fuse(late).build();
        let end = engine.unwrap().eval::<String>(&format!("{data}{code}"));
        IS_LATE.set(false);
        end.map_err(|e| format!("{e:?}"))
    };
    for code in [
        "str(t[(i * 3 + 1) % 96].tolist())",
        "let v = t[(c * 5).to(i64) + i] * c\nstr((v.tolist(), v.sum().item()))",
        "str((m[i % 12, (c * 2).to(i64) % 8] - m[(i + 1) % 12, i % 8]).tolist())",
        "let v = t[i * 3].reshape(4, 6).T\ni.add_(1)\nstr((v * 2).tolist())",
        "let v = (t[i * 2].reshape(4, 6) * c[..6]).sum(1)\nstr(v.tolist())",
        "str(t[i * 5].tolist())",
        "let v = t[i + 0] * t[i * 9]\nstr(v.sum().item())",
        "t[i * 9]\nstr(t.sum().item())",
        "str(m[i * 1, i % 8].reshape(2, 12).T[3].tolist())",
    ] {
        assert_eq!(ends(code, true), ends(code, false), "{code}");
    }
}
