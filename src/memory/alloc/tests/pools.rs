//! Private pools.

#![cfg(test)]

use super::{GIB, MIB, alloc, check, device, device_with, reserved};
use crate::base::Span;
use crate::device::MemoryPool;
use crate::memory::PoolId;

#[test]
fn requests_inside_a_scope_use_the_pool_only() {
    let (_, device) = device();
    let general = alloc(&device, 4 * MIB);
    let pool = MemoryPool::new(&device);
    let scope = pool.enter();
    let a = alloc(&device, 4 * MIB);
    assert_ne!(a.ptr(), general.ptr() + 4 * MIB);
    drop(scope);
    assert_eq!(pool.snapshot().len(), 1);
    assert_eq!(device.snapshot().iter().filter(|s| s.owner == PoolId::GENERAL).count(), 1);
    let address = a.ptr();
    drop(a);
    assert_ne!(alloc(&device, 4 * MIB).ptr(), address, "the general pool does not take the pool's memory");
    device.empty_cache().unwrap();
    assert_eq!(pool.snapshot().len(), 1, "a pool that is held keeps its memory");
    let _scope = pool.enter();
    assert_eq!(alloc(&device, 4 * MIB).ptr(), address);
    check(&device);
}

#[test]
fn the_last_holder_gives_the_memory_back() {
    let (driver, device) = device();
    let pool = MemoryPool::new(&device);
    let scope = pool.enter();
    let a = alloc(&device, 4 * MIB);
    drop(alloc(&device, 100 * MIB));
    drop(scope);
    let clone = pool.clone();
    drop(pool);
    let before = driver.used();
    assert!(before >= 104 * MIB);
    drop(clone);
    assert!(driver.used() <= before - 80 * MIB, "what is unused goes back at once");
    assert!(reserved(&device) > 0, "blocks in use live on");
    drop(a);
    device.empty_cache().unwrap();
    assert_eq!((reserved(&device), driver.used()), (0, 0));
    check(&device);
}

#[test]
fn the_innermost_scope_serves() {
    let (_, device) = device();
    let (outer, inner) = (MemoryPool::new(&device), MemoryPool::new(&device));
    let outside = outer.enter();
    let _a = alloc(&device, 4 * MIB);
    let inside = inner.enter();
    let _b = alloc(&device, 4 * MIB);
    // Scopes may end in any order.
    drop(outside);
    let _c = alloc(&device, 4 * MIB);
    drop(inside);
    let _d = alloc(&device, 4 * MIB);
    let blocks = |segments: Vec<crate::memory::SegmentInfo>| -> u64 {
        segments.iter().map(|s| s.allocated_size).sum()
    };
    assert_eq!((blocks(outer.snapshot()), blocks(inner.snapshot())), (4 * MIB, 8 * MIB));
    assert_eq!(blocks(device.snapshot()), 16 * MIB);
    check(&device);
}

#[test]
fn a_capture_takes_some_streams_and_records_no_event() {
    let (driver, device) = device();
    let (side, other) = (device.stream(0).unwrap(), device.stream(0).unwrap());
    let pool = MemoryPool::new(&device);
    let captured = side.id();
    let scope = pool.capture(move |stream| stream.id() == captured);
    let a = device.alloc(4 * MIB, &side, Span::NONE).unwrap();
    let _b = device.alloc(4 * MIB, &other, Span::NONE).unwrap();
    assert_eq!(pool.snapshot().len(), 1);
    let address = a.ptr();
    a.used_on(&other);
    driver.work(other.handle(), address);
    let calls = driver.calls();
    drop(a);
    device.alloc(4 * MIB, &other, Span::NONE).unwrap();
    assert_eq!(driver.calls(), calls, "neither the free nor the next request asks for an event");
    drop(scope);
    let again = || {
        let _scope = pool.enter();
        device.alloc(4 * MIB, &side, Span::NONE).unwrap().ptr()
    };
    assert_ne!(again(), address, "the other stream has not passed");
    driver.finish(other.handle());
    assert_eq!(again(), address);
    check(&device);
}

#[test]
fn a_capture_that_needs_room_gets_that_of_other_pools_and_keeps_its_own() {
    let (driver, device) = device_with(GIB, "");
    drop(alloc(&device, 600 * MIB));
    let pool = MemoryPool::new(&device);
    let scope = pool.capture(|_| true);
    let stream = device.default_stream();
    device.empty_cache().unwrap();
    assert_eq!(driver.used(), 600 * MIB, "nobody is in need");
    drop(device.alloc(640 * MIB, stream, Span::NONE).unwrap());
    assert_eq!(driver.used(), 640 * MIB, "what was cached outside of the capture has gone back");
    assert!(
        device.alloc(700 * MIB, stream, Span::NONE).is_err(),
        "a graph writes to what is free in its pool"
    );
    assert_eq!(driver.used(), 640 * MIB);
    drop(scope);
    let _scope = pool.enter();
    device.alloc(600 * MIB, stream, Span::NONE).unwrap();
    check(&device);
}
