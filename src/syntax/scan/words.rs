//! Words, numbers, and characters that are neither.

use super::*;

impl Scanner<'_> {
    /// A word: the whole identifier if it continues outside of ASCII, a name after a `.`, a contextual
    /// keyword, or the token it was scanned as.
    pub(super) fn word(&mut self, kind: T, lo: usize, hi: usize) {
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
            T::Name if is_dtype(&self.text[lo..hi]) => {
                self.push(T::Dtype, lo, hi);
                return;
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

    /// A number, as long as possible; [`super::literal`] finds its value and its errors.
    pub(super) fn number(&mut self, lo: usize) {
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

    pub(super) fn unknown(&mut self) {
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
        // Other kinds of space do not split a statement.
        if !first.is_whitespace() && first != '\u{feff}' {
            self.push(T::Bad, lo, hi);
        }
    }

    /// A character of other languages.
    pub(super) fn stray(&mut self, lo: usize, hi: usize) {
        let span = self.span(lo, hi);
        let first = self.text[lo..].chars().next().unwrap_or(' ');
        self.error(error::unknown_character(span, first));
        if first == '\\' && self.text[hi..].trim_start_matches([' ', '\t', '\r']).starts_with('\n') {
            // A Python line continuation: the statement continues on the next line.
            let line = self.text[hi..].find('\n').map_or(hi, |n| hi + n + 1);
            self.go_to(line);
            return;
        }
        self.push(T::Bad, lo, hi);
    }
}

/// The number of bytes at the start of `text` that continue an identifier; 0 if the first is ASCII.
fn identifier_length(text: &str) -> usize {
    if text.as_bytes().first().is_none_or(|b| b.is_ascii()) {
        return 0;
    }
    let end = text.find(|c: char| !unicode_ident::is_xid_continue(c));
    end.unwrap_or(text.len())
}
