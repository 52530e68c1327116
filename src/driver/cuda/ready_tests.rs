//! The ready-made kernels: the table of functions, and whether the files in `kernels/ready` are fresh.
//!
//! `RUNNEL_UPDATE=1` rewrites the files; `.ci/ready` does so with every compiler that is needed.

#![cfg(test)]

use super::nvrtc;
use super::ready;
use super::sources::nvrtc_is_here;
use crate::array::Class;
use crate::kernel::cuda::PRELUDE;
use crate::kernel::cuda::interpret::{self, FUNCTIONS, Form, Function};
use crate::kernel::cuda::translate::bodies;
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
    }
    texts
}

const CLASSES: [Class; 3] = [Class::F32, Class::F64, Class::I64];
const NAMES: [&str; 3] = ["float", "double", "i64"];

/// The lines of the table; the compiler says what class a text has.
fn lines() -> String {
    let mut functions: Vec<(Form, usize, String)> = Vec::new();
    for (class, text) in texts() {
        // Complex functions, and constants that are not functions.
        if text.starts_with("complex") {
            continue;
        }
        match text.as_str() {
            "b > a" | "b < a" => functions.push((Form::Wins, class, text)),
            "(a ? b : c)" => functions.push((Form::Select, class, text)),
            _ => functions.push((Form::Plain, class, text)),
        }
    }
    for (from, text) in interpret::conversions() {
        let class = CLASSES.iter().position(|c| *c == from).unwrap();
        functions.push((Form::Plain, class, text));
    }
    functions.sort();
    functions.dedup();
    let mut source = format!(
        "{PRELUDE}\ntemplate <class T> struct Kind {{ static const u8 value = 2; }};\n\
         template <> struct Kind<float> {{ static const u8 value = 0; }};\n\
         template <> struct Kind<double> {{ static const u8 value = 1; }};\n\
         template <class T> struct Kind<T&> {{ static const u8 value = Kind<T>::value; }};\n"
    );
    let mut kinds = String::new();
    for (at, (form, class, text)) in functions.iter().enumerate() {
        let class = NAMES[*class];
        let first = if *form == Form::Select { "i64" } else { class };
        let _ = writeln!(
            source,
            "INLINE constexpr u8 kind_{at}({first} a, {class} b, {class} c, {class} d) {{ return Kind<decltype({text})>::value; }}"
        );
        let _ = write!(kinds, "kind_{at}(0, 0, 0, 0), ");
    }
    let _ = writeln!(source, "extern \"C\" __device__ const u8 kinds[] = {{ {kinds} 9 }};");
    let ptx = nvrtc::compile_now(&source, "compute_80", "kinds").unwrap();
    let ptx = String::from_utf8_lossy(&ptx);
    let values = ptx.split("kinds[").nth(1).and_then(|rest| rest.split(['{', '}']).nth(1)).unwrap();
    let values: Vec<usize> = values.split(',').map(|value| value.trim().parse().unwrap()).collect();
    assert_eq!(values.len(), functions.len() + 1);
    let mut lines = String::new();
    for ((form, class, text), result) in functions.iter().zip(values) {
        let function = Function { form: *form, class: CLASSES[*class], result: CLASSES[result], text };
        lines.push_str(&function.line());
        lines.push('\n');
    }
    lines
}

#[test]
fn the_table_of_functions_is_fresh() {
    if !nvrtc_is_here() {
        return;
    }
    let lines = lines();
    if updates() {
        std::fs::write(folder().join("functions.txt"), &lines).unwrap();
    } else {
        assert_eq!(lines, FUNCTIONS, "run `.ci/ready`");
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

/// Rewrites the functions as PTX, if they are old.
#[test]
fn functions_as_ptx_are_fresh() {
    for (compiler, file) in ready::FUNCTIONS_PTX {
        let (name, source) = (format!("functions-{compiler}.bin"), bodies::source(FUNCTIONS));
        let builds = updates() && nvrtc_is_here() && nvrtc::version().unwrap() == compiler;
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

/// Rewrites the files that this machine's NVRTC is meant for, if they are old.
#[test]
fn ready_kernels_are_fresh() {
    let text = interpret::source(FUNCTIONS);
    for file in ready::FILES {
        let name = format!("sm_{}{}", file.arch.major, file.arch.minor);
        let path = format!("{name}-{}.bin", file.compiler);
        let builds = updates() && nvrtc_is_here() && nvrtc::version().unwrap() == file.compiler;
        if builds && !is_fresh(file.bytes, &text) {
            write(&path, &text, &nvrtc::compile_now(&text, &name, "ready").unwrap());
        } else if !updates() {
            assert!(is_fresh(file.bytes, &text), "kernels/ready/{path} is old: run `.ci/ready`");
        }
    }
}
