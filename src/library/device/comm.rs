//! Transfers between several devices: `comm.broadcast`, `comm.gather` and others, as in `torch.cuda.comm`.

use super::device_of;
use super::streams::stream_of;
use crate::base::{Error, ErrorKind, Result, this_is};
use crate::driver::DeviceId;
use crate::ops::comm;
use crate::ops::dims;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::plan::error;
use crate::stream::Stream;
use crate::tensor::Tensor;
use crate::vm::{NativeDef, Value, Values, Vm};
use std::sync::Arc;

const DEVICES: Param = Param::or("devices", Kind::Any, Default::None);
const OUT: Param = Param::named("out", Kind::Any, Default::None);
const DESTINATION: Param = Param::or("destination", Kind::Any, Default::None);
const DIM: Param = Param::or("dim", Kind::Int, Default::Int(0));
/// PyTorch's default: 10 MiB.
const BUFFER: Param = Param::or("buffer_size", Kind::Int, Default::Int(10_485_760));

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "comm.broadcast",
        receiver: "",
        signature: Signature { params: &[Param::new("tensor", Kind::Tensor), DEVICES, OUT] },
        doc: "Copies a tensor to devices, or into the tensors of `out`, and returns a tuple of the copies in their order. On the tensor's own device the copy is the tensor itself. Exactly one of `devices` and `out` is given.\n\nOrdered automatically on the current streams of all devices involved; the host does not wait.\n\nSource: `torch.cuda.comm.broadcast`.",
        example: "let (a, b) = comm.broadcast(ones(2), [cuda:0, cuda:1])\nassert(b.device == cuda:1 and equal(b.cpu(), a.cpu()))",
        run: |vm, args| {
            let tensor = tensor_of(&args[0], 0)?;
            if args[1].is_none() == args[2].is_none() {
                let (devices, out) = (shown(vm, &args[1])?, shown(vm, &args[2])?);
                let error = error::collective_argument(format!(
                    "exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
                ));
                return Err(if args[1].is_none() {
                    error
                } else {
                    error.operand(1, "these devices").operand(2, "and these tensors")
                });
            }
            if args[1].is_none() {
                let targets = tensors(vm, &args[2], 2)?;
                comm::broadcast_into(&mut vm.rt, &tensor, &targets).map_err(at(2, "these tensors"))?;
                return Ok(tuple(targets));
            }
            let devices = devices(vm, &args[1], 1)?;
            comm::broadcast(&mut vm.rt, &tensor, &devices).map(tuple).map_err(at(1, "these devices"))
        },
    },
    NativeDef {
        name: "comm.broadcast_coalesced",
        receiver: "",
        signature: Signature {
            params: &[Param::new("tensors", Kind::Any), Param::new("devices", Kind::Any), BUFFER],
        },
        doc: "Copies tensors on the first device to all others, small ones together: `buffer_size` bounds the bytes of \
              a combined copy. Returns a tuple with one tuple of copies per device; on the first device they are the \
              tensors themselves. Copies made together share memory.\n\nSource: `torch.cuda.comm.broadcast_coalesced`.",
        example: "let copies = comm.broadcast_coalesced([ones(2), zeros(3)], [0, 1])\nassert(copies[1][1].device == cuda:1 and copies[1][1].shape == (3,))",
        run: |vm, args| {
            let (list, buffer) = (tensors(vm, &args[0], 0)?, buffer(&args[2], 2)?);
            let devices = devices(vm, &args[1], 1)?;
            let copies = comm::broadcast_coalesced(&mut vm.rt, &list, &devices, buffer)
                .map_err(at(0, "these tensors"))?;
            Ok(Value::tuple(copies.into_iter().map(tuple).collect::<Values>()))
        },
    },
    NativeDef {
        name: "comm.reduce_add",
        receiver: "",
        signature: Signature { params: &[Param::new("inputs", Kind::Any), DESTINATION] },
        doc: "The sum of tensors of one shape and dtype on several devices, on `destination` (default: the current \
              device), which must be the device of one of them. They are added in their order, independent of the \
              transfer path, so that the result has the same bits for every destination.\n\nSource: \
              `torch.cuda.comm.reduce_add`.",
        example: "let sum = comm.reduce_add([ones(2) on cuda:0, ones(2) on cuda:1], 1)\nassert(sum.device == cuda:1 and equal(sum.cpu(), tensor([2.0, 2.0]) on cpu))",
        run: |vm, args| {
            let inputs = tensors(vm, &args[0], 0)?;
            let destination =
                device_of(vm, &args[1], vm.rt.current_cuda()).map_err(at(1, "this destination"))?;
            comm::reduce_add(&mut vm.rt, &inputs, destination)
                .map(Value::Tensor)
                .map_err(at(0, "these tensors"))
        },
    },
    NativeDef {
        name: "comm.reduce_add_coalesced",
        receiver: "",
        signature: Signature { params: &[Param::new("inputs", Kind::Any), DESTINATION, BUFFER] },
        doc: "Sums lists of tensors, one list per device, small tensors together: the i-th sum is of the i-th tensor of each list. Returns a tuple of the sums on `destination`.\n\nSource: `torch.cuda.comm.reduce_add_coalesced`.",
        example: "let lists = [[ones(2), zeros(3)], [ones(2) on cuda:1, ones(3) on cuda:1]]\nlet sums = comm.reduce_add_coalesced(lists, 0)\nassert(equal(sums[0], [2.0, 2.0]) and equal(sums[1], [1.0, 1.0, 1.0]))",
        run: |vm, args| {
            let lists = vm.collect(&args[0])?;
            let list = |(d, list): (usize, &Value)| {
                tensors(vm, list, 0).map_err(|_| {
                    crate::ops::error::wrong_element(0, d, "lists of tensors", "a list of tensors")
                })
            };
            let lists = lists.iter().enumerate().map(list).collect::<Result<Vec<_>>>()?;
            let destination =
                device_of(vm, &args[1], vm.rt.current_cuda()).map_err(at(1, "this destination"))?;
            let buffer = buffer(&args[2], 2)?;
            comm::reduce_add_coalesced(&mut vm.rt, &lists, destination, buffer)
                .map(tuple)
                .map_err(at(0, "these tensors"))
        },
    },
    NativeDef {
        name: "comm.scatter",
        receiver: "",
        signature: Signature {
            params: &[
                Param::new("tensor", Kind::Tensor),
                DEVICES,
                Param::or("chunk_sizes", Kind::Any, Default::None),
                DIM,
                Param::or("streams", Kind::Any, Default::None),
                OUT,
            ],
        },
        doc: "Splits a tensor along `dim` into a tuple of chunks, one per device: of equal size (the last may be \
              smaller, and there may be fewer chunks than devices), or of `chunk_sizes`. A chunk for the tensor's own \
              device is a view. With `streams`, the copy to the i-th device runs on the i-th stream (`none`: the \
              current one). With `out`, the chunks are written into those tensors.\n\nSource: \
              `torch.cuda.comm.scatter`.",
        example: "let (a, b) = comm.scatter(arange(6), [0, 1], chunk_sizes=[2, 4])\nassert(equal(a, [0, 1]) and b.device == cuda:1 and b.shape == (4,))",
        run: scatter,
    },
    NativeDef {
        name: "comm.gather",
        receiver: "",
        signature: Signature { params: &[Param::new("tensors", Kind::Any), DIM, DESTINATION, OUT] },
        doc: "Joins tensors on CUDA devices along `dim`: on `destination`, which may be `cpu` (the current CUDA device when left out), or into `out`.\n\nSource: `torch.cuda.comm.gather`.",
        example: "let whole = comm.gather([zeros(2, 3) on cuda:0, ones(1, 3) on cuda:1])\nassert(whole.shape == (3, 3) and whole.device == cuda:0)",
        run: |vm, args| {
            let list = tensors(vm, &args[0], 0)?;
            if !args[2].is_none() && !args[3].is_none() {
                let destination = shown(vm, &args[2])?;
                let error = error::collective_argument(format!(
                    "'destination' must not be specified when 'out' is specified, but got destination={destination}"
                ));
                let error = error.help("leave one of the two out");
                return Err(error.operand(2, "this destination").operand(3, "and this tensor"));
            }
            let rank = list.first().map_or(1, Tensor::rank);
            let dim = dim_of(&args[1], 1, rank)?;
            if let Value::Tensor(out) = &args[3] {
                comm::gather_into(&mut vm.rt, &list, out, dim).map_err(at(0, "these tensors"))?;
                return Ok(args[3].clone());
            }
            let destination =
                device_of(vm, &args[2], vm.rt.current_cuda()).map_err(at(2, "this destination"))?;
            comm::gather(&mut vm.rt, &list, dim, destination)
                .map(Value::Tensor)
                .map_err(at(0, "these tensors"))
        },
    },
];

