//! Values that are only reachable from themselves release what they hold. Values in use are kept, wherever
//! the reference is held.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::device::{Config, Machine};
use runnel::engine::{Builder, Function};
use runnel::plan::{Runtime, Settings};
use runnel::vm::Mode;
use runnel::{Backend, Engine};

/// Room for sixteen tensors of [`BIG`].
fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(1).device_memory(64 << 20)
}

/// A tensor of four megabytes.
const BIG: &str = "zeros(1 << 20)";

/// Ways to close a cycle that holds a tensor `x`, each within one iteration of a loop.
const CYCLES: &[&str] = &[
    "let a = [x]\na.append(a)",
    "let a = [x, 0]\na[1] = a",
    "let a = [x, 0, 0]\na[1..] = [a, a]",
    "let a = [x]\na.insert(0, [a])",
    "let a = [x]\na.extend([(a, 1)])",
    "let d = dict((x = x))\nd[\"own\"] = d",
    "let d = dict((x = x))\nd.setdefault(\"own\", (inner = [d]))",
    "let d = dict((x = x))\nd.update((f = || d))",
    "fn f(n) { if n == 0 { x } else { f(n - 1) } }\nf(2)",
    "let f = none\nlet g = || f\nf = || (g, x)",
    "let a = [x]\nlet d = dict()\nlet f = || d\nd[\"list\"] = a\na.append(f)",
    "let a = [x]\na.append(a.append)",
    "let a = [x]\na.append(iterable(|| || a))",
    "let a = [x]\na.append(enumerate(iterable(|| || a)))",
    "let (a, b) = ([x], [])\na.append(b)\nb.append((own = a))",
];

/// A script that makes a cycle in each iteration.
fn turns(cycle: &str, count: usize) -> String {
    let body = format!("let x = {BIG}\n{cycle}").replace('\n', "\n    ");
    format!("fn turn() {{\n    {body}\n    none\n}}\nfor i in 0..{count} {{ turn() }}\n")
}

#[test]
fn cycles_release_their_tensors_when_memory_is_short() {
    for cycle in CYCLES {
        let mut engine = builder().build().unwrap();
        engine.eval::<()>(&turns(cycle, 50)).unwrap_or_else(|e| panic!("{cycle}: {e}"));
        let figures: Vec<i64> = engine
            .eval("cuda.empty_cache()\n[cuda.memory_allocated(), cuda.memory_stats()[\"num_ooms\"]]")
            .unwrap();
        assert_eq!(figures, [0, 0], "{cycle}");
    }
}

#[test]
fn cycles_of_host_tensors_and_pinned_ones_do_too() {
    for device in ["device=cpu", "device=cpu, pin_memory=true"] {
        let mut engine = builder().host_memory(1 << 30).pinned_limit(64 << 20).build().unwrap();
        let script = turns(CYCLES[0], 400).replace("1 << 20", &format!("1 << 20, {device}"));
        engine.eval::<()>(&script).unwrap_or_else(|e| panic!("{device}: {e}"));
    }
}

#[test]
fn cycles_of_host_values_stay_within_the_limit_on_host_memory() {
    let mut engine = builder().host_memory(8 << 20).build().unwrap();
    engine.eval::<()>("for i in 0..2000 {\n    let a = list(0..10_000)\n    a.append(a)\n}").unwrap();
    engine.eval::<()>("for i in 0..200_000 {\n    let d = dict()\n    d[i] = d\n}").unwrap();
}

#[test]
fn limits_on_tensors_and_events_count_live_objects() {
    let mut engine = builder().tensors(20).events(20).build().unwrap();
    engine.eval::<()>("for i in 0..200 {\n    let a = [zeros(1)]\n    a.append(a)\n}").unwrap();
    engine.eval::<()>("for i in 0..200 {\n    let a = [Event()]\n    a.append(a)\n}").unwrap();
    let all = engine.eval::<()>("let kept = []\nfor i in 0..200 { kept.append(zeros(1)) }").unwrap_err();
    assert_eq!(all.code().id, "E1009");
}

#[test]
fn a_session_releases_its_cycles_at_its_end() {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    let machine = Machine::open(&config).unwrap();
    let mut vm = runnel::library::machine(Runtime::new(machine.clone(), Settings::default()));
    for cycle in CYCLES {
        vm.eval("<test>", &turns(cycle, 1), Mode::Input).unwrap();
    }
    // A cycle that a name, a test and a function of the session refer to.
    let held = format!("let held = [{BIG}]\nheld.append(held)\nfn f() {{ held }}\ntest \"t\" {{ held }}");
    vm.eval("<test>", &held, Mode::Input).unwrap();
    drop(vm);
    assert!(machine.opened().all(|device| device.memory_allocated() == 0));
}

/// Puts pressure on memory, so that a collection runs: at a request, and at `empty_cache`.
const PRESSURE: &str =
    "for i in 0..40 {\n    let a = [zeros(1 << 20)]\n    a.append(a)\n}\ncuda.empty_cache()\n";

