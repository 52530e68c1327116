//! Replays the fuzzing seeds and past findings (`fuzz/seeds`) through the fuzzed code.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::path::Path;

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

#[test]
fn every_target_has_a_fuzzer() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    for (name, _) in targets::TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        targets::target(name);
    }
}
