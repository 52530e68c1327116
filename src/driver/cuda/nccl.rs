//! NCCL: links between the devices of several processes.
//!
//! Communicators are blocking, so calls need no extra thread. Calls that cannot be cancelled (joining, the
//! first call that needs a link) run where another thread can end them.
//!
//! Note [Nothing hangs]. A collective waits on the device for the other processes, without a time limit. So
//! every call records an event after its work. A thread of the communicator polls the oldest event and NCCL's
//! own error state. Work that exceeds the group's timeout fails the group at the line that queued it. Any
//! failure of the group aborts the communicator: its kernels end, streams continue, and the next wait raises
//! the error.

use super::context::{Context, check, ready};
use super::driver::CudaDriver;
use super::dynamic::{self, NCCL};
use super::error;
use crate::array::Dtype;
use crate::base::stop::{self, Stop};
use crate::base::{Error, Result, Span};
use crate::driver::StreamHandle;
use crate::driver::error::{driver_failed, stopped, wait_interrupted};
use crate::driver::links::{self, Communicator, Exchange, Fold, GroupState, JoinParams, Links, Pattern};
use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUstream};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `ncclComm_t`
type Comm = *mut c_void;
/// `ncclResult_t`
type Outcome = c_int;
/// `cudaStream_t`, the same as the driver's stream.
type Stream = *mut c_void;
type Data = *mut c_void;

/// `ncclUniqueId`
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

const SUCCESS: Outcome = 0;
const IN_PROGRESS: Outcome = 7;

// Counts are `size_t`; dtypes and operations are 32-bit enums.
dynamic::api! {
    NCCL:
    get_version = c"ncclGetVersion"(*mut c_int) -> Outcome;
    get_unique_id = c"ncclGetUniqueId"(*mut UniqueId) -> Outcome;
    comm_init_rank = c"ncclCommInitRank"(*mut Comm, c_int, UniqueId, c_int) -> Outcome;
    comm_destroy = c"ncclCommDestroy"(Comm) -> Outcome;
    comm_abort = c"ncclCommAbort"(Comm) -> Outcome;
    comm_get_async_error = c"ncclCommGetAsyncError"(Comm, *mut Outcome) -> Outcome;
    get_error_string = c"ncclGetErrorString"(Outcome) -> *const c_char;
    all_reduce = c"ncclAllReduce"(Data, Data, usize, c_int, c_int, Comm, Stream) -> Outcome;
    reduce = c"ncclReduce"(Data, Data, usize, c_int, c_int, c_int, Comm, Stream) -> Outcome;
    broadcast = c"ncclBroadcast"(Data, Data, usize, c_int, c_int, Comm, Stream) -> Outcome;
    all_gather = c"ncclAllGather"(Data, Data, usize, c_int, Comm, Stream) -> Outcome;
    reduce_scatter = c"ncclReduceScatter"(Data, Data, usize, c_int, c_int, Comm, Stream) -> Outcome;
    group_start = c"ncclGroupStart"() -> Outcome;
    group_end = c"ncclGroupEnd"() -> Outcome;
    send = c"ncclSend"(Data, usize, c_int, c_int, Comm, Stream) -> Outcome;
    recv = c"ncclRecv"(Data, usize, c_int, c_int, Comm, Stream) -> Outcome;
}

/// The oldest supported version: the first with averages and the current form of asynchronous errors.
const OLDEST: c_int = 21_000;

/// NCCL's version, such as `2.27.3`; an error if it is too old.
pub(super) fn version() -> Result<String> {
    let (api, mut version) = (Api::get()?, 0);
    // SAFETY: the call writes one integer.
    api.check(unsafe { (api.get_version)(&mut version) }, "ncclGetVersion")?;
    let shown = format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100);
    if version < OLDEST {
        return Err(error::old_library("NCCL", &shown, "2.10"));
    }
    Ok(shown)
}

/// The library, if its version is supported.
fn api() -> Result<&'static Api> {
    version()?;
    Api::get()
}

impl Api {
    fn text(&self, result: Outcome) -> String {
        // SAFETY: the call returns a static string for every number.
        unsafe { dynamic::text((self.get_error_string)(result)) }
    }

    fn check(&self, result: Outcome, call: &'static str) -> Result<()> {
        match result {
            SUCCESS | IN_PROGRESS => Ok(()),
            result => Err(driver_failed("NCCL", call, &self.text(result))
                .help("`NCCL_DEBUG=WARN` in the environment makes NCCL say more")),
        }
    }
}

/// `ncclUint8`, for elements that are only moved.
const BYTES: c_int = 1;

