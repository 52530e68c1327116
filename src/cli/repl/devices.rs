//! Memory and streams of the devices in use, as tables.

use crate::base::{Result, bytes_text};
use crate::cli::table;
use crate::driver::DeviceId;
use crate::library::device::StreamObject;
use crate::stream::Stream;
use crate::vm::{Value, Vm};
use std::sync::Arc;

/// Maximum number of lines per device.
const LINES: usize = 5;

/// `:mem`
pub fn memory(vm: &mut Vm) -> Result<String> {
    vm.flush()?;
    let mut rows = vec![["device", "allocated", "reserved", "peak", "free on the device"].map(String::from)];
    let mut held = String::new();
    let opened: Vec<_> = vm.rt.machine().opened().cloned().collect();
    for device in opened {
        let stats = device.stats();
        let (free, total) = device.mem_get_info()?;
        let figures = match device.id() {
            // Host memory is not a cache.
            DeviceId::Cpu => [bytes_text(device.memory_allocated()), String::new(), String::new()],
            _ => [
                stats.allocated_bytes.all().current,
                stats.reserved_bytes.all().current,
                stats.allocated_bytes.all().peak,
            ]
            .map(bytes_text),
        };
        let [allocated, reserved, peak] = figures;
        let free = format!("{} of {}", bytes_text(free), bytes_text(total));
        rows.push([device.id().to_string(), allocated, reserved, peak, free]);
        let holders = device.holders(LINES);
        let lines = holders.into_iter().map(|(span, bytes, blocks)| {
            let tensors = if blocks == 1 { "1 tensor".to_string() } else { format!("{blocks} tensors") };
            let source = vm.sources.snippet(span).lines().next().unwrap_or("").trim().to_string();
            [format!("  {}", bytes_text(bytes)), tensors, vm.sources.place(span), source]
        });
        let lines: Vec<[String; 4]> = lines.collect();
        if !lines.is_empty() {
            held += &format!("\nmost of {} is held by\n{}", device.id(), table::aligned(&lines));
        }
    }
    Ok(match rows.len() {
        1 => "no device is in use\n".to_string(),
        _ => table::aligned(&rows) + &held,
    })
}

/// `:streams`
pub fn streams(vm: &mut Vm) -> Result<String> {
    let mut rows = vec![["  device", "stream", "name", "priority", "state"].map(String::from)];
    let opened: Vec<_> = vm.rt.machine().opened().cloned().collect();
    for device in opened {
        let current = vm.rt.current_stream(device.id())?;
        for stream in device.streams() {
            let mark = if *stream == *current { '*' } else { ' ' };
            let number = if stream.is_default() { "default".to_string() } else { stream.id().to_string() };
            let state = if vm.rt.query_stream(&stream)? { "idle" } else { "busy" };
            let device = format!("{mark} {}", device.id());
            let names = names(vm, &stream).join(", ");
            rows.push([device, number, names, stream.priority().to_string(), state.to_string()]);
        }
    }
    Ok(match rows.len() {
        1 => "no device is in use\n".to_string(),
        _ => table::aligned(&rows),
    })
}

/// The names of a stream in the session.
fn names(vm: &Vm, stream: &Arc<Stream>) -> Vec<String> {
    let is_it = |value: &Value| match value {
        Value::Object(handle) => {
            handle.get().as_any().downcast_ref::<StreamObject>().is_some_and(|s| *s.0 == **stream)
        }
        _ => false,
    };
    let all = vm.globals().into_iter().filter(|(name, value)| &**name != "_" && is_it(value));
    let mut names: Vec<String> = all.map(|(name, _)| name.to_string()).collect();
    names.sort();
    names
}
