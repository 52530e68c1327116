//! Large values that something still refers to are computed again by their readers (`plan/kept.rs`): no stores, the same
//! bits. In these tests small values count as large.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/emulated.rs"]
mod emulated;

use emulated::{agrees, agrees_on_devices, ends, keeping, launched, launched_with};
use runnel::plan::Settings;

/// `d` in the scripts is `x - y`: 40 rows and 12 columns.
const DATA: &str = "let begin = |n| (arange(n).float() * 37 % 11) / 4 - 1\n\
                    let (x, y, c, w) = (begin(40).reshape(40, 1), begin(12), begin(12) + 2, begin(36).reshape(12, 3))\n\
                    let big = begin(480).reshape(40, 12)\n";

/// The bytes that the launches of `code` read and write.
fn moved(settings: Settings, code: &str) -> u64 {
    launched_with(settings, DATA, code, |launch| launch.program.kind.bytes(launch)).iter().sum()
}

fn never() -> Settings {
    Settings { kept_from: u64::MAX, ..Settings::default() }
}

/// Writes to `x`, of every kind: elementwise, parts, views, kernels of their own, values that are pending, other devices.
const WRITES: &[&str] = &[
    "x.add_(1)",
    "x[3..9] = 7",
    "x[3..9] = y[..6].exp()[.., none]",
    "x[tensor([1, 2])] = 9",
    "x[x > 0] = 4",
    "x.T.zero_()",
    "x.flatten()[2..5].mul_(3)",
    "x.copy_(table * 3)",
    "x.copy_(ones(40, n, dtype=f64, device=cpu))",
    "x.fill_(2).mul_(3)",
    "x.clamp_(-0.5, 0.5)",
    "x.masked_fill_(x > 0.5, 0)",
    "x.masked_scatter_(x > 0.5, ones(40 * n))",
    "x.cumsum_(0)",
    "x.index_fill_(0, ids, 5.0)",
    "x.index_copy_(0, ids[..2], ones(2, n))",
    "x.index_add_(0, ids, ones(60, n))",
    "x.index_add_(0, ids, x[ids] * 2)",
    "x.index_add_(0, ids, table[ids])",
    "x.index_add_(0, ids, (table[ids] * 2 + 1))",
    "x.index_add_(0, ids, (flat[ids] * 2)[.., none].expand(60, n))",
    "let late = table[ids]\nx.index_add_(0, ids, late)",
    "let late = flat[ids] * 3\nx.index_add_(0, ids, late[.., none].expand(60, n))",
    "x.index_reduce_(0, ids, table[ids], \"amax\")",
    "x.scatter_(0, ids[.., none].expand(60, n), table[ids])",
    "x.scatter_add_(0, ids[.., none].expand(60, n), table[ids] * 2)",
    "x.scatter_reduce_(0, ids[.., none].expand(60, n), table[ids], \"prod\")",
    "x.index_put_([ids], table[ids] * 2, accumulate=true)",
    "x.put_(ids[..2], flat[ids[..2]])",
    "x.lerp_(table, 0.5)",
    "x.swapaxes(0, 1).index_add_(1, ids, ones(n, 60))",
    "x.diagonal().add_(5)",
    "let all = [x]\nforeach(|i| { all[i].mul_(2) }, all)",
    "let all = [x, table, big.clone(), w.clone()]\nforeach(|i| { all[i].mul_(2)\n all[i].add_(1) }, all)",
    "let g = Graph()\nwith graph(g) { x.add_(1) }\ng.replay()",
];

#[test]
fn readers_see_the_value_of_its_line() {
    // An operand that is much smaller than the value, and one that is as large.
    for (operand, write) in
        ["x", "big"].iter().flat_map(|operand| WRITES.iter().map(move |write| (operand, write)))
    {
        let data = begin(operand);
        // A graph needs a device.
        let check = if write.contains("Graph") { agrees_on_devices } else { agrees };
        // It waits already; it is in the open group; in a closed one; in a group of a chain of rows.
        for before in
            ["let p = exp(d) @ w", "let p = d", "let p = x.sum() * 2", "let p = (d.sum(1) * 2).exp()"]
        {
            check(&format!(
                "{data}let d = x - y\n{before}\n{write}\nlet q = (d * 2).sum(0)\n\
                 str((d.tolist(), d[5..9].tolist(), p.tolist(), q.tolist(), x.tolist(), table.tolist()))"
            ));
        }
    }
}

