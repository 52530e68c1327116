//! Values at indices that later work reads without a copy: `x[index]`, `gather`, `embedding`.
//!
//! Note [Gathered values]. The result of [`Runtime::gather_at`] waits in its queue. A group that reads it loads the index
//! and then the element of the source (Note [Gathered loads] in `kernel/kinds/map/gathered.rs`), and the result is never
//! stored. It is stored, by a launch of its own, when something else reads or writes it, before its source or index is
//! written, when a group reads it twice, and when the kernel of its reader is not compiled yet. In the queue, a group loads
//! it like any other value; whether that is a gathered load is decided when the group is launched.
//!
//! A result that something else still refers to, such as a recorded gradient, stays until the stream's work must be
//! complete, if rows of the source are long and the source takes less memory than the result: gathering it again for
//! another reader moves fewer bytes than storing it. A result without readers is not stored, but its indices are read,
//! each once, because one may be out of range.

use super::deferred::DEFERRED;
use super::flush::address_to_read;
use super::kept::Kept;
use super::place::Place;
use super::positions::{Operand, Positions};
use super::queue::{FusedGroup, Load, Queue};
use super::{Runtime, Submission, SubmittedView};
use crate::array::{Dtype, Layout, Strides, copied};
use crate::base::{Result, Span};
use crate::device::Device;
use crate::driver::error::is_shortage;
use crate::kernel::{self, Indexed, Launch, Ptr, View};
use crate::stream::races::Access;
use crate::stream::{Indices, Meaning, Stream, Suspect};
use crate::tensor::{Memory, Pending, Storage, StorageRef, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[path = "gather_launch.rs"]
mod launch;

/// [`Pending::node`] of a result that no group computes.
pub(super) const GATHERED: u16 = u16::MAX;

/// The largest number of gathered loads of a group.
pub(super) const MOST_OF_GROUP: usize = 8;

/// The largest number of instructions that compute the indices of a group.
const MOST_INSTRS: usize = 128;

/// The largest number of waiting results.
const MOST_WAITING: usize = 32;

/// The bytes of a row that make a second read of the source as fast as one of a copy.
const LEAST_ROW: usize = 64;

/// The bytes that take as long to store and load as a launch.
const LAUNCH: u64 = 4 << 20;

/// A result is stored before more groups than this read it.
const MOST_READERS: u32 = 2;

/// `source[.., index[i], ..]` over the shape of the index.
pub struct Gathering<'a> {
    /// The operation, for errors.
    pub name: &'static str,
    /// The source.
    pub source: &'a Tensor,
    /// Its strides over the shape of the index.
    pub strides: Strides,
    /// The dimension along which the index selects.
    pub axis: usize,
    /// The extent that indices must stay below.
    pub limit: usize,
    /// The positions (`i64`).
    pub index: &'a Tensor,
    /// The meaning of an index out of range.
    pub meaning: Meaning,
}

/// How a result that waits is computed.
enum Origin {
    /// By gathering elements.
    Elements(Box<Elements>),
    /// By a program over operands in memory.
    Program(Kept),
}

/// `source[.., index[i], ..]`
pub(super) struct Elements {
    /// Its stride along the axis is 0.
    source: Operand,
    pub(super) index: Positions,
    axis: usize,
    step: isize,
    limit: usize,
    meaning: Meaning,
}

/// A result that waits.
pub(super) struct Gathered {
    pub(super) at: usize,
    /// Its place among the results of the queue.
    number: u64,
    pub(super) out: StorageRef,
    origin: Origin,
    name: &'static str,
    pub(super) span: Span,
    /// Where a fault is reported.
    script_span: Span,
    /// A launch has read all indices.
    is_checked: AtomicBool,
    /// Its source or index is about to be written.
    is_last: AtomicBool,
    /// There was no memory for it; see Note [Held results].
    is_held: AtomicBool,
    /// The number of launches that have read it.
    readers: AtomicU32,
}

/// A result whose elements a load gathers.
#[derive(Clone, Copy)]
pub(super) struct GatheredLoad<'l> {
    result: &'l Gathered,
    pub(super) of: &'l Elements,
}

