//! The command line: the only code that writes to a terminal.
//!
//! Each command is one file. Exit status: 0; 1 after an uncaught error of a script; 2 if the command line is
//! wrong or the program cannot be read; 128 plus the number of the signal that ended it (130 after Ctrl-C,
//! 143 after SIGTERM); and the status that the script passed to `exit`.

mod args;
mod cache;
mod check;
mod completions;
mod devices;
mod doc;
pub mod error;
mod explain;
mod fmt;
mod lsp;
mod options;
mod output;
mod plan;
mod program;
mod progress;
mod repl;
mod run;
mod signals;
mod table;
mod terminal;
mod test;
mod timeline;

pub use repl::typed;

pub use explain::codes;

use crate::base::{Error, SourceMap};
use args::{Cli, Command};
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;
use terminal::Terminal;

/// The outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Successfully.
    Done,
    /// The script raised an error that it did not catch.
    Failed,
    /// The script ended itself with this status.
    Exited(u8),
    /// A signal stopped the script: Ctrl-C, SIGTERM, SIGHUP.
    Interrupted(i32),
    /// Nothing could be run.
    Refused,
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    if crate::engine::compile_in_processes() {
        return ExitCode::SUCCESS;
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let text = panic.payload().downcast_ref::<String>().map(String::as_str);
        let said =
            text.or_else(|| panic.payload().downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        eprintln!("runnel: internal error{place}: {said}\nThis is a bug of runnel, not of the script.");
    }));
    signals::let_large_writes_fail();
    let given: Vec<OsString> = std::env::args_os().collect();
    let outcome = match Cli::try_parse_from(args::normalized(&given)) {
        Ok(cli) => dispatch(cli),
        Err(error) => usage(&error, &given),
    };
    crate::engine::prepare_exit();
    ExitCode::from(match outcome {
        Outcome::Done => 0,
        Outcome::Failed => 1,
        Outcome::Exited(status) => status,
        Outcome::Refused => 2,
        Outcome::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(130),
    })
}

fn dispatch(cli: Cli) -> Outcome {
    let terminal = Terminal::new(cli.options.color);
    match cli.command {
        Some(Command::Run { program }) => run::run(&cli.options, &terminal, program),
        Some(Command::Plan { program }) => plan::plan(&cli.options, &terminal, program),
        Some(Command::Check { files, json }) => check::check(&terminal, &files, json),
        Some(Command::Test { files, filter }) => {
            test::test(&cli.options, &terminal, &files, filter.as_deref())
        }
        Some(Command::Fmt { files, check }) => fmt::fmt(&terminal, &files, check),
        Some(Command::Lsp) => lsp::lsp(&terminal),
        Some(Command::Devices) => devices::devices(&cli.options, &terminal),
        Some(Command::Cache { action }) => cache::cache(&terminal, action),
        Some(Command::Explain { codes }) => explain::explain(&terminal, &codes),
        Some(Command::Doc { names }) => doc::doc(&terminal, &names),
        Some(Command::Completions { shell }) => completions::completions(&terminal, shell),
        None => match cli.code {
            Some(code) => run::code(&cli.options, &terminal, &code, cli.args),
            None => repl::start(cli.options, &terminal),
        },
    }
}

/// Reports clap's error in our format; help and version are printed unchanged.
fn usage(error: &clap::Error, given: &[OsString]) -> Outcome {
    let terminal = Terminal::new(args::color_of(given));
    if !error.use_stderr() {
        terminal.print(&if terminal.color_out() {
            error.render().ansi().to_string()
        } else {
            error.render().to_string()
        });
        return Outcome::Done;
    }
    let (error, sources) = error::from_clap(error, given);
    refuse(&terminal, &error, &sources)
}

/// Reports an error that prevented the run.
fn refuse(terminal: &Terminal, error: &Error, sources: &SourceMap) -> Outcome {
    terminal.report(error, sources);
    Outcome::Refused
}
