//! Graphs: recorded work as one unit of the driver.
//!
//! The calls that queue ordinary work also queue the steps of a graph, on streams that belong to the graph
//! and are captured by the driver during the build. Scratch memory and cuBLAS workspaces belong to streams,
//! so a running graph shares none with concurrent work.

use super::context::check;
use super::driver::CudaDriver;
use super::fault::FaultSlot;
use super::queue::Queue;
use crate::base::{Error, Result};
use crate::driver::error::driver_failed;
use crate::driver::graph::{GraphHandle, Step, Task};
use crate::driver::{CopyKind, StreamHandle};
use crate::kernel::Ptr;
use crate::kernel::cuda::Queue as _;
use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};
use foldhash::HashMap;
use std::sync::Arc;

/// The graphs of one device.
#[derive(Default)]
pub(super) struct Graphs {
    last: GraphHandle,
    live: HashMap<GraphHandle, Graph>,
    /// Streams of freed graphs, with their scratch memory.
    spare: Vec<StreamHandle>,
}

struct Graph {
    exec: CUgraphExec,
    lanes: Vec<StreamHandle>,
    /// Whether one of its kernels may report a fault.
    faults: bool,
    /// Page-locked memory with the bytes that the graph copies to the device; 0 if there are none.
    constants: Ptr,
}

// SAFETY: the driver's handles and memory may be used on any thread; a lock guards the table.
unsafe impl Send for Graph {}

/// Events used to build a graph; destroyed on drop.
struct Marks<'a> {
    driver: &'a CudaDriver,
    events: Vec<u64>,
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        self.events.drain(..).for_each(|event| self.driver.drop_event(event));
    }
}

impl CudaDriver {
    pub(super) fn make_graph(&self, steps: Arc<[Step]>) -> Result<GraphHandle> {
        self.enter()?;
        let count = steps.iter().map(|s| s.lane as usize + 1).max().unwrap_or(1);
        let lanes = self.lanes(count)?;
        let faults = steps.iter().any(|s| matches!(&s.task, Task::Launch(l) if l.tag != 0));
        let constants = match self.constants(&steps) {
            Ok(constants) => constants,
            Err(error) => {
                self.graphs.lock().spare.extend(lanes);
                return Err(error);
            }
        };
        let built = self.prepare(&steps, &lanes).and_then(|()| {
            // Loading a kernel or library for the first time may invalidate a capture, so the build is tried twice.
            let build = || self.build(&steps, &lanes, constants);
            build().or_else(|_| build())
        });
        let mut graphs = self.graphs.lock();
        match built {
            Ok(exec) => {
                graphs.last += 1;
                let handle = graphs.last;
                graphs.live.insert(handle, Graph { exec, lanes, faults, constants });
                Ok(handle)
            }
            Err(error) => {
                graphs.spare.extend(lanes);
                drop(graphs);
                self.give_constants(constants);
                Err(error)
            }
        }
    }

    pub(super) fn launch_graph(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        let found = self.graphs.lock().live.get(&graph).map(|g| (g.exec, g.faults));
        let Some((exec, faults)) = found else {
            return Err(driver_failed("cuda", "cuGraphLaunch", "no such graph"));
        };
        if faults {
            self.fault.arm_graphs(stream)?;
        }
        // SAFETY: the graph lives until `drop_graph`, and the stream is this device's.
        check(unsafe { sys::cuGraphLaunch(exec, stream as CUstream) }, "cuGraphLaunch")
    }

    pub(super) fn drop_graph(&self, graph: GraphHandle) {
        let removed = self.graphs.lock().live.remove(&graph);
        let Some(removed) = removed else { return };
        if self.enter().is_ok() {
            // SAFETY: instantiated by `build`; the caller guarantees that no launch of it is running.
            let _ = unsafe { sys::cuGraphExecDestroy(removed.exec) };
        }
        self.give_constants(removed.constants);
        self.graphs.lock().spare.extend(removed.lanes);
    }

    /// Frees all graphs. The device must be idle.
    pub(super) fn release_graphs(&self) {
        let graphs: Vec<Graph> = self.graphs.lock().live.drain().map(|(_, graph)| graph).collect();
        for graph in graphs {
            // SAFETY: as above.
            let _ = unsafe { sys::cuGraphExecDestroy(graph.exec) };
            self.give_constants(graph.constants);
        }
    }

    /// Page-locked memory with the bytes of all writes, concatenated; 0 when there are none.
    fn constants(&self, steps: &[Step]) -> Result<Ptr> {
        let writes = || {
            steps.iter().filter_map(|step| match &step.task {
                Task::Write { bytes, .. } => Some(bytes),
                _ => None,
            })
        };
        let total: usize = writes().map(|bytes| bytes.len()).sum();
        if total == 0 {
            return Ok(0);
        }
        let start = self.take_pinned(total as u64)?;
        let mut at = start;
        for bytes in writes() {
            // SAFETY: the block has room for the bytes of all writes, and is not shared yet.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
            at += bytes.len() as u64;
        }
        Ok(start)
    }

