//! A device that runs work asynchronously, on its own threads, and reports progress by one counter per stream: the
//! guarantees that a program can rely on with CUDA. A lock that loom does not see protects its bookkeeping, so the bookkeeping
//! orders nothing. A block's memory is a cell, and loom reports conflicting accesses.

use loom::cell::Cell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use runnel_interleave::base::Result;
use runnel_interleave::device::{CopyKind, Driver, EventHandle, Properties, Stream, StreamHandle, error};
use runnel_interleave::kernel::{Fault, Launch, Ptr};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The size of every block.
pub const BLOCK: u64 = 1 << 20;

/// Device memory starts here; page-locked memory starts `PINNED` blocks later.
const BASE: Ptr = 1 << 32;
const PINNED: u64 = 4;

pub struct Late {
    properties: Properties,
    /// The amount of work each stream has completed.
    done: [AtomicU64; 3],
    memory: Vec<Cell<u64>>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// Blocks of device memory left, and blocks of page-locked memory taken.
    left: u64,
    pinned: u64,
    streams: u64,
    queued: [Vec<Work>; 3],
    /// For each event: the stream, and the amount of work before the record.
    events: HashMap<EventHandle, (StreamHandle, u64)>,
}

/// A piece of work.
#[derive(Clone, Copy)]
pub enum Work {
    /// Reads a block.
    Read(Ptr),
    /// Writes a number into a block.
    Write(Ptr, u64),
}

// SAFETY: loom runs one thread at a time and reports unordered accesses to cells.
unsafe impl Sync for Late {}
// SAFETY: as above.
unsafe impl Send for Late {}

impl Late {
    /// A device with this many blocks of memory, in segments of two.
    pub fn new(blocks: u64) -> Arc<Late> {
        let properties = Properties {
            name: "late".into(),
            major: 9,
            minor: 0,
            total_memory: blocks * BLOCK,
            multi_processor_count: 1,
            l2_cache_size: 0,
            warp_size: 32,
            max_threads_per_multi_processor: 2048,
            uuid: String::new(),
            greatest_priority: 0,
        };
        Arc::new(Late {
            properties,
            done: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            memory: (0..2 * PINNED).map(|_| Cell::new(0)).collect(),
            notes: Mutex::new(Notes { left: blocks, ..Notes::default() }),
        })
    }

    /// Queues work.
    pub fn queue(&self, stream: &Stream, work: Work) {
        self.notes().queued[stream.handle() as usize].push(work);
    }

    /// Starts a thread that does the work now queued on a stream.
    pub fn start(self: &Arc<Self>, stream: &Stream) -> thread::JoinHandle<()> {
        let (device, at) = (self.clone(), stream.handle() as usize);
        let work = self.notes().queued[at].clone();
        thread::spawn(move || {
            for (number, work) in work.into_iter().enumerate() {
                match work {
                    Work::Read(ptr) => drop(device.cell(ptr).get()),
                    Work::Write(ptr, value) => device.cell(ptr).set(value),
                }
                device.done[at].store(number as u64 + 1, Ordering::Release);
            }
        })
    }

    /// The memory of a block, for its current owner.
    pub fn cell(&self, ptr: Ptr) -> &Cell<u64> {
        &self.memory[((ptr - BASE) / BLOCK) as usize]
    }

    /// Touches memory that is being released and must be unused.
    fn give(&self, ptr: Ptr, bytes: u64) {
        (0..bytes / BLOCK).for_each(|block| self.cell(ptr + block * BLOCK).set(0));
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap()
    }

    fn has_done(&self, (stream, count): (StreamHandle, u64)) -> bool {
        self.done[stream as usize].load(Ordering::Acquire) >= count
    }

    fn wait(&self, point: (StreamHandle, u64)) {
        while !self.has_done(point) {
            thread::yield_now();
        }
    }

    fn end_of(&self, stream: StreamHandle) -> (StreamHandle, u64) {
        (stream, self.notes().queued[stream as usize].len() as u64)
    }

    fn point_of(&self, event: EventHandle) -> (StreamHandle, u64) {
        self.notes().events[&event]
    }
}

impl Driver for Late {
    fn backend(&self) -> &'static str {
        "late"
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        Ok((self.notes().left * BLOCK, self.properties.total_memory))
    }

    fn alloc(&self, bytes: u64) -> Result<Ptr> {
        let mut notes = self.notes();
        let left = notes.left.checked_sub(bytes / BLOCK).ok_or_else(error::out_of_memory)?;
        notes.left = left;
        Ok(BASE + left * BLOCK)
    }

    fn free(&self, ptr: Ptr, bytes: u64) {
        self.give(ptr, bytes);
        self.notes().left += bytes / BLOCK;
    }

    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr> {
        assert_eq!(bytes, BLOCK);
        let mut notes = self.notes();
        notes.pinned += 1;
        assert!(notes.pinned <= PINNED);
        Ok(BASE + (PINNED + notes.pinned - 1) * BLOCK)
    }

    fn pinned_free(&self, ptr: Ptr, bytes: u64) {
        self.give(ptr, bytes);
    }

    fn stream(&self, _: i32) -> Result<StreamHandle> {
        let mut notes = self.notes();
        notes.streams += 1;
        Ok(notes.streams)
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        Ok(self.has_done(self.end_of(stream)))
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.wait(self.end_of(stream));
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        (0..3).for_each(|stream| self.wait(self.end_of(stream)));
        Ok(())
    }

    fn event(&self, _: bool) -> Result<EventHandle> {
        let mut notes = self.notes();
        let event = notes.events.len() as EventHandle + 1;
        notes.events.insert(event, (0, 0));
        Ok(event)
    }

    fn event_free(&self, _: EventHandle) {}

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let point = self.end_of(stream);
        self.notes().events.insert(event, point);
        Ok(())
    }

    fn event_wait(&self, _: StreamHandle, _: EventHandle, _: &dyn Driver) -> Result<()> {
        unreachable!("nothing waits on the device here")
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        Ok(self.has_done(self.point_of(event)))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.wait(self.point_of(event));
        Ok(())
    }

    fn event_elapsed(&self, _: EventHandle, _: EventHandle) -> Result<f64> {
        unreachable!("nothing is timed here")
    }

    fn copy(&self, _: Ptr, _: Ptr, _: u64, _: CopyKind, _: StreamHandle) -> Result<()> {
        unreachable!("work is queued by `Late::queue`")
    }

    fn fill(&self, _: Ptr, _: u64, _: u32, _: u64, _: StreamHandle) -> Result<()> {
        unreachable!("work is queued by `Late::queue`")
    }

    fn launch(&self, _: &Launch, _: StreamHandle) -> Result<()> {
        unreachable!("work is queued by `Late::queue`")
    }

    fn prepared(&self, _: &Launch) -> bool {
        true
    }

    fn sleep(&self, _: u64, _: StreamHandle) -> Result<()> {
        unreachable!("work is queued by `Late::queue`")
    }

    fn can_access_peer(&self, _: u32) -> bool {
        false
    }

    fn take_fault(&self) -> Option<Fault> {
        None
    }
}
