//! Mixed precision: the dtype of each operation inside `autocast`.
//!
//! PyTorch's lists. Products run in the lower dtype; operations that lose precision in it run in `f32`; other
//! operations keep the dtypes of their operands. Only floats other than `f64` are converted. Source:
//! <https://pytorch.org/docs/stable/amp.html#autocast-op-reference>

use super::{Arg, Args, Call, Op, Out, apply, composed};
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::DeviceId;
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// Products: they run in the lower dtype.
const LOWER: &[&str] = &[
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "addbmm",
    "baddbmm",
    "linear",
    "einsum",
    "prelu",
    "scaled_dot_product_attention",
];

/// Operations that run in the lower dtype on CUDA devices only.
const LOWER_ON_CUDA: &[&str] = &["mv", "addmv", "addr"];

/// Operations of one dtype that run in the widest dtype of their operands on CUDA devices: `f32` beside a half.
const WIDEST: &[&str] = &["bilinear", "cross", "dot", "inner", "scatter_add", "tensordot", "vdot"];

/// The same on the host. `cat` and `stack` promote themselves.
const WIDEST_ON_CPU: &[&str] = &["index_copy"];

/// Operations that run in `f32` on the host, in addition to `fft.*`.
const WIDE_ON_CPU: &[&str] = &["cdist", "nanquantile", "polar", "prod", "quantile", "trace"];

/// Operations that run in `f32` on CUDA devices.
const WIDE: &[&str] = &[
    "acos",
    "asin",
    "cdist",
    "cosh",
    "cosine_similarity",
    "cumprod",
    "cumsum",
    "dist",
    "erfinv",
    "exp",
    "expm1",
    "group_norm",
    "layer_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logsumexp",
    "norm",
    "normalize",
    "pow",
    "prod",
    "reciprocal",
    "renorm",
    "rms_norm",
    "rsqrt",
    "sinh",
    "softmax",
    "softmin",
    "softplus",
    // PyTorch computes it by `pow`.
    "square",
    "sum",
    "tan",
];

/// The dtype that an operation's operands are converted to.
fn cast_dtype(op: &Op, call: &Call<'_>, lower: Dtype, device: DeviceId) -> Option<Dtype> {
    let on_cpu = device == DeviceId::Cpu;
    if LOWER.contains(&op.name) || !on_cpu && LOWER_ON_CUDA.contains(&op.name) {
        return Some(lower);
    }
    let is_wide = match on_cpu {
        // PyTorch's list for the CPU has no elementwise functions.
        true => WIDE_ON_CPU.contains(&op.name) || op.name.starts_with("fft.") || repeats_edges(op, call),
        false => WIDE.contains(&op.name) || divides_number(op, call),
    };
    is_wide.then_some(Dtype::F32)
}

/// `2 / x`, which PyTorch computes by `reciprocal`.
fn divides_number(op: &Op, call: &Call<'_>) -> bool {
    op.name == "div"
        && match call {
            Call::Plain(args) => !matches!(args.get(0), Arg::Tensor(_)),
            Call::Operands(operands) => !matches!(operands.first(), Some(MapArg::Tensor(_))),
            Call::InPlace(_) => false,
        }
}

/// `pad` by other modes than "constant" and "circular", which are functions of their own in PyTorch.
fn repeats_edges(op: &Op, call: &Call<'_>) -> bool {
    let Call::Plain(args) = call else { return false };
    let is_mode = |mode: &Arg| matches!(mode, Arg::Str(mode) if matches!(&**mode, "reflect" | "replicate"));
    op.name == "pad" && args.0.iter().any(is_mode)
}

/// `inner` of two vectors, which PyTorch computes by `dot`.
fn is_dot(op: &Op, call: &Call<'_>) -> bool {
    let Call::Plain(args) = call else { return false };
    op.name == "inner" && tensors(args).all(|x| x.rank() < 2)
}

fn is_converted(tensor: &Tensor, dtype: Dtype) -> bool {
    tensor.dtype().is_float() && tensor.dtype() != Dtype::F64 && tensor.dtype() != dtype
}

/// The dtype of the result of an operation that computes halves in `f32` itself: `f32` inside `autocast`.
pub(super) fn wide_result(rt: &Runtime, x: &Tensor) -> Dtype {
    let is_on = rt.settings.autocast.of(x.device()).is_some();
    if is_on && is_converted(x, Dtype::F32) { Dtype::F32 } else { x.dtype() }
}

