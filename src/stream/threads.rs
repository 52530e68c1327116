//! The only place that starts threads for this module, so that a concurrency model (`interleave/`) can
//! replace it.

/// Starts a thread; false when the system cannot start one.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.into()).spawn(work).is_ok()
}
