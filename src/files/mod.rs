//! Files: their formats, and the errors about them.

pub mod error;
#[cfg(feature = "files")]
mod formats;
pub mod pickle;

#[cfg(feature = "files")]
pub use formats::*;
