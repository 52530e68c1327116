//! The foundation of all other modules: source positions and errors.
//!
//! Independent of tensors, devices and the language. Uses only `std`, and system calls for the bounds of a
//! stack.

mod error;
pub mod guard;
mod json;
#[cfg(test)]
#[path = "../../tests/common/long.rs"]
pub(crate) mod long;
mod names;
pub mod reclaim;
pub mod room;
mod span;
pub mod stack;
pub mod stop;

pub use error::{Code, Error, ErrorKind, Label, Piece, Place, Remark, Result, Site, this_is};
pub use json::quoted;
pub use names::{bytes_from, bytes_text, counted, suggest};
pub use span::{Source, SourceId, SourceMap, Span};