impl Elements {
    /// The place of a load of the result over this shape, if the index and the source have strides over it.
    fn place(&self, shape: &[usize], (strides, offset): (&[isize], usize), whole: &Layout) -> Option<Place> {
        let place = Place::of(shape, strides, offset, whole)?;
        let fits = |operand: &Operand| place.of_operand(&operand.layout).is_some();
        (self.index.operands().iter().all(fits)
            && place.of_operand(self.index.layout()).is_some()
            && fits(&self.source))
        .then_some(place)
    }
}

/// True for the storage of a result that waits.
#[inline]
pub(super) fn is_gathered(storage: &Storage) -> bool {
    storage.pending().is_some_and(|pending| pending.node == GATHERED)
}

/// True if the kernel of a launch that gathers is compiled.
pub(super) fn is_prepared(device: &Device, launch: &Launch) -> bool {
    #[cfg(test)]
    if tests::IS_LATE.get() {
        return false;
    }
    device.driver().prepared(launch)
}

impl Gathered {
    /// True when more than its entry in the queue refers to it.
    pub(super) fn is_wanted(&self) -> bool {
        self.out.holders() > 1
    }

    /// True if there was no memory for it.
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Notes that there is no memory for it.
    pub(super) fn hold(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// True if a launch has read all indices.
    pub(super) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }

    /// True if a flush must store it: something depends on that.
    fn is_needed(&self, is_read: bool) -> bool {
        is_read || self.is_last.load(Ordering::Relaxed)
    }

    /// False once it is stored or lost.
    pub(super) fn waits(&self) -> bool {
        self.out.memory().is_none() && !self.out.is_lost()
    }

    /// A result that is computed by a program; see `kept`.
    pub(super) fn by_program(
        at: usize,
        out: StorageRef,
        program: Kept,
        name: &'static str,
        span: Span,
    ) -> Gathered {
        let origin = Origin::Program(program);
        let (is_checked, readers) = (AtomicBool::new(true), AtomicU32::new(0));
        let [is_last, is_held] = [AtomicBool::new(false), AtomicBool::new(false)];
        let script_span = span;
        Gathered {
            at,
            number: 0,
            out,
            origin,
            name,
            span,
            script_span,
            is_checked,
            is_last,
            is_held,
            readers,
        }
    }

    /// True when it reads a storage.
    pub(super) fn reads(&self, storage: &Storage) -> bool {
        self.operands().any(|operand| operand.is(storage))
    }

    /// The storages that it reads.
    pub(super) fn operands(&self) -> impl Iterator<Item = &StorageRef> {
        let (elements, program) = match &self.origin {
            Origin::Elements(of) => (Some(std::iter::once(&of.source).chain(of.index.operands())), None),
            Origin::Program(program) => (None, Some(program.operands())),
        };
        let elements = elements.into_iter().flatten().map(|operand| &operand.storage);
        elements.chain(program.into_iter().flatten())
    }

    /// The storages that it refers to.
    pub(super) fn storages(&self) -> impl Iterator<Item = &StorageRef> {
        std::iter::once(&self.out).chain(self.operands())
    }

    fn elements(&self) -> Option<&Elements> {
        match &self.origin {
            Origin::Elements(elements) if !self.is_held() => Some(elements),
            _ => None,
        }
    }

    /// The program that computes it in a group that reads it, if it is not gathered.
    pub(super) fn program(&self) -> Option<&Kept> {
        match &self.origin {
            Origin::Program(program) if !self.is_held() => Some(program),
            _ => None,
        }
    }

