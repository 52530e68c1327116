//! Values that a group computes again instead of reading them from memory.
//!
//! Note [Computed again]. An operand may be the result of a closed elementwise group over a smaller shape, which
//! waits in the same queue: `(x * scale[.., none]).sum(1)` after `let scale = -a / 2`. If that takes few instructions,
//! the group that reads the operand contains them too. If nothing else refers to the result, as for an intermediate
//! value of an expression, it is never stored, and its own group launches nothing. The bits are the same, because a
//! register is rounded after every instruction wherever it is computed.
//!
//! A value of about the same size is computed again if that reads no more memory than reading the value:
//! `f[1..] - f[..-1]` after `let f = u * u / 2`. The group that computes the value waits for that even if it could not
//! wait in a batch ([`Queue::is_computed_again`]). A reduction of other dimensions than a chain's computes values of
//! the chain's rows again instead of storing them ([`FusedGroup::without_rows`]).
//!
//! A value of the same elements in another shape (`d[.., none]`) is computed again if nothing else refers to it. A sum of a
//! few elements (Note [Unrolled reductions] in `unrolled`) is not repeated for more than a few readers of each.
//!
//! A large group loads a small value that something else refers to: that is stored anyway.
//!
//! The instructions may read only memory that no queued work writes from that group on, so the repeated reads give the
//! same values. Nor may they read other elements of the memory that the operation itself writes.

use super::aside::is_less;
use super::batch::MAX_GROUPS;
use super::chain::part_and_node;
use super::gather::is_gathered;
use super::operands::{Reading, push_load, push_number};
use super::queue::{FusedGroup, Load, Queue, RAW_INSTR};
use super::turn::Bend;
use super::{MAX_INSTRS, MAX_VIEWS, MapArg};
use crate::array::{Class, Dims, Dtype, Layout, Strides, copied};
use crate::driver::DeviceId;
use crate::kernel::{Instr, Padding, Regs, Source};
use crate::tensor::{StorageRef, Tensor};
use smallvec::SmallVec;

/// Maximum number of instructions, and of operands in memory, that are repeated for one value.
#[derive(Clone, Copy)]
struct Most {
    instrs: usize,
    loads: usize,
}

/// For a value that is much smaller than the group that reads it.
const MOST_OF_SMALL: Most = Most { instrs: 8, loads: 4 };

/// For a value of at least an eighth of the group's size: the launch that would store it costs as much.
const MOST_OF_LESS: Most = Most { instrs: 16, loads: 8 };
const LESS: usize = 8;

/// For another value, if its operands are at most as large as the value. None may be costly.
const MOST_OF_LARGE: Most = Most { instrs: 4, loads: 4 };

/// For another value, if its operands are at most a quarter of its size.
const MOST: Most = Most { instrs: 16, loads: 8 };

/// For a value that is computed at once. The position of an element in a tensor of three dimensions takes 24 instructions.
const MOST_NOW: Most = Most { instrs: 40, loads: 8 };

/// Maximum number of costly functions; one in `f64` counts twice.
const MOST_HEAVY: usize = 2;

/// Minimum ratio of the group's elements to those of the result that it computes again.
pub(super) const LEAST_RATIO: usize = 2;

/// From this many elements on, a group loads a small value that is stored anyway. Below, computing it again avoids that
/// the group depends on another launch.
const LARGE: usize = 1 << 22;

/// Registers of a value in the order of their computation, operands first.
#[derive(Default)]
pub(super) struct Registers {
    pub all: SmallVec<[u16; 24]>,
    pub instrs: usize,
    pub loads: usize,
    pub heavy: usize,
    /// The value is computed at once, before later work changes its operands: the launch may also gather.
    pub is_now: bool,
    /// Registers of selections of which one operand is known, and that operand.
    selected: SmallVec<[(u16, u16); 4]>,
}

impl Registers {
    /// Registers of a value that is computed at once.
    fn now() -> Registers {
        Registers { is_now: true, ..Registers::default() }
    }

    /// Adds a register and the registers that it depends on. `None` if these are too many or cannot be repeated.
    /// Operands may be the results of the first `parts` groups of the queue.
    pub(super) fn add(&mut self, from: &FusedGroup, parts: usize, reg: u16) -> Option<()> {
        self.add_shown(from, parts, None, reg)
    }

