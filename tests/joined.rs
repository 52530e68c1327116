//! Joined tensors are read where their parts are (`plan/joined.rs`): fewer launches and bytes, and the same bits as without
//! fusion.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, agrees_on_devices, costs_the_same, ends, fails, fits, launched};

/// The labels of the launches of `code`, whose variables end with it.
fn launches(code: &str) -> Vec<String> {
    let data = "let (u, v, y) = (rand(64, 96), rand(64, 96), none)\nlet n = u.clone()\n";
    launched(data, &format!("if true {{\n{code}\n}}"), |launch| launch.program.label.clone())
}

/// Code that takes one launch.
fn one(code: &str) {
    let all = launches(code);
    assert_eq!(all.len(), 1, "{all:?}\n{code}");
}

#[test]
fn joined_tensors_are_not_stored() {
    // Rotary positions.
    one("let (a, b) = (u[.., ..48], u[.., 48..])\ny = u * v + cat([-b, a], -1) * v");
    one("y = cat([u, v]) * 2");
    one("y = stack([u, v]).exp()");
    one("y = stack([u, v], -1) * 2");
    one("y = stack([u, v, n], 1) * 2 + 1");
    // Shifted values, with a part of numbers, copies, or another order.
    one("y = u - cat([zeros(64, 1), u[.., ..-1]], 1)");
    one("y = u - cat([u[..1], u[..-1]])");
    one("y = u - cat([u[1..], u[..1]])");
    one("y = cat([u.T, v.T], 1) * 2");
    // Views of the result: a range, every other element, one part, an element of the new dimension, merged dimensions.
    one("let c = cat([u, v])\ny = c[1..] - c[..-1]");
    one("let c = cat([u, v], 1)\ny = c[.., 0..192 by 2] + c[.., 1..192 by 2]");
    one("let c = cat([u, v])\ny = c[70..80] * 2");
    one("let c = stack([u, v])\ny = c[1] * c[0]");
    one("let c = stack([u, v])\ny = c.reshape(2, 64 * 96) * 2");
    // Repeated along one dimension.
    one("y = u.repeat(2, 1) * 2");
    one("y = u.repeat(1, 3) + u.tile(3)");
    one("y = u[.., none].repeat(1, 4, 2) * 2");
    one("y = u.repeat(4, 1)");
    // Broadcast, other dtypes, computed parts, both operands.
    one("y = cat([u[.., ..1], v[.., ..1]]) * cat([u, v])");
    one("y = cat([u, v.to(f64)]) * 2");
    one("y = cat([u * 2 + 1, v, u - 1], 1).exp()");
    one("y = cat([u, v]) - cat([v, u])");
    one("y = where(cat([u, v]) > 0.5, cat([v, u]), 0)");
}

#[test]
fn parts_that_others_need_are_shared() {
    // Without a reader, parts of one shape are written by the launch that computes them.
    one("y = cat([u * 2, v + 1])");
    one("y = stack([u * 2, v + 1], -1)");
    one("y = stack([u, v])");
    one("let a = u * 2\ny = (a, stack([a, v]))");
    let count = |code: &str| launches(code).len();
    assert_eq!(count("y = cat([u, v]) @ n.T"), 2);
    assert_eq!(count("y = cat([u, v], 1).sum(1)"), 2);
    assert_eq!(count("y = cat([u.sum(1, keepdim=true), v], 1) * 2"), 2);
    // Lifting: shifted parts of a costly value, which is stored once, and of one that is read in another shape.
    let lift = "let (e, o) = (u[.., .. by 2], u[.., 1.. by 2])\n\
                let d = o - (e + cat([e[.., 1..], e[.., -1..]], 1)) / 2\n\
                let s = e + (d + cat([d[.., ..1], d[.., ..-1]], 1)) / 4";
    assert_eq!(count(&format!("{lift}\ny = (s, d)")), 2);
    assert_eq!(
        count(&format!("let z = (u.exp() + 1).log()\n{lift}\ny = (cat([z[1..], z[..1]]) * s[.., ..1], d)")),
        4
    );
    assert_eq!(count("let z = stack([u, v], -1).flatten(1)\ny = cat([z[.., 1..], z[.., ..1]], 1) * z"), 2);
    // Before a part is written.
    assert_eq!(count("let c = cat([u, v])\nu.mul_(2)\ny = c * 2"), 3);
    // Nothing reads it.
    assert_eq!(count("cat([u, v])\nlet c = cat([u * 2, v])\nc = none"), 0);
    // The variable refers to it when the work must be complete.
    assert_eq!(count("y = cat([u, v])\nv = y[1..] * 2"), 2);
}

