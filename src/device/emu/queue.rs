//! The queues of an emulated machine, and the order in which they run.
//!
//! One command runs at a time, on the machine's thread or on a host thread that waits; a kernel is
//! parallel inside. So two streams that race give a wrong answer, as on a real device, but never a
//! data race in the host process, which one thread per stream would. Between streams the oldest
//! ready command of the highest priority runs first or, under a seed, any ready one.
//!
//! Note [Virtual time]. A machine has a clock of its own, in nanoseconds. It moves by a model of
//! the time that work takes, by 10 us with each query that answers false, and, when a host thread
//! waits and nothing else can run, to the end of the next sleep. So a query right after a sleep is
//! false, a loop that polls ends, and no sleep costs real time.

use super::order::{Order, Schedule};
use crate::base::{Result, stop};
use crate::device::graph::Task;
use crate::device::{Work, error};
use crate::kernel::host::{self, FaultSlot, bytes};
use crate::kernel::{Body, Launch, Ptr};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How far the clock moves with a query that answers false.
const QUERY: u64 = 10_000;

/// Commands in all queues together, from which the host waits for some to end.
/// Source: CUDA's own queues hold about a thousand launches.
const FULL: usize = 4096;

/// Modelled time from which the machine's thread is woken at once.
const LONG: u64 = 20_000;

/// Modelled time from which a wait that may end leaves work to the machine's thread; the real time is
/// about a hundred times as long.
const HEAVY: u64 = 100_000;

/// A wait looks this often whether it was interrupted.
const GLANCE: Duration = Duration::from_millis(5);

/// What a stream does. Nearly all are launches, so the small variants waste little.
#[allow(clippy::large_enum_variant)]
pub(super) enum Command {
    /// Runs a program.
    Launch(Box<Launch>, Arc<FaultSlot>),
    /// Copies bytes.
    Copy { dst: Ptr, src: Source, bytes: u64 },
    /// Fills memory.
    Fill { dst: Ptr, pattern: u64, width: u32, count: u64 },
    /// Completes the n-th record of an event.
    Record(Arc<Event>, u64),
    /// Waits for the n-th record of an event.
    Wait(Arc<Event>, u64),
    /// Does nothing for some nanoseconds.
    Sleep(u64),
}

/// Where a copy comes from.
pub(super) enum Source {
    /// Memory that stays valid until the copy has run.
    Memory(Ptr),
    /// Bytes that were taken when the copy was queued.
    Taken(Box<[u8]>),
}

/// An event. The fields change under the queues' lock alone.
pub(super) struct Event {
    /// Whether its time may be asked for.
    pub(super) timing: bool,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    recorded: u64,
    /// The records that have not completed, with their streams, oldest first. Records on two streams
    /// may complete in any order, and who waits for one waits for that one.
    open: Vec<(u64, usize)>,
    /// When the newest completed record completed.
    at: u64,
}

/// All queues of a machine.
pub(super) struct Queues {
    state: Mutex<State>,
    /// Wakes the machine's thread.
    work: Condvar,
    /// Wakes host threads that wait while another thread runs a command.
    done: Condvar,
    interrupt: Option<Arc<AtomicBool>>,
}

struct State {
    streams: Vec<Stream>,
    /// Streams with queued commands.
    active: Vec<usize>,
    queued: usize,
    /// Numbers commands by age.
    next: u64,
    clock: u64,
    /// The stream whose command a thread runs outside the lock.
    running: Option<usize>,
    /// How many host threads wait on `done`.
    waiting: usize,
    /// True while the machine's thread sleeps until it is woken.
    asleep: bool,
    stopped: bool,
    /// True while the machine has a thread of its own.
    served: bool,
    /// Who decides what is next; `None` runs in order of age, on a thread.
    order: Option<Order>,
    /// What a kernel's panic said; every later wait reports it.
    broken: Option<String>,
}

struct Stream {
    priority: i32,
    device: u32,
    queue: VecDeque<(u64, Command)>,
    /// When the sleep at the front ends.
    wakes: Option<u64>,
}

