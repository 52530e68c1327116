//! Triangles and diagonals.

use super::composed::{call, ints, t};
use super::folds::SUM;
use super::formula::formula;
use super::gradient::{Back, Var, strided};
use super::make::filled;
use super::params::{DEVICE, DTYPE, X};
use super::select::WHERE;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, complex, dims, error, subscript};
use crate::array::{Dtype, Layout, Scalar};
use crate::base::Result;
use crate::kernel::host::define::host_map;
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::positions::{along_rows, one_value};
use crate::kernel::{CudaText, HostMap, MapFn, Reg, RegMut};
use crate::plan::{Elementwise, MapArg, Reduction, Runtime};
use crate::tensor::Tensor;

const DIAGONAL: Param = Param::or("diagonal", Kind::Int, Default::Int(0));

const TRIANGLE_INDICES: &[Param] = &[
    Param::new("row", Kind::Int),
    Param::new("col", Kind::Int),
    Param::or("offset", Kind::Int, Default::Int(0)),
    DTYPE,
    DEVICE,
];

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
        doc: "Returns the diagonal between two dimensions as the last dimension; `offset` counts from the main one, \
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
        doc: "Sets the main diagonal to `value`: `x.fill_diagonal_(value)`. With more than two dimensions, which \
              must have equal extents, it sets the elements whose positions are equal in all of them. With `wrap`, \
              the diagonal of a matrix with more rows than columns starts again one row below its end. \
              Source: `torch.Tensor.fill_diagonal_`.",
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
        name: "tril_indices",
        doc: "Returns the positions of the lower triangle of a matrix of `row` rows and `col` columns: one row with \
              the row numbers and one with the column numbers. `offset` selects the last diagonal in the triangle. \
              Source: `torch.tril_indices`.",
        search: &["lower triangle", "positions", "pairs"],
        params: TRIANGLE_INDICES,
        form: Form::FUNCTION,
        example: "assert(equal(tril_indices(2, 2), [[0, 1, 1], [0, 0, 1]]))",
        run: Run::Composed(|rt, args| triangle_indices(rt, args, true)),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "triu_indices",
        doc: "Returns the positions of the upper triangle of a matrix of `row` rows and `col` columns: one row with \
              the row numbers and one with the column numbers. `offset` selects the first diagonal in the triangle. \
              Source: `torch.triu_indices`.",
        search: &["upper triangle", "positions", "pairs"],
        params: TRIANGLE_INDICES,
        form: Form::FUNCTION,
        example: "assert(equal(triu_indices(2, 2, 1), [[0], [1]]))",
        run: Run::Composed(|rt, args| triangle_indices(rt, args, false)),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "diag_embed",
        doc: "Returns matrices with the last dimension of `x` on a diagonal and 0 elsewhere. `offset` selects the \
              diagonal: 0 is the main one, positive numbers are above it. `dim1` and `dim2` are the matrix \
              dimensions of the result. Source: `torch.diag_embed`.",
        search: &["diagonal matrix", "batch", "diag"],
        params: &[
            X,
            Param::or("offset", Kind::Int, Default::Int(0)),
            Param::or("dim1", Kind::Int, Default::Int(-2)),
            Param::or("dim2", Kind::Int, Default::Int(-1)),
        ],
        form: Form::BOTH,
        example: "assert(equal(diag_embed([1, 2]), [[1, 0], [0, 2]]))",
        run: Run::Primitive(diag_embed),
        gradient: Gradient::Rule(Keeps::NOTHING, |b| {
            b.to(0, || b.g().call("diagonal", &[b.arg(1), b.arg(2), b.arg(3)]));
        }),
        ..Op::BASE
    },
    Op {
        name: "block_diag",
        doc: "Returns a matrix with the given matrices along its diagonal and 0 elsewhere; vectors are rows. Source: \
              `torch.block_diag`.",
        search: &["block matrix", "direct sum"],
        params: &[Param::rest("tensors", Kind::Tensors)],
        form: Form::FUNCTION,
        example: "assert(equal(block_diag([[1, 2]], [[3]]), [[1, 2, 0], [0, 0, 3]]))",
        run: Run::Composed(block_diag),
        gradient: Gradient::Composed,
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
                let (shape, device) = (b.shape(0), Arg::Device(b.form(0).device));
                let args = [Arg::Int(shape[0]), Arg::Int(shape[1]), Arg::Dtype(Dtype::Bool), device];
                b.select(&b.op("eye", &args), b.g(), 0.0)
            });
        }),
        ..Op::BASE
    },
    Op {
        name: "diag",
        doc: "Makes a matrix with a vector on its diagonal, or returns the diagonal of a matrix. The result is a copy. \
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
        // In row-major order the diagonal has a constant stride, also when it wraps.
        let whole = rt.contiguous(x)?;
        let count = (rows * columns).div_ceil(columns + 1);
        subscript::set(rt, &line(&whole, count, (columns + 1) as isize), &[], value)?;
        return if whole.same(x) { Ok(()) } else { rt.assign(name, x, &whole) };
    }
    let count = x.shape().iter().copied().min().unwrap_or(0);
    subscript::set(rt, &line(x, count, x.layout().strides.iter().sum()), &[], value)
}

