//! Copies of many tensors to parts of one, in one launch: `stack`, `cat`, gradients of slices.
//!
//! As elementwise work, each copy would be its own group in a batch (Note [Batches] in `batch`): also one launch, but
//! the host would assemble a group per part.

use super::batch::{MAX_BYTES, copy_of};
use super::{Runtime, Submission, SubmittedView};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};

/// Fewer parts are written as elementwise work, which may join the work that computes them.
const LEAST: usize = 4;

impl Runtime {
    /// Writes `target[...] = source` for each part; parts must not overlap. False, with nothing submitted, if the
    /// parts are few or differ in form, or if most sources are still pending: then the stores are better fused with
    /// that work.
    pub fn copy_parts(&mut self, name: &'static str, parts: &[(Tensor, &Tensor)]) -> Result<bool> {
        let Some((model, _)) = parts.first() else { return Ok(false) };
        let (dtype, device) = (model.dtype(), model.device());
        if parts.len() < LEAST || device == DeviceId::Cpu || !self.settings.fuse {
            return Ok(false);
        }
        let (mut bytes, mut pending) = (0u64, 0);
        for (target, source) in parts {
            let count = source.count();
            let is_alike = source.dtype() == dtype
                && source.device() == device
                && (1..1 << 31).contains(&count)
                && source.layout().is_contiguous()
                && target.layout().is_contiguous()
                && target.shape() == source.shape()
                && !std::ptr::eq(source.storage(), target.storage());
            if !is_alike {
                return Ok(false);
            }
            bytes = bytes.saturating_add(2 * (count * dtype.size()) as u64);
            pending += usize::from(source.storage().pending().is_some());
        }
        if bytes >= MAX_BYTES || 2 * pending > parts.len() {
            return Ok(false);
        }
        let Some(maps) = copy_of(dtype) else { return Ok(false) };
        for some in parts.chunks(maps.most()) {
            let view = |tensor, write| SubmittedView { tensor, strides: smallvec![1], write };
            let mut views = SmallVec::with_capacity(2 * some.len());
            for (target, source) in some {
                views.push(view(*source, false));
                views.push(view(target, true));
            }
            let shape = some.iter().map(|(_, source)| source.count()).collect();
            self.submit(Submission { name, kind: &maps, shape, views, axis: 0, limit: 0 })?;
        }
        Ok(true)
    }
}
