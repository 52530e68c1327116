//! Sorts rows. Every element is mapped to an unsigned integer with the same order (nan greatest, both zeros
//! equal, all bits flipped for descending order). Equal keys keep their order.

use crate::array::{Dims, dispatch};
use crate::kernel::host::complex::{C64, C128};
use crate::kernel::host::element::Element;
use crate::kernel::host::positions::{element, offset};
use crate::kernel::host::tasks::{self, PARALLEL, SOME, Until};
use crate::kernel::{Launch, Sort};
use rayon::prelude::*;
use smallvec::smallvec;

/// Number of elements from which one row is sorted by all threads.
const LONG: usize = 1 << 16;

/// Runs a sort.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(super) unsafe fn run(sort: &Sort, launch: &Launch) {
    if launch.shape.is_empty() {
        let mut launch = launch.clone();
        launch.shape.push(1);
        launch.views.iter_mut().for_each(|view| view.strides.push(1));
        // SAFETY: guaranteed by the caller.
        return unsafe { run(sort, &launch) };
    }
    let Some((&length, outer)) = launch.shape.split_last() else { return };
    let rows: usize = outer.iter().product();
    if length == 0 || rows == 0 {
        return;
    }
    let row = |keys: &mut Vec<(u64, u32)>, number: usize| {
        let mut at: Dims = smallvec![0; launch.shape.len()];
        let mut rest = number;
        for d in (0..outer.len()).rev() {
            at[d] = rest % outer[d];
            rest /= outer[d];
        }
        // SAFETY: guaranteed by the caller; rows differ.
        dispatch!(sort.dtype, M => unsafe { sort_row::<M>(sort, launch, &at, keys, rows == 1) });
    };
    let shared = rows > 1 && rows.saturating_mul(length) >= PARALLEL / 8;
    tasks::each_with(rows, shared, Vec::new, row);
}

unsafe fn sort_row<M: Element<Lane: Ordered>>(
    sort: &Sort,
    launch: &Launch,
    at: &[usize],
    keys: &mut Vec<(u64, u32)>,
    alone: bool,
) {
    let [input, values, positions] = [0, 1, 2].map(|view| &launch.views[view]);
    let step = |view: &crate::kernel::View| view.strides.last().copied().unwrap_or(0);
    let length = launch.shape.last().copied().unwrap_or(1);
    let from = element::<M>(input).wrapping_offset(offset(input, at, None));
    let read = |i: usize| {
        // SAFETY: the element lies in the input's row.
        unsafe { from.wrapping_offset(i as isize * step(input)).read_unaligned() }
    };
    let turn = if sort.descending { u64::MAX >> (64 - key_bits::<M>()) } else { 0 };
    let to = element::<M>(values).wrapping_offset(offset(values, at, None));
    let place = element::<i64>(positions).wrapping_offset(offset(positions, at, None));
    let write = |i: usize, value: M, position: usize| {
        // SAFETY: the elements lie in the outputs' rows.
        unsafe {
            to.wrapping_offset(i as isize * step(values)).write_unaligned(value);
            place.wrapping_offset(i as isize * step(positions)).write_unaligned(position as i64);
        }
    };
    let (threads, until) = (alone && length >= LONG, Until::now());
    // The input may be the output: all of it is read before anything is written.
    let Some(held) = gathered(length, &until, read) else { return };
    let key = |i: usize| held[i].widen().number(key_bits::<M>());
    if key_bits::<M>() <= 32 && length <= 1 << 32 {
        let packed = |i: usize| (key(i) ^ turn) << 32 | i as u64;
        let Some(order) = gathered(length, &until, packed) else { return };
        let Some(order) = sorted(order, threads, &until) else { return };
        scattered(&order, &until, |i, o| write(i, held[o as u32 as usize], o as u32 as usize));
    } else if length <= 1 << 32 {
        keys.clear();
        let numbered = |i: usize| (key(i) ^ turn, i as u32);
        let Some(all) = gathered(length, &until, numbered) else { return };
        let Some(all) = sorted(all, threads, &until) else { return };
        scattered(&all, &until, |i, (_, o)| write(i, held[o as usize], o as usize));
        *keys = all;
    } else {
        let numbered = |i: usize| (key(i) ^ turn, i);
        let Some(all) = gathered(length, &until, numbered) else { return };
        let Some(all) = sorted(all, threads, &until) else { return };
        scattered(&all, &until, |i, (_, o)| write(i, held[o], o));
    }
}

