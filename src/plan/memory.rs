//! Memory requests: the only place that decides when a request fails.
//!
//! Queues hold what their work reads and writes, so memory that no script can reach may still be in use. A
//! request that finds no memory is retried after these steps, in order:
//!
//! 1. release sorted indices, drop dead work from its queue, and flush work that holds the last references to its operands;
//! 2. collect reference cycles, of values and of records, and repeat 1 if there were any;
//! 3. let the allocator wait for frees that other streams delay, return caches, and search again
//!    ([`Effort::Last`]).
//!
//! Launches request memory in the same way. If a launch's results do not fit beside all its operands, it is
//! launched operation by operation, so that each input is freed after its last use.
//!
//! Pending work takes memory for its results at launch, so a request could take memory that earlier work
//! still needs. On a device that is nearly full (counting the results of pending work), pending work is
//! therefore flushed before a request, and before other queues get new work: memory is taken in program
//! order.
//!
//! Results that wait for a reader (Notes [Kept values] and [Gathered values]) count as pending. While a script holds
//! their operands, they take no memory; a result that is the last to hold an operand is stored as soon as the device is
//! nearly full.
//!
//! Together these ensure that a script needs no more memory than if each operation ran immediately.

use super::Runtime;
use super::flush::{bind_all, is_wanted};
use super::queue::{FusedGroup, Load, Node, RAW_INSTR};
use crate::array::{Dtype, Layout};
use crate::base::{Result, Site, Span, reclaim};
use crate::device::{Block, Device};
use crate::driver::DeviceId;
use crate::driver::error::is_shortage;
use crate::kernel::Source;
use crate::memory::{Effort, PinnedBlock};
use crate::stream::Stream;
use crate::tensor::{Memory, Storage, StorageRef, Tensor};
use foldhash::HashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The state of memory requests, and memory outside of tensors.
#[derive(Default)]
pub(super) struct Requests {
    /// Memory is short and is being released: requests do not flush work.
    pub(super) is_short: bool,
    /// An upper bound on the bytes that the results of pending work will take.
    unbound: u64,
    /// Memory that scripts allocate and free explicitly, by address.
    pub(super) raw: HashMap<u64, Block>,
}

impl Runtime {
    /// Requests memory of a device or of the host; fails only when nothing more can be released.
    #[inline]
    pub(super) fn request<T>(&mut self, mut ask: impl FnMut(Effort) -> Result<T>) -> Result<T> {
        match ask(Effort::Quick) {
            Err(e) if is_shortage(&e) => {}
            done => return done,
        }
        if self.requests.is_short {
            return ask(Effort::Thorough);
        }
        self.release_memory()?;
        ask(Effort::Last)
    }

