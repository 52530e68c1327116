//! The failure state of a group, shared by all of its threads.

use super::Communicator;
use super::wire::{self, Say};
use crate::base::{Error, Result};
use parking_lot::Mutex;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Delay between announcing a failure and aborting. Results of an aborted device may look valid to other
/// processes that wait for it. The delay lets them learn of the failure first, so that they discard such
/// results.
const TELLING: Duration = Duration::from_millis(100);

/// The failure state of a group. Only the first failure counts.
#[derive(Default)]
pub struct GroupState {
    failure: OnceLock<Error>,
    /// A wait has raised the failure.
    raised: AtomicBool,
    /// The connection to the other processes.
    writer: OnceLock<Arc<Mutex<TcpStream>>>,
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

    /// True for the first wait that asks after a failure.
    pub(super) fn is_news(&self) -> bool {
        self.is_failed() && !self.raised.swap(true, Ordering::Relaxed)
    }

    /// Fails the group, unless it has failed already, and aborts its work on devices.
    pub fn fail(&self, error: Error) {
        if self.failure.set(error).is_err() {
            return;
        }
        let communicator = self.communicator.lock().take();
        if let Some(communicator) = communicator {
            std::thread::sleep(TELLING);
            communicator.abort();
        }
    }

    /// As [`GroupState::fail`]; also tells the other processes.
    pub fn fail_and_tell(&self, error: Error) {
        if self.is_failed() {
            return;
        }
        self.tell(error.message());
        self.fail(error);
    }

    /// Tells the other processes that this one has failed.
    pub(super) fn tell(&self, reason: &str) {
        let Some(mut writer) = self.writer.get().and_then(|writer| writer.try_lock()) else { return };
        let say = Say::Failed { reason: wire::shortened(reason) };
        let give_up = || Err(super::error::not_initialized());
        wire::write(&mut writer, &say, &[], &mut { give_up }).ok();
    }

    pub(super) fn announce_through(&self, writer: &Arc<Mutex<TcpStream>>) {
        self.writer.set(writer.clone()).ok();
    }

    /// Sets the communicator to abort when the group fails.
    pub(super) fn bind(&self, communicator: Option<Arc<dyn Communicator>>) {
        *self.communicator.lock() = communicator;
        if self.is_failed()
            && let Some(communicator) = self.communicator.lock().take()
        {
            communicator.abort();
        }
    }
}
