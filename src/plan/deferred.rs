//! Values that wait for a reader and are read by bent loads: padded tensors (`pad`) and joined ones (`joined`).
//!
//! Note [Deferred values]. A padded or joined tensor waits in its queue. An elementwise group that reads a view of it loads
//! the elements of its sources instead ([`Bend`]), and the tensor is not stored. It is stored when something else reads or
//! writes it, before a source is written, and when the stream's work must be complete while something still refers to it.
//!
//! Such a load reads other elements than the group writes, like a turned one (Note [Turned loads]), and only elementwise
//! launches have it: a group that follows a reduction in a chain does not.

use super::gather::GATHERED;
use super::joined::Joined;
use super::pad::Padded;
use super::queue::{FusedGroup, Queue};
use super::turn::{Bend, fits};
use super::{MAX_INSTRS, MAX_VIEWS, Runtime};
use crate::base::{Result, Site, Span};
use crate::driver::error::is_shortage;
use crate::tensor::{Memory, Pending, Storage, StorageRef, Tensor};
use smallvec::SmallVec;

/// [`Pending::node`] of a deferred value.
pub(super) const DEFERRED: u16 = GATHERED - 1;

/// The largest number of deferred values of a queue.
const MOST_WAITING: usize = 32;

/// Room that stays for the operation that reads a value.
const RESERVE: usize = 4;

/// A value that waits.
pub(super) enum Deferred {
    Padded(Padded),
    Joined(Joined),
}

/// What a group needs to read a value.
pub(super) struct Needs {
    /// The bent loads, over the shape of the view.
    pub bends: SmallVec<[Bend; 4]>,
    /// Further loads, and instructions.
    pub loads: usize,
    pub instrs: usize,
}

impl Deferred {
    pub(super) fn out(&self) -> &StorageRef {
        match self {
            Deferred::Padded(padded) => &padded.out,
            Deferred::Joined(joined) => &joined.out,
        }
    }

    /// The source position of its operation.
    fn span(&self) -> Span {
        match self {
            Deferred::Padded(padded) => padded.span,
            Deferred::Joined(joined) => joined.span,
        }
    }

    /// The storages that it reads.
    pub(super) fn sources(&self) -> impl Iterator<Item = &StorageRef> {
        let (padded, joined) = match self {
            Deferred::Padded(padded) => (Some(&padded.source), None),
            Deferred::Joined(joined) => (None, Some(joined)),
        };
        padded.into_iter().chain(joined.into_iter().flat_map(Joined::sources))
    }

    /// The storages that it refers to.
    pub(super) fn storages(&self) -> impl Iterator<Item = &StorageRef> {
        std::iter::once(self.out()).chain(self.sources())
    }

    /// True when it reads a storage.
    pub(super) fn reads(&self, storage: &Storage) -> bool {
        self.sources().any(|source| source.is(storage))
    }

    /// True when something else refers to it.
    pub(super) fn is_wanted(&self) -> bool {
        self.out().holders() > 1
    }

    /// True when only this keeps more memory than the value takes.
    fn wastes_memory(&self) -> bool {
        let is_last = |source: &&StorageRef| {
            let own = self.sources().filter(|other| other.is(source)).count();
            source.holders() <= own
        };
        let mut counted: SmallVec<[&StorageRef; 4]> = SmallVec::new();
        for source in self.sources().filter(is_last) {
            if !counted.iter().any(|other| other.is(source)) {
                counted.push(source);
            }
        }
        counted.iter().fold(0u64, |sum, source| sum.saturating_add(source.bytes())) > self.out().bytes()
    }

    /// What a group needs to read a view of it; `None` if that must be read from memory.
    pub(super) fn needs(&self, view: &Tensor) -> Option<Needs> {
        match self {
            Deferred::Padded(padded) => padded.needs(view),
            Deferred::Joined(joined) => joined.needs(view),
        }
    }
}

/// True for the storage of a value that waits.
pub(super) fn is_deferred(storage: &Storage) -> bool {
    storage.pending().is_some_and(|pending| pending.node == DEFERRED)
}

impl FusedGroup {
    /// The register of an element of a deferred value.
    pub(super) fn read_deferred(&mut self, deferred: &[Deferred], tensor: &Tensor) -> Option<u16> {
        match deferred.iter().find(|one| one.out().is(tensor.storage()))? {
            Deferred::Padded(padded) => self.read_padded(padded, tensor),
            Deferred::Joined(joined) => self.read_joined(joined, tensor),
        }
    }

    /// True when a group has room for what it needs to read a view of this shape.
    fn has_room_to_read(&self, needs: &Needs, shape: &[usize]) -> bool {
        let size = self.size();
        let has_room = needs.instrs == 0
            || size.instrs + needs.instrs + RESERVE <= MAX_INSTRS
                && size.views + needs.bends.len() + needs.loads + RESERVE <= MAX_VIEWS;
        let mut bends: SmallVec<[Bend; 8]> =
            needs.bends.iter().map(|bend| bend.clone().broadcast(shape, &self.shape)).collect();
        if bends.is_empty() {
            return has_room;
        }
        bends.extend(self.loads.iter().filter_map(|load| load.bend.clone()));
        has_room && !self.uses_position() && !self.gathers() && fit_together(&bends, &self.shape)
    }
}

/// [`fits`] of bends.
fn fit_together(bends: &[Bend], shape: &[usize]) -> bool {
    fits(&bends.iter().collect::<SmallVec<[&Bend; 8]>>(), shape)
}

