//! Attributes of devices and dtypes: `d.index`, `f32.itemsize`.

use crate::base::Result;
use crate::device::DeviceId;
use crate::vm::{Natives, Value, Vm};

type Read = fn(&mut Vm, &Value) -> Result<Value>;

/// Receiver type, name, documentation, how it is read.
pub static TABLE: &[(&str, &str, &str, Read)] = &[
    ("device", "type", "`\"cpu\"` or `\"cuda\"`.", |_, x| match x {
        Value::Device(DeviceId::Cpu) => Ok(Value::str("cpu")),
        _ => Ok(Value::str("cuda")),
    }),
    ("device", "index", "The number of a CUDA device; `none` for the host.", |_, x| match x {
        Value::Device(DeviceId::Cuda(index)) => Ok(Value::Int(i64::from(*index))),
        _ => Ok(Value::None),
    }),
    ("dtype", "itemsize", "The bytes of one element.", |_, x| match x {
        Value::Dtype(dtype) => Ok(Value::Int(dtype.size() as i64)),
        _ => Ok(Value::None),
    }),
    ("dtype", "is_floating_point", "Whether elements are floats.", |_, x| match x {
        Value::Dtype(dtype) => Ok(Value::Bool(dtype.is_float())),
        _ => Ok(Value::None),
    }),
    ("dtype", "is_complex", "Whether elements are complex numbers.", |_, x| match x {
        Value::Dtype(dtype) => Ok(Value::Bool(dtype.is_complex())),
        _ => Ok(Value::None),
    }),
];

pub(super) fn add(natives: &mut Natives) {
    for (receiver, name, _, read) in TABLE {
        natives.attribute_of(receiver, name, *read);
    }
}
