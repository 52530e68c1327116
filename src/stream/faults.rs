//! Maps launches to operations, so that a fault is raised at the line that launched it.

use crate::base::{Error, Span};
use crate::driver::error;
use crate::kernel::Fault;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The number of remembered launches, far more than are ever pending on a device.
const REMEMBERED: u32 = 4096;

/// Tags from here on belong to launches of graphs, which are remembered forever.
const KEPT: u32 = 1 << 31;

/// The launches of one device that may report a fault: the last few thousand, and those of graphs, once per
/// source position.
#[derive(Default)]
pub(crate) struct Faults {
    recent: Mutex<Recent>,
    kept: Mutex<Vec<Suspect>>,
    /// A fault taken from the driver but not raised yet.
    held: Mutex<Option<Fault>>,
}

#[derive(Default)]
struct Recent {
    /// The last tag; tags count up, skipping 0.
    last: u32,
    /// Tags with their launches, indexed by tag modulo the size.
    ring: Vec<(u32, Suspect)>,
}

/// Maps the elements of a launch to its indices: the extents, last first, and whether the index differs along
/// each dimension.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Indices {
    dims: SmallVec<[(u64, bool); 4]>,
    /// Set if the launch is not over the shape of the indices.
    read: Option<Box<Read>>,
}

/// How a launch reads indices: its dimensions and the strides of the index in them, last first, the offset of its first
/// index, and extent and stride of each dimension along which the indices differ.
#[derive(Clone, PartialEq, Debug)]
struct Read {
    dims: SmallVec<[(u64, i64); 4]>,
    first: i64,
    own: SmallVec<[(u64, i64); 4]>,
}

impl Read {
    /// The row-major number of the index used for the element at a row-major position.
    fn number(&self, mut position: u64) -> u64 {
        let mut offset = self.first;
        for &(extent, stride) in &self.dims {
            offset += (position % extent) as i64 * stride;
            position /= extent;
        }
        let mut order: SmallVec<[usize; 4]> = (0..self.own.len()).collect();
        order.sort_by_key(|&d| std::cmp::Reverse(self.own[d].1));
        let mut at: SmallVec<[u64; 4]> = SmallVec::from_elem(0, self.own.len());
        for d in order {
            let (extent, stride) = self.own[d];
            at[d] = (offset / stride).clamp(0, extent as i64 - 1) as u64;
            offset -= at[d] as i64 * stride;
        }
        at.iter().zip(&self.own).fold(0, |number: u64, (&c, &(extent, _))| number.saturating_mul(extent) + c)
    }
}

impl Indices {
    /// The indices that a view with these strides reads.
    pub fn of(shape: &[usize], strides: &[isize]) -> Indices {
        let dims = shape.iter().zip(strides).rev();
        let dims = dims.map(|(&extent, &stride)| (extent.max(1) as u64, stride != 0)).collect();
        Indices { dims, read: None }
    }

    /// The indices that a launch over another shape reads: the strides of its view of the index, and the offset of its
    /// first index. `own` are extents and strides of the index itself.
    pub fn through(
        shape: &[usize],
        strides: &[isize],
        first: i64,
        own: impl Iterator<Item = (usize, isize)>,
    ) -> Indices {
        let dims = shape.iter().zip(strides).rev().map(|(&n, &s)| (n.max(1) as u64, s as i64)).collect();
        let own = own.filter(|&(extent, stride)| extent > 1 && stride > 0);
        let own = own.map(|(extent, stride)| (extent as u64, stride as i64)).collect();
        Indices { dims: SmallVec::new(), read: Some(Box::new(Read { dims, first, own })) }
    }

    /// The row-major number of the index used for the element at a row-major position.
    fn number(&self, mut position: u64) -> u64 {
        if let Some(read) = &self.read {
            return read.number(position);
        }
        let (mut number, mut scale) = (0u64, 1u64);
        for &(extent, own) in &self.dims {
            if own {
                number = number.saturating_add((position % extent).saturating_mul(scale));
                scale = scale.saturating_mul(extent);
            }
            position /= extent;
        }
        if self.dims.is_empty() { position } else { number }
    }
}

/// A launch that may report a fault.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Suspect {
    /// The operation.
    pub name: &'static str,
    /// The source that launched it.
    pub span: Span,
    /// The size of the dimension that its indices select from.
    pub extent: usize,
    /// The mapping of its elements to indices.
    pub indices: Indices,
    /// The meaning of a fault's value.
    pub meaning: Meaning,
}

