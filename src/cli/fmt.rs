//! `runnel fmt FILE...`: one layout for every program. A file is replaced atomically or left unchanged.

use super::error;
use super::program;
use super::terminal::Terminal;
use super::{Outcome, refuse};
use crate::base::SourceMap;
use crate::library::files::whole;
use std::ffi::OsString;
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
        } else if changes && let Err(reason) = whole::put(Path::new(file), formatted.as_bytes()) {
            return refuse(terminal, &error::unwritable(Path::new(file), &reason), &sources);
        }
    }
    terminal.flush();
    outcome
}
