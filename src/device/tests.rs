//! Rows DEV, STR, EVT, PIN and XDV of the conformance cases, as far as they concern devices only.

use crate::base::{ErrorKind, Span};
use crate::device::*;
use crate::driver::backend::Found;
use crate::driver::mock::MockDriver;
use crate::driver::*;
use crate::kernel::Fault;
use crate::stream::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod orders;
mod schedules;

const MIB: u64 = 1 << 20;

/// A machine of mock devices, and the number of devices opened.
fn machine(count: usize) -> (Arc<Machine>, Vec<Arc<MockDriver>>, Arc<AtomicU64>) {
    let drivers: Vec<_> = (0..count).map(|_| MockDriver::new(256 * MIB)).collect();
    let opened = Arc::new(AtomicU64::new(0));
    let (mine, counter) = (drivers.clone(), opened.clone());
    let open = Box::new(move |index: usize| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(mine[index].clone() as Arc<dyn Driver>)
    });
    let found = Found { name: "mock", count, open };
    (Machine::of(found, MockDriver::new(MIB)), drivers, opened)
}

fn cuda(machine: &Machine, index: u32) -> Arc<Device> {
    machine.device(DeviceId::Cuda(index)).unwrap().clone()
}

#[test]
fn dev_22_only_the_device_that_is_used_opens() {
    let (machine, _, opened) = machine(2);
    let one = cuda(&machine, 1);
    let _block = one.alloc(64, one.default_stream(), Span::NONE).unwrap();
    let _pinned = machine.pinned(64, DeviceId::Cuda(0)).unwrap();
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    assert_eq!(machine.opened().map(|d| d.id()).collect::<Vec<_>>(), [DeviceId::Cuda(1)]);
    assert!(Arc::ptr_eq(&one, machine.device(DeviceId::Cuda(1)).unwrap()));
}

#[test]
fn str_24_bad_indices_name_the_count() {
    let (machine, ..) = machine(2);
    for index in [2, -1, i64::MAX] {
        let error = machine.cuda(index).unwrap_err();
        assert_eq!(error.code().id, "E0501");
        assert!(error.message().contains(&index.to_string()), "{error}");
        assert!(error.message().ends_with("the number of visible devices is 2"), "{error}");
    }
    assert_eq!(machine.device(DeviceId::Cpu).unwrap().id(), DeviceId::Cpu);
}

#[test]
fn xdv_06_peers() {
    let (machine, ..) = machine(2);
    assert!(machine.can_access_peer(0, 1).unwrap());
    assert!(!machine.can_access_peer(1, 1).unwrap());
    assert!(machine.can_access_peer(2, 0).unwrap_err().message().starts_with("invalid device id"));
    assert!(machine.can_access_peer(0, -1).unwrap_err().message().starts_with("invalid peer device id"));
}

#[test]
fn str_01_09_streams_compare_by_device_and_handle() {
    let (machine, drivers, _) = machine(2);
    let (a, b) = (cuda(&machine, 0), cuda(&machine, 1));
    let (default, side) = (a.default_stream(), a.stream(0).unwrap());
    assert_ne!(**default, *side);
    assert_eq!(default.handle(), 0);
    assert_ne!(side.handle(), 0);
    assert_eq!(b.default_stream().handle(), 0);
    assert_ne!(default, b.default_stream());
    assert!(side.query().unwrap());
    drivers[0].work(side.handle(), 0);
    assert!(!side.query().unwrap());
    assert!(default.query().unwrap());
    side.synchronize().unwrap();
    assert!(side.query().unwrap());
}

#[test]
fn streams_come_from_a_pool_per_priority() {
    let (machine, ..) = machine(1);
    let device = cuda(&machine, 0);
    let low: Vec<_> = (0..STREAMS_PER_PRIORITY).map(|_| device.stream(0).unwrap()).collect();
    let mut handles: Vec<_> = low.iter().map(|s| s.handle()).collect();
    handles.dedup();
    assert_eq!(handles.len(), STREAMS_PER_PRIORITY);
    assert_eq!(device.stream(0).unwrap(), low[0]);
    assert_eq!(device.stream(0).unwrap(), low[1]);
    // Lower than the driver's range means its highest priority.
    let high = device.stream(-100).unwrap();
    assert_eq!(high.priority(), -3);
    assert!(low.iter().all(|s| *s != high && s.priority() == 0));
    assert_eq!(device.stream(1).unwrap_err().code().id, "E0504");
    assert_eq!(device.stream_by_id(high.id()).unwrap(), high);
    let external = device.external_stream(4711);
    assert_eq!(device.external_stream(4711), external);
    assert_eq!(device.streams().len(), 1 + STREAMS_PER_PRIORITY + 2);
}

