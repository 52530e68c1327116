//! Padded tensors are read where they are (`plan/pad.rs`): fewer launches and bytes, and the same bits as a model that
//! gathers every element.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, costs_the_same, ends, fails, fits, launched};

/// The labels of the launches of `code` and the bytes that they access, after `before` has run.
fn launches(before: &str, code: &str) -> (Vec<String>, u64) {
    let of =
        |launch: &runnel::kernel::Launch| (launch.program.label.clone(), launch.program.kind.bytes(launch));
    let all = launched(before, code, of);
    let bytes = all.iter().map(|(_, bytes)| bytes).sum();
    (all.into_iter().map(|(label, _)| label).collect(), bytes)
}

const DATA: &str = "let (u, v, y) = (rand(64, 96), rand(64, 96), none)\nlet n = u.clone()\n";

/// Code whose variables end with it.
fn within(code: &str) -> String {
    format!("if true {{\n{code}\n}}")
}

/// Code that takes one launch.
fn one(code: &str) {
    let (all, _) = launches(DATA, &within(code));
    assert_eq!(all.len(), 1, "{all:?}\n{code}");
}

#[test]
fn slices_of_padded_tensors_are_not_stored() {
    for pad in ["pad([1, 1, 1, 1])", "pad([1, 1, 1, 1], value=-inf)", "pad([1, 1, 1, 1], mode=\"replicate\")"]
    {
        one(&format!(
            "let p = u.{pad}\ny = p[..-2, 1..-1] + p[2.., 1..-1] + p[1..-1, ..-2] + p[1..-1, 2..] - 4 * u"
        ));
        one(&format!("let p = u.{pad}\ny = u - p[1..-1, 1..-1]"));
        // Nine points.
        one(&format!(
            "let p = u.{pad}\ny = p[..-2, ..-2]\nfor i in 0..3 {{ for j in 0..3 {{ \
             y = maximum(y, p[i..64 + i, j..96 + j]) }} }}"
        ));
    }
    for mode in ["reflect", "circular"] {
        one(&format!(
            "let p = u.pad([1, 1, 1, 1], mode=\"{mode}\")\ny = p[..-2, 1..-1] + p[1..-1, 2..] - 2 * u"
        ));
    }
    // One dimension, another order, a part, every other element, twice padded, broadcast, with other sizes.
    one("let p = u.pad([2, 0])\ny = u - p[.., ..-2]");
    one("let p = u.T.pad([1, 1])\ny = p[.., 2..] - p[.., ..-2]");
    one("let p = u.pad([3, 3])\ny = p[4..40, 1..50] * 2");
    one("let p = u.pad([1, 1])\ny = p[.., 0..96 by 2] + p[.., 1..97 by 2]");
    one("y = u.pad([1, 1]).pad([1, 0, 2, 0]) * 2");
    one("let p = u[0].pad([1, 1])\ny = u + p[..-2]");
    one("y = v[..-2] * u.pad([0, 0, -1, -1])");
    // A tensor that is the original.
    one("let p = u.pad([1, 1])\ny = (p[.., 1..-1] + v).exp()");
}

#[test]
fn a_stencil_moves_each_element_once_per_step() {
    let step = "let p = u.pad([1, 1, 1, 1])\n    \
                u = u + 0.1 * (p[..-2, 1..-1] + p[2.., 1..-1] + p[1..-1, ..-2] + p[1..-1, 2..] - 4 * u)";
    let (all, _) = launches(DATA, &format!("for _ in 0..6 {{\n    {step}\n}}"));
    assert_eq!(all.len(), 6, "{all:?}");
    assert!(all.iter().all(|label| *label == all[0]), "{all:?}");
}

#[test]
fn padded_tensors_that_something_else_needs_are_stored_once() {
    let count = |code: &str| launches(DATA, &within(code)).0.len();
    // A product, a reduction, windows, a view over two dimensions at once.
    assert_eq!(count("y = u.pad([1, 1]) @ v.pad([1, 1]).T"), 3);
    assert_eq!(count("y = u.pad([1, 1]).sum(1)"), 2);
    assert_eq!(count("y = u.pad([1, 1]).unfold(1, 3, 1) * 2"), 2);
    assert_eq!(count("y = u.pad([1, 1]).flatten() * 2"), 2);
    // The variable refers to it when the work must be complete.
    assert_eq!(count("y = u.pad([1, 1])\nv = y[.., 2..] * 2"), 2);
    // It is stored with what is padded, after the number.
    let (all, _) = launches(DATA, "y = (u * 2).exp().pad([1, 1])");
    assert!(all.len() == 2 && all[1] == "mul+exp", "{all:?}");
    // Before the original is written.
    assert_eq!(count("let p = u.pad([1, 1])\nu.mul_(2)\ny = p[.., 2..] + u"), 2);
    // Nothing reads it.
    assert_eq!(count("u.pad([1, 1])\nlet p = u.pad([1, 1])\np = none"), 0);
}

