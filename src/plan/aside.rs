//! Work over another shape that does not end the open group.
//!
//! Note [Aside]. An operation over another shape than the open group's may run before the group if it writes a new
//! tensor (whose memory may be bound already, as a factory's) and reads nothing that the group computes. Such work is
//! collected in a closed group (a group aside) before the open group, which stays open. This happens if the open group
//! is large, cannot wait in a batch (Note [Batches]), or may compute the few elements again (Note [Computed again]). So
//! `v = u.clone(); v[1..-1] = next` stores `next` directly to the slice, although the copy has another shape. When the
//! queue is flushed, both become one launch (Note [Filled holes]), or the group aside omits elements that a later group
//! overwrites before they are read ([`FusedGroup::overwritten`]). After `let v = u.clone(); let next = u[1..] / 2`, the
//! work aside is `next`: `v[1..] = next` moves the copy before it ([`Queue::swap_aside`]), and the result is the same.
//!
//! A reduction of a value of the newest group aside joins that group, and the open group runs first
//! ([`Runtime::resume_aside`]).
//!
//! The number of groups aside is limited, and they hold at most one iteration of a loop, so that a loop requests the
//! same programs each time. A group whose results are no longer referenced is removed.

use super::again::LEAST_RATIO;
use super::batch::Waiting;
use super::chain::part_and_node;
use super::flush::is_wanted;
use super::gather::GATHERED;
use super::queue::{FusedGroup, Queue};
use super::rounds::{Called, Size};
use super::{MAX_INSTRS, MAX_VIEWS, MapArg, Runtime};
use crate::array::{Dims, Layout, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::Launch;
use crate::tensor::{Memory, StorageRef, Tensor};
use smallvec::SmallVec;

/// The minimum memory traffic that a launch in pieces must save, in bytes. The additional launches cost about as much.
pub(super) const LEAST_SAVED: usize = 32 << 20;

/// Maximum number of groups aside.
const MOST_ASIDE: usize = 3;

/// From this many bytes on, a group gains more from fusing further work than from waiting in a batch.
const LARGE: u64 = 16 << 20;

/// Elements that a group need not compute: one of its nodes would write them, and later work overwrites them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hole {
    /// The only node that may be live.
    pub node: usize,
    /// First coordinate and extent, per dimension.
    pub range: SmallVec<[(usize, usize); 6]>,
}

impl Queue {
    /// The newest group aside; the open group follows it.
    pub(super) fn aside(&self) -> Option<&FusedGroup> {
        self.chain.last().filter(|group| group.is_aside)
    }

