//! `runnel lsp`: a language server on standard input and output. It offers editors what `check`, `doc`, `fmt`
//! and the session provide: diagnostics while typing, hover pages, completion, signature help.
//!
//! Never runs the documents. Invariant: every request gets exactly one response, whatever it contains.

mod address;
mod document;
mod wire;

use super::check::imported;
use super::repl::{complete, hint};
use super::terminal::Terminal;
use super::{Outcome, doc, refuse};
use crate::base::{Error, Label, Place, SourceMap, Span};
use crate::device::Backend;
use crate::engine::report::{Severity, flatten};
use crate::engine::{Engine, diagnose, diagnose_beside};
use document::{Document, Position};
use foldhash::HashMap;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use wire::Message;

/// Serves until the editor sends `exit` or disconnects.
pub fn lsp(terminal: &Terminal) -> Outcome {
    let engine = match Engine::builder().backend(Backend::Emu).build() {
        Ok(engine) => engine,
        Err(error) => return refuse(terminal, &error, &SourceMap::default()),
    };
    let mut server = Server { engine, documents: HashMap::default(), has_shut_down: false };
    let (mut input, mut output) = (BufReader::new(std::io::stdin()), std::io::stdout());
    loop {
        let message = match wire::read(&mut input) {
            Ok(Message::Json(message)) => message,
            Ok(Message::Broken) => {
                let error = json!({ "code": -32700, "message": "this is not JSON" });
                let answer = json!({ "jsonrpc": "2.0", "id": null, "error": error });
                if wire::write(&mut output, &answer).is_err() {
                    return Outcome::Failed;
                }
                continue;
            }
            Ok(Message::End) | Err(_) => return Outcome::Done,
        };
        let method = message["method"].as_str().unwrap_or("");
        if method == "exit" {
            return if server.has_shut_down { Outcome::Done } else { Outcome::Failed };
        }
        let id = message.get("id");
        if server.take(&mut output, method, id, &message["params"]).is_err() {
            return Outcome::Failed;
        }
    }
}

struct Server {
    /// Provides the names; runs nothing.
    engine: Engine,
    /// The open documents, by [`address::key`].
    documents: HashMap<String, Document>,
    has_shut_down: bool,
}

