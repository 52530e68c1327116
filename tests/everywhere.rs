//! Limits and interrupts take effect quickly in every call: every native function, method, attribute, operation, operator
//! and function of a module, as listed in the tables, with large arguments.
//!
//! A call that finishes within the limit shows nothing. Quickly means within `RUNNEL_LIMIT_MS`
//! milliseconds, by default 5,000, because debug builds on busy machines are slow. `docs/reliability.md` has
//! the figure of a release build. With `RUNNEL_EVERYWHERE=all` each call is made under each limit with all
//! arguments; without it, one call of every fourth group is made under each limit. With `RUNNEL_ONLY=text`, only
//! calls that contain the text.

#![cfg(all(feature = "cli", feature = "cuda", feature = "dist", feature = "files", feature = "plot"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::Backend;
use runnel::base::{Error, ErrorKind};
use runnel::device::{Config, Machine};
use runnel::library::{self, MODULES, NATIVES, attributes, device};
use runnel::ops::signature::{Default as Absent, Kind, Param, Signature};
use runnel::ops::table;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{FileAccess, Mode, Vm};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The large values: names, and code that makes them.
const VALUES: &[(&str, &str)] = &[
    ("numbers", "list(0..300000)"),
    ("texts", "map(str, 0..60000)"),
    ("text", "\"some Words, éa \" * 300000"),
    ("table", "dict(enumerate(texts))"),
    ("fields", "(first = numbers, second = numbers, third = text)"),
    ("pairs", "tuple(enumerate(texts))"),
    ("span", "0..400000000"),
    ("shared", "(|| { let all = [1, 2]\n for i in 0..40 { all = [all, all] }\n all })()"),
    ("other", "(|| { let all = [1, 2]\n for i in 0..40 { all = [all, all] }\n all })()"),
    ("deep", "(|| { let all = []\n for i in 0..200000 { all = [all] }\n all })()"),
    ("vector", "ones(1).expand(SIZE)"),
    ("host", "ones(1, device=cpu).expand(SIZE)"),
    ("matrix", "ones(1, 1).expand(SIDE, SIDE)"),
    ("square", "ones(1, 1, device=cpu).expand(SIDE, SIDE)"),
    ("places", "zeros(1, dtype=i64).expand(SIZE)"),
    ("flags", "ones(1, dtype=bool).expand(SIZE)"),
    ("complexes", "complex(ones(1, device=cpu), ones(1, device=cpu)).expand(SIZE)"),
];

/// Scales the elements of large tensors and the rows of matrices, which are smaller unless all calls are made.
fn sized(text: &str) -> String {
    let (size, side) = if is_whole() { ("50000000", "4000") } else { ("3000000", "1000") };
    text.replace("SIZE", size).replace("SIDE", side)
}

/// Whether each call is made with all arguments.
fn is_whole() -> bool {
    std::env::var("RUNNEL_EVERYWHERE").is_ok_and(|all| all == "all")
}

/// Arguments for parameters of any kind, and for tensors.
const ANY: &[&str] =
    &["numbers", "texts", "text", "table", "fields", "pairs", "span", "shared", "deep", "vector", "host"];
const TENSORS: &[&str] = &["vector", "host", "matrix", "square", "places", "flags", "complexes"];

/// Natives that wait on purpose, or end the script.
const ON_PURPOSE: &[&str] = &["sleep", "exit", "input"];

/// A value of each type that has methods.
fn receiver(of: &str) -> &'static [&'static str] {
    match of {
        "list" => &["numbers", "texts", "shared", "deep"],
        "tuple" => &["pairs"],
        "record" => &["fields"],
        "dict" => &["table"],
        "str" => &["text"],
        "tensor" => TENSORS,
        "device" => &["cuda"],
        "dtype" => &["f32"],
        "stream" => &["cuda.current_stream()"],
        "event" => &["Event()"],
        "generator" => &["Generator()"],
        "graph" => &["Graph()"],
        "mem_pool" => &["MemPool()"],
        "graph_pool" => &["cuda.graph_pool_handle()"],
        "plan_cache" => &["cuda.cufft_plan_cache()"],
        "error" => &["(try { [][0] } catch e { e })"],
        "range" => &["span"],
        "hook" => &["ones(2, requires_grad=true).register_hook(|g| g)"],
        "gradient_function" => &[
            "grad(|x| (x * x).sum())",
            "jacobian(|x| x * x)",
            "hessian(|x| (x * x).sum())",
            "vjp(|x| x * x, ones(2))[1]",
        ],
        // Objects that only a longer script makes.
        "graphed" | "profile" | "progress" => &[],
        other => panic!("add a value of the type `{other}` here"),
    }
}

