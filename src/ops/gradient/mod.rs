//! Gradients: how operations are recorded, and how `backward` walks the records.
//!
//! Each operation states in its row how gradients propagate through it ([`Gradient`]). While a tensor
//! requires gradients, [`apply`](super::apply) records the operations on it: every result refers to a
//! [`Node`] with the edges to the operands' nodes and the tensors that its rule needs ([`record`]).
//! [`Pass`] walks the nodes from the newest to the oldest and applies the rules ([`back`]), which compute
//! with ordinary operations, so gradients fuse, run on any device, and can be differentiated again.
//! Views and writes in place follow PyTorch ([`family`]).
//!
//! Independent of script values: hooks and gradients written in scripts are numbers that the caller of
//! [`Pass::advance`] resolves. Source: <https://pytorch.org/docs/stable/notes/autograd.html>

pub mod back;
pub mod error;
mod family;
mod hooks;
pub mod joined;
mod leaf;
pub mod node;
mod pass;
mod pending;
pub mod positions;
pub mod products;
mod reach;
pub mod record;
pub mod rules;
mod shares;
mod stored;
pub mod strided;
mod sums;
pub mod var;

pub use crate::tensor::Edge;
pub use back::Back;
pub use hooks::{Log, add_follower, add_hook, begin_log, end_log, release_kept, remove_hook, restore_kept};
pub use node::{Input, Node, RECORD_BYTES, Step, Varies};
pub use pass::{Create, Event, Options, Pass, Target};
pub use reach::{depends_outside, end_arguments};
pub use record::{
    argument, before_update, detach, detach_in_place, edge_of, end_session, is_leaf, is_parameter,
    mark_unrecorded, recording, refuse, replaced, require, requires_gradient, script_node,
};
pub use stored::{gradient_of, retain, retains, set_gradient};
pub use var::Var;

/// The way gradients propagate through an operation.
#[derive(Clone, Copy)]
pub enum Gradient {
    /// Not stated. A test rejects such rows.
    Unstated,
    /// The result does not depend on the operands in a differentiable way: comparisons, positions, shapes. It
    /// never requires gradients.
    Constant,
    /// The derivative is 0 wherever it exists: `floor`, `sign`.
    Zero,
    /// There is no rule. A backward pass through the operation is an error with this help.
    Missing(&'static str),
    /// The code calls other operations, which are recorded instead.
    Composed,
    /// Elementwise over one operand: the derivative, computed from the operand.
    Derivative(for<'a> fn(&Var<'a>) -> Var<'a>),
    /// Elementwise over one operand: the derivative, computed from the result.
    OfResult(for<'a> fn(&Var<'a>) -> Var<'a>),
    /// A view of the first argument, or a copy that keeps its elements' order (`reshape`): the elements'
    /// gradients go back to where the elements came from.
    View,
    /// A rule with what it keeps.
    Rule(Keeps, fn(&Back<'_>)),
    /// The operation overwrites its first argument, with the argument of this number or with values that
    /// have no gradient.
    Writes(Option<usize>),
}

/// The parts of an operation that its rule needs: operands by parameter number, and results.
#[derive(Clone, Copy)]
pub struct Keeps {
    /// A bit per parameter whose tensors are kept.
    pub operands: u16,
    /// Whether the gradient of a parameter needs an operand, or the results. Operands that no gradient needs are not
    /// kept.
    pub needs: Needs,
    /// A bit per result that is kept.
    pub results: u8,
    /// Keep the first operand instead of the results if its dtype is narrower.
    pub narrower: bool,
}

/// See [`Keeps::needs`]: the arguments of the call, the kept operand or [`Keeps::RESULTS`], and the parameter.
pub type Needs = fn(&super::Args<'_>, usize, usize) -> bool;

impl Keeps {
    /// Represents the results in [`Needs`].
    pub const RESULTS: usize = usize::MAX;
    /// Nothing but shapes.
    pub const NOTHING: Keeps = Keeps { operands: 0, needs: |_, _, _| true, results: 0, narrower: false };
    /// The first operand.
    pub const X: Keeps = Keeps::operands(1);
    /// The second operand.
    pub const Y: Keeps = Keeps::operands(2);
    /// The first two operands.
    pub const XY: Keeps = Keeps::operands(3);
    /// All operands.
    pub const ALL: Keeps = Keeps::operands(u16::MAX);
    /// Each operand, if the other one requires gradients.
    pub const OTHER: Keeps = Keeps::ALL.when(|_, kept, param| kept != param);
    /// The results.
    pub const RESULT: Keeps = Keeps::NOTHING.and_result();
    /// The second result: the indices of a choice.
    pub const INDICES: Keeps = Keeps { results: 2, ..Keeps::NOTHING };

    /// Returns whether an operand is kept for the gradients of these parameters.
    fn keeps_operand(&self, args: &super::Args<'_>, operand: usize, inputs: &[Input]) -> bool {
        operand < 16 && self.operands >> operand & 1 == 1 && self.is_needed(args, operand, inputs)
    }

    /// Returns whether the gradient of one of these parameters needs an operand, or [`Keeps::RESULTS`].
    fn is_needed(&self, args: &super::Args<'_>, kept: usize, inputs: &[Input]) -> bool {
        inputs.iter().any(|input| (self.needs)(args, kept, usize::from(input.param)))
    }

    /// Operands by a bit per parameter number.
    pub const fn operands(bits: u16) -> Keeps {
        Keeps { operands: bits, ..Keeps::NOTHING }
    }

    /// Keeps only what the gradients of parameters that require gradients need.
    pub const fn when(self, needs: Needs) -> Keeps {
        Keeps { needs, ..self }
    }

    /// The first operand instead of the results, if its dtype is narrower: less memory, and the rule computes the
    /// result again.
    pub const fn or_narrower(self) -> Keeps {
        Keeps { narrower: true, ..self }
    }

    /// Also the results.
    pub const fn and_result(self) -> Keeps {
        Keeps { results: u8::MAX, ..self }
    }
}

impl Gradient {
    /// The parts of the operation that are kept.
    pub(super) fn keeps(&self) -> Keeps {
        match self {
            Gradient::Derivative(_) => Keeps::X,
            Gradient::OfResult(_) => Keeps::RESULT,
            Gradient::Rule(keeps, _) => *keeps,
            _ => Keeps::NOTHING,
        }
    }
}

impl std::fmt::Debug for Gradient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gradient::Unstated => "Unstated",
            Gradient::Constant => "Constant",
            Gradient::Zero => "Zero",
            Gradient::Missing(_) => "Missing",
            Gradient::Composed => "Composed",
            Gradient::Derivative(_) => "Derivative",
            Gradient::OfResult(_) => "OfResult",
            Gradient::View => "View",
            Gradient::Rule(..) => "Rule",
            Gradient::Writes(_) => "Writes",
        })
    }
}