    /// An upper bound on the bytes that the results of pending work will take.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.requests.unbound
    }

    /// Called before a new result of `bytes` is created: on a nearly full device, the pending work of other
    /// queues is flushed first.
    #[inline]
    pub(super) fn flush_others(&mut self, device: &Arc<Device>, bytes: u64) -> Result<()> {
        self.requests.unbound = self.requests.unbound.saturating_add(bytes);
        if device.is_nearly_full(self.requests.unbound) {
            let own = self.place(device.id())?.queue;
            return self.flush_for_request(device, bytes, Some(own));
        }
        Ok(())
    }

    /// Flushes the pending work of a nearly full device, except that of queue `but`, before `bytes` are
    /// taken.
    #[cold]
    fn flush_for_request(&mut self, device: &Arc<Device>, bytes: u64, but: Option<usize>) -> Result<()> {
        if self.requests.is_short {
            return Ok(());
        }
        let (mut all, mut here) = (bytes, bytes);
        let mut queues: SmallVec<[usize; 4]> = SmallVec::new();
        for at in 0..self.queues.len() {
            let waiting = self.deferred_bytes(at).saturating_add(self.waiting_gathers(at));
            let queue = &mut self.queues[at];
            let mut groups: SmallVec<[&mut FusedGroup; 4]> = queue.chain.iter_mut().collect();
            groups.extend(queue.group.as_deref_mut());
            prune(&mut groups);
            let own =
                groups.first().map(|group| group.device).or((waiting > 0).then(|| queue.stream.device()));
            let Some(own) = own else { continue };
            let results = groups.iter().flat_map(|group| group.results());
            let pending: u64 = results
                .filter(|s| s.memory().is_none())
                .fold(waiting, |sum, s| sum.saturating_add(s.bytes()));
            all = all.saturating_add(pending);
            if own == device.id() {
                here = here.saturating_add(pending);
                queues.push(at);
            }
        }
        self.requests.unbound = all;
        if !device.is_nearly_full(here) {
            return Ok(());
        }
        self.quietly(|rt| {
            for at in queues {
                if Some(at) != but {
                    rt.flush_if_room(at)?;
                }
                // While a script holds the operands, results that wait take less memory than stored ones.
                if rt.gathers_hold_last(at) {
                    rt.release_gathers(at)?;
                }
                if Some(at) == but {
                    continue;
                }
                rt.release_deferred(at)?;
                if !rt.queues[at].rows().is_empty() {
                    // Flush group by group, not as one launch.
                    rt.flush_work(at)?;
                }
            }
            Ok(())
        })
    }

    /// Binds memory to a storage.
    #[inline]
    pub(super) fn bind(
        &mut self,
        storage: &Storage,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        span: Span,
    ) -> Result<()> {
        match storage.memory() {
            Some(_) => Ok(()),
            None => {
                let block = self.block(device, storage.bytes(), stream, span)?;
                storage.bind(Memory::Block(block));
                Ok(())
            }
        }
    }

    /// Allocates memory of a device for work on a stream.
    #[inline]
    pub(super) fn block(
        &mut self,
        device: &Arc<Device>,
        bytes: u64,
        stream: &Arc<Stream>,
        span: Span,
    ) -> Result<Block> {
        if device.is_nearly_full(self.requests.unbound) {
            self.flush_for_request(device, bytes, None)?;
        }
        self.block_alone(device, bytes, stream, span)
    }

    /// [`Runtime::block`] for a result that is no longer in its queue: other work that a flush launches could not find it.
    /// So only a request that fails flushes.
    pub(super) fn block_alone(
        &mut self,
        device: &Arc<Device>,
        bytes: u64,
        stream: &Arc<Stream>,
        span: Span,
    ) -> Result<Block> {
        let block = self.request(|effort| device.alloc_with(bytes, stream, span, effort));
        block.map_err(|e| device.blame_records(device.blame_if_sticky(e)).locate(&Site::of(span)))
    }

    /// Allocates page-locked host memory.
    pub(super) fn pinned_block(&mut self, bytes: u64, near: DeviceId) -> Result<PinnedBlock> {
        let machine = self.machine().clone();
        self.request(|effort| machine.pinned_with(bytes, near, effort))
    }

    /// Steps 1 and 2. Fails when flushed work fails, unless it only lacks memory: then it stays queued.
    pub(super) fn release_memory(&mut self) -> Result<()> {
        self.quietly(|rt| {
            rt.launch_product()?;
            rt.release_sorted();
            rt.flush_last_readers()?;
            let collected = reclaim::before_failure();
            if rt.release_records() || collected { rt.flush_last_readers() } else { Ok(()) }
        })
    }

    /// Releases storages that only the records of their own writes refer to; returns whether there were any.
    pub fn release_records(&mut self) -> bool {
        let mut found = false;
        loop {
            let mut unreachable = Vec::new();
            self.recording.written.retain(|storage| {
                match storage.upgrade().map(|s| s.unreachable_records()) {
                    None => false,
                    Some(None) => true,
                    Some(Some(records)) => {
                        unreachable.push(records);
                        false
                    }
                }
            });
            self.recording.search_at = 64.max(2 * self.recording.written.len());
            // Dropping one may release others.
            if unreachable.is_empty() {
                return found;
            }
            found = true;
        }
    }

    /// Runs `code`; failing requests in it do not flush work and are not counted.
    fn quietly<T>(&mut self, code: impl FnOnce(&mut Runtime) -> T) -> T {
        let outer = std::mem::replace(&mut self.requests.is_short, true);
        let result = code(self);
        self.requests.is_short = outer;
        result
    }

    /// Step 1.
    fn flush_last_readers(&mut self) -> Result<()> {
        for queue in &mut self.queues {
            let mut groups: SmallVec<[&mut FusedGroup; 4]> = queue.chain.iter_mut().collect();
            groups.extend(queue.group.as_deref_mut());
            prune(&mut groups);
        }
        for at in 0..self.queues.len() {
            if self.holds_last(at) {
                self.flush_if_room(at)?;
                self.release_gathers(at)?;
                self.release_deferred(at)?;
            }
        }
        Ok(())
    }

    /// True when only this handle and queued work refer to a tensor's memory, and the tensor covers all of it.
    pub fn is_sole_holder(&self, tensor: &Tensor) -> bool {
        let storage = tensor.storage();
        let layout = tensor.layout();
        if !layout.is_contiguous() || layout.bytes(tensor.dtype()) != storage.bytes() {
            return false;
        }
        let queued = self.queues.iter().flat_map(|queue| queue.groups()).flat_map(FusedGroup::storages);
        let gathered = self.queues.iter().flat_map(|queue| &queue.gathers).flat_map(|one| one.storages());
        let deferred = self.queues.iter().flat_map(|queue| &queue.deferred).flat_map(|one| one.storages());
        let queued = queued.chain(gathered).chain(deferred).filter(|held| held.is(storage)).count();
        let handles = if tensor.is_first() { 1 } else { tensor.handles() };
        handles == 1 && tensor.storage_holders() == queued + 1
    }

    /// For each storage that queues refer to, by address, the number of their references.
    fn queued_references(&self) -> HashMap<usize, usize> {
        let mut held: HashMap<usize, usize> = HashMap::default();
        for queue in &self.queues {
            let queued = queue.groups().flat_map(FusedGroup::storages);
            let gathered = queue.gathers.iter().flat_map(|gathered| gathered.storages());
            let deferred = queue.deferred.iter().flat_map(|value| value.storages());
            for storage in queued.chain(gathered).chain(deferred) {
                *held.entry(address_of(storage)).or_default() += 1;
            }
        }
        held
    }

    /// True when work of a queue, or a result that waits in it, reads memory that only queues refer to.
    fn holds_last(&self, at: usize) -> bool {
        let (queue, held) = (&self.queues[at], self.queued_references());
        let mut read = queue.groups().flat_map(|group| &group.loads).map(|load| &load.storage);
        let mut deferred = queue.deferred.iter().flat_map(|value| value.sources());
        let is_last = |storage: &StorageRef| held.get(&address_of(storage)) == Some(&storage.holders());
        read.any(is_last) || deferred.any(is_last) || self.gathers_hold_last(at)
    }

    /// [`Runtime::holds_last`] of the results that wait to be gathered or computed.
    fn gathers_hold_last(&self, at: usize) -> bool {
        let mut waiting = self.queues[at].gathers.iter().filter(|gathered| gathered.waits()).peekable();
        if waiting.peek().is_none() {
            return false;
        }
        let held = self.queued_references();
        let is_last = |storage: &StorageRef| held.get(&address_of(storage)) == Some(&storage.holders());
        waiting.flat_map(|gathered| gathered.operands()).any(is_last)
    }

    /// Flushes the work of a queue as far as there is memory for its results.
    fn flush_if_room(&mut self, at: usize) -> Result<()> {
        self.begin_gathers(at, false)?;
        let Some(id) = self.queues[at].groups().next().map(|group| group.device) else { return Ok(()) };
        let (device, stream) = (self.device(id)?, self.queues[at].stream.clone());
        let unbound = |storage: &&StorageRef| storage.memory().is_none();
        let wanted: Vec<StorageRef> =
            self.queues[at].groups().flat_map(FusedGroup::results).filter(unbound).cloned().collect();
        let storages = wanted.iter().map(|storage| (&**storage, self.span));
        let bound = bind_all(storages, &device, &stream, Effort::Thorough);
        drop(wanted);
        match bound {
            Ok(()) => self.flush_work(at),
            Err(e) if !is_shortage(&e) => Err(e),
            Err(_) => {
                self.flush_batch_if_room(at, &device, &stream)?;
                let queue = &mut self.queues[at];
                if !queue.chain.is_empty() {
                    return Ok(());
                }
                let Some(mut group) = queue.group.take() else { return Ok(()) };
                let done = self.run_parts(&mut group, &device, &stream);
                // Work that did not fit stays queued.
                self.queues[at].group = Some(group);
                done.or_else(|e| if is_shortage(&e) { Ok(()) } else { Err(e) })
            }
        }
    }

    /// Launches the groups of a batch one by one, as far as there is memory for their results.
    fn flush_batch_if_room(&mut self, at: usize, device: &Arc<Device>, stream: &Arc<Stream>) -> Result<()> {
        while self.queues[at].is_batch() {
            let mut group = self.queues[at].chain.remove(0);
            self.queues[at].waiting.forget_kinds();
            if let Err(e) = self.bind_results(&group, device, stream) {
                let done = if is_shortage(&e) { self.run_parts(&mut group, device, stream) } else { Err(e) };
                // Work that did not fit stays queued.
                self.queues[at].chain.insert(0, group);
                return done.or_else(|e| if is_shortage(&e) { Ok(()) } else { Err(e) });
            }
            group.release();
            self.queues[at].renumber(at);
            self.run_group(&mut group, device, stream)?;
        }
        Ok(())
    }

    /// Launches a group that lacks memory for some of its results.
    #[cold]
    pub(super) fn run_short(
        &mut self,
        group: &mut FusedGroup,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        prune(&mut [group]);
        let given = if self.requests.is_short { Ok(()) } else { self.release_memory() };
        let done = self.quietly(|rt| match rt.bind_results(group, device, stream) {
            Err(e) if is_shortage(&e) => rt.run_parts(group, device, stream),
            done => done,
        });
        match done {
            Err(e) if !is_shortage(&e) => {
                group.unbound().iter().for_each(|(storage, _)| storage.lose());
                given.and(Err(e))
            }
            // Results still without memory are lost, with the statistics in the error; the rest is computed.
            _ => {
                let effort = if self.requests.is_short { Effort::Thorough } else { Effort::Last };
                given.and(self.run_group_with(group, device, stream, effort))
            }
        }
    }

    /// Binds memory to all results of a group, or to none.
    fn bind_results(&mut self, group: &FusedGroup, device: &Arc<Device>, stream: &Arc<Stream>) -> Result<()> {
        let unbound = group.unbound();
        let storages = unbound.iter().map(|(storage, span)| (&**storage, *span));
        bind_all(storages, device, stream, Effort::Thorough)
    }

    /// Launches the operations of a group one by one, as far as there is memory. Each input and intermediate
    /// value lives until its last use. A reduction, and writes to what the group reads, remain in the group;
    /// they have memory when this succeeds.
    fn run_parts(
        &mut self,
        group: &mut FusedGroup,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        // The launch of the whole group reports lost values.
        if !group.spoiled().is_empty() {
            return Ok(());
        }
        let apart = |group: &FusedGroup, node: &Node| {
            let storage = node.storage.as_ref()?;
            (!group.loads.iter().any(|load| load.storage.is(storage))).then(|| storage.clone())
        };
        for at in 0..group.nodes.len() {
            let reg = group.nodes[at].reg;
            let Some(storage) = apart(group, &group.nodes[at]) else {
                // Without memory of its own it stays a register for its readers.
                if group.nodes[at].storage.is_none() && group.needs(&group.roots(), reg) {
                    match self.make_value(group, at, device, stream) {
                        Err(e) if !is_shortage(&e) => return Err(e),
                        _ => {}
                    }
                }
                continue;
            };
            if let Err(e) = self.bind(&storage, device, stream, group.nodes[at].span()) {
                if !is_shortage(&e) {
                    return Err(e);
                }
                self.make_below(group, Some(reg), device, stream)?;
                self.bind(&storage, device, stream, group.nodes[at].span())?;
            }
            self.make(group, at, storage, device, stream)?;
        }
        match self.bind_results(group, device, stream) {
            Err(e) if is_shortage(&e) => {
                self.make_below(group, None, device, stream)?;
                self.bind_results(group, device, stream)
            }
            done => done,
        }
    }

    /// Computes the intermediate values below a register, or all of them, in their own memory, so that their
    /// inputs can be freed.
    fn make_below(
        &mut self,
        group: &mut FusedGroup,
        above: Option<u16>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        for at in 0..group.nodes.len() {
            let reg = group.nodes[at].reg;
            let is_below = match above {
                Some(above) => reg != above && group.needs(&[above], reg),
                None => group.needs(&group.roots(), reg),
            };
            if reg < RAW_INSTR || !is_below {
                continue;
            }
            self.make_value(group, at, device, stream)?;
        }
        Ok(())
    }

    /// Computes an intermediate value in its own memory.
    fn make_value(
        &mut self,
        group: &mut FusedGroup,
        at: usize,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        if group.nodes[at].reg < RAW_INSTR {
            return Ok(());
        }
        let dtype = group.nodes[at].dtype;
        let layout = Layout::contiguous(&group.shape);
        let bytes = layout.bytes(dtype);
        let tensor = Tensor::new(Storage::unbound(device.clone(), bytes), layout, dtype);
        let storage = tensor.storage_ref();
        drop(tensor);
        self.bind(&storage, device, stream, group.nodes[at].span())?;
        self.make(group, at, storage, device, stream)
    }

    /// Computes a node into a bound storage with a separate launch; the rest of the group reads it from
    /// there.
    fn make(
        &mut self,
        group: &mut FusedGroup,
        at: usize,
        storage: StorageRef,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let own = group.nodes[at].storage.as_ref().is_some_and(|own| own.is(&storage));
        let mut part = group.part(at, storage.clone(), own);
        prune(&mut [&mut part]);
        storage.set_pending(None);
        self.run_group(&mut part, device, stream)?;
        group.read_from_memory(at, storage, own);
        prune(&mut [group]);
        Ok(())
    }
}

