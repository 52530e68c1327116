//! Runs the code in `docs/language.md`, `docs/distributed.md` and `README.md`, and compares its output with
//! the text.
//!
//! Chapters begin with `## `. The ```` ```rnl ```` blocks of a chapter run in order in one session on four
//! emulated devices; a ```` ```text ```` block after one is its output. A block whose first line is a comment
//! with a file name, such as `# train.rnl` or `# train.rnl: fits a line`, is that file, and does not run by
//! itself. A ```` ```console ```` block holds `$ runnel ...` lines, run in the folder of the chapter's files,
//! each with its output to both streams. `RUNNEL_UPDATE=1 cargo test --test tutorial` writes the output into
//! the documents.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{Backend, Engine};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

#[test]
fn the_outputs_in_the_tutorial_are_right() {
    executed("docs/language.md", 50);
}

#[test]
fn the_outputs_in_the_readme_are_right() {
    executed("README.md", 3);
}

#[test]
fn the_outputs_on_the_page_on_processes_are_right() {
    executed("docs/distributed.md", 2);
}

/// Runs a document, which must have at least this many blocks that run.
fn executed(document: &str, at_least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let kept = std::fs::read_to_string(&path).unwrap();
    let mut runner = Runner::new(document);
    let shown = runner.document(&kept);
    assert!(runner.ran >= at_least, "{document} has {} blocks that run", runner.ran);
    if std::env::var_os("RUNNEL_UPDATE").is_some() {
        std::fs::write(&path, &shown).unwrap();
        return;
    }
    for (at, (kept, shown)) in kept.lines().zip(shown.lines()).enumerate() {
        assert_eq!(kept, shown, "{document}, line {}: RUNNEL_UPDATE=1 cargo test --test tutorial", at + 1);
    }
    assert_eq!(kept.len(), shown.len(), "{document}: RUNNEL_UPDATE=1 cargo test --test tutorial");
}

/// A chapter's session and files.
struct Runner {
    document: String,
    folder: PathBuf,
    engine: Engine,
    printed: Arc<Mutex<String>>,
    ran: usize,
}

impl Runner {
    fn new(document: &str) -> Runner {
        let name = document.replace(['/', '.'], "-");
        let folder = std::env::temp_dir().join(format!("runnel-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (engine, printed) = session();
        Runner { document: document.into(), folder, engine, printed, ran: 0 }
    }

    /// The document with the output of its blocks.
    fn document(&mut self, text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let mut out: Vec<String> = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            out.push(line.into());
            at += 1;
            if line.starts_with("## ") {
                (self.engine, self.printed) = session();
            }
            let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
            let end = (at..lines.len()).find(|&at| lines[at] == "```");
            let end = end
                .unwrap_or_else(|| panic!("{}: a block begins in line {at} and never ends", self.document));
            let body = &lines[at..end];
            match kind {
                "rnl" => {
                    let printed = self.block(body, at);
                    out.extend(body.iter().map(|l| l.to_string()));
                    out.push("```".into());
                    at = end + 1;
                    let skipped = lines[at..].iter().take_while(|l| l.is_empty()).count();
                    let follows = lines.get(at + skipped) == Some(&"```text");
                    if follows {
                        at += skipped + 1;
                        at += lines[at..].iter().position(|l| *l == "```").unwrap() + 1;
                    }
                    if !printed.is_empty() {
                        out.extend(["".into(), "```text".into()]);
                        out.extend(printed.lines().map(String::from));
                        out.push("```".into());
                    }
                    continue;
                }
                "console" => out.extend(self.console(body)),
                _ => out.extend(body.iter().map(|l| l.to_string())),
            }
            out.push("```".into());
            at = end + 1;
        }
        out.join("\n") + "\n"
    }

    /// Runs or writes a block of Runnel.
    fn block(&mut self, body: &[&str], line: usize) -> String {
        let text = body.join("\n") + "\n";
        let named =
            body.first().and_then(|l| l.strip_prefix("# ")).map(|l| l.split(": ").next().unwrap_or(l));
        let named = named.filter(|name| is_file(name));
        if let Some(name) = named {
            std::fs::write(self.folder.join(name), text).unwrap();
            return String::new();
        }
        self.ran += 1;
        if let Err(error) = self.engine.eval::<()>(&text) {
            panic!("{}, line {line}:\n{}", self.document, self.engine.report(&error));
        }
        std::mem::take(&mut *self.printed.lock().unwrap())
    }

    /// Runs the commands of a block. Commands of other programs stay as they are.
    fn console(&mut self, body: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        for (at, line) in body.iter().enumerate() {
            let Some(command) = line.strip_prefix("$ runnel") else {
                // The output of other programs' commands is not checked.
                let owner = body[..=at].iter().rfind(|l| l.starts_with("$ "));
                if owner.is_none_or(|l| !l.starts_with("$ runnel")) {
                    out.push(line.to_string());
                }
                continue;
            };
            self.ran += 1;
            out.push(line.to_string());
            let done = Command::new("bash")
                .args(["-c", &format!("\"$RUNNEL\"{command} 2>&1")])
                .env("RUNNEL", env!("CARGO_BIN_EXE_runnel"))
                .env("RUNNEL_BACKEND", "emu")
                .env_remove("CUDA_VISIBLE_DEVICES")
                .env_remove("CUDA_LAUNCH_BLOCKING")
                .env_remove("RUNNEL_ALLOC_CONF")
                .current_dir(&self.folder)
                .output()
                .unwrap();
            out.extend(String::from_utf8(done.stdout).unwrap().trim_end().lines().map(String::from));
        }
        out
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_file(name: &str) -> bool {
    name.ends_with(".rnl") && !name.contains([' ', '/'])
}

fn session() -> (Engine, Arc<Mutex<String>>) {
    let printed = Arc::new(Mutex::new(String::new()));
    let sink = printed.clone();
    let engine = Engine::builder()
        .backend(Backend::Emu)
        .output(move |text| sink.lock().unwrap().push_str(text))
        .build()
        .unwrap();
    (engine, printed)
}
