//! Stored gradients: `x.grad` and `x.retain_grad()`.

use super::node::{Node, Step, Varies};
use super::record::{edge_of, new_node};
use super::{error, family};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::{Edge, Tensor};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// `x.grad`
pub fn gradient_of(rt: &mut Runtime, tensor: &Tensor) -> Option<Tensor> {
    // A tensor that was a leaf keeps the gradient when it is written in place.
    let edges = [edge_of(rt, tensor), tensor.resting()];
    edges.iter().flatten().find_map(|edge| {
        let state = Node::of(edge)?.state.lock();
        state.gradients.iter().find(|(output, _)| *output == edge.output)?.1.clone()
    })
}

/// `x.grad = gradient`
///
/// A tensor that requires no gradients stores one as well, for an optimiser.
///
/// # Errors
/// E0380 if the tensor cannot require gradients; E0381 if the gradient has another shape, dtype or device, or is the
/// tensor itself.
pub fn set_gradient(rt: &mut Runtime, tensor: &Tensor, gradient: Option<Tensor>) -> Result<()> {
    let resting = tensor.resting();
    if let (None, Some(node)) = (&gradient, resting.as_ref().and_then(Node::of)) {
        node.store_gradient(0, None);
    }
    let edge = match (edge_of(rt, tensor).or(resting), &gradient) {
        (Some(edge), _) => edge,
        (None, None) => return Ok(()),
        (None, Some(gradient)) => {
            if !family::is_continuous(tensor) {
                return Err(error::not_continuous(tensor));
            }
            error::check_gradient(gradient, tensor)?;
            let edge = resting_leaf(rt, tensor);
            tensor.set_resting(Some(edge.clone()));
            edge
        }
    };
    if let Some(gradient) = &gradient {
        if gradient.same(tensor) {
            return Err(error::own_gradient(tensor));
        }
        error::check_gradient(gradient, tensor)?;
        note_circular(rt, &edge.node, gradient);
    }
    if let Some(node) = Node::of(&edge) {
        // Without a gradient, a computed tensor does not begin to retain one.
        if gradient.is_none() && !matches!(node.step, Step::Leaf) && !retains(rt, tensor) {
            return Ok(());
        }
        node.store_gradient(edge.output, gradient);
    }
    Ok(())
}

/// The record of a leaf whose gradients are switched off.
fn resting_leaf(rt: &mut Runtime, tensor: &Tensor) -> Edge {
    rt.recording.used = true;
    let log = rt.recording.log.take();
    let node = new_node(rt, Step::Leaf, SmallVec::new(), SmallVec::from_iter([Varies::of(tensor)]), None);
    rt.recording.log = log;
    let edge = Edge { node, output: 0 };
    if let Some(node) = Node::of(&edge) {
        node.state.lock().rests = true;
    }
    edge
}

/// Registers a node that stores a gradient with a record, which may refer back to the node.
pub(super) fn note_circular(rt: &mut Runtime, node: &Arc<dyn Any + Send + Sync>, gradient: &Tensor) {
    if edge_of(rt, gradient).is_some() {
        if rt.recording.circular.len() >= 64 && rt.recording.circular.len().is_power_of_two() {
            rt.recording.circular.retain(|node| node.strong_count() > 0);
        }
        rt.recording.circular.push(Arc::downgrade(node));
    }
}

/// `x.retain_grad()`: the backward pass stores the gradient of a computed tensor.
///
/// # Errors
/// E0380 if the tensor requires no gradients.
pub fn retain(rt: &mut Runtime, tensor: &Tensor) -> Result<()> {
    let Some(edge) = edge_of(rt, tensor) else { return Err(error::requires_none(0, tensor)) };
    if let Some(node) = Node::of(&edge) {
        let mut state = node.state.lock();
        if !state.gradients.iter().any(|(output, _)| *output == edge.output) {
            state.gradients.push((edge.output, None));
        }
    }
    Ok(())
}

/// `x.retains_grad`: whether the backward pass stores the gradient of this computed tensor.
pub fn retains(rt: &mut Runtime, tensor: &Tensor) -> bool {
    let Some(edge) = edge_of(rt, tensor) else { return false };
    let Some(node) = Node::of(&edge).filter(|node| !matches!(node.step, Step::Leaf)) else { return false };
    node.state.lock().gradients.iter().any(|(output, _)| *output == edge.output)
}
