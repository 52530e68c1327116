//! Writing to positions: shared code of `scatter`, `index_add`, `index_put` and related operations.
//!
//! Results are bit-identical in every run, on every device: `kernel/kinds/scatter` explains how values are combined.

use super::arith::ADD;
use super::folds::{AMAX, SUM};
use super::index::{Along, as_positions, gather_from, same_rank, value_for};
use super::reduce::{AMIN, PROD};
use super::{Arg, Args, complex, error};
use crate::array::{Dtype, Layout, Scalar, Strides};
use crate::base::Result;
use crate::kernel::{ReduceFn, has_one_source};
use crate::plan::{MapArg, Runtime, Scattering};
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
    if f.is_some_and(|f| std::ptr::eq(f, &SUM)) && target.dtype().is_complex() {
        return add_complex(rt, name, into, &ids, (value, strides));
    }
    if f.is_some_and(|f| std::ptr::eq(f, &SUM))
        && target.dtype().is_float()
        && has_one_source(&shape, into.axis, &into.strides)
    {
        return add_one(rt, name, into, &ids, (value, strides));
    }
    let Along { strides: own, axis, limit, meaning, .. } = into;
    rt.scatter_at(Scattering {
        name,
        f,
        value: (value, strides),
        index: &ids,
        target: (target, own),
        axis,
        limit,
        meaning,
    })
}

/// A value with these strides over the shape of an index.
fn over(ids: &Tensor, value: &Tensor, strides: Strides) -> Tensor {
    value.with_layout(Layout { shape: ids.shape().clone(), strides, offset: value.layout().offset })
}

/// As [`scatter_into`], for sums of complex numbers, which are sums of their parts.
fn add_complex(
    rt: &mut Runtime,
    name: &'static str,
    into: Along<'_>,
    ids: &Tensor,
    (value, strides): (&Tensor, Strides),
) -> Result<()> {
    let mut wide = ids.layout().clone();
    wide.shape.push(2);
    wide.strides.push(0);
    let value = complex::as_real(&over(ids, value, strides), name)?;
    let strides = into.strides.iter().map(|s| s * 2).chain([1]).collect();
    let parts = Along { tensor: &complex::as_real(into.tensor, name)?, strides, ..into };
    scatter_into(rt, name, parts, &ids.with_layout(wide), &value, Some(&SUM))
}

/// As [`scatter_into`], for sums of floats where a target has at most one source: each value is added to the old one and
/// written.
fn add_one(
    rt: &mut Runtime,
    name: &'static str,
    into: Along<'_>,
    ids: &Tensor,
    (value, strides): (&Tensor, Strides),
) -> Result<()> {
    let dtype = into.tensor.dtype();
    let old = gather_from(rt, name, into.clone(), ids)?;
    let new = over(ids, value, strides);
    let sum = rt.map(name, &ADD, &[MapArg::Tensor(&old), MapArg::Tensor(&new)], dtype, dtype)?;
    // Otherwise the launch that reads it would store it.
    drop(old);
    scatter_into(rt, name, into, ids, &sum, None)
}

pub(super) fn scatter(rt: &mut Runtime, name: &'static str, args: &Args<'_>, out: &Tensor) -> Result<()> {
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
    Scattered::new(rt, name, args, out, args.operand(3)?)?.write(rt, f)
}

