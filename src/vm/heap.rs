//! The script heap: lists, tuples, records, dicts, ranges, errors, captured variables.
//!
//! Values are reference-counted (`Rc`) and belong to one VM, whose account is charged for their bytes
//! ([`charge_values`]). A container that receives a value which may refer back to it is registered with
//! [`cycles`].

use std::cell::{self, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;

use super::account::{charge, charge_values, drop_later, note, reserve};
use super::counted::FieldNames;
use super::cycles::{self, Mark};
use super::key::{Key, check_key};
use super::table::Table;
use super::text::Text;
use super::value::Value;
use super::values::Values;
use crate::base::{Error, Result};

const fn bytes(count: usize) -> isize {
    (count * std::mem::size_of::<Value>()) as isize
}

/// The size of a reference-counted value without its contents: the struct, its counts, and allocator
/// overhead.
pub(super) const fn head<T>() -> isize {
    (std::mem::size_of::<T>() + 24) as isize
}

/// A `list`: mutable, shared.
pub struct List {
    items: RefCell<Values>,
    mark: Mark,
}

impl List {
    /// A list with these elements.
    pub fn new(items: impl Into<Values>) -> List {
        let items = items.into();
        note(head::<List>() + bytes(items.capacity()));
        List { items: RefCell::new(items), mark: Mark::default() }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Borrows the elements. No script code may run while the borrow lives.
    #[inline]
    pub fn borrow(&self) -> cell::Ref<'_, Values> {
        self.items.borrow()
    }

    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Takes the elements, unless they are borrowed.
    pub(super) fn try_take(&self) -> Values {
        match self.items.try_borrow_mut() {
            Ok(mut items) => {
                note(-bytes(items.capacity()));
                std::mem::take(&mut *items)
            }
            Err(_) => Values::new(),
        }
    }

    /// Borrows the elements, unless they are mutably borrowed.
    pub(super) fn try_borrow(&self) -> Option<cell::Ref<'_, Values>> {
        self.items.try_borrow().ok()
    }

    /// A copy of the elements.
    pub fn to_vec(&self) -> Values {
        self.items.borrow().clone()
    }

    /// The n-th element.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Value> {
        self.items.borrow().get(index).cloned()
    }

    /// A pointer to the n-th element; valid while the list is alive and unchanged.
    #[inline]
    pub(super) fn at(&self, index: i64) -> Option<*const Value> {
        // SAFETY: nothing changes the list during this call.
        let items = unsafe { self.items.try_borrow_unguarded() }.ok()?;
        items.get(usize::try_from(index).ok()?).map(std::ptr::from_ref)
    }

    /// A mutable pointer to the n-th element; valid while the list is alive and unchanged. A value written
    /// there must be passed to [`List::given`].
    #[inline]
    pub(super) fn slot(&self, index: i64) -> Option<*mut Value> {
        let mut items = self.items.try_borrow_mut().ok()?;
        items.get_mut(usize::try_from(index).ok()?).map(|value| value as *mut Value)
    }

    /// Records that a script stores a value that may refer back to the list.
    #[inline]
    pub(super) fn note_stored(self: &Rc<Self>, value: &Value) {
        if value.links() && self.mark.set() {
            cycles::note(Rc::downgrade(self).into());
        }
    }

    /// Replaces the n-th element; false if there is none.
    pub fn set(self: &Rc<Self>, index: usize, value: Value) -> bool {
        self.note_stored(&value);
        let old = match self.items.borrow_mut().get_mut(index) {
            Some(slot) => std::mem::replace(slot, value),
            None => return false,
        };
        drop(old);
        true
    }

    /// Appends.
    pub fn push(self: &Rc<Self>, value: Value) -> Result<()> {
        self.note_stored(&value);
        let mut items = self.items.borrow_mut();
        if items.len() == items.capacity() {
            charge_values(items.len().max(4) * 2)?;
            let before = items.capacity();
            reserve(&mut items, 1)?;
            note(bytes(items.capacity() - before));
            items.push(value);
        } else {
            items.push(value);
        }
        Ok(())
    }

    /// Appends all items.
    pub fn extend(self: &Rc<Self>, items: Values) -> Result<()> {
        charge_values(items.len())?;
        self.change(|all| reserve(all, items.len()))?;
        items.iter().for_each(|item| self.note_stored(item));
        self.change(|all| all.extend(items));
        Ok(())
    }

    /// Inserts a value before the n-th element, or at the end.
    pub fn insert(self: &Rc<Self>, index: usize, value: Value) -> Result<()> {
        charge_values(1)?;
        self.change(|all| reserve(all, 1))?;
        self.note_stored(&value);
        let at = index.min(self.len());
        self.change(|all| all.insert(at, value));
        Ok(())
    }

    /// Replaces a range of values and returns the old ones.
    pub fn splice(self: &Rc<Self>, range: std::ops::Range<usize>, items: Values) -> Result<Values> {
        charge_values(items.len())?;
        self.change(|all| reserve(all, items.len().saturating_sub(range.len())))?;
        items.iter().for_each(|item| self.note_stored(item));
        Ok(self.change(|all| all.splice(range, items).collect()))
    }

    /// Appends a copy of a value without reallocation; returns false if that is not possible.
    #[inline]
    pub fn push_in_room(self: &Rc<Self>, value: &Value) -> bool {
        self.note_stored(value);
        let Ok(mut items) = self.items.try_borrow_mut() else { return false };
        let room = items.len() < items.capacity();
        if room {
            items.push(value.clone());
        }
        room
    }

    /// Removes and returns the last element.
    #[inline]
    pub fn pop(&self) -> Option<Value> {
        self.items.try_borrow_mut().ok()?.pop()
    }

    /// Changes the list in place. `change` must not run script code, and must not add values from elsewhere
    /// (unless no script has seen the list yet). Growth is charged.
    pub fn change<T>(&self, change: impl FnOnce(&mut Values) -> T) -> T {
        let mut items = self.items.borrow_mut();
        let before = bytes(items.capacity());
        let result = change(&mut items);
        note(bytes(items.capacity()) - before);
        result
    }
}

