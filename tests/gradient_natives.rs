//! No native function gives a tensor that is silently cut off from the tensors it was computed from: its result requires
//! gradients, or has none (ints, numbers, texts), or the function is listed here, or it is an error.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::library::NATIVES;
use runnel::ops::signature::{Default, Kind, Param};
use runnel::{Backend, Engine};
use std::time::Duration;

/// Functions whose results have no gradients, with the reason.
const CUTS: &[(&str, &str)] = &[
    ("requires_grad_", "its purpose"),
    ("detach_", "its purpose"),
    ("jvp", "zeros where there is no dependence"),
];

/// Expressions whose results have none, as in PyTorch, with the reason.
const CUT_EXPRESSIONS: &[(&str, &str)] = &[
    ("w.detach()", "its purpose"),
    ("with no_grad() { w * 2 }", "its purpose"),
    ("tensor(w)", "a new leaf with these elements"),
    ("full([2], w[0])", "the value is a number"),
    ("w.grad", "a gradient, which is not recorded without `create_graph`"),
];

/// Expressions other than calls of natives.
const EXPRESSIONS: &[&str] = &[
    "w[0]",
    "w[1..]",
    "w[[0, 2]]",
    "w[w.detach() > 1]",
    "w on cpu",
    "w on cuda:1",
    "list(w)",
    "tuple(w)",
    "map(|x| x * 2, w)",
    "filter(|x| true, w)",
    "reduce(|a, b| a * b, w)",
    "sum(w)",
    "sum([w, w])",
    "max(w)",
    "max(w[0], w[1])",
    "reversed(w)",
    "enumerate(w)",
    "zip(w, w)",
    "abs(w)",
    "round(w, decimals=1)",
    "divmod(w, 2)",
    "{ let (a, b, c) = w\n(a, b, c) }",
    "{ let all = []\nfor x in w { all.append(x) }\nall }",
    "[..w]",
    "stack([w[0], w[1]])",
    "dict([(\"a\", w)])",
    "record(dict([(\"a\", w)]))",
    "(a = w, b = w * 2)",
    "m.T",
    "m.mT",
    "z.real",
    "z.imag",
    "z.conj()",
    "view_as_real(z)",
    "tree_map(|x| x * 2, [w, (a = w)])",
    "tree_leaves([w, (a = w)])",
    "cuda.graphed(|x| x * w, [ones(3)])(ones(3))",
    "{ let g = Graph()\nlet y = with graph(g) { w * 2 }\ng.replay()\ny }",
    "{ let s = Stream()\ns.wait_stream(cuda.current_stream())\nwith stream(s) { w.clone() } }",
    "with autocast(bf16) { m @ m.t() }",
    "with fork_rng() { w * 2 }",
    "checkpoint(|x| x * 2, w)",
    "vjp(|x| x * 2, w)[0]",
    "jvp(|x| x * 2, (w,), (w,))",
    "value_and_grad(|x| (x ** 3).sum())(w * 2)",
    "grad(|x| (x ** 3).sum())(w * 2)",
    "jacobian(|x| x ** 3)(w * 2)",
    "hessian(|x| (x ** 3).sum())(w * 2)",
    "autograd.grad((w ** 3).sum(), w, create_graph=true)",
    "custom_gradient(|x| { (x * 2, none) }, |s, g| g * 2)(w)",
    "value_and_grad(|x| (x ** 3).sum())(w)",
    "value_and_grad(|x| ((x ** 3).sum(), x * 2), has_aux=true)(w)",
    "grad(|x| (x ** 3).sum())(w)",
    "grad(|x| (x * w).sum())(ones(3))",
    "jacobian(|x| x ** 3)(w)",
    "jacobian(|x| x * w)(ones(3))",
    "vjp(|x| x * w, ones(3))[0]",
    "vjp(|x| x ** 3, w)[1](ones(3))",
    "vjp(|x| x * w, ones(3))[1](ones(3))",
    "vjp(|x| x * 2, ones(3))[1](w)",
    "jvp(|x| x * 2, (ones(3),), (w,))[1]",
    "jvp(|x| x ** 3, (w,), (ones(3),))",
    "jvp(|x| x ** 3, (w * 2,), (ones(3),))",
    "jvp(|x| x * w, (ones(3),), (ones(3),))",
    "where([true, false, true], w, 0)",
    "{ let x = zeros(3)\nx[0] = w[0]\nx }",
    "{ let x = zeros(3)\nx[0..2] += w[0]\nx }",
    "{ let x = zeros(3)\nx.copy_(w)\nx }",
    "{ let x = zeros(3)\nx += w\nx }",
    "{ let x = zeros(3)\nx[[0, 1]] = w[1..]\nx }",
    "{ let x = zeros(3)\nx.fill_(w[0])\nx }",
    "{ let x = zeros(3)\nx.masked_fill_([true, false, true], w[0])\nx }",
];

fn candidates(param: &Param) -> &'static [&'static str] {
    match param.kind {
        Kind::Str => &["\"sum\"", "\"b\""],
        Kind::Int => &["0", "1", "3"],
        Kind::Float | Kind::Number => &["0.5", "w[0]"],
        Kind::Bool => &["true", "false"],
        Kind::Fn => &["f", "k"],
        Kind::Tensor | Kind::TensorOrNumber => &["w", "m"],
        Kind::Shape | Kind::Dims => &["[3]"],
        Kind::Any | Kind::Data => {
            &["w", "[w, w]", "f", "k", "[0, 1]", "0", "[far, w]", "(a = w)", "[[w], [w]]"]
        }
        _ => &["none"],
    }
}

