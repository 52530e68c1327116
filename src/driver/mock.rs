//! A driver for tests: addresses without memory, and queues that advance only on request.

use crate::base::Result;
use crate::driver::{CopyKind, Driver, EventHandle, Properties, StreamHandle, error};
use crate::kernel::{Fault, Launch, Ptr};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A driver whose streams are only counters: work queued, and work done.
///
/// Panics when freed memory was not allocated or is still used by queued work.
pub(crate) struct MockDriver {
    properties: Properties,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    total: u64,
    used: u64,
    next: Ptr,
    live: BTreeMap<Ptr, u64>,
    /// Granularity of mapping, reserved ranges, and mapped ranges.
    unit: Option<u64>,
    reserved: BTreeMap<Ptr, u64>,
    mapped: BTreeMap<Ptr, u64>,
    streams: HashMap<StreamHandle, (u64, u64)>,
    events: HashMap<EventHandle, Option<(StreamHandle, u64)>>,
    next_handle: u64,
    uses: Vec<(Ptr, StreamHandle, u64)>,
    /// Count of fallible driver calls, and the one that fails.
    calls: u64,
    fail_at: Option<u64>,
    allocs_fail: bool,
    fault: Option<Fault>,
}

impl MockDriver {
    /// A device with `total` bytes that maps memory in units of 2 MiB.
    pub(crate) fn new(total: u64) -> Arc<MockDriver> {
        MockDriver::with_unit(total, Some(2 << 20))
    }

    /// A device that maps memory in units of `unit` bytes, or not at all.
    pub(crate) fn with_unit(total: u64, unit: Option<u64>) -> Arc<MockDriver> {
        let properties = Properties {
            name: "mock".to_string(),
            major: 9,
            minor: 0,
            total_memory: total,
            multi_processor_count: 1,
            l2_cache_size: 0,
            warp_size: 32,
            max_threads_per_multi_processor: 2048,
            uuid: String::new(),
            greatest_priority: -3,
        };
        let state =
            State { total, unit, next: 1 << 32, streams: HashMap::from([(0, (0, 0))]), ..State::default() };
        Arc::new(MockDriver { properties, state: Mutex::new(state) })
    }

    /// Queues one piece of work that uses the memory at `ptr`.
    pub(crate) fn work(&self, stream: StreamHandle, ptr: Ptr) {
        let mut state = self.state.lock();
        let at = state.push(stream);
        state.uses.push((ptr, stream, at));
    }

    /// Returns whether queued work of another stream uses any part of a range.
    pub(crate) fn is_used_elsewhere(&self, range: std::ops::Range<Ptr>, stream: StreamHandle) -> bool {
        self.state.lock().uses.iter().any(|(ptr, s, _)| range.contains(ptr) && *s != stream)
    }

    /// Completes all queued work of a stream.
    pub(crate) fn finish(&self, stream: StreamHandle) {
        self.state.lock().finish(stream);
    }

    /// Makes the n-th call from now fail; 0 is the next.
    pub(crate) fn fail_call(&self, n: Option<u64>) {
        let mut state = self.state.lock();
        state.fail_at = n.map(|n| state.calls + n);
    }

    /// The number of fallible calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Makes all allocations fail, or none.
    pub(crate) fn fail_allocs(&self, fail: bool) {
        self.state.lock().allocs_fail = fail;
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// The number of allocations and reserved ranges.
    pub(crate) fn segments(&self) -> usize {
        let state = self.state.lock();
        state.live.len() + state.reserved.len()
    }

    /// The mapped ranges, start to length.
    pub(crate) fn mapped(&self) -> BTreeMap<Ptr, u64> {
        self.state.lock().mapped.clone()
    }

    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    fn call(&self, name: &str) -> Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        let fails = state.fail_at == Some(state.calls);
        state.calls += 1;
        if fails { Err(error::driver_failed("mock", name, "asked to")) } else { Ok(state) }
    }
}

impl State {
    fn push(&mut self, stream: StreamHandle) -> u64 {
        let (queued, _) = self.streams.get_mut(&stream).expect("a known stream");
        *queued += 1;
        *queued
    }

    fn finish(&mut self, stream: StreamHandle) {
        let (queued, done) = self.streams.get_mut(&stream).expect("a known stream");
        *done = *queued;
        let State { uses, streams, .. } = self;
        uses.retain(|(_, s, at)| *at > streams[s].1);
    }

    fn take(&mut self, bytes: u64) -> Result<Ptr> {
        if self.allocs_fail || self.used + bytes > self.total {
            return Err(error::out_of_memory());
        }
        let ptr = self.next;
        self.next += bytes.next_multiple_of(512) + (1 << 21);
        self.used += bytes;
        self.live.insert(ptr, bytes);
        Ok(ptr)
    }

    fn give(&mut self, ptr: Ptr, bytes: u64) {
        assert_eq!(self.live.remove(&ptr), Some(bytes), "freed memory that was not allocated");
        self.is_idle(ptr, bytes);
    }

    fn map(&mut self, ptr: Ptr, bytes: u64) -> Result<()> {
        let unit = self.unit.expect("this device maps memory");
        assert!(bytes > 0 && bytes.is_multiple_of(unit) && ptr.is_multiple_of(unit), "not whole units");
        let (&base, &length) = self.reserved.range(..=ptr).next_back().expect("reserved addresses");
        assert!(ptr + bytes <= base + length, "mapped beyond the reserved range");
        let before = self.mapped.range(..ptr + bytes).next_back();
        assert!(before.is_none_or(|(&p, &b)| p + b <= ptr), "mapped twice");
        if self.allocs_fail || self.used + bytes > self.total {
            return Err(error::out_of_memory());
        }
        self.used += bytes;
        self.mapped.insert(ptr, bytes);
        Ok(())
    }

