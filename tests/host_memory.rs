//! The limit on host memory applies however a value is created: every native function with large arguments,
//! operators, and values of the embedding program. A limit of the system gives an error and does not kill the
//! process.
//!
//! The tests count every allocation of this process.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::engine::Builder;
use runnel::library::NATIVES;
use runnel::ops::signature::{Default, Kind, Param};
use runnel::{Backend, Engine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// The system's allocator; counts the live bytes of each thread, and their peak.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn note(bytes: isize) {
    // The thread-local counter may be gone at the end of a thread.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        PEAK.set(PEAK.get().max(live.get()));
    });
}

// SAFETY: the system's allocator does the work, and counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both buffers may exist while the contents are copied.
        note(size as isize);
        note(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

const MIB: usize = 1 << 20;
/// The limit of the engines here.
const LIMIT: usize = 12 * MIB;
/// The allowed peak: a moved buffer counts twice, and the engine needs some memory.
const MOST: usize = 2 * LIMIT + 4 * MIB;

fn builder() -> Builder {
    Engine::builder()
        .backend(Backend::Emu)
        .devices(1)
        .device_memory(64 << 20)
        .host_memory(LIMIT)
        .time(Duration::from_secs(20))
        .files(runnel::FileAccess::None)
        .output(|_| {})
}

/// An engine with large values, each a small part of the limit.
fn engine() -> Engine {
    prepared(builder())
}

fn prepared(builder: Builder) -> Engine {
    let mut engine = builder.build().unwrap();
    engine
        .eval::<()>(
            "let text = \"a{{b}}\\t c\\u{e9}\\u{1}\\n\" * 60_000\n\
             let words = text.split(\"c\")[0..4000]\n\
             let long = [\"0123456789abcdef\" * 4096] ++ list(map(|i| none, 0..0))\n\
             let many = map(|i| long[0], 0..4000)\n\
             let items = list(0..40_000)\n\
             let nested = map(|i| items, 0..2000)\n\
             let pair = (items, text)\n\
             let rec = (a = items, b = text)\n\
             let table = dict(enumerate(items))\n\
             let one = ones(100_000, 1)\n\
             let f = |*x| long[0] ++ \"b\"",
        )
        .unwrap();
    engine
}

/// The peak of additional memory during a script, and the outcome.
fn peak(engine: &mut Engine, script: &str) -> (usize, Result<(), String>) {
    let before = LIVE.get();
    PEAK.set(before);
    let done = engine.eval::<()>(script).map_err(|e| e.code().id.to_string());
    ((PEAK.get() - before).max(0) as usize, done)
}

/// Arguments for a parameter.
fn candidates(param: &Param) -> &'static [&'static str] {
    match param.kind {
        Kind::Str => &["text", "\"b\"", "\"\""],
        Kind::Int => &["1 << 40", "1 << 22", "3"],
        Kind::Float | Kind::Number => &["1e9"],
        Kind::Bool => &["true"],
        Kind::Fn => &["f"],
        Kind::Tensor | Kind::TensorOrNumber => &["one"],
        Kind::Shape | Kind::Dims => &["[1 << 20]"],
        Kind::Any | Kind::Data => {
            &["items", "many", "nested", "text", "f", "one", "table", "0..(1 << 40)", "words"]
        }
        _ => &["none"],
    }
}

/// A sample of the calls of a function with all of these arguments.
fn calls(receiver: &str, name: &str, params: &[Param]) -> Vec<String> {
    let (own, rest) = match receiver {
        "" => (String::new(), params),
        _ => (format!("{receiver}."), params.get(1..).unwrap_or(&[])),
    };
    let mut lists: Vec<Vec<String>> = vec![Vec::new()];
    for param in rest {
        let optional = param.default != Default::Required;
        let mut longer = Vec::new();
        for list in &lists {
            if optional && list.len() + 1 >= rest.len() {
                longer.push(list.clone());
            }
            for value in candidates(param) {
                let mut list = list.clone();
                list.push(if param.named_only {
                    format!("{}={value}", param.name)
                } else {
                    value.to_string()
                });
                longer.push(list);
            }
        }
        lists = longer;
    }
    let step = lists.len().div_ceil(48).max(1);
    lists.iter().step_by(step).map(|list| format!("{own}{name}({})", list.join(", "))).collect()
}

