//! Chains of groups, and groups that share the launch of a reduction: they give the same bits as separate groups.

#![cfg(test)]

use super::device;
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::plan::{chain_tests, several_tests};
use std::sync::Arc;

/// Runs random programs until at least `least` launches of a run hold several groups, as many as in the run before: groups
/// are launched one by one until the kernel of several is compiled.
fn settle(programs: impl Fn(&Arc<Machine>) -> usize, least: usize) {
    let Some(_gpu) = device() else { return };
    let config = Config { backend: Backend::Cuda, devices: Some(1), ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    let mut before = 0;
    for _ in 0..20 {
        let count = programs(&machine);
        println!("{count} launches held several groups");
        if count > least && count == before {
            return;
        }
        before = count;
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    panic!("only {before} launches ever held several groups");
}

#[test]
fn chains_have_the_bits_of_single_operations() {
    settle(|machine| chain_tests::programs(machine, DeviceId::Cuda(0), 0..48), 40);
}

#[test]
fn several_reductions_have_the_bits_of_single_operations() {
    settle(|machine| several_tests::programs(machine, DeviceId::Cuda(0), 0..48), 20);
}
