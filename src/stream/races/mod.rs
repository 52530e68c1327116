//! The race checker: decides by vector clocks which accesses are ordered.
//!
//! Agents are the host and the streams of all devices, keyed by (device, stream). Each agent has a clock: for
//! every agent, how much of that agent's work is certain to be over before this agent's next action. Events,
//! waits and synchronisation carry clocks from agent to agent. An access is stored as an epoch (agent, value
//! of its own clock entry), so that "is it ordered before?" is one comparison. An agent's own entry is
//! incremented whenever another agent receives its clock, because its later actions are not covered.
//!
//! The rules are those of PyTorch's stream sanitizer:
//! - a read is compared with the last write only;
//! - a write is compared with every read since the last write, or with the last write if there was no read
//!   since;
//! - a reported access still becomes part of the history;
//! - host synchronisation orders every stream, including later ones, after the point waited for.
//!
//! The last rule follows from the host's own clock: a launch comes after everything the host knew when it
//! made the launch. Therefore the host's clock is consulted beside the stream's, and a wait on the host costs
//! one merge, independent of the number of streams.
//!
//! The host's own accesses are over for every agent, so they are recorded only when they hide stream
//! accesses: memory used only by the host has no history at all.
//!
//! Reused memory: the allocator gives a freed block only to the stream it was allocated on, and only after every other
//! stream has passed its last use of the block, or the block's stream waits for that use ([`Checker::publish`]). That
//! stream's pending work on the block comes before its work for the new owner, but races with the work of any other
//! stream ([`Checker::reuse`]). Such a race is marked ([`Conflict::is_reuse`]), because no script chose the block.
//!
//! Independent of drivers: the caller reports what was queued, in call order.

mod clock;
mod counted;
mod history;
mod region;

pub use clock::EventClock;
pub use counted::Counted;
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

/// With more accesses than this, those of one history are found by sorting.
const MANY: usize = 32;

/// The epoch of work that is being queued; see [`Checker::reuse`].
pub const NOW: u64 = u64::MAX;

/// The kind of an access. An operation that changes memory in place writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Reads the bytes.
    Read,
    /// Writes the bytes, and may read them too.
    Write,
}

/// The origin of an access, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The operation, as users write it: `normal_`.
    pub name: &'static str,
    /// Its source text.
    pub span: Span,
}

/// The place where an access ran.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Where {
    /// On the host, at the time of the call.
    Host,
    /// On a stream: its device and its number there ([`Stream::id`]).
    Stream(DeviceId, u32),
}

/// A shared access history.
#[derive(Default)]
pub struct Watched {
    /// False until the history is first locked.
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
    /// Locks the history for recording.
    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.noted.store(true, Ordering::Relaxed);
        self.history.lock()
    }

    /// Locks the history for recording; `None` if it is locked already.
    fn try_lock(&self) -> Option<MutexGuard<'_, History>> {
        self.noted.store(true, Ordering::Relaxed);
        self.history.try_lock()
    }

    /// True when no stream's access is stored; needs no lock if the history was never locked.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        !self.noted.load(Ordering::Relaxed) || self.history.lock().is_untouched()
    }
}

/// One access of an operation.
pub struct Touch<'a> {
    /// The history of the storage.
    pub history: &'a Watched,
    /// The bytes accessed.
    pub region: Region,
    /// The kind of access.
    pub access: Access,
}

/// An earlier access that is unordered with the one being checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The kind of the access being checked.
    pub wanted: Access,
    /// The number of the touch being checked.
    pub touch: usize,
    /// The earlier operation.
    pub site: Site,
    /// The kind of the earlier access.
    pub access: Access,
    /// The agent that made it.
    pub place: Where,
    /// True for work that the stream may still do on the memory for its previous owner, rather than an access
    /// of this owner; `site` is where the memory was allocated.
    pub is_reuse: bool,
}

/// A history locked by the operation being admitted, or a reference to the guard of an earlier touch.
struct Held<'a> {
    guard: Option<MutexGuard<'a, History>>,
    /// The touch that holds the guard.
    of: usize,
}