/// An argument for a parameter; `any` and `tensor` are used for those kinds.
fn argument(param: &Param, any: &str, tensor: &str) -> String {
    match param.kind {
        Kind::Tensor | Kind::TensorOrNumber => tensor.into(),
        Kind::Number | Kind::Int => "3".into(),
        Kind::Float => "0.5".into(),
        Kind::Bool => "true".into(),
        Kind::Str => if param.name == "path" || param.name == "name" { "\"name\"" } else { "text" }.into(),
        Kind::Shape | Kind::ShapeOrDtype => sized("SIZE"),
        Kind::Dims => "0".into(),
        Kind::Tensors => format!("[{tensor}, {tensor}]"),
        Kind::Dtype => "f64".into(),
        Kind::Device => "cpu".into(),
        Kind::Stream => "cuda.current_stream()".into(),
        Kind::Event => "Event()".into(),
        Kind::Generator => "none".into(),
        Kind::Fn => "|x| x".into(),
        Kind::Data | Kind::Any => any.into(),
    }
}

/// The arguments of a call: those that must be given, and the first of the others.
fn arguments(params: &[Param], any: &str, tensor: &str) -> String {
    let given = params.iter().enumerate().filter(|(i, p)| match p.default {
        Absent::Required => true,
        _ => p.rest || (*i == 0 && !p.named_only),
    });
    let all: Vec<String> = given
        .map(|(_, p)| match p.named_only {
            true => format!("{}={}", p.name, argument(p, any, tensor)),
            false => argument(p, any, tensor),
        })
        .collect();
    all.join(", ")
}

/// All calls of a native, with each value for `any` and for tensors.
fn calls(out: &mut Vec<Vec<String>>, name: &str, receiver_of: &str, signature: &Signature) {
    if ON_PURPOSE.contains(&name) {
        return;
    }
    let mut all = BTreeSet::new();
    for any in ANY {
        for tensor in TENSORS {
            match receiver_of {
                "" => {
                    all.insert(format!("{name}({})", arguments(signature.params, any, tensor)));
                }
                of => {
                    let given = arguments(signature.params.get(1..).unwrap_or(&[]), any, tensor);
                    all.extend(receiver(of).iter().map(|value| format!("{value}.{name}({given})")));
                }
            }
        }
    }
    out.push(all.into_iter().collect());
}

