//! Operations: one operation is one value, in one place.
//!
//! An [`Op`] holds its name, documentation, runnable example, signature and code; everything else
//! (lookup, arity errors, completion, help, reference pages, conformance tests over dtypes and
//! layouts) is derived from the tables. No enum lists the operations, and no `match` is over their
//! names. Knows nothing of script values: the virtual machine binds them to [`Args`].
//!
//! To add an operation, write its value into the table of the file it belongs to.

pub mod activation;
mod apply;
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

pub use apply::{Call, apply, collective};
pub use args::{Arg, Args, Data, Out};
pub use map::{MapOp, Rule, in_place, map};

use crate::base::Result;
use crate::kernel::MapFn;
use crate::plan::Runtime;
use known::ShapeRule;
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
    /// PyTorch's other names for it, in each of its forms.
    pub aliases: &'static [&'static str],
    /// What other libraries call it that Runnel does not accept, for the help of an unknown name.
    pub foreign: Foreign,
    /// What `check` knows of its result before anything runs.
    pub shape: ShapeRule,
    /// How gradients go through it.
    pub gradient: Gradient,
}

/// How gradients go through an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gradient {
    /// Nothing is stated.
    Unstated,
}

/// Names that an operation has elsewhere, and what to write instead of them.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// The names.
    pub names: &'static [&'static str],
    /// What to write: "write `x.to(f32)`".
    pub help: &'static str,
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
    /// Not by name: an operation behind syntax, as `x[i]`.
    pub const INTERNAL: Form = Form { function: false, method: false, in_place: false };
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
    /// Rust code over the planner's primitives.
    Primitive(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
    /// Rust code that calls other operations by name ([`composed`]).
    Composed(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
    /// The same, and code for the in-place form, which writes the first argument itself. `fill`
    Both(fn(&mut Runtime, &Args<'_>) -> Result<Out>, fn(&mut Runtime, &'static str, &Args<'_>) -> Result<()>),
    /// A view of the first argument: the in-place form changes the tensor's own shape and strides, and writes
    /// nothing. `t`
    View(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
}

impl Op {
    /// What most rows leave as it is: no other names, no rule for `check`, no gradient.
    pub const BASE: Op = Op {
        name: "",
        doc: "",
        search: &[],
        params: &[],
        form: Form::INTERNAL,
        example: "",
        run: Run::Primitive(|_, _| Ok(Out::None)),
        aliases: &[],
        foreign: Foreign { names: &[], help: "" },
        shape: ShapeRule::UNKNOWN,
        gradient: Gradient::Unstated,
    };

    /// How it is called.
    pub fn signature(&self) -> Signature {
        Signature { params: self.params }
    }

    /// Its function and dtype rule, when it is elementwise over plain operands (`alpha` is 1): the
    /// short way for operators, without bound arguments.
    pub fn elementwise(&self) -> Option<&MapOp> {
        match &self.run {
            Run::Map(op) | Run::Scaled(op, _) | Run::Chosen(op, _) => Some(op),
            Run::Primitive(_) | Run::Composed(_) | Run::Both(..) | Run::View(_) => None,
        }
    }
}
