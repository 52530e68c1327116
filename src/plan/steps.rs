//! Formulas: several elementwise operations over one shape that are submitted as one.
//!
//! Intermediate results of a formula are registers. Submitted one by one they would be tensors that are dropped before
//! anything reads them: the same instructions, but each with an entry in the race checker, a storage and a node.

use super::queue::{apply_function, operand_register};
use super::{MapArg, Runtime};
use crate::array::{Dims, Dtype, Layout, result_strides, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{MapFn, Regs};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// The largest number of operations in a formula: as many instructions, and two conversions, fit the room that a group
/// keeps free.
pub const MAX_STEPS: usize = 6;

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
    /// Submits a formula: gives the result of its last step in a new tensor of this layout, which has elements.
    pub fn map_steps(
        &mut self,
        name: &'static str,
        steps: &[Step<'_>],
        layout: Layout,
        device: DeviceId,
    ) -> Result<Tensor> {
        let dtype = steps.last().map_or(Dtype::F32, |step| step.dtype);
        let place = self.place(device)?;
        let (at, owner) = (place.queue, place.device.clone());
        let read = steps.iter().flat_map(|step| &step.args).filter_map(StepArg::tensor);
        let tensor = self.note_result(name, at, read.clone(), owner, (layout, dtype))?;
        let operands: SmallVec<[MapArg<'_>; 8]> = read.map(MapArg::Tensor).collect();
        let part = self.make_room(at, &operands, &tensor)?;
        let queue = &mut self.queues[at];
        let group = match part == queue.chain.len() {
            true => queue.open(device, tensor.shape()),
            false => &mut queue.chain[part],
        };
        let mut made: SmallVec<[u16; MAX_STEPS]> = SmallVec::new();
        for &Step { f, ref args, compute, dtype } in steps {
            let regs: Regs = (args.iter().enumerate())
                .map(|(i, arg)| match *arg {
                    StepArg::Given(operand) => operand_register(group, part, f, i, operand, compute),
                    StepArg::Step(step) => group.read_as(made[step], f, i, compute),
                })
                .collect();
            made.push(apply_function(group, f, regs, compute, dtype));
        }
        let Some(&reg) = made.last() else { return Ok(tensor) };
        self.add_node(at, part, reg, &tensor, name)?;
        Ok(tensor)
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
