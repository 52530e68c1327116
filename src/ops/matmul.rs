//! Matrix products.
//!
//! Operands have the same dtype and device; transposed ones are passed by strides, without a copy. Floats
//! accumulate in `f32` (`f64` for `f64`), integers in `i64`, wrapping. A product over an empty dimension is 0.

use super::arith::{ADD, MUL};
use super::composed::{call, narrow, permute, reshape};
use super::folds::SUM;
use super::gradient::{Back, Var, rules};
use super::known;
use super::params::X;
use super::shape::swapped;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, complex, error, make};
use crate::array::{Dims, Dtype, Layout, Scalar, broadcast};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::host::define::host_quaternary;
use crate::kernel::{CudaText, MapFn, Matmul};
use crate::plan::{MapArg, Reduction, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::smallvec;

const PAIR: &[Param] = &[X, Param::new("other", Kind::Tensor)];

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "matmul",
        doc: "Multiplies matrices: `a @ b`. Vectors count as a row on the left and a column on the right, and \
              that dimension is dropped from the result; dimensions in front of the last two are batches and \
              broadcast. Both operands have one dtype. Source: `torch.matmul`.",
        search: &["@", "matrix product", "multiply", "dot", "gemm", "linear"],
        params: PAIR,
        form: Form::BOTH,
        example: "let a = tensor([[1.0, 2.0], [3.0, 4.0]])\n\
                  assert(equal(a @ a, [[7.0, 10.0], [15.0, 22.0]]))\n\
                  assert(equal(a @ tensor([1.0, 1.0]), [3.0, 7.0]))\n\
                  assert((zeros(5, 1, 2, 3) @ zeros(4, 3, 6)).shape == (5, 4, 2, 6))",
        run: Run::Primitive(matmul),
        shape: known::MATMUL,
        gradient: Gradient::Rule(Keeps::OTHER, product_back),
        ..Op::BASE
    },
    Op {
        name: "mm",
        doc: "Multiplies two matrices; `matmul` also takes vectors and batches. Source: `torch.mm`.",
        search: &["matrix product", "gemm"],
        params: PAIR,
        form: Form::BOTH,
        example: "assert(equal(mm([[1, 2]], [[3], [4]]), [[11]]))",
        run: Run::Primitive(mm),
        shape: known::MATMUL,
        gradient: Gradient::Rule(Keeps::OTHER, product_back),
        ..Op::BASE
    },
    Op {
        name: "bmm",
        doc: "Multiplies a batch of matrices by a batch of matrices, both of 3 dimensions. Source: `torch.bmm`.",
        search: &["batched matrix product", "batch"],
        params: PAIR,
        form: Form::BOTH,
        example: "assert(bmm(ones(7, 2, 3), ones(7, 3, 4)).shape == (7, 2, 4))",
        run: Run::Primitive(bmm),
        gradient: Gradient::Rule(Keeps::OTHER, product_back),
        ..Op::BASE
    },
    Op {
        name: "mv",
        doc: "Multiplies a matrix by a vector. Source: `torch.mv`.",
        search: &["matrix vector product"],
        params: PAIR,
        form: Form::BOTH,
        example: "assert(equal(mv([[1, 2], [3, 4]], [1, 1]), [3, 7]))",
        run: Run::Primitive(mv),
        gradient: Gradient::Rule(Keeps::OTHER, product_back),
        ..Op::BASE
    },
    Op {
        name: "dot",
        doc: "Returns the inner product of two vectors of one length. Source: `torch.dot`.",
        search: &["inner product", "scalar product"],
        params: PAIR,
        form: Form::BOTH,
        example: "assert(dot([1, 2, 3], [4, 5, 6]).item() == 32)",
        run: Run::Primitive(dot),
        gradient: Gradient::Rule(Keeps::OTHER, product_back),
        ..Op::BASE
    },
    Op {
        name: "outer",
        aliases: &["ger"],
        doc: "Returns all products of an element of one vector with an element of another. Source: `torch.outer`.",
        search: &["outer product", "ger"],
        params: PAIR,
        form: Form::BOTH,
        example: "assert(equal(outer([1, 2], [3, 4]), [[3, 4], [6, 8]]))",
        run: Run::Primitive(outer),
        gradient: Gradient::Rule(Keeps::OTHER, |b| {
            b.to(0, || b.g().matmul(&b.x(1).to(b.g().dtype()).conj()));
            b.to(1, || b.g().mt().matmul(&b.x(0).to(b.g().dtype()).conj()));
        }),
        ..Op::BASE
    },
    Op {
        name: "addmm",
        doc: "Returns `beta * x + alpha * (mat1 @ mat2)`; `x` broadcasts. With `beta=0`, `x` is not read; \
              with `alpha=0`, nans of the product have no effect. Source: `torch.addmm`.",
        search: &["linear", "bias", "gemm", "affine"],
        params: &[
            X,
            Param::new("mat1", Kind::Tensor),
            Param::new("mat2", Kind::Tensor),
            Param::named("beta", Kind::TensorOrNumber, Default::Int(1)),
            Param::named("alpha", Kind::TensorOrNumber, Default::Int(1)),
        ],
        form: Form::ALL,
        example: "assert(equal(addmm([10, 20], [[1, 2]], [[3, 4], [5, 6]]), [[23, 36]]))",
        run: Run::Primitive(addmm),
        gradient: Gradient::Rule(ADDED, added_back),
        ..Op::BASE
    },
    Op {
        name: "linear",
        doc: "Returns `x @ weight.t() + bias`: a layer whose weight has the shape `[out, in]`. `bias` may be none. \
              Source: `torch.nn.functional.linear`.",
        search: &["dense", "layer", "affine", "fully connected"],
        params: &[X, Param::new("weight", Kind::Tensor), Param::or("bias", Kind::Tensor, Default::None)],
        form: Form::BOTH,
        example: "assert(equal(linear([[1, 2]], [[3, 4], [5, 6]], [10, 20]), [[21, 37]]))",
        run: Run::Primitive(linear),
        gradient: Gradient::Rule(Keeps::XY.when(|_, kept, param| kept + param == 1), linear_back),
        ..Op::BASE
    },
    Op {
        name: "baddbmm",
        doc: "Returns `beta * x + alpha * bmm(batch1, batch2)`; `x` broadcasts. Source: `torch.baddbmm`.",
        search: &["batched", "attention", "bias"],
        params: &[
            X,
            Param::new("batch1", Kind::Tensor),
            Param::new("batch2", Kind::Tensor),
            Param::named("beta", Kind::TensorOrNumber, Default::Int(1)),
            Param::named("alpha", Kind::TensorOrNumber, Default::Int(1)),
        ],
        form: Form::ALL,
        example: "assert(baddbmm(zeros(1), ones(2, 3, 4), ones(2, 4, 5)).shape == (2, 3, 5))",
        run: Run::Primitive(baddbmm),
        gradient: Gradient::Rule(ADDED, added_back),
        ..Op::BASE
    },
    Op {
        name: "addbmm",
        doc: "Returns `beta * x + alpha * bmm(batch1, batch2).sum(0)`, computed as one product; `x` broadcasts. \
              Source: `torch.addbmm`.",
        search: &["batched", "sum", "product"],
        params: &[
            X,
            Param::new("batch1", Kind::Tensor),
            Param::new("batch2", Kind::Tensor),
            Param::named("beta", Kind::TensorOrNumber, Default::Int(1)),
            Param::named("alpha", Kind::TensorOrNumber, Default::Int(1)),
        ],
        form: Form::ALL,
        example: "assert(equal(addbmm([[10, 20]], [[[1]], [[2]]], [[[3, 4]], [[5, 6]]]), [[23, 36]]))",
        run: Run::Composed(addbmm),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

/// `a * c + b * d`, rounded after each step.
static COMBINED: MapFn = MapFn {
    name: "combined",
    arity: 4,
    select: false,
    cuda: CudaText {
        f32: "(a * c + b * d)",
        f64: "(a * c + b * d)",
        i64: "(i64)((u64)a * (u64)c + (u64)b * (u64)d)",
    },
    host: host_quaternary!(
        float: |a, b, c, d| a * c + b * d,
        i64: |a, b, c, d| a.wrapping_mul(c).wrapping_add(b.wrapping_mul(d)),
    ),
    complex: Some(&complex::COMBINED),
};

/// An operand and its argument index.
type Operand<'a> = (usize, &'a Tensor);

