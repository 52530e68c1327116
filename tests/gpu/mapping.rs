//! Growing segments: mapped memory, and the allocator that uses it.

#![cfg(test)]

use super::*;
use crate::base::{ErrorKind, Span};
use crate::device::{Block, Device};
use crate::driver::DeviceId;
use crate::memory::AllocConf;

const MIB: u64 = 1 << 20;

/// Copies the bytes of a range to the host.
fn read(gpu: &CudaDriver, ptr: Ptr, bytes: u64) -> Vec<u8> {
    let mut back = vec![0u8; bytes as usize];
    gpu.copy(back.as_mut_ptr() as u64, ptr, bytes, CopyKind::DeviceToHost, 0).unwrap();
    gpu.stream_synchronize(0).unwrap();
    back
}

/// A device with its own allocator, unaffected by other tests.
fn machine(conf: &str) -> Option<(Arc<CudaDriver>, Arc<Device>)> {
    let gpu = device()?;
    let conf = AllocConf::parse(conf).unwrap();
    Some((gpu.clone(), Device::new(DeviceId::Cuda(0), gpu, &conf)))
}

fn alloc(device: &Arc<Device>, bytes: u64) -> Block {
    device.alloc(bytes, device.default_stream(), Span::NONE).unwrap()
}

#[test]
fn segments_grow_in_place_and_shrink_in_pieces() {
    let Some(gpu) = device() else { return };
    let Some(unit) = gpu.map_unit() else {
        skip("a GPU that maps memory", "the device maps no memory");
        return;
    };
    assert!(unit.is_power_of_two() && unit >= 2 * MIB, "{unit}");
    let base = gpu.reserve(64 * unit).unwrap();
    assert_eq!(base % unit, 0);
    gpu.map(base, unit).unwrap();
    gpu.fill(base, 1, 1, unit, 0).unwrap();
    gpu.map(base + unit, 2 * unit).unwrap();
    // One fill crosses both pieces; the rest of the first keeps its contents.
    gpu.fill(base + unit / 2, 2, 1, 2 * unit, 0).unwrap();
    let back = read(&gpu, base, unit + unit / 2);
    assert!(back[..unit as usize / 2].iter().all(|&b| b == 1));
    assert!(back[unit as usize / 2..].iter().all(|&b| b == 2));
    gpu.synchronize().unwrap();
    gpu.unmap(base, unit);
    // Memory behind the hole still works, and the hole can be mapped again.
    gpu.fill(base + unit, 3, 1, 2 * unit, 0).unwrap();
    gpu.map(base, unit).unwrap();
    gpu.fill(base, 4, 1, unit, 0).unwrap();
    let back = read(&gpu, base, 3 * unit);
    assert!(back[..unit as usize].iter().all(|&b| b == 4));
    assert!(back[unit as usize..].iter().all(|&b| b == 3));
    gpu.unmap(base, unit);
    gpu.unmap(base + unit, 2 * unit);
    let total = gpu.memory_info().unwrap().1 / unit * unit;
    assert_eq!(gpu.map(base, 2 * total).unwrap_err().kind(), ErrorKind::OutOfMemory);
    gpu.unreserve(base, 64 * unit);
}

#[test]
fn the_order_of_requests_does_not_matter() {
    let Some((gpu, device)) = machine("") else { return };
    if gpu.map_unit() != Some(2 * MIB) {
        skip("a GPU that maps memory", "the device maps no memory, or in other pages");
        return;
    }
    drop((0..8).map(|_| alloc(&device, 16 * MIB)).collect::<Vec<_>>());
    let blocks: Vec<Block> = (0..4).map(|_| alloc(&device, 32 * MIB)).collect();
    assert_eq!(device.stats().reserved_bytes.all().current, 128 * MIB);
    for (i, block) in blocks.iter().enumerate() {
        gpu.fill(block.ptr(), i as u64 + 1, 1, 32 * MIB, 0).unwrap();
    }
    for (i, block) in blocks.iter().enumerate() {
        assert!(read(&gpu, block.ptr(), 32 * MIB).iter().all(|&b| usize::from(b) == i + 1));
    }
    let segments = device.snapshot();
    assert!(segments.len() == 1 && segments[0].is_expandable);
    // The middle is unmapped; both ends keep their values.
    let mut blocks = blocks;
    blocks.remove(1);
    device.empty_cache().unwrap();
    assert_eq!(device.stats().reserved_bytes.all().current, 96 * MIB);
    assert_eq!(device.snapshot().len(), 2);
    for (block, value) in blocks.iter().zip([1, 3, 4]) {
        assert!(read(&gpu, block.ptr(), 32 * MIB).iter().all(|&b| b == value));
    }
    // The middle is mapped again at the same place.
    let again = alloc(&device, 32 * MIB);
    assert_eq!(again.ptr(), blocks[0].ptr() + 32 * MIB);
    assert_eq!(device.snapshot().len(), 1);
}

#[test]
fn plain_segments_are_used_on_request() {
    let Some((gpu, device)) = machine("expandable_segments:false") else { return };
    let block = alloc(&device, 3 * MIB);
    gpu.fill(block.ptr(), 9, 1, 3 * MIB, 0).unwrap();
    assert!(read(&gpu, block.ptr(), 3 * MIB).iter().all(|&b| b == 9));
    assert_eq!(device.stats().reserved_bytes.all().current, 20 * MIB);
    assert!(!device.snapshot()[0].is_expandable);
}

#[test]
fn peers_reach_memory_that_was_mapped_before_and_after() {
    let Some((gpu, device)) = machine("") else { return };
    let Ok(other) = open_device(1) else {
        skip("several GPUs", "there is one device");
        return;
    };
    let mut last = Vec::new();
    for (step, bytes) in [2 * MIB, 40 * MIB, 4 * MIB].into_iter().enumerate() {
        let from = alloc(&device, bytes);
        let value = step as u64 + 5;
        gpu.fill(from.ptr(), value, 1, bytes, 0).unwrap();
        gpu.stream_synchronize(0).unwrap();
        let to = other.alloc(bytes).unwrap();
        other.copy(to, from.ptr(), bytes, CopyKind::FromPeer(0), 0).unwrap();
        other.stream_synchronize(0).unwrap();
        assert!(read(&other, to, bytes).iter().all(|&b| u64::from(b) == value), "step {step}");
        // The same in the other direction, into mapped memory.
        other.fill(to, value + 10, 1, bytes, 0).unwrap();
        other.stream_synchronize(0).unwrap();
        gpu.copy(from.ptr(), to, bytes, CopyKind::FromPeer(1), 0).unwrap();
        assert!(read(&gpu, from.ptr(), bytes).iter().all(|&b| u64::from(b) == value + 10), "step {step}");
        other.free(to, bytes);
        last.push(from);
    }
}
