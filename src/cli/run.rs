//! `runnel FILE` and `runnel -e CODE`.

use super::args::Options;
use super::output::End;
use super::program::{self, Program};
use super::signals::{self, Signals};
use super::terminal::Terminal;
use super::{Outcome, options, refuse, timeline};
use crate::base::{Error, ErrorKind, Result, SourceMap};
use crate::device::Machine;
use crate::engine::{Builder, Engine};
use crate::library::device::profile;
use crate::vm::Mode;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a file with its arguments; the first of `given` is the file.
pub fn run(cli: &Options, terminal: &Terminal, given: Vec<OsString>) -> Outcome {
    let (program, args) = match program::with_arguments(given) {
        Ok(given) => given,
        Err(error) => return refuse(terminal, &error, &SourceMap::default()),
    };
    start(cli, terminal, &program, args)
}

/// Runs a piece of code.
pub fn code(cli: &Options, terminal: &Terminal, code: &str, given: Vec<OsString>) -> Outcome {
    let program = Program { name: "<-e>".into(), text: code.into() };
    start(cli, terminal, &program, program::texts(given))
}

/// Runs a program.
pub fn start(cli: &Options, terminal: &Terminal, program: &Program, args: Vec<String>) -> Outcome {
    let mut session = match Session::for_program(cli, terminal, program, args) {
        Ok(session) => session,
        Err(outcome) => return outcome,
    };
    let watched = match Watched::start(cli, &mut session) {
        Ok(watched) => watched,
        Err(error) => return refuse(terminal, &error, &SourceMap::default()),
    };
    let result = session.run(program);
    let written = watched.end(&mut session);
    session.exit(result.and(written))
}

/// The recordings of `--profile` and `--timeline` during a run.
struct Watched {
    since: Option<usize>,
    profile: Option<PathBuf>,
    timeline: bool,
}

impl Watched {
    fn start(cli: &Options, session: &mut Session) -> Result<Watched> {
        let wanted = cli.profile.is_some() || cli.timeline;
        let since = wanted.then(|| session.engine.vm().rt.start_trace()).transpose()?;
        Ok(Watched { since, profile: cli.profile.clone(), timeline: cli.timeline })
    }

    /// Writes and draws the recordings, also after an error.
    fn end(self, session: &mut Session) -> Result<()> {
        let Some(since) = self.since else { return Ok(()) };
        let vm = session.engine.vm();
        let (recording, done) = vm.rt.stop_trace(since);
        let written = match &self.profile {
            Some(path) => profile::write(vm, &recording, &path.to_string_lossy()),
            None => Ok(()),
        };
        if self.timeline {
            let look = session.terminal.look();
            let sources = session.engine.sources();
            let place = |span| timeline::line(&sources.place(span));
            session.terminal.aside(&timeline::draw(&recording, look.width, look.color, place));
        }
        done.and(written)
    }
}

/// An engine whose output goes to the terminal.
pub struct Session {
    pub engine: Engine,
    terminal: Terminal,
    notice: Notice,
    pub signals: Signals,
}

impl Session {
    /// A session with the settings of the command line and the environment. Opens no device.
    pub fn new(cli: &Options, terminal: &Terminal, args: Vec<String>) -> Result<Session> {
        let builder = builder(cli)?
            .args(args)
            .groups(true)
            .process_input()
            .line_width(terminal.width().unwrap_or(80).max(40));
        let builder = builder.colors(terminal.colors_out());
        let machine = Machine::open(builder.config())?;
        let notice = Notice { machine: machine.clone(), given: Arc::new(AtomicBool::new(cli.quiet)) };
        let (out, told) = (terminal.clone(), notice.clone());
        let builder = builder.output(move |text| {
            told.give(&out);
            out.print(text);
        });
        let (out, told) = (terminal.clone(), notice.clone());
        let builder = builder.warnings(move |warning, sources| {
            told.give(&out);
            out.warn(warning, sources);
        });
        let builder = match cli.quiet {
            true => builder,
            false => {
                let out = terminal.clone();
                builder.progress(move |now| out.progress(now))
            }
        };
        let mut engine = builder.build_on(machine);
        let out = terminal.clone();
        engine.vm().set_flush(move || out.flush());
        Ok(Session { engine, terminal: terminal.clone(), notice, signals: Signals::default() })
    }

