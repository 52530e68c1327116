//! `docs/reliability.md` names tests that exist.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use std::path::{Path, PathBuf};

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => find(&path, files),
            false => files.push(path),
        }
    }
}

/// The files of a name, whatever their ending.
fn named<'a>(files: &'a [PathBuf], name: &'a str) -> impl Iterator<Item = &'a PathBuf> {
    files.iter().filter(move |file| file.file_stem().is_some_and(|stem| stem == name))
}

#[test]
fn every_test_of_the_page_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ["src", "tests", "interleave/tests"].iter().for_each(|folder| find(&root.join(folder), &mut files));
    let page = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    let mut checked = 0;
    for line in page.lines().filter(|line| line.starts_with('|')) {
        for word in line.split('`').skip(1).step_by(2) {
            let exists = match word.split_once("::") {
                Some((file, test)) if !word.contains(' ') => {
                    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
                    named(&files, file).any(|path| text(path).contains(&format!("fn {test}(")))
                }
                None if word.ends_with(".rnl") => {
                    named(&files, word.trim_end_matches(".rnl")).next().is_some()
                }
                None if word.contains('/') => root.join(word).exists(),
                _ => continue,
            };
            assert!(exists, "`{word}` does not exist: {line}");
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn every_fuzz_target_has_its_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    for entry in std::fs::read_dir(root.join("fuzz/seeds")).unwrap() {
        let target = entry.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("\n| `{target}`")), "{target} has no run on the page");
    }
}