/// Every call, grouped by function.
fn everything() -> Vec<Vec<String>> {
    let mut out = Vec::new();
    for (_, natives) in NATIVES.iter().copied().chain(device::tables()) {
        natives.iter().for_each(|def| calls(&mut out, def.name, def.receiver, &def.signature));
    }
    for op in table::all() {
        let signature = op.signature();
        if op.form.function {
            calls(&mut out, op.name, "", &signature);
        } else {
            calls(&mut out, op.name, "tensor", &signature);
        }
        if op.form.in_place {
            calls(&mut out, &format!("{}_", op.name), "tensor", &signature);
        }
    }
    let tables = [library::tensor::ATTRIBUTES, attributes::TABLE];
    let device_tables = device::attribute_tables().map(|(_, table)| table);
    for def in tables.into_iter().chain(device_tables).flatten() {
        out.push(receiver(def.receiver).iter().map(|value| format!("{value}.{}", def.name)).collect());
    }
    for operator in runnel::vm::arith::BINARY {
        let symbol = runnel::vm::arith::symbol(operator);
        let mut all: Vec<String> =
            ANY.iter().chain(TENSORS).map(|value| format!("{value} {symbol} {value}")).collect();
        let beside = ["3", "0.5", "[0.5]", "\"Wordz\"", "none"];
        all.extend(beside.iter().flat_map(|b| ANY.iter().map(move |a| format!("{a} {symbol} {b}"))));
        all.extend(beside.iter().flat_map(|b| ANY.iter().map(move |a| format!("{b} {symbol} {a}"))));
        all.push(format!("shared {symbol} other"));
        all.push(format!("text {symbol} (text ++ \"x\")"));
        out.push(all);
    }
    for module in MODULES {
        for function in module.functions() {
            let count = function.signature.matches(',').count() + 1;
            let required =
                function.signature.trim_matches(['(', ')']).split(',').filter(|p| !p.contains('=')).count();
            let of = |value: &str| {
                let given = vec![value; required.min(count)].join(", ");
                format!("{}.{}({given})", module.name, function.name)
            };
            out.push(TENSORS.iter().chain(&["numbers", "texts"]).map(|value| of(value)).collect());
        }
    }
    // Language constructs with large values.
    let forms: &[&[&str]] = &[
        &["\"{numbers}\"", "\"{text}{texts}\"", "\"{shared}\"", "\"{text:>1000}\"", "\"{table}\""],
        &[
            "[..numbers, ..texts]",
            "[..span]",
            "[..text]",
            "numbers[1..]",
            "numbers[.. by 2]",
            "text[.. by -1]",
        ],
        &["text[1..-1]", "pairs[..-1]", "vector[.. by 2]", "host[.. by 3]", "span[.. by 2]"],
        &["(|| { let [a, ..rest] = numbers\n rest })()", "(|| { let (a, ..rest) = pairs\n rest })()"],
        &["(|| { for x in vector { } })()", "(|| { for x in text { } })()", "(|| { for x in table { } })()"],
        &[
            "(|| { for (i, x) in enumerate(span) { } })()",
            "(|| { while true { } })()",
            "(|| { for x in span { } })()",
        ],
        &["(|| { let copy = numbers.copy()\n copy[5..10] = numbers\n copy[.. by 2] = span })()"],
        &["match numbers { [] => 1, [a, ..b] => 2 }", "match shared { other => 1 }"],
        &["print(numbers, text, shared)", "(|x, *rest| rest)(..numbers)", "(..fields, ..fields)"],
        &[
            "(|| { let x = vector.to(f32).requires_grad_()\n (x * x).sum().backward() })()",
            "(|| { let x = ones(2, requires_grad=true)\n let y = x\n for i in span { y = y * x }\n y })()",
            "(|| { let x = ones(2, requires_grad=true)\n let y = x\n for i in 0..20000 { y = y * x }\n y.sum().backward() })()",
            "(|| { let x = ones(1, device=cpu, requires_grad=true)\n while true { (x * x).backward() } })()",
            "jacobian(|x| x * x)(host)",
            "hessian(|x| (x * x).sum())(square)",
            "value_and_grad(|all| sum(map(|x| (x * x).sum(), all)))(map(|x| ones(2), 0..20000))",
        ],
        &["map(|x| [x], span)", "(|| { let all = map(|x| [x], numbers)\n all = none })()"],
        &[
            "read(folder ++ \"/large.txt\")",
            "write(folder ++ \"/new.txt\", text)",
            "load(folder ++ \"/large.csv\")",
        ],
        &[
            "load(folder ++ \"/large.npz\")",
            "load(folder ++ \"/large.png\")",
            "load(folder ++ \"/large.npy\")",
        ],
        &[
            "save(folder ++ \"/new.csv\", rows)",
            "save(folder ++ \"/new.npz\", rows)",
            "save(folder ++ \"/new.png\", [[[1]]])",
        ],
        &[
            "shared on cpu",
            "numbers on cuda",
            "f16[numbers]",
            "if vector { 1 }",
            "-numbers",
            "~places",
            "not text",
        ],
    ];
    out.extend(forms.iter().map(|forms| forms.iter().map(|form| form.to_string()).collect()));
    out
}

/// A machine with the large values.
struct Lab {
    vm: Vm,
    number: usize,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let config = Config {
            backend: Backend::Emu,
            devices: Some(2),
            device_memory: Some(2 << 30),
            ..Config::default()
        };
        let mut vm = library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
        let folder = tempfile::tempdir().unwrap();
        vm.limits.files = FileAccess::Folders(vec![folder.path().to_path_buf()]);
        let mut lab = Lab { vm, number: 0, folder };
        lab.eval("import nn\nimport data\nimport parallel").unwrap();
        lab.values();
        let path = lab.folder.path().display().to_string();
        lab.eval(&format!("let folder = \"{path}\"\nlet rows = rand(100000, 4, device=cpu)")).unwrap();
        for ending in ["csv", "npy", "npz", "safetensors", "raw", "png"] {
            let value = match ending {
                "png" => "(rand(3, 500, 500, device=cpu) * 255).to(u8)",
                "npz" | "safetensors" => "(a = rows, b = rows)",
                _ => "rows",
            };
            lab.eval(&format!("save(folder ++ \"/large.{ending}\", {value})")).unwrap();
        }
        lab.eval("write(folder ++ \"/large.txt\", text)").unwrap();
        lab
    }

    fn eval(&mut self, text: &str) -> Result<(), Error> {
        self.number += 1;
        self.vm.eval(&format!("<{}>", self.number), text, Mode::Input).map(drop)
    }

    /// Creates the values, or recreates those that a call has changed.
    fn values(&mut self) {
        for (name, make) in VALUES {
            self.eval(&format!("let {name} = {}", sized(make))).unwrap();
        }
    }

    /// True while the machine works normally and holds the values.
    fn is_sound(&mut self) -> bool {
        let check = "assert(sum(map(|x| x + 1, [1, 2])) == 5 and tensor([1, 2, 3]).sum().item() == 6)\n\
                     assert(ones(2, device=cpu).sum().item() == 2)\n\
                     len(numbers) == 300000 and len(table) == 60000 and len(texts) == 60000";
        match self.vm.eval("<check>", check, Mode::Input) {
            Ok(value) => matches!(value, runnel::vm::Value::Bool(true)),
            Err(error) => panic!("the machine is not sound: {error}"),
        }
    }
}

