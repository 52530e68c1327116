//! Activations of halves. On CUDA devices they take fewer instructions, without branches, and have enough digits for a half
//! (`kernels/functions.cuh`). On the host they are the functions of floats.

use super::activation::{GELU, GELU_TANH, SILU};
use super::elementary::{SIGMOID, TANH};
use super::{Args, MapOp, Rule};
use crate::base::Result;
use crate::kernel::{CudaText, MapFn};

pub(super) static SIGMOID_HALF: MapFn =
    MapFn { name: "sigmoid_half", cuda: CudaText { f32: "sigmoid_half_of(a)", ..SIGMOID.cuda }, ..SIGMOID };

pub(super) static TANH_HALF: MapFn =
    MapFn { name: "tanh_half", cuda: CudaText { f32: "tanh_half_of(a)", ..TANH.cuda }, ..TANH };

pub(super) static SILU_HALF: MapFn =
    MapFn { name: "silu_half", cuda: CudaText { f32: "(a * sigmoid_half_of(a))", ..SILU.cuda }, ..SILU };

pub(super) static GELU_HALF: MapFn =
    MapFn { name: "gelu_half", cuda: CudaText { f32: "gelu_half_of(a)", ..GELU.cuda }, ..GELU };

pub(super) static GELU_TANH_HALF: MapFn = MapFn {
    name: "gelu_tanh_half",
    cuda: CudaText { f32: "gelu_tanh_half_of(a)", ..GELU_TANH.cuda },
    ..GELU_TANH
};

/// The form of a function for the dtype of the operand.
pub(super) fn for_dtype(args: &Args<'_>, full: &'static MapFn, half: &'static MapFn) -> Result<MapOp> {
    let f = if args.tensor(0)?.dtype().is_half() { half } else { full };
    Ok(MapOp { rule: Rule::Float, f })
}
