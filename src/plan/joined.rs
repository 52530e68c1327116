//! Joined tensors that later work reads without a copy: `x * c + cat([-b, a], -1) * s`, `stack([x, y])`.
//!
//! Note [Joined values]. The result of [`Runtime::joined`] waits in its queue (Note [Deferred values] in `deferred`). A
//! group that reads a view of it loads an element of each part that the view shows, of which one is inside that part's box
//! ([`Padding`]), and selects the value of that one ([`Source::Inside`]). A part that the open group computes from operands
//! in memory, by few instructions, is computed again by the reader; the open group then drops it if nothing else refers to
//! it. The bits are the same, because a register is rounded after every instruction wherever it is computed.
//!
//! A part may also be a view of a value that costs too much for that: the value must be in memory in any case, so it is
//! stored first. If a part is such a value as a whole, the result is written at once, and the value directly to its place.
//!
//! To store the result, each part is written to its place, as elementwise work that shares a launch where the shapes allow
//! it. So a result that is never read by a bent load costs no more than one that was written at once.

use super::again::{Registers, distinct};
use super::chain::part_and_node;
use super::deferred::{Deferred, Needs, is_deferred};
use super::gather::GATHERED;
use super::operands::push_source;
use super::place::Place;
use super::positions::Operand;
use super::queue::{FusedGroup, Load, Node};
use super::rounds::Room;
use super::turn::Bend;
use super::{Elementwise, MapArg, Runtime};
use crate::array::{Dtype, Layout, copied};
use crate::base::{Result, Span};
use crate::driver::DeviceId;
use crate::kernel::{Beside, CAST, Padding, SELECT, Source};
use crate::stream::races::Access;
use crate::tensor::{Memory, StorageRef, Tensor};
use smallvec::{SmallVec, smallvec};

/// Maximum number of parts of a result that waits.
pub const MOST_JOINED: usize = 4;

/// Maximum number of instructions, and of operands, that compute a part.
const MOST: usize = 8;

/// Maximum bytes that compute a part, for each byte of it: up to three readers then move no more bytes than if the part
/// were stored.
const MOST_READ: usize = 2;

/// A joined tensor that waits.
pub(super) struct Joined {
    pub(super) out: StorageRef,
    dtype: Dtype,
    dim: usize,
    /// The dimension is new: parts have an extent of 1.
    is_stacked: bool,
    /// A part without operands in memory is the last.
    parts: SmallVec<[Part; 2]>,
    name: &'static str,
    pub(super) span: Span,
}

/// A part of a joined tensor. All have the rank of the result.
struct Part {
    /// Its first coordinate along the dimension, and the one after its last.
    range: [usize; 2],
    value: Value,
}

enum Value {
    /// A tensor in memory.
    Loaded(Operand),
    /// A group over the part with one node, whose storage is not set.
    Computed(Box<FusedGroup>),
}

/// How a view reads a part: its first coordinates in the part, and those of the view's that are inside, if not all are.
struct Shown {
    part: usize,
    /// The coordinate in the part along the dimension at the first element inside.
    first: isize,
    inside: Option<SmallVec<[[usize; 2]; 6]>>,
}

impl Value {
    /// The offset and the strides of each operand.
    fn layouts(&self) -> impl Iterator<Item = (usize, &[isize])> {
        let (loaded, computed) = match self {
            Value::Loaded(operand) => (Some((operand.layout.offset, &operand.layout.strides[..])), None),
            Value::Computed(group) => (None, Some(&group.loads)),
        };
        let computed = computed.into_iter().flatten().map(|load| (load.layout.offset, &load.strides[..]));
        loaded.into_iter().chain(computed)
    }

    fn operands(&self) -> impl Iterator<Item = &StorageRef> {
        let (loaded, computed) = match self {
            Value::Loaded(operand) => (Some(&operand.storage), None),
            Value::Computed(group) => (None, Some(&group.loads)),
        };
        loaded.into_iter().chain(computed.into_iter().flatten().map(|load| &load.storage))
    }

