//! The line editor: when an input is complete, and how words are completed.

use super::{Repl, commands};
use crate::vm::{Value, Vm};
use rustyline::completion::{Completer, Pair};
use rustyline::config::{Behavior, ColorMode, CompletionType, Config};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};
use std::cell::RefCell;
use std::rc::Rc;

/// Words of the language that can begin or continue an input.
const KEYWORDS: &[&str] = &[
    "let", "fn", "if", "else", "for", "in", "while", "break", "continue", "return", "with", "on", "import",
    "as", "try", "catch", "throw", "and", "or", "not", "true", "false", "none", "match", "defer", "cpu",
    "cuda", "bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128", "inf",
    "nan",
];

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
impl Highlighter for Assistant {}

impl Hinter for Assistant {
    type Hint = String;
}

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
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Ok(mut repl) = self.repl.try_borrow_mut() else { return Ok((at, Vec::new())) };
        let (start, words) = complete(repl.session.engine.vm(), line.get(..at).unwrap_or(""));
        let pair = |word: String| Pair { display: word.clone(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

/// The words that can stand at the end of `line`, and where the one that is being written starts.
pub fn complete(vm: &mut Vm, line: &str) -> (usize, Vec<String>) {
    let is_part = |c: char| c == '_' || unicode_ident::is_xid_continue(c);
    let start =
        line.char_indices().rev().take_while(|&(_, c)| is_part(c)).last().map_or(line.len(), |(at, _)| at);
    let (before, word) = line.split_at(start);
    if before.trim_start() == ":" {
        return (start, matching(commands::COMMANDS.iter().map(|c| c.name.to_string()), word));
    }
    if let Some(object) = before.strip_suffix('.') {
        let from = object
            .char_indices()
            .rev()
            .take_while(|&(_, c)| is_part(c) || c == '.')
            .last()
            .map_or(object.len(), |(at, _)| at);
        return (start, matching(members(vm, &object[from..]), word));
    }
    if word.is_empty() {
        return (start, Vec::new());
    }
    let globals = vm.globals().into_iter().map(|(name, _)| name.to_string());
    let natives: Vec<String> = vm.natives().functions().keys().map(|name| name.to_string()).collect();
    let keywords = KEYWORDS.iter().map(|word| word.to_string());
    (start, matching(globals.chain(natives).chain(keywords), word))
}

fn matching(words: impl IntoIterator<Item = String>, start: &str) -> Vec<String> {
    let mut found: Vec<String> = words
        .into_iter()
        .filter(|w| w.starts_with(start) && (!w.starts_with('_') || start.starts_with('_')))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// What can follow `object.`: the members of its value when that is known without running anything,
/// else the methods of tensors.
fn members(vm: &mut Vm, object: &str) -> Vec<String> {
    let mut parts = object.split('.');
    let first = parts.next().unwrap_or_default();
    let mut value = vm.global(first).or_else(|| vm.natives().functions().get(first).cloned());
    for part in parts {
        value = match &value {
            Some(Value::Record(record)) => record.get(part).cloned(),
            Some(Value::Module(module)) => module.natives.borrow().get(part).cloned(),
            _ => None,
        };
    }
    match value {
        Some(Value::Module(module)) => {
            let names = module.names.borrow();
            let natives = module.natives.borrow();
            names.keys().chain(natives.keys()).map(|name| name.to_string()).collect()
        }
        Some(Value::Record(record)) => record.names().iter().map(|name| name.to_string()).collect(),
        Some(value) => {
            let type_name = value.type_name();
            let mut names: Vec<String> =
                vm.natives().names_of(type_name).iter().map(|n| n.to_string()).collect();
            if let Value::Object(handle) = &value {
                names.extend(handle.get().attributes().iter().map(|name| name.to_string()));
            }
            if type_name == "list" {
                names.extend(vm.natives().names_of("tensor").iter().map(|n| n.to_string()));
            }
            names
        }
        None => vm.natives().names_of("tensor").iter().map(|n| n.to_string()).collect(),
    }
}
