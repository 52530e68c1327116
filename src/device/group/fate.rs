//! Whether a group still lives, as all of its threads see it.

use super::Communicator;
use super::wire::{self, Say};
use crate::base::{Error, Result};
use parking_lot::Mutex;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a device leaves when it is stopped may look whole to those that wait for it. So the others get this long
/// to hear of a failure before anything is aborted, and to take what they get for nothing.
const TELLING: Duration = Duration::from_millis(100);

/// The first failure of a group, which is also its last.
#[derive(Default)]
pub struct Fate {
    failure: OnceLock<Error>,
    /// A wait has raised it.
    raised: AtomicBool,
    /// The way to the others.
    writer: OnceLock<Arc<Mutex<TcpStream>>>,
    /// What is aborted with the group.
    communicator: Mutex<Option<Arc<dyn Communicator>>>,
}

impl Fate {
    /// The failure, if there was one.
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

    /// Ends the group, if nothing has before, and what its devices still do for it.
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

    /// The same, and tells the other processes.
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

    /// Makes a communicator one that is aborted when the group fails.
    pub(super) fn bind(&self, communicator: Option<Arc<dyn Communicator>>) {
        *self.communicator.lock() = communicator;
        if self.is_failed()
            && let Some(communicator) = self.communicator.lock().take()
        {
            communicator.abort();
        }
    }
}