impl Drop for List {
    fn drop(&mut self) {
        note(-head::<List>() - bytes(self.items.get_mut().capacity()));
    }
}

/// A `tuple`: immutable.
pub struct Tuple {
    items: Items,
}

/// The elements of a tuple; pairs are stored inline.
type Items = SmallVec<[Value; 2]>;

/// Number of elements stored out of line.
fn heap_slots(items: &Items) -> usize {
    if items.spilled() { items.capacity() } else { 0 }
}

impl Tuple {
    /// A tuple with these elements.
    pub fn new(items: impl Into<Items>) -> Tuple {
        let items = items.into();
        note(head::<Tuple>() + bytes(heap_slots(&items)));
        Tuple { items }
    }

    /// The elements.
    #[inline]
    pub fn items(&self) -> &[Value] {
        &self.items
    }
}

impl Drop for Tuple {
    fn drop(&mut self) {
        note(-head::<Tuple>() - bytes(heap_slots(&self.items)));
        if self.items.iter().any(|v| !v.is_plain()) {
            drop_later(std::mem::take(&mut self.items).into_iter());
        }
    }
}

/// The field names shared by all records created at one source position.
pub type Names = Rc<FieldNames>;

/// A `record`: a tuple with names, immutable.
///
/// Invariant: as many values as names; names are unique.
pub struct Record {
    names: Names,
    values: Values,
}

impl Record {
    /// A record; `values` belong to `names` in order.
    pub fn new(names: Names, values: impl Into<Values>) -> Record {
        let values = values.into();
        note(head::<Record>() + bytes(values.capacity()));
        Record { names, values }
    }

