//! The table of a dict: entries in insertion order, and an index from keys to positions. Keys and values are
//! separate arrays, so that reading by int does not touch keys.
//!
//! Few entries need no index: they are searched linearly. Int keys in a dense range from 0 index a table of
//! positions directly ([`Index::Direct`]), so that dense int keys need no hashing or comparison. All other
//! keys are hashed. Invariant: the index maps the key of each entry to its position and nothing else; keys
//! are unique.

use std::cell::Cell;
use std::mem::size_of;
use std::rc::Rc;

use super::account::{drop_later, reserve};
use super::key::{Key, hash_key, same_key, seed, whole};
use super::text::Text;
use super::value::Value;
use super::values::Values;
use crate::base::{Result, stop};
use crate::driver::error::stopped;

/// Entries between two checks of whether the VM must stop.
const ENTRIES_PER_CHECK: usize = 1 << 14;
/// Up to this many entries are searched linearly.
const MAX_UNINDEXED: usize = 8;

/// The entries of a dict.
///
/// Example: after `insert("b", 1)` and `insert("a", 2)`, `keys()` yields "b", "a".
#[derive(Default)]
pub struct Table {
    keys: Vec<Key>,
    values: Values,
    index: Index,
    /// The position where a key was last found: a read is often followed by a write to the same key.
    last: Cell<usize>,
    /// Removals, which move later entries.
    removals: u32,
}

#[derive(Default)]
enum Index {
    /// At most [`MAX_UNINDEXED`] entries.
    #[default]
    Few,
    /// Position plus one, indexed by the int that a key equals.
    Direct(Box<[u32]>),
    Hashed(Hashed),
}

/// Open addressing: a slot holds a hash in its high half and a position plus one in its low half.
struct Hashed {
    /// A power of two; at most half of the slots are used.
    slots: Box<[u64]>,
    /// A hash's first slot is the hash shifted right by this many bits.
    shift: u32,
    seed: u64,
}

impl Drop for Table {
    fn drop(&mut self) {
        // The values drop themselves. A few numbers and short strings are dropped at once.
        const FEW: usize = 1024;
        if self.keys.len() > FEW || self.keys.iter().any(|key| matches!(key.value(), Value::Tuple(_))) {
            drop_later(std::mem::take(&mut self.keys).into_iter().map(Key::into_value));
        }
    }
}

impl Table {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Takes all entries.
    pub fn take(&mut self) -> Table {
        let taken = std::mem::take(self);
        self.removals = taken.removals.wrapping_add(1);
        taken
    }

    /// A number of 31 bits that changes when an entry is added or removed.
    pub(super) fn version(&self) -> u32 {
        (self.len() as u32).wrapping_add(self.removals.wrapping_mul(0x9e37_79b9)) & (u32::MAX >> 1)
    }

