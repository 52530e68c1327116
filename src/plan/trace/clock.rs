//! The two time sources: events of real devices, and modelled time.
//!
//! Note [Modelled time]. On emulated devices every stream has a clock. Work begins when its stream is free
//! and the host has submitted it, and takes the time that the driver's model predicts. A submission takes the
//! host [`SUBMIT`]. Waits, and events that other streams wait for, advance clocks. The result does not depend
//! on when the emulator really ran the work.

use crate::base::Result;
use crate::device::Device;
use crate::driver::{DeviceId, Driver, EventHandle};
use crate::stream::Stream;
use foldhash::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The duration of a submission on the host, in modelled nanoseconds.
const SUBMIT: u64 = 1_000;
/// Maximum number of work items with unread times; at this number, half of them are read.
const MOST_PENDING: usize = 4096;
/// A base is replaced after this many milliseconds, because drivers report times as 24-bit floats.
const BASE_MS: f64 = 500.0;

pub(super) enum Clock {
    Virtual(Virtual),
    Real(Real),
}

/// See Note [Modelled time].
#[derive(Default)]
pub(super) struct Virtual {
    host: u64,
    /// The time at which each stream becomes free.
    free: HashMap<(DeviceId, u32), u64>,
    /// The completion time of each event's latest record.
    events: HashMap<(DeviceId, EventHandle), u64>,
}

pub(super) struct Real {
    began: Instant,
    bases: HashMap<DeviceId, Base>,
    pending: VecDeque<Pending>,
    spare: HashMap<DeviceId, Vec<EventHandle>>,
}

/// A device event with a known time on the host's clock.
struct Base {
    driver: Arc<dyn Driver>,
    event: EventHandle,
    at: u64,
}

/// Work between two events.
struct Pending {
    action: usize,
    device: DeviceId,
    start: EventHandle,
    end: EventHandle,
}

/// The index, start and end of an action whose times have become known.
pub(super) type TimedAction = (usize, u64, u64);

impl Clock {
    pub(super) fn new(is_virtual: bool) -> Clock {
        match is_virtual {
            true => Clock::Virtual(Virtual::default()),
            false => Clock::Real(Real {
                began: Instant::now(),
                bases: HashMap::default(),
                pending: VecDeque::new(),
                spare: HashMap::default(),
            }),
        }
    }

    pub(super) fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }

    /// The host's time.
    pub(super) fn now(&self) -> u64 {
        match self {
            Clock::Virtual(clock) => clock.host,
            Clock::Real(clock) => clock.now(),
        }
    }
}

impl Virtual {
    /// Schedules work on a stream; returns its start and end.
    pub(super) fn run(&mut self, stream: &Stream, cost: u64) -> (u64, u64) {
        let free = self.free.entry((stream.device(), stream.id())).or_default();
        let start = self.host.max(*free);
        let end = start.saturating_add(cost);
        *free = end;
        self.host = self.host.saturating_add(SUBMIT);
        (start, end)
    }

    /// Schedules work of the host itself.
    pub(super) fn run_on_host(&mut self, cost: u64) -> (u64, u64) {
        let start = self.host;
        self.host = start.saturating_add(cost);
        (start, self.host)
    }

    fn free(&self, stream: &Stream) -> u64 {
        self.free.get(&(stream.device(), stream.id())).copied().unwrap_or(0).max(self.host)
    }

    /// Advances the host to a time, unless it is already past it.
    fn wait_until(&mut self, at: u64) {
        self.host = self.host.max(at);
    }

    pub(super) fn host_waits_for_stream(&mut self, stream: &Stream) {
        self.wait_until(self.free(stream));
    }

    pub(super) fn host_waits_for_device(&mut self, device: DeviceId) {
        let last = self.free.iter().filter(|((d, _), _)| *d == device).map(|(_, at)| *at).max();
        self.wait_until(last.unwrap_or(0));
    }

    pub(super) fn host_waits_for_event(&mut self, event: (DeviceId, EventHandle)) {
        self.wait_until(self.events.get(&event).copied().unwrap_or(0));
    }

