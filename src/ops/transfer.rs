//! Transfers of values: to other devices, other dtypes, the host, the script.
//!
//! Nothing else moves a tensor between devices. A tensor that already matches the request is returned itself,
//! unless a copy is requested.

use super::known;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Data, Foreign, Form, Gradient, Keeps, Op, Out, Run, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;

const NON_BLOCKING: Param = Param::or("non_blocking", Kind::Bool, Default::Bool(false));
const ONLY: &[Param] = &[X];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "to",
        doc: "Returns the tensor in another dtype, on another device, or like another tensor. It is the tensor itself \
              if dtype and device already match, unless `copy`. To the host with `non_blocking` the result is pinned \
              and the call does not wait. By position: `x.to(device, dtype, non_blocking, copy)`, or `x.to(dtype, \
              non_blocking, copy)`, or the same with a tensor. Source: `torch.Tensor.to`.",
        search: &["move", "convert", "cast", "device", "dtype", "transfer", "astype"],
        params: &[
            X,
            Param::or("target", Kind::Any, Default::None),
            Param::or("dtype", Kind::Any, Default::None),
            NON_BLOCKING,
            Param::or("copy", Kind::Bool, Default::Bool(false)),
            Param::named("device", Kind::Device, Default::None),
        ],
        form: Form::METHOD,
        example: "let x = tensor([1.5, 2.5])\nassert(equal(x.to(i64), [1, 2]))\n\
                  assert(x.to(cpu).device == cpu)\nassert(x.to(cpu, f16).dtype == f16)",
        run: Run::Primitive(to),
        shape: known::SAME_SHAPE,
        foreign: Foreign { names: &["astype", "type_as", "cast"], help: "write `x.to(f32)`" },
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "cpu",
        doc: "Returns the tensor on the host; the tensor itself if it is already there. Waits for its values unless \
              `non_blocking`. Source: `torch.Tensor.cpu`.",
        search: &["host", "move", "download", "transfer"],
        params: &[X, NON_BLOCKING],
        form: Form::METHOD,
        example: "assert(zeros(2).cpu().device == cpu)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            moved(rt, x, x.dtype(), DeviceId::Cpu, args.flag(1), false).map(Out::Tensor)
        }),
        shape: known::CPU,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "cuda",
        doc: "Returns the tensor on a CUDA device (the current one unless named); the tensor itself if it is already \
              there. Source: `torch.Tensor.cuda`.",
        search: &["gpu", "move", "upload", "transfer"],
        params: &[X, Param::or("device", Kind::Device, Default::None), NON_BLOCKING],
        form: Form::METHOD,
        example: "let x = zeros(2) on cpu\nassert(x.cuda().device == cuda:0)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            let device = args.device(1).unwrap_or(rt.current_cuda());
            if device == DeviceId::Cpu {
                let help = "write `.cpu()` to move it to the host";
                return Err(error::bad_value(1, "`cuda` moves to a CUDA device, not to `cpu`", help));
            }
            moved(rt, x, x.dtype(), device, args.flag(2), false).map(Out::Tensor)
        }),
        shape: known::CUDA,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "copy_",
        doc: "Writes the elements of `src`, which may be on any device and of any dtype and broadcasts, into the \
              tensor. Source: `torch.Tensor.copy_`.",
        search: &["assign", "write", "transfer", "in place"],
        params: &[X, Param::stored("src", Kind::TensorOrNumber), NON_BLOCKING],
        form: Form::METHOD,
        example: "let x = zeros(2)\nx.copy_(tensor([1.0, 2.0]) on cpu)\nassert(equal(x, [1.0, 2.0]))",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            match args.operand(1)? {
                MapArg::Tensor(src) => rt.copy_into(x, src, args.flag(2))?,
                value => super::subscript::set(rt, x, &[], value)?,
            }
            Ok(Out::Tensor(x.clone()))
        }),
        gradient: Gradient::Writes(Some(1)),
        ..Op::BASE
    },
    Op {
        name: "clone",
        doc: "Copies the tensor; the copy is contiguous. Source: `torch.clone`.",
        search: &["copy", "duplicate"],
        params: ONLY,
        form: Form::BOTH,
        example: "let x = zeros(2)\nlet y = x.clone()\ny.add_(1)\nassert(x.sum().item() == 0)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            rt.cast_ordered(x, x.dtype()).map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "detach",
        doc: "Returns a view of the tensor that requires no gradients: operations on it are not recorded for this tensor. \
              Source: `torch.Tensor.detach`.",
        search: &["gradient", "autograd"],
        params: ONLY,
        form: Form::METHOD,
        example: "let x = zeros(2)\nassert(x.detach().data_ptr() == x.data_ptr())",
        run: Run::Primitive(|_, args| Ok(Out::Tensor(super::gradient::detach(args.tensor(0)?)))),
        gradient: Gradient::Constant,
        shape: known::SAME,
        ..Op::BASE
    },
    Op {
        name: "item",
        doc: "Returns the value of a tensor with one element as a number, or as the record `(re = .., im = ..)` if it \
              is complex. Waits for it. Source: `torch.Tensor.item`.",
        search: &["number", "scalar", "value", "read"],
        params: ONLY,
        form: Form::METHOD,
        example: "assert(tensor([2.5]).item() == 2.5)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            if x.count() != 1 {
                return Err(error::not_one_element(x));
            }
            rt.item(x).map(Out::Number)
        }),
        shape: known::READ,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "tolist",
        doc: "Returns the values as numbers in nested lists; for a tensor without dimensions, a number. Waits for \
              them. Source: `torch.Tensor.tolist`.",
        search: &["list", "numbers", "values", "read", "numpy"],
        params: ONLY,
        form: Form::METHOD,
        example: "assert(tensor([[1, 2], [3, 4]]).tolist()[1][0] == 3)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            // Bytes per element of script values and their lists; complex numbers become records.
            let each = if x.dtype().is_complex() { 400 } else { 64 };
            let lists = x.shape().last().map_or(0, |&last| x.count() / last.max(1));
            rt.check_host_room(x.count().saturating_mul(each).saturating_add(lists.saturating_mul(256)))?;
            let bytes = rt.read(x)?;
            let mut chunks = bytes.chunks_exact(x.dtype().size());
            nested(&mut chunks, x.shape(), x.dtype()).map(Out::Data)
        }),
        shape: known::READ,
        foreign: Foreign {
            names: &["numpy", "to_list", "toList"],
            help: "write `x.tolist()` for the elements as a list",
        },
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "type_as",
        doc: "Returns the tensor with the dtype and on the device of another. Source: `torch.Tensor.type_as`.",
        search: &["convert", "cast", "like"],
        params: &[X, Param::new("other", Kind::Tensor)],
        form: Form::METHOD,
        example: "assert(tensor([1]).type_as(zeros(1)).dtype == f32)",
        run: Run::Primitive(|rt, args| {
            let (x, other) = (args.tensor(0)?, args.tensor(1)?);
            moved(rt, x, other.dtype(), other.device(), false, false).map(Out::Tensor)
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "pin_memory",
        doc: "Copies a host tensor to page-locked memory, from and to which devices copy without waiting; the tensor \
              itself if it is already there. Source: `torch.Tensor.pin_memory`.",
        search: &["pinned", "page-locked", "non_blocking"],
        params: ONLY,
        form: Form::METHOD,
        example: "let x = (zeros(2) on cpu).pin_memory()\nassert(x.is_pinned())",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            if x.device() != DeviceId::Cpu {
                return Err(error::not_on_host(x));
            }
            if x.storage().is_pinned() {
                return Ok(Out::Tensor(x.clone()));
            }
            let pinned = rt.pinned_ordered(x.layout(), x.dtype())?;
            rt.assign("pin_memory", &pinned, x)?;
            Ok(Out::Tensor(pinned))
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    },
    Op {
        name: "record_stream",
        doc: "Keeps the memory from being reused before the work that is now queued on the stream has ended. Never \
              needed: uses on other streams are recorded automatically. Source: `torch.Tensor.record_stream`.",
        search: &["stream", "memory", "reuse"],
        params: &[X, Param::new("stream", Kind::Stream)],
        form: Form::METHOD,
        example: "let x = zeros(2)\nx.record_stream(cuda.current_stream())\nassert(equal(x, [0.0, 0.0]))",
        run: Run::Primitive(|_, args| {
            if let (Arg::Stream(stream), Some(memory)) = (args.get(1), args.tensor(0)?.storage().memory()) {
                memory.used_on(stream);
            }
            Ok(Out::None)
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    shorthand(
        "float",
        &["convert", "cast", "dtype", "f32"],
        "assert(tensor([1, 2]).float().dtype == f32)",
        |rt, args| converted(rt, args, Dtype::F32),
    ),
    shorthand(
        "double",
        &["convert", "cast", "dtype", "f64"],
        "assert(zeros(2).double().dtype == f64)",
        |rt, args| converted(rt, args, Dtype::F64),
    ),
    shorthand(
        "half",
        &["convert", "cast", "dtype", "f16"],
        "assert(zeros(2).half().dtype == f16)",
        |rt, args| converted(rt, args, Dtype::F16),
    ),
    shorthand(
        "bfloat16",
        &["convert", "cast", "dtype", "bf16"],
        "assert(zeros(2).bfloat16().dtype == bf16)",
        |rt, args| converted(rt, args, Dtype::BF16),
    ),
    shorthand(
        "cfloat",
        &["convert", "cast", "dtype", "c64", "complex"],
        "assert(zeros(2).cfloat().dtype == c64)",
        |rt, args| converted(rt, args, Dtype::C64),
    ),
    shorthand(
        "cdouble",
        &["convert", "cast", "dtype", "c128", "complex"],
        "assert(zeros(2).cdouble().dtype == c128)",
        |rt, args| converted(rt, args, Dtype::C128),
    ),
    shorthand(
        "long",
        &["convert", "cast", "dtype", "i64"],
        "assert(equal(tensor([1.5, -1.5]).long(), [1, -1]))",
        |rt, args| converted(rt, args, Dtype::I64),
    ),
    shorthand(
        "int",
        &["convert", "cast", "dtype", "i32"],
        "assert(zeros(2).int().dtype == i32)",
        |rt, args| converted(rt, args, Dtype::I32),
    ),
    shorthand(
        "short",
        &["convert", "cast", "dtype", "i16"],
        "assert(zeros(2).short().dtype == i16)",
        |rt, args| converted(rt, args, Dtype::I16),
    ),
    shorthand(
        "char",
        &["convert", "cast", "dtype", "i8"],
        "assert(zeros(2).char().dtype == i8)",
        |rt, args| converted(rt, args, Dtype::I8),
    ),
    shorthand(
        "byte",
        &["convert", "cast", "dtype", "u8"],
        "assert(zeros(2).byte().dtype == u8)",
        |rt, args| converted(rt, args, Dtype::U8),
    ),
    shorthand(
        "bool",
        &["convert", "cast", "dtype", "bool"],
        "assert(equal(tensor([1.5, 0.0]).bool(), [true, false]))",
        |rt, args| converted(rt, args, Dtype::Bool),
    ),
];

/// `x on cuda`: returns the tensor itself if it is already there.
pub static ON: Op = Op {
    name: "on",
    params: &[X, Param::new("device", Kind::Device)],
    run: Run::Primitive(|rt, args| {
        let (x, device) = (args.tensor(0)?, args.device(1));
        match device.filter(|device| *device != x.device()) {
            Some(device) => rt.copy_to(x, device, false).map(Out::Tensor),
            None => Ok(Out::Tensor(x.clone())),
        }
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
    ..Op::BASE
};

/// A method with PyTorch's name for a dtype.
const fn shorthand(
    name: &'static str,
    search: &'static [&'static str],
    example: &'static str,
    run: fn(&mut Runtime, &Args<'_>) -> Result<Out>,
) -> Op {
    Op {
        name,
        doc: "Converts to the dtype of that name: `float` f32, `double` f64, `half` f16, `bfloat16` bf16, `cfloat` \
              c64, `cdouble` c128, `long` i64, `int` i32, `short` i16, `char` i8, `byte` u8, `bool` bool. Floats \
              become integers by dropping the fractional part, complex numbers real ones by dropping the imaginary \
              part. The tensor itself if it already has that dtype.",
        search,
        params: ONLY,
        form: Form::METHOD,
        example,
        run: Run::Primitive(run),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g())),
        ..Op::BASE
    }
}

fn converted(rt: &mut Runtime, args: &Args<'_>, dtype: Dtype) -> Result<Out> {
    let x = args.tensor(0)?;
    moved(rt, x, dtype, x.device(), false, false).map(Out::Tensor)
}

fn to(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let (mut dtype, mut device) = (args.dtype(2), args.device(5));
    let (mut non_blocking, mut copy) = (args.flag(3), args.flag(4));
    match args.get(2) {
        Arg::None | Arg::Dtype(_) => {}
        // Without a dtype argument the flags come one position earlier.
        Arg::Bool(flag) if !matches!(args.get(1), Arg::None) => {
            copy |= non_blocking;
            non_blocking = *flag;
        }
        _ => return Err(error::wrong_argument(2, "a dtype")),
    }
    match args.get(1) {
        Arg::None => {}
        Arg::Dtype(given) => dtype = Some(*given),
        Arg::Device(given) => device = Some(*given),
        Arg::Int(index) => device = Some(cuda_of(*index)?),
        Arg::Tensor(other) => {
            dtype = dtype.or(Some(other.dtype()));
            device = device.or(Some(other.device()));
        }
        Arg::Str(name) => device = Some(named(rt, name)?),
        _ => return Err(error::wrong_argument(1, "a dtype, a device or a tensor")),
    }
    let (dtype, device) = (dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()));
    moved(rt, x, dtype, device, non_blocking, copy).map(Out::Tensor)
}

fn cuda_of(index: i64) -> Result<DeviceId> {
    match u32::try_from(index) {
        Ok(index) => Ok(DeviceId::Cuda(index)),
        Err(_) => Err(error::bad_value(1, format!("there is no device `{index}`"), "devices count from 0")),
    }
}

/// The device with this name.
fn named(rt: &Runtime, name: &str) -> Result<DeviceId> {
    let found = DeviceId::named(name, rt.current_cuda());
    found.ok_or_else(|| {
        let count = rt.machine().device_count();
        crate::driver::error::invalid_device_string(name, count).operand(1, "this device")
    })
}

/// The tensor converted to a dtype and moved to a device.
pub(super) fn moved(
    rt: &mut Runtime,
    x: &Tensor,
    dtype: Dtype,
    device: DeviceId,
    non_blocking: bool,
    copy: bool,
) -> Result<Tensor> {
    match (x.dtype() == dtype, x.device() == device) {
        (true, true) if copy => rt.cast_ordered(x, dtype),
        (true, true) => Ok(x.clone()),
        (false, true) => rt.cast_ordered(x, dtype),
        (true, false) => rt.copy_to(x, device, non_blocking),
        // Transfer the narrower of the two dtypes.
        (false, false) if dtype.size() < x.dtype().size() => {
            let narrow = rt.cast_ordered(x, dtype)?;
            rt.copy_to(&narrow, device, non_blocking)
        }
        // A host conversion must not read while an asynchronous copy is still writing, so the copy to the
        // host waits.
        (false, false) => {
            let near = rt.copy_to(x, device, non_blocking && device != DeviceId::Cpu)?;
            rt.cast_ordered(&near, dtype)
        }
    }
}

/// Numbers in nested lists; the nesting depth is the rank.
fn nested(chunks: &mut std::slice::ChunksExact<'_, u8>, shape: &[usize], dtype: Dtype) -> Result<Data> {
    crate::driver::error::paced(1)?;
    match shape.split_first() {
        None => Ok(Data::Number(Scalar::decode(chunks.next().unwrap_or(&[]), dtype))),
        Some((&extent, inner)) => {
            let items: Result<Vec<Data>> = (0..extent).map(|_| nested(chunks, inner, dtype)).collect();
            items.map(Data::List)
        }
    }
}
