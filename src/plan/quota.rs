//! A session's resource limits: fuel, tensors, events, host memory.

use super::{Runtime, error};
use crate::base::{Result, reclaim};
use crate::device::Device;
use crate::stream::{Event, EventFlags};
use crate::tensor::Storage;
use std::sync::Arc;

/// Limits on live objects of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Tensors with their own memory or pending work, and recorded operations; views do not count.
    pub tensors: Option<usize>,
    /// Events.
    pub events: Option<usize>,
    /// Bytes of host memory for one value read from a tensor.
    pub host_bytes: Option<usize>,
}

/// A session's remaining resources.
#[derive(Default)]
pub struct Quota {
    /// Remaining computation: elements moved and computed, and what the session's owner charges.
    pub fuel: Option<u64>,
    /// Limits on live objects.
    pub limits: Limits,
    /// Each counted live tensor holds a clone of this.
    tensors: Arc<()>,
    /// Each gradient record holds a clone of this, unless tensors are limited.
    records: Arc<()>,
    /// Each counted live event holds a clone of this.
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

    /// True when the tensor limit is reached.
    #[inline]
    fn has_all_tensors(&self) -> bool {
        self.limits.tensors.is_some_and(|limit| Arc::strong_count(&self.tensors) > limit)
    }
}

/// A ticket for a counted object; `None` without a limit. Errors: E1009.
#[inline]
fn ticket(counter: &Arc<()>, limit: Option<usize>, what: &'static str) -> Result<Option<Arc<()>>> {
    let Some(limit) = limit else { return Ok(None) };
    let is_full = || Arc::strong_count(counter) > limit;
    if is_full() {
        // Unreachable reference cycles may hold some of the objects.
        reclaim::before_failure();
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

    /// A storage that counts towards the session's limit. Errors: E1009.
    #[inline]
    pub(super) fn storage(&mut self, owner: Arc<Device>, bytes: u64) -> Result<Storage> {
        self.flush_others(&owner, bytes)?;
        Ok(Storage::made(owner, bytes, self.ticket()?, Default::default()))
    }

    /// A ticket for a storage that counts towards the session's limit. Errors: E1009.
    #[inline]
    pub(super) fn ticket(&mut self) -> Result<Option<Arc<()>>> {
        if self.quota.has_all_tensors() {
            // Dead work may still be queued.
            self.flush()?;
        }
        ticket(&self.quota.tensors, self.quota.limits.tensors, "tensors")
    }

    /// A ticket for an operation's gradient record, which counts as a tensor if they are limited.
    pub(crate) fn record_ticket(&self) -> Arc<()> {
        match self.quota.limits.tensors {
            Some(_) => self.quota.tensors.clone(),
            None => self.quota.records.clone(),
        }
    }

    /// A function that returns the bytes of host memory of the session's tensors and gradient records, excluding
    /// elements; `record` is the size of a record and everything that it keeps.
    pub(crate) fn overhead(&self, record: usize) -> impl Fn() -> usize + 'static {
        let (machine, records) = (self.machine.clone(), Arc::downgrade(&self.quota.records));
        let histories = self.races.checker.overhead();
        move || {
            let devices = machine.opened().chain([machine.host()]);
            let tensors: usize = devices.map(|device| device.tensors()).sum();
            tensors + histories() + records.strong_count() * record
        }
    }

    /// Rejects another record when the limit on tensors is reached. Errors: E1009.
    pub(crate) fn check_records(&self) -> Result<()> {
        ticket(&self.quota.tensors, self.quota.limits.tensors, "tensors").map(drop)
    }

    /// An event that counts towards the session's limit. Errors: E1009.
    pub fn event(&mut self, flags: EventFlags) -> Result<Arc<Event>> {
        let event = Event::new(flags);
        Ok(Arc::new(match ticket(&self.quota.events, self.quota.limits.events, "events")? {
            Some(ticket) => event.counted(ticket),
            None => event,
        }))
    }

    /// Rejects a host value of this many bytes if it is too large. Errors: E0704, out of memory.
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