fn pair<'a>(args: &Args<'a>) -> Result<(Operand<'a>, Operand<'a>)> {
    Ok(((0, args.tensor(0)?), (1, args.tensor(1)?)))
}

fn matmul(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (a, b) = pair(args)?;
    product(rt, "matmul", a, b).map(Out::Tensor)
}

fn mm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (a, b) = pair(args)?;
    ranked(rt, "mm", (a, 2), (b, 2)).map(Out::Tensor)
}

fn bmm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (a, b) = pair(args)?;
    batched(rt, "bmm", a, b).map(Out::Tensor)
}

fn mv(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (a, b) = pair(args)?;
    ranked(rt, "mv", (a, 2), (b, 1)).map(Out::Tensor)
}

fn dot(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (a, b) = pair(args)?;
    ranked(rt, "dot", (a, 1), (b, 1)).map(Out::Tensor)
}

fn outer(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (a, b) = pair(args)?;
    rt.common_device("outer", [a.1, b.1])?;
    check_rank("outer", a, 1)?;
    check_rank("outer", b, 1)?;
    let column = with_dim(a.1, 1);
    let op = MapOp { f: &MUL, rule: Rule::Promote };
    super::map(rt, "outer", &op, &[MapArg::Tensor(&column), MapArg::Tensor(b.1)]).map(Out::Tensor)
}

