//! Work split into tasks that run on all threads when that pays, and that may end early.
//!
//! Every loop of this module over a launch's elements calls [`Until::ended`] at least once per [`ELEMENTS_PER_CHECK`]
//! elements. A launch that ended early leaves its results unwritten, and they are not used.

use crate::base::stop::{self, Stop};
use parking_lot::{Condvar, Mutex};
use std::io::ErrorKind;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

/// Element visits (elements times views and instructions) from which work runs in parallel.
pub(in crate::kernel) const PARALLEL: usize = 1 << 17;

/// The number of threads for this many visits. Small launches do not query rayon, since that would start its
/// threads.
pub(in crate::kernel) fn threads(visits: usize) -> usize {
    if visits < PARALLEL { 1 } else { workers() }
}

/// The number of rayon's threads; the first call starts them. Work uses rayon only if there are several. Rayon's own
/// start panics when the system refuses a thread; this starts as many threads as the system allows.
pub(in crate::kernel) fn workers() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let set = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
        let wanted = set.filter(|&count| count > 0).or_else(|| available_parallelism().ok().map(usize::from));
        // Start the threads before rayon relies on them.
        let mut started: Vec<_> = (0..wanted.unwrap_or(1)).map_while(|_| start_thread()).collect();
        let count = started.len();
        if count < 2 {
            return 1;
        }
        let mut assign = |thread| started.pop().is_some_and(|start| start.send(thread).is_ok());
        let assign = |thread| if assign(thread) { Ok(()) } else { Err(ErrorKind::Other.into()) };
        match rayon::ThreadPoolBuilder::new().num_threads(count).spawn_handler(assign).build_global() {
            Ok(()) => count,
            // The embedding program has started rayon.
            Err(_) => rayon::current_num_threads(),
        }
    })
}

/// A new thread, which waits for its work; `None` if the system refuses it.
fn start_thread() -> Option<Sender<rayon::ThreadBuilder>> {
    let (give, take) = mpsc::channel::<rayon::ThreadBuilder>();
    let run = move || {
        if let Ok(thread) = take.recv() {
            thread.run();
        }
    };
    std::thread::Builder::new().name("runnel-host".into()).spawn(run).ok().map(|_| give)
}

/// Number of elements between two checks for an early end.
pub(in crate::kernel) const ELEMENTS_PER_CHECK: usize = 1 << 14;

/// The stop condition of this thread's work; passed to the threads that help with it.
#[derive(Clone, Default)]
pub(in crate::kernel) struct Until(Option<Stop>);

impl Until {
    /// The stop condition of this thread.
    pub(in crate::kernel) fn now() -> Until {
        Until(stop::current())
    }

    /// Returns whether the work should end.
    #[inline]
    pub(in crate::kernel) fn ended(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| stop.reason().is_some())
    }

    /// Returns whether something may end the work.
    pub(in crate::kernel) fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

/// Calls `task` with every number below `count`, on all threads if `shared`.
pub(in crate::kernel) fn each(count: usize, shared: bool, task: impl Fn(usize) + Sync) {
    each_with(count, shared, || (), |(), number| task(number));
}

/// As [`each`]; each thread makes its own state for `task`.
pub(in crate::kernel) fn each_with<T>(
    count: usize,
    shared: bool,
    init: impl Fn() -> T + Sync + Send,
    task: impl Fn(&mut T, usize) + Sync,
) {
    let until = Until::now();
    let some = |numbers: Range<usize>| {
        let mut space = init();
        for number in numbers {
            if until.ended() {
                return;
            }
            task(&mut space, number);
        }
    };
    match shared {
        true => ranges(count, &some),
        false => some(0..count),
    }
}

/// Calls `task` with ranges that make up the numbers below `count`, on this thread and on rayon's threads that are free.
/// Not generic, to keep the code small.
///
/// This thread does not wait for helpers to start: rayon's threads may be busy for minutes with work of another device,
/// and such a wait could not be interrupted.
fn ranges(count: usize, task: &(dyn Fn(Range<usize>) + Sync)) {
    let helpers = workers().min(count) - usize::from(count > 0);
    if helpers == 0 {
        return task(0..count);
    }
    // SAFETY: the helpers use `task` only between `enter` and `leave`, and `close` waits until none does.
    let task: &'static (dyn Fn(Range<usize>) + Sync) = unsafe { std::mem::transmute(task) };
    // Several ranges per thread, because they may take different times.
    let size = count.div_ceil(8 * (helpers + 1)).max(1);
    let shared = Arc::new(Shared {
        task,
        count,
        size,
        next: AtomicUsize::new(0),
        users: Mutex::new(Some(0)),
        left: Condvar::new(),
        panic: Mutex::new(None),
    });
    for _ in 0..helpers {
        let shared = Arc::clone(&shared);
        rayon::spawn(move || shared.help());
    }
    let closed = Close(&shared);
    shared.run();
    drop(closed);
    if let Some(panic) = shared.panic.lock().take() {
        resume_unwind(panic);
    }
}

/// Work that several threads share.
struct Shared {
    task: &'static (dyn Fn(Range<usize>) + Sync),
    count: usize,
    size: usize,
    /// The first number that no thread has taken.
    next: AtomicUsize,
    /// The number of helpers that use `task`; `None` once no more may begin.
    users: Mutex<Option<usize>>,
    left: Condvar,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

impl Shared {
    fn run(&self) {
        loop {
            let from = self.next.fetch_add(self.size, Ordering::Relaxed);
            if from >= self.count {
                return;
            }
            (self.task)(from..self.count.min(from + self.size));
        }
    }

    /// Runs ranges of the work, unless it has already ended.
    fn help(&self) {
        match &mut *self.users.lock() {
            Some(users) => *users += 1,
            None => return,
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            self.panic.lock().get_or_insert(panic);
        }
        if let Some(users) = &mut *self.users.lock() {
            *users -= 1;
        }
        self.left.notify_all();
    }
}

/// Ends shared work, also when this thread's part of it panics: waits for the helpers that use it.
struct Close<'s>(&'s Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let mut users = self.0.users.lock();
        while users.is_some_and(|count| count > 0) {
            self.0.left.wait(&mut users);
        }
        *users = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_work_ends_while_all_other_threads_are_busy() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for _ in 0..if workers() == 1 { 0 } else { workers() } {
            let gate = Arc::clone(&gate);
            rayon::spawn(move || {
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
            });
        }
        let counts: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        each(1000, true, |i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        *gate.0.lock() = true;
        gate.1.notify_all();
        for count in 0..40 {
            let sum = AtomicUsize::new(0);
            each(count, true, |i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), count * (count + 1) / 2);
        }
    }

    #[test]
    fn a_panic_of_shared_work_reaches_its_caller() {
        let fails = || each(100, true, |i| assert!(i != 57));
        assert!(catch_unwind(fails).is_err());
        each(100, true, |_| {});
    }
}
