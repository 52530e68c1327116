//! Writing to positions: the shared code of `scatter`, `index_add`, `index_put` and related operations.
//!
//! Results are bit-identical in every run, on every device: `kernel/kinds/scatter` says how values are combined.

use super::folds::{AMAX, SUM};
use super::index::{Along, as_positions, gather_from, same_rank, value_for};
use super::reduce::{AMIN, PROD};
use super::shape::narrowed;
use super::{Arg, Args, Out, complex, error};
use crate::array::{Dims, Dtype, Layout, Scalar, Strides};
use crate::base::Result;
use crate::kernel::{ReduceFn, Scatter};
use crate::plan::{MapArg, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::smallvec;

/// The scatter kernel: `target[.., ids[i], ..] = value[i]` over the shape of `ids`. `value` has the same
/// shape, or has no dimensions and is broadcast.
pub(super) fn scatter_into(
    rt: &mut Runtime,
    name: &'static str,
    into: Along<'_>,
    ids: &Tensor,
    value: &Tensor,
    f: Option<&'static ReduceFn>,
) -> Result<()> {
    let Along { tensor: target, .. } = into;
    rt.common_device(name, [target, ids, value])?;
    if ids.count() == 0 {
        return Ok(());
    }
    if target.count() == 0 {
        return Err(error::indexes_nothing(name, target));
    }
    let ids = match std::ptr::eq(ids.storage(), target.storage()) {
        true => rt.contiguous_copy(ids)?,
        false => ids.clone(),
    };
    let shape = ids.shape().clone();
    let strides = if value.rank() == 0 { smallvec![0; shape.len()] } else { value.layout().strides.clone() };
    if let Some(f) = f.filter(|_| target.dtype().is_complex()) {
        return scatter_complex(rt, name, into, &ids, (value, strides), f);
    }
    let Along { strides: own, axis, limit, .. } = into;
    let views = smallvec![
        SubmittedView { tensor: value, strides, write: false },
        SubmittedView::read(&ids),
        SubmittedView { tensor: target, strides: own, write: true },
    ];
    let kind = &Scatter { dtype: target.dtype(), f };
    rt.submit(Submission { name, kind, shape, views, axis, limit })
}

/// As [`scatter_into`], for combining complex numbers. Sums are computed over the parts. Products are
/// computed for one position of the axis at a time, so that no two writes meet at the same target.
fn scatter_complex(
    rt: &mut Runtime,
    name: &'static str,
    into: Along<'_>,
    ids: &Tensor,
    (value, strides): (&Tensor, Strides),
    f: &'static ReduceFn,
) -> Result<()> {
    let target = into.tensor;
    let seen = |x: &Tensor, shape: &Dims, strides: &Strides| {
        let layout = Layout { shape: shape.clone(), strides: strides.clone(), offset: x.layout().offset };
        x.with_layout(layout)
    };
    if std::ptr::eq(f, &SUM) {
        let last = ids.rank();
        let mut wide = ids.layout().clone();
        wide.shape.push(2);
        wide.strides.push(0);
        let ids = ids.with_layout(wide);
        let mut shape = ids.shape().clone();
        shape.truncate(last);
        let value = complex::as_real(&seen(value, &shape, &strides), name)?;
        let strides = into.strides.iter().map(|s| s * 2).chain([1]).collect();
        let parts = Along { tensor: &complex::as_real(target, name)?, strides, ..into };
        return scatter_into(rt, name, parts, &ids, &value, Some(f));
    }
    if !std::ptr::eq(f, &PROD) {
        return Err(crate::plan::error::not_over_complex(name, target.dtype()));
    }
    let value = seen(value, ids.shape(), &strides);
    let dtype = target.dtype();
    let (mul, _) = complex::over(name, &super::arith::MUL, dtype)?;
    for at in 0..ids.shape()[into.axis] {
        let (ids, value) = (narrowed(ids, into.axis, at, 1), narrowed(&value, into.axis, at, 1));
        let held = gather_from(rt, name, into.clone(), &ids)?;
        let product = rt.map(name, mul, &[MapArg::Tensor(&held), MapArg::Tensor(&value)], dtype, dtype)?;
        scatter_into(rt, name, into.clone(), &ids, &product, None)?;
    }
    Ok(())
}

pub(super) fn scatter(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let f = match args.text(4) {
        None => None,
        Some("add" | "sum") => Some(&SUM),
        Some("multiply" | "prod") => Some(&PROD),
        Some("amax") => Some(&AMAX),
        Some("amin") => Some(&AMIN),
        Some(other) => {
            return Err(error::not_one_of(4, "reduce", other, &["add", "multiply", "amax", "amin"]));
        }
    };
    scattered(rt, "scatter", args, args.operand(3)?, f)
}

/// `scatter_reduce`: existing values are included, or replaced at the scattered positions.
pub(super) fn scatter_reduce(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "scatter_reduce";
    let (x, dtype) = (args.tensor(0)?, args.tensor(0)?.dtype());
    let src = MapArg::Tensor(args.tensor(3)?);
    let (f, neutral) = match args.text(4).unwrap_or("") {
        "sum" | "mean" => (&SUM, Scalar::Int(0)),
        "prod" => (&PROD, Scalar::Int(1)),
        "amax" => (&AMAX, lowest(dtype)),
        "amin" => (&AMIN, highest(dtype)),
        other => {
            return Err(error::not_one_of(4, "reduce", other, &["sum", "prod", "mean", "amax", "amin"]));
        }
    };
    let at = |x: Tensor| [Arg::Tensor(x), args.get(1).clone(), args.get(2).clone()];
    let write = |rt: &mut Runtime, x: Tensor, src: MapArg<'_>, f| -> Result<Tensor> {
        match scattered(rt, NAME, &Args(&at(x.clone())), src, f)? {
            Out::Tensor(out) => Ok(out),
            _ => Ok(x),
        }
    };
    let own = args.flag(5);
    let base = if own { x.clone() } else { write(rt, x.clone(), MapArg::Number(neutral), None)? };
    let found = write(rt, base, src, Some(f))?;
    if args.text(4) != Some("mean") {
        return Ok(Out::Tensor(found));
    }
    let count = dtype.real();
    let mut counts = super::make::filled(rt, x.shape(), count, x.device(), Scalar::Int(1))?;
    if !own {
        counts = write(rt, counts, MapArg::Number(Scalar::Int(0)), None)?;
    }
    let each = super::make::filled(rt, args.tensor(3)?.shape(), count, x.device(), Scalar::Int(1))?;
    let counts = write(rt, counts, MapArg::Tensor(&each), Some(&SUM))?;
    let untouched = super::composed::call(rt, "clamp_min", &[Arg::Tensor(counts), Arg::Int(1)])?;
    let divide = if dtype.is_float() || dtype.is_complex() { "div" } else { "floor_divide" };
    super::composed::call(rt, divide, &[Arg::Tensor(found), Arg::Tensor(untouched)]).map(Out::Tensor)
}

