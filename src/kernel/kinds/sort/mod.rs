//! Sorts of rows: rows of few elements in one thread each ([`SortFew`]), short rows in one block each (by comparisons, or by
//! digits), long rows by radix. [`Top`] gives only the first elements, [`Nth`] only one element.

mod few;
mod host;
mod select;
mod top;

pub use few::SortFew;
pub use select::Nth;
pub use top::Top;

use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::index::is_linear;
use crate::kernel::cuda::operand::{copy, packed, row_stride};
use crate::kernel::cuda::order::{SORTABLE_ANY, order, sortable};
use crate::kernel::cuda::radix::{self, Job, Pairs};
use crate::kernel::cuda::{CudaSource, Queue, Signature, bits_type, fill, prelude};
use crate::kernel::host::{FaultSlot, tasks};
use crate::kernel::{Kind, Launch};

/// Sorts rows (the last dimension). Stable; nan is the largest value.
///
/// Views: 0 input, 1 out values, 2 out positions (`i64`). Launch shape: rows.., row length. A non-zero `Launch::limit`
/// guarantees that elements are integers from 0 to the limit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sort {
    /// The dtype of input and values.
    pub dtype: Dtype,
    /// Descending order (nan first).
    pub descending: bool,
}

/// Rows up to this length are sorted in a block of general kernels, by comparisons.
const SHORT: usize = 2048;
/// The same for compiled kernels.
const COMPARED: usize = 256;
/// Compiled kernels sort longer rows up to this length by digits in a block.
const LONGEST_IN_BLOCK: usize = 4096;
/// Maximum number of elements that are radix-sorted at a time, to limit grids and scratch memory.
const BATCH: u64 = 1 << 28;

/// How rows are sorted.
const BY_RADIX: usize = 0;
const BY_COMPARISONS: usize = 1;
const BY_DIGITS: usize = 2;

/// The signature's fields: how rows are sorted, the logarithm of the size of those in a block, 64-bit counts, a general
/// kernel (keys of any dtype, short rows of any size).
const FIELDS: [u32; 4] = [2, 4, 1, 1];

fn extents(launch: &Launch) -> (u64, usize) {
    let (&length, kept) = launch.shape.split_last().unwrap_or((&1, &[]));
    (kept.iter().map(|&n| n as u64).product(), length)
}

/// Threads for a block that sorts `size` elements.
fn threads(size: usize) -> usize {
    (size / 2).clamp(32, 512)
}

impl Kind for Sort {
    fn label(&self) -> String {
        "sort".into()
    }

