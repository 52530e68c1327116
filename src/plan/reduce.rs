//! Reductions: they close the group that computes their operand.

use super::operands::{Reading, register};
use super::queue::PendingReduce;
use super::rounds::Room;
use super::{MapArg, Runtime, infer::is_host_scalar};
use crate::array::{Dims, Dtype, Layout};
use crate::base::Result;
use crate::kernel::ReduceFn;
use crate::stream::races::Access;
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// The node number of a pending reduction's results.
pub(super) const REDUCED: usize = 0xff;

/// A reduction of a tensor, without the tensor.
#[derive(Clone, Copy)]
pub struct Reduction<'a> {
    /// The operation, for errors and profiles.
    pub(super) name: &'static str,
    pub(super) f: &'static ReduceFn,
    /// Distinct and ascending.
    pub(super) dims: &'a [usize],
    /// The dtype that elements are read as.
    pub(super) compute: Dtype,
    /// The dtype of the result.
    pub(super) dtype: Dtype,
    /// True when the result has extents of 1 in place of the reduced dimensions.
    pub(super) keepdim: bool,
}

impl<'a> Reduction<'a> {
    /// The reduction of `dims` (distinct, ascending): elements are read as `compute`, results have `dtype`.
    pub fn new(
        name: &'static str,
        f: &'static ReduceFn,
        dims: &'a [usize],
        compute: Dtype,
        dtype: Dtype,
    ) -> Reduction<'a> {
        Reduction { name, f, dims, compute, dtype, keepdim: false }
    }

    /// Sets whether the result has extents of 1 in place of the reduced dimensions.
    pub fn keepdim(self, keepdim: bool) -> Reduction<'a> {
        Reduction { keepdim, ..self }
    }
}

/// The results of a reduction.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Value,
    Index,
    Both,
}

impl Runtime {
    /// Submits a reduction of `x`.
    pub fn reduce(&mut self, x: &Tensor, reduction: Reduction<'_>) -> Result<Tensor> {
        let (value, _) = self.submit_reduce(x, reduction, Wanted::Value)?;
        value.ok_or_else(|| super::error::lost("the result of this reduction"))
    }

    /// Submits an indexed reduction: values (if requested) and row-major positions within the dimensions.
    pub fn reduce_indexed(
        &mut self,
        x: &Tensor,
        reduction: Reduction<'_>,
        values: bool,
    ) -> Result<(Option<Tensor>, Tensor)> {
        let wanted = if values { Wanted::Both } else { Wanted::Index };
        let (value, index) = self.submit_reduce(x, reduction, wanted)?;
        Ok((value, index.ok_or_else(|| super::error::lost("the result of this reduction"))?))
    }

    fn submit_reduce(
        &mut self,
        x: &Tensor,
        reduction: Reduction<'_>,
        wanted: Wanted,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let Reduction { name, f, dims, compute, dtype, keepdim } = reduction;
        debug_assert!(!is_host_scalar(x) || dims.is_empty());
        if compute.is_complex() || (x.dtype().is_complex() && compute != Dtype::Bool) {
            return Err(super::error::not_over_complex(name, x.dtype()));
        }
        let owner = self.device(x.device())?;
        let at = self.place(x.device())?.queue;
        let mut shape = Dims::new();
        for (d, &extent) in x.shape().iter().enumerate() {
            match dims.contains(&d) {
                true if keepdim => shape.push(1),
                true => {}
                false => shape.push(extent),
            }
        }
        let layout = Layout::contiguous(&shape);
        let mut fresh = |dtype: Dtype| -> Result<Tensor> {
            let storage = self.storage(owner.clone(), layout.bytes(dtype))?;
            Ok(Tensor::new(storage, layout.clone(), dtype))
        };
        let value = (wanted != Wanted::Index).then(|| fresh(dtype)).transpose()?;
        let index = (wanted != Wanted::Value).then(|| fresh(Dtype::I64)).transpose()?;
        let outs = value.iter().chain(&index);
        let written = outs.clone().map(|out| (out, Access::Write));
        self.note(name, at, std::iter::once((x, Access::Read)).chain(written))?;
        if layout.count() == 0 {
            outs.clone().try_for_each(|out| self.bind_empty(out, at))?;
            return Ok((value, index));
        }
        if let Some(unrolling) = self.unrolls(at, x, &reduction)? {
            return self.reduce_unrolled(at, x, &unrolling, &reduction, (value, index));
        }
        let moves = !dims.iter().rev().enumerate().all(|(i, &d)| d + 1 + i == x.rank());
        // Reductions have no bent loads.
        self.store_deferred(x.storage())?;
        self.resume_aside(at, x)?;
        self.settle_shared(at, x.shape(), Room::of(3), Some((dims, f)))?;
        let mut close = self.settle_read(at, x)?;
        let queue = &self.queues[at];
        if let Some(group) = &queue.group {
            close |= group.shape != *x.shape() || !queue.has_room(3) || (moves && group.uses_position());
            close |= group.is_bent();
        }
        if close {
            self.close_group(at, x.shape(), 3, Some((dims, f)))?;
        } else if !self.queues[at].goes_on(x.shape(), Some((dims, f))) {
            // The open group would read values from memory that the chain's kernel has in registers.
            match self.queues[at].reads_rows() {
                true => self.flush_work(at)?,
                false => self.flush_closed(at)?,
            }
        }
        let queue = &mut self.queues[at];
        let part = queue.chain.len();
        let operands = [MapArg::Tensor(x)];
        let (reading, group) = queue.split(part, x.device(), x.shape(), &operands);
        let reg = register(group, Reading { may_bend: false, ..reading }, x);
        let reg = group.converted(reg, compute);
        let pending = queue.pending(at, REDUCED);
        for out in value.iter().chain(&index) {
            out.storage().set_pending(Some(pending));
        }
        let group = queue.open(x.device(), x.shape());
        group.reduce = Some(PendingReduce {
            reg,
            dims: SmallVec::from_slice(dims),
            f,
            dtype,
            out: value.as_ref().map(Tensor::storage_ref),
            out_index: index.as_ref().map(Tensor::storage_ref),
            span: self.span,
        });
        self.after_submit(at)?;
        Ok((value, index))
    }
}
