//! Values are computed where scatters read them (`plan/scatter.rs`): fewer launches and bytes, the same bits, and the same
//! errors.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;
#[path = "common/long.rs"]
mod long;

use draw::Draw;
use emulated::{agrees, costs_the_same, ends, fails, launched};
use long::few_or_many;
use runnel::Backend;
use runnel::kernel::Launch;

/// The programs that `code` launches, after `before` has run.
fn launches(before: &str, code: &str) -> Vec<String> {
    launched(before, code, |launch| launch.program.label.clone())
}

/// The elements of a launch's largest view.
fn elements(launch: &Launch) -> usize {
    launch.shape.iter().product()
}

const DATA: &str = "let (n, m, d) = (40, 600, 32)\n\
                    let (x, y, w, v) = (rand(n, d), rand(m, d), rand(m), rand(m))\n\
                    let (i, j) = (arange(m) * 17 % n, arange(m) * 11 % n)\n\
                    let (acc, sums) = (zeros(n, d), zeros(n))";

#[test]
fn values_that_only_a_scatter_reads_are_not_stored() {
    let one = |code: &str| {
        let all = launches(DATA, code);
        assert!(all.len() == 1 && all[0].contains("scatter_"), "{all:?}\n{code}");
    };
    one("sums.index_add_(0, i, w * 2)");
    one("sums.index_add_(0, i, w * v + 1)");
    one("sums.index_add_(0, i, x[j, 0] * 3)");
    one("sums.scatter_add_(0, i, w.exp() - v)");
    one("sums.scatter_reduce_(0, i, w - v, \"amax\")");
    one("sums.index_put_([i], w * v, accumulate=true)");
    one("acc.index_add_(0, i, x[j])");
    one("acc.index_add_(0, i, x[j] * w[.., none])");
    one("acc.index_add_(0, i, (x[j] - 1).relu() * w[.., none])");
    one("acc.index_add_(0, i, y * w[.., none])");
    one("acc.index_add_(0, i, y * y[0])");
    one("acc.index_add_(0, i[100..], (y * 2)[100..])");
    one("acc.T.index_add_(1, i, (y * w[.., none]).T)");
    one("acc.scatter_reduce_(0, i[.., none].expand(m, d), y * w[.., none], \"sum\")");
    // A target that is made for it is filled before.
    let two = |code: &str| assert_eq!(launches(DATA, code).len(), 2, "{:?}\n{code}", launches(DATA, code));
    two("acc = zeros(n, d).index_add_(0, i, x[j] * w[.., none])");
    two("acc = acc.index_add(0, i, x[j] * w[.., none])");
    two(
        "fn sum() {\n    let v = x[j] * w[.., none]\n    let out = zeros(n, d)\n    out.index_add_(0, i, v)\n}\nacc = sum()",
    );
    two("fn sum() {\n    let v = y * w[.., none]\n    zeros(n, d).index_add(0, i, v)\n}\nacc = sum()");
    // An index is stored, whether the group of the values computes it or another does.
    two("sums.index_add_(0, (w * 20).to(i64), w * 2)");
    two("acc.index_add_(0, (w * 20).to(i64), y * w[.., none])");
    two("sums.index_add_(0, i.to(i32), w * 2)");
}

#[test]
fn other_values_are_stored() {
    let stored = |code: &str| {
        let all = launches(DATA, code);
        assert!(all.iter().any(|label| label.starts_with("scatter_")), "{all:?}\n{code}");
        assert!(all.len() >= 2, "{all:?}\n{code}");
    };
    // Costly functions that would run twice, without a combination, the value of a reduction.
    stored("sums.index_add_(0, i, (w.lgamma() + w.erfinv()).lgamma())");
    stored("sums.scatter_(0, i, w * 2)");
    stored("sums.index_add_(0, i, y.sum(1))");
    // Rows in another order than those that are gathered, of few bytes.
    stored("let few = zeros(900, 2)\nfew.index_add_(0, i, x[j, 0..2])");
}

