//! Numbers and nested lists of numbers as tensors: literals, and lists that are written to a tensor.

use super::account::charge;
use super::value::Value;
use super::{Vm, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::plan::error::check_number;
use crate::tensor::Tensor;

/// Maximum nesting of a tensor literal.
pub(super) const RANKS: usize = 32;

impl Vm {
    /// Converts a value to a tensor. A number or a rectangular list of numbers goes to `device`, or to the
    /// current one. `None` for other values.
    pub fn as_tensor(&mut self, value: &Value, device: Option<DeviceId>) -> Result<Option<Tensor>> {
        match value {
            Value::Tensor(tensor) => Ok(Some(tensor.clone())),
            Value::List(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                let Some((shape, scalars)) = flatten(self, value)? else { return Ok(None) };
                let dtype = literal_dtype(&scalars);
                self.literal(&shape, &scalars, dtype, device).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Converts a value that is written to `target` to a tensor: a list of numbers takes its dtype, which must hold
    /// them. `index` is the argument. `None` for values that are neither tensors nor numbers.
    pub(super) fn stored(&mut self, value: &Value, target: &Tensor, index: usize) -> Result<Option<Tensor>> {
        if !matches!(value, Value::List(_)) {
            return self.as_tensor(value, Some(target.device()));
        }
        let Some((shape, scalars)) = flatten(self, value)? else { return Ok(None) };
        self.check_numbers(&scalars, target.dtype(), index)?;
        self.literal(&shape, &scalars, target.dtype(), Some(target.device())).map(Some)
    }

    fn check_numbers(&mut self, scalars: &[Scalar], dtype: Dtype, index: usize) -> Result<()> {
        for some in scalars.chunks(crate::base::stop::PACE) {
            self.charge(some.len())?;
            some.iter().try_for_each(|&scalar| check_number(index, scalar, dtype))?;
        }
        Ok(())
    }

    fn literal(
        &mut self,
        shape: &[usize],
        scalars: &[Scalar],
        dtype: Dtype,
        device: Option<DeviceId>,
    ) -> Result<Tensor> {
        let device = device.unwrap_or_else(|| self.rt.current_device());
        let mut bytes = Vec::with_capacity(scalars.len() * dtype.size());
        for some in scalars.chunks(crate::base::stop::PACE) {
            self.charge(some.len())?;
            encode(some, dtype, &mut bytes);
        }
        self.rt.from_host(&bytes, shape, dtype, device)
    }

    /// `f16[0.5, 0.25]`
    pub(super) fn typed_literal(&mut self, value: &Value, dtype: &Value) -> Result<Value> {
        let Value::Dtype(dtype) = dtype else { return Ok(Value::None) };
        match flatten(self, value)? {
            Some((shape, scalars)) => {
                // Floats round to infinity here, as in `tensor`.
                if dtype.is_int() {
                    self.check_numbers(&scalars, *dtype, 0)?;
                }
                self.literal(&shape, &scalars, *dtype, None).map(Value::Tensor)
            }
            None => Err(not_rectangular(0)),
        }
    }
}

/// Shape and row-major elements of a number or of rectangular nested lists; `None` if an element is not a
/// number.
fn flatten(vm: &Vm, value: &Value) -> Result<Option<(Vec<usize>, Vec<Scalar>)>> {
    if let Some(scalar) = value.as_scalar() {
        return Ok(Some((Vec::new(), vec![scalar])));
    }
    let (mut shape, mut scalars) = (Vec::new(), Vec::new());
    let mut first = value.clone();
    while let Value::List(list) = &first {
        if shape.len() >= RANKS {
            return Err(error::nesting("a tensor literal"));
        }
        shape.push(list.len());
        match list.get(0) {
            Some(next) => first = next,
            None => break,
        }
    }
    charge(shape.iter().fold(16usize, |all, &n| all.saturating_mul(n)))?;
    Ok(if fill(vm, value, &shape, &mut scalars)? { Some((shape, scalars)) } else { None })
}

fn fill(vm: &Vm, value: &Value, shape: &[usize], scalars: &mut Vec<Scalar>) -> Result<bool> {
    vm.worked(1)?;
    match (value, shape) {
        (Value::List(list), [extent, inner @ ..]) => {
            if list.len() != *extent {
                return Err(not_rectangular(0));
            }
            for item in list.borrow().iter() {
                if !fill(vm, item, inner, scalars)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::List(_), []) => Err(not_rectangular(0)),
        (other, []) => match other.as_scalar() {
            Some(scalar) => {
                scalars.push(scalar);
                Ok(true)
            }
            None => Ok(false),
        },
        (other, _) if other.as_scalar().is_some() => Err(not_rectangular(0)),
        _ => Ok(false),
    }
}

fn not_rectangular(index: usize) -> crate::base::Error {
    error::bad_value(index, "the rows of these nested lists differ in length, so they do not form a tensor")
        .help("make the rows equally long; lists of different lengths stay lists: join them with `++`, apply a function with `map`")
}

/// `f32` if there is any float or no element, else `i64` if there is any int, else `bool`.
fn literal_dtype(scalars: &[Scalar]) -> Dtype {
    let any = |f: fn(&Scalar) -> bool| scalars.iter().any(f);
    if scalars.is_empty() || any(|s| matches!(s, Scalar::Float(_))) {
        Dtype::F32
    } else if any(|s| matches!(s, Scalar::Int(_))) {
        Dtype::I64
    } else {
        Dtype::Bool
    }
}

/// Encodes elements as bytes of a dtype.
fn encode(scalars: &[Scalar], dtype: Dtype, bytes: &mut Vec<u8>) {
    for scalar in scalars {
        scalar.encode(dtype, bytes);
    }
}
