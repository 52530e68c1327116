//! The contexts of `with`: what they select and restore.

use super::device_of;
use super::streams::{StreamObject, stream_of};
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::DeviceId;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::plan::{Autocast, RaceMode, Settings, error};
use crate::stream::Stream;
use crate::vm::{Context, Exit, NativeDef, Value, Vm};
use std::sync::Arc;

/// Selects a device; leaving restores the previous one.
fn enter_device(vm: &mut Vm, device: DeviceId) -> Result<Exit> {
    let before = vm.rt.selection();
    vm.rt.set_device(device)?;
    Ok(Box::new(move |vm| {
        vm.rt.select(before);
        Ok(())
    }))
}

/// Selects a stream and its device; leaving restores that device's previous stream and the previous device.
pub(super) fn enter_stream(vm: &mut Vm, stream: &Arc<Stream>) -> Result<Exit> {
    let device = vm.rt.selection();
    let before = vm.rt.current_stream(stream.device())?;
    vm.rt.set_stream(stream)?;
    vm.rt.set_device(stream.device())?;
    Ok(Box::new(move |vm| {
        vm.rt.select(device);
        vm.rt.set_stream(&before)
    }))
}

/// Changes settings; leaving restores the single field copied by `restore`.
fn enter_settings(
    vm: &mut Vm,
    change: impl Fn(&mut Settings),
    restore: impl Fn(&mut Settings, &Settings) + 'static,
) -> Result<Exit> {
    let before = vm.rt.settings;
    vm.rt.flush()?;
    change(&mut vm.rt.settings);
    Ok(Box::new(move |vm| {
        let flushed = vm.rt.flush();
        restore(&mut vm.rt.settings, &before);
        flushed
    }))
}

/// A type of device in `autocast`.
#[derive(Clone, Copy)]
enum DeviceType {
    Cuda,
    Cpu,
}

/// The type of device that an argument names.
fn device_type(value: &Value, index: usize) -> Result<DeviceType> {
    match value {
        Value::Device(DeviceId::Cpu) => Ok(DeviceType::Cpu),
        Value::Device(_) => Ok(DeviceType::Cuda),
        Value::Str(name) if name.as_str() == "cuda" => Ok(DeviceType::Cuda),
        Value::Str(name) if name.as_str() == "cpu" => Ok(DeviceType::Cpu),
        _ => Err(crate::ops::error::wrong_argument(index, "a type of device, `\"cuda\"` or `\"cpu\"`")),
    }
}

/// Checks that an argument names a type of device.
pub(in crate::library) fn check_device_type(value: &Value, index: usize) -> Result<()> {
    device_type(value, index).map(drop)
}

/// The change that `autocast` makes: `(dtype, enabled)`, or PyTorch's `(device_type, dtype, enabled)`.
fn autocast_of(args: &[Value]) -> Result<impl Fn(Autocast) -> Autocast + use<>> {
    let wrong = |index, what| Err(crate::ops::error::wrong_argument(index, what));
    let (of, dtype, enabled) = match (&args[0], &args[1], &args[2]) {
        (Value::Dtype(_), Value::Dtype(_), _) => return wrong(0, "a type of device before the dtype"),
        (Value::Dtype(_), Value::None, on) => (None, (0, &args[0]), (2, on)),
        (Value::Dtype(_), on, Value::None) => (None, (0, &args[0]), (1, on)),
        (Value::None, dtype, on) => (None, (1, dtype), (2, on)),
        (of, dtype, on) => (Some(device_type(of, 0)?), (1, dtype), (2, on)),
    };
    let enabled = match enabled {
        (_, Value::None) => true,
        (_, Value::Bool(on)) => *on,
        (index, _) => return wrong(index, "`true` or `false`"),
    };
    let (cuda, cpu) = match (dtype.1, of) {
        (Value::Dtype(_) | Value::None, _) if !enabled => (None, None),
        (Value::Dtype(dtype), _) if dtype.is_half() => (Some(*dtype), Some(*dtype)),
        (Value::None, Some(_)) => (Dtype::from_name("f16"), Dtype::from_name("bf16")),
        _ => return wrong(dtype.0, "`f16` or `bf16`"),
    };
    Ok(move |before: Autocast| match of {
        None => Autocast { cuda, cpu },
        Some(DeviceType::Cuda) => Autocast { cuda, ..before },
        Some(DeviceType::Cpu) => Autocast { cpu, ..before },
    })
}

