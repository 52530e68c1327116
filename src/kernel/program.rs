//! The kinds of kernel programs. Each kind also has a file in `kernel/host`, and a template in `kernels/`
//! with its generator in `kernel/cuda`.

use super::fft::Fft;
use super::map::Map;
use super::rows::Rows;
use crate::array::{Class, Dtype};

/// The structure of a launch, without sizes. Shared and immutable. Executors cache compiled forms under
/// [`Program::key`].
pub struct Program {
    /// The code.
    pub body: Body,
    /// Equal exactly for equal structures.
    pub key: String,
    /// Readable name made of the instructions: `add+mul+sum`.
    pub label: String,
}

/// The kind of a program. Views are numbered as in [`Launch::views`](super::Launch::views).
#[derive(Clone)]
pub enum Body {
    /// Elementwise work over the launch's shape.
    Map(Map),
    /// Elementwise work, then a reduction over the last `Launch::reduced` dimensions.
    Reduce(Reduce),
    /// Rows that are reduced and used again.
    Rows(Rows),
    /// A running combination along the last dimension of the launch's shape.
    Scan(Scan),
    /// `out[i] = source[.., index[i], ..]`.
    Gather(Gather),
    /// `out[.., index[i], ..] = source[i]`; among equal targets the last in row-major order wins.
    Scatter(Scatter),
    /// Sorts rows (the last dimension). Stable; nan is greatest.
    Sort(Sort),
    /// The positions of non-zero elements, ascending.
    /// Views: 0 input (any dtype, contiguous, one dimension), 1 out positions `i64` (as many as elements), 2
    /// out count `i64` (one element).
    NonZero(Dtype),
    /// Insertion positions of values in ascending rows.
    Search(Search),
    /// Batched matrix product.
    Matmul(Matmul),
    /// Concatenates parts of memory as bytes; each part starts at a multiple of [`PART_ALIGN`]. Views: 0..
    /// the parts, the last one the result; contiguous, of any dtypes. A part's only stride is its length in
    /// bytes. Launch shape: the bytes of the result.
    Pack,
    /// Fourier transforms of a batch of signals.
    Fft(Fft),
}

/// The alignment in bytes of parts of a [`Body::Pack`].
pub const PART_ALIGN: u64 = 16;

/// Map and reduce. The map's stores run once per element.
///
/// Shape: kept dimensions first, then `Launch::reduced` reduced ones. The result views have the
/// kept dimensions.
#[derive(Clone)]
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

/// A scan along the last dimension. Views: 0 input, 1 out; same shape, same dtype.
#[derive(Clone)]
pub struct Scan {
    /// Combines two values; its `init` starts each row.
    pub f: &'static ReduceFn,
    /// The dtype of both views.
    pub dtype: Dtype,
}

/// Views: 0 source, 1 index (`i64`, launch shape, broadcast by strides), 2 out (launch shape).
///
/// The source view has the launch's rank. Its stride along `Launch::axis` applies to the index, its other
/// strides to the position (0 where the position is not used). `Launch::limit` is the source's extent along
/// the axis; an index outside `-limit..limit` is a fault.
#[derive(Clone)]
pub struct Gather {
    /// The dtype of source and out.
    pub dtype: Dtype,
}

/// Views: 0 source (launch shape), 1 index (`i64`, launch shape), 2 out (as `Gather`'s source).
#[derive(Clone)]
pub struct Scatter {
    /// The dtype of source and out.
    pub dtype: Dtype,
    /// `Some(f)` combines with the existing value, in row-major order of the source, deterministically.
    pub f: Option<&'static ReduceFn>,
}

/// Views: 0 input, 1 out values, 2 out positions (`i64`). Launch shape: rows.., row length.
#[derive(Clone)]
pub struct Sort {
    /// The dtype of input and values.
    pub dtype: Dtype,
    /// Descending order (nan first).
    pub descending: bool,
}

