//! Histograms with their edges: `torch.histogram`.
//!
//! Composed of other operations; nothing here waits for a device, even when the range is computed from the
//! elements. Invariant: each element is counted in the bin whose edges enclose it exactly, found by binary
//! search.

use super::composed::{call, t};
use super::folds::SUM;
use super::index::Along;
use super::make::{filled, positions};
use super::params::X;
use super::scatter::scatter_into;
use super::shape::{narrowed, reshaped};
use super::signature::{Default, Kind, Param};
use super::sort::{FEW_COUNTS, counts};
use super::{Arg, Args, Data, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

const NAME: &str = "histogram";

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: NAME,
    doc: "Counts the elements between edges: `bins` equal parts of `range` (by default from the minimum to the \
          maximum), or the parts between the ascending edges that `bins` lists. A part contains its lower edge; the \
          last one contains its upper edge too. Elements outside, and nan, are not counted. Returns `hist` and \
          `bin_edges`, one edge more than parts, in the dtype of `x`, f32 or f64. `weight` has the weight of each \
          element; with `density` the counts are fractions of the total, each divided by the width of its part. \
          Source: `torch.histogram`.",
    search: &["histc", "count", "distribution", "bins", "density", "frequency"],
    params: &[
        X,
        Param::or("bins", Kind::TensorOrNumber, Default::Int(100)),
        Param::named("range", Kind::Data, Default::None),
        Param::named("weight", Kind::Tensor, Default::None),
        Param::named("density", Kind::Bool, Default::Bool(false)),
    ],
    form: Form::BOTH,
    example: "let (hist, bin_edges = edges) = histogram(tensor([1.0, 2.0, 1.0]), bins=4, range=(0, 3))\n\
              assert(equal(hist, [0.0, 2.0, 1.0, 0.0]))\nassert(equal(edges, [0.0, 0.75, 1.5, 2.25, 3.0]))\n\
              assert(equal(histogram(tensor([1.0, 2.0, 1.0]), [0.0, 2.0, 4.0]).hist, [2.0, 1.0]))",
    run: Run::Composed(histogram),
    gradient: Gradient::Constant,
    ..Op::BASE
}];

fn histogram(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    let dtype = given.dtype();
    if !matches!(dtype, Dtype::F32 | Dtype::F64) {
        return Err(error::floats_alone(NAME, 0, given));
    }
    let x = reshaped(rt, given, &[given.count()])?;
    let edges = edges(rt, args, &x)?;
    let bins = edges.count().saturating_sub(1);
    let weight = match args.opt_tensor(3) {
        Some(weight) if weight.shape() != given.shape() => {
            let (own, wanted) = (weight.shape().as_slice(), given.shape().as_slice());
            let message = format!("weights of the shape {own:?} for elements of the shape {wanted:?}");
            return Err(error::bad_value(3, message, "each element has one weight"));
        }
        Some(weight) => {
            rt.common_device(NAME, [given, weight]).map_err(|e| e.reorder(&[0, 3]))?;
            let weight = reshaped(rt, weight, &[weight.count()])?;
            Some(rt.convert(&weight, dtype)?)
        }
        None => None,
    };
    let hist = match bins {
        0 => filled(rt, &[0], dtype, x.device(), Scalar::Int(0))?,
        _ => counted(rt, &x, &edges, weight)?,
    };
    let hist = if args.flag(4) { density(rt, &hist, &edges)? } else { hist };
    Ok(Out::Record(&["hist", "bin_edges"], vec![hist, edges]))
}

/// The ascending edges, in the dtype of the elements `x`, a vector.
fn edges(rt: &mut Runtime, args: &Args<'_>, x: &Tensor) -> Result<Tensor> {
    let range = range(args)?;
    let bins = match args.get(1) {
        Arg::Tensor(edges) => {
            if edges.rank() != 1 || edges.count() == 0 {
                return Err(error::wrong_rank(
                    NAME,
                    1,
                    edges,
                    "a number of parts or a vector of edges",
                    "list them",
                ));
            }
            if range.is_some() {
                let help = "leave `range` out, or write a number of parts";
                return Err(error::bad_value(2, "a range together with a list of edges", help));
            }
            rt.common_device(NAME, [x, edges])?;
            return rt.convert(edges, x.dtype());
        }
        Arg::Int(bins) if (1..=i64::from(u32::MAX)).contains(bins) => *bins,
        _ => {
            let bins = args.float(1)?;
            return Err(error::bad_value(
                1,
                format!("{bins} parts"),
                "write an int of 1 or more, or a list of edges",
            ));
        }
    };
    let (dtype, device) = (x.dtype(), x.device());
    match range.or((x.count() == 0).then_some((0.0, 1.0))) {
        Some((low, high)) => {
            // Widen an empty range, as NumPy does.
            let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
            let ends = [Arg::Float(low), Arg::Float(high), Arg::Int(bins + 1)];
            call(rt, "linspace", &[&ends[..], &[Arg::Dtype(dtype), Arg::Device(device)]].concat())
        }
        None => between(rt, x, bins),
    }
}

