//! Errors of devices, streams, events, races, memory and drivers: every code with its page, and
//! one constructor function per error.

use crate::base::stop::{self, Reason};
use crate::base::{Code, Error, ErrorKind, Result, Span};
use crate::driver::DeviceId;
use std::fmt::Display;

/// Every code of this module.
pub static CODES: &[&Code] = &[
    &BAD_DEVICE,
    &NOT_CUDA,
    &NO_BACKEND,
    &BAD_PRIORITY,
    &EVENT_WITHOUT_TIMING,
    &EVENT_NOT_RECORDED,
    &EVENT_NOT_COMPLETE,
    &EVENT_OF_ANOTHER_DEVICE,
    &EVENT_NOT_SHARED,
    &TOO_MANY_DEVICES,
    &BAD_FAILURE,
    &OUT_OF_MEMORY,
    &BAD_FRACTION,
    &BAD_ALLOC_CONF,
    &MEMORY_LIMIT,
    &DRIVER_FAILED,
    &BAD_INDEX_ON_DEVICE,
    &WAIT_INTERRUPTED,
    &ASSERTION_FAILED,
    &DEVICE_FAILED,
    &OUT_OF_TIME,
];

/// The machine has no device with this number.
pub static BAD_DEVICE: Code = Code {
    id: "E0501",
    kind: ErrorKind::Device,
    title: "no such device",
    page: "A device is `cpu`, `cuda` (the current one), `cuda:N`, or the number N, as a value or as a text. N counts \
           visible devices from 0, and `CUDA_VISIBLE_DEVICES` can hide some of them.\n\nWrite a number below \
           `cuda.device_count()`, or make more devices visible: emulated ones with `--devices N`.",
    example: "zeros(3) on cuda:999",
};

/// The host where a CUDA device is needed.
pub static NOT_CUDA: Code = Code {
    id: "E0502",
    kind: ErrorKind::Value,
    title: "expected a cuda device",
    page: "Streams, events and memory statistics belong to CUDA devices, and the host was given.\n\n\
           Name a device such as `cuda:0`, or leave the argument out to mean the current device.",
    example: "cuda.synchronize(cpu)",
};

/// The requested backend cannot be used here.
pub static NO_BACKEND: Code = Code {
    id: "E0503",
    kind: ErrorKind::Device,
    title: "backend not available",
    page: "`--backend cuda` or `RUNNEL_BACKEND=cuda` was given, and no NVIDIA driver or no device was \
           found.\n\nUse `--backend emu` to run on emulated devices, or `auto` to use whatever is \
           available. `runnel devices` shows what was probed.",
    example: "",
};

/// A stream priority above zero.
pub static BAD_PRIORITY: Code = Code {
    id: "E0504",
    kind: ErrorKind::Value,
    title: "bad stream priority",
    page: "Priorities are 0 (low), -1 (high) and lower, as in PyTorch; numbers below the driver's \
           range mean its highest priority.\n\nWrite 0 or a negative number.",
    example: "Stream(priority=1)",
};

/// `elapsed_time` of events that do not measure time.
pub static EVENT_WITHOUT_TIMING: Code = Code {
    id: "E0505",
    kind: ErrorKind::Value,
    title: "event without timing",
    page: "`elapsed_time` needs two events that were made with `enable_timing=true`. Events do not \
           measure time unless asked, because that makes them slower.\n\nMake both of them with \
           `Event(enable_timing=true)`.",
    example: "let a = Event()\nlet b = Event()\na.record()\nb.record()\na.elapsed_time(b)",
};

/// `elapsed_time` of events that were never recorded.
pub static EVENT_NOT_RECORDED: Code = Code {
    id: "E0506",
    kind: ErrorKind::Value,
    title: "event not recorded",
    page: "`elapsed_time` needs two events that were both recorded.\n\nCall `record()` on both first.",
    example: "let a = Event(enable_timing=true)\nlet b = Event(enable_timing=true)\na.elapsed_time(b)",
};

/// `elapsed_time` before the events completed.
pub static EVENT_NOT_COMPLETE: Code = Code {
    id: "E0507",
    kind: ErrorKind::Cuda,
    title: "event not complete",
    page: "`elapsed_time` was called before the device had reached both events.\n\nCall \
           `synchronize()` on the later event first.",
    example: "let a = Event(enable_timing=true)\nlet b = Event(enable_timing=true)\n\
              a.record()\ncuda.sleep(1000000000)\nb.record()\na.elapsed_time(b)",
};

