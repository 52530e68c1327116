//! Host threads and the machine's thread, in random orders and in orders from priorities. Every wait ends,
//! one command runs at a time, streams and events keep their order, and nothing runs after the end.

#![cfg(not(feature = "loom"))]

use runnel_interleave::base::ErrorKind;
use runnel_interleave::device::emu::{Machine, Schedule};
use runnel_interleave::kernel::host::bytes::Word;
use shuttle::sync::atomic::AtomicBool;
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of orders of each kind.
const ORDERS: usize = 1000;

/// Runs a program under many thread orders.
fn many(program: impl Fn() + Send + Sync + 'static) {
    let program = Arc::new(program);
    let again = program.clone();
    shuttle::check_random(move || again(), ORDERS);
    shuttle::check_pct(move || program(), ORDERS, 3);
}

/// Memory that lives as long as the test: commands hold its address.
fn word() -> &'static Word<'static> {
    let busy: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    words(busy)
}

fn words(busy: &'static AtomicBool) -> &'static Word<'static> {
    Box::leak(Box::new(Word { value: std::cell::Cell::new(1), busy }))
}

/// A `Word` shared by threads. Shuttle runs one thread at a time, and the assertions in the word are the
/// test.
#[derive(Clone, Copy)]
struct Shared(&'static Word<'static>);

// SAFETY: only one thread runs at a time.
unsafe impl Send for Shared {}

impl Shared {
    fn get(self) -> &'static Word<'static> {
        self.0
    }
}

#[test]
fn a_stream_is_in_order_and_every_wait_ends() {
    many(|| {
        let machine = Machine::new(2, None, None);
        let server = machine.serve();
        let x = Shared(word());
        let hosts: Vec<_> = (0..2)
            .map(|stream| {
                let machine = machine.clone();
                let own = Shared(words(x.get().busy));
                thread::spawn(move || {
                    let own = own.get();
                    for number in 1..4 {
                        machine.update(stream, own, number).unwrap();
                    }
                    machine.synchronize(stream).unwrap();
                    assert_eq!(own.value.get(), ((3 + 1) * 3 + 2) * 3 + 3);
                    assert!(machine.query(stream).unwrap());
                })
            })
            .collect();
        hosts.into_iter().for_each(|host| host.join().unwrap());
        machine.stop();
        server.join().unwrap();
    });
}

#[test]
fn events_order_the_streams_of_two_hosts() {
    many(|| {
        let machine = Machine::new(2, None, None);
        let server = machine.serve();
        let x = Shared(word());
        let event = machine.event();
        machine.update(0, x.get(), 1).unwrap();
        machine.sleep(0, 1_000_000).unwrap();
        machine.update(0, x.get(), 2).unwrap();
        machine.record(&event, 0).unwrap();
        let other = {
            let (machine, event) = (machine.clone(), event.clone());
            thread::spawn(move || {
                machine.wait(1, &event).unwrap();
                machine.update(1, x.get(), 5).unwrap();
                machine.synchronize(1).unwrap();
                assert_eq!(x.get().value.get(), ((3 + 1) * 3 + 2) * 3 + 5);
            })
        };
        machine.synchronize_event(&event).unwrap();
        other.join().unwrap();
        machine.synchronize_device().unwrap();
        machine.stop();
        server.join().unwrap();
    });
}

#[test]
fn a_machine_that_stops_leaves_what_is_queued() {
    many(|| {
        let machine = Machine::new(2, None, None);
        let server = machine.serve();
        let x = Shared(word());
        (0..4).for_each(|n| machine.update(n % 2, x.get(), 1).unwrap());
        machine.stop();
        server.join().unwrap();
        let now = x.get().value.get();
        assert!([1, 4, 13, 40, 121].contains(&now));
        assert!(!x.get().busy.load(shuttle::sync::atomic::Ordering::SeqCst));
        thread::yield_now();
        assert_eq!(x.get().value.get(), now);
    });
}

#[test]
fn without_a_thread_of_the_machine_the_hosts_run_everything() {
    for schedule in [None, Some(Schedule::Seed(3)), Some(Schedule::Priorities(5))] {
        many(move || {
            let machine = Machine::new(3, schedule.clone(), None);
            let x = Shared(word());
            let hosts: Vec<_> = (0..3)
                .map(|stream| {
                    let machine = machine.clone();
                    thread::spawn(move || {
                        let own = Shared(words(x.get().busy)).get();
                        machine.update(stream, own, 1).unwrap();
                        machine.update(stream, own, 2).unwrap();
                        machine.synchronize(stream).unwrap();
                        assert_eq!(own.value.get(), (3 + 1) * 3 + 2);
                    })
                })
                .collect();
            hosts.into_iter().for_each(|host| host.join().unwrap());
        });
    }
}

#[test]
fn an_interrupt_ends_a_wait_and_loses_no_work() {
    many(|| {
        let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let machine = Machine::new(1, None, Some(flag.clone()));
        let server = machine.serve();
        let x = Shared(word());
        (1..4).for_each(|n| machine.update(0, x.get(), n).unwrap());
        let watcher = {
            let flag = flag.clone();
            thread::spawn(move || flag.store(true, Ordering::Relaxed))
        };
        if let Err(error) = machine.synchronize(0) {
            assert_eq!(error.kind(), ErrorKind::Interrupted);
        }
        watcher.join().unwrap();
        flag.store(false, Ordering::Relaxed);
        machine.synchronize(0).unwrap();
        assert_eq!(x.get().value.get(), ((3 + 1) * 3 + 2) * 3 + 3);
        machine.stop();
        server.join().unwrap();
    });
}

#[test]
fn nothing_runs_in_between() {
    many(|| {
        let machine = Machine::new(1, None, None);
        let server = machine.serve();
        let x = Shared(word());
        (0..3).for_each(|_| machine.update(0, x.get(), 1).unwrap());
        machine.between(|| {
            let before = x.get().value.get();
            thread::yield_now();
            assert!(!x.get().busy.load(shuttle::sync::atomic::Ordering::SeqCst));
            assert_eq!(x.get().value.get(), before);
        });
        machine.synchronize(0).unwrap();
        machine.stop();
        server.join().unwrap();
    });
}
