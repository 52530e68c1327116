use super::complete::complete;
use super::editor::goes_on;
use super::hint::hint;
use super::*;
use crate::cli::args::Color;
use crate::device::Backend;
use std::sync::{Arc, Mutex};

/// A session whose output is collected.
fn session() -> (Repl, Arc<Mutex<String>>) {
    let (terminal, text) = Terminal::kept(Color::Never);
    let cli = Options { backend: Some(Backend::Emu), devices: Some(2), quiet: true, ..Options::default() };
    (Repl::new(cli, &terminal).unwrap(), text)
}

fn play(inputs: &[&str]) -> String {
    let (mut repl, text) = session();
    for input in inputs {
        repl.input(input);
    }
    let text = text.lock().unwrap();
    text.clone()
}

#[test]
fn values_are_shown_and_the_last_is_kept() {
    assert_eq!(play(&["1 + 1", "let x = 3", "_ + x", "none", "_ * 2"]), "2\n5\n10\n");
    assert_eq!(play(&["\"a\\n\"", "print(\"a\")"]), "\"a\\n\"\na\n");
}

#[test]
fn an_error_keeps_earlier_names() {
    let text = play(&["let x = 1", "x = 2\nundefined_thing", "x"]);
    assert!(text.contains("undefined_thing") && text.contains("<input:2>:2:1"), "{text}");
    assert!(text.ends_with("\n1\n"), "{text}");
}

#[test]
fn help_and_quit_work_as_in_other_sessions() {
    let own = |name: &str| name == "exit";
    for (line, command) in [
        ("help", Some("help")),
        (" help() ", Some("help")),
        ("?", Some("help")),
        ("help relu", Some("help relu")),
        ("?cuda.synchronize", Some("help cuda.synchronize")),
        ("relu?", Some("help relu")),
        ("quit", Some("quit")),
        ("%time x + 1", Some("time x + 1")),
        ("%%timeit f(2)", Some("time f(2)")),
        ("exit", None),
        ("help + 1", None),
        ("help(relu)", None),
        ("quit = 1", None),
        ("x + y?", None),
        ("\"what?\"", None),
        ("%unknown", None),
        ("", None),
    ] {
        assert_eq!(super::commands::meant(line, own).as_deref(), command, "{line}");
    }
    assert!(play(&["help"]).contains(":streams"));
    assert!(play(&["relu?"]).contains("max(x, 0)"));
    assert_eq!(play(&["let help = 3", "help"]), "3\n");
    let (mut repl, _) = session();
    assert!(matches!(repl.input("quit"), Next::Leave));
}

#[test]
fn inputs_go_on_until_they_are_complete() {
    for open in ["fn f(x) {", "[1,", "\"\"\"text", "let x =", "if true { 1 } else {"] {
        assert!(goes_on(open), "{open}");
    }
    for done in ["1", "fn f(x) { x }", "let = 3", ")", ":time [1,", "[1,\n\n"] {
        assert!(!goes_on(done), "{done}");
    }
}

#[test]
fn words_are_completed_from_known_names() {
    let (mut repl, _) = session();
    repl.input("let weights = (first = 1, second = 2)\nlet words = [\"a\"]");
    let vm = repl.session.engine.vm();
    assert_eq!(complete(vm, "print(wei"), (6, vec!["weights".to_string()]));
    assert_eq!(complete(vm, "weights.f").1, ["first"]);
    assert!(complete(vm, "words.app").1.contains(&"append".to_string()));
    assert_eq!(complete(vm, ":qu"), (1, vec!["quit".to_string()]));
    assert_eq!(complete(vm, "whi").1, ["while"]);
    assert!(complete(vm, "math.co").1.contains(&"cos".to_string()));
    assert_eq!(complete(vm, "").1, Vec::<String>::new());
}

