//! Reading, checking, compiling, formatting and reporting take time proportional to the program.
//!
//! The test generates programs of many kinds at two sizes, the second four times the first, and compares
//! processor time of this thread, so that other work of the machine does not count. A quadratic step takes
//! sixteen times as long; eight times is allowed. `RUNNEL_LINEAR=100000` makes larger programs, for manual
//! runs.

use runnel::{Backend, Engine};
use std::fmt::Write;
use std::time::{Duration, Instant};

type Kind = (&'static str, fn(usize) -> String);

/// `n` pieces.
fn each(n: usize, piece: impl Fn(usize) -> String) -> String {
    (0..n).fold(String::new(), |mut out, i| {
        write!(out, "{}", piece(i)).ok();
        out
    })
}

/// `head`, then `n` pieces, then `tail`.
fn around(head: &str, n: usize, piece: impl Fn(usize) -> String, tail: &str) -> String {
    format!("{head}{}{tail}", each(n, piece))
}

const KINDS: &[Kind] = &[
    // Names.
    ("lets", |n| each(n, |i| format!("let x{i} = {i}\n"))),
    ("lets of one name", |n| each(n, |i| format!("let x = {i}\n"))),
    ("lets that are used", |n| around("let x0 = 0\n", n, |i| format!("let x{} = x{i} + x0\n", i + 1), "")),
    ("lets of a function", |n| around("fn f() {\n", n, |i| format!("let x{i} = {i}\n"), "x1 + x2 }\n")),
    ("assignments", |n| around("let x = 0\n", n, |_| "x = x + 1; x += 2\n".into(), "")),
    ("patterns", |n| each(n, |i| format!("let (a{i}, (b{i}, ..c{i})) = (1, (2, 3))\n"))),
    ("a long pattern", |n| around("let (", n, |i| format!("a{i}, "), ") = range(1)\n")),
    ("unknown names", |n| each(n, |i| format!("print(x{i})\n"))),
    ("one unknown name", |n| each(n, |_| "print(xyz)\n".into())),
    ("unknown targets", |n| each(n, |i| format!("x{i} = 1\n"))),
    ("unknown members", |n| each(n, |i| format!("cuda.x{i}()\n"))),
    ("unknown methods", |n| each(n, |i| format!("\"a\".x{i}()\n"))),
    ("wrong calls", |n| around("fn f(a) { a }\n", n, |_| "f(); len(); f(b=1)\n".into(), "")),
    ("names used early", |n| {
        format!("{}{}", each(n, |i| format!("print(x{i})\n")), each(n, |i| format!("let x{i} = 1\n")))
    }),
    // Literals.
    ("ints", |n| around("let x = [", n, |i| format!("{i}, "), "]\n")),
    ("floats", |n| around("let x = (", n, |i| format!("{i}.5, "), ")\n")),
    ("texts", |n| around("let x = [", n, |i| format!("\"t{i}\", "), "]\n")),
    ("raw texts of a line", |n| around("let x = [", n, |_| "r\"t\", ".into(), "]\n")),
    ("a typed literal", |n| around("let x = f32[", n, |_| "1, ".into(), "]\n")),
    ("a tuple that is used", |n| {
        format!(
            "{}{}",
            around("let t = (", n, |_| "1, ".into(), ")\n"),
            each(n, |_| "t[0]; zeros(t)\n".into())
        )
    }),
    ("rows", |n| around("let x = [", n, |_| "[1, 2, 3],\n".into(), "]\n")),
    ("spreads", |n| around("let y = [1]\nlet x = [", n, |_| "..y, 1, ".into(), "]\n")),
    ("a record", |n| around("let x = (", n, |i| format!("k{i} = {i}, "), ")\n")),
    ("records", |n| each(n, |i| format!("let r{i} = (a = {i}, b = (c = 2))\n"))),
    ("a dict", |n| around("let d = dict([", n, |i| format!("(\"k{i}\", {i}), "), "])\n")),
    ("lists of unknown names", |n| around("let x = [", n, |i| format!("y{i}, "), "]\n")),
    ("smallest ints", |n| {
        around("let x = [", n, |_| "-9223372036854775808, 9223372036854775808, ".into(), "]\n")
    }),
    ("interpolations", |n| around("let x = \"", n, |_| "a{1}b{2:>3}".into(), "\"\n")),
    ("texts with one", |n| around("let x = 1\n", n, |_| "print(\"a{x}b\")\n".into(), "")),
    ("escapes", |n| around("let x = \"", n, |_| "\\n\\q}".into(), "\"\n")),
    // Expressions and blocks.
    ("a chain of operators", |n| around("let x = 1", n, |_| " + 1".into(), "\n")),
    ("operators", |n| {
        around("let x = 1\n", n, |_| "let y = x * (x + 1) - x ** 2 < 3 and not x\n".into(), "")
    }),
    ("a chain of calls", |n| around("let x = [1]", n, |_| "\n.f(1)".into(), "\n")),
    ("pipes", |n| around("let x = [1]\n", n, |_| "x |> len |> str\n".into(), "")),
    ("comparisons", |n| around("let x = 1", n, |_| " < 1".into(), "\n")),
    ("nested blocks", |n| each(n / 50, |_| format!("{}1{}\n", "if true { ".repeat(50), " }".repeat(50)))),
    ("nested brackets", |n| each(n / 50, |_| format!("{}1{}\n", "[".repeat(50), "]".repeat(50)))),
    ("nested functions", |n| each(n / 20, |_| format!("{}1{}\n", "fn f(a) { ".repeat(20), " }".repeat(20)))),
    ("nested loops", |n| each(n / 20, |_| format!("{}1{}\n", "while true { ".repeat(20), " }".repeat(20)))),
    ("a block in a block", |n| {
        format!("{}\n{}{}", "{".repeat(60), each(n, |_| "print(1)\n".into()), "}".repeat(60))
    }),
    ("else if", |n| {
        around("let x = 1\nif x == 0 { 0 }", n, |i| format!(" else if x == {i} {{ {i} }}"), "\n")
    }),
    ("arms", |n| around("match 1 {\n", n, |i| format!("{i} => {i}\n"), "_ => 0 }\n")),
    ("arms that bind", |n| {
        around("match 1 {\n", n, |_| "(a, [b, ..c]) if a == b => c\n".into(), "_ => 0 }\n")
    }),
    ("alternatives", |n| around("match 1 { 0", n, |i| format!(" | {i}"), " => 1, _ => 0 }\n")),
    ("tries", |n| each(n, |_| "try { f } catch e { e.kind }\n".into())),
    ("loops", |n| each(n, |i| format!("for i{i} in 0..3 {{ if i{i} == 2 {{ break }} }}\n"))),
    ("contexts", |n| each(n, |_| "with device(0), no_grad() { zeros(2) }\n".into())),
    ("defers", |n| around("fn f() {\n", n, |i| format!("defer print({i})\n"), "}\n")),
    ("indices", |n| around("let x = zeros(3, 3)\n", n, |_| "x[0, 1..2] = x[.., none]\n".into(), "")),
    // Functions.
    ("functions", |n| each(n, |i| format!("# Adds.\nfn f{i}(a, b = 1) {{ a + b }}\n"))),
    ("functions that call", |n| {
        around("fn f0(a) { a }\n", n, |i| format!("fn f{}(a) {{ f{i}(a) }}\n", i + 1), "")
    }),
    ("functions of a block", |n| around("fn g() {\n", n, |i| format!("fn f{i}() {{ f{i}() }}\n"), "}\n")),
    ("functions called", |n| {
        format!("{}{}", each(n, |i| format!("fn f{i}() {{ }}\n")), each(n, |i| format!("f{i}()\n")))
    }),
    ("lambdas", |n| around("let x = [", n, |_| "|a, b = 2| a + b, ".into(), "]\n")),
    ("captured variables", |n| {
        let (lets, uses) = (each(n, |i| format!("let v{i} = {i}\n")), each(n, |i| format!("v{i}, ")));
        format!("fn f() {{\n{lets}|| [{uses}]\n}}\n")
    }),
    ("captures of captures", |n| {
        let (lets, uses) = (each(n, |i| format!("let v{i} = {i}\n")), each(n, |i| format!("v{i} = 1; ")));
        format!("fn f() {{\n{lets}|| {{ || {{ {uses} }} }}\n}}\n")
    }),
    ("parameters", |n| {
        let (params, args) = (each(n, |i| format!("a{i} = 0, ")), each(n, |i| format!("a{i}=1, ")));
        format!("fn f({params}) {{ a1 }}\nf({args})\n")
    }),
    ("arguments", |n| around("let x = 1\nprint(", n, |_| "x, ".into(), ")\n")),
    ("arguments of a method", |n| around("let x = [1]\nx.index(", n, |_| "x, ".into(), ")\n")),
    ("methods", |n| around("let x = [1]\n", n, |_| "x.append(x.index(1))\n".into(), "")),
    ("named arguments", |n| around("let x = zeros(2)\n", n, |_| "x.sum(dim=0, keepdim=true)\n".into(), "")),
    ("tests", |n| each(n, |i| format!("test \"t{i}\" {{ assert(true) }}\n"))),
    ("returns", |n| around("fn f(a) {\n", n, |i| format!("if a == {i} {{ return {i} }}\n"), "}\n")),
    // Modules.
    ("imports", |n| each(n, |i| format!("import nn as m{i}\n"))),
    ("members of a module", |n| around("import nn\n", n, |_| "nn.relu\n".into(), "")),
    ("unknown members of a module", |n| around("import nn\n", n, |i| format!("nn.x{i}()\n"), "")),
    ("unknown modules", |n| each(n, |i| format!("import m{i}\n"))),
    ("files", |n| each(n, |i| format!("import \"m{i}.rnl\"\nwrite(\"w{i}\", \"\")\n"))),
    // Layout.
    ("comments", |n| each(n, |i| format!("# comment {i}\n"))),
    ("comments behind code", |n| each(n, |i| format!("f({i}) # comment {i}\n"))),
    ("comments behind a long line", |n| {
        format!("print({}) # long\n{}", "1, ".repeat(n), each(n, |i| format!("print({i}) # c\n")))
    }),
    ("empty lines", |n| around("1", n, |_| "\n\n".into(), "1")),
    ("a long line", |n| each(n, |i| format!("print({i}); "))),
    ("a long line of blocks", |n| each(n, |_| "{ f({\n1\n}) }; ".into())),
    ("blanks", |n| around("1", n, |_| " \\\n test ".into(), "1")),
    ("one text", |n| {
        format!("let x = \"{}\"\nlet y = \"\"\"\n{}\"\"\"\n", "a".repeat(20 * n), "b\n".repeat(20 * n))
    }),
    ("one name", |n| format!("print({})\n", "a".repeat(20 * n))),
    ("one number", |n| format!("print({}, 0.{})\n", "1".repeat(20 * n), "1".repeat(20 * n))),
    // Invalid programs.
    ("lines that do not parse", |n| each(n, |_| "let = 1\n".into())),
    ("lines of a block that do not parse", |n| around("fn f() {\n", n, |_| "let = 1\n".into(), "}\n")),
    ("bad characters", |n| each(n, |_| "$ ? ` \n".into())),
    ("bad characters of a block", |n| around("fn f() {\n", n, |_| "$ x y\n".into(), "}\n")),
    ("single quotes", |n| each(n, |_| "f('a') 'b'\n".into())),
    ("open texts", |n| each(n, |_| "f(\"a{1}\n".into())),
    ("open raw texts", |n| each(n, |_| "f(r\"a\n".into())),
    ("brackets that close nothing", |n| each(n, |_| ")]}\n".into())),
    ("brackets that close others", |n| each(n, |_| "f([1, 2)\n".into())),
    ("brackets that stay open", |n| each(n, |_| "f([1, 2\nlet x = 1\n".into())),
    ("missing indices", |n| each(n, |_| "x[]; 1 = 2\n".into())),
    ("too many brackets", |n| "(".repeat(n)),
    ("loops of other languages", |n| each(n, |_| "for (i = 0; i < 3; i++) { f() }\n".into())),
    ("mixed records", |n| around("let x = (a = 1, ", n, |_| "1, ".into(), ")\n")),
    // Code with the problems that `check` looks for.
    ("shapes", |n| around("let x = zeros(2, 3)\n", n, |_| "x + zeros(3, 2)\n".into(), "")),
    ("side streams", |n| {
        around(
            "let s = Stream()\nlet x = zeros(2)\n",
            n,
            |i| format!("let y{i} = with stream(s) {{ x + 1 }}\n"),
            "print(y1)\n",
        )
    }),
    ("writes on a side stream", |n| {
        let lets = each(n, |i| format!("let x{i} = zeros(2)\n"));
        format!("let s = Stream()\n{lets}with stream(s) {{\n{}}}\n", each(n, |i| format!("x{i}.add_(1)\n")))
    }),
    ("loops with a side stream", |n| {
        around(
            "let s = Stream()\nlet x = zeros(2)\nfor i in 0..3 {\n",
            n,
            |_| "with stream(s) { x.add_(1) }\n".into(),
            "}\n",
        )
    }),
    ("functions with streams", |n| {
        each(n, |i| format!("fn f{i}(s, x) {{ with stream(s) {{ x.add_(1) }}; s.synchronize() }}\n"))
    }),
    ("statements behind a return", |n| around("fn f() { return 1\n", n, |_| "print(1)\n".into(), "}\n")),
];

/// Processor time of this thread for some work; wall time if the system does not report it.
fn time(work: impl FnOnce()) -> Duration {
    fn used() -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }
    let (start, used_before) = (Instant::now(), used());
    work();
    match (used_before, used()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => start.elapsed(),
    }
}

