//! The most frequent element along a dimension, composed of sorts.

use super::composed::{apart, call, out_of, t};
use super::formula::formula;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, dims, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::plan::Runtime;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "msort",
        doc: "Sorts along the first dimension. Source: `torch.msort`.",
        search: &["order", "ascending", "rows"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(equal(msort(tensor([[3, 1], [2, 5]])), [[2, 1], [3, 5]]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            if x.rank() == 0 {
                return apart(rt, x, x.clone()).map(Out::Tensor);
            }
            call(rt, "sort", &[t(x), Arg::Int(0)]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "mode",
        doc: "Returns the most frequent element along a dimension (the smallest one if there are several) and the \
              position of its last occurrence: a record of `values` and `indices`. Source: `torch.mode`.",
        search: &["most common", "frequent", "majority", "vote"],
        params: &[
            X,
            Param::or("dim", Kind::Int, Default::Int(-1)),
            Param::or("keepdim", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::BOTH,
        example: "let m = mode(tensor([3, 1, 2, 1]))\nassert(m.values.item() == 1 and m.indices.item() == 3)",
        run: Run::Composed(mode),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

fn mode(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAMES: &[&str] = &["values", "indices"];
    let (x, keep) = (args.tensor(0)?, args.flag(2));
    let dim = dims::one(1, args.int(1)?, x.rank())? as i64;
    if x.rank() == 0 {
        let first = super::make::filled(rt, &[], Dtype::I64, x.device(), Scalar::Int(0))?;
        return Ok(Out::Record(NAMES, vec![apart(rt, x, x.clone())?, first]));
    }
    let extent = x.shape()[dim as usize] as i64;
    if extent == 0 {
        return Err(error::bad_value(1, "the most frequent of no elements", "give at least one"));
    }
    let plain = super::gradient::detach(x);
    let Out::Record(_, sorted) = out_of(rt, "sort", &[t(&plain), Arg::Int(dim)])? else {
        return Err(error::wrong_argument(0, "an operation that gives a record"));
    };
    let indices = formula(rt, |f| {
        let (values, order) = (f.var(&sorted[0]), f.var(&sorted[1]));
        // The distance of each element from the first of its run of equal elements; the longest run ends at the maximum
        // distance.
        let device = Arg::Device(x.device());
        let place = f.op("arange", &[Arg::Int(extent), Arg::None, Arg::Int(1), Arg::None, device]);
        let mut shape = vec![1; x.rank()];
        shape[dim as usize] = extent;
        let place = place.reshape(&shape).expand(&values.shape());
        let begins = values.narrow(dim, 1, extent - 1).ne(values.narrow(dim, 0, extent - 1));
        let later = f.select(&begins, place.narrow(dim, 1, extent - 1), 0i64);
        let first = place.narrow(dim, 0, 1);
        let both = [first, later].into_iter().filter_map(|x| x.get().cloned()).collect();
        let starts = f.op("cat", &[Arg::Tensors(both), Arg::Int(dim)]).call("cummax", &[Arg::Int(dim)]);
        let at = (place - starts).call("argmax", &[Arg::Int(dim), Arg::Bool(true)]);
        order.call("gather", &[Arg::Int(dim), at.arg()])
    })?;
    let values = call(rt, "gather", &[t(x), Arg::Int(dim), t(&indices)])?;
    if keep {
        return Ok(Out::Record(NAMES, vec![values, indices]));
    }
    let both = [values, indices]
        .iter()
        .map(|x| call(rt, "squeeze", &[t(x), Arg::Ints(vec![dim])]))
        .collect::<Result<_>>()?;
    Ok(Out::Record(NAMES, both))
}
