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
