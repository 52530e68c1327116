//! The kinds of kernel programs. Each kind also has a file in `kernel/host`, and a template in `kernels/`
//! with its generator in `kernel/cuda`.

use super::map::Map;
use crate::array::{Class, Dtype};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};

/// Concatenates parts of memory as bytes; each part starts at a multiple of [`PART_ALIGN`]. Views: 0..
/// the parts, the last one the result; contiguous, of any dtypes. A part's only stride is its length in
/// bytes. Launch shape: the bytes of the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pack;

/// The positions of non-zero elements, ascending.
///
/// Views: 0 input (any dtype, contiguous, one dimension), 1 out positions `i64` (as many as elements), 2 out count
/// `i64` (one element).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NonZero {
    /// The dtype of the elements.
    pub dtype: Dtype,
}

/// The alignment in bytes of parts of a [`Pack`].
pub const PART_ALIGN: u64 = 16;

/// Elementwise work, then a reduction over the last `Launch::reduced` dimensions. The map's stores run once per element.
///
/// Shape: kept dimensions first, then `Launch::reduced` reduced ones. The result views have the
/// kept dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// Computes the value (and may store other registers).
    pub map: Map,
    /// The register to reduce.
    pub value: u16,
    /// The reduction.
    pub f: &'static ReduceFn,
    /// The dtype of the result.
    pub dtype: Dtype,
    /// The view of the result.
    pub out: u16,
    /// For `ReduceFn::indexed`: the view (`i64`) of the position within the reduced dimensions (row-major),
    /// if the position is wanted.
    pub out_index: Option<u16>,
    /// True when the value is stored to `out`; false for `argmax`, which stores only the position.
    pub store_value: bool,
}

/// A reduction, defined as a value by an operation.
///
/// Accumulates in the class of the value: `f32` for the `f32` class (halves too), `i64` for integers.
/// `combine` must be commutative, and associative up to rounding. Executors start with `init` and may combine
/// in any order that depends only on the shape.
pub struct ReduceFn {
    /// Unique among reductions; a valid identifier.
    pub name: &'static str,
    /// True when the element's position takes part (`argmax`). Executors keep (value, position) pairs. They
    /// replace the held pair when `better(new, held)`, or when the values are equal and the new position is
    /// lower. nan beats every number; the first nan wins.
    pub indexed: bool,
    /// Register bits of the neutral element, per class. For indexed reductions, a value that every element
    /// replaces or equals.
    pub init: fn(Class) -> u64,
    /// Combines two accumulators: CUDA C over `a` (held) and `b` (new). For indexed reductions, a condition:
    /// 1 when `b` is better than `a`.
    pub cuda: super::CudaText,
    /// The host code: `host_combine!`, or `host_better!` for indexed reductions.
    pub host: super::host::HostReduce,
    /// Divides the result by the number of reduced elements (`mean`).
    pub mean: bool,
}

/// A running combination along the last dimension. Views: 0 input, 1 out; same shape, same dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scan {
    /// Combines two values; its `init` starts each row.
    pub f: &'static ReduceFn,
    /// The dtype of both views.
    pub dtype: Dtype,
}

/// `out[i] = source[.., index[i], ..]`.
///
/// Views: 0 source, 1 index (`i64`, launch shape, broadcast by strides), 2 out (launch shape).
///
/// The source view has the launch's rank. Its stride along `Launch::axis` applies to the index, its other
/// strides to the position (0 where the position is not used). `Launch::limit` is the source's extent along
/// the axis; an index outside `-limit..limit` is a fault.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gather {
    /// The dtype of source and out.
    pub dtype: Dtype,
}

/// `out[.., index[i], ..] = source[i]`; among equal targets the last in row-major order wins.
///
/// Views: 0 source (launch shape), 1 index (`i64`, launch shape), 2 out (as `Gather`'s source).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    /// The dtype of source and out.
    pub dtype: Dtype,
    /// `Some(f)` combines with the existing value, in row-major order of the source, deterministically.
    pub f: Option<&'static ReduceFn>,
}

/// Sorts rows (the last dimension). Stable; nan is greatest.
///
/// Views: 0 input, 1 out values, 2 out positions (`i64`). Launch shape: rows.., row length.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sort {
    /// The dtype of input and values.
    pub dtype: Dtype,
    /// Descending order (nan first).
    pub descending: bool,
}

/// Insertion positions of values in ascending rows.
///
/// Views: 0 ascending rows, 1 values (launch shape), 2 out (`i64`, launch shape): the number of elements of
/// the row that precede the value. nan is greatest.
///
/// View 0 has the launch's rank. Its stride along `Launch::axis` steps through a row; its other strides step
/// from row to row (0 when all values share one row). `Launch::limit` is the length of a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Search {
    /// The dtype of rows and values.
    pub dtype: Dtype,
    /// Whether equal elements precede the value.
    pub right: bool,
}

/// A batched matrix product.
///
/// Views: 0 left `[batch.., m, k]`, 1 right `[batch.., k, n]`, 2 out `[batch.., m, n]` (contiguous). Launch
/// shape: `[batch.., m, n, k]`. Batch strides may be 0. Floats accumulate in `f32` (`f64` for `f64`), complex
/// numbers in their own dtype. Integers accumulate in `i64` and wrap.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matmul {
    /// The dtype of all three views.
    pub dtype: Dtype,
    /// Allows TF32 for `f32` and `c64` on CUDA (`cuda.matmul.allow_tf32`); off by default.
    pub tf32: bool,
}

impl PartialEq for ReduceFn {
    fn eq(&self, other: &ReduceFn) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ReduceFn {}

impl Hash for ReduceFn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

impl Debug for ReduceFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
