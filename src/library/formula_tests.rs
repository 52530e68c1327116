//! Formulas of gradients and copies of many tensors: the queued work, and the same bits as with separate operations.

use super::*;
use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings, queued};
use crate::vm::{Mode, Vm};

fn vm(fuse: bool) -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    machine(Runtime::new(Machine::open(&config).unwrap(), Settings { fuse, ..Settings::default() }))
}

fn run(vm: &mut Vm, text: &str) -> Value {
    vm.eval("<test>", text, Mode::Input).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// The bytes of the tensor that a script evaluates to.
fn bytes(vm: &mut Vm, text: &str) -> Vec<u8> {
    match run(vm, text) {
        Value::Tensor(tensor) => vm.rt.read(&tensor).unwrap(),
        _ => panic!("{text} gives no tensor"),
    }
}

#[test]
fn a_formula_is_one_result_of_the_queue() {
    let mut vm = vm(true);
    for (name, most) in [("tanh", 1), ("sigmoid", 1), ("exp", 1), ("relu", 1), ("softplus", 2), ("silu", 2)] {
        run(
            &mut vm,
            &format!("let x = randn(4, 8, requires_grad=true)\nlet y = {name}(x)\nlet g = randn(4, 8)"),
        );
        let found = queued::during(|| drop(run(&mut vm, "let (d,) = autograd.grad([y], [x], [g])")));
        assert!((1..=most).contains(&found), "{name}: {found} results");
    }
}

#[test]
fn steps_that_wait_have_the_bits_of_separate_operations() {
    // Layouts in which operands may have another memory order than the result.
    let views = ["x", "x.mT", "x[.., 1..]", "x[0].expand(3, 6)", "x[0, 0]"];
    let functions =
        ["tanh(v)", "sigmoid(v)", "gelu(v)", "silu(v)", "softplus(v)", "erf(v) * atan(v)", "v / (1 + v * v)"];
    for dtype in ["f32", "f16", "bf16", "f64"] {
        for view in views {
            for function in functions {
                let text = format!(
                    "manual_seed(7)
                     let x = randn(3, 6).to({dtype}).requires_grad_()
                     let v = {view}
                     let y = {function}
                     y.backward(randn(y.shape).to({dtype}))
                     x.grad"
                );
                let (fused, separate) = (bytes(&mut vm(true), &text), bytes(&mut vm(false), &text));
                assert_eq!(fused, separate, "{function} of {view}, {dtype}");
            }
        }
    }
}

#[test]
fn gradients_of_gradients_follow_the_steps() {
    let text = "let x = tensor([0.3, -0.7], dtype=f64, requires_grad=true)
                let (d,) = autograd.grad([tanh(x).sum()], [x], create_graph=true)
                let (e,) = autograd.grad([d.sum()], [x])
                let y = tanh(x.detach())
                all((e + 2 * y * (1 - y * y)).abs() < 1e-12)";
    let mut vm = vm(true);
    let Value::Tensor(found) = run(&mut vm, text) else { panic!("a tensor") };
    assert!(!vm.rt.item(&found).unwrap().is_zero());
}

#[test]
fn copies_of_many_tensors_are_one_launch_that_is_not_assembled() {
    let mut vm = vm(true);
    run(&mut vm, "let xs = map(|i| randn(3 + i % 5, 4), 0..60)\nlet ys = map(|i| randn(5, 7), 0..60)");
    // A first use of the program.
    run(&mut vm, "let first = cat(xs)\ncuda.synchronize()");
    for (text, same) in [
        ("cat(xs)", "equal(z[3..7], xs[1]) and equal(z[-3..], xs[55]) == false and equal(z[-7..], xs[59])"),
        ("stack(ys)", "all(map(|i| equal(z[i], ys[i]), 0..60))"),
    ] {
        vm.flush().unwrap();
        let (launches, known) = (vm.rt.launches(), vm.rt.known_groups());
        run(&mut vm, &format!("let z = {text}"));
        vm.flush().unwrap();
        assert_eq!((vm.rt.launches() - launches, vm.rt.known_groups() - known), (1, 0), "{text}");
        assert!(matches!(run(&mut vm, same), Value::Bool(true)), "{text}");
    }
    // A pending value is stored by the launch that computes it.
    run(&mut vm, "let a = randn(8)\ncuda.synchronize()");
    let launches = vm.rt.launches();
    run(&mut vm, "let z = stack([a + 1, a * 2, a - 3, a / 4, a * a])");
    vm.flush().unwrap();
    assert_eq!(vm.rt.launches() - launches, 1);
    assert!(matches!(run(&mut vm, "equal(z[3], a / 4)"), Value::Bool(true)));
}

#[test]
fn copies_of_many_tensors_follow_the_rules_of_copies() {
    // Other dtypes, strides, devices and empty tensors; a copy of a lost or racing tensor behaves as with separate
    // operations.
    let mut vm = vm(true);
    let texts = [
        "equal(stack([a, b.to(f64), a, b])[1], b.to(f64))",
        "equal(stack([a.mT, b.mT, a.mT, b.mT])[3], b.mT)",
        "equal(cat([a, zeros(0, 4), b, a, b])[2..4], b)",
        "equal(cat([a, b, a, b, a], 1)[.., 4..8], b)",
        "equal(stack([a, b, a, b], 1)[.., 1], b)",
        "stack([zeros(0)] ++ map(|_| zeros(0), 0..5)).shape == (6, 0)",
    ];
    run(&mut vm, "let (a, b) = (randn(2, 4), randn(2, 4))\ncuda.synchronize()");
    for text in texts {
        assert!(matches!(run(&mut vm, text), Value::Bool(true)), "{text}");
    }
    let race = "let s = Stream()\nlet xs = map(|_| randn(6), 0..8)\nwith stream(s) { stack(xs) }";
    let error = vm.eval("<test>", race, Mode::Input).err().map(|e| e.code().id);
    assert_eq!(error, Some("E0601"));
}

/// A step of each cell as one operation and written out, with gradients of both results of the first.
const CELLS: [(&str, &str, &str); 3] = [
    (
        "let (x, y, c) = (randn(5, 12), randn(5, 12), randn(5, 3))",
        "{ let next = lstm_step(x, y, c); cat([next.h, next.c]) }",
        "{ let (i, f, g, o) = (x + y).chunk(4, -1); let n = sigmoid(f) * c + sigmoid(i) * tanh(g); cat([sigmoid(o) * tanh(n), n]) }",
    ),
    (
        "let (x, y, c) = (randn(5, 9), randn(5, 9), randn(5, 3))",
        "gru_step(x, y, c)",
        "{ let (r, z) = (sigmoid(x[.., ..3] + y[.., ..3]), sigmoid(x[.., 3..6] + y[.., 3..6])); (1 - z) * tanh(x[.., 6..] + r * y[.., 6..]) + z * c }",
    ),
    (
        "let (x, y, c, b) = (randn(2, 9), randn(2, 9), randn(2, 3), randn(3))",
        "gru_step(x, y, c, b)",
        "{ let (r, z) = (sigmoid(x[.., ..3] + y[.., ..3]), sigmoid(x[.., 3..6] + y[.., 3..6])); (1 - z) * tanh(x[.., 6..] + r * (y[.., 6..] + b)) + z * c }",
    ),
];

#[test]
fn cells_are_what_they_are_written_out() {
    for (setup, cell, written) in CELLS {
        let inputs = if setup.contains("b)") { "[x, y, c, b]" } else { "[x, y, c]" };
        let text = |cell: &str| {
            format!(
                "manual_seed(5)
                 {setup}
                 for t in {inputs} {{ t.requires_grad_() }}
                 let value = {cell}
                 let g = randn(value.shape)
                 value.backward(g)
                 cat([value.detach().flatten(), ..map(|t| t.grad.flatten(), {inputs})])"
            )
        };
        let (fused, separate) = (bytes(&mut vm(true), &text(cell)), bytes(&mut vm(false), &text(cell)));
        assert_eq!(fused, separate, "{cell}");
        let mut vm = vm(true);
        run(&mut vm, &format!("let a = {{ {} }}\nlet b = {{ {} }}", text(cell), text(written)));
        assert!(matches!(run(&mut vm, "allclose(a, b, 1e-5, 1e-6)"), Value::Bool(true)), "{cell}");
    }
}

#[test]
fn cells_name_operands_that_do_not_fit() {
    let mut vm = vm(true);
    for (text, code) in [
        ("lstm_step(randn(2, 12), randn(2, 12), randn(2, 4))", "E0350"),
        ("lstm_step(randn(2, 12), randn(3, 12), randn(2, 3))", "E0350"),
        ("lstm_step(randn(2, 12), randn(2, 12).to(f64), randn(2, 3))", "E0350"),
        ("gru_step(randn(2, 9), randn(2, 9), randn(2, 3), randn(4))", "E0350"),
        ("gru_step(randn([]), randn([]), randn([]))", "E0350"),
    ] {
        let error = vm.eval("<test>", text, Mode::Input).err().map(|e| e.code().id);
        assert_eq!(error, Some(code), "{text}");
    }
    run(&mut vm, "assert(lstm_step(randn(0, 8), randn(0, 8), randn(0, 2)).h.shape == (0, 2))");
}
