//! Operations: one operation is one value, in one place.

pub mod signature;
