//! The formatter: one layout for all programs; line breaks and comments are kept.
//!
//! It works on tokens and changes only white space: the author chooses line breaks, the formatter chooses
//! indentation and spacing, and aligns trailing comments of adjacent lines. Strings are copied unchanged.
//! Invariants: the result has the same tokens as the source (this is checked; otherwise the source is
//! returned), and formatting it again changes nothing.

use super::parse;
use super::scan::{self, Scanned};
use super::tokens::{T, Token};
use crate::base::{Error, Result};

/// Trailing comments on lines wider than this are not aligned with others.
const WIDE: usize = 120;

/// Spaces per level.
const INDENT: usize = 4;

/// Formats a source whose first byte has the position `base`.
///
/// # Errors
///
/// Syntax errors, as [`parse()`](crate::syntax::parse()) reports them.
pub fn format(base: u32, text: &str) -> Result<String> {
    let mut errors = parse(base, text).errors.into_iter();
    if let Some(first) = errors.next() {
        return Err(errors.fold(first, Error::and));
    }
    let scanned = scan::scan(base, text);
    let formatted = print(&lines(text, &pieces(text, &scanned)));
    let same = meaning(&formatted, &scan::scan(base, &formatted)) == meaning(text, &scanned);
    debug_assert!(same, "formatting changed the program:\n{text}\n---\n{formatted}");
    // If the tokens differ, keep the source unchanged.
    Ok(if same { formatted } else { text.to_string() })
}

/// The tokens and their texts, which must not change. (Line ends have no text.)
fn meaning<'t>(text: &'t str, scanned: &Scanned) -> Vec<(T, &'t str)> {
    let of = |t: &Token| match t.kind {
        T::Newline => (t.kind, ""),
        kind => (kind, &text[t.lo as usize..t.hi as usize]),
    };
    scanned.tokens.iter().map(of).collect()
}

/// A token, a whole string, or a comment.
#[derive(Clone, Copy)]
struct Piece {
    kind: T,
    lo: usize,
    hi: usize,
}

/// The pieces in order, without line ends, which the text shows.
fn pieces(text: &str, scanned: &Scanned) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::with_capacity(scanned.tokens.len());
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    if text[start..].starts_with("#!") {
        let hi = text[start..].find('\n').map_or(text.len(), |n| start + n);
        out.push(Piece { kind: T::Comment, lo: start, hi });
    }
    let mut strings = 0usize;
    for token in &scanned.tokens {
        let (lo, hi) = (token.lo as usize, token.hi as usize);
        match token.kind {
            T::StrOpen | T::RawOpen => {
                if strings == 0 {
                    out.push(Piece { kind: T::StrClose, lo, hi });
                }
                strings += 1;
            }
            T::StrClose => {
                strings = strings.saturating_sub(1);
                if strings == 0
                    && let Some(string) = out.last_mut()
                {
                    string.hi = hi;
                }
            }
            T::Newline => {}
            _ if strings > 0 => {}
            kind => out.push(Piece { kind, lo, hi }),
        }
    }
    let comments = scanned.comments.iter();
    out.extend(comments.map(|c| Piece { kind: T::Comment, lo: c.lo as usize, hi: c.hi as usize }));
    out.sort_by_key(|p| p.lo);
    out
}

/// A line of the result.
#[derive(Default)]
struct Line {
    indent: usize,
    code: String,
    comment: String,
    blank_before: bool,
}

/// The kind of a bracket.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Arguments: `k=v` is written without spaces.
    Call,
    /// The arms of a `match`: a comma ends an arm.
    Arms,
    /// Everything else.
    Plain,
}

struct Open {
    role: Role,
    brace: bool,
    /// The indent of its line.
    indent: usize,
}

/// The state of the walk over the pieces.
struct Walk<'t> {
    text: &'t str,
    open: Vec<Open>,
    /// Depths at which a `match` expects its brace.
    matches: Vec<usize>,
    /// Depths at which lambda parameters are open.
    lambdas: Vec<usize>,
    /// The last piece that is not a comment, and the one before it.
    last: Option<T>,
    before_last: Option<T>,
    /// Whether the last operator is a prefix: `-x`, `*rest`, `..p`.
    prefix: bool,
    lines: Vec<Line>,
}

