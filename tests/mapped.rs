//! Matrix products of halves become one launch with the elementwise work that reads them (`plan/product.rs`), with the same
//! bits as without fusion.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{costs_the_same, keeping, launched_with};
use runnel::{Backend, Engine};

const DATA: &str = "let (x, w, b) = (randn(64, 32).to(bf16), randn(32, 48).to(bf16), randn(48).to(bf16))
let (r, z, v, y) = (randn(64, 48).to(bf16), randn(4, 16, 32).to(bf16), w.T.contiguous(), none)\n";

/// The labels of the launches of `code`, whose variables end with it.
fn launches(code: &str) -> Vec<String> {
    launched_with(keeping(), DATA, &format!("if true {{\n{code}\n}}"), |launch| launch.program.label.clone())
}

/// Code that takes one launch of a product and other work.
fn one(code: &str) {
    let all = launches(code);
    assert!(all.len() == 1 && all[0].starts_with("matmul+"), "{all:?}\n{code}");
}

/// Code in which the product is launched alone.
fn apart(code: &str) {
    let all = launches(code);
    assert!(all.iter().any(|label| label == "matmul"), "{all:?}\n{code}");
    assert!(!all.iter().any(|label| label.starts_with("matmul+")), "{all:?}\n{code}");
}

/// Asserts that a script has the same value in every way to run it.
fn agrees(code: &str) {
    let run = |fuse: bool, mapped_from: usize, kept_from: u64| {
        let engine = Engine::builder().backend(Backend::Emu).devices(2).fuse(fuse);
        let mut engine = engine.mapped_from(mapped_from).kept_from(kept_from).build().unwrap();
        engine.eval::<String>(code).unwrap_or_else(|e| panic!("{e:?}\n{code}"))
    };
    let expected = run(false, 1, 0);
    for (mapped_from, kept_from) in [(1, 1 << 20), (1, 0), (usize::MAX, 0)] {
        assert_eq!(run(true, mapped_from, kept_from), expected, "{mapped_from}, {kept_from}\n{code}");
    }
}

/// A script that returns the variables that `code` sets.
fn with_data(code: &str) -> String {
    format!("manual_seed(1)\n{DATA}{code}\n\"{{y}} {{x}} {{w}} {{r}}\"")
}

#[test]
fn what_reads_a_product_joins_it() {
    for code in [
        "y = gelu(x @ w + b)",
        "y = r + (x @ w + b)",
        "y = (x @ w).relu()",
        "y = x.linear(v, b).silu()",
        "y = (x @ w).T + r.T.contiguous()",
        "y = (v.T.T @ v.T) * 2 + 1",
        "y = (x @ w) * r.sigmoid() + r",
        "y = ((z @ w).reshape(64, 48) + r).tanh()",
        "y = (z @ w + b).reshape(8, 8, 48)",
        "y = where(r > 0, x @ w, 0)",
        "y = (x @ w).to(f32) * 0.5",
        "let h = x @ w\ny = h * h.sigmoid()",
        "y = x @ w\ny += b",
        "y = (x @ w)[..] + r[.., none, ..].reshape(64, 48)",
    ] {
        one(code);
        agrees(&with_data(code));
    }
}

#[test]
fn a_product_that_is_needed_is_stored() {
    // `h` is read later.
    let code = "let h = x @ w\nlet g = gelu(h + b)\ncuda.synchronize()\ny = h - g";
    one_of_two(code);
    agrees(&with_data(code));
    agrees(&with_data("let h = x @ w\ny = (h + b, h, h.sum(), h.T @ r)"));
}

/// Code of two launches, the first of which is a product and other work.
fn one_of_two(code: &str) {
    let all = launches(code);
    assert!(all.len() == 2 && all[0].starts_with("matmul+"), "{all:?}\n{code}");
}

#[test]
fn other_readers_follow_the_product() {
    for code in [
        "y = x @ w",
        "y = (x @ w).sum()",
        "y = (x @ w)[1..] * 2",
        "y = (x @ w).softmax(-1)",
        "y = (x @ w).roll(1, 0) * 2",
        "y = x @ w\nlet k = r * 2\ny = y + k.sum()",
        "y = (x @ w).cumsum(0) * 2",
        "y = (x @ w) @ r.T",
        // The program overwrites an operand that other tiles still read.
        "y = x @ w\nx.copy_((x @ w)[.., ..32] * 2)",
        // Numbers of elements that units do not divide.
        "y = x @ w[.., ..45].contiguous() + 1",
        // Not a half.
        "y = x.to(f32) @ w.to(f32) + 1",
    ] {
        apart(code);
        agrees(&with_data(code));
    }
    agrees(&with_data("let s = randn(32, 32).to(bf16)\nx.copy_(tanh(x @ s))\ny = x * 2"));
    agrees(&with_data("let s = randn(64, 64).to(bf16)\nlet h = s @ x\nx.copy_(h * 2)\ny = h"));
    agrees(&with_data("let h = x @ w\nr.copy_(h + r)\ny = h"));
    agrees(&with_data("let h = x @ w\nh.copy_(h + r)\ny = h.T @ h"));
    agrees(&with_data("let h = x @ w\nx.zero_()\nw.zero_()\ny = h + b"));
    agrees(&with_data("let h = x @ w\nh[3] = 0\ny = h + b"));
}

