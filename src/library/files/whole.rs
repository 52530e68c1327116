//! Files that are replaced whole.
//!
//! New content is written aside, and takes the place of the old by a rename: whatever fails, and whenever the process
//! ends, there is the old content or the new. Aside is a file without a name, where the system has such files, so nothing
//! is left when the process ends early. Links are followed; the permissions and the owner stay.
//!
//! A few files cannot be replaced by a rename: they have several names, belong to somebody else, are mounted by
//! themselves, or lie in a folder that the process may not write. They are written in place, after the new content is
//! complete and room for it is reserved. What is no ordinary file (a device, a pipe) is written directly.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::path::{Path, PathBuf};

/// A file that is being replaced. Nothing has changed until [`Whole::finish`].
pub(crate) struct Whole {
    place: PathBuf,
    way: Way,
}

enum Way {
    /// No ordinary file, or a new one behind a link.
    Direct(File),
    /// By a rename. The file that is there now, and may be written in place if the rename is refused.
    Rename { aside: Aside, old: Option<File> },
    /// In place.
    Copy { aside: File, old: File },
}

/// The new content.
enum Aside {
    /// A file without a name.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// A file beside the old one, where there are no others.
    Named(tempfile::NamedTempFile),
}

impl Aside {
    fn file(&mut self) -> &mut File {
        match self {
            #[cfg(target_os = "linux")]
            Aside::Unnamed(file) => file,
            Aside::Named(file) => file.as_file_mut(),
        }
    }
}

/// Opens what is at a path for writing in place, or makes a file there. A pipe that nobody reads is not waited for.
pub(crate) fn open_in_place(path: &Path, append: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    not_waiting(options.create(true).write(true).append(append).truncate(!append)).open(path)
}

fn not_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    options
}

/// Replaces a file by these bytes.
///
/// # Errors
/// What the system says; then the file is as it was.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut whole = Whole::begin(path)?;
    whole.file().write_all(bytes)?;
    whole.finish()
}

impl Whole {
    /// Begins to replace what is at a path; there may be nothing.
    ///
    /// # Errors
    /// What the system says: the folder is missing, or the file may not be written.
    pub(crate) fn begin(path: &Path) -> Result<Whole> {
        let mut place = path.to_path_buf();
        if place.symlink_metadata().is_ok_and(|there| there.file_type().is_symlink()) {
            place = match place.canonicalize() {
                Ok(place) => place,
                // Behind the link is nothing that could be lost.
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let way = Way::Direct(open_in_place(path, false)?);
                    return Ok(Whole { place, way });
                }
                Err(e) => return Err(e),
            };
        }
        let old = match not_waiting(OpenOptions::new().write(true)).open(&place) {
            Ok(old) if old.metadata()?.is_file() => Some(old),
            Ok(special) => return Ok(Whole { place, way: Way::Direct(special) }),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let way = way(folder(&place), old)?;
        Ok(Whole { place, way })
    }

    /// Where the new content goes.
    pub(crate) fn file(&mut self) -> &mut File {
        match &mut self.way {
            Way::Direct(file) | Way::Copy { aside: file, .. } => file,
            Way::Rename { aside, .. } => aside.file(),
        }
    }

    /// Puts the new content in its place.
    ///
    /// # Errors
    /// What the system says. Only where a file is written in place, and its new content fails to be copied although there
    /// is room, is the old content lost.
    pub(crate) fn finish(self) -> Result<()> {
        match self.way {
            Way::Direct(_) => Ok(()),
            Way::Copy { mut aside, old } => copy(&mut aside, old),
            Way::Rename { aside: Aside::Named(file), old } => match (file.persist(&self.place), old) {
                (Ok(_), _) => Ok(()),
                (Err(mut failed), Some(old)) if is_refused(&failed.error) => {
                    copy(failed.file.as_file_mut(), old)
                }
                (Err(failed), _) => Err(failed.error),
            },
            #[cfg(target_os = "linux")]
            Way::Rename { aside: Aside::Unnamed(mut file), old } => {
                match (link(&file, &self.place, &old), old) {
                    (Err(e), Some(old)) if is_refused(&e) => copy(&mut file, old),
                    (result, _) => result,
                }
            }
        }
    }
}

