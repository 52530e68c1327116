//! Sums, means and maxima of rows selected by index (embedding bags).

use super::composed::{call, ints, narrow, t};
use super::formula::{Formula, formula};
use super::gradient::Var;
use super::make::filled;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, error, shape};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: "embedding_bag",
    doc: "Looks up rows of `weight` and combines the rows of each bag: `mode` is `\"sum\"`, `\"mean\"` or `\"max\"`. A \
          matrix of `ids` has a bag per row. A vector has bags that begin at `offsets`, which ascend from 0; with \
          `include_last_offset` the last offset is the end. Rows are multiplied by `per_sample_weights`, of the shape \
          of `ids`, before they are summed. Ids equal to `padding_idx` are left out, and a bag without ids is 0. Other \
          options are those of `embedding`. Source: `torch.nn.functional.embedding_bag`.",
    search: &["lookup", "segment sum", "sparse features", "EmbeddingBag"],
    params: &[
        Param::new("ids", Kind::Tensor),
        Param::new("weight", Kind::Tensor),
        Param::or("offsets", Kind::Tensor, Default::None),
        Param::or("max_norm", Kind::Float, Default::None),
        Param::or("norm_type", Kind::Float, Default::Float(2.0)),
        Param::or("scale_grad_by_freq", Kind::Bool, Default::Bool(false)),
        Param::or("mode", Kind::Str, Default::Str("mean")),
        Param::or("sparse", Kind::Bool, Default::Bool(false)),
        Param::or("per_sample_weights", Kind::Tensor, Default::None),
        Param::or("include_last_offset", Kind::Bool, Default::Bool(false)),
        Param::or("padding_idx", Kind::Int, Default::None),
    ],
    form: Form::BOTH,
    example: "let weight = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])\n\
              assert(equal(embedding_bag([[0, 2], [1, 1]], weight), [[3.0, 4.0], [3.0, 4.0]]))\n\
              assert(equal(embedding_bag([0, 2, 1], weight, [0, 2], mode=\"sum\"), [[6.0, 8.0], [3.0, 4.0]]))\n\
              assert(equal(embedding_bag([0, 2, 1], weight, [0, 2], mode=\"max\"), [[5.0, 6.0], [3.0, 4.0]]))",
    run: Run::Composed(|rt, args| bags(rt, args).map(Out::Tensor)),
    gradient: Gradient::Composed,
    ..Op::BASE
}];