/// The values of a launch that something else reads later are stored, once.
#[test]
fn values_that_something_else_reads_are_stored() {
    for (later, most) in [("let z = u + 1", 2), ("let z = u @ u.T", 3), ("print(u.sum().item())", 3)] {
        let code = format!("let u = y * w[.., none]\nacc.index_add_(0, i, u)\n{later}");
        let all = launches(DATA, &code);
        assert!(all.len() <= most, "{all:?}\n{code}");
    }
}

/// Matrix factorisation with gradients (N12 of `benches/programs.rnl`), and PageRank (N3).
#[test]
fn programs_store_no_values_to_scatter() {
    let before = "let n = 4000\nlet (u, v) = (rand(50, 64).requires_grad_(), rand(40, 64).requires_grad_())\n\
                  let (i, j) = (arange(n) * 17 % 50, arange(n) * 11 % 40)\n\
                  fn step() {\n    ((u[i] * v[j]).sum(1) - 2).square().sum().backward()\n    with no_grad() {\n\
                  for p in [u, v] {\n        p.sub_(0.1 * p.grad)\n        p.grad = none\n    }\n    }\n}";
    // Launches over all products, and what they write: two of the three read their values from the tables.
    let wide = |launch: &Launch| (elements(launch) >= 4000 * 64).then(|| launch.program.label.clone());
    let all: Vec<String> = launched(before, "step()", wide).into_iter().flatten().collect();
    assert_eq!(all, ["mul+sum", "mul+scatter_sum", "mul+scatter_sum"]);
    assert_eq!(launches(before, "step()\nstep()").len(), 2 * launches(before, "step()").len());
    // The products would take 1 MB.
    let peak = |before: &str, call: &str| -> i64 {
        let code = format!(
            "{before}\nlet start = cuda.memory_allocated()\ncuda.reset_peak_memory_stats()\n{call}\n\
             str(cuda.max_memory_allocated() - start)"
        );
        ends(&code, true).parse().unwrap()
    };
    let bytes = peak(before, "step()");
    assert!(bytes < 300_000, "{bytes}");

    let before = "let (n, m) = (3000, 60000)\nlet (from, to) = (arange(m) * 17 % n, arange(m) * 11 % n)\n\
                  let degree = bincount(from, minlength=n)\nlet rank = full((n,), 1 / n)\n\
                  fn round() {\n    let next = zeros(n).index_add(0, to, (rank / degree)[from])\n\
                  rank = 0.15 / n + 0.85 * next\n}";
    let wide = |launch: &Launch| (elements(launch) >= 60_000).then(|| launch.program.label.clone());
    let all: Vec<String> = launched(before, "round()\nround()", wide).into_iter().flatten().collect();
    assert_eq!(all, ["scatter_sum", "scatter_sum"]);
    // The gathered numbers would take 240 kB.
    let bytes = peak(before, "round()");
    assert!(bytes < 80_000, "{bytes}");
}

/// The launches of a backward pass over all rows that were looked up: one that scatters.
#[test]
fn gradients_of_rows_are_not_stored() {
    for rows in [
        "embedding(ids, table)",
        "table[ids]",
        "table.index_select(0, ids.flatten()).reshape(20, 30, 64)",
        "table.gather(0, ids.flatten()[.., none].expand(600, 64)).reshape(20, 30, 64)",
        "embedding(ids, table) * embedding(ids.flip(0), other)",
    ] {
        let before = format!(
            "let (table, ids) = (rand(50, 64).requires_grad_(), (arange(600) * 17 % 50).reshape(20, 30))\n\
             let (w, other, y) = (rand(20, 30, 1), rand(50, 64), none)\ny = (({rows}) * w).square().sum()"
        );
        let wide = |launch: &Launch| (elements(launch) >= 600 * 64).then(|| launch.program.label.clone());
        let all: Vec<String> = launched(&before, "y.backward()", wide).into_iter().flatten().collect();
        assert!(all.len() == 1 && all[0].contains("+scatter_sum"), "{all:?}\n{rows}");
    }
}

