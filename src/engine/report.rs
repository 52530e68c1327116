//! Errors as text: the source lines, a label on every operand, the call chain, the help.
//!
//! One renderer for everybody: [`Engine::report`](super::Engine::report) gives it plain, the command
//! line gives it with the terminal's width and colours. It writes nothing by itself, and it never
//! fails: spans that lie badly are moved, control characters of the source are made visible, and very
//! long lines are cut around their label.

mod json;
mod text;

pub use json::json;

use self::text::Excerpts;
use crate::base::{Error, Place, SourceMap, Span};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode, ThemeCharacters};
use std::borrow::Cow;

/// How a report looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns at which texts are wrapped.
    pub width: usize,
    /// Whether it has colours.
    pub color: bool,
}

impl Look {
    /// No colours, 100 columns: for logs and programs.
    pub const PLAIN: Look = Look { width: 100, color: false };
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program stopped, or would not start.
    Error,
    /// The program goes on.
    Warning,
}

/// How many active calls a report shows at each end of a long chain.
const CALLS_SHOWN: usize = 4;
/// How many errors and labels it shows.
const ERRORS_SHOWN: usize = 100;
const LABELS_SHOWN: usize = 24;
/// How many characters of a message or a help it shows, and of a label.
const MESSAGE_SHOWN: usize = 4000;
const LABEL_SHOWN: usize = 400;

/// The report of an error and of the others it came with, each with its source lines. Ends in a line
/// end.
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

/// An error and those it came with, in order, however they are nested; each with the sources of its places: those
/// that it has taken along, or else these.
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
    let labels = spans
        .iter()
        .enumerate()
        .filter_map(|(at, (span, text))| {
            let place = excerpts.place(*span)?;
            let text =
                (!text.is_empty()).then(|| text::clipped(&text::visible(text), LABEL_SHOWN).into_owned());
            Some(match at {
                0 => LabeledSpan::new_primary_with_span(text, place),
                _ => LabeledSpan::new_with_span(text, place),
            })
        })
        .collect();
    let shown = Shown { error, excerpts, labels, severity };
    let handler = GraphicalReportHandler::new_themed(theme(look))
        .with_width(look.width.max(20))
        .with_links(false)
        .without_syntax_highlighting();
    let start = out.len();
    if handler.render_report(out, &shown).is_err() {
        out.truncate(start);
        out.push_str(&format!("  {}\n", text::clipped(&error.to_string(), MESSAGE_SHOWN)));
    }
    calls(out, error, sources);
}

/// Where the script has called what failed in another file: its own innermost call, when nothing in the script
/// is labelled.
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

/// The calls that were active, innermost first; a long chain is cut in its middle.
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

fn theme(look: Look) -> GraphicalTheme {
    let mut theme = if look.color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    theme.characters = ThemeCharacters { warning: "!".into(), ..ThemeCharacters::unicode() };
    theme
}

/// One error, as miette wants to see it.
struct Shown<'a> {
    error: &'a Error,
    excerpts: Excerpts<'a>,
    labels: Vec<LabeledSpan>,
    severity: Severity,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}",
            self.error.code().id,
            text::clipped(&text::visible(self.error.message()), MESSAGE_SHOWN)
        )
    }
}

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        let help = self.error.help_text()?;
        Some(Box::new(text::clipped(&text::visible(help), MESSAGE_SHOWN).into_owned()))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.excerpts)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

#[cfg(test)]
mod tests;
