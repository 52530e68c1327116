//! Order: sorting, top k, median, and counts of each number.
//!
//! Sorting is stable, and nan is greater than every number.

use super::apply::again;
use super::composed::{call, t};
use super::folds::{MAX, SUM};
use super::gradient::rules;
use super::index::{Along, as_positions};
use super::known;
use super::make::{filled, positions};
use super::params::X;
use super::reduce::MIN;
use super::scan::last;
use super::scatter::scatter_into;
use super::select::WHERE;
use super::shape::{narrowed, reshaped, selected};
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Call, Form, Gradient, Keeps, Op, Out, Run, dims, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::kernel::host::define::host_test;
use crate::kernel::{Count, CudaText, Kind as KernelKind, MapFn, Nth, Sort, SortFew, Top};
use crate::plan::{MapArg, Reduction, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::smallvec;

const VALUES_INDICES: &[&str] = &["values", "indices"];
const LAST_DIM: Param = Param::or("dim", Kind::Int, Default::Int(-1));
const DESCENDING: Param = Param::or("descending", Kind::Bool, Default::Bool(false));
const STABLE: Param = Param::named("stable", Kind::Bool, Default::Bool(true));
const KEEPDIM: Param = Param::or("keepdim", Kind::Bool, Default::Bool(false));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "sort",
        doc: "Sorts along a dimension: a record of `values` and the `indices` they had. Always stable; nan sorts last. \
              Source: `torch.sort`.",
        search: &["order", "rank", "ascending", "descending"],
        params: &[X, LAST_DIM, DESCENDING, STABLE],
        form: Form::BOTH,
        example: "let s = tensor([3, 1, 2]).sort()\nassert(equal(s.values, [1, 2, 3]))\n\
                  assert(equal(s.indices, [1, 2, 0]))",
        run: Run::Primitive(|rt, args| {
            let (values, indices) = along(rt, "sort", args)?;
            Ok(Out::Record(VALUES_INDICES, vec![values, indices]))
        }),
        gradient: Gradient::Rule(Keeps::INDICES, |b| rules::chosen(b, 1, None)),
        ..Op::BASE
    },
    Op {
        name: "argsort",
        doc: "Returns the positions that sort a dimension. Stable. Source: `torch.argsort`.",
        search: &["order", "rank", "permutation"],
        params: &[X, LAST_DIM, DESCENDING, STABLE],
        form: Form::BOTH,
        example: "assert(equal(argsort(tensor([3, 1, 2])), [1, 2, 0]))",
        run: Run::Primitive(|rt, args| Ok(Out::Tensor(along(rt, "argsort", args)?.1))),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "topk",
        doc: "Returns the `k` largest elements along a dimension, largest first (or the smallest, smallest first, with \
              `largest=false`): a record of `values` and `indices`. Source: `torch.topk`.",
        search: &["best", "largest", "greatest", "beam"],
        params: &[
            X,
            Param::new("k", Kind::Int),
            LAST_DIM,
            Param::or("largest", Kind::Bool, Default::Bool(true)),
            Param::or("sorted", Kind::Bool, Default::Bool(true)),
        ],
        form: Form::BOTH,
        example: "let best = tensor([1, 9, 5]).topk(2)\nassert(equal(best.values, [9, 5]))\n\
                  assert(equal(best.indices, [1, 2]))",
        run: Run::Primitive(topk),
        gradient: Gradient::Rule(Keeps::INDICES, |b| rules::chosen(b, 2, None)),
        ..Op::BASE
    },
    Op {
        name: "kthvalue",
        doc: "Returns the `k`-th smallest element along a dimension, counted from 1: a record of `values` and \
              `indices`. Source: `torch.kthvalue`.",
        search: &["quantile", "order statistic", "percentile"],
        params: &[X, Param::new("k", Kind::Int), LAST_DIM, KEEPDIM],
        form: Form::BOTH,
        example: "assert(tensor([7, 5, 9]).kthvalue(2).values.item() == 7)",
        run: Run::Primitive(kthvalue),
        gradient: Gradient::Rule(Keeps::INDICES, |b| rules::chosen(b, 2, Some(3))),
        ..Op::BASE
    },
    Op {
        name: "median",
        doc: "Returns the median (the lower one for an even count); with `dim` a record of `values` and `indices`. nan \
              if any element is nan. Source: `torch.median`.",
        search: &["middle", "quantile", "robust"],
        params: &[X, Param::or("dim", Kind::Int, Default::None), KEEPDIM],
        form: Form::BOTH,
        example: "assert(tensor([3.0, 1.0, 2.0, 9.0]).median().item() == 2.0)",
        run: Run::Primitive(|rt, args| {
            again(rt, if args.is_given(1) { &MEDIANS } else { &MEDIAN }, Call::Plain(*args))
        }),
        shape: known::WHOLE,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "bincount",
        doc: "Counts how often each of 0, 1, 2, ... occurs in a vector of integers, or sums its `weights`, in `f64` \
              unless they are `f32`. Waits for the tensor. Source: `torch.bincount`.",
        search: &["histogram", "count", "frequency"],
        params: &[
            X,
            Param::or("weights", Kind::Tensor, Default::None),
            Param::or("minlength", Kind::Int, Default::Int(0)),
        ],
        form: Form::BOTH,
        example: "assert(equal(bincount(tensor([0, 2, 2])), [1, 0, 2]))",
        run: Run::Primitive(bincount),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

/// The median of all elements, and those along a dimension.
static MEDIAN: Op = Op { gradient: rules::OF_ALL, ..MIDDLE };
static MEDIANS: Op = Op { gradient: rules::ALONG, ..MIDDLE };
const MIDDLE: Op = Op { name: "median", run: Run::Primitive(median), ..Op::BASE };

static IS_NO_NUMBER: MapFn = MapFn {
    name: "is_no_number",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "(i64)(a != a)", f64: "(i64)(a != a)", i64: "0" },
    host: host_test!(float: |a| a.is_nan(), i64: |_a| false),
    complex: None,
};

