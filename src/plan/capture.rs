//! Captures: work that is recorded instead of queued.
//!
//! While a stream is captured, its queue flushes into a list of [`Step`]s, in memory of a private pool. A
//! capture sends nothing to the driver before its end, so a failure in between leaves the session unchanged.
//! Other streams continue as usual; a stream that waits for an event of the capture joins it until its end.
//!
//! Note [Races of a capture]. Captured work runs at a replay, not now. So its accesses do not enter the
//! histories of the storages. The capture's own checker compares them with each other, and they are kept as
//! one set, which every replay performs at once (`plan/graph.rs`). Reused memory inside a capture is ordered
//! by lane waits, as in the session, because a replay runs the work of both owners.

use super::graph::{Draws, Graph, GraphPool, Recorded, Shared, State, Use};
use super::transfer::Transfer;
use super::{Runtime, error};
use crate::base::{Piece, Place, Result, Span};
use crate::device::{Block, Device, PoolScope};
use crate::driver::DeviceId;
use crate::driver::graph::{Step, Task};
use crate::kernel::{Launch, Ptr};
use crate::stream::races::{Access, Checker, Counted, Region, Site, Touch, Watched};
use crate::stream::{CapturedRecord, Event, Stream, Ticket};
use crate::tensor::{Generator, GeneratorState, StorageRef, Tensor, WeakStorage};
use foldhash::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The captures of a session, and the memory pools and streams of its graphs.
#[derive(Default)]
pub(super) struct Graphs {
    /// Active captures; a queue stores the number of the capture it belongs to.
    captures: Vec<Capture>,
    /// Pools that captures may share.
    pub(super) pools: Vec<Weak<Shared>>,
    /// The streams of captures that name no stream, one per device.
    streams: Vec<Arc<Stream>>,
}

impl Graphs {
    /// The capture with this index.
    pub(super) fn capture_mut(&mut self, at: usize) -> &mut Capture {
        &mut self.captures[at]
    }
}

/// An active capture.
///
/// Invariant: the steps of lane n were submitted on `lanes[n]`, and exactly the queues of these streams name
/// this capture.
pub(super) struct Capture {
    /// Unique in the process.
    id: u64,
    owner: Weak<Mutex<State>>,
    device: Arc<Device>,
    /// The source where it began.
    begun: Span,
    lanes: Arc<RwLock<Vec<Arc<Stream>>>>,
    steps: Vec<Step>,
    marks: u32,
    checker: Checker,
    /// The host memory of the steps and of `touched`.
    counted: Counted,
    touched: Vec<Touched>,
    /// Indices into `touched` by the storage's address. The weak references keep the addresses from being
    /// reused.
    places: HashMap<usize, usize>,
    draws: Vec<Draws>,
    pool: GraphPool,
    /// While this lives, requests of the lanes are served from the pool.
    scope: PoolScope,
    /// An attempted operation that cannot be captured, and its source; the capture is invalid.
    spoiled: Option<(&'static str, Span)>,
}

/// A storage that captured work uses.
struct Touched {
    storage: WeakStorage,
    /// Set for storages from before the capture: the graph keeps them.
    kept: Option<StorageRef>,
    history: Arc<Watched>,
    /// Different ones, in order.
    accesses: SmallVec<[(Region, Access); 2]>,
    /// The same once there are many, for looking them up.
    known: HashSet<(Region, Access)>,
}

impl Touched {
    /// Records an access, and returns the additional host memory.
    fn note(&mut self, access: (Region, Access)) -> usize {
        /// Lists up to this length are searched.
        const FEW: usize = 8;
        let many = self.accesses.len() > FEW;
        if if many { self.known.contains(&access) } else { self.accesses.contains(&access) } {
            return 0;
        }
        self.accesses.push(access);
        if many {
            self.known.insert(access);
        } else if self.accesses.len() > FEW {
            self.known.extend(&self.accesses);
        }
        let copies = if many { 2 } else { usize::from(self.accesses.spilled()) };
        copies * size_of_val(&access)
    }
}

impl Capture {
    fn lane(&self, stream: &Stream) -> u32 {
        self.lanes.read().iter().position(|s| **s == *stream).unwrap_or(0) as u32
    }