    fn instrs(&self) -> usize {
        match self {
            Value::Loaded(_) => 0,
            Value::Computed(group) => group.map.instrs.len(),
        }
    }
}

impl Joined {
    /// The storages that it reads.
    pub(super) fn sources(&self) -> impl Iterator<Item = &StorageRef> {
        self.parts.iter().flat_map(|part| part.value.operands())
    }

    /// The place of a part in the result.
    fn place(&self, part: &Part) -> Layout {
        let [start, end] = part.range;
        let mut layout = self.out.first_layout().clone();
        layout.offset = layout.offset.wrapping_add_signed(layout.strides[self.dim] * start as isize);
        layout.shape[self.dim] = end - start;
        self.part(&layout)
    }

    /// The tensors that a part reads.
    fn operands(&self, part: &Part) -> SmallVec<[Tensor; 4]> {
        match &part.value {
            Value::Loaded(of) => smallvec![of.storage.view(self.part(&of.layout), of.dtype)],
            Value::Computed(of) => {
                let view = |load: &Load| load.storage.view(self.part(&load.layout), load.dtype);
                of.loads.iter().map(view).collect()
            }
        }
    }

    /// The layout of a part without the dimension along which it is stacked, as elementwise work computes it.
    fn part(&self, layout: &Layout) -> Layout {
        let mut layout = layout.clone();
        if self.is_stacked {
            layout.shape.remove(self.dim);
            layout.strides.remove(self.dim);
        }
        layout
    }

    /// The parts that a view shows, and its place; `None` if the view must be read from memory.
    fn shown(&self, view: &Tensor) -> Option<(Place, SmallVec<[Shown; 4]>)> {
        // A view may show the bits as another dtype.
        if view.count() == 0 || view.dtype() != self.dtype {
            return None;
        }
        let Layout { ref shape, ref strides, offset } = *view.layout();
        let place = Place::of(shape, strides, offset, self.out.first_layout())?;
        let mut along = None;
        for (at, dims) in place.dims.iter().enumerate() {
            let Some((first, last, step)) = *dims else { continue };
            if (first..=last).contains(&self.dim) {
                // Merged dimensions, or windows of one.
                if first != last || along.is_some() {
                    return None;
                }
                along = Some((at, step));
            }
        }
        let from = place.first[self.dim] as isize;
        let mut all = SmallVec::new();
        for (part, &Part { range: [start, end], .. }) in self.parts.iter().enumerate() {
            let (start, end) = (start as isize, end as isize);
            let Some((at, step)) = along else {
                if (start..end).contains(&from) {
                    all.push(Shown { part, first: from - start, inside: None });
                }
                continue;
            };
            // The first coordinate at which the view is at this coordinate of the result or after it.
            let reaches = |c: isize| ((c - from + step - 1).div_euclid(step)).clamp(0, shape[at] as isize);
            let [first, after] = [reaches(start), reaches(end)];
            if first >= after {
                continue;
            }
            let mut inside: SmallVec<[[usize; 2]; 6]> = shape.iter().map(|&extent| [0, extent]).collect();
            inside[at] = [first as usize, after as usize];
            let is_all = inside[at] == [0, shape[at]];
            all.push(Shown { part, first: from + step * first - start, inside: (!is_all).then_some(inside) });
        }
        Some((place, all))
    }

    /// The layouts under which a view reads the operands of a part.
    fn layouts(&self, view: &Tensor, place: &Place, shown: &Shown) -> Option<SmallVec<[Layout; 4]>> {
        let layout = |(offset, strides): (usize, &[isize])| {
            let moved = |d: usize| match d == self.dim {
                true => shown.first * strides[d],
                false => place.first[d] as isize * strides[d],
            };
            let moved: isize = (0..strides.len()).map(moved).sum();
            Some(Layout {
                shape: copied(view.shape()),
                strides: place.dims.iter().map(|dims| place.stride(dims, strides)).collect::<Option<_>>()?,
                offset: offset.checked_add_signed(moved)?,
            })
        };
        self.parts[shown.part].value.layouts().map(layout).collect()
    }

