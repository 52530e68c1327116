//! Views and writes in place.
//!
//! A view is recorded like any operation. A write in place replaces the record of the memory that it writes. A write to
//! a part adds a node ([`Step::Written`]) that joins the old record and the record of the written value. A write to the
//! whole memory replaces the record by that of the written value. The old record is then released with everything it
//! keeps. Only the leaves that it leads to remain ([`Step::Overwritten`]), because a pass gives them gradients of 0, as
//! PyTorch does. Other tensors over the same memory get new records at their next use ([`edge_of`]). Source: PyTorch's
//! `CopySlices`, <https://pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd>

use super::error;
use super::node::{Input, Node, Step, Varies};
use super::reach::leaves_of;
use super::record::{new_node, stream_of};
use super::strided::covers;
use crate::array::{Dtype, Layout};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::{Edge, Mark, Tensor, WeakStorage};
use foldhash::HashSet;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// A weak reference from a leaf's record to the leaf.
#[derive(Clone)]
pub struct LeafRef {
    storage: WeakStorage,
    layout: Layout,
    dtype: Dtype,
    mark: Mark,
}

impl LeafRef {
    /// Refers to a leaf.
    pub(super) fn of(tensor: &Tensor) -> LeafRef {
        LeafRef {
            storage: tensor.storage_ref().downgrade(),
            layout: tensor.layout().clone(),
            dtype: tensor.dtype(),
            mark: Mark { edge: None, ..tensor.mark() },
        }
    }

    /// The tensor with this record, if its memory is alive.
    pub(super) fn tensor(&self, node: &Arc<dyn Any + Send + Sync>) -> Option<Tensor> {
        let changed = node.downcast_ref::<Node>().and_then(Node::changed_layout);
        let layout = changed.unwrap_or_else(|| self.layout.clone());
        let tensor = self.storage.upgrade()?.view(layout, self.dtype);
        tensor.set_mark(Mark { edge: Some(Edge { node: node.clone(), output: 0 }), ..self.mark.clone() });
        Some(tensor)
    }
}

/// The record of a tensor; `None` if it requires no gradients.
pub(super) fn edge(rt: &mut Runtime, tensor: &Tensor) -> Option<Edge> {
    if !tensor.may_be_recorded() || !is_continuous(tensor) {
        return None;
    }
    if let Some(edge) = tensor.recorded() {
        return Some(Node::first(edge));
    }
    let mark = tensor.mark();
    if mark.at == Mark::UNRECORDED {
        return None;
    }
    let (writes, current) = tensor.family(&mark, |family| (family.writes, family.current.clone()));
    if writes == 0 {
        return joined(rt, tensor, mark);
    }
    let (edge, whole) = current?;
    let edge = Node::first(edge);
    let form = form_of(&edge).unwrap_or_else(|| Varies::of(tensor));
    // Hooks and gradients of a view do not belong to the memory.
    let is_view = mark.view || mark.edge.is_none() && !mark.begins && !tensor.is_first();
    let edge = match !is_view && whole == *tensor.layout() && form.dtype == tensor.dtype() {
        true => edge,
        false => relaid(rt, tensor, edge, whole),
    };
    if let Some(old) = &mark.edge {
        move_retained(old, &edge);
    }
    tensor.set_mark(Mark { edge: Some(edge.clone()), at: writes, view: is_view, strided: false, ..mark });
    Some(edge)
}

/// The record of a view that is older than the gradients of its base: the view was made before the base became a leaf.
fn joined(rt: &mut Runtime, tensor: &Tensor, mark: Mark) -> Option<Edge> {
    if mark.begins || !matches!(mark.at, 0 | Mark::JOINED) {
        return None;
    }
    let (leaf, whole) = tensor.family(&mark, |family| family.leaf())?;
    let leaf_of = |edge: &Edge| Some(Node::of(edge)?.inputs.first()?.edge.node.clone());
    if let Some(edge) =
        mark.edge.as_ref().filter(|edge| leaf_of(edge).is_some_and(|of| Arc::ptr_eq(&of, &leaf.node)))
    {
        return Some(edge.clone());
    }
    if dtype_of(&leaf).is_none_or(|dtype| dtype.real() != tensor.dtype().real()) {
        return None;
    }
    let edge = relaid(rt, tensor, leaf, whole);
    tensor.set_mark(Mark { edge: Some(edge.clone()), at: Mark::JOINED, ..mark });
    Some(edge)
}

