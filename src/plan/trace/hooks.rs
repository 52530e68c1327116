//! The hooks where a session records its work.

use super::clock::{Clock, Real, TimedAction};
use super::{Action, ActionKind, Recording, Row, Trace};
use crate::array::Dims;
use crate::base::{Result, Span};
use crate::device::Device;
use crate::driver::{Compiled, DeviceId, EventHandle, Work};
use crate::kernel::{Launch, Program};
use crate::plan::Runtime;
use crate::plan::submit::Call;
use crate::stream::{Event, Stream};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// Trace data of a launch besides the launch itself.
pub(in crate::plan) struct Traced {
    /// The sources of its operations.
    pub spans: SmallVec<[Span; 1]>,
    /// The shape that the script sees.
    pub shape: Dims,
}

impl Traced {
    /// The trace data of operations at these positions, without duplicates.
    pub(in crate::plan) fn of(places: impl Iterator<Item = Span>, shape: &Dims) -> Traced {
        let mut spans: SmallVec<[Span; 1]> = SmallVec::new();
        for span in places {
            if !span.is_none() && !spans.contains(&span) {
                spans.push(span);
            }
        }
        Traced { spans, shape: shape.clone() }
    }
}

/// Work that is about to be queued.
pub(in crate::plan) enum Started {
    /// A model determines its times.
    Modelled,
    /// It starts after this event.
    After(EventHandle),
    /// The host does it now, starting at this time.
    OnHost(u64),
    /// Its times are unknown.
    Untimed,
}

/// The modelled speed of the host, in bytes per nanosecond.
const HOST_RATE: u64 = 10;

impl Runtime {
    /// Counts an applied operation.
    #[inline]
    pub(crate) fn count_operation(&mut self) {
        self.records.operations += 1;
    }

    /// The number of applied operations, including those that other operations are composed of.
    pub fn operations(&self) -> u64 {
        self.records.operations
    }

    /// The number of launched programs; the difference from [`Runtime::operations`] shows what fusion saves.
    pub fn launches(&self) -> u64 {
        self.records.launches
    }

    /// Starts a profile; returns its position in the trace, for [`Runtime::stop_trace`]. Profiles may be
    /// nested.
    pub fn start_trace(&mut self) -> Result<usize> {
        self.flush()?;
        let is_virtual = self.machine().has_virtual_time();
        // Programs compiled earlier are not part of this profile.
        self.trace_compiled();
        let trace = self.records.trace.get_or_insert_with(|| Box::new(Trace::new(is_virtual)));
        trace.open += 1;
        Ok(trace.actions.len())
    }

    /// Returns everything recorded since a [`Runtime::start_trace`], after waiting for all of it. Stopping
    /// the last profile ends the trace.
    pub fn stop_trace(&mut self, since: usize) -> (Recording, Result<()>) {
        let flushed = self.flush();
        self.trace_compiled();
        let Some(mut trace) = self.records.trace.take() else {
            let none = Recording { actions: Vec::new(), devices: Vec::new(), dropped: 0, is_virtual: false };
            return (none, flushed);
        };
        let known = match &mut trace.clock {
            Clock::Real(clock) => clock.resolve(0),
            Clock::Virtual(_) => Vec::new(),
        };
        trace.learn(known);
        let mut actions = trace.actions.get(since..).unwrap_or_default().to_vec();
        actions.extend(trace.open_ranges());
        trace.open -= 1;
        let mut seen: Vec<DeviceId> = Vec::new();
        for action in &actions {
            if let Row::Stream(device, _) | Row::Memory(device) = action.row
                && !seen.contains(&device)
            {
                seen.push(device);
            }
        }
        seen.sort_unstable();
        let name = |id: DeviceId| {
            let device = self.machine().device(id);
            (id, device.map_or(String::new(), |d| d.properties().name.clone()))
        };
        let devices = seen.into_iter().map(name).collect();
        let recording =
            Recording { actions, devices, dropped: trace.dropped, is_virtual: trace.is_virtual() };
        if trace.open > 0 {
            self.records.trace = Some(trace);
        }
        (recording, flushed)
    }

    /// True while a profile is open.
    pub(in crate::plan) fn is_traced(&self) -> bool {
        self.records.trace.is_some()
    }

