//! Every run can be limited, and exceeding a limit is a coded error that scripts can catch. Afterwards the
//! session is sound.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::ErrorKind;
use runnel::engine::Builder;
use runnel::{Backend, Engine};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(2).device_memory(256 << 20)
}

/// Runs a script that must meet a limit: the code of its error. Then a check script must pass.
fn limited(engine: &mut Engine, script: &str) -> String {
    let error = engine.eval::<()>(script).expect_err(script);
    assert_eq!(error.kind(), ErrorKind::Limit, "{script}: {error}");
    engine.eval::<()>("let kept = none").unwrap();
    assert_eq!(engine.eval::<i64>("[1, 2, 3].sum().item()").unwrap(), 6, "after {script}");
    assert!(engine.eval::<bool>("cuda.current_stream() == cuda.default_stream()").unwrap());
    error.code().id.to_string()
}

#[test]
fn fuel_is_charged_by_elements_and_ends_at_the_same_point() {
    let script = "let n = 0\nlet x = ones(1000)\nwhile true { x = x * 1.5 + 1\n x.sum()\n n += 1 }";
    let stop = |fuse: bool, device: &str| {
        let mut engine = builder().fuel(500_000).fuse(fuse).build().unwrap();
        let script = script.replace("ones(1000)", &format!("ones(1000, device={device})"));
        assert_eq!(engine.eval::<()>(&script).unwrap_err().code().id, "E1002");
        engine.get::<i64>("n").unwrap()
    };
    let rounds = stop(true, "cuda");
    assert!((50..100).contains(&rounds), "about 7,000 elements a round: {rounds}");
    assert_eq!((stop(true, "cuda"), stop(false, "cuda"), stop(true, "cpu")), (rounds, rounds, rounds));
    // A single operation is bounded too: nothing of this size ever runs.
    let mut engine = builder().fuel(1_000_000).build().unwrap();
    for huge in [
        "ones(1).expand(1 << 40).sum()",
        "ones(1, device=cpu).expand(1 << 40).sum()",
        "ones(300, 300) @ ones(300, 300)",
        "for i in 0..(1 << 60) { }",
        "ones(2000, 2000)",
    ] {
        assert_eq!(limited(&mut engine, huge), "E1002", "{huge}");
    }
    let caught = "try { ones(1).expand(1 << 40).sum() } catch e { e.kind }";
    assert_eq!(engine.eval::<String>(caught).unwrap(), "Limit");
}

#[test]
fn growth_by_doubling_meets_the_limit_on_host_memory() {
    let mut engine = builder().host_memory(32 << 20).build().unwrap();
    for script in [
        "let a = [0]\nwhile true { a = a ++ a }",
        "let s = \"0123456789abcdef\"\nwhile true { s = s ++ s }",
        "let a = []\nwhile true { a.append(a.copy()) }",
        "let d = dict()\nlet i = 0\nwhile true { d[i] = i\n i += 1 }",
        "(1, 2) * 100_000_000",
        "\"x\" * (1 << 40)",
        "list(0..(1 << 40))",
        "let t = ones(1000, device=cpu)\nwhile true { t = cat([t, t]) }",
        "zeros(1 << 30, device=cpu)",
        "zeros(1 << 22).tolist()",
        "\"{1.5:1000000000}\"",
    ] {
        let error = engine.eval::<()>(script).expect_err(script);
        let kinds = [ErrorKind::Limit, ErrorKind::OutOfMemory, ErrorKind::Value, ErrorKind::Type];
        assert!(kinds.contains(&error.kind()), "{script}: {error}");
        engine.eval::<()>("let a = none\nlet s = none\nlet t = none\nlet d = none").unwrap();
    }
    assert_eq!(engine.eval::<i64>("len(\"x\" * 1000)").unwrap(), 1000);
}

