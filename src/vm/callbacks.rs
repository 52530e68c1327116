//! Script values that gradient records refer to: hooks, rules, checkpoints.
//!
//! A record may be dropped on any thread, so it holds an identifier and not the value. Once its identifier is gone, a
//! value is released at the end of a backward pass or of an input, or when many values are kept.

use super::account::note;
use super::value::Value;
use foldhash::HashMap;
use std::sync::{Arc, Weak};

/// A number that represents a value while it is alive.
pub type CallbackId = Arc<u64>;

/// Approximate bytes of an entry: its place in the table, its identifier, and the record's reference to that.
const ENTRY: isize = 128;

/// The values, by identifier.
#[derive(Default)]
pub struct Callbacks {
    next: u64,
    entries: HashMap<u64, (Weak<u64>, Value)>,
    /// The number of entries that triggers the next search for released identifiers.
    search_at: usize,
}

impl Callbacks {
    /// Keeps a value for as long as its identifier is alive.
    pub fn keep(&mut self, value: Value) -> CallbackId {
        if self.entries.len() >= self.search_at {
            drop(self.released());
            self.search_at = 16.max(2 * self.entries.len());
        }
        self.next += 1;
        let id = Arc::new(self.next);
        self.entries.insert(self.next, (Arc::downgrade(&id), value));
        note(ENTRY);
        id
    }

    /// Removes the values whose identifiers are gone.
    pub fn released(&mut self) -> Vec<Value> {
        let released = self.entries.extract_if(|_, (id, _)| id.strong_count() == 0);
        let released: Vec<Value> = released.map(|(_, (_, value))| value).collect();
        note(-ENTRY * released.len() as isize);
        released
    }

    /// The value of an identifier.
    pub fn get(&self, number: u64) -> Option<Value> {
        self.entries.get(&number).map(|(_, value)| value.clone())
    }

    /// Replaces the value of an identifier.
    pub fn set(&mut self, number: u64, value: Value) {
        if let Some((_, place)) = self.entries.get_mut(&number) {
            *place = value;
        }
    }
}
