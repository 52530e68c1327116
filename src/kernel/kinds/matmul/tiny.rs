//! Products of tiny matrices by our own kernel. For many, the library uses a block for each; for one, its kernels take 9 to
//! 16 us, ours 5 (docs/performance.md).

use super::{ADD_PRODUCT, OwnProduct, Sizes};
use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::cuda::index::{Words, divisor};
use crate::kernel::cuda::{CudaSource, Queue, any_dtype, assemble, blocks};
use crate::kernel::{Launch, Program, View};
use smallvec::SmallVec;
use std::sync::{Arc, LazyLock};

/// A [`Matmul`] of sizes that [`TinyProduct::launch`] accepts. Sums are in ascending order, in `f32`, or in the dtype
/// if that is wider or complex; integers wrap.
///
/// Views and launch shape are those of [`Matmul`]. The operands may have any strides.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TinyProduct {
    /// The dtype of all three views.
    pub dtype: Dtype,
}

/// Maximum length of a sum; a thread computes whole sums.
const DEPTH: usize = 16;
/// Maximum elements of a result matrix.
const ELEMENTS: usize = 256;
/// Minimum products of a batch.
const LEAST_PRODUCTS: usize = 64;
/// Maximum length of a sum in large batches of small results. The library's time for these does not depend on the
/// length: 272 us for 50,000 products of 4 x 64 by 64 x 4 matrices, where reading the bytes takes 25 us.
const LONG_DEPTH: usize = 64;
const LONG_ELEMENTS: usize = 16;
const LEAST_LONG_PRODUCTS: usize = 4096;
/// If one operand has at most this many elements (points times a rotation), the rows of the other count as a batch.
const SMALL: usize = 16;
/// Minimum total rows or columns of such products.
const LEAST_ROWS: usize = 4096;
/// Maximum lengths of the sums of a few products, and maximum elements of all their results: the work that one thread per
/// element does before the library would have finished, with any strides.
const FEW: [(usize, usize); 3] = [(DEPTH, 1 << 16), (32, 1 << 10), (LONG_DEPTH, 1 << 8)];
/// Maximum batch dimensions after merging.
const RANK: usize = 4;
/// Minimum rows and columns of a result that is computed in tiles of 2 x 2 elements, if sums are `f32`.
const TILED: usize = 6;

/// Names of the kernels.
const ENTRIES: [&str; 3] = ["tiny", "tiny_wide", "tiny_tiles"];
const THREADS: u32 = 256;

/// Returns whether the kernels multiply matrices of these sizes. Depends on nothing else, so results do not
/// depend on strides.
fn fits(sizes: &Sizes) -> bool {
    let &Sizes { ref batch, m, n, k } = sizes;
    let products = batch.iter().fold(1usize, |all, &n| all.saturating_mul(n));
    let many = products >= LEAST_PRODUCTS && m.saturating_mul(n) <= ELEMENTS;
    let long = products.saturating_mul(m.max(n)) >= LEAST_ROWS && m.min(n).saturating_mul(k) <= SMALL;
    let deep = products >= LEAST_LONG_PRODUCTS && m.saturating_mul(n) <= LONG_ELEMENTS && k <= LONG_DEPTH;
    let elements = products.saturating_mul(m).saturating_mul(n);
    let few = FEW.iter().any(|&(depth, most)| k <= depth && elements <= most);
    // The kernels count elements in 31 bits.
    k > 0 && (k <= DEPTH && (many || long) || deep || few) && elements < 1 << 31
}

/// The number of a dtype in the source: its position in [`Dtype::ALL`], which starts with the real ones.
fn number(dtype: Dtype) -> u64 {
    Dtype::ALL.iter().position(|&other| other == dtype).unwrap_or_default() as u64
}

/// A batch dimension: its extent, and the distances between left and between right matrices, in elements.
type Dimension = (usize, [isize; 2]);

/// The batch dimensions, the innermost first; dimensions that both operands traverse with one stride are merged. At
/// least one.
fn dimensions(batch: &[usize], left: &View, right: &View) -> SmallVec<[Dimension; RANK]> {
    let mut all: SmallVec<[Dimension; RANK]> = SmallVec::new();
    for d in (0..batch.len()).rev().filter(|&d| batch[d] != 1) {
        let steps = [left, right].map(|view| view.strides[d]);
        match all.last_mut() {
            Some((extent, inner)) if steps == inner.map(|step| step * *extent as isize) => {
                *extent *= batch[d];
            }
            _ => all.push((batch[d], steps)),
        }
    }
    if all.is_empty() {
        all.push((1, [0; 2]));
    }
    all
}

impl TinyProduct {
    /// Returns whether [`TinyProduct::launch`] can replace this launch of a [`Matmul`].
    pub(super) fn takes(launch: &Launch) -> bool {
        let sizes = Sizes::of(launch);
        let [left, right, out] = &launch.views[..] else { return false };
        out.dtype == left.dtype && fits(&sizes) && dimensions(&sizes.batch, left, right).len() <= RANK
    }

    /// The launch that replaces a launch of a [`Matmul`]; `None` for products that the library computes.
    pub fn launch(dtype: Dtype, launch: &Launch) -> Option<Launch> {
        static PROGRAMS: LazyLock<Vec<Arc<Program>>> = LazyLock::new(|| {
            Dtype::ALL.into_iter().map(|dtype| Arc::new(Program::new(&TinyProduct { dtype }))).collect()
        });
        let program = PROGRAMS.get(number(dtype) as usize)?;
        TinyProduct::takes(launch).then(|| Launch { program: Arc::clone(program), ..launch.clone() })
    }
}

