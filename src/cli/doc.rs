//! `runnel doc NAME`: the documentation of natives and operations, from their tables, and of the modules
//! written in Runnel, from their texts.

use super::error;
use super::terminal::Terminal;
use super::{Outcome, explain, refuse, table};
use crate::base::{Result, SourceMap};
use crate::ops::signature::Signature;
use crate::vm::NativeDef;
use std::borrow::Cow;

/// A documented name.
struct Entry {
    /// `matmul`, `tensor.sum`, `fft.fft`.
    name: String,
    signature: String,
    doc: Cow<'static, str>,
    example: &'static str,
    search: &'static [&'static str],
}

pub fn doc(terminal: &Terminal, names: &[String]) -> Outcome {
    if names.is_empty() {
        let rows: Vec<[String; 2]> =
            entries().iter().map(|e| [e.name.clone(), first_sentence(&e.doc)]).collect();
        terminal.print(&table::aligned(&rows));
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

/// The documentation of a name: a function, `type.method`, a bare method, or a type or namespace.
///
/// # Errors
/// E0954.
pub fn page(name: &str) -> Result<String> {
    let entries = entries();
    let exact: Vec<&Entry> = entries.iter().filter(|e| e.name == name).collect();
    if let [first, ..] = exact.as_slice() {
        return Ok(text(first));
    }
    let inside: Vec<&Entry> =
        entries.iter().filter(|e| e.name.split_once('.').is_some_and(|(t, _)| t == name)).collect();
    if !inside.is_empty() {
        let rows: Vec<[String; 2]> =
            inside.iter().map(|e| [e.name.clone(), first_sentence(&e.doc)]).collect();
        return Ok(table::aligned(&rows));
    }
    let last = |e: &&Entry| e.name.rsplit('.').next() == Some(name);
    let methods: Vec<String> = entries.iter().filter(last).map(text).collect();
    if !methods.is_empty() {
        return Ok(methods.join("\n"));
    }
    let found: Vec<[String; 2]> = entries
        .iter()
        .filter(|e| e.search.iter().any(|word| word.eq_ignore_ascii_case(name)))
        .map(|e| [e.name.clone(), first_sentence(&e.doc)])
        .collect();
    if !found.is_empty() {
        return Ok(table::aligned(&found));
    }
    let known = entries.iter().flat_map(|e| [e.name.as_str(), e.name.rsplit('.').next().unwrap_or("")]);
    Err(error::unknown_name(name, known))
}

/// Everything that is documented, by name.
fn entries() -> Vec<Entry> {
    let of_language = crate::library::NATIVES.iter().flat_map(|table| table.iter());
    let natives = of_language.chain(crate::library::device::natives()).map(native);
    let attributes = crate::library::tensor::ATTRIBUTES.iter().map(|attribute| Entry {
        name: format!("tensor.{}", attribute.name),
        signature: String::new(),
        doc: attribute.doc.into(),
        example: "",
        search: &[],
    });
    let ops = crate::ops::table::all().map(|op| Entry {
        name: if op.form.function { op.name.to_string() } else { format!("tensor.{}", op.name) },
        signature: if op.form.function { op.signature().to_string() } else { method(&op.signature()) },
        doc: op.doc.into(),
        example: op.example,
        search: op.search,
    });
    let modules = crate::library::MODULES.iter().flat_map(|module| {
        module.functions().into_iter().map(|function| Entry {
            name: format!("{}.{}", module.name, function.name),
            signature: function.signature,
            doc: function.doc.into(),
            example: "",
            search: &[],
        })
    });
    let mut all: Vec<Entry> = natives.chain(attributes).chain(ops).chain(modules).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn native(def: &NativeDef) -> Entry {
    let (name, signature) = match def.receiver {
        "" => (def.name.to_string(), def.signature.to_string()),
        // Methods of devices are what scripts call as `cuda.name()`.
        "device" => (format!("cuda.{}", def.name), method(&def.signature)),
        receiver => (format!("{receiver}.{}", def.name), method(&def.signature)),
    };
    Entry { name, signature, doc: def.doc.into(), example: def.example, search: &[] }
}

/// The parameters behind a method's receiver.
fn method(signature: &Signature) -> String {
    Signature { params: signature.params.get(1..).unwrap_or_default() }.to_string()
}

fn first_sentence(doc: &str) -> String {
    let line = doc.split("\n\n").next().unwrap_or("").replace('\n', " ");
    let end = line.find(". ").or(line.find(": ")).unwrap_or(line.len());
    line[..end].trim_end_matches('.').to_string()
}

fn text(entry: &Entry) -> String {
    let mut text = format!("{}{}\n", entry.name, entry.signature);
    for paragraph in entry.doc.split("\n\n") {
        text.push('\n');
        text.push_str(&explain::wrapped(paragraph, 90));
    }
    if !entry.example.is_empty() {
        text.push_str("\nExample:\n");
        entry.example.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}
