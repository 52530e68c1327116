//! `runnel fmt FILE...`: one layout for every program. A file is replaced whole or left as it was.

use super::error;
use super::program;
use super::terminal::Terminal;
use super::{Outcome, refuse};
use crate::base::SourceMap;
use std::ffi::OsString;
use std::io::{Result, Write};
use std::path::Path;

pub fn fmt(terminal: &Terminal, files: &[OsString], check: bool) -> Outcome {
    let mut outcome = Outcome::Done;
    for file in files {
        let mut sources = SourceMap::default();
        let program = match program::read(file) {
            Ok(program) => program,
            Err(error) => return refuse(terminal, &error, &sources),
        };
        let base = sources.add(&program.name, &program.text).map_or(0, |(_, base)| base);
        let formatted = match crate::syntax::format(base, &program.text) {
            Ok(formatted) => formatted,
            Err(error) => {
                terminal.report(&error, &sources);
                outcome = Outcome::Failed;
                continue;
            }
        };
        let changes = formatted != program.text;
        if check {
            if changes {
                terminal.print(&format!("{}\n", program.name));
                outcome = Outcome::Failed;
            }
        } else if file == "-" {
            terminal.print(&formatted);
        } else if changes && let Err(reason) = replace(Path::new(file), &formatted) {
            return refuse(terminal, &error::unwritable(Path::new(file), &reason), &sources);
        }
    }
    terminal.flush();
    outcome
}

/// Puts a new file in the place of an old one, with its permissions.
fn replace(path: &Path, text: &str) -> Result<()> {
    let path = path.canonicalize()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut beside = tempfile::Builder::new().prefix(".runnel-").suffix(".part").tempfile_in(folder)?;
    beside.write_all(text.as_bytes())?;
    beside.as_file().set_permissions(std::fs::metadata(&path)?.permissions())?;
    beside.as_file().sync_all()?;
    beside.persist(&path)?;
    Ok(())
}
