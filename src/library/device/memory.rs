//! Memory: statistics, caches, limits.

use super::{DEVICE, SELF, cuda_device, device_of, int};
use crate::base::{Result, Span};
use crate::device::Device;
use crate::driver::{DeviceId, error};
use crate::library::files::open::put;
use crate::library::io::allowed;
use crate::memory::{Frame, SegmentInfo};
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::{Dict, Key, NativeDef, Value, Values, Vm};
use std::sync::Arc;

/// Maximum number of recorded allocator events; an event takes 56 bytes.
const MOST_STEPS: usize = 10_000_000;

const ALONE: Signature = Signature { params: &[SELF] };
const OF_DEVICE: Signature = Signature { params: &[SELF, DEVICE] };

/// The device of a memory query. Pending work is submitted first, so that it is counted.
fn queried(vm: &mut Vm, args: &[Value]) -> Result<Arc<Device>> {
    let device = cuda_device(vm, &args[0], &args[1])?;
    vm.rt.flush()?;
    Ok(device)
}

fn dict(entries: impl IntoIterator<Item = (String, i64)>) -> Result<Value> {
    let dict = Dict::empty();
    for (key, value) in entries {
        dict.insert(Key::new(&Value::str(key))?, Value::Int(value))?;
    }
    Ok(Value::dict(dict))
}

fn stat(vm: &mut Vm, args: &[Value], read: fn(&crate::memory::Stats) -> u64) -> Result<Value> {
    Ok(int(read(&queried(vm, args)?.stats())))
}

