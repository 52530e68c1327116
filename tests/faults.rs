//! Failing driver calls (`RUNNEL_FAULT`): each one ends in a report with its source position, and everything
//! that was not in flight stays valid.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;

struct Run {
    out: String,
    err: String,
    status: Option<i32>,
}

fn run(fault: &str, options: &[&str], code: &str) -> Run {
    let mut command = command::runnel();
    for name in ["CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "RUNNEL_BACKEND", "RUNNEL_ALLOC_CONF"] {
        command.env_remove(name);
    }
    command.args(["--backend", "emu", "--devices", "2"]).args(options).args(["-e", code]);
    let done = command.env("RUNNEL_FAULT", fault).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { out: text(done.stdout), err: text(done.stderr), status: done.status.code() }
}

/// The number of the driver call whose failure gives this report.
fn call_that_says(options: &[&str], code: &str, said: &str) -> usize {
    let found = (1..80).find(|n| run(&n.to_string(), options, code).err.contains(said));
    found.unwrap_or_else(|| panic!("no failing call says {said}"))
}

const MANY: &str = "\
let x = ones(64)
let s = Stream()
s.wait_stream(cuda.current_stream())
let y = with stream(s) { x.exp() + 1 }
cuda.current_stream().wait_stream(s)
let e = Event(enable_timing=true)
e.record()
let host = y.to(cpu, non_blocking=true)
let far = x.to(cuda:1) * 2
let z = x[tensor([1, 2])]
e.synchronize()
cuda.synchronize()
print(far.sum().item(), z.tolist(), host.sum().item() > 0)
x.copy_(host)
print((x @ x).item() > 0)
cuda.empty_cache()";

#[test]
fn a_script_reports_every_failing_call() {
    let good = run("100000", &[], MANY);
    assert_eq!((good.status, good.out.as_str()), (Some(0), "128.0 [1.0, 1.0] true\ntrue\n"), "{}", good.err);
    for sticky in ["", ":sticky"] {
        let mut failed = 0;
        for n in 1..60 {
            let done = run(&format!("{n}{sticky}"), &[], MANY);
            if done.status == Some(0) {
                continue;
            }
            failed += 1;
            assert_eq!(done.status, Some(1), "{n}{sticky}: {}", done.err);
            let coded = ["E0801", "E0805", "E0701", "E0706"].iter().any(|code| done.err.contains(code));
            assert!(coded && !done.err.contains("internal error"), "{n}{sticky}: {}", done.err);
            assert!(done.err.contains("<-e>:"), "{n}{sticky} has no place: {}", done.err);
        }
        assert!(failed > 20, "{failed} of the calls fail");
    }
}

const FLIGHT: &str = "\
let x = ones(4)
print(x.sum().item())
let s = Stream()
s.wait_stream(cuda.current_stream())
let y = x * 2
let z = with stream(s) { x - 1 }
cuda.synchronize()";

#[test]
fn a_failed_wait_names_the_launches_in_flight_and_no_others() {
    let n = call_that_says(&[], FLIGHT, "`synchronize` failed");
    let err = run(&n.to_string(), &[], FLIGHT).err;
    assert!(err.contains("`mul` was in flight on the default stream of cuda:0"), "{err}");
    assert!(err.contains("`sub` was in flight on stream 1 of cuda:0"), "{err}");
    assert!(err.contains("launch_blocking"), "{err}");
    assert!(!err.contains("`sum` was in flight") && !err.contains("`full` was in flight"), "{err}");
}

#[test]
fn launch_blocking_narrows_it_to_one() {
    let code = FLIGHT.replace("let y = x * 2", "let y = with launch_blocking() { x * 2 }");
    let err = (1..80)
        .map(|n| run(&n.to_string(), &[], &code).err)
        .find(|err| err.contains("`stream_synchronize` failed") && err.contains("x * 2 }\n"))
        .expect("the wait after the launch can fail");
    assert_eq!(err.matches("was in flight").count(), 1, "{err}");
    assert!(err.contains("`*` was in flight"), "{err}");
}

#[test]
fn only_results_in_flight_are_lost() {
    let code = "\
let x = ones(4)
cuda.synchronize()
let far = ones(3) on cuda:1
let y = x * 2
let e = try { cuda.synchronize(0) } catch e { e }
if e == none { throw \"the wait went well\" }
print(e.kind, e.line)
print(try { y.tolist() } catch lost { lost.code })
print(try { (y + 1).tolist() } catch lost { lost.code })
print(x.tolist(), far.tolist())
y.copy_(x)
print((y + x).tolist())";
    let n =
        (1..80).find(|n| run(&n.to_string(), &[], code).out.starts_with("Cuda 4\n")).expect("a wait fails");
    let done = run(&n.to_string(), &[], code);
    let expected = "Cuda 4\nE0706\nE0706\n[1.0, 1.0, 1.0, 1.0] [1.0, 1.0, 1.0]\n[2.0, 2.0, 2.0, 2.0]\n";
    assert_eq!(done.out, expected, "{}", done.err);
}

#[test]
fn a_device_that_failed_for_good_takes_no_other_with_it() {
    let code = "\
let far = ones(3) on cuda:1
cuda.synchronize(1)
let x = ones(4)
let y = x * 2
let e = try { cuda.synchronize(0) } catch e { e }
if e == none { throw \"the wait went well\" }
print(e.code)
print(try { (x + 1).tolist() } catch again { again.code })
print((far + 1).tolist(), (ones(2) on cpu).tolist())";
    let find = |n: &usize| run(&format!("{n}:sticky"), &[], code).out.starts_with("E0805\n");
    let n = (1..80).find(find).expect("a wait fails");
    let done = run(&format!("{n}:sticky"), &[], code);
    let second = done.out.lines().nth(1).unwrap_or("");
    assert!(second == "E0805" || second == "E0706", "{}{}", done.out, done.err);
    assert!(done.out.ends_with("[2.0, 2.0, 2.0] [1.0, 1.0]\n"), "{}{}", done.out, done.err);
}
