//! The next number of a float dtype: elementwise work on the bits of floats.

use super::formula::formula;
use super::map::rank;
use super::params::X_OR_NUMBER;
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dtype, result_type};
use crate::base::Result;
use crate::plan::Runtime;

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: "nextafter",
    doc: "Returns the number of the dtype that follows `x` on the way to `other`. It is `other` if they are equal, and nan if \
          one of them is. Source: `torch.nextafter`.",
    search: &["ulp", "successor", "neighbour", "rounding"],
    params: &[X_OR_NUMBER, Param::new("other", Kind::TensorOrNumber)],
    form: Form::BOTH,
    example: "assert(nextafter(tensor(1.0), 2.0).item() == 1 + finfo(f32).eps)\n\
              assert(equal(nextafter(f64[0.0], -1.0), f64[-5e-324]))",
    run: Run::Composed(nextafter),
    gradient: Gradient::Missing(
        "the next number does not vary smoothly; write `nextafter(x.detach(), other)`",
    ),
    ..Op::BASE
}];

fn nextafter(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let dtype = result_type([args.operand(0)?, args.operand(1)?].iter().map(rank));
    if !dtype.is_float() {
        return Err(match args.opt_tensor(0).or(args.opt_tensor(1)) {
            Some(x) => error::floats_alone("nextafter", usize::from(args.opt_tensor(0).is_none()), x),
            None => error::wrong_argument(0, "a float"),
        });
    }
    let (bits, sign) = match dtype.size() {
        2 => (Dtype::I16, i64::from(i16::MIN)),
        4 => (Dtype::I32, i64::from(i32::MIN)),
        _ => (Dtype::I64, i64::MIN),
    };
    let found = formula(rt, |f| {
        let operand = |i: usize| match args.get(i) {
            Arg::Tensor(x) => f.var(x).to(dtype),
            number => f.op("full", &[Arg::Ints(Vec::new()), number.clone(), Arg::Dtype(dtype)]),
        };
        let (x, other) = (operand(0), operand(1));
        // The bits of floats without their sign ascend with their magnitude.
        let own = x.call("view", &[Arg::Dtype(bits)]);
        let away = x.gt(0.0).call("eq", &[other.gt(&x).arg()]);
        let step = |n: i64| own.call("add", &[Arg::Int(n)]);
        let next = f.select(&away, step(1), step(-1));
        let least =
            |bits_of: i64| f.op("full", &[Arg::Ints(Vec::new()), Arg::Int(bits_of), Arg::Dtype(bits)]);
        let first = f.select(&other.gt(0.0), least(1), least(sign + 1));
        let next = f.select(&x.eq(0.0), first, next).call("view", &[Arg::Dtype(dtype)]);
        let next = f.select(&x.eq(&other), &other, &next);
        f.select(&x.ne(&x).call("logical_or", &[other.ne(&other).arg()]), f64::NAN, &next).to(dtype)
    });
    found.map(Out::Tensor)
}
