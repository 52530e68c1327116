//! Transfers between several devices; skipped with a note on machines with fewer than two.

#![cfg(test)]

use super::*;
use crate::device::{Backend, Config, Machine};
use crate::kernel::Pack;
use crate::plan::{Runtime, collective_tests};

/// A session on all devices, and the number of devices.
fn session(unshared: Option<u64>) -> Option<(Runtime, u32)> {
    device()?;
    let config = Config { backend: Backend::Cuda, ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    let count = machine.device_count() as u32;
    if count < 2 {
        skip("several GPUs", format!("{count} device, and these tests need two"));
        return None;
    }
    Some((Runtime::new(machine, collective_tests::settings(unshared)), count))
}

#[test]
fn transfers_between_devices_whole_and_in_shares() {
    for unshared in [None, Some(0)] {
        let Some((mut rt, count)) = session(unshared) else { return };
        collective_tests::everything(&mut rt, count, &[1, 1000, 100_003], &collective_tests::SOME);
    }
}

#[test]
fn large_transfers_are_shared() {
    let Some((mut rt, count)) = session(None) else { return };
    collective_tests::everything(&mut rt, count, &[(5 << 20) + 13], &[Dtype::F32]);
}

#[test]
fn packing_parts_of_all_alignments() {
    let Some(gpu) = device() else { return };
    let lengths = [0usize, 1, 15, 16, 17, 4096, 5000, 12_289, 3];
    let many: Vec<usize> = (0..700).map(|i| lengths[i % lengths.len()] / (1 + i % 3)).collect();
    for lengths in [&lengths[..], &many] {
        let parts: Vec<Pair> = lengths
            .iter()
            .enumerate()
            .map(|(i, &n)| Pair::at(&gpu, Dtype::U8, &[n + 1], &[1], i % 18, i as u64))
            .collect();
        let ends: Vec<usize> = lengths
            .iter()
            .scan(0usize, |end, &n| {
                let begin = end.next_multiple_of(16);
                *end = begin + n;
                Some(*end)
            })
            .collect();
        let total = ends.last().unwrap().next_multiple_of(16);
        let out = Pair::dense(&gpu, Dtype::U8, &[total], 9);
        let mut views: Vec<View> = parts.iter().map(Pair::on_device).collect();
        for (view, &n) in views.iter_mut().zip(lengths) {
            view.strides = [n as isize].as_slice().into();
        }
        views.push(out.on_device());
        run(&gpu, &launch(&program(Pack), &[total], views, &[]));
        let got = out.download(&gpu);
        for ((part, &n), &end) in parts.iter().zip(lengths).zip(&ends) {
            assert!(
                (0..n).all(|i| got.raw(end - n + i) == part.raw(part.offset + i)),
                "{n} bytes before {end}"
            );
        }
        parts.into_iter().for_each(|part| part.free(&gpu));
        out.free(&gpu);
    }
}
