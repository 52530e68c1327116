//! Products of a matrix and a few vectors by our own kernels. Reading the matrix takes nearly all of the time, and for
//! most sizes the library reads it more slowly (docs/performance.md).

use super::{MOST_PRODUCTS, OwnProduct, product_launch};
use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Product, Queue, assemble, bits_type};
use crate::kernel::{Launch, Program, View};
use std::sync::{Arc, LazyLock};

/// A product that [`ThinProduct::launch`] accepts. Accumulates in `f32`, in an order that depends only on the sizes.
///
/// Views: 0 left `[batch, m, k]`, 1 right `[batch, k, n]`, 2 out `[batch, m, n]`. Launch shape: `[batch, m, n, k]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ThinProduct {
    /// The dtype of all three views: one of [`ThinProduct::dtypes`].
    pub dtype: Dtype,
}

/// Minimum lines; fewer leave most of a device idle.
const LEAST_LINES: usize = 128;
/// The minimum for kernels whose blocks take many lines.
const LEAST_COLUMNS: usize = 1024;
/// Minimum bytes of a line whose elements are adjacent.
const LEAST_LENGTH: usize = 1024;
/// Bytes of a unit.
const UNIT: usize = 16;

/// A kernel of the template.
struct Kernel {
    name: &'static str,
    /// The function that it calls.
    call: &'static str,
    /// Maximum number of vectors.
    vectors: usize,
    /// Lines of a block.
    lines: usize,
    threads: u32,
}

const fn kernel(
    name: &'static str,
    call: &'static str,
    vectors: usize,
    lines: usize,
    threads: u32,
) -> Kernel {
    Kernel { name, call, vectors, lines, threads }
}

/// For matrices whose lines have adjacent elements: vectors, lines of a warp, units ahead, warps that share a line, warps.
/// For one, four and eight vectors, the best of those tried on an H200 with matrices of 32 to 180 MiB.
const ROWS: [Kernel; 4] = [
    kernel("rows_1", "rows<1, 1, 4, 4, 4>", 1, 1, 128),
    kernel("rows_2", "rows<2, 2, 4, 4, 8>", 2, 4, 256),
    kernel("rows_4", "rows<4, 4, 2, 4, 8>", 4, 8, 256),
    kernel("rows_8", "rows<8, 4, 2, 4, 8>", 8, 8, 256),
];
/// The same for halves, whose units have twice the elements. For more vectors, the library uses instructions that these
/// kernels do not use.
const ROWS_OF_HALVES: [Kernel; 3] = [
    kernel("rows_1", "rows<1, 1, 4, 4, 4>", 1, 1, 128),
    kernel("rows_2", "rows<2, 2, 4, 4, 8>", 2, 4, 256),
    kernel("rows_4", "rows<4, 2, 2, 4, 8>", 4, 4, 256),
];
/// For `f32` matrices whose lines are adjacent: vectors, threads side by side, elements ahead, warps. For one vector,
/// the library is as fast.
const COLUMNS: [Kernel; 3] = [
    kernel("columns_2", "columns<2, 4, 4, 16>", 2, 16, 512),
    kernel("columns_4", "columns<4, 4, 4, 16>", 4, 16, 512),
    kernel("columns_8", "columns<8, 4, 4, 16>", 8, 16, 512),
];
/// Names of the kernels, those for rows first.
const ENTRIES: [&str; 7] = ["rows_1", "rows_2", "rows_4", "rows_8", "columns_2", "columns_4", "columns_8"];
const ENTRIES_OF_HALVES: [&str; 3] = ["rows_1", "rows_2", "rows_4"];

/// The kernels of a dtype: those for rows, then those for columns.
fn kernels(dtype: Dtype) -> [&'static [Kernel]; 2] {
    if dtype.is_half() { [&ROWS_OF_HALVES, &[]] } else { [&ROWS, &COLUMNS] }
}

