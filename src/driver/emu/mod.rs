//! Emulated CUDA devices on the CPU: their memory, queues, events, and a clock.
//!
//! They show all behaviour that CUDA allows, and no other: commands run later than they are queued, queues
//! overtake each other, memory is finite. Kernels are the host's (`kernel::host`). All devices of a machine
//! share one set of queues (see `queue`) and can access each other's memory. Independent of caching, races or
//! the meaning of a command.

mod cost;
mod find;
mod memory;
mod order;
mod queue;
#[cfg(test)]
pub(crate) mod tests;

pub use find::{count, find};
pub use order::{Orders, Schedule};

use crate::base::Result;
use crate::driver::graph::{GraphHandle, Step, Task};
use crate::driver::host::check_room;
use crate::driver::{
    CopyKind, Driver, EventHandle, Failure, Properties, StreamHandle, Work, default_poison, error, failure,
};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Fault, Launch, Ptr};
use foldhash::HashMap;
use memory::Memory;
use parking_lot::Mutex;
use queue::{Command, CopySource, Event, Goal, Queues};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// The configuration of an emulated machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of devices.
    pub devices: usize,
    /// Memory per device in bytes; untouched memory costs nothing.
    pub memory_per_device: u64,
    /// Runs the queues lazily in a reproducible order. Without a schedule, threads run commands in order of
    /// age.
    pub schedule: Option<Schedule>,
    /// The driver call that fails on purpose.
    pub failure: Option<Failure>,
    /// The byte that overwrites fresh and freed memory.
    pub poison: Option<u8>,
    /// When set, waits end with the error `Interrupted`. The code that sets the flag also clears it.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Default for Config {
    /// Four devices of 4 GiB, poisoned as [`crate::driver::default_poison`] says.
    fn default() -> Config {
        Config {
            devices: 4,
            memory_per_device: 4 << 30,
            schedule: None,
            failure: None,
            poison: default_poison(),
            interrupt: None,
        }
    }
}

/// An emulated machine: the state that its devices share. When the last device handle is dropped, running
/// commands end early and queued commands are discarded.
///
/// Invariant: streams `0..devices` of the queues are the devices' default streams.
pub struct Emulator {
    queues: Arc<Queues>,
    /// The memory of every device. It lives here so that it outlives queued work.
    memory: Vec<Mutex<Memory>>,
    events: Mutex<HashMap<EventHandle, Arc<Event>>>,
    graphs: Mutex<HashMap<GraphHandle, Arc<[Step]>>>,
    pinned: Mutex<BTreeMap<Ptr, u64>>,
    handles: AtomicU64,
    failure: Option<Failure>,
    /// The index of the device lost to a sticky failure, plus 1.
    failed: AtomicU64,
    seeded: bool,
    /// One thread per device that has had work.
    threads: Vec<OnceLock<Option<JoinHandle<()>>>>,
}

/// One emulated device.
struct EmuDriver {
    machine: Arc<Emulator>,
    index: u32,
    properties: Properties,
    poison: Option<u8>,
    faults: Arc<FaultSlot>,
}

/// Memory is mapped in pages of this size, as on CUDA devices.
const MAP_UNIT: u64 = 2 << 20;

/// Alignment of pinned host memory: a page.
const PAGE: usize = 4096;

/// Copies of pageable host memory up to this size take their bytes when queued, so that the host need not
/// wait. Source: CUDA stages pageable copies up to 64 KiB.
const STAGED: u64 = 64 << 10;

/// Larger copies of pageable memory are split into parts of this size.
const PART: u64 = 32 << 20;

impl Emulator {
    /// Makes a machine and returns its devices. Threads and memory are created on first use.
    pub fn devices(config: Config) -> Vec<Arc<dyn Driver>> {
        let seeded = config.schedule.is_some();
        let queues = Arc::new(Queues::new(config.schedule, config.interrupt));
        (0..config.devices).for_each(|device| {
            queues.add_stream(device as u32, 0);
        });
        let memory = || Mutex::new(Memory::new(config.memory_per_device, config.poison));
        let machine = Arc::new(Emulator {
            queues,
            memory: (0..config.devices).map(|_| memory()).collect(),
            events: Mutex::default(),
            graphs: Mutex::default(),
            pinned: Mutex::default(),
            handles: AtomicU64::new(1),
            failure: config.failure,
            failed: AtomicU64::new(0),
            seeded,
            threads: (0..config.devices).map(|_| OnceLock::new()).collect(),
        });
        let device = |index: usize| -> Arc<dyn Driver> {
            Arc::new(EmuDriver {
                machine: machine.clone(),
                index: index as u32,
                properties: properties(index, config.memory_per_device),
                poison: config.poison,
                faults: Arc::default(),
            })
        };
        (0..config.devices).map(device).collect()
    }

