//! `--timeline`: draws the streams of a run with letters.
//!
//! One row per stream, time to the right. The longest operations have their own letters, which the legend
//! explains with their lines; all others are `+`. `~` marks waits of the host.

use crate::base::Span;
use crate::plan::trace::{Action, ActionKind, Recording, Row};

/// Number of operations with letters.
const LETTERS: usize = 10;
/// Represents the operations without a letter.
const OTHER: usize = LETTERS;
/// Represents waits of the host.
const WAITS: usize = LETTERS + 1;
const MARKS: &[u8; LETTERS + 2] = b"abcdefghij+~";

/// All runs of one operation at one source position.
struct Operation<'a> {
    name: &'a str,
    span: Span,
    count: usize,
    total: u64,
}

/// Draws a recording in `width` columns; `place` returns `file.rnl:3` for a span.
pub fn draw(recording: &Recording, width: usize, color: bool, place: impl Fn(Span) -> String) -> String {
    let work: Vec<&Action> = recording.actions.iter().filter(|a| is_work(a)).collect();
    let Some(first) = work.iter().map(|a| a.start).min() else {
        return "timeline: nothing ran on a device\n".to_string();
    };
    let last = work.iter().map(|a| a.end).max().unwrap_or(first).max(first + 1);
    let operations = longest(&work);
    let rows = rows(&work);
    let labels: Vec<String> = rows.iter().map(|row| label(*row)).collect();
    let margin = labels.iter().map(String::len).max().unwrap_or(0);
    // Label, share of time in use, and the two bars around the drawing.
    let columns = width.saturating_sub(margin + 8).max(16);
    let kind = if recording.is_virtual { ", modelled" } else { "" };
    let mut text = format!("timeline: {}{kind}\n", duration(last - first));
    text.push_str(&axis(margin, columns, last - first));
    for (row, label) in rows.iter().zip(&labels) {
        let mine: Vec<(&Action, usize)> =
            work.iter().filter(|a| a.row == *row).map(|a| (*a, mark(a, &operations))).collect();
        let share = 100 * busy(&mine) / (last - first);
        let cells = cells(&mine, first, last, columns);
        text.push_str(&format!("{label:margin$} {share:>3}% |{}|\n", painted(&cells, color)));
    }
    let shown = operations.iter().take(LETTERS);
    let longest = shown.clone().map(|o| o.name.chars().count()).max().unwrap_or(0).min(width / 3);
    for (at, operation) in shown.enumerate() {
        let name: String = operation.name.chars().take(longest).collect();
        let total = duration(operation.total);
        let line = format!("{total:>9} {:>5}x  {name:longest$}  {}", operation.count, place(operation.span));
        text.push_str(&format!("  {} {}\n", painted(&[Some(at)], color), line.trim_end()));
    }
    if operations.len() > LETTERS {
        let total = operations[LETTERS..].iter().map(|o| o.total).sum();
        let more = operations.len() - LETTERS;
        text.push_str(&format!("  + {:>9}         {more} more operations\n", duration(total)));
    }
    let waits: Vec<u64> =
        work.iter().filter(|a| a.kind == ActionKind::Wait).map(|a| a.end - a.start).collect();
    if !waits.is_empty() {
        let (mark, total) = (painted(&[Some(WAITS)], color), duration(waits.iter().sum()));
        text.push_str(&format!("  {mark} {total:>9} {:>5}x  the host waits\n", waits.len()));
    }
    if recording.dropped > 0 {
        text.push_str(&format!("{} later actions were not kept\n", recording.dropped));
    }
    text
}

fn is_work(action: &Action) -> bool {
    use ActionKind::{Compile, Copy, Launch, Sleep, Wait};
    matches!(action.kind, Launch | Copy | Sleep | Wait | Compile)
}

