//! Factories: tensors from numbers, shapes and ranges.
//!
//! Memory is allocated at once, so a request that cannot fit fails at its line; only the fill is deferred. A
//! factory puts its tensor on the current device unless `device` is given.

use super::known;
use super::params::{DEVICE, DTYPE, REQUIRES_GRAD, X};
use super::signature::{Default, Kind, Param};
use super::subscript::set;
use super::{Arg, Args, Foreign, Form, Gradient, Keeps, Op, Out, Run, data, error, map};
use crate::array::{Dims, Dtype, Layout, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::CAST;
use crate::plan::error::check_number;
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "tensor",
        doc: "Makes a tensor of numbers in nested lists, or a copy of a tensor. The dtype is `f32` if any number \
              is a float, else `i64`, else `bool`; a copy keeps its dtype and device. Source: `torch.tensor`.",
        search: &["array", "literal", "from list", "create", "copy"],
        params: &[Param::new("data", Kind::Data), DTYPE, DEVICE, PIN_MEMORY, REQUIRES_GRAD],
        form: Form::FUNCTION,
        example: "let x = tensor([[1, 2], [3, 4]], dtype=f16)\nassert(x.shape == (2, 2))\nassert(x.dtype == f16)",
        run: Run::Primitive(tensor),
        shape: known::LITERAL,
        foreign: Foreign {
            names: &["from_numpy", "as_tensor", "asarray", "Tensor", "FloatTensor", "LongTensor"],
            help: "write `tensor(values)`",
        },
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "zeros",
        doc: "Makes a tensor of zeros (`f32` unless `dtype` is given). Source: `torch.zeros`.",
        search: &["create", "fill", "0"],
        params: SIZED,
        form: Form::FUNCTION,
        example: "assert(equal(zeros(2, 2), [[0.0, 0.0], [0.0, 0.0]]))",
        run: Run::Primitive(|rt, args| sized(rt, "zeros", args, Some(0))),
        shape: known::SIZED,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "ones",
        doc: "Makes a tensor of ones (`f32` unless `dtype` is given). Source: `torch.ones`.",
        search: &["create", "fill", "1"],
        params: SIZED,
        form: Form::FUNCTION,
        example: "assert(equal(ones(2, dtype=i32), [1, 1]))",
        run: Run::Primitive(|rt, args| sized(rt, "ones", args, Some(1))),
        shape: known::SIZED,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "empty",
        doc: "Makes a tensor without setting its elements (`f32` unless `dtype` is given). Elements that were never \
              written have arbitrary values. Source: `torch.empty`.",
        search: &["create", "allocate", "uninitialised"],
        params: SIZED,
        form: Form::FUNCTION,
        example: "assert(empty(2, 3).shape == (2, 3))",
        run: Run::Primitive(|rt, args| sized(rt, "empty", args, None)),
        shape: known::SIZED,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "full",
        doc: "Makes a tensor filled with one number; the dtype follows the number (`bool`, `i64`, `f32` or a complex \
              dtype) unless `dtype` is given. Source: `torch.full`.",
        search: &["create", "constant", "fill"],
        params: &[
            Param::new("size", Kind::Shape),
            Param::new("fill_value", Kind::TensorOrNumber),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            REQUIRES_GRAD,
        ],
        form: Form::FUNCTION,
        example: "assert(equal(full([2], 7), [7, 7]))",
        run: Run::Primitive(|rt, args| {
            let value = Value::of(rt, args, 1)?;
            let options = TensorOptions::of(rt, args, 2, value.dtype());
            value.written(rt, "full", &args.shape(0)?, options).map(Out::Tensor)
        }),
        shape: known::SIZED,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "zeros_like",
        doc: "Makes a tensor of zeros with the shape, dtype and device of `x`. Source: `torch.zeros_like`.",
        search: &["create", "same shape"],
        params: LIKE,
        form: Form::FUNCTION,
        example: "assert(equal(zeros_like(tensor([1, 2])), [0, 0]))",
        run: Run::Primitive(|rt, args| like(rt, "zeros_like", args, 1, Some(Scalar::Int(0)))),
        shape: known::SAME_SHAPE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "ones_like",
        doc: "Makes a tensor of ones with the shape, dtype and device of `x`. Source: `torch.ones_like`.",
        search: &["create", "same shape"],
        params: LIKE,
        form: Form::FUNCTION,
        example: "assert(equal(ones_like(tensor([5, 6])), [1, 1]))",
        run: Run::Primitive(|rt, args| like(rt, "ones_like", args, 1, Some(Scalar::Int(1)))),
        shape: known::SAME_SHAPE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "empty_like",
        doc: "Makes a tensor with the shape, dtype and device of `x`, without setting its elements. Source: \
              `torch.empty_like`.",
        search: &["create", "same shape", "allocate"],
        params: LIKE,
        form: Form::FUNCTION,
        example: "assert(empty_like(zeros(3, dtype=f64)).dtype == f64)",
        run: Run::Primitive(|rt, args| like(rt, "empty_like", args, 1, None)),
        shape: known::SAME_SHAPE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "full_like",
        doc: "Makes a tensor filled with one number, with the shape, dtype and device of `x`. Source: \
              `torch.full_like`.",
        search: &["create", "same shape", "constant"],
        params: &[
            X,
            Param::new("fill_value", Kind::TensorOrNumber),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            REQUIRES_GRAD,
        ],
        form: Form::FUNCTION,
        example: "assert(equal(full_like(tensor([1, 2]), 9), [9, 9]))",
        run: Run::Primitive(|rt, args| {
            let value = Value::of(rt, args, 1)?;
            let x = args.tensor(0)?;
            let options = TensorOptions::beside(args, 2, x);
            let tensor = allocate_as(rt, x, options)?;
            value.fill(rt, "full_like", &tensor)?;
            Ok(Out::Tensor(tensor))
        }),
        shape: known::SAME_SHAPE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "new_tensor",
        doc: "Makes a tensor of numbers in nested lists, with the dtype and on the device of this tensor. Source: \
              `torch.Tensor.new_tensor`.",
        search: &["create", "same device", "same dtype"],
        params: &[X, Param::new("data", Kind::Data), DTYPE, DEVICE, PIN_MEMORY, REQUIRES_GRAD],
        form: Form::METHOD,
        example: "assert(zeros(1, dtype=f64).new_tensor([1, 2]).dtype == f64)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            let options = TensorOptions::beside(args, 2, x);
            let made = from_argument(rt, args.get(1), 1, Some(options.dtype), Some(options.device))?;
            pinned_if(rt, "new_tensor", made, options.pinned).map(Out::Tensor)
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "new_full",
        doc: "Makes a tensor filled with one number, with the dtype and on the device of this tensor. Source: \
              `torch.Tensor.new_full`.",
        search: &["create", "same device", "same dtype", "constant"],
        params: &[
            X,
            Param::new("size", Kind::Shape),
            Param::new("fill_value", Kind::TensorOrNumber),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            REQUIRES_GRAD,
        ],
        form: Form::METHOD,
        example: "assert(equal(tensor([1]).new_full([2], 3), [3, 3]))",
        run: Run::Primitive(|rt, args| {
            let (shape, value) = (args.shape(1)?, Value::of(rt, args, 2)?);
            let options = TensorOptions::beside(args, 3, args.tensor(0)?);
            value.written(rt, "new_full", &shape, options).map(Out::Tensor)
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "new_zeros",
        doc: "Makes a tensor of zeros with the dtype and on the device of this tensor. Source: \
              `torch.Tensor.new_zeros`.",
        search: &["create", "same device", "same dtype"],
        params: NEW,
        form: Form::METHOD,
        example: "assert(equal(tensor([1]).new_zeros(2), [0, 0]))",
        run: Run::Primitive(|rt, args| new(rt, "new_zeros", args, Some(0))),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "new_ones",
        doc: "Makes a tensor of ones with the dtype and on the device of this tensor. Source: `torch.Tensor.new_ones`.",
        search: &["create", "same device", "same dtype"],
        params: NEW,
        form: Form::METHOD,
        example: "assert(equal(tensor([5]).new_ones(2), [1, 1]))",
        run: Run::Primitive(|rt, args| new(rt, "new_ones", args, Some(1))),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "new_empty",
        doc: "Makes a tensor with the dtype and on the device of this tensor, without setting its elements. Source: \
              `torch.Tensor.new_empty`.",
        search: &["create", "same device", "same dtype", "allocate"],
        params: NEW,
        form: Form::METHOD,
        example: "assert(zeros(1, dtype=i8).new_empty(2, 3).shape == (2, 3))",
        run: Run::Primitive(|rt, args| new(rt, "new_empty", args, None)),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "fill",
        doc: "Returns a tensor of the shape and dtype of `x` with all elements equal to `value`; `x.fill_(value)` sets \
              the elements of `x`. Source: `torch.Tensor.fill_`.",
        search: &["set all", "constant", "fill_"],
        params: &[X, Param::new("value", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "let x = zeros(2)\nx.fill_(3)\nassert(equal(x, [3.0, 3.0]))",
        run: Run::Both(
            |rt, args| constant(rt, "fill", args.tensor(0)?, one_value(args)?),
            |rt, _, args| set(rt, args.tensor(0)?, &[], one_value(args)?),
        ),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().zeros_like());
            b.to(1, || b.g());
        }),
        ..Op::BASE
    },
    Op {
        name: "zero",
        doc: "Sets all elements to 0: `x.zero_()`. Source: `torch.Tensor.zero_`.",
        search: &["set all", "clear", "reset", "zero_"],
        params: &[X],
        form: Form { function: false, method: false, in_place: true },
        example: "let x = ones(2)\nx.zero_()\nassert(equal(x, [0.0, 0.0]))",
        run: Run::Both(
            |rt, args| constant(rt, "zero", args.tensor(0)?, MapArg::Number(Scalar::Int(0))),
            |rt, _, args| set(rt, args.tensor(0)?, &[], MapArg::Number(Scalar::Int(0))),
        ),
        gradient: Gradient::Zero,
        ..Op::BASE
    },
];

