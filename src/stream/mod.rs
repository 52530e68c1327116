//! Streams: queues of work, the order between them, and the outcome of the work.
//!
//! Contains a device's queues and their pool, events, the race checker (`races`), the launches in flight and
//! the faults that they report. These calls order work only in the driver. The caller informs the race
//! checker, which belongs to a session, not to a device. Independent of memory: an access is a range of
//! addresses.

pub mod error;
mod event;
mod faults;
mod foreign;
mod in_flight;
mod passing;
mod queue;
pub mod races;
mod threads;

pub use event::{CapturedRecord, Event, EventFlags};
pub(crate) use faults::Faults;
pub use faults::{FROM_ZERO, Indices, Meaning, Misplaced, Suspect};
pub use foreign::Foreign;
pub(crate) use in_flight::InFlight;
pub use in_flight::Ticket;
pub use passing::{when_all_passed, when_passed};
pub(crate) use queue::StreamPool;
pub use queue::{STREAMS_PER_PRIORITY, Stream};
