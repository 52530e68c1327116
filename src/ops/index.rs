//! Selecting by position: `gather`, `scatter`, `index_select`, `take`, `nonzero`.
//!
//! A position in the script is checked at once. A position computed on a device is checked by the kernel, and
//! the next wait raises the error at the line that launched it.

use super::apply::again;
use super::compare::EQ;
use super::folds::{MAX, SUM};
use super::gradient::{Var, positions, rules};
use super::params::X;
use super::scatter::{Scattered, scatter, scatter_into, scatter_reduce};
use super::shape::{needs_dim, reshaped, selected, unsqueezed};
use super::signature::{Default, Kind, Param};
use super::subscript::{Index, get, get_for, set_with};
use super::{Arg, Args, Call, Form, Gradient, Keeps, MapOp, Op, Out, Rule, Run, error, make};
use crate::array::{Dims, Dtype, Layout, Scalar, Strides, broadcast};
use crate::base::Result;
use crate::kernel::{NonZero, ReduceFn};
use crate::plan::error::check_number;
use crate::plan::{Elementwise, Gathering, MapArg, Reduction, Runtime, Submission, SubmittedView};
use crate::stream::{FROM_ZERO, Meaning};
use crate::tensor::Tensor;
use smallvec::smallvec;

const DIM: Param = Param::new("dim", Kind::Int);
const INDEX: Param = Param::new("index", Kind::Tensor);

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "index_select",
        doc: "Takes the positions `index` (a vector of integers) of a dimension. A copy. Source: \
              `torch.index_select`.",
        search: &["take", "rows", "lookup", "embedding", "gather"],
        params: &[X, DIM, INDEX],
        form: Form::BOTH,
        example: "let x = tensor([[1, 2], [3, 4], [5, 6]])\n\
                  assert(equal(x.index_select(0, [2, 0]), [[5, 6], [1, 2]]))",
        run: Run::Primitive(index_select),
        gradient: Gradient::Rule(Keeps::operands(0b100), |b| {
            b.to(0, || b.zeros_of(0).call("index_add", &[b.arg(1), b.arg(2), b.g().arg()]));
        }),
        ..Op::BASE
    },
    Op {
        name: "gather",
        doc: "Takes one element per element of `index`: along `dim` from the position in `index`, in other dimensions \
              from the same position. The result has the shape of `index`. Source: `torch.gather`.",
        search: &["pick", "lookup", "along", "take_along_dim"],
        params: &[X, DIM, INDEX],
        form: Form::BOTH,
        example: "let x = tensor([[1, 2], [3, 4]])\nassert(equal(x.gather(1, [[1], [0]]), [[2], [3]]))",
        run: Run::Primitive(gather),
        gradient: Gradient::Rule(Keeps::operands(0b100), |b| {
            b.to(0, || b.zeros_of(0).call("scatter_add", &[b.arg(1), b.arg(2), b.g().arg()]));
        }),
        ..Op::BASE
    },
    Op {
        name: "embedding",
        doc: "Looks up rows of `weight`: the result has the shape of `ids` and one dimension more. With `max_norm`, \
              selected rows with a larger norm of order `norm_type` are first scaled down to it, in `weight` itself. \
              `padding_idx` is the row of the padding token. `padding_idx`, `scale_grad_by_freq` and `sparse` affect \
              only gradients. Source: `torch.nn.functional.embedding`.",
        search: &["lookup", "rows", "token", "vocabulary"],
        params: &[
            Param::new("ids", Kind::Tensor),
            Param::new("weight", Kind::Tensor),
            Param::or("padding_idx", Kind::Int, Default::None),
            Param::or("max_norm", Kind::Float, Default::None),
            Param::or("norm_type", Kind::Float, Default::Float(2.0)),
            Param::or("scale_grad_by_freq", Kind::Bool, Default::Bool(false)),
            Param::or("sparse", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::BOTH,
        example: "assert(equal(embedding([1, 0], [[1.0, 2.0], [3.0, 4.0]]), [[3.0, 4.0], [1.0, 2.0]]))",
        run: Run::Primitive(embedding),
        gradient: Gradient::Rule(Keeps::X, positions::embedding),
        ..Op::BASE
    },
    Op {
        name: "one_hot",
        doc: "Writes each integer as a row that is 1 at its position and 0 elsewhere, `i64`; without `num_classes` the \
              maximum integer determines the length of the rows (which waits for it). Source: \
              `torch.nn.functional.one_hot`.",
        search: &["classes", "labels", "indicator", "encode"],
        params: &[X, Param::or("num_classes", Kind::Int, Default::Int(-1))],
        form: Form::FUNCTION,
        example: "assert(equal(one_hot([0, 2], 3), [[1, 0, 0], [0, 0, 1]]))",
        run: Run::Primitive(one_hot),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "take_along_dim",
        doc: "`gather`, with `x` and `index` broadcast against each other; without `dim` both are flattened. \
              Source: `torch.take_along_dim`.",
        search: &["gather", "argsort", "argmax"],
        params: &[X, INDEX, Param::or("dim", Kind::Int, Default::None)],
        form: Form::BOTH,
        example: "let x = tensor([[3, 1, 2]])\nassert(equal(take_along_dim(x, argsort(x, dim=1), dim=1), [[1, 2, 3]]))",
        run: Run::Primitive(take_along_dim),
        gradient: Gradient::Rule(Keeps::Y, positions::taken_along),
        ..Op::BASE
    },
    Op {
        name: "take",
        doc: "Takes elements of the flattened tensor. The result has the shape of `index`. Source: `torch.take`.",
        search: &["flat", "pick", "lookup"],
        params: &[X, INDEX],
        form: Form::BOTH,
        example: "assert(equal(tensor([[1, 2], [3, 4]]).take([0, -1]), [1, 4]))",
        run: Run::Primitive(take),
        gradient: Gradient::Rule(Keeps::Y, positions::taken),
        ..Op::BASE
    },
    Op {
        name: "scatter",
        doc: "Writes `src` (a tensor of at least the shape of `index`, or a number) to the positions that `index` \
              holds along `dim`. Of several writes to one position, the last in row-major order remains; with `reduce` \
              (`\"add\"`, `\"multiply\"`, `\"amax\"`, `\"amin\"`) they are combined, with the same bits in every run. \
              Source: `torch.scatter`.",
        search: &["write", "put", "one hot", "assign"],
        params: &[
            X,
            DIM,
            INDEX,
            Param::stored("src", Kind::TensorOrNumber),
            Param::named("reduce", Kind::Str, Default::None),
        ],
        form: Form::ALL,
        example: "assert(equal(zeros(2, 3).scatter(1, [[2], [0]], 1), [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))",
        run: Run::Both(
            |rt, args| {
                let op = match args.text(4) {
                    None => &SCATTER,
                    Some("add" | "sum") => &SCATTER_SUM,
                    _ => &SCATTER_REDUCED,
                };
                again(rt, op, Call::Plain(*args))
            },
            |rt, _, args| again(rt, &SCATTER, Call::InPlace(*args)).map(drop),
        ),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "scatter_reduce",
        doc: "Combines values into a copy of `x` at positions along a dimension: `reduce` is `sum`, `prod`, `mean`, \
              `amax` or `amin`. With `include_self=false` the old values are not included. The result has the same \
              bits in every run. Source: `torch.scatter_reduce`.",
        search: &["segment", "group by", "accumulate", "scatter_max"],
        params: &[
            X,
            Param::new("dim", Kind::Int),
            Param::new("index", Kind::Tensor),
            Param::stored("src", Kind::Tensor),
            Param::new("reduce", Kind::Str),
            Param::named("include_self", Kind::Bool, Default::Bool(true)),
        ],
        form: Form::ALL,
        example: "let x = tensor([1.0, 2.0, 3.0])\n\
                  assert(equal(x.scatter_reduce(0, [0, 0, 2], [4.0, 6.0, 1.0], \"amax\"), [6.0, 2.0, 3.0]))\n\
                  assert(equal(x.scatter_reduce(0, [0, 0, 2], [4.0, 6.0, 1.0], \"mean\", include_self=false), [5.0, 2.0, 1.0]))",
        run: Run::Written(scatter_reduce),
        gradient: Gradient::Rule(Keeps::operands(0b1101).and_result(), positions::reduced),
        ..Op::BASE
    },
    Op {
        name: "scatter_add",
        doc: "Adds the elements of `src` to the positions that `index` holds along `dim`, with the same bits in \
              every run. Source: `torch.scatter_add`.",
        search: &["histogram", "accumulate", "segment sum", "index_add"],
        params: &[X, DIM, INDEX, Param::stored("src", Kind::Tensor)],
        form: Form::ALL,
        example: "assert(equal(zeros(3).scatter_add(0, [0, 2, 0], [1.0, 2.0, 3.0]), [4.0, 0.0, 2.0]))",
        run: Run::Written(|rt, name, args, out| {
            let src = MapArg::Tensor(args.tensor(3)?);
            Scattered::new(rt, name, args, out, src)?.write(rt, Some(&SUM))
        }),
        gradient: Gradient::Rule(Keeps::operands(0b100).when(|_, _, param| param == 3), positions::added),
        ..Op::BASE
    },
    Op {
        name: "index_add",
        doc: "Adds the slices of `source` to the positions `index` of a dimension. Source: `torch.index_add`.",
        search: &["accumulate", "segment sum", "scatter_add"],
        params: &[
            X,
            DIM,
            INDEX,
            Param::stored("source", Kind::Tensor),
            Param::named("alpha", Kind::TensorOrNumber, Default::Int(1)),
        ],
        form: Form::ALL,
        example: "assert(equal(zeros(3).index_add(0, [0, 0], [1.0, 2.0]), [3.0, 0.0, 0.0]))",
        run: Run::Written(|rt, name, args, out| {
            let source = args.tensor(3)?;
            let alpha = args.operand(4)?;
            if let MapArg::Tensor(alpha) = alpha
                && alpha.rank() > 0
            {
                return Err(error::wrong_rank(name, 4, alpha, "no dimensions", "`alpha` is one number"));
            }
            let op = MapOp { f: &super::arith::MUL, rule: Rule::Promote };
            let scaled = match alpha {
                MapArg::Number(one) if one.as_f64() == 1.0 => source.clone(),
                _ => super::map(rt, name, &op, &[MapArg::Tensor(source), alpha])?,
            };
            indexed_write(rt, name, args, out, MapArg::Tensor(&scaled), Some(&SUM))
        }),
        // The gradient of the source needs the index and `alpha`.
        gradient: Gradient::Rule(Keeps::operands(0b10100).when(|_, _, param| param == 3), |b| {
            rules::fixed(b, &[4]);
            b.to(0, || b.g());
            b.to(3, || positions::picked(b) * b.x(4).conj());
        }),
        ..Op::BASE
    },
    Op {
        name: "index_copy",
        doc: "Writes the slices of `source` to the positions `index` of a dimension. Source: `torch.index_copy`.",
        search: &["assign", "put", "rows"],
        params: &[X, DIM, INDEX, Param::stored("source", Kind::Tensor)],
        form: Form::ALL,
        example: "assert(equal(zeros(3).index_copy(0, [2, 0], [1.0, 2.0]), [2.0, 0.0, 1.0]))",
        run: Run::Written(|rt, name, args, out| {
            let source = MapArg::Tensor(args.tensor(3)?);
            indexed_write(rt, name, args, out, source, None)
        }),
        gradient: Gradient::Rule(Keeps::operands(0b100), |b| {
            b.to(0, || b.g().call("index_fill", &[b.arg(1), b.arg(2), Arg::Int(0)]));
            b.to(3, || positions::picked(b));
        }),
        ..Op::BASE
    },
    Op {
        name: "index_fill",
        doc: "Writes a number to the positions `index` of a dimension. Source: `torch.index_fill`.",
        search: &["assign", "put", "rows"],
        params: &[X, DIM, INDEX, Param::new("value", Kind::TensorOrNumber)],
        form: Form::ALL,
        example: "assert(equal(zeros(3).index_fill(0, [1], 7), [0.0, 7.0, 0.0]))",
        run: Run::WrittenInOrder(|rt, name, args, out| {
            let value = args.operand(3)?;
            let MapArg::Tensor(one) = value else {
                return indexed_write(rt, name, args, out, value, None);
            };
            if one.rank() > 0 {
                let help = "`index_copy` writes a slice to each position";
                return Err(error::wrong_rank(name, 3, one, "no dimensions", help));
            }
            if one.dtype().is_complex() {
                super::map::check_fits(name, one.dtype(), out)?;
            }
            let one = rt.convert(one, out.dtype())?;
            indexed_write(rt, name, args, out, MapArg::Tensor(&one), None)
        }),
        gradient: Gradient::Rule(Keeps::operands(0b100), |b| {
            b.to(0, || b.g().call("index_fill", &[b.arg(1), b.arg(2), Arg::Int(0)]));
            b.to(3, || positions::filled(b));
        }),
        ..Op::BASE
    },
    Op {
        name: "index_put",
        doc: "Writes `values` at the positions in the index tensors: `x[a, b] = values` as a function. With \
              `accumulate` they are added. Source: `torch.index_put`.",
        search: &["assign", "put", "advanced indexing"],
        params: &[
            X,
            Param::new("indices", Kind::Tensors),
            Param::stored("values", Kind::TensorOrNumber),
            Param::or("accumulate", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::ALL,
        example: "let x = zeros(2, 2).index_put([tensor([0, 1]), tensor([1, 1])], 5)\n\
                  assert(equal(x, [[0.0, 5.0], [0.0, 5.0]]))",
        run: Run::WrittenInOrder(|rt, name, args, out| {
            let indices: Vec<Index> = args.tensors(1)?.iter().cloned().map(Index::of).collect();
            set_with(rt, name, out, &indices, args.operand(2)?, args.flag(3).then_some(&SUM))
        }),
        gradient: Gradient::Rule(Keeps::Y, positions::put),
        ..Op::BASE
    },
    Op {
        name: "masked_select",
        doc: "Returns the elements where `mask` is true, as a vector; both broadcast. Waits for the mask. \
              Source: `torch.masked_select`.",
        search: &["filter", "where", "boolean index"],
        params: &[X, Param::new("mask", Kind::Tensor)],
        form: Form::BOTH,
        example: "let x = tensor([1, 5, 2])\nassert(equal(x.masked_select(x > 1), [5, 2]))",
        run: Run::Primitive(masked_select),
        gradient: Gradient::Rule(Keeps::Y, positions::masked),
        ..Op::BASE
    },
    Op {
        name: "nonzero",
        aliases: &["argwhere"],
        doc: "Returns the positions of the elements that are not 0, one row each, in row-major order; with \
              `as_tuple` one vector per dimension. Waits for the tensor. Source: `torch.nonzero`.",
        search: &["where", "indices", "true", "find"],
        params: &[X, Param::named("as_tuple", Kind::Bool, Default::Bool(false))],
        form: Form::BOTH,
        example: "assert(equal(nonzero([[0, 3], [4, 0]]), [[0, 1], [1, 0]]))",
        run: Run::Primitive(nonzero),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

/// The variants of `scatter`, which keep different tensors for their gradients.
static SCATTER: Op = Op { gradient: Gradient::Rule(Keeps::operands(0b100), positions::written), ..SCATTERED };
static SCATTER_SUM: Op =
    Op { gradient: Gradient::Rule(Keeps::operands(0b100), positions::added), ..SCATTERED };
static SCATTER_REDUCED: Op =
    Op { gradient: Gradient::Rule(Keeps::operands(0b1101).and_result(), positions::reduced), ..SCATTERED };
const SCATTERED: Op = Op { name: "scatter", run: Run::Written(scatter), ..Op::BASE };

/// An index tensor as `i64`; it must hold integers, not bools.
pub(super) fn as_positions(rt: &mut Runtime, argument: usize, ids: &Tensor) -> Result<Tensor> {
    match ids.dtype() {
        Dtype::I64 => Ok(ids.clone()),
        dtype if dtype.is_int() => rt.convert(ids, Dtype::I64),
        _ if ids.count() == 0 && ids.dtype().is_float() => rt.convert(ids, Dtype::I64),
        _ => Err(error::not_indices(argument, ids)),
    }
}

/// Positions (`i64`) that do not count from the end, such as classes: those below 0 are faults, as in PyTorch.
pub(super) fn from_zero(rt: &mut Runtime, ids: &Tensor) -> Result<Tensor> {
    super::formula::formula(rt, |f| counted_from_zero(&f.var(ids)))
}

/// [`from_zero`] in a formula.
pub(super) fn counted_from_zero<'a>(ids: &Var<'a>) -> Var<'a> {
    // The bit of `FROM_ZERO` is set in those below 0 alone.
    ids.minimum(FROM_ZERO - 1).bitwise_and(!FROM_ZERO)
}

/// The positions `ids` (`i64`, a vector or without dimensions) of a dimension that exists.
pub(super) fn pick(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    dim: usize,
    ids: &Tensor,
) -> Result<Tensor> {
    let ids = along(x.shape(), dim, ids);
    gathered(rt, name, x, x.layout().strides.clone(), &ids, dim)
}

/// A vector of positions, broadcast over `shape` with its own length in dimension `dim`.
fn along(shape: &[usize], dim: usize, ids: &Tensor) -> Tensor {
    let mut shape = Dims::from_slice(shape);
    let mut strides: Strides = smallvec![0; shape.len()];
    shape[dim] = ids.count();
    strides[dim] = ids.layout().strides.first().copied().unwrap_or(0);
    ids.with_layout(Layout { shape, strides, offset: ids.layout().offset })
}

/// The gather kernel: `out[.., i, ..] = x[.., ids[i], ..]` over the shape of `ids`; `source` holds the
/// strides of `x` over that shape.
fn gathered(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    source: Strides,
    ids: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    let limit = x.shape()[axis.min(x.rank().saturating_sub(1))];
    gather_from(rt, name, Along { tensor: x, strides: source, axis, limit, meaning: Meaning::Index }, ids)
}

/// A tensor whose elements are addressed by positions along an axis.
#[derive(Clone)]
pub(super) struct Along<'a> {
    pub tensor: &'a Tensor,
    /// Its strides over the shape of the positions.
    pub strides: Strides,
    /// The dimension of the positions' shape that they replace.
    pub axis: usize,
    /// Positions are below this.
    pub limit: usize,
    /// What a position out of range means.
    pub meaning: Meaning,
}

impl<'a> Along<'a> {
    /// Positions along a dimension of a tensor of at least one dimension.
    pub fn dim(tensor: &'a Tensor, dim: usize) -> Along<'a> {
        let (strides, limit) = (tensor.layout().strides.clone(), tensor.shape()[dim]);
        Along { tensor, strides, axis: dim, limit, meaning: Meaning::Index }
    }
}

/// As [`gathered`], with an explicit limit for positions.
pub(super) fn gather_from(
    rt: &mut Runtime,
    name: &'static str,
    from: Along<'_>,
    ids: &Tensor,
) -> Result<Tensor> {
    let Along { tensor: x, strides: source, axis, limit, meaning } = from;
    let device = rt.common_device(name, [x, ids])?;
    let shape = ids.shape().clone();
    if ids.count() == 0 {
        return rt.empty(&shape, x.dtype(), device);
    }
    if x.count() == 0 {
        return Err(error::indexes_nothing(name, x));
    }
    rt.gather_at(Gathering { name, source: x, strides: source, axis, limit, index: ids, meaning })
}

fn index_select(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let ids = vector_of_positions(rt, "index_select", args)?;
    if x.rank() == 0 {
        let x = unsqueezed(x, 0)?;
        let picked = pick(rt, "index_select", &x, 0, &ids)?;
        return reshaped(rt, &picked, &[]).map(Out::Tensor);
    }
    let dim = needs_dim("index_select", x, 1, args.int(1)?)?;
    pick(rt, "index_select", x, dim, &ids).map(Out::Tensor)
}

/// Argument 2 as a vector of positions.
fn vector_of_positions(rt: &mut Runtime, name: &str, args: &Args<'_>) -> Result<Tensor> {
    let ids = args.tensor(2)?;
    if ids.rank() > 1 {
        let help = "flatten it, or use `gather` to select by element";
        return Err(error::wrong_rank(name, 2, ids, "a vector of positions", help));
    }
    as_positions(rt, 2, ids)
}

/// Checks an index for `gather` and `scatter`, and gives both operands at least one dimension.
pub(super) fn same_rank(
    name: &str,
    x: &Tensor,
    ids: (usize, &Tensor),
    dim: i64,
) -> Result<(Tensor, Tensor, usize)> {
    let (one, two) = match (x.rank(), ids.1.rank()) {
        (0, 0) => (unsqueezed(x, 0)?, unsqueezed(ids.1, 0)?),
        (0, 1) => (unsqueezed(x, 0)?, ids.1.clone()),
        (1, 0) => (x.clone(), unsqueezed(ids.1, 0)?),
        _ => (x.clone(), ids.1.clone()),
    };
    let dim = needs_dim(name, &one, 1, dim)?;
    // An index without elements is valid at any rank.
    let fits = two.count() == 0
        || one.rank() == two.rank() && (0..one.rank()).all(|d| d == dim || two.shape()[d] <= one.shape()[d]);
    match fits {
        true => Ok((one, two, dim)),
        false => Err(error::index_shape(name, (0, x), ids, dim)),
    }
}

fn gather(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, given) = (args.tensor(0)?, args.tensor(2)?);
    let ids = as_positions(rt, 2, given)?;
    let (x, ids, dim) = same_rank("gather", x, (2, &ids), args.int(1)?)?;
    if ids.count() == 0 {
        let device = rt.common_device("gather", [&x, &ids])?;
        return rt.empty(given.shape(), x.dtype(), device).map(Out::Tensor);
    }
    let out = gather_along(rt, "gather", &x, &ids, dim)?;
    reshaped(rt, &out, given.shape()).map(Out::Tensor)
}

/// Positions along a dimension; each row has its own.
pub(super) fn gather_along(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    ids: &Tensor,
    dim: usize,
) -> Result<Tensor> {
    gathered(rt, name, x, x.layout().strides.clone(), ids, dim)
}

fn embedding(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (ids, weight) = (args.tensor(0)?, args.tensor(1)?);
    if weight.rank() != 2 {
        return Err(error::wrong_rank("embedding", 1, weight, "a matrix", "its rows are looked up"));
    }
    rt.common_device("embedding", [ids, weight])?;
    let ids = as_positions(rt, 0, ids)?;
    let ids = from_zero(rt, &ids)?;
    if let Some(padding) = args.opt_int(2) {
        super::shape::position(2, padding, 0, weight.shape()[0])?;
    }
    if args.is_given(3) {
        renormed(rt, weight, &ids, args.float(3)?, args.float(4)?)?;
    }
    get_for(rt, "embedding", weight, &[Index::Ids(ids)]).map(Out::Tensor)
}

/// Scales the rows `ids` of a matrix down to a maximum norm, in place.
fn renormed(rt: &mut Runtime, weight: &Tensor, ids: &Tensor, most: f64, order: f64) -> Result<()> {
    use super::composed::{call, t};
    if rt.recording.used {
        weight.note_write(rt.span);
    }
    let rows = get_for(rt, "embedding", weight, &[Index::Ids(ids.clone())])?;
    let norms = call(rt, "norm", &[t(&rows), Arg::Float(order), Arg::Ints(vec![-1]), Arg::Bool(true)])?;
    let over = call(rt, "gt", &[t(&norms), Arg::Float(most)])?;
    // PyTorch adds the same epsilon.
    let room = call(rt, "add", &[t(&norms), Arg::Float(1e-7)])?;
    let scale = call(rt, "reciprocal", &[t(&room)])?;
    let scale = call(rt, "mul", &[t(&scale), Arg::Float(most)])?;
    let scale = call(rt, "where", &[t(&over), t(&scale), Arg::Float(1.0)])?;
    let rows = call(rt, "mul", &[t(&rows), t(&scale)])?;
    set_with(rt, "embedding", weight, &[Index::Ids(ids.clone())], MapArg::Tensor(&rows), None)
}

fn one_hot(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = as_positions(rt, 0, args.tensor(0)?)?;
    let classes = match args.int(1)? {
        -1 if x.count() == 0 => return Err(error::nothing_to_reduce("one_hot", &x, None)),
        -1 => {
            let dims = super::reduce::all_dims(&x);
            let most = rt.reduce(&x, Reduction::new("one_hot", &MAX, &dims, Dtype::I64, Dtype::I64))?;
            rt.item(&most)?.as_i64().saturating_add(1)
        }
        given if given > 0 => given,
        given => {
            return Err(error::bad_value(1, format!("`one_hot` with {given} classes"), "write 1 or more"));
        }
    };
    let mut shape: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    shape.push(classes);
    let shape = error::shape(1, &shape)?;
    if x.count() == 0 {
        return rt.empty(&shape, Dtype::I64, x.device()).map(Out::Tensor);
    }
    let last = x.rank();
    let x = if last == 0 { reshaped(rt, &x, &[1])? } else { x };
    let places = places_of_ones(rt, &x, classes)?;
    let places = if last == 0 { places } else { unsqueezed(&places, last)? };
    let args = [MapArg::Position, MapArg::Tensor(&places)];
    rt.map_over(Elementwise::new("one_hot", &EQ, &args, Dtype::I64, Dtype::I64), shape, x.device())
        .map(Out::Tensor)
}

/// The position in a one-hot result at which each row has its 1: `x` has at least one dimension, and indices out of range
/// are reported.
fn places_of_ones(rt: &mut Runtime, x: &Tensor, classes: i64) -> Result<Tensor> {
    let ids = from_zero(rt, x)?;
    let args = [MapArg::Position, MapArg::Number(Scalar::Int(classes)), MapArg::Tensor(&ids)];
    let places = Elementwise::new("one_hot", &make::AFFINE, &args, Dtype::I64, Dtype::I64);
    let places = rt.map_over(places, x.shape().clone(), x.device())?;
    // Gathering from a dimension of this extent checks the indices; the element itself is not used.
    let strides = smallvec![0; x.rank()];
    let (axis, limit, meaning) = (x.rank() - 1, classes as usize, Meaning::Index);
    let checked = gather_from(rt, "one_hot", Along { tensor: x, strides, axis, limit, meaning }, &ids)?;
    super::formula::formula(rt, |f| {
        let ids = f.var(&ids);
        let inside = ids.ge(0i64).call("logical_and", &[ids.lt(classes).arg()]);
        f.select(&inside, f.var(&places), -1i64) + f.var(&checked).bitwise_and(0i64)
    })
}

fn take_along_dim(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, ids) = (args.tensor(0)?, as_positions(rt, 1, args.tensor(1)?)?);
    let name = "take_along_dim";
    let Some(dim) = args.opt_int(2) else {
        let ids = reshaped(rt, &ids, &[ids.count()])?;
        return taken(rt, name, x, &ids).map(Out::Tensor);
    };
    let (x, ids, dim) = {
        let dim = needs_dim(name, x, 2, dim)?;
        let wrong = || error::index_shape(name, (0, x), (1, &ids), dim);
        if x.rank() != ids.rank() {
            return Err(wrong());
        }
        let mut shape = broadcast(
            &Dims::from_iter(x.shape().iter().enumerate().map(|(d, &n)| if d == dim { 1 } else { n })),
            &Dims::from_iter(ids.shape().iter().enumerate().map(|(d, &n)| if d == dim { 1 } else { n })),
        )
        .ok_or_else(wrong)?;
        shape[dim] = x.shape()[dim];
        let wide = x.layout().broadcast_to(&shape).ok_or_else(wrong)?;
        shape[dim] = ids.shape()[dim];
        let index = ids.layout().broadcast_to(&shape).ok_or_else(wrong)?;
        (x.with_layout(wide), ids.with_layout(index), dim)
    };
    gather_along(rt, name, &x, &ids, dim).map(Out::Tensor)
}

fn take(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let ids = as_positions(rt, 1, args.tensor(1)?)?;
    taken(rt, "take", args.tensor(0)?, &ids).map(Out::Tensor)
}

/// `x[ids]`, with `x` flattened.
pub(super) fn taken(rt: &mut Runtime, name: &'static str, x: &Tensor, ids: &Tensor) -> Result<Tensor> {
    rt.common_device(name, [x, ids])?;
    let flat = reshaped(rt, x, &[x.count()])?;
    if ids.rank() == 0 {
        let one = pick(rt, name, &flat, 0, ids)?;
        return Ok(one.with_layout(Layout::contiguous(&[])));
    }
    let mut source: Strides = smallvec![0; ids.rank()];
    source[0] = flat.layout().strides[0];
    gather_from(
        rt,
        name,
        Along { tensor: &flat, strides: source, axis: 0, limit: x.count(), meaning: Meaning::Index },
        ids,
    )
}

/// `value`, argument `index`, as a tensor with the target's dtype and device; a number becomes a tensor of one
/// element.
pub(super) fn value_for(
    rt: &mut Runtime,
    target: &Tensor,
    value: MapArg<'_>,
    index: usize,
) -> Result<Tensor> {
    match value {
        MapArg::Tensor(value) if value.rank() == 0 && value.device() != target.device() => {
            let number = match value.device() {
                crate::driver::DeviceId::Cpu => {
                    let value = rt.convert(value, target.dtype())?;
                    rt.item(&value)?
                }
                _ => return Ok(value.clone()),
            };
            make::filled(rt, &[], target.dtype(), target.device(), number)
        }
        MapArg::Tensor(value) if value.dtype() != target.dtype() => rt.convert(value, target.dtype()),
        MapArg::Tensor(value) if std::ptr::eq(value.storage(), target.storage()) => rt.contiguous_copy(value),
        MapArg::Tensor(value) => Ok(value.clone()),
        MapArg::Number(number) => {
            check_number(index, number, target.dtype())?;
            make::filled(rt, &[], target.dtype(), target.device(), number)
        }
        MapArg::Raw(..) | MapArg::Position => Ok(target.clone()),
    }
}

/// `index_add`, `index_copy`, `index_fill`: slices along a dimension, into a tensor like the first argument.
fn indexed_write(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    out: &Tensor,
    source: MapArg<'_>,
    f: Option<&'static ReduceFn>,
) -> Result<()> {
    let ids = vector_of_positions(rt, name, args)?;
    let target = if out.rank() == 0 { unsqueezed(out, 0)? } else { out.clone() };
    let dim = needs_dim(name, &target, 1, args.int(1)?)?;
    let mut shape = target.shape().clone();
    shape[dim] = ids.count();
    if let MapArg::Tensor(source) = source {
        rt.common_device(name, [out, &ids, source])?;
        if source.dtype() != out.dtype() {
            return Err(error::dtypes_differ(name, (0, out), (3, source)));
        }
        if source.rank() > 0 && *source.shape() != shape {
            return Err(error::index_shape(name, (3, source), (2, &ids), dim));
        }
    }
    let value = value_for(rt, &target, source, 3)?;
    scatter_into(rt, name, Along::dim(&target, dim), &along(&shape, dim, &ids), &value, f)
}

fn masked_select(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, mask) = (args.tensor(0)?, args.tensor(1)?);
    rt.common_device("masked_select", [x, mask])?;
    if mask.dtype() != Dtype::Bool {
        let help = "compare to get one, `x > 0`, or convert: `mask.to(bool)`";
        return Err(error::wrong_tensor(1, "a mask of bools", mask, help));
    }
    let Some(shape) = broadcast(x.shape(), mask.shape()) else {
        let args = [MapArg::Tensor(x), MapArg::Tensor(mask)];
        return Err(crate::plan::error::shapes_do_not_broadcast("masked_select", &args, 1));
    };
    let wide = |t: &Tensor| t.layout().broadcast_to(&shape).map_or_else(|| t.clone(), |l| t.with_layout(l));
    let (x, mask) = (wide(x), wide(mask));
    let picked = get(rt, &x, &[Index::Mask(mask)])?;
    Ok(Out::Tensor(picked))
}