/// The record of a view of memory with a record.
fn relaid(rt: &mut Runtime, tensor: &Tensor, edge: Edge, whole: Layout) -> Edge {
    let form = form_of(&edge).unwrap_or_else(|| Varies::of(tensor));
    let input = Input { param: 0, element: 0, edge, form, layout: None };
    let outputs = SmallVec::from_iter([Varies::of(tensor)]);
    let step = Step::Relaid(Box::new([whole, tensor.layout().clone()]));
    // The record is not part of a checkpoint that uses the tensor first: when the checkpoint runs again, the record
    // exists.
    let log = rt.recording.log.take();
    let node = new_node(rt, step, SmallVec::from_iter([input]), outputs, None);
    rt.recording.log = log;
    Edge { node, output: 0 }
}

/// A tensor that is written in place, as the operand with the old elements. A view that `as_strided` made may reach
/// elements that its source lacks, and their gradients would end there: its elements are taken from the memory's record.
pub(super) fn before_write(rt: &mut Runtime, target: &Tensor) -> Option<Tensor> {
    edge(rt, target)?;
    let mark = Some(target.mark()).filter(|mark| mark.strided)?;
    let (base, whole) = target.family(&mark, |family| family.base())?;
    let edge = relaid(rt, target, Node::first(base), whole);
    let alias = target.with_layout(target.layout().clone());
    alias.set_mark(Mark { edge: Some(edge), strided: false, ..mark });
    Some(alias)
}

/// `retain_grad` survives a write: the tensor then retains the gradient of its new value.
pub(super) fn move_retained(old: &Edge, new: &Edge) {
    let (Some(from), Some(to)) = (Node::of(old), Node::of(new)) else { return };
    if matches!(from.step, Step::Leaf) {
        return;
    }
    let retained = {
        let mut state = from.state.lock();
        let place = state.gradients.iter().position(|(output, _)| *output == old.output);
        place.map(|place| state.gradients.remove(place).1)
    };
    if let Some(gradient) = retained {
        let mut state = to.state.lock();
        if !state.gradients.iter().any(|(output, _)| *output == new.output) {
            state.gradients.push((new.output, gradient));
        }
    }
}

/// True for a dtype that can have gradients.
pub(super) fn is_continuous(tensor: &Tensor) -> bool {
    tensor.dtype().is_float() || tensor.dtype().is_complex()
}

/// Shape, dtype and device of the result that an edge refers to.
pub(super) fn form_of(edge: &Edge) -> Option<Varies> {
    Node::of(edge)?.outputs.get(edge.output as usize).cloned()
}

fn dtype_of(edge: &Edge) -> Option<Dtype> {
    form_of(edge).map(|form| form.dtype)
}

/// Rejects a write in place to a leaf that requires gradients, or to a view of one.
pub(super) fn check_writable(tensor: &Tensor) -> Result<()> {
    let mark = tensor.mark();
    let is_leaf = |edge: &Edge| matches!(Node::of(edge).map(|node| &node.step), Some(Step::Leaf));
    let own = mark.edge.as_ref().is_some_and(is_leaf);
    let base = tensor.family(&mark, |family| family.base().is_some_and(|(edge, _)| is_leaf(&edge)));
    match own || base {
        true => Err(error::leaf_written(tensor, !own)),
        false => Ok(()),
    }
}

