//! Rows MEM and ALC of the conformance cases, over a driver without memory behind its addresses.

#![cfg(test)]

use crate::base::{ErrorKind, Place, Span};
use crate::device::{Block, Device};
use crate::driver::DeviceId;
use crate::driver::mock::MockDriver;
use crate::memory::alloc::{AllocConf, BlockState, Frame, SegmentInfo, Stats, snapshot_pickle};
use crate::stream::races::Checker;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A device with PyTorch's segments, unless the settings say otherwise.
fn device_with(total: u64, conf: &str) -> (Arc<MockDriver>, Arc<Device>) {
    let conf = &match conf.contains("expandable_segments") {
        true => conf.to_string(),
        false => format!("{conf},expandable_segments:false"),
    };
    let driver = MockDriver::new(total);
    let conf = AllocConf::parse(conf).unwrap();
    let device = Device::new(DeviceId::Cuda(0), driver.clone(), &conf);
    (driver, device)
}

fn device() -> (Arc<MockDriver>, Arc<Device>) {
    device_with(4 * GIB, "")
}

fn alloc(device: &Arc<Device>, bytes: u64) -> Block {
    device.alloc(bytes, device.default_stream(), Span::NONE).unwrap()
}

fn reserved(device: &Device) -> u64 {
    device.stats().reserved_bytes.all().current
}

/// Checks case MEM-03 and the bookkeeping invariants: blocks tile their segment, and free neighbours are
/// merged.
pub(super) fn check(device: &Device) {
    let (stats, segments) = (device.stats(), device.snapshot());
    for SegmentInfo { address, total_size, blocks, .. } in &segments {
        let mut at = *address;
        let mut was_free = false;
        for block in blocks {
            assert_eq!(block.address, at, "blocks tile their segment");
            assert!(block.size > 0 && block.size.is_multiple_of(512));
            let free = block.state == BlockState::Inactive;
            assert!(!(free && was_free), "free neighbours are merged");
            (at, was_free) = (at + block.size, free);
        }
        assert_eq!(at, address + total_size);
    }
    let now = Stats::of_segments(&segments);
    let pairs = now.pools().into_iter().zip(stats.pools());
    for ((name, recomputed), (_, counted)) in pairs {
        for pool in [super::Pool::Small, super::Pool::Large] {
            assert_eq!(recomputed.pool(pool).current, counted.pool(pool).current, "{name} {pool:?}");
        }
        assert_eq!(recomputed.all().current, counted.all().current, "{name}");
    }
}

#[test]
fn there_are_122_keys_and_none_is_negative() {
    let (_, device) = device();
    let entries = device.stats().entries();
    assert_eq!(entries.len(), 122);
    assert!(entries.iter().all(|(_, value)| *value >= 0));
    let has = |key: &str| entries.iter().any(|(k, _)| k == key);
    assert!(has("inactive_split_bytes.large_pool.freed") && has("oversize_segments.peak"));
}

#[test]
fn mem_02_active_bytes_and_peaks() {
    let (_, device) = device();
    let a = alloc(&device, 1024);
    assert_eq!(device.stats().active_bytes.all().current, 1024);
    assert_eq!(device.stats().active_bytes.all().freed, 0);
    drop(a);
    device.empty_cache().unwrap();
    let stats = device.stats();
    assert_eq!((stats.active_bytes.all().current, stats.active_bytes.all().freed), (0, 1024));
    device.reset_peak();
    let stats = device.stats();
    assert_eq!((stats.allocated_bytes.all().peak, stats.reserved_bytes.all().peak), (0, 0));
}

#[test]
fn mem_06_empty_cache_counts_a_sync() {
    let (_, device) = device();
    drop(alloc(&device, 5 * MIB));
    let before = device.stats();
    device.empty_cache().unwrap();
    let after = device.stats();
    assert_eq!(after.num_sync_all_streams, before.num_sync_all_streams + 1);
    assert_eq!((before.reserved_bytes.all().current, after.reserved_bytes.all().current), (20 * MIB, 0));
    assert_eq!(after.reserved_bytes.all().peak, 20 * MIB);
    assert_eq!((after.num_device_alloc, after.num_device_free), (1, 1));
}

