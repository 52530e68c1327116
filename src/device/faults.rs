//! Which operation a launch belongs to, so that a fault is raised at the line that launched it.

use super::error;
use crate::base::{Error, Span};
use crate::kernel::Fault;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;

/// How many launches are remembered: far more than wait on a device at a time.
const REMEMBERED: u32 = 4096;

/// Tags from here on belong to launches of graphs, which are remembered for good.
const KEPT: u32 = 1 << 31;

/// The launches of one device that may report a fault: the last few thousand of them, and those of
/// graphs, each place in the source once.
#[derive(Default)]
pub(super) struct Faults {
    recent: Mutex<Recent>,
    kept: Mutex<Vec<Suspect>>,
}

#[derive(Default)]
struct Recent {
    /// Of the last tag; tags count up, skipping 0.
    last: u32,
    /// By tag modulo the size.
    ring: Vec<Suspect>,
}

/// Where the indices of a launch stand among the elements of its shape: the extents, last first, and
/// whether an index of its own belongs to each position along one.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Indices(SmallVec<[(u64, bool); 4]>);

impl Indices {
    /// Those that a view with these strides reads.
    pub fn of(shape: &[usize], strides: &[isize]) -> Indices {
        let dims = shape.iter().zip(strides).rev();
        Indices(dims.map(|(&extent, &stride)| (extent.max(1) as u64, stride != 0)).collect())
    }

    /// The number of the index, row-major, that was used for the element at a row-major position.
    fn number(&self, mut position: u64) -> u64 {
        let (mut number, mut scale) = (0u64, 1u64);
        for &(extent, own) in &self.0 {
            if own {
                number = number.saturating_add((position % extent).saturating_mul(scale));
                scale = scale.saturating_mul(extent);
            }
            position /= extent;
        }
        if self.0.is_empty() { position } else { number }
    }
}

#[derive(Clone)]
struct Suspect {
    tag: u32,
    name: &'static str,
    span: Span,
    extent: usize,
    indices: Indices,
    /// What an assertion says; its faults are no indices.
    text: Option<Arc<str>>,
}

impl Faults {
    pub(super) fn tag(&self, name: &'static str, span: Span, extent: usize, indices: Indices) -> u32 {
        self.remember(Suspect { tag: 0, name, span, extent, indices, text: None })
    }

    pub(super) fn tag_assertion(&self, name: &'static str, span: Span, text: Arc<str>) -> u32 {
        self.remember(Suspect {
            tag: 0,
            name,
            span,
            extent: 1,
            indices: Indices::default(),
            text: Some(text),
        })
    }

    fn remember(&self, suspect: Suspect) -> u32 {
        let mut recent = self.recent.lock();
        recent.last = if recent.last + 1 < KEPT { recent.last + 1 } else { 1 };
        let suspect = Suspect { tag: recent.last, ..suspect };
        let index = (recent.last % REMEMBERED) as usize;
        if recent.ring.len() <= index {
            let indices = Indices::default();
            let nobody = Suspect { tag: 0, name: "", span: Span::NONE, extent: 0, indices, text: None };
            recent.ring.resize(index + 1, nobody);
        }
        recent.ring[index] = suspect;
        recent.last
    }

    /// A tag for a launch that a graph repeats.
    pub(super) fn keep(
        &self,
        name: &'static str,
        span: Span,
        extent: usize,
        indices: Indices,
        text: Option<Arc<str>>,
    ) -> u32 {
        let mut kept = self.kept.lock();
        let same = |s: &Suspect| {
            (s.name, s.span, s.extent, &s.indices, &s.text) == (name, span, extent, &indices, &text)
        };
        let tag = kept.iter().find(|s| same(s)).map(|s| s.tag);
        tag.unwrap_or_else(|| {
            let tag = KEPT | kept.len() as u32;
            kept.push(Suspect { tag, name, span, extent, indices, text });
            tag
        })
    }

    pub(super) fn error(&self, fault: Fault) -> Error {
        let suspect = match fault.tag & KEPT {
            0 => self.recent.lock().ring.get((fault.tag % REMEMBERED) as usize).cloned(),
            _ => self.kept.lock().get((fault.tag & !KEPT) as usize).cloned(),
        };
        match suspect.filter(|s| s.tag == fault.tag) {
            Some(Suspect { text: Some(text), span, .. }) => error::assertion_failed(&text, span),
            Some(s) => {
                let number = s.indices.number(fault.position);
                error::bad_index_on_device(fault.value, s.extent, s.name, number, s.span)
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
        let faults = Faults::default();
        let rows = Indices::of(&[4, 3], &[1, 0]);
        let tag = faults.tag("gather", Span::new(4, 9), 5, rows.clone());
        faults.tag("gather", Span::new(20, 29), 6, Indices::default());
        let error = faults.error(Fault { tag, position: 3, value: 7 });
        assert_eq!(error.message(), "index 7 is out of range for a dimension of size 5 in `gather`");
        assert_eq!(error.span(), Span::new(4, 9));
        assert_eq!(error.labels()[0].text, "this was given the index 7, at position 1 of the indices");
        let kept = faults.keep("scatter", Span::new(30, 39), 7, rows.clone(), None);
        assert_eq!(kept, faults.keep("scatter", Span::new(30, 39), 7, rows.clone(), None));
        for _ in 0..REMEMBERED {
            faults.tag("gather", Span::NONE, 1, Indices::default());
        }
        assert_eq!(faults.error(Fault { tag: kept, position: 0, value: 9 }).span(), Span::new(30, 39));
        assert!(faults.error(Fault { tag, position: 3, value: 7 }).labels().is_empty());
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
    }
}
