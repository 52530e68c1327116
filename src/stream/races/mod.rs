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
//! any other stream ([`Checker::reuse`]): one that tells itself ([`Conflict::is_reuse`]), since no script chose the block.
//!
//! Knows nothing of drivers: it is told what was queued, in the order of the calls.

mod clock;
mod history;
mod region;

pub use clock::EventClock;
pub use history::History;
pub use region::Region;

use crate::base::Span;
use crate::driver::DeviceId;
use crate::stream::Stream;
use clock::{Agent, Agents, HOST, View};
use history::Mark;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};

/// The epoch of work that is being queued; see [`Checker::reuse`].
pub const NOW: u64 = u64::MAX;

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

/// A history that several look at.
#[derive(Default)]
pub struct Watched {
    /// Somebody may have noted something.
    noted: AtomicBool,
    history: Mutex<History>,
}

impl From<History> for Watched {
    #[inline(always)]
    fn from(history: History) -> Watched {
        Watched { noted: AtomicBool::new(true), history: Mutex::new(history) }
    }
}

impl Watched {
    /// The history, to note something.
    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.noted.store(true, Ordering::Relaxed);
        self.history.lock()
    }

    /// True when no stream's access is remembered; without the lock when nobody ever had it.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        !self.noted.load(Ordering::Relaxed) || self.history.lock().is_untouched()
    }
}

/// One access of an operation.
pub struct Touch<'a> {
    /// What happened to the storage.
    pub history: &'a Watched,
    /// Which of its bytes.
    pub region: Region,
    /// What the operation does to them.
    pub access: Access,
}

/// An earlier access that nothing orders before the one that was asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// What was asked for.
    pub wanted: Access,
    /// Which of the touches asked for it, by its number.
    pub touch: usize,
    /// The earlier operation.
    pub site: Site,
    /// What it did.
    pub access: Access,
    /// Where it ran.
    pub place: Where,
    /// True when it is no access of this owner, but whatever the stream may still do with the memory for its last
    /// one; `site` is where the memory was taken.
    pub is_reuse: bool,
}

/// A history that an operation being admitted has locked, or a reference to that of an earlier touch.
struct Held<'a> {
    guard: Option<MutexGuard<'a, History>>,
    /// Which touch holds the guard.
    of: usize,
}

/// The clocks of one session, which is one thread at a time: so they need no lock.
#[derive(Default)]
pub struct Checker {
    agents: Agents,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Notes an access by work that is being queued on a stream, or that the host does now, and returns
    /// an earlier access it races with (the newest, if several). `bytes` are offsets in the storage, a
    /// range or the [`Region`] of a view; none of them: no access. Unlike [`Checker::admit`] it keeps the
    /// access that races, as the sanitizer does whose cases the tests port.
    #[cfg(test)]
    pub fn access(
        &mut self,
        stream: Option<&Stream>,
        history: &mut History,
        bytes: impl Into<Region>,
        access: Access,
        site: Site,
    ) -> Option<Conflict> {
        if stream.is_none() && history.is_untouched() {
            return None;
        }
        let (view, now) = self.now(stream, site);
        let found = history.note(bytes.into(), access, now, &view);
        found.map(|(mark, earlier)| self.agents.conflict((access, 0), mark, earlier))
    }

