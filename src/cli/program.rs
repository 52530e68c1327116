//! Reads programs from a file or standard input.

use super::error;
use crate::base::Result;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;

/// A program's text, and its name in reports.
pub struct Program {
    /// The path as given, or `<stdin>`.
    pub name: String,
    /// The source text.
    pub text: String,
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// E0952 and E0953 if it cannot be read, E0113 if it is not UTF-8.
pub fn read(path: &OsStr) -> Result<Program> {
    if path == "-" {
        return stdin();
    }
    let path = Path::new(path);
    let bytes = std::fs::read(path).map_err(|reason| match reason.kind() {
        std::io::ErrorKind::NotFound => error::no_file(path),
        std::io::ErrorKind::IsADirectory => error::directory(path),
        _ if path.is_dir() => error::directory(path),
        _ => error::unreadable(path, &reason),
    })?;
    let name = path.to_string_lossy().into_owned();
    Ok(Program { text: crate::syntax::decode(&bytes).map_err(|e| in_file(e, &name))?.to_string(), name })
}

/// Reads the file in the first argument; the others are its arguments.
///
/// # Errors
/// Those of [`read`].
pub fn with_arguments(given: Vec<OsString>) -> Result<(Program, Vec<String>)> {
    let mut given = given.into_iter();
    let program = read(&given.next().unwrap_or_default())?;
    Ok((program, texts(given)))
}

/// Converts arguments for scripts.
pub fn texts(given: impl IntoIterator<Item = OsString>) -> Vec<String> {
    given.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// Reads standard input to its end.
///
/// # Errors
/// Those of [`read`].
pub fn stdin() -> Result<Program> {
    let (mut bytes, name) = (Vec::new(), "<stdin>".to_string());
    std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|reason| error::unreadable(Path::new(&name), &reason))?;
    Ok(Program { text: crate::syntax::decode(&bytes).map_err(|e| in_file(e, &name))?.to_string(), name })
}

/// Bytes that are not text have no source line to show, so the message names the file.
fn in_file(error: crate::base::Error, name: &str) -> crate::base::Error {
    let named = crate::base::Error::new(error.code(), format!("`{name}`: {}", error.message()));
    match error.help_text() {
        Some(help) => named.help(help),
        None => named,
    }
}