/// Edges from the minimum to the maximum. Symmetric: the second half is computed backwards from the last
/// edge.
fn between(rt: &mut Runtime, x: &Tensor, bins: i64) -> Result<Tensor> {
    let (least, most) = super::statistics::ends(rt, x)?;
    let same = call(rt, "eq", &[t(&least), t(&most)])?;
    let same = rt.convert(&same, x.dtype())?;
    let half = call(rt, "mul", &[t(&same), Arg::Float(0.5)])?;
    let (low, high) = (call(rt, "sub", &[t(&least), t(&half)])?, call(rt, "add", &[t(&most), t(&half)])?);
    let width = call(rt, "sub", &[t(&high), t(&low)])?;
    let step = call(rt, "div", &[t(&width), Arg::Int(bins)])?;
    let at = positions(rt, x.device(), bins as usize + 1, 0, 1)?;
    let back = positions(rt, x.device(), bins as usize + 1, bins, -1)?;
    let is_lower = call(rt, "lt", &[t(&at), Arg::Int((bins + 1) / 2)])?;
    let forth = call(rt, "mul", &[t(&at), t(&step)])?;
    let forth = call(rt, "add", &[t(&low), t(&forth)])?;
    let back = call(rt, "mul", &[t(&back), t(&step)])?;
    let back = call(rt, "sub", &[t(&high), t(&back)])?;
    call(rt, "where", &[t(&is_lower), t(&forth), t(&back)])
}

/// The ends given by `range`.
fn range(args: &Args<'_>) -> Result<Option<(f64, f64)>> {
    let ends = match args.get(2) {
        Arg::None => return Ok(None),
        Arg::Data(Data::List(ends)) => match ends.as_slice() {
            [Data::Number(low), Data::Number(high)] => Some((low.as_f64(), high.as_f64())),
            _ => None,
        },
        _ => None,
    };
    let Some((low, high)) = ends else {
        return Err(error::bad_value(
            2,
            "a range has two numbers",
            "write the lower and the upper end: `(0, 1)`",
        ));
    };
    match low.is_finite() && high.is_finite() && low <= high {
        true => Ok(Some((low, high))),
        false => {
            let message = format!("there is no range from {low} to {high}");
            Err(error::bad_value(2, message, "write numbers, the lower one first"))
        }
    }
}

/// The bins of the elements; `outside` for those beyond the edges. A function, so that intermediate values are released
/// before the bins are counted, and not stored.
fn bins_of(rt: &mut Runtime, x: &Tensor, edges: &Tensor, outside: i64) -> Result<Tensor> {
    let bins = edges.count() - 1;
    let (first, last) = (narrowed(edges, 0, 0, 1), narrowed(edges, 0, bins, 1));
    let above = call(rt, "searchsorted", &[t(edges), t(x), Arg::Bool(false), Arg::Bool(true)])?;
    let inside = [call(rt, "ge", &[t(x), t(&first)])?, call(rt, "le", &[t(x), t(&last)])?];
    let inside = call(rt, "logical_and", &[t(&inside[0]), t(&inside[1])])?;
    let bin = call(rt, "sub", &[t(&above), Arg::Int(1)])?;
    let bin = call(rt, "clamp_max", &[t(&bin), Arg::Int(bins as i64 - 1)])?;
    let bin = call(rt, "where", &[t(&inside), t(&bin), Arg::Int(outside)])?;
    // The narrowest dtype that fits.
    if outside < 0 { rt.convert(&bin, Dtype::I16) } else { Ok(bin) }
}

/// The count or total weight in each bin; there are at least two edges.
fn counted(rt: &mut Runtime, x: &Tensor, edges: &Tensor, weight: Option<Tensor>) -> Result<Tensor> {
    let bins = edges.count() - 1;
    let few = weight.is_none() && bins <= FEW_COUNTS;
    // Elements outside are not counted, or go to an extra bin, which is dropped.
    let bin = bins_of(rt, x, edges, if few { -1 } else { bins as i64 })?;
    if few {
        let counts = counts(rt, NAME, &bin, bins)?;
        return rt.convert(&counts, x.dtype());
    }
    // Unweighted elements are counted as ints, without rounding.
    let one = match weight {
        Some(weight) => weight,
        None => filled(rt, &[], Dtype::I64, x.device(), Scalar::Int(1))?,
    };
    let all = filled(rt, &[bins + 1], one.dtype(), x.device(), Scalar::Int(0))?;
    scatter_into(rt, NAME, Along::dim(&all, 0), &bin, &one, Some(&SUM))?;
    let counts = call(rt, "clone", &[t(&narrowed(&all, 0, 0, bins))])?;
    rt.convert(&counts, x.dtype())
}

/// The fraction of the total in each bin, divided by the bin's width.
fn density(rt: &mut Runtime, hist: &Tensor, edges: &Tensor) -> Result<Tensor> {
    let widths = call(rt, "diff", &[t(edges)])?;
    let sum = call(rt, "sum", &[t(hist)])?;
    let parts = call(rt, "div", &[t(hist), t(&sum)])?;
    call(rt, "div", &[t(&parts), t(&widths)])
}
