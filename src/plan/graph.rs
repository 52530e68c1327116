//! Graphs: captured work that is replayed as a unit.
//!
//! A replay performs all accesses of the captured work at once, on the replaying stream: the race checker
//! sees one operation. See Note [Races of a capture].
//!
//! Note [What a graph keeps alive]. The launches of a graph contain addresses. The graph keeps tensors from
//! before the capture. Tensors created inside it lie in the graph's private pool: they may be dropped, and
//! then only captures of the same pool reuse their memory. The pool lives as long as its graphs. A graph
//! waits for its replays before it is dropped.

use super::submit::Call;
use super::trace::ActionKind;
use super::transfer::Transfer;
use super::{MapArg, Runtime, error};
use crate::array::{Dtype, Layout};
use crate::base::Result;
use crate::device::{Device, MemoryPool};
use crate::driver::graph::{GraphHandle, Step};
use crate::driver::{Driver, Work};
use crate::memory::PoolId;
use crate::stream::Stream;
use crate::stream::races::{Access, Counted, Region, Site, Touch, Watched};
use crate::tensor::{Generator, Memory, StorageRef, Tensor, WeakStorage};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock, Weak};

/// A graph: empty, being captured, or ready to be replayed. Clones are the same graph.
/// Source: `torch.cuda.CUDAGraph`.
#[derive(Clone, Default)]
pub struct Graph(Arc<Mutex<State>>);

impl Graph {
    /// Approximate bytes of a graph without its content.
    pub(crate) const BYTES: usize = size_of::<Mutex<State>>() + 40;
}

/// The state of a graph.
#[derive(Default)]
pub(super) enum State {
    #[default]
    Empty,
    /// Being captured, by the capture with this number.
    Capturing(u64),
    Ready(Box<Recorded>),
}

/// Memory that captures share, on the device that uses it first. Clones are the same pool. Source:
/// `torch.cuda.graph_pool_handle`.
#[derive(Clone)]
pub struct GraphPool(Arc<Shared>);

/// The shared state of a pool's clones.
pub(super) struct Shared {
    id: PoolId,
    open: OnceLock<OpenPool>,
}

struct OpenPool {
    memory: MemoryPool,
    /// The history of all its memory: replays of its graphs must not overlap.
    history: Watched,
}

/// A captured graph.
pub(super) struct Recorded {
    pub driver: Arc<dyn Driver>,
    /// `None` when nothing was captured.
    pub handle: Option<GraphHandle>,
    pub device: Arc<Device>,
    pub steps: Arc<[Step]>,
    /// Elements that a replay moves or computes.
    pub elements: usize,
    pub uses: Vec<Use>,
    pub draws: Vec<Draws>,
    pub pool: GraphPool,
    pub replayed_on: SmallVec<[Arc<Stream>; 1]>,
    /// The host memory of the steps and the uses.
    pub _counted: Counted,
}

/// A graph's use of a storage.
pub(super) struct Use {
    /// Set for storages from outside the capture.
    pub kept: Option<StorageRef>,
    pub storage: WeakStorage,
    pub accesses: SmallVec<[(Region, Access); 2]>,
}

/// The draws of one generator in a graph. Each reads its seed and its offset from device memory.
pub(super) struct Draws {
    generator: Generator,
    /// Buffers of number pairs, and how many pairs are used.
    rooms: Vec<(Tensor, usize)>,
    /// The offset of each draw from the first, in order.
    offsets: Vec<u64>,
    /// The offset by which a replay advances the generator.
    advance: u64,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    pub(super) fn state(&self) -> &Arc<Mutex<State>> {
        &self.0
    }

    /// The pool of its memory.
    pub fn pool(&self) -> Result<GraphPool> {
        match &*self.0.lock() {
            State::Ready(recorded) => Ok(recorded.pool.clone()),
            _ => Err(error::graph_not_captured("pool")),
        }
    }

    /// The captured work, one line per step: its lane and its action.
    pub fn dump(&self) -> Result<String> {
        match &*self.0.lock() {
            State::Ready(recorded) => Ok(recorded.steps.iter().map(|step| format!("{step}\n")).collect()),
            _ => Err(error::graph_not_captured("debug_dump")),
        }
    }

    /// `empty`, `capturing` or `captured`, for display.
    pub fn describe(&self) -> &'static str {
        match &*self.0.lock() {
            State::Empty => "empty",
            State::Capturing(_) => "capturing",
            State::Ready(_) => "captured",
        }
    }
}