/// A lower bound of all numbers of a dtype.
fn lowest(dtype: Dtype) -> Scalar {
    dtype.range().map_or(Scalar::Float(f64::NEG_INFINITY), |(least, _)| Scalar::Int(least))
}

/// An upper bound of all numbers of a dtype.
fn highest(dtype: Dtype) -> Scalar {
    dtype.range().map_or(Scalar::Float(f64::INFINITY), |(_, most)| Scalar::Int(most))
}

pub(super) fn scattered(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    src: MapArg<'_>,
    f: Option<&'static ReduceFn>,
) -> Result<Out> {
    let x = args.tensor(0)?;
    let ids = as_positions(rt, 2, args.tensor(2)?)?;
    if let MapArg::Tensor(src) = src {
        rt.common_device(name, [x, &ids, src])?;
        if src.dtype() != x.dtype() && src.rank() > 0 {
            return Err(error::dtypes_differ(name, (0, x), (3, src)));
        }
    }
    let out = rt.contiguous_copy(x)?;
    let (target, ids, dim) = same_rank(name, &out, (2, &ids), args.int(1)?)?;
    if ids.count() == 0 {
        return Ok(Out::Tensor(out));
    }
    let value = value_for(rt, &target, src)?;
    let covers = |rank| rank == ids.rank() && (0..rank).all(|d| ids.shape()[d] <= value.shape()[d]);
    if value.rank() > 0 && !covers(value.rank()) {
        return Err(error::index_shape(name, (3, &value), (2, &ids), dim));
    }
    scatter_into(rt, name, Along::dim(&target, dim), &ids, &value, f)?;
    Ok(Out::Tensor(out))
}
