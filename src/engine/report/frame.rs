//! Framed excerpts of sources, with labels below the lines. The layout is that of the crate `miette`.
//!
//! A label inside a line is underlined. A label over several lines has an arrow at its first and last line,
//! in a gutter left of the text, and its text below the last line.

use super::text::{Excerpt, Excerpts};
use unicode_width::UnicodeWidthChar;

/// Columns between tab stops.
const TAB: usize = 4;

/// Lines of the source above and below a label.
const CONTEXT: usize = 1;

/// A label in the text of [`Excerpts`].
#[derive(PartialEq)]
pub struct Label {
    /// Its first byte.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Its lines of text; empty for a label without text.
    pub text: Vec<String>,
    /// Whether the position in the head of the frame is that of this label.
    pub main: bool,
}

impl Label {
    fn end(&self) -> usize {
        self.start + self.len
    }
}

/// A colour, as an ANSI code.
#[derive(Clone, Copy)]
pub struct Style(pub &'static str);

const LINK: Style = Style("38;2;92;157;255;1;4");
const NUMBER: Style = Style("2");
const LABELS: [Style; 3] = [Style("38;2;246;87;248"), Style("38;2;30;201;212"), Style("38;2;145;246;111")];

/// Text in a style, if colours are on.
pub fn paint(color: bool, style: Style, text: &str) -> String {
    if color { format!("\x1b[{}m{text}\x1b[0m", style.0) } else { text.to_string() }
}

/// Appends the excerpts that hold the labels, each in its frame.
pub fn frames(out: &mut String, excerpts: &Excerpts<'_>, mut labels: Vec<Label>, color: bool) {
    labels.sort_by_key(|label| label.start);
    let mut shown: Vec<(usize, usize, Excerpt<'_>)> = Vec::new();
    for label in &labels {
        let Some(excerpt) = excerpts.read(label.start, label.len, CONTEXT) else { continue };
        if let Some((start, end, last)) = shown.last_mut()
            && last.line + last.text.matches('\n').count() >= excerpt.line
        {
            let joined = label.end().max(*end);
            if let Some(both) = excerpts.read(*start, joined - *start, CONTEXT) {
                (*end, *last) = (joined, both);
                continue;
            }
        }
        shown.push((label.start, label.end(), excerpt));
    }
    for (start, end, excerpt) in shown {
        let inside = |label: &&Label| start <= label.start && label.end() <= end;
        let main = labels.iter().filter(inside).find(|l| l.main).or_else(|| labels.iter().find(inside));
        let (line, column) = main.map_or((excerpt.line, 0), |main| excerpts.position(main.start));
        let mut frame = Frame { out, labels: &labels, color, number: 0, gutter: 0 };
        frame.draw(&excerpt, &format!("{}:{}:{}", excerpt.name, line + 1, column + 1));
    }
}

/// A line of an excerpt.
struct Line<'a> {
    start: usize,
    /// The offset after its line end.
    end: usize,
    text: &'a str,
}

impl Line<'_> {
    fn starts(&self, label: &Label) -> bool {
        (self.start..self.end).contains(&label.start)
    }

    fn ends(&self, label: &Label) -> bool {
        let end = label.start + label.len.max(1);
        self.start < end && end <= self.end
    }

    fn passes(&self, label: &Label) -> bool {
        label.start < self.start && label.start + label.len.max(1) > self.end
    }

    fn has(&self, label: &Label) -> bool {
        self.starts(label) || self.ends(label) || self.passes(label)
    }

    /// A label within this line.
    fn has_all(&self, label: &Label) -> bool {
        label.start >= self.start && label.end() <= self.end
    }

    fn has_in_gutter(&self, label: &Label) -> bool {
        self.has(label) && !(self.starts(label) && self.ends(label))
    }

    /// The columns before a position; the position at the line end has its own column.
    fn column(&self, position: usize) -> usize {
        let at = position - self.start;
        let columns = cells(self.text.get(..at).unwrap_or(self.text)).map(|(_, width)| width).sum::<usize>();
        columns + usize::from(at > self.text.len())
    }
}

/// The characters of a line with their widths in columns.
fn cells(text: &str) -> impl Iterator<Item = (char, usize)> {
    text.chars().scan(0, |column, c| {
        let width = if c == '\t' { TAB - *column % TAB } else { c.width().unwrap_or(0) };
        *column += width;
        Some((c, width))
    })
}

struct Frame<'a> {
    out: &'a mut String,
    labels: &'a [Label],
    color: bool,
    /// Width of the line numbers.
    number: usize,
    /// Maximum number of labels that pass a line in the gutter.
    gutter: usize,
}

