//! Assertions that are tested on the device.
//!
//! The condition is not copied to the host. A kernel that finds it false reports a fault, and the next wait
//! raises the fault at the line of the assertion.

use super::compare::EQ;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dtype, Scalar};
use crate::base::{Result, Span};
use crate::driver::DeviceId;
use crate::kernel::Gather;
use crate::plan::{MapArg, Runtime, Submission, SubmittedView};
use crate::stream::Meaning;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: "assert_async",
    doc: "Asserts that a tensor of one element is true, without waiting for it: where it is false, the next wait \
          for its device raises an error of kind `Assert` at this line. On the host it is tested at once. \
          Source: `torch._assert_async`.",
    search: &["check", "assert", "condition", "debug", "device-side"],
    params: &[
        Param { name: "condition", ..X },
        Param::or("text", Kind::Str, Default::Str("assertion failed on the device")),
    ],
    form: Form::FUNCTION,
    example: "let x = tensor([1.0, 2.0])\nassert_async((x > 0).all(), \"all numbers are positive\")\ncuda.synchronize()",
    run: Run::Primitive(assert_async),
    gradient: Gradient::Constant,
    ..Op::BASE
}];

fn assert_async(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let condition = args.tensor(0)?;
    let text = args.text(1).unwrap_or("");
    if condition.count() != 1 {
        let message = format!("{} has no single truth value", condition.describe());
        return Err(error::bad_value(0, message, "say which one is meant: `x.all()` or `x.any()`"));
    }
    holds(rt, condition, text).map(|()| Out::None)
}

/// Asserts that a tensor of one element is true, without waiting for it on a device.
pub(super) fn holds(rt: &mut Runtime, condition: &Tensor, text: &str) -> Result<()> {
    const NAME: &str = "assert_async";
    if condition.device() == DeviceId::Cpu {
        return match rt.item(condition)?.is_zero() {
            false => Ok(()),
            true => Err(crate::driver::error::assertion_failed(text, Span::NONE)),
        };
    }
    // Gather from one element at position 0, or at position 1 (out of range) if the condition is false.
    let zero = MapArg::Number(Scalar::Int(0));
    let operands = [MapArg::Tensor(condition), zero];
    let fails = rt.map(NAME, &EQ, &operands, condition.dtype(), Dtype::Bool)?;
    let position = rt.convert(&fails, Dtype::I64)?;
    let shape = position.shape().clone();
    let out = rt.fresh(&shape, Dtype::I64, condition.device())?;
    let strides = smallvec![0; shape.len()];
    let source = SubmittedView { tensor: &position, strides, write: false };
    let views = smallvec![source, SubmittedView::read(&position), SubmittedView::write(&out)];
    let kind = &Gather { dtype: Dtype::I64 };
    let work = Submission { name: NAME, kind, shape, views, axis: 0, limit: 1 };
    rt.submit_meaning(work, Meaning::Assertion(text.into()))
}