/// Makes `new` the record of `target` after a write in place; `None` if the new value requires no gradients. `fresh`:
/// no other tensor has this record.
pub(super) fn written(rt: &mut Runtime, target: &Tensor, new: Option<Edge>, fresh: bool) -> Result<()> {
    let mark = target.mark();
    let count = (target.storage().bytes() / target.dtype().size() as u64) as usize;
    let own = target.layout().clone();
    let base = target.family(&mark, |family| family.base());
    let new = new.map(|edge| as_written(rt, edge, target, fresh));
    let before = base.clone();
    // The memory's record has the layout of its tensor, so that gradients of the tensor include those of all views.
    let first = target.storage_ref().first_layout().clone();
    let first = (mark.family.is_none() && covers(&first, count)).then_some(first);
    let current = if covers(&own, count) {
        let edge = match &base {
            // The record of an in-place operation already leads to the old record.
            Some((old, _)) if !fresh || new.is_none() => overwritten(rt, target, old, new),
            _ => new,
        };
        // Written through a view with another layout or dtype: the base tensor gets the record, and the view's record
        // is derived from it. So gradients of the base tensor include those of its views.
        let whole = match base {
            Some((old, whole)) => {
                (covers(&whole, count) && dtype_of(&old) == Some(target.dtype())).then_some(whole)
            }
            None => first,
        };
        match (edge, whole) {
            (Some(edge), Some(whole)) if whole != own => {
                let form = Varies { shape: whole.shape.clone(), ..Varies::of(target) };
                let input = Input { param: 0, element: 0, edge, form: Varies::of(target), layout: None };
                let step = Step::Relaid(Box::new([own, whole.clone()]));
                let node =
                    new_node(rt, step, SmallVec::from_iter([input]), SmallVec::from_iter([form]), None);
                Some((Edge { node, output: 0 }, whole))
            }
            (edge, _) => edge.map(|edge| (edge, own)),
        }
    } else {
        if base.is_none() && new.is_none() {
            return Ok(());
        }
        let (old, whole) = match base {
            Some((old, whole)) if covers(&whole, count) && dtype_of(&old) == Some(target.dtype()) => {
                (Some(old), whole)
            }
            // The record of a part of the memory, or of complex numbers that are written as real ones: extend it
            // to the whole in the written dtype.
            Some((old, part)) => {
                let whole = Layout::contiguous(&[count]);
                let form = Varies { shape: whole.shape.clone(), ..Varies::of(target) };
                let own_form = form_of(&old).unwrap_or_else(|| Varies::of(target));
                if own_form.dtype.real() != target.dtype().real() {
                    return Err(error::other_dtype_written(target));
                }
                let input = Input { param: 0, element: 0, edge: old, form: own_form, layout: None };
                let step = Step::Relaid(Box::new([part, whole.clone()]));
                let node =
                    new_node(rt, step, SmallVec::from_iter([input]), SmallVec::from_iter([form]), None);
                (Some(Edge { node, output: 0 }), whole)
            }
            None => (None, first.unwrap_or_else(|| Layout::contiguous(&[count]))),
        };
        let form = Varies { shape: whole.shape.clone(), ..Varies::of(target) };
        let mut inputs: SmallVec<[Input; 2]> = SmallVec::new();
        if let Some(edge) = old {
            inputs.push(Input { param: 0, element: 0, edge, form: form.clone(), layout: None });
        }
        if let Some(edge) = new {
            inputs.push(Input { param: 1, element: 0, edge, form: Varies::of(target), layout: None });
        }
        let stream = stream_of(rt, target);
        let step = Step::Written(Box::new([whole.clone(), own]));
        let node = new_node(rt, step, inputs, SmallVec::from_iter([form]), stream);
        Some((Edge { node, output: 0 }, whole))
    };
    // The base tensor's new value has a separate gradient, even if only views of it are used from now on.
    if let (Some((old, was)), Some((new, is))) = (&before, &current)
        && was == is
    {
        move_retained(old, new);
    }
    let link = current.is_some() && mark.family.is_none();
    target.family(&mark, |family| {
        family.writes += 1;
        std::mem::replace(&mut family.current, current)
    });
    if link {
        remember(rt, target);
    }
    Ok(())
}