fn lines(text: &str, pieces: &[Piece]) -> Vec<Line> {
    let mut walk = Walk {
        text,
        open: Vec::new(),
        matches: Vec::new(),
        lambdas: Vec::new(),
        last: None,
        before_last: None,
        prefix: false,
        lines: Vec::new(),
    };
    // For each piece: the kind of the first non-comment from there on.
    let mut next: Vec<Option<T>> = vec![None; pieces.len()];
    for (i, piece) in pieces.iter().enumerate().rev() {
        let below = next.get(i + 1).copied().flatten();
        next[i] = if piece.kind == T::Comment { below } else { Some(piece.kind) };
    }
    let mut end = 0;
    for (i, piece) in pieces.iter().enumerate() {
        let breaks = text[end..piece.lo].matches('\n').count();
        let joins = matches!(piece.kind, T::Else | T::Catch) && walk.last == Some(T::RBrace);
        let after_comment = i > 0 && pieces[i - 1].kind == T::Comment;
        if i == 0 || after_comment || (breaks > 0 && !joins) {
            walk.start_line(&pieces[i..], next[i], breaks > 1 && i > 0);
        }
        walk.put(*piece);
        end = piece.hi;
    }
    walk.lines
}

impl Walk<'_> {
    /// Begins the line at the start of `rest`; `next` is its first piece that is not a comment.
    fn start_line(&mut self, rest: &[Piece], next: Option<T>, blank: bool) {
        let goes_on = self.goes_on(next);
        let line = 1 + rest.windows(2).take_while(|w| !self.text[w[0].hi..w[1].lo].contains('\n')).count();
        let closes = |p: &&Piece| matches!(p.kind, T::RParen | T::RBracket | T::RBrace);
        let closers = rest[..line].iter().take_while(closes).count();
        let indent = match closers {
            0 => self.open.last().map_or(0, |o| o.indent + 1) + usize::from(goes_on),
            n => self.open.len().checked_sub(n).and_then(|at| self.open.get(at)).map_or(0, |o| o.indent),
        };
        let opened = matches!(self.last, Some(T::LBrace | T::LParen | T::LBracket))
            && self.lines.last().is_some_and(|l| !l.code.is_empty());
        let blank_before = blank && !opened && closers == 0;
        self.lines.push(Line { indent, blank_before, ..Line::default() });
        let in_lines = self.open.last().is_none_or(|o| o.brace);
        if in_lines && !self.goes_on(next) && self.last.is_some_and(T::can_end) {
            // An operator that follows does not belong to the previous statement.
            (self.before_last, self.last) = (None, Some(T::Newline));
        }
    }

    /// True if this line continues the statement of the previous one.
    fn goes_on(&self, next: Option<T>) -> bool {
        if matches!(next, Some(T::Dot | T::Pipe)) {
            return true;
        }
        let Some(last) = self.last else { return false };
        let in_lines = self.open.last().is_none_or(|o| o.brace);
        let ends = match last {
            T::Comma => self.open.last().is_some_and(|o| o.role == Role::Arms),
            T::LBrace | T::Semi | T::Newline => true,
            _ => last.can_end(),
        };
        in_lines && !ends
    }

    /// Appends a piece to its line.
    fn put(&mut self, piece: Piece) {
        let text = &self.text[piece.lo..piece.hi];
        if piece.kind == T::Comment {
            if let Some(line) = self.lines.last_mut() {
                line.comment = text.trim_end().to_string();
            }
            return;
        }
        let within = self.lambdas.last() == Some(&self.open.len());
        let closes_lambda = piece.kind == T::Bar && within;
        let opens_lambda = piece.kind == T::Bar && !within && !self.last.is_some_and(T::ends_operand);
        let space = self.space(piece.kind, closes_lambda);
        let indent = self.lines.last().map_or(0, |l| l.indent);
        if let Some(line) = self.lines.last_mut() {
            if space && !line.code.is_empty() {
                line.code.push(' ');
            }
            line.code.push_str(text);
        }
        self.prefix = opens_lambda
            || matches!(piece.kind, T::Minus | T::Tilde | T::Star | T::DotDot)
                && !self.last.is_some_and(T::ends_operand);
        match piece.kind {
            T::Match => self.matches.push(self.open.len()),
            T::Bar if opens_lambda => self.lambdas.push(self.open.len()),
            T::Bar if closes_lambda => {
                self.lambdas.pop();
            }
            T::LParen | T::LBracket | T::LBrace => self.open(piece.kind, indent),
            T::RParen | T::RBracket | T::RBrace => {
                self.open.pop();
                let depth = self.open.len();
                self.matches.retain(|&at| at <= depth);
                self.lambdas.retain(|&at| at <= depth);
            }
            _ => {}
        }
        self.before_last = self.last;
        self.last = Some(piece.kind);
        if closes_lambda {
            // The body follows, not the operand of an operator.
            self.last = Some(T::Arrow);
        }
    }

    fn open(&mut self, kind: T, indent: usize) {
        let declares = self.before_last == Some(T::Fn);
        let role = match kind {
            T::LParen if self.last.is_some_and(T::ends_operand) && !declares => Role::Call,
            T::LBrace if self.matches.last() == Some(&self.open.len()) => {
                self.matches.pop();
                Role::Arms
            }
            _ => Role::Plain,
        };
        self.open.push(Open { role, brace: kind == T::LBrace, indent });
    }

    /// Returns whether a space precedes a piece of this kind.
    fn space(&self, kind: T, closes_lambda: bool) -> bool {
        let Some(last) = self.last else { return false };
        let named = self.open.last().is_some_and(|o| o.role == Role::Call)
            && self.lambdas.last() != Some(&self.open.len());
        let tight_before = match kind {
            T::Comma | T::Semi | T::RParen | T::RBracket | T::Dot | T::FormatColon => true,
            T::LParen | T::LBracket => last.ends_operand(),
            T::DotDot | T::DotDotOpen => last.ends_operand(),
            T::Eq => named,
            // Two adjacent bars would be one token.
            T::Bar if last == T::Bar => return true,
            T::Bar => closes_lambda,
            _ => false,
        };
        let tight_after = match last {
            T::LParen | T::LBracket | T::Dot | T::DotDot => true,
            T::DotDotOpen => false,
            T::Eq => named,
            _ => self.prefix,
        };
        !tight_before && !tight_after
    }
}

