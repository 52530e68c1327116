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
    machine_with(Settings::default())
}

/// [`machine`] with settings.
pub fn machine_with(settings: Settings) -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    library::machine(Runtime::new(Machine::open(&config).unwrap(), settings))
}

/// Settings in which also small values are computed again instead of stored, and small products joined with their readers.
pub fn keeping() -> Settings {
    Settings { kept_from: 0, mapped_from: 1, ..Settings::default() }
}

/// What `of` returns for each launch of `code`, after `before` has run.
pub fn launched<T>(before: &str, code: &str, of: impl Fn(&Launch) -> T) -> Vec<T> {
    launched_with(Settings::default(), before, code, of)
}

/// [`launched`] with settings.
pub fn launched_with<T>(settings: Settings, before: &str, code: &str, of: impl Fn(&Launch) -> T) -> Vec<T> {
    let mut vm = machine_with(settings);
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

/// Asserts that a script returns the same on the device with and without fusion, also if small values are computed again,
/// and on the host.
pub fn agrees(code: &str) {
    agrees_on_devices(code);
    let host = format!("with device(cpu) {{\n{code}\n}}");
    assert_eq!(ends(&host, true), ends(code, false), "{host}");
}

/// [`agrees`] without the host.
pub fn agrees_on_devices(code: &str) {
    let expected = ends(code, false);
    assert_eq!(ends(code, true), expected, "{code}");
    let again = format!("let result = (|| {{\n{code}\n}})()\nassert(result == {expected:?}, result)");
    let done = machine_with(keeping()).eval("<kept>", &again, Mode::Input).map(drop);
    assert!(done.is_ok(), "{code}\n{expected}\n{}", done.unwrap_err());
}

/// The error of a script.
pub fn fails(code: &str, fuse: bool) -> String {
    let engine = runnel::Engine::builder().backend(Backend::Emu).devices(1).fuse(fuse).build();
    match engine.unwrap().eval::<String>(code) {
        Ok(value) => panic!("no error but {value}\n{code}"),
        Err(e) => format!("{e:?}"),
    }
}

/// Asserts that a script needs the same fuel with and without fusion.
pub fn costs_the_same(code: &str) {
    let least = |fuse: bool| {
        let runs = |fuel: u64| {
            let engine = runnel::Engine::builder().backend(Backend::Emu).devices(1).fuse(fuse).fuel(fuel);
            engine.build().unwrap().eval::<String>(code).is_ok()
        };
        (0..4000).find(|&fuel| runs(fuel)).expect("the script ends")
    };
    assert_eq!(least(true), least(false), "{code}");
}

/// Asserts that a script returns the same with and without fusion on a device with this much memory, also if small values
/// are computed again.
pub fn fits(code: &str, bytes: u64) {
    let run = |fuse: bool, kept_from: u64| {
        let engine =
            runnel::Engine::builder().backend(Backend::Emu).devices(1).fuse(fuse).kept_from(kept_from);
        engine.device_memory(bytes).build().unwrap().eval::<String>(code)
    };
    let apart = run(false, 0).unwrap_or_else(|e| panic!("not fused: {e:?}\n{code}"));
    for kept_from in [Settings::default().kept_from, 0] {
        let fused = run(true, kept_from).unwrap_or_else(|e| panic!("from {kept_from} bytes: {e:?}\n{code}"));
        assert_eq!(fused, apart, "from {kept_from} bytes\n{code}");
    }
}
