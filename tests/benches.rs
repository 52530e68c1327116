//! Runs the benchmarks at small sizes on emulated devices, and compares results of whole programs with PyTorch's.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;

use std::path::Path;

/// What a benchmark prints.
fn run(args: &[&str]) -> String {
    let output = command::runnel()
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches"))
        .env("RUNNEL_BACKEND", "emu")
        .env_remove("RUNNEL_ALLOC_CONF")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The rows of a table: names and numbers.
fn rows(text: &str) -> Vec<(String, Vec<f64>)> {
    let row = |line: &str| {
        let mut words = line.split('\t');
        (words.next().unwrap().to_string(), words.map(|word| word.parse().unwrap()).collect())
    };
    text.lines().map(row).collect()
}

/// Tolerance relative to the mean of absolute values.
fn tolerance(program: &str) -> f64 {
    match program {
        // Both draw, but different numbers.
        "W6 monte carlo" => 0.03,
        // They compute in bf16.
        "W1 gpt2" | "W9 decode" | "N9 classify" => 0.01,
        _ => 0.001,
    }
}

#[test]
fn whole_programs_match_pytorch() {
    // peer_torch_programs.py --quick --device cpu --check
    let wanted = rows(include_str!("../benches/programs.tsv"));
    assert!(wanted.len() >= 20);
    for fusion in [&[][..], &["--no-fuse"]] {
        let given = rows(&run(&[fusion, &["programs.rnl", "--quick", "--check"]].concat()));
        let names =
            |rows: &[(String, Vec<f64>)]| rows.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&given), names(&wanted));
        for ((name, given), (_, wanted)) in given.iter().zip(&wanted) {
            let bound = tolerance(name) * wanted[1];
            let near = given.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= bound);
            assert!(near && given.len() == 3, "{name}: {given:?}, not {wanted:?}");
        }
    }
}

#[test]
fn a_row_of_a_whole_program_has_its_times_and_counts() {
    let rows = rows(&run(&["programs.rnl", "--quick", "--only", "C"]));
    assert_eq!(rows.len(), 4);
    for (name, row) in rows {
        let [median, most, first, ..] = row[..] else { panic!("{name}: {row:?}") };
        assert!(0.0 < median && median <= most && first > 0.0 && row.len() == 6, "{name}: {row:?}");
    }
}

#[test]
fn figures_of_training_and_transfers_have_rows() {
    assert!(run(&["train.rnl", "--quick", "--only", "T1"]).starts_with("T1 mlp, steps/s\t"));
    assert!(run(&["comm.rnl", "--quick"]).lines().count() >= 5);
}

#[test]
fn device_memory_is_constant_over_steps_of_training() {
    // The script asserts it, of 10,000 steps by default.
    assert_eq!(run(&["steady.rnl", "--steps", "300", "--slack", "100"]).lines().count(), 10);
}
