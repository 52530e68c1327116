//! Explains a syntax error: what was expected, what was found, and what was probably intended.

use super::consequences::Finding;
use super::error;
use super::habits::{self, Unexpected};
use super::tokens::{T, Token};
use crate::base::{Error, Span};

/// The error for a failure of the grammar at token `index`. `expected` are the terminals accepted there;
/// `last` means that no tokens follow.
pub fn explain(
    base: u32,
    text: &str,
    tokens: &[Token],
    index: usize,
    expected: &[String],
    last: bool,
) -> Finding {
    let expected = Expected::new(expected);
    let end = tokens.last().map_or(0, |t| t.hi);
    let (kind, lo, hi) = tokens.get(index).map_or((None, end, end), |t| (Some(t.kind), t.lo, t.hi));
    let span = Span::new(base + lo, base + hi);
    if kind == Some(T::InterpClose) && index > 0 && tokens[index - 1].kind == T::InterpOpen {
        return error::empty_interpolation(Span::new(base + tokens[index - 1].lo, base + hi)).into();
    }
    let head = statement_head(tokens, index);
    let advice = habits::advise(&Unexpected { text, tokens, index, expected: &expected, head });
    let mut help = None;
    if let Some(advice) = advice {
        if let Some(message) = advice.message {
            let place = tokens.get(advice.at).map_or(span, |t| Span::new(base + t.lo, base + t.hi));
            let error = error::other_language(place, &message, &advice.help);
            return Finding { error, role: advice.role };
        }
        help = Some(advice.help);
    }
    let error = plain(base, text, tokens, index, &expected, last);
    let ends = expected.has("newline") && !expected.has("let");
    let error = match (error.help_text(), help) {
        (Some(_), _) => error,
        (None, Some(help)) => error.help(help),
        (None, None) if ends && kind.is_some_and(T::begins_value) => {
            error.help("put an operator or a comma between the two, or begin a new line")
        }
        (None, None) => error,
    };
    error.into()
}

/// The start of the innermost statement around a token.
fn statement_head(tokens: &[Token], index: usize) -> usize {
    let mut depth = 0;
    for i in (0..index.min(tokens.len())).rev() {
        match tokens[i].kind {
            T::RParen | T::RBracket | T::RBrace | T::InterpClose => depth += 1,
            T::LParen | T::LBracket | T::InterpOpen => depth = std::cmp::max(depth - 1, 0),
            T::LBrace if depth == 0 => return i + 1,
            T::LBrace => depth -= 1,
            T::Newline | T::Semi if depth == 0 => return i + 1,
            _ => {}
        }
    }
    0
}

/// The error in the grammar's own terms.
fn plain(
    base: u32,
    text: &str,
    tokens: &[Token],
    index: usize,
    expected: &Expected<'_>,
    last: bool,
) -> Error {
    let end = tokens.last().map_or(0, |t| t.hi);
    let (kind, lo, hi) = tokens.get(index).map_or((None, end, end), |t| (Some(t.kind), t.lo, t.hi));
    let span = Span::new(base + lo, base + hi);
    if kind.is_none() && last && tokens.last().is_some_and(|t| !t.kind.can_end()) {
        return error::ends_early(span, &expected.words());
    }
    let names_value = tokens.get(index + 1).is_some_and(|t| t.kind == T::Eq) && expected.has("match");
    if kind.is_some_and(T::is_reserved) && (expected.is_name() || names_value) {
        return error::reserved_name(span, &text[lo as usize..hi as usize]);
    }
    let found = match kind {
        None if last => "the end of the program".to_string(),
        None | Some(T::Newline) => "the end of the line".to_string(),
        Some(kind) => token_text(kind, &text[lo as usize..hi as usize]),
    };
    error::unexpected(span, &expected.words(), &found)
}

fn token_text(kind: T, text: &str) -> String {
    match kind {
        T::StrOpen | T::RawOpen | T::Text | T::RawText => "a string".to_string(),
        T::StrClose => "the end of the string".to_string(),
        _ => format!("`{}`", error::shortened(text)),
    }
}

/// The terminals accepted at the position of an error.
pub struct Expected<'e> {
    terminals: &'e [String],
}

impl<'e> Expected<'e> {
    fn new(terminals: &'e [String]) -> Expected<'e> {
        Expected { terminals }
    }

    /// True if this terminal, spelt as in the grammar, is accepted.
    pub fn has(&self, terminal: &str) -> bool {
        self.terminals.iter().any(|t| t.trim_matches('"') == terminal)
    }

    /// True if only a name or a pattern is accepted.
    fn is_name(&self) -> bool {
        self.has("name") && !self.has("match")
    }

    /// True if a pattern is accepted.
    pub fn is_pattern(&self) -> bool {
        self.has("name") && self.has("int") && !self.has("match")
    }

    /// Describes them: ``an expression or `)` ``.
    fn words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        let kinds = [
            ("a statement", self.has("let")),
            ("an expression", self.has("match") && !self.has("let")),
            ("a pattern", self.is_pattern()),
            ("a name", self.has("name") && !self.has("int")),
            ("a string", self.has("str_open") && !self.has("int")),
            ("the end of the statement", self.has("newline") && !self.has("let")),
        ];
        words.extend(kinds.iter().filter(|k| k.1).map(|k| k.0.to_string()));
        let starts_expression = self.has("match");
        for mark in ["{", "=", "=>", ",", ")", "]", "}", "in", "catch", "("] {
            // A bracket that begins an expression or a call is implied.
            let said = match mark {
                "{" | "(" => starts_expression || self.has("name") || (mark == "(" && self.has("+")),
                "=" => self.has("newline") || self.has("match"),
                "in" => self.has("=="),
                _ => false,
            };
            if self.has(mark) && !said {
                words.push(format!("`{mark}`"));
            }
        }
        if self.has("interp_close") {
            words.push("`}`".to_string());
        }
        if words.is_empty() && self.has("+") {
            words.push("an operator".to_string());
        }
        words.truncate(4);
        match words.as_slice() {
            [] => "something else".to_string(),
            [one] => one.clone(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    }
}
