//! The functional forms: `grad`, `vjp`, `jvp`, `jacobian`, `custom_gradient`. Each makes a function value.

use super::captured;
use super::drive::{recorded, run};
use crate::base::{Result, Span};
use crate::library::tree;
use crate::ops::gradient::{self, Create, Edge, Options, Target, Varies};
use crate::ops::{Arg, Args, Call, Out, apply, table};
use crate::tensor::Tensor;
use crate::vm::{Bound, Counted, Object, Value, Values, Vm};
use std::any::Any;

/// The handle of `register_hook`.
pub(super) struct Hook {
    pub edge: Edge,
    pub number: u64,
}

/// A function made by this module.
struct Function {
    kind: Kind,
    function: Value,
}

enum Kind {
    /// `grad`, `value_and_grad`
    Gradient { argnums: Vec<i64>, single: bool, has_aux: bool, value: bool },
    /// `jacobian`, `hessian`
    Jacobian { argnums: Vec<i64>, single: bool, second: bool },
    /// The second result of `vjp`: the outputs, and the records of the operands.
    Back { outputs: Value, edges: Vec<Option<Edge>>, operands: Values, cut: bool },
    /// `custom_gradient`: the rule.
    Custom(Value),
}

/// A call of a `custom_gradient` that was recorded.
struct Applied {
    rule: Value,
    saved: Value,
    /// The tensors of `saved`, itself or in its list or tuple, with their versions, and the source position.
    versions: Vec<(Tensor, u64)>,
    span: Span,
    /// For each argument of the call, whether it is a tensor.
    count: usize,
}

/// Bytes of the list of numbers of a [`Function`].
const NUMBERS: usize = 48;

macro_rules! object {
    ($type:ty, $name:literal, $text:literal) => {
        impl Object for $type {
            fn type_name(&self) -> &'static str {
                $name
            }

            fn text(&self) -> String {
                $text.to_string()
            }

            fn beside(&self) -> usize {
                NUMBERS
            }

            fn as_any(&self) -> &dyn Any {
                self
            }
        }
    };
}

object!(Hook, "hook", "<hook>");
object!(Function, "gradient_function", "<function of a gradient>");
object!(Applied, "gradient_rule", "<rule>");

fn function(vm: &Vm, kind: Kind, function: Value) -> Value {
    let receiver = Value::object(Function { kind, function });
    match vm.natives().method(&receiver, "call") {
        Some(method) => Value::Bound(Counted::shared(Bound { receiver, method })),
        None => receiver,
    }
}

pub(super) fn differentiating(vm: &mut Vm, args: &mut [Value], value: bool) -> Result<Value> {
    let (argnums, single) = argnums(vm, &args[1])?;
    let has_aux = matches!(args[2], Value::Bool(true));
    Ok(function(vm, Kind::Gradient { argnums, single, has_aux, value }, args[0].clone()))
}

/// The value of `argnums`: the numbers of arguments, and whether it is one number instead of a list.
fn argnums(vm: &mut Vm, given: &Value) -> Result<(Vec<i64>, bool)> {
    let wrong = || {
        crate::ops::error::wrong_argument(1, "the number of an argument, from 0, or a list of them")
            .help("`grad`, `jacobian` and `hessian` return a function of the arguments: write `grad(f)(x)`")
    };
    let of = |value: &Value| value.as_int().ok_or_else(wrong);
    match given {
        Value::Int(_) => Ok((vec![of(given)?], true)),
        Value::List(_) | Value::Tuple(_) | Value::Range(_) => {
            Ok((vm.collect(given)?.iter().map(of).collect::<Result<Vec<_>>>()?, false))
        }
        _ => Err(wrong()),
    }
}

pub(super) fn jacobian(vm: &mut Vm, args: &mut [Value], second: bool) -> Result<Value> {
    let (argnums, single) = argnums(vm, &args[1])?;
    Ok(function(vm, Kind::Jacobian { argnums, single, second }, args[0].clone()))
}

