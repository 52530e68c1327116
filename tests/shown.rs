//! Runs every script of `examples/` on emulated devices: twice, and once with fusion off. The output must
//! have the same bytes each time, and must equal `examples/NAME.out`. `RUNNEL_UPDATE=1` rewrites those files.
//! The embedding examples also run.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;
#[path = "common/skipped.rs"]
mod skipped;

use skipped::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

fn examples(ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == ending)).collect();
    files.sort();
    files
}

fn output(mut command: Command) -> String {
    for name in ["CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "RUNNEL_BACKEND", "RUNNEL_ALLOC_CONF"] {
        command.env_remove(name);
    }
    let done = command.output().expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}

fn script(path: &Path, options: &[&str]) -> String {
    let mut command = command::runnel();
    command.args(["--backend", "emu", "--devices", "4"]).args(options).arg(path);
    output(command)
}

/// Examples that train. Steps amplify how products are rounded, which depends on the processor.
const TRAINED: &[&str] =
    &["22_train_digits", "23_physics_fit", "24_diffusion", "25_policy_gradient", "26_train_distributed"];

#[test]
fn examples_print_the_same_bytes_every_time_fused_or_not() {
    let examples = examples("rnl");
    assert!(examples.len() >= 9, "{} examples", examples.len());
    for path in examples {
        let first = script(&path, &[]);
        assert_eq!(first, script(&path, &[]), "{} differs between two runs", path.display());
        assert_eq!(first, script(&path, &["--no-fuse"]), "{} differs without fusion", path.display());
        if TRAINED.iter().any(|name| path.file_stem().is_some_and(|stem| stem == *name)) {
            assert!(!first.is_empty(), "{} prints nothing", path.display());
            continue;
        }
        let kept = path.with_extension("out");
        if std::env::var_os("RUNNEL_UPDATE").is_some() {
            std::fs::write(&kept, &first).unwrap();
        }
        let expected = std::fs::read_to_string(&kept).unwrap_or_default();
        assert_eq!(first, expected, "{}: RUNNEL_UPDATE=1 cargo test --test shown", path.display());
    }
}

#[test]
fn device_agnostic_code_obeys_its_flag() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/04_device_agnostic.rnl");
    let mut command = command::runnel();
    command.args(["--backend", "emu"]).arg(&path).args(["--disable-cuda", "--rows", "3"]);
    assert_eq!(output(command), "(3, 10) on cpu\n");
}

/// `cargo test` builds the examples before it runs the tests; `cargo test --test shown` does not. Missing examples are
/// then reported, and counted like tests that need a GPU.
#[test]
fn embedding_examples_run() {
    let folder = Path::new(env!("CARGO_BIN_EXE_runnel")).parent().unwrap().join("examples");
    let built = |source: &PathBuf| folder.join(source.file_stem().unwrap());
    let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) =
        examples("rs").into_iter().partition(|source| built(source).exists());
    for source in there {
        let mut command = Command::new(built(&source));
        command.env("RUNNEL_BACKEND", "emu");
        let done = command.output().unwrap_or_else(|e| panic!("{}: {e}", source.display()));
        assert!(done.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&done.stderr));
    }
    if !missing.is_empty() {
        skip(
            "embedding_examples_run",
            "built examples",
            &format!("{} examples are not built: cargo build --examples", missing.len()),
        );
    }
}
