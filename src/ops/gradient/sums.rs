//! Gradients that arrive at an operand: their sum, and their conversion to the operand's shape, dtype and device.

use super::node::Varies;
use crate::array::Dtype;
use crate::base::Result;
use crate::ops::{Arg, composed};
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// Adds a gradient to a sum.
pub(super) fn add(rt: &mut Runtime, sum: &mut Option<Tensor>, gradient: Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        None => gradient,
        Some(sum) => composed::call(rt, "add", &[Arg::Tensor(sum), Arg::Tensor(gradient)])?,
    });
    Ok(())
}

/// A gradient summed over dimensions that were broadcast, in the operand's dtype and on its device.
pub(super) fn fitted(rt: &mut Runtime, gradient: Tensor, form: &Varies) -> Result<Tensor> {
    let mut gradient = gradient;
    let t = |x: Tensor| Arg::Tensor(x);
    if gradient.dtype().is_complex() && !form.dtype.is_complex() {
        gradient = composed::call(rt, "real", &[t(gradient)])?;
    }
    if *gradient.shape() != form.shape {
        // Dimensions correspond from the last one on.
        let (own, rank) = (gradient.rank(), form.shape.len());
        let stretched = |d: &usize| match (d + rank).checked_sub(own) {
            Some(of) => form.shape[of] == 1 && gradient.shape()[*d] != 1,
            None => true,
        };
        let dims: Vec<i64> = (0..gradient.rank()).filter(stretched).map(|d| d as i64).collect();
        if !dims.is_empty() && gradient.count() != form.shape.iter().product::<usize>() {
            // Sums of halves keep their precision: `sum` adds in f32.
            gradient = composed::call(rt, "sum", &[t(gradient), Arg::Ints(dims), Arg::Bool(true)])?;
        }
        if *gradient.shape() != form.shape {
            let shape = form.shape.iter().map(|&extent| extent as i64).collect();
            gradient = composed::call(rt, "reshape", &[t(gradient), Arg::Ints(shape)])?;
        }
    }
    if gradient.dtype() != form.dtype && form.dtype != Dtype::Bool {
        gradient = composed::call(rt, "to", &[t(gradient), Arg::Dtype(form.dtype)])?;
    }
    if gradient.device() != form.device {
        gradient = composed::call(rt, "to", &[t(gradient), Arg::Device(form.device)])?;
    }
    Ok(gradient)
}
