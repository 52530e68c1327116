//! Runs small programs in every possible order, and long programs with priorities that delay streams. The
//! checker and a model report a race exactly when two orders give different results.
//!
//! A write is `x = 3 x + n` with a unique `n`, and a read stores what it saw, so the final bytes reveal the
//! order of any two accesses except two reads.

use crate::base::Span;
use crate::device::*;
use crate::driver::emu::tests::step as update;
use crate::driver::*;
use crate::kernel::Ptr;
use crate::stream::races::{Access, Checker, Region, Site, Touch, Watched};
use crate::stream::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const STREAMS: usize = 3;
const EVENTS: usize = 2;
const BUFFERS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { stream: usize, buffer: usize },
    Read { stream: usize, buffer: usize },
    Record { stream: usize, event: usize },
    Wait { stream: usize, event: usize },
    WaitStream { stream: usize, other: usize },
    Synchronize { stream: usize },
    SynchronizeEvent { event: usize },
    Query { stream: usize },
}

/// The outcome of a run.
struct Outcome {
    /// All buffers, and the values that reads saw.
    bytes: Vec<u8>,
    /// Whether the checker found a race, and whether the model did.
    raced: bool,
    expected: bool,
}

/// Random numbers, the same in every run of the tests.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn step(&mut self) -> Step {
        let (stream, other, event) = (self.below(STREAMS), self.below(STREAMS), self.below(EVENTS));
        let buffer = self.below(BUFFERS);
        match self.below(16) {
            0..=3 => Step::Write { stream, buffer },
            4..=6 => Step::Read { stream, buffer },
            7 | 8 => Step::Record { stream, event },
            9 | 10 => Step::Wait { stream, event },
            11 | 12 => Step::WaitStream { stream, other },
            13 => Step::Synchronize { stream },
            14 => Step::SynchronizeEvent { event },
            _ => Step::Query { stream },
        }
    }

    fn program(&mut self, length: usize) -> Vec<Step> {
        (0..length).map(|_| self.step()).collect()
    }
}

/// The accesses certain to be over, as bit sets of access numbers.
#[derive(Default)]
struct Model {
    streams: [u128; STREAMS],
    host: u128,
    events: [u128; EVENTS],
    accesses: Vec<(usize, Access)>,
}

impl Model {
    /// Returns whether an access races with an earlier one. The access enters the history unless it races and
    /// `refuse` is set.
    fn access(&mut self, stream: usize, buffer: usize, access: Access, refuse: bool) -> bool {
        let over = self.streams[stream] | self.host;
        let conflicts = |&(of, earlier): &(usize, Access)| {
            of == buffer && (earlier == Access::Write || access == Access::Write)
        };
        let mut open = self.accesses.iter().enumerate().filter(|&(n, _)| over & (1 << n) == 0);
        let races = open.any(|(_, earlier)| conflicts(earlier));
        if !(races && refuse) {
            self.streams[stream] = over | 1 << self.accesses.len();
            self.accesses.push((buffer, access));
        }
        races
    }
}

/// Two devices with streams, and words that all streams use.
struct Player {
    machine: Arc<Machine>,
    streams: Vec<Arc<Stream>>,
    events: Vec<Event>,
    buffers: Ptr,
    seen: Ptr,
    /// Number of queued reads and writes.
    reads: u64,
    writes: i64,
    histories: Vec<Watched>,
    checker: Checker,
    model: Model,
    refuse: bool,
    raced: bool,
    expected: bool,
}

impl Player {
    fn new(schedule: Schedule, refuse: bool) -> Player {
        let config = Config {
            backend: Backend::Emu,
            devices: Some(2),
            device_memory: Some(8 << 20),
            schedule: Some(schedule),
            ..Config::default()
        };
        let machine = Machine::open(&config).unwrap();
        let device = |i| machine.device(DeviceId::Cuda(i)).unwrap();
        let streams = vec![
            device(0).default_stream().clone(),
            device(0).stream(0).unwrap(),
            device(1).default_stream().clone(),
        ];
        let driver = streams[0].driver().clone();
        let (buffers, seen) = (driver.alloc(4096).unwrap(), driver.alloc(4096).unwrap());
        driver.fill(buffers, 0, 1, 4096, 0).unwrap();
        driver.fill(seen, 0, 1, 4096, 0).unwrap();
        driver.synchronize().unwrap();
        Player {
            streams,
            events: (0..EVENTS).map(|_| Event::new(EventFlags::default())).collect(),
            buffers,
            seen,
            reads: 0,
            writes: 0,
            histories: (0..BUFFERS).map(|_| Watched::default()).collect(),
            checker: Checker::new(),
            model: Model::default(),
            refuse,
            raced: false,
            expected: false,
            machine,
        }
    }

