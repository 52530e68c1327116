//! The process's standard streams: width, colours, and closed pipes.

use super::args::Color;
use super::progress::Bars;
use crate::base::{Error, SourceMap};
use crate::engine::report::{Look, Severity, render};
use crate::vm::{Colors, Progress};
use std::io::{BufWriter, ErrorKind, IsTerminal, Stdout, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a command writes.
///
/// A closed pipe (`runnel ... | head`) ends the process quietly, with status 0.
#[derive(Clone)]
pub struct Terminal {
    color: Color,
    out: Arc<Mutex<Out>>,
    /// Bars of loops; none before the first.
    bars: Arc<Mutex<Option<Bars>>>,
}

struct Out {
    writer: BufWriter<Stdout>,
    /// A person is watching: each write is shown at once.
    live: bool,
    /// Where a test wants all that would be written.
    #[cfg(test)]
    kept: Option<Arc<Mutex<String>>>,
}

impl Out {
    /// Keeps a text instead of writing it, when a test wants that.
    fn keep(&mut self, _text: &str) -> bool {
        #[cfg(test)]
        if let Some(kept) = &self.kept {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push_str(_text);
            return true;
        }
        false
    }
}

impl Terminal {
    /// The standard streams.
    pub fn new(color: Color) -> Terminal {
        let stdout = std::io::stdout();
        let live = stdout.is_terminal();
        let out = Out {
            writer: BufWriter::with_capacity(1 << 16, stdout),
            live,
            #[cfg(test)]
            kept: None,
        };
        Terminal { color, out: Arc::new(Mutex::new(out)), bars: Arc::default() }
    }

    /// A terminal that keeps what is written, errors included.
    #[cfg(test)]
    pub fn kept(color: Color) -> (Terminal, Arc<Mutex<String>>) {
        let (terminal, text) = (Terminal::new(color), Arc::new(Mutex::new(String::new())));
        terminal.out.lock().unwrap().kept = Some(text.clone());
        (terminal, text)
    }

    /// Writes to the standard output. Buffered when that is no terminal; see [`Terminal::flush`].
    pub fn print(&self, text: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if out.keep(text) {
            return;
        }
        match out.live {
            true => self.around_bars(|| {
                finish(out.writer.write_all(text.as_bytes()).and_then(|()| out.writer.flush()));
            }),
            false => finish(out.writer.write_all(text.as_bytes())),
        }
    }

    /// Shows how far a loop over `progress(...)` is, where somebody watches the standard error.
    pub fn progress(&self, now: &Progress) {
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        if bars.is_none() {
            let moves = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
            if !moves || !std::io::stderr().is_terminal() {
                return;
            }
        }
        bars.get_or_insert_default().show(now);
    }

    /// No loop is under way any more.
    pub fn end_bars(&self) {
        if let Some(bars) = self.bars.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            bars.end_all();
        }
    }

    /// Writes to the screen, above the bars.
    fn around_bars<T>(&self, write: impl FnOnce() -> T) -> T {
        match self.bars.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(bars) => bars.around(write),
            None => write(),
        }
    }

    /// Sends off what was written.
    pub fn flush(&self) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        finish(out.writer.flush());
    }

    /// Writes an error to the standard error, after all that was written to the standard output.
    pub fn report(&self, error: &Error, sources: &SourceMap) {
        self.complain(&render(error, sources, Severity::Error, self.look()));
    }

    /// Writes a warning to the standard error.
    pub fn warn(&self, error: &Error, sources: &SourceMap) {
        self.complain(&render(error, sources, Severity::Warning, self.look()));
    }

    /// Writes a line about what is going on to the standard error.
    pub fn notice(&self, text: &str) {
        self.complain(&format!("runnel: {text}\n"));
    }

    /// Writes text that is no part of a script's output to the standard error.
    pub fn aside(&self, text: &str) {
        self.complain(text);
    }

    fn complain(&self, text: &str) {
        self.flush();
        if self.out.lock().unwrap_or_else(PoisonError::into_inner).keep(text) {
            return;
        }
        // With the standard error closed there is nobody to tell.
        self.around_bars(|| std::io::stderr().write_all(text.as_bytes()).ok());
    }

    /// How reports look on the standard error.
    pub fn look(&self) -> Look {
        let stderr = std::io::stderr();
        let width = columns(&stderr).unwrap_or(Look::PLAIN.width);
        Look { width: width.clamp(40, 120), color: self.colors(stderr.is_terminal()) }
    }

    /// Whether the standard output has colours.
    pub fn color_out(&self) -> bool {
        self.colors(std::io::stdout().is_terminal())
    }

    /// Which colours the standard output shows.
    pub fn colors_out(&self) -> Colors {
        let full = || std::env::var("COLORTERM").is_ok_and(|v| v == "truecolor" || v == "24bit");
        match self.color_out() {
            false => Colors::None,
            true if full() => Colors::Full,
            true => Colors::Indexed,
        }
    }

    /// Columns of the standard output, when it is a terminal.
    pub fn width(&self) -> Option<usize> {
        columns(&std::io::stdout())
    }

    fn colors(&self, is_terminal: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
                is_terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }
}

fn finish(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "runnel: cannot write to the standard output: {error}");
            std::process::exit(1);
        }
    }
}

#[cfg(unix)]
fn columns(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn columns<T>(_stream: &T) -> Option<usize> {
    None
}