pub(super) fn custom(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    Ok(function(vm, Kind::Custom(args[1].clone()), args[0].clone()))
}

/// Calls a function that this module made.
pub(super) fn call(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let given = vm.collect(&args[1])?;
    let receiver = args[0].clone();
    let Some(made) = receiver.as_object::<Function>() else {
        return Err(crate::ops::error::wrong_argument(0, "a function of `grad`"));
    };
    match &made.kind {
        Kind::Gradient { argnums, single, has_aux, value } => {
            let argnums = numbered(argnums, given.len())?;
            let found = differentiate(vm, &made.function, &given, &argnums, *has_aux)?;
            let gradients = match (*single, found.gradients) {
                (true, mut all) => all.pop().unwrap_or_default(),
                (false, all) => Value::tuple(all),
            };
            Ok(match (value, found.aux) {
                (false, None) => gradients,
                (false, Some(aux)) => Value::tuple(vec![gradients, aux]),
                (true, None) => Value::tuple(vec![found.value, gradients]),
                (true, Some(aux)) => Value::tuple(vec![Value::tuple(vec![found.value, aux]), gradients]),
            })
        }
        Kind::Jacobian { argnums, single, second } => {
            let argnums = numbered(argnums, given.len())?;
            derivatives(vm, &made.function, &given, (&argnums, *single), *second)
        }
        Kind::Back { outputs, edges, operands, cut } => {
            let cotangents = match given.as_slice() {
                [one] => one.clone(),
                _ => Value::tuple(given),
            };
            pull_back(vm, outputs, &cotangents, edges, operands, *cut)
        }
        Kind::Custom(rule) => custom_call(vm, &made.function, rule, given),
    }
}

struct Found {
    value: Value,
    aux: Option<Value>,
    gradients: Vec<Value>,
}

pub(super) fn is_continuous(value: &Value) -> bool {
    matches!(value, Value::Tensor(t) if t.dtype().is_float() || t.dtype().is_complex())
}

/// A value with each floating-point tensor replaced by an alias with a separate record, and these records in order.
fn apart(vm: &mut Vm, value: &Value, edges: &mut Vec<Option<Edge>>, cut: &mut bool) -> Result<Value> {
    let mut leaf = |vm: &mut Vm, leaf: &Value| match leaf {
        Value::Tensor(tensor) if is_continuous(leaf) => {
            let (alias, is_leaf) = gradient::argument(&mut vm.rt, tensor);
            *cut |= is_leaf;
            edges.push(gradient::edge_of(&mut vm.rt, &alias));
            Ok(Value::Tensor(alias))
        }
        other => Ok(other.clone()),
    };
    tree::rebuilt(vm, value, &mut leaf, 0)
}

/// The gradients in the structure of a value: zeros for a tensor without one, `none` for everything except
/// floating-point tensors.
fn like(vm: &mut Vm, value: &Value, gradients: &mut dyn Iterator<Item = Option<Tensor>>) -> Result<Value> {
    let mut leaf = |vm: &mut Vm, leaf: &Value| match leaf {
        Value::Tensor(tensor) if is_continuous(leaf) => match gradients.next().flatten() {
            Some(gradient) => Ok(Value::Tensor(gradient)),
            None => operation(vm, "zeros_like", &[Arg::Tensor(tensor.clone())]).map(Value::Tensor),
        },
        _ => Ok(Value::None),
    };
    tree::rebuilt(vm, value, &mut leaf, 0)
}

/// A value whose tensors have no record.
fn detached(vm: &mut Vm, value: &Value, cut: bool) -> Result<Value> {
    let mut leaf = |vm: &mut Vm, leaf: &Value| match leaf {
        Value::Tensor(tensor) if gradient::requires_gradient(&mut vm.rt, tensor) => {
            Ok(Value::Tensor(apart_from_record(vm, tensor, cut)))
        }
        other => Ok(other.clone()),
    };
    tree::rebuilt(vm, value, &mut leaf, 0)
}

