//! Errors of operations: E03xx types and values, E04xx shapes and indices.

use crate::array::{Dims, Dtype, Scalar, element_count};
use crate::base::{Code, Error, ErrorKind, Result, this_is};
use crate::driver::DeviceId;
use crate::plan::MapArg;
use crate::plan::error::BAD_VALUE;
use crate::tensor::Tensor;

mod shapes;

pub use shapes::*;

/// Every code of this file.
pub static CODES: &[&Code] = &[
    &WRONG_ARGUMENT,
    &NOT_FOR_DTYPE,
    &RESULT_DOES_NOT_FIT,
    &BAD_SHAPE,
    &BAD_DIM,
    &NOT_LAST_EXTENTS,
    &RAGGED,
];

static WRONG_ARGUMENT: Code = Code {
    id: "E0350",
    kind: ErrorKind::Type,
    title: "an argument of another type is needed",
    page: "An operation was given an argument it cannot use. The label on the argument says what is \
           needed. Convert it, or look the operation up with `runnel doc`.",
    example: "masked_fill(zeros(2), [1, 0], 5)",
};

static NOT_FOR_DTYPE: Code = Code {
    id: "E0351",
    kind: ErrorKind::Type,
    title: "the operation is not defined for this dtype",
    page: "Some operations exist only for some dtypes: bit operations need integers or bools, \
           subtraction is not defined for bools. Convert first, with `x.to(f32)` or `x.to(i64)`.",
    example: "tensor([1.5]) & tensor([2.5])",
};

static RESULT_DOES_NOT_FIT: Code = Code {
    id: "E0352",
    kind: ErrorKind::Type,
    title: "the result does not fit the tensor it is written to",
    page: "An in-place operation keeps the dtype of the tensor it changes. A float result cannot be \
           written into an integer tensor without losing its fractional part. Write the operation \
           without `_`, or convert the tensor first.",
    example: "let x = tensor([1, 2])\nx.mul_(0.5)",
};

static BAD_SHAPE: Code = Code {
    id: "E0401",
    kind: ErrorKind::Shape,
    title: "not a shape",
    page: "An extent of a shape must be zero or more, and the number of elements must fit memory \
           arithmetic (2^63).",
    example: "zeros(2, -3)",
};

static BAD_DIM: Code = Code {
    id: "E0405",
    kind: ErrorKind::Index,
    title: "no such dimension",
    page: "Dimensions are counted from 0; negative ones count from the end, -1 is the last. A tensor \
           without dimensions accepts 0 and -1. A dimension may be named only once.",
    example: "sum(zeros(2, 3), dim=2)",
};

static NOT_LAST_EXTENTS: Code = Code {
    id: "E0406",
    kind: ErrorKind::Shape,
    title: "not the tensor's last extents",
    page: "A normalisation over the last dimensions takes their extents as a check. They must be the last extents of \
           the tensor: for a tensor of shape `[8, 4, 16]`, `16` or `[4, 16]`.",
    example: "layer_norm(zeros(8, 16), 8)",
};

static RAGGED: Code = Code {
    id: "E0404",
    kind: ErrorKind::Shape,
    title: "lists that do not form a rectangle",
    page: "Nested lists become a tensor when all lists of one depth have the same length, and numbers are at \
           one depth only. Pad the shorter rows, or make one tensor per row.",
    example: "tensor([[1, 2], [3]])",
};

/// An argument of the wrong kind. The virtual machine adds the operation's name and the help
/// (`vm::run::calls`).
pub fn wrong_argument(index: usize, wanted: &str) -> Error {
    Error::needs(&WRONG_ARGUMENT, wanted).operand(index, format!("not {wanted}"))
}

/// As [`wrong_argument`], for an element of a list argument. `list` and `element` describe what was wanted.
pub fn wrong_element(index: usize, at: usize, list: &str, element: &str) -> Error {
    Error::needs(&WRONG_ARGUMENT, list).element(index, at, format!("not {element}"))
}

/// A tensor of the wrong kind; `help` says how to make the right one.
pub fn wrong_tensor(index: usize, wanted: &str, found: &Tensor, help: &str) -> Error {
    Error::needs(&WRONG_ARGUMENT, wanted).operand(index, this_is(found.describe())).help(help)
}

