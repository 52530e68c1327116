//! A backward pass: from results to leaves, newest record first.
//!
//! Each node's rule runs on the stream of its operation. Gradients from other streams are waited for, and at
//! the end the current streams wait for all streams that were used. Source:
//! <https://pytorch.org/docs/stable/notes/cuda.html#stream-semantics-of-backward-passes>

use super::back::{Back, Parts, Shares, run_rule};
use super::family::LeafRef;
use super::node::{Input, Node, Saved, Step, Varies};
use super::reach::{NodeRef, leading_to, node_of, uses_of_followed};
use super::record::recording;
use super::shares::{self, Share, Waiting};
use super::sums::{add, fitted};
use super::{Gradient, error, strided};
use crate::base::{Error, Place, Result, Span};
use crate::driver::error::paced;
use crate::ops::{Arg, Args, Call, Op, apply, composed, table};
use crate::plan::Runtime;
use crate::stream::Stream;
use crate::tensor::{Edge, Mark, Tensor};
use foldhash::{HashMap, HashSet};
use smallvec::SmallVec;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The start of a pass: a result and its gradient.
pub struct Target {
    /// The result.
    pub tensor: Tensor,
    /// Its gradient; `None` for a result with one element: 1.
    pub gradient: Option<Tensor>,
}

/// The options of a pass.
pub struct Options {
    /// Keep the record for another pass.
    pub retain: bool,
    /// Record the pass itself, for second derivatives. [`Create::IfUseful`]: if it reaches leaves other than
    /// the inputs.
    pub create: Create,
    /// Store the gradients of leaves in them. Otherwise the pass only returns the gradients of `inputs`.
    pub accumulate: bool,
    /// The tensors whose gradients are wanted; `None`: all leaves.
    pub inputs: Option<Vec<Edge>>,
}

/// Whether a pass is recorded itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// The pass is not recorded.
    No,
    /// The pass is recorded.
    Yes,
    /// The pass is recorded if the result depends on leaves other than the inputs or on arguments of running functions,
    /// or if an input is the argument of a function whose caller also differentiates.
    IfUseful,
}

/// The next action that a pass requests from its caller.
pub enum Event {
    /// The pass is finished: the gradients of [`Options::inputs`], `None` where there is no dependency.
    Done(Vec<Option<Tensor>>),
    /// Call a hook with a gradient, then [`Pass::hooked`].
    Hook(u64, Tensor),
    /// Compute the gradients of a [`Step::Script`] from those of its results, then [`Pass::answer`].
    Script(u64, Vec<Option<Tensor>>),
    /// Run a checkpoint again and pass its records to [`restore`], then continue.
    Again(u64),
    /// Call a hook with a leaf whose gradient was stored, then continue.
    Stored(u64, Tensor),
}

/// A pass in progress.
pub struct Pass {
    options: Options,
    span: Span,
    ready: BinaryHeap<Ready>,
    /// Per followed leaf, the number of uses that have not propagated their gradients.
    uses: HashMap<u64, usize>,
    /// Followed leaves whose gradients are complete. They come before all other nodes.
    complete: Vec<Ready>,
    pub(super) arriving: HashMap<u64, Arriving>,
    /// The nodes that lead to the wanted inputs; `None`: all.
    needed: Option<HashSet<u64>>,
    found: Vec<Option<Tensor>>,
    current: Option<Current>,
    /// The record and the checkpoint that was last run again for it.
    again: Option<(u64, u64)>,
    used: Vec<Arc<Stream>>,
}

/// Kept arguments and results.
type Kept = (SmallVec<[Arg; 3]>, SmallVec<[Option<Tensor>; 1]>);

struct Ready(u64, NodeRef);

impl PartialEq for Ready {
    fn eq(&self, other: &Ready) -> bool {
        self.0 == other.0
    }
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Ready) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Ready) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// The gradients of a node's results that have been computed so far.
#[derive(Default)]
pub(super) struct Arriving {
    pub(super) gradients: SmallVec<[Option<Tensor>; 1]>,
    /// Gradients from streams other than the node's, not added yet.
    foreign: Vec<(usize, Tensor)>,
    /// The streams that computed them.
    streams: SmallVec<[Arc<Stream>; 1]>,
    /// Deferred shares, by result, and the node's reference.
    pub(super) waiting: Vec<(Edge, Waiting)>,
}