/// The rows with work, the host's first.
fn rows(work: &[&Action]) -> Vec<Row> {
    let mut rows: Vec<Row> = work.iter().map(|a| a.row).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn label(row: Row) -> String {
    match row {
        Row::Host => "host".to_string(),
        Row::Compiler => "compiler".to_string(),
        Row::Stream(device, 0) => format!("{device} default"),
        Row::Stream(device, stream) => format!("{device} stream {stream}"),
        Row::Memory(device) => format!("{device} memory"),
    }
}

/// Operations by name and position, sorted by total time, longest first.
fn longest<'a>(work: &[&'a Action]) -> Vec<Operation<'a>> {
    let mut all: Vec<Operation<'a>> = Vec::new();
    let mut index = foldhash::HashMap::default();
    for action in work.iter().filter(|a| a.kind != ActionKind::Wait) {
        let span = action.spans.first().copied().unwrap_or(Span::NONE);
        let at = *index.entry((&*action.name, span)).or_insert_with(|| {
            all.push(Operation { name: &action.name, span, count: 0, total: 0 });
            all.len() - 1
        });
        all[at].count += 1;
        all[at].total += action.end - action.start;
    }
    // The sort is stable: equal operations stay in the order in which they ran.
    all.sort_by_key(|operation| std::cmp::Reverse(operation.total));
    all
}

