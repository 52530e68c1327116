//! Runs the checker on every script of the repository: scripts that run must have no reports. Also tests the
//! warnings of `runnel check`.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::SourceMap;
use std::path::{Path, PathBuf};

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "seeds" && !name.starts_with('.') {
            scripts(&path, found);
        } else if path.extension().is_some_and(|e| e == "rnl") {
            found.push(path);
        }
    }
}

/// The text of a script. A module of the library may have several files: its whole text is returned for its first file,
/// and an empty one for the others.
fn text_of(path: &Path) -> String {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("stdlib");
    let Ok(inside) = path.strip_prefix(&library) else { return std::fs::read_to_string(path).unwrap() };
    let module = |m: &&runnel::library::Embedded| inside == Path::new(&format!("{}.rnl", m.name));
    runnel::library::MODULES.iter().find(module).map_or(String::new(), |module| module.text.to_string())
}

#[test]
fn scripts_that_run_pass_the_check() {
    let mut found = Vec::new();
    scripts(Path::new(env!("CARGO_MANIFEST_DIR")), &mut found);
    assert!(!found.is_empty());
    let mut wrong = Vec::new();
    for path in found {
        let text = text_of(&path);
        // Scripts with marked errors are wrong on purpose.
        if text.contains("# error: ") {
            continue;
        }
        let mut sources = SourceMap::default();
        for error in runnel::engine::diagnose(&mut sources, &path.display().to_string(), &text).errors {
            wrong.push(format!("{}: {error:?}", sources.place(error.span())));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn scripts_that_run_give_no_wrong_warnings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["examples", "tests/lang", "tests/conformance", "stdlib"] {
        scripts(&root.join(folder), &mut found);
    }
    assert!(found.len() > 200, "{}", found.len());
    let mut wrong = Vec::new();
    for path in found {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let text = text_of(&path);
        let lines: Vec<&str> = text.lines().collect();
        let mut sources = SourceMap::default();
        for warning in runnel::engine::diagnose(&mut sources, &name, &text).warnings {
            let at = sources.place(warning.span()).to_string();
            let line: usize = at.rsplit(':').nth(1).unwrap().parse().unwrap();
            // A line with a marked error is wrong on purpose, and lines after it are never reached.
            let is_habit = name == "tests/lang/habits.rnl" && matches!(warning.code().id, "W0206" | "W0207");
            let on_purpose = is_habit
                || lines[line - 1].contains("# error: ")
                || (warning.code().id == "W0202" && text.contains("# error: "));
            // Tests bind names to hold memory, or to check that they can be bound.
            let is_unused = warning.code().id == "W0201"
                && name.starts_with("tests/")
                && (warning.message().starts_with("the module") || goes_without(&text, &sources, &warning));
            if !on_purpose && !is_unused {
                wrong.push(format!("{at}: {warning:?}"));
            }
        }
    }
    // This line tests that nothing runs after a `throw`.
    wrong.retain(|w| !w.starts_with("tests/lang/scopes.rnl:22:"));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Whether a binding's name is unused in a script: after renaming it, no name is unknown.
fn goes_without(text: &str, sources: &SourceMap, warning: &runnel::Error) -> bool {
    let span = warning.span();
    let base = sources.base(sources.find(span).unwrap());
    let (lo, hi) = ((span.lo - base) as usize, (span.hi - base) as usize);
    let without = format!("{}another_name{}", &text[..lo], &text[hi..]);
    let before = runnel::engine::diagnose(&mut SourceMap::default(), "t", text).errors.len();
    let after = runnel::engine::diagnose(&mut SourceMap::default(), "t", &without).errors;
    after.iter().filter(|e| e.code().id != "E0202").count() <= before
}

/// `W0204@1 message`, one per line; lines count from 1.
fn warnings(text: &str) -> String {
    let mut sources = SourceMap::default();
    let found = runnel::engine::diagnose(&mut sources, "t", text);
    assert!(found.errors.is_empty(), "{text}\n{:?}", found.errors);
    let line = |e: &runnel::Error| {
        let place = sources.place(e.span()).to_string();
        format!("{}@{} {}", e.code().id, place.split(':').nth(1).unwrap(), e.message())
    };
    found.warnings.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn shapes_that_clash_are_found_where_they_are_constant() {
    let table = [
        ("zeros(2, 3) + zeros(4)", "W0204@1 `+` cannot broadcast the shapes [2, 3] and [4]"),
        (
            "zeros(2, 3) @ zeros(4, 5)",
            "W0204@1 `@` cannot multiply [2, 3] and [4, 5]: the inner dimensions differ (3 on the left, 4 on the right)",
        ),
        (
            "let n = 4\nlet w = randn(n, 2 * n)\nlet x = ones(3, n + 1)\nprint(x @ w)",
            "W0204@4 `@` cannot multiply [3, 5] and [4, 8]: the inner dimensions differ (5 on the left, 4 on the right)",
        ),
        ("print(zeros(2, 3).reshape(4, 2))", "W0204@1 `reshape` cannot view 6 elements as shape [4, 2]"),
        ("print(zeros(2, 3).view(-1, 4))", "W0204@1 `view` cannot view 6 elements as shape [-1, 4]"),
        ("print(cat([zeros(2, 3), zeros(2, 4)]))", "W0204@1 `cat` cannot join shapes [2, 3] and [2, 4]"),
        ("print(stack([zeros(2), zeros(3)]))", "W0204@1 `stack` cannot join shapes [2] and [3]"),
        ("print(sum(zeros(2, 3), dim=2))", "W0204@1 `sum`: there is no dimension 2 in the shape [2, 3]"),
        ("print(zeros(3)[3])", "W0204@1 index 3 is out of range for dimension 0 of size 3"),
        ("print(zeros(3)[0, 0])", "W0204@1 2 indices for a tensor with 1 dimension"),
        (
            "let x = zeros(3)\nx.add_(zeros(2, 3))\nprint(x)",
            "W0204@2 `add_` gives shape [2, 3], which does not broadcast to [3]",
        ),
        (
            "let x = zeros(2, 3)\nlet (rows, _) = x.shape\nprint(zeros(rows) * [1, 2, 3])",
            "W0204@3 `*` cannot broadcast the shapes [2] and [3]",
        ),
        (
            "fn f(x) { x.relu() + (zeros(2, 3) - zeros(2)) }\nprint(f(1))",
            "W0204@1 `-` cannot broadcast the shapes [2, 3] and [2]",
        ),
        ("fn f() { zeros(2) + zeros(3) }\nprint(f())", "W0204@1 `+` cannot broadcast the shapes [2] and [3]"),
        (
            "fn f() { if cpu == cuda { for i in 0..3 { print(zeros(2) + zeros(3), i) } } }\nf()",
            "W0204@1 `+` cannot broadcast the shapes [2] and [3]",
        ),
        (
            "print(zeros(2, 3) |> matmul(zeros(2)))",
            "W0204@1 `matmul` cannot multiply [2, 3] and [2]: the inner dimensions differ (3 on the left, 2 on the right)",
        ),
        ("print(zeros(2, 3).sum(dim=0) + zeros(2, 4).t().mean(1, keepdim=true)[0..2])", ""),
        (
            "print(relu(zeros(2, 3).t() @ zeros(2, 1)) + zeros(4, 2, 1))",
            "W0204@1 `+` cannot broadcast the shapes [3, 1] and [4, 2, 1]",
        ),
    ];
    for (text, wanted) in table {
        assert_eq!(warnings(text), wanted, "{text}");
    }
    // No warning if the problem is not certain.
    let silent = [
        "let n = 2\nn = 3\nprint(zeros(n) + zeros(3))",
        "fn f(n) { zeros(n) + zeros(3) }\nprint(f(3))",
        "for n in 1..4 { print(zeros(n) + zeros(3)) }",
        "let shape = [2]\nshape.append(3)\nprint(zeros(shape) + zeros(2, 3))",
        "let sum = |x| x\nprint(sum(zeros(2)) + zeros(2))",
        "let zeros = |_| ones(3)\nprint(zeros(2) + ones(3))",
        "let e = try { zeros(2) + zeros(3) } catch e { e }\nprint(e)",
        "fn fails(f) { try { f(); none } catch e { e.kind } }\nprint(fails(|| zeros(2) + zeros(3)))",
        "fn f() { zeros(2) + zeros(3) }\nlet e = try { f() } catch e { e }\nprint(e)",
        "fn f() { zeros(2) + zeros(3) }\nfn fails(f) { try { f(); none } catch e { e.kind } }\nprint(fails(f), fails(|| f()))",
        "let x = if random() < 0.5 { zeros(2) } else { zeros(3) }\nprint(x + zeros(3))",
        "print(zeros(2, 1) * zeros(3))",
        "print(zeros(0).sum())",
        "print(cat([zeros(0), zeros(2, 3)]))",
        "let x = zeros(2, 3)\nx = x.t()\nprint(x + zeros(3, 2))",
        "print(zeros(4, 3)[1..3].sum() + zeros(2, 3)[.., 0])",
        "print(tensor([[1, 2], [3, 4]]) @ [1, 2])",
        "print(arange(6).reshape(2, -1) + zeros(3))",
        "print(zeros(3, 4) == none)",
    ];
    for text in silent {
        let text = text.replace("random()", "rand(1).item()");
        assert_eq!(warnings(&text), "", "{text}");
    }
}

#[test]
fn side_streams_are_waited_for() {
    let before = "let x = randn(64)\nlet s = Stream()\n";
    let used = "W0205@7 `y` is used before anything waits for the stream `s`";
    let never = "W0205@3 nothing waits for this work on the stream `s`";
    let table = [
        (
            "let y = with stream(s) {\n    s.wait_stream(cuda.default_stream())\n    x.sum()\n}\nprint(y)",
            used,
        ),
        (
            "let y = with stream(s) {\n    s.wait_stream(cuda.default_stream())\n    x + 1\n}\nlet z = y * 2; print(z); s.synchronize()",
            used,
        ),
        (
            "let y = with stream(s) {\n    s.wait_stream(cuda.default_stream())\n    x + 1\n}\nprint(\"{y}\")",
            used,
        ),
        ("let y = with stream(s) { x.sum() }\nlet all = []\nall.append(y)\nprint(len(all))", never),
        ("with stream(s) { x.add_(1) }", never),
        ("with stream(s) { x[0] = 1 }\nprint(1)", never),
        // Something waits, or may wait.
        ("let y = with stream(s) { x.sum() }\ncuda.current_stream().wait_stream(s)\nprint(y)", ""),
        ("let y = with stream(s) { x.sum() }\ns.synchronize()\nprint(y)", ""),
        ("let y = with stream(s) { x.sum() }\ncuda.synchronize()\nprint(y)", ""),
        ("let y = with stream(s) { x.sum() }\nlet e = s.record_event()\ne.wait()\nprint(y)", ""),
        (
            "let e = Event()\nlet y = with stream(s) { let y = x.sum(); e.record(); y }\ne.synchronize()\nprint(y)",
            "",
        ),
        ("let y = with stream(s) { let y = x.sum(); s.synchronize(); y }\nprint(y)", ""),
        (
            "fn join(s) { cuda.current_stream().wait_stream(s) }\nlet y = with stream(s) { x.sum() }\njoin(s)\nprint(y)",
            "",
        ),
        ("let y = with stream(s) { x.sum().item() }\nprint(y)", ""),
        ("let y = with stream(s) { x.sum() }\nprint(y.shape)\nlet z = y\ns.synchronize()\nprint(z)", ""),
        (
            "let y = with stream(s) { x.sum() }\nlet z = with stream(s) { y + 1 }\ns.synchronize()\nprint(y + z)",
            "",
        ),
        ("with races(\"fix\") {\nlet y = with stream(s) { x.sum() }\nprint(y)\n}", ""),
        ("for _ in 0..3 {\ncuda.current_stream().wait_stream(s)\nwith stream(s) { x.add_(1) }\n}\n", ""),
        ("let host = zeros(3) on cpu\nlet y = with stream(s) { host + 1 }\nprint(y, x)", ""),
        ("let t = [s]\nlet y = with stream(s) { x.sum() }\nt[0].synchronize()\nprint(y)", ""),
        (
            "if x.sum() > 0 { print(1) }\nlet y = with stream(s) { x.sum() }\nif false { s.synchronize() }\nprint(y)",
            "",
        ),
    ];
    for (text, wanted) in table {
        assert_eq!(warnings(&format!("{before}{text}")), wanted, "{text}");
    }
}

#[test]
fn side_streams_are_waited_for_in_functions_too() {
    let used = "W0205@5 `y` is used before anything waits for the stream `s`";
    let never = "W0205@3 nothing waits for this work on the stream `s`";
    let side = |work: &str, then: &str| {
        format!(
            "fn f(x) {{\nlet s = Stream()\nlet y = with stream(s) {{ s.wait_stream(cuda.default_stream()); {work} }}\n\n{then}\n}}\nprint(f(ones(2)))"
        )
    };
    let table = [
        (side("x.sum()", "y + 1"), used),
        (side("relu(x)", "print(y)"), used),
        (side("x @ x", "for _ in 0..2 { print(y) }"), used),
        (side("x |> relu()", "print(y)"), used),
        (side("let z = x.exp(); z * 2", "y.mean()"), used),
        (side("ones(4) + 1", "y.mean() + x"), used),
        (side("x + 1", "y.item()"), used),
        (side("x.sum()", "y"), never),
        (side("x.sum()", "let all = []; all.append(y); all"), never),
        (side("x.add_(1); 1", "x"), never),
        // Something waits, or may wait.
        (side("x.sum()", "cuda.current_stream().wait_stream(s); y + 1"), ""),
        (side("x.sum()", "s.synchronize(); y + 1"), ""),
        (side("x.sum()", "cuda.synchronize(); y + 1"), ""),
        (side("x.sum()", "(y, s)"), ""),
        (side("x.sum()", "let done = s.record_event(); (y, done)"), ""),
        (side("x.sum()", "fn late() { s.synchronize() }; late(); y + 1"), ""),
        (side("x.sum()", "defer s.synchronize(); y"), ""),
        (side("x.sum()", "x(); y + 1"), ""),
        (side("x.sum().item()", "y + 1"), ""),
        (side("none; 1", "y + x"), ""),
        (side("len(x)", "y"), ""),
        (side("x.sum()", "y.shape"), ""),
        (side("x.sum()", "|| y"), ""),
        (side("x.sum()", "y") + "\nfn sync() { cuda.synchronize() }", ""),
        (side("x.sum()", "y + 1") + "\nfn sync() { cuda.synchronize() }", ""),
        (side("x.sum()", "y") + "\ncuda.synchronize()", ""),
        (side("x.sum()", "y + 1") + "\ncuda.synchronize()", used),
        // Streams passed by a caller.
        ("fn f(x, s) {\nlet y = with stream(s) { x.sum() }\ny + 1\n}\nf(ones(2), Stream())".into(), ""),
        (
            "let s = Stream()\nfn f(x) {\nwith stream(s) { x.add_(1) }\n}\nf(ones(2))\ns.synchronize()".into(),
            "",
        ),
        (
            "let s = Stream()\nlet x = ones(2)\nlet y = with stream(s) { x + 1 }\nfn wait() { s.synchronize() }\nwait()\nprint(y)".into(),
            "",
        ),
        (
            "let x = ones(2)\nfn mark(e) { e.record() }\nlet s = Stream()\nlet e = Event()\n\
             let y = with stream(s) { let y = x + 1; mark(e); y }\ne.wait()\nprint(y)"
                .into(),
            "",
        ),
        // A value without a name.
        (
            "fn f(x) {\nlet s = Stream()\nwith stream(s) { x.sum() }\n}\nprint(f(ones(2)))".into(),
            never,
        ),
        (
            "fn f(x) {\nlet s = Stream()\nreturn with stream(s) { x.sum() }\n}\nprint(f(ones(2)))".into(),
            never,
        ),
        (
            "let f = |x| {\nlet s = Stream()\nwith stream(s) { x.sum() }\n}\nprint(f(ones(2)))".into(),
            never,
        ),
        // Functions that wait do not suppress warnings about other streams.
        (
            "let x = ones(2)\nlet s = Stream()\nwith stream(s) { x.add_(1) }\nfn g(x) { let t = Stream()\n\
             let y = with stream(t) { x.sum() }\nt.synchronize()\ny }\nprint(g(x))"
                .into(),
            never,
        ),
    ];
    for (text, wanted) in table {
        let found = warnings(&text);
        let found: Vec<&str> = found.lines().filter(|line| line.starts_with("W0205")).collect();
        assert_eq!(found.join("\n"), wanted, "{text}");
    }
}

#[test]
fn unused_names_and_unreachable_code_are_found() {
    let table = [
        ("let a = 1\nprint(2)", "W0201@1 `a` is never used"),
        ("let a = 1", ""),
        ("let a = 1\nfn f() { 2 }", ""),
        ("import parallel\nprint(2)", "W0201@1 the module `parallel` is never used"),
        ("import parallel\nfn f() { 2 }", "W0201@1 the module `parallel` is never used"),
        ("fn f(x) { 1 }\nprint(f(2))", "W0201@1 the parameter `x` is never used"),
        ("fn f(_x, y) { y }\nprint(f(2, 3))", ""),
        ("print(map(|x| 1, [2]))", "W0201@1 the parameter `x` is never used"),
        ("fn f(x) { }\nf(1)", ""),
        ("let held = zeros(4)\nprint(cuda.memory_allocated() > 0)\nheld = none", ""),
        ("for i in 0..3 { print(1) }", ""),
        (
            "fn f(x) {\nif x { return 1 } else { throw \"no\" }\nx\n}\nprint(f(1))",
            "W0202@3 this statement is never reached",
        ),
        ("fn f(x) {\nif x { return 1 }\nx\n}\nprint(f(1))", ""),
        (
            "fn f(x) {\nmatch x { 1 => { return 1 }, _ => { return 2 } }\nx\n}\nprint(f(1))",
            "W0202@3 this statement is never reached",
        ),
        (
            "for i in 0..3 {\nif i == 1 { break } else { continue }\nprint(i)\nprint(i)\n}",
            "W0202@3 this statement is never reached",
        ),
        ("while true { print(1) }\nprint(2)", "W0202@2 this statement is never reached"),
        ("while true { if 1 < 2 { break } }\nprint(2)", ""),
        (
            "while true { for i in 0..3 { if i > 1 { break } } }\nprint(2)",
            "W0202@2 this statement is never reached",
        ),
        ("fn f(x) {\ntry { return x } catch e { print(e) }\n2\n}\nprint(f(1))", ""),
        (
            "fn f(x) {\ntry { return x } catch e { return e }\n2\n}\nprint(f(1))",
            "W0202@3 this statement is never reached",
        ),
        ("fn f() {\nreturn 1\nfn _g() { 1 }\n}\nprint(f())", ""),
        ("let f = |x| { return x }\nprint(f(1))", ""),
    ];
    for (text, wanted) in table {
        assert_eq!(warnings(text), wanted, "{text}");
    }
}

#[test]
fn pytorch_names_suggest_runnel_names() {
    let table = [
        ("cross_entropy(ones(2, 2), [0, 1])", "write `import nn`, and `nn.cross_entropy`"),
        ("data.loader(1)", "write `import data` first"),
        ("with autocast(device=\"cuda\") { 1 }", "the parameters are `autocast(device_type"),
        ("cuda.Event(enable_timing=true)", "write `Event(...)`"),
        ("ones(2, 2).inverse()", "no decompositions of matrices yet"),
        ("ones(2).lcm(ones(2))", "PyTorch has it, Runnel not yet"),
        ("max_pool2d(ones(1, 1, 2, 2), 2)", "windows are views"),
        ("time.perf_counter()", "write `clock()`"),
        ("import nn\nnn.cross_entropy_loss(1, 2)", "write `nn.cross_entropy(...)`"),
        ("import nn\nnn.CrossEntropyLoss()", "a loss is a function: write `nn.cross_entropy(x, y)`"),
        ("import nn\nnn.BCEWithLogitsLoss()", "write `nn.binary_cross_entropy_with_logits(x, y)`"),
        ("import nn\nnn.KLDivLoss()", "write `nn.kl_div(x, y)`"),
        ("import nn\nnn.huber(1, 2)", "write `nn.huber_loss(...)`"),
        ("import nn\nnn.Parameter(ones(2))", "write `nn.parameter(...)`"),
        ("import nn\nnn.ConvTranspose2d(1, 2, 3)", "`runnel doc nn` lists its members"),
        ("3.5.round(2)", "for a number, write `round(x, ...)`"),
        ("let x = 3.5\nx.round(2)", "for a number, write `round(x, ...)`"),
    ];
    for (text, wanted) in table {
        let errors = runnel::engine::diagnose(&mut SourceMap::default(), "t", text).errors;
        let help = errors.first().and_then(|e| e.help_text()).unwrap_or_default();
        assert!(errors.len() == 1 && help.contains(wanted), "{text}: {errors:?}");
    }
}

#[test]
fn classes_of_pytorch_are_named_as_functions_of_nn() {
    for (class, own) in [
        ("Linear", "linear"),
        ("Embedding", "embedding"),
        ("EmbeddingBag", "embedding_bag"),
        ("LSTM", "lstm"),
        ("LSTMCell", "lstm_cell"),
        ("GRU", "gru"),
        ("GRUCell", "gru_cell"),
        ("RNNCell", "rnn_cell"),
        ("LayerNorm", "layer_norm"),
        ("RMSNorm", "rms_norm"),
        ("BatchNorm1d", "batch_norm1d"),
        ("BatchNorm2d", "batch_norm2d"),
        ("GroupNorm", "group_norm"),
        ("InstanceNorm2d", "instance_norm2d"),
        ("MultiheadAttention", "multi_head_attention"),
        ("Transformer", "transformer"),
        ("TransformerEncoderLayer", "transformer_encoder_layer"),
        ("TransformerDecoder", "transformer_decoder"),
        ("Sequential", "sequential"),
        ("Dropout", "dropout"),
        ("Dropout2d", "dropout2d"),
        ("AlphaDropout", "alpha_dropout"),
        ("ReLU", "relu"),
        ("LeakyReLU", "leaky_relu"),
        ("PReLU", "prelu"),
        ("RReLU", "rrelu"),
        ("SiLU", "silu"),
        ("GELU", "gelu"),
        ("Tanhshrink", "tanhshrink"),
        ("Softmin", "softmin"),
        ("LogSoftmax", "log_softmax"),
        ("PixelShuffle", "pixel_shuffle"),
        ("Bilinear", "bilinear"),
        ("Flatten", "flatten"),
        ("Unflatten", "unflatten"),
        ("SGD", "sgd"),
        ("Adam", "adam"),
        ("AdamW", "adamw"),
        ("NAdam", "nadam"),
        ("RAdam", "radam"),
        ("RMSprop", "rmsprop"),
        ("Adagrad", "adagrad"),
        ("LBFGS", "lbfgs"),
        ("StepLR", "step_lr"),
        ("CosineAnnealingLR", "cosine_annealing_lr"),
        ("OneCycleLR", "one_cycle_lr"),
        ("ReduceLROnPlateau", "reduce_lr_on_plateau"),
        ("Parameter", "parameter"),
    ] {
        let errors =
            runnel::engine::diagnose(&mut SourceMap::default(), "t", &format!("import nn\nnn.{class}(2)"))
                .errors;
        let help = errors.first().and_then(|e| e.help_text()).unwrap_or_default();
        assert_eq!(help, format!("write `nn.{own}(...)`"), "{class}");
    }
}

#[test]
fn assigned_values_that_nothing_reads_are_reported() {
    let lost = |line: u32, what: &str| format!("W0206@{line} the value that {what} gets here is never read");
    let table = [
        ("let ps = [1]\nfor p in ps {\n  p -= 1\n}", lost(3, "the variable `p`")),
        ("let ps = [1]\nfor p in ps {\n  p = 2 * p\n}", lost(3, "the variable `p`")),
        (
            "let ps = [1]\nfor (i, p) in enumerate(ps) {\n  print(i, p)\n  with no_grad() { p += i }\n}",
            lost(4, "the variable `p`"),
        ),
        ("fn f(x) {\n  x += 1\n}\nf(1)", lost(2, "the parameter `x`")),
        ("fn f(x) {\n  x += 1\n  x *= 2\n}\nf(1)", lost(3, "the parameter `x`")),
        ("for p in [1] {\n  for q in [2] {\n    print(p)\n    q *= 2\n  }\n}", lost(4, "the variable `q`")),
    ];
    for (text, wanted) in table {
        assert_eq!(warnings(text), wanted, "{text}");
    }
    for text in [
        "fn f(x) { x += 1; x }\nprint(f(1))",
        "fn f(n) { while n > 0 { n -= 1 } }\nf(3)",
        "fn f(n) { while true { if n > 3 { break }; n += 1 } }\nf(3)",
        "for p in [1] { while p < 5 { p += 1 }; print(p) }",
        "for p in [1] { p += 1; print(\"{p}\") }",
        "for p in [1] { defer print(p); p += 1 }",
        "fn f(x) { let g = || x; x += 1; g() }\nprint(f(1))",
        "fn f(x) { map(|y| { x += y; 0 }, [1]); x }\nprint(f(1))",
        "let total = 0\nfor p in [1] { total += p }\nprint(total)",
        "for p in [zeros(2)] { p[0] += 1 }",
        "for _p in [1] { _p += 1 }",
        "let x = 1\nx += 1",
    ] {
        assert_eq!(warnings(text), "", "{text}");
    }
}

#[test]
fn fields_of_self_that_are_lost_are_reported() {
    // Writes, each with the warning's line, in a body that does not read the field.
    for (write, line) in [
        ("self.steps += 1", 2),
        ("self.steps -= 1", 2),
        ("self.steps *= 2", 2),
        ("self.steps = 3", 2),
        ("self.steps = self.steps + 1", 2),
        ("if x > 0 { self.steps += 1 }", 2),
        ("for i in 0..3 { self.steps += i }", 2),
        ("map(|i| { self.steps += i; 0 }, [1])", 2),
        ("x += self.steps\nself.steps += 1", 3),
    ] {
        for rest in ["x * self.w", "self.inner(x)", "print(self.w, x)\nreturn x"] {
            for (head, end) in [
                ("let net = (steps = 0, w = 1, inner = print, forward = |self, x| {", "})\nprint(net)"),
                ("fn go(self, x) {", "}\nprint(go((steps = 0), 1))"),
            ] {
                let text = format!("{head}\n{write}\n{rest}\n{end}");
                let wanted =
                    format!("W0208@{line} the new value of `self.steps` is lost when the function ends");
                assert_eq!(warnings(&text), wanted, "{text}");
            }
        }
    }
    // Writes that have an effect.
    for body in [
        "self.steps += x; self",
        "self.steps += 1; return (x, self)",
        "self.steps += x; (..self, w = 2)",
        "self.steps += 1; print(self.steps); x",
        "self.steps += x; \"{self.steps}\"",
        "self.steps += 1; self.count(x)",
        "self.steps += 1; self.steps(x)",
        "for i in 0..3 { print(self.steps); self.steps += i }",
        "defer print(self); self.steps += 1; x",
        "let show = || self.steps; self.steps += 1; show()",
        "self.steps.add_(1); x",
        "self.items[0] += 1; x",
        "self.items.steps += 1; x",
        "let self = (steps = 1); self.steps += 1; x",
        "let other = self; other.steps += 1; x",
    ] {
        let text = format!(
            "let net = (steps = 0, count = |self, x| x + self.steps, forward = |self, x| {{ {body} }})\nprint(net(1))"
        );
        assert!(!warnings(&text).contains("W0208"), "{text}");
    }
    let plain = "fn f(r) { r.steps += 1 }\nprint(f((steps = 0)))";
    assert_eq!(warnings(plain), "", "{plain}");
}

#[test]
fn fields_of_loop_variables_that_are_lost_are_reported() {
    let data = "let ps = [(x = 1, w = [1]), (x = 2, w = [2])]";
    for (head, name) in
        [("for p in ps", "p"), ("for (i, p) in enumerate(ps)", "p"), ("for q in ps[1..]", "q")]
    {
        for (body, line) in [
            ("P.x = 1", 2),
            ("P.x += 1", 2),
            ("print(P.x); P.x = 1", 2),
            ("print(P)\nP.x = 1", 3),
            ("if P.x > 1 { P.x = 1 }", 2),
            ("P.x = 1\nprint(P.w)", 2),
            ("map(|i| { P.x = i; 0 }, [1])", 2),
            ("let other = P; P.x = 1; print(other)", 2),
            ("for i in 0..3 { P.x = i }", 2),
        ] {
            let text = format!("{data}\n{head} {{ {} }}\nprint(ps)", body.replace('P', name));
            let wanted = format!("W0208@{line} the new value of `{name}.x` is lost when the loop goes on");
            assert_eq!(warnings(&text), wanted, "{text}");
        }
    }
    // Writes that have an effect, or may have one: the value may be a tensor or an object.
    for text in [
        "for p in ps { p.x = 1; print(p) }",
        "let out = []\nfor p in ps { p.x = 1; out.append(p) }\nprint(out)",
        "for p in ps { p.x += 1; print(p.x) }",
        "for i in 0..2 { ps[i].x = 1 }",
        "for (i, p) in enumerate(ps) { p.x = 1; ps[i] = p }",
        "for p in ps { p.w[0] = 1 }",
        "for p in ps { for k in 0..2 { print(p.x); p.x = k } }",
        "for p in ps { let show = || p.x; p.x = 1; show() }",
        "for p in ps { p.speed = 1 }",
        "for p in [zeros(2)] { p.grad = none }",
        "let r = (grad = 1)\nfor p in [zeros(2)] { p.grad = none }\nprint(r)",
        "for p in ps { let p = (x = 1); p.x = 2; print(p) }",
        "fn f(p) { p.x = 1 }\nf(ps[0])",
    ] {
        let text = format!("{data}\n{text}\nprint(ps)");
        assert!(!warnings(&text).contains("W0208"), "{text}: {}", warnings(&text));
    }
}

#[test]
fn lists_that_are_meant_to_be_joined_are_reported() {
    let repeated = "W0207@1 this is a product, not a repetition";
    let added = "W0207@2 this is a sum, not a joined list";
    for (text, wanted) in [
        ("print([0] * 3)", repeated),
        ("print(3 * [2.5])", repeated),
        ("fn f(n) { [0.0] * n }\nprint(f(2))", repeated),
        ("let l = [1]\nl += [2]\nprint(l)", added),
        ("let x = 2.0\nprint([1.0] * x, [1, 2] * 3, [0] + 3)", ""),
        ("let l = [1.0, 2.0]\nl += [3.0, 4.0]\nprint(l)", ""),
        ("let l = zeros(2)\nl += [3.0]\nprint(l)", ""),
    ] {
        assert_eq!(warnings(text), wanted, "{text}");
    }
}
