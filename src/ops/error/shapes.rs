//! Errors of reductions, shapes, indices and matrix products: E036x types, E041x to E043x shapes
//! and indices.

use crate::array::Dtype;
use crate::base::{Code, Error, ErrorKind, counted, this_is};
use crate::tensor::Tensor;

/// Every code of reductions, shapes, indices and matrix products.
pub static SHAPE_CODES: &[&Code] = &[
    &NEEDS_FLOAT,
    &DTYPES_DIFFER,
    &NOT_INDICES,
    &AMBIGUOUS_BYTES,
    &NOTHING_TO_REDUCE,
    &COUNTS_DIFFER,
    &CANNOT_VIEW,
    &MATMUL_SHAPES,
    &WRONG_RANK,
    &CANNOT_JOIN,
    &INDEX_OUT_OF_RANGE,
    &TOO_MANY_INDICES,
    &DOES_NOT_ADD_UP,
    &CANNOT_EXPAND,
    &MASK_DIFFERS,
    &INDICES_DO_NOT_FIT,
    &NOT_ONE_ELEMENT,
    &TOO_MANY_DIMS,
    &NOT_ON_HOST,
];

static NEEDS_FLOAT: Code = Code {
    id: "E0360",
    kind: ErrorKind::Type,
    title: "the operation needs floats",
    page: "A mean, a variance or a norm of integers is not an integer, and the script must say which \
           float it should be. Convert first: `x.to(f32)`, or pass `dtype=f32` where the operation has \
           it.",
    example: "tensor([1, 2]).mean()",
};

static DTYPES_DIFFER: Code = Code {
    id: "E0361",
    kind: ErrorKind::Type,
    title: "operands have different dtypes",
    page: "Matrix products do not promote: both operands must have one dtype, so that no large copy is \
           made implicitly. Convert one of them: `a @ b.to(a.dtype)`.",
    example: "zeros(2, 2) @ zeros(2, 2, dtype=f64)",
};

static NOT_INDICES: Code = Code {
    id: "E0362",
    kind: ErrorKind::Type,
    title: "indices must be integers",
    page: "A tensor that selects elements holds integers (positions) or bools (a mask). Convert it: \
           `ids.to(i64)`.",
    example: "zeros(3)[tensor([0.5])]",
};

static AMBIGUOUS_BYTES: Code = Code {
    id: "E0363",
    kind: ErrorKind::Type,
    title: "`u8` as an index is ambiguous",
    page: "A `u8` tensor could mean positions or a mask; PyTorch reads it as a mask and warns. Say which: \
           `ids.to(i64)` or `mask.to(bool)`.",
    example: "zeros(3)[tensor([0, 1], dtype=u8)]",
};

static NOTHING_TO_REDUCE: Code = Code {
    id: "E0410",
    kind: ErrorKind::Shape,
    title: "a reduction of an empty tensor",
    page: "A tensor without elements has no maximum, minimum or median. It has a sum and a product (0 and 1).\n\nCheck \
           `x.numel()` first.",
    example: "zeros(0).max()",
};

static COUNTS_DIFFER: Code = Code {
    id: "E0411",
    kind: ErrorKind::Shape,
    title: "wrong number of elements",
    page: "A tensor can be viewed with another shape only if that shape has the same number of elements. One extent \
           may be `-1`: it is inferred.",
    example: "zeros(2, 3).reshape(4, 2)",
};

static CANNOT_VIEW: Code = Code {
    id: "E0412",
    kind: ErrorKind::Shape,
    title: "the memory layout of the elements does not allow this view",
    page: "A view copies nothing, so it can merge dimensions only if their elements are consecutive in memory. After \
           `t()`, `permute` or `expand` they may not be. `reshape` copies if necessary.",
    example: "zeros(2, 3).t().view(6)",
};

static MATMUL_SHAPES: Code = Code {
    id: "E0413",
    kind: ErrorKind::Shape,
    title: "shapes do not multiply",
    page: "In a matrix product the last dimension of the left operand must equal the second-to-last dimension of the \
           right operand (the only dimension of a vector). Dimensions in front are batches and broadcast.",
    example: "zeros(3, 4) @ zeros(5)",
};