#[test]
fn values_in_use_are_not_collected() {
    let mut engine = builder().build().unwrap();
    let script = format!(
        r#"
fn press() {{
{PRESSURE}
1
}}
# In a name.
let a = [full(10, 7)]
a.append(a)
# In a closure in a dict in a list.
let deep = [dict()]
let kept = full(10, 8)
deep[0]["f"] = || (deep, kept)
# In a counter of an iterable under way.
let ring = [1, 2, 3]
ring.append(ring)
let count = 0
for item in ring {{
    press()
    count += 1
}}
assert(count == 4)
# In registers of calls under way, and in arguments of a native that calls back.
fn holds(own) {{
    own.append(own)
    let more = [own, full(10, 9)]
    more.append(more)
    press()
    let seen = sorted([2, 1], |n| {{ press(); n + len(more) }})
    assert(seen == [1, 2])
    more[1].sum().item() + own[0].sum().item()
}}
assert(holds([ones(10)]) == 100)
# Only in an expression under way.
fn ring_of(x) {{ let r = [x]; r.append(r); r }}
assert(ring_of(full(3, 2))[press()][0].sum().item() == 6)
# In what a sort compares.
let pairs = [[2], [1]]
for p in pairs {{ p.append(p) }}
pairs.sort(|p| {{ press(); p[0] }})
assert(pairs[0][0] == 1 and len(pairs[0][1][1]) == 2)
# In an error on its way, and in a cleanup.
fn fails() {{
    let r = [full(4, 3)]
    r.append(r)
    defer assert(r[1][0].sum().item() == 12)
    press()
    throw "no"
}}
assert((try {{ fails() }} catch e {{ press(); e.message }}) == "no")
press()
assert(a[1][1][0].sum().item() == 70)
assert(deep[0]["f"]()[0][0]["f"]()[1].sum().item() == 80)
"#
    );
    engine.eval::<()>(&script).unwrap();
}

#[test]
fn handles_of_the_embedding_program_keep_cycles() {
    let mut engine = builder().build().unwrap();
    let make = "fn maker() {\n    let x = full(10, 5)\n    fn g(n) { if n == 0 { x.sum().item() } else { g(n - 1) } }\n    g\n}\nlet f = maker()";
    engine.eval::<()>(make).unwrap();
    let held: Function<fn(i64) -> f64> = engine.function("f").unwrap();
    engine.eval::<()>("f = none").unwrap();
    engine.eval::<()>(PRESSURE).unwrap();
    assert_eq!(held.call(&mut engine, (3,)).unwrap(), 50.0);
}

#[test]
fn two_sessions_of_one_thread_keep_their_own() {
    let (mut one, mut two) = (builder().build().unwrap(), builder().build().unwrap());
    one.eval::<()>("let a = [full(10, 5)]\na.append(a)").unwrap();
    two.eval::<()>(PRESSURE).unwrap();
    one.eval::<()>(PRESSURE).unwrap();
    drop(two);
    assert_eq!(one.eval::<f64>("a[1][0].sum().item()").unwrap(), 50.0);
}

/// A typical training loop: a state of closures and records that refer to each other and hold tensors, created in each
/// iteration.
const TRAINING: &str = "fn turn(size) {
    let state = dict((weights = [zeros(size), zeros(size)], step = 0))
    let layers = []
    fn forward(x) { layers.append(x)
        state[\"seen\"] = layers
        x + state[\"weights\"][0] }
    state[\"forward\"] = forward
    layers.append((own = state, call = forward))
    forward(zeros(size) + 1)
    none
}
";

#[test]
fn a_training_loop_holds_little_more_than_it_uses() {
    // Each iteration makes tensors of a megabyte, which only its cycle refers to.
    let mut engine = builder().device_memory(1 << 30).build().unwrap();
    let script = format!("{TRAINING}for i in 0..300 {{ turn(1 << 18) }}\ncuda.max_memory_allocated()");
    let high: i64 = engine.eval(&script).unwrap();
    assert!(high < 48 << 20, "{} MiB of the device are held at most", high >> 20);
    let mut engine = builder().pinned_limit(1 << 30).build().unwrap();
    let pinned = TRAINING.replace("zeros(size)", "zeros(size, device=cpu, pin_memory=true)");
    let script = format!(
        "{pinned}for i in 0..300 {{ turn(1 << 18) }}\ncuda.host_memory_stats()[\"active_bytes.peak\"]"
    );
    let high: i64 = engine.eval(&script).unwrap();
    assert!(high < 64 << 20, "{} MiB are page-locked at most", high >> 20);
    // The host has no memory statistics; a limit is used instead.
    let mut engine = builder().host_memory(64 << 20).build().unwrap();
    let host = TRAINING.replace("zeros(size)", "zeros(size, device=cpu)");
    engine.eval::<()>(&format!("{host}for i in 0..300 {{ turn(1 << 18) }}")).unwrap();
}
