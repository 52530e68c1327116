//! Replaces a file by an unnamed one such that a kill at any moment leaves no extra file behind.
//!
//! The system has no single call for this: the file is first named, then moved. Both calls run in a process
//! that shares this one's memory, as `posix_spawn` starts programs, and that survives if this one is killed
//! in between.

use std::ffi::CString;
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The task of the other process, and its result.
struct Job {
    source: CString,
    beside: CString,
    place: CString,
    /// The system's error number; 0 on success.
    errno: libc::c_int,
}

impl Job {
    /// Names the file and moves it. Only makes system calls: no allocation, no lock.
    fn run(&mut self) {
        let (source, beside, place) = (self.source.as_ptr(), self.beside.as_ptr(), self.place.as_ptr());
        // SAFETY: the paths end with a zero byte and live as long as the job; `errno` is this thread's, or that of the
        // waiting thread.
        unsafe {
            let link = libc::linkat(libc::AT_FDCWD, source, libc::AT_FDCWD, beside, libc::AT_SYMLINK_FOLLOW);
            if link != 0 {
                self.errno = *libc::__errno_location();
            } else if libc::rename(beside, place) != 0 {
                self.errno = *libc::__errno_location();
                libc::unlink(beside);
            }
        }
    }
}

/// Stack size of the other process, in bytes.
const STACK: usize = 64 << 10;

/// Names the file at `source` (`/proc/self/fd/3`) `beside`, and moves it to `place`.
///
/// # Errors
///
/// The system's; then `beside` does not exist, unless it did before (`AlreadyExists`).
pub(super) fn link_and_rename(source: &[u8], beside: &Path, place: &Path) -> Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(Error::other);
    let (beside, place) = (text(beside.as_os_str().as_bytes())?, text(place.as_os_str().as_bytes())?);
    let mut job = Job { source: text(source)?, beside, place, errno: 0 };
    if !run_elsewhere(&mut job) {
        job.run();
    }
    match job.errno {
        0 => Ok(()),
        errno => Err(Error::from_raw_os_error(errno)),
    }
}

/// Runs a job in its own process and waits for it; returns false if no process can be started.
fn run_elsewhere(job: &mut Job) -> bool {
    extern "C" fn run(job: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the address of the job, which is not used elsewhere while this runs.
        unsafe { (*job.cast::<Job>()).run() };
        0
    }
    let mut stack: Vec<u128> = vec![0; STACK / 16];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: this thread sleeps until the other process ends (`CLONE_VFORK`), so the stack and the job
    // outlive that process, and thread-local data is used by one of them at a time. All signals are blocked
    // meanwhile, so no handler runs there. The process sends no signal when it ends (none in `flags`), and is
    // waited for here.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        if libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) != 0 {
            return false;
        }
        let process = libc::clone(run, top.cast(), flags, std::ptr::from_mut(job).cast());
        if process > 0 {
            let mut status = 0;
            while libc::waitpid(process, &mut status, libc::__WALL) == -1
                && *libc::__errno_location() == libc::EINTR
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        process > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_takes_the_place_of_another_or_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("new"), "new").unwrap();
        std::fs::write(at("place"), "old").unwrap();
        let new = std::fs::File::open(at("new")).unwrap();
        let source = format!("/proc/self/fd/{}", new.as_raw_fd());
        std::fs::create_dir(at("folder")).unwrap();
        for (beside, place) in
            [("new", "place"), ("free", "folder"), ("no/such", "place"), ("free", "no/such")]
        {
            assert!(link_and_rename(source.as_bytes(), &at(beside), &at(place)).is_err(), "{beside} {place}");
            assert_eq!(std::fs::read_to_string(at("place")).unwrap(), "old");
            assert!(!at("free").exists());
        }
        link_and_rename(source.as_bytes(), &at("free"), &at("place")).unwrap();
        assert_eq!(std::fs::read_to_string(at("place")).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
