//! Reductions of few elements are elementwise work (`plan/unrolled.rs`): fewer launches, and the same bits as without
//! fusion. `tests/lang/unrolled.rnl` compares every reduction.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, agrees_on_devices, costs_the_same, launched};

/// The labels of the launches of `code`, whose variables end with it.
fn launches(code: &str) -> Vec<String> {
    let data = "let (p, q, t, s, y) = (rand(512, 3), rand(512, 3), rand(512), rand(512), none)\n\
                let image = rand(2, 3, 16, 16)\nlet length = |v| (v * v).sum(-1).sqrt()\n";
    launched(data, &format!("if true {{\n{code}\n}}"), |launch| launch.program.label.clone())
}

/// Code that takes one launch.
fn one(code: &str) {
    let all = launches(code);
    assert_eq!(all.len(), 1, "{all:?}\n{code}");
}

#[test]
fn reductions_of_few_elements_join_their_surroundings() {
    one("y = length(p - q) * t + s");
    one("y = t * 2 + (p * q).sum(1)");
    one("y = length(p - 1) - length(p + 1)");
    one("y = (image[0] - image[1]).abs().sum(0).sqrt()");
    one("y = ((p - q).abs() < 0.5).all(1) & (t > 0.5)");
    // Of several dimensions, of joined values, and of parts.
    one("y = (image * 2).amax((0, 1)) + 1");
    one("y = stack([t, s, t * s], -1).mean(-1) * 2");
    one("let v = stack([t * 2 - s, s.sqrt() + t], -1)\ny = length(v) + t");
    one("let (d, k) = stack([t * s + t - s / 2 + 1, s.sqrt() * t - s * 3, t], -1).min(-1)\ny = d * k");
    // Its result is read for the elements again.
    one("let d = (p * q).sum(-1)\ny = 2 * d[.., none] * q - p");
    one("y = p / length(p)[.., none]");
    one("y = p / (p * p).sum(-1, keepdim=true).sqrt()");
    // Three spheres: nothing but the nearest is stored.
    one(
        "let d = stack(map(|k| length(p - k * 0.25) - 0.1, 0..3), -1)\nlet (near, which) = d.min(-1)\ny = near * which",
    );
}

#[test]
fn reductions_stay_where_they_are_cheaper() {
    // The operand is stored anyway, by the same launch.
    one("let d = p - q\ny = (d, d.sum(1))");
    one("y = p.softmax(1)");
    one("y = image.softmax(1)");
    one("y = rand(512, 9).sum(1)");
    one("y = p.sum()");
    one("y = (p - q).var(1)");
}

#[test]
fn sums_are_not_repeated_for_many_elements() {
    let all = launches("let r = (p * p).sum(1)\ny = r[.., none] + r * 2");
    assert_eq!(all.len(), 2, "{all:?}");
}