/// Where an index may not count from the end, kernels subtract this from indices below 0. No dimension has that many
/// elements, so such an index is a fault.
pub const FROM_ZERO: i64 = 1 << 60;

/// The index that the program passed, for one that is a fault.
fn as_given(index: i64) -> i64 {
    if (-2 * FROM_ZERO..-FROM_ZERO).contains(&index) { index + FROM_ZERO } else { index }
}

/// The meaning of a fault's value.
#[derive(Clone, PartialEq, Default, Debug)]
pub enum Meaning {
    /// An index outside [`Suspect::extent`].
    #[default]
    Index,
    /// An index outside one of these extents, as [`Misplaced`] encodes it.
    Place(Arc<[usize]>),
    /// An assertion with this text fails.
    Assertion(Arc<str>),
}

/// An index outside its dimension, encoded as an offset below -2^62, which no tensor has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Misplaced {
    /// Its number among the indices of the subscript.
    pub number: usize,
    /// The index, at most [`Misplaced::GREATEST`] from 0.
    pub index: i64,
}

impl Misplaced {
    /// Indices farther from 0 are encoded as this.
    pub const GREATEST: i64 = (1 << 55) - 1;

    /// The encoding of index 0; add the index to it.
    pub fn base(number: usize) -> i64 {
        i64::MIN + ((number as i64) << 56) + (1 << 55)
    }

    /// Decodes the value that a kernel reports.
    fn of(value: i64) -> Misplaced {
        let bits = value.wrapping_sub(i64::MIN);
        Misplaced { number: (bits >> 56) as usize, index: (bits & ((1 << 56) - 1)) - (1 << 55) }
    }
}

impl Display for Misplaced {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let more = match self.index {
            Misplaced::GREATEST => " (or more)",
            i if i == -Misplaced::GREATEST => " (or less)",
            _ => "",
        };
        write!(f, "{}{more}", self.index)
    }
}

impl Faults {
    pub(crate) fn tag(&self, suspect: Suspect) -> u32 {
        let mut recent = self.recent.lock();
        recent.last = if recent.last + 1 < KEPT { recent.last + 1 } else { 1 };
        let tag = recent.last;
        let index = (tag % REMEMBERED) as usize;
        if recent.ring.len() <= index {
            recent.ring.resize(index + 1, (0, Suspect::default()));
        }
        recent.ring[index] = (tag, suspect);
        tag
    }

    /// A tag for a launch that a graph repeats.
    pub(crate) fn keep(&self, suspect: Suspect) -> u32 {
        let mut kept = self.kept.lock();
        let known = kept.iter().position(|s| *s == suspect);
        let number = known.unwrap_or_else(|| {
            kept.push(suspect);
            kept.len() - 1
        });
        KEPT | number as u32
    }

    /// The newest tag of a launch.
    pub(crate) fn newest(&self) -> u32 {
        self.recent.lock().last
    }

    /// Keeps a fault to be raised later, unless its launch is newer than tag `newest`.
    pub(crate) fn hold_until(&self, fault: Fault, newest: u32) {
        if fault.tag & KEPT != 0 || fault.tag <= newest {
            self.held.lock().get_or_insert(fault);
        }
    }