/// Sorts along a dimension: values and positions.
pub(super) fn sorted(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    dim: usize,
    descending: bool,
) -> Result<(Tensor, Tensor)> {
    let (shape, device) = (x.shape(), x.device());
    if x.rank() == 0 {
        return Ok((rt.contiguous_copy(x)?, filled(rt, &[], Dtype::I64, device, Scalar::Int(0))?));
    }
    if x.count() == 0 {
        return Ok((rt.empty(shape, x.dtype(), device)?, rt.empty(shape, Dtype::I64, device)?));
    }
    // The results have the memory order of the operand, as in PyTorch.
    let order = x.layout();
    let (values, indices) =
        (rt.fresh_ordered(order, x.dtype(), device)?, rt.fresh_ordered(order, Dtype::I64, device)?);
    let rows = last(x, dim).0;
    let view = |tensor, write| SubmittedView { tensor, strides: last(tensor, dim).1, write };
    let views = smallvec![view(x, false), view(&values, true), view(&indices, true)];
    let sort = Sort { dtype: x.dtype(), descending };
    let few = &SortFew(sort.clone());
    let is_near = x.count().max(x.layout().extent().len()) < 1 << 31;
    let is_few = x.shape()[dim] <= SortFew::MOST && x.rank() <= SortFew::RANK && is_near;
    let kind: &dyn KernelKind = if is_few { few } else { &sort };
    rt.submit(Submission { name, kind, shape: rows, views, axis: 0, limit: 0 })?;
    Ok((values, indices))
}

fn along(rt: &mut Runtime, name: &'static str, args: &Args<'_>) -> Result<(Tensor, Tensor)> {
    let x = args.tensor(0)?;
    let dim = dims::one(1, args.int(1)?, x.rank())?;
    sorted(rt, name, x, dim, args.flag(2))
}

/// `k` as an element count of the dimension, at least `least`.
fn count_within(name: &str, x: &Tensor, dim: usize, k: i64, least: usize) -> Result<usize> {
    let extent = x.shape().get(dim).copied().unwrap_or(1);
    match usize::try_from(k) {
        Ok(k) if k >= least && k <= extent => Ok(k),
        _ => {
            let message = format!("`{name}` with `k={k}` of a dimension of size {extent}");
            Err(error::bad_value(1, message, format!("write {least} to {extent}")))
        }
    }
}

/// Shortest row that the top-k kernel handles; shorter rows are sorted.
const CHOSEN: usize = 512;