impl Frame<'_> {
    fn draw(&mut self, excerpt: &Excerpt<'_>, place: &str) {
        let mut lines = Vec::new();
        let mut start = excerpt.start;
        for text in excerpt.text.split_inclusive('\n') {
            let end = start + text.len();
            lines.push(Line { start, end, text: text.strip_suffix('\n').unwrap_or(text) });
            start = end;
        }
        let in_gutter = |line: &Line<'_>| {
            self.labels.iter().filter(|label| !line.has_all(label) && line.has_in_gutter(label)).count()
        };
        self.gutter = lines.iter().map(in_gutter).max().unwrap_or(0);
        self.number = if lines.is_empty() { 1 } else { (excerpt.line + lines.len()).to_string().len() };
        let place = paint(self.color, LINK, place);
        self.put(&format!("{:1$}╭─[{place}]\n", "", self.number + 2));
        for (at, line) in lines.iter().enumerate() {
            let number = format!("{:>1$}", excerpt.line + 1 + at, self.number);
            let number = paint(self.color, NUMBER, &number);
            self.put(&format!(" {number} │ "));
            self.source_gutter(line);
            for (c, width) in cells(line.text) {
                match c {
                    '\t' => self.put(&" ".repeat(width)),
                    c => self.out.push(c),
                }
            }
            self.out.push('\n');
            self.marks(line);
        }
        self.put(&format!("{:1$}╰────\n", "", self.number + 2));
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Appends text in the style of the n-th label.
    fn styled(&mut self, label: usize, text: &str) {
        self.out.push_str(&paint(self.color, LABELS[label % LABELS.len()], text));
    }

    /// The start of an output line below a source line.
    fn below(&mut self) {
        self.put(&format!(" {:1$} · ", "", self.number));
    }

    /// The gutter of a source line: arrows of labels that begin or end here, bars of labels that pass.
    fn source_gutter(&mut self, line: &Line<'_>) {
        if self.gutter == 0 {
            return;
        }
        let passing = self.labels.iter().enumerate().filter(|(_, label)| line.has_in_gutter(label));
        let mut columns = 0;
        for (at, (n, label)) in passing.enumerate() {
            let corner = match (label.start >= line.start, label.end() <= line.end) {
                (true, _) => "╭",
                (false, true) if label.text.is_empty() => "╰",
                (false, true) => "├",
                (false, false) => {
                    self.styled(n, "│");
                    columns += 1;
                    continue;
                }
            };
            self.styled(n, &format!("{corner}{}▶", "─".repeat(self.gutter.saturating_sub(at))));
            self.put(" ");
            return;
        }
        self.put(&" ".repeat(3 + self.gutter.saturating_sub(columns)));
    }

    /// The gutter of an output line below a source line.
    fn label_gutter(&mut self, line: &Line<'_>, row: Row) {
        if self.gutter == 0 {
            return;
        }
        let passing = self.labels.iter().enumerate().filter(|(_, label)| line.has_in_gutter(label));
        let mut columns = 0;
        for (at, (n, label)) in passing.enumerate() {
            if line.has_all(label) || label.end() < line.start || label.end() > line.end {
                self.styled(n, "│");
                columns += 1;
                continue;
            }
            let across = self.gutter.saturating_sub(at) + 2;
            match row {
                Row::Next => self.put(&" ".repeat(across)),
                Row::First => self.styled(n, &format!("╰{}", "─".repeat(across - 1))),
                Row::Only => self.styled(n, &format!("╰{}", "─".repeat(across))),
            }
            columns += across + 1;
            break;
        }
        self.put(&" ".repeat((self.gutter + 3).saturating_sub(columns)));
    }

    /// The labels below a source line.
    fn marks(&mut self, line: &Line<'_>) {
        let all = self.labels;
        let (inside, others): (Vec<_>, Vec<_>) =
            all.iter().enumerate().filter(|(_, l)| line.has(l)).partition(|(_, l)| line.has_all(l));
        if !inside.is_empty() {
            self.below();
            self.label_gutter(line, Row::Only);
            let bars = self.underline(line, &inside);
            for (n, label) in inside.into_iter().rev() {
                for (text, row) in rows(&label.text) {
                    self.hang(line, &bars, (n, label), text, row);
                }
            }
        }
        for (n, label) in others {
            if label.start < line.start && label.end() <= line.end {
                for (text, row) in rows(&label.text) {
                    self.below();
                    self.label_gutter(line, row);
                    let joint = match row {
                        Row::Only => "─",
                        Row::First => "┤",
                        Row::Next => "│",
                    };
                    self.styled(n, joint);
                    self.put(" ");
                    self.styled(n, text);
                    self.out.push('\n');
                }
            }
        }
    }

    /// Underlines the labels of a line; returns the column below which each label's text is written.
    fn underline<'l>(
        &mut self,
        line: &Line<'_>,
        labels: &[(usize, &'l Label)],
    ) -> Vec<(usize, &'l Label, usize)> {
        let mut highest = 0;
        let mut bars = Vec::new();
        for &(n, label) in labels {
            let start = line.column(label.start).max(highest);
            let end = match label.len {
                0 => start + 1,
                _ => line.column(label.end()).max(start + 1),
            };
            let bar = (start + end) / 2;
            let joint = match (label.len, label.text.is_empty()) {
                (0, _) => "▲",
                (_, true) => "─",
                (_, false) => "┬",
            };
            let (left, right) = ("─".repeat(bar - start), "─".repeat(end - bar - 1));
            self.put(&" ".repeat(start - highest));
            self.styled(n, &format!("{left}{joint}{right}"));
            highest = highest.max(end);
            bars.push((n, label, bar));
        }
        self.out.push('\n');
        bars
    }

    /// A line of a label's text, below its bar; the bars of earlier labels continue.
    fn hang(
        &mut self,
        line: &Line<'_>,
        bars: &[(usize, &Label, usize)],
        (n, label): (usize, &Label),
        text: &str,
        row: Row,
    ) {
        self.below();
        self.label_gutter(line, Row::Only);
        let mut column = 0;
        for &(other, of, bar) in bars {
            self.put(&" ".repeat(bar.saturating_sub(column)));
            column = column.max(bar);
            if of == label {
                let joint = match row {
                    Row::Only => "╰──",
                    Row::First => "╰─┤",
                    Row::Next => "  │",
                };
                self.styled(n, &format!("{joint} {text}"));
                break;
            }
            self.styled(other, "│");
            column += 1;
        }
        self.out.push('\n');
    }
}

/// The index of a line in a label's text.
#[derive(Clone, Copy)]
enum Row {
    Only,
    First,
    Next,
}

fn rows(text: &[String]) -> impl Iterator<Item = (&str, Row)> {
    let first = if text.len() == 1 { Row::Only } else { Row::First };
    text.iter().enumerate().map(move |(at, text)| (text.as_str(), if at == 0 { first } else { Row::Next }))
}