/// Padded, gathered and turned values wait for their readers in the same way.
#[test]
fn other_values_that_wait_are_those_of_their_line() {
    for (operand, write) in
        ["x", "big"].iter().flat_map(|operand| WRITES.iter().map(move |write| (operand, write)))
    {
        let check = if write.contains("Graph") { agrees_on_devices } else { agrees };
        let data = begin(operand);
        for value in [
            "x.pad([0, 0, 1, 1])",
            "x[(ids + 1) % 40]",
            "x.roll(3, 0)",
            "x.pad([1, 1], mode=\"circular\") * 2",
        ] {
            check(&format!(
                "{data}let d = {value}\nlet p = d[2..] * 2\n{write}\nlet q = (d * 2).sum(0)\n\
                            str((d.tolist(), p.tolist(), q.tolist(), x.tolist()))"
            ));
        }
    }
}

/// The operands of [`WRITES`], in memory.
fn begin(x: &str) -> String {
    format!(
        "{DATA}let x = {x}\nlet (n, ids) = (x.shape[1], arange(60) * 7 % 40)\n\
         let table = begin(40 * n).reshape(40, n) * 2\nlet flat = table.flatten()\n\
         (x.sum() + y.sum() + flat.sum() + w.sum() + ids.sum()).item()\n"
    )
}

#[test]
fn the_value_itself_may_be_written() {
    let writes = [
        "d.add_(1)",
        "d[3..9] = 7",
        "d.T[4] = 1",
        "d.fill_diagonal_(3)",
        "d[.., 2].mul_(2)",
        "d.masked_fill_(d > 0.5, 0)",
        "d.index_add_(0, tensor([1]), ones(1, 12))",
        "d.copy_(big)",
        "d.zero_()",
    ];
    for write in writes {
        agrees(&format!("{DATA}let d = x - y\nlet p = exp(d) @ w\n{write}\nstr((d.tolist(), p.tolist()))"));
        agrees(&format!("{DATA}let d = x - y\n{write}\nlet p = d @ w\nstr((d.tolist(), p.tolist()))"));
    }
}

#[test]
fn a_value_may_replace_the_result_of_a_reduction() {
    for reduction in ["big.sum(0)", "big.amax(0)", "big.mean(0, keepdim=true)", "(big * 2).sum(0)"] {
        for write in
            ["d.copy_(y - 1)", "d.fill_(2)", "d.fill_(2).mul_(3)", "d.copy_(y.exp() * c)", "d.add_(y)"]
        {
            for more in ["", "let m = big.amax(0)\n", "let m = (big - d).sum(0)\n"] {
                agrees(&format!(
                    "{DATA}(big.sum() + y.sum() + c.sum()).item()\nlet d = {reduction}\n{more}{write}\nlet p = d * 2\n\
                     str((d.tolist(), p.tolist()))"
                ));
            }
        }
    }
}

#[test]
fn a_group_aside_may_read_the_value() {
    for more in ["", "let q = d[..1].to(bf16).amin(0)\n", "d.add_(1)\n", "x.mul_(2)\n"] {
        for other in ["(big * 2).pad([1, 1], mode=\"circular\")", "big * 2", "(big * 2)[tensor([3, 1])]"] {
            for value in ["d[..1].to(f16).amin(0)", "(d[..2] * 3).sum(0)", "(d[1..3] + d[..2]).sum()"] {
                agrees(&format!(
                    "{DATA}let z = begin(3)\n(x.sum() + big.sum() + z.sum()).item()\nlet d = z * 2 - 1\n\
                     let e = {other}\nlet p = {value}\n{more}let r = d * 3\n\
                     str(map(|t| t.tolist(), [d, e, p, r]))"
                ));
            }
        }
    }
}

#[test]
fn views_of_the_value_are_read() {
    let views = [
        "d.T",
        "d[3]",
        "d[.., 4..9]",
        "d[5..30, 1..3]",
        "d.reshape(2, 20, 12)",
        "d.flatten()",
        "d[none]",
        "d.diagonal()",
        "d[.. by 2]",
        "d.expand(3, 40, 12)",
        "d.unfold(0, 4, 2)",
        "d.flip(0)",
        "d.roll(3, 1)",
        "d[tensor([3, 1, 3])]",
        "d.sort(1).values",
        "cat([d, d], 1)",
    ];
    for view in views {
        agrees(&format!(
            "{DATA}let d = x - y\nlet p = exp(d) @ w\nlet a = {view} * 2\nlet b = ({view}).sum()\n\
             let q = (d * p.sum()).sum(1)\nstr((a.tolist(), b.item(), q.tolist()))"
        ));
    }
}

