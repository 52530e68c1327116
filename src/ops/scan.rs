//! Running sums and products.

use super::folds::SUM;
use super::params::{DTYPE, X};
use super::reduce::PROD;
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Op, Out, Run, complex, dims};
use crate::array::{Dims, Dtype, Strides};
use crate::base::Result;
use crate::kernel::{Body, ReduceFn, Scan};
use crate::plan::error::not_over_complex;
use crate::plan::{Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::smallvec;

const PARAMS: &[Param] = &[X, Param::new("dim", Kind::Int), DTYPE];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "cumsum",
        doc: "Gives running sums along a dimension: element i is the sum of the elements up to i. Integers and bools \
              give `i64`. Source: `torch.cumsum`.",
        search: &["running total", "prefix sum", "cumulative", "scan", "integral"],
        params: PARAMS,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 2, 3]).cumsum(0), [1, 3, 6]))",
        run: Run::Call(|rt, args| running(rt, "cumsum", &SUM, args)),
    },
    Op {
        name: "cumprod",
        doc: "Gives running products along a dimension. Integers and bools give `i64`. Source: `torch.cumprod`.",
        search: &["running product", "cumulative", "scan"],
        params: PARAMS,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 2, 3]).cumprod(0), [1, 2, 6]))",
        run: Run::Call(|rt, args| running(rt, "cumprod", &PROD, args)),
    },
];

fn running(rt: &mut Runtime, name: &'static str, f: &'static ReduceFn, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    let dim = dims::one(1, args.int(1)?, given.rank())?;
    if complex::is_summed(given, args.dtype(2)) {
        if !std::ptr::eq(f, &SUM) {
            return Err(not_over_complex(name, given.dtype().complex()));
        }
        return complex::by_parts(rt, given, args.dtype(2), |rt, parts| {
            match running(rt, name, f, &Args(&[Arg::Tensor(parts.clone()), Arg::Int(dim as i64)]))? {
                Out::Tensor(sums) => Ok(sums),
                _ => Ok(parts.clone()),
            }
        });
    }
    let natural = if given.dtype().is_float() { given.dtype() } else { Dtype::I64 };
    let dtype = args.dtype(2).unwrap_or(natural);
    if given.rank() == 0 {
        return rt.convert(given, dtype).map(Out::Tensor);
    }
    let x = if given.dtype() == dtype { given.clone() } else { rt.convert(given, dtype)? };
    if x.count() == 0 {
        return rt.empty(x.shape(), dtype, x.device()).map(Out::Tensor);
    }
    let out = rt.fresh(x.shape(), dtype, x.device())?;
    let (shape, own) = last(&x, dim);
    let (_, target) = last(&out, dim);
    let views = smallvec![
        SubmittedView { tensor: &x, strides: own, write: false },
        SubmittedView { tensor: &out, strides: target, write: true },
    ];
    let body = Body::Scan(Scan { f, dtype });
    rt.submit(Submission { name, body, shape, views, axis: 0, limit: 0 })?;
    Ok(Out::Tensor(out))
}

/// Shape and strides with one dimension moved to the end.
pub(super) fn last(x: &Tensor, dim: usize) -> (Dims, Strides) {
    let order: Dims = (0..x.rank()).filter(|&d| d != dim).chain([dim]).collect();
    let layout = x.layout().permute(&order);
    (layout.shape, layout.strides)
}
