//! Tab completion at the cursor, from the names known to the session.

use super::commands::{self, Takes};
use super::known::{self, Callable, Resolved};
use super::place::{self, Call, CursorContext, Spot};
use crate::array::Dtype;
use crate::ops::signature::Kind;
use crate::vm::{Value, Vm};
use std::path::{MAIN_SEPARATOR, Path};

/// Words of the language that can begin or continue an input.
const KEYWORDS: &[&str] = &[
    "let", "fn", "if", "else", "for", "in", "while", "break", "continue", "return", "with", "on", "import",
    "as", "try", "catch", "throw", "and", "or", "not", "true", "false", "none", "match", "defer", "by",
    "inf", "nan",
];

/// The completions at the end of `line`, and the start of the current word.
pub fn complete(vm: &mut Vm, line: &str) -> (usize, Vec<String>) {
    let code = line.trim_start();
    let Some(command) = code.strip_prefix(':') else { return expression(vm, line) };
    let indent = line.len() - command.len();
    let Some((name, _)) = command.split_once(char::is_whitespace) else {
        return (indent, matching(commands::COMMANDS.iter().map(|c| c.name.to_string()), command));
    };
    let rest = command[name.len()..].trim_start();
    let shift = line.len() - rest.len();
    let (start, words) = match commands::find(name).map(|c| c.takes) {
        Some(Takes::Code(_)) => expression(vm, rest),
        Some(Takes::File) => paths(rest, 0, |_| true),
        Some(Takes::Name(_)) => names(vm, rest),
        Some(Takes::Nothing) | None => (rest.len(), Vec::new()),
    };
    (start + shift, words)
}

fn expression(vm: &mut Vm, line: &str) -> (usize, Vec<String>) {
    let CursorContext { spot, start, call } = place::at_end(line);
    let word = &line[start..];
    let words = match spot {
        Spot::Nothing | Spot::Fresh => Vec::new(),
        Spot::Text { import } => return text(vm, line, start, import, call.as_ref()),
        Spot::Member(object) => {
            // An unknown value is most likely a tensor.
            let known = known::of(vm, object).unwrap_or(Resolved::Type("tensor"));
            let mut found = matching(known.members(vm), word);
            if word.is_empty() {
                // There are many in-place methods, and their users know the underscore.
                found.retain(|name| !name.ends_with('_'));
            }
            found
        }
        Spot::Device => matching(devices(vm), word),
        Spot::Module => matching(modules(vm), word),
        Spot::Expression => in_expression(vm, line, start, call.as_ref()),
    };
    (start, words)
}

/// Completions in an expression; inside a call, argument names come first.
fn in_expression(vm: &mut Vm, line: &str, start: usize, call: Option<&Call<'_>>) -> Vec<String> {
    let word = &line[start..];
    let function = call.and_then(|call| called(vm, call));
    let mut first = Vec::new();
    if let (Some(call), Some(function)) = (call, &function) {
        let kind = function.current(&call.given, call.name).and_then(|p| p.kind);
        if call.begins && (call.name.is_some() || !word.is_empty()) {
            first.extend(matching(of_kind(vm, kind), word));
        }
        if call.name.is_none() && call.begins {
            let left = function.remaining(&call.given).into_iter().filter(|param| !param.rest);
            first.extend(matching(left.map(|param| format!("{}=", param.name)), word));
        }
        if word.is_empty() || (call.name.is_some() && call.begins && !first.is_empty()) {
            return first;
        }
    }
    if word.is_empty() {
        return Vec::new();
    }
    if word.starts_with("cuda:") {
        return matching(devices(vm), word);
    }
    let globals = vm.globals().into_iter().map(|(name, _)| name.to_string());
    let natives = vm.natives().functions().keys().map(|name| name.to_string());
    let words = |list: &'static [&'static str]| list.iter().map(|word| word.to_string());
    let fixed = words(KEYWORDS).chain(dtypes()).chain(words(&["cpu", "cuda"]));
    let all = globals.chain(natives).chain(fixed).chain(written(&line[..start]));
    let mut found = first;
    for name in matching(all, word) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn dtypes() -> impl Iterator<Item = String> {
    Dtype::ALL.into_iter().map(|dtype| dtype.to_string())
}

/// The names used earlier in this input.
fn written(text: &str) -> impl Iterator<Item = String> {
    use crate::syntax::Class;
    let pieces = crate::syntax::classify(text).into_iter();
    let names = pieces.filter(|(_, class)| matches!(class, Class::Name | Class::Function));
    names.filter_map(|(range, _)| text.get(range).map(str::to_string))
}