    fn push(&mut self, stream: &Stream, task: Task) {
        let step = Step { lane: self.lane(stream), task };
        self.counted.add(step.host_bytes());
        self.steps.push(step);
    }

    /// A new mark after all work on a stream.
    fn mark(&mut self, stream: &Stream) -> u32 {
        self.marks += 1;
        self.push(stream, Task::Mark(self.marks));
        self.marks
    }

    /// The entry of a storage; `fresh` storages were created in this capture.
    fn touched(&mut self, tensor: &Tensor, fresh: bool) -> &mut Touched {
        let address = std::ptr::from_ref(tensor.storage()).addr();
        let at = *self.places.entry(address).or_insert_with(|| {
            let storage = tensor.storage_ref();
            // The weak reference keeps the storage's allocation.
            self.counted.add(
                size_of::<Touched>()
                    + size_of::<(usize, usize)>()
                    + size_of::<Watched>()
                    + crate::tensor::TENSOR_BYTES,
            );
            self.touched.push(Touched {
                storage: storage.downgrade(),
                kept: (!fresh).then_some(storage),
                history: Arc::default(),
                accesses: SmallVec::new(),
                known: HashSet::default(),
            });
            self.touched.len() - 1
        });
        &mut self.touched[at]
    }

    /// The checker of the work in this capture.
    pub(super) fn checker(&mut self) -> &mut Checker {
        &mut self.checker
    }
}

impl Runtime {
    /// Starts to capture work on the current stream of the most recently selected CUDA device, in memory of
    /// `pool` or of a new pool. Source: `torch.cuda.CUDAGraph.capture_begin`.
    pub fn begin_capture(&mut self, graph: &Graph, pool: Option<&GraphPool>) -> Result<()> {
        let id = self.current_cuda();
        let stream = self.current_stream(id)?;
        if !matches!(*graph.state().lock(), State::Empty) {
            return Err(error::graph_taken());
        }
        if stream.is_default() {
            return Err(error::capture_on_default_stream());
        }
        self.flush_stream(&stream)?;
        if let Some(at) = self.capture_of(&stream) {
            return Err(error::captured_already(self.graphs.captures[at].begun));
        }
        let at = self.queue_of(&stream);
        self.store_held_of(at)?;
        let device = self.device(id)?;
        let pool = pool.cloned().unwrap_or_default();
        self.know_pool(&pool);
        let lanes = Arc::new(RwLock::new(vec![stream.clone()]));
        let of_lanes = lanes.clone();
        let scope = pool.open(&device)?.capture(move |s| of_lanes.read().iter().any(|lane| **lane == *s));
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.graphs.captures.push(Capture {
            id: number,
            owner: Arc::downgrade(graph.state()),
            device,
            begun: self.span,
            lanes,
            steps: Vec::new(),
            marks: 0,
            checker: self.races.checker.beside(),
            counted: self.races.checker.counted(),
            touched: Vec::new(),
            places: HashMap::default(),
            draws: Vec::new(),
            pool,
            scope,
            spoiled: None,
        });
        let at = self.queue_of(&stream);
        self.queues[at].capture = Some(number);
        *graph.state().lock() = State::Capturing(number);
        Ok(())
    }

    /// Ends the capture started by [`Runtime::begin_capture`] and makes the graph replayable. The current
    /// stream must be the one where the capture began. Source: `torch.cuda.CUDAGraph.capture_end`.
    pub fn end_capture(&mut self, graph: &Graph) -> Result<()> {
        let Some(at) = self.capture_by(graph) else { return Err(error::no_capture_to_end()) };
        let (device, origin) =
            (self.graphs.captures[at].device.id(), self.graphs.captures[at].lanes.read()[0].clone());
        if *self.current_stream(device)? != *origin {
            return Err(error::capture_ends_elsewhere());
        }
        let flushed = self.flush_lanes(at);
        let capture = self.close_capture(at);
        *graph.state().lock() = State::Empty;
        flushed?;
        if let Some((what, span)) = capture.spoiled {
            return Err(error::capture_spoiled(what, span, capture.begun));
        }
        let recorded = self.record(capture)?;
        *graph.state().lock() = State::Ready(Box::new(recorded));
        Ok(())
    }

