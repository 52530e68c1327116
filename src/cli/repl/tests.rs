use super::editor::{complete, goes_on};
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
fn commands_are_rows_and_may_be_shortened() {
    let (mut repl, text) = session();
    assert_eq!(repl.input(":q"), Next::Leave);
    for command in commands::COMMANDS.iter().filter(|c| c.takes.is_empty() && c.name != "quit") {
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
