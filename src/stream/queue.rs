//! Streams: a device's queues, the pool they come from, and spare events that order them.
//!
//! These calls order work only in the driver. The caller informs the race checker, which belongs to a
//! session, not to a device.

use crate::base::Result;
use crate::driver::{DeviceId, Driver, EventHandle, StreamHandle, error};
use crate::stream::passing::Passing;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of side streams per priority; further requests reuse them in rotation. Source: `kStreamsPerPool` of
/// PyTorch.
pub const STREAMS_PER_PRIORITY: usize = 32;

/// A queue of one device; work on it runs in queue order.
///
/// Invariant: `id` is dense per device (0 is the default stream, side streams count from 1) and is never
/// reused for another handle, so it can index tables. Two streams are equal when device and handle are.
///
/// Sample: `Stream { device: cuda:1, id: 3, handle: 0x5581..., priority: -1 }`.
pub struct Stream {
    device: DeviceId,
    id: u32,
    handle: StreamHandle,
    priority: i32,
    driver: Arc<dyn Driver>,
    spares: Arc<SpareEvents>,
    epoch: Arc<AtomicU64>,
    worked: AtomicU64,
    after: After,
    passing: Passing,
}

/// The waits of a stream: for each stream of its device, by number, the last epoch that is complete before
/// its next work begins.
#[derive(Default)]
struct After {
    epochs: Mutex<Vec<u64>>,
    /// Number of changes.
    changes: AtomicU64,
}

impl Stream {
    /// The device it belongs to.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The number of the stream on its device, for messages and tables; 0 is the default stream.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The driver's handle; 0 for the default stream.
    pub fn handle(&self) -> StreamHandle {
        self.handle
    }

    /// 0 is the lowest priority; lower numbers are higher priorities, down to the driver's limit.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// True for the device's default stream.
    pub fn is_default(&self) -> bool {
        self.id == 0
    }

    /// The current epoch of the race checker for this stream; starts at 1 and only increases.
    pub(crate) fn epoch(&self) -> &Arc<AtomicU64> {
        &self.epoch
    }

    /// The epoch of the latest access; 0 before the first.
    pub(crate) fn worked_at(&self) -> u64 {
        self.worked.load(Ordering::Relaxed)
    }

    /// Notes an access in an epoch.
    pub(crate) fn works_at(&self, epoch: u64) {
        self.worked.store(epoch, Ordering::Relaxed);
    }

    /// Notes waits of this stream that have been queued: the numbers of streams of its device, with the last epochs that
    /// they cover.
    pub(crate) fn comes_after(&self, waited: impl Iterator<Item = (u32, u64)>) {
        let mut epochs = self.after.epochs.lock();
        let mut changed = false;
        for (stream, epoch) in waited {
            let index = stream as usize;
            if epochs.len() <= index {
                epochs.resize(index + 1, 0);
            }
            changed |= epochs[index] < epoch;
            epochs[index] = epochs[index].max(epoch);
        }
        if changed {
            self.after.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True when this stream's next work waits for another stream's work of this epoch.
    pub(crate) fn is_after(&self, other: &Stream, epoch: u64) -> bool {
        let is = || self.after.epochs.lock().get(other.id as usize).is_some_and(|&last| epoch <= last);
        other.device == self.device && is()
    }

    /// Number of calls of [`Stream::comes_after`] that changed something.
    pub(crate) fn waits(&self) -> u64 {
        self.after.changes.load(Ordering::Relaxed)
    }

    /// Callbacks for points of this stream.
    pub(crate) fn passing(&self) -> &Passing {
        &self.passing
    }

    /// The driver that runs it.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// True when nothing is queued or running on the stream. A true result orders the host after all its
    /// work: the caller must tell the race checker.
    pub fn query(&self) -> Result<bool> {
        self.driver.stream_query(self.handle)
    }

    /// Waits until nothing is queued or running on the stream.
    pub fn synchronize(&self) -> Result<()> {
        self.driver.stream_synchronize(self.handle)
    }

    /// Makes later work of this stream wait for all current work of `other`. The streams may belong to two
    /// devices of one backend. Source: `torch.cuda.Stream.wait_stream`.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let event = other.mark()?;
        let waited = self.driver.event_wait(self.handle, event, &*other.driver);
        other.unmark(event);
        waited
    }

    /// Records a spare event, which the caller returns with [`Stream::unmark`].
    pub(crate) fn mark(&self) -> Result<EventHandle> {
        let event = self.spares.take()?;
        match self.driver.event_record(event, self.handle) {
            Ok(()) => Ok(event),
            Err(e) => {
                self.spares.give(event);
                Err(e)
            }
        }
    }

    /// Returns a spare event; work that waits for it still does.
    pub(crate) fn unmark(&self, event: EventHandle) {
        self.spares.give(event);
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.device == other.device && self.handle == other.handle
    }
}

impl Eq for Stream {}

impl std::hash::Hash for Stream {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.device, self.handle).hash(state);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {} of {}", self.id, self.device)
    }
}

