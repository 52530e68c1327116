//! Launches over several tensors give the same bits as separate ones.

#![cfg(test)]

use super::device;
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::plan::batch_tests;

#[test]
fn batches_have_the_bits_of_single_operations() {
    let Some(_gpu) = device() else { return };
    let config = Config { backend: Backend::Cuda, devices: Some(1), ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    // The first rounds are interpreted until the kernels are compiled.
    for _ in 0..4 {
        let batches = batch_tests::programs(&machine, DeviceId::Cuda(0), 0..40);
        assert!(batches > 40, "{batches} launches over several tensors");
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
}
