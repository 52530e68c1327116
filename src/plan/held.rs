//! Results that wait for lack of memory.
//!
//! Note [Held results]. A result that waits (Notes [Gathered values], [Kept values]) is stored when the work of its stream
//! must be complete. If there is no memory for it then, it is held: it stays as it is, and the flush succeeds, since nothing
//! needs it in memory. From then on, waits of other streams and of the host no longer order it. So no group reads its
//! operands for it: it is stored when something reads it, before an operand is written, and before a graph or another
//! library may write one. The host waits for that launch. If there is still no memory, the operation that needs it fails,
//! and the result remains.

use super::gather::{Gathered, is_gathered};
use super::{MapArg, Runtime, overlaps_itself};
use crate::base::{Result, Site};
use crate::driver::error::is_shortage;
use crate::tensor::{Memory, Storage, Tensor};
use std::sync::Arc;

impl Runtime {
    /// Stores a result. It is held if there is no memory, and lost if that fails otherwise.
    pub(super) fn run_gather(&mut self, gathered: &Gathered) -> Result<()> {
        let bound = self.bind_or_hold(gathered);
        if bound.as_ref().is_err_and(is_shortage) {
            return bound;
        }
        gathered.out.set_pending(None);
        let done = bound.and_then(|()| self.launch_gather(gathered));
        let done = done.map_err(|e| e.locate(&Site::of(gathered.span)));
        if done.is_err() {
            gathered.out.lose();
        }
        if gathered.is_held() { done.and(self.end_hold(gathered)) } else { done }
    }

    /// Stores a result in a flush. One that nothing needs in memory is held if there is none, without an error unless its
    /// indices have not been checked.
    pub(super) fn run_gather_if(&mut self, gathered: &Gathered, is_needed: bool) -> Result<()> {
        if gathered.is_held() && !is_needed && gathered.is_wanted() {
            return Ok(());
        }
        let done = self.run_gather(gathered);
        let is_held = gathered.waits() && !is_needed && gathered.is_checked();
        if is_held { Ok(()) } else { done }
    }

    /// Takes memory for a result that waits. If there is none, the result is held.
    ///
    /// # Errors
    /// E0701.
    fn bind_or_hold(&mut self, gathered: &Gathered) -> Result<()> {
        // The memory of a capture is that of its pool; the capture fails.
        if !gathered.is_wanted() || self.capture_at(gathered.at).is_some() {
            return Ok(());
        }
        let (device, stream) = (self.device(gathered.out.device())?, self.queues[gathered.at].stream.clone());
        let out = &gathered.out;
        if out.memory().is_some() {
            return Ok(());
        }
        match self.block_alone(&device, out.bytes(), &stream, gathered.span) {
            Err(e) if is_shortage(&e) => {
                gathered.hold();
                Err(e.locate(&Site::of(gathered.span)))
            }
            block => block.map(|block| out.bind(Memory::Block(block))),
        }
    }

    /// Waits for the stream of a held result that was stored.
    fn end_hold(&mut self, gathered: &Gathered) -> Result<()> {
        let device = self.device(gathered.out.device())?;
        self.queues[gathered.at].stream.synchronize().map_err(|e| device.blame(e))
    }

    /// Drops a held result all of which is about to be overwritten, without being read.
    #[cold]
    pub(super) fn discard_held(&mut self, operands: &[MapArg<'_>], target: &Tensor) {
        let storage = target.storage();
        let is_read = operands.iter().filter_map(MapArg::tensor).any(|x| x.storage_ref().is(storage));
        let is_whole = target.layout().bytes(target.dtype()) == storage.bytes();
        if is_read || !is_whole || overlaps_itself(target.layout()) {
            return;
        }
        for queue in &mut self.queues {
            let is_queued = |of: &Gathered| {
                queue
                    .chain
                    .iter()
                    .chain(queue.group.as_deref())
                    .any(|group| group.storages().any(|own| own.is(&of.out)))
            };
            let at = queue
                .gathers
                .iter()
                .position(|one| one.out.is(storage) && one.is_held() && one.is_checked() && !is_queued(one));
            if let Some(at) = at {
                let gathered = queue.gathers.remove(at);
                gathered.out.set_pending(None);
                gathered.out.lose();
            }
        }
    }

    /// Stores the held results of a queue.
    ///
    /// # Errors
    /// E0701 if there is no memory; the results remain.
    pub(super) fn store_held_of(&mut self, at: usize) -> Result<()> {
        let held = |one: &&Arc<Gathered>| one.is_held() && one.is_wanted();
        while let Some(gathered) = self.queues[at].gathers.iter().find(held).cloned() {
            self.store_gathered(&gathered.out)?;
        }
        Ok(())
    }

    /// Stores the held results of all queues.
    ///
    /// # Errors
    /// E0701 if there is no memory; the results remain.
    pub(super) fn store_held(&mut self) -> Result<()> {
        (0..self.queues.len()).try_for_each(|at| self.store_held_of(at))
    }

    /// Flushes the pending work of every stream, and ensures that a storage is in memory.
    ///
    /// # Errors
    /// Those of the pending work.
    pub fn flush_for(&mut self, storage: &Storage) -> Result<()> {
        self.flush()?;
        if is_gathered(storage) { self.store_gathered(storage) } else { Ok(()) }
    }
}
