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
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = std::fs::File::create_new(&beside)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::metadata(&path)?.permissions())?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}
