//! Deferred elementwise steps of formulas, which are submitted together.
//!
//! Note [Formulas]. The rule of `tanh` is `g * (1 - y * y)`: three operations. Each would be a tensor that costs time
//! in the race checker, the queue and the allocator, and that only the next step reads. So an elementwise step of a
//! formula is deferred, and submitted together with the steps that use it, as one node of the queue (`plan/steps.rs`).
//! The instructions are the same as those of separate steps, and so are the bits. A step that other parts of the
//! formula use as well becomes a tensor, which they share.
//!
//! A step is deferred only if it is not recorded, if fusion is on, and if its operands are numbers or tensors of one
//! shape on one device. Every other step is an ordinary operation, which also reports errors.

use super::var::Compute;
use crate::array::{Dtype, Layout, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{CAST, MapFn};
use crate::ops::map::MapOp;
use crate::ops::{Arg, Run, error, table};
use crate::plan::{MAX_STEPS, MOST_STEPS, MapArg, Runtime, Step, StepArg, ordered_over};
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};
use std::cell::OnceCell;
use std::rc::Rc;

/// A deferred step.
pub struct Work {
    name: &'static str,
    f: &'static MapFn,
    args: SmallVec<[Given; 3]>,
    /// The dtype that operands are read as.
    compute: Dtype,
    /// The dtype of the result.
    pub dtype: Dtype,
    /// The layout of the result.
    pub layout: Layout,
    device: DeviceId,
    /// The number of steps, with those of the operands.
    steps: usize,
    /// The result, after submission; `None` after an error.
    made: OnceCell<Option<Tensor>>,
}

/// An operand of a step.
#[derive(Clone)]
pub enum Given {
    /// A tensor.
    Tensor(Tensor),
    /// A number.
    Number(Scalar),
    /// A deferred step.
    Work(Rc<Work>),
}

/// The operands of a step; `None` if one of them is something else.
pub type Operands = Option<SmallVec<[Given; 3]>>;

impl Given {
    /// An argument as an operand.
    pub fn of(arg: &Arg) -> Option<Given> {
        Some(match arg {
            Arg::Tensor(tensor) => Given::Tensor(tensor.clone()),
            Arg::Int(number) => Given::Number(Scalar::Int(*number)),
            Arg::Float(number) => Given::Number(Scalar::Float(*number)),
            Arg::Bool(number) => Given::Number(Scalar::Bool(*number)),
            _ => return None,
        })
    }

    /// Layout, dtype and device, of a tensor.
    fn form(&self) -> Option<(&Layout, Dtype, DeviceId)> {
        match self {
            Given::Tensor(tensor) => Some((tensor.layout(), tensor.dtype(), tensor.device())),
            Given::Work(work) => Some((&work.layout, work.dtype, work.device)),
            Given::Number(_) => None,
        }
    }

    /// The dtype of a tensor.
    pub(super) fn dtype(&self) -> Option<Dtype> {
        self.form().map(|(_, dtype, _)| dtype)
    }

    /// As an operand of a dtype rule, which only reads dtypes.
    fn shown(&self) -> MapArg<'_> {
        match self {
            Given::Tensor(tensor) => MapArg::Tensor(tensor),
            Given::Number(number) => MapArg::Number(*number),
            Given::Work(work) => MapArg::Raw(0, work.dtype),
        }
    }

    /// As an operand of one of these steps, when they are submitted.
    fn as_operand<'s>(&'s self, all: &[&Rc<Work>]) -> StepArg<'s> {
        match self {
            Given::Tensor(tensor) => StepArg::Given(MapArg::Tensor(tensor)),
            Given::Number(number) => StepArg::Given(MapArg::Number(*number)),
            Given::Work(work) => match work.made.get() {
                Some(Some(tensor)) => StepArg::Given(MapArg::Tensor(tensor)),
                _ => StepArg::Step(all.iter().position(|one| Rc::ptr_eq(one, work)).unwrap_or_default()),
            },
        }
    }

    fn is(&self, work: &Rc<Work>) -> bool {
        matches!(self, Given::Work(own) if Rc::ptr_eq(own, work))
    }
}