#[test]
fn mem_09_one_byte() {
    let (_, device) = device();
    let _a = alloc(&device, 1);
    let stats = device.stats();
    assert_eq!(stats.allocated_bytes.all().current, 512);
    assert_eq!(stats.requested_bytes.all().current, 1);
    assert_eq!(stats.reserved_bytes.all().current, 2 * MIB);
    assert_eq!(stats.segment.pool(super::Pool::Small).current, 1);
    assert_eq!(stats.inactive_split.all().current, 1);
    assert_eq!(stats.inactive_split_bytes.all().current, 2 * MIB - 512);
    check(&device);
}

#[test]
fn mem_11_nothing_takes_nothing() {
    let (_, device) = device();
    let before = device.stats();
    let a = alloc(&device, 0);
    assert_eq!((a.ptr(), a.bytes()), (0, 0));
    assert_eq!(device.stats(), before);
    drop(a);
    assert_eq!(device.stats(), before);
}

#[test]
fn mem_12_three_tensors_of_a_mebibyte() {
    let (_, device) = device();
    let mut live = Vec::new();
    for expected in [(1, 2 * MIB), (1, 2 * MIB), (2, 4 * MIB)] {
        live.push(alloc(&device, MIB));
        let stats = device.stats();
        assert_eq!((stats.segment.all().current, stats.reserved_bytes.all().current), expected);
    }
}

#[test]
fn mem_16_peak_and_its_reset() {
    let (_, device) = device();
    drop(alloc(&device, 4 * MIB));
    assert_eq!(device.stats().allocated_bytes.all().peak, 4 * MIB);
    device.reset_peak();
    assert_eq!(device.stats().allocated_bytes.all().peak, 0);
}

#[test]
fn mem_17_reset_of_totals() {
    let (_, device) = device_with(GIB, "");
    let a = alloc(&device, GIB / 2);
    assert!(device.alloc(GIB, device.default_stream(), Span::NONE).is_err());
    let before = device.stats();
    assert_eq!((before.num_alloc_retries, before.num_ooms), (1, 1));
    device.reset_accumulated();
    let after = device.stats();
    assert_eq!((after.num_alloc_retries, after.num_ooms, after.num_sync_all_streams), (0, 0, 0));
    assert_eq!((after.num_device_alloc, after.num_device_free), (0, 0));
    let (was, is) = (before.allocated_bytes.all(), after.allocated_bytes.all());
    assert_eq!((is.current, is.peak, is.allocated, is.freed), (was.current, was.peak, 0, 0));
    drop(a);
}

#[test]
fn sizes_choose_their_segments() {
    // (request, reserved): the figures of PyTorch 2.11.
    let cases = [
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ];
    for (request, expected) in cases {
        let (_, device) = device();
        let a = alloc(&device, request);
        assert_eq!(reserved(&device), expected, "{request}");
        drop(a);
        check(&device);
    }
}

#[test]
fn the_plain_policy_does_not_join_segments() {
    // 8 x 16 MiB, freed, then 4 x 32 MiB. Source: PyTorch without expandable segments.
    let (_, device) = device();
    drop((0..8).map(|_| alloc(&device, 16 * MIB)).collect::<Vec<_>>());
    let _live: Vec<_> = (0..4).map(|_| alloc(&device, 32 * MIB)).collect();
    assert_eq!(reserved(&device), 256 * MIB);
}

#[test]
fn alc_01_02_03_reuse_split_and_merge() {
    let (_, device) = device();
    let first = alloc(&device, 2048).ptr();
    let (a, b) = (alloc(&device, 1024), alloc(&device, 1024));
    assert_eq!((a.ptr(), b.ptr()), (first, first + 1024));
    drop(b);
    drop(a);
    assert_eq!(alloc(&device, 2048).ptr(), first);
    let (a, b) = (alloc(&device, 1024), alloc(&device, 1024));
    drop(a);
    drop(b);
    assert_eq!(alloc(&device, 2048).ptr(), first);
    check(&device);
}

#[test]
fn large_remainders_up_to_a_mebibyte_are_not_split_off() {
    let (_, device) = device();
    drop(alloc(&device, 12 * MIB));
    let a = alloc(&device, 11 * MIB);
    assert_eq!(device.stats().allocated_bytes.all().current, 12 * MIB);
    drop(a);
    let _a = alloc(&device, 11 * MIB - 512);
    assert_eq!(device.stats().allocated_bytes.all().current, 11 * MIB - 512);
    check(&device);
}

