use super::complete::complete;
use super::editor::goes_on;
use super::hint::hint;
use super::*;
use crate::cli::args::Color;
use crate::device::Backend;
use std::sync::{Arc, Mutex};

/// A session whose output is kept.
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
fn an_error_is_reported_and_what_was_there_stays() {
    let text = play(&["let x = 1", "x = 2\nundefined_thing", "x"]);
    assert!(text.contains("undefined_thing") && text.contains("<input:2>:2:1"), "{text}");
    assert!(text.ends_with("\n1\n"), "{text}");
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
fn words_are_completed_by_what_is_known() {
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
    assert_eq!(words("\"{ite"), ["items"]);
    assert_eq!(words("# ite"), Vec::<String>::new());
    assert_eq!(words("import para"), ["parallel"]);
    // Behind commands.
    assert_eq!(words(":time ite"), ["items"]);
    assert_eq!(words(":ty x.cums"), ["cumsum", "cumsum_"]);
    assert_eq!(words(":help scal"), ["scaled"]);
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
fn a_call_shows_what_it_still_takes() {
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
    assert_eq!(hints("scaled(\"a, b"), ", factor=...)");
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