    /// The field names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The position of a field.
    #[inline]
    pub fn position(&self, name: &str) -> Option<usize> {
        let same = |n: &Rc<str>| std::ptr::eq(n.as_ptr(), name.as_ptr()) || **n == *name;
        self.names.iter().position(same)
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).map(|at| &self.values[at])
    }

    /// The layers of a record that `nn.sequential` made: indices of it and `len` refer to them, as in PyTorch.
    pub fn layers(&self) -> Option<&Rc<List>> {
        match (self.get("kind")?, self.get("layers")?) {
            (Value::Str(kind), Value::List(layers)) if kind.as_str() == "sequential" => Some(layers),
            _ => None,
        }
    }

    /// The names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&Rc<str>, &Value)> {
        self.names.iter().zip(&self.values)
    }

    /// The record with the fields of `other` replaced or added.
    pub fn merged(&self, other: &Record) -> Record {
        let mut values = self.values.clone();
        let mut added: Vec<Rc<str>> = Vec::new();
        for (name, value) in other.fields() {
            match self.position(name) {
                Some(at) => values[at] = value.clone(),
                None => {
                    added.push(Rc::clone(name));
                    values.push(value.clone());
                }
            }
        }
        if added.is_empty() {
            return Record::new(Rc::clone(&self.names), values);
        }
        Record::new(FieldNames::shared(self.names.iter().cloned().chain(added).collect()), values)
    }

    /// Replaces a field's value in place; only for a record without other owners.
    pub(super) fn replace(&mut self, at: usize, value: Value) {
        self.values[at] = value;
    }
}

impl Clone for Record {
    fn clone(&self) -> Record {
        Record::new(Rc::clone(&self.names), self.values.clone())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        note(-head::<Record>() - bytes(self.values.capacity()));
    }
}

/// A `dict`: mutable, shared.
pub struct Dict {
    table: RefCell<Table>,
    mark: Mark,
}

impl Default for Dict {
    fn default() -> Dict {
        note(head::<Dict>());
        Dict { table: RefCell::default(), mark: Mark::default() }
    }
}

impl Dict {
    /// An empty dict.
    pub fn empty() -> Rc<Dict> {
        Rc::default()
    }

