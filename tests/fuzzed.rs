//! Replays the fuzzing seeds and past findings (`fuzz/seeds`) through the fuzzed code.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "../fuzz/targets/mod.rs"]
mod targets;

use draw::Draw;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[test]
fn every_seed_and_every_finding_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut replayed = 0;
    for (name, play) in targets::TARGETS {
        let entries =
            std::fs::read_dir(root.join(name)).unwrap_or_else(|e| panic!("no seeds for {name}: {e}"));
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            play(&std::fs::read(path).unwrap());
            replayed += 1;
        }
    }
    assert!(replayed >= 2 * targets::TARGETS.len(), "{replayed} files");
}

/// Sequences of calls of the embedding API that are drawn, in which the newest calls are frequent. `RUNNEL_FUZZ_CALLS=1000`
/// draws as many, `RUNNEL_FUZZ_SEED` chooses others, `RUNNEL_FUZZ_INPUT="1, 2, 3"` plays one.
#[test]
fn drawn_sequences_of_calls_pass() {
    let play = targets::target("embed");
    if let Ok(input) = std::env::var("RUNNEL_FUZZ_INPUT") {
        let input: Vec<u8> = input.split(", ").map(|byte| byte.parse().unwrap()).collect();
        return play(&input);
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let mut draw = Draw(number("RUNNEL_FUZZ_SEED").unwrap_or(5));
    for _ in 0..number("RUNNEL_FUZZ_CALLS").unwrap_or(60) {
        let mut input = vec![draw.bits() as u8, draw.bits() as u8];
        for _ in 0..2 + draw.below(10) {
            let kind = if draw.once_in(2) { 248 + draw.below(8) } else { draw.below(256) };
            input.extend([draw.below(2) as u8, kind as u8]);
            input.extend((0..draw.below(8)).map(|_| draw.bits() as u8));
        }
        let outcome = std::panic::catch_unwind(|| play(&input));
        assert!(outcome.is_ok(), "calls {input:?}");
    }
}

/// Every public function of the embedding API is called by a fuzz target.
#[test]
fn the_sequences_of_calls_have_the_whole_interface() {
    // Start and end compilations in the background for the whole process; nothing is compiled on emulated devices.
    const WITHOUT: &[&str] = &["prepare_exit", "compile_in_processes"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = |folder: &str| -> Vec<(PathBuf, String)> {
        let paths = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let sources = paths.filter(|path| path.extension().is_some_and(|e| e == "rs"));
        sources.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
    };
    let targets: String = texts("fuzz/targets").into_iter().map(|(_, text)| text).collect();
    let mut missing = Vec::new();
    let mut known = 0;
    for (path, text) in texts("src/engine") {
        let name = path.file_name().unwrap().to_str().unwrap();
        if ["tests.rs", "command.rs"].contains(&name) {
            continue;
        }
        for line in text.lines().map(str::trim_start) {
            let rest = line.strip_prefix("pub fn ").or_else(|| line.strip_prefix("pub unsafe fn "));
            let Some(function) = rest.and_then(|rest| rest.split(['(', '<']).next()) else { continue };
            known += 1;
            let is_called = ["(", "::<"].iter().any(|end| {
                let call = format!("{function}{end}");
                targets.match_indices(&call).any(|(at, _)| {
                    let before = &targets[..at];
                    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with("fn ")
                })
            });
            if !is_called && !WITHOUT.contains(&function) {
                missing.push(format!("{name}: {function}"));
            }
        }
    }
    assert!(known > 80, "{known} functions are known");
    assert!(missing.is_empty(), "no fuzz target calls:\n{}", missing.join("\n"));
}

/// An input with a few mutations: flipped bits, other bytes, extreme numbers, parts removed, repeated or taken from another.
fn changed(draw: &mut Draw, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + draw.below(4) {
        let at = draw.below(bytes.len() + 1);
        let to = bytes.len().min(at + 1 + draw.below(16));
        match draw.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << draw.below(8),
            1 if at < bytes.len() => bytes[at] = draw.bits() as u8,
            2 => bytes.insert(at, draw.bits() as u8),
            3 => drop(bytes.drain(at..to)),
            4 => {
                let part = bytes[at..to].to_vec();
                bytes.splice(at..at, part);
            }
            5 => bytes.truncate(at),
            6 => {
                let number =
                    draw.of(&[0, 1, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 32, i64::MAX as u64, u64::MAX]);
                let width = 1 << draw.below(4);
                let part = number.to_le_bytes()[..width].to_vec();
                let part = if draw.once_in(2) { part.into_iter().rev().collect() } else { part };
                let end = bytes.len().min(at + width);
                bytes.splice(at..end, part);
            }
            _ if !other.is_empty() => {
                let from = draw.below(other.len());
                let part = other[from..other.len().min(from + 1 + draw.below(64))].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {}
        }
    }
    bytes
}

/// Runs mutated seeds without a fuzzer. `RUNNEL_FUZZ_SECONDS=600` gives each target as many seconds, `RUNNEL_FUZZ_TARGET`
/// names one target, `RUNNEL_FUZZ_SEED` chooses other changes. An input that breaks a promise is left in the folder of
/// temporary files.
#[test]
fn changed_seeds_pass() {
    let set = |name: &str| std::env::var(name).ok();
    let number = |name: &str| set(name).and_then(|text| text.parse::<u64>().ok());
    let (seconds, only) = (number("RUNNEL_FUZZ_SECONDS"), set("RUNNEL_FUZZ_TARGET"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, play) in targets::TARGETS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(root.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        let mut draw = Draw(number("RUNNEL_FUZZ_SEED").unwrap_or(11));
        let (start, mut runs) = (Instant::now(), 0_u64);
        let few = if name.starts_with("file_") { 500 } else { 20 };
        while seconds.map_or(runs < few, |seconds| start.elapsed() < Duration::from_secs(seconds)) {
            let (one, other) = (draw.below(seeds.len()), draw.below(seeds.len()));
            let input = changed(&mut draw, &seeds[one], &seeds[other]);
            let kept = std::env::temp_dir().join(format!("runnel_fuzz_{name}_{}", std::process::id()));
            let outcome = std::panic::catch_unwind(|| play(&input));
            if outcome.is_err() {
                std::fs::write(&kept, &input).unwrap();
                panic!("{name}: the input is in {}", kept.display());
            }
            runs += 1;
        }
        println!("{name}: {runs} inputs");
    }
}

#[test]
fn every_target_has_a_fuzzer() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    for (name, _) in targets::TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        targets::target(name);
    }
}
