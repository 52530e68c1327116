//! The fuzz targets. Ordinary tests replay the files of `fuzz/seeds` through the same functions
//! (`tests/fuzzed.rs`). Each function panics when a promise is broken.

mod embed;
mod embed_more;
mod files;

use runnel::engine::Builder;
use runnel::{Backend, Engine};
use std::time::Duration;

/// Processes one input.
pub type Target = fn(&[u8]);

/// The targets: the name of a folder of seeds, and the function for its files.
pub const TARGETS: &[(&str, Target)] = &[
    ("parse", parse),
    ("run", run),
    ("repl", repl),
    ("embed", embed::play),
    ("file_npy", |data| files::read("npy", data)),
    ("file_npz", |data| files::read("npz", data)),
    ("file_safetensors", |data| files::read("safetensors", data)),
    ("file_csv", |data| files::read("csv", data)),
    ("file_png", |data| files::read("png", data)),
    ("file_ppm", |data| files::read("ppm", data)),
    ("file_idx", |data| files::read("idx", data)),
];

/// The function of the target with this name.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no target is called {name}")).1
}

/// Any bytes: the parser neither panics nor overflows its stack, and every error has a position. Formatted
/// code is the same program, and formatting it again changes nothing.
fn parse(data: &[u8]) {
    let Ok(text) = runnel::syntax::decode(data) else { return };
    let parsed = runnel::syntax::parse(1, text);
    for error in &parsed.errors {
        let span = error.span();
        assert!(span.lo >= 1 && span.hi as usize <= text.len() + 1, "{error:?}");
    }
    runnel::syntax::classify(text);
    if let Ok(formatted) = runnel::syntax::format(1, text) {
        assert_eq!(runnel::syntax::format(1, &formatted).expect("still a program"), formatted);
    }
}

/// Any script with all limits on: it ends with a value or an error with a code, and the session stays intact.
fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut engine = limited(200_000, Duration::from_secs(2));
    let _ = engine.eval::<()>(text);
    is_sound(&mut engine);
}

/// Any lines of an interactive session: colours, completion and hints at every character neither panic nor
/// disturb the session.
fn repl(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut engine = limited(50_000, Duration::from_secs(1));
    for line in text.lines().take(16) {
        let short = line.char_indices().nth(80).map_or(line, |(at, _)| &line[..at]);
        runnel::cli::typed(&mut engine, short);
        let _ = engine.eval::<()>(line);
    }
    is_sound(&mut engine);
}

/// A session with all limits on.
fn limited(fuel: u64, time: Duration) -> Engine {
    // Small values wait for their readers as well.
    settings().fuel(fuel).time(time).kept_from(0).mapped_from(1).build().expect("emulated devices")
}

/// Two small emulated devices, isolated from the machine.
fn settings() -> Builder {
    Engine::builder()
        .backend(Backend::Emu)
        .devices(2)
        .device_memory(64 << 20)
        .output(|_| {})
        .call_depth(200)
        .host_memory(64 << 20)
        .files(false)
        .environment(false)
}

/// Scripts may use up names and memory; the checks need neither.
fn is_sound(engine: &mut Engine) {
    assert_eq!(engine.eval::<i64>("1 + 1").expect("a sound session"), 2);
}
