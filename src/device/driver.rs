//! The boundary between policy and machinery.

use super::graph::{GraphHandle, Step};
use super::group::{Communicator, Seat};
use crate::base::Result;
use crate::kernel::fft::{FftPlan, FftSpec};
use crate::kernel::{Fault, Launch, Ptr};
use std::sync::Arc;

/// A driver's stream; 0 is the device's default stream.
pub type StreamHandle = u64;

/// A driver's event; never 0.
pub type EventHandle = u64;

/// Where the two ends of a copy lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// From host memory to this device.
    HostToDevice,
    /// From this device to host memory.
    DeviceToHost,
    /// Within this device.
    DeviceToDevice,
    /// From another device of the same backend (its index) to this one.
    FromPeer(u32),
    /// From this device to another one of the same backend (its index).
    ToPeer(u32),
}

/// What a device is. Names as in `torch.cuda.get_device_properties`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Properties {
    pub name: String,
    pub major: u32,
    pub minor: u32,
    /// Bytes.
    pub total_memory: u64,
    pub multi_processor_count: u32,
    /// Bytes.
    pub l2_cache_size: u64,
    pub warp_size: u32,
    pub max_threads_per_multi_processor: u32,
    pub uuid: String,
    /// Greatest and least stream priority: `(-3, 0)` means 0 is lowest and -3 highest.
    pub greatest_priority: i32,
}