    /// [`Registers::add`] for the elements at a place of the value, if there is one.
    fn add_shown(
        &mut self,
        from: &FusedGroup,
        parts: usize,
        shown: Option<&Shown<'_>>,
        reg: u16,
    ) -> Option<()> {
        let most = if self.is_now { MOST_NOW } else { MOST };
        if self.all.contains(&reg) || self.selected.iter().any(|&(selection, _)| selection == reg) {
            return Some(());
        }
        match reg.checked_sub(RAW_INSTR) {
            Some(number) => {
                let instr = &from.map.instrs[usize::from(number)];
                if let Some(operand) = shown.and_then(|shown| shown.selects(from, instr)) {
                    self.add_shown(from, parts, shown, operand)?;
                    self.selected.push((reg, operand));
                    return Some(());
                }
                self.instrs += 1;
                self.heavy +=
                    if instr.is_heavy() { if instr.class == Class::F64 { 2 } else { 1 } } else { 0 };
                if self.instrs > most.instrs || self.heavy > MOST_HEAVY {
                    return None;
                }
                instr.args.iter().try_for_each(|&arg| self.add_shown(from, parts, shown, arg))?;
            }
            None => match from.map.sources[usize::from(reg)] {
                Source::Load { view, .. } => {
                    let load = &from.loads[usize::from(view)];
                    self.loads += 1;
                    let storage = &load.storage;
                    let is_settled = match storage.pending() {
                        Some(_) if is_gathered(storage) => self.is_now,
                        Some(pending) => part_and_node(pending.node).0 < parts,
                        None => storage.memory().is_some(),
                    };
                    // A loop that writes parts of a tensor will probably write another part next.
                    let is_part = load.layout.bytes(load.dtype) != storage.bytes();
                    let is_changing = storage.is_written_in_parts() && is_part && !self.is_now;
                    if self.loads > most.loads || !is_settled || is_changing {
                        return None;
                    }
                }
                Source::Number { .. } => {}
                Source::Position | Source::Gathered { .. } | Source::Inside { .. } => return None,
            },
        }
        self.all.push(reg);
        Some(())
    }
}

/// The elements of a value that are needed.
struct Shown<'p> {
    place: &'p Place,
    /// The extents of the view.
    shape: &'p [usize],
}

impl Shown<'_> {
    /// The operand of a selection between the elements inside a padded view and others, if all are inside or none is.
    fn selects(&self, from: &FusedGroup, instr: &Instr) -> Option<u16> {
        let &[condition, inside, other] = &instr.args[..] else { return None };
        let Some(&Source::Inside { view }) = from.map.sources.get(usize::from(condition)) else {
            return None;
        };
        let Some(Bend::Padded(padding)) = &from.loads[usize::from(view)].bend else { return None };
        let mut is_all = true;
        for (dim, &[start, end]) in padding.inside.iter().enumerate() {
            let along = self.place.dims.iter().position(|dims| *dims == Some((dim, dim)));
            let extent = along.map_or(1, |at| self.shape[at]);
            let (first, after) = (self.place.first[dim], self.place.first[dim] + extent);
            if after <= start || end <= first {
                return Some(other);
            }
            is_all &= start <= first && after <= end;
        }
        is_all.then_some(inside)
    }
}

/// The part of a value that a view reads: the value's dimensions for each of the view's, from the first to the last, and
/// the first coordinate in each of the value's.
struct Place {
    dims: SmallVec<[Option<(usize, usize)>; 6]>,
    first: SmallVec<[usize; 6]>,
    shape: Dims,
}

impl Place {
    /// The place of a view in a contiguous layout, if it is a range in each dimension. A dimension of the view may be
    /// several of the value's, if `merges` is set.
    fn of(view: &Layout, whole: &Layout, merges: bool) -> Option<Place> {
        let rank = whole.shape.len();
        let mut extents: SmallVec<[usize; 6]> = SmallVec::from_elem(1, rank);
        let mut dims = SmallVec::new();
        for (&stride, &extent) in view.strides.iter().zip(&view.shape) {
            if extent == 1 || stride == 0 {
                dims.push(None);
                continue;
            }
            let is_it = |d: &usize| whole.shape[*d] != 1 && whole.strides[*d] == stride && extents[*d] == 1;
            let last = (0..rank).find(is_it)?;
            let (mut first, mut rest) = (last, extent);
            while merges && rest > whole.shape[first] && rest % whole.shape[first] == 0 {
                rest /= whole.shape[first];
                extents[first] = whole.shape[first];
                first = (0..first).rev().find(|d| whole.shape[*d] != 1)?;
                if extents[first] != 1 {
                    return None;
                }
            }
            extents[first] = rest;
            dims.push(Some((first, last)));
        }
        let mut rest = view.offset.checked_sub(whole.offset)?;
        let mut first = SmallVec::new();
        for (dim, &extent) in extents.iter().enumerate() {
            let stride = whole.strides[dim].unsigned_abs().max(1);
            let at = if whole.shape[dim] == 1 { 0 } else { rest / stride };
            rest -= at * stride;
            if at + extent > whole.shape[dim] {
                return None;
            }
            first.push(at);
        }
        (rest == 0).then_some(Place { dims, first, shape: copied(&whole.shape) })
    }

