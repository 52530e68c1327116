//! `cuda.device_count()` and related functions: available devices, and the current one.

use super::{DEVICE, SELF, cuda_device, cuda_id, device_of, int};
use crate::base::Result;
use crate::driver::{DeviceId, error};
use crate::ops::signature::{Kind, Param, Signature};
use crate::plan::SyncDebug;
use crate::vm::{NativeDef, Value, Values, Vm};

const ALONE: Signature = Signature { params: &[SELF] };
const OF_DEVICE: Signature = Signature { params: &[SELF, DEVICE] };

/// The architectures that NVRTC compiles for, none without NVRTC; for emulated devices, their own.
fn arch_list(vm: &mut Vm) -> Result<Vec<String>> {
    let machine = vm.rt.machine().clone();
    if machine.device_count() == 0 {
        return Ok(Vec::new());
    }
    #[cfg(feature = "cuda")]
    if !machine.has_virtual_time() {
        return Ok(crate::driver::cuda::arch_list());
    }
    let about = machine.device(DeviceId::Cuda(0))?.properties().clone();
    Ok(vec![format!("sm_{}{}", about.major, about.minor)])
}

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "is_available",
        receiver: "device",
        signature: ALONE,
        doc: "Returns whether CUDA devices can be used; emulated devices count.\n\nSource: `torch.cuda.is_available`.",
        example: "assert(cuda.is_available())",
        run: |vm, _| Ok(Value::Bool(vm.rt.machine().device_count() > 0)),
    },
    NativeDef {
        name: "device_count",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the number of visible CUDA devices. `CUDA_VISIBLE_DEVICES` is honoured.\n\nSource: `torch.cuda.device_count`.",
        example: "assert(cuda.device_count() >= 1)",
        run: |vm, _| Ok(int(vm.rt.machine().device_count() as u64)),
    },
    NativeDef {
        name: "init",
        receiver: "device",
        signature: ALONE,
        doc: "Opens the current CUDA device. Never needed: every operation opens the devices that it uses.\n\nSource: `torch.cuda.init`.",
        example: "cuda.init()\nassert(cuda.is_initialized())",
        run: |vm, _| {
            let id = vm.rt.current_cuda();
            vm.rt.device(id).map(|_| Value::None)
        },
    },
    NativeDef {
        name: "is_initialized",
        receiver: "device",
        signature: ALONE,
        doc: "Returns whether any CUDA device has been opened.\n\nSource: `torch.cuda.is_initialized`.",
        example: "let x = zeros(1) on cuda:0\nassert(cuda.is_initialized())",
        run: |vm, _| Ok(Value::Bool(vm.rt.machine().opened().next().is_some())),
    },
    NativeDef {
        name: "has_context",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns whether a device has been opened. A device is opened when it is first used.",
        example: "let x = zeros(1) on cuda:0\nassert(cuda:0.has_context())",
        run: |vm, args| {
            let id = cuda_id(vm, &args[0], &args[1])?;
            Ok(Value::Bool(vm.rt.machine().opened().any(|d| d.id() == id)))
        },
    },
    NativeDef {
        name: "current_device",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the index of the CUDA device selected last.\n\nSource: `torch.cuda.current_device`.",
        example: "with device(0) { assert(cuda.current_device() == 0) }",
        run: |vm, args| {
            let id = cuda_id(vm, &args[0], &Value::Device(vm.rt.current_cuda()))?;
            Ok(int(id.cuda_index().unwrap_or(0) as u64))
        },
    },
    NativeDef {
        name: "set_device",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("device", Kind::Any)] },
        doc: "Selects a device until another one is selected; a negative index changes nothing. `with device(d) { }` \
              is better: it restores the previous device.\n\nSource: `torch.cuda.set_device`.",
        example: "cuda.set_device(0)\ncuda.set_device(-1)\nassert(cuda.current_device() == 0)",
        run: |vm, args| {
            if matches!(args[1], Value::Int(index) if index < 0) {
                return Ok(Value::None);
            }
            let id = cuda_id(vm, &args[0], &args[1])?;
            vm.rt.set_device(id).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "can_device_access_peer",
        receiver: "device",
        signature: Signature {
            params: &[SELF, Param::new("device", Kind::Any), Param::new("peer", Kind::Any)],
        },
        doc: "Returns whether a device can read a peer's memory directly.\n\nSource: `torch.cuda.can_device_access_peer`.",
        example: "assert(type(cuda.can_device_access_peer(0, 0)) == \"bool\")",
        run: |vm, args| {
            let index = |value: &Value| -> Result<i64> {
                match value {
                    Value::Int(i) => Ok(*i),
                    other => match device_of(vm, other, vm.rt.current_cuda())? {
                        DeviceId::Cuda(i) => Ok(i64::from(i)),
                        DeviceId::Cpu => Err(error::expected_cuda("cpu")),
                    },
                }
            };
            let (device, peer) = (index(&args[1])?, index(&args[2])?);
            vm.rt.machine().can_access_peer(device, peer).map(Value::Bool)
        },
    },
    NativeDef {
        name: "get_device_name",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the device's name.\n\nSource: `torch.cuda.get_device_name`.",
        example: "assert(len(cuda.get_device_name()) > 0)",
        run: |vm, args| Ok(Value::str(cuda_device(vm, &args[0], &args[1])?.properties().name.clone())),
    },
    NativeDef {
        name: "get_device_capability",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns the compute capability as `(major, minor)`.\n\nSource: `torch.cuda.get_device_capability`.",
        example: "let (major, minor) = cuda.get_device_capability()\nassert(major >= 5)",
        run: |vm, args| {
            let device = cuda_device(vm, &args[0], &args[1])?;
            let p = device.properties();
            Ok(Value::tuple(vec![int(u64::from(p.major)), int(u64::from(p.minor))]))
        },
    },
    NativeDef {
        name: "get_device_properties",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns a record of the device's properties: `name`, `major`, `minor`, `total_memory` (bytes), `multi_processor_count`, `l2_cache_size` (bytes), `warp_size`, `max_threads_per_multi_processor`, `uuid` (the raw bytes in hex, `8-4-4-4-12` digits, as `nvidia-smi -L` shows them after `GPU-`).\n\nSource: `torch.cuda.get_device_properties`.",
        example: "assert(cuda.get_device_properties(0).warp_size == 32)",
        run: |vm, args| {
            let device = cuda_device(vm, &args[0], &args[1])?;
            let p = device.properties();
            Ok(Value::record([
                ("name", Value::str(p.name.clone())),
                ("major", int(u64::from(p.major))),
                ("minor", int(u64::from(p.minor))),
                ("total_memory", int(p.total_memory)),
                ("multi_processor_count", int(u64::from(p.multi_processor_count))),
                ("l2_cache_size", int(p.l2_cache_size)),
                ("warp_size", int(u64::from(p.warp_size))),
                ("max_threads_per_multi_processor", int(u64::from(p.max_threads_per_multi_processor))),
                ("uuid", Value::str(p.uuid.clone())),
            ]))
        },
    },
    NativeDef {
        name: "kernel_stats",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Returns a record of a device's kernels since it was opened: `programs`, the distinct programs; `compiled`, those that were compiled; `interpreted`, the launches of programs that were not compiled yet, run by kernels that ship with Runnel; `launches`, all of them; `waits`, the launches that waited for the compiler. All are 0 where nothing is compiled: without CUDA, and on emulated devices.",
        example: "assert(cuda.kernel_stats().waits >= 0)",
        run: |vm, args| {
            let stats = match vm.rt.machine().device_count() {
                0 => Default::default(),
                _ => {
                    let device = cuda_device(vm, &args[0], &args[1])?;
                    vm.rt.flush()?;
                    device.driver().kernel_stats()
                }
            };
            Ok(Value::record([
                ("programs", int(stats.programs)),
                ("compiled", int(stats.compiled)),
                ("interpreted", int(stats.interpreted)),
                ("launches", int(stats.launches)),
                ("waits", int(stats.waits)),
            ]))
        },
    },
    NativeDef {
        name: "get_arch_list",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the architectures that kernels can be compiled for, as `sm_90`: those that NVRTC supports (none without NVRTC); on emulated devices, their own.\n\nSource: `torch.cuda.get_arch_list`.",
        example: "assert(len(cuda.get_arch_list()) > 0)",
        run: |vm, _| {
            arch_list(vm).map(|all| Value::list(all.into_iter().map(Value::str).collect::<Values>()))
        },
    },
    NativeDef {
        name: "get_gencode_flags",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the flags with which `nvcc` compiles for the architectures of `get_arch_list`.\n\nSource: `torch.cuda.get_gencode_flags`.",
        example: "assert(\"-gencode compute=compute_\" in cuda.get_gencode_flags())",
        run: |vm, _| {
            let flag = |arch: &String| {
                let number = arch.trim_start_matches("sm_");
                format!("-gencode compute=compute_{number},code={arch}")
            };
            Ok(Value::str(arch_list(vm)?.iter().map(flag).collect::<Vec<_>>().join(" ")))
        },
    },
    NativeDef {
        name: "synchronize",
        receiver: "device",
        signature: OF_DEVICE,
        doc: "Waits for every stream of a device.\n\nSource: `torch.cuda.synchronize`.",
        example: "let x = ones(4) on cuda\ncuda.synchronize()\nassert(cuda.current_stream().query())",
        run: |vm, args| {
            let id = cuda_id(vm, &args[0], &args[1])?;
            vm.rt.synchronize_device(id).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "set_sync_debug_mode",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("debug_mode", Kind::Any)] },
        doc: "Sets what happens when an operation waits for a device implicitly (a read of a value, a blocking copy): `\"default\"` or 0 nothing, `\"warn\"` or 1 a warning, `\"error\"` or 2 an error. Explicit waits, such as `synchronize`, are always allowed.\n\nSource: `torch.cuda.set_sync_debug_mode`.",
        example: "let x = ones(3)\ncuda.set_sync_debug_mode(\"error\")\nlet kind = try { x.sum().item() } catch e { e.kind }\ncuda.set_sync_debug_mode(\"default\")\nassert(kind == \"Cuda\")",
        run: |vm, args| {
            let mode = SyncDebug::ALL.into_iter().enumerate().find(|(number, mode)| match &args[1] {
                Value::Int(given) => *given == *number as i64,
                given => given.as_str() == Some(mode.name()),
            });
            let Some((_, mode)) = mode else {
                let given = vm.inspect(&args[1])?;
                return Err(crate::plan::error::bad_debug_mode(&given));
            };
            vm.rt.settings.sync_debug = mode;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "get_sync_debug_mode",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the mode of `set_sync_debug_mode` as 0 (default), 1 (warn) or 2 (error).\n\nSource: `torch.cuda.get_sync_debug_mode`.",
        example: "assert(cuda.get_sync_debug_mode() == 0)",
        run: |vm, _| {
            let mode = vm.rt.settings.sync_debug;
            Ok(int(SyncDebug::ALL.iter().position(|m| *m == mode).unwrap_or(0) as u64))
        },
    },
    NativeDef {
        name: "current_blas_handle",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the cuBLAS handle of the current device as an int; 0 on emulated devices.\n\nSource: `torch.cuda.current_blas_handle`.",
        example: "assert(cuda.current_blas_handle() >= 0)",
        run: |vm, _| {
            let id = vm.rt.current_cuda();
            let stream = vm.rt.current_stream(id)?;
            stream.driver().blas_handle(stream.handle()).map(int)
        },
    },
    NativeDef {
        name: "ipc_collect",
        receiver: "device",
        signature: ALONE,
        doc: "Does nothing: memory that other processes have released is returned automatically.\n\nSource: `torch.cuda.ipc_collect`.",
        example: "cuda.ipc_collect()",
        run: |_, _| Ok(Value::None),
    },
    NativeDef {
        name: "sleep",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("cycles", Kind::Int)] },
        doc: "Keeps the current stream of the current CUDA device busy for about that many clock cycles. On emulated devices time is virtual (1 GHz), and advances when something waits.\n\nSource: `torch.cuda._sleep`.",
        example: "cuda.sleep(1000)\ncuda.synchronize()",
        run: |vm, args| {
            let id = cuda_id(vm, &args[0], &Value::None)?;
            let stream = vm.rt.current_stream(id)?;
            let cycles = args[1].as_int().unwrap_or(0).max(0) as u64;
            vm.rt.sleep(&stream, cycles).map(|()| Value::None)
        },
    },
];