/// A padded tensor as a script writes it, or by the model.
struct Pads {
    is_model: bool,
}

const MODEL: &str = "\
fn model(x, sizes, mode, value) {
    let y = x
    for k in 0..len(sizes) // 2 {
        let (before, after) = (sizes[2 * k], sizes[2 * k + 1])
        let d = y.dim() - 1 - k
        let n = y.shape[d]
        let i = arange(n + before + after) - before
        let at = i.clamp(0, n - 1)
        if mode == \"reflect\" { at = (n - 1) - ((n - 1) - i.abs()).abs() }
        if mode == \"circular\" { at = i % n }
        let z = y.index_select(d, at)
        if mode == \"constant\" {
            let shape = map(|k| 1, 0..y.dim())
            shape[d] = -1
            z = where(((i >= 0) & (i < n)).reshape(shape), z, full([], value, dtype=y.dtype))
        }
        y = z
    }
    y
}
";

impl Pads {
    fn pad(&self, x: &str, sizes: &[i64], mode: &str, value: &str) -> String {
        match (self.is_model, mode) {
            (true, _) => format!("model({x}, {sizes:?}, \"{mode}\", {value})"),
            (false, "constant") => format!("({x}).pad({sizes:?}, value={value})"),
            (false, _) => format!("({x}).pad({sizes:?}, mode=\"{mode}\")"),
        }
    }
}

const DTYPES: [&str; 7] = ["f32", "f64", "f16", "bf16", "i64", "u8", "bool"];