/// The node being processed.
struct Current {
    node: NodeRef,
    gradients: SmallVec<[Option<Tensor>; 1]>,
    next_hook: usize,
    /// Those that the node had when the pass came to it: hooks that a hook adds or removes do not count.
    hooks: Vec<(u32, Arc<u64>)>,
    followers: Vec<(Arc<u64>, LeafRef)>,
    is_stored: bool,
    /// The result whose gradient a hook may replace.
    hooked: usize,
}

impl Pass {
    /// Starts a pass.
    ///
    /// # Errors E0380 if a result requires no gradients, E0381 if a gradient is missing or has another shape, dtype or
    /// device.
    pub fn start(rt: &mut Runtime, targets: Vec<Target>, options: Options) -> Result<Pass> {
        let mut pass = Pass {
            found: vec![None; options.inputs.as_ref().map_or(0, Vec::len)],
            options,
            span: rt.span,
            ready: BinaryHeap::new(),
            uses: HashMap::default(),
            complete: Vec::new(),
            arriving: HashMap::default(),
            needed: None,
            current: None,
            again: None,
            used: Vec::new(),
        };
        let mut edges = Vec::new();
        for (index, target) in targets.into_iter().enumerate() {
            let tensor = &target.tensor;
            let Some(edge) = super::edge_of(rt, tensor) else {
                return Err(error::requires_none(index, tensor));
            };
            let gradient = match target.gradient {
                Some(gradient) => {
                    let is_real = |x: &Tensor| !x.dtype().is_complex();
                    let gradient = match is_real(&gradient)
                        && is_real(tensor)
                        && gradient.dtype() != tensor.dtype()
                    {
                        true => {
                            composed::call(rt, "to", &[Arg::Tensor(gradient), Arg::Dtype(tensor.dtype())])?
                        }
                        false => gradient,
                    };
                    error::check_gradient(&gradient, tensor)?;
                    gradient
                }
                None if tensor.count() == 1 && tensor.dtype().is_complex() => {
                    return Err(error::complex_number(index, tensor));
                }
                None if tensor.count() != 1 => return Err(error::not_a_scalar(index, tensor)),
                // Unlike `ones_like`, it is computed by the launch that reads it.
                None => recording(rt, false, |rt| {
                    composed::call(rt, "fill", &[Arg::Tensor(tensor.clone()), Arg::Int(1)])
                })?,
            };
            edges.push((edge, gradient));
        }
        if let Some(inputs) = &pass.options.inputs {
            let wanted = inputs.iter().filter_map(Node::of).map(|node| node.id).collect();
            let (needed, others) =
                leading_to(edges.iter().map(|(edge, _)| edge), wanted, pass.options.create);
            pass.needed = Some(needed);
            if pass.options.create == Create::IfUseful {
                let given = edges.iter().any(|(_, gradient)| super::edge_of(rt, gradient).is_some());
                let recorded = others || given;
                pass.options.create = if recorded { Create::Yes } else { Create::No };
                pass.options.retain |= recorded;
            }
        }
        if rt.recording.follows && pass.options.accumulate {
            pass.uses = uses_of_followed(edges.iter().map(|(edge, _)| edge), pass.needed.as_ref());
        }
        for (edge, gradient) in edges {
            let stream = rt.current_stream(gradient.device())?;
            pass.deliver(rt, &edge, gradient, &stream)?;
            pass.note_use(&edge);
        }
        Ok(pass)
    }

    /// Runs until the caller must act.
    ///
    /// # Errors
    /// Those of the operations; E0383, E0384, E0385, E0386.
    pub fn advance(&mut self, rt: &mut Runtime) -> Result<Event> {
        let create = self.creates();
        let autocast = std::mem::take(&mut rt.settings.autocast);
        let event = recording(rt, create, |rt| {
            let event = self.advanced(rt)?;
            if !matches!(event, Event::Done(_)) {
                self.settle_all(rt)?;
            }
            Ok(event)
        });
        rt.settings.autocast = autocast;
        event
    }

    /// Replaces the gradient by the one that a hook returned.
    ///
    /// # Errors E0381 if it has another shape, dtype or device.
    pub fn hooked(&mut self, gradient: Tensor) -> Result<()> {
        let Some(place) = self.current.as_mut().map(|at| &mut at.gradients[at.hooked]) else { return Ok(()) };
        if let Some(before) = place.as_ref().filter(|before| Varies::of(before) != Varies::of(&gradient)) {
            return Err(error::hook_result(&gradient.describe(), before));
        }
        *place = Some(gradient);
        Ok(())
    }