/// The first `k` elements in sort order.
fn top(rt: &mut Runtime, x: &Tensor, dim: usize, k: usize, descending: bool) -> Result<Out> {
    let mut shape = x.shape().clone();
    shape[dim] = k;
    let values = rt.fresh(&shape, x.dtype(), x.device())?;
    let indices = rt.fresh(&shape, Dtype::I64, x.device())?;
    if k > 0 {
        let view = |tensor, write| SubmittedView { tensor, strides: last(tensor, dim).1, write };
        let views = smallvec![view(x, false), view(&values, true), view(&indices, true)];
        let kind = &Top(Sort { dtype: x.dtype(), descending });
        let (axis, limit) = (x.rank() - 1, x.shape()[dim]);
        rt.submit(Submission { name: "topk", kind, shape: last(&values, dim).0, views, axis, limit })?;
    }
    Ok(Out::Record(VALUES_INDICES, vec![values, indices]))
}

fn topk(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    error::refuse_bool("topk", 0, x)?;
    let dim = dims::one(2, args.int(2)?, x.rank())?;
    let k = count_within("topk", x, dim, args.int(1)?, 0)?;
    let extent = x.shape().get(dim).copied().unwrap_or(0);
    if extent >= CHOSEN && Top::takes(x.dtype(), extent, k) && x.count() > 0 {
        return top(rt, x, dim, k, args.flag(3));
    }
    let (values, indices) = sorted(rt, "topk", x, dim, args.flag(3))?;
    if x.rank() == 0 {
        return Ok(Out::Record(VALUES_INDICES, vec![values, indices]));
    }
    // Copy the selected elements, so that the whole sorted tensor can be freed.
    let values = rt.contiguous_copy(&narrowed(&values, dim, 0, k))?;
    let indices = rt.contiguous_copy(&narrowed(&indices, dim, 0, k))?;
    Ok(Out::Record(VALUES_INDICES, vec![values, indices]))
}

/// One position of a dimension; the dimension is kept with extent 1 if `keepdim` is set.
fn one(x: &Tensor, dim: usize, at: usize, keepdim: bool) -> Tensor {
    match (x.rank(), keepdim) {
        (0, _) => x.clone(),
        (_, true) => narrowed(x, dim, at, 1),
        (_, false) => selected(x, dim, at),
    }
}

/// The element of a rank in sort order along a dimension, or a nan if there is one, and its position. The dimension is kept
/// with extent 1 if `keepdim` is set. `None` for rows that are sorted instead.
fn nth(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    (dim, keepdim): (usize, bool),
    (rank, nan): (usize, bool),
) -> Result<Option<[Tensor; 2]>> {
    let length = x.shape().get(dim).copied().unwrap_or(0);
    if x.count() == 0 || !Nth::takes(x.dtype(), length) {
        return Ok(None);
    }
    let mut shape = x.shape().clone();
    shape[dim] = 1;
    let results = [x.dtype(), Dtype::I64].map(|dtype| rt.fresh(&shape, dtype, x.device()));
    let [values, indices] = results;
    let (values, indices) = (values?, indices?);
    let view = |tensor, write| {
        let mut strides = last(tensor, dim).1;
        strides.last_mut().filter(|_| write).into_iter().for_each(|step| *step = 0);
        SubmittedView { tensor, strides, write }
    };
    let views = smallvec![view(x, false), view(&values, true), view(&indices, true)];
    let kind = &Nth { sort: Sort { dtype: x.dtype(), descending: false }, nan };
    rt.submit(Submission { name, kind, shape: last(x, dim).0, views, axis: 0, limit: rank })?;
    Ok(Some([values, indices].map(|t| one(&t, dim, 0, keepdim))))
}

fn kthvalue(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    error::refuse_bool("kthvalue", 0, x)?;
    let dim = dims::one(2, args.int(2)?, x.rank())?;
    let k = count_within("kthvalue", x, dim, args.int(1)?, 1)?;
    if let Some(pair) = nth(rt, "kthvalue", x, (dim, args.flag(3)), (k.saturating_sub(1), false))? {
        return Ok(Out::Record(VALUES_INDICES, pair.into()));
    }
    let (values, indices) = sorted(rt, "kthvalue", x, dim, false)?;
    let pair = [values, indices].map(|t| one(&t, dim, k - 1, args.flag(3)));
    Ok(Out::Record(VALUES_INDICES, copied(rt, pair)?))
}

/// Copies of parts of sorted rows: a view would keep the memory of all rows.
fn copied(rt: &mut Runtime, parts: [Tensor; 2]) -> Result<Vec<Tensor>> {
    parts.iter().map(|part| rt.contiguous_copy(part)).collect()
}