/// Views: 0 ascending rows, 1 values (launch shape), 2 out (`i64`, launch shape): the number of elements of
/// the row that precede the value. nan is greatest.
///
/// View 0 has the launch's rank. Its stride along `Launch::axis` steps through a row; its other strides step
/// from row to row (0 when all values share one row). `Launch::limit` is the length of a row.
#[derive(Clone)]
pub struct Search {
    /// The dtype of rows and values.
    pub dtype: Dtype,
    /// Whether equal elements precede the value.
    pub right: bool,
}

/// Views: 0 left `[batch.., m, k]`, 1 right `[batch.., k, n]`, 2 out `[batch.., m, n]` (contiguous). Launch
/// shape: `[batch.., m, n, k]`. Batch strides may be 0. Floats accumulate in `f32` (`f64` for `f64`), complex
/// numbers in their own dtype. Integers accumulate in `i64` and wrap.
#[derive(Clone)]
pub struct Matmul {
    /// The dtype of all three views.
    pub dtype: Dtype,
    /// Allows TF32 for `f32` and `c64` on CUDA (`cuda.matmul.allow_tf32`); off by default.
    pub tf32: bool,
}

impl Program {
    /// Makes a program and computes its key.
    pub fn new(body: Body) -> Program {
        let (key, label) = body.describe();
        Program { body, key, label }
    }
}

impl Body {
    fn describe(&self) -> (String, String) {
        match self {
            Body::Map(map) => (format!("map {}", map.key()), map.label()),
            Body::Reduce(r) => {
                let label = match r.map.label() {
                    map if map.is_empty() => r.f.name.to_string(),
                    map => format!("{map}+{}", r.f.name),
                };
                let index = r.out_index.map_or(String::new(), |v| format!(" index v{v}"));
                let value = if r.store_value { format!(" v{}", r.out) } else { String::new() };
                let key =
                    format!("reduce {} {} r{} {}{value}{index}", r.f.name, r.dtype, r.value, r.map.key());
                (key, label)
            }
            Body::Rows(rows) => (rows.key(), rows.label()),
            Body::Scan(s) => (format!("scan {} {}", s.f.name, s.dtype), format!("scan_{}", s.f.name)),
            Body::Gather(g) => (format!("gather {}", g.dtype), "gather".into()),
            Body::Scatter(s) => {
                let f = s.f.map_or("", |f| f.name);
                (format!("scatter {} {f}", s.dtype), format!("scatter_{f}"))
            }
            Body::Sort(s) => (format!("sort {} {}", s.dtype, s.descending), "sort".into()),
            Body::NonZero(dtype) => (format!("nonzero {dtype}"), "nonzero".into()),
            Body::Search(s) => (format!("search {} {}", s.dtype, s.right), "search".into()),
            Body::Matmul(m) => (format!("matmul {} {}", m.dtype, m.tf32), "matmul".into()),
            Body::Pack => ("pack".into(), "pack".into()),
            Body::Fft(f) => (format!("fft {:?} {}", f.spec, f.inverse), "fft".into()),
        }
    }
}

impl Map {
    pub(super) fn key(&self) -> String {
        use std::fmt::Write;
        let mut key = String::with_capacity(16 * (self.sources.len() + self.instrs.len()));
        for source in &self.sources {
            let _ = match source {
                super::Source::Load { view, dtype } => write!(key, "v{view}:{dtype};"),
                super::Source::Number { slot, dtype } => write!(key, "n{slot}:{dtype};"),
                super::Source::Position => write!(key, "pos;"),
            };
        }
        for instr in &self.instrs {
            let _ = write!(key, "{}{:?}{:?}:{};", instr.f.name, instr.args, instr.class, instr.dtype);
        }
        for store in &self.stores {
            let _ = write!(key, "r{}>v{};", store.reg, store.view);
        }
        key
    }

    fn label(&self) -> String {
        let mut label = String::new();
        for (i, instr) in self.instrs.iter().enumerate() {
            if i == 6 {
                label.push_str("+...");
                break;
            }
            if i > 0 {
                label.push('+');
            }
            label.push_str(instr.f.name);
        }
        label
    }
}