    /// The stride of an operand along merged dimensions; `None` if it has none.
    fn stride(&self, strides: &Strides, (first, last): (usize, usize)) -> Option<isize> {
        let mut inner = last;
        for d in (first..last).rev().filter(|&d| self.shape[d] != 1) {
            if strides[d] != strides[inner] * self.shape[inner] as isize {
                return None;
            }
            inner = d;
        }
        Some(strides[last])
    }

    /// The layout under which an operand of the value, with these strides over it, is read for the view.
    fn layout(&self, view: &Layout, offset: usize, strides: &Strides) -> Option<Layout> {
        let at = |(&first, &stride): (&usize, &isize)| first as isize * stride;
        let moved: isize = self.first.iter().zip(strides).map(at).sum();
        let own = self.dims.iter().map(|dims| dims.map_or(Some(0), |dims| self.stride(strides, dims)));
        Some(Layout {
            shape: view.shape.clone(),
            strides: own.collect::<Option<Strides>>()?,
            offset: offset.checked_add_signed(moved)?,
        })
    }
}

/// The layouts under which operands of a value with this layout, each an offset and strides over the value, are read for
/// a view. `None` if the view does not take a range of each dimension.
pub(super) fn parts<'o>(
    view: &Layout,
    whole: &Layout,
    mut operands: impl Iterator<Item = (usize, &'o Strides)>,
) -> Option<SmallVec<[Layout; 4]>> {
    let place = Place::of(view, whole, false)?;
    let mut all = SmallVec::new();
    operands.try_for_each(|(offset, strides)| {
        place.layout(view, offset, strides).map(|layout| all.push(layout))
    })?;
    Some(all)
}

impl Place {
    /// How a load of the value's group is read for the view.
    fn read(&self, view: &Layout, load: &Load) -> Option<(Layout, Option<Bend>)> {
        let padding = match &load.bend {
            None => return Some((self.layout(view, load.layout.offset, &load.strides)?, None)),
            Some(Bend::Turned(_)) => return None,
            Some(Bend::Padded(padding)) => padding,
        };
        let (mut inside, mut offset) = (SmallVec::new(), load.layout.offset as isize);
        for (&dims, &extent) in self.dims.iter().zip(&view.shape) {
            let Some((dim, _)) = dims else {
                inside.push([0, extent]);
                continue;
            };
            // What the view shows of the elements inside.
            let [start, end] = padding.inside[dim];
            let own =
                [start.saturating_sub(self.first[dim]), end.saturating_sub(self.first[dim]).min(extent)];
            if own != [0, extent] && !padding.beside.allows(own, end - start, extent) {
                return None;
            }
            inside.push(own);
            offset +=
                (own[0] + self.first[dim]) as isize * load.strides[dim] - start as isize * load.strides[dim];
        }
        for (dim, &first) in
            self.first.iter().enumerate().filter(|(dim, _)| !self.dims.contains(&Some((*dim, *dim))))
        {
            let [start, end] = padding.inside[dim];
            if !(start..end).contains(&first) {
                return None;
            }
            offset += (first - start) as isize * load.strides[dim];
        }
        let strides = self.dims.iter().map(|dims| dims.map_or(0, |(dim, _)| load.strides[dim])).collect();
        let layout = Layout { shape: view.shape.clone(), strides, offset: usize::try_from(offset).ok()? };
        let is_bent = (inside.iter().zip(&view.shape))
            .any(|(inside, &extent): (&[usize; 2], _)| *inside != [0, extent]);
        let bend = is_bent.then(|| Bend::Padded(Box::new(Padding { inside, beside: padding.beside })));
        Some((layout, bend))
    }
}

