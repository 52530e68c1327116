//! `runnel completions SHELL`: the completion script of a shell.

use super::Outcome;
use super::args::Cli;
use super::terminal::Terminal;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

pub fn completions(terminal: &Terminal, shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "runnel", &mut script);
    let script = String::from_utf8_lossy(&script);
    // The first word is a command or a file. Other shells fall back to files on their own.
    terminal.print(&script.replace("\":: :_runnel_commands\"", "\":: :{_runnel_commands; _files}\""));
    terminal.flush();
    Outcome::Done
}

/// The command line without the arguments after a file, which belong to the script.
fn command() -> Command {
    let full = Cli::command();
    let options = full.get_arguments().filter(|arg| !arg.is_positional()).cloned();
    let about = full.get_about().cloned().unwrap_or_default();
    Command::new("runnel")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(options)
        .subcommands(full.get_subcommands().cloned())
}
