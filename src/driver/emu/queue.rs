//! The queues of an emulated machine, and the order in which they run.
//!
//! Commands run on the machine's threads (one per device with work) or on a waiting host thread; each kernel
//! is parallel inside. Each device runs one command at a time, and two devices run commands at the same time
//! only if these touch different memory ([`State::holds`]). So two streams that race give a wrong answer, as
//! on a real device, but never a data race in the host process, which one thread per stream would. Between
//! streams the oldest ready command of the highest priority runs first. Under a seed any ready command may
//! run, and it runs alone.
//!
//! Note [Virtual time]. A machine has its own clock, in nanoseconds. It advances by the modelled time of
//! work, by 10 us with each query that returns false, and, when a host thread waits and nothing else can run,
//! to the end of the next sleep. So a query right after a sleep returns false, a polling loop ends, and no
//! sleep costs real time.

use super::cost::cost;
use super::order::{Order, Schedule};
use crate::base::Result;
use crate::base::stop::{self, Stop};
use crate::driver::{Work, error};
use crate::kernel::host::{self, FaultSlot, bytes};
use crate::kernel::{Launch, Ptr};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The advance of the clock, in nanoseconds, by a query that returns false.
const QUERY: u64 = 10_000;

/// Number of queued commands of a device from which the host waits. Source: CUDA's own queues hold about a
/// thousand launches.
const FULL: usize = 4096;

/// Modelled time from which the machine's thread is woken immediately.
const LONG: u64 = 20_000;

/// Modelled time from which an interruptible wait leaves work to the machine's thread; the real time is about
/// a hundred times as long.
const HEAVY: u64 = 100_000;

/// The interval at which a wait checks for interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A command of a stream.
pub(super) enum Command {
    /// Runs a program.
    Launch(Box<Launch>, Arc<FaultSlot>),
    /// Copies bytes.
    Copy { dst: Ptr, src: CopySource, bytes: u64 },
    /// Fills memory.
    Fill { dst: Ptr, pattern: u64, width: u32, count: u64 },
    /// Completes the n-th record of an event.
    Record(Arc<Event>, u64),
    /// Waits for the n-th record of an event.
    Wait(Arc<Event>, u64),
    /// Does nothing for some nanoseconds.
    Sleep(u64),
}

/// The source of a copy.
pub(super) enum CopySource {
    /// Memory that stays valid until the copy has run.
    Memory(Ptr),
    /// Bytes copied when the command was queued.
    Taken(Box<[u8]>),
}

/// An event. Its fields change only under the queues' lock.
pub(super) struct Event {
    /// Whether the event records its time.
    pub(super) timing: bool,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    recorded: u64,
    /// The incomplete records with their streams, oldest first. Records on two streams may complete in any
    /// order, and a wait for a record waits only for that one.
    open: Vec<(u64, usize)>,
    /// When the newest completed record completed.
    at: u64,
}

/// All queues of a machine.
pub(super) struct Queues {
    state: Mutex<State>,
    /// Wakes sleeping threads of the machine.
    work: Condvar,
    /// Wakes napping threads of the machine.
    nap: Condvar,
    /// Wakes host threads that wait for another thread's command.
    done: Condvar,
    interrupt: Option<Arc<AtomicBool>>,
}

struct State {
    streams: Vec<Stream>,
    /// Streams with queued commands.
    active: Vec<usize>,
    /// Queued commands, by device.
    queued: Vec<usize>,
    /// The devices' memory ranges, sorted by address: start, end, device.
    regions: Vec<(Ptr, Ptr, u32)>,
    /// Numbers commands by age.
    next: u64,
    clock: u64,
    /// The commands that are running outside the lock.
    running: SmallVec<[Running; 4]>,
    /// Number of host threads waiting on `done`.
    waiting: usize,
    /// Number of the machine's sleeping threads, and how many of them have been woken.
    asleep: usize,
    woken: usize,
    stopped: bool,
    /// Number of the machine's threads.
    served: usize,
    /// Chooses the next command; without it, threads run commands in order of age.
    order: Option<Order>,
    /// The message of a kernel's panic; every later wait reports it.
    broken: Option<String>,
}

struct Stream {
    priority: i32,
    device: u32,
    queue: VecDeque<(u64, Command)>,
    /// When the sleep at the front of the queue ends.
    wakes: Option<u64>,
    /// Tells its running command to end early.
    end: Arc<AtomicBool>,
}

/// A running command.
struct Running {
    stream: usize,
    number: u64,
    /// The memory that it touches; see [`State::holds`].
    holds: Memories,
}

/// A set of memories: one bit per device, and [`HOST`].
type Memories = u128;

