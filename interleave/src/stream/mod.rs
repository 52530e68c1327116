//! Streams, with threads that the checker starts.

#![allow(dead_code, unused_imports)] // Only the parts that concern threads are called here.

#[path = "../../../src/stream/error.rs"]
pub mod error;
#[path = "../../../src/stream/faults.rs"]
mod faults;
#[path = "../../../src/stream/in_flight.rs"]
mod in_flight;
#[path = "../../../src/stream/passing.rs"]
mod passing;
#[path = "../../../src/stream/queue.rs"]
mod queue;
#[path = "../../../src/stream/races/mod.rs"]
pub mod races;

pub(crate) use faults::Faults;
pub use faults::{Indices, Suspect};
pub(crate) use in_flight::InFlight;
pub use in_flight::Ticket;
pub use passing::when_passed;
pub(crate) use queue::StreamPool;
pub use queue::{STREAMS_PER_PRIORITY, Stream};

/// Threads are started through the checker.
mod threads {
    pub(super) fn start(_: &str, work: impl FnOnce() + Send + 'static) -> bool {
        crate::checker::thread::spawn(work);
        true
    }
}