fn scatter(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let tensor = tensor_of(&args[0], 0)?;
    let dim = dim_of(&args[3], 3, tensor.rank())?;
    let streams = match args[4].is_none() {
        true => Vec::new(),
        false => {
            let stream =
                |value: &Value| if value.is_none() { Ok(None) } else { stream_of(value, 4).map(Some) };
            vm.collect(&args[4])?.iter().map(stream).collect::<Result<Vec<_>>>()?
        }
    };
    if !args[5].is_none() {
        for (index, name) in [(1, "devices"), (2, "chunk_sizes")] {
            if !args[index].is_none() {
                let given = shown(vm, &args[index])?;
                let error = error::collective_argument(format!(
                    "'{name}' must not be specified when 'out' is specified, but got {name}={given}"
                ));
                let error = error.help("leave one of the two out");
                return Err(error.operand(index, "this argument").operand(5, "and these tensors"));
            }
        }
        let targets = tensors(vm, &args[5], 5)?;
        let places: Vec<DeviceId> = targets.iter().map(Tensor::device).collect();
        on_streams(vm, &streams, &places, |vm| {
            comm::scatter_into(&mut vm.rt, &tensor, &targets, dim).map_err(at(5, "these tensors"))
        })?;
        return Ok(tuple(targets));
    }
    let devices = devices(vm, &args[1], 1)?;
    if devices.is_empty() {
        let error = error::collective_argument("expected at least one device to scatter to");
        return Err(error.help("write them, such as `[0, 1]`").operand(1, "these devices"));
    }
    let extent = tensor.shape()[dim];
    let extents: Vec<usize> = match args[2].is_none() {
        true => match extent.div_ceil(devices.len()) {
            0 => vec![0; devices.len()],
            each => (0..extent.div_ceil(each)).map(|i| each.min(extent - i * each)).collect(),
        },
        false => {
            let sizes = vm.collect(&args[2])?;
            if sizes.len() != devices.len() {
                let (wanted, found) = (devices.len(), sizes.len());
                let error = error::collective_argument(format!(
                    "expected devices and chunk_sizes to be of same length, but got {wanted} devices and {found} chunk sizes"
                ));
                let error = error.help("write one size per device");
                return Err(error.operand(2, "these sizes").operand(1, "these devices"));
            }
            let size = |value: &Value| value.as_int().and_then(|i| usize::try_from(i).ok());
            let sizes: Option<Vec<usize>> = sizes.iter().map(size).collect();
            let total = |s: &Vec<usize>| s.iter().try_fold(0usize, |a, &b| a.checked_add(b));
            match sizes.filter(|s| total(s) == Some(extent)) {
                Some(sizes) => sizes,
                None => {
                    let given = shown(vm, &args[2])?;
                    let error = error::collective_shape(format!(
                        "chunk_sizes={given} must be sizes that add up to {extent}, the extent of dimension {dim}"
                    ));
                    return Err(error
                        .help(format!("write sizes that add up to {extent}"))
                        .operand(2, "these sizes")
                        .operand(0, this_is(tensor.describe())));
                }
            }
        }
    };
    let scattered = on_streams(vm, &streams, &devices, |vm| {
        comm::scatter(&mut vm.rt, &tensor, &devices, &extents, dim).map_err(at(1, "these devices"))
    });
    scattered.map(tuple)
}

