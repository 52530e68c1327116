//! `runnel check FILE...`: finds errors in scripts without running them.

use super::terminal::Terminal;
use super::{Outcome, program, refuse};
use crate::base::SourceMap;
use crate::engine::joined;
use crate::engine::report::{self, Severity};
use std::collections::HashSet;
use std::ffi::OsString;

/// The text of a file that a program imports. A missing file is reported where it is imported.
pub fn imported(path: &str) -> Option<String> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    program::read(path.as_ref()).ok().map(|file| file.text)
}

pub fn check(terminal: &Terminal, files: &[OsString], json: bool) -> Outcome {
    let mut sources = SourceMap::default();
    let (mut errors, mut warnings, mut told) = (Vec::new(), Vec::new(), HashSet::new());
    for file in files {
        let program = match program::read(file) {
            Ok(program) => program,
            Err(error) => return refuse(terminal, &error, &sources),
        };
        let found = crate::engine::diagnose_beside(&mut sources, &program.name, &program.text, &imported);
        // The given files may import each other.
        errors
            .extend(found.errors.into_iter().filter(|e| told.insert((sources.place(e.span()), e.code().id))));
        warnings.extend(found.warnings);
    }
    let outcome = if errors.is_empty() { Outcome::Done } else { Outcome::Failed };
    if json {
        let all = [(errors, Severity::Error), (warnings, Severity::Warning)];
        terminal.print(&report::json(&all, &sources));
        terminal.flush();
        return outcome;
    }
    if let Some(warning) = joined(warnings) {
        terminal.warn(&warning, &sources);
    }
    if let Some(error) = joined(errors) {
        terminal.report(&error, &sources);
    }
    outcome
}