    /// True when there are no entries.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Key, &Value)> {
        self.keys.iter().zip(&self.values)
    }

    /// The keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.keys.iter()
    }

    /// The values in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.values.iter()
    }

    /// [`Table::values`] as a slice.
    pub fn all_values(&self) -> &[Value] {
        &self.values
    }

    /// The n-th entry.
    pub fn get_index(&self, at: usize) -> Option<(&Key, &Value)> {
        Some((self.keys.get(at)?, self.values.get(at)?))
    }

    /// Takes the values, and drops the keys.
    pub(super) fn into_values(mut self) -> Values {
        std::mem::take(&mut self.values)
    }

    /// The position of a key's entry; `None` if it is missing or not a valid key.
    #[inline]
    pub fn position(&self, key: &Value) -> Option<usize> {
        match (&self.index, key) {
            (Index::Direct(places), Value::Int(i)) => direct(places, *i),
            (_, Value::Str(text)) => self.known(text).or_else(|| self.position_of(key)),
            _ => self.position_of(key),
        }
    }

    /// The position of an int key if the index is direct; makes no call.
    #[inline(always)]
    pub(super) fn direct(&self, int: i64) -> Option<Option<usize>> {
        match &self.index {
            Index::Direct(places) => Some(direct(places, int)),
            _ => None,
        }
    }

    /// The position of a string key if the string has it cached; makes no call.
    #[inline(always)]
    pub(super) fn known(&self, text: &Rc<Text>) -> Option<usize> {
        let at = text.place().get() as usize;
        match self.keys.get(at).map(Key::value) {
            Some(Value::Str(own)) if Rc::ptr_eq(own, text) => Some(at),
            _ => None,
        }
    }

    /// The value of the n-th entry.
    #[inline(always)]
    pub(super) fn value_mut(&mut self, at: usize) -> Option<&mut Value> {
        self.values.get_mut(at)
    }

    #[inline(never)]
    fn position_of(&self, key: &Value) -> Option<usize> {
        let at = match &self.index {
            Index::Few => self.keys.iter().position(|own| same_key(own.value(), key))?,
            Index::Direct(places) => direct(places, whole(key)?)?,
            Index::Hashed(index) => {
                let last = self.last.get();
                if let (Some(own), Value::Int(i)) = (self.keys.get(last), key)
                    && matches!(own.value(), Value::Int(own) if own == i)
                {
                    return Some(last);
                }
                let (_, at) = index.find(hash_key(key, index.seed), |at| self.is_at(at, key))?;
                self.last.set(at);
                at
            }
        };
        if let Value::Str(text) = key {
            text.place().set(at as u32);
        }
        Some(at)
    }

    #[inline(always)]
    fn is_at(&self, at: usize, key: &Value) -> bool {
        same_key(self.keys[at].value(), key)
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.position(key).map(|at| &self.values[at])
    }

    /// The value of a key, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: &Value) -> Option<&mut Value> {
        self.position(key).map(|at| &mut self.values[at])
    }

    /// Sets the value of a key and returns the old one. An existing key is kept.
    ///
    /// # Errors
    /// If the VM must stop while a large index grows; then nothing has changed.
    pub fn insert(&mut self, key: Key, value: Value) -> Result<Option<Value>> {
        if let Some(slot) = self.get_mut(key.value()) {
            return Ok(Some(std::mem::replace(slot, value)));
        }
        reserve(&mut self.keys, 1)?;
        reserve(&mut self.values, 1)?;
        self.keys.push(key);
        self.values.push(value);
        if !self.enter() && !self.rebuild(true) {
            if let Err(error) = stopped() {
                self.keys.pop();
                self.values.pop();
                return Err(error);
            }
            self.rebuild(false);
        }
        Ok(None)
    }

    /// Adds an entry with a new int key if that needs no allocation; otherwise returns false and changes
    /// nothing.
    #[inline]
    pub(super) fn add_int(&mut self, key: &Value, value: &Value) -> bool {
        if self.is_full() {
            return false;
        }
        let Ok(key) = Key::new(key) else { return false };
        self.keys.push(key);
        let entered = self.enter();
        match entered {
            true => self.values.push(value.clone()),
            false => drop(self.keys.pop()),
        }
        entered
    }

    /// Removes the entry of a key; later entries move up.
    pub fn remove(&mut self, key: &Value) -> Option<(Key, Value)> {
        let at = self.position(key)?;
        self.removals = self.removals.wrapping_add(1);
        match &mut self.index {
            Index::Few => {}
            Index::Direct(places) => {
                for (i, key) in self.keys.iter().enumerate().skip(at) {
                    if let Some(place) = whole(key.value()).and_then(|i| places.get_mut(i as usize)) {
                        *place = if i == at { 0 } else { *place - 1 };
                    }
                }
            }
            Index::Hashed(index) => {
                let seed = index.seed;
                let hash = |key: &Key| hash_key(key.value(), seed);
                index.remove(at, hash(&self.keys[at]));
                let after = &self.keys[at + 1..];
                match after.len() * 8 < index.slots.len() {
                    true => (at + 1..).zip(after).for_each(|(i, key)| index.lower(i, hash(key))),
                    false => index.lower_all(at),
                }
            }
        }
        Some((self.keys.remove(at), self.values.remove(at)))
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let index = match &self.index {
            Index::Few => 0,
            Index::Direct(places) => size_of::<u32>() * places.len(),
            Index::Hashed(index) => size_of::<u64>() * index.slots.len(),
        };
        size_of::<Key>() * self.keys.capacity() + size_of::<Value>() * self.values.capacity() + index
    }

    /// Estimated bytes for one more entry; `None` when the table is at its maximum size.
    pub(super) fn growth(&self) -> Option<usize> {
        let entry = size_of::<(Key, Value)>();
        (self.len() < u32::MAX as usize - 1)
            .then(|| if self.is_full() { self.bytes() + 4 * entry } else { entry })
    }

    fn is_full(&self) -> bool {
        self.keys.len() == self.keys.capacity() || self.values.len() == self.values.capacity()
    }

    /// Adds the last key to the index; false if the index has no room.
    #[inline(always)]
    fn enter(&mut self) -> bool {
        let Some(key) = self.keys.last() else { return true };
        let count = self.keys.len();
        if let Value::Str(text) = key.value() {
            text.place().set(count as u32 - 1);
        }
        match &mut self.index {
            Index::Few => count <= MAX_UNINDEXED,
            Index::Direct(places) => {
                let int = match key.value() {
                    Value::Int(i) => Some(*i),
                    other => whole(other),
                };
                let place = int.and_then(|i| places.get_mut(usize::try_from(i).ok()?));
                place.map(|place| *place = count as u32).is_some()
            }
            Index::Hashed(index) => {
                let room = 2 * count <= index.slots.len();
                if room {
                    index.add(hash_key(key.value(), index.seed), count);
                }
                room
            }
        }
    }

    /// Rebuilds the index with room for more entries. False if `may_end` is set and the VM must stop; then the
    /// index is unchanged.
    #[cold]
    #[inline(never)]
    fn rebuild(&mut self, may_end: bool) -> bool {
        let ends = |at: usize| {
            may_end && at % ENTRIES_PER_CHECK == ENTRIES_PER_CHECK - 1 && stop::reason().is_some()
        };
        let slots = (2 * self.len()).next_power_of_two();
        if let Some(most) = self.greatest(2 * slots) {
            let mut places = vec![0; slots.max(most + 1)].into_boxed_slice();
            for (i, key) in self.keys.iter().enumerate() {
                if ends(i) {
                    return false;
                }
                if let Some(place) = whole(key.value()).and_then(|int| places.get_mut(int as usize)) {
                    *place = i as u32 + 1;
                }
            }
            self.index = Index::Direct(places);
            return true;
        }
        let mut index = Hashed {
            slots: vec![0; slots].into_boxed_slice(),
            shift: 32_u32.saturating_sub(slots.trailing_zeros()),
            seed: seed(),
        };
        let mut from = 0;
        // Reuse the hashes of existing entries.
        if let Index::Hashed(old) = &self.index {
            for (at, &slot) in old.slots.iter().enumerate() {
                if ends(at) {
                    return false;
                }
                if slot != 0 {
                    index.take(slot);
                }
            }
            from = self.len() - 1;
        }
        for (i, key) in self.keys.iter().enumerate().skip(from) {
            if ends(i) {
                return false;
            }
            index.add(hash_key(key.value(), index.seed), i + 1);
        }
        self.index = Index::Hashed(index);
        true
    }

    /// The maximum key, if all keys are integers from 0 to below `end`.
    fn greatest(&self, end: usize) -> Option<usize> {
        let int = |key: &Key| usize::try_from(whole(key.value())?).ok().filter(|i| *i < end);
        self.keys.iter().try_fold(0, |most, key| Some(int(key)?.max(most)))
    }
}