impl Work {
    /// Defers an elementwise operation. `None` if it must not be deferred.
    pub(super) fn of(back: &(dyn Compute + '_), name: &str, args: Operands) -> Option<Rc<Work>> {
        let (args, op) = (args?, table::find(name)?);
        let rule = match &op.run {
            Run::Map(rule) | Run::Scaled(rule, _) | Run::Chosen(rule, _) | Run::MapOr(rule, _) => rule,
            _ => return None,
        };
        if usize::from(rule.f.arity) != args.len() {
            return None;
        }
        Work::with(back, op.name, args, |args| rule_of(rule, op.name, args))
    }

    /// A deferred conversion.
    pub(super) fn cast(back: &(dyn Compute + '_), x: Given, dtype: Dtype) -> Option<Rc<Work>> {
        let (layout, from, _) = x.form()?;
        if !layout.is_contiguous() || dtype.is_complex() {
            return None;
        }
        Work::with(back, "to", smallvec![x], |_| Some((&CAST, from, dtype)))
    }

    fn with(
        back: &(dyn Compute + '_),
        name: &'static str,
        mut args: SmallVec<[Given; 3]>,
        rule: impl FnOnce(&[Given]) -> Option<(&'static MapFn, Dtype, Dtype)>,
    ) -> Option<Rc<Work>> {
        let (first, _, device) = args.iter().find_map(Given::form)?;
        let shape = &first.shape;
        let fits = |arg: &Given| match arg.form() {
            Some((layout, dtype, own)) => layout.shape == *shape && own == device && !dtype.is_complex(),
            None => !matches!(arg, Given::Number(Scalar::Complex(..))),
        };
        if shape.is_empty() || first.count() == 0 || !args.iter().all(fits) {
            return None;
        }
        let (f, compute, dtype) = rule(&args)?;
        let mut may_wait = false;
        back.look(&mut |rt| {
            let is_recorded = rt.recording.used && rt.recording.enabled;
            may_wait = rt.settings.fuse && !is_recorded && !rt.settings.autocast.is_on();
            if may_wait {
                rt.count_operation();
            }
        });
        if !may_wait {
            return None;
        }
        let layout = {
            let layouts = args.iter().filter_map(|arg| arg.form().map(|(layout, ..)| layout));
            ordered_over(crate::array::copied(shape), &layouts.collect::<SmallVec<[&Layout; 3]>>())
        };
        let count = |arg: &Given| match arg {
            Given::Work(work) if work.made.get().is_none() => work.steps,
            _ => 0,
        };
        if args.iter().map(count).sum::<usize>() >= MAX_STEPS {
            for arg in &mut args {
                if let Given::Work(work) = arg {
                    *arg = Given::Tensor(work.tensor(back)?.clone());
                }
            }
        }
        let steps = 1 + args.iter().map(count).sum::<usize>();
        Some(Rc::new(Work { name, f, args, compute, dtype, layout, device, steps, made: OnceCell::new() }))
    }

    /// The result.
    pub(super) fn tensor(self: &Rc<Work>, back: &(dyn Compute + '_)) -> Option<&Tensor> {
        let made = self.made.get_or_init(|| {
            let mut all = Steps::new();
            self.order(&mut all);
            // Steps that other parts of the formula use too.
            let is_shared = |&(at, work): &(usize, &&Rc<Work>)| {
                let users = all[at + 1..].iter().flat_map(|user| &user.args).filter(|arg| arg.is(work));
                at + 1 < all.len() && Rc::strong_count(work) > users.count()
            };
            let shared: SmallVec<[&Rc<Work>; 2]> =
                all.iter().enumerate().filter(is_shared).map(|(_, work)| *work).collect();
            if !shared.is_empty() {
                for work in shared {
                    work.tensor(back)?;
                }
                all.clear();
                self.order(&mut all);
            }
            back.compute(&mut |rt| self.submit(rt, &all))
        });
        made.as_ref()
    }

    /// Adds the deferred steps, operands first.
    fn order<'s>(self: &'s Rc<Work>, all: &mut Steps<'s>) {
        if self.made.get().is_some() || all.iter().any(|work| Rc::ptr_eq(work, self)) {
            return;
        }
        for arg in &self.args {
            if let Given::Work(work) = arg {
                work.order(all);
            }
        }
        all.push(self);
    }

    fn submit(&self, rt: &mut Runtime, all: &[&Rc<Work>]) -> Result<Tensor> {
        let results = smallvec![(all.len() - 1, self.layout.clone())];
        let made = rt.map_steps(self.name, &steps_of(all), results, self.device)?;
        made.into_iter().next().ok_or_else(|| error::wrong_argument(0, "a tensor"))
    }

    /// Computes these results, of one shape, with the steps that they share. Does nothing if they do not fit.
    pub(super) fn together(back: &(dyn Compute + '_), works: &[&Rc<Work>]) {
        let [first, _, ..] = works else { return };
        let is_alike = |work: &&&Rc<Work>| {
            work.made.get().is_none()
                && work.layout.shape == first.layout.shape
                && work.device == first.device
        };
        let mut all = Steps::new();
        works.iter().for_each(|work| work.order(&mut all));
        if all.len() > MOST_STEPS || !works.iter().all(|work| is_alike(&work)) {
            return;
        }
        let place = |work: &Rc<Work>| all.iter().position(|one| Rc::ptr_eq(one, work)).unwrap_or_default();
        let mut made: SmallVec<[Tensor; 2]> = SmallVec::new();
        let done = back.compute(&mut |rt| {
            let results = works.iter().map(|work| (place(work), work.layout.clone())).collect();
            made = rt.map_steps(first.name, &steps_of(&all), results, first.device)?;
            made.first().cloned().ok_or_else(|| error::wrong_argument(0, "a tensor"))
        });
        for (number, work) in works.iter().enumerate() {
            let _ = work.made.set(done.as_ref().and_then(|_| made.get(number).cloned()));
        }
    }
}

/// Steps as they are submitted.
fn steps_of<'s>(all: &[&'s Rc<Work>]) -> SmallVec<[Step<'s>; 4]> {
    let mut steps = SmallVec::with_capacity(all.len());
    for work in all {
        let args = work.args.iter().map(|arg| arg.as_operand(all)).collect();
        steps.push(Step { f: work.f, args, compute: work.compute, dtype: work.dtype });
    }
    steps
}

/// Steps in the order in which they are submitted.
type Steps<'s> = SmallVec<[&'s Rc<Work>; MAX_STEPS]>;

/// The function of an elementwise operation, the dtype to compute in, and that of the result; `None` if there is an
/// error, for complex numbers, and if numbers have to be rounded first.
fn rule_of(rule: &MapOp, name: &str, args: &[Given]) -> Option<(&'static MapFn, Dtype, Dtype)> {
    let shown: SmallVec<[MapArg<'_>; 3]> = args.iter().map(Given::shown).collect();
    let (f, compute, dtype) = rule.resolve(name, &shown).ok()?;
    let is_plain = !compute.is_complex() && !dtype.is_complex() && rule.elements(&shown, compute).is_none();
    is_plain.then_some((f, compute, dtype))
}
