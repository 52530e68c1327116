//! Operands in the layout that kernels need: rows at a constant distance, or packed.

use super::{Queue, copy_program};
use crate::array::{Dtype, contiguous_strides};
use crate::base::Result;
use crate::kernel::{Launch, View};
use smallvec::smallvec;

/// The distance between rows of adjacent elements; `None` for any other view.
pub(in crate::kernel) fn row_stride(shape: &[usize], view: &View) -> Option<u64> {
    let (&length, kept) = shape.split_last()?;
    let (&inner, outer) = view.strides.split_last()?;
    if inner != 1 && length > 1 {
        return None;
    }
    let last = (0..kept.len()).rev().find(|&d| kept[d] != 1);
    let Some(last) = last else { return Some(0) };
    let step = outer[last];
    let mut expected = step;
    for d in (0..=last).rev().filter(|&d| kept[d] != 1) {
        if outer[d] != expected {
            return None;
        }
        expected *= kept[d] as isize;
    }
    Some(step.unsigned_abs() as u64)
}

/// Packs a view into scratch memory, with the same shape.
pub(in crate::kernel) fn packed(queue: &mut dyn Queue, shape: &[usize], dtype: Dtype) -> Result<View> {
    let count: u64 = shape.iter().map(|&n| n as u64).product();
    let ptr = queue.scratch(count * dtype.size() as u64)?;
    Ok(View::new(ptr, dtype, contiguous_strides(shape)))
}

/// Copies one view to another of the same shape, on the launch's stream.
pub(in crate::kernel) fn copy(queue: &mut dyn Queue, shape: &[usize], from: &View, to: &View) -> Result<()> {
    queue.launch(&Launch::new(copy_program(from.dtype), shape.into(), smallvec![from.clone(), to.clone()]))
}