/// A program that pads.
fn random_program(seed: u64, is_model: bool) -> String {
    let pads = Pads { is_model };
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let dtype = DTYPES[draw(DTYPES.len())];
    let is_float = dtype.contains('f');
    let (rows, columns) = (6 + draw(3), 8);
    let mut text = format!(
        "let begin = |n, m| (arange(n * m) * 37 % 11).reshape(n, m).to({dtype})\n\
         let (x, w, z) = (begin({rows}, {columns}), begin(2 * {rows}, 3 * {columns}), begin({columns}, {rows}))\n\
         let y = x\n"
    );
    if is_model {
        text = format!("{MODEL}{text}");
    }
    text += &format!("for k in 0..{} {{\n", [1, 3, 12][draw(3)]);
    for _ in 0..1 + draw(5) {
        let source = match draw(9) {
            0 => format!("w[..{rows}, 4..{}]", 4 + columns),
            1 => "z.T".to_string(),
            2 => format!("w[0..{} by 2, 1..{} by 3]", 2 * rows, 3 * columns),
            3 => "(x + 1)".to_string(),
            4 => "x.roll(1, 0)".to_string(),
            5 => "y".to_string(),
            _ => "x".to_string(),
        };
        let mode = ["constant", "constant", "constant", "replicate", "reflect", "circular"][draw(6)];
        let value = match draw(4) {
            0 if is_float => ["nan", "inf", "-inf", "0.3", "-2.5"][draw(5)],
            1 if dtype != "bool" => "7",
            _ => "1",
        };
        // The sizes of columns and rows, the first column and row that are read.
        let sizes: Vec<i64> = (0..4).map(|_| draw(4) as i64).collect();
        let at: Vec<usize> = [0, 2].iter().map(|&i| draw((sizes[i] + sizes[i + 1]) as usize + 1)).collect();
        let p = pads.pad(&source, &sizes, mode, value);
        let part = format!("[{}..{}, {}..{}]", at[1], at[1] + rows, at[0], at[0] + columns);
        let value = format!("{p}{part}");
        text += &match draw(21) {
            0 => format!(
                "    let p = {p}\n    y = p{part} + p[{}.., {}..][..{rows}, ..{columns}]\n",
                sizes[2], sizes[0]
            ),
            1 => format!("    y = {value}\n    x.copy_(y)\n"),
            2 => format!("    let p = {p}\n    x.copy_(x.flip(0))\n    y = p{part} * y\n"),
            3 => format!("    let p = {p}\n    p.copy_(p.flip(1))\n    y = p{part} + y\n"),
            4 => format!("    let p = {p}\n    x[1..3] = p{part}[1..3]\n    y = p{part}\n"),
            5 => format!("    y = y + ({value}).sum(1, keepdim=true).to({dtype})\n"),
            6 => format!(
                "    let p = {}\n    y = maximum(p[1..-1, 1..-1]{part}, y)\n",
                pads.pad(&p, &[1, 1, 1, 1], "constant", "1")
            ),
            7 => format!(
                "    let p = {p}\n    let q = p[0..{rows} by 2, 0..{columns} by 3]\n    y[0..{rows} by 2, 0..{columns} by 3] = q + q\n"
            ),
            8 => format!("    let p = {p}\n    if k == 1 {{ print(p.sum().item()) }}\n    y = p{part} + x\n"),
            9 => format!("    let p = {p}\n    y = where(p{part} > x, p{part}, y)\n    x = x + y\n"),
            10 => format!("    y = y + {p}.flatten()[..{columns}]\n"),
            11 => format!("    y = ({value}).roll(1, 1) + {value}\n"),
            12 => format!("    y = y + ({p})[{}, {}..{}]\n", at[1], at[0], at[0] + columns),
            13 => format!(
                "    let s = Stream()\n    let p = {p}\n    s.wait_stream(cuda.current_stream())\n    let o = with stream(s) {{ p{part} * 2 }}\n    cuda.current_stream().wait_stream(s)\n    y = o.to({dtype}) + x\n"
            ),
            14 => format!(
                "    let p = {p}\n    y = (p{part} + p{part}.T.T).to({dtype})\n    z = p{part}.T + z\n"
            ),
            15 => format!("    y = y + {p}.unfold(1, {columns}, 1)[..{rows}, 0]\n"),
            16 => format!("    let p = {p}\n    y = p{part} + arange({columns}).to({dtype})\n"),
            // Values of padded loads that are read in parts, and padded again.
            17 => format!(
                "    let d = {value} + {value}.T.T\n    y[1.., 1..] = (d[1.., ..-1] + d[..-1, 1..]).to({dtype})\n"
            ),
            18 => format!(
                "    let d = ({value} + x).to({dtype})\n    let q = {}\n    y = q[..-2, 1..-1] + q[1..-1, 2..]\n",
                pads.pad("d", &[1, 1, 1, 1], mode, "1")
            ),
            19 => format!("    let d = maximum({value}, x)\n    y = d[2] + d[.., 1..2] + x\n"),
            _ => format!("    y = y + {value}\n"),
        };
        text += &format!("    x = x.to({dtype})\n    y = y.to({dtype})\n");
        if dtype != "bool" {
            text += "    y = y % 13\n    x = x % 17\n    z = z % 7\n";
        }
    }
    text + "}\nstr((x.tolist(), y.tolist(), z.tolist(), w.tolist()))"
}

#[test]
fn the_bits_are_those_of_a_model() {
    for seed in 0..300 {
        let code = random_program(seed, false);
        let (real, model) = (ends(&code, false), ends(&random_program(seed, true), false));
        assert_eq!(real, model, "{code}");
        match code.contains("Stream()") {
            true => assert_eq!(ends(&code, true), real, "{code}"),
            false => agrees(&code),
        }
    }
}

/// Tensors that grow.
#[test]
fn loops_over_growing_shapes_agree_with_a_model() {
    for mode in ["constant", "replicate", "reflect", "circular"] {
        let code = |is_model: bool| {
            let pads = Pads { is_model };
            format!(
                "{}let x = arange(6).reshape(2, 3)\nlet y = x\nfor k in 0..9 {{\n    x = {}\n    x[-1] = k\n    \
                 let p = {}\n    x = x + p[1..-1, 2..] % 5\n    y = {}\n    y = y[1..] * 2 % 7\n}}\nstr((x.tolist(), y.tolist()))",
                if is_model { MODEL } else { "" },
                pads.pad("x", &[1, 0, 0, 1], mode, "3"),
                pads.pad("x", &[1, 1, 1, 1], mode, "2"),
                pads.pad("y", &[0, 1, 1, 1], mode, "0"),
            )
        };
        let model = ends(&code(true), false);
        assert_eq!(ends(&code(false), false), model, "{mode}");
        assert_eq!(ends(&code(false), true), model, "{mode}");
    }
}

