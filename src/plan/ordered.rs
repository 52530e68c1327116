//! Results in the memory order of their operands' dimensions, like PyTorch's.
//!
//! Internal results are row-major ([`Runtime::map`]). The results that scripts get from elementwise
//! operations, copies and `*_like` factories are laid out here.

use super::infer::Inferred;
use super::{Elementwise, MapArg, Runtime};
use crate::array::{Dtype, Layout, result_strides, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{CAST, MapFn};
use crate::tensor::Tensor;
use smallvec::SmallVec;

impl Runtime {
    /// [`Runtime::map`] with a result in the memory order of the operands.
    pub fn map_ordered(
        &mut self,
        name: &'static str,
        f: &'static MapFn,
        args: &[MapArg<'_>],
        compute: Dtype,
        dtype: Dtype,
    ) -> Result<Tensor> {
        let Inferred { device, shape } = self.infer(name, args)?;
        let mut layout = Layout::contiguous_over(shape);
        // Fast path: operands with the strides of the result, and operands without dimensions.
        let plain = |arg: &MapArg<'_>| match arg {
            MapArg::Tensor(x) => {
                let own = x.layout();
                same(&own.strides, &layout.strides) || own.is_contiguous()
            }
            _ => true,
        };
        if layout.rank() > 1 && !args.iter().all(plain) {
            let tensors: SmallVec<[&Layout; 4]> =
                args.iter().filter_map(|arg| arg.tensor().map(Tensor::layout)).collect();
            layout.strides = result_strides(&layout.shape, &tensors);
        }
        self.map_as(Elementwise::new(name, f, args, compute, dtype), layout, device)
    }

    /// A copy in a dtype, in the memory order of the tensor, as a script requests it. Complex numbers lose
    /// their imaginary parts, with a warning.
    pub fn cast_ordered(&mut self, tensor: &Tensor, dtype: Dtype) -> Result<Tensor> {
        self.warn_dropped(tensor.dtype(), dtype);
        let (layout, device) = (tensor.layout().kept(), tensor.device());
        let args = [MapArg::Tensor(tensor)];
        self.map_as(Elementwise::new("to", &CAST, &args, tensor.dtype(), dtype), layout, device)
    }

    /// A tensor with memory but without values, in the memory order of a layout.
    pub fn empty_ordered(&mut self, like: &Layout, dtype: Dtype, device: DeviceId) -> Result<Tensor> {
        let tensor = self.fresh_as(like.kept(), dtype, device)?;
        let at = self.place(device)?.queue;
        self.bind_empty(&tensor, at)?;
        Ok(tensor)
    }

    /// A tensor with the memory order of a layout and without memory, to be written by the next submission.
    pub fn fresh_ordered(&mut self, like: &Layout, dtype: Dtype, device: DeviceId) -> Result<Tensor> {
        self.fresh_as(like.kept(), dtype, device)
    }

    /// [`Runtime::empty_ordered`] in page-locked host memory.
    pub fn pinned_ordered(&mut self, like: &Layout, dtype: Dtype) -> Result<Tensor> {
        self.pinned_as(like.kept(), dtype)
    }
}

/// Two tensors of one shape with their dimensions permuted to the memory order of the first, a dense one,
/// which becomes row-major.
pub(super) fn in_order(dense: &Tensor, other: &Tensor) -> (Tensor, Tensor) {
    match dense.layout().outermost_first() {
        None => (dense.clone(), other.clone()),
        Some(order) => {
            let turned = |x: &Tensor| x.with_layout(x.layout().permute(&order));
            (turned(dense), turned(other))
        }
    }
}