    /// The gradients of the operands of a [`Step::Script`], in order.
    ///
    /// # Errors
    /// Those of adding gradients.
    pub fn add_script_gradients(&mut self, rt: &mut Runtime, gradients: Vec<Option<Tensor>>) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let create = self.creates();
        recording(rt, create, |rt| {
            let Some(node) = node_of(&current.node) else { return Ok(()) };
            let of =
                |input: &Input| gradients.get(input.element as usize).cloned().flatten().map(Share::Whole);
            let found = node.inputs.iter().map(of).collect();
            self.distribute(rt, node, found)
        })
    }

    /// True if the pass is recorded itself.
    pub fn creates(&self) -> bool {
        self.options.create == Create::Yes
    }

    /// Selects the stream of the node for which the pass has returned. Returns the previous stream, which the caller
    /// must restore; `None` if it is the same.
    ///
    /// # Errors
    /// Those of selecting a stream.
    pub fn enter_stream(&mut self, rt: &mut Runtime) -> Result<Option<Arc<Stream>>> {
        let Some(reference) = self.current.as_ref().map(|current| current.node.clone()) else {
            return Ok(None);
        };
        node_of(&reference).map_or(Ok(None), |node| self.enter(rt, node))
    }

    /// True if the record is kept for another pass.
    pub fn retains(&self) -> bool {
        self.options.retain
    }

    fn advanced(&mut self, rt: &mut Runtime) -> Result<Event> {
        loop {
            // A pass may go through millions of records.
            paced(16)?;
            let Some(current) = &mut self.current else {
                match self.complete.pop().or_else(|| self.ready.pop()) {
                    Some(Ready(id, node)) => self.begin(rt, id, node)?,
                    None => {
                        self.finish(rt)?;
                        return self.input_gradients(rt).map(Event::Done);
                    }
                }
                continue;
            };
            let reference = current.node.clone();
            let Some(node) = node_of(&reference) else {
                self.current = None;
                continue;
            };
            let hook = current.hooks.get(current.next_hook).map(|(output, id)| (*output, **id));
            if let (Some((output, number)), false) = (hook, current.is_stored) {
                current.next_hook += 1;
                current.hooked = output as usize;
                if let Some(gradient) = current.gradients.get(output as usize).cloned().flatten() {
                    return Ok(Event::Hook(number, gradient));
                }
                continue;
            }
            if !std::mem::replace(&mut current.is_stored, true) {
                current.next_hook = 0;
                current.followers = node.state.lock().followers.clone();
                if let Step::Leaf = node.step
                    && node.state.lock().gradients.iter().any(|(_, stored)| stored.is_some())
                {
                    // Deferred shares may read a stored gradient, which is updated in place.
                    self.settle_all(rt)?;
                }
                self.store(rt, node)?;
            }
            if let Step::Leaf = node.step {
                if let Some(event) = self.follow(&reference) {
                    return Ok(event);
                }
                self.current = None;
                continue;
            }
            if !node.inputs.iter().any(|input| self.wants(input)) {
                self.current = None;
                continue;
            }
            let again = {
                let state = node.state.lock();
                state.again.as_ref().filter(|_| state.saved.is_none()).map(|(id, _)| **id)
            };
            if let Some(checkpoint) = again {
                if self.again.replace((node.id, checkpoint)) == Some((node.id, checkpoint)) {
                    return Err(error::lost_checkpoint());
                }
                return Ok(Event::Again(checkpoint));
            }
            if let (Step::Script(number), Some(current)) = (&node.step, &self.current) {
                return Ok(Event::Script(**number, current.gradients.to_vec()));
            }
            let Some(current) = self.current.take() else { continue };
            let waits = self.waits(rt, node)?;
            let found =
                self.on_stream_of(rt, node, |pass, rt| pass.step(rt, &reference, node, (&current, &waits)));
            let found = found.map_err(|e| self.located(e, node))?;
            if rt.recording.anomaly {
                for share in found.iter().flatten() {
                    if let Share::Whole(gradient) = share {
                        self.check_nan(rt, node, gradient)?;
                    }
                }
            }
            self.distribute(rt, node, found)?;
        }
    }

    /// An error of a node's gradient, with the lines of its operation and of the pass.
    fn located(&self, error: Error, node: &Node) -> Error {
        if error.code().id.starts_with("E038") || node.span.is_none() {
            return error;
        }
        let error = error.at(node.span, format!("in the gradient of this `{}`", node.name()));
        match error.labels().iter().any(|label| label.place == Place::Span(self.span)) {
            true => error,
            false => error.at(self.span, "in this backward pass"),
        }
    }

    /// Takes the gradients that have arrived for a node.
    fn begin(&mut self, rt: &mut Runtime, id: u64, reference: NodeRef) -> Result<()> {
        let Some(mut arriving) = self.arriving.remove(&id) else { return Ok(()) };
        let Some(node) = node_of(&reference) else { return Ok(()) };
        if let Step::Unrecorded = node.step {
            return Err(error::unrecorded(node.span));
        }
        for stream in &arriving.streams {
            if let Some(own) = stream_for(rt, node)?.filter(|own| !Arc::ptr_eq(own, stream)).cloned() {
                rt.wait_stream(&own, stream)?;
            }
        }
        self.settle(rt, node, &mut arriving)?;
        if !arriving.foreign.is_empty() {
            let foreign = std::mem::take(&mut arriving.foreign);
            self.on_stream_of(rt, node, |_, rt| {
                for (output, gradient) in foreign {
                    check_sum(node, arriving.gradients[output].as_ref(), &gradient)?;
                    add(rt, &mut arriving.gradients[output], gradient)?;
                }
                Ok(())
            })?;
        }
        if arriving.gradients.iter().all(Option::is_none)
            && let Some(form) = node.outputs.first()
        {
            arriving.gradients[0] = Some(self.on_stream_of(rt, node, |_, rt| form.zeros(rt))?);
        }
        let hooks = node.state.lock().hooks.clone();
        self.current = Some(Current {
            gradients: arriving.gradients,
            hooks,
            followers: Vec::new(),
            node: reference,
            next_hook: 0,
            is_stored: false,
            hooked: 0,
        });
        Ok(())
    }

    pub(super) fn on_stream_of<T>(
        &mut self,
        rt: &mut Runtime,
        node: &Node,
        code: impl FnOnce(&mut Pass, &mut Runtime) -> Result<T>,
    ) -> Result<T> {
        let before = self.enter(rt, node)?;
        let result = code(self, rt);
        before.map_or(Ok(()), |before| rt.set_stream(&before))?;
        result
    }

    /// Selects the stream of a node. Returns the previous stream if it differs.
    fn enter(&mut self, rt: &mut Runtime, node: &Node) -> Result<Option<Arc<Stream>>> {
        // A leaf has the current stream.
        let Some(stream) = own_stream(node) else { return Ok(None) };
        let current = rt.stream_on(stream.device())?;
        if Arc::ptr_eq(current, stream) {
            return Ok(None);
        }
        let before = current.clone();
        if !self.used.iter().any(|used| Arc::ptr_eq(used, stream)) {
            self.used.push(stream.clone());
        }
        rt.set_stream(stream)?;
        Ok(Some(before))
    }

    /// Stores the gradients of a leaf, of retained results, and of wanted inputs.
    fn store(&mut self, rt: &mut Runtime, node: &Node) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let done = self.on_stream_of(rt, node, |pass, rt| pass.store_on_stream(rt, node, &current));
        self.current = Some(current);
        done
    }

    fn store_on_stream(&mut self, rt: &mut Runtime, node: &Node, current: &Current) -> Result<()> {
        if let Some(inputs) = &self.options.inputs {
            for (edge, found) in inputs.iter().zip(&mut self.found) {
                if Node::of(edge).is_some_and(|wanted| wanted.id == node.id) {
                    *found = current.gradients.get(edge.output as usize).cloned().flatten();
                }
            }
        }
        let is_leaf = matches!(node.step, Step::Leaf);
        // Every pass stores the gradients of results that retain them.
        if is_leaf && (!self.options.accumulate || node.state.lock().rests) {
            return Ok(());
        }
        for (output, gradient) in current.gradients.iter().enumerate() {
            let Some(gradient) = gradient else { continue };
            let place = {
                let state = node.state.lock();
                let found = state.gradients.iter().find(|(of, _)| *of as usize == output);
                match found {
                    Some((_, place)) => Some(place.clone()),
                    None if is_leaf => Some(None),
                    None => None,
                }
            };
            let Some(before) = place else { continue };
            let shaped = if is_leaf { node.in_shape_of_leaf(rt, gradient)? } else { None };
            let gradient = shaped.as_ref().unwrap_or(gradient);
            if let (Some(before), true) = (&before, is_leaf) {
                node.check_broadcast(gradient.shape(), before.shape())?;
            }
            let stored = self.accumulated(rt, before, gradient, is_leaf)?;
            if self.creates() {
                super::stored::note_circular(rt, &current.node, &stored);
            }
            node.store_gradient(output as u32, Some(stored));
        }
        Ok(())
    }

    /// Adds a new gradient to a stored one. Without recording, a leaf's gradient is updated in place.
    fn accumulated(
        &self,
        rt: &mut Runtime,
        before: Option<Tensor>,
        gradient: &Tensor,
        is_leaf: bool,
    ) -> Result<Tensor> {
        let t = |x: &Tensor| Arg::Tensor(x.clone());
        match before {
            Some(before) if is_leaf && !self.creates() => {
                if let Some(add) = table::find("add") {
                    apply(rt, add, Call::InPlace(Args(&[t(&before), t(gradient), Arg::Int(1)])))?;
                }
                Ok(before)
            }
            Some(before) => composed::call(rt, "add", &[t(&before), t(gradient)]),
            // The stored tensor must not share its memory, neither with other tensors nor among its elements: scripts and
            // later passes write it in place.
            _ if !self.creates() && rt.is_sole_holder(gradient) => Ok(gradient.clone()),
            _ => composed::call(rt, "clone", &[t(gradient)]),
        }
    }

    /// The gradients of the inputs. Unless they are recorded, none shares its memory.
    fn input_gradients(&mut self, rt: &mut Runtime) -> Result<Vec<Option<Tensor>>> {
        let mut found = std::mem::take(&mut self.found);
        if self.options.accumulate || self.creates() {
            return Ok(found);
        }
        for place in &mut found {
            if let Some(gradient) = place.take() {
                *place = Some(match rt.is_sole_holder(&gradient) {
                    true => gradient,
                    false => composed::call(rt, "clone", &[Arg::Tensor(gradient)])?,
                });
            }
        }
        Ok(found)
    }

    fn wants(&self, input: &Input) -> bool {
        match (&self.needed, Node::of(&input.edge)) {
            (Some(needed), Some(node)) => needed.contains(&node.id),
            (None, _) => true,
            (_, None) => false,
        }
    }

    /// Applies a node's rule.
    fn step(
        &mut self,
        rt: &mut Runtime,
        reference: &NodeRef,
        node: &Node,
        (current, waits): (&Current, &[Option<bool>]),
    ) -> Result<Shares> {
        let (args, results) = self.unpack(node, reference)?;
        let wanted = |at: usize| node.inputs.get(at).is_some_and(|input| self.wants(input));
        let waits = |at: usize| waits.get(at).copied().flatten();
        let gradients = &current.gradients;
        let parts = Parts { node, args: &args, results: &results, gradients, wanted: &wanted, waits: &waits };
        run_rule(rt, parts, |b| match &node.step {
            Step::Op(op) => by_rule(b, node, op),
            Step::Argument | Step::Copied => b.to(0, || b.g()),
            Step::Relaid(layouts) => {
                let [from, to] = &**layouts;
                b.to(0, || strided::relaid(b, from, to));
            }
            Step::Written(layouts) => {
                let layouts = layouts.each_ref().map(strided::encoded);
                b.to(0, || b.call(&strided::ERASE, &[b.g().arg(), layouts[0].clone(), layouts[1].clone()]));
                b.to(1, || b.call(&strided::MOVE, &[b.g().arg(), layouts[0].clone(), layouts[1].clone()]));
            }
            Step::Overwritten => b.to(1, || b.g()),
            Step::Leaf | Step::Unrecorded | Step::Script(_) => {}
        })
    }

    /// The kept arguments and results of a node. Frees them, unless the record is retained.
    fn unpack(&self, node: &Node, reference: &NodeRef) -> Result<Kept> {
        let Step::Op(_) = node.step else { return Ok(Default::default()) };
        let mut state = node.state.lock();
        let Some(saved) = &state.saved else {
            return Err(error::consumed(node.name(), node.span, state.consumed));
        };
        let mut versions = saved.versions.iter();
        saved.watched().try_for_each(|tensor| match versions.next() {
            Some(version) if tensor.version() != *version => {
                Err(error::overwritten(node.name(), node.span, tensor.last_write()))
            }
            _ => Ok(()),
        })?;
        let (args, mut results) = match !self.retains() && saved.is_freed() {
            true => {
                state.consumed = self.span;
                let saved = state.saved.take();
                // No pass goes through the record again. A hook may refer to the tensor that refers to the record.
                let hooks = if state.again.is_none() { std::mem::take(&mut state.hooks) } else { Vec::new() };
                drop(state);
                drop(hooks);
                saved.map(Saved::released).unwrap_or_default()
            }
            false => {
                let kept = (saved.args.clone(), saved.results.clone());
                drop(state);
                kept
            }
        };
        if self.creates() {
            // The kept result has no record, which would keep itself alive.
            for (output, place) in results.iter_mut().enumerate() {
                let Some(tensor) = place else { continue };
                let alias = tensor.with_layout(tensor.layout().clone());
                let edge = Edge { node: reference.clone(), output: output as u32 };
                let at = tensor.family(&Mark::default(), |family| family.writes);
                alias.set_mark(Mark { edge: Some(edge), at, ..Mark::default() });
                *place = Some(alias);
            }
        }
        Ok((args, results))
    }

    /// Passes gradients on to the nodes of the operands.
    fn distribute(&mut self, rt: &mut Runtime, node: &Node, found: Shares) -> Result<()> {
        self.current = None;
        let Some(stream) = stream_for(rt, node)?.cloned() else { return Ok(()) };
        for (input, share) in node.inputs.iter().zip(found) {
            if !self.wants(input) {
                continue;
            }
            let gradient = match share {
                Some(share) => self.keep(rt, &input.edge, share, &stream)?,
                None => None,
            };
            if let Some(gradient) = gradient {
                let form = &input.form;
                let gradient = self.on_stream_of(rt, node, |_, rt| fitted(rt, gradient, form))?;
                let from = match gradient.device() == stream.device() {
                    true => stream.clone(),
                    false => rt.current_stream(gradient.device())?,
                };
                self.deliver(rt, &input.edge, gradient, &from)?;
            } else if let Step::Overwritten = node.step
                && let Some(node) = Node::of(&input.edge)
            {
                self.expect(&input.edge, node);
            }
            self.note_use(&input.edge);
        }
        Ok(())
    }

    /// Counts a use of a leaf as done: its gradient was propagated, or it has none.
    fn note_use(&mut self, edge: &Edge) {
        let Some(node) = Node::of(edge) else { return };
        let Some(count) = self.uses.get_mut(&node.id) else { return };
        *count -= 1;
        if *count == 0 {
            self.uses.remove(&node.id);
            self.complete.push(Ready(node.id, edge.node.clone()));
        }
    }

    /// The next hook of a leaf whose gradient was stored.
    fn follow(&mut self, reference: &NodeRef) -> Option<Event> {
        let current = self.current.as_mut().filter(|_| self.options.accumulate)?;
        loop {
            let (id, leaf) = current.followers.get(current.next_hook).cloned()?;
            current.next_hook += 1;
            if let Some(leaf) = leaf.tensor(reference) {
                return Some(Event::Stored(*id, leaf));
            }
        }
    }

    /// Makes the pass process a node, with zeros if no gradient arrives.
    fn expect(&mut self, edge: &Edge, node: &Node) -> &mut Arriving {
        self.arriving.entry(node.id).or_insert_with(|| {
            self.ready.push(Ready(node.id, edge.node.clone()));
            Arriving { gradients: SmallVec::from_elem(None, node.outputs.len()), ..Arriving::default() }
        })
    }

    fn deliver(&mut self, rt: &mut Runtime, edge: &Edge, gradient: Tensor, from: &Arc<Stream>) -> Result<()> {
        let Some(node) = Node::of(edge) else { return Ok(()) };
        if self.needed.as_ref().is_some_and(|needed| !needed.contains(&node.id)) {
            return Ok(());
        }
        let is_own = stream_for(rt, node)?.is_none_or(|own| Arc::ptr_eq(own, from));
        let output = edge.output as usize;
        let arriving = self.arriving_at(edge, node, from);
        if !is_own {
            arriving.foreign.push((output, gradient));
            return Ok(());
        }
        let place = &mut arriving.gradients[output];
        if place.is_none() {
            *place = Some(gradient);
            return Ok(());
        }
        let mut sum = place.take();
        check_sum(node, sum.as_ref(), &gradient)?;
        let before = rt.current_stream(from.device())?;
        rt.set_stream(from)?;
        let added = add(rt, &mut sum, gradient);
        rt.set_stream(&before)?;
        if let Some(arriving) = self.arriving.get_mut(&node.id) {
            arriving.gradients[output] = sum;
        }
        added
    }

    /// The arrivals of a node, to which a stream contributes.
    pub(super) fn arriving_at(&mut self, edge: &Edge, node: &Node, from: &Arc<Stream>) -> &mut Arriving {
        let arriving = self.expect(edge, node);
        if !arriving.streams.iter().any(|stream| Arc::ptr_eq(stream, from)) {
            arriving.streams.push(from.clone());
        }
        arriving
    }

    fn check_nan(&self, rt: &mut Runtime, node: &Node, gradient: &Tensor) -> Result<()> {
        let found = recording(rt, false, |rt| {
            let nan = composed::call(rt, "isnan", &[Arg::Tensor(gradient.clone())])?;
            let any = composed::call(rt, "any", &[Arg::Tensor(nan)])?;
            rt.item(&any)
        })?;
        if found.is_zero() { Ok(()) } else { Err(error::nan_found(node.name(), node.span)) }
    }

    /// Makes the current streams wait for the other streams.
    fn finish(&mut self, rt: &mut Runtime) -> Result<()> {
        for stream in std::mem::take(&mut self.used) {
            let current = rt.current_stream(stream.device())?;
            if !Arc::ptr_eq(&current, &stream) {
                rt.wait_stream(&current, &stream)?;
            }
        }
        Ok(())
    }
}