impl FusedGroup {
    /// Every storage that the group refers to.
    pub(super) fn storages(&self) -> impl Iterator<Item = &StorageRef> {
        self.loads.iter().map(|load| &load.storage).chain(self.results())
    }

    /// The storages that the group writes.
    pub(super) fn results(&self) -> impl Iterator<Item = &StorageRef> {
        let reduced = self.reduce.iter().flat_map(|reduce| reduce.out.iter().chain(&reduce.out_index));
        self.nodes.iter().filter_map(|node| node.storage.as_ref()).chain(reduced)
    }

    /// The unbound results, each with its source.
    fn unbound(&self) -> SmallVec<[(StorageRef, Span); 4]> {
        let nodes = self.nodes.iter().filter_map(|node| Some((node.storage.as_ref()?, node.span())));
        let reduced = self.reduce.iter().flat_map(|reduce| {
            reduce.out.iter().chain(&reduce.out_index).map(|storage| (storage, reduce.span))
        });
        let all = nodes.chain(reduced).filter(|(storage, _)| storage.memory().is_none());
        all.map(|(storage, span)| (storage.clone(), span)).collect()
    }

    /// The registers that the group must compute.
    pub(super) fn roots(&self) -> SmallVec<[u16; 8]> {
        let nodes = self.nodes.iter().filter(|node| node.storage.is_some()).map(|node| node.reg);
        nodes.chain(self.reduce.as_ref().map(|reduce| reduce.reg)).collect()
    }

