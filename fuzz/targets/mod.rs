//! What the fuzz targets do with bytes. Ordinary tests replay the files of `fuzz/seeds` through the same
//! functions (`tests/fuzzed.rs`): each function panics where a promise is broken.

mod embed;
mod files;

use runnel::engine::Builder;
use runnel::{Backend, Engine};
use std::time::Duration;

/// What is done with bytes.
pub type Target = fn(&[u8]);

/// The targets: the name of a folder of seeds, and what is done with each file there.
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
];

/// What a target of this name does.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no target is called {name}")).1
}

/// Any bytes: the parser neither panics nor overruns its stack, every error has a place, and what the
/// formatter lays out is the same program, which it leaves alone the second time.
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

/// Any script, with all limits on: it ends in a value or a coded error, and the session is sound.
fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut engine = limited(200_000, Duration::from_secs(2));
    let _ = engine.eval::<()>(text);
    is_sound(&mut engine);
}

/// Any lines of an interactive session: colours, completion and hints at every letter neither panic nor
/// disturb the session that the lines run in.
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
    settings().fuel(fuel).time(time).build().expect("emulated devices")
}

/// Two small emulated devices, and nothing of the machine around.
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

/// Names and memory are the script's: what is asked uses neither.
fn is_sound(engine: &mut Engine) {
    assert_eq!(engine.eval::<i64>("1 + 1").expect("a sound session"), 2);
}
