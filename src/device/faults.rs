//! Which operation a launch belongs to, so that a fault is raised at the line that launched it.

use super::error;
use crate::base::{Error, Span};
use crate::kernel::Fault;
use parking_lot::Mutex;
use std::sync::Arc;

/// How many launches are remembered: far more than wait on a device at a time.
const REMEMBERED: u32 = 4096;

/// The launches of one device that may report a fault, the last few thousand of them.
#[derive(Default)]
pub(super) struct Faults {
    recent: Mutex<Recent>,
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
        recent.last = recent.last.checked_add(1).unwrap_or(1);
        let suspect = Suspect { tag: recent.last, ..suspect };
        let index = (recent.last % REMEMBERED) as usize;
        if recent.ring.len() <= index {
            let nobody = Suspect { tag: 0, name: "", span: Span::NONE, extent: 0, text: None };
            recent.ring.resize(index + 1, nobody);
        }
        recent.ring[index] = suspect;
        recent.last
    }

    pub(super) fn error(&self, fault: Fault) -> Error {
        let recent = self.recent.lock();
        let suspect = recent.ring.get((fault.tag % REMEMBERED) as usize).filter(|s| s.tag == fault.tag);
        match suspect {
            Some(Suspect { text: Some(text), span, .. }) => error::assertion_failed(text, *span),
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
        for _ in 0..REMEMBERED {
            faults.tag("gather", Span::NONE, 1);
        }
        assert!(faults.error(Fault { tag, position: 3, value: 7 }).labels().is_empty());
    }
}
