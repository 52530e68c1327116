//! Fused programs are cut at the same places in every round of a loop, so that a loop requests few programs, and none
//! after its first rounds.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;

use draw::Draw;
use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::library;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};
use std::collections::HashSet;

/// A machine with one emulated device.
fn machine() -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

/// The programs that a script launches, in order, and how many elements each covers.
fn launches(script: &str) -> Vec<(String, usize)> {
    let mut vm = machine();
    vm.rt.start_listing(false).unwrap();
    vm.eval("<test>", script, Mode::Input).unwrap();
    vm.rt.flush().unwrap();
    let listing = vm.rt.stop_listing();
    let launches = listing.launches.iter().map(|listed| &listed.launch);
    launches
        .map(|launch| {
            let signature = launch.program.kind.signature(launch).0;
            (
                format!("{:?} {signature:x}", launch.program),
                launch.shape.iter().fold(1, |n: usize, m| n.saturating_mul(*m)),
            )
        })
        .collect()
}

/// The programs that a script launches, in order.
fn launched(script: &str) -> Vec<String> {
    launches(script).into_iter().map(|(program, _)| program).collect()
}

/// A loop of 400 rounds over `length` random elementwise operations, some of them in functions, with numbers that change
/// from round to round.
fn random_loop(seed: u64, length: usize) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let mut text = String::from(
        "fn mix(a, b) { (a + b).tanh() * 0.5 }\nlet v = [ones(64), zeros(64), full([64], 0.5)]\nfor i in 0..400 {\n",
    );
    for _ in 0..length {
        let (to, a, b) = (draw(3), draw(3), draw(3));
        let value = match draw(7) {
            0 => format!("v[{a}] + v[{b}]"),
            1 => format!("v[{a}] * 0.5 - v[{b}]"),
            2 => format!("v[{a}].sin()"),
            3 => format!("mix(v[{a}], v[{b}])"),
            4 => format!("v[{a}] * i + 0.25"),
            5 => format!("maximum(v[{a}], v[{b}])"),
            _ => format!("v[{a}].abs() / 3"),
        };
        text += &format!("    v[{to}] = {value}\n");
    }
    if draw(4) == 0 {
        text += "    v[0].add_(v[1])\n";
    }
    text + "}\nv[0] + v[1] + v[2]"
}

#[test]
fn a_loop_requests_no_new_program_after_its_first_rounds() {
    for seed in 0..36 {
        let length = [1, 2, 3, 5, 7, 10, 13, 20, 31, 45, 64, 90][seed as usize % 12];
        let script = random_loop(seed, length);
        let all = launched(&script);
        assert!(all.len() > 6, "{script}");
        let half = all.len() / 3;
        let known: HashSet<&String> = all[..half].iter().collect();
        // The last two may be the rest of the loop, and the code after it.
        let is_new = |at: &usize| !known.contains(&all[*at]);
        let new: Vec<usize> = (half..all.len() - 2).filter(is_new).collect();
        assert!(new.is_empty(), "{new:?} of {} launches\n{script}", all.len());
        let different: HashSet<&String> = all.iter().collect();
        let most = 4 + 2 * (length + 63) / 16;
        assert!(different.len() <= most, "{} programs of {} launches\n{script}", different.len(), all.len());
    }
}

/// A training loop of 120 rounds over `length` random operations, each followed by its backward pass.
fn random_training(seed: u64, length: usize) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let mut text = String::from(
        "let w = map(|i| full([64], 0.1 + i * 0.2).requires_grad_(), 0..3)\nfor i in 0..120 {\n    let v = list(w)\n",
    );
    for _ in 0..length {
        let (to, a, b) = (draw(3), draw(3), draw(3));
        let value = match draw(8) {
            0 => format!("v[{a}] + v[{b}]"),
            1 => format!("v[{a}] * 0.5 - v[{b}]"),
            2 => format!("v[{a}].sin()"),
            3 => format!("v[{a}] * v[{b}]"),
            4 => format!("v[{a}] * i * 0.01 + 0.25"),
            5 => format!("v[{a}].tanh() / (2 + v[{b}].square())"),
            6 => format!("v[{a}] - v[{b}].mean()"),
            _ => format!("v[{a}].reshape([8, 8]).softmax(1).flatten() * v[{b}]"),
        };
        text += &format!("    v[{to}] = {value}\n");
    }
    text + "    (v[0].tanh() + v[1].tanh() + v[2].tanh()).mean().backward()\n    \
            with no_grad() { for p in w { if p.grad != none {\n        p.sub_(0.01 * p.grad)\n        p.grad = none\n    } } }\n}\n\
            w[0].detach() + w[1].detach() + w[2].detach()"
}