    fn give_constants(&self, constants: Ptr) {
        if constants != 0 {
            self.give_pinned(constants);
        }
    }

    /// Streams for the lanes of a graph, which owns them.
    fn lanes(&self, count: usize) -> Result<Vec<StreamHandle>> {
        let mut lanes: Vec<StreamHandle> = Vec::new();
        while lanes.len() < count {
            let spare = self.graphs.lock().spare.pop();
            match spare.map_or_else(|| self.make_stream(0), Ok) {
                Ok(stream) => lanes.push(stream),
                Err(error) => {
                    self.graphs.lock().spare.extend(lanes);
                    return Err(error);
                }
            }
        }
        Ok(lanes)
    }

    /// Compiles and loads the kernels of the steps, and allocates the memory that their launches share.
    fn prepare(&self, steps: &[Step], lanes: &[StreamHandle]) -> Result<()> {
        for step in steps {
            match &step.task {
                Task::Launch(launch) if !launch.program.kind.is_empty(launch) => {
                    self.get_ready(launch, lanes[step.lane as usize])?;
                }
                Task::Sleep(_) => {
                    self.own_kernels()?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Captures the steps into a graph of the driver.
    fn build(&self, steps: &[Step], lanes: &[StreamHandle], constants: Ptr) -> Result<CUgraphExec> {
        // Waiting for a whole context is an error while one of its streams is captured.
        let _alone = self.capturing.lock();
        let origin = lanes[0] as CUstream;
        // Other threads and our own allocations continue undisturbed.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream belongs to this device, is idle, and is used by nothing else.
        check(unsafe { sys::cuStreamBeginCapture_v2(origin, mode) }, "cuStreamBeginCapture")?;
        let mut marks = Marks { driver: self, events: Vec::new() };
        let recorded = self.record_steps(steps, lanes, constants, &mut marks);
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the capture began above. It ends here for all lanes, also after an error.
        let ended = unsafe { sys::cuStreamEndCapture(origin, &mut graph) };
        let outcome = recorded.and_then(|()| check(ended, "cuStreamEndCapture")).and_then(|()| {
            let mut exec: CUgraphExec = std::ptr::null_mut();
            // SAFETY: the graph is complete.
            let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
            check(result, "cuGraphInstantiate").map(|()| exec)
        });
        if !graph.is_null() {
            // SAFETY: the instantiated graph no longer needs it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        outcome
    }

    fn record_steps(
        &self,
        steps: &[Step],
        lanes: &[StreamHandle],
        mut constants: Ptr,
        marks: &mut Marks<'_>,
    ) -> Result<()> {
        // By mark.
        let mut events: HashMap<u32, u64> = HashMap::default();
        let mut mark = |lane: StreamHandle| -> Result<u64> {
            let event = self.make_event(false)?;
            marks.events.push(event);
            self.record(event, lane)?;
            Ok(event)
        };
        for step in steps {
            let lane = lanes[step.lane as usize];
            match &step.task {
                Task::Launch(launch) => {
                    let mut queue = Queue::new(self, lane);
                    (queue.repeated, queue.queued) = (true, true);
                    queue.launch(launch)?;
                }
                Task::Copy { dst, src, bytes, kind } => self.queue_copy(*dst, *src, *bytes, *kind, lane)?,
                Task::Write { dst, bytes } => {
                    let count = bytes.len() as u64;
                    self.queue_copy(*dst, constants, count, CopyKind::HostToDevice, lane)?;
                    constants += count;
                }
                Task::Sleep(cycles) => self.queue_sleep(*cycles, lane)?,
                Task::Mark(number) => {
                    events.insert(*number, mark(lane)?);
                }
                Task::Wait(number) => match events.get(number) {
                    Some(&event) => self.wait_on_stream(lane, event)?,
                    None => return Err(unknown_mark()),
                },
            }
        }
        // The first lane ends the graph: it waits for all others.
        for &lane in &lanes[1..] {
            let event = mark(lane)?;
            self.wait_on_stream(lanes[0], event)?;
        }
        Ok(())
    }
}

#[cold]
fn unknown_mark() -> Error {
    driver_failed("cuda", "graph", "a lane waits for a mark that was not recorded")
}

impl FaultSlot {
    /// Lets the kernels of graphs report under the current epoch, which was unknown when they were captured.
    fn arm_graphs(&self, stream: StreamHandle) -> Result<()> {
        let (address, epoch) = (self.graph_epoch(), self.epoch());
        // SAFETY: the record is never freed.
        let result = unsafe { sys::cuMemsetD32Async(address, epoch, 1, stream as CUstream) };
        check(result, "cuMemsetD32Async")
    }
}