/// What a host thread waits for.
pub(super) enum Goal {
    /// Nothing queued or running on a stream.
    Stream(usize),
    /// The same for all streams of a device.
    Device(u32),
    /// A record of an event.
    Event(Arc<Event>, u64),
    /// Fewer commands queued than fill the queues.
    Room,
}

impl Event {
    pub(super) fn new(timing: bool) -> Event {
        Event { timing, times: Mutex::default() }
    }

    /// Counts a record on a stream, and returns its number.
    pub(super) fn next_record(&self, stream: usize) -> u64 {
        let mut times = self.times.lock();
        times.recorded += 1;
        let record = times.recorded;
        times.open.push((record, stream));
        record
    }

    /// The number of its last record; 0 before the first.
    pub(super) fn recorded(&self) -> u64 {
        self.times.lock().recorded
    }

    /// When its last record completed, if it has.
    pub(super) fn time(&self) -> Option<u64> {
        let times = self.times.lock();
        (times.recorded > 0 && Event::stream_of(&times, times.recorded).is_none()).then_some(times.at)
    }

    fn complete(&self, record: u64, clock: u64) {
        let mut times = self.times.lock();
        times.open.retain(|(r, _)| *r != record);
        if record == times.recorded {
            times.at = clock;
        }
    }

    fn has_completed(&self, record: u64) -> bool {
        Event::stream_of(&self.times.lock(), record).is_none()
    }

    /// The stream that an open record is queued on.
    fn open_on(&self, record: u64) -> Option<usize> {
        Event::stream_of(&self.times.lock(), record)
    }

    fn stream_of(times: &Times, record: u64) -> Option<usize> {
        times.open.iter().find(|(r, _)| *r == record).map(|(_, stream)| *stream)
    }
}

impl Queues {
    pub(super) fn new(schedule: Option<Schedule>, interrupt: Option<Arc<AtomicBool>>) -> Queues {
        let state = State {
            streams: Vec::new(),
            active: Vec::new(),
            queued: 0,
            next: 0,
            clock: 0,
            running: None,
            waiting: 0,
            asleep: false,
            stopped: false,
            served: false,
            order: schedule.map(Order::new),
            broken: None,
        };
        Queues { state: Mutex::new(state), work: Condvar::new(), done: Condvar::new(), interrupt }
    }

    /// Adds a stream.
    pub(super) fn add_stream(&self, device: u32, priority: i32) -> usize {
        let mut state = self.state.lock();
        state.streams.push(Stream { priority, device, queue: VecDeque::new(), wakes: None });
        state.streams.len() - 1
    }

    /// Queues a command.
    pub(super) fn push(&self, stream: usize, command: Command) -> Result<()> {
        let mut state = self.state.lock();
        // Records and waits go on: an event that was counted as recorded must complete.
        let marker = matches!(command, Command::Record(..) | Command::Wait(..));
        if state.queued >= FULL && !marker {
            drop(state);
            self.wait(&Goal::Room)?;
            state = self.state.lock();
        }
        let cost = command.cost();
        state.push(stream, command);
        if marker && state.order.is_none() {
            // What needs no work happens at once, and needs no thread.
            state.settle();
            if !state.is_ready(stream) {
                return Ok(());
            }
        }
        if state.asleep || cost >= LONG {
            state.asleep = false;
            self.work.notify_one();
        }
        Ok(())
    }

    /// True when a goal is reached; otherwise moves the clock on.
    pub(super) fn query(&self, goal: &Goal) -> Result<bool> {
        let mut state = self.state.lock();
        if let Some(order) = &mut state.order {
            // Under a schedule nothing runs by itself: a query lets some of the work happen.
            for _ in 0..order.below(3) {
                state = self.step(state, None).0;
            }
        } else {
            state.settle();
        }
        state.check()?;
        if state.reached(goal) {
            return Ok(true);
        }
        state.clock += QUERY;
        if state.asleep {
            state.asleep = false;
            self.work.notify_one();
        }
        Ok(false)
    }

