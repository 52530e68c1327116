//! Operations: each is one value, defined in one place.
//!
//! An [`Op`] holds its name, documentation, runnable example, signature and code. Everything else (lookup,
//! arity errors, completion, help, reference pages, conformance tests over dtypes and layouts) is derived
//! from the tables. No enum lists the operations, and no `match` dispatches on their names. Independent of
//! script values: the virtual machine binds them to [`Args`].
//!
//! To add an operation, write its value into the table of its file.

pub mod activation;
mod apply;
mod args;
pub mod arith;
pub mod assertion;
mod autocast;
mod bags;
mod cells;
pub mod comm;
pub mod compare;
pub mod complex;
mod composed;
pub mod contract;
pub mod data;
pub mod diagonal;
pub mod dims;
#[cfg(feature = "dist")]
pub mod dist;
pub mod distinct;
pub mod einsum;
pub mod elementary;
pub mod error;
pub mod factory;
pub mod fft;
pub mod folds;
mod formula;
pub mod frequent;
pub mod gates;
pub mod gradient;
mod halves;
pub mod histogram;
pub mod index;
pub mod inspect;
pub mod join;
pub mod known;
pub mod layers;
pub mod logic;
pub mod losses;
mod make;
mod map;
pub mod masks;
pub mod matmul;
pub mod moments;
pub mod neighbours;
mod norms;
mod nuclear;
mod padding;
pub mod params;
mod power;
pub mod random;
pub mod ranges;
mod recurrent;
pub mod reduce;
pub mod round;
pub mod scan;
mod scatter;
pub mod search;
pub mod select;
pub mod shape;
pub mod show;
pub mod signature;
mod slopes;
pub mod sort;
pub mod special;
pub mod split;
pub mod stacks;
pub mod statistics;
pub mod strided;
pub mod subscript;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod transfer;

#[cfg(test)]
pub(crate) use apply::heard;
pub use apply::{Call, apply, collective};
pub use args::{Arg, Args, Data, Out};
#[cfg(test)]
pub(crate) use composed::default_arg;
pub use gradient::{Gradient, Keeps};
pub use map::{MapOp, Rule, in_place, map};

use crate::base::Result;
use crate::kernel::MapFn;
use crate::plan::Runtime;
use crate::tensor::Tensor;
use known::ShapeRule;
use signature::{Param, Signature};

/// An operation.
pub struct Op {
    /// The name in scripts; `fft.fft` for one in a namespace. In-place methods are derived: an op whose form
    /// has `in_place` is also the method `name_`.
    pub name: &'static str,
    /// Markdown: one sentence with a verb in the third person, then the important details: shapes, dtypes,
    /// errors, and the PyTorch page if there is one.
    pub doc: &'static str,
    /// Search terms for this operation.
    pub search: &'static [&'static str],
    /// Its parameters; for a method, the receiver comes first.
    pub params: &'static [Param],
    /// The forms in which it may be called.
    pub form: Form,
    /// A script that runs and asserts its results.
    pub example: &'static str,
    /// Its implementation.
    pub run: Run,
    /// PyTorch's aliases for it; they accept the same forms.
    pub aliases: &'static [&'static str],
    /// Names in other libraries that Runnel does not accept, for the help on an unknown name.
    pub foreign: Foreign,
    /// The part of its result that `check` can infer before anything runs.
    pub shape: ShapeRule,
    /// Its gradient rule.
    pub gradient: Gradient,
}

/// Names of an operation in other libraries, and what to write instead.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// The names.
    pub names: &'static [&'static str],
    /// The replacement: "write `x.to(f32)`".
    pub help: &'static str,
}

/// The forms in which an operation may be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// `name(x)`
    pub function: bool,
    /// `x.name()`
    pub method: bool,
    /// `x.name_()`: writes the result into `x`. For a view, changes the shape of `x` itself.
    pub in_place: bool,
}

impl Form {
    /// Not callable by name: an operation behind syntax, such as `x[i]`.
    pub const INTERNAL: Form = Form { function: false, method: false, in_place: false };
    /// `f(x)` and `x.f()`
    pub const BOTH: Form = Form { function: true, method: true, in_place: false };
    /// Only `f(x)`
    pub const FUNCTION: Form = Form { function: true, method: false, in_place: false };
    /// Only `x.f()`
    pub const METHOD: Form = Form { function: false, method: true, in_place: false };
    /// `f(x)`, `x.f()` and `x.f_()`
    pub const ALL: Form = Form { function: true, method: true, in_place: true };
}

/// The implementation of an operation.
pub enum Run {
    /// Elementwise: the dtype rule and the planner do everything.
    Map(MapOp),
    /// Elementwise over two operands. The second is first multiplied by a third parameter, `alpha` (by the
    /// second function), unless that is 1. `add`, `sub`
    Scaled(MapOp, &'static MapFn),
    /// Elementwise; the arguments choose the function. The first is used without arguments. `div`
    Chosen(MapOp, fn(&Args<'_>) -> Result<MapOp>),
    /// Elementwise, and Rust code for calls without some of the operands. `where`
    MapOr(MapOp, fn(&mut Runtime, &Args<'_>) -> Result<Out>),
    /// Rust code that uses the planner's primitives.
    Primitive(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
    /// Rust code that calls other operations by name (`composed`).
    Composed(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
    /// As `Composed`, with separate code for the in-place form, which writes the first argument itself.
    /// `fill`
    Both(fn(&mut Runtime, &Args<'_>) -> Result<Out>, fn(&mut Runtime, &'static str, &Args<'_>) -> Result<()>),
    /// Rust code that writes a part of the first argument, in place or in a copy. It checks everything before it
    /// writes. `index_add`
    Written(fn(&mut Runtime, &'static str, &Args<'_>, &Tensor) -> Result<()>),
    /// As `Written`, but a copy keeps the memory order of the argument. `index_fill`
    WrittenInOrder(fn(&mut Runtime, &'static str, &Args<'_>, &Tensor) -> Result<()>),
    /// A view of the first argument. The in-place form changes the shape and strides of the tensor itself,
    /// and writes no elements. `t`
    View(fn(&mut Runtime, &Args<'_>) -> Result<Out>),
}

impl Op {
    /// The defaults of most rows: no other names, no rule for `check`, no gradient.
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

    /// The signature of its calls.
    pub fn signature(&self) -> Signature {
        Signature { params: self.params }
    }

    /// The function and dtype rule if the operation is elementwise over plain operands (`alpha` is 1): the
    /// fast path of operators, without bound arguments.
    pub fn elementwise(&self) -> Option<&MapOp> {
        match &self.run {
            Run::Map(op) | Run::MapOr(op, _) | Run::Scaled(op, _) | Run::Chosen(op, _) => Some(op),
            Run::Primitive(_)
            | Run::Composed(_)
            | Run::Both(..)
            | Run::Written(_)
            | Run::WrittenInOrder(_)
            | Run::View(_) => None,
        }
    }
}
