//! Index arithmetic in kernels: from a linear position to coordinates, from coordinates to offsets.
//!
//! Divisors are known only at launch. 32-bit divisions use a multiplier computed by the host; 64-bit ones
//! divide.

use crate::array::Dtype;
use crate::kernel::{Beside, Launch, View};
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

    /// [`Space::offset`] of a view with copies beside its elements; the words from `padding` on are those of [`push_padding`].
    pub fn padded_offset(&self, strides: usize, padding: usize) -> String {
        let Space { name, index, rank, .. } = self;
        self.sum(|d| {
            let within = within(&format!("({index}){name}{d}"), index, padding, (d, *rank));
            format!("{within} * ({index})p.w[{}]", strides + d)
        })
    }

    /// True when the coordinates are inside: the first coordinates are in the words from `firsts` on, followed by the numbers
    /// of those inside.
    pub fn are_inside(&self, firsts: usize) -> String {
        let Space { name, index, rank, .. } = self;
        let all = (0..*rank)
            .map(|d| is_inside(&format!("({index}){name}{d}"), index, [firsts + d, firsts + rank + d]));
        if *rank == 0 { "true".into() } else { all.collect::<Vec<_>>().join(" && ") }
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

/// True when a coordinate is inside: one of as many from the first on as the two words say.
pub(in crate::kernel) fn is_inside(at: &str, index: &str, [first, count]: [usize; 2]) -> String {
    format!("({index})({at} - ({index})p.w[{first}]) < ({index})p.w[{count}]")
}

/// Parameter words of the padding of a view over this many dimensions, with numbers or copies beside its elements.
pub(in crate::kernel) fn padding_words(rank: usize, has_numbers: bool) -> usize {
    if has_numbers { 2 * rank + 1 } else { 4 * rank + 1 }
}

/// Appends the padding of a view over these dimensions: the first coordinates inside, the numbers of those, and the number
/// beside; or the bases before and after, and the slope. The last dimension is counted in units.
pub(in crate::kernel) fn push_padding(words: &mut Words, view: &View, dims: &[usize], unit: usize) {
    let Some(padding) = &view.padding else { return };
    let unit = |i: usize| if i + 1 == dims.len() { unit } else { 1 };
    words.extend(dims.iter().enumerate().map(|(i, &d)| (padding.inside[d][0] / unit(i)) as u64));
    let count = |(i, &d): (usize, &usize)| ((padding.inside[d][1] - padding.inside[d][0]) / unit(i)) as u64;
    words.extend(dims.iter().enumerate().map(count));
    match padding.beside {
        Beside::Number(bits) => words.push(repeated(bits, view.dtype)),
        _ => {
            for end in 0..2 {
                words.extend(dims.iter().map(|&d| padding.bases(d)[end] as u64));
            }
            words.push(padding.slope() as u64);
        }
    }
}

/// The coordinate of the element at coordinate `at` of dimension `d` of `rank`, for a view with copies beside its
/// elements.
pub(in crate::kernel) fn within(at: &str, index: &str, padding: usize, (d, rank): (usize, usize)) -> String {
    let word = |number: usize| format!("({index})p.w[{}]", padding + number * rank + d);
    let (first, count, before, after) = (word(0), word(1), word(2), word(3));
    let slope = format!("({index})p.w[{}]", padding + 4 * rank);
    format!("({at} - {first} < {count} ? {at} : ({at} < {first} ? {before} : {after}) + {slope} * {at})")
}

/// The bits of an element, repeated as often as they fit 64 bits.
fn repeated(bits: u64, dtype: Dtype) -> u64 {
    (0..64).step_by(8 * dtype.size().min(8)).fold(0, |all, at| all | bits << at)
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
