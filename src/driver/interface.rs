//! The driver interface: the boundary between policy and devices.

use crate::base::Result;
use crate::driver::error;
use crate::driver::graph::{GraphHandle, Step};
use crate::kernel::fft::{FftPlan, FftSpec};
use crate::kernel::{Fault, Launch, Ptr};
use std::sync::Arc;
use std::time::Instant;

/// A stream handle of a driver; 0 is the device's default stream.
pub type StreamHandle = u64;

/// An event handle of a driver; never 0.
pub type EventHandle = u64;

/// The source and destination kinds of a copy.
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

/// Properties of a device. Names as in `torch.cuda.get_device_properties`.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    pub name: String,
    pub major: u32,
    pub minor: u32,
    /// In bytes.
    pub total_memory: u64,
    pub multi_processor_count: u32,
    /// In bytes.
    pub l2_cache_size: u64,
    pub warp_size: u32,
    pub max_threads_per_multi_processor: u32,
    pub uuid: String,
    /// The highest stream priority; the lowest is 0. -3 means priorities -3 to 0.
    pub greatest_priority: i32,
}

/// Work as seen by a time model.
#[derive(Clone, Copy)]
pub enum Work<'a> {
    /// A program.
    Launch(&'a Launch),
    /// A copy of this many bytes.
    Copy(u64),
    /// A pause of this many clock cycles.
    Sleep(u64),
    /// A graph with these steps.
    Graph(&'a [Step]),
}

/// A program that was compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program's label.
    pub label: String,
    /// When compiling began and ended.
    pub times: (Instant, Instant),
    /// The kernel came from the cache on disk and was only loaded.
    pub was_kept: bool,
}

/// Counts of a device's kernels since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KernelStats {
    /// Distinct programs, each with one layout of its operands.
    pub programs: u64,
    /// Programs compiled; the others came from the cache on disk, or were only interpreted.
    pub compiled: u64,
    /// Launches that ready-made kernels ran.
    pub interpreted: u64,
    /// Launches of programs.
    pub launches: u64,
    /// Launches that waited for the compiler.
    pub waits: u64,
}

/// Drives one device. All methods can be called from any thread.
///
/// Work is queued on streams and runs later: in order within a stream, in any order across streams. A method
/// that queues returns at once. Later failures are reported by the next wait (`stream_synchronize`,
/// `event_synchronize`, `synchronize`, a query).
///
/// Errors come from [`error`]. Out of memory has its own code without details; the
/// allocator adds them.
pub trait Driver: Send + Sync {
    /// `"cuda"`, `"emu"`, `"cpu"`.
    fn backend(&self) -> &'static str;
    /// The device's properties.
    fn properties(&self) -> &Properties;
    /// Free and total bytes as the driver reports them.
    fn memory_info(&self) -> Result<(u64, u64)>;

    /// Allocates device memory, aligned to at least 512 bytes.
    fn alloc(&self, bytes: u64) -> Result<Ptr>;
    /// Frees memory. The caller guarantees that no queued work still uses it.
    fn free(&self, ptr: Ptr, bytes: u64);
    /// The granularity of mapped memory in bytes; `None` when the device cannot map memory to reserved
    /// addresses.
    fn map_unit(&self) -> Option<u64> {
        None
    }
    /// Reserves unmapped addresses, aligned to the granularity; `bytes` is a multiple of it.
    fn reserve(&self, bytes: u64) -> Result<Ptr> {
        let _ = bytes;
        Err(error::out_of_memory())
    }
    /// Releases a range that one `reserve` returned; nothing may be mapped there.
    fn unreserve(&self, ptr: Ptr, bytes: u64) {
        let _ = (ptr, bytes);
    }
    /// Maps memory to a reserved, unmapped range; both numbers are multiples of the granularity. Peers with
    /// access to this device's memory get access to it too. On an error nothing is mapped.
    fn map(&self, ptr: Ptr, bytes: u64) -> Result<()> {
        let _ = (ptr, bytes);
        Err(error::out_of_memory())
    }
    /// Unmaps the whole range of one `map`; the addresses stay reserved. The caller guarantees that no queued
    /// work still uses it.
    fn unmap(&self, ptr: Ptr, bytes: u64) {
        let _ = (ptr, bytes);
    }
    /// Releases memory that the driver caches, before a request fails.
    fn trim(&self) {}
    /// Allocates page-locked host memory that every device of the backend can copy from and to.
    fn pinned_alloc(&self, bytes: u64) -> Result<Ptr>;
    /// Frees page-locked memory.
    fn pinned_free(&self, ptr: Ptr, bytes: u64);

