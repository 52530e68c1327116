//! Prepares source text for display: removes terminal control characters and limits lengths.

use crate::base::{SourceId, SourceMap, Span};
use std::borrow::Cow;

/// A line longer than this is shown only around its labels.
const LONG_LINE: usize = 240;
/// Characters of a long line shown on each side of a label.
const AROUND: usize = 60;
/// A label that spans more lines than this marks only the first of them.
const MAX_LINES: usize = 8;
/// Source names longer than this are cut.
const LONG_NAME: usize = 200;

/// True for characters that a terminal may interpret or that change how others are displayed: control
/// characters, and marks that change the writing direction.
fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
}

/// Text with its hidden characters replaced; byte lengths, and so positions, are unchanged.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match (is_hidden(c), c.len_utf8()) {
            (false, _) => out.push(c),
            (true, 3) => out.push(char::REPLACEMENT_CHARACTER),
            (true, n) => out.extend(std::iter::repeat_n('?', n)),
        }
    }
    Cow::Owned(out)
}

/// Cuts text in the middle if it has more than `most` characters.
pub fn clipped(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let count = text.chars().count();
    let head: String = text.chars().take(most * 2 / 3).collect();
    let tail: String = text.chars().skip(count - most / 4).collect();
    Cow::Owned(format!("{head} [... {} characters ...] {tail}", count - most * 2 / 3 - most / 4))
}

/// The first line of some text, cut if it is long.
pub fn first_line(text: &str) -> String {
    const SHOWN: usize = 60;
    let line = text.lines().next().unwrap_or("");
    let more = line.len() < text.trim_end().len();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None if more => format!("{line} ..."),
        None => line.to_string(),
    }
}

/// Lines of a source.
pub struct Excerpt<'a> {
    /// The source.
    pub name: &'a str,
    /// The start of the text.
    pub start: usize,
    /// Whole lines, or a piece of a long one.
    pub text: &'a str,
    /// The number of the first line, from 0.
    pub line: usize,
}

/// The sources of one error's labels, concatenated in the order of the labels: the main label's source is
/// shown first.
pub struct Excerpts<'a> {
    files: Vec<File<'a>>,
}

struct File<'a> {
    id: SourceId,
    name: Cow<'a, str>,
    text: Cow<'a, str>,
    /// Its start in the source map.
    base: usize,
    /// Its start in this concatenation.
    start: usize,
}

