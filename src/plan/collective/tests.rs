//! Transfers between several devices, compared with single steps, on emulated devices under many schedules;
//! [`everything`] also runs on real devices.

#![cfg(test)]

use crate::array::{Dtype, Layout};
use crate::device::{Backend, Config, Machine};
use crate::driver::{DeviceId, Schedule};
use crate::ops::arith::ADD;
use crate::ops::testing::bytes_of;
use crate::plan::{MapArg, Runtime, Settings};
use crate::tensor::Tensor;
use DeviceId::{Cpu, Cuda};

fn emulated(schedule: Option<u64>, unshared: Option<u64>) -> Runtime {
    let schedule = schedule.map(Schedule::Seed);
    let config = Config { backend: Backend::Emu, devices: Some(4), schedule, ..Config::default() };
    Runtime::new(Machine::open(&config).unwrap(), settings(unshared))
}

/// Sums and broadcasts of more bytes are shared between the devices.
pub fn settings(unshared: Option<u64>) -> Settings {
    let usual = Settings::default();
    Settings { unshared: unshared.unwrap_or(usual.unshared), ..usual }
}

/// Dtypes of several sizes and kinds.
pub const SOME: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::I64, Dtype::U8];

/// Numbers whose sums round in every float dtype.
fn values(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 16.0).collect()
}

fn tensor(rt: &mut Runtime, count: usize, dtype: Dtype, device: DeviceId, seed: usize) -> Tensor {
    rt.from_host(&bytes_of(&values(count, seed), dtype), &[count], dtype, device).unwrap()
}

/// The sum in order, step by step, on the host.
fn reference(rt: &mut Runtime, inputs: &[Tensor]) -> Vec<u8> {
    let near: Vec<Tensor> = inputs.iter().map(|t| rt.copy_to(t, Cpu, false).unwrap()).collect();
    let (mut sum, dtype) = (near[0].clone(), inputs[0].dtype());
    for other in &near[1..] {
        let args = [MapArg::Tensor(&sum), MapArg::Tensor(other)];
        sum = rt.map("add", &ADD, &args, dtype, dtype).unwrap();
    }
    rt.read(&sum).unwrap()
}

/// All transfers over the first `n` devices, with sizes below and above the sharing threshold.
pub fn everything(rt: &mut Runtime, n: u32, counts: &[usize], dtypes: &[Dtype]) {
    let all: Vec<DeviceId> = (0..n).map(Cuda).collect();
    let turned: Vec<DeviceId> = (0..n).rev().map(Cuda).collect();
    for &count in counts {
        for &dtype in dtypes {
            for from in [Cpu, Cuda(0), Cuda(n - 1)] {
                let x = tensor(rt, count, dtype, from, 1);
                let want = rt.read(&x).unwrap();
                let copies = rt.broadcast(&x, &turned).unwrap();
                // Later work on the source comes after the transfer.
                let zeros = tensor(rt, count, Dtype::F32, from, 5);
                rt.assign("copy_", &x, &zeros).unwrap();
                for (copy, &device) in copies.iter().zip(&turned) {
                    assert_eq!(copy.device(), device);
                    if device != from {
                        assert!(rt.read(copy).unwrap() == want, "{count} {dtype} {from} to {device}");
                    }
                }
            }
            // Inputs in order, in another order, and several on one device.
            let twice: Vec<DeviceId> = all.iter().chain(&all[..1]).copied().collect();
            let near: Vec<DeviceId> = vec![Cuda(n - 1), Cuda(n - 1), Cuda(0)];
            for places in [&all, &turned, &twice, &near] {
                let inputs: Vec<Tensor> =
                    places.iter().enumerate().map(|(i, &d)| tensor(rt, count, dtype, d, i)).collect();
                let want = reference(rt, &inputs);
                for &root in places {
                    let sum = rt.reduce_add(&ADD, &inputs, root).unwrap();
                    assert_eq!(sum.device(), root);
                    assert!(rt.read(&sum).unwrap() == want, "{count} {dtype} {places:?} on {root}");
                }
            }
            for from in [Cpu, Cuda(0)] {
                let x = tensor(rt, count, dtype, from, 3);
                let want = rt.read(&x).unwrap();
                let each = count.div_ceil(n as usize);
                let extents: Vec<usize> =
                    (0..count.div_ceil(each)).map(|i| each.min(count - i * each)).collect();
                let parts = rt.scatter(&x, &all, &extents, 0).unwrap();
                for destination in [Cuda(0), Cuda(n - 1), Cpu] {
                    let whole = rt.gather(&parts, 0, destination).unwrap();
                    assert_eq!(whole.device(), destination);
                    assert!(rt.read(&whole).unwrap() == want, "{count} {dtype} {from} {destination}");
                }
            }
        }
    }
    coalesced(rt, &all);
}