/// A stream of one device records an event of another.
pub static EVENT_OF_ANOTHER_DEVICE: Code = Code {
    id: "E0508",
    kind: ErrorKind::Device,
    title: "event of another device",
    page: "An event belongs to the device of the stream that first recorded it. Streams of any device \
           may wait for it, but only streams of its own may record it again.\n\nMake one event per \
           device.",
    example: "let e = Event()\nwith device(0) { e.record() }\nwith device(1) { e.record() }",
};

/// This event has no handle for other processes.
pub static EVENT_NOT_SHARED: Code = Code {
    id: "E0509",
    kind: ErrorKind::Device,
    title: "event not shareable",
    page: "Events can be shared between processes on CUDA devices only, and only when they were made \
           with `interprocess=true`.\n\nMake the event with `Event(interprocess=true)` on a machine \
           with a CUDA device.",
    example: "Event().ipc_handle()",
};

/// Too many emulated devices.
pub static TOO_MANY_DEVICES: Code = Code {
    id: "E0511",
    kind: ErrorKind::Device,
    title: "too many devices",
    page: "`--devices` asks for more emulated devices than one process can have: each has threads of \
           its own.\n\nAsk for 64 at most.",
    example: "",
};

/// `RUNNEL_FAULT` names an unknown call.
pub static BAD_FAILURE: Code = Code {
    id: "E0514",
    kind: ErrorKind::Value,
    title: "`RUNNEL_FAULT` cannot be read",
    page: "The variable makes one driver call of emulated devices fail, to test what follows. It is a \
           number (`17`: the seventeenth call), or a kind of call and a number (`launch:3`: the third \
           launch).",
    example: "",
};

/// The device or the host's page-locked memory cannot satisfy a request.
pub static OUT_OF_MEMORY: Code = Code {
    id: "E0701",
    kind: ErrorKind::OutOfMemory,
    title: "out of memory",
    page: "A request did not fit, even after waiting for pending frees and giving back all cached \
           memory. The labels show the source lines that hold the most memory.\n\nDrop tensors that \
           are no longer needed, work in smaller batches, or use a smaller dtype. The error can be \
           caught with `try`, and the session stays usable.",
    example: "zeros(800000000 * 1GiB, dtype=u8)",
};

/// A memory fraction outside 0 to 1.
pub static BAD_FRACTION: Code = Code {
    id: "E0702",
    kind: ErrorKind::Value,
    title: "bad memory fraction",
    page: "`cuda.set_per_process_memory_fraction` takes a number from 0 to 1: the part of the device's \
           memory that this process may reserve.",
    example: "cuda.set_per_process_memory_fraction(2.0)",
};

/// `RUNNEL_ALLOC_CONF` has an unknown key or a bad value.
pub static BAD_ALLOC_CONF: Code = Code {
    id: "E0703",
    kind: ErrorKind::Value,
    title: "bad allocator setting",
    page: "`RUNNEL_ALLOC_CONF` is a list of `key:value` pairs with commas between them. It takes the keys of \
           PyTorch's `PYTORCH_ALLOC_CONF`; `docs/memory.md` says what each does. The most useful ones are \
           `expandable_segments` (true or false), `max_split_size_mb` (20 or more), \
           `roundup_power2_divisions` (a power of two, or a list such as `[256:1,512:2,>:4]`), \
           `garbage_collection_threshold` (between 0 and 1) and `per_process_memory_fraction` (from 0 to 1).",
    example: "",
};

/// The request exceeds a memory limit of the embedding program.
pub static MEMORY_LIMIT: Code = Code {
    id: "E0704",
    kind: ErrorKind::Limit,
    title: "memory limit reached",
    page: "The program that runs this script limits the bytes of device memory, host memory or \
           page-locked memory that it may use, and a request exceeds that limit.\n\nUse less memory, or \
           raise the limit where it was set.",
    example: "",
};

/// A driver call failed.
pub static DRIVER_FAILED: Code = Code {
    id: "E0801",
    kind: ErrorKind::Cuda,
    title: "driver call failed",
    page: "The device's driver refused a call; its own text is in the message.\n\nA failed wait shows the \
           launches that were in flight: their results are lost, and everything else is valid.",
    example: "",
};

/// A kernel met an index out of range.
pub static BAD_INDEX_ON_DEVICE: Code = Code {
    id: "E0802",
    kind: ErrorKind::Index,
    title: "index out of range on the device",
    page: "An index that was read from a tensor lies outside the dimension it selects from. Indices \
           are checked where they are used, on the device, so the error appears at the next wait; its \
           label shows the operation that was given the bad index.\n\nCheck the indices: from 0 to the \
           size of the dimension minus one.",
    example: "let x = zeros(4)\nprint(x[tensor([7])])",
};

