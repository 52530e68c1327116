//! The format that the allocator writes.

#[allow(dead_code)]
#[path = "../../src/files/pickle.rs"]
pub mod pickle;
