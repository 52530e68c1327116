//! Text to tokens: strings, numbers, lines and brackets, all in one pass without recursion.
//!
//! Rules of lines (section 1.2 of the language): a line end ends a statement unless it stands inside
//! `( )` or `[ ]`, after a token that cannot end an expression, or before `.name`, `|>`, `else`
//! or `catch`. Invariant of the result: brackets, interpolations and strings are balanced; what the
//! source lacks is added as a token without width, and reported.

use super::error;
use super::tokens::{Comment, T, Token};
use crate::base::{Error, Span};
use logos::Logos;

/// How many brackets may be open at once.
pub const MAX_OPEN: usize = 200;

/// How many errors are kept; nobody reads more, and a text may hold millions.
const MAX_ERRORS: usize = 100;

/// What scanning gives.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The tokens that the grammar reads.
    pub tokens: Vec<Token>,
    /// The comments, in order.
    pub comments: Vec<Comment>,
    /// What is wrong with the text; spans have the base added.
    pub errors: Vec<Error>,
    /// True when the text ends inside a bracket or a `"""` string.
    pub open_end: bool,
}

/// Scans a source whose first byte has the position `base`.
pub fn scan(base: u32, text: &str) -> Scanned {
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
    scanner.out.tokens.reserve(text.len() / 4 + 8);
    scanner.run();
    scanner.out
}

/// A bracket, interpolation or string that is open.
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
    /// How many strings are open that must end on their line.
    line_strings: usize,
    /// The first brace whose closing one stands further left than its line, and that one.
    suspect: Option<(u32, u32)>,
    stopped: bool,
}

