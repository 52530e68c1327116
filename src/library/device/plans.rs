//! The cuFFT plan cache of a device. Source: `torch.backends.cuda.cufft_plan_cache`.

use super::{DEVICE, SELF, cuda_device, device_of, int};
use crate::base::Result;
use crate::device::Device;
use crate::driver::{DeviceId, error};
use crate::ops::signature::{Kind, Param, Signature};
use crate::vm::{AttributeDef, NativeDef, Object, Value, Vm};
use std::any::Any;
use std::sync::Arc;

const CACHE: Param = Param::new("self", Kind::Any);

/// The plan cache of one device.
struct PlanCacheObject(Arc<Device>);

impl Object for PlanCacheObject {
    fn type_name(&self) -> &'static str {
        "plan_cache"
    }

    fn text(&self) -> String {
        let plans = self.0.fft_plans();
        let (size, most) = (plans.size(), plans.capacity());
        format!("<plan_cache of {}: size={size}, max_size={most}>", self.0.id())
    }

    fn assign(&self, vm: &mut Vm, name: &str, value: &Value) -> Result<()> {
        if name == "max_size" {
            let size = vm.expect_int(value, "cufft_plan_cache", "max_size")?;
            return self.set_max_size(size);
        }
        Err(crate::vm::error::not_assignable(
            format!("`{name}` of a plan cache is a read-only property"),
            "assign `max_size`, or call `clear()`",
        ))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl PlanCacheObject {
    fn set_max_size(&self, size: i64) -> Result<()> {
        match usize::try_from(size) {
            Ok(size) => {
                self.0.fft_plans().set_capacity(size);
                Ok(())
            }
            Err(_) => {
                let message = format!("cuFFT plan cache size must be non-negative, but got {size}");
                Err(crate::ops::error::bad_value(1, message, "write 0 to keep no plans"))
            }
        }
    }
}

fn cache_of(value: &Value) -> Result<&PlanCacheObject> {
    let wrong = || crate::ops::error::wrong_argument(0, "a plan cache");
    value.as_object::<PlanCacheObject>().ok_or_else(wrong)
}

/// The attributes of this file.
pub(super) static ATTRIBUTES: &[AttributeDef] = &[
    AttributeDef {
        name: "size",
        receiver: "plan_cache",
        doc: "The number of cached plans.",
        example: "let plans = cuda.cufft_plan_cache()\nplans.clear()\nassert(plans.size == 0)",
        read: |_, x| cache_of(x).map(|c| int(c.0.fft_plans().size() as u64)),
    },
    AttributeDef {
        name: "max_size",
        receiver: "plan_cache",
        doc: "The maximum number of cached plans; it can be assigned to.",
        example: "let plans = cuda.cufft_plan_cache()\nplans.max_size = 10\nassert(plans.max_size == 10)",
        read: |_, x| cache_of(x).map(|c| int(c.0.fft_plans().capacity() as u64)),
    },
    AttributeDef {
        name: "device",
        receiver: "plan_cache",
        doc: "The device of the plans.",
        example: "assert(cuda.cufft_plan_cache(1).device == cuda:1)",
        read: |_, x| cache_of(x).map(|c| Value::Device(c.0.id())),
    },
];

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "cufft_plan_cache",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE] },
        doc: "Returns the cache of Fourier transform plans of a device (the current one unless named): `size` is the \
              number of plans, `max_size` the maximum number (4096; assign it, or call `set_max_size(n)`; 0 keeps \
              none), `clear()` removes them. The least recently used one is removed first. A plan depends on the \
              lengths, the dtype, real or complex, and the number of signals.\n\nSource: \
              `torch.backends.cuda.cufft_plan_cache`.",
        example: "let plans = cuda.cufft_plan_cache()\nplans.clear()\nfft.fft(zeros(10))\nfft.fft(ones(10))\n\
                  assert(plans.size == 1 and plans.max_size == 4096)",
        run: |vm, args| {
            let count = vm.rt.machine().device_count();
            let index = match (&args[1], device_of(vm, &args[0], vm.rt.current_cuda())?) {
                (Value::Int(index), _) => Some(*index),
                (Value::None, DeviceId::Cuda(index)) => Some(i64::from(index)),
                (other, own) => match device_of(vm, other, own)? {
                    DeviceId::Cuda(index) => Some(i64::from(index)),
                    DeviceId::Cpu => None,
                },
            };
            if let Some(index) = index.filter(|&i| usize::try_from(i).is_ok_and(|i| i >= count) || i < 0) {
                return Err(error::no_plan_cache(index, count));
            }
            Ok(Value::object(PlanCacheObject(cuda_device(vm, &args[0], &args[1])?)))
        },
    },
    NativeDef {
        name: "clear",
        receiver: "plan_cache",
        signature: Signature { params: &[CACHE] },
        doc: "Removes the plans of a device.\n\nSource: `torch.backends.cuda.cufft_plan_cache.clear`.",
        example: "cuda.cufft_plan_cache().clear()\nassert(cuda.cufft_plan_cache().size == 0)",
        run: |_, args| {
            cache_of(&args[0])?.0.fft_plans().clear();
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "set_max_size",
        receiver: "plan_cache",
        signature: Signature { params: &[CACHE, Param::new("n", Kind::Int)] },
        doc: "Sets how many plans a device keeps; plans above that number are removed at once, the least \
              recently used ones first. 0 keeps none.\n\nSource: \
              `torch.backends.cuda.cufft_plan_cache.max_size`.",
        example: "let plans = cuda.cufft_plan_cache()\nplans.set_max_size(2)\nassert(plans.max_size == 2)\n\
                  plans.set_max_size(4096)",
        run: |_, args| {
            let size = args[1].as_int().unwrap_or(-1);
            cache_of(&args[0])?.set_max_size(size)?;
            Ok(Value::None)
        },
    },
];
