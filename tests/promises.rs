//! The tests that `docs/reliability.md` and `docs/differences.md` name exist.

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

/// The files with a name, with any extension.
fn named<'a>(files: &'a [PathBuf], name: &'a str) -> impl Iterator<Item = &'a PathBuf> {
    files.iter().filter(move |file| file.file_stem().is_some_and(|stem| stem == name))
}

/// Checks a page, and counts the tests that it names; each row of a table of `differences.md` names one.
fn tests_of(page: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ["src", "tests", "interleave/tests"].iter().for_each(|folder| find(&root.join(folder), &mut files));
    let text = std::fs::read_to_string(root.join(page)).unwrap();
    let mut checked = 0;
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let before = checked;
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
        let is_entry =
            page.ends_with("differences.md") && !line.contains("---") && !line.contains("| test |");
        assert!(!is_entry || checked > before, "no test: {line}");
    }
    checked
}

#[test]
fn every_test_of_the_pages_exists() {
    let checked = ["docs/reliability.md", "docs/differences.md"].map(tests_of);
    assert!(checked[0] > 60 && checked[1] > 15, "{checked:?}");
}

#[test]
fn every_difference_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(root.join("tests/lang/differences.rnl")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/differences.md")).unwrap();
    let (shown, run) = script.split_once("\nlet all = [").unwrap();
    let names = shown.lines().filter_map(|line| line.strip_prefix("fn ")?.strip_suffix("() {"));
    for name in names {
        assert!(run.contains(&format!(" {name},")), "{name} is not run");
        assert!(page.contains(&format!("`differences::{name}`")), "{name} is not on the page");
    }
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
