//! Transfers between several devices (`torch.cuda.comm`), with their gradients.
//!
//! They have no rows in the table. When a tensor requires gradients, copies are made by recorded operations, and
//! sums and joins are recorded as [`REDUCE_ADD`] and [`GATHER`]: the gradient of a copy goes back to the device
//! of its tensor, so that of a broadcast is a sum, and that of a sum is a broadcast. Otherwise the planner's
//! transfers run, which queue all copies at once.

use super::arith::ADD;
use super::gradient::record::{edge_of, overwriting};
use super::gradient::{Gradient, Keeps};
use super::{Arg, Args, Call, Op, Out, Run, apply, collective, composed, error};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// `reduce_add(tensors, destination)`
static REDUCE_ADD: Op = Op {
    name: "reduce_add",
    run: Run::Primitive(|rt, args| {
        rt.reduce_add(&ADD, args.tensors(0)?, destination(args, 1)?).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        (0..b.shapes(0).len()).for_each(|i| b.to_element(0, i, || b.g()));
    }),
    ..Op::BASE
};

/// `gather(tensors, destination, dim)`
static GATHER: Op = Op {
    name: "gather",
    run: Run::Primitive(|rt, args| {
        let dim = args.int(2)? as usize;
        rt.gather(args.tensors(0)?, dim, destination(args, 1)?).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        let (dim, mut at) = (b.args().int(2).unwrap_or(0), 0);
        for (i, shape) in b.shapes(0).iter().enumerate() {
            let length = shape.get(dim as usize).copied().unwrap_or(0);
            b.to_element(0, i, || b.g().narrow(dim, at, length));
            at += length;
        }
    }),
    ..Op::BASE
};

fn destination(args: &Args<'_>, index: usize) -> Result<DeviceId> {
    args.device(index).ok_or_else(|| error::wrong_argument(index, "a device"))
}

/// True if one of the tensors requires gradients here.
pub(super) fn records<'t>(rt: &mut Runtime, tensors: impl IntoIterator<Item = &'t Tensor>) -> bool {
    rt.recording.used
        && rt.recording.enabled
        && tensors.into_iter().any(|tensor| edge_of(rt, tensor).is_some())
}

fn moved(rt: &mut Runtime, tensor: &Tensor, device: DeviceId) -> Result<Tensor> {
    if tensor.device() == device {
        return Ok(tensor.clone());
    }
    let args = [Arg::Tensor(tensor.clone()), Arg::Device(device), Arg::None, Arg::Bool(true)];
    composed::call(rt, "to", &args)
}

fn split(rt: &mut Runtime, tensor: &Tensor, extents: &[usize], dim: usize) -> Result<Vec<Tensor>> {
    let extents = extents.iter().map(|&extent| extent as i64).collect();
    let args = [Arg::Tensor(tensor.clone()), Arg::Ints(extents), Arg::Int(dim as i64)];
    match composed::out_of(rt, "split", &args)? {
        Out::Tuple(parts) => Ok(parts),
        _ => Err(error::wrong_argument(0, "an operation that gives tensors")),
    }
}

/// A copy on each device, in order; the tensor itself if it is already there.
///
/// # Errors
/// Those of [`Runtime::broadcast`].
pub fn broadcast(rt: &mut Runtime, tensor: &Tensor, devices: &[DeviceId]) -> Result<Vec<Tensor>> {
    match records(rt, [tensor]) {
        true => devices.iter().map(|&device| moved(rt, tensor, device)).collect(),
        false => collective(rt).broadcast(tensor, devices),
    }
}

/// Writes a tensor to tensors of its shape on CUDA devices.
///
/// # Errors
/// Those of [`Runtime::broadcast_into`]; E0382 for a leaf.
pub fn broadcast_into(rt: &mut Runtime, tensor: &Tensor, targets: &[Tensor]) -> Result<()> {
    let pairs = |_: &mut Runtime| Ok(targets.iter().map(|to| (to.clone(), tensor.clone())).collect());
    let sources = std::slice::from_ref(tensor);
    overwriting(rt, targets, sources, |rt| collective(rt).broadcast_into(tensor, targets), pairs)
}

/// Copies tensors from the first device to the others, small ones together. Returns one list per device.
///
/// # Errors
/// Those of [`Runtime::broadcast_coalesced`].
pub fn broadcast_coalesced(
    rt: &mut Runtime,
    tensors: &[Tensor],
    devices: &[DeviceId],
    buffer: u64,
) -> Result<Vec<Vec<Tensor>>> {
    if !records(rt, tensors) {
        return collective(rt).broadcast_coalesced(tensors, devices, buffer);
    }
    rt.check_coalesced(tensors, devices)?;
    let is_recorded: Vec<bool> = tensors.iter().map(|tensor| edge_of(rt, tensor).is_some()).collect();
    let chosen = |wanted: bool| -> Vec<Tensor> {
        tensors.iter().zip(&is_recorded).filter(|(_, is)| **is == wanted).map(|(t, _)| t.clone()).collect()
    };
    let plain = collective(rt).broadcast_coalesced(&chosen(false), devices, buffer)?;
    let mut recorded = vec![Vec::new(); devices.len()];
    let all = chosen(true);
    for group in crate::plan::coalesced(&all, buffer, |a, b| a.dtype() == b.dtype()) {
        let group = &all[group];
        if let [single] = group {
            for (list, copy) in recorded.iter_mut().zip(broadcast(rt, single, devices)?) {
                list.push(copy);
            }
            continue;
        }
        let flat = |tensor: &Tensor| composed::reshape(rt, tensor, &[tensor.count()]);
        let parts = group.iter().map(flat).collect::<Result<Vec<_>>>()?;
        let extents: Vec<usize> = group.iter().map(Tensor::count).collect();
        let flat = composed::call(rt, "cat", &[Arg::Tensors(parts), Arg::Int(0)])?;
        for (list, &device) in recorded.iter_mut().zip(devices) {
            if device == flat.device() {
                list.extend(group.iter().cloned());
                continue;
            }
            let copy = moved(rt, &flat, device)?;
            for (part, tensor) in split(rt, &copy, &extents, 0)?.iter().zip(group) {
                list.push(composed::reshape(rt, part, tensor.shape())?);
            }
        }
    }
    let merged = |(plain, recorded): (Vec<Tensor>, Vec<Tensor>)| {
        let (mut plain, mut recorded) = (plain.into_iter(), recorded.into_iter());
        is_recorded.iter().filter_map(|is| if *is { recorded.next() } else { plain.next() }).collect()
    };
    Ok(plain.into_iter().zip(recorded).map(merged).collect())
}

