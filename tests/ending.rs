//! Limits and interrupts quickly end scripts and calls of the embedding program: loops, recursion, closures, containers of
//! containers, texts that grow, and values that move between Rust and scripts.
//!
//! Quickly means within `RUNNEL_LIMIT_MS` milliseconds, by default 5,000, because debug builds on busy machines are slow.
//! With `RUNNEL_EVERYWHERE=all` each is ended several times, early and late; without it, once.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::ErrorKind;
use runnel::engine::Builder;
use runnel::{Array, Backend, DeviceId, Engine, Result, Tensor};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The setup of each case, and the code that is repeated until it is ended.
const SCRIPTS: &[(&str, &str)] = &[
    ("let n = 0", "n += 1"),
    ("let a = []", "a.append(1)"),
    ("let a = []", "a.append([1])"),
    ("let a = []", "a.append((first = 1, second = \"t{len(a)}\", third = (1, 2)))"),
    ("let a = [1, 2]", "a = a ++ a\n if len(a) > 10_000_000 { a = [1, 2] }"),
    ("let a = []", "a = [a, 1]"),
    ("let a = (1, 2)", "a = (a, a)\n if type(a) == \"x\" { 1 }"),
    ("let (d, i) = (dict(), 0)", "d[i] = i\n i += 1"),
    ("let (d, i) = (dict(), 0)", "d[i * 7919] = [i]\n i += 1"),
    ("let (d, i) = (dict(), 0)", "d[\"k{i}\"] = i\n i += 1"),
    ("let (d, i) = (dict(), 0)", "d[(i, i)] = [i]\n i += 1"),
    ("let s = \"\"", "s = s ++ \"abcdefgh\""),
    ("let s = \"éa\"", "s = s ++ s\n if len(s) > 50_000_000 { s = \"éa\" }"),
    ("let (all, i) = ([], 0)", "let k = i\n all.append(|x| x + k)\n i += 1"),
    ("", "let a = []\n a.append(a)"),
    ("let all = []", "let a = []\n a.append(a)\n all.append(a)"),
    ("fn f(n) { if n < 2 { 1 } else { f(n - 1) + f(n - 2) } }", "f(60)"),
    ("fn f(n) { if n == 0 { 0 } else { 1 + f(n - 1) } }", "f(5000)"),
    ("", "map(|x| x * 2, 0..3_000_000)"),
    ("let a = map(|i| (a = i, b = [i]), 0..300_000)", "map(|r| (..r, c = 1), a)"),
    ("let a = map(|i| (i * 7919) % 1000003, 0..1_000_000)", "sorted(a)"),
    ("let a = map(|i| (i * 7919) % 1000003, 0..300_000)", "sorted(a, key=|x| -x)"),
    ("let a = map(|i| ((i * 7919) % 100003, \"x\"), 0..300_000)", "sorted(a)"),
    ("let a = list(0..5_000_000)", "a.copy()"),
    ("let a = list(0..5_000_000)", "a[1..-1]"),
    ("let a = list(0..5_000_000)", "a[5..10] = [1, 2, 3]"),
    ("let a = list(0..5_000_000)", "a.reverse()"),
    ("let a = list(0..5_000_000)", "a.insert(0, 1)\n a.pop(0)\n a.remove(1)\n a.insert(1, 1)"),
    ("let a = list(0..5_000_000)\nlet b = a.copy()", "assert(a == b)"),
    ("let a = list(0..5_000_000)", "-1 in a"),
    ("let a = list(0..5_000_000)", "match a { [x, ..rest] => rest, _ => 1 }"),
    ("let a = list(0..1_000_000)", "\"{a}\""),
    ("let d = dict(enumerate(list(0..1_000_000)))", "d.copy()\n d.keys()\n d.values()\n d.items()"),
    ("let d = dict(enumerate(list(0..1_000_000)))", "d.pop(0)\n d[0] = 1"),
    ("let d = dict(enumerate(list(0..1_000_000)))", "let e = dict()\n e.update(d)"),
    ("", "let a = map(|i| [i], 0..1_000_000)\n a = none"),
    ("", "let a = dict(map(|i| (\"k{i}\", [i]), 0..300_000))\n a = none"),
    ("let s = \"some words, éa \" * 3_000_000", "s.split(\",\")"),
    ("let s = \"some words, éa \" * 3_000_000", "s[1..-1]"),
    ("let s = \"some words, éa \" * 3_000_000", "s[.. by -3]\n s[.. by 100]"),
    ("let s = \"some words, éa \" * 3_000_000", "s = s ++ \"x\"\n s[len(s) - 9]"),
    ("let s = \"some words, éa \" * 3_000_000", "s.replace(\"words\", \"wordses\")"),
    ("let s = \"some words, éa \" * 3_000_000", "s.upper()\n s.title()\n s.strip()\n s.casefold()"),
    ("let s = \"some words, éa \" * 3_000_000\nlet t = s ++ \"x\"", "s ++ \"x\" == t\n s < t"),
    ("let s = \"some words, éa \" * 3_000_000\nlet d = dict()", "d[s ++ \"{len(d)}\"] = 1\n d = dict()"),
    ("let s = \"some words, éa \" * 300_000", "list(s)"),
    ("let s = \"some words, éa \" * 300_000", "for c in s { }"),
    ("let a = map(str, 0..1_000_000)", "\",\".join(a)"),
    ("let a = map(str, 0..1_000_000)", "map(int, a)"),
    ("let x = rand(3_000_000)", "x.tolist()"),
    ("let x = rand(3_000_000)", "for y in x { }"),
    ("let a = map(|i| [1.5, 2.5], 0..500_000)", "tensor(a)"),
    ("let x = ones(4)", "x = x * 1.01 + 1"),
    ("let (a, i) = ([], 0)", "a.append(ones(4) + i)\n i += 1"),
    ("let x = ones(10)", "x = cat([x, x])\n if x.numel() > 10_000_000 { x = ones(10) }"),
    ("let x = rand(1000, 1000)", "x = (x @ x) * 0.001"),
    ("let x = rand(1000, 1000, device=cpu)", "x = (x @ x) * 0.001"),
    ("let x = rand(5_000_000)", "x.sort()\n x.cumsum(0)"),
    ("let x = rand(5_000_000) > 0.5", "x.nonzero()"),
    ("let x = rand(5_000_000, device=cpu)", "x.pin_memory()\n x.to(cuda).to(cpu)"),
    (
        "let x = ones(2, requires_grad=true)",
        "let y = x\n for i in 0..2000 { y = y * 1.0001 }\n y.sum().backward()",
    ),
    ("let x = ones(2, requires_grad=true)\nlet y = x", "y = y * 1.0001"),
    (
        "let s = map(|i| Stream(), 0..8)\nlet x = ones(1000)",
        "for t in s { t.wait_stream(cuda.current_stream())\n with stream(t) { x + 1 } }",
    ),
    ("", "try { throw \"x\" } catch e { }"),
    ("fn f() { defer { 1 }\n 2 }", "f()"),
    ("", "zip(0..500_000, map(|x| [x], 0..500_000))"),
    ("", "reduce(|a, b| a + b, 0..3_000_000)"),
    ("", "print(\"{list(0..10_000)}\")"),
    ("", "let it = enumerate(0..3_000_000)\n for (i, x) in it { }"),
];

fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(2).device_memory(1 << 30).output(|_| {})
}

fn is_whole() -> bool {
    std::env::var("RUNNEL_EVERYWHERE").is_ok_and(|all| all == "all")
}

fn allowed() -> Duration {
    let set = std::env::var("RUNNEL_LIMIT_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(set.unwrap_or(5000))
}

/// Delays before an interrupt or a limit.
fn moments(round: usize) -> Vec<Duration> {
    let all = [3, 20, 70, 150, 400, 900].map(Duration::from_millis);
    if is_whole() { all.to_vec() } else { vec![all[round % 3]] }
}

/// Names and durations of the calls that ended too late.
#[derive(Default)]
struct Took(Vec<(Duration, String)>);

impl Took {
    fn add(&mut self, late: Duration, what: String) {
        self.0.push((late, what));
    }

    fn check(mut self) {
        self.0.sort();
        for (late, what) in self.0.iter().rev().take(15) {
            println!("{:>7.1} ms  {what}", late.as_secs_f64() * 1e3);
        }
        println!("{} calls", self.0.len());
        let late: Vec<_> = self.0.iter().filter(|(late, _)| *late > allowed()).collect();
        assert!(late.is_empty(), "{late:#?}");
    }
}

/// Interrupts `call` after a delay, and measures how long it continues.
fn interrupted<T>(
    engine: &mut Engine,
    after: Duration,
    call: impl FnOnce(&mut Engine) -> Result<T>,
) -> Duration {
    let handle = engine.interrupt_handle();
    let (done, is_done) = mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        // A call that ends first is not interrupted.
        let _ = is_done.recv_timeout(after);
        handle.interrupt();
        Instant::now()
    });
    let result = call(engine);
    let end = Instant::now();
    drop(done);
    let fired = watcher.join().unwrap();
    engine.interrupt_handle().clear();
    if let Err(error) = &result {
        assert!(error.code().id != "E0963", "{error}");
    }
    drop(result);
    let begun = GIVEN.take().map_or(fired, |given| given.max(fired));
    end.saturating_duration_since(begun)
}

