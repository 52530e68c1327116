//! The implementation of `dist.` functions: passes arguments to the session's runtime.

use crate::array::Dtype;
use crate::base::{Place, Result};
use crate::group::{World, error};
use crate::library::device::device_of;
use crate::ops::dist::{self, FOLDINGS};
use crate::ops::{collective, gradient};
use crate::plan::{Folding, Runtime};
use crate::tensor::Tensor;
use crate::vm::{Value, Values, Vm};
use std::time::Duration;

/// The longest `timeout`, in seconds: ten years.
const LONGEST: f64 = 10.0 * 365.0 * 86_400.0;

/// `dist.init`
pub(super) fn init(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let seconds = args[0].as_float().unwrap_or(600.0);
    if !(seconds > 0.0 && seconds <= LONGEST) {
        return Err(error::argument(format!("timeout={seconds} is not a number of seconds"))
            .label(Place::Arguments(0, 1), "this must be more than 0"));
    }
    join(vm, Duration::from_secs_f64(seconds), &|name| std::env::var(name).ok())?;
    Ok(Value::None)
}

/// `dist.is_initialized`
pub(super) fn is_initialized(vm: &mut Vm, _: &mut [Value]) -> Result<Value> {
    Ok(Value::Bool(vm.rt.world().is_some()))
}

/// `dist.rank`
pub(super) fn rank(vm: &mut Vm, _: &mut [Value]) -> Result<Value> {
    world(vm, |world| world.rank)
}

/// `dist.world_size`
pub(super) fn world_size(vm: &mut Vm, _: &mut [Value]) -> Result<Value> {
    world(vm, |world| world.size)
}

/// `dist.local_rank`
pub(super) fn local_rank(vm: &mut Vm, _: &mut [Value]) -> Result<Value> {
    world(vm, |world| world.local_rank)
}

/// `dist.all_reduce`
pub(super) fn all_reduce(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (x, folding) = (tensor(&args[0])?, folding(&args[1])?);
    dist::all_reduce(&mut vm.rt, &x, folding).map(Value::Tensor)
}

/// `dist.all_reduce_`
pub(super) fn all_reduce_(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (x, folding) = (tensor(&args[0])?, folding(&args[1])?);
    let code = |rt: &mut Runtime| collective(rt).all_reduce_into(&x, folding);
    gradient::replaced(&mut vm.rt, "dist.all_reduce_", &x, code)?;
    Ok(args[0].clone())
}

/// `dist.reduce`
pub(super) fn reduce(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (dst, folding) = (peer(vm, "dst", &args[1])?, folding(&args[2])?);
    let x = sent(vm, "dist.reduce", &args[0])?;
    let out = collective(&mut vm.rt).reduce_to(&x, dst, folding)?;
    Ok(out.map_or(Value::None, Value::Tensor))
}

/// `dist.broadcast`
pub(super) fn broadcast(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (x, src) = (tensor(&args[0])?, peer(vm, "src", &args[1])?);
    dist::broadcast(&mut vm.rt, &x, src).map(Value::Tensor)
}

/// `dist.broadcast_`
pub(super) fn broadcast_(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (x, src) = (tensor(&args[0])?, peer(vm, "src", &args[1])?);
    gradient::replaced(&mut vm.rt, "dist.broadcast_", &x, |rt| {
        let sent = collective(rt).broadcast_from(&x, src)?;
        rt.assign("broadcast_", &x, &sent)
    })?;
    Ok(args[0].clone())
}

/// `dist.all_gather`
pub(super) fn all_gather(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let all = dist::all_gather(&mut vm.rt, &tensor(&args[0])?)?;
    Ok(Value::tuple(all.into_iter().map(Value::Tensor).collect::<Values>()))
}

/// `dist.reduce_scatter`
pub(super) fn reduce_scatter(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (x, folding) = (tensor(&args[0])?, folding(&args[1])?);
    dist::reduce_scatter(&mut vm.rt, &x, folding).map(Value::Tensor)
}

/// `dist.all_to_all_single`
pub(super) fn all_to_all_single(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    dist::all_to_all_single(&mut vm.rt, &tensor(&args[0])?).map(Value::Tensor)
}

/// `dist.send`
pub(super) fn send(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let dst = other(vm, "dst", &args[1])?;
    let x = sent(vm, "dist.send", &args[0])?;
    collective(&mut vm.rt).send_to(&x, dst)?;
    Ok(Value::None)
}

/// `dist.recv`
pub(super) fn recv(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let src = other(vm, "src", &args[1])?;
    let (shape, like, device) = match &args[0] {
        Value::Tensor(like) => (like.shape().to_vec(), like.dtype(), like.device()),
        shape => (extents(vm, shape)?, Dtype::F32, vm.rt.current_device()),
    };
    let dtype = if let Value::Dtype(dtype) = args[2] { dtype } else { like };
    let device = device_of(vm, &args[3], device)?;
    collective(&mut vm.rt).receive_from(&shape, dtype, device, src).map(Value::Tensor)
}

