//! Recorded work: the contents of a capture, from which drivers make graphs.
//!
//! A capture is data. While a stream is captured, nothing is queued on it; its work is recorded as [`Step`]s
//! in order of submission. So allocations, compilations and waits of other streams continue as usual, and a
//! failed capture leaves no trace in the driver.
//!
//! A step runs on a *lane*: lane 0 is the stream on which the capture began, the others are streams that
//! joined it. Only marks order lanes.

use crate::driver::CopyKind;
use crate::kernel::{Launch, Ptr};
use std::sync::Arc;

/// A driver's graph; never 0.
pub type GraphHandle = u64;

/// One step of recorded work.
///
/// Invariant, over the steps of a graph: a mark is recorded once and before any wait for it, and the first
/// step of every lane except 0 is a wait.
#[derive(Clone)]
pub struct Step {
    /// The lane on which it runs.
    pub lane: u32,
    /// The task.
    pub task: Task,
}

/// The task of a recorded step.
#[derive(Clone)]
pub enum Task {
    /// Runs a program.
    Launch(Box<Launch>),
    /// Copies bytes, as [`Driver::copy`](crate::driver::Driver::copy); host memory is pinned.
    Copy { dst: Ptr, src: Ptr, bytes: u64, kind: CopyKind },
    /// Copies bytes stored in the graph to the device.
    Write { dst: Ptr, bytes: Arc<[u8]> },
    /// Keeps its lane busy for approximately this many cycles.
    Sleep(u64),
    /// A point that lanes can wait for.
    Mark(u32),
    /// Later work on this lane runs after that point.
    Wait(u32),
}

impl std::fmt::Display for Step {
    /// `lane 0: add+mul [256, 512]`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lane {}: ", self.lane)?;
        match &self.task {
            Task::Launch(launch) => {
                let label = &launch.program.label;
                let name = if label.is_empty() { "copy" } else { label };
                write!(f, "{name} {:?}", launch.shape.as_slice())
            }
            Task::Copy { bytes, kind, .. } => {
                let kind = match kind {
                    CopyKind::HostToDevice => "to the device",
                    CopyKind::DeviceToHost => "to the host",
                    _ => "within the device",
                };
                write!(f, "copy {bytes} bytes {kind}")
            }
            Task::Write { bytes, .. } => write!(f, "write {} bytes", bytes.len()),
            Task::Sleep(cycles) => write!(f, "sleep {cycles} cycles"),
            Task::Mark(number) => write!(f, "mark {number}"),
            Task::Wait(number) => write!(f, "wait for mark {number}"),
        }
    }
}

impl Step {
    /// The host memory that it takes, without programs, which are shared.
    pub fn host_bytes(&self) -> usize {
        let beside = match &self.task {
            Task::Launch(launch) => launch.host_bytes(),
            Task::Write { bytes, .. } => bytes.len(),
            _ => 0,
        };
        size_of::<Step>() + beside
    }
}

impl Task {
    /// True for steps that need work by a device.
    pub fn is_work(&self) -> bool {
        !matches!(self, Task::Mark(_) | Task::Wait(_))
    }

    /// Elements that are moved or computed.
    pub fn elements(&self) -> usize {
        match self {
            Task::Launch(launch) => {
                let kind = &launch.program.kind;
                let computed = kind.elements(launch).saturating_mul(kind.fused() as u64);
                let all = computed.saturating_add(kind.bytes(launch) / 4);
                usize::try_from(all).unwrap_or(usize::MAX).saturating_add(kind.work(&launch.shape))
            }
            Task::Copy { bytes, .. } => usize::try_from(*bytes / 4).unwrap_or(usize::MAX),
            Task::Write { bytes, .. } => bytes.len() / 4,
            Task::Sleep(_) | Task::Mark(_) | Task::Wait(_) => 0,
        }
    }
}
