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
