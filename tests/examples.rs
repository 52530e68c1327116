//! Runs the examples in the tables: those of every operation and every error code.

use runnel::base::{Code, Error};
use runnel::device::{Backend, Config, Machine};
use runnel::ops::{error, table};
use runnel::plan::{Runtime, Settings};
use runnel::vm::Mode;

fn run(script: &str) -> Result<(), Error> {
    let config = Config { backend: Backend::Emu, ..Config::default() };
    let machine = Machine::open(&config).expect("emulated devices are always there");
    let mut vm = runnel::library::machine(Runtime::new(machine, Settings::default()));
    // As commands do before they run a script.
    let block = vm.parse("<example>", script)?;
    if let Some(error) = vm.check("<example>", &block, true).errors.into_iter().next() {
        return Err(error);
    }
    vm.run(&block, Mode::Script).map(drop)
}

#[test]
fn every_operation_example_passes() {
    let failures: Vec<String> = table::all()
        .filter_map(|op| run(op.example).err().map(|e| format!("`{}`: {e:?}\n{}", op.name, op.example)))
        .collect();
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn every_operation_error_has_an_example_that_ends_in_it() {
    let codes = error::CODES.iter().chain(error::SHAPE_CODES).chain(runnel::plan::error::CODES);
    let codes = codes.filter(|code: &&&Code| !code.example.is_empty());
    let failures: Vec<String> = codes
        .filter_map(|code| match run(code.example) {
            Err(error) if error.code().id == code.id => None,
            Err(error) => Some(format!("{}: {error:?}\n{}", code.id, code.example)),
            Ok(()) => Some(format!("{}: no error\n{}", code.id, code.example)),
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
