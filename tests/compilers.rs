//! The processes in which the command compiles kernels (`driver/cuda/compilers.rs`).

#![cfg(all(feature = "cli", feature = "cuda"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/skipped.rs"]
mod skipped;

use skipped::skip;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

const GOOD: &str = r#"extern "C" __global__ void f(float* x) { x[0] = 1.25f; }"#;

fn request(source: &str) -> Vec<u8> {
    let numbers = [9, 0, source.len() as u32].map(u32::to_le_bytes);
    [numbers.as_flattened(), source.as_bytes()].concat()
}

/// The kind of a reply, and its image or log.
fn reply(output: &mut ChildStdout) -> (u32, Vec<u8>) {
    let mut head = [0; 8];
    output.read_exact(&mut head).unwrap();
    let [kind, length] = [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
    let mut part = vec![0; length as usize];
    output.read_exact(&mut part).unwrap();
    (kind, part)
}

#[test]
fn a_process_compiles_until_its_input_ends() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nvrtc/lib/libnvrtc.so.13");
    if !library.exists() {
        return skip("a_process_compiles_until_its_input_ends", "NVRTC", "there is no NVRTC in target/nvrtc");
    }
    let cache = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runnel"));
        command.arg("--compile-kernels").arg(&library).env("RUNNEL_CACHE", cache.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut first = start();
    let mut second = start();
    let ask = |child: &mut std::process::Child, source: &str| {
        child.stdin.as_mut().unwrap().write_all(&request(source)).unwrap();
        reply(child.stdout.as_mut().unwrap())
    };
    let (kind, image) = ask(&mut first, GOOD);
    assert_eq!(kind, 0);
    assert!(image.starts_with(b"\x7fELF"));
    let (kind, log) = ask(&mut first, "no kernel");
    assert_eq!(kind, 2);
    assert!(String::from_utf8_lossy(&log).contains("error"), "{log:?}");
    // The disk cache is shared.
    assert_eq!(ask(&mut second, GOOD), (1, image.clone()));
    assert_eq!(ask(&mut first, GOOD), (1, image));
    // A process that is asked and whose asker ends stores what it has compiled.
    let other = GOOD.replace("1.25", "2.5");
    second.stdin.take().unwrap().write_all(&request(&other)).unwrap();
    drop(second.stdout.take());
    assert!(second.wait().unwrap().success());
    assert_eq!(ask(&mut first, &other).0, 1);
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}
