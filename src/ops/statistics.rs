//! Statistics: quantiles, means without nan, histograms, covariance, integrals by the trapezoidal rule.
//!
//! Composed of other operations; nothing here waits for a device.

use super::apply::again;
use super::composed::{call, expand, ints, narrow, out_of, permute, reshape, select, t, to, unsqueeze};
use super::folds::SUM;
use super::gradient::rules;
use super::index::Along;
use super::make::filled;
use super::params::{DTYPE, X};
use super::scatter::scatter_into;
use super::shape::{narrowed, needs_dim, reshaped, selected};
use super::signature::{Default, Kind, Param};
use super::sort::{FEW_COUNTS, counts, median_of_nothing, sorted};
use super::{Arg, Args, Call, Form, Gradient, Op, Out, Run, assertion, error};
use crate::array::{Dims, Dtype, Operand, Scalar, broadcast, result_type};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

const KEEPDIM: Param = Param::or("keepdim", Kind::Bool, Default::Bool(false));
const VALUES_INDICES: &[&str] = &["values", "indices"];
const QUANTILE: &[Param] = &[
    X,
    Param::new("q", Kind::TensorOrNumber),
    Param::or("dim", Kind::Int, Default::None),
    KEEPDIM,
    Param::named("interpolation", Kind::Str, Default::Str("linear")),
];
const AREA: &[Param] = &[
    Param::new("y", Kind::Tensor),
    Param::or("x", Kind::Tensor, Default::None),
    Param::named("dx", Kind::Number, Default::Float(1.0)),
    Param::named("dim", Kind::Int, Default::Int(-1)),
];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "quantile",
        doc: "Returns the value below which the fraction `q` of the elements lies, over all or along `dim`; several \
              fractions, a vector, make a first dimension of their own. `interpolation` says what lies between two \
              elements: `linear`, `lower`, `higher`, `midpoint` or `nearest`. nan if any is; needs f32 or f64. \
              Source: `torch.quantile`.",
        search: &["percentile", "quartile", "median", "order statistic"],
        params: QUANTILE,
        form: Form::BOTH,
        example: "let x = tensor([4.0, 1.0, 3.0, 2.0])\nassert(x.quantile(0.5).item() == 2.5)\n\
                  assert(equal(x.quantile([0.0, 1.0]), [1.0, 4.0]))\n\
                  assert(x.quantile(0.5, interpolation=\"lower\").item() == 2)",
        run: Run::Composed(|rt, args| quantiles(rt, "quantile", args, false)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "nanquantile",
        doc: "Returns quantiles of the elements that are numbers, as `quantile` does; nan where there is none. \
              Source: `torch.nanquantile`.",
        search: &["percentile", "missing", "ignore nan"],
        params: QUANTILE,
        form: Form::BOTH,
        example: "assert(tensor([1.0, nan, 3.0]).nanquantile(0.5).item() == 2.0)",
        run: Run::Composed(|rt, args| quantiles(rt, "nanquantile", args, true)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "nanmean",
        doc: "Returns the mean of the elements that are numbers, over all or along `dim`; nan where there is none. \
              Needs floats. Source: `torch.nanmean`.",
        search: &["average", "missing", "ignore nan"],
        params: &[X, Param::or("dim", Kind::Dims, Default::None), KEEPDIM, DTYPE],
        form: Form::BOTH,
        example: "assert(tensor([1.0, nan, 2.0]).nanmean().item() == 1.5)",
        run: Run::Composed(nanmean),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "nanmedian",
        doc: "Returns the middle of the elements that are numbers (of an even count the lower one); with `dim` a \
              record of `values` and `indices`. nan where there is none. Source: `torch.nanmedian`.",
        search: &["middle", "missing", "ignore nan", "robust"],
        params: &[X, Param::or("dim", Kind::Int, Default::None), KEEPDIM],
        form: Form::BOTH,
        example: "assert(tensor([3.0, nan, 1.0, 2.0]).nanmedian().item() == 2.0)",
        run: Run::Primitive(|rt, args| {
            again(rt, if args.is_given(1) { &NANMEDIANS } else { &NANMEDIAN }, Call::Plain(*args))
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "sum_to_size",
        doc: "Sums over dimensions until the tensor has a shape that broadcasts to its own: the gradient of \
              `expand`. Source: `torch.Tensor.sum_to_size`.",
        search: &["broadcast", "reduce", "expand"],
        params: &[X, Param::rest("size", Kind::Shape)],
        form: Form::METHOD,
        example: "assert(equal(ones(2, 3).sum_to_size(1, 3), [[2.0, 2.0, 2.0]]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            let size = error::shape(1, args.ints(1).unwrap_or(&[]))?;
            if broadcast(x.shape(), &size).as_ref() != Some(x.shape()) {
                let wanted = format!("a shape to which {size:?} broadcasts");
                let help =
                    "write the shape with extents of 1, or without dimensions in front, where it is summed";
                return Err(error::wrong_tensor(0, &wanted, x, help));
            }
            let added = x.rank() - size.len();
            let summed = (0..x.rank()).filter(|&d| d < added || size[d - added] == 1 && x.shape()[d] != 1);
            let dims: Vec<usize> = summed.collect();
            if dims.is_empty() {
                return Ok(Out::Tensor(x.clone()));
            }
            let sum = call(rt, "sum", &[t(x), ints(&dims), Arg::Bool(true)])?;
            reshape(rt, &sum, &size).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "histc",
        doc: "Counts the elements in `bins` equal parts of the range from `min` to `max`, which belongs to the last part; without a range, \
              or where both are one number, of that from the least to the greatest element. What is outside is not counted. Needs floats, \
              and returns their dtype. Source: `torch.histc`.",
        search: &["histogram", "count", "distribution", "bins"],
        params: &[
            X,
            Param::or("bins", Kind::Int, Default::Int(100)),
            Param::or("min", Kind::Number, Default::Int(0)),
            Param::or("max", Kind::Number, Default::Int(0)),
        ],
        form: Form::BOTH,
        example: "assert(equal(histc(tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3), [0.0, 2.0, 1.0, 0.0]))",
        run: Run::Composed(histc),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "cov",
        doc: "Returns the covariances of variables, the rows of a matrix, whose columns are observations; of a vector, \
              its variance. `correction` is subtracted from the number of observations; `fweights` says how often each \
              was made, `aweights` how much it counts. Source: `torch.cov`.",
        search: &["covariance", "variance", "correlation"],
        params: &[
            X,
            Param::named("correction", Kind::Int, Default::Int(1)),
            Param::named("fweights", Kind::Tensor, Default::None),
            Param::named("aweights", Kind::Tensor, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(cov(tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])), [[1.0, -1.0], [-1.0, 1.0]]))",
        run: Run::Composed(|rt, args| covariance(rt, "cov", args).map(Out::Tensor)),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "corrcoef",
        doc: "Returns the correlations of variables, the rows of a matrix, whose columns are observations. \
              Source: `torch.corrcoef`.",
        search: &["correlation", "pearson", "covariance"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(allclose(corrcoef(tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]])), [[1.0, -1.0], [-1.0, 1.0]]))",
        run: Run::Composed(correlation),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "trapezoid",
        aliases: &["trapz"],
        doc: "Returns the area under points along `dim`, by trapezoids: at the places `x`, or `dx` apart. \
              Source: `torch.trapezoid`.",
        search: &["integral", "trapz", "area", "quadrature"],
        params: AREA,
        form: Form::FUNCTION,
        example: "assert(trapezoid([1.0, 5.0, 10.0]).item() == 10.5)\n\
                  assert(trapezoid([1.0, 5.0, 10.0], [1.0, 3.0, 6.0]).item() == 28.5)",
        run: Run::Composed(|rt, args| {
            let (parts, dim) = trapezoids(rt, "trapezoid", args)?;
            call(rt, "sum", &[t(&parts), Arg::Ints(vec![dim])]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "cumulative_trapezoid",
        doc: "Returns the area under points along `dim` up to each of them, the first left out. \
              Source: `torch.cumulative_trapezoid`.",
        search: &["integral", "area", "running"],
        params: AREA,
        form: Form::FUNCTION,
        example: "assert(equal(cumulative_trapezoid([1.0, 5.0, 10.0]), [3.0, 10.5]))",
        run: Run::Composed(|rt, args| {
            let (parts, dim) = trapezoids(rt, "cumulative_trapezoid", args)?;
            call(rt, "cumsum", &[t(&parts), Arg::Int(dim)]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

/// The median of all numbers, and those along a dimension.
static NANMEDIAN: Op = Op { gradient: rules::OF_ALL, ..MIDDLE };
static NANMEDIANS: Op = Op { gradient: rules::ALONG, ..MIDDLE };
const MIDDLE: Op = Op { name: "nanmedian", run: Run::Primitive(nanmedian), ..Op::BASE };

/// Moves a dimension to the end.
fn rows(rt: &mut Runtime, x: &Tensor, dim: usize) -> Result<Tensor> {
    let order: Dims = (0..x.rank()).filter(|&d| d != dim).chain([dim]).collect();
    permute(rt, x, &order)
}

/// The tensor and the dimension to work along: all elements as one row if no dimension is given.
fn one_row(
    rt: &mut Runtime,
    name: &str,
    x: &Tensor,
    index: usize,
    dim: Option<i64>,
) -> Result<(Tensor, usize)> {
    match dim {
        None => Ok((reshape(rt, x, &[x.count()])?, 0)),
        Some(dim) => {
            let x = if x.rank() == 0 { unsqueeze(rt, x, 0)? } else { x.clone() };
            let dim = needs_dim(name, &x, index, dim)?;
            Ok((x, dim))
        }
    }
}

/// The number of elements in each row that are not nan, in `dtype`; the dimension is kept with extent 1.
fn numbers(rt: &mut Runtime, x: &Tensor, dim: usize, dtype: Dtype) -> Result<Tensor> {
    let is = call(rt, "eq", &[t(x), t(x)])?;
    let count = call(rt, "sum", &[t(&is), Arg::Ints(vec![dim as i64]), Arg::Bool(true)])?;
    rt.convert(&count, dtype)
}

fn quantiles(rt: &mut Runtime, name: &'static str, args: &Args<'_>, skip: bool) -> Result<Out> {
    let given = args.tensor(0)?;
    let dtype = given.dtype();
    if !matches!(dtype, Dtype::F32 | Dtype::F64) {
        return Err(error::floats_alone(name, 0, given));
    }
    if given.count() == 0 {
        return Err(error::nothing_to_reduce(name, given, None));
    }
    let (x, dim) = one_row(rt, name, given, 2, args.opt_int(2))?;
    // Ranks of rows that PyTorch refuses are beyond the whole numbers of f32.
    let in_dtype = if x.shape()[dim] > 1 << 24 { Dtype::F64 } else { dtype };
    let (q, several) = match args.get(1) {
        Arg::Tensor(q) if q.rank() > 1 => {
            return Err(error::wrong_rank(name, 1, q, "a number or a vector", "flatten it: `q.flatten()`"));
        }
        Arg::Tensor(q) => {
            let several = q.rank() == 1;
            let q = to(rt, q, in_dtype)?;
            (reshape(rt, &q, &[q.count()])?, several)
        }
        _ => {
            let q = args.float(1)?;
            if !(0.0..=1.0).contains(&q) {
                return Err(error::bad_value(1, format!("the fraction {q}"), "fractions go from 0 to 1"));
            }
            (filled(rt, &[1], in_dtype, x.device(), Scalar::Float(q))?, false)
        }
    };
    rt.common_device(name, [&x, &q])?;
    // A sort keeps the memory order, and the result is row-major.
    let x = call(rt, "contiguous", &[t(&x)])?;
    let values = call(rt, "sort", &[t(&x), Arg::Int(dim as i64)])?;
    let values = rows(rt, &values, dim)?;
    let last = values.rank() - 1;
    let count = values.shape()[last];
    let shape: Dims = values.shape()[..last].iter().copied().chain([q.count()]).collect();
    let ranks = match skip {
        true => {
            let count = numbers(rt, &values, last, in_dtype)?;
            let top = call(rt, "sub", &[t(&count), Arg::Int(1)])?;
            let top = call(rt, "clamp_min", &[t(&top), Arg::Int(0)])?;
            call(rt, "mul", &[t(&q), t(&top)])?
        }
        false => call(rt, "mul", &[t(&q), Arg::Float((count - 1) as f64)])?,
    };
    let ranks = match args.get(1) {
        Arg::Tensor(_) => {
            // Other fractions have no element, also where the rank would be rounded to one.
            let least = call(rt, "ge", &[t(&q), Arg::Float(0.0)])?;
            let most = call(rt, "le", &[t(&q), Arg::Float(1.0)])?;
            let fits = call(rt, "logical_and", &[t(&least), t(&most)])?;
            call(rt, "where", &[t(&fits), t(&ranks), Arg::Float(count as f64)])?
        }
        _ => ranks,
    };
    let ranks = expand(rt, &ranks, &shape)?;
    let at = |rt: &mut Runtime, rounded: &str| -> Result<Tensor> {
        let ids = call(rt, rounded, &[t(&ranks)])?;
        let ids = rt.convert(&ids, Dtype::I64)?;
        call(rt, "gather", &[t(&values), Arg::Int(last as i64), t(&ids)])
    };
    let found = match args.text(4) {
        Some("lower") => at(rt, "floor")?,
        Some("higher") => at(rt, "ceil")?,
        Some("nearest") => at(rt, "round")?,
        None | Some("linear" | "midpoint") => {
            let (low, high) = (at(rt, "floor")?, at(rt, "ceil")?);
            let weight = match args.text(4) {
                Some("midpoint") => Arg::Float(0.5),
                _ => {
                    let weight = call(rt, "frac", &[t(&ranks)])?;
                    Arg::Tensor(to(rt, &weight, dtype)?)
                }
            };
            call(rt, "lerp", &[t(&low), t(&high), weight])?
        }
        Some(other) => {
            let known = ["linear", "lower", "higher", "midpoint", "nearest"];
            return Err(error::not_one_of(4, "interpolation", other, &known));
        }
    };
    let found = match skip {
        true => found,
        false => {
            // A nan sorts last; if there is one, it is the result, and gets the gradient.
            let top = narrow(rt, &values, last, count - 1, 1)?;
            let spoilt = call(rt, "isnan", &[t(&top)])?;
            call(rt, "where", &[t(&spoilt), t(&top), t(&found)])?
        }
    };
    let mut found = match several {
        true => permute(rt, &found, &[&[last], (0..last).collect::<Vec<_>>().as_slice()].concat())?,
        false => select(rt, &found, last, 0)?,
    };
    if args.flag(3) {
        let first = usize::from(several);
        let ones = if args.is_given(2) { 1.min(given.rank()) } else { given.rank() };
        for _ in 0..ones {
            found = unsqueeze(rt, &found, first + if args.is_given(2) { dim } else { 0 })?;
        }
    }
    Ok(Out::Tensor(found))
}

fn nanmean(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    if !x.dtype().is_float() {
        return Err(error::floats_alone("nanmean", 0, x));
    }
    let (dim, keep) = (args.get(1).clone(), args.get(2).clone());
    let sum = call(rt, "nansum", &[t(x), dim.clone(), keep.clone(), args.get(3).clone()])?;
    // The mask is released before the division ends the group, so that it is not stored.
    let count =
        call(rt, "eq", &[t(x), t(x)]).and_then(|is| call(rt, "sum", &[Arg::Tensor(is), dim, keep]))?;
    call(rt, "div", &[t(&sum), t(&count)]).map(Out::Tensor)
}

fn nanmedian(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    if !given.dtype().is_float() {
        return out_of(rt, "median", args.0);
    }
    let (x, dim) = one_row(rt, "nanmedian", given, 1, args.opt_int(1))?;
    if x.shape()[dim] == 0 {
        return median_of_nothing(rt, "nanmedian", args, dim);
    }
    let (values, indices) = sorted(rt, "nanmedian", &x, dim, false)?;
    let count = numbers(rt, &x, dim, Dtype::I64)?;
    let top = call(rt, "sub", &[t(&count), Arg::Int(1)])?;
    let middle = call(rt, "floor_divide", &[t(&top), Arg::Int(2)])?;
    let middle = call(rt, "clamp_min", &[t(&middle), Arg::Int(0)])?;
    let keep = args.is_given(1) && args.flag(2) && given.rank() > 0;
    let mut pair = Vec::new();
    for sorted in [&values, &indices] {
        let found = call(rt, "gather", &[t(sorted), Arg::Int(dim as i64), t(&middle)])?;
        pair.push(if keep { found } else { selected(&found, dim, 0) });
    }
    Ok(match args.is_given(1) {
        true => Out::Record(VALUES_INDICES, pair),
        false => Out::Tensor(pair.swap_remove(0)),
    })
}

fn histc(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let dtype = x.dtype();
    if !dtype.is_float() {
        return Err(error::floats_alone("histc", 0, x));
    }
    let bins = args.int(1)?;
    if !(1..=i64::from(u32::MAX)).contains(&bins) {
        return Err(error::bad_value(1, format!("{bins} bins"), "write 1 or more"));
    }
    let (low, high) = (args.float(2)?, args.float(3)?);
    if !(low.is_finite() && high.is_finite() && low <= high) {
        let help = "write numbers, the lower one first";
        return Err(error::bad_value(3, format!("there is no range from {low} to {high}"), help));
    }
    if x.count() == 0 {
        return filled(rt, &[bins as usize], dtype, x.device(), Scalar::Int(0)).map(Out::Tensor);
    }
    let x = reshaped(rt, x, &[x.count()])?;
    let (low, high) = match low < high {
        true => (Arg::Float(low), Arg::Float(high)),
        false => {
            let (least, most) = ends(rt, &x)?;
            let same = call(rt, "eq", &[t(&least), t(&most)])?;
            let same = rt.convert(&same, dtype)?;
            let low = call(rt, "sub", &[t(&least), t(&same)])?;
            (Arg::Tensor(low), Arg::Tensor(call(rt, "add", &[t(&most), t(&same)])?))
        }
    };
    let width = match (&low, &high) {
        (Arg::Float(low), Arg::Float(high)) => Arg::Float(high - low),
        _ => Arg::Tensor(call(rt, "sub", &[high.clone(), low.clone()])?),
    };
    let few = bins as usize <= FEW_COUNTS;
    let outside = if few { -1 } else { bins };
    let bin = bins_of(rt, &x, [low, high, width], bins, outside)?;
    // Ints count exactly.
    let counts = match few {
        true => counts(rt, "histc", &bin, bins as usize)?,
        false => {
            let one = filled(rt, &[], Dtype::I64, x.device(), Scalar::Int(1))?;
            let counts = filled(rt, &[bins as usize + 1], Dtype::I64, x.device(), Scalar::Int(0))?;
            scatter_into(rt, "histc", Along::dim(&counts, 0), &bin, &one, Some(&SUM))?;
            narrowed(&counts, 0, 0, bins as usize)
        }
    };
    rt.convert(&counts, dtype).map(Out::Tensor)
}

/// The least and the greatest element of a tensor, the ends of a histogram's range. They must be finite.
pub(super) fn ends(rt: &mut Runtime, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (least, most) = (call(rt, "amin", &[t(x)])?, call(rt, "amax", &[t(x)])?);
    let finite = [call(rt, "isfinite", &[t(&least)])?, call(rt, "isfinite", &[t(&most)])?];
    let finite = call(rt, "logical_and", &[t(&finite[0]), t(&finite[1])])?;
    assertion::holds(rt, &finite, "the least and the greatest element of a histogram are finite")?;
    Ok((least, most))
}

/// The bins of a vector's elements between two ends; `outside` for other elements. A function, so that intermediate values
/// are released before the bins are counted, and not stored.
fn bins_of(
    rt: &mut Runtime,
    x: &Tensor,
    [low, high, width]: [Arg; 3],
    bins: i64,
    outside: i64,
) -> Result<Tensor> {
    let inside = [call(rt, "ge", &[t(x), low.clone()])?, call(rt, "le", &[t(x), high])?];
    let inside = call(rt, "logical_and", &[t(&inside[0]), t(&inside[1])])?;
    let from = call(rt, "sub", &[t(x), low])?;
    let scaled = call(rt, "mul", &[t(&from), Arg::Int(bins)])?;
    let scaled = call(rt, "div", &[t(&scaled), width])?;
    let zero = call(rt, "where", &[t(&inside), t(&scaled), Arg::Float(0.0)])?;
    let bin = rt.convert(&zero, Dtype::I64)?;
    let bin = call(rt, "clamp_max", &[t(&bin), Arg::Int(bins - 1)])?;
    let bin = call(rt, "where", &[t(&inside), t(&bin), Arg::Int(outside)])?;
    // As narrow as fits.
    if outside < 0 { rt.convert(&bin, Dtype::I16) } else { Ok(bin) }
}

fn covariance(rt: &mut Runtime, name: &'static str, args: &Args<'_>) -> Result<Tensor> {
    let given = args.tensor(0)?;
    if given.rank() > 2 {
        return Err(error::wrong_rank(name, 0, given, "a vector or a matrix", "one variable per row"));
    }
    error::refuse_bool(name, 0, given)?;
    let mut dtype =
        if given.dtype().is_float() || given.dtype().is_complex() { given.dtype() } else { Dtype::F32 };
    if let Some(weight) = args.opt_tensor(3).filter(|weight| weight.dtype().is_float()) {
        dtype = result_type([Operand::Tensor(dtype), Operand::Tensor(weight.dtype())]);
    }
    let x = to(rt, given, dtype)?;
    let variables = if given.rank() == 2 { x.shape()[0] } else { 1 };
    let count = x.shape().last().copied().unwrap_or(1);
    let x = reshape(rt, &x, &[variables, count])?;
    let correction = args.opt_int(1).unwrap_or(1) as f64;
    let mut weights: [Option<Tensor>; 2] = [None, None];
    for (at, index) in [(0, 2), (1, 3)] {
        let Some(weight) = args.opt_tensor(index) else { continue };
        if weight.rank() > 1 || weight.count() != count {
            let wanted = format!("a vector of {count} weights");
            return Err(error::wrong_rank(name, index, weight, &wanted, "one weight per observation"));
        }
        if at == 0 && !weight.dtype().is_int() {
            return Err(error::wrong_tensor(index, "ints", weight, "frequencies are whole: `w.to(i64)`"));
        }
        if at == 1 && !weight.dtype().is_float() {
            return Err(error::wrong_tensor(index, "floats", weight, "convert them: `w.to(f32)`"));
        }
        let negative = call(rt, "lt", &[t(weight), Arg::Int(0)])?;
        let any = call(rt, "any", &[t(&negative)])?;
        let none = call(rt, "logical_not", &[t(&any)])?;
        assertion::holds(rt, &none, "the weights of `cov` are 0 or more")?;
        let weight = reshape(rt, weight, &[count])?;
        weights[at] = Some(to(rt, &weight, x.dtype().real())?);
    }
    let weight = match &weights {
        [Some(f), Some(a)] => Some(call(rt, "mul", &[t(f), t(a)])?),
        [one, other] => one.clone().or_else(|| other.clone()),
    };
    let along = |keep| [Arg::Ints(vec![1]), Arg::Bool(keep)];
    let total = |rt: &mut Runtime, x: &Tensor, keep: bool| -> Result<Tensor> {
        let [dim, keep] = along(keep);
        call(rt, "sum", &[t(x), dim, keep])
    };
    let (far, heavy, norm) = match weight {
        None => {
            let mean = total(rt, &x, true)?;
            let mean = call(rt, "div", &[t(&mean), Arg::Float(count as f64)])?;
            let far = call(rt, "sub", &[t(&x), t(&mean)])?;
            (far.clone(), far, Arg::Float((count as f64 - correction).max(0.0)))
        }
        Some(weight) => {
            let sum = call(rt, "sum", &[t(&weight)])?;
            let some = call(rt, "ne", &[t(&sum), Arg::Int(0)])?;
            assertion::holds(rt, &some, "the weights of `cov` do not add up to 0")?;
            let heavy = call(rt, "mul", &[t(&x), t(&weight)])?;
            let mean = total(rt, &heavy, true)?;
            let mean = call(rt, "div", &[t(&mean), t(&sum)])?;
            let taken = match &weights[1] {
                None => Arg::Float(correction),
                Some(a) => {
                    let both = call(rt, "mul", &[t(&weight), t(a)])?;
                    let both = call(rt, "sum", &[t(&both)])?;
                    let share = call(rt, "div", &[t(&both), t(&sum)])?;
                    Arg::Tensor(call(rt, "mul", &[t(&share), Arg::Float(correction)])?)
                }
            };
            let norm = call(rt, "sub", &[t(&sum), taken])?;
            let norm = call(rt, "clamp_min", &[t(&norm), Arg::Int(0)])?;
            let far = call(rt, "sub", &[t(&x), t(&mean)])?;
            let heavy = call(rt, "mul", &[t(&far), t(&weight)])?;
            (far, heavy, Arg::Tensor(norm))
        }
    };
    let heavy = call(rt, "conj", &[t(&heavy)])?;
    let heavy = permute(rt, &heavy, &[1, 0])?;
    let products = call(rt, "matmul", &[t(&far), t(&heavy)])?;
    let found = call(rt, "div", &[t(&products), norm])?;
    if variables == 1 { reshape(rt, &found, &[]) } else { Ok(found) }
}

fn correlation(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let found = covariance(rt, "corrcoef", &Args(&[args.get(0).clone(), Arg::Int(1)]))?;
    if found.rank() == 0 {
        return call(rt, "div", &[t(&found), t(&found)]).map(Out::Tensor);
    }
    let spread = call(rt, "diagonal", &[t(&found)])?;
    let spread = match spread.dtype().is_complex() {
        true => call(rt, "real", &[t(&spread)])?,
        false => spread,
    };
    let spread = call(rt, "sqrt", &[t(&spread)])?;
    let column = unsqueeze(rt, &spread, 1)?;
    let found = call(rt, "div", &[t(&found), t(&column)])?;
    let found = call(rt, "div", &[t(&found), t(&spread)])?;
    let within = |rt: &mut Runtime, part: &Tensor| {
        call(rt, "clamp", &[t(part), Arg::Float(-1.0), Arg::Float(1.0)]).map(Arg::Tensor)
    };
    if found.dtype().is_complex() {
        let (re, im) = (call(rt, "real", &[t(&found)])?, call(rt, "imag", &[t(&found)])?);
        let parts = [within(rt, &re)?, within(rt, &im)?];
        return call(rt, "complex", &parts).map(Out::Tensor);
    }
    call(rt, "clamp", &[t(&found), Arg::Float(-1.0), Arg::Float(1.0)]).map(Out::Tensor)
}

/// The areas of the trapezoids between neighbouring points, and their dimension.
fn trapezoids(rt: &mut Runtime, name: &'static str, args: &Args<'_>) -> Result<(Tensor, i64)> {
    error::refuse_bool(name, 0, args.tensor(0)?)?;
    // Sums and differences of narrow integers would wrap.
    let mut widened = |x: &Tensor| match x.dtype().is_int() {
        true => rt.convert(x, Dtype::I64),
        false => Ok(x.clone()),
    };
    let y = &widened(args.tensor(0)?)?;
    let x = args.opt_tensor(1).map(&mut widened).transpose()?;
    let dim = needs_dim(name, y, 3, args.int(3)?)?;
    let between = y.shape()[dim].saturating_sub(1);
    let start = y.shape()[dim].min(1);
    let (before, after) = (narrow(rt, y, dim, 0, between)?, narrow(rt, y, dim, start, between)?);
    let both = call(rt, "add", &[t(&before), t(&after)])?;
    let steps = match &x {
        None => args.get(2).clone(),
        Some(x) => {
            let mut shape: Dims = Dims::from_elem(1, y.rank());
            match x.rank() {
                1 => shape[dim] = x.count(),
                _ => {
                    let added = y.rank().saturating_sub(x.rank());
                    shape.truncate(added);
                    shape.extend_from_slice(x.shape());
                }
            }
            let steps = reshape(rt, x, &shape)?;
            let along = dim + steps.rank() - y.rank();
            let fits = steps.shape()[along] == y.shape()[dim]
                || x.rank() > 1 && [y.shape()[dim], steps.shape()[along]].contains(&2)
                || x.rank() > 1 && steps.shape()[along] == 2;
            if !fits {
                let why = format!("there are {} points along dimension {dim}", y.shape()[dim]);
                return Err(error::matmul_shapes(name, (0, y), (1, x), why, "give one place per point"));
            }
            Arg::Tensor(call(rt, "diff", &[t(&steps), Arg::Int(1), Arg::Int(along as i64)])?)
        }
    };
    let areas = call(rt, "mul", &[t(&both), steps])?;
    Ok((call(rt, "div", &[t(&areas), Arg::Float(2.0)])?, dim as i64))
}