/// The function of a call, if known.
pub fn called(vm: &mut Vm, call: &Call<'_>) -> Option<Callable> {
    known::of(vm, call.function)?.callable()
}

/// Likely values for a parameter's kind.
fn of_kind(vm: &mut Vm, kind: Option<Kind>) -> Vec<String> {
    let of_type = |vm: &Vm, name: &str| {
        let globals = vm.globals().into_iter().filter(|(_, value)| value.type_name() == name);
        globals.map(|(name, _)| name.to_string()).collect()
    };
    match kind {
        Some(Kind::Dtype) => dtypes().collect(),
        Some(Kind::Device) => devices(vm),
        Some(Kind::Bool) => vec!["true".to_string(), "false".to_string()],
        Some(Kind::Stream) => of_type(vm, "stream"),
        Some(Kind::Event) => of_type(vm, "event"),
        Some(Kind::Generator) => of_type(vm, "generator"),
        Some(Kind::Fn) => of_type(vm, "fn"),
        _ => Vec::new(),
    }
}

fn devices(vm: &Vm) -> Vec<String> {
    let count = vm.rt.machine().device_count();
    let plain = ["cpu", "cuda"].map(String::from).into_iter();
    plain.chain((0..count).map(|index| format!("cuda:{index}"))).collect()
}

fn modules(vm: &Vm) -> Vec<String> {
    let functions = vm.natives().functions().iter();
    let spaces = functions.filter(|(_, value)| matches!(value, Value::Module(_))).map(|(name, _)| name);
    let written = crate::library::MODULES.iter().map(|module| module.name.to_string());
    spaces.map(|name| name.to_string()).chain(written).collect()
}

/// Documented names and names of the session, for `:help`.
fn names(vm: &mut Vm, word: &str) -> (usize, Vec<String>) {
    if let Some((object, member)) = word.rsplit_once('.')
        && let Some(known) = known::of(vm, object)
    {
        return (word.len() - member.len(), matching(known.members(vm), member));
    }
    let globals = vm.globals().into_iter().map(|(name, _)| name.to_string());
    let documented = crate::cli::doc::names();
    // Methods are offered once their type is written.
    let near = documented.into_iter().filter(|name| word.contains('.') || !name.contains('.'));
    (0, matching(globals.chain(near), word))
}

/// Inside a string: paths where a path is expected, devices where a device is.
fn text(
    vm: &mut Vm,
    line: &str,
    start: usize,
    import: bool,
    call: Option<&Call<'_>>,
) -> (usize, Vec<String>) {
    let is_script = |path: &Path| path.extension().is_some_and(|ending| ending == "rnl");
    if import {
        return paths(&line[start..], start, is_script);
    }
    let Some(call) = call else { return (line.len(), Vec::new()) };
    let function = called(vm, call);
    let Some(parameter) = function.as_ref().and_then(|f| f.current(&call.given, call.name)) else {
        return (line.len(), Vec::new());
    };
    let is_device = parameter.kind == Some(Kind::Device);
    match parameter.name.as_str() {
        "path" | "file" | "folder" => paths(&line[start..], start, |_| true),
        "device" | "destination" => (start, matching(devices(vm), &line[start..])),
        _ if is_device => (start, matching(devices(vm), &line[start..])),
        _ => (line.len(), Vec::new()),
    }
}

/// The paths that begin with `written`, which is at `start`; folders end in a separator.
fn paths(written: &str, start: usize, wanted: impl Fn(&Path) -> bool) -> (usize, Vec<String>) {
    let split = written.rfind(['/', MAIN_SEPARATOR]).map_or(0, |at| at + 1);
    let (folder, begun) = written.split_at(split);
    let read = std::fs::read_dir(if folder.is_empty() { "." } else { folder });
    let entries = read.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = entry.path().is_dir();
        let shown = !name.starts_with('.') || begun.starts_with('.');
        let offered = shown && name.starts_with(begun) && (is_folder || wanted(&entry.path()));
        offered.then(|| if is_folder { format!("{name}/") } else { name })
    });
    let mut found: Vec<String> = entries.collect();
    found.sort();
    (start + split, found)
}

fn matching(words: impl IntoIterator<Item = String>, start: &str) -> Vec<String> {
    let mut found: Vec<String> = words
        .into_iter()
        .filter(|w| !w.is_empty() && w.starts_with(start) && (!w.starts_with('_') || start.starts_with('_')))
        .collect();
    found.sort();
    found.dedup();
    found
}
