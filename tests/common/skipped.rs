//! Tests that need what the machine lacks.

use std::io::Write;

/// Reports what is missing, even if the output of tests is captured, and adds a line to the file named by
/// `RUNNEL_SKIPPED`.
pub fn skip(test: &str, need: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    let file = std::env::var_os("RUNNEL_SKIPPED")
        .and_then(|path| std::fs::OpenOptions::new().create(true).append(true).open(path).ok());
    if let Some(mut file) = file {
        let _ = writeln!(file, "{need}\t{test}");
    }
}
