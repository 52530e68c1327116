//! No source text makes the parser panic, overflow the stack or run for long.

use super::*;
use proptest::prelude::*;

const DEEP: usize = 100_000;

/// Far beyond every bound; optimised builds use the full length.
const LONG: usize = 5_000;

/// Parses, walks and drops a text; returns its error codes.
fn codes(text: &str) -> Vec<&'static str> {
    let parsed = parse(1, text);
    let _ = format!("{:?}", parsed.block).len();
    parsed.errors.iter().map(|e| e.code().id).collect()
}

/// A test thread's stack is smaller than the main thread's, so passing here is enough.
#[test]
fn nesting_beyond_the_bounds_is_a_coded_error() {
    let brackets =
        ["(", "[", "{", "f(", "x[", "\"{", "if a {", "(a = ", "|x| {", "match x { 1 => ", "fn f(a = ", "[{("];
    for open in brackets {
        assert_eq!(codes(&open.repeat(DEEP)), ["E0110"], "{open}");
    }
    for (open, close) in [("(", ")"), ("[", "]"), ("{", "}"), ("\"{", "}\""), ("f(", ")"), ("if a {", "}")] {
        let text = format!("{}1{}", open.repeat(DEEP), close.repeat(DEEP));
        assert_eq!(codes(&text), ["E0110"], "{open}");
    }
    let chains = [
        ("- ", "1"),
        ("~", "1"),
        ("not ", "1"),
        ("|x| ", "1"),
        ("2 ** ", "1"),
        ("1 + ", "1"),
        ("a and ", "1"),
        ("a or ", "1"),
        ("a ++ ", "1"),
        ("a |> ", "f"),
        ("x on ", "cpu"),
        ("a.", "b"),
        ("a & ", "b"),
        ("a | ", "b"),
        ("return ", "1"),
    ];
    for (link, last) in chains {
        let length = if ["- ", "1 + "].contains(&link) { DEEP } else { LONG };
        let found = codes(&format!("{}{last}", link.repeat(length)));
        let wanted = if link == "return " { "E0109" } else { "E0110" };
        assert_eq!(found, [wanted], "{link}");
    }
    for link in ["()", "[0]", ".a"] {
        assert_eq!(codes(&format!("f{}", link.repeat(LONG))), ["E0110"], "{link}");
    }
    assert_eq!(codes(&format!("match x {{ a{} => 1 }}", ".a".repeat(LONG))), ["E0110"]);
}

#[test]
fn long_texts_that_are_not_deep_pass() {
    let long = [
        format!("if a {{ }}{}", " else if a { }".repeat(LONG)),
        format!("[{}]", "1, ".repeat(LONG)),
        "a\n".repeat(LONG),
        format!("f({})", "x = 1, ".repeat(LONG)),
        format!("match x {{ {} }}", "1 => 2\n".repeat(LONG)),
        format!("match x {{ 1{} => 2 }}", " | 1".repeat(LONG)),
        format!("\"{}\"", "a{b}".repeat(LONG)),
        format!("let x = {}", "9".repeat(10 * DEEP)),
        format!("let x = 0.{}", "9".repeat(10 * DEEP)),
        "x".repeat(10 * DEEP),
    ];
    for text in &long {
        let found = codes(text);
        assert!(found.is_empty() || found == ["E0105"], "{} {found:?}", &text[..20]);
    }
    let sum = |terms: usize| format!("{}1", "1 + ".repeat(terms));
    assert_eq!(codes(&sum(400)), [""; 0]);
}

#[test]
fn many_errors_are_cut_short() {
    assert_eq!(codes(&"a b\n".repeat(2000)).len(), 30);
    assert!(codes(&"{ a b; ".repeat(150)).len() <= 30);
    assert!(!codes(&")".repeat(DEEP)).is_empty());
    assert!(!codes(&"\"\n".repeat(2000)).is_empty());
}

fn soup() -> impl Strategy<Value = String> {
    let words: Vec<&str> = "let fn if else for in while break continue return with on import as try catch throw and or \
        not true false none match defer by test x y f 1 2.5 .5 64KiB 0x \" \" \"\"\" r\" { } ( ) [ ] , ; . .. ... => |> \
        + - * / // % @ ** ++ ~ & | || ^ << >> == != < <= > >= = += : && ! -> ? ' # \\ é € f32 cuda cuda:1 cpu inf 1.. 1e {{ }} \\n {x:{"
        .split(' ')
        .chain(["\n", "\n", " ", "\\\n"])
        .collect();
    proptest::collection::vec((proptest::sample::select(words), proptest::bool::ANY), 0..60).prop_map(
        |words| words.into_iter().map(|(w, s)| format!("{w}{}", if s { " " } else { "" })).collect(),
    )
}

/// The properties of every source text.
fn holds(text: &str) -> Result<(), TestCaseError> {
    let parsed = parse(7, text);
    let end = 7 + text.len() as u32;
    for error in &parsed.errors {
        for label in error.labels() {
            let crate::base::Place::Span(span) = label.place else { panic!("a label without a span") };
            prop_assert!(7 <= span.lo && span.lo <= span.hi && span.hi <= end, "{error:?}");
            let (lo, hi) = ((span.lo - 7) as usize, (span.hi - 7) as usize);
            prop_assert!(text.get(lo..hi).is_some(), "{error:?}");
        }
        prop_assert!(error.is_located());
    }
    let errors_in_tree = format!("{:?}", parsed.block).contains("kind: Error");
    prop_assert!(!errors_in_tree || !parsed.errors.is_empty());
    for (range, _) in classify(text) {
        prop_assert!(text.get(range).is_some());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn token_soup_never_panics(text in soup()) {
        holds(&text)?;
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,80}") {
        holds(&text)?;
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
        match decode(&bytes) {
            Ok(text) => holds(text)?,
            Err(error) => prop_assert_eq!(error.code().id, "E0113"),
        }
        let ascii: String = bytes.iter().map(|b| char::from(b & 0x7f)).collect();
        holds(&ascii)?;
    }
}