/// Writes the memory of all devices for PyTorch's memory viewer.
fn write_snapshot(vm: &mut Vm, path: &str) -> Result<Value> {
    vm.rt.flush()?;
    let sources = &vm.sources;
    let frame = |span: Span| {
        let (id, (line, _)) = (sources.find(span)?, sources.line_column(span)?);
        let text = sources.snippet(span).lines().next().unwrap_or("").chars().take(80).collect();
        Some(Frame { file: sources.name(id).to_string(), line: line as u32, name: text })
    };
    let bytes = vm.rt.machine().snapshot_pickle(frame);
    put(path, &bytes).map(|()| Value::None)
}

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "memory_allocated",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the bytes that live tensors occupy on a device.\n\nSource: `torch.cuda.memory_allocated`.",
        example: "let before = cuda.memory_allocated()\nlet x = empty(256)\nassert(cuda.memory_allocated() == before + 1024)",
        run: |vm, args| match vm.rt.machine().device_count() {
            0 => Ok(Value::Int(0)),
            _ => Ok(int(queried(vm, args)?.memory_allocated())),
        },
    },
    NativeDef {
        name: "max_memory_allocated",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the largest number of bytes that tensors have occupied since the start or the last `reset_peak_memory_stats`.\n\nSource: `torch.cuda.max_memory_allocated`.",
        example: "assert(cuda.max_memory_allocated() >= cuda.memory_allocated())",
        run: |vm, args| stat(vm, args, |s| s.allocated_bytes.all().peak),
    },
    NativeDef {
        name: "memory_reserved",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the bytes that the caching allocator holds, used or not.\n\nSource: `torch.cuda.memory_reserved`.",
        example: "let x = empty(256)\nassert(cuda.memory_reserved() >= cuda.memory_allocated())",
        run: |vm, args| stat(vm, args, |s| s.reserved_bytes.all().current),
    },
    NativeDef {
        name: "max_memory_reserved",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the largest number of bytes that the caching allocator has held.\n\nSource: `torch.cuda.max_memory_reserved`.",
        example: "assert(cuda.max_memory_reserved() >= cuda.memory_reserved())",
        run: |vm, args| stat(vm, args, |s| s.reserved_bytes.all().peak),
    },
    NativeDef {
        name: "memory_cached",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "The old name of `memory_reserved`; warns once.\n\nSource: `torch.cuda.memory_cached`.",
        example: "assert(cuda.memory_cached() == cuda.memory_reserved())",
        run: |vm, args| {
            vm.rt.warn_deprecated("`memory_cached` is deprecated", "write `memory_reserved`");
            stat(vm, args, |s| s.reserved_bytes.all().current)
        },
    },
    NativeDef {
        name: "max_memory_cached",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "The old name of `max_memory_reserved`; warns once.\n\nSource: `torch.cuda.max_memory_cached`.",
        example: "assert(cuda.max_memory_cached() == cuda.max_memory_reserved())",
        run: |vm, args| {
            vm.rt.warn_deprecated("`max_memory_cached` is deprecated", "write `max_memory_reserved`");
            stat(vm, args, |s| s.reserved_bytes.all().peak)
        },
    },
    NativeDef {
        name: "reset_peak_memory_stats",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Sets every peak to the current figure.\n\nSource: `torch.cuda.reset_peak_memory_stats`.",
        example: "cuda.reset_peak_memory_stats()\nassert(cuda.max_memory_allocated() == cuda.memory_allocated())",
        run: |vm, args| {
            queried(vm, args)?.reset_peak();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "reset_max_memory_allocated",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Another name of `reset_peak_memory_stats`; warns once.\n\nSource: \
              `torch.cuda.reset_max_memory_allocated`.",
        example: "cuda.reset_max_memory_allocated()\nassert(cuda.max_memory_allocated() == cuda.memory_allocated())",
        run: |vm, args| {
            vm.rt.warn_deprecated(
                "`reset_max_memory_allocated` is deprecated",
                "write `reset_peak_memory_stats`",
            );
            queried(vm, args)?.reset_peak();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "reset_max_memory_cached",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Another name of `reset_peak_memory_stats`; warns once.\n\nSource: `torch.cuda.reset_max_memory_cached`.",
        example: "cuda.reset_max_memory_cached()\nassert(cuda.max_memory_reserved() == cuda.memory_reserved())",
        run: |vm, args| {
            vm.rt.warn_deprecated(
                "`reset_max_memory_cached` is deprecated",
                "write `reset_peak_memory_stats`",
            );
            queried(vm, args)?.reset_peak();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "reset_accumulated_memory_stats",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Sets every accumulated figure (`allocated`, `freed`, the counters) to 0; current and peak stay.\n\nSource: `torch.cuda.reset_accumulated_memory_stats`.",
        example: "cuda.reset_accumulated_memory_stats()\nassert(cuda.memory_stats()[\"num_ooms\"] == 0)",
        run: |vm, args| {
            queried(vm, args)?.reset_accumulated();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "memory_stats",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns a dict of the caching allocator's figures, with every key that PyTorch documents: `allocation`, `segment`, `active`, `inactive_split` and their `_bytes`, each for `all`, `small_pool`, `large_pool`, each `current`, `peak`, `allocated`, `freed`; and the counters.\n\nSource: `torch.cuda.memory_stats`.",
        example: "let x = empty(256)\nassert(cuda.memory_stats()[\"allocated_bytes.all.current\"] >= 1024)",
        run: |vm, args| {
            // An unused device has no figures, and is not opened for the query.
            if vm.rt.machine().device_count() == 0 {
                return dict([]);
            }
            dict(queried(vm, args)?.stats().entries())
        },
    },
    NativeDef {
        name: "memory_summary",
        receiver: "device",
        signature: Signature {
            params: &[SELF, DEVICE, Param::or("abbreviated", Kind::Bool, Default::Bool(false))],
        },
        doc: "Returns the figures of `memory_stats` as a readable table.\n\nSource: `torch.cuda.memory_summary`.",
        example: "print(cuda.memory_summary(abbreviated=true))",
        run: |vm, args| {
            let abbreviated = matches!(args[2], Value::Bool(true));
            Ok(Value::str(queried(vm, args)?.summary(abbreviated)))
        },
    },
    NativeDef {
        name: "record_memory_history",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("steps", Kind::Int)] },
        doc: "Records the last `steps` steps of every device's allocator from now on, for `memory_snapshot`; 0 stops and discards them.\n\nSource: `torch.cuda.memory._record_memory_history`.",
        example: "cuda.record_memory_history(1000)\nlet x = empty(256)\ncuda.record_memory_history(0)",
        run: |vm, args| {
            let steps = args[1].as_int().unwrap_or(0);
            let Ok(steps) = usize::try_from(steps) else {
                return Err(crate::ops::error::wrong_argument(1, "a number of steps, 0 or more"));
            };
            vm.rt.machine().record_history(steps.min(MOST_STEPS));
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "memory_snapshot",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE, Param::or("file", Kind::Str, Default::None)] },
        doc: "Returns the allocator's segments as a list of records, each with its blocks: `address`, `total_size`, \
              `allocated_size`, `active_size`, `requested_size`, `stream`, `segment_type`, `segment_pool_id`, \
              `is_expandable`, `blocks` (`address`, `size`, `requested_size`, `state`, `line`). With `file` (or a name \
              that ends in `.pickle`) the snapshot of all devices is written to that file, with the steps that \
              `record_memory_history` has recorded: PyTorch's memory viewer opens it.\n\nSource: \
              `torch.cuda.memory_snapshot`.",
        example: "let x = empty(256)\nassert(len(cuda.memory_snapshot()) >= 1)",
        run: |vm, args| {
            let named = args[1].as_str().is_some_and(|text| text.ends_with(".pickle"));
            let file = if named { Some(&args[1]) } else { args.get(2).filter(|f| f.as_str().is_some()) };
            if let Some(file) = file {
                let path = allowed(vm, file)?;
                return write_snapshot(vm, &path);
            }
            let segments = queried(vm, args)?.snapshot();
            Ok(segment_records(vm, segments))
        },
    },
    NativeDef {
        name: "empty_cache",
        receiver: "device",
        signature: ALONE,
        doc: "Returns all cached memory that no tensor uses to the driver, on every device. Unreachable reference cycles are freed first.\n\nSource: `torch.cuda.empty_cache`.",
        example: "let x = empty(1024)\nx = none\ncuda.empty_cache()",
        run: |vm, _| {
            vm.collect_cycles();
            vm.rt.flush()?;
            vm.rt.release_sorted();
            let opened: Vec<Arc<Device>> = vm.rt.machine().opened().cloned().collect();
            opened.iter().try_for_each(|device| device.empty_cache()).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "set_per_process_memory_fraction",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("fraction", Kind::Any), DEVICE] },
        doc: "Limits the allocator to a fraction (0 to 1) of the device's memory; a request beyond it is an out-of-memory error.\n\nSource: `torch.cuda.set_per_process_memory_fraction`.",
        example: "cuda.set_per_process_memory_fraction(0.5)\ncuda.set_per_process_memory_fraction(1.0)",
        run: |vm, args| {
            let device = cuda_device(vm, &args[0], &args[2])?;
            let Value::Float(fraction) = args[1] else {
                return Err(crate::ops::error::wrong_argument(1, "a `float` as the fraction"));
            };
            device.set_fraction(fraction).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "get_per_process_memory_fraction",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the limit that `set_per_process_memory_fraction` has set; 1 by default.\n\nSource: \
              `torch.cuda.get_per_process_memory_fraction`.",
        example: "assert(cuda.get_per_process_memory_fraction() == 1.0)",
        run: |vm, args| Ok(Value::Float(cuda_device(vm, &args[0], &args[1])?.fraction())),
    },
    NativeDef {
        name: "mem_get_info",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns `(free, total)` bytes of a device as the driver sees them.\n\nSource: `torch.cuda.mem_get_info`.",
        example: "let (free, total) = cuda.mem_get_info()\nassert(free <= total)",
        run: |vm, args| {
            let (free, total) = queried(vm, args)?.mem_get_info()?;
            Ok(Value::tuple(vec![int(free), int(total)]))
        },
    },
    NativeDef {
        name: "list_gpu_processes",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns a string that lists this process and the bytes it holds on a device.\n\nSource: `torch.cuda.list_gpu_processes`.",
        example: "print(cuda.list_gpu_processes())",
        run: |vm, args| {
            let device = queried(vm, args)?;
            let used = device.stats().reserved_bytes.all().current;
            let index = device.id().cuda_index().unwrap_or(0);
            let text = crate::base::bytes_text(used);
            Ok(Value::str(format!("GPU:{index}\nprocess {:>10} uses {text}", std::process::id())))
        },
    },
    NativeDef {
        name: "host_memory_stats",
        receiver: "device",
        signature: ALONE,
        doc: "Returns a dict of the figures of the pinned host memory's cache, with every key that PyTorch documents: `allocations` and `allocated_bytes` (taken from the system), `active_requests` and `active_bytes` (in use), each `current`, `peak`, `allocated`, `freed`; `num_host_alloc`, `num_host_free`; `host_alloc_time` and `host_free_time` in microseconds, each `total`, `max`, `min`, `count`, `avg`. Sizes are rounded up to a power of two.\n\nSource: `torch.cuda.host_memory_stats`.",
        example: "let x = (zeros(10) on cpu).pin_memory()\nassert(cuda.host_memory_stats()[\"allocations.current\"] >= 1)",
        run: |vm, _| {
            vm.rt.flush()?;
            dict(vm.rt.machine().pinned_stats().entries())
        },
    },
    NativeDef {
        name: "reset_peak_host_memory_stats",
        receiver: "device",
        signature: ALONE,
        doc: "Sets every peak of `host_memory_stats` to the current figure.\n\nSource: `torch.cuda.reset_peak_host_memory_stats`.",
        example: "cuda.reset_peak_host_memory_stats()\nlet s = cuda.host_memory_stats()\nassert(s[\"allocations.peak\"] == s[\"allocations.current\"])",
        run: |vm, _| {
            vm.rt.machine().reset_pinned_peak();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "reset_accumulated_host_memory_stats",
        receiver: "device",
        signature: ALONE,
        doc: "Sets every accumulated figure of `host_memory_stats` (`allocated`, `freed`, counters, times) to 0; current and peak stay.\n\nSource: `torch.cuda.reset_accumulated_host_memory_stats`.",
        example: "cuda.reset_accumulated_host_memory_stats()\nassert(cuda.host_memory_stats()[\"num_host_alloc\"] == 0)",
        run: |vm, _| {
            vm.rt.machine().reset_pinned_accumulated();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "empty_host_cache",
        receiver: "device",
        signature: ALONE,
        doc: "Returns all cached pinned memory that nothing uses to the system.",
        example: "cuda.empty_host_cache()",
        run: |vm, _| {
            vm.rt.flush()?;
            vm.rt.machine().empty_pinned_cache().map(|()| Value::None)
        },
    },
    NativeDef {
        name: "caching_allocator_alloc",
        receiver: "device",
        signature: Signature {
            params: &[
                SELF,
                Param::new("size", Kind::Int),
                DEVICE,
                Param::or("stream", Kind::Stream, Default::None),
            ],
        },
        doc: "Takes `size` bytes from the caching allocator and returns their address; `caching_allocator_delete` frees them.\n\nSource: `torch.cuda.caching_allocator_alloc`.",
        example: "let p = cuda.caching_allocator_alloc(1024)\ncuda.caching_allocator_delete(p)",
        run: |vm, args| {
            let size = args[1].as_int().unwrap_or(-1);
            let Ok(size) = u64::try_from(size) else {
                return Err(crate::ops::error::wrong_argument(1, "a size of 0 bytes or more"));
            };
            let stream = match &args[3] {
                Value::None => {
                    let own = device_of(vm, &args[0], vm.rt.current_cuda())?;
                    let id = device_of(vm, &args[2], own)?;
                    if id == DeviceId::Cpu {
                        return Err(error::expected_cuda("cpu"));
                    }
                    vm.rt.current_stream(id)?
                }
                value => super::streams::stream_of(value, 3)?,
            };
            vm.rt.raw_alloc(size, &stream).map(int)
        },
    },
    NativeDef {
        name: "caching_allocator_delete",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("address", Kind::Int)] },
        doc: "Returns memory of `caching_allocator_alloc`.\n\nSource: `torch.cuda.caching_allocator_delete`.",
        example: "let p = cuda.caching_allocator_alloc(1024)\ncuda.caching_allocator_delete(p)",
        run: |vm, args| match vm.rt.raw_free(args[1].as_int().unwrap_or(-1) as u64) {
            true => Ok(Value::None),
            false => Err(crate::ops::error::wrong_argument(1, "an address from `caching_allocator_alloc`")),
        },
    },
];