/// A bound that a call with large arguments must respect.
#[derive(Clone, Copy, PartialEq)]
enum Bound {
    Time,
    Fuel,
    Memory,
    Interrupt,
    /// An interrupt while the call is repeated endlessly: uncounted work of single calls adds up.
    Repeated,
}

fn allowed() -> Duration {
    let set = std::env::var("RUNNEL_LIMIT_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(set.unwrap_or(5000))
}

const LIMIT: Duration = Duration::from_millis(10);

/// A thread that interrupts some time after it is notified, and says when it did.
struct Watcher {
    go: mpsc::Sender<()>,
    fired: mpsc::Receiver<Instant>,
    flag: Arc<AtomicBool>,
}

impl Watcher {
    fn new(flag: Arc<AtomicBool>) -> Watcher {
        let (go, begin) = mpsc::channel::<()>();
        let (done, fired) = mpsc::channel();
        let watched = Arc::clone(&flag);
        std::thread::spawn(move || {
            for () in begin {
                std::thread::sleep(LIMIT);
                let at = Instant::now();
                watched.store(true, Ordering::Relaxed);
                done.send(at).unwrap();
            }
        });
        Watcher { go, fired, flag }
    }
}

/// Makes a call under a bound, and returns how much later than the bound it ended.
fn made(lab: &mut Lab, watcher: &Watcher, bound: Bound, call: &str) -> Duration {
    let default = runnel::vm::Limits::default();
    lab.vm.limits.time = (bound == Bound::Time).then_some(LIMIT);
    lab.vm.limits.fuel = (bound == Bound::Fuel).then_some(5_000);
    // A call that allocates without end must fail, not the machine.
    lab.vm.limits.host_bytes = 4 << 30;
    if bound == Bound::Memory {
        lab.vm.limits.host_bytes = 256 << 20;
        lab.vm.limits.time = Some(20 * LIMIT);
    }
    let interrupted = matches!(bound, Bound::Interrupt | Bound::Repeated);
    if interrupted {
        watcher.go.send(()).unwrap();
    }
    let start = Instant::now();
    let result = lab.eval(&match bound {
        Bound::Repeated => format!("(|| {{ while true {{ {call} }} }})()"),
        _ => format!("let result = {call}\ncuda.synchronize()"),
    });
    let end = Instant::now();
    let start = match bound {
        Bound::Interrupt | Bound::Repeated => watcher.fired.recv().unwrap(),
        Bound::Time => start + LIMIT,
        Bound::Memory => start + 20 * LIMIT,
        Bound::Fuel => start,
    };
    let files = FileAccess::Folders(vec![lab.folder.path().to_path_buf()]);
    lab.vm.limits = runnel::vm::Limits { files, ..default };
    if interrupted {
        // The interrupt may have come too late.
        watcher.flag.store(false, Ordering::Relaxed);
    }
    if let Err(error) = &result {
        assert!(error.code().id != "E0963", "{call}: {error}");
        let ends = matches!(error.kind(), ErrorKind::Limit | ErrorKind::Interrupted);
        // The codes of time, fuel and memory limits.
        let own = ["E1002", "E1008", "E1003", "E0704", "E1004", "E0803", "E1005"];
        assert!(!ends || own.contains(&error.code().id), "{call}: {error}");
    }
    lab.eval("let result = none").unwrap();
    end.saturating_duration_since(start)
}

/// Makes every call under a bound, and lists those that it stopped too late.
fn hold(bound: Bound) {
    /// Other programs of the machine delay a call now and then: a late one is repeated, and its least delay counts.
    const ATTEMPTS: usize = 5;
    let all = is_whole();
    let mut lab = Lab::new();
    let mut took: Vec<(Duration, String)> = Vec::new();
    let watcher = Watcher::new(lab.vm.interrupt_flag());
    let mut repeated = 0;
    let only = std::env::var("RUNNEL_ONLY").unwrap_or_default();
    for (group, calls) in everything().into_iter().enumerate() {
        // Without `all`: one call of every fourth group, different groups for each bound.
        if !all && group % 4 != bound as usize % 4 {
            continue;
        }
        let step = if all { 1 } else { calls.len().max(1) };
        let first = if all { 0 } else { (group * 7 + bound as usize) % step };
        for call in calls.iter().skip(first).step_by(step) {
            if !only.is_empty() && !call.contains(&only) {
                continue;
            }
            let mut late = made(&mut lab, &watcher, bound, call);
            repeated += usize::from(late > allowed());
            for _ in 1..ATTEMPTS {
                if late <= allowed() {
                    break;
                }
                late = late.min(made(&mut lab, &watcher, bound, call));
            }
            if late > allowed() / 4 {
                println!("{:>7.1} ms  {call}", late.as_secs_f64() * 1e3);
            }
            took.push((late, call.clone()));
        }
        if group % 16 == 0 && !lab.is_sound() {
            lab.values();
        }
    }
    assert!(
        lab.is_sound() || {
            lab.values();
            lab.is_sound()
        }
    );
    took.sort();
    for (time, call) in took.iter().rev().take(12) {
        println!("{:>7.1} ms  {call}", time.as_secs_f64() * 1e3);
    }
    println!("{} calls, {repeated} of them repeated", took.len());
    let late: Vec<_> = took.iter().filter(|(time, _)| *time > allowed()).collect();
    assert!(late.is_empty(), "{late:#?}");
}

#[test]
fn the_limit_on_time_holds_for_every_call() {
    hold(Bound::Time);
}

#[test]
fn the_limit_on_fuel_holds_for_every_call() {
    hold(Bound::Fuel);
}

#[test]
fn the_limit_on_host_memory_holds_for_every_call() {
    hold(Bound::Memory);
}

#[test]
fn an_interrupt_ends_every_call() {
    hold(Bound::Interrupt);
}

#[test]
fn an_interrupt_ends_whatever_is_repeated() {
    hold(Bound::Repeated);
}

/// Counts the bytes that a thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    let _ = ALLOCATED.try_with(|sum| sum.set(sum.get() + bytes as u64));
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: guaranteed by the caller, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Pages that nothing has written cost nothing.
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Filling memory is work and must be counted, because limits and interrupts are checked at the counter.
#[test]
fn what_is_allocated_is_counted() {
    /// Bytes that a call may allocate without counting, and beside each unit that it counts.
    const FEW: u64 = 1 << 20;
    const PER_UNIT: u64 = 1024;
    let mut lab = Lab::new();
    let mut uncounted = Vec::new();
    for (group, calls) in everything().into_iter().enumerate() {
        let step = if is_whole() { 1 } else { calls.len().max(1) };
        for call in calls.iter().skip((group * 7) % step).step_by(step) {
            lab.vm.limits.fuel = Some(u64::MAX / 2);
            lab.vm.limits.host_bytes = 1 << 30;
            lab.vm.limits.time = Some(Duration::from_millis(50));
            let before = ALLOCATED.get();
            let _ = lab.eval(&format!("let result = {call}"));
            let bytes = ALLOCATED.get() - before;
            let _ = lab.vm.charge(0);
            let units = lab.vm.rt.quota.fuel.map_or(0, |left| u64::MAX / 2 - left);
            // A list that grows moves once, for many elements that are counted one by one.
            let grows = call.contains(".append(");
            if !grows && bytes > PER_UNIT.saturating_mul(units).saturating_add(FEW) {
                uncounted.push(format!("{bytes} bytes, {units} units: {call}"));
            }
            let files = FileAccess::Folders(vec![lab.folder.path().to_path_buf()]);
            lab.vm.limits = runnel::vm::Limits { files, ..runnel::vm::Limits::default() };
            lab.eval("let result = none").unwrap();
        }
        if group % 16 == 0 && !lab.is_sound() {
            lab.values();
        }
    }
    assert!(uncounted.is_empty(), "{uncounted:#?}");
}
