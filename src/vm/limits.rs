//! Limits on what a script may use, and their checks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{FileAccess, Vm, account, cycles, error};
use crate::base::stack;
use crate::base::stop::{self, Stop};
use crate::base::{Error, ErrorKind, Result, guard};
use crate::plan::Limits as Things;

/// Backward jumps and calls between two looks at the limits.
pub(super) const SLICE: u32 = 4096;
/// The most callbacks from natives into the script within one another: each uses Rust stack.
pub(super) const CALLBACKS: usize = 100;

/// The most Rust stack that callbacks use, in bytes.
const CALLBACK_STACK: usize = 1 << 20;

/// How much stack a callback must find: what runs without a look at the stack takes less. Frames of builds without
/// optimisation are larger.
const CALLBACK_ROOM: usize = if cfg!(debug_assertions) { 512 << 10 } else { 192 << 10 };
/// How much an entry from Rust must find. Threads with 512 KiB have it (1 MiB without optimisation).
const ENTRY_ROOM: usize = if cfg!(debug_assertions) { 768 << 10 } else { 320 << 10 };

/// What a script may use. Each bound, when reached, is a coded error of kind `Limit`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Operations: backward jumps, calls, and elements that natives and tensor operations move and
    /// compute. The same script stops at the same point, on every backend.
    pub fuel: Option<u64>,
    /// Script calls within one another.
    pub call_depth: usize,
    /// Bytes of lists, texts and the like.
    pub host_bytes: usize,
    /// Bytes that are printed.
    pub output_bytes: Option<u64>,
    /// Live tensors and events. (Streams are bounded by themselves: 32 per priority of a device.)
    pub things: Things,
    /// Time from the call of `eval` or `call`.
    pub time: Option<Duration>,
    /// Which files scripts may read and write.
    pub files: FileAccess,
    /// Whether scripts may read the environment.
    pub environment: bool,
    /// Whether scripts may join other processes, over the network.
    pub groups: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            fuel: None,
            call_depth: 10_000,
            host_bytes: 4 << 30,
            output_bytes: None,
            things: Things::default(),
            time: None,
            files: FileAccess::All,
            environment: true,
            groups: false,
        }
    }
}

impl Vm {
    /// Begins an entry from Rust: the limits start anew with the outermost one.
    pub(super) fn enter(&mut self) {
        self.entered += 1;
        if self.entered == 1 {
            // A panic of before, when no script ran.
            drop(guard::take());
            self.rt.fuel = self.limits.fuel;
            self.rt.limits = Things { host_bytes: Some(self.limits.host_bytes), ..self.limits.things };
            self.fuel_grace = false;
            self.depth_limit = self.limits.call_depth;
            self.frame_room = 0;
            self.started = std::time::Instant::now();
            self.stack_start = stack::address();
            self.budget = 1;
            let account = std::mem::take(&mut self.account).limited(self.limits.host_bytes);
            self.outer_account = account::enter(account);
            self.output_bytes = 0;
            if self.stoppable || self.limits.time.is_some() {
                let deadline = self.limits.time.and_then(|limit| self.started.checked_add(limit));
                self.outer_stop = Some(stop::enter(Some(Stop { flag: self.interrupt.clone(), deadline })));
            }
        }
    }

    pub(super) fn leave(&mut self) {
        if self.entered == 1 {
            self.tidy();
        }
        self.entered -= 1;
        if self.entered == 0 {
            self.account = account::enter(std::mem::take(&mut self.outer_account));
            if let Some(outer) = self.outer_stop.take() {
                stop::enter(outer);
            }
        }
    }

    /// Runs `code` as one entry from Rust: the values that it makes and drops are this machine's, and
    /// what it left pending is submitted at its end.
    ///
    /// # Errors
    /// Those of `code`, and of the submitted work.
    pub fn within<T>(&mut self, code: impl FnOnce(&mut Vm) -> Result<T>) -> Result<T> {
        check_entry()?;
        self.enter();
        let result = code(self);
        let result = self.settle(result);
        if let Err(error) = &result {
            self.note_stop(error);
        }
        self.leave();
        result.map_err(|error| self.name_streams(error, None))
    }