/// For each touch, the number of the first one of the same history.
#[cold]
fn first_touches(touches: &[Touch<'_>]) -> Vec<usize> {
    let address = |touch: &Touch<'_>| std::ptr::from_ref(touch.history).addr();
    let mut sorted: Vec<(usize, usize)> = touches.iter().map(address).zip(0..).collect();
    sorted.sort_unstable();
    let mut first = vec![0; touches.len()];
    for same in sorted.chunk_by(|(a, _), (b, _)| a == b) {
        same.iter().for_each(|&(_, number)| first[number] = same[0].1);
    }
    first
}

/// The clocks of one session. A session runs on one thread at a time, so they need no lock.
#[derive(Default)]
pub struct Checker {
    agents: Agents,
}

impl Checker {
    /// A checker without history.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// A checker without history whose histories count towards the memory of this one's: for a capture.
    pub fn beside(&self) -> Checker {
        let mut checker = Checker::default();
        checker.agents.total = self.agents.total.clone();
        checker
    }

    /// A count of more bytes of host memory that belong to the session's histories.
    pub fn counted(&self) -> Counted {
        Counted::new(&self.agents.total, 0)
    }

    /// A function that returns the bytes of host memory that histories take, in addition to their storages.
    pub fn overhead(&self) -> impl Fn() -> usize + 'static {
        let total = self.agents.total.clone();
        move || total.bytes()
    }

    /// Records an access by work being queued on a stream, or by the host now, and returns an earlier access
    /// it races with (the newest, if several). `bytes` are offsets in the storage, as a range or the
    /// [`Region`] of a view; an empty one is no access. Unlike [`Checker::admit`] it records a racing access
    /// too, like the sanitizer whose cases the tests port.
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

    /// Records the accesses of one operation unless one of them races: then the operation is rejected and
    /// leaves no trace in any history. Returns the races of a rejected operation, at most one per stream, and
    /// a minimal set: waiting for those streams orders all the others too.
    pub fn admit(&mut self, stream: Option<&Stream>, touches: &[Touch<'_>], site: Site) -> Vec<Conflict> {
        let (view, now) = self.now(stream, site);
        let by_host = stream.is_none();
        let is_clear = |history: &mut History, touch: &Touch<'_>| {
            by_host && history.is_untouched() || history.is_free(touch.region, touch.access, &view)
        };
        let note = |history: &mut History, touch: &Touch<'_>| {
            if !(by_host && history.is_untouched()) {
                history.note_free(touch.region, touch.access, now, &view);
            }
        };
        // Many accesses are nearly always to different histories, each of which can be locked.
        if touches.len() > MANY
            && let Some(mut held) =
                touches.iter().map(|touch| touch.history.try_lock()).collect::<Option<Vec<_>>>()
            && held.iter_mut().zip(touches).all(|(history, touch)| is_clear(history, touch))
        {
            held.iter_mut().zip(touches).for_each(|(history, touch)| note(history, touch));
            return Vec::new();
        }
        match touches {
            [touch] => {
                let mut history = touch.history.lock();
                if is_clear(&mut history, touch) {
                    note(&mut history, touch);
                    return Vec::new();
                }
            }
            [one, two] if !std::ptr::eq(one.history, two.history) => {
                let (mut first, mut second) = (one.history.lock(), two.history.lock());
                if is_clear(&mut first, one) && is_clear(&mut second, two) {
                    note(&mut first, one);
                    note(&mut second, two);
                    return Vec::new();
                }
            }
            _ => {
                let earlier = (touches.len() > MANY).then(|| first_touches(touches));
                let mut held: SmallVec<[Held<'_>; 4]> = SmallVec::new();
                let all_clear = touches.iter().enumerate().all(|(i, touch)| {
                    // Each history is locked once; an operation may touch one several times.
                    let same = |&at: &usize| std::ptr::eq(touches[at].history, touch.history);
                    let of = match &earlier {
                        Some(earlier) => earlier[i],
                        None => (0..i).find(same).unwrap_or(i),
                    };
                    let guard = (of == i).then(|| touch.history.lock());
                    held.push(Held { guard, of });
                    held[of].guard.as_mut().is_none_or(|history| is_clear(history, touch))
                });
                if all_clear {
                    for (i, touch) in touches.iter().enumerate() {
                        let of = held[i].of;
                        if let Some(history) = &mut held[of].guard {
                            note(history, touch);
                        }
                    }
                    return Vec::new();
                }
            }
        }
        self.least(stream, touches)
    }

    /// The history of a new storage of `bytes`, at least one, that a stream writes completely; this races
    /// with nothing.
    #[inline(always)]
    pub fn begin(&mut self, stream: &Stream, bytes: u64, site: Site) -> Watched {
        let (_, now) = self.now(Some(stream), site);
        Watched::from(History::begun(bytes, now))
    }

    /// The races of an operation whose streams it has to wait for.
    #[cold]
    fn least(&self, stream: Option<&Stream>, touches: &[Touch<'_>]) -> Vec<Conflict> {
        let agent = stream.map_or(HOST, |s| self.agents.known(s));
        let view = self.agents.view(agent);
        let mut open: Vec<((Access, usize), Mark, Access)> = Vec::new();
        for (number, touch) in touches.iter().enumerate() {
            let mut history = touch.history.lock();
            history.open(touch.region, touch.access, &view, &mut |mark, earlier| {
                open.push(((touch.access, number), mark, earlier));
            });
        }
        // Later source positions first: they are what users look for. An operation that reads and writes a
        // tensor counts as a write.
        open.sort_by_key(|((wanted, _), mark, _)| {
            (std::cmp::Reverse(mark.site.span.lo), *wanted == Access::Read)
        });
        let mut agents: SmallVec<[Agent; 4]> = SmallVec::new();
        for (_, mark, _) in &open {
            if !agents.contains(&mark.agent) {
                agents.push(mark.agent);
            }
        }
        // A stream need not be waited for if another stream in the set has already waited for it.
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

    /// The knowledge of a stream or the host, and the mark of an access it makes now.
    fn now(&mut self, stream: Option<&Stream>, site: Site) -> (View<'_>, Mark) {
        let agent = stream.map_or(HOST, |s| self.agents.of(s));
        let view = self.agents.view(agent);
        let now = Mark { site, clock: view.now(), agent, is_reuse: false };
        if let Some(stream) = stream {
            stream.works_at(now.clock);
        }
        (view, now)
    }

    /// Records that a storage received memory that work of the allocating stream, up to `epoch`, may still
    /// use (`Block::freed_at`). This counts as a write on that stream; `site` is the allocation.
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

    /// Records an event on a stream: it covers all work queued there so far, and nothing it covered before.
    pub fn record(&mut self, event: &mut EventClock, stream: &Stream) {
        let agents = &mut self.agents;
        let agent = agents.of(stream);
        agents.record(agent, event);
    }

    /// Makes a stream wait for an event; an event without a record orders nothing.
    pub fn wait(&mut self, stream: &Stream, event: &EventClock) {
        let agents = &mut self.agents;
        let agent = agents.of(stream);
        agents.merge_event(agent, event);
    }

    /// Makes a stream wait for all work queued on another so far.
    pub fn wait_stream(&mut self, stream: &Stream, other: &Stream) {
        let agents = &mut self.agents;
        let (to, from) = (agents.of(stream), agents.of(other));
        agents.merge_agent(to, from);
    }

    /// Publishes a stream's ordering after its waits have been queued in the driver. The allocator then reuses the
    /// stream's memory without waiting for the streams that it waits for.
    pub fn publish(&self, stream: &Stream) {
        stream.comes_after(self.agents.covered(self.agents.known(stream), stream.device()));
    }

    /// The host has waited for a stream, or a query of it returned true.
    pub fn host_wait_stream(&mut self, stream: &Stream) {
        let agents = &mut self.agents;
        let from = agents.of(stream);
        agents.merge_agent(HOST, from);
    }

    /// The host has waited for an event, or a query of it returned true.
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
