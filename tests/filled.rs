//! A group that overwrites most of what the group before it computes is one launch with it (`plan/fill.rs`).

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, launched};

/// The number of launches of `code` and the bytes that they access, after `before` has run.
fn launches(before: &str, code: &str) -> (usize, u64) {
    let code = format!("if true {{\n{code}\n}}");
    let all = launched(before, &code, |launch| launch.program.kind.bytes(launch));
    (all.len(), all.iter().sum())
}

const DATA: &str = "let (u, w, v) = (rand(64, 96), rand(64, 96), none)\nlet n = u.clone()\n";
const LAPLACE: &str = "u[..-2, 1..-1] + u[2.., 1..-1] + u[1..-1, ..-2] + u[1..-1, 2..] - 4 * u[1..-1, 1..-1]";

#[test]
fn the_border_and_the_interior_are_one_launch() {
    for code in [
        format!("v = u.clone()\nv[1..-1, 1..-1] = u[1..-1, 1..-1] + 0.1 * ({LAPLACE})"),
        format!("v = zeros_like(u)\nv[1..-1, 1..-1] = {LAPLACE}"),
        format!("v = u * 2\nv[1..-1, 1..-1] = {LAPLACE}"),
        format!("v = empty_like(u)\nv.copy_(w)\nv[1..-1, 1..-1] = w[1..-1, 1..-1] * ({LAPLACE})"),
        "v = u.clone()\nv[.., 1..] = u[.., 1..] - u[.., ..-1]".into(),
        "v = w.clone()\nv[8.., 3..] = u[..-8, ..-3]".into(),
    ] {
        let (count, _) = launches(DATA, &code);
        assert_eq!(count, 1, "{code}");
    }
}

#[test]
fn several_parts_are_one_launch() {
    for code in [
        // Differences beside zeros, along both axes; their sum.
        "v = zeros(2, 64, 96)\nv[0, ..-1] = u[1..] - u[..-1]\nv[1, .., ..-1] = u[.., 1..] - u[.., ..-1]",
        "v = u * 2\nv[1..] -= u[..-1]\nv[.., 1..] -= w[.., ..-1]\nn = (u, w)",
        "v = u * 2\nv[..32] = w[..32].exp()\nv[32..] += w[..32]",
        // Work over another shape in between.
        "v = zeros(64, 96)\nlet k = (u[0] * 2 + 1).exp()\nv[..-1] = u[1..] - u[..-1]\nn = k",
    ] {
        let (count, _) = launches(DATA, code);
        let most = if code.contains("let k") { 2 } else { 1 };
        assert!(count <= most, "{count}: {code}");
    }
}

#[test]
fn a_step_reads_and_writes_each_element_once() {
    let code = |steps: usize| {
        format!(
            "for i in 0..{steps} {{\n    let v = u.clone()\n    \
             v[1..-1, 1..-1] = u[1..-1, 1..-1] + 0.1 * ({LAPLACE})\n    u = v\n}}"
        )
    };
    let (four, _) = launches(DATA, &code(4));
    let (five, _) = launches(DATA, &code(5));
    assert_eq!(five - four, 1);
}

#[test]
fn other_groups_stay_apart() {
    let count = |code: &str| launches(DATA, code).0;
    // A small part, several parts, another view of the elements.
    assert_eq!(count("v = u * 2\nv[0] = w[0].exp()"), 2);
    assert_eq!(count("v = u * 2\nv.T[1.., 1..] = w.T[1.., 1..].exp()"), 2);
    // What the later group computes is needed elsewhere.
    assert_eq!(count("let k = w[1.., 1..] * 2\nv = u * 2\nv[1.., 1..] = k\nw = k"), 2);
    // The later group reads what the earlier one computes.
    assert_eq!(count("v = (u * 2).exp().sin()\nv[1.., 1..] = v[..-1, ..-1] * 2"), 3);
}