    /// What a group needs to read a view; `None` if that must be read from memory.
    pub(super) fn needs(&self, view: &Tensor) -> Option<Needs> {
        let (place, all) = self.shown(view)?;
        let mut needs = Needs { bends: SmallVec::new(), loads: 0, instrs: all.len() - 1 };
        for shown in &all {
            self.layouts(view, &place, shown)?;
            let value = &self.parts[shown.part].value;
            let loads = value.layouts().count();
            match shown.bend() {
                Some(bend) => needs.bends.extend((0..loads).map(|_| bend.clone())),
                None => needs.loads += loads,
            }
            // And a conversion to the dtype of the result.
            needs.instrs += value.instrs() + 1;
        }
        Some(needs)
    }
}

impl Shown {
    fn bend(&self) -> Option<Bend> {
        let inside = self.inside.clone()?;
        Some(Bend::Padded(Box::new(Padding { inside, beside: Beside::Number(0) })))
    }
}

impl FusedGroup {
    /// The register of an element of a joined tensor that waits.
    pub(super) fn read_joined(&mut self, joined: &Joined, tensor: &Tensor) -> Option<u16> {
        let (place, all) = joined.shown(tensor)?;
        let mut reg = None;
        for shown in all.iter().rev() {
            let layouts = joined.layouts(tensor, &place, shown)?;
            let bend = shown.bend().map(|bend| bend.broadcast(tensor.shape(), &self.shape));
            let mut view = None;
            let own = match &joined.parts[shown.part].value {
                Value::Loaded(of) => {
                    let own = self.load(&of.storage, layouts.first()?, of.dtype, bend);
                    view = self.view_of(own);
                    own
                }
                Value::Computed(of) => {
                    let mut layouts = layouts.iter();
                    let moved = self.take_over(of, |into, load| {
                        let own = match layouts.next() {
                            Some(layout) => into.load(&load.storage, layout, load.dtype, bend.clone()),
                            None => load.reg,
                        };
                        view = view.or(into.view_of(own));
                        own
                    })?;
                    moved.of(of.nodes[0].reg)
                }
            };
            let own = self.cast(own, tensor.dtype());
            reg = Some(match reg {
                None => own,
                Some(other) => {
                    let inside = push_source(self, Source::Inside { view: view? });
                    let args = [inside, own, other].into_iter().collect();
                    self.push(&SELECT, args, tensor.dtype().class(), tensor.dtype())
                }
            });
        }
        reg
    }

    /// The view that a register loads.
    pub(super) fn view_of(&self, reg: u16) -> Option<u16> {
        match self.map.sources.get(usize::from(reg)) {
            Some(&Source::Load { view, .. }) => Some(view),
            _ => None,
        }
    }
}

