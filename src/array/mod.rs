//! Arrays as arithmetic: element types, promotion, shapes, strides. Pure and total.
//!
//! Independent of memory, devices and operations.

mod dtype;
mod element;
mod layout;
mod order;
mod promote;
mod scalar;

pub use dtype::{Class, Dtype};
pub(crate) use dtype::{dispatch, for_integers};
pub(crate) use element::Convert;
pub use element::{Bool, Element};
pub use layout::{
    Dims, Layout, Strides, broadcast, contiguous_strides, copied, element_count, same, shape_text,
};
pub use order::{joined_layout, result_strides, stacked_layout};
pub use promote::{Operand, promote, result_type};
pub use scalar::Scalar;