/// `ncclRedOp_t`
fn operation(fold: Fold) -> c_int {
    match fold {
        Fold::Sum => 0,
        Fold::Product => 1,
        Fold::Max => 2,
        Fold::Min => 3,
        Fold::Avg => 4,
    }
}

/// The interval at which the thread checks queued work.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The longest wait for an abort.
const LONGEST_ABORT: Duration = Duration::from_secs(10);

/// A communicator of NCCL.
struct Nccl {
    shared: Arc<Shared>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    api: &'static Api,
    context: Context,
    /// Number of linked devices.
    size: usize,
    /// The communicator; 0 once it was released. Locked during error queries and aborts.
    comm: Mutex<usize>,
    timeout: Duration,
    group_state: Arc<GroupState>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    queued: VecDeque<Queued>,
    /// Completed events, for reuse.
    spare: Vec<u64>,
    ended: bool,
}

/// Work that may not have completed.
struct Queued {
    /// Recorded on the work's stream after the work; 0 while the call that queues it is running.
    event: u64,
    since: Instant,
    name: &'static str,
    span: Span,
    /// Can end that call.
    stop: Option<Stop>,
}

impl Links for CudaDriver {
    fn id(&self) -> Result<Vec<u8>> {
        self.enter()?;
        let api = api()?;
        let mut id = UniqueId([0; 128]);
        // SAFETY: the call writes 128 bytes.
        api.check(unsafe { (api.get_unique_id)(&mut id) }, "ncclGetUniqueId")?;
        Ok(id.0.to_vec())
    }