impl Runtime {
    /// Submits tensors joined along a dimension, all of one shape except for that dimension. The result, a new tensor, may
    /// wait; see Note [Joined values]. `None`, with nothing submitted, if it must be stored now.
    pub fn joined(
        &mut self,
        name: &'static str,
        (parts, dim, is_stacked): (&[&Tensor], usize, bool),
        (shape, dtype, device): (&[usize], Dtype, DeviceId),
    ) -> Result<Option<Tensor>> {
        let parts: SmallVec<[&Tensor; 4]> =
            parts.iter().copied().filter(|part| part.shape()[dim] > 0).collect();
        if !(2..=MOST_JOINED).contains(&parts.len())
            || device == DeviceId::Cpu
            || shape.contains(&0)
            || dtype.is_complex()
            || parts.iter().any(|part| part.dtype().is_complex())
            || !self.may_defer(parts.iter().copied())
        {
            return Ok(None);
        }
        let at = self.place(device)?.queue;
        let read = |rt: &Runtime| -> SmallVec<[Option<Value>; 4]> {
            parts.iter().map(|part| rt.value_of(at, part)).collect()
        };
        let mut found = read(self);
        let unread: SmallVec<[&Tensor; 4]> =
            parts.iter().zip(&found).filter_map(|(&part, value)| value.is_none().then_some(part)).collect();
        if !unread.is_empty() {
            let is_stored = |part: &&Tensor| {
                let same = |other: &&&Tensor| std::ptr::eq(other.storage(), part.storage());
                unread.iter().filter(same).any(|other| self.is_stored_anyway(at, other))
            };
            if !unread.iter().all(is_stored) {
                return Ok(None);
            }
            unread.iter().try_for_each(|part| self.settle_value(part, at))?;
            found = read(self);
        }
        let mut end = 0;
        let mut values: SmallVec<[Part; 2]> = SmallVec::new();
        for (part, value) in parts.iter().zip(found) {
            let Some(value) = value else { return Ok(None) };
            let start = end;
            end += part.shape()[dim];
            values.push(Part { range: [start, end], value });
        }
        let has_loads = |part: &Part| part.value.operands().next().is_some();
        if values.iter().filter(|part| !has_loads(part)).count() > 1 {
            return Ok(None);
        }
        // An order of the parts in which one without loads is selected where no other is.
        values.sort_by_key(|part| !has_loads(part));
        let out = self.fresh(shape, dtype, device)?;
        let own = self.device(device)?;
        if own.is_nearly_full(out.storage().bytes()) {
            return Ok(None);
        }
        let read = parts.iter().map(|&part| (part, Access::Read));
        self.note(name, at, read.chain([(&out, Access::Write)]))?;
        let (out_ref, span) = (out.storage_ref(), self.span);
        let joined = Joined { out: out_ref, dtype, dim, is_stacked, parts: values, name, span };
        self.defer(at, Deferred::Joined(joined))?;
        Ok(Some(out))
    }

    /// True for a part that must be in memory in any case: a view of what the open group computes that is not the whole
    /// value, or one of a deferred value that cannot be read in place.
    fn is_stored_anyway(&self, at: usize, part: &Tensor) -> bool {
        let queue = &self.queues[at];
        if let Some(deferred) = queue.deferred_with(part.storage()) {
            return deferred.needs(part).is_none();
        }
        let pending = part.storage().pending().filter(|pending| usize::from(pending.queue) == at);
        let node = pending.and_then(|pending| queue.open_node(pending)).zip(queue.group.as_ref());
        let is_part = |node: &Node| node.layout(&part.storage_ref()).count() != part.count();
        node.and_then(|(node, group)| group.nodes.get(node)).is_some_and(is_part)
    }

    /// How a reader gets a part; `None` if the part must be stored first.
    fn value_of(&self, at: usize, part: &Tensor) -> Option<Value> {
        let Some(pending) = part.storage().pending() else {
            part.storage().memory()?;
            let operand =
                Operand { storage: part.storage_ref(), layout: part.layout().clone(), dtype: part.dtype() };
            return Some(Value::Loaded(operand));
        };
        if usize::from(pending.queue) != at || pending.node == GATHERED {
            return None;
        }
        let queue = &self.queues[at];
        let (number, node) = part_and_node(pending.node);
        let from = queue.groups().nth(number)?;
        if from.reduce.is_some() || from.gathers() || from.shape.iter().product::<usize>() < part.count() {
            return None;
        }
        let mut group = FusedGroup::new(from.device, copied(part.shape()));
        let mut needed = Registers::default();
        let reg = group.compute_view(from, (0, node), (part.layout(), part.dtype()), &mut needed)?;
        let is_foreign = |load: &Load| matches!(load.storage.memory(), Some(Memory::Foreign(_)));
        let bytes: usize = group.loads.iter().map(|load| distinct(&load.layout) * load.dtype.size()).sum();
        if needed.instrs > MOST
            || needed.loads > MOST
            || needed.heavy > 0
            || bytes > MOST_READ * part.count() * part.dtype().size()
            || group.loads.iter().any(is_foreign)
        {
            return None;
        }
        let mut own = from.nodes.get(node)?.in_register(reg);
        own.storage = None;
        group.nodes.push(own);
        Some(Value::Computed(Box::new(group)))
    }

