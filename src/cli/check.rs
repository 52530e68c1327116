//! `runnel check FILE...`: everything that is wrong with scripts, without running them.

use super::terminal::Terminal;
use super::{Outcome, program, refuse};
use crate::base::SourceMap;
use crate::engine::joined;
use crate::engine::report::{self, Severity};
use std::ffi::OsString;

pub fn check(terminal: &Terminal, files: &[OsString], json: bool) -> Outcome {
    let mut sources = SourceMap::default();
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for file in files {
        let program = match program::read(file) {
            Ok(program) => program,
            Err(error) => return refuse(terminal, &error, &sources),
        };
        let found = crate::engine::diagnose(&mut sources, &program.name, &program.text);
        errors.extend(found.errors);
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
