//! Scripts on one emulated device: what they launch, and what they return.

#![allow(dead_code)] // Each test uses some of it.

use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::kernel::Launch;
use runnel::library;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};

/// A machine with one emulated device.
pub fn machine() -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

/// What `of` returns for each launch of `code`, after `before` has run.
pub fn launched<T>(before: &str, code: &str, of: impl Fn(&Launch) -> T) -> Vec<T> {
    let mut vm = machine();
    vm.eval("<before>", before, Mode::Input).unwrap();
    vm.rt.flush().unwrap();
    vm.rt.start_listing(false).unwrap();
    vm.eval("<test>", code, Mode::Input).unwrap();
    vm.rt.flush().unwrap();
    let listing = vm.rt.stop_listing();
    listing.launches.iter().map(|listed| of(&listed.launch)).collect()
}

/// The value of a script as a text.
pub fn ends(code: &str, fuse: bool) -> String {
    let engine = runnel::Engine::builder().backend(Backend::Emu).devices(1).fuse(fuse).build();
    engine.unwrap().eval::<String>(code).unwrap_or_else(|e| panic!("{e:?}\n{code}"))
}

/// Asserts that a script returns the same on the device with and without fusion, and on the host.
pub fn agrees(code: &str) {
    let expected = ends(code, false);
    assert_eq!(ends(code, true), expected, "{code}");
    let host = format!("with device(cpu) {{\n{code}\n}}");
    assert_eq!(ends(&host, true), expected, "{host}");
}
