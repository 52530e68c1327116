//! Groups that overwrite parts of what a group before them computes, in one launch with it.
//!
//! Note [Filled holes]. After `let v = u.clone()`, `v[1..-1, 1..-1] = next` overwrites elements that nothing has read. If
//! both groups are elementwise and compute nothing else that is needed, one group computes all elements: those of the
//! later group where there are some, else those of the earlier one. The later group's loads are padded ([`Padding`]):
//! elements beside them are not used, and [`Source::Inside`] says where the others are. So each element is computed from
//! the same operands as before, by the same instructions, and stored once. Further groups may overwrite other parts, or
//! update them (`v[1..] -= w`); groups that are independent may lie between. Where that is impossible, and while the kernel
//! is not compiled, the earlier group may leave out the elements (Note [Aside]). Only the kernel of all parts is requested.

use super::Runtime;
use super::aside::{LEAST_SAVED, range_of};
use super::assemble::Live;
use super::flush::is_wanted;
use super::gather::is_prepared;
use super::operands::{push_number, push_source};
use super::queue::{FusedGroup, Load, Node, RAW_INSTR};
use super::turn::{Bend, fits};
use super::{MAX_INSTRS, MAX_VIEWS};
use crate::array::{Dtype, Layout};
use crate::device::Device;
use crate::kernel::{Beside, Instr, Padding, Ptr, SELECT, Source};
use crate::stream::Stream;
use crate::tensor::StorageRef;
use smallvec::SmallVec;
use std::sync::Arc;

/// Maximum number of other groups between two that become one.
const MOST_BETWEEN: usize = 2;

/// The smallest part that a group overwrites: the whole divided by this. The kernel of both tests each element.
const LEAST_PART: usize = 8;

/// The dimension of a view for each of the whole's, of which the view has a range; none where it has one element.
fn dims_of(view: &Layout, whole: &Layout, range: &[(usize, usize)]) -> Option<SmallVec<[Option<usize>; 6]>> {
    let mut own = 0;
    let mut dims = SmallVec::new();
    for (d, &(_, extent)) in range.iter().enumerate() {
        let is_it = view
            .shape
            .get(own)
            .is_some_and(|&n| n == extent && (n == 1 || view.strides[own] == whole.strides[d]));
        dims.push(is_it.then_some(own));
        if !is_it && extent != 1 {
            return None;
        }
        own += usize::from(is_it);
    }
    (own == view.shape.len()).then_some(dims)
}

/// A load of a view's group over the whole's dimensions.
fn lifted(load: &Load, dims: &[Option<usize>]) -> Load {
    let strides = dims.iter().map(|dim| dim.map_or(0, |dim| load.strides[dim])).collect();
    Load { strides, ..load.clone() }
}

impl Runtime {
    /// Merges groups of a batch, in order, as far as the kernels of the merged groups are compiled.
    pub(super) fn fill_holes(
        &mut self,
        groups: &mut Vec<FusedGroup>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) {
        let mut part = 0;
        while part + 1 < groups.len() {
            let (mut whole, mut merged) = (None, SmallVec::<[usize; 4]>::from_elem(part, 1));
            for (number, later) in groups.iter().enumerate().skip(part + 1) {
                let before = whole.as_ref().unwrap_or(&groups[part]);
                if let Some(more) = before.filled_by(later) {
                    (whole, merged) = (Some(more), merged.into_iter().chain([number]).collect());
                } else if number - merged[merged.len() - 1] > MOST_BETWEEN || !before.is_independent(later) {
                    break;
                }
            }
            match whole.filter(|whole| self.is_compiled(whole, device, stream)) {
                Some(whole) => {
                    // It takes the place of the last.
                    groups[merged.pop().unwrap_or(part)] = whole;
                    merged.iter().rev().for_each(|&number| drop(groups.remove(number)));
                }
                None => part += 1,
            }
        }
    }

