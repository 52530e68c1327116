//! The process survives failures of the machine. In scripts that together use everything that is documented,
//! driver calls and allocations on devices, on the host and of page-locked memory fail, one in each run: each of a
//! script's first 2 calls (20 with `RUNNEL_LONG=1`), and ever fewer of later ones, which are mostly the same calls in a loop
//! (`RUNNEL_FAILURES=all`: each of them). Then device memory is limited in steps.
//!
//! After each failure the session must be sound: the error has a code and points at the statement that ran, a
//! check script passes in the same session, the current device and stream are unchanged, and all memory is
//! returned.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/long.rs"]
mod long;

use long::few_or_many;
use runnel::base::{Error, ErrorKind, Place};
use runnel::device::{Backend, Config, Machine};
use runnel::driver::{DeviceId, Failure};
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Scripts for code without an example.
const OTHERS: &[(&str, &str)] = &[
    (
        "read, write",
        "let path = files.temp_folder() ++ \"/note.txt\"\nwrite(path, \"a\")\nwrite(path, \"b\", append=true)\n\
         assert(read(path) == \"ab\")\nassert(exists(path))",
    ),
    (
        "pinned",
        "let x = zeros(1 << 18, device=cpu, pin_memory=true)\nlet y = x.to(cuda, non_blocking=true)\ny.sum().item()",
    ),
    (
        "backward on streams and devices",
        "let w = ones(4, requires_grad=true)\nlet s = Stream()\ns.wait_stream(cuda.current_stream())\n\
         let y = with stream(s) { exp(w) * w[[0, 0, 2, 3]] }\n\
         cuda.current_stream().wait_stream(s)\nlet z = (y.sin() on cuda:1) * 2\n\
         z[0..2] += z[2..]\nlet v = comm.gather([z, w.to(cuda:1)], 0, 0).sum() + y.sum()\n\
         v.backward(retain_graph=true)\nlet g = w.grad.clone()\nv.backward()\nassert(equal(w.grad, g * 2))",
    ),
    (
        "a training step",
        "let p = (w = ones(3, 2, requires_grad=true), b = zeros(2, requires_grad=true))\nlet x = randn(5, 3)\n\
         for i in 0..2 {\n(p.w.t() @ x.t() + p.b.unsqueeze(1)).tanh().logsumexp(0).mean().backward()\n\
         with no_grad() { for w in [p.w, p.b] {\nw.sub_(w.grad)\nw.grad = none\n} }\n}\n\
         assert(p.w.isfinite().all())",
    ),
    (
        "gradients of gradients",
        "let f = |x| checkpoint(|x| x.sin() * x, x * 2).sum()\nlet x = arange(3.0)\n\
         let h = grad(|x| (grad(f)(x) ** 2).sum())(x)\nassert(h.shape == (3,) and hessian(f)(x).shape == (3, 3))",
    ),
    (
        "a training step in a graph",
        "let w = ones(3, requires_grad=true)\nlet step = cuda.graphed(|x| {\nw.grad = none\n\
         ((w * x) ** 2).sum().backward()\nwith no_grad() { w.sub_(0.1 * w.grad) }\n}, [ones(3)])\n\
         step(ones(3) * 2)\nassert(w.isfinite().all())",
    ),
];

/// Operations that examples write as an operator or a call.
const OPERATORS: &[(&str, &str)] = &[
    ("bitwise_and", " & "),
    ("bitwise_or", " | "),
    ("bitwise_xor", " ^ "),
    ("bitwise_not", "~"),
    ("bitwise_left_shift", " << "),
    ("bitwise_right_shift", " >> "),
    ("eq", " == "),
    ("ne", " != "),
    ("lt", " < "),
    ("le", " <= "),
    ("gt", " > "),
    ("ge", " >= "),
    ("neg", "-"),
    ("add", " + "),
    ("sub", " - "),
    ("mul", " * "),
    ("matmul", " @ "),
    ("floor_divide", " // "),
    ("remainder", " % "),
    ("graphed.call", "graphed("),
    ("gradient_function.call", "g("),
];

/// Names that no script here uses, with the reason.
const LEFT_OUT: &[&str] = &[
    // It waits for a line of the terminal.
    "input",
];

/// The examples of all documented operations, functions, methods, attributes and modules.
fn scripts() -> Vec<(String, String)> {
    let entries = runnel::library::docs::entries().iter().map(|e| (e.name.clone(), e.example.to_string()));
    let others = OTHERS.iter().map(|(name, script)| (name.to_string(), script.to_string()));
    entries.filter(|(_, example)| !example.is_empty()).chain(others).collect()
}

