//! Sorts of rows: short ones in one block each, long ones by radix.

mod host;

use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::index::is_linear;
use crate::kernel::cuda::operand::{copy, packed, row_stride};
use crate::kernel::cuda::radix::{self, Job, Pairs};
use crate::kernel::cuda::{CudaSource, PRELUDE, Queue, Signature, bits_type, fill};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch};

/// Sorts rows (the last dimension). Stable; nan is greatest.
///
/// Views: 0 input, 1 out values, 2 out positions (`i64`). Launch shape: rows.., row length.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sort {
    /// The dtype of input and values.
    pub dtype: Dtype,
    /// Descending order (nan first).
    pub descending: bool,
}

/// Rows up to this length fit a block.
const SHORT: usize = 2048;
/// Keeps launch grids and scratch memory small: at most this many elements are radix-sorted at a time.
const BATCH: u64 = 1 << 28;

/// The statements that turn the bits `k` of an element into an unsigned number in sort order. nan is the
/// greatest number, and -0 equals 0.
fn sortable(dtype: Dtype, descending: bool) -> String {
    let bits = 8 * dtype.size();
    let sign = format!("(Key)((Key)1 << {})", bits - 1);
    let order = match dtype {
        Dtype::Bool => "(Key)(k != 0)".to_string(),
        _ if !dtype.is_float() => match dtype.range() {
            Some((0, _)) => "k".to_string(),
            _ => format!("(Key)(k ^ {sign})"),
        },
        _ => {
            let infinity = format!("{:#x}ull", dtype.infinity_bits());
            format!(
                "((Key)(k & (Key)~{sign}) > (Key){infinity} ? (Key)~(Key)0 \
                 : (Key)(k & (Key)~{sign}) == 0 ? {sign} \
                 : (k & {sign}) != 0 ? (Key)~k : (Key)(k | {sign}))"
            )
        }
    };
    match descending {
        true => format!("    return (Key)~{order};"),
        false => format!("    return {order};"),
    }
}

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
        let at_once = rows.min(rayon::current_num_threads() as u64).max(1);
        length.saturating_mul(at_once).saturating_mul(48)
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let (_, length) = extents(launch);
        let mut signature = Signature::default();
        let short = length <= SHORT;
        signature.push(usize::from(short), 1);
        signature.push(if short { length.max(2).next_power_of_two().ilog2() as usize } else { 0 }, 4);
        signature.push(usize::from(length as u64 >= 1 << 32), 1);
        signature
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [short, size, wide] = signature.fields([1, 4, 1]);
        let key = bits_type(self.dtype);
        let sortable = sortable(self.dtype, self.descending);
        if short == 0 {
            let text = format!("{PRELUDE}\n{}", radix::text(key, wide == 1, &sortable));
            return CudaSource { text, entries: &radix::ENTRIES };
        }
        let size = 1usize << size;
        let template = include_str!("../../../../kernels/sort.cu");
        let body = fill(template, &[("SIZE", size.to_string().as_str())]);
        let text = format!(
            "{PRELUDE}\ntypedef {key} Key;\n#define SORT_THREADS {}\n\
             INLINE Key sortable(Key k) {{\n{sortable}\n}}\n{body}",
            threads(size)
        );
        CudaSource { text, entries: &["sort_rows"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [short, size, wide] = signature.fields([1, 4, 1]);
        let (rows, length) = extents(launch);
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
        if short == 1 {
            let [a, b, c] = strides;
            let words = [pointers[0], pointers[1], pointers[2], length as u64, a, b, c];
            queue.run(0, rows as u32, threads(1 << size) as u32, &words)?;
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
                        passes: if self.dtype == Dtype::Bool { 1 } else { key_size },
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
