//! The ready-made kernels: the table of functions, and whether the files in `kernels/ready` are up to date.
//!
//! `RUNNEL_UPDATE=1` rewrites the files; `.ci/ready` does so with every compiler that is needed.

#![cfg(test)]

use super::nvrtc;
use super::ready;
use super::sources::nvrtc_is_here;
use crate::array::Class;
use crate::kernel::cuda::interpret::table::{self, COMPLEX_FUNCTIONS, FUNCTIONS};
use crate::kernel::cuda::interpret::{self, Form, Function};
use crate::kernel::cuda::prelude;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/ready")
}

fn updates() -> bool {
    std::env::var_os("RUNNEL_UPDATE").is_some()
}

/// The files that define functions.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if !path.ends_with("tests") => files(&path, all),
            false if path.extension().is_some_and(|e| e == "rs") => all.push(path),
            _ => {}
        }
    }
}

/// The string literal at the beginning of a text.
fn literal(text: &str) -> Option<String> {
    let mut chars = text.trim_start().strip_prefix('"')?.chars();
    let mut value = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                '\n' => {
                    let rest = chars.as_str().trim_start();
                    chars = rest.chars();
                }
                'n' => value.push('\n'),
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
    None
}

/// The texts of all functions and reductions, with the class of their arguments. The tables of operations do not list
/// functions that only composed operations use, so the definitions are read from the source.
fn texts() -> BTreeSet<(usize, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = vec![src.join("kernel/functions.rs")];
    files(&src.join("ops"), &mut all);
    let mut texts = BTreeSet::new();
    for path in all {
        let source = std::fs::read_to_string(&path).unwrap();
        for (at, _) in source.match_indices("CudaText {") {
            let body = &source[at..];
            let body = &body[..body.find("host:").unwrap_or(body.len())];
            for (class, name) in ["f32:", "f64:", "i64:"].iter().enumerate() {
                let Some(start) = body.find(name) else { continue };
                if let Some(text) = literal(&body[start + 4..]).filter(|text| !text.is_empty()) {
                    texts.insert((class, text));
                }
            }
        }
        for (at, name) in source.match_indices("comparison(") {
            if let Some(text) = literal(&source[at + name.len()..]) {
                texts.extend((0..3).map(|class| (class, text.clone())));
            }
        }
        // Functions of complex numbers: the first or the second string literal after the name.
        for (name, skipped) in [("CudaText::complex(", 0), ("twin(", 1), ("to_real(", 1)] {
            for (at, name) in source.match_indices(name) {
                let rest = &source[at + name.len()..];
                let rest = match literal(rest) {
                    Some(_) if skipped == 1 => {
                        let others = rest.splitn(3, '"').nth(2).unwrap_or_default();
                        others.find('"').map_or("", |at| &others[at..])
                    }
                    _ => rest,
                };
                if let Some(text) = literal(rest) {
                    texts.extend([3, 4].map(|class| (class, text.clone())));
                }
            }
        }
    }
    texts
}

const CLASSES: [Class; 5] = [Class::F32, Class::F64, Class::I64, Class::C64, Class::C128];
const NAMES: [&str; 5] = ["float", "double", "i64", "c64", "c128"];

/// The lines of both tables; the compiler determines the class of each text.
fn lines() -> [String; 2] {
    let mut functions: Vec<(Form, usize, String)> = Vec::new();
    for (class, text) in texts() {
        match text.as_str() {
            // Marks a function of complex numbers.
            "complex" => {}
            "b > a" | "b < a" => functions.push((Form::Wins, class, text)),
            "(a ? b : c)" | "(a != 0 ? b : c)" => functions.push((Form::Select, class, text)),
            _ => functions.push((Form::Plain, class, text)),
        }
    }
    for (from, text) in table::conversions() {
        let class = CLASSES.iter().position(|c| *c == from).unwrap();
        functions.push((Form::Plain, class, text));
    }
    functions.extend([3, 4].map(|class| (Form::Plain, class, "to_bool(a)".to_string())));
    functions.sort();
    functions.dedup();
    let mut source =
        format!("{}\ntemplate <class T> struct Kind {{ static const u8 value = 2; }};\n", prelude());
    for (kind, name) in NAMES.iter().enumerate().filter(|(kind, _)| *kind != 2) {
        let _ = writeln!(source, "template <> struct Kind<{name}> {{ static const u8 value = {kind}; }};");
    }
    source.push_str("template <class T> struct Kind<T&> { static const u8 value = Kind<T>::value; };\n");
    let mut kinds = String::new();
    for (at, (form, class, text)) in functions.iter().enumerate() {
        let class = NAMES[*class];
        let first = if *form == Form::Select { "i64" } else { class };
        let _ = writeln!(
            source,
            "INLINE constexpr u8 kind_{at}({first} a, {class} b, {class} c, {class} d) {{ return Kind<decltype({text})>::value; }}"
        );
        let _ = write!(kinds, "kind_{at}({{}}, {{}}, {{}}, {{}}), ");
    }
    let _ = writeln!(source, "extern \"C\" __device__ const u8 kinds[] = {{ {kinds} 9 }};");
    let ptx = nvrtc::compile_now(&source, "compute_80", "kinds").unwrap();
    let ptx = String::from_utf8_lossy(&ptx);
    let values = ptx.split("kinds[").nth(1).and_then(|rest| rest.split(['{', '}']).nth(1)).unwrap();
    let values: Vec<usize> = values.split(',').map(|value| value.trim().parse().unwrap()).collect();
    assert_eq!(values.len(), functions.len() + 1);
    let mut lines = [String::new(), String::new()];
    for ((form, class, text), result) in functions.iter().zip(values) {
        let function = Function { form: *form, class: CLASSES[*class], result: CLASSES[result], text };
        let lines = &mut lines[usize::from(*class > 2 || result > 2)];
        lines.push_str(&function.line());
        lines.push('\n');
    }
    lines
}