    /// The sources and instructions that these registers need, sources first.
    pub(super) fn needed(&self, roots: &[u16]) -> Vec<bool> {
        let sources = self.map.sources.len();
        let index = |reg: u16| match reg.checked_sub(RAW_INSTR) {
            Some(instr) => sources + usize::from(instr),
            None => usize::from(reg),
        };
        let mut needed = vec![false; sources + self.map.instrs.len()];
        roots.iter().for_each(|&reg| needed[index(reg)] = true);
        for (i, instr) in self.map.instrs.iter().enumerate().rev() {
            if needed[sources + i] {
                instr.args.iter().for_each(|&arg| needed[index(arg)] = true);
            }
        }
        // A condition needs the load of its view.
        for (i, source) in self.map.sources.iter().enumerate() {
            if let (Source::Inside { view }, true) = (source, needed[i]) {
                needed[usize::from(self.loads[usize::from(*view)].reg)] = true;
            }
        }
        needed
    }

    fn needs(&self, roots: &[u16], reg: u16) -> bool {
        let needed = self.needed(roots);
        match reg.checked_sub(RAW_INSTR) {
            Some(instr) => needed[self.map.sources.len() + usize::from(instr)],
            None => needed[usize::from(reg)],
        }
    }

    /// Drops unused loads. Registers keep their numbers.
    fn drop_loads(&mut self) {
        let needed = self.needed(&self.roots());
        let mut view_of: SmallVec<[Option<u16>; 16]> = SmallVec::from_elem(None, self.loads.len());
        let mut count = 0;
        for (source, needed) in self.map.sources.iter().zip(&needed) {
            if let Source::Load { view, .. } = source
                && *needed
            {
                view_of[usize::from(*view)] = Some(count);
                count += 1;
            }
        }
        if usize::from(count) == self.loads.len() {
            return;
        }
        let slot = self.numbers.len() as u16;
        self.numbers.push(0);
        for source in &mut self.map.sources {
            *source = match *source {
                Source::Load { view, dtype } => match view_of[usize::from(view)] {
                    Some(view) => Source::Load { view, dtype },
                    None => Source::Number { slot, dtype },
                },
                Source::Inside { view } => match view_of[usize::from(view)] {
                    Some(view) => Source::Inside { view },
                    None => Source::Number { slot, dtype: Dtype::Bool },
                },
                other => other,
            };
        }
        let mut at = 0;
        self.loads.retain(|_| {
            at += 1;
            view_of[at - 1].is_some()
        });
    }

