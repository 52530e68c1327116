//! The interactive session.
//!
//! Rustyline edits the lines; an input continues while the parser reports it as incomplete. All inputs run in
//! one engine, so an error leaves earlier results unchanged. Ctrl-C stops a running input or clears the line;
//! Ctrl-D leaves.

mod colors;
mod commands;
mod complete;
mod devices;
mod editor;
mod help;
mod hint;
mod history;
mod known;
mod measure;
mod place;
mod script;
mod show;

use super::args::Options;
use super::output::End;
use super::run::{self, Session};
use super::signals;
use super::terminal::Terminal;
use super::{Outcome, program, refuse};
use crate::base::{Result, SourceMap};
use crate::engine::Engine;
use crate::vm::{Input, Mode, Value, Vm};
pub(super) use complete::complete;
pub(super) use hint::hint;

use editor::{Lines, Typed};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::rc::{Rc, Weak};

/// The next action after an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next prompt.
    Prompt,
    /// Leave the session.
    Leave,
    /// Leave the session with the status passed to `exit`.
    Exit(u8),
}

/// An interactive session, without its line editor.
pub struct Repl {
    session: Session,
    cli: Options,
    terminal: Terminal,
    inputs: usize,
    /// The successful inputs.
    script: script::Script,
    /// The source of `input()`.
    lines: Weak<RefCell<Lines>>,
}

/// `runnel` without a file: a session on a terminal; otherwise standard input is the program.
pub fn start(cli: Options, terminal: &Terminal) -> Outcome {
    if !std::io::stdin().is_terminal() {
        return match program::stdin() {
            Ok(program) => run::start(&cli, terminal, &program, Vec::new()),
            Err(error) => refuse(terminal, &error, &SourceMap::default()),
        };
    }
    match Repl::new(cli, terminal) {
        Ok(repl) => edit(repl),
        Err(error) => refuse(terminal, &error, &SourceMap::default()),
    }
}

/// Reads and runs inputs until the user leaves.
fn edit(repl: Repl) -> Outcome {
    let terminal = repl.terminal.clone();
    if !repl.cli.quiet {
        terminal.print(&format!(
            "runnel {} (:help lists the commands, Ctrl-D leaves)\n",
            env!("CARGO_PKG_VERSION")
        ));
    }
    let repl = Rc::new(RefCell::new(repl));
    let lines = match Lines::new(&repl, &terminal) {
        Ok(lines) => Rc::new(RefCell::new(lines)),
        Err(error) => {
            terminal.notice(&format!("the terminal cannot be used: {error}"));
            return Outcome::Refused;
        }
    };
    repl.borrow_mut().read_from(Rc::downgrade(&lines));
    let outcome = loop {
        let typed = lines.borrow_mut().next_input();
        if let Some(signal) = signals::ended() {
            break Outcome::Interrupted(signal);
        }
        let input = match typed {
            Ok(Typed::Text(input)) => input,
            Ok(Typed::Cleared) => continue,
            Ok(Typed::End) => break Outcome::Done,
            Err(error) => {
                terminal.notice(&format!("the terminal cannot be read: {error}"));
                break Outcome::Done;
            }
        };
        if input.trim().is_empty() {
            continue;
        }
        lines.borrow_mut().remember(&input);
        let next = repl.borrow_mut().input(&input);
        match next {
            Next::Prompt => {}
            Next::Leave => break Outcome::Done,
            Next::Exit(status) => break Outcome::Exited(status),
        }
        if let Some(signal) = signals::ended() {
            break Outcome::Interrupted(signal);
        }
        match terminal.end() {
            None => {}
            Some(End::Failed) => break Outcome::Failed,
            Some(_) => break Outcome::Done,
        }
        if signals::take_interrupt()
            && let Err(error) = lines.borrow_mut().forget_typed()
        {
            terminal.notice(&format!("the terminal cannot be used: {error}"));
            break Outcome::Done;
        }
    };
    terminal.flush();
    repl.borrow_mut().session.engine.leave_heap();
    outcome
}

