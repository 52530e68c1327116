//! Triangles and diagonals.

use super::folds::SUM;
use super::gradient::{Back, Var, strided};
use super::make::filled;
use super::params::X;
use super::select::WHERE;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, complex, dims, error, subscript};
use crate::array::{Dtype, Layout, Scalar};
use crate::base::Result;
use crate::kernel::host::define::host_map;
use crate::kernel::{CudaText, MapFn};
use crate::plan::{Elementwise, MapArg, Reduction, Runtime};
use crate::tensor::Tensor;

const DIAGONAL: Param = Param::or("diagonal", Kind::Int, Default::Int(0));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "tril",
        doc: "Keeps the lower triangle of a matrix (or of each matrix of a batch) and writes 0 elsewhere; \
              `diagonal` says which diagonal is the last kept: 0 the main one, positive above. \
              Source: `torch.tril`.",
        search: &["lower triangle", "causal mask", "triangular"],
        params: &[X, DIAGONAL],
        form: Form::ALL,
        example: "assert(equal(tril(ones(2, 2)), [[1.0, 0.0], [1.0, 1.0]]))",
        run: Run::Primitive(|rt, args| triangle(rt, "tril", &IN_LOWER, args)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().call("tril", &[b.arg(1)]))),
        ..Op::BASE
    },
    Op {
        name: "triu",
        doc: "Keeps the upper triangle of a matrix (or of each matrix of a batch) and writes 0 elsewhere; \
              `diagonal` says which diagonal is the first kept. Source: `torch.triu`.",
        search: &["upper triangle", "causal mask", "triangular"],
        params: &[X, DIAGONAL],
        form: Form::ALL,
        example: "assert(equal(triu(ones(2, 2), 1), [[0.0, 1.0], [0.0, 0.0]]))",
        run: Run::Primitive(|rt, args| triangle(rt, "triu", &IN_UPPER, args)),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.g().call("triu", &[b.arg(1)]))),
        ..Op::BASE
    },
    Op {
        name: "diagonal",
        doc: "Gives the diagonal between two dimensions as the last dimension; `offset` counts from the main one, \
              positive above. A view. Source: `torch.diagonal`.",
        search: &["trace", "main diagonal"],
        params: &[
            X,
            Param::or("offset", Kind::Int, Default::Int(0)),
            Param::or("dim1", Kind::Int, Default::Int(0)),
            Param::or("dim2", Kind::Int, Default::Int(1)),
        ],
        form: Form::BOTH,
        example: "assert(equal(tensor([[1, 2], [3, 4]]).diagonal(), [1, 4]))",
        run: Run::Primitive(|_, args| {
            let x = args.tensor(0)?;
            let (a, b) = (dims::one(2, args.int(2)?, x.rank())?, dims::one(3, args.int(3)?, x.rank())?);
            if x.rank() < 2 || a == b {
                let help = "name two dimensions of a matrix or batch";
                return Err(error::wrong_rank("diagonal", 0, x, "two different dimensions", help));
            }
            Ok(Out::Tensor(diagonal_of(x, args.int(1)?, a, b)))
        }),
        gradient: Gradient::View,
        ..Op::BASE
    },
    Op {
        name: "fill_diagonal",
        doc: "Sets the main diagonal to `value`: `x.fill_diagonal_(value)`. Above two dimensions, which must have one extent, it \
              is that of all of them. With `wrap` the diagonal of a matrix with more rows than columns begins again, one row \
              after it has ended. Source: `torch.Tensor.fill_diagonal_`.",
        search: &["diagonal", "set", "identity", "fill_diagonal_"],
        params: &[X, Param::new("value", Kind::Number), Param::or("wrap", Kind::Bool, Default::Bool(false))],
        form: Form { function: false, method: false, in_place: true },
        example: "let x = zeros(2, 3)\nx.fill_diagonal_(5)\nassert(equal(x, [[5.0, 0.0, 0.0], [0.0, 5.0, 0.0]]))",
        run: Run::Both(
            |rt, args| {
                let out = rt.contiguous_copy(args.tensor(0)?)?;
                fill_diagonal(rt, "fill_diagonal", &out, args)?;
                Ok(Out::Tensor(out))
            },
            |rt, name, args| fill_diagonal(rt, name, args.tensor(0)?, args),
        ),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().call("fill_diagonal", &[Arg::Int(0), b.arg(2)]));
        }),
        ..Op::BASE
    },
    Op {
        name: "trace",
        doc: "Adds the elements of a matrix's diagonal. Integers give `i64`. Source: `torch.trace`.",
        search: &["diagonal", "sum"],
        params: &[X],
        form: Form::BOTH,
        example: "assert(trace([[1, 2], [3, 4]]).item() == 5)",
        run: Run::Primitive(|rt, args| {
            let x = args.tensor(0)?;
            if x.rank() != 2 {
                return Err(error::wrong_rank("trace", 0, x, "a matrix", "write `x.diagonal().sum(-1)`"));
            }
            let diagonal = diagonal_of(x, 0, 0, 1);
            if x.dtype().is_complex() {
                return complex::by_parts(rt, &diagonal, None, |rt, parts| {
                    rt.reduce(parts, Reduction::new("trace", &SUM, &[0], parts.dtype(), parts.dtype()))
                });
            }
            let dtype = if x.dtype().is_float() { x.dtype() } else { Dtype::I64 };
            rt.reduce(&diagonal, Reduction::new("trace", &SUM, &[0], x.dtype(), dtype)).map(Out::Tensor)
        }),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || {
                let (shape, form) = (b.shape(0), b.form(0));
                let extents = [Arg::Int(shape[0]), Arg::Int(shape[1])];
                b.g()
                    * b.op(
                        "eye",
                        &[&extents[..], &[Arg::Dtype(form.dtype), Arg::Device(form.device)]].concat(),
                    )
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "diag",
        doc: "Makes a matrix with a vector on its diagonal, or gives the diagonal of a matrix. A copy. \
              Source: `torch.diag`.",
        search: &["diagonal matrix", "eye"],
        params: &[X, DIAGONAL],
        form: Form::BOTH,
        example: "assert(equal(diag([1, 2]), [[1, 0], [0, 2]]))\nassert(equal(diag([[1, 2], [3, 4]]), [1, 4]))",
        run: Run::Primitive(diag),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || diag_back(b))),
        ..Op::BASE
    },
];