impl Scanner<'_> {
    fn run(&mut self) {
        if self.text.starts_with('\u{feff}') {
            self.go_to('\u{feff}'.len_utf8());
        }
        if self.raw.remainder().starts_with("#!") {
            let end = self.raw.remainder().find('\n').unwrap_or(self.raw.remainder().len());
            self.go_to(self.position() + end);
        }
        while !self.stopped {
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

    /// Continues at a byte offset, which must be a character's first.
    fn go_to(&mut self, offset: usize) {
        self.raw.bump(offset - self.raw.span().end);
    }

    fn span(&self, lo: usize, hi: usize) -> Span {
        Span::new(self.base + lo as u32, self.base + hi as u32)
    }

    fn error(&mut self, error: Error) {
        if self.out.errors.len() < MAX_ERRORS {
            self.out.errors.push(error);
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
                // Empty statements are no statements.
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

    /// A word: the whole identifier when it goes on outside of ASCII, a name after a `.`, a keyword
    /// of one position, or what it looks like.
    fn word(&mut self, kind: T, lo: usize, hi: usize) {
        let tail = identifier_length(self.raw.remainder());
        if tail > 0 {
            self.go_to(hi + tail);
            self.push(T::Name, lo, hi + tail);
            return;
        }
        let last = self.out.tokens.last().map(|t| t.kind);
        if last == Some(T::Dot) && self.line_end.is_none() {
            self.push(T::Name, lo, hi);
            return;
        }
        match kind {
            T::Cuda => {
                let rest = self.raw.remainder().as_bytes();
                let digits = rest.iter().skip(1).take_while(|b| b.is_ascii_digit()).count();
                if rest.first() == Some(&b':') && digits > 0 {
                    self.go_to(hi + 1 + digits);
                    self.push(kind, lo, hi + 1 + digits);
                    return;
                }
            }
            T::Name if &self.text[lo..hi] == "by" => {
                let after_operand = last.is_some_and(T::can_end) && self.line_goes_on();
                if after_operand {
                    self.push(T::By, lo, hi);
                    return;
                }
            }
            T::Name if &self.text[lo..hi] == "test" => {
                let after = self.raw.remainder().trim_start_matches([' ', '\t']);
                let starts =
                    self.line_end.is_some() || matches!(last, None | Some(T::Semi | T::LBrace | T::Newline));
                if starts
                    && self.bracket_allows_lines()
                    && (after.starts_with('"') || after.starts_with("r\""))
                {
                    self.push(T::Test, lo, hi);
                    return;
                }
            }
            _ => {}
        }
        self.push(kind, lo, hi);
    }

    /// True when no statement can end before the next token.
    fn line_goes_on(&self) -> bool {
        self.line_end.is_none() || !self.bracket_allows_lines()
    }

    /// True where line ends count: at the top and directly inside of braces.
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

    /// Puts a token out, after the statement end that precedes it.
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

    /// Decides, at the token after a `..`, whether that is its end.
    fn settle_range(&mut self, next: T, new_line: bool) {
        let statement_ends = new_line && self.bracket_allows_lines();
        if let Some(last) = self.out.tokens.last_mut()
            && last.kind == T::DotDot
            && (statement_ends || !next.can_end_range())
        {
            last.kind = T::DotDotOpen;
        }
    }

    fn open(&mut self, kind: T, lo: usize, triple: bool) {
        if self.open.len() >= MAX_OPEN {
            let span = self.span(lo, self.position());
            self.out.errors.clear();
            self.error(error::too_many_open(span, MAX_OPEN));
            self.out.tokens.clear();
            self.stopped = true;
            return;
        }
        if kind == T::StrOpen && !triple {
            self.line_strings += 1;
        }
        self.open.push(Open { kind, lo: lo as u32, triple });
    }

    fn pop(&mut self) {
        if let Some(Open { kind: T::StrOpen, triple: false, .. }) = self.open.pop() {
            self.line_strings -= 1;
        }
    }

    fn close(&mut self, kind: T, lo: usize, hi: usize) {
        let fits = |open: &Open| match kind {
            T::RParen => open.kind == T::LParen,
            T::RBracket => open.kind == T::LBracket,
            _ => matches!(open.kind, T::LBrace | T::InterpOpen),
        };
        // A closing bracket may close what it stands in past brackets that it outranks.
        let passes = |open: &Open| match kind {
            T::RBrace => matches!(open.kind, T::LParen | T::LBracket),
            _ => matches!(open.kind, T::LParen | T::LBracket) && !fits(open),
        };
        let passed = self.open.iter().rev().take_while(|o| passes(o)).count();
        let Some(index) = self.open.len().checked_sub(passed + 1).filter(|&i| fits(&self.open[i])) else {
            self.close_wrongly(lo, hi);
            return;
        };
        if passed > 0 {
            let open = self.open[self.open.len() - 1];
            let opened = self.span(open.lo as usize, open.lo as usize + 1);
            let here = self.span(lo, hi);
            self.error(error::closed_by_another(opened, opener(open.kind), here, &self.text[lo..hi]));
        }
        while self.open.len() > index + 1 {
            self.close_without_text(lo);
        }
        self.suspect = self.suspect.or_else(|| self.misplaced(self.open[index].lo as usize, lo));
        let kind = if self.open[index].kind == T::InterpOpen { T::InterpClose } else { kind };
        self.push(kind, lo, hi);
        self.pop();
    }

    /// A pair of brackets whose closing one, first on its line, stands further left than the line
    /// of the opening one: likely the partner of another.
    fn misplaced(&self, opened: usize, closed: usize) -> Option<(u32, u32)> {
        let blanks = |text: &str| text.len() - text.trim_end_matches([' ', '\t']).len();
        let below = &self.text[..closed];
        let indent = blanks(below);
        if !below[..below.len() - indent].ends_with('\n') {
            return None;
        }
        let line = self.text[..opened].rfind('\n').map_or(0, |n| n + 1);
        let above = self.text[line..].bytes().take_while(|b| matches!(b, b' ' | b'\t')).count();
        (indent < above).then_some((opened as u32, closed as u32))
    }

    /// A closing bracket whose opening one is nowhere: it stands for another, or for nothing.
    fn close_wrongly(&mut self, lo: usize, hi: usize) {
        let (here, text) = (self.span(lo, hi), &self.text[lo..hi]);
        match self.open.last().copied() {
            Some(open) if matches!(open.kind, T::LParen | T::LBracket) && text != "}" => {
                let opened = self.span(open.lo as usize, open.lo as usize + 1);
                self.error(error::closed_by_another(opened, opener(open.kind), here, text));
                self.close_without_text(lo);
            }
            _ => self.error(error::unmatched(here, text)),
        }
    }

    /// Closes the innermost bracket, string or interpolation with a token without width.
    fn close_without_text(&mut self, at: usize) {
        let Some(open) = self.open.last() else { return };
        let kind = match open.kind {
            T::LParen => T::RParen,
            T::LBracket => T::RBracket,
            T::LBrace => T::RBrace,
            T::StrOpen | T::RawOpen => T::StrClose,
            _ => T::InterpClose,
        };
        self.settle_range(kind, false);
        self.out.tokens.push(Token { kind, lo: at as u32, hi: at as u32 });
        self.pop();
    }

    /// A statement's keyword at the start of a line inside `(` or `[`: the bracket was forgotten.
    fn close_before_statement(&mut self, lo: usize, end: usize) {
        let lost = self.open.iter().rev().take_while(|o| matches!(o.kind, T::LParen | T::LBracket)).count();
        let Some(open) = self.open.last().copied().filter(|_| lost > 0 && lost <= self.open.len()) else {
            return;
        };
        if self.open.len() > lost && self.open[self.open.len() - lost - 1].kind != T::LBrace {
            return;
        }
        let opened = self.span(open.lo as usize, open.lo as usize + 1);
        let here = self.span(lo, self.position());
        self.error(error::never_closed(opened, opener(open.kind), Some(here)));
        for _ in 0..lost {
            self.close_without_text(end);
        }
    }

    /// A line end inside a string of one line.
    fn end_line_string(&mut self, at: usize) {
        let Some(index) = self.open.iter().position(|o| o.kind == T::StrOpen && !o.triple) else { return };
        let opened = self.open[index].lo as usize;
        let span = self.span(opened, opened + 1);
        let here = self.span(at, at);
        let first = self.base + opened as u32;
        while self.out.errors.last().is_some_and(|e| e.span().lo >= first) {
            self.out.errors.pop();
        }
        self.error(if index + 1 == self.open.len() {
            error::unclosed_string(span, here, false)
        } else {
            error::unclosed_interpolation(span, here)
        });
        // An error inside of the string would only repeat this one.
        while let Some(last) = self.out.tokens.last().filter(|t| t.lo as usize > opened) {
            debug_assert!(last.lo as usize > opened);
            self.out.tokens.pop();
        }
        while self.open.len() > index {
            self.pop();
        }
        self.out.tokens.push(Token { kind: T::StrClose, lo: at as u32, hi: at as u32 });
        // The string has swallowed the brackets that close what is open on this line.
        let swallowed = &self.text[opened..at];
        while let Some(open) = self.open.last()
            && ((open.kind == T::LParen && swallowed.contains(')'))
                || (open.kind == T::LBracket && swallowed.contains(']')))
        {
            self.close_without_text(at);
        }
    }

    /// The characters of a string, or of a format after `:`, up to the next token.
    fn characters(&mut self, open: Open) {
        let format = open.kind == T::FormatColon;
        let (start, bytes) = (self.position(), self.text.as_bytes());
        let mut at = start;
        loop {
            match bytes.get(at) {
                None => {
                    self.piece(T::Text, start, at);
                    self.go_to(at);
                    self.text_ends_in_string();
                    return;
                }
                Some(b'"') if format => {
                    // The string ends before the interpolation does.
                    self.piece(T::Text, start, at);
                    let span = self.span(open.lo as usize, at);
                    self.error(error::unclosed_interpolation(span, self.span(at, at)));
                    self.close_without_text(at);
                    self.go_to(at);
                    return;
                }
                Some(b'"') if !open.triple || self.text[at..].starts_with("\"\"\"") => {
                    let width = if open.triple { 3 } else { 1 };
                    self.piece(T::Text, start, at);
                    self.go_to(at + width);
                    self.push(T::StrClose, at, at + width);
                    self.pop();
                    return;
                }
                Some(b'\n') if !open.triple => {
                    self.go_to(at + 1);
                    self.newline(at);
                    return;
                }
                Some(b'\\') if !format => {
                    let next = self.text[at + 1..].chars().next();
                    // A backslash before a line end is an escape of `"""` strings alone.
                    let width = match next {
                        Some('\n') if !open.triple => 0,
                        Some(c) => c.len_utf8(),
                        None => 0,
                    };
                    at += 1 + width;
                    if next == Some('u') && bytes.get(at) == Some(&b'{') {
                        at += 1;
                    }
                }
                Some(b'{') if bytes.get(at + 1) == Some(&b'{') && !format => at += 2,
                Some(b'{') => {
                    self.piece(T::Text, start, at);
                    self.go_to(at + 1);
                    self.push(T::InterpOpen, at, at + 1);
                    self.open(T::InterpOpen, at, open.triple);
                    return;
                }
                Some(b'}') if format => {
                    self.piece(T::Text, start, at);
                    self.go_to(at + 1);
                    self.push(T::InterpClose, at, at + 1);
                    self.pop();
                    return;
                }
                Some(b'}') if bytes.get(at + 1) == Some(&b'}') => at += 2,
                Some(b'}') => {
                    // `\u{1F600}` is the one place where a single brace closes nothing.
                    if !closes_escape(&self.text[start..at]) {
                        let span = self.span(at, at + 1);
                        self.error(error::lone_brace(span));
                    }
                    at += 1;
                }
                Some(_) => at += 1,
            }
        }
    }

    fn raw_characters(&mut self, open: Open) {
        let start = self.position();
        let rest = &self.text[start..];
        let end = if open.triple { "\"\"\"" } else { "\"" };
        let stop = rest.find(end);
        let line = rest.find('\n').filter(|_| !open.triple);
        match (stop, line) {
            (Some(stop), line) if line.is_none_or(|line| stop < line) => {
                self.piece(T::RawText, start, start + stop);
                self.go_to(start + stop + end.len());
                self.push(T::StrClose, start + stop, start + stop + end.len());
                self.pop();
            }
            (_, Some(line)) => {
                let span = self.span(open.lo as usize, open.lo as usize + 2);
                self.error(error::unclosed_string(span, self.span(start + line, start + line), false));
                self.go_to(start + line);
                self.close_without_text(start + line);
            }
            _ => {
                self.go_to(self.text.len());
                self.text_ends_in_string();
            }
        }
    }

    fn piece(&mut self, kind: T, lo: usize, hi: usize) {
        if lo < hi {
            self.push(kind, lo, hi);
        }
    }

    /// The text ends inside of a string.
    fn text_ends_in_string(&mut self) {
        let end = self.text.len();
        if self.line_strings > 0 {
            self.end_line_string(end);
            return;
        }
        let strings = |o: &&Open| matches!(o.kind, T::StrOpen | T::RawOpen);
        let opened = self.open.iter().rev().find(strings).map_or(end, |o| o.lo as usize);
        let triple = self.open.last().is_some_and(|o| o.triple);
        self.error(error::unclosed_string(self.span(opened, opened + 1), self.span(end, end), triple));
        self.out.open_end = triple && self.out.errors.len() == 1;
        while !self.open.is_empty() {
            self.close_without_text(end);
        }
        self.stopped = true;
    }

    /// A number, as far as it can reach; its value and its faults are found in [`super::literal`].
    fn number(&mut self, lo: usize) {
        let bytes = self.text.as_bytes();
        let digit = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_digit());
        let word = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'_') {
                at += 1;
            }
            at
        };
        let exponent = |at: usize| {
            let signed = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
            let first = at + 1 + usize::from(signed);
            (matches!(bytes.get(at), Some(b'e' | b'E')) && digit(first)).then_some(first)
        };
        let mut kind = T::Int;
        let mut at = lo;
        let radix =
            bytes[lo] == b'0' && matches!(bytes.get(lo + 1), Some(b'x' | b'X' | b'b' | b'B' | b'o' | b'O'));
        if !radix {
            at = digits(at);
            if bytes.get(at) == Some(&b'.') {
                let next = self.text[at + 1..].chars().next();
                let starts_name = next.is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c));
                if next != Some('.') && (!starts_name || exponent(at + 1).is_some()) {
                    kind = T::Float;
                    at = digits(at + 1);
                }
            }
            if let Some(first) = exponent(at) {
                kind = T::Float;
                at = digits(first);
            }
        }
        while word(at) {
            at += 1;
        }
        self.go_to(at.max(self.position()));
        self.push(kind, lo, at);
    }

    fn unknown(&mut self) {
        let lo = self.raw.span().start;
        let Some(first) = self.text[lo..].chars().next() else { return };
        if unicode_ident::is_xid_start(first) {
            let hi = lo + identifier_length(&self.text[lo..]);
            self.go_to(hi.max(self.position()));
            self.push(T::Name, lo, hi);
            return;
        }
        let hi = (lo + first.len_utf8()).max(self.position());
        self.go_to(hi);
        let span = self.span(lo, hi);
        self.error(error::unknown_character(span, first));
        // A space of another kind does not cut a statement in two.
        if !first.is_whitespace() && first != '\u{feff}' {
            self.push(T::Bad, lo, hi);
        }
    }

    /// A character that other languages use.
    fn stray(&mut self, lo: usize, hi: usize) {
        let span = self.span(lo, hi);
        let first = self.text[lo..].chars().next().unwrap_or(' ');
        self.error(error::unknown_character(span, first));
        if first == '\\' && self.text[hi..].trim_start_matches([' ', '\t', '\r']).starts_with('\n') {
            // A Python continuation: the statement goes on in the next line.
            let line = self.text[hi..].find('\n').map_or(hi, |n| hi + n + 1);
            self.go_to(line);
            return;
        }
        self.push(T::Bad, lo, hi);
    }

    fn finish(&mut self) {
        let end = self.text.len();
        self.settle_range(T::Newline, true);
        if self.line_strings > 0 {
            self.end_line_string(end);
        }
        if let Some(open) = self.open.last().copied() {
            self.out.open_end = self.out.errors.is_empty();
            let mut opened = self.span(open.lo as usize, open.lo as usize + 1);
            let mut error = error::never_closed(opened, opener(open.kind), None);
            if open.kind == T::LBrace
                && let Some((lo, closed)) = self.suspect.filter(|s| s.0 > open.lo)
            {
                opened = self.span(lo as usize, lo as usize + 1);
                let closed = self.span(closed as usize, closed as usize + 1);
                error = error::never_closed(opened, "{", None)
                    .at(closed, "this stands further left than what it closes");
            }
            self.error(error);
            while !self.open.is_empty() {
                self.close_without_text(end);
            }
        }
    }
}

/// How many bytes at the start of `text` continue an identifier; 0 where the first is ASCII.
fn identifier_length(text: &str) -> usize {
    if text.as_bytes().first().is_none_or(|b| b.is_ascii()) {
        return 0;
    }
    let end = text.find(|c: char| !unicode_ident::is_xid_continue(c));
    end.unwrap_or(text.len())
}

/// True when `text` ends in `\u{` and hex digits.
fn closes_escape(text: &str) -> bool {
    let head = text.trim_end_matches(|c: char| c.is_ascii_hexdigit());
    head.ends_with("\\u{")
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

fn opener(kind: T) -> &'static str {
    match kind {
        T::LParen => "(",
        T::LBracket => "[",
        _ => "{",
    }
}
