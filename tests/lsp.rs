//! The language server, driven over the protocol like by an editor.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

struct Editor {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    asked: u64,
}

impl Editor {
    fn new() -> Editor {
        let mut server =
            command::runnel().arg("lsp").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        Editor { server, to, from, asked: 0 }
    }

    fn send(&mut self, text: &str) {
        write!(self.to, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.to.flush().unwrap();
    }

    fn read(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).unwrap();
            match line.trim().split_once(": ") {
                Some((_, value)) => length = value.parse().unwrap(),
                None => break,
            }
        }
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }).to_string(),
        );
        let answer = self.read();
        assert_eq!(answer["id"], self.asked);
        answer["result"].clone()
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// The diagnostics after opening a text.
    fn open(&mut self, text: &str) -> Vec<Value> {
        self.open_at("file:///a.rnl", text)
    }

    fn open_at(&mut self, uri: &str, text: &str) -> Vec<Value> {
        let document = json!({ "uri": uri, "languageId": "runnel", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
        self.told(uri)
    }

    /// The diagnostics after changes. Each is a range (line and character of start and end) and its new text.
    fn change(&mut self, changes: &[([u64; 4], &str)]) -> Vec<Value> {
        let change = |([line, character, end_line, end_character], text): &([u64; 4], &str)| {
            json!({
                "range": {
                    "start": { "line": line, "character": character },
                    "end": { "line": end_line, "character": end_character },
                },
                "text": text,
            })
        };
        let changes: Vec<Value> = changes.iter().map(change).collect();
        let document = json!({ "uri": "file:///a.rnl", "version": 2 });
        let params = json!({ "textDocument": document, "contentChanges": changes });
        self.tell("textDocument/didChange", params);
        self.told("file:///a.rnl")
    }

    fn told(&mut self, uri: &str) -> Vec<Value> {
        let told = self.read();
        assert_eq!(told["method"], "textDocument/publishDiagnostics");
        assert_eq!(told["params"]["uri"], uri);
        told["params"]["diagnostics"].as_array().unwrap().clone()
    }

    /// The server's version of the text, formatted; formatting changes none of these texts.
    fn laid_out(&mut self) -> String {
        let uri = json!({ "textDocument": { "uri": "file:///a.rnl" } });
        let edits = self.ask("textDocument/formatting", uri);
        edits[0]["newText"].as_str().unwrap().to_string()
    }

    fn at(line: u64, character: u64) -> Value {
        json!({
            "textDocument": { "uri": "file:///a.rnl" },
            "position": { "line": line, "character": character },
        })
    }

    fn labels(&mut self, line: u64, character: u64) -> Vec<String> {
        let items = self.ask("textDocument/completion", Editor::at(line, character));
        items.as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap().to_string()).collect()
    }
}