    /// Borrows the table. No script code may run while the borrow lives.
    pub fn borrow(&self) -> cell::Ref<'_, Table> {
        self.table.borrow()
    }

    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Takes the table, unless it is borrowed.
    pub(super) fn try_take(&self) -> Table {
        match self.table.try_borrow_mut() {
            Ok(mut table) => {
                note(-(table.bytes() as isize));
                std::mem::take(&mut *table)
            }
            Err(_) => Table::default(),
        }
    }

    /// Borrows the table, unless it is mutably borrowed.
    pub(super) fn try_borrow(&self) -> Option<cell::Ref<'_, Table>> {
        self.table.try_borrow().ok()
    }

    /// Records that a script stores a value that may refer back to the dict.
    #[inline]
    pub(super) fn note_stored(self: &Rc<Self>, value: &Value) {
        if value.links() && self.mark.set() {
            cycles::note(Rc::downgrade(self).into());
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The value cannot be a key.
    pub fn get(&self, key: &Value) -> Result<Option<Value>> {
        check_key(key)?;
        Ok(self.table.borrow().get(key).cloned())
    }

    /// Returns whether it has a key.
    ///
    /// # Errors
    /// The value cannot be a key.
    pub fn has(&self, key: &Value) -> Result<bool> {
        check_key(key)?;
        Ok(self.table.borrow().position(key).is_some())
    }

    /// A pointer to the value of a key, for reading; valid while the dict is alive and unchanged. `None` if
    /// the key is missing or invalid.
    #[inline]
    pub(super) fn at(&self, key: &Value) -> Option<*const Value> {
        // SAFETY: nothing changes the dict during this call.
        let table = unsafe { self.table.try_borrow_unguarded() }.ok()?;
        table.get(key).map(std::ptr::from_ref)
    }

    /// Returns whether it has an int key; `None` if the fast path cannot tell.
    #[inline(always)]
    pub(super) fn has_int(&self, int: i64) -> Option<bool> {
        // SAFETY: nothing changes the dict during this call.
        let table = unsafe { self.table.try_borrow_unguarded() }.ok()?;
        table.direct(int).map(|at| at.is_some())
    }

    /// [`Dict::slot`] for an int that the fast path can find.
    #[inline(always)]
    pub(super) fn slot_int(&self, int: i64) -> Option<*mut Value> {
        let mut table = self.table.try_borrow_mut().ok()?;
        let at = table.direct(int)??;
        table.value_mut(at).map(|value| value as *mut Value)
    }

    /// [`Dict::slot`] for a string that remembers its position.
    #[inline(always)]
    pub(super) fn slot_text(&self, text: &Rc<Text>) -> Option<*mut Value> {
        let mut table = self.table.try_borrow_mut().ok()?;
        let at = table.known(text)?;
        table.value_mut(at).map(|value| value as *mut Value)
    }

    /// [`Dict::at`] for writing. A value written there must be passed to [`Dict::given`].
    #[inline]
    pub(super) fn slot(&self, key: &Value) -> Option<*mut Value> {
        self.table.try_borrow_mut().ok()?.get_mut(key).map(|value| value as *mut Value)
    }

    /// Fast path: adds an entry with an int key and a plain value if there is room. Otherwise returns false
    /// and changes nothing.
    #[inline]
    pub(super) fn add_plain(&self, key: &Value, value: &Value) -> bool {
        let plain = matches!(key, Value::Int(_)) && value.is_plain();
        plain && self.table.try_borrow_mut().is_ok_and(|mut table| table.add_int(key, value))
    }

    /// Sets the value of a key to a copy of `value`.
    ///
    /// # Errors
    /// The value cannot be a key; limits.
    pub fn set(self: &Rc<Self>, key: &Value, value: &Value) -> Result<()> {
        check_key(key)?;
        self.note_stored(value);
        let mut table = self.table.borrow_mut();
        if let Some(slot) = table.get_mut(key) {
            let old = std::mem::replace(slot, value.clone());
            drop(table);
            drop(old);
            return Ok(());
        }
        drop(table);
        self.insert(Key::new(key)?, value.clone())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Limits.
    pub fn insert(self: &Rc<Self>, key: Key, value: Value) -> Result<()> {
        let growth = self.table.borrow().growth();
        charge(growth.unwrap_or(usize::MAX))?;
        self.note_stored(&value);
        let old = self.change(|table| table.insert(key, value))?;
        drop(old);
        Ok(())
    }

    /// Changes the dict in place. `change` must not run script code and must not add values from elsewhere.
    /// Growth is charged.
    pub fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.borrow_mut();
        let before = table.bytes();
        let result = change(&mut table);
        note(table.bytes() as isize - before as isize);
        result
    }
}

impl Drop for Dict {
    fn drop(&mut self) {
        note(-head::<Dict>() - self.table.get_mut().bytes() as isize);
    }
}

/// A `range`: half open, with a step; `None` is an open end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first element.
    pub start: Option<i64>,
    /// One past the last, in the step's direction.
    pub end: Option<i64>,
    /// Never zero.
    pub step: i64,
}

impl Range {
    /// The number of elements; `None` for an open end.
    pub fn count(&self) -> Option<usize> {
        Some(self.exact()?.min(i128::from(i64::MAX)) as usize)
    }

    fn exact(&self) -> Option<i128> {
        let (start, end) = (i128::from(self.start.unwrap_or(0)), i128::from(self.end?));
        let step = i128::from(self.step);
        let count = if step > 0 { (end - start + step - 1) / step } else { (start - end - step - 1) / -step };
        Some(count.max(0))
    }

    /// True if no int holds the number of elements. [`Range::count`] is the largest int then.
    pub fn is_too_long(&self) -> bool {
        self.exact().is_some_and(|count| count > i128::from(i64::MAX))
    }

    /// The n-th element; `None` past the end or if it does not fit an int.
    pub fn get(&self, index: usize) -> Option<i64> {
        if self.count().is_some_and(|len| index >= len) {
            return None;
        }
        i64::try_from(index).ok()?.checked_mul(self.step)?.checked_add(self.start.unwrap_or(0))
    }