impl Queue {
    /// The deferred value with this storage.
    pub(super) fn deferred_with(&self, storage: &Storage) -> Option<&Deferred> {
        self.deferred.iter().find(|one| one.out().is(storage))
    }
}

impl Runtime {
    /// True when an operation that reads these tensors may wait.
    pub(super) fn may_defer<'t>(&self, mut sources: impl Iterator<Item = &'t Tensor>) -> bool {
        let is_foreign = |x: &Tensor| matches!(x.storage().memory(), Some(Memory::Foreign(_)));
        self.settings.fuse && !self.settings.launch_blocking && !sources.any(is_foreign)
    }

    /// Lets a value wait in queue `at`.
    pub(super) fn defer(&mut self, at: usize, value: Deferred) -> Result<()> {
        self.queues[at].deferred.retain(Deferred::is_wanted);
        if self.queues[at].deferred.len() >= MOST_WAITING {
            self.begin_deferred(at, true)?;
        }
        let queue = &mut self.queues[at];
        let generation = queue.generation;
        value.out().set_pending(Some(Pending { queue: at as u16, generation, node: DEFERRED }));
        queue.deferred.push(value);
        Ok(())
    }

    /// [`Runtime::settle_read`] for a value that waits in queue `at`.
    #[cold]
    pub(super) fn settle_deferred(&mut self, at: usize, tensor: &Tensor) -> Result<bool> {
        let Some(value) = self.queues[at].deferred_with(tensor.storage()) else { return Ok(false) };
        let needs = value.needs(tensor).filter(|needs| fit_together(&needs.bends, tensor.shape()));
        let Some(needs) = needs else {
            return self.store_deferred(tensor.storage()).map(|()| false);
        };
        let sources: SmallVec<[StorageRef; 4]> = value.sources().cloned().collect();
        for source in sources {
            self.settle_storage(&source, at)?;
        }
        if needs.bends.is_empty() && needs.instrs == 0 {
            return Ok(false);
        }
        // A chain of rows has no bent loads.
        if self.queues[at].begins_with_reduction() {
            self.flush_work(at)?;
        }
        let has_room = |group: &FusedGroup| group.has_room_to_read(&needs, tensor.shape());
        Ok(!self.queues[at].group.as_deref().is_none_or(has_room))
    }

    /// Ensures that no value that waits depends on a tensor's old value, or is this tensor.
    pub(super) fn settle_deferred_of(&mut self, target: &Tensor) -> Result<()> {
        let storage = target.storage();
        self.store_deferred(storage)?;
        for at in 0..self.queues.len() {
            while let Some(number) = self.queues[at].deferred.iter().position(|one| one.reads(storage)) {
                let value = self.queues[at].deferred.remove(number);
                if value.is_wanted() {
                    self.run_deferred(at, &value)?;
                }
            }
        }
        Ok(())
    }

    /// Called before a queue is flushed, completely if `all` is set: drops the values that nothing refers to, and stores
    /// those that must not wait longer.
    pub(super) fn begin_deferred(&mut self, at: usize, all: bool) -> Result<()> {
        if self.queues[at].deferred.is_empty() {
            return Ok(());
        }
        self.queues[at].deferred.retain(Deferred::is_wanted);
        let mut done = Ok(());
        let must_go = |value: &Deferred| all || value.wastes_memory();
        while let Some(number) = self.queues[at].deferred.iter().position(must_go) {
            let value = self.queues[at].deferred.remove(number);
            done = done.and(self.run_deferred(at, &value));
        }
        done
    }

    /// The bytes of the values that wait in a queue.
    pub(super) fn deferred_bytes(&self, at: usize) -> u64 {
        let wanted = self.queues[at].deferred.iter().filter(|value| value.is_wanted());
        wanted.fold(0, |sum, value| sum.saturating_add(value.out().bytes()))
    }

    /// Stores the values that wait in a queue as far as there is memory, so that their sources can be freed.
    pub(super) fn release_deferred(&mut self, at: usize) -> Result<()> {
        for value in std::mem::take(&mut self.queues[at].deferred) {
            if !value.is_wanted() {
                continue;
            }
            let (device, stream) = (self.device(value.out().device())?, self.queues[at].stream.clone());
            match self.bind(value.out(), &device, &stream, value.span()) {
                Ok(()) => self.run_deferred(at, &value)?,
                Err(e) if !is_shortage(&e) => return Err(e),
                Err(_) => self.queues[at].deferred.push(value),
            }
        }
        Ok(())
    }

    /// Stores a value if it waits.
    pub(super) fn store_deferred(&mut self, storage: &Storage) -> Result<()> {
        let Some(pending) = storage.pending().filter(|_| is_deferred(storage)) else { return Ok(()) };
        let at = usize::from(pending.queue);
        let Some(number) = self.queues[at].deferred.iter().position(|one| one.out().is(storage)) else {
            return Ok(());
        };
        let value = self.queues[at].deferred.remove(number);
        self.run_deferred(at, &value)
    }

    /// Stores a value. It is lost if that fails.
    pub(super) fn run_deferred(&mut self, at: usize, value: &Deferred) -> Result<()> {
        value.out().set_pending(None);
        let outer = std::mem::replace(&mut self.span, value.span());
        let done = match value {
            Deferred::Padded(padded) => self.run_pad(at, padded),
            Deferred::Joined(joined) => self.run_join(at, joined),
        };
        self.span = outer;
        let done = done.map_err(|e| e.locate(&Site::of(value.span())));
        if done.is_err() {
            value.out().lose();
        }
        done
    }
}