/// Applies an operation with converted operands; `None` if no operand is converted.
pub(super) fn apply_cast(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Option<Out>> {
    let first = match &call {
        Call::Plain(args) => (args.0.iter()).find_map(|arg| match arg {
            Arg::Tensor(tensor) => Some(tensor.device()),
            Arg::Tensors(tensors) => tensors.first().map(Tensor::device),
            _ => None,
        }),
        Call::Operands(operands) => operands.iter().find_map(|operand| match operand {
            MapArg::Tensor(tensor) => Some(tensor.device()),
            _ => None,
        }),
        Call::InPlace(_) => None,
    };
    let Some(device) = first else { return Ok(None) };
    let Some(lower) = rt.settings.autocast.of(device) else { return Ok(None) };
    let on_cpu = device == DeviceId::Cpu;
    if on_cpu && (LOWER_ON_CUDA.contains(&op.name) || is_dot(op, &call)) {
        return as_is(rt, op, call).map(Some);
    }
    let widest = if on_cpu { WIDEST_ON_CPU } else { WIDEST };
    if widest.contains(&op.name) {
        return at_widest(rt, op, call).map(Some);
    }
    let Some(dtype) = cast_dtype(op, &call, lower, device) else { return Ok(None) };
    if let Call::Plain(args) = &call
        && let Some(param) = op.params.iter().position(|param| param.name == "dtype")
    {
        return with_dtype(rt, op, args, param, dtype);
    }
    match call {
        Call::Plain(args) => {
            if !tensors(&args).any(|tensor| is_converted(tensor, dtype)) {
                return Ok(None);
            }
            let cast = cast_args(rt, &args, dtype)?;
            apply::again(rt, op, Call::Plain(Args(&cast))).map(Some)
        }
        Call::Operands(operands) => {
            let mut cast: SmallVec<[Option<Tensor>; 2]> = SmallVec::new();
            for operand in operands {
                cast.push(match operand {
                    MapArg::Tensor(tensor) if is_converted(tensor, dtype) => {
                        Some(converted(rt, tensor, dtype)?)
                    }
                    _ => None,
                });
            }
            if cast.iter().all(Option::is_none) {
                return Ok(None);
            }
            let operands: SmallVec<[MapArg<'_>; 2]> = (cast.iter().zip(operands))
                .map(|(tensor, operand)| tensor.as_ref().map_or(*operand, MapArg::Tensor))
                .collect();
            apply::again(rt, op, Call::Operands(&operands)).map(Some)
        }
        Call::InPlace(_) => Ok(None),
    }
}

/// Applies an operation that is composed of products, which must not convert again.
fn as_is(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    let before = std::mem::take(&mut rt.settings.autocast);
    let out = apply::again(rt, op, call);
    rt.settings.autocast = before;
    out
}

/// Applies an operation of [`WIDEST`].
fn at_widest(rt: &mut Runtime, op: &'static Op, call: Call<'_>) -> Result<Out> {
    match call {
        Call::Plain(args) if tensors(&args).any(|tensor| tensor.dtype() == Dtype::F32) => {
            let cast = cast_args(rt, &args, Dtype::F32)?;
            as_is(rt, op, Call::Plain(Args(&cast)))
        }
        _ => as_is(rt, op, call),
    }
}

/// Arguments whose tensors are converted.
fn cast_args(rt: &mut Runtime, args: &Args<'_>, dtype: Dtype) -> Result<SmallVec<[Arg; 4]>> {
    let mut cast = SmallVec::new();
    for arg in args.0 {
        cast.push(match arg {
            Arg::Tensor(tensor) => Arg::Tensor(converted(rt, tensor, dtype)?),
            Arg::Tensors(all) => {
                let all: Result<Vec<Tensor>> = all.iter().map(|t| converted(rt, t, dtype)).collect();
                Arg::Tensors(all?)
            }
            other => other.clone(),
        });
    }
    Ok(cast)
}

/// Applies an operation that converts its operand itself, unless the caller has chosen the dtype.
fn with_dtype(
    rt: &mut Runtime,
    op: &'static Op,
    args: &Args<'_>,
    param: usize,
    dtype: Dtype,
) -> Result<Option<Out>> {
    if args.is_given(param) || !tensors(args).any(|tensor| is_converted(tensor, dtype)) {
        return Ok(None);
    }
    let mut cast: SmallVec<[Arg; 4]> = args.0.iter().cloned().collect();
    cast[param] = Arg::Dtype(dtype);
    apply::again(rt, op, Call::Plain(Args(&cast))).map(Some)
}

fn tensors<'a>(args: &Args<'a>) -> impl Iterator<Item = &'a Tensor> {
    args.0.iter().flat_map(|arg| match arg {
        Arg::Tensor(tensor) => std::slice::from_ref(tensor),
        Arg::Tensors(tensors) => tensors,
        _ => &[],
    })
}

fn converted(rt: &mut Runtime, tensor: &Tensor, dtype: Dtype) -> Result<Tensor> {
    match is_converted(tensor, dtype) {
        true => composed::call(rt, "to", &[Arg::Tensor(tensor.clone()), Arg::Dtype(dtype)]),
        false => Ok(tensor.clone()),
    }
}
