//! Reads lines of standard input. The wait ends early on an interrupt or a timeout of the script.
//!
//! Invariant: bytes read beyond a line are kept for the next one, process-wide.

use crate::base::{Result, guard};
use crate::vm::{Input, Vm, charge, error};
use parking_lot::Mutex;
#[cfg(not(unix))]
use std::io::Read;

/// Bytes read and not yet returned.
static READ: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The next line; `None` at the end of the input. Lines of standard input include their line ends.
///
/// # Errors
///
/// E0927 without an input source; E1004, E1002; E0907 if it cannot be read or is not text; the limit on host
/// memory.
pub(super) fn line(vm: &mut Vm) -> Result<Option<String>> {
    match &mut vm.input {
        Input::None => return Err(error::input_off()),
        Input::Lines(next) => return guard::call("the input", &mut **next),
        Input::Session(next) => return next(),
        Input::Process => {}
    }
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).map(Some).map_err(|_| error::file("standard input", "it is not UTF-8 text"))
    };
    let mut searched = 0;
    loop {
        {
            let mut read = READ.lock();
            let end = read.get(searched..).and_then(|new| new.iter().position(|&b| b == b'\n'));
            if let Some(end) = end {
                let rest = read.split_off(searched + end + 1);
                return text(std::mem::replace(&mut *read, rest));
            }
            searched = read.len();
        }
        charge(searched)?;
        wait(vm)?;
        let mut piece = [0; 4096];
        match unbuffered(&mut piece) {
            Ok(0) => {
                let rest = std::mem::take(&mut *READ.lock());
                return if rest.is_empty() { Ok(None) } else { text(rest) };
            }
            Ok(count) => READ.lock().extend_from_slice(&piece[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(error::file("standard input", &super::io::reason(&e))),
        }
    }
}

/// Waits until there is input.
#[cfg(unix)]
fn wait(vm: &mut Vm) -> Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    loop {
        vm.poll()?;
        let input = std::io::stdin();
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut ready, Some(&POLL_INTERVAL)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // Other errors are reported by the read.
            _ => return Ok(()),
        }
    }
}

#[cfg(not(unix))]
fn wait(vm: &mut Vm) -> Result<()> {
    vm.poll()
}

#[cfg(unix)]
fn unbuffered(piece: &mut [u8]) -> std::io::Result<usize> {
    Ok(rustix::io::read(std::io::stdin(), piece)?)
}

#[cfg(not(unix))]
fn unbuffered(piece: &mut [u8]) -> std::io::Result<usize> {
    std::io::stdin().read(piece)
}