/// A piece of work, as a model of time sees it.
#[derive(Clone, Copy)]
pub enum Work<'a> {
    /// A program.
    Launch(&'a Launch),
    /// A copy of so many bytes.
    Copy(u64),
    /// A pause of so many clock cycles.
    Sleep(u64),
    /// A graph of these steps.
    Graph(&'a [Step]),
}

/// One device's machinery. All of it is callable from any thread.
///
/// Work is queued on streams and runs later, in order within a stream, in any order between them.
/// A method that queues returns at once; what fails later is reported by the next wait
/// (`stream_synchronize`, `event_synchronize`, `synchronize`, a query).
///
/// Errors are [`device::error`](crate::device)'s: out of memory has its own code and says nothing
/// more; the allocator adds the facts.
pub trait Driver: Send + Sync {
    /// `"cuda"`, `"emu"`, `"cpu"`.
    fn backend(&self) -> &'static str;
    /// What the device is.
    fn properties(&self) -> &Properties;
    /// Free and total bytes, as the driver sees them.
    fn memory_info(&self) -> Result<(u64, u64)>;

    /// Takes device memory, aligned to 512 bytes at least.
    fn alloc(&self, bytes: u64) -> Result<Ptr>;
    /// Gives it back. The caller has made sure that nothing queued still uses it.
    fn free(&self, ptr: Ptr, bytes: u64);
    /// The unit of mapped memory, in bytes, where the device can put memory behind reserved addresses.
    fn map_unit(&self) -> Option<u64> {
        None
    }
    /// Reserves addresses that have no memory yet, aligned to the unit; `bytes` is a multiple of it.
    fn reserve(&self, bytes: u64) -> Result<Ptr> {
        let _ = bytes;
        Err(super::error::out_of_memory())
    }
    /// Gives addresses back that one `reserve` has returned; nothing is mapped there.
    fn unreserve(&self, ptr: Ptr, bytes: u64) {
        let _ = (ptr, bytes);
    }
    /// Puts memory behind reserved addresses that have none; both numbers are multiples of the unit.
    /// Peers that access this device's memory access it too. On an error nothing is mapped.
    fn map(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        let _ = (ptr, bytes);
        Err(super::error::out_of_memory())
    }
    /// Takes the memory of one `map` away, whole; the addresses stay reserved. The caller has made
    /// sure that nothing queued still uses it.
    fn unmap(&self, ptr: Ptr, bytes: u64) {
        let _ = (ptr, bytes);
    }
    /// Takes page-locked host memory that every device of the backend can copy from and to.
    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr>;
    /// Gives it back.
    fn pinned_free(&self, ptr: Ptr, bytes: u64);

    /// Makes a stream; a priority is between `greatest_priority` and 0.
    fn stream(&self, priority: i32) -> Result<StreamHandle>;
    /// True when nothing is queued or running on it.
    fn stream_query(&self, stream: StreamHandle) -> Result<bool>;
    /// Waits until nothing is queued or running on it.
    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()>;
    /// Waits for every stream.
    fn synchronize(&self) -> Result<()>;

    /// Makes an event; with `timing`, `event_elapsed` works on it.
    fn event(&self, timing: bool) -> Result<EventHandle>;
    /// Gives an event back; what is queued on it still works.
    fn event_free(&self, event: EventHandle);
    /// Queues the event's completion; a second record replaces the first.
    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;
    /// Makes the stream (of this device) wait for an event as it was recorded last; the event may
    /// be another device's of the same backend, whose driver `owner` is.
    fn event_wait(&self, stream: StreamHandle, event: EventHandle, owner: &dyn Driver) -> Result<()>;
    /// True when the last record has completed.
    fn event_query(&self, event: EventHandle) -> Result<bool>;
    /// Waits for the last record.
    fn event_synchronize(&self, event: EventHandle) -> Result<()>;
    /// Makes an event without timing that other processes can open. An ordinary one where there are none.
    fn event_interprocess(&self) -> Result<EventHandle> {
        self.event(false)
    }
    /// The handle under which another process opens an event of [`Driver::event_interprocess`].
    fn event_export(&self, event: EventHandle) -> Result<[u8; 64]> {
        let _ = event;
        Err(super::error::event_not_shared("only CUDA devices share events between processes"))
    }
    /// Opens an event that another process has exported.
    fn event_import(&self, handle: &[u8; 64]) -> Result<EventHandle> {
        let _ = handle;
        Err(super::error::event_not_shared("only CUDA devices share events between processes"))
    }
    /// Milliseconds from `start` to `end`, both completed.
    fn event_elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64>;

    /// True when memory stays valid for queued work until that has run or was given up, even when it was freed or
    /// nobody uses the device any more: then a device closes without waiting for what is queued.
    fn keeps_memory(&self) -> bool {
        false
    }

    /// Queues a copy. Host memory that is not pinned may be read, or written, before this returns
    /// (then the call waits as long as that needs).
    fn copy(&self, dst: Ptr, src: Ptr, bytes: u64, kind: CopyKind, stream: StreamHandle) -> Result<()>;
    /// Queues a fill of `count` elements of `width` (1, 2, 4, 8) bytes with the low bytes of `pattern`.
    fn fill(&self, dst: Ptr, pattern: u64, width: u32, count: u64, stream: StreamHandle) -> Result<()>;
    /// Queues a program.
    fn launch(&self, launch: &Launch, stream: StreamHandle) -> Result<()>;
    /// True when `launch` of this program would not have to compile first; starts compiling in the
    /// background when it would. The planner launches the program's single instructions meanwhile.
    fn prepared(&self, launch: &Launch) -> bool;
    /// True when one program may combine so many rows of that length and go on with the results
    /// ([`Body::Rows`](crate::kernel::Body::Rows)) in the order of [`Body::Reduce`](crate::kernel::Body::Reduce).
    fn takes_rows(&self, rows: usize, length: usize) -> bool {
        let _ = rows;
        length <= 1 << 13
    }
    /// Queues a pause of about that many clock cycles. Source: `torch.cuda._sleep`.
    fn sleep(&self, cycles: u64, stream: StreamHandle) -> Result<()>;

    /// Nanoseconds that the work takes, where time is virtual; `None` where only events can tell.
    fn modelled(&self, work: Work<'_>) -> Option<u64> {
        let _ = work;
        None
    }

    /// True when this device can read `peer`'s memory directly.
    fn can_access_peer(&self, peer: u32) -> bool;

    /// Lets this device's kernels use `peer`'s memory; false where the machine has no way for it.
    fn reach_peer(&self, peer: u32) -> Result<bool> {
        Ok(self.can_access_peer(peer))
    }

    /// Takes the fault that kernels have reported since the last call, if any. Exact only after the
    /// stream that ran them was waited for.
    fn take_fault(&self) -> Option<Fault>;

    /// Makes a graph of recorded work, which is queued as one unit, any number of times. What the steps
    /// name stays valid until [`Driver::graph_free`]. Compiles what is missing; runs nothing.
    fn graph(&self, steps: Arc<[Step]>) -> Result<GraphHandle> {
        let _ = steps;
        Err(super::error::driver_failed(self.backend(), "graph", "its work cannot be captured"))
    }
    /// Queues a graph: it starts after what is on the stream, and is over when all of its lanes are.
    fn graph_launch(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()> {
        let _ = (graph, stream);
        Err(super::error::driver_failed(self.backend(), "graph_launch", "no such graph"))
    }
    /// Gives a graph back. No launch of it is queued or running.
    fn graph_free(&self, graph: GraphHandle) {
        let _ = graph;
    }
    /// Makes a plan for Fourier transforms, which takes long; programs carry it. The host's unless the
    /// device has a library of its own.
    fn fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        Ok(crate::kernel::host::fft::plan(spec))
    }

    /// True when devices of several processes exchange bytes over links of their own, without the hosts.
    fn has_links(&self) -> bool {
        false
    }
    /// What all processes need for [`Driver::join`]; one of them makes it.
    fn links_id(&self) -> Result<Vec<u8>> {
        Err(super::error::driver_failed(self.backend(), "links_id", "it has no links to other processes"))
    }
    /// Links this device with those of other processes, which all call this at the same time.
    fn join(&self, seat: Seat<'_>) -> Result<Arc<dyn Communicator>> {
        let _ = seat;
        Err(super::error::driver_failed(self.backend(), "join", "it has no links to other processes"))
    }

    /// The library handle of `torch.cuda.current_blas_handle`; 0 where there is none.
    fn blas_handle(&self, stream: StreamHandle) -> Result<u64> {
        let _ = stream;
        Ok(0)
    }
}