/// The record of memory after a write of all of it: `new`, and the leaves of `old` that `new` does not depend on.
fn overwritten(rt: &mut Runtime, target: &Tensor, old: &Edge, new: Option<Edge>) -> Option<Edge> {
    let leaves = leaves_of(old);
    let ids =
        |leaves: &[Edge]| -> HashSet<u64> { leaves.iter().filter_map(Node::of).map(|n| n.id).collect() };
    let kept = match &new {
        Some(new) if !leaves.is_empty() => ids(&leaves_of(new)),
        _ => HashSet::default(),
    };
    let mut inputs: SmallVec<[Input; 2]> = SmallVec::new();
    for leaf in leaves.iter() {
        if let Some(node) = Node::of(leaf)
            && !kept.contains(&node.id)
            && let Some(form) = node.outputs.first().cloned()
        {
            let element = inputs.len() as u32;
            inputs.push(Input { param: 0, element, edge: leaf.clone(), form, layout: None });
        }
    }
    if inputs.is_empty() {
        return new;
    }
    let form = Varies::of(target);
    if let Some(edge) = new {
        inputs.push(Input { param: 1, element: 0, edge, form: form.clone(), layout: None });
    }
    let stream = stream_of(rt, target);
    let node = new_node(rt, Step::Overwritten, inputs, SmallVec::from_iter([form]), stream);
    Some(Edge { node, output: 0 })
}

/// The record of a value that was written to `target`: values are broadcast, converted and moved. Hooks and gradients
/// of another tensor's record stay with that tensor.
fn as_written(rt: &mut Runtime, edge: Edge, target: &Tensor, fresh: bool) -> Edge {
    let to = Varies::of(target);
    let Some(form) = form_of(&edge) else { return edge };
    if fresh && form.shape == to.shape && form.dtype == to.dtype && form.device == to.device {
        return edge;
    }
    let stream = stream_of(rt, target);
    let input = Input { param: 0, element: 0, edge, form, layout: None };
    let node = new_node(rt, Step::Copied, SmallVec::from_iter([input]), SmallVec::from_iter([to]), stream);
    Edge { node, output: 0 }
}

/// Registers a storage that holds a recorded write, and releases storages that only records refer to.
fn remember(rt: &mut Runtime, target: &Tensor) {
    rt.recording.written.push(target.storage_ref().downgrade());
    if rt.recording.written.len() >= rt.recording.search_at {
        rt.release_records();
    }
}

/// An alias of the tensor with a separate record.
pub(super) fn detached(tensor: &Tensor) -> Tensor {
    let alias = tensor.with_layout(tensor.layout().clone());
    alias.set_mark(Mark { family: Some(Arc::default()), begins: true, ..Mark::default() });
    alias
}

/// A kept reference to an operand, with its record, or with none: a detached tensor stays apart from its source. It has no
/// family of its own, whose last write may refer back to the node. That is sound because a write in place, in any family,
/// makes the reference unusable ([`Tensor::version`]).
pub(super) fn keep_operand(tensor: &Tensor, inputs: &[Input], param: usize, element: usize) -> Tensor {
    let kept = tensor.kept();
    if kept.same(tensor) {
        return kept;
    }
    let is = |input: &&Input| usize::from(input.param) == param && input.element as usize == element;
    if let Some(input) = inputs.iter().find(is) {
        let at = tensor.family(&Mark::default(), |family| family.writes);
        kept.set_mark(Mark { edge: Some(input.edge.clone()), at, ..Mark::default() });
    } else {
        let mark = tensor.mark();
        if mark.family.is_some() || matches!(mark.at, Mark::APART | Mark::UNRECORDED) {
            kept.set_mark(Mark { at: Mark::UNRECORDED, ..Mark::default() });
        }
    }
    kept
}

/// What a view that is not recorded has of its source: the family, and whether it requires gradients once the source
/// does.
pub(super) fn inherit(rt: &Runtime, source: &Tensor, view: &Tensor) {
    if view.same(source) || !view.storage_ref().is(source.storage()) {
        return;
    }
    let (from, mark) = (source.mark(), view.mark());
    let is_apart = matches!(from.at, Mark::APART | Mark::UNRECORDED)
        || !rt.recording.enabled
            && from.edge.is_some()
            && source.family(&from, |family| family.leaf().is_some());
    // `detach` gives its result a family of its own.
    if mark.edge.is_some() || mark.begins || from.family.is_none() && !is_apart {
        return;
    }
    let at = match is_apart {
        true if from.at == Mark::UNRECORDED => Mark::UNRECORDED,
        true => Mark::APART,
        false => mark.at,
    };
    view.set_mark(Mark { family: from.family.or(mark.family.clone()), at, ..mark });
}
