//! Positions in source text.
//!
//! All sources of a session share one address space of `u32` positions. So a [`Span`] is eight bytes and is
//! copied freely into bytecode, race records and pending operations. Only [`SourceMap`] knows which source a
//! position belongs to.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// A half-open range of positions in a [`SourceMap`]; never crosses two sources.
///
/// Example: in the source `let x = y`, `y` has `Span { lo: base + 8, hi: base + 9 }`.
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

/// Identifies a source of a [`SourceMap`], until one is added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId(pub u32);

/// The sources of one session: files, `-e` arguments, REPL lines, embedded modules.
///
/// Sources are reference-counted: functions and errors hold those that they refer to ([`SourceMap::hold`],
/// [`SourceMap::part`]). Unreferenced ones are removed periodically ([`SourceMap::forget`]), except for the
/// newest.
///
/// Invariant: sources are sorted by their bases, and no two touch (at least one position lies between them),
/// so a position belongs to at most one source. Position 0 belongs to none.
#[derive(Clone, Default)]
pub struct SourceMap {
    sources: Vec<Arc<Source>>,
    /// The bases of the newest sources, the newest last.
    newest: VecDeque<u32>,
    /// The bytes of all source texts, and the numbers of sources and bytes that trigger the next removal of
    /// unreferenced sources.
    bytes: usize,
    limit: (usize, usize),
}

/// A source text.
pub struct Source {
    name: String,
    text: Arc<str>,
    base: u32,
    lines: OnceLock<Vec<u32>>,
}

/// Number and total size of the newest sources, which are kept: work submitted to a device, but owned by no
/// function or error, may refer to them.
const NEWEST: usize = 32;
const NEWEST_BYTES: usize = 256 << 10;
/// Below this number of sources and bytes nothing is removed.
const MIN_REMOVED: (usize, usize) = (128, 1 << 20);

impl Source {
    fn end(&self) -> u32 {
        self.base + self.text.len() as u32
    }

    /// The offsets of its line starts.
    fn lines(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let starts =
                self.text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(i, _)| i as u32 + 1);
            std::iter::once(0).chain(starts).collect()
        })
    }
}

impl std::fmt::Debug for SourceMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|source| &source.name)).finish()
    }
}

impl SourceMap {
    /// Adds a source; returns it with the position of its first byte. `None` when the session already holds 4
    /// GiB of source text.
    pub fn add(&mut self, name: &str, text: &str) -> Option<(SourceId, u32)> {
        let length = u32::try_from(text.len()).ok()?;
        let base = self.room(length)?;
        let at = self.sources.partition_point(|s| s.base < base);
        let source = Source { name: name.to_string(), text: text.into(), base, lines: OnceLock::new() };
        self.sources.insert(at, Arc::new(source));
        self.newest.push_back(base);
        self.bytes += text.len();
        Some((SourceId(at as u32), base))
    }

    /// A free position range for a text of this length: after the newest source, or else between two others.
    fn room(&self, length: u32) -> Option<u32> {
        let fits = |base: u32| base.checked_add(length)?.checked_add(1).map(|_| base);
        let behind = |base: Option<&u32>| {
            let at = self.sources.partition_point(|s| Some(&s.base) <= base);
            let before = self.sources.get(at.wrapping_sub(1)).map_or(0, |s| s.end());
            let base = fits(before.checked_add(1)?)?;
            self.sources.get(at).is_none_or(|next| base + length < next.base).then_some(base)
        };
        behind(self.newest.back()).or_else(|| {
            let ends = self.sources.iter().map(|s| s.end());
            let starts = self.sources.iter().map(|s| s.base).chain([u32::MAX]);
            let mut gaps = std::iter::once(0).chain(ends).zip(starts);
            gaps.find_map(|(end, next)| {
                let base = fits(end.checked_add(1)?)?;
                (base + length < next).then_some(base)
            })
        })
    }

    /// True if there may be sources to remove. This is rare, so the search costs little compared to adding sources.
    pub fn is_due(&self) -> bool {
        let (count, bytes) = self.limit;
        self.sources.len() > count.max(MIN_REMOVED.0) || self.bytes > bytes.max(MIN_REMOVED.1)
    }

    /// Removes the sources that are not held, contain none of these spans, and are not among the newest.
    pub fn forget(&mut self, places: impl IntoIterator<Item = Span>) {
        let mut kept = vec![false; self.sources.len()];
        for id in places.into_iter().filter_map(|span| self.find(span)) {
            kept[id.0 as usize] = true;
        }
        let mut bytes = 0;
        for (count, base) in self.newest.iter().rev().enumerate() {
            let Ok(at) = self.sources.binary_search_by_key(base, |s| s.base) else { continue };
            bytes += self.sources[at].text.len();
            if count > 0 && (count >= NEWEST || bytes > NEWEST_BYTES) {
                break;
            }
            kept[at] = true;
        }
        let mut kept = kept.into_iter();
        self.sources.retain(|source| kept.next() == Some(true) || Arc::strong_count(source) > 1);
        while self.newest.len() > NEWEST {
            self.newest.pop_front();
        }
        self.bytes = self.sources.iter().map(|s| s.text.len()).sum();
        self.limit = (2 * self.sources.len(), 2 * self.bytes);
    }

