//! Values of the heap that are counted as a whole: their bytes do not change while they live.

use std::rc::Rc;

use super::account::note;
use super::heap::{Names, head};

/// A value whose own bytes are counted while it lives.
pub struct Counted<T>(T);

impl<T> Counted<T> {
    /// The value, to be shared.
    pub fn shared(value: T) -> Rc<Counted<T>> {
        note(head::<T>());
        Rc::new(Counted(value))
    }
}

impl<T> std::ops::Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        note(-head::<T>());
    }
}

/// A list of field names.
pub struct FieldNames {
    names: Vec<Rc<str>>,
    bytes: isize,
}

impl FieldNames {
    /// The names, to be shared by records.
    pub fn shared(names: Vec<Rc<str>>) -> Names {
        /// The counts of a name, and allocator overhead.
        const HEAD: usize = 24;
        let text = |name: &Rc<str>| if Rc::strong_count(name) == 1 { name.len() + HEAD } else { 0 };
        let texts: usize = names.iter().map(text).sum();
        let bytes = head::<FieldNames>() + (names.capacity() * size_of::<Rc<str>>() + texts) as isize;
        note(bytes);
        Rc::new(FieldNames { names, bytes })
    }
}

impl std::ops::Deref for FieldNames {
    type Target = Vec<Rc<str>>;

    fn deref(&self) -> &Vec<Rc<str>> {
        &self.names
    }
}

impl Drop for FieldNames {
    fn drop(&mut self) {
        note(-self.bytes);
    }
}