/// A program that overwrites parts.
fn random_program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = ["f32", "f64", "f16", "bf16", "i64", "u8", "bool"][draw(7)];
    let (rows, columns) = (7 + draw(3), 9 + draw(60));
    let mut text = format!(
        "let begin = |k| ((arange({n}) * 37 + k) % 11).reshape({rows}, {columns}).to({dtype})\n\
         let (x, y, v) = (begin(1), begin(5), begin(3))\n",
        n = rows * columns
    );
    text += &format!("for k in 0..{} {{\n", [1, 3, 12][draw(3)]);
    for _ in 0..1 + draw(5) {
        let ends: Vec<usize> = (0..4).map(|_| draw(3)).collect();
        let (height, width) = (rows - ends[0] - ends[1], columns - ends[2] - ends[3]);
        let part =
            |down: usize, right: usize| format!("[{down}..{}, {right}..{}]", down + height, right + width);
        let hole = part(ends[0], ends[2]);
        let whole =
            ["x.clone()", "zeros_like(x)", "x + y", "y.clone()", "x.T.clone().T", "full_like(x, 1)"][draw(6)];
        let shifted = part(draw(rows - height + 1), draw(columns - width + 1));
        let value = match draw(7) {
            0 => format!("x{shifted}"),
            1 => format!("x{shifted} + y{hole}"),
            2 => format!("where(x{shifted} > y{hole}, x{hole}, y{shifted})"),
            3 => format!("(x + y){shifted}"),
            4 => format!("y[0, {}..{}]", ends[2], ends[2] + width),
            5 => format!("x.pad([1, 1, 1, 1]){shifted}"),
            _ => format!("x{hole} * y{shifted} + x{shifted}"),
        };
        text += &match draw(9) {
            0 => format!(
                "    let next = {value}\n    v = {whole}\n    v{hole} = next\n    x = v.to({dtype})\n"
            ),
            1 => format!("    v = {whole}\n    v{hole} = {value}\n    v[0] = y[0]\n    x = v\n"),
            2 => format!("    v = {whole}\n    v{hole} = {value}\n    y = (v + x).to({dtype})\n"),
            3 => format!(
                "    let next = {value}\n    v = {whole}\n    v{hole} = next\n    x = v\n    y{hole} = next\n"
            ),
            4 => format!("    v = {whole}\n    x.copy_(y)\n    v{hole} = {value}\n    x = v\n"),
            5 => format!("    v = {whole}\n    v{hole} = {value}\n    x.copy_(v)\n"),
            6 => format!("    x{hole} = {value}\n"),
            7 => format!(
                "    v = {whole}\n    v{hole} = {value}\n    if k == 1 {{ print(v.sum().item()) }}\n    x = v\n"
            ),
            _ => format!("    v = {whole}\n    v{hole} = {value}\n    x = v\n"),
        };
        if dtype != "bool" {
            text += "    x = x % 13\n    y = y % 7\n";
        }
    }
    text + "}\nstr((x.tolist(), y.tolist(), v.tolist()))"
}

#[test]
fn the_bits_are_those_without_fusion() {
    for seed in 0..300 {
        agrees(&random_program(seed));
    }
}

/// Elements that are not overwritten keep their bits, also those of nan.
/// A program that assembles a tensor of several parts, some of which overlap, and updates parts in place.
fn assembling_program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = ["f32", "f64", "f16", "bf16", "i64", "u8"][draw(6)];
    let (planes, rows, columns) = (1 + draw(3), 6 + draw(3), 9 + draw(40));
    let mut text = format!(
        "let begin = |k, shape| ((arange(prod(shape)) * 37 + k) % 11).reshape(shape).to({dtype})\n\
         let (x, y) = (begin(1, ({rows}, {columns})), begin(5, ({rows}, {columns})))\n\
         let v = begin(3, ({planes}, {rows}, {columns}))\nlet s = begin(2, ({columns},))\n\
         for k in 0..{} {{\n",
        [1, 3][draw(2)]
    );
    let plane =
        ["x.expand({planes}, -1, -1) + y", "v.clone()", "zeros_like(v)", "v * 2 - x", "full_like(v, 3)"]
            [draw(5)]
        .replace("{planes}", &planes.to_string());
    text += &format!("    let g = {plane}\n");
    for _ in 0..1 + draw(4) {
        let p = draw(planes);
        let ends: Vec<usize> = (0..4).map(|_| draw(3)).collect();
        let (height, width) = (rows - ends[0] - ends[1], columns - ends[2] - ends[3]);
        let part =
            |down: usize, right: usize| format!("{down}..{}, {right}..{}", down + height, right + width);
        let (hole, other) =
            (part(ends[0], ends[2]), part(draw(rows - height + 1), draw(columns - width + 1)));
        let value =
            ["x[{o}]", "x[{o}] * y[{h}]", "x[{h}] - y[{o}]", "g[{p}, {h}] + x[{o}]", "v[{p}, {o}]", "s[{c}]"]
                [draw(6)];
        let value = (value.replace("{o}", &other).replace("{h}", &hole).replace("{p}", &p.to_string()))
            .replace("{c}", &format!("{}..{}", ends[2], ends[2] + width));
        text += &match draw(7) {
            0 => format!("    g[.., {hole}] = {value}\n"),
            1 => format!("    g[{p}, {hole}] += {value}\n"),
            2 => format!("    g[.., {hole}] -= {value}\n"),
            3 => format!("    let t = x * 2\n    g[{p}, {hole}] = {value}\n    y = t\n"),
            4 => format!("    g[{p}, {hole}] = {value}\n    x = x + g[{p}]\n"),
            _ => format!("    g[{p}, {hole}] = {value}\n"),
        };
    }
    text += "    x = (x % 13).to(x.dtype)\n    v = (g % 7).to(v.dtype)\n}\n";
    text + "str((v.tolist(), x.tolist(), y.tolist()))"
}

#[test]
fn assembled_tensors_have_the_bits_of_their_parts() {
    for seed in 0..500 {
        agrees(&assembling_program(seed));
    }
}

#[test]
fn the_border_keeps_its_bits() {
    for (dtype, bits, nan) in [("f16", "i16", 32001), ("bf16", "i16", 32641), ("f32", "i32", 2139095041i64)] {
        agrees(&format!(
            "let u = full([8, 12], {nan}, dtype={bits}).view({dtype})\nlet v = u.clone()\n\
             v[1..-1, 1..-1] = u[2.., 1..-1]\nv[1..-1, 2..-1] = zeros(6, 9).to({dtype})\nstr(v.view({bits}).tolist())"
        ));
    }
}