const DTYPES: [&str; 7] = ["f32", "f64", "f16", "bf16", "i64", "u8", "bool"];

/// A program that joins.
fn random_program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = DTYPES[draw(DTYPES.len())];
    let (rows, columns) = (3 + draw(3), 4 + 4 * draw(2));
    let mut text = format!(
        "let begin = |n, m| (arange(n * m) * 37 % 11).reshape(n, m).to({dtype})\n\
         let (x, w, z) = (begin({rows}, {columns}), begin(2 * {rows}, 3 * {columns}), begin({columns}, {rows}))\n\
         let (y, held) = (x, none)\n"
    );
    text += &format!("for k in 0..{} {{\n", [1, 3, 6][draw(3)]);
    for _ in 0..1 + draw(5) {
        let number = [2, 2, 3, 4, 5][draw(5)];
        let mut parts = Vec::new();
        let is_stack = draw(3) == 0;
        let dim = draw(2);
        let mut lengths = Vec::new();
        for _ in 0..number {
            let source = match draw(14) {
                0 => format!("w[..{rows}, 4..{}]", 4 + columns),
                1 => "z.T".to_string(),
                2 => format!("w[0..{} by 2, 1..{} by 3]", 2 * rows, 3 * columns),
                3 => "(x + 1)".to_string(),
                4 => "(x * y - 1)".to_string(),
                5 => "y".to_string(),
                6 => format!("zeros({rows}, {columns}, dtype={dtype})"),
                7 => "y.exp()".to_string(),
                8 => "x.roll(1, 0)".to_string(),
                9 => format!("x[..1].expand({rows}, {columns})"),
                10 => "x.to(f32)".to_string(),
                11 => "x.sum(1, keepdim=true) * y".to_string(),
                _ => "x".to_string(),
            };
            let extent = if dim == 0 { rows } else { columns };
            let length = if is_stack { extent } else { draw(extent + 1) };
            lengths.push(length);
            parts.push(match (is_stack, dim) {
                (true, _) => source,
                (false, 0) => format!("({source})[..{length}]"),
                (false, _) => format!("({source})[.., ..{length}]"),
            });
        }
        let at = draw(if is_stack { 3 } else { 2 });
        let joined = match is_stack {
            true => format!("stack([{}], {at})", parts.join(", ")),
            false => format!("cat([{}], {dim})", parts.join(", ")),
        };
        // A view of the first rows and columns, as far as there are some.
        let view = match (is_stack, at, draw(3)) {
            (true, 0, _) => format!("[{}]", draw(number)),
            (true, 1, _) => format!("[.., {}]", draw(number)),
            (true, _, _) => format!("[.., .., {}]", draw(number)),
            (false, _, 0) => format!("[{}..]", draw(2)),
            (false, _, 1) => format!("[.., 0..{} by {}]", columns, 1 + draw(3)),
            _ => format!("[.., {}..]", draw(3)),
        };
        let read = |of: &str, how: usize| match how {
            0 => format!("({of} * 2)"),
            1 => format!("({of} + {of})"),
            2 => format!("{of}.sum(0, keepdim=true)"),
            3 => format!("where({of} > 3, {of}, 1)"),
            4 => format!("{of}.flip(0)"),
            5 => format!("{of}.clone()"),
            6 => format!("({of}.T + 1).T"),
            7 => format!("({of} - {of}.amax(-1, keepdim=true))"),
            _ => format!("({of} + 1)"),
        };
        let whole = match is_stack {
            true => "c.flatten(0, 1)",
            false => "c",
        };
        let (of_view, of_whole) = (read("v", draw(9)), read(whole, draw(9)));
        let between = match draw(12) {
            0 => "x.copy_(x.flip(0))",
            1 => "y = y + 1",
            2 => "w[1] = w[0] + 1",
            3 => "x[..1] = x[1..2]",
            4 => "held = c",
            5 => "c[0] = 1",
            6 => "if k == 1 { print(c.sum().item()) }",
            7 => {
                "let s = Stream()\n    s.wait_stream(cuda.current_stream())\n    c = with stream(s) { (c * 2).to(c.dtype) }\n    cuda.current_stream().wait_stream(s)"
            }
            8 => "z = z * 2 + 1",
            _ => "",
        };
        text += &format!(
            "    let c = {joined}\n    {between}\n    let v = c{view}\n    let r = {of_view}\n    let q = {of_whole}\n    \
             let t = (r.sum().to(f32) + q.sum().to(f32)).to({dtype})\n    w = (w + q.flatten()[..1]).to({dtype})\n    \
             y = (y + t).to({dtype})\n    x = x.to({dtype})\n"
        );
        if dtype != "bool" {
            text += "    y = y % 13\n    x = x % 17\n    z = (z % 7).to(w.dtype)\n    w = w % 19\n";
        }
    }
    let sizes = "let h = if held == none { [] } else { held.tolist() }\n";
    text + "}\n" + sizes + "str((x.tolist(), y.tolist(), z.tolist(), w.tolist(), h))"
}