fn addmm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    added(rt, "addmm", args, |a, b| check_rank("addmm", a, 2).and_then(|()| check_rank("addmm", b, 2)))
}

fn baddbmm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    added(rt, "baddbmm", args, |a, b| check_batches("baddbmm", a, b))
}

/// The products of a batch are summed by one product of longer rows and columns.
fn addbmm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, a, b) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    rt.common_device("addbmm", [x, a, b])?;
    check_batches("addbmm", (1, a), (2, b))?;
    let (count, rows, inner) = (a.shape()[0], a.shape()[1], a.shape()[2]);
    if inner != b.shape()[1] {
        let why = format!("the matrices have {inner} columns and {} rows", b.shape()[1]);
        return Err(error::matmul_shapes("addbmm", (1, a), (2, b), why, "they must be equal"));
    }
    if x.dtype() != a.dtype() || a.dtype() != b.dtype() {
        let other = if x.dtype() != a.dtype() { (1, a) } else { (2, b) };
        return Err(error::dtypes_differ("addbmm", (0, x), other));
    }
    let columns = b.shape()[2];
    let a = permute(rt, a, &[1, 0, 2])?;
    let a = reshape(rt, &a, &[rows, count * inner])?;
    let b = reshape(rt, b, &[count * inner, columns])?;
    let factors = [args.get(3).clone(), args.get(4).clone()];
    call(rt, "addmm", &[&[Arg::Tensor(x.clone()), Arg::Tensor(a), Arg::Tensor(b)], &factors[..]].concat())
        .map(Out::Tensor)
}

fn linear(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, weight) = pair(args)?;
    let bias = args.opt_tensor(2);
    rt.common_device("linear", [x.1, weight.1].into_iter().chain(bias))?;
    if !(1..=2).contains(&weight.1.rank()) {
        return Err(error::wrong_rank("linear", 1, weight.1, "a matrix", "its shape is `[out, in]`"));
    }
    let turned = match weight.1.rank() {
        2 => swapped(weight.1, 0, 1),
        _ => weight.1.clone(),
    };
    if x.1.rank() > 0 && x.1.shape().last() != weight.1.shape().last() {
        let why = "the last dimensions of the operands differ".to_string();
        return Err(error::matmul_shapes("linear", x, weight, why, "the weight has the shape `[out, in]`"));
    }
    let product = product(rt, "linear", x, (1, &turned))?;
    let Some(bias) = bias else { return Ok(Out::Tensor(product)) };
    if bias.dtype() != product.dtype() {
        return Err(error::dtypes_differ("linear", x, (2, bias)));
    }
    let op = MapOp { f: &ADD, rule: Rule::Promote };
    super::map(rt, "linear", &op, &[MapArg::Tensor(&product), MapArg::Tensor(bias)]).map(Out::Tensor)
}