/// Segments as records.
pub(super) fn segment_records(vm: &Vm, segments: Vec<SegmentInfo>) -> Value {
    let record = |s: SegmentInfo| {
        let blocks = s.blocks.iter().map(|b| {
            Value::record([
                ("address", int(b.address)),
                ("size", int(b.size)),
                ("requested_size", int(b.requested_size)),
                ("state", Value::str(b.state.name())),
                ("line", line(vm, b.span)),
            ])
        });
        Value::record([
            ("address", int(s.address)),
            ("total_size", int(s.total_size)),
            ("allocated_size", int(s.allocated_size)),
            ("active_size", int(s.active_size)),
            ("requested_size", int(s.requested_size)),
            ("stream", Value::Int(i64::from(s.stream))),
            ("segment_type", Value::str(s.pool.name())),
            ("segment_pool_id", super::pools::pool_id(s.owner.number())),
            ("is_expandable", Value::Bool(s.is_expandable)),
            ("blocks", Value::list(blocks.collect::<Values>())),
        ])
    };
    Value::list(segments.into_iter().map(record).collect::<Values>())
}

/// The source position of an allocation, as `file.rnl:3:7`.
fn line(vm: &Vm, span: Span) -> Value {
    match vm.sources.place(span) {
        place if place.is_empty() => Value::None,
        place => Value::str(place),
    }
}