    /// Stores joined tensors that are about to be copied or converted. Copies of `f16` and `bf16` keep the bits of a nan;
    /// a value that has been selected does not on every device.
    pub(super) fn settle_copied(&mut self, operands: &[MapArg<'_>]) -> Result<()> {
        let deferred = operands.iter().filter_map(MapArg::tensor).filter(|x| is_deferred(x.storage()));
        for tensor in deferred {
            let at = tensor.storage().pending().map_or(0, |pending| usize::from(pending.queue));
            if let Some(Deferred::Joined(_)) = self.queues[at].deferred_with(tensor.storage()) {
                self.store_deferred(tensor.storage())?;
            }
        }
        Ok(())
    }

    /// Stores a joined tensor.
    pub(super) fn run_join(&mut self, at: usize, joined: &Joined) -> Result<()> {
        let out = joined.out.view(joined.out.first_layout().clone(), joined.dtype);
        let (device, stream) = (self.device(out.device())?, self.queues[at].stream.clone());
        self.bind(&joined.out, &device, &stream, joined.span)?;
        let is_alike = |a: &Part, b: &Part| a.range[1] - a.range[0] == b.range[1] - b.range[0];
        for parts in joined.parts.chunk_by(is_alike) {
            let targets: SmallVec<[Tensor; 4]> =
                parts.iter().map(|part| out.with_layout(joined.place(part))).collect();
            let is_computed = |part: &Part| matches!(part.value, Value::Computed(_));
            match parts.iter().any(is_computed) {
                true => self.write_parts(at, joined, parts, &targets)?,
                false => self.copy_parts_near(at, joined, parts, &targets)?,
            }
        }
        self.flush_work(at)
    }

    /// Copies parts to their places.
    fn copy_parts_near(&mut self, at: usize, joined: &Joined, parts: &[Part], to: &[Tensor]) -> Result<()> {
        for (part, target) in parts.iter().zip(to) {
            let Value::Loaded(of) = &part.value else { continue };
            let source = of.storage.view(joined.part(&of.layout), of.dtype);
            let args = [MapArg::Tensor(&source)];
            let copy = Elementwise::new(joined.name, &CAST, &args, of.dtype, joined.dtype);
            self.write_near(&copy, target, at)?;
        }
        Ok(())
    }

    /// Lets a group compute parts of one shape and write them to their places.
    fn write_parts(&mut self, at: usize, joined: &Joined, parts: &[Part], to: &[Tensor]) -> Result<()> {
        let Some(first) = to.first() else { return Ok(()) };
        let sources: SmallVec<[Tensor; 8]> = parts.iter().flat_map(|part| joined.operands(part)).collect();
        let operands: SmallVec<[MapArg<'_>; 8]> = sources.iter().map(MapArg::Tensor).collect();
        let instrs: usize = parts.iter().map(|part| part.value.instrs() + 2).sum();
        let room = Room { instrs, views: operands.len() + parts.len() };
        let number = self.make_room(at, &operands, first, room)?;
        for (part, target) in parts.iter().zip(to) {
            let (_, group) = self.queues[at].split(number, target.device(), target.shape(), &operands);
            let reg = match &part.value {
                Value::Loaded(of) => group.load(&of.storage, &joined.part(&of.layout), of.dtype, None),
                Value::Computed(of) => {
                    let load = |into: &mut FusedGroup, load: &Load| {
                        into.load(&load.storage, &joined.part(&load.layout), load.dtype, None)
                    };
                    // The program has only sources that any group can have.
                    let Some(moved) = group.take_over(of, load) else { continue };
                    moved.of(of.nodes[0].reg)
                }
            };
            let reg = group.cast(reg, target.dtype());
            self.push_node(at, number, reg, target, joined.name);
        }
        self.after_submit(at)
    }
}
