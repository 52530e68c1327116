//! Runs backward passes: calls the script's hooks and rules when a pass requests them.

use super::functions::Checkpoint;
use crate::base::Result;
use crate::ops::gradient::{self, Event, Options, Pass, Target};
use crate::tensor::Tensor;
use crate::vm::{Value, Vm};

/// Runs a pass to its end and returns the gradients of its inputs.
///
/// # Errors
/// Those of [`Pass`], of hooks and of rules.
pub fn run_pass(vm: &mut Vm, targets: Vec<Target>, options: Options) -> Result<Vec<Option<Tensor>>> {
    run(vm, targets, options).map(|(found, _)| found)
}

/// [`run_pass`]; also returns whether the pass was recorded.
pub(super) fn run(
    vm: &mut Vm,
    targets: Vec<Target>,
    options: Options,
) -> Result<(Vec<Option<Tensor>>, bool)> {
    let outer = vm.pass_ends.replace(Vec::new());
    let mut result = drive(vm, targets, options);
    for end in std::mem::replace(&mut vm.pass_ends, outer).unwrap_or_default() {
        let done = Value::Bool(result.is_ok());
        let ended = recorded(vm, false, |vm| vm.callback(&end, &[done]));
        result = result.and_then(|found| ended.map(|_| found));
    }
    vm.release_callbacks();
    result
}

fn drive(vm: &mut Vm, targets: Vec<Target>, options: Options) -> Result<(Vec<Option<Tensor>>, bool)> {
    let mut pass = Pass::start(&mut vm.rt, targets, options)?;
    loop {
        vm.charge(1)?;
        match pass.advance(&mut vm.rt)? {
            Event::Done(found) => return Ok((found, pass.creates())),
            Event::Hook(number, gradient) => {
                let hook = vm.callbacks.get(number).unwrap_or_default();
                let given = [Value::Tensor(gradient.clone())];
                match beside(vm, &mut pass, |vm| vm.callback(&hook, &given))? {
                    Value::Tensor(new) => pass.hooked(new)?,
                    Value::None => {}
                    other => {
                        let what = crate::vm::error::a(other.type_name());
                        return Err(gradient::error::hook_result(&what, &gradient));
                    }
                }
            }
            Event::Stored(number, leaf) => {
                let hook = vm.callbacks.get(number).unwrap_or_default();
                beside(vm, &mut pass, |vm| vm.callback(&hook, &[Value::Tensor(leaf)]))?;
            }
            Event::Script(number, gradients) => {
                let answer = beside(vm, &mut pass, |vm| super::forms::apply_rule(vm, number, gradients))?;
                if !pass.retains() {
                    vm.callbacks.set(number, Value::None);
                }
                pass.add_script_gradients(&mut vm.rt, answer)?;
            }
            Event::Again(number) => {
                let value = vm.callbacks.get(number).unwrap_or_default();
                match value.as_object::<Checkpoint>() {
                    Some(checkpoint) => checkpoint.run_again(vm)?,
                    None => return Err(gradient::error::lost_checkpoint()),
                }
            }
        }
    }
}

/// Runs script code of a node on the node's stream, recorded if the pass is recorded.
fn beside<T>(vm: &mut Vm, pass: &mut Pass, code: impl FnOnce(&mut Vm) -> Result<T>) -> Result<T> {
    let before = pass.enter_stream(&mut vm.rt)?;
    let result = recorded(vm, pass.creates(), code);
    before.map_or(Ok(()), |before| vm.rt.set_stream(&before))?;
    result
}

/// Runs script code with recording on or off.
pub(super) fn recorded<T>(vm: &mut Vm, enabled: bool, code: impl FnOnce(&mut Vm) -> Result<T>) -> Result<T> {
    let before = std::mem::replace(&mut vm.rt.recording.enabled, enabled);
    let result = code(vm);
    vm.rt.recording.enabled = before;
    result
}
