//! Selects the element of a rank in long rows, or many first elements, without sorting the rows. CUDA kernels find the
//! key of that rank digit by digit, from the highest, by counting.

use super::{LONGEST_IN_BLOCK, Sort, extents, host};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::operand::{copy, packed, row_stride};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, Ptr};

/// The element of a rank in the order of [`Sort`].
///
/// Views: 0 input, 1 out value, 2 out position (`i64`), both with the stride 0 along the last dimension. Launch shape:
/// rows.., row length, which [`Nth::takes`]. `Launch::limit` is the rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nth {
    /// The order.
    pub sort: Sort,
    /// The last element instead, if it is a nan. The order is ascending.
    pub nan: bool,
}

impl Nth {
    /// Whether selection is used for rows of this length. Shorter rows are sorted by a block, and narrower elements in
    /// few passes.
    pub fn takes(dtype: Dtype, length: usize) -> bool {
        matches!(dtype.size(), 4 | 8) && !dtype.is_complex() && length > LONGEST_IN_BLOCK && length < 1 << 31
    }
}

/// Bits of a digit, and elements that a block reads at a time, also in the template.
const DIGIT: u32 = 11;
const TILE: u64 = 1024;
/// Maximum number of rows at a time, to limit scratch memory.
const ROWS: u64 = 8192;
/// Maximum elements of a part whose elements are collected, so that 16 bits count those of a tile.
const PART: u64 = 1 << 15;

/// A selection from rows of adjacent elements.
pub(super) struct Selection {
    pub dtype: Dtype,
    pub descending: bool,
    pub input: Ptr,
    /// Distance between rows of the input.
    pub stride: u64,
    pub rows: u64,
    pub length: u64,
    pub rank: u64,
    /// As in [`Nth`].
    pub nan: bool,
    /// Number of elements to keep of each row, up to the rank; 0 for only the element of the rank. Elements before the
    /// key of the rank come first, then those with that key, each in the order of their positions.
    pub kept: u64,
    /// Kept values, and the distance between rows of them.
    pub values: (Ptr, u64),
    /// Positions of kept elements (`i64`), and the distance between rows of them.
    pub positions: (Ptr, u64),
}

/// The source of selections.
pub(super) fn source(dtype: Dtype) -> CudaSource {
    let text = assemble(include_str!("../../../../kernels/select.cu"), &[("KEY", bits_type(dtype))]);
    CudaSource { text, entries: &["digits", "choose", "collect", "offsets"] }
}

/// Parts of a row and elements of a part, so that all rows together have about this many parts.
fn parts(rows: u64, length: u64, wanted: u64, most: u64) -> [u64; 2] {
    let size = length.div_ceil((wanted / rows).max(1)).clamp(TILE, most).next_multiple_of(TILE);
    [length.div_ceil(size), size]
}

impl Selection {
    /// Queues the selection.
    pub fn enqueue(&self, queue: &mut dyn Queue) -> Result<()> {
        let (size, length) = (self.dtype.size() as u64, self.length);
        let bits = 8 * size as u32;
        let is_signed = !self.dtype.is_float() && !matches!(self.dtype.range(), Some((0, _)));
        let sign = if is_signed { 1 << (bits - 1) } else { 0 };
        let flip = if self.descending { !sign } else { sign };
        let infinity = if self.dtype.is_float() { self.dtype.infinity_bits() } else { 0 };
        let most = self.rows.min(ROWS);
        // A key and three counts.
        let cut = (size + 12).next_multiple_of(size);
        let count = 4 << DIGIT;
        let (cuts, counts) = (queue.scratch(most * cut)?, queue.scratch(most * count)?);
        let [several, part] = parts(most, length, 8192, PART);
        let tallies = queue.scratch(8 * most * (several + 1))?;
        for first in (0..self.rows).step_by(ROWS as usize) {
            let rows = ROWS.min(self.rows - first);
            queue.clear(cuts, rows * cut)?;
            queue.clear(counts, rows * count)?;
            let [all, whole] = parts(rows, length, 1024, u64::MAX >> 1);
            let mut words = [
                self.input + first * self.stride * size,
                self.stride,
                length,
                flip,
                all,
                whole,
                cuts,
                counts,
                0,
                0,
                0,
                tallies,
                self.values.0 + first * self.values.1 * size,
                self.positions.0 + first * self.positions.1 * 8,
                self.values.1,
                self.positions.1,
                self.kept,
                infinity,
                self.rank,
                1,
            ];
            let mut high = bits;
            while high > 0 {
                let shift = high.saturating_sub(DIGIT);
                let is_first = high == bits;
                words[8] = shift.into();
                words[9] = if is_first { 0 } else { !0 << high };
                words[10] = u64::from(is_first) * if self.nan { 3 } else { 1 };
                queue.run(0, (rows * all) as u32, 256, &words)?;
                queue.run(1, rows as u32, 256, &words)?;
                high = shift;
            }
            // Counts, and their sums; then the elements.
            (words[4], words[5]) = (several, part);
            queue.run(2, (rows * several) as u32, 256, &words)?;
            queue.run(3, rows as u32, 256, &words)?;
            words[19] = 0;
            queue.run(2, (rows * several) as u32, 256, &words)?;
        }
        Ok(())
    }
}

impl Kind for Nth {
    fn label(&self) -> String {
        "nth".into()
    }

    fn ordered(&self) -> Option<Dtype> {
        self.sort.ordered()
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::run_nth(self, launch) }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        self.sort.scratch(launch)
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _: Signature) -> CudaSource {
        source(self.sort.dtype)
    }

    fn enqueue(&self, launch: &Launch, _: Signature, queue: &mut dyn Queue) -> Result<()> {
        let dtype = self.sort.dtype;
        let (rows, length) = extents(launch);
        let mut input = launch.views[0].clone();
        if row_stride(&launch.shape, &input).is_none() {
            let place = packed(queue, &launch.shape, dtype)?;
            copy(queue, &launch.shape, &input, &place)?;
            input = place;
        }
        let mut results = launch.shape.clone();
        results.last_mut().into_iter().for_each(|extent| *extent = 1);
        let mut targets = [launch.views[1].clone(), launch.views[2].clone()];
        for target in &mut targets {
            if row_stride(&results, target).is_none() {
                *target = packed(queue, &results, target.dtype)?;
            }
        }
        let to = |target: usize| (targets[target].ptr, row_stride(&results, &targets[target]).unwrap_or(0));
        let selection = Selection {
            dtype,
            descending: self.sort.descending,
            input: input.ptr,
            stride: row_stride(&launch.shape, &input).unwrap_or(0),
            rows,
            length: length as u64,
            rank: launch.limit as u64,
            nan: self.nan,
            kept: 0,
            values: to(0),
            positions: to(1),
        };
        selection.enqueue(queue)?;
        for (target, view) in targets.iter().zip(&launch.views[1..]) {
            if target.ptr != view.ptr {
                copy(queue, &results, target, view)?;
            }
        }
        Ok(())
    }
}