#[test]
fn completion_knows_the_place() {
    let (mut repl, _) = session();
    repl.input(
        "let x = ones(2, 3)\nlet s = Stream()\nlet items = [\"a\"]\nfn scaled(x, factor=2) { x * factor }",
    );
    let vm = repl.session.engine.vm();
    let mut words = |line: &str| complete(vm, line).1;
    assert_eq!(words("x.sum(1, ke"), ["keepdim="]);
    assert_eq!(words("sum(x, dim=1, ke"), ["keepdim="]);
    assert!(!words("sum(x, 1, d").contains(&"dim=".to_string()));
    assert_eq!(words("scaled(x, fa"), ["factor=", "false"]);
    assert_eq!(words("zeros(3, dtype=bf"), ["bf16"]);
    assert_eq!(words("x.sum(keepdim="), ["false", "true"]);
    assert!(words("zeros(3, device=").contains(&"cuda:1".to_string()));
    assert_eq!(words("x on cuda:"), ["cuda:0", "cuda:1"]);
    assert_eq!(words("with device(\"cuda:"), ["cuda:0", "cuda:1"]);
    assert_eq!(words("Stream(device=\"cp"), ["cpu"]);
    assert_eq!(words("x.to(\"cp"), Vec::<String>::new());
    assert!(words("zeros(2, dtype=").contains(&"bf16".to_string()));
    assert_eq!(words("x on cp"), ["cpu"]);
    assert_eq!(words("f(cuda:"), ["cuda:0", "cuda:1"]);
    assert!(words("s.wait_st").contains(&"wait_stream".to_string()));
    assert!(words("Stream().wait_st").contains(&"wait_stream".to_string()));
    assert!(words("cuda.current_stream().wait_st").contains(&"wait_stream".to_string()));
    assert!(words("x.sum(1).keep_what").is_empty());
    assert!(words("x.sum(1).cums").contains(&"cumsum".to_string()));
    assert!(words("x.dtype.").iter().all(|word| word != "cumsum"));
    assert_eq!(words("items[0].upp"), ["upper"]);
    assert_eq!(words("\"a\".upp"), ["upper"]);
    assert_eq!(words("cuda:1.memory_all"), ["memory_allocated"]);
    assert_eq!(words("let na"), Vec::<String>::new());
    assert_eq!(words("let local = 1\nloc"), ["local"]);
    assert_eq!(words("\"{items"), ["items"]);
    assert_eq!(words("# items"), Vec::<String>::new());
    assert_eq!(words("import para"), ["parallel"]);
    // After commands.
    assert_eq!(words(":time items"), ["items"]);
    assert_eq!(words(":ty x.cums"), ["cumsum", "cumsum_"]);
    assert_eq!(words(":help scal"), ["scaled", "scaled_dot_product_attention"]);
    assert!(words(":help x.cums").contains(&"cumsum".to_string()));
}

#[test]
fn paths_are_completed_where_a_path_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for name in ["dataset.bin", "model.rnl", ".hidden"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let (mut repl, _) = session();
    let vm = repl.session.engine.vm();
    let at = folder.path().to_string_lossy().to_string();
    let mut words = |before: &str, begun: &str| complete(vm, &format!("{before}{at}/{begun}"));
    assert_eq!(words("read(\"", "da").1, ["data/", "dataset.bin"]);
    assert_eq!(words("import \"", "").1, ["data/", "model.rnl"]);
    assert_eq!(words(":load ", "mo"), (7 + at.len(), vec!["model.rnl".to_string()]));
    assert_eq!(words("print(\"", "da").1, Vec::<String>::new());
}

#[test]
fn a_hint_shows_the_missing_parameters() {
    let (mut repl, _) = session();
    repl.input("let x = ones(2, 3)\nfn scaled(x, factor=2) { x * factor }");
    let vm = repl.session.engine.vm();
    let mut hints = |line: &str| hint(vm, line).unwrap_or_default();
    assert_eq!(hints("scaled("), "x, factor=...)");
    assert_eq!(hints("scaled(x"), ", factor=...)");
    assert_eq!(hints("scaled(x, "), "factor=...)");
    assert_eq!(hints("scaled(factor=1, "), "x)");
    assert_eq!(hints("scaled(x, factor=1"), ")");
    assert!(hints("x.sum(").starts_with("dim=none, keepdim=false"), "{}", hints("x.sum("));
    assert!(hints("1 + x.sum(0, ").starts_with("keepdim=false"));
    assert!(hints(":time x.sum(").starts_with("dim=none"));
    assert_eq!(hints("unknown("), "");
    assert_eq!(hints("x.sum(0)"), "");
    assert_eq!(hints("scaled(\"a, b"), "");
    assert_eq!(hints("scaled(\"a, b\""), ", factor=...)");
}

