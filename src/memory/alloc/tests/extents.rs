//! Segments that grow in place.

#![cfg(test)]

use super::{GIB, MIB, alloc, check, device_with, reserved};
use crate::base::Span;
use crate::device::{Block, Device, MemoryPool};
use crate::driver::DeviceId;
use crate::driver::mock::MockDriver;
use crate::memory::alloc::AllocConf;
use std::sync::Arc;

fn growing(total: u64) -> (Arc<MockDriver>, Arc<Device>) {
    device_with(total, "expandable_segments:true")
}

#[test]
fn they_are_the_default_where_the_device_can_map() {
    for (unit, expected) in [(Some(2 * MIB), true), (None, false)] {
        let driver = MockDriver::with_unit(GIB, unit);
        let device = Device::new(DeviceId::Cuda(0), driver, &AllocConf::default());
        let _a = alloc(&device, 3 * MIB);
        assert_eq!(device.snapshot()[0].is_expandable, expected);
        assert_eq!(reserved(&device), if expected { 4 * MIB } else { 20 * MIB });
        check(&device);
    }
}

#[test]
fn the_order_of_requests_does_not_matter() {
    // PyTorch 2.11 reserves 256 MiB with plain segments and 140 MiB with expandable ones.
    let (driver, device) = growing(4 * GIB);
    drop((0..8).map(|_| alloc(&device, 16 * MIB)).collect::<Vec<_>>());
    let _live: Vec<_> = (0..4).map(|_| alloc(&device, 32 * MIB)).collect();
    assert_eq!((reserved(&device), driver.used()), (128 * MIB, 128 * MIB));
    assert_eq!(device.snapshot().len(), 1);
    check(&device);
}

#[test]
fn a_free_end_grows_by_the_missing_bytes() {
    let (_, device) = growing(GIB);
    let _first = alloc(&device, 10 * MIB);
    drop(alloc(&device, 6 * MIB));
    let big = alloc(&device, 50 * MIB);
    assert_eq!(reserved(&device), 60 * MIB);
    assert_eq!(device.stats().num_device_alloc, 3);
    drop(big);
    check(&device);
}

#[test]
fn pages_go_back_from_the_end_and_from_the_middle() {
    let (driver, device) = growing(GIB);
    let mut blocks: Vec<Block> = (0..5).map(|_| alloc(&device, 10 * MIB)).collect();
    let base = blocks[0].ptr();
    blocks.remove(4);
    blocks.remove(1);
    device.empty_cache().unwrap();
    assert_eq!((reserved(&device), driver.used()), (30 * MIB, 30 * MIB));
    let ranges: Vec<_> = device.snapshot().iter().map(|s| (s.address - base, s.total_size)).collect();
    assert_eq!(ranges, [(0, 10 * MIB), (20 * MIB, 20 * MIB)]);
    assert_eq!(device.stats().segment.all().current, 2);
    check(&device);
    // A request that fits the hole needs the fewest new bytes there.
    let middle = alloc(&device, 9 * MIB);
    assert_eq!(middle.ptr(), base + 10 * MIB);
    assert_eq!((reserved(&device), device.snapshot().len()), (40 * MIB, 1));
    check(&device);
    drop(middle);
    device.empty_cache().unwrap();
    // A request that does not fit goes to the end.
    let large = alloc(&device, 12 * MIB);
    assert_eq!(large.ptr(), base + 40 * MIB);
    check(&device);
    drop((large, blocks));
    device.empty_cache().unwrap();
    assert_eq!((driver.used(), driver.segments()), (0, 0));
}

#[test]
fn a_partly_used_page_is_kept() {
    let (_, device) = growing(GIB);
    let a = alloc(&device, 3 * MIB);
    let b = alloc(&device, 3 * MIB);
    assert_eq!(reserved(&device), 6 * MIB);
    drop(a);
    device.empty_cache().unwrap();
    // The second page holds the start of `b`.
    assert_eq!(reserved(&device), 4 * MIB);
    assert_eq!(device.stats().inactive_split.all().current, 0);
    check(&device);
    drop(b);
    device.empty_cache().unwrap();
    assert_eq!(reserved(&device), 0);
}

#[test]
fn growths_are_mapped_in_a_few_pieces() {
    let (driver, device) = growing(64 * GIB);
    let _small = alloc(&device, 16 * MIB);
    assert_eq!(driver.mapped().len(), 8);
    let _large = alloc(&device, 1000 * MIB);
    let pieces: Vec<u64> = driver.mapped().into_values().skip(8).collect();
    assert!((32..=64).contains(&pieces.len()), "{pieces:?}");
    let _huge = alloc(&device, 20 * GIB);
    assert_eq!(driver.mapped().into_values().max(), Some(256 * MIB));
    check(&device);
}

#[test]
fn memory_moves_between_streams_and_pools_before_a_request_fails() {
    let (driver, device) = growing(GIB);
    let side = device.stream(0).unwrap();
    let a = device.alloc(700 * MIB, &side, Span::NONE).unwrap();
    driver.work(side.handle(), a.ptr());
    drop(a);
    // The mock panics if pages that queued work uses are returned.
    let _b = alloc(&device, 700 * MIB);
    let stats = device.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 0));
    check(&device);
}

