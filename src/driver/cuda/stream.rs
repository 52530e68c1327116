//! Streams, events, and waits for them.

use super::context::{check, ready};
use super::driver::CudaDriver;
use crate::base::{Result, stop};
use crate::driver::{EventHandle, StreamHandle};
use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUstream, CUstream_flags};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Called repeatedly during a wait; an error ends the wait.
type Interrupt = Arc<dyn Fn() -> Result<()> + Send + Sync>;

static INTERRUPT: RwLock<Option<Interrupt>> = RwLock::new(None);
static INTERRUPTIBLE: AtomicBool = AtomicBool::new(false);

/// Sets the interrupt that every wait of this process calls; `None` lets the driver wait by itself.
pub fn set_interrupt(interrupt: Option<Interrupt>) {
    INTERRUPTIBLE.store(interrupt.is_some(), Ordering::Release);
    *INTERRUPT.write() = interrupt;
}

/// The time to poll before sleeping. Most waits are short, and waking a sleeping thread costs tens of microseconds.
const SPIN: Duration = Duration::from_micros(50);

/// Returns whether this thread's wait may be ended early.
fn may_end() -> bool {
    INTERRUPTIBLE.load(Ordering::Acquire) || stop::is_set()
}

/// Waits until `query` returns true: polls first, then calls the driver's `block`, or keeps polling at
/// growing intervals if an interrupt is set.
fn wait(mut query: impl FnMut() -> Result<bool>, block: impl FnOnce() -> Result<()>) -> Result<()> {
    if query()? {
        return Ok(());
    }
    let start = Instant::now();
    while start.elapsed() < SPIN {
        std::hint::spin_loop();
        if query()? {
            return Ok(());
        }
    }
    if !may_end() {
        return block();
    }
    let interrupt = INTERRUPT.read().clone();
    while !query()? {
        if let Some(interrupt) = &interrupt {
            interrupt()?;
        }
        crate::driver::error::stopped()?;
        if start.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        } else {
            // Adds at most a few percent to the wait.
            std::thread::sleep((start.elapsed() / 64).min(Duration::from_micros(100)));
        }
    }
    Ok(())
}

impl CudaDriver {
    pub(super) fn make_stream(&self, priority: i32) -> Result<StreamHandle> {
        self.enter()?;
        let mut stream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let priority = priority.clamp(self.properties.greatest_priority, 0);
        // SAFETY: the context is current.
        let result = unsafe { sys::cuStreamCreateWithPriority(&mut stream, flags, priority) };
        check(result, "cuStreamCreateWithPriority")?;
        self.streams.lock().push(stream as u64);
        Ok(stream as StreamHandle)
    }

    pub(super) fn stream_done(&self, stream: StreamHandle) -> Result<bool> {
        self.enter()?;
        // SAFETY: the stream belongs to this device; 0 is its default stream.
        ready(unsafe { sys::cuStreamQuery(stream as CUstream) }, "cuStreamQuery")
    }

    pub(super) fn stream_wait(&self, stream: StreamHandle) -> Result<()> {
        wait(
            || self.stream_done(stream),
            // SAFETY: the stream belongs to this device, and `stream_done` has made the context current.
            || check(unsafe { sys::cuStreamSynchronize(stream as CUstream) }, "cuStreamSynchronize"),
        )
    }

    pub(super) fn wait_all(&self) -> Result<()> {
        if may_end() {
            // The context's own wait cannot be interrupted; waits for single streams can.
            let streams = self.streams.lock().clone();
            for stream in std::iter::once(0).chain(streams) {
                self.stream_wait(stream)?;
            }
        }
        self.enter()?;
        let _no_capture = self.capturing.lock();
        // SAFETY: the context is current.
        check(unsafe { sys::cuCtxSynchronize() }, "cuCtxSynchronize")
    }

    pub(super) fn make_event(&self, timing: bool) -> Result<EventHandle> {
        self.enter()?;
        let flags =
            if timing { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current.
        check(unsafe { sys::cuEventCreate(&mut event, flags as u32) }, "cuEventCreate")?;
        Ok(event as EventHandle)
    }

    /// An event without timing that other processes can open.
    pub(super) fn make_shared_event(&self) -> Result<EventHandle> {
        self.enter()?;
        let flags =
            CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | CUevent_flags::CU_EVENT_INTERPROCESS as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current.
        check(unsafe { sys::cuEventCreate(&mut event, flags) }, "cuEventCreate")?;
        Ok(event as EventHandle)
    }

    pub(super) fn export_event(&self, event: EventHandle) -> Result<[u8; 64]> {
        self.enter()?;
        let mut handle = sys::CUipcEventHandle_st { reserved: [0; 64] };
        // SAFETY: the event belongs to this device, and the driver writes the 64 bytes of the handle.
        check(unsafe { sys::cuIpcGetEventHandle(&mut handle, event as CUevent) }, "cuIpcGetEventHandle")?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    pub(super) fn import_event(&self, handle: &[u8; 64]) -> Result<EventHandle> {
        self.enter()?;
        let handle = sys::CUipcEventHandle_st { reserved: handle.map(|byte| byte as std::ffi::c_char) };
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current; the driver checks the handle.
        check(unsafe { sys::cuIpcOpenEventHandle(&mut event, handle) }, "cuIpcOpenEventHandle")?;
        Ok(event as EventHandle)
    }

    pub(super) fn drop_event(&self, event: EventHandle) {
        if self.enter().is_ok() {
            // SAFETY: made by `make_event`; the driver keeps the event until queued work has passed it.
            let _ = unsafe { sys::cuEventDestroy_v2(event as CUevent) };
        }
    }

    pub(super) fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: both belong to this device.
        check(unsafe { sys::cuEventRecord(event as CUevent, stream as CUstream) }, "cuEventRecord")
    }

    pub(super) fn wait_on_stream(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream belongs to this device; the event may belong to any device of this process.
        check(unsafe { sys::cuStreamWaitEvent(stream as CUstream, event as CUevent, 0) }, "cuStreamWaitEvent")
    }

    pub(super) fn event_done(&self, event: EventHandle) -> Result<bool> {
        self.enter()?;
        // SAFETY: the event belongs to this device.
        ready(unsafe { sys::cuEventQuery(event as CUevent) }, "cuEventQuery")
    }

    pub(super) fn event_wait_host(&self, event: EventHandle) -> Result<()> {
        wait(
            || self.event_done(event),
            // SAFETY: the event belongs to this device, and `event_done` has made the context current.
            || check(unsafe { sys::cuEventSynchronize(event as CUevent) }, "cuEventSynchronize"),
        )
    }

    pub(super) fn elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64> {
        self.enter()?;
        let mut ms = 0f32;
        // SAFETY: both events measure time and are complete; otherwise the driver returns an error.
        let result = unsafe { sys::cuEventElapsedTime(&mut ms, start as CUevent, end as CUevent) };
        check(result, "cuEventElapsedTime")?;
        Ok(f64::from(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_by_query_block_or_interrupt() {
        let mut polls = 0;
        let query = || {
            polls += 1;
            Ok(polls > 3)
        };
        wait(query, || Err(crate::driver::error::out_of_memory())).unwrap();
        wait(|| Ok(false), || Ok(())).unwrap();

        set_interrupt(Some(Arc::new(|| Err(crate::driver::error::out_of_memory()))));
        let ended = wait(|| Ok(false), || Ok(()));
        set_interrupt(None);
        assert_eq!(ended.unwrap_err().code().id, "E0701");
    }
}