/// `dist.barrier`
pub(super) fn barrier(vm: &mut Vm, _: &mut [Value]) -> Result<Value> {
    vm.rt.barrier().map(|()| Value::None)
}

/// `dist.destroy`
pub(super) fn destroy(vm: &mut Vm, _: &mut [Value]) -> Result<Value> {
    vm.rt.leave_group().map(|()| Value::None)
}

/// Joins the group described by a launcher's environment variables.
fn join(vm: &mut Vm, timeout: Duration, get: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let world = World::from_variables(get)?;
    if world.is_some() && !vm.limits.groups {
        return Err(error::forbidden());
    }
    vm.rt.join_group(world.unwrap_or(World::ALONE), timeout)
}

fn world(vm: &Vm, of: impl Fn(&World) -> usize) -> Result<Value> {
    let world = vm.rt.world().ok_or_else(error::not_initialized)?;
    Ok(Value::Int(of(world) as i64))
}

fn tensor(value: &Value) -> Result<Tensor> {
    match value {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        _ => Err(crate::ops::error::wrong_argument(0, "a tensor")),
    }
}

/// A tensor that is sent to other processes, which must not require gradients.
fn sent(vm: &mut Vm, name: &str, value: &Value) -> Result<Tensor> {
    let tensor = tensor(value)?;
    gradient::refuse(&mut vm.rt, name, 0, &tensor)?;
    Ok(tensor)
}

/// The reduction that `op` names.
fn folding(value: &Value) -> Result<&'static Folding> {
    let name = if let Value::Str(text) = value { text.as_str() } else { "" };
    let known = FOLDINGS.iter().find(|folding| folding.name == name);
    known.ok_or_else(|| {
        let help = match name {
            "mean" => "write `\"avg\"`",
            "prod" => "write `\"product\"`",
            _ => "write `\"sum\"`, `\"product\"`, `\"min\"`, `\"max\"` or `\"avg\"`",
        };
        error::argument(format!("op=\"{name}\" is not a way to combine the tensors of processes")).help(help)
    })
}

/// A rank of the group.
fn peer(vm: &Vm, name: &str, value: &Value) -> Result<usize> {
    let size = vm.rt.world().ok_or_else(error::not_initialized)?.size;
    let given = value.as_int().unwrap_or(-1);
    usize::try_from(given).ok().filter(|rank| *rank < size).ok_or_else(|| {
        let message = format!("{name}={given} is not a rank of the group");
        error::argument(message).help(format!("ranks go from 0 to {}", size - 1))
    })
}

/// The rank of another process of the group.
fn other(vm: &Vm, name: &str, value: &Value) -> Result<usize> {
    let rank = peer(vm, name, value)?;
    match vm.rt.world().is_some_and(|world| world.rank == rank) {
        true => Err(error::argument(format!("{name}={rank} is this process itself"))
            .help("a process sends to others, and receives from others")),
        false => Ok(rank),
    }
}

/// A shape: an int, or a list or tuple of ints.
fn extents(vm: &mut Vm, value: &Value) -> Result<Vec<usize>> {
    let extent = |value: &Value| value.as_int().and_then(|extent| usize::try_from(extent).ok());
    let extents = match value {
        Value::Int(_) => [value.clone()].into(),
        Value::List(_) | Value::Tuple(_) => vm.collect(value)?,
        _ => [Value::None].into(),
    };
    let extents: Option<Vec<usize>> = extents.iter().map(extent).collect();
    extents.ok_or_else(|| crate::ops::error::wrong_argument(0, "a tensor or a shape"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Backend, Config, Machine};
    use crate::plan::Settings;

    #[test]
    fn joining_a_group_needs_permission_of_the_embedder() {
        let config = Config { backend: Backend::Emu, devices: Some(2), ..Config::default() };
        let machine = Machine::open(&config).unwrap();
        let mut vm = crate::library::machine(Runtime::new(machine, Settings::default()));
        let launched = |name: &str| match name {
            "RANK" | "LOCAL_RANK" => Some("0".to_string()),
            "WORLD_SIZE" => Some("1".to_string()),
            _ => None,
        };
        let time = Duration::from_secs(1);
        assert_eq!(join(&mut vm, time, &launched).unwrap_err().code().id, "E0539");
        join(&mut vm, time, &|_| None).unwrap();
        assert_eq!(join(&mut vm, time, &|_| None).unwrap_err().code().id, "E0532");
        vm.rt.leave_group().unwrap();
        vm.limits.groups = true;
        join(&mut vm, time, &launched).unwrap();
        assert_eq!(vm.rt.world().map(|world| (world.rank, world.size)), Some((0, 1)));
    }
}
