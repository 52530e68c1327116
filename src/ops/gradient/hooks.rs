//! Callbacks of records: hooks, and checkpoints, which compute the kept tensors of their records again.

use super::error;
use super::family::LeafRef;
use super::node::{Node, Step};
use super::record::edge_of;
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::{Edge, Tensor};
use std::any::Any;
use std::sync::{Arc, Weak};

/// Adds a hook: the caller of the pass must run it with the tensor's gradient. Returns the record, for
/// [`remove_hook`].
///
/// # Errors
/// E0380 if the tensor requires no gradients.
pub fn add_hook(rt: &mut Runtime, tensor: &Tensor, callback: Arc<u64>) -> Result<Edge> {
    let Some(edge) = edge_of(rt, tensor) else { return Err(error::requires_none(0, tensor)) };
    if let Some(node) = Node::of(&edge) {
        node.state.lock().hooks.push((edge.output, callback));
    }
    Ok(edge)
}

/// Adds a post-accumulate hook of a leaf ([`super::Event::Stored`]). In passes that begin from now on, such a leaf is
/// complete as soon as all its gradients have arrived. Otherwise as [`add_hook`].
///
/// # Errors
/// E0380 if the tensor is not a leaf that requires gradients.
pub fn add_follower(rt: &mut Runtime, tensor: &Tensor, callback: Arc<u64>) -> Result<Edge> {
    let Some(edge) = edge_of(rt, tensor) else { return Err(error::requires_none(0, tensor)) };
    match Node::of(&edge) {
        Some(node) if matches!(node.step, Step::Leaf) => {
            node.state.lock().followers.push((callback, LeafRef::of(tensor)));
        }
        _ => return Err(error::not_stored(tensor)),
    }
    rt.recording.follows = true;
    Ok(edge)
}

/// Removes a hook.
pub fn remove_hook(edge: &Edge, number: u64) {
    if let Some(node) = Node::of(edge) {
        let mut state = node.state.lock();
        state.hooks.retain(|(_, callback)| **callback != number);
        state.followers.retain(|(callback, _)| **callback != number);
    }
}

/// Records of operations, in order.
pub type Log = Vec<Arc<dyn Any + Send + Sync>>;

/// Begins to collect new records. Returns the outer collection, for [`end_log`].
pub fn begin_log(rt: &mut Runtime) -> Option<Log> {
    rt.recording.log.replace(Vec::new())
}

/// Ends a collection. Its records are part of the outer one as well.
pub fn end_log(rt: &mut Runtime, outer: Option<Log>) -> Log {
    let made = std::mem::replace(&mut rt.recording.log, outer).unwrap_or_default();
    if let Some(outer) = &mut rt.recording.log {
        outer.extend(made.iter().cloned());
    }
    made
}

/// Releases the kept tensors of records; a pass computes them again under this callback.
pub fn release_kept(records: &Log, callback: &Arc<u64>) {
    for (number, node) in records.iter().enumerate() {
        if let Some(node) = node.downcast_ref::<Node>() {
            let freed = {
                let mut state = node.state.lock();
                state.again = Some((callback.clone(), number));
                state.saved.take()
            };
            drop(freed);
        }
    }
}

/// A record that is computed again under the callback of a checkpoint, as its record of this number.
pub type Again = (Arc<u64>, usize, Weak<dyn Any + Send + Sync>);

/// Moves the kept tensors of a second run's records to those of the first run. Returns the records that belong to
/// nested checkpoints, which must be run again.
pub fn restore_kept(first: &[Weak<dyn Any + Send + Sync>], second: &Log) -> Vec<Again> {
    let mut inside = Vec::new();
    for (place, new) in first.iter().zip(second) {
        let Some(old) = place.upgrade() else { continue };
        if let (Some(old), Some(new)) = (old.downcast_ref::<Node>(), new.downcast_ref::<Node>()) {
            let (saved, again) = {
                let mut state = new.state.lock();
                (state.saved.take(), state.again.take())
            };
            // For second derivatives, results of the second run have the records of the first one.
            let _ = new.moved.set(place.clone());
            let mut state = old.state.lock();
            if state.saved.is_none() && state.consumed.is_none() {
                if let Some((callback, number)) = &again {
                    inside.push((callback.clone(), *number, place.clone()));
                }
                state.saved = saved;
                state.again = again;
            }
        }
    }
    inside
}
