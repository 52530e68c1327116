//! If the race checker admits a program, every schedule gives the same bytes. Tested with random programs of
//! fills, copies, events, waits and frees on emulated devices that run their queues in seeded orders.

use crate::base::Span;
use crate::device::*;
use crate::driver::*;
use crate::stream::races::{Access, Checker, History, Region, Site, Touch, Watched};
use crate::stream::*;
use proptest::prelude::*;
use std::sync::Arc;

const STREAMS: usize = 4;
const BUFFERS: usize = 3;
const SIZE: u64 = 96;
const SEEDS: u64 = 5;

#[derive(Clone, Debug)]
enum Step {
    Fill {
        stream: usize,
        buffer: usize,
        from: u64,
        to: u64,
        value: u8,
    },
    Copy {
        stream: usize,
        from: usize,
        to: usize,
    },
    Record {
        stream: usize,
        event: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    WaitStream {
        stream: usize,
        other: usize,
    },
    Synchronize {
        stream: usize,
    },
    /// Drops the buffer, allocates a new one on one stream and fills it on another.
    Renew {
        stream: usize,
        buffer: usize,
        by: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || 0..STREAMS;
    let buffer = || 0..BUFFERS;
    prop_oneof![
        6 => (stream(), buffer(), 0..SIZE, 0..=SIZE, any::<u8>()).prop_map(|(stream, buffer, a, b, value)| {
            Step::Fill { stream, buffer, from: a.min(b), to: a.max(b), value }
        }),
        6 => (stream(), buffer(), buffer()).prop_map(|(stream, from, to)| Step::Copy { stream, from, to }),
        3 => (stream(), 0..2_usize).prop_map(|(stream, event)| Step::Record { stream, event }),
        3 => (stream(), 0..2_usize).prop_map(|(stream, event)| Step::Wait { stream, event }),
        3 => (stream(), stream()).prop_map(|(stream, other)| Step::WaitStream { stream, other }),
        1 => stream().prop_map(|stream| Step::Synchronize { stream }),
        4 => (stream(), buffer(), stream()).prop_map(|(stream, buffer, by)| Step::Renew { stream, buffer, by }),
    ]
}

/// A buffer on device 0 or 1, and its history.
struct Buffer {
    block: Block,
    history: Watched,
}

/// Two devices with two streams each, and buffers that all streams use.
struct Player {
    machine: Arc<Machine>,
    streams: Vec<Arc<Stream>>,
    buffers: Vec<Buffer>,
    events: Vec<Event>,
    checker: Checker,
    refuse: bool,
}

impl Player {
    fn new(seed: u64, refuse: bool) -> Player {
        let config = Config {
            backend: Backend::Emu,
            devices: Some(2),
            device_memory: Some(64 << 20),
            schedule: Some(Schedule::Seed(seed)),
            ..Config::default()
        };
        let machine = Machine::open(&config).unwrap();
        let device = |i| machine.device(DeviceId::Cuda(i)).unwrap();
        let streams: Vec<_> = [0, 1]
            .into_iter()
            .flat_map(|i| [device(i).default_stream().clone(), device(i).stream(0).unwrap()])
            .collect();
        let events = vec![Event::new(EventFlags::default()), Event::new(EventFlags::default())];
        let mut player =
            Player { streams, buffers: Vec::new(), events, checker: Checker::new(), refuse, machine };
        for index in 0..BUFFERS {
            let buffer = player.make(index % STREAMS, index % STREAMS);
            player.buffers.push(buffer);
        }
        player
    }

    /// A zeroed buffer, allocated on a stream and filled on `by`, or on the same stream if that would race.
    fn make(&mut self, stream: usize, by: usize) -> Buffer {
        let (stream, by) = (&self.streams[stream].clone(), &self.streams[by].clone());
        let device = self.machine.device(stream.device()).unwrap();
        let block = device.alloc(SIZE, stream, Span::NONE).unwrap();
        let mut history = History::new();
        let site = Site { name: "fill_", span: Span::NONE };
        if let Some(epoch) = block.freed_at() {
            self.checker.reuse(stream, &mut history, SIZE, epoch, site);
        }
        let by = if by.device() == stream.device() { by } else { stream };
        let history = Watched::from(history);
        let all = |history| [Touch { history, region: Region::from(0..SIZE), access: Access::Write }];
        let races = self.checker.admit(Some(by), &all(&history), site);
        let by = if races.is_empty() || !self.refuse { by } else { stream };
        self.checker.access(Some(by), &mut history.lock(), 0..SIZE, Access::Write, site);
        block.used_on(by);
        by.driver().fill(block.ptr(), 0, 1, SIZE, by.handle()).unwrap();
        Buffer { block, history }
    }

    fn may(&mut self, stream: usize, buffer: usize, from: u64, to: u64, access: Access) -> bool {
        let site = Site { name: "op", span: Span::NONE };
        let (stream, buffer) = (&self.streams[stream], &mut self.buffers[buffer]);
        let touch = Touch { history: &buffer.history, region: Region::from(from..to), access };
        let races = self.checker.admit(Some(stream), &[touch], site);
        buffer.block.used_on(stream);
        races.is_empty() || !self.refuse
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Fill { stream, buffer, from, to, value } => {
                if from < to && self.may(stream, buffer, from, to, Access::Write) {
                    let (stream, ptr) = (&self.streams[stream], self.buffers[buffer].block.ptr());
                    let driver = stream.driver();
                    driver.fill(ptr + from, value.into(), 1, to - from, stream.handle()).unwrap();
                }
            }
            Step::Copy { stream, from, to } => {
                if from != to
                    && self.may(stream, from, 0, SIZE, Access::Read)
                    && self.may(stream, to, 0, SIZE, Access::Write)
                {
                    let (source, target) = (&self.buffers[from].block, &self.buffers[to].block);
                    let stream = &self.streams[stream];
                    let peer = source.device().id().cuda_index().unwrap() as u32;
                    let kind = CopyKind::FromPeer(peer);
                    stream.driver().copy(target.ptr(), source.ptr(), SIZE, kind, stream.handle()).unwrap();
                }
            }
            Step::Record { stream, event } => {
                // An event is bound to one device, so another event takes its place.
                let stream = &self.streams[stream];
                if self.events[event].device().is_some_and(|d| d != stream.device()) {
                    self.events[event] = Event::new(EventFlags::default());
                }
                self.events[event].record(stream).unwrap();
                self.checker.record(&mut self.events[event].clock(), stream);
            }
            Step::Wait { stream, event } => {
                self.events[event].wait(&self.streams[stream]).unwrap();
                self.checker.wait(&self.streams[stream], &self.events[event].clock());
                self.checker.publish(&self.streams[stream]);
            }
            Step::WaitStream { stream, other } => {
                self.streams[stream].wait_stream(&self.streams[other]).unwrap();
                self.checker.wait_stream(&self.streams[stream], &self.streams[other]);
                self.checker.publish(&self.streams[stream]);
            }
            Step::Synchronize { stream } => {
                self.streams[stream].synchronize().unwrap();
                self.checker.host_wait_stream(&self.streams[stream]);
            }
            Step::Renew { stream, buffer, by } => {
                self.buffers.remove(buffer);
                let renewed = self.make(stream, by);
                self.buffers.insert(buffer, renewed);
            }
        }
    }

    /// The bytes of all buffers after everything has run.
    fn bytes(&self) -> Vec<u8> {
        self.machine.opened().for_each(|d| d.synchronize().unwrap());
        let mut all = Vec::new();
        for Buffer { block, .. } in &self.buffers {
            let mut bytes = vec![0_u8; SIZE as usize];
            let stream = block.device().default_stream();
            let (driver, to) = (stream.driver(), bytes.as_mut_ptr() as u64);
            driver.copy(to, block.ptr(), SIZE, CopyKind::DeviceToHost, stream.handle()).unwrap();
            stream.synchronize().unwrap();
            all.extend(bytes);
        }
        all
    }
}

fn outcomes(steps: &[Step], refuse: bool, seeds: u64) -> Vec<Vec<u8>> {
    let play = |seed| {
        let mut player = Player::new(seed, refuse);
        steps.iter().for_each(|step| player.play(step));
        player.bytes()
    };
    (0..seeds).map(play).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_admitted_gives_the_same_bytes_under_every_schedule(
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let outcomes = outcomes(&steps, true, SEEDS);
        for outcome in &outcomes[1..] {
            prop_assert_eq!(outcome, &outcomes[0]);
        }
    }
}

#[test]
fn a_race_that_is_allowed_differs_under_some_schedule() {
    // Two unordered streams fill one buffer: the checker's refusal matters.
    let fill = |stream, value| Step::Fill { stream, buffer: 0, from: 0, to: SIZE, value };
    let mut steps: Vec<Step> = vec![Step::Synchronize { stream: 0 }];
    steps.extend((1..9).map(|i| fill(i % 2, i as u8)));
    let allowed = outcomes(&steps, false, SEEDS);
    assert!(allowed.iter().any(|o| *o != allowed[0]), "no schedule showed the race");
    let refused = outcomes(&steps, true, SEEDS);
    assert!(refused.iter().all(|o| *o == refused[0]));
}

#[test]
fn memory_that_is_used_again_on_another_stream_is_a_race() {
    // The first owner's fill may still be queued on stream 0 when stream 1 fills the buffer for the next
    // owner.
    let old = Step::Fill { stream: 0, buffer: 0, from: 0, to: SIZE, value: 9 };
    let steps = [Step::Synchronize { stream: 0 }, old, Step::Renew { stream: 0, buffer: 0, by: 1 }];
    let allowed = outcomes(&steps, false, 30);
    assert!(allowed.iter().any(|o| *o != allowed[0]), "no schedule showed the race");
    let refused = outcomes(&steps, true, 30);
    assert!(refused.iter().all(|o| *o == refused[0]));
    // With a wait there is no race.
    let mut player = Player::new(0, true);
    steps[..2].iter().for_each(|step| player.play(step));
    player.play(&Step::WaitStream { stream: 1, other: 0 });
    player.buffers.remove(0);
    let next = player.make(0, 1);
    let (stream, site) = (&player.streams[1], Site { name: "fill_", span: Span::NONE });
    let mut history = next.history.lock();
    assert!(player.checker.access(Some(stream), &mut history, 0..SIZE, Access::Write, site).is_none());
}