    /// A group will compute it again.
    pub(super) fn note_reader(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// True if it may wait although something refers to it. `reads` are the loads of queued groups.
    fn may_stay(&self, reads: usize) -> bool {
        let readers = self.readers.load(Ordering::Relaxed);
        let of = match &self.origin {
            _ if self.is_last.load(Ordering::Relaxed) => return false,
            Origin::Program(program) => return !program.reads_much || readers < MOST_READERS,
            Origin::Elements(of) => of,
        };
        if readers >= MOST_READERS {
            return false;
        }
        if readers == 0 && reads == 0 {
            // The operation that will read it may have caused the flush.
            return true;
        }
        let held = of.source.storage.bytes().saturating_add(of.index.bytes());
        let (mut row, layout) = (1, of.index.layout());
        for (d, &extent) in layout.shape.iter().enumerate().rev().filter(|(_, n)| **n != 1) {
            if layout.strides[d] != 0 || of.source.layout.strides[d] != row as isize {
                break;
            }
            row *= extent;
        }
        held <= self.out.bytes() && row * of.source.dtype.size() >= LEAST_ROW
    }

    fn is_lost(&self) -> bool {
        self.operands().any(|operand| operand.is_lost() || operand.memory().is_none())
    }

    fn suspect(&self, of: &Elements, indices: Indices) -> Suspect {
        let Gathered { name, script_span: span, .. } = *self;
        Suspect { name, span, extent: of.limit, indices, meaning: of.meaning.clone() }
    }
}

impl GatheredLoad<'_> {
    /// True if it reads the memory of a storage.
    pub(super) fn reads(self, storage: &Storage) -> bool {
        self.result.reads(storage)
    }
}

impl Load {
    /// True if a load over this shape, when it gathers, reads all indices.
    pub(super) fn checks_all(&self, shape: &[usize]) -> bool {
        self.gathered().is_none_or(|gathered| self.checks(gathered.result, shape))
    }

    /// The result that the load gathers, unless it has been stored.
    #[inline]
    pub(super) fn gathered(&self) -> Option<GatheredLoad<'_>> {
        let result = self.gathered.as_deref().filter(|gathered| gathered.waits())?;
        Some(GatheredLoad { result, of: result.elements()? })
    }

    /// True if it reads a value that was lost.
    pub(super) fn is_lost(&self) -> bool {
        match self.gathered() {
            Some(gathered) => gathered.result.is_lost(),
            None => self.storage.is_lost() || self.storage.memory().is_none(),
        }
    }

    /// The storages of a gathered load with their addresses: of its index (if that is computed, of an operand instead), of
    /// the operands of the index, and of the source.
    pub(super) fn operands<'l>(
        &self,
        gathered: GatheredLoad<'l>,
        stream: &Arc<Stream>,
    ) -> Result<SmallVec<[(&'l StorageRef, Ptr); 4]>> {
        let Elements { index, source, .. } = gathered.of;
        let of_index = index.operands().first();
        let computed = index.computed().map_or(&[][..], |computed| &computed.operands);
        let all = of_index.into_iter().chain(computed).chain([source]);
        let start = Layout { offset: 0, ..Layout::contiguous(&[]) };
        let place = |of: &'l Operand| {
            Ok((&of.storage, address_to_read(&of.storage, &start, of.dtype.size(), stream)?))
        };
        all.map(place).collect()
    }

    /// The views of a gathered load over the shape of its group, in the order of [`Load::operands`], whose addresses are
    /// `places`. A launch does not read the view of an index that it computes.
    pub(super) fn views(
        &self,
        gathered: GatheredLoad<'_>,
        shape: &[usize],
        places: &[Ptr],
    ) -> SmallVec<[View; 4]> {
        let of = gathered.of;
        // `settle_gathered` has checked it.
        let place = self.place(shape);
        let view = |layout: &Layout, dtype: Dtype, ptr: Ptr| {
            let own = place.as_ref().and_then(|place| place.of_operand(layout));
            let (strides, offset) =
                own.unwrap_or_else(|| (SmallVec::from_elem(0, shape.len()), layout.offset));
            View::new(ptr + (offset * dtype.size()) as u64, dtype, strides)
        };
        let indexed = Indexed { step: of.step, limit: of.limit, tag: 0 };
        let computed = of.index.computed().map_or(&[][..], |computed| &computed.operands);
        let operands = computed.iter().chain([&of.source]).map(|operand| (&operand.layout, operand.dtype));
        let all = std::iter::once((of.index.layout(), Dtype::I64)).chain(operands);
        let mut views: SmallVec<[View; 4]> =
            all.zip(places).map(|((layout, dtype), &ptr)| view(layout, dtype, ptr)).collect();
        if let (Some(_), [index, ..]) = (of.index.computed(), &mut views[..]) {
            index.ptr = places[0];
        }
        if let Some(source) = views.last_mut() {
            source.indexed = Some(Box::new(indexed));
        }
        views
    }

    /// Where a gathered load over a shape reads the operands of the result.
    pub(super) fn place(&self, shape: &[usize]) -> Option<Place> {
        self.gathered()?.of.place(shape, (&self.strides, self.layout.offset), self.storage.first_layout())
    }

    /// The source position of the operation that it gathers for.
    pub(super) fn gathered_at(&self) -> Option<Span> {
        self.gathered().map(|gathered| gathered.result.span)
    }

    /// True if a load over this shape reads all indices of a result.
    fn checks(&self, gathered: &Gathered, shape: &[usize]) -> bool {
        let Some(of) = gathered.elements() else { return true };
        let whole = self.storage.first_layout();
        let place = of.place(shape, (&self.strides, self.layout.offset), whole);
        let Some(place) = place else { return false };
        let differs = |d: usize| of.index.layout().strides[d] != 0;
        // Merged dimensions of the index differ or do not differ together.
        let read = shape.iter().zip(&place.dims).filter(|(_, dims)| dims.is_some_and(|(_, d, _)| differs(d)));
        let read: usize = read.map(|(&extent, _)| extent).product();
        let all: usize = (0..whole.rank()).filter(|&d| differs(d)).map(|d| whole.shape[d]).product();
        !shape.contains(&0) && read == all
    }
}

