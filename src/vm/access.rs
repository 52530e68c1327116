//! Access of scripts to files.

use std::path::{Component, Path, PathBuf};

use super::{Vm, error};
use crate::base::Result;

/// The files that a script may read, write, import and query.
///
/// Example: with `Folders(["/data"])`, `load("/data/../etc/passwd")` is refused, and so is
/// `load("/data/link")` if the link leads out of `/data`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    /// Every file the process may use.
    #[default]
    All,
    /// The contents of these folders, after `..` and links are resolved.
    Folders(Vec<PathBuf>),
    /// Nothing.
    None,
}

impl From<bool> for FileAccess {
    /// All files, or none.
    fn from(allowed: bool) -> FileAccess {
        if allowed { FileAccess::All } else { FileAccess::None }
    }
}

impl FileAccess {
    /// Returns the path to use for `path`, if it is allowed. Within folders the result is free of links and
    /// `..`, so the file that is opened is the file that was checked.
    ///
    /// # Errors
    ///
    /// E0908 when the path is not allowed, E0907 when it cannot be resolved.
    pub fn resolve(&self, path: &str) -> Result<String> {
        let folders = match self {
            FileAccess::All => return Ok(path.to_string()),
            FileAccess::None => return Err(error::file_forbidden(path, "file access is switched off")),
            FileAccess::Folders(folders) => folders,
        };
        let outside = || error::file_forbidden(path, "it is outside the folders that scripts may use");
        let full = real_path(Path::new(path)).ok_or_else(outside)?;
        let within =
            folders.iter().filter_map(|folder| folder.canonicalize().ok()).any(|f| full.starts_with(f));
        match (within, full.into_os_string().into_string()) {
            (true, Ok(full)) => Ok(full),
            _ => Err(outside()),
        }
    }
}

impl Vm {
    /// Makes a new, empty folder that is removed with the session: in the first folder that scripts may use,
    /// or in the system's temporary folder.
    ///
    /// # Errors
    ///
    /// E0908 when scripts may use no files, E0907 when the folder cannot be made.
    pub fn temp_folder(&mut self) -> Result<String> {
        let parent = match &self.limits.files {
            FileAccess::All => std::env::temp_dir(),
            FileAccess::Folders(folders) if !folders.is_empty() => folders[0].clone(),
            _ => return Err(error::file_forbidden("a new folder", "file access is switched off")),
        };
        let shown = parent.to_string_lossy().into_owned();
        let made = tempfile::Builder::new().prefix("runnel-").tempdir_in(&parent);
        let folder = made.map_err(|e| error::file(&shown, &e.to_string()))?;
        let path = folder.path().to_str().map(str::to_string);
        self.folders.push(folder);
        path.ok_or_else(|| error::file(&shown, "its name is not UTF-8 text"))
    }
}

/// The path without links and `..`. Its last part may be missing, but then it is a plain name.
fn real_path(path: &Path) -> Option<PathBuf> {
    if let Ok(full) = path.canonicalize() {
        return Some(full);
    }
    let Component::Normal(name) = path.components().next_back()? else { return None };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.canonicalize().ok()?,
        _ => Path::new(".").canonicalize().ok()?,
    };
    let full = folder.join(name);
    // Creating the file would follow a dangling link.
    full.symlink_metadata().is_err().then_some(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_hold_against_dots_and_links() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let access = FileAccess::Folders(vec![inside.path().to_path_buf()]);
        let text = |path: PathBuf| path.to_str().unwrap().to_string();
        std::fs::write(inside.path().join("a"), "").unwrap();
        std::fs::write(outside.path().join("b"), "").unwrap();
        assert!(access.resolve(&text(inside.path().join("a"))).is_ok());
        assert!(access.resolve(&text(inside.path().join("new"))).is_ok());
        assert!(access.resolve(&text(inside.path().join("no-folder/new"))).is_err());
        let around = inside.path().join("..").join(outside.path().file_name().unwrap()).join("b");
        assert!(access.resolve(&text(around)).is_err());
        assert!(access.resolve(&text(inside.path().join(".."))).is_err());
        for (name, target) in [("link", outside.path().join("b")), ("nowhere", outside.path().join("c"))] {
            std::os::unix::fs::symlink(target, inside.path().join(name)).unwrap();
            assert_eq!(access.resolve(&text(inside.path().join(name))).unwrap_err().code().id, "E0908");
        }
        assert_eq!(FileAccess::None.resolve("a").unwrap_err().code().id, "E0908");
        assert_eq!(FileAccess::All.resolve("../a").unwrap(), "../a");
    }
}