/// Up to a few hundred calls of a function.
fn calls(receiver: &str, name: &str, params: &[Param]) -> Vec<String> {
    let (own, rest) = match receiver {
        "" => (String::new(), params),
        _ => (format!("{receiver}."), params.get(1..).unwrap_or(&[])),
    };
    let mut lists: Vec<Vec<String>> = vec![Vec::new()];
    for param in rest {
        let mut longer = Vec::new();
        for list in &lists {
            if param.default != Default::Required {
                longer.push(list.clone());
            }
            for value in candidates(param) {
                let mut list = list.clone();
                let named = param.named_only || param.default != Default::Required;
                list.push(if named && !param.rest {
                    format!("{}={value}", param.name)
                } else {
                    value.to_string()
                });
                longer.push(list);
            }
        }
        let step = longer.len().div_ceil(400).max(1);
        lists = longer.into_iter().step_by(step).collect();
    }
    lists.iter().map(|list| format!("{own}{name}({})", list.join(", "))).collect()
}

const SET_UP: &str = "
    fn f(*x) { w * 2 }
    fn k(*x) { (w * w).sum() }
    let w = tensor([0.5, 1.5, 2.5], requires_grad=true)
    let far = (w * 2) on cuda:1
    let m = w * ones(3, 3)
    let z = complex(w, w)
    dist.init()";

/// The floating tensors of a value that do not require gradients.
const CUT_OFF: &str = "
    fn cut_off(value) {
        fn is_cut(x) {
            if type(x) != \"tensor\" or x.requires_grad { return false }
            if not x.dtype.is_floating_point and not x.dtype.is_complex { return false }
            # A pass that reaches a gradient whose record was not kept is an error.
            try {
                ((x * 1).abs().sum().to(cuda:0) * 0 + ones(1, requires_grad=true).sum()).backward()
                true
            } catch e { e.code != \"E0385\" }
        }
        filter(is_cut, tree_leaves(value))
    }";

fn engine() -> Engine {
    let mut engine = Engine::builder()
        .backend(Backend::Emu)
        .devices(2)
        .time(Duration::from_secs(20))
        .files(runnel::FileAccess::None)
        .output(|_| {})
        .build()
        .unwrap();
    engine.eval::<()>(CUT_OFF).unwrap();
    engine.eval::<()>(SET_UP).unwrap();
    engine
}

/// True if a call gives a tensor that was cut off; `None` if it fails.
fn is_cut(engine: &mut Engine, call: &str) -> Option<bool> {
    engine.eval::<usize>(&format!("len(cut_off({call}))")).ok().map(|count| count > 0)
}

#[test]
fn no_native_silently_loses_a_gradient() {
    // Functions that end the script, wait, or have nothing to do with tensors.
    let apart = ["exit", "input", "sleep", "read", "write", "dist.init", "dist.destroy"];
    let mut engine = engine();
    let (mut failures, mut ran) = (Vec::new(), 0);
    for (_, table) in NATIVES {
        for def in table.iter().filter(|def| !apart.contains(&def.name)) {
            let receivers: &[&str] = match def.receiver {
                "" => &[""],
                "tensor" => &["w", "m", "z"],
                "list" => &["[w, w * 2]"],
                "tuple" => &["(w, w * 2)"],
                "record" => &["(a = w, b = w * 2)"],
                "dict" => &["dict([(\"a\", w), (\"b\", w * 2)])"],
                "device" => &["cuda"],
                "gradient_function" => &["grad(|x| (x ** 3).sum())"],
                _ => continue,
            };
            if CUTS.iter().any(|(name, _)| *name == def.name) {
                continue;
            }
            for receiver in receivers {
                for call in calls(receiver, def.name, def.signature.params) {
                    match is_cut(&mut engine, &call) {
                        Some(true) => failures.push(call),
                        Some(false) => ran += 1,
                        None => {}
                    }
                    if !engine
                        .eval::<bool>("w.requires_grad and w.is_leaf and is_grad_enabled()")
                        .unwrap_or(false)
                    {
                        engine = self::engine();
                    }
                }
            }
        }
    }
    assert!(ran > 1000, "{ran}");
    failures.sort();
    assert!(failures.is_empty(), "{} cut off:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_expression_silently_loses_a_gradient() {
    let mut failures = Vec::new();
    for expression in EXPRESSIONS {
        let mut engine = engine();
        match engine.eval::<usize>(&format!("len(cut_off({expression}))")) {
            Ok(0) => {}
            Ok(count) => failures.push(format!("{expression}: {count} tensors are cut off")),
            Err(error) if error.code().id.starts_with("E038") => {}
            Err(error) => failures.push(format!("{expression}: {}", engine.report(&error))),
        }
    }
    for (expression, _) in CUT_EXPRESSIONS {
        let mut engine = engine();
        engine.eval::<()>("(w * w).sum().backward()").unwrap();
        if engine.eval::<usize>(&format!("len(cut_off({expression}))")).unwrap() == 0 {
            failures.push(format!("{expression} is not cut off"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