#[test]
fn alc_06_a_block_that_is_too_small_is_not_used() {
    let (_, device) = device();
    let a = alloc(&device, 20 * MIB).ptr();
    assert_ne!(alloc(&device, 40 * MIB).ptr(), a);
}

#[test]
fn alc_07_streams_have_their_own_pools() {
    let (_, device) = device();
    let side = device.stream(0).unwrap();
    let a = alloc(&device, 4 * MIB).ptr();
    let b = device.alloc(4 * MIB, &side, Span::NONE).unwrap();
    assert_ne!(b.ptr(), a);
    assert_eq!(reserved(&device), 40 * MIB);
}

#[test]
fn alc_10_a_segment_in_part_use_stays() {
    let (_, device) = device();
    let (a, b) = (alloc(&device, 4 * MIB), alloc(&device, 4 * MIB));
    drop(a);
    device.empty_cache().unwrap();
    assert_eq!(reserved(&device), 20 * MIB);
    drop(b);
    device.empty_cache().unwrap();
    assert_eq!(reserved(&device), 0);
}

#[test]
fn alc_11_a_block_used_by_another_stream_is_reused_after_its_last_use() {
    let (driver, device) = device();
    let side = device.stream(0).unwrap();
    let a = device.alloc(64, &side, Span::NONE).unwrap();
    let address = a.ptr();
    driver.work(0, address);
    a.used_on(device.default_stream());
    drop(a);
    assert_eq!(device.stats().active_bytes.all().current, 512);
    assert_eq!(device.stats().allocated_bytes.all().current, 0);
    assert_eq!(device.snapshot()[0].blocks[0].state, BlockState::PendingFree);
    let b = device.alloc(64, &side, Span::NONE).unwrap();
    assert_ne!(b.ptr(), address);
    check(&device);
    device.synchronize().unwrap();
    assert_eq!(device.alloc(64, &side, Span::NONE).unwrap().ptr(), address);
    check(&device);
}

#[test]
fn a_block_is_free_for_a_stream_that_waits_for_its_last_use() {
    let (driver, device) = device();
    let (own, side) = (device.default_stream().clone(), device.stream(0).unwrap());
    let mut checker = Checker::new();
    let mut wait = || {
        own.wait_stream(&side).unwrap();
        checker.wait_stream(&own, &side);
        checker.publish(&own);
    };
    let first = alloc(&device, 64);
    let address = first.ptr();
    driver.work(side.handle(), address);
    first.used_on(&side);
    wait();
    drop(first);
    let second = alloc(&device, 64);
    assert_eq!(second.ptr(), address, "the wait came before the block was freed");
    second.used_on(&side);
    drop(second);
    assert_ne!(alloc(&device, 64).ptr(), address);
    wait();
    let third = alloc(&device, 64);
    assert_eq!(third.ptr(), address, "the wait came after the block was freed");
    third.used_on(&side);
    wait();
    third.used_on(&side);
    drop(third);
    assert_ne!(alloc(&device, 64).ptr(), address, "it was used again after the wait");
    device.synchronize().unwrap();
    let lent = alloc(&device, 64);
    assert_eq!(lent.ptr(), address);
    driver.work(side.handle(), address);
    lent.lent_to(&side);
    wait();
    drop(lent);
    assert_ne!(alloc(&device, 64).ptr(), address, "others may use it after the wait");
    check(&device);
}

#[test]
fn a_block_used_by_a_peer_waits_for_the_peer() {
    let (_, device) = device();
    let other = MockDriver::new(GIB);
    let peer = Device::new(DeviceId::Cuda(1), other.clone(), &AllocConf::default());
    let a = alloc(&device, 64);
    let address = a.ptr();
    a.used_on(peer.default_stream());
    other.work(0, address);
    drop(a);
    assert_ne!(alloc(&device, 64).ptr(), address);
    other.finish(0);
    assert_eq!(alloc(&device, 64).ptr(), address);
}

#[test]
fn alc_13_recording_the_own_stream_changes_nothing() {
    let (driver, device) = device();
    let a = alloc(&device, 64);
    let address = a.ptr();
    driver.work(0, address);
    a.used_on(device.default_stream());
    drop(a);
    assert_eq!(alloc(&device, 64).ptr(), address);
}

