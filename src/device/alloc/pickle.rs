//! A memory snapshot as a file that PyTorch's memory viewer opens (pytorch.org/memory_viz).
//!
//! The file is a pickle of protocol 2 with dicts, lists, strings, whole numbers and booleans. Strings
//! that come again are written once.

use super::{SegmentInfo, TraceAction, TraceEvent};
use crate::base::Span;
use std::collections::HashMap;

/// Where a block was asked for: file, line, and what the viewer shows beside them.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    pub file: String,
    pub line: u32,
    pub name: String,
}

/// What the viewer is shown of one device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceMemory {
    /// Its segments.
    pub segments: Vec<SegmentInfo>,
    /// Its recorded steps.
    pub trace: Vec<TraceEvent>,
}

/// The bytes of the file for devices 0, 1 and so on; `frame` finds the place of a span.
pub fn snapshot_pickle(devices: &[DeviceMemory], frame: impl Fn(Span) -> Option<Frame>) -> Vec<u8> {
    let mut w = Writer { bytes: vec![PROTO, 2], known: HashMap::new(), frame: &frame };
    w.dict(|w| {
        w.text("segments");
        let segments = devices.iter().enumerate().flat_map(|(i, d)| d.segments.iter().map(move |s| (i, s)));
        w.list(segments, |w, (device, segment)| w.segment(device, segment));
        w.text("device_traces");
        w.list(devices, |w, device| w.list(&device.trace, |w, event| w.event(event)));
        w.text("allocator_settings");
        w.dict(|_| {});
        w.text("external_annotations");
        w.list(std::iter::empty::<()>(), |_, ()| {});
    });
    w.bytes.push(STOP);
    w.bytes
}

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const BINUNICODE: u8 = b'X';
const BINPUT: u8 = b'q';
const BINGET: u8 = b'h';
const LONG_BINPUT: u8 = b'r';
const LONG_BINGET: u8 = b'j';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const TUPLE2: u8 = 0x86;

/// Items that one `APPENDS` adds; readers take them as arguments of one call.
const BATCH: usize = 1000;

struct Writer<'a> {
    bytes: Vec<u8>,
    /// Strings written so far, by their number.
    known: HashMap<String, u32>,
    frame: &'a dyn Fn(Span) -> Option<Frame>,
}

impl Writer<'_> {
    fn dict(&mut self, entries: impl FnOnce(&mut Self)) {
        self.bytes.extend([EMPTY_DICT, MARK]);
        entries(self);
        self.bytes.push(SETITEMS);
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        self.bytes.push(EMPTY_LIST);
        let mut open = 0;
        for item in items {
            if open == 0 {
                self.bytes.push(MARK);
            }
            write(self, item);
            open += 1;
            if open == BATCH {
                self.bytes.push(APPENDS);
                open = 0;
            }
        }
        if open > 0 {
            self.bytes.push(APPENDS);
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(&number) = self.known.get(text) {
            match u8::try_from(number) {
                Ok(byte) => self.bytes.extend([BINGET, byte]),
                Err(_) => {
                    self.bytes.push(LONG_BINGET);
                    self.bytes.extend(number.to_le_bytes());
                }
            }
            return;
        }
        let number = self.known.len() as u32;
        self.known.insert(text.to_string(), number);
        self.bytes.push(BINUNICODE);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        match u8::try_from(number) {
            Ok(byte) => self.bytes.extend([BINPUT, byte]),
            Err(_) => {
                self.bytes.push(LONG_BINPUT);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    fn number(&mut self, value: u64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.bytes.push(BININT);
                self.bytes.extend(small.to_le_bytes());
            }
            Err(_) => {
                // Nine bytes keep the sign bit clear.
                self.bytes.extend([LONG1, if value >> 63 == 0 { 8 } else { 9 }]);
                self.bytes.extend(value.to_le_bytes());
                if value >> 63 == 1 {
                    self.bytes.push(0);
                }
            }
        }
    }

    fn entry_text(&mut self, key: &str, value: &str) {
        self.text(key);
        self.text(value);
    }

    fn entry(&mut self, key: &str, value: u64) {
        self.text(key);
        self.number(value);
    }

    fn frames(&mut self, span: Span) {
        self.text("frames");
        let frame = if span.is_none() { None } else { (self.frame)(span) };
        self.list(frame, |w, frame| {
            w.dict(|w| {
                w.entry_text("name", &frame.name);
                w.entry_text("filename", &frame.file);
                w.entry("line", frame.line.into());
            });
        });
    }

    fn segment(&mut self, device: usize, segment: &SegmentInfo) {
        self.dict(|w| {
            w.entry("device", device as u64);
            w.entry("address", segment.address);
            w.entry("total_size", segment.total_size);
            w.entry("allocated_size", segment.allocated_size);
            w.entry("active_size", segment.active_size);
            w.entry("requested_size", segment.requested_size);
            w.entry("stream", segment.stream.into());
            w.entry_text("segment_type", segment.pool.name());
            w.text("segment_pool_id");
            w.number(0);
            w.number(segment.owner.number());
            w.bytes.push(TUPLE2);
            w.text("is_expandable");
            w.bytes.push(if segment.is_expandable { NEWTRUE } else { NEWFALSE });
            w.frames(Span::NONE);
            w.text("blocks");
            w.list(&segment.blocks, |w, block| {
                w.dict(|w| {
                    w.entry("address", block.address);
                    w.entry("size", block.size);
                    w.entry("requested_size", block.requested_size);
                    w.entry_text("state", block.state.name());
                    w.frames(block.span);
                });
            });
        });
    }

    fn event(&mut self, event: &TraceEvent) {
        self.dict(|w| {
            w.entry_text("action", event.action.name());
            w.entry("addr", event.address);
            w.entry("size", event.size);
            w.entry("stream", event.stream.into());
            w.entry("time_us", event.time_us);
            if let TraceAction::OutOfMemory { device_free } = event.action {
                w.entry("device_free", device_free);
            }
            w.frames(event.span);
        });
    }
}
