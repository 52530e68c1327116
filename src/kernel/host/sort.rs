//! Sorts rows. Every element is mapped to an unsigned integer with the same order (nan greatest, both zeros
//! equal, all bits flipped for descending order). Equal keys keep their order.

use super::complex::{C64, C128};
use super::element::{Element, with_element};
use super::gather::{element, offset};
use super::map::PARALLEL;
use crate::array::Dims;
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
        with_element!(sort.dtype, M => unsafe { sort_row::<M>(sort, launch, &at, keys, rows == 1) });
    };
    if rows == 1 || rows.saturating_mul(length) < PARALLEL / 8 {
        let mut keys = Vec::new();
        (0..rows).for_each(|number| row(&mut keys, number));
    } else {
        (0..rows).into_par_iter().for_each_init(Vec::new, row);
    }
}

unsafe fn sort_row<M: Key>(
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
    let turn = if sort.descending { u64::MAX >> (64 - M::BITS) } else { 0 };
    let to = element::<M>(values).wrapping_offset(offset(values, at, None));
    let place = element::<i64>(positions).wrapping_offset(offset(positions, at, None));
    let write = |i: usize, value: M, position: usize| {
        // SAFETY: the elements lie in the outputs' rows.
        unsafe {
            to.wrapping_offset(i as isize * step(values)).write_unaligned(value);
            place.wrapping_offset(i as isize * step(positions)).write_unaligned(position as i64);
        }
    };
    let threads = alone && length >= LONG;
    // The input may alias the output: read everything before writing.
    let held: Vec<M> = (0..length).map(read).collect();
    if M::BITS <= 32 && length <= 1 << 32 {
        let packed = |(i, &value): (usize, &M)| (value.key() ^ turn) << 32 | i as u64;
        let mut order: Vec<u64> = held.iter().enumerate().map(packed).collect();
        if threads {
            order.par_sort_unstable()
        } else {
            order.sort_unstable()
        }
        order.iter().enumerate().for_each(|(i, &o)| write(i, held[o as u32 as usize], o as u32 as usize));
    } else if length <= 1 << 32 {
        keys.clear();
        keys.extend(held.iter().enumerate().map(|(i, value)| (value.key() ^ turn, i as u32)));
        if threads {
            keys.par_sort_unstable()
        } else {
            keys.sort_unstable()
        }
        keys.iter().enumerate().for_each(|(i, &(_, o))| write(i, held[o as usize], o as usize));
    } else {
        let mut order: Vec<usize> = (0..length).collect();
        order.par_sort_by_key(|&i| held[i].key() ^ turn);
        order.iter().enumerate().for_each(|(i, &o)| write(i, held[o], o));
    }
}

/// An element with an order-preserving integer key.
trait Key: Element {
    /// Bits of the key.
    const BITS: u32;
    /// The key; below `2^BITS`.
    fn key(self) -> u64;
}

macro_rules! keys {
    ($($t:ty: $bits:literal),*) => {
        $(impl Key for $t {
            const BITS: u32 = $bits;
            #[inline(always)]
            fn key(self) -> u64 {
                class_key(Element::widen(self), $bits)
            }
        })*
    };
}

keys!(
    super::element::Bool: 32, u8: 32, i8: 32, i16: 32, i32: 32, i64: 64,
    super::element::F16: 32, super::element::BF16: 32, f32: 32, f64: 64, C64: 64, C128: 64
);

/// The key of a lane. Integers that fit 32 bits stay within 32 bits.
#[inline(always)]
fn class_key<L: Ordered>(lane: L, bits: u32) -> u64 {
    lane.number(bits)
}

trait Ordered {
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
