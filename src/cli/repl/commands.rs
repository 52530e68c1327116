//! The `:` commands of the session, one row each.

use super::{Next, Repl, show};
use crate::base::{Result, bytes_text};
use crate::cli::{doc, error, program, table};
use crate::vm::Mode;

/// A command.
pub struct Command {
    /// `load`
    pub name: &'static str,
    /// What stands behind it: `FILE`, or nothing.
    pub takes: &'static str,
    /// What it does.
    pub help: &'static str,
    run: fn(&mut Repl, &str) -> Result<Next>,
}

/// All of them.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "help",
        takes: "",
        help: "lists the commands; with a name behind it, as `:doc`",
        run: help,
    },
    Command { name: "quit", takes: "", help: "leaves; so does Ctrl-D", run: |_, _| Ok(Next::Leave) },
    Command {
        name: "doc",
        takes: "NAME",
        help: "shows the documentation of a function, method or type",
        run: document,
    },
    Command { name: "type", takes: "CODE", help: "runs the code and says what its value is", run: type_of },
    Command {
        name: "time",
        takes: "CODE",
        help: "runs the code, waits for the devices, and says how long that took",
        run: time,
    },
    Command { name: "mem", takes: "", help: "shows the memory of every device in use", run: mem },
    Command { name: "streams", takes: "", help: "lists the streams of every device in use", run: streams },
    Command { name: "load", takes: "FILE", help: "runs a file in this session", run: load },
    Command { name: "reset", takes: "", help: "begins anew, without any names or tensors", run: reset },
];

/// Runs the command of a line (without its `:`). A word may be shortened while it stays unique.
pub fn run(repl: &mut Repl, line: &str) -> Result<Next> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let exact = COMMANDS.iter().find(|c| c.name == word);
    let mut starting = COMMANDS.iter().filter(|c| !word.is_empty() && c.name.starts_with(word));
    let command = match (exact, starting.next(), starting.next()) {
        (Some(command), ..) | (None, Some(command), None) => command,
        _ => return Err(error::unknown_command(word, COMMANDS.iter().map(|c| c.name))),
    };
    let rest = rest.trim();
    if rest.is_empty() && !command.takes.is_empty() {
        return Err(error::command_misses(command.name, &format!(":{} {}", command.name, command.takes)));
    }
    (command.run)(repl, rest)
}

fn help(repl: &mut Repl, name: &str) -> Result<Next> {
    if !name.is_empty() {
        return document(repl, name);
    }
    let rows: Vec<[String; 2]> =
        COMMANDS.iter().map(|c| [format!(":{} {}", c.name, c.takes), c.help.to_string()]).collect();
    repl.print(&table::aligned(&rows));
    repl.print("Ctrl-C stops a running input or clears the line. `_` is the last value.\n");
    Ok(Next::Prompt)
}

fn document(repl: &mut Repl, name: &str) -> Result<Next> {
    let text = doc::page(name)?;
    repl.print(&text);
    Ok(Next::Prompt)
}

fn type_of(repl: &mut Repl, code: &str) -> Result<Next> {
    let kind = repl.evaluate(code, |_, value| Ok(show::kind(&value)))?;
    repl.print(&format!("{kind}\n"));
    Ok(Next::Prompt)
}

fn time(repl: &mut Repl, code: &str) -> Result<Next> {
    settle(repl)?;
    let start = std::time::Instant::now();
    let kind = repl.evaluate(code, |_, value| Ok(show::kind(&value)))?;
    settle(repl)?;
    let took = start.elapsed();
    repl.print(&format!("{took:.3?}  {kind}\n"));
    Ok(Next::Prompt)
}

/// Submits what is pending and waits for every device in use.
fn settle(repl: &mut Repl) -> Result<()> {
    let vm = repl.session.engine.vm();
    vm.flush()?;
    vm.rt.machine().opened().try_for_each(|device| device.synchronize())
}

fn mem(repl: &mut Repl, _: &str) -> Result<Next> {
    repl.session.engine.vm().flush()?;
    let mut rows = vec![["device", "allocated", "reserved", "peak", "free of the device"].map(String::from)];
    for device in repl.session.engine.vm().rt.machine().opened() {
        let stats = device.stats();
        let (free, total) = device.mem_get_info()?;
        rows.push([
            device.id().to_string(),
            bytes_text(stats.allocated_bytes.all().current),
            bytes_text(stats.reserved_bytes.all().current),
            bytes_text(stats.allocated_bytes.all().peak),
            format!("{} of {}", bytes_text(free), bytes_text(total)),
        ]);
    }
    match rows.len() {
        1 => repl.print("no device is in use\n"),
        _ => repl.print(&table::aligned(&rows)),
    }
    Ok(Next::Prompt)
}

fn streams(repl: &mut Repl, _: &str) -> Result<Next> {
    let mut rows = vec![["device", "stream", "priority", "state"].map(String::from)];
    for device in repl.session.engine.vm().rt.machine().opened() {
        for stream in device.streams() {
            let name = if stream.is_default() { "default".to_string() } else { stream.id().to_string() };
            let state = if stream.query()? { "idle" } else { "busy" };
            rows.push([device.id().to_string(), name, stream.priority().to_string(), state.to_string()]);
        }
    }
    match rows.len() {
        1 => repl.print("no device is in use\n"),
        _ => repl.print(&table::aligned(&rows)),
    }
    Ok(Next::Prompt)
}

fn load(repl: &mut Repl, path: &str) -> Result<Next> {
    let program = program::read(path.trim_matches('"').as_ref())?;
    repl.session.engine.evaluate(&program.name, &program.text, Mode::Input, |_, _| Ok(()))?;
    Ok(Next::Prompt)
}

fn reset(repl: &mut Repl, _: &str) -> Result<Next> {
    repl.reset()?;
    Ok(Next::Prompt)
}