impl<'a> Excerpts<'a> {
    /// The sources of these spans.
    pub fn new(sources: &'a SourceMap, spans: impl Iterator<Item = Span>) -> Excerpts<'a> {
        let mut files: Vec<File<'a>> = Vec::new();
        for id in spans.filter_map(|span| sources.find(span)) {
            if files.iter().all(|file| file.id != id) {
                files.push(File {
                    id,
                    name: Cow::Owned(clipped(&visible(sources.name(id)), LONG_NAME).into_owned()),
                    text: line_ends(visible_source(sources.text(id))),
                    base: sources.base(id) as usize,
                    start: files.last().map_or(0, |file| file.start + file.text.len() + 1),
                });
            }
        }
        Excerpts { files }
    }

    /// The displayed range of a span: inside its file, on character boundaries, on at most [`MAX_LINES`]
    /// lines, and not after the last line; its start and its length. `None` for a span in no file.
    pub fn place(&self, span: Span) -> Option<(usize, usize)> {
        let inside = |f: &&File<'_>| (f.base..=f.base + f.text.len()).contains(&(span.lo as usize));
        let file = self.files.iter().find(inside)?;
        let text = &file.text;
        let inside = |position: u32| (position as usize).saturating_sub(file.base).min(text.len());
        let (mut lo, mut hi) = (inside(span.lo), inside(span.hi));
        while !text.is_char_boundary(lo) {
            lo -= 1;
        }
        while !text.is_char_boundary(hi) {
            hi += 1;
        }
        hi = hi.max(lo);
        // At the end of the text, after its last line end, there is no line to show.
        if lo == text.len() {
            lo = text.trim_end().len();
            hi = lo;
        }
        let marked = &text[lo..hi];
        // A label over several lines shows whole lines.
        let first = text[..lo].rfind('\n').map_or(0, |at| at + 1);
        let last = text[hi..].find('\n').map_or(text.len(), |at| hi + at);
        let lines = marked.matches('\n').count();
        if lines >= MAX_LINES || lines > 0 && last - first > MAX_LINES * LONG_LINE {
            hi = lo + marked.find('\n').unwrap_or(0);
        }
        // A label wider than a screen marks its start.
        let line_end = text[lo..].find('\n').map_or(text.len(), |at| lo + at);
        if line_end - lo > LONG_LINE && hi - lo > AROUND && hi <= line_end {
            hi = (lo + AROUND..=hi).find(|&at| text.is_char_boundary(at)).unwrap_or(hi);
        }
        let trimmed = text[lo..hi].trim_end_matches(['\n', ' ', '\t']).len();
        Some((file.start + lo, if trimmed == 0 { hi.min(lo + 1) - lo } else { trimmed }))
    }

    /// The lines of the marked range, and up to `context` lines on each side; of a long line only the part
    /// around the mark. `None` if one excerpt cannot show it.
    pub fn read(&self, start: usize, len: usize, context: usize) -> Option<Excerpt<'_>> {
        let file = self.file(start)?;
        let text: &str = &file.text;
        let (lo, hi) = (start - file.start, start + len - file.start);
        // Labels of two files never share an excerpt.
        let marked = text.get(lo..hi)?;
        // Labels that are far apart on one line do not share an excerpt either.
        if marked.len() > MAX_LINES * LONG_LINE {
            return None;
        }
        let line_start = text[..lo].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[hi..].find('\n').map_or(text.len(), |at| hi + at);
        let long = line_end - line_start > LONG_LINE;
        let (mut start, mut end) = (line_start, line_end);
        if long && !marked.contains('\n') {
            start = (0..=lo.saturating_sub(AROUND).max(line_start))
                .rev()
                .find(|&at| text.is_char_boundary(at))
                .unwrap_or(line_start);
            end = (hi.saturating_add(AROUND).min(line_end)..=line_end)
                .find(|&at| text.is_char_boundary(at))
                .unwrap_or(line_end);
        } else {
            for _ in 0..context {
                let Some(previous) = start.checked_sub(1) else { break };
                let above = text[..previous].rfind('\n').map_or(0, |at| at + 1);
                if previous - above > LONG_LINE {
                    break;
                }
                start = above;
            }
            for _ in 0..context {
                if end >= text.len() {
                    break;
                }
                let below = text[end + 1..].find('\n').map_or(text.len(), |at| end + 1 + at);
                if below - end > LONG_LINE || below == end + 1 && below == text.len() {
                    break;
                }
                end = below;
            }
        }
        let line = text[..start].matches('\n').count();
        Some(Excerpt { name: &file.name, start: file.start + start, text: &text[start..end], line })
    }

    /// The line and column of a position in its file, from 0.
    pub fn position(&self, position: usize) -> (usize, usize) {
        let Some(file) = self.file(position) else { return (0, 0) };
        let before = &file.text[..position - file.start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count(), before[line_start..].chars().count())
    }

    /// The displayed source at a position.
    fn file(&self, position: usize) -> Option<&File<'a>> {
        self.files.iter().find(|f| (f.start..=f.start + f.text.len()).contains(&position))
    }
}

/// The displayed text of a source.
fn visible_source(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        // A carriage return before a line feed belongs to the line end; it is shown as a space.
        return Cow::Owned(visible(&text.replace("\r\n", " \n")).into_owned());
    }
    visible(text)
}

/// Text whose last line has a line end.
fn line_ends(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.is_empty() { Cow::Borrowed(" ") } else { text }
}