#[test]
fn memory_of_devices_and_page_locked_memory_are_bounded() {
    let mut engine = builder().device_limit(64 << 20).pinned_limit(1 << 20).build().unwrap();
    assert_eq!(limited(&mut engine, "let kept = []\nwhile true { kept.append(ones(1 << 20)) }"), "E0704");
    // A device that opens later is limited too.
    assert_eq!(limited(&mut engine, "zeros(1 << 26) on cuda:1"), "E0704");
    let script = "let kept = []\nwhile true { kept.append(zeros(1 << 14, device=cpu).pin_memory()) }";
    assert_eq!(limited(&mut engine, script), "E0704");
    assert_eq!(engine.eval::<f64>("zeros(1000, device=cpu).pin_memory().sum().item()").unwrap(), 0.0);
    // Without a limit of its own, page-locked memory has that of the host.
    let mut engine = builder().host_memory(1 << 20).build().unwrap();
    assert_eq!(limited(&mut engine, script), "E0704");
    let mut engine = builder().host_memory(1 << 20).pinned_limit(8 << 20).build().unwrap();
    engine.eval::<()>("let kept = map(|i| empty(1 << 16, device=cpu).pin_memory(), 0..16)").unwrap();
}

#[test]
fn tensors_events_and_streams_are_bounded() {
    let mut engine = builder().tensors(100).events(50).build().unwrap();
    assert_eq!(limited(&mut engine, "let kept = []\nwhile true { kept.append(ones(1)) }"), "E1009");
    let lazy = "let kept = []\nlet one = ones(1)\nwhile true { kept.append(one + len(kept)) }";
    assert_eq!(limited(&mut engine, lazy), "E1009");
    // Dropped tensors and views do not count.
    engine.eval::<()>("let x = ones(8)\nfor i in 0..1000 { x = x + 1 }").unwrap();
    engine.eval::<()>("let views = []\nfor i in 0..1000 { views.append(x[1..3]) }").unwrap();
    assert_eq!(limited(&mut engine, "let events = []\nwhile true { events.append(Event()) }"), "E1009");
    assert_eq!(
        limited(&mut engine, "while true { events.append(cuda.current_stream().record_event()) }"),
        "E1009"
    );
    engine.eval::<()>("events = none\nfor i in 0..1000 { Event().record() }").unwrap();
    // Streams come from pools: a thousand names, 32 streams.
    let streams = "let all = dict()\nfor i in 0..1000 { all[Stream().cuda_stream] = 1 }\nlen(all)";
    assert_eq!(engine.eval::<i64>(streams).unwrap(), 32);
}

#[test]
fn printed_bytes_are_limited() {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let engine = builder().output_limit(1000).output(move |piece| sink.lock().unwrap().push_str(piece));
    let mut engine = engine.build().unwrap();
    assert_eq!(limited(&mut engine, "while true { print(\"0123456789\") }"), "E1010");
    assert_eq!(text.lock().unwrap().len(), 990);
    engine.eval::<()>("print(\"again\")").unwrap();
    assert!(text.lock().unwrap().ends_with("again\n"));
    assert_eq!(limited(&mut engine, "print(\"x\" * 2000)"), "E1010");
}

#[test]
fn calls_nest_as_deep_as_they_may() {
    let mut engine = builder().call_depth(100).build().unwrap();
    assert_eq!(limited(&mut engine, "fn f(n) { 1 + f(n + 1) }\nf(0)"), "E1001");
    let mut engine = builder().call_depth(1000).build().unwrap();
    assert_eq!(limited(&mut engine, "fn g(n) { map(g, [n]) }\ng(0)"), "E1006");
}

