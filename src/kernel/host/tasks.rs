//! Work split into tasks that run on all threads when that pays, and that may end early.
//!
//! Every loop of this module over a launch's elements calls [`Until::ended`] at least once per [`ELEMENTS_PER_CHECK`]
//! elements. A launch that ended early leaves its results unwritten, and they are not used.

use crate::base::stop::{self, Stop};
use rayon::prelude::*;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread::available_parallelism;

/// Element visits (elements times views and instructions) from which work runs in parallel.
pub(in crate::kernel) const PARALLEL: usize = 1 << 17;

/// The number of threads for this many visits. Small launches do not ask rayon, since asking starts its
/// threads.
pub(in crate::kernel) fn threads(visits: usize) -> usize {
    if visits < PARALLEL { 1 } else { workers() }
}

/// The number of rayon's threads, which start at the first call. Work uses rayon only if there are several: rayon's own
/// start panics when the system refuses a thread, and this starts as many as the system gives.
pub(in crate::kernel) fn workers() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let set = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
        let wanted = set.filter(|&count| count > 0).or_else(|| available_parallelism().ok().map(usize::from));
        // Threads that exist before rayon counts on them.
        let mut hands: Vec<_> = (0..wanted.unwrap_or(1)).map_while(|_| hand()).collect();
        let count = hands.len();
        if count < 2 {
            return 1;
        }
        let mut give = |thread| hands.pop().is_some_and(|hand| hand.send(thread).is_ok());
        let give = |thread| if give(thread) { Ok(()) } else { Err(ErrorKind::Other.into()) };
        match rayon::ThreadPoolBuilder::new().num_threads(count).spawn_handler(give).build_global() {
            Ok(()) => count,
            // The embedding program has started rayon.
            Err(_) => rayon::current_num_threads(),
        }
    })
}

/// A new thread, which waits for what it will run; `None` if the system refuses it.
fn hand() -> Option<Sender<rayon::ThreadBuilder>> {
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

/// When this thread's work should end early; passed to the threads that help with it.
#[derive(Clone, Default)]
pub(in crate::kernel) struct Until(Option<Stop>);

impl Until {
    /// The stop condition of this thread.
    pub(in crate::kernel) fn now() -> Until {
        Until(stop::current())
    }

    /// Whether the work should end.
    #[inline]
    pub(in crate::kernel) fn ended(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| stop.asked().is_some())
    }

    /// Whether something may end the work.
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

/// Splits the numbers below `count` among all threads. Not generic: every instance of rayon's code takes 5 KB.
fn ranges(count: usize, task: &(dyn Fn(Range<usize>) + Sync)) {
    if workers() == 1 {
        return task(0..count);
    }
    let halves = |range: Range<usize>| match range.len() {
        0 | 1 => (range, None),
        length => {
            let middle = range.start + length / 2;
            (range.start..middle, Some(middle..range.end))
        }
    };
    rayon::iter::split(0..count, halves).for_each(task);
}