fn is_sound(engine: &mut Engine) {
    engine.eval::<()>("assert([1, 2, 3].sum().item() == 6 and sum(map(|x| x + 1, [1, 2])) == 5)").unwrap();
}

/// The script of a case: the setup, then the repetition.
fn endless((first, again): &(&str, &str)) -> String {
    format!("{first}\nwhile true {{ {again} }}")
}

#[test]
fn an_interrupt_ends_scripts() {
    let mut took = Took::default();
    for (round, script) in SCRIPTS.iter().enumerate() {
        for after in moments(round) {
            let mut engine = builder().host_memory(4 << 30).build().unwrap();
            let text = endless(script);
            let late = interrupted(&mut engine, after, |engine| engine.eval::<()>(&text));
            took.add(late, format!("{after:?} {text}"));
            is_sound(&mut engine);
        }
    }
    took.check();
}

#[test]
fn the_limit_on_time_ends_scripts() {
    let mut took = Took::default();
    for (round, script) in SCRIPTS.iter().enumerate() {
        for after in moments(round) {
            let mut engine = builder().host_memory(4 << 30).time(after).build().unwrap();
            let text = endless(script);
            let start = Instant::now();
            let error = engine.eval::<()>(&text).unwrap_err();
            took.add(start.elapsed().saturating_sub(after), format!("{after:?} {text}"));
            let kinds = [ErrorKind::Limit, ErrorKind::OutOfMemory];
            assert!(kinds.contains(&error.kind()), "{text}: {error}");
        }
    }
    took.check();
}

/// Limits on fuel and memory end scripts as well; work within the fuel may take any time.
#[test]
fn fuel_and_memory_end_scripts() {
    let mut took = Took::default();
    for script in SCRIPTS {
        let text = endless(script);
        let mut engine = builder().fuel(5_000).build().unwrap();
        let start = Instant::now();
        let error = engine.eval::<()>(&text).unwrap_err();
        took.add(start.elapsed(), format!("fuel: {text}"));
        assert_eq!(error.kind(), ErrorKind::Limit, "{text}: {error}");
        is_sound(&mut engine);

        let limit = Duration::from_millis(200);
        let mut engine = builder().host_memory(64 << 20).time(limit).build().unwrap();
        let start = Instant::now();
        let error = engine.eval::<()>(&text).unwrap_err();
        took.add(start.elapsed().saturating_sub(limit), format!("memory: {text}"));
        let kinds = [ErrorKind::Limit, ErrorKind::OutOfMemory];
        assert!(kinds.contains(&error.kind()), "{text}: {error}");
    }
    took.check();
}

