//! Scalar work allocates no memory: scripts of arithmetic, calls and containers of constant size run under a
//! counting allocator.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{Backend, Engine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator; counts the allocations of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static COUNT: Cell<i64> = const { Cell::new(0) };
}

fn count() {
    // The thread-local counter may be gone at the end of a thread.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: the system's allocator does the work, and counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// The number of allocations while `round` runs 10,000 times in a function after `setup`. It has run as often before.
fn taken(setup: &str, round: &str) -> i64 {
    let mut engine = Engine::builder().backend(Backend::Emu).devices(1).build().unwrap();
    engine.register_fn("taken", || COUNT.get());
    let script = format!(
        "fn half(x) {{ x / 2 }}\n\
         fn fib(n) {{ if n < 2 {{ n }} else {{ fib(n - 1) + fib(n - 2) }} }}\n\
         fn work(n) {{\n{setup}\nlet from = taken()\nfor i in 0..n {{\n{round}\n}}\ntaken() - from\n}}\n\
         work(10000)\nwork(10000)"
    );
    engine.eval::<i64>(&script).unwrap_or_else(|e| panic!("{round}: {e}"))
}

#[test]
fn scalar_work_takes_no_memory() {
    let cases = [
        ("let x = 0", "x = (x * 31 + i) % 1000 - 3 // 2"),
        ("let x = 1.0", "x = x * 1.5 + i / 3 - 2 ** 2\nif x > 1e6 { x = -x / 1e7 }"),
        ("let n = 0", "if i % 3 == 0 and not (i > 50) or i == 7 { n += 1 } else { n -= 1 }"),
        ("let b = 0", "b = (b ^ i) & 255 | (1 << 3) >> 1\nb = ~b"),
        ("let t = 0", "let k = 0\nwhile k < 5 { k += 1\nif k == 3 { continue }\nt += k }"),
        ("let t = 0", "for j in 0..8 by 2 { t += j }\nfor j in 5..0 by -1 { t -= j }"),
        ("let t = 0.0", "t += half(i)"),
        ("let t = 0", "t += fib(5)"),
        ("let k = 3\nlet f = |x| x * k + 1", "k = f(i) % 10"),
        ("let n = 0\nfn step() { n += 1\nn }", "step()"),
        ("let f = |g, x| g(g(x))\nlet g = |x| x + 1\nlet t = 0", "t = f(g, t)"),
        (
            "let a = [1, 2, 3, 4]",
            "a[i % 4] = a[(i + 1) % 4] + a[-1] - i\na[0] = a[1] % 7\na[2] = i\na[3] = 1\na[0] += 1",
        ),
        ("let a = [0.5] \nlet t = 0", "for x in a { t += x }\nt += len(a)"),
        ("let a = [1, 2, 3]", "a.append(a.pop())"),
        ("let a = [\"x\", \"yy\", \"zz\"]", "let s = a[i % 3]\na[0] = s\nif s == \"yy\" { a[1] = \"yy\" }"),
        ("let d = dict((a = 1, b = 2))", "d[\"a\"] = d[\"b\"] + 1\nd[\"b\"] += 1\nlet x = d.get(\"c\", 0)"),
        (
            "let d = dict()\nfor i in 0..100 { d[i] = 0 }",
            "d[i % 100] += 1\nif i in d and i not in d { d[0] = 7 }",
        ),
        ("let d = dict()\nfor i in 0..100 { d[i * 1000003 - 9] = 0 }", "d[i % 100 * 1000003 - 9] += i"),
        (
            "let words = [\"one\", \"two\", \"three\"]\nlet d = dict()\nfor w in words { d[w] = 0 }",
            "d[words[i % 3]] += 1",
        ),
        ("let d = dict()\nfor i in 0..20 { d[(i, \"k\")] = 0 }\nlet keys = d.keys()", "d[keys[i % 20]] += 1"),
        ("let s = \"abc\"\nlet t = \"abd\"\nlet n = 0", "if s == t or s < t or s != \"abc\" { n += len(s) }"),
        ("let p = (w = 1, b = 2.5)\nlet t = 0", "t += p.w * p.b\nif t > 1e6 { t = 0 }"),
        ("let p = (1, 2)\nlet t = 0", "let (a, b) = p\nt += a + b + p[0] + p[-1]"),
        ("let t = 0", "t = max(t, 100)"),
        ("let t = 0", "t = min(t, 100)"),
        ("let t = 0", "t = abs(-3)"),
        ("let t = 0", "t = int(2.5)"),
        ("let t = 0", "t = int(3)"),
        ("let t = 0", "t = round(1.5)"),
        ("let t = 0", "t = float(2)"),
        ("let x = none\nlet t = 0", "if x == none { t += 1 }\nx = if i > 3 { true } else { none }"),
        ("let t = 0", "t += match i % 4 { 0 => 1, 1..3 => 2, _ => 3 }"),
        ("let t = 0", "t += { let a = i\nlet b = a * 2\nb - a }"),
        ("let t = 0", "try { t += 1 } catch e { t = 0 }"),
        ("fn add(a, b = 1) { a + b }\nlet t = 0", "t = add(t, 2)"),
        ("let r = 0..10\nlet t = 0", "if i in r { t += r[3] }\nt += len(r)"),
    ];
    let found: Vec<String> = (cases.iter().map(|(setup, round)| (round, taken(setup, round))))
        .filter(|(_, taken)| *taken != 0)
        .map(|(round, taken)| format!("{taken} times: {round}"))
        .collect();
    assert!(found.is_empty(), "memory was taken\n{}", found.join("\n"));
}

#[test]
fn allocations_are_counted() {
    for round in
        ["let a = [i]", "let s = \"a text that is too long to stand in itself, {i}\"", "let f = || i"]
    {
        let taken = taken("", round);
        assert!(taken >= 10000, "{taken} times: {round}");
    }
}
