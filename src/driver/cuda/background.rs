//! Background threads of the process that compile kernels and load libraries.
//!
//! The program with the most interpreted work is compiled, or translated, first: each interpreted launch adds its
//! elements, or elements times instructions, to the count of its job. No job is dropped.

use super::{compilers, nvrtc};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

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
        let mut has_idle = true;
        while waiting.is_empty() {
            if !has_idle {
                self.added.wait(&mut waiting);
            } else if self.added.wait_for(&mut waiting, compilers::IDLE).timed_out() {
                has_idle = MutexGuard::unlocked(&mut waiting, compilers::end_idle);
            }
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

/// How long [`pause`] and [`prepare_exit`] wait for jobs. A compilation takes a second or two; NVRTC may also never end.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The jobs that run now.
struct Running {
    jobs: Mutex<RunningJobs>,
    /// A job has ended.
    ended: Condvar,
}

struct RunningJobs {
    /// False once the process is about to exit: no more jobs start.
    open: bool,
    next: u64,
    /// The numbers of the running jobs; true for one that outlived a wait. It is not waited for again.
    numbers: Vec<(u64, bool)>,
}

static RUNNING: Running = Running::new();

impl Running {
    const fn new() -> Running {
        Running {
            jobs: Mutex::new(RunningJobs { open: true, next: 0, numbers: Vec::new() }),
            ended: Condvar::new(),
        }
    }

    /// Runs a job; false, without running it, if the process is about to exit.
    fn run(&self, job: impl FnOnce()) -> bool {
        let Some(number) = self.begin() else { return false };
        JOB.set(Some(number));
        // A job that panics ends its own waits; the thread continues with the next one.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        if let Some(number) = JOB.take() {
            self.end(number);
        }
        true
    }

    /// The number of a job that begins; `None` if the process is about to exit.
    fn begin(&self) -> Option<u64> {
        let mut jobs = self.jobs.lock();
        if !jobs.open {
            return None;
        }
        let number = jobs.next;
        jobs.next += 1;
        jobs.numbers.push((number, false));
        Some(number)
    }

    fn end(&self, number: u64) {
        self.jobs.lock().numbers.retain(|(running, _)| *running != number);
        self.ended.notify_all();
    }

    /// Starts no more jobs.
    fn close(&self) {
        self.jobs.lock().open = false;
    }

    /// Waits until the jobs that run now have ended, for at most this time; false if one of them is still running.
    fn wait(&self, most: Duration) -> bool {
        let mut jobs = self.jobs.lock();
        let until = Instant::now() + most;
        let before = jobs.next;
        loop {
            let awaited = |(number, is_late): &(u64, bool)| *number < before && !is_late;
            if !jobs.numbers.iter().any(awaited) {
                return jobs.numbers.iter().all(|(number, _)| *number >= before);
            }
            if self.ended.wait_until(&mut jobs, until).timed_out() {
                for (_, is_late) in jobs.numbers.iter_mut().filter(|(number, _)| *number < before) {
                    *is_late = true;
                }
            }
        }
    }
}