/// A program of statements over vectors of three numbers, whose columns, rows and joined values are read and written.
fn program(seed: u64, n: usize) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = ["f32", "f32", "f64", "bf16"][draw(4)];
    let mut text = format!(
        "let fill = |k| ((arange({n} * 3) * k % 23) - 11).to({dtype}).reshape({n}, 3) / 8\n\
         let (v, w, u) = (fill(5), fill(7), fill(9))\n\
         let (t, s) = (fill(3)[.., 0].contiguous(), fill(11)[.., 1])\n\
         for round in 0..{} {{\n",
        1 + draw(3)
    );
    for _ in 0..2 + draw(8) {
        let a = ["v", "w", "u"][draw(3)];
        let b = ["v", "w", "u"][draw(3)];
        let c = ["t", "s"][draw(2)];
        let d = ["t", "s"][draw(2)];
        let k = draw(3);
        let fold = ["sum(1)", "mean(-1)", "amax(1)", "prod(1)", "norm(dim=1)", "min(1).values"][draw(6)];
        let line = match draw(20) {
            0 => format!("{a} = ({a} * 0.5 - {b}).clamp(-4, 4)"),
            1 => format!("{c} = ({a} * {b}).{fold}.clamp(-4, 4)"),
            2 => format!("{c} = {a}.{fold} * 0.5 + {d}"),
            3 => format!("{a}[.., {k}] = {c} * 0.5"),
            4 => format!("{a} = stack([{c}, {d} * 2 - {c}, {b}[.., {k}]], 1)"),
            5 => format!("{c} = stack([{c} + 1, {d}], -1).amax(-1)"),
            6 => format!("{c} = ({a} - {b}).abs().argmax(1).to({dtype}) + {d}"),
            7 => format!("{a} = {b} - {c}[.., none] * {a}.sign()"),
            8 => format!("{a}[1..] += {b}[..-1] * 0.25"),
            9 => format!("{c} = ({b}.T * 2).{}.clamp(-4, 4)", fold.replace("-1", "0").replace('1', "0")),
            10 => format!("{a}.sub_({c}[.., none])"),
            11 => format!("let x = {a} * 2\n{c} = x.{fold} + x[.., {k}]\n{b} = x.clamp(-3, 3)"),
            12 => format!("{c}.mul_(0.5).add_(({a} + {b}).{fold}.clamp(-2, 2))"),
            13 => format!("{c} = pad({a}, (0, 1)).sum(1) + {d}"),
            14 => format!("{c} = {a}[{b}.argmin(0)[{k}]] .sum() * 0.125 + {d}"),
            15 => format!("{a} = {b} / ({b} * {b}).sum(-1).sqrt().clamp(min=0.25)[.., none]"),
            16 => format!("{c} = cat([{a}, {b}], 1)[.., 1..5].{fold}.clamp(-4, 4)"),
            17 => format!("{c} = (({a} > {b}).any(1) | ({c} > {d})).to({dtype}) - {d}"),
            18 => format!("{c}[..-1] = ({a} - {b}).{fold}[1..].clamp(-4, 4)"),
            _ => format!("{a}[round] = {c}[0..3]\n{c} = (({a} - {b}).square() * 0.5).{fold}.clamp(-4, 4)"),
        };
        text += &format!("{line}\n");
    }
    text + "}\nstr((v.tolist(), w.tolist(), u.tolist(), t.tolist(), s.tolist()))"
}

#[test]
fn programs_of_vectors_agree() {
    for seed in 0..600 {
        agrees(&program(seed, 5 + seed as usize % 4));
    }
}

/// Large groups stay open while work over other shapes runs before them.
#[test]
fn large_programs_of_vectors_agree() {
    for seed in 1000..1006 {
        let code = program(seed, 1 << 19);
        let ends = "str(map(|x| x.to(f64).sum().item(), [v, w, u, t, s]))";
        agrees_on_devices(&code.replace(code.lines().last().unwrap(), ends));
    }
}

#[test]
fn gradients_are_those_without_fusion() {
    for loss in [
        "(v * w).sum(1).square().sum()",
        "length(v - w).mean()",
        "v.max(1).values.sum()",
        "stack([v[.., 0], w[.., 1]], 1).prod(1).sum()",
    ] {
        agrees(&format!(
            "let length = |x| (x * x).sum(-1).sqrt()\n\
             let v = ((arange(24) * 37 % 11).float() / 8).reshape(8, 3).requires_grad_()\n\
             let w = ((arange(24) * 17 % 13).float() / 4).reshape(8, 3).requires_grad_()\n\
             for k in 0..3 {{\n({loss}).backward()\nwith no_grad() {{ v.sub_(0.125 * v.grad) }}\nv.grad = none\n}}\nstr((v.tolist(), w.tolist()))"
        ));
    }
}

#[test]
fn fuel_does_not_depend_on_fusion() {
    costs_the_same("let x = arange(96).reshape(32, 3)\nlet y = (x * 2).sum(1) + x.amax(1)\nstr(y.shape)");
}
