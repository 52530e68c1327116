//! Which operations are certainly ordered before which: complete sets of operations.

use super::model::View;

/// An agent that runs operations: a stream by number, or the host.
pub type Agent = usize;
/// The host.
pub const HOST: Agent = usize::MAX;

/// An access of an operation to a tensor.
struct Access {
    op: u32,
    storage: usize,
    write: bool,
    numbers: Vec<usize>,
    run: Option<(usize, usize)>,
}

/// Sets of operations as bits.
pub struct Order {
    ops: Vec<Agent>,
    /// The operations completed before the next operation of each stream, and of the host.
    streams: Vec<u128>,
    host: u128,
    accesses: Vec<Access>,
}

/// The races of an operation.
#[derive(Default)]
pub struct Needs {
    /// Streams to wait for, so that no race is possible.
    pub waits: Vec<Agent>,
    /// There is certainly a race if none of them is waited for: two accesses share a position.
    pub certain: bool,
}

impl Order {
    /// Maximum number of operations.
    pub const MOST: usize = 120;

    pub fn new(streams: usize) -> Order {
        Order { ops: Vec::new(), streams: vec![0; streams], host: 0, accesses: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    fn before(&self, agent: Agent) -> u128 {
        if agent == HOST { self.host } else { self.streams[agent] | self.host }
    }

    /// The waits that an operation of an agent needs; `also`: another agent whose work is already ordered.
    pub fn needs(&self, agent: Agent, also: Option<Agent>, touches: &[(&View, bool)]) -> Needs {
        let mut needs = Needs::default();
        let before = self.before(agent) | also.map_or(0, |other| self.before(other));
        for (view, write) in touches.iter().filter(|(view, _)| view.count() > 0) {
            let numbers = view.numbers();
            for old in self.accesses.iter().filter(|old| old.storage == view.storage) {
                if !(old.write || *write) || before >> old.op & 1 == 1 {
                    continue;
                }
                let meets = numbers.iter().any(|number| old.numbers.contains(number));
                // Only contiguous ranges are compared exactly.
                let apart = match (old.run, view.run()) {
                    (Some(a), Some(b)) => a.1 <= b.0 || b.1 <= a.0,
                    _ => false,
                };
                needs.certain |= meets;
                let waits = &mut needs.waits;
                let other = self.ops[old.op as usize];
                if !apart && !waits.contains(&other) {
                    waits.push(other);
                }
            }
        }
        needs
    }

    /// An operation of an agent. Accesses that are not certain make no race certain.
    pub fn run(&mut self, agent: Agent, touches: &[(&View, bool)], is_certain: bool) {
        let op = self.ops.len() as u32;
        self.ops.push(agent);
        for (view, write) in touches.iter().filter(|(view, _)| view.count() > 0) {
            let numbers = if is_certain { view.numbers() } else { Vec::new() };
            let (storage, run) = (view.storage, view.run());
            self.accesses.push(Access { op, storage, write: *write, numbers, run });
        }
        match agent {
            HOST => self.host |= 1 << op,
            stream => self.streams[stream] |= 1 << op,
        }
    }

    pub fn wait_stream(&mut self, stream: Agent, other: Agent) {
        self.streams[stream] |= self.before(other);
    }

    /// The host waits for a stream.
    pub fn synchronize(&mut self, stream: Agent) {
        self.host |= self.before(stream);
    }

    /// The operations covered by an event recorded now.
    pub fn event(&self, stream: Agent) -> u128 {
        self.before(stream)
    }

    /// A stream, or the host, waits for an event.
    pub fn wait_event(&mut self, agent: Agent, event: u128) {
        match agent {
            HOST => self.host |= event,
            stream => self.streams[stream] |= event,
        }
    }
}