static WRONG_RANK: Code = Code {
    id: "E0414",
    kind: ErrorKind::Shape,
    title: "wrong number of dimensions",
    page: "The operation is defined for a certain number of dimensions. `unsqueeze` adds one, `squeeze` and \
           `flatten` remove some; `matmul` takes any.",
    example: "zeros(3).mm(zeros(3, 3))",
};

static CANNOT_JOIN: Code = Code {
    id: "E0415",
    kind: ErrorKind::Shape,
    title: "tensors that cannot be joined",
    page: "`cat` joins tensors whose shapes are equal except for the joined dimension; `stack` needs equal shapes. The \
           list must not be empty.",
    example: "cat([zeros(2, 3), zeros(2, 4)])",
};

static INDEX_OUT_OF_RANGE: Code = Code {
    id: "E0416",
    kind: ErrorKind::Index,
    title: "index out of range",
    page: "Positions go from 0 to the extent minus one; negative ones count from the end, -1 is the last.",
    example: "zeros(3)[3]",
};

static TOO_MANY_INDICES: Code = Code {
    id: "E0417",
    kind: ErrorKind::Index,
    title: "more indices than dimensions",
    page: "Each integer, slice or index tensor takes one dimension, a mask as many as it has. `none` adds a dimension, \
           `...` covers all remaining dimensions and may appear once.",
    example: "zeros(3)[0, 0]",
};

static DOES_NOT_ADD_UP: Code = Code {
    id: "E0418",
    kind: ErrorKind::Shape,
    title: "sizes that do not add up",
    page: "The sizes of the parts must be zero or more and add up to the extent that is divided.",
    example: "zeros(5).split([2, 2])",
};

static CANNOT_EXPAND: Code = Code {
    id: "E0419",
    kind: ErrorKind::Shape,
    title: "the shape cannot be expanded to this",
    page: "`expand` stretches extents of 1 and adds dimensions in front; all other extents must be equal, or \
           `-1`, which keeps them.",
    example: "zeros(3).expand(2, 4)",
};

static MASK_DIFFERS: Code = Code {
    id: "E0420",
    kind: ErrorKind::Index,
    title: "a mask has the wrong shape",
    page: "A mask says for every element whether it is selected, so its shape must be that of the dimensions it \
           selects from.",
    example: "zeros(3)[tensor([true, false])]",
};

static INDICES_DO_NOT_FIT: Code = Code {
    id: "E0421",
    kind: ErrorKind::Index,
    title: "index tensors that do not fit",
    page: "Several index tensors select together, element by element, so their shapes must broadcast. In \
           `gather` and `scatter` the index has as many dimensions as the tensor and does not reach beyond it \
           in the other dimensions.",
    example: "zeros(3, 3)[tensor([0, 1]), tensor([0, 1, 2])]",
};

static NOT_ONE_ELEMENT: Code = Code {
    id: "E0422",
    kind: ErrorKind::Value,
    title: "not exactly one element",
    page: "`item` returns the value of a tensor with one element. `tolist` returns all values of any tensor.",
    example: "zeros(2).item()",
};

static TOO_MANY_DIMS: Code = Code {
    id: "E0423",
    kind: ErrorKind::Shape,
    title: "too many dimensions",
    page: "A tensor has at most 64 dimensions.",
    example: "let x = zeros(1)\nfor i in 0..64 { x = x.unsqueeze(0) }",
};

static NOT_ON_HOST: Code = Code {
    id: "E0424",
    kind: ErrorKind::Device,
    title: "only host memory can be pinned",
    page: "Pinned (page-locked) memory is host memory that devices copy from and to directly. Bring the tensor \
           to the host first: `x.cpu().pin_memory()`.",
    example: "(zeros(2) on cuda:0).pin_memory()",
};