/// A program that scatters.
fn random_program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = ["float()", "float()", "double()", "half()", "to(i64)", "to(i32)", "to(u8)"][draw(7)];
    let ids = ["", "", ".to(i32)"][draw(3)];
    let mut text = format!(
        "let begin = |n| (arange(n).float() * 37 % 11 * 3).{dtype}\n\
         let (t, x, y, w) = (begin(96).reshape(12, 8), begin(40 * 8).reshape(40, 8), begin(40), begin(40) - 3)\n\
         let wide = begin(40 * 24).reshape(40, 24)\nlet rows = begin(12 * 24).reshape(12, 24)\n\
         let (i, j) = ((arange(40) * 7 % 12 - 4){ids}, (arange(40) * 5 % 12){ids})\n"
    );
    text += &format!("for k in 0..{} {{\n", [1, 2, 15][draw(3)]);
    for _ in 0..2 + draw(8) {
        let index = ["i", "i", "j", "(i + k % 3)", "i.flip(0)", "(j * 3 % 7)"][draw(6)];
        let f = ["sum", "sum", "amax", "amin"][draw(4)];
        let one = match draw(8) {
            0 => "w * y".to_string(),
            1 => "w + 3".to_string(),
            2 => format!("y[{index}.clamp(0, 11)] * 2"),
            3 => "(x[.., 1] - w)".to_string(),
            4 => format!("t[{index}, j % 8] + w"),
            5 => "(y * w)[..40]".to_string(),
            6 => "where(w > 4, y, w)".to_string(),
            _ => format!("t[{index}][.., 3]"),
        };
        let row = match draw(9) {
            0 => "x * w[.., none]".to_string(),
            1 => "x + t[2]".to_string(),
            2 => format!("t[{index}] * w[.., none]"),
            3 => format!("t[{index}]"),
            4 => format!("(t[{index}] - x)"),
            5 => "(x * 2).flip(1)".to_string(),
            6 => "(x * y[.., none] + 1)[.., ..8]".to_string(),
            7 => format!("x.sum(1, keepdim=true).{dtype}.expand(40, 8) * 2"),
            _ => "(x - 1) * x".to_string(),
        };
        let many = match draw(5) {
            0 => "wide * w[.., none]".to_string(),
            1 => format!("rows[{index}] * w[.., none]"),
            2 => format!("rows[{index}]"),
            3 => format!("rows[j] * rows[{index}]"),
            _ => "(wide - y[.., none]) * wide".to_string(),
        };
        text += &match draw(20) {
            0 | 1 => format!("    y = y.index_add(0, {index}, {one})\n"),
            2 => format!("    y.index_add_(0, {index}, {one})\n"),
            3 => format!("    t = t.index_add(0, {index}, {row})\n"),
            4 => format!("    t.index_add_(0, {index}, {row})\n"),
            5 => format!("    rows.index_add_(0, {index}, {many})\n"),
            6 => format!("    rows = zeros_like(rows).index_add_(0, {index}, {many})\n"),
            7 => format!("    y = y.scatter_reduce(0, {index}.to(i64) % 12 + 12, {one}, \"{f}\")\n"),
            8 => format!(
                "    t = t.scatter_reduce(0, ({index} % 12 + 12).to(i64)[.., none].expand(40, 8) - 12, {row}, \"{f}\")\n"
            ),
            9 => format!("    let v = {row}\n    t.index_add_(0, {index}, v)\n    x = x % 7 + v\n"),
            10 => format!(
                "    let v = {row}\n    t = t.index_add(0, {index}, v)\n    x.add_(1)\n    y = y + v[.., 2]\n"
            ),
            11 => format!(
                "    let v = {one}\n    w.add_(1)\n    y.index_add_(0, {index}, v)\n    y[3] = v[5]\n"
            ),
            12 => format!(
                "    let v = {many}\n    rows.index_add_(0, {index}, v)\n    w = v.sum(1).{dtype} % 7\n"
            ),
            13 => format!("    let v = {row}\n    t[2..5] = v[2..5]\n    t.index_add_(0, {index}, v)\n"),
            14 => format!("    t[{index}] += 1\n    y[{index}.clamp(0, 11)] += {one}\n"),
            15 => format!("    t.index_put_([{index}], {row}, accumulate=true)\n"),
            16 => format!("    t.T.index_add_(1, {index}, ({row}).T)\n"),
            17 => format!(
                "    let v = {row}\n    t.index_add_(0, {index}, v)\n    t.index_add_(0, j, v * 2)\n    v = none\n    x = x % 5 + 1\n"
            ),
            18 => format!("    t = t.index_add(0, {index}[5..30], ({row})[5..30])\n"),
            _ => format!("    y = y + bincount(j.to(i64), {one}, minlength=40).{dtype}\n"),
        };
        text += "    (t, y, rows, w) = (t % 13, y % 13, rows % 13, w % 13)\n";
    }
    text + "}\nstr((x.tolist(), y.tolist(), t.tolist(), rows.tolist(), w.tolist()))"
}