    /// The subrange selected by a slice: `(0..10 by 2)[1..3]` is `2..6 by 2`. `None` if the bounds or the
    /// step do not fit ints.
    pub fn part(&self, slice: &Range) -> Option<Range> {
        if self.is_too_long() {
            return None;
        }
        let step = self.step.checked_mul(slice.step)?;
        let nth =
            |n: i128| i64::try_from(i128::from(self.start.unwrap_or(0)) + n * i128::from(self.step)).ok();
        let Some(length) = self.count() else {
            // With an open end, positions count only from the start.
            let first = i128::from(slice.start.unwrap_or(0).max(0));
            if slice.end.is_none() && slice.step > 0 {
                return Some(Range { start: Some(nth(first)?), end: None, step });
            }
            let last = i128::from(slice.end?.max(0));
            let end = if slice.step > 0 { last.max(first) } else { last.min(first) };
            return Some(Range { start: Some(nth(first)?), end: Some(nth(end)?), step });
        };
        let (first, by, count) = slice.slice(length);
        let end = first as i128 + i128::from(by) * count as i128;
        Some(Range { start: Some(nth(first as i128)?), end: Some(nth(end)?), step })
    }

    /// Returns whether the range contains an int. As a pattern, `..5` has no lower bound.
    pub fn contains(&self, value: i64) -> bool {
        if let (None, Some(end), 1) = (self.start, self.end, self.step) {
            return value < end;
        }
        let (start, value, step) =
            (i128::from(self.start.unwrap_or(0)), i128::from(value), i128::from(self.step));
        let inside = match (self.end.map(i128::from), step > 0) {
            (Some(end), true) => value >= start && value < end,
            (Some(end), false) => value <= start && value > end,
            (None, true) => value >= start,
            (None, false) => value <= start,
        };
        inside && (value - start) % step == 0
    }

    /// Start, step and count of the positions selected in a sequence of `length`, as in Python's slices:
    /// negative bounds count from the end, and bounds are clamped.
    pub fn slice(&self, length: usize) -> (usize, i64, usize) {
        let n = i128::from(i64::try_from(length).unwrap_or(i64::MAX));
        let step = i128::from(self.step);
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let clamp = |end: Option<i64>, open: i128| match end.map(i128::from) {
            None => open,
            Some(end) if end < 0 => (end + n).clamp(low, high),
            Some(end) => end.clamp(low, high),
        };
        let (start, end) = if step > 0 {
            (clamp(self.start, 0), clamp(self.end, n))
        } else {
            (clamp(self.start, n - 1), clamp(self.end, -1))
        };
        let count = if step > 0 { (end - start + step - 1) / step } else { (start - end - step - 1) / -step };
        (start.max(0) as usize, self.step, count.clamp(0, n) as usize)
    }
}

/// A caught `error`.
pub struct ErrorValue {
    /// The error; `throw e` raises it again with its source positions.
    pub error: Error,
    /// The line where it happened, from 1; 0 when unknown.
    pub line: usize,
    /// The source that it points into.
    pub source: Option<std::sync::Arc<crate::base::Source>>,
    bytes: isize,
}

impl ErrorValue {
    /// A caught error.
    pub fn new(error: Error, line: usize, source: Option<std::sync::Arc<crate::base::Source>>) -> ErrorValue {
        /// Approximate size of labels, help and positions.
        const PARTS: isize = 800;
        let bytes = head::<ErrorValue>() + PARTS + error.message().len() as isize;
        note(bytes);
        ErrorValue { error, line, source, bytes }
    }
}

impl Drop for ErrorValue {
    fn drop(&mut self) {
        note(-self.bytes);
    }
}

/// A captured variable.
pub struct Cell {
    value: cell::UnsafeCell<Value>,
    mark: Mark,
}