/// The script has used up its time.
pub static OUT_OF_TIME: Code = Code {
    id: "E1008",
    kind: ErrorKind::Limit,
    title: "the script ran out of time",
    page: "The program that started the script limits how long it may run, and the limit was reached: in a \
           loop, in a function or an operation on something large, or in a wait for a device. A handler that \
           catches the error gets a little extra time to clean up.\n\nDo less at once, or raise the limit \
           where it was set.",
    example: "",
};

/// A wait for a device was interrupted.
pub static WAIT_INTERRUPTED: Code = Code {
    id: "E0803",
    kind: ErrorKind::Interrupted,
    title: "wait interrupted",
    page: "The host was waiting for work on a device when it was interrupted, by Ctrl-C or by the \
           program that embeds Runnel. Work that is queued on the device continues.",
    example: "",
};

/// `assert_async` of a false value.
pub static ASSERTION_FAILED: Code = Code {
    id: "E0804",
    kind: ErrorKind::Assert,
    title: "assertion failed on the device",
    page: "`assert_async` was given a condition that turned out false. It is tested on the device, so the \
           error appears at the next wait; its label shows the assertion.\n\nThe session goes on: only the \
           error was reported, nothing was stopped on the device.",
    example: "assert_async(tensor(1.0) < 0, \"the loss is negative\")\ncuda.synchronize()",
};

/// A device failed permanently.
pub static DEVICE_FAILED: Code = Code {
    id: "E0805",
    kind: ErrorKind::Cuda,
    title: "device failed",
    page: "A kernel did something that the device cannot recover from, such as reading an illegal address. \
           The driver abandons the device's context, and every later call on that device fails in the same \
           way until the process ends. Other devices and the host are not affected.\n\nThe labels show the \
           launches that were in flight when the failure was noticed: one of them failed, and the results of \
           all are lost. With `CUDA_LAUNCH_BLOCKING=1`, or inside `with launch_blocking() { }`, there is \
           only one.",
    example: "",
};

/// A device number when only `count` devices are visible. Source: `Invalid device id` of `torch.cuda`.
pub fn bad_device(index: i64, count: usize) -> Error {
    let message = format!("invalid device id {index}: the number of visible devices is {count}");
    Error::new(&BAD_DEVICE, message).help(devices_help(count))
}

/// A string that names no device.
pub fn invalid_device_string(text: &str, count: usize) -> Error {
    Error::new(&BAD_DEVICE, format!("invalid device string: `{text}`")).help(devices_help(count))
}

/// A value that is neither a device, a string nor a number.
pub fn invalid_device_type(type_name: &str, count: usize) -> Error {
    Error::new(&BAD_DEVICE, format!("invalid device: `{type_name}` is not a device, a string or a number"))
        .help(devices_help(count))
}

/// Lists the visible devices.
fn devices_help(count: usize) -> String {
    match count {
        0 => "only `cpu` is available; `--backend emu` gives emulated devices".to_string(),
        1 => "the devices are `cpu` and `cuda:0`, which is also `cuda`".to_string(),
        _ => format!("the devices are `cpu`, `cuda:0` to `cuda:{}`, and `cuda`, the current one", count - 1),
    }
}

/// `cuda.cufft_plan_cache` with a bad index.
pub fn no_plan_cache(index: i64, count: usize) -> Error {
    let text =
        format!("cufft_plan_cache: expected 0 <= device index < {count}, but got device with index {index}");
    Error::new(&BAD_DEVICE, text).help(devices_help(count))
}

/// `cuda.can_device_access_peer` with a bad second index. Source: `Invalid peer device id`.
pub fn invalid_peer_id(index: i64, count: usize) -> Error {
    Error::new(
        &BAD_DEVICE,
        format!("invalid peer device id {index}: the number of visible devices is {count}"),
    )
    .help(devices_help(count))
}

/// The host where a CUDA device is needed.
pub fn expected_cuda(got: &str) -> Error {
    Error::new(&NOT_CUDA, format!("expected a cuda device, but got: {got}"))
        .help("name a device such as `cuda:0`, or leave it out")
}

/// `--backend cuda` on a machine where it cannot run; `why` is the probe's message.
pub fn no_backend(backend: &str, why: &str) -> Error {
    Error::new(&NO_BACKEND, format!("backend `{backend}` is not available: {why}"))
        .help("use `--backend emu` for emulated devices")
}

