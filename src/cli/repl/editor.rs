//! The line editor: when an input is complete, and whom it asks for colours, words and hints.

use super::complete::complete;
use super::hint::hint;
use super::{Repl, colors};
use rustyline::completion::Completer;
use rustyline::config::{Behavior, ColorMode, CompletionType, Config};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

/// What the editor asks while the user types.
pub struct Assistant {
    repl: Rc<RefCell<Repl>>,
}

/// The prompt, plain and coloured.
pub fn prompt() -> (String, String) {
    (">> ".into(), "\x1b[1;36m>>\x1b[0m ".into())
}

/// An editor on the terminal.
pub fn new(assistant: Assistant, color: bool) -> rustyline::Result<Editor<Assistant, FileHistory>> {
    let config = Config::builder()
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
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(assistant));
    Ok(editor)
}

impl Assistant {
    pub fn new(repl: Rc<RefCell<Repl>>) -> Assistant {
        Assistant { repl }
    }
}

impl Helper for Assistant {}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let wait = goes_on(context.input());
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
        Cow::Owned(colors::painted(line))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(colors::faint(hint))
    }

    fn highlight_char(&self, line: &str, _: usize, kind: CmdKind) -> bool {
        // A word's colour may change with each of its letters; moving changes none.
        kind != CmdKind::MoveCursor && !line.is_empty()
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
        let mut repl = self.repl.try_borrow_mut().ok()?;
        (at == line.len()).then(|| hint(repl.session.engine.vm(), line)).flatten().map(Remark)
    }
}