    /// Notes the accesses of one operation, unless one of them races: then the operation is refused, and
    /// leaves no trace in any history. Returns the races of a refused operation, at most one per
    /// stream, and no more than it takes: waiting for those streams orders all the others too.
    pub fn admit(&mut self, stream: Option<&Stream>, touches: &[Touch<'_>], site: Site) -> Vec<Conflict> {
        let (view, now) = self.now(stream, site);
        let by_host = stream.is_none();
        let mut held: SmallVec<[Held<'_>; 4]> = SmallVec::new();
        for touch in touches {
            // Each history is locked once; an operation may touch one several times.
            let same = |&at: &usize| std::ptr::eq(touches[at].history, touch.history);
            let of = (0..held.len()).find(same).unwrap_or(held.len());
            let guard = (of == held.len()).then(|| touch.history.lock());
            held.push(Held { guard, of });
            let Some(history) = &held[of].guard else { continue };
            if by_host && history.is_untouched() || history.is_free(touch.region, touch.access, &view) {
                continue;
            }
            drop(held);
            return self.least(stream, touches);
        }
        for (i, touch) in touches.iter().enumerate() {
            let of = held[i].of;
            let Some(history) = &mut held[of].guard else { continue };
            if !(by_host && history.is_untouched()) {
                history.note_free(touch.region, touch.access, now, &view);
            }
        }
        Vec::new()
    }

    /// The history of a new storage, all of whose `bytes`, at least one, a stream writes: that races with nothing.
    #[inline(always)]
    pub fn begin(&mut self, stream: &Stream, bytes: u64, site: Site) -> Watched {
        let (_, now) = self.now(Some(stream), site);
        Watched::from(History::begun(bytes, now))
    }

    /// Of the races that an operation would have, those whose streams it has to wait for.
    #[cold]
    fn least(&self, stream: Option<&Stream>, touches: &[Touch<'_>]) -> Vec<Conflict> {
        let agent = stream.map_or(HOST, |s| self.agents.known(s));
        let view = self.agents.view(agent);
        let mut open: Vec<((Access, usize), Mark, Access)> = Vec::new();
        for (number, touch) in touches.iter().enumerate() {
            let history = touch.history.lock();
            history.open(touch.region, touch.access, &view, &mut |mark, earlier| {
                open.push(((touch.access, number), mark, earlier));
            });
        }
        // The later places in the source first, as far as that tells: they are what users look for. An
        // operation that reads and writes a tensor writes it.
        open.sort_by_key(|((wanted, _), mark, _)| {
            (std::cmp::Reverse(mark.site.span.lo), *wanted == Access::Read)
        });
        let mut agents: SmallVec<[Agent; 4]> = SmallVec::new();
        for (_, mark, _) in &open {
            if !agents.contains(&mark.agent) {
                agents.push(mark.agent);
            }
        }
        // A stream need not be waited for when another that is waited for has waited for it.
        for candidate in agents.clone() {
            let implied = |mark: &Mark| {
                let others = agents.iter().filter(|&&a| a != candidate);
                others.clone().any(|&a| self.agents.view(a).covers(mark.agent, mark.clock))
            };
            if open.iter().filter(|(_, mark, _)| mark.agent == candidate).all(|(_, mark, _)| implied(mark)) {
                agents.retain(|a| *a != candidate);
            }
        }
        let of = |agent: &Agent| open.iter().find(|(_, mark, _)| mark.agent == *agent);
        let races = agents.iter().filter_map(of);
        races.map(|&(wanted, mark, earlier)| self.agents.conflict(wanted, mark, earlier)).collect()
    }

    /// What a stream or the host knows, and the mark of an access it makes now.
    fn now(&mut self, stream: Option<&Stream>, site: Site) -> (View<'_>, Mark) {
        let agent = stream.map_or(HOST, |s| self.agents.of(s));
        let view = self.agents.view(agent);
        let now = Mark { site, clock: view.now(), agent, is_reuse: false };
        if let Some(stream) = stream {
            stream.works_at(now.clock);
        }
        (view, now)
    }

    /// A storage has got memory that work of the stream it was allocated on, up to `epoch`, may still use
    /// (`Block::freed_at`). That counts as a write there; `site` takes the memory.
    pub fn reuse(&mut self, stream: &Stream, history: &mut History, bytes: u64, epoch: u64, site: Site) {
        let agents = &mut self.agents;
        let agent = agents.of(stream);
        let epoch = match epoch {
            NOW => agents.view(agent).now(),
            epoch => epoch,
        };
        let view = agents.view(HOST);
        if !view.covers(agent, epoch) {
            let before = Mark { site, clock: epoch, agent, is_reuse: true };
            history.note(Region::from(0..bytes), Access::Write, before, &view);
        }
    }

    /// An event is recorded on a stream: it covers everything queued there so far. Replaces what
    /// the event covered before.
    pub fn record(&mut self, event: &mut EventClock, stream: &Stream) {
        let agents = &mut self.agents;
        let agent = agents.of(stream);
        agents.record(agent, event);
    }

    /// A stream waits for an event; an event that was never recorded orders nothing.
    pub fn wait(&mut self, stream: &Stream, event: &EventClock) {
        let agents = &mut self.agents;
        let agent = agents.of(stream);
        agents.merge_event(agent, event);
    }

    /// A stream waits for everything queued on another one so far.
    pub fn wait_stream(&mut self, stream: &Stream, other: &Stream) {
        let agents = &mut self.agents;
        let (to, from) = (agents.of(stream), agents.of(other));
        agents.merge_agent(to, from);
    }

    /// The host has waited for a stream, or a query of it was true.
    pub fn host_wait_stream(&mut self, stream: &Stream) {
        let agents = &mut self.agents;
        let from = agents.of(stream);
        agents.merge_agent(HOST, from);
    }

    /// The host has waited for an event, or a query of it was true.
    pub fn host_wait_event(&mut self, event: &EventClock) {
        self.agents.merge_event(HOST, event);
    }

    /// The host has waited for every stream of a device.
    pub fn host_wait_device(&mut self, device: DeviceId) {
        self.agents.merge_device(device);
    }
}

impl Agents {
    fn conflict(&self, (wanted, touch): (Access, usize), mark: Mark, access: Access) -> Conflict {
        let (site, is_reuse) = (mark.site, mark.is_reuse);
        Conflict { wanted, touch, site, access, place: self.place(mark.agent), is_reuse }
    }
}

#[cfg(test)]
mod tests;