/// The lines as text, with trailing comments of adjacent lines aligned.
fn print(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut column = 0;
    for (i, line) in lines.iter().enumerate() {
        if line.blank_before {
            out.push('\n');
        }
        let margin = " ".repeat(line.indent * INDENT);
        out.push_str(&margin);
        out.push_str(&line.code);
        if !line.comment.is_empty() {
            if !line.code.is_empty() {
                if i == 0 || !beside(&lines[i - 1], line) {
                    let group = lines[i..].windows(2).take_while(|w| beside(&w[0], &w[1])).count();
                    let widths = lines[i..=i + group].iter().map(width).filter(|w| *w <= WIDE);
                    column = widths.max().unwrap_or(0) + 2;
                }
                out.push_str(&" ".repeat(column.saturating_sub(width(line)).max(2)));
            }
            out.push_str(&line.comment);
        }
        out.push('\n');
    }
    out
}

/// The width of a line's code.
fn width(line: &Line) -> usize {
    let last = line.code.rsplit('\n').next().unwrap_or_default();
    let margin = if line.code.contains('\n') { 0 } else { line.indent * INDENT };
    margin + last.chars().count()
}

/// True if the trailing comments of two adjacent lines are aligned.
fn beside(a: &Line, b: &Line) -> bool {
    let both = |l: &Line| !l.code.is_empty() && !l.comment.is_empty();
    both(a) && both(b) && !b.blank_before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        let out = format(0, text).expect("a program");
        assert_eq!(format(0, &out).expect("the result is a program"), out, "formatting again changes it");
        out
    }

    #[test]
    fn spaces_stand_where_they_belong() {
        for (from, to) in [
            ("let x=f( 1,k = -2 )+3", "let x = f(1, k=-2) + 3\n"),
            ("x [ 0 ] .f (a)", "x[0].f(a)\n"),
            ("let f = |   | 2", "let f = | | 2\n"),
            ("let f = |a ,| a+1", "let f = |a,| a + 1\n"),
            ("let p=(w=1,b = - x)", "let p = (w = 1, b = -x)\n"),
            ("fn f(a,b=1,* rest,key=none){a}", "fn f(a, b = 1, *rest, key = none) { a }\n"),
            ("map(|a,b=1|a|b,xs)", "map(|a, b = 1| a | b, xs)\n"),
            ("f(||1)", "f(|| 1)\n"),
            ("for i in 0 .. n by 2{ }", "for i in 0..n by 2 { }\n"),
            ("x[1 .., .. ,... ,none]", "x[1.., .., ..., none]\n"),
            ("f(..xs, .. ys)", "f(..xs, ..ys)\n"),
            ("x on cuda:1|>f(2)", "x on cuda:1 |> f(2)\n"),
            ("a-b;- a ** -b", "a - b; -a ** -b\n"),
            ("if not(a)or b{1}else{-1}", "if not (a) or b { 1 } else { -1 }\n"),
            ("match x{1|2=>a,_ if b=>c}", "match x { 1 | 2 => a, _ if b => c }\n"),
            ("let s = \"a  {x:>3} b\"  ", "let s = \"a  {x:>3} b\"\n"),
            ("f16[ .5,1 ]@w", "f16[.5, 1] @ w\n"),
            ("return(1,2)", "return (1, 2)\n"),
            ("a\n- b\n(c)", "a\n-b\n(c)\n"),
            ("with stream( s ) , device(1){}", "with stream(s), device(1) { }\n"),
        ] {
            assert_eq!(formatted(from), to, "{from}");
        }
    }

    #[test]
    fn lines_are_indented_by_their_brackets() {
        let from = "fn f(x) {\nlet y = g(\nx,\n  [1,\n2],\n)\nh(x, |a| {\na\n}, {\nb\n})\n}\n";
        let to = "fn f(x) {\n    let y = g(\n        x,\n        [1,\n            2],\n    )\n    h(x, |a| {\n        a\n    }, {\n        b\n    })\n}\n";
        assert_eq!(formatted(from), to);
        let from = "let a = b +\nc\nx\n.f()\n# why\n.g()\nmatch x {\n1 => 2,\n3 => 4\n}";
        let to =
            "let a = b +\n    c\nx\n    .f()\n    # why\n    .g()\nmatch x {\n    1 => 2,\n    3 => 4\n}\n";
        assert_eq!(formatted(from), to);
        assert_eq!(formatted("if a {\nb\n}\nelse {\nc\n}"), "if a {\n    b\n} else {\n    c\n}\n");
    }

    #[test]
    fn comments_and_blank_lines_stay() {
        let from = "#!/usr/bin/env runnel\n\n\n# head\nlet a = 1 # one\nlet bc = 2     # two\n\n\n\nf()   # alone\n{\n\n# inside\n\nx\n\n}\n# tail";
        let to = "#!/usr/bin/env runnel\n\n# head\nlet a = 1   # one\nlet bc = 2  # two\n\nf()  # alone\n{\n    # inside\n\n    x\n}\n# tail\n";
        assert_eq!(formatted(from), to);
        assert_eq!(formatted(""), "");
        assert_eq!(formatted("let s = \"\"\"a\n   b\"\"\" # c\nx"), "let s = \"\"\"a\n   b\"\"\"  # c\nx\n");
    }

    #[test]
    fn unreadable_programs_are_reported() {
        assert!(format(0, "let = 1\nlet y 2").is_err());
    }
}