    /// True if the kernel of a group is compiled, or the group is captured.
    fn is_compiled(&mut self, group: &FusedGroup, device: &Device, stream: &Stream) -> bool {
        if self.capture_of(stream).is_some() {
            return true;
        }
        let nodes: SmallVec<[&Node; 2]> = group.nodes.iter().collect();
        let live = Live { group, nodes: &nodes, reduce: None };
        let assembled = self.programs.assembled(live);
        // Memory that is not taken yet will be aligned.
        let place = |storage: &StorageRef, layout: &Layout, dtype: Dtype| {
            storage.memory().map_or(0, |memory| memory.ptr()) + (layout.offset * dtype.size()) as u64
        };
        let read = assembled.loads().map(|load| &group.loads[load]);
        let mut places: SmallVec<[Ptr; 8]> =
            read.map(|load| place(&load.storage, &load.layout, load.dtype)).collect();
        let written = nodes.iter().filter_map(|node| Some((node, node.storage.as_ref()?)));
        places.extend(written.map(|(node, storage)| place(storage, node.layout(storage), node.dtype)));
        is_prepared(device, &assembled.launch(live, &places).0)
    }
}

/// The new numbers of a group's registers in another group.
pub(super) struct Moved {
    sources: SmallVec<[u16; 32]>,
    /// The first instruction.
    first: u16,
}

impl Moved {
    pub(super) fn of(&self, reg: u16) -> u16 {
        match reg.checked_sub(RAW_INSTR) {
            Some(number) => RAW_INSTR + self.first + number,
            None => self.sources[usize::from(reg)],
        }
    }
}

impl FusedGroup {
    /// The only result that is needed of one of these groups.
    fn only_result(&self, groups: [&FusedGroup; 2]) -> Option<(&Node, &StorageRef)> {
        let wanted = |node: &&Node| {
            node.storage.as_ref().is_some_and(|storage| is_wanted(groups.into_iter(), storage))
        };
        let mut nodes = self.nodes.iter().filter(wanted);
        let node = nodes.next().filter(|_| nodes.next().is_none())?;
        Some((node, node.storage.as_ref()?))
    }

    /// True when the elements of a group over more elements can be computed by the same instructions.
    fn is_simple(&self) -> bool {
        let is_plain = |load: &Load| load.gathered().is_none() && !load.dtype.is_complex();
        self.reduce.is_none()
            && !self.uses_position()
            && !self.is_turned()
            && !self.gathers()
            && self.loads.iter().all(is_plain)
    }

