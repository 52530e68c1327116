//! Values that wait in a queue for a reader (`plan/kept.rs`, `gather.rs`, `pad.rs`): who holds their operands, writes on
//! other streams, failures, captures, limits. In these tests small values count as large.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/emulated.rs"]
mod emulated;

use emulated::{agrees_on_devices, fits, keeping};
use runnel::device::{Config, Machine};
use runnel::driver::Failure;
use runnel::plan::{RaceMode, Runtime};
use runnel::vm::{Mode, Vm};
use runnel::{Backend, Engine, library};

const DATA: &str = "let begin = |n| (arange(n).float() * 37 % 11) / 4 - 1\n\
                    let (x, y, ids) = (begin(480).reshape(40, 12), begin(12), arange(60) * 7 % 40)\n\
                    (x.sum() + y.sum() + ids.sum()).item()\n";

/// Values that wait: computed again, gathered, padded, and combinations.
const VALUES: &[&str] =
    &["x - y", "x[ids]", "x.pad([1, 2])", "x.pad([1, 1], mode=\"circular\")", "(x * 2)[ids] + y"];

/// Closes the open group: its values may wait from here on.
const CLOSE: &str = "y.cumsum(0)\n";

fn engine(fuse: bool, races: RaceMode) -> Engine {
    let builder = Engine::builder().backend(Backend::Emu).devices(2).fuse(fuse).races(races);
    builder.warnings(|_, _| {}).kept_from(0).build().unwrap()
}

/// The value of a script, or the code of its error.
fn ends(code: &str, fuse: bool, races: RaceMode) -> String {
    match engine(fuse, races).eval::<String>(code) {
        Ok(value) => value,
        Err(error) => error.code().id.to_string(),
    }
}

#[test]
fn operands_that_only_other_values_hold_are_freed() {
    // Two values of one operand, and a value of a value, when memory for the last tensor must be found.
    for code in [
        "let a = x[..n] * 2\nlet b = x[n..2 * n] + 1\n(a[..9].clone(), b[..9].clone())\nCLOSE\nx = none",
        "let a = x[..n] * 2\nCLOSE\nlet b = a + 1\nCLOSE\nx = none",
        "let a = x[..n] - x[n..2 * n]\nCLOSE\nx = none",
        "let a = x[i]\nlet b = x[i] + 1\nCLOSE\nx = none",
        "let a = x[..n].pad([1, 1])\nCLOSE\nlet b = a * 2\nx = none",
        "let a = x[..n] * 2\nCLOSE\nx = none\nlet f = zeros(9) + 1\nlet w = ones(4 * n) * 1",
    ] {
        let code = code.replace("CLOSE", "z.cumsum(0)");
        let code = format!(
            "let n = 1 << 20\nlet (x, i, z) = (zeros(8 * n), arange(n), zeros(9))\n(x[0] + i[0] + z[0]).item()\n\
             let b = none\n{code}\nlet p = ones(5 * n)\nlet q = ones(2 * n)\n\
             str((a.sum().item(), if b is_none {{ 0 }} else {{ b.sum().item() }}, p.sum().item(), q.sum().item()))"
        )
        .replace("b is_none", "type(b) == \"none\"");
        fits(&code, 64 << 20);
    }
}

#[test]
fn other_streams_write_an_operand_after_its_values() {
    let wait = "s.wait_stream(cuda.current_stream())\n";
    let writes =
        ["x.add_(1)", "x[2..5] = 9", "x.index_fill_(0, ids, 3.0)", "x.copy_(ones(40, 12))", "x.T.zero_()"];
    for value in VALUES {
        for write in writes {
            let body = |before: &str, after: &str| {
                format!(
                    "{DATA}let s = Stream()\nlet e = cuda.current_stream().record_event()\nlet d = {value}\n{CLOSE}\
                     {before}with stream(s) {{ {write} }}\n{after}str((d.tolist(), (d * 2).sum(0).tolist()))"
                )
            };
            let after = "cuda.current_stream().wait_stream(s)\n";
            let good = body(wait, after);
            let expected = ends(&good, false, RaceMode::Deny);
            assert!(expected.starts_with('('), "{expected}\n{good}");
            assert_eq!(ends(&good, true, RaceMode::Deny), expected, "{good}");
            // The value was submitted after the event. It has not been computed, but the write is a race.
            for before in ["", "s.wait_event(e)\n"] {
                let bad = body(before, after);
                for fuse in [true, false] {
                    assert_eq!(ends(&bad, fuse, RaceMode::Deny), "E0601", "{fuse}\n{bad}");
                    assert_eq!(ends(&bad, fuse, RaceMode::Fix), expected, "{fuse}\n{bad}");
                }
            }
        }
    }
}

