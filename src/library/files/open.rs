//! Opening and replacing files: which paths may be opened, and files that appear complete or not at all.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use super::whole::Whole;
use crate::base::{Error, Result, this_is};
use crate::files::error;
use crate::library::io::{allowed, reason};
use crate::vm::{Value, Values, Vm, charge};

/// Bytes read between two checks of the limits; four times as many are written.
const PIECE: u64 = 1 << 20;

/// The reason why a file was not read, without its path.
pub(in crate::library) enum Refusal {
    /// The system's error.
    System(String),
    /// An error of the format: the file has another type.
    Kind(Error),
    /// Unrelated to the file: a limit, an interrupt.
    Ended(Error),
}

impl Refusal {
    /// The error about the file at `path`.
    pub(in crate::library) fn of(self, path: &str) -> Error {
        match self {
            Refusal::System(reason) => crate::vm::error::file(path, &reason),
            Refusal::Kind(error) => named(path, error),
            Refusal::Ended(error) => error,
        }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        Refusal::System(reason(&error))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Ended(error)
    }
}

/// The text of a regular file, or of a link to one.
pub(in crate::library) fn read_text(path: &str) -> Result<String> {
    text(path).map_err(|refusal| refusal.of(path))
}

/// [`read_text`], with the reason of a failure.
pub(in crate::library) fn text(path: &str) -> Result<String, Refusal> {
    String::from_utf8(bytes(path)?).map_err(|_| Refusal::System("it is not UTF-8 text".into()))
}

/// The contents of a regular file. Bytes are charged as they are read: a file may grow, and some system files
/// report no length.
pub(in crate::library) fn bytes(path: &str) -> Result<Vec<u8>, Refusal> {
    let mut file = opened(path, true)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    charge(length)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| error::too_large("a string"))?;
    loop {
        crate::driver::error::stopped()?;
        let more = (&mut file).take(PIECE).read_to_end(&mut bytes)?;
        charge(bytes.len())?;
        if more == 0 {
            return Ok(bytes);
        }
    }
}

/// Opens a regular file for reading.
///
/// The path is checked before opening, because opening a device can have side effects, and again afterwards,
/// because it may have been replaced in between. It does not wait for pipes.
pub(super) fn opened(path: &str, links: bool) -> Result<File, Refusal> {
    check_kind(Path::new(path), links)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = if links { OFlags::NONBLOCK } else { OFlags::NONBLOCK | OFlags::NOFOLLOW };
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(path)?;
    ordinary(file.metadata()?.file_type())?;
    Ok(file)
}

/// Refuses everything except a regular file and, if `links`, a link to one.
pub(super) fn check_kind(at: &Path, links: bool) -> Result<(), Refusal> {
    let kind = at.symlink_metadata()?.file_type();
    match kind.is_symlink() {
        true if !links => Err(Refusal::Kind(error::link())),
        true => ordinary(at.metadata()?.file_type()),
        false => ordinary(kind),
    }
}

fn ordinary(kind: std::fs::FileType) -> Result<(), Refusal> {
    match kind.is_file() {
        true => Ok(()),
        false => Err(Refusal::Kind(error::special(kind_name(kind)))),
    }
}

/// `files.list(path)`
pub(super) fn list(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let path = allowed(vm, &args[0])?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(|e| refused(&path, &e))? {
        vm.charge(1)?;
        let entry = entry.map_err(|e| refused(&path, &e))?;
        let mut name = entry.file_name().to_string_lossy().into_owned();
        charge(name.len() + 128)?;
        // Links are not followed.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            name.push('/');
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(Value::list(names.into_iter().map(Value::str).collect::<Values>()))
}

fn kind_name(kind: std::fs::FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_block_device() || kind.is_char_device() {
            return "a device";
        }
    }
    if kind.is_dir() { "a folder" } else { "something special" }
}

/// Replaces the contents of a file, or writes to a pipe or device.
///
/// # Errors
///
/// E0907, limits and interrupts; then the old contents are unchanged.
pub(crate) fn put(path: &str, bytes: &[u8]) -> Result<()> {
    let mut whole = Whole::begin(Path::new(path)).map_err(|e| refused(path, &e))?;
    for piece in bytes.chunks(4 * PIECE as usize) {
        crate::driver::error::stopped()?;
        whole.file().write_all(piece).map_err(|e| refused(path, &e))?;
    }
    whole.finish().map_err(|e| refused(path, &e))
}

/// The system's error about a path.
pub(super) fn refused(path: &str, e: &std::io::Error) -> Error {
    crate::vm::error::file(path, &reason(e))
}

/// A format error, with the path of the file.
pub(in crate::library) fn named(path: &str, e: Error) -> Error {
    let ours = error::CODES.iter().any(|code| code.id == e.code().id);
    if !ours {
        return e;
    }
    let message = format!("`{path}`: {}", e.message());
    let e = e.with_message(message);
    if e.labels().is_empty() { e.operand(0, this_is(format!("`{path}`"))) } else { e }
}
