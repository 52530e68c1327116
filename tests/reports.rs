//! Reports of common mistakes: the message, the labels, and the suggested fix.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;

use runnel::base::Place;
use runnel::{Backend, Engine};

/// `E0415 message`, then a line per label, `` `text of the script`: label ``, then the help.
fn said(script: &str) -> String {
    let mut engine = Engine::builder().backend(Backend::Emu).devices(4).build().unwrap();
    let Err(error) = engine.eval::<()>(script) else { return "nothing".into() };
    let mut lines = vec![format!("{} {}", error.code().id, error.message())];
    for label in error.labels() {
        let Place::Span(span) = label.place else { panic!("{error:?}") };
        lines.push(format!("`{}`: {}", engine.sources().snippet(span), label.text()));
    }
    lines.extend(error.help_text().map(|help| format!("help: {help}")));
    lines.join("\n")
}

/// The labels alone.
fn labels(script: &str) -> String {
    said(script).lines().filter(|line| line.starts_with('`')).collect::<Vec<_>>().join("\n")
}

#[test]
fn errors_label_single_elements_of_a_list() {
    let before = "let a = zeros(2, 3)\nlet b = zeros(3, 2) on cuda:1\nlet near = zeros(3, 2)\n";
    let both = "`a`: this is f32[2, 3] on cuda:0\n`b`: this is f32[3, 2] on cuda:1";
    let near = "`a`: this is f32[2, 3] on cuda:0\n`near`: this is f32[3, 2] on cuda:0";
    let table = [
        ("comm.reduce_add([a, b])", both),
        ("comm.reduce_add((a, b))", both),
        ("comm.reduce_add(([a, b]), destination=1)", both),
        ("[a, b] |> comm.reduce_add(1)", both),
        (
            "comm.reduce_add([a, a.to(f64)])",
            "`a`: this is f32[2, 3] on cuda:0\n`a.to(f64)`: this is f64[2, 3] on cuda:0",
        ),
        ("comm.reduce_add([a, zeros(2, 3) on cpu])", "`zeros(2, 3) on cpu`: this is f32[2, 3] on cpu"),
        ("comm.reduce_add([a], 3)", "`a`: this is f32[2, 3] on cuda:0"),
        (
            "comm.reduce_add_coalesced([[a, a], [a, b]])",
            "`[a, a]`: tensor 1 of it is f32[2, 3] on cuda:0\n`[a, b]`: tensor 1 of it is f32[3, 2] on cuda:1",
        ),
        ("comm.reduce_add_coalesced([[a], [a, b]])", "`[a]`: 1 here\n`[a, b]`: 2 here"),
        ("comm.gather([a, b], dim=1)", both),
        ("comm.gather([a, 4])", "`4`: not a tensor"),
        ("comm.broadcast(a, [0, 9])", "`9`: this device"),
        (
            "comm.broadcast(a, out=[a, b])",
            "`a`: this is f32[2, 3] on cuda:0\n`b`: this is f32[3, 2] on cuda:1",
        ),
        ("comm.broadcast_coalesced([a, b], [0, 1])", "`b`: this is f32[3, 2] on cuda:1"),
        ("comm.scatter(a, out=[a, b])", "`a`: this is f32[2, 3] on cuda:0\n`b`: this is f32[3, 2] on cuda:1"),
        (
            "comm.scatter(a, [0, 1], streams=[none, Stream()])",
            "`1`: this device\n`Stream()`: and this stream",
        ),
        ("cat([zeros(0), a, near])", near),
        ("stack([a, near])", near),
        ("cat([a, b])", both),
        ("cat([a, \"b\"])", "`\"b\"`: this is a str"),
        ("zeros([2, 2.5])", "`2.5`: this is a float"),
        ("zeros(2, 2.5)", "`2.5`: this is a float"),
        ("meshgrid(zeros(2), a)", "`a`: this is f32[2, 3] on cuda:0"),
        (
            "einsum(\"ij,jk->ik\", a, a)",
            "`\"ij,jk->ik\"`: this value\n`a`: this is f32[2, 3] on cuda:0\n`a`: this is f32[2, 3] on cuda:0",
        ),
        // If the list is not a literal, its label names the elements.
        (
            "let list = [a, b]\ncomm.gather(list)",
            "`list`: element 0 is f32[2, 3] on cuda:0, element 1 is f32[3, 2] on cuda:1",
        ),
        (
            "let list = [a]\nstack([..list, near])",
            "`[..list, near]`: element 0 is f32[2, 3] on cuda:0, element 1 is f32[3, 2] on cuda:0",
        ),
    ];
    for (script, wanted) in table {
        assert_eq!(labels(&format!("{before}{script}")), wanted, "{script}");
    }
}