#[test]
fn no_native_takes_more_than_the_limit() {
    // Functions that end the script, wait, or read missing input.
    let apart = ["exit", "input", "sleep", "read", "write", "env", "args", "exists"];
    // Some functions read a huge range element by element: they take no memory, but would take days.
    let mut engine = prepared(builder().fuel(4_000_000));
    let (mut failures, mut refused, mut ran) = (Vec::new(), 0, 0);
    for (page, table) in NATIVES {
        if ["files", "plots"].contains(page) {
            continue;
        }
        for def in table.iter().filter(|def| !apart.contains(&def.name)) {
            let receivers: &[&str] = match def.receiver {
                "" => &[""],
                "str" => &["text", "long[0]", "\"b\""],
                "list" => &["items", "many", "nested"],
                "tuple" => &["pair"],
                "record" => &["rec"],
                "dict" => &["table"],
                _ => &[],
            };
            for receiver in receivers {
                for call in calls(receiver, def.name, def.signature.params) {
                    // Methods that change their receiver get a copy.
                    let copied = match def.receiver {
                        "list" | "dict" => call.replacen(receiver, &format!("{receiver}.copy()"), 1),
                        _ => call.clone(),
                    };
                    let (bytes, done) =
                        peak(&mut engine, &format!("if true {{\n    let made = {copied}\n}}"));
                    ran += 1;
                    refused += usize::from(done == Err("E1003".into()));
                    if bytes > MOST {
                        failures.push(format!("{call}: {} KiB, {done:?}", bytes / 1024));
                    }
                }
            }
        }
    }
    assert!(ran > 1000 && refused > 50, "{ran} calls, {refused} refused");
    assert!(failures.is_empty(), "{} of {ran} calls:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_operator_and_no_growth_takes_more_than_the_limit() {
    let mut engine = engine();
    for script in [
        "long[0] * (1 << 20)",
        "let s = text\nwhile true { s = s ++ s }",
        "let s = \"\"\nwhile true { s = \"{s}{text}\" }",
        "let s = text\nwhile true { s = \"{s}{s}\" }",
        "let a = items\nwhile true { a = a ++ a }",
        "let a = (items,)\nwhile true { a = a ++ a }",
        "let x = none\nwhile true { x = (x, 1) }",
        "let x = none\nwhile true { x = (next = x, a = 1) }",
        "let x = none\nwhile true { x = [x] }",
        "let f = none\nwhile true { let g = f\nf = || g }",
        "let a = []\nlet i = 0\nwhile true { a.append(\"{i}\")\ni += 1 }",
        "let a = []\nwhile true { a.append([]) }",
        "let d = dict()\nlet i = 0\nwhile true { d[\"k{i}\"] = i\ni += 1 }",
        "let d = dict()\nlet i = 0\nwhile true { d[i] = dict()\ni += 1 }",
        "str(nested)",
        "print(nested)",
        "\"{nested}\"",
        "ones(2_000_000).tolist()",
        "ones(200_000, 1).tolist()",
        "ones(100_000, dtype=c64).tolist()",
        "ones(200_000, 1).t().contiguous().t().tolist()",
        "list(ones(200_000))",
        "\"\".join(many)",
        "text.join(many)",
        "zip(nested[0], nested[0], nested[0], nested[0], nested[0], nested[0], nested[0], nested[0], nested[0])",
        "let a = map(|i| list(0..1000), 0..100_000)",
        "[list(0..i) for i in 0..100_000]",
        "nested.sort()\nsorted(list(0..400_000))",
    ] {
        let (bytes, done) = peak(&mut engine, &format!("if true {{\n{script}\n}}"));
        assert!(bytes <= MOST, "{script}: {} KiB, {done:?}", bytes / 1024);
    }
    assert_eq!(engine.eval::<i64>("len(items)").unwrap(), 40_000, "the session is sound");
}

#[test]
fn values_of_the_embedding_program_are_held_to_the_limit() {
    let mut engine = builder().build().unwrap();
    engine.register_fn("ints", |n: usize| vec![7_i64; n]);
    engine.register_fn("lists", |n: usize| vec![vec![1_i64]; n]);
    engine.register_fn("text", |n: usize| "x".repeat(n));
    engine.register_fn("texts", |n: usize| vec!["ab".repeat(20); n]);
    engine.register_fn("map", |n: usize| {
        (0..n).map(|i| (i.to_string(), i as i64)).collect::<std::collections::BTreeMap<String, i64>>()
    });
    engine.register_fn("pairs", |n: usize| vec![(1_i64, "a".to_string()); n]);
    for (name, few, many) in [
        ("ints", 100_000, 2_000_000),
        ("lists", 10_000, 500_000),
        ("text", MIB, 2 * LIMIT),
        ("texts", 10_000, 500_000),
        ("map", 10_000, 500_000),
        ("pairs", 10_000, 500_000),
    ] {
        engine
            .eval::<()>(&format!("let x = {name}({few})\nx = none"))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let error = engine.eval::<()>(&format!("let x = {name}({many})")).expect_err(name);
        assert_eq!(error.code().id, "E1003", "{name}: {error}");
        let caught: String = engine.eval(&format!("try {{ {name}({many}) }} catch e {{ e.code }}")).unwrap();
        assert_eq!(caught, "E1003", "{name}");
    }
    let error = engine.set("big", vec![0_i64; 2_000_000]).expect_err("it is beyond the limit");
    assert_eq!(error.code().id, "E1003");
}

#[test]
fn lists_in_cycles_are_collected_before_they_hold_much() {
    let mut engine = Engine::builder().backend(Backend::Emu).build().unwrap();
    let script =
        "fn turn() {\n    let a = list(0..20_000)\n    a.append(a)\n    none\n}\nfor i in 0..1000 { turn() }";
    let (bytes, done) = peak(&mut engine, script);
    assert_eq!(done, Ok(()));
    assert!(bytes < 48 * MIB, "{} MiB", bytes / MIB);
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_the_system_is_an_error_of_the_script() {
    use std::process::Command;
    // The program itself, with its threads and its allocator, takes about 100 MiB of address space.
    for (limit, script) in [
        (1_200_000, "let a = []\nwhile true { a.append(1) }"),
        (1_200_000, "let a = []\nwhile true { a.append((1, 2, 3)) }"),
        (1_200_000, "let s = \"0123456789abcdef\"\nwhile true { s = s ++ s }"),
        (1_200_000, "let x = none\nwhile true { x = (x, 1) }"),
        (1_200_000, "let d = dict()\nlet i = 0\nwhile true { d[\"{i}\"] = i\n i += 1 }"),
        (1_200_000, "let a = list(0..1000)\nlet b = []\nwhile true { b.append(a.copy()) }"),
        (1_200_000, "let s = \"a,\" * 100_000_000\nlet a = s.split(\",\")"),
        (1_200_000, "let x = []\nwhile true { x.append(ones(1_000_000, device=cpu)) }"),
        (1_200_000, "let x = []\nwhile true { x.append(ones(1000, device=cpu).tolist()) }"),
    ] {
        let caught = format!("try {{\n{script}\n}} catch e {{ print(e.code) }}\nprint([1, 2, 3])");
        let out = Command::new("sh")
            .args(["-c", &format!("ulimit -v {limit}; exec \"$0\" \"$@\"")])
            .args([env!("CARGO_BIN_EXE_runnel"), "-e", &caught])
            .env("RUNNEL_BACKEND", "emu")
            .output()
            .unwrap();
        let (text, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{script}: {:?} {text} {told}", out.status);
        let code = text.lines().next().unwrap_or("");
        assert!(["E1003", "E0701", "E0704"].contains(&code), "{script}: {text} {told}");
        assert_eq!(text.lines().last(), Some("[1, 2, 3]"), "{script}");
    }
}

/// An interlaced image of zeros, which must be unpacked as a whole.
fn interlaced(side: usize) -> Vec<u8> {
    use std::io::Write;
    // First column and row, and the steps between columns and rows, of each pass.
    let passes =
        [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)];
    let mut pixels = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    for (column, row, across, down) in passes {
        let (wide, high) = ((side - column).div_ceil(across), (side - row).div_ceil(down));
        // Each row has the number of its filter before it.
        pixels.write_all(&vec![0; high * (wide + 1)]).unwrap();
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let size = (side as u32).to_be_bytes();
    let head = [&size[..], &size, &[8, 0, 0, 0, 1]].concat();
    for (name, data) in [(b"IHDR", head), (b"IDAT", pixels.finish().unwrap()), (b"IEND", Vec::new())] {
        let mut sum = flate2::Crc::new();
        sum.update(&[name.as_slice(), &data].concat());
        file.extend((data.len() as u32).to_be_bytes());
        file.extend([name.as_slice(), &data, &sum.sum().to_be_bytes()].concat());
    }
    file
}

/// Small files whose lists of names, rows or pixels are large in memory.
fn wide_files() -> Vec<(&'static str, Vec<u8>)> {
    let header = |entries: &mut dyn Iterator<Item = String>, around: [&str; 2]| {
        let text = format!("{}{}{}", around[0], entries.collect::<Vec<_>>().join(","), around[1]);
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    };
    let notes = header(&mut (0..100_000).map(|i| format!("\"{i}\":\"\"")), ["{\"__metadata__\":{", "}}"]);
    let empty = |i| format!("\"{i}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    let parts = header(&mut (0..50_000).map(empty), ["{", "}"]);
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for i in 0..20_000 {
        archive.start_file(format!("{i}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
    }
    let names: Vec<String> = (0..250_000).map(|i| format!("{i}n")).collect();
    vec![
        ("notes.safetensors", notes),
        ("parts.safetensors", parts),
        ("many.npz", archive.finish().unwrap().into_inner()),
        ("names.csv", format!("{}\n", names.join(",")).into_bytes()),
        ("texts.csv", format!("text\n{}", "x\n".repeat(300_000)).into_bytes()),
        ("numbers.csv", format!("number\n{}", "1\n".repeat(2_000_000)).into_bytes()),
        ("image.png", interlaced(5000)),
    ]
}

#[test]
fn reading_files_takes_no_more_than_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let files = wide_files();
    let roomy = || Engine::builder().backend(Backend::Emu).devices(1).build().unwrap();
    for (name, bytes) in &files {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        for call in ["load(PATH)", "load(PATH, device=cpu)", "files.names(PATH)", "files.metadata(PATH)"] {
            let call = call.replace("PATH", &format!("{path:?}"));
            let mut engine = builder()
                .files(runnel::FileAccess::Folders(vec![folder.path().to_path_buf()]))
                .build()
                .unwrap();
            let (bytes, done) = peak(&mut engine, &call);
            assert!(bytes < MOST, "{call} takes {} MiB: {done:?}", bytes / MIB);
            let few = done == Ok(()) || done == Err("E0911".into()) || done == Err("E0918".into());
            assert!(few || done == Err("E1003".into()) || done == Err("E0704".into()), "{call}: {done:?}");
            assert!(!call.starts_with("load") || done != Ok(()), "{call} fits");
        }
        // Without a limit they are read, except the archive, whose entries are empty.
        let read = roomy().eval::<()>(&format!("load({path:?})\nnone"));
        assert!(read.is_ok() || *name == "many.npz", "{name}: {read:?}");
    }
}

/// The initial stack of the process, whose limits the system sets.
#[cfg(target_os = "linux")]
#[test]
fn a_stack_that_is_too_small_for_a_script_is_an_error() {
    use std::process::Command;
    let run = |kib: u32| {
        let limited = format!("ulimit -s {kib}; exec \"$0\" \"$@\"");
        let out = Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_runnel"), "-e", "print(1)"])
            .env("RUNNEL_BACKEND", "emu")
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    };
    let (status, told) = run(310);
    let left = told.split_once("this thread has ").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
    assert_eq!(status, Some(1), "{told}");
    assert!(left.is_some_and(|left: u32| (150..310).contains(&left)), "{told}");
    assert_eq!(run(4096), (Some(0), "1\n".into()));
    // Above the limit from which the C library is called, if the system allows it.
    let (status, told) = run(128 << 10);
    assert!(told == "1\n" || told.contains("ulimit"), "{status:?} {told}");
}

/// Values that hold little script data but memory elsewhere: views, records of gradients, errors, objects.
const BESIDE: &[(&str, &str)] = &[
    ("views", "let (x, l) = (zeros(3000), [])\nfor i in 0..400_000 { l.append(x.reshape(3, 1000)) }"),
    ("records", "let x = ones(3, requires_grad=true)\nlet y = x\nfor i in 0..100_000 { y = y * x }"),
    ("hooks", "let x = ones(3, requires_grad=true)\nfor i in 0..400_000 { x.register_hook(|g| g) }"),
    ("errors", "let l = []\nfor i in 0..100_000 { l.append(try { [][0] } catch e { e }) }"),
    (
        "long errors",
        "let l = []\nfor i in 0..4_000 { l.append(try { throw \"a{i}\" * 10_000 } catch e { e }) }",
    ),
    ("functions", "let l = []\nfor i in 0..400_000 { l.append(grad(|x| x)) }"),
    (
        "captured launches",
        "let g = Graph()\nlet x = zeros(4)\nlet y = zeros(4)\nwith graph(g) { for i in 0..400_000 { x.copy_(y.sort().values) } }",
    ),
    (
        "captured parts",
        "let g = Graph()\nlet x = zeros(60_000, 2)\nwith graph(g) { for i in 0..60_000 { x[i, 0] = i } }",
    ),
    (
        "graphs",
        "let l = []\nlet (x, p) = (zeros(4), MemPool())\nfor i in 0..100_000 { let g = Graph()\n with graph(g, pool=p) { x += 1 }\n l.append(g) }",
    ),
    ("nested numbers", "let a = [1.0]\nfor i in 0..22 { a = [a, a] }\ntensor(a)"),
    ("leaves", "let a = [1]\nfor i in 0..60 { a = [a, a] }\ntree_leaves(a)"),
];

#[test]
fn memory_beside_values_counts_towards_the_limit() {
    for (what, script) in BESIDE {
        let mut engine = Engine::builder().backend(Backend::Emu).host_memory(32 << 20).build().unwrap();
        // What a failed round held is free for the next one.
        for _ in 0..2 {
            let error = engine.eval::<()>(&format!("(|| {{ {script} }})()")).expect_err(what);
            assert_eq!(error.code().id, "E1003", "{what}: {error}");
        }
        let after = engine.eval::<i64>("len(map(|i| [i], 0..50_000))");
        assert_eq!(after.unwrap_or_else(|error| panic!("after {what}: {error}")), 50_000);
    }
}

/// A tensor that the embedding program drops on another thread no longer counts.
#[test]
fn tensors_that_end_on_other_threads_do_not_count() {
    let mut engine = Engine::builder().backend(Backend::Emu).host_memory(16 << 20).build().unwrap();
    engine.eval::<()>("let x = zeros(3000)").unwrap();
    for _ in 0..150 {
        let views = engine.eval::<Vec<runnel::Tensor>>("map(|i| x.reshape(3, 1000), 0..1000)").unwrap();
        std::thread::spawn(move || drop(views)).join().unwrap();
    }
}
