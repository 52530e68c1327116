//! Keeps `docs/reference` up to date: a page per group of names, and every error code with the report of its
//! example. So `errors.md` is the snapshot of all reports.
//!
//! `RUNNEL_UPDATE=1 cargo test --test reference` rewrites the pages.

#![cfg(all(feature = "cli", feature = "cuda", feature = "dist", feature = "files", feature = "plot"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "reference/ways.rs"]
mod ways;

use runnel::base::{Code, SourceMap};
use runnel::device::{Backend, Config, Machine};
use runnel::engine::diagnose;
use runnel::engine::report::{Look, Severity, render};
use runnel::library::docs::{Entry, entries};
use runnel::plan::{Runtime, Settings};
use runnel::vm::Mode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The parts of the index, each with its pages and their titles.
const PARTS: &[(&str, &[(&str, &str)])] = &[
    (
        "Tensors",
        &[
            ("creation", "Creating tensors"),
            ("random", "Random tensors"),
            ("arithmetic", "Arithmetic"),
            ("elementary", "Elementary functions"),
            ("rounding", "Rounding"),
            ("comparison", "Comparison"),
            ("logic", "Logic and bits"),
            ("choosing", "Choosing between elements"),
            ("activations", "Activations and normalisations"),
            ("layers", "Layers as functions"),
            ("reductions", "Reductions"),
            ("scans", "Running sums and products"),
            ("sorting", "Sorting and counting"),
            ("products", "Matrix products"),
            ("shapes", "Shapes and views"),
            ("joining", "Joining and splitting"),
            ("diagonals", "Triangles and diagonals"),
            ("indexing", "Selecting by position"),
            ("complex", "Complex numbers"),
            ("fft", "Fourier transforms"),
            ("places", "Moving, reading and inspecting"),
            ("gradients", "Gradients"),
            ("assertions", "Assertions on a device"),
            ("tensor-attributes", "Attributes of tensors"),
        ],
    ),
    (
        "Devices",
        &[
            ("devices", "Devices"),
            ("streams", "Streams and events"),
            ("contexts", "Contexts"),
            ("memory", "Memory"),
            ("memory-pools", "Memory pools"),
            ("graphs", "Graphs"),
            ("generators", "Generators of random numbers"),
            ("comm", "Communication between devices"),
            ("distributed", "Groups of processes"),
            ("fft-plans", "Plans of Fourier transforms"),
            ("nvtx", "NVTX ranges"),
            ("profiling", "Profiling"),
        ],
    ),
    (
        "The language",
        &[
            ("core", "Basic functions"),
            ("types", "Devices and dtypes"),
            ("math", "Numbers"),
            ("strings", "Strings"),
            ("lists", "Lists"),
            ("dicts", "Dicts"),
            ("sequences", "Sequences"),
            ("iterables", "Iterables"),
            ("trees", "Trees of values"),
            ("input-output", "Input and output"),
            ("files", "Files"),
            ("plots", "Plots"),
        ],
    ),
];

const GENERATED: &str = "<!-- Generated: RUNNEL_UPDATE=1 cargo test --test reference -->\n";

#[test]
fn the_pages_of_names_are_up_to_date() {
    let mut pages: BTreeMap<String, Vec<&Entry>> = BTreeMap::new();
    for entry in entries() {
        pages.entry(entry.page.to_string()).or_default().push(entry);
    }
    let mut files = BTreeMap::new();
    let mut index = format!(
        "{GENERATED}# Reference\n\nWhat `runnel doc NAME` shows, on pages. The language itself is described in \
         [language.md](../language.md), the errors are listed in [errors.md](errors.md).\n"
    );
    for (part, titles) in PARTS {
        index.push_str(&format!("\n## {part}\n\n"));
        for (page, title) in *titles {
            let entries = pages.remove(*page).unwrap_or_else(|| panic!("nothing is on the page `{page}`"));
            index.push_str(&line_of_index(page, title, &entries));
            files.insert(format!("{page}.md"), page_of(title, "", &entries));
        }
    }
    index.push_str("\n## Modules\n\n");
    for module in runnel::library::MODULES {
        let page = format!("stdlib/{}", module.name);
        let entries = pages.remove(&page).unwrap_or_default();
        index.push_str(&line_of_index(&page, &format!("`import {}`", module.name), &entries));
        let title = format!("The module `{}`", module.name);
        files.insert(format!("{page}.md"), page_of(&title, &module.doc(), &entries));
    }
    files.insert("README.md".to_string(), index);
    assert!(pages.is_empty(), "PARTS lacks the pages {:?}", pages.keys());
    keep_fresh(&files);
    for path in files_below(&folder()) {
        let name = path.strip_prefix(folder()).unwrap().to_str().unwrap().to_string();
        assert!(name == "errors.md" || files.contains_key(&name), "docs/reference/{name} is of no page");
    }
}