    /// Reports an access to the checker and the model; false when it is refused.
    fn admits(&mut self, stream: usize, buffer: usize, access: Access) -> bool {
        let site = Site { name: "op", span: Span::NONE };
        let (by, history) = (&*self.streams[stream], &self.histories[buffer]);
        let expected = self.model.access(stream, buffer, access, self.refuse);
        let raced = match self.refuse {
            true => {
                let touch = Touch { history, region: Region::from(0..8), access };
                !self.checker.admit(Some(by), &[touch], site).is_empty()
            }
            false => self.checker.access(Some(by), &mut history.lock(), 0..8, access, site).is_some(),
        };
        if self.refuse {
            assert_eq!(raced, expected);
            return !raced;
        }
        self.raced |= raced;
        self.expected |= expected;
        true
    }

    fn play(&mut self, step: Step) {
        let at = |start: Ptr, n: u64| start + 8 * n;
        match step {
            Step::Write { stream, buffer } => {
                if self.admits(stream, buffer, Access::Write) {
                    self.writes += 1;
                    let by = &self.streams[stream];
                    let launch = update(at(self.buffers, buffer as u64), 1, self.writes);
                    by.driver().launch(&launch, by.handle()).unwrap();
                }
            }
            Step::Read { stream, buffer } => {
                if self.admits(stream, buffer, Access::Read) {
                    let (from, to) = (at(self.buffers, buffer as u64), at(self.seen, self.reads));
                    self.reads += 1;
                    let by = &self.streams[stream];
                    by.driver().copy(to, from, 8, CopyKind::FromPeer(0), by.handle()).unwrap();
                }
            }
            Step::Record { stream, event } => {
                // An event is bound to one device, so another event takes its place.
                let by = &self.streams[stream];
                if self.events[event].device().is_some_and(|device| device != by.device()) {
                    self.events[event] = Event::new(EventFlags::default());
                }
                self.events[event].record(by).unwrap();
                self.checker.record(&mut self.events[event].clock(), by);
                self.model.events[event] = self.model.streams[stream] | self.model.host;
            }
            Step::Wait { stream, event } => {
                self.events[event].wait(&self.streams[stream]).unwrap();
                self.checker.wait(&self.streams[stream], &self.events[event].clock());
                self.checker.publish(&self.streams[stream]);
                self.model.streams[stream] |= self.model.events[event];
            }
            Step::WaitStream { stream, other } => {
                self.streams[stream].wait_stream(&self.streams[other]).unwrap();
                self.checker.wait_stream(&self.streams[stream], &self.streams[other]);
                self.checker.publish(&self.streams[stream]);
                self.model.streams[stream] |= self.model.streams[other];
            }
            Step::Synchronize { stream } => {
                self.streams[stream].synchronize().unwrap();
                self.host_is_past(stream);
            }
            Step::SynchronizeEvent { event } => {
                self.events[event].synchronize().unwrap();
                self.checker.host_wait_event(&self.events[event].clock());
                self.model.host |= self.model.events[event];
            }
            Step::Query { stream } => {
                if self.streams[stream].query().unwrap() {
                    self.host_is_past(stream);
                }
            }
        }
    }

    fn host_is_past(&mut self, stream: usize) {
        self.checker.host_wait_stream(&self.streams[stream]);
        self.model.host |= self.model.streams[stream];
    }

    fn end(self) -> Outcome {
        self.machine.opened().for_each(|device| device.synchronize().unwrap());
        let driver = self.streams[0].driver();
        let mut bytes = vec![0u8; 8 * (BUFFERS as u64 + self.reads) as usize];
        let (found, saw) = bytes.split_at_mut(8 * BUFFERS);
        for (to, from) in [(found, self.buffers), (saw, self.seen)] {
            let (address, length) = (to.as_mut_ptr() as u64, to.len() as u64);
            driver.copy(address, from, length, CopyKind::DeviceToHost, 0).unwrap();
        }
        driver.synchronize().unwrap();
        driver.free(self.buffers, 4096);
        driver.free(self.seen, 4096);
        Outcome { bytes, raced: self.raced, expected: self.expected }
    }
}

fn run(steps: &[Step], schedule: Schedule, refuse: bool) -> Outcome {
    let mut player = Player::new(schedule, refuse);
    steps.iter().for_each(|&step| player.play(step));
    player.end()
}