/// True for shapes that differ by dimensions of extent 1 only.
fn is_alike(a: &[usize], b: &[usize]) -> bool {
    let long = |shape: &'_ [usize]| shape.iter().copied().filter(|&n| n != 1).collect::<Dims>();
    a.len() != b.len() && long(a) == long(b)
}

/// How loads are read: their layouts, and what they read beside the ends.
pub(super) type Reads = SmallVec<[(Layout, Option<Bend>); 4]>;

/// Why a group may compute a value again.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    /// It reads the value.
    Read,
    /// It reads the value, which is stored in any case.
    Kept,
    /// It reads an element of a reduction, and the others as well.
    Unrolled,
}

/// A value that a group computes again.
struct Again {
    needed: Registers,
    /// How the loads among them are read.
    loads: Reads,
}

/// The number of different elements that a layout addresses; a broadcast dimension counts once.
pub(super) fn distinct(layout: &Layout) -> usize {
    let extents = layout.shape.iter().zip(&layout.strides);
    extents.map(|(&extent, &stride)| if stride == 0 { 1 } else { extent }).product()
}

/// The stride of the last dimension that has one.
pub(super) fn last_stride(layout: &Layout) -> usize {
    let mut dims = layout.shape.iter().zip(&layout.strides).rev();
    dims.find(|&(&extent, &stride)| extent > 1 && stride != 0).map_or(0, |(_, stride)| stride.unsigned_abs())
}

impl FusedGroup {
    /// How a group over `shape` can compute the view `operand` of node `node` again. This group may read results of the
    /// first `parts` groups of its queue. `None` if it is not worth it.
    fn again(
        &self,
        parts: usize,
        node: usize,
        (operand, dtype): (&Layout, Dtype),
        shape: &[usize],
        why: Why,
    ) -> Option<Again> {
        let node = self.nodes.get(node)?;
        let storage = node.storage.as_ref()?;
        let whole = node.layout(storage);
        if node.dtype != dtype || whole.shape != self.shape || !whole.is_contiguous() {
            return None;
        }
        let place = Place::of(operand, whole, false)?;
        let shown = Shown { place: &place, shape: &operand.shape };
        let mut needed = Registers::default();
        needed.add_shown(self, parts, Some(&shown).filter(|_| why == Why::Unrolled), node.reg)?;
        let mut loads: Reads = SmallVec::new();
        // Loads of the same memory nearby take its bytes once.
        let mut read: SmallVec<[(&StorageRef, usize); 4]> = SmallVec::new();
        let mut is_spread = false;
        for &reg in &needed.all {
            let Some(&Source::Load { view, .. }) = self.map.sources.get(usize::from(reg)) else { continue };
            let load = &self.loads[usize::from(view)];
            let (layout, bend) = place.read(operand, load)?;
            let bytes = distinct(&layout) * load.dtype.size();
            match read.iter_mut().find(|(storage, _)| storage.is(&load.storage)) {
                Some((_, most)) => *most = bytes.max(*most),
                None => read.push((&load.storage, bytes)),
            }
            is_spread |= last_stride(&layout) > last_stride(operand).max(1);
            loads.push((layout, bend));
        }
        let bytes: usize = read.iter().map(|(_, bytes)| bytes).sum();
        let fits = |most: Most| needed.instrs <= most.instrs && needed.loads <= most.loads;
        let saved = distinct(operand) * dtype.size();
        let most = if bytes <= saved / 4 { MOST } else { MOST_OF_LARGE };
        // The value may be needed in memory anyway, and a small reader would gain nothing.
        let is_cheap =
            fits(most) && needed.heavy == 0 && bytes <= saved && !is_spread && !is_less(shape, &self.shape);
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let is_much_less = count(shape) / LESS > count(&self.shape);
        let most = if is_much_less { MOST_OF_SMALL } else { MOST_OF_LESS };
        // A sum would be repeated for many elements.
        let is_small = fits(most)
            && (is_less(&self.shape, shape) || is_alike(&self.shape, shape))
            && !(self.is_unrolled && is_much_less);
        let pays = match why {
            Why::Kept => is_cheap,
            Why::Read => is_cheap || is_small,
            Why::Unrolled => true,
        };
        pays.then_some(Again { needed, loads })
    }

