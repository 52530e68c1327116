//! A recurrent layer has the same bits in one kernel as in two kernels per step, which run until the one is compiled.

#![cfg(test)]

use super::*;
use crate::driver::cuda::queue::Queue;
use crate::driver::cuda::sources::recurrent::{launches, script};

/// The extents of a view of a layer.
fn extents(launch: &Launch, number: usize) -> Vec<usize> {
    let [steps, rows, width, inner, columns] = [0, 1, 2, 3, 4].map(|d| launch.shape[d]);
    match (number, launch.views[number].strides.len()) {
        (0, _) => vec![inner, columns],
        (1, _) => vec![rows, inner],
        (2, _) => vec![steps, rows, inner],
        (_, 3) => vec![steps, rows, width],
        _ => vec![rows, width],
    }
}

/// Memory that views share.
struct Block {
    from: Ptr,
    to: Ptr,
    bytes: Vec<u8>,
    device: Ptr,
}

/// The memory of a launch's views, with small numbers. Views that overlap share a block.
fn blocks_of(gpu: &CudaDriver, launch: &Launch) -> Vec<Block> {
    let reach = |number: usize| -> u64 {
        let view = &launch.views[number];
        let last =
            extents(launch, number).into_iter().zip(&view.strides).map(|(n, &s)| (n - 1) as u64 * s as u64);
        (last.sum::<u64>() + 1) * view.dtype.size() as u64
    };
    let mut ranges: Vec<(Ptr, Ptr)> =
        launch.views.iter().enumerate().map(|(number, view)| (view.ptr, view.ptr + reach(number))).collect();
    ranges.sort_unstable();
    let mut blocks: Vec<Block> = Vec::new();
    for (from, to) in ranges {
        match blocks.last_mut() {
            Some(last) if from < last.to => last.to = last.to.max(to),
            _ => blocks.push(Block { from, to, bytes: Vec::new(), device: 0 }),
        }
    }
    for block in &mut blocks {
        let is_mask = launch.views.iter().any(|view| view.ptr == block.from && view.dtype == Dtype::Bool);
        let count = (block.to - block.from).div_ceil(4);
        let number = |i: u64| ((mix(i ^ block.from) % 2001) as f32 / 1000.0 - 1.0).to_le_bytes();
        block.bytes = match is_mask {
            true => (0..4 * count).map(|i| (mix(i) & 1) as u8).collect(),
            false => (0..count).flat_map(number).collect(),
        };
        block.device = gpu.take(4 * count);
    }
    blocks
}

#[test]
fn layers_have_the_bits_of_their_steps() {
    let Some(gpu) = device() else { return };
    if !crate::driver::cuda::sources::nvrtc_is_here() {
        return;
    }
    let cases = [("lstm", 5), ("lstm", 128), ("gru", 64), ("gru", 33), ("rnn", 256), ("rnn", 1)];
    for (layer, size) in cases {
        for (batch, mask) in [(1, false), (3, true), (300, false)] {
            for launch in launches(&script(layer, batch, size, mask)) {
                let blocks = blocks_of(&gpu, &launch);
                let moved = |view: &View| {
                    let block =
                        blocks.iter().find(|block| (block.from..block.to).contains(&view.ptr)).unwrap();
                    View { ptr: block.device + (view.ptr - block.from), ..view.clone() }
                };
                let views = launch.views.iter().map(moved).collect();
                let work = Launch { views, ..launch.clone() };
                let kind = &work.program.kind;
                let outcome = |run: &dyn Fn(&mut Queue<'_>)| -> Vec<Vec<u8>> {
                    for Block { bytes, device, .. } in &blocks {
                        let from = bytes.as_ptr() as u64;
                        gpu.transfer(*device, from, bytes.len() as u64, CopyKind::HostToDevice);
                    }
                    gpu.make_ready(None, 0).unwrap();
                    run(&mut Queue::new(&gpu, 0));
                    gpu.stream_synchronize(0).unwrap_or_else(|e| panic!("{e}: {:?}", work.program));
                    let download = |block: &Block| {
                        let mut bytes = vec![0u8; block.bytes.len()];
                        let to = bytes.as_mut_ptr() as u64;
                        gpu.transfer(to, block.device, bytes.len() as u64, CopyKind::DeviceToHost);
                        bytes
                    };
                    blocks.iter().map(download).collect()
                };
                let steps = outcome(&|queue| assert!(kind.interpret(&work, queue).unwrap()));
                let whole = outcome(&|queue| {
                    let signature = kind.signature(&work);
                    assert_ne!(signature, Default::default(), "one kernel for {layer} of {size}");
                    let loaded = gpu.library.get(&work, signature).unwrap();
                    queue.with(loaded, |queue| kind.enqueue(&work, signature, queue)).unwrap();
                });
                assert!(steps == whole, "{layer} of {size}, batch {batch}: {:?}", work.program);
                let before: Vec<&[u8]> = blocks.iter().map(|block| &block.bytes[..]).collect();
                assert!(whole.iter().zip(before).any(|(a, b)| a != b), "something was computed");
                blocks.into_iter().for_each(|block| gpu.give(block.device));
            }
        }
    }
}