#[test]
fn alc_16_17_out_of_memory_has_the_facts() {
    let (_, device) = device();
    let a = device.alloc(GIB, device.default_stream(), Span::new(5, 9)).unwrap();
    let b = device.alloc(GIB / 2, device.default_stream(), Span::new(20, 30)).unwrap();
    let c = device.alloc(GIB / 2, device.default_stream(), Span::new(5, 9)).unwrap();
    let error = device.alloc(800_000_000 * GIB, device.default_stream(), Span::NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let start = "CUDA out of memory. Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of \
                 4.00 GiB of which 2.00 GiB is free.";
    assert!(error.message().starts_with(start), "{error}");
    let labels: Vec<_> = error.labels().iter().map(|l| (l.place, l.text())).collect();
    assert_eq!(labels[0].0, Place::Here);
    assert_eq!(labels[1], (Place::Span(Span::new(5, 9)), "2 blocks from here hold 1.50 GiB".into()));
    assert_eq!(labels[2], (Place::Span(Span::new(20, 30)), "1 block from here holds 512.00 MiB".into()));
    let error = device.alloc(8_000_000_000 * GIB, device.default_stream(), Span::NONE).unwrap_err();
    assert_eq!(error.message(), "CUDA out of memory. Tried to allocate more than 1EB memory");
    drop((a, b, c));
    check(&device);
}

#[test]
fn alc_18_room_that_was_freed_is_found() {
    let (_, device) = device_with(GIB, "");
    let a = alloc(&device, GIB / 2);
    let _b = alloc(&device, GIB / 4);
    assert!(device.alloc(GIB / 2, device.default_stream(), Span::NONE).is_err());
    drop(a);
    alloc(&device, GIB / 2);
}

#[test]
fn alc_19_20_the_cache_is_given_up_before_failing() {
    let (driver, device) = device_with(GIB, "");
    driver.work(0, alloc(&device, GIB / 2).ptr());
    let a = alloc(&device, GIB / 10 * 6);
    let stats = device.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams), (1, 0, 1));
    assert!(device.alloc(GIB / 2, device.default_stream(), Span::NONE).is_err());
    assert_eq!(device.stats().num_ooms, 1);
    drop(a);
    check(&device);
}

#[test]
fn pending_blocks_are_waited_for_and_the_pool_is_searched_again() {
    let (driver, device) = device_with(GIB, "");
    let side = device.stream(0).unwrap();
    let a = alloc(&device, GIB / 2);
    let address = a.ptr();
    a.used_on(&side);
    driver.work(side.handle(), address);
    let _rest = alloc(&device, GIB / 2);
    drop(a);
    assert_eq!(alloc(&device, GIB / 2).ptr(), address);
    let stats = device.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams), (0, 0, 1));
}

#[test]
fn alc_21_22_fractions() {
    let (_, device) = device_with(GIB, "");
    for fraction in [-0.1, 2.0, f64::NAN] {
        let error = device.set_fraction(fraction).unwrap_err();
        assert!(error.message().starts_with("invalid fraction value: "), "{error}");
        assert!(error.message().ends_with("Allowed range: 0~1"));
    }
    assert_eq!(device.fraction(), 1.0);
    device.set_fraction(0.5).unwrap();
    assert_eq!(device.fraction(), 0.5);
    drop(alloc(&device, (0.499 * GIB as f64) as u64));
    device.empty_cache().unwrap();
    let _small = alloc(&device, 1);
    let error = device.alloc(GIB / 2, device.default_stream(), Span::NONE).unwrap_err();
    assert!(error.message().contains("512.00 MiB allowed;"), "{error}");
    alloc(&device, MIB);
}

#[test]
fn oversize_blocks_are_neither_split_nor_given_to_small_requests() {
    let (_, device) = device_with(GIB, "max_split_size_mb:64");
    let big = alloc(&device, 100 * MIB).ptr();
    assert_eq!(device.stats().oversize_allocations.allocated, 1);
    let small = alloc(&device, 30 * MIB);
    assert_ne!(small.ptr(), big);
    // 90 MiB leaves 10 MiB unused, which is allowed; 70 MiB would leave 30.
    let near = alloc(&device, 90 * MIB);
    assert_eq!(near.ptr(), big);
    assert_eq!(device.stats().allocated_bytes.all().current, 130 * MIB);
    drop(near);
    let far = alloc(&device, 70 * MIB);
    assert_ne!(far.ptr(), big);
    assert_eq!(device.stats().oversize_segments.current, 2);
    drop(far);
    drop(small);
    // 950 MiB do not fit beside the cache. Returning both oversize segments makes enough room.
    let stats = device.stats();
    let huge = alloc(&device, 900 * MIB);
    assert_eq!(device.stats().num_alloc_retries, stats.num_alloc_retries + 1);
    drop(huge);
    check(&device);
}

