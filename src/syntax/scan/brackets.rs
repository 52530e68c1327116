//! Matching of brackets, and errors of unmatched ones.

use super::*;

impl Scanner<'_> {
    /// Decides, at the token after a `..`, whether it is the range's end.
    pub(super) fn settle_range(&mut self, next: T, new_line: bool) {
        let statement_ends = new_line && self.bracket_allows_lines();
        if let Some(last) = self.out.tokens.last_mut()
            && last.kind == T::DotDot
            && (statement_ends || !next.can_end_range())
        {
            last.kind = T::DotDotOpen;
        }
    }

    pub(super) fn open(&mut self, kind: T, lo: usize, triple: bool) {
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

    pub(super) fn pop(&mut self) {
        if let Some(Open { kind: T::StrOpen, triple: false, .. }) = self.open.pop() {
            self.line_strings -= 1;
        }
    }

    pub(super) fn close(&mut self, kind: T, lo: usize, hi: usize) {
        let fits = |open: &Open| match kind {
            T::RParen => open.kind == T::LParen,
            T::RBracket => open.kind == T::LBracket,
            _ => matches!(open.kind, T::LBrace | T::InterpOpen),
        };
        // A closing bracket may match past open brackets that it outranks.
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

    /// The pair of brackets, if the closing one is first on its line and further left than the opening one's
    /// line: it probably closes another bracket.
    pub(super) fn misplaced(&self, opened: usize, closed: usize) -> Option<(u32, u32)> {
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

    /// A closing bracket without an opening one: it replaces another, or is superfluous.
    pub(super) fn close_wrongly(&mut self, lo: usize, hi: usize) {
        let (here, text) = (self.span(lo, hi), &self.text[lo..hi]);
        match self.open.last().copied() {
            Some(open) if matches!(open.kind, T::LParen | T::LBracket) && text != "}" => {
                let opened = self.span(open.lo as usize, open.lo as usize + 1);
                self.error(error::closed_by_another(opened, opener(open.kind), here, text));
                self.close_without_text(lo);
            }
            _ => self.error(Finding { error: error::unmatched(here, text), role: Role::Unopened }),
        }
    }

    /// Closes the innermost bracket, string or interpolation with a zero-width token.
    pub(super) fn close_without_text(&mut self, at: usize) {
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

    /// A statement keyword at the start of a line inside `(` or `[`: a closing bracket is missing.
    pub(super) fn close_before_statement(&mut self, lo: usize, end: usize) {
        let lost = self.open.iter().rev().take_while(|o| matches!(o.kind, T::LParen | T::LBracket)).count();
        let Some(open) = self.open.last().copied().filter(|_| lost > 0 && lost <= self.open.len()) else {
            return;
        };
        if self.open.len() > lost && self.open[self.open.len() - lost - 1].kind != T::LBrace {
            return;
        }
        let opened = self.span(open.lo as usize, open.lo as usize + 1);
        let here = self.span(lo, self.position());
        let error = error::never_closed(opened, opener(open.kind), Some(here));
        self.error(Finding { error, role: Role::Unclosed { until: here.lo } });
        for _ in 0..lost {
            self.close_without_text(end);
        }
    }

    pub(super) fn finish(&mut self) {
        let end = self.text.len();
        self.settle_range(T::Newline, true);
        if self.line_strings > 0 {
            self.end_line_string(end);
        }
        if let Some(open) = self.open.last().copied() {
            self.out.open_end = self.out.errors.is_empty();
            let mut opened = self.span(open.lo as usize, open.lo as usize + 1);
            let mut error = error::never_closed(opened, opener(open.kind), None);
            let mut until = u32::MAX;
            if open.kind == T::LBrace
                && let Some((lo, closed)) = self.suspect.filter(|s| s.0 > open.lo)
            {
                opened = self.span(lo as usize, lo as usize + 1);
                let closed = self.span(closed as usize, closed as usize + 1);
                until = closed.lo;
                error = error::never_closed(opened, "{", None)
                    .at(closed, "this is further left than what it closes");
            }
            self.error(Finding { error, role: Role::Unclosed { until } });
            while !self.open.is_empty() {
                self.close_without_text(end);
            }
        }
    }
}

fn opener(kind: T) -> &'static str {
    match kind {
        T::LParen => "(",
        T::LBracket => "[",
        _ => "{",
    }
}
