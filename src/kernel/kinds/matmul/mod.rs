//! Matrix products: floats and complex numbers by cuBLAS, integers and batches of tiny matrices by our own kernels.
//!
//! cuBLAS is column-major, so a product of row-major matrices is computed as the transposed product of the
//! transposed operands. An operand whose strides form a matrix in either order is used in place; any other is
//! packed first.

mod addresses;
mod host;
mod mapped;
mod thin;
mod tiled;
mod tiny;

use crate::array::{Class, Dims, Dtype, Strides};
use crate::base::Result;
use crate::kernel::cuda::operand::{copy, packed};
use crate::kernel::cuda::{
    CudaSource, Operand, Outer, Product, Queue, Signature, any_dtype, assemble, dtype_number,
};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Identity, Kind, Launch, Program, View};
use smallvec::{SmallVec, smallvec};
use std::fmt::Debug;
use std::sync::Arc;

pub use addresses::Addresses;
pub use mapped::{LEAST_RESULTS, MappedMatmul};
pub use thin::ThinProduct;
pub use tiled::TiledProduct;
pub use tiny::TinyProduct;

/// A batched matrix product.
///
/// Views: 0 left `[batch.., m, k]`, 1 right `[batch.., k, n]`, 2 out `[batch.., m, n]` (contiguous). Launch
/// shape: `[batch.., m, n, k]`. Batch strides may be 0. Floats accumulate in `f32` (`f64` for `f64`), complex
/// numbers in their own dtype. Integers accumulate in `i64` and wrap. The result has the dtype of the operands; that of
/// halves may be `f32`, the sums without rounding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matmul {
    /// The dtype of the operands.
    pub dtype: Dtype,
    /// Allows TF32 for `f32` and `c64` on CUDA (`cuda.matmul.allow_tf32`); off by default.
    pub tf32: bool,
}

/// The shape of a product: batch dimensions, then m, n, k.
struct Sizes {
    batch: Dims,
    m: usize,
    n: usize,
    k: usize,
}

impl Sizes {
    fn of(launch: &Launch) -> Sizes {
        let split = launch.shape.len().saturating_sub(3);
        let at = |i: usize| launch.shape.get(split + i).copied().unwrap_or(1);
        Sizes { batch: launch.shape[..split].into(), m: at(0), n: at(1), k: at(2) }
    }
}

/// Returns whether cuBLAS multiplies this dtype.
fn by_blas(dtype: Dtype) -> bool {
    dtype.is_float() || dtype.is_complex()
}

/// A matrix `[rows, columns]` as cuBLAS reads its memory: `Some((transposed, leading))`, where an
/// untransposed operand has contiguous rows.
fn as_operand(rows: usize, columns: usize, strides: [isize; 2]) -> Option<(bool, i64)> {
    let fits =
        |leading: isize, extent: usize| leading >= extent.max(1) as isize && leading <= i32::MAX as isize;
    let [row, column] = strides;
    if column == 1 || columns == 1 {
        let leading = if rows == 1 { columns.max(1) as isize } else { row };
        if fits(leading, columns) {
            return Some((false, leading as i64));
        }
    }
    if row == 1 || rows == 1 {
        let leading = if columns == 1 { rows.max(1) as isize } else { column };
        if fits(leading, rows) {
            return Some((true, leading as i64));
        }
    }
    None
}

/// Packs an operand unless cuBLAS can read it; returns the view to read and its layout.
fn operand(
    queue: &mut dyn Queue,
    batch: &[usize],
    rows: usize,
    columns: usize,
    view: &View,
) -> Result<(View, bool, i64)> {
    let rank = batch.len();
    let last = [view.strides[rank], view.strides[rank + 1]];
    if let Some((transposed, leading)) = as_operand(rows, columns, last) {
        return Ok((view.clone(), transposed, leading));
    }
    // Broadcast batch dimensions are packed once and stay broadcast.
    let extents: Dims = batch
        .iter()
        .zip(&view.strides)
        .map(|(&n, &s)| if s == 0 { 1 } else { n })
        .chain([rows, columns])
        .collect();
    let mut place = packed(queue, &extents, view.dtype)?;
    copy(queue, &extents, view, &place)?;
    for (stride, &extent) in place.strides.iter_mut().zip(&extents).take(rank) {
        if extent == 1 {
            *stride = 0;
        }
    }
    Ok((place, false, columns.max(1) as i64))
}

