//! Text to tree: tokens, the grammar's glue, the tree, readable syntax errors.

pub mod ast;
