//! Values at indices are read by the launches that use them (`plan/gather.rs`): fewer launches, the same bits, and the
//! same errors.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, costs_the_same, ends, fails, fits, launched};

/// The programs that `code` launches, after `before` has run.
fn launches(before: &str, code: &str) -> Vec<String> {
    launched(before, code, |launch| launch.program.label.clone())
}

const DATA: &str = "let (t, u, x, y) = (rand(40, 32), rand(30, 32), rand(300, 32), none)\n\
                    let (i, j) = (arange(300) * 17 % 40, arange(300) * 11 % 30)\n\
                    let (p, q) = (i.reshape(60, 5), arange(32) * 7 % 32)";

#[test]
fn values_that_are_read_once_are_not_stored() {
    let one = |code: &str| {
        let all = launches(DATA, code);
        assert!(all.len() == 1 && all[0] != "gather", "{all:?}\n{code}");
    };
    one("y = t[i] * 2");
    one("y = t[i] + u[j]");
    one("y = (t[i] * u[j]).sum(1)");
    one("y = (t[i] * x).mean(0)");
    one("y = t.index_select(1, q).exp()");
    one("y = t.gather(1, p[0..40, 0..5]).sum()");
    one("y = embedding_sum()\nfn embedding_sum() { x[i, 0..8].abs().sum(1) }");
    // Several reductions share a launch.
    one("y = [(x * t[i]).sum(0), (x * u[j]).sum(0)]");
    one("let d = x - 1\ny = [(d * t[i]).sum(0), d.sum(0), (d * u[j]).amax(0)]");
    // Views of the values: parts, transposed, split and broadcast.
    one("y = t[i][.., 1..].sin()");
    one("y = t[i].T * x.T");
    one("y = t[p] * x.reshape(60, 5, 32)");
    one("y = x.reshape(300, 1, 32) - t[i][none]");
    one("y = t[p].reshape(300, 32) * x");
    one("y = (t[p].flatten(0, 1) * x).sum(1)");
}

/// The launches of `code`: for each, its gathered views, and all views that it has.
fn views(code: &str) -> Vec<(usize, usize)> {
    launched(DATA, code, |launch| {
        let gathered = launch.views.iter().filter(|view| view.indexed.is_some()).count();
        (gathered, launch.views.len())
    })
}

#[test]
fn indices_of_single_elements_are_computed_where_they_are_read() {
    let data = "let (f, c) = (t.flatten(), x[.., 0])\n";
    let of = |code: &str| views(&format!("{data}{code}"));
    // One launch: the index's place and operands, the source, other operands, the result.
    assert_eq!(of("y = f[(i * 3 + j) % 900] * 2"), [(1, 5)]);
    assert_eq!(of("y = f[(c * 30).floor().to(i64) * 2 + 1] * c"), [(1, 4)]);
    assert_eq!(of("y = (f[(c * 30).to(i64)] * x[.., 1]).sum()").last(), Some(&(1, 5)));
    assert_eq!(of("y = f[(i ^ 5) & 15]"), [(1, 3)]);
    // Gathers share what their indices read.
    assert_eq!(of("y = f[i + j] + f[i + j + 1] * f[j - i]"), [(3, 9)]);
    assert_eq!(of("y = u.gather(1, (p[0..30] + 1) % 32) + 1"), [(1, 4)]);
    assert_eq!(of("y = (t[i % 7, j] * c).T"), [(1, 6)]);
    // The index is also stored for its variable.
    assert_eq!(of("let k = (i * 3) % 40\ny = f[k] * 2\ny = (y, k)"), [(1, 5)]);
    // An index of rows is stored, and so is one that is written in between.
    assert_eq!(of("y = (t[(i + 1) % 40] * x).sum()"), [(0, 2), (1, 4)]);
    assert_eq!(of("let k = i + 1\nlet v = f[k]\nk.add_(1)\ny = v * 2").len(), 2);
}

