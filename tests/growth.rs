//! An engine that runs many small programs keeps nothing of them: no texts, names, code or source positions.
//!
//! The test measures live bytes of this process after each tenth of the rounds; from the second on they stay
//! within a constant. `RUNNEL_LONG=1` makes four times as many rounds, `RUNNEL_GROWTH=10` ten times as many again.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/long.rs"]
mod long;

use long::few_or_many;
use runnel::{Backend, Engine, Function, Shared};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

/// The system's allocator; counts live bytes.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: the system's allocator does the work, and counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Allowed difference between two measurements: some sources and names, and spare capacity of tables.
fn slack() -> i64 {
    few_or_many(1 << 18, 1 << 20)
}

fn stays(name: &str, rounds: usize, mut round: impl FnMut(&mut Engine, usize)) {
    let mut engine = Engine::builder().backend(Backend::Emu).devices(1).build().unwrap();
    engine.register_fn("host", |x: i64| x + 1);
    let factor = std::env::var("RUNNEL_GROWTH").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (rounds, mut live) = (rounds * factor / few_or_many(4, 1), Vec::new());
    for tenth in 0..10 {
        for i in 0..rounds / 10 {
            round(&mut engine, tenth * (rounds / 10) + i);
        }
        live.push(LIVE.load(Ordering::Relaxed));
    }
    let grown = live[9] - live[1];
    assert!(grown < slack(), "{name}: {grown} bytes in {rounds} rounds: {live:?}");
}

/// A single test, so that nothing else in this process allocates meanwhile.
#[test]
fn engines_do_not_grow_with_the_code_they_have_run() {
    let long = "# a comment that makes the text longer than it needs to be\n".repeat(10);
    stays("values", 6660, |engine, i| {
        assert_eq!(engine.eval::<i64>(&format!("{i} + 1")).unwrap(), i as i64 + 1);
    });
    stays("names and texts", 1000, |engine, i| {
        let code = format!(
            "{long}let x = \"text {i}\"\nfn f(a{i} = 1) {{ let local_{i} = (field_{i} = a{i}); local_{i} }}\nlen(x)"
        );
        engine.eval::<i64>(&code).unwrap();
    });
    stays("compiled programs", 1660, |engine, i| {
        let code = format!(
            "let n = {i}\nlet l = [|| n, |x| x]\nfn f(a) {{ g(a) + n }}\nfn g(b) {{ let h = |c| c + b\nh(1) }}\nf(1)"
        );
        let program = engine.compile("program", &code).unwrap();
        if i % 2 == 0 {
            assert_eq!(program.run::<i64>(engine).unwrap(), i as i64 + 2);
        }
    });
    // One function stays in use until the next program exists.
    type Held = Function<fn(i64) -> i64>;
    let mut last: Option<Held> = None;
    stays("functions of programs", 1000, |engine, i| {
        let program = engine.compile("program", &format!("fn f(x) {{ x + {i} }}")).unwrap();
        if let Some(function) = &last
            && i > 0
        {
            assert_eq!(function.call(engine, (1,)).unwrap(), i as i64);
        }
        last = Some(program.function(engine, "f").unwrap());
    });
    stays("programs that do not start", 500, |engine, i| {
        assert!(engine.eval::<()>(&format!("print(unknown_{i})")).is_err());
        assert!(engine.eval::<()>(&format!("let = {i}")).is_err());
        assert!(engine.compile("bad", &format!("fn f{i}(a) {{ b{i} }}")).is_err());
    });
    stays("programs that fail", 1000, |engine, i| {
        let error = engine
            .eval::<()>(&format!("let a = host({i})\nlet new_{i} = [a][9]\nlet later_{i} = 1"))
            .unwrap_err();
        assert!(engine.report(&error).contains(&format!("new_{i}")), "{}", engine.report(&error));
    });
    stays("errors that are caught", 1000, |engine, i| {
        let code = format!("let e = try {{ throw \"no {i}\" }} catch e {{ e }}\nlen(e.message)");
        engine.eval::<i64>(&code).unwrap();
    });
    stays("tensors", 500, |engine, i| {
        engine.eval::<()>(&format!("let x = ones(10) * {i}\nx += 1\nx.sum().item()")).unwrap();
    });
    stays("training steps", 4000, |engine, i| {
        const START: &str = "let (x, y) = (arange(6.0).reshape(3, 2), ones(3, 1))
            let (w, b) = (full([2, 1], 0.1, requires_grad=true), zeros(1, requires_grad=true))
            let s = Stream()
            fn step() {
                let h = x @ w + b
                h[0] = h[1] * 2
                s.wait_stream(cuda.current_stream())
                let loss = with stream(s) { ((h.tanh() - y) ** 2).mean() }
                cuda.current_stream().wait_stream(s)
                loss.backward()
                with no_grad() { for p in [w, b] {
                    p.sub_(0.01 * p.grad)
                    p.grad = none
                } }
                if loss.requires_grad { (x @ w).exp() }
                cuda.memory_allocated()
            }";
        if i == 0 {
            engine.eval::<()>(START).unwrap();
        }
        let device: i64 = engine.call("step", ()).unwrap();
        assert!(device < 64 << 10, "{device} bytes of the device after {i} steps");
    });
    stays("warnings", 500, |engine, i| {
        let code = format!(
            "let s = Stream()\nlet x = zeros(10)\nwith races(\"warn\") {{ with stream(s) {{ x.add_({i}) }} }}\ncuda.synchronize()"
        );
        engine.eval::<()>(&code).unwrap();
    });
    stays("values of the host", 1000, |engine, i| {
        struct Thing;
        if i == 0 {
            drop(engine.register_type::<Thing>("thing"));
        }
        engine.set("t", Shared::new(Thing)).unwrap();
    });
}

/// Referenced objects are kept.
#[test]
fn texts_that_functions_errors_and_tensors_refer_to_stay() {
    let mut engine = Engine::builder().backend(Backend::Emu).devices(1).build().unwrap();
    engine.eval::<()>("fn fails(x) {\n    x.missing_field\n}").unwrap();
    engine.eval::<()>("let saved = try { [1][7] } catch e { e }").unwrap();
    engine.eval::<()>("let tensor = zeros(1000, 1000)").unwrap();
    let error = engine.eval::<()>("throw \"of the first\"").unwrap_err();
    let program = engine.compile("kept", "fn also(x) {\n    x[99]\n}").unwrap();
    let also: Function<fn(Vec<i64>) -> i64> = program.function(&mut engine, "also").unwrap();
    drop(program);
    for i in 0..2000 {
        engine.eval::<i64>(&format!("{i}")).unwrap();
        drop(engine.compile("dropped", &format!("fn f() {{ {i} }}")).unwrap());
    }
    assert!(engine.sources().count() < 300, "{}", engine.sources().count());
    assert!(engine.report(&error).contains("throw \"of the first\""), "{}", engine.report(&error));
    for (code, shown) in [("fails((a = 1))", "x.missing_field"), ("throw saved", "try { [1][7] }")] {
        let error = engine.eval::<()>(code).unwrap_err();
        assert!(engine.report(&error).contains(shown), "{}", engine.report(&error));
    }
    let error = also.call(&mut engine, (vec![1],)).unwrap_err();
    assert!(engine.report(&error).contains("x[99]"), "{}", engine.report(&error));
    let places = engine.eval::<String>("cuda.memory_summary()").unwrap();
    assert!(!places.is_empty());
}