fn coalesced(rt: &mut Runtime, all: &[DeviceId]) {
    let sizes = [3usize, 0, 1000, 17, 1, 400];
    let dtypes = [Dtype::F32, Dtype::U8, Dtype::F16, Dtype::F16, Dtype::I64, Dtype::U8];
    for buffer in [0, 64, 2200, 1 << 20] {
        let mut lists: Vec<Vec<Tensor>> = Vec::new();
        for (d, &device) in all.iter().enumerate() {
            let one =
                |(i, (&size, &dtype)): (usize, (&usize, &Dtype))| tensor(rt, size, dtype, device, i + d);
            lists.push(sizes.iter().zip(&dtypes).enumerate().map(one).collect());
        }
        let copies = rt.broadcast_coalesced(&lists[0], all, buffer).unwrap();
        for (list, &device) in copies.iter().zip(all) {
            assert_eq!(list.len(), sizes.len());
            for (copy, source) in list.iter().zip(&lists[0]) {
                let same =
                    (copy.device(), copy.dtype(), copy.shape()) == (device, source.dtype(), source.shape());
                assert!(same && copy.layout().is_contiguous());
                assert!(rt.read(copy).unwrap() == rt.read(source).unwrap(), "buffer {buffer}, {device}");
            }
        }
        let sums = rt.reduce_add_coalesced(&ADD, &lists, all[0], buffer).unwrap();
        for (i, sum) in sums.iter().enumerate() {
            let column: Vec<Tensor> = lists.iter().map(|list| list[i].clone()).collect();
            let want = reference(rt, &column);
            assert!(rt.read(sum).unwrap() == want, "buffer {buffer}, tensor {i}");
        }
    }
}

#[test]
fn transfers_are_right_whole_and_in_shares() {
    for unshared in [None, Some(0)] {
        everything(&mut emulated(None, unshared), 4, &[1, 7, 64, 1000, 4099], &SOME);
        everything(&mut emulated(None, unshared), 2, &[130], &SOME);
    }
}

#[test]
fn transfers_are_ordered_under_every_schedule() {
    for seed in 0..6 {
        let unshared = [Some(0), None][seed as usize % 2];
        everything(&mut emulated(Some(seed), unshared), 4, &[61, 3000], &SOME);
    }
}

#[test]
fn a_failed_transfer_leaves_a_sound_session() {
    let mut rt = emulated(None, Some(0));
    let x = tensor(&mut rt, 1000, Dtype::F32, Cuda(0), 1);
    let strided = Layout { shape: [500].as_slice().into(), strides: [2].as_slice().into(), offset: 0 };
    let copies = rt.broadcast(&x.with_layout(strided), &[Cuda(0), Cuda(1), Cuda(2)]).unwrap();
    assert!(copies[0].layout().strides[0] == 2 && copies[1].layout().is_contiguous());
    assert_eq!(rt.broadcast(&x, &[Cuda(9)]).err().unwrap().code().id, "E0501");
    assert_eq!(rt.gather(&[], 0, Cpu).err().unwrap().code().id, "E0513");
    assert_eq!(rt.reduce_add(&ADD, std::slice::from_ref(&x), Cuda(1)).err().unwrap().code().id, "E0512");
    // A race with a stream that is not current is rejected: the transfer waits for current streams only.
    let side = rt.device(Cuda(0)).unwrap().stream(0).unwrap();
    rt.set_stream(&side).unwrap();
    let center = rt.device(Cuda(0)).unwrap().default_stream().clone();
    rt.wait_stream(&side, &center).unwrap();
    let five = tensor(&mut rt, 1000, Dtype::F32, Cuda(0), 5);
    rt.assign("copy_", &x, &five).unwrap();
    rt.set_stream(&center).unwrap();
    for devices in [vec![Cuda(1)], vec![Cuda(1), Cuda(2)]] {
        assert_eq!(rt.broadcast(&x, &devices).err().unwrap().code().id, "E0601");
    }
    rt.wait_stream(&center, &side).unwrap();
    let copies = rt.broadcast(&x, &[Cuda(1), Cuda(2)]).unwrap();
    assert!(rt.read(&copies[1]).unwrap() == rt.read(&x).unwrap());
}
