//! Runnel: a tensor scripting language with PyTorch's CUDA semantics and without its traps.

pub mod array;
pub mod base;
pub mod check;
pub mod device;
pub mod engine;
pub mod kernel;
pub mod library;
pub mod ops;
pub mod plan;
pub mod syntax;
pub mod tensor;
pub mod vm;
