//! Tests of results that wait for their readers.

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

#[test]
fn views_of_a_result_read_its_operands_at_the_same_elements() {
    let whole = Layout::contiguous(&[4, 6, 5]);
    // An operand of shape [6, 1], broadcast.
    let operand = Layout { shape: copied(&whole.shape), strides: smallvec![0, 3, 0], offset: 7 };
    let read = |shape: &[usize], strides: &[isize], offset: usize| {
        let place = Place::of(shape, strides, offset, &whole)?;
        let (strides, offset) = place.of_operand(&operand)?;
        Some((strides.to_vec(), offset))
    };
    assert_eq!(read(&[4, 6, 5], &[30, 5, 1], 0), Some((vec![0, 3, 0], 7)));
    assert_eq!(read(&[5, 4, 6], &[1, 30, 5], 0), Some((vec![0, 0, 3], 7)));
    assert_eq!(read(&[2, 3, 1], &[60, 10, 0], 5), Some((vec![0, 6, 0], 7 + 3)));
    // A dimension split in two, and a dimension of the view that is broadcast.
    assert_eq!(read(&[4, 2, 3, 5], &[30, 15, 5, 1], 0), Some((vec![0, 9, 3, 0], 7)));
    assert_eq!(read(&[9, 5], &[0, 1], 30 + 10), Some((vec![0, 0], 7 + 6)));
    // Rows that continue into the next, and a diagonal.
    assert_eq!(read(&[10], &[1], 0), None);
    assert_eq!(read(&[4], &[31], 0), None);
    assert_eq!(read(&[4, 30], &[30, 1], 0), None);
}