fn compile(text: &str) {
    let builder = Engine::builder().backend(Backend::Emu).files(false);
    let mut engine = builder.build().expect("emulated devices are always there");
    if let Err(error) = engine.compile("generated", text) {
        let report = engine.report(&error);
        assert!(report.len() < 1 << 19, "{} bytes of report", report.len());
    }
}

fn lint(text: &str) {
    let mut sources = runnel::base::SourceMap::default();
    let findings = runnel::engine::diagnose(&mut sources, "generated", text);
    let all = findings.errors.into_iter().chain(findings.warnings);
    for error in all.take(100) {
        let severity = runnel::engine::report::Severity::Error;
        runnel::engine::report::render(&error, &sources, severity, runnel::engine::report::Look::PLAIN);
    }
}

fn format(text: &str) {
    if let Ok(formatted) = runnel::syntax::format(1, text) {
        assert!(
            formatted.len() < 8 * text.len() + 1000,
            "formatting makes {} bytes of {}",
            formatted.len(),
            text.len()
        );
    }
    runnel::syntax::classify(text);
}

#[test]
fn a_program_four_times_as_long_takes_about_four_times_as_long() {
    let asked = std::env::var("RUNNEL_LINEAR").ok().and_then(|n| n.parse().ok());
    let only = std::env::var("RUNNEL_LINEAR_ONLY").ok();
    let (small, mut slow) = (asked.unwrap_or(1000), Vec::new());
    // Exclude tables that are created once.
    compile("print(x)");
    lint("print(x)");
    for (name, make) in KINDS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let texts = [make(small), make(4 * small)];
        type Step = (&'static str, fn(&str));
        let steps: [Step; 3] = [("compile", compile), ("lint", lint), ("format", format)];
        for (step, work) in steps {
            let [one, four] = [&texts[0], &texts[1]].map(|text| time(|| work(text)));
            if asked.is_some() {
                println!("{name}, {step}: {:.3} s, {:.3} s", one.as_secs_f64(), four.as_secs_f64());
            }
            if four > 8 * one + Duration::from_millis(40) {
                // Measure again: a collection of cycles or page faults may have interfered.
                let [one, four] = [&texts[0], &texts[1]].map(|text| time(|| work(text)));
                if four > 8 * one + Duration::from_millis(40) {
                    slow.push(format!("{name}, {step}: {one:?} for {small}, {four:?} for {}", 4 * small));
                }
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
