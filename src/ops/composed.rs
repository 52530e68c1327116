//! Calls from one operation to another, by name.
//!
//! Independent of kernels. Invariant: an error of a called operation points at the whole call of the calling
//! operation, while the caller's own checks point at its arguments.

use super::signature::Default;
use super::{Arg, Args, Call, Op, Out, apply, error, table};
use crate::array::{Dtype, Scalar};
use crate::base::{Error, ErrorKind, Result};
use crate::plan::Runtime;
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// The result of an operation; arguments that are left out have their defaults.
pub(super) fn out_of(rt: &mut Runtime, name: &str, given: &[Arg]) -> Result<Out> {
    applied(rt, name, given, false)
}

/// The in-place form of an operation.
pub(super) fn call_in_place(rt: &mut Runtime, name: &str, given: &[Arg]) -> Result<()> {
    applied(rt, name, given, true).map(drop)
}

fn applied(rt: &mut Runtime, name: &str, given: &[Arg], in_place: bool) -> Result<Out> {
    let op = found(name)?;
    if given.len() >= op.params.len() {
        return applied_to(rt, op, given, in_place);
    }
    let mut bound: SmallVec<[Arg; 6]> = SmallVec::new();
    given.iter().for_each(|arg| bound.push(arg.clone()));
    completed(rt, op, bound, in_place)
}

fn found(name: &str) -> Result<&'static Op> {
    table::find(name).ok_or_else(|| error::wrong_argument(0, "an operation"))
}

/// Applies an operation to these arguments, with defaults for those that are left out.
fn completed(
    rt: &mut Runtime,
    op: &'static Op,
    mut bound: SmallVec<[Arg; 6]>,
    in_place: bool,
) -> Result<Out> {
    let left_out = op.params.get(bound.len()..).unwrap_or_default();
    left_out.iter().for_each(|param| bound.push(default_arg(param.default)));
    applied_to(rt, op, &bound, in_place)
}

fn applied_to(rt: &mut Runtime, op: &'static Op, args: &[Arg], in_place: bool) -> Result<Out> {
    let call = if in_place { Call::InPlace(Args(args)) } else { Call::Plain(Args(args)) };
    apply(rt, op, call).map_err(|e| of_step(e, op.name, rt.written()))
}

/// An error of an operation as one of the operation `whole` that called it: operands that the script did not write are
/// not described.
#[cold]
fn of_step(error: Error, step: &str, whole: Option<&str>) -> Error {
    if error.is_located() || error.kind() == ErrorKind::Race {
        return error;
    }
    let error = error.without_operands().passed(|_| (0, 0));
    match whole {
        Some(whole) if whole != step => {
            let (step, whole) = (format!("`{step}`"), format!("`{whole}`"));
            error.rewrite(|text| text.replace(&step, &whole))
        }
        _ => error,
    }
}

/// The result of an operation that must return new memory: copied if it shares the memory of `x`, as a result that
/// equals `x` may.
pub(super) fn apart(rt: &mut Runtime, x: &Tensor, result: Tensor) -> Result<Tensor> {
    match result.storage_ref().is(x.storage()) {
        true => call(rt, "clone", &[t(&result)]),
        false => Ok(result),
    }
}

/// The tensor that an operation returns; the first if it returns several.
pub(super) fn call(rt: &mut Runtime, name: &str, given: &[Arg]) -> Result<Tensor> {
    out_of(rt, name, given).and_then(first_of)
}

/// [`call`] with arguments that nothing else needs.
pub(super) fn call_with(rt: &mut Runtime, name: &str, given: SmallVec<[Arg; 6]>) -> Result<Tensor> {
    completed(rt, found(name)?, given, false).and_then(first_of)
}

fn first_of(out: Out) -> Result<Tensor> {
    let found = match out {
        Out::Tensor(tensor) => Some(tensor),
        Out::Tuple(all) | Out::Record(_, all) => all.into_iter().next(),
        _ => None,
    };
    found.ok_or_else(|| error::wrong_argument(0, "an operation that gives tensors"))
}

/// The argument that a parameter gets when it is left out.
pub(crate) fn default_arg(default: Default) -> Arg {
    match default {
        Default::Required | Default::None | Default::Absent => Arg::None,
        Default::Bool(b) => Arg::Bool(b),
        Default::Int(i) => Arg::Int(i),
        Default::Float(f) => Arg::Float(f),
        Default::Str(s) => Arg::Str(s.into()),
    }
}

/// A number as an argument.
pub(super) fn number(number: Scalar) -> Arg {
    match number {
        Scalar::Bool(b) => Arg::Bool(b),
        Scalar::Int(i) => Arg::Int(i),
        other => Arg::Float(other.as_f64()),
    }
}

/// The elements in another shape.
pub(super) fn reshape(rt: &mut Runtime, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    call(rt, "reshape", &[t(x), ints(shape)])
}

/// The dimensions in another order.
pub(super) fn permute(rt: &mut Runtime, x: &Tensor, order: &[usize]) -> Result<Tensor> {
    call(rt, "permute", &[t(x), ints(order)])
}

/// Stretched to a shape.
pub(super) fn expand(rt: &mut Runtime, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    call(rt, "expand", &[t(x), ints(shape)])
}

/// A range of a dimension.
pub(super) fn narrow(
    rt: &mut Runtime,
    x: &Tensor,
    dim: usize,
    start: usize,
    length: usize,
) -> Result<Tensor> {
    call(rt, "narrow", &[t(x), Arg::Int(dim as i64), Arg::Int(start as i64), Arg::Int(length as i64)])
}

/// One position of a dimension.
pub(super) fn select(rt: &mut Runtime, x: &Tensor, dim: usize, at: usize) -> Result<Tensor> {
    call(rt, "select", &[t(x), Arg::Int(dim as i64), Arg::Int(at as i64)])
}

/// A new dimension of extent 1.
pub(super) fn unsqueeze(rt: &mut Runtime, x: &Tensor, at: usize) -> Result<Tensor> {
    call(rt, "unsqueeze", &[t(x), Arg::Int(at as i64)])
}

/// Converted to a dtype.
pub(super) fn to(rt: &mut Runtime, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
    if x.dtype() == dtype { Ok(x.clone()) } else { call(rt, "to", &[t(x), Arg::Dtype(dtype)]) }
}

/// Sizes or positions as an argument.
pub(super) fn ints(sizes: &[usize]) -> Arg {
    Arg::Ints(sizes.iter().map(|&n| n as i64).collect())
}

/// A tensor as an argument.
pub(super) fn t(x: &Tensor) -> Arg {
    Arg::Tensor(x.clone())
}
