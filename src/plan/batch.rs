//! Batches: closed groups that wait in their queue, so that equal programs become one launch.
//!
//! Note [Batches]. A loop over tensors of different shapes, such as that of an optimiser over parameters, closes a
//! group per tensor. Closed elementwise groups may wait as a chain without reductions. When the queue is flushed,
//! groups with equal programs and numbers that do not depend on each other become one launch ([`Maps`]). As in other
//! chains, launching them one by one, in order, is always correct.
//!
//! A group waits only if it does not hold the last reference to an operand, so that batches do not delay frees. The
//! number of programs in a batch is limited, so that the device does not idle. In a loop, a batch ends between two
//! iterations ([`BatchRounds`]), so that each batch contains the same groups.

use super::Runtime;
use super::flush::Ready;
use super::queue::{FusedGroup, Queue};
use super::rounds::BatchRounds;
use crate::array::{Dims, Dtype};
use crate::base::Result;
use crate::device::Device;
use crate::driver::DeviceId;
use crate::kernel::{Launch, Map, Maps, Source, Store, View};
use crate::memory::Effort;
use crate::stream::Stream;
use crate::tensor::{Memory, Storage, StorageRef};
use foldhash::HashMap;
use smallvec::{SmallVec, smallvec};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// The largest number of groups in a batch.
pub(super) const MAX_GROUPS: usize = 240;

/// Bytes of the largest scalar.
const NUMBER: u64 = 16;

/// The largest number of programs in a batch.
const MAX_PROGRAMS: usize = 4;

/// Up to this many groups are compared pairwise first.
const FEW: usize = 4;

/// The bytes that a batch may read and write. A launch of this size hides the preparation of the next one.
pub(super) const MAX_BYTES: u64 = 256 << 20;

/// A queue's state of its batch.
#[derive(Default)]
pub(super) struct Waiting {
    /// The bytes that its groups move.
    pub(super) bytes: u64,
    /// The operations of its groups and where the loop iterations begin among them.
    pub(super) rounds: BatchRounds,
    /// The first group of each program.
    kinds: SmallVec<[usize; MAX_PROGRAMS]>,
}

impl Waiting {
    /// Called when the first group has left the batch.
    pub(super) fn forget_kinds(&mut self) {
        self.kinds.clear();
        self.rounds = BatchRounds::default();
    }
}

impl Queue {
    /// True when the chain is a batch.
    pub(super) fn is_batch(&self) -> bool {
        self.chain.first().is_some_and(|group| group.reduce.is_none())
    }

    /// The chain, if it is not a batch.
    pub(super) fn rows(&self) -> &[FusedGroup] {
        if self.is_batch() { &[] } else { &self.chain }
    }

    /// Closes the open group: it waits in the chain.
    pub(super) fn close(&mut self) {
        let Some(group) = self.group.take() else { return };
        if self.chain.is_empty() {
            self.waiting = Waiting::default();
        }
        // Groups aside wait with it.
        let first = self.chain.len() - self.asides().count();
        self.chain.push(*group);
        let Waiting { bytes, rounds, kinds } = &mut self.waiting;
        for (part, group) in self.chain.iter().enumerate().skip(first) {
            *bytes = bytes.saturating_add(group.bytes());
            rounds.note(&group.rounds);
            if group.reduce.is_none() && !kinds.iter().any(|&kind| self.chain[kind].map == group.map) {
                kinds.push(part);
            }
        }
    }

    /// True when the open group may wait in a batch, once it is closed.
    pub(super) fn may_wait(&self) -> bool {
        let Some(open) = &self.group else { return true };
        if open.reduce.is_some()
            || open.uses_position()
            || open.is_bent()
            || open.gathers()
            || open.device == DeviceId::Cpu
            || !self.asides().all(FusedGroup::releases_nothing)
        {
            return false;
        }
        if self.chain.is_empty() {
            return open.bytes() < MAX_BYTES && open.releases_nothing();
        }
        let Waiting { bytes, kinds, .. } = &self.waiting;
        let fits = self.chain.len() < MAX_GROUPS && bytes.saturating_add(open.bytes()) < MAX_BYTES;
        let known =
            || kinds.len() < MAX_PROGRAMS || kinds.iter().any(|&kind| self.chain[kind].map == open.map);
        fits && known() && open.releases_nothing()
    }
}

impl FusedGroup {
    /// Estimate of the bytes that it reads and writes.
    pub(super) fn bytes(&self) -> u64 {
        let count: u64 = self.shape.iter().fold(1, |n, &extent| n.saturating_mul(extent as u64));
        let results = self.nodes.iter().filter(|node| node.storage.is_some()).map(|node| node.dtype);
        let sizes = self.loads.iter().map(|load| load.dtype).chain(results).map(|dtype| dtype.size() as u64);
        count.saturating_mul(sizes.sum())
    }