#[test]
fn a_peer_that_still_reads_keeps_pages_from_going_back() {
    let (_, device) = growing(GIB);
    let other = MockDriver::new(GIB);
    let peer = Device::new(DeviceId::Cuda(1), other.clone(), &AllocConf::default());
    let a = alloc(&device, 700 * MIB);
    a.used_on(peer.default_stream());
    other.work(0, a.ptr());
    drop(a);
    assert_eq!(device.stats().active_bytes.all().current, 700 * MIB);
    // Waiting for this device alone is not enough.
    device.synchronize().unwrap();
    assert!(!peer.default_stream().query().unwrap());
    let _b = alloc(&device, 600 * MIB);
    assert!(peer.default_stream().query().unwrap(), "the allocator has waited for the peer");
    assert_eq!(device.stats().num_alloc_retries, 0, "and has found the block");
    check(&device);
}

#[test]
fn pending_blocks_merge_with_neighbouring_pages() {
    let (driver, device) = growing(GIB);
    let side = device.stream(0).unwrap();
    let a = alloc(&device, 600 * MIB);
    let address = a.ptr();
    a.used_on(&side);
    driver.work(side.handle(), address);
    drop(a);
    // 600 MiB are pending at the end of the segment; a request of 800 needs 200 more there, and no release.
    let b = alloc(&device, 800 * MIB);
    assert_eq!((b.ptr(), reserved(&device)), (address, 800 * MIB));
    let stats = device.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_device_free, stats.num_sync_all_streams), (0, 0, 1));
    check(&device);
}

#[test]
fn a_failed_mapping_leaves_nothing_behind() {
    let (driver, device) = growing(100 * MIB);
    let _a = alloc(&device, 60 * MIB);
    let pieces = driver.mapped().len();
    assert!(device.alloc(64 * MIB, device.default_stream(), Span::NONE).is_err());
    assert_eq!((reserved(&device), driver.used(), driver.mapped().len()), (60 * MIB, 60 * MIB, pieces));
    let _b = alloc(&device, 40 * MIB);
    check(&device);
}

#[test]
fn pages_between_blocks_move_to_where_a_request_needs_them() {
    let (driver, device) = growing(4 * GIB);
    let mut blocks: Vec<Option<Block>> = (0..40).map(|_| Some(alloc(&device, 10 * MIB))).collect();
    let kept: Vec<_> = blocks.iter().skip(1).step_by(2).flatten().map(|b| b.ptr()).collect();
    for (i, block) in blocks.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
        driver.work(0, block.as_ref().map_or(0, |b| b.ptr()));
        assert!(i < 40 && block.take().is_some());
    }
    // 200 MiB lie unused in holes of 10 MiB; the mock panics if one is returned before its work is done.
    let _large = alloc(&device, 200 * MIB);
    assert_eq!((reserved(&device), driver.used()), (400 * MIB, 400 * MIB));
    assert!(kept.iter().all(|ptr| blocks.iter().flatten().any(|b| b.ptr() == *ptr)));
    check(&device);
    // Small amounts in holes stay in place, without a wait.
    let (driver, device) = growing(4 * GIB);
    let _whole = alloc(&device, 2000 * MIB);
    let hole = alloc(&device, 80 * MIB);
    let _end = alloc(&device, 2 * MIB);
    driver.work(0, hole.ptr());
    drop(hole);
    let _more = alloc(&device, 90 * MIB);
    assert!(!device.default_stream().query().unwrap());
    check(&device);
}

#[test]
fn limits_count_pages() {
    let (_, device) = growing(GIB);
    device.set_fraction(0.5).unwrap();
    let _a = alloc(&device, 500 * MIB);
    let error = device.alloc(30 * MIB, device.default_stream(), Span::NONE).unwrap_err();
    assert!(error.message().contains("Tried to allocate 30.00 MiB"), "{error}");
    let _b = alloc(&device, 12 * MIB);
    check(&device);
}

#[test]
fn private_pools_grow_apart_and_give_their_addresses_back() {
    let (driver, device) = growing(GIB);
    let _general = alloc(&device, 4 * MIB);
    let pool = MemoryPool::new(&device);
    let scope = pool.enter();
    drop(alloc(&device, 100 * MIB));
    drop(scope);
    assert_eq!((reserved(&device), pool.snapshot().len()), (104 * MIB, 1));
    device.empty_cache().unwrap();
    assert_eq!(reserved(&device), 104 * MIB);
    drop(pool);
    assert_eq!((reserved(&device), driver.segments()), (4 * MIB, 1));
    check(&device);
}

#[test]
fn growth_and_release_are_recorded() {
    let (_, device) = growing(GIB);
    device.record_history(10);
    drop(alloc(&device, 3 * MIB));
    device.empty_cache().unwrap();
    let steps: Vec<_> = device.memory().trace.iter().map(|e| (e.action.name(), e.size)).collect();
    let expected = [
        ("segment_map", 4 * MIB),
        ("alloc", 3 * MIB),
        ("free_requested", 3 * MIB),
        ("free_completed", 3 * MIB),
        ("segment_unmap", 4 * MIB),
    ];
    assert_eq!(steps, expected);
}