/// Runs with each stream as the current stream of its device; the i-th stream must belong to the i-th device.
fn on_streams<T>(
    vm: &mut Vm,
    streams: &[Option<Arc<Stream>>],
    devices: &[DeviceId],
    run: impl FnOnce(&mut Vm) -> Result<T>,
) -> Result<T> {
    let mut before = Vec::new();
    for (i, stream) in streams.iter().enumerate() {
        let Some(stream) = stream else { continue };
        if let Some(device) = devices.get(i).filter(|&&d| d != stream.device()) {
            let error = error::collective_device(format!(
                "expected the device of the stream at index {i} (`{}`) to be the device at that index (`{device}`)",
                stream.device()
            ));
            let error = error.help(format!("make it there: `Stream(device={device})`"));
            return Err(error.element(1, i, "this device").element(4, i, "and this stream"));
        }
    }
    for stream in streams.iter().flatten() {
        before.push(vm.rt.current_stream(stream.device())?);
        vm.rt.set_stream(stream)?;
    }
    let result = run(vm);
    for stream in before.iter().rev() {
        vm.rt.set_stream(stream)?;
    }
    result
}

fn tensor_of(value: &Value, index: usize) -> Result<Tensor> {
    match value {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        _ => Err(crate::ops::error::wrong_argument(index, "a tensor")),
    }
}

