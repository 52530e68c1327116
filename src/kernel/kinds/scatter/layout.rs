//! The dimensions of a scatter's launch.

use super::{ADDED, FEW, Mode};
use crate::kernel::Launch;
use crate::kernel::cuda::blocks;
use crate::kernel::cuda::index::with_rank;

/// Minimum number of rows for a block each.
const LEAST_ROWS: usize = 256;

/// The dimensions of a launch, each list in row-major order.
pub(super) struct Split {
    /// Dimensions along which the index varies, and those that cannot be split off.
    pub(super) outer: Vec<usize>,
    /// Dimensions along which the index is constant and targets are distinct.
    pub(super) inner: Vec<usize>,
}

impl Split {
    /// `any`: for general kernels, which have exactly one inner dimension; the first dimension of the launch then has
    /// extent 1.
    pub(super) fn of(mode: Mode, launch: &Launch, any: bool) -> Split {
        let all = 0..launch.shape.len();
        let (index, out) = (&launch.views[1], &launch.views[2]);
        let differ = targets_differ(launch);
        let is_inner = |&d: &usize| {
            differ && d != launch.axis && index.strides[d] == 0 && out.strides[d] != 0 && launch.shape[d] > 1
        };
        if !mode.sorts() {
            return Split { outer: all.collect(), inner: Vec::new() };
        }
        let (mut inner, mut outer): (Vec<usize>, Vec<usize>) = all.partition(is_inner);
        if any {
            let one = inner.pop().unwrap_or_else(|| outer.remove(0));
            outer.append(&mut inner);
            outer.sort_unstable();
            inner = vec![one];
        }
        Split { outer, inner }
    }

    pub(super) fn count(launch: &Launch, dims: &[usize]) -> u64 {
        dims.iter().map(|&d| launch.shape[d] as u64).product()
    }
}

/// The last dimension with more than one element.
pub(super) fn innermost(launch: &Launch) -> Option<usize> {
    launch.shape.iter().rposition(|&n| n > 1)
}

/// The same launch over units of elements.
pub(super) fn in_units(launch: &Launch, unit: usize) -> Launch {
    let mut launch = launch.clone();
    let Some(inner) = innermost(&launch).filter(|_| unit > 1) else { return launch };
    launch.shape[inner] /= unit;
    for view in [0, 2] {
        for (d, stride) in launch.views[view].strides.iter_mut().enumerate().filter(|(d, _)| *d != inner) {
            // The stride of a dimension of extent 1 is not used, and need not be divisible.
            *stride /= if launch.shape[d] > 1 || d == launch.axis { unit as isize } else { 1 };
        }
    }
    launch
}

/// The target's extent along a dimension.
pub(super) fn extent(launch: &Launch, d: usize) -> u64 {
    if d == launch.axis { launch.limit as u64 } else { launch.shape[d] as u64 }
}

/// True when distinct coordinates of the target, over dimensions with a stride, are distinct elements.
pub(super) fn targets_differ(launch: &Launch) -> bool {
    let strides = &launch.views[2].strides;
    let mut dims: Vec<(u64, u64)> = (0..launch.shape.len())
        .map(|d| (strides[d].unsigned_abs() as u64, extent(launch, d)))
        .filter(|&(stride, extent)| stride != 0 && extent > 1)
        .collect();
    dims.sort_unstable();
    let mut reached = 0;
    dims.iter().all(|&(stride, extent)| {
        let apart = stride > reached;
        reached += stride * (extent - 1);
        apart
    })
}

/// Number of blocks of a launch that first sum in shared memory: enough to fill a device, and more only if each
/// has many elements, because each writes its sums.
pub(super) fn few_blocks(count: u64) -> u32 {
    blocks(count, 1024).min(blocks(count, 256 * ADDED).clamp(264, 768))
}

/// The logarithm of the number of copies of each target's sum per block: one per lane, if they fit.
pub(super) fn copies(targets: u64) -> u32 {
    (FEW / targets.max(1)).clamp(1, 32).ilog2()
}

/// True if each target has at most one source: the index has one element along its axis, and elements along the other
/// dimensions have different targets, which have these strides. (An index tensor of several dimensions has the same targets
/// along all of them.)
pub fn has_one_source(shape: &[usize], axis: usize, targets: &[isize]) -> bool {
    let is_apart = |(d, &extent): (usize, &usize)| extent == 1 || d != axis && targets[d] != 0;
    shape.iter().enumerate().all(is_apart)
}

/// True if each row along the last dimension has its own few targets, many elements for them, and there are enough rows to
/// fill a device.
pub(super) fn rows_fit(launch: &Launch) -> bool {
    let (axis, shape) = (launch.axis, &launch.shape);
    let Some(&each) = shape.get(axis) else { return false };
    let count: usize = shape.iter().product();
    let varies = (0..shape.len()).any(|d| shape[d] > 1 && launch.views[0].strides[d] != 0);
    shape[axis + 1..].iter().all(|&n| n == 1)
        && launch.views[2].strides[axis] == 1
        && launch.limit as u64 <= FEW
        && each >= 64
        && each >= launch.limit / 4
        && count / each >= LEAST_ROWS
        && count < 1 << 31
        && varies
        && targets_differ(launch)
}

/// One more than the largest offset, in elements, of a target over these dimensions.
pub(super) fn targets(launch: &Launch, dims: &[usize]) -> u64 {
    let out = &launch.views[2];
    let reach = |&d: &usize| (extent(launch, d).max(1) - 1) * out.strides[d].unsigned_abs() as u64;
    dims.iter().map(reach).sum::<u64>() + 1
}

/// Merges adjacent dimensions that all views traverse with one stride.
pub(super) fn joined(launch: &Launch) -> Launch {
    let mut joined = with_rank(launch, 0);
    // The index selects the target's position along the axis.
    let step = |joined: &Launch, view: usize, d: usize| match view {
        2 if d == joined.axis => 0,
        _ => joined.views[view].strides[d],
    };
    let mut d = 1;
    while d < joined.shape.len() {
        let extent = joined.shape[d];
        if (0..3).any(|view| step(&joined, view, d - 1) != step(&joined, view, d) * extent as isize) {
            d += 1;
            continue;
        }
        joined.shape[d - 1] *= extent;
        joined.shape.remove(d);
        for (number, view) in joined.views[..3].iter_mut().enumerate() {
            // Keep the step along the axis, which the target lacks.
            let own = number == 2 && joined.axis + 1 == d;
            view.strides.remove(if own { d } else { d - 1 });
        }
        joined.axis -= usize::from(joined.axis >= d);
    }
    joined
}