impl Server {
    /// Handles a message; requests get a response, notifications do not.
    fn take(
        &mut self,
        to: &mut impl Write,
        method: &str,
        id: Option<&Value>,
        params: &Value,
    ) -> std::io::Result<()> {
        let uri = params["textDocument"]["uri"].as_str().unwrap_or("");
        let Some(id) = id else {
            return match self.notification(method, uri, params) {
                Some(found) => wire::write(to, &published(uri, found)),
                None => Ok(()),
            };
        };
        let answer = match method {
            "initialize" => Ok(initialized()),
            "shutdown" => {
                self.has_shut_down = true;
                Ok(Value::Null)
            }
            "textDocument/hover" => Ok(self.hover(uri, params)),
            "textDocument/completion" => Ok(self.completion(uri, params)),
            "textDocument/signatureHelp" => Ok(self.signature(uri, params)),
            "textDocument/formatting" => Ok(self.formatting(uri)),
            other => Err(json!({ "code": -32601, "message": format!("there is no method `{other}`") })),
        };
        let message = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        };
        wire::write(to, &message)
    }

    /// Handles a notification. Returns the diagnostics to publish if it concerns a document.
    fn notification(&mut self, method: &str, uri: &str, params: &Value) -> Option<Vec<Value>> {
        let key = address::key(uri);
        match method {
            "textDocument/didOpen" => {
                let text = params["textDocument"]["text"].as_str()?;
                self.documents.insert(key.clone(), Document::new(text.to_string()));
            }
            "textDocument/didChange" => {
                let document = self.documents.get_mut(&key)?;
                let changes = params["contentChanges"].as_array()?;
                changes.iter().for_each(|one| change(document, one));
            }
            "textDocument/didClose" => {
                self.documents.remove(&key)?;
                return Some(Vec::new());
            }
            _ => return None,
        }
        let open = |uri: &str| self.documents.get(&address::key(uri));
        Some(diagnostics(uri, open(uri)?, &open))
    }

    /// The line at a request's position, split there.
    fn around(&self, uri: &str, params: &Value) -> Option<(&Document, &str, &str)> {
        let document = self.documents.get(&address::key(uri))?;
        let (before, after) = document.around(position(&params["position"])?);
        Some((document, before, after))
    }

    fn hover(&self, uri: &str, params: &Value) -> Value {
        let Some((_, before, after)) = self.around(uri, params) else { return Value::Null };
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let left = before.rfind(|c: char| !is_part(c) && c != '.').map_or(before, |at| {
            let width = before[at..].chars().next().map_or(1, char::len_utf8);
            &before[at + width..]
        });
        let right = after.find(|c: char| !is_part(c)).map_or(after, |at| &after[..at]);
        let whole = format!("{left}{right}");
        // `cuda.synchronize`; otherwise a method with the name after the last dot.
        let names = [whole.as_str(), whole.rsplit('.').next().unwrap_or("")];
        // Skip pages found through another name: here names may also be the script's own.
        let is_of = |page: &str, name: &str| {
            let shown = page.split(|c: char| !is_part(c) && c != '.').next().unwrap_or("");
            shown == name || shown.rsplit('.').next() == name.rsplit('.').next()
        };
        let pages = names.iter().filter(|name| !name.is_empty());
        let page = pages.filter_map(|name| doc::page(name).ok().filter(|page| is_of(page, name))).next();
        match page {
            Some(page) => json!({ "contents": { "kind": "plaintext", "value": page.trim_end() } }),
            None => Value::Null,
        }
    }

    fn completion(&mut self, uri: &str, params: &Value) -> Value {
        let Some((document, before, _)) = self.around(uri, params) else { return json!([]) };
        let before = before.to_string();
        let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("");
        let is_member = before[..before.len() - word.len()].ends_with('.');
        let own = document.words(word).into_iter().filter(|own| !word.is_empty() && own.starts_with(word));
        let mut own: Vec<String> = own.filter(|_| !is_member).map(str::to_string).collect();
        // In a session a leading colon starts a command; in a document it is not code.
        let (start, known) = match before.trim_start().starts_with(':') {
            true => (before.len(), Vec::new()),
            false => complete(self.engine.vm(), &before),
        };
        let of_place = |text: String| if start + word.len() == before.len() { Some(text) } else { None };
        let known: Vec<String> = known.into_iter().filter_map(of_place).collect();
        own.retain(|word| !known.contains(word));
        // 3: a function, 6: a variable.
        let item = |label: &String, kind: u8| json!({ "label": label, "kind": kind });
        let items: Vec<Value> =
            own.iter().map(|label| item(label, 6)).chain(known.iter().map(|label| item(label, 3))).collect();
        Value::Array(items)
    }

    fn signature(&mut self, uri: &str, params: &Value) -> Value {
        let Some((_, before, _)) = self.around(uri, params) else { return Value::Null };
        let before = before.to_string();
        match hint(self.engine.vm(), &before) {
            Some(left) => json!({ "signatures": [{ "label": left.trim_start_matches(", ") }] }),
            None => Value::Null,
        }
    }

    fn formatting(&self, uri: &str) -> Value {
        let Some(document) = self.documents.get(&address::key(uri)) else { return Value::Null };
        match crate::syntax::format(0, document.text()) {
            Ok(formatted) if formatted == document.text() => json!([]),
            Ok(formatted) => {
                let range = range(document, 0, document.text().len());
                json!([{ "range": range, "newText": formatted }])
            }
            // Code that does not parse has no layout; its errors are already shown.
            Err(_) => Value::Null,
        }
    }
}

