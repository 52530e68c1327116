//! `runnel plan FILE`: the kernels that a script launches.

use super::args::Options;
use super::run::Session;
use super::terminal::Terminal;
use super::{Outcome, program, refuse};
use crate::base::SourceMap;
use crate::plan::{Listed, Listing};
use std::ffi::OsString;

/// Runs a file, hides its output, and lists its kernel launches. The first of `given` is the file, the others
/// are its arguments.
pub fn plan(cli: &Options, terminal: &Terminal, given: Vec<OsString>) -> Outcome {
    let (program, args) = match program::with_arguments(given) {
        Ok(given) => given,
        Err(error) => return refuse(terminal, &error, &SourceMap::default()),
    };
    let mut session = match Session::for_program(cli, terminal, &program, args) {
        Ok(session) => session,
        Err(outcome) => return outcome,
    };
    session.engine.vm().set_output(|_| {});
    if let Err(error) = session.engine.vm().rt.start_listing(false) {
        return session.finish(Err(error));
    }
    let result = session.run(&program);
    let listing = session.engine.vm().rt.stop_listing();
    terminal.print(&kernels(&listing, ""));
    session.exit(result)
}

/// The launches of a listing and their number, followed by `end`.
pub fn kernels(listing: &Listing, end: &str) -> String {
    let mut text = String::new();
    for (number, listed) in listing.launches.iter().enumerate() {
        text += &head(number + 1, listed);
        for line in listed.launch.listing().lines() {
            text += &format!("     {line}\n");
        }
    }
    text += &match listing.launches.len() + listing.dropped {
        0 => "no kernel is launched\n".to_string(),
        1 => format!("1 kernel{end}\n"),
        count => format!("{count} kernels{end}\n"),
    };
    if listing.dropped > 0 {
        text += &format!("the last {} are not shown\n", listing.dropped);
    }
    text
}

/// `1  mul+sum over [64, 128] on cuda:0`
fn head(number: usize, listed: &Listed) -> String {
    let label = match listed.launch.program.label.as_str() {
        "" => listed.name,
        label => label,
    };
    let shape: Vec<String> = listed.launch.shape.iter().map(usize::to_string).collect();
    format!("{number:>3}  {label} over [{}] on {}\n", shape.join(", "), listed.device)
}