    /// Runs commands, or lets them run, until a goal is reached.
    pub(super) fn wait(&self, goal: &Goal) -> Result<()> {
        self.wait_until(goal, true)
    }

    /// As `wait`, and no interrupt ends it.
    pub(super) fn wait_through(&self, goal: &Goal) -> Result<()> {
        self.wait_until(goal, false)
    }

    fn wait_until(&self, goal: &Goal, may_end: bool) -> Result<()> {
        let mut state = self.state.lock();
        let mut spins = 20;
        loop {
            if state.reached(goal) {
                if state.queued > 0 && state.asleep {
                    state.asleep = false;
                    self.work.notify_one();
                }
                return state.check();
            }
            if may_end && self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return Err(error::wait_interrupted());
            }
            if may_end && stop::is_set() {
                error::stopped()?;
                // A wait can end while the machine's thread does the work, and not while this one does.
                if state.running.is_none() && state.is_heavy(goal) {
                    state.asleep = false;
                    self.work.notify_one();
                    state.waiting += 1;
                    self.done.wait_for(&mut state, GLANCE);
                    state.waiting -= 1;
                    continue;
                }
            }
            if state.running.is_some() {
                if spins > 0 {
                    spins -= 1;
                    MutexGuard::unlocked(&mut state, || (0..40).for_each(|_| std::hint::spin_loop()));
                    continue;
                }
                state.waiting += 1;
                self.done.wait_for(&mut state, GLANCE);
                state.waiting -= 1;
                continue;
            }
            let ran;
            (state, ran) = self.step(state, Some(goal));
            if !ran && !state.skip_to_next_wake() && !state.reached(goal) {
                // Every wait names a record queued before it, so this cannot be; but a host thread
                // must not hang on a mistake here.
                return Err(error::driver_failed("emu", "synchronize", "the queues are stuck"));
            }
        }
    }

    /// Calls a function while no command runs.
    pub(super) fn between<R>(&self, f: impl FnOnce() -> R) -> R {
        let mut state = self.state.lock();
        while state.running.is_some() {
            state.waiting += 1;
            self.done.wait_for(&mut state, GLANCE);
            state.waiting -= 1;
        }
        f()
    }

    /// Lets the machine's thread end.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.work.notify_all();
    }

    /// The machine's thread: runs what is ready until stopped.
    pub(super) fn serve(&self) {
        let mut state = self.state.lock();
        let mut idle = 0;
        state.served = true;
        while !state.stopped {
            let ran;
            (state, ran) = self.step(state, None);
            if ran {
                idle = 0;
            } else if idle < 20 {
                // Short naps save host threads the cost of waking this one for each command.
                idle += 1;
                self.work.wait_for(&mut state, Duration::from_micros(100));
            } else {
                idle = 0;
                state.asleep = true;
                self.work.wait(&mut state);
                state.asleep = false;
            }
        }
    }

    /// Runs one ready command, if there is one and no other runs. A waiting host thread names its
    /// goal, so that what it waits for comes first.
    fn step<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        goal: Option<&Goal>,
    ) -> (MutexGuard<'a, State>, bool) {
        if state.running.is_some() {
            return (state, false);
        }
        let Some(stream) = state.choose(goal) else { return (state, false) };
        let Some(command) = state.pop(stream) else { return (state, false) };
        if let Some(work) = state.mark(command) {
            let cost = work.cost();
            state.running = Some(stream);
            let outcome = MutexGuard::unlocked(&mut state, || {
                // Others may wait for the same work, and later work needs it.
                catch_unwind(AssertUnwindSafe(|| stop::masked(|| work.run())))
            });
            state.running = None;
            state.clock += cost;
            if outcome.is_err() {
                state.broken.get_or_insert_with(|| "a kernel failed".to_string());
            }
        }
        state.front_changed(stream);
        if state.waiting > 0 {
            self.done.notify_all();
        }
        (state, true)
    }
}