/// Splits the batch dimensions: the innermost ones with a common step in all three views are one strided batch. Returns
/// the first of them, the size of the batch, and the steps.
fn strided_batch(batch: &[usize], strides: [&Strides; 3]) -> (usize, usize, [isize; 3]) {
    let real: SmallVec<[usize; 6]> = (0..batch.len()).filter(|&d| batch[d] != 1).collect();
    let Some((&last, outer)) = real.split_last() else { return (0, 1, [0; 3]) };
    let steps = strides.map(|s| s[last]);
    let mut count = batch[last];
    let mut first = last;
    for &d in outer.iter().rev() {
        let joins = strides.iter().zip(steps).all(|(s, step)| s[d] == step * count as isize);
        if !joins || count * batch[d] > i32::MAX as usize {
            break;
        }
        count *= batch[d];
        first = d;
    }
    (first, count, steps)
}

/// The text that the templates of our own kernels share.
pub(super) const ADD_PRODUCT: &str = include_str!("../../../../kernels/add_product.cuh");

/// Limit on the batch dimension of the grids of our own kernels.
const MOST_PRODUCTS: usize = 1 << 15;

/// A launch of one of our own kernels for a product. Views: 0 left `[batch, m, k]`, 1 right `[batch, k, n]`, 2 out
/// `[batch, m, n]`. Shape: `[batch, m, n, k]`.
fn product_launch(program: &Arc<Program>, product: &Product) -> Launch {
    let [m, n, k] = product.sizes;
    let view = |operand: &Operand| {
        let (line, step) = (operand.leading as isize, operand.step as isize);
        let [row, column] = if operand.transposed { [1, line] } else { [line, 1] };
        View::new(operand.ptr, product.dtype, smallvec![step, row, column])
    };
    let out = View::new(product.out, product.out_dtype, smallvec![product.out_step as isize, n as isize, 1]);
    Launch::new(
        program.clone(),
        smallvec![product.batch, m, n, k],
        smallvec![view(&product.left), view(&product.right), out],
    )
}

/// A kernel of our own that ships and runs some of the launches of a [`Matmul`].
pub trait OwnProduct: Identity + Debug + Send + Sync {
    /// The dtype of the product's operands.
    fn dtype(&self) -> Dtype;
    /// See [`Kind::source`].
    fn template(&self) -> CudaSource;
    /// See [`Kind::enqueue`].
    fn queue(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<()>;
}

impl<P: OwnProduct> Kind for P {
    fn label(&self) -> String {
        LABEL.into()
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller; the views and the shape are those of a product.
        unsafe { Matmul { dtype: self.dtype(), tf32: false }.run(launch, faults) }
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        self.template()
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        self.queue(launch, queue)
    }
}

/// The label of all programs that are part of a product.
const LABEL: &str = "matmul";

impl Kind for Matmul {
    fn label(&self) -> String {
        LABEL.into()
    }

    fn work(&self, shape: &[usize]) -> usize {
        shape.iter().fold(1, |all, &n| all.saturating_mul(n))
    }

    fn is_empty(&self, launch: &Launch) -> bool {
        // A product over an inner extent of 0 is a matrix of zeros.
        launch.shape[..launch.shape.len().saturating_sub(1)].contains(&0)
    }

    fn cost(&self, launch: &Launch) -> u64 {
        1000 + launch.shape.iter().fold(1u64, |n, &extent| n.saturating_mul(extent as u64)) / 5_000
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::run(self, launch) }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        let extent = |d: usize| launch.shape.iter().rev().nth(d).map_or(1, |&n| n as u64);
        let (k, n, m) = (extent(0), extent(1), extent(2));
        let bytes = |a: u64, b: u64, size: u64| a.saturating_mul(b).saturating_mul(size);
        match self.dtype {
            dtype if dtype.is_half() => {
                bytes(m, k, 4).saturating_add(bytes(k, n, 4)).saturating_add(bytes(m, n, 4))
            }
            dtype if dtype.is_float() => 0,
            _ => bytes(k, n, 8),
        }
    }

    fn multiplies(&self, launch: &Launch) -> bool {
        by_blas(self.dtype) && !TinyProduct::takes(launch)
    }

