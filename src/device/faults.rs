//! Which operation a launch belongs to, so that a fault is raised at the line that launched it.

use super::error;
use crate::base::{Error, Span};
use crate::kernel::Fault;
use parking_lot::Mutex;
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

#[derive(Clone)]
struct Suspect {
    tag: u32,
    name: &'static str,
    span: Span,
    extent: usize,
    /// What an assertion says; its faults are no indices.
    text: Option<Arc<str>>,
}

impl Faults {
    pub(super) fn tag(&self, name: &'static str, span: Span, extent: usize) -> u32 {
        self.remember(Suspect { tag: 0, name, span, extent, text: None })
    }

    pub(super) fn tag_assertion(&self, name: &'static str, span: Span, text: Arc<str>) -> u32 {
        self.remember(Suspect { tag: 0, name, span, extent: 1, text: Some(text) })
    }

    fn remember(&self, suspect: Suspect) -> u32 {
        let mut recent = self.recent.lock();
        recent.last = if recent.last + 1 < KEPT { recent.last + 1 } else { 1 };
        let suspect = Suspect { tag: recent.last, ..suspect };
        let index = (recent.last % REMEMBERED) as usize;
        if recent.ring.len() <= index {
            let nobody = Suspect { tag: 0, name: "", span: Span::NONE, extent: 0, text: None };
            recent.ring.resize(index + 1, nobody);
        }
        recent.ring[index] = suspect;
        recent.last
    }

    /// A tag for a launch that a graph repeats.
    pub(super) fn keep(&self, name: &'static str, span: Span, extent: usize, text: Option<Arc<str>>) -> u32 {
        let mut kept = self.kept.lock();
        let same = |s: &Suspect| (s.name, s.span, s.extent, &s.text) == (name, span, extent, &text);
        let tag = kept.iter().find(|s| same(s)).map(|s| s.tag);
        tag.unwrap_or_else(|| {
            let tag = KEPT | kept.len() as u32;
            kept.push(Suspect { tag, name, span, extent, text });
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
            Some(s) => error::bad_index_on_device(fault.value, s.extent, s.name, fault.position, s.span),
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
        let tag = faults.tag("gather", Span::new(4, 9), 5);
        faults.tag("gather", Span::new(20, 29), 6);
        let error = faults.error(Fault { tag, position: 3, value: 7 });
        assert_eq!(error.message(), "index 7 is out of range for a dimension of size 5 in `gather`");
        assert_eq!(error.span(), Span::new(4, 9));
        let kept = faults.keep("scatter", Span::new(30, 39), 7, None);
        assert_eq!(kept, faults.keep("scatter", Span::new(30, 39), 7, None));
        for _ in 0..REMEMBERED {
            faults.tag("gather", Span::NONE, 1);
        }
        assert_eq!(faults.error(Fault { tag: kept, position: 0, value: 9 }).span(), Span::new(30, 39));
        assert!(faults.error(Fault { tag, position: 3, value: 7 }).labels().is_empty());
    }
}