/// The value for a fill: a number or a tensor without dimensions.
fn one_value<'a>(args: &Args<'a>) -> Result<MapArg<'a>> {
    let value = args.operand(1)?;
    if let MapArg::Number(number) = value {
        check_number(1, number, args.tensor(0)?.dtype())?;
    }
    if let MapArg::Tensor(value) = value {
        if value.rank() > 0 {
            let help = "take one element, `value[0]`, or write all: `x.copy_(value)`";
            return Err(error::wrong_tensor(1, "a number or a tensor without dimensions", value, help));
        }
        if value.dtype().is_complex() {
            map::check_fits("fill", value.dtype(), args.tensor(0)?)?;
        }
    }
    Ok(value)
}

/// The value that `full` and related factories write: a number, or a tensor of one element (a complex
/// number).
enum Value<'a> {
    /// A number, and its argument.
    Number(Scalar, usize),
    Complex(&'a Tensor),
}

impl<'a> Value<'a> {
    fn of(rt: &mut Runtime, args: &Args<'a>, index: usize) -> Result<Value<'a>> {
        match args.operand(index)? {
            MapArg::Tensor(value) if value.count() != 1 => {
                let help = "`x.expand(size).clone()` repeats a tensor";
                Err(error::wrong_tensor(index, "one number", value, help))
            }
            MapArg::Tensor(value) if value.dtype().is_complex() => Ok(Value::Complex(value)),
            MapArg::Tensor(value) => rt.item(value).map(|number| Value::Number(number, index)),
            _ => args.number(index).map(|number| Value::Number(number, index)),
        }
    }

    /// The dtype of a tensor of this value.
    fn dtype(&self) -> Dtype {
        match self {
            Value::Number(number, _) => number.dtype(),
            Value::Complex(value) => value.dtype(),
        }
    }

    /// Writes the value to every element.
    fn fill(&self, rt: &mut Runtime, name: &'static str, tensor: &Tensor) -> Result<()> {
        match self {
            Value::Number(number, index) => {
                check_number(*index, *number, tensor.dtype())?;
                fill(rt, name, tensor, Some(*number))
            }
            Value::Complex(value) => {
                map::check_fits(name, value.dtype(), tensor)?;
                let value =
                    value.with_layout(Layout { offset: value.layout().offset, ..Layout::contiguous(&[]) });
                let value = rt.copy_to(&value, tensor.device(), false)?;
                rt.map_into(
                    tensor,
                    Elementwise::new(name, &CAST, &[MapArg::Tensor(&value)], value.dtype(), tensor.dtype()),
                )
            }
        }
    }

    fn written(
        &self,
        rt: &mut Runtime,
        name: &'static str,
        shape: &Dims,
        options: TensorOptions,
    ) -> Result<Tensor> {
        let tensor = allocate(rt, shape, options)?;
        self.fill(rt, name, &tensor)?;
        Ok(tensor)
    }
}

/// `pin_memory=false`
pub(super) const PIN_MEMORY: Param = Param::named("pin_memory", Kind::Bool, Default::Bool(false));

/// `(*size, dtype=none, device=none, pin_memory=false, requires_grad=false)`
const SIZED: &[Param] = &[Param::rest("size", Kind::Shape), DTYPE, DEVICE, PIN_MEMORY, REQUIRES_GRAD];

/// `(x, *, dtype=none, device=none, pin_memory=false, requires_grad=false)`
const LIKE: &[Param] = &[X, DTYPE, DEVICE, PIN_MEMORY, REQUIRES_GRAD];

/// `(x, *size, dtype=none, device=none, pin_memory=false, requires_grad=false)`
const NEW: &[Param] = &[X, Param::rest("size", Kind::Shape), DTYPE, DEVICE, PIN_MEMORY, REQUIRES_GRAD];

/// The device and the dtype of a factory's tensor.
#[derive(Clone, Copy)]
pub(super) struct TensorOptions {
    pub dtype: Dtype,
    pub device: DeviceId,
    pub pinned: bool,
}

impl TensorOptions {
    /// Reads `dtype`, `device` and `pin_memory`, which are the arguments from `index` on.
    pub fn of(rt: &Runtime, args: &Args<'_>, index: usize, dtype: Dtype) -> TensorOptions {
        TensorOptions {
            dtype: args.dtype(index).unwrap_or(dtype),
            device: args.device(index + 1).unwrap_or(rt.current_device()),
            pinned: args.flag(index + 2),
        }
    }

