//! A history of the allocator's latest steps. Source: `torch.cuda.memory._record_memory_history`.

use crate::base::Span;
use crate::kernel::Ptr;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceEvent {
    /// The kind of step.
    pub action: TraceAction,
    /// The block or segment; 0 for a request that failed.
    pub address: Ptr,
    /// Bytes: the requested size, or the size of the segment.
    pub size: u64,
    /// The number of the stream.
    pub stream: u32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// The source that requested the block or the additional memory; none for returned memory.
    pub span: Span,
}

/// The kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceAction {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    /// A segment grew.
    SegmentMap,
    /// Pages of a segment were returned.
    SegmentUnmap,
    /// A request failed; the driver had this many bytes left.
    OutOfMemory {
        device_free: u64,
    },
}

impl TraceAction {
    /// The kind's name in PyTorch's traces.
    pub fn name(self) -> &'static str {
        match self {
            TraceAction::Alloc => "alloc",
            TraceAction::FreeRequested => "free_requested",
            TraceAction::FreeCompleted => "free_completed",
            TraceAction::SegmentAlloc => "segment_alloc",
            TraceAction::SegmentFree => "segment_free",
            TraceAction::SegmentMap => "segment_map",
            TraceAction::SegmentUnmap => "segment_unmap",
            TraceAction::OutOfMemory { .. } => "oom",
        }
    }
}

/// The latest steps, while recording is on.
#[derive(Default)]
pub(super) struct Trace {
    limit: usize,
    events: VecDeque<TraceEvent>,
}

impl Trace {
    /// Records the last `limit` steps from now on; 0 stops recording and clears the history.
    pub(super) fn record(&mut self, limit: usize) {
        self.limit = limit;
        let surplus = self.events.len().saturating_sub(limit);
        self.events.drain(..surplus);
    }

    /// True while steps are recorded.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Records a step; no cost while recording is off.
    #[inline]
    pub(super) fn note(&mut self, action: TraceAction, address: Ptr, size: u64, stream: u32, span: Span) {
        if self.limit > 0 {
            self.push(action, address, size, stream, span);
        }
    }

    #[cold]
    fn push(&mut self, action: TraceAction, address: Ptr, size: u64, stream: u32, span: Span) {
        if self.events.len() == self.limit {
            self.events.pop_front();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        self.events.push_back(TraceEvent { action, address, size, stream, time_us, span });
    }

    /// The recorded steps, oldest first.
    pub(super) fn events(&self) -> Vec<TraceEvent> {
        self.events.iter().cloned().collect()
    }
}
