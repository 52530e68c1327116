//! The receivers of printed text, warnings and progress.

use super::Vm;
use super::progress::Progresses;
use crate::base::guard::{self, Owned};
use crate::base::{Error, Result, SourceMap};

/// Receives printed text.
type Output = Box<dyn FnMut(&str) + Send>;
/// Flushes buffered output.
type Flush = Box<dyn FnMut() + Send>;
/// Called with each warning and the sources that its spans refer to.
type Warn = Box<dyn FnMut(&Error, &SourceMap) + Send>;

/// The receivers of a VM; they belong to the embedding program.
pub(super) struct Sinks {
    out: Owned<Output>,
    flush: Option<Owned<Flush>>,
    warn: Option<Owned<Warn>>,
    pub(super) progress: Progresses,
}

impl Default for Sinks {
    fn default() -> Sinks {
        let progress = Progresses::default();
        Sinks { out: Owned::new(Box::new(|_| {})), flush: None, warn: None, progress }
    }
}

impl Vm {
    /// Sends printed text to `out`.
    pub fn set_output(&mut self, out: impl FnMut(&str) + Send + 'static) {
        self.sinks.out = Owned::new(Box::new(out));
    }

    /// Calls `flush` when a script asks to flush its output: `print(..., flush=true)`.
    pub fn set_flush(&mut self, flush: impl FnMut() + Send + 'static) {
        self.sinks.flush = Some(Owned::new(Box::new(flush)));
    }

    /// Flushes the output, if it is buffered.
    pub fn flush_output(&mut self) {
        if let Some(flush) = &mut self.sinks.flush {
            guard::quiet("the output", &mut ***flush);
        }
    }

    /// Sends warnings to `warn` as they arise. Without it they wait for [`Vm::take_warnings`].
    pub fn set_warnings(&mut self, warn: impl FnMut(&Error, &SourceMap) + Send + 'static) {
        self.sinks.warn = Some(Owned::new(Box::new(warn)));
    }

    /// Reports the warnings raised by the instruction at `pc` of the function at `base`.
    #[inline]
    pub(super) fn report_warnings(&mut self, base: usize, pc: usize) {
        if self.rt.has_warnings() {
            self.raise_warnings(base, pc);
        }
    }

    #[cold]
    fn raise_warnings(&mut self, base: usize, pc: usize) {
        let Some(mut warn) = self.sinks.warn.take() else { return };
        for warning in self.rt.take_warnings() {
            let warning = self.name_streams(warning, Some((base, pc)));
            guard::quiet("the receiver of warnings", || warn(&warning, &self.sources));
        }
        self.sinks.warn = Some(warn);
        // A panic is raised at the next check of the limits.
        self.meter.budget = self.meter.budget.min(1);
    }

    /// Writes to the output. Errors: E1010 when the output limit is reached; then nothing is written.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.charge_output(text.len())?;
        guard::call("the output", || (self.sinks.out)(text))
    }

    /// Warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        let warnings = self.rt.take_warnings();
        warnings.into_iter().map(|warning| self.name_streams(warning, None)).collect()
    }
}