#[test]
fn the_bits_are_those_without_fusion() {
    for seed in 0..few_or_many(150, 4000) {
        agrees(&random_program(seed));
    }
}

/// Sums of small integers are exact in every order, so a loop over lists gives the same.
#[test]
fn the_sums_are_those_of_a_loop() {
    let values = [
        "x[j] * w[.., none]",
        "y * w[.., none] + 1",
        "(y - x[j])",
        "y * y[3]",
        "x[j].flip(1)",
        "(x[j] * w[.., none])[.., 2..]",
        "w[.., none].expand(m, 20) * 2",
    ];
    for dtype in ["float()", "double()", "to(i64)", "half()", "to(i32)"] {
        for value in values {
            for (n, m) in [(5, 60), (200, 30)] {
                let code = format!(
                    "let (n, m) = ({n}, {m})\nlet begin = |k| (arange(k) * 7 % 4).{dtype}\n\
                     let (x, y, w) = (begin(n * 20).reshape(n, 20), begin(m * 20).reshape(m, 20), begin(m))\n\
                     let (i, j) = (arange(m) * 5 % n, arange(m) * 3 % n - n)\n\
                     let sums = zeros((n, ({value}).shape[1]), dtype=w.dtype).index_add_(0, i, {value})\n\
                     let (own, at) = (({value}).tolist(), i.tolist())\nlet want = zeros_like(sums).tolist()\n\
                     for k in 0..m {{\n    for c in 0..len(own[0]) {{ want[at[k]][c] += own[k][c] }}\n}}\n\
                     let want = tensor(want, dtype=w.dtype)\nassert(equal(sums, want), str((sums, want)))\n\"\""
                );
                assert_eq!(ends(&code, true), "");
            }
        }
    }
}