impl OwnProduct for TinyProduct {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn template(&self) -> CudaSource {
        // The template names dtypes, as `@F32@`.
        let numbers = Dtype::ALL.map(|dtype| (dtype.name().to_uppercase(), number(dtype).to_string()));
        let integers = any_dtype(Class::I64);
        let mut values = vec![("ADD_PRODUCT", ADD_PRODUCT), ("INTEGERS", integers.as_str())];
        values.extend(numbers.iter().map(|(name, number)| (name.as_str(), number.as_str())));
        let text = assemble(include_str!("../../../../kernels/tiny.cu"), &values);
        CudaSource { text, entries: &ENTRIES }
    }

    fn queue(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<()> {
        let Sizes { batch, m, n, k } = Sizes::of(launch);
        let [left, right, out] = [0, 1, 2].map(|view| &launch.views[view]);
        let size = self.dtype.size();
        let bytes = |step: isize| (step * size as isize) as u64;
        let (entry, edge) = match self.dtype.class() {
            Class::F32 if m.min(n) >= TILED => (2, 2),
            Class::F32 | Class::I64 => (0, 1),
            _ => (1, 1),
        };
        let (down, across) = (m.div_ceil(edge), n.div_ceil(edge));
        let tiles = batch.iter().product::<usize>() * down * across;
        let dimensions = dimensions(&batch, left, right);
        let mut words = Words::new();
        words.extend([left.ptr, right.ptr, out.ptr, tiles as u64]);
        words.extend([m, n, k].map(|n| n as u64));
        let steps = [left, right].map(|view| [0, 1].map(|d| bytes(view.strides[batch.len() + d])));
        words.extend(steps.into_iter().flatten());
        words.extend([across, down].into_iter().flat_map(|n| divisor(n as u64)));
        words.extend([(dimensions.len() - 1) as u64, number(self.dtype), size as u64]);
        let none = (1, [0; 2]);
        for (extent, steps) in dimensions.iter().chain(std::iter::repeat(&none)).take(RANK) {
            words.extend(divisor(*extent as u64));
            words.extend(steps.map(bytes));
        }
        queue.run(entry, blocks(tiles as u64, u64::from(THREADS)), THREADS, &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Strides, contiguous_strides};
    use crate::kernel::cuda::dtype_number;
    use smallvec::smallvec;

    fn takes(shape: &[usize]) -> bool {
        fits(&Sizes::of(&Launch::new(
            Arc::new(Program::new(&TinyProduct { dtype: Dtype::F32 })),
            shape.into(),
            smallvec![],
        )))
    }

    #[test]
    fn batches_of_tiny_matrices_and_long_ones_of_few_elements_fit() {
        assert!(takes(&[65536, 4, 4, 4]) && takes(&[4096, 16, 16, 16]) && takes(&[64, 2, 2, 2]));
        assert!(takes(&[8, 512, 3, 1, 3]), "a batch of two dimensions");
        assert!(takes(&[1 << 20, 3, 3]) && takes(&[3, 1 << 20, 3]), "points times a rotation");
        assert!(takes(&[2, 2, 2]) && takes(&[256, 256, 16]) && takes(&[32, 32, 32]) && takes(&[1, 256, 64]));
        assert!(
            !takes(&[256, 257, 16])
                && !takes(&[32, 33, 17])
                && !takes(&[2, 16, 16, 33])
                && !takes(&[4, 4, 65])
        );
        assert!(takes(&[4096, 4, 4, 64]) && takes(&[65536, 4, 1, 17]), "longer sums");
        assert!(!takes(&[4096, 4, 4, 65]) && !takes(&[4095, 4, 4, 17]) && !takes(&[65536, 4, 5, 17]));
        assert!(!takes(&[65536, 16, 17, 4]), "larger matrices");
        assert!(!takes(&[1 << 20, 8, 8]), "a larger operand");
        assert!(!takes(&[1 << 20, 3, 0]));
        assert!(!takes(&[1 << 27, 4, 4, 4]), "more elements than are counted");
    }

    #[test]
    fn dtype_numbers_agree_with_the_prelude() {
        for dtype in Dtype::REAL {
            assert_eq!(number(dtype), dtype_number(dtype));
        }
    }

    #[test]
    fn dimensions_merge_if_both_operands_share_a_stride() {
        let view = |strides: &[isize]| View::new(0, Dtype::F32, Strides::from(strides));
        let dense = view(&contiguous_strides(&[5, 6, 7, 2, 2]));
        assert_eq!(dimensions(&[5, 6, 7], &dense, &dense)[..], [(210, [4, 4])]);
        let broadcast = view(&[0, 28, 4, 2, 1]);
        assert_eq!(dimensions(&[5, 6, 7], &dense, &broadcast)[..], [(42, [4, 4]), (5, [168, 0])]);
        assert_eq!(dimensions(&[1, 1], &dense, &dense)[..], [(1, [0, 0])]);
        let one = view(&[9, 28, 4, 2, 1]);
        assert_eq!(dimensions(&[1, 6, 7], &dense, &one)[..], [(42, [4, 4])], "one element has no step");
    }
}
