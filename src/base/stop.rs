//! Early termination of this thread's work: on request or at a deadline.
//!
//! The code that runs a script sets the stop condition once ([`enter`]). Long loops and waits at any depth
//! check it ([`asked`], or [`current`] when other threads help). Each module makes its own error.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A stop condition. Cheap to copy and check.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Set by another thread or a signal handler. The code that stops because of it clears it.
    pub flag: Arc<AtomicBool>,
    /// The deadline, and the reason to stop once it has passed.
    pub deadline: Option<(Instant, Reason)>,
}

/// The reason to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was requested.
    Interrupt,
    /// The deadline has passed.
    Time,
}

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
    /// Work since the last check.
    static WORK: Cell<usize> = const { Cell::new(0) };
}

impl Stop {
    /// The reason to stop now, if any.
    pub fn reason(&self) -> Option<Reason> {
        if self.flag.load(Ordering::Relaxed) {
            return Some(Reason::Interrupt);
        }
        self.deadline.and_then(|(at, reason)| (Instant::now() > at).then_some(reason))
    }
}

/// Sets this thread's stop condition and returns the previous one, which the caller must restore.
pub fn enter(stop: Option<Stop>) -> Option<Stop> {
    STOP.try_with(|current| current.replace(stop)).ok().flatten()
}

/// Stops this thread's work as interrupted from `at` on, if it can be stopped.
pub fn interrupt_at(at: Instant) {
    let set = |current: &RefCell<Option<Stop>>| {
        if let Some(stop) = current.borrow_mut().as_mut()
            && stop.deadline.is_none_or(|(before, _)| at < before)
        {
            stop.deadline = Some((at, Reason::Interrupt));
        }
    };
    STOP.try_with(set).unwrap_or(());
}

/// This thread's stop condition; `None` if it cannot be stopped.
pub fn current() -> Option<Stop> {
    STOP.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// True when this thread's work can be stopped.
pub fn is_set() -> bool {
    STOP.try_with(|current| current.borrow().is_some()).unwrap_or(false)
}

/// Returns the reason why this thread's work should stop now, if any.
pub fn reason() -> Option<Reason> {
    STOP.try_with(|current| current.borrow().as_ref().and_then(Stop::reason)).ok().flatten()
}

/// Units of work, such as elements of a loop on the host, between two checks.
pub const PACE: usize = 4096;

/// Counts work of this thread; true if it is time to check the stop condition again.
#[inline]
pub fn is_due(units: usize) -> bool {
    let due = |work: &Cell<usize>| {
        let sum = work.get().saturating_add(units);
        work.set(if sum >= PACE { 0 } else { sum });
        sum >= PACE
    };
    WORK.try_with(due).unwrap_or(false)
}

/// The items of an iterator, until this thread is asked to stop. The caller must check again before using the
/// result.
pub fn until<T>(items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut ended = false;
    items.take_while(move |_| {
        ended = ended || (is_due(1) && reason().is_some());
        !ended
    })
}

/// Runs work that must not end early, such as work that another session waits for.
pub fn masked<T>(work: impl FnOnce() -> T) -> T {
    if !is_set() {
        return work();
    }
    replaced(None, work)
}

/// Runs work that only `stop` ends early, instead of this thread's own condition.
pub fn under<T>(stop: Stop, work: impl FnOnce() -> T) -> T {
    replaced(Some(stop), work)
}

fn replaced<T>(stop: Option<Stop>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Stop>);
    impl Drop for Restore {
        fn drop(&mut self) {
            enter(self.0.take());
        }
    }
    let _restore = Restore(enter(stop));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_by_its_own_flag_or_time() {
        assert!(!is_set() && reason().is_none());
        let flag = Arc::new(AtomicBool::new(false));
        let before = enter(Some(Stop { flag: flag.clone(), deadline: None }));
        assert!(before.is_none() && is_set() && reason().is_none());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(reason(), Some(Reason::Interrupt));
        assert_eq!(masked(reason), None);
        assert_eq!(std::thread::spawn(reason).join().unwrap(), None);
        flag.store(false, Ordering::Relaxed);
        let late = Instant::now().checked_sub(std::time::Duration::from_secs(1)).or(Some(Instant::now()));
        let late = late.map(|at| (at, Reason::Time));
        enter(Some(Stop { flag: flag.clone(), deadline: late }));
        assert_eq!(reason(), Some(Reason::Time));
        enter(Some(Stop { flag, deadline: None }));
        interrupt_at(Instant::now());
        while reason().is_none() {}
        assert_eq!(reason(), Some(Reason::Interrupt));
        enter(None);
    }
}