#[test]
fn a_training_loop_requests_no_new_program_after_its_first_rounds() {
    for seed in 0..12 {
        let length = [1, 2, 3, 5, 8, 13, 20, 31, 45, 64, 7, 10][seed as usize];
        let script = random_training(seed, length);
        let all = launched(&script);
        let half = all.len() / 3;
        let known: HashSet<&String> = all[..half].iter().collect();
        let is_new = |at: &usize| !known.contains(&all[*at]);
        let new: Vec<usize> = (half..all.len() - 2).filter(is_new).collect();
        assert!(new.is_empty(), "{new:?} of {} launches\n{script}", all.len());
    }
}

#[test]
fn a_script_launches_the_same_programs_each_time() {
    for seed in 100..112 {
        let script = random_loop(seed, 17);
        assert_eq!(launched(&script), launched(&script), "{script}");
    }
}

#[test]
fn a_copy_skips_elements_that_slice_writes_replace() {
    let n = 2200;
    let all = launches(&format!(
        "let u = rand({n}, {n})\n\
         for i in 0..3 {{\n\
             let inner = u[1..-1, 1..-1]\n\
             let next = inner + 0.1 * (u[0..-2, 1..-1] + u[2.., 1..-1] - 2 * inner)\n\
             let v = u.clone()\n    v[1..-1, 1..-1] = next\n    u = v\n}}"
    ));
    let elements: usize = all.iter().map(|(_, count)| count).sum();
    // The draw, then each round once, in one launch.
    assert_eq!(all.len(), 1 + 3);
    assert_eq!(elements, 4 * n * n);
    // The copy may come first. Where something else needs `next`, only the borders are copied, in a launch for each side
    // if their widths differ.
    let next = "u[2..-1, 3..-3] * 0.5 + 1";
    let whole = [n * n];
    let sides = [2 * n, n, 6 * (n - 3), (n - 3) * (n - 6)];
    for (begin, write, expected) in [
        ("v = u.clone()", format!("v[2..-1, 3..-3] = {next}"), &whole[..]),
        ("v = u.clone()", format!("let next = {next}\nv[2..-1, 3..-3] = next\nnext = none"), &whole),
        (
            "let next = u[2..-1, 3..-3] / 2\nv = u.clone()",
            "v[2..-1, 3..-3] = next\nnext = none".into(),
            &whole,
        ),
        ("v = u.clone()", format!("let next = {next}\nv[2..-1, 3..-3] = next\nlet k = next"), &sides),
    ] {
        let script = format!("let (u, v) = (rand({n}, {n}), none)\nu.sum().item()\n{begin}\n{write}");
        let counts: Vec<usize> = launches(&script).into_iter().map(|(_, count)| count).collect();
        assert!(counts.ends_with(expected), "{counts:?}\n{script}");
        let on_host = format!("{begin}\n{write}").replace("u.clone", "h.clone").replace("u[", "h[");
        let _ = launches(&format!(
            "{script}\nlet (h, d) = (u.cpu(), v)\n{}\nassert(equal(d.cpu(), v))",
            on_host.replace("let k", "let o").replace("next", "other")
        ));
    }
}

/// One launch would read the interior of another tensor only to replace it.
#[test]
fn a_copy_of_another_tensor_skips_its_interior() {
    let n = 3000;
    let count = |copied: &str| {
        let script = format!(
            "let (u, w, v) = (ones({n}, {n}), ones({n}, {n}), none)\nu.sum().item()\n\
             v = {copied}.clone()\nv[1..-1, 1..-1] = u[..-2, 1..-1] * 2"
        );
        launches(&script).len()
    };
    assert_eq!(count("w"), count("u") + 2);
}