/// An iteration that fills a group begins with an index of several operations. They are one call, which is not cut.
#[test]
fn an_index_of_several_operations_begins_an_iteration() {
    let body =
        "v = t[i, j] - v / 3 + v.abs() * 2 - v / 5 + v.sin() - v / 7 + v.abs() * 3 - v / 9 + v.abs() * 2";
    let all = launches(&format!("{DATA}\nlet v = x[.., 0]"), &format!("for _ in 0..8 {{ {body} }}\ny = v"));
    assert!(all.len() <= 8, "{all:?}");
}

/// Reading a value at a computed index and writing an operand of the index, in every order.
#[test]
fn operands_of_indices_may_be_written() {
    let data = "let (t, i, c) = (arange(96).float() * 37 % 101, arange(24) * 5 % 24, arange(24).float() * 3 % 7)\n\
                let (x, s) = (zeros(24), 0)\n";
    let reads = ["t[(i * 3 + 1) % 96]", "t[(c * 5).to(i64) + i]", "t[48..].gather(0, (i + 7) % 48)"];
    let writes =
        ["i.add_(1)", "i[3..9] = 2", "c.mul_(0.5)", "t.add_(1)", "t[5..70] = 4", "i.copy_(i.flip(0))"];
    for read in reads {
        for write in writes {
            for between in ["", "x = v * 2", "s = v.sum()", "x = x + i", "s = (i + c).sum()"] {
                for after in ["x = v + x", "x[2..] = v[2..]", "s = v.amax() + s", "x = v.sort().values"] {
                    agrees(&format!(
                        "{data}let k = i * 2\nlet v = {read}\n{between}\n{write}\n{after}\n\
                         str((x.tolist(), (s + x * 0).tolist(), i.tolist(), c.tolist(), t.tolist(), k.tolist()))"
                    ));
                    agrees(&format!(
                        "{data}let y = i + c\n{write}\nlet v = {read}\n{between}\n{after}\nstr((x.tolist(), (s + x * 0).tolist(), y.tolist()))"
                    ));
                }
            }
        }
    }
}

#[test]
fn values_that_something_else_needs_are_stored_once() {
    let count = |code: &str| launches(DATA, code).iter().filter(|label| *label == "gather").count();
    // A product, a second reader in a chain of rows, a view that mixes dimensions.
    assert_eq!(count("y = t[i] @ x.T"), 1);
    assert_eq!(count("y = (t[i] + x).softmax(1)"), 1);
    assert_eq!(count("y = t[i].flatten() + 1"), 1);
    // Rows that are read again, and small values of a chain that is one launch.
    assert_eq!(count("y = (t[i] + x).square()\ny = y / y.sum(1, keepdim=true)"), 1);
    assert_eq!(launches(DATA, "y = (((t[i] * x).sum(1) + 1).sum() / 2).sin()").len(), 2);
    // An index that the reader does not use may be out of range.
    assert_eq!(count("y = t[i][3..200].sin()"), 1);
    // The variable refers to it when the work must be complete.
    assert_eq!(count("y = t[i]\nlet z = y * 2"), 1);
    // Nothing reads it, but an index may be out of range.
    assert_eq!(count("t[i]"), 1);
    assert_eq!(count("let z = t[i] * 2\nz = none"), 1);
}

#[test]
fn recorded_values_are_gathered_again() {
    let before = "let n = 400\nlet (u, v) = (rand(40, 32).requires_grad_(), rand(30, 32).requires_grad_())\n\
                  let (i, j) = (arange(n) * 17 % 40, arange(n) * 11 % 30)\n\
                  fn step() { (u[i] * v[j]).sum(1).square().sum().backward() }";
    let all = launches(before, "step()");
    assert!(!all.contains(&"gather".to_string()), "{all:?}");
}

