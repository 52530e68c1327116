//! What is said of mistakes that people make: the message, what is labelled, and what to write instead.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::Place;
use runnel::{Backend, Engine};

/// `E0415 message`, then a line per label, `` `text of the script`: label ``, then the help.
fn said(script: &str) -> String {
    let mut engine = Engine::builder().backend(Backend::Emu).devices(4).build().unwrap();
    let Err(error) = engine.eval::<()>(script) else { return "nothing".into() };
    let mut lines = vec![format!("{} {}", error.code().id, error.message())];
    for label in error.labels() {
        let Place::Span(span) = label.place else { panic!("{error:?}") };
        lines.push(format!("`{}`: {}", engine.sources().snippet(span), label.text));
    }
    lines.extend(error.help_text().map(|help| format!("help: {help}")));
    lines.join("\n")
}

/// The labels alone.
fn labels(script: &str) -> String {
    said(script).lines().filter(|line| line.starts_with('`')).collect::<Vec<_>>().join("\n")
}

#[test]
fn elements_of_a_list_are_labelled_by_themselves() {
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
        // Where the list is not written out, its label says which elements.
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