    /// Takes the fault that was kept.
    pub(crate) fn take_held(&self) -> Option<Fault> {
        self.held.lock().take()
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        let suspect = match fault.tag & KEPT {
            0 => {
                let recent = self.recent.lock();
                let remembered = recent.ring.get((fault.tag % REMEMBERED) as usize);
                remembered.filter(|(tag, _)| *tag == fault.tag).map(|(_, suspect)| suspect.clone())
            }
            _ => self.kept.lock().get((fault.tag & !KEPT) as usize).cloned(),
        };
        match suspect {
            Some(Suspect { meaning: Meaning::Assertion(text), span, .. }) => {
                error::assertion_failed(&text, span)
            }
            Some(s) => {
                let number = s.indices.number(fault.position);
                match &s.meaning {
                    Meaning::Place(extents) => {
                        let found = Misplaced::of(fault.value);
                        let extent = extents.get(found.number).copied().unwrap_or(s.extent);
                        error::bad_index_on_device(found, extent, s.name, number, s.span)
                    }
                    _ => error::bad_index_on_device(as_given(fault.value), s.extent, s.name, number, s.span),
                }
            }
            None => error::bad_index_of_unknown_launch(fault.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_raised_at_the_line_that_launched_it() {
        let suspect = |name, span, extent, indices: &Indices| Suspect {
            name,
            span,
            extent,
            indices: indices.clone(),
            meaning: Meaning::Index,
        };
        let faults = Faults::default();
        let rows = Indices::of(&[4, 3], &[1, 0]);
        let tag = faults.tag(suspect("gather", Span::new(4, 9), 5, &rows));
        faults.tag(suspect("gather", Span::new(20, 29), 6, &Indices::default()));
        let error = faults.error(Fault { tag, position: 3, value: 7 });
        assert_eq!(error.message(), "index 7 is out of range for a dimension of size 5 in `gather`");
        assert_eq!(error.span(), Span::new(4, 9));
        assert_eq!(error.labels()[0].text(), "this was given the index 7, at position 1 of the indices");
        let scatter = suspect("scatter", Span::new(30, 39), 7, &rows);
        let kept = faults.keep(scatter.clone());
        assert_eq!(kept, faults.keep(scatter));
        for _ in 0..REMEMBERED {
            faults.tag(suspect("gather", Span::NONE, 1, &Indices::default()));
        }
        assert_eq!(faults.error(Fault { tag: kept, position: 0, value: 9 }).span(), Span::new(30, 39));
        assert!(faults.error(Fault { tag, position: 3, value: 7 }).labels().is_empty());
    }

    #[test]
    fn an_index_out_of_its_dimension_is_reported_with_it() {
        let faults = Faults::default();
        let meaning = Meaning::Place(Arc::from([5, 6]));
        let tag = faults.tag(Suspect { name: "index", extent: 30, meaning, ..Suspect::default() });
        let far = Misplaced::GREATEST;
        for (number, index, extent, text) in [
            (0, 5, 5, "5"),
            (1, -7, 6, "-7"),
            (0, far - 1, 5, &(far - 1).to_string()),
            (1, far, 6, &format!("{far} (or more)")),
            (0, -far, 5, &format!("-{far} (or less)")),
        ] {
            let value = Misplaced::base(number) + index;
            assert!(value < -(1 << 62), "{value}");
            assert_eq!(Misplaced::of(value), Misplaced { number, index });
            let message = faults.error(Fault { tag, position: 0, value }).message().to_owned();
            let wanted = format!("index {text} is out of range for a dimension of size {extent} in `index`");
            assert_eq!(message, wanted);
        }
        // A subscript has at most 64 indices.
        assert!(Misplaced::base(63) + far < -(1 << 62));
    }

    #[test]
    fn faults_of_launches_that_were_given_up_are_forgotten() {
        let faults = Faults::default();
        let fault = |tag| Fault { tag, position: 0, value: 1 };
        let before = faults.tag(Suspect::default());
        let newest = faults.newest();
        let after = faults.tag(Suspect::default());
        faults.hold_until(fault(after), newest);
        assert_eq!(faults.take_held(), None);
        faults.hold_until(fault(before), newest);
        faults.hold_until(fault(KEPT | 3), newest);
        assert_eq!(faults.take_held(), Some(fault(before)));
        assert_eq!(faults.take_held(), None);
    }

    #[test]
    fn positions_are_those_of_the_indices() {
        let at = |shape: &[usize], strides: &[isize], position| Indices::of(shape, strides).number(position);
        assert_eq!(at(&[3, 4], &[1, 0], 8), 2);
        assert_eq!(at(&[4, 3], &[0, 1], 8), 2);
        assert_eq!(at(&[2, 5, 3], &[3, 0, 1], 29), 5);
        assert_eq!(at(&[2, 3], &[1, 2], 5), 5);
        assert_eq!(at(&[6], &[0], 5), 0);
        assert_eq!(at(&[], &[], 0), 0);
        // A transposed part of a matrix of indices, each for a row of four elements.
        let own = [(5, 3), (3, 1)].into_iter();
        let part = Indices::through(&[2, 4, 4], &[1, 3, 0], 3 + 1, own);
        assert_eq!(part.number(0), 4);
        assert_eq!(part.number(16 + 4 * 2 + 3), 4 + 1 + 6);
    }
}
