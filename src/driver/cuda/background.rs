//! Background threads of the process that compile kernels and load libraries.
//!
//! The program with the most interpreted work is compiled, or translated, first: each interpreted launch adds its
//! elements, or elements times instructions, to the count of its job. No job is dropped.

use super::nvrtc;
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The work interpreted while the job waits.
pub(super) type Use = Arc<AtomicU64>;

/// Jobs that wait for a thread.
struct Jobs<T> {
    waiting: Mutex<Vec<(Use, T)>>,
    added: Condvar,
}

impl<T> Jobs<T> {
    const fn new() -> Jobs<T> {
        Jobs { waiting: Mutex::new(Vec::new()), added: Condvar::new() }
    }

    fn add(&self, used: Use, job: T) {
        self.waiting.lock().push((used, job));
        self.added.notify_one();
    }

    /// Takes the job with the highest count, the oldest among equals. Waits for one.
    fn take(&self) -> T {
        let mut waiting = self.waiting.lock();
        while waiting.is_empty() {
            self.added.wait(&mut waiting);
        }
        let (mut best, mut most) = (0, 0);
        for (at, (used, _)) in waiting.iter().enumerate() {
            let used = used.load(Relaxed);
            if used > most {
                (best, most) = (at, used);
            }
        }
        waiting.remove(best).1
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Locked for reading while a job runs. The exit of the process waits for the lock, because NVRTC's exit
/// handlers must not free the data of a running compilation.
static WORKING: RwLock<bool> = RwLock::new(true);

extern "C" fn at_exit() {
    prepare_exit();
}

/// Waits for running compilations and starts no more: the process is about to exit.
pub(super) fn prepare_exit() {
    *WORKING.write() = false;
}

/// Waits for running compilations.
pub(super) fn pause() {
    drop(WORKING.write());
}

unsafe extern "C" {
    /// C's `atexit`.
    fn atexit(handler: extern "C" fn()) -> std::ffi::c_int;
}

/// Prepares NVRTC for [`Pool::run`]. Takes as long as a first compilation, so drivers call it while they create their
/// context.
///
/// NVRTC registers exit handlers when it compiles for the first time. If the process exits during a compilation,
/// they make it hang or abort, unless a handler of ours waits for the compilation; it is registered later, so it is
/// called earlier. NVRTC may register more later; [`pause`] does not depend on their order.
pub(super) fn warm_up() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        nvrtc::warm_up();
        // SAFETY: the handler is a plain function.
        let _ = unsafe { atexit(at_exit) };
    });
}

/// Threads for one kind of job.
pub(super) struct Pool {
    jobs: Jobs<Job>,
    started: OnceLock<bool>,
    most: usize,
}

/// Compilations by NVRTC.
pub(super) static COMPILERS: Pool = Pool::new(8);

/// Translations. They take a tenth of a compilation's time and must not wait behind one.
pub(super) static TRANSLATORS: Pool = Pool::new(8);

impl Pool {
    const fn new(most: usize) -> Pool {
        Pool { jobs: Jobs::new(), started: OnceLock::new(), most }
    }

    /// Passes a job to the threads; false if there are none.
    pub fn run(&'static self, used: Use, job: Job) -> bool {
        let started = self.started.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let workers = (0..(cores / 2).clamp(1, self.most)).filter(|_| {
                std::thread::Builder::new().name("runnel-nvrtc".into()).spawn(|| work(&self.jobs)).is_ok()
            });
            workers.count() > 0
        });
        if *started {
            self.jobs.add(used, job);
        }
        *started
    }
}

fn work(jobs: &Jobs<Job>) {
    loop {
        let job = jobs.take();
        let working = WORKING.read();
        if !*working {
            // The end of a thread destroys NVRTC's data of that thread, which must not happen during the exit.
            drop(working);
            loop {
                std::thread::park();
            }
        }
        // A job that panics ends its own waits; the thread continues with the next one.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_used_most_is_compiled_first_and_none_is_dropped() {
        let jobs = Jobs::new();
        let counts: Vec<Use> = [10, 500, 20, 500, 0].map(|n| Arc::new(AtomicU64::new(n))).into();
        for (number, count) in counts.iter().enumerate() {
            jobs.add(count.clone(), number);
        }
        assert_eq!(jobs.take(), 1);
        // A loop uses the first program while it waits, and a second one is submitted.
        for _ in 0..100 {
            counts[0].fetch_add(10, Relaxed);
        }
        assert_eq!(jobs.take(), 0);
        jobs.add(Arc::new(AtomicU64::new(100)), 5);
        assert_eq!([(); 4].map(|()| jobs.take()), [3, 5, 2, 4]);
    }

    #[test]
    fn a_thread_waits_for_a_job() {
        let jobs = Jobs::new();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| jobs.take());
            std::thread::sleep(std::time::Duration::from_millis(20));
            jobs.add(Use::default(), 7);
            assert_eq!(taken.join().unwrap(), 7);
        });
    }
}