/// The kernel and the layout of a launch.
struct Plan<'a> {
    kernel: &'static Kernel,
    /// The number of the kernel in the source.
    entry: usize,
    matrix: &'a View,
    vectors: &'a View,
    /// The dimension of the matrix's lines, in all views: 1 or 2.
    line: usize,
    /// The other of the two.
    other: usize,
    /// The distance between lines, or between elements of lines that are adjacent, in elements.
    step: isize,
}

impl Plan<'_> {
    fn of(dtype: Dtype, launch: &Launch) -> Option<Plan<'_>> {
        let [left, right, _] = &launch.views[..] else { return None };
        Plan::with(dtype, launch, right, left, 2).or_else(|| Plan::with(dtype, launch, left, right, 1))
    }

    fn with<'a>(
        dtype: Dtype,
        launch: &Launch,
        matrix: &'a View,
        vectors: &'a View,
        line: usize,
    ) -> Option<Plan<'a>> {
        let other = 3 - line;
        let (lines, count, length) = (launch.shape[line], launch.shape[other], launch.shape[3]);
        let bytes = |n: isize| n.unsigned_abs() * dtype.size();
        let whole = |n: isize| bytes(n).is_multiple_of(UNIT);
        let aligned = |view: &View| view.ptr.is_multiple_of(UNIT as u64) && whole(view.strides[0]);
        let [rows, columns] = kernels(dtype);
        let (kernels, first, step) = if matrix.strides[other] == 1 {
            let step = matrix.strides[line];
            let units = vectors.strides[line] == 1 && whole(length as isize) && whole(step);
            let vectors = aligned(vectors) && (count == 1 || whole(vectors.strides[other]));
            let enough = lines >= LEAST_LINES && bytes(length as isize) >= LEAST_LENGTH;
            (units && vectors && enough).then_some((rows, 0, step))
        } else {
            let step = matrix.strides[other];
            let units = matrix.strides[line] == 1 && whole(lines as isize) && whole(step);
            let enough = count > 1 && lines >= LEAST_COLUMNS && length >= LEAST_LINES;
            (units && enough).then_some((columns, rows.len(), step))
        }?;
        let number = kernels.iter().position(|kernel| kernel.vectors >= count)?;
        let (kernel, entry) = (&kernels[number], first + number);
        aligned(matrix).then_some(Plan { kernel, entry, matrix, vectors, line, other, step })
    }
}

impl ThinProduct {
    /// The supported dtypes: those whose sums are `f32`.
    pub fn dtypes() -> impl Iterator<Item = Dtype> {
        Dtype::REAL.into_iter().filter(|dtype| dtype.class() == Class::F32)
    }

    /// The launch that computes a product; `None` for products that the library computes.
    pub fn launch(product: &Product) -> Option<Launch> {
        static PROGRAMS: LazyLock<Vec<(Dtype, Arc<Program>)>> = LazyLock::new(|| {
            ThinProduct::dtypes()
                .map(|dtype| (dtype, Arc::new(Program::new(&ThinProduct { dtype }))))
                .collect()
        });
        let (_, program) = PROGRAMS.iter().find(|(dtype, _)| *dtype == product.dtype)?;
        let [m, n, _] = product.sizes;
        if product.out_dtype != product.dtype || m.min(n) > COLUMNS[COLUMNS.len() - 1].vectors {
            return None;
        }
        let launch = product_launch(program, product);
        Plan::of(product.dtype, &launch).is_some().then_some(launch)
    }
}

impl OwnProduct for ThinProduct {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn template(&self) -> CudaSource {
        let all = kernels(self.dtype);
        let define = |kernel: &Kernel| {
            let Kernel { name, call, threads, .. } = kernel;
            format!(
                "extern \"C\" __global__ void __launch_bounds__({threads}) \
                 {name}(const __grid_constant__ Params p) {{ {call}(p); }}\n"
            )
        };
        let defined: String = all.iter().flat_map(|kernels| kernels.iter()).map(define).collect();
        let dtype = self.dtype.to_string();
        let values =
            [("BITS", bits_type(self.dtype)), ("DTYPE", dtype.as_str()), ("KERNELS", defined.as_str())];
        let text = assemble(include_str!("../../../../kernels/thin.cu"), &values);
        CudaSource { text, entries: if self.dtype.is_half() { &ENTRIES_OF_HALVES } else { &ENTRIES } }
    }