impl State {
    fn push(&mut self, stream: usize, command: Command) {
        self.next += 1;
        self.queued += 1;
        let number = self.next;
        let queue = &mut self.streams[stream];
        let first = queue.queue.is_empty();
        queue.queue.push_back((number, command));
        if first {
            self.active.push(stream);
            if self.running != Some(stream) {
                self.front_changed(stream);
            }
        }
    }

    fn pop(&mut self, stream: usize) -> Option<Command> {
        let queue = &mut self.streams[stream];
        let (_, command) = queue.queue.pop_front()?;
        queue.wakes = None;
        self.queued -= 1;
        if queue.queue.is_empty() {
            self.active.retain(|&s| s != stream);
        }
        Some(command)
    }

    /// Does what a command that is no work does; gives work back.
    fn mark(&mut self, command: Command) -> Option<Command> {
        match command {
            Command::Record(event, record) => {
                self.clock += 1;
                event.complete(record, self.clock);
                None
            }
            Command::Wait(..) | Command::Sleep(_) => None,
            work => Some(work),
        }
    }

    /// Runs everything at the fronts of the queues that is ready and no work.
    fn settle(&mut self) {
        let marker = |state: &State, s: usize| {
            let front = state.streams[s].queue.front();
            let marker =
                matches!(front, Some((_, Command::Record(..) | Command::Wait(..) | Command::Sleep(_))));
            marker && state.is_ready(s)
        };
        while let Some(stream) = self.active.iter().copied().find(|&s| marker(self, s)) {
            if let Some(command) = self.pop(stream) {
                self.mark(command);
            }
            self.front_changed(stream);
        }
    }

    /// A sleep starts when it comes to the front.
    fn front_changed(&mut self, stream: usize) {
        let clock = self.clock;
        let stream = &mut self.streams[stream];
        if let Some((_, Command::Sleep(length))) = stream.queue.front() {
            stream.wakes.get_or_insert(clock.saturating_add(*length));
        }
    }

    fn is_ready(&self, stream: usize) -> bool {
        let queue = &self.streams[stream];
        match queue.queue.front() {
            None => false,
            Some(_) if self.running == Some(stream) => false,
            Some((_, Command::Wait(event, record))) => event.has_completed(*record),
            Some((_, Command::Sleep(_))) => queue.wakes.is_some_and(|at| at <= self.clock),
            Some(_) => true,
        }
    }

    /// The stream whose first command runs next.
    fn choose(&mut self, goal: Option<&Goal>) -> Option<usize> {
        if self.order.is_some() {
            let ready: Vec<usize> = self.active.iter().copied().filter(|&s| self.is_ready(s)).collect();
            return match (&mut self.order, ready.len()) {
                (Some(order), 2..) => ready.get(order.choose(&ready)).copied(),
                _ => ready.first().copied(),
            };
        }
        let needed = goal.and_then(|goal| self.needed(goal));
        needed.or_else(|| {
            let ready = self.active.iter().copied().filter(|&s| self.is_ready(s));
            ready.min_by_key(|&s| {
                let stream = &self.streams[s];
                (stream.priority, stream.queue.front().map(|front| front.0))
            })
        })
    }

    /// True when the next command takes long, and the machine's thread can run it.
    fn is_heavy(&mut self, goal: &Goal) -> bool {
        if !self.served || self.order.is_some() {
            return false;
        }
        let next = self.choose(Some(goal)).and_then(|stream| self.streams[stream].queue.front());
        next.is_some_and(|(_, command)| command.cost() >= HEAVY)
    }

    /// The ready stream that a goal waits for, through the events that its streams wait for.
    fn needed(&self, goal: &Goal) -> Option<usize> {
        let mut stream = match goal {
            Goal::Stream(stream) => *stream,
            Goal::Event(event, record) => event.open_on(*record)?,
            Goal::Device(_) | Goal::Room => return None,
        };
        // Each step leads to an earlier record, so this ends; the bound is for safety alone.
        for _ in 0..self.active.len() {
            if self.is_ready(stream) {
                return Some(stream);
            }
            match self.streams[stream].queue.front() {
                Some((_, Command::Wait(event, record))) => stream = event.open_on(*record)?,
                _ => return None,
            }
        }
        None
    }