#[test]
fn values_are_complete_where_streams_meet() {
    let head = format!("{DATA}let d = x - y\nlet p = exp(d) @ w\n");
    agrees(&format!("{head}cuda.synchronize()\nstr((d.cpu().tolist(), p.tolist()))"));
    let code = "let s = Stream()\nlet q = with stream(s) {\n    s.wait_stream(cuda.default_stream())\n    (d * 3).sum(1)\n}\n\
                cuda.current_stream().wait_stream(s)\nx.add_(1)\nassert(equal(q, ((x - 1 - y) * 3).sum(1)))";
    launched_with(keeping(), &head, code, |_| ());
    let code = "let (g, q) = (Graph(), zeros(40))\nwith graph(g) { q.copy_((d * 2).sum(1)) }\nx.add_(1)\ng.replay()\n\
                assert(equal(q, ((x - 1 - y) * 2).sum(1)))\nassert(equal(d, x - 1 - y))";
    launched_with(keeping(), &head, code, |_| ());
}

#[test]
fn differences_of_all_pairs_are_not_stored_for_gradients() {
    let code = "fn f(x) {\n    let d = (x - y) * c\n    (exp(-d * d) @ w).sum()\n}\nlet g = grad(f)(x)";
    let value = 40 * 12 * 4;
    // Neither differences nor their products are written, nor read.
    assert!(moved(keeping(), code) + 3 * value <= moved(never(), code));
    agrees(&format!("{DATA}{code}\nstr(g.tolist())"));
}

#[test]
fn an_operand_that_only_the_value_needs_takes_no_more_memory() {
    // Two operands of the size of the value, which nothing else keeps.
    let two =
        "let d = big.exp() @ ones(12, 12) + big.sin() @ ones(12, 12)\nlet p = d @ w\nlet q = (d * 2).sum(0)";
    assert_eq!(moved(keeping(), two), moved(never(), two));
    // One, which nothing else keeps either.
    let one = "fn f() {\n    let d = (big.exp() @ ones(12, 12) + y) * 0.5\n    let p = exp(d) @ w\n    (p, (d * 2).sum(0))\n}\n\
               let (p, q) = f()";
    assert_eq!(moved(keeping(), one), moved(never(), one));
    agrees(&format!("{DATA}{one}\nstr((p.tolist(), q.tolist()))"));
    let held = one.replace("(big.exp() @ ones(12, 12) + y)", "(big + y)");
    assert!(moved(keeping(), &held) < moved(never(), &held));
    agrees(&format!("{DATA}{held}\nstr((p.tolist(), q.tolist()))"));
}

#[test]
fn an_open_group_may_write_or_read_the_value() {
    let two = "let u = begin(480).reshape(40, 12)\nlet v = u * 2\nlet a = u[5] - 1\n";
    agrees(&format!("{DATA}{two}v[7] = a\nstr((v.tolist(), a.tolist(), u.tolist()))"));
    agrees(&format!(
        "{DATA}{two}let b = v[5] + a\nlet c = v[.., 3].sum()\nstr((b.tolist(), c.item(), v.tolist()))"
    ));
    agrees(&format!("{DATA}{two}u[3] = a\nlet b = v.sum(0)\nstr((b.tolist(), v.tolist(), u.tolist()))"));
}

#[test]
fn work_that_reads_a_waiting_value_runs_before_the_open_group() {
    // The gradient of the penalty waits. It is added to the first sum of rows while the products for the second are pending:
    // both sums compute the products.
    let data = "let (n, d, m) = (17_000, 64, 40_000)\nlet (i, j) = (arange(m) * 7 % n, arange(m) * 13 % n)\n\
                let begin = |k| ((arange(n * d) * k % 101).float() / 101).reshape(n, d).requires_grad_()\n\
                let (u, v) = (begin(37), begin(91))\n";
    let code = "let off = (u[i] * v[j]).sum(1)\n\
                (off.square().sum() + 0.1 * (u.square().sum() + v.square().sum())).backward()\n\
                str(map(|t| t.view(i32).sum().item(), [u.grad, v.grad]))";
    let labels = launched(data, code, |launch| launch.program.label.clone());
    let sums: Vec<_> = labels.iter().filter(|label| label.contains("scatter")).collect();
    assert_eq!(sums, ["mul+scatter_sum"; 2], "{labels:?}");
    let text = format!("{data}{code}");
    assert_eq!(ends(&text, true), ends(&text, false));
}