thread_local! {
    /// The time at which the program had made the values that it passes to the engine.
    static GIVEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn given<T>(value: T) -> T {
    GIVEN.set(Some(Instant::now()));
    value
}

/// A call of the embedding program, which may be long.
type Call = fn(&mut Engine) -> Result<()>;

/// Calls that move large values. The names are made first.
const CALLS: &[(&str, Call)] = &[
    ("eval of ints", |e| e.eval::<Vec<i64>>("numbers").map(drop)),
    ("eval of floats from a tensor", |e| e.eval::<Vec<f64>>("vector").map(drop)),
    ("eval of texts", |e| e.eval::<Vec<String>>("texts").map(drop)),
    ("eval of a text", |e| e.eval::<String>("text").map(drop)),
    ("eval of a dict", |e| e.eval::<HashMap<String, i64>>("table").map(drop)),
    ("eval of an array", |e| e.eval::<Array<f32>>("vector").map(drop)),
    ("eval of rows", |e| e.eval::<Vec<Vec<i64>>>("rows").map(drop)),
    ("eval of pairs", |e| e.eval::<Vec<(i64, String)>>("pairs").map(drop)),
    ("get", |e| e.get::<Vec<i64>>("numbers").map(drop)),
    ("set of ints", |e| e.set("x", given(vec![7_i64; 3_000_000]))),
    ("set of a text", |e| e.set("x", &*given("some words, éa ".repeat(3_000_000)))),
    ("set of texts", |e| e.set("x", given(vec!["some words".to_string(); 1_000_000]))),
    ("set of a dict", |e| {
        let entries = (0..300_000).map(|i| (i.to_string(), i));
        e.set("x", given(entries.collect::<HashMap<String, i64>>()))
    }),
    ("set of an array", |e| e.set("x", given(Array::new(&[5_000_000], vec![1.0_f32; 5_000_000])?))),
    ("tensor", |e| {
        let elements = given(vec![1.0_f32; 5_000_000]);
        e.tensor(&elements, &[5_000_000], DeviceId::Cuda(0)).map(drop)
    }),
    ("read", |e| {
        let tensor = e.get::<Tensor>("vector")?;
        e.read::<f64>(&tensor).map(drop)
    }),
    ("call", |e| e.call::<Vec<i64>>("twice", (vec![1_i64; 1_000_000],)).map(drop)),
    ("function", |e| {
        let twice = e.function::<fn(Vec<i64>) -> Vec<i64>>("twice")?;
        twice.call(e, (vec![1; 1_000_000],)).map(drop)
    }),
    ("compile", |e| e.compile("long", &"let x = [1, 2, 3]\n".repeat(30_000)).map(drop)),
    ("compile of errors", |e| e.compile("wrong", &"let = 1\n".repeat(30_000)).map(drop)),
    ("host functions", |e| e.eval::<()>("for i in 0..10_000_000 { host(i) }")),
    ("host functions that take much", |e| e.eval::<()>("while true { sum_of(numbers) }")),
    ("host functions that give much", |e| e.eval::<()>("while true { many(3_000_000) }")),
    ("gradients", |e| {
        let tensor = e.eval::<Tensor>("(leaf * leaf).exp().sum()")?;
        e.backward(&tensor, None)
    }),
    ("a test", |e| {
        e.eval::<()>("test \"endless\" { while true { } }")?;
        let tests = e.take_tests();
        tests.iter().try_for_each(|test| e.run_test(test))
    }),
    ("an exported tensor", |e| {
        let tensor = e.eval::<Tensor>("vector * 2")?;
        e.export_dlpack(&tensor, None).map(drop)
    }),
];

/// An engine with the names that the calls use.
fn filled(builder: Builder) -> Engine {
    let mut engine = builder.build().unwrap();
    for line in [
        "let numbers = list(0..1_000_000)",
        "let texts = map(str, 0..300_000)",
        "let text = \"some words, éa \" * 3_000_000",
        "let table = dict(map(|i| (\"k{i}\", i), 0..300_000))",
        "let rows = map(|i| [i, i], 0..300_000)",
        "let pairs = map(|i| (i, \"t\"), 0..300_000)",
        "let vector = ones(1).expand(5_000_000)",
        "let leaf = ones(1000, 1000, requires_grad=true)",
        "fn twice(all) { map(|x| 2 * x, all) }",
    ] {
        engine.eval::<()>(line).unwrap();
    }
    engine.register_fn("host", |x: i64| x + 1);
    engine.register_fn("sum_of", |all: Vec<i64>| all.len() as i64);
    engine.register_fn("many", |count: i64| vec![1_i64; count as usize]);
    engine
}

#[test]
fn an_interrupt_ends_calls_of_the_embedding_program() {
    let mut took = Took::default();
    let mut engine = filled(builder());
    for (name, call) in CALLS {
        for after in [1, 5, 15, 40, 80] {
            let late = interrupted(&mut engine, Duration::from_millis(after), call);
            took.add(late, format!("{after} ms {name}"));
        }
        is_sound(&mut engine);
    }
    took.check();
}

/// An interrupt before a call ends it, unless there is little to do.
#[test]
fn calls_of_the_embedding_program_end_when_interrupted() {
    let mut engine = filled(builder());
    for (name, call) in CALLS {
        engine.interrupt_handle().interrupt();
        match call(&mut engine) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{name}: {error}"),
            // These only submit work.
            Ok(()) => assert!(["gradients", "an exported tensor"].contains(name), "{name} does not look"),
        }
        engine.interrupt_handle().clear();
        is_sound(&mut engine);
    }
}