fn operation(vm: &mut Vm, name: &str, args: &[Arg]) -> Result<Tensor> {
    let op = table::find(name).ok_or_else(|| crate::ops::error::wrong_argument(0, "an operation"))?;
    let mut all: Vec<Arg> = args.to_vec();
    all.resize(op.params.len(), Arg::None);
    match apply(&mut vm.rt, op, Call::Plain(Args(&all)))? {
        Out::Tensor(tensor) => Ok(tensor),
        _ => Err(crate::ops::error::wrong_argument(0, "a tensor")),
    }
}

/// A call of a differentiated function.
struct Called {
    result: Value,
    /// The records of the arguments' tensors.
    edges: Vec<Vec<Option<Edge>>>,
    /// Whether an argument is a leaf. The dependence of gradients on a leaf is not recorded.
    cut: bool,
}

/// The positions of arguments. Numbers below 0 count from the end.
fn numbered(argnums: &[i64], count: usize) -> Result<Vec<usize>> {
    let position = |&number: &i64| {
        let from = if number < 0 { count as i64 } else { 0 };
        let position = number.checked_add(from).and_then(|at| usize::try_from(at).ok());
        position.filter(|&at| at < count).ok_or_else(|| gradient::error::no_argument(number, count))
    };
    argnums.iter().map(position).collect()
}

/// Calls a function on arguments with separate records.
fn called(vm: &mut Vm, f: &Value, given: &[Value], argnums: &[usize]) -> Result<Called> {
    let mut args = given.to_vec();
    let (mut edges, mut cut) = (Vec::new(), false);
    for &argnum in argnums {
        let Some(arg) = args.get_mut(argnum) else {
            return Err(gradient::error::no_argument(argnum as i64, given.len()));
        };
        captured::check(vm, arg)?;
        let mut own = Vec::new();
        *arg = apart(vm, arg, &mut own, &mut cut)?;
        if own.is_empty() {
            return Err(gradient::error::nothing_to_vary(argnum));
        }
        edges.push(own);
    }
    let result = recorded(vm, true, |vm| vm.callback(f, &args))?;
    Ok(Called { result, edges, cut })
}

fn differentiate(vm: &mut Vm, f: &Value, given: &[Value], argnums: &[usize], has_aux: bool) -> Result<Found> {
    let Called { result, edges, cut } = called(vm, f, given, argnums)?;
    let (loss, aux) = match (&result, has_aux) {
        (Value::Tuple(pair), true) if pair.items().len() == 2 => {
            (pair.items()[0].clone(), Some(pair.items()[1].clone()))
        }
        (_, true) => return Err(gradient::error::bad_loss("with `has_aux`, a tuple `(loss, extra)`")),
        (_, false) => (result, None),
    };
    let Value::Tensor(loss) = loss else {
        return Err(gradient::error::bad_loss("a tensor with one element"));
    };
    if loss.count() != 1 {
        return Err(
            gradient::error::bad_loss("a tensor with one element").help("reduce it: `x.sum()` or `x.mean()`")
        );
    }
    if loss.dtype().is_complex() {
        let help = "make it real: `x.abs()` or `x.real`";
        return Err(gradient::error::bad_loss("a real number").help(help));
    }
    let flat: Vec<Option<Edge>> = edges.iter().flatten().cloned().collect();
    let targets = match gradient::requires_gradient(&mut vm.rt, &loss) {
        true => vec![Target { tensor: loss.clone(), gradient: None }],
        false => Vec::new(),
    };
    let (found, recorded) = pass(vm, targets, &flat, false, cut)?;
    gradient::end_arguments(flat.iter().flatten());
    let mut all = found.into_iter();
    let mut gradients = Vec::new();
    for (argnum, own) in argnums.iter().zip(&edges) {
        let mut part = all.by_ref().take(own.len()).collect::<Vec<_>>().into_iter();
        gradients.push(like(vm, &given[*argnum], &mut part)?);
    }
    // If the pass is not recorded, it frees the records of the values.
    let (value, aux) = match recorded {
        true => (Value::Tensor(loss), aux),
        false => {
            let value = detached(vm, &Value::Tensor(loss), cut)?;
            (value, aux.map(|aux| detached(vm, &aux, cut)).transpose()?)
        }
    };
    Ok(Found { value, aux, gradients })
}