impl FusedGroup {
    /// True when the group reads a result that waits, as far as it is known.
    pub(super) fn gathers(&self) -> bool {
        self.loads.iter().any(|load| is_gathered(&load.storage))
    }

    /// True when the group can load this view of a result that waits. `waiting` are those of the queue.
    fn can_gather(&self, tensor: &Tensor, waiting: &[Arc<Gathered>]) -> bool {
        let own =
            |gathered: &&Arc<Gathered>| gathered.out.is(&tensor.storage_ref()) || self.count_of(gathered) > 0;
        let instrs = |gathered: &Arc<Gathered>| {
            let computed = gathered.elements().and_then(|of| of.index.computed());
            computed.map_or(0, |computed| computed.map.instrs.len())
        };
        !self.is_bent()
            && (self.loads.iter().any(|load| load.storage.is(tensor.storage()))
                || self.loads.iter().filter(|load| is_gathered(&load.storage)).count() < MOST_OF_GROUP
                    && waiting.iter().filter(own).map(instrs).sum::<usize>() <= MOST_INSTRS)
    }

    /// The number of loads of a result.
    fn count_of(&self, gathered: &Gathered) -> usize {
        self.loads.iter().filter(|load| load.storage.is(&gathered.out)).count()
    }
}

impl Queue {
    /// Lets a group know which of its loads are results that wait.
    pub(super) fn name_gathers(&self, group: &mut FusedGroup) {
        for load in group.loads.iter_mut().filter(|load| is_gathered(&load.storage)) {
            load.gathered = self.gathers.iter().find(|gathered| gathered.out.is(&load.storage)).cloned();
        }
    }

    /// True when all indices of a result have been checked, or a group of the queue reads them all.
    fn checks(&self, gathered: &Gathered) -> bool {
        let reads = |group: &FusedGroup| {
            let mut loads = group.loads.iter().filter(|load| load.storage.is(&gathered.out));
            loads.any(|load| load.checks(gathered, &group.shape))
        };
        gathered.is_checked.load(Ordering::Relaxed) || self.groups().any(reads)
    }
}

/// True if a chain of rows that can be one launch should be, after its results at indices have been stored: it reads rows
/// again that it has computed, or it saves launches over little memory.
fn pays_as_rows(groups: &[FusedGroup]) -> bool {
    let results = || {
        let reduced = groups.iter().flat_map(|group| &group.reduce).flat_map(|reduce| &reduce.out);
        let written = groups.iter().flat_map(|group| &group.nodes).filter_map(|node| node.storage.as_ref());
        reduced.chain(written)
    };
    let reads_again = groups.iter().skip(1).any(|group| {
        let is_result = |load: &Load| results().any(|result| result.is(&load.storage));
        group.shape == groups[0].shape && group.loads.iter().any(is_result)
    });
    let gathered = || groups.iter().flat_map(|group| &group.loads).filter_map(Load::gathered);
    let saved = groups.len().saturating_sub(gathered().count() + 1) as u64;
    let bytes = gathered().fold(0u64, |sum, gathered| sum.saturating_add(gathered.result.out.bytes()));
    reads_again || bytes < saved.saturating_mul(LAUNCH)
}