    fn ships(&self) -> bool {
        !by_blas(self.dtype)
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        if by_blas(self.dtype) {
            return CudaSource { text: String::new(), entries: &[] };
        }
        let dtypes = any_dtype(Class::I64);
        let text = assemble(include_str!("../../../../kernels/matmul.cu"), &[("DTYPES", dtypes.as_str())]);
        CudaSource { text, entries: &["matmul"] }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let Sizes { batch, m, n, k } = Sizes::of(launch);
        let out = launch.views[2].clone();
        let size = self.dtype.size() as u64;
        if k == 0 {
            let count = batch.iter().product::<usize>() * m * n;
            return queue.clear(out.ptr, count as u64 * out.dtype.size() as u64);
        }
        if let Some(tiny) = TinyProduct::launch(self.dtype, launch) {
            return queue.launch(&tiny);
        }
        if by_blas(self.dtype) {
            let left = operand(queue, &batch, m, k, &launch.views[0])?;
            let right = operand(queue, &batch, k, n, &launch.views[1])?;
            let strides = [&left.0.strides, &right.0.strides, &out.strides];
            let (first, count, steps) = strided_batch(&batch, strides);
            let outer = (0..first)
                .filter(|&d| batch[d] != 1)
                .map(|d| Outer { extent: batch[d], steps: strides.map(|strides| strides[d] as i64) });
            let operand = |(view, transposed, leading): &(View, bool, i64), step: isize| Operand {
                ptr: view.ptr,
                transposed: *transposed,
                leading: *leading,
                step: step as i64,
            };
            return queue.multiply(&Product {
                dtype: self.dtype,
                out_dtype: out.dtype,
                tf32: self.tf32,
                sizes: [m, n, k],
                batch: count,
                left: operand(&left, steps[0]),
                right: operand(&right, steps[1]),
                out: out.ptr,
                out_step: steps[2] as i64,
                outer: outer.collect(),
            });
        }
        let mut at: SmallVec<[usize; 6]> = SmallVec::from_elem(0, batch.len());
        let address = |view: &View, at: &[usize]| {
            let offset: u64 = at.iter().zip(&view.strides).map(|(&i, &s)| i as u64 * s as u64).sum();
            view.ptr + offset * size
        };
        let stride = |view: &View, i: usize| view.strides[batch.len() + i] as u64 * size;
        let [left, right] = [&launch.views[0], &launch.views[1]];
        for _ in 0..batch.iter().product::<usize>() {
            let words = [
                address(left, &at),
                address(right, &at),
                address(&out, &at),
                m as u64,
                n as u64,
                k as u64,
                stride(left, 0),
                stride(left, 1),
                stride(right, 0),
                stride(right, 1),
                size,
                dtype_number(self.dtype),
            ];
            queue.run(0, (m.div_ceil(16) * n.div_ceil(16)) as u32, 256, &words)?;
            for d in (0..batch.len()).rev() {
                at[d] += 1;
                if at[d] < batch[d] {
                    break;
                }
                at[d] = 0;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_that_are_matrices_need_no_copy() {
        assert_eq!(as_operand(3, 4, [4, 1]), Some((false, 4)));
        assert_eq!(as_operand(3, 4, [9, 1]), Some((false, 9)));
        assert_eq!(as_operand(3, 4, [1, 3]), Some((true, 3)));
        assert_eq!(as_operand(3, 1, [5, 7]), Some((false, 5)));
        assert_eq!(as_operand(1, 4, [0, 2]), Some((true, 2)));
        assert_eq!(as_operand(3, 4, [0, 1]), None, "broadcast rows overlap");
        assert_eq!(as_operand(3, 4, [8, 2]), None);
    }

    #[test]
    fn batch_dimensions_merge_if_all_views_share_a_stride() {
        let (a, b, c): (Strides, Strides, Strides) =
            (smallvec![60, 20, 5, 1], smallvec![0, 0, 5, 1], smallvec![12, 4, 2, 1]);
        assert_eq!(strided_batch(&[2, 3], [&a, &b, &c]), (0, 6, [20, 0, 4]));
        let b: Strides = smallvec![20, 0, 5, 1];
        assert_eq!(strided_batch(&[2, 3], [&a, &b, &c]), (1, 3, [20, 0, 4]));
        assert_eq!(strided_batch(&[], [&a, &b, &c]), (0, 1, [0; 3]));
    }
}