/// A reduction of integers that gives floats.
pub fn needs_float(name: &str, x: &Tensor) -> Error {
    Error::new(&NEEDS_FLOAT, format!("`{name}` needs floats, not {}", x.dtype()))
        .operand(0, this_is(x.describe()))
        .help("convert first: `x.to(f32)`")
}

/// As [`needs_float`], for a `dtype=` argument.
pub fn not_a_float(name: &str, index: usize, dtype: Dtype) -> Error {
    Error::new(&NEEDS_FLOAT, format!("`{name}` needs floats, not {dtype}"))
        .operand(index, "not a float")
        .help("write `dtype=f32`")
}

/// Operands whose dtypes must be equal but differ.
pub fn dtypes_differ(name: &str, a: (usize, &Tensor), b: (usize, &Tensor)) -> Error {
    let (one, two) = (a.1.dtype(), b.1.dtype());
    Error::new(&DTYPES_DIFFER, format!("`{name}` needs operands of one dtype, not {one} and {two}"))
        .operand(a.0, this_is(a.1.describe()))
        .operand(b.0, this_is(b.1.describe()))
        .help(format!("convert one of them: `.to({one})`"))
}

/// An index tensor of floats.
pub fn not_indices(index: usize, ids: &Tensor) -> Error {
    Error::new(&NOT_INDICES, format!("indices must be integers, not {}", ids.dtype()))
        .operand(index, this_is(ids.describe()))
        .help("convert it: `.to(i64)`")
}

/// An index tensor of `u8`.
pub fn ambiguous_bytes(index: usize, ids: &Tensor) -> Error {
    Error::new(&AMBIGUOUS_BYTES, "a `u8` tensor as an index could mean positions or a mask")
        .operand(index, this_is(ids.describe()))
        .help("write `.to(i64)` for positions, or `.to(bool)` for a mask")
}

/// `max`, `argmax`, `median` of an empty tensor, or along the empty dimension `dim`.
pub fn nothing_to_reduce(name: &str, x: &Tensor, dim: Option<usize>) -> Error {
    let message = match dim {
        Some(dim) => format!("`{name}` needs at least one element, and dimension {dim} has size 0"),
        None => format!("`{name}` needs at least one element"),
    };
    Error::new(&NOTHING_TO_REDUCE, message)
        .operand(0, this_is(x.describe()))
        .help("check `x.numel() > 0` first")
}

/// A shape of another element count, or with a `-1` that is not determined.
pub fn counts_differ(name: &str, x: &Tensor, shape: &[i64]) -> Error {
    let message = format!("`{name}` cannot view {} as shape {shape:?}", counted(x.count(), "element"));
    Error::new(&COUNTS_DIFFER, message)
        .operand(0, this_is(x.describe()))
        .operand(1, "this shape")
        .help("the extents must multiply to the number of elements; one of them may be `-1`")
}

/// Sizes whose product is not the extent of the dimension they replace.
pub fn extents_differ(x: &Tensor, dim: usize, sizes: &[i64]) -> Error {
    let extent = counted(x.shape()[dim], "element");
    Error::new(&COUNTS_DIFFER, format!("`unflatten` cannot split {extent} into shape {sizes:?}"))
        .operand(0, this_is(format!("{}, and dimension {dim} has {extent}", x.describe())))
        .operand(2, "these sizes")
        .help("the sizes must multiply to the extent of the dimension; one of them may be `-1`")
}

/// A view that the strides do not allow.
pub fn cannot_view(x: &Tensor, shape: &[usize]) -> Error {
    let strides = x.layout().strides.as_slice();
    let message = format!("a view of shape {shape:?} needs elements that follow one another in memory");
    Error::new(&CANNOT_VIEW, message)
        .operand(0, this_is(format!("{} with strides {strides:?}", x.describe())))
        .help("write `reshape`, which copies when it must")
}