#[test]
fn the_server_answers_requests() {
    let mut editor = Editor::new();
    let answer = editor.ask("initialize", json!({ "capabilities": {} }));
    assert_eq!(answer["serverInfo"]["name"], "runnel");
    editor.tell("initialized", json!({}));

    // Errors are reported with positions, labels and help.
    let found = editor.open("let é = zeros(2, 3)\nprint(é + zeros(4))\nlet _x = relo(é)\n");
    let brief: Vec<(String, u64, u64, String)> = found
        .iter()
        .map(|d| {
            let range = &d["range"]["start"];
            let text = d["message"].as_str().unwrap().to_string();
            (
                d["code"].as_str().unwrap().to_string(),
                range["line"].as_u64().unwrap(),
                range["character"].as_u64().unwrap(),
                text,
            )
        })
        .collect();
    assert_eq!(
        brief,
        [
            ("E0201".into(), 2, 9, "unknown name `relo`\nhelp: did you mean `relu`?".into()),
            (
                "W0204".into(),
                1,
                6,
                "`+` cannot broadcast the shapes [2, 3] and [4]\nhelp: extents must be equal or 1, from the last dimension; `x[..., none]` adds a 1".into()
            ),
        ]
    );
    assert_eq!((&found[0]["severity"], &found[1]["severity"]), (&json!(1), &json!(2)));

    // A change that replaces the whole text.
    let changed = "let value = randn(3)\nlet total = value.su\nprint(cuda.synchronize(), val, total.sum(\n";
    let change = json!({
        "textDocument": { "uri": "file:///a.rnl", "version": 2 },
        "contentChanges": [{ "text": changed }],
    });
    editor.tell("textDocument/didChange", change);
    assert_eq!(editor.read()["params"]["diagnostics"][0]["code"], "E0106");

    assert!(editor.labels(1, 20).contains(&"sum".to_string()));
    assert!(!editor.labels(1, 20).contains(&"value".to_string()));
    assert!(editor.labels(2, 29).contains(&"value".to_string()));
    assert!(editor.labels(2, 15).contains(&"synchronize".to_string()));
    let page = editor.ask("textDocument/hover", Editor::at(2, 14));
    assert!(page["contents"]["value"].as_str().unwrap().contains("cuda.synchronize("), "{page}");
    let page = editor.ask("textDocument/hover", Editor::at(0, 13));
    assert!(page["contents"]["value"].as_str().unwrap().starts_with("randn("), "{page}");
    assert_eq!(editor.ask("textDocument/hover", Editor::at(0, 5)), Value::Null);
    let left = editor.ask("textDocument/signatureHelp", Editor::at(0, 18));
    assert!(left["signatures"][0]["label"].as_str().unwrap().contains("dtype"), "{left}");

    // Formatting; a text that does not parse has none.
    let uri = json!({ "textDocument": { "uri": "file:///a.rnl" } });
    assert_eq!(editor.ask("textDocument/formatting", uri.clone()), Value::Null);
    assert!(editor.open("let x=1\nprint( x )").is_empty());
    let edits = editor.ask("textDocument/formatting", uri.clone());
    assert_eq!(edits[0]["newText"], "let x = 1\nprint(x)\n");
    assert_eq!(edits[0]["range"]["end"], json!({ "line": 1, "character": 10 }));

    // Unknown requests are errors, and the server continues.
    editor.send("{");
    assert_eq!(editor.read()["error"]["code"], -32700);
    editor.tell("$/progress", json!({}));
    editor.send("[]");
    editor.send("{\"id\":\"a\",\"method\":\"workspace/nothing\"}");
    assert_eq!(editor.read()["error"]["code"], -32601);
    for (line, character) in [(0, 0), (99, 99), (u64::MAX, u64::MAX)] {
        for method in ["hover", "completion", "signatureHelp"] {
            editor.ask(&format!("textDocument/{method}"), Editor::at(line, character));
        }
    }
    editor.tell("textDocument/didClose", uri);
    assert_eq!(editor.read()["params"]["diagnostics"], json!([]));
    assert_eq!(editor.ask("shutdown", Value::Null), Value::Null);
    editor.tell("exit", Value::Null);
    assert_eq!(editor.server.wait().unwrap().code(), Some(0));
}

