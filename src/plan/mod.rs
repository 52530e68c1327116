//! The submission queue between operations, which are inferred immediately, and devices, which run kernel
//! programs later.
//!
//! [`Runtime`] is one session's view of its machine: the current device and streams, the pending work of
//! every stream, the race checker, the generators. Elementwise work waits in its stream's queue and is
//! launched as one program (see Note [When a queue is flushed]); all other work is launched immediately, after
//! its stream's queue. A result without a reference is never computed. Independent of the names of operations
//! and of the language; source positions are passed in as [`Runtime::span`].
//!
//! Note [When a queue is flushed]. A queue is flushed when something needs its bytes (another kind of operation,
//! a copy, a read, an event, a wait, a stream that reads its results, a memory query), when the next
//! operation has another shape, when the program is full ([`MAX_INSTRS`], [`MAX_VIEWS`]), and at the end of a
//! `try` block, a script or a call from Rust. So an error surfaces inside the construct that would catch it.
//!
//! Program boundaries never depend on timing. A loop whose iterations fuse is cut between two iterations, as
//! soon as the next one would not fit (`queue::Rounds`). So every cut has the same position, and a loop
//! that repeats the same work requests the same programs.

mod abandon;
mod again;
mod aside;
mod assemble;
mod batch;
#[cfg(test)]
pub mod batch_tests;
mod capture;
mod chain;
#[cfg(test)]
pub mod chain_tests;
mod collective;
mod context;
mod copies;
mod deferred;
pub mod error;
mod fill;
mod filled;
mod flush;
mod gather;
mod generators;
mod graph;
mod held;
mod hoist;
mod infer;
mod joined;
mod kept;
mod listing;
mod memory;
mod operands;
mod ordered;
mod pad;
mod place;
mod positions;
mod product;
mod queue;
mod quota;
mod reduce;
mod repeat;
mod rounds;
mod rows;
mod scatter;
mod several;
#[cfg(test)]
pub mod several_tests;
mod shared_tests;
mod sorted;
mod steps;
mod streams;
mod submit;
pub mod trace;
mod transfer;
mod turn;
mod unrolled;
mod warnings;

pub use abandon::Began;
pub(crate) use aside::are_apart;
#[cfg(feature = "dist")]
pub use collective::Folding;
pub use collective::coalesced;
#[cfg(test)]
pub use collective::tests as collective_tests;
pub use context::{Autocast, RaceMode, Selection, Settings, SyncDebug};
pub use gather::Gathering;
pub use graph::{Drawn, Graph, GraphPool};
pub use infer::{Elementwise, MapArg};
pub use joined::MOST_JOINED;
pub use listing::{Listed, Listing};
pub use pad::{Beyond, Padding};
pub use quota::{Limits, Quota};
pub use reduce::Reduction;
pub use repeat::{Begun, Template};
pub use scatter::Scattering;
#[cfg(test)]
pub(crate) use steps::queued;
pub use steps::{MAX_STEPS, MOST_STEPS, Step, StepArg, ordered_over};
pub(crate) use submit::overlaps_itself;
pub use submit::{Submission, SubmittedView};
pub use turn::Turn;

use crate::base::Span;
use crate::device::Machine;
use crate::driver::DeviceId;
use queue::Queue;
use std::sync::Arc;

/// The largest number of instructions of one fused program.
pub const MAX_INSTRS: usize = 64;
/// The largest number of views of one fused program.
pub const MAX_VIEWS: usize = 24;

