//! The process's standard streams: width, colours, and closed pipes.

use super::args::Color;
use super::output::{End, Output};
use super::progress::Bars;
use crate::base::{Error, SourceMap};
use crate::engine::report::{Look, Severity, render};
use crate::vm::{Colors, Progress};
use std::io::{IsTerminal, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// The output of a command.
///
/// A closed pipe (`runnel ... | head`) ends the program quietly, with status 0.
#[derive(Clone)]
pub struct Terminal {
    color: Color,
    out: Output,
    /// Whether standard output is a terminal.
    live: bool,
    /// Progress bars; `None` before the first one.
    bars: Arc<Mutex<Option<Bars>>>,
}

impl Terminal {
    /// The standard streams.
    pub fn new(color: Color) -> Terminal {
        let live = std::io::stdout().is_terminal();
        Terminal { color, out: Output::new(live), live, bars: Arc::default() }
    }

    /// A terminal that collects all output, including errors.
    #[cfg(test)]
    pub fn kept(color: Color) -> (Terminal, Arc<Mutex<String>>) {
        let (terminal, text) = (Terminal::new(color), Arc::new(Mutex::new(String::new())));
        terminal.out.keep(text.clone());
        (terminal, text)
    }

    /// Writes to standard output: immediately to a terminal, with a short delay to anything else; see
    /// [`Terminal::flush`].
    pub fn print(&self, text: &str) {
        if self.out.kept(text) {
            return;
        }
        match self.live {
            true => self.around_bars(|| self.out.print(text)),
            false => self.out.print(text),
        }
    }

    /// From now on, a closed output sets this flag, which stops a script, instead of ending the process.
    pub fn stop_with(&self, flag: Arc<AtomicBool>) {
        self.out.stop_with(flag);
    }

    /// The reason why writing to standard output stopped, if it did.
    pub fn end(&self) -> Option<End> {
        self.out.end()
    }

    /// The text of the last line on the screen; empty at the start of a line.
    pub fn line(&self) -> String {
        self.out.line()
    }

    /// Records that a line end was typed.
    pub fn end_line(&self) {
        self.out.note_line("\n");
    }

    /// Begins a new line, unless the current one is empty.
    pub fn fresh_line(&self) {
        if !self.out.line().is_empty() {
            self.print("\n");
        }
    }

    /// Shows the progress of a loop over `progress(...)`, if standard error is a terminal.
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

    /// Removes the bars: all loops have ended.
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

    /// Writes the buffer.
    pub fn flush(&self) {
        self.out.flush();
    }

    /// Reports an error on standard error, after all output.
    pub fn report(&self, error: &Error, sources: &SourceMap) {
        self.complain(&render(error, sources, Severity::Error, self.look()));
    }

    /// Reports a warning on standard error.
    pub fn warn(&self, error: &Error, sources: &SourceMap) {
        self.complain(&render(error, sources, Severity::Warning, self.look()));
    }

    /// Writes a notice to standard error.
    pub fn notice(&self, text: &str) {
        self.complain(&format!("runnel: {text}\n"));
    }

    /// Writes text that is not output of a script to standard error.
    pub fn aside(&self, text: &str) {
        self.complain(text);
    }

    fn complain(&self, text: &str) {
        self.flush();
        if self.out.kept(text) {
            return;
        }
        // If standard error is closed, there is nothing else to do.
        self.around_bars(|| std::io::stderr().write_all(text.as_bytes()).ok());
        self.out.note_line(text);
    }

    /// The format of reports on standard error.
    pub fn look(&self) -> Look {
        let stderr = std::io::stderr();
        let width = columns(&stderr).unwrap_or(Look::PLAIN.width);
        Look { width: width.clamp(40, 120), color: self.colors(stderr.is_terminal()) }
    }

    /// Returns whether the standard output has colours.
    pub fn color_out(&self) -> bool {
        self.colors(std::io::stdout().is_terminal())
    }

    /// The colours that standard output supports.
    pub fn colors_out(&self) -> Colors {
        let full = || std::env::var("COLORTERM").is_ok_and(|v| v == "truecolor" || v == "24bit");
        match self.color_out() {
            false => Colors::None,
            true if full() => Colors::Full,
            true => Colors::Indexed,
        }
    }

    /// Columns of standard output, if it is a terminal.
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

#[cfg(unix)]
fn columns(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn columns<T>(_stream: &T) -> Option<usize> {
    None
}