/// With `rest`, there is no memory for `d` when the host waits. Nothing needs it there then, so it goes on waiting.
const SHORT: &str = "let n = 1 << 20\nlet (x, z, ids) = (ones(4 * n), zeros(9), tensor([2, 3, 1, 0]))\n(x[0] + z[0]).item()\nlet d = VALUE\n\
                     z.cumsum(0)\nlet other = x[..5] * 3\nlet rest = none\nlet s = Stream()\nlet g = Graph()\n\
                     let caught = try { rest = zeros(11 * n); rest[0].item(); \"nothing\" } catch e { e.code }";

/// Values that wait, with their sums.
const LARGE: [(&str, f64); 4] = [
    ("x + 1", 8388608.0),
    ("x * x - 1", 0.0),
    ("x.reshape(4, n)[ids].flatten()", 4194304.0),
    ("((x * 2).reshape(4, n)[ids] + 1).flatten()", 12582912.0),
];

fn short(value: &str, fuse: bool) -> Engine {
    let builder = Engine::builder().backend(Backend::Emu).devices(1).device_memory(64 << 20).fuse(fuse);
    let mut engine = builder.kept_from(0).schedule(7).build().unwrap();
    engine.eval::<()>(&SHORT.replace("VALUE", value)).unwrap();
    engine
}

#[test]
fn values_that_cannot_be_stored_go_on_waiting() {
    for (number, (value, sum)) in LARGE.into_iter().enumerate() {
        for fuse in [true, false] {
            let mut engine = short(value, fuse);
            let caught = engine.eval::<String>("caught").unwrap();
            let expected = if fuse { "nothing" } else { "E0701" };
            // The indices of a gather must be read.
            assert!(
                caught == expected || caught == "E0701" && value.ends_with("flatten()"),
                "{value}: {caught}"
            );
            // Other values and the operand are what they were.
            assert_eq!(engine.eval::<f64>("other.sum().item() + x[..5].sum().item()").unwrap(), 20.0);
            // What needs the value fails until there is memory.
            let waits = engine.eval::<bool>("rest != none").unwrap();
            assert!(!fuse || waits || number == 3, "{value}");
            if waits && fuse {
                for code in ["d.sum().item()", "x.add_(1)", "d.data_ptr()", "d[0] = 3", "d.cumsum(0)"] {
                    let error = engine.eval::<()>(code).expect_err(code);
                    assert_eq!(error.code().id, "E0701", "{value}: {code}");
                }
            }
            engine.eval::<()>("rest = none").unwrap();
            assert_eq!(engine.eval::<f64>("d.sum().item()").unwrap(), sum, "{value}");
            assert_eq!(engine.eval::<f64>("(x + 1).sum().item()").unwrap(), f64::from(8 << 20), "{value}");
        }
    }
}

/// The wait for the host orders other work after the value, although it is computed later.
#[test]
fn values_that_go_on_waiting_see_their_operands_as_they_were() {
    let begins = "cuda.synchronize()\nrest = none\n";
    for (value, sum) in LARGE {
        for code in [
            "with stream(s) { x.add_(1) }\ncuda.synchronize()",
            "with stream(s) { x[..] = 9 }\ncuda.synchronize()",
            "with stream(s) { x.copy_(x * 3) }\ncuda.synchronize()",
            "let e = d[..n] * 2\nd = none\nwith stream(s) { x.add_(1) }\ncuda.synchronize()\nd = e",
            "with stream(s) { d = d + 0 }\ncuda.current_stream().wait_stream(s)",
            "x = none\ncuda.synchronize()",
            "with graph(g) { x.mul_(5) }\ng.replay()",
            "d = d.reshape(2, 2 * n)\nd.t_()\nx.zero_()",
            "try { rest = zeros(16 * n) } catch e { }\nx.zero_()",
        ] {
            let ends = |fuse| -> f64 {
                let mut engine = short(value, fuse);
                engine
                    .eval::<()>(&format!("{begins}{code}"))
                    .unwrap_or_else(|e| panic!("{value}: {code}: {e:?}"));
                engine.eval("d.sum().item()").unwrap()
            };
            let sum = if code.contains("d = e") { sum / 2.0 } else { sum };
            assert_eq!((ends(true), ends(false)), (sum, sum), "{value}: {code}");
        }
    }
}

/// Every driver call fails once, while values wait.
#[test]
fn values_are_computed_or_lost_when_a_driver_call_fails() {
    for value in VALUES {
        let head = format!("{DATA}let expected = ({value}).tolist()\nlet d = {value}\n{CLOSE}");
        let uses = [
            "let p = (d * 2).sum(0)",
            "x.add_(1)",
            "d.cumsum(0)",
            "cuda.synchronize()",
            "let s = Stream()\ns.wait_stream(cuda.current_stream())",
        ];
        for code in uses {
            let mut failed = 0;
            for call in 1..60 {
                let failure = Some(Failure::parse(&call.to_string()).unwrap());
                let config = Config { backend: Backend::Emu, devices: Some(1), failure, ..Config::default() };
                let Ok(machine) = Machine::open(&config) else { continue };
                let mut vm = library::machine(Runtime::new(machine, keeping()));
                if vm.eval("<head>", &head, Mode::Input).is_err() {
                    continue;
                }
                let done = vm.eval("<use>", &format!("{code}\ncuda.synchronize()"), Mode::Input);
                failed += usize::from(done.is_err());
                // It is what it was, or an error.
                let check = "let now = try { d.tolist() } catch e { e.code }\n\
                             assert(now == expected or type(now) == \"str\", str(now))";
                let checked = |vm: &mut Vm| vm.eval("<check>", check, Mode::Input).map(drop);
                // The call that fails may be one of these.
                let again = match checked(&mut vm) {
                    Err(e) if e.code().id == "E0801" => checked(&mut vm),
                    done => done,
                };
                again.unwrap_or_else(|e| panic!("{call}: {e:?}\n{head}{code}"));
            }
            assert!(failed > 0, "{value}\n{code}");
        }
    }
}

