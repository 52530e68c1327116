//! Ordering between streams: events, waits, and the race checker's view of them.

use super::submit::Call;
use super::trace::{ActionKind, WaitFor};
use super::{RaceMode, Runtime};
use crate::array::{Dtype, Layout};
use crate::base::{Error, Piece, Result};
use crate::device::Device;
use crate::driver::{DeviceId, Work};
use crate::stream::races::{Access, Checker, Conflict, Site, Touch, Watched, Where};
use crate::stream::{Event, Stream, error};
use crate::tensor::{Room, Storage, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// A session's record of accesses and their order, outside of captures.
#[derive(Default)]
pub(super) struct Races {
    pub(super) checker: Checker,
    repaired: u64,
}

impl Runtime {
    /// The number of missing waits that `races("fix")` and `races("warn")` have inserted.
    pub fn races_repaired(&self) -> u64 {
        self.races.repaired
    }

    /// Records an event on a stream, after all work submitted there.
    pub fn record_event(&mut self, event: &Event, stream: &Arc<Stream>) -> Result<()> {
        self.flush_stream(stream)?;
        if self.capture_record(event, stream) {
            return Ok(());
        }
        event.record(stream).map_err(|e| self.blame_sticky(stream, e))?;
        event.set_captured(None);
        self.races.checker.record(&mut event.clock(), stream);
        self.trace_record(event, stream);
        Ok(())
    }

    /// Makes later work of a stream wait for an event.
    pub fn wait_event(&mut self, stream: &Arc<Stream>, event: &Event) -> Result<()> {
        self.flush_stream(stream)?;
        if self.capture_wait(stream, event)? {
            return Ok(());
        }
        event.wait(stream).map_err(|e| self.blame_sticky(stream, e))?;
        self.races.checker.wait(stream, &event.clock());
        self.races.checker.publish(stream);
        self.trace_stream_wait(stream, WaitFor::Event(event));
        Ok(())
    }

    /// Makes later work of a stream wait for all work submitted on another.
    pub fn wait_stream(&mut self, stream: &Arc<Stream>, other: &Arc<Stream>) -> Result<()> {
        self.flush_stream(other)?;
        self.flush_stream(stream)?;
        if self.capture_wait_stream(stream, other)? {
            return Ok(());
        }
        stream.wait_stream(other).map_err(|e| self.blame_sticky(stream, e))?;
        self.races.checker.wait_stream(stream, other);
        self.races.checker.publish(stream);
        self.trace_stream_wait(stream, WaitFor::Stream(other));
        Ok(())
    }

    /// Orders a borrower of a tensor's memory after all work that uses the memory, on any stream. With a
    /// stream, its later work waits; without one, the host waits. After the tensor is dropped, the memory is
    /// reused only when the borrower's stream has passed everything it has queued by then.
    pub fn lend(&mut self, tensor: &Tensor, borrower: Option<&Arc<Stream>>) -> Result<()> {
        self.flush()?;
        self.store_held()?;
        let storage = tensor.storage();
        let Some(memory) = storage.memory().filter(|_| !storage.is_lost()) else {
            return if storage.bytes() == 0 { Ok(()) } else { Err(super::error::lost_value(storage)) };
        };
        for stream in memory.streams() {
            self.refuse_captured(&stream, "lending memory to another library")?;
            match borrower {
                Some(borrower) if stream.device() != DeviceId::Cpu => self.wait_stream(borrower, &stream)?,
                _ => self.synchronize_stream(&stream)?,
            }
        }
        storage.note_lent();
        if let Some(borrower) = borrower {
            memory.lent_to(borrower);
        }
        Ok(())
    }

    /// Waits on the host until a stream is idle, then raises faults that its kernels reported.
    pub fn synchronize_stream(&mut self, stream: &Arc<Stream>) -> Result<()> {
        self.refuse_captured(stream, "waiting for this stream")?;
        self.flush_stream(stream)?;
        let device = self.device(stream.device())?;
        let since = self.trace_now();
        stream.synchronize().map_err(|e| device.blame(e))?;
        #[cfg(feature = "dist")]
        self.raise_group_failure(&device)?;
        self.trace_wait(since, WaitFor::Stream(stream));
        device.note_waited(Some(stream));
        self.races.checker.host_wait_stream(stream);
        device.check_faults()
    }

    /// Waits on the host for an event.
    pub fn synchronize_event(&mut self, event: &Event) -> Result<()> {
        if let Some(record) = event.captured() {
            return self.refuse_record(record, "waiting for an event");
        }
        let device = event.device().map(|id| self.device(id)).transpose()?;
        let since = self.trace_now();
        event.synchronize().map_err(|e| blamed(device.as_deref(), e))?;
        #[cfg(feature = "dist")]
        device.as_ref().map_or(Ok(()), |device| self.raise_group_failure(device))?;
        self.trace_wait(since, WaitFor::Event(event));
        self.races.checker.host_wait_event(&event.clock());
        device.map_or(Ok(()), |device| device.check_faults())
    }

    /// Waits on the host for every stream of a device; does nothing for an unused device.
    pub fn synchronize_device(&mut self, id: DeviceId) -> Result<()> {
        self.refuse_capturing(id, "waiting for the device")?;
        self.flush()?;
        let device = self.device(id)?;
        let since = self.trace_now();
        device.synchronize().map_err(|e| device.blame(e))?;
        #[cfg(feature = "dist")]
        self.raise_group_failure(&device)?;
        self.trace_wait(since, WaitFor::Device(id));
        device.note_waited(None);
        self.races.checker.host_wait_device(id);
        device.check_faults()
    }

    /// True when a stream is idle; its work is then ordered before the host's next work.
    pub fn query_stream(&mut self, stream: &Arc<Stream>) -> Result<bool> {
        self.refuse_captured(stream, "a query of this stream")?;
        self.flush_stream(stream)?;
        let device = self.device(stream.device())?;
        let idle = stream.query().map_err(|e| device.blame(e))?;
        if idle {
            device.note_waited(Some(stream));
            self.races.checker.host_wait_stream(stream);
        }
        Ok(idle)
    }

    /// True when an event has completed, or was never recorded.
    pub fn query_event(&mut self, event: &Event) -> Result<bool> {
        if let Some(record) = event.captured() {
            return self.refuse_record(record, "a query of an event").map(|()| true);
        }
        let device = event.device().map(|id| self.device(id)).transpose()?;
        let done = event.query().map_err(|e| blamed(device.as_deref(), e))?;
        if done {
            self.races.checker.host_wait_event(&event.clock());
        }
        Ok(done)
    }

    /// Keeps a stream busy for about this many clock cycles. Source: `torch.cuda._sleep`.
    pub fn sleep(&mut self, stream: &Arc<Stream>, cycles: u64) -> Result<()> {
        self.flush_stream(stream)?;
        if self.capture_sleep(stream, cycles) {
            return Ok(());
        }
        let device = self.device(stream.device())?;
        let started = self.trace_before(&device, stream, None);
        let done = stream.driver().sleep(cycles, stream.handle());
        if let Some(started) = started {
            let shown = (ActionKind::Sleep, "sleep".into());
            let call = Call { name: "sleep", shown, bytes: 0, work: Work::Sleep(cycles) };
            self.trace_other(started, &device, stream, call);
        }
        done.map_err(|e| device.blame_if_sticky(e))
    }

    /// Flushes the pending work of a stream.
    pub fn flush_stream(&mut self, stream: &Arc<Stream>) -> Result<()> {
        let at = self.queue_of(stream);
        self.flush_queue(at)
    }

    /// The error of a call that queued something on a stream.
    fn blame_sticky(&self, stream: &Stream, e: Error) -> Error {
        match self.machine.device(stream.device()) {
            Ok(device) => device.blame_if_sticky(e),
            Err(_) => e,
        }
    }

    /// Waits for a queue's stream, unless it is captured: then nothing runs.
    pub(super) fn wait_queue(&mut self, at: usize) -> Result<()> {
        if self.capture_at(at).is_some() {
            return Ok(());
        }
        let stream = self.queues[at].stream.clone();
        self.synchronize_stream(&stream)
    }

    /// Checks an operation on a queue's stream, with these reads and writes, for races. The operation is
    /// admitted, ordered after the accesses it races with, or rejected as a whole.
    pub(super) fn note<'t>(
        &mut self,
        name: &'static str,
        at: usize,
        tensors: impl IntoIterator<Item = (&'t Tensor, Access)> + Clone,
    ) -> Result<()> {
        self.spend_on(tensors.clone())?;
        let site = self.site(name);
        if let Some(capture) = self.capture_at(at) {
            return self.note_captured(capture, at, site, tensors);
        }
        if self.settings.races == RaceMode::Allow {
            return Ok(());
        }
        // Fast path: memory used only by the host has no history, so it cannot race.
        let unknown = |(tensor, _): (&Tensor, Access)| tensor.storage().history.is_untouched();
        if self.queues[at].stream.device() == DeviceId::Cpu && tensors.clone().into_iter().all(unknown) {
            return Ok(());
        }
        self.note_touches(at, &touches(tensors), site)
    }

    /// Charges for the elements of tensors that an operation accesses. Errors: E1002.
    fn spend_on<'t>(&mut self, tensors: impl IntoIterator<Item = (&'t Tensor, Access)>) -> Result<()> {
        if self.quota.fuel.is_none() {
            return Ok(());
        }
        let counts = tensors.into_iter().map(|(tensor, _)| tensor.count());
        self.spend(counts.fold(0, usize::saturating_add))
    }

    /// The source position and source name of an operation.
    pub(super) fn site(&self, name: &'static str) -> Site {
        Site { name: self.written.unwrap_or(name), span: self.span }
    }

    /// [`Runtime::note`] for an operation that reads these tensors and creates its result, a tensor of this
    /// layout on the queue's device. Errors: also E1009.
    pub(super) fn note_result<'t>(
        &mut self,
        name: &'static str,
        at: usize,
        read: impl Iterator<Item = &'t Tensor> + Clone,
        device: Arc<Device>,
        (layout, dtype): (Layout, Dtype),
    ) -> Result<Tensor> {
        let ticket = self.ticket()?;
        let bytes = layout.bytes(dtype);
        self.flush_others(&device, bytes)?;
        let read = read.map(|tensor| (tensor, Access::Read));
        if self.capture_at(at).is_some() {
            // A capture recognises its own storages by their tensors.
            let storage = Storage::made(device, bytes, ticket, Watched::default());
            let result = Tensor::new(storage, layout, dtype);
            self.note(name, at, read.chain([(&result, Access::Write)]))?;
            return Ok(result);
        }
        if self.quota.fuel.is_some() {
            self.spend(layout.count())?;
        }
        self.note(name, at, read)?;
        let room = Room::default();
        if self.settings.races == RaceMode::Allow || device.id() == DeviceId::Cpu || bytes == 0 {
            return Ok(room.fill(Storage::made(device, bytes, ticket, Watched::default()), layout, dtype));
        }
        let site = self.site(name);
        let history = self.races.checker.begin(&self.queues[at].stream, bytes, site);
        Ok(room.fill(Storage::made(device, bytes, ticket, history), layout, dtype))
    }

    /// [`Runtime::note`] by the histories of the storages.
    pub(super) fn note_touches(&mut self, at: usize, touches: &[Touch<'_>], site: Site) -> Result<()> {
        if self.settings.races == RaceMode::Allow {
            return Ok(());
        }
        let races = self.find_races(at, touches, site);
        if races.is_empty() { Ok(()) } else { self.on_races(at, touches, site, races) }
    }

    /// [`Runtime::note`] for an operation that provides its own ordering: it waits for those of `streams`
    /// whose earlier accesses it would race with.
    pub(super) fn note_after(
        &mut self,
        name: &'static str,
        at: usize,
        tensors: &[(&Tensor, Access)],
        streams: &[Arc<Stream>],
    ) -> Result<()> {
        self.spend_on(tensors.iter().copied())?;
        let stream = self.queues[at].stream.clone();
        if self.settings.races == RaceMode::Allow {
            return streams.iter().try_for_each(|other| self.wait_stream(&stream, other));
        }
        let touches = touches(tensors.iter().copied());
        let site = self.site(name);
        let mut races = self.find_races(at, &touches, site);
        for other in streams {
            let place = Where::Stream(other.device(), other.id());
            if races.iter().any(|race| race.place == place) {
                self.wait_stream(&stream, other)?;
                races = self.find_races(at, &touches, site);
            }
        }
        // The earlier access may be by a stream that one of `streams` waits for.
        for other in streams {
            if !races.is_empty() {
                self.wait_stream(&stream, other)?;
                races = self.find_races(at, &touches, site);
            }
        }
        if races.is_empty() { Ok(()) } else { self.on_races(at, &touches, site, races) }
    }

    fn find_races(&mut self, at: usize, touches: &[Touch<'_>], site: Site) -> Vec<Conflict> {
        let stream = &self.queues[at].stream;
        // Host work is complete when the call returns, so the host is the accessing agent.
        let stream = (stream.device() != DeviceId::Cpu).then_some(&**stream);
        match self.capture_at(at) {
            None => self.races.checker.admit(stream, touches, site),
            Some(capture) => self.graphs.capture_mut(capture).checker().admit(stream, touches, site),
        }
    }

    /// Handles races: rejects the operation, or orders its stream after the earlier accesses.
    #[cold]
    fn on_races(
        &mut self,
        at: usize,
        touches: &[Touch<'_>],
        site: Site,
        mut races: Vec<Conflict>,
    ) -> Result<()> {
        let stream = self.queues[at].stream.clone();
        let now = match stream.device() {
            DeviceId::Cpu => Where::Host,
            device => Where::Stream(device, stream.id()),
        };
        if races.iter().any(|race| race.is_reuse) {
            races = self.order_reuse(at, touches, site, races)?;
            if races.is_empty() {
                return Ok(());
            }
        }
        let piece = |race: &Conflict| {
            let touch = &touches[race.touch];
            let bytes = touch.region.bytes();
            Piece { id: std::ptr::from_ref(touch.history).addr(), from: bytes.start, to: bytes.end }
        };
        if self.settings.races == RaceMode::Deny {
            return Err(error::race(site, now, &races, piece));
        }
        if self.settings.races == RaceMode::Warn {
            self.warn_race(site, now, &races, piece);
        }
        // Each iteration waits for one stream, and no stream recurs: the remaining races are of other
        // streams.
        while !races.is_empty() {
            for race in &races {
                let Some(earlier) = self.stream_of(race) else {
                    return Err(error::race(site, now, &races, piece));
                };
                self.races.repaired += 1;
                match now {
                    Where::Host => self.synchronize_stream(&earlier)?,
                    Where::Stream(..) => self.wait_stream(&stream, &earlier)?,
                }
            }
            races = self.find_races(at, touches, site);
        }
        Ok(())
    }

    /// Orders an operation's stream after the previous owners of its new tensors' memory; returns the
    /// remaining races. Scripts do not control which block the allocator takes or whether it had a previous
    /// owner: that depends on what fusion has dropped.
    fn order_reuse(
        &mut self,
        at: usize,
        touches: &[Touch<'_>],
        site: Site,
        mut races: Vec<Conflict>,
    ) -> Result<Vec<Conflict>> {
        let stream = self.queues[at].stream.clone();
        // Each iteration waits for one stream, which then has no race.
        while let Some(reuse) = races.iter().find(|race| race.is_reuse) {
            let Some(earlier) = self.stream_of(reuse) else { break };
            match stream.device() {
                DeviceId::Cpu => self.synchronize_stream(&earlier)?,
                _ => self.wait_stream(&stream, &earlier)?,
            }
            races = self.find_races(at, touches, site);
        }
        Ok(races)
    }

    /// The stream of an earlier access.
    fn stream_of(&self, race: &Conflict) -> Option<Arc<Stream>> {
        match race.place {
            Where::Host => None,
            Where::Stream(device, number) => self.machine.device(device).ok()?.stream_by_id(number),
        }
    }

    /// Reports repaired races, once per pair of source positions.
    fn warn_race(&mut self, site: Site, now: Where, races: &[Conflict], piece: impl Fn(&Conflict) -> Piece) {
        if self.warnings.is_new_race(site.span, races.iter().map(|race| race.site.span)) {
            self.warn_here(error::race(site, now, races, piece));
        }
    }
}

/// The accesses of an operation to tensors, in the race checker's form.
#[inline]
fn touches<'t>(tensors: impl IntoIterator<Item = (&'t Tensor, Access)>) -> SmallVec<[Touch<'t>; 4]> {
    // Push one by one: `collect` would check the capacity again.
    let tensors = tensors.into_iter();
    let mut touches = SmallVec::with_capacity(tensors.size_hint().0);
    for (tensor, access) in tensors {
        touches.push(Touch { history: &tensor.storage().history, region: tensor.region(), access });
    }
    touches
}

/// The error of a wait for an event of this device.
fn blamed(device: Option<&Device>, e: Error) -> Error {
    match device {
        Some(device) => device.blame(e),
        None => e,
    }
}
