//! The submission queue: between operations, which are inferred at once, and devices, which run
//! kernel programs later.
//!
//! [`Runtime`] is one session's view of its machine: the current device and streams, the pending
//! work of every stream, the race checker, the generators. Elementwise work waits in its stream's
//! queue and leaves as one program (see Note [When a queue leaves]); everything else is launched at
//! once, after its stream's queue. A result nobody holds any more is never computed. Knows no
//! operation by name and nothing of the language; source places come in as [`Runtime::span`].
//!
//! Note [When a queue leaves]. A queue is flushed when someone needs its bytes (another kind of
//! operation, a copy, a read, an event, a wait, a stream that reads its results, a memory query),
//! when the next operation has another shape, when the program is full ([`MAX_INSTRS`],
//! [`MAX_VIEWS`]), and at the end of a `try` block, a script or a call from Rust. So an error surfaces
//! inside the construct that would catch it.
//!
//! Where a program is cut never depends on time. A loop whose rounds fuse is cut between two rounds, as
//! soon as the next one would not fit ([`queue::Rounds`]): every cut lies at the same place, and a loop
//! that does the same work each round asks for the same programs.

mod abandon;
mod capture;
mod chain;
#[cfg(test)]
pub mod chain_tests;
mod collective;
#[cfg(test)]
pub mod collective_tests;
mod context;
pub mod error;
mod filled;
mod flush;
mod graph;
mod group;
mod infer;
mod listing;
mod memory;
mod ordered;
mod queue;
mod reduce;
mod rows;
mod shares;
mod streams;
mod submit;
pub mod trace;
mod transfer;
mod unfused;

pub use abandon::Began;
pub use context::{RaceMode, Selection, Settings, SyncDebug};
pub use graph::{Drawn, Graph, GraphPool};
pub use group::Folding;
pub use infer::MapArg;
pub use listing::{Listed, Listing};
pub(crate) use submit::overlaps_itself;
pub use submit::{Submission, SubmittedView};
pub use transfer::scalar_of;

use crate::base::{Result, Span, reclaim};
use crate::device::races::{Checker, Watched};
use crate::device::{Device, DeviceId, Event, EventFlags, Machine, Stream};
use crate::tensor::{Generator, Storage};
use queue::Queue;
use std::sync::{Arc, OnceLock};

/// The most instructions of one fused program.
pub const MAX_INSTRS: usize = 64;
/// The most views of one fused program.
pub const MAX_VIEWS: usize = 24;

/// One session's view of its machine.
///
/// Invariant: what a queue holds belongs to one stream and one iteration shape; a storage's
/// `pending` names a live node exactly while its queue's generation is the same.
pub struct Runtime {
    /// The processes that this one works with. First, so that it ends before its device.
    group: Option<Box<crate::device::group::Group>>,
    machine: Arc<Machine>,
    /// Where the operation that is being submitted stands in the source.
    pub span: Span,
    /// What it may still compute: elements moved and computed, and what its owner takes.
    pub fuel: Option<u64>,
    /// How many tensors and events it may have at the same time.
    pub limits: Limits,
    /// Each live tensor that is counted holds one of the first, each event one of the second.
    tickets: (Arc<()>, Arc<()>),
    /// What the session has switched on and off.
    pub settings: Settings,
    checker: Checker,
    /// The operation that the user wrote, while it is made of others.
    written: Option<&'static str>,
    /// Slot 0 is the host; slot n + 1 is `cuda:n`. The others than the host come when one is asked for.
    places: Vec<Place>,
    /// `None` until one is selected: the first CUDA device, or the host where there is none.
    current: Option<DeviceId>,
    current_cuda: u32,
    queues: Vec<Queue>,
    programs: flush::Programs,
    /// Captures under way; a queue names the one that it takes part in.
    captures: Vec<capture::Capture>,
    /// Pools that captures may share.
    pools: Vec<std::sync::Weak<graph::Shared>>,
    /// The streams that captures without a stream of their own use, one per device.
    capture_streams: Vec<Arc<Stream>>,
    generators: OnceLock<Vec<Generator>>,
    /// Generators that stand in for a device's own, newest last.
    stand_ins: Vec<Generator>,
    warnings: Vec<crate::base::Error>,
    /// The pairs of places that races were reported for: the later access, the earlier one.
    told: rustc_hash::FxHashSet<(Span, Span)>,
    repaired: u64,
    launches: u64,
    warned: Vec<String>,
    /// Where a wait was reported that an operation made by itself.
    waits_told: rustc_hash::FxHashSet<Span>,
    /// There while a profile is open.
    trace: Option<Box<trace::Trace>>,
    ranges: trace::Ranges,
    /// There while launches are listed.
    listing: Option<Listing>,
    /// Memory that scripts took and give back themselves, by address.
    raw: rustc_hash::FxHashMap<u64, crate::device::Block>,
    /// Memory is short, and everything else is being given up: requests send off no more work.
    is_short: bool,
    /// At least as many bytes as the results of pending work will take.
    unbound: u64,
}

