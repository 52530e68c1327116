//! `runnel doc NAME`: the documentation of natives and operations, from their tables, and of modules written in Runnel,
//! from their source.

mod example;

use super::error;
use super::terminal::Terminal;
use super::{Outcome, explain, refuse, table};
use crate::base::{Result, SourceMap};
use crate::library::docs::{Entry, entries};

pub fn doc(terminal: &Terminal, names: &[String]) -> Outcome {
    if names.is_empty() {
        terminal.print(&listed(entries()));
        terminal.flush();
        return Outcome::Done;
    }
    for (at, name) in names.iter().enumerate() {
        match page(name) {
            Ok(text) => terminal.print(&format!("{}{text}", if at > 0 { "\n" } else { "" })),
            Err(error) => {
                return refuse(terminal, &error, &SourceMap::default());
            }
        }
    }
    terminal.flush();
    Outcome::Done
}

/// The documentation of a name: a function, `type.method`, a bare method, a type or a namespace. PyTorch's
/// names work too (`torch.cuda.memory_stats`, `torch.Tensor.sum`).
///
/// # Errors
/// E0954.
pub fn page(name: &str) -> Result<String> {
    let entries = entries();
    let own = own_name(name, entries);
    let of_space = |e: &&Entry| e.name.split_once('.').is_some_and(|(space, _)| space == own);
    let inside: Vec<&Entry> = entries.iter().filter(of_space).collect();
    // A library function and an operation may share a name: `sum` of a list, of a tensor.
    let exact: Vec<String> = entries.iter().filter(|e| e.name == own).map(text).collect();
    if !exact.is_empty() {
        let members =
            if inside.is_empty() { String::new() } else { format!("\n{}", listed(inside.iter().copied())) };
        let same = |e: &&Entry| e.name != own && e.name.rsplit('.').next() == Some(&own);
        let others: Vec<&str> = entries.iter().filter(same).map(|e| e.name.as_str()).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("\nSee also: {}\n", others.join(", ")),
        };
        return Ok(format!("{}{members}{others}", exact.join("\n")));
    }
    let last = |e: &&Entry| e.name.rsplit('.').next() == Some(&own);
    let methods: Vec<String> = entries.iter().filter(last).map(text).collect();
    if !inside.is_empty() {
        let members = listed(inside.iter().copied());
        return Ok(methods.into_iter().chain([members]).collect::<Vec<String>>().join("\n"));
    }
    if let Some(other) = entries.iter().find(|e| e.also.contains(&own)) {
        return Ok(text(other));
    }
    if !methods.is_empty() {
        return Ok(methods.join("\n"));
    }
    // `make_graphed_callables` as well as `torch.cuda.make_graphed_callables`.
    let is_source = |e: &Entry| {
        let mut named = e.doc.split("ource: `").skip(1).filter_map(|rest| rest.split('`').next());
        named.any(|path| path == name || path.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')))
    };
    let found: Vec<&Entry> = entries
        .iter()
        .filter(|e| is_source(e) || e.search.iter().any(|word| word.eq_ignore_ascii_case(&own)))
        .collect();
    match found.as_slice() {
        [] => {
            let last = |e: &'_ Entry| e.name.rsplit('.').next().unwrap_or("").to_string();
            let known: Vec<String> = entries.iter().flat_map(|e| [e.name.clone(), last(e)]).collect();
            Err(error::unknown_name(name, known.iter().map(String::as_str)))
        }
        [one] => Ok(text(one)),
        several => Ok(listed(several.iter().copied())),
    }
}

/// One line per entry: its name and the first sentence of its documentation.
fn listed<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> String {
    let row = |entry: &Entry| [entry.name.clone(), entry.first_sentence()];
    table::aligned(&entries.into_iter().map(row).collect::<Vec<_>>())
}

/// All names with a page.
pub fn names() -> Vec<String> {
    entries().iter().map(|entry| entry.name.clone()).collect()
}

/// The name without PyTorch's prefix, and with the type's name in Runnel: `Stream.wait_event` and
/// `torch.cuda.CUDAGraph.replay` are methods of `stream` and `graph`.
fn own_name(name: &str, entries: &[Entry]) -> String {
    let short = name.strip_prefix("torch.").unwrap_or(name);
    let is_known = |name: &str| entries.iter().any(|e| e.name == name);
    if is_known(short) {
        return short.to_string();
    }
    let bare = short.strip_prefix("cuda.").unwrap_or(short);
    if let Some((of, member)) = bare.split_once('.') {
        let own = match of {
            "CUDAGraph" => "graph".to_string(),
            "MemPool" => "mem_pool".to_string(),
            of => of.to_lowercase(),
        };
        let method = format!("{own}.{member}");
        if is_known(&method) {
            return method;
        }
    }
    short.to_string()
}

fn text(entry: &Entry) -> String {
    let mut text = format!("{}{}\n", entry.name, entry.signature);
    for paragraph in entry.doc.split("\n\n") {
        text.push('\n');
        text.push_str(&explain::wrapped(paragraph, 90));
    }
    if !entry.example.is_empty() {
        text.push_str("\nExample:\n");
        let shown = example::transcript(&entry.example);
        for line in shown.lines() {
            text.push_str(format!("    {line}").trim_end());
            text.push('\n');
        }
    }
    text
}
