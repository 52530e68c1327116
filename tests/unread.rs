//! Variables whose tensors are pending are released after their last use (`vm/last_uses.rs`), and values of a similar
//! size are computed again (`plan/again.rs`): less memory, the same bits.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/long.rs"]
mod long;

use draw::Draw;
use runnel::Backend;
use runnel::Engine;

fn engine(fuse: bool) -> Engine {
    Engine::builder().backend(Backend::Emu).devices(1).fuse(fuse).build().unwrap()
}

/// [`engine`] in which also small values are computed again instead of stored.
fn keeping() -> Engine {
    Engine::builder().backend(Backend::Emu).devices(1).kept_from(0).build().unwrap()
}

/// The peak of memory while `f(x)` runs, in floats, where `f` has this body and `x` the shape (64, 3) or (4096).
fn peak(shape: &str, body: &str) -> i64 {
    let code = format!(
        "let x = rand({shape})\nlet m = rand(64)\nfn f(x) {{\n{body}\n}}\ncuda.synchronize()\n\
         cuda.reset_peak_memory_stats()\nlet before = cuda.memory_allocated()\nlet y = f(x)\ncuda.synchronize()\n\
         (cuda.max_memory_allocated() - before) // 4"
    );
    let of = |mut engine: Engine| engine.eval::<i64>(&code).unwrap_or_else(|e| panic!("{e:?}\n{code}"));
    of(engine(true)).max(of(keeping()))
}

#[test]
fn a_variable_that_nothing_reads_later_is_not_stored() {
    let bodies = "let d = x[none] - x[.., none]\nlet r = (d * d).sum(-1) + 0.01\n(d * (m / r ** 1.5)[.., .., none]).sum(1)";
    let at_most = |shape: &str, floats: i64, body: &str| {
        let peak = peak(shape, body);
        assert!(peak <= floats + 256, "{peak} floats\n{body}");
    };
    // (Only the weights, one per pair, and not the distances.)
    at_most("64, 3", 64 * 64 + 64 * 3, bodies);
    at_most("64, 3", 64 * 64, "let d = x[none] - x[.., none]\nlet q = d * d\nlet s = q.sum(-1)\ns");
    at_most("4096", 4096, "let f = x * x / 2\nlet g = f[1..] - f[..-1]\ng");
    at_most(
        "4096",
        4096,
        "let f = x * x / 2\nlet g = if len(x.shape) > 1 { f } else { f + 1 }\nlet h = g * 2\nh[1..] - h[..-1]",
    );
    at_most(
        "4096",
        4 * 4096,
        "let y = x\nfor i in 0..4 {\n    let f = y * y / 2\n    y = cat([y[..1], f[1..] - f[..-1]])\n}\ny",
    );
    // An argument is the caller's variable.
    at_most("4096", 4096, "fn slope(a) { a[1..] - a[..-1] }\nlet f = x * x\nlet g = slope(f)\ng");
    at_most("4096", 4096, "let f = x + 1\ndefer print(\"\", end=\"\")\nlet g = f[1..] * f[..-1]\ng");
}

#[test]
fn a_variable_with_memory_stays_as_in_pytorch() {
    let code = "fn f(x) {\n    let a = x + 1\n    cuda.synchronize()\n    let b = a * 2\n    seen()\n    b\n}\n\
                let count = 0\nfn seen() { count = cuda.memory_allocated() }\nlet x = rand(1024)\n\
                let before = cuda.memory_allocated()\nf(x)\n(count - before) // 4096";
    // `a` has memory, `b` is stored when the statistics are read.
    assert_eq!(engine(true).eval::<i64>(code).unwrap(), 2);
    // A function that asks itself keeps pending variables, too.
    let code = "fn f(x) {\n    let before = cuda.memory_allocated()\n    let a = x + 1\n    let b = a * 2\n    \
                (cuda.memory_allocated() - before) // 4096\n}\nf(rand(1024))";
    assert_eq!(engine(true).eval::<i64>(code).unwrap(), 2);
}