fn median(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    error::refuse_bool("median", 0, given)?;
    let (x, dim) = match args.opt_int(1) {
        Some(dim) => (given.clone(), dims::one(1, dim, given.rank())?),
        None => (reshaped(rt, given, &[given.count()])?, 0),
    };
    if x.rank() > 0 && x.shape()[dim] == 0 {
        return median_of_nothing(rt, "median", args, dim);
    }
    let count = x.shape().get(dim).copied().unwrap_or(1);
    let middle = (count - 1) / 2;
    let keepdim = args.is_given(1) && args.flag(2);
    if let Some([values, indices]) = nth(rt, "median", &x, (dim, keepdim), (middle, x.dtype().is_float()))? {
        let indices = first_nan(rt, args, &x, (dim, keepdim), &values, indices)?;
        return Ok(record_or_value(args, vec![values, indices]));
    }
    let (values, indices) = sorted(rt, "median", &x, dim, false)?;
    let at = |t: &Tensor, i| one(t, dim, i, keepdim);
    let dtype = x.dtype();
    if !dtype.is_float() {
        let pair = copied(rt, [at(&values, middle), at(&indices, middle)])?;
        return Ok(record_or_value(args, pair));
    }
    // A nan sorts last; if there is one, it is the median.
    let top = at(&values, count - 1);
    let spoilt = rt.map("median", &IS_NO_NUMBER, &[MapArg::Tensor(&top)], dtype, Dtype::Bool)?;
    let mut chosen = Vec::new();
    for (t, dtype) in [(&values, dtype), (&indices, Dtype::I64)] {
        let (top, mid) = (at(t, count - 1), at(t, middle));
        let operands = [MapArg::Tensor(&spoilt), MapArg::Tensor(&top), MapArg::Tensor(&mid)];
        chosen.push(rt.map("median", &WHERE, &operands, dtype, dtype)?);
    }
    if let [values, indices] = &mut chosen[..] {
        *indices = first_nan(rt, args, &x, (dim, keepdim), values, indices.clone())?;
    }
    Ok(record_or_value(args, chosen))
}

/// The positions of medians along a dimension; that of a nan is the first one.
fn first_nan(
    rt: &mut Runtime,
    args: &Args<'_>,
    x: &Tensor,
    (dim, keepdim): (usize, bool),
    values: &Tensor,
    indices: Tensor,
) -> Result<Tensor> {
    if !args.is_given(1) || !x.dtype().is_float() {
        return Ok(indices);
    }
    let (dtype, keep) = (x.dtype(), Arg::Bool(keepdim && x.rank() > 0));
    // The position of the largest element is that of the first nan, if there is one.
    let first = call(rt, "argmax", &[t(x), Arg::Int(dim as i64), keep])?;
    let spoilt = rt.map("median", &IS_NO_NUMBER, &[MapArg::Tensor(values)], dtype, Dtype::Bool)?;
    let operands = [MapArg::Tensor(&spoilt), MapArg::Tensor(&first), MapArg::Tensor(&indices)];
    rt.map("median", &WHERE, &operands, Dtype::I64, Dtype::I64)
}

/// The median of no elements: nan over all dimensions, an error along one. (For integers, PyTorch converts
/// the nan to the minimum value.)
pub(super) fn median_of_nothing(rt: &mut Runtime, name: &str, args: &Args<'_>, dim: usize) -> Result<Out> {
    let x = args.tensor(0)?;
    if args.is_given(1) {
        return Err(error::nothing_to_reduce(name, x, Some(dim)));
    }
    let nan = match x.dtype().is_float() {
        true => Scalar::Float(f64::NAN),
        false => Scalar::Int(if x.dtype() == Dtype::I64 { i64::MIN } else { 0 }),
    };
    filled(rt, &[], x.dtype(), x.device(), nan).map(Out::Tensor)
}

fn record_or_value(args: &Args<'_>, mut pair: Vec<Tensor>) -> Out {
    match args.is_given(1) {
        true => Out::Record(VALUES_INDICES, pair),
        false => Out::Tensor(pair.swap_remove(0)),
    }
}