/// One session's view of its machine. Each field is the state of one file; code that needs several fields is
/// a method here.
///
/// Invariant: a queue's work belongs to one stream and one iteration shape; a storage's `pending` names a
/// live node exactly while its queue's generation is unchanged.
pub struct Runtime {
    /// The process group of this session. The first field, so that it is dropped before its device.
    #[cfg(feature = "dist")]
    group: Option<Box<crate::group::Group>>,
    machine: Arc<Machine>,
    /// The source position of the operation being submitted.
    pub span: Span,
    /// Where the script called the library's code, while that code runs; otherwise none.
    pub outer: Span,
    /// The number of calls that the script has begun.
    call: u64,
    /// The operation that the user wrote, while it runs as a composition of others.
    written: Option<&'static str>,
    /// The session's settings.
    pub settings: Settings,
    /// The session's resource limits.
    pub quota: Quota,
    devices: context::Devices,
    queues: Vec<Queue>,
    programs: assemble::Programs,
    graphs: capture::Graphs,
    generators: generators::Generators,
    races: streams::Races,
    warnings: warnings::Warnings,
    records: trace::Records,
    requests: memory::Requests,
    /// Whether operations record how to compute gradients.
    pub recording: Recording,
    /// The product that waits for the program that reads it; see Note [Held products].
    product: Option<Box<product::HeldProduct>>,
    /// Storages with sorted indices; see Note [Sorted indices].
    sorted: Vec<crate::tensor::WeakStorage>,
    /// Counts uses of tensor shapes: operations that are not elementwise, and reads of extents.
    pub shapes_read: u64,
}

/// Whether operations record how to compute gradients. The records are those of `ops::gradient`.
pub struct Recording {
    /// True once a tensor of this session has required gradients. Until then, operations skip all checks for gradients.
    pub used: bool,
    /// False inside `no_grad` and inside the code of an operation that is recorded as one.
    pub enabled: bool,
    /// True once a hook runs after a leaf's gradient is stored.
    pub follows: bool,
    /// `detect_anomaly`: backward rejects a nan.
    pub anomaly: bool,
    /// The number of the next record.
    pub next: u64,
    /// The records made since a checkpoint began.
    pub log: Option<Vec<Arc<dyn std::any::Any + Send + Sync>>>,
    /// Storages that hold a recorded write.
    pub written: Vec<crate::tensor::WeakStorage>,
    /// The length of `written` that triggers the next search for unreachable storages.
    pub search_at: usize,
    /// Records that hold a gradient with its own record, which may refer back to them.
    pub circular: Vec<std::sync::Weak<dyn std::any::Any + Send + Sync>>,
}

impl Default for Recording {
    fn default() -> Recording {
        Recording {
            used: false,
            enabled: true,
            follows: false,
            anomaly: false,
            next: 1,
            log: None,
            written: Vec::new(),
            search_at: 64,
            circular: Vec::new(),
        }
    }
}

impl Runtime {
    /// A session on a machine. Opens no device.
    pub fn new(machine: Arc<Machine>, settings: Settings) -> Runtime {
        Runtime {
            #[cfg(feature = "dist")]
            group: None,
            machine,
            span: Span::NONE,
            outer: Span::NONE,
            call: 0,
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
            recording: Recording::default(),
            product: None,
            sorted: Vec::new(),
            shapes_read: 0,
        }
    }

    /// The machine.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Begins a call of the script; work submitted from now on belongs to it.
    #[inline]
    pub fn enter(&mut self, span: Span) {
        self.span = span;
        self.outer = Span::NONE;
        self.call += 1;
    }

    /// The position of the running call in the script itself, not in the library's code.
    #[inline]
    pub fn script_span(&self) -> Span {
        if self.outer.is_none() { self.span } else { self.outer }
    }

    /// Runs an operation composed of others; race reports name it instead of its parts.
    pub fn named<T>(&mut self, name: &'static str, code: impl FnOnce(&mut Runtime) -> T) -> T {
        let outer = self.written;
        self.written = outer.or(Some(name));
        let result = code(self);
        self.written = outer;
        result
    }

    /// The operation that the script called, inside of [`Runtime::named`].
    pub fn written(&self) -> Option<&'static str> {
        self.written
    }

    /// Whether a queue holds work that later work may join.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.product.is_some()
            || self
                .queues
                .iter()
                .any(|queue| queue.group.is_some() || !queue.chain.is_empty() || !queue.deferred.is_empty())
    }

    /// The source positions that allocated the live tensors.
    pub fn live_places(&self) -> Vec<Span> {
        let devices = self.machine.opened();
        devices.flat_map(|device| device.holders(usize::MAX)).map(|(span, ..)| span).collect()
    }
}

/// The index of a device's slot.
fn slot(device: DeviceId) -> usize {
    device.cuda_index().map_or(0, |i| i + 1)
}
