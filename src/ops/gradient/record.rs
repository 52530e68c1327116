//! Recording operations.

use super::node::{Input, Node, Saved, State, Step, Varies};
use super::stored::{gradient_of, set_gradient};
use super::{Gradient, error, family};
use crate::base::Result;
use crate::ops::signature::Kind;
use crate::ops::subscript::{self, SET_INDEX};
use crate::ops::{Arg, Args, Call, Op, Out, Run, apply, composed, map, table};
use crate::plan::{MapArg, Runtime, overlaps_itself};
use crate::stream::Stream;
use crate::tensor::{Edge, Mark, Origin, Tensor};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

/// Applies an operation in a session whose tensors may require gradients, and records it if one does.
pub(in crate::ops) fn apply_recorded(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    match call {
        Call::Operands(operands) => {
            let tracked = rt.recording.enabled
                && operands.iter().any(|arg| match arg {
                    MapArg::Tensor(tensor) => family::edge(rt, tensor).is_some(),
                    _ => false,
                });
            if !tracked {
                return apply::run(rt, op, call);
            }
            let args = bound(op, operands);
            plain(rt, op, &Args(&args), call)
        }
        Call::Plain(args) if std::ptr::eq(op, &SET_INDEX) => set_index(rt, &args),
        Call::Plain(args) => match op.gradient {
            Gradient::Writes(source) => overwrite(rt, op, &args, source),
            _ => plain(rt, op, &args, call),
        },
        Call::InPlace(args) => in_place(rt, op, &args),
    }
}

