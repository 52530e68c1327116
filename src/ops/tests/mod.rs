//! Operations against naive references, over dtypes, layouts, edge shapes and errors.

mod elementwise;
mod index;
mod matmul;
mod reduce;
mod shape;
mod sort;
mod table;
mod transfer;