impl std::fmt::Display for Stream {
    /// `the default stream`, `stream 3`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.id {
            0 => f.write_str("the default stream"),
            id => write!(f, "stream {id}"),
        }
    }
}

/// Unused events without timing.
///
/// An event may be returned while work still waits for its latest record: drivers resolve a wait when it is
/// queued, so a new record does not affect existing waits.
pub(crate) struct SpareEvents {
    driver: Arc<dyn Driver>,
    events: Mutex<Vec<EventHandle>>,
}

impl SpareEvents {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Arc<SpareEvents> {
        Arc::new(SpareEvents { driver, events: Mutex::new(Vec::new()) })
    }

    fn take(&self) -> Result<EventHandle> {
        let spare = self.events.lock().pop();
        spare.map_or_else(|| self.driver.event(false), Ok)
    }

    fn give(&self, event: EventHandle) {
        self.events.lock().push(event);
    }
}

impl Drop for SpareEvents {
    fn drop(&mut self) {
        for event in self.events.get_mut().drain(..) {
            self.driver.event_free(event);
        }
    }
}

/// All streams of one device: the default stream, and a pool of side streams per priority that is filled on
/// demand.
pub(crate) struct StreamPool {
    device: DeviceId,
    driver: Arc<dyn Driver>,
    spares: Arc<SpareEvents>,
    state: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// By id; the default stream first.
    all: Vec<Arc<Stream>>,
    /// Per priority, 0 first: ids in creation order, and the next one to return.
    turns: Vec<(Vec<u32>, usize)>,
}

impl StreamPool {
    pub(crate) fn new(device: DeviceId, driver: Arc<dyn Driver>) -> (StreamPool, Arc<Stream>) {
        let spares = SpareEvents::new(driver.clone());
        let pool = StreamPool { device, driver, spares, state: Mutex::new(Made::default()) };
        let default = pool.state.lock().add(&pool, 0, 0);
        (pool, default)
    }

    /// The next side stream with a priority (clamped to the driver's range).
    pub(crate) fn next(&self, priority: i64) -> Result<Arc<Stream>> {
        if priority > 0 {
            return Err(error::bad_priority(priority));
        }
        let greatest = self.driver.properties().greatest_priority.min(0);
        let priority = priority.max(i64::from(greatest)) as i32;
        let level = priority.unsigned_abs() as usize;
        let mut made = self.state.lock();
        if made.turns.len() <= level {
            made.turns.resize_with(level + 1, Default::default);
        }
        if made.turns[level].0.len() < STREAMS_PER_PRIORITY {
            let handle = self.driver.stream(priority)?;
            let stream = made.add(self, handle, priority);
            made.turns[level].0.push(stream.id);
            return Ok(stream);
        }
        let (ids, turn) = &mut made.turns[level];
        let id = ids[*turn % ids.len()];
        *turn += 1;
        Ok(made.all[id as usize].clone())
    }

    /// Wraps a stream created elsewhere. Source: `torch.cuda.ExternalStream`.
    pub(crate) fn external(&self, handle: StreamHandle) -> Arc<Stream> {
        let mut made = self.state.lock();
        if let Some(known) = made.all.iter().find(|s| s.handle == handle) {
            return known.clone();
        }
        made.add(self, handle, 0)
    }

    /// The stream with this id.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<Stream>> {
        self.state.lock().all.get(id as usize).cloned()
    }

    /// All streams created so far, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        self.state.lock().all.clone()
    }
}

impl Made {
    fn add(&mut self, pool: &StreamPool, handle: StreamHandle, priority: i32) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            device: pool.device,
            id: self.all.len() as u32,
            handle,
            priority,
            driver: pool.driver.clone(),
            spares: pool.spares.clone(),
            epoch: Arc::new(AtomicU64::new(1)),
            worked: AtomicU64::new(0),
            after: After::default(),
            passing: Passing::default(),
        });
        self.all.push(stream.clone());
        stream
    }
}