#[test]
fn a_session_closes_without_its_queued_work() {
    for pinned in ["", "for y in kept { homes.append(y.to(cpu, non_blocking=true)) }"] {
        let mut engine = builder().build().unwrap();
        let script = "let x = ones(64).expand(1 << 17, 64)\nlet (kept, homes) = ([], [])\n\
                      for i in 0..400 { kept.append((x + i).sin().exp().sum()) }\n";
        engine.eval::<()>(&format!("{script}{pinned}")).unwrap();
        let start = Instant::now();
        drop(engine);
        // All of the work takes minutes; only the running kernel is waited for.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}

/// Long-running code: a loop, work of the host, a wait for a device.
const LONG: &[&str] = &[
    "while true { }",
    "let n = 0\nfor i in 0..(1 << 60) { n += 1 }",
    "sleep(1000)",
    "let x = ones(64, device=cpu).expand(1 << 22, 64)\nx.sin().exp().sum().item()",
    "let x = ones(64).expand(1 << 17, 64)\nlet y = 0\nfor i in 0..8 { y = y + x.sin().exp().sum() }\ny.item()",
    "let x = ones(64).expand(1 << 17, 64)\nlet e = Event()\nlet kept = []\nfor i in 0..8 { kept.append((x + i).sin().sum()) }\ne.record()\ne.synchronize()",
];

#[test]
fn time_is_bounded_also_within_one_operation_and_one_wait() {
    for script in LONG {
        let mut engine = builder().time(Duration::from_millis(50)).build().unwrap();
        let start = Instant::now();
        let error = engine.eval::<()>(script).expect_err(script);
        assert_eq!(error.kind(), ErrorKind::Limit, "{script}: {error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{script}: {:?}", start.elapsed());
        assert_eq!(engine.eval::<i64>("1 + 1").unwrap(), 2);
    }
}

#[test]
fn an_interrupt_ends_a_script_also_within_one_operation_and_one_wait() {
    for script in LONG {
        let mut engine = builder().build().unwrap();
        let handle = engine.interrupt_handle();
        let watcher = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            handle.interrupt();
        });
        let caught = format!("try {{ {script} }} catch e {{ }}");
        let error = engine.eval::<()>(&caught).expect_err(script);
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{script}: {error}");
        watcher.join().unwrap();
        assert_eq!(engine.eval::<i64>("1 + 1").unwrap(), 2, "the request was used up: {script}");
    }
}

#[test]
fn deferred_code_that_does_not_end_has_a_little_time_after_an_interrupt() {
    let scripts = [
        "{ defer { while true { } }\n while true { } }",
        "fn f() { defer { return 1 }\n while true { } }\nwhile true { f() }",
        "while true { try { { defer { throw \"x\" }\n while true { } } } catch e { } }",
        "fn f(n) { defer { while true { } }\n f(if n > 100 { while true { } } else { n + 1 }) }\nf(0)",
        "let e = Event()\ndefer { cuda.sleep(1 << 50)\n cuda.synchronize() }\nwhile true { }",
        "defer { sleep(1000) }\nwhile true { }",
    ];
    for script in scripts {
        let mut engine = builder().build().unwrap();
        let handle = engine.interrupt_handle();
        let watcher = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            handle.interrupt();
        });
        let error = engine.eval::<()>(script).expect_err(script);
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{script}: {error}");
        watcher.join().unwrap();
        assert_eq!(
            engine.eval::<i64>("let n = 0\nwhile n < 10000 { n += 1 }\nn").unwrap(),
            10_000,
            "{script}"
        );
    }
    // What ends soon runs to its end.
    let mut engine = builder().build().unwrap();
    let handle = engine.interrupt_handle();
    let watcher = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        handle.interrupt();
    });
    let script = "let n = 0\n{ defer { while n < 20000 { n += 1 } }\n while true { } }";
    assert_eq!(engine.eval::<()>(script).unwrap_err().kind(), ErrorKind::Interrupted);
    watcher.join().unwrap();
    assert_eq!(engine.eval::<i64>("n").unwrap(), 20_000);
}

/// Programs that take long to read, check or compile, and little or no time to run.
fn long_programs() -> Vec<(&'static str, String)> {
    let many = |n: usize, piece: &str| piece.repeat(n);
    let nested = |n: usize| format!("{}1{}", many(n, "defer { "), many(n, " }"));
    vec![
        ("ints", format!("let x = [{}]", many(300_000, "1, "))),
        ("names", many(60_000, "print(xyz)\n")),
        ("lets", (0..40_000).map(|i| format!("let x{i} = {i}\n")).collect()),
        ("strings", format!("let x = [{}]", many(100_000, "\"a{1}\", "))),
        ("blocks", many(20_000, "if true { { 1 } }\n")),
        ("functions", many(15_000, "fn f(a, b = 1) { a + b }\n")),
        ("errors", many(100_000, "let = 1\n")),
        ("deferred", format!("fn f() {{ {} }}", nested(60))),
    ]
}