    /// Discards an active capture; does nothing without one.
    pub fn abort_capture(&mut self, graph: &Graph) {
        if let Some(at) = self.capture_by(graph) {
            // Pending work is discarded too, including its errors.
            let _ = self.flush_lanes(at);
            drop(self.close_capture(at));
            *graph.state().lock() = State::Empty;
        }
    }

    /// The default side stream of a device for graph captures; always the same one.
    pub fn capture_stream(&mut self, id: DeviceId) -> Result<Arc<Stream>> {
        if let Some(stream) = self.graphs.streams.iter().find(|s| s.device() == id) {
            return Ok(stream.clone());
        }
        let stream = self.device(id)?.stream(0)?;
        self.graphs.streams.push(stream.clone());
        Ok(stream)
    }

    /// True when work on a stream is captured. Source: `torch.cuda.is_current_stream_capturing`.
    pub fn is_capturing(&self, stream: &Stream) -> bool {
        self.capture_of(stream).is_some()
    }

    /// The capture that a stream belongs to.
    pub(super) fn capture_of(&self, stream: &Stream) -> Option<usize> {
        if self.graphs.captures.is_empty() {
            return None;
        }
        let queue = self.queues.iter().find(|q| *q.stream == *stream)?;
        self.capture_numbered(queue.capture?)
    }

    /// The capture that a queue belongs to.
    #[inline]
    pub(super) fn capture_at(&self, queue: usize) -> Option<usize> {
        if self.graphs.captures.is_empty() {
            return None;
        }
        self.capture_numbered(self.queues[queue].capture?)
    }

    fn capture_numbered(&self, id: u64) -> Option<usize> {
        self.graphs.captures.iter().position(|c| c.id == id)
    }

    fn capture_by(&self, graph: &Graph) -> Option<usize> {
        match *graph.state().lock() {
            State::Capturing(id) => self.capture_numbered(id),
            _ => None,
        }
    }

    /// Flushes the pending work of all lanes into the capture.
    fn flush_lanes(&mut self, at: usize) -> Result<()> {
        let lanes = self.graphs.captures[at].lanes.read().clone();
        let mut result = Ok(());
        for stream in lanes {
            let one = self.flush_stream(&stream);
            result = result.and(one);
        }
        result
    }

    /// Ends a capture; its streams are ordinary again.
    fn close_capture(&mut self, at: usize) -> Capture {
        let capture = self.graphs.captures.remove(at);
        for queue in self.queues.iter_mut().filter(|q| q.capture == Some(capture.id)) {
            queue.capture = None;
        }
        capture
    }

    /// Creates the driver's graph of a capture.
    fn record(&mut self, capture: Capture) -> Result<Recorded> {
        let Capture { device, begun, steps, counted, touched, draws, pool, scope, .. } = capture;
        // From here on, blocks freed during the capture can be reused.
        drop(scope);
        let driver = device.driver().clone();
        let steps: Arc<[Step]> = steps.into();
        let handle = match steps.iter().any(|s| s.task.is_work()) {
            true => Some(driver.graph(steps.clone()).map_err(|e| device.blame_if_sticky(e))?),
            false => {
                self.warn_here(error::graph_empty(begun));
                None
            }
        };
        let uses = touched.into_iter().filter_map(|t| {
            let alive = t.storage.is_alive();
            alive.then_some(Use { kept: t.kept, storage: t.storage, accesses: t.accesses })
        });
        let (uses, replayed_on) = (uses.collect(), SmallVec::new());
        let elements = steps.iter().map(|step| step.task.elements()).fold(0, usize::saturating_add);
        Ok(Recorded {
            driver,
            handle,
            device,
            steps,
            elements,
            uses,
            draws,
            pool,
            replayed_on,
            _counted: counted,
        })
    }

    /// Rejects an operation that cannot be captured, and invalidates the capture that `stream` belongs to.
    pub(super) fn refuse_captured(&mut self, stream: &Stream, what: &'static str) -> Result<()> {
        match self.capture_of(stream) {
            None => Ok(()),
            Some(at) => self.refuse(at, what),
        }
    }