/// The host's memory.
const HOST: Memories = 1 << 127;

/// The condition that a host thread waits for.
pub(super) enum Goal {
    /// A stream has no queued or running commands.
    Stream(usize),
    /// The same for all streams of a device.
    Device(u32),
    /// A record of an event has completed.
    Event(Arc<Event>, u64),
    /// The queues of a device are no longer full.
    Room(u32),
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

    /// The number of the last record; 0 before the first.
    pub(super) fn recorded(&self) -> u64 {
        self.times.lock().recorded
    }

    /// The completion time of the last record, if it has completed.
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

    /// The stream on which an incomplete record is queued.
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
            queued: Vec::new(),
            regions: Vec::new(),
            next: 0,
            clock: 0,
            running: SmallVec::new(),
            waiting: 0,
            asleep: 0,
            woken: 0,
            stopped: false,
            served: 0,
            order: schedule.map(Order::new),
            broken: None,
        };
        let (work, nap, done) = (Condvar::new(), Condvar::new(), Condvar::new());
        Queues { state: Mutex::new(state), work, nap, done, interrupt }
    }

    /// Adds a stream.
    pub(super) fn add_stream(&self, device: u32, priority: i32) -> usize {
        let mut state = self.state.lock();
        let end = Arc::new(AtomicBool::new(false));
        state.streams.push(Stream { priority, device, queue: VecDeque::new(), wakes: None, end });
        if state.queued.len() <= device as usize {
            state.queued.resize(device as usize + 1, 0);
        }
        state.streams.len() - 1
    }

    /// Registers an address range as a device's memory.
    pub(super) fn add_region(&self, device: u32, start: Ptr, bytes: u64) {
        let mut state = self.state.lock();
        let at = state.regions.partition_point(|region| region.0 < start);
        state.regions.insert(at, (start, start + bytes, device));
    }

    /// Queues a command.
    pub(super) fn push(&self, stream: usize, command: Command) -> Result<()> {
        let mut state = self.state.lock();
        // Markers do not wait for room, since that wait can fail: an event counted as recorded must complete.
        let marker = command.is_marker();
        let device = state.streams[stream].device;
        if state.queued[device as usize] >= FULL && !marker {
            drop(state);
            self.wait(&Goal::Room(device))?;
            state = self.state.lock();
        }
        let cost = command.cost();
        state.push(stream, command);
        if marker && state.order.is_none() {
            // Markers that are ready complete at once and need no thread.
            state.settle();
            if !state.is_ready(stream) {
                return Ok(());
            }
        }
        if cost >= LONG {
            self.nap.notify_one();
        }
        self.wake(&mut state);
        Ok(())
    }

    /// Wakes a sleeping thread of the machine, if any.
    fn wake(&self, state: &mut State) {
        if state.asleep > state.woken {
            state.woken += 1;
            self.work.notify_one();
        }
    }

    /// The number of the newest command.
    pub(super) fn newest(&self) -> u64 {
        self.state.lock().next
    }

    /// Discards the work of a device queued after the command with this number, and ends such work that is
    /// running. Events still complete. Returns the streams that lost work.
    pub(super) fn abandon(&self, device: u32, after: u64) -> Vec<usize> {
        let mut state = self.state.lock();
        let mut lost = Vec::new();
        for at in 0..state.streams.len() {
            if state.streams[at].device != device {
                continue;
            }
            let runs = state.running.iter().any(|r| r.stream == at && r.number > after);
            let stream = &mut state.streams[at];
            if runs {
                stream.end.store(true, Ordering::Relaxed);
            }
            let before = stream.queue.len();
            stream.queue.retain(|(number, command)| *number <= after || command.is_marker());
            let (dropped, is_empty) = (before - stream.queue.len(), stream.queue.is_empty());
            if runs || dropped > 0 {
                lost.push(at);
            }
            if dropped > 0 {
                stream.wakes = None;
                state.queued[device as usize] -= dropped;
                if is_empty {
                    state.active.retain(|&s| s != at);
                } else if !state.is_running(at) {
                    state.front_changed(at);
                }
            }
        }
        if state.order.is_none() {
            state.settle();
        }
        if state.waiting > 0 {
            self.done.notify_all();
        }
        self.wake(&mut state);
        lost
    }

    /// True when all work of a device queued after the command with this number has completed.
    pub(super) fn has_done(&self, device: u32, after: u64) -> bool {
        let state = self.state.lock();
        let of = |stream: usize| state.streams[stream].device == device;
        let runs = state.running.iter().any(|r| of(r.stream) && r.number > after);
        let queued =
            |&s: &usize| of(s) && state.streams[s].queue.iter().any(|(n, c)| *n > after && !c.is_marker());
        !runs && !state.active.iter().any(queued)
    }

    /// True when a goal is reached; otherwise advances the clock.
    pub(super) fn query(&self, goal: &Goal) -> Result<bool> {
        let mut state = self.state.lock();
        if let Some(order) = &mut state.order {
            // Under a schedule nothing runs by itself, so a query runs some of the work.
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
        state.clock = state.clock.saturating_add(QUERY);
        self.wake(&mut state);
        Ok(false)
    }

    /// Runs commands, or lets them run, until a goal is reached.
    pub(super) fn wait(&self, goal: &Goal) -> Result<()> {
        self.wait_until(goal, true)
    }

    /// As `wait`, but cannot be interrupted.
    pub(super) fn wait_through(&self, goal: &Goal) -> Result<()> {
        self.wait_until(goal, false)
    }

    fn wait_until(&self, goal: &Goal, may_end: bool) -> Result<()> {
        let mut state = self.state.lock();
        let mut spins = 20;
        loop {
            if state.reached(goal) {
                if !state.active.is_empty() {
                    self.wake(&mut state);
                }
                return state.check();
            }
            if may_end && self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return Err(error::wait_interrupted());
            }
            if may_end && stop::is_set() {
                error::stopped()?;
                // A wait can be interrupted while the machine's thread does the work, but not while this
                // thread does it.
                if state.is_heavy(goal) {
                    self.wake(&mut state);
                    self.nap.notify_one();
                    self.pause(&mut state);
                    continue;
                }
            }
            let ran;
            (state, ran) = self.step(state, Some(goal));
            if ran || state.reached(goal) {
                continue;
            }
            let others = !state.running.is_empty() || (state.served > 0 && state.choose(None).is_some());
            if others && state.sleeps(goal) && state.skip_to_next_wake(Some(goal)) {
                continue;
            }
            if !state.running.is_empty() {
                if spins > 0 {
                    spins -= 1;
                    MutexGuard::unlocked(&mut state, || (0..40).for_each(|_| std::hint::spin_loop()));
                    continue;
                }
                self.pause(&mut state);
                continue;
            }
            if others {
                // The machine's threads run work that the goal does not need, since that may still delay the goal.
                self.wake(&mut state);
                self.nap.notify_one();
                self.pause(&mut state);
                continue;
            }
            if !state.skip_to_next_wake(None) {
                // Unreachable, since every wait names a record queued before it; but a host thread must not
                // hang because of a bug here.
                return Err(error::driver_failed("emu", "synchronize", "the queues are stuck"));
            }
        }
    }

    /// Waits briefly for a command to end.
    fn pause(&self, state: &mut MutexGuard<'_, State>) {
        state.waiting += 1;
        self.done.wait_for(state, POLL_INTERVAL);
        state.waiting -= 1;
    }

    /// Calls a function while no command that touches a device's memory is running.
    pub(super) fn between<R>(&self, device: u32, f: impl FnOnce() -> R) -> R {
        let mut state = self.state.lock();
        // A thread that is asked to end does not wait.
        while state.busy() & (1 << device) != 0 && stop::reason().is_none() {
            self.pause(&mut state);
        }
        f()
    }

    /// Ends the machine's threads; running commands end early.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.streams.iter().for_each(|stream| stream.end.store(true, Ordering::Relaxed));
        drop(state);
        self.work.notify_all();
        self.nap.notify_all();
    }

    /// A thread of the machine: runs what is ready until stopped.
    pub(super) fn serve(&self) {
        let served = Served(self);
        let mut state = served.0.state.lock();
        let mut idle = 0;
        state.served += 1;
        while !state.stopped {
            let ran;
            (state, ran) = self.step(state, None);
            if ran {
                idle = 0;
            } else if idle < 20 {
                // Short naps save host threads the cost of waking this thread for each command.
                idle += 1;
                self.nap.wait_for(&mut state, Duration::from_micros(100));
            } else {
                idle = 0;
                state.asleep += 1;
                self.work.wait(&mut state);
                state.asleep -= 1;
                state.woken = state.woken.saturating_sub(1);
            }
        }
    }

    /// Runs one ready command, if one may run now. A waiting host thread passes its goal, so that the work it
    /// needs runs first.
    fn step<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        goal: Option<&Goal>,
    ) -> (MutexGuard<'a, State>, bool) {
        let Some(stream) = state.choose(goal) else { return (state, false) };
        let holds = state.touched_by_next(stream);
        let Some((number, command)) = state.pop(stream) else { return (state, false) };
        if let Some(work) = state.mark(command) {
            let cost = work.cost();
            let end = state.streams[stream].end.clone();
            if !state.stopped {
                end.store(false, Ordering::Relaxed);
            }
            state.running.push(Running { stream, number, holds });
            if state.asleep > state.woken && state.choose(None).is_some() {
                self.wake(&mut state);
            }
            let stop = Stop { flag: end.clone(), deadline: None };
            let found = FaultSlot::default();
            let outcome = MutexGuard::unlocked(&mut state, || {
                // Other threads may wait for this work and later work needs it, so it ends early only if it
                // is discarded.
                catch_unwind(AssertUnwindSafe(|| stop::under(stop, || work.run(&found))))
            });
            state.running.retain(|running| running.stream != stream);
            // Nobody waits for discarded work, so its fault would be raised by other work.
            if let (Command::Launch(_, faults), Some(fault), false) =
                (&work, found.take(), end.load(Ordering::Relaxed))
            {
                faults.report(fault);
            }
            state.clock = state.clock.saturating_add(cost);
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

/// A thread that serves the queues. When it ends, even by a panic, waits no longer leave work to it.
struct Served<'a>(&'a Queues);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.state.lock().served -= 1;
        self.0.done.notify_all();
    }
}