#[test]
fn independent_work_of_another_shape_does_not_end_a_group() {
    // Smaller groups wait in batches, if they can.
    let n = 1 << 23;
    let all = launched(&format!(
        "let (a, b) = (ones({n}), ones(32))\nlet c = a + 1\nlet d = b * 2\nlet e = c * 3\nlet f = d - 1\nlet g = e.exp()"
    ));
    // A group for each shape, which begins with the values of the factory.
    assert_eq!(all.len(), 2);
    // Readers of the group run after it: the group, work that does not read `d`, and work that does.
    let all = launched(&format!(
        "let a = ones({n})\nlet c = a + 1\nlet d = c[0..32] * 2\nlet e = c * 3\nlet f = d - 1"
    ));
    assert_eq!(all.len(), 3);
    let alternating = "let a = ones(64) on cpu\nlet b = ones(32) on cpu\nfor i in 0..50 { a = a * 0.5 + 1\n    b = b.sin() - i }";
    let different: HashSet<String> = launched(alternating).into_iter().collect();
    assert!(different.len() <= 6, "{different:?}");
}

/// The launches of each round of a loop over `body`, after its first two.
fn launches_of_round(setup: &str, body: &str) -> f64 {
    let count = |rounds: usize| launches(&format!("{setup}\nfor i in 0..{rounds} {{ {body} }}")).len();
    (count(12) - count(4)) as f64 / 8.0
}

#[test]
fn padding_moves_the_tensor_once() {
    for mode in ["replicate", "reflect", "circular"] {
        // The padded tensor is read where it is.
        let setup = "let x = rand(64, 48)";
        let body = format!(
            "let p = x.pad([1, 1, 2, 1], mode=\"{mode}\")
            x = x + 0.1 * (p[1..-2, 2..] - p[3.., 1..-1])"
        );
        assert_eq!(launches_of_round(setup, &body), 1.0, "{mode}");
        let whole = |script: &str| launches(script).iter().filter(|(_, count)| *count >= 64 * 48).count();
        let rounds = whole(&format!("{setup}\nfor i in 0..8 {{ {body} }}"));
        assert_eq!(rounds, 1 + 8, "{mode}");
        // The gradient has no index and no scattered sum.
        let gradient = format!(
            "let x = rand(64, 48, requires_grad=true)
            x.pad([1, 1, 1, 1], mode=\"{mode}\").square().sum().backward()
            x.grad + 0"
        );
        let programs = launched(&gradient);
        assert!(programs.len() <= 9, "{programs:#?}");
        assert!(!programs.iter().any(|name| name.contains("Scatter") || name.contains("Gather")));
    }
}

#[test]
fn a_sum_of_work_aside_is_part_of_its_launch() {
    // The values that are summed take no launch and no memory of their own.
    let setup = "let (out, x, w) = (zeros(512, 64), rand(512, 4), rand(512, 64))";
    let body = "let weight = (x * (x > 0.5)).sum(1)\n out = out + w * weight[.., none]";
    assert_eq!(launches_of_round(setup, body), 2.0);
}

/// A loop over `length` random statements of many kinds: reductions, products, slices, gathers, scans, draws,
/// writes at places that depend on the round, work under a condition, inner loops.
fn mixed_loop(seed: u64, length: usize, rounds: usize) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let mut text = String::from(
        "manual_seed(1)\nlet v = map(|i| rand(64), 0..3)\nlet m = map(|i| rand(8, 8), 0..3)\nlet ids = randint(0, 64, (64,))\nfor i in 0..ROUNDS {\n",
    );
    for _ in 0..length {
        let (to, a, b) = (draw(3), draw(3), draw(3));
        let statement = match draw(30) {
            0 => format!("v[{to}] = v[{a}] * 0.5 - v[{b}]"),
            1 => format!("v[{to}] = m[{a}].flatten().sin() + i * 0.1"),
            2 => format!("m[{to}] = v[{a}].reshape(8, 8) * 0.3 + m[{b}]"),
            3 => format!("m[{to}] = m[{a}] @ m[{b}] * 0.1"),
            4 => format!("m[{to}] = m[{a}] - m[{b}].mean(1, keepdim=true)"),
            5 => format!("m[{to}] = softmax(m[{a}], 1)"),
            6 => format!("m[{to}] = (m[{a}] + m[{b}].sum(0)).tanh()"),
            7 => format!("m[{to}][1..-1, 1..-1] = m[{a}][..-2, 1..-1] * 0.5 + m[{a}][2.., 1..-1] * 0.5"),
            8 => format!("v[{to}] = v[{a}].roll(1, 0) + v[{b}]"),
            9 => format!("v[{to}] = v[{a}].flip(0) * 0.9"),
            10 => format!("v[{to}] = v[{a}][ids] + v[{b}]"),
            11 => format!("v[{to}] = cat([v[{a}][..32], v[{b}][32..] + 1])"),
            12 => format!("v[{to}] = where(v[{a}] > 0.2, v[{b}], i * 0.1)"),
            13 => format!("v[{to}] = v[{a}].cumsum(0) * 0.01"),
            14 => format!("v[{to}] = v[{a}].sort().values"),
            15 => format!("v[{to}] = pad(v[{a}][none, 1..-1], (1, 1), mode=\"replicate\")[0]"),
            16 => format!("v[{to}] = v[{a}].index_add(0, ids, v[{b}]).tanh()"),
            17 => format!("m[{to}] = tril(m[{a}]) + m[{b}].T"),
            18 => format!("v[{to}] = v[{a}] * 0.5 + rand(64)"),
            19 => format!("v[{to}][i % 64] = 0.5"),
            20 => format!("m[{to}][i % 8] = v[{a}][..8] * 0.5"),
            21 => format!("v[{to}][..9 + i % 5] = 0.25"),
            22 => format!("v[{to}] = v[{a}] * m[{b}].amax()"),
            23 => format!("let sum = v[{a}].sum().item()"),
            24 => format!("if i % 2 == 0 {{ v[{to}] = v[{a}].exp() * 0.1 }}"),
            25 => format!("for j in 0..3 {{ v[{to}] = v[{to}] * 0.5 + v[{a}] * j }}"),
            26 => format!("m[{to}] = (m[{a}] - m[{b}].amax(1, keepdim=true)).exp() / (1 + m[{b}].sum())"),
            27 => format!("v[{to}].add_(v[{a}], alpha=0.1)"),
            28 => format!("m[{to}].mul_(0.5).clamp_(-1, 1)"),
            _ => format!("v[{to}] = v[{a}] + m[{b}][i % 8].mean() * m[{b}][.., i % 8].sum()"),
        };
        text += &format!("    {statement}\n");
    }
    text = text.replace("ROUNDS", &rounds.to_string());
    text + "}\nv[0].sum() + v[1].sum() + v[2].sum() + m[0].sum() + m[1].sum() + m[2].sum()"
}