    /// Queues a command; a device's first command starts its thread.
    fn push(&self, device: u32, stream: usize, command: Command) -> Result<()> {
        if let Some(thread) = self.threads.get(device as usize).filter(|_| !self.seeded) {
            thread.get_or_init(|| {
                let queues = self.queues.clone();
                let thread = std::thread::Builder::new().name("runnel-emu".into());
                // If the thread cannot start, waits still run everything.
                thread.spawn(move || queues.serve()).ok()
            });
        }
        self.queues.push(stream, command)
    }

    fn event(&self, handle: EventHandle, call: &str) -> Result<Arc<Event>> {
        let event = self.events.lock().get(&handle).cloned();
        event.ok_or_else(|| error::driver_failed("emu", call, "no such event"))
    }

    fn is_pinned(&self, ptr: Ptr, bytes: u64) -> bool {
        let pinned = self.pinned.lock();
        let block = pinned.range(..=ptr).next_back();
        block.is_some_and(|(&start, &length)| ptr - start + bytes <= length)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.queues.stop();
        for thread in self.threads.iter_mut().filter_map(|thread| thread.take().flatten()) {
            // A panic in a kernel was caught where the kernel ran.
            let _ = thread.join();
        }
        // Queued commands no longer run, so the pages that they use can be freed.
        self.pinned.get_mut().iter().for_each(|(&ptr, &size)| free_pages(ptr, size));
    }
}

/// Frees page-locked memory that was removed from the machine's list.
fn free_pages(ptr: Ptr, size: u64) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(size as usize, PAGE) {
        // SAFETY: `pinned_alloc` made the block with this layout, and it was registered once.
        unsafe { std::alloc::dealloc(ptr as usize as *mut u8, layout) };
    }
}

fn properties(index: usize, total_memory: u64) -> Properties {
    Properties {
        name: "Runnel emulated GPU".into(),
        major: 9,
        minor: 0,
        total_memory,
        multi_processor_count: 132,
        l2_cache_size: 50 << 20,
        warp_size: 32,
        max_threads_per_multi_processor: 2048,
        uuid: format!("72756e6e-656c-4000-8000-{index:012x}"),
        greatest_priority: -3,
    }
}

impl EmuDriver {
    fn memory(&self) -> &Mutex<Memory> {
        &self.machine.memory[self.index as usize]
    }

    /// Changes the memory; between two commands if poisoning is on.
    fn poisoning<T>(&self, change: impl FnOnce() -> T) -> T {
        match self.poison {
            Some(_) => self.machine.queues.between(self.index, change),
            None => change(),
        }
    }

    /// Allocates addresses of this device's memory, and tells the queues that they belong to this device.
    fn take_memory(&self, take: impl FnOnce(&mut Memory) -> Option<Ptr>) -> Option<Ptr> {
        let (taken, fresh) = self.poisoning(|| {
            let mut memory = self.memory().lock();
            (take(&mut memory), memory.take_fresh())
        });
        for (start, bytes) in fresh {
            self.machine.queues.add_region(self.index, start, bytes);
        }
        taken
    }

    fn push(&self, stream: usize, command: Command) -> Result<()> {
        self.machine.push(self.index, stream, command)
    }

    /// Counts a driver call, and fails the call that should fail.
    fn call(&self, name: &str) -> Result<()> {
        let Some(failure) = &self.machine.failure else { return Ok(()) };
        let lost = || error::device_failed("emu", name, failure::TEXT);
        let own = u64::from(self.index) + 1;
        if self.machine.failed.load(Ordering::Relaxed) == own {
            return Err(lost());
        }
        let outcome = failure.call("emu", name);
        if outcome.is_err() && failure.is_sticky() {
            self.machine.failed.store(own, Ordering::Relaxed);
            return Err(lost());
        }
        outcome
    }

    fn stream_index(&self, stream: StreamHandle) -> usize {
        if stream == 0 { self.index as usize } else { stream as usize }
    }
}