/// The sum of tensors of one shape and dtype on several devices, on the device of one of them.
///
/// # Errors
/// Those of [`Runtime::reduce_add`].
pub fn reduce_add(rt: &mut Runtime, inputs: &[Tensor], destination: DeviceId) -> Result<Tensor> {
    if !records(rt, inputs) {
        return collective(rt).reduce_add(&ADD, inputs, destination);
    }
    applied(rt, &REDUCE_ADD, &[Arg::Tensors(inputs.to_vec()), Arg::Device(destination)])
}

/// [`reduce_add`] for lists of tensors, small ones together. `inputs[d][i]` is tensor i of device d.
///
/// # Errors
/// Those of [`Runtime::reduce_add_coalesced`].
pub fn reduce_add_coalesced(
    rt: &mut Runtime,
    inputs: &[Vec<Tensor>],
    destination: DeviceId,
    buffer: u64,
) -> Result<Vec<Tensor>> {
    let even = inputs.windows(2).all(|pair| pair[0].len() == pair[1].len());
    if !even || !records(rt, inputs.iter().flatten()) {
        return collective(rt).reduce_add_coalesced(&ADD, inputs, destination, buffer);
    }
    let column = |i: usize| -> Vec<Tensor> { inputs.iter().map(|list| list[i].clone()).collect() };
    let count = inputs.first().map_or(0, Vec::len);
    let sum = |i: usize| {
        reduce_add(rt, &column(i), destination).map_err(|error| error.about(&format!("tensor {i} of it")))
    };
    (0..count).map(sum).collect()
}

/// Parts of a tensor along a dimension with the given extents, one per device.
///
/// # Errors
/// Those of [`Runtime::scatter`].
pub fn scatter(
    rt: &mut Runtime,
    tensor: &Tensor,
    devices: &[DeviceId],
    extents: &[usize],
    dim: usize,
) -> Result<Vec<Tensor>> {
    if !records(rt, [tensor]) {
        return collective(rt).scatter(tensor, devices, extents, dim);
    }
    let parts = split(rt, tensor, extents, dim)?;
    parts.iter().zip(devices).map(|(part, &device)| moved(rt, part, device)).collect()
}

/// Writes the parts of a tensor along a dimension to tensors on CUDA devices, whose extents define the parts.
///
/// # Errors
/// Those of [`Runtime::scatter_into`]; E0382 for a leaf.
pub fn scatter_into(rt: &mut Runtime, tensor: &Tensor, targets: &[Tensor], dim: usize) -> Result<()> {
    let pairs = |rt: &mut Runtime| {
        let extents: Vec<usize> = targets.iter().map(|to| to.shape()[dim]).collect();
        Ok(targets.iter().cloned().zip(split(rt, tensor, &extents, dim)?).collect())
    };
    let sources = std::slice::from_ref(tensor);
    overwriting(rt, targets, sources, |rt| collective(rt).scatter_into(tensor, targets, dim), pairs)
}

/// Joins tensors of CUDA devices along a dimension, on a device or the host.
///
/// # Errors
/// Those of [`Runtime::gather`].
pub fn gather(rt: &mut Runtime, tensors: &[Tensor], dim: usize, destination: DeviceId) -> Result<Tensor> {
    if !records(rt, tensors) {
        return collective(rt).gather(tensors, dim, destination);
    }
    let args = [Arg::Tensors(tensors.to_vec()), Arg::Device(destination), Arg::Int(dim as i64)];
    applied(rt, &GATHER, &args)
}

/// [`gather`] to an existing tensor of the right shape.
///
/// # Errors
/// Those of [`Runtime::gather_into`]; E0382 for a leaf.
pub fn gather_into(rt: &mut Runtime, tensors: &[Tensor], whole: &Tensor, dim: usize) -> Result<()> {
    let pairs = |_: &mut Runtime| {
        let mut at = 0;
        let place = |tensor: &Tensor| {
            let mut layout = whole.layout().clone();
            layout.offset = layout.offset.wrapping_add_signed(layout.strides[dim] * at as isize);
            layout.shape[dim] = tensor.shape()[dim];
            at += tensor.shape()[dim];
            (whole.with_layout(layout), tensor.clone())
        };
        Ok(tensors.iter().map(place).collect())
    };
    let targets = std::slice::from_ref(whole);
    overwriting(rt, targets, tensors, |rt| collective(rt).gather_into(tensors, whole, dim), pairs)
}

/// Applies an operation that returns a tensor.
pub(super) fn applied(rt: &mut Runtime, op: &'static Op, args: &[Arg]) -> Result<Tensor> {
    match apply(rt, op, Call::Plain(Args(args)))? {
        Out::Tensor(tensor) => Ok(tensor),
        _ => Err(error::wrong_argument(0, "an operation that gives tensors")),
    }
}