/// All sizes that a mode allows, and all slices.
#[test]
fn all_slices_of_small_tensors_agree_with_a_model() {
    for mode in ["constant", "replicate", "reflect", "circular"] {
        let most = match mode {
            "reflect" => 3,
            _ => 4,
        };
        let code = |is_model: bool| {
            let call = if is_model {
                format!("model(x, [before, after], \"{mode}\", -3)")
            } else if mode == "constant" {
                "x.pad([before, after], value=-3)".to_string()
            } else {
                format!("x.pad([before, after], mode=\"{mode}\")")
            };
            format!(
                "{}let all = []\nlet x = arange(8).reshape(2, 4)\nfor before in 0..{most} {{ for after in 0..{most} {{ \
                 for first in 0..4 + before + after {{ for end in first + 1..5 + before + after {{ for step in 1..3 {{\n\
                 let p = {call}\nlet q = p[.., first..end by step] * 2 + 1\nall.append(q.tolist())\n}} }} }} }} }}\n\
                 str(all)",
                if is_model { MODEL } else { "" }
            )
        };
        let model = ends(&code(true), false);
        assert_eq!(ends(&code(false), true), model, "{mode}");
        assert_eq!(ends(&code(false), false), model, "{mode}");
    }
}

#[test]
fn chains_of_rows_do_not_read_padded_tensors() {
    let data = "let u = (arange(24).float() * 37 % 11).reshape(4, 6)\nlet c = arange(9.0)\n";
    for pad in
        ["u.pad([2, 1], value=7)", "u.pad([2, 1], mode=\"reflect\")", "u.pad([2, 1], mode=\"circular\")"]
    {
        for reduction in ["v.sum(1)", "v.amax(1, keepdim=true)", "v.sum()", "v.mean(0)", "(v * c).sum(1)"] {
            for read in ["v + p", "p * 2", "p - p.flip(1)", "p[.., 1..-1] * u[.., ..1]", "p * r.sum()"] {
                agrees(&format!(
                    "{data}let p = {pad}\nlet v = p + 1\nlet r = {reduction}\nlet w = {read}\n\
                     str((w.tolist(), r.tolist(), p.tolist(), v.tolist()))"
                ));
            }
        }
    }
}

#[test]
fn parts_that_are_written_later_are_not_seen() {
    let data = "let (x, y) = (zeros(4, 6), arange(4.0))\n(x.sum() + y.sum()).item()\nlet a = y + 1\nx[.., 0].copy_(a)\n";
    for value in
        ["x.pad([1, 1])", "x.pad([1, 2], mode=\"circular\")", "x.pad([1, 1])[1] * 2", "x[tensor([3, 1])]"]
    {
        agrees(&format!(
            "{data}let p = {value}\nx[.., 1].copy_(a * 2)\nx[.., 2].mul_(a)\nx[.., 1].add_(a)\n\
             str((p.tolist(), x.tolist(), a.tolist()))"
        ));
    }
}

#[test]
fn repeated_rows_read_padded_tensors_from_memory() {
    for count in [2, 3, 8] {
        for value in [
            "u[1].pad([1, 1])",
            "u[1].pad([1, 1], mode=\"circular\")",
            "u[1][tensor([1, 2, 0, 3, 1, 1, 2, 5])]",
            "u[1].roll(2).pad([0, 2])",
        ] {
            for write in ["w[i].add_(g[i])", "w[i].copy_(g[i] * 2)", "g[i].add_(w[i] + 1)"] {
                agrees(&format!(
                    "let u = map(|i| arange(6.0) + i, 0..{count})\nlet w = map(|i| zeros(8), 0..{count})\n\
                     let g = map(|i| ones(8) * i, 0..{count})\n(w[0].sum() + g[1].sum() + u[0].sum()).item()\n\
                     g[1] = {value}\nforeach(|i| {{ {write} }}, zip(w, g))\nu[1].add_(5)\n\
                     str((map(|t| t.tolist(), w), map(|t| t.tolist(), g)))"
                ));
            }
        }
    }
}

#[test]
fn gradients_are_those_without_fusion() {
    let losses = [
        "(p[..-2, 1..-1] + p[2.., 1..-1] - 2 * u).square().sum()",
        "(p[..-2, ..-2] * p[2.., 2..]).mean()",
        "(p[..-2, ..-2] * u.exp()).sum(1).square().sum()",
        "maximum(maximum(p[..-2, 1..-1], p[2.., 1..-1]), u * 2).sum()",
        "p.square().sum()",
    ];
    for loss in losses {
        for mode in ["constant", "replicate", "reflect", "circular"] {
            let code = |is_model: bool| {
                let p = Pads { is_model }.pad("u", &[1, 1, 1, 1], mode, "2");
                format!(
                    "{}let u = ((arange(48) * 37 % 11).float() / 8).reshape(6, 8).requires_grad_()\n\
                     for k in 0..3 {{\n    let p = {p}\n    ({loss}).backward()\n    with no_grad() {{ u.sub_(0.125 * u.grad) }}\n    \
                     u.grad = none\n}}\nstr(u.tolist())",
                    if is_model { MODEL } else { "" }
                )
            };
            assert_eq!(ends(&code(false), true), ends(&code(false), false), "{loss} {mode}");
        }
    }
}