/// How many things a session may have at the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Tensors with memory, or a place in a queue, of their own; views do not count.
    pub tensors: Option<usize>,
    /// Events.
    pub events: Option<usize>,
    /// Bytes of the host's memory that one value may take which was read from a tensor.
    pub host_bytes: Option<usize>,
}

/// A device as the session sees it.
struct Place {
    device: Option<Arc<Device>>,
    /// The current stream; `None` until the device is opened.
    stream: Option<Arc<Stream>>,
    /// The queue of the current stream.
    queue: usize,
}

impl Place {
    const EMPTY: Place = Place { device: None, stream: None, queue: usize::MAX };
}

impl Runtime {
    /// A session on a machine. Opens no device.
    pub fn new(machine: Arc<Machine>, settings: Settings) -> Runtime {
        Runtime {
            group: None,
            places: vec![Place::EMPTY],
            current: None,
            machine,
            span: Span::NONE,
            fuel: None,
            limits: Limits::default(),
            tickets: Default::default(),
            settings,
            checker: Checker::new(),
            written: None,
            current_cuda: 0,
            queues: Vec::new(),
            programs: Default::default(),
            captures: Vec::new(),
            pools: Vec::new(),
            capture_streams: Vec::new(),
            generators: OnceLock::new(),
            stand_ins: Vec::new(),
            warnings: Vec::new(),
            told: Default::default(),
            repaired: 0,
            launches: 0,
            warned: Vec::new(),
            waits_told: Default::default(),
            trace: None,
            ranges: trace::Ranges::default(),
            listing: None,
            raw: Default::default(),
            is_short: false,
            unbound: 0,
        }
    }

    /// The machine.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The default generator of a device.
    pub fn generator(&self, device: DeviceId) -> Result<Generator> {
        if let Some(stand_in) = self.stand_ins.iter().rev().find(|g| g.device() == device) {
            return Ok(stand_in.clone());
        }
        let all = self.generators.get_or_init(|| {
            let cuda = (0..self.machine.device_count() as u32).map(DeviceId::Cuda);
            std::iter::once(DeviceId::Cpu).chain(cuda).map(Generator::new).collect()
        });
        all.get(slot(device)).cloned().ok_or_else(|| error::no_such_device(device, all.len() - 1))
    }

    /// Makes a generator its device's default one until [`Runtime::leave_generator`].
    pub fn enter_generator(&mut self, generator: &Generator) {
        self.stand_ins.push(generator.clone());
    }

    /// Ends the newest [`Runtime::enter_generator`].
    pub fn leave_generator(&mut self) {
        self.stand_ins.pop();
    }

    /// Charges for elements that are moved or computed. Errors: E1002.
    #[inline]
    pub(crate) fn spend(&mut self, elements: usize) -> Result<()> {
        let Some(fuel) = &mut self.fuel else { return Ok(()) };
        let left = fuel.checked_sub(elements as u64);
        *fuel = left.unwrap_or(0);
        if left.is_some() { Ok(()) } else { Err(error::fuel()) }
    }

    /// A storage that counts among the session's. Errors: E1009.
    #[inline]
    fn storage(&mut self, owner: Arc<Device>, bytes: u64) -> Result<Storage> {
        self.leave_others(&owner, bytes)?;
        Ok(Storage::made(owner, bytes, self.ticket()?, Watched::default()))
    }

    /// What a storage holds that counts among the session's. Errors: E1009.
    #[inline]
    fn ticket(&mut self) -> Result<Option<Arc<()>>> {
        self.limits.tensors.map(|limit| self.limited(limit)).transpose()
    }