fn timed() -> Event {
    Event::new(EventFlags { enable_timing: true, ..EventFlags::default() })
}

#[test]
fn evt_01_02_06_events_are_made_at_the_first_record() {
    let (machine, drivers, _) = machine(2);
    let device = cuda(&machine, 0);
    let stream = device.default_stream();
    let (a, b) = (timed(), timed());
    assert!(b.query().unwrap());
    assert_eq!((a.handle(), a.device()), (0, None));
    a.synchronize().unwrap();
    a.wait(stream).unwrap();
    a.record(stream).unwrap();
    let handle = a.handle();
    assert_ne!(handle, 0);
    assert_eq!(a.device(), Some(DeviceId::Cuda(0)));
    drivers[0].work(0, 0);
    b.record(stream).unwrap();
    assert!(!b.query().unwrap());
    assert_eq!(a.elapsed_time(&b).unwrap_err().code().id, "E0507");
    b.synchronize().unwrap();
    assert!(b.query().unwrap());
    assert!(a.elapsed_time(&b).unwrap() > 0.0);
    a.record(stream).unwrap();
    assert_eq!(a.handle(), handle);
}

#[test]
fn evt_03_04_timing_needs_timing_and_records() {
    let (machine, ..) = machine(2);
    let device = cuda(&machine, 0);
    let (plain, a, b) = (Event::new(EventFlags::default()), timed(), timed());
    let error = a.elapsed_time(&plain).unwrap_err();
    assert_eq!(error.message(), "both events must be created with `enable_timing=true`");
    let error = a.elapsed_time(&b).unwrap_err();
    assert_eq!(error.message(), "both events must be recorded before calculating elapsed time");
    a.record(device.default_stream()).unwrap();
    let other = cuda(&machine, 1);
    assert_eq!(a.record(other.default_stream()).unwrap_err().code().id, "E0508");
    b.record(other.default_stream()).unwrap();
    assert_eq!(a.elapsed_time(&b).unwrap_err().code().id, "E0508");
    // A stream of any device may wait.
    a.wait(other.default_stream()).unwrap();
    other.default_stream().wait_stream(device.default_stream()).unwrap();
}

#[test]
fn pin_06_a_block_in_use_by_a_copy_is_not_handed_out() {
    let (machine, drivers, _) = machine(1);
    let device = cuda(&machine, 0);
    let stream = device.default_stream();
    let address = machine.pinned(4, DeviceId::Cuda(0)).unwrap().ptr();
    let block = machine.pinned(4, DeviceId::Cuda(0)).unwrap();
    assert_eq!(block.ptr(), address);
    drivers[0].work(0, address);
    block.used_on(stream);
    drop(block);
    let other = machine.pinned(4, DeviceId::Cuda(0)).unwrap();
    assert_ne!(other.ptr(), address);
    machine.empty_pinned_cache().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(machine.pinned(4, DeviceId::Cuda(0)).unwrap().ptr(), address);
}