impl Default for GraphPool {
    fn default() -> GraphPool {
        GraphPool(Arc::new(Shared { id: PoolId::fresh(), open: OnceLock::new() }))
    }
}

impl GraphPool {
    /// The captured part of a memory pool.
    pub fn of(memory: &MemoryPool) -> GraphPool {
        let pool = GraphPool(Arc::new(Shared { id: memory.id(), open: OnceLock::new() }));
        pool.0.open.get_or_init(|| OpenPool::new(memory.device(), memory.id()));
        pool
    }

    /// The pool's number, shared with the memory pool that it is a part of.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// The pool's memory on a device.
    pub(super) fn open(&self, device: &Arc<Device>) -> Result<&MemoryPool> {
        let open = self.0.open.get_or_init(|| OpenPool::new(device, self.0.id));
        match Arc::ptr_eq(open.memory.device(), device) {
            true => Ok(&open.memory),
            false => Err(error::pool_of_another_device(open.memory.device().id(), device.id())),
        }
    }

    /// True when both refer to the same pool.
    pub fn same(&self, other: &GraphPool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number for display; 0 before a capture has used the pool.
    pub fn number(&self) -> u64 {
        self.0.open.get().map_or(0, |open| open.memory.id().number())
    }
}

impl OpenPool {
    fn new(device: &Arc<Device>, id: PoolId) -> OpenPool {
        OpenPool { memory: MemoryPool::numbered(device, id.captured()), history: Watched::default() }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // A device that fails here has already lost its work.
        for stream in &self.replayed_on {
            let _ = stream.synchronize();
        }
        if let Some(handle) = self.handle {
            self.driver.graph_free(handle);
        }
    }
}

impl Use {
    fn storage(&self) -> Option<StorageRef> {
        self.kept.clone().or_else(|| self.storage.upgrade())
    }
}

impl Draws {
    /// Capacity of a buffer in numbers.
    pub(super) const ROOM: usize = 128;

    pub(super) fn new(generator: Generator) -> Draws {
        Draws { generator, rooms: Vec::new(), offsets: Vec::new(), advance: 0 }
    }

    pub(super) fn generator(&self) -> &Generator {
        &self.generator
    }

    /// True when the next draw needs a new buffer.
    pub(super) fn is_full(&self) -> bool {
        self.rooms.last().is_none_or(|(_, used)| *used + 2 > Self::ROOM)
    }

    pub(super) fn add_room(&mut self, room: Tensor) {
        self.rooms.push((room, 0));
    }

    /// Seed and offset of the next draw, as tensors; `None` when the buffer is full.
    pub(super) fn draw(&mut self, steps: u64) -> Option<(Tensor, Tensor)> {
        let (room, used) = self.rooms.last_mut()?;
        let first = *used;
        *used += 2;
        self.offsets.push(self.advance);
        self.advance = self.advance.wrapping_add(steps);
        let number = |at: usize| room.with_layout(Layout { offset: at, ..Layout::contiguous(&[]) });
        Some((number(first), number(first + 1)))
    }

    /// The bytes of every buffer for a replay; advances the generator.
    fn next(&self) -> Vec<(&Tensor, Vec<u8>)> {
        let state = self.generator.advance(self.advance);
        let mut offsets = self.offsets.iter();
        let mut filled = Vec::new();
        for (room, used) in &self.rooms {
            let mut bytes = Vec::with_capacity(8 * used);
            for offset in offsets.by_ref().take(used / 2) {
                bytes.extend(state.seed.to_le_bytes());
                bytes.extend(state.offset.wrapping_add(*offset).to_le_bytes());
            }
            filled.push((room, bytes));
        }
        filled
    }
}

/// Seed and offset of a draw.
pub enum Drawn {
    /// Known now.
    Now(crate::tensor::GeneratorState),
    /// Known when the graph is replayed: in device memory.
    Later { seed: Tensor, offset: Tensor },
}

impl Drawn {
    /// Seed and offset as operands.
    pub fn operands(&self) -> [MapArg<'_>; 2] {
        match self {
            Drawn::Now(state) => [MapArg::Raw(state.seed, Dtype::I64), MapArg::Raw(state.offset, Dtype::I64)],
            Drawn::Later { seed, offset } => [MapArg::Tensor(seed), MapArg::Tensor(offset)],
        }
    }
}

impl Runtime {
    /// Remembers a pool by its number while it is alive.
    pub fn know_pool(&mut self, pool: &GraphPool) {
        self.graphs.pools.retain(|known| known.strong_count() > 0);
        if self.pool_numbered(pool.id().number()).is_none() {
            self.graphs.pools.push(Arc::downgrade(&pool.0));
        }
    }