/// Runs a program in every order. Returns the number of orders, whether it raced in one of them, and the
/// number of distinct results; `None` when there are more than `most` orders.
fn every_order(steps: &[Step], most: usize) -> Option<(usize, bool, usize)> {
    let orders = Orders::default();
    let (mut count, mut raced, mut results) = (0, false, BTreeSet::new());
    loop {
        let outcome = run(steps, Schedule::Every(orders.clone()), false);
        assert_eq!(outcome.raced, outcome.expected, "the checker and the model disagree: {steps:?}");
        raced |= outcome.raced;
        results.insert(outcome.bytes);
        count += 1;
        if !orders.next() {
            return Some((count, raced, results.len()));
        }
        if count == most {
            return None;
        }
    }
}

/// Checks that a program races exactly when two orders differ. Returns the number of orders and whether it
/// races.
fn judge(steps: &[Step], most: usize) -> Option<(usize, bool)> {
    let (count, raced, results) = every_order(steps, most)?;
    assert_eq!(raced, results > 1, "{count} orders, {results} results, race: {raced}: {steps:?}");
    Some((count, raced))
}

#[test]
fn all_programs_of_four_steps_race_exactly_when_two_orders_differ() {
    let steps: Vec<Step> = (0..2)
        .flat_map(|stream| {
            let other = 1 - stream;
            [
                Step::Write { stream, buffer: 0 },
                Step::Read { stream, buffer: 0 },
                Step::Record { stream, event: 0 },
                Step::Wait { stream, event: 0 },
                Step::WaitStream { stream, other },
                Step::Synchronize { stream },
            ]
        })
        .collect();
    let (mut programs, mut races) = (0, 0);
    // Streams are interchangeable, so the first step is on the first stream.
    for first in &steps[..6] {
        for rest in 0..steps.len().pow(3) {
            let nth = |place: u32| steps[rest / steps.len().pow(place) % steps.len()];
            let program = [*first, nth(0), nth(1), nth(2)];
            let accesses = program.iter().filter(|s| matches!(s, Step::Write { .. } | Step::Read { .. }));
            let writes = program.iter().filter(|s| matches!(s, Step::Write { .. }));
            if accesses.count() < 2 || writes.count() == 0 {
                // There is nothing to race with.
                continue;
            }
            let (_, raced) = judge(&program, 1000).unwrap();
            programs += 1;
            races += usize::from(raced);
        }
    }
    assert!(programs > 3000 && races > 1000 && races < programs * 2 / 3, "{races} of {programs} race");
}

#[test]
fn programs_of_eight_steps_on_three_streams_race_exactly_when_two_orders_differ() {
    let mut draw = Draw(0x5eed);
    let (mut races, mut clean, mut orders) = (0, 0, 0);
    for _ in 0..150 {
        let length = 5 + draw.below(4);
        let program = draw.program(length);
        match judge(&program, 2000) {
            Some((count, raced)) => {
                orders += count;
                *if raced { &mut races } else { &mut clean } += 1;
            }
            None => panic!("eight steps have no more orders than that: {program:?}"),
        }
    }
    assert!(races > 30 && clean > 30 && orders > 1500, "{races} race, {clean} do not, {orders} orders");
}

#[test]
fn admitted_programs_give_one_result_under_priorities() {
    let mut draw = Draw(0xacce_0000);
    for _ in 0..60 {
        let program = draw.program(60);
        let seeds = 0..16;
        let schedules = seeds.clone().map(Schedule::Priorities).chain(seeds.map(Schedule::Seed));
        // A query may answer differently, and then a different program is admitted.
        let program: Vec<Step> =
            program.into_iter().filter(|step| !matches!(step, Step::Query { .. })).collect();
        let results: BTreeSet<_> = schedules.map(|schedule| run(&program, schedule, true).bytes).collect();
        assert_eq!(results.len(), 1, "{program:?}");
    }
}

#[test]
fn an_allowed_race_changes_results_under_priorities() {
    let mut draw = Draw(0x0bad_5eed);
    let (mut racy, mut shown) = (0, 0);
    for _ in 0..60 {
        let program = draw.program(30);
        let outcomes: Vec<_> = (0..24).map(|seed| run(&program, Schedule::Priorities(seed), false)).collect();
        let raced = outcomes.iter().any(|outcome| outcome.raced);
        let differ = outcomes.iter().any(|outcome| outcome.bytes != outcomes[0].bytes);
        assert!(raced || !differ, "a result depends on the order, and no race was found: {program:?}");
        racy += usize::from(raced);
        shown += usize::from(differ);
    }
    assert!(racy > 50 && shown * 10 > racy * 9, "{shown} of {racy} races showed");
}