    /// The source that contains a span, to be held as long as the span is used.
    pub fn hold(&self, span: Span) -> Option<Arc<Source>> {
        self.find(span).map(|id| Arc::clone(&self.sources[id.0 as usize]))
    }

    /// A map of only the sources that contain these spans.
    pub fn part(&self, places: impl IntoIterator<Item = Span>) -> SourceMap {
        let mut part = SourceMap::default();
        for span in places {
            if part.find(span).is_none()
                && let Some(source) = self.hold(span)
            {
                let at = part.sources.partition_point(|s| s.base < source.base);
                part.sources.insert(at, source);
            }
        }
        part
    }

    /// The number of sources.
    pub fn count(&self) -> usize {
        self.sources.len()
    }

    fn source(&self, span: Span) -> Option<&Source> {
        self.find(span).map(|id| &*self.sources[id.0 as usize])
    }

    /// The source that contains a position.
    pub fn find(&self, span: Span) -> Option<SourceId> {
        if span.is_none() {
            return None;
        }
        let after = self.sources.partition_point(|s| s.base <= span.lo);
        let index = after.checked_sub(1)?;
        (span.lo <= self.sources[index].end()).then_some(SourceId(index as u32))
    }

    /// The name a source was added under: a path, `<repl:3>`, `<-e>`.
    pub fn name(&self, id: SourceId) -> &str {
        &self.sources[id.0 as usize].name
    }

    /// The text of a source.
    pub fn text(&self, id: SourceId) -> &Arc<str> {
        &self.sources[id.0 as usize].text
    }

    /// The position of a source's first byte.
    pub fn base(&self, id: SourceId) -> u32 {
        self.sources[id.0 as usize].base
    }

    /// The line (from 1) where a span starts.
    pub fn line(&self, span: Span) -> Option<usize> {
        let source = self.source(span)?;
        let offset = span.lo - source.base;
        Some(source.lines().partition_point(|&start| start <= offset))
    }

    /// Line and column (both from 1, the column in characters) where a span starts.
    pub fn line_column(&self, span: Span) -> Option<(usize, usize)> {
        let source = self.source(span)?;
        let offset = span.lo - source.base;
        let line = self.line(span)?;
        let start = source.lines()[line - 1] as usize;
        let column = source.text.get(start..offset as usize).map_or(0, |s| s.chars().count());
        Some((line, column + 1))
    }

    /// `file.rnl:3:7`, or an empty string for [`Span::NONE`].
    pub fn place(&self, span: Span) -> String {
        match (self.find(span), self.line_column(span)) {
            (Some(id), Some((line, column))) => format!("{}:{line}:{column}", self.name(id)),
            _ => String::new(),
        }
    }

    /// The text under a span.
    pub fn snippet(&self, span: Span) -> &str {
        let Some(source) = self.source(span) else { return "" };
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

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn unreferenced_sources_are_dropped_and_their_positions_reused() {
        let mut map = SourceMap::default();
        let (_, first) = map.add("held", "let x = 1").unwrap();
        let held = map.hold(Span::new(first, first + 1)).unwrap();
        let (_, second) = map.add("marked", "let y = 1").unwrap();
        let marked = Span::new(second + 4, second + 5);
        for i in 0..10_000 {
            map.add(&format!("<eval:{i}>"), "1 + 1").unwrap();
            if map.is_due() {
                map.forget([marked]);
            }
        }
        assert!(map.count() <= MIN_REMOVED.0 + 1, "{}", map.count());
        assert_eq!(map.snippet(marked), "y");
        assert_eq!(map.place(Span::new(first + 4, first + 5)), "held:1:5");
        let part = map.part([marked, marked, Span::NONE]);
        assert_eq!((part.count(), part.place(marked).as_str()), (1, "marked:1:5"));
        drop((held, part));
        map.forget([]);
        assert!(map.find(marked).is_none() && map.count() == NEWEST);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn the_space_of_positions_is_used_again() {
        let mut map = SourceMap::default();
        let text = "x".repeat(64 << 20);
        let (_, first) = map.add("first", &text).unwrap();
        let _held = map.hold(Span::new(first, first + 1));
        for i in 0..80 {
            let (id, base) = map.add("another", &text).expect("there is room");
            assert_eq!(map.find(Span::new(base + 7, base + 8)), Some(id), "{i}");
            assert!(map.sources.is_sorted_by(|a, b| a.end() < b.base), "{i}");
            map.forget([]);
        }
        assert_eq!(map.place(Span::new(first, first + 1)), "first:1:1");
    }
}