    /// Records what the devices have compiled; discards it if no profile is open.
    fn trace_compiled(&mut self) {
        let compiled: Vec<Compiled> =
            self.machine().opened().flat_map(|device| device.driver().take_compiled()).collect();
        let Some(trace) = &mut self.records.trace else { return };
        for Compiled { label, times: (start, end), was_kept } in compiled {
            let Clock::Real(clock) = &trace.clock else { return };
            let (start, end) = (clock.at(start), clock.at(end));
            let what = if was_kept { "load" } else { "compile" };
            trace.push(Action {
                row: Row::Compiler,
                kind: ActionKind::Compile,
                name: Cow::Owned(format!("{what} {label}")),
                start,
                end,
                spans: SmallVec::new(),
                shape: Dims::new(),
                bytes: 0,
            });
        }
    }

    /// Called before work (a launch or other work) is queued on a stream. Compiles what the work needs, so
    /// that its time is the device's alone.
    pub(in crate::plan) fn trace_before(
        &mut self,
        device: &Device,
        stream: &Stream,
        launch: Option<&Launch>,
    ) -> Option<Started> {
        let trace = self.records.trace.as_mut()?;
        if let (Clock::Real(_), true) = (&trace.clock, device.id() != DeviceId::Cpu) {
            // A failure here recurs, and is reported, when the work is queued.
            device.driver().make_ready(launch, stream.handle()).ok();
        }
        Some(match &mut trace.clock {
            Clock::Virtual(_) => Started::Modelled,
            Clock::Real(clock) if device.id() == DeviceId::Cpu => Started::OnHost(clock.now()),
            Clock::Real(clock) => match clock.mark(device, stream) {
                Ok(event) => {
                    device.driver().begins_at(Some(event));
                    Started::After(event)
                }
                Err(_) => Started::Untimed,
            },
        })
    }

    /// Called after a launch was queued.
    pub(in crate::plan) fn trace_launch(
        &mut self,
        started: Started,
        device: &Device,
        stream: &Stream,
        launch: &Launch,
        (name, traced): (&'static str, Traced),
    ) {
        let Program { kind, label } = &*launch.program;
        let name = match kind.is_fused() && !label.is_empty() {
            true => Cow::Owned(label.clone()),
            false => Cow::Borrowed(name),
        };
        let Traced { spans, shape } = traced;
        let bytes = kind.bytes(launch);
        let row = row_of(stream);
        let action = Action { row, kind: ActionKind::Launch, name, start: 0, end: 0, spans, shape, bytes };
        self.trace_after(started, device, stream, action, Work::Launch(launch));
    }

    /// Called after other work was queued.
    pub(in crate::plan) fn trace_other(
        &mut self,
        started: Started,
        device: &Device,
        stream: &Stream,
        call: Call<'_>,
    ) {
        let Call { shown: (kind, name), bytes, work, .. } = call;
        let (spans, shape) = (SmallVec::from_iter((!self.span.is_none()).then_some(self.span)), Dims::new());
        let action = Action { row: row_of(stream), kind, name, start: 0, end: 0, spans, shape, bytes };
        self.trace_after(started, device, stream, action, work);
    }

    fn trace_after(
        &mut self,
        started: Started,
        device: &Device,
        stream: &Stream,
        mut action: Action,
        work: Work<'_>,
    ) {
        if let Started::After(_) = started {
            device.driver().begins_at(None);
        }
        let Some(trace) = &mut self.records.trace else { return };
        trace.note_memory(device);
        match (started, &mut trace.clock) {
            (Started::After(start), Clock::Real(clock)) => {
                let now = clock.now();
                (action.start, action.end) = (now, now);
                let Ok(end) = clock.mark(device, stream) else {
                    clock.give_back(device.id(), start);
                    return;
                };
                trace.expect(action, device.id(), (start, end));
            }
            (Started::OnHost(start), Clock::Real(clock)) => {
                (action.start, action.end) = (start, clock.now());
                trace.push(action);
            }
            (_, Clock::Real(clock)) => {
                (action.start, action.end) = (clock.now(), clock.now());
                trace.push(action);
            }
            (_, Clock::Virtual(clock)) => {
                let cost = device.driver().modelled(work);
                (action.start, action.end) = match cost {
                    Some(cost) => clock.run(stream, cost),
                    None => clock.run_on_host(200 + action.bytes / HOST_RATE),
                };
                trace.push(action);
            }
        }
    }

    /// Called before the host waits: the host's time, while a profile is open.
    pub(in crate::plan) fn trace_now(&self) -> Option<u64> {
        self.records.trace.as_ref().map(|trace| trace.clock.now())
    }

    /// Called after the host has waited for `for_what` since `start`.
    pub(in crate::plan) fn trace_wait(&mut self, start: Option<u64>, for_what: WaitFor<'_>) {
        let (Some(start), Some(trace)) = (start, &mut self.records.trace) else { return };
        if let Clock::Virtual(clock) = &mut trace.clock {
            match for_what {
                WaitFor::Stream(stream) => clock.host_waits_for_stream(stream),
                WaitFor::Device(device) => clock.host_waits_for_device(device),
                WaitFor::Event(event) => clock.host_waits_for_event(key_of(event)),
            }
        }
        let end = trace.clock.now();
        let name: Cow<'static, str> = match for_what {
            WaitFor::Stream(stream) if stream.device() == DeviceId::Cpu => return,
            WaitFor::Stream(stream) => format!("wait for {stream} of {}", stream.device()).into(),
            WaitFor::Device(device) => format!("wait for {device}").into(),
            WaitFor::Event(_) => "wait for an event".into(),
        };
        if end > start {
            trace.push_host(ActionKind::Wait, name, start, end, self.span);
        }
    }