    /// Creates a stream with a priority between `greatest_priority` and 0.
    fn stream(&self, priority: i32) -> Result<StreamHandle>;
    /// True when nothing is queued or running on the stream.
    fn stream_query(&self, stream: StreamHandle) -> Result<bool>;
    /// Waits until nothing is queued or running on the stream.
    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()>;
    /// Waits for all streams.
    fn synchronize(&self) -> Result<()>;

    /// Creates an event; `event_elapsed` needs `timing`.
    fn event(&self, timing: bool) -> Result<EventHandle>;
    /// Frees an event; work already queued with it still completes.
    fn event_free(&self, event: EventHandle);
    /// Queues the completion of the event. A second record replaces the first.
    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;
    /// Makes a stream of this device wait for an event's latest record. The event may belong to another
    /// device of the same backend; `owner` is its driver.
    fn event_wait(&self, stream: StreamHandle, event: EventHandle, owner: &dyn Driver) -> Result<()>;
    /// True when the latest record has completed.
    fn event_query(&self, event: EventHandle) -> Result<bool>;
    /// Waits for the latest record.
    fn event_synchronize(&self, event: EventHandle) -> Result<()>;
    /// Creates an event without timing that other processes can open; an ordinary event on backends without
    /// such events.
    fn event_interprocess(&self) -> Result<EventHandle> {
        self.event(false)
    }
    /// The handle with which another process opens an event of [`Driver::event_interprocess`].
    fn event_export(&self, event: EventHandle) -> Result<[u8; 64]> {
        let _ = event;
        Err(error::event_not_shared("only CUDA devices share events between processes"))
    }
    /// Opens an event exported by another process.
    fn event_import(&self, handle: &[u8; 64]) -> Result<EventHandle> {
        let _ = handle;
        Err(error::event_not_shared("only CUDA devices share events between processes"))
    }
    /// Milliseconds from `start` to `end`, both completed.
    fn event_elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f64>;

    /// True when memory stays valid for queued work until that work has run or is discarded, even if the
    /// memory is freed or the device is no longer used. Such a device closes without waiting for queued work.
    fn keeps_memory(&self) -> bool {
        false
    }

    /// Queues a copy. Unpinned host memory may be read or written before this returns; the call then blocks
    /// as long as necessary.
    fn copy(&self, dst: Ptr, src: Ptr, bytes: u64, kind: CopyKind, stream: StreamHandle) -> Result<()>;
    /// Queues a fill of `count` elements of `width` (1, 2, 4, 8) bytes with the low bytes of `pattern`.
    fn fill(&self, dst: Ptr, pattern: u64, width: u32, count: u64, stream: StreamHandle) -> Result<()>;
    /// Queues a program.
    fn launch(&self, launch: &Launch, stream: StreamHandle) -> Result<()>;
    /// True when `launch` of this program would not have to compile first. Otherwise starts compiling in the
    /// background; meanwhile the planner launches the groups of a chain.
    fn prepared(&self, launch: &Launch) -> bool;
    /// Compiles and loads everything that a launch needs, so that queueing it is fast; without a launch, everything
    /// that fills and pauses need. For profiles: compiling does not count as a launch's time.
    fn make_ready(&self, launch: Option<&Launch>, stream: StreamHandle) -> Result<()> {
        let _ = (launch, stream);
        Ok(())
    }
    /// Sets the event, just recorded, that marks the beginning of this thread's next work. It is recorded
    /// again if something must be compiled before work is queued. `None` ends this.
    fn begins_at(&self, event: Option<EventHandle>) {
        let _ = event;
    }
    /// The programs compiled, or loaded from the disk, since the last call.
    fn take_compiled(&self) -> Vec<Compiled> {
        Vec::new()
    }
    /// Counts of this device's kernels; zeros for a device that compiles none.
    fn kernel_stats(&self) -> KernelStats {
        KernelStats::default()
    }
    /// True when one program may reduce this many rows of this length and use the results
    /// ([`Rows`](crate::kernel::Rows)) in the order of [`Reduce`](crate::kernel::Reduce).
    fn takes_rows(&self, rows: usize, length: usize) -> bool {
        let _ = rows;
        length <= 1 << 13
    }
    /// True when a matrix product and a program that reads it may be one launch
    /// ([`MappedMatmul`](crate::kernel::MappedMatmul)) with the bits of two.
    fn maps_products(&self) -> bool {
        false
    }
    /// Queues a pause of approximately this many clock cycles. Source: `torch.cuda._sleep`.
    fn sleep(&self, cycles: u64, stream: StreamHandle) -> Result<()>;