#[test]
fn reading_a_program_is_bounded_as_running_one_is() {
    for (name, program) in long_programs() {
        let fails = |mut engine: Engine, kind: ErrorKind| {
            let start = Instant::now();
            let error = engine.eval::<()>(&program).expect_err(name);
            // An error of the program may be found first.
            let own = ["names", "errors", "deferred"].contains(&name);
            assert!(error.kind() == kind || own, "{name}: {error:?}");
            assert!(start.elapsed() < Duration::from_secs(20), "{name}: {:?}", start.elapsed());
            assert_eq!(engine.eval::<i64>("6 * 7").unwrap(), 42, "{name}");
            if name != "deferred" && kind == ErrorKind::Limit {
                assert!(engine.compile(name, &program).is_err(), "{name}");
            }
        };
        if name != "deferred" {
            fails(builder().fuel(10_000).build().unwrap(), ErrorKind::Limit);
            fails(builder().host_memory(2 << 20).build().unwrap(), ErrorKind::Limit);
        }
        fails(builder().time(Duration::from_millis(5)).build().unwrap(), ErrorKind::Limit);
        let mut engine = builder().build().unwrap();
        engine.interrupt_handle().interrupt();
        fails(engine, ErrorKind::Interrupted);
    }
    // Short programs use neither.
    let mut engine = builder().fuel(20).host_memory(64 << 10).build().unwrap();
    assert_eq!(engine.eval::<i64>(&format!("{}1 + 1", "# a comment\n".repeat(100))).unwrap(), 2);
}

#[test]
fn code_that_would_double_with_each_level_is_compiled_once_or_refused() {
    let nested = |n: usize, head: &str, tail: &str| format!("{}1{}", head.repeat(n), tail.repeat(n));
    for (code, fine) in [
        (format!("fn f() {{ {} }}\n1", nested(40, "while { ", "; false } { }")), true),
        (format!("fn f() {{ {} }}\n1", nested(40, "defer { ", " }")), false),
        (format!("fn f() {{ {} }}\n1", "defer { 1 }\n".repeat(2000)), true),
    ] {
        let start = Instant::now();
        let result = builder().build().unwrap().eval::<()>(&code);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(result.is_ok() || !fine, "{:?}", result.err());
    }
}

/// Queues more than a minute of device work, then keeps computing.
const ENDLESS: &str = "let a = rand(600, 600)\nwhile true { a = (a @ a) * 0.01 }";

#[test]
fn an_interrupted_input_leaves_no_work_behind() {
    for timed in [false, true] {
        let limits = if timed { builder().time(Duration::from_millis(1000)) } else { builder() };
        let mut engine = limits.build().unwrap();
        engine.eval::<()>("let x = ones(4)\nlet y = ones(4) on cuda:1").unwrap();
        let handle = engine.interrupt_handle();
        let watcher = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            if !timed {
                handle.interrupt();
            }
        });
        let error = engine.eval::<()>(ENDLESS).unwrap_err();
        let kind = if timed { ErrorKind::Limit } else { ErrorKind::Interrupted };
        assert_eq!(error.kind(), kind, "{error}");
        watcher.join().unwrap();
        // Nothing waits for the queued work, on either device, and later work is right.
        let start = Instant::now();
        assert_eq!(engine.eval::<f64>("(x + 1).sum().item()").unwrap(), 8.0);
        assert_eq!(engine.eval::<f64>("(y + 1).sum().item()").unwrap(), 8.0);
        engine.eval::<()>("cuda.synchronize()").unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        // The result is gone, and the error shows the line that computed it.
        let error = engine.eval::<f64>("a.sum().item()").unwrap_err();
        assert_eq!(error.code().id, "E0706", "{error}");
        let report = engine.report(&error);
        assert!(report.contains("was discarded here") && report.contains("(a @ a) * 0.01"), "{report}");
        assert_eq!(engine.eval::<f64>("a = ones(4)\na.sum().item()").unwrap(), 4.0);
    }
}

