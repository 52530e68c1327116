//! Formulas: several elementwise operations over one shape that are submitted as one.
//!
//! Intermediate results of a formula are registers. Submitted one by one, they would be tensors that are dropped
//! unread: the same instructions, but each with an entry in the race checker, a storage and a node.

use super::operands::{apply_function, operand_register};
use super::rounds::{FEW, Room};
use super::{MapArg, Runtime};
use crate::array::{Dims, Dtype, Layout, result_strides, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{MapFn, Regs};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// Maximum number of operations in a formula with one result; earlier ones are submitted first.
pub const MAX_STEPS: usize = 24;

/// The largest number of operations in a formula.
pub const MOST_STEPS: usize = 48;

/// One operation of a formula.
pub struct Step<'a> {
    /// The function.
    pub f: &'static MapFn,
    /// Its operands.
    pub args: SmallVec<[StepArg<'a>; 3]>,
    /// The dtype that operands are read as.
    pub compute: Dtype,
    /// The dtype of the result.
    pub dtype: Dtype,
}

/// An operand of a [`Step`].
pub enum StepArg<'a> {
    /// The result of an earlier step, by number.
    Step(usize),
    /// A tensor of the formula's shape and device, or a number.
    Given(MapArg<'a>),
}

impl<'a> StepArg<'a> {
    fn tensor(&self) -> Option<&'a Tensor> {
        match self {
            StepArg::Given(MapArg::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }
}

/// The layout of an elementwise result over a shape, in the memory order of its operands.
pub fn ordered_over(shape: Dims, operands: &[&Layout]) -> Layout {
    let mut layout = Layout::contiguous_over(shape);
    let plain = |own: &&Layout| same(&own.strides, &layout.strides) || own.is_contiguous();
    if layout.rank() > 1 && !operands.iter().all(plain) {
        layout.strides = result_strides(&layout.shape, operands);
    }
    layout
}

impl Runtime {
    /// Submits a formula. Returns the results of the given steps, by number, as new tensors of these layouts. The
    /// layouts have one shape, with at least one element.
    pub fn map_steps(
        &mut self,
        name: &'static str,
        steps: &[Step<'_>],
        results: SmallVec<[(usize, Layout); 2]>,
        device: DeviceId,
    ) -> Result<SmallVec<[Tensor; 2]>> {
        let place = self.place(device)?;
        let (at, owner) = (place.queue, place.device.clone());
        let read = steps.iter().flat_map(|step| &step.args).filter_map(StepArg::tensor);
        let operands: SmallVec<[MapArg<'_>; 8]> = read.map(MapArg::Tensor).collect();
        let count = results.len();
        let mut made: SmallVec<[Tensor; 2]> = SmallVec::new();
        let mut numbers: SmallVec<[usize; 2]> = SmallVec::new();
        for (step, layout) in results {
            // The operands are read once.
            let read = if made.is_empty() { &operands[..] } else { &[] };
            let read = read.iter().filter_map(MapArg::tensor);
            made.push(self.note_result(name, at, read, owner.clone(), (layout, steps[step].dtype))?);
            numbers.push(step);
        }
        let Some(first) = made.first() else { return Ok(made) };
        let room = Room { instrs: FEW.max(steps.len() + 2), views: operands.len() + count };
        let part = self.make_room(at, &operands, first, room)?;
        let (reading, group) = self.queues[at].split(part, device, first.shape(), &operands);
        let mut computed: SmallVec<[u16; MOST_STEPS]> = SmallVec::new();
        for &Step { f, ref args, compute, dtype } in steps {
            let mut reg = |i: usize| match args[i] {
                StepArg::Given(operand) => operand_register(group, reading, f, i, operand, compute),
                StepArg::Step(step) => group.read_as(computed[step], f, i, compute),
            };
            let regs = match args.len() {
                1 => Regs::first([reg(0), 0, 0, 0], 1),
                2 => Regs::first([reg(0), reg(1), 0, 0], 2),
                n => (0..n).map(reg).collect(),
            };
            computed.push(apply_function(group, f, regs, compute, dtype));
        }
        for (step, tensor) in numbers.into_iter().zip(&made) {
            self.push_node(at, part, computed[step], tensor, name);
        }
        self.after_submit(at)?;
        Ok(made)
    }
}

/// The results that were queued on this thread, for tests.
#[cfg(test)]
pub(crate) mod queued {
    use std::cell::Cell;

    thread_local! {
        static RESULTS: Cell<usize> = const { Cell::new(0) };
    }

    pub(in crate::plan) fn note() {
        RESULTS.with(|results| results.set(results.get() + 1));
    }

    /// The number of results that `code` queues.
    pub fn during(code: impl FnOnce()) -> usize {
        RESULTS.with(|results| results.set(0));
        code();
        RESULTS.with(Cell::get)
    }
}