/// Runs a pass for the gradients of records. The pass is recorded if something outside depends on it, which the second
/// result says. Gradients of an unrecorded pass are marked if they depend on a leaf (`cut`).
fn pass(
    vm: &mut Vm,
    targets: Vec<Target>,
    edges: &[Option<Edge>],
    retain: bool,
    cut: bool,
) -> Result<(Vec<Option<Tensor>>, bool)> {
    if targets.is_empty() {
        return Ok((vec![None; edges.len()], false));
    }
    let inputs: Vec<Edge> = edges.iter().flatten().cloned().collect();
    let create = if vm.rt.recording.enabled { Create::IfUseful } else { Create::No };
    let options = Options { retain, create, accumulate: false, inputs: Some(inputs) };
    let (mut found, recorded) = run(vm, targets, options)?;
    if cut && !recorded {
        gradient::mark_unrecorded(&mut vm.rt, &mut found);
    }
    let mut found = found.into_iter();
    let all = edges.iter().map(|edge| edge.as_ref().and_then(|_| found.next().flatten())).collect();
    Ok((all, recorded))
}

pub(super) fn vjp(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let operands = vm.collect(&args[1])?;
    let argnums: Vec<usize> = (0..operands.len()).collect();
    let Called { result: outputs, edges, cut } = called(vm, &args[0], &operands, &argnums)?;
    let edges: Vec<Option<Edge>> = edges.into_iter().flatten().collect();
    let shown = detached_unless_outer(vm, &outputs, &edges, cut)?;
    gradient::end_arguments(edges.iter().flatten());
    let back = function(vm, Kind::Back { outputs, edges, operands, cut }, Value::None);
    Ok(Value::tuple(vec![shown, back]))
}

/// The outputs as the caller sees them: with a record only if they depend on more than the arguments. `cut`: an
/// argument is a leaf; the dependence on it is not recorded.
fn detached_unless_outer(vm: &mut Vm, outputs: &Value, edges: &[Option<Edge>], cut: bool) -> Result<Value> {
    let own: Vec<Edge> = edges.iter().flatten().cloned().collect();
    let mut leaf = |vm: &mut Vm, leaf: &Value| match leaf {
        Value::Tensor(tensor) if gradient::requires_gradient(&mut vm.rt, tensor) => {
            match gradient::depends_outside(&mut vm.rt, tensor, &own) {
                true => Ok(leaf.clone()),
                false => Ok(Value::Tensor(apart_from_record(vm, tensor, cut))),
            }
        }
        other => Ok(other.clone()),
    };
    tree::rebuilt(vm, outputs, &mut leaf, 0)
}

/// A tensor without its record; with `cut`, marked so that a pass that reaches it is an error.
fn apart_from_record(vm: &mut Vm, tensor: &Tensor, cut: bool) -> Tensor {
    if !cut {
        return gradient::detach(tensor);
    }
    let mut marked = [Some(tensor.clone())];
    gradient::mark_unrecorded(&mut vm.rt, &mut marked);
    let [marked] = marked;
    marked.unwrap_or_else(|| tensor.clone())
}

fn pull_back(
    vm: &mut Vm,
    outputs: &Value,
    cotangents: &Value,
    edges: &[Option<Edge>],
    operands: &[Value],
    cut: bool,
) -> Result<Value> {
    let (mut leaves, mut given) = (Values::new(), Values::new());
    tree::leaves(vm, outputs, &mut leaves, 0)?;
    tree::beside(vm, outputs, cotangents, 0, &mut given, 0)?;
    let mut targets = Vec::new();
    for (leaf, gradient) in leaves.iter().zip(&given) {
        if let (Value::Tensor(tensor), Value::Tensor(gradient)) = (leaf, gradient)
            && gradient::requires_gradient(&mut vm.rt, tensor)
        {
            targets.push(Target { tensor: tensor.clone(), gradient: Some(gradient.clone()) });
        }
    }
    let (found, _) = pass(vm, targets, edges, true, cut)?;
    let mut found = found.into_iter();
    let mut all = Vec::new();
    for operand in operands {
        all.push(like(vm, operand, &mut found)?);
    }
    Ok(if all.len() == 1 { all.remove(0) } else { Value::tuple(all) })
}

