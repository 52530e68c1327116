//! `runnel check FILE...`: everything that is wrong with scripts, without running them.

use super::terminal::Terminal;
use super::{Outcome, program, refuse};
use crate::base::SourceMap;
use crate::engine::joined;
use crate::engine::report::{self, Severity};
use std::ffi::OsString;
use std::path::Path;

/// The text of a file that a program imports; what is wrong with the file itself is told where it is checked.
pub fn beside(program: &str, path: &str) -> Option<String> {
    let folder = Path::new(program).parent().unwrap_or(Path::new(""));
    program::read(folder.join(path).as_os_str()).ok().map(|file| file.text)
}

pub fn check(terminal: &Terminal, files: &[OsString], json: bool) -> Outcome {
    let mut sources = SourceMap::default();
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for file in files {
        let program = match program::read(file) {
            Ok(program) => program,
            Err(error) => return refuse(terminal, &error, &sources),
        };
        let files = |path: &str| beside(&program.name, path);
        let found = crate::engine::diagnose_beside(&mut sources, &program.name, &program.text, Some(&files));
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