impl Cell {
    /// A variable with this value.
    pub fn new(value: Value) -> Cell {
        note(head::<Cell>());
        Cell { value: cell::UnsafeCell::new(value), mark: Mark::default() }
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> Value {
        // SAFETY: the VM is single-threaded (`Cell` is not `Sync`), and no reference into the cell
        // outlives `get` or `set`; cloning a value runs no other code.
        unsafe { (*self.value.get()).clone() }
    }

    /// A pointer to the value.
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut Value {
        self.value.get()
    }

    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Sets the value.
    #[inline]
    pub fn set(self: &Rc<Self>, value: Value) {
        if value.links() && self.mark.set() {
            cycles::note(Rc::downgrade(self).into());
        }
        drop(self.replace(value));
    }

    /// Sets the value and returns the old one.
    #[inline]
    pub(super) fn replace(&self, value: Value) -> Value {
        // SAFETY: as in `get`. The old value is dropped after the reference is gone, because its destructor
        // may access this cell again.
        unsafe { std::mem::replace(&mut *self.value.get(), value) }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        note(-head::<Cell>());
        let value = std::mem::take(self.value.get_mut());
        if !value.is_plain() {
            drop_later(std::iter::once(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::live_bytes;
    use super::*;

    #[test]
    fn deep_structures_drop_without_deep_recursion() {
        let mut list = Value::list(vec![]);
        let mut tuple = Value::tuple(vec![]);
        for _ in 0..if cfg!(miri) { 500 } else { 500_000 } {
            list = Value::list(vec![list]);
            tuple = Value::Cell(Rc::new(Cell::new(Value::tuple(vec![tuple, Value::Int(1)]))));
        }
        drop((list, tuple));
    }

    #[test]
    fn list_growth_is_charged_and_released() {
        let before = live_bytes();
        let list = Rc::new(List::new(vec![]));
        (0..1000).for_each(|i| list.push(Value::Int(i)).unwrap());
        assert!(live_bytes() >= before + 16_000);
        drop(list);
        assert_eq!(live_bytes(), before);
    }

    #[test]
    fn growth_that_is_stopped_leaves_a_list_or_text_unchanged() {
        use super::super::account::charge_text;
        use crate::base::stop::{Stop, under};
        let stopped = || Stop { flag: std::sync::Arc::new(true.into()), deadline: None };
        let count = if cfg!(miri) { 1000 } else { 2_000_000 };
        let before = live_bytes();
        let list = Rc::new(List::new(vec![]));
        let mut ended = 0;
        for i in 0..count {
            let is_full = list.len() == list.borrow().capacity();
            let pushed = if is_full {
                under(stopped(), || list.push(Value::Int(i)))
            } else {
                list.push(Value::Int(i))
            };
            if pushed.is_err() {
                ended += 1;
                assert_eq!(list.len() as i64, i);
                list.push(Value::Int(i)).unwrap();
            }
        }
        assert!(ended > 0 || cfg!(miri));
        assert!(list.borrow().iter().zip(0..).all(|(value, i)| value.as_int() == Some(i)));
        drop(list);
        assert_eq!(live_bytes(), before);
        let mut text = "é".repeat(count as usize * 3);
        let long = text.clone();
        assert!(under(stopped(), || charge_text(&mut text, 1)).is_err() || cfg!(miri));
        assert_eq!(text, long);
        charge_text(&mut text, 1).unwrap();
        assert!(text == long && text.capacity() > text.len());
    }

    #[test]
    fn equal_numbers_are_one_key() {
        let dict = Dict::empty();
        for key in [Value::Int(1), Value::Float(1.0), Value::Bool(true)] {
            dict.insert(Key::new(&key).unwrap(), key).unwrap();
        }
        assert_eq!(dict.borrow().len(), 1);
        assert!(Key::new(&Value::list(vec![])).is_err());
    }

    #[test]
    fn ranges_count_and_slice_as_python_does() {
        let r = |start, end, step| Range { start, end, step };
        assert_eq!(r(Some(0), Some(10), 3).count(), Some(4));
        assert_eq!(r(Some(3), Some(0), -1).count(), Some(3));
        assert_eq!(r(Some(3), Some(0), 1).count(), Some(0));
        assert_eq!(r(Some(i64::MIN), Some(i64::MAX), 1).count(), Some((u64::MAX >> 1) as usize));
        assert_eq!(r(None, None, 1).slice(5), (0, 1, 5));
        assert_eq!(r(None, None, -1).slice(5), (4, -1, 5));
        assert_eq!(r(Some(-2), None, 1).slice(5), (3, 1, 2));
        assert_eq!(r(Some(1), Some(100), 2).slice(5), (1, 2, 2));
        assert_eq!(r(Some(9), None, 1).slice(5).2, 0);
        assert!(r(Some(10), Some(0), -5).contains(5) && !r(Some(10), Some(0), -5).contains(0));
    }
}
