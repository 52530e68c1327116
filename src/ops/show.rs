//! Tensors as text; reads only the elements that are shown.

use super::shape::narrowed;
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::{PrintOptions, Tensor, corner_shape, format_corner, tensor_source};

/// The text that `print` shows. Waits for the elements that are shown, and copies only those to the host.
pub fn text(rt: &mut Runtime, x: &Tensor, options: &PrintOptions) -> Result<String> {
    let corner = corners(rt, x, options)?;
    let bytes = rt.read(&corner)?;
    Ok(format_corner(&bytes, x.shape(), x.dtype(), x.device(), options))
}

/// Text that can be read back as source; if the tensor is printed summarised, the printed text.
pub fn source(rt: &mut Runtime, x: &Tensor, options: &PrintOptions) -> Result<String> {
    if corner_shape(x.shape(), options).is_some() {
        return text(rt, x, options);
    }
    let bytes = rt.read(x)?;
    Ok(tensor_source(&bytes, x.shape(), x.dtype(), x.device(), options))
}

/// The first and last items of each summarised dimension.
fn corners(rt: &mut Runtime, x: &Tensor, options: &PrintOptions) -> Result<Tensor> {
    let Some(shape) = corner_shape(x.shape(), options) else { return Ok(x.clone()) };
    let mut kept = x.clone();
    for (dim, &extent) in shape.iter().enumerate() {
        let whole = kept.shape()[dim];
        if whole == extent {
            continue;
        }
        let (front, back) = (extent.div_ceil(2), extent / 2);
        let mut shape = kept.shape().clone();
        shape[dim] = extent;
        // Narrow first, so that only elements that are shown are copied.
        let out = rt.empty(&shape, x.dtype(), x.device())?;
        rt.assign("print", &narrowed(&out, dim, 0, front), &narrowed(&kept, dim, 0, front))?;
        rt.assign("print", &narrowed(&out, dim, front, back), &narrowed(&kept, dim, whole - back, back))?;
        kept = out;
    }
    Ok(kept)
}
