//! Batched matrix products: the `gemm` crate for floats, a loop for integers.
//!
//! Halves are widened to `f32`; the result is rounded once. The order of additions depends on the extents and
//! strides of the matrices, never on the number of threads.

use crate::array::{Convert, Dtype, Scalar, dispatch};
use crate::kernel::host::element::{self, Element, Tile};
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::tasks::{self, PARALLEL, Until};
use crate::kernel::{Launch, Matmul};

/// One product of the batch: `out[m, n] = left[m, k] right[k, n]`.
#[derive(Clone, Copy)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    left: Operand,
    right: Operand,
    out: Operand,
    /// Whether the product may use all threads.
    threads: bool,
}

/// A matrix in memory; strides in elements.
#[derive(Clone, Copy)]
struct Operand {
    ptr: *mut u8,
    rs: isize,
    cs: isize,
}

// SAFETY: the tasks of a product read the operands and write disjoint parts of the result.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

/// Number of multiply-adds from which one product uses all threads.
const HEAVY: usize = 1 << 18;

/// Runs a matrix product.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(super) unsafe fn run(matmul: &Matmul, launch: &Launch) {
    let rank = launch.shape.len();
    let [batch @ .., m, n, k] = &launch.shape[..] else { return };
    let (m, n, k) = (*m, *n, *k);
    let batches: usize = batch.iter().product();
    if batches == 0 || m == 0 || n == 0 {
        return;
    }
    let work = m.saturating_mul(n).saturating_mul(k.max(1));
    let share = batches > 1 && work < HEAVY * 16 && work.saturating_mul(batches) >= HEAVY;
    let product = |number: usize| {
        let operand = |view: usize| {
            let view = &launch.views[view];
            let (mut rest, mut offset) = (number, 0);
            for d in (0..rank - 3).rev() {
                offset += (rest % batch[d]) as isize * view.strides[d];
                rest /= batch[d];
            }
            let ptr = view.ptr as usize as *mut u8;
            let ptr = ptr.wrapping_offset(offset * view.dtype.size() as isize);
            Operand { ptr, rs: view.strides[rank - 3], cs: view.strides[rank - 2] }
        };
        let threads = !share && work >= HEAVY;
        Product { m, n, k, left: operand(0), right: operand(1), out: operand(2), threads }
    };
    let out = launch.views[2].dtype;
    let one = |number: usize| {
        let p = product(number);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match matmul.dtype {
                _ if k == 0 => clear(out, p),
                dtype => dispatch!(
                    dtype,
                    whole M => whole::<M>(p),
                    half M => half::<M>(p, out == Dtype::F32),
                    native M => float(p, M::default(), M::of(Scalar::Int(1)), false)
                ),
            }
        }
    };
    tasks::each(batches, share, one);
}

unsafe fn clear(dtype: Dtype, p: Product) {
    for row in 0..p.m {
        let to = p.out.ptr.wrapping_offset(row as isize * p.out.rs * dtype.size() as isize);
        // SAFETY: guaranteed by the caller: rows of the result are contiguous, and zero bytes are 0 in every
        // dtype.
        unsafe { to.write_bytes(0, p.n * dtype.size()) };
    }
}

/// Maximum multiply-adds and element reads of a product that runs in one call. A larger product is cut into
/// blocks, so that it can end early: at most `SIDE` rows and columns and `BLOCK` multiply-adds each.
const AT_ONCE: usize = 1 << 28;
const READ_AT_ONCE: usize = 1 << 22;
const SIDE: usize = 512;
const BLOCK: usize = 1 << 27;

/// A float product; `add` adds it to the previous contents.
unsafe fn float<T: Copy + Sync + 'static>(p: Product, zero: T, one: T, add: bool) {
    let read = p.m.saturating_add(p.n).saturating_mul(p.k);
    if p.m.saturating_mul(p.n).saturating_mul(p.k) <= AT_ONCE && read <= READ_AT_ONCE {
        // SAFETY: guaranteed by the caller.
        return unsafe { gemm_of(p, if add { one } else { zero }, one, add) };
    }
    let (rows, columns) = (p.m.div_ceil(SIDE), p.n.div_ceil(SIDE));
    let size = size_of::<T>();
    let until = Until::now();
    tasks::each(rows * columns, p.threads, |number| {
        let p = &p;
        let (i, j) = (number / columns * SIDE, number % columns * SIDE);
        let (m, n) = (SIDE.min(p.m - i), SIDE.min(p.n - j));
        // The number of factors per element, limited by the multiply-adds and by the elements read in one
        // call.
        let depth = (BLOCK / (m * n)).min(READ_AT_ONCE / (m + n)).max(1);
        for from in (0..p.k).step_by(depth) {
            if until.ended() {
                return;
            }
            let block = Product {
                m,
                n,
                k: depth.min(p.k - from),
                left: p.left.part(i, from, size),
                right: p.right.part(from, j, size),
                out: p.out.part(i, j, size),
                threads: false,
            };
            let add = add || from > 0;
            // SAFETY: guaranteed by the caller; blocks of the result are disjoint.
            unsafe { gemm_of(block, if add { one } else { zero }, one, add) };
        }
    });
}

