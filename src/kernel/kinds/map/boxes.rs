//! Launches with wrapping views, cut into boxes in which no view wraps. The host and the ready-made kernel run
//! box by box; a compiled kernel wraps by itself.

use crate::array::Dims;
use crate::kernel::Launch;
use smallvec::SmallVec;
use std::ops::Range;

/// True when a view of the launch wraps.
pub(super) fn is_wrapped(launch: &Launch) -> bool {
    launch.views.iter().any(|view| view.wraps.is_some())
}

/// Splits a launch into launches without wrapping views.
pub(super) fn boxes(launch: &Launch) -> Vec<Launch> {
    let rank = launch.shape.len();
    let ranges: SmallVec<[Vec<Range<usize>>; 6]> = (0..rank).map(|d| ranges(launch, d)).collect();
    let count = ranges.iter().map(Vec::len).product();
    let mut at: Dims = SmallVec::from_elem(0, rank);
    let mut all = Vec::with_capacity(count);
    for number in 0..count {
        let mut rest = number;
        let mut shape = Dims::new();
        for d in 0..rank {
            let range = &ranges[d][rest % ranges[d].len()];
            rest /= ranges[d].len();
            at[d] = range.start;
            shape.push(range.len());
        }
        all.push(launch.part(&at, shape));
    }
    all
}

/// The ranges of a dimension, cut where views wrap.
fn ranges(launch: &Launch, d: usize) -> Vec<Range<usize>> {
    let extent = launch.shape[d];
    let mut cuts: SmallVec<[usize; 8]> = smallvec::smallvec![0, extent];
    cuts.extend(launch.views.iter().filter_map(|view| view.wraps.as_ref().map(|wraps| wraps[d])));
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Dtype;
    use crate::kernel::{Map, Program, View};
    use std::collections::HashMap;
    use std::sync::Arc;

    /// The coordinates of a shape.
    fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
        shape.iter().fold(vec![Vec::new()], |all, &extent| {
            let longer = |at: &Vec<usize>| (0..extent).map(|i| [&at[..], &[i]].concat()).collect::<Vec<_>>();
            all.iter().flat_map(longer).collect()
        })
    }

    fn address(view: &View, shape: &[usize], at: &[usize]) -> u64 {
        let place = |d: usize| {
            let wraps = view.wraps.as_ref().is_some_and(|wraps| at[d] >= wraps[d]);
            view.strides[d] * (at[d] as isize - if wraps { shape[d] as isize } else { 0 })
        };
        view.ptr.wrapping_add_signed((0..shape.len()).map(place).sum::<isize>() as i64 * 4)
    }

    #[test]
    fn boxes_read_the_same_elements_as_wrapping_views() {
        let shape = [3, 5, 4];
        let view = |ptr, strides: [isize; 3], wraps: Option<[usize; 3]>| {
            let mut view = View::new(ptr, Dtype::F32, SmallVec::from_slice(&strides));
            view.wraps = wraps.map(|wraps| wraps.as_slice().into());
            view
        };
        let views = [
            view(1 << 20, [20, 4, 1], Some([1, 5, 3])),
            view(2 << 20, [20, -4, 1], Some([3, 2, 3])),
            view(3 << 20, [0, 1, -5], Some([3, 4, 1])),
            // Each element of its memory is one element of the shape.
            view(4 << 20, [20, 4, 1], None),
        ];
        let launch = Launch::new(
            Arc::new(Program::new(&Map::default())),
            SmallVec::from_slice(&shape),
            views.iter().cloned().collect(),
        );
        let all = |launch: &Launch| -> Vec<(u64, Vec<u64>)> {
            let of = |at: Vec<usize>| -> Vec<u64> {
                launch.views.iter().map(|view| address(view, &launch.shape, &at)).collect()
            };
            coordinates(&launch.shape).into_iter().map(of).map(|all| (all[3], all)).collect()
        };
        let expected: HashMap<u64, Vec<u64>> = all(&launch).into_iter().collect();
        let parts = boxes(&launch);
        assert_eq!(parts.len(), 2 * 3 * 3);
        assert!(parts.iter().all(|part| !is_wrapped(part)));
        let found: Vec<(u64, Vec<u64>)> = parts.iter().flat_map(all).collect();
        assert_eq!(found.len(), 60);
        assert_eq!(found.into_iter().collect::<HashMap<_, _>>(), expected);
    }
}