#[test]
fn commands_are_rows_and_may_be_shortened() {
    let (mut repl, text) = session();
    assert_eq!(repl.input(":q"), Next::Leave);
    for command in
        commands::COMMANDS.iter().filter(|c| c.takes == commands::Takes::Nothing && c.name != "quit")
    {
        assert_eq!(repl.input(&format!(":{}", command.name)), Next::Prompt, "{}", command.name);
    }
    assert!(!text.lock().unwrap().contains("E0"), "{}", text.lock().unwrap());
    for (line, part) in [
        (":hepl", "did you mean `:help`"),
        (":type", ":type CODE"),
        (":", ":help"),
        (":load nothing.rnl", "E0952"),
    ] {
        repl.input(line);
        let shown = std::mem::take(&mut *text.lock().unwrap());
        assert!(shown.contains(part), "{line}: {shown}");
    }
    repl.input(":type [1, 2]");
    assert_eq!(*text.lock().unwrap(), "list of 2\n");
}

#[test]
fn a_reset_session_has_no_names() {
    let text = play(&["let x = 1", ":reset", "x"]);
    assert!(text.contains("E0328") || text.contains("E02"), "{text}");
}

/// The output of the last of some inputs.
fn last_shown(inputs: &[&str]) -> String {
    let (mut repl, text) = session();
    let (last, earlier) = inputs.split_last().unwrap();
    for input in earlier {
        repl.input(input);
    }
    text.lock().unwrap().clear();
    repl.input(last);
    let text = text.lock().unwrap();
    text.clone()
}

#[test]
fn a_plan_shows_the_kernels_and_runs_nothing() {
    let x = "let x = ones(2, 30)";
    let shown = last_shown(&[x, ":plan (x * 2 + 1).sum(1)"]);
    let lines = [
        "1  mul+add+sum over [2, 30] on cuda:0",
        "r0 = load f32",
        "= 2.0 f32",
        "-> f32",
        "sum r",
        "over the last dimension",
        "1 kernel; none was run",
    ];
    for line in lines {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // Names and tensors do not change.
    assert!(last_shown(&[x, ":plan x.add_(1)", "x.sum().item()"]).contains("60"));
    assert!(last_shown(&[x, ":plan let y = x + 1", "y"]).contains("E0201"));
    let rebound = "let keep = 1\n";
    assert_eq!(last_shown(&[x, rebound, ":plan keep = x + 1", "keep"]), "1\n");
    assert!(last_shown(&[x, ":plan [1.0, 2.0] on cuda:1 + 1"]).contains("cuda:1"));
    assert_eq!(last_shown(&[x, ":plan 1 + 1"]), "no kernel is launched\n");
    assert!(
        last_shown(&[x, ":plan x.sum().item()"]).contains("1 kernel; the code reads results, so it was run")
    );
    assert!(last_shown(&[x, ":plan (x on cpu) + 1"]).contains("on cpu"));
    assert!(last_shown(&[x, ":plan x + ones(7)"]).contains("E04"));
    // The session continues after each.
    assert!(last_shown(&[x, ":plan x + ones(7)", "x.sum().item()"]).contains("60"));
    assert!(
        last_shown(&["let s = Stream()", x, ":plan x + 1", "with stream(s) { ones(2) }"]).contains("cuda:0")
    );
}

#[test]
fn a_time_is_the_median_of_many_runs() {
    let shown = last_shown(&["let x = ones(2, 3)", ":time x + 1"]);
    assert!(shown.contains("median of") && shown.ends_with("tensor f32[2, 3] on cuda:0\n"), "{shown}");
    assert!(last_shown(&[":time nowhere"]).contains("E0201"));
    assert!(last_shown(&[":time throw \"no\""]).contains("no"));
}

#[test]
fn memory_has_its_lines_and_streams_their_names() {
    let shown = last_shown(&["let big = ones(1000, 1000)", ":mem"]);
    assert!(shown.contains("cuda:0  ") && shown.contains("ones(1000, 1000)"), "{shown}");
    assert!(shown.contains("<input:1>:1:11") && shown.contains("1 tensor"), "{shown}");
    let shown = last_shown(&["let side = Stream()", "cuda.set_stream(side)", ":streams"]);
    let line = shown.lines().find(|line| line.contains("side")).unwrap_or("");
    assert!(line.starts_with("* cuda:0") && line.ends_with("idle"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("  cuda:0  default")), "{shown}");
}

#[test]
fn a_saved_session_is_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.rnl");
    let (mut repl, text) = session();
    let inputs = [
        "let x = arange(3)",
        "nowhere",
        "x * 2 # doubled",
        "let total = (_ + 1).sum().item()",
        "total; _.sum().item()",
        "for _ in 0..2 { }",
        "print(_, total)",
        ":mem",
    ];
    for input in inputs {
        repl.input(input);
    }
    text.lock().unwrap().clear();
    repl.input(&format!(":save {}", path.display()));
    assert!(text.lock().unwrap().starts_with("saved 6 inputs to "), "{}", text.lock().unwrap());
    let saved = std::fs::read_to_string(&path).unwrap();
    let (_, body) = saved.split_once('\n').unwrap();
    assert_eq!(
        body,
        "let x = arange(3)\nlet last_2 = x * 2 # doubled\nlet total = (last_2 + 1).sum().item()\n\
         total; let last_4 = last_2.sum().item()\nfor _ in 0..2 { }\nprint(last_4, total)\n"
    );
    // The saved script runs again and is overwritten; another file is not.
    text.lock().unwrap().clear();
    repl.input(":reset");
    repl.input(&format!(":load {}", path.display()));
    assert_eq!(*text.lock().unwrap(), "6 9\n");
    repl.input(&format!(":save {}", path.display()));
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 8);
    std::fs::write(&path, "let mine = 1\n").unwrap();
    text.lock().unwrap().clear();
    repl.input(&format!(":save {}", path.display()));
    assert!(text.lock().unwrap().contains("E0956"), "{}", text.lock().unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "let mine = 1\n");
}

