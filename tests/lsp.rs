//! The language server, as an editor speaks with it.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

struct Editor {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    asked: u64,
}

impl Editor {
    fn new() -> Editor {
        let mut server = Command::new(env!("CARGO_BIN_EXE_runnel"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
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

    /// The diagnostics that follow a text.
    fn open(&mut self, text: &str) -> Vec<Value> {
        let document = json!({ "uri": "file:///a.rnl", "languageId": "runnel", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
        let told = self.read();
        assert_eq!(told["method"], "textDocument/publishDiagnostics");
        assert_eq!(told["params"]["uri"], "file:///a.rnl");
        told["params"]["diagnostics"].as_array().unwrap().clone()
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
fn an_editor_is_told_what_it_asks() {
    let mut editor = Editor::new();
    let answer = editor.ask("initialize", json!({ "capabilities": {} }));
    assert_eq!(answer["serverInfo"]["name"], "runnel");
    editor.tell("initialized", json!({}));

    // What is wrong is told, with places, labels and help.
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
                "`+` cannot broadcast the shapes [2, 3] and [4]\nhelp: extents must be equal or 1, counted from the last dimension".into()
            ),
        ]
    );
    assert_eq!((&found[0]["severity"], &found[1]["severity"]), (&json!(1), &json!(2)));

    // A change takes the place of the whole text.
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

    // Layout; of what is no program there is none.
    let uri = json!({ "textDocument": { "uri": "file:///a.rnl" } });
    assert_eq!(editor.ask("textDocument/formatting", uri.clone()), Value::Null);
    assert!(editor.open("let x=1\nprint( x )").is_empty());
    let edits = editor.ask("textDocument/formatting", uri.clone());
    assert_eq!(edits[0]["newText"], "let x = 1\nprint(x)\n");
    assert_eq!(edits[0]["range"]["end"], json!({ "line": 1, "character": 10 }));

    // What is not known is refused, and nothing ends the conversation.
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
fn an_editor_that_is_gone_ends_it() {
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