#[test]
fn everything_that_is_documented_is_run() {
    let scripts = scripts();
    let missing: Vec<String> = runnel::library::docs::entries()
        .iter()
        .map(|entry| entry.name.clone())
        .filter(|name| !LEFT_OUT.contains(&&**name))
        .filter(|name| {
            // An example must use its subject: by name, in place, or as an operator.
            let last = name.rsplit('.').next().unwrap_or(name);
            let operator =
                OPERATORS.iter().find(|(of, _)| *of == last || of == name).map(|(_, operator)| *operator);
            let uses = |script: &str| {
                let mut words = script.split(|c: char| !(c.is_alphanumeric() || c == '_'));
                operator.is_some_and(|o| script.contains(o))
                    || words.any(|w| w == last || w.trim_end_matches('_') == last)
            };
            let own = |of: &str| of == name || OTHERS.iter().any(|(o, _)| *o == of);
            !scripts.iter().any(|(of, script)| own(of) && uses(script))
        })
        .collect();
    assert!(missing.is_empty(), "without a script: {missing:?}");
}

/// The statements of a script, each as a separate source.
fn statements(script: &str) -> Vec<String> {
    let parsed = runnel::syntax::parse(0, script);
    assert!(parsed.errors.is_empty(), "{script}");
    parsed.block.body.iter().map(|s| script[s.span.lo as usize..s.span.hi as usize].to_string()).collect()
}

/// Runs the statements one by one, as a session does: the number of the one that failed, and its error.
fn run(vm: &mut Vm, script: &str) -> Result<(), (usize, Error)> {
    for (at, statement) in statements(script).iter().enumerate() {
        vm.eval(&format!("<{at}>"), statement, Mode::Input).map_err(|error| (at, error))?;
    }
    Ok(())
}

/// Checks the positions of an error of statement `at`: it must point there, or into a running function of a module or
/// an earlier statement. Other positions are launches of this statement or of an earlier one.
fn misplaced(vm: &Vm, script: &str, at: usize, error: &Error) -> Option<String> {
    let places = error.labels().iter().map(|label| match label.place {
        Place::Span(span) => vm.sources.find(span).map(|id| vm.sources.name(id).to_string()),
        _ => None,
    });
    let places: Vec<Option<String>> = places.collect();
    let number = |place: &str| place.trim_matches(['<', '>']).parse::<usize>().ok();
    let texts: Vec<String> = statements(script);
    let has_function = |n: usize| texts[n].contains('|');
    let here = |place: &Option<String>| {
        place.as_deref().is_some_and(|p| number(p).is_none_or(|n| n == at || has_function(n)))
    };
    let sound = |place: &Option<String>| place.as_deref().is_some_and(|p| number(p).is_none_or(|n| n <= at));
    let wrong = !places.iter().any(here) || !places.iter().all(sound);
    wrong.then(|| format!("statement {at} failed, and {error:?} points at {places:?}"))
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

/// Checks a session after a script has ended with `outcome`.
fn unsound(vm: &mut Vm, machine: &Machine, outcome: Result<(), Error>, fired: bool) -> Option<String> {
    match &outcome {
        Err(_) if !fired => return Some(format!("{:?}, and nothing had failed", outcome.err())),
        // An assertion may see a failure that the script has caught, or one in a time measurement.
        Err(e) if e.kind() == ErrorKind::Name || e.kind() == ErrorKind::Syntax => {
            return Some(format!("{e:?}"));
        }
        _ => {}
    }
    if let Err(error) = vm.eval("<check>", CHECK, Mode::Input) {
        return Some(format!("after {:?} the check fails: {error:?}", outcome.err()));
    }
    // Removing the names must free all memory.
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

/// Runs `work` for each script, on two threads, and collects the complaints.
fn for_each_script(work: impl Fn(&str, &str) -> Option<String> + Sync) {
    let scripts = scripts();
    assert!(scripts.len() > 600, "{}", scripts.len());
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

/// Runs each script once for each call of a kind, which fails.
fn fail_each(kind: Option<&'static str>) {
    let all = std::env::var("RUNNEL_FAILURES").is_ok_and(|all| all == "all");
    for_each_script(|_, script| {
        let mut next = 1;
        loop {
            let nth = next;
            // Each of the early calls; later ones at growing distances.
            next += 1 + if all { 0 } else { nth / few_or_many(2, 20) };
            let failure = Failure::new(kind, nth);
            let (mut vm, machine) = session(Some(failure.clone()), 1 << 30);
            let outcome = run(&mut vm, script);
            let fired = failure.has_fired();
            failure.disarm();
            let misplaced = match &outcome {
                Err((at, error)) if fired => misplaced(&vm, script, *at, error),
                _ => None,
            };
            let outcome = outcome.map_err(|(_, error)| error);
            if let Some(why) = misplaced.or_else(|| unsound(&mut vm, &machine, outcome, fired)) {
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
        // From less than one segment upwards; the last size is enough for all examples.
        const SIZES: &[u64] =
            &[1 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 22 << 20, 24 << 20, 64 << 20, 1 << 30];
        const FEW: &[u64] = &[1 << 10, 2 << 20, 22 << 20, 64 << 20, 1 << 30];
        for &memory in few_or_many(FEW, SIZES) {
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
fn a_script_continues_after_running_out_of_memory() {
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
