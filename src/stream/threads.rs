//! Threads that rooms start for work of their own. Here alone, so that a model of these rooms can start
//! them in its way (`interleave/`).

/// Starts a thread; false when the system has none to give.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.into()).spawn(work).is_ok()
}