fn mark(action: &Action, operations: &[Operation<'_>]) -> usize {
    if action.kind == ActionKind::Wait {
        return WAITS;
    }
    let span = action.spans.first().copied().unwrap_or(Span::NONE);
    let shown = operations.iter().take(LETTERS);
    shown.into_iter().position(|o| o.name == action.name && o.span == span).unwrap_or(OTHER)
}

/// The total busy time of a row.
fn busy(mine: &[(&Action, usize)]) -> u64 {
    let mut times: Vec<(u64, u64)> = mine.iter().map(|(a, _)| (a.start, a.end)).collect();
    times.sort_unstable();
    let (mut total, mut reached) = (0, 0);
    for (start, end) in times {
        let start = start.max(reached);
        total += end.saturating_sub(start);
        reached = reached.max(end);
    }
    total
}

/// The operation with the largest share of each column. Short ones are shown in columns that would be empty.
fn cells(mine: &[(&Action, usize)], first: u64, last: u64, columns: usize) -> Vec<Option<usize>> {
    let mut best: Vec<(u64, Option<usize>)> = vec![(0, None); columns];
    let length = u128::from(last - first);
    let column = |time: u64| (u128::from(time - first) * columns as u128 / length) as usize;
    let begin = |column: usize| first + (column as u128 * length / columns as u128) as u64;
    for (action, mark) in mine {
        let (from, to) = (column(action.start), column(action.end).min(columns - 1));
        let from = from.min(to);
        for (at, cell) in best.iter_mut().enumerate().take(to + 1).skip(from) {
            let overlap = action.end.min(begin(at + 1)).saturating_sub(action.start.max(begin(at)));
            if overlap > cell.0 {
                *cell = (overlap, Some(*mark));
            }
        }
    }
    best.into_iter().map(|(_, mark)| mark).collect()
}

fn painted(cells: &[Option<usize>], color: bool) -> String {
    let mut text = String::new();
    let mut open = None;
    for cell in cells {
        let letter = cell.map(|mark| char::from(MARKS[mark]));
        let hue = cell.filter(|mark| *mark < LETTERS).map(|mark| 31 + mark % 6);
        if color && hue != open {
            text.push_str(&hue.map_or("\x1b[0m".to_string(), |hue| format!("\x1b[{hue}m")));
            open = hue;
        }
        text.push(letter.unwrap_or(' '));
    }
    if open.is_some() {
        text.push_str("\x1b[0m");
    }
    text
}

/// The line of times above the rows.
fn axis(margin: usize, columns: usize, length: u64) -> String {
    let end = duration(length);
    let middle = duration(length / 2);
    let mut line = format!("{:width$}0", "", width = margin + 7);
    let put = |line: &mut String, at: usize, text: &str| {
        if line.chars().count() < at {
            line.push_str(&" ".repeat(at - line.chars().count()));
            line.push_str(text);
        }
    };
    put(&mut line, margin + 7 + columns / 2, &middle);
    put(&mut line, (margin + 7 + columns).saturating_sub(end.len()), &end);
    line.push('\n');
    line
}

/// `812 ns`, `12.5 us`, `1.24 ms`, `2.31 s`.
fn duration(ns: u64) -> String {
    let scaled = |unit: f64, name: &str| {
        let value = ns as f64 / unit;
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        format!("{value:.digits$} {name}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => scaled(1e3, "us"),
        1_000_000..1_000_000_000 => scaled(1e6, "ms"),
        _ => scaled(1e9, "s"),
    }
}

/// A source position without its column: `file.rnl:3`.
pub fn line(place: &str) -> String {
    place.rsplit_once(':').map_or(place, |(line, _)| line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Dims;
    use crate::driver::DeviceId;
    use smallvec::smallvec;

    fn work(stream: u32, name: &'static str, start: u64, end: u64) -> Action {
        Action {
            row: Row::Stream(DeviceId::Cuda(0), stream),
            kind: ActionKind::Launch,
            name: name.into(),
            start,
            end,
            spans: smallvec![Span::new(end as u32, end as u32 + 1)],
            shape: Dims::new(),
            bytes: 0,
        }
    }

    fn recording(actions: Vec<Action>) -> Recording {
        Recording { actions, devices: Vec::new(), dropped: 0, is_virtual: true }
    }

    #[test]
    fn streams_are_rows_and_long_operations_have_letters() {
        let mut wait = work(0, "wait for cuda:0", 3_000, 8_000);
        (wait.row, wait.kind) = (Row::Host, ActionKind::Wait);
        let all = recording(vec![
            work(0, "matmul", 0, 4_000),
            work(1, "add+relu", 2_000, 4_000),
            work(0, "sum", 6_000, 8_000),
            wait,
        ]);
        let drawn = draw(&all, 48, false, |span| format!("a.rnl:{}", span.lo / 1000));
        insta::assert_snapshot!(drawn, @r"
        timeline: 8.00 us, modelled
                              0           4.00 us
        host             62% |         ~~~~~~~~~~~~~~~~|
        cuda:0 default   75% |aaaaaaaaaaaaa     ccccccc|
        cuda:0 stream 1  25% |      bbbbbbb            |
          a   4.00 us     1x  matmul    a.rnl:4
          b   2.00 us     1x  add+relu  a.rnl:4
          c   2.00 us     1x  sum       a.rnl:8
          ~   5.00 us     1x  the host waits
        ");
        let colored = draw(&all, 48, true, |_| String::new());
        // Compilation has its own row, next to the launch that needed it.
        let mut compile = work(0, "compile add+relu", 0, 2_000);
        (compile.row, compile.kind) = (Row::Compiler, ActionKind::Compile);
        let drawn_with =
            draw(&recording(vec![compile, work(0, "add+relu", 2_000, 3_000)]), 48, false, |_| String::new());
        assert!(
            drawn_with.lines().any(|line| line.starts_with("compiler") && line.contains(" 66% ")),
            "{drawn_with}"
        );
        assert!(colored.contains("\x1b[31ma") && !drawn.contains('\x1b'));
        assert_eq!(draw(&recording(Vec::new()), 48, false, |_| String::new()).lines().count(), 1);
    }

    #[test]
    fn short_work_is_seen_and_widths_are_kept() {
        let actions: Vec<Action> = (0..200u64).map(|i| work(0, "add", i * 1_000, i * 1_000 + 10)).collect();
        for width in [20, 80, 200] {
            let drawn = draw(&recording(actions.clone()), width, false, |_| String::new());
            let rows: Vec<&str> = drawn.lines().filter(|line| line.contains('|')).collect();
            assert_eq!(rows.len(), 1);
            assert!(rows[0].contains('a') && rows[0].contains('+'), "{drawn}");
            assert!(width < 40 || rows[0].chars().count() == width, "{width}: {drawn}");
        }
        assert_eq!(
            [12, 1_234, 45_600, 7_890_000, 12_300_000_000].map(duration).join(" "),
            "12 ns 1.23 us 45.6 us 7.89 ms 12.3 s"
        );
        assert_eq!(line("a.rnl:3:7"), "a.rnl:3");
    }
}
