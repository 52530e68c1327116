//! The characters of strings, up to an interpolation or the end.

use super::*;

impl Scanner<'_> {
    /// A line end inside a one-line string.
    pub(super) fn end_line_string(&mut self, at: usize) {
        let Some(index) = self.open.iter().position(|o| o.kind == T::StrOpen && !o.triple) else { return };
        let opened = self.open[index].lo as usize;
        let span = self.span(opened, opened + 1);
        let here = self.span(at, at);
        let first = self.base + opened as u32;
        while self.out.errors.last().is_some_and(|found| found.error.span().lo >= first) {
            self.out.errors.pop();
        }
        self.error(if index + 1 == self.open.len() {
            error::unclosed_string(span, here, false)
        } else {
            error::unclosed_interpolation(span, here)
        });
        // An error inside the string would only repeat this one.
        while let Some(last) = self.out.tokens.last().filter(|t| t.lo as usize > opened) {
            debug_assert!(last.lo as usize > opened);
            self.out.tokens.pop();
        }
        while self.open.len() > index {
            self.pop();
        }
        self.out.tokens.push(Token { kind: T::StrClose, lo: at as u32, hi: at as u32 });
        // The string has swallowed the closing brackets of this line.
        let swallowed = &self.text[opened..at];
        while let Some(open) = self.open.last()
            && ((open.kind == T::LParen && swallowed.contains(')'))
                || (open.kind == T::LBracket && swallowed.contains(']')))
        {
            self.close_without_text(at);
        }
    }

    /// The characters of a string, or of a format after `:`, up to the next token.
    pub(super) fn characters(&mut self, open: Open) {
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
                    // The string ends before the interpolation.
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
                    // A backslash before a line end is an escape only in `"""` strings.
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
                    // `\u{1F600}` is the only place where a single brace closes nothing.
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

    pub(super) fn raw_characters(&mut self, open: Open) {
        let start = self.position();
        let rest = &self.text[start..];
        let end = if open.triple { "\"\"\"" } else { "\"" };
        // Neither search goes beyond the longest possible string.
        let line = if open.triple {
            None
        } else {
            rest.find(['"', '\n']).filter(|&at| rest[at..].starts_with('\n'))
        };
        let stop = if line.is_some() { None } else { rest.find(end) };
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

    pub(super) fn piece(&mut self, kind: T, lo: usize, hi: usize) {
        if lo < hi {
            self.push(kind, lo, hi);
        }
    }

    /// The text ends inside a string.
    pub(super) fn text_ends_in_string(&mut self) {
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
}

/// True when `text` ends in `\u{` and hex digits.
fn closes_escape(text: &str) -> bool {
    let head = text.trim_end_matches(|c: char| c.is_ascii_hexdigit());
    head.ends_with("\\u{")
}
