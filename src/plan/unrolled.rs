//! Reductions of few elements as elementwise work.
//!
//! Note [Unrolled reductions]. A reduction of up to [`MOST`] elements per result can be elementwise work over the results:
//! each element is a view of the operand. The lengths of vectors in `(v * v).sum(-1).sqrt()` then join the work before and
//! after them, whatever its shape is, and `v * v` is computed in registers (Note [Computed again] in `again`). Work that
//! reads such a result for each element computes it again.
//!
//! It stays a reduction with `keepdim`, since the kernel of rows may combine its result with the rows; while a chain waits,
//! which it continues; and if the group that computes its operand stores something else, since that launch can reduce as
//! well.
//!
//! The bits are those of the reduction, whose order depends only on the number of elements: element `i` is that of lane
//! `i`, and lanes combine by halving. Lanes without an element change nothing, except that a float sum begins with +0.

use super::chain::{MAX_GROUPS, part_and_node};
use super::deferred::DEFERRED;
use super::flush::is_wanted;
use super::gather::GATHERED;
use super::operands::{Reading, push_number, register};
use super::queue::{FusedGroup, Node, Queue};
use super::reduce::Reduction;
use super::rounds::Room;
use super::{MAX_INSTRS, MAX_VIEWS, MapArg, Runtime};
use crate::array::{Class, Dtype, Layout, Scalar, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{MapFn, ReduceFn, SELECT, Unrolled};
use crate::tensor::{Pending, Tensor};
use smallvec::{SmallVec, smallvec};

/// Maximum number of elements that are combined into one.
const MOST: usize = 8;

/// The same for elements that are adjacent in memory: the kernel of rows reads more of them in fewer instructions.
const MOST_ADJACENT: usize = 4;

/// The part of a group that one unrolled reduction may take.
const MOST_INSTRS: usize = MAX_INSTRS / 4 * 3;
const MOST_VIEWS: usize = MAX_VIEWS / 4 * 3;

/// Views of the elements that are combined into one result, over the shape of the results.
type Elements = SmallVec<[Tensor; MOST]>;

/// A reduction that is to be elementwise work.
pub(super) struct Unrolling {
    elements: Elements,
    /// What it adds to a group.
    room: Room,
    from: From,
}

/// Where the elements come from.
enum From {
    /// Memory, or a deferred value.
    Views,
    /// The instructions of a group, by its number.
    Group(usize),
    /// Registers of the open group, which writes them to the parts of the operand.
    Registers(SmallVec<[u16; MOST]>),
}

/// The elements of each result of a reduction, in row-major order.
fn elements(x: &Tensor, dims: &[usize]) -> Elements {
    let Layout { shape, strides, offset } = x.layout();
    let kept = |d: &usize| !dims.contains(d);
    let rest = (0..shape.len()).filter(kept);
    let (shape_of, strides_of) =
        (rest.clone().map(|d| shape[d]).collect(), rest.map(|d| strides[d]).collect());
    let results = Layout { shape: shape_of, strides: strides_of, offset: *offset };
    let mut offsets: SmallVec<[usize; MOST]> = smallvec![*offset];
    for &d in dims {
        let along =
            |&first: &usize| (0..shape[d]).map(move |i| first.wrapping_add_signed(i as isize * strides[d]));
        offsets = offsets.iter().flat_map(along).collect();
    }
    offsets.into_iter().map(|offset| x.with_layout(Layout { offset, ..results.clone() })).collect()
}

impl Runtime {
    /// How a reduction in queue `at` becomes elementwise work; `None` if it remains a reduction.
    pub(super) fn unrolls(
        &mut self,
        at: usize,
        x: &Tensor,
        reduction: &Reduction<'_>,
    ) -> Result<Option<Unrolling>> {
        let &Reduction { f, dims, keepdim, .. } = reduction;
        let length: usize = dims.iter().map(|&d| x.shape()[d]).product();
        let is_adjacent = dims.last().is_some_and(|&d| d + 1 == x.rank());
        let most = if is_adjacent { MOST_ADJACENT } else { MOST };
        if f.unrolled.is_none()
            || keepdim
            || !(2..=most).contains(&length)
            || x.count() < 2 * length
            || x.device() == DeviceId::Cpu
            || !self.settings.fuse
            || self.settings.launch_blocking
        {
            return Ok(None);
        }
        let elements = elements(x, dims);
        let Some(unrolling) = self.queues[at].unrolling(at, x, f, &elements) else { return Ok(None) };
        let From::Group(part) = unrolling.from else { return Ok(Some(unrolling)) };
        let queue = &self.queues[at];
        let joins = |open: &FusedGroup| {
            same(&open.shape, unrolling.elements[0].shape()) && queue.has_room_for(unrolling.room)
        };
        if part < queue.chain.len() && !queue.group.as_deref().is_none_or(joins) {
            // The open group would leave first, which would store the elements: let the elements' group be the open one.
            self.resume_aside(at, x)?;
            let queue = &self.queues[at];
            let is_open =
                |one: &Unrolling| matches!(one.from, From::Group(part) if part == queue.chain.len());
            return Ok(queue.unrolling(at, x, f, &elements).filter(is_open));
        }
        Ok(Some(unrolling))
    }

    /// Submits a reduction of these elements as elementwise work. The results have been noted.
    pub(super) fn reduce_unrolled(
        &mut self,
        at: usize,
        x: &Tensor,
        unrolling: &Unrolling,
        reduction: &Reduction<'_>,
        (value, index): (Option<Tensor>, Option<Tensor>),
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let &Reduction { name, f, compute, dtype, .. } = reduction;
        let Unrolling { elements, room, from } = unrolling;
        let (Some(target), Some(unrolled)) = (value.as_ref().or(index.as_ref()), &f.unrolled) else {
            return Ok((value, index));
        };
        let operands: SmallVec<[MapArg<'_>; MOST]> = elements.iter().map(MapArg::Tensor).collect();
        let queue = &mut self.queues[at];
        let part = match *from {
            From::Views => self.make_room(at, &operands, target, *room)?,
            From::Registers(_) => queue.chain.len(),
            From::Group(part) => {
                if part == queue.chain.len() {
                    queue.close();
                }
                queue.chain.len()
            }
        };
        let (reading, group) = self.queues[at].split(part, x.device(), target.shape(), &operands);
        group.is_unrolled = true;
        let reading = Reading { is_unrolled: true, ..reading };
        let regs = match from {
            From::Registers(regs) => regs.clone(),
            _ => elements.iter().map(|element| register(group, reading, element)).collect(),
        };
        let regs: SmallVec<[u16; MOST]> = regs.iter().map(|&reg| group.converted(reg, compute)).collect();
        match *unrolled {
            Unrolled::Combined { f: combine, divide } => {
                let acc = if dtype.is_float() { compute.accumulator() } else { dtype };
                let reg = group.combined(combine, (f.init)(acc.class()), &regs, acc);
                let reg = match divide {
                    Some(divide) => {
                        let count = push_number(group, Scalar::Int(elements.len() as i64).bits_as(acc), acc);
                        group.push(divide, [reg, count].into_iter().collect(), acc.class(), acc)
                    }
                    None => reg,
                };
                let reg = group.cast(reg, dtype);
                self.add_node(at, part, reg, target, name)?;
            }
            Unrolled::Chosen { keeps, equal, greater } => {
                let (reg, position) = group.chosen((keeps, equal, greater), &regs, compute);
                let reg = group.cast(reg, dtype);
                if let Some(value) = &value {
                    self.push_node(at, part, reg, value, name);
                }
                if let Some(index) = &index {
                    self.push_node(at, part, position, index, name);
                }
                self.after_submit(at)?;
            }
        }
        Ok((value, index))
    }
}

impl Queue {
    /// How a reduction of these elements may become elementwise work.
    fn unrolling(&self, at: usize, x: &Tensor, f: &ReduceFn, elements: &Elements) -> Option<Unrolling> {
        let combining = match f.unrolled? {
            Unrolled::Combined { .. } => elements.len() + 1,
            Unrolled::Chosen { .. } => 5 * (elements.len() - 1),
        };
        // And a conversion of each element.
        let mut room = Room { instrs: combining + elements.len(), views: 2 };
        let mut from = From::Views;
        let joins = |open: &FusedGroup| same(&open.shape, elements[0].shape());
        match x.storage().pending() {
            None => {
                x.storage().memory()?;
                room.views += elements.len();
            }
            Some(pending) if usize::from(pending.queue) != at || self.begins_with_reduction() => return None,
            Some(Pending { node: GATHERED, .. }) => return None,
            Some(Pending { node: DEFERRED, .. }) => {
                let value = self.deferred_with(x.storage())?;
                for element in elements {
                    let needs = value.needs(element).filter(|needs| needs.bends.is_empty())?;
                    room.instrs += needs.instrs;
                    room.views += needs.loads;
                }
                if !self.group.as_deref().is_none_or(joins) || !self.has_room_for(room) {
                    return None;
                }
            }
            Some(Pending { node, .. }) => {
                let (part, node) = part_and_node(node);
                let group = self.groups().nth(part)?;
                if part == self.chain.len()
                    && joins(group)
                    && self.has_room_for(room)
                    && let Some(regs) = group.writes_parts(elements)
                {
                    return Some(Unrolling { elements: elements.clone(), room, from: From::Registers(regs) });
                }
                if part == self.chain.len() && !self.may_wait_unrolled(node, elements.len()) {
                    return None;
                }
                for element in elements {
                    let (instrs, loads) = group.size_again(part, node, element)?;
                    room.instrs += instrs;
                    room.views += loads;
                }
                from = From::Group(part);
            }
        }
        let fits = room.instrs <= MOST_INSTRS && room.views <= MOST_VIEWS;
        fits.then(|| Unrolling { elements: elements.clone(), room, from })
    }

    /// True when the open group may wait in the chain for work that computes node `node` again, and nothing else makes the
    /// group a launch. `elements` is the number of views of the node's value.
    fn may_wait_unrolled(&self, node: usize, elements: usize) -> bool {
        let Some(open) = &self.group else { return false };
        let stores = |(number, one): (usize, &Node)| {
            let Some(storage) = &one.storage else { return false };
            match number == node {
                // The node, the operand of the reduction and its elements refer to it.
                true => storage.memory().is_some() || storage.holders() > 2 + elements,
                false => is_wanted(std::iter::once(&**open), storage),
            }
        };
        self.chain.len() < MAX_GROUPS
            && self.aside().is_none()
            && open.reduce.is_none()
            && !open.uses_position()
            && !open.is_turned()
            && !open.gathers()
            && !open.nodes.iter().enumerate().any(stores)
    }
}

impl FusedGroup {
    /// The registers that the group writes to these views of one storage, if it writes nothing else there.
    fn writes_parts(&self, elements: &Elements) -> Option<SmallVec<[u16; MOST]>> {
        let storage = elements[0].storage();
        let is_part = |node: &&Node| node.storage.as_ref().is_some_and(|own| own.is(storage));
        let of = |element: &Tensor| {
            self.nodes.iter().filter(is_part).find(|node| node.is_value_of(element)).map(|node| node.reg)
        };
        let regs = elements.iter().map(of).collect::<Option<_>>()?;
        (self.nodes.iter().filter(is_part).count() == elements.len()).then_some(regs)
    }

    /// The register of the combination of registers, in the order of a reduction.
    fn combined(&mut self, f: &'static MapFn, init: u64, regs: &[u16], dtype: Dtype) -> u16 {
        let mut lanes: SmallVec<[Option<u16>; MOST]> = regs.iter().copied().map(Some).collect();
        lanes.resize(regs.len().next_power_of_two(), None);
        if dtype.is_float() && init == 0 {
            let zero = push_number(self, init, dtype);
            lanes[0] = Some(self.push(f, [zero, regs[0]].into_iter().collect(), dtype.class(), dtype));
        }
        while lanes.len() > 1 {
            let half = lanes.len() / 2;
            for lane in 0..half {
                if let (Some(a), Some(b)) = (lanes[lane], lanes[lane + half]) {
                    lanes[lane] = Some(self.push(f, [a, b].into_iter().collect(), dtype.class(), dtype));
                }
            }
            lanes.truncate(half);
        }
        lanes[0].unwrap_or(0)
    }

    /// The registers of the best value and its position. `keeps` is true when the first value is not worse than the second
    /// and neither is nan. The first nan wins, and the first of equal values.
    fn chosen(
        &mut self,
        (keeps, equal, greater): (&'static MapFn, &'static MapFn, &'static MapFn),
        regs: &[u16],
        dtype: Dtype,
    ) -> (u16, u16) {
        let number = |group: &mut FusedGroup, i: usize| push_number(group, i as u64, Dtype::I64);
        let (class, mut held, mut position) = (dtype.class(), regs[0], number(self, 0));
        let test = |group: &mut FusedGroup, f, a, b, class| {
            group.push(f, [a, b].into_iter().collect(), class, Dtype::Bool)
        };
        for (i, &new) in regs.iter().enumerate().skip(1) {
            let keep = test(self, keeps, held, new, class);
            let is_number = test(self, equal, held, held, class);
            let wins = test(self, greater, is_number, keep, Class::I64);
            let at = number(self, i);
            held = self.push(&SELECT, [wins, new, held].into_iter().collect(), class, dtype);
            position = self.push(&SELECT, [wins, at, position].into_iter().collect(), Class::I64, Dtype::I64);
        }
        (held, position)
    }
}