/// The operands of an operator as arguments, with the defaults of further parameters.
pub(in crate::ops) fn bound(op: &Op, operands: &[MapArg<'_>]) -> SmallVec<[Arg; 4]> {
    let mut args: SmallVec<[Arg; 4]> = (operands.iter())
        .map(|operand| match operand {
            MapArg::Tensor(tensor) => Arg::Tensor((*tensor).clone()),
            MapArg::Number(number) => composed::number(*number),
            MapArg::Raw(..) | MapArg::Position => Arg::None,
        })
        .collect();
    args.extend(op.params.iter().skip(operands.len()).map(|param| composed::default_arg(param.default)));
    args
}

/// An operation that returns new tensors or views.
fn plain(rt: &mut Runtime, op: &'static Op, args: &Args<'_>, call: Call<'_>) -> Result<Out> {
    let records = rt.recording.enabled && !matches!(op.gradient, Gradient::Constant | Gradient::Composed);
    let inputs = if records { inputs(rt, args) } else { SmallVec::new() };
    if inputs.is_empty() {
        let out = match op.gradient {
            // The operations that its code calls are not recorded.
            Gradient::Constant => unrecorded(rt, |rt| apply::run(rt, op, call))?,
            _ => apply::run(rt, op, call)?,
        };
        if let Some(source) = args.opt_tensor(0).filter(|source| source.may_be_recorded()) {
            match &out {
                Out::Tensor(view) => family::inherit(rt, source, view),
                Out::Tuple(views) => views.iter().for_each(|view| family::inherit(rt, source, view)),
                _ => {}
            }
        }
        return Ok(out);
    }
    rt.check_records()?;
    let is_operator = matches!(call, Call::Operands(_));
    let out = unrecorded(rt, |rt| apply::run(rt, op, call))?;
    let is_unrecorded = |input: &Input| is_step(&input.edge, |step| matches!(step, Step::Unrecorded));
    if inputs.iter().all(is_unrecorded) {
        return Ok(mark_like(out, args, &inputs[0].edge));
    }
    note(rt, op, args, inputs, out, is_operator)
}

/// Gives results the record of an operand.
fn mark_like(out: Out, args: &Args<'_>, edge: &Edge) -> Out {
    let mark = |tensor: &Tensor| {
        if family::is_continuous(tensor) && !args.opt_tensor(0).is_some_and(|x| x.same(tensor)) {
            let mut mark = tensor.mark();
            mark.at = tensor.family(&mark, |family| family.writes);
            mark.edge = Some(edge.clone());
            tensor.set_mark(mark);
        }
    };
    match &out {
        Out::Tensor(tensor) => mark(tensor),
        Out::Tuple(tensors) | Out::Record(_, tensors) => tensors.iter().for_each(mark),
        _ => {}
    }
    out
}

/// Runs code without recording.
pub fn unrecorded<T>(rt: &mut Runtime, code: impl FnOnce(&mut Runtime) -> T) -> T {
    recording(rt, false, code)
}

/// Runs code with recording on or off.
pub fn recording<T>(rt: &mut Runtime, enabled: bool, code: impl FnOnce(&mut Runtime) -> T) -> T {
    let before = std::mem::replace(&mut rt.recording.enabled, enabled);
    let result = code(rt);
    rt.recording.enabled = before;
    result
}

/// The operands that require gradients.
fn inputs(rt: &mut Runtime, args: &Args<'_>) -> SmallVec<[Input; 2]> {
    let mut found = SmallVec::new();
    let mut look = |rt: &mut Runtime, param: usize, element: usize, tensor: &Tensor| {
        if let Some(edge) = family::edge(rt, tensor) {
            found.push(Input {
                param: param as u16,
                element: element as u32,
                edge,
                form: Varies::of(tensor),
                layout: None,
            });
        }
    };
    for (param, arg) in args.0.iter().enumerate() {
        match arg {
            Arg::Tensor(tensor) => look(rt, param, 0, tensor),
            Arg::Tensors(tensors) => {
                tensors.iter().enumerate().for_each(|(element, tensor)| look(rt, param, element, tensor));
            }
            _ => {}
        }
    }
    found
}

/// Records an operation that has run, and returns its results with their records.
fn note(
    rt: &mut Runtime,
    op: &'static Op,
    args: &Args<'_>,
    mut inputs: SmallVec<[Input; 2]>,
    out: Out,
    is_operator: bool,
) -> Result<Out> {
    let results: &[Tensor] = match &out {
        Out::Tensor(tensor) => std::slice::from_ref(tensor),
        Out::Tuple(tensors) | Out::Record(_, tensors) => tensors,
        _ => &[],
    };
    if !results.iter().any(family::is_continuous) {
        return Ok(out);
    }
    // `x.to(x.dtype)` and similar calls return the tensor itself.
    if let [result] = results
        && args.opt_tensor(0).is_some_and(|x| x.same(result))
    {
        return Ok(out);
    }
    let mut saved = saved(op, args, &inputs, results);
    saved.number = is_operator && keeps_number(op, args, &inputs);
    if let (Gradient::View, Some(x), [result]) = (op.gradient, args.opt_tensor(0), results)
        && result.storage_ref().is(x.storage())
    {
        saved.args.push(super::strided::encoded(result.layout()));
        inputs[0].layout = Some(Box::new(x.layout().clone()));
    }
    let outputs = results.iter().map(Varies::of).collect();
    let stream = stream_of(rt, &results[0]);
    let kept = saved.results.iter().any(Option::is_some);
    let node = new_node(rt, Step::Op(op), inputs, outputs, stream);
    if let Some(node) = node.downcast_ref::<Node>() {
        node.state.lock().saved = Some(saved);
    }
    let source = args.opt_tensor(0);
    let mark = |(output, tensor): (usize, Tensor)| {
        if !family::is_continuous(&tensor) {
            return tensor;
        }
        let edge = Edge { node: node.clone(), output: output as u32 };
        let shares = source.filter(|source| tensor.storage_ref().is(source.storage()));
        // The node keeps the storage's first tensor, which therefore must not hold the node.
        let tensor = match kept && tensor.is_first() {
            true => tensor.with_layout(tensor.layout().clone()),
            false => tensor,
        };
        let mut new = Mark { edge: Some(edge), ..Mark::default() };
        match shares {
            Some(source) => {
                let from = source.mark();
                (new.family, new.view) = (from.family, true);
                new.strided = from.strided || op.name == "as_strided";
                new.at = tensor.family(&new, |family| family.writes);
            }
            None => tensor.family(&Mark::default(), |family| {
                family.origin = Some(Origin {
                    node: Arc::downgrade(&node),
                    output: output as u32,
                    layout: tensor.layout().clone(),
                    is_base: false,
                });
            }),
        }
        tensor.set_mark(new);
        tensor
    };
    Ok(match out {
        Out::Tensor(tensor) => Out::Tensor(mark((0, tensor))),
        Out::Tuple(all) => Out::Tuple(all.into_iter().enumerate().map(mark).collect()),
        Out::Record(names, all) => Out::Record(names, all.into_iter().enumerate().map(mark).collect()),
        other => other,
    })
}

/// The arguments and results that a rule reads later.
fn saved(op: &Op, args: &Args<'_>, inputs: &[Input], results: &[Tensor]) -> Saved {
    let mut keeps = op.gradient.keeps();
    if let (true, Some(x), [y, ..]) = (keeps.narrower, args.opt_tensor(0), results)
        && x.dtype().size() < y.dtype().size()
    {
        (keeps.operands, keeps.results) = (1, 0);
    }
    let mut saved =
        Saved { args: SmallVec::new(), results: SmallVec::new(), versions: SmallVec::new(), number: false };
    for (param, arg) in args.0.iter().enumerate() {
        let keep = keeps.keeps_operand(args, param, inputs);
        let arg = match arg {
            Arg::Tensor(_) if !keep => Arg::None,
            Arg::Tensors(all) if !keep => Arg::Shapes(all.iter().map(|t| t.shape().clone()).collect()),
            Arg::Tensor(tensor) => Arg::Tensor(family::keep_operand(tensor, inputs, param, 0)),
            Arg::Tensors(all) => {
                let kept = all.iter().enumerate().map(|(i, t)| family::keep_operand(t, inputs, param, i));
                Arg::Tensors(kept.collect())
            }
            other => other.clone(),
        };
        saved.args.push(arg);
    }
    if keeps.results > 0 && keeps.is_needed(args, super::Keeps::RESULTS, inputs) {
        for (i, tensor) in results.iter().enumerate() {
            saved.results.push((i < 8 && keeps.results >> i & 1 == 1).then(|| tensor.kept()));
        }
    }
    let mut versions = SmallVec::new();
    saved.watched().for_each(|tensor| versions.push(tensor.version()));
    saved.versions = versions;
    saved
}

/// Whether the gradient needs a number that stands where a tensor may.
fn keeps_number(op: &Op, args: &Args<'_>, inputs: &[Input]) -> bool {
    let keeps = op.gradient.keeps();
    (args.0.iter().enumerate()).any(|(param, arg)| {
        matches!(arg, Arg::Bool(_) | Arg::Int(_) | Arg::Float(_))
            && matches!(op.params[param].kind, Kind::TensorOrNumber)
            && keeps.keeps_operand(args, param, inputs)
    })
}

/// The current stream of a tensor's device.
pub(super) fn stream_of(rt: &mut Runtime, tensor: &Tensor) -> Option<Arc<Stream>> {
    rt.current_stream(tensor.device()).ok()
}

/// Makes a node.
pub(super) fn new_node(
    rt: &mut Runtime,
    step: Step,
    inputs: SmallVec<[Input; 2]>,
    outputs: SmallVec<[Varies; 1]>,
    stream: Option<Arc<Stream>>,
) -> Arc<dyn Any + Send + Sync> {
    let id = rt.recording.next;
    rt.recording.next += 1;
    let stream = stream.or_else(|| {
        let device = outputs.first().map(|form| form.device)?;
        rt.current_stream(device).ok()
    });
    let node: Arc<dyn Any + Send + Sync> = Arc::new(Node {
        id,
        span: rt.span,
        step,
        inputs,
        outputs,
        stream,
        counted: rt.record_ticket(),
        moved: OnceLock::new(),
        state: Mutex::new(State::default()),
    });
    if let Some(log) = &mut rt.recording.log {
        log.push(node.clone());
    }
    node
}

/// The in-place form of a view: the tensor's layout changes, and its memory is not written.
fn view_in_place(rt: &mut Runtime, op: &'static Op, args: &Args<'_>) -> Result<Out> {
    let target = args.tensor(0)?;
    let old = family::edge(rt, target);
    let own = target.with_layout(target.layout().clone());
    own.set_mark(target.mark());
    let mut moved: SmallVec<[Arg; 4]> = args.0.iter().cloned().collect();
    moved[0] = Arg::Tensor(own);
    if let Out::Tensor(view) = plain(rt, op, &Args(&moved), Call::Plain(Args(&moved)))? {
        unrecorded(rt, |rt| apply::run(rt, op, Call::InPlace(*args)))?;
        let mark = view.mark();
        if let (Some(old), Some(new)) = (&old, &mark.edge) {
            family::move_retained(old, new);
        }
        target.set_mark(mark);
    }
    Ok(Out::Tensor(target.clone()))
}

/// The in-place form of an operation.
fn in_place(rt: &mut Runtime, op: &'static Op, args: &Args<'_>) -> Result<Out> {
    let target = args.tensor(0)?;
    let name = table::in_place_name(op);
    let inputs = if rt.recording.enabled { inputs(rt, args) } else { SmallVec::new() };
    let records = !inputs.is_empty();
    let is_view = matches!(op.run, Run::View(_));
    if !records {
        // A record belongs to a layout, so a change of layout is recorded even inside `no_grad`.
        let record = if is_view { family::edge(rt, target) } else { None };
        if record.is_some_and(|edge| !is_step(&edge, |step| matches!(step, Step::Leaf))) {
            return recording(rt, true, |rt| view_in_place(rt, op, args));
        }
        let out = apply::run(rt, op, Call::InPlace(*args))?;
        target.note_write(rt.span);
        if is_view {
            super::leaf::note_change(target, rt.span);
        }
        return Ok(out);
    }
    family::check_writable(target)?;
    if is_view {
        return view_in_place(rt, op, args);
    }
    if let Gradient::Constant = op.gradient {
        let out = unrecorded(rt, |rt| apply::run(rt, op, Call::InPlace(*args)))?;
        target.note_write(rt.span);
        family::written(rt, target, None, true)?;
        return Ok(out);
    }
    // The rule may need the old elements.
    let mut moved: SmallVec<[Arg; 4]> = args.0.iter().cloned().collect();
    if let Some(own) = family::before_write(rt, target) {
        moved[0] = Arg::Tensor(own);
    }
    if op.gradient.keeps().keeps_operand(args, 0, &inputs) || matches!(op.gradient, Gradient::Composed) {
        moved[0] = Arg::Tensor(composed::call(rt, "clone", &moved[..1])?);
    }
    let moved = Args(&moved);
    let Out::Tensor(result) = apply::again(rt, op, Call::Plain(moved))? else {
        return Err(crate::ops::error::wrong_argument(0, "a tensor"));
    };
    map::check_fits(name, result.dtype(), target)?;
    unrecorded(rt, |rt| rt.assign(name, target, &result))?;
    target.note_write(rt.span);
    let edge = family::edge(rt, &result);
    family::written(rt, target, edge, true)?;
    Ok(Out::Tensor(target.clone()))
}

/// An operation that overwrites its first argument: `copy_`, `normal_`.
fn overwrite(rt: &mut Runtime, op: &'static Op, args: &Args<'_>, source: Option<usize>) -> Result<Out> {
    let target = args.tensor(0)?;
    let source = source.and_then(|source| args.opt_tensor(source));
    let edge = match (rt.recording.enabled, source) {
        (true, Some(source)) => family::edge(rt, source),
        _ => None,
    };
    let records = rt.recording.enabled && (edge.is_some() || family::edge(rt, target).is_some());
    if records {
        family::check_writable(target)?;
    }
    let out = unrecorded(rt, |rt| apply::run(rt, op, Call::Plain(*args)))?;
    target.note_write(rt.span);
    if records {
        family::written(rt, target, edge, false)?;
    }
    Ok(out)
}

/// Runs code without a row that overwrites `targets` with `sources`, and records the write. `pairs` are the parts of
/// targets with the tensors that are written to them.
///
/// # Errors
/// Those of the code; E0382 if a target is a leaf, or a view of one.
pub(in crate::ops) fn overwriting<T>(
    rt: &mut Runtime,
    targets: &[Tensor],
    sources: &[Tensor],
    code: impl FnOnce(&mut Runtime) -> Result<T>,
    pairs: impl FnOnce(&mut Runtime) -> Result<Vec<(Tensor, Tensor)>>,
) -> Result<T> {
    if !rt.recording.used {
        return code(rt);
    }
    let records = rt.recording.enabled
        && targets.iter().chain(sources).any(|tensor| family::edge(rt, tensor).is_some());
    if records {
        targets.iter().try_for_each(family::check_writable)?;
    }
    let out = unrecorded(rt, code)?;
    targets.iter().for_each(|target| target.note_write(rt.span));
    if records {
        for (target, source) in pairs(rt)? {
            if let (None, Some(whole)) =
                (target.mark().family, targets.iter().find(|whole| target.storage_ref().is(whole.storage())))
            {
                let family = whole.mark().family;
                target.set_mark(Mark { family, ..target.mark() });
            }
            let edge = family::edge(rt, &source);
            family::written(rt, &target, edge, false)?;
        }
    }
    Ok(out)
}

/// A write in place, of values without gradients, by code without a row. The tensor loses its record, and a pass that
/// needs its old elements fails.
///
/// # Errors
/// E0388 if its gradient would be lost, E0382 for a leaf.
pub fn replaced<T>(
    rt: &mut Runtime,
    name: &str,
    target: &Tensor,
    code: impl FnOnce(&mut Runtime) -> Result<T>,
) -> Result<T> {
    if rt.recording.used && rt.recording.enabled && family::edge(rt, target).is_some() {
        family::check_writable(target)?;
        return Err(error::lost(name, 0, target));
    }
    let out = code(rt)?;
    if rt.recording.used {
        target.note_write(rt.span);
    }
    Ok(out)
}

/// Rejects a tensor that requires gradients as an operand of code that does not record them.
///
/// # Errors
/// E0388 if it requires gradients and operations are recorded.
pub fn refuse(rt: &mut Runtime, name: &str, operand: usize, tensor: &Tensor) -> Result<()> {
    match rt.recording.enabled && requires_gradient(rt, tensor) {
        true => Err(error::lost(name, operand, tensor)),
        false => Ok(()),
    }
}

/// `x[indices] = value`
fn set_index(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let target = args.tensor(0)?;
    let value = args.opt_tensor(2);
    let tracked = rt.recording.enabled
        && (family::edge(rt, target).is_some()
            || value.is_some_and(|value| family::edge(rt, value).is_some()));
    if !tracked {
        let out = unrecorded(rt, |rt| apply::run(rt, &SET_INDEX, Call::Plain(*args)))?;
        target.note_write(rt.span);
        return Ok(out);
    }
    family::check_writable(target)?;
    let edge = value.and_then(|value| family::edge(rt, value));
    if let Some(part) = subscript::as_view(target, args.indices(1)?)? {
        let out = unrecorded(rt, |rt| apply::run(rt, &SET_INDEX, Call::Plain(*args)))?;
        target.note_write(rt.span);
        let mark = target.mark();
        part.set_mark(Mark { family: mark.family, ..Mark::default() });
        family::written(rt, &part, edge, false)?;
        return Ok(out);
    }
    if overlaps_itself(target.layout()) {
        // The gradient would be wrong where memory that is written as one element is read as another.
        return Err(crate::plan::error::writes_overlap(SET_INDEX.name));
    }
    let mut inputs = inputs(rt, args);
    if let (Some(own), Some(first)) = (family::before_write(rt, target), inputs.first_mut())
        && let (0, Some(edge)) = (first.param, own.mark().edge)
    {
        first.edge = edge;
    }
    let saved = saved(&SET_INDEX, args, &inputs, &[]);
    let out = unrecorded(rt, |rt| apply::run(rt, &SET_INDEX, Call::Plain(*args)))?;
    target.note_write(rt.span);
    let stream = stream_of(rt, target);
    let outputs = SmallVec::from_iter([Varies::of(target)]);
    let node = new_node(rt, Step::Op(&SET_INDEX), inputs, outputs, stream);
    if let Some(node) = node.downcast_ref::<Node>() {
        node.state.lock().saved = Some(saved);
    }
    family::written(rt, target, Some(Edge { node, output: 0 }), true)?;
    Ok(out)
}

/// The elements of `whole` that an update such as `x[i] *= v` has read: a copy if they are a view and operations are
/// recorded, because the gradient may need them after the write.
pub fn before_update(rt: &mut Runtime, whole: &Tensor, part: &Tensor) -> Result<Tensor> {
    let is_view = part.storage_ref().is(whole.storage());
    if !rt.recording.used || !rt.recording.enabled || !is_view || !family::is_continuous(part) {
        return Ok(part.clone());
    }
    composed::call(rt, "clone", &[Arg::Tensor(part.clone())])
}

/// The record of a tensor.
pub fn edge_of(rt: &mut Runtime, tensor: &Tensor) -> Option<Edge> {
    if rt.recording.used { family::edge(rt, tensor) } else { None }
}

/// `x.requires_grad`
pub fn requires_gradient(rt: &mut Runtime, tensor: &Tensor) -> bool {
    edge_of(rt, tensor).is_some_and(|edge| !is_step(&edge, |step| matches!(step, Step::Unrecorded)))
}

/// `x.is_parameter`: the tensor requires gradients, or did until they were disabled.
pub fn is_parameter(rt: &mut Runtime, tensor: &Tensor) -> bool {
    requires_gradient(rt, tensor) || tensor.resting().is_some()
}

/// `x.is_leaf`: the tensor was not computed from others that require gradients.
pub fn is_leaf(rt: &mut Runtime, tensor: &Tensor) -> bool {
    match edge_of(rt, tensor) {
        Some(edge) => is_step(&edge, |step| matches!(step, Step::Leaf | Step::Unrecorded)),
        None => true,
    }
}

/// `x.requires_grad_(on)`
///
/// # Errors E0380 for a dtype without gradients, and when gradients of a computed tensor are disabled.
pub fn require(rt: &mut Runtime, tensor: &Tensor, on: bool) -> Result<()> {
    if on && !family::is_continuous(tensor) {
        return Err(error::not_continuous(tensor));
    }
    let edge = edge_of(rt, tensor);
    match (edge, on) {
        (Some(_), true) | (None, false) => Ok(()),
        (Some(edge), false) => {
            let Some(node) = Node::of(&edge).filter(|node| matches!(node.step, Step::Leaf)) else {
                return Err(error::not_a_leaf());
            };
            node.state.lock().rests = true;
            let mark = tensor.mark();
            tensor.family(&mark, |family| *family = Default::default());
            tensor.set_mark(Mark { edge: None, ..mark });
            tensor.set_resting(Some(edge));
            Ok(())
        }
        (None, true) => {
            rt.recording.used = true;
            let form = Varies::of(tensor);
            let earlier =
                tensor.resting().filter(|edge| Node::of(edge).is_some_and(|n| n.form_of_leaf() == form));
            let node = earlier.map(|edge| edge.node).unwrap_or_else(|| {
                let log = rt.recording.log.take();
                let node = new_node(rt, Step::Leaf, SmallVec::new(), SmallVec::from_iter([form]), None);
                rt.recording.log = log;
                node
            });
            let mut mark = tensor.mark();
            let is_base = mark.begins || mark.family.is_none() && tensor.is_first();
            mark.at = tensor.family(&mark, |family| {
                let layout = tensor.layout().clone();
                family.origin = Some(Origin { node: Arc::downgrade(&node), output: 0, layout, is_base });
                family.writes
            });
            mark.edge = Some(Edge { node, output: 0 });
            tensor.set_mark(mark);
            if let Some(edge) = tensor.resting() {
                if let Some(node) = Node::of(&edge) {
                    node.state.lock().rests = false;
                }
                tensor.set_resting(None);
            }
            Ok(())
        }
    }
}

/// A tensor of the same memory with a separate record: the argument of a differentiated function. Its gradients flow on
/// to `tensor` if that requires gradients. Returns true if `tensor` is a leaf, which by itself does not cause a pass to
/// be recorded ([`Create::IfUseful`](super::Create)).
pub fn argument(rt: &mut Runtime, tensor: &Tensor) -> (Tensor, bool) {
    rt.recording.used = true;
    let form = Varies::of(tensor);
    let mut inputs: SmallVec<[Input; 2]> = SmallVec::new();
    let edge = family::edge(rt, tensor);
    let is_leaf = edge.as_ref().is_some_and(|edge| is_step(edge, |step| matches!(step, Step::Leaf)));
    if let Some(edge) = edge {
        inputs.push(Input { param: 0, element: 0, edge, form: form.clone(), layout: None });
    }
    let node = new_node(rt, Step::Argument, inputs, SmallVec::from_iter([form]), None);
    (marked_apart(tensor, node, 0), is_leaf)
}

fn is_step(edge: &Edge, is: impl Fn(&Step) -> bool) -> bool {
    Node::of(edge).is_some_and(|node| is(&node.step))
}

/// A tensor of the same memory with a separate record and family.
fn marked_apart(tensor: &Tensor, node: Arc<dyn Any + Send + Sync>, output: u32) -> Tensor {
    let alias = family::detached(tensor);
    let mut mark = alias.mark();
    alias.family(&mark, |family| {
        let layout = alias.layout().clone();
        family.origin = Some(Origin { node: Arc::downgrade(&node), output, layout, is_base: false });
    });
    mark.edge = Some(Edge { node, output });
    alias.set_mark(mark);
    alias
}

/// Marks gradients whose dependence on leaves was not recorded.
pub fn mark_unrecorded(rt: &mut Runtime, gradients: &mut [Option<Tensor>]) {
    let outputs = gradients.iter().flatten().map(Varies::of).take(1).collect();
    let node = new_node(rt, Step::Unrecorded, SmallVec::new(), outputs, None);
    for gradient in gradients.iter_mut().flatten() {
        *gradient = marked_apart(gradient, node.clone(), 0);
    }
}

/// `x.detach()`: another tensor over the same memory, also while nothing is recorded, so that `requires_grad_()` and
/// changes of shape in place apply to one of the two.
pub fn detach(tensor: &Tensor) -> Tensor {
    family::detached(tensor)
}

/// `x.detach_()`: the tensor itself has no record from now on. Tensors that were computed from it keep theirs.
///
/// # Errors
/// E0380 for a view of a part, whose record belongs to its base too.
pub fn detach_in_place(rt: &mut Runtime, tensor: &Tensor) -> Result<()> {
    let Some(edge) = edge_of(rt, tensor) else { return Ok(()) };
    if is_step(&edge, |step| matches!(step, Step::Leaf)) {
        return require(rt, tensor, false);
    }
    // The result of an operation may be a view of the whole memory that the operation made.
    if !super::strided::covers(tensor.layout(), tensor.storage_ref().first_layout().count()) {
        return Err(error::detached_view(tensor));
    }
    let (mark, gradient) = (tensor.mark(), gradient_of(rt, tensor));
    let at = tensor.family(&mark, |family| {
        family.current = None;
        family.writes
    });
    tensor.set_mark(Mark { edge: None, at, ..mark });
    // A retained gradient remains.
    if gradient.is_some() { set_gradient(rt, tensor, gradient) } else { Ok(()) }
}

/// Records results of script code whose gradient the caller computes ([`super::Event::Script`]): `operands`
/// in, `results` out, which must be fresh.
pub fn script_node(
    rt: &mut Runtime,
    number: Arc<u64>,
    operands: &[Tensor],
    results: &[Tensor],
) -> Vec<Tensor> {
    let args = [Arg::Tensors(operands.to_vec())];
    let mut found = inputs(rt, &Args(&args));
    for input in &mut found {
        input.param = 0;
    }
    if found.is_empty() {
        return results.to_vec();
    }
    let outputs = results.iter().map(Varies::of).collect();
    let node = new_node(rt, Step::Script(number), found, outputs, None);
    let mark = |(output, tensor): (usize, &Tensor)| match family::is_continuous(tensor) {
        true => marked_apart(tensor, node.clone(), output as u32),
        false => tensor.clone(),
    };
    results.iter().enumerate().map(mark).collect()
}

/// Releases records that refer to themselves. Called when no further pass can run.
pub fn end_session(rt: &mut Runtime) {
    for node in std::mem::take(&mut rt.recording.circular).iter().filter_map(Weak::upgrade) {
        if let Some(node) = node.downcast_ref::<Node>() {
            let gradients = std::mem::take(&mut node.state.lock().gradients);
            drop(gradients);
        }
    }
    for storage in std::mem::take(&mut rt.recording.written) {
        if let Some(storage) = storage.upgrade() {
            drop(storage.take_records());
        }
    }
}

impl Saved {
    /// The arguments and results, which are no longer kept.
    pub(super) fn released(mut self) -> (SmallVec<[Arg; 3]>, SmallVec<[Option<Tensor>; 1]>) {
        self.tensors().for_each(Tensor::release_kept);
        (std::mem::take(&mut self.args), std::mem::take(&mut self.results))
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.tensors().for_each(Tensor::release_kept);
    }
}
