//! The line editor: when an input is complete, and whom it asks for colours, words and hints.
//!
//! One editor reads all that is typed, lines that a running input asks for with `input()` included: what it has read
//! beyond a line is the next line's. Ctrl-C drops what was typed ahead.

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

/// Keys that come faster than this are no person's.
const BURST: Duration = Duration::from_millis(10);
/// From so many bytes on, an input that arrives in a burst is coloured line by line instead of key by key.
const LARGE: usize = 1_000;

/// What was typed.
#[derive(PartialEq, Eq, Debug)]
pub enum Typed {
    /// A line, or several that belong together.
    Text(String),
    /// Ctrl-C: there is no line.
    Cleared,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// How the line that is being typed ended.
struct Way {
    /// Zero for Enter.
    key: AtomicU8,
    /// When the editor began to wait for this line.
    begun: Mutex<Instant>,
}

const CLEARED: u8 = 1;
const END: u8 = 2;

/// Reads lines of a terminal.
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
    /// Lines of the process's terminal, with the history of earlier sessions.
    pub fn new(repl: &Rc<RefCell<Repl>>, terminal: &Terminal) -> rustyline::Result<Lines> {
        let way = Arc::new(Way { key: AtomicU8::new(0), begun: Mutex::new(Instant::now()) });
        let config = config(terminal.color_out())?;
        let mut editor = editor(FileHistory::with_config(&config), config, repl, &way)?;
        let history = super::history::path();
        if let Some(path) = &history {
            // A first session has none yet.
            editor.load_history(path).ok();
        }
        let (repl, terminal) = (Rc::clone(repl), terminal.clone());
        Ok(Lines { editor, terminal, repl, history, way, waits: Arc::default() })
    }

    /// True while it waits for keys, for another thread.
    pub fn waits(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.waits)
    }

    /// The next input.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn next_input(&mut self) -> rustyline::Result<Typed> {
        // What a script printed without a line end stays visible.
        self.terminal.fresh_line();
        self.read(&prompt(), false)
    }

    /// The next line for a running input, behind what it has printed.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn next_line(&mut self) -> rustyline::Result<Typed> {
        let mut shown = self.terminal.line();
        // The editor draws the line again. It cannot where that moves the cursor, and does not where it does not know
        // the terminal.
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
            // A session without a history file is still a session.
            self.editor.append_history(path).ok();
        }
    }

    /// Drops what was typed ahead and read already. The terminal has dropped what was not.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn forget_typed(&mut self) -> rustyline::Result<()> {
        let config = config(self.terminal.color_out())?;
        let history = std::mem::replace(self.editor.history_mut(), FileHistory::with_config(&config));
        // Only the editor knows what it has read, so a new one takes its place.
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

/// A key that ends a line without Enter. The editor's own commands for these keys would lose what was typed after them.
struct Ends {
    way: Arc<Way>,
    key: char,
}

impl ConditionalEventHandler for Ends {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let way = match self.key {
            'C' => CLEARED,
            'D' if context.line().is_empty() => END,
            // A Ctrl-D that was typed while an input ran: the terminal, then in line mode, keeps a zero in its place.
            '@' if context.line().is_empty() && self.way.begun.lock().elapsed() < 10 * BURST => END,
            _ => return None,
        };
        self.way.key.store(way, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

/// Whether the editor knows nothing of the terminal, and only reads lines.
fn is_simple_terminal() -> bool {
    let simple = |term: String| ["dumb", "cons25", "emacs"].contains(&term.to_ascii_lowercase().as_str());
    std::env::var("TERM").is_ok_and(simple)
}

/// What the editor asks while the user types.
struct Assistant {
    repl: Rc<RefCell<Repl>>,
    way: Arc<Way>,
    /// The line is no input but what `input()` gives: any text.
    plain: Cell<bool>,
    /// When the last line ended, and when the last key was done.
    last_line: Cell<Option<Instant>>,
    last_key: Cell<Option<Instant>>,
}

impl Assistant {
    fn new(repl: Rc<RefCell<Repl>>, way: Arc<Way>) -> Assistant {
        let (last_line, last_key) = (Cell::new(None), Cell::new(None));
        Assistant { repl, way, plain: Cell::new(false), last_line, last_key }
    }

    /// Whether a large input arrives faster than a person types.
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
        // Two empty lines end an open input, unless they are part of what was pasted.
        let input = if is_recent(&self.last_line) { input.trim_end_matches('\n') } else { input };
        let wait = goes_on(input);
        self.last_line.set(Some(Instant::now()));
        Ok(if wait { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Whether an input needs further lines. Two empty lines end it in any case.
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
        // A word's colour may change with each of its letters; moving changes none.
        kind != CmdKind::MoveCursor && !line.is_empty() && !self.plain.get() && !self.is_pasted(line)
    }
}

/// A remark behind the cursor, which is no text to take over.
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
