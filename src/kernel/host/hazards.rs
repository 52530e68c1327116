//! Checks of small launches in debug builds: no element is stored that another position of the launch loads or stores. A
//! device runs the positions in any order, while a small launch on the host loads everything first, so that the values
//! would not show it.

use crate::kernel::{Launch, Map, Source, View};
use foldhash::HashMap;
use std::ops::Range;

/// The largest launch that is checked, in elements.
const MOST: usize = 1 << 10;

/// The most views of a launch that is checked.
const MOST_VIEWS: usize = 32;

/// Panics if a position of the launch stores an element that another one loads or stores.
pub(in crate::kernel) fn check(map: &Map, launch: &Launch) {
    let count: usize = launch.shape.iter().product();
    if count <= 1 || count > MOST || launch.views.len() > MOST_VIEWS {
        return;
    }
    let (loads, stores) = accesses(map, launch);
    let ranges: Vec<_> = stores.iter().map(|store| range(store, launch)).collect();
    let meets = |number: usize, other: &View| {
        let (own, other) = (&ranges[number], range(other, launch));
        own.start < other.end && other.start < own.end
    };
    for (number, store) in stores.iter().enumerate() {
        let others: Vec<&&View> =
            loads.iter().chain(&stores[number + 1..]).filter(|other| meets(number, other)).collect();
        if others.is_empty() && !store.strides.contains(&0) {
            continue;
        }
        let mut written: HashMap<u64, usize> = HashMap::default();
        for (position, start) in addresses(store, &launch.shape) {
            for byte in start..start + store.dtype.size() as u64 {
                let before = written.insert(byte, position);
                assert!(before.is_none_or(|before| before == position), "two positions store one element");
            }
        }
        for other in others {
            for (position, start) in addresses(other, &launch.shape) {
                let is_own = |byte: u64| written.get(&byte).is_none_or(|&own| own == position);
                assert!(
                    (start..start + other.dtype.size() as u64).all(is_own),
                    "a position stores an element that another one accesses: {:?}, {:?} and {:?}",
                    launch.shape,
                    store.strides,
                    other.strides
                );
            }
        }
    }
}

/// Panics if a segment of a launch stores elements that another one loads or stores.
pub(in crate::kernel) fn check_segments(map: &Map, segments: &[Launch]) {
    let small = |segment: &Launch| segment.shape.iter().product::<usize>() <= MOST;
    if segments.len() > MOST_VIEWS || !segments.iter().all(small) {
        return;
    }
    let ranges = |segment: &Launch| {
        let (loads, stores) = accesses(map, segment);
        let of = |views: Vec<&View>| views.iter().map(|view| range(view, segment)).collect::<Vec<_>>();
        (of(loads), of(stores))
    };
    let all: Vec<_> = segments.iter().map(ranges).collect();
    for (number, (_, stores)) in all.iter().enumerate() {
        for (_, (loads, others)) in all.iter().enumerate().filter(|(other, _)| *other != number) {
            let meets = |store: &Range<u64>| {
                loads.iter().chain(others).any(|other| store.start < other.end && other.start < store.end)
            };
            assert!(!stores.iter().any(meets), "a segment stores elements that another one accesses");
        }
    }
}

/// The views that a map loads, except at indices, and those that it stores.
fn accesses<'l>(map: &Map, launch: &'l Launch) -> (Vec<&'l View>, Vec<&'l View>) {
    let view = |number: u16| launch.views.get(usize::from(number));
    let loads = map.sources.iter().filter_map(|source| match source {
        Source::Load { view, .. } => Some(*view),
        _ => None,
    });
    let stores = map.stores.iter().filter_map(|store| view(store.view));
    (loads.filter_map(view).filter(|view| view.indexed.is_none()).collect(), stores.collect())
}

/// The addresses of a view from its first to its last byte.
fn range(view: &View, launch: &Launch) -> Range<u64> {
    let all = || addresses(view, &launch.shape).map(|(_, start)| start);
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return 0..0 };
    first..last + view.dtype.size() as u64
}

/// For each position of a launch with an element in memory, its number and its address.
fn addresses<'v>(view: &'v View, shape: &'v [usize]) -> impl Iterator<Item = (usize, u64)> + 'v {
    let count: usize = shape.iter().product();
    (0..count).filter_map(move |number| {
        let (mut rest, mut offset) = (number, 0);
        for d in (0..shape.len()).rev() {
            let c = rest % shape[d];
            rest /= shape[d];
            let stride = view.strides[d];
            offset += match (&view.padding, &view.wraps) {
                (Some(padding), _) => (padding.within(d, c)?.0 - padding.inside[d][0] as isize) * stride,
                (None, Some(wraps)) if c >= wraps[d] => (c as isize - shape[d] as isize) * stride,
                _ => c as isize * stride,
            };
        }
        Some((number, view.ptr.wrapping_add_signed((offset * view.dtype.size() as isize) as i64)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Dtype, Strides};
    use crate::kernel::{Program, Store};
    use smallvec::smallvec;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    /// True if a copy from a view to another passes the check.
    fn passes(from: (u64, Strides), to: (u64, Strides)) -> bool {
        let map = Map {
            sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }],
            instrs: Vec::new(),
            stores: vec![Store { reg: 0, view: 1 }],
        };
        let views = [from, to].map(|(at, strides)| View::new(4096 + 4 * at, Dtype::F32, strides));
        let launch = Launch::new(Arc::new(Program::new(&map)), smallvec![3, 4], views.into_iter().collect());
        catch_unwind(AssertUnwindSafe(|| check(&map, &launch))).is_ok()
    }

    #[test]
    fn positions_that_store_what_others_load_are_found() {
        let (rows, columns) = (|| smallvec![4, 1], || smallvec![1, 3]);
        assert!(passes((0, rows()), (0, rows())));
        assert!(passes((0, rows()), (12, rows())));
        assert!(passes((0, smallvec![8, 2]), (1, smallvec![8, 2])));
        assert!(!passes((0, rows()), (0, columns())));
        assert!(!passes((0, rows()), (1, rows())));
        assert!(!passes((0, rows()), (4, rows())));
        // One element that all positions store.
        assert!(!passes((0, rows()), (99, smallvec![0, 0])));
    }
}
