//! The one face for programs that embed Runnel.

pub mod report;