    fn ordered(&self) -> Option<Dtype> {
        Some(self.dtype)
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::run(self, launch) }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        let length = launch.shape.last().map_or(1, |&n| n as u64);
        let rows = launch.shape.iter().skip(1).fold(1u64, |all, &n| all.saturating_mul(n as u64));
        let at_once = rows.min(tasks::workers() as u64).max(1);
        length.saturating_mul(at_once).saturating_mul(48)
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let (_, length) = extents(launch);
        let mut signature = Signature::default();
        let by = match length {
            _ if length <= COMPARED => BY_COMPARISONS,
            _ if length <= LONGEST_IN_BLOCK => BY_DIGITS,
            _ => BY_RADIX,
        };
        signature.push(by, 2);
        let size = length.max(2).next_power_of_two().ilog2() as usize;
        signature.push(if by == BY_RADIX { 0 } else { size }, 4);
        signature.push(usize::from(length as u64 >= 1 << 32), 1);
        signature.push(0, 1);
        signature
    }

    fn general(&self, launch: &Launch) -> Option<Signature> {
        let (_, length) = extents(launch);
        let mut signature = Signature::default();
        signature.push(if length <= SHORT { BY_COMPARISONS } else { BY_RADIX }, 2);
        signature.push(0, 4);
        signature.push(0, 1);
        signature.push(1, 1);
        (length as u64 >> 32 == 0).then_some(signature)
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [by, size_log, wide, any] = signature.fields(FIELDS);
        let key = bits_type(self.dtype);
        let sortable = match any {
            1 => SORTABLE_ANY.to_string(),
            _ => sortable(self.dtype, self.descending),
        };
        if by == BY_RADIX {
            let text = format!("{}\n{}", prelude(), radix::text(key, wide == 1, &sortable));
            return CudaSource { text, entries: &radix::ENTRIES };
        }
        let size = if any == 1 { SHORT } else { 1 << size_log };
        let (most_size, most_threads) = (size.to_string(), threads(size).to_string());
        let (size, threads) = match any {
            1 => ("(u32)p.w[8]", "blockDim.x"),
            _ => (&*most_size, &*most_threads),
        };
        let values = [
            ("MOST_SIZE", most_size.as_str()),
            ("MOST_THREADS", most_threads.as_str()),
            ("SIZE", size),
            ("THREADS", threads),
        ];
        let body = match by {
            BY_DIGITS => {
                let items = (1usize << size_log).div_ceil(256).to_string();
                let body = include_str!("../../../../kernels/rows_by_digits.cu");
                radix::RANKS.to_string() + &fill(body, &[("ITEMS", &items)])
            }
            _ => fill(include_str!("../../../../kernels/sort.cu"), &values),
        };
        let text = format!(
            "{}\ntypedef {key} Key;\nINLINE Key sortable(Key k, u64 order) {{\n{sortable}\n}}\n{body}",
            prelude()
        );
        CudaSource { text, entries: &["sort_rows"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [by, size_log, wide, any] = signature.fields(FIELDS);
        let (rows, length) = extents(launch);
        let order = order(self.dtype, self.descending);
        let shape = &launch.shape;
        let mut input = launch.views[0].clone();
        if row_stride(shape, &input).is_none() {
            let place = packed(queue, shape, self.dtype)?;
            copy(queue, shape, &input, &place)?;
            input = place;
        }
        let mut targets = [launch.views[1].clone(), launch.views[2].clone()];
        for target in &mut targets {
            if row_stride(shape, target).is_none() {
                *target = packed(queue, shape, target.dtype)?;
            }
        }
        let stride = |view: &crate::kernel::View| match is_linear(shape, &view.strides) {
            true => length as u64,
            false => row_stride(shape, view).unwrap_or(length as u64),
        };
        let strides = [stride(&input), stride(&targets[0]), stride(&targets[1])];
        let pointers = [input.ptr, targets[0].ptr, targets[1].ptr];
        if by != BY_RADIX {
            let [a, b, c] = strides;
            let size = if any == 1 { length.max(2).next_power_of_two() } else { 1 << size_log };
            let [input, values, positions] = pointers;
            let words = [input, values, positions, length as u64, a, b, c, order, size as u64];
            let threads = if by == BY_DIGITS { 256 } else { threads(size) };
            queue.run(0, rows as u32, threads as u32, &words)?;
        } else {
            let key_size = self.dtype.size() as u64;
            let batch = (BATCH / length as u64).clamp(1, 1 << 16);
            for first in (0..rows).step_by(batch as usize) {
                let at = |i: usize, size: u64| pointers[i] + first * strides[i] * size;
                radix::sort(
                    queue,
                    &Job {
                        rows: batch.min(rows - first),
                        length: length as u64,
                        key_size,
                        passes: match launch.limit as u64 {
                            0 if self.dtype == Dtype::Bool => 1,
                            0 => key_size,
                            limit => u64::from(limit.ilog2()) / 8 + 1,
                        },
                        order,
                        wide: wide == 1,
                        from: Pairs {
                            keys: at(0, key_size),
                            key_stride: strides[0],
                            positions: 0,
                            position_stride: 0,
                        },
                        to: Pairs {
                            keys: at(1, key_size),
                            key_stride: strides[1],
                            positions: at(2, 8),
                            position_stride: strides[2],
                        },
                        long_positions: true,
                    },
                )?;
            }
        }
        for (target, view) in targets.iter().zip(&launch.views[1..]) {
            if target.ptr != view.ptr {
                copy(queue, shape, target, view)?;
            }
        }
        Ok(())
    }
}