pub(super) fn jvp(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let operands = vm.collect(&args[1])?;
    let tangents = vm.collect(&args[2])?;
    if operands.len() != tangents.len() {
        return Err(crate::ops::error::wrong_argument(2, "one tangent for each primal"));
    }
    let argnums: Vec<usize> = (0..operands.len()).collect();
    let Called { result: outputs, edges: own, cut } = called(vm, &args[0], &operands, &argnums)?;
    let own: Vec<Option<Edge>> = own.into_iter().flatten().collect();
    let edges = &own;
    let mut leaves = Values::new();
    tree::leaves(vm, &outputs, &mut leaves, 0)?;
    // The gradient is linear in its cotangents, so its gradient with respect to them is the derivative.
    let mut cotangents = Vec::new();
    let mut targets = Vec::new();
    for leaf in &leaves {
        if let Value::Tensor(tensor) = leaf
            && gradient::requires_gradient(&mut vm.rt, tensor)
        {
            let zeros = operation(vm, "zeros_like", &[Arg::Tensor(tensor.clone())])?;
            let (cotangent, _) = gradient::argument(&mut vm.rt, &zeros);
            targets.push(Target { tensor: tensor.clone(), gradient: Some(cotangent.clone()) });
            cotangents.push(Some(cotangent));
        } else {
            cotangents.push(None);
        }
    }
    let inputs: Vec<Edge> = edges.iter().flatten().cloned().collect();
    let options = Options { retain: true, create: Create::Yes, accumulate: false, inputs: Some(inputs) };
    let (found, _) = match targets.is_empty() {
        true => (vec![None; edges.len()], false),
        false => run(vm, targets, options)?,
    };
    let mut directions = Vec::new();
    for (operand, tangent) in operands.iter().zip(&tangents) {
        let (mut own, mut beside) = (Values::new(), Values::new());
        tree::leaves(vm, operand, &mut own, 0)?;
        tree::beside(vm, operand, tangent, 2, &mut beside, 0)?;
        directions.extend(own.iter().zip(beside).filter(|(leaf, _)| is_continuous(leaf)).map(|(_, t)| t));
    }
    let mut targets = Vec::new();
    for (gradient, direction) in found.iter().zip(&directions) {
        if let (Some(gradient), Value::Tensor(direction)) = (gradient, direction)
            && gradient::requires_gradient(&mut vm.rt, gradient)
        {
            targets.push(Target { tensor: gradient.clone(), gradient: Some(direction.clone()) });
        }
    }
    let mut edges = Vec::new();
    for cotangent in &cotangents {
        edges.push(cotangent.as_ref().and_then(|tensor| gradient::edge_of(&mut vm.rt, tensor)));
    }
    gradient::end_arguments(own.iter().flatten());
    let (found, _) = pass(vm, targets, &edges, false, cut)?;
    gradient::end_arguments(edges.iter().flatten());
    let mut found = found.into_iter();
    let mut leaf = |vm: &mut Vm, leaf: &Value| match leaf {
        Value::Tensor(tensor) => match found.next().flatten() {
            Some(derivative) => Ok(Value::Tensor(derivative)),
            None => operation(vm, "zeros_like", &[Arg::Tensor(tensor.clone())]).map(Value::Tensor),
        },
        _ => Ok(Value::None),
    };
    let derivative = tree::rebuilt(vm, &outputs, &mut leaf, 0)?;
    let shown = detached_unless_outer(vm, &outputs, &own, cut)?;
    Ok(Value::tuple(vec![shown, derivative]))
}