fn bags(rt: &mut Runtime, args: &Args<'_>) -> Result<Tensor> {
    const NAME: &str = "embedding_bag";
    let (ids, weight) = (args.tensor(0)?, args.tensor(1)?);
    let (offsets, factors) = (args.opt_tensor(2), args.opt_tensor(8));
    let mode = args.text(6).unwrap_or("mean");
    if !["sum", "mean", "max"].contains(&mode) {
        return Err(error::not_one_of(6, "mode", mode, &["sum", "mean", "max"]));
    }
    if weight.rank() != 2 {
        return Err(error::wrong_rank(NAME, 1, weight, "a matrix", "its rows are looked up"));
    }
    match (ids.rank(), offsets) {
        (1, Some(offsets)) if offsets.rank() == 1 => {}
        (1, Some(offsets)) => {
            return Err(error::wrong_rank(
                NAME,
                2,
                offsets,
                "a vector of offsets",
                "give where each bag begins",
            ));
        }
        (2, None) => {}
        (2, Some(offsets)) => {
            let help = "the rows of `ids` are bags already: leave `offsets` out, or pass `ids.flatten()`";
            return Err(error::wrong_tensor(2, "`none`", offsets, help));
        }
        _ => {
            let help = "give a matrix of bags, or a vector and `offsets`";
            return Err(error::wrong_rank(NAME, 0, ids, "two dimensions, or one with `offsets`", help));
        }
    }
    if let Some(factors) = factors {
        if mode != "sum" {
            let message = format!("`per_sample_weights` with mode=\"{mode}\"");
            return Err(error::bad_value(8, message, "only sums are weighted: write `mode=\"sum\"`"));
        }
        if factors.shape() != ids.shape() {
            return Err(error::wrong_tensor(
                8,
                "a factor for each id",
                factors,
                "give it the shape of `ids`",
            ));
        }
    }
    if let Some(factors) =
        factors.filter(|factors| !weight.dtype().is_float() && factors.dtype() != weight.dtype())
    {
        return Err(error::dtypes_differ(NAME, (1, weight), (8, factors)));
    }
    let padding = match args.opt_int(10) {
        Some(padding) => Some(shape::position(10, padding, 0, weight.shape()[0])? as i64),
        None => None,
    };
    let (count, width) = (ids.count() as i64, weight.shape()[1] as i64);
    let last = usize::from(args.flag(9));
    let (many, each) = match offsets {
        Some(offsets) => match offsets.count().checked_sub(last) {
            Some(many) => (many as i64, 0),
            None => {
                return Err(error::wrong_tensor(
                    2,
                    "at least one offset",
                    offsets,
                    "give where the last bag ends",
                ));
            }
        },
        None => (ids.shape()[0] as i64, ids.shape()[1] as i64),
    };
    if let Some(offsets) = offsets.filter(|offsets| many > 0 && offsets.count() > 0) {
        let fits = ascend(rt, offsets, count)?;
        let text = "the offsets of `embedding_bag` begin at 0, ascend, and are at most the number of ids";
        super::assertion::holds(rt, &fits, text)?;
    }
    let device = weight.device();
    formula(rt, |f| {
        let flat = f.var(ids).reshape(&[count]);
        let index = padding.map_or(Arg::None, Arg::Int);
        let options = [args.get(3).clone(), args.get(4).clone(), args.get(5).clone(), args.get(7).clone()];
        let rows = f.op("embedding", &[&[flat.arg(), t(weight), index], &options[..]].concat());
        // Sums of halves keep their precision.
        let rows = rows.wide();
        let dtype = rows.dtype();
        let rows = match factors {
            Some(factors) => rows * f.var(factors).to(dtype).reshape(&[count, 1]),
            None => rows,
        };
        let places =
            || f.op("arange", &[Arg::Int(count), Arg::None, Arg::Int(1), Arg::None, Arg::Device(device)]);
        // Ids from the last offset on belong to no bag, if it is an end.
        let before_end =
            offsets.filter(|_| last == 1).map(|offsets| places().lt(f.var(offsets).narrow(0, many, 1)));
        let kept = match (padding.map(|padding| flat.ne(padding)), before_end) {
            (Some(one), Some(other)) => Some(one.call("logical_and", &[other.arg()])),
            (one, other) => one.or(other),
        };
        let kept = kept.map(|kept| kept.unsqueeze(1));
        let rows = match &kept {
            Some(kept) => f.select(kept, &rows, if mode == "max" { f64::NEG_INFINITY } else { 0.0 }),
            None => rows,
        };
        // For ids in a vector: the bag of each id.
        let bag = offsets.map(|offsets| {
            let starts = f.var(offsets).narrow(0, 0, many);
            f.op("searchsorted", &[starts.arg(), places().arg(), Arg::Bool(false), Arg::Bool(true)]) - 1
        });
        let total = |x: &Var<'_>| total(f, x, bag.as_ref(), [many, each], device);
        // The number of ids of each bag.
        let sizes = || {
            let ones = match &kept {
                Some(kept) => kept.to(Dtype::F32),
                None => f.given(|rt| filled(rt, &[count as usize, 1], Dtype::F32, device, Scalar::Int(1))),
            };
            total(&ones)
        };
        let found = match mode {
            "sum" => total(&rows),
            "mean" => total(&rows) / sizes().call("clamp_min", &[Arg::Int(1)]).to(dtype),
            _ if count == 0 => zeros(f, [many, width], dtype, device),
            _ => {
                let most = match &bag {
                    Some(bag) => {
                        let bag = bag.unsqueeze(1).expand(&[count, width]).arg();
                        let how = [Arg::Int(0), bag, rows.arg(), Arg::Str("amax".into()), Arg::Bool(false)];
                        zeros(f, [many, width], dtype, device).call("scatter_reduce", &how)
                    }
                    None => rows.reshape(&[many, each, width]).call("amax", &[ints(&[1])]),
                };
                match kept {
                    Some(_) => f.select(&sizes().gt(0.0), most, 0.0),
                    None => most,
                }
            }
        };
        found.to(weight.dtype())
    })
}

fn zeros<'f>(f: &'f Formula<'_>, shape: [i64; 2], dtype: Dtype, device: DeviceId) -> Var<'f> {
    let shape = shape.map(|extent| extent as usize);
    f.given(|rt| filled(rt, &shape, dtype, device, Scalar::Int(0)))
}

/// Whether offsets begin at 0, ascend, and are at most the number of ids.
fn ascend(rt: &mut Runtime, offsets: &Tensor, ids: i64) -> Result<Tensor> {
    let count = offsets.count();
    let (first, last) = (narrow(rt, offsets, 0, 0, 1)?, narrow(rt, offsets, 0, count - 1, 1)?);
    let first = call(rt, "eq", &[t(&first), Arg::Int(0)])?;
    let last = call(rt, "le", &[t(&last), Arg::Int(ids)])?;
    let ends = call(rt, "logical_and", &[t(&first), t(&last)])?;
    let steps = call(rt, "diff", &[t(offsets)])?;
    let steps = call(rt, "ge", &[t(&steps), Arg::Int(0)])?;
    let steps = call(rt, "all", &[t(&steps)])?;
    call(rt, "logical_and", &[t(&ends), t(&steps)])
}

/// The sum of the rows of each bag. `bag` has the bag of each row; without it, every `each` consecutive rows are a bag.
fn total<'f>(
    f: &'f Formula<'_>,
    rows: &Var<'_>,
    bag: Option<&Var<'_>>,
    [many, each]: [i64; 2],
    device: DeviceId,
) -> Var<'f> {
    let width = rows.shape().get(1).copied().unwrap_or(0);
    match bag {
        Some(bag) => {
            let sums = zeros(f, [many, width], rows.dtype(), device);
            sums.call("index_add", &[Arg::Int(0), bag.arg(), rows.arg()])
        }
        None => {
            let shape = Arg::Ints(vec![many, each, width]);
            f.op("reshape", &[rows.arg(), shape]).sum(&[1], false)
        }
    }
}