    /// The number of the newest queued work, if work can be discarded.
    fn newest(&self) -> u64 {
        0
    }
    /// True when all work queued after the work with this number has completed.
    fn has_done(&self, after: u64) -> bool {
        let _ = after;
        true
    }
    /// Discards the work queued after the work with this number: it does not run, or ends early, and its
    /// results are garbage. Events still complete. Returns the streams that lost work; `None` if work always
    /// runs to its end.
    fn abandon(&self, after: u64) -> Option<Vec<StreamHandle>> {
        let _ = after;
        None
    }

    /// The duration of the work in nanoseconds if time is virtual; `None` if only events can measure it.
    fn modelled(&self, work: Work<'_>) -> Option<u64> {
        let _ = work;
        None
    }

    /// True when this device can read `peer`'s memory directly.
    fn can_access_peer(&self, peer: u32) -> bool;

    /// Lets this device's kernels access `peer`'s memory; false when the machine does not support it.
    fn reach_peer(&self, peer: u32) -> Result<bool> {
        Ok(self.can_access_peer(peer))
    }

    /// Takes the fault that kernels have reported since the last call, if any. Complete only after a wait for
    /// the stream that ran them.
    fn take_fault(&self) -> Option<Fault>;

    /// Creates a graph of recorded work, which can be queued as one unit any number of times. Everything the
    /// steps refer to stays valid until [`Driver::graph_free`]. Compiles missing kernels; runs nothing.
    fn graph(&self, steps: Arc<[Step]>) -> Result<GraphHandle> {
        let _ = steps;
        Err(error::driver_failed(self.backend(), "graph", "its work cannot be captured"))
    }
    /// Queues a graph. It starts after the work on the stream and ends when all its lanes have ended.
    fn graph_launch(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()> {
        let _ = (graph, stream);
        Err(error::driver_failed(self.backend(), "graph_launch", "no such graph"))
    }
    /// Frees a graph. No launch of it may be queued or running.
    fn graph_free(&self, graph: GraphHandle) {
        let _ = graph;
    }
    /// Makes a plan for Fourier transforms; this is slow. Programs carry the plan. The default is the host's
    /// plan; devices with their own library override it.
    fn fft_plan(&self, spec: &FftSpec) -> Result<Arc<dyn FftPlan>> {
        Ok(crate::kernel::host::fft::plan(spec))
    }

    /// Direct links to devices of other processes; `None` when their bytes go through the hosts.
    #[cfg(feature = "dist")]
    fn links(&self) -> Option<&dyn crate::driver::links::Links> {
        None
    }

    /// The library handle of `torch.cuda.current_blas_handle`; 0 if there is none.
    fn blas_handle(&self, stream: StreamHandle) -> Result<u64> {
        let _ = stream;
        Ok(0)
    }
}