/// A tensor whose bytes cannot be viewed as elements of another dtype.
pub fn cannot_view_as(x: &Tensor, dtype: Dtype, why: &str) -> Error {
    let strides = x.layout().strides.as_slice();
    Error::new(&CANNOT_VIEW, format!("this tensor cannot be viewed as {dtype}: {why}"))
        .operand(0, this_is(format!("{} with strides {strides:?}", x.describe())))
        .help("copy first: `x.clone().view(dtype)`; to convert the numbers write `x.to(dtype)`")
}

/// Shapes that cannot be multiplied.
pub fn matmul_shapes(name: &str, a: (usize, &Tensor), b: (usize, &Tensor), why: String, help: &str) -> Error {
    Error::new(&MATMUL_SHAPES, format!("`{name}`: {why}"))
        .operand(a.0, this_is(a.1.describe()))
        .operand(b.0, this_is(b.1.describe()))
        .help(help)
}

/// An operand with the wrong number of dimensions.
pub fn wrong_rank(name: &str, index: usize, x: &Tensor, wanted: &str, help: &str) -> Error {
    Error::new(&WRONG_RANK, format!("`{name}` needs {wanted}, not {}", counted(x.rank(), "dimension")))
        .operand(index, this_is(x.describe()))
        .help(help)
}

/// An empty list for `cat` or `stack`.
pub fn nothing_to_join(name: &str) -> Error {
    Error::new(&CANNOT_JOIN, format!("`{name}` needs at least one tensor"))
        .operand(0, "this list is empty")
        .help("test `len(list) > 0` first")
}

/// Shapes that differ outside the joined dimension; `first` and `other` are operands.
pub fn cannot_join(name: &str, first: (usize, &Tensor), other: (usize, &Tensor), dim: usize) -> Error {
    let (a, b) = (first.1.shape().as_slice(), other.1.shape().as_slice());
    let help = match name {
        "cat" | "diff" => format!("shapes may differ only in dimension {dim}"),
        _ => "all shapes must be equal".to_string(),
    };
    Error::new(&CANNOT_JOIN, format!("`{name}` cannot join shapes {a:?} and {b:?}"))
        .operand(first.0, this_is(first.1.describe()))
        .operand(other.0, this_is(other.1.describe()))
        .help(help)
}

/// A constant position outside the dimension. `index` is its argument.
pub fn index_out_of_range(index: usize, position: i64, dim: usize, extent: usize) -> Error {
    let message = format!("index {position} is out of range for dimension {dim} of size {extent}");
    let error = Error::new(&INDEX_OUT_OF_RANGE, message).operand(index, this_is(position.to_string()));
    match extent {
        0 => error.help("a dimension of size 0 has no valid index"),
        n => error.help(format!("valid indices go from 0 to {}, or from -{n} to -1", n - 1)),
    }
}

/// Index tensors into a dimension of extent 0.
pub fn indexes_nothing(name: &str, x: &Tensor) -> Error {
    Error::new(&INDEX_OUT_OF_RANGE, format!("`{name}` selects from a dimension of size 0"))
        .operand(0, this_is(x.describe()))
        .help("a dimension of size 0 has no valid index")
}

/// More indices than dimensions, or a second `...`.
pub fn too_many_indices(x: &Tensor, used: usize) -> Error {
    let (used, rank) = (counted(used, "index"), counted(x.rank(), "dimension"));
    let help = match x.rank() {
        0 => "read its value with `x.item()`".to_string(),
        n => format!("write {n} at most; `none` among the indices adds a dimension"),
    };
    Error::new(&TOO_MANY_INDICES, format!("{used} for a tensor with {rank}"))
        .operand(0, this_is(x.describe()))
        .help(help)
}

/// A second `...`.
pub fn two_ellipses() -> Error {
    Error::new(&TOO_MANY_INDICES, "`...` may appear once among the indices")
        .help("write `..` for one dimension")
}

/// Sizes that do not add up to the extent.
pub fn does_not_add_up(name: &str, x: &Tensor, sizes: &[i64], dim: usize) -> Error {
    let extent = x.shape().get(dim).copied().unwrap_or(1);
    let message = format!("`{name}`: the sizes {sizes:?} do not add up to dimension {dim} of size {extent}");
    Error::new(&DOES_NOT_ADD_UP, message)
        .operand(0, this_is(x.describe()))
        .operand(1, "these sizes")
        .help(format!("write sizes that add up to {extent}"))
}

