//! The checker against every script of the repository: scripts that run have nothing to report.

use runnel::base::SourceMap;
use std::path::{Path, PathBuf};

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            scripts(&path, found);
        } else if path.extension().is_some_and(|e| e == "rnl") {
            found.push(path);
        }
    }
}

#[test]
fn scripts_that_run_pass_the_check() {
    let mut found = Vec::new();
    scripts(Path::new(env!("CARGO_MANIFEST_DIR")), &mut found);
    assert!(!found.is_empty());
    let mut wrong = Vec::new();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        // Scripts that say where they fail are wrong on purpose.
        if text.contains("# error: ") {
            continue;
        }
        let mut sources = SourceMap::default();
        for error in runnel::engine::diagnose(&mut sources, &path.display().to_string(), &text).errors {
            wrong.push(format!("{}: {error:?}", sources.place(error.span())));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