fn bincount(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (name, given) = ("bincount", args.tensor(0)?);
    if given.rank() != 1 {
        return Err(error::wrong_rank(name, 0, given, "a vector", "flatten it first: `x.flatten()`"));
    }
    // Rejects tensors that are not integers.
    drop(as_positions(rt, 0, given)?);
    let least = match usize::try_from(args.int(2)?) {
        Ok(least) => least,
        Err(_) => return Err(error::bad_value(2, "a negative length", "write 0 or more")),
    };
    let weights = args.opt_tensor(1);
    if weights.is_none() && given.dtype() == Dtype::U8 && given.count() > 0 {
        return bytes_counted(rt, name, given, least).map(Out::Tensor);
    }
    let mut length = least;
    if given.count() > 0 {
        // A single wait: negative numbers are mapped to the maximum, so the maximum shows both errors.
        let marked = {
            let x = as_positions(rt, 0, given)?;
            let negative = call(rt, "lt", &[t(&x), Arg::Int(0)])?;
            call(rt, "where", &[t(&negative), Arg::Int(i64::MAX), t(&x)])?
        };
        let high = rt.reduce(&marked, Reduction::new(name, &MAX, &[0], Dtype::I64, Dtype::I64))?;
        drop(marked);
        let high = rt.item(&high)?.as_i64();
        let low = match high {
            i64::MAX => {
                let x = as_positions(rt, 0, given)?;
                let low = rt.reduce(&x, Reduction::new(name, &MIN, &[0], Dtype::I64, Dtype::I64))?;
                rt.item(&low)?.as_i64()
            }
            _ => 0,
        };
        if low < 0 {
            let message = format!("`bincount` of the negative number `{low}`");
            return Err(error::bad_value(0, message, "the elements count from 0"));
        }
        length = length.max(usize::try_from(high).unwrap_or(usize::MAX).saturating_add(1));
    }
    if weights.is_none() && length <= Count::MOST {
        return counts(rt, name, given, length).map(Out::Tensor);
    }
    let x = as_positions(rt, 0, given)?;
    let shape = error::shape(0, &[i64::try_from(length).unwrap_or(i64::MAX)])?;
    let weights = match weights {
        Some(weights) if weights.shape() != x.shape() => {
            return Err(error::index_shape(name, (0, &x), (1, weights), 1));
        }
        Some(weights) if matches!(weights.dtype(), Dtype::F32 | Dtype::F64) => weights.clone(),
        Some(weights) => rt.convert(weights, Dtype::F64)?,
        None => filled(rt, &[], Dtype::I64, x.device(), Scalar::Int(1))?,
    };
    rt.common_device(name, [&x, &weights])?;
    let out = filled(rt, &shape, weights.dtype(), x.device(), Scalar::Int(0))?;
    scatter_into(rt, name, Along::dim(&out, 0), &x, &weights, Some(&SUM))?;
    Ok(Out::Tensor(out))
}

/// Maximum length of [`counts`].
pub(super) const FEW_COUNTS: usize = Count::MOST;

/// Counts the occurrences of each number from 0 to below `length` in a vector of integers; ignores other numbers.
pub(super) fn counts(rt: &mut Runtime, name: &'static str, x: &Tensor, length: usize) -> Result<Tensor> {
    if x.count() == 0 {
        return filled(rt, &[length], Dtype::I64, x.device(), Scalar::Int(0));
    }
    let out = rt.fresh(&[length], Dtype::I64, x.device())?;
    if length > 0 {
        let views = smallvec![SubmittedView::read(x), SubmittedView::write(&out)];
        let kind = &Count { dtype: x.dtype() };
        rt.submit(Submission { name, kind, shape: x.shape().clone(), views, axis: 0, limit: length })?;
    }
    Ok(out)
}

/// The counts of bytes, up to the largest byte that occurs and at least `least`. The elements are read once.
fn bytes_counted(rt: &mut Runtime, name: &'static str, x: &Tensor, least: usize) -> Result<Tensor> {
    let all = counts(rt, name, x, least.clamp(256, Count::MOST))?;
    let length = match least {
        0..256 => {
            let occurs = call(rt, "gt", &[t(&all), Arg::Int(0)])?;
            let ends = positions(rt, x.device(), 256, 1, 1)?;
            let ends = call(rt, "where", &[t(&occurs), t(&ends), Arg::Int(0)])?;
            let high = rt.reduce(&ends, Reduction::new(name, &MAX, &[0], Dtype::I64, Dtype::I64))?;
            least.max(usize::try_from(rt.item(&high)?.as_i64()).unwrap_or(0))
        }
        _ => least,
    };
    match length {
        256..=Count::MOST if length == all.count() => Ok(all),
        0..256 => rt.contiguous_copy(&narrowed(&all, 0, 0, length)),
        _ => {
            let shape = error::shape(0, &[i64::try_from(length).unwrap_or(i64::MAX)])?;
            let out = filled(rt, &shape, Dtype::I64, x.device(), Scalar::Int(0))?;
            rt.assign(name, &narrowed(&out, 0, 0, all.count()), &all)?;
            Ok(out)
        }
    }
}