#[test]
fn the_bits_are_those_without_fusion() {
    let mut failed = 0;
    for seed in 0..300 {
        let code = random_program(seed);
        let engine = runnel::Engine::builder().backend(runnel::Backend::Emu).devices(1).fuse(false).build();
        // Empty tensors that a draw makes have no maximum.
        if engine.unwrap().eval::<String>(&code).is_err() {
            failed += 1;
            continue;
        }
        match code.contains("Stream()") {
            true => agrees_on_devices(&code),
            false => agrees(&code),
        }
    }
    assert!(failed < 60, "{failed}");
}

/// All ways to join two or three small parts, and all slices.
#[test]
fn all_slices_of_small_tensors_agree() {
    let code = "let a = arange(8).reshape(2, 4)\nlet b = -arange(6).reshape(2, 3)\nlet all = []\n\
        for parts in [[a, b], [b * 2, a], [b, a, b + 1], [a[.., ..1], b[.., 1..2], zeros(2, 2, dtype=i64), a]] {\n\
        let count = parts |> map(|p| p.shape[1]) |> sum\n\
        for first in 0..count { for end in first + 1..count + 1 { for step in 1..4 {\n\
        let c = cat(parts, 1)\nlet q = c[.., first..end by step] * 2 + 1\nlet r = c[1, first..end by step] + c[0, first]\n\
        all.append((q.tolist(), r.tolist()))\n} } } }\nstr(all)";
    agrees(code);
    let code = "let a = arange(6).reshape(2, 3)\nlet all = []\n\
        for parts in [[a, -a], [a + 1, a.flip(0), a * 2]] { for dim in 0..3 {\n\
        for d in 0..3 { for i in 0..2 {\nlet c = stack(parts, dim)\n\
        all.append(((c.select(d, i) * 2).tolist(), (c.transpose(0, d) + 1).tolist(), (c.flatten(0, 1) * 3).tolist(), \
        (c.flatten(1, 2) * 3).tolist(), (c.flatten() - 1).tolist()))\n} } } }\nstr(all)";
    agrees(code);
}

