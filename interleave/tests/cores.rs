//! The three concurrent cores, in every order within a preemption bound: callbacks for a point of a stream,
//! blocks freed while other streams still use them, and page-locked blocks that change owners.
//! `LOOM_MAX_PREEMPTIONS` sets another bound.

mod late;

use late::{BLOCK, Late, Work};
use loom::cell::Cell;
use loom::model::Builder;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use runnel_interleave::base::{ErrorKind, Span};
use runnel_interleave::device::emu::Machine;
use runnel_interleave::device::{Block, Device, Driver, Pinned, Stream, open, when_passed};
use runnel_interleave::kernel::host::bytes::Word;
use std::sync::Arc;

/// Runs a program in every thread order with at most this many preemptions.
fn every_order(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(preemptions));
    model.max_branches = 20_000;
    model.check(program);
}

/// A block for the default stream.
fn alloc(device: &Arc<Device>) -> Option<Block> {
    match device.alloc(BLOCK, device.default_stream(), Span::NONE) {
        Ok(block) => Some(block),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            None
        }
    }
}

/// A word shared by threads.
struct Shared(Word<'static>);

// SAFETY: loom runs one thread at a time and reports unordered accesses to cells.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// A counter that threads can wait on.
#[derive(Clone)]
struct Count(Arc<(Mutex<usize>, Condvar)>);

impl Count {
    fn new() -> Count {
        Count(Arc::new((Mutex::new(0), Condvar::new())))
    }

    fn add(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    /// Waits until the count is reached. If it never is, loom reports a deadlock.
    fn wait_for(&self, count: usize) {
        let mut now = self.0.0.lock().unwrap();
        while *now < count {
            now = self.0.1.wait(now).unwrap();
        }
        assert_eq!(*now, count);
    }
}

/// Takes a block, if there is one, and uses it at once. Loom reports anything that still uses it too.
fn use_next(device: &Arc<Device>, late: &Late) -> bool {
    let block = alloc(device);
    if let Some(block) = &block {
        late.cell(block.ptr()).set(1);
    }
    block.is_some()
}

/// A device with a block that side streams read.
fn used_by<const N: usize>(late: &Arc<Late>) -> (Arc<Device>, [Arc<Stream>; N], Block) {
    let device = open(late.clone());
    let block = alloc(&device).unwrap();
    let sides = std::array::from_fn(|_| {
        let side = device.stream(0).unwrap();
        block.used_on(&side);
        late.queue(&side, Work::Read(block.ptr()));
        side
    });
    (device, sides, block)
}

#[test]
fn a_freed_block_is_waited_for() {
    every_order(3, || {
        let late = Late::new(2);
        let (device, [side], block) = used_by(&late);
        // Exhausts the memory, so that a request after the drop waits for the side stream.
        let rest = alloc(&device).unwrap();
        let work = late.start(&side);
        let other = {
            let (device, late) = (device.clone(), late.clone());
            thread::spawn(move || {
                drop(block);
                use_next(&device, &late);
            })
        };
        use_next(&device, &late);
        other.join().unwrap();
        // The request waited for the work, not this thread.
        assert!(use_next(&device, &late));
        work.join().unwrap();
        drop(rest);
    });
}

#[test]
fn a_freed_block_is_found_once_all_streams_have_passed() {
    every_order(3, || {
        let late = Late::new(4);
        let (device, sides, block) = used_by::<2>(&late);
        let works = sides.map(|side| late.start(&side));
        let other = {
            let (device, late) = (device.clone(), late.clone());
            // Gets another block while either stream is busy.
            thread::spawn(move || assert!(use_next(&device, &late)))
        };
        drop(block);
        assert!(use_next(&device, &late));
        device.empty_cache().unwrap();
        other.join().unwrap();
        works.into_iter().for_each(|work| work.join().unwrap());
    });
}

#[test]
fn a_page_locked_block_has_its_next_owner_after_its_copies() {
    every_order(3, || {
        let late = Late::new(2);
        let driver: Arc<dyn Driver> = late.clone();
        let device = open(driver.clone());
        let sides = [device.stream(0).unwrap(), device.stream(0).unwrap()];
        let pinned = Arc::new(Pinned::new());
        let block = pinned.alloc(BLOCK, &driver).unwrap();
        sides.iter().for_each(|side| {
            block.used_on(side);
            late.queue(side, Work::Read(block.ptr()));
        });
        let works = sides.map(|side| late.start(&side));
        let other = {
            let (pinned, late, driver) = (pinned.clone(), late.clone(), driver.clone());
            thread::spawn(move || {
                let block = pinned.alloc(BLOCK, &driver).unwrap();
                late.cell(block.ptr()).set(1);
            })
        };
        drop(block);
        let block = pinned.alloc(BLOCK, &driver).unwrap();
        late.cell(block.ptr()).set(2);
        drop(block);
        // Returning memory to the driver touches it.
        pinned.empty_cache().unwrap();
        other.join().unwrap();
        works.into_iter().for_each(|work| work.join().unwrap());
    });
}

#[test]
fn waiters_are_notified_once_after_their_point() {
    every_order(3, || {
        let late = Late::new(2);
        let device = open(late.clone());
        let stream = device.default_stream().clone();
        let block = alloc(&device).unwrap();
        late.queue(&stream, Work::Write(block.ptr(), 7));
        let work = late.start(&stream);
        let heard = Count::new();
        let wait = |stream: &Arc<Stream>, heard: &Count, late: &Arc<Late>, ptr| {
            let (heard, late) = (heard.clone(), late.clone());
            when_passed(stream, move |passed| {
                passed.unwrap();
                assert_eq!(late.cell(ptr).get(), 7);
                heard.add();
            });
        };
        let ptr = block.ptr();
        let other = {
            let (stream, heard, late) = (stream.clone(), heard.clone(), late.clone());
            thread::spawn(move || wait(&stream, &heard, &late, ptr))
        };
        wait(&stream, &heard, &late, ptr);
        heard.wait_for(2);
        other.join().unwrap();
        work.join().unwrap();
    });
}

/// Work on one emulated stream, an event after it, and a second host thread whose stream waits for that
/// event.
fn an_event_between_hosts(machine: &Arc<Machine>) {
    let busy: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let word = Arc::new(Shared(Word { value: Cell::new(1), busy }));
    let event = machine.event();
    machine.update(0, &word.0, 1).unwrap();
    machine.record(&event, 0).unwrap();
    let other = {
        let (machine, event, word) = (machine.clone(), event.clone(), word.clone());
        thread::spawn(move || {
            machine.wait(1, &event).unwrap();
            machine.update(1, &word.0, 2).unwrap();
            machine.synchronize(1).unwrap();
            assert_eq!(word.0.value.get(), (3 + 1) * 3 + 2);
        })
    };
    machine.synchronize_event(&event).unwrap();
    other.join().unwrap();
}

#[test]
fn hosts_that_wait_run_what_each_other_waits_for() {
    every_order(3, || an_event_between_hosts(&Machine::new(2, None, None)));
}

#[test]
fn hosts_and_the_thread_of_their_machine_wake_each_other() {
    every_order(1, || {
        let machine = Machine::new(2, None, None);
        let server = machine.serve();
        an_event_between_hosts(&machine);
        machine.stop();
        server.join().unwrap();
    });
}