/// From its second iteration on, a loop launches the same programs.
/// An interpolation in an image of 40 x 32: one gather per corner, with indices and weights over the shape of the result
/// or a smaller one.
const CORNERS: &str = "let (px, py) = (x[0..60, 0] * 38, x[0..60, 1] * 30)\n\
    fn plain() {\n\
    let (i0, j0) = (px.floor(), py.floor())\n\
    let sum = zeros(60)\n\
    for a in 0..2 { for b in 0..2 {\n\
    let (wi, wj) = (1 - (px - i0 - a).abs(), 1 - (py - j0 - b).abs())\n\
    sum = sum + wi * wj * t.flatten()[((i0 + a) * 32 + j0 + b).to(i64)] } }\n\
    sum }\n\
    fn batched() {\n\
    let images = t.reshape(10, 4, 32)\n\
    let (cy, cx) = (x[0..3, 0] * 2, x[0..29, 1] * 30)\n\
    let sum = zeros(10, 3, 29)\n\
    for a in 0..2 { for b in 0..2 {\n\
    let (row, column) = ((cy.floor() + a).to(i64), (cx.floor() + b).to(i64))\n\
    sum = sum + (1 - (cy - row).abs()).unsqueeze(1) * (1 - (cx - column).abs()) * images[.., row.unsqueeze(1), column]\n\
    } }\n\
    sum }";

#[test]
fn sums_of_gathers_are_one_launch() {
    let before = format!("{DATA}\n{CORNERS}");
    // Two launches per corner compute an index at most; the sum is stored once.
    let stores = |code: &str, shape: &[usize]| {
        let sums = launched(&before, code, |launch| {
            let count: usize = launch.shape.iter().product();
            let own = count == shape.iter().product::<usize>() && launch.program.label.contains("add");
            let gathers = launch.views.iter().filter(|view| view.indexed.is_some()).count();
            (own && launch.program.label != "gather").then_some(gathers)
        });
        sums.into_iter().flatten().filter(|gathers| *gathers > 0).collect::<Vec<_>>()
    };
    assert_eq!(stores("y = plain()", &[60]), [4]);
    assert_eq!(stores("y = batched()", &[10, 3, 29]), [4]);
    // Sixteen gathers are two sums.
    let taps = "let sum = zeros(300)\nfor a in 0..4 { for b in 0..4 { sum = sum + x[.., a] * t.flatten()[(i + a) * 28 + j + b] } }\n\
        y = sum";
    assert_eq!(stores(taps, &[300]), [8, 8]);
    agrees(&format!("{before}\nstr((plain().tolist(), batched().tolist()))"));
}

#[test]
fn sums_of_gathers_ask_for_the_same_programs_in_every_round() {
    let before = format!("{DATA}\n{CORNERS}");
    let taps = "for k in 0..24 { sum = sum + x[.., 1] * t.flatten()[(i + k) * 20 + j] * u.flatten()[j + k] }";
    for body in [
        "all.append(plain())",
        "all.append(batched() * r)",
        "let sum = zeros(300)\n    KTAPS\n    all.append(sum)",
    ] {
        let code = format!("let all = []\nfor r in 0..12 {{\n    {}\n}}", body.replace("KTAPS", taps));
        let all =
            launched(&before, &code, |launch| (launch.program.kind.fingerprint(), launch.shape.clone()));
        // The last round ends with the script.
        let (first, later) = all.split_at(all.len() / 2);
        let later = &later[..later.len() * 2 / 3];
        assert!(later.iter().all(|launch| first.contains(launch)), "{code}");
    }
}

