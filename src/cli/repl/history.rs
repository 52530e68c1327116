//! The location of the input history.

use std::path::PathBuf;

/// The history file, in a folder that is created if necessary: `RUNNEL_HISTORY`, else `runnel/history` in the
/// user's data folder. `None` if `RUNNEL_HISTORY` is empty, or there is no such folder.
pub fn path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("RUNNEL_HISTORY") {
        return (!path.is_empty()).then(|| path.into());
    }
    let from_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").filter(|p| !p.is_empty()).map(PathBuf::from);
    let folder = data.or_else(from_home)?.join("runnel");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}