    /// Makes a communicator on a thread that is abandoned if the other processes do not come.
    fn join(&self, params: JoinParams<'_>) -> Result<Arc<dyn Communicator>> {
        let api = api()?;
        let Ok(id) = <[u8; 128]>::try_from(params.id) else {
            return Err(driver_failed("NCCL", "ncclCommInitRank", "the identifier is damaged"));
        };
        let (rank, size, context) = (params.rank as c_int, params.size as c_int, self.context);
        let (send, made) = channel();
        let start = move || {
            let comm = context.enter().and_then(|()| {
                let mut comm: Comm = std::ptr::null_mut();
                // SAFETY: the context is current; the call writes one pointer.
                let result = unsafe { (api.comm_init_rank)(&mut comm, size, UniqueId(id), rank) };
                api.check(result, "ncclCommInitRank").map(|()| comm as usize)
            });
            if let Err(unwanted) = send.send(comm)
                && let Ok(comm) = unwanted.0
            {
                // SAFETY: the communicator is not shared.
                let _ = unsafe { (api.comm_abort)(comm as Comm) };
            }
        };
        let thread = std::thread::Builder::new().name("runnel-nccl".into()).spawn(start);
        thread.map_err(|reason| driver_failed("NCCL", "ncclCommInitRank", &reason.to_string()))?;
        let end = Instant::now() + params.timeout;
        let comm = loop {
            match made.recv_timeout(POLL_INTERVAL) {
                Ok(made) => break made?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(driver_failed("NCCL", "ncclCommInitRank", "its thread ended"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    params.group_state.check()?;
                    stopped()?;
                    if Instant::now() > end {
                        return Err(links::too_late("NCCL did not link the devices in time"));
                    }
                }
            }
        };
        let shared = Arc::new(Shared {
            api,
            context,
            size: params.size,
            comm: Mutex::new(comm),
            timeout: params.timeout,
            group_state: params.group_state,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let nccl = Nccl { shared: shared.clone(), watch: Mutex::default() };
        let watch = move || {
            // Only this thread ends hanging waits of the device, so its panic fails the group.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.watch())).is_err() {
                shared.group_state.fail_and_announce(driver_failed(
                    "NCCL",
                    "watch",
                    "the watching thread panicked",
                ));
                shared.abort();
            }
        };
        let thread = std::thread::Builder::new().name("runnel-watch".into()).spawn(watch);
        let watch = thread.map_err(|reason| driver_failed("NCCL", "watch", &reason.to_string()))?;
        *nccl.watch.lock() = Some(watch);
        Ok(Arc::new(nccl))
    }
}

impl Shared {
    /// Watches queued work until the communicator ends. See Note [Nothing hangs].
    fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return;
            }
            if state.queued.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            self.changed.wait_for(&mut state, POLL_INTERVAL);
            self.pass(&mut state);
            let late = state.queued.front().and_then(|first| self.problem(first));
            drop(state);
            if let Some(error) = late.or_else(|| self.found_wrong()) {
                // Aborts through the group, which also marks this communicator as ended.
                self.group_state.fail_and_announce(error);
                self.abort();
                return;
            }
            state = self.state.lock();
        }
    }

    /// Removes completed work.
    fn pass(&self, state: &mut State) {
        if self.context.enter().is_err() {
            return;
        }
        while let Some(first) = state.queued.front().filter(|first| first.event != 0) {
            // SAFETY: the event belongs to this communicator, and the context is current.
            let result = unsafe { sys::cuEventQuery(first.event as CUevent) };
            match ready(result, "cuEventQuery") {
                // A failed device is reported by the wait that finds it.
                Ok(true) | Err(_) => {
                    state.spare.push(first.event);
                    state.queued.pop_front();
                }
                Ok(false) => return,
            }
        }
    }

    fn problem(&self, first: &Queued) -> Option<Error> {
        let at =
            |error: Error| if first.span.is_none() { error } else { error.at(first.span, "this was queued") };
        if first.stop.as_ref().is_some_and(|stop| stop.reason().is_some()) {
            return Some(wait_interrupted());
        }
        if first.since.elapsed() <= self.timeout {
            return None;
        }
        let after = self.timeout.as_secs_f64();
        Some(at(links::too_late(format!("`dist.{}` did not end within {after} s on the device", first.name))))
    }

    fn found_wrong(&self) -> Option<Error> {
        let comm = self.comm.lock();
        if *comm == 0 {
            return None;
        }
        let mut result = SUCCESS;
        // SAFETY: the communicator exists, and cannot be taken while this is locked.
        let asked = unsafe { (self.api.comm_get_async_error)(*comm as Comm, &mut result) };
        drop(comm);
        match (asked, result) {
            (SUCCESS, SUCCESS | IN_PROGRESS) => None,
            (SUCCESS, wrong) => Some(links::links_failed(&self.api.text(wrong))),
            (wrong, _) => Some(links::links_failed(&self.api.text(wrong))),
        }
    }

    /// Takes the communicator, so that later callers find none.
    fn take(&self) -> Option<Comm> {
        let comm = std::mem::take(&mut *self.comm.lock());
        (comm != 0).then_some(comm as Comm)
    }

    /// Releases the communicator at once. A second caller waits for the first, because the end of the process
    /// would free what NCCL still uses; that wait has a limit.
    fn abort(&self) {
        if let Some(mut comm) = self.comm.try_lock_for(LONGEST_ABORT) {
            let taken = std::mem::take(&mut *comm);
            if taken != 0 {
                self.context.enter().ok();
                // SAFETY: taken, so it is released only once. This ends a call still running on another
                // thread, as NCCL documents.
                let _ = unsafe { (self.api.comm_abort)(taken as Comm) };
            }
        }
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// An event to record after work.
    fn event(&self) -> Result<u64> {
        if let Some(spare) = self.state.lock().spare.pop() {
            return Ok(spare);
        }
        let mut event = std::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current.
        check(unsafe { sys::cuEventCreate(&mut event, flags) }, "cuEventCreate")?;
        Ok(event as u64)
    }

    /// Makes the NCCL call.
    fn call(&self, comm: Comm, work: &Exchange, stream: StreamHandle) -> (Outcome, &'static str) {
        let api = self.api;
        let (from, to, stream) = (work.source as Data, work.target as Data, stream as Stream);
        let bytes = work.count * work.dtype.size();
        let kind = work.dtype.nccl().unwrap_or(BYTES);
        // SAFETY: the communicator exists, the addresses hold as many elements as the pattern needs in live
        // memory of the device, and the stream belongs to the device.
        unsafe {
            match work.pattern {
                Pattern::AllReduce(fold) => (
                    (api.all_reduce)(from, to, work.count, kind, operation(fold), comm, stream),
                    "ncclAllReduce",
                ),
                Pattern::Reduce(fold, root) => (
                    (api.reduce)(from, to, work.count, kind, operation(fold), root as c_int, comm, stream),
                    "ncclReduce",
                ),
                Pattern::Broadcast(root) => {
                    ((api.broadcast)(from, to, bytes, BYTES, root as c_int, comm, stream), "ncclBroadcast")
                }
                Pattern::AllGather => {
                    ((api.all_gather)(from, to, bytes, BYTES, comm, stream), "ncclAllGather")
                }
                Pattern::ReduceScatter(fold) => (
                    (api.reduce_scatter)(from, to, work.count, kind, operation(fold), comm, stream),
                    "ncclReduceScatter",
                ),
                Pattern::AllToAll => {
                    let part = bytes / self.size;
                    let mut result = (api.group_start)();
                    for peer in 0..self.size {
                        let (from, to) = (from.byte_add(peer * part), to.byte_add(peer * part));
                        if result == SUCCESS {
                            result = (api.send)(from, part, BYTES, peer as c_int, comm, stream);
                        }
                        if result == SUCCESS {
                            result = (api.recv)(to, part, BYTES, peer as c_int, comm, stream);
                        }
                    }
                    let ended = (api.group_end)();
                    (if result == SUCCESS { ended } else { result }, "ncclGroupEnd")
                }
                Pattern::Send(peer) => {
                    ((api.send)(from, bytes, BYTES, peer as c_int, comm, stream), "ncclSend")
                }
                Pattern::Receive(peer) => {
                    ((api.recv)(to, bytes, BYTES, peer as c_int, comm, stream), "ncclRecv")
                }
            }
        }
    }
}

