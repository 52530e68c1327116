//! Operands that are read around the ends of their dimensions, or backwards: `roll` and `flip` without a copy.
//!
//! Note [Turned loads]. The result of [`Runtime::turned`] is a node like any other: a copy of a load. A
//! consumer of the same shape reads the load, and if nothing else refers to the result, it is never stored.
//! Turning a turned load that is still pending turns the original. Since a turned load reads elements at
//! other positions than those that it provides, its storage must not be written by the same group (Note
//! [Hazards]). Only elementwise launches have such loads: a reduction or a function of the position flushes
//! the group first.

use super::Runtime;
use super::assemble::Words;
use super::queue::{FusedGroup, Load};
use crate::array::{Layout, copied};
use crate::base::Result;
use crate::kernel::{Beside, Padding, Ptr, View};
use crate::tensor::{StorageRef, Tensor};
use smallvec::SmallVec;

/// The largest number of boxes without bent views that a launch is split into; see `kinds/map/boxes.rs`.
const MOST_BOXES: usize = 64;
/// The largest number of words that a group's bent loads take in the kernel's parameter.
const MOST_WORDS: usize = 208;

/// The order in which a dimension of an operand is read: coordinate `c` is element `first + c`, or `first -
/// c`, modulo the extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    first: usize,
    back: bool,
}

impl Turn {
    /// Every element moves `shift` places towards the end.
    pub fn roll(shift: i64, extent: usize) -> Turn {
        let first =
            if extent == 0 { 0 } else { (i128::from(shift)).wrapping_neg().rem_euclid(extent as i128) };
        Turn { first: first as usize, back: false }
    }

    /// Backwards.
    pub fn flip(extent: usize) -> Turn {
        Turn { first: extent.saturating_sub(1), back: extent > 1 }
    }

    /// The turn equal to `inner` followed by this one.
    pub fn after(self, inner: Turn, extent: usize) -> Turn {
        let moved = if inner.back { extent - self.first } else { self.first };
        Turn { first: (inner.first + moved) % extent.max(1), back: self.back != inner.back }
    }

    /// A word that identifies the turn.
    pub(super) fn word(self) -> u64 {
        (self.first as u64) << 1 | u64::from(self.back)
    }

    /// The first coordinate whose element comes from the other end; the extent if there is none.
    fn wrap(self, extent: usize) -> usize {
        if self.back { self.first + 1 } else { extent - self.first }
    }
}

/// How a load reads elements that are not all one stride apart, over the shape of its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Bend {
    /// Each dimension in this order.
    Turned(Box<[Turn]>),
    /// Numbers or copies beside the elements; see `pad`.
    Padded(Box<Padding>),
}

impl Bend {
    /// Adds words that identify it.
    pub fn describe(&self, words: &mut Words) {
        match self {
            Bend::Turned(turns) => words.list(turns.iter().map(|turn| turn.word())),
            Bend::Padded(padding) => {
                words.list(padding.inside.iter().flatten().map(|&at| at as u64));
                let (mode, number) = match padding.beside {
                    Beside::Number(bits) => (0, bits),
                    Beside::Nearest => (1, 0),
                    Beside::Mirrored => (2, 0),
                    Beside::Wrapped => (3, 0),
                };
                words.list([mode, number].into_iter());
            }
        }
    }

    /// The words of a view that bends so, over this many dimensions; see `kernel::cuda::index`.
    fn words(&self, rank: usize) -> usize {
        match self {
            Bend::Padded(padding) if !matches!(padding.beside, Beside::Number(_)) => 5 * rank + 1,
            _ => 3 * rank + 1,
        }
    }

    /// The coordinates of a dimension at which it bends; those without effect may be among them.
    fn cuts(&self, d: usize, extent: usize) -> [usize; 2] {
        match self {
            Bend::Turned(turns) => [turns[d].wrap(extent), extent],
            Bend::Padded(padding) => padding.inside[d],
        }
    }
}

impl Load {
    /// The view of a load at this address, over the shape of its group.
    pub(super) fn view(&self, ptr: Ptr, shape: &[usize]) -> View {
        let mut view = View::new(ptr, self.dtype, copied(&self.strides));
        let turns = match &self.bend {
            None => return view,
            Some(Bend::Padded(padding)) => {
                view.padding = Some(padding.clone());
                return view;
            }
            Some(Bend::Turned(turns)) => turns,
        };
        let mut wraps = shape.to_vec();
        let mut offset = 0;
        for (d, turn) in turns.iter().enumerate().filter(|&(d, _)| self.strides[d] != 0) {
            offset += turn.first as isize * self.strides[d];
            wraps[d] = turn.wrap(wraps[d]);
            if turn.back {
                view.strides[d] = -self.strides[d];
            }
        }
        view.ptr = ptr.wrapping_add_signed((offset * self.dtype.size() as isize) as i64);
        view.wraps = (wraps != shape).then(|| wraps.into());
        view
    }
}

impl FusedGroup {
    /// True when the group reads a turned load.
    pub(super) fn is_turned(&self) -> bool {
        self.loads.iter().any(|load| matches!(load.bend, Some(Bend::Turned(_))))
    }

    /// True when the group reads a turned or padded load.
    pub(super) fn is_bent(&self) -> bool {
        self.loads.iter().any(|load| load.bend.is_some())
    }

    /// True when the group may also have a load that bends so.
    pub(super) fn takes(&self, bend: &Bend) -> bool {
        let known = self.loads.iter().filter_map(|load| load.bend.as_ref());
        let all: SmallVec<[&Bend; 16]> = known.chain(std::iter::once(bend)).collect();
        fits(&all, &self.shape)
    }
}

