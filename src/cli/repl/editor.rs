//! The line editor: decides when an input is complete, and provides colours, completions and hints.
//!
//! One editor reads all typed text, including lines that a running input reads with `input()`, because it may
//! have read beyond the current line. Ctrl-C drops text typed ahead.

use super::complete::complete;
use super::hint::hint;
use super::{Repl, colors};
use crate::cli::terminal::Terminal;
use rustyline::completion::Completer;
use rustyline::config::{Behavior, ColorMode, CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, ConditionalEventHandler, Context, Editor, Event, EventContext, EventHandler, Helper, KeyEvent,
    RepeatCount,
};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Keys that arrive faster than this are pasted, not typed.
const BURST: Duration = Duration::from_millis(10);
/// Pasted inputs from this size on are coloured line by line instead of key by key.
const LARGE: usize = 1_000;

/// The result of reading a line.
#[derive(PartialEq, Eq, Debug)]
pub enum Typed {
    /// A line, or several lines of one input.
    Text(String),
    /// Ctrl-C: the line was discarded.
    Cleared,
    /// Ctrl-D, or the terminal was closed.
    End,
}

/// How the current line ended.
struct Way {
    /// Zero for Enter.
    key: AtomicU8,
    /// When the editor began to wait for this line.
    begun: Mutex<Instant>,
}

const CLEARED: u8 = 1;
const END: u8 = 2;

/// Reads lines from a terminal.
pub struct Lines {
    editor: Editor<Assistant, FileHistory>,
    terminal: Terminal,
    repl: Rc<RefCell<Repl>>,
    history: Option<PathBuf>,
    way: Arc<Way>,
    /// True while the editor waits for keys.
    waits: Arc<AtomicBool>,
}

/// The prompt, plain and coloured.
fn prompt() -> (String, String) {
    (">> ".into(), "\x1b[1;36m>>\x1b[0m ".into())
}

impl Lines {
    /// Reads lines from the process's terminal, with the history of earlier sessions.
    pub fn new(repl: &Rc<RefCell<Repl>>, terminal: &Terminal) -> rustyline::Result<Lines> {
        let way = Arc::new(Way { key: AtomicU8::new(0), begun: Mutex::new(Instant::now()) });
        let config = config(terminal.color_out())?;
        let mut editor = editor(FileHistory::with_config(&config), config, repl, &way)?;
        let history = super::history::path();
        if let Some(path) = &history {
            // The first session has no history.
            editor.load_history(path).ok();
        }
        let (repl, terminal) = (Rc::clone(repl), terminal.clone());
        Ok(Lines { editor, terminal, repl, history, way, waits: Arc::default() })
    }

    /// True while it waits for keys; for use by another thread.
    pub fn waits(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.waits)
    }

    /// The next input.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn next_input(&mut self) -> rustyline::Result<Typed> {
        // Output without a line end stays visible.
        self.terminal.fresh_line();
        self.read(&prompt(), false)
    }

    /// The next line for a running input, after the text it has printed.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn next_line(&mut self) -> rustyline::Result<Typed> {
        let mut shown = self.terminal.line();
        // The editor redraws the line. It cannot if the text moves the cursor, and does not on an unknown
        // terminal.
        let is_plain = shown.split("\x1b[").all(|part| !part.contains(|c: char| c.is_control()));
        if !is_plain || shown.len() > 500 {
            self.terminal.fresh_line();
            shown.clear();
        }
        if is_simple_terminal() {
            shown.clear();
        }
        self.read(&(shown.clone(), shown), true)
    }

    fn read(&mut self, prompt: &(String, String), plain: bool) -> rustyline::Result<Typed> {
        self.terminal.flush();
        if let Some(helper) = self.editor.helper() {
            helper.plain.set(plain);
        }
        self.way.key.store(0, Ordering::Relaxed);
        *self.way.begun.lock() = Instant::now();
        self.waits.store(true, Ordering::Relaxed);
        let read = self.editor.readline(prompt);
        self.waits.store(false, Ordering::Relaxed);
        self.terminal.end_line();
        match (read, self.way.key.load(Ordering::Relaxed)) {
            (Ok(_), CLEARED) | (Err(ReadlineError::Interrupted), _) => Ok(Typed::Cleared),
            (Ok(_), END) | (Err(ReadlineError::Eof), _) => Ok(Typed::End),
            (Ok(text), _) => Ok(Typed::Text(text)),
            (Err(error), _) => Err(error),
        }
    }

    /// Adds an input to the history.
    pub fn remember(&mut self, input: &str) {
        let new = self.editor.add_history_entry(input).unwrap_or(false);
        if let (true, Some(path)) = (new, &self.history) {
            // A missing history file is not an error.
            self.editor.append_history(path).ok();
        }
    }

    /// Drops text that was typed ahead and already read. The terminal has dropped the unread rest.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn forget_typed(&mut self) -> rustyline::Result<()> {
        let config = config(self.terminal.color_out())?;
        let history = std::mem::replace(self.editor.history_mut(), FileHistory::with_config(&config));
        // Only the editor knows what it has read, so it is replaced by a new one.
        self.editor = editor(history, config, &self.repl, &self.way)?;
        Ok(())
    }
}