    pub(super) fn record(&mut self, event: (DeviceId, EventHandle), stream: &Stream) {
        let at = self.free(stream);
        self.events.insert(event, at);
    }

    pub(super) fn stream_waits_for_event(&mut self, stream: &Stream, event: (DeviceId, EventHandle)) {
        let at = self.events.get(&event).copied().unwrap_or(0);
        let free = self.free.entry((stream.device(), stream.id())).or_default();
        *free = at.max(*free);
    }

    pub(super) fn stream_waits_for_stream(&mut self, stream: &Stream, other: &Stream) {
        let at = self.free(other);
        let free = self.free.entry((stream.device(), stream.id())).or_default();
        *free = at.max(*free);
    }
}

impl Real {
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// The trace time of a host instant; 0 for instants before the trace.
    pub(super) fn at(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.began).as_nanos() as u64
    }

    /// Records a timing event on a stream.
    pub(super) fn mark(&mut self, device: &Device, stream: &Stream) -> Result<EventHandle> {
        self.base(device)?;
        let spare = self.spare.get_mut(&device.id()).and_then(Vec::pop);
        let driver = device.driver();
        let event = spare.map_or_else(|| driver.event(true), Ok)?;
        match driver.event_record(event, stream.handle()) {
            Ok(()) => Ok(event),
            Err(e) => {
                self.give_back(device.id(), event);
                Err(e)
            }
        }
    }

    /// Notes work between two events; returns times that became known.
    pub(super) fn expect(
        &mut self,
        action: usize,
        device: DeviceId,
        (start, end): (EventHandle, EventHandle),
    ) -> Vec<TimedAction> {
        self.pending.push_back(Pending { action, device, start, end });
        match self.pending.len() >= MOST_PENDING {
            true => self.resolve(MOST_PENDING / 2),
            false => Vec::new(),
        }
    }

    /// Waits for the oldest work until `left` items remain, and returns their times. Items of a failed device
    /// are omitted.
    pub(super) fn resolve(&mut self, left: usize) -> Vec<TimedAction> {
        let mut known = Vec::new();
        while self.pending.len() > left {
            let Some(mut work) = self.pending.pop_front() else { break };
            known.extend(self.times(&mut work).map(|(start, end)| (work.action, start, end)));
            self.give_back(work.device, work.start);
            self.give_back(work.device, work.end);
        }
        known
    }

    pub(super) fn give_back(&mut self, device: DeviceId, event: EventHandle) {
        self.spare.entry(device).or_default().push(event);
    }

    fn times(&mut self, work: &mut Pending) -> Option<(u64, u64)> {
        let base = self.bases.get_mut(&work.device)?;
        base.driver.event_synchronize(work.end).ok()?;
        let after = |event| -> Option<f64> { base.driver.event_elapsed(base.event, event).ok() };
        let (start, end) = (after(work.start)?, after(work.end)?);
        let at = |ms: f64| base.at.saturating_add_signed((ms * 1e6) as i64);
        let times = (at(start), at(end).max(at(start)));
        if end > BASE_MS {
            // This event is complete and its time is known, so it becomes the next base and the old one
            // becomes spare.
            std::mem::swap(&mut base.event, &mut work.end);
            base.at = times.1;
        }
        Some(times)
    }

    /// Ensures that a device has a base: an event that the host has seen complete.
    fn base(&mut self, device: &Device) -> Result<()> {
        if self.bases.contains_key(&device.id()) {
            return Ok(());
        }
        let driver = device.driver().clone();
        let event = driver.event(true)?;
        driver.event_record(event, device.default_stream().handle())?;
        driver.event_synchronize(event)?;
        let base = Base { driver, event, at: self.now() };
        self.bases.insert(device.id(), base);
        Ok(())
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.resolve(0);
        for (device, base) in &self.bases {
            base.driver.event_free(base.event);
            for event in self.spare.remove(device).unwrap_or_default() {
                base.driver.event_free(event);
            }
        }
    }
}