/// The tensors of a list or tuple.
fn tensors(vm: &mut Vm, value: &Value, index: usize) -> Result<Vec<Tensor>> {
    if matches!(value, Value::Tensor(_)) {
        return Err(crate::ops::error::wrong_argument(index, "a list of tensors"));
    }
    let tensor = |(at, value): (usize, &Value)| match value {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        _ => Err(crate::ops::error::wrong_element(index, at, "a list of tensors", "a tensor")),
    };
    vm.collect(value)?.iter().enumerate().map(tensor).collect()
}

/// The CUDA devices of a list or tuple of devices and indices, passed as the parameter `index`; empty for
/// `none`.
fn devices(vm: &mut Vm, value: &Value, index: usize) -> Result<Vec<DeviceId>> {
    if value.is_none() {
        return Ok(Vec::new());
    }
    let values = vm.collect(value)?;
    let current = vm.rt.current_cuda();
    let vm = &*vm;
    let device = |value: &Value| match device_of(vm, value, current)? {
        DeviceId::Cpu => Err(crate::driver::error::expected_cuda("cpu")),
        device => Ok(device),
    };
    let named = |(i, value)| {
        device(value).map_err(|error| match error.labels().is_empty() {
            true => error.element(index, i, "this device"),
            false => error,
        })
    };
    values.iter().enumerate().map(named).collect()
}

/// Labels an argument in an error without a label.
fn at(index: usize, text: &'static str) -> impl Fn(Error) -> Error {
    use ErrorKind::{Device, Shape, Type, Value};
    move |error| match error.labels().is_empty() && matches!(error.kind(), Device | Shape | Type | Value) {
        true => error.operand(index, text),
        false => error,
    }
}

fn dim_of(value: &Value, index: usize, rank: usize) -> Result<usize> {
    if rank == 0 {
        return Err(error::collective_shape("a tensor without dimensions cannot be cut or joined")
            .operand(0, "this has none"));
    }
    dims::one(index, value.as_int().unwrap_or(0), rank)
}

fn buffer(value: &Value, index: usize) -> Result<u64> {
    let bytes = value.as_int().unwrap_or(0);
    let refused = || error::collective_argument(format!("buffer_size={bytes} is not a number of bytes"));
    u64::try_from(bytes).map_err(|_| refused().help("write 0 or more").operand(index, "this number"))
}

fn tuple(tensors: Vec<Tensor>) -> Value {
    Value::tuple(tensors.into_iter().map(Value::Tensor).collect::<Values>())
}

/// An argument as a report shows it, without the values of tensors, which would need a wait.
fn shown(vm: &mut Vm, value: &Value) -> Result<String> {
    let is_tensor = |value: &Value| matches!(value, Value::Tensor(_));
    match value {
        Value::None => Ok("none".into()),
        Value::Tensor(tensor) => Ok(tensor.describe()),
        Value::List(list) if list.borrow().iter().any(is_tensor) => Ok(format!("{} tensors", list.len())),
        Value::Tuple(tuple) if tuple.items().iter().any(is_tensor) => {
            Ok(format!("{} tensors", tuple.items().len()))
        }
        other => vm.repr(other),
    }
}