#[test]
fn garbage_is_collected_above_the_threshold() {
    let (_, device) = device_with(GIB, "garbage_collection_threshold:0.5");
    device.set_fraction(1.0).unwrap();
    drop(alloc(&device, 300 * MIB));
    drop(alloc(&device, 400 * MIB));
    assert_eq!(reserved(&device), 700 * MIB);
    // Above 512 MiB: the 300 MiB segment is older than average.
    drop(alloc(&device, 450 * MIB));
    assert_eq!(device.stats().num_alloc_retries, 0);
    assert!(reserved(&device) <= 900 * MIB, "{}", reserved(&device));
    assert!(device.stats().num_device_free >= 1);
    check(&device);
}

#[test]
fn an_event_that_cannot_be_recorded_loses_nothing() {
    let (driver, device) = device();
    let side = device.stream(0).unwrap();
    let a = alloc(&device, 64);
    let address = a.ptr();
    a.used_on(&side);
    driver.work(side.handle(), address);
    driver.fail_call(Some(0));
    drop(a);
    driver.fail_call(None);
    assert_ne!(alloc(&device, 64).ptr(), address);
    driver.finish(side.handle());
    assert_eq!(alloc(&device, 64).ptr(), address);
}

#[test]
fn figures_survive_every_single_failing_call() {
    for conf in ["expandable_segments:false", "expandable_segments:true"] {
        let mut n = 0;
        while survives_failing_call(n, conf) {
            n += 1;
        }
        assert!(n > 30, "{conf}: only {n} calls");
    }
}

/// Runs a program whose n-th driver call fails; false when it makes fewer calls.
fn survives_failing_call(n: u64, conf: &str) -> bool {
    let (driver, device) = device_with(256 * MIB, conf);
    driver.fail_call(Some(n));
    let mut live = Vec::new();
    for step in 0..12_u64 {
        let Ok(stream) = device.stream(0) else { continue };
        let bytes = (step * 7 + 1) * MIB;
        if let Ok(block) = device.alloc(bytes, device.default_stream(), Span::NONE) {
            block.used_on(&stream);
            driver.work(stream.handle(), block.ptr());
            live.push(block);
        }
        if step % 3 == 2 && !live.is_empty() {
            live.swap_remove(0);
            let _ = device.empty_cache();
        }
        check(&device);
    }
    let reached = driver.calls() > n;
    driver.fail_call(None);
    live.clear();
    device.empty_cache().unwrap();
    assert_eq!((reserved(&device), driver.used(), driver.segments()), (0, 0, 0), "{conf}: call {n}");
    reached
}

#[test]
fn steps_are_recorded_and_the_viewers_file_holds_them() {
    let (_, device) = device();
    alloc(&device, 100);
    assert!(device.memory().trace.is_empty());
    device.record_history(4);
    let side = device.stream(0).unwrap();
    let a = device.alloc(3 * MIB, &side, Span::new(7, 9)).unwrap();
    drop(a);
    let steps = |device: &Device| device.memory().trace.iter().map(|e| e.action.name()).collect::<Vec<_>>();
    assert_eq!(steps(&device), ["segment_alloc", "alloc", "free_requested", "free_completed"]);
    assert!(device.alloc(8 * GIB, &side, Span::NONE).is_err());
    assert_eq!(steps(&device), ["free_completed", "segment_free", "segment_free", "oom"]);
    let _b = device.alloc(3 * MIB, &side, Span::new(7, 9)).unwrap();
    let frame = |_| Some(Frame { file: "a.rnl".to_string(), line: 3, name: "zeros".to_string() });
    let file = snapshot_pickle(&[device.memory()], frame);
    assert_eq!((file[0], file[1], *file.last().unwrap()), (0x80, 2, b'.'));
    let holds = |text: &str| file.windows(text.len()).filter(|w| *w == text.as_bytes()).count();
    // Each string is written once.
    assert_eq!((holds("a.rnl"), holds("active_allocated"), holds("blocks")), (1, 1, 1));
    device.record_history(0);
    assert!(device.memory().trace.is_empty());
}

mod extents;
mod pools;
mod programs;
