//! Products of floats and complex numbers by our own kernel, for machines without cuBLAS.

use super::{ADD_PRODUCT, MOST_PRODUCTS, OwnProduct, product_launch};
use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::cuda::{
    CudaSource, Product, Queue, any_dtype, assemble, bits_type, class_type, dtype_number,
};
use crate::kernel::{Launch, Program, View};
use std::sync::Arc;

/// A [`Matmul`] without cuBLAS. Accumulates in `f32`, or in the dtype if that is wider or complex, in ascending order.
///
/// Views: 0 left `[batch, m, k]`, 1 right `[batch, k, n]`, 2 out `[batch, m, n]`. Launch shape: `[batch, m, n, k]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TiledProduct {
    /// The dtype of the operands.
    pub dtype: Dtype,
}

/// Rows and columns of the result per block, also in the template.
const TILE: usize = 64;

impl TiledProduct {
    /// The launch that computes a product.
    pub fn launch(product: &Product) -> Launch {
        product_launch(&Arc::new(Program::new(&TiledProduct { dtype: product.dtype })), product)
    }
}

impl OwnProduct for TiledProduct {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn template(&self) -> CudaSource {
        let (dtype, class, bits) = (self.dtype, self.dtype.class(), bits_type(self.dtype));
        let [dtypes, load, store, size] = match class {
            // One kernel for halves too.
            Class::F32 => [
                any_dtype(class),
                "load_any(address, (u32)p.w[15])".into(),
                "store_any(address, (u32)p.w[16], value)".into(),
                "p.w[17]".into(),
            ],
            _ => [
                String::new(),
                format!("load_{dtype}(*memory<const {bits}>(address))"),
                format!("*memory<{bits}>(address) = store_{dtype}(value)"),
                format!("sizeof({bits})"),
            ],
        };
        let values = [
            ("ACC", class_type(class)),
            ("ADD_PRODUCT", ADD_PRODUCT),
            ("DTYPES", dtypes.as_str()),
            ("LOAD", load.as_str()),
            ("STORE", store.as_str()),
            ("SIZE", size.as_str()),
        ];
        let text = assemble(include_str!("../../../../kernels/product.cu"), &values);
        CudaSource { text, entries: &["product"] }
    }

    fn queue(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<()> {
        let &[batch, m, n, k] = &launch.shape[..] else { return Ok(()) };
        let [left, right, out] = [0, 1, 2].map(|view| &launch.views[view]);
        let step = |view: &View, d: usize| view.strides[d] as u64 * view.dtype.size() as u64;
        let words = [
            left.ptr,
            right.ptr,
            out.ptr,
            m as u64,
            n as u64,
            k as u64,
            step(left, 1),
            step(left, 2),
            step(right, 1),
            step(right, 2),
            step(out, 1),
            batch as u64,
            step(left, 0),
            step(right, 0),
            step(out, 0),
            dtype_number(self.dtype),
            dtype_number(out.dtype),
            out.dtype.size() as u64,
        ];
        let tiles = m.div_ceil(TILE) * n.div_ceil(TILE);
        queue.run_grid(0, (tiles as u32, batch.min(MOST_PRODUCTS) as u32, 1), 256, &words)
    }
}
