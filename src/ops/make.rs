//! Tensors that operations create internally: constants and positions.

use crate::array::{Dims, Dtype, Layout, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::host::define::{host_binary, host_ternary};
use crate::kernel::host::quotients::digits;
use crate::kernel::{CAST, CudaText, MapFn};
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::tensor::Tensor;

/// A tensor filled with one value.
pub fn filled(
    rt: &mut Runtime,
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
    value: Scalar,
) -> Result<Tensor> {
    rt.map_over(
        Elementwise::new("full", &CAST, &[MapArg::Number(value)], dtype, dtype),
        Dims::from_slice(shape),
        device,
    )
}

/// A new dense tensor in another shape: itself, if it has that shape already.
pub fn in_shape(new: Tensor, shape: &Dims) -> Tensor {
    if new.shape() == shape { new } else { new.with_layout(Layout::contiguous(shape)) }
}

/// `start + i * step` for `i` in `0..count`, `i64`.
pub fn positions(rt: &mut Runtime, device: DeviceId, count: usize, start: i64, step: i64) -> Result<Tensor> {
    let args = [MapArg::Position, MapArg::Number(Scalar::Int(step)), MapArg::Number(Scalar::Int(start))];
    rt.map_over(
        Elementwise::new("positions", &AFFINE, &args, Dtype::I64, Dtype::I64),
        Dims::from_slice(&[count]),
        device,
    )
}

/// `a * b + c` over integers, wrapping.
pub static AFFINE: MapFn = MapFn {
    name: "affine",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)((u64)a * (u64)b + (u64)c)" },
    host: host_ternary!(i64: |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
    complex: None,
};

/// `(a / b) % c` over integers: one coordinate of a row-major position. 0 if a divisor is 0.
pub static DIGIT: MapFn = MapFn {
    name: "digit",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "((b == 0 || c == 0) ? 0 : (a / b) % c)" },
    host: &digits,
    complex: None,
};

/// A position, counted from the start; a negative one counts from the end of an extent. Positions out of
/// range become 0.
pub static WRAPPED: MapFn = MapFn {
    name: "wrapped",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "((a < -b || a >= b) ? 0 : (a < 0 ? a + b : a))" },
    host: host_binary!(i64: |a, b| {
        if a < b.wrapping_neg() || a >= b { 0 } else if a < 0 { a.wrapping_add(b) } else { a }
    }),
    complex: None,
};
