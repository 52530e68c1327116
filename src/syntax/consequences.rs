//! Which errors of a text are there only because of another one.
//!
//! Whoever finds an error says what it does to the text around it ([`Role`]); nothing here reads what errors say.
//! Invariant: an error that is dropped causes no other to be dropped.

use super::error;
use crate::base::{Error, Span};

/// An error, and what it is to those around it.
#[derive(Debug)]
pub struct Finding {
    /// What is reported.
    pub error: Error,
    /// What it causes, and may be caused by.
    pub role: Role,
}

/// What an error is to those around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It causes no other, and no other causes it.
    Alone,
    /// A token that does not fit where it stands.
    Unexpected,
    /// A bracket that is never closed: what stands between it and that position was read as its contents.
    Unclosed {
        /// A position in the sources.
        until: u32,
    },
    /// A bracket that closes nothing.
    Unopened,
    /// A `for` that counts as in another language: neither brackets nor tokens of its line mean what they should.
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

/// The errors that no other one before them causes. The findings stand in the order of the text, which begins at the
/// position `base`.
pub fn causes(findings: Vec<Finding>, base: u32, text: &str) -> Vec<Error> {
    let line_end = |at: u32| {
        let rest = text.get((at - base) as usize..).unwrap_or("");
        at + rest.find('\n').unwrap_or(rest.len()) as u32
    };
    // From where to where tokens, and from where to where brackets, are wrong because of something before.
    let (mut tokens, mut brackets): (Vec<[u32; 2]>, Vec<[u32; 2]>) = Default::default();
    let mut kept = Vec::new();
    let mut before = Span::NONE;
    for Finding { error, role } in findings {
        let at = error.span().lo;
        // What is wrong with characters comes first: a token that stands in their place says nothing new.
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