#[test]
fn a_failure_in_a_module_shows_its_line_and_the_script_s() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("util.rnl", "fn inner(x) {\n    x + ones(3)\n}\nfn step(x) {\n    inner(x)\n}\n");
    write("main.rnl", "import \"util.rnl\" as u\nfn train() {\n    u.step(ones(2))\n}\ntrain()\n");
    write(
        "late.rnl",
        "import data\nlet loader = data.loader([1, 2, 3], batch_size=0)\nfor batch in loader { print(batch) }\n",
    );
    write("par.rnl", "import parallel\nlet all = parallel.replicate([ones(2)], [0, 9])\nprint(all)\n");
    let report = |name: &str| {
        let run =
            command::runnel().args(["--backend", "emu", name]).current_dir(folder.path()).output().unwrap();
        assert_eq!(run.status.code(), Some(1), "{name}");
        String::from_utf8(run.stderr).unwrap()
    };
    insta::assert_snapshot!(report("main.rnl"), @r#"
     × E0402: `+` cannot broadcast the shapes [2] and [3]
      ╭─[util.rnl:2:5]
    1 │ fn inner(x) {
    2 │     x + ones(3)
      ·     ┬   ───┬───
      ·     │      ╰── this is f32[3] on cuda:0
      ·     ╰── this is f32[2] on cuda:0
    3 │ }
      ╰────
      ╭─[main.rnl:3:5]
    2 │ fn train() {
    3 │     u.step(ones(2))
      ·     ───────┬───────
      ·            ╰── called from here
    4 │ }
      ╰────
     help: extents must be equal or 1, from the last dimension; `x[..., none]` adds a 1
     called from util.rnl:5:5: inner(x)
            from main.rnl:3:5: u.step(ones(2))
            from main.rnl:5:1: train()
     more: runnel explain E0402
    "#);
    insta::assert_snapshot!(report("late.rnl"), @r#"
     × E0902: a batch has at least 1 sample, not 0
       ╭─[<data>:21:54]
    20 │ fn loader(dataset, batch_size = 1, shuffle = false, drop_last = false, pin_memory = false, prefetch = none, device = none, generator = none, transform = none) {
    21 │     if type(batch_size) != "int" or batch_size < 1 { throw "a batch has at least 1 sample, not {batch_size}" }
       ·                                                      ───────────────────────────────────────────────────────
    22 │     if prefetch != none and (type(prefetch) != "int" or prefetch < 0) {
       ╰────
      ╭─[late.rnl:2:14]
    1 │ import data
    2 │ let loader = data.loader([1, 2, 3], batch_size=0)
      ·              ──────────────────┬─────────────────
      ·                                ╰── called from here
    3 │ for batch in loader { print(batch) }
      ╰────
     called from late.rnl:2:14: data.loader([1, 2, 3], batch_size=0)
     more: runnel explain E0902
    "#);
    insta::assert_snapshot!(report("par.rnl"), @r#"
     × E0501: invalid device id 9: the number of visible devices is 4
       ╭─[<parallel>:58:89]
    57 │ fn replicate(params, devices) {
    58 │     map(|copy| with_tensors(params, copy), comm.broadcast_coalesced(tensors_of(params), devices))
       ·                                                                                         ───┬───
       ·                                                                                            ╰── element 1: this device
    59 │ }
       ╰────
      ╭─[par.rnl:2:11]
    1 │ import parallel
    2 │ let all = parallel.replicate([ones(2)], [0, 9])
      ·           ──────────────────┬──────────────────
      ·                             ╰── called from here
    3 │ print(all)
      ╰────
     help: the devices are `cpu`, `cuda:0` to `cuda:3`, and `cuda`, the current one
     called from par.rnl:2:11: parallel.replicate([ones(2)], [0, 9])
     more: runnel explain E0501
    "#);
}

/// The message and the help.
fn brief(script: &str) -> String {
    let said = said(script);
    let kept = said.lines().filter(|line| !line.starts_with('`'));
    kept.collect::<Vec<_>>().join("; ")
}

#[test]
fn syntax_of_other_languages_gets_a_correction() {
    let table = [
        ("let x = [1, 2]\nx.push(4)", "E0214 no value has a method `push`; help: write `list.append(x)`"),
        ("let x = [1, 2]\nprint(x.length)", "E0308 a list has no attribute `length`; help: write `len(x)`"),
        (
            "zeros(2).numpy()",
            "E0214 no value has a method `numpy`; help: write `x.tolist()` for the elements as a list",
        ),
        (
            "zeros(2).sum().backward()",
            "E0380 this tensor requires no gradients; help: create the tensors that it is computed from with `requires_grad=true`, or call `x.requires_grad_()` first; what is assigned inside `no_grad()`, `w = w - g`, requires none: write `w.sub_(g)`",
        ),
        (
            "zeros(3).sum(dimm=0)",
            "E0206 `sum` has no parameter `dimm`; help: did you mean `dim`? the parameters are `sum(dim=none, keepdim=false, *, dtype=none)`",
        ),
        ("nn.Linear(3, 4)", "E0201 unknown name `nn`; help: write `import nn` first"),
        ("import nn\nnn.Linear(3, 4)", "E0205 `nn` has no `Linear`; help: write `nn.linear(...)`"),
        (
            "open(\"a.txt\")",
            "E0201 unknown name `open`; help: write `read(path)` for text, `load(path)` for tensors",
        ),
        (
            "zeros(2, dtype=f33)",
            "E0201 unknown name `f33`; help: dtypes are `bool`, `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`, `f64`, `c64`, `c128`",
        ),
        ("let x =\nlet y = 2", "E0109 a value is missing after `=`; help: write the value on this line"),
        (
            "let x == 6",
            "E0107 expected `=`, found `==`; help: `==` compares; write `=` to give the name a value",
        ),
        (
            "for (i = 0; i < 3; i++) { print(i) }",
            "E0109 `for` iterates over the elements of a value; help: write `for i in 0..n { ... }`",
        ),
        ("let a = [1, 2, 3\nprint(a)", "E0106 `[` is never closed; help: write `]` where its contents end"),
    ];
    for (script, wanted) in table {
        assert_eq!(brief(script), wanted, "{script}");
        let mut engine = Engine::builder().backend(Backend::Emu).build().unwrap();
        let error = engine.eval::<()>(script).unwrap_err();
        assert!(error.others().is_empty(), "{script}: {:?}", error.others());
    }
}

#[test]
fn unknown_library_members_are_reported_before_the_run() {
    let table = [
        ("data.laoder([1])", "E0205 `data` has no `laoder`; help: did you mean `loader`?"),
        (
            "data.loader()",
            "E0208 `data.loader` lacks a value for `dataset`; help: the parameters are `data.loader(dataset, batch_size=..., shuffle=..., drop_last=..., pin_memory=..., prefetch=..., device=..., generator=..., transform=...)`",
        ),
        (
            "data.collate([1], 2)",
            "E0207 `data.collate` takes 1 argument by position, 2 are given; help: the parameters are `data.collate(samples)`",
        ),
        ("data.loader([1, 2], batch_size=2)", "nothing"),
        ("let f = data.collate\nf([1, 2])", "nothing"),
    ];
    for (script, wanted) in table {
        let script = format!("let ran = [1]\nimport data\n{script}");
        assert_eq!(brief(&script), wanted, "{script}");
    }
    // A module from memory has names too.
    let builder = Engine::builder().backend(Backend::Emu).module("shapes", "fn area(w, h) { w * h }");
    let mut engine = builder.build().unwrap();
    let error = engine.eval::<()>("import shapes as s\ns.aera(1, 2)").unwrap_err();
    assert_eq!((error.code().id, error.help_text()), ("E0205", Some("did you mean `area`?")));
    assert_eq!(engine.eval::<i64>("import shapes as s\ns.area(2, 3)").unwrap(), 6);
}

#[test]
fn the_argument_at_fault_is_labelled() {
    for (script, label) in [
        ("load(\"weights.docx\")", "`\"weights.docx\"`: this ends in `.docx`"),
        ("save(\"weights\", ones(2))", "`\"weights\"`: this has no ending"),
        ("load(\"labels\", format=\"nyp\")", "`\"nyp\"`: this name"),
        ("save(\"labels.npy\", ones(2), format=\"x\")", "`\"x\"`: this name"),
        ("files.names(\"labels.npy\", format=\"x\")", "`\"x\"`: this name"),
        ("load(\"a.csv\", delimiter=\"::\")", "`\"::\"`: this value"),
        ("save(\"a.csv\", ones(2), delimiter=\"\")", "`\"\"`: this value"),
    ] {
        assert_eq!(labels(script), label, "{script}");
    }
}

#[test]
fn pytorch_syntax_gets_a_correction() {
    let number = "numbers of the script have no methods";
    for (script, help) in [
        // A dtype or a device by position.
        ("zeros((2, 3), f64)", "a dtype goes by name: `dtype=f32`"),
        ("zeros(2, 3, f64)", "a dtype goes by name: `dtype=f32`"),
        ("zeros(2, cpu)", "a device goes by name: `device=cuda:0`"),
        ("arange(3, f64)", "a dtype goes by name: `dtype=f32`"),
        ("tensor([1], f64)", "those after `*` go by name: `dtype=...`"),
        ("full((2,), 1, f64)", "those after `*` go by name: `dtype=...`"),
        ("[tensor][0]([1], f64)", "write `dtype=...` by name"),
        // A layer's function that was not called.
        (
            "import nn\nnn.sequential(nn.linear(2, 2), nn.relu)(ones(1, 2))",
            "in `nn.sequential` write `nn.relu()`",
        ),
        ("import nn\nnn.sequential(nn.sigmoid)(ones(1, 2))", "in `nn.sequential` write `nn.sigmoid()`"),
        // Dicts and records.
        ("let d = dict((a = 1))\nfor (k, v) in d { print(k) }", "`for (k, v) in d.items()` gives pairs"),
        ("for (i, x) in [5, 6] { print(i) }", "`for (i, x) in enumerate(items)` gives positions"),
        ("dict(a=1)", "`dict((a = ...))` makes a dict of one"),
        ("let d = dict()\nd.a = 1", "`d[\"a\"] = x`"),
        // Attributes of tensors on numbers.
        ("(1.5 - 2.0).abs()", &format!("{number}: write `abs(x)`")),
        ("(2).sqrt()", &format!("{number}: write `math.sqrt(x)`")),
        ("(2.0).relu()", &format!("{number}: `relu(x)` accepts a number too, and returns a tensor")),
        ("(2.0).add_(1)", &format!("{number}: make a tensor of it, `tensor(x).add_(...)`")),
        ("(2.0).item()", "it is a number already; leave this out"),
        ("(2.0).shape", "`tensor(x).shape`"),
        ("true.float()", "write `float(x)`"),
        ("(1, 2).sum()", "write `sum(x)`"),
        ("(0..3).sum()", "write `sum(x)`"),
        ("(1, 2).mean()", "`tensor(list(x)).mean(...)`"),
        // Names.
        ("files.inf", "write `inf`"),
        ("set([1, 2])", "the keys of a dict are distinct"),
        ("hasattr((a = 1), \"a\")", "write `name in r`"),
        ("hex(255)", "{n:#x}"),
        ("random.random()", "write `rand(n)`"),
        ("\"{}\".format(3)", "write the value in the braces, `{x}`"),
        ("pad_sequence([ones(2)])", "write `import nn`, and `nn.pad_sequence`"),
        ("sparse_csr_tensor(1)", "PyTorch has it, Runnel not yet"),
        ("segment_reduce(1)", "PyTorch has it, Runnel not yet"),
        ("ones(2).to_sparse()", "PyTorch has it, Runnel not yet"),
        ("expit(ones(2))", "write `sigmoid(x)`"),
        ("ones(2, 2).adjoint()", "write `x.mH`"),
        ("ones(2).sum(axes=0)", "the parameters are `sum(dim"),
    ] {
        let said = said(script);
        assert!(said.split_once("help: ").is_some_and(|(_, found)| found.contains(help)), "{script}\n{said}");
    }
}

#[test]
fn silent_mistakes_are_labelled() {
    let script = "let w = ones(2, requires_grad=true)\nw.sum().backward()\nfor p in [w] { with no_grad() { p -= 0.1 * p.grad } }";
    let wanted = "E0390 `-=` gives the name a new tensor, and the parameter stays as it was\n\
                  `p`: this is f32[2] on cuda:0, which has a gradient\n\
                  help: write into it: `w.sub_(...)`; for a new tensor write `w = w - ...`";
    assert_eq!(said(script), wanted);
    let said_of_class = said("import nn\nprint(nn.cross_entropy(rand(2, 3), tensor([0, 5])))");
    assert!(said_of_class.contains("of size 3 in `cross_entropy`"), "{said_of_class}");
    let wanted = "E0301 `+` does not take an empty list\n`l`: this list is empty";
    assert!(said("let l = []\nl += [1]").starts_with(wanted), "{}", said("let l = []\nl += [1]"));
}

/// Errors of the steps of an operation describe the operands that the script wrote, and name the operation.
#[test]
fn errors_describe_the_operands_of_the_script() {
    let variables = [
        ("x", "ones(3, 4)", "f32[3, 4] on cuda:0"),
        ("w", "ones(5, 3)", "f32[5, 3] on cuda:0"),
        ("v", "ones(4)", "f32[4] on cuda:0"),
        ("b", "ones(2, 3, 3)", "f32[2, 3, 3] on cuda:0"),
        ("far", "ones(4, device=cuda:1)", "f32[4] on cuda:1"),
        ("i", "tensor([0], device=cpu)", "i64[1] on cpu"),
        ("ii", "tensor([[0]], device=cpu)", "i64[1, 1] on cpu"),
        ("mask", "(ones(3, 4) > 0).cpu()", "bool[3, 4] on cpu"),
        ("row", "ones(1, 4)", "f32[1, 4] on cuda:0"),
    ];
    let lets: Vec<String> =
        variables.iter().map(|(name, value, _)| format!("let {name} = {value}")).collect();
    let table = [
        ("E0510", "index_select", "x.index_select(0, i)"),
        ("E0510", "gather", "x.gather(0, ii)"),
        ("E0510", "take", "take(x, i)"),
        ("E0510", "index_add", "x.index_add(0, i, x)"),
        ("E0510", "index_copy", "x.index_copy(0, i, x)"),
        ("E0510", "index_fill", "x.index_fill(0, i, 2.0)"),
        ("E0510", "index_reduce", "x.index_reduce(0, i, row, \"prod\")"),
        ("E0510", "scatter", "x.scatter(0, ii, 2.0)"),
        ("E0510", "scatter_add", "x.scatter_add(0, ii, x)"),
        ("E0510", "scatter_reduce", "x.scatter_reduce(0, ii, x, \"sum\")"),
        ("E0510", "masked_fill", "x.masked_fill(mask, 2.0)"),
        ("E0510", "masked_scatter", "x.masked_scatter(mask, x)"),
        ("E0510", "layer_norm", "layer_norm(x, [4], far)"),
        ("E0510", "batch_norm", "batch_norm(x, far, far)"),
        ("E0510", "embedding", "embedding(i, x)"),
        ("E0510", "lerp", "lerp(x, x, far)"),
        ("E0510", "linear", "linear(x, x, far)"),
        ("E0402", "linear", "linear(x, x, v)"),
        ("E0353", "...", "bilinear(x, x, b)"),
        ("E0402", "cdist", "cdist(x, w)"),
        ("E0419", "addmm", "addmm(x, w, x)"),
        ("E0413", "scaled_dot_product_attention", "scaled_dot_product_attention(x, w, w)"),
        ("E0402", "scaled_dot_product_attention", "scaled_dot_product_attention(x, x, x, attn_mask=w)"),
    ];
    for (code, name, script) in table {
        let text = said(&format!("{}\n{script}", lets.join("\n")));
        assert!(text.starts_with(code) && text.contains(name), "{script}: {text}");
        let mut described = Vec::new();
        for line in text.lines().filter(|line| line.starts_with('`') && line.contains("this is ")) {
            let (name, what) = line[1..].split_once("`: this is ").unwrap();
            let wanted = variables.iter().find(|(variable, ..)| *variable == name);
            assert_eq!(wanted.map(|(.., what)| *what), Some(what), "{script}: {text}");
            described.push(name);
        }
        let arguments = script.split(['(', ')', ',', '.', '=', ' ']);
        let written = arguments.filter(|word| variables.iter().any(|(name, ..)| name == word)).count();
        assert_eq!(described.len(), written, "{script}: {text}");
    }
}