/// All derivatives of a function's result, or of its gradient with `second`. The Jacobian of each tensor of the result,
/// in the structure of the argument, or of the tuple of arguments.
fn derivatives(
    vm: &mut Vm,
    f: &Value,
    given: &[Value],
    (argnums, single): (&[usize], bool),
    second: bool,
) -> Result<Value> {
    let f = match second {
        true => {
            let numbers = argnums.iter().map(|&at| at as i64).collect();
            let kind = Kind::Gradient { argnums: numbers, single, has_aux: false, value: false };
            function(vm, kind, f.clone())
        }
        false => f.clone(),
    };
    let Called { result, edges, cut } = called(vm, &f, given, argnums)?;
    let edges: Vec<Option<Edge>> = edges.into_iter().flatten().collect();
    let mut varied = argnums.iter().filter_map(|&argnum| given.get(argnum).cloned());
    let x = if single { varied.next().unwrap_or_default() } else { Value::tuple(varied.collect::<Vec<_>>()) };
    let (mut inputs, mut outputs) = (Values::new(), Values::new());
    tree::leaves(vm, &x, &mut inputs, 0)?;
    inputs.retain(is_continuous);
    tree::leaves(vm, &result, &mut outputs, 0)?;
    let mut left = 0;
    for output in &outputs {
        match output {
            Value::Tensor(y) => {
                left += usize::from(y.count() > 0 && gradient::requires_gradient(&mut vm.rt, y))
            }
            // Only floating-point tensors have gradients.
            Value::None if second => {}
            _ => return Err(gradient::error::bad_loss("a tensor, or a tree of tensors")),
        }
    }
    let mut leaf = |vm: &mut Vm, leaf: &Value| {
        let Value::Tensor(y) = leaf else { return Ok(leaf.clone()) };
        let is_recorded = y.count() > 0 && gradient::requires_gradient(&mut vm.rt, y);
        left -= usize::from(is_recorded);
        let rows = if is_recorded { rows_of(vm, y, &edges, left > 0, cut)? } else { Vec::new() };
        let mut tables = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            let Value::Tensor(input) = input else { continue };
            let shape = y.shape().iter().chain(input.shape()).map(|&n| n as i64).collect();
            if !is_recorded {
                let args = [Arg::Ints(shape), Arg::Dtype(input.dtype()), Arg::Device(input.device())];
                tables.push(operation(vm, "zeros", &args)?);
                continue;
            }
            let mut own = Vec::with_capacity(rows.len());
            for row in &rows {
                own.push(match row.get(i).cloned().flatten() {
                    Some(gradient) => gradient,
                    None => operation(vm, "zeros_like", &[Arg::Tensor(input.clone())])?,
                });
            }
            let stacked = operation(vm, "stack", &[Arg::Tensors(own), Arg::Int(0)])?;
            tables.push(operation(vm, "reshape", &[Arg::Tensor(stacked), Arg::Ints(shape)])?);
        }
        like(vm, &x, &mut tables.into_iter().map(Some))
    };
    let table = tree::rebuilt(vm, &result, &mut leaf, 0);
    gradient::end_arguments(edges.iter().flatten());
    table
}

/// The gradients of each element of a tensor, by argument.
fn rows_of(
    vm: &mut Vm,
    y: &Tensor,
    edges: &[Option<Edge>],
    retain: bool,
    cut: bool,
) -> Result<Vec<Vec<Option<Tensor>>>> {
    let (form, count) = (Varies::of(y), y.count());
    let extents = [Arg::Int(count as i64), Arg::None, Arg::Dtype(form.dtype), Arg::Device(form.device)];
    let ones = operation(vm, "eye", &extents)?;
    let own: Vec<i64> = y.shape().iter().map(|&n| n as i64).collect();
    let mut rows = Vec::new();
    for row in 0..count {
        vm.charge(1)?;
        let one = operation(vm, "select", &[Arg::Tensor(ones.clone()), Arg::Int(0), Arg::Int(row as i64)])?;
        let cotangent = operation(vm, "reshape", &[Arg::Tensor(one), Arg::Ints(own.clone())])?;
        let targets = vec![Target { tensor: y.clone(), gradient: Some(cotangent) }];
        rows.push(pass(vm, targets, edges, retain || row + 1 < count, cut)?.0);
    }
    Ok(rows)
}