/// A factor: a number, or a complex number as a tensor without dimensions.
fn factor<'a>(rt: &mut Runtime, args: &Args<'a>, index: usize, dtype: Dtype) -> Result<MapArg<'a>> {
    match args.operand(index)? {
        MapArg::Tensor(value) if value.rank() > 0 || value.dtype().is_complex() && !dtype.is_complex() => {
            let help = "complex factors are for complex tensors";
            Err(error::wrong_tensor(index, "a number", value, help))
        }
        MapArg::Tensor(value) if !value.dtype().is_complex() => rt.item(value).map(MapArg::Number),
        value => Ok(value),
    }
}

/// `beta * x + alpha * product`, rounded once for halves; `check` checks the shapes of the factors.
fn added(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    check: impl Fn(Operand<'_>, Operand<'_>) -> Result<()>,
) -> Result<Out> {
    let (x, a, b) = (args.tensor(0)?, (1, args.tensor(1)?), (2, args.tensor(2)?));
    rt.common_device(name, [x, a.1, b.1])?;
    if x.dtype() != a.1.dtype() {
        return Err(error::dtypes_differ(name, (0, x), a));
    }
    check(a, b)?;
    let dtype = x.dtype();
    let product = product_in(rt, name, (a, b), if dtype.is_half() { dtype.accumulator() } else { dtype })?;
    if x.layout().broadcast_to(product.shape()).is_none() {
        let shape: Vec<i64> = product.shape().iter().map(|&n| n as i64).collect();
        return Err(error::cannot_expand(name, x, &shape).without_operands());
    }
    let compute = product.dtype();
    let (beta, alpha) = (factor(rt, args, 3, dtype)?, factor(rt, args, 4, dtype)?);
    let product = match alpha {
        // A product that counts nothing must not pass on its nans.
        MapArg::Number(zero) if zero.as_f64() == 0.0 => call(rt, "zeros_like", &[Arg::Tensor(product)])?,
        _ => product,
    };
    if let MapArg::Number(zero) = beta
        && zero.as_f64() == 0.0
    {
        let operands = [MapArg::Tensor(&product), alpha];
        let (f, _) = complex::over(name, &MUL, dtype)?;
        return rt.map(name, f, &operands, compute, dtype).map(Out::Tensor);
    }
    let operands = [MapArg::Tensor(x), MapArg::Tensor(&product), beta, alpha];
    let (f, _) = complex::over(name, &COMBINED, dtype)?;
    rt.map(name, f, &operands, compute, dtype).map(Out::Tensor)
}

fn check_rank(name: &str, x: Operand<'_>, rank: usize) -> Result<()> {
    if x.1.rank() == rank {
        return Ok(());
    }
    let wanted = match rank {
        1 => "a vector (1 dimension)",
        2 => "a matrix (2 dimensions)",
        _ => "a batch of matrices (3 dimensions)",
    };
    Err(error::wrong_rank(name, x.0, x.1, wanted, "`matmul`, or `@`, takes any number of dimensions"))
}