impl Repl {
    /// Makes a session. From now on Ctrl-C stops the running input; a second Ctrl-C before the script has
    /// seen the first ends the process.
    ///
    /// # Errors
    ///
    /// Those of the backend and the environment.
    pub fn new(cli: Options, terminal: &Terminal) -> Result<Repl> {
        let session = Session::new(&cli, terminal, Vec::new())?;
        let mut repl = Repl {
            session,
            cli,
            terminal: terminal.clone(),
            inputs: 0,
            script: script::Script::default(),
            lines: Weak::new(),
        };
        repl.session.listen();
        Ok(repl)
    }

    /// From now on, `input()` reads typed lines, and signals end the wait for them.
    fn read_from(&mut self, lines: Weak<RefCell<Lines>>) {
        self.lines = lines;
        self.connect();
    }

    /// Connects the session to the editor.
    fn connect(&mut self) {
        let Some(lines) = self.lines.upgrade() else { return };
        #[cfg(unix)]
        {
            let interrupt = self.session.engine.interrupt_handle().flag();
            // Without these handlers, signals end a session less cleanly.
            self.session.signals.add(signals::forget_typed());
            self.session.signals.end_waits(lines.borrow().waits(), interrupt).ok();
        }
        let lines = Rc::downgrade(&lines);
        self.session.engine.vm().input = Input::Session(Box::new(move || {
            let Some(lines) = lines.upgrade() else { return Ok(None) };
            let typed = lines.borrow_mut().next_line();
            match typed {
                Ok(Typed::Text(text)) => Ok(Some(text)),
                Ok(Typed::End) => Ok(None),
                Ok(Typed::Cleared) => Err(crate::vm::error::interrupted()),
                Err(error) => Err(crate::vm::error::file("standard input", &error.to_string())),
            }
        }));
    }

    /// Runs a command or code, and shows its value or error.
    pub fn input(&mut self, input: &str) -> Next {
        self.session.engine.interrupt_handle().clear();
        let vm = self.session.engine.vm();
        let meant = commands::meant(input, |name| vm.global(name).is_some());
        let result = match (input.trim_start().strip_prefix(':'), meant) {
            (Some(command), _) => commands::run(self, command.trim()),
            (None, Some(command)) => commands::run(self, command.trim()),
            (None, None) => self.code(input).map(|()| Next::Prompt),
        };
        match result {
            Ok(next) => {
                self.session.finish(Ok(()));
                next
            }
            Err(error) => match self.session.finish(Err(error)) {
                Outcome::Exited(status) => Next::Exit(status),
                _ => Next::Prompt,
            },
        }
    }

    fn code(&mut self, text: &str) -> Result<()> {
        let shown = self.evaluate(text, |vm, value| {
            let shown = match value {
                Value::None => None,
                _ => Some(show::value(vm, &value)?),
            };
            if shown.is_some() {
                vm.set_global("_", value);
            }
            Ok(shown)
        })?;
        self.script.push(text, shown.is_some());
        if let Some(shown) = shown {
            self.terminal.print(&show::styled(&shown, self.terminal.color_out()));
        }
        Ok(())
    }

    /// Runs code, and passes its value to `then`.
    fn evaluate<T>(&mut self, text: &str, then: impl FnOnce(&mut Vm, Value) -> Result<T>) -> Result<T> {
        let name = self.next_name();
        self.session.engine.evaluate(&name, text, Mode::Input, then)
    }

    /// The name of the next input in reports.
    fn next_name(&mut self) -> String {
        self.inputs += 1;
        format!("<input:{}>", self.inputs)
    }

    fn print(&self, text: &str) {
        self.terminal.print(text);
    }

    /// Starts over: earlier names, tensors and devices are gone.
    fn reset(&mut self) -> Result<()> {
        let fresh = Session::new(&self.cli, &self.terminal, Vec::new())?;
        self.session = fresh;
        self.script = script::Script::default();
        self.session.listen();
        self.connect();
        Ok(())
    }
}

/// Everything that a session does with a line while it is typed; for tests with arbitrary text.
pub fn typed(engine: &mut Engine, line: &str) {
    for (at, _) in line.char_indices().chain([(line.len(), ' ')]) {
        let begun = &line[..at];
        colors::painted(begun);
        editor::goes_on(begun);
        hint::hint(engine.vm(), begun);
        let (start, _) = complete::complete(engine.vm(), begun);
        assert!(begun.is_char_boundary(start), "{begun:?}");
    }
}

#[cfg(test)]
mod tests;
