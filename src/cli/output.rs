//! Standard output: written immediately to a terminal, and within [`MAX_DELAY`] to anything else.
//!
//! Output to a pipe or file is buffered. It is written when the buffer is full, before anything goes to
//! standard error, and otherwise by a thread, so that a reader sees each line in time and many prints need
//! few writes.
//!
//! If nobody reads the output anymore, the script is stopped as by Ctrl-C: the writer thread must not end the process
//! in the middle of an action.

use super::signals;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Buffer size.
const CAPACITY: usize = 1 << 16;
/// Maximum delay of printed text.
const MAX_DELAY: Duration = Duration::from_millis(20);
/// Maximum time that a process waits at its end for a reader that does not read.
#[cfg(unix)]
const GRACE: Duration = Duration::from_secs(1);

/// The reason why writing stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The reader has closed its end (`| head`): the program ends quietly.
    Closed,
    /// Writing failed, which was reported.
    Failed,
    /// The process was asked to end, and the output is not read.
    GivenUp,
}

/// Standard output. The buffer is written when the last handle is dropped.
#[derive(Clone)]
pub struct Output(Arc<Handle>);

struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state.lock().send();
    }
}

struct Shared {
    state: Mutex<State>,
    /// Signals that an empty buffer received text.
    begun: Condvar,
}

struct State {
    /// Printed and not yet written.
    waiting: Vec<u8>,
    /// Whether it is a terminal.
    live: bool,
    /// Whether the thread is running.
    has_thread: bool,
    /// The text of the last line on the screen.
    line: String,
    end: Option<End>,
    /// The flag that stops the running script; without a script the process ends immediately.
    stop: Option<Arc<AtomicBool>>,
    /// The output that a test collects.
    #[cfg(test)]
    kept: Option<Arc<std::sync::Mutex<String>>>,
}

impl Output {
    /// The process's standard output; `live` if it is a terminal.
    pub fn new(live: bool) -> Output {
        let state = State {
            waiting: Vec::new(),
            live,
            has_thread: false,
            line: String::new(),
            end: None,
            stop: None,
            #[cfg(test)]
            kept: None,
        };
        Output(Arc::new(Handle(Arc::new(Shared { state: Mutex::new(state), begun: Condvar::new() }))))
    }

    /// Collects the output, for a test.
    #[cfg(test)]
    pub fn keep(&self, text: Arc<std::sync::Mutex<String>>) {
        self.0.0.state.lock().kept = Some(text);
    }

    /// Passes text to a test that collects output.
    pub fn kept(&self, _text: &str) -> bool {
        #[cfg(test)]
        if let Some(kept) = &self.0.0.state.lock().kept {
            kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_str(_text);
            return true;
        }
        false
    }

    /// From now on, a closed output sets this flag instead of ending the process.
    pub fn stop_with(&self, flag: Arc<AtomicBool>) {
        self.0.0.state.lock().stop = Some(flag);
    }

    /// The reason why writing stopped, if it did.
    pub fn end(&self) -> Option<End> {
        self.0.0.state.lock().end
    }

    /// Prints text.
    pub fn print(&self, text: &str) {
        let mut state = self.0.0.state.lock();
        if text.is_empty() || state.end.is_some() {
            return;
        }
        let begins = state.waiting.is_empty();
        state.waiting.extend_from_slice(text.as_bytes());
        if state.live {
            state.note_line(text);
        }
        if state.live || state.waiting.len() >= CAPACITY {
            state.send();
        } else if begins {
            self.send_later(&mut state);
        }
    }

    fn send_later(&self, state: &mut MutexGuard<'_, State>) {
        if !state.has_thread {
            let shared = Arc::clone(&self.0.0);
            let thread = std::thread::Builder::new().name("runnel-output".into());
            if thread.spawn(move || shared.send_in_time()).is_err() {
                // Without a thread, every print is written at once.
                state.send();
                return;
            }
            state.has_thread = true;
        }
        self.0.0.begun.notify_one();
    }

    /// Writes the buffer.
    pub fn flush(&self) {
        self.0.0.state.lock().send();
    }

    /// The text of the last line on the screen; empty at the start of a line.
    pub fn line(&self) -> String {
        self.0.0.state.lock().line.clone()
    }

    /// Records text that was written to the screen in another way.
    pub fn note_line(&self, text: &str) {
        let mut state = self.0.0.state.lock();
        if state.live {
            state.note_line(text);
        }
    }
}

impl Shared {
    fn send_in_time(&self) {
        loop {
            let mut state = self.state.lock();
            while state.waiting.is_empty() {
                self.begun.wait(&mut state);
            }
            drop(state);
            std::thread::sleep(MAX_DELAY);
            self.state.lock().send();
        }
    }
}

impl State {
    fn note_line(&mut self, text: &str) {
        match text.rsplit_once('\n') {
            Some((_, rest)) => rest.clone_into(&mut self.line),
            // A script may write to one line forever, so long lines are not kept: only whether the line is empty
            // matters.
            None if self.line.len() < 4096 => self.line.push_str(text),
            None => {}
        }
    }

    fn send(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let sent = send(&self.waiting);
        self.waiting.clear();
        let Err(error) = sent else { return };
        let end = match error.kind() {
            ErrorKind::BrokenPipe => End::Closed,
            _ if signals::ended().is_some() || error.kind() == ErrorKind::TimedOut => End::GivenUp,
            _ => {
                let _ = writeln!(std::io::stderr(), "runnel: cannot write to the standard output: {error}");
                End::Failed
            }
        };
        self.end = Some(end);
        match &self.stop {
            Some(stop) => stop.store(true, Ordering::Relaxed),
            None => {
                crate::engine::prepare_exit();
                std::process::exit(i32::from(end == End::Failed))
            }
        }
    }
}

/// Writes to standard output. Error: `TimedOut` if the process was asked to end and the output is not read.
#[cfg(unix)]
fn send(mut bytes: &[u8]) -> std::io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    /// Bytes that a ready pipe takes without blocking.
    const PIECE: usize = 4096;
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let output = std::io::stdout();
    let is_file = rustix::fs::fstat(&output).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
    });
    let mut asked: Option<std::time::Instant> = None;
    while !bytes.is_empty() {
        let mut piece = bytes;
        if !is_file {
            piece = &bytes[..bytes.len().min(PIECE)];
            let mut ready = [PollFd::new(&output, PollFlags::OUT)];
            match poll(&mut ready, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {
                    if signals::any() && asked.get_or_insert_with(std::time::Instant::now).elapsed() > GRACE {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    continue;
                }
                // Other errors are reported by the write.
                _ => {}
            }
        }
        match rustix::io::write(&output, piece) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn send(bytes: &[u8]) -> std::io::Result<()> {
    let mut output = std::io::stdout();
    output.write_all(bytes)?;
    output.flush()
}