/// A fault of an interrupted input belongs to work that nobody waits for.
#[test]
fn a_later_input_gets_no_fault_of_an_interrupted_one() {
    // One that has ended when the interrupt comes, and one that is running then.
    let all = [(1, "cpu"), (1, "cuda:0"), (1, "cuda:1"), (5_000_000, "cuda:0")];
    for (count, device) in all {
        let mut engine = builder().build().unwrap();
        let handle = engine.interrupt_handle();
        engine.register_fn("stop", move || handle.interrupt());
        let bad = format!(
            "let x = ones(3, device={device})\nlet i = tensor([7], device={device}).expand({count})\n\
             let r = gather(x, 0, i)\nsleep(0.01)\nstop()\nwhile true {{ }}"
        );
        let error = engine.eval::<()>(&bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
        let sum = format!("(ones(2, device={device}) + 1).sum().item()");
        assert_eq!(engine.eval::<f64>(&sum).unwrap(), 4.0, "{device}");
        engine.eval::<()>("cuda.synchronize(0)\ncuda.synchronize(1)").unwrap();
        assert_eq!(engine.eval::<f64>(&sum).unwrap(), 4.0, "{device}");
        // Nor does it hide a fault of a later input.
        let bad = format!("gather(ones(3, device={device}), 0, tensor([8], device={device})).sum().item()");
        let error = engine.eval::<f64>(&bad).unwrap_err();
        assert!(error.code().id == "E0802" && error.message().contains("index 8"), "{error}");
    }
}

/// Operations that are several launches, each of which reads what others wrote.
#[test]
fn an_input_ended_anywhere_leaves_no_fault_no_wrong_value_and_no_work() {
    let calls = [
        "x.median()",
        "x.nanmedian()",
        "x.nanmedian(0)",
        "x.kthvalue(70000)",
        "x.quantile([0.1, 0.9])",
        "x.mode()",
        "x.topk(1000)",
        "x.sort(stable=true)",
        "x.unique(return_inverse=true)",
        "take_along_dim(x, x.argsort())",
        "x[x.argsort()]",
        "x.index_put([x.argsort()], x)",
        "x[x > 0.5].cumsum(0)",
        "x.scatter_add(0, x.argsort(), x)",
        "x.multinomial(1000)",
        "x.histc(100)",
        "x.reshape(300, 500).sort(1)",
        "x.to(cuda:1).sort().values.to(cuda:0)",
    ];
    for device in ["cpu", "cuda:0"] {
        let mut engine = builder().build().unwrap();
        let handle = engine.interrupt_handle();
        let (go, begin) = std::sync::mpsc::channel::<Duration>();
        let (done, ended) = std::sync::mpsc::channel();
        let watcher = std::thread::spawn(move || {
            for after in begin {
                std::thread::sleep(after);
                handle.interrupt();
                done.send(()).unwrap();
            }
        });
        engine
            .eval::<()>(&format!("let x = rand(150000, device={device})\nlet kept = x.sum().item()"))
            .unwrap();
        let check = "x.sum().item() == kept and (x.sort().values[1..] >= x.sort().values[..-1]).all().item()";
        let mut stopped = 0;
        for call in calls.iter().filter(|call| device != "cpu" || !call.contains("cuda")) {
            for after in [0, 200, 1000, 4000, 16_000] {
                go.send(Duration::from_micros(after)).unwrap();
                match engine.eval::<()>(&format!("while true {{ let r = {call}; cuda.synchronize() }}")) {
                    Ok(()) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Interrupted, "{call}: {error}");
                        stopped += 1;
                    }
                }
                ended.recv().unwrap();
                assert!(
                    engine.eval::<bool>(check).unwrap_or_else(|e| panic!("after {call}: {e}")),
                    "after {call}"
                );
                assert!(
                    engine.eval::<i64>("cuda.synchronize(0); cuda.synchronize(1); 1").is_ok(),
                    "after {call}"
                );
            }
        }
        assert!(stopped > calls.len() * 4, "{stopped}");
        drop(go);
        watcher.join().unwrap();
    }
}

