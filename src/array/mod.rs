//! Arrays as arithmetic: element types, promotion, shapes, strides. Pure and total.
//!
//! Independent of memory, devices and operations.

mod dtype;
mod layout;
mod order;
mod promote;

pub use dtype::{Class, Dtype, Scalar};
pub use layout::{
    Dims, Layout, Strides, broadcast, contiguous_strides, copied, element_count, same, shape_text,
};
pub use order::result_strides;
pub use promote::{Operand, promote, result_type};