    /// True when everything that the group reads has references outside the queue and is not shared with another
    /// library. An operand without memory is the result of a waiting group, and may only be a scalar.
    pub(super) fn releases_nothing(&self) -> bool {
        let is_foreign = |storage: &StorageRef| matches!(storage.memory(), Some(Memory::Foreign(_)));
        let results = || self.nodes.iter().filter_map(|node| node.storage.as_ref());
        let is_held = |storage: &StorageRef| {
            let own = self.loads.iter().map(|load| &load.storage).chain(results());
            let is_made = storage.memory().is_some() || storage.bytes() <= NUMBER;
            is_made && storage.holders() > own.filter(|own| own.is(storage)).count()
        };
        self.loads.iter().all(|load| is_held(&load.storage) && !is_foreign(&load.storage))
            && !results().any(is_foreign)
    }
}

/// The accesses of the groups of a batch.
#[derive(Default)]
struct Accesses {
    all: Vec<Accessed>,
    /// The index of the last access of each storage.
    last: HashMap<usize, usize>,
}

struct Accessed {
    bytes: Range<u64>,
    stage: usize,
    is_write: bool,
    /// The index of the previous access of the same storage.
    before: Option<usize>,
}

impl Accesses {
    /// The first stage at which a group may run: after all stages of groups that it depends on.
    fn stage_of(&mut self, ready: &Ready<'_>) -> usize {
        let first = self.all.len();
        let mut stage = 0;
        for (number, (view, storage)) in ready.launch.views.iter().zip(&ready.storages).enumerate() {
            let (bytes, is_write) = (view.bytes(&ready.launch.shape), number >= ready.loads);
            let before = self.last.insert(std::ptr::from_ref::<Storage>(storage).addr(), self.all.len());
            let mut at = before;
            while let Some(old) = at.map(|at| &self.all[at]) {
                let overlaps = old.bytes.start < bytes.end && bytes.start < old.bytes.end;
                if at < Some(first) && (is_write || old.is_write) && overlaps {
                    stage = stage.max(old.stage + 1);
                    if old.is_write && old.bytes.start <= bytes.start && bytes.end <= old.bytes.end {
                        // It runs after all earlier accesses of these bytes.
                        break;
                    }
                }
                at = old.before;
            }
            self.all.push(Accessed { bytes, stage: 0, is_write, before });
        }
        self.all[first..].iter_mut().for_each(|access| access.stage = stage);
        stage
    }
}

/// Groups that become one launch.
struct Together<'b, 'g> {
    stage: usize,
    groups: SmallVec<[&'b Ready<'g>; 8]>,
    /// The common form of the segments; `None` for a group that is launched alone.
    form: Option<Form>,
}

/// The part of a launch that all segments of a [`Maps`] share, besides the program and numbers.
#[derive(Clone, PartialEq)]
pub(super) struct Form {
    /// The view that each result is stored through: that of a load of the same elements, if there is one.
    stores: SmallVec<[u16; 4]>,
    /// Views of one element; `None` if all have one.
    uniform: Option<u64>,
}

impl Form {
    /// The form of launches over more than one element.
    pub(super) fn new(stores: SmallVec<[u16; 4]>, uniform: u64) -> Form {
        Form { stores, uniform: Some(uniform) }
    }

    /// The form of a launch; `None` if it cannot be a segment.
    fn of(launch: &Launch, loads: usize) -> Option<Form> {
        if launch.views.iter().any(|view| !view.is_straight() || view.indexed.is_some()) {
            return None;
        }
        let uniform = match launch.shape[..] {
            [] => None,
            [size] if size < 1 << 31 && launch.views.len() < 64 => {
                let mut uniform = 0;
                for (number, view) in launch.views.iter().enumerate() {
                    match view.strides[0] {
                        1 => {}
                        0 if number < loads => uniform |= 1 << number,
                        _ => return None,
                    }
                }
                Some(uniform)
            }
            _ => return None,
        };
        let (read, written) = launch.views.split_at(loads);
        let through = |(number, view)| loaded_as(read, view).unwrap_or(loads + number) as u16;
        Some(Form { stores: written.iter().enumerate().map(through).collect(), uniform })
    }

    /// True when segments of both forms fit one launch; `self` becomes the form of both.
    fn unify(&mut self, other: &Form) -> bool {
        let fits = self.stores == other.stores
            && (self.uniform.is_none() || other.uniform.is_none() || self.uniform == other.uniform);
        if fits {
            self.uniform = self.uniform.or(other.uniform);
        }
        fits
    }
}

impl Runtime {
    /// Closes the open group of a queue, so that the next operation begins a group.
    pub(super) fn begin_group(&mut self, at: usize) -> Result<()> {
        let queue = &mut self.queues[at];
        if !queue.rows().is_empty() || !queue.may_wait() {
            return self.flush_work(at);
        }
        queue.close();
        Ok(())
    }

    /// Launches the groups of a batch.
    pub(super) fn run_batch(
        &mut self,
        at: usize,
        mut groups: Vec<FusedGroup>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let mut done = Ok(());
        // If memory is short, groups are launched one by one, so that each frees memory that only it refers to.
        if groups.len() > 1 && !self.requests.is_short {
            let mut ready = Vec::with_capacity(groups.len());
            let mut count = 0;
            for group in groups.iter() {
                match self.prepare(group, device, stream, Effort::Quick) {
                    Ok(None) => break,
                    Ok(Some(prepared)) => {
                        done = done.and(prepared.failed);
                        ready.extend(prepared.ready);
                    }
                    Err(e) => done = done.and(Err(e)),
                }
                count += 1;
            }
            done = done.and(self.run_together(&ready, device, stream));
            drop(ready);
            groups.drain(..count).for_each(|group| self.queues[at].reuse(group));
        }
        for mut group in groups {
            let launched = self.run_group(&mut group, device, stream);
            self.queues[at].reuse(group);
            done = done.and(launched);
        }
        done
    }