impl Runtime {
    /// Submits a gather. Its result may wait; see Note [Gathered values].
    pub fn gather_at(&mut self, work: Gathering<'_>) -> Result<Tensor> {
        let Gathering { name, source, ref strides, axis, limit, index, .. } = work;
        let out = self.fresh(index.shape(), source.dtype(), index.device())?;
        let is_foreign = |x: &Tensor| matches!(x.storage().memory(), Some(Memory::Foreign(_)));
        let waits = self.settings.fuse && !self.settings.launch_blocking && limit > 0;
        if !waits || is_foreign(source) || is_foreign(index) {
            let views = smallvec![
                SubmittedView { tensor: source, strides: strides.clone(), write: false },
                SubmittedView::read(index),
                SubmittedView::write(&out),
            ];
            let kind = &kernel::Gather { dtype: source.dtype() };
            let shape = index.shape().clone();
            self.submit_meaning(Submission { name, kind, shape, views, axis, limit }, work.meaning)?;
            return Ok(out);
        }
        let at = self.place(index.device())?.queue;
        self.note(name, at, [(source, Access::Read), (index, Access::Read), (&out, Access::Write)])?;
        self.settle_value(source, at)?;
        let positions = self.positions_of(index, at)?;
        if self.queues[at].gathers.len() >= MOST_WAITING {
            self.flush_queue(at)?;
        }
        let mut own = strides.clone();
        let step = std::mem::take(&mut own[axis]);
        let layout = Layout { shape: copied(index.shape()), strides: own, offset: source.layout().offset };
        let source = Operand { storage: source.storage_ref(), layout, dtype: source.dtype() };
        self.queues[at].gathered += 1;
        let elements = Elements { source, index: positions, axis, step, limit, meaning: work.meaning };
        let gathered = Gathered {
            at,
            number: self.queues[at].gathered,
            out: out.storage_ref(),
            origin: Origin::Elements(Box::new(elements)),
            name,
            span: self.span,
            script_span: self.script_span(),
            is_checked: AtomicBool::new(false),
            is_last: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            readers: AtomicU32::new(0),
        };
        let queue = &mut self.queues[at];
        let generation = queue.generation;
        out.storage().set_pending(Some(Pending { queue: at as u16, generation, node: GATHERED }));
        queue.gathers.push(Arc::new(gathered));
        Ok(out)
    }

    /// Ensures that a tensor's value is in memory for work on queue `at`.
    pub(super) fn settle_value(&mut self, tensor: &Tensor, at: usize) -> Result<()> {
        self.settle_storage(tensor.storage(), at)
    }

    /// Ensures that a storage's value is in memory for work on queue `at`.
    pub(super) fn settle_storage(&mut self, storage: &Storage, at: usize) -> Result<()> {
        match storage.pending() {
            Some(pending) if pending.node == GATHERED => self.store_gathered(storage),
            Some(pending) if pending.node == DEFERRED => self.store_deferred(storage),
            Some(pending) if usize::from(pending.queue) == at => {
                self.flush_work(at)?;
                // It may wait now; see Note [Kept values].
                if is_gathered(storage) { self.store_gathered(storage) } else { Ok(()) }
            }
            Some(pending) => self.flush_queue(usize::from(pending.queue)),
            None => Ok(()),
        }
    }

    /// Stores a result or a deferred value that waits.
    pub(super) fn store_waiting(&mut self, storage: &Storage) -> Result<()> {
        match is_gathered(storage) {
            true => self.store_gathered(storage),
            false => self.store_deferred(storage),
        }
    }

    /// Stores a result that waits.
    pub(super) fn store_gathered(&mut self, storage: &Storage) -> Result<()> {
        let Some(pending) = storage.pending() else { return Ok(()) };
        let gathers = &mut self.queues[usize::from(pending.queue)].gathers;
        let Some(number) = gathers.iter().position(|gathered| gathered.out.is(storage)) else {
            return Ok(());
        };
        let gathered = gathers.remove(number);
        let done = self.run_gather(&gathered);
        if gathered.waits() {
            self.queues[gathered.at].gathers.push(gathered);
        }
        done
    }

