//! Leaves whose shape was changed in place, inside `no_grad`, after an operation had used them.
//!
//! A pass computes their gradients in the shape that the operation read. As in PyTorch, such a gradient is stored if it
//! broadcasts to the new shape, and is an error otherwise.

use super::error;
use super::node::{Node, Step, Varies};
use crate::array::Layout;
use crate::base::{Result, Span};
use crate::ops::{Arg, composed};
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The form of a leaf since its shape was changed in place.
pub struct Changed {
    /// The layout.
    pub layout: Layout,
    /// The source position of the change.
    pub span: Span,
}

/// Notes that the layout of a tensor was changed in place.
pub(super) fn note_change(tensor: &Tensor, span: Span) {
    let Some(edge) = tensor.mark().edge.or_else(|| tensor.resting()) else { return };
    if let Some(node) = Node::of(&edge).filter(|node| matches!(node.step, Step::Leaf)) {
        node.state.lock().changed = Some(Box::new(Changed { layout: tensor.layout().clone(), span }));
    }
}

impl Node {
    /// Shape, dtype and device of a leaf.
    pub(super) fn form_of_leaf(&self) -> Varies {
        let mut form = self.outputs[0].clone();
        if let Some(changed) = &self.state.lock().changed {
            form.shape.clone_from(&changed.layout.shape);
        }
        form
    }

    /// The layout of a leaf, if it was changed in place.
    pub(super) fn changed_layout(&self) -> Option<Layout> {
        self.state.lock().changed.as_ref().map(|changed| changed.layout.clone())
    }

    /// A gradient of a leaf in the leaf's shape; `None` if it has that shape.
    ///
    /// # Errors
    /// E0381 if the leaf has another shape now.
    pub(super) fn in_shape_of_leaf(&self, rt: &mut Runtime, gradient: &Tensor) -> Result<Option<Tensor>> {
        let Some(layout) = self.changed_layout() else { return Ok(None) };
        if *gradient.shape() == layout.shape {
            return Ok(None);
        }
        self.check_broadcast(gradient.shape(), &layout.shape)?;
        let shape = layout.shape.iter().map(|&extent| extent as i64).collect();
        composed::call(rt, "expand", &[Arg::Tensor(gradient.clone()), Arg::Ints(shape)]).map(Some)
    }

    /// Checks that a gradient can be added to another one. They differ only if the shape of a leaf was changed.
    ///
    /// # Errors
    /// E0381 if a gradient of shape `from` does not broadcast to `to`.
    pub(super) fn check_broadcast(&self, from: &[usize], to: &[usize]) -> Result<()> {
        let changed = self.state.lock().changed.as_ref().map(|changed| changed.span);
        match changed {
            Some(span) if !broadcasts(from, to) => Err(error::reshaped(from, to, span)),
            _ => Ok(()),
        }
    }
}

/// True if a tensor of one shape can be expanded to another one.
fn broadcasts(from: &[usize], to: &[usize]) -> bool {
    from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(&of, &to)| of == to || of == 1)
}