/// The operation is not defined for a dtype.
pub fn not_for_dtype(name: &str, dtype: Dtype, operands: &[MapArg<'_>]) -> Error {
    let help = match (dtype, name) {
        (Dtype::Bool, "sub") => "convert to numbers first, `x.to(i64)`, or write `x ^ y` for what differs",
        (Dtype::Bool, "neg") => "convert to numbers first, `x.to(i64)`, or write `~x` for the opposite",
        (Dtype::Bool, _) => "convert to numbers first: `x.to(i64)`",
        _ => "convert to integers first: `x.to(i64)`",
    };
    let error = Error::new(&NOT_FOR_DTYPE, format!("`{name}` is not defined for {dtype}")).help(help);
    labelled(error, operands)
}

/// As [`not_for_dtype`], for an operation that needs floats.
pub fn floats_alone(name: &str, index: usize, x: &Tensor) -> Error {
    Error::new(&NOT_FOR_DTYPE, format!("`{name}` is not defined for {}", x.dtype()))
        .operand(index, this_is(x.describe()))
        .help("convert first: `x.to(f32)`")
}

/// Rejects bools, which cannot be ordered or computed with.
pub fn refuse_bool(name: &str, index: usize, x: &Tensor) -> Result<()> {
    match x.dtype() {
        Dtype::Bool => Err(Error::new(&NOT_FOR_DTYPE, format!("`{name}` is not defined for bool"))
            .operand(index, this_is(x.describe()))
            .help("convert to numbers first: `x.to(i64)`")),
        _ => Ok(()),
    }
}

/// As [`refuse_bool`], for a dtype to count in.
pub fn no_bools(name: &str, index: usize, dtype: Dtype) -> Result<()> {
    match dtype {
        Dtype::Bool => Err(Error::new(&NOT_FOR_DTYPE, format!("`{name}` is not defined for bool"))
            .operand(index, "this dtype")
            .help("write an int or a float, such as `dtype=i64`")),
        _ => Ok(()),
    }
}

/// As [`not_for_dtype`], for a `dtype=` argument.
pub fn not_with_dtype(name: &str, index: usize, dtype: Dtype) -> Error {
    Error::new(&NOT_FOR_DTYPE, format!("`{name}` is not defined for {dtype}"))
        .operand(index, "this dtype")
        .help("write a float, such as `dtype=f32`, and convert the result: `.to(i64)`")
}

/// An error with a label on each operand: dtype, shape and device of tensors, the value of numbers.
pub fn labelled(error: Error, operands: &[MapArg<'_>]) -> Error {
    operands.iter().enumerate().fold(error, |error, (i, arg)| match arg {
        MapArg::Tensor(tensor) => error.operand(i, this_is(tensor.describe())),
        MapArg::Number(Scalar::Bool(b)) => error.operand(i, this_is(format!("the bool {b}"))),
        MapArg::Number(Scalar::Int(n)) => error.operand(i, this_is(format!("the int {n}"))),
        MapArg::Number(Scalar::Float(x)) => error.operand(i, this_is(format!("the float {x:?}"))),
        _ => error,
    })
}

/// An operation on the parts of complex numbers, given another tensor.
pub fn needs_complex(name: &str, x: &Tensor) -> Error {
    Error::new(&NOT_FOR_DTYPE, format!("`{name}` needs complex numbers, not {}", x.dtype()))
        .operand(0, this_is(x.describe()))
        .help("a real tensor has no imaginary part; `complex(x, 0)` makes it complex")
}

/// A transform of a signal without elements.
pub fn no_signal(name: &str, dim: usize, length: i64, given: bool) -> Error {
    let message =
        format!("`{name}` needs a signal: invalid number of data points ({length}) along dimension {dim}");
    match given {
        true => Error::new(&BAD_VALUE, message).operand(1, "this length").help("write a length above 0"),
        false => Error::new(&BAD_VALUE, message)
            .operand(0, "this tensor")
            .help("name the length of the signal, with `n=` or `s=`"),
    }
}

/// A tensor whose memory is not an array of pairs.
pub fn no_pairs(x: &Tensor, why: &str) -> Error {
    let strides = x.layout().strides.as_slice();
    Error::new(&BAD_VALUE, format!("this tensor cannot be viewed as complex numbers: {why}"))
        .operand(0, this_is(format!("{} with the strides {strides:?}", x.describe())))
        .help("put pairs last, `x.reshape(.., 2)`, and copy with `.clone()`; or use `complex(re, im)`")
}

/// The kind of the result is higher than that of the in-place target.
pub fn result_does_not_fit(name: &str, result: Dtype, target: &Tensor) -> Error {
    let plain = name.strip_suffix('_').unwrap_or(name);
    Error::new(
        &RESULT_DOES_NOT_FIT,
        format!(
            "the result of `{name}` is {result} and cannot be written into a tensor of {}",
            target.dtype()
        ),
    )
    .operand(0, this_is(format!("{}, and keeps its dtype", target.describe())))
    .help(format!("write `{plain}` for a new tensor of {result}, or convert first: `x.to({result})`"))
}

/// The kind of the result of `x[i] op= value` is higher than that of `x`.
pub fn update_does_not_fit(result: Dtype, target: &Tensor) -> Error {
    Error::new(
        &RESULT_DOES_NOT_FIT,
        format!(
            "the result of this update is {result} and would lose digits in a tensor of {}",
            target.dtype()
        ),
    )
    .operand(0, this_is(format!("{}, and keeps its dtype", target.describe())))
    .help(format!("convert the tensor first, `x.to({result})`, or write `x[i] = ..` to convert the result"))
}

/// An unusable value of an argument; `message` gives the reason, `help` the correction.
pub fn bad_value(index: usize, message: impl Into<String>, help: impl Into<String>) -> Error {
    Error::new(&BAD_VALUE, message).operand(index, "this value").help(help)
}

/// An unknown value of an option.
pub fn not_one_of(index: usize, name: &str, given: &str, known: &[&str]) -> Error {
    let list: Vec<String> = known.iter().map(|k| format!("`{name}=\"{k}\"`")).collect();
    bad_value(index, format!("`{given}` is not a value of `{name}`"), format!("write {}", list.join(" or ")))
}

/// An integer to the power of a negative number.
pub fn negative_integer_power(exponent: i64) -> Error {
    let message = format!("an integer to the power of `{exponent}` is not an integer");
    bad_value(1, message, "convert first: `x.to(f32)`")
}

/// `clamp` without a bound.
pub fn no_bounds() -> Error {
    Error::new(&BAD_VALUE, "`clamp` needs `min` or `max`").help("write `clamp(x, min=0)`")
}

/// A dimension outside `-rank..rank`.
pub fn no_such_dim(index: usize, dim: i64, rank: usize) -> Error {
    let help = match rank {
        0 => "the tensor has no dimensions: write `0` or `-1`".to_string(),
        rank => format!("dimensions go from 0 to {}, or from -{rank} to -1", rank - 1),
    };
    Error::new(&BAD_DIM, format!("there is no dimension `{dim}`")).operand(index, "this dimension").help(help)
}

/// A dimension that is given twice.
pub fn dim_twice(index: usize, dim: usize) -> Error {
    Error::new(&BAD_DIM, format!("dimension {dim} is named twice"))
        .operand(index, "these dimensions")
        .help("name each dimension once; a negative number counts from the end")
}

/// Nested lists that are not rectangular.
pub fn ragged(index: usize, why: String) -> Error {
    Error::new(&RAGGED, format!("these lists do not form a rectangle: {why}"))
        .operand(index, "these lists")
        .help("give all lists of one depth the same length")
}

/// Lists nested deeper than the maximum number of dimensions.
pub fn nested_too_deep(index: usize, limit: usize) -> Error {
    Error::new(&RAGGED, format!("a tensor has at most {limit} dimensions"))
        .operand(index, "these lists are nested deeper")
        .help("do these lists contain themselves?")
}

/// `arange` with a step in the wrong direction.
pub fn step_leads_away() -> Error {
    bad_value(2, "the step leads away from the end of the range", "change the sign of the step")
}

/// A generator on another device than the draw.
pub fn generator_elsewhere(generator: DeviceId, device: DeviceId) -> Error {
    Error::new(&BAD_VALUE, format!("the generator is on {generator}, and the numbers are drawn on {device}"))
        .help(format!("make the generator there: `Generator(device={device})`"))
}

/// `pin_memory` for a tensor on a device.
pub fn only_host_is_pinned(device: DeviceId) -> Error {
    Error::new(&BAD_VALUE, format!("only host memory can be pinned, and this tensor goes to {device}"))
        .help("write `device=cpu`, or leave `pin_memory` out")
}

/// Extents of a normalisation that differ from the tensor's.
pub fn not_the_last_extents(stated: &[i64], x: &Tensor) -> Error {
    Error::new(&NOT_LAST_EXTENTS, format!("the last extents of the tensor are not {stated:?}"))
        .operand(0, this_is(x.describe()))
        .operand(1, format!("these are {stated:?}"))
        .help("write the extents of the last dimensions, such as `x.shape[-1]`")
}

/// Checks a shape given by the user.
pub fn shape(index: usize, extents: &[i64]) -> Result<Dims> {
    if extents.len() > super::shape::MAX_RANK {
        return Err(too_many_dims(extents.len()));
    }
    let mut dims = Dims::new();
    for &extent in extents {
        let Ok(extent) = usize::try_from(extent) else {
            return Err(Error::new(&BAD_SHAPE, format!("an extent cannot be negative: `{extent}`"))
                .operand(index, "this shape")
                .help("write 0 or more; `-1` for the rest belongs in `reshape` and `view`"));
        };
        dims.push(extent);
    }
    match element_count(&dims) {
        Some(_) => Ok(dims),
        None => Err(Error::new(&BAD_SHAPE, format!("a tensor of shape {extents:?} has too many elements"))
            .operand(index, "this shape")
            .help("the product of the extents must stay below 2^63")),
    }
}
