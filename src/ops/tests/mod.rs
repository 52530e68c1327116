//! Operations against naive references, over dtypes, layouts, edge shapes and errors.

mod compose;
mod contract;
mod einsum;
mod elementwise;
mod factory;
mod index;
mod interpreted;
mod launches;
mod matmul;
mod random;
mod random_bounds;
mod random_laws;
mod ready;
mod reduce;
mod scatter;
mod shape;
mod sort;
mod statistics;
mod table;
mod transfer;
mod translated;
