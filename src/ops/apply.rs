//! The entry point of tensor operations.
//!
//! Calls, methods, in-place forms, operators, indices, attributes, placements (`x on cuda`) and composed
//! operations all go through [`apply`]. Collectives, which have no rows, go through [`collective`].
//! Independent of script values and kernels. Invariant: nothing else runs the code of an [`Op`], so concerns
//! of all operations (counting, the recording of gradients) are handled in one place.

use super::params::REQUIRES_GRAD;
use super::{Args, Op, Out, Run, autocast, gradient, map, table};
use crate::base::Result;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;

/// A call of an operation.
#[derive(Clone, Copy)]
pub enum Call<'a> {
    /// `name(x)`, `x.name()`: bound arguments, one per parameter.
    Plain(Args<'a>),
    /// `x.name_()`: the first argument receives the result.
    InPlace(Args<'a>),
    /// The fast path of operators: the operands of an elementwise operation, passed by reference.
    Operands(&'a [MapArg<'a>]),
}

/// Applies an operation.
///
/// # Errors Those of the operation. E0504 if operands are passed to an operation that is not elementwise.
#[inline]
pub fn apply(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    rt.count_operation();
    #[cfg(test)]
    heard::note(op, &call);
    if let Call::Plain(args) = call
        && args.flag(op.params.len().wrapping_sub(1))
        && op.params.last().is_some_and(|param| param.name == REQUIRES_GRAD.name)
    {
        return made_with_gradients(rt, op, call);
    }
    if rt.settings.autocast.is_on()
        && let Some(out) = autocast::apply_cast(rt, op, call)?
    {
        return Ok(out);
    }
    again(rt, op, call)
}

/// A factory called with `requires_grad=true`.
#[cold]
fn made_with_gradients(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    let out = run(rt, op, call)?;
    if let Out::Tensor(tensor) = &out {
        gradient::require(rt, tensor, true)?;
    }
    Ok(out)
}

/// Applies an operation as part of another call of [`apply`], which has counted it.
#[inline]
pub(super) fn again(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    if rt.recording.used {
        return gradient::record::apply_recorded(rt, op, call);
    }
    run(rt, op, call)
}

/// Runs the code of an operation.
#[inline]
pub(super) fn run(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    match call {
        Call::Operands(operands) => match op.elementwise() {
            Some(f) => map::map(rt, op.name, f, operands).map(Out::Tensor),
            None => Err(super::error::wrong_argument(0, "operands of an elementwise operation")),
        },
        Call::Plain(args) => plain(rt, op, &args),
        Call::InPlace(args) => in_place(rt, op, &args),
    }
}

/// The runtime, for an operation between devices or processes (`comm`, `dist`), which has no row in the
/// table.
pub fn collective(rt: &mut Runtime) -> &mut Runtime {
    rt.count_operation();
    rt
}

/// Primitives whose work does not depend on the shape.
const OF_ANY_SHAPE: &[&str] = &["clone", "copy_", "fill", "zero", "to", "clamp"];

fn note_shape(rt: &mut Runtime, op: &Op) {
    rt.shapes_read += u64::from(!OF_ANY_SHAPE.contains(&op.name));
}

fn plain(rt: &mut Runtime, op: &'static Op, args: &Args<'_>) -> Result<Out> {
    match &op.run {
        Run::Map(f) => map::call(rt, op.name, f, args).map(Out::Tensor),
        Run::MapOr(f, _) if (0..usize::from(f.f.arity)).all(|i| args.is_given(i)) => {
            map::call(rt, op.name, f, args).map(Out::Tensor)
        }
        Run::Scaled(f, scaled) => {
            map::call(rt, op.name, &map::scaled(f, scaled, args)?, args).map(Out::Tensor)
        }
        Run::Chosen(_, choose) => map::call(rt, op.name, &choose(args)?, args).map(Out::Tensor),
        Run::MapOr(_, f) | Run::Primitive(f) | Run::Composed(f) | Run::Both(f, _) | Run::View(f) => {
            note_shape(rt, op);
            rt.named(op.name, |rt| f(rt, args))
        }
        Run::Written(write) | Run::WrittenInOrder(write) => {
            note_shape(rt, op);
            rt.named(op.name, |rt| {
                let x = args.tensor(0)?;
                let out = match op.run {
                    Run::WrittenInOrder(_) => rt.cast_ordered(x, x.dtype())?,
                    _ => rt.contiguous_copy(x)?,
                };
                write(rt, op.name, args, &out)?;
                Ok(Out::Tensor(out))
            })
        }
    }
}

fn in_place(rt: &mut Runtime, op: &'static Op, args: &Args<'_>) -> Result<Out> {
    let name = table::in_place_name(op);
    let target: &Tensor = args.tensor(0)?;
    match &op.run {
        Run::Map(f) | Run::MapOr(f, _) => map::call_in_place(rt, name, f, args)?,
        Run::Scaled(f, scaled) => map::call_in_place(rt, name, &map::scaled(f, scaled, args)?, args)?,
        Run::Chosen(_, choose) => map::call_in_place(rt, name, &choose(args)?, args)?,
        Run::Primitive(f) | Run::Composed(f) => {
            note_shape(rt, op);
            if let Out::Tensor(result) = rt.named(name, |rt| f(rt, args))? {
                map::check_fits(name, result.dtype(), target)?;
                rt.assign(name, target, &result)?;
            }
        }
        Run::Both(_, write) => rt.named(name, |rt| write(rt, name, args))?,
        Run::Written(write) | Run::WrittenInOrder(write) => {
            note_shape(rt, op);
            if crate::plan::overlaps_itself(target.layout()) {
                return Err(crate::plan::error::writes_overlap(name));
            }
            rt.named(name, |rt| write(rt, op.name, args, target))?;
        }
        Run::View(f) => {
            note_shape(rt, op);
            if let Out::Tensor(view) = rt.named(name, |rt| f(rt, args))? {
                // Queued work reads the tensor's layout when it is launched.
                rt.flush_for(target.storage())?;
                target.relay(view.layout().clone());
            }
        }
    }
    Ok(Out::Tensor(target.clone()))
}

/// The calls of [`apply`] on this thread, for tests of all operations.
#[cfg(test)]
pub(crate) mod heard {
    use super::{Call, Op, gradient};
    use crate::ops::Arg;
    use std::cell::RefCell;

    /// Operations with their bound arguments.
    pub type Calls = Vec<(&'static Op, Vec<Arg>)>;

    thread_local! {
        static CALLS: RefCell<Option<Calls>> = const { RefCell::new(None) };
    }

    /// The calls that `code` makes.
    pub fn during(code: impl FnOnce()) -> Calls {
        CALLS.with(|calls| *calls.borrow_mut() = Some(Vec::new()));
        code();
        CALLS.with(|calls| calls.borrow_mut().take()).unwrap_or_default()
    }

    pub(super) fn note(op: &'static Op, call: &Call<'_>) {
        CALLS.with(|calls| {
            let Some(calls) = &mut *calls.borrow_mut() else { return };
            let args = match call {
                Call::Plain(args) | Call::InPlace(args) => args.0.to_vec(),
                Call::Operands(operands) => gradient::record::bound(op, operands).to_vec(),
            };
            calls.push((op, args));
        });
    }
}
