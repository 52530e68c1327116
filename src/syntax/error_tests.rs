//! Invalid programs and their reports.

use super::*;

/// All errors of a text: `E0107 3..4 message | help`, one per line; positions count from 0.
fn report(text: &str) -> String {
    let parsed = parse(1, text);
    let lines = parsed.errors.iter().map(|e| {
        let (lo, hi) = (e.span().lo - 1, e.span().hi - 1);
        let help = e.help_text().map_or(String::new(), |h| format!("\n   help: {h}"));
        format!("=> {} {lo}..{hi} {}{help}", e.code().id, e.message())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `wrong.txt` contains programs, each followed by its report. After changing messages, run the test with
/// `BLESS=1` and read the difference.
#[test]
fn wrong_programs_get_the_messages_of_the_table() {
    let (mut table, mut failures) = (String::new(), Vec::new());
    for entry in include_str!("wrong.txt").split_terminator("\n---\n") {
        let at = entry.find("\n=> ").unwrap_or(entry.len());
        let (program, wanted) = (&entry[..at], entry[at..].trim_start());
        let found = report(program);
        if found != wanted || found.is_empty() {
            failures.push(format!("{program}\n{found}\n   instead of\n{wanted}"));
        }
        table += &format!("{program}\n{found}\n---\n");
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write("src/syntax/wrong.txt", table).unwrap();
        return;
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

#[test]
fn every_code_has_a_page_and_an_example_that_ends_in_it() {
    for code in error::CODES {
        assert!(code.page.len() > 80 && code.page.ends_with('.'), "{code:?}");
        if code.example.is_empty() {
            assert!(["E0110", "E0113"].contains(&code.id), "{code:?}");
            continue;
        }
        let errors = parse(1, code.example).errors;
        let found: Vec<_> = errors.iter().map(|e| e.code().id).collect();
        assert_eq!(found, [code.id], "{}", code.example);
    }
    let ids: std::collections::BTreeSet<_> = error::CODES.iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), error::CODES.len());
}

#[test]
fn a_text_that_only_ends_too_early_is_incomplete() {
    let incomplete = [
        "f(",
        "f(1,",
        "[1, 2",
        "{",
        "fn f() {",
        "fn f(",
        "if a { 1 } else {",
        "1 +",
        "let x =",
        "a and",
        "x |>",
        "\"\"\"abc",
        "\"\"\"a{",
        "try { 1 }",
        "for i in",
        "with a,",
        "f(\"a\",",
        "match x {",
        "match x { 1 =>",
        "|x|",
        "fn f(a, b) {\n  a +",
        "f(1 +",
    ];
    for text in incomplete {
        let parsed = parse(1, text);
        assert!(parsed.incomplete && !parsed.errors.is_empty(), "{text}: {:?}", parsed.errors);
    }
    let wrong = [
        "\"abc",
        "let x",
        "if a",
        "f(1 2",
        "f(1))",
        "x = ?",
        "{ a b",
        "1 + $",
        "for i",
        "f(]",
        "let 1 = 2; f(",
        "'a",
        "\"{x",
        "a b; c +",
    ];
    for text in wrong {
        let parsed = parse(1, text);
        assert!(!parsed.incomplete && !parsed.errors.is_empty(), "{text}: {:?}", parsed.errors);
    }
    for text in ["", "1", "if a { 1 }", "# x", "return"] {
        let parsed = parse(1, text);
        assert!(!parsed.incomplete && parsed.errors.is_empty(), "{text}: {:?}", parsed.errors);
    }
}

#[test]
fn the_tree_keeps_valid_code_around_an_error() {
    let parsed = parse(1, "let a = 1\nfn f() {\n  let b = * 2\n  b\n}\nlet c = ) 3\nlet d = 4");
    let lines = sexpr::block_lines(&parsed.block);
    assert_eq!(lines, "(let a 1)\n(fn f [] (do ERROR b))\n(let c 3)\n(let d 4)");
    assert_eq!(parsed.errors.len(), 2);
}

#[test]
fn decoding_names_the_first_wrong_byte() {
    assert_eq!(decode("é".as_bytes()).unwrap(), "é");
    let error = decode(b"ab\n\xc3\xa9\xff").unwrap_err();
    assert_eq!(error.code().id, "E0113");
    assert!(error.message().contains("0xff at line 2, column 2 (offset 5)"), "{error}");
}