#[test]
fn work_of_earlier_inputs_continues() {
    let mut engine = builder().build().unwrap();
    engine.eval::<()>("let x = ones(1).expand(3000000)\nlet kept = []").unwrap();
    engine.eval::<()>("for i in 0..10 { kept.append((x + i).sum()) }").unwrap();
    let handle = engine.interrupt_handle();
    let watcher = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        handle.interrupt();
    });
    assert!(engine.eval::<()>("while true { kept[0] * 2 }").is_err());
    watcher.join().unwrap();
    let sum: f64 = engine.eval("sum(map(|t| t.item(), kept))").unwrap();
    assert_eq!(sum, 3_000_000.0 * 55.0);
}

#[test]
fn a_busy_device_does_not_block_another() {
    let mut engine = builder().build().unwrap();
    let script = "let a = ones(1).expand(1000000000000)\nlet endless = a.sum()\nlet y = ones(1000) on cuda:1\n\
                  for i in 0..100 { y = y + 1 }\nlet e = cuda.current_stream(1).record_event()\ne.synchronize()\ny.sum().item()";
    assert_eq!(engine.eval::<f64>(script).unwrap(), 101_000.0);
    // The sum would take an hour; it ends with the session.
    let start = Instant::now();
    drop(engine);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn work_in_pieces_matches_whole_work() {
    let mut engine = builder().time(Duration::from_secs(600)).build().unwrap();
    let script = "let x = rand(600000, device=cpu)\nlet (y, at) = x.sort()\n\
                  assert((y[1..] >= y[..-1]).all().item() and equal(x[at], y))\n\
                  let whole = (x * 50).to(i64)\nlet (z, places) = whole.sort(stable=true)\n\
                  let tied = z[1..] == z[..-1]\n\
                  assert(((places[1..] > places[..-1]) | ~tied).all().item(), \"equal ones keep their order\")\n\
                  let m = arange(1100.0 * 1100.0, device=cpu).reshape(1100, 1100)\n\
                  assert(equal(m @ eye(1100, device=cpu), m))\n\
                  let s = \"xä€ \" * 40000 ++ \"needle\" ++ \"€yz,\" * 30000 ++ \"needle!\"\n\
                  assert(s.find(\"needle\") == 160000 and s.rfind(\"needle\") == 280006 and s.find(\"absent\") == -1)\n\
                  assert(s.count(\"€\") == 70000 and s.count(\"€yz,€yz,\") == 15000 and len(s.split(\",\")) == 30001)\n\
                  assert(s.replace(\"needle\", \"N\") == \"xä€ \" * 40000 ++ \"N\" ++ \"€yz,\" * 30000 ++ \"N!\")\n\
                  assert(len(s.split()) == 40001 and s.split(none, 2)[..2] == [\"xä€\", \"xä€\"])\n\
                  assert(s.upper().lower() == s and s.title()[..4] == \"Xä€ \" and s.strip(\"!x\")[-1] == \"e\")\n\
                  assert((\"ΑΣ \" * 30000).lower() == \"ας \" * 30000 and (\"ΑΣ\" * 30000).lower()[-1] == \"ς\")\n\
                  let l = map(|i| (i * 7919) % 10007, 0..5000)\n\
                  let sorted_l = sorted(l)\nfor i in 1..5000 { assert(sorted_l[i - 1] <= sorted_l[i]) }\n\
                  let stable = sorted(list(enumerate(l)), key=|p| p[1] % 7)\n\
                  for i in 1..5000 { let (a, b) = (stable[i - 1], stable[i])\n\
                      assert(a[1] % 7 < b[1] % 7 or (a[1] % 7 == b[1] % 7 and a[0] < b[0])) }";
    engine.eval::<()>(script).unwrap();
}

#[test]
fn deferred_drops_run_at_the_next_entry() {
    let mut engine = builder().device_memory(64 << 20).host_memory(512 << 20).build().unwrap();
    for _ in 0..4 {
        let handle = engine.interrupt_handle();
        let watcher = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            handle.interrupt();
        });
        // Each round fills most of both memories with values that only this input holds.
        let script = "(|| { let kept = []\n for i in 0..40 { kept.append(ones(1 << 18)) }\n let all = []\n\
                      while len(all) < 1000000 { all.append([len(all)]) }\n while true { } })()";
        assert_eq!(engine.eval::<()>(script).unwrap_err().kind(), ErrorKind::Interrupted);
        watcher.join().unwrap();
    }
}
