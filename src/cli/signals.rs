//! Signals that end a run: Ctrl-C, SIGTERM and SIGHUP.
//!
//! Each signal sets the session's interrupt flag, so the script unwinds: deferred code runs, contexts are
//! left, temporary folders are removed. A second signal of the same kind before the script has seen the first
//! ends the process immediately. A signal that the parent process ignores (`nohup`) stays ignored.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

#[cfg(unix)]
const ENDING: &[i32] = &[SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const ENDING: &[i32] = &[SIGTERM];

/// The SIGTERM or SIGHUP that has arrived, or 0.
static ENDED: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// Whether Ctrl-C was pressed.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The signal handlers of a session, removed with it.
#[derive(Default)]
pub struct Signals {
    ids: Vec<SigId>,
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

impl Signals {
    /// Sets the flag when a signal arrives. Signals that the system lacks are skipped.
    pub fn listen(interrupt: &Arc<AtomicBool>) -> Signals {
        let mut ids = Vec::new();
        if !is_ignored(SIGINT) {
            ids.push(flag::register_conditional_shutdown(SIGINT, 130, interrupt.clone()));
            ids.push(flag::register(SIGINT, INTERRUPTED.clone()));
            ids.push(flag::register(SIGINT, interrupt.clone()));
        }
        for &signal in ENDING.iter().filter(|&&signal| !is_ignored(signal)) {
            let first = Arc::new(AtomicBool::new(false));
            ids.push(flag::register_conditional_shutdown(signal, 128 + signal, first.clone()));
            ids.push(flag::register(signal, first));
            ids.push(flag::register_usize(signal, ENDED.clone(), signal as usize));
            ids.push(flag::register(signal, interrupt.clone()));
        }
        Signals { ids: ids.into_iter().flatten().collect() }
    }

    /// Adds a handler that is removed with the others.
    #[cfg(unix)]
    pub fn add(&mut self, id: std::io::Result<SigId>) {
        self.ids.extend(id);
    }

    /// SIGTERM and SIGHUP end a session's wait for keys: `waits` is true during the wait, and `interrupt` is
    /// the session's flag.
    #[cfg(unix)]
    pub fn end_waits(&mut self, waits: Arc<AtomicBool>, interrupt: Arc<AtomicBool>) -> std::io::Result<()> {
        use rustix::process::{Signal, getpid, kill_process};
        use std::io::Read;
        use std::time::Duration;
        const TRIES: usize = 20;
        let (mut told, tell) = std::os::unix::net::UnixStream::pair()?;
        for &signal in ENDING.iter().filter(|&&signal| !is_ignored(signal)) {
            self.ids.push(low_level::pipe::register(signal, tell.try_clone()?)?);
        }
        let wake = move || {
            // Ends with the handlers, which own the other end.
            if told.read_exact(&mut [0; 1]).is_err() {
                return;
            }
            // The line editor handles SIGINT itself while it waits. It misses a signal that arrives just before the
            // wait, so the signal is repeated.
            for _ in 0..TRIES {
                if waits.load(Ordering::Relaxed) {
                    interrupt.store(false, Ordering::Relaxed);
                    kill_process(getpid(), Signal::INT).ok();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            // On a terminal that the editor does not support, the system restarts the wait.
            if waits.load(Ordering::Relaxed) {
                std::process::exit(128 + ended().unwrap_or(SIGTERM));
            }
        };
        std::thread::Builder::new().name("runnel-signals".into()).spawn(wake).map(drop)
    }
}

/// The signal that asks the process to end, if any.
pub fn ended() -> Option<i32> {
    match ENDED.load(Ordering::Relaxed) {
        0 => None,
        signal => i32::try_from(signal).ok(),
    }
}

/// Returns whether Ctrl-C was pressed, or the process was asked to end.
pub fn any() -> bool {
    ended().is_some() || INTERRUPTED.load(Ordering::Relaxed)
}

/// Returns whether Ctrl-C was pressed since the last call.
pub fn take_interrupt() -> bool {
    INTERRUPTED.swap(false, Ordering::Relaxed)
}

/// `SIGTERM`
pub fn name(signal: i32) -> &'static str {
    low_level::signal_name(signal).unwrap_or("a signal")
}

/// Returns whether the process was started with this signal ignored. Handlers of this module count as not
/// ignored.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one; zeros are a valid `sigaction`.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(not(unix))]
fn is_ignored(_signal: i32) -> bool {
    false
}

/// A write beyond the system's file size limit returns an error, instead of ending the process.
pub fn let_large_writes_fail() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal installs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Discards typed but unread text when Ctrl-C arrives: a terminal does so for the key, but not for a signal
/// from another process.
#[cfg(unix)]
pub fn forget_typed() -> std::io::Result<SigId> {
    use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
    let flush = || {
        // SAFETY: standard input stays open for the whole process.
        let input = unsafe { std::os::fd::BorrowedFd::borrow_raw(0) };
        // In the background the terminal belongs to another process group.
        if tcgetpgrp(input).is_ok_and(|group| group != rustix::process::getpgrp()) {
            return;
        }
        tcflush(input, QueueSelector::IFlush).ok();
    };
    // SAFETY: the handler only makes async-signal-safe system calls.
    unsafe { low_level::register(SIGINT, flush) }
}
