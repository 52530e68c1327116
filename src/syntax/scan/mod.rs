//! The scanner: strings, numbers, lines and brackets, in one pass without recursion.
//!
//! Line rules: a line end ends a statement unless it is inside `( )` or `[ ]`, after a token that cannot end an
//! expression, or before `.name`, `|>`, `else` or `catch`. Invariant: brackets, interpolations and strings in the
//! result are balanced; missing ones are added as zero-width tokens and reported.

mod brackets;
mod strings;
mod words;

use super::consequences::{Finding, Role};
use super::error;
use super::tokens::{Comment, T, Token, is_dtype};
use crate::base::{Span, stop};
use logos::Logos;

/// Maximum number of open brackets.
pub const MAX_OPEN: usize = 200;

/// Maximum number of errors kept; a source may have millions.
const MAX_ERRORS: usize = 100;

/// The result of scanning.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The tokens that the grammar reads.
    pub tokens: Vec<Token>,
    /// The comments, in order.
    pub comments: Vec<Comment>,
    /// The errors of the text; spans include the base.
    pub errors: Vec<Finding>,
    /// True if the text ends inside a bracket or a `"""` string.
    pub open_end: bool,
    /// The reason why scanning stopped before the end of the text, if it did.
    pub ended: Option<Ended>,
}

/// The reason why a text was not read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// [`crate::base::stop`] requested it.
    Asked,
    /// Too many tokens.
    Tokens,
}

/// Tokens between two checks for interrupts and limits.
pub const STEPS: usize = 4096;

/// Scans a source whose first byte has the position `base`.
pub fn scan(base: u32, text: &str) -> Scanned {
    stop::masked(|| scan_within(base, text, usize::MAX))
}

/// As [`scan`], for at most `most` tokens, and only until the thread is asked to stop.
pub fn scan_within(base: u32, text: &str, most: usize) -> Scanned {
    let mut scanner = Scanner {
        base,
        text,
        raw: T::lexer(text),
        out: Scanned::default(),
        open: Vec::new(),
        line_end: None,
        line_strings: 0,
        suspect: None,
        stopped: false,
    };
    scanner.out.tokens.reserve((text.len() / 4 + 8).min(most));
    scanner.run(most);
    scanner.out
}

/// An open bracket, interpolation or string.
#[derive(Clone, Copy)]
struct Open {
    /// `LParen`, `LBracket`, `LBrace`, `InterpOpen`, `FormatColon`, `StrOpen` or `RawOpen`.
    kind: T,
    lo: u32,
    triple: bool,
}

struct Scanner<'s> {
    base: u32,
    text: &'s str,
    raw: logos::Lexer<'s, T>,
    out: Scanned,
    open: Vec<Open>,
    /// The first line end since the last token.
    line_end: Option<u32>,
    /// Number of open one-line strings.
    line_strings: usize,
    /// The first brace whose closing brace is further left than its line, and the closing one.
    suspect: Option<(u32, u32)>,
    stopped: bool,
}