    /// Rejects an operation on a whole device while it has captures.
    pub(super) fn refuse_capturing(&mut self, device: DeviceId, what: &'static str) -> Result<()> {
        match self.graphs.captures.iter().position(|c| c.device.id() == device) {
            None => Ok(()),
            Some(at) => self.refuse(at, what),
        }
    }

    /// Rejects a memory pool while work of its device is captured, because a capture's requests go to its own
    /// pool.
    pub fn refuse_pool(&mut self, device: DeviceId) -> Result<()> {
        self.refuse_capturing(device, "selecting a memory pool")
    }

    /// Rejects a transfer between two devices when either stream is captured: a graph contains work of one
    /// device.
    pub(super) fn refuse_transfer(&mut self, from: &Stream, to: &Stream) -> Result<()> {
        let what = "a transfer between devices";
        self.refuse_captured(from, what)?;
        self.refuse_captured(to, what)
    }

    /// Rejects a copy between pageable host memory and a device when either stream is captured.
    pub(super) fn refuse_pageable(&mut self, from: &Stream, to: &Stream) -> Result<()> {
        let Some(at) = self.capture_of(from).or_else(|| self.capture_of(to)) else { return Ok(()) };
        let begun = self.graphs.captures[at].begun;
        self.refuse(at, "a copy of pageable memory").map_err(|_| error::pageable_in_capture(begun))
    }

    /// Rejects an event whose latest record was captured.
    pub(super) fn refuse_record(&mut self, record: CapturedRecord, what: &'static str) -> Result<()> {
        match self.capture_numbered(record.capture) {
            None => Ok(()),
            Some(at) => self.refuse(at, what),
        }
    }

    fn refuse(&mut self, at: usize, what: &'static str) -> Result<()> {
        if self.graphs.captures[at].owner.strong_count() == 0 {
            // The graph is gone, so nothing else can end its capture.
            let _ = self.flush_lanes(at);
            drop(self.close_capture(at));
            return Ok(());
        }
        let capture = &mut self.graphs.captures[at];
        capture.spoiled.get_or_insert((what, self.span));
        Err(error::not_in_capture(what, capture.begun))
    }

