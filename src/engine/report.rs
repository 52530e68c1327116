//! Renders errors as text: source lines, a label on every operand, the call chain, the help.
//!
//! There is one renderer: [`Engine::report`](super::Engine::report) uses it without colours, the command line
//! with the terminal's width and colours. It writes nothing itself and never fails: invalid spans are moved,
//! control characters of the source are made visible, and very long lines are cut around their label.

mod frame;
mod json;
mod text;
mod wrap;

pub use json::json;

use self::frame::{Label, Style, frames, paint};
use self::text::Excerpts;
use self::wrap::wrapped;
use crate::base::{Error, Place, SourceMap, Span};
use std::borrow::Cow;

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Line width for wrapping.
    pub width: usize,
    /// Whether it has colours.
    pub color: bool,
}

impl Look {
    /// No colours, 100 columns: for logs and programs.
    pub const PLAIN: Look = Look { width: 100, color: false };
}

/// The severity of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program stopped, or did not start.
    Error,
    /// The program continues.
    Warning,
}

/// Maximum number of active calls shown at each end of a long chain.
const CALLS_SHOWN: usize = 4;
/// Maximum number of errors and labels shown.
const ERRORS_SHOWN: usize = 100;
const LABELS_SHOWN: usize = 24;
/// Maximum number of characters shown of a message, help or label.
const MESSAGE_SHOWN: usize = 4000;
const LABEL_SHOWN: usize = 400;

/// The report of an error and its attached errors, each with its source lines. Ends in a line end.
pub fn render(error: &Error, sources: &SourceMap, severity: Severity, look: Look) -> String {
    let errors = flatten(error, sources);
    let mut out = String::new();
    for (at, (error, sources)) in errors.iter().take(ERRORS_SHOWN).enumerate() {
        if at > 0 {
            out.push('\n');
        }
        one(&mut out, error, sources, severity, look);
    }
    if errors.len() > ERRORS_SHOWN {
        out.push_str(&format!("\n  ... {} more errors\n", errors.len() - ERRORS_SHOWN));
    }
    let mut codes: Vec<&str> = Vec::new();
    for (error, _) in &errors {
        if !codes.contains(&error.code().id) && !error.code().page.is_empty() {
            codes.push(error.code().id);
        }
    }
    if !codes.is_empty() {
        let shown = codes.join(" ");
        let (on, off) = if look.color { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        out.push_str(&format!("{on}  more: runnel explain {shown}{off}\n"));
    }
    out
}

/// An error and its attached errors, in order, at any nesting; each with the sources of its spans: its own if
/// it holds them, else `sources`.
pub(crate) fn flatten<'e>(error: &'e Error, sources: &'e SourceMap) -> Vec<(&'e Error, &'e SourceMap)> {
    let (mut flat, mut left) = (Vec::new(), vec![(error, sources)]);
    while let Some((error, sources)) = left.pop() {
        let sources = error.sources().unwrap_or(sources);
        flat.push((error, sources));
        left.extend(error.others().iter().rev().map(|other| (other, sources)));
    }
    flat
}

fn one(out: &mut String, error: &Error, sources: &SourceMap, severity: Severity, look: Look) {
    let mut spans: Vec<(Span, Cow<'_, str>)> = error
        .labels()
        .iter()
        .filter_map(|label| match label.place {
            Place::Span(span) => Some((span, label.text())),
            _ => None,
        })
        .take(LABELS_SHOWN)
        .collect();
    spans.extend(caller(error, sources, &spans));
    let excerpts = Excerpts::new(sources, spans.iter().map(|(span, _)| *span));
    let labels = spans.iter().enumerate().filter_map(|(at, (span, text))| {
        let (start, len) = excerpts.place(*span)?;
        let text = text::visible(text);
        let text = text::clipped(&text, LABEL_SHOWN);
        // Empty text has no lines.
        let text = if text.is_empty() { Vec::new() } else { text.split('\n').map(str::to_string).collect() };
        Some(Label { start, len, text, main: at == 0 })
    });
    let labels = labels.collect();
    let (icon, style) = match severity {
        Severity::Error => ("×", Style("38;2;255;30;30")),
        Severity::Warning => ("!", Style("38;2;244;191;117")),
    };
    let width = look.width.max(20) - 2;
    let message = text::visible(error.message());
    let message = format!("{}: {}", error.code().id, text::clipped(&message, MESSAGE_SHOWN));
    let [first, rest] = [icon, "│"].map(|sign| format!("  {} ", paint(look.color, style, sign)));
    wrapped(out, &message, width, (&first, &rest), 4);
    frames(out, &excerpts, labels, look.color);
    if let Some(help) = error.help_text() {
        let first = paint(look.color, Style("38;2;106;159;181"), "  help: ");
        let help = text::visible(help);
        wrapped(out, &text::clipped(&help, MESSAGE_SHOWN), width, (&first, "        "), 8);
    }
    calls(out, error, sources);
}

/// The position where the script called the code of another file that failed: its own innermost call, if
/// nothing in the script is labelled.
fn caller(
    error: &Error,
    sources: &SourceMap,
    spans: &[(Span, Cow<'_, str>)],
) -> Option<(Span, Cow<'static, str>)> {
    let file = |span: Span| sources.find(span);
    let script = file(*error.calls().last()?)?;
    if spans.is_empty() || spans.iter().any(|(span, _)| file(*span) == Some(script)) {
        return None;
    }
    let call = error.calls().iter().copied().find(|call| file(*call) == Some(script))?;
    let before = sources.text(script).get(..(call.lo - sources.base(script)) as usize).unwrap_or("");
    let line = before.rsplit('\n').next().unwrap_or("").trim_start();
    Some((call, if line.starts_with("import ") { "imported here".into() } else { "called from here".into() }))
}

/// The active calls, innermost first; a long chain is cut in the middle.
fn calls(out: &mut String, error: &Error, sources: &SourceMap) {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for &span in error.calls() {
        if sources.find(span).is_none() {
            continue;
        }
        let place = sources.place(span);
        let line =
            format!("{}: {}", text::clipped(&place, LABEL_SHOWN), text::first_line(sources.snippet(span)));
        match lines.last_mut() {
            Some((last, times)) if *last == line => *times += 1,
            _ => lines.push((line, 1)),
        }
    }
    for (at, (line, times)) in lines.iter().enumerate() {
        if lines.len() > 2 * CALLS_SHOWN + 1 && (CALLS_SHOWN..lines.len() - CALLS_SHOWN).contains(&at) {
            if at == CALLS_SHOWN {
                out.push_str(&format!("         ... {} more calls\n", lines.len() - 2 * CALLS_SHOWN));
            }
            continue;
        }
        let word = if at == 0 { "  called from" } else { "         from" };
        let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
        out.push_str(&format!("{word} {}{times}\n", text::visible(line)));
    }
}

#[cfg(test)]
mod tests;
