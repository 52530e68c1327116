//! How far loops over `progress(...)` are, and who is told.
//!
//! The machine draws nothing. Invariant: of each loop, exactly one report is not [`Progress::ended`] for
//! every element, and exactly one, the last, is.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Vm;
use crate::base::guard::{self, Owned};

/// Who is told; shared with the loops that are under way.
type Watch = Arc<Mutex<Owned<Box<dyn FnMut(&Progress) + Send>>>>;

/// How far a loop over `progress(...)` is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Tells loops of a session apart, also one inside another.
    pub id: u64,
    /// What the script calls it; may be empty.
    pub label: String,
    /// Elements that the loop is done with.
    pub done: u64,
    /// Elements in all, where that is known.
    pub total: Option<u64>,
    /// True once: when the loop has taken its last element, or was left.
    pub ended: bool,
}

/// A loop that reports. Dropping it reports its end.
pub struct Reported {
    now: Progress,
    /// Whether an element was handed out that the loop may still be busy with.
    busy: bool,
    watch: Option<Watch>,
}

impl Reported {
    /// The next element is about to be handed out, or there is none.
    pub fn next(&mut self, there_is_one: bool) {
        if self.now.ended {
            return;
        }
        self.now.done += u64::from(self.busy);
        self.busy = there_is_one;
        self.now.ended = !there_is_one;
        self.tell();
    }

    fn tell(&mut self) {
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
            self.tell();
        }
    }
}

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now.fmt(f)
    }
}

/// Who watches the loops of a machine, and how many there have been.
#[derive(Default)]
pub(super) struct Watched {
    watch: Option<Watch>,
    begun: u64,
}

impl Vm {
    /// Tells `watch` how far loops over `progress(...)` are: at each element, and at their end.
    pub fn set_progress(&mut self, watch: impl FnMut(&Progress) + Send + 'static) {
        self.watched.watch = Some(Arc::new(Mutex::new(Owned::new(Box::new(watch)))));
    }

    /// Begins a loop that reports.
    pub fn report_progress(&mut self, label: &str, total: Option<u64>) -> Reported {
        self.watched.begun += 1;
        let now = Progress { id: self.watched.begun, label: label.to_string(), done: 0, total, ended: false };
        Reported { now, busy: false, watch: self.watched.watch.clone() }
    }
}