impl State {
    fn push(&mut self, stream: usize, command: Command) {
        self.next += 1;
        let number = self.next;
        let queue = &mut self.streams[stream];
        self.queued[queue.device as usize] += 1;
        let first = queue.queue.is_empty();
        queue.queue.push_back((number, command));
        if first {
            self.active.push(stream);
            if !self.is_running(stream) {
                self.front_changed(stream);
            }
        }
    }

    fn pop(&mut self, stream: usize) -> Option<(u64, Command)> {
        let queue = &mut self.streams[stream];
        let front = queue.queue.pop_front()?;
        queue.wakes = None;
        self.queued[queue.device as usize] -= 1;
        if queue.queue.is_empty() {
            self.active.retain(|&s| s != stream);
        }
        Some(front)
    }

    fn is_running(&self, stream: usize) -> bool {
        self.running.iter().any(|running| running.stream == stream)
    }

    /// The memory that running commands touch.
    fn busy(&self) -> Memories {
        self.running.iter().fold(0, |all, running| all | running.holds)
    }

    /// The memory that the command at the front of a stream touches. For work this includes the memory of its
    /// device.
    fn touched_by_next(&self, stream: usize) -> Memories {
        let stream = &self.streams[stream];
        let own = 1 << stream.device.min(126);
        let of = |ptr: Ptr| {
            let at = self.regions.partition_point(|region| region.0 <= ptr);
            match at.checked_sub(1).map(|at| self.regions[at]) {
                Some((_, end, device)) if ptr < end => 1 << device.min(126),
                _ => HOST,
            }
        };
        match stream.queue.front() {
            Some((_, Command::Launch(launch, _))) => {
                launch.views.iter().fold(own, |all, view| all | of(view.ptr))
            }
            Some((_, Command::Copy { dst, src: CopySource::Memory(src), .. })) => own | of(*dst) | of(*src),
            Some((_, Command::Copy { dst, .. } | Command::Fill { dst, .. })) => own | of(*dst),
            _ => 0,
        }
    }

