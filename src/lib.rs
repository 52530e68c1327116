//! Runnel: a tensor scripting language with PyTorch's CUDA semantics and without its traps.

pub mod base;
pub mod syntax;