    /// The numbers of instructions and loads with which a group over an element of a reduction computes the element of
    /// node `node` again; see Note [Unrolled reductions] in `unrolled`.
    pub(super) fn size_again(&self, parts: usize, node: usize, element: &Tensor) -> Option<(usize, usize)> {
        let operand = (element.layout(), element.dtype());
        let again = self.again(parts, node, operand, element.shape(), Why::Unrolled)?;
        again
            .loads
            .iter()
            .all(|(_, bend)| bend.is_none())
            .then_some((again.needed.instrs, again.needed.loads))
    }

    /// The register of an operand that a node of an earlier group computes, if this group computes it again.
    pub(super) fn read_again(
        &mut self,
        reading: Reading<'_>,
        (part, node): (usize, usize),
        tensor: &Tensor,
    ) -> Option<u16> {
        let from = reading.before.get(part)?;
        let is_large = self.shape.iter().product::<usize>() >= LARGE;
        let is_kept = || (is_large || is_alike(&from.shape, &self.shape)) && self.is_kept(reading, tensor);
        let why = match reading.is_unrolled {
            true => Why::Unrolled,
            false if is_kept() => Why::Kept,
            false => Why::Read,
        };
        let operand = (tensor.layout(), tensor.dtype());
        self.computed_again(from, (part, node), operand, why, (reading.may_bend, reading.target))
    }

    /// True if registers read other elements of a tensor's storage than those that an operation is about to write: a load
    /// happens before the store of its own element only (Note [Hazards] in `queue`).
    fn reads_elsewhere(&self, needed: &Registers, loads: &Reads, target: &Tensor) -> bool {
        let read = needed.all.iter().filter_map(|&reg| match self.map.sources.get(usize::from(reg)) {
            Some(&Source::Load { view, .. }) => Some(&self.loads[usize::from(view)]),
            _ => None,
        });
        read.zip(loads).any(|(load, (layout, bend))| {
            let is_same = bend.is_none() && layout == target.layout() && load.dtype == target.dtype();
            load.storage.is(target.storage()) && !is_same
        })
    }

    /// True when more than the queue and the operands of an operation refers to an operand's storage.
    fn is_kept(&self, reading: Reading<'_>, tensor: &Tensor) -> bool {
        let storage = tensor.storage();
        let in_group = |group: &FusedGroup| {
            let loads = group.loads.iter().filter(|load| load.storage.is(storage)).count();
            loads
                + group
                    .nodes
                    .iter()
                    .filter_map(|node| node.storage.as_ref())
                    .filter(|own| own.is(storage))
                    .count()
        };
        let queued: usize = reading.before.iter().chain([self]).map(in_group).sum();
        let operands = reading.operands.iter().filter_map(MapArg::tensor);
        let views = operands.filter(|view| std::ptr::eq(view.storage(), storage)).count();
        tensor.storage_holders() > queued + views
    }

    /// The register of an operand that node `node` of the earlier group `from` computes, if this group computes it
    /// again. It may then read results of the first `parts` groups of its queue.
    fn computed_again(
        &mut self,
        from: &FusedGroup,
        (parts, node): (usize, usize),
        operand: (&Layout, Dtype),
        why: Why,
        (may_bend, target): (bool, Option<&Tensor>),
    ) -> Option<u16> {
        let Again { needed, loads } = from.again(parts, node, operand, &self.shape, why)?;
        if target.is_some_and(|target| from.reads_elsewhere(&needed, &loads, target)) {
            return None;
        }
        let is_bent = |(_, bend): &(Layout, Option<Bend>)| bend.is_some();
        if loads.iter().any(is_bent) {
            let mut all = loads.iter().filter_map(|(layout, bend)| Some((layout, bend.clone()?)));
            let takes =
                |(layout, bend): (&Layout, Bend)| self.takes(&bend.broadcast(&layout.shape, &self.shape));
            if !may_bend || self.uses_position() || self.gathers() || !all.all(takes) {
                return None;
            }
        }
        let size = self.size();
        if size.instrs + needed.instrs + 8 > MAX_INSTRS || size.views + needed.loads + 4 > MAX_VIEWS {
            return None;
        }
        copy_registers(self, from, &needed, loads)
    }

