//! What every other room stands on: places in source text, and errors.
//!
//! Knows nothing of tensors, devices or the language. Uses `std` only.

mod error;
mod names;
pub mod reclaim;
mod span;
pub mod stop;

pub use error::{Code, Error, ErrorKind, Label, Place, Remark, Result, Site, this_is};
pub use names::{bytes_text, counted, suggest};
pub use span::{SourceId, SourceMap, Span};