    /// The result of an entry: at the end of the outermost one, work that is pending is submitted, and an error
    /// takes along what nothing could raise.
    pub(super) fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        if self.entered != 1 {
            return result;
        }
        let result = result.and_then(|out| self.flush().map(|()| out));
        result.map_err(|error| {
            let error = match guard::take() {
                Some(other) => error.and(other),
                None => error,
            };
            error.with_sources(&self.sources)
        })
    }

    /// Looks at the limits, and sets how long until the next look.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(&mut self) -> Result<()> {
        self.budget = SLICE;
        if let Some(error) = guard::take() {
            return Err(error);
        }
        if self.interrupt.swap(false, Ordering::Relaxed) {
            return Err(error::interrupted());
        }
        if self.limits.time.is_some_and(|limit| self.started.elapsed() > limit) {
            return Err(self.spent());
        }
        if let Some(fuel) = self.rt.fuel {
            if fuel == 0 {
                return Err(self.spent());
            }
            self.budget = u64::from(SLICE).min(fuel) as u32;
            self.rt.fuel = Some(fuel - u64::from(self.budget));
        }
        if cycles::is_due() {
            cycles::collect();
        }
        Ok(())
    }

    /// Takes values apart that only refer to themselves, so that what they hold is free. That happens by itself
    /// when there are many, and when memory is short.
    pub fn collect_cycles(&mut self) {
        self.enter();
        cycles::collect();
        self.leave();
    }

    /// A wait that was interrupted has seen the request.
    pub(super) fn note_stop(&self, error: &Error) {
        if error.kind() == ErrorKind::Interrupted {
            self.interrupt.store(false, Ordering::Relaxed);
        }
    }

    /// Charges work that a native does in one go, such as moving `count` elements.
    pub fn charge(&mut self, count: usize) -> Result<()> {
        if let Some(fuel) = self.rt.fuel {
            let left = fuel.saturating_sub(count as u64);
            self.rt.fuel = Some(left);
            if left == 0 && count > 0 {
                return Err(self.spent());
            }
        }
        if count >= SLICE as usize && self.interrupt.swap(false, Ordering::Relaxed) {
            return Err(error::interrupted());
        }
        Ok(())
    }

    /// Refuses a callback that would nest too deeply.
    pub(super) fn check_callback(&self) -> Result<()> {
        let used = self.stack_start.abs_diff(stack::address());
        match self.callbacks >= CALLBACKS || used > CALLBACK_STACK || stack::left() < CALLBACK_ROOM {
            true => Err(error::callback_depth(self.callbacks)),
            false => Ok(()),
        }
    }

    /// Looks for an interrupt and the time limit, now and then: for walks over values, which may be
    /// long without running an instruction.
    pub(super) fn look_around(&self) -> Result<()> {
        let count = self.walked.get().wrapping_add(1);
        self.walked.set(count);
        if !count.is_multiple_of(SLICE) {
            return Ok(());
        }
        if self.interrupt.swap(false, Ordering::Relaxed) {
            return Err(error::interrupted());
        }
        match self.limits.time.is_some_and(|limit| self.started.elapsed() > limit) {
            true => Err(error::fuel()),
            false => Ok(()),
        }
    }

    /// Counts bytes that are about to be printed.
    pub(super) fn charge_output(&mut self, bytes: usize) -> Result<()> {
        let Some(limit) = self.limits.output_bytes else { return Ok(()) };
        self.output_bytes = self.output_bytes.saturating_add(bytes as u64);
        if self.output_bytes > limit { Err(error::output(limit)) } else { Ok(()) }
    }

    /// Looks for an interrupt and the time limit; natives that wait call this.
    pub fn poll(&mut self) -> Result<()> {
        let budget = self.budget;
        if self.interrupt.swap(false, Ordering::Relaxed) {
            return Err(error::interrupted());
        }
        if self.limits.time.is_some_and(|limit| self.started.elapsed() > limit) {
            return Err(self.spent());
        }
        self.budget = budget;
        Ok(())
    }

    /// Time since the machine was made.
    pub fn uptime(&self) -> Duration {
        self.born.elapsed()
    }

    /// The error of a used-up script. The first time, a handler gets a little more to clean up.
    fn spent(&mut self) -> Error {
        if !self.fuel_grace {
            self.fuel_grace = true;
            self.budget = SLICE;
            self.rt.fuel = self.rt.fuel.map(|_| 0);
        } else {
            self.budget = 1;
        }
        error::fuel()
    }

    pub(super) fn too_deep(&self) -> Error {
        error::call_depth(self.depth_limit)
    }
}

/// Refuses to begin on a stack that is too small for what a script may need.
pub(super) fn check_entry() -> Result<()> {
    let left = stack::left();
    if left < ENTRY_ROOM { Err(error::small_stack(left, ENTRY_ROOM)) } else { Ok(()) }
}
