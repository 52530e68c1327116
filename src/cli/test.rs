//! `runnel test FILE...`: runs the `test "name" { }` blocks of scripts, with a line each and a final summary.
//!
//! A file is run first, then its tests in order, all in one session per file. A test fails if it raises an
//! error; the others run anyway.

use super::args::Options;
use super::run::Session;
use super::terminal::Terminal;
use super::{Outcome, program, refuse};
use crate::base::{Error, SourceMap};
use crate::vm::Mode;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Numbers of tests by result.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    left_out: usize,
    /// Files that failed before their tests.
    broken: usize,
}

pub fn test(cli: &Options, terminal: &Terminal, files: &[OsString], filter: Option<&str>) -> Outcome {
    let mut tally = Tally::default();
    for file in files.iter().flat_map(|file| scripts(Path::new(file))) {
        if let Err(outcome) = one(cli, terminal, &file, filter, &mut tally) {
            return outcome;
        }
    }
    terminal.print(&summary(&tally));
    terminal.flush();
    if tally.failed + tally.broken > 0 { Outcome::Failed } else { Outcome::Done }
}

/// Runs a file and its tests. Returns an outcome that ends the whole run.
fn one(
    cli: &Options,
    terminal: &Terminal,
    file: &Path,
    filter: Option<&str>,
    tally: &mut Tally,
) -> Result<(), Outcome> {
    let refused = |error: Error| refuse(terminal, &error, &SourceMap::default());
    let program = program::read(file.as_os_str()).map_err(refused)?;
    let mut session = Session::new(cli, terminal, Vec::new()).map_err(refused)?;
    session.listen();
    let ran = session.engine.evaluate(&program.name, &program.text, Mode::Script, |_, _| Ok(()));
    // A file that calls `exit(0)` still has tests.
    let ran = ran.or_else(|e| if e.exit_status() == Some(0) { Ok(()) } else { Err(e) });
    let tests = session.engine.take_tests();
    if ran.is_ok() && tests.is_empty() {
        return Ok(());
    }
    terminal.print(&format!("{}\n", program.name));
    if !is_done(&mut session, ran)? {
        tally.broken += 1;
        return Ok(());
    }
    for test in tests {
        if filter.is_some_and(|text| !test.name().contains(text)) {
            tally.left_out += 1;
            continue;
        }
        let result = session.engine.run_test(&test);
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        terminal.print(&format!("  {word:<7} {}\n", test.name()));
        match is_done(&mut session, result)? {
            true => tally.passed += 1,
            false => tally.failed += 1,
        }
    }
    Ok(())
}

/// Reports the result of a file or a test; `exit` counts as an error, and Ctrl-C ends the whole run.
fn is_done(session: &mut Session, result: crate::base::Result<()>) -> Result<bool, Outcome> {
    if let Err(error) = &result
        && error.exit_status().is_some()
    {
        session.report(error);
    }
    match session.finish(result) {
        outcome @ Outcome::Interrupted(_) => {
            session.engine.leave_heap();
            Err(outcome)
        }
        outcome => Ok(outcome == Outcome::Done),
    }
}

/// The file itself, or the scripts in a folder and its subfolders, sorted by name, without hidden ones.
fn scripts(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_path_buf()];
    }
    let mut folders = vec![path.to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => folders.push(path),
                Ok(kind) if kind.is_file() && !hidden && path.extension() == Some(OsStr::new("rnl")) => {
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn summary(tally: &Tally) -> String {
    let count = |n: usize, what: &str| if n == 0 { String::new() } else { format!(", {n} {what}") };
    let tests = tally.passed + tally.failed;
    format!(
        "{tests} test{}: {} passed{}{}{}\n",
        if tests == 1 { "" } else { "s" },
        tally.passed,
        count(tally.failed, "failed"),
        count(tally.left_out, "left out"),
        count(tally.broken, if tally.broken == 1 { "file broken" } else { "files broken" }),
    )
}
