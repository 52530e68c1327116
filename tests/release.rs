//! What a script or a native holds when it is told to end is released later, in parts: an interrupt and a limit do not
//! wait until large values are freed.
//!
//! The tests count the blocks of memory that the thread frees, and how many more than it allocates meanwhile.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/long.rs"]
mod long;

use long::few_or_many;
use runnel::base::ErrorKind;
use runnel::engine::Builder;
use runnel::{Backend, Engine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the blocks that a thread frees.
struct Counting;

thread_local! {
    static FREED: Cell<usize> = const { Cell::new(0) };
    /// Blocks freed since the last moment from which as many were allocated, and the largest such number: what a
    /// script allocates and frees as it runs does not count.
    static AT_ONCE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// What was freed before the request to end.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = AT_ONCE.try_with(|run| run.set((run.get().0.saturating_sub(1), run.get().1)));
        // SAFETY: guaranteed by the caller, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _ = FREED.try_with(|count| count.set(count.get() + 1));
        let _ = AT_ONCE.try_with(|run| run.set((run.get().0 + 1, run.get().1.max(run.get().0 + 1))));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Elements of the values; each is at least one block.
fn elements() -> usize {
    few_or_many(60_000, 200_000)
}
/// Blocks that may be freed after the request.
const FEW: usize = 20_000;

/// Code that makes large values, and code that is told to end by `stop()` and releases them.
const RELEASES: &[(&str, &str)] = &[
    ("let a = map(|i| [i], 0..N)", "stop()\n a = none"),
    ("let a = map(|i| [i], 0..N)", "stop()\n a.clear()"),
    ("let a = map(|i| [i], 0..N)", "stop()\n a[..] = []"),
    ("let a = map(|i| [i], 0..N)", "stop()\n a[1..-1] = [1]"),
    ("let a = tuple(map(|i| [i], 0..N))", "stop()\n a = none"),
    ("let a = (x = 1, y = map(|i| [i], 0..N))", "stop()\n a = none"),
    ("let a = map(|i| \"a text of more than twenty-four bytes {i}\", 0..N)", "stop()\n a = none"),
    ("let a = map(|i| map(|j| [j], 0..1000), 0..N // 1000)", "stop()\n a = none"),
    ("let a = map(|i| map(|j| [j], 0..1000), 0..N // 1000)", "stop()\n a.clear()"),
    ("let a = []\nfor i in 0..N { a = [a, 1] }", "stop()\n a = none"),
    ("let a = dict(map(|i| (i, [i]), 0..N))", "stop()\n a = none"),
    ("let a = dict(map(|i| (i, [i]), 0..N))", "stop()\n a.clear()"),
    ("let a = dict(map(|i| ((i, 1), i), 0..N))", "stop()\n a.clear()"),
    ("let a = dict(map(|i| (\"a text of more than twenty-four bytes {i}\", i), 0..N))", "stop()\n a.clear()"),
    ("let a = map(|i| (|| i), 0..N)", "stop()\n a = none"),
    ("let a = map(|i| [i], 0..N)\na.append(a)", "stop()\n a = none"),
    ("fn f() { let a = map(|i| [i], 0..N)\n stop()\n 1 }", "f()"),
    ("fn f() { let a = map(|i| [i], 0..N)\n stop()\n throw \"x\" }", "f()"),
    ("fn f() { let a = map(|i| [i], 0..N)\n stop()\n throw \"x\" }", "try { f() } catch e { 1 }"),
    // Natives that hold values while a callback runs.
    ("", "map(|i| { if i == N - 1 { stop() }\n [i] }, 0..N)"),
    ("", "map(|i, j| { if i == N - 1 { stop() }\n [i] }, 0..N, map(|i| [i], 0..N))"),
    ("", "filter(|x| { if x[0] == N - 1 { stop() }\n true }, map(|i| [i], 0..N))"),
    ("", "reduce(|x, y| { if y[0] == N - 1 { stop() }\n y }, map(|i| [i], 0..N))"),
    ("", "reduce(|x, y| { if y[0] == 1 { stop() }\n y }, map(|i| [i], 0..N))"),
    ("", "sorted(map(|i| [i], 0..N), key=|x| { if x[0] == N - 1 { stop() }\n [-x[0]] })"),
    ("", "map(|i| [i], 0..N).sort(key=|x| { if x[0] == N - 1 { stop() }\n (-x[0], 1) })"),
    ("", "min(map(|i| [i], 0..N), key=|x| { if x[0] == N - 1 { stop() }\n x })"),
    ("", "tree_map(|x| { if x == N - 1 { stop() }\n x }, map(|i| [i], 0..N))"),
    ("", "tree_map(|x| { if x == N - 1 { stop() }\n x }, dict(map(|i| (i, [i]), 0..N)))"),
    ("", "foreach(|x| { stop()\n x }, map(|i| [i], 0..N))"),
    ("let a = map(|i| [i], 0..N)", "stop()\n a = zip(a, a)\n a = zip(a, a)\n a = enumerate(a)"),
    (
        "let a = map(|i| [i], 0..N)",
        "let b = [..map(|i| [i], 0..N), ..map(|i| { if i == N - 1 { stop() }\n [i] }, 0..N)]",
    ),
    ("let a = map(|i| [i], 0..N)", "for x in map(|i| [i], 0..N) { if x[0] == 5 { stop() } }"),
    ("let s = \"a text of more than twenty-four bytes,\" * N", "let b = s.split(\",\")\n stop()\n b = none"),
    ("let d = dict()", "for i in 0..N { d[[..\"ab\"][0] ++ \"{i}\"] = [i] }\n stop()\n d = none"),
];

/// Code that is ended by a limit while it holds large values and frees none.
const GROWTH: &[&str] = &[
    "let a = []\nwhile true { a.append([1]) }",
    "(|| { let a = []\n while true { a.append([1]) } })()",
    "(|| { let a = []\n while true { a = [a, 1] } })()",
    "(|| { let a = dict()\n while true { a[len(a)] = [1] } })()",
    "map(|i| [i], 0..100_000_000)",
    "zip(0..1_000_000, map(|i| [i], 0..1_000_000), 0..1_000_000)",
    "let i = 0\nlet a = []\nwhile true { let k = i\n a.append(|| k)\n i += 1 }",
    "list(map(|i| (i, [i]), 0..100_000_000))",
    "map(|i, j| [i], 0..100_000_000, 0..100_000_000)",
    "map(|i| \"a text of more than twenty-four bytes {i}\", 0..100_000_000)",
    "sorted(0..100_000_000, key=|x| [x])",
    "reduce(|all, x| { all.append([x])\n all }, 0..100_000_000, [])",
    "tree_map(|x| [x], list(0..100_000_000))",
    "list(iterable(|| { let i = 0\n || { i += 1\n [i] } }))",
];

fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(1).output(|_| {})
}

fn with_stop(mut engine: Engine) -> Engine {
    let handle = engine.interrupt_handle();
    engine.register_fn("stop", move || {
        ASKED.set(FREED.get());
        handle.interrupt();
    });
    engine
}

/// Runs small inputs until what earlier ones left is released; each releases a part.
fn release_rest(engine: &mut Engine, script: &str) {
    for _ in 0..2000 {
        let before = FREED.get();
        engine.eval::<i64>("1 + 1").unwrap();
        let freed = FREED.get() - before;
        assert!(freed < FEW, "{freed} blocks freed by an input that follows {script}");
        if freed < 500 {
            return;
        }
    }
    panic!("the values of {script} are never released");
}

#[test]
fn an_interrupt_does_not_wait_for_large_values_to_be_freed() {
    let mut late = Vec::new();
    for (first, then) in RELEASES {
        let numbered = |text: &str| text.replace('N', &elements().to_string());
        let mut engine = with_stop(builder().build().unwrap());
        engine.eval::<()>(&numbered(first)).unwrap();
        let before = FREED.get();
        ASKED.set(0);
        let ended = engine.eval::<()>(&numbered(then));
        assert!(ASKED.get() >= before, "{then} is not told to end");
        if let Err(error) = &ended {
            assert_eq!(error.kind(), ErrorKind::Interrupted, "{then}: {error}");
        }
        let freed = FREED.get() - ASKED.get();
        if freed > FEW {
            late.push(format!("{freed} blocks: {first}; {then}"));
        }
        engine.interrupt_handle().clear();
        release_rest(&mut engine, then);
    }
    assert!(late.is_empty(), "{late:#?}");
}

#[test]
fn limits_do_not_wait_for_large_values_to_be_freed() {
    let mut late = Vec::new();
    for script in GROWTH {
        let (fuel, memory) = few_or_many((150_000, 24 << 20), (300_000, 48 << 20));
        for (limit, builder) in [("fuel", builder().fuel(fuel)), ("memory", builder().host_memory(memory))] {
            let mut engine = builder.build().unwrap();
            // The third time, the values of the first must have made room.
            for round in 0..3 {
                AT_ONCE.set((0, 0));
                let error = engine.eval::<()>(script).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Limit, "{limit}: {script}: {error}");
                let freed = AT_ONCE.get().1;
                if round == 0 && freed > FEW {
                    late.push(format!("{limit}: {freed} blocks: {script}"));
                }
            }
            release_rest(&mut engine, script);
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

/// A handler of an error of memory has the memory of what failed.
#[test]
fn a_handler_has_the_memory_of_what_failed() {
    let mut engine = builder().host_memory(32 << 20).build().unwrap();
    let again = "fn grow() { let a = []\n while true { a.append([1]) } }\n\
                 let ended = 0\n\
                 for i in 0..5 { try { grow() } catch e { ended += 1 }\n let b = map(|i| [i], 0..100_000) }\n\
                 ended";
    assert_eq!(engine.eval::<i64>(again).unwrap(), 5);
}