    /// [`Runtime::settle_read`] for a result that waits in queue `at`.
    #[cold]
    pub(super) fn settle_gathered(&mut self, at: usize, tensor: &Tensor) -> Result<bool> {
        let layout = tensor.layout();
        let whole = tensor.storage_ref();
        let waiting = self.queues[at].gathers.iter().find(|one| one.out.is(&whole));
        if let Some(program) = waiting.and_then(|one| one.program()) {
            return match program.reads(tensor) {
                false => self.store_gathered(tensor.storage()).map(|()| false),
                true => Ok(self.queues[at].group.as_ref().is_some_and(|group| !group.has_room_for_kept())),
            };
        }
        let fits = waiting.and_then(|one| one.elements()).is_some_and(|of| {
            let place = || {
                let read = (&layout.strides[..], layout.offset);
                of.place(&layout.shape, read, whole.first_layout())
            };
            tensor.count() > 0 && of.source.dtype == tensor.dtype() && place().is_some()
        });
        match &self.queues[at].group {
            _ if !fits => self.store_gathered(tensor.storage()).map(|()| false),
            Some(group) => Ok(!group.can_gather(tensor, &self.queues[at].gathers)),
            None => Ok(false),
        }
    }

    /// Ensures that no result that waits depends on a tensor's old value, or is this tensor.
    pub(super) fn settle_gathers_of(&mut self, target: &Tensor) -> Result<()> {
        if self.queues.iter().all(|queue| queue.gathers.is_empty()) {
            return Ok(());
        }
        let storage = target.storage();
        if is_gathered(storage) {
            self.store_gathered(storage)?;
        }
        for at in 0..self.queues.len() {
            let Queue { chain, group, gathers, .. } = &mut self.queues[at];
            // A result that nothing will read is dropped.
            gathers.retain(|gathered| {
                let groups = chain.iter().chain(group.as_deref());
                let reads: usize = groups.map(|group| group.count_of(gathered)).sum();
                let is_checked = gathered.is_checked.load(Ordering::Relaxed);
                reads > 0 || !is_checked || gathered.out.holders() > 1
            });
            // Values that the first flush keeps may read the tensor, too.
            for _ in 0..2 {
                if self.mark_last(at, storage) {
                    self.flush_work(at)?;
                }
            }
        }
        Ok(())
    }

    /// Marks the results of a queue that read a storage, which is about to be written; false if there are none.
    fn mark_last(&self, at: usize, storage: &Storage) -> bool {
        let reading = self.queues[at].gathers.iter().filter(|gathered| gathered.reads(storage));
        reading.fold(false, |_, gathered| {
            gathered.is_last.store(true, Ordering::Relaxed);
            true
        })
    }

    /// Called before a queue is flushed, completely if `all` is set: lets its groups know what they gather, and stores
    /// what should not be gathered by them.
    pub(super) fn begin_gathers(&mut self, at: usize, all: bool) -> Result<()> {
        let queue = &mut self.queues[at];
        if queue.gathers.is_empty() {
            return Ok(());
        }
        let gathers = std::mem::take(&mut queue.gathers);
        for group in queue.chain.iter_mut().chain(queue.group.as_deref_mut()) {
            for load in group.loads.iter_mut().filter(|load| is_gathered(&load.storage)) {
                load.gathered = gathers.iter().find(|gathered| gathered.out.is(&load.storage)).cloned();
            }
        }
        let mut done = Ok(());
        // Each releases its operands once it is stored.
        for gathered in gathers {
            let reads: usize = self.queues[at].groups().map(|group| group.count_of(&gathered)).sum();
            let is_wanted = gathered.out.holders() > reads + 1;
            // Groups contain the instructions of a program, unless that was impossible. No launch has both gathered and
            // bent loads: an operation may read a padded tensor and this result.
            let is_bent = || {
                let mut reading = self.queues[at].groups().filter(|group| group.count_of(&gathered) > 0);
                reading.any(FusedGroup::is_bent)
            };
            let is_read = reads > 0 && (gathered.elements().is_none() || is_bent());
            let stores = is_read || reads > 1 || is_wanted && (all || !gathered.may_stay(reads));
            let stores = stores || reads > 0 && !self.queues[at].checks(&gathered);
            if gathered.waits() && stores && (all || is_read || !self.requests.is_short) {
                done = done.and(self.run_gather_if(&gathered, gathered.is_needed(is_read)));
            }
            if gathered.waits() {
                self.queues[at].gathers.push(gathered);
            }
        }
        done
    }