/// `--devices` above the maximum.
pub fn too_many_devices(count: usize, most: usize) -> Error {
    Error::new(
        &TOO_MANY_DEVICES,
        format!("{count} emulated devices were requested, and at most {most} are allowed"),
    )
    .help(format!("write `--devices {most}` or less"))
}

/// A stream priority above zero.
pub fn bad_priority(priority: i64) -> Error {
    Error::new(&BAD_PRIORITY, format!("expected a stream priority of 0 or less, got {priority}"))
        .help("write 0 (low) or -1 (high)")
}

/// `elapsed_time` without timing.
pub fn event_without_timing() -> Error {
    Error::new(&EVENT_WITHOUT_TIMING, "both events must be created with `enable_timing=true`")
        .help("make them with `Event(enable_timing=true)`")
}

/// `elapsed_time` before a record.
pub fn event_not_recorded() -> Error {
    Error::new(&EVENT_NOT_RECORDED, "both events must be recorded before calculating elapsed time")
        .help("call `record()` on both events first")
}

/// `elapsed_time` before completion.
pub fn event_not_complete() -> Error {
    Error::new(&EVENT_NOT_COMPLETE, "the device has not reached both events yet")
        .help("call `synchronize()` on the later event first")
}

/// Recording on a stream of another device, or timing across devices.
pub fn event_of_another_device(event: DeviceId, other: DeviceId) -> Error {
    Error::new(
        &EVENT_OF_ANOTHER_DEVICE,
        format!("the event belongs to {event}, and this needs one of {other}"),
    )
    .help("make one event per device")
}

/// The time between events of two devices.
pub fn elapsed_across(start: DeviceId, end: DeviceId) -> Error {
    Error::new(
        &EVENT_OF_ANOTHER_DEVICE,
        format!("the start was recorded on {start} and the end on {end}, which have separate clocks"),
    )
    .help("record both events on streams of one device; for work on several, wait for all and subtract two `clock()`")
}

/// `ipc_handle` of an event that has none.
pub fn event_not_shared(why: &str) -> Error {
    Error::new(&EVENT_NOT_SHARED, format!("the event cannot be shared with another process: {why}"))
        .help("make it with `Event(interprocess=true)` on a CUDA device")
}

/// The message of [`out_of_memory`].
const WITHOUT_DETAILS: &str = "out of memory";

/// Out of memory, without details, as drivers report it. The allocator adds them.
pub fn out_of_memory() -> Error {
    Error::new(&OUT_OF_MEMORY, WITHOUT_DETAILS)
}

/// True for [`out_of_memory`].
pub fn lacks_details(error: &Error) -> bool {
    error.message() == WITHOUT_DETAILS
}