/// `scatter_reduce`: existing values are included, or replaced at the scattered positions.
pub(super) fn scatter_reduce(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    out: &Tensor,
) -> Result<()> {
    let (dtype, own) = (out.dtype(), args.flag(5));
    let src = args.tensor(3)?;
    let (f, neutral) = match args.text(4).unwrap_or("") {
        "sum" | "mean" => (&SUM, Scalar::Int(0)),
        "prod" => (&PROD, Scalar::Int(1)),
        "amax" => (&AMAX, lowest(dtype)),
        "amin" => (&AMIN, highest(dtype)),
        other => {
            return Err(error::not_one_of(4, "reduce", other, &["sum", "prod", "mean", "amax", "amin"]));
        }
    };
    if f.name.starts_with("am") && dtype.is_complex() {
        return Err(crate::plan::error::not_over_complex(name, dtype));
    }
    let values = Scattered::new(rt, name, args, out, MapArg::Tensor(src))?;
    if !own {
        values.fill(rt, neutral)?;
    }
    values.write(rt, Some(f))?;
    if args.text(4) != Some("mean") {
        return Ok(());
    }
    // Integers are counted in one pass.
    let counts = super::make::filled(rt, out.shape(), Dtype::I64, out.device(), Scalar::Int(1))?;
    let each = super::make::filled(rt, &[], Dtype::I64, out.device(), Scalar::Int(1))?;
    // Use the checked operands: an index that shares the memory of `out` has been copied.
    let target = counts.with_layout(Layout::contiguous(values.target.shape()));
    let ones = Scattered { target, value: each, ..values };
    if !own {
        ones.fill(rt, Scalar::Int(0))?;
    }
    ones.write(rt, Some(&SUM))?;
    let untouched = super::composed::call(rt, "clamp_min", &[Arg::Tensor(counts), Arg::Int(1)])?;
    let divide = if dtype.is_float() || dtype.is_complex() { "div" } else { "floor_divide" };
    let mean = super::composed::call(rt, divide, &[Arg::Tensor(out.clone()), Arg::Tensor(untouched)])?;
    rt.assign(name, out, &mean)
}

/// A lower bound of all numbers of a dtype.
fn lowest(dtype: Dtype) -> Scalar {
    dtype.range().map_or(Scalar::Float(f64::NEG_INFINITY), |(least, _)| Scalar::Int(least))
}

/// An upper bound of all numbers of a dtype.
fn highest(dtype: Dtype) -> Scalar {
    dtype.range().map_or(Scalar::Float(f64::INFINITY), |(_, most)| Scalar::Int(most))
}

/// A checked call of `scatter` or a related operation: elements of argument 3 to the positions of argument 2 along the
/// dimension of argument 1.
pub(super) struct Scattered {
    name: &'static str,
    /// The tensor to write.
    target: Tensor,
    dim: usize,
    ids: Tensor,
    /// The elements; without dimensions, one for all positions.
    value: Tensor,
}

impl Scattered {
    pub fn new(
        rt: &mut Runtime,
        name: &'static str,
        args: &Args<'_>,
        out: &Tensor,
        src: MapArg<'_>,
    ) -> Result<Scattered> {
        let ids = as_positions(rt, 2, args.tensor(2)?)?;
        if let MapArg::Tensor(src) = src {
            rt.common_device(name, [out, &ids, src])?;
            if src.dtype() != out.dtype() && src.rank() > 0 {
                return Err(error::dtypes_differ(name, (0, out), (3, src)));
            }
        }
        let (target, ids, dim) = same_rank(name, out, (2, &ids), args.int(1)?)?;
        if ids.count() == 0 {
            return Ok(Scattered { name, value: target.clone(), target, dim, ids });
        }
        let value = value_for(rt, &target, src, 3)?;
        let covers = |rank| rank == ids.rank() && (0..rank).all(|d| ids.shape()[d] <= value.shape()[d]);
        if value.rank() > 0 && !covers(value.rank()) {
            return Err(error::index_shape(name, (3, &value), (2, &ids), dim));
        }
        // Several writes may follow.
        let ids = match std::ptr::eq(ids.storage(), target.storage()) {
            true => rt.contiguous_copy(&ids)?,
            false => ids,
        };
        Ok(Scattered { name, target, dim, ids, value })
    }

    /// Writes the elements, or combines them with those of the target.
    pub fn write(&self, rt: &mut Runtime, f: Option<&'static ReduceFn>) -> Result<()> {
        self.into(rt, &self.value, f)
    }

    /// Writes a number to all positions.
    fn fill(&self, rt: &mut Runtime, number: Scalar) -> Result<()> {
        let number = value_for(rt, &self.target, MapArg::Number(number), 3)?;
        self.into(rt, &number, None)
    }

    fn into(&self, rt: &mut Runtime, value: &Tensor, f: Option<&'static ReduceFn>) -> Result<()> {
        if self.ids.count() == 0 {
            return Ok(());
        }
        scatter_into(rt, self.name, Along::dim(&self.target, self.dim), &self.ids, value, f)
    }
}