#[test]
fn a_mixed_loop_requests_no_new_program_after_its_first_rounds() {
    for seed in 0..50 {
        let length = [1, 2, 3, 5, 8, 13, 20, 31][seed as usize % 8];
        // A listing has at most 1,000 launches.
        let rounds = if length < 8 { 96 } else { 24 };
        let script = mixed_loop(seed, length, rounds);
        let all = launched(&script);
        // A launch may cover several rounds. The last launches are the rest of the loop, and the code after it.
        let begun = (all.len() / 3).max(8);
        let known: HashSet<&String> = all.iter().take(begun).collect();
        let is_new = |at: &usize| !known.contains(&all[*at]);
        let new: Vec<usize> = (begun..all.len().saturating_sub(8)).filter(is_new).collect();
        assert!(new.is_empty(), "{new:?} of {} launches\n{script}", all.len());
    }
}

#[test]
fn a_chain_of_rows_is_cut_between_the_rounds_of_a_loop() {
    for body in [
        "m[1] = m[1] - m[1].mean(1, keepdim=true)",
        "m[0] = softmax(m[2], 1)\n m[2] = v.reshape(8, 8) * 0.3 + m[1]",
        "m[2] = v.reshape(8, 8) * 0.3 + m[0]\n m[0].mul_(0.5).clamp_(-1, 1)\n m[1] = m[2] - m[0].mean(1, keepdim=true)",
        "m[0] = m[0] / m[0].sum(1, keepdim=true)\n m[0] = m[0] * m[0]",
    ] {
        let script = format!(
            "let v = rand(64)\nlet m = map(|i| rand(8, 8), 0..3)\nfor i in 0..400 {{ {body} }}\nm[0].sum()"
        );
        let all = launched(&script);
        // Between the beginning and the end of the loop, every launch covers the same number of rounds.
        let rounds: HashSet<&String> = all[5..all.len() - 4].iter().collect();
        assert!(all.len() > 12 && rounds.len() == 1, "{} programs\n{script}", rounds.len());
    }
}

/// The products of vectors, and what is computed from them, share launches. The last vector is written to a part of another
/// tensor, which the kernel of rows does not do.
#[test]
fn gram_schmidt_takes_few_launches() {
    let all = launched(
        "let a = rand(60, 8)\nlet q = []\nfor k in 0..8 {\n    let v = a[.., k]\n    for _ in 0..2 { for u in q { v = v - (u @ v) * u } }\n\
         q.append(v / v.norm())\n}\nstack(q, 1)",
    );
    assert!(all.len() <= 16, "{} launches", all.len());
}

