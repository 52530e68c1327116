//! Functions of dtypes: their limits, and promotion.

use super::takes;
use crate::array::{Dtype, promote};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::{NativeDef, Value, Vm, error};

const PAIR: Signature = takes(&[Param::new("type1", Kind::Dtype), Param::new("type2", Kind::Dtype)]);

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "finfo",
        receiver: "",
        signature: takes(&[Param::or("dtype", Kind::Dtype, Default::None)]),
        doc: "The limits of a float dtype (`f32` unless one is given), for a complex dtype those of its parts: a record of \
              `bits`, `eps` (the distance from 1 to the next number), `max`, `min`, `tiny` and `smallest_normal` (the \
              smallest number with full precision), `resolution` and `dtype`.\n\nSource: `torch.finfo`.",
        example: "assert(finfo(f16).max == 65504 and finfo(f32).eps == 2 ** -23 and finfo(f64).bits == 64)",
        run: finfo,
    },
    NativeDef {
        name: "iinfo",
        receiver: "",
        signature: takes(&[Param::new("dtype", Kind::Dtype)]),
        doc: "The limits of an integer dtype: a record of `bits`, `max`, `min` and `dtype`.\n\nSource: `torch.iinfo`.",
        example: "assert(iinfo(u8).max == 255 and iinfo(i32).min == -(2 ** 31))",
        run: iinfo,
    },
    NativeDef {
        name: "promote_types",
        receiver: "",
        signature: PAIR,
        doc: "The smallest dtype that holds the numbers of both dtypes.\n\nSource: `torch.promote_types`.",
        example: "assert(promote_types(u8, i8) == i16 and promote_types(i64, f16) == f16)",
        run: |_, args| match (&args[0], &args[1]) {
            (Value::Dtype(a), Value::Dtype(b)) => Ok(Value::Dtype(promote(*a, *b))),
            _ => Ok(Value::None),
        },
    },
    NativeDef {
        name: "can_cast",
        receiver: "",
        signature: takes(&[Param::new("from_", Kind::Dtype), Param::new("to", Kind::Dtype)]),
        doc: "Whether PyTorch's promotion rules allow a result of the dtype `from_` to be stored in the dtype `to`: no complex \
              numbers in real dtypes, no floats in integers, no numbers in bools.\n\nSource: `torch.can_cast`.",
        example: "assert(can_cast(f64, f32) and can_cast(i64, u8) and not can_cast(f32, i64))",
        run: |_, args| match (&args[0], &args[1]) {
            (Value::Dtype(from), Value::Dtype(to)) => {
                let lost = (from.is_complex() && !to.is_complex())
                    || (from.is_float() && to.is_int())
                    || (*from != Dtype::Bool && *to == Dtype::Bool);
                Ok(Value::Bool(!lost))
            }
            _ => Ok(Value::None),
        },
    },
];

fn finfo(_: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let dtype = match args[0] {
        Value::Dtype(dtype) => dtype.real(),
        _ => Dtype::F32,
    };
    if !dtype.is_float() {
        let error = error::bad_value(0, format!("{dtype} is no dtype of floats"));
        return Err(error.help(format!("write `iinfo({dtype})` for integers")));
    }
    let (digits, bits) = (dtype.digits(), 8 * dtype.size() as u32);
    let tiny = 2f64.powi(2 - (1 << (bits - digits - 1)));
    // The decimal digits that every number keeps.
    let decimals = (f64::from(digits - 1) * std::f64::consts::LOG10_2).floor() as i32;
    let resolution = format!("1e-{decimals}").parse().unwrap_or(dtype.epsilon());
    Ok(Value::record([
        ("bits", Value::Int(bits.into())),
        ("eps", Value::Float(dtype.epsilon())),
        ("max", Value::Float(dtype.greatest())),
        ("min", Value::Float(-dtype.greatest())),
        ("resolution", Value::Float(resolution)),
        ("smallest_normal", Value::Float(tiny)),
        ("tiny", Value::Float(tiny)),
        ("dtype", Value::Dtype(dtype)),
    ]))
}

fn iinfo(_: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let Value::Dtype(dtype) = args[0] else { return Ok(Value::None) };
    match dtype.range().filter(|_| dtype.is_int()) {
        Some((min, max)) => Ok(Value::record([
            ("bits", Value::Int(8 * dtype.size() as i64)),
            ("max", Value::Int(max)),
            ("min", Value::Int(min)),
            ("dtype", Value::Dtype(dtype)),
        ])),
        None => {
            let error = error::bad_value(0, format!("{dtype} is no dtype of integers"));
            Err(if dtype == Dtype::Bool {
                error.help("bools are `true` and `false`")
            } else {
                error.help(format!("write `finfo({dtype})` for floats"))
            })
        }
    }
}
