//! Events: points in a stream's work that other streams and the host can wait for.

use crate::base::Result;
use crate::driver::{DeviceId, Driver, EventHandle, error};
use crate::stream::Stream;
use crate::stream::races::EventClock;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// The options of an event: the arguments of `torch.cuda.Event`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventFlags {
    /// Measures time.
    pub enable_timing: bool,
    /// The host sleeps in `synchronize` instead of spinning. All drivers sleep anyway: the flag is stored and
    /// shown, but has no effect.
    pub blocking: bool,
    /// Can be shared with another process.
    pub interprocess: bool,
}

/// A point in a stream's work.
///
/// Invariant: without a record it has neither a device nor a handle. The first record sets both for good;
/// each record replaces the previous one. Source: `torch.cuda.Event`.
pub struct Event {
    flags: EventFlags,
    recorded: Mutex<Option<LastRecord>>,
    clock: Mutex<EventClock>,
    captured: Mutex<Option<CapturedRecord>>,
    _ticket: Option<Arc<()>>,
}

/// A record made during a capture. Only work of the same capture can wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedRecord {
    /// The capture's number, unique in the process.
    pub capture: u64,
    /// The mark in it ([`Task::Mark`](crate::driver::graph::Task::Mark)).
    pub mark: u32,
}

struct LastRecord {
    device: DeviceId,
    driver: Arc<dyn Driver>,
    handle: EventHandle,
}

impl Event {
    /// An event without a record; uses no device.
    pub fn new(flags: EventFlags) -> Event {
        Event {
            flags,
            recorded: Mutex::new(None),
            clock: Mutex::new(EventClock::default()),
            captured: Mutex::new(None),
            _ticket: None,
        }
    }

    /// The same event with a ticket that it holds while it lives; the owner counts events by tickets.
    pub fn counted(mut self, ticket: Arc<()>) -> Event {
        self._ticket = Some(ticket);
        self
    }

    /// The options.
    pub fn flags(&self) -> EventFlags {
        self.flags
    }

    /// The device of the first record; `None` before it.
    pub fn device(&self) -> Option<DeviceId> {
        self.recorded.lock().as_ref().map(|r| r.device)
    }

    /// The driver's handle; 0 before the first record.
    pub fn handle(&self) -> EventHandle {
        self.recorded.lock().as_ref().map_or(0, |r| r.handle)
    }

    /// Records the point that the stream's work has reached. All records must be on streams of the device of
    /// the first one.
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
            Ok(()) => *recorded = Some(LastRecord { device: stream.device(), driver, handle }),
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

    /// The 64-byte handle with which another process opens the event. An event without a record is created on
    /// the device of `near` and belongs to that device from then on. Source: `torch.cuda.Event.ipc_handle`.
    pub fn ipc_handle(&self, near: &Stream) -> Result<[u8; 64]> {
        if !self.flags.interprocess {
            return Err(error::event_not_shared("it was not made with `interprocess=true`"));
        }
        let mut recorded = self.recorded.lock();
        if recorded.is_none() {
            let driver = near.driver().clone();
            let handle = self.make(&*driver)?;
            *recorded = Some(LastRecord { device: near.device(), driver, handle });
        }
        match &*recorded {
            Some(r) => r.driver.event_export(r.handle),
            None => Err(error::event_not_recorded()),
        }
    }

    /// An event of another process, for the device of a stream. Source: `torch.cuda.Event.from_ipc_handle`.
    pub fn from_ipc_handle(stream: &Stream, handle: &[u8; 64]) -> Result<Event> {
        let event = Event::new(EventFlags { interprocess: true, ..EventFlags::default() });
        let driver = stream.driver().clone();
        let handle = driver.event_import(handle)?;
        *event.recorded.lock() = Some(LastRecord { device: stream.device(), driver, handle });
        Ok(event)
    }

    /// Makes later work of a stream, on any device, wait for the latest record. Without a record there is
    /// nothing to wait for.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        match &*self.recorded.lock() {
            Some(r) => stream.driver().event_wait(stream.handle(), r.handle, &*r.driver),
            None => Ok(()),
        }
    }

    /// True when the latest record has completed, or without a record. A true result orders the host after
    /// the record: the caller must tell the race checker.
    pub fn query(&self) -> Result<bool> {
        match &*self.recorded.lock() {
            Some(r) => r.driver.event_query(r.handle),
            None => Ok(true),
        }
    }

    /// Waits until the latest record has completed.
    pub fn synchronize(&self) -> Result<()> {
        // Release the lock while waiting: another thread may record or query.
        let point = self.recorded.lock().as_ref().map(|r| (r.driver.clone(), r.handle));
        point.map_or(Ok(()), |(driver, handle)| driver.event_synchronize(handle))
    }

    /// Milliseconds from this event to `end`. Both need timing, a completed record, and the same device.
    pub fn elapsed_time(&self, end: &Event) -> Result<f64> {
        if !(self.flags.enable_timing && end.flags.enable_timing) {
            return Err(error::event_without_timing());
        }
        let point = |e: &Event| e.recorded.lock().as_ref().map(|r| (r.device, r.driver.clone(), r.handle));
        let (Some((device, driver, start)), Some((other, _, end))) = (point(self), point(end)) else {
            return Err(error::event_not_recorded());
        };
        if device != other {
            return Err(error::elapsed_across(device, other));
        }
        if !(driver.event_query(start)? && driver.event_query(end)?) {
            return Err(error::event_not_complete());
        }
        driver.event_elapsed(start, end)
    }

    /// The latest record, if it was captured.
    pub fn captured(&self) -> Option<CapturedRecord> {
        *self.captured.lock()
    }

    /// Notes that the latest record was captured, or with `None` that it was not.
    pub fn set_captured(&self, record: Option<CapturedRecord>) {
        *self.captured.lock() = record;
    }

    /// The race checker's clock of the latest record.
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