impl Driver for EmuDriver {
    fn backend(&self) -> &'static str {
        "emu"
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        self.call("memory_info")?;
        Ok(self.memory().lock().info())
    }

    fn alloc(&self, bytes: u64) -> Result<Ptr> {
        self.call("alloc")?;
        self.take_memory(|memory| memory.alloc(bytes)).ok_or_else(error::out_of_memory)
    }

    fn free(&self, ptr: Ptr, bytes: u64) {
        self.poisoning(|| self.memory().lock().free(ptr, bytes));
    }

    fn map_unit(&self) -> Option<u64> {
        Some(MAP_UNIT)
    }

    fn reserve(&self, bytes: u64) -> Result<Ptr> {
        self.call("reserve")?;
        self.take_memory(|memory| memory.reserve_range(bytes)).ok_or_else(error::out_of_memory)
    }

    fn unreserve(&self, ptr: Ptr, _bytes: u64) {
        self.memory().lock().unreserve_range(ptr);
    }

    fn map(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        self.call("map")?;
        self.poisoning(|| self.memory().lock().map(ptr, bytes)).ok_or_else(error::out_of_memory)
    }

    fn unmap(&self, ptr: Ptr, bytes: u64) {
        self.poisoning(|| self.memory().lock().unmap(ptr, bytes));
    }

    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr> {
        self.call("pinned_alloc")?;
        let failed = || error::host_out_of_memory(bytes, true);
        let size = usize::try_from(bytes.max(1)).map_err(|_| failed())?;
        let layout = std::alloc::Layout::from_size_align(size, PAGE).map_err(|_| failed())?;
        // SAFETY: the size is not 0.
        let block = unsafe { std::alloc::alloc_zeroed(layout) };
        if block.is_null() {
            return Err(failed());
        }
        if let Some(byte) = self.poison {
            // SAFETY: the block has that many bytes, and is not shared yet.
            unsafe { block.write_bytes(byte, size) };
        }
        let block = block as usize as Ptr;
        self.machine.pinned.lock().insert(block, size as u64);
        Ok(block)
    }

    fn pinned_free(&self, ptr: Ptr, _bytes: u64) {
        let size = self.machine.pinned.lock().remove(&ptr);
        size.into_iter().for_each(|size| free_pages(ptr, size));
    }

    fn stream(&self, priority: i32) -> Result<StreamHandle> {
        self.call("stream")?;
        let priority = priority.clamp(self.properties.greatest_priority, 0);
        Ok(self.machine.queues.add_stream(self.index, priority) as StreamHandle)
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        self.call("stream_query")?;
        self.machine.queues.query(&Goal::Stream(self.stream_index(stream)))
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.call("stream_synchronize")?;
        self.machine.queues.wait(&Goal::Stream(self.stream_index(stream)))
    }

    fn synchronize(&self) -> Result<()> {
        self.call("synchronize")?;
        self.machine.queues.wait(&Goal::Device(self.index))
    }

    fn event(&self, timing: bool) -> Result<EventHandle> {
        self.call("event")?;
        let handle = self.machine.handles.fetch_add(1, Ordering::Relaxed);
        self.machine.events.lock().insert(handle, Arc::new(Event::new(timing)));
        Ok(handle)
    }

    fn event_free(&self, event: EventHandle) {
        self.machine.events.lock().remove(&event);
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.call("event_record")?;
        let event = self.machine.event(event, "event_record")?;
        let stream = self.stream_index(stream);
        let record = event.next_record(stream);
        self.push(stream, Command::Record(event, record))
    }

    fn event_wait(&self, stream: StreamHandle, event: EventHandle, _owner: &dyn Driver) -> Result<()> {
        self.call("event_wait")?;
        let event = self.machine.event(event, "event_wait")?;
        match event.recorded() {
            0 => Ok(()),
            record => self.push(self.stream_index(stream), Command::Wait(event, record)),
        }
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.call("event_query")?;
        let event = self.machine.event(event, "event_query")?;
        let record = event.recorded();
        self.machine.queues.query(&Goal::Event(event, record))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.call("event_synchronize")?;
        let event = self.machine.event(event, "event_synchronize")?;
        let record = event.recorded();
        self.machine.queues.wait(&Goal::Event(event, record))
    }

    fn event_elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64> {
        self.call("event_elapsed")?;
        let time = |handle| -> Result<u64> {
            let event = self.machine.event(handle, "event_elapsed")?;
            if !event.timing {
                return Err(error::event_without_timing());
            }
            if event.recorded() == 0 {
                return Err(error::event_not_recorded());
            }
            event.time().ok_or_else(error::event_not_complete)
        };
        Ok((time(end)? as f64 - time(start)? as f64) / 1e6)
    }

    fn copy(&self, dst: Ptr, src: Ptr, bytes: u64, kind: CopyKind, stream: StreamHandle) -> Result<()> {
        self.call("copy")?;
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.stream_index(stream);
        let pageable = match kind {
            CopyKind::HostToDevice => !self.machine.is_pinned(src, bytes),
            CopyKind::DeviceToHost => !self.machine.is_pinned(dst, bytes),
            CopyKind::DeviceToDevice | CopyKind::FromPeer(_) | CopyKind::ToPeer(_) => false,
        };
        if pageable && kind == CopyKind::HostToDevice && bytes <= STAGED {
            // SAFETY: guaranteed by the caller: the host memory is readable now.
            let taken = unsafe { std::slice::from_raw_parts(src as usize as *const u8, bytes as usize) };
            return self.push(stream, Command::Copy { dst, src: CopySource::Taken(taken.into()), bytes });
        }
        if !pageable {
            return self.push(stream, Command::Copy { dst, src: CopySource::Memory(src), bytes });
        }
        // The caller may reuse the host memory after this call, so an interrupt must not end the wait for a
        // part. It may end the wait for earlier work, and the copy between parts.
        self.machine.queues.wait(&Goal::Stream(stream))?;
        let mut at = 0;
        while at < bytes {
            error::stopped()?;
            let part = PART.min(bytes - at);
            let src = CopySource::Memory(src + at);
            self.push(stream, Command::Copy { dst: dst + at, src, bytes: part })?;
            self.machine.queues.wait_through(&Goal::Stream(stream))?;
            at += part;
        }
        Ok(())
    }

    fn fill(&self, dst: Ptr, pattern: u64, width: u32, count: u64, stream: StreamHandle) -> Result<()> {
        self.call("fill")?;
        self.push(self.stream_index(stream), Command::Fill { dst, pattern, width, count })
    }

    fn launch(&self, launch: &Launch, stream: StreamHandle) -> Result<()> {
        self.call("launch")?;
        check_room(launch.program.kind.scratch(launch))?;
        let command = Command::Launch(Box::new(launch.clone()), self.faults.clone());
        self.push(self.stream_index(stream), command)
    }

    fn prepared(&self, _launch: &Launch) -> bool {
        true
    }

    fn maps_products(&self) -> bool {
        true
    }

    fn keeps_memory(&self) -> bool {
        true
    }

    fn sleep(&self, cycles: u64, stream: StreamHandle) -> Result<()> {
        self.call("sleep")?;
        self.push(self.stream_index(stream), Command::Sleep(cycles))
    }

    fn newest(&self) -> u64 {
        self.machine.queues.newest()
    }

    fn has_done(&self, after: u64) -> bool {
        self.machine.queues.has_done(self.index, after)
    }

    fn abandon(&self, after: u64) -> Option<Vec<StreamHandle>> {
        let lost = self.machine.queues.abandon(self.index, after);
        // The default stream has the handle 0.
        let handle = |at: usize| if at == self.index as usize { 0 } else { at as StreamHandle };
        Some(lost.into_iter().map(handle).collect())
    }

    fn modelled(&self, work: Work<'_>) -> Option<u64> {
        Some(cost::cost(work))
    }

    fn graph(&self, steps: Arc<[Step]>) -> Result<GraphHandle> {
        self.call("graph")?;
        let handle = self.machine.handles.fetch_add(1, Ordering::Relaxed);
        self.machine.graphs.lock().insert(handle, steps);
        Ok(handle)
    }

    /// Queues the steps in recorded order, which satisfies the marks.
    fn graph_launch(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()> {
        self.call("graph_launch")?;
        let steps = self.machine.graphs.lock().get(&graph).cloned();
        let steps = steps.ok_or_else(|| error::driver_failed("emu", "graph_launch", "no such graph"))?;
        let stream = self.stream_index(stream);
        for step in steps.iter() {
            let command = match &step.task {
                Task::Launch(launch) => Command::Launch(launch.clone(), self.faults.clone()),
                Task::Copy { dst, src, bytes, .. } => {
                    Command::Copy { dst: *dst, src: CopySource::Memory(*src), bytes: *bytes }
                }
                Task::Write { dst, bytes } => {
                    let taken: Box<[u8]> = bytes.iter().copied().collect();
                    Command::Copy { dst: *dst, src: CopySource::Taken(taken), bytes: bytes.len() as u64 }
                }
                Task::Sleep(cycles) => Command::Sleep(*cycles),
                Task::Mark(_) | Task::Wait(_) => continue,
            };
            self.push(stream, command)?;
        }
        Ok(())
    }

    fn graph_free(&self, graph: GraphHandle) {
        self.machine.graphs.lock().remove(&graph);
    }

    fn can_access_peer(&self, _peer: u32) -> bool {
        true
    }

    fn take_fault(&self) -> Option<Fault> {
        self.faults.take()
    }
}
