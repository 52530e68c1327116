//! Warnings: what a session reports without failing.

use super::{Runtime, error};
use crate::base::{Error, Site, Span};
use rustc_hash::FxHashSet;

/// The warnings of a session, and what must not be reported twice.
#[derive(Default)]
pub(super) struct Warnings {
    /// Not yet taken.
    waiting: Vec<Error>,
    /// Texts and names that are reported once per session.
    texts: Vec<String>,
    /// Where a wait was reported that an operation made by itself.
    waits: FxHashSet<Span>,
    /// The pairs of places that races were reported for: the later access, the earlier one.
    races: FxHashSet<(Span, Span)>,
}

impl Warnings {
    /// Adds a warning.
    pub(super) fn push(&mut self, warning: Error) {
        self.waiting.push(warning);
    }

    /// True the first time for a place where an operation waits by itself.
    pub(super) fn is_new_wait(&mut self, span: Span) -> bool {
        self.waits.insert(span)
    }

    /// True when a race at `span` with one of the earlier accesses was not reported before; notes them all.
    pub(super) fn is_new_race(&mut self, span: Span, earlier: impl Iterator<Item = Span>) -> bool {
        let known = self.races.len();
        self.races.extend(earlier.map(|other| (span, other)));
        self.races.len() > known
    }
}

impl Runtime {
    /// Reports something for [`Runtime::take_warnings`].
    pub fn warn(&mut self, warning: Error) {
        self.warnings.push(warning);
    }

    /// Reports something about the operation that is being submitted.
    pub(super) fn warn_here(&mut self, warning: Error) {
        self.warnings.push(warning.locate(&Site::of(self.span)));
    }

    /// True when there is something to tell.
    #[inline]
    pub fn has_warnings(&self) -> bool {
        !self.warnings.waiting.is_empty()
    }

    /// The warnings since the last call. A race that was repaired (`warn`) is reported once per session and pair of
    /// places.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.warnings.waiting)
    }

    /// Reports a name that has a newer one, once per session.
    pub fn warn_deprecated(&mut self, what: &str, help: &str) {
        self.warn_once(what, || error::deprecated(what, help));
    }

    /// Reports what a script wants to be told, each text once per session.
    pub fn warn_told(&mut self, text: &str, at: Span) {
        let here = std::mem::replace(&mut self.span, at);
        self.warn_once(text, || error::told(text));
        self.span = here;
    }

    /// Reports that a conversion drops imaginary parts, where it does, once per session.
    /// Source: `c10::warn` in `copy_` of PyTorch.
    pub(super) fn warn_dropped(&mut self, from: crate::array::Dtype, to: crate::array::Dtype) {
        if from.is_complex() && !to.is_complex() && to != crate::array::Dtype::Bool {
            self.warn_once("complex to real", error::imaginary_dropped);
        }
    }

    fn warn_once(&mut self, what: &str, report: impl FnOnce() -> Error) {
        if !self.warnings.texts.iter().any(|known| known == what) {
            self.warnings.texts.push(what.to_string());
            self.warn_here(report());
        }
    }

    /// Forgets places that no longer exist, and all but the first `most` warnings that nobody has taken.
    pub fn forget_places(&mut self, most: usize, is_there: impl Fn(Span) -> bool) {
        self.warnings.races.retain(|(one, other)| is_there(*one) && is_there(*other));
        self.warnings.waits.retain(|span| is_there(*span));
        self.warnings.waiting.truncate(most);
    }
}
