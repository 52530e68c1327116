//! Agents and their vector clocks.

use super::counted::Total;
use super::{Stream, Where};
use crate::driver::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A dense number: the host is 0, streams follow in order of first use.
pub(super) type Agent = u32;

/// The host.
pub(super) const HOST: Agent = 0;

/// The work that a recorded event covers; nothing for a new event.
#[derive(Clone, Default, Debug)]
pub struct EventClock(Clock);

/// For each agent, the last of its epochs that is over. Missing entries are 0, and epochs of accesses start
/// at 1.
#[derive(Clone, Default, Debug)]
struct Clock(Vec<u64>);

impl Clock {
    fn get(&self, agent: Agent) -> u64 {
        self.0.get(agent as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, agent: Agent, value: u64) {
        let index = agent as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = value;
    }

    fn merge(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// Every agent with its clock.
///
/// Invariant: entry `a` of `clocks[a]` is the epoch that agent `a`'s next access gets, and no other
/// clock holds a value that large for `a`, except for the host's own.
pub(super) struct Agents {
    clocks: Vec<Clock>,
    places: Vec<Where>,
    /// Each agent's epoch counter; a stream's counter is shared by all checkers that use the stream.
    epochs: Vec<Arc<AtomicU64>>,
    /// Agents of streams: by device (the host's row first), then by stream number; 0 is unset.
    rows: Vec<Vec<Agent>>,
    /// The host memory of the histories that record these agents.
    pub(super) total: Total,
}

/// The knowledge of one agent, for comparing epochs.
pub(super) struct View<'a> {
    agent: Agent,
    own: &'a Clock,
    host: &'a Clock,
    total: &'a Total,
}

impl Default for Agents {
    fn default() -> Agents {
        let mut clock = Clock::default();
        clock.set(HOST, 1);
        Agents {
            clocks: vec![clock],
            places: vec![Where::Host],
            epochs: vec![Arc::default()],
            rows: Vec::new(),
            total: Total::default(),
        }
    }
}

/// The empty clock.
static NOTHING: Clock = Clock(Vec::new());

impl<'a> View<'a> {
    /// The agent.
    pub(super) fn agent(&self) -> Agent {
        self.agent
    }

    /// The view of another agent, restricted to what the host knows.
    pub(super) fn of(&self, agent: Agent) -> View<'a> {
        View { agent, own: &NOTHING, ..*self }
    }

    /// Counts the host memory of histories.
    pub(super) fn total(&self) -> &Total {
        self.total
    }

    /// The epoch of an access made now.
    pub(super) fn now(&self) -> u64 {
        self.own.get(self.agent)
    }

    /// True when an access is certain to be over before this agent's next one.
    pub(super) fn covers(&self, agent: Agent, clock: u64) -> bool {
        agent == self.agent || clock <= self.own.get(agent) || clock <= self.host.get(agent)
    }

    /// True when an access is over for the host, and therefore for every agent from now on.
    pub(super) fn settled(&self, agent: Agent, clock: u64) -> bool {
        clock <= self.host.get(agent)
    }
}

impl Agents {
    /// The agent of a stream.
    pub(super) fn of(&mut self, stream: &Stream) -> Agent {
        let row = stream.device().cuda_index().map_or(0, |i| i + 1);
        let column = stream.id() as usize;
        match self.rows.get(row).and_then(|r| r.get(column)) {
            Some(&agent) if agent != HOST => agent,
            _ => self.add(stream, row, column),
        }
    }

    /// The agent of a stream that was used before; the host for an unknown stream.
    pub(super) fn known(&self, stream: &Stream) -> Agent {
        let row = stream.device().cuda_index().map_or(0, |i| i + 1);
        self.rows.get(row).and_then(|r| r.get(stream.id() as usize)).copied().unwrap_or(HOST)
    }

    #[cold]
    fn add(&mut self, stream: &Stream, row: usize, column: usize) -> Agent {
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Vec::new);
        }
        if self.rows[row].len() <= column {
            self.rows[row].resize(column + 1, HOST);
        }
        let agent = self.clocks.len() as Agent;
        let mut clock = Clock::default();
        clock.set(agent, stream.epoch().load(Ordering::Relaxed));
        self.clocks.push(clock);
        self.epochs.push(stream.epoch().clone());
        self.places.push(Where::Stream(stream.device(), stream.id()));
        self.rows[row][column] = agent;
        agent
    }

    /// The place of an agent; an unknown agent (of a tensor from another session) counts as the host.
    pub(super) fn place(&self, agent: Agent) -> Where {
        self.places.get(agent as usize).copied().unwrap_or(Where::Host)
    }

    /// The numbers of the other streams of a device, with the last of their epochs that an agent's clock covers.
    pub(super) fn covered(&self, agent: Agent, device: DeviceId) -> impl Iterator<Item = (u32, u64)> {
        let clock = self.clocks.get(agent as usize).map_or(&[][..], |clock| &clock.0);
        let others =
            self.places.iter().zip(clock).enumerate().filter(move |(other, _)| *other != agent as usize);
        others.filter_map(move |(_, (place, &epoch))| match place {
            Where::Stream(of, number) if *of == device && epoch > 0 => Some((*number, epoch)),
            _ => None,
        })
    }

    pub(super) fn view(&self, agent: Agent) -> View<'_> {
        let host = &self.clocks[HOST as usize];
        View { agent, own: self.clocks.get(agent as usize).unwrap_or(host), host, total: &self.total }
    }

    /// Ends an agent's epoch, because another agent has received its clock.
    fn step(&mut self, agent: Agent) {
        let before = self.epochs[agent as usize].fetch_add(1, Ordering::Relaxed);
        self.clocks[agent as usize].set(agent, before + 1);
    }

    pub(super) fn record(&mut self, agent: Agent, event: &mut EventClock) {
        event.0.0.clone_from(&self.clocks[agent as usize].0);
        self.step(agent);
    }

    pub(super) fn merge_event(&mut self, to: Agent, event: &EventClock) {
        self.clocks[to as usize].merge(&event.0);
    }

    pub(super) fn merge_agent(&mut self, to: Agent, from: Agent) {
        if to != from {
            let clock = std::mem::take(&mut self.clocks[from as usize]);
            self.clocks[to as usize].merge(&clock);
            self.clocks[from as usize] = clock;
            self.step(from);
        }
    }

    pub(super) fn merge_device(&mut self, device: DeviceId) {
        for agent in 1..self.clocks.len() as Agent {
            if matches!(self.places[agent as usize], Where::Stream(d, _) if d == device) {
                self.merge_agent(HOST, agent);
            }
        }
    }
}