/// A product without early end; `add` adds it to the previous contents.
unsafe fn gemm_of<T: 'static>(p: Product, before: T, one: T, add: bool) {
    let parallelism = match p.threads && tasks::workers() > 1 {
        true => gemm::Parallelism::Rayon(0),
        false => gemm::Parallelism::None,
    };
    let (out, left, right) = (p.out, p.left, p.right);
    // SAFETY: guaranteed by the caller: the matrices lie in memory with these strides; the result is read
    // only if `add` is set.
    unsafe {
        #[rustfmt::skip]
        gemm::gemm::<T>(
            p.m, p.n, p.k,
            out.ptr.cast(), out.cs, out.rs, add,
            left.ptr.cast(), left.cs, left.rs,
            right.ptr.cast(), right.cs, right.rs,
            before, one, false, false, false, parallelism,
        );
    }
}

/// Elements of an operand that are widened in one step.
const WIDENED: usize = 1 << 20;

/// The number of factors of each element that are widened in one step, given `side` elements per factor.
fn depth(side: usize, k: usize) -> usize {
    (WIDENED / side).clamp(k.min(SIDE), k)
}

/// Halves: widened, multiplied in `f32`, rounded once, or not at all if the result is `wide`.
unsafe fn half<M: Element<Lane = f32>>(p: Product, wide: bool) {
    let (m, n, size) = (p.m, p.n, size_of::<M>());
    let depth = depth(m.max(n), p.k);
    let (mut left, mut right) = (vec![0f32; m * depth], vec![0f32; depth * n]);
    let mut rounded = vec![0f32; if wide { 0 } else { m * n }];
    let dense =
        |matrix: &mut [f32], w: usize| Operand { ptr: matrix.as_mut_ptr().cast(), rs: w as isize, cs: 1 };
    let out = if wide { p.out } else { dense(&mut rounded, n) };
    let until = Until::now();
    for from in (0..p.k).step_by(depth) {
        if until.ended() {
            return;
        }
        let k = depth.min(p.k - from);
        let (a, b) = (p.left.part(0, from, size), p.right.part(from, 0, size));
        // SAFETY: guaranteed by the caller, and the buffers have the parts' extents.
        unsafe {
            element::load::<M>(a.ptr.cast(), a.tile(m, k), left.as_mut_ptr());
            element::load::<M>(b.ptr.cast(), b.tile(k, n), right.as_mut_ptr());
            let (left, right) = (dense(&mut left, k), dense(&mut right, n));
            float(Product { k, left, right, out, ..p }, 0f32, 1f32, from > 0);
        }
    }
    if !wide {
        // SAFETY: guaranteed by the caller, and the buffer has the result's extents.
        unsafe { element::store::<M>(rounded.as_ptr(), p.out.tile(m, n), p.out.ptr.cast()) };
    }
}

/// Integers: widened to `i64` and wrapped once at the end, which equals wrapping at each step. Some rows at a time, so that
/// the sums stay small.
unsafe fn whole<M: Element<Lane = i64>>(p: Product) {
    let (n, size) = (p.n, size_of::<M>());
    let depth = depth(n, p.k);
    let height = p.m.min(SIDE);
    let mut right = vec![0i64; depth * n];
    let mut sums = vec![0i64; height * n];
    let until = Until::now();
    for first in (0..p.m).step_by(height) {
        let m = height.min(p.m - first);
        sums.fill(0);
        for from in (0..p.k).step_by(depth) {
            if until.ended() {
                return;
            }
            let k = depth.min(p.k - from);
            if first == 0 || depth < p.k {
                let b = p.right.part(from, 0, size);
                // SAFETY: guaranteed by the caller, and the buffer has the part's extents.
                unsafe { element::load::<M>(b.ptr.cast(), b.tile(k, n), right.as_mut_ptr()) };
            }
            let rows = sums.as_mut_ptr() as usize;
            let row = |left: &mut Vec<i64>, i: usize| {
                // Capture the whole product; its pointers alone are not `Sync`.
                let p = &p;
                let a = p.left.part(first + i, from, size);
                // SAFETY: as above; rows differ.
                let sums = unsafe {
                    element::load::<M>(a.ptr.cast(), a.tile(1, k), left.as_mut_ptr());
                    std::slice::from_raw_parts_mut((rows as *mut i64).add(i * n), n)
                };
                for (&factor, right) in left[..k].iter().zip(right.chunks_exact(n)) {
                    add_scaled(sums, right, factor);
                }
            };
            let threads = p.threads && m * n * k >= PARALLEL;
            tasks::each_with(m, threads, || vec![0i64; k], row);
        }
        let out = p.out.part(first, 0, size);
        // SAFETY: guaranteed by the caller, and the buffer has the part's extents.
        unsafe { element::store::<M>(sums.as_ptr(), out.tile(m, n), out.ptr.cast()) };
    }
}

impl Operand {
    /// The part of the matrix from a row and a column on; `size` is the size of an element.
    fn part(&self, row: usize, column: usize, size: usize) -> Operand {
        let offset = (row as isize * self.rs + column as isize * self.cs) * size as isize;
        Operand { ptr: self.ptr.wrapping_offset(offset), ..*self }
    }

    fn tile(&self, h: usize, w: usize) -> Tile {
        Tile { h, w, rs: self.rs, cs: self.cs }
    }
}

/// Adds a multiple of a row.
fn add_scaled(out: &mut [i64], row: &[i64], factor: i64) {
    #[inline(always)]
    fn add(out: &mut [i64], row: &[i64], factor: i64) {
        for (out, &x) in out.iter_mut().zip(row) {
            *out = out.wrapping_add(x.wrapping_mul(factor));
        }
    }
    multiversion!(add(out: &mut [i64] = out, row: &[i64] = row, factor: i64 = factor))
}
