//! Parameter lists shared by many operations.

use super::signature::{Default, Kind, Param};

/// `(x)`
pub const UNARY: &[Param] = &[Param::new("x", Kind::Tensor)];

/// `(x, other)`; either may be a number.
pub const BINARY: &[Param] = &[X_OR_NUMBER, Param::new("other", Kind::TensorOrNumber)];

/// The first operand.
pub const X: Param = Param::new("x", Kind::Tensor);

/// The first operand, which may be a number.
pub const X_OR_NUMBER: Param = Param::new("x", Kind::TensorOrNumber);

/// The dimension, by default the first.
pub const FIRST_DIM: Param = Param::or("dim", Kind::Int, Default::Int(0));

/// `dtype=none`
pub const DTYPE: Param = Param::named("dtype", Kind::Dtype, Default::None);

/// `device=none`
pub const DEVICE: Param = Param::named("device", Kind::Device, Default::None);

/// `generator=none`
pub const GENERATOR: Param = Param::named("generator", Kind::Generator, Default::None);

/// `requires_grad=false`, the last parameter of operations that create tensors.
pub const REQUIRES_GRAD: Param = Param::named("requires_grad", Kind::Bool, Default::Bool(false));