    /// The register of a view of node `node` of the group `from`, which this new group over the view's shape computes at
    /// once. The results of the first `parts` groups of the queue will be in memory.
    pub(super) fn compute_now(
        &mut self,
        from: &FusedGroup,
        parts: usize,
        node: usize,
        view: (&Layout, Dtype),
    ) -> Option<u16> {
        self.compute_view(from, (parts, node), view, &mut Registers::now())
    }

    /// [`FusedGroup::compute_now`] that adds the registers it copies to `needed`.
    pub(super) fn compute_view(
        &mut self,
        from: &FusedGroup,
        (parts, node): (usize, usize),
        (view, dtype): (&Layout, Dtype),
        needed: &mut Registers,
    ) -> Option<u16> {
        let node = from.nodes.get(node)?;
        let storage = node.storage.as_ref()?;
        let whole = node.layout(storage);
        if node.dtype != dtype || whole.shape != from.shape || !whole.is_contiguous() {
            return None;
        }
        needed.add(from, parts, node.reg)?;
        let place = Place::of(view, whole, true)?;
        let loads = needed.all.iter().filter_map(|&reg| match from.map.sources.get(usize::from(reg)) {
            Some(&Source::Load { view, .. }) => Some(&from.loads[usize::from(view)]),
            _ => None,
        });
        let plain = |load: &Load| {
            let layout = place.layout(view, load.layout.offset, &load.strides)?;
            load.bend.is_none().then_some((layout, None))
        };
        let loads: Option<Reads> = loads.map(plain).collect();
        copy_registers(self, from, needed, loads?)
    }

    /// This group, which computes again what it reads of the rows of the chain `before`, in the new group `into`. `None`
    /// if it cannot compute all of that again.
    pub(super) fn without_rows(
        &self,
        before: &[FusedGroup],
        kept: usize,
        mut into: FusedGroup,
    ) -> Option<FusedGroup> {
        let mut sources: SmallVec<[u16; 24]> = SmallVec::new();
        for source in &self.map.sources {
            sources.push(match *source {
                Source::Load { view, dtype } => {
                    let load = &self.loads[usize::from(view)];
                    match load.storage.pending() {
                        Some(pending)
                            if load.storage.memory().is_none()
                                && load.is_along(kept)
                                && !is_gathered(&load.storage) =>
                        {
                            let (part, node) = part_and_node(pending.node);
                            into.computed_again(
                                before.get(part)?,
                                (0, node),
                                (&load.layout, dtype),
                                Why::Read,
                                (false, None),
                            )?
                        }
                        _ => {
                            push_load(&mut into, load.storage.clone(), &load.layout, dtype, load.bend.clone())
                        }
                    }
                }
                Source::Number { slot, dtype } => {
                    push_number(&mut into, self.numbers[usize::from(slot)], dtype)
                }
                Source::Position | Source::Gathered { .. } | Source::Inside { .. } => return None,
            });
        }
        let first = into.map.instrs.len() as u16;
        let moved = |reg: u16| match reg.checked_sub(RAW_INSTR) {
            Some(number) => RAW_INSTR + first + number,
            None => sources[usize::from(reg)],
        };
        for &Instr { f, ref args, class, dtype } in &self.map.instrs {
            into.push(f, args.iter().map(|&arg| moved(arg)).collect(), class, dtype);
        }
        into.nodes.extend(self.nodes.iter().map(|node| node.in_register(moved(node.reg))));
        into.rounds = self.rounds.clone();
        (into.map.instrs.len() <= MAX_INSTRS && into.loads.len() <= MAX_VIEWS).then_some(into)
    }
}

impl Registers {
    /// The number of a register among all.
    fn number(&self, mut reg: u16) -> usize {
        while let Some(&(_, operand)) = self.selected.iter().find(|&&(selection, _)| selection == reg) {
            reg = operand;
        }
        self.all.iter().position(|&own| own == reg).unwrap_or(0)
    }
}