#[test]
fn pin_09_figures_of_pinned_memory() {
    let (machine, ..) = machine(1);
    let near = DeviceId::Cuda(0);
    let figures = || {
        let s = machine.pinned_stats();
        (s.active_requests.current, s.allocations.current, s.alloc_time.count, s.allocated_bytes.current)
    };
    assert_eq!(figures(), (0, 0, 0, 0));
    let a = machine.pinned(10 * 1024 * 4, near).unwrap();
    assert_eq!(figures(), (1, 1, 1, 64 << 10));
    let b = machine.pinned(20 * 1024 * 4, near).unwrap();
    assert_eq!(figures(), (2, 2, 2, 192 << 10));
    machine.empty_pinned_cache().unwrap();
    assert_eq!(figures(), (2, 2, 2, 192 << 10));
    drop((a, b));
    assert_eq!(figures(), (0, 2, 2, 192 << 10));
    machine.empty_pinned_cache().unwrap();
    assert_eq!(figures(), (0, 0, 2, 0));
    assert_eq!(machine.pinned(0, near).unwrap().ptr(), 0);
    assert_eq!(figures().0, 0);
    let error = machine.pinned(u64::MAX, near).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(machine.pinned(1 << 40, near).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(machine.pinned_stats().entries().len(), 28);
}

#[test]
fn the_host_has_plain_memory() {
    let (machine, ..) = machine(0);
    let host = machine.host();
    let block = host.alloc(100, host.default_stream(), Span::NONE).unwrap();
    assert_eq!(host.memory_allocated(), 100);
    drop(block);
    assert_eq!(host.memory_allocated(), 0);
    let error = host.alloc(2 * MIB, host.default_stream(), Span::NONE).unwrap_err();
    assert_eq!(error.message(), "out of host memory. Tried to allocate 2.00 MiB");
}

#[test]
fn faults_are_raised_once_and_the_device_lives_on() {
    let (machine, drivers, _) = machine(1);
    let device = cuda(&machine, 0);
    let tag = device.tag_for(Suspect {
        name: "index_select",
        span: Span::new(3, 8),
        extent: 4,
        ..Suspect::default()
    });
    drivers[0].set_fault(Fault { tag, position: 0, value: 9 });
    let error = device.check_faults().unwrap_err();
    assert_eq!((error.kind(), error.span()), (ErrorKind::Index, Span::new(3, 8)));
    assert_eq!(error.help_text(), Some("valid indices go from 0 to 3"));
    device.check_faults().unwrap();
}

#[test]
fn opening_from_many_threads_opens_once() {
    let (machine, _, opened) = machine(2);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| cuda(&machine, 0).stream(0).unwrap());
        }
    });
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    assert_eq!(cuda(&machine, 0).streams().len(), 9);
}

#[test]
fn emulated_devices_run_under_the_same_policy() {
    let config = Config {
        backend: Backend::Emu,
        devices: Some(2),
        device_memory: Some(64 * MIB),
        ..Config::default()
    };
    let machine = Machine::open(&config).unwrap();
    assert_eq!((machine.backend(), machine.device_count(), machine.notice()), ("emu", 2, None));
    let (a, b) = (cuda(&machine, 0), cuda(&machine, 1));
    let side = a.stream(-1).unwrap();
    let block = a.alloc(4096, &side, Span::NONE).unwrap();
    let pinned = machine.pinned(4096, DeviceId::Cuda(0)).unwrap();
    // A fill on the side stream, then a copy to the peer, then a copy to the host.
    a.driver().fill(block.ptr(), 7, 4, 1024, side.handle()).unwrap();
    let there = b.alloc(4096, b.default_stream(), Span::NONE).unwrap();
    b.default_stream().wait_stream(&side).unwrap();
    let to = b.default_stream().handle();
    b.driver().copy(there.ptr(), block.ptr(), 4096, CopyKind::FromPeer(0), to).unwrap();
    block.used_on(b.default_stream());
    drop(block);
    b.driver().copy(pinned.ptr(), there.ptr(), 4096, CopyKind::DeviceToHost, to).unwrap();
    pinned.used_on(b.default_stream());
    let event = Event::new(EventFlags::default());
    event.record(b.default_stream()).unwrap();
    event.synchronize().unwrap();
    // SAFETY: the block has that many bytes, and the copy into it has ended.
    let values = unsafe { std::slice::from_raw_parts(pinned.ptr() as *const u32, 1024) };
    assert!(values.iter().all(|v| *v == 7));
    let error = a.alloc(65 * MIB, a.default_stream(), Span::NONE).unwrap_err();
    assert!(error.message().contains("GPU 0 has a total capacity of 64.00 MiB"), "{error}");
    drop((there, pinned));
    assert_eq!((a.memory_allocated(), b.memory_allocated()), (0, 0));
}

#[test]
fn auto_always_finds_devices_and_says_when_they_are_emulated() {
    let machine = Machine::open(&Config::default()).unwrap();
    // Detection does not run before the first use.
    assert_eq!((machine.notice(), machine.opened().count()), (None, 0));
    assert!(machine.device_count() == 4 || machine.backend() == "cuda");
    let hint = machine
        .notice()
        .is_some_and(|n| n.starts_with("no CUDA device found: ") && n.ends_with("emulated devices"));
    assert_eq!(hint, machine.backend() == "emu");
}