    /// Records the accesses of an operation on a captured queue.
    pub(super) fn note_captured<'t>(
        &mut self,
        capture: usize,
        at: usize,
        site: Site,
        tensors: impl IntoIterator<Item = (&'t Tensor, Access)>,
    ) -> Result<()> {
        type Part<'t> = (&'t Tensor, Arc<Watched>, Access);
        let mut parts: SmallVec<[Part<'_>; 4]> = SmallVec::new();
        for (tensor, access) in tensors {
            let storage = tensor.storage();
            // A storage without memory and without pending work is created by this operation.
            let fresh = storage.memory().is_none() && storage.pending().is_none();
            let history = self.graphs.captures[capture].touched(tensor, fresh).history.clone();
            parts.push((tensor, history, access));
        }
        let touches: SmallVec<[Touch<'_>; 4]> = parts
            .iter()
            .map(|(tensor, history, access)| Touch { history, region: tensor.region(), access: *access })
            .collect();
        self.note_touches(at, &touches, site).map_err(|error| {
            // The capture's state of the tensor replaces the tensor.
            let of = |piece: Piece| {
                let part = parts.iter().find(|(_, history, _)| Arc::as_ptr(history).addr() == piece.id)?;
                Some(Place::Memory(part.0.piece()))
            };
            error.of_memory(of)
        })?;
        for (tensor, _, access) in &parts {
            let capture = &mut self.graphs.captures[capture];
            let more = capture.touched(tensor, false).note((tensor.region(), *access));
            capture.counted.add(more);
        }
        Ok(())
    }

    /// Records that a storage was created on a queue; false when the queue is not captured.
    pub(super) fn note_fresh(&mut self, tensor: &Tensor, at: usize) -> bool {
        let Some(capture) = self.capture_at(at) else { return false };
        self.graphs.captures[capture].touched(tensor, true);
        true
    }

    /// Like [`Checker::reuse`], for a tensor created on a captured queue: a replay also repeats the work of
    /// the memory's previous owner.
    pub(super) fn note_captured_reuse(
        &mut self,
        tensor: &Tensor,
        at: usize,
        block: &Block,
        epoch: u64,
        site: Site,
    ) {
        let Some(capture) = self.capture_at(at) else { return };
        let capture = &mut self.graphs.captures[capture];
        let history = capture.touched(tensor, true).history.clone();
        capture.checker.reuse(block.stream(), &mut history.lock(), block.bytes(), epoch, site);
    }

    /// Captures a launch; false when the stream is not captured.
    pub(super) fn capture_launch(&mut self, stream: &Stream, launch: &Launch) -> bool {
        let Some(at) = self.capture_of(stream) else { return false };
        self.graphs.captures[at].push(stream, Task::Launch(Box::new(launch.clone())));
        true
    }

    /// Captures a pause; false when the stream is not captured.
    pub(super) fn capture_sleep(&mut self, stream: &Stream, cycles: u64) -> bool {
        let Some(at) = self.capture_of(stream) else { return false };
        self.graphs.captures[at].push(stream, Task::Sleep(cycles));
        true
    }

    /// Captures a copy between pinned or device memory; false when the stream is not captured.
    pub(super) fn capture_copy(
        &mut self,
        stream: &Stream,
        Transfer { dst, src, bytes, kind }: Transfer,
    ) -> bool {
        let Some(at) = self.capture_of(stream) else { return false };
        self.graphs.captures[at].push(stream, Task::Copy { dst, src, bytes, kind });
        true
    }

    /// Captures a copy of host bytes, which the capture stores; false when the stream is not captured.
    pub(super) fn capture_write(&mut self, stream: &Stream, dst: Ptr, bytes: &[u8]) -> bool {
        let Some(at) = self.capture_of(stream) else { return false };
        self.graphs.captures[at].push(stream, Task::Write { dst, bytes: bytes.into() });
        true
    }

    /// The ticket of a launch in flight. A captured launch has none, because it does not run now.
    pub(super) fn note_launch(
        &self,
        device: &Device,
        stream: &Stream,
        name: &'static str,
        span: Span,
    ) -> Ticket {
        match self.capture_of(stream) {
            None => device.note_launch(stream, name, span),
            Some(_) => Ticket::default(),
        }
    }

    /// Records an event in the capture of a stream; false when the stream is not captured.
    pub(super) fn capture_record(&mut self, event: &Event, stream: &Stream) -> bool {
        let Some(at) = self.capture_of(stream) else { return false };
        let capture = &mut self.graphs.captures[at];
        let mark = capture.mark(stream);
        capture.checker.record(&mut event.clock(), stream);
        event.set_captured(Some(CapturedRecord { capture: capture.id, mark }));
        true
    }

    /// Makes a stream wait for an event when a capture is involved; false when none is.
    pub(super) fn capture_wait(&mut self, stream: &Arc<Stream>, event: &Event) -> Result<bool> {
        let own = self.capture_of(stream);
        let Some(record) = event.captured() else {
            return match own {
                // Nothing to wait for.
                Some(_) if event.handle() == 0 => Ok(true),
                Some(at) => Err(error::capture_waits_outside(self.graphs.captures[at].begun)),
                None => Ok(false),
            };
        };
        // The event was recorded in a capture that has ended, so there is nothing to wait for.
        let Some(at) = self.capture_numbered(record.capture) else { return Ok(true) };
        self.join(at, own, stream)?;
        let capture = &mut self.graphs.captures[at];
        capture.push(stream, Task::Wait(record.mark));
        capture.checker.wait(stream, &event.clock());
        Ok(true)
    }

    /// Makes a stream wait for another when a capture is involved; false when none is.
    pub(super) fn capture_wait_stream(&mut self, stream: &Arc<Stream>, other: &Stream) -> Result<bool> {
        let own = self.capture_of(stream);
        let Some(at) = self.capture_of(other) else {
            return match own {
                Some(at) => Err(error::capture_waits_outside(self.graphs.captures[at].begun)),
                None => Ok(false),
            };
        };
        if **stream == *other {
            return Ok(true);
        }
        self.join(at, own, stream)?;
        let capture = &mut self.graphs.captures[at];
        let mark = capture.mark(other);
        capture.push(stream, Task::Wait(mark));
        capture.checker.wait_stream(stream, other);
        Ok(true)
    }

    /// Makes a stream that belongs to capture `own` a lane of capture `at`.
    fn join(&mut self, at: usize, own: Option<usize>, stream: &Arc<Stream>) -> Result<()> {
        let begun = self.graphs.captures[at].begun;
        match own {
            Some(own) if own == at => return Ok(()),
            Some(_) => return Err(error::captures_mixed(begun)),
            None if stream.device() != self.graphs.captures[at].device.id() => {
                return Err(error::capture_of_one_device(stream.device(), begun));
            }
            None if stream.is_default() => return Err(error::default_stream_in_capture(begun)),
            None => {}
        }
        let queue = self.queue_of(stream);
        self.flush_queue(queue)?;
        self.store_held_of(queue)?;
        self.queues[queue].capture = Some(self.graphs.captures[at].id);
        self.graphs.captures[at].lanes.write().push(stream.clone());
        Ok(())
    }

    /// Seed and offset of a captured draw: two numbers in device memory, which every replay rewrites. `None`
    /// when the current stream of the generator's device is not captured.
    pub(super) fn capture_draw(
        &mut self,
        generator: &Generator,
        steps: u64,
    ) -> Result<Option<(Tensor, Tensor)>> {
        if self.graphs.captures.is_empty() {
            return Ok(None);
        }
        let device = generator.device();
        let queue = self.place(device)?.queue;
        let Some(at) = self.capture_at(queue) else { return Ok(None) };
        let known = self.graphs.captures[at].draws.iter().position(|d| d.generator().same(generator));
        let of = known.unwrap_or_else(|| {
            self.graphs.captures[at].draws.push(Draws::new(generator.clone()));
            self.graphs.captures[at].draws.len() - 1
        });
        if self.graphs.captures[at].draws[of].is_full() {
            // Not memory of the capture: it is written before the graph, whose earlier work may use freed memory of the
            // capture.
            let room = self.fresh(&[Draws::ROOM], crate::array::Dtype::I64, device)?;
            let default = self.device(device)?.default_stream().clone();
            let ordinary = self.queue_of(&default);
            self.bind_empty(&room, ordinary)?;
            self.graphs.captures[at].draws[of].add_room(room);
        }
        Ok(self.graphs.captures[at].draws[of].draw(steps))
    }

    /// Seeds generators. During a capture on a generator's device only its current seed is accepted, and
    /// changes nothing. If one generator is rejected, none is seeded. Source:
    /// `CUDAGeneratorImpl::set_current_seed`.
    pub fn seed_generators(&mut self, generators: &[Generator], seed: u64) -> Result<()> {
        let mut free = Vec::with_capacity(generators.len());
        for generator in generators {
            match self.graphs.captures.iter().position(|c| c.device.id() == generator.device()) {
                Some(at) if generator.state().seed != seed => {
                    let begun = self.graphs.captures[at].begun;
                    let refused = self.refuse(at, "seeding a generator");
                    refused.map_err(|_| error::seed_in_capture(begun))?;
                    free.push(generator);
                }
                Some(_) => {}
                None => free.push(generator),
            }
        }
        free.into_iter().for_each(|generator| generator.manual_seed(seed));
        Ok(())
    }

    /// Sets the states of generators. Rejected during a capture on a generator's device, because a replay
    /// reads the state. If one generator is rejected, none is set. Source: `CUDAGeneratorImpl::set_offset`.
    pub fn set_generators(&mut self, states: &[(Generator, GeneratorState)]) -> Result<()> {
        self.refuse_set_generators(states)?;
        states.iter().for_each(|(generator, state)| generator.set_state(*state));
        Ok(())
    }

    /// Only the check of [`Runtime::set_generators`].
    pub fn refuse_set_generators(&mut self, states: &[(Generator, GeneratorState)]) -> Result<()> {
        (states.iter())
            .try_for_each(|(g, _)| self.refuse_capturing(g.device(), "setting the state of a generator"))
    }
}