/// All numbers of repeats, along each dimension, and slices of them.
#[test]
fn repeated_tensors_agree() {
    let code = "let x = arange(6).reshape(2, 3)\nlet all = []\n\
        for a in 0..6 { for b in 0..6 {\nlet r = x.repeat(a, b)\nlet q = x[1..].repeat(2, a, b)\n\
        let t = x.T.tile(b, 1)\nall.append(((r + 1).tolist(), (q * 2).tolist(), (r[.., 1..] - 1).tolist(), (t.T + 1).tolist(), r.tolist()))\n} }\n\
        let w = arange(6.0).reshape(2, 3).requires_grad_()\n(w.repeat(3, 1) * arange(18.0).reshape(6, 3)).sum().backward()\n\
        all.append(w.grad.tolist())\nstr(all)";
    agrees(code);
}

#[test]
fn chains_of_rows_do_not_read_joined_tensors() {
    let data = "let u = (arange(24).float() * 37 % 11).reshape(4, 6)\nlet c = arange(12.0)\n";
    for join in ["cat([u, u * 2], 1)", "cat([u[.., ..5], u, u[.., ..1]], 1)", "stack([u, -u], 1).flatten(1)"]
    {
        for reduction in ["v.sum(1)", "v.amax(1, keepdim=true)", "v.sum()", "v.mean(0)", "(v * c).sum(1)"] {
            for read in ["v + p", "p * 2", "p - p.flip(1)", "p[.., 1..7] * u", "p * r.sum()", "softmax(p, 1)"]
            {
                agrees(&format!(
                    "{data}let p = {join}\nlet v = p + 1\nlet r = {reduction}\nlet w = {read}\n\
                     str((w.tolist(), r.tolist(), p.tolist(), v.tolist()))"
                ));
            }
        }
    }
}

#[test]
fn gradients_are_those_without_fusion() {
    for join in
        ["cat([-b, a], 1)", "cat([a, a, b])", "stack([a, b * 2]).flatten(0, 1)", "stack([b, a], -1)[..., 0]"]
    {
        for loss in [
            "(c * c).sum()",
            "(c.exp() * c[..1]).mean()",
            "c.amax(1).sum()",
            "(c[1..] - c[..-1]).square().sum()",
        ] {
            let code = format!(
                "let u = ((arange(48) * 37 % 11).float() / 8).reshape(6, 8).requires_grad_()\nfor k in 0..3 {{\n\
                 let (a, b) = (u[.., ..4], u[.., 4..])\nlet c = {join}\n({loss}).backward()\n\
                 with no_grad() {{ u.sub_(0.125 * u.grad) }}\nu.grad = none\n}}\nstr(u.tolist())"
            );
            assert_eq!(ends(&code, true), ends(&code, false), "{loss} {join}");
        }
    }
}

#[test]
fn fuel_does_not_depend_on_fusion() {
    costs_the_same(
        "let x = arange(96).reshape(12, 8)\nlet p = cat([x[1..], x[..1] + 1])\nlet y = p[2.., 2..] * 2\nstr(y.shape)",
    );
}

/// A joined tensor that waits does not keep memory that another request needs.
#[test]
fn parts_are_freed_when_memory_is_short() {
    for code in [
        "x = cat([x, x[..n]])\nlet y = zeros(5 * n)\nstr(x.sum().item() + y.sum().item())",
        "let p = cat([x[..n], x[n..2 * n]])\nx = none\nlet y = zeros(9 * n)\nstr(p.sum().item() + y.sum().item())",
        "let p = cat([x[..n] * 2, x[n..2 * n]])\nx = none\nlet z = p[2..] + 1\np = none\nlet y = zeros(6 * n)\nstr(z.sum().item() + y.sum().item())",
        "cat([x[..n], x])\nx = none\nlet y = zeros(10 * n)\nstr(y.sum().item())",
    ] {
        let code = format!("let n = 1 << 20\nlet x = zeros(5 * n)\n{code}");
        fits(&code, 52 << 20);
    }
    // A slice does not keep the rest of its memory.
    let code = "let n = 1 << 20\nlet x = zeros(5 * n)\nlet p = cat([x[..1], x[1..2]])\nx = none\n\
                let y = p * 2 + zeros(2)\ncuda.synchronize()\nstr(cuda.memory_allocated())";
    assert_eq!(ends(code, true), ends(code, false));
}