#[inline(always)]
fn direct(places: &[u32], int: i64) -> Option<usize> {
    match places.get(usize::try_from(int).ok()?) {
        Some(&place) if place != 0 => Some(place as usize - 1),
        _ => None,
    }
}

/// The hash in a used slot.
fn hash_in(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// The position in a used slot.
fn position_in(slot: u64) -> usize {
    slot as u32 as usize - 1
}

impl Hashed {
    fn first(&self, hash: u32) -> usize {
        (u64::from(hash) >> self.shift) as usize
    }

    /// The slot and position of the entry with this hash for which `is_it` holds.
    #[inline(always)]
    fn find(&self, hash: u32, is_it: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        let mask = self.slots.len() - 1;
        let mut i = self.first(hash);
        loop {
            let slot = self.slots[i & mask];
            if slot == 0 {
                return None;
            }
            if hash_in(slot) == hash && is_it(position_in(slot)) {
                return Some((i & mask, position_in(slot)));
            }
            i += 1;
        }
    }

    /// Adds a position (plus one) under this hash. A slot must be free.
    fn add(&mut self, hash: u32, position: usize) {
        self.take(u64::from(hash) << 32 | position as u64);
    }

    /// Writes a slot value into a free slot.
    #[inline(always)]
    fn take(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut i = self.first(hash_in(slot)) & mask;
        while self.slots[i] != 0 {
            i = (i + 1) & mask;
        }
        self.slots[i] = slot;
    }

    /// Removes the entry with this hash and position.
    fn remove(&mut self, at: usize, hash: u32) {
        let Some((mut hole, _)) = self.find(hash, |position| position == at) else { return };
        let mask = self.slots.len() - 1;
        let mut i = hole;
        loop {
            i = (i + 1) & mask;
            let slot = self.slots[i];
            if slot == 0 {
                break;
            }
            // Move an entry into the hole if the hole lies between its first slot and its slot.
            let from_first = i.wrapping_sub(self.first(hash_in(slot))) & mask;
            if from_first >= i.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = i;
            }
        }
        self.slots[hole] = 0;
    }

    /// Decrements the position of the entry with this hash.
    fn lower(&mut self, at: usize, hash: u32) {
        if let Some((i, _)) = self.find(hash, |position| position == at) {
            self.slots[i] -= 1;
        }
    }

    /// Decrements all positions after `at`.
    fn lower_all(&mut self, at: usize) {
        let later = |slot: &&mut u64| **slot != 0 && position_in(**slot) > at;
        self.slots.iter_mut().filter(later).for_each(|slot| *slot -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &Value) -> Key {
        Key::new(value).unwrap()
    }

    /// The same entries in a plain list.
    struct Plain(Vec<(Value, i64)>);

    impl Plain {
        fn at(&self, key: &Value) -> Option<usize> {
            self.0.iter().position(|(own, _)| same_key(own, key))
        }
    }

    fn check(keys: &[Value], removed: impl Fn(usize) -> bool) {
        let (mut table, mut plain) = (Table::default(), Plain(Vec::new()));
        for (round, k) in keys.iter().enumerate() {
            let round = round as i64;
            if removed(round as usize) {
                let found = table.remove(k).map(|(_, value)| value.as_int());
                let expected = plain.at(k).map(|at| Some(plain.0.remove(at).1));
                assert_eq!(found, expected);
            } else {
                let found = table.insert(key(k), Value::Int(round)).unwrap().map(|value| value.as_int());
                let expected = match plain.at(k) {
                    Some(at) => Some(Some(std::mem::replace(&mut plain.0[at].1, round))),
                    None => {
                        plain.0.push((k.clone(), round));
                        None
                    }
                };
                assert_eq!(found, expected);
            }
        }
        assert_eq!(table.len(), plain.0.len());
        for (i, ((own, value), (expected, number))) in table.iter().zip(&plain.0).enumerate() {
            assert!(same_key(own.value(), expected) && value.as_int() == Some(*number));
            assert_eq!(table.position(expected), Some(i));
        }
        for k in keys {
            assert_eq!(table.position(k), plain.at(k));
        }
    }

    #[test]
    fn tables_keep_insertion_order_for_all_keys() {
        let mut state = 7_u64;
        let mut next = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        let count = if cfg!(miri) { 60 } else { 600 };
        let mut kinds: Vec<Vec<Value>> = vec![
            (0..count).map(|_| Value::Int(next(400) as i64)).collect(),
            (0..count).map(|_| Value::Int(next(1 << 40) as i64 - (1 << 39))).collect(),
            (0..count).map(|_| Value::str(format!("key{}", next(300)))).collect(),
            (0..count).map(|_| Value::Float(next(300) as f64 / 2.0)).collect(),
            (0..count).map(|i| Value::Int(i * 7919 % 300)).collect(),
            (0..count).map(|i| Value::Int((i * 7919 % 300) << 32)).collect(),
        ];
        kinds.push((0..count).map(|i| kinds[next(6) as usize][i as usize].clone()).collect());
        for keys in &kinds {
            check(keys, |_| false);
            check(keys, |round| round % 3 == 2);
            check(keys, move |round| round > count as usize * 2 / 3 && round % 2 == 0);
        }
    }

    #[test]
    fn small_ints_are_their_own_places() {
        let mut table = Table::default();
        for i in (0..1000).rev() {
            table.insert(key(&Value::Int(i)), Value::None).unwrap();
        }
        assert!(matches!(table.index, Index::Direct(_)));
        table.insert(key(&Value::Int(-1)), Value::None).unwrap();
        assert!(matches!(table.index, Index::Hashed(_)));
        assert_eq!(
            (table.position(&Value::Int(999)), table.position(&Value::Int(-1))),
            (Some(0), Some(1000))
        );
    }

    #[test]
    fn keys_chosen_to_share_low_or_high_bits_spread() {
        for shift in [0, 8, 20, 32, 43] {
            let mut table = Table::default();
            for i in 0..if cfg!(miri) { 500 } else { 20_000_i64 } {
                table.insert(key(&Value::Int((i << shift) - 7)), Value::None).unwrap();
            }
            let Index::Hashed(index) = &table.index else { panic!("negative keys are hashed") };
            let longest = index.slots.split(|slot| *slot == 0).map(<[u64]>::len).max();
            assert!(longest < Some(400), "{longest:?} slots in a row are taken");
        }
    }

    #[test]
    fn interrupted_growth_leaves_a_table_unchanged() {
        use std::sync::Arc;
        use std::sync::atomic::AtomicBool;
        for factor in [1, 7919] {
            let stopped = || stop::Stop { flag: Arc::new(AtomicBool::new(true)), deadline: None };
            let mut table = Table::default();
            let mut ended = 0;
            for i in 0..200_000 {
                let int = Value::Int(i * factor);
                if stop::under(stopped(), || table.insert(key(&int), Value::None)).is_err() {
                    ended += 1;
                    assert!(table.len() as i64 == i && table.position(&int).is_none());
                    table.insert(key(&int), Value::None).unwrap();
                }
                assert_eq!(table.position(&int), Some(i as usize));
            }
            assert!(ended > 0 && table.position(&Value::Int(0)) == Some(0));
            assert!((0..200_000).all(|i| table.position(&Value::Int(i * factor)) == Some(i as usize)));
        }
    }
}
