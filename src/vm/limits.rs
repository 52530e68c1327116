//! Resource limits of a script, and their checks.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::account::Account;
use super::heap::List;
use super::value::Value;
use super::values::Values;
use super::{FileAccess, Vm, account, cycles, error};
use crate::base::stop::{self, Reason, Stop};
use crate::base::{Error, ErrorKind, Result, guard};
use crate::base::{room, stack};
use crate::plan::{Began, Limits as Things};

/// Units of work between two checks of the limits. A backward jump or a call is one unit, and so is each
/// element that a native moves or computes.
pub(super) const SLICE: u32 = 4096;
/// Units that a call of a native counts towards the next check, in addition to its work.
pub(super) const NATIVE: u32 = 64;
/// Units that an instruction counts if the interpreter loop does not handle it inline.
pub(super) const STEP: u32 = 4;
/// Checks that ignore the time limit after it is reached, so that a handler can clean up.
const GRACE: u32 = 16;
/// Time that deferred code has after an interrupt. Then every check fails, as after another interrupt.
const CLEANUP: Duration = Duration::from_secs(2);
/// Bytes of a string between two checks.
const PIECE: usize = 64 << 10;
/// Values copied between two checks.
const COPIES: usize = 32 << 10;
/// Maximum nesting of callbacks from natives into the script; each uses Rust stack.
pub(super) const CALLBACKS: usize = 100;

/// Maximum Rust stack used by callbacks, in bytes.
const CALLBACK_STACK: usize = 1 << 20;

/// Stack that must be free for a callback: code that runs without a stack check uses less. Unoptimised builds
/// have larger frames.
const CALLBACK_ROOM: usize = if cfg!(debug_assertions) { 512 << 10 } else { 192 << 10 };
/// Stack that must be free for an entry from Rust. Threads with 512 KiB have it (1 MiB without optimisation).
const ENTRY_ROOM: usize = if cfg!(debug_assertions) { 768 << 10 } else { 320 << 10 };

/// Resource limits of a script. Reaching one raises a coded error of kind `Limit`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Operations: backward jumps, calls, and elements that natives and tensor operations move and compute.
    /// The same script stops at the same point on every backend.
    pub fuel: Option<u64>,
    /// Nested script calls.
    pub call_depth: usize,
    /// Bytes of lists, strings and other values: 4 GiB, or less where the process may use less.
    pub host_bytes: usize,
    /// Bytes printed.
    pub output_bytes: Option<u64>,
    /// Live tensors and events. (Streams have their own bound: 32 per priority of a device.)
    pub things: Things,
    /// Time since the call of `eval` or `call`.
    pub time: Option<Duration>,
    /// The files that scripts may read and write.
    pub files: FileAccess,
    /// Whether scripts may read the environment.
    pub environment: bool,
    /// Whether scripts may join process groups, over the network.
    pub groups: bool,
}

/// The default limit on host memory: 4 GiB, or what the process may use, determined once.
fn host_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| usize::try_from(room::left()).unwrap_or(usize::MAX).min(4 << 30))
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            fuel: None,
            call_depth: 10_000,
            host_bytes: host_bytes(),
            output_bytes: None,
            things: Things::default(),
            time: None,
            files: FileAccess::All,
            environment: true,
            groups: false,
        }
    }
}

