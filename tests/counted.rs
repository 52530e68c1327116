//! What values take is counted: for every kind of value that a native function, operation, attribute or function of a
//! module returns, the bytes that count towards the limit on host memory are at least half of those that many such
//! values take. The calls are those of the examples in the reference.

#![cfg(all(feature = "cli", feature = "cuda", feature = "dist", feature = "files", feature = "plot"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::library::{self, docs};
use runnel::plan::{Runtime, Settings};
use runnel::syntax::ast::{Arg, Expr, ExprKind, Field, Item, StmtKind};
use runnel::syntax::parse;
use runnel::vm::{Mode, Value, Vm};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

/// The system's allocator; counts the bytes that it takes for live blocks of all threads.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

/// Held by each test, because all threads are counted together.
static ONE: Mutex<()> = Mutex::new(());

/// A block takes its size and a header, in steps of 16 bytes.
fn block(size: usize) -> isize {
    ((size + 8 + 15) & !15).max(32) as isize
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(block(layout.size()), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(block(layout.size()), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Adds the parts of an expression that may return a value, outermost first.
fn parts<'e>(expr: &'e Expr, out: &mut Vec<&'e Expr>) {
    use ExprKind as E;
    match &expr.kind {
        E::Paren(inner) => parts(inner, out),
        E::Binary(_, a, b) | E::And(a, b) | E::Or(a, b) => {
            out.push(expr);
            parts(a, out);
            parts(b, out);
        }
        E::Unary(_, a) => parts(a, out),
        E::Call(f, args) => {
            out.push(expr);
            if let E::Member(receiver, _) = &f.kind {
                parts(receiver, out);
            }
            for arg in args {
                let (Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e)) = arg;
                parts(e, out);
            }
        }
        E::Member(a, _) | E::Index(a, _) | E::On(a, _) => {
            out.push(expr);
            parts(a, out);
        }
        E::List(items) | E::Tuple(items) | E::Typed(_, items) => {
            out.push(expr);
            for item in items {
                let (Item::One(e) | Item::Spread(e)) = item;
                parts(e, out);
            }
        }
        E::Record(fields) => {
            out.push(expr);
            for field in fields {
                let (Field::Named(_, e) | Field::Spread(e)) = field;
                parts(e, out);
            }
        }
        E::Range(..) | E::Lambda(_) | E::Str(_) | E::Pipe(..) | E::With(..) | E::Try(..) => out.push(expr),
        _ => {}
    }
}

/// The expressions of an example, each with the statements before its own.
fn expressions(example: &str) -> Vec<(String, String)> {
    let parsed = parse(0, example);
    let mut out = Vec::new();
    for stmt in &parsed.block.body {
        let expr = match &stmt.kind {
            StmtKind::Let(_, expr) | StmtKind::Expr(expr) | StmtKind::Discard(expr) => expr,
            _ => continue,
        };
        let mut found = Vec::new();
        parts(expr, &mut found);
        let before = &example[..stmt.span.lo as usize];
        for part in found {
            let text = &example[part.span.lo as usize..part.span.hi as usize];
            if !text.starts_with("assert") {
                out.push((before.trim().to_string(), text.to_string()));
            }
        }
    }
    out
}

fn machine() -> Vm {
    let config =
        Config { backend: Backend::Emu, devices: Some(2), device_memory: Some(1 << 30), ..Config::default() };
    let mut vm = library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
    vm.eval("<imports>", "import nn\nimport data\nimport parallel", Mode::Input).unwrap();
    vm
}

/// What values of one expression take, per value: the bytes that are counted, and those that are allocated.
struct Taken {
    counted: isize,
    taken: isize,
}

/// Makes many values of one expression, after a round that fills caches.
fn measured(vm: &mut Vm, before: &str, text: &str, count: usize) -> Option<Taken> {
    let script = format!(
        "(|| {{\n{before}\nlet kept = list(map(|i| none, 0..{count}))\n\
         for i in 0..{count} {{ kept[i] = {text} }}\ncuda.synchronize()\nkept }})()"
    );
    let mut last = (0, 0);
    for _ in 0..2 {
        let start = (LIVE.load(Ordering::Relaxed), vm.host_bytes() as isize);
        let value = vm.eval("<made>", &script, Mode::Input).ok()?;
        last = (vm.host_bytes() as isize - start.1, LIVE.load(Ordering::Relaxed) - start.0);
        vm.let_go(value);
    }
    let each = |bytes| bytes / count as isize;
    Some(Taken { counted: each(last.0), taken: each(last.1) })
}

/// The kind of value of an expression: its type, and those of the parts of a tuple or record.
fn kind(value: &Value) -> String {
    let parts: Vec<String> = match value {
        Value::Tuple(tuple) => tuple.items().iter().map(kind).collect(),
        Value::Record(record) => record.values().iter().map(kind).collect(),
        _ => Vec::new(),
    };
    format!("{} {}", value.type_name(), parts.join(" "))
}

/// The race checker records accesses of parts of a tensor by several streams.
#[test]
fn records_of_accesses_are_counted() {
    let made = [
        "(|| { let x = zeros(64, 4)\n for i in 0..64 { x[i] = i }\n x })()",
        "(|| { let x = zeros(64, 4)\n for i in 0..4 { x[.., i] = i }\n x })()",
        "(|| { let x = zeros(64, 4)\n s.wait_stream(cuda.current_stream())\n \
         with stream(s) { for i in 0..64 { x[i] = i } }\n cuda.current_stream().wait_stream(s)\n x[0] = 2\n x })()",
        "(|| { let x = zeros(64, 64)\n s.wait_stream(cuda.current_stream())\n \
         with stream(s) { for i in 0..64 { x[.., i] = i } }\n cuda.current_stream().wait_stream(s)\n x[0] = 2\n x })()",
    ];
    let _one = ONE.lock();
    let mut vm = machine();
    vm.eval("<stream>", "let s = Stream()", Mode::Input).unwrap();
    for text in made {
        let Taken { counted, taken } = measured(&mut vm, "", text, 128).unwrap();
        assert!(taken <= 2 * counted, "{taken} bytes, {counted} are counted: {text}");
    }
}

#[test]
fn what_values_take_is_counted() {
    /// Bytes beside a value that need not be counted.
    const FEW: isize = 64;
    /// Calls whose values take memory of a device, or grow tables of the session: their memory is limited elsewhere.
    const ELSEWHERE: &[&str] =
        &["init_process_group", "cuda.graphed", "graph(", "caching_allocator_alloc", "MemPool"];
    let _one = ONE.lock();
    let mut vm = machine();
    let (mut seen, mut kinds, mut wrong) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for entry in docs::entries() {
        for (before, text) in expressions(&entry.example) {
            let elsewhere = ELSEWHERE.iter().any(|name| before.contains(name) || text.contains(name));
            if elsewhere || !seen.insert((before.clone(), text.clone())) {
                continue;
            }
            vm.limits.time = Some(Duration::from_secs(20));
            let Ok(value) = vm.eval("<one>", &format!("(|| {{\n{before}\n{text}\n}})()"), Mode::Input) else {
                continue;
            };
            // One value of each kind per page.
            let new = kinds.insert((entry.page.clone(), kind(&value)));
            let plain = matches!(value, Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_));
            vm.let_go(value);
            if plain || !new {
                continue;
            }
            // Tables that grow now and then weigh less beside more values.
            let mut uncounted = |count| {
                measured(&mut vm, &before, &text, count).filter(|found| found.taken > 2 * found.counted + FEW)
            };
            if let Some(Taken { counted, taken }) =
                [32, 512, 4096].into_iter().map_while(&mut uncounted).nth(2)
            {
                wrong
                    .push(format!("{taken} bytes, {counted} are counted: {before}; {text} ({})", entry.name));
            }
        }
    }
    let types: BTreeSet<&str> = kinds.iter().filter_map(|(_, kind)| kind.split(' ').next()).collect();
    assert!(kinds.len() > 150 && types.len() > 15, "{} {types:?}", kinds.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