    fn reached(&self, goal: &Goal) -> bool {
        match goal {
            Goal::Stream(stream) => self.streams[*stream].queue.is_empty() && self.running != Some(*stream),
            Goal::Device(device) => {
                let of = |s: &usize| self.streams[*s].device == *device;
                !self.active.iter().any(of) && !self.running.as_ref().is_some_and(of)
            }
            Goal::Event(event, record) => event.has_completed(*record),
            Goal::Room => self.queued < FULL,
        }
    }

    /// Moves the clock to the end of the next sleep; false when no stream sleeps.
    fn skip_to_next_wake(&mut self) -> bool {
        let next = self.active.iter().filter_map(|&s| self.streams[s].wakes).min();
        if let Some(at) = next {
            self.clock = self.clock.max(at);
        }
        next.is_some()
    }

    fn check(&self) -> Result<()> {
        match &self.broken {
            Some(text) => Err(error::driver_failed("emu", "launch", text)),
            None => Ok(()),
        }
    }
}

/// Modelled nanoseconds: about 1 us to start, 1 TB/s of memory, 50 GB/s to the host, 10 TFLOP/s; a sleep
/// takes 1 ns per cycle.
pub(super) fn cost(work: Work<'_>) -> u64 {
    match work {
        Work::Launch(launch) => {
            let count = launch.shape.iter().fold(1u64, |n, &e| n.saturating_mul(e as u64));
            match launch.program.body {
                Body::Matmul(_) => 1000 + count / 5_000,
                _ => 1000 + count.saturating_mul(4 * launch.views.len() as u64) / 1000,
            }
        }
        Work::Copy(bytes) => 1000 + bytes / 50,
        Work::Sleep(cycles) => cycles,
        Work::Graph(steps) => steps.iter().fold(0, |sum, step| {
            sum.saturating_add(match &step.task {
                Task::Launch(launch) => cost(Work::Launch(launch)),
                Task::Copy { bytes, .. } => cost(Work::Copy(*bytes)),
                Task::Write { bytes, .. } => cost(Work::Copy(bytes.len() as u64)),
                Task::Sleep(cycles) => *cycles,
                Task::Mark(_) | Task::Wait(_) => 0,
            })
        }),
    }
}

impl Command {
    /// Modelled nanoseconds.
    fn cost(&self) -> u64 {
        match self {
            Command::Launch(launch, _) => cost(Work::Launch(launch)),
            Command::Copy { bytes, .. } => cost(Work::Copy(*bytes)),
            Command::Fill { width, count, .. } => 1000 + u64::from(*width).saturating_mul(*count) / 1000,
            Command::Record(..) | Command::Wait(..) | Command::Sleep(_) => 0,
        }
    }

    /// Does the work of a launch, a copy or a fill.
    fn run(&self) {
        match self {
            // SAFETY: the invariant of `Launch`; commands run one at a time.
            Command::Launch(launch, faults) => unsafe { host::run(launch, faults) },
            Command::Copy { dst, src, bytes } => {
                let from = match src {
                    Source::Memory(ptr) => *ptr as usize as *const u8,
                    Source::Taken(bytes) => bytes.as_ptr(),
                };
                // SAFETY: the driver's caller keeps both ends alive until the copy has run.
                unsafe { bytes::copy(*dst as usize as *mut u8, from, *bytes as usize) };
            }
            Command::Fill { dst, pattern, width, count } => {
                // SAFETY: as above.
                unsafe { bytes::fill(*dst as usize as *mut u8, *pattern, *width as usize, *count as usize) };
            }
            Command::Record(..) | Command::Wait(..) | Command::Sleep(_) => {}
        }
    }
}