/// An entry from Rust. During the outermost one, parts of the VM are stored in thread-locals: its
/// account, the candidates of its cycle collector, its stop condition. The end takes them back, also when a
/// panic unwinds. So no part of a VM stays behind on a thread; [`Engine`](crate::Engine) relies on this
/// to be `Send`.
pub(super) struct Entry<'vm>(pub &'vm mut Vm);

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The counters towards the next check of the limits, and the interrupt flag.
pub(super) struct Meter {
    /// Backward jumps and calls until the next check of the limits.
    pub(super) budget: u32,
    /// Work since the last check of the limits.
    work: Cell<u32>,
    /// Fuel that was used and not yet deducted.
    owed: Cell<u64>,
    /// Remaining checks that ignore an exceeded time limit.
    grace: Cell<u32>,
    /// True once a handler has received its extra fuel or time.
    fuel_grace: bool,
    /// After an interrupt: when deferred code must have ended.
    cleaned_by: Cell<Option<Instant>>,
    /// Set by another thread to stop the script.
    pub(super) interrupt: Arc<AtomicBool>,
    /// Whether another thread may set the interrupt flag.
    pub(super) stoppable: bool,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            budget: SLICE,
            work: Cell::new(0),
            owed: Cell::new(0),
            grace: Cell::new(0),
            fuel_grace: false,
            cleaned_by: Cell::new(None),
            interrupt: Arc::default(),
            stoppable: false,
        }
    }
}

/// The outermost entry from Rust: its start, and the state of this thread that it replaced.
pub(super) struct EntryState {
    /// Number of nested entries.
    pub(super) depth: usize,
    started: Instant,
    /// The address of the Rust stack at the start.
    stack_start: usize,
    /// Bytes printed since the start.
    output_bytes: u64,
    /// Progress of the devices at the start.
    began: Began,
    /// The heap account while it is not this thread's, and the account that this thread had before.
    pub(super) account: Account,
    outer_account: Account,
    /// The stop request of this thread before the start.
    outer_stop: Option<Option<Stop>>,
}

impl Default for EntryState {
    fn default() -> EntryState {
        EntryState {
            depth: 0,
            started: Instant::now(),
            stack_start: 0,
            output_bytes: 0,
            began: Began::default(),
            account: Account::default(),
            outer_account: Account::default(),
            outer_stop: None,
        }
    }
}