fn ranked(
    rt: &mut Runtime,
    name: &'static str,
    (a, rank_a): (Operand<'_>, usize),
    (b, rank_b): (Operand<'_>, usize),
) -> Result<Tensor> {
    rt.common_device(name, [a.1, b.1])?;
    check_rank(name, a, rank_a)?;
    check_rank(name, b, rank_b)?;
    product(rt, name, a, b)
}

fn batched(rt: &mut Runtime, name: &'static str, a: Operand<'_>, b: Operand<'_>) -> Result<Tensor> {
    rt.common_device(name, [a.1, b.1])?;
    check_batches(name, a, b)?;
    product(rt, name, a, b)
}

fn check_batches(name: &'static str, a: Operand<'_>, b: Operand<'_>) -> Result<()> {
    check_rank(name, a, 3)?;
    check_rank(name, b, 3)?;
    let (one, two) = (a.1.shape()[0], b.1.shape()[0]);
    if one != two {
        let why = format!("the batches have {one} and {two} matrices");
        return Err(error::matmul_shapes(name, a, b, why, "`matmul`, or `@`, broadcasts batches"));
    }
    Ok(())
}

/// The tensor with a new dimension of extent 1.
fn with_dim(x: &Tensor, at: usize) -> Tensor {
    let mut layout = x.layout().clone();
    layout.shape.insert(at, 1);
    layout.strides.insert(at, 1);
    x.with_layout(layout)
}

/// The product of operands of rank 1 or more.
pub(super) fn product(
    rt: &mut Runtime,
    name: &'static str,
    a: Operand<'_>,
    b: Operand<'_>,
) -> Result<Tensor> {
    product_in(rt, name, (a, b), a.1.dtype())
}

/// [`product`] with a result of `out_dtype`: that of the operands, or `f32` for halves, whose sums are then not rounded.
pub(super) fn product_in(
    rt: &mut Runtime,
    name: &'static str,
    (a, b): (Operand<'_>, Operand<'_>),
    out_dtype: Dtype,
) -> Result<Tensor> {
    let device = rt.common_device(name, [a.1, b.1]);
    // Errors refer to the operands by their argument indices.
    let device = match device {
        Err(_) => return Err(crate::plan::error::devices_differ(name, a, b)),
        Ok(device) => device,
    };
    for x in [a, b] {
        if x.1.rank() == 0 {
            let help = "to scale a tensor by a number, write `*`";
            return Err(error::wrong_rank(name, x.0, x.1, "at least 1 dimension", help));
        }
    }
    let dtype = a.1.dtype();
    if dtype != b.1.dtype() {
        return Err(error::dtypes_differ(name, a, b));
    }
    if dtype == Dtype::Bool {
        let operands = [MapArg::Tensor(a.1), MapArg::Tensor(b.1)];
        return Err(error::not_for_dtype(name, dtype, &operands).reorder(&[a.0, b.0]));
    }
    let (row, column) = (a.1.rank() == 1, b.1.rank() == 1);
    let left = if row { with_dim(a.1, 0) } else { a.1.clone() };
    let right = if column { with_dim(b.1, 1) } else { b.1.clone() };
    let (batch_a, [m, k]) = split_shape(&left);
    let (batch_b, [inner, n]) = split_shape(&right);
    if k != inner {
        let why = format!("the inner dimensions differ: {k} on the left, {inner} on the right");
        let needed = format!("{k} columns on the left need {k} rows on the right");
        let help = match (column, n == k, m == inner) {
            (false, true, _) => "transpose the right operand: `.t()`, or `.transpose(-2, -1)` of a batch",
            (_, _, true) if !row => "transpose the left operand: `.t()`, or `.transpose(-2, -1)` of a batch",
            _ => &needed,
        };
        return Err(error::matmul_shapes(name, a, b, why, help));
    }
    let Some(batch) = broadcast(batch_a, batch_b) else {
        let why = format!("the batch dimensions {batch_a:?} and {batch_b:?} do not broadcast");
        return Err(error::matmul_shapes(name, a, b, why, "batch extents must be equal or 1"));
    };
    let with = |extents: [usize; 2]| {
        let mut dims: Dims = batch.clone();
        dims.extend_from_slice(&extents);
        dims
    };
    let shape = with([m, n]);
    let mut visible = batch.clone();
    visible.extend((!row).then_some(m));
    visible.extend((!column).then_some(n));
    crate::array::element_count(&shape)
        .and_then(|count| count.checked_mul(8))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or_else(|| {
            error::matmul_shapes(name, a, b, "the result has too many elements".into(), "multiply parts")
        })?;
    if shape.contains(&0) {
        return rt.empty(&visible, out_dtype, device);
    }
    if k == 0 {
        return make::filled(rt, &visible, out_dtype, device, Scalar::Int(0));
    }
    if row && column && !dtype.is_complex() {
        // A sum joins the work before and after it; a product would not.
        let inner = if dtype.is_half() { dtype.accumulator() } else { dtype };
        let products = rt.map(name, &MUL, &[MapArg::Tensor(a.1), MapArg::Tensor(b.1)], inner, inner)?;
        return rt.reduce(&products, Reduction::new(name, &SUM, &[0], inner, out_dtype));
    }
    if k == 1 {
        // A product of single elements is not a sum. So it joins the work before and after it.
        let (f, _) = complex::over(name, &MUL, dtype)?;
        let factors = [MapArg::Tensor(&left), MapArg::Tensor(&right)];
        let out = rt.map(name, f, &factors, out_dtype, out_dtype)?;
        return Ok(make::in_shape(out, &visible));
    }
    let batches = batch.iter().fold(1usize, |all, &extent| all.saturating_mul(extent));
    // If all batches share the right operand, the rows of all batches form one matrix.
    let folds = right.rank() == 2 && left.rank() > 2;
    let folded = folds.then(|| left.layout().view(&[batches * m, k])).flatten();
    if device != DeviceId::Cpu
        && !folds
        && out_dtype == dtype
        && let Some(length) = part_of_long_sum(dtype, batches, [m, n, k])
    {
        let out = in_parts(rt, name, (a.0, &left), (b.0, &right), length)?;
        return Ok(make::in_shape(out, &visible));
    }
    let out = rt.fresh(&shape, out_dtype, device)?;
    let stretched = |x: &Layout, extents| match batch.is_empty() {
        true => x.clone(),
        false => x.broadcast_to(&with(extents)).unwrap_or_else(|| x.clone()),
    };
    let (left_layout, right_layout, out_layout, dims): (Layout, Layout, Layout, Dims) = match folded {
        Some(rows) => {
            let out = Layout::contiguous(&[batches * m, n]);
            (rows, right.layout().clone(), out, smallvec![batches * m, n, k])
        }
        None => {
            let (left, right) = (stretched(left.layout(), [m, k]), stretched(right.layout(), [k, n]));
            // Merge the batch dimensions into one if the strides allow it.
            let merged = (batch.len() > 1)
                .then(|| left.view(&[batches, m, k]).zip(right.view(&[batches, k, n])))
                .flatten();
            match merged {
                Some((left, right)) => {
                    (left, right, Layout::contiguous(&[batches, m, n]), smallvec![batches, m, n, k])
                }
                None => {
                    let mut dims = shape.clone();
                    dims.push(k);
                    (left, right, Layout::contiguous(&shape), dims)
                }
            }
        }
    };
    let views = smallvec![
        SubmittedView { tensor: &left, strides: left_layout.strides, write: false },
        SubmittedView { tensor: &right, strides: right_layout.strides, write: false },
        SubmittedView { tensor: &out, strides: out_layout.strides, write: true },
    ];
    let kind = &Matmul { dtype, tf32: rt.settings.allow_tf32 };
    rt.submit(Submission { name, kind, shape: dims, views, axis: 0, limit: 0 })?;
    Ok(make::in_shape(out, &visible))
}

/// Note [Long sums]. For a batch of a few small results with long sums (the covariances of a mixture: 12 x 12 over
/// 262,144 points), cuBLAS uses one block of threads per tile of a result, so most of the device is idle: 16 of them
/// take 8.9 ms, and 0.3 ms in parts. So the sums are split into parts, which become additional products of the batch,
/// and the results are added. cuBLAS splits a single product itself. This returns the length of the parts. It depends
/// only on the sizes, so results do not depend on strides.
fn part_of_long_sum(dtype: Dtype, batches: usize, [m, n, k]: [usize; 3]) -> Option<usize> {
    /// Number of tiles after splitting: enough for the largest device.
    const WANTED: usize = 1024;
    let by_library = dtype.is_float() && !dtype.is_half() || dtype.is_complex();
    let tiles = batches.saturating_mul(m.div_ceil(64) * n.div_ceil(64));
    if !by_library || batches < 2 || m.max(n) > 128 || tiles > 64 || k < 4096 {
        return None;
    }
    Some((k.saturating_mul(tiles) / WANTED).next_power_of_two().clamp(256, 1024))
}

/// A product whose sums are computed in parts of this length (Note [Long sums]).
fn in_parts(
    rt: &mut Runtime,
    name: &'static str,
    (a, left): Operand<'_>,
    (b, right): Operand<'_>,
    length: usize,
) -> Result<Tensor> {
    let (rows, columns) = (left.rank() - 2, right.rank() - 2);
    let k = left.shape()[rows + 1];
    let whole = k - k % length;
    // The parts of the inner dimension become the last batch dimension.
    let parted = |x: &Tensor, batch: usize, inner: usize| {
        let mut layout = x.layout().clone();
        let step = layout.strides[inner];
        layout.shape[inner] = length;
        layout.shape.insert(batch, whole / length);
        layout.strides.insert(batch, step * length as isize);
        x.with_layout(layout)
    };
    let (left_parts, right_parts) = (parted(left, rows, rows + 1), parted(right, columns, columns));
    let parts = product(rt, name, (a, &left_parts), (b, &right_parts))?;
    let sum = call(rt, "sum", &[Arg::Tensor(parts), Arg::Int(-3)])?;
    if whole == k {
        return Ok(sum);
    }
    let left = narrow(rt, left, rows + 1, whole, k - whole)?;
    let right = narrow(rt, right, columns, whole, k - whole)?;
    let rest = product(rt, name, (a, &left), (b, &right))?;
    call(rt, "add", &[Arg::Tensor(sum), Arg::Tensor(rest)])
}

/// The batch extents and the matrix extents.
fn split_shape(x: &Tensor) -> (&[usize], [usize; 2]) {
    let shape = x.shape().as_slice();
    match shape {
        [batch @ .., rows, columns] => (batch, [*rows, *columns]),
        _ => (&[], [1, 1]),
    }
}

/// The operands that the gradients of `beta * x + alpha * (a @ b)` need: each factor needs the other one.
pub const ADDED: Keeps = Keeps::operands(0b11110).when(|_, kept, param| match kept {
    3 => param == 0,
    4 => param != 0,
    _ => param + kept == 3,
});

/// The gradients of `beta * x + alpha * (a @ b)`.
fn added_back(b: &Back<'_>) {
    rules::fixed(b, &[3, 4]);
    let scaled = |param: usize| match b.arg(param) {
        Arg::Int(1) => b.g(),
        Arg::Tensor(_) => b.g() * b.x(param).conj(),
        number => b.g().call("mul", &[number]),
    };
    b.to(0, || b.fitted(0, scaled(3)));
    b.to(1, || scaled(4).matmul(&b.x(2).adjoint()));
    b.to(2, || b.x(1).adjoint().matmul(&scaled(4)));
}

fn linear_back(b: &Back<'_>) {
    b.to(2, || b.fitted(2, b.g()));
    let rank = |param: usize| if b.has_x(param) { b.x(param).rank() } else { b.form(param).shape.len() };
    if rank(1) == 1 {
        return product_back(b);
    }
    b.to(0, || b.g().matmul(&b.x(1).conj()));
    b.to_product(1, || [rows(b.g()), rows(b.x(0).conj())]);
}

/// All but the last dimension as one.
fn rows(x: Var<'_>) -> Var<'_> {
    if x.rank() == 2 {
        return x;
    }
    let width = x.shape().last().copied().unwrap_or(1);
    let height = x.shape().iter().rev().skip(1).product();
    x.reshape(&[height, width])
}

/// The gradients of `a @ b`: `g @ b^H` and `a^H @ g`, with vectors as a row and a column.
fn product_back(b: &Back<'_>) {
    let rank = |param: usize| match b.has_x(param) {
        true => b.x(param).rank(),
        false => b.form(param).shape.len(),
    };
    let (left, right) = (rank(0), rank(1));
    // The gradient with the removed dimensions of vectors restored.
    let g = || {
        let g = b.g();
        let g = if right == 1 { g.unsqueeze(-1) } else { g };
        if left == 1 { g.unsqueeze(-2) } else { g }
    };
    b.to(0, || {
        let other = if right == 1 { b.x(1).unsqueeze(-1) } else { b.x(1) };
        let found = g().matmul(&other.adjoint());
        if left == 1 { found.call("squeeze", &[Arg::Ints(vec![-2])]) } else { found }
    });
    let other = || if left == 1 { b.x(0).unsqueeze(0) } else { b.x(0) };
    if right == 2 {
        // One product over all rows, which needs no sum of products afterwards.
        return b.to_product(1, || [rows(other().conj()), rows(g())]);
    }
    b.to(1, || {
        let other = other();
        if left > 2 && right == 1 {
            let found = b.op("matmul", &[b.op("t", &[rows(other.conj()).arg()]).arg(), rows(g()).arg()]);
            return found.call("squeeze", &[Arg::Ints(vec![-1])]);
        }
        let found = other.adjoint().matmul(&g());
        if right == 1 { found.call("squeeze", &[Arg::Ints(vec![-1])]) } else { found }
    });
}