#[test]
fn incremental_changes_are_applied() {
    let mut editor = Editor::new();
    let answer = editor.ask("initialize", json!({ "capabilities": {} }));
    assert_eq!(answer["capabilities"]["textDocumentSync"], json!({ "openClose": true, "change": 2 }));

    // Characters of two UTF-16 units before the position, on a line that ends in two bytes.
    editor.open("let s=\"𝕏𝕐é\"\r\nprint(s)\r\n");
    let found = editor.change(&[([0, 9, 0, 11], "Z"), ([1, 6, 1, 7], "ss")]);
    assert_eq!(found[0]["range"]["start"], json!({ "line": 1, "character": 6 }));
    assert_eq!(found[0]["message"], "unknown name `ss`\nhelp: did you mean `s`?");
    assert!(editor.change(&[([1, 7, 1, 8], "")]).is_empty());
    assert_eq!(editor.laid_out().lines().collect::<Vec<_>>(), ["let s = \"𝕏Zé\"", "print(s)"]);

    // The end of the file, and positions beyond it; each change applies to the result of the previous one.
    editor.open("let a=1");
    assert!(
        editor
            .change(&[([0, 7, 0, 7], "\nlet b=a"), ([1, 7, 1, 7], "\n"), ([2, 0, 2, 0], "print(b)")])
            .is_empty()
    );
    assert_eq!(editor.laid_out(), "let a = 1\nlet b = a\nprint(b)\n");
    assert!(editor.change(&[([99, 0, 99, 9], "\nprint(a)\n"), ([0, 6, 0, 99], "[1,\n2]")]).is_empty());
    assert_eq!(editor.laid_out(), "let a = [1,\n    2]\nlet b = a\nprint(b)\nprint(a)\n");

    // Removes all lines except one, and a line end.
    editor.open("print(1)\r\nprint(2)\r\nprint( 3)\r\n");
    assert!(editor.change(&[([0, 0, 1, 0], ""), ([0, 8, 1, 0], ";")]).is_empty());
    assert_eq!(editor.laid_out().trim_end(), "print(2); print(3)");

    // Invalid changes are ignored; a change without a range replaces the whole text, also among others.
    let params =
        |changes: Value| json!({ "textDocument": { "uri": "file:///a.rnl" }, "contentChanges": changes });
    let strange = json!([{ "range": { "start": 3 }, "text": "(" }, { "range": [], "text": "(" }, {}, 7]);
    editor.tell("textDocument/didChange", params(strange));
    assert_eq!(editor.told("file:///a.rnl"), [Value::Null; 0]);
    let start = json!({ "line": 0, "character": 0 });
    let range = json!({ "start": start, "end": start });
    let whole = json!([{ "text": "print(2 )" }, { "range": range, "text": "let x=1;" }]);
    editor.tell("textDocument/didChange", params(whole));
    assert_eq!(editor.told("file:///a.rnl")[0]["code"], "W0201");
    assert_eq!(editor.laid_out(), "let x = 1; print(2)\n");
    // Requests about a closed document have no result.
    editor.tell("textDocument/didClose", json!({ "textDocument": { "uri": "file:///a.rnl" } }));
    assert!(editor.told("file:///a.rnl").is_empty());
    editor.tell("textDocument/didChange", params(json!([{ "range": range, "text": "(" }])));
    assert_eq!(editor.ask("shutdown", Value::Null), Value::Null);
}

#[test]
fn imports_of_a_document_are_found_in_folders_with_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("größe 100% #1");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("util.rnl"), "fn step(x) { x }\n").unwrap();
    let folder = folder.path().to_str().unwrap();
    let mut editor = Editor::new();
    let text = "import \"util.rnl\" as u\nprint(u.stpe(1))\n";
    // Editors encode addresses differently, and get back the form that they sent.
    for name in ["gr%C3%B6%C3%9Fe%20100%25%20%231/a%20b.rnl", "größe 100%25 %231/a b.rnl"] {
        let uri = format!("file://{folder}/{name}");
        let found = editor.open_at(&uri, text);
        assert_eq!(found[0]["code"], "E0205", "{uri}: {found:?}");
    }
    // All forms denote one document.
    let call = |name: &str| json!({ "textDocument": { "uri": format!("file://{folder}/{name}") }, "position": { "line": 1, "character": 2 } });
    for name in ["gr%c3%b6%c3%9fe%20100%25%20%231/a%20b.rnl", "größe 100%25 %231/a%20b.rnl"] {
        assert!(
            editor.ask("textDocument/hover", call(name))["contents"]["value"]
                .as_str()
                .unwrap()
                .starts_with("print(")
        );
    }
    // The open text is used, although it is not saved.
    editor.open_at(&format!("file://{folder}/größe%20100%25%20%231/util.rnl"), "fn stpe(x) { x }\n");
    let uri = format!("file://{folder}/gr%C3%B6%C3%9Fe%20100%25%20%231/a.rnl");
    assert_eq!(editor.open_at(&uri, text), [Value::Null; 0]);
    assert!(editor.open_at("untitled:Untitled-1", text).is_empty());
}

#[test]
fn the_server_ends_with_its_editor() {
    let Editor { mut server, to, .. } = Editor::new();
    drop(to);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    for broken in ["hello\r\n\r\n", "Content-Length: 99999999999\r\n\r\n", "Content-Length: 10\r\n\r\n{}"] {
        let Editor { mut server, mut to, .. } = Editor::new();
        to.write_all(broken.as_bytes()).ok();
        drop(to);
        assert_eq!(server.wait().unwrap().code(), Some(0), "{broken}");
    }
}