    /// Launches groups one by one.
    fn run_in_order(
        &mut self,
        ready: &[Ready<'_>],
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let mut done = Ok(());
        for group in ready {
            if done.is_err() && group.lose_if_spoiled() {
                continue;
            }
            done = done.and(self.run_alone(group, device, stream));
        }
        done
    }

    fn run_together(
        &mut self,
        ready: &[Ready<'_>],
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let is_alike = |(i, group): (usize, &Ready<'_>)| {
            ready[..i].iter().any(|other| Arc::ptr_eq(&other.launch.program, &group.launch.program))
        };
        if ready.len() <= FEW && !ready.iter().enumerate().any(is_alike) {
            return self.run_in_order(ready, device, stream);
        }
        let mut accesses = Accesses::default();
        let mut all: Vec<Together<'_, '_>> = Vec::new();
        for group in ready {
            let stage = accesses.stage_of(group);
            let form = Form::of(&group.launch, group.loads).filter(|_| group.pieces.is_empty());
            let joins = |together: &mut Together<'_, '_>| {
                let first = &together.groups[0].launch;
                let same = together.stage == stage
                    && Arc::ptr_eq(&first.program, &group.launch.program)
                    && first.numbers == group.launch.numbers;
                let forms = together.form.as_mut().zip(form.as_ref());
                same && forms.is_some_and(|(all, form)| all.unify(form))
            };
            match all.iter_mut().find_map(|one| joins(one).then_some(one)) {
                Some(together) => together.groups.push(group),
                None => all.push(Together { stage, groups: smallvec![group], form }),
            }
        }
        all.sort_by_key(|together| together.stage);
        let mut done = Ok(());
        for Together { groups, form, .. } in &mut all {
            if done.is_err() {
                groups.retain(|group| !group.lose_if_spoiled());
            }
            let Some(first) = groups.first() else { continue };
            let form = form.as_ref().filter(|_| groups.len() > 1);
            let maps = form.and_then(|form| maps_of(&first.launch, first.loads, form));
            let most = maps.as_ref().map_or(1, Maps::most);
            for part in groups.chunks(most) {
                let launched = match (&maps, part) {
                    (Some(maps), [_, _, ..]) => {
                        let launch = Launch { program: self.programs.get(maps), ..joined(maps, part) };
                        self.run_ready(part, &launch, device, stream)
                    }
                    _ => part.iter().try_for_each(|one| self.run_alone(one, device, stream)),
                };
                done = done.and(launched);
            }
        }
        done
    }
}

/// The number of the load that reads the elements of a view.
fn loaded_as(read: &[View], view: &View) -> Option<usize> {
    let is_same =
        |other: &View| (other.ptr, other.dtype, &other.strides) == (view.ptr, view.dtype, &view.strides);
    read.iter().position(is_same)
}

/// The program over segments for launches like this one.
pub(super) fn maps_of(launch: &Launch, loads: usize, form: &Form) -> Option<Maps> {
    let kind: &dyn Any = &*launch.program.kind;
    let mut map = kind.downcast_ref::<Map>()?.clone();
    // Views that are only stored follow the loads.
    let mut views = loads as u16;
    for (store, &through) in map.stores.iter_mut().zip(&form.stores) {
        store.view = if usize::from(through) < loads { through } else { views };
        views += u16::from(store.view == views);
    }
    Maps::new(map, form.uniform.unwrap_or(0))
}

/// The program that copies tensors of a dtype.
pub(super) fn copy_of(dtype: Dtype) -> Option<Maps> {
    let sources = vec![Source::Load { view: 0, dtype }];
    Maps::new(Map { sources, instrs: Vec::new(), stores: vec![Store { reg: 0, view: 1 }] }, 0)
}

/// The launch of several groups; the program is that of the first one.
fn joined(maps: &Maps, groups: &[&Ready<'_>]) -> Launch {
    let mut launch = Launch {
        numbers: groups[0].launch.numbers.clone(),
        ..Launch::new(
            groups[0].launch.program.clone(),
            Dims::with_capacity(groups.len()),
            SmallVec::with_capacity(groups.len() * maps.views()),
        )
    };
    for group in groups {
        let own = &group.launch;
        launch.shape.push(own.shape.first().copied().unwrap_or(1));
        let (read, written) = own.views.split_at(group.loads);
        let stored = written.iter().filter(|view| loaded_as(read, view).is_none());
        for (number, view) in read.iter().chain(stored).enumerate() {
            let stride = isize::from(!maps.is_uniform(number));
            launch.views.push(View::new(view.ptr, view.dtype, smallvec![stride]));
        }
    }
    launch
}