#[test]
fn external_limits_have_their_own_error() {
    let (machine, ..) = machine(1);
    let (device, host) = (cuda(&machine, 0), machine.host());
    device.set_memory_limit(Some(24 * MIB));
    let a = device.alloc(5 * MIB, device.default_stream(), Span::NONE).unwrap();
    let error = device.alloc(30 * MIB, device.default_stream(), Span::NONE).unwrap_err();
    assert_eq!((error.kind(), error.code().id), (ErrorKind::Limit, "E0704"));
    drop(a);
    // The cache is released for it.
    device.alloc(24 * MIB, device.default_stream(), Span::NONE).unwrap();
    host.set_memory_limit(Some(1000));
    let b = host.alloc(600, host.default_stream(), Span::NONE).unwrap();
    let again = || host.alloc(600, host.default_stream(), Span::NONE);
    assert_eq!(again().unwrap_err().kind(), ErrorKind::Limit);
    drop(b);
    again().unwrap();
    machine.set_pinned_limit(Some(8192));
    drop(machine.pinned(4096, DeviceId::Cpu).unwrap());
    let _c = machine.pinned(5000, DeviceId::Cpu).unwrap();
    assert_eq!(machine.pinned(16, DeviceId::Cpu).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn many_threads_share_a_device() {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    let device = cuda(&machine, 0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                let (own, other) = (device.stream(0).unwrap(), device.stream(-1).unwrap());
                for round in 0..200_u64 {
                    let bytes = (round * 7919 + thread) % (3 * MIB) + 8;
                    let block = device.alloc(bytes, &own, Span::NONE).unwrap();
                    let value = thread << 32 | round;
                    device.driver().fill(block.ptr(), value, 8, 1, own.handle()).unwrap();
                    if round % 3 == 0 {
                        other.wait_stream(&own).unwrap();
                        block.used_on(&other);
                    }
                    let mut read = 0_u64;
                    let (to, kind) = (&raw mut read as u64, CopyKind::DeviceToHost);
                    device.driver().copy(to, block.ptr(), 8, kind, own.handle()).unwrap();
                    own.synchronize().unwrap();
                    assert_eq!(read, value);
                }
            });
        }
    });
    assert_eq!(device.memory_allocated(), 0);
    device.empty_cache().unwrap();
    assert_eq!(device.stats().reserved_bytes.all().current, 0);
}

/// Drivers report a launch without room for its scratch memory without details.
#[test]
fn launches_without_scratch_memory_say_what_they_asked_for() {
    let (machine, ..) = machine(1);
    let device = cuda(&machine, 0);
    let _block = device.alloc(3 * MIB, device.default_stream(), Span::NONE).unwrap();
    let detailed = device.lacks_scratch(crate::driver::error::out_of_memory(), MIB);
    let message = detailed.message();
    assert!(
        message.contains("Tried to allocate") && message.contains("total capacity of 256.00 MiB"),
        "{message}"
    );
    let limit = crate::driver::error::memory_limit("memory of cuda:0", MIB, 0, 2 * MIB);
    assert_eq!(device.lacks_scratch(limit.clone(), MIB).message(), limit.message());
}

#[test]
fn events_are_shared_between_processes_where_there_are_some() {
    let (machine, ..) = machine(1);
    let device = cuda(&machine, 0);
    let flags = EventFlags { interprocess: true, ..EventFlags::default() };
    let plain = Event::new(EventFlags::default());
    assert_eq!(plain.ipc_handle(device.default_stream()).unwrap_err().code().id, "E0509");
    let shared = Event::new(flags);
    shared.record(device.default_stream()).unwrap();
    let error = shared.ipc_handle(device.default_stream()).unwrap_err();
    assert!(error.message().contains("only CUDA devices"), "{error}");
    let both = Event::new(EventFlags { enable_timing: true, ..flags });
    assert_eq!(both.record(device.default_stream()).unwrap_err().code().id, "E0509");
}

#[test]
fn history_is_recorded_on_devices_that_open_later() {
    let (machine, ..) = machine(2);
    machine.record_history(10);
    let device = cuda(&machine, 1);
    drop(device.alloc(64, device.default_stream(), Span::NONE).unwrap());
    assert_eq!(device.memory().trace.len(), 4);
    machine.record_history(0);
    assert!(device.memory().trace.is_empty());
}
