//! Every native's example runs, and every table is complete.

use super::*;
use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings};
use crate::vm::Mode;

fn vm() -> crate::vm::Vm {
    let config = Config { backend: Backend::Emu, ..Config::default() };
    machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

#[test]
fn every_example_runs() {
    let mut failures = Vec::new();
    for def in NATIVES.iter().copied().flatten() {
        if let Err(error) = vm().eval("<example>", def.example, Mode::Script) {
            failures.push(format!("{}: {error:?}", def.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_native_is_documented() {
    for def in NATIVES.iter().copied().flatten() {
        assert!(def.doc.ends_with('.'), "{}", def.name);
        assert!(!def.name.is_empty());
    }
}

#[test]
fn every_example_of_an_operation_runs() {
    let mut failures = Vec::new();
    for op in crate::ops::table::all() {
        if let Err(error) = vm().eval("<example>", op.example, Mode::Script) {
            failures.push(format!("{}: {error:?}", op.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_example_of_an_error_ends_in_that_error() {
    let codes = [crate::ops::error::CODES, crate::ops::error::SHAPE_CODES, crate::plan::error::CODES];
    let mut ids = std::collections::HashSet::new();
    let mut failures = Vec::new();
    for code in codes.into_iter().flatten() {
        if !ids.insert(code.id) {
            failures.push(format!("{} is there twice", code.id));
        }
        if code.example.is_empty() {
            continue;
        }
        match vm().eval("<example>", code.example, Mode::Script) {
            Err(error) if error.code().id == code.id => {}
            Err(error) => failures.push(format!("{}: {error:?}", code.id)),
            Ok(_) => failures.push(format!("{}: no error", code.id)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
