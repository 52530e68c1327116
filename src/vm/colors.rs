//! The colours that script output may contain.

/// The colours that the display of a script's output understands; terminal plots use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Colors {
    /// No colours.
    #[default]
    None,
    /// Escape sequences for 256 colours.
    Indexed,
    /// Escape sequences for 24-bit colours.
    Full,
}