    /// Notes freed memory and asserts that nothing uses it.
    fn is_idle(&mut self, ptr: Ptr, bytes: u64) {
        self.used -= bytes;
        let busy = self.uses.iter().any(|(p, _, _)| (ptr..ptr + bytes).contains(p));
        assert!(!busy, "freed memory that queued work uses");
    }
}

impl Drop for MockDriver {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let state = self.state.get_mut();
            assert!(state.live.is_empty(), "{} allocations were leaked", state.live.len());
            assert!(state.mapped.is_empty() && state.reserved.is_empty(), "mapped memory was leaked");
            assert!(state.events.is_empty(), "{} events were leaked", state.events.len());
        }
    }
}

impl Driver for MockDriver {
    fn backend(&self) -> &'static str {
        "mock"
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        let state = self.state.lock();
        Ok((state.total - state.used, state.total))
    }

    fn alloc(&self, bytes: u64) -> Result<Ptr> {
        self.call("alloc")?.take(bytes)
    }

    fn free(&self, ptr: Ptr, bytes: u64) {
        self.state.lock().give(ptr, bytes);
    }

    fn map_unit(&self) -> Option<u64> {
        self.state.lock().unit
    }

    fn reserve(&self, bytes: u64) -> Result<Ptr> {
        let mut state = self.call("reserve")?;
        let unit = state.unit.expect("this device maps memory");
        assert!(bytes.is_multiple_of(unit), "not whole units");
        let ptr = state.next.next_multiple_of(unit);
        state.next = ptr + bytes + unit;
        state.reserved.insert(ptr, bytes);
        Ok(ptr)
    }

    fn unreserve(&self, ptr: Ptr, bytes: u64) {
        let mut state = self.state.lock();
        assert_eq!(state.reserved.remove(&ptr), Some(bytes), "released a range that was not reserved");
        assert!(state.mapped.range(ptr..ptr + bytes).next().is_none(), "released mapped addresses");
    }

    fn map(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        self.call("map")?.map(ptr, bytes)
    }

    fn unmap(&self, ptr: Ptr, bytes: u64) {
        let mut state = self.state.lock();
        assert_eq!(state.mapped.remove(&ptr), Some(bytes), "unmapped a range that was not mapped");
        state.is_idle(ptr, bytes);
    }

    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr> {
        self.call("pinned_alloc")?.take(bytes)
    }

    fn pinned_free(&self, ptr: Ptr, bytes: u64) {
        self.state.lock().give(ptr, bytes);
    }

    fn stream(&self, _priority: i32) -> Result<StreamHandle> {
        let mut state = self.call("stream")?;
        state.next_handle += 1;
        let handle = state.next_handle;
        state.streams.insert(handle, (0, 0));
        Ok(handle)
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        let state = self.call("stream_query")?;
        let (queued, done) = state.streams[&stream];
        Ok(queued == done)
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.call("stream_synchronize")?.finish(stream);
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        let mut state = self.call("synchronize")?;
        let streams: Vec<_> = state.streams.keys().copied().collect();
        streams.into_iter().for_each(|s| state.finish(s));
        Ok(())
    }

    fn event(&self, _timing: bool) -> Result<EventHandle> {
        let mut state = self.call("event")?;
        state.next_handle += 1;
        let handle = state.next_handle;
        state.events.insert(handle, None);
        Ok(handle)
    }

    fn event_free(&self, event: EventHandle) {
        assert!(self.state.lock().events.remove(&event).is_some(), "freed an unknown event");
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let mut state = self.call("event_record")?;
        let at = state.push(stream);
        *state.events.get_mut(&event).expect("a known event") = Some((stream, at));
        Ok(())
    }

    fn event_wait(&self, stream: StreamHandle, _event: EventHandle, _owner: &dyn Driver) -> Result<()> {
        self.call("event_wait")?.push(stream);
        Ok(())
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        let state = self.call("event_query")?;
        Ok(state.events[&event].is_none_or(|(stream, at)| state.streams[&stream].1 >= at))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        let mut state = self.call("event_synchronize")?;
        if let Some((stream, _)) = state.events[&event] {
            state.finish(stream);
        }
        Ok(())
    }

    fn event_elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64> {
        let state = self.call("event_elapsed")?;
        let at = |e| state.events[e].map_or(0, |(_, at)| at);
        Ok(at(&end) as f64 - at(&start) as f64)
    }

    fn copy(&self, dst: Ptr, src: Ptr, _bytes: u64, _kind: CopyKind, stream: StreamHandle) -> Result<()> {
        let mut state = self.call("copy")?;
        let at = state.push(stream);
        state.uses.extend([(dst, stream, at), (src, stream, at)]);
        Ok(())
    }

    fn fill(&self, dst: Ptr, _pattern: u64, _width: u32, _count: u64, stream: StreamHandle) -> Result<()> {
        let mut state = self.call("fill")?;
        let at = state.push(stream);
        state.uses.push((dst, stream, at));
        Ok(())
    }

    fn launch(&self, launch: &Launch, stream: StreamHandle) -> Result<()> {
        let mut state = self.call("launch")?;
        let at = state.push(stream);
        state.uses.extend(launch.views.iter().map(|v| (v.ptr, stream, at)));
        Ok(())
    }

    fn prepared(&self, _launch: &Launch) -> bool {
        true
    }

    fn sleep(&self, _cycles: u64, stream: StreamHandle) -> Result<()> {
        self.call("sleep")?.push(stream);
        Ok(())
    }

    fn can_access_peer(&self, _peer: u32) -> bool {
        true
    }

    fn take_fault(&self) -> Option<Fault> {
        self.state.lock().fault.take()
    }
}