#[test]
fn waiting_products_are_launched_in_time() {
    // Copies, other streams, events, graphs, other devices, and the end of the script.
    for code in [
        "y = (x @ w).cpu()",
        "let t = zeros(64, 48).to(bf16)\nt.copy_(x @ w)\ny = t",
        "let s = Stream()\nlet h = x @ w\ns.wait_stream(cuda.current_stream())\nwith stream(s) { y = h + b }\n\
         cuda.current_stream().wait_stream(s)",
        "let e = Event()\nlet h = x @ w\ne.record()\nlet s = Stream()\ns.wait_event(e)\n\
         with stream(s) { y = h * 2 }\ns.synchronize()",
        "let h = x @ w\nlet k = h.to(cuda:1)\ny = k + 1",
        "let h = x @ w\nassert(h.data_ptr() != 0)\ny = h",
        "let g = Graph()\nlet t = zeros(64, 48).to(bf16)\nwith graph(g) { t.copy_(gelu(x @ w + b)) }\n\
         x.mul_(2)\ng.replay()\ny = t",
        "let g = Graph()\nlet t = zeros(64, 48).to(bf16)\nwith graph(g) { let h = x @ w\nt.copy_(h + b)\n\
         t.add_(h) }\nx.mul_(2)\ng.replay()\ny = t",
        "let (p, q) = (x @ w, z.reshape(64, 32) @ w)\ny = p * q + b",
        "let h = x @ w\nlet (n, _) = (r * 2, r.sum().item())\ny = h + n",
        "for i in 0..5 { x = ((x @ w + b) @ w.T).tanh() }\ny = x.sum()",
    ] {
        agrees(&with_data(code));
    }
}

#[test]
fn gradients_agree() {
    for code in [
        "let loss = gelu(x @ w + b).to(f32).sum()",
        "let loss = (r + (x @ w).relu() @ w.T @ w).to(f32).square().mean()",
        "let loss = ((z @ w + b).tanh() * 2).to(f32).sum()",
    ] {
        agrees(&format!(
            "manual_seed(1)\n{DATA}for t in [x, w, b, z] {{ t.requires_grad_() }}\n{code}\nloss.backward()\n\
             \"{{loss}} {{x.grad}} {{w.grad}} {{b.grad}} {{z.grad}}\""
        ));
    }
}

#[test]
fn fuel_and_memory_are_those_of_two_launches() {
    costs_the_same(
        "let (x, w, b) = (ones(8, 4).to(bf16), ones(4, 8).to(bf16), ones(8).to(bf16))\n\"{gelu(x @ w + b)}\"",
    );
    let code =
        "let x = ones(512, 512).to(bf16)\nfor i in 0..20 { x = ((x @ x) * 0.001 + 1).tanh() }\n\"{x.sum()}\"";
    let run = |mapped_from: usize| {
        let engine = Engine::builder().backend(Backend::Emu).devices(1).device_memory(3 << 20);
        engine.mapped_from(mapped_from).build().unwrap().eval::<String>(code).unwrap()
    };
    assert_eq!(run(1), run(usize::MAX));
}

/// A random matrix of these extents in some layout, as an expression.
fn matrix(draw: &mut Draw, rows: usize, columns: usize, dtype: &str) -> String {
    match draw.below(4) {
        0 => format!("randn({columns}, {rows}).to({dtype}).T"),
        1 => format!("randn({rows}, {}).to({dtype})[.., ..{columns}]", columns + 8),
        2 => format!("randn({}, {columns}).to({dtype})[1..{}]", rows + 2, rows + 1),
        _ => format!("randn({rows}, {columns}).to({dtype})"),
    }
}

#[test]
fn random_programs_agree() {
    for seed in 0..120 {
        let mut draw = Draw(seed);
        let dtype = ["bf16", "f16"][draw.below(2)];
        let [m, n, k] = [8, 8, 1].map(|unit| unit * (1 + draw.below(6)));
        let [left, right] = [matrix(&mut draw, m, k, dtype), matrix(&mut draw, k, n, dtype)];
        let mut code = format!("manual_seed({seed})\nlet (p, q) = ({left}, {right})\nlet all = []\n");
        let operands = [
            format!("randn({n}).to({dtype})"),
            format!("randn({m}, 1).to({dtype})"),
            format!("randn({m}, {n})"),
            format!("randn({m}, {n}).to({dtype})"),
            format!("(randn({m}, {n}) > 0)"),
            format!("randn({n}, {m}).to({dtype}).T"),
            "randn(1).to(f32)".to_string(),
            "2".to_string(),
        ];
        for (number, operand) in operands.iter().enumerate() {
            code += &format!("let o{number} = {operand}\n");
        }
        code += "let h = p @ q\n";
        for step in 0..1 + draw.below(4) {
            let value = ["h", "h + o0", "h.tanh()"][draw.below(3)];
            let other = draw.below(operands.len());
            let kind = draw.below(8);
            code += &match kind {
                0 => format!("all.append({value} + o{other})\n"),
                1 => format!("all.append(gelu({value}) * o{other})\n"),
                2 => format!("h = {value} - o{other} * 0.5\n"),
                3 => format!("h = h.to({dtype})\nh += o{}.to({dtype})\n", other % 4),
                4 => format!("all.append(where(o4, {value}, o{}))\n", [0, 2, 3][draw.below(3)]),
                5 => "all.append(h.sum(1))\n".to_string(),
                6 => format!("let s{step} = p @ q\nh = h + s{step}\n"),
                _ => format!("p.mul_(0.5)\nall.append({value})\n"),
            };
        }
        code += "all.append(h)\n\"{all}\"";
        agrees(&code);
    }
}