thread_local! {
    /// The job that this thread runs.
    static JOB: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs a part of a job that uses neither NVRTC nor a device, and for which nothing waits. Does not return to a job if
/// the process is about to exit.
pub(super) fn outside<T>(part: impl FnOnce() -> T) -> T {
    let Some(number) = JOB.take() else { return part() };
    RUNNING.end(number);
    let result = part();
    match RUNNING.begin() {
        Some(number) => JOB.set(Some(number)),
        None => park(),
    }
    result
}

/// Keeps the thread until the process exits. The end of a thread destroys NVRTC's data of that thread, which must not
/// happen during the exit.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends the process at once if a job is still running: what follows, in NVRTC's exit handlers and in those of the driver,
/// must not run beside it.
extern "C" fn at_exit(status: c_int) {
    prepare_exit();
    if !RUNNING.jobs.lock().numbers.is_empty() {
        // SAFETY: writes out the buffers of C's streams, as the rest of the exit would. Rust's are written before exit
        // handlers run.
        unsafe {
            fflush(std::ptr::null_mut());
            _exit(status)
        }
    }
}

/// Waits for running compilations, within [`MAX_WAIT`], and starts no more: the process is about to exit.
pub(super) fn prepare_exit() {
    RUNNING.close();
    pause();
}

/// Waits for running compilations, within [`MAX_WAIT`]. One that runs longer does not use a device that was closed
/// meanwhile (`Library::enter`).
pub(super) fn pause() {
    if !RUNNING.wait(MAX_WAIT) {
        // NVRTC may have registered handlers since. Now ours is called before them.
        register();
    }
}

unsafe extern "C" {
    /// C's `fflush`; null for all streams.
    fn fflush(stream: *mut c_void) -> c_int;
    /// Ends the process without exit handlers.
    fn _exit(status: c_int) -> !;
}

/// Registers [`at_exit`] before all handlers that are registered now.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn register() {
    unsafe extern "C" {
        /// `atexit` for handlers that get the status.
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn handler(status: c_int, _: *mut c_void) {
        at_exit(status);
    }
    // SAFETY: the handler is a plain function.
    let _ = unsafe { on_exit(handler, std::ptr::null_mut()) };
}

/// As above. Handlers of C's `atexit` do not get the status, so it is lost if a job is still running.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn register() {
    unsafe extern "C" {
        fn atexit(handler: extern "C" fn()) -> c_int;
    }
    extern "C" fn handler() {
        at_exit(1);
    }
    // SAFETY: the handler is a plain function.
    let _ = unsafe { atexit(handler) };
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
        register();
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

    /// The number of threads.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (cores / 2).clamp(1, self.most)
    }

    /// Passes a job to the threads; false if there are none.
    pub fn run(&'static self, used: Use, job: Job) -> bool {
        let started = self.started.get_or_init(|| {
            let workers = (0..self.threads()).filter(|_| {
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
        if !RUNNING.run(job) {
            park();
        }
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
    fn a_job_that_does_not_end_is_waited_for_once() {
        let running = Running::new();
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(3600));
        assert!(running.wait(short), "no job runs");
        std::thread::scope(|scope| {
            let (begun, begins) = std::sync::mpsc::channel();
            let start = || {
                let (end, ends) = std::sync::mpsc::channel::<()>();
                let (running, begun) = (&running, begun.clone());
                let thread = scope.spawn(move || {
                    running.run(|| {
                        begun.send(()).unwrap();
                        let _ = ends.recv();
                    })
                });
                begins.recv().unwrap();
                (thread, end)
            };
            let (stuck, end_stuck) = start();
            assert!(!running.wait(short), "it runs");
            assert!(!running.wait(long), "it is not waited for again");
            // Another job is waited for.
            let (good, end_good) = start();
            let waits = scope.spawn(|| running.wait(long));
            drop(end_good);
            assert!(good.join().unwrap());
            assert!(!waits.join().unwrap());
            running.close();
            assert!(!running.run(|| panic!("it started")), "the process is about to exit");
            drop(end_stuck);
            assert!(stuck.join().unwrap());
            assert!(running.wait(long));
        });
    }

    #[test]
    fn a_job_that_panics_has_ended() {
        let running = Running::new();
        assert!(running.run(|| panic!("a job")));
        assert!(running.wait(Duration::from_secs(3600)));
    }

    /// The process of this test exits while a job runs that does not end, as an embedding program does (`drop`), or the
    /// command (`prepare`), or a program that does neither. Handlers that C and NVRTC registered wait for the job.
    #[test]
    fn a_process_ends_while_a_job_does_not() {
        const NAME: &str = "RUNNEL_TEST_EXIT";
        if let Ok(way) = std::env::var(NAME) {
            extern "C" fn stuck(_: c_int) {
                loop {
                    std::thread::park();
                }
            }
            extern "C" fn stuck_too() {
                stuck(0);
            }
            unsafe extern "C" {
                fn atexit(handler: extern "C" fn()) -> c_int;
            }
            // SAFETY: the handler is a plain function.
            unsafe { atexit(stuck_too) };
            register();
            let (begun, begins) = std::sync::mpsc::channel();
            let job = move || {
                begun.send(()).unwrap();
                stuck(0);
            };
            assert!(COMPILERS.run(Use::default(), Box::new(job)));
            begins.recv().unwrap();
            if way != "neither" {
                // SAFETY: as above.
                unsafe { atexit(stuck_too) };
            }
            match &*way {
                "drop" => pause(),
                "prepare" => prepare_exit(),
                _ => {}
            }
            // SAFETY: a literal text and number.
            unsafe { libc::printf(c"written %d".as_ptr(), 1) };
            std::process::exit(7);
        }
        for way in ["drop", "prepare", "neither"] {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["a_process_ends_while_a_job_does_not", "--nocapture"]).env(NAME, way);
            let ended = command.output().unwrap();
            let written = String::from_utf8_lossy(&ended.stdout);
            assert_eq!(ended.status.code(), Some(7), "{way}: {written}{ended:?}");
            assert!(written.ends_with("written 1"), "{way}: {written}");
        }
    }

    #[test]
    fn nothing_waits_for_a_job_that_is_outside() {
        let (begun, begins) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (done, ended) = std::sync::mpsc::channel();
        let job = move || {
            let number = JOB.get();
            outside(|| {
                begun.send(number).unwrap();
                ends.recv().unwrap();
            });
            done.send(JOB.get()).unwrap();
        };
        assert!(COMPILERS.run(Use::default(), Box::new(job)));
        let number = begins.recv().unwrap().unwrap();
        assert!(RUNNING.jobs.lock().numbers.iter().all(|(running, _)| *running != number));
        end.send(()).unwrap();
        assert!(ended.recv().unwrap().is_some_and(|now| now > number), "it runs again");
        assert_eq!(outside(|| 3), 3, "other threads");
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
