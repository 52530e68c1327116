//! What a session does, on a timeline: launches, copies, waits, ranges and memory.
//!
//! A [`Trace`] is there while a profile is open, and costs nothing otherwise. Where time is real, each
//! piece of work stands between two events of its stream; where it is virtual (`clock`), a model of the
//! work moves a clock per stream, so that the same script gives the same timeline, byte for byte. Knows
//! no file and no source text: spans become lines when a [`Recording`] is shown (`chrome`).
//!
//! Invariant: actions are in the order in which the host noted them.

pub mod chrome;
mod clock;
mod hooks;
mod ranges;

pub(super) use hooks::{Traced, WaitFor};
use ranges::Ranges;

use crate::array::Dims;
use crate::base::Span;
use crate::driver::DeviceId;
use crate::plan::Listing;
use clock::Clock;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The most actions that are kept; what comes later is counted.
const MOST_ACTIONS: usize = 2_000_000;

/// Where an action is drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Row {
    /// The thread that runs the script.
    Host,
    /// Programs being compiled, on the host.
    Compiler,
    /// A stream of a device, by its number there.
    Stream(DeviceId, u32),
    /// The memory of a device.
    Memory(DeviceId),
}

/// What an action is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionKind {
    /// A program.
    Launch,
    /// A copy.
    Copy,
    /// A pause that was asked for.
    Sleep,
    /// The host waits.
    Wait,
    /// A program is compiled.
    Compile,
    /// A range of the script, inside the one around it.
    Range,
    /// A range of the script that may overlap others; its number.
    Span(u64),
    /// A moment.
    Mark,
    /// So many `bytes` are allocated from now on.
    Memory,
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Action {
    /// Where.
    pub row: Row,
    /// What.
    pub kind: ActionKind,
    /// The operation or program, or the text of a range.
    pub name: Cow<'static, str>,
    /// Nanoseconds since the trace began.
    pub start: u64,
    /// The same; not before `start`.
    pub end: u64,
    /// The source that asked for it, first one first.
    pub spans: SmallVec<[Span; 1]>,
    /// The shape of the work; empty where it has none.
    pub shape: Dims,
    /// The bytes that it reads and writes; those that are allocated.
    pub bytes: u64,
}

/// What was noted while a profile was open.
#[derive(Clone, Debug)]
pub struct Recording {
    /// In the order in which the host noted it.
    pub actions: Vec<Action>,
    /// The names of the devices that take part.
    pub devices: Vec<(DeviceId, String)>,
    /// How many actions there was no room for.
    pub dropped: u64,
    /// True when a model has made the times.
    pub is_virtual: bool,
}

/// What a session keeps of its work for those who ask: counts, listings, profiles.
#[derive(Default)]
pub(super) struct Records {
    /// How many programs were launched.
    pub(super) launches: u64,
    /// Operations applied.
    pub(super) operations: u64,
    /// There while launches are listed.
    pub(super) listing: Option<Listing>,
    /// There while a profile is open.
    trace: Option<Box<Trace>>,
    ranges: Ranges,
}

/// A trace that is being written.
pub(super) struct Trace {
    actions: Vec<Action>,
    clock: Clock,
    /// How many profiles are open.
    open: usize,
    dropped: u64,
    /// The bytes that each device had allocated when they were noted last.
    allocated: FxHashMap<DeviceId, u64>,
    /// Ranges that are open: name, start, source.
    ranges: Vec<(String, u64, Span)>,
    /// The same of those that may overlap, with their number.
    spans: Vec<(u64, String, u64, Span)>,
}

impl Trace {
    fn new(is_virtual: bool) -> Trace {
        Trace {
            actions: Vec::new(),
            clock: Clock::new(is_virtual),
            open: 0,
            dropped: 0,
            allocated: FxHashMap::default(),
            ranges: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// True when a model makes the times: then nothing that a real clock says may change what is done.
    pub(super) fn is_virtual(&self) -> bool {
        self.clock.is_virtual()
    }

    /// Keeps an action; its index, unless there is no room.
    fn push(&mut self, action: Action) -> Option<usize> {
        if self.actions.len() >= MOST_ACTIONS {
            self.dropped += 1;
            return None;
        }
        self.actions.push(action);
        Some(self.actions.len() - 1)
    }

    /// Keeps an action of the host that begins and ends at these times.
    fn push_host(&mut self, kind: ActionKind, name: Cow<'static, str>, start: u64, end: u64, span: Span) {
        let spans = SmallVec::from_iter((!span.is_none()).then_some(span));
        let shape = Dims::new();
        self.push(Action { row: Row::Host, kind, name, start, end, spans, shape, bytes: 0 });
    }
}
