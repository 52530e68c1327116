//! Groups that overwrite most of what the group before them computes, in one launch with it.
//!
//! Note [Filled holes]. After `let v = u.clone()`, `v[1..-1, 1..-1] = next` overwrites elements that nothing has read. If
//! both groups are elementwise and compute nothing else that is needed, one group computes all elements: those of the
//! later group where there are some, else those of the earlier one. The later group's loads are padded ([`Padding`]):
//! elements beside them are not used, and [`Source::Inside`] says where the others are. So each element is computed from
//! the same operands as before, by the same instructions, and stored once. Where that is impossible, and while the kernel is
//! not compiled, the earlier group may leave out the elements (Note [Aside]).

use super::Runtime;
use super::aside::{LEAST_SAVED, range_of};
use super::assemble::Live;
use super::flush::is_wanted;
use super::gather::is_prepared;
use super::operands::{push_load, push_number, push_source};
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

impl Runtime {
    /// Merges groups of a batch, in order, as far as the kernels of the merged groups are compiled.
    pub(super) fn fill_holes(
        &mut self,
        groups: &mut Vec<FusedGroup>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) {
        let mut part = 0;
        while let [before, later, ..] = &groups[part..] {
            match before.filled_by(later).filter(|whole| self.is_compiled(whole, device, stream)) {
                Some(whole) => drop(groups.splice(part..part + 2, [whole])),
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
            && !self.is_bent()
            && !self.gathers()
            && self.loads.iter().all(is_plain)
    }

    /// This group and `later` as one; see Note [Filled holes].
    fn filled_by(&self, later: &FusedGroup) -> Option<FusedGroup> {
        let rank = self.shape.len();
        if later.shape.len() != rank || self.device != later.device || !self.is_simple() || !later.is_simple()
        {
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
        let is_along = |d: usize| {
            hole[d].1 == later.shape[d] && (later.shape[d] == 1 || part.strides[d] == whole.strides[d])
        };
        let count = later.shape.iter().product::<usize>();
        let all = self.shape.iter().product::<usize>();
        let is_large = count < all && count.saturating_mul(2) >= all;
        let results = || self.nodes.iter().filter_map(|node| node.storage.as_ref());
        let reads_it = later.loads.iter().any(|load| results().any(|result| result.is(&load.storage)));
        if part.shape != later.shape || !(0..rank).all(is_along) || !is_large || reads_it {
            return None;
        }
        // In a large group, the earlier values inside should cost nothing: they read what the later ones read anyway.
        let is_read = |load: &&Load| later.loads.iter().any(|other| other.storage.is(&load.storage));
        let more: usize = self.loads.iter().filter(|load| !is_read(load)).map(|load| load.dtype.size()).sum();
        let is_heavy = self.map.instrs.iter().any(Instr::is_heavy);
        if count.saturating_mul(more + usize::from(is_heavy)) >= LEAST_SAVED {
            return None;
        }
        let inside = hole.iter().map(|&(first, extent)| [first, first + extent]).collect();
        let bend = Bend::Padded(Box::new(Padding { inside, beside: Beside::Number(0) }));
        let mut into = FusedGroup::new(self.device, self.shape.clone());
        let old_regs = into.take_over(self, |into, load| {
            push_load(into, load.storage.clone(), &load.layout, load.dtype, None)
        })?;
        // A load of the earlier group may have the elements of the later one.
        let known: SmallVec<[(Load, isize); 8]> = (into.loads.iter().cloned())
            .map(|load| {
                let ahead =
                    hole.iter().zip(&load.strides).map(|(&(first, _), &stride)| first as isize * stride);
                let first = load.layout.offset as isize + ahead.sum::<isize>();
                (load, first)
            })
            .collect();
        let mut view = None;
        let new_regs = into.take_over(later, |into, load| {
            let same = known.iter().find(|(other, first)| {
                let is_same = |d: usize| later.shape[d] == 1 || other.strides[d] == load.strides[d];
                other.storage.is(&load.storage)
                    && other.dtype == load.dtype
                    && *first == load.layout.offset as isize
                    && (0..rank).all(is_same)
            });
            let is_last = later.loads.last().is_some_and(|last| std::ptr::eq(last, load));
            if let Some((same, _)) = same.filter(|_| view.is_some() || !is_last) {
                return same.reg;
            }
            let number = into.loads.len() as u16;
            view.get_or_insert(number);
            let reg = push_source(into, Source::Load { view: number, dtype: load.dtype });
            into.loads.push(Load { bend: Some(bend.clone()), reg, ..load.clone() });
            reg
        })?;
        let inside = push_source(&mut into, Source::Inside { view: view? });
        let args = [inside, new_regs.of(new.reg), old_regs.of(old.reg)].into_iter().collect();
        let reg = into.push(&SELECT, args, old.dtype.class(), old.dtype);
        into.nodes.push(new.over(old, reg));
        let bends: SmallVec<[&Bend; 16]> = into.loads.iter().filter_map(|load| load.bend.as_ref()).collect();
        let has_room = into.map.instrs.len() <= MAX_INSTRS && into.loads.len() < MAX_VIEWS;
        let fits = has_room && fits(&bends, &self.shape);
        drop(bends);
        fits.then_some(into)
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
                Source::Position | Source::Gathered { .. } | Source::Inside { .. } => return None,
            });
        }
        let moved = Moved { sources, first: self.map.instrs.len() as u16 };
        for &Instr { f, ref args, class, dtype } in &from.map.instrs {
            self.push(f, args.iter().map(|&arg| moved.of(arg)).collect(), class, dtype);
        }
        Some(moved)
    }
}
