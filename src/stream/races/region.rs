//! The bytes of a storage that an access touches.

use crate::array::Layout;
use std::ops::Range;

/// A run of bytes, or equally long runs at equal distances: the bytes of a view, or a superset.
///
/// Every layout has a region, so two streams may work on the left and the right columns of one matrix. A view
/// with more than one distance touches less than its region; the region with the fewest bytes is used.
///
/// Invariant: runs lie in `lo..hi`, at offsets that are `phase..phase + width` modulo `step`; with a `step`
/// of 0 there is one run, `lo..hi`. Otherwise `width < step`, and if no run crosses a multiple of `step`,
/// `lo` and `hi` are such multiples.
///
/// Sample: columns 2 to 4 of an f32 matrix of 10 columns and 3 rows are `lo: 0, hi: 120, step: 40, phase: 8,
/// width: 8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    lo: u64,
    hi: u64,
    step: u64,
    phase: u64,
    width: u64,
}

impl From<Range<u64>> for Region {
    #[inline]
    fn from(bytes: Range<u64>) -> Region {
        Region { lo: bytes.start, hi: bytes.end.max(bytes.start), step: 0, phase: 0, width: 0 }
    }
}

impl Region {
    /// The region of a view with elements of `size` bytes.
    pub fn of(layout: &Layout, size: usize) -> Region {
        let size = size as u64;
        let lo = layout.offset as u64 * size;
        if layout.shape.contains(&0) {
            return Region::from(lo..lo);
        }
        let mut steps: smallvec::SmallVec<[(u64, u64); 6]> = smallvec::SmallVec::new();
        for (&n, &stride) in layout.shape.iter().zip(&layout.strides) {
            if n > 1 && stride != 0 {
                steps.push((stride.unsigned_abs() as u64 * size, n as u64));
            }
        }
        if steps.len() > 1 {
            steps.sort_unstable();
        }
        let hi = lo + size + steps.iter().map(|&(step, n)| step * (n - 1)).sum::<u64>();
        let mut best: Option<(u64, u64)> = None;
        let mut width = size;
        for (index, &(step, n)) in steps.iter().enumerate() {
            if step > width {
                // The earlier dimensions form the runs; the common divisor of the remaining strides is the
                // distance.
                let distance = steps[index..].iter().fold(0, |a, &(b, _)| common_divisor(a, b));
                let fewer = |(w, d): (u64, u64)| {
                    u128::from(width) * u128::from(d) < u128::from(w) * u128::from(distance)
                };
                if width < distance && best.is_none_or(fewer) {
                    best = Some((width, distance));
                }
            }
            width += step * (n - 1);
        }
        match best {
            Some((width, step)) => Region::runs(lo..hi, step, width),
            None => Region::from(lo..hi),
        }
    }

    /// Runs of `width` bytes, `step` bytes apart, the first at the start of `bytes`.
    fn runs(bytes: Range<u64>, step: u64, width: u64) -> Region {
        let (mut lo, mut hi) = (bytes.start, bytes.end);
        let phase = lo % step;
        if phase + width <= step {
            // The same runs in wider bounds, so that columns of one matrix share their bounds.
            lo -= phase;
            hi = hi.next_multiple_of(step);
        }
        Region { lo, hi, step, phase, width }
    }

    /// The bytes from the first run to the last.
    pub fn bytes(&self) -> Range<u64> {
        self.lo..self.hi
    }

    /// True when any run overlaps `bytes`, which lie within the bounds.
    pub(super) fn meets(&self, bytes: &Range<u64>) -> bool {
        self.stripes().is_none_or(|(step, residues)| {
            let there = Residues::of(bytes.start, bytes.end - bytes.start, step);
            there.and(residues).next().is_some()
        })
    }

    /// The distance of the runs, and their offsets modulo the distance; `None` for one run.
    pub(super) fn stripes(&self) -> Option<(u64, Residues)> {
        (self.step != 0).then(|| (self.step, Residues::of(self.phase, self.width, self.step)))
    }
}

/// Offsets modulo a distance: one range, or two if it wraps around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Residues([(u64, u64); 2]);

impl Residues {
    /// `width` offsets starting at `start`.
    pub(super) fn of(start: u64, width: u64, step: u64) -> Residues {
        if width >= step {
            return Residues([(0, step), (0, 0)]);
        }
        let start = start % step;
        let end = start + width;
        match end <= step {
            true => Residues([(start, end), (0, 0)]),
            false => Residues([(start, step), (0, end - step)]),
        }
    }

    pub(super) fn ranges(self) -> impl Iterator<Item = Range<u64>> {
        self.0.into_iter().map(|(a, b)| a..b).filter(|r| !r.is_empty())
    }

    /// The intersection: at most four ranges.
    pub(super) fn and(self, other: Residues) -> impl Iterator<Item = Range<u64>> {
        self.ranges().flat_map(move |a| {
            other.ranges().map(move |b| a.start.max(b.start)..a.end.min(b.end)).filter(|r| !r.is_empty())
        })
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(shape: &[usize], strides: &[isize], offset: usize) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset }
    }

    /// Every byte of a region.
    pub(in crate::stream::races) fn bytes(region: &Region) -> Vec<u64> {
        let inside = |b: &u64| match region.stripes() {
            None => true,
            Some((step, residues)) => residues.ranges().any(|r| r.contains(&(b % step))),
        };
        region.bytes().filter(inside).collect()
    }

    #[test]
    fn contiguous_views_are_one_run() {
        assert_eq!(Region::of(&view(&[3, 10], &[10, 1], 20), 4), Region::from(80..200));
        assert_eq!(Region::of(&view(&[10, 3], &[1, 10], 0), 4), Region::from(0..120));
        assert_eq!(Region::of(&view(&[5, 3], &[0, 1], 2), 4), Region::from(8..20));
        assert_eq!(Region::of(&view(&[3, 0], &[1, 1], 2), 4), Region::from(8..8));
    }

    #[test]
    fn disjoint_columns_do_not_overlap() {
        let left = Region::of(&view(&[3, 2], &[10, 1], 0), 4);
        let right = Region::of(&view(&[3, 2], &[10, 1], 2), 4);
        assert_eq!((left.bytes(), right.bytes()), (0..120, 0..120));
        assert!(bytes(&left).iter().all(|b| !bytes(&right).contains(b)));
        assert_eq!(bytes(&right).len(), 24);
        // A block of a cube: rows 0 and 1 of 4, half of each; the distance between planes is used.
        let block = Region::of(&view(&[3, 2, 5], &[40, 10, 1], 0), 1);
        assert_eq!(bytes(&block).len(), 45);
    }

    proptest! {
        #[test]
        fn a_region_has_every_byte_of_its_view(
            dims in prop::collection::vec((1..5_usize, 0..12_isize), 0..4),
            offset in 0..20_usize,
            size in prop_oneof![Just(1_usize), Just(2), Just(4)],
        ) {
            let layout = Layout {
                shape: dims.iter().map(|d| d.0).collect(),
                strides: dims.iter().map(|d| d.1).collect(),
                offset,
            };
            let region = bytes(&Region::of(&layout, size));
            let mut firsts = vec![offset];
            for &(n, stride) in &dims {
                firsts = firsts.iter().flat_map(|f| (0..n).map(move |i| f + i * stride as usize)).collect();
            }
            for first in firsts {
                for byte in first * size..(first + 1) * size {
                    prop_assert!(region.contains(&(byte as u64)));
                }
            }
        }
    }
}