/// Statements of a function over the variables `a` to `e`, with blocks of each kind.
fn statements(draw: &mut Draw, depth: usize, left: &mut usize, text: &mut String) {
    let pad = "    ".repeat(depth + 1);
    for _ in 0..1 + draw.below(4) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let names = ["a", "b", "c", "d", "e"];
        let [p, q, r] = [0, 1, 2].map(|_| names[draw.below(5)]);
        let value = match draw.below(14) {
            0 => format!("{p} + {q}"),
            1 => format!("{p} * 0.5 - {q}"),
            2 => format!("{p}.roll(1) * {q}"),
            3 => format!("cat([{p}[1..], {q}[..1]])"),
            4 => format!("cat([{p}[1..] - {p}[..-1], {q}[..1]])"),
            5 => format!("{p} - {q}.mean()"),
            6 => format!("({p}[none] - {q}[.., none]).sum({})", draw.below(2)),
            7 => format!("half({p}, {q})"),
            8 => format!("(|t| t * {p} + {q})({r})"),
            9 => format!("[{p}, {q}, {r}][{}]", draw.below(3)),
            10 => format!("if {p}[0] > 0 {{ {q} }} else {{ {r} + 1 }}"),
            11 => format!("match {} {{ 0 => {p}, 1 => {q} * 2, _ => {r} }}", draw.below(3)),
            12 => format!("(x = {p}, y = {q}).{} - {r}", ["x", "y"][draw.below(2)]),
            _ => format!("try {{ {p}[{}] + {q} }} catch _e {{ {r} }}", draw.below(12)),
        };
        let inner = |draw: &mut Draw, left: &mut usize| {
            let mut inner = String::new();
            statements(draw, depth + 1, left, &mut inner);
            inner
        };
        *text += &match draw.below(16) {
            0 => format!("{pad}for i in 0..{} {{\n{}{pad}}}\n", draw.below(4), inner(draw, left)),
            1 => format!("{pad}for t in [{p}, {q}] {{\n{pad}    {r} = t + 1\n{}{pad}}}\n", inner(draw, left)),
            2 => format!(
                "{pad}if {p}[1] > {q}[2] {{\n{}{pad}}} else {{\n{}{pad}}}\n",
                inner(draw, left),
                inner(draw, left)
            ),
            3 => {
                let count = format!("n{depth}_{}", *left);
                let leaves = ["break", "continue", "let _u = 0"][draw.below(3)];
                format!(
                    "{pad}let {count} = 0\n{pad}while {count} < 3 {{\n{pad}    {count} += 1\n{}{pad}    \
                     if {p}[0] > 0.25 {{ {leaves} }}\n{pad}    {q} = {q} * 0.5\n{pad}}}\n",
                    inner(draw, left)
                )
            }
            4 => format!("{pad}{{\n{pad}    defer {p}.mul_(0.5)\n{}{pad}}}\n", inner(draw, left)),
            5 => format!("{pad}let {p} = {value}\n"),
            6 => format!("{pad}({p}, {q}) = ({q}, {value})\n"),
            7 => format!("{pad}{p} = {p}.clone()\n{pad}{p}[1..4] = ({value})[2..5]\n"),
            8 => format!("{pad}let keep = || {p}\n{pad}{q} = {value}\n{pad}{r} = keep() - {q}\n"),
            9 => format!("{pad}if {p}.sum() > 1000 {{ return {p} + {q} }}\n"),
            10 => format!("{pad}{p} = {p}.clone()\n{pad}{p}[2..] += ({value})[..-2]\n"),
            _ => format!("{pad}{p} = {value}\n"),
        };
    }
}

#[test]
fn no_variable_is_released_while_it_is_read() {
    for seed in 0..long::few_or_many(120, 2000) {
        let mut draw = Draw(seed);
        let mut text = String::new();
        let mut left = 6 + draw.below(24);
        while left > 0 {
            statements(&mut draw, 0, &mut left, &mut text);
        }
        let result = ["a", "(a, c)", "[b, d, e]", "a + b"][draw.below(4)];
        let code = format!(
            "fn half(x, y) {{\n    let s = x + y\n    let t = s * 0.5\n    t.clamp(-2, 2)\n}}\n\
             fn f(a, b) {{\n    let (c, d, e) = (a + 1, b * 2, a - b)\n{text}    {result}\n}}\n\
             let x = (arange(9).float() * 37 % 11) / 8 - 0.5\nlet all = f(x, x.flip(0))\n\
             for i in 0..2 {{ all = [all, f(x * 0.5, x.cos())] }}\n\
             fn list(v) {{ if v is_tensor {{ v.tolist() }} else {{ [list(u) for u in v] }} }}\nstr(list(all))"
        );
        let code = code
            .replace("v is_tensor", "type(v) == \"tensor\"")
            .replace("[list(u) for u in v]", "map(v, list)");
        let run =
            |mut engine: Engine| engine.eval::<String>(&code).unwrap_or_else(|e| panic!("{e:?}\n{code}"));
        let expected = run(engine(false));
        assert_eq!(run(engine(true)), expected, "{code}");
        assert_eq!(run(keeping()), expected, "small values are computed again\n{code}");
    }
}