/// The values of `get`; `None` when the work should end early.
fn gathered<T>(length: usize, until: &Until, get: impl Fn(usize) -> T) -> Option<Vec<T>> {
    let mut all = Vec::with_capacity(length);
    for from in (0..length).step_by(SOME) {
        if until.ended() {
            return None;
        }
        all.extend((from..length.min(from + SOME)).map(&get));
    }
    Some(all)
}

/// Passes each value and its position to `put`.
fn scattered<T: Copy>(all: &[T], until: &Until, mut put: impl FnMut(usize, T)) {
    for (part, values) in all.chunks(SOME).enumerate() {
        if until.ended() {
            return;
        }
        values.iter().enumerate().for_each(|(i, &value)| put(part * SOME + i, value));
    }
}

/// Values sorted in one step. More are first distributed to buckets, bounded by samples of them.
const BUCKET: usize = 1 << 17;
/// Most buckets: bucket numbers fit in 16 bits.
const BUCKETS: usize = 1 << 12;
/// Samples per bucket.
const SAMPLES: usize = 32;

/// The values in order; no two are equal. `None` when the work should end early.
fn sorted<T: Ord + Copy + Send + Sync>(mut all: Vec<T>, threads: bool, until: &Until) -> Option<Vec<T>> {
    let count = all.len();
    if count <= 2 * BUCKET || !until.is_set() {
        if threads {
            all.par_sort_unstable()
        } else {
            all.sort_unstable()
        }
        return Some(all);
    }
    let buckets = (count / BUCKET).min(BUCKETS);
    // Drawn from a fixed sequence, so that a pattern in the input does not fill one bucket.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut samples: Vec<T> = (0..buckets * SAMPLES)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            all[(state % count as u64) as usize]
        })
        .collect();
    samples.sort_unstable();
    let ends: Vec<T> = samples.into_iter().step_by(SAMPLES).skip(1).collect();
    // Each thread distributes a part of the values.
    let parts = if threads { rayon::current_num_threads() } else { 1 };
    let deal = |part: usize| -> Vec<Vec<T>> {
        let mut dealt: Vec<Vec<T>> = vec![Vec::new(); ends.len() + 1];
        for values in all[count * part / parts..count * (part + 1) / parts].chunks(SOME) {
            if until.ended() {
                break;
            }
            values.iter().for_each(|value| dealt[ends.partition_point(|end| end <= value)].push(*value));
        }
        dealt
    };
    let dealt: Vec<Vec<Vec<T>>> = (0..parts).into_par_iter().map(deal).collect();
    let bucket = |number: usize| -> Vec<T> {
        if until.ended() {
            return Vec::new();
        }
        let mut bucket: Vec<T> = dealt.iter().flat_map(|part| &part[number]).copied().collect();
        bucket.sort_unstable();
        bucket
    };
    let buckets: Vec<Vec<T>> = match threads {
        true => (0..=ends.len()).into_par_iter().map(bucket).collect(),
        false => (0..=ends.len()).map(bucket).collect(),
    };
    all.clear();
    for bucket in buckets {
        if until.ended() {
            return None;
        }
        all.extend(bucket);
    }
    Some(all)
}

/// Bits of an element's key: elements of up to four bytes have short keys.
const fn key_bits<M>() -> u32 {
    if size_of::<M>() <= 4 { 32 } else { 64 }
}

/// A lane with an order-preserving integer key, below `2^bits`.
trait Ordered {
    /// The key. Integers that fit 32 bits stay within 32 bits.
    fn number(self, bits: u32) -> u64;
}

impl Ordered for i64 {
    #[inline(always)]
    fn number(self, bits: u32) -> u64 {
        match bits {
            32 => u64::from(self as i32 as u32 ^ 1 << 31),
            _ => self as u64 ^ 1 << 63,
        }
    }
}

impl Ordered for f32 {
    #[inline(always)]
    fn number(self, _bits: u32) -> u64 {
        if self.is_nan() {
            return u64::from(u32::MAX);
        }
        let bits = (self + 0.0).to_bits();
        u64::from(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
    }
}

// Complex numbers have no order. All get the same key here, and operations reject sorting them.
impl Ordered for C64 {
    fn number(self, _bits: u32) -> u64 {
        0
    }
}

impl Ordered for C128 {
    fn number(self, _bits: u32) -> u64 {
        0
    }
}

impl Ordered for f64 {
    #[inline(always)]
    fn number(self, _bits: u32) -> u64 {
        if self.is_nan() {
            return u64::MAX;
        }
        let bits = (self + 0.0).to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }
}
