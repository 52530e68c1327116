//! Distinct elements and slices, and membership tests.
//!
//! Slices along a dimension are compared by rank: each element is replaced by its rank within its column.
//! Then columns are joined in pairs, and the pairs of ranks are ranked again, until one column is left.

use super::arith::{MINIMUM, SUB};
use super::compare::EQ;
use super::folds::SUM;
use super::index::{Along, pick, taken, true_positions};
use super::make::{AFFINE, filled, positions};
use super::params::X;
use super::scan::scanned;
use super::scatter::scatter_into;
use super::search::{Rows, common, places};
use super::shape::{narrowed, permuted, reshaped};
use super::signature::{Default, Kind, Param};
use super::sort::sorted;
use super::{Args, Form, Gradient, Op, Out, Run, dims, error};
use crate::array::{Dims, Dtype, Scalar};
use crate::base::Result;
use crate::kernel::host::define::host_compare;
use crate::kernel::{CudaText, MapFn};
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::tensor::Tensor;

const INVERSE: Param = Param::or("return_inverse", Kind::Bool, Default::Bool(false));
const COUNTS: Param = Param::or("return_counts", Kind::Bool, Default::Bool(false));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "unique",
        doc: "Returns the distinct elements in ascending order, as a vector, or with `dim` the distinct slices along \
              it, in the order of their elements; with `return_inverse` and `return_counts` a tuple that also has the \
              position of each element among them, and the number of occurrences of each. Every nan is distinct. Waits \
              for the tensor. Source: `torch.unique`.",
        search: &["distinct", "set", "deduplicate", "count values", "rows"],
        params: &[
            X,
            Param::or("sorted", Kind::Bool, Default::Bool(true)),
            INVERSE,
            COUNTS,
            Param::or("dim", Kind::Int, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(unique(tensor([3, 1, 3])), [1, 3]))\n\
                  let (values, counts) = unique(tensor([3, 1, 3]), return_counts=true)\n\
                  assert(equal(counts, [1, 2]))\n\
                  assert(equal(unique([[2, 1], [1, 5], [2, 1]], dim=0), [[1, 5], [2, 1]]))",
        run: Run::Primitive(unique),
        gradient: Gradient::Missing(
            "the distinct elements have no gradient; choose them by position: `x[ids]`",
        ),
        ..Op::BASE
    },
    Op {
        name: "unique_consecutive",
        doc: "Returns the elements without repetitions of the previous element, as a vector, or with `dim` the slices \
              along it; with `return_inverse` and `return_counts` as `unique`. Waits for the tensor. Source: \
              `torch.unique_consecutive`.",
        search: &["distinct", "runs", "run length", "deduplicate"],
        params: &[X, INVERSE, COUNTS, Param::or("dim", Kind::Int, Default::None)],
        form: Form::BOTH,
        example: "let (values, counts) = unique_consecutive(tensor([1, 1, 2, 1]), return_counts=true)\n\
                  assert(equal(values, [1, 2, 1]))\nassert(equal(counts, [2, 1, 1]))",
        run: Run::Primitive(unique_consecutive),
        gradient: Gradient::Missing(
            "the distinct elements have no gradient; choose them by position: `x[ids]`",
        ),
        ..Op::BASE
    },
    Op {
        name: "isin",
        doc: "Whether each element is among the test elements (with `invert`, whether it is not). nan is never among \
              them. Source: `torch.isin`.",
        search: &["contains", "member", "in", "set"],
        params: &[
            Param::new("elements", Kind::TensorOrNumber),
            Param::new("test_elements", Kind::TensorOrNumber),
            Param::named("assume_unique", Kind::Bool, Default::Bool(false)),
            Param::named("invert", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::FUNCTION,
        example: "assert(equal(isin(tensor([1, 2, 3]), tensor([3, 1])), [true, false, true]))",
        run: Run::Primitive(isin),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

static DIFFERS: MapFn = MapFn {
    name: "differs",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "(i64)(a != b)", f64: "(i64)(a != b)", i64: "(i64)(a != b)" },
    host: host_compare!(all: |a, b| a != b),
    complex: None,
};

fn unique(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "unique";
    let x = args.tensor(0)?;
    let (keys, dim) = match args.opt_int(4) {
        Some(dim) => {
            let dim = dims::one(4, dim, x.rank())?;
            (slice_ranks(rt, NAME, x, dim)?, dim)
        }
        None => (reshaped(rt, x, &[x.count()])?, 0),
    };
    let (values, order) = sorted(rt, NAME, &keys, 0, false)?;
    let starts = starts(rt, NAME, &values)?;
    let found = true_positions(rt, &starts)?;
    let distinct = match args.opt_int(4) {
        // Sorting is stable, so this is the first of equal slices.
        Some(_) => {
            let first = pick(rt, NAME, &order, 0, &found)?;
            pick_slices(rt, NAME, x, dim, &first)?
        }
        None => pick(rt, NAME, &values, 0, &found)?,
    };
    let mut out = vec![distinct];
    if args.flag(2) {
        let numbers = numbered(rt, NAME, &starts)?;
        let inverse = sent_back(rt, NAME, &numbers, &order)?;
        out.push(match args.opt_int(4) {
            Some(_) => inverse,
            None => reshaped(rt, &inverse, x.shape())?,
        });
    }
    if args.flag(3) {
        out.push(lengths(rt, NAME, &found, keys.count())?);
    }
    Ok(one_or_all(out))
}

fn unique_consecutive(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "unique_consecutive";
    let x = args.tensor(0)?;
    let (keys, dim) = match args.opt_int(3) {
        Some(dim) => {
            let dim = dims::one(3, dim, x.rank())?;
            (slice_ranks(rt, NAME, x, dim)?, Some(dim))
        }
        None => (reshaped(rt, x, &[x.count()])?, None),
    };
    let starts = starts(rt, NAME, &keys)?;
    let found = true_positions(rt, &starts)?;
    let mut out = vec![match dim {
        Some(dim) => pick_slices(rt, NAME, x, dim, &found)?,
        None => pick(rt, NAME, &keys, 0, &found)?,
    }];
    if args.flag(1) {
        let numbers = numbered(rt, NAME, &starts)?;
        out.push(match dim {
            Some(_) => numbers,
            None => reshaped(rt, &numbers, x.shape())?,
        });
    }
    if args.flag(2) {
        out.push(lengths(rt, NAME, &found, keys.count())?);
    }
    Ok(one_or_all(out))
}

fn one_or_all(mut out: Vec<Tensor>) -> Out {
    if out.len() == 1 { Out::Tensor(out.swap_remove(0)) } else { Out::Tuple(out) }
}

/// Slices of a tensor; a tensor without dimensions is treated as a vector.
fn pick_slices(rt: &mut Runtime, name: &'static str, x: &Tensor, dim: usize, ids: &Tensor) -> Result<Tensor> {
    match x.rank() {
        0 => reshaped(rt, x, &[1]),
        _ => pick(rt, name, x, dim, ids),
    }
}

/// True for the first element along the last dimension, and for each element that differs from the one
/// before.
fn starts(rt: &mut Runtime, name: &'static str, values: &Tensor) -> Result<Tensor> {
    let along = values.rank() - 1;
    let length = values.shape()[along];
    let starts = filled(rt, values.shape(), Dtype::Bool, values.device(), Scalar::Bool(true))?;
    if values.count() > 0 && length > 1 {
        let (here, before) = (narrowed(values, along, 1, length - 1), narrowed(values, along, 0, length - 1));
        let operands = [MapArg::Tensor(&here), MapArg::Tensor(&before)];
        let rest = narrowed(&starts, along, 1, length - 1);
        rt.map_into(&rest, Elementwise::new(name, &DIFFERS, &operands, values.dtype(), Dtype::Bool))?;
    }
    Ok(starts)
}

/// The number of starts up to and including each element along the last dimension, minus one.
fn numbered(rt: &mut Runtime, name: &'static str, starts: &Tensor) -> Result<Tensor> {
    let ones = rt.convert(starts, Dtype::I64)?;
    let running = scanned(rt, name, &SUM, &ones, starts.rank() - 1)?;
    let operands = [MapArg::Tensor(&running), MapArg::Number(Scalar::Int(1))];
    rt.map(name, &SUB, &operands, Dtype::I64, Dtype::I64)
}

/// The values of a sorted row, scattered back to their original positions.
fn sent_back(rt: &mut Runtime, name: &'static str, values: &Tensor, order: &Tensor) -> Result<Tensor> {
    let out = rt.empty(values.shape(), Dtype::I64, values.device())?;
    if values.count() > 0 {
        scatter_into(rt, name, Along::dim(&out, values.rank() - 1), order, values, None)?;
    }
    Ok(out)
}

/// The distance from each position to the next; for the last one, to the end.
fn lengths(rt: &mut Runtime, name: &'static str, found: &Tensor, end: usize) -> Result<Tensor> {
    let ends = rt.empty(&[found.count()], Dtype::I64, found.device())?;
    if let Some(most) = found.count().checked_sub(1) {
        rt.assign(name, &narrowed(&ends, 0, 0, most), &narrowed(found, 0, 1, most))?;
        let last = positions(rt, found.device(), 1, end as i64, 0)?;
        rt.assign(name, &narrowed(&ends, 0, most, 1), &last)?;
    }
    let operands = [MapArg::Tensor(&ends), MapArg::Tensor(found)];
    rt.map(name, &SUB, &operands, Dtype::I64, Dtype::I64)
}

/// Numbers that order the slices along a dimension as their elements do; equal only for equal slices.
fn slice_ranks(rt: &mut Runtime, name: &'static str, x: &Tensor, dim: usize) -> Result<Tensor> {
    let count = x.shape().get(dim).copied().unwrap_or(1);
    let width = x.count().checked_div(count).unwrap_or(0);
    if count == 0 || width == 0 {
        return filled(rt, &[count], Dtype::I64, x.device(), Scalar::Int(0));
    }
    let order: Dims = [dim].into_iter().chain((0..x.rank()).filter(|&d| d != dim)).take(x.rank()).collect();
    let rows = reshaped(rt, &permuted(x, &order), &[count, width])?;
    let mut columns = ranked(rt, name, &permuted(&rows, &[1, 0]))?;
    while columns.shape()[0] > 1 {
        let pairs = columns.shape()[0] / 2;
        let odd = columns.shape()[0] % 2;
        let joined = rt.empty(&[pairs + odd, count], Dtype::I64, x.device())?;
        let (first, second) = (every_other(&columns, 0, pairs), every_other(&columns, 1, pairs));
        let scale = MapArg::Number(Scalar::Int(count as i64));
        let operands = [MapArg::Tensor(&first), scale, MapArg::Tensor(&second)];
        let target = narrowed(&joined, 0, 0, pairs);
        rt.map_into(&target, Elementwise::new(name, &AFFINE, &operands, Dtype::I64, Dtype::I64))?;
        if odd == 1 {
            rt.assign(name, &narrowed(&joined, 0, pairs, 1), &narrowed(&columns, 0, 2 * pairs, 1))?;
        }
        columns = ranked(rt, name, &joined)?;
    }
    reshaped(rt, &columns, &[count])
}

/// Rows `first`, `first + 2`, ... of a matrix.
fn every_other(x: &Tensor, first: usize, count: usize) -> Tensor {
    let mut layout = x.layout().clone();
    layout.offset += first * layout.strides[0] as usize;
    layout.shape[0] = count;
    layout.strides[0] *= 2;
    x.with_layout(layout)
}

/// The rank of each element within its row: the number of distinct smaller values.
fn ranked(rt: &mut Runtime, name: &'static str, rows: &Tensor) -> Result<Tensor> {
    let (values, order) = sorted(rt, name, rows, 1, false)?;
    let starts = starts(rt, name, &values)?;
    let numbers = numbered(rt, name, &starts)?;
    sent_back(rt, name, &numbers, &order)
}

fn isin(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "isin";
    let ([elements, tests], _) = common(rt, NAME, [args.operand(0)?, args.operand(1)?])?;
    let invert = args.flag(3);
    for index in [0, 1] {
        if let Some(x) = args.opt_tensor(index) {
            error::refuse_bool(NAME, index, x)?;
        }
    }
    if elements.dtype().is_complex() {
        return Err(crate::plan::error::not_over_complex(NAME, elements.dtype()));
    }
    if tests.count() == 0 || elements.count() == 0 {
        return filled(rt, elements.shape(), Dtype::Bool, elements.device(), Scalar::Bool(invert))
            .map(Out::Tensor);
    }
    let flat = reshaped(rt, &tests, &[tests.count()])?;
    let (row, _) = sorted(rt, NAME, &flat, 0, false)?;
    let found = places(rt, NAME, &Rows::One(&row), &elements, false)?;
    let last = MapArg::Number(Scalar::Int(tests.count() as i64 - 1));
    let found = rt.map(NAME, &MINIMUM, &[MapArg::Tensor(&found), last], Dtype::I64, Dtype::I64)?;
    let nearest = taken(rt, NAME, &row, &found)?;
    let f = if invert { &DIFFERS } else { &EQ };
    let operands = [MapArg::Tensor(&elements), MapArg::Tensor(&nearest)];
    rt.map(NAME, f, &operands, elements.dtype(), Dtype::Bool).map(Out::Tensor)
}
