//! Work split into tasks that run on all threads when that pays, and that may end early.
//!
//! Every loop of this module over a launch's elements calls [`Until::ended`] at least once per [`SOME`]
//! elements. A launch that ended early leaves its results unwritten, and they are not used.

use crate::base::stop::{self, Stop};
use rayon::prelude::*;

/// Element visits (elements times views and instructions) from which work runs in parallel.
pub(in crate::kernel) const PARALLEL: usize = 1 << 17;

/// The number of threads for this many visits. Small launches do not ask rayon, since asking starts its
/// threads.
pub(in crate::kernel) fn threads(visits: usize) -> usize {
    if visits < PARALLEL { 1 } else { rayon::current_num_threads() }
}

/// Number of elements between two checks for an early end.
pub(in crate::kernel) const SOME: usize = 1 << 14;

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
    let one = |space: &mut T, number: usize| {
        if !until.ended() {
            task(space, number);
        }
    };
    if shared {
        (0..count).into_par_iter().for_each_init(init, one);
    } else {
        let mut space = init();
        for number in 0..count {
            if until.ended() {
                return;
            }
            task(&mut space, number);
        }
    }
}
