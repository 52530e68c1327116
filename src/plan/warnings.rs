//! Warnings: what a session reports without failing.

use super::{Runtime, error};
use crate::base::{Error, Site, Span};
use foldhash::HashSet;

/// The warnings of a session, and the record of those already reported.
#[derive(Default)]
pub(super) struct Warnings {
    /// Warnings not yet taken.
    waiting: Vec<Error>,
    /// Texts and names reported once per session.
    texts: Vec<String>,
    /// Source positions of reported implicit waits.
    waits: HashSet<Span>,
    /// Pairs of source positions of reported races: the later access, the earlier one.
    races: HashSet<(Span, Span)>,
}

impl Warnings {
    /// Adds a warning.
    pub(super) fn push(&mut self, warning: Error) {
        self.waiting.push(warning);
    }

    /// True the first time for a source position with an implicit wait.
    pub(super) fn is_new_wait(&mut self, span: Span) -> bool {
        self.waits.insert(span)
    }

    /// True when a race at `span` with one of the earlier accesses is new; records all of them.
    pub(super) fn is_new_race(&mut self, span: Span, earlier: impl Iterator<Item = Span>) -> bool {
        let known = self.races.len();
        self.races.extend(earlier.map(|other| (span, other)));
        self.races.len() > known
    }
}

impl Runtime {
    /// Adds a warning for [`Runtime::take_warnings`].
    pub fn warn(&mut self, warning: Error) {
        self.warnings.push(warning);
    }

    /// Adds a warning about the operation being submitted.
    pub(super) fn warn_here(&mut self, warning: Error) {
        self.warnings.push(warning.locate(&Site::of(self.span)));
    }

    /// True when there are warnings.
    #[inline]
    pub fn has_warnings(&self) -> bool {
        !self.warnings.waiting.is_empty()
    }

    /// The warnings since the last call. A repaired race (`warn`) is reported once per session and pair of
    /// positions.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.warnings.waiting)
    }

    /// Reports a deprecated name, once per session.
    pub fn warn_deprecated(&mut self, what: &str, help: &str) {
        self.warn_once(what, || error::deprecated(what, help));
    }

    /// Reports a script's warning; each text once per session.
    pub fn warn_script(&mut self, text: &str, at: Span) {
        let here = std::mem::replace(&mut self.span, at);
        self.warn_once(text, || error::script_warning(text));
        self.span = here;
    }

    /// Reports, once per session, that a conversion drops imaginary parts. Source: `c10::warn` in `copy_` of
    /// PyTorch.
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

    /// Forgets source positions that no longer exist, and all but the first `most` untaken warnings.
    pub fn forget_places(&mut self, most: usize, is_there: impl Fn(Span) -> bool) {
        self.warnings.races.retain(|(one, other)| is_there(*one) && is_there(*other));
        self.warnings.waits.retain(|span| is_there(*span));
        self.warnings.waiting.truncate(most);
    }
}
