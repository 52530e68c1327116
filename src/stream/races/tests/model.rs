//! The checker compared with a model that stores everything: for each access the full set of accesses certain
//! to be over before it, byte by byte.

#![cfg(test)]

use super::World;
use crate::array::Layout;
use crate::base::Span;
use crate::stream::races::{Access, Region, Site, Touch};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

const STREAMS: usize = 5;
const BYTES: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    /// By a stream, or by the host.
    Access(Option<usize>, u32, Layout, Access),
    /// Accesses by one stream to one tensor.
    Burst(usize, u32, Vec<(Layout, Access)>),
    Record(u32, usize),
    Wait(usize, u32),
    WaitStream(usize, usize),
    HostStream(usize),
    HostEvent(u32),
    HostDevice(usize),
    DropEvent(u32),
}

/// A run of bytes, or columns of a matrix with one of these row lengths.
fn view(steps: &'static [usize]) -> impl Strategy<Value = Layout> {
    let all = BYTES as usize;
    let layout = |offset: usize, shape: [usize; 2], step: usize| Layout {
        shape: shape.as_slice().into(),
        strides: [step as isize, 1].as_slice().into(),
        offset,
    };
    let run = (0..all, 0..=all).prop_map(move |(a, b)| layout(a.min(b), [1, a.abs_diff(b)], 0));
    let columns = (prop::sample::select(steps), 1..=all, 0..all, 1..all);
    let columns = columns.prop_map(move |(step, rows, offset, width)| {
        let width = width.min(step);
        let offset = offset.min(all - width);
        let rows = rows.min((all - offset - width) / step + 1);
        layout(offset, [rows, width], step)
    });
    prop_oneof![2 => Just(layout(0, [1, all], 0)), 1 => run, 2 => columns]
}

fn step(steps: &'static [usize]) -> impl Strategy<Value = Step> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let stream = || 0..STREAMS;
    prop_oneof![
        10 => (prop::option::weighted(0.85, stream()), 0..2_u32, view(steps), access)
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

/// Steps with more accesses of one stream than wait before they are applied to ranges.
fn bursts() -> impl Strategy<Value = Vec<Step>> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let burst = (0..STREAMS, 0..2_u32, prop::collection::vec((view(&[4]), access), 1..200))
        .prop_map(|(stream, tensor, all)| Step::Burst(stream, tensor, all));
    prop::collection::vec(prop_oneof![1 => burst, 6 => step(&[4])], 1..30)
}

/// Sets of access numbers that are over: for the next work of each stream, for the host, and for waiters of
/// each event.
#[derive(Default)]
struct Model {
    next: usize,
    streams: [BTreeSet<usize>; STREAMS],
    host: BTreeSet<usize>,
    events: HashMap<u32, BTreeSet<usize>>,
    /// Per tensor and byte: the last write, and the reads since.
    bytes: HashMap<(u32, u64), (Option<usize>, Vec<usize>)>,
}

impl Model {
    /// The accesses that are over before the next access of a stream or of the host.
    fn before(&self, by: Option<usize>) -> BTreeSet<usize> {
        let own = by.into_iter().flat_map(|stream| &self.streams[stream]);
        self.host.iter().chain(own).copied().collect()
    }

    /// Returns whether an access would race.
    fn races(&self, by: Option<usize>, tensor: u32, view: &Layout, access: Access) -> bool {
        let before = self.before(by);
        let open = |n: &usize| !before.contains(n);
        bytes(view).filter_map(|byte| self.bytes.get(&(tensor, byte))).any(|(write, reads)| match access {
            Access::Write if !reads.is_empty() => reads.iter().any(open),
            _ => write.as_ref().is_some_and(open),
        })
    }

    /// Adds an access to the history.
    fn note(&mut self, by: Option<usize>, tensor: u32, view: &Layout, access: Access) {
        let number = self.next;
        self.next += 1;
        for byte in bytes(view) {
            let (write, reads) = self.bytes.entry((tensor, byte)).or_default();
            match access {
                Access::Read => reads.push(number),
                Access::Write => (*write, *reads) = (Some(number), Vec::new()),
            }
        }
        // Later work of the stream comes after this access and after everything before it.
        let mut over = self.before(by);
        over.insert(number);
        match by {
            Some(stream) => self.streams[stream] = over,
            None => self.host = over,
        }
    }
}

/// The bytes of a view with rows.
fn bytes(view: &Layout) -> impl Iterator<Item = u64> {
    let (rows, columns, step) = (view.shape[0], view.shape[1], view.strides[0] as usize);
    let first = view.offset;
    (0..rows).flat_map(move |r| (0..columns).map(move |c| (first + r * step + c) as u64))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_verdicts_agree_with_a_model_that_forgets_nothing(
        steps in prop::collection::vec(step(&[4]), 1..60),
    ) {
        run(&steps, false, true)?;
        run(&steps, true, true)?;
    }

    /// Runs at two distances are distinguished less precisely, but no race is missed if the reported ones are
    /// refused.
    #[test]
    fn no_race_is_missed(steps in prop::collection::vec(step(&[3, 4, 5]), 1..60)) {
        run(&steps, true, false)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn verdicts_do_not_depend_on_how_many_accesses_wait(steps in bursts()) {
        run(&steps, true, true)?;
    }
}

/// Runs a program on the checker and the model, and compares their verdicts. They must be equal or, if
/// `exact` is not set, the checker must find every race. Racing accesses are recorded, or refused.
fn run(steps: &[Step], refuse: bool, exact: bool) -> Result<(), TestCaseError> {
    let mut world = World::new(2, STREAMS);
    let mut model = Model::default();
    let site = Site { name: "op", span: Span::NONE };
    let single = |step: &Step| match step {
        Step::Burst(stream, tensor, all) => all
            .iter()
            .map(|(view, access)| Step::Access(Some(*stream), *tensor, view.clone(), *access))
            .collect(),
        step => vec![step.clone()],
    };
    for step in steps.iter().flat_map(single) {
        match step {
            Step::Burst(..) => {}
            Step::Access(by, tensor, view, access) => {
                let history = world.histories.entry(tensor).or_default();
                let region = Region::of(&view, 1);
                let expected = model.races(by, tensor, &view, access);
                let stream = by.map(|s| &*world.streams[s]);
                let found = match refuse {
                    true => {
                        let touch = Touch { history, region, access };
                        !world.checker.admit(stream, &[touch], site).is_empty()
                    }
                    false => {
                        world.checker.access(stream, &mut history.lock(), region, access, site).is_some()
                    }
                };
                let agree = found == expected || (!exact && found);
                prop_assert!(agree, "{found}, expected {expected}");
                if !(refuse && found) {
                    model.note(by, tensor, &view, access);
                }
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
    Ok(())
}