#[test]
fn gradients_are_those_without_fusion() {
    let losses = [
        "(u[i] * v[j]).sum(1).square().mean()",
        "(u[i] * w[.., none]).sigmoid().sum()",
        "((u[i] - v[j]) * w[.., none]).abs().sum()",
        "(embedding(i, u) * embedding(j, v)).sum()",
        "(zeros_like(u).index_add(0, i, v[j] * w[.., none]) * u).sum()",
        "u.gather(0, i[.., none].expand(-1, u.shape[1])).tanh().sum()",
        "zeros(30).index_add(0, i, (u[i] * v[j]).sum(1) * w).square().sum()",
        "u[i, j % 8].exp().mean() + (v[j] * 3).sum()",
    ];
    for (width, count) in [(8, 40), (64, 300)] {
        for loss in losses {
            let code = format!(
                "let begin = |n, m| ((arange(n * m) * 37 % 101).float() / 50 - 1).reshape(n, m)\n\
                 let (u, v) = (begin(30, {width}).requires_grad_(), begin(9, {width}).requires_grad_())\n\
                 let w = begin(1, {count})[0].requires_grad_()\n\
                 let (i, j) = (arange({count}) * 7 % 30, arange({count}) * 5 % 9)\n\
                 for k in 0..3 {{\n    ({loss}).backward()\n    with no_grad() {{\n\
                 for p in [u, v, w] {{\n        if p.grad != none {{ p.sub_(0.1 * p.grad) }}\n        p.grad = none\n    }}\n    }}\n}}\n\
                 str((u.tolist(), v.tolist(), w.tolist()))"
            );
            assert_eq!(ends(&code, true), ends(&code, false), "{code}");
        }
    }
}

/// Of several bad indices, the same one is reported, at its line.
#[test]
fn an_index_out_of_range_is_reported_at_its_line() {
    let data = "let (t, x, acc, one) = (rand(12, 16), rand(24, 16), zeros(12, 16), zeros(12))\n\
                let (i, j, k) = (arange(24) % 12, arange(24) % 12, arange(24) % 12)\n";
    let spoils = ["i[7] = 12", "j[23] = -13", "k[5] = 99", "j[5] = 99\ni[20] = 12", "i[20] = 12\nk[5] = 99"];
    let both =
        ["i[5] = 12\nj[5] = 12\nk[5] = 12", "k[3] = 12\ni[3] = 12\ni[2] = 12", "j[1] = 12\nk[0] = -90"];
    for spoil in spoils.iter().chain(&both) {
        for code in [
            "let a = t[j]\nlet b = t[k]\nlet c = a * b\nacc.index_add_(0, i, c)\nprint(acc.sum().item())",
            "let b = t[k]\nacc.index_add_(0, i, b * t[j])\nprint(acc.sum().item())",
            "let a = one.index_add(0, i, t[j, k] * 2)\nprint(a.tolist())",
            "let a = t[j][.., 3] + t[k][.., 2]\none.scatter_reduce_(0, i, a, \"amax\")\nprint(one.tolist())",
            "acc.index_add_(0, i, t[j])\nacc.index_add_(0, k, x * 2)\nprint(acc[0, 0].item())",
            "let a = (x + t[k]) * t[j]\nacc.index_add_(0, i, a)\nprint(a.sum().item())\nprint(acc.sum().item())",
        ] {
            let code = format!("{data}{spoil}\n{code}\n\"\"");
            let host = format!("with device(cpu) {{\n{code}\n}}");
            for code in [code, host] {
                // A program that does not use the bad index.
                let engine = runnel::Engine::builder().backend(Backend::Emu).devices(1).fuse(false).build();
                if engine.unwrap().eval::<String>(&code).is_ok() {
                    assert_eq!(ends(&code, true), "", "{code}");
                } else {
                    assert_eq!(fails(&code, true), fails(&code, false), "{code}");
                }
            }
        }
    }
}

/// Another stream may only write what has been read.
#[test]
fn races_see_the_operands() {
    let data = "let (t, w, i, acc) = (rand(12, 16), rand(24, 1), arange(24) % 12, zeros(12, 16))\nlet s = Stream()\n\
                s.wait_stream(cuda.current_stream())\nacc.index_add_(0, i, t[i] * w)\nwith stream(s) {\n    TOUCH\n}\n\"\"";
    for touch in ["t.add_(1)", "i.add_(1)", "w.add_(1)", "acc.add_(1)", "print(acc.sum().item())"] {
        let code = data.replace("TOUCH", touch);
        let (fused, apart) = (fails(&code, true), fails(&code, false));
        assert_eq!(fused, apart, "{code}");
        assert!(fused.contains("E0601"), "{fused}");
        // With the wait, the old values are read.
        let code = format!(
            "let (t, w, i) = (arange(192).reshape(12, 16), arange(24).reshape(24, 1), arange(24) % 12)\n\
             let acc = zeros(12, 16, dtype=i64)\nlet s = Stream()\nlet v = t[i] * w\nacc.index_add_(0, i, v)\n\
             s.wait_stream(cuda.current_stream())\nwith stream(s) {{\n    {touch}\n}}\n\
             cuda.current_stream().wait_stream(s)\nstr((acc.tolist(), (v + 1).tolist()))"
        );
        assert_eq!(ends(&code, true), ends(&code, false), "{code}");
    }
}

