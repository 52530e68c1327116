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
fn every_code_s_example_ends_in_it() {
    let mut failures = Vec::new();
    for code in crate::vm::error::CODES.iter().filter(|c| !c.example.is_empty()) {
        let mut vm = vm();
        vm.limits.host_bytes = 64 << 20;
        match vm.eval("<example>", code.example, Mode::Script) {
            Err(error) if std::ptr::eq(error.code(), *code) => {}
            Err(error) => failures.push(format!("{}: {error:?}", code.id)),
            Ok(_) => failures.push(format!("{}: no error", code.id)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn inputs_share_names_and_a_failed_one_leaves_them_alone() {
    let mut vm = vm();
    vm.eval("<1>", "let x = 1\nfn f() { x + y }\nlet y = 2", Mode::Input).unwrap();
    assert!(matches!(vm.eval("<2>", "f()", Mode::Input), Ok(Value::Int(3))));
    assert!(vm.eval("<3>", "let x = 1 // 0\nlet z = 3", Mode::Input).is_err());
    assert!(matches!(vm.eval("<4>", "x = 5; f()", Mode::Input), Ok(Value::Int(7))));
    assert!(vm.global("z").is_none());
    assert!(vm.eval("<5>", "z", Mode::Input).is_err());
    assert!(matches!(vm.eval("<6>", "let max = max(1, 2)\nmax", Mode::Input), Ok(Value::Int(2))));
}

#[test]
fn limits_stop_scripts_and_interrupts_are_not_caught() {
    let mut vm = vm();
    vm.limits.fuel = Some(100_000);
    let error = vm.eval("<1>", "while true { }", Mode::Script).err().unwrap();
    assert_eq!(error.code().id, "E1002");
    vm.limits.fuel = None;
    vm.interrupt_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let text = "let log = []\ntry { while true { } } catch e { log.append(1) }";
    let error = vm.eval("<2>", text, Mode::Input).err().unwrap();
    assert_eq!(error.code().id, "E1004");
    assert!(matches!(vm.eval("<3>", "len(log)", Mode::Input), Ok(Value::Int(0))));
    let text = "let n = 0\nfn f() { defer { n += 1 }\n while true { } }\nf()";
    vm.limits.time = Some(std::time::Duration::from_millis(20));
    assert_eq!(vm.eval("<4>", text, Mode::Input).err().unwrap().code().id, "E1002");
    vm.limits.time = None;
    assert!(matches!(vm.eval("<5>", "n", Mode::Input), Ok(Value::Int(1))));
}

#[test]
fn every_native_is_documented() {
    for def in NATIVES.iter().copied().flatten() {
        assert!(def.doc.ends_with('.'), "{}", def.name);
        assert!(!def.name.is_empty());
    }
}