    /// True when an operation over another shape may run before the open group.
    pub(super) fn may_run_before(&self, operands: &[MapArg<'_>], target: &Tensor, called: Called) -> bool {
        let Some(open) = &self.group else { return false };
        let is_less = || is_less(target.shape(), &open.shape);
        let joins = self.joins_aside(operands.len(), target);
        let is_room =
            self.asides().count() < MOST_ASIDE && !self.asides().any(|group| group.has_seen(called));
        let has_place = match self.aside() {
            Some(aside) if joins => !aside.has_seen(called),
            Some(_) => is_room && is_less(),
            None => {
                // Repeated work of a loop over tensors waits in a batch.
                // An open group with an unrolled reduction will probably get another, of this work.
                let is_near = || is_less() || open.is_unrolled;
                let gains =
                    || open.bytes() >= LARGE || !self.may_wait() || is_near() && !open.has_seen(called);
                self.rows().is_empty() && gains()
            }
        };
        has_place && self.needs_no_open(operands, target, joins)
    }

    /// True when an operation could run before the open group, which gathers, if no group were aside; see Note [Hoisted
    /// indices].
    pub(super) fn may_run_between(&self, operands: &[MapArg<'_>], target: &Tensor) -> bool {
        self.aside().is_some() && self.may_stay_open() && self.needs_no_open(operands, target, false)
    }

    /// True when an operation writes a new tensor, and its operands are in memory before the open group runs.
    fn needs_no_open(&self, operands: &[MapArg<'_>], target: &Tensor, joins: bool) -> bool {
        let Some(open) = &self.group else { return false };
        let storage = target.storage();
        // The memory of a factory's tensor is bound, but no queued work refers to it.
        let is_new = target.is_first() && target.storage_holders() == 1;
        let is_foreign = || matches!(storage.memory(), Some(Memory::Foreign(_)));
        let is_new = is_new && storage.pending().is_none() && !is_foreign();
        is_new
            && open.reduce.is_none()
            && !open.nodes.is_empty()
            && operands.iter().all(|operand| match operand {
                MapArg::Tensor(tensor) => self.is_ready_aside(tensor, joins),
                // (Values of the position are then written to memory that is already bound.)
                MapArg::Position => false,
                _ => true,
            })
    }

    /// The groups aside.
    pub(super) fn asides(&self) -> impl Iterator<Item = &FusedGroup> {
        self.chain.iter().rev().take_while(|group| group.is_aside)
    }

    /// True when a group aside is not much smaller than the open group, which then should hold at most one iteration.
    pub(super) fn has_large_aside(&self) -> bool {
        let Some(open) = &self.group else { return false };
        self.asides().any(|aside| !is_less(&aside.shape, &open.shape))
    }

    /// True when the newest group aside has the target's shape and room.
    fn joins_aside(&self, operands: usize, target: &Tensor) -> bool {
        self.aside().is_some_and(|aside| {
            let Size { instrs, views, nodes, .. } = aside.size();
            let has_room = instrs + 8 <= MAX_INSTRS && views + operands + 1 < MAX_VIEWS && nodes < MAX_INSTRS;
            has_room && same(&aside.shape, target.shape())
        })
    }

    /// True when a tensor is a value of the newest group aside, over its shape.
    fn computes_aside(&self, at: usize, x: &Tensor) -> bool {
        let pending = x.storage().pending().filter(|pending| usize::from(pending.queue) == at);
        let (Some(aside), Some(pending)) = (self.aside(), pending) else { return false };
        let (part, node) = part_and_node(pending.node);
        part + 1 == self.chain.len()
            && same(&aside.shape, x.shape())
            && aside.nodes.get(node).is_some_and(|node| node.is_value_of(x))
    }

    /// Lets the only group aside run after the open group if the target is a part of what the open group computes, and
    /// an operand is a value of the group aside: the group aside then stores it to the target.
    pub(super) fn swap_aside(&mut self, at: usize, operands: &[MapArg<'_>], target: &Tensor) {
        let storage = target.storage();
        let is_part = || {
            let pending = storage.pending().filter(|pending| usize::from(pending.queue) == at);
            pending.is_some_and(|pending| self.open_node(pending).is_some())
                && target.layout().bytes(target.dtype()) != storage.bytes()
        };
        let is_computed = |arg: &MapArg<'_>| matches!(arg, MapArg::Tensor(x) if self.computes_aside(at, x));
        let may_wait = |open: &FusedGroup| {
            !open.uses_position()
                && !open.is_bent()
                && open.device != DeviceId::Cpu
                && open.releases_nothing()
        };
        if self.chain.len() != 1
            || !self.aside().is_some_and(|aside| same(&aside.shape, target.shape()))
            || !operands.iter().any(is_computed)
            || !is_part()
            || !self.is_aside_independent()
            || !self.group.as_deref().is_some_and(may_wait)
        {
            return;
        }
        let (Some(mut aside), Some(open)) = (self.chain.pop(), self.group.take()) else { return };
        aside.is_aside = false;
        self.group = Some(open);
        self.close();
        self.group = Some(Box::new(aside));
        self.renumber(at);
    }

    /// True when the newest group aside and the open group may run in either order.
    fn is_aside_independent(&self) -> bool {
        let (Some(aside), Some(open)) = (self.aside(), &self.group) else { return false };
        open.reduce.is_none() && aside.is_independent(open)
    }

    /// Removes groups aside while nothing refers to the results of the newest.
    pub(super) fn forget_aside(&mut self, at: usize) {
        let before = self.chain.len();
        while let Some(aside) = self.aside() {
            let wanted = |storage: &StorageRef| is_wanted(std::iter::once(aside), storage);
            if aside.nodes.iter().any(|node| node.storage.as_ref().is_some_and(wanted)) {
                break;
            }
            aside.release();
            if let Some(group) = self.chain.pop() {
                self.reuse(group);
            }
        }
        if self.chain.len() < before {
            self.renumber(at);
        }
    }

    /// True when a tensor will be in memory once the groups aside have run, or, if the work joins the newest of
    /// them, is a value of that group.
    fn is_ready_aside(&self, tensor: &Tensor, joins: bool) -> bool {
        let Some(pending) = tensor.storage().pending() else { return true };
        if pending.node == GATHERED {
            // A kept value is computed again from operands in memory.
            return self.gathers.iter().any(|one| one.program().is_some() && one.out.is(tensor.storage()));
        }
        let (part, node) = part_and_node(pending.node);
        match self.aside() {
            Some(aside) if joins && part + 1 == self.chain.len() => {
                aside.nodes.get(node).is_some_and(|node| node.is_value_of(tensor))
            }
            _ => part < self.chain.len(),
        }
    }
}

impl Runtime {
    /// Lets a reduction of a value of the newest group aside join that group: the open group runs before it instead of
    /// after it, if neither reads or writes what the other writes. The reduction would flush both, anyway.
    pub(super) fn resume_aside(&mut self, at: usize, x: &Tensor) -> Result<()> {
        let queue = &mut self.queues[at];
        if !queue.computes_aside(at, x) || !queue.is_aside_independent() {
            return Ok(());
        }
        let Some(mut aside) = queue.chain.pop() else { return Ok(()) };
        aside.is_aside = false;
        let open = queue.group.replace(Box::new(aside));
        queue.chain.extend(open.map(|open| *open));
        queue.renumber(at);
        // The group aside stays in its queue, because it may read what the others compute.
        self.flush_closed(at)
    }

    /// Makes a group aside over the target's shape, unless the newest has it.
    pub(super) fn set_aside(&mut self, at: usize, operands: usize, target: &Tensor) {
        let queue = &mut self.queues[at];
        if !queue.joins_aside(operands, target) {
            let mut group = queue.fresh(target.device(), target.shape().clone());
            group.is_aside = true;
            if queue.chain.is_empty() {
                queue.waiting = Waiting::default();
            }
            queue.chain.push(group);
            queue.renumber(at);
        }
    }
}

impl FusedGroup {
    /// True when the group and another may run in either order: neither reads or writes what the other writes.
    pub(super) fn is_independent(&self, other: &FusedGroup) -> bool {
        fn written(group: &FusedGroup) -> impl Iterator<Item = &StorageRef> {
            group.nodes.iter().filter_map(|node| node.storage.as_ref())
        }
        let touches = |group: &FusedGroup, storage: &StorageRef| {
            group.loads.iter().map(|load| &load.storage).chain(written(group)).any(|own| own.is(storage))
        };
        !written(self).any(|storage| touches(other, storage))
            && !written(other).any(|storage| touches(self, storage))
    }

    /// The largest part of a result that `later` groups overwrite before anything reads it.
    pub(super) fn overwritten(&self, later: &[FusedGroup]) -> Option<Hole> {
        if self.reduce.is_some() || self.uses_position() || self.bytes() < LEAST_SAVED as u64 {
            return None;
        }
        let holes = self.nodes.iter().enumerate().filter_map(|(number, node)| {
            let storage = node.storage.as_ref()?;
            let whole = node.layout(storage);
            let is_foreign = matches!(storage.memory(), Some(Memory::Foreign(_)));
            if is_foreign || !whole.is_contiguous() || whole.shape != self.shape {
                return None;
            }
            for group in later {
                if group.loads.iter().any(|load| load.storage.is(storage)) {
                    return None;
                }
                let writes = group.nodes.iter().filter_map(|node| {
                    let own = node.storage.as_ref().filter(|own| own.is(storage))?;
                    range_of(node.layout(own), whole)
                });
                let largest =
                    writes.max_by_key(|range| range.iter().map(|(_, extent)| extent).product::<usize>());
                if let Some(range) = largest {
                    return Some(Hole { node: number, range });
                }
            }
            None
        });
        holes.max_by_key(Hole::count)
    }
}

impl Hole {
    /// Number of elements.
    fn count(&self) -> usize {
        self.range.iter().map(|(_, extent)| extent).product()
    }

    /// The launches that compute everything outside the hole; `None` if that saves too little.
    pub(super) fn around(&self, launch: &Launch) -> Option<Vec<Launch>> {
        let bytes: usize = launch.views.iter().map(|view| view.dtype.size()).sum();
        let is_whole = launch.views.iter().any(|view| !view.is_straight() || view.indexed.is_some());
        if is_whole || self.count().saturating_mul(bytes) < LEAST_SAVED {
            return None;
        }
        let mut pieces = Vec::new();
        let (mut at, mut shape) = (Dims::from_elem(0, launch.shape.len()), launch.shape.clone());
        for (dim, &(first, extent)) in self.range.iter().enumerate() {
            let end = first + extent;
            let after = launch.shape[dim] - end;
            for (from, size) in [(0, first), (end, after)] {
                if size == 0 || from > 0 && first == after {
                    continue;
                }
                (at[dim], shape[dim]) = (from, size);
                let (mut piece, _) = launch.part(&at, shape.clone());
                if first == after {
                    // Two sides of the same size are one launch.
                    piece.shape.insert(0, 2);
                    for view in &mut piece.views {
                        view.strides.insert(0, view.strides[dim] * end as isize);
                    }
                }
                pieces.push(piece);
            }
            (at[dim], shape[dim]) = (first, extent);
        }
        Some(pieces)
    }
}

/// True when a group over `whole` may compute again what has this shape.
pub(super) fn is_less(shape: &[usize], whole: &[usize]) -> bool {
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    count(shape) <= count(whole) / LEAST_RATIO
}

/// The coordinates of a view's elements in a contiguous layout, if they are a range in each dimension: the first, and their
/// number.
pub(super) fn range_of(part: &Layout, whole: &Layout) -> Option<SmallVec<[(usize, usize); 6]>> {
    let all = spaced_in(part, whole)?;
    all.iter().map(|&(first, last, step)| (step <= 1).then_some((first, last - first + 1))).collect()
}

/// The coordinates of a view's elements in a contiguous layout, if they are evenly spaced in each dimension: the first, the
/// last, and the step.
fn spaced_in(part: &Layout, whole: &Layout) -> Option<SmallVec<[(usize, usize, usize); 6]>> {
    let mut steps: SmallVec<[(usize, usize); 6]> = SmallVec::from_elem((1, 0), whole.shape.len());
    for (&stride, &extent) in part.strides.iter().zip(&part.shape).filter(|&(_, &extent)| extent != 1) {
        let step = |dim: usize| usize::try_from(stride / whole.strides[dim].max(1)).unwrap_or(0);
        let fits = |dim: &usize| {
            let (own, count) = (whole.strides[*dim], whole.shape[*dim]);
            count != 1
                && steps[*dim].0 == 1
                && stride > 0
                && own > 0
                && stride % own == 0
                && (extent - 1).checked_mul(step(*dim)).is_some_and(|last| last < count)
        };
        let dim = (0..whole.shape.len()).find(fits)?;
        steps[dim] = (extent, step(dim));
    }
    let mut rest = part.offset.checked_sub(whole.offset)?;
    let mut all = SmallVec::new();
    for (dim, &(extent, step)) in steps.iter().enumerate() {
        let stride = whole.strides[dim].unsigned_abs().max(1);
        let first = if whole.shape[dim] == 1 { 0 } else { rest / stride };
        rest -= first * stride;
        let last = first + (extent - 1) * step;
        if last >= whole.shape[dim] {
            return None;
        }
        all.push((first, last, step));
    }
    (rest == 0 && part.count() > 0).then_some(all)
}

/// True when two layouts of a contiguous memory are known to share no element.
pub(crate) fn are_apart(a: &Layout, b: &Layout, whole: &Layout) -> bool {
    if !whole.is_contiguous() {
        return false;
    }
    let (Some(a), Some(b)) = (spaced_in(a, whole), spaced_in(b, whole)) else { return false };
    a.iter().zip(&b).any(|(a, b)| {
        let mut common = (a.2, b.2);
        while common.1 != 0 {
            common = (common.1, common.0 % common.1);
        }
        a.1 < b.0 || b.1 < a.0 || common.0 > 1 && a.0.abs_diff(b.0) % common.0 != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_slices_are_found() {
        let whole = Layout::contiguous(&[4, 5, 6]);
        let part = |shape: &[usize], strides: &[isize], offset| Layout {
            shape: Dims::from(shape),
            strides: strides.into(),
            offset,
        };
        let range = |layout| range_of(&layout, &whole).map(|range| range.to_vec());
        assert_eq!(range(part(&[2, 3, 4], &[30, 6, 1], 30 + 6 + 1)), Some(vec![(1, 2), (1, 3), (1, 4)]));
        assert_eq!(range(part(&[5, 6], &[6, 1], 60)), Some(vec![(2, 1), (0, 5), (0, 6)]));
        assert_eq!(range(part(&[4], &[30], 13)), Some(vec![(0, 4), (2, 1), (1, 1)]));
        assert_eq!(range(part(&[6, 5], &[1, 6], 0)), Some(vec![(0, 1), (0, 5), (0, 6)]));
        // Every other column, a diagonal, and rows that continue into the next are not ranges.
        assert_eq!(range(part(&[4, 5, 3], &[30, 6, 2], 0)), None);
        assert_eq!(range(part(&[4], &[37], 0)), None);
        assert_eq!(range(part(&[8], &[1], 0)), None);
    }

    #[test]
    fn columns_are_apart_although_their_rows_alternate() {
        let whole = Layout::contiguous(&[4, 6]);
        let columns = |first: usize, count: usize| Layout {
            shape: Dims::from_slice(&[4, count]),
            strides: [6, 1].as_slice().into(),
            offset: first,
        };
        assert!(are_apart(&columns(0, 3), &columns(3, 3), &whole));
        assert!(!are_apart(&columns(0, 4), &columns(3, 3), &whole));
        // Every second row, or column, and the others.
        let every = |offset: usize, rows: isize, columns: isize| Layout {
            shape: Dims::from_slice(&[2, 3]),
            strides: [6 * rows, columns].as_slice().into(),
            offset,
        };
        assert!(are_apart(&every(0, 2, 1), &every(6, 2, 1), &whole));
        assert!(are_apart(&every(0, 2, 2), &every(1, 1, 2), &whole));
        assert!(!are_apart(&every(0, 2, 2), &every(0, 1, 1), &whole));
        assert!(!are_apart(&every(0, 1, 2), &every(2, 1, 1), &whole));
        assert!(!are_apart(&columns(0, 3), &whole, &whole));
        // A view that is not a range may overlap anything.
        let diagonal = Layout { shape: Dims::from_slice(&[3]), strides: [7].as_slice().into(), offset: 0 };
        assert!(!are_apart(&columns(5, 1), &diagonal, &whole));
    }
}