/// Writes a number into the main diagonal of a tensor.
fn fill_diagonal(rt: &mut Runtime, name: &'static str, x: &Tensor, args: &Args<'_>) -> Result<()> {
    let value = args.operand(1)?;
    let [rows, columns, ..] = x.shape()[..] else {
        return Err(error::wrong_rank("fill_diagonal_", 0, x, "a matrix", "a vector has no diagonal"));
    };
    if x.rank() > 2 && x.shape().iter().any(|&extent| extent != rows) {
        let help = "all dimensions must have one extent; of a batch of matrices use `x.diagonal(0, -2, -1).fill_(value)`";
        return Err(error::wrong_rank("fill_diagonal_", 0, x, "a matrix or a cube", help));
    }
    if args.flag(2) && x.rank() == 2 && rows > columns + 1 && columns > 0 {
        // In row-major order the diagonal goes on in even steps.
        let whole = rt.contiguous(x)?;
        let count = (rows * columns).div_ceil(columns + 1);
        subscript::set(rt, &line(&whole, count, (columns + 1) as isize), &[], value)?;
        return if whole.same(x) { Ok(()) } else { rt.assign(name, x, &whole) };
    }
    let count = x.shape().iter().copied().min().unwrap_or(0);
    subscript::set(rt, &line(x, count, x.layout().strides.iter().sum()), &[], value)
}

/// Every so many elements of the memory from a tensor's first one.
fn line(x: &Tensor, count: usize, stride: isize) -> Tensor {
    let mut layout = Layout::contiguous(&[count]);
    layout.strides[0] = stride;
    x.with_layout(Layout { offset: x.layout().offset, ..layout })
}

/// 1 where position `a` of matrices of `b` rows and `c` columns is on or below diagonal `d`.
static IN_LOWER: MapFn = MapFn {
    name: "in_lower",
    arity: 4,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)((b == 0 || c == 0) ? 0 : a % c - a / c % b <= d)" },
    host: host_map!((a: i64, b: i64, c: i64, d: i64) -> i64: i64::from(above(a, b, c) <= d)),
    complex: None,
};