    /// Called after an event was recorded on a stream.
    pub(in crate::plan) fn trace_record(&mut self, event: &Event, stream: &Stream) {
        if let Some(Clock::Virtual(clock)) = self.records.trace.as_mut().map(|t| &mut t.clock) {
            clock.record(key_of(event), stream);
        }
    }

    /// Called after a stream was made to wait.
    pub(in crate::plan) fn trace_stream_wait(&mut self, stream: &Stream, for_what: WaitFor<'_>) {
        if let Some(Clock::Virtual(clock)) = self.records.trace.as_mut().map(|t| &mut t.clock) {
            match for_what {
                WaitFor::Stream(other) => clock.stream_waits_for_stream(stream, other),
                WaitFor::Event(event) => clock.stream_waits_for_event(stream, key_of(event)),
                WaitFor::Device(_) => {}
            }
        }
    }
}

/// The target of a wait.
#[derive(Clone, Copy)]
pub(in crate::plan) enum WaitFor<'a> {
    Stream(&'a Arc<Stream>),
    Device(DeviceId),
    Event(&'a Event),
}

impl Trace {
    /// Records a device's allocated bytes when they have changed.
    fn note_memory(&mut self, device: &Device) {
        let (id, bytes) = (device.id(), device.memory_allocated());
        if id == DeviceId::Cpu || self.allocated.get(&id) == Some(&bytes) {
            return;
        }
        self.allocated.insert(id, bytes);
        let now = self.clock.now();
        self.push(Action {
            row: Row::Memory(id),
            kind: ActionKind::Memory,
            name: Cow::Borrowed("memory"),
            start: now,
            end: now,
            spans: SmallVec::new(),
            shape: Dims::new(),
            bytes,
        });
    }

    fn expect(&mut self, action: Action, device: DeviceId, events: (EventHandle, EventHandle)) {
        let index = self.push(action);
        let Clock::Real(clock) = &mut self.clock else { return };
        match index {
            Some(index) => {
                let known = clock.expect(index, device, events);
                self.learn(known);
            }
            None => drop_events(clock, device, events),
        }
    }

    /// Fills in times that became known.
    fn learn(&mut self, known: Vec<TimedAction>) {
        for (index, start, end) in known {
            if let Some(action) = self.actions.get_mut(index) {
                (action.start, action.end) = (start, end);
            }
        }
    }

    /// The open ranges, as if they ended now.
    fn open_ranges(&self) -> Vec<Action> {
        let now = self.clock.now();
        let host = |kind, name: &str, start, span: Span| Action {
            row: Row::Host,
            kind,
            name: Cow::Owned(name.to_string()),
            start,
            end: now,
            spans: SmallVec::from_iter((!span.is_none()).then_some(span)),
            shape: Dims::new(),
            bytes: 0,
        };
        let nested =
            self.ranges.iter().rev().map(|(name, start, span)| host(ActionKind::Range, name, *start, *span));
        let spans =
            self.spans.iter().map(|(id, name, start, span)| host(ActionKind::Span(*id), name, *start, *span));
        nested.chain(spans).collect()
    }
}

fn drop_events(clock: &mut Real, device: DeviceId, (start, end): (EventHandle, EventHandle)) {
    clock.give_back(device, start);
    clock.give_back(device, end);
}

fn row_of(stream: &Stream) -> Row {
    match stream.device() {
        DeviceId::Cpu => Row::Host,
        device => Row::Stream(device, stream.id()),
    }
}

fn key_of(event: &Event) -> (DeviceId, EventHandle) {
    (event.device().unwrap_or(DeviceId::Cpu), event.handle())
}
