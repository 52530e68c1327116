//! Atomic replacement of files.
//!
//! New content is written to a temporary file, which then replaces the old one by a rename. After a failure
//! or an early end of the process the file has either the old content or the new. The temporary file has no
//! name if the system supports that, so nothing is left when the process ends early. Links are followed;
//! permissions and owner are kept.
//!
//! A few files cannot be replaced by a rename: they have several names, belong to another user, are mount
//! points, or are in a folder that the process may not write. They are overwritten in place, after the new
//! content is complete and space for it is reserved. Files that are not regular (devices, pipes) are written
//! directly.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::path::{Path, PathBuf};

/// A file being replaced. Nothing changes until [`Whole::finish`].
pub(crate) struct Whole {
    place: PathBuf,
    way: Way,
}

enum Way {
    /// Not a regular file, or a new one behind a link.
    Direct(File),
    /// By a rename, with the existing file, which may be written in place if the rename is refused.
    Rename { aside: Aside, old: Option<File> },
    /// In place.
    Copy { aside: File, old: File },
}

/// The new content.
enum Aside {
    /// An unnamed file.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// A file next to the old one, if unnamed files are not supported.
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

/// Opens a path for writing in place, or creates a file there. Does not wait for a pipe without a reader.
pub(crate) fn open_in_place(path: &Path, append: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    not_waiting(options.create(true).write(true).append(append).truncate(!append)).open(path)
}

fn not_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    options
}

/// Replaces the contents of a file.
///
/// # Errors
///
/// The system's; then the file is unchanged.
#[cfg(any(test, feature = "cli"))]
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut whole = Whole::begin(path)?;
    whole.file().write_all(bytes)?;
    whole.finish()
}

impl Whole {
    /// Begins to replace the file at a path, which need not exist.
    ///
    /// # Errors
    ///
    /// The system's: the folder is missing, or the file may not be written.
    pub(crate) fn begin(path: &Path) -> Result<Whole> {
        let mut place = path.to_path_buf();
        if place.symlink_metadata().is_ok_and(|there| there.file_type().is_symlink()) {
            place = match place.canonicalize() {
                Ok(place) => place,
                // The link has no target, so nothing can be lost.
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

    /// The file for the new content.
    pub(crate) fn file(&mut self) -> &mut File {
        match &mut self.way {
            Way::Direct(file) | Way::Copy { aside: file, .. } => file,
            Way::Rename { aside, .. } => aside.file(),
        }
    }

    /// Replaces the old content by the new.
    ///
    /// # Errors
    ///
    /// The system's. The old content is lost only if a file is written in place and copying fails although
    /// space was reserved.
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

/// The way in which a file in a folder is replaced.
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
    /// The file itself, without a name.
    fn into_file(self) -> Result<File> {
        match self {
            #[cfg(target_os = "linux")]
            Aside::Unnamed(file) => Ok(file),
            Aside::Named(file) => Ok(file.into_file()),
        }
    }
}

/// Returns whether the error means that the folder or an entry in it may not be changed, although the file
/// may be written.
fn is_refused(error: &Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices)
}

/// A new temporary file in a folder.
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

/// An unnamed file; `None` if they are not supported.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Result<Option<File>> {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    // The file is named through this folder.
    if !Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        // Systems without unnamed files treat this as an attempt to write the folder itself.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Names an unnamed file, replacing the old file of that name.
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

/// A number that other processes do not use at the moment.
#[cfg(target_os = "linux")]
fn random() -> u64 {
    use std::hash::BuildHasher;
    // The keys are random per process and differ for each use.
    std::hash::RandomState::new().hash_one(std::process::id())
}

/// Returns whether the file has no other name, which a rename would leave behind.
fn has_one_name(old: &File) -> Result<bool> {
    #[cfg(unix)]
    return Ok(std::os::unix::fs::MetadataExt::nlink(&old.metadata()?) <= 1);
    #[cfg(not(unix))]
    Ok(old.metadata().is_ok())
}

/// Gives a new file the owner and permissions of the old one; returns false if that is not possible.
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

/// Returns whether a file has access rules beyond its permissions.
#[cfg(target_os = "linux")]
fn has_access_list(file: &File) -> bool {
    let mut names = vec![0u8; 4096];
    match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(length) => names[..length].split(|&byte| byte == 0).any(|name| name == b"system.posix_acl_access"),
        Err(_) => false,
    }
}

/// Overwrites the old content, after reserving space for the new.
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