pub(super) fn nothing(_: &mut Vm) -> Result<Exit> {
    Ok(Box::new(|_| Ok(())))
}

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "device",
        receiver: "",
        signature: Signature { params: &[Param::new("device", Kind::Any)] },
        doc: "Selects a device inside `with`: an index, a device, or its name. `none` and negative indices change nothing. Leaving restores the device that was current when the block was entered.\n\nSource: `torch.cuda.device`.",
        example: "with device(0) {\n    let x = zeros(2)\n    assert(x.device == cuda:0)\n}\nwith device(cpu) { assert(zeros(2).device == cpu) }",
        run: |vm, args| {
            let no_op = args[0].is_none() || matches!(args[0], Value::Int(index) if index < 0);
            if no_op {
                return Ok(Context::value("device", nothing));
            }
            let id = device_of(vm, &args[0], vm.rt.current_cuda())?;
            Ok(Context::value("device", move |vm| enter_device(vm, id)))
        },
    },
    NativeDef {
        name: "device_of",
        receiver: "",
        signature: Signature { params: &[Param::new("tensor", Kind::Tensor)] },
        doc: "Selects the device of a tensor inside `with`; a host tensor changes nothing.\n\nSource: `torch.cuda.device_of`.",
        example: "let x = zeros(2) on cuda:0\nwith device_of(x) { assert(cuda.current_device() == 0) }",
        run: |_, args| {
            let Value::Tensor(tensor) = &args[0] else {
                return Err(crate::ops::error::wrong_argument(0, "a tensor"));
            };
            let id = tensor.device();
            Ok(match id {
                DeviceId::Cpu => Context::value("device_of", nothing),
                id => Context::value("device_of", move |vm| enter_device(vm, id)),
            })
        },
    },
    NativeDef {
        name: "stream",
        receiver: "",
        signature: Signature { params: &[Param::new("stream", Kind::Any)] },
        doc: "Makes a stream the current one inside `with`, and its device the current device; `none` changes nothing. Leaving restores both.\n\nSource: `torch.cuda.stream`.",
        example: "let s = Stream()\nwith stream(s) { assert(cuda.current_stream() == s) }\nassert(cuda.current_stream() != s)",
        run: |_, args| match args[0].as_object::<StreamObject>() {
            None if args[0].is_none() => Ok(Context::value("stream", nothing)),
            None => stream_of(&args[0], 0).map(|_| Value::None),
            // A stream is itself a context, which is returned.
            Some(_) => Ok(args[0].clone()),
        },
    },
    NativeDef {
        name: "generator",
        receiver: "",
        signature: Signature { params: &[Param::new("generator", Kind::Generator)] },
        doc: "Makes a generator the default of its device inside `with`: draws without `generator=` use it.",
        example: "let g = Generator(cuda:0).manual_seed(7)\nlet a = with generator(g) { rand(3).tolist() }\ng.manual_seed(7)\nassert(rand(3, generator=g).tolist() == a)",
        run: |_, args| {
            let generator = super::random::generator_of(&args[0])?;
            Ok(Context::value("generator", move |vm| {
                vm.rt.enter_generator(&generator);
                Ok(Box::new(|vm| {
                    vm.rt.leave_generator();
                    Ok(())
                }))
            }))
        },
    },
    NativeDef {
        name: "races",
        receiver: "",
        signature: Signature { params: &[Param::new("mode", Kind::Str)] },
        doc: "Sets the reaction to races between streams inside `with`: `\"deny\"` stops before the launch, `\"warn\"` reports and orders, `\"fix\"` orders silently and counts (`cuda.races_repaired()`), `\"allow\"` checks nothing.",
        example: "let x = randn(100)\nlet s = Stream()\nwith races(\"fix\") {\n    with stream(s) { x.sum() }\n}",
        run: |_, args| {
            let name = args[0].as_str().unwrap_or("");
            let mode = RaceMode::from_name(name).ok_or_else(|| error::bad_race_mode(name))?;
            Ok(Context::value("races", move |vm| {
                enter_settings(vm, move |s| s.races = mode, |s, before| s.races = before.races)
            }))
        },
    },
    NativeDef {
        name: "autocast",
        receiver: "",
        signature: Signature {
            params: &[
                Param::or("device_type", Kind::Any, Default::None),
                Param::or("dtype", Kind::Any, Default::None),
                Param::or("enabled", Kind::Any, Default::None),
            ],
        },
        doc: "Mixed precision inside `with`: matrix products take `f16` or `bf16` operands, and operations that would lose precision take `f32`, by PyTorch's lists. Weights stay in `f32`, and so do their gradients. Run the backward pass outside of it.\n\n`autocast(bf16)`, also `autocast(bf16, enabled=false)`, is for operations on every device. As in PyTorch, a type of device may come first, `\"cuda\"` or `\"cpu\"`: `autocast(\"cuda\", dtype=bf16)` is for operations on devices of this type only. Its dtype is then `f16` by default on CUDA devices, `bf16` on the host.\n\nSource: `torch.autocast`.",
        example: "let x = ones(2, 2)\nlet y = with autocast(bf16) { x @ x }\nlet z = with autocast(device_type=\"cpu\", dtype=bf16) { x.cpu() @ x.cpu() }\nassert(y.dtype == bf16 and z.dtype == bf16)",
        run: |_, args| {
            let change = autocast_of(args)?;
            Ok(Context::value("autocast", move |vm| {
                let before = vm.rt.settings.autocast;
                vm.rt.settings.autocast = change(before);
                Ok(Box::new(move |vm| {
                    vm.rt.settings.autocast = before;
                    Ok(())
                }))
            }))
        },
    },
    NativeDef {
        name: "is_autocast_enabled",
        receiver: "",
        signature: Signature { params: &[Param::or("device_type", Kind::Any, Default::None)] },
        doc: "Whether `autocast` is on here, for a type of device (`\"cuda\"` or `\"cpu\"`, or a device) or for any.\n\nSource: `torch.is_autocast_enabled`.",
        example: "assert(not is_autocast_enabled())\nwith autocast(bf16) { assert(is_autocast_enabled()) }\nwith autocast(\"cpu\") { assert(not is_autocast_enabled(\"cuda\")) }",
        run: |vm, args| {
            let on = vm.rt.settings.autocast;
            Ok(Value::Bool(match &args[0] {
                Value::None => on.is_on(),
                of => match device_type(of, 0)? {
                    DeviceType::Cuda => on.cuda.is_some(),
                    DeviceType::Cpu => on.cpu.is_some(),
                },
            }))
        },
    },
    NativeDef {
        name: "races_repaired",
        receiver: "device",
        signature: Signature { params: &[Param::new("self", Kind::Device)] },
        doc: "The number of missing waits that `races(\"fix\")` and `races(\"warn\")` have inserted so far.",
        example: "let x = randn(100)\nlet s = Stream()\nlet before = cuda.races_repaired()\nwith races(\"fix\") {\n    with stream(s) { x.sum() }\n}\nassert(cuda.races_repaired() == before + 1)",
        run: |vm, _| Ok(super::int(vm.rt.races_repaired())),
    },
    NativeDef {
        name: "launch_blocking",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Waits after every launch inside `with`, so that an error of a kernel appears at its own line at once. `CUDA_LAUNCH_BLOCKING=1` does this for the whole run.",
        example: "with launch_blocking() { ones(3) + 1 }",
        run: |_, _| {
            Ok(Context::value("launch_blocking", |vm| {
                let restore =
                    |s: &mut Settings, before: &Settings| s.launch_blocking = before.launch_blocking;
                enter_settings(vm, |s| s.launch_blocking = true, restore)
            }))
        },
    },
];