/// A request above 2^60 bytes. Source: the same message in PyTorch's allocator.
pub fn more_than_an_exabyte() -> Error {
    Error::new(&OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate more than 1EB memory")
}

/// The system refused host memory, pageable or page-locked.
pub fn host_out_of_memory(bytes: u64, pinned: bool) -> Error {
    let what = if pinned { "page-locked host memory" } else { "host memory" };
    let size = crate::base::bytes_text(bytes);
    Error::new(&OUT_OF_MEMORY, format!("out of {what}. Tried to allocate {size}"))
}

/// A request exceeds an externally set limit on `what` (`memory of cuda:0`).
pub fn memory_limit(what: &str, limit: u64, in_use: u64, bytes: u64) -> Error {
    use crate::base::bytes_text;
    let (limit, in_use, bytes) = (bytes_text(limit), bytes_text(in_use), bytes_text(bytes));
    Error::new(
        &MEMORY_LIMIT,
        format!("the limit of {limit} on {what} is reached: {in_use} are in use, and {bytes} were requested"),
    )
    .help("use less memory, or raise the limit where it was set")
}

/// A memory fraction outside 0 to 1.
pub fn bad_fraction(fraction: f64) -> Error {
    Error::new(&BAD_FRACTION, format!("invalid fraction value: {fraction:?}. Allowed range: 0~1"))
        .help("write a float from 0.0 to 1.0")
}

/// `RUNNEL_ALLOC_CONF` is wrong.
pub fn bad_alloc_conf(what: impl Into<String>) -> Error {
    Error::new(&BAD_ALLOC_CONF, what)
        .help("write `RUNNEL_ALLOC_CONF=key:value,key:value`; `runnel explain E0703` lists the keys")
}

/// A driver call failed: `driver` is `cuda`, `emu` or `cpu`; `call` is the call's name; `text` is the
/// driver's message.
pub fn driver_failed(driver: &str, call: &str, text: &str) -> Error {
    Error::new(&DRIVER_FAILED, format!("{driver} driver: `{call}` failed: {text}"))
}

/// A device failed permanently; arguments as for [`driver_failed`].
pub fn device_failed(driver: &str, call: &str, text: &str) -> Error {
    Error::new(&DEVICE_FAILED, format!("{driver} driver: `{call}` failed: {text}"))
}

/// True for errors of driver calls, whether or not the device can continue.
pub fn is_driver_failure(error: &Error) -> bool {
    std::ptr::eq(error.code(), &DRIVER_FAILED) || is_sticky(error)
}

/// True when a request failed for lack of device or host memory, or because of a limit.
pub fn is_shortage(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory || error.code().id == MEMORY_LIMIT.id
}

/// True when the device of this error can no longer be used.
pub fn is_sticky(error: &Error) -> bool {
    std::ptr::eq(error.code(), &DEVICE_FAILED)
}

/// A device-side assertion that failed; `span` is where it was launched.
pub fn assertion_failed(text: &str, span: Span) -> Error {
    let error = Error::new(&ASSERTION_FAILED, text);
    match span.is_none() {
        true => error,
        false => error.at(span, "asserted here"),
    }
}

/// A bad `RUNNEL_FAULT`.
pub fn bad_failure(text: &str) -> Error {
    let kinds = crate::driver::failure::KINDS.join("`, `");
    Error::new(&BAD_FAILURE, format!("`{text}` does not name a driver call"))
        .help(format!("write a number, or one of `{kinds}`, a colon and a number"))
}

/// The error that ends a wait or a long loop when this thread is asked to stop.
pub fn stopped() -> Result<()> {
    match stop::reason() {
        None => Ok(()),
        Some(Reason::Interrupt) => Err(wait_interrupted()),
        Some(Reason::Time) => Err(out_of_time()),
    }
}

/// [`stopped`] for long loops of the host: counts `units` of work, and checks occasionally.
#[inline]
pub fn paced(units: usize) -> Result<()> {
    if stop::is_due(units) { stopped() } else { Ok(()) }
}

/// The script has used up its time.
#[cold]
pub fn out_of_time() -> Error {
    Error::new(&OUT_OF_TIME, "the script's time limit is reached")
        .help("raise the limit on time where it was set, or do less at once")
}

/// True for the error of [`out_of_time`].
pub fn is_out_of_time(error: &Error) -> bool {
    std::ptr::eq(error.code(), &OUT_OF_TIME)
}

/// A wait for a device was interrupted.
pub fn wait_interrupted() -> Error {
    Error::new(&WAIT_INTERRUPTED, "interrupted while waiting for a device")
}

/// A kernel reported an index outside `extent`: the one at row-major `position` of its indices. `name` and
/// `span` are the launching operation's.
pub fn bad_index_on_device(
    value: impl Display,
    extent: usize,
    name: &str,
    position: u64,
    span: Span,
) -> Error {
    let message = format!("index {value} is out of range for a dimension of size {extent} in `{name}`");
    let error = Error::new(&BAD_INDEX_ON_DEVICE, message);
    let error = match span.is_none() {
        true => error,
        false => {
            error.at(span, format!("this was given the index {value}, at position {position} of the indices"))
        }
    };
    match extent {
        0 => error.help("a dimension of size 0 has no valid index"),
        n => error.help(format!("valid indices go from 0 to {}", n - 1)),
    }
}

/// The same for a launch that is no longer remembered.
pub fn bad_index_of_unknown_launch(value: i64) -> Error {
    Error::new(&BAD_INDEX_ON_DEVICE, format!("index {value} is out of range in an earlier operation"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_have_pages() {
        for (i, code) in CODES.iter().enumerate() {
            assert!(!code.page.is_empty() && !code.title.is_empty(), "{}", code.id);
            assert!(CODES[i + 1..].iter().all(|c| c.id != code.id), "{}", code.id);
        }
    }

    #[test]
    fn an_index_error_shows_the_count() {
        let error = bad_device(4, 4);
        assert_eq!(error.message(), "invalid device id 4: the number of visible devices is 4");
        let help = "the devices are `cpu`, `cuda:0` to `cuda:3`, and `cuda`, the current one";
        assert_eq!(error.help_text(), Some(help));
        assert_eq!(invalid_device_string("foo:0", 4).help_text(), Some(help));
        assert_eq!(
            bad_device(0, 0).help_text(),
            Some("only `cpu` is available; `--backend emu` gives emulated devices")
        );
    }
}
