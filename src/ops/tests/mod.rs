//! Operations against naive references, over dtypes, layouts, edge shapes and errors.

mod compose;
mod einsum;
mod elementwise;
mod factory;
mod index;
mod matmul;
mod random;
mod random_laws;
mod reduce;
mod shape;
mod sort;
mod table;
mod transfer;