/// A program that adds up several gathers whose indices and weights it computes in between.
fn random_sum(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let mut text = String::from(
        "let (t, w) = ((arange(120).float() * 37 % 11).reshape(12, 10), arange(30).float() * 7 % 5)\n\
         let (p, q) = (arange(48).reshape(6, 8) * 5 % 11, arange(8) * 3 % 9)\n\
         let (sum, other, base) = (zeros(6, 8), zeros(8), arange(8).float())\n\
         fn near(x) { let y = x.abs(); where(y <= 1, 1 - y, y - 1) }\n",
    );
    text += &format!("for k in 0..{} {{\n", [1, 2, 5, 20][draw(4)]);
    for _ in 0..1 + draw(8) {
        let index =
            ["(p + k) % 12", "(p * 2 + 1) % 12", "q", "(base + k).to(i64) % 9", "p", "(p + arange(8)) % 12"]
                [draw(6)];
        let column = ["q", "(q + k) % 10", "near(base - k).to(i64) % 10", "p % 10", "p[0] % 10"][draw(5)];
        text += &match draw(14) {
            12 => format!(
                "    let v = sum * t[{index}, {column}]\n    other = v.sum(0) % 13 + (w[{index}] - sum).amax(0)\n"
            ),
            13 => format!(
                "    let d = sum - w[{index}]\n    base = (d * w[q]).sum(0) % 9 + (d + t[{index}, {column}]).sum(0) % 7\n"
            ),
            0 => format!("    sum = sum + w[{index}]\n"),
            1 => format!("    sum = sum + near(base - k) * t[{index}, {column}]\n"),
            2 => format!(
                "    let f = near(base * k - 3)\n    sum = sum % 17 + f.unsqueeze(0) * t[{index}, {column}]\n"
            ),
            3 => format!(
                "    other = other + w[({index} + {column}) % 29].sum(0) % 7\n    sum = sum + other\n"
            ),
            4 => format!("    let i = {index}\n    sum = sum + t[i, {column}] * (i % 3)\n"),
            5 => "    base = base + 1\n".to_string(),
            6 => format!("    sum[1..3] = t[{index}, {column}].expand(6, 8)[1..3]\n"),
            7 => "    q.copy_((q + 1) % 9)\n".to_string(),
            8 => format!("    p.copy_(({index} + k).expand(6, 8) % 11)\n    sum = sum + t[p, {column}]\n"),
            9 => format!("    let i = sum.to(i64) % 12\n    sum = sum + t[i, {column}] % 5\n"),
            10 => format!(
                "    let v = t[{index}, {column}] - sum\n    sum = v.amax(-1, keepdim=true) - v + near(base)\n"
            ),
            _ => format!("    w[q] += 1\n    sum = sum - w[{index}] * near(base - 2)\n"),
        };
    }
    text + "    sum = sum % 101\n    w = w % 13\n}\nstr((sum.tolist(), other.tolist(), base.tolist(), w.tolist()))"
}

#[test]
fn sums_of_gathers_have_the_bits_without_fusion() {
    for seed in 0..200 {
        agrees(&random_sum(seed));
    }
}

#[test]
fn loops_repeat_their_launches() {
    let body = "y = y + t[i] * u[j].tanh()\n    t.mul_(0.5)\n    let k = (t[i] * x).sum(1)\n    y[.., 0] = k";
    let of = |rounds: usize| {
        launches(DATA, &format!("y = zeros(300, 32)\nfor _ in 0..{rounds} {{\n    {body}\n}}"))
    };
    let (four, five, six) = (of(4), of(5), of(6));
    assert_eq!(six.len() - five.len(), five.len() - four.len());
    let known: std::collections::BTreeSet<&String> = of(2).leak().iter().collect();
    assert!(six.iter().all(|label| known.contains(label)), "{six:?}");
}

