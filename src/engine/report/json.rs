//! Errors as JSON, one object per error: for editors and continuous integration.

use super::text::clipped;
use super::{Severity, flatten};
use crate::base::{Error, Label, Place, SourceMap, Span, quoted};

/// An array of one object per error: `code kind severity message labels help calls`. A position has `file
/// line column end_line end_column`, all counted from 1, columns in characters.
pub fn json(all: &[(Vec<Error>, Severity)], sources: &SourceMap) -> String {
    let flat = all.iter().flat_map(|(errors, severity)| errors.iter().map(move |error| (error, *severity)));
    let flat =
        flat.flat_map(|(error, severity)| flatten(error, sources).into_iter().map(move |e| (e, severity)));
    let objects: Vec<String> =
        flat.map(|((error, sources), severity)| object(error, sources, severity)).collect();
    format!("[{}]\n", objects.join(",\n "))
}

fn object(error: &Error, sources: &SourceMap, severity: Severity) -> String {
    let severity = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let label = |label: &Label| match label.place {
        Place::Span(span) => {
            Some(format!("{{{},\"text\":{}}}", place(sources, span)?, quoted(&clipped(&label.text(), 4000))))
        }
        _ => None,
    };
    let labels: Vec<String> = error.labels().iter().filter_map(label).collect();
    let calls = error.calls().iter().filter_map(|span| Some(format!("{{{}}}", place(sources, *span)?)));
    format!(
        "{{\"code\":{},\"kind\":{},\"severity\":{},\"message\":{},\"labels\":[{}],\"help\":{},\"calls\":[{}]}}",
        quoted(error.code().id),
        quoted(&error.kind().to_string()),
        quoted(severity),
        quoted(&clipped(error.message(), 4000)),
        labels.join(","),
        error.help_text().map_or("null".to_string(), |help| quoted(&clipped(help, 4000))),
        calls.collect::<Vec<_>>().join(","),
    )
}

fn place(sources: &SourceMap, span: Span) -> Option<String> {
    let file = quoted(sources.name(sources.find(span)?));
    let (line, column) = sources.line_column(span)?;
    let (end_line, end_column) = sources.line_column(Span::new(span.hi, span.hi))?;
    Some(format!(
        "\"file\":{file},\"line\":{line},\"column\":{column},\"end_line\":{end_line},\"end_column\":{end_column}"
    ))
}
