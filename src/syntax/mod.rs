//! Parsing: tokens, the grammar's actions, the tree, readable syntax errors.
//!
//! The entry point is [`parse()`]. Operations, devices and values are unknown here; names are only strings.

pub mod ast;
#[cfg(test)]
mod bound_tests;
mod classify;
mod consequences;
pub mod error;
#[cfg(test)]
mod error_tests;
mod explain;
mod format;
mod habits;
mod literal;
mod parse;
mod parts;
mod scan;
#[cfg(test)]
mod sexpr;
#[cfg(test)]
mod shape_tests;
pub mod tokens;
mod tree;

lalrpop_util::lalrpop_mod!(
    #[allow(clippy::all, clippy::unwrap_used, unused, reason = "generated")]
    grammar,
    "/runnel.rs"
);

pub use classify::{Class, classify};
pub use format::format;
pub use parse::{Parsed, parse, parse_within};
pub use parts::{Part, parts};
pub use scan::{Ended, MAX_OPEN};
pub use tree::MAX_DEPTH;

/// True if `text` can name a variable: an identifier that is not reserved.
pub fn is_name(text: &str) -> bool {
    use logos::Logos;
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c));
    let reserved = || {
        if tokens::is_dtype(text) {
            return true;
        }
        let mut lexer = tokens::T::lexer(text);
        lexer.next().is_some_and(|t| t.is_ok_and(tokens::T::is_reserved)) && lexer.next().is_none()
    };
    starts && chars.all(unicode_ident::is_xid_continue) && !reserved()
}

/// The text of a source file.
///
/// # Errors
///
/// E0113, with the first byte that is not UTF-8. It has no span, because such bytes are not in a source map.
pub fn decode(bytes: &[u8]) -> crate::base::Result<&str> {
    std::str::from_utf8(bytes).map_err(|fault| {
        let offset = fault.valid_up_to();
        let good = std::str::from_utf8(&bytes[..offset]).unwrap_or_default();
        let line = good.matches('\n').count() + 1;
        let column = good.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        error::not_utf8(bytes[offset], offset, line, column)
    })
}
