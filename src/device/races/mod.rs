//! The race checker: which accesses are ordered, by vector clocks.
//!
//! Agents are the streams of all devices, keyed by (device, stream), and the host. Each agent has a
//! clock: for every agent, how much of that agent's work is certain to be over before the next
//! thing this agent does. Events, waits and synchronisation carry clocks from agent to agent.
//! An access is remembered as an epoch (agent, value of its own clock entry), so that "is it ordered
//! before?" is one comparison. An agent's own entry steps forward whenever somebody takes over its
//! clock: what it does afterwards was not covered.
//!
//! The rules, as PyTorch's stream sanitizer has them:
//! - a read is compared with the last write only;
//! - a write is compared with every read since the last write, or with the last write if nothing
//!   was read since;
//! - an access that was reported becomes part of the history all the same;
//! - host synchronisation orders every stream, also those made later, after the point waited for.
//!
//! The last rule follows from the host's own clock: a launch comes after everything the host knew
//! when it made the launch. Therefore the host's clock is looked up beside the stream's, and a
//! wait on the host costs one merge, however many streams there are.
//!
//! What the host itself did is over for everybody, so it is noted only where it hides what streams did:
//! on memory that only the host uses, nothing is noted at all.
//!
//! Memory that is reused: the allocator gives a freed block only to the stream it was allocated on,
//! and after every other stream that used it has passed its last use. What its own stream still does
//! with it comes before whatever that stream does with the new owner, and is a race with the work of
//! any other stream ([`Checker::reuse`]).
//!
//! Knows nothing of drivers: it is told what was queued, in the order of the calls.

mod clock;
mod history;
mod region;

pub use clock::EventClock;
pub use history::History;
pub use region::Region;

use super::{DeviceId, Stream};
use crate::base::Span;
use clock::{Agent, Agents, HOST, View};
use history::Mark;
use parking_lot::Mutex;

/// What an access does to its bytes. An operation that changes memory in place writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It reads them.
    Read,
    /// It writes them, and may read them too.
    Write,
}

/// Who makes an access, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The operation, as users write it: `normal_`.
    pub name: &'static str,
    /// Its source text.
    pub span: Span,
}

/// Where an access ran.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Where {
    /// On the host, at the time of the call.
    Host,
    /// On a stream: its device and its number there ([`Stream::id`]).
    Stream(DeviceId, u32),
}

/// An earlier access that nothing orders before the one that was asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The earlier operation.
    pub site: Site,
    /// What it did.
    pub access: Access,
    /// Where it ran.
    pub place: Where,
}

/// The clocks of one session. Shared by all its threads; a call holds its lock for some tens of
/// nanoseconds, and takes no other lock.
#[derive(Default)]
pub struct Checker {
    agents: Mutex<Agents>,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Notes an access by work that is being queued on a stream, and returns an earlier access it
    /// races with (the newest, if several). `bytes` are offsets in the storage, a range or the
    /// [`Region`] of a view; none of them: no access.
    pub fn access(
        &self,
        stream: &Stream,
        history: &mut History,
        bytes: impl Into<Region>,
        access: Access,
        site: Site,
    ) -> Option<Conflict> {
        let mut agents = self.agents.lock();
        let agent = agents.of(stream);
        stream.works_at(agents.view(agent).now());
        agents.access(agent, history, bytes.into(), access, site)
    }

    /// As [`Checker::access`], but an access that races is refused: it does not happen, and leaves
    /// no trace in the history.
    pub fn admit(
        &self,
        stream: Option<&Stream>,
        history: &mut History,
        bytes: impl Into<Region>,
        access: Access,
        site: Site,
    ) -> Option<Conflict> {
        if stream.is_none() && history.is_untouched() {
            return None;
        }
        let mut agents = self.agents.lock();
        let agent = stream.map_or(HOST, |s| agents.of(s));
        let (view, now) = agents.now(agent, site);
        if let Some(stream) = stream {
            stream.works_at(now.clock);
        }
        let found = history.admit(bytes.into(), access, now, &view);
        found.map(|(mark, access)| agents.conflict(mark, access))
    }

    /// A storage has got memory that work of the stream it was allocated on, up to `epoch`, may still use
    /// ([`Block::freed_at`](super::Block::freed_at)). That counts as a write there, by `site`.
    pub fn reuse(&self, stream: &Stream, history: &mut History, bytes: u64, epoch: u64, site: Site) {
        let mut agents = self.agents.lock();
        let agent = agents.of(stream);
        let view = agents.view(HOST);
        if !view.covers(agent, epoch) {
            let before = Mark { site, clock: epoch, agent };
            history.note(Region::from(0..bytes), Access::Write, before, &view);
        }
    }

    /// As [`Checker::access`], by the host itself, now: reading or writing a pinned buffer that
    /// copies may still use.
    pub fn host_access(
        &self,
        history: &mut History,
        bytes: impl Into<Region>,
        access: Access,
        site: Site,
    ) -> Option<Conflict> {
        if history.is_untouched() {
            return None;
        }
        self.agents.lock().access(HOST, history, bytes.into(), access, site)
    }

    /// An event is recorded on a stream: it covers everything queued there so far. Replaces what
    /// the event covered before.
    pub fn record(&self, event: &mut EventClock, stream: &Stream) {
        let mut agents = self.agents.lock();
        let agent = agents.of(stream);
        agents.record(agent, event);
    }

    /// A stream waits for an event; an event that was never recorded orders nothing.
    pub fn wait(&self, stream: &Stream, event: &EventClock) {
        let mut agents = self.agents.lock();
        let agent = agents.of(stream);
        agents.merge_event(agent, event);
    }

    /// A stream waits for everything queued on another one so far.
    pub fn wait_stream(&self, stream: &Stream, other: &Stream) {
        let mut agents = self.agents.lock();
        let (to, from) = (agents.of(stream), agents.of(other));
        agents.merge_agent(to, from);
    }

    /// The host has waited for a stream, or a query of it was true.
    pub fn host_wait_stream(&self, stream: &Stream) {
        let mut agents = self.agents.lock();
        let from = agents.of(stream);
        agents.merge_agent(HOST, from);
    }

    /// The host has waited for an event, or a query of it was true.
    pub fn host_wait_event(&self, event: &EventClock) {
        self.agents.lock().merge_event(HOST, event);
    }

    /// The host has waited for every stream of a device.
    pub fn host_wait_device(&self, device: DeviceId) {
        self.agents.lock().merge_device(device);
    }
}

impl Agents {
    fn access(
        &self,
        agent: Agent,
        history: &mut History,
        region: Region,
        access: Access,
        site: Site,
    ) -> Option<Conflict> {
        let (view, now) = self.now(agent, site);
        let found = history.note(region, access, now, &view);
        found.map(|(mark, access)| self.conflict(mark, access))
    }

    /// What an agent knows, and the mark of an access it makes.
    fn now(&self, agent: Agent, site: Site) -> (View<'_>, Mark) {
        let view = self.view(agent);
        let now = Mark { site, clock: view.now(), agent };
        (view, now)
    }

    fn conflict(&self, mark: Mark, access: Access) -> Conflict {
        Conflict { site: mark.site, access, place: self.place(mark.agent) }
    }
}

#[cfg(test)]
mod tests;