    #[cold]
    fn limited(&mut self, limit: usize) -> Result<Arc<()>> {
        if Arc::strong_count(&self.tickets.0) > limit {
            // What nobody wants any more may still wait in a queue.
            self.flush()?;
        }
        if Arc::strong_count(&self.tickets.0) > limit
            && !(reclaim::asked() && Arc::strong_count(&self.tickets.0) <= limit)
        {
            return Err(error::too_many("tensors", limit));
        }
        Ok(self.tickets.0.clone())
    }

    /// Refuses to take so much of the host's memory at once. Errors: E0704, out of memory.
    pub fn check_host_room(&self, bytes: usize) -> Result<()> {
        reclaim::charge(bytes)?;
        match self.limits.host_bytes {
            Some(limit) if bytes > limit => {
                Err(crate::device::error::memory_limit("host memory", limit as u64, 0, bytes as u64))
            }
            _ => crate::device::host::check_room(bytes as u64),
        }
    }

    /// An event that counts among the session's. Errors: E1009.
    pub fn event(&mut self, flags: EventFlags) -> Result<Arc<Event>> {
        let event = Event::new(flags);
        Ok(Arc::new(match self.limits.events {
            None => event,
            Some(limit)
                if Arc::strong_count(&self.tickets.1) > limit
                    && !(reclaim::asked() && Arc::strong_count(&self.tickets.1) <= limit) =>
            {
                return Err(error::too_many("events", limit));
            }
            Some(_) => event.counted(self.tickets.1.clone()),
        }))
    }

    /// Runs an operation that is made of others; race reports name it, and not those.
    pub fn named<T>(&mut self, name: &'static str, code: impl FnOnce(&mut Runtime) -> T) -> T {
        let outer = self.written;
        self.written = outer.or(Some(name));
        let result = code(self);
        self.written = outer;
        result
    }

    /// Where the script asked for the memory of tensors that are alive.
    pub fn live_places(&self) -> Vec<Span> {
        let devices = self.machine.opened();
        devices.flat_map(|device| device.holders(usize::MAX)).map(|(span, ..)| span).collect()
    }

    /// Forgets what was told of places that are not there any more, and warnings that nobody takes beyond a number.
    pub fn forget_places(&mut self, warnings: usize, is_there: impl Fn(Span) -> bool) {
        self.told.retain(|(one, other)| is_there(*one) && is_there(*other));
        self.waits_told.retain(|span| is_there(*span));
        self.warnings.truncate(warnings);
    }

    /// Reports something for [`Runtime::take_warnings`].
    pub fn warn(&mut self, warning: crate::base::Error) {
        self.warnings.push(warning);
    }

    /// True when there is something to tell.
    pub fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    /// Reports of races that were repaired (`warn`), since the last call; each pair of places once per
    /// session.
    pub fn take_warnings(&mut self) -> Vec<crate::base::Error> {
        std::mem::take(&mut self.warnings)
    }

    /// Reports a name that has a newer one, once per session.
    pub fn warn_deprecated(&mut self, what: &str, help: &str) {
        self.warn_once(what, || error::deprecated(what, help));
    }

    /// Reports what a script wants to be told, each text once per session.
    pub fn warn_told(&mut self, text: &str, at: crate::base::Span) {
        let here = std::mem::replace(&mut self.span, at);
        self.warn_once(text, || error::told(text));
        self.span = here;
    }

    /// Reports that a conversion drops imaginary parts, where it does, once per session.
    /// Source: `c10::warn` in `copy_` of PyTorch.
    pub(super) fn warn_dropped(&mut self, from: crate::array::Dtype, to: crate::array::Dtype) {
        if from.is_complex() && !to.is_complex() && to != crate::array::Dtype::Bool {
            self.warn_once("complex to real", error::imaginary_dropped);
        }
    }

    fn warn_once(&mut self, what: &str, report: impl FnOnce() -> crate::base::Error) {
        if !self.warned.iter().any(|known| known == what) {
            self.warned.push(what.to_string());
            self.warnings.push(report().locate(&crate::base::Site::of(self.span)));
        }
    }

    /// How many programs have been launched: what fusion saves is the difference.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    /// How many missing waits `races("fix")` and `races("warn")` have put in.
    pub fn races_repaired(&self) -> u64 {
        self.repaired
    }
}

/// The index of a device's place.
fn slot(device: DeviceId) -> usize {
    device.cuda_index().map_or(0, |i| i + 1)
}
