//! The radix sort shared by sorts and scatters: its source and its passes.

use super::{Queue, fill};
use crate::base::Result;
use crate::kernel::Ptr;

/// The kernels of the text, in order; the first entries of a source that includes it.
pub(in crate::kernel) const ENTRIES: [&str; 3] = ["digit_counts", "digit_offsets", "digit_move"];

/// Keys per tile, also in the template.
const TILE: u64 = 4096;

/// If rows have at most this many tiles, and there are at least [`MANY_ROWS`] rows, one thread adds the counts of each
/// row and digit. A block for each would be nearly idle: for rows of 4,096 elements it took most of the time.
const FEW_TILES: u64 = 32;
const MANY_ROWS: u64 = 64;

/// The text for keys of a type; the statements `sortable` map a key `k` to sort order. `wide` counts in 64 bits.
pub(in crate::kernel) fn text(key: &str, wide: bool, sortable: &str) -> String {
    let count = if wide { "u64" } else { "u32" };
    let values = [("KEY", key), ("COUNT", count), ("SORTABLE", sortable)];
    RANKS.to_string() + &fill(include_str!("../../../kernels/radix.cu"), &values)
}

/// The functions that find places by digits, in blocks of 256 threads.
pub(in crate::kernel) const RANKS: &str =
    concat!(include_str!("../../../kernels/before.cuh"), include_str!("../../../kernels/ranks.cuh"));

/// Rows of keys, and positions as counts (`ptr` 0 for the identity).
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Pairs {
    pub keys: Ptr,
    /// Distance between rows of keys, in keys.
    pub key_stride: u64,
    pub positions: Ptr,
    /// Distance between rows of positions, in positions.
    pub position_stride: u64,
}

/// The parameters of a sort.
pub(in crate::kernel) struct Job {
    pub rows: u64,
    pub length: u64,
    /// Bytes of a key, and how many of its low bytes are sorted by.
    pub key_size: u64,
    pub passes: u64,
    /// Passed to the statements `sortable` of the text, which may ignore it.
    pub order: u64,
    pub wide: bool,
    pub from: Pairs,
    pub to: Pairs,
    /// Outputs positions as `i64` instead of counts.
    pub long_positions: bool,
}

/// Queues the passes. The source's first entries are [`ENTRIES`].
pub(in crate::kernel) fn sort(queue: &mut dyn Queue, job: &Job) -> Result<()> {
    let count_size = if job.wide { 8 } else { 4 };
    let tiles = job.length.div_ceil(TILE);
    let counts = queue.scratch(job.rows * 256 * tiles * count_size)?;
    let totals = queue.scratch(job.rows * 256 * count_size)?;
    let elements = job.rows * job.length;
    let buffer = |needed: bool, queue: &mut dyn Queue| -> Result<Pairs> {
        if !needed {
            return Ok(job.to);
        }
        Ok(Pairs {
            keys: queue.scratch(elements * job.key_size)?,
            key_stride: job.length,
            positions: queue.scratch(elements * count_size)?,
            position_stride: job.length,
        })
    };
    let between = [buffer(job.passes > 1, queue)?, buffer(job.passes > 2, queue)?];
    let by_thread = tiles <= FEW_TILES && job.rows >= MANY_ROWS;
    let mut from = job.from;
    for pass in 0..job.passes {
        let last = pass + 1 == job.passes;
        let to = if last { job.to } else { between[(pass % 2) as usize] };
        let words = [
            from.keys,
            from.positions,
            to.keys,
            to.positions,
            counts,
            totals,
            job.length,
            tiles,
            8 * pass,
            from.key_stride,
            to.key_stride,
            to.position_stride,
            u64::from(last && job.long_positions),
            job.order,
            u64::from(by_thread),
        ];
        queue.run(0, (job.rows * tiles) as u32, 256, &words)?;
        queue.run(1, (if by_thread { job.rows } else { job.rows * 256 }) as u32, 256, &words)?;
        queue.run(2, (job.rows * tiles) as u32, 256, &words)?;
        from = to;
    }
    Ok(())
}