    fn queue(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<()> {
        let Some(plan) = Plan::of(self.dtype, launch) else { return Ok(()) };
        let (out, batch) = (&launch.views[2], launch.shape[0]);
        let (lines, count, length) = (launch.shape[plan.line], launch.shape[plan.other], launch.shape[3]);
        let bytes = |n: isize| n as u64 * self.dtype.size() as u64;
        let words = [
            plan.matrix.ptr,
            plan.vectors.ptr,
            out.ptr,
            lines as u64,
            length as u64,
            bytes(plan.step),
            count as u64,
            bytes(plan.vectors.strides[plan.other]),
            bytes(plan.vectors.strides[plan.line]),
            bytes(out.strides[plan.line]),
            bytes(out.strides[plan.other]),
            batch as u64,
            bytes(plan.matrix.strides[0]),
            bytes(plan.vectors.strides[0]),
            bytes(out.strides[0]),
        ];
        let grid = (lines.div_ceil(plan.kernel.lines) as u32, batch.min(MOST_PRODUCTS) as u32, 1);
        queue.run_grid(plan.entry, grid, plan.kernel.threads, &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// The kernel for a product of contiguous or transposed matrices.
    fn kernel_of(dtype: Dtype, sizes: [usize; 3], transposed: [bool; 2], ptr: u64) -> Option<&'static str> {
        let launch = ThinProduct::launch(&Product::of_matrices(dtype, sizes, transposed, ptr))?;
        Plan::of(dtype, &launch).map(|plan| {
            assert_eq!(ThinProduct { dtype }.template().entries[plan.entry], plan.kernel.name);
            plan.kernel.name
        })
    }

    #[test]
    fn matrices_that_are_read_once_have_kernels() {
        let f32 = |sizes, transposed| kernel_of(Dtype::F32, sizes, transposed, 0);
        // x @ w.T, and w @ x for a vector.
        assert_eq!(f32([1, 4096, 4096], [false, true]), Some("rows_1"));
        assert_eq!(f32([3, 4096, 4096], [false, true]), Some("rows_4"));
        assert_eq!(f32([4096, 1, 4096], [false, false]), Some("rows_1"));
        assert_eq!(f32([4096, 8, 4096], [false, true]), Some("rows_8"));
        // x @ w, and w.T @ x.
        assert_eq!(f32([2, 4096, 4096], [false, false]), Some("columns_2"));
        assert_eq!(f32([5, 4096, 4096], [true, false]), Some("columns_8"));
        assert_eq!(f32([4096, 2, 4096], [true, false]), Some("columns_2"));
        assert_eq!(f32([1, 4096, 4096], [false, false]), None, "the library is as fast");
        let bf16 = |sizes, transposed| kernel_of(Dtype::BF16, sizes, transposed, 0);
        assert_eq!(bf16([4, 4096, 4096], [false, true]), Some("rows_4"));
        assert_eq!(bf16([5, 4096, 4096], [false, true]), None);
        assert_eq!(bf16([1, 4096, 4096], [false, false]), None);
    }

    #[test]
    fn other_products_are_the_librarys() {
        let f32 = |sizes, transposed| kernel_of(Dtype::F32, sizes, transposed, 0);
        assert_eq!(f32([9, 4096, 4096], [false, true]), None, "too many vectors");
        assert_eq!(f32([1, 64, 4096], [false, true]), None, "too few lines");
        assert_eq!(f32([1, 4096, 64], [false, true]), None, "lines too short");
        assert_eq!(f32([1, 4096, 4098], [false, true]), None, "lines of no whole units");
        assert_eq!(f32([8, 4096, 4096], [true, true]), None, "vectors of no units");
        assert_eq!(kernel_of(Dtype::F32, [1, 4096, 4096], [false, true], 4), None, "not aligned");
        assert_eq!(kernel_of(Dtype::F64, [1, 4096, 4096], [false, true], 0), None, "no such dtype");
    }
}
