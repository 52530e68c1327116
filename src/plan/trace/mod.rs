//! A timeline of a session's work: launches, copies, waits, ranges and memory.
//!
//! A `Trace` exists while a profile is open, and costs nothing otherwise. With real time, each piece of work
//! lies between two events of its stream. With virtual time (`clock`), a model of the work advances a clock
//! per stream, so that the same script gives the same timeline, byte for byte. Independent of files and
//! sources: spans become lines when a [`Recording`] is shown (`chrome`).
//!
//! Invariant: actions are in the order in which the host recorded them.

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
use foldhash::HashMap;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The largest number of actions kept; later ones are only counted.
const MOST_ACTIONS: usize = 2_000_000;

/// The row in which an action is drawn.
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

/// The kind of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionKind {
    /// A program.
    Launch,
    /// A copy.
    Copy,
    /// A requested pause.
    Sleep,
    /// The host waits.
    Wait,
    /// A program is compiled.
    Compile,
    /// A range of the script, nested in the enclosing one.
    Range,
    /// A range of the script that may overlap others, with its number.
    Span(u64),
    /// A moment.
    Mark,
    /// The device has `bytes` allocated from now on.
    Memory,
}

/// One entry of the timeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Action {
    /// The row it is drawn in.
    pub row: Row,
    /// The kind.
    pub kind: ActionKind,
    /// The operation or program, or the text of a range.
    pub name: Cow<'static, str>,
    /// Nanoseconds since the trace began.
    pub start: u64,
    /// The end in the same unit; not before `start`.
    pub end: u64,
    /// The sources that caused it, first one first.
    pub spans: SmallVec<[Span; 1]>,
    /// The shape of the work; empty if it has none.
    pub shape: Dims,
    /// The bytes it reads and writes, or the allocated bytes.
    pub bytes: u64,
}

/// The actions recorded while a profile was open.
#[derive(Clone, Debug)]
pub struct Recording {
    /// In the order in which the host recorded them.
    pub actions: Vec<Action>,
    /// The names of the devices involved.
    pub devices: Vec<(DeviceId, String)>,
    /// The number of actions beyond the limit.
    pub dropped: u64,
    /// True when the times come from a model.
    pub is_virtual: bool,
}

/// A session's records of its work: counts, listings, profiles.
#[derive(Default)]
pub(super) struct Records {
    /// Number of launched programs.
    pub(super) launches: u64,
    /// Number of applied operations.
    pub(super) operations: u64,
    /// Present while launches are listed.
    pub(super) listing: Option<Listing>,
    /// Present while a profile is open.
    trace: Option<Box<Trace>>,
    ranges: Ranges,
}

/// An active trace.
pub(super) struct Trace {
    actions: Vec<Action>,
    clock: Clock,
    /// Number of open profiles.
    open: usize,
    dropped: u64,
    /// Each device's allocated bytes when last recorded.
    allocated: HashMap<DeviceId, u64>,
    /// Open nested ranges: name, start, source.
    ranges: Vec<(String, u64, Span)>,
    /// Open overlapping ranges: number, name, start, source.
    spans: Vec<(u64, String, u64, Span)>,
}

impl Trace {
    fn new(is_virtual: bool) -> Trace {
        Trace {
            actions: Vec::new(),
            clock: Clock::new(is_virtual),
            open: 0,
            dropped: 0,
            allocated: HashMap::default(),
            ranges: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// True when the times come from a model: then the real clock must not affect anything.
    pub(super) fn is_virtual(&self) -> bool {
        self.clock.is_virtual()
    }

    /// Stores an action and returns its index; `None` beyond the limit.
    fn push(&mut self, action: Action) -> Option<usize> {
        if self.actions.len() >= MOST_ACTIONS {
            self.dropped += 1;
            return None;
        }
        self.actions.push(action);
        Some(self.actions.len() - 1)
    }

    /// Stores an action of the host with these times.
    fn push_host(&mut self, kind: ActionKind, name: Cow<'static, str>, start: u64, end: u64, span: Span) {
        let spans = SmallVec::from_iter((!span.is_none()).then_some(span));
        let shape = Dims::new();
        self.push(Action { row: Row::Host, kind, name, start, end, spans, shape, bytes: 0 });
    }
}
