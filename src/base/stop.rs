//! Whether the work of this thread should end early: somebody asked for it, or its time is over.
//!
//! Whoever runs a script says so once ([`enter`]); long loops and waits, however deep below, ask
//! ([`asked`], or [`current`] where other threads help). Knows no error: each room makes its own.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// When to end. Cheap to copy and to ask.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Set by another thread, or by a signal. Whoever ends because of it clears it.
    pub flag: Arc<AtomicBool>,
    /// The end of its time.
    pub deadline: Option<Instant>,
}

/// Why to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Somebody asked for it.
    Interrupt,
    /// Its time is over.
    Time,
}

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Stop {
    /// Whether to end now.
    pub fn asked(&self) -> Option<Reason> {
        if self.flag.load(Ordering::Relaxed) {
            return Some(Reason::Interrupt);
        }
        self.deadline.is_some_and(|at| Instant::now() > at).then_some(Reason::Time)
    }
}

/// Makes `stop` the one of this thread, and gives back the one before; whoever entered puts that back.
pub fn enter(stop: Option<Stop>) -> Option<Stop> {
    STOP.try_with(|current| current.replace(stop)).ok().flatten()
}

/// The one of this thread; `None` when nothing can end it.
pub fn current() -> Option<Stop> {
    STOP.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// True when something may end the work of this thread.
pub fn is_set() -> bool {
    STOP.try_with(|current| current.borrow().is_some()).unwrap_or(false)
}

/// Whether the work of this thread should end now.
pub fn asked() -> Option<Reason> {
    STOP.try_with(|current| current.borrow().as_ref().and_then(Stop::asked)).ok().flatten()
}

/// Runs work that must not end early, such as what another session waits for too.
pub fn masked<T>(work: impl FnOnce() -> T) -> T {
    if !is_set() {
        return work();
    }
    struct Restore(Option<Stop>);
    impl Drop for Restore {
        fn drop(&mut self) {
            enter(self.0.take());
        }
    }
    let _restore = Restore(enter(None));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_by_its_own_flag_or_time() {
        assert!(!is_set() && asked().is_none());
        let flag = Arc::new(AtomicBool::new(false));
        let before = enter(Some(Stop { flag: flag.clone(), deadline: None }));
        assert!(before.is_none() && is_set() && asked().is_none());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(asked(), Some(Reason::Interrupt));
        assert_eq!(masked(asked), None);
        assert_eq!(std::thread::spawn(asked).join().unwrap(), None);
        flag.store(false, Ordering::Relaxed);
        let late = Instant::now().checked_sub(std::time::Duration::from_secs(1)).or(Some(Instant::now()));
        enter(Some(Stop { flag, deadline: late }));
        assert_eq!(asked(), Some(Reason::Time));
        enter(None);
    }
}
