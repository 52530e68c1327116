//! Device functions for scripts: functions of `cuda`, streams, events, generators, and the contexts that
//! select them. Names, results and errors follow `torch.cuda`.
//!
//! `cuda:1.memory_allocated()` and `cuda.memory_allocated(1)` are one native: a method of the type `device`
//! whose first argument may name another device.

mod comm;
mod contexts;
mod devices;
mod dist;
mod graphs;
mod memory;
mod nvtx;
mod plans;
mod pools;
pub mod profile;
mod random;
mod streams;

pub(in crate::library) use contexts::check_device_type;
pub use graphs::{GraphObject, GraphPoolObject};
pub use pools::PoolObject;
pub use random::GeneratorObject;
pub use streams::{EventObject, StreamObject};

use crate::base::Result;
use crate::device::Device;
use crate::driver::{DeviceId, error};
use crate::ops::signature::{Default, Kind, Param};
use crate::vm::{AttributeDef, NativeDef, Value, Vm};
use std::sync::Arc;

/// Every table of this directory, with its page of the reference.
pub fn tables() -> impl Iterator<Item = (&'static str, &'static [NativeDef])> {
    let tables: [(&str, &[NativeDef]); 12] = [
        ("devices", devices::NATIVES),
        ("streams", streams::NATIVES),
        ("memory", memory::NATIVES),
        ("generators", random::NATIVES),
        ("graphs", graphs::NATIVES),
        ("contexts", contexts::NATIVES),
        ("comm", comm::NATIVES),
        ("distributed", dist::NATIVES),
        ("nvtx", nvtx::NATIVES),
        ("memory-pools", pools::NATIVES),
        ("profiling", profile::NATIVES),
        ("fft-plans", plans::NATIVES),
    ];
    tables.into_iter()
}

/// Every native of this directory.
pub fn natives() -> impl Iterator<Item = &'static NativeDef> {
    tables().flat_map(|(_, table)| table)
}

/// Every attribute table of this directory, with its page of the reference.
pub fn attribute_tables() -> impl Iterator<Item = (&'static str, &'static [AttributeDef])> {
    let tables: [(&str, &[AttributeDef]); 4] = [
        ("streams", streams::ATTRIBUTES),
        ("generators", random::ATTRIBUTES),
        ("memory-pools", pools::ATTRIBUTES),
        ("fft-plans", plans::ATTRIBUTES),
    ];
    tables.into_iter()
}

/// Every attribute of this directory.
pub fn attributes() -> impl Iterator<Item = &'static AttributeDef> {
    attribute_tables().flat_map(|(_, table)| table)
}

/// The receiver of a method of `cuda`.
const SELF: Param = Param::new("self", Kind::Device);
/// A device, an index, or by default the receiver.
const DEVICE: Param = Param::or("device", Kind::Any, Default::None);

/// The device that an argument names: a device, an index, a string, or `fallback` for `none`.
///
/// # Errors
/// E0501.
pub(crate) fn device_of(vm: &Vm, value: &Value, fallback: DeviceId) -> Result<DeviceId> {
    let named = match value {
        Value::None => return Ok(fallback),
        Value::Str(text) if text.as_str() == "cuda" => fallback,
        value => vm.device_named(value)?,
    };
    if let DeviceId::Cuda(index) = named {
        let count = vm.rt.machine().device_count();
        if index as usize >= count {
            return Err(error::bad_device(i64::from(index), count));
        }
    }
    Ok(named)
}

/// A CUDA device from a method's receiver and its optional argument.
fn cuda_id(vm: &Vm, receiver: &Value, argument: &Value) -> Result<DeviceId> {
    let own = device_of(vm, receiver, vm.rt.current_cuda())?;
    let id = device_of(vm, argument, own)?;
    let count = vm.rt.machine().device_count();
    match id {
        DeviceId::Cpu => Err(error::expected_cuda("cpu")),
        DeviceId::Cuda(index) if index as usize >= count => Err(error::bad_device(i64::from(index), count)),
        id => Ok(id),
    }
}

/// [`cuda_id`], with the device opened.
fn cuda_device(vm: &mut Vm, receiver: &Value, argument: &Value) -> Result<Arc<Device>> {
    let id = cuda_id(vm, receiver, argument)?;
    vm.rt.device(id)
}

/// An int for scripts.
fn int(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}