/// A program that selects by indices.
fn random_program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = ["float()", "double()", "half()", "to(i64)", "to(i32)", "to(u8)"][draw(6)];
    let ids = ["", ".to(i32)"][draw(2)];
    let mut text = format!(
        "let begin = |n| (arange(n).float() * 37 % 11 * 3).{dtype}\n\
         let (t, w, x, y) = (begin(96).reshape(12, 8), begin(80).reshape(20, 4), begin(24 * 8).reshape(24, 8), \
         begin(24))\n\
         let (i, j) = ((arange(24) * 7 % 12 - 4){ids}, (arange(24) * 5 % 8){ids})\n\
         let (p, n) = (i.reshape(6, 4), i[3])\n"
    );
    text += &format!("for k in 0..{} {{\n", [1, 3, 20][draw(3)]);
    for _ in 0..2 + draw(9) {
        let source = ["t", "x[12.., ..]", "t[.., none, ..].squeeze(1)", "x[0..12]", "(t + 1)"][draw(5)];
        let index = ["i", "i", "(i + k % 3)", "j", "i.flip(0)", "(i * 3 % 7)", "i[none].squeeze(0)"][draw(7)];
        let rows = match draw(7) {
            0 => format!("{source}.index_select(0, {index})"),
            1 => format!("{source}[{index}.clamp(0, 11)] * 2"),
            2 => format!("x.gather(0, ({index} + 12)[.., none].expand(24, 8).to(i64))"),
            3 => format!("t.T[j][.., 0..8] - {source}[{index}]"),
            4 => format!("embedding({index} % 5 + 4, {source})"),
            _ => format!("{source}[{index}]"),
        };
        let value = match draw(5) {
            0 => "t[n]".to_string(),
            1 => format!("t[{index}, j]"),
            2 => format!("w[{index}.clamp(0, 11)][.., 0]"),
            3 => "t[p][1, 2]".to_string(),
            _ => format!("t[{index}][.., 3]"),
        };
        text += &match draw(16) {
            0 => format!("    x = x + {rows}\n"),
            1 => format!("    x = where(x > 3, {rows}, x)\n"),
            2 => format!("    y = ({rows} * x).sum(1)\n"),
            3 => format!("    t = (({rows}) * x).sum(0) + t\n"),
            4 => format!("    let v = {rows}\n    t.mul_(2)\n    x = x - v\n"),
            5 => format!("    let v = {rows}\n    v.add_(1)\n    x = v + x % 7\n"),
            6 => format!("    let v = {rows}\n    i.copy_(i.flip(0))\n    x = x % 5 + v\n"),
            7 => format!("    t[2..5] = ({rows})[2..5]\n"),
            8 => format!("    x = ({rows}).roll(1, 0) + x\n"),
            9 => format!("    let v = {rows}\n    x = v + v.T.T\n    y = v[.., 1]\n"),
            10 => format!("    y = ({value}).amax() + y\n"),
            11 => "    x = x % 11 + t[p].reshape(24, 8)\n".to_string(),
            12 => "    x = t[p].amax(1)[none].expand(4, 6, 8).reshape(24, 8)\n".to_string(),
            13 => {
                format!("    let v = {rows}\n    if k == 1 {{ print(v.sum().item()) }}\n    x = x % 3 - v\n")
            }
            14 => format!("    x[.., 1..] = ({rows})[.., 1..]\n"),
            _ => format!("    w[{index}.clamp(0, 11)] += 1\n    y = y + w[{index}][.., 1]\n"),
        };
        text += "    t = t % 13\n";
    }
    text + "}\nlet none_of = t[i[0..0]] * 2\nstr((x.tolist(), y.tolist(), t.tolist(), none_of.shape))"
}

#[test]
fn the_bits_are_those_without_fusion() {
    for seed in 0..200 {
        agrees(&random_program(seed));
    }
}

#[test]
fn gradients_are_those_without_fusion() {
    let sizes = [(40, 16, 200), (7, 3, 50), (300, 64, 20)];
    let losses = [
        "(u[i] * v[j]).sum(1).square().mean()",
        "(embedding(i % 7, u) - v[j]).abs().sum()",
        "(u[i] + v[j]).softmax(1).log().mean()",
        "((u[i] * 2).sum(0) * v.index_select(0, j).mean(0)).sum()",
        "(u.gather(0, (i[.., none] % 7).expand(-1, u.shape[1])) * u[i]).sum()",
    ];
    for (rows, width, count) in sizes {
        for loss in losses {
            let code = format!(
                "let begin = |n, m| ((arange(n * m) * 37 % 101).float() / 50 - 1).reshape(n, m)\n\
                 let (u, v) = (begin({rows}, {width}).requires_grad_(), begin(9, {width}).requires_grad_())\n\
                 let (i, j) = (arange({count}) * 7 % {rows} - {rows}, arange({count}) * 5 % 9)\n\
                 for k in 0..3 {{\n    ({}).backward()\n    with no_grad() {{\n\
                 for p in [u, v] {{\n        if p.grad != none {{ p.sub_(0.1 * p.grad) }}\n        p.grad = none\n    }}\n    }}\n}}\n\
                 str((u.tolist(), v.tolist()))",
                loss.replace("embedding(i % 7", "embedding((i + 700) % 7")
            );
            assert_eq!(ends(&code, true), ends(&code, false), "{code}");
        }
    }
}

