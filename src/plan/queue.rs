//! Pending elementwise work of one stream.
//!
//! A [`FusedGroup`] is a program under construction: every node is the result of one operation over one iteration
//! shape. Operands that the group computes itself are registers, never memory. A reduction may close a group.
//!
//! Note [Hazards]. Loads happen before stores, per element. That equals program order as long as no storage is loaded
//! under one layout and stored under another in the same group, unless these share no element; an operation that would
//! do so flushes the group first. A turned load (Note [Turned loads]) reads other elements than the store writes, even
//! under the same layout. Stores to several parts of a storage have no order; they may share a group if no two parts
//! overlap and the group computes the stored values ([`Queue::writes_beside`]). So `cat` of new values is part of their
//! launch.

use super::aside::{Hole, are_apart};
use super::batch::Waiting;
use super::chain::{part_and_node, place_of};
use super::deferred::{DEFERRED, Deferred};
use super::gather::{GATHERED, Gathered, is_gathered};
use super::infer::{check_operands, is_host_scalar};
use super::operands::{Reading, apply_function, operand_register};
use super::reduce::REDUCED;
use super::rounds::{Called, FEW, Room, Rounds};
use super::turn::Bend;
use super::{Elementwise, MapArg, Runtime};
use crate::array::{Class, Dims, Dtype, Layout, Scalar, Strides, promote, same};
use crate::base::{Result, Span};
use crate::driver::DeviceId;
use crate::kernel::{CAST, Instr, Map, MapFn, ReduceFn, Regs, Source};
use crate::stream::Stream;
use crate::stream::races::Access;
use crate::tensor::{Pending, Storage, StorageRef, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// The pending work of one stream.
pub(super) struct Queue {
    pub stream: Arc<Stream>,
    pub generation: u32,
    /// Closed groups that wait for later work; see `chain`.
    pub chain: Vec<FusedGroup>,
    /// The chain is not one of rows; see `several`. Valid while the chain begins with a reduction.
    pub is_shared: bool,
    /// See `batch`.
    pub waiting: Waiting,
    /// Results that wait for a reader; see `gather`.
    pub gathers: Vec<Arc<Gathered>>,
    /// The number of such results so far.
    pub gathered: u64,
    /// Values that wait for a reader; see `deferred`.
    pub deferred: Vec<Deferred>,
    /// The open group.
    pub group: Option<Box<FusedGroup>>,
    /// The capture that records this stream's work.
    pub capture: Option<u64>,
    /// The first operation in a sequence of groups that were flushed because they were full.
    pub full_from: Option<Called>,
    /// Where the loop iterations of a chain of rows begin, and the length of the chain at the newest.
    pub rows_from: Option<(Called, usize)>,
    spare: Vec<Spare>,
}

/// Empty buffers of a flushed group, for reuse.
struct Spare {
    nodes: Vec<Node>,
    loads: Vec<Load>,
    sources: Vec<Source>,
    instrs: Vec<Instr>,
}

/// Maximum number of groups whose buffers are kept.
const MOST_SPARE: usize = 16;

/// A program under construction.
pub(super) struct FusedGroup {
    pub device: DeviceId,
    pub shape: Dims,
    pub map: Map,
    pub loads: Vec<Load>,
    /// The number of loads that were of results that waited to be gathered.
    pub gathered_loads: u8,
    pub numbers: SmallVec<[u64; 8]>,
    pub nodes: Vec<Node>,
    /// The number of nodes that are not computed any more; see `hoist`.
    pub forgotten: usize,
    pub reduce: Option<PendingReduce>,
    /// It runs before the open group although it is newer; see `aside`.
    pub is_aside: bool,
    /// A scatter has computed one of its values; see `scatter`.
    pub is_scattered: bool,
    /// It contains a reduction; see `unrolled`.
    pub is_unrolled: bool,
    /// Elements that need not be computed; set when the group leaves its queue.
    pub hole: Option<Hole>,
    pub rounds: Rounds,
}

/// A tensor that the group reads from memory.
#[derive(Clone)]
pub(super) struct Load {
    pub storage: StorageRef,
    /// The original layout, for hazards.
    pub layout: Layout,
    /// Its strides over the group's shape.
    pub strides: Strides,
    /// Set for a load whose elements are not all one stride apart.
    pub bend: Option<Bend>,
    /// Set at the flush for the result of a gather; see `gather`.
    pub gathered: Option<Arc<Gathered>>,
    pub dtype: Dtype,
    pub reg: u16,
}

/// An operation's result, or an in-place write.
pub(super) struct Node {
    pub reg: u16,
    /// `None` once a later node of the group writes the same elements.
    pub storage: Option<StorageRef>,
    /// Set if it differs from the storage's initial layout.
    view: Option<Box<Layout>>,
    pub dtype: Dtype,
    /// The operation.
    pub name: &'static str,
    pub called: Called,
}

/// The reduction that closes a group.
pub(super) struct PendingReduce {
    pub reg: u16,
    pub dims: SmallVec<[usize; 6]>,
    pub f: &'static ReduceFn,
    pub dtype: Dtype,
    /// The value's storage; `None` for `argmax`.
    pub out: Option<StorageRef>,
    /// The position's storage, for indexed reductions that need it.
    pub out_index: Option<StorageRef>,
    pub span: Span,
}

impl Load {
    /// True when it reads other elements along a row, whose first `kept` dimensions are not.
    pub(super) fn is_along(&self, kept: usize) -> bool {
        self.strides.iter().skip(kept).any(|&stride| stride != 0)
    }
}

impl Node {
    /// A result written to a tensor.
    #[inline(always)]
    pub(super) fn of(target: &Tensor, reg: u16, name: &'static str, called: Called) -> Node {
        Node {
            reg,
            storage: Some(target.storage_ref()),
            // The storage's first tensor needs none, unless it has got another layout (`unsqueeze_`).
            view: (!std::ptr::eq(target.layout(), target.storage_ref().first_layout()))
                .then(|| Box::new(target.layout().clone())),
            dtype: target.dtype(),
            name,
            called,
        }
    }

    /// The operation's source position.
    pub(super) fn span(&self) -> Span {
        self.called.span
    }

    /// This node with another storage. Its layout is the node's if `own` is set, otherwise the storage's
    /// initial one.
    pub(super) fn moved(&self, storage: StorageRef, own: bool) -> Node {
        let view = self.view.clone().filter(|_| own);
        let Node { reg, dtype, name, called, .. } = *self;
        Node { reg, storage: Some(storage), view, dtype, name, called }
    }

    /// This node for another register, which also holds what `before` writes around it.
    pub(super) fn over(&self, before: &Node, reg: u16) -> Node {
        let Node { dtype, name, called, .. } = *self;
        Node { reg, storage: before.storage.clone(), view: before.view.clone(), dtype, name, called }
    }

    /// This node for another register.
    pub(super) fn in_register(&self, reg: u16) -> Node {
        let Node { ref storage, ref view, dtype, name, called, .. } = *self;
        Node { reg, storage: storage.clone(), view: view.clone(), dtype, name, called }
    }

    /// The same result, stored to `out`.
    pub(super) fn stored_to(&self, out: &StorageRef) -> Node {
        Node { storage: Some(out.clone()), ..self.in_register(self.reg) }
    }

    /// True when the tensor is what the node writes: it has the same layout and dtype.
    #[inline]
    pub(super) fn is_value_of(&self, tensor: &Tensor) -> bool {
        let Some(storage) = &self.storage else { return false };
        let first = self.view.is_none() && tensor.is_first();
        (first || self.layout(storage) == tensor.layout()) && self.dtype == tensor.dtype()
    }

    /// The layout under which the node writes its storage.
    pub(super) fn layout<'a>(&'a self, storage: &'a StorageRef) -> &'a Layout {
        self.view.as_deref().unwrap_or_else(|| storage.first_layout())
    }
}

impl Queue {
    pub(super) fn new(stream: Arc<Stream>) -> Queue {
        Queue {
            stream,
            generation: 1,
            chain: Vec::new(),
            is_shared: false,
            waiting: Waiting::default(),
            gathers: Vec::new(),
            gathered: 0,
            deferred: Vec::new(),
            group: None,
            capture: None,
            full_from: None,
            rows_from: None,
            spare: Vec::new(),
        }
    }

    /// All groups, in order.
    pub(super) fn groups(&self) -> impl Iterator<Item = &FusedGroup> {
        self.chain.iter().chain(self.group.as_deref())
    }

    /// Keeps the buffers of a flushed group.
    pub(super) fn reuse(&mut self, group: FusedGroup) {
        if self.spare.len() < MOST_SPARE {
            let FusedGroup { mut nodes, mut loads, map: Map { mut sources, mut instrs, .. }, .. } = group;
            nodes.clear();
            loads.clear();
            sources.clear();
            instrs.clear();
            self.spare.push(Spare { nodes, loads, sources, instrs });
        }
    }

    /// A new group.
    pub(super) fn fresh(&mut self, device: DeviceId, shape: Dims) -> FusedGroup {
        let mut group = FusedGroup::new(device, shape);
        if let Some(Spare { nodes, loads, sources, instrs }) = self.spare.pop() {
            (group.nodes, group.loads) = (nodes, loads);
            (group.map.sources, group.map.instrs) = (sources, instrs);
        }
        group
    }

    /// Renumbers the results of all groups after some have left.
    pub(super) fn renumber(&self, at: usize) {
        let generation = self.generation;
        for (part, group) in self.groups().enumerate() {
            let nodes = group.nodes.iter().enumerate();
            let written = nodes.filter_map(|(number, node)| Some((number, node.storage.as_ref()?)));
            let reduced = group.reduce.iter().flat_map(|reduce| reduce.out.iter().chain(&reduce.out_index));
            for (node, storage) in written.chain(reduced.map(|storage| (REDUCED, storage))) {
                let node = place_of(part, node);
                storage.set_pending(Some(Pending { queue: at as u16, generation, node }));
            }
        }
    }

    /// The pending state of a storage written by this node of the open group.
    pub(super) fn pending(&self, at: usize, node: usize) -> Pending {
        let node = place_of(self.chain.len(), node);
        Pending { queue: at as u16, generation: self.generation, node }
    }

    /// True when the open group writes only other parts of the target's storage, reads nothing of it, and computes an
    /// operand or writes parts that interleave with the target: separate launches would each write parts of the same
    /// memory sectors. Contiguous parts become one launch anyway (Note [Batches]).
    fn writes_beside(&self, operands: &[MapArg<'_>], target: &Tensor) -> bool {
        let (storage, whole) = (target.storage(), target.storage_ref());
        let Some(group) = &self.group else { return false };
        if storage.memory().is_none() || storage.pending().is_none() {
            return false;
        }
        let writes =
            |node: &Node, storage: &Storage| node.storage.as_ref().is_some_and(|own| own.is(storage));
        let computes = |tensor: &Tensor| group.nodes.iter().any(|node| writes(node, tensor.storage()));
        let extent = target.layout().extent();
        let is_apart = |node: &Node| {
            let layout = node.layout(&whole);
            let other = layout.extent();
            let is_beside = other.end <= extent.start || extent.end <= other.start;
            node.dtype == target.dtype()
                && (is_beside || are_apart(layout, target.layout(), whole.first_layout()))
        };
        computes(target)
            && (!target.layout().is_contiguous() || operands.iter().filter_map(MapArg::tensor).any(computes))
            && group.nodes.iter().filter(|node| writes(node, storage)).all(is_apart)
            && !group.loads.iter().any(|load| load.storage.is(storage))
            // Values that wait see the storage as it was when they were submitted.
            && !self.deferred.iter().any(|value| value.reads(storage))
            && !self.gathers.iter().any(|gathered| gathered.reads(storage))
    }

    /// The open group's node that computes a storage; `None` when an earlier group computes it.
    pub(super) fn open_node(&self, pending: Pending) -> Option<usize> {
        let (part, node) = part_and_node(pending.node);
        (part == self.chain.len()).then_some(node)
    }
}

impl FusedGroup {
    pub(super) fn new(device: DeviceId, shape: Dims) -> FusedGroup {
        FusedGroup {
            device,
            shape,
            map: Map::default(),
            loads: Vec::new(),
            gathered_loads: 0,
            numbers: SmallVec::new(),
            nodes: Vec::new(),
            forgotten: 0,
            reduce: None,
            is_aside: false,
            is_scattered: false,
            is_unrolled: false,
            hole: None,
            rounds: Rounds::default(),
        }
    }

    /// The load of this memory.
    #[inline]
    pub(super) fn load_of(
        &self,
        storage: &Storage,
        layout: &Layout,
        dtype: Dtype,
        bend: Option<&Bend>,
    ) -> Option<&Load> {
        for load in &self.loads {
            let is_same = load.storage.is(storage) && load.dtype == dtype;
            if is_same && load.bend.as_ref() == bend && load.layout == *layout {
                return Some(load);
            }
        }
        None
    }

    /// True when the program's result depends on the order of dimensions.
    pub(super) fn uses_position(&self) -> bool {
        self.map.sources.contains(&Source::Position)
    }

    pub(super) fn push(&mut self, f: &'static MapFn, args: Regs, class: Class, dtype: Dtype) -> u16 {
        push_made(&mut self.map.instrs, || Instr { f, args, class, dtype });
        RAW_INSTR + (self.map.instrs.len() - 1) as u16
    }

    /// The dtype of a register of a group under construction.
    pub(super) fn dtype(&self, reg: u16) -> Dtype {
        match reg.checked_sub(RAW_INSTR) {
            Some(instr) => self.map.instrs[usize::from(instr)].dtype,
            None => self.map.dtype(reg),
        }
    }

    /// The register converted to exactly this dtype.
    pub(super) fn cast(&mut self, reg: u16, dtype: Dtype) -> u16 {
        match self.dtype(reg) {
            from if from == dtype => reg,
            from => self.push(&CAST, [reg].into_iter().collect(), from.class(), dtype),
        }
    }

    /// The register of operand `i` of `f`, in the dtype to compute in.
    pub(super) fn read_as(&mut self, reg: u16, f: &'static MapFn, i: usize, compute: Dtype) -> u16 {
        match f.select && i == 0 {
            _ if std::ptr::eq(f, &CAST) => reg,
            true => self.converted(reg, Dtype::Bool),
            false => self.converted(reg, compute),
        }
    }

    /// The register, converted for an instruction that computes in `compute`.
    #[inline]
    pub(super) fn converted(&mut self, reg: u16, compute: Dtype) -> u16 {
        if holds_exactly(self.dtype(reg), compute) { reg } else { self.cast(reg, compute) }
    }
}

/// In a group under construction, sources are numbered from 0 and instructions from here, so that a new
/// source renumbers no instruction. The flush assigns the final numbers.
pub(super) const RAW_INSTR: u16 = 0x8000;

/// True when a register of dtype `from` can be read as `to` without a conversion.
fn holds_exactly(from: Dtype, to: Dtype) -> bool {
    from.class() == to.class() && promote(from, to) == to
}

impl Runtime {
    /// Submits `f(args)` as a new tensor of `dtype`; operands broadcast and are read as `compute`.
    ///
    /// The result is contiguous, on the operands' device, and computed on demand.
    pub fn map(
        &mut self,
        name: &'static str,
        f: &'static MapFn,
        args: &[MapArg<'_>],
        compute: Dtype,
        dtype: Dtype,
    ) -> Result<Tensor> {
        let inferred = self.infer(name, args)?;
        let work = Elementwise::new(name, f, args, compute, dtype);
        self.map_over(work, inferred.shape, inferred.device)
    }

    /// [`Runtime::map`] over a given shape and device, for functions of the position.
    pub fn map_over(&mut self, work: Elementwise<'_>, shape: Dims, device: DeviceId) -> Result<Tensor> {
        self.map_as(work, Layout::contiguous_over(shape), device)
    }

    /// [`Runtime::map_over`] with a dense layout for the result.
    #[inline(always)]
    pub(super) fn map_as(
        &mut self,
        work: Elementwise<'_>,
        layout: Layout,
        device: DeviceId,
    ) -> Result<Tensor> {
        check_operands(&work)?;
        let place = self.place(device)?;
        let (at, owner) = (place.queue, place.device.clone());
        let read = read_near(work.args, device);
        let tensor = self.note_result(work.name, at, read, owner, (layout, work.dtype))?;
        let far = |arg: &MapArg<'_>| arg.tensor().is_some_and(|tensor| tensor.device() != device);
        match work.args.iter().any(far) {
            // A new tensor shares no elements with other tensors.
            false => self.write_near(&work, &tensor, at)?,
            true => self.write(&work, &tensor, at)?,
        }
        Ok(tensor)
    }

    /// Submits `target[...] = f(args)`, converted to the target's dtype; operands broadcast to the
    /// target's shape. `target` may be a view.
    pub fn map_into(&mut self, target: &Tensor, work: Elementwise<'_>) -> Result<()> {
        let Elementwise { name, args, .. } = work;
        let inferred = self.infer(name, args)?;
        let placed = |a: &MapArg<'_>| matches!(a, MapArg::Tensor(t) if !is_host_scalar(t));
        if inferred.device != target.device() && args.iter().any(placed) {
            return Err(super::error::target_on_other_device(name, target, inferred.device));
        }
        if crate::array::broadcast(&inferred.shape, target.shape()).as_ref() != Some(target.shape()) {
            return Err(super::error::does_not_broadcast_to(name, &inferred.shape, target));
        }
        if super::submit::overlaps_itself(target.layout()) {
            return Err(super::error::writes_overlap(name));
        }
        check_operands(&work)?;
        let at = self.place(target.device())?.queue;
        let read = read_near(args, target.device()).map(|tensor| (tensor, Access::Read));
        self.note(name, at, read.chain([(target, Access::Write)]))?;
        self.write(&work, target, at)
    }

    /// Queues a node that writes `target`: a new unbound tensor, or an existing one in place. Its accesses
    /// are already recorded.
    fn write(&mut self, work: &Elementwise<'_>, target: &Tensor, at: usize) -> Result<()> {
        let near = |tensor: &Tensor| tensor.device() == target.device();
        let is_apart = |arg: &MapArg<'_>| matches!(arg, MapArg::Tensor(t) if !near(t) || clashes(t, target));
        if !work.args.iter().any(is_apart) {
            return self.write_near(work, target, at);
        }
        let mut apart: SmallVec<[Option<Tensor>; 4]> = SmallVec::new();
        let mut numbers: SmallVec<[Option<Scalar>; 4]> = SmallVec::new();
        for arg in work.args {
            let (mut copy, mut number) = (None, None);
            if let MapArg::Tensor(tensor) = arg {
                if !near(tensor) {
                    number = Some(self.item(tensor)?);
                } else if clashes(tensor, target) {
                    copy = Some(self.contiguous_copy(tensor)?);
                }
            }
            apart.push(copy);
            numbers.push(number);
        }
        let operands: SmallVec<[MapArg<'_>; 4]> = (work.args.iter().zip(&apart).zip(&numbers))
            .map(|((&arg, copy), number)| match (copy, number) {
                (Some(copy), _) => MapArg::Tensor(copy),
                (_, Some(number)) => MapArg::Number(*number),
                _ => arg,
            })
            .collect();
        self.write_near(&Elementwise { args: &operands, ..*work }, target, at)
    }

    /// [`Runtime::write`] with operands that queue `at` can read directly.
    pub(super) fn write_near(&mut self, work: &Elementwise<'_>, target: &Tensor, at: usize) -> Result<()> {
        let &Elementwise { name, f, args: operands, compute, dtype } = work;
        if target.count() == 0 {
            // An empty view of other memory: nothing is written. The queue that computes the memory binds it
            // on its own stream. Binding it here would give it to this stream, and nothing would order the
            // two.
            return if target.storage().bytes() == 0 { self.bind_empty(target, at) } else { Ok(()) };
        }
        let device = target.device();
        if std::ptr::eq(f, &CAST) && compute.is_half() {
            self.settle_copied(operands)?;
        }
        let part = self.make_room(at, operands, target, Room::of(operands.len() + 1))?;
        let (reading, group) = self.queues[at].split(part, device, target.shape(), operands);
        let reading = Reading { target: Some(target), ..reading };
        let mut reg = |i: usize| operand_register(group, reading, f, i, operands[i], compute);
        // Build the registers with a fixed count: pushing them one by one and reading them at once causes
        // store-to-load stalls.
        let regs = match operands.len() {
            1 => Regs::first([reg(0), 0, 0, 0], 1),
            2 => Regs::first([reg(0), reg(1), 0, 0], 2),
            n => (0..n).map(reg).collect(),
        };
        let reg = apply_function(group, f, regs, compute, dtype);
        let reg = group.cast(reg, target.dtype());
        self.add_node(at, part, reg, target, name)
    }

    /// Adds a node to group number `part` of queue `at`, which computes `target` in register `reg`.
    #[inline(always)]
    pub(super) fn add_node(
        &mut self,
        at: usize,
        part: usize,
        reg: u16,
        target: &Tensor,
        name: &'static str,
    ) -> Result<()> {
        self.push_node(at, part, reg, target, name);
        self.after_submit(at)
    }

    /// [`Runtime::add_node`] without [`Runtime::after_submit`].
    #[inline(always)]
    pub(super) fn push_node(
        &mut self,
        at: usize,
        part: usize,
        reg: u16,
        target: &Tensor,
        name: &'static str,
    ) {
        #[cfg(test)]
        super::steps::queued::note();
        let called = self.called();
        let queue = &mut self.queues[at];
        let generation = queue.generation;
        let Some(group) = queue.chain.get_mut(part).or(queue.group.as_deref_mut()) else { return };
        let storage = target.storage();
        if let Some((before, node)) = storage.pending().map(|pending| part_and_node(pending.node))
            && before == part
            && group.nodes[node].is_value_of(target)
        {
            group.nodes[node].storage = None;
        }
        let number = group.nodes.len();
        group.rounds.note(called);
        push_made(&mut group.nodes, || Node::of(target, reg, name, called));
        let node = place_of(part, number);
        storage.set_pending(Some(Pending { queue: at as u16, generation, node }));
    }

    /// Resolves the hazards of reading `operands` and writing `target` in a group of queue `at`; see Note
    /// [Hazards]. Returns the group's number: that of the open group, or of one that runs before it.
    #[inline(always)]
    pub(super) fn make_room(
        &mut self,
        at: usize,
        operands: &[MapArg<'_>],
        target: &Tensor,
        room: Room,
    ) -> Result<usize> {
        self.begin_round(at)?;
        let queue = &self.queues[at];
        if queue.begins_with_reduction() && queue.rows_write_elsewhere(at, operands, target) {
            self.flush_work(at)?;
        }
        self.settle_shared(at, target.shape(), room, None)?;
        let queue = &mut self.queues[at];
        queue.forget_scattered(at);
        let is_other = |group: &FusedGroup| !same(&group.shape, target.shape());
        let mut differs = queue.group.as_deref().is_some_and(is_other);
        if differs {
            queue.forget_aside(at);
            queue.swap_aside(at, operands, target);
            differs = queue.group.as_deref().is_some_and(is_other);
        }
        let mut close = queue.group.is_some() && !queue.has_room_for(room);
        if close && queue.forget_dead(at) {
            close = !queue.has_room_for(room);
        }
        for operand in operands {
            match operand {
                MapArg::Tensor(tensor) => close |= self.settle_read(at, tensor)?,
                MapArg::Position => close |= self.queues[at].group.as_ref().is_some_and(|g| g.is_bent()),
                _ => {}
            }
        }
        if !self.queues[at].writes_beside(operands, target) {
            if is_gathered(target.storage()) {
                self.discard_held(operands, target);
            }
            close |= self.settle_write(at, target)?;
        }
        if differs && !close && room.instrs <= FEW {
            let called = self.called();
            let mut is_aside = self.queues[at].may_run_before(operands, target, called);
            if !is_aside && self.queues[at].may_run_between(operands, target) {
                self.flush_closed(at)?;
                is_aside = self.queues[at].may_run_before(operands, target, called);
            }
            if is_aside {
                self.set_aside(at, operands.len(), target);
                return Ok(self.queues[at].chain.len() - 1);
            }
        }
        if differs || close {
            match self.queues[at].is_computed_again(operands, target.shape()) {
                true => self.queues[at].close(),
                false => self.close_group(at, target.shape(), room.views, None)?,
            }
            // What was flushed may wait now, and read the target's old value; see Note [Kept values].
            if !self.queues[at].gathers.is_empty() && !is_fresh(target) {
                self.settle_gathers_of(target)?;
            }
        }
        Ok(self.queues[at].chain.len())
    }

    /// Flushes other queues with pending work on a tensor. True when the open group of queue `at` must be
    /// closed before the next one can read the tensor as a register or a load.
    pub(super) fn settle_read(&mut self, at: usize, tensor: &Tensor) -> Result<bool> {
        let Some(pending) = tensor.storage().pending() else { return Ok(false) };
        if usize::from(pending.queue) != at {
            self.flush_queue(usize::from(pending.queue))?;
            if is_gathered(tensor.storage()) {
                self.store_gathered(tensor.storage())?;
            }
            return Ok(false);
        }
        if pending.node == GATHERED {
            return self.settle_gathered(at, tensor);
        }
        if pending.node == DEFERRED {
            return self.settle_deferred(at, tensor);
        }
        let queue = &self.queues[at];
        let Some(node) = queue.open_node(pending) else { return Ok(false) };
        let node = queue.group.as_ref().and_then(|group| group.nodes.get(node));
        Ok(!node.is_some_and(|node| node.is_value_of(tensor)))
    }

    /// [`Runtime::settle_read`] for a tensor written in place: work that still has to read or write its old
    /// value is flushed first.
    pub(super) fn settle_write(&mut self, at: usize, target: &Tensor) -> Result<bool> {
        let storage = target.storage();
        if storage.is_lost() && storage.pending().is_none() {
            // After a partial write, the rest would be arbitrary memory contents.
            let bytes = target.layout().bytes(target.dtype());
            if bytes != storage.bytes() {
                return Err(super::error::lost_value(storage));
            }
        }
        if is_fresh(target) {
            return Ok(false);
        }
        storage.forget_sorted();
        self.settle_gathers_of(target)?;
        self.settle_deferred_of(target)?;
        if target.layout().bytes(target.dtype()) != storage.bytes() {
            storage.note_written_in_parts();
        }
        let flush = self.settle_read(at, target)?;
        for other in (0..self.queues.len()).filter(|&other| other != at) {
            let reads = |q: &Queue| q.groups().any(|g| g.loads.iter().any(|l| l.storage.is(storage)));
            if reads(&self.queues[other]) {
                self.flush_queue(other)?;
            }
        }
        let Some(group) = &self.queues[at].group else { return Ok(flush) };
        let elsewhere =
            |l: &Load| l.bend.is_some() || l.layout != *target.layout() || l.dtype != target.dtype();
        let is_apart = |l: &Load| l.bend.is_none() && shares_nothing(&l.layout, l.dtype, target);
        let clash = |l: &Load| l.storage.is(storage) && elsewhere(l) && !is_apart(l);
        Ok(flush || group.loads.iter().any(clash))
    }

    /// Called after every submission: flushes work that must not wait.
    pub(super) fn after_submit(&mut self, at: usize) -> Result<()> {
        let queue = &self.queues[at];
        // A reduction accepts no more work, but it stays until the next call. By then the values that only it
        // reads have been dropped, and are not stored.
        let is_open = queue.group.as_ref().is_some_and(|group| group.reduce.is_none());
        if is_open && !queue.has_room(1) {
            self.flush_full(at)?;
        } else if !self.settings.fuse || self.settings.launch_blocking {
            self.flush_queue(at)?;
        }
        if self.settings.launch_blocking {
            self.wait_queue(at)?;
        }
        Ok(())
    }
}

/// True for the new result of an operation.
#[inline]
fn is_fresh(target: &Tensor) -> bool {
    target.storage_holders() == 1 && target.storage().memory().is_none()
}

/// The operands that an operation reads on a device, excluding a host scalar among operands of another
/// device.
fn read_near<'a>(args: &'a [MapArg<'a>], device: DeviceId) -> impl Iterator<Item = &'a Tensor> + Clone {
    args.iter().filter_map(move |arg| match arg {
        MapArg::Tensor(tensor) if tensor.device() == device => Some(*tensor),
        _ => None,
    })
}

/// True when a tensor shares elements with another layout or dtype of the same storage. Reading the tensor
/// while the target is written could see new values.
pub(super) fn clashes(tensor: &Tensor, target: &Tensor) -> bool {
    if !std::ptr::eq(tensor.storage(), target.storage()) {
        return false;
    }
    if tensor.layout() == target.layout() && tensor.dtype() == target.dtype() {
        return false;
    }
    let (a, b) = (tensor.byte_range(), target.byte_range());
    a.start < b.end && b.start < a.end && !shares_nothing(tensor.layout(), tensor.dtype(), target)
}

/// True when a layout of the target's storage is known to share no element with the target.
fn shares_nothing(layout: &Layout, dtype: Dtype, target: &Tensor) -> bool {
    dtype == target.dtype() && are_apart(layout, target.layout(), target.storage_ref().first_layout())
}

/// Pushes a value constructed in place. Copying a value that was just constructed would cause store-to-load
/// stalls.
#[inline(always)]
fn push_made<T>(list: &mut Vec<T>, make: impl FnOnce() -> T) {
    list.reserve(1);
    let length = list.len();
    // SAFETY: there is room for one more element, which is written before the length counts it.
    unsafe {
        list.as_mut_ptr().add(length).write(make());
        list.set_len(length + 1);
    }
}