#[test]
fn gradients_of_stencils_are_padded_loads() {
    let count = |code: &str| {
        launches("let u = rand(64, 96).requires_grad_()\nlet g = rand(64, 96)", &within(code)).0.len()
    };
    let slices = "p[..-2, 1..-1] + p[2.., 1..-1] + p[1..-1, ..-2] + p[1..-1, 2..] - 4 * u";
    let forward = format!("let p = u.pad([1, 1, 1, 1])\nlet v = {slices}\nu = v");
    assert_eq!(count(&forward), 1);
    // The stencil, and five gradients of one tensor.
    let both = format!("let p = u.pad([1, 1, 1, 1])\nlet v = {slices}\nv.backward(g)");
    assert_eq!(count(&both), 2);
    let rows = "let v = u[1..] - u[..-1]\nv.backward(g[1..])";
    assert_eq!(count(rows), 2);
}

#[test]
fn values_of_padded_loads_are_computed_again() {
    one("let p = u.pad([1, 1])\nlet d = p[.., 1..] - p[.., ..-1]\ny = d[.., 1..] - d[.., ..-1]");
    one("let p = u.pad([0, 0, 2, 0], mode=\"replicate\")\nlet d = p[1..-1] + p[2..]\ny = d[1..] * d[..-1]");
}

#[test]
fn fuel_does_not_depend_on_fusion() {
    let code = "let x = arange(96).reshape(12, 8)\nlet p = x.pad([1, 1, 1, 1])\nlet y = p[2.., 2..] * 2\nstr(y.shape)";
    costs_the_same(code);
}

/// A padded tensor that waits does not keep memory that another request needs.
#[test]
fn originals_are_freed_when_memory_is_short() {
    for code in [
        "x = x.pad([1, 1])\nlet y = zeros(6 * n)\nstr(x.sum().item() + y.sum().item())",
        "let p = x.pad([1, 1])\nx = none\nlet y = zeros(5 * n)\nstr(p.sum().item() + y.sum().item())",
        "let p = x.pad([1, 1])\nx = none\nlet z = p[2..] + 1\np = none\nlet y = zeros(5 * n)\nstr(z.sum().item() + y.sum().item())",
        "x.pad([1, 1])\nx = none\nlet y = zeros(10 * n)\nstr(y.sum().item())",
    ] {
        let code = format!("let n = 1 << 20\nlet x = zeros(5 * n)\n{code}");
        fits(&code, 52 << 20);
    }
}

/// Another stream may only write what has been read.
#[test]
fn races_see_the_original() {
    let data = "let x = rand(12, 8)\nlet s = Stream()\ns.wait_stream(cuda.current_stream())\n\
                let p = x.pad([1, 1])\nlet y = p[.., 2..] * 2\nwith stream(s) {\n    x.add_(1)\n}\n\"\"";
    let (fused, apart) = (fails(data, true), fails(data, false));
    assert_eq!(fused, apart);
    assert!(fused.contains("E0601"), "{fused}");
    let code = "let x = arange(96).reshape(12, 8)\nlet s = Stream()\nlet p = x.pad([1, 1])\nlet y = p[.., 2..] * 2\n\
                s.wait_stream(cuda.current_stream())\nwith stream(s) {\n    x.add_(1)\n}\n\
                cuda.current_stream().wait_stream(s)\nstr((y.tolist(), (p + 1).tolist(), x.tolist()))";
    assert_eq!(ends(code, true), ends(code, false));
}

#[test]
fn graphs_repeat_padded_loads() {
    let code = "let x = rand(12, 8)\nlet f = |x| {\n    let p = x.pad([1, 1, 1, 1], value=2)\n    p[2.., 1..-1] - p[..-2, 1..-1] + p[1..-1, 2..]\n}\n\
                let g = cuda.graphed(f, [x])\nlet a = [g(x).clone(), g(x + 1).clone()]\n\
                str(all(map(|(a, b)| equal(a, b), zip(a, [f(x), f(x + 1)]))))";
    assert_eq!(ends(code, true), "true");
}