    /// A session for a program with its arguments. If the arguments ask for the program's options, or do not
    /// match its declarations, that is printed and nothing is run.
    pub fn for_program(
        cli: &Options,
        terminal: &Terminal,
        program: &Program,
        args: Vec<String>,
    ) -> Result<Session, Outcome> {
        let declared = options::Declared::of(&program.text);
        if declared.asks_for_help(&args) {
            terminal.print(&declared.help(&program.name));
            terminal.flush();
            return Err(Outcome::Done);
        }
        declared.check(&args).map_err(|(error, sources)| refuse(terminal, &error, &sources))?;
        Session::new(cli, terminal, args).map_err(|error| refuse(terminal, &error, &SourceMap::default()))
    }

    /// Runs a program until Ctrl-C, and leaves the process group that it has joined.
    pub fn run(&mut self, program: &Program) -> Result<()> {
        self.listen();
        let result = self.engine.evaluate(&program.name, &program.text, Mode::Script, |_, _| Ok(()));
        self.leave_group(result)
    }

    /// From now on, Ctrl-C, SIGTERM, SIGHUP and a closed output stop the running script: deferred code still
    /// runs, and contexts are left. A second signal before the script has seen the first ends the process
    /// immediately. Ends with the session.
    pub fn listen(&mut self) {
        let flag = self.engine.interrupt_handle().flag();
        self.signals = Signals::listen(&flag);
        self.terminal.stop_with(flag);
    }

    /// Leaves the process group, if any, and notifies the others of an error.
    fn leave_group(&mut self, result: Result<()>) -> Result<()> {
        #[cfg(feature = "dist")]
        {
            let rt = &mut self.engine.vm().rt;
            match &result {
                Err(error) if error.exit_status() != Some(0) => rt.fail_group(error.message()),
                _ => {
                    let left = rt.leave_group();
                    return result.and(left);
                }
            }
        }
        result
    }

    /// Writes buffered output, and reports warnings and the error, if any.
    pub fn finish(&mut self, result: Result<()>) -> Outcome {
        self.terminal.end_bars();
        self.notice.give(&self.terminal);
        for warning in self.engine.take_warnings() {
            self.terminal.warn(&warning, self.engine.sources());
        }
        self.terminal.flush();
        let end = self.terminal.end();
        match result {
            Ok(()) => match end {
                Some(End::Failed) => Outcome::Failed,
                _ => Outcome::Done,
            },
            Err(error) => {
                if let Some(status) = error.exit_status() {
                    // Errors during unwinding are reported too.
                    error.others().iter().for_each(|other| self.report(other));
                    return match (status, end) {
                        (0, Some(End::Failed)) => Outcome::Failed,
                        _ => Outcome::Exited(status),
                    };
                }
                if error.kind() != ErrorKind::Interrupted {
                    self.report(&error);
                    if error.code().id == crate::vm::error::OPTION.id {
                        return Outcome::Refused;
                    }
                    return Outcome::Failed;
                }
                match (signals::ended(), end) {
                    (None, Some(End::Closed)) => Outcome::Done,
                    (None, Some(End::Failed)) => Outcome::Failed,
                    (Some(signal), _) => {
                        let message = format!("interrupted by {}", signals::name(signal));
                        self.report(&error.with_message(message));
                        Outcome::Interrupted(signal)
                    }
                    (None, _) => {
                        self.report(&error);
                        Outcome::Interrupted(signal_hook::consts::SIGINT)
                    }
                }
            }
        }
    }

    /// [`Session::finish`] of the last session of the process, whose memory goes with the process.
    pub fn exit(mut self, result: Result<()>) -> Outcome {
        let outcome = self.finish(result);
        self.engine.leave_heap();
        outcome
    }

    /// Reports an error on standard error.
    pub fn report(&self, error: &Error) {
        self.terminal.report(error, self.engine.sources());
    }
}

/// The settings of the command line, which override the environment.
fn builder(cli: &Options) -> Result<Builder> {
    let mut builder = Builder::from_env()?.fuse(!cli.no_fuse);
    if let Some(mode) = cli.races {
        builder = builder.races(mode);
    }
    cli.configure(builder.config_mut());
    Ok(builder)
}

/// "no CUDA device found; running on 4 emulated devices": printed once, when a device is first used.
#[derive(Clone)]
struct Notice {
    machine: Arc<Machine>,
    given: Arc<AtomicBool>,
}

impl Notice {
    fn give(&self, terminal: &Terminal) {
        let Some(text) = self.machine.notice() else { return };
        if self.machine.opened().next().is_some() && !self.given.swap(true, Ordering::Relaxed) {
            terminal.notice(text);
        }
    }
}