    /// A group that computes a single node into a storage.
    pub(super) fn part(&self, at: usize, storage: StorageRef, own: bool) -> FusedGroup {
        let mut part = FusedGroup::new(self.device, self.shape.clone());
        part.map = self.map.clone();
        part.loads = self.loads.clone();
        part.numbers = self.numbers.clone();
        part.nodes.push(self.nodes[at].moved(storage, own));
        part
    }

    /// Replaces a node's register by a load from its storage.
    fn read_from_memory(&mut self, at: usize, storage: StorageRef, own: bool) {
        let (old, dtype) = (self.nodes[at].reg, self.nodes[at].dtype);
        let layout = match own {
            true => self.nodes[at].layout(&storage).clone(),
            false => storage.first_layout().clone(),
        };
        let reg = self.map.sources.len() as u16;
        self.map.sources.push(Source::Load { view: self.loads.len() as u16, dtype });
        self.loads.push(Load {
            storage,
            strides: layout.strides.clone(),
            layout,
            bend: None,
            gathered: None,
            dtype,
            reg,
        });
        if own {
            self.nodes[at].storage = None;
        }
        let args = self.map.instrs.iter_mut().flat_map(|instr| instr.args.iter_mut());
        let nodes = self.nodes.iter_mut().map(|node| &mut node.reg);
        for used in args.chain(nodes).chain(self.reduce.as_mut().map(|reduce| &mut reduce.reg)) {
            if *used == old {
                *used = reg;
            }
        }
    }
}

/// Drops unneeded reads and results from the groups of one queue, in order.
pub(super) fn prune(groups: &mut [&mut FusedGroup]) {
    for part in (0..groups.len()).rev() {
        let is_dead = |groups: &[&mut FusedGroup], storage: &StorageRef| {
            let reads = |group: &&mut FusedGroup| group.loads.iter().any(|load| load.storage.is(storage));
            !is_wanted(groups.iter().map(|group| &**group), storage) && !groups[part + 1..].iter().any(reads)
        };
        for at in 0..groups[part].nodes.len() {
            if groups[part].nodes[at].storage.as_ref().is_some_and(|storage| is_dead(groups, storage)) {
                groups[part].nodes[at].storage = None;
            }
        }
        let reduce = groups[part].reduce.as_ref();
        let mut results = reduce.into_iter().flat_map(|reduce| reduce.out.iter().chain(&reduce.out_index));
        if groups[part].reduce.is_some() && results.all(|storage| is_dead(groups, storage)) {
            groups[part].reduce = None;
        }
        groups[part].drop_loads();
    }
}

fn address_of(storage: &StorageRef) -> usize {
    std::ptr::from_ref::<Storage>(storage).addr()
}
