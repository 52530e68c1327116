//! A recording as a Chrome trace, for Perfetto and `chrome://tracing`.
//!
//! A device is a process, and a stream is one of its threads; the script is the thread of process `host`.
//! Times are microseconds with three decimals, so no precision is lost and equal recordings give equal bytes.
//! Source: "Trace Event Format" of the Chromium project.

use super::{Action, ActionKind, Recording, Row};
use crate::base::{Span, quoted};
use crate::driver::DeviceId;

/// The trace file; `place` gives `file.rnl:3:7` for a span.
pub fn json(recording: &Recording, place: impl Fn(Span) -> String) -> String {
    let mut events = Vec::new();
    metadata(recording, &mut events);
    for action in &recording.actions {
        event(action, &place, &mut events);
    }
    let time = if recording.is_virtual { "virtual" } else { "real" };
    format!(
        "{{\"traceEvents\":[\n{}\n],\n\"displayTimeUnit\":\"ns\",\"otherData\":{{\"time\":\"{time}\",\"dropped\":{}}}}}\n",
        events.join(",\n"),
        recording.dropped
    )
}

/// The number of a device's process; 0 is the host's.
fn process(device: DeviceId) -> usize {
    device.cuda_index().map_or(0, |index| index + 1)
}

/// Process and thread of a row.
fn at(row: Row) -> (usize, u32) {
    match row {
        Row::Host => (0, 0),
        Row::Compiler => (0, 1),
        Row::Stream(device, stream) => (process(device), stream),
        Row::Memory(device) => (process(device), 0),
    }
}

/// The names of the rows, and their order.
fn metadata(recording: &Recording, events: &mut Vec<String>) {
    let mut name = |kind: &str, pid: usize, tid: u32, text: &str| {
        let text = quoted(text);
        events.push(format!(
            "{{\"ph\":\"M\",\"name\":\"{kind}_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{text}}}}}"
        ));
        if kind == "process" {
            events.push(format!(
                "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{pid},\"tid\":0,\"args\":{{\"sort_index\":{pid}}}}}"
            ));
        }
    };
    name("process", 0, 0, "host");
    name("thread", 0, 0, "script");
    if recording.actions.iter().any(|action| action.row == Row::Compiler) {
        name("thread", 0, 1, "compiler");
    }
    for (device, text) in &recording.devices {
        name("process", process(*device), 0, &format!("{device} ({text})"));
    }
    let mut rows: Vec<(DeviceId, u32)> = recording
        .actions
        .iter()
        .filter_map(|a| match a.row {
            Row::Stream(device, stream) => Some((device, stream)),
            _ => None,
        })
        .collect();
    rows.sort_unstable();
    rows.dedup();
    for (device, stream) in rows {
        let text = if stream == 0 { "default stream".to_string() } else { format!("stream {stream}") };
        name("thread", process(device), stream, &text);
    }
}

fn event(action: &Action, place: &impl Fn(Span) -> String, events: &mut Vec<String>) {
    let (pid, tid) = at(action.row);
    let (name, start) = (quoted(&action.name), micros(action.start));
    let category = match action.kind {
        ActionKind::Launch => "launch",
        ActionKind::Copy => "copy",
        ActionKind::Sleep => "sleep",
        ActionKind::Wait => "wait",
        ActionKind::Compile => "compile",
        ActionKind::Range | ActionKind::Span(_) | ActionKind::Mark => "nvtx",
        ActionKind::Memory => "memory",
    };
    let head = format!("\"cat\":\"{category}\",\"name\":{name},\"pid\":{pid},\"tid\":{tid}");
    match action.kind {
        ActionKind::Memory => events.push(format!(
            "{{\"ph\":\"C\",{head},\"ts\":{start},\"args\":{{\"allocated\":{}}}}}",
            action.bytes
        )),
        ActionKind::Mark => {
            let args = args(action, place);
            events.push(format!("{{\"ph\":\"i\",\"s\":\"t\",{head},\"ts\":{start},\"args\":{args}}}"));
        }
        ActionKind::Span(id) => {
            let (end, args) = (micros(action.end), args(action, place));
            events.push(format!("{{\"ph\":\"b\",{head},\"id\":{id},\"ts\":{start},\"args\":{args}}}"));
            events.push(format!("{{\"ph\":\"e\",{head},\"id\":{id},\"ts\":{end}}}"));
        }
        _ => {
            let (length, args) = (micros(action.end - action.start), args(action, place));
            events.push(format!("{{\"ph\":\"X\",{head},\"ts\":{start},\"dur\":{length},\"args\":{args}}}"));
        }
    }
}

/// The data of an action besides its times.
fn args(action: &Action, place: &impl Fn(Span) -> String) -> String {
    let mut fields = Vec::new();
    let mut places: Vec<String> = Vec::new();
    for span in &action.spans {
        let text = place(*span);
        if !text.is_empty() && !places.contains(&text) {
            places.push(text);
        }
    }
    if let Some(first) = places.first() {
        fields.push(format!("\"source\":{}", quoted(first)));
    }
    if places.len() > 1 {
        fields.push(format!("\"sources\":{}", quoted(&places.join(" "))));
    }
    if !action.shape.is_empty() {
        let extents: Vec<String> = action.shape.iter().map(usize::to_string).collect();
        fields.push(format!("\"shape\":\"[{}]\"", extents.join(", ")));
    }
    if action.bytes > 0 {
        fields.push(format!("\"bytes\":{}", action.bytes));
    }
    format!("{{{}}}", fields.join(","))
}

/// Nanoseconds as microseconds with all decimals.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
