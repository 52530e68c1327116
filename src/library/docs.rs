//! All documentation, collected from the tables for `runnel doc`, the session's help and the pages of
//! `docs/reference`.
//!
//! It does not know how pages or terminals look. Invariant: each native, operation, attribute and documented
//! module function is listed here once, and belongs to one page.

use super::{MODULES, NATIVES, attributes, device, tensor};
use crate::ops::Op;
use crate::ops::signature::Signature;
use crate::ops::table;
use crate::vm::{AttributeDef, NativeDef};
use std::borrow::Cow;
use std::sync::OnceLock;

/// A documented name.
pub struct Entry {
    /// `matmul`, `tensor.sum`, `fft.fft`.
    pub name: String,
    /// Its other names: `tensor.matmul`, `add_`.
    pub also: Vec<String>,
    /// Its parameters, `(x, dim=none)`; empty for an attribute.
    pub signature: String,
    /// Markdown: one summary sentence, then details.
    pub doc: Cow<'static, str>,
    /// A runnable script that demonstrates it; may be empty.
    pub example: Cow<'static, str>,
    /// Search terms.
    pub search: &'static [&'static str],
    /// The page of the reference that shows it: `creation`, `memory`, `stdlib/data`.
    pub page: Cow<'static, str>,
}

impl Entry {
    /// The first sentence of its documentation, without the full stop.
    pub fn first_sentence(&self) -> String {
        let line = self.doc.split("\n\n").next().unwrap_or("").replace('\n', " ");
        let end = line.find(". ").or(line.find(": ")).unwrap_or(line.len());
        line[..end].trim_end_matches('.').to_string()
    }
}

/// All documented names, sorted.
pub fn entries() -> &'static [Entry] {
    static ALL: OnceLock<Vec<Entry>> = OnceLock::new();
    ALL.get_or_init(collected)
}

fn collected() -> Vec<Entry> {
    let of_language = NATIVES.iter().copied().chain(device::tables());
    let natives = of_language.flat_map(|(page, table)| table.iter().map(move |def| native(page, def)));
    let of_types = [("tensor-attributes", tensor::ATTRIBUTES), ("types", attributes::TABLE)];
    let of_types = of_types.into_iter().chain(device::attribute_tables());
    let attributes = of_types.flat_map(|(page, table)| table.iter().map(move |def| attribute(page, def)));
    let ops = table::pages().flat_map(|(page, ops)| ops.iter().map(move |op| operation(page, op)));
    let modules = MODULES.iter().flat_map(|module| {
        module.functions().into_iter().map(|function| Entry {
            name: format!("{}.{}", module.name, function.name),
            also: Vec::new(),
            signature: function.signature,
            doc: function.doc.into(),
            example: function.example.into(),
            search: &[],
            page: format!("stdlib/{}", module.name).into(),
        })
    });
    let mut all: Vec<Entry> = natives.chain(attributes).chain(ops).chain(modules).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn native(page: &'static str, def: &'static NativeDef) -> Entry {
    let (name, signature) = match def.receiver {
        "" => (def.name.to_string(), def.signature.to_string()),
        // Scripts call methods of devices as `cuda.name()`.
        "device" => (format!("cuda.{}", def.name), method(&def.signature)),
        receiver => (format!("{receiver}.{}", def.name), method(&def.signature)),
    };
    Entry {
        name,
        also: Vec::new(),
        signature,
        doc: def.doc.into(),
        example: def.example.into(),
        search: &[],
        page: page.into(),
    }
}

fn attribute(page: &'static str, def: &'static AttributeDef) -> Entry {
    Entry {
        name: format!("{}.{}", def.receiver, def.name),
        also: Vec::new(),
        signature: String::new(),
        doc: def.doc.into(),
        example: def.example.into(),
        search: &[],
        page: page.into(),
    }
}

fn operation(page: &'static str, op: &'static Op) -> Entry {
    let function = op.form.function;
    Entry {
        name: if function { op.name.to_string() } else { format!("tensor.{}", op.name) },
        also: forms(op),
        signature: if function { op.signature().to_string() } else { method(&op.signature()) },
        doc: op.doc.into(),
        example: op.example.into(),
        search: op.search,
        page: page.into(),
    }
}

/// The names of an operation's other forms.
fn forms(op: &Op) -> Vec<String> {
    let mut forms = Vec::new();
    for name in std::iter::once(op.name).chain(op.aliases.iter().copied()) {
        if name != op.name {
            forms.push(if op.form.function { name.to_string() } else { format!("tensor.{name}") });
        }
        if op.form.method && op.form.function {
            forms.push(format!("tensor.{name}"));
        }
        if op.form.in_place {
            forms.extend([format!("{name}_"), format!("tensor.{name}_")]);
        }
    }
    forms
}

/// The parameters after a method's receiver.
fn method(signature: &Signature) -> String {
    Signature { params: signature.params.get(1..).unwrap_or_default() }.to_string()
}
