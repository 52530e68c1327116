//! Removes errors that are only consequences of other errors.
//!
//! The code that finds an error states its effect on the surrounding text ([`Role`]); messages are not
//! inspected here. Invariant: a removed error does not cause others to be removed.

use super::error;
use crate::base::{Error, Span};

/// An error, and its effect on others.
#[derive(Debug)]
pub struct Finding {
    /// The reported error.
    pub error: Error,
    /// The errors that it causes, and may be caused by.
    pub role: Role,
}

/// The effect of an error on others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It causes no other, and no other causes it.
    Alone,
    /// A token that does not fit at its position.
    Unexpected,
    /// An unclosed bracket: the text up to `until` was read as its contents.
    Unclosed {
        /// A position in the sources.
        until: u32,
    },
    /// A closing bracket without an opening one.
    Unopened,
    /// A counting `for` as in another language: brackets and tokens of its line are misread.
    CountingLoop,
}

impl From<Error> for Finding {
    fn from(error: Error) -> Finding {
        let role = match std::ptr::eq(error.code(), &error::UNEXPECTED) {
            true => Role::Unexpected,
            false => Role::Alone,
        };
        Finding { error, role }
    }
}

/// Returns the errors that are not consequences of earlier ones. The findings are sorted by position in the
/// text, which begins at the position `base`.
pub fn causes(findings: Vec<Finding>, base: u32, text: &str) -> Vec<Error> {
    let line_end = |at: u32| {
        let rest = text.get((at - base) as usize..).unwrap_or("");
        at + rest.find('\n').unwrap_or(rest.len()) as u32
    };
    // The ranges where tokens, and where brackets, are wrong because of an earlier error.
    let (mut tokens, mut brackets): (Vec<[u32; 2]>, Vec<[u32; 2]>) = Default::default();
    let mut kept = Vec::new();
    let mut before = Span::NONE;
    for Finding { error, role } in findings {
        let at = error.span().lo;
        // Errors about characters come first: a token in their place adds nothing.
        let told = std::mem::replace(&mut before, error.span());
        if told == error.span() && !told.is_none() {
            continue;
        }
        let within = |ranges: &[[u32; 2]]| ranges.iter().any(|[lo, hi]| (*lo..=*hi).contains(&at));
        let follows = match role {
            Role::Alone | Role::CountingLoop => false,
            Role::Unexpected => within(&tokens),
            Role::Unclosed { .. } | Role::Unopened => within(&brackets),
        };
        if follows {
            continue;
        }
        match role {
            Role::Alone | Role::Unexpected | Role::Unopened => {}
            Role::Unclosed { until } => tokens.push([at, until]),
            Role::CountingLoop => {
                brackets.push([at, line_end(at)]);
                tokens.push([at, line_end(at)]);
            }
        }
        kept.push(error);
    }
    kept
}