fn folder(place: &Path) -> &Path {
    match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// How a file in a folder is replaced.
fn way(folder: &Path, old: Option<File>) -> Result<Way> {
    let Some(old) = old else { return Ok(Way::Rename { aside: aside(folder)?, old: None }) };
    match aside(folder) {
        Ok(mut aside) => match has_one_name(&old)? && keep_rights(&old, aside.file()) {
            true => Ok(Way::Rename { aside, old: Some(old) }),
            false => Ok(Way::Copy { aside: aside.into_file()?, old }),
        },
        Err(e) if is_refused(&e) => Ok(Way::Copy { aside: tempfile::tempfile()?, old }),
        Err(e) => Err(e),
    }
}

impl Aside {
    /// The file alone, without a name.
    fn into_file(self) -> Result<File> {
        match self {
            #[cfg(target_os = "linux")]
            Aside::Unnamed(file) => Ok(file),
            Aside::Named(file) => Ok(file.into_file()),
        }
    }
}

/// Whether a folder or a place in it may not be changed although the file may be written.
fn is_refused(error: &Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices)
}

/// A new file of a folder.
fn aside(folder: &Path) -> Result<Aside> {
    #[cfg(target_os = "linux")]
    if let Some(file) = unnamed(folder)? {
        return Ok(Aside::Unnamed(file));
    }
    builder().tempfile_in(folder).map(Aside::Named)
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".runnel-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// A file without a name; `None` where there are none.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Result<Option<File>> {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    // It gets its name through this folder.
    if !Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        // Systems without them take it for an attempt to write the folder itself.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Gives a file without a name this one, in the place of the old file that has it.
#[cfg(target_os = "linux")]
fn link(file: &File, place: &Path, old: &Option<File>) -> Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |name: &Path| linkat(CWD, &source, CWD, name, AtFlags::SYMLINK_FOLLOW).map_err(Error::from);
    if old.is_none() {
        match link(place) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            result => return result,
        }
    }
    loop {
        let name = folder(place).join(format!(".runnel-{:016x}.part", random()));
        match super::swap::link_and_rename(source.as_bytes(), &name, place) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            result => return result,
        }
    }
}

/// A number that no other process has just now.
#[cfg(target_os = "linux")]
fn random() -> u64 {
    use std::hash::BuildHasher;
    // Keys are drawn from the system for the process, and differ for each use.
    std::hash::RandomState::new().hash_one(std::process::id())
}

/// Whether a rename in the place of a file leaves no other name of it behind.
fn has_one_name(old: &File) -> Result<bool> {
    #[cfg(unix)]
    return Ok(std::os::unix::fs::MetadataExt::nlink(&old.metadata()?) <= 1);
    #[cfg(not(unix))]
    Ok(old.metadata().is_ok())
}

/// Gives a new file the owner and the permissions of the old one; false where it cannot have them.
fn keep_rights(old: &File, new: &File) -> bool {
    let (Ok(was), Ok(is)) = (old.metadata(), new.metadata()) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if (was.uid(), was.gid()) != (is.uid(), is.gid())
            && std::os::unix::fs::fchown(new, Some(was.uid()), Some(was.gid())).is_err()
        {
            return false;
        }
    }
    #[cfg(target_os = "linux")]
    if has_access_list(old) {
        return false;
    }
    was.permissions() == is.permissions() || new.set_permissions(was.permissions()).is_ok()
}

/// Whether more than the permissions says who may use a file.
#[cfg(target_os = "linux")]
fn has_access_list(file: &File) -> bool {
    let mut names = vec![0u8; 4096];
    match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(length) => names[..length].split(|&byte| byte == 0).any(|name| name == b"system.posix_acl_access"),
        Err(_) => false,
    }
}

/// Writes the new content over the old, once there is room for it.
fn copy(new: &mut File, mut old: File) -> Result<()> {
    let length = new.stream_position().and_then(|_| Ok(new.metadata()?.len()))?;
    #[cfg(target_os = "linux")]
    if length > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        match fallocate(&old, FallocateFlags::KEEP_SIZE, 0, length) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(e) => return Err(e.into()),
        }
    }
    new.rewind()?;
    old.rewind()?;
    let mut piece = vec![0; 1 << 16];
    loop {
        match new.read(&mut piece)? {
            0 => break,
            count => old.write_all(&piece[..count])?,
        }
    }
    old.set_len(length)
}