/// A target shape that the tensor does not broadcast to.
pub fn cannot_expand(name: &str, x: &Tensor, shape: &[i64]) -> Error {
    let message = format!("`{name}` cannot stretch {:?} to {shape:?}", x.shape().as_slice());
    Error::new(&CANNOT_EXPAND, message)
        .operand(0, this_is(x.describe()))
        .operand(1, "this shape")
        .help("extents of 1 can be stretched, others must be equal or `-1`")
}

/// A value that does not broadcast to the selection; `value` includes its operand index.
pub fn value_does_not_fit(value: (usize, &Tensor), x: &Tensor, selected: &[usize]) -> Error {
    let shape = value.1.shape().as_slice();
    Error::new(
        &CANNOT_EXPAND,
        format!("a value of shape {shape:?} does not fit the selected shape {selected:?}"),
    )
    .operand(value.0, this_is(value.1.describe()))
    .operand(0, this_is(x.describe()))
    .help("extents of the value must be equal or 1, counted from the last dimension")
}

/// A mask whose shape differs from the dimensions it covers.
pub fn mask_differs(x: &Tensor, at: usize, mask: (usize, &Tensor)) -> Error {
    let dims = x.shape().get(at..).unwrap_or(&[]);
    let dims = dims.get(..mask.1.rank()).unwrap_or(dims);
    let message = format!("a mask of shape {:?} for dimensions of shape {dims:?}", mask.1.shape().as_slice());
    Error::new(&MASK_DIFFERS, message)
        .operand(0, this_is(x.describe()))
        .operand(mask.0, this_is(mask.1.describe()))
        .help("the mask must have an element for every element it selects from")
}

/// Index tensors that do not broadcast, each with its operand index.
pub fn indices_do_not_broadcast(indices: &[(usize, &Tensor)]) -> Error {
    let shapes: Vec<String> = indices.iter().map(|(_, t)| format!("{:?}", t.shape().as_slice())).collect();
    let message = format!("the shapes of the index tensors do not broadcast: {}", shapes.join(" and "));
    let error = Error::new(&INDICES_DO_NOT_FIT, message)
        .help("to select every combination, write `x[rows][.., columns]`");
    indices.iter().fold(error, |error, (at, t)| error.operand(*at, this_is(t.describe())))
}

/// An index of `gather` or `scatter` whose shape does not fit the tensor.
pub fn index_shape(name: &str, x: (usize, &Tensor), ids: (usize, &Tensor), dim: usize) -> Error {
    let message = format!(
        "`{name}`: an index of shape {:?} does not fit {:?} apart from dimension {dim}",
        ids.1.shape().as_slice(),
        x.1.shape().as_slice()
    );
    Error::new(&INDICES_DO_NOT_FIT, message)
        .operand(x.0, this_is(x.1.describe()))
        .operand(ids.0, this_is(ids.1.describe()))
        .help("both have the same number of dimensions, and the index is not longer in the other ones")
}

/// `item` of several elements.
pub fn not_one_element(x: &Tensor) -> Error {
    Error::new(&NOT_ONE_ELEMENT, format!("`item` needs one element, and this tensor has {}", x.count()))
        .operand(0, this_is(x.describe()))
        .help("write `tolist()`, or select an element first: `x[0]`")
}

/// More than 64 dimensions.
pub fn too_many_dims(count: usize) -> Error {
    Error::new(&TOO_MANY_DIMS, format!("a tensor cannot have {count} dimensions"))
        .help("a tensor has at most 64 dimensions")
}

/// `pin_memory` of a device tensor.
pub fn not_on_host(x: &Tensor) -> Error {
    Error::new(&NOT_ON_HOST, "only dense CPU tensors can be pinned")
        .operand(0, this_is(x.describe()))
        .help("write `x.cpu().pin_memory()`")
}
