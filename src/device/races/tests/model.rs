//! The checker against a model that keeps everything: for each access the full set of accesses that
//! are certain to be over before it, byte by byte.

use super::World;
use crate::base::Span;
use crate::device::DeviceId;
use crate::device::races::{Access, Site};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

const STREAMS: usize = 5;
const BYTES: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    /// By a stream, or by the host.
    Access(Option<usize>, u32, Range<u64>, Access),
    Record(u32, usize),
    Wait(usize, u32),
    WaitStream(usize, usize),
    HostStream(usize),
    HostEvent(u32),
    HostDevice(usize),
    DropEvent(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let bytes =
        prop_oneof![2 => Just(0..BYTES), 1 => (0..BYTES, 0..=BYTES).prop_map(|(a, b)| a.min(b)..a.max(b))];
    let stream = || 0..STREAMS;
    prop_oneof![
        10 => (prop::option::weighted(0.85, stream()), 0..2_u32, bytes, access)
            .prop_map(|(s, t, b, a)| Step::Access(s, t, b, a)),
        4 => (0..3_u32, stream()).prop_map(|(e, s)| Step::Record(e, s)),
        4 => (stream(), 0..3_u32).prop_map(|(s, e)| Step::Wait(s, e)),
        2 => (stream(), stream()).prop_map(|(s, o)| Step::WaitStream(s, o)),
        1 => stream().prop_map(Step::HostStream),
        1 => (0..3_u32).prop_map(Step::HostEvent),
        1 => (0..2_usize).prop_map(Step::HostDevice),
        1 => (0..3_u32).prop_map(Step::DropEvent),
    ]
}

/// Sets of access numbers that are over: for the next work of each stream, for the host, for those
/// who wait for an event.
#[derive(Default)]
struct Model {
    next: usize,
    streams: [BTreeSet<usize>; STREAMS],
    host: BTreeSet<usize>,
    events: HashMap<u32, BTreeSet<usize>>,
    /// Per tensor and byte: the last write, the reads since.
    bytes: HashMap<(u32, u64), (Option<usize>, Vec<usize>)>,
}

impl Model {
    fn access(&mut self, by: Option<usize>, tensor: u32, bytes: Range<u64>, access: Access) -> bool {
        let number = self.next;
        self.next += 1;
        let mut before = self.host.clone();
        if let Some(stream) = by {
            before.extend(&self.streams[stream]);
        }
        let mut race = false;
        for byte in bytes {
            let (write, reads) = self.bytes.entry((tensor, byte)).or_default();
            let open = |n: &usize| !before.contains(n);
            race |= match access {
                Access::Read => write.as_ref().is_some_and(open),
                Access::Write if reads.is_empty() => write.as_ref().is_some_and(open),
                Access::Write => reads.iter().any(open),
            };
            match access {
                Access::Read => reads.push(number),
                Access::Write => (*write, *reads) = (Some(number), Vec::new()),
            }
        }
        match by {
            // Later work of the stream comes after this, and after all that this came after.
            Some(stream) => {
                before.insert(number);
                self.streams[stream] = before;
            }
            None => {
                self.host.insert(number);
            }
        }
        race
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_verdicts_agree_with_a_model_that_forgets_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(2, STREAMS);
        let mut model = Model::default();
        let site = Site { name: "op", span: Span::NONE };
        for step in steps {
            match step {
                Step::Access(by, tensor, bytes, access) => {
                    let history = world.histories.entry(tensor).or_default();
                    let found = match by {
                        Some(s) => {
                            world.checker.access(&world.streams[s], history, bytes.clone(), access, site)
                        }
                        None => world.checker.host_access(history, bytes.clone(), access, site),
                    };
                    prop_assert_eq!(found.is_some(), model.access(by, tensor, bytes, access));
                }
                Step::Record(event, stream) => {
                    world.record(event, stream as u32);
                    model.events.insert(event, model.streams[stream].clone());
                }
                Step::Wait(stream, event) => {
                    world.wait(stream as u32, event);
                    let over = model.events.entry(event).or_default().clone();
                    model.streams[stream].extend(over);
                }
                Step::WaitStream(stream, other) => {
                    world.checker.wait_stream(&world.streams[stream], &world.streams[other]);
                    let over = model.streams[other].clone();
                    model.streams[stream].extend(over);
                }
                Step::HostStream(stream) => {
                    world.checker.host_wait_stream(&world.streams[stream]);
                    model.host.extend(&model.streams[stream]);
                }
                Step::HostEvent(event) => {
                    world.host_waits_event(event);
                    let over = model.events.entry(event).or_default().clone();
                    model.host.extend(over);
                }
                Step::HostDevice(device) => {
                    let id = world.devices[device].id();
                    world.checker.host_wait_device(id);
                    for s in (0..STREAMS).filter(|&s| world.streams[s].device() == id) {
                        model.host.extend(&model.streams[s]);
                    }
                }
                Step::DropEvent(event) => {
                    world.events.remove(&event);
                    model.events.remove(&event);
                }
            }
        }
        prop_assert!(world.devices[0].id() == DeviceId::Cuda(0));
    }
}
