//! Chains of groups fused into single kernels: they give the same bits as separate groups.

#![cfg(test)]

use super::device;
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::plan::chain_tests;

#[test]
fn chains_have_the_bits_of_single_operations() {
    let Some(_gpu) = device() else { return };
    let config = Config { backend: Backend::Cuda, devices: Some(1), ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    let mut before = 0;
    // A chain runs group by group until its kernel is compiled.
    for _ in 0..20 {
        let chains = chain_tests::programs(&machine, DeviceId::Cuda(0), 0..48);
        println!("{chains} chains were one kernel");
        if chains > 40 && chains == before {
            return;
        }
        before = chains;
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    panic!("only {before} chains were ever one kernel");
}
