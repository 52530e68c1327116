//! Derivatives of sampled functions: differences of neighbours, over their distance.

use super::formula::{Formula, formula};
use super::gradient::Var;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, dims, error};
use crate::array::Dtype;
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: "gradient",
    doc: "Estimates the derivative of a sampled function along each dimension, or those in `dim`, as a tuple of tensors. \
          `spacing` is the distance between samples: a number, or a list with one entry for each dimension, a number or \
          the coordinates of the samples, a vector. At the ends the estimate is one-sided, and exact for polynomials of \
          degree `edge_order`, 1 or 2. Gradients of programs are computed by `grad` and `backward`. Source: \
          `torch.gradient`.",
    search: &["derivative", "finite differences", "slope", "diff"],
    params: &[
        X,
        Param::named("spacing", Kind::Tensors, Default::Float(1.0)),
        Param::named("dim", Kind::Dims, Default::None),
        Param::named("edge_order", Kind::Int, Default::Int(1)),
    ],
    form: Form::FUNCTION,
    example: "assert(equal(gradient(tensor([1.0, 2.0, 4.0, 7.0]))[0], [1.0, 1.5, 2.5, 3.0]))\n\
              let (rows, columns) = gradient(tensor([[0.0, 1.0], [4.0, 7.0]]), spacing=[2.0, tensor([0.0, 0.5])])\n\
              assert(equal(rows, [[2.0, 3.0], [2.0, 3.0]]) and equal(columns, [[2.0, 2.0], [6.0, 6.0]]))",
    run: Run::Composed(gradient),
    gradient: Gradient::Composed,
    ..Op::BASE
}];

fn gradient(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    error::refuse_bool("gradient", 0, given)?;
    // Differences of narrow integers would wrap.
    let x = &if given.dtype().is_int() { rt.convert(given, Dtype::I64)? } else { given.clone() };
    let order = match args.int(3)? {
        order @ (1 | 2) => order as usize,
        other => {
            return Err(error::bad_value(3, format!("an edge order is 1 or 2, not {other}"), "write 1 or 2"));
        }
    };
    let mut along = Vec::new();
    match args.ints(2) {
        None => along.extend(0..x.rank()),
        // In the order in which they are given.
        Some(dims) => {
            for &dim in dims {
                let dim = dims::one(2, dim, x.rank())?;
                if along.contains(&dim) {
                    return Err(error::dim_twice(2, dim));
                }
                along.push(dim);
            }
        }
    }
    let steps = match args.get(1) {
        Arg::Tensors(steps) if steps.len() == along.len() => steps.iter().cloned().map(Arg::Tensor).collect(),
        Arg::Tensors(steps) => {
            let why = format!("there are {} spacings for {} dimensions", steps.len(), along.len());
            return Err(error::bad_value(
                1,
                why,
                "give one number, or a list with one entry for each dimension",
            ));
        }
        number => vec![number.clone(); along.len()],
    };
    let mut found = Vec::new();
    for (&dim, step) in along.iter().zip(steps) {
        let count = x.shape()[dim];
        if count <= order {
            let why =
                format!("dimension {dim} has {count} samples, and `gradient` needs {} or more", order + 1);
            return Err(error::bad_value(0, why, "give more samples, or name other dimensions: `dim=`"));
        }
        found.push(match &step {
            Arg::Tensor(places) if places.rank() > 0 => {
                if places.shape()[..] != [count] {
                    let why = format!("the coordinates of dimension {dim} are {}", places.describe());
                    return Err(error::bad_value(
                        1,
                        why,
                        format!("give a vector of {count}, one for each sample"),
                    ));
                }
                formula(rt, |f| uneven(f, x, dim as i64, places, order))?
            }
            _ => formula(rt, |f| even(f, x, dim as i64, &step, order))?,
        });
    }
    Ok(Out::Tuple(found))
}

/// Samples at equal distances.
fn even<'f>(f: &'f Formula<'_>, x: &Tensor, dim: i64, step: &Arg, order: usize) -> Var<'f> {
    let count = x.shape()[dim as usize] as i64;
    let x = f.var(x);
    let at = |i: i64| x.narrow(dim, i, 1);
    let (first, last) = match order {
        1 => (at(1) - at(0), at(count - 1) - at(count - 2)),
        _ => (
            at(1) * 2.0 - at(0) * 1.5 - at(2) * 0.5,
            at(count - 1) * 1.5 - at(count - 2) * 2.0 + at(count - 3) * 0.5,
        ),
    };
    let middle = (x.narrow(dim, 2, count - 2) - x.narrow(dim, 0, count - 2)) / step.clone() * 0.5;
    joined(f, [first / step.clone(), middle, last / step.clone()], dim)
}

/// Samples at the coordinates `places`.
fn uneven<'f>(f: &'f Formula<'_>, x: &Tensor, dim: i64, places: &Tensor, order: usize) -> Var<'f> {
    let count = x.shape()[dim as usize] as i64;
    let mut shape = vec![1; x.rank()];
    shape[dim as usize] = count - 1;
    let steps = f.var(places).call("diff", &[]).reshape(&shape);
    let x = f.var(x);
    let at = |i: i64| x.narrow(dim, i, 1);
    let step = |i: i64, length: i64| steps.narrow(dim, i, length);
    let (first, last) = match order {
        1 => {
            let (a, b) = (step(0, 1), step(count - 2, 1));
            ((at(1) - at(0)) / a, (at(count - 1) - at(count - 2)) / b)
        }
        _ => {
            let (a, b) = (step(0, 1), step(1, 1));
            let both = &a + &b;
            let first =
                at(1) * &both / (&a * &b) - at(0) * (&a + &both) / (&a * &both) - at(2) * &a / (&b * &both);
            let (a, b) = (step(count - 3, 1), step(count - 2, 1));
            let both = &a + &b;
            let last = at(count - 3) * &b / (&a * &both) - at(count - 2) * &both / (&a * &b)
                + at(count - 1) * (&b + &both) / (&b * &both);
            (first, last)
        }
    };
    let (a, b) = (step(0, count - 2), step(1, count - 2));
    let both = &a + &b;
    let of = |i: i64| x.narrow(dim, i, count - 2);
    let middle = of(2) * &a / (&b * &both) + of(1) * (&b - &a) / (&a * &b) - of(0) * &b / (&a * &both);
    joined(f, [first, middle, last], dim)
}

fn joined<'f>(f: &'f Formula<'_>, parts: [Var<'f>; 3], dim: i64) -> Var<'f> {
    let parts = parts.iter().filter_map(|x| x.get().cloned()).collect();
    f.op("cat", &[Arg::Tensors(parts), Arg::Int(dim)])
}
