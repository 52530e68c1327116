//! `autograd.grad`, `autograd.backward` and `checkpoint`.

use super::drive::recorded;
use super::{accumulating, edges, keeps, run_pass, tensors};
use crate::base::{Result, Span};
use crate::driver::DeviceId;
use crate::library::tree;
use crate::ops::gradient::{self, Create, Options, Target};
use crate::plan::{Autocast, Selection};
use crate::stream::Stream;
use crate::tensor::{GeneratorState, Tensor};
use crate::vm::{Object, Value, Values, Vm};
use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// The gradients that were given for outputs: `none`, one, or a list with one or `none` per output.
fn given_gradients(vm: &mut Vm, value: &Value, count: usize, index: usize) -> Result<Vec<Option<Tensor>>> {
    let all = match value {
        Value::None => return Ok(vec![None; count]),
        Value::Tensor(tensor) => [Value::Tensor(tensor.clone())].into(),
        list => vm.collect(list)?,
    };
    if all.len() != count {
        let wanted = format!("a gradient for each of {count} outputs");
        return Err(crate::ops::error::wrong_argument(index, &wanted));
    }
    let of = |value: Value| match value {
        Value::None => Ok(None),
        Value::Tensor(tensor) => Ok(Some(tensor)),
        _ => Err(crate::ops::error::wrong_argument(index, "tensors")),
    };
    all.into_iter().map(of).collect()
}

fn targets(vm: &mut Vm, outputs: &Value, gradients: &Value) -> Result<Vec<Target>> {
    let outputs = tensors(vm, outputs, 0)?;
    let gradients = given_gradients(vm, gradients, outputs.len(), 2)?;
    Ok(outputs.into_iter().zip(gradients).map(|(tensor, gradient)| Target { tensor, gradient }).collect())
}

pub(super) fn autograd_grad(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let targets = targets(vm, &args[0], &args[2])?;
    let inputs = tensors(vm, &args[1], 1)?;
    let create = matches!(args[4], Value::Bool(true));
    let options = Options {
        retain: keeps(&args[3], create),
        create: if create { Create::Yes } else { Create::No },
        accumulate: false,
        inputs: Some(edges(vm, &inputs, 1)?),
    };
    let found = run_pass(vm, targets, options)?;
    let allowed = matches!(args[5], Value::Bool(true));
    let of = |(index, gradient): (usize, Option<Tensor>)| match gradient {
        Some(gradient) => Ok(Value::Tensor(gradient)),
        None if allowed => Ok(Value::None),
        None => Err(gradient::error::unused(index)),
    };
    found.into_iter().enumerate().map(of).collect::<Result<Vec<_>>>().map(Value::tuple)
}

pub(super) fn autograd_backward(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let targets = targets(vm, &args[0], &args[1])?;
    let create = matches!(args[3], Value::Bool(true));
    let inputs = accumulating(vm, &args[4], 4)?;
    let create_mode = if create { Create::Yes } else { Create::No };
    let options = Options { retain: keeps(&args[2], create), create: create_mode, accumulate: true, inputs };
    run_pass(vm, targets, options).map(|_| Value::None)
}

/// A part of a computation that the backward pass runs again.
pub(super) struct Checkpoint {
    function: Value,
    args: Values,
    /// The records of the first run.
    records: RefCell<Vec<Weak<dyn Any + Send + Sync>>>,
    /// The states of the generators before it.
    draws: Vec<(DeviceId, GeneratorState)>,
    place: Environment,
    /// The source position, and the versions of the arguments' tensors, because a write to one would change the second
    /// run.
    span: Span,
    versions: Vec<u64>,
}

/// The environment in which code runs: the device, the streams, automatic conversions.
struct Environment {
    selection: Selection,
    streams: Vec<Arc<Stream>>,
    autocast: Autocast,
}

impl Environment {
    fn current(vm: &Vm) -> Environment {
        Environment {
            selection: vm.rt.selection(),
            streams: vm.rt.current_streams(),
            autocast: vm.rt.settings.autocast,
        }
    }

    fn select(&self, vm: &mut Vm) -> Result<()> {
        vm.rt.select(self.selection);
        vm.rt.settings.autocast = self.autocast;
        self.streams.iter().try_for_each(|stream| vm.rt.set_stream(stream))
    }
}

impl Object for Checkpoint {
    fn type_name(&self) -> &'static str {
        "checkpoint"
    }

    fn text(&self) -> String {
        "<checkpoint>".to_string()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn checkpoint(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let given = vm.collect(&args[1])?;
    if !vm.rt.recording.enabled {
        return vm.callback(&args[0], &given);
    }
    let draws = vm.rt.generator_states();
    let (place, span) = (Environment::current(vm), vm.rt.span);
    let versions = operands(vm, &given)?.iter().map(Tensor::version).collect();
    let outer = gradient::begin_log(&mut vm.rt);
    let result = vm.callback(&args[0], &given);
    let made = gradient::end_log(&mut vm.rt, outer);
    let result = result?;
    let records = made.iter().map(Arc::downgrade).collect();
    let value = Value::object(Checkpoint {
        function: args[0].clone(),
        args: given,
        records: RefCell::new(records),
        draws,
        place,
        span,
        versions,
    });
    let callback = vm.callbacks.keep(value);
    gradient::release_kept(&made, &callback);
    Ok(result)
}

/// The tensors of arguments.
fn operands(vm: &mut Vm, args: &[Value]) -> Result<Vec<Tensor>> {
    let mut found = Values::new();
    args.iter().try_for_each(|arg| tree::leaves(vm, arg, &mut found, 0))?;
    let tensor = |value: Value| if let Value::Tensor(tensor) = value { Some(tensor) } else { None };
    Ok(found.into_iter().filter_map(tensor).collect())
}

impl Checkpoint {
    /// Runs the function again with the same draws, streams and conversions. The records of the first run receive the
    /// values to keep.
    pub(super) fn run_again(&self, vm: &mut Vm) -> Result<()> {
        let changed = |(tensor, version): &(Tensor, u64)| tensor.version() != *version;
        let kept = operands(vm, &self.args)?.into_iter().zip(self.versions.iter().copied());
        if let Some((tensor, _)) = kept.into_iter().find(changed) {
            return Err(gradient::error::overwritten("checkpoint", self.span, tensor.last_write()));
        }
        let now = vm.rt.generator_states();
        vm.rt.set_generator_states(&self.draws);
        let before = Environment::current(vm);
        self.place.select(vm)?;
        let result = recorded(vm, true, |vm| {
            let outer = gradient::begin_log(&mut vm.rt);
            let result = vm.callback(&self.function, &self.args);
            let made = gradient::end_log(&mut vm.rt, outer);
            result.map(|_| made)
        });
        before.select(vm)?;
        vm.rt.set_generator_states(&now);
        let second = result?;
        let first = std::mem::take(&mut *self.records.borrow_mut());
        if first.len() != second.len() {
            return Err(gradient::error::checkpoint_differs(first.len(), second.len()));
        }
        for (callback, number, record) in gradient::restore_kept(&first, &second) {
            let inside = vm.callbacks.get(*callback).unwrap_or_default();
            if let Some(inside) = inside.as_object::<Checkpoint>()
                && let Some(place) = inside.records.borrow_mut().get_mut(number)
            {
                *place = record;
            }
        }
        *self.records.borrow_mut() = first;
        Ok(())
    }
}
