//! Assignments to slices of a tensor from other slices of it (Note [Hazards] in `plan/queue.rs`): one launch if they share
//! no element, and the same bits in any case.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, launched};

#[test]
fn slices_without_common_elements_are_one_launch() {
    let count = |code: &str| {
        let before = "let (m, v) = (rand(20, 50), rand(6, 8, 10))\ncuda.synchronize()";
        launched(before, code, |launch| launch.program.label.clone()).len()
    };
    for code in [
        "m[.., ..10] = m[.., 10..20] * 2 + 1",
        "m[0] = m[1] - m[2] * 3",
        "m[.., 3] -= m[.., 4] * m[.., 5]",
        "m[.. by 2] = m[1.. by 2] + 1",
        "m[.., .. by 2] += m[.., 1.. by 2] * 0.5",
        "v[1..3, .., 2] = v[3..5, .., 2] + v[1..3, .., 3]",
        "v[.. by 2, 1.. by 2] = v[1.. by 2, .. by 2].exp()",
        "m[.., ..5].copy_(m[.., 5..10])",
        "m[4].add_(m[5])",
    ] {
        assert_eq!(count(code), 1, "{code}");
    }
    // These share elements.
    for code in [
        "m[.., ..10] = m[.., 5..15] * 2",
        "m[.. by 2] = m[..10] + 1",
        "v[1] = v[.., 1, ..][1..2].sum() * v[1]",
    ] {
        assert!(count(code) > 1, "{code}");
    }
}

/// A program that assigns to slices. All slices of a program have the same shape, up to a transposition.
fn program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let (rows, columns) = (2 + draw(4), 2 + draw(4));
    let mut text = String::from(
        "let (m, n) = ((arange(120).float() * 37 % 11).reshape(10, 12), (arange(360).float() * 53 % 13).reshape(3, 10, 12))\n",
    );
    let slice = |count: usize, extent: usize, draw: &mut dyn FnMut(usize) -> usize| {
        let step = 1 + draw(((extent - 1) / (count - 1)).min(3));
        let first = draw(extent - step * (count - 1));
        format!("{first}..{} by {step}", first + step * (count - 1) + 1)
    };
    let part = |draw: &mut dyn FnMut(usize) -> usize| {
        let (i, j) = (slice(rows, 10, draw), slice(columns, 12, draw));
        match draw(5) {
            0 => format!("n[{}, {i}, {j}]", draw(3)),
            1 => format!("n.permute(2, 0, 1)[{j}, {}, {i}].T[..]", draw(3)),
            2 => format!("m.T[{}, {}].T[..]", slice(columns, 12, draw), slice(rows, 10, draw)),
            _ => format!("m[{i}, {j}]"),
        }
    };
    text += &format!("for k in 0..{} {{\n", [1, 2, 9][draw(3)]);
    for _ in 0..1 + draw(7) {
        let (a, b, c) = (part(&mut draw), part(&mut draw), part(&mut draw));
        text += &match draw(9) {
            0 => format!("    {a} = {b}\n"),
            1 => format!("    {a} += {b} * {c}\n"),
            2 => format!("    {a} = {b} % 7 - {c}\n"),
            3 => format!("    let t = {b} + {c}\n    {a} = t\n    {c} = t % 5 - {a}\n"),
            4 => format!("    {a} = {b} + {c}.sum(0)\n"),
            5 => format!("    let t = {a} - {b}\n    {b}.copy_({c})\n    {c} = t\n"),
            6 => format!("    let row = m[{}]\n    m[{}] = row - m[{}] % 3\n", draw(10), draw(10), draw(10)),
            7 => format!(
                "    m[.., {}] -= m[.., {}] * (m[{}, {}] % 2)\n",
                draw(12),
                draw(12),
                draw(10),
                draw(12)
            ),
            _ => format!("    let t = {a}.softmax(1)\n    {b} = {c} + t.round()\n"),
        };
        text += "    m = m % 101\n".repeat(usize::from(draw(3) == 0)).as_str();
    }
    text + "    n.remainder_(97)\n    m.remainder_(89)\n}\nstr((m.tolist(), n.tolist()))"
}

#[test]
fn slices_have_the_values_without_fusion() {
    for seed in 0..400 {
        agrees(&program(seed));
    }
}