/// A group that was aside reads the value from memory.
#[test]
fn values_that_a_group_reads_are_stored_when_memory_is_short() {
    let code = "let filler = empty(49 << 20, dtype=u8)\nlet (z, w) = (zeros(2), arange(36, dtype=i32).reshape(3, 4, 3))\n\
                cuda.synchronize()\nlet d = logical_not(z)\nlet p = (w * 2).pad([1, 0, 1, 1], mode=\"circular\")\n\
                let (q, r) = (d[..1].to(f16).amin(0), d[..1].to(bf16).amin(0))\ncuda.synchronize()\n\
                str(map(|t| t.tolist(), [d, p, q, r]))";
    fits(code, 64 << 20);
}

#[test]
fn captures_begin_and_end_while_values_wait() {
    for value in VALUES {
        // The capture reads the value, writes its operand, does neither; it begins with and without a wait.
        for step in ["q.copy_(d.sum())", "x.add_(1)", "q.add_(1)", "q.copy_((d * 2)[3].sum())\nx[2..5] = 0"] {
            agrees_on_devices(&format!(
                "{DATA}let q = zeros(1)\nq.item()\nlet d = {value}\n{CLOSE}let g = Graph()\nwith graph(g) {{\n{step}\n}}\n\
                 let p = (d * 3).sum(0)\ng.replay()\nlet r = d.sum(1)\ng.replay()\n\
                 str(map(|t| t.tolist(), [p, r, d, q, x]))"
            ));
            agrees_on_devices(&format!(
                "{DATA}let (q, s) = (zeros(1), Stream())\nq.item()\nlet d = {value}\n{CLOSE}let g = Graph()\n\
                 with stream(s) {{\ng.capture_begin()\n{step}\ng.capture_end()\n}}\nlet p = (d * 3).sum(0)\ng.replay()\n\
                 let r = d.sum(1)\ng.replay()\nstr(map(|t| t.tolist(), [p, r, d, q, x]))"
            ));
            // Values that wait within the capture.
            agrees_on_devices(&format!(
                "{DATA}let (q, z) = (zeros(1), zeros(40, 12))\nq.item()\nlet g = Graph()\n\
                 let c = with graph(g) {{\nlet d = {value}\ny.cumsum(0)\n{step}\nd * 2\n}}\nx.mul_(2)\ng.replay()\n\
                 let p = c.clone()\nx.mul_(-1)\ng.replay()\nstr(map(|t| t.tolist(), [p, c, q, x]))"
            ));
        }
        agrees_on_devices(&format!(
            "{DATA}let d = {value}\n{CLOSE}let f = cuda.graphed(|t| t + d.sum() - x[0, 0], [y])\nlet p = f(y).clone()\n\
             x.add_(1)\nlet r = f(y * 2).clone()\nstr(map(|t| t.tolist(), [p, r, d, x]))"
        ));
    }
}

#[test]
fn limits_and_statistics_count_values_that_wait() {
    for value in VALUES {
        for change in [
            "cuda.set_per_process_memory_fraction(0.5)",
            "cuda.empty_cache()",
            "cuda.memory_allocated()",
            "cuda.reset_peak_memory_stats()",
            "cuda.set_device(1)\ncuda.synchronize(1)\ncuda.set_device(0)",
            "cuda.memory_snapshot()",
            "try { zeros(1 << 40) } catch e { }",
        ] {
            let code = format!(
                "{DATA}let d = {value}\n{CLOSE}x = none\n{change}\nlet p = (d * 3).sum(0)\nstr((p.tolist(), d.tolist()))"
            );
            let expected = ends(&code, false, RaceMode::Deny);
            assert!(expected.starts_with('('), "{expected}\n{code}");
            assert_eq!(ends(&code, true, RaceMode::Deny), expected, "{code}");
        }
        // The statistics are those without fusion.
        let code = format!(
            "{DATA}let before = cuda.memory_allocated()\nlet d = {value}\n{CLOSE}str(cuda.memory_allocated() - before)"
        );
        assert_eq!(ends(&code, true, RaceMode::Deny), ends(&code, false, RaceMode::Deny), "{code}");
    }
}
