//! Habits from PyTorch and Python: which are accepted, and which are rejected because they would silently do something
//! else.

use super::function::Native;
use super::run::arith::symbol;
use super::tensors::is_arithmetic;
use super::value::Value;
use crate::array::Dtype;
use crate::base::Result;
use crate::ops::gradient;
use crate::plan::Runtime;
use crate::syntax::ast::Binary;
use crate::tensor::Tensor;

/// The dtype that the function `int` or `float` represents, as in PyTorch.
pub(super) fn dtype_of(native: &Native) -> Option<Dtype> {
    match &*native.name {
        "int" => Some(Dtype::I64),
        "float" => Some(Dtype::F64),
        _ => None,
    }
}

/// The operand of an arithmetic operator that is an empty list.
pub(super) fn empty_operand(op: Binary, left: &Value, right: &Value) -> Option<usize> {
    let empty = |v: &Value| matches!(v, Value::List(list) if list.is_empty());
    let found = [left, right].into_iter().position(empty)?;
    let fits = |v: &Value| v.as_scalar().is_some() || matches!(v, Value::List(_) | Value::Tensor(_));
    (is_arithmetic(op) && fits(left) && fits(right)).then_some(found)
}

/// Refuses to write the result of an update into elements of a lower kind, as in-place methods do.
pub(super) fn keep_digits(target: &Tensor, value: &Tensor) -> Result<()> {
    match value.dtype().kind() > target.dtype().kind() {
        true => Err(crate::ops::error::update_does_not_fit(value.dtype(), target)),
        false => Ok(()),
    }
}

/// Rejects the left operand of `op=` if it is a leaf that has a gradient.
pub(super) fn keep_parameter(rt: &mut Runtime, op: Binary, tensor: &Tensor) -> Result<()> {
    let trained = gradient::requires_gradient(rt, tensor) && gradient::is_leaf(rt, tensor);
    if !trained || gradient::gradient_of(rt, tensor).is_none() {
        return Ok(());
    }
    let method = match op {
        Binary::Add => "add_",
        Binary::Sub => "sub_",
        Binary::Mul => "mul_",
        Binary::Div => "div_",
        Binary::FloorDiv => "floor_divide_",
        Binary::Mod => "remainder_",
        Binary::Pow => "pow_",
        _ => "copy_",
    };
    Err(gradient::error::rebound(symbol(op), method, tensor))
}
