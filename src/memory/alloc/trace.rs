//! What the allocator did, the last steps of it. Source: `torch.cuda.memory._record_memory_history`.

use crate::base::Span;
use crate::kernel::Ptr;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceEvent {
    /// What happened.
    pub action: TraceAction,
    /// The block or segment; 0 for a request that failed.
    pub address: Ptr,
    /// Bytes: as asked for, or of the segment.
    pub size: u64,
    /// The number of the stream.
    pub stream: u32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// The source that asked for the block, or for more than there was; none for memory that goes back.
    pub span: Span,
}

/// What a step was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceAction {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    /// A segment grew.
    SegmentMap,
    /// Pages of a segment went back.
    SegmentUnmap,
    /// A request failed; the driver had that many bytes left.
    OutOfMemory {
        device_free: u64,
    },
}

impl TraceAction {
    /// The word in PyTorch's traces.
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

/// The last steps, if they are recorded.
#[derive(Default)]
pub(super) struct Trace {
    limit: usize,
    events: VecDeque<TraceEvent>,
}

impl Trace {
    /// Records the last `limit` steps from now on; 0 stops, and forgets.
    pub(super) fn record(&mut self, limit: usize) {
        self.limit = limit;
        let surplus = self.events.len().saturating_sub(limit);
        self.events.drain(..surplus);
    }

    /// True when steps are recorded.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Notes a step; free of cost when none are recorded.
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
