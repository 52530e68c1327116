//! The contexts of `with`: what they select and restore.

use super::device_of;
use super::streams::{StreamObject, stream_of};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::plan::{RaceMode, Settings, error};
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
                Param::new("dtype", Kind::Dtype),
                Param::or("enabled", Kind::Bool, Default::Bool(true)),
            ],
        },
        doc: "Mixed precision inside `with`: matrix products take `f16` or `bf16` operands, and operations that would lose precision take `f32`, by PyTorch's lists. Weights stay in `f32`, and so do their gradients. Run the backward pass outside of it.\n\nSource: `torch.autocast`.",
        example: "let x = ones(2, 2)\nlet y = with autocast(bf16) { x @ x }\nassert(y.dtype == bf16)",
        run: |_, args| {
            let dtype = match args[0] {
                Value::Dtype(dtype) if dtype.is_half() => dtype,
                _ => return Err(crate::ops::error::wrong_argument(0, "`f16` or `bf16`")),
            };
            let dtype = matches!(args[1], Value::Bool(true)).then_some(dtype);
            Ok(Context::value("autocast", move |vm| {
                let before = std::mem::replace(&mut vm.rt.settings.autocast, dtype);
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
        signature: Signature { params: &[] },
        doc: "Whether `autocast` is on here.\n\nSource: `torch.is_autocast_enabled`.",
        example: "assert(not is_autocast_enabled())\nwith autocast(bf16) { assert(is_autocast_enabled()) }",
        run: |vm, _| Ok(Value::Bool(vm.rt.settings.autocast.is_some())),
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
