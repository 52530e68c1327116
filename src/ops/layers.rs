//! Layers of networks as functions: dropout, distances, attention, padding.
//!
//! Composed of other operations.

use super::composed::{apart, call, expand, ints, permute, reshape, t, to};
use super::formula::{formula, one};
use super::gates::{floats, uniform};
use super::gradient::Var;
use super::gradient::record::unrecorded;
use super::params::{DTYPE, GENERATOR, X};
use super::signature::{Default, Kind, Param};
use super::{
    Arg, Args, Call, Form, Gradient, Keeps, Op, Out, Run, apply, dims, error, known, matmul, moments, padding,
};
use crate::array::{Dtype, promote};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

const P: Param = Param::or("p", Kind::Float, Default::Float(0.5));
const TRAINING: Param = Param::or("training", Kind::Bool, Default::Bool(true));

const fn optional(name: &'static str) -> Param {
    Param::or(name, Kind::Tensor, Default::None)
}

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "dropout",
        doc: "Sets each element to 0 with probability `p` and multiplies the others by `1 / (1 - p)`; without \
              `training` returns `x`. Source: `torch.nn.functional.dropout`.",
        search: &["regularisation", "random", "mask"],
        params: &[X, P, TRAINING, GENERATOR],
        form: Form::BOTH,
        example: "let y = dropout(ones(1000), 0.75)\n\
                  assert(((y == 0) | (y == 4)).all() and equal(dropout(ones(3), training=false), ones(3)))",
        run: Run::Composed(|rt, args| {
            let shape = args.tensor(0)?.shape().to_vec();
            dropped(rt, "dropout", args, &shape, args.get(3))
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "dropout1d",
        doc: "Like `dropout`, for whole channels of `(n, c, l)` or `(c, l)`. Source: \
              `torch.nn.functional.dropout1d`.",
        search: &["channels", "spatial dropout"],
        params: &[X, P, TRAINING, GENERATOR],
        form: Form::BOTH,
        example: "let y = dropout1d(ones(50, 3, 4))\nassert(((y.sum(-1) == 0) | (y.sum(-1) == 8)).all())",
        run: Run::Composed(|rt, args| channels_dropped(rt, "dropout1d", args, 2)),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "dropout2d",
        doc: "Like `dropout`, for whole channels of images, `(n, c, h, w)`. Source: \
              `torch.nn.functional.dropout2d`.",
        search: &["channels", "spatial dropout", "images"],
        params: &[X, P, TRAINING, GENERATOR],
        form: Form::BOTH,
        example: "let y = dropout2d(ones(50, 3, 2, 2))\nassert(((y == 0) | (y == 2)).all())",
        run: Run::Composed(|rt, args| channels_dropped(rt, "dropout2d", args, 0)),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "dropout3d",
        doc: "Like `dropout`, for whole channels of volumes, `(n, c, d, h, w)` or `(c, d, h, w)`. Source: \
              `torch.nn.functional.dropout3d`.",
        search: &["channels", "spatial dropout", "volumes"],
        params: &[X, P, TRAINING, GENERATOR],
        form: Form::BOTH,
        example: "let y = dropout3d(ones(9, 3, 2, 2, 2))\nassert(((y == 0) | (y == 2)).all())",
        run: Run::Composed(|rt, args| channels_dropped(rt, "dropout3d", args, 4)),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "alpha_dropout",
        doc: "Dropout that preserves mean 0 and variance 1, for use with `selu`. Source: \
              `torch.nn.functional.alpha_dropout`.",
        search: &["self-normalizing", "selu", "random"],
        params: &[X, P, Param::or("training", Kind::Bool, Default::Bool(false)), GENERATOR],
        form: Form::BOTH,
        example: "assert(equal(alpha_dropout(ones(3)), ones(3)) and alpha_dropout(ones(9), 0.5, true).shape == (9,))",
        run: Run::Composed(alpha_dropout),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "normalize",
        doc: "Divides vectors along `dim` by their norm of order `p`, or by `eps` where that is larger. Source: \
              `torch.nn.functional.normalize`.",
        search: &["unit length", "norm", "direction"],
        params: &[
            X,
            Param::or("p", Kind::Float, Default::Float(2.0)),
            Param::or("dim", Kind::Dims, Default::Int(1)),
            Param::or("eps", Kind::Float, Default::Float(1e-12)),
        ],
        form: Form::BOTH,
        example: "assert(allclose(normalize([[3.0, 4.0]]), [[0.6, 0.8]]))",
        run: Run::Composed(|rt, args| {
            let (p, eps) = (args.get(1).clone(), args.get(3).clone());
            let out = formula(rt, |f| {
                let norm = f.op("norm", &[args.get(0).clone(), p, args.get(2).clone(), Arg::Bool(true)]);
                f.op("div", &[args.get(0).clone(), norm.call("clamp_min", &[eps]).arg()])
            });
            out.map(Out::Tensor)
        }),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "cosine_similarity",
        doc: "Returns the cosine of the angle between vectors along `dim`, a dimension of the broadcast shape. Norms \
              below `eps` count as `eps`. Source: `torch.nn.functional.cosine_similarity`.",
        search: &["angle", "similarity", "embedding"],
        params: &[
            Param::new("x1", Kind::Tensor),
            Param::new("x2", Kind::Tensor),
            Param::or("dim", Kind::Int, Default::Int(1)),
            Param::or("eps", Kind::Float, Default::Float(1e-8)),
        ],
        form: Form::BOTH,
        example: "assert(allclose(cosine_similarity([[1.0, 0.0]], [[1.0, 1.0]]), [0.7071068]))",
        run: Run::Composed(cosine_similarity),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "pairwise_distance",
        doc: "Returns the norm of order `p` of `x1 - x2 + eps` along the last dimension. Source: \
              `torch.nn.functional.pairwise_distance`.",
        search: &["distance", "norm", "embedding"],
        params: &[
            Param::new("x1", Kind::Tensor),
            Param::new("x2", Kind::Tensor),
            Param::or("p", Kind::Float, Default::Float(2.0)),
            Param::or("eps", Kind::Float, Default::Float(1e-6)),
            Param::or("keepdim", Kind::Bool, Default::Bool(false)),
        ],
        form: Form::FUNCTION,
        example: "assert(allclose(pairwise_distance([[0.0, 0.0]], [[3.0, 4.0]]), [5.0]))",
        run: Run::Composed(|rt, args| {
            let off = call(rt, "sub", &[t(args.tensor(0)?), t(args.tensor(1)?)])?;
            let off = call(rt, "add", &[t(&off), args.get(3).clone()])?;
            call(rt, "norm", &[t(&off), args.get(2).clone(), Arg::Int(-1), args.get(4).clone()])
                .map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "dist",
        doc: "Returns the norm of order `p` of `x - other`, over all elements. Source: `torch.dist`.",
        search: &["distance", "norm", "euclidean"],
        params: &[X, Param::new("other", Kind::Tensor), Param::or("p", Kind::Float, Default::Float(2.0))],
        form: Form::BOTH,
        example: "assert(dist([0.0, 0.0], [3.0, 4.0]).item() == 5.0)",
        run: Run::Composed(|rt, args| {
            let off = call(rt, "sub", &[t(args.tensor(0)?), t(args.tensor(1)?)])?;
            if !off.dtype().is_float() && !off.dtype().is_complex() {
                return Err(error::needs_float("dist", &off));
            }
            call(rt, "norm", &[t(&off), args.get(2).clone()]).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "renorm",
        doc: "Scales down the parts of `x` at the positions of dimension `dim` whose norm of order `p` is above \
              `maxnorm`, to that norm. Source: `torch.renorm`.",
        search: &["max norm", "constraint", "rows", "weight"],
        params: &[
            X,
            Param::new("p", Kind::Float),
            Param::new("dim", Kind::Int),
            Param::new("maxnorm", Kind::Float),
        ],
        form: Form::ALL,
        example: "assert(allclose(renorm([[3.0, 4.0], [0.3, 0.4]], 2, 0, 1), [[0.6, 0.8], [0.3, 0.4]]))",
        run: Run::Composed(renorm),
        shape: known::SAME,
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "cdist",
        doc: "Returns the distances between all rows of `x1`, `(..., n, m)`, and all rows of `x2`, `(..., k, m)`, in \
              the norm of order `p`: `(..., n, k)`. `compute_mode` has no effect. Source: `torch.cdist`.",
        search: &["distance matrix", "euclidean", "neighbours"],
        params: &[
            Param::new("x1", Kind::Tensor),
            Param::new("x2", Kind::Tensor),
            Param::or("p", Kind::Float, Default::Float(2.0)),
            Param::or("compute_mode", Kind::Str, Default::Str("use_mm_for_euclid_dist_if_necessary")),
        ],
        form: Form::FUNCTION,
        example: "assert(equal(cdist([[0.0, 0.0], [3.0, 0.0]], [[3.0, 4.0]]), [[5.0], [4.0]]))",
        run: Run::Composed(|rt, args| {
            for i in 0..2 {
                let x = args.tensor(i)?;
                if x.rank() < 2 {
                    return Err(error::wrong_rank(
                        "cdist",
                        i,
                        x,
                        "rows",
                        "give a matrix, or a batch of them",
                    ));
                }
            }
            let rows = call(rt, "unsqueeze", &[t(args.tensor(0)?), Arg::Int(-2)])?;
            let others = call(rt, "unsqueeze", &[t(args.tensor(1)?), Arg::Int(-3)])?;
            apply(rt, &moments::DISTANCE, Call::Plain(Args(&[t(&rows), t(&others), args.get(2).clone()])))
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "pdist",
        doc: "Returns the distances between the rows of a matrix, in the norm of order `p`: those of the first row to the \
              second, third, .., then those of the second row to later ones, .. Source: `torch.nn.functional.pdist`.",
        search: &["distance matrix", "euclidean", "pairs"],
        params: &[X, Param::or("p", Kind::Float, Default::Float(2.0))],
        form: Form::FUNCTION,
        example: "assert(equal(pdist([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), [5.0, 1.0, 18 ** 0.5]))",
        run: Run::Composed(|rt, args| {
            let x = args.tensor(0)?;
            if x.rank() != 2 {
                let help = "give a matrix; `cdist` computes the distances of two of them";
                return Err(error::wrong_rank("pdist", 0, x, "rows", help));
            }
            let rows = Arg::Int(x.shape()[0] as i64);
            let device = Arg::Device(x.device());
            let pairs = call(rt, "triu_indices", &[rows.clone(), rows, Arg::Int(1), Arg::None, device])?;
            let mut side = |i: i64| {
                let ids = call(rt, "select", &[t(&pairs), Arg::Int(0), Arg::Int(i)])?;
                call(rt, "index_select", &[t(x), Arg::Int(0), t(&ids)])
            };
            let (rows, others) = (side(0)?, side(1)?);
            apply(rt, &moments::DISTANCE, Call::Plain(Args(&[t(&rows), t(&others), args.get(1).clone()])))
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "bilinear",
        doc: "Returns `x1 @ weight[o] @ x2 + bias[o]` for each `o`, of vectors along the last dimensions. Source: \
              `torch.nn.functional.bilinear`.",
        search: &["layer", "product", "interaction"],
        params: &[
            Param::new("x1", Kind::Tensor),
            Param::new("x2", Kind::Tensor),
            Param::new("weight", Kind::Tensor),
            optional("bias"),
        ],
        form: Form::BOTH,
        example: "assert(equal(bilinear([[1.0, 2.0]], [[3.0]], [[[4.0], [5.0]]], [6.0]), [[48.0]]))",
        run: Run::Composed(|rt, args| {
            let mut dtype = args.tensor(0)?.dtype();
            for other in (1..4).filter_map(|i| args.opt_tensor(i)) {
                dtype = promote(dtype, other.dtype());
            }
            let mut operands = Vec::new();
            for i in 0..3 {
                operands.push(to(rt, args.tensor(i)?, dtype.accumulator())?);
            }
            let mut out =
                call(rt, "einsum", &[Arg::Str("...i,...j,oij->...o".into()), Arg::Tensors(operands)])?;
            if let Some(bias) = args.opt_tensor(3) {
                out = call(rt, "add", &[t(&out), t(bias)])?;
            }
            to(rt, &out, dtype).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "scaled_dot_product_attention",
        doc: "Returns `softmax(query @ key.mT * scale) @ value`; `scale` is `1 / sqrt(e)` for queries of `e` elements \
              unless it is given. `attn_mask` is true where a query may see a key, or is added to the scores; \
              `is_causal` hides the keys after a query's position. The result of a query that sees no key is zeros. \
              Scores of halves are `f32`; the weights are rounded. `dropout_p` is the probability with which weights \
              are dropped. With `enable_gqa` there may be fewer heads of keys and values, dimension -3, than of \
              queries. Source: `torch.nn.functional.scaled_dot_product_attention`.",
        search: &["attention", "transformer", "softmax", "sdpa", "flash"],
        params: &[
            Param::new("query", Kind::Tensor),
            Param::new("key", Kind::Tensor),
            Param::new("value", Kind::Tensor),
            optional("attn_mask"),
            Param::or("dropout_p", Kind::Float, Default::Float(0.0)),
            Param::or("is_causal", Kind::Bool, Default::Bool(false)),
            Param::or("scale", Kind::Float, Default::None),
            Param::or("enable_gqa", Kind::Bool, Default::Bool(false)),
            GENERATOR,
        ],
        form: Form::FUNCTION,
        example: "let x = tensor([[1.0, 0.0], [0.0, 1.0]])\n\
                  assert(equal(scaled_dot_product_attention(x, x, x, is_causal=true)[0], [1.0, 0.0]))",
        run: Run::Composed(attention),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "pad",
        doc: "Adds elements before and after: `pad` has the two numbers of the last dimension, then of the previous \
              one, and so on; negative numbers remove elements. `mode` is `constant` (of `value`), `reflect`, \
              `replicate` or `circular`. Source: `torch.nn.functional.pad`.",
        search: &["border", "padding", "extend", "crop"],
        params: &[
            X,
            Param::new("pad", Kind::Dims),
            Param::or("mode", Kind::Str, Default::Str("constant")),
            Param::or("value", Kind::Number, Default::None),
        ],
        form: Form::BOTH,
        example: "assert(equal(pad([1, 2, 3], [1, 1]), [0, 1, 2, 3, 0]))\n\
                  assert(equal(pad([1, 2, 3], [2, 1], mode=\"reflect\"), [3, 2, 1, 2, 3, 2]))",
        run: Run::Composed(padding::pad),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "pixel_shuffle",
        doc: "Moves channels to pixels: `(..., c * r * r, h, w)` becomes `(..., c, h * r, w * r)`. Source: \
              `torch.nn.functional.pixel_shuffle`.",
        search: &["super resolution", "upscale", "depth to space"],
        params: &[X, Param::new("upscale_factor", Kind::Int)],
        form: Form::BOTH,
        example: "assert(equal(pixel_shuffle(arange(4).reshape(4, 1, 1), 2), [[[0, 1], [2, 3]]]))",
        run: Run::Composed(|rt, args| {
            let (r, (lead, [c, h, w])) = (factor(args)?, image(args, "pixel_shuffle")?);
            if c % (r * r) != 0 {
                return Err(uneven(c, r * r));
            }
            let parts = reshape(rt, args.tensor(0)?, &[lead, &[c / (r * r), r, r, h, w]].concat())?;
            let n = lead.len();
            let order: Vec<usize> = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]).collect();
            let moved = permute(rt, &parts, &order)?;
            let pixels = reshape(rt, &moved, &[lead, &[c / (r * r), h * r, w * r]].concat())?;
            apart(rt, args.tensor(0)?, pixels).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
    Op {
        name: "pixel_unshuffle",
        doc: "Moves pixels to channels: `(..., c, h * r, w * r)` becomes `(..., c * r * r, h, w)`. Source: \
              `torch.nn.functional.pixel_unshuffle`.",
        search: &["super resolution", "downscale", "space to depth"],
        params: &[X, Param::new("downscale_factor", Kind::Int)],
        form: Form::BOTH,
        example: "assert(equal(pixel_unshuffle(arange(4).reshape(1, 2, 2), 2).flatten(), arange(4)))",
        run: Run::Composed(|rt, args| {
            let (r, (lead, [c, h, w])) = (factor(args)?, image(args, "pixel_unshuffle")?);
            if h % r != 0 || w % r != 0 {
                return Err(uneven(if h % r != 0 { h } else { w }, r));
            }
            let parts = reshape(rt, args.tensor(0)?, &[lead, &[c, h / r, r, w / r, r]].concat())?;
            let n = lead.len();
            let order: Vec<usize> = (0..n).chain([n, n + 2, n + 4, n + 1, n + 3]).collect();
            let moved = permute(rt, &parts, &order)?;
            let channels = reshape(rt, &moved, &[lead, &[c * r * r, h / r, w / r]].concat())?;
            apart(rt, args.tensor(0)?, channels).map(Out::Tensor)
        }),
        gradient: Gradient::Composed,
        ..Op::BASE
    },
];

/// Checks a probability.
fn probability(index: usize, p: f64) -> Result<f64> {
    match (0.0..=1.0).contains(&p) {
        true => Ok(p),
        false => {
            Err(error::bad_value(index, format!("a probability goes from 0 to 1, not {p}"), "write 0.5"))
        }
    }
}

/// `dropout` with a mask of another shape, which broadcasts.
fn dropped(rt: &mut Runtime, name: &str, args: &Args<'_>, mask: &[usize], generator: &Arg) -> Result<Out> {
    let (x, p) = (args.tensor(0)?, probability(1, args.float(1)?)?);
    if !args.flag(2) || p == 0.0 {
        return Ok(Out::Tensor(x.clone()));
    }
    if !x.dtype().is_float() && !x.dtype().is_complex() {
        return Err(error::floats_alone(name, 0, x));
    }
    if p == 1.0 {
        return call(rt, "mul", &[t(x), Arg::Int(0)]).map(Out::Tensor);
    }
    let drawn = uniform(rt, x, mask, generator)?;
    let out = formula(rt, |f| f.select(&f.var(&drawn).ge(p), f.var(x) / (1.0 - p), 0.0));
    out.map(Out::Tensor)
}

/// `dropout` of whole channels; tensors of `unbatched` dimensions are one sample.
fn channels_dropped(rt: &mut Runtime, name: &str, args: &Args<'_>, unbatched: usize) -> Result<Out> {
    let x = args.tensor(0)?;
    if x.rank() < 2 {
        return Err(error::wrong_rank(name, 0, x, "samples and channels", "give `(n, c, ...)`"));
    }
    let own = if x.rank() == unbatched { 1 } else { 2 };
    let mask: Vec<usize> =
        (x.shape().iter().enumerate()).map(|(i, &n)| if i < own { n } else { 1 }).collect();
    dropped(rt, name, args, &mask, args.get(3))
}

fn alpha_dropout(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, p) = (args.tensor(0)?, probability(1, args.float(1)?)?);
    if !args.flag(2) || p == 0.0 {
        return Ok(Out::Tensor(x.clone()));
    }
    if !x.dtype().is_float() && !x.dtype().is_complex() {
        return Err(error::floats_alone("alpha_dropout", 0, x));
    }
    if p == 1.0 {
        return call(rt, "mul", &[t(x), Arg::Int(0)]).map(Out::Tensor);
    }
    // The limit of `selu` at minus infinity.
    let low = -1.758_099_340_847_376_6;
    let scale = 1.0 / ((low * low * p + 1.0) * (1.0 - p)).sqrt();
    let drawn = uniform(rt, x, x.shape(), args.get(3))?;
    let out = formula(rt, |f| {
        let kept = f.select(&f.var(&drawn).ge(p), f.var(x).to(x.dtype().accumulator()), low);
        (kept * scale - low * scale * p).to(x.dtype())
    });
    out.map(Out::Tensor)
}

fn cosine_similarity(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "cosine_similarity";
    let (a, b, eps) = (args.tensor(0)?, args.tensor(1)?, args.get(3).clone());
    let dtype = promote(a.dtype(), b.dtype());
    if !dtype.is_float() {
        let (i, wrong) = if a.dtype().is_float() { (1, b) } else { (0, a) };
        return Err(error::floats_alone(NAME, i, wrong));
    }
    let Some(shape) = crate::array::broadcast(a.shape(), b.shape()) else {
        let why = "their shapes do not broadcast".into();
        return Err(error::matmul_shapes(NAME, (0, a), (1, b), why, "give vectors of one length"));
    };
    let (a, b) = (to(rt, a, dtype)?, to(rt, b, dtype)?);
    let (a, b) = (expand(rt, &a, &shape)?, expand(rt, &b, &shape)?);
    let dim = args.get(2).clone();
    let out = formula(rt, |f| {
        let unit = |x: &Tensor| {
            let norm = f.op("norm", &[t(x), Arg::Float(2.0), dim.clone(), Arg::Bool(true)]);
            // The bound has no gradient, as in PyTorch.
            let least = (norm.call("clamp_min", std::slice::from_ref(&eps)) - &norm).unary("detach");
            f.var(x) / (norm + least)
        };
        (unit(&a) * unit(&b)).call("sum", std::slice::from_ref(&dim))
    });
    out.map(Out::Tensor)
}

/// The products of queries and keys; `f32` for halves.
static SCORES: Op = Op {
    name: "attention_scores",
    params: &[X, Param::new("key", Kind::Tensor)],
    run: Run::Primitive(|rt, args| {
        let (a, b) = (args.tensor(0)?, args.tensor(1)?);
        let dtype = if a.dtype().is_half() { a.dtype().accumulator() } else { a.dtype() };
        matmul::product_in(rt, "scaled_dot_product_attention", ((0, a), (1, b)), dtype).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::OTHER, |b| {
        b.to(0, || b.g().to(b.x(1).dtype()).matmul(&b.x(1).adjoint()));
        b.to(1, || b.x(0).adjoint().matmul(&b.g().to(b.x(0).dtype())));
    }),
    ..Op::BASE
};

/// `softmax` over the last dimension, rounded to a dtype.
static WEIGHTS: Op = Op {
    name: "attention_weights",
    params: &[X, DTYPE],
    run: Run::Primitive(|rt, args| {
        let (x, dtype) = (args.tensor(0)?, args.dtype(1));
        let weights = unrecorded(rt, |rt| {
            let wide = call(rt, "softmax", &[t(x), Arg::Int(-1)])?;
            to(rt, &wide, dtype.unwrap_or(x.dtype()))
        });
        weights.map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::RESULT, |b| {
        b.to(0, || {
            let y = b.y().wide();
            let g = b.g().wide();
            // Rounded weights do not sum to exactly 1, and where one is nearly 1 the others would be lost in the
            // difference.
            let mean = (&g * &y).sum(&[-1], true) / y.sum(&[-1], true);
            y * (g - mean)
        });
    }),
    ..Op::BASE
};

fn attention(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "scaled_dot_product_attention";
    let (query, key, value) = (floats(args, NAME)?, args.tensor(1)?, args.tensor(2)?);
    for (i, x) in [query, key, value].into_iter().enumerate() {
        if x.rank() < 2 {
            return Err(error::wrong_rank(NAME, i, x, "rows", "give `(..., length, elements)`"));
        }
        if x.dtype() != query.dtype() {
            return Err(error::dtypes_differ(NAME, (0, query), (i, x)));
        }
    }
    let (mask, p, causal) = (args.opt_tensor(3), probability(4, args.float(4)?)?, args.flag(5));
    if mask.is_some() && causal {
        let help = "leave one of them out, or combine them: `mask & ones(l, s, dtype=bool).tril()`";
        return Err(error::bad_value(3, "a mask together with `is_causal`", help));
    }
    let width = query.shape()[query.rank() - 1];
    let scale = if args.is_given(6) { args.float(6)? } else { 1.0 / (width.max(1) as f64).sqrt() };
    let (key, value) = match args.flag(7) {
        true => (of_groups(rt, NAME, query, (1, key))?, of_groups(rt, NAME, query, (2, value))?),
        false => (key.clone(), value.clone()),
    };
    let (rows, columns) = (query.shape()[query.rank() - 2], key.shape()[key.rank() - 2]);
    let causal_mask = match causal {
        true => {
            let shape = ints(&[rows, columns]);
            let all = call(rt, "ones", &[shape, Arg::Dtype(Dtype::Bool), Arg::Device(query.device())])?;
            Some(call(rt, "tril", &[t(&all)])?)
        }
        false => None,
    };
    let mask = causal_mask.as_ref().or(mask);
    let weights = formula(rt, |f| {
        // Scores may be large, and `exp` amplifies their errors.
        let (turned, dtype) = (f.var(&key).mt(), Arg::Dtype(query.dtype()));
        let turned = turned.arg();
        let scores = f.given(|rt| one(rt, &SCORES, &[t(query), turned.clone()])) * scale;
        let softmax = |scores: Var<'_>| {
            let args = [scores.arg(), dtype.clone()];
            f.given(|rt| one(rt, &WEIGHTS, &args))
        };
        let Some(mask) = mask else { return softmax(scores) };
        let mask = f.var(mask);
        let (scores, seen) = match mask.dtype() {
            Dtype::Bool => (f.select(&mask, &scores, f64::NEG_INFINITY), mask),
            _ => (&scores + mask.to(scores.dtype()), mask.ne(f64::NEG_INFINITY)),
        };
        // For a query without any visible key, the softmax of its row is undefined.
        let any = seen.call("any", &[Arg::Int(-1), Arg::Bool(true)]);
        let weights = softmax(f.select(&any, scores, 0.0));
        f.select(&any, weights, 0.0)
    })?;
    let weights = match p > 0.0 {
        true => {
            let given = [t(&weights), Arg::Float(p), Arg::Bool(true), args.get(8).clone()];
            call(rt, "dropout", &given)?
        }
        false => weights,
    };
    call(rt, "matmul", &[t(&weights), t(&value)]).map(Out::Tensor)
}

/// Repeats the heads (dimension -3) of keys or values to match the queries.
fn of_groups(rt: &mut Runtime, name: &str, query: &Tensor, (index, x): (usize, &Tensor)) -> Result<Tensor> {
    let heads = |x: &Tensor| x.rank().checked_sub(3).map(|at| x.shape()[at]);
    match (heads(query), heads(x)) {
        (Some(wanted), Some(own)) if own > 0 && wanted.is_multiple_of(own) => {
            let times = (wanted / own) as i64;
            call(rt, "repeat_interleave", &[t(x), Arg::Int(times), Arg::Int(-3)])
        }
        _ => {
            let help = "with `enable_gqa`, the number of heads, dimension -3, divides that of the queries";
            Err(error::matmul_shapes(
                name,
                (0, query),
                (index, x),
                "the heads do not form groups".into(),
                help,
            ))
        }
    }
}

/// The operand of a shuffle: its leading dimensions, and channels, height and width.
fn image<'a>(args: &Args<'a>, name: &str) -> Result<(&'a [usize], [usize; 3])> {
    let x = args.tensor(0)?;
    match x.shape().split_last_chunk::<3>() {
        Some((lead, last)) => Ok((lead, *last)),
        None => Err(error::wrong_rank(name, 0, x, "an image", "give `(..., c, h, w)`")),
    }
}

/// The factor of a shuffle.
fn factor(args: &Args<'_>) -> Result<usize> {
    let factor = usize::try_from(args.int(1)?).ok().filter(|&r| r > 0 && r < 1 << 16);
    match factor {
        Some(factor) => Ok(factor),
        None => Err(error::bad_value(1, format!("a factor of {}", args.int(1)?), "write 1 or more")),
    }
}

fn uneven(size: usize, parts: usize) -> crate::base::Error {
    error::bad_value(1, format!("{size} is not divisible by {parts}"), "write another factor")
}

fn renorm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let (x, p, most) = (args.tensor(0)?, args.float(1)?, args.float(3)?);
    if x.rank() < 2 {
        return Err(error::wrong_rank("renorm", 0, x, "two dimensions or more", "write `x.unsqueeze(0)`"));
    }
    if !x.dtype().is_float() && !x.dtype().is_complex() {
        return Err(error::needs_float("renorm", x));
    }
    let dim = dims::one(2, args.int(2)?, x.rank())?;
    if p.is_nan() || p <= 0.0 {
        return Err(error::bad_value(1, format!("a norm of order {p}"), "write a number above 0"));
    }
    if most.is_nan() || most < 0.0 {
        return Err(error::bad_value(3, format!("a largest norm of {most}"), "write 0 or more"));
    }
    // No norm is larger, and the gradient of the unused scale would be the product of 0 and infinity.
    if most.is_infinite() {
        let y = call(rt, "clone", &[t(x)])?;
        return call(rt, "contiguous", &[t(&y)]).map(Out::Tensor);
    }
    let others = (0..x.rank()).filter(|&other| other != dim).map(|other| other as i64).collect();
    let real = x.dtype().real();
    let out = formula(rt, |f| {
        let x = f.var(x);
        let dtype = if real.is_half() { Arg::Dtype(real.accumulator()) } else { Arg::None };
        let norm = [Arg::Float(p), Arg::Ints(others), Arg::Bool(true), dtype];
        let over = x.call("norm", &norm).call("gt", &[Arg::Float(most)]);
        // Slices that keep their elements have no part in the norms, which may have no derivative there.
        let norm = f.select(&over, &x, 1.0).call("norm", &norm);
        // PyTorch adds the same epsilon.
        let scale = f.select(&over, (norm + 1e-7).unary("reciprocal") * most, 1.0);
        x.clone() * scale.to(real)
    });
    call(rt, "contiguous", &[t(&out?)]).map(Out::Tensor)
}
