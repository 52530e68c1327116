//! Progress reports of loops over `progress(...)`.
//!
//! The VM draws nothing. Invariant: each loop reports [`Progress::ended`] exactly once, in its last
//! report.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Vm;
use crate::base::guard::{self, Owned};

/// The receiver of reports; shared with running loops.
type Watch = Arc<Mutex<Owned<Box<dyn FnMut(&Progress) + Send>>>>;

/// The progress of a loop over `progress(...)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Identifies a loop of the session, also inside another loop.
    pub id: u64,
    /// The label given by the script; may be empty.
    pub label: String,
    /// Number of elements completed.
    pub done: u64,
    /// Total number of elements, if known.
    pub total: Option<u64>,
    /// True once: when the loop has taken its last element or was left.
    pub ended: bool,
}

/// A loop that reports. Dropping it reports its end.
pub struct Reported {
    now: Progress,
    /// Whether the loop may still be processing an element.
    busy: bool,
    watch: Option<Watch>,
}

impl Reported {
    /// Called before the next element is taken, or at the end.
    pub fn next(&mut self, there_is_one: bool) {
        if self.now.ended {
            return;
        }
        self.now.done += u64::from(self.busy);
        self.busy = there_is_one;
        self.now.ended = !there_is_one;
        self.report();
    }

    fn report(&mut self) {
        if let Some(watch) = &self.watch {
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            guard::quiet("the receiver of progress", || watch(&self.now));
        }
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        if !self.now.ended {
            self.now.ended = true;
            self.report();
        }
    }
}

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now.fmt(f)
    }
}

/// The progress receiver of a VM, and the number of loops so far.
#[derive(Default)]
pub(super) struct Progresses {
    watch: Option<Watch>,
    begun: u64,
}

impl Vm {
    /// Sends progress reports of loops over `progress(...)` to `watch`: at each element and at the end.
    pub fn set_progress(&mut self, watch: impl FnMut(&Progress) + Send + 'static) {
        self.sinks.progress.watch = Some(Arc::new(Mutex::new(Owned::new(Box::new(watch)))));
    }

    /// Begins a loop that reports.
    pub fn report_progress(&mut self, label: &str, total: Option<u64>) -> Reported {
        self.sinks.progress.begun += 1;
        let now = Progress {
            id: self.sinks.progress.begun,
            label: label.to_string(),
            done: 0,
            total,
            ended: false,
        };
        Reported { now, busy: false, watch: self.sinks.progress.watch.clone() }
    }
}
