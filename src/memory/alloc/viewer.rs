//! A memory snapshot as a file for PyTorch's memory viewer (pytorch.org/memory_viz).
//!
//! This module defines the content of the file; `files::pickle` encodes it.

use super::{SegmentInfo, TraceAction, TraceEvent};
use crate::base::Span;
use crate::files::pickle::Pickle;

/// The position of a request: file, line, and the text that the viewer shows beside them.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    pub file: String,
    pub line: u32,
    pub name: String,
}

/// The memory state of one device, for the viewer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceMemory {
    /// Its segments.
    pub segments: Vec<SegmentInfo>,
    /// Its recorded steps.
    pub trace: Vec<TraceEvent>,
}

/// The file's bytes for devices 0, 1 and so on; `frame` maps a span to its position.
pub fn snapshot_pickle(devices: &[DeviceMemory], frame: impl Fn(Span) -> Option<Frame>) -> Vec<u8> {
    let w = Viewer { frame: &frame };
    Pickle::of(|p| {
        p.dict(|p| {
            p.text("segments");
            let segments =
                devices.iter().enumerate().flat_map(|(i, d)| d.segments.iter().map(move |s| (i, s)));
            p.list(segments, |p, (device, segment)| w.segment(p, device, segment));
            p.text("device_traces");
            p.list(devices, |p, device| p.list(&device.trace, |p, event| w.event(p, event)));
            p.text("allocator_settings");
            p.dict(|_| {});
            p.text("external_annotations");
            p.list(std::iter::empty::<()>(), |_, ()| {});
        });
    })
}

/// Builds the content of the file.
struct Viewer<'a> {
    frame: &'a dyn Fn(Span) -> Option<Frame>,
}

impl Viewer<'_> {
    fn frames(&self, p: &mut Pickle, span: Span) {
        p.text("frames");
        let frame = if span.is_none() { None } else { (self.frame)(span) };
        p.list(frame, |p, frame| {
            p.dict(|p| {
                p.entry_text("name", &frame.name);
                p.entry_text("filename", &frame.file);
                p.entry("line", frame.line.into());
            });
        });
    }

    fn segment(&self, p: &mut Pickle, device: usize, segment: &SegmentInfo) {
        p.dict(|p| {
            p.entry("device", device as u64);
            p.entry("address", segment.address);
            p.entry("total_size", segment.total_size);
            p.entry("allocated_size", segment.allocated_size);
            p.entry("active_size", segment.active_size);
            p.entry("requested_size", segment.requested_size);
            p.entry("stream", segment.stream.into());
            p.entry_text("segment_type", segment.pool.name());
            p.text("segment_pool_id");
            p.pair(0, segment.owner.number());
            p.text("is_expandable");
            p.flag(segment.is_expandable);
            self.frames(p, Span::NONE);
            p.text("blocks");
            p.list(&segment.blocks, |p, block| {
                p.dict(|p| {
                    p.entry("address", block.address);
                    p.entry("size", block.size);
                    p.entry("requested_size", block.requested_size);
                    p.entry_text("state", block.state.name());
                    self.frames(p, block.span);
                });
            });
        });
    }

    fn event(&self, p: &mut Pickle, event: &TraceEvent) {
        p.dict(|p| {
            p.entry_text("action", event.action.name());
            p.entry("addr", event.address);
            p.entry("size", event.size);
            p.entry("stream", event.stream.into());
            p.entry("time_us", event.time_us);
            if let TraceAction::OutOfMemory { device_free } = event.action {
                p.entry("device_free", device_free);
            }
            self.frames(p, event.span);
        });
    }
}
