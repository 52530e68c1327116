//! Updates of many tensors: few operations and launches, with the results of separate updates.

use super::*;
use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings};
use crate::vm::{Mode, Vm};

fn vm(fuse: bool) -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    machine(Runtime::new(Machine::open(&config).unwrap(), Settings { fuse, ..Settings::default() }))
}

fn run(vm: &mut Vm, text: &str) -> Value {
    vm.eval("<test>", text, Mode::Input).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// The launches and operations of a script.
fn counts(vm: &mut Vm, text: &str) -> (u64, u64) {
    vm.flush().unwrap();
    let before = (vm.rt.launches(), vm.rt.operations());
    run(vm, text);
    vm.flush().unwrap();
    (vm.rt.launches() - before.0, vm.rt.operations() - before.1)
}

/// Parameters of many shapes with gradients, some of neighbours with equal shapes.
const PARAMETERS: &str = "import nn
manual_seed(1)
let shapes = [[64], [64], [7, 9], [128, 3], [1], [5, 2, 2], [2000], [33]]
let params = map(|i| randn(shapes[i % 8], requires_grad=true), 0..48)
for p in params { p.grad = randn_like(p) }
";

/// Optimisers, with the maximum number of launches and of operations of a step.
const OPTIMIZERS: &[(&str, u64, u64)] = &[
    ("nn.sgd(params, lr=0.1)", 1, 8),
    ("nn.sgd(params, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=true, maximize=true)", 1, 12),
    ("nn.adam(params, lr=0.1)", 1, 12),
    ("nn.adam(params, lr=0.1, amsgrad=true, weight_decay=0.1)", 1, 16),
    ("nn.adamw(params, lr=0.1)", 1, 12),
    ("nn.nadam(params, lr=0.1)", 1, 16),
    ("nn.radam(params, lr=0.1)", 1, 12),
    ("nn.rmsprop(params, lr=0.1)", 1, 12),
    ("nn.rmsprop(params, lr=0.1, momentum=0.9, centered=true)", 1, 16),
    ("nn.adagrad(params, lr=0.1)", 1, 12),
    ("nn.adadelta(params)", 1, 16),
    ("nn.adamax(params, lr=0.1)", 1, 12),
    ("nn.lion(params, lr=0.1)", 1, 12),
];

#[test]
fn a_step_of_an_optimizer_is_few_operations_and_launches() {
    for &(optimizer, launches, operations) in OPTIMIZERS {
        let mut vm = vm(true);
        run(&mut vm, PARAMETERS);
        run(&mut vm, &format!("let optimizer = {optimizer}\noptimizer.step()\noptimizer.step()"));
        let (l, o) = counts(&mut vm, "optimizer.step()");
        assert!(l <= launches && o <= operations, "{optimizer}: {l} launches, {o} operations");
    }
}

#[test]
fn optimizers_give_the_bits_of_separate_operations() {
    let all = "cat(map(|p| p.detach().to(f64).reshape(-1), params))";
    let more = [
        // Alternating dtypes, gradients with other strides, a parameter without a gradient, two groups, a step that
        // some parameters skip.
        "for i in 0..48 { if i % 5 == 0 { params[i] = params[i].detach().to(f64).requires_grad_() } }
         params[3] = params[2].detach().to(bf16).requires_grad_()
         for p in params { p.grad = randn_like(p) }
         params[3].grad = randn(9, 7).to(bf16).t()
         params[4].grad = none
         let optimizer = nn.adamw([(params = params[0..20], lr = 0.1), (params = params[20..48], lr = 0.2)])
         optimizer.step()
         params[30].grad = none
         optimizer.step()
         params[30].grad = ones_like(params[30])
         optimizer.step()",
        // Views of one memory.
        "let flat = randn(4000)
         let views = map(|i| flat[i * 50..i * 50 + 40 + i], 0..20)
         let gradients = map(|v| randn_like(v), views)
         let optimizer = nn.adam(views)
         for i in 0..3 { optimizer.step(gradients) }
         params = [flat]",
        "nn.clip_grad_value_(params, 0.5)
         nn.clip_grad_norm_(params, 1.0)
         for p in params { with no_grad() { p.copy_(p.grad) } }",
        "let net = (w = params, forward = |self, x| x)
         let average = nn.averaged(net, decay=0.75)
         for i in 0..2 {
             with no_grad() { for p in params { p.add_(1) } }
             average.update(net)
         }
         params = average.net.w",
    ];
    let steps = OPTIMIZERS
        .iter()
        .map(|(optimizer, ..)| format!("let optimizer = {optimizer}\nfor i in 0..3 {{ optimizer.step() }}"));
    for script in steps.chain(more.map(str::to_string)) {
        let results = [true, false].map(|fuse| {
            let mut vm = vm(fuse);
            run(&mut vm, PARAMETERS);
            run(&mut vm, &script);
            let Value::Tensor(all) = run(&mut vm, all) else { panic!("no tensor") };
            vm.rt.read(&all).unwrap()
        });
        assert!(results[0] == results[1], "{script}");
    }
}

#[test]
fn a_repeated_update_counts_as_a_write() {
    for row in 0..2 {
        let mut vm = vm(true);
        run(&mut vm, "let w = map(|i| ones(3 + i, requires_grad=true), 0..2)");
        run(&mut vm, &format!("let loss = (w[{row}] * w[{row}]).sum()"));
        run(&mut vm, "with no_grad() { foreach(|i| w[i].mul_(2), map(|p| [p], w)) }");
        let Err(error) = vm.eval("<test>", "loss.backward()", Mode::Input) else { panic!("row {row}") };
        assert!(error.message().contains("written"), "{error:?}");
    }
}

#[test]
fn rows_that_fit_no_template_call_the_function() {
    // The rows share memory; a draw; a reduction; a value that leaves the function; recorded operations.
    let cases = [
        (
            "let x = zeros(9)\nlet rows = map(|i| [x[0..6], x[3..9]], 0..3)\nforeach(|i| { rows[i][0].add_(rows[i][1] + 1) }, rows)",
            "x.sum().item() == 27",
        ),
        (
            "let rows = map(|i| [zeros(50)], 0..2)\nforeach(|i| { rows[i][0].add_(rand(50)) }, rows)",
            "not equal(rows[0][0], rows[1][0])",
        ),
        (
            "let rows = map(|i| [full([i + 2], 2.0)], 0..3)\nforeach(|i| { rows[i][0].mul_(rows[i][0].sum()) }, rows)",
            "rows[2][0].sum().item() == 64",
        ),
        (
            "let seen = []\nlet rows = map(|i| [full([i + 2], 2.0)], 0..3)\nforeach(|i| seen.append(rows[i][0] * 2), rows)",
            "len(seen) == 3 and seen[2].sum().item() == 16",
        ),
        (
            "let w = ones(2, requires_grad=true)\nlet rows = map(|i| [ones(2)], 0..3)\nforeach(|i| rows[i][0].mul_(w), rows)\n(rows[0][0] + rows[2][0]).sum().backward()",
            "equal(w.grad, [2.0, 2.0])",
        ),
        ("let rows = [[1], [ones(2)], [ones(2), 3], []]\nlet n = 0\nforeach(|i| { n += 1 }, rows)", "n == 4"),
    ];
    for (script, expected) in cases {
        let mut vm = vm(true);
        run(&mut vm, script);
        assert!(matches!(run(&mut vm, expected), Value::Bool(true)), "{script}");
    }
}

#[test]
fn functions_that_depend_on_the_shape_are_called_for_each_row() {
    // Each equals an elementwise update for the first row, and does something else for later rows.
    let updates = [
        "if a[i].ndim > 1 { a[i].mul_(3) } else { a[i].add_(b[i]) }",
        "a[i].div_(a[i].numel())",
        "a[i].mul_(a[i].shape[-1])",
        "a[i].mul_(len(a[i]))",
        "a[i].add_(b[i].roll(1))",
        "a[i].add_(b[i].roll(2, 0).flip(-1))",
        "a[i].add_(b[i].T.T * b[i].shape[0])",
        "a[i].add_(b[i].flatten()[0..1])",
        "a[i][..1].add_(1)",
        "a[i].add_(b[i].sum(-1, keepdim=true))",
        "a[i].add_(b[i].softmax(-1))",
        "a[i].copy_(b[i].cumsum(0))",
        "a[i].sub_(b[i].mean())",
    ];
    for first in ["[1]", "[2]", "[1, 1]", "[1, 3]"] {
        for update in updates {
            let mut vm = vm(true);
            run(
                &mut vm,
                &format!(
                    "let shapes = [{first}, [3], [2], [3, 2], [1, 2], [4, 1]]
                     let (a, b) = (map(|s| ones(s), shapes), map(|s| rand(s), shapes))
                     foreach(|i| {{ {update} }}, list(zip(a, b)))
                     let found = a
                     a = map(|s| ones(s), shapes)
                     for i in 0..6 {{ {update} }}"
                ),
            );
            let equal = run(&mut vm, "all(map(|(x, y)| equal(x, y), list(zip(a, found))))");
            assert!(matches!(equal, Value::Bool(true)), "{update} first {first}");
        }
    }
}

#[test]
fn a_training_step_is_few_launches() {
    let mut vm = vm(true);
    run(
        &mut vm,
        "import nn
         let net = nn.sequential(nn.linear(20, 16), relu, nn.linear(16, 16), relu, nn.linear(16, 10))
         let optimizer = nn.adam(net, lr=1e-3)
         let (x, y) = (randn(8, 20), randint(0, 10, (8,)))
         fn step() {
             optimizer.zero_grad()
             nn.cross_entropy(net(x), y).backward()
             optimizer.step()
         }
         for i in 0..3 { step() }",
    );
    let known = vm.rt.known_groups();
    let (launches, operations) = counts(&mut vm, "step()");
    assert!(launches <= 18 && operations <= 62, "{launches} launches, {operations} operations");
    // Earlier steps had the same work over other memory.
    assert!(known > 10 && vm.rt.known_groups() == known, "{known}, {}", vm.rt.known_groups());
}

#[test]
fn groups_over_other_shapes_are_known() {
    let mut vm = vm(true);
    run(
        &mut vm,
        "let x = randn(40, 3)
         let want = x.cpu()
         fn part(x, i) { x[i.., 1] = x[i.., 1] * x[i, 2] + 1 }
         for i in 0..2 { part(x, i); cuda.synchronize() }",
    );
    let known = vm.rt.known_groups();
    run(&mut vm, "for i in 2..39 { part(x, i); cuda.synchronize() }");
    assert_eq!(vm.rt.known_groups(), known, "only the shapes differ");
    let equal = run(&mut vm, "for i in 0..39 { part(want, i) }\nallclose(x.cpu(), want)");
    assert!(matches!(equal, Value::Bool(true)));
}

#[test]
fn chains_over_other_parts_of_a_tensor_hit_the_cache() {
    let mut vm = vm(true);
    run(
        &mut vm,
        "let x = randn(12, 4, 64)
         let y = zeros(12, 4, 64)
         fn part(i) { y[i] = softmax(x[i] * 2, -1) }
         part(3)
         cuda.synchronize()",
    );
    let known = vm.rt.known_groups();
    run(&mut vm, "for i in 0..12 { part(i); cuda.synchronize() }");
    assert_eq!(vm.rt.known_groups(), known, "only the offsets differ");
    // Views of one tensor with other strides are different work.
    run(&mut vm, "for i in 1..4 { y[0] = softmax(y[i], -1) + y[0]; cuda.synchronize() }");
    let equal = run(
        &mut vm,
        "let want = softmax(x * 2, -1)
         for i in 1..4 { want[0] = softmax(want[i].clone(), -1) + want[0].clone() }
         allclose(y, want)",
    );
    assert!(matches!(equal, Value::Bool(true)));
}

#[test]
fn the_gradient_of_a_loss_stores_nothing_of_its_size_but_the_result() {
    let mut vm = vm(true);
    run(
        &mut vm,
        "import nn
         let (x, y) = (randn(64, 5000, requires_grad=true), randint(0, 5000, (64,)))
         let loss = nn.cross_entropy(x, y)
         cuda.synchronize()
         let before = cuda.memory_allocated()
         cuda.reset_peak_memory_stats()
         loss.backward()
         cuda.synchronize()
         let more = (cuda.max_memory_allocated() - before) / (4 * x.numel())",
    );
    let Value::Float(more) = run(&mut vm, "more") else { panic!("no number") };
    assert!((1.0..1.2).contains(&more), "{more} times the logits");
}