    /// Completes a marker; returns any other command.
    fn mark(&mut self, command: Command) -> Option<Command> {
        match command {
            Command::Record(event, record) => {
                self.clock = self.clock.saturating_add(1);
                event.complete(record, self.clock);
                None
            }
            Command::Wait(..) | Command::Sleep(_) => None,
            work => Some(work),
        }
    }

    /// Completes all ready markers at the fronts of the queues.
    fn settle(&mut self) {
        let marker = |state: &State, s: usize| {
            let front = state.streams[s].queue.front();
            let marker = front.is_some_and(|(_, c)| c.is_marker() || matches!(c, Command::Sleep(_)));
            marker && state.is_ready(s)
        };
        while let Some(stream) = self.active.iter().copied().find(|&s| marker(self, s)) {
            if let Some((_, command)) = self.pop(stream) {
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
            Some(_) if self.is_running(stream) => false,
            Some((_, Command::Wait(event, record))) => event.has_completed(*record),
            Some((_, Command::Sleep(_))) => queue.wakes.is_some_and(|at| at <= self.clock),
            Some(_) => true,
        }
    }

    /// Chooses the stream whose first command runs next. For a goal, if the machine has threads, considers
    /// only what the goal needs and other work of its device.
    fn choose(&mut self, goal: Option<&Goal>) -> Option<usize> {
        if self.order.is_some() {
            if !self.running.is_empty() {
                return None;
            }
            let ready: Vec<usize> = self.active.iter().copied().filter(|&s| self.is_ready(s)).collect();
            return match (&mut self.order, ready.len()) {
                (Some(order), 2..) => ready.get(order.choose(&ready)).copied(),
                _ => ready.first().copied(),
            };
        }
        let busy = self.busy();
        let needed = goal.and_then(|goal| self.needed(goal));
        if needed.is_some_and(|stream| self.touched_by_next(stream) & busy == 0) {
            return needed;
        }
        let device = goal.filter(|_| self.served > 0).and_then(|goal| self.device_of(goal));
        let rank = |s: usize| {
            let stream = &self.streams[s];
            (stream.priority, stream.queue.front().map(|front| front.0))
        };
        let ready = || self.active.iter().copied().filter(|&s| self.is_ready(s));
        let fits = |s: usize| device.is_none_or(|device| self.streams[s].device == device);
        if busy == 0 && device.is_none() {
            return ready().min_by_key(|&s| rank(s));
        }
        // A command that waits for memory keeps newer commands from using that memory.
        let mut all: SmallVec<[usize; 8]> = ready().collect();
        all.sort_unstable_by_key(|&s| rank(s));
        let mut taken = busy;
        all.into_iter().find(|&s| {
            let holds = self.touched_by_next(s);
            let free = holds & taken == 0;
            if !free {
                taken |= holds;
            }
            free && fits(s)
        })
    }

    /// The device that a goal is about.
    fn device_of(&self, goal: &Goal) -> Option<u32> {
        match goal {
            Goal::Stream(stream) => Some(self.streams[*stream].device),
            Goal::Device(device) | Goal::Room(device) => Some(*device),
            Goal::Event(event, record) => event.open_on(*record).map(|s| self.streams[s].device),
        }
    }

    /// True when the goal's device runs nothing and has nothing ready, and one of its streams sleeps.
    fn sleeps(&self, goal: &Goal) -> bool {
        let Some(device) = self.device_of(goal) else { return false };
        let of = |s: usize| self.streams[s].device == device;
        !self.running.iter().any(|r| of(r.stream)) && !self.active.iter().any(|&s| of(s) && self.is_ready(s))
    }

    /// True when the next command takes a long time and the machine's thread can run it.
    fn is_heavy(&mut self, goal: &Goal) -> bool {
        if self.served == 0 || self.order.is_some() {
            return false;
        }
        let next = self.choose(Some(goal)).and_then(|stream| self.streams[stream].queue.front());
        next.is_some_and(|(_, command)| command.cost() >= HEAVY)
    }

    /// The ready stream that a goal needs, following the events that its streams wait for.
    fn needed(&self, goal: &Goal) -> Option<usize> {
        let mut stream = match goal {
            Goal::Stream(stream) => *stream,
            Goal::Event(event, record) => event.open_on(*record)?,
            Goal::Device(_) | Goal::Room(_) => return None,
        };
        // Each step leads to an earlier record, so this ends; the bound is only a safeguard.
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
            Goal::Stream(stream) => self.streams[*stream].queue.is_empty() && !self.is_running(*stream),
            Goal::Device(device) => {
                let of = |s: usize| self.streams[s].device == *device;
                !self.active.iter().any(|&s| of(s)) && !self.running.iter().any(|r| of(r.stream))
            }
            Goal::Event(event, record) => event.has_completed(*record),
            Goal::Room(device) => self.queued[*device as usize] < FULL,
        }
    }

    /// Advances the clock to the end of the next sleep on the goal's device; false if no stream sleeps there.
    fn skip_to_next_wake(&mut self, goal: Option<&Goal>) -> bool {
        let device = goal.and_then(|goal| self.device_of(goal));
        let of = |s: &&usize| device.is_none_or(|device| self.streams[**s].device == device);
        let next = self.active.iter().filter(of).filter_map(|&s| self.streams[s].wakes).min();
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

impl Command {
    /// True for records and waits, which do no work and must not be discarded.
    fn is_marker(&self) -> bool {
        matches!(self, Command::Record(..) | Command::Wait(..))
    }

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
    fn run(&self, found: &FaultSlot) {
        match self {
            // SAFETY: the invariant of `Launch`; commands that touch the same memory run one at a time.
            Command::Launch(launch, _) => unsafe { host::run(launch, found) },
            Command::Copy { dst, src, bytes } => {
                let from = match src {
                    CopySource::Memory(ptr) => *ptr as usize as *const u8,
                    CopySource::Taken(bytes) => bytes.as_ptr(),
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
