//! Positions in source text.
//!
//! All sources of a session share one address space of `u32` positions. So a [`Span`] is eight bytes and is
//! copied freely into bytecode, race records and pending operations. Only [`SourceMap`] knows which source a
//! position belongs to.

/// A half-open range of positions in a [`SourceMap`]; never crosses two sources.
///
/// Sample: in the source `let x = y`, `y` has `Span { lo: base + 8, hi: base + 9 }`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The first position.
    pub lo: u32,
    /// One past the last position.
    pub hi: u32,
}

impl Span {
    /// No position: for operations submitted from Rust.
    pub const NONE: Span = Span { lo: 0, hi: 0 };

    /// The span from `lo` to `hi`.
    pub fn new(lo: u32, hi: u32) -> Span {
        Span { lo, hi }
    }

    /// The smallest span that covers both.
    pub fn to(self, other: Span) -> Span {
        if self.is_none() {
            return other;
        }
        if other.is_none() {
            return self;
        }
        Span { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// True for [`Span::NONE`].
    pub fn is_none(self) -> bool {
        self == Span::NONE
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.lo, self.hi)
    }
}

/// Identifies a source of a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId(pub u32);

/// The sources of one session: files, `-e` texts, REPL lines, embedded modules.
///
/// Invariant: bases increase, and sources are separated by one position, so that a position belongs to at
/// most one source. Position 0 belongs to none.
#[derive(Default)]
pub struct SourceMap {
    sources: Vec<Source>,
}

struct Source {
    name: String,
    text: std::sync::Arc<str>,
    base: u32,
    lines: Vec<u32>,
}

impl SourceMap {
    /// Adds a source; returns it with the position of its first byte. `None` when the session already holds 4
    /// GiB of source text.
    pub fn add(&mut self, name: &str, text: &str) -> Option<(SourceId, u32)> {
        let base = self.sources.last().map_or(1, |s| s.base + s.text.len() as u32 + 1);
        let length = u32::try_from(text.len()).ok()?;
        base.checked_add(length)?.checked_add(1)?;
        let starts = text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(i, _)| i as u32 + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        self.sources.push(Source { name: name.to_string(), text: text.into(), base, lines });
        Some((SourceId(self.sources.len() as u32 - 1), base))
    }

    /// The source that contains a position.
    pub fn find(&self, span: Span) -> Option<SourceId> {
        if span.is_none() {
            return None;
        }
        let after = self.sources.partition_point(|s| s.base <= span.lo);
        let index = after.checked_sub(1)?;
        let source = &self.sources[index];
        (span.lo <= source.base + source.text.len() as u32).then_some(SourceId(index as u32))
    }

    /// The name a source was added under: a path, `<repl:3>`, `<-e>`.
    pub fn name(&self, id: SourceId) -> &str {
        &self.sources[id.0 as usize].name
    }

    /// The text of a source.
    pub fn text(&self, id: SourceId) -> &std::sync::Arc<str> {
        &self.sources[id.0 as usize].text
    }

    /// The position of a source's first byte.
    pub fn base(&self, id: SourceId) -> u32 {
        self.sources[id.0 as usize].base
    }

    /// Line and column (both from 1, the column in characters) where a span starts.
    pub fn line_column(&self, span: Span) -> Option<(usize, usize)> {
        let source = &self.sources[self.find(span)?.0 as usize];
        let offset = span.lo - source.base;
        let line = source.lines.partition_point(|&start| start <= offset);
        let start = source.lines[line - 1] as usize;
        let column = source.text.get(start..offset as usize).map_or(0, |s| s.chars().count());
        Some((line, column + 1))
    }

    /// `file.rnl:3:7`, or an empty text for [`Span::NONE`].
    pub fn place(&self, span: Span) -> String {
        match (self.find(span), self.line_column(span)) {
            (Some(id), Some((line, column))) => format!("{}:{line}:{column}", self.name(id)),
            _ => String::new(),
        }
    }

    /// The text under a span.
    pub fn snippet(&self, span: Span) -> &str {
        let Some(id) = self.find(span) else { return "" };
        let source = &self.sources[id.0 as usize];
        let (lo, hi) = ((span.lo - source.base) as usize, (span.hi - source.base) as usize);
        source.text.get(lo..hi.min(source.text.len())).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_find_their_source_line_and_column() {
        let mut map = SourceMap::default();
        let (a, base_a) = map.add("a.rnl", "let x = 1\nx + y\n").unwrap();
        let (b, base_b) = map.add("b.rnl", "é = 2").unwrap();
        let y = Span::new(base_a + 14, base_a + 15);
        assert_eq!(map.find(y), Some(a));
        assert_eq!(map.line_column(y), Some((2, 5)));
        assert_eq!(map.snippet(y), "y");
        let two = Span::new(base_b + 5, base_b + 6);
        assert_eq!(map.find(two), Some(b));
        assert_eq!(map.place(two), "b.rnl:1:5");
        assert_eq!(map.find(Span::NONE), None);
    }
}