/// The capabilities of this server.
fn initialized() -> Value {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            // 2: incremental changes.
            "textDocumentSync": { "openClose": true, "change": 2 },
            "hoverProvider": true,
            "completionProvider": { "triggerCharacters": ["."] },
            "signatureHelpProvider": { "triggerCharacters": ["(", ","] },
            "documentFormattingProvider": true,
        },
        "serverInfo": { "name": "runnel", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// Applies one change from the editor.
fn change(document: &mut Document, change: &Value) {
    let Some(text) = change["text"].as_str() else { return };
    let range = &change["range"];
    match (range, position(&range["start"]), position(&range["end"])) {
        (_, Some(from), Some(to)) => document.replace(from, to, text),
        (Value::Null, ..) => *document = Document::new(text.to_string()),
        _ => {}
    }
}

/// A position from a message.
fn position(given: &Value) -> Option<Position> {
    // Numbers too large for `usize` are past every line.
    let number = |name: &str| Some(usize::try_from(given[name].as_u64()?).unwrap_or(usize::MAX));
    Some((number("line")?, number("character")?))
}

/// The range between two bytes, as a protocol value.
fn range(document: &Document, from: usize, to: usize) -> Value {
    let [start, end] = [from, to].map(|byte| {
        let (line, character) = document.position(byte);
        json!({ "line": line, "character": character })
    });
    json!({ "start": start, "end": end })
}

fn published(uri: &str, diagnostics: Vec<Value>) -> Value {
    let params = json!({ "uri": uri, "diagnostics": diagnostics });
    json!({ "jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": params })
}

/// Errors and warnings of a document. `open` returns other open documents.
fn diagnostics<'d>(
    uri: &str,
    document: &Document,
    open: &dyn Fn(&str) -> Option<&'d Document>,
) -> Vec<Value> {
    let mut sources = SourceMap::default();
    // Imports are resolved only for `file:` URIs.
    let path = address::path(uri);
    let files = |path: &str| match open(&address::of(path)) {
        Some(document) => Some(document.text().to_string()),
        None => imported(path),
    };
    let mut found = match &path {
        Some(path) => diagnose_beside(&mut sources, &path.to_string_lossy(), document.text(), &files),
        None => diagnose(&mut sources, uri, document.text()),
    };
    // Errors in other files are reported when those are open. The document is the first source.
    let own = sources.find(Span::new(1, 1));
    found.errors.retain(|e| sources.find(e.span()) == own);
    let location = |span: Span| {
        let source = sources.find(span)?;
        let byte = |at: u32| at.saturating_sub(sources.base(source)) as usize;
        let range = |document: &Document| range(document, byte(span.lo), byte(span.hi));
        Some(match Some(source) == own {
            true => json!({ "uri": uri, "range": range(document) }),
            false => {
                let other = Document::new(sources.text(source).to_string());
                json!({ "uri": address::of(sources.name(source)), "range": range(&other) })
            }
        })
    };
    let one = |error: &Error, severity: Severity| {
        let help = error.help_text().map_or(String::new(), |help| format!("\nhelp: {help}"));
        let label = |label: &Label| match label.place {
            Place::Span(span) if !label.text().is_empty() => {
                Some(json!({ "location": location(span)?, "message": label.text() }))
            }
            _ => None,
        };
        let related: Vec<Value> = error.labels().iter().filter_map(label).collect();
        let place = location(error.span()).map(|mut location| location["range"].take());
        json!({
            "range": place.unwrap_or_else(|| range(document, 0, 0)),
            "severity": if severity == Severity::Error { 1 } else { 2 },
            "code": error.code().id,
            "source": "runnel",
            "message": format!("{}{help}", error.message()),
            "relatedInformation": related,
        })
    };
    let errors = found
        .errors
        .iter()
        .flat_map(|error| flatten(error, &sources))
        .map(|(error, _)| one(error, Severity::Error));
    let warnings = found
        .warnings
        .iter()
        .flat_map(|error| flatten(error, &sources))
        .map(|(error, _)| one(error, Severity::Warning));
    errors.chain(warnings).collect()
}
