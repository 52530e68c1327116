//! A record of one operation.

use super::family::LeafRef;
use super::leaf::Changed;
use crate::array::{Dims, Dtype, Layout};
use crate::base::{Result, Span};
use crate::driver::DeviceId;
use crate::ops::subscript::Index;
use crate::ops::{Arg, Op, composed};
use crate::plan::Runtime;
use crate::stream::Stream;
use crate::tensor::{Edge, Tensor};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock, Weak};

/// A record of one operation: where its gradients go, and what its rule needs.
///
/// Invariant: nodes are numbered in the order of recording, so an operand's node has a smaller number.
pub struct Node {
    /// The number of the record.
    pub id: u64,
    /// The source position of the operation.
    pub span: Span,
    /// The recorded step.
    pub step: Step,
    /// The operands that require gradients.
    pub inputs: SmallVec<[Input; 2]>,
    /// The results.
    pub outputs: SmallVec<[Varies; 1]>,
    /// The stream on which the operation ran.
    pub stream: Option<Arc<Stream>>,
    /// Counts towards the session's limits on tensors and host memory.
    pub counted: Arc<()>,
    /// For a record of a checkpoint's later run: the corresponding record of its first run.
    pub moved: OnceLock<Weak<dyn Any + Send + Sync>>,
    /// The state that changes after the recording.
    pub state: Mutex<State>,
}

/// Approximate bytes of a record: its lists of operands and of kept arguments beside it.
pub const RECORD_BYTES: usize = size_of::<Node>() + 64;

/// The kind of a record.
pub enum Step {
    /// A tensor that the script made: its gradient is collected.
    Leaf,
    /// An operation of a table.
    Op(&'static Op),
    /// The argument of a differentiated function: the same elements as another tensor, on which it depends if
    /// there is an input.
    Argument,
    /// A gradient that `grad(f)` returned without recording how it depends on its leaves. Values computed only from
    /// such tensors have the same record. A pass that reaches it is an error.
    Unrecorded,
    /// A view of memory that was written after the view was made: from the layout of the memory's record to
    /// the view's.
    Relaid(Box<[Layout; 2]>),
    /// A write in place into part of the memory: the layout of the whole, and of the part. Input 0 is the
    /// memory before, input 1 what was written; either may be absent ([`Input::param`] tells).
    Written(Box<[Layout; 2]>),
    /// A write in place of the whole memory. Inputs of parameter 0 are the leaves on which only the old content
    /// depended: their gradients are 0. Input 1 is the value, if it requires gradients.
    Overwritten,
    /// A value that was broadcast, converted and moved when it was written.
    Copied,
    /// Code of the caller, by number: a gradient that a script defines.
    Script(Arc<u64>),
}

/// An operand that requires gradients.
pub struct Input {
    /// Its parameter.
    pub param: u16,
    /// Its position in a list parameter.
    pub element: u32,
    /// Its record.
    pub edge: Edge,
    /// Its shape, dtype and device.
    pub form: Varies,
    /// Its layout, if the result is a view of it.
    pub layout: Option<Box<Layout>>,
}

/// Shape, dtype and device of a tensor that requires gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct Varies {
    /// The shape.
    pub shape: Dims,
    /// The element type.
    pub dtype: Dtype,
    /// The device.
    pub device: DeviceId,
}

/// The state of a node.
#[derive(Default)]
pub struct State {
    /// The arguments and results; taken by the backward pass unless it retains the graph.
    pub saved: Option<Saved>,
    /// Hooks: the number of a result, and the caller's number for the hook.
    pub hooks: Vec<(u32, Arc<u64>)>,
    /// Hooks of a leaf that follow the storing of its gradient: the caller's number, and the tensor.
    pub followers: Vec<(Arc<u64>, LeafRef)>,
    /// The gradients of a leaf, or of results whose gradients are retained, by result.
    pub gradients: Vec<(u32, Option<Tensor>)>,
    /// The gradients of a leaf are disabled: passes over earlier records store none.
    pub rests: bool,
    /// The form of a leaf, if it was changed in place.
    pub changed: Option<Box<Changed>>,
    /// The differentiated function of this argument has returned.
    pub ended: bool,
    /// The source position of the pass that consumed `saved`.
    pub consumed: Span,
    /// The checkpoint that computes `saved` again, when it was not kept, and the node's number in it.
    pub again: Option<(Arc<u64>, usize)>,
    /// The leaves on which the result depends, once they have been searched.
    pub leaves: Option<Arc<[Edge]>>,
}

