//! Errors of operations: E03xx types and values, E04xx shapes and indices.

use crate::array::{Dims, Dtype, element_count};
use crate::base::{Code, Error, ErrorKind, Result};

/// Every code of this file.
pub static CODES: &[&Code] = &[&WRONG_ARGUMENT, &NOT_FOR_DTYPE, &RESULT_DOES_NOT_FIT, &BAD_SHAPE];

static WRONG_ARGUMENT: Code = Code {
    id: "E0350",
    kind: ErrorKind::Type,
    title: "an argument of another type is needed",
    page: "An operation was given an argument it cannot use. The label on the argument says what is \
           needed. Convert it, or look the operation up with `runnel doc`.",
    example: "let x = zeros(2)\nsum(x, dim=\"rows\")",
};

static NOT_FOR_DTYPE: Code = Code {
    id: "E0351",
    kind: ErrorKind::Type,
    title: "the operation is not defined for this dtype",
    page: "Some operations exist for some dtypes alone: bit operations need integers or bools, \
           subtraction is not defined for bools. Convert first, with `x.to(f32)` or `x.to(i64)`.",
    example: "tensor([1.5]) & tensor([2.5])",
};

static RESULT_DOES_NOT_FIT: Code = Code {
    id: "E0352",
    kind: ErrorKind::Type,
    title: "the result does not fit the tensor it is written to",
    page: "An in-place operation keeps the dtype of the tensor it changes. A float result cannot be \
           written into an integer tensor without losing what follows the point. Write the operation \
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

/// An argument of another kind than the parameter's.
pub fn wrong_argument(index: usize, wanted: &str) -> Error {
    Error::new(&WRONG_ARGUMENT, format!("this operation needs {wanted} here"))
        .operand(index, format!("not {wanted}"))
}

/// The operation has no meaning for a dtype.
pub fn not_for_dtype(name: &str, dtype: Dtype) -> Error {
    let help = if dtype == Dtype::Bool {
        "convert to numbers first: `x.to(i64)`"
    } else {
        "convert to integers first: `x.to(i64)`"
    };
    Error::new(&NOT_FOR_DTYPE, format!("`{name}` is not defined for {dtype}")).help(help)
}

/// The in-place result is of a higher kind than its target.
pub fn result_does_not_fit(name: &str, result: Dtype, target: Dtype) -> Error {
    Error::new(
        &RESULT_DOES_NOT_FIT,
        format!("the result of `{name}_` is {result} and cannot be written into a tensor of {target}"),
    )
    .operand(0, format!("this keeps its dtype, {target}"))
    .help(format!("write `{name}` without `_`, or convert first: `x.to({result})`"))
}

/// Checks a shape that a user wrote.
pub fn shape(index: usize, extents: &[i64]) -> Result<Dims> {
    let mut dims = Dims::new();
    for &extent in extents {
        let Ok(extent) = usize::try_from(extent) else {
            return Err(Error::new(&BAD_SHAPE, format!("an extent cannot be negative: `{extent}`"))
                .operand(index, "this shape"));
        };
        dims.push(extent);
    }
    match element_count(&dims).and_then(|n| n.checked_mul(8)).map(isize::try_from) {
        Some(Ok(_)) => Ok(dims),
        _ => Err(Error::new(&BAD_SHAPE, format!("a tensor of shape {extents:?} has too many elements"))
            .operand(index, "this shape")),
    }
}
