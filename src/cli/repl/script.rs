//! The successful inputs of a session, as a script.
//!
//! Invariant: running the script does the same as the inputs did. `_` exists only in sessions, so each value
//! read through it gets a name.

use crate::base::{Result, SourceMap, Span};
use crate::cli::error;
use crate::library::files::whole;
use crate::syntax::ast::StmtKind;
use std::path::Path;

/// The first words of every script written here: only files that start so are overwritten.
const HEAD: &str = "# A session of runnel";

/// The successful inputs.
#[derive(Default)]
pub struct Script {
    inputs: Vec<Input>,
}

struct Input {
    text: String,
    /// Whether it had a value, which then was `_`.
    has_value: bool,
}

impl Script {
    /// Adds an input.
    pub fn push(&mut self, text: &str, has_value: bool) {
        self.inputs.push(Input { text: text.trim_end().to_string(), has_value });
    }

    /// Writes the script; returns the number of inputs.
    ///
    /// # Errors
    /// E0956.
    pub fn write(&self, path: &Path) -> Result<usize> {
        if let Ok(there) = std::fs::read(path)
            && !there.is_empty()
            && !there.starts_with(HEAD.as_bytes())
        {
            return Err(error::not_ours(path));
        }
        whole::put(path, self.text().as_bytes()).map_err(|reason| error::unwritable(path, &reason))?;
        Ok(self.inputs.len())
    }

    /// The script.
    pub fn text(&self) -> String {
        let mut texts: Vec<String> = self.inputs.iter().map(|input| input.text.clone()).collect();
        let mut last = None;
        for at in 0..texts.len() {
            let reads = reads_last(&texts[at]);
            if let (Some(from), false) = (last, reads.is_empty()) {
                let name = format!("last_{}", from + 1);
                for span in reads.into_iter().rev() {
                    texts[at].replace_range(span, &name);
                }
                name_value(&mut texts[from], &name);
            }
            if self.inputs[at].has_value {
                last = Some(at);
            }
        }
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!("{HEAD} {version}\n");
        for input in texts {
            text += &input;
            text.push('\n');
        }
        text
    }
}

/// The positions where a text reads `_`, in order: names that the checker cannot resolve.
fn reads_last(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut sources = SourceMap::default();
    let found = crate::engine::diagnose(&mut sources, "input", text);
    let spans = found.errors.iter().map(|error| error.span());
    let is_it = |span: &Span| !span.is_none() && sources.snippet(*span) == "_";
    let base = |span: Span| sources.find(span).map_or(0, |id| sources.base(id));
    let mut ranges: Vec<_> = spans
        .filter(is_it)
        .map(|span| (span.lo - base(span)) as usize..(span.hi - base(span)) as usize)
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    ranges
}

/// Names the value of an input's last expression.
fn name_value(text: &mut String, name: &str) {
    let parsed = crate::syntax::parse(1, text);
    let Some(last) = parsed.block.body.last() else { return };
    let named = format!("let {name} = ");
    if matches!(last.kind, StmtKind::Expr(_)) && !text.contains(&named) {
        text.insert_str(last.span.lo as usize - 1, &named);
    }
}