impl Communicator for Nccl {
    fn folds(&self, _fold: Fold, dtype: Dtype) -> bool {
        dtype.nccl().is_some()
    }

    fn queue(&self, work: &Exchange, stream: StreamHandle) -> Result<()> {
        let shared = &*self.shared;
        shared.context.enter()?;
        let event = shared.event()?;
        let comm = *shared.comm.lock();
        if comm == 0 {
            shared.state.lock().spare.push(event);
            return shared.group_state.check().and(Err(links::links_failed("they are closed")));
        }
        let queued = Queued {
            event: 0,
            since: Instant::now(),
            name: work.name,
            span: work.span,
            stop: stop::current(),
        };
        let mut state = shared.state.lock();
        state.queued.push_back(queued);
        let first = state.queued.len() == 1;
        drop(state);
        if first {
            // Otherwise the thread is awake.
            shared.changed.notify_all();
        }
        let (result, call) = shared.call(comm as Comm, work, stream);
        // SAFETY: both belong to this device, and its context is current.
        let recorded = unsafe { sys::cuEventRecord(event as CUevent, stream as CUstream) };
        let mut state = shared.state.lock();
        match (result, recorded) {
            (SUCCESS | IN_PROGRESS, sys::CUresult::CUDA_SUCCESS) => {
                if let Some(last) = state.queued.back_mut() {
                    (last.event, last.stop) = (event, None);
                }
            }
            _ => {
                state.queued.pop_back();
                state.spare.push(event);
            }
        }
        drop(state);
        // The reason for ending the call says more than NCCL's error.
        shared.group_state.check()?;
        shared.api.check(result, call)?;
        check(recorded, "cuEventRecord")
    }

    fn finish(&self) {
        loop {
            let mut state = self.shared.state.lock();
            self.shared.pass(&mut state);
            if state.ended
                || state.queued.is_empty()
                || self.shared.group_state.is_failed()
                || stop::reason().is_some()
            {
                return;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn abort(&self) {
        self.shared.abort();
    }

    fn close(&self) {
        self.end_watch();
        if let Some(comm) = self.shared.take() {
            self.shared.context.enter().ok();
            // SAFETY: taken, and nothing is queued: every process has finished and is closing too.
            let _ = unsafe { (self.shared.api.comm_destroy)(comm) };
        }
    }
}

impl Nccl {
    fn end_watch(&self) {
        self.shared.state.lock().ended = true;
        self.shared.changed.notify_all();
        let watch = self.watch.lock().take();
        if let Some(watch) = watch.filter(|watch| watch.thread().id() != std::thread::current().id()) {
            watch.join().ok();
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.shared.abort();
        self.end_watch();
        let mut state = self.shared.state.lock();
        let events: Vec<u64> =
            state.queued.drain(..).map(|queued| queued.event).filter(|event| *event != 0).collect();
        if self.shared.context.enter().is_ok() {
            for event in events.into_iter().chain(state.spare.drain(..)) {
                // SAFETY: made by `event`; the driver keeps the event until queued work has passed it.
                let _ = unsafe { sys::cuEventDestroy_v2(event as CUevent) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_loads_or_is_named_in_the_error() {
        match api() {
            Ok(api) => assert!(!api.text(5).is_empty()),
            Err(error) => assert_eq!(error.code().id, "E0813"),
        }
    }

    #[test]
    fn every_dtype_is_folded_or_moved_as_bytes() {
        let folded: Vec<Dtype> = Dtype::ALL.iter().copied().filter(|d| d.nccl().is_some()).collect();
        assert_eq!(folded.len(), 9, "bool as u8, and all but i16 and the complex ones");
        assert!(!folded.contains(&Dtype::I16) && !folded.contains(&Dtype::C64));
    }
}
