//! Ranges and marks that scripts name, for profiles and for NVIDIA's tools.

use super::ActionKind;
use crate::driver::nvtx;
use crate::plan::Runtime;
use foldhash::HashMap;
use std::borrow::Cow;

/// The open ranges of a session.
#[derive(Default)]
pub(super) struct Ranges {
    /// Number of ranges pushed and not popped.
    depth: i64,
    /// From a script's range number to the tool's.
    started: HashMap<u64, u64>,
    last: u64,
}

impl Runtime {
    /// Begins a nested range; returns its depth, from 0. Source: `nvtx.range_push`.
    pub fn range_push(&mut self, name: &str) -> i64 {
        nvtx::push(name);
        if let Some(trace) = &mut self.records.trace {
            let now = trace.clock.now();
            trace.ranges.push((name.to_string(), now, self.span));
        }
        self.records.ranges.depth += 1;
        self.records.ranges.depth - 1
    }

    /// Ends the innermost range; returns its depth, or -1 if no range is open. Source: `nvtx.range_pop`.
    pub fn range_pop(&mut self) -> i64 {
        if self.records.ranges.depth == 0 {
            return -1;
        }
        nvtx::pop();
        self.records.ranges.depth -= 1;
        if let Some(trace) = &mut self.records.trace
            && let Some((name, start, span)) = trace.ranges.pop()
        {
            let now = trace.clock.now();
            trace.push_host(ActionKind::Range, Cow::Owned(name), start, now, span);
        }
        self.records.ranges.depth
    }

    /// Begins a range that may overlap others; returns its number. Source: `nvtx.range_start`.
    pub fn range_start(&mut self, name: &str) -> u64 {
        let tool = nvtx::start(name);
        self.records.ranges.last += 1;
        let number = self.records.ranges.last;
        self.records.ranges.started.insert(number, tool);
        if let Some(trace) = &mut self.records.trace {
            let now = trace.clock.now();
            trace.spans.push((number, name.to_string(), now, self.span));
        }
        number
    }

    /// Ends a range of [`Runtime::range_start`]; false for an unknown number.
    pub fn range_end(&mut self, number: u64) -> bool {
        let Some(tool) = self.records.ranges.started.remove(&number) else { return false };
        nvtx::end(tool);
        if let Some(trace) = &mut self.records.trace
            && let Some(at) = trace.spans.iter().position(|span| span.0 == number)
        {
            let (_, name, start, span) = trace.spans.remove(at);
            let now = trace.clock.now();
            trace.push_host(ActionKind::Span(number), Cow::Owned(name), start, now, span);
        }
        true
    }

    /// Records a moment. Source: `nvtx.mark`.
    pub fn mark(&mut self, name: &str) {
        nvtx::mark(name);
        if let Some(trace) = &mut self.records.trace {
            let now = trace.clock.now();
            trace.push_host(ActionKind::Mark, Cow::Owned(name.to_string()), now, now, self.span);
        }
    }
}