/// 1 where position `a` of matrices of `b` rows and `c` columns is on or above diagonal `d`.
static IN_UPPER: MapFn = MapFn {
    name: "in_upper",
    arity: 4,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)((b == 0 || c == 0) ? 0 : a % c - a / c % b >= d)" },
    host: host_map!((a: i64, b: i64, c: i64, d: i64) -> i64: i64::from(above(a, b, c) >= d)),
    complex: None,
};

/// The diagonal of a position: its column minus its row.
#[inline(always)]
fn above(at: i64, rows: i64, columns: i64) -> i64 {
    if rows == 0 || columns == 0 {
        return 0;
    }
    at.wrapping_rem(columns) - at.wrapping_div(columns).wrapping_rem(rows)
}

fn triangle(rt: &mut Runtime, name: &'static str, test: &'static MapFn, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let [.., rows, columns] = x.shape().as_slice() else {
        return Err(error::wrong_rank(name, 0, x, "at least 2 dimensions", "add one: `x.unsqueeze(0)`"));
    };
    let number = |n: i64| MapArg::Number(Scalar::Int(n));
    let place = [MapArg::Position, number(*rows as i64), number(*columns as i64), number(args.int(1)?)];
    let inside = rt.map_over(
        Elementwise::new(name, test, &place, Dtype::I64, Dtype::Bool),
        x.shape().clone(),
        x.device(),
    )?;
    let operands = [MapArg::Tensor(&inside), MapArg::Tensor(x), number(0)];
    let (choose, _) = complex::over(name, &WHERE, x.dtype())?;
    rt.map(name, choose, &operands, x.dtype(), x.dtype()).map(Out::Tensor)
}

/// The diagonal between two different dimensions, as the last dimension of a view.
fn diagonal_of(x: &Tensor, offset: i64, a: usize, b: usize) -> Tensor {
    x.with_layout(diagonal_layout(x.layout().clone(), offset, a, b))
}

fn diagonal_layout(mut layout: Layout, offset: i64, a: usize, b: usize) -> Layout {
    let (rows, columns) = (layout.shape[a], layout.shape[b]);
    let (down, right) = (layout.strides[a], layout.strides[b]);
    let skipped = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let (length, start) = match offset >= 0 {
        true => (rows.min(columns.saturating_sub(skipped)), right),
        false => (columns.min(rows.saturating_sub(skipped)), down),
    };
    if length > 0 {
        layout.offset += skipped * start as usize;
    }
    for d in [a.max(b), a.min(b)] {
        layout.shape.remove(d);
        layout.strides.remove(d);
    }
    layout.shape.push(length);
    layout.strides.push(down + right);
    layout
}

fn diag_back<'a>(b: &'a Back<'_>) -> Var<'a> {
    let form = b.form(0);
    if form.shape.len() == 1 {
        return b.g().call("diagonal", &[b.arg(1)]);
    }
    let whole = Layout::contiguous(&form.shape);
    let part = diagonal_layout(whole.clone(), b.args().opt_int(1).unwrap_or(0), 0, 1);
    b.call(&strided::MOVE, &[b.g().arg(), strided::encoded(&part), strided::encoded(&whole)])
}

fn diag(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let offset = args.int(1)?;
    match x.rank() {
        2 => rt.contiguous_copy(&diagonal_of(x, offset, 0, 1)).map(Out::Tensor),
        1 => {
            let extra = i64::try_from(offset.unsigned_abs()).unwrap_or(i64::MAX);
            let side = (x.count() as i64).saturating_add(extra);
            let shape = error::shape(1, &[side, side])?;
            let out = filled(rt, &shape, x.dtype(), x.device(), Scalar::Int(0))?;
            rt.assign("diag", &diagonal_of(&out, offset, 0, 1), x)?;
            Ok(Out::Tensor(out))
        }
        _ => Err(error::wrong_rank("diag", 0, x, "a vector or a matrix", "`diagonal` takes batches")),
    }
}
