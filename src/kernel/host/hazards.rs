//! Checks of small launches in debug builds: no element is stored that another position of the launch loads or stores. A
//! device runs the positions in any order, while a small launch on the host loads everything first, so that the values
//! would not show it.

use crate::kernel::{Launch, Map, Source, View};
use foldhash::HashMap;

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
    let view = |number: u16| launch.views.get(usize::from(number));
    let loads = map.sources.iter().filter_map(|source| match source {
        Source::Load { view, .. } => Some(*view),
        _ => None,
    });
    let stores: Vec<&View> = map.stores.iter().filter_map(|store| view(store.view)).collect();
    let loads: Vec<&View> = loads.filter_map(view).filter(|view| view.indexed.is_none()).collect();
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

/// The addresses of a view from its first to its last byte.
fn range(view: &View, launch: &Launch) -> std::ops::Range<u64> {
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
