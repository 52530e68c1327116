//! Operations: one operation is one value, in one place.
//!
//! An [`Op`] holds its name, documentation, runnable example, signature and code; everything else
//! (lookup, arity errors, completion, help, reference pages, conformance tests over dtypes and
//! layouts) is derived from the tables. No enum lists the operations, and no `match` is over their
//! names. Knows nothing of script values: the virtual machine binds them to [`Args`].
//!
//! To add an operation, write its value into the table of the file it belongs to.

pub mod activation;
mod args;
pub mod arith;
pub mod assertion;
pub mod compare;
pub mod complex;
mod composed;
pub mod contract;
pub mod data;
pub mod diagonal;
pub mod dims;
pub mod distinct;
pub mod einsum;
pub mod elementary;
pub mod error;
pub mod factory;
pub mod fft;
pub mod folds;
pub mod histogram;
pub mod index;
pub mod inspect;
pub mod join;
pub mod known;
pub mod logic;
mod make;
mod map;
pub mod matmul;
pub mod moments;
mod nuclear;
pub mod params;
pub mod random;
pub mod ranges;
pub mod reduce;
pub mod round;
pub mod scan;
mod scatter;
pub mod search;
pub mod select;
pub mod shape;
pub mod show;
pub mod signature;
pub mod sort;
pub mod statistics;
pub mod subscript;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use args::{Arg, Args, Data, Out};
pub use map::{MapOp, Rule, in_place, map};

use crate::base::Result;
use crate::kernel::MapFn;
use crate::plan::Runtime;
use signature::{Param, Signature};

/// An operation.
pub struct Op {
    /// What users write; `fft.fft` for one in a namespace. In-place methods are derived: an op
    /// whose form has `in_place` also is the method `name_`.
    pub name: &'static str,
    /// Markdown: one sentence with a verb in the third person, then what matters. Shapes, dtypes,
    /// errors; the PyTorch page where it has one.
    pub doc: &'static str,
    /// Words people would search for.
    pub search: &'static [&'static str],
    /// Its parameters, a method's receiver first.
    pub params: &'static [Param],
    /// How it may be called.
    pub form: Form,
    /// A script that runs, and asserts what it shows.
    pub example: &'static str,
    /// What it does.
    pub run: Run,
}

/// How an operation may be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// `name(x)`
    pub function: bool,
    /// `x.name()`
    pub method: bool,
    /// `x.name_()`: writes the result into `x`; that of a view gives `x` itself its shape.
    pub in_place: bool,
}

impl Form {
    /// `f(x)` and `x.f()`
    pub const BOTH: Form = Form { function: true, method: true, in_place: false };
    /// `f(x)` alone
    pub const FUNCTION: Form = Form { function: true, method: false, in_place: false };
    /// `x.f()` alone
    pub const METHOD: Form = Form { function: false, method: true, in_place: false };
    /// `f(x)`, `x.f()` and `x.f_()`
    pub const ALL: Form = Form { function: true, method: true, in_place: true };
}

/// What an operation does.
pub enum Run {
    /// Elementwise: rules and the planner do everything.
    Map(MapOp),
    /// Elementwise over two operands, the second multiplied by a third parameter, `alpha`, first
    /// (by the second function) unless that is 1. `add`, `sub`
    Scaled(MapOp, &'static MapFn),
    /// Elementwise, by what the arguments choose; without them, by the first. `div`
    Chosen(MapOp, fn(&Args<'_>) -> Result<MapOp>),
    /// Rust code over the planner's primitives and other operations.
    Call(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
    /// The same, and code for the in-place form, which writes the first argument itself. `fill`
    Both(fn(&mut Runtime, &Args<'_>) -> Result<Out>, fn(&mut Runtime, &'static str, &Args<'_>) -> Result<()>),
    /// A view of the first argument: the in-place form changes the tensor's own shape and strides, and writes
    /// nothing. `t`
    View(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
}

impl Op {
    /// How it is called.
    pub fn signature(&self) -> Signature {
        Signature { params: self.params }
    }

    /// Its function and dtype rule, when it is elementwise over plain operands (`alpha` is 1): the
    /// short way for operators, without bound arguments.
    pub fn elementwise(&self) -> Option<&MapOp> {
        match &self.run {
            Run::Map(op) | Run::Scaled(op, _) | Run::Chosen(op, _) => Some(op),
            Run::Call(_) | Run::Both(..) | Run::View(_) => None,
        }
    }

    /// Runs it on bound arguments, one per parameter.
    pub fn call(&self, rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
        match &self.run {
            Run::Map(op) => map::call(rt, self.name, op, args).map(Out::Tensor),
            Run::Scaled(op, scaled) => {
                map::call(rt, self.name, &map::scaled(op, scaled, args)?, args).map(Out::Tensor)
            }
            Run::Chosen(_, choose) => map::call(rt, self.name, &choose(args)?, args).map(Out::Tensor),
            Run::Call(f) | Run::Both(f, _) | Run::View(f) => rt.named(self.name, |rt| f(rt, args)),
        }
    }

    /// Runs the in-place form `name_`: the first argument receives the result.
    pub fn call_in_place(&self, rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
        let name = table::in_place_name(self);
        match &self.run {
            Run::Map(op) => map::call_in_place(rt, name, op, args).map(Out::Tensor),
            Run::Scaled(op, scaled) => {
                map::call_in_place(rt, name, &map::scaled(op, scaled, args)?, args).map(Out::Tensor)
            }
            Run::Chosen(_, choose) => map::call_in_place(rt, name, &choose(args)?, args).map(Out::Tensor),
            Run::Call(f) => {
                let target = args.tensor(0)?.clone();
                let result = rt.named(name, |rt| f(rt, args))?;
                let Out::Tensor(result) = result else { return Ok(Out::Tensor(target)) };
                map::check_fits(name, result.dtype(), &target)?;
                rt.assign(name, &target, &result)?;
                Ok(Out::Tensor(target))
            }
            Run::Both(_, write) => {
                rt.named(name, |rt| write(rt, name, args))?;
                Ok(Out::Tensor(args.tensor(0)?.clone()))
            }
            Run::View(f) => {
                let target = args.tensor(0)?;
                if let Out::Tensor(view) = rt.named(name, |rt| f(rt, args))? {
                    // What is queued asks for the tensor's layout when it is launched.
                    rt.flush()?;
                    target.relay(view.layout().clone());
                }
                Ok(Out::Tensor(target.clone()))
            }
        }
    }
}