/// Checks that two gradients of a leaf have one shape: they differ if the shape of the leaf was changed in place.
fn check_sum(node: &Node, sum: Option<&Tensor>, gradient: &Tensor) -> Result<()> {
    match sum {
        Some(sum) if sum.shape() != gradient.shape() => {
            let (from, to) = (sum.shape(), gradient.shape());
            node.check_broadcast(from, to).or_else(|_| node.check_broadcast(to, from))
        }
        _ => Ok(()),
    }
}

/// The stream of a node's operation; `None` for a leaf.
fn own_stream(node: &Node) -> Option<&Arc<Stream>> {
    if let Step::Leaf = node.step { None } else { node.stream.as_ref() }
}

/// The stream on which a node's gradient is computed: that of its operation; for a leaf the current one.
pub(super) fn stream_for<'a>(rt: &'a mut Runtime, node: &'a Node) -> Result<Option<&'a Arc<Stream>>> {
    match (own_stream(node), node.outputs.first()) {
        (None, Some(form)) => rt.stream_on(form.device).map(Some),
        (own, _) => Ok(own),
    }
}

/// The gradients of an operation of a table.
fn by_rule(b: &Back<'_>, node: &Node, op: &'static Op) {
    match op.gradient {
        Gradient::Derivative(derivative) => b.to(0, || b.g().wide() * derivative(&b.x(0).wide()).conj()),
        Gradient::OfResult(derivative) => b.to(0, || b.g().wide() * derivative(&b.y().wide()).conj()),
        Gradient::Rule(_, rule) => rule(b),
        Gradient::View => match b.args().0.get(op.params.len()) {
            Some(layout) => {
                let from = node.inputs.first().and_then(|input| input.layout.as_deref());
                if let Some(from) = from {
                    let place = b.args().ints(op.params.len()).and_then(strided::decoded);
                    let place = place.and_then(|view| shares::place_in(&view, from));
                    b.to_part(0, place, || strided::view_back(b, layout.clone(), from));
                }
            }
            None => b.to(0, || b.g().reshape(&b.shape(0))),
        },
        Gradient::Zero => {
            for input in &node.inputs {
                b.to_element(input.param.into(), input.element as usize, || b.zeros(&input.form));
            }
        }
        Gradient::Missing(help) => b.fail(error::no_rule(op.name, node.span, help)),
        Gradient::Unstated | Gradient::Constant | Gradient::Composed | Gradient::Writes(_) => {
            b.fail(error::no_rule(op.name, node.span, ""));
        }
    }
}