/// Adds the instructions of a value of `from` to another group. Loads are read like this. Returns the register.
pub(super) fn copy_registers(
    into: &mut FusedGroup,
    from: &FusedGroup,
    needed: &Registers,
    loads: Reads,
) -> Option<u16> {
    let mut loads = loads.into_iter();
    let mut made: SmallVec<[u16; 24]> = SmallVec::new();
    for &reg in &needed.all {
        let new = match reg.checked_sub(RAW_INSTR) {
            Some(number) => {
                let Instr { f, args, class, dtype } = &from.map.instrs[usize::from(number)];
                let of = |&arg: &u16| made[needed.number(arg)];
                let args: Regs = args.iter().map(of).collect();
                into.push(f, args, *class, *dtype)
            }
            None => match from.map.sources[usize::from(reg)] {
                Source::Load { view, dtype } => {
                    let load = &from.loads[usize::from(view)];
                    let (layout, bend) = loads.next()?;
                    let bend = bend.map(|bend| bend.broadcast(&layout.shape, &into.shape));
                    into.load(&load.storage, &layout, dtype, bend)
                }
                Source::Number { slot, dtype } => push_number(into, from.numbers[usize::from(slot)], dtype),
                Source::Position | Source::Gathered { .. } | Source::Inside { .. } => return None,
            },
        };
        made.push(new);
    }
    made.last().copied()
}

impl Queue {
    /// True when the open group computes a view among the operands of an operation over `shape`, and the group that
    /// contains the operation will compute it again. The open group may then wait in the chain.
    pub(super) fn is_computed_again(&self, operands: &[MapArg<'_>], shape: &[usize]) -> bool {
        let Some(open) = &self.group else { return false };
        let again = |operand: &MapArg<'_>| {
            let MapArg::Tensor(tensor) = operand else { return false };
            let node = tensor.storage().pending().and_then(|pending| self.open_node(pending));
            let parts = self.chain.len();
            node.is_some_and(|node| {
                open.again(parts, node, (tensor.layout(), tensor.dtype()), shape, Why::Read).is_some()
            })
        };
        self.rows().is_empty()
            && self.chain.len() < MAX_GROUPS
            && self.aside().is_none()
            && open.reduce.is_none()
            && !open.uses_position()
            && !open.is_turned()
            && !open.gathers()
            && open.device != DeviceId::Cpu
            && operands.iter().any(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_of_a_value_read_its_operands_at_the_same_elements() {
        let whole = Layout::contiguous(&[4, 5, 6]);
        let view = |shape: &[usize], strides: &[isize], offset| Layout {
            shape: Dims::from(shape),
            strides: strides.into(),
            offset,
        };
        // An operand of shape [5, 1], broadcast.
        let strides: Strides = [0, 3, 0].as_slice().into();
        let read = |layout: &Layout| {
            let place = Place::of(layout, &whole, false)?;
            place.layout(layout, 7, &strides).map(|layout| (layout.strides.to_vec(), layout.offset))
        };
        assert_eq!(read(&whole), Some((vec![0, 3, 0], 7)));
        assert_eq!(read(&view(&[6, 1, 5], &[1, 0, 6], 0)), Some((vec![0, 0, 3], 7)));
        assert_eq!(read(&view(&[4, 2, 9], &[30, 6, 0], 6 * 2)), Some((vec![0, 3, 0], 7 + 2 * 3)));
        assert_eq!(read(&view(&[6], &[1], 30 + 6)), Some((vec![0], 10)));
        // Every other column, a diagonal, rows that continue into the next.
        assert_eq!(read(&view(&[4, 5, 3], &[30, 6, 2], 0)), None);
        assert_eq!(read(&view(&[4], &[37], 0)), None);
        assert_eq!(read(&view(&[8], &[1], 0)), None);
        // Dimensions that become one, if the operand has one stride along them.
        let merged = |layout: &Layout, strides: &[isize]| {
            let place = Place::of(layout, &whole, true)?;
            place.layout(layout, 7, &strides.into()).map(|layout| (layout.strides.to_vec(), layout.offset))
        };
        assert_eq!(merged(&view(&[20, 6], &[6, 1], 0), &[30, 6, 1]), Some((vec![6, 1], 7)));
        assert_eq!(merged(&view(&[10, 6], &[6, 1], 60), &[5, 1, 0]), Some((vec![1, 0], 7 + 10)));
        assert_eq!(merged(&view(&[4, 30], &[30, 1], 0), &[3, 0, 0]), Some((vec![3, 0], 7)));
        assert_eq!(merged(&view(&[120], &[1], 0), &[30, 6, 1]), Some((vec![1], 7)));
        assert_eq!(merged(&view(&[20, 6], &[6, 1], 0), &[0, 6, 1]), None);
        assert_eq!(merged(&view(&[12, 6], &[6, 1], 0), &[30, 6, 1]), None);
        assert_eq!(merged(&view(&[10, 6], &[6, 1], 18), &[30, 6, 1]), None);
    }
}