fn config(color: bool) -> rustyline::Result<Config> {
    Ok(Config::builder()
        .history_ignore_dups(true)?
        .max_history_size(10_000)?
        .completion_type(CompletionType::List)
        .completion_prompt_limit(300)
        .completion_show_all_if_ambiguous(true)
        .color_mode(if color { ColorMode::Enabled } else { ColorMode::Disabled })
        .behavior(Behavior::Stdio)
        .bracketed_paste(true)
        .tab_stop(4)
        .indent_size(4)
        .build())
}

/// An editor on the terminal.
fn editor(
    history: FileHistory,
    config: Config,
    repl: &Rc<RefCell<Repl>>,
    way: &Arc<Way>,
) -> rustyline::Result<Editor<Assistant, FileHistory>> {
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Assistant::new(Rc::clone(repl), Arc::clone(way))));
    for key in ['C', 'D', '@'] {
        let ends = Ends { way: Arc::clone(way), key };
        editor.bind_sequence(KeyEvent::ctrl(key), EventHandler::Conditional(Box::new(ends)));
    }
    Ok(editor)
}

/// A key that ends a line without Enter. The editor's own commands for these keys would lose text typed after
/// them.
struct Ends {
    way: Arc<Way>,
    key: char,
}

impl ConditionalEventHandler for Ends {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let way = match self.key {
            'C' => CLEARED,
            'D' if context.line().is_empty() => END,
            // Ctrl-D typed while an input ran: the terminal, then in line mode, stores a zero for it.
            '@' if context.line().is_empty() && self.way.begun.lock().elapsed() < 10 * BURST => END,
            _ => return None,
        };
        self.way.key.store(way, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

/// Returns whether the editor does not support the terminal, and only reads lines.
fn is_simple_terminal() -> bool {
    let simple = |term: String| ["dumb", "cons25", "emacs"].contains(&term.to_ascii_lowercase().as_str());
    std::env::var("TERM").is_ok_and(simple)
}

/// Answers the editor's queries while the user types.
struct Assistant {
    repl: Rc<RefCell<Repl>>,
    way: Arc<Way>,
    /// Whether the line is read by `input()`, so that it may be any text.
    plain: Cell<bool>,
    /// When the last line ended, and when the last key was handled.
    last_line: Cell<Option<Instant>>,
    last_key: Cell<Option<Instant>>,
}

impl Assistant {
    fn new(repl: Rc<RefCell<Repl>>, way: Arc<Way>) -> Assistant {
        let (last_line, last_key) = (Cell::new(None), Cell::new(None));
        Assistant { repl, way, plain: Cell::new(false), last_line, last_key }
    }

    /// Returns whether a large input arrives faster than it could be typed.
    fn is_pasted(&self, line: &str) -> bool {
        line.len() > LARGE && is_recent(&self.last_key)
    }
}

fn is_recent(moment: &Cell<Option<Instant>>) -> bool {
    moment.get().is_some_and(|moment| moment.elapsed() < BURST)
}

impl Helper for Assistant {}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        if self.plain.get() || self.way.key.load(Ordering::Relaxed) != 0 {
            return Ok(ValidationResult::Valid(None));
        }
        let input = context.input();
        // Two empty lines end an open input, unless they were pasted.
        let input = if is_recent(&self.last_line) { input.trim_end_matches('\n') } else { input };
        let wait = goes_on(input);
        self.last_line.set(Some(Instant::now()));
        Ok(if wait { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Returns whether an input needs further lines. Two empty lines always end it.
pub fn goes_on(input: &str) -> bool {
    !input.trim_start().starts_with(':')
        && !input.ends_with("\n\n")
        && crate::syntax::parse(1, input).incomplete
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let Ok(mut repl) = self.repl.try_borrow_mut() else { return Ok((at, Vec::new())) };
        Ok(complete(repl.session.engine.vm(), line.get(..at).unwrap_or("")))
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        match self.plain.get() {
            true => Cow::Borrowed(line),
            false => Cow::Owned(colors::painted(line)),
        }
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(colors::faint(hint))
    }

    fn highlight_char(&self, line: &str, _: usize, kind: CmdKind) -> bool {
        // Typing may change the colour of a whole word; moving the cursor changes none.
        kind != CmdKind::MoveCursor && !line.is_empty() && !self.plain.get() && !self.is_pasted(line)
    }
}

/// A hint after the cursor that is not inserted.
pub struct Remark(String);

impl Hint for Remark {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Assistant {
    type Hint = Remark;

    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<Remark> {
        let skip = self.is_pasted(line);
        self.last_key.set(Some(Instant::now()));
        if skip || at != line.len() {
            return None;
        }
        let mut repl = self.repl.try_borrow_mut().ok()?;
        hint(repl.session.engine.vm(), line).map(Remark)
    }
}