#[test]
fn help_covers_session_names_and_documented_ones() {
    let shown = last_shown(&["# Twice its argument.\nfn twice(x, times=2) { x * times }", ":help twice"]);
    assert_eq!(shown, "twice(x, times=...)\n\nTwice its argument.\n");
    assert!(last_shown(&[":help cumsum"]).contains("\n    > "));
    let both = last_shown(&[":help sum"]);
    assert!(both.contains("sum(items") && both.contains("keepdim"), "{both}");
    assert!(last_shown(&[":help :save"]).starts_with(":save FILE\n"));
    assert!(last_shown(&[":help e0201"]).starts_with("E0201: "));
    assert!(last_shown(&["let s = Stream()", ":help s"]).contains("wait_stream"));
    assert!(last_shown(&[":help nothing_at_all"]).contains("E0954"));
}

#[test]
fn results_of_side_streams_are_shown_and_races_name_streams() {
    let side = "let s = Stream()";
    assert!(last_shown(&[side, "with stream(s) { ones(2) }"]).contains("f32[2] on cuda:0"));
    assert!(last_shown(&[side, "with stream(s) { (ones(2), 1) }"]).contains("tensor("));
    let report = last_shown(&[side, "let x = with stream(s) { ones(2) }", "x + 1"]);
    assert!(report.contains("E0601") && report.contains("wait_stream(s)"), "{report}");
}

#[test]
fn any_line_can_be_typed() {
    let mut engine = crate::engine::Engine::builder().backend(Backend::Emu).build().unwrap();
    for line in [
        "",
        ":",
        ": ",
        ":plan f(",
        "x.sum(\"é",
        "load(\"../\u{0}",
        "f(a=, ..b",
        "((((",
        "\u{feff}x.",
        ".",
        "on ",
    ] {
        typed(&mut engine, line);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(40))]

    #[test]
    fn random_lines_can_be_typed(line in "[a-z:(){}\\[\\]\"., =#|é\n\\\\0-9]{0,24}") {
        let mut engine = crate::engine::Engine::builder().backend(Backend::Emu).build().unwrap();
        typed(&mut engine, &line);
    }
}

#[test]
fn help_shows_an_example_for_every_documented_name() {
    let (mut repl, _) = session();
    let examples = crate::library::docs::entries().iter().filter(|e| !e.example.is_empty());
    let with_example: std::collections::BTreeSet<String> = examples.map(|e| e.name.to_string()).collect();
    for name in crate::cli::doc::names() {
        let page = help::page(&mut repl, &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let shown = page.contains("Example:") || !with_example.contains(&name);
        assert!(page.contains(name.rsplit('.').next().unwrap_or(&name)) && shown, "{name}:\n{page}");
    }
}
