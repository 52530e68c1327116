//! What a session may use: fuel, tensors, events, memory of the host.

use super::{Runtime, error};
use crate::base::{Result, reclaim};
use crate::device::Device;
use crate::stream::{Event, EventFlags};
use crate::tensor::Storage;
use std::sync::Arc;

/// How many things a session may have at the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Tensors with memory, or a place in a queue, of their own; views do not count.
    pub tensors: Option<usize>,
    /// Events.
    pub events: Option<usize>,
    /// Bytes of the host's memory that one value may take which was read from a tensor.
    pub host_bytes: Option<usize>,
}

/// What a session may still use.
#[derive(Default)]
pub struct Quota {
    /// What it may still compute: elements moved and computed, and what its owner takes.
    pub fuel: Option<u64>,
    /// How many things it may have at the same time.
    pub limits: Limits,
    /// Each live tensor that is counted holds one of these.
    tensors: Arc<()>,
    /// Each live event that is counted holds one of these.
    events: Arc<()>,
}

impl Quota {
    /// Charges for elements that are moved or computed. Errors: E1002.
    #[inline]
    pub(super) fn spend(&mut self, elements: usize) -> Result<()> {
        let Some(fuel) = &mut self.fuel else { return Ok(()) };
        let left = fuel.checked_sub(elements as u64);
        *fuel = left.unwrap_or(0);
        if left.is_some() { Ok(()) } else { Err(error::fuel()) }
    }

    /// True when a further tensor is one too many.
    #[inline]
    fn has_all_tensors(&self) -> bool {
        self.limits.tensors.is_some_and(|limit| Arc::strong_count(&self.tensors) > limit)
    }
}

/// What a thing holds that is counted; `None` without a limit. Errors: E1009.
#[inline]
fn ticket(counter: &Arc<()>, limit: Option<usize>, what: &'static str) -> Result<Option<Arc<()>>> {
    let Some(limit) = limit else { return Ok(None) };
    let is_full = || Arc::strong_count(counter) > limit;
    if is_full() {
        // Values that only refer to each other may hold some.
        reclaim::asked();
        if is_full() {
            return Err(error::too_many(what, limit));
        }
    }
    Ok(Some(counter.clone()))
}

impl Runtime {
    /// Charges for elements that are moved or computed. Errors: E1002.
    #[inline]
    pub(crate) fn spend(&mut self, elements: usize) -> Result<()> {
        self.quota.spend(elements)
    }

    /// A storage that counts among the session's. Errors: E1009.
    #[inline]
    pub(super) fn storage(&mut self, owner: Arc<Device>, bytes: u64) -> Result<Storage> {
        self.leave_others(&owner, bytes)?;
        Ok(Storage::made(owner, bytes, self.ticket()?, Default::default()))
    }

    /// What a storage holds that counts among the session's. Errors: E1009.
    #[inline]
    pub(super) fn ticket(&mut self) -> Result<Option<Arc<()>>> {
        if self.quota.has_all_tensors() {
            // Dead work may still be queued.
            self.flush()?;
        }
        ticket(&self.quota.tensors, self.quota.limits.tensors, "tensors")
    }

    /// An event that counts among the session's. Errors: E1009.
    pub fn event(&mut self, flags: EventFlags) -> Result<Arc<Event>> {
        let event = Event::new(flags);
        Ok(Arc::new(match ticket(&self.quota.events, self.quota.limits.events, "events")? {
            Some(ticket) => event.counted(ticket),
            None => event,
        }))
    }

    /// Refuses to take so much of the host's memory at once. Errors: E0704, out of memory.
    pub fn check_host_room(&self, bytes: usize) -> Result<()> {
        reclaim::charge(bytes)?;
        match self.quota.limits.host_bytes {
            Some(limit) if bytes > limit => {
                Err(crate::driver::error::memory_limit("host memory", limit as u64, 0, bytes as u64))
            }
            _ => crate::driver::host::check_room(bytes as u64),
        }
    }
}