/// Groups that are launched in parts, or lose what nothing reads, because memory is short.
#[test]
fn programs_in_little_memory_give_the_same_or_run_out_of_it() {
    let mut ended = 0;
    for seed in 0..200 {
        let mut numbers = Draw(seed);
        let mut draw = |below: usize| numbers.below(below);
        let n = 16384 << draw(3);
        let h = [n / 2, n / 4, 100][draw(3)];
        let mut text = String::new();
        for (name, k, p) in [("y", 3, 7), ("z", 5, 31), ("a", 7, 13), ("b", 11, 17)] {
            text += &format!("let {name} = (arange({n}) * {k} % {p}).to(f32)\n");
        }
        for i in 0..draw(15) {
            text += &format!("let f{i} = ones({})\n", [n, n / 2, 2 * n][draw(3)]);
        }
        text += "let all = [y.sum().item()]\n";
        for i in 0..1 + draw(2) {
            text += &format!("let d{i} = {}\n", ["y * 2", "sin(y)", "y + z", "y + 1"][draw(4)]);
        }
        text += &match draw(4) {
            0 => format!("let c = z + cat([a[..{h}], b[{h}..]]) * 2\n"),
            1 => format!("let c = z * 2 + cat([sin(a[..{h}]), b[{h}..] + 1])\n"),
            2 => format!("let c = cat([a[{h}..], b[..{h}]]) * 3 + z\n"),
            _ => format!("let q = cat([-a[{h}..], b[..{h}], y])\nlet c = q[..{n}] - q[-{n}..] * z\n"),
        };
        for (line, chance) in
            [("let e = sin(c) + 1", 2), ("d0 = none", 1), ("let g = b * 2 + z", 2), ("a = none", 3)]
        {
            if draw(chance + 1) == chance {
                text += &format!("{line}\n");
            }
        }
        text += &format!("all.append((c.sum().item(), (c * (arange({n}) % 7)).sum().item()))\nstr(all)");
        let expected = ends(&text, false);
        for bytes in [2 << 20, 3 << 20, 4 << 20] {
            let engine =
                runnel::Engine::builder().backend(runnel::Backend::Emu).devices(1).device_memory(bytes);
            match engine.build().unwrap().eval::<String>(&text) {
                Ok(value) => {
                    assert_eq!(value, expected, "{bytes}\n{text}");
                    ended += 1;
                }
                Err(e) => assert_eq!(e.code().id, "E0701", "{e:?}\n{bytes}\n{text}"),
            }
        }
    }
    assert!(ended > 200, "{ended}");
}

/// Another stream may only write what has been read.
#[test]
fn races_see_the_parts() {
    let data = "let x = rand(12, 8)\nlet s = Stream()\ns.wait_stream(cuda.current_stream())\n\
                let p = cat([x, x[..1]])\nlet y = p[2..] * 2\nwith stream(s) {\n    x.add_(1)\n}\n\"\"";
    let (fused, apart) = (fails(data, true), fails(data, false));
    assert_eq!(fused, apart);
    assert!(fused.contains("E0601"), "{fused}");
    let code = "let x = arange(96).reshape(12, 8)\nlet s = Stream()\nlet p = cat([x, x[..1]])\nlet y = p[2..] * 2\n\
                s.wait_stream(cuda.current_stream())\nwith stream(s) {\n    x.add_(1)\n}\n\
                cuda.current_stream().wait_stream(s)\nstr((y.tolist(), (p + 1).tolist(), x.tolist()))";
    assert_eq!(ends(code, true), ends(code, false));
}

#[test]
fn graphs_repeat_joined_loads() {
    let code = "let x = rand(12, 8)\nlet f = |x| {\n    let p = cat([-x[.., 4..], x[.., ..4]], 1)\n    p * 2 + x\n}\n\
                let g = cuda.graphed(f, [x])\nlet a = [g(x).clone(), g(x + 1).clone()]\n\
                str(all(map(|(a, b)| equal(a, b), zip(a, [f(x), f(x + 1)]))))";
    assert_eq!(ends(code, true), "true");
}
