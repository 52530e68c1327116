//! What colours the output of scripts may carry.

/// The colours that whoever shows a script's output understands; plots in a terminal use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Colors {
    /// Text alone.
    #[default]
    None,
    /// Escape sequences for 256 colours.
    Indexed,
    /// Escape sequences for 24-bit colours.
    Full,
}
