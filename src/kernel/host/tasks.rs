//! Work that is cut into tasks, on all threads where that pays, and that may end early.
//!
//! Every loop of this room over a launch's elements asks [`Until::ended`] at least once per [`SOME`] of them. A
//! launch that ended early leaves its results unwritten; whoever asked for the end does not use them.

use crate::base::stop::{self, Stop};
use rayon::prelude::*;

/// Elements between two looks whether to end early.
pub(super) const SOME: usize = 1 << 14;

/// When the work of this thread is to end early; for the threads that help with it.
#[derive(Clone, Default)]
pub(super) struct Until(Option<Stop>);

impl Until {
    /// As this thread is told.
    pub(super) fn now() -> Until {
        Until(stop::current())
    }

    /// Whether to end.
    #[inline]
    pub(super) fn ended(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| stop.asked().is_some())
    }

    /// Whether something may end the work.
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

/// Calls `task` with every number below `count`, on all threads if `shared`.
pub(super) fn each(count: usize, shared: bool, task: impl Fn(usize) + Sync) {
    each_with(count, shared, || (), |(), number| task(number));
}

/// As [`each`]; each thread makes what `task` works with.
pub(super) fn each_with<T>(
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