/// Calls the forward function of a `custom_gradient`, and records the call if an argument requires gradients.
fn custom_call(vm: &mut Vm, forward: &Value, rule: &Value, given: Values) -> Result<Value> {
    // The call is recorded, so that second derivatives include the dependence of `saved` on the arguments.
    let result = vm.callback(forward, &given)?;
    let Value::Tuple(pair) = &result else { return Err(gradient::error::bad_custom()) };
    let [value, saved] = pair.items() else { return Err(gradient::error::bad_custom()) };
    let mut outputs = Values::new();
    tree::leaves(vm, value, &mut outputs, 0)?;
    let outputs: Option<Vec<Tensor>> = (outputs.iter())
        .map(|leaf| match leaf {
            Value::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        })
        .collect();
    let Some(outputs) = outputs else { return Err(gradient::error::bad_custom()) };
    if !vm.rt.recording.enabled {
        return Ok(value.clone());
    }
    // One operand per argument, so that the rule's results match the operands by position.
    let mut operands = Vec::new();
    for arg in &given {
        operands.push(match arg {
            Value::Tensor(tensor) => tensor.clone(),
            _ => operation(vm, "zeros", &[Arg::Ints(Vec::new())])?,
        });
    }
    let of = |value: &Value| match value {
        Value::Tensor(tensor) => Some((tensor.clone(), tensor.version())),
        _ => None,
    };
    let versions = match saved {
        Value::Tuple(tuple) => tuple.items().iter().filter_map(of).collect(),
        Value::List(list) => list.borrow().iter().filter_map(of).collect(),
        one => of(one).into_iter().collect(),
    };
    let (rule, saved, span) = (rule.clone(), saved.clone(), vm.rt.span);
    let applied = Applied { rule, saved, versions, span, count: given.len() };
    let callback = vm.callbacks.keep(Value::object(applied));
    let mut marked = gradient::script_node(&mut vm.rt, callback, &operands, &outputs).into_iter();
    let mut leaf = |_: &mut Vm, leaf: &Value| Ok(marked.next().map_or_else(|| leaf.clone(), Value::Tensor));
    tree::rebuilt(vm, value, &mut leaf, 0)
}

/// The gradients of the arguments of a `custom_gradient`'s call.
pub(super) fn apply_rule(
    vm: &mut Vm,
    number: u64,
    gradients: Vec<Option<Tensor>>,
) -> Result<Vec<Option<Tensor>>> {
    let value = vm.callbacks.get(number).unwrap_or_default();
    let Some(applied) = value.as_object::<Applied>() else { return Err(gradient::error::consumed_rule()) };
    if let Some((tensor, _)) = applied.versions.iter().find(|(tensor, version)| tensor.version() != *version)
    {
        return Err(gradient::error::overwritten("custom_gradient", applied.span, tensor.last_write()));
    }
    let given = gradients.into_iter().map(|gradient| gradient.map_or(Value::None, Value::Tensor));
    let args: Vec<Value> = std::iter::once(applied.saved.clone()).chain(given).collect();
    let answer = vm.callback(&applied.rule, &args)?;
    let all = match (&answer, applied.count) {
        (Value::Tuple(tuple), count) if tuple.items().len() == count => tuple.items().to_vec(),
        (_, 1) => vec![answer.clone()],
        (_, count) => return Err(gradient::error::bad_rule(count)),
    };
    let of = |value: Value| match value {
        Value::Tensor(tensor) => Ok(Some(tensor)),
        Value::None => Ok(None),
        _ => Err(gradient::error::bad_rule(applied.count)),
    };
    all.into_iter().map(of).collect()
}