#[test]
fn an_index_out_of_range_is_reported_at_its_line() {
    let data = "let (t, x) = (rand(12, 8), rand(24, 8))\nlet i = arange(24) % 12\nlet j = arange(24) % 12\n";
    for spoil in
        ["i[7] = 12", "i[23] = -13", "i[0] = 1000000000000", "j[5] = 99\ni[20] = 12", "i[20] = 12\nj[5] = 99"]
    {
        for code in [
            "let a = t[i] * 2\nprint(a.sum().item())",
            "let a = t[i]\nlet b = t[j]\nlet c = a + b\nprint(c.sum().item())",
            "let a = t[j]\nlet b = t[i]\nlet c = (b * a).sum(1)\nprint(c[0].item())",
            "let a = (t[i] * x).sum(0)\nprint(a.tolist())",
            "let (a, b) = (t[i], t[j])\nlet c = [(x * a).sum(0), (x * b).sum(0)]\nprint(c[0].tolist(), c[1].tolist())",
            "let a = t[i].T * 2\nprint(a[0, 0].item())",
            "let a = t[i]\nlet b = a[9..12] * 2\na = none\nprint(b[0, 0].item())",
            "let a = t[i.reshape(4, 6).T]\nlet b = a.exp()\nprint(b.sum().item())",
            "t[i] * 2\nprint(t.sum().item())",
            "let a = t.index_select(0, i)\ni.fill_(0)\nlet b = a * 2\nprint(b.sum().item())",
            "let a = t[i, j % 8]\nlet b = a + 1\nprint(b.sum().item())",
            "let a = t[.., 0][i + 0] * 2\nprint(a.sum().item())",
            "let a = t[.., 0][i * 1]\nlet b = a * 2\nlet c = t[i + 0, j % 8] + b\nprint(c.sum().item())",
            "let a = t[.., 1][(i.reshape(4, 6) * 1).T]\nlet b = a.exp()\nprint(b.sum().item())",
            "let a = t.gather(1, (i.reshape(3, 8) + 0)[.., 1..5])\nlet b = a.T * 2\nprint(b[1, 2].item())",
            "let a = (t[.., 0][(i * 2.0).to(i64) // 2] * x[.., 0]).sum()\nprint(a.item())",
            "let a = t[.., 0][i + 0][9..12] * 2\nprint(a[0].item())",
            "t[.., 0][i + 0]\nprint(t.sum().item())",
        ] {
            let spoiled = if code.contains('i') && !code.contains("t[j]") {
                spoil.replace("j[5] = 99", "")
            } else {
                spoil.into()
            };
            let code = format!("{data}{spoiled}\n{code}\n\"\"");
            let host = format!("with device(cpu) {{\n{code}\n}}");
            for code in [code, host] {
                assert_eq!(fails(&code, true), fails(&code, false), "{code}");
            }
        }
    }
}

/// Another stream may only write what has been read.
#[test]
fn races_see_the_source_and_the_index() {
    let data = "let (t, i) = (rand(12, 8), arange(24) % 12)\nlet s = Stream()\ns.wait_stream(cuda.current_stream())\n\
                let y = t[i] * 2\nwith stream(s) {\n    TOUCH\n}\n\"\"";
    for (touch, read) in [("t.add_(1)", "t[i]"), ("i.add_(1)", "t[i]"), ("i.add_(1)", "t[.., 0][i + 0]")] {
        let code = data.replace("TOUCH", touch).replace("t[i]", read);
        let (fused, apart) = (fails(&code, true), fails(&code, false));
        assert_eq!(fused, apart, "{code}");
        assert!(fused.contains("E0601"), "{fused}");
        // With the wait, the old values are read.
        let code = format!(
            "let (t, i) = (arange(96).reshape(12, 8), arange(24) % 12)\nlet s = Stream()\nlet y = t[i] * 2\n\
             let z = t[i]\ns.wait_stream(cuda.current_stream())\nwith stream(s) {{\n    {touch}\n}}\n\
             cuda.current_stream().wait_stream(s)\nstr((y.tolist(), (z + 1).tolist()))"
        )
        .replace("t[i]", read);
        assert_eq!(ends(&code, true), ends(&code, false), "{code}");
    }
}

