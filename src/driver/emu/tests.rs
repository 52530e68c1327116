//! The guarantees that scripts rely on: order within a stream, events between streams, the clock, and errors.

use super::*;
use crate::array::{Class, Dtype};
use crate::base::ErrorKind;
use crate::kernel::host::define::host_binary;
use crate::kernel::{CudaText, Instr, Map, MapFn, Program, Source as From, Store, View};
use smallvec::smallvec;

static MULTIPLY_ADD: MapFn = MapFn {
    name: "multiply_add",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "" },
    host: host_binary!(i64: |a, b| a.wrapping_mul(3).wrapping_add(b)),
    complex: None,
};

fn machine(schedule: Option<u64>) -> Vec<Arc<dyn Driver>> {
    let schedule = schedule.map(Schedule::Seed);
    Emulator::devices(Config { devices: 2, schedule, ..Config::default() })
}

/// x = 3 x + number, over `n` elements.
pub(crate) fn step(x: Ptr, n: usize, number: i64) -> Launch {
    let dtype = Dtype::I64;
    let map = Map {
        sources: vec![From::Load { view: 0, dtype }, From::Number { slot: 0, dtype }],
        instrs: vec![Instr {
            f: &MULTIPLY_ADD,
            args: [0, 1].into_iter().collect(),
            class: Class::I64,
            dtype,
        }],
        stores: vec![Store { reg: 2, view: 0 }],
    };
    Launch {
        numbers: smallvec![number as u64],
        ..Launch::new(
            Arc::new(Program::new(&map)),
            smallvec![n],
            smallvec![View::new(x, dtype, smallvec![1])],
        )
    }
}

fn read(driver: &dyn Driver, from: Ptr, stream: StreamHandle) -> i64 {
    let mut value = 0i64;
    driver.copy((&raw mut value) as usize as Ptr, from, 8, CopyKind::DeviceToHost, stream).unwrap();
    value
}

#[test]
fn a_stream_runs_in_order_without_blocking_the_host() {
    for schedule in [None, Some(1)] {
        let devices = machine(schedule);
        let d = &devices[0];
        let x = d.alloc(8 * 100_000).unwrap();
        d.fill(x, 0, 8, 100_000, 0).unwrap();
        let mut want = 0i64;
        for i in 0..200 {
            d.launch(&step(x, 100_000, i), 0).unwrap();
            want = want.wrapping_mul(3).wrapping_add(i);
        }
        assert_eq!(read(&**d, x + 8 * 99_999, 0), want);
        d.synchronize().unwrap();
        assert!(d.stream_query(0).unwrap());
    }
}

#[test]
fn events_order_streams_of_two_devices() {
    for schedule in (0..20).map(Some).chain([None]) {
        let devices = machine(schedule);
        let (a, b) = (&devices[0], &devices[1]);
        let (s, t) = (a.stream(0).unwrap(), b.stream(-1).unwrap());
        let x = a.alloc(8).unwrap();
        let event = a.event(false).unwrap();
        a.fill(x, 5, 8, 1, s).unwrap();
        for i in 0..5 {
            a.launch(&step(x, 1, i), s).unwrap();
            a.event_record(event, s).unwrap();
            b.event_wait(t, event, &**a).unwrap();
            b.launch(&step(x, 1, 10 * i), t).unwrap();
            b.event_record(event, t).unwrap();
            a.event_wait(s, event, &**b).unwrap();
        }
        let mut want = 5i64;
        (0..5).for_each(|i| want = (want * 3 + i) * 3 + 10 * i);
        assert_eq!(read(&**a, x, s), want, "{schedule:?}");
        a.event_free(event);
    }
}

#[test]
fn a_seed_is_an_order() {
    let run = |seed| {
        let devices = machine(Some(seed));
        let d = &devices[0];
        let x = d.alloc(8).unwrap();
        d.fill(x, 1, 8, 1, 0).unwrap();
        d.synchronize().unwrap();
        let streams = [d.stream(0).unwrap(), d.stream(0).unwrap(), d.stream(-1).unwrap()];
        for i in 0..12 {
            d.launch(&step(x, 1, i), streams[i as usize % 3]).unwrap();
        }
        d.synchronize().unwrap();
        read(&**d, x, 0)
    };
    let results: Vec<i64> = (0..8).map(run).collect();
    assert_eq!(results, (0..8).map(run).collect::<Vec<_>>());
    assert!(results.iter().any(|r| *r != results[0]));
}

