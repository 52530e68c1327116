//! Launches with wrapping or padded views, cut into boxes in which no view bends. The host and the ready-made kernel run
//! box by box; a compiled kernel handles these views by itself.

use crate::array::{Dims, Dtype, Scalar};
use crate::kernel::{Launch, Map, Source};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// True when a view of the launch wraps or has padding.
pub(super) fn is_bent(launch: &Launch) -> bool {
    launch.views.iter().any(|view| !view.is_straight())
}

/// Splits a launch into launches with straight views, each with its map: where a view has no elements in memory, the map
/// has a number instead of its load.
pub(super) fn boxes<'m>(map: &'m Map, launch: &Launch) -> Vec<(Cow<'m, Map>, Launch)> {
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
        let (mut part, numbers) = launch.part(&at, shape);
        let mut own = Cow::Borrowed(map);
        if map.sources.iter().any(|source| matches!(source, Source::Inside { .. })) {
            decide(&mut own, &mut part, |view| !numbers.iter().any(|&(number, _)| number == view));
        }
        for (view, bits) in numbers {
            replace(&mut own, &mut part, view, bits);
        }
        all.push((own, part));
    }
    all
}

/// Replaces the conditions of a map, which hold everywhere in a box or nowhere.
fn decide(map: &mut Cow<'_, Map>, launch: &mut Launch, is_inside: impl Fn(usize) -> bool) {
    for source in &mut map.to_mut().sources {
        if let Source::Inside { view } = *source {
            *source = Source::Number { slot: launch.numbers.len() as u16, dtype: Dtype::Bool };
            launch.numbers.push(u64::from(is_inside(usize::from(view))));
        }
    }
}

/// Replaces the load of a view by a number, given as an element in memory.
fn replace(map: &mut Cow<'_, Map>, launch: &mut Launch, view: usize, bits: u64) {
    for source in &mut map.to_mut().sources {
        match *source {
            Source::Load { view: own, dtype } if usize::from(own) == view => {
                let number = Scalar::decode(&bits.to_le_bytes()[..dtype.size()], dtype);
                *source = Source::Number { slot: launch.numbers.len() as u16, dtype };
                launch.numbers.push(number.bits_as(dtype));
            }
            _ => {}
        }
    }
}

/// The ranges of a dimension, cut where views bend.
fn ranges(launch: &Launch, d: usize) -> Vec<Range<usize>> {
    let extent = launch.shape[d];
    let mut cuts: SmallVec<[usize; 8]> = smallvec::smallvec![0, extent];
    cuts.extend(launch.views.iter().filter_map(|view| view.wraps.as_ref().map(|wraps| wraps[d])));
    cuts.extend(launch.views.iter().flat_map(|view| &view.padding).flat_map(|padding| padding.inside[d]));
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::contiguous_strides;
    use crate::kernel::{Beside, Padding, Program, View};
    use std::collections::HashMap;
    use std::sync::Arc;

    const SIZE: i64 = 4;

    /// The coordinates of a shape.
    fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
        shape.iter().fold(vec![Vec::new()], |all, &extent| {
            let longer = |at: &Vec<usize>| (0..extent).map(|i| [&at[..], &[i]].concat()).collect::<Vec<_>>();
            all.iter().flat_map(longer).collect()
        })
    }

    /// What a view reads at the coordinates: an address, or a number.
    fn element(view: &View, shape: &[usize], at: &[usize]) -> (u64, bool) {
        let mut offset = 0;
        for d in 0..shape.len() {
            let wraps = view.wraps.as_ref().is_some_and(|wraps| at[d] >= wraps[d]);
            let mut c = at[d] as isize - if wraps { shape[d] as isize } else { 0 };
            if let Some(Padding { inside, beside }) = view.padding.as_deref() {
                let [first, last] = [inside[d][0] as isize, inside[d][1] as isize - 1];
                let end = if c < first { first } else { last };
                c = match *beside {
                    _ if (first..=last).contains(&c) => c,
                    Beside::Number(bits) => return (bits, false),
                    Beside::Nearest => end,
                    Beside::Mirrored => end + end - c,
                    Beside::Wrapped => (c - first).rem_euclid(last + 1 - first) + first,
                };
                c -= first;
            }
            offset += view.strides[d] * c;
        }
        (view.ptr.wrapping_add_signed(offset as i64 * SIZE), true)
    }

    #[test]
    fn boxes_read_the_same_elements_as_bent_views() {
        let shape = [3, 5, 4];
        let view = |ptr: u64, strides: [isize; 3], wraps: Option<[usize; 3]>| {
            let mut view = View::new(ptr << 20, Dtype::I32, SmallVec::from_slice(&strides));
            view.wraps = wraps.map(|wraps| wraps.as_slice().into());
            view
        };
        let pad = |ptr: u64, inside: [[usize; 2]; 3], beside| {
            let padding = Padding { inside: SmallVec::from_slice(&inside), beside };
            View { padding: Some(Box::new(padding)), ..view(ptr, [20, 4, 1], None) }
        };
        let straight = view(4, [20, 4, 1], None);
        let wrapped = vec![
            view(1, [20, 4, 1], Some([1, 5, 3])),
            view(2, [20, -4, 1], Some([3, 2, 3])),
            view(3, [0, 1, -5], Some([3, 4, 1])),
            straight.clone(),
        ];
        let padded = vec![
            pad(1, [[1, 3], [0, 5], [0, 4]], Beside::Number(77)),
            pad(2, [[0, 3], [2, 5], [2, 4]], Beside::Nearest),
            pad(3, [[0, 3], [2, 5], [0, 3]], Beside::Mirrored),
            straight.clone(),
        ];
        let repeated = vec![
            pad(1, [[1, 3], [2, 4], [1, 3]], Beside::Wrapped),
            view(2, [0; 3], None),
            view(3, [0; 3], None),
            straight,
        ];
        for (views, boxes_of) in [(wrapped, 2 * 3 * 3), (padded, 2 * 2 * 3), (repeated, 2 * 3 * 3)] {
            let sources = (0..views.len() as u16).map(|view| Source::Load { view, dtype: Dtype::I32 });
            let map = Map { sources: sources.collect(), ..Map::default() };
            let program = Arc::new(Program::new(&map));
            let launch = Launch::new(program, SmallVec::from_slice(&shape), views.into());
            // Each element of the last view's memory is one element of the shape.
            let all = |map: &Map, launch: &Launch| -> Vec<(u64, Vec<(u64, bool)>)> {
                let of = |at: Vec<usize>| -> Vec<(u64, bool)> {
                    let source = |(source, view): (&Source, &View)| match *source {
                        Source::Number { slot, .. } => (launch.numbers[usize::from(slot)], false),
                        _ => element(view, &launch.shape, &at),
                    };
                    map.sources.iter().zip(&launch.views).map(source).collect()
                };
                coordinates(&launch.shape).into_iter().map(of).map(|all| (all[3].0, all)).collect()
            };
            let expected: HashMap<u64, Vec<(u64, bool)>> = all(&map, &launch).into_iter().collect();
            let parts = boxes(&map, &launch);
            assert_eq!(parts.len(), boxes_of);
            assert!(parts.iter().all(|(_, part)| !is_bent(part)));
            let found: Vec<_> = parts.iter().flat_map(|(map, part)| all(map, part)).collect();
            assert_eq!(found.len(), 60);
            assert_eq!(found.into_iter().collect::<HashMap<_, _>>(), expected);
            assert_eq!(launch.views[3].strides, contiguous_strides(&shape));
        }
    }
}
