//! Attributes of devices and dtypes: `d.index`, `f32.itemsize`.

use crate::driver::DeviceId;
use crate::vm::{AttributeDef, Value};

/// The attributes of this file.
pub static TABLE: &[AttributeDef] = &[
    AttributeDef {
        name: "type",
        receiver: "device",
        doc: "`\"cpu\"` or `\"cuda\"`.",
        example: "assert(cpu.type == \"cpu\" and cuda:1.type == \"cuda\")",
        read: |_, x| match x {
            Value::Device(DeviceId::Cpu) => Ok(Value::str("cpu")),
            _ => Ok(Value::str("cuda")),
        },
    },
    AttributeDef {
        name: "index",
        receiver: "device",
        doc: "The number of a CUDA device; `none` for the host.",
        example: "assert(cuda:1.index == 1 and cpu.index == none)",
        read: |_, x| match x {
            Value::Device(DeviceId::Cuda(index)) => Ok(Value::Int(i64::from(*index))),
            _ => Ok(Value::None),
        },
    },
    AttributeDef {
        name: "itemsize",
        receiver: "dtype",
        doc: "The bytes of one element.",
        example: "assert(f32.itemsize == 4 and bf16.itemsize == 2)",
        read: |_, x| match x {
            Value::Dtype(dtype) => Ok(Value::Int(dtype.size() as i64)),
            _ => Ok(Value::None),
        },
    },
    AttributeDef {
        name: "is_floating_point",
        receiver: "dtype",
        doc: "Whether elements are floats.",
        example: "assert(bf16.is_floating_point and not i32.is_floating_point)",
        read: |_, x| match x {
            Value::Dtype(dtype) => Ok(Value::Bool(dtype.is_float())),
            _ => Ok(Value::None),
        },
    },
    AttributeDef {
        name: "is_complex",
        receiver: "dtype",
        doc: "Whether elements are complex numbers.",
        example: "assert(c64.is_complex and not f32.is_complex)",
        read: |_, x| match x {
            Value::Dtype(dtype) => Ok(Value::Bool(dtype.is_complex())),
            _ => Ok(Value::None),
        },
    },
];
