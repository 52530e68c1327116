//! Vectors of values whose release can be interrupted.

use std::ops::{Deref, DerefMut};

use super::account::drop_vec_later;
use super::value::Value;

/// Values that a VM's code owns while it builds or takes apart a container.
///
/// A plain vector drops all its elements at once. This type drops them as containers do, so that a VM that has been
/// told to stop returns at once, whatever values a native held.
#[derive(Default, Clone)]
pub struct Values(Vec<Value>);

impl Values {
    /// No values.
    pub const fn new() -> Values {
        Values(Vec::new())
    }

    /// No values, and room for `count`.
    pub fn with_capacity(count: usize) -> Values {
        Values(Vec::with_capacity(count))
    }

    /// The values as a plain vector, whose owner drops them.
    pub(super) fn into_vec(mut self) -> Vec<Value> {
        std::mem::take(&mut self.0)
    }
}

impl Deref for Values {
    type Target = Vec<Value>;

    #[inline(always)]
    fn deref(&self) -> &Vec<Value> {
        &self.0
    }
}

impl DerefMut for Values {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<Value> {
        &mut self.0
    }
}

impl Drop for Values {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            drop_vec_later(std::mem::take(&mut self.0));
        }
    }
}

impl From<Vec<Value>> for Values {
    fn from(values: Vec<Value>) -> Values {
        Values(values)
    }
}

impl<const N: usize> From<[Value; N]> for Values {
    fn from(values: [Value; N]) -> Values {
        Values(values.into())
    }
}

impl FromIterator<Value> for Values {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Values {
        // If the iterator panics, the values are dropped one by one.
        Values(values.into_iter().collect())
    }
}

impl Extend<Value> for Values {
    fn extend<I: IntoIterator<Item = Value>>(&mut self, values: I) {
        self.0.extend(values);
    }
}

impl<'a> IntoIterator for &'a Values {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Values {
    type Item = Value;
    type IntoIter = IntoValues;

    fn into_iter(self) -> IntoValues {
        IntoValues(self.into_vec().into_iter())
    }
}

/// The iterator of [`Values`]; the values that it has not yielded are dropped in the same way.
pub struct IntoValues(std::vec::IntoIter<Value>);

impl Iterator for IntoValues {
    type Item = Value;

    #[inline]
    fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for IntoValues {
    #[inline]
    fn next_back(&mut self) -> Option<Value> {
        self.0.next_back()
    }
}

impl ExactSizeIterator for IntoValues {}

impl Drop for IntoValues {
    fn drop(&mut self) {
        if self.0.len() > 0 {
            drop_vec_later(std::mem::take(&mut self.0).collect());
        }
    }
}
