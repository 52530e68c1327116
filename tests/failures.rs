//! Failures of the machine are survived: every driver call, and every allocation on devices, on the
//! host and of page-locked memory, fails once, at each of its positions in scripts that together use every operation
//! and every function. Then the memory of devices is short, less and less.
//!
//! After each failure the session must be sound: the error is a coded one, a check script passes on the
//! same session, the device and the stream are those of before, and all memory comes back.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::{Error, ErrorKind};
use runnel::device::{Backend, Config, DeviceId, Failure, Machine};
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Every example of an operation or a function that does not wait for long.
fn scripts() -> Vec<(&'static str, &'static str)> {
    let ops = runnel::ops::table::all().map(|op| (op.name, op.example));
    let natives =
        runnel::library::NATIVES.iter().flat_map(|(_, table)| *table).map(|def| (def.name, def.example));
    ops.chain(natives).filter(|(_, example)| !example.is_empty()).collect()
}

fn session(failure: Option<Failure>, memory: u64) -> (Vm, Arc<Machine>) {
    let config = Config {
        backend: Backend::Emu,
        devices: Some(2),
        device_memory: Some(memory),
        failure,
        ..Config::default()
    };
    let machine = Machine::open(&config).unwrap();
    let vm = runnel::library::machine(Runtime::new(machine.clone(), Settings::default()));
    (vm, machine)
}

const CHECK: &str = r#"
assert(cuda.current_stream() == cuda.default_stream() and cuda.current_device() == 0)
let check_s = Stream()
let check_x = arange(6) on cuda:0
check_s.wait_stream(cuda.current_stream())
let check_y = with stream(check_s) { check_x * 2 }
cuda.current_stream().wait_stream(check_s)
assert((check_y + 1).sum().item() == 36)
assert((ones(3, device=cpu) + 1).tolist() == [2, 2, 2])
check_x = none
check_y = none
"#;

/// What is wrong with a session after a script has ended with `outcome`.
fn unsound(vm: &mut Vm, machine: &Machine, outcome: Result<(), Error>, fired: bool) -> Option<String> {
    match &outcome {
        Err(_) if !fired => return Some(format!("{:?}, and nothing had failed", outcome.err())),
        // An assertion sees a failure that the script itself has caught, or one while it looked at times.
        Err(e) if e.kind() == ErrorKind::Name || e.kind() == ErrorKind::Syntax => {
            return Some(format!("{e:?}"));
        }
        _ => {}
    }
    if let Err(error) = vm.eval("<check>", CHECK, Mode::Input) {
        return Some(format!("after {:?} the check fails: {error:?}", outcome.err()));
    }
    // Names, and what they hold, go; so does all memory.
    let names: Vec<String> = vm.globals().iter().map(|(name, _)| name.to_string()).collect();
    for name in names {
        vm.set_global(&name, runnel::vm::Value::None);
    }
    vm.take_warnings();
    let done = vm.flush().and_then(|()| {
        for device in machine.opened() {
            device.synchronize()?;
        }
        Ok(())
    });
    if let Err(error) = done {
        return Some(format!("the session does not come to rest: {error:?}"));
    }
    for device in machine.opened() {
        if device.memory_allocated() != 0 {
            return Some(format!(
                "after {:?} {} bytes of {} are still taken",
                outcome.err(),
                device.memory_allocated(),
                device.id()
            ));
        }
        if let Err(error) = device.empty_cache() {
            return Some(format!("{error:?}"));
        }
        match device.driver().memory_info() {
            Ok((free, total)) if free == total => {}
            other => return Some(format!("{} does not come back whole: {other:?}", device.id())),
        }
    }
    None
}

/// Runs `work` for each script, on two threads, and collects what it complains of.
fn for_each_script(work: impl Fn(&str, &str) -> Option<String> + Sync) {
    let scripts = scripts();
    assert!(scripts.len() > 300, "{}", scripts.len());
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let thread = std::thread::Builder::new().stack_size(16 << 20);
            let body = || {
                while let Some((name, script)) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let why = work(name, script);
                    failures.lock().unwrap().extend(why.map(|why| format!("`{name}`: {why}\n{script}")));
                }
            };
            thread.spawn_scoped(scope, body).unwrap();
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n\n"));
}

/// Lets the calls of a kind fail, one after the other, until a run meets none any more.
fn fail_each(kind: Option<&'static str>) {
    for_each_script(|_, script| {
        for nth in 1.. {
            let failure = Failure::new(kind, nth);
            let (mut vm, machine) = session(Some(failure.clone()), 1 << 30);
            let outcome = vm.eval("<example>", script, Mode::Script).map(drop);
            let fired = failure.has_fired();
            failure.disarm();
            if let Some(why) = unsound(&mut vm, &machine, outcome, fired) {
                return Some(format!("call {nth} of {kind:?}: {why}"));
            }
            if !fired {
                break;
            }
        }
        None
    });
}

#[test]
fn every_driver_call_fails_once() {
    fail_each(None);
}

#[test]
fn every_allocation_on_the_host_fails_once() {
    fail_each(Some("host_alloc"));
}

#[test]
fn memory_is_short_and_then_less_so() {
    for_each_script(|_, script| {
        let mut passed = false;
        // From less than one segment up; the last is enough for all examples.
        for memory in [1 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 22 << 20, 24 << 20, 64 << 20, 1 << 30] {
            let (mut vm, machine) = session(None, memory);
            let outcome = vm.eval("<example>", script, Mode::Script).map(drop);
            passed = outcome.is_ok();
            if memory >= 24 << 20
                && let Some(why) = unsound(&mut vm, &machine, outcome, true)
            {
                return Some(format!("{memory} bytes: {why}"));
            }
            if passed {
                break;
            }
        }
        (!passed).then(|| "it fails with any memory".to_string())
    });
}

#[test]
fn after_running_out_of_memory_a_script_goes_on() {
    let (mut vm, machine) = session(None, 64 << 20);
    let script = r#"
let kept = []
for round in 0..3 {
    let kind = try { while true { kept.append(zeros(1 << 20)) } } catch e { e.kind }
    assert(kind == "OutOfMemory", kind)
    assert(len(kept) > 10)
    kept = []
}
zeros(1 << 23).sum().item()
"#;
    vm.eval("<oom>", script, Mode::Script).unwrap();
    assert!(unsound(&mut vm, &machine, Ok(()), false).is_none());
    assert_eq!(machine.device(DeviceId::Cuda(0)).unwrap().memory_allocated(), 0);
}
