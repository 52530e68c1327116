//! Values that a group computes again instead of reading them from memory.
//!
//! Note [Computed again]. An operand may be the result of a closed elementwise group over a smaller shape, which
//! waits in the same queue: `(x * scale[.., none]).sum(1)` after `let scale = -a / 2`. If that takes few instructions,
//! the group that reads the operand contains them too. If nothing else refers to the result, as for an intermediate
//! value of an expression, it is never stored, and its own group launches nothing. The bits are the same, because a
//! register is rounded after every instruction wherever it is computed.
//!
//! The instructions may read only memory that no queued work writes, so the repeated reads give the same values.

use super::aside::is_less;
use super::queue::{FusedGroup, RAW_INSTR, push_load, push_number};
use super::{MAX_INSTRS, MAX_VIEWS};
use crate::array::{Class, Layout, Strides};
use crate::kernel::{Instr, Regs, Source};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// Maximum number of instructions, and of operands in memory, that are repeated for one value.
const MOST_INSTRS: usize = 8;
const MOST_LOADS: usize = 4;

/// Maximum number of costly functions; one in `f64` counts twice.
const MOST_HEAVY: usize = 2;

/// Minimum ratio of the group's elements to those of the result that it computes again.
pub(super) const LEAST_RATIO: usize = 2;

/// Registers of a value in the order of their computation, operands first.
#[derive(Default)]
struct Registers {
    all: SmallVec<[u16; 24]>,
    instrs: usize,
    loads: usize,
    heavy: usize,
}

impl Registers {
    /// Adds a register and the registers that it depends on. `None` if these are too many or cannot be repeated.
    fn add(&mut self, from: &FusedGroup, reg: u16) -> Option<()> {
        if self.all.contains(&reg) {
            return Some(());
        }
        match reg.checked_sub(RAW_INSTR) {
            Some(number) => {
                let instr = &from.map.instrs[usize::from(number)];
                self.instrs += 1;
                self.heavy +=
                    if instr.is_heavy() { if instr.class == Class::F64 { 2 } else { 1 } } else { 0 };
                if self.instrs > MOST_INSTRS || self.heavy > MOST_HEAVY {
                    return None;
                }
                instr.args.iter().try_for_each(|&arg| self.add(from, arg))?;
            }
            None => match from.map.sources[usize::from(reg)] {
                Source::Load { view, .. } => {
                    let load = &from.loads[usize::from(view)];
                    self.loads += 1;
                    let storage = &load.storage;
                    let is_settled = storage.pending().is_none() && storage.memory().is_some();
                    // A loop that writes parts of a tensor will probably write another part next.
                    let is_part = load.layout.bytes(load.dtype) != storage.bytes();
                    let is_changing = storage.is_written_in_parts() && is_part;
                    if self.loads > MOST_LOADS || load.turns.is_some() || !is_settled || is_changing {
                        return None;
                    }
                }
                Source::Number { .. } => {}
                Source::Position => return None,
            },
        }
        self.all.push(reg);
        Some(())
    }
}

/// The part of a value that a view reads: the value's dimension for each of the view's, and the first coordinate
/// in each of the value's.
struct Place {
    dims: SmallVec<[Option<usize>; 6]>,
    first: SmallVec<[usize; 6]>,
}

impl Place {
    /// The place of a view in a contiguous layout, if it is a range in each dimension.
    fn of(view: &Layout, whole: &Layout) -> Option<Place> {
        let rank = whole.shape.len();
        let mut extents: SmallVec<[usize; 6]> = SmallVec::from_elem(1, rank);
        let mut dims = SmallVec::new();
        for (&stride, &extent) in view.strides.iter().zip(&view.shape) {
            if extent == 1 || stride == 0 {
                dims.push(None);
                continue;
            }
            let is_it = |d: &usize| whole.shape[*d] != 1 && whole.strides[*d] == stride && extents[*d] == 1;
            let dim = (0..rank).find(is_it)?;
            extents[dim] = extent;
            dims.push(Some(dim));
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
        (rest == 0).then_some(Place { dims, first })
    }

    /// The layout under which an operand of the value, with these strides over it, is read for the view.
    fn layout(&self, view: &Layout, offset: usize, strides: &Strides) -> Option<Layout> {
        let at = |(&first, &stride): (&usize, &isize)| first as isize * stride;
        let moved: isize = self.first.iter().zip(strides).map(at).sum();
        Some(Layout {
            shape: view.shape.clone(),
            strides: self.dims.iter().map(|dim| dim.map_or(0, |dim| strides[dim])).collect(),
            offset: offset.checked_add_signed(moved)?,
        })
    }
}

impl FusedGroup {
    /// The register of an operand that node `node` of the earlier group `from` computes, if this group computes it
    /// again.
    pub(super) fn computed_again(&mut self, from: &FusedGroup, node: usize, operand: &Tensor) -> Option<u16> {
        let node = from.nodes.get(node)?;
        let storage = node.storage.as_ref()?;
        let whole = node.layout(storage);
        if from.reduce.is_some()
            || node.dtype != operand.dtype()
            || whole.shape != from.shape
            || !whole.is_contiguous()
            || !is_less(&from.shape, &self.shape)
        {
            return None;
        }
        let mut needed = Registers::default();
        needed.add(from, node.reg)?;
        let size = self.size();
        if size.instrs + needed.instrs + 8 > MAX_INSTRS || size.views + needed.loads + 4 > MAX_VIEWS {
            return None;
        }
        let place = Place::of(operand.layout(), whole)?;
        let layouts = needed.all.iter().filter_map(|&reg| from.map.sources.get(usize::from(reg)));
        let layouts = layouts.filter_map(|source| match *source {
            Source::Load { view, .. } => {
                let load = &from.loads[usize::from(view)];
                Some(place.layout(operand.layout(), load.layout.offset, &load.strides))
            }
            _ => None,
        });
        let layouts: SmallVec<[Layout; MOST_LOADS]> = layouts.collect::<Option<_>>()?;
        let mut layouts = layouts.into_iter();
        let mut made: SmallVec<[u16; 24]> = SmallVec::new();
        for &reg in &needed.all {
            let new = match reg.checked_sub(RAW_INSTR) {
                Some(number) => {
                    let Instr { f, args, class, dtype } = &from.map.instrs[usize::from(number)];
                    let of = |&arg: &u16| made[needed.all.iter().position(|&old| old == arg).unwrap_or(0)];
                    let args: Regs = args.iter().map(of).collect();
                    self.push(f, args, *class, *dtype)
                }
                None => match from.map.sources[usize::from(reg)] {
                    Source::Load { view, dtype } => {
                        let load = &from.loads[usize::from(view)];
                        let layout = layouts.next()?;
                        match self.load_of(&load.storage, &layout, dtype, None) {
                            Some(load) => load.reg,
                            None => push_load(self, load.storage.clone(), &layout, dtype, None),
                        }
                    }
                    Source::Number { slot, dtype } => {
                        push_number(self, from.numbers[usize::from(slot)], dtype)
                    }
                    Source::Position => return None,
                },
            };
            made.push(new);
        }
        made.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Dims;

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
            let place = Place::of(layout, &whole)?;
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
    }
}
