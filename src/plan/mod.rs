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
mod context;
pub mod error;
mod filled;
mod flush;
mod generators;
mod graph;
mod infer;
mod listing;
mod memory;
mod ordered;
mod queue;
mod quota;
mod reduce;
mod rows;
mod shared_tests;
mod streams;
mod submit;
pub mod trace;
mod transfer;
mod unfused;
mod warnings;

pub use abandon::Began;
#[cfg(feature = "dist")]
pub use collective::Folding;
#[cfg(test)]
pub use collective::tests as collective_tests;
pub use context::{RaceMode, Selection, Settings, SyncDebug};
pub use graph::{Drawn, Graph, GraphPool};
pub use infer::MapArg;
pub use listing::{Listed, Listing};
pub use quota::{Limits, Quota};
pub(crate) use submit::overlaps_itself;
pub use submit::{Submission, SubmittedView};

use crate::base::Span;
use crate::device::Machine;
use crate::driver::DeviceId;
use queue::Queue;
use std::sync::Arc;

/// The most instructions of one fused program.
pub const MAX_INSTRS: usize = 64;
/// The most views of one fused program.
pub const MAX_VIEWS: usize = 24;

/// One session's view of its machine. Each part is the state of one file; what needs several parts is a method here.
///
/// Invariant: what a queue holds belongs to one stream and one iteration shape; a storage's
/// `pending` names a live node exactly while its queue's generation is the same.
pub struct Runtime {
    /// The processes that this one works with. First, so that it ends before its device.
    #[cfg(feature = "dist")]
    group: Option<Box<crate::group::Group>>,
    machine: Arc<Machine>,
    /// Where the operation that is being submitted stands in the source.
    pub span: Span,
    /// The operation that the user wrote, while it is made of others.
    written: Option<&'static str>,
    /// What the session has switched on and off.
    pub settings: Settings,
    /// What the session may use.
    pub quota: Quota,
    devices: context::Devices,
    queues: Vec<Queue>,
    programs: flush::Programs,
    graphs: capture::Graphs,
    generators: generators::Generators,
    races: streams::Races,
    warnings: warnings::Warnings,
    records: trace::Records,
    requests: memory::Requests,
}

impl Runtime {
    /// A session on a machine. Opens no device.
    pub fn new(machine: Arc<Machine>, settings: Settings) -> Runtime {
        Runtime {
            #[cfg(feature = "dist")]
            group: None,
            machine,
            span: Span::NONE,
            written: None,
            settings,
            quota: Quota::default(),
            devices: Default::default(),
            queues: Vec::new(),
            programs: Default::default(),
            graphs: Default::default(),
            generators: Default::default(),
            races: Default::default(),
            warnings: Default::default(),
            records: Default::default(),
            requests: Default::default(),
        }
    }

    /// The machine.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
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
}

/// The index of a device's place.
fn slot(device: DeviceId) -> usize {
    device.cuda_index().map_or(0, |i| i + 1)
}
