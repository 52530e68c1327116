//! What has succeeded in a session, as a script.
//!
//! Invariant: run from its start, the script does what the inputs did. So `_`, which only a session has,
//! becomes a name of its own wherever it is read.

use crate::base::{Result, SourceMap, Span};
use crate::cli::error;
use crate::library::files::whole;
use crate::syntax::ast::StmtKind;
use std::path::Path;

/// The first words of every script that is written here: only such a file is written over.
const HEAD: &str = "# A session of runnel";

/// The inputs that have succeeded.
#[derive(Default)]
pub struct Script {
    inputs: Vec<Input>,
}

struct Input {
    text: String,
    /// It gave a value, which was `_` from then on.
    has_value: bool,
}

impl Script {
    /// Adds an input.
    pub fn push(&mut self, text: &str, has_value: bool) {
        self.inputs.push(Input { text: text.trim_end().to_string(), has_value });
    }

    /// Writes the script; how many inputs it has.
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

/// Where a text reads `_`, in order: the checker knows no value of that name.
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

/// Gives the value of an input's last expression a name.
fn name_value(text: &mut String, name: &str) {
    let parsed = crate::syntax::parse(1, text);
    let Some(last) = parsed.block.body.last() else { return };
    let named = format!("let {name} = ");
    if matches!(last.kind, StmtKind::Expr(_)) && !text.contains(&named) {
        text.insert_str(last.span.lo as usize - 1, &named);
    }
}