    /// Called after a queue was flushed, completely if `all` is set.
    pub(super) fn end_gathers(&mut self, at: usize, all: bool) -> Result<()> {
        let gathers = std::mem::take(&mut self.queues[at].gathers);
        let mut done = Ok(());
        for gathered in gathers {
            let reads: usize = self.queues[at].groups().map(|group| group.count_of(&gathered)).sum();
            let is_wanted = gathered.out.holders() > reads + 1;
            let is_needed = is_wanted || !gathered.is_checked.load(Ordering::Relaxed);
            if !gathered.waits() || reads == 0 && !is_needed {
                continue;
            }
            if reads > 0 || !all && (self.requests.is_short || is_wanted && gathered.may_stay(reads)) {
                self.queues[at].gathers.push(gathered);
                continue;
            }
            done = done.and(self.run_gather_if(&gathered, gathered.is_needed(false)));
            if gathered.waits() {
                self.queues[at].gathers.push(gathered);
            }
        }
        done
    }

    /// The bytes of the results that wait in a queue.
    pub(super) fn waiting_gathers(&self, at: usize) -> u64 {
        let waiting = self.queues[at].gathers.iter().filter(|one| one.waits() && one.is_wanted());
        waiting.fold(0, |sum, one| sum.saturating_add(one.out.bytes()))
    }

    /// Stores the results of a queue that no group reads, as far as there is memory, so that their operands can be freed.
    pub(super) fn release_gathers(&mut self, at: usize) -> Result<()> {
        let mut done = Ok(());
        for gathered in std::mem::take(&mut self.queues[at].gathers) {
            let reads: usize = self.queues[at].groups().map(|group| group.count_of(&gathered)).sum();
            let is_needed =
                gathered.out.holders() > reads + 1 || !gathered.is_checked.load(Ordering::Relaxed);
            if !gathered.waits() || reads == 0 && !is_needed {
                continue;
            }
            let bound = match reads {
                0 => self.bind_waiting(at, &gathered),
                _ => Ok(false),
            };
            match bound {
                Ok(true) => done = done.and(self.run_gather(&gathered)),
                Ok(false) => self.queues[at].gathers.push(gathered),
                Err(e) => {
                    self.queues[at].gathers.push(gathered);
                    done = done.and(Err(e));
                }
            }
        }
        done
    }

    /// Takes memory for a result that waits, if something refers to it; false if there is not enough.
    fn bind_waiting(&mut self, at: usize, gathered: &Gathered) -> Result<bool> {
        if !gathered.is_wanted() {
            return Ok(true);
        }
        let (device, stream) = (self.device(gathered.out.device())?, self.queues[at].stream.clone());
        match self.bind(&gathered.out, &device, &stream, gathered.span) {
            Ok(()) => Ok(true),
            Err(e) if is_shortage(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Stores the results that a chain of rows would gather, if it is then better one launch; returns whether no group
    /// gathers any more.
    pub(super) fn store_for_rows(&mut self, groups: &[FusedGroup]) -> Result<bool> {
        if !groups.iter().any(|group| group.loads.iter().any(|load| load.gathered().is_some())) {
            return Ok(true);
        }
        let pays = pays_as_rows(groups) && !self.requests.is_short;
        if pays {
            groups.iter().try_for_each(|group| self.store_gathers(group))?;
        }
        Ok(pays)
    }

    /// Stores the results that a group would gather.
    pub(super) fn store_gathers(&mut self, group: &FusedGroup) -> Result<()> {
        let mut done = Ok(());
        for load in &group.loads {
            if let Some(gathered) = load.gathered() {
                done = done.and(self.run_gather(gathered.result));
            }
        }
        done
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
pub(super) mod tests;