    /// As [`TensorOptions::of`], with the dtype and device of `x` as defaults.
    pub fn beside(args: &Args<'_>, index: usize, x: &Tensor) -> TensorOptions {
        TensorOptions {
            dtype: args.dtype(index).unwrap_or(x.dtype()),
            device: args.device(index + 1).unwrap_or(x.device()),
            pinned: args.flag(index + 2),
        }
    }
}

/// An allocated tensor without values.
pub(super) fn allocate(rt: &mut Runtime, shape: &[usize], options: TensorOptions) -> Result<Tensor> {
    match (options.pinned, options.device) {
        (false, device) => rt.empty(shape, options.dtype, device),
        (true, DeviceId::Cpu) => rt.pinned(shape, options.dtype),
        (true, device) => Err(error::only_host_is_pinned(device)),
    }
}

/// [`allocate`] with the shape and the order in memory of `x`.
pub(super) fn allocate_as(rt: &mut Runtime, x: &Tensor, options: TensorOptions) -> Result<Tensor> {
    match (options.pinned, options.device) {
        (false, device) => rt.empty_ordered(x.layout(), options.dtype, device),
        (true, DeviceId::Cpu) => rt.pinned_ordered(x.layout(), options.dtype),
        (true, device) => Err(error::only_host_is_pinned(device)),
    }
}

/// The tensor, or its copy in page-locked memory.
pub(super) fn pinned_if(rt: &mut Runtime, name: &'static str, made: Tensor, pinned: bool) -> Result<Tensor> {
    if !pinned {
        return Ok(made);
    }
    let options = TensorOptions { dtype: made.dtype(), device: made.device(), pinned };
    let copy = allocate(rt, made.shape(), options)?;
    rt.assign(name, &copy, &made)?;
    Ok(copy)
}

/// A tensor filled with one number, or left uninitialised.
fn filled(
    rt: &mut Runtime,
    name: &'static str,
    shape: &Dims,
    options: TensorOptions,
    value: Option<Scalar>,
) -> Result<Tensor> {
    let tensor = allocate(rt, shape, options)?;
    fill(rt, name, &tensor, value)?;
    Ok(tensor)
}

fn fill(rt: &mut Runtime, name: &'static str, tensor: &Tensor, value: Option<Scalar>) -> Result<()> {
    let dtype = tensor.dtype();
    match value {
        Some(value) => {
            rt.map_into(tensor, Elementwise::new(name, &CAST, &[MapArg::Number(value)], dtype, dtype))
        }
        None => Ok(()),
    }
}

fn sized(rt: &mut Runtime, name: &'static str, args: &Args<'_>, value: Option<i64>) -> Result<Out> {
    let shape = args.shape(0)?;
    let options = TensorOptions::of(rt, args, 1, Dtype::F32);
    filled(rt, name, &shape, options, value.map(Scalar::Int)).map(Out::Tensor)
}

fn like(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    index: usize,
    value: Option<Scalar>,
) -> Result<Out> {
    let x = args.tensor(0)?;
    let options = TensorOptions::beside(args, index, x);
    let tensor = allocate_as(rt, x, options)?;
    fill(rt, name, &tensor, value)?;
    Ok(Out::Tensor(tensor))
}

fn new(rt: &mut Runtime, name: &'static str, args: &Args<'_>, value: Option<i64>) -> Result<Out> {
    let shape = args.shape(1)?;
    let options = TensorOptions::beside(args, 2, args.tensor(0)?);
    filled(rt, name, &shape, options, value.map(Scalar::Int)).map(Out::Tensor)
}

/// A lazily computed tensor like `x` with all elements equal to `value`.
fn constant(rt: &mut Runtime, name: &'static str, x: &Tensor, value: MapArg<'_>) -> Result<Out> {
    let (shape, dtype) = (x.shape().clone(), x.dtype());
    rt.map_over(Elementwise::new(name, &CAST, &[value], dtype, dtype), shape, x.device()).map(Out::Tensor)
}

fn tensor(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (dtype, device) = (args.dtype(1), args.device(2));
    let made = from_argument(rt, args.get(0), 0, dtype, device)?;
    pinned_if(rt, "tensor", made, args.flag(3)).map(Out::Tensor)
}

/// A tensor from any value that `Kind::Data` accepts: numbers, nested lists, or a tensor (which is copied).
fn from_argument(
    rt: &mut Runtime,
    arg: &Arg,
    index: usize,
    dtype: Option<Dtype>,
    device: Option<DeviceId>,
) -> Result<Tensor> {
    match arg {
        Arg::Tensor(tensor) => {
            let device = device.unwrap_or(tensor.device());
            match dtype.filter(|&d| d != tensor.dtype()) {
                Some(dtype) if device == tensor.device() => rt.cast_ordered(tensor, dtype),
                Some(dtype) => {
                    let converted = rt.cast_ordered(tensor, dtype)?;
                    rt.copy_to(&converted, device, false)
                }
                None => rt.copy_to(tensor, device, false),
            }
        }
        Arg::Data(numbers) => data::tensor(rt, numbers, index, dtype, device),
        Arg::Tensors(tensors) => Err(error::wrong_argument(
            index,
            if tensors.is_empty() { "numbers" } else { "numbers, not tensors (see `stack`)" },
        )),
        other => match Args(std::slice::from_ref(other)).number(0) {
            Ok(number) => data::tensor(rt, &super::Data::Number(number), index, dtype, device),
            Err(_) => Err(error::wrong_argument(index, "numbers in nested lists")),
        },
    }
}
