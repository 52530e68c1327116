//! Signals that end a run: Ctrl-C, SIGTERM and SIGHUP.
//!
//! Each sets the interrupt flag of the session, so the script unwinds: what it deferred runs, its contexts are left, its
//! temporary folders are removed. A second signal of the same kind, before the script has seen the first, ends the
//! process at once. A signal that the parent process ignores (`nohup`) stays ignored.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

#[cfg(unix)]
const ENDING: &[i32] = &[SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const ENDING: &[i32] = &[SIGTERM];

/// The SIGTERM or SIGHUP that has arrived; 0 before.
static ENDED: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// Ctrl-C was pressed.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The handlers of a session; they end with it.
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
    /// Sets the flag when a signal arrives. Where the system lacks one of them, nothing listens for it.
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

    /// Adds a handler, which ends with the others.
    #[cfg(unix)]
    pub fn add(&mut self, id: std::io::Result<SigId>) {
        self.ids.extend(id);
    }

    /// While a session waits for keys, SIGTERM and SIGHUP end the wait: `waits` says that it does, and `interrupt` is the
    /// flag of the session.
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
            // Ends with the handlers, which own the other side.
            if told.read_exact(&mut [0; 1]).is_err() {
                return;
            }
            // The line editor takes SIGINT for itself while it waits. One that comes just before is not seen, so it is
            // repeated.
            for _ in 0..TRIES {
                if waits.load(Ordering::Relaxed) {
                    interrupt.store(false, Ordering::Relaxed);
                    kill_process(getpid(), Signal::INT).ok();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            // A terminal that the editor knows nothing of: there the system restarts the wait.
            if waits.load(Ordering::Relaxed) {
                std::process::exit(128 + ended().unwrap_or(SIGTERM));
            }
        };
        std::thread::Builder::new().name("runnel-signals".into()).spawn(wake).map(drop)
    }
}

/// The signal that asks the process to end, if one has arrived.
pub fn ended() -> Option<i32> {
    match ENDED.load(Ordering::Relaxed) {
        0 => None,
        signal => i32::try_from(signal).ok(),
    }
}

/// Whether Ctrl-C was pressed, or the process was asked to end.
pub fn any() -> bool {
    ended().is_some() || INTERRUPTED.load(Ordering::Relaxed)
}

/// Whether Ctrl-C was pressed since the last call.
pub fn take_interrupt() -> bool {
    INTERRUPTED.swap(false, Ordering::Relaxed)
}

/// `SIGTERM`
pub fn name(signal: i32) -> &'static str {
    low_level::signal_name(signal).unwrap_or("a signal")
}

/// Whether the process was started with this signal ignored. Handlers of this module count as not ignored.
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

/// A write past the limit on the size of files fails like any other, instead of ending the process.
pub fn let_large_writes_fail() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal installs no code.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Forgets what was typed and not yet read, whenever Ctrl-C arrives: a terminal does so for the key, but not for a signal
/// from elsewhere.
#[cfg(unix)]
pub fn forget_typed() -> std::io::Result<SigId> {
    use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
    let flush = || {
        // SAFETY: the standard input stays open for the whole process.
        let input = unsafe { std::os::fd::BorrowedFd::borrow_raw(0) };
        // In the background the terminal belongs to somebody else.
        if tcgetpgrp(input).is_ok_and(|group| group != rustix::process::getpgrp()) {
            return;
        }
        tcflush(input, QueueSelector::IFlush).ok();
    };
    // SAFETY: the handler makes system calls alone, all of them safe in a handler.
    unsafe { low_level::register(SIGINT, flush) }
}