/// The row-major positions of the non-zero elements, as a vector. Waits for the tensor.
pub(super) fn true_positions(rt: &mut Runtime, x: &Tensor) -> Result<Tensor> {
    let x = &rt.contiguous(x)?;
    let flat = reshaped(rt, x, &[x.count()])?;
    if x.count() == 0 {
        return rt.empty(&[0], Dtype::I64, x.device());
    }
    let positions = rt.fresh(&[x.count()], Dtype::I64, x.device())?;
    let count = rt.fresh(&[1], Dtype::I64, x.device())?;
    let views = smallvec![
        SubmittedView::read(&flat),
        SubmittedView::write(&positions),
        SubmittedView::write(&count),
    ];
    let (name, kind) = ("nonzero", &NonZero { dtype: x.dtype() });
    let shape = smallvec![x.count()];
    rt.submit(Submission { name, kind, shape, views, axis: 0, limit: 0 })?;
    let found = match rt.item(&count)? {
        Scalar::Int(found) => usize::try_from(found).unwrap_or(0).min(x.count()),
        _ => 0,
    };
    Ok(super::shape::narrowed(&positions, 0, 0, found))
}

fn nonzero(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let given = args.tensor(0)?;
    // A tuple has at least one vector: a number is treated as a vector of one element.
    let lone = args.flag(1) && given.rank() == 0;
    let x = &if lone { unsqueezed(given, 0)? } else { given.clone() };
    let flat = true_positions(rt, x)?;
    let rank = x.rank();
    // Each column is adjacent in memory, as in PyTorch.
    let columns = rt.empty(&[rank, flat.count()], Dtype::I64, x.device())?;
    let out = columns.with_layout(columns.layout().permute(&[1, 0]));
    let mut step = x.count();
    for (d, &extent) in x.shape().iter().enumerate() {
        step /= extent.max(1);
        let number = |n: usize| MapArg::Number(Scalar::Int(n as i64));
        let column = selected(&out, 1, d);
        let digits = [MapArg::Tensor(&flat), number(step), number(extent)];
        rt.map_into(&column, Elementwise::new("nonzero", &make::DIGIT, &digits, Dtype::I64, Dtype::I64))?;
    }
    match args.flag(1) {
        true => Ok(Out::Tuple((0..rank).map(|d| selected(&out, 1, d)).collect())),
        false => Ok(Out::Tensor(out)),
    }
}
