//! Values live as long as something can read them: a tensor's memory is free right after its last use.
//!
//! Each case counts the MiB that are allocated at one point of a script, where Python would hold the same tensors.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::library;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Value, Vm};

fn machine() -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

/// `big()` takes 1 MiB, and `held()` counts the MiB that are allocated.
const BASE: &str = "fn big() { zeros(256, 1024) }
fn held() { cuda.memory_allocated() // 1MiB }
fn pair() { (big(), big()) }
fn list() { [big(), big()] }
fn record() { (a = big(), b = big()) }
fn same(x) { x }
";

/// Evaluates the inputs in order; the result is that of the last.
fn eval(inputs: &[&str], mode: Mode) -> Value {
    let mut vm = machine();
    vm.eval("<base>", BASE, Mode::Input).unwrap();
    let mut last = Value::None;
    for input in inputs {
        last = vm.eval("<case>", input, mode).unwrap_or_else(|e| panic!("{input}: {e:?}"));
    }
    last
}

fn mib(inputs: &[&str], mode: Mode) -> i64 {
    match eval(inputs, mode) {
        Value::Int(count) => count,
        _ => panic!("{inputs:?} gives no int"),
    }
}

/// Checks each case in a function, in a block, at the top level of a script, and in a session.
fn check(cases: &[(&str, i64)]) {
    let mut wrong = Vec::new();
    for &(body, wanted) in cases {
        let (function, block) = (format!("fn case() {{ {body} }}\ncase()"), format!("{{ {body} }}"));
        let places = [
            ("function", function.as_str(), Mode::Script),
            ("block", block.as_str(), Mode::Script),
            ("script", body, Mode::Script),
            ("session", body, Mode::Input),
        ];
        for (place, text, mode) in places {
            let held = mib(&[text], mode);
            if held != wanted {
                wrong.push(format!("{held} MiB instead of {wanted} in a {place}: {body}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_variable_ends_where_another_takes_its_name() {
    check(&[
        ("let a = big(); let a = a.sum(); held()", 0),
        ("let a = big(); let a = (a + 1, 2); let a = a[1]; held()", 0),
        ("let a = big(); let a = if true { a.sum() } else { a }; held()", 0),
        ("let (a, b) = pair(); let (a, b) = (a.sum(), b); held()", 1),
        ("let (a, b) = pair(); let (b, a) = (a.sum(), b.sum()); held()", 0),
        ("let (a, b) = pair(); let [a, ..b] = [1, 2, 3]; held()", 0),
        ("let (a = a, b = b) = record(); let (a, _) = (1, 2); held()", 1),
        ("let a = big(); let b = 1; let a = a.sum(); let b = a; let a = big(); let a = b; held()", 0),
        ("let f = { let a = big(); || a }; let f = f().sum(); held()", 0),
        ("let a = 1; for i in 0..2 { let a = big(); let a = a.sum(); a = held() }; held()", 0),
        ("let a = 1; { let b = big(); let b = b.sum(); a = held() }; a", 0),
        ("let a = 1; with no_grad() { let b = big(); let b = b.sum(); a = held() }; a", 0),
        ("try { let b = big(); let b = b.sum(); throw \"t\" } catch e { let e = 1; held() }", 0),
        ("match big() { a if false => 1\n a => { let a = a.sum(); let n = held(); n } }", 0),
        ("for a in list() { let a = 1; let a = big() }; held()", 0),
        ("let a = []; for b in [1] { let b = big(); let b = b.sum(); a.append(held()) }; a[0]", 0),
        ("match pair() { (a, b) => { let a = a.sum(); let b = b.sum(); held() } }", 0),
    ]);
}

#[test]
fn a_captured_variable_lives_as_long_as_its_closures() {
    check(&[
        ("let a = { let a = big(); let f = || a; let a = a.sum(); f }; held()", 1),
        ("let a = { let a = big(); let f = || a; let a = a.sum(); f = 0; held() }; a", 0),
        ("let a = { let a = big(); fn f() { a }; let a = f().sum(); f }; held()", 1),
        ("let a = { let a = big(); let f = || 1; let b = big(); || b }; held()", 1),
    ]);
}

#[test]
fn an_outer_variable_outlives_an_inner_one_of_its_name() {
    check(&[
        ("let a = big(); { let a = a.sum() }; let n = held(); a.sum(); n", 1),
        ("let a = big(); if true { let a = a.sum(); a }; let n = held(); a.sum(); n", 1),
        ("let a = big(); let n = if true { let a = a.sum(); held() }; a.sum(); n", 1),
        (
            "let n = []; { let a = big(); defer n.append(a.sum()); let a = a.sum(); n.append(held()) }; n[0]",
            1,
        ),
        ("let n = []; { let a = big(); defer n.append(1); let a = a.sum(); n.append(held()) }; n[0]", 0),
    ]);
}

#[test]
fn a_parameter_ends_where_the_body_takes_its_name() {
    check(&[
        ("fn f(x) { let x = x.sum(); held() }; f(big())", 0),
        ("fn f((x, y)) { let x = x.sum(); let y = y.sum(); held() }; f(pair())", 0),
        ("fn f(x, y = x.sum()) { let x = y; held() }; f(big())", 0),
        ("fn f(x) { if true { let x = x.sum(); if true { let x = x + 1; held() } } }; f(big())", 0),
        ("fn f(x) { let n = if true { let x = x.sum(); held() } else { 0 }; x.sum(); n }; f(big())", 1),
        ("fn f(x) { defer x.sum(); let x = x.sum(); held() }; f(big())", 1),
        ("fn f(*x) { let x = len(x); held() }; f(big(), big())", 0),
        ("(|x| { let x = x.sum(); held() })(big())", 0),
        ("big() |> |x| { let x = x.sum(); held() }", 0),
    ]);
}

#[test]
fn no_register_keeps_the_container_of_a_part() {
    check(&[
        ("let a = pair()[0]; held()", 1),
        ("let a = list()[0]; held()", 1),
        ("let a = record().a; held()", 1),
        ("let a = 0; a = pair()[0]; held()", 1),
        ("let a = 0; a = record().a; a = list()[1]; held()", 1),
        ("let a = (list(), 1)[0][1]; held()", 1),
        ("let a = dict((a = big(), b = big())); let a = same(a)[\"a\"]; held()", 1),
        ("record().a.sum().item(); held()", 0),
        ("if list()[0].sum() > -1 { held() }", 0),
        ("let a = (..record(), c = 1).c; held()", 0),
        ("let a = len((1, ..pair())); held()", 0),
        ("let a = len([1, ..pair()]); held()", 0),
        ("let a = len((..pair(), 1)); held()", 0),
        ("try { list()[same(7)] } catch e { held() }", 0),
        ("let a = list() and held(); a", 0),
    ]);
}

#[test]
fn no_register_keeps_a_stored_value() {
    check(&[
        ("let a = zeros(2, 1024); a[0] = big()[0]; held()", 0),
        ("let a = zeros(256, 1024); a[big() > 1] = 1; held()", 1),
        ("let a = zeros(256, 1024); a[0..256] = big() + 1; held()", 1),
        ("let a = [1]; a[0] = big(); a.clear(); held()", 0),
        ("let a = dict((a = 1)); a[\"a\"] = big(); a.clear(); held()", 0),
        ("let a = dict((a = 1)); a[\"b\"] = big(); a.clear(); held()", 0),
        ("let a = (b = 1); a.b = big(); a = 1; held()", 0),
        ("let a = (b = [1]); a.b[0] = big(); a = 1; held()", 0),
        ("let a = [0, 0]; (a[0], a[1]) = pair(); a.clear(); held()", 0),
        ("let (a, b) = (0, 0); (a, b) = pair(); (a, b) = (0, 0); held()", 0),
        ("let a = [big()]; a[0] += 1; a.clear(); held()", 0),
        ("_ = big(); held()", 0),
        ("let _ = big(); held()", 0),
        ("big(); held()", 0),
        ("big() + 1; held()", 0),
        ("let (a, _) = pair(); held()", 1),
        ("let [a, ..] = [big(), big(), big()]; held()", 1),
        ("same(x = big()); held()", 0),
    ]);
}

#[test]
fn nothing_is_left_of_a_loop_a_match_or_a_failed_block() {
    check(&[
        ("for x in list() { }; held()", 0),
        ("for x in list() { break }; held()", 0),
        ("for (i, x) in enumerate(list()) { }; held()", 0),
        ("for (x, y) in zip(list(), list()) { }; held()", 0),
        ("for x in big() { x.sum() }; held()", 0),
        ("let i = 0; while i < 2 { let x = big(); i += 1; if i == 1 { continue } }; held()", 0),
        ("let i = 0; for x in iterable(|| || { i += 1; if i < 3 { big() } }) { }; held()", 0),
        ("match pair() { (a, 1) => 1\n (a, b) if a.sum() < 0 => 2\n (a, b) => { a = 1; held() } }", 1),
        ("match pair() { (a, b) => 1 }; held()", 0),
        ("match big() { x => { x = 1; held() } }", 0),
        ("try { let x = big(); throw \"t\" } catch e { held() }", 0),
        ("let a = try { big() } catch e { 1 }; a = 1; held()", 0),
        (
            "let i = 0; let n = 0; for x in iterable(|| || { i += 1; n += held(); if i < 3 { 1 } }) { let x = big() }; n",
            0,
        ),
    ]);
}

#[test]
fn functions_of_sequences_take_one_element_at_a_time() {
    let with = |call: &str| {
        let items = "iterable(|| || { i += 1; n = max(n, held()); if i < 5 { big() } })";
        format!("let (i, n) = (0, 0); {}; n", call.replace("ITEMS", items))
    };
    let calls = [
        "map(|x| 0, ITEMS)",
        "map(|x, y| 0, ITEMS, 0..9)",
        "filter(|x| false, ITEMS)",
        "reduce(|a, x| a, ITEMS, 0)",
        "any(map(|x| false, ITEMS))",
    ]
    .map(with);
    check(&calls.each_ref().map(|call| (call.as_str(), 0)));
}

#[test]
fn inputs_of_a_session_keep_only_the_variables() {
    assert_eq!(mib(&["let a = big()", "let a = a.sum()", "held()"], Mode::Input), 0);
    assert_eq!(mib(&["let (a, b) = pair()", "let (a, b) = (1, b)", "held()"], Mode::Input), 1);
    assert_eq!(mib(&["let a = big()\nfn f() { a }", "let a = a.sum()", "f(); held()"], Mode::Input), 0);
    assert_eq!(mib(&["let a = record().a", "record().b.sum()", "held()"], Mode::Input), 1);
    // A variable that functions mention.
    let shared = "let r = record()\nfn f() { r }\nlet a = r.a.sum()\nr = 0\nheld()";
    assert_eq!(mib(&[shared], Mode::Script), 0);
}

#[test]
fn values_between_statements_of_one_name_are_not_stored() {
    let launches = |body: &str| {
        let mut vm = machine();
        let text = format!(
            "let (q, k, m) = (randn(2, 64, 32), randn(2, 64, 32), rand(64, 64) > 0.5)\nfn attend(q, k, m) {{ {body} }}"
        );
        vm.eval("<test>", &text, Mode::Input).unwrap();
        vm.rt.flush().unwrap();
        vm.rt.start_listing(false).unwrap();
        vm.eval("<test>", "let y = attend(q, k, m)", Mode::Input).unwrap();
        vm.rt.flush().unwrap();
        let all = vm.rt.stop_listing().launches;
        all.iter().map(|l| format!("{:?} {}", l.launch.program, l.launch.views.len())).collect::<Vec<_>>()
    };
    let one = launches("((q @ k.mT) * 0.25).masked_fill(m, -inf).softmax(-1)");
    let two = launches("let a = (q @ k.mT) * 0.25; let a = a.masked_fill(m, -inf).softmax(-1); a");
    let kept = launches("let a = (q @ k.mT) * 0.25; let b = a.masked_fill(m, -inf).softmax(-1); (a, b)");
    assert_eq!(one, two);
    assert_ne!(one, kept);
}
