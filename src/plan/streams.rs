//! Order between streams: events, waits, and the race checker's view of them.

use super::{RaceMode, Runtime};
use crate::base::Result;
use crate::device::races::{Access, Conflict, Site, Where};
use crate::device::{DeviceId, Event, Stream, error};
use crate::tensor::Tensor;
use std::sync::Arc;

impl Runtime {
    /// Records an event on a stream, after everything submitted there.
    pub fn record_event(&mut self, event: &Event, stream: &Arc<Stream>) -> Result<()> {
        self.flush_stream(stream)?;
        event.record(stream)?;
        self.checker.record(&mut event.clock(), stream);
        Ok(())
    }

    /// Makes later work of a stream wait for an event.
    pub fn wait_event(&mut self, stream: &Arc<Stream>, event: &Event) -> Result<()> {
        self.flush_stream(stream)?;
        event.wait(stream)?;
        self.checker.wait(stream, &event.clock());
        Ok(())
    }

    /// Makes later work of a stream wait for everything submitted on another.
    pub fn wait_stream(&mut self, stream: &Arc<Stream>, other: &Arc<Stream>) -> Result<()> {
        self.flush_stream(other)?;
        self.flush_stream(stream)?;
        stream.wait_stream(other)?;
        self.checker.wait_stream(stream, other);
        Ok(())
    }

    /// Waits on the host until a stream is idle, then raises what its kernels reported.
    pub fn synchronize_stream(&mut self, stream: &Arc<Stream>) -> Result<()> {
        self.flush_stream(stream)?;
        stream.synchronize()?;
        self.checker.host_wait_stream(stream);
        self.device(stream.device())?.check_faults()
    }

    /// Waits on the host for an event.
    pub fn synchronize_event(&mut self, event: &Event) -> Result<()> {
        event.synchronize()?;
        self.checker.host_wait_event(&event.clock());
        match event.device() {
            Some(device) => self.device(device)?.check_faults(),
            None => Ok(()),
        }
    }

    /// Waits on the host for every stream of a device. A device that was never used is left alone.
    pub fn synchronize_device(&mut self, id: DeviceId) -> Result<()> {
        self.flush()?;
        let device = self.device(id)?;
        device.synchronize()?;
        self.checker.host_wait_device(id);
        device.check_faults()
    }

    /// True when a stream is idle; then what it did is ordered before the host's next work.
    pub fn query_stream(&mut self, stream: &Arc<Stream>) -> Result<bool> {
        self.flush_stream(stream)?;
        let idle = stream.query()?;
        if idle {
            self.checker.host_wait_stream(stream);
        }
        Ok(idle)
    }

    /// True when an event has completed, or was never recorded.
    pub fn query_event(&mut self, event: &Event) -> Result<bool> {
        let done = event.query()?;
        if done {
            self.checker.host_wait_event(&event.clock());
        }
        Ok(done)
    }

    /// Keeps a stream busy for about that many clock cycles. Source: `torch.cuda._sleep`.
    pub fn sleep(&mut self, stream: &Arc<Stream>, cycles: u64) -> Result<()> {
        self.flush_stream(stream)?;
        stream.driver().sleep(cycles, stream.handle())
    }

    /// Sends off what waits on a stream.
    pub fn flush_stream(&mut self, stream: &Arc<Stream>) -> Result<()> {
        let at = self.queue_of(stream);
        self.flush_queue(at)
    }

    /// Waits for a queue's stream.
    pub(super) fn wait_queue(&mut self, at: usize) -> Result<()> {
        let stream = self.queues[at].stream.clone();
        self.synchronize_stream(&stream)
    }

    /// Asks the race checker about reading a tensor on a queue's stream.
    pub(super) fn note_read(&mut self, name: &'static str, tensor: &Tensor, at: usize) -> Result<()> {
        self.note(name, tensor, at, Access::Read)
    }

    /// Asks the race checker about writing a tensor on a queue's stream.
    pub(super) fn note_write(&mut self, name: &'static str, tensor: &Tensor, at: usize) -> Result<()> {
        self.note(name, tensor, at, Access::Write)
    }

    fn note(&mut self, name: &'static str, tensor: &Tensor, at: usize, access: Access) -> Result<()> {
        if self.settings.races == RaceMode::Allow {
            return Ok(());
        }
        let site = Site { name, span: self.span };
        let stream = &self.queues[at].stream;
        let bytes = tensor.region();
        let conflict = {
            let mut history = tensor.storage().history.lock();
            // The host's own work is over when the call returns: it is the host that accesses.
            let agent = (stream.device() != DeviceId::Cpu).then_some(&**stream);
            match (self.settings.races, agent) {
                (RaceMode::Deny, agent) => self.checker.admit(agent, &mut history, bytes, access, site),
                (_, Some(stream)) => self.checker.access(stream, &mut history, bytes, access, site),
                (_, None) => self.checker.host_access(&mut history, bytes, access, site),
            }
        };
        let Some(conflict) = conflict else { return Ok(()) };
        self.on_race(name, at, access, conflict)
    }

    /// What a race does: refuse, or order the stream after the earlier access.
    fn on_race(&mut self, name: &'static str, at: usize, access: Access, conflict: Conflict) -> Result<()> {
        let stream = self.queues[at].stream.clone();
        let now = match stream.device() {
            DeviceId::Cpu => Where::Host,
            device => Where::Stream(device, stream.id()),
        };
        let report = error::race(Site { name, span: self.span }, access, now, &conflict);
        if self.settings.races == RaceMode::Deny {
            return Err(report);
        }
        if self.settings.races == RaceMode::Warn {
            self.warnings.push(report.locate(self.span, &[]));
        }
        self.repaired += 1;
        let Where::Stream(device, id) = conflict.place else { return Ok(()) };
        let earlier = self.queues.iter().find(|q| q.stream.device() == device && q.stream.id() == id);
        let Some(earlier) = earlier.map(|q| q.stream.clone()) else { return Ok(()) };
        match now {
            Where::Host => self.synchronize_stream(&earlier),
            Where::Stream(..) => self.wait_stream(&stream, &earlier),
        }
    }
}