    /// This group and `later` as one; see Note [Filled holes].
    fn filled_by(&self, later: &FusedGroup) -> Option<FusedGroup> {
        if self.device != later.device || !self.is_simple() || !later.is_simple() || later.is_bent() {
            return None;
        }
        let ((old, storage), (new, other)) =
            (self.only_result([self, later])?, later.only_result([self, later])?);
        let (whole, part) = (old.layout(storage), new.layout(other));
        if !storage.is(other) || old.dtype != new.dtype || whole.shape != self.shape || !whole.is_contiguous()
        {
            return None;
        }
        // A value in memory keeps bits that a register of its class may not have.
        let keeps_bits = |node: &Node| node.reg < RAW_INSTR && node.dtype.is_half();
        if keeps_bits(old) || keeps_bits(new) || old.dtype.is_complex() {
            return None;
        }
        let hole = range_of(part, whole)?;
        let dims = dims_of(part, whole, &hole)?;
        let count = later.shape.iter().product::<usize>();
        let all = self.shape.iter().product::<usize>();
        let is_large = count < all && count.saturating_mul(LEAST_PART) >= all;
        let reads_it = |load: &Load| load.storage.is(storage);
        let is_same = |load: &Load| load.layout == *part && load.dtype == new.dtype;
        let results = || self.nodes.iter().filter_map(|node| node.storage.as_ref());
        let reads_others = later
            .loads
            .iter()
            .any(|load| !reads_it(load) && results().any(|result| result.is(&load.storage)));
        if part.shape != later.shape
            || !is_large
            || reads_others
            || later.loads.iter().any(|load| reads_it(load) && !is_same(load))
        {
            return None;
        }
        // In a large group, the earlier values inside should cost nothing: they read what the later ones read anyway.
        let is_read =
            |load: &&Load| later.loads.iter().any(|other| other.storage.is(&load.storage) || reads_it(other));
        let more: usize = self.loads.iter().filter(|load| !is_read(load)).map(|load| load.dtype.size()).sum();
        let is_heavy = self.map.instrs.iter().any(Instr::is_heavy) && !later.loads.iter().any(reads_it);
        if count.saturating_mul(more + usize::from(is_heavy)) >= LEAST_SAVED {
            return None;
        }
        let inside = hole.iter().map(|&(first, extent)| [first, first + extent]).collect();
        let bend = Bend::Padded(Box::new(Padding { inside, beside: Beside::Number(0) }));
        let mut into = FusedGroup::new(self.device, self.shape.clone());
        let old_regs = into.take_over(self, |into, load| into.push_copy(load.clone()))?;
        let old_reg = old_regs.of(old.reg);
        // A load of the earlier group may have the elements of the later one.
        let known: SmallVec<[(Load, isize); 8]> =
            (into.loads.iter().filter(|load| load.bend.is_none()).cloned())
                .map(|load| {
                    let ahead =
                        hole.iter().zip(&load.strides).map(|(&(first, _), &stride)| first as isize * stride);
                    let first = load.layout.offset as isize + ahead.sum::<isize>();
                    (load, first)
                })
                .collect();
        let last = later.loads.iter().rposition(|load| !reads_it(load));
        let mut view = None;
        let new_regs = into.take_over(later, |into, load| {
            if reads_it(load) {
                return old_reg;
            }
            let load = &lifted(load, &dims);
            let same = known.iter().find(|(other, first)| {
                let is_same = |d: usize| hole[d].1 == 1 || other.strides[d] == load.strides[d];
                other.storage.is(&load.storage)
                    && other.dtype == load.dtype
                    && *first == load.layout.offset as isize
                    && (0..hole.len()).all(is_same)
            });
            let is_last = last.is_some_and(|last| later.loads[last].reg == load.reg);
            if let Some((same, _)) = same.filter(|_| view.is_some() || !is_last) {
                return same.reg;
            }
            view.get_or_insert(into.loads.len() as u16);
            into.push_copy(Load { bend: Some(bend.clone()), ..load.clone() })
        })?;
        let inside = push_source(&mut into, Source::Inside { view: view? });
        let args = [inside, new_regs.of(new.reg), old_reg].into_iter().collect();
        let reg = into.push(&SELECT, args, old.dtype.class(), old.dtype);
        into.nodes.push(new.over(old, reg));
        let bends: SmallVec<[&Bend; 16]> = into.loads.iter().filter_map(|load| load.bend.as_ref()).collect();
        let has_room = into.map.instrs.len() <= MAX_INSTRS && into.loads.len() < MAX_VIEWS;
        let fits = has_room && fits(&bends, &self.shape);
        drop(bends);
        fits.then_some(into)
    }

    /// The register of a new load.
    fn push_copy(&mut self, load: Load) -> u16 {
        let reg = push_source(self, Source::Load { view: self.loads.len() as u16, dtype: load.dtype });
        self.loads.push(Load { reg, ..load });
        reg
    }

    /// Adds the sources and instructions of another group; `load` adds a load and returns its register. Returns the new
    /// numbers of the registers.
    pub(super) fn take_over(
        &mut self,
        from: &FusedGroup,
        mut load: impl FnMut(&mut FusedGroup, &Load) -> u16,
    ) -> Option<Moved> {
        let mut sources: SmallVec<[u16; 32]> = SmallVec::new();
        for source in &from.map.sources {
            sources.push(match *source {
                Source::Load { view, .. } => load(self, &from.loads[usize::from(view)]),
                Source::Number { slot, dtype } => push_number(self, from.numbers[usize::from(slot)], dtype),
                Source::Inside { view } => {
                    let is_it =
                        |source: &Source| matches!(*source, Source::Load { view: own, .. } if own == view);
                    let loaded = from.map.sources.iter().position(is_it)?;
                    let view = self.view_of(*sources.get(loaded)?)?;
                    push_source(self, Source::Inside { view })
                }
                Source::Position | Source::Gathered { .. } => return None,
            });
        }
        let moved = Moved { sources, first: self.map.instrs.len() as u16 };
        for &Instr { f, ref args, class, dtype } in &from.map.instrs {
            self.push(f, args.iter().map(|&arg| moved.of(arg)).collect(), class, dtype);
        }
        Some(moved)
    }
}