/// An index that another stream still computes, at the same place in its queue as other work in that of this stream.
#[test]
fn indices_of_other_streams_are_theirs() {
    let code = "let (t, i) = (arange(96).float(), arange(24))\ncuda.synchronize()\nlet s = Stream()\n\
                with races(\"allow\") {\n    let z = i + 1\n    let k = with stream(s) { i * 4 }\n    let v = t[k] * 2\n    \
                str((v.tolist(), z.tolist()))\n}";
    // The index may not be there yet, but the values are not those at `z`.
    let end = ends(code, true);
    assert!(!end.contains("([2.0, 4.0, 6.0"), "{end}");
}

#[test]
fn graphs_repeat_gathers() {
    let code = "let (t, i) = (rand(12, 8), arange(24) % 12)\nlet g = cuda.graphed(|t, i| (t[i] * 2).sum(1), [t, i])\n\
                let a = [g(t, i).clone(), g(t + 1, 11 - i).clone(), g(t, -1 - i).clone()]\n\
                let b = [(t[i] * 2).sum(1), ((t + 1)[11 - i] * 2).sum(1), (t[-1 - i] * 2).sum(1)]\n\
                str(all(map(|(a, b)| equal(a, b), zip(a, b))))";
    let text = ends(code, true);
    assert_eq!(text, "true");
}

/// What is read at indices is charged like other operations.
#[test]
fn fuel_does_not_depend_on_fusion() {
    let code = "let (t, i) = (rand(12, 8), arange(24) % 12)\nlet y = (t[i] * 2).sum(1)\nstr(y.shape)";
    costs_the_same(code);
}

/// A result that waits does not keep memory that another request needs.
#[test]
fn sources_are_freed_when_memory_is_short() {
    for code in [
        "x = x[i]\nlet y = zeros(10 * n)\nstr(x.sum().item() + y.sum().item())",
        "x = x[i] * 2\nlet y = zeros(10 * n)\nstr(x.sum().item() + y.sum().item())",
        "let k = x[i]\nx = none\nlet z = k + 1\nlet y = zeros(10 * n)\nstr(z.sum().item() + k.sum().item())",
        "x[i]\nx = none\nlet y = zeros(10 * n)\nstr(y.sum().item())",
    ] {
        let code = format!("let n = 1 << 20\nlet (x, i) = (zeros(10 * n), arange(n))\n{code}");
        fits(&code, 72 << 20);
    }
}

/// No kernel has both kinds of loads.
#[test]
fn one_operation_reads_padded_turned_and_gathered_values() {
    let data = "let (u, n) = ((arange(12).float() * 37 % 11).reshape(2, 6), arange(8.0))\n(u.sum() + n.sum()).item()\n";
    for bent in
        ["u.pad([1, 1])", "u.clone().pad([1, 1], mode=\"circular\")", "n.roll(3)", "(u * 2).pad([2, 0])"]
    {
        for gathered in [
            "n[tensor([3])]",
            "(n + n).gather(0, tensor([1]))",
            "n[arange(8) * 3 % 8]",
            "u[tensor([1, 0]), 2][0]",
        ] {
            for read in ["p - g", "g * p", "(p + 1) * (g - 1)", "where(p > g, p, g)"] {
                agrees(&format!(
                    "{data}let g = {gathered}\nlet p = {bent}\nlet v = {read}\nlet w = (g, p)\ng = none\np = none\n\
                     w = none\nstr(v.tolist())"
                ));
                agrees(&format!(
                    "{data}let g = {gathered}\nlet p = {bent}\nlet v = {read}\nstr((v.tolist(), g.tolist()))"
                ));
                agrees(&format!(
                    "{data}let f = || {{\n    let g = {gathered}\n    let p = {bent}\n    {read}\n}}\nstr(f().tolist())"
                ));
            }
        }
    }
}

#[test]
fn parts_of_complex_values_are_read() {
    let code = "let t = complex(arange(96).float(), arange(96).float() * 3).reshape(12, 8)\nlet i = arange(24) % 12\n\
                str((view_as_real(t[i]) * 2, (t[i] * t[-1 - i]).sum(1).abs(), t[i].real + t[i].imag))";
    assert_eq!(ends(code, true), ends(code, false));
}
