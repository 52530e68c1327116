//! Heap values of an engine that handles outside of it refer to.
//!
//! A handle holds an index and a token but not the value, so it may be dropped on any thread. The engine
//! drops values without handles periodically. Invariant: a slot keeps its value as long as its token is held
//! outside.

use super::error;
use crate::base::Result;
use crate::vm::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Refers to a value of one engine.
#[derive(Clone, Debug)]
pub(super) struct Held {
    engine: u64,
    slot: usize,
    _token: Arc<()>,
}

/// The values that handles of one engine refer to.
pub(super) struct Holdings {
    engine: u64,
    slots: Vec<Option<(Value, Arc<()>)>>,
    free: Vec<usize>,
    /// The number of slots at which unreferenced ones are next removed.
    limit: usize,
}

impl Holdings {
    pub(super) fn new() -> Holdings {
        static ENGINES: AtomicU64 = AtomicU64::new(1);
        let engine = ENGINES.fetch_add(1, Ordering::Relaxed);
        Holdings { engine, slots: Vec::new(), free: Vec::new(), limit: 64 }
    }

    /// True if it is time to remove values without handles: see [`Holdings::sweep`].
    pub(super) fn is_due(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.limit
    }

    /// Keeps a value until all copies of its handle are gone.
    pub(super) fn hold(&mut self, value: Value) -> Held {
        let token = Arc::new(());
        let kept = Some((value, Arc::clone(&token)));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = kept;
                slot
            }
            None => {
                self.slots.push(kept);
                self.slots.len() - 1
            }
        };
        Held { engine: self.engine, slot, _token: token }
    }

    /// The value of a handle. Errors: E0965 for a handle of another engine.
    pub(super) fn get(&self, held: &Held, what: &str) -> Result<Value> {
        let kept = self.slots.get(held.slot).filter(|_| held.engine == self.engine);
        match kept {
            Some(Some((value, _))) => Ok(value.clone()),
            _ => Err(error::of_another_engine(what)),
        }
    }

    /// Removes and returns the values without handles.
    pub(super) fn sweep(&mut self) -> Vec<Value> {
        let mut dropped = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if let Some((value, _)) = slot.take_if(|(_, token)| Arc::strong_count(token) == 1) {
                dropped.push(value);
                self.free.push(at);
            }
        }
        self.limit = (2 * (self.slots.len() - self.free.len())).max(64);
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreferenced_handles_are_dropped_and_others_kept() {
        let (mut holdings, other) = (Holdings::new(), Holdings::new());
        let kept = holdings.hold(Value::str("kept"));
        for _ in 0..10_000 {
            if holdings.is_due() {
                holdings.sweep();
            }
            drop(holdings.hold(Value::str("gone")));
        }
        assert!(holdings.slots.len() <= 128, "{}", holdings.slots.len());
        assert_eq!(holdings.get(&kept, "it").unwrap().as_str(), Some("kept"));
        assert_eq!(other.get(&kept, "it").err().map(|e| e.code().id), Some("E0965"));
    }
}