#[test]
fn every_public_name_of_a_module_is_documented() {
    let mut files = files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"));
    for folder in ["examples", "tests/lang", "stdlib"] {
        files.extend(files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)));
    }
    let texts: Vec<String> = files.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    assert!(texts.len() > 100, "{}", texts.len());
    let mut missing = std::collections::BTreeSet::new();
    for module in runnel::library::MODULES {
        let documented: Vec<String> = module.functions().into_iter().map(|f| f.name).collect();
        let defined = module.text.lines().filter_map(|line| line.strip_prefix("fn ")?.split('(').next());
        let own: Vec<&str> = defined.filter(|name| !documented.iter().any(|known| known == name)).collect();
        for text in &texts {
            for (at, _) in text.match_indices(&format!("{}.", module.name)) {
                let before = text[..at].chars().next_back();
                let word = &text[at + module.name.len() + 1..];
                let name = word.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("");
                let is_member = !before.is_some_and(|c| c.is_alphanumeric() || "_./".contains(c));
                if is_member && own.contains(&name) {
                    missing.insert(format!("{}.{name}", module.name));
                }
            }
        }
    }
    assert!(missing.is_empty(), "used by others, but without documentation: {missing:?}");
}

#[test]
fn the_page_of_errors_is_up_to_date() {
    let codes = runnel::cli::codes();
    let mut page = format!(
        "{GENERATED}# Errors\n\nEvery error and warning has a code that never changes. `runnel explain CODE` shows its \
         page. Each entry shows a cause of the error and its report.\n"
    );
    let mut missing = Vec::new();
    for code in codes {
        page.push_str(&format!(
            "\n## {}: {}\n\nKind `{}`. {}\n",
            code.id,
            code.title,
            code.kind,
            code.page.trim()
        ));
        let shown = match code.example {
            "" => ways::shown(code),
            // Their reports contain numbers that depend on the machine.
            _ if matches!(code.id, "E1003" | "E1006") => ways::shown(code),
            example => {
                let how = format!("```rnl\n{}\n```\n", example.trim_end());
                report(code).map(|text| ways::Shown { how, text })
            }
        };
        match shown {
            Some(ways::Shown { how, text }) => {
                page.push_str(&format!("\n{how}\n```text\n{}```\n", tidied(&text)));
            }
            None => missing.push(code.id),
        }
    }
    assert!(missing.is_empty(), "no report is shown for {missing:?}");
    keep_fresh(&BTreeMap::from([("errors.md".to_string(), page)]));
}

/// The report of an example, if it can run here.
fn report(code: &Code) -> Option<String> {
    let config = Config { backend: Backend::Emu, devices: Some(2), ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    let mut vm = runnel::library::machine(Runtime::new(machine, Settings::default()));
    let mut sources = SourceMap::default();
    let found = diagnose(&mut sources, "example.rnl", code.example);
    if let Some(error) = found.errors.into_iter().find(|e| e.code().id == code.id) {
        return Some(render(&error, &sources, Severity::Error, Look::PLAIN));
    }
    if let Some(warning) = found.warnings.into_iter().find(|e| e.code().id == code.id) {
        return Some(render(&warning, &sources, Severity::Warning, Look::PLAIN));
    }
    let error = vm.eval("example.rnl", code.example, Mode::Script).err()?;
    (error.code().id == code.id).then(|| render(&error, &vm.sources, Severity::Error, Look::PLAIN))
}

/// Without spaces at the ends of lines, without the last line, which leads to this page, and with one name
/// for every temporary folder.
fn tidied(report: &str) -> String {
    let lines = report.lines().filter(|l| !l.starts_with("  more: runnel explain"));
    lines.map(|l| format!("{}\n", without_temporary_names(l.trim_end()))).collect()
}

fn without_temporary_names(line: &str) -> String {
    let folder = format!("{}/runnel-", std::env::temp_dir().display().to_string().trim_end_matches('/'));
    let mut parts = line.split(&folder);
    let mut out = parts.next().unwrap_or("").to_string();
    for part in parts {
        out.push_str("/tmp/runnel-xxxxxx");
        out.push_str(part.trim_start_matches(char::is_alphanumeric));
    }
    out
}

fn line_of_index(page: &str, title: &str, entries: &[&Entry]) -> String {
    let names: Vec<String> = entries.iter().map(|e| format!("`{}`", e.name)).collect();
    format!("- [{title}]({page}.md): {}\n", names.join(", "))
}

fn page_of(title: &str, about: &str, entries: &[&Entry]) -> String {
    let mut page = format!("{GENERATED}# {title}\n");
    if !about.is_empty() {
        page.push_str(&format!("\n{}\n", about.trim()));
    }
    for entry in entries {
        page.push_str(&format!("\n## {}\n\n", entry.name));
        if !entry.signature.is_empty() {
            page.push_str(&format!("```rnl\n{}{}\n```\n\n", entry.name, entry.signature));
        }
        page.push_str(entry.doc.trim());
        page.push('\n');
        if !entry.also.is_empty() {
            let names: Vec<String> = entry.also.iter().map(|n| format!("`{n}`")).collect();
            page.push_str(&format!("\nAlso: {}.\n", names.join(", ")));
        }
        if !entry.example.is_empty() {
            page.push_str(&format!("\nExample:\n\n```rnl\n{}\n```\n", entry.example.trim_end()));
        }
    }
    page
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

fn keep_fresh(files: &BTreeMap<String, String>) {
    let mut stale = Vec::new();
    for (name, text) in files {
        let path = folder().join(name);
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        if kept == *text {
            continue;
        }
        if std::env::var_os("RUNNEL_UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        } else {
            stale.push(format!("docs/reference/{name}"));
        }
    }
    assert!(stale.is_empty(), "{stale:?} stale: RUNNEL_UPDATE=1 cargo test --test reference");
}