/// `count` elements from a tensor's first one, `stride` apart in memory.
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
    host: &|args, mut out| along_diagonals(args, &mut out, 1) || IN_LOWER_EACH(args, out),
    complex: None,
};

/// 1 where position `a` of matrices of `b` rows and `c` columns is on or above diagonal `d`.
static IN_UPPER: MapFn = MapFn {
    name: "in_upper",
    arity: 4,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)((b == 0 || c == 0) ? 0 : a % c - a / c % b >= d)" },
    host: &|args, mut out| along_diagonals(args, &mut out, -1) || IN_UPPER_EACH(args, out),
    complex: None,
};

static IN_LOWER_EACH: HostMap =
    host_map!((a: i64, b: i64, c: i64, d: i64) -> i64: i64::from(above(a, b, c) <= d));
static IN_UPPER_EACH: HostMap =
    host_map!((a: i64, b: i64, c: i64, d: i64) -> i64: i64::from(above(a, b, c) >= d));

/// [`IN_LOWER`] for a `sign` of 1 and [`IN_UPPER`] for -1. Returns false, without a result, for matrices of several sizes.
fn along_diagonals(args: &[Reg<'_>], out: &mut RegMut<'_>, sign: i64) -> bool {
    #[inline(always)]
    fn rows(at: &[i64], [rows, columns, d, sign]: [i64; 4], out: &mut [i64]) {
        along_rows(at, columns, |lanes, row, column| {
            let first = column - row.wrapping_rem(rows);
            for (i, out) in out[lanes].iter_mut().enumerate() {
                *out = i64::from((first + i as i64) * sign <= d.wrapping_mul(sign));
            }
        });
    }
    let ([Reg::I64(at), Reg::I64(height), Reg::I64(width), Reg::I64(d)], RegMut::I64(out)) = (args, out)
    else {
        return false;
    };
    let (Some(height), Some(width), Some(d)) = (one_value(height), one_value(width), one_value(d)) else {
        return false;
    };
    if height < 1 || width < 1 || d == i64::MIN {
        return false;
    }
    let sizes = [height, width, d, sign];
    multiversion!(rows(at: &[i64] = at, sizes: [i64; 4] = sizes, out: &mut [i64] = out));
    true
}

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

/// The positions of a triangle, without waiting for the device: row `i` has `lengths[i]` of them.
fn triangle_indices(rt: &mut Runtime, args: &Args<'_>, lower: bool) -> Result<Out> {
    let (rows, columns, offset) = (args.int(0)?, args.int(1)?, args.int(2)?);
    for (index, extent) in [(0, rows), (1, columns)] {
        if extent < 0 {
            return Err(error::bad_value(index, format!("an extent of {extent}"), "give 0 or more"));
        }
    }
    let dtype = args.dtype(3).unwrap_or(Dtype::I64);
    if !matches!(dtype, Dtype::I64 | Dtype::I32) {
        return Err(error::bad_value(3, format!("positions of dtype {dtype}"), "they are `i64` or `i32`"));
    }
    let offset = offset.clamp(-rows, columns);
    let lower_count = lower_count(rows.into(), columns.into(), i128::from(offset) - i128::from(!lower));
    let total = if lower { lower_count } else { i128::from(rows) * i128::from(columns) - lower_count };
    let Ok(total) = i64::try_from(total) else {
        return Err(error::bad_value(
            0,
            "a triangle with more positions than fit in memory",
            "give smaller extents",
        ));
    };
    let device = args.get(4).clone();
    let range = |n: i64| [Arg::Int(n), Arg::None, Arg::Int(1), Arg::None, device.clone()];
    let found = formula(rt, |f| {
        let row = f.op("arange", &range(rows));
        let limit = [Arg::Int(0), Arg::Int(columns)];
        let (lengths, first) = if lower {
            ((&row + (offset + 1)).call("clamp", &limit), None)
        } else {
            let first = (&row + offset).call("clamp", &limit);
            (&first * -1i64 + columns, Some(first))
        };
        let ends = lengths.call("cumsum", &[Arg::Int(0)]);
        let place = f.op("arange", &range(total));
        let row = f.op("searchsorted", &[ends.arg(), place.arg(), Arg::Bool(false), Arg::Bool(true)]);
        let before = (&ends - &lengths).call("take", &[row.arg()]);
        let column = &place - &before;
        let column = match first {
            Some(first) => column + first.call("take", &[row.arg()]),
            None => column,
        };
        let both = [&row, &column].map(|x| x.get().cloned()).into_iter().flatten().collect();
        f.op("stack", &[Arg::Tensors(both), Arg::Int(0)]).to(dtype)
    });
    found.map(Out::Tensor)
}

/// The number of elements on and below a diagonal.
fn lower_count(rows: i128, columns: i128, offset: i128) -> i128 {
    if rows == 0 || columns == 0 {
        return 0;
    }
    // The rows that have such elements; among them, rows whose length grows from `first` to `last` by one each.
    let first = if offset > 0 { columns.min(1 + offset) } else { i128::from(rows + offset > 0) };
    let last = (rows + offset).clamp(0, columns);
    let growing = last - first + 1;
    let full = (rows + offset).clamp(0, rows) - growing;
    (first + last) * growing / 2 + full.max(0) * columns
}

fn diag_embed(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, offset) = (args.tensor(0)?, args.int(1)?);
    let rank = x.rank() + 1;
    let (a, b) = (dims::one(2, args.int(2)?, rank)?, dims::one(3, args.int(3)?, rank)?);
    if x.rank() == 0 || a == b {
        let help = "give a vector or a batch of them, and two different dimensions";
        return Err(error::wrong_rank("diag_embed", 0, x, "two different dimensions of the result", help));
    }
    let more = i64::try_from(offset.unsigned_abs()).ok().filter(|more| *more < 1 << 40);
    let Some(more) = more else {
        return Err(error::bad_value(
            1,
            format!("offset={offset}"),
            "give a diagonal of a matrix that fits in memory",
        ));
    };
    let n = x.shape()[x.rank() - 1] as i64 + more;
    let device = Arg::Device(x.device());
    let found = formula(rt, |f| {
        let padded = f.var(x).call("pad", &[ints(&[0, more as usize])]);
        let spread = padded.unsqueeze(if offset >= 0 { -1 } else { -2 });
        let place = f.op("arange", &[Arg::Int(n), Arg::None, Arg::Int(1), Arg::None, device.clone()]);
        let on = (place.unsqueeze(0) - place.unsqueeze(1)).eq(offset);
        let zero = if x.dtype() == Dtype::Bool { Arg::Bool(false) } else { Arg::Int(0) };
        f.select(&on, &spread, zero)
    })?;
    let found = call(rt, "contiguous", &[t(&found)])?;
    let ends = [(rank - 2) as i64, (rank - 1) as i64].to_vec();
    let places = vec![a as i64, b as i64];
    call(rt, "movedim", &[t(&found), Arg::Ints(ends), Arg::Ints(places)]).map(Out::Tensor)
}

fn block_diag(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let tensors = args.tensors(0)?;
    if let Some((i, x)) = tensors.iter().enumerate().find(|(_, x)| x.rank() > 2) {
        let help = "give matrices, vectors or numbers";
        return Err(error::wrong_rank("block_diag", i, x, "two dimensions or fewer", help).in_list(0));
    }
    let mut blocks = Vec::with_capacity(tensors.len());
    for x in tensors {
        let [rows, columns] = match x.shape().as_slice() {
            [] => [1, 1],
            [n] => [1, *n],
            shape => [shape[0], shape[1]],
        };
        blocks.push(super::composed::reshape(rt, x, &[rows, columns])?);
    }
    if blocks.is_empty() {
        return Err(error::nothing_to_join("block_diag"));
    }
    let width: usize = blocks.iter().map(|x| x.shape()[1]).sum();
    let mut left = 0;
    for block in &mut blocks {
        let columns = block.shape()[1];
        *block = call(rt, "pad", &[t(block), ints(&[left, width - left - columns])])?;
        left += columns;
    }
    call(rt, "cat", &[Arg::Tensors(blocks), Arg::Int(0)]).map(Out::Tensor)
}
