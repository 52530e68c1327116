//! Collective operations: broadcast, sum, scatter, gather.
//!
//! There are two kinds, with the same results but different ways to move elements:
//!
//! - `devices`: between the devices of this process (`comm`). One script sees all tensors, so their shapes
//!   are checked here, and kernels read peer memory in place (`shares`).
//! - `processes`: between processes with a device each (`dist`). Each sees only its own tensor, so calls are
//!   compared through the group, and elements travel over the links of the devices or through the hosts.
//!
//! A sum is `((x0 + x1) + x2) + ...` in the order of the inputs or ranks, rounded to the dtype after each
//! step: the same bits for every size, destination and route. Links alone (NCCL) have an order of their own.

mod devices;
#[cfg(feature = "dist")]
mod processes;
pub(super) mod shares;
#[cfg(test)]
pub mod tests;

pub use devices::coalesced;
#[cfg(feature = "dist")]
pub use processes::Folding;

use super::{MapArg, Runtime, error};
use crate::array::Layout;
use crate::base::Result;
use crate::kernel::MapFn;
use crate::tensor::Tensor;

impl Runtime {
    /// Combines contiguous tensors of one shape, dtype and device in their order. Complex numbers are
    /// combined part by part.
    fn fold(&mut self, name: &'static str, all: &[Tensor], f: &'static MapFn) -> Result<Tensor> {
        let [first, others @ ..] = all else {
            return Err(error::collective_argument("expected at least one tensor"));
        };
        let mut sum = parts_of(first);
        let dtype = sum.dtype();
        for other in others {
            let args = [MapArg::Tensor(&sum), MapArg::Tensor(&parts_of(other))];
            sum = self.map(name, f, &args, dtype, dtype)?;
        }
        Ok(whole_of(&sum, first))
    }
}

/// A contiguous complex tensor as a real tensor of its parts, twice as long; other tensors unchanged.
fn parts_of(x: &Tensor) -> Tensor {
    if !x.dtype().is_complex() {
        return x.clone();
    }
    let mut shape = x.shape().clone();
    shape.push(2);
    let layout = Layout { offset: x.layout().offset * 2, ..Layout::contiguous(&shape) };
    x.view(layout, x.dtype().real())
}

/// The tensor whose parts these are, with the shape and dtype of `like`.
fn whole_of(parts: &Tensor, like: &Tensor) -> Tensor {
    if !like.dtype().is_complex() {
        return parts.clone();
    }
    let layout = Layout { offset: parts.layout().offset / 2, ..Layout::contiguous(like.shape()) };
    parts.view(layout, like.dtype())
}
