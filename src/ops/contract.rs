//! Products between tensors: Kronecker products, contractions, cross products, combinations.
//!
//! Composed of other operations; nothing here waits for a device.

use super::composed::{apart, call, expand, narrow, permute, reshape, select, t, unsqueeze};
use super::make::filled;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Data, Form, Gradient, Op, Out, Run, dims, error};
use crate::array::{Dims, Dtype, Operand, Scalar, result_type};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

const OTHER: Param = Param::new("other", Kind::Tensor);

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "kron",
        doc: "Returns the Kronecker product: each element of `x` times the whole of `other`, joined. \
              Source: `torch.kron`.",
        search: &["kronecker", "tensor product", "block"],
        params: &[X, OTHER],
        form: Form::BOTH,
        example: "assert(equal(kron(tensor([1, 2]), tensor([1, 10])), [1, 10, 2, 20]))\n\
                  assert(kron(ones(2, 3), ones(4, 5)).shape == (8, 15))",
        run: Run::Composed(kron),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "cross",
        doc: "Returns cross products of vectors of three elements along `dim`, by default the first dimension of \
              extent 3; the others broadcast. Source: `torch.cross`.",
        search: &["vector product", "perpendicular", "normal"],
        params: &[X, OTHER, Param::or("dim", Kind::Int, Default::None)],
        form: Form::BOTH,
        example: "assert(equal(cross(tensor([1, 0, 0]), tensor([0, 1, 0])), [0, 0, 1]))",
        run: Run::Composed(cross),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "tensordot",
        doc: "Multiplies tensors and sums over dimensions of both: the last `dims` of `x` with the first of \
              `other`, or those of two lists, one per tensor. Source: `torch.tensordot`.",
        search: &["contraction", "einsum", "inner product"],
        params: &[X, OTHER, Param::or("dims", Kind::Data, Default::Int(2))],
        form: Form::FUNCTION,
        example: "let (a, b) = (arange(6.0).reshape(2, 3), arange(6.0).reshape(3, 2))\n\
                  assert(equal(tensordot(a, b, 1), a @ b))\n\
                  assert(equal(tensordot(a, b, [[1], [0]]), a @ b))",
        run: Run::Composed(tensordot),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "vdot",
        doc: "Returns the inner product of two vectors of one length, the first one conjugated. Source: `torch.vdot`.",
        search: &["inner product", "scalar product", "conjugate", "dot"],
        params: &[X, OTHER],
        form: Form::BOTH,
        example: "assert(vdot([1, 2, 3], [4, 5, 6]).item() == 32)\n\
                  let z = complex([1.0], [2.0])\n\
                  assert(vdot(z, z).real.item() == 5)",
        run: Run::Composed(|rt, args| {
            let x = call(rt, "conj", &[t(args.tensor(0)?)])?;
            call(rt, "dot", &[t(&x), t(args.tensor(1)?)]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "inner",
        doc: "Multiplies tensors and sums over the last dimension of both; with a number, multiplies. \
              Source: `torch.inner`.",
        search: &["dot product", "contraction", "scalar product"],
        params: &[X, OTHER],
        form: Form::BOTH,
        example: "assert(inner(tensor([1, 2, 3]), tensor([0, 2, 1])).item() == 7)",
        run: Run::Composed(inner),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "vander",
        doc: "Returns the matrix of powers of a vector, a row for each element: `N` of them (by default as many as \
              elements), the highest power first unless `increasing`. Source: `torch.vander`.",
        search: &["vandermonde", "polynomial", "powers"],
        params: &[
            X,
            Param::or("N", Kind::Int, Default::None),
            Param::or("increasing", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::FUNCTION,
        example: "assert(equal(vander(tensor([1, 2, 3])), [[1, 1, 1], [4, 2, 1], [9, 3, 1]]))",
        run: Run::Composed(vander),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "cartesian_prod",
        doc: "Returns all combinations of the elements of several vectors, one per row; a single vector is returned \
              itself. Source: `torch.cartesian_prod`.",
        search: &["cartesian product", "combinations", "pairs", "grid"],
        params: &[Param::rest("tensors", Kind::Tensors)],
        form: Form::FUNCTION,
        example: "assert(equal(cartesian_prod(tensor([1, 2]), tensor([3, 4])), [[1, 3], [1, 4], [2, 3], [2, 4]]))",
        run: Run::Composed(cartesian_prod),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "combinations",
        doc: "Returns all combinations of `r` elements of a vector, one per row, in the order of their positions. \
              `with_replacement` adds combinations in which an element appears several times. Waits for the device. \
              Source: `torch.combinations`.",
        search: &["pairs", "subsets", "choose", "itertools"],
        params: &[
            X,
            Param::or("r", Kind::Int, Default::Int(2)),
            Param::or("with_replacement", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::BOTH,
        example: "assert(equal(combinations(tensor([1, 2, 3])), [[1, 2], [1, 3], [2, 3]]))",
        run: Run::Composed(combinations),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "addmv",
        doc: "Returns `beta * x + alpha * (mat @ vec)`; `x` broadcasts. With `beta=0`, `x` is not read. Source: `torch.addmv`.",
        search: &["gemv", "matrix times vector", "affine"],
        params: &[X, Param::new("mat", Kind::Tensor), Param::new("vec", Kind::Tensor), BETA, ALPHA],
        form: Form::ALL,
        example: "assert(equal(addmv([10, 20], [[1, 2], [3, 4]], [1, 1]), [13, 27]))",
        run: Run::Composed(|rt, args| {
            of_rank(args, "addmv", 1, 2)?;
            of_rank(args, "addmv", 2, 1)?;
            let (mat, vec) = (args.tensor(1)?, args.tensor(2)?);
            let column = unsqueeze(rt, vec, 1)?;
            let x = expand(rt, args.tensor(0)?, &mat.shape()[..1])?;
            let x = unsqueeze(rt, &x, 1)?;
            let sum =
                call(rt, "addmm", &[t(&x), t(mat), t(&column), args.get(3).clone(), args.get(4).clone()])?;
            select(rt, &sum, 1, 0).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "addr",
        doc: "Returns `beta * x + alpha * outer(vec1, vec2)`; `x` broadcasts. With `beta=0`, `x` is not read. Source: `torch.addr`.",
        search: &["rank one update", "outer product", "ger"],
        params: &[X, Param::new("vec1", Kind::Tensor), Param::new("vec2", Kind::Tensor), BETA, ALPHA],
        form: Form::ALL,
        example: "assert(equal(addr(ones(2, 2), [1.0, 2.0], [3.0, 4.0]), [[4.0, 5.0], [7.0, 9.0]]))",
        run: Run::Composed(addr),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

const BETA: Param = Param::named("beta", Kind::TensorOrNumber, Default::Int(1));
const ALPHA: Param = Param::named("alpha", Kind::TensorOrNumber, Default::Int(1));

fn of_rank(args: &Args<'_>, name: &'static str, index: usize, rank: usize) -> Result<()> {
    let x = args.tensor(index)?;
    let wanted = ["a number", "a vector", "a matrix"][rank.min(2)];
    match x.rank() == rank {
        true => Ok(()),
        false => Err(error::wrong_rank(name, index, x, wanted, "give it that number of dimensions")),
    }
}

fn addr(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    of_rank(args, "addr", 1, 1)?;
    of_rank(args, "addr", 2, 1)?;
    let (x, a, b) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let shape = [a.count(), b.count()];
    let x = expand(rt, x, &shape)?;
    let dtype = result_type([&x, a, b].map(|x| Operand::Tensor(x.dtype())));
    // Products of bools are those of ints: true where any is not 0.
    let is_bool = dtype == Dtype::Bool;
    let dtype = if is_bool { Dtype::I64 } else { dtype };
    let number = |rt: &mut Runtime, x: &Tensor| call(rt, "to", &[t(x), Arg::Dtype(dtype)]);
    let (x, a, b) = (number(rt, &x)?, number(rt, a)?, number(rt, b)?);
    let (a, b) = (unsqueeze(rt, &a, 1)?, unsqueeze(rt, &b, 0)?);
    let sum = call(rt, "addmm", &[t(&x), t(&a), t(&b), args.get(3).clone(), args.get(4).clone()])?;
    match is_bool {
        true => call(rt, "to", &[t(&sum), Arg::Dtype(Dtype::Bool)]).map(Out::Tensor),
        false => Ok(Out::Tensor(sum)),
    }
}

fn combinations(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, r, again) = (args.tensor(0)?, args.int(1)?, args.flag(2));
    if x.rank() != 1 {
        return Err(error::wrong_rank("combinations", 0, x, "a vector", "write `x.flatten()`"));
    }
    if r < 0 {
        return Err(error::bad_value(1, format!("combinations of {r} elements"), "give 0 or more"));
    }
    if r == 0 {
        return filled(rt, &[0], x.dtype(), x.device(), Scalar::Int(0)).map(Out::Tensor);
    }
    if r == 1 {
        let column = unsqueeze(rt, x, 1)?;
        return apart(rt, x, column).map(Out::Tensor);
    }
    let n = x.count() as i64;
    if n == 0 || r > n && !again {
        // A view of the operand, so that the operation is recorded.
        let none = narrow(rt, x, 0, 0, 0)?;
        return reshape(rt, &none, &[0, usize::try_from(r).unwrap_or(0)]).map(Out::Tensor);
    }
    // All rows are created first, as in PyTorch.
    if r > 32 || u32::try_from(r).ok().and_then(|r| n.checked_pow(r)).is_none_or(|rows| rows > 1 << 40) {
        let message = format!("combinations of {r} out of {n} elements");
        return Err(error::bad_value(1, message, "choose fewer: all rows of positions are made first"));
    }
    let positions = [Arg::Int(n), Arg::None, Arg::Int(1), Arg::None, Arg::Device(x.device())];
    let positions = call(rt, "arange", &positions)?;
    let all = call(rt, "cartesian_prod", &[Arg::Tensors(vec![positions; r as usize])])?;
    let steps = call(rt, "diff", &[t(&all), Arg::Int(1), Arg::Int(1)])?;
    let ordered = call(rt, if again { "ge" } else { "gt" }, &[t(&steps), Arg::Int(0)])?;
    let kept = call(rt, "all", &[t(&ordered), Arg::Ints(vec![1])])?;
    let rows = call(rt, "nonzero", &[t(&kept)])?;
    let rows = reshape(rt, &rows, &[rows.count()])?;
    let places = call(rt, "index_select", &[t(&all), Arg::Int(0), t(&rows)])?;
    call(rt, "take", &[t(x), t(&places)]).map(Out::Tensor)
}

fn kron(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, other) = (args.tensor(0)?, args.tensor(1)?);
    let rank = x.rank().max(other.rank());
    let whole = |x: &Tensor| -> Vec<usize> {
        std::iter::repeat_n(1, rank - x.rank()).chain(x.shape().iter().copied()).collect()
    };
    let (a, b) = (whole(x), whole(other));
    let outer: Vec<usize> = a.iter().flat_map(|&n| [n, 1]).collect();
    let within: Vec<usize> = b.iter().flat_map(|&n| [1, n]).collect();
    let (outer, within) = (reshape(rt, x, &outer)?, reshape(rt, other, &within)?);
    let product = call(rt, "mul", &[t(&outer), t(&within)])?;
    let shape: Dims = a.iter().zip(&b).map(|(&n, &m)| n.saturating_mul(m)).collect();
    reshape(rt, &product, &shape).map(Out::Tensor)
}

fn cross(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, other) = (args.tensor(0)?, args.tensor(1)?);
    rt.common_device("cross", [x, other])?;
    let wrong = |why: String| {
        error::matmul_shapes("cross", (0, x), (1, other), why, "give vectors of three elements: `dim=-1`")
    };
    let whole = crate::array::broadcast(x.shape(), other.shape());
    let whole = whole.ok_or_else(|| wrong("their shapes do not broadcast".into()))?;
    let dim = match args.opt_int(2) {
        Some(dim) => dims::one(2, dim, whole.len())?,
        None => {
            let three = whole.iter().position(|&extent| extent == 3);
            three.ok_or_else(|| wrong("no dimension has extent 3".into()))?
        }
    };
    if whole.get(dim) != Some(&3) {
        return Err(wrong(format!("dimension {dim} does not have extent 3")));
    }
    let (a, b) = (expand(rt, x, &whole)?, expand(rt, other, &whole)?);
    let turned = |rt: &mut Runtime, x: &Tensor, by: i64| {
        call(rt, "roll", &[t(x), Arg::Ints(vec![by]), Arg::Ints(vec![dim as i64])])
    };
    let (a1, b2) = (turned(rt, &a, -1)?, turned(rt, &b, -2)?);
    let (a2, b1) = (turned(rt, &a, -2)?, turned(rt, &b, -1)?);
    let (left, right) = (call(rt, "mul", &[t(&a1), t(&b2)])?, call(rt, "mul", &[t(&a2), t(&b1)])?);
    call(rt, "sub", &[t(&left), t(&right)]).map(Out::Tensor)
}

fn tensordot(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, other) = (args.tensor(0)?, args.tensor(1)?);
    let wrong = |why: &str| {
        error::bad_value(2, why, "write a number of dimensions, or two lists of them, `[[1], [0]]`")
    };
    let ints = |data: &Data| -> Option<Vec<i64>> {
        let Data::List(items) = data else { return None };
        let int = |item: &Data| match item {
            Data::Number(Scalar::Int(i)) => Some(*i),
            _ => None,
        };
        items.iter().map(int).collect()
    };
    let count = match args.get(2) {
        Arg::Int(count) | Arg::Data(Data::Number(Scalar::Int(count))) => Some(*count),
        _ => None,
    };
    let (mine, theirs) = match (count, args.get(2)) {
        (Some(count), _) => {
            let fits = usize::try_from(count).ok().filter(|&n| n <= x.rank() && n <= other.rank());
            let n = fits.ok_or_else(|| wrong(&format!("{count} dimensions of both tensors")))?;
            ((x.rank() - n..x.rank()).collect(), (0..n).collect())
        }
        (None, Arg::Data(Data::List(lists))) => match lists.as_slice() {
            [mine, theirs] => match (ints(mine), ints(theirs)) {
                (Some(mine), Some(theirs)) => {
                    let of = |list: Vec<i64>, rank| -> Result<Vec<usize>> {
                        list.into_iter().map(|dim| dims::one(2, dim, rank)).collect()
                    };
                    (of(mine, x.rank())?, of(theirs, other.rank())?)
                }
                _ => return Err(wrong("the dimensions are not ints")),
            },
            _ => return Err(wrong("there are two tensors")),
        },
        _ => return Err(wrong("the dimensions are not ints")),
    };
    contracted(rt, "tensordot", x, other, mine, theirs).map(Out::Tensor)
}

/// Sums products over pairs of dimensions.
fn contracted(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    other: &Tensor,
    mine: Vec<usize>,
    theirs: Vec<usize>,
) -> Result<Tensor> {
    let help = "the dimensions that are summed over have equal extents";
    let wrong = |why: String| error::matmul_shapes(name, (0, x), (1, other), why, help);
    if mine.len() != theirs.len() {
        return Err(wrong(format!("{} dimensions are paired with {}", mine.len(), theirs.len())));
    }
    let (mut left, mut right) = (x.clone(), other.clone());
    for (&a, &b) in mine.iter().zip(&theirs) {
        let (n, m) = (x.shape()[a], other.shape()[b]);
        // An extent of 1 is broadcast, so sum the other side first.
        let stretched = name == "tensordot" && n != m && (n == 1 || m == 1);
        let (longer, dim) = if n == 1 { (&mut right, b) } else { (&mut left, a) };
        if stretched {
            let along = [Arg::Ints(vec![dim as i64]), Arg::Bool(true), Arg::Dtype(longer.dtype())];
            let [dim, keep, dtype] = along;
            *longer = call(rt, "sum", &[t(longer), dim, keep, dtype])?;
        } else if n != m {
            return Err(wrong(format!("dimension {a} of size {n} is paired with dimension {b} of size {m}")));
        }
    }
    let (x, other) = (&left, &right);
    for dims in [&mine, &theirs] {
        if let Some((_, &twice)) = dims.iter().enumerate().find(|(i, dim)| dims[..*i].contains(dim)) {
            return Err(error::dim_twice(2, twice));
        }
    }
    let free = |x: &Tensor, taken: &[usize]| -> Vec<usize> {
        (0..x.rank()).filter(|dim| !taken.contains(dim)).collect()
    };
    let (rows, columns) = (free(x, &mine), free(other, &theirs));
    let count = |x: &Tensor, dims: &[usize]| dims.iter().map(|&dim| x.shape()[dim]).product::<usize>();
    let inside = count(x, &mine);
    let left = permute(rt, x, &[rows.as_slice(), &mine].concat())?;
    let right = permute(rt, other, &[theirs.as_slice(), &columns].concat())?;
    let left = reshape(rt, &left, &[count(x, &rows), inside])?;
    let right = reshape(rt, &right, &[inside, count(other, &columns)])?;
    let product = call(rt, "matmul", &[t(&left), t(&right)])?;
    let rows = rows.iter().map(|&dim| x.shape()[dim]);
    let shape: Dims = rows.chain(columns.iter().map(|&dim| other.shape()[dim])).collect();
    reshape(rt, &product, &shape)
}

fn inner(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, other) = (args.tensor(0)?, args.tensor(1)?);
    let last = |x: &Tensor| x.rank().checked_sub(1);
    match (last(x), last(other)) {
        (Some(a), Some(b)) => contracted(rt, "inner", x, other, vec![a], vec![b]).map(Out::Tensor),
        _ => call(rt, "mul", &[t(x), t(other)]).map(Out::Tensor),
    }
}

fn vander(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    if x.rank() != 1 {
        return Err(error::wrong_rank("vander", 0, x, "a vector", "flatten it first: `x.flatten()`"));
    }
    let columns = args.opt_int(1).unwrap_or(x.count() as i64);
    let Ok(count) = usize::try_from(columns) else {
        return Err(error::bad_value(1, format!("{columns} columns"), "write 0 or more"));
    };
    let wide = x.dtype().is_float() || x.dtype().is_complex();
    let x = if wide { x.clone() } else { rt.convert(x, Dtype::I64)? };
    let rows = x.count();
    let ones = filled(rt, &[rows, count.min(1)], x.dtype(), x.device(), Scalar::Int(1))?;
    let column = unsqueeze(rt, &x, 1)?;
    let same = expand(rt, &column, &[rows, count.saturating_sub(1)])?;
    let factors = call(rt, "cat", &[Arg::Tensors(vec![ones, same]), Arg::Int(1)])?;
    let powers = call(rt, "cumprod", &[t(&factors), Arg::Int(1)])?;
    match args.flag(2) {
        true => Ok(Out::Tensor(powers)),
        false => call(rt, "flip", &[t(&powers), Arg::Ints(vec![1])]).map(Out::Tensor),
    }
}

fn cartesian_prod(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let tensors = args.tensors(0)?;
    rt.common_device("cartesian_prod", tensors).map_err(|e| e.in_list(0))?;
    if let Some((i, x)) = tensors.iter().enumerate().find(|(_, x)| x.rank() != 1) {
        let help = "flatten it first: `x.flatten()`";
        return Err(error::wrong_rank("cartesian_prod", i, x, "vectors", help).in_list(0));
    }
    match tensors {
        [] => return Err(error::nothing_to_join("cartesian_prod")),
        [one] => return Ok(Out::Tensor(one.clone())),
        _ => {}
    }
    let count = tensors.len();
    let mut shape: Dims = tensors.iter().map(|x| x.count()).collect();
    let mut columns = Vec::new();
    for (at, x) in tensors.iter().enumerate() {
        let mut own: Dims = Dims::from_elem(1, count);
        own[at] = x.count();
        let grid = reshape(rt, x, &own)?;
        columns.push(expand(rt, &grid, &shape)?);
    }
    let stacked = call(rt, "stack", &[Arg::Tensors(columns), Arg::Int(-1)])?;
    shape.push(count);
    let rows = shape[..count].iter().product();
    reshape(rt, &stacked, &[rows, count]).map(Out::Tensor)
}
