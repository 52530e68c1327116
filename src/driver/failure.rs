//! Fault injection: `RUNNEL_FAULT` makes one driver call fail, for tests of error handling.
//!
//! Emulated devices and the host count their calls here. The failing call does nothing else: an allocation
//! reports that memory is exhausted, any other call reports a driver error.

use crate::base::Result;
use crate::driver::error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The calls that can fail, by kind.
pub const KINDS: &[&str] = &[
    "alloc",
    "copy",
    "event",
    "event_elapsed",
    "event_query",
    "event_record",
    "event_synchronize",
    "event_wait",
    "fill",
    "graph",
    "graph_launch",
    "host_alloc",
    "launch",
    "map",
    "memory_info",
    "pinned_alloc",
    "reserve",
    "sleep",
    "stream",
    "stream_query",
    "stream_synchronize",
    "synchronize",
];

/// The message of an injected failure.
pub(crate) const TEXT: &str = "a failure injected by `RUNNEL_FAULT`";

/// The call that fails: the n-th of all calls or of one kind. The drivers of a machine share it.
///
/// Sample: `launch:3` is the third launch; `17` is the seventeenth call.
#[derive(Clone, Debug)]
pub struct Failure(Arc<Plan>);

#[derive(Debug)]
struct Plan {
    kind: Option<&'static str>,
    nth: u64,
    sticky: bool,
    calls: AtomicU64,
    fired: AtomicBool,
    disarmed: AtomicBool,
}

impl Failure {
    /// The n-th call, from 1: of one of [`KINDS`], or of all except the host's own allocations, which number
    /// in the thousands.
    pub fn new(kind: Option<&'static str>, nth: u64) -> Failure {
        Failure::of(kind, nth, false)
    }

    fn of(kind: Option<&'static str>, nth: u64, sticky: bool) -> Failure {
        let (fired, disarmed) = (AtomicBool::new(false), AtomicBool::new(false));
        Failure(Arc::new(Plan { kind, nth, sticky, calls: AtomicU64::new(0), fired, disarmed }))
    }

    /// Parses `17` or `launch:3`. The suffix `:sticky` makes the device unusable from then on, as after an
    /// illegal address on CUDA. An error describes the expected text.
    pub fn parse(given: &str) -> Result<Failure> {
        let (text, sticky) = match given.trim().strip_suffix(":sticky") {
            Some(text) => (text, true),
            None => (given, false),
        };
        let (kind, number) = match text.trim().split_once(':') {
            None => (None, text.trim()),
            Some((kind, number)) => {
                let known = KINDS.iter().find(|k| **k == kind.trim());
                (Some(*known.ok_or_else(|| error::bad_failure(given))?), number.trim())
            }
        };
        match number.parse() {
            Ok(nth) if nth > 0 => Ok(Failure::of(kind, nth, sticky)),
            _ => Err(error::bad_failure(given)),
        }
    }

    /// True when the failing call also loses its device.
    pub fn is_sticky(&self) -> bool {
        self.0.sticky
    }

    /// Disarms it: no call fails from now on.
    pub fn disarm(&self) {
        self.0.disarmed.store(true, Ordering::Relaxed);
    }

    /// True once the call has failed.
    pub fn has_fired(&self) -> bool {
        self.0.fired.load(Ordering::Relaxed)
    }

    /// Counts a call, and fails the selected one.
    pub(crate) fn call(&self, driver: &str, name: &str) -> Result<()> {
        let plan = &*self.0;
        let counts = plan.kind.map_or(name != "host_alloc", |kind| kind == name);
        if !counts || plan.disarmed.load(Ordering::Relaxed) {
            return Ok(());
        }
        if plan.calls.fetch_add(1, Ordering::Relaxed) + 1 != plan.nth {
            return Ok(());
        }
        plan.fired.store(true, Ordering::Relaxed);
        match name {
            "alloc" | "pinned_alloc" | "host_alloc" | "reserve" | "map" => Err(error::out_of_memory()),
            _ => Err(error::driver_failed(driver, name, TEXT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_and_no_other() {
        let outcomes = |failure: &Failure, calls: &[&str]| -> Vec<bool> {
            calls.iter().map(|name| failure.call("emu", name).is_err()).collect()
        };
        let third = Failure::parse(" 3 ").unwrap();
        assert_eq!(
            outcomes(&third, &["alloc", "host_alloc", "copy", "launch", "copy"]),
            [false, false, false, true, false]
        );
        assert!(third.has_fired());
        let copy = Failure::parse("copy:2").unwrap();
        assert_eq!(outcomes(&copy, &["copy", "launch", "copy", "copy"]), [false, false, true, false]);
        for bad in ["", "x", "0", "-1", "teapot:1", "copy:", "copy:0", "1:copy"] {
            assert_eq!(Failure::parse(bad).unwrap_err().code().id, "E0514", "{bad}");
        }
        for kind in KINDS {
            assert!(Failure::parse(&format!("{kind}:1")).unwrap().call("emu", kind).is_err());
        }
    }
}
