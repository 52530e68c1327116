//! The `:` commands of the session, one row each.

use super::{Next, Repl, devices, help as pages, measure, show};
use crate::base::Result;
use crate::cli::{error, program, table};
use crate::vm::Mode;

/// A command.
pub struct Command {
    /// `load`
    pub name: &'static str,
    /// The argument it takes.
    pub takes: Takes,
    /// The description in `:help`.
    pub help: &'static str,
    run: fn(&mut Repl, &str) -> Result<Next>,
}

/// The argument of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A documented name or a name of the session; true if it is required.
    Name(bool),
    /// Code, with the argument's name.
    Code(&'static str),
    /// A path.
    File,
}

impl Takes {
    /// `FILE`
    fn text(self) -> &'static str {
        match self {
            Takes::Nothing => "",
            Takes::Name(true) => "NAME",
            Takes::Name(false) => "[NAME]",
            Takes::Code(name) => name,
            Takes::File => "FILE",
        }
    }

    fn is_required(self) -> bool {
        !matches!(self, Takes::Nothing | Takes::Name(false))
    }
}

/// The command intended by a line in the style of other sessions: `help`, `quit`, `?relu`, `relu?`, `%time
/// x`. `has` tells whether the session defines a name.
pub fn meant(line: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let line = line.trim();
    let is_name = |text: &str| {
        let mut letters = text.chars();
        letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && letters.all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
    };
    let about = |name: &str| is_name(name).then(|| format!("help {name}"));
    if line == "?" {
        return Some("help".to_string());
    }
    if let Some(name) = line.strip_suffix('?').or_else(|| line.strip_prefix('?')) {
        return about(name.trim());
    }
    if let Some(magic) = line.strip_prefix('%') {
        let (name, rest) = magic.split_once(' ').unwrap_or((magic, ""));
        let known = match name.trim_start_matches('%') {
            "time" | "timeit" => "time",
            "reset" => "reset",
            _ => return None,
        };
        return Some(format!("{known} {}", rest.trim()));
    }
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word.strip_suffix("()").unwrap_or(word) {
        word if has(word) => None,
        "help" if rest.is_empty() => Some("help".to_string()),
        "help" => about(rest.trim()),
        "quit" | "exit" if rest.is_empty() => Some("quit".to_string()),
        _ => None,
    }
}

/// All commands.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "help",
        takes: Takes::Name(false),
        help: "lists the commands; with a name, shows its documentation and an example",
        run: help,
    },
    Command {
        name: "quit",
        takes: Takes::Nothing,
        help: "ends the session; so does Ctrl-D",
        run: |_, _| Ok(Next::Leave),
    },
    Command {
        name: "doc",
        takes: Takes::Name(true),
        help: "shows the documentation of a function, method or type",
        run: document,
    },
    Command {
        name: "type",
        takes: Takes::Code("CODE"),
        help: "runs the code and shows the type of its value",
        run: type_of,
    },
    Command {
        name: "time",
        takes: Takes::Code("CODE"),
        help: "runs the code many times, waits for the devices each time, and shows the median time",
        run: time,
    },
    Command {
        name: "plan",
        takes: Takes::Code("CODE"),
        help: "lists the kernels that the code launches; runs them only if the code reads their results",
        run: plan,
    },
    Command {
        name: "mem",
        takes: Takes::Nothing,
        help: "shows the memory of every device in use, and the lines that hold most of it",
        run: mem,
    },
    Command {
        name: "streams",
        takes: Takes::Nothing,
        help: "lists the streams of every device in use, `*` marks the current ones",
        run: streams,
    },
    Command { name: "load", takes: Takes::File, help: "runs a file in this session", run: load },
    Command {
        name: "save",
        takes: Takes::File,
        help: "writes the inputs that succeeded as a script",
        run: save,
    },
    Command {
        name: "reset",
        takes: Takes::Nothing,
        help: "starts over, without names or tensors",
        run: reset,
    },
];

impl Command {
    /// `:load FILE`
    pub fn usage(&self) -> String {
        format!(":{} {}", self.name, self.takes.text()).trim_end().to_string()
    }
}

/// Runs the command of a line (without its `:`).
pub fn run(repl: &mut Repl, line: &str) -> Result<Next> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let Some(command) = find(word) else {
        return Err(error::unknown_command(word, COMMANDS.iter().map(|c| c.name)));
    };
    let rest = rest.trim();
    if rest.is_empty() && command.takes.is_required() {
        return Err(error::command_misses(command.name, &command.usage()));
    }
    (command.run)(repl, rest)
}

/// The command of a word, which may be any unique prefix.
pub fn find(word: &str) -> Option<&'static Command> {
    let mut starting = COMMANDS.iter().filter(|c| !word.is_empty() && c.name.starts_with(word));
    let exact = COMMANDS.iter().find(|c| c.name == word);
    match (exact, starting.next(), starting.next()) {
        (Some(command), ..) | (None, Some(command), None) => Some(command),
        _ => None,
    }
}

fn help(repl: &mut Repl, name: &str) -> Result<Next> {
    if !name.is_empty() {
        return document(repl, name);
    }
    let rows: Vec<[String; 2]> = COMMANDS.iter().map(|c| [c.usage(), c.help.to_string()]).collect();
    repl.print(&table::aligned(&rows));
    repl.print("Ctrl-C stops a running input or clears the line. `_` is the last value.\n");
    Ok(Next::Prompt)
}

fn document(repl: &mut Repl, name: &str) -> Result<Next> {
    let text = pages::page(repl, name)?;
    repl.print(&text);
    Ok(Next::Prompt)
}

fn type_of(repl: &mut Repl, code: &str) -> Result<Next> {
    let kind = repl.evaluate(code, |_, value| Ok(show::kind(&value)))?;
    repl.print(&format!("{kind}\n"));
    Ok(Next::Prompt)
}

fn time(repl: &mut Repl, code: &str) -> Result<Next> {
    let text = measure::time(repl, code)?;
    repl.print(&text);
    Ok(Next::Prompt)
}

fn plan(repl: &mut Repl, code: &str) -> Result<Next> {
    let text = measure::plan(repl, code)?;
    repl.print(&text);
    Ok(Next::Prompt)
}

fn mem(repl: &mut Repl, _: &str) -> Result<Next> {
    let text = devices::memory(repl.session.engine.vm())?;
    repl.print(&text);
    Ok(Next::Prompt)
}

fn streams(repl: &mut Repl, _: &str) -> Result<Next> {
    let text = devices::streams(repl.session.engine.vm())?;
    repl.print(&text);
    Ok(Next::Prompt)
}

fn load(repl: &mut Repl, path: &str) -> Result<Next> {
    let program = program::read(path.trim_matches('"').as_ref())?;
    repl.session.engine.evaluate(&program.name, &program.text, Mode::Input, |_, _| Ok(()))?;
    repl.script.push(&program.text, false);
    Ok(Next::Prompt)
}

fn save(repl: &mut Repl, path: &str) -> Result<Next> {
    let path = std::path::Path::new(path.trim_matches('"'));
    let count = repl.script.write(path)?;
    let inputs = if count == 1 { "1 input".to_string() } else { format!("{count} inputs") };
    repl.print(&format!("saved {inputs} to {}\n", path.display()));
    Ok(Next::Prompt)
}

fn reset(repl: &mut Repl, _: &str) -> Result<Next> {
    repl.reset()?;
    Ok(Next::Prompt)
}