#[test]
fn graphs_repeat_scatters() {
    let code = "let (t, w, i) = (rand(12, 16), rand(24, 1), arange(24) % 12)\n\
                let f = |t, i| zeros(12, 16).index_add(0, i, t[i] * w)\nlet g = cuda.graphed(f, [t, i])\n\
                let a = [g(t, i).clone(), g(t + 1, 11 - i).clone(), g(t, -1 - i).clone()]\n\
                let b = [f(t, i), f(t + 1, 11 - i), f(t, -1 - i)]\n\
                str(all(map(|(a, b)| equal(a, b), zip(a, b))))";
    assert_eq!(ends(code, true), "true");
}

#[test]
fn fuel_does_not_depend_on_fusion() {
    let code = "let (t, i) = (rand(12, 8), arange(24) % 12)\nlet y = zeros(12, 8).index_add_(0, i, t[i] * 2)\nstr(y.shape)";
    costs_the_same(code);
}

/// A value that is not stored takes no memory, and a group that waits keeps no operand that another request needs.
#[test]
fn values_take_no_memory() {
    let run = |code: &str, memory: u64, fuse: bool| {
        let engine = runnel::Engine::builder().backend(Backend::Emu).devices(1).fuse(fuse);
        engine.device_memory(memory).build().unwrap().eval::<String>(code)
    };
    let code = "let n = 1 << 20\nlet (t, i, acc) = (ones(64, 16), arange(n) % 64, zeros(64, 16))\n\
                acc.index_add_(0, i, t[i] * 2)\nstr(acc.sum().item())";
    // The values take 64 MiB.
    assert_eq!(run(code, 40 << 20, true).unwrap(), "33554432.0");
    assert!(run(code, 40 << 20, false).is_err());
    for code in [
        "acc.index_add_(0, i, x * 2)\nx = none\nlet y = zeros(10 * n)\nstr(acc.sum().item() + y.sum().item())",
        "let v = x * 2\nacc.index_add_(0, i, v)\nx = none\nlet y = zeros(10 * n)\nstr(v.sum().item() + acc.sum().item())",
    ] {
        let code = format!(
            "let n = 1 << 20\nlet (x, i, acc) = (ones(10 * n), arange(10 * n) % 9, zeros(9))\n{code}"
        );
        let (fused, apart) = (run(&code, 210 << 20, true), run(&code, 210 << 20, false));
        assert_eq!(fused.unwrap_or_else(|e| panic!("{e:?}\n{code}")), apart.unwrap(), "{code}");
    }
}

/// From its second iteration on, a loop launches the same programs.
#[test]
fn loops_repeat_their_launches() {
    let body = "acc = acc.index_add(0, i, x[j] * w[.., none])\n    y = y + x[i] * 0.5\n    sums.index_add_(0, j, w * v)\n    \
                acc.index_add_(0, i, y * w[.., none])";
    let of = |rounds: usize| launches(DATA, &format!("for _ in 0..{rounds} {{\n    {body}\n}}"));
    let (four, five, six) = (of(4), of(5), of(6));
    assert_eq!(six.len() - five.len(), five.len() - four.len());
    let known: std::collections::BTreeSet<&String> = of(2).leak().iter().collect();
    assert!(six.iter().all(|label| known.contains(label)), "{six:?}");
}
