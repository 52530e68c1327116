//! Links between the devices of several processes, and the failure state that ends their work.
//!
//! A driver with links makes a [`Communicator`]; `group` decides when, and connects the processes.

use super::StreamHandle;
use crate::array::Dtype;
use crate::base::{Code, Error, ErrorKind, Result, Span};
use crate::kernel::Ptr;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A combination of elements of several processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    Sum,
    Product,
    Min,
    Max,
    /// The sum, divided by the number of processes.
    Avg,
}

/// The pattern of an [`Exchange`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Every process gets the combined elements.
    AllReduce(Fold),
    /// One process gets the combined elements.
    Reduce(Fold, usize),
    /// Every process gets the elements of one.
    Broadcast(usize),
    /// Every process gets the elements of all, concatenated.
    AllGather,
    /// Every process gets its part of the combined elements.
    ReduceScatter(Fold),
    /// Every process gets its part of each process's elements, concatenated.
    AllToAll,
    /// Sends to one process, which receives.
    Send(usize),
    /// Receives from one process, which sends.
    Receive(usize),
}

/// A collective operation on elements in device memory.
pub struct Exchange {
    /// The pattern of the operation.
    pub pattern: Pattern,
    /// This process's input; 0 if it has none.
    pub source: Ptr,
    /// This process's output; 0 if it has none.
    pub target: Ptr,
    /// Number of input elements per process; for a scatter, of output elements.
    pub count: usize,
    /// The dtype of the elements.
    pub dtype: Dtype,
    /// The function that the script called, for errors.
    pub name: &'static str,
    /// The source position of the call.
    pub span: Span,
}

/// Links between the devices of several processes.
///
/// Work is queued on streams, in the same order in all processes. Work that exceeds the group's timeout, or
/// fails later, fails the group ([`GroupState::fail_and_announce`]).
pub trait Communicator: Send + Sync {
    /// True when the communicator can combine elements of this dtype.
    fn folds(&self, fold: Fold, dtype: Dtype) -> bool;
    /// Queues work. May wait for the other processes the first time it needs links to them.
    fn queue(&self, work: &Exchange, stream: StreamHandle) -> Result<()>;
    /// Waits until all queued work has completed or the group has failed.
    fn finish(&self);
    /// Ends queued work at once, leaving its results undefined, and releases everything.
    fn abort(&self);
    /// Releases everything; all processes call it together.
    fn close(&self);
}

/// A device's links to devices of other processes.
pub trait Links {
    /// The shared id that all processes pass to [`Links::join`]; one of them creates it.
    fn id(&self) -> Result<Vec<u8>>;
    /// Links this device with those of other processes; all of them call this at the same time.
    fn join(&self, params: JoinParams<'_>) -> Result<Arc<dyn Communicator>>;
}

/// The parameters with which a device joins the others.
pub struct JoinParams<'a> {
    /// The id that rank 0's device made for all.
    pub id: &'a [u8],
    /// The rank of this process.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// Time limit of every operation.
    pub timeout: Duration,
    /// The failure state of the group.
    pub group_state: Arc<GroupState>,
}

/// Delay between announcing a failure and aborting. Results of an aborted device may look valid to other
/// processes that wait for it. The delay lets them learn of the failure first, so that they discard such
/// results.
const ANNOUNCE_DELAY: Duration = Duration::from_millis(100);

/// Tells the other processes why this process has failed.
type Announce = Box<dyn Fn(&str) + Send + Sync>;

/// The failure state of a group. Only the first failure counts.
#[derive(Default)]
pub struct GroupState {
    failure: OnceLock<Error>,
    /// A wait has raised the failure.
    raised: AtomicBool,
    /// Tells the other processes the reason of a failure.
    announce: OnceLock<Announce>,
    /// The communicator to abort on failure.
    communicator: Mutex<Option<Arc<dyn Communicator>>>,
}

impl GroupState {
    /// The failure, if any.
    pub fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// True when the group has failed.
    pub fn is_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// True for the first wait that checks after a failure.
    pub(crate) fn is_news(&self) -> bool {
        self.is_failed() && !self.raised.swap(true, Ordering::Relaxed)
    }

    /// Fails the group, unless it has failed already, and aborts its work on devices.
    pub fn fail(&self, error: Error) {
        if self.failure.set(error).is_err() {
            return;
        }
        let communicator = self.communicator.lock().take();
        if let Some(communicator) = communicator {
            std::thread::sleep(ANNOUNCE_DELAY);
            communicator.abort();
        }
    }

    /// As [`GroupState::fail`]; also tells the other processes.
    pub fn fail_and_announce(&self, error: Error) {
        if self.is_failed() {
            return;
        }
        self.announce_failure(error.message());
        self.fail(error);
    }

    /// Tells the other processes that this one has failed.
    pub(crate) fn announce_failure(&self, reason: &str) {
        if let Some(announce) = self.announce.get() {
            announce(reason);
        }
    }

    /// Sets the function that tells the other processes. Only the first call has an effect.
    pub(crate) fn announce_with(&self, announce: impl Fn(&str) + Send + Sync + 'static) {
        self.announce.set(Box::new(announce)).ok();
    }

    /// Sets the communicator to abort when the group fails.
    pub(crate) fn bind(&self, communicator: Option<Arc<dyn Communicator>>) {
        *self.communicator.lock() = communicator;
        if self.is_failed()
            && let Some(communicator) = self.communicator.lock().take()
        {
            communicator.abort();
        }
    }
}

/// A process of a group failed.
pub static PEER_FAILED: Code = Code {
    id: "E0535",
    kind: ErrorKind::Io,
    title: "a process of the group failed",
    page: "One process of the group ended, or its script ended with an error. The others end their collective \
           operations, or their next wait for a device, with this error, which names it; its own report has the \
           details.\n\nThe group cannot go on. `dist.destroy()` leaves it.",
    example: "",
};

/// An operation of a group took too long.
pub static GROUP_TIME: Code = Code {
    id: "E0536",
    kind: ErrorKind::Io,
    title: "a collective operation took too long",
    page: "An operation of a group needs all of its processes, or the two that send and receive. Not all \
           of them reached it within the time that `dist.init(timeout=...)` gives.\n\nDoes every process \
           take this path through the script? Give more time where some have more to do.",
    example: "",
};

/// The library that runs collectives reports an error.
pub fn links_failed(reason: &str) -> Error {
    Error::new(&PEER_FAILED, format!("the links between the processes failed: {reason}"))
}

/// An operation timed out; `text` names it and the missing processes.
pub fn too_late(text: impl Into<String>) -> Error {
    Error::new(&GROUP_TIME, text).help(
        "does every process take this path through the script? `dist.init(timeout=...)` gives more time",
    )
}