/// A loop over `length` random updates of small tensors of different shapes that mostly do not depend on each other,
/// after work outside the loop.
fn independent_loop(seed: u64, length: usize, rounds: usize) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let mut text = String::from(
        "manual_seed(1)\nlet v = map(|i| rand(20 + 3 * i), 0..6)\nlet m = map(|i| rand(6 + i, 5 + 2 * i), 0..6)\nlet w = rand(600)\n",
    );
    for before in 0..draw(4) {
        text += &format!("v[{before}].mul_(0.9)\n");
    }
    text += &format!("for i in 0..{rounds} {{\n");
    for _ in 0..length {
        let (to, a) = (draw(6), draw(6));
        let statement = match draw(12) {
            0 => format!("v[{to}].add_(v[{to}])"),
            1 => format!("v[{to}].mul_(0.5)"),
            2 => format!("m[{to}][1..-1, 1..-1] = m[{to}][..-2, 1..-1] * 0.5 + m[{to}][2.., 1..-1] * 0.5"),
            3 => "w[i] = 0.5".to_string(),
            4 => format!("v[{to}][i % 20] = v[{a}][0]"),
            5 => format!("m[{to}].mul_(0.9).add_(0.1)"),
            6 => format!("m[{to}][0].copy_(m[{to}][1] * 2)"),
            7 => format!("v[{to}] = v[{to}] * 0.5 + 0.25"),
            8 => format!("v[{to}].clamp_(0, 1)"),
            9 => "for x in v { x.mul_(0.99) }".to_string(),
            10 => "for (x, y) in zip(v, m) { x.add_(0.5)\n        y.sub_(x[0]) }".to_string(),
            _ => format!("m[{to}][.., 1] = m[{to}][.., 2].tanh()"),
        };
        text += &format!("    {statement}\n");
    }
    text + "}"
}

#[test]
fn a_loop_of_independent_updates_requests_no_new_program_after_its_first_rounds() {
    let examples = [
        "let (v, m, a, b) = (rand(340), rand(8, 8), rand(6, 6), rand(6, 6))",
        "v.add_(v)\n    m[1..-1, 1..-1] = a * 0.5 + b * 0.5\n    v[i] = 0.5",
        "let (v, m, a, b) = (rand(340), rand(8, 8), rand(8, 8), rand(8, 8))",
        "v.add_(v)\n    m[1..-1, 1..-1] = a[..-2, 1..-1] * 0.5 + b[2.., 1..-1] * 0.5\n    v[i] = 0.5",
        "let (v, w, m, a, b) = (rand(340), rand(340), rand(8, 8), rand(6, 6), rand(6, 6))",
        "v.add_(v)\n    m[1..-1, 1..-1] = a * 0.5 + b * 0.5\n    w[i] = 0.5",
        "let v = map(|i| rand(20 + i), 0..12)",
        "v[0].add_(1)\n    v[1].add_(1)\n    v[2].mul_(2)\n    v[3].exp_()\n    v[4].sin_()\n    v[5].neg_()\n    v[6].abs_()",
        "let v = map(|i| rand(20 + 3 * i), 0..6)",
        "for x in v { x.mul_(0.99) }\n    v[4][i % 20] = v[3][0]",
    ];
    let examples = examples
        .chunks(2)
        .map(|part| format!("{}\nv[0].sum().item()\nfor i in 0..330 {{\n    {}\n}}", part[0], part[1]));
    let drawn = (0..20).map(|seed| {
        let length = [1, 2, 3, 4, 5, 7, 9, 12, 16, 23][seed as usize % 10];
        independent_loop(seed, length, 400)
    });
    let mut late = Vec::new();
    for script in examples.chain(drawn) {
        let before = launched(script.split("for i in").next().unwrap()).len();
        let all = launched(&script).split_off(before);
        let begun = all.len() / 3;
        let known: HashSet<&String> = all[..begun].iter().collect();
        // The last launches may cover fewer rounds.
        let end = all.len().saturating_sub(if before + all.len() < 1000 { all.len() / 4 } else { 0 });
        let new: Vec<usize> = (begun..end).filter(|&at| !known.contains(&all[at])).collect();
        if !new.is_empty() {
            late.push(format!("{new:?} of {} launches\n{script}", all.len()));
        }
    }
    assert!(late.is_empty(), "{} loops:\n{}", late.len(), late.join("\n"));
}
