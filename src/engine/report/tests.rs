use super::*;
use crate::base::{Code, ErrorKind};
use proptest::prelude::*;

static SHAPE: Code = Code { id: "E0401", kind: ErrorKind::Shape, title: "t", page: "p", example: "" };
static BARE: Code = Code { id: "E0951", kind: ErrorKind::Io, title: "t", page: "", example: "" };

fn sample() -> (SourceMap, u32, u32) {
    let mut sources = SourceMap::default();
    let text = "let a = ones(3, 4)\nlet b = ones(5)\nlet c = a + b\nprint(c)\n";
    let (_, a) = sources.add("train.rnl", text).unwrap();
    let (_, b) = sources.add("util.rnl", "fn step(x) {\n    x.frob()\n}\n").unwrap();
    (sources, a, b)
}

fn plain(error: &Error, sources: &SourceMap) -> String {
    render(error, sources, Severity::Error, Look { width: 60, color: false })
}

#[test]
fn operands_are_labelled_on_their_line() {
    let (sources, a, _) = sample();
    let error = Error::new(&SHAPE, "shapes [3, 4] and [5] do not broadcast")
        .at(Span::new(a + 43, a + 44), "this is f32[3, 4] on cuda:0")
        .at(Span::new(a + 47, a + 48), "this is f32[5] on cuda:0")
        .help("the last dimensions are 4 and 5; they must be equal, or one of them 1");
    insta::assert_snapshot!(plain(&error, &sources));
}

#[test]
fn labels_of_two_files_and_a_call_chain() {
    let (sources, a, b) = sample();
    let error = Error::new(&SHAPE, "a tensor has no method `frob`")
        .at(Span::new(b + 17, b + 25), "called here")
        .at(Span::new(a + 8, a + 18), "made here")
        .call(Span::new(a + 43, a + 48))
        .call(Span::new(a + 49, a + 57));
    insta::assert_snapshot!(plain(&error, &sources));
}

#[test]
fn a_failure_in_another_file_shows_the_script_s_own_call() {
    let (mut sources, a, b) = sample();
    let error = Error::new(&SHAPE, "a tensor has no method `frob`")
        .at(Span::new(b + 17, b + 25), "called here")
        .call(Span::new(b, b + 2))
        .call(Span::new(a + 43, a + 48))
        .call(Span::new(a + 49, a + 57));
    insta::assert_snapshot!(plain(&error, &sources));
    let (_, base) = sources.add("main.rnl", "import \"util.rnl\" as u\n").unwrap();
    let error =
        Error::new(&SHAPE, "no").at(Span::new(b + 17, b + 25), "").call(Span::new(base + 7, base + 17));
    assert!(plain(&error, &sources).contains("imported here"), "{}", plain(&error, &sources));
}

#[test]
fn several_errors_are_one_report_and_a_placeless_one_has_no_excerpt() {
    let (sources, a, _) = sample();
    let error =
        Error::new(&SHAPE, "first").at(Span::new(a, a + 3), "").and(Error::new(&BARE, "second").help("do"));
    insta::assert_snapshot!(plain(&error, &sources));
}

#[test]
fn recursion_is_told_once() {
    let (sources, a, _) = sample();
    let call = Span::new(a + 43, a + 48);
    let error = (0..500).fold(Error::new(&SHAPE, "too deep").at(call, ""), |e, _| e.call(call));
    let text = plain(&error, &sources);
    assert!(text.contains("train.rnl:3:9: a + b (500 times)"), "{text}");
    let spans: Vec<Span> = (0..40).map(|i| Span::new(a + i, a + i + 2)).collect();
    let error = spans.iter().fold(Error::new(&SHAPE, "deep").at(call, ""), |e, &s| e.call(s));
    assert!(plain(&error, &sources).contains("... 32 more calls"));
}

#[test]
fn control_characters_of_a_script_are_escaped() {
    let mut sources = SourceMap::default();
    let (_, base) = sources.add("a\x1b.rnl", "let x = \"\x1b[2J\u{202e}\u{85}\"\r\nx\n").unwrap();
    let error = Error::new(&SHAPE, "bad \x1b[31m").at(Span::new(base + 8, base + 19), "\x07").help("\x1b");
    let text = plain(&error, &sources);
    assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{text:?}");
    insta::assert_snapshot!(text);
}

#[test]
fn long_lines_are_cut_around_the_label() {
    let mut sources = SourceMap::default();
    let line = format!("let x = [{}]", "1234567890, ".repeat(10_000));
    let (_, base) = sources.add("wide.rnl", &line).unwrap();
    let error = Error::new(&SHAPE, "here").at(Span::new(base + 60_009, base + 60_019), "this one");
    insta::assert_snapshot!(plain(&error, &sources));
    let all = Error::new(&SHAPE, "all of it").at(Span::new(base, base + line.len() as u32), "from here");
    assert!(plain(&all, &sources).lines().all(|l| l.chars().count() < 160), "{}", plain(&all, &sources));
}

#[test]
fn colours_are_off_by_default() {
    let (sources, a, _) = sample();
    let error = Error::new(&SHAPE, "no").at(Span::new(a, a + 3), "x");
    let look = Look { width: 60, color: true };
    assert!(render(&error, &sources, Severity::Error, look).contains("\x1b["));
    assert!(!plain(&error, &sources).contains('\x1b'));
}

#[test]
fn json_holds_the_same_facts() {
    let (sources, a, b) = sample();
    let error = Error::new(&SHAPE, "a \"quoted\"\nmessage")
        .at(Span::new(a + 43, a + 48), "here")
        .call(Span::new(b, b + 2))
        .and(Error::new(&BARE, "second").help("do"));
    insta::assert_snapshot!(json(&[(vec![error], Severity::Warning)], &sources));
}

proptest! {
    #[test]
    fn no_span_and_no_text_breaks_the_renderer(
        text in "[a-z é\u{4e00}\t\r\n\u{1b}\u{301}]{0,80}",
        spans in prop::collection::vec((0u32..100, 0u32..100), 0..5),
        width in 0usize..120,
    ) {
        let mut sources = SourceMap::default();
        sources.add("first.rnl", "ab").unwrap();
        let (_, base) = sources.add("x.rnl", &text).unwrap();
        let error = spans.iter().fold(Error::new(&SHAPE, text.clone()), |e, &(lo, hi)| {
            e.at(Span::new((base + lo).saturating_sub(3), base + hi), "label")
        });
        for color in [false, true] {
            let shown = render(&error, &sources, Severity::Error, Look { width, color });
            prop_assert!(!shown.contains("Failed to read"), "{shown}");
        }
    }
}