impl Scanner<'_> {
    fn run(&mut self, most: usize) {
        if self.text.starts_with('\u{feff}') {
            self.go_to('\u{feff}'.len_utf8());
        }
        if self.raw.remainder().starts_with("#!") {
            let end = self.raw.remainder().find('\n').unwrap_or(self.raw.remainder().len());
            self.go_to(self.position() + end);
        }
        let mut steps = 0;
        while !self.stopped {
            steps += 1;
            if self.out.tokens.len() > most {
                self.out.ended = Some(Ended::Tokens);
                return;
            }
            if steps % STEPS == 0 && stop::reason().is_some() {
                self.out.ended = Some(Ended::Asked);
                return;
            }
            match self.open.last().copied() {
                Some(open) if matches!(open.kind, T::StrOpen | T::FormatColon) => self.characters(open),
                Some(open) if open.kind == T::RawOpen => self.raw_characters(open),
                _ => match self.raw.next() {
                    Some(Ok(kind)) => self.token(kind),
                    Some(Err(())) => self.unknown(),
                    None => break,
                },
            }
        }
        if !self.stopped {
            self.finish();
        }
    }

    fn position(&self) -> usize {
        self.raw.span().end
    }

    /// Continues at a byte offset, which must be a character boundary.
    fn go_to(&mut self, offset: usize) {
        self.raw.bump(offset - self.raw.span().end);
    }

    fn span(&self, lo: usize, hi: usize) -> Span {
        Span::new(self.base + lo as u32, self.base + hi as u32)
    }

    fn error(&mut self, finding: impl Into<Finding>) {
        if self.out.errors.len() < MAX_ERRORS {
            self.out.errors.push(finding.into());
        }
    }

    fn token(&mut self, kind: T) {
        let (lo, hi) = (self.raw.span().start, self.raw.span().end);
        match kind {
            T::Newline => self.newline(lo),
            T::Comment => self.out.comments.push(Comment { lo: lo as u32, hi: trimmed(self.text, lo, hi) }),
            T::Number => self.number(lo),
            T::StrOpen | T::RawOpen => {
                let triple = self.text[lo..hi].ends_with("\"\"\"");
                self.push(kind, lo, hi);
                self.open(kind, lo, triple);
            }
            T::LParen | T::LBracket | T::LBrace => {
                self.push(kind, lo, hi);
                self.open(kind, lo, false);
            }
            T::RParen | T::RBracket | T::RBrace => self.close(kind, lo, hi),
            T::Colon if self.open.last().is_some_and(|o| o.kind == T::InterpOpen) => {
                let triple = self.open.last().is_some_and(|o| o.triple);
                self.push(T::FormatColon, lo, hi);
                self.open.pop();
                self.open.push(Open { kind: T::FormatColon, lo: lo as u32, triple });
            }
            T::Semi => {
                // Empty statements are dropped.
                let last = self.out.tokens.last().map(|t| t.kind);
                if !self.bracket_allows_lines() {
                    self.close_before_statement(lo, lo);
                }
                if self.bracket_allows_lines() && matches!(last, None | Some(T::Semi | T::LBrace)) {
                    return;
                }
                self.push(kind, lo, hi);
            }
            T::SingleQuoted => {
                let span = self.span(lo, hi);
                let quoted = self.text[lo..hi].trim_matches('\'').to_string();
                self.error(error::single_quotes(span, &quoted));
                self.push(T::Bad, lo, hi);
            }
            T::Stray => self.stray(lo, hi),
            _ if self.text.as_bytes()[lo].is_ascii_alphabetic() || self.text.as_bytes()[lo] == b'_' => {
                self.word(kind, lo, hi);
            }
            _ => self.push(kind, lo, hi),
        }
    }

    /// True if no statement can end before the next token.
    fn line_goes_on(&self) -> bool {
        self.line_end.is_none() || !self.bracket_allows_lines()
    }

    /// True if line ends are significant: at the top level and directly inside braces.
    fn bracket_allows_lines(&self) -> bool {
        self.open.last().is_none_or(|o| o.kind == T::LBrace)
    }

    fn newline(&mut self, lo: usize) {
        if self.line_strings > 0 {
            self.end_line_string(lo);
        }
        if self.line_end.is_none() {
            self.line_end = Some(lo as u32);
        }
    }

    /// Appends a token, after the statement end before it.
    fn push(&mut self, kind: T, lo: usize, hi: usize) {
        let line_end = self.line_end.take();
        self.settle_range(kind, line_end.is_some());
        if let Some(end) = line_end {
            if starts_statement(kind) && !self.bracket_allows_lines() {
                self.close_before_statement(lo, end as usize);
            }
            let last = self.out.tokens.last().map(|t| t.kind);
            let goes_on = matches!(kind, T::Else | T::Catch | T::Dot | T::Pipe | T::RBrace | T::Semi);
            if self.bracket_allows_lines() && last.is_some_and(T::can_end) && !goes_on {
                self.out.tokens.push(Token { kind: T::Newline, lo: end, hi: end + 1 });
            }
        }
        self.out.tokens.push(Token { kind, lo: lo as u32, hi: hi as u32 });
    }
}

fn trimmed(text: &str, lo: usize, hi: usize) -> u32 {
    (lo + text[lo..hi].trim_end_matches('\r').len()) as u32
}

/// Keywords that can only begin a statement.
fn starts_statement(kind: T) -> bool {
    matches!(
        kind,
        T::Let | T::While | T::Import | T::Return | T::Break | T::Continue | T::Throw | T::Defer | T::Fn
    )
}
