//! Runs every script of `tests/lang` as a separate test case.
//!
//! A script passes when it ends without an error; its `assert`s check the results. A line that must fail ends
//! in `# error: E0302`, and the script must stop there with that code. With several marks, the text up to
//! each marked line runs separately, without the marked lines before it.

#[path = "common/cases.rs"]
mod cases;

use cases::Case;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use runnel::base::{Error, Result};
use runnel::device::{Backend, Config, Machine};
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lang");
    let mut scripts = Vec::new();
    find(&root, &mut scripts);
    scripts.sort();
    let case = |path: &PathBuf| {
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        let path = path.clone();
        Case { name, ignored: None, run: Box::new(move || check(&path)) }
    };
    cases::run(&scripts.iter().map(case).collect::<Vec<_>>(), 1)
}

fn find(folder: &Path, scripts: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).map(|d| d.flatten().collect::<Vec<_>>()).unwrap_or_default();
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            // Modules that other scripts import are not separate cases.
            if path.file_name().is_none_or(|n| n != "modules") {
                find(&path, scripts);
            }
        } else if path.extension().is_some_and(|e| e == "rnl") {
            scripts.push(path);
        }
    }
}

fn check(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let mark = |line: &str| line.split_once("# error: ").map(|(_, code)| code.trim().to_string());
    let marks: Vec<(usize, String)> =
        text.lines().enumerate().filter_map(|(i, line)| mark(line).map(|code| (i, code))).collect();
    let without = |last: Option<usize>| -> String {
        let keep = |(i, line): (usize, &str)| match (mark(line), last) {
            (Some(_), last) if last != Some(i) => String::new(),
            _ if last.is_some_and(|last| i > last) => String::new(),
            _ => line.to_string(),
        };
        text.lines().enumerate().map(keep).collect::<Vec<_>>().join("\n")
    };
    for (line, code) in &marks {
        let (result, vm) = run(path, &without(Some(*line)));
        match result {
            Ok(()) => return Err(format!("line {}: no error, but {code} is expected", line + 1)),
            Err(error) if error.code().id != code => {
                return Err(format!("line {}: {error:?}, but {code} is expected", line + 1));
            }
            Err(error) if vm.line(error.span()) != line + 1 => {
                return Err(format!("{code} is at line {}, not {}", vm.line(error.span()), line + 1));
            }
            Err(_) => {}
        }
    }
    let (result, vm) = run(path, &without(None));
    result.map_err(|error| format!("{}: {error:?}", vm.sources.place(error.span())))
}

fn run(path: &Path, text: &str) -> (Result<(), Error>, Vm) {
    let config = Config { backend: Backend::Emu, ..Config::default() };
    let machine = Machine::open(&config).expect("emulated devices are always there");
    let mut vm = runnel::library::machine(Runtime::new(machine, Settings::default()));
    let result = vm.eval(&path.to_string_lossy(), text, Mode::Script).map(drop);
    (result, vm)
}