#[test]
fn sleeps_take_virtual_time_alone() {
    for schedule in [None, Some(7)] {
        let devices = machine(schedule);
        let d = &devices[0];
        let s = d.stream(0).unwrap();
        let (start, end) = (d.event(true).unwrap(), d.event(true).unwrap());
        d.event_record(start, s).unwrap();
        d.sleep(3_000_000_000_000, s).unwrap();
        assert!(!d.stream_query(s).unwrap());
        d.event_record(end, s).unwrap();
        d.stream_synchronize(0).unwrap();
        assert!(!d.stream_query(s).unwrap() && !d.event_query(end).unwrap());
        assert_eq!(d.event_elapsed(start, end).unwrap_err().code().id, error::event_not_complete().code().id);
        d.event_synchronize(end).unwrap();
        let elapsed = d.event_elapsed(start, end).unwrap();
        assert!((elapsed - 3e6).abs() < 1.0, "{elapsed}");
        // A polling loop ends after a hundred queries; under a seed after a few more.
        d.sleep(1_000_000, s).unwrap();
        let polls = (0..1000).take_while(|_| !d.stream_query(s).unwrap()).count();
        assert!((90..=130).contains(&polls), "{polls}");
    }
}

#[test]
fn sleeps_of_two_streams_overlap() {
    let devices = machine(None);
    let d = &devices[0];
    let (s, t) = (d.stream(0).unwrap(), d.stream(0).unwrap());
    let (start, end) = (d.event(true).unwrap(), d.event(true).unwrap());
    d.event_record(start, s).unwrap();
    d.sleep(5_000_000, s).unwrap();
    d.sleep(5_000_000, t).unwrap();
    d.stream_synchronize(t).unwrap();
    d.event_record(end, s).unwrap();
    d.synchronize().unwrap();
    assert!(d.event_elapsed(start, end).unwrap() < 5.1);
}

#[test]
fn pageable_memory_is_the_hosts_again_at_once_and_pinned_memory_later() {
    let devices = machine(None);
    let d = &devices[0];
    let (x, s) = (d.alloc(8).unwrap(), d.stream(0).unwrap());
    d.sleep(1_000_000, s).unwrap();
    let mut value = 41i64;
    d.copy(x, (&raw const value) as usize as Ptr, 8, CopyKind::HostToDevice, s).unwrap();
    value += 1;
    assert!(!d.stream_query(s).unwrap());
    assert_eq!((read(&**d, x, s), value), (41, 42));
    let pinned = d.pinned_alloc(64).unwrap();
    let cell = pinned as usize as *mut i64;
    // SAFETY: the block belongs to this test, and nothing is queued on it.
    unsafe { cell.write(0) };
    d.sleep(1_000_000, s).unwrap();
    d.copy(pinned, x, 8, CopyKind::DeviceToHost, s).unwrap();
    // SAFETY: the copy waits behind a sleep that only a wait ends.
    assert_eq!(unsafe { cell.read() }, 0);
    d.stream_synchronize(s).unwrap();
    // SAFETY: the copy has run.
    assert_eq!(unsafe { cell.read() }, 41);
    d.pinned_free(pinned, 64);
    let y = devices[1].alloc(8).unwrap();
    devices[1].copy(y, x, 8, CopyKind::FromPeer(0), 0).unwrap();
    assert_eq!(read(&*devices[1], y, 0), 41);
}

#[test]
fn the_highest_priority_goes_first() {
    let devices = machine(None);
    let d = &devices[0];
    let x = d.alloc(8).unwrap();
    let (low, high, gate) = (d.stream(0).unwrap(), d.stream(-5).unwrap(), d.stream(0).unwrap());
    let open = d.event(false).unwrap();
    d.fill(x, 0, 8, 1, gate).unwrap();
    d.sleep(1_000_000, gate).unwrap();
    d.event_record(open, gate).unwrap();
    for s in [low, high] {
        d.event_wait(s, open, &**d).unwrap();
    }
    d.launch(&step(x, 1, 1), low).unwrap();
    d.launch(&step(x, 1, 2), high).unwrap();
    d.synchronize().unwrap();
    assert_eq!(read(&**d, x, 0), 2 * 3 + 1);
}