#[test]
fn the_tables_of_functions_are_up_to_date() {
    if !nvrtc_is_here() {
        return;
    }
    let files = [("functions.txt", FUNCTIONS), ("complex.txt", COMPLEX_FUNCTIONS)];
    for (lines, (name, known)) in lines().into_iter().zip(files) {
        if updates() {
            std::fs::write(folder().join(name), &lines).unwrap();
        } else {
            assert_eq!(lines, known, "run `.ci/ready`");
        }
    }
}

fn is_fresh(file: &[u8], source: &str) -> bool {
    file.get(..ready::HEAD) == Some(&ready::hash(source)[..])
}

/// Writes a file of `kernels/ready`.
fn write(name: &str, source: &str, content: &[u8]) {
    let mut packed = ready::hash(source).to_vec();
    let mut encoder = flate2::write::DeflateEncoder::new(&mut packed, flate2::Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap();
    std::fs::write(folder().join(name), packed).unwrap();
}

/// Rewrites the functions as PTX if they are outdated.
#[test]
fn functions_as_ptx_are_up_to_date() {
    for (compiler, files) in ready::FUNCTIONS_PTX {
        let builds = updates() && nvrtc_is_here() && nvrtc::version().unwrap() == compiler;
        for ((file, source), kind) in
            files.iter().zip(ready::functions_sources()).zip(["functions", "complex"])
        {
            let name = format!("{kind}-{compiler}.bin");
            if builds && !is_fresh(file, &source) {
                let options = ["--relocatable-device-code=true"];
                let mut ptx = nvrtc::compile_with(&source, "compute_80", "functions", &options).unwrap();
                ptx.retain(|byte| *byte != 0);
                write(&name, &source, &ptx);
            } else if !updates() {
                assert!(is_fresh(file, &source), "kernels/ready/{name} is old: run `.ci/ready`");
            }
        }
    }
}

/// Rewrites the files that this machine's NVRTC produces, if they are outdated.
#[test]
fn ready_kernels_are_up_to_date() {
    let texts = [table::source(FUNCTIONS), table::complex_source(FUNCTIONS, COMPLEX_FUNCTIONS)];
    for file in ready::FILES {
        let arch = format!("{}{}", file.arch.major, file.arch.minor);
        let builds = updates() && nvrtc_is_here() && nvrtc::version().unwrap() == file.compiler;
        for ((kind, bytes), text) in [("sm", file.bytes), ("complex", file.complex)].into_iter().zip(&texts) {
            let path = format!("{kind}_{arch}-{}.bin", file.compiler);
            if builds && !is_fresh(bytes, text) {
                write(&path, text, &nvrtc::compile_now(text, &format!("sm_{arch}"), "ready").unwrap());
            } else if !updates() {
                assert!(is_fresh(bytes, text), "kernels/ready/{path} is old: run `.ci/ready`");
            }
        }
    }
}

/// Only functions that call others may differ in the last digits between versions of NVRTC.
#[test]
fn functions_of_complex_numbers_that_vary_are_known() {
    let text = include_str!("../../../kernels/complex.cuh");
    let bodies: Vec<(&str, &str)> = text
        .split("INLINE ")
        .skip(1)
        .map(|definition| {
            let (head, body) = definition.split_once('{').unwrap();
            (head.split('(').next().unwrap().split(' ').next_back().unwrap(), body)
        })
        .collect();
    let mut varying: Vec<&str> = interpret::VARYING.to_vec();
    let words = |text: &str, name: &str| table::words(text).any(|word| word == name);
    while let Some((name, _)) = bodies
        .iter()
        .find(|(name, body)| !varying.contains(name) && varying.iter().any(|known| words(body, known)))
    {
        varying.push(name);
    }
    let missing: Vec<&&str> = varying
        .iter()
        .filter(|name| name.starts_with("complex_") && !interpret::VARYING.contains(name))
        .filter(|name| COMPLEX_FUNCTIONS.lines().any(|line| words(line, name)))
        .collect();
    assert_eq!(missing, Vec::<&&str>::new(), "add them to `VARYING`");
}
