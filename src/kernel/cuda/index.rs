//! Index arithmetic in kernels: from a linear position to coordinates, from coordinates to offsets.
//!
//! Divisors are known only at launch. 32-bit divisions use a multiplier computed by the host; 64-bit ones
//! divide.

use crate::kernel::{Launch, View};
use smallvec::SmallVec;
use std::fmt::Write;

/// Parameter words of a launch, in order.
pub(crate) type Words = SmallVec<[u64; 64]>;

/// A divisor as words: itself, and the multiplier and shift for dividends below 2^31.
pub(in crate::kernel) fn divisor(d: u64) -> [u64; 2] {
    if d == 0 || d >= 1 << 31 {
        return [d.max(1), 0];
    }
    let shift = (d - 1).checked_ilog2().map_or(0, |log| log + 1);
    let multiplier = ((1u64 << 32) * ((1u64 << shift) - d)) / d + 1;
    [d, (multiplier & 0xffff_ffff) | u64::from(shift) << 32]
}

/// Dimensions whose linear position a kernel splits into coordinates.
///
/// `rank` dimensions named `{name}0..`. Each dimension except the first has its divisor in two words, from
/// `word` on.
pub(in crate::kernel) struct Space {
    pub name: &'static str,
    pub rank: usize,
    pub word: usize,
    /// `u32` or `u64`.
    pub index: &'static str,
}

impl Space {
    /// Number of parameter words used.
    pub fn words(rank: usize) -> usize {
        2 * rank.saturating_sub(1)
    }

    /// Appends the divisors of these extents.
    pub fn push(words: &mut Words, extents: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) {
        for extent in extents.skip(1) {
            words.extend(divisor(extent as u64));
        }
    }

    /// Declares the coordinates of the linear position `linear`.
    pub fn coordinates(&self, linear: &str) -> String {
        let (name, index) = (self.name, self.index);
        match self.rank {
            0 => return String::new(),
            1 => return format!("const {index} {name}0 = {linear};\n"),
            _ => {}
        }
        let mut out = format!("{index} {name}rest = {linear};\n");
        for d in (1..self.rank).rev() {
            let word = self.word + 2 * (d - 1);
            let _ = writeln!(
                out,
                "const {index} {name}q{d} = quotient({name}rest, p.w[{word}], p.w[{}]); \
                 const {index} {name}{d} = {name}rest - {name}q{d} * ({index})p.w[{word}]; {name}rest = {name}q{d};",
                word + 1
            );
        }
        let _ = writeln!(out, "const {index} {name}0 = {name}rest;");
        out
    }

    /// The offset, in elements, of the coordinates; the strides are in the words from `strides` on.
    pub fn offset(&self, strides: usize) -> String {
        let Space { name, index, .. } = self;
        self.sum(|d| format!("({index}){name}{d} * ({index})p.w[{}]", strides + d))
    }

    /// [`Space::offset`] of a view that wraps: after the strides come the coordinates where it wraps, and the distances
    /// by which it wraps.
    pub fn wrapped_offset(&self, strides: usize) -> String {
        let Space { name, index, rank, .. } = self;
        self.sum(|d| {
            let (stride, wrap, back) = (strides + d, strides + rank + d, strides + 2 * rank + d);
            format!(
                "({index}){name}{d} * ({index})p.w[{stride}] - \
                 (({index}){name}{d} >= ({index})p.w[{wrap}] ? ({index})p.w[{back}] : 0)"
            )
        })
    }

    fn sum(&self, term: impl Fn(usize) -> String) -> String {
        match self.rank {
            0 => "0".into(),
            _ => (0..self.rank).map(term).collect::<Vec<_>>().join(" + "),
        }
    }

    /// The type of offsets, which is signed because strides may be negative.
    pub fn signed(&self) -> &'static str {
        if self.index == "u64" { "i64" } else { "i32" }
    }
}

/// The largest offset, in elements, of a view over a shape without empty dimensions.
pub(in crate::kernel) fn reach(shape: &[usize], view: &View) -> u64 {
    shape.iter().zip(&view.strides).map(|(&n, &s)| (n as u64 - 1) * s.unsigned_abs() as u64).sum()
}

/// Ranks of the general kernels, which serve launches of any rank up to theirs. Kernels of the second rank
/// use 64-bit positions.
const RANKS: [usize; 2] = [4, 8];

/// The dimensions of a launch that a general kernel needs.
fn counted(launch: &Launch) -> SmallVec<[usize; 8]> {
    (0..launch.shape.len()).filter(|&d| launch.shape[d] != 1 || d == launch.axis).collect()
}

/// The one of [`RANKS`] that serves a launch, and whether it uses 64-bit positions.
pub(in crate::kernel) fn general_rank(launch: &Launch, wide: bool) -> Option<(usize, bool)> {
    let [narrow, most] = RANKS;
    match counted(launch).len() {
        rank if rank <= narrow && !wide => Some((narrow, false)),
        rank if rank <= most => Some((most, true)),
        _ => None,
    }
}

/// The same launch with this rank, for kinds whose views have the dimensions of the launch: dimensions of extent 1
/// are dropped, or added in front.
pub(in crate::kernel) fn with_rank(launch: &Launch, rank: usize) -> Launch {
    let kept = counted(launch);
    let more = rank.saturating_sub(kept.len());
    let mut padded = launch.clone();
    padded.shape = std::iter::repeat_n(1, more).chain(kept.iter().map(|&d| launch.shape[d])).collect();
    for (to, from) in padded.views.iter_mut().zip(&launch.views) {
        to.strides = std::iter::repeat_n(0, more).chain(kept.iter().map(|&d| from.strides[d])).collect();
    }
    padded.axis = kept.iter().position(|&d| d == launch.axis).map_or(0, |at| more + at);
    padded
}

/// True when the view's elements are row-major without gaps.
pub(in crate::kernel) fn is_linear(shape: &[usize], strides: &[isize]) -> bool {
    let mut step = 1isize;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent != 1 {
            if stride != step {
                return false;
            }
            step *= extent as isize;
        }
    }
    true
}

/// True when all elements of the shape are the same memory location.
pub(in crate::kernel) fn is_uniform(shape: &[usize], strides: &[isize]) -> bool {
    shape.iter().zip(strides).all(|(&extent, &stride)| extent == 1 || stride == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipliers_divide_exactly() {
        let quotient = |i: u32, [_, magic]: [u64; 2]| {
            let high = ((u64::from(i) * (magic & 0xffff_ffff)) >> 32) as u32;
            (high + i) >> (magic >> 32)
        };
        for d in (1..2000).chain([4095, 4096, 65_537, 1 << 30, (1 << 31) - 1]) {
            let words = divisor(d);
            for i in (0..3000).chain([d as u32 - 1, d as u32, (1 << 31) - 1, (1 << 31) - 2, 1_000_000_007]) {
                assert_eq!(u64::from(quotient(i, words)), u64::from(i) / d, "{i} / {d}");
            }
        }
    }
}