#[test]
fn memory_is_finite_and_the_nth_call_fails_on_request() {
    let devices = Emulator::devices(Config { devices: 1, memory_per_device: 1 << 20, ..Config::default() });
    assert_eq!(devices[0].alloc(2 << 20).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(devices[0].memory_info().unwrap(), (1 << 20, 1 << 20));
    let fails = |n| {
        let devices = Emulator::devices(Config { failure: Some(Failure::new(None, n)), ..Config::default() });
        let d = &devices[0];
        let kinds = [
            d.alloc(512).map(|_| ()).map_err(|e| e.kind()),
            d.stream(0).map(|_| ()).map_err(|e| e.kind()),
            d.synchronize().map_err(|e| e.kind()),
        ];
        kinds.iter().position(|k| k.is_err()).map(|at| (at, kinds[at]))
    };
    assert_eq!(fails(1), Some((0, Err(ErrorKind::OutOfMemory))));
    assert_eq!(fails(2), Some((1, Err(ErrorKind::Cuda))));
    assert_eq!(fails(3), Some((2, Err(ErrorKind::Cuda))));
    assert_eq!(fails(4), None);
}

#[test]
fn waits_can_be_interrupted() {
    let flag = Arc::new(AtomicBool::new(true));
    let devices = Emulator::devices(Config { interrupt: Some(flag.clone()), ..Config::default() });
    let d = &devices[0];
    d.sleep(1_000, 0).unwrap();
    assert_eq!(d.synchronize().unwrap_err().kind(), ErrorKind::Interrupted);
    flag.store(false, Ordering::Relaxed);
    d.synchronize().unwrap();
}

#[test]
fn full_queues_make_the_host_wait() {
    for schedule in [None, Some(3)] {
        let devices = machine(schedule);
        let d = &devices[0];
        let x = d.alloc(8).unwrap();
        d.fill(x, 0, 8, 1, 0).unwrap();
        d.sleep(1_000_000_000, 0).unwrap();
        for i in 0..20_000 {
            d.launch(&step(x, 1, i % 2), 0).unwrap();
        }
        let want = (0..20_000).fold(0i64, |x, i| x.wrapping_mul(3).wrapping_add(i % 2));
        assert_eq!(read(&**d, x, 0), want);
    }
}

#[test]
fn host_threads_may_share_a_machine() {
    let devices = machine(None);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let d = &devices[thread % 2];
            scope.spawn(move || {
                let (x, s) = (d.alloc(8).unwrap(), d.stream(0).unwrap());
                let event = d.event(true).unwrap();
                let mut want = 0i64;
                d.fill(x, 0, 8, 1, s).unwrap();
                for i in 0..200 {
                    d.launch(&step(x, 1, i), s).unwrap();
                    want = want.wrapping_mul(3).wrapping_add(i);
                    d.event_record(event, s).unwrap();
                    match i % 3 {
                        0 => d.event_synchronize(event).unwrap(),
                        1 => while !d.event_query(event).unwrap() {},
                        _ => {}
                    }
                }
                assert_eq!(read(&**d, x, s), want);
            });
        }
    });
}

#[test]
fn a_machine_is_dropped_with_work_queued() {
    for _ in 0..20 {
        let devices = machine(None);
        let x = devices[0].alloc(8 << 20).unwrap();
        for i in 0..50 {
            devices[i % 2].launch(&step(x, 1 << 20, 1), 0).unwrap();
        }
        assert!(devices[0].event_synchronize(99).is_err());
    }
}

#[test]
fn a_wait_is_for_the_record_it_saw() {
    // The event is recorded again on an idle stream; the wait for the first record stays.
    for schedule in (0..20).map(Some) {
        let devices = machine(schedule);
        let d = &devices[0];
        let (s, t, u) = (d.stream(0).unwrap(), d.stream(0).unwrap(), d.stream(0).unwrap());
        let x = d.alloc(8).unwrap();
        let event = d.event(false).unwrap();
        d.fill(x, 1, 8, 1, s).unwrap();
        d.event_record(event, s).unwrap();
        d.event_wait(t, event, &**d).unwrap();
        d.event_record(event, u).unwrap();
        d.fill(x, 2, 8, 1, t).unwrap();
        d.synchronize().unwrap();
        assert_eq!(read(&**d, x, 0), 2, "{schedule:?}");
    }
}

#[test]
fn graphs_run_in_stream_order_any_number_of_times() {
    use crate::driver::graph::{Step, Task};
    for schedule in (0..10).map(Some).chain([None]) {
        let devices = machine(schedule);
        let d = &devices[0];
        let (s, x, y) = (d.stream(0).unwrap(), d.alloc(8).unwrap(), d.alloc(8).unwrap());
        let on = |lane, task| Step { lane, task };
        let bytes: Arc<[u8]> = 7i64.to_le_bytes().into();
        let copy = Task::Copy { dst: y, src: x, bytes: 8, kind: CopyKind::DeviceToDevice };
        let steps = vec![
            on(0, Task::Launch(Box::new(step(x, 1, 1)))),
            on(0, Task::Mark(1)),
            on(1, Task::Wait(1)),
            on(1, Task::Sleep(5000)),
            on(1, copy),
            on(1, Task::Mark(2)),
            on(0, Task::Wait(2)),
            on(0, Task::Write { dst: x, bytes }),
        ];
        let graph = d.graph(steps.into()).unwrap();
        d.fill(x, 2, 8, 1, s).unwrap();
        d.fill(y, 0, 8, 1, s).unwrap();
        assert_eq!(read(&**d, y, s), 0, "{schedule:?}: a graph does nothing before it is launched");
        d.graph_launch(graph, s).unwrap();
        assert_eq!((read(&**d, y, s), read(&**d, x, s)), (7, 7));
        d.graph_launch(graph, s).unwrap();
        assert_eq!((read(&**d, y, s), read(&**d, x, s)), (22, 7));
        d.graph_free(graph);
        assert!(d.graph_launch(graph, s).is_err());
    }
}
