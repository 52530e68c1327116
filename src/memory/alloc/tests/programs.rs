//! Random programs against a list of live blocks.

#![cfg(test)]

use super::{MIB, check, device_with};
use crate::base::{ErrorKind, Span};
use crate::device::{Block, Device, MemoryPool, PoolScope};
use crate::driver::mock::MockDriver;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        bytes: u64,
        stream: usize,
    },
    /// Frees the n-th live block, modulo the number of blocks.
    Free(usize),
    /// Uses the block on another stream, which then lags behind.
    Use {
        block: usize,
        stream: usize,
    },
    Finish(usize),
    EmptyCache,
    ResetPeak,
    AllocsFail(bool),
    /// Routes later requests to the n-th private pool, or back to the general one.
    Route(Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 0..4096_u64, 3 => 1..3 * MIB, 2 => 1..40 * MIB, 1 => 1..400 * MIB];
    prop_oneof![
        8 => (bytes, 0..3_usize).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream }),
        6 => any::<usize>().prop_map(Step::Free),
        3 => (any::<usize>(), 0..3_usize).prop_map(|(block, stream)| Step::Use { block, stream }),
        2 => (0..3_usize).prop_map(Step::Finish),
        1 => Just(Step::EmptyCache),
        1 => Just(Step::ResetPeak),
        1 => any::<bool>().prop_map(Step::AllocsFail),
        1 => prop::option::of(0..2_usize).prop_map(Step::Route),
    ]
}

fn conf() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("expandable_segments:true"),
        1 => Just("expandable_segments:true,roundup_power2_divisions:8"),
        1 => Just("expandable_segments:true,garbage_collection_threshold:0.3"),
        3 => Just(""),
        1 => Just("max_split_size_mb:32"),
        1 => Just("roundup_power2_divisions:4"),
        1 => Just("garbage_collection_threshold:0.3"),
    ]
}

/// The driver's mappings equal the snapshot, and every live block is mapped.
fn check_mapped(driver: &MockDriver, device: &Device, live: &[Block]) {
    let segments = device.snapshot();
    let mut mapped = driver.mapped().into_iter().peekable();
    for segment in segments.iter().filter(|s| s.is_expandable) {
        let mut at = segment.address;
        while at < segment.address + segment.total_size {
            let (ptr, bytes) = mapped.next().expect("a mapped piece");
            assert_eq!(ptr, at, "pieces tile the runs of mapped blocks");
            at += bytes;
        }
        assert_eq!(at, segment.address + segment.total_size);
    }
    assert_eq!(mapped.next(), None, "nothing is mapped that no block describes");
    for block in live.iter().filter(|b| b.bytes() > 0) {
        let inside = segments
            .iter()
            .any(|s| s.address <= block.ptr() && block.ptr() + block.bytes() <= s.address + s.total_size);
        assert!(inside, "a live block lies in no segment");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_allocator_never_lies(steps in prop::collection::vec(step(), 1..120), conf in conf()) {
        let (driver, device) = device_with(512 * MIB, conf);
        device.set_fraction(0.9).unwrap();
        let streams =
            [device.default_stream().clone(), device.stream(0).unwrap(), device.stream(-1).unwrap()];
        let mut pools = vec![MemoryPool::new(&device), MemoryPool::new(&device)];
        let mut scope: Option<PoolScope> = None;
        let mut live: Vec<Block> = Vec::new();
        let (mut failing, mut requested, mut peaks) = (false, 0, [0; 4]);
        for step in steps {
            match step {
                Step::Alloc { bytes, stream } => {
                    match device.alloc(bytes, &streams[stream], Span::new(1, 2)) {
                        Ok(block) => {
                            prop_assert_eq!(block.ptr() == 0, bytes == 0);
                            let range = |b: &Block| b.ptr()..b.ptr() + b.bytes();
                            let apart = live.iter().all(|b| {
                                range(b).end <= range(&block).start || range(&block).end <= range(b).start
                            });
                            prop_assert!(bytes == 0 || apart, "live blocks overlap");
                            let used = driver.is_used_elsewhere(range(&block), streams[stream].handle());
                            prop_assert!(!used, "memory comes back while another stream works on it");
                            driver.work(streams[stream].handle(), block.ptr());
                            requested += bytes;
                            live.push(block);
                        }
                        Err(e) => {
                            prop_assert_eq!(e.kind(), ErrorKind::OutOfMemory);
                            // The rest is in use, and the segment does not fit beside it.
                            let reserved = device.stats().reserved_bytes.all().current;
                            let segment = bytes.next_power_of_two().max(20 * MIB);
                            let fits = reserved + segment <= 512 * MIB / 10 * 9;
                            prop_assert!(failing || !fits, "{bytes} bytes did not fit beside {reserved}");
                        }
                    }
                }
                Step::Free(n) if !live.is_empty() => {
                    let index = n % live.len();
                    let block = live.swap_remove(index);
                    requested -= block.bytes();
                }
                Step::Use { block, stream } if !live.is_empty() => {
                    let block = &live[block % live.len()];
                    block.used_on(&streams[stream]);
                    driver.work(streams[stream].handle(), block.ptr());
                }
                Step::Finish(stream) => driver.finish(streams[stream].handle()),
                Step::EmptyCache => device.empty_cache().unwrap(),
                Step::ResetPeak => {
                    device.reset_peak();
                    peaks = [0; 4];
                }
                Step::AllocsFail(fail) => {
                    failing = fail;
                    driver.fail_allocs(fail);
                }
                Step::Route(pool) => {
                    drop(scope.take());
                    scope = pool.map(|n| pools[n].enter());
                }
                Step::Free(_) | Step::Use { .. } => {}
            }
            check(&device);
            check_mapped(&driver, &device, &live);
            let stats = device.stats();
            prop_assert_eq!(stats.reserved_bytes.all().current, driver.used());
            prop_assert!(stats.reserved_bytes.all().peak >= stats.reserved_bytes.all().current);
            prop_assert!(stats.requested_bytes.all().current >= requested);
            prop_assert!(stats.reserved_bytes.all().current <= 512 * MIB / 10 * 9, "more than the fraction");
            let figures =
                [stats.reserved_bytes, stats.allocated_bytes, stats.active_bytes, stats.requested_bytes];
            let now = figures.map(|figure| *figure.all());
            for (before, now) in peaks.iter_mut().zip(&now) {
                prop_assert!(*before <= now.peak && now.current <= now.peak, "a peak fell");
                *before = now.peak;
            }
            let in_use = live.iter().filter(|b| b.bytes() > 0).count() as u64;
            prop_assert_eq!(stats.allocation.all().current, in_use);
        }
        drop(scope);
        // Blocks outlive their pool.
        pools.clear();
        check(&device);
        drop(live);
        driver.fail_allocs(false);
        device.empty_cache().unwrap();
        prop_assert_eq!((device.snapshot().len(), driver.used(), driver.segments()), (0, 0, 0));
    }
}