/// The arguments and results that a rule reads.
pub struct Saved {
    /// The arguments; `Arg::None` for tensors that are not kept.
    pub args: SmallVec<[Arg; 3]>,
    /// The results, if kept.
    pub results: SmallVec<[Option<Tensor>; 1]>,
    /// The storage versions of [`Saved::watched`].
    pub versions: SmallVec<[u64; 4]>,
    /// Whether an operator keeps a number, which PyTorch keeps as a tensor.
    pub number: bool,
}

impl Saved {
    /// The kept tensors, in the order of `versions`.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let args = self.args.iter().flat_map(|arg| match arg {
            Arg::Tensor(tensor) => std::slice::from_ref(tensor),
            Arg::Tensors(tensors) => tensors,
            _ => &[],
        });
        args.chain(self.results.iter().flatten())
    }

    /// The kept tensors and index tensors: writing one in place makes the rule wrong.
    pub fn watched(&self) -> impl Iterator<Item = &Tensor> {
        let indices = self.args.iter().flat_map(|arg| match arg {
            Arg::Indices(indices) => indices.as_slice(),
            _ => &[],
        });
        self.tensors().chain(indices.filter_map(Index::tensor))
    }

    /// Whether a pass frees this, so that a second pass needs `retain_graph`: as in PyTorch, if an operand, a result or
    /// an index is kept, and not only shapes.
    pub fn is_freed(&self) -> bool {
        self.number || self.watched().next().is_some()
    }
}

impl Varies {
    /// Shape, dtype and device of a tensor.
    pub fn of(tensor: &Tensor) -> Varies {
        Varies { shape: crate::array::copied(tensor.shape()), dtype: tensor.dtype(), device: tensor.device() }
    }

    /// A tensor of zeros.
    pub fn zeros(&self, rt: &mut Runtime) -> Result<Tensor> {
        let shape = self.shape.iter().map(|&extent| extent as i64).collect();
        composed::call(rt, "zeros", &[Arg::Ints(shape), Arg::Dtype(self.dtype), Arg::Device(self.device)])
    }
}

impl Node {
    /// The node of an edge.
    pub fn of(edge: &Edge) -> Option<&Node> {
        edge.node.downcast_ref()
    }

    /// The edge to the first run's record that a record corresponds to.
    pub fn first(edge: Edge) -> Edge {
        match Node::of(&edge).and_then(|node| node.moved.get()?.upgrade()) {
            Some(node) => Edge { node, ..edge },
            None => edge,
        }
    }

    /// Replaces the stored gradient of a result.
    pub fn store_gradient(&self, output: u32, gradient: Option<Tensor>) {
        let mut state = self.state.lock();
        let before = match state.gradients.iter_mut().find(|(of, _)| *of == output) {
            Some((_, place)) => std::mem::replace(place, gradient),
            None => {
                state.gradients.push((output, gradient));
                None
            }
        };
        // The record of the previous gradient may lead to this node.
        drop(state);
        drop(before);
    }

    /// The name of the recorded step, for messages.
    pub fn name(&self) -> &'static str {
        match &self.step {
            Step::Leaf => "a leaf",
            Step::Op(op) => op.name,
            Step::Argument => "an argument",
            Step::Unrecorded => "grad",
            Step::Relaid(..) => "a view",
            Step::Written(..) | Step::Overwritten | Step::Copied => "a write in place",
            Step::Script(_) => "custom_gradient",
        }
    }
}

thread_local! {
    /// The nodes that a running drop still has to drop: chains of any length are dropped without recursion.
    static DROPPING: RefCell<Option<Vec<Arc<dyn Any + Send + Sync>>>> = const { RefCell::new(None) };
}

impl Drop for Node {
    fn drop(&mut self) {
        let inputs = std::mem::take(&mut self.inputs);
        // Kept tensors hold nodes as well.
        let saved = self.state.get_mut().saved.take();
        if inputs.is_empty() && saved.is_none() {
            return;
        }
        let is_outer = DROPPING.with(|dropping| {
            let mut dropping = dropping.borrow_mut();
            let is_outer = dropping.is_none();
            let later = dropping.get_or_insert_default();
            inputs.into_iter().for_each(|input| later.push(input.edge.node));
            if let Some(saved) = &saved {
                saved.tensors().for_each(|tensor| later.extend(tensor.mark().edge.map(|edge| edge.node)));
            }
            is_outer
        });
        drop(saved);
        if !is_outer {
            return;
        }
        // Each node that is dropped here adds its links to the list.
        while let Some(next) = DROPPING.with(|dropping| dropping.borrow_mut().as_mut().and_then(Vec::pop)) {
            drop(next);
        }
        DROPPING.with(|dropping| *dropping.borrow_mut() = None);
    }
}
