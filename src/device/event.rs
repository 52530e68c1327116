//! Events: points in a stream's work that other streams and the host can wait for.

use super::races::EventClock;
use super::{Device, DeviceId, Driver, EventHandle, Stream, error};
use crate::base::Result;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// How an event was asked for; the arguments of `torch.cuda.Event`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventFlags {
    /// It measures time.
    pub enable_timing: bool,
    /// The host sleeps in `synchronize` instead of spinning. All our drivers sleep: the flag is kept
    /// and shown, and changes nothing.
    pub blocking: bool,
    /// It can be shared with another process.
    pub interprocess: bool,
}

/// A point in a stream's work.
///
/// Invariant: it has neither a device nor a handle before the first record; afterwards it keeps
/// both, and each record replaces the one before. Source: `torch.cuda.Event`.
pub struct Event {
    flags: EventFlags,
    recorded: Mutex<Option<Recorded>>,
    clock: Mutex<EventClock>,
    captured: Mutex<Option<CapturedRecord>>,
    _ticket: Option<Arc<()>>,
}

/// A record that was captured instead of queued: nothing waits for it but its own capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedRecord {
    /// The capture's number, unique in the process.
    pub capture: u64,
    /// The mark in it ([`Task::Mark`](super::graph::Task::Mark)).
    pub mark: u32,
}

struct Recorded {
    device: DeviceId,
    driver: Arc<dyn Driver>,
    handle: EventHandle,
}

impl Event {
    /// An event that was not recorded yet; touches no device.
    pub fn new(flags: EventFlags) -> Event {
        Event {
            flags,
            recorded: Mutex::new(None),
            clock: Mutex::new(EventClock::default()),
            captured: Mutex::new(None),
            _ticket: None,
        }
    }

    /// The same event with a ticket that it holds as long as it lives: its owner counts by them.
    pub fn counted(mut self, ticket: Arc<()>) -> Event {
        self._ticket = Some(ticket);
        self
    }

    /// How it was asked for.
    pub fn flags(&self) -> EventFlags {
        self.flags
    }

    /// The device of its first record; `None` before.
    pub fn device(&self) -> Option<DeviceId> {
        self.recorded.lock().as_ref().map(|r| r.device)
    }

    /// What the driver calls it; 0 before the first record.
    pub fn handle(&self) -> EventHandle {
        self.recorded.lock().as_ref().map_or(0, |r| r.handle)
    }

    /// Marks the point that the stream's work has reached now. Only streams of the device of the
    /// first record may record it again.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let mut recorded = self.recorded.lock();
        if let Some(r) = &*recorded {
            if r.device != stream.device() {
                return Err(error::event_of_another_device(r.device, stream.device()));
            }
            return r.driver.event_record(r.handle, stream.handle());
        }
        let driver = stream.driver().clone();
        let handle = self.make(&*driver)?;
        match driver.event_record(handle, stream.handle()) {
            Ok(()) => *recorded = Some(Recorded { device: stream.device(), driver, handle }),
            Err(e) => {
                driver.event_free(handle);
                return Err(e);
            }
        }
        Ok(())
    }

    fn make(&self, driver: &dyn Driver) -> Result<EventHandle> {
        match self.flags {
            EventFlags { interprocess: true, enable_timing: true, .. } => {
                Err(error::event_not_shared("an event with timing cannot be shared"))
            }
            EventFlags { interprocess: true, .. } => driver.event_interprocess(),
            flags => driver.event(flags.enable_timing),
        }
    }

    /// The handle under which another process opens the event, 64 bytes. An event without a record is
    /// made on `near`, and belongs to it from then on. Source: `torch.cuda.Event.ipc_handle`.
    pub fn ipc_handle(&self, near: &Device) -> Result<[u8; 64]> {
        if !self.flags.interprocess {
            return Err(error::event_not_shared("it was not made with `interprocess=true`"));
        }
        let mut recorded = self.recorded.lock();
        if recorded.is_none() {
            let driver = near.driver().clone();
            let handle = self.make(&*driver)?;
            *recorded = Some(Recorded { device: near.id(), driver, handle });
        }
        match &*recorded {
            Some(r) => r.driver.event_export(r.handle),
            None => Err(error::event_not_recorded()),
        }
    }

    /// An event of another process. Source: `torch.cuda.Event.from_ipc_handle`.
    pub fn from_ipc_handle(device: &Device, handle: &[u8; 64]) -> Result<Event> {
        let event = Event::new(EventFlags { interprocess: true, ..EventFlags::default() });
        let driver = device.driver().clone();
        let handle = driver.event_import(handle)?;
        *event.recorded.lock() = Some(Recorded { device: device.id(), driver, handle });
        Ok(event)
    }

    /// Makes later work of a stream, of any device, wait for the last record; nothing to wait for
    /// before the first.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        match &*self.recorded.lock() {
            Some(r) => stream.driver().event_wait(stream.handle(), r.handle, &*r.driver),
            None => Ok(()),
        }
    }

    /// True when the last record has completed, and before the first. A true answer orders the
    /// host after it: tell the race checker.
    pub fn query(&self) -> Result<bool> {
        match &*self.recorded.lock() {
            Some(r) => r.driver.event_query(r.handle),
            None => Ok(true),
        }
    }

    /// Waits until the last record has completed.
    pub fn synchronize(&self) -> Result<()> {
        // The lock is not held while waiting: another thread may record or query meanwhile.
        let point = self.recorded.lock().as_ref().map(|r| (r.driver.clone(), r.handle));
        point.map_or(Ok(()), |(driver, handle)| driver.event_synchronize(handle))
    }

    /// Milliseconds from this event to `end`. Both need timing, a record, and completion, on one
    /// device.
    pub fn elapsed_time(&self, end: &Event) -> Result<f64> {
        if !(self.flags.enable_timing && end.flags.enable_timing) {
            return Err(error::event_without_timing());
        }
        let point = |e: &Event| e.recorded.lock().as_ref().map(|r| (r.device, r.driver.clone(), r.handle));
        let (Some((device, driver, start)), Some((other, _, end))) = (point(self), point(end)) else {
            return Err(error::event_not_recorded());
        };
        if device != other {
            return Err(error::event_of_another_device(device, other));
        }
        if !(driver.event_query(start)? && driver.event_query(end)?) {
            return Err(error::event_not_complete());
        }
        driver.event_elapsed(start, end)
    }

    /// The last record, if it was captured.
    pub fn captured(&self) -> Option<CapturedRecord> {
        *self.captured.lock()
    }

    /// Notes that the last record was captured, or, with `None`, that it was not.
    pub fn set_captured(&self, record: Option<CapturedRecord>) {
        *self.captured.lock() = record;
    }

    /// What the last record covers, for the race checker.
    pub fn clock(&self) -> MutexGuard<'_, EventClock> {
        self.clock.lock()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(r) = self.recorded.get_mut().take() {
            r.driver.event_free(r.handle);
        }
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.device() {
            Some(device) => write!(f, "event {:#x} of {device}", self.handle()),
            None => f.write_str("event, not recorded"),
        }
    }
}