impl Vm {
    /// Begins an entry from Rust, which ends when the guard is dropped. The outermost entry resets the
    /// limits.
    pub(super) fn enter(&mut self) -> Entry<'_> {
        self.entry.depth += 1;
        if self.entry.depth == 1 {
            // A panic recorded earlier, when no script ran.
            drop(guard::take());
            self.rt.quota.fuel = self.limits.fuel;
            self.rt.quota.limits = Things { host_bytes: Some(self.limits.host_bytes), ..self.limits.things };
            self.meter.fuel_grace = false;
            self.meter.cleaned_by.set(None);
            self.meter.grace.set(0);
            self.meter.owed.set(0);
            self.meter.work.set(0);
            self.calls.depth_limit = self.limits.call_depth;
            self.calls.frame_room = 0;
            self.entry.started = Instant::now();
            self.entry.stack_start = stack::address();
            self.meter.budget = 1;
            let account =
                std::mem::take(&mut self.entry.account).limited(self.limits.host_bytes, &self.outside);
            self.entry.outer_account = account::enter(account);
            account::hurry(false);
            self.entry.output_bytes = 0;
            if self.meter.stoppable || self.limits.time.is_some() {
                let deadline = self.limits.time.and_then(|limit| self.entry.started.checked_add(limit));
                let deadline = deadline.map(|at| (at, Reason::Time));
                self.entry.outer_stop =
                    Some(stop::enter(Some(Stop { flag: self.meter.interrupt.clone(), deadline })));
                self.entry.began = self.rt.began();
            }
            account::release_some();
        }
        Entry(self)
    }

    fn leave(&mut self) {
        // After a panic, which is a bug of the VM, only the state of this thread is restored.
        if self.entry.depth == 1 && !std::thread::panicking() {
            self.tidy();
        }
        self.entry.depth -= 1;
        if self.entry.depth == 0 {
            account::hurry(false);
            self.entry.account = account::enter(std::mem::take(&mut self.entry.outer_account));
            if let Some(outer) = self.entry.outer_stop.take() {
                stop::enter(outer);
            }
        }
    }

    /// Runs `code` as one entry from Rust: its values are charged to this VM, and pending work is
    /// submitted at the end.
    ///
    /// # Errors
    ///
    /// Those of `code`, and of the submitted work.
    pub fn within<T>(&mut self, code: impl FnOnce(&mut Vm) -> Result<T>) -> Result<T> {
        check_entry()?;
        let entry = self.enter();
        let result = code(entry.0);
        let result = entry.0.settle(result);
        drop(entry);
        result.map_err(|error| self.name_streams(error, None))
    }

    /// Drops values of this VM inside an entry, so that no drop is deferred in another VM's
    /// account.
    pub fn let_go<T>(&mut self, values: T) {
        let _entry = self.enter();
        drop(values);
    }

    /// Finishes an entry. At the end of the outermost one, pending work is submitted, and errors that could
    /// not be raised are attached to the entry's error. An entry that was interrupted or timed out discards
    /// its queued work.
    pub(super) fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        if self.entry.depth != 1 {
            return result;
        }
        let error = match result.and_then(|out| self.flush().map(|()| out)) {
            Ok(out) => return Ok(out),
            Err(error) => error,
        };
        self.note_stop(&error);
        let stopped = error.kind() == ErrorKind::Interrupted || crate::driver::error::is_out_of_time(&error);
        let error = if stopped { self.abandon(error) } else { error };
        if error::is_host_memory(&error) {
            // The next input can use the memory of queued work. Errors of work that cannot run are reported where its
            // result is read.
            let _ = self.flush();
        }
        let error = match guard::take() {
            Some(other) => error.and(other),
            None => error,
        };
        Err(error.with_sources(&self.sources))
    }

    /// Discards the work that the entry queued on devices; the error reports the work that cannot be cancelled.
    #[cold]
    fn abandon(&mut self, error: Error) -> Error {
        let began = std::mem::take(&mut self.entry.began);
        let busy = self.rt.abandon(&began);
        if busy.is_empty() {
            return error;
        }
        let left = |(device, count): &(_, u64)| format!("{count} launches of {device}");
        let left: Vec<String> = busy.iter().map(left).collect();
        error.help(format!(
            "{} still run, which this device cannot stop; `cuda.synchronize()` waits for them",
            left.join(" and ")
        ))
    }

    /// Checks the limits, and sets the number of units until the next check.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(&mut self) -> Result<()> {
        self.meter.budget = SLICE;
        if let Some(error) = guard::take() {
            return Err(error);
        }
        self.check_limits()?;
        if let Some(fuel) = self.rt.quota.fuel {
            let fuel = fuel.saturating_sub(self.meter.owed.take());
            self.rt.quota.fuel = Some(fuel);
            if fuel == 0 {
                return Err(out_of_fuel());
            }
            self.meter.budget = u64::from(SLICE).min(fuel) as u32;
            self.rt.quota.fuel = Some(fuel - u64::from(self.meter.budget));
        }
        account::release_some();
        if cycles::is_due() {
            cycles::collect();
        }
        account::check().or_else(|_| {
            // Queued work may hold tensors that nothing else refers to.
            account::hurry(false);
            self.rt.flush()?;
            account::check()
        })
    }

    /// Checks for an interrupt, the time, and whether walks owe more fuel than is left.
    #[cold]
    #[inline(never)]
    pub(super) fn check_limits(&self) -> Result<()> {
        self.meter.work.set(0);
        if self.is_interrupted() {
            account::hurry(true);
            return Err(error::interrupted());
        }
        if self.limits.time.is_some_and(|limit| self.entry.started.elapsed() > limit) {
            match self.meter.grace.get().checked_sub(1) {
                Some(left) => self.meter.grace.set(left),
                None => {
                    account::hurry(true);
                    return Err(error::out_of_time());
                }
            }
        }
        match self.rt.quota.fuel.is_some_and(|fuel| self.meter.owed.get() > fuel) {
            true => Err(out_of_fuel()),
            false => Ok(()),
        }
    }

    /// True after a new interrupt, which gives deferred code time to clean up, and when that time is over. A second
    /// interrupt ends it.
    fn is_interrupted(&self) -> bool {
        if self.meter.interrupt.swap(false, Ordering::Relaxed) {
            let time = if self.meter.cleaned_by.get().is_some() { Duration::ZERO } else { CLEANUP };
            let at = Instant::now() + time;
            self.meter.cleaned_by.set(Some(at));
            stop::interrupt_at(at);
            return true;
        }
        self.meter.cleaned_by.get().is_some_and(|at| Instant::now() >= at)
    }

    /// The bytes of host memory that count towards the limit: values, and what tensors take in addition to elements.
    pub fn host_bytes(&self) -> usize {
        let values = if self.entry.depth == 0 { self.entry.account.live() } else { account::live_bytes() };
        (values.max(0) as usize).saturating_add((self.outside)())
    }

    /// Frees values that are reachable only from themselves. This also happens automatically when there are
    /// many, and when memory is short.
    pub fn collect_cycles(&mut self) {
        let _entry = self.enter();
        cycles::collect();
    }

    /// Handles a limit error that the script has seen. An interrupted wait clears the request. When time or fuel is
    /// exhausted, a handler receives a small extra amount once, to clean up; then every check fails.
    pub(super) fn note_stop(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Interrupted {
            self.is_interrupted();
            account::hurry(true);
            if self.meter.cleaned_by.get().is_some_and(|at| Instant::now() >= at) {
                self.meter.budget = 1;
                self.meter.work.set(SLICE);
            }
        }
        if !error::is_spent(error) {
            return;
        }
        account::hurry(true);
        self.meter.owed.set(0);
        if std::mem::replace(&mut self.meter.fuel_grace, true) {
            self.meter.budget = 1;
            self.meter.grace.set(0);
            self.meter.work.set(SLICE);
            self.rt.quota.fuel = self.rt.quota.fuel.map(|_| 0);
        } else {
            self.meter.budget = SLICE;
            self.meter.grace.set(GRACE);
            self.meter.work.set(0);
            self.rt.quota.fuel = self.rt.quota.fuel.map(|_| u64::from(SLICE));
        }
    }

    /// Charges work that a native is about to do: moving or computing `count` elements. Checks the limits as
    /// often as instructions would.
    #[inline]
    pub fn charge(&mut self, count: usize) -> Result<()> {
        self.walk(count)?;
        if self.rt.quota.fuel.is_some() { self.take_owed() } else { Ok(()) }
    }

    /// Deducts the owed amount from the fuel.
    #[inline(never)]
    fn take_owed(&mut self) -> Result<()> {
        let Some(fuel) = self.rt.quota.fuel else { return Ok(()) };
        let owed = self.meter.owed.take();
        let left = fuel.saturating_sub(owed);
        self.rt.quota.fuel = Some(left);
        if left == 0 && owed > 0 { Err(out_of_fuel()) } else { Ok(()) }
    }

    /// [`Vm::charge`] for walks that only read the VM: the fuel is deducted later.
    #[inline]
    pub fn walk(&self, count: usize) -> Result<()> {
        self.meter.owed.set(self.meter.owed.get().saturating_add(count as u64));
        self.worked(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Charges for the long strings among the arguments of a call, which may read them or put them into an
    /// error.
    #[inline]
    pub(super) fn charge_texts(&self, args: &[Value]) -> Result<()> {
        const LONG: usize = 4096;
        const BYTES_PER_UNIT: usize = 64;
        let long: usize =
            args.iter().filter_map(Value::as_str).map(str::len).filter(|&bytes| bytes > LONG).sum();
        if long == 0 { Ok(()) } else { self.walk(long / BYTES_PER_UNIT) }
    }

    /// Counts work towards the next check, without using fuel.
    #[inline]
    pub(super) fn worked(&self, units: u32) -> Result<()> {
        let work = self.meter.work.get().saturating_add(units);
        if work >= SLICE {
            return self.check_limits();
        }
        self.meter.work.set(work);
        Ok(())
    }

    /// Splits a string into pieces at character boundaries; each piece is charged before it is passed on.
    pub fn pieces<'t>(&mut self, text: &'t str, mut each: impl FnMut(&'t str) -> Result<()>) -> Result<()> {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(super::search::cut(rest, PIECE));
            self.charge(piece.len() / 16)?;
            each(piece)?;
            rest = behind;
        }
        Ok(())
    }

    /// Appends to a string under construction, checking the heap account and the limits.
    #[inline]
    pub fn push_text(&mut self, text: &mut String, more: &str) -> Result<()> {
        account::charge_text(text, more.len())?;
        if more.len() <= PIECE {
            // A unit is 16 bytes.
            if more.len() >= 16 {
                self.charge(more.len() / 16)?;
            }
            text.push_str(more);
            return Ok(());
        }
        self.pieces(more, |piece| {
            text.push_str(piece);
            Ok(())
        })
    }

    /// Appends a string `count` times.
    pub fn push_repeated(&mut self, text: &mut String, more: &str, count: usize) -> Result<()> {
        // Short strings are appended many at a time.
        let each = (4096 / more.len().max(1)).clamp(1, count.max(1));
        let some = if each > 1 { more.repeat(each) } else { String::new() };
        let mut left = if more.is_empty() { 0 } else { count };
        while left > 0 {
            let now = each.min(left);
            self.push_text(text, if each > 1 { &some[..now * more.len()] } else { more })?;
            left -= now;
        }
        Ok(())
    }

    /// Copies values.
    pub fn copies(&mut self, values: &[Value]) -> Result<Values> {
        self.joined(values, &[])
    }

    /// Copies the values of two slices into one vector.
    pub fn joined(&mut self, first: &[Value], second: &[Value]) -> Result<Values> {
        account::charge_values(first.len() + second.len())?;
        let mut copies = Values::with_capacity(first.len() + second.len());
        for some in first.chunks(COPIES).chain(second.chunks(COPIES)) {
            self.charge(some.len().div_ceil(8))?;
            copies.extend_from_slice(some);
        }
        Ok(copies)
    }

    /// Refuses a callback that would nest too deeply.
    pub(super) fn check_callback(&self) -> Result<()> {
        let used = self.entry.stack_start.abs_diff(stack::address());
        match self.calls.callbacks >= CALLBACKS || used > CALLBACK_STACK || stack::left() < CALLBACK_ROOM {
            true => Err(error::callback_depth(self.calls.callbacks)),
            false => Ok(()),
        }
    }

    /// Moves values to the end of a list.
    pub fn extend(&mut self, list: &Rc<List>, items: Values) -> Result<()> {
        account::charge_values(items.len())?;
        let mut items = items.into_iter();
        loop {
            let some: Values = items.by_ref().take(COPIES).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.charge(some.len().div_ceil(8))?;
            list.extend(some)?;
        }
    }

    /// Charges bytes that are about to be printed.
    pub(super) fn charge_output(&mut self, bytes: usize) -> Result<()> {
        let Some(limit) = self.limits.output_bytes else { return Ok(()) };
        self.entry.output_bytes = self.entry.output_bytes.saturating_add(bytes as u64);
        if self.entry.output_bytes > limit { Err(error::output(limit)) } else { Ok(()) }
    }

    /// Checks for an interrupt and the time; natives that wait call this.
    pub fn poll(&self) -> Result<()> {
        self.check_limits()
    }

    /// Time since the VM was created.
    pub fn uptime(&self) -> Duration {
        self.born.elapsed()
    }

    pub(super) fn too_deep(&self) -> Error {
        error::call_depth(self.calls.depth_limit)
    }
}

/// The error for exhausted fuel; the values that the failing code holds are dropped later.
#[cold]
fn out_of_fuel() -> Error {
    account::hurry(true);
    error::fuel()
}

/// Refuses to begin on a stack that is too small for a script.
pub(super) fn check_entry() -> Result<()> {
    let left = stack::left();
    if left < ENTRY_ROOM { Err(error::small_stack(left, ENTRY_ROOM)) } else { Ok(()) }
}