    /// A remembered pool.
    pub fn pool_numbered(&self, number: u64) -> Option<GraphPool> {
        let mut known = self.graphs.pools.iter().filter_map(Weak::upgrade);
        known.find(|pool| pool.id.number() == number).map(GraphPool)
    }

    /// The state of a generator for one draw, which advances it by `steps`. In a capture the state is read
    /// from device memory, because the draw happens at every replay.
    pub fn draw(&mut self, generator: &Generator, steps: u64) -> Result<Drawn> {
        Ok(match self.capture_draw(generator, steps)? {
            Some((seed, offset)) => Drawn::Later { seed, offset },
            None => Drawn::Now(generator.advance(steps)),
        })
    }

    /// Queues a captured graph on the current stream of its device. Generators that it draws from are read,
    /// and advanced by all its draws. Source: `torch.cuda.CUDAGraph.replay`.
    pub fn replay(&mut self, graph: &Graph) -> Result<()> {
        const NAME: &str = "replay";
        let mut state = graph.state().lock();
        let State::Ready(recorded) = &mut *state else { return Err(error::graph_not_captured(NAME)) };
        self.flush()?;
        self.store_held()?;
        let at = self.place(recorded.device.id())?.queue;
        let stream = self.queues[at].stream.clone();
        self.refuse_captured(&stream, "the replay of another graph")?;
        let Some(handle) = recorded.handle else { return Ok(()) };
        self.spend(recorded.elements)?;
        let used: Vec<(StorageRef, &Use)> =
            recorded.uses.iter().filter_map(|u| Some((u.storage()?, u))).collect();
        let mut touches: Vec<Touch<'_>> = Vec::new();
        for (storage, of) in &used {
            let touch = |&(region, access)| Touch { history: &storage.history, region, access };
            touches.extend(of.accesses.iter().map(touch));
        }
        for room in recorded.draws.iter().flat_map(|d| &d.rooms) {
            let (region, history) = (room.0.region(), &room.0.storage().history);
            touches.push(Touch { history, region, access: Access::Write });
        }
        if let Some(open) = recorded.pool.0.open.get() {
            touches.push(Touch { history: &open.history, region: Region::from(0..1), access: Access::Write });
        }
        self.note_touches(at, &touches, Site { name: NAME, span: self.span })?;
        drop(touches);
        if !recorded.replayed_on.contains(&stream) {
            recorded.replayed_on.push(stream.clone());
        }
        for memory in used.iter().filter_map(|(storage, _)| storage.memory()) {
            memory.used_on(&stream);
        }
        for (room, bytes) in recorded.draws.iter().flat_map(Draws::next) {
            let Some(Memory::Block(block)) = room.storage().memory() else { continue };
            self.queue_copy(NAME, &stream, Transfer::to_device(block.ptr(), &bytes), None)?;
        }
        let device = &recorded.device;
        let is_written = |of: &Use| of.accesses.iter().any(|(_, access)| *access == Access::Write);
        let written = used.iter().filter(|(_, of)| is_written(of)).map(|(storage, _)| &**storage);
        let shown = (ActionKind::Launch, NAME.into());
        let call = Call { name: NAME, shown, bytes: 0, work: Work::Graph(&recorded.steps) };
        let launch = || recorded.driver.graph_launch(handle, stream.handle());
        self.queue_call(device, &stream, call, written, launch)?;
        self.records.launches += 1;
        if self.settings.launch_blocking {
            self.wait_queue(at)?;
        }
        Ok(())
    }

    /// Empties a graph; its resources are released after its replays. An active capture is discarded. Source:
    /// `torch.cuda.CUDAGraph.reset`.
    pub fn reset_graph(&mut self, graph: &Graph) -> Result<()> {
        self.abort_capture(graph);
        // Errors of a replay are raised by the script's next wait, not here.
        drop(std::mem::take(&mut *graph.state().lock()));
        Ok(())
    }
}