/// True when a launch over a shape may have these bent loads.
pub(super) fn fits(all: &[&Bend], shape: &[usize]) -> bool {
    let parts = |(d, &extent): (usize, &usize)| {
        let mut ends: SmallVec<[usize; 32]> = all.iter().flat_map(|bend| bend.cuts(d, extent)).collect();
        ends.push(extent);
        ends.retain(|end| *end > 0);
        ends.sort_unstable();
        ends.dedup();
        ends.len()
    };
    let boxes = shape.iter().enumerate().map(parts).fold(1, usize::saturating_mul);
    let words: usize = all.iter().map(|bend| bend.words(shape.len())).sum();
    boxes <= MOST_BOXES && words <= MOST_WORDS
}

/// A tensor in memory and how it is turned.
struct Turned {
    storage: StorageRef,
    layout: Layout,
    turns: SmallVec<[Turn; 6]>,
}

impl Runtime {
    /// Submits a copy of `x` with each dimension turned.
    pub fn turned(&mut self, name: &'static str, x: &Tensor, turns: &[Turn]) -> Result<Tensor> {
        let place = self.place(x.device())?;
        let (at, owner) = (place.queue, place.device.clone());
        let layout = Layout::contiguous(x.shape());
        let target = self.note_result(name, at, std::iter::once(x), owner, (layout, x.dtype()))?;
        if target.count() == 0 {
            self.bind_empty(&target, at)?;
            return Ok(target);
        }
        self.begin_round(at)?;
        let from = match self.pending_load(at, x) {
            Some(load) => {
                let inner = match &load.bend {
                    Some(Bend::Turned(turns)) => Some(turns),
                    _ => None,
                };
                let turn = |(d, turn): (usize, &Turn)| {
                    turn.after(inner.map_or(Turn::default(), |inner| inner[d]), x.shape()[d])
                };
                let turns = turns.iter().enumerate().map(turn).collect();
                Turned { storage: load.storage.clone(), layout: load.layout.clone(), turns }
            }
            None => {
                // A turned load reads other elements, so the operand must be in memory.
                self.settle_value(x, at)?;
                Turned { storage: x.storage_ref(), layout: x.layout().clone(), turns: turns.into() }
            }
        };
        let queue = &self.queues[at];
        let Turned { storage, layout, turns } = from;
        let is_turned = turns.iter().any(|turn| *turn != Turn::default());
        let bend = is_turned.then(|| Bend::Turned(turns.to_vec().into_boxed_slice()));
        let fits = |group: &FusedGroup| {
            group.shape == *target.shape()
                && !group.uses_position()
                && !group.gathers()
                && bend.as_ref().is_none_or(|bend| group.takes(bend))
        };
        if !queue.rows().is_empty() || !queue.has_room(2) || !queue.group.as_deref().is_none_or(fits) {
            self.begin_group(at)?;
        }
        let group = self.queues[at].open(x.device(), target.shape());
        let reg = group.load(&storage, &layout, x.dtype(), bend);
        let part = self.queues[at].chain.len();
        self.add_node(at, part, reg, &target, name)?;
        Ok(target)
    }

    /// The load that a pending tensor of the open group copies.
    fn pending_load(&self, at: usize, x: &Tensor) -> Option<&Load> {
        let pending = x.storage().pending().filter(|pending| usize::from(pending.queue) == at)?;
        let queue = &self.queues[at];
        let group = queue.group.as_deref()?;
        let node = group.nodes.get(queue.open_node(pending)?)?;
        let is_copy = node.dtype == x.dtype() && node.layout(node.storage.as_ref()?) == x.layout();
        let load = group.loads.iter().find(|load| is_copy && load.reg == node.reg)?;
        // Memory does not yet hold the values that this group writes.
        let is_padded = matches!(load.bend, Some(Bend::Padded(_)));
        (load.layout.shape == group.shape && load.storage.pending().is_none() && !is_padded).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_compose_like_their_index_maps() {
        let order = |turn: Turn, n: usize| -> Vec<usize> {
            let at = |c: usize| if turn.back { turn.first + n - c } else { turn.first + c };
            (0..n).map(|c| at(c) % n).collect()
        };
        assert_eq!(order(Turn::roll(1, 4), 4), [3, 0, 1, 2]);
        assert_eq!(order(Turn::roll(-5, 4), 4), [1, 2, 3, 0]);
        assert_eq!(order(Turn::flip(4), 4), [3, 2, 1, 0]);
        assert_eq!(Turn::roll(i64::MIN, 3), Turn::roll(i64::MIN + 3, 3));
        for n in 1..6 {
            let all: Vec<Turn> = (0..n as i64)
                .flat_map(|k| [Turn::roll(k, n), Turn::flip(n).after(Turn::roll(k, n), n)])
                .collect();
            for &outer in &all {
                for &inner in &all {
                    let (outside, inside) = (order(outer, n), order(inner, n));
                    let expected: Vec<usize> = outside.iter().map(|&c| inside[c]).collect();
                    assert_eq!(order(outer.after(inner, n), n), expected, "{outer:?} {inner:?}");
                }
                let wrap = outer.wrap(n);
                let at = |c: usize| {
                    let c = c as isize - if c >= wrap { n as isize } else { 0 };
                    outer.first as isize + if outer.back { -c } else { c }
                };
                let walked: Vec<usize> = (0..n).map(|c| at(c) as usize).collect();
                assert_eq!(walked, order(outer, n));
            }
        }
    }
}
