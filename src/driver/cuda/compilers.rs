//! Compilations in processes of their own.
//!
//! NVRTC compiles one program at a time, however many threads call it: a lock in the library. (Measured with NVRTC 13.0
//! on 16 cores: 48 kernels take 37 ms each on one thread and on eight. Eight processes take 6 ms per kernel.) So each
//! thread that compiles passes its source to a process. The process is this program again, started with [`ARGUMENT`] and
//! the path of NVRTC; it ends when its input ends. It stores what it compiles in the disk cache, also if the process that
//! asked has ended meanwhile. If no process can be started, or the program did not call [`use_processes`], NVRTC runs in
//! this process.
//!
//! A request is the compute capability (major, minor; 0 to initialise NVRTC) and the source; a reply is a kind ([`FRESH`],
//! [`CACHED`], [`REJECTED`]), then the image or NVRTC's log. Numbers are 32 bits, little-endian; texts and images begin
//! with their length.

use super::error;
use super::nvrtc::{self, Arch};
use crate::base::Result;
use parking_lot::Mutex;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The first argument of a process that compiles; NVRTC's path is the second.
const ARGUMENT: &str = "--compile-kernels";

/// The image was compiled for this request.
const FRESH: u32 = 0;
/// The image was in the disk cache.
const CACHED: u32 = 1;
/// NVRTC rejected the source.
const REJECTED: u32 = 2;

/// The compute capability of a request to initialise NVRTC.
const PREPARE: Arch = Arch { major: 0, minor: 0 };

/// A process without work ends after this time.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// A process that compiles one program for longer ends. NVRTC does not terminate for some sources.
const MOST_SECONDS: u32 = 120;

/// The program to start; unset where NVRTC runs in this process.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Processes without work, and since when.
static IDLING: Mutex<Vec<(Compiler, Instant)>> = Mutex::new(Vec::new());

/// The largest number of processes that start with the first device.
const EARLY: usize = 4;

/// Starts processes that will be needed if a kernel is not in the disk cache. Opening NVRTC and compiling for the first
/// time takes a process longer than most kernels. Takes no time of the caller.
pub(super) fn start_early(most: usize) {
    static STARTED: AtomicBool = AtomicBool::new(false);
    let Some(program) = PROGRAM.get() else { return };
    if STARTED.swap(true, Relaxed) {
        return;
    }
    let start = move || {
        for _ in 0..most.min(EARLY) {
            let Some(mut compiler) = Compiler::start(program) else { return };
            if compiler.prepare().is_ok() {
                IDLING.lock().push((compiler, Instant::now()));
            }
        }
        while end_idle() {
            std::thread::sleep(IDLE);
        }
    };
    // Without a thread, processes start when they are needed.
    let _ = std::thread::Builder::new().name("runnel-compilers".into()).spawn(start);
}

/// Compiles in processes of this program from now on. In such a process, the call answers requests until there are no
/// more, then returns true: the process should end.
pub fn use_processes() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == ARGUMENT) {
        if let Some(library) = arguments.next() {
            keep_memory();
            nvrtc::open(Path::new(&library));
            // The end of either is the end of the process that asks.
            let _ = answer(io::stdin().lock(), io::stdout().lock());
        }
        return true;
    }
    if let Ok(program) = std::env::current_exe() {
        let _ = PROGRAM.set(program);
    }
    false
}

/// True if compilations run in processes.
pub(super) fn are_used() -> bool {
    PROGRAM.get().is_some()
}

/// Compiles in another process; `None` if there is none. The flag is true for an image from the disk cache.
pub(super) fn compile(source: &str, arch: Arch, label: &str) -> Option<Result<(Vec<u8>, bool)>> {
    let program = PROGRAM.get()?;
    let idle = IDLING.lock().pop().map(|(compiler, _)| compiler);
    let was_idle = idle.is_some();
    let mut compiler = idle.or_else(|| Compiler::start(program))?;
    let mut reply = compiler.ask(source, arch);
    if reply.is_err() && was_idle {
        // It may have ended meanwhile, for instance killed by the system to free memory.
        compiler = Compiler::start(program)?;
        reply = compiler.ask(source, arch);
    }
    let compiled = match reply {
        Ok((kind @ (FRESH | CACHED), image)) => Ok((image, kind == CACHED)),
        Ok((_, log)) => Err(error::kernel_rejected(label, &String::from_utf8_lossy(&log))),
        Err(problem) => {
            let log = format!("the process that compiled it ended ({problem})");
            return Some(Err(error::kernel_rejected(label, &log)));
        }
    };
    IDLING.lock().push((compiler, Instant::now()));
    Some(compiled)
}

/// Ends processes that have been without work for long. Returns whether some are left.
pub(super) fn end_idle() -> bool {
    let mut idling = IDLING.lock();
    let (ended, left) =
        std::mem::take(&mut *idling).into_iter().partition(|(_, since)| since.elapsed() > IDLE);
    *idling = left;
    let is_left = !idling.is_empty();
    drop(idling);
    drop::<Vec<_>>(ended);
    is_left
}

/// A process that compiles. Dropped, it ends.
struct Compiler {
    child: Child,
    /// `None` once its input has ended.
    input: Option<BufWriter<ChildStdin>>,
    output: ChildStdout,
    /// It has not answered its first request, whose reply nobody needs.
    is_preparing: bool,
}

impl Compiler {
    fn start(program: &Path) -> Option<Compiler> {
        let mut command = Command::new(program);
        command.arg(ARGUMENT).arg(nvrtc::path().ok()?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C is for the script.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().ok()?;
        let (input, output) = (child.stdin.take()?, child.stdout.take()?);
        Some(Compiler { child, input: Some(BufWriter::new(input)), output, is_preparing: false })
    }

    /// Lets the process initialise NVRTC.
    fn prepare(&mut self) -> io::Result<()> {
        self.send("", PREPARE)?;
        self.is_preparing = true;
        Ok(())
    }

    fn ask(&mut self, source: &str, arch: Arch) -> io::Result<(u32, Vec<u8>)> {
        self.send(source, arch)?;
        if std::mem::take(&mut self.is_preparing) {
            self.reply()?;
        }
        self.reply()
    }

    fn send(&mut self, source: &str, arch: Arch) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        for number in [arch.major, arch.minor] {
            input.write_all(&number.to_le_bytes())?;
        }
        write_part(input, source.as_bytes())?;
        input.flush()
    }

    fn reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let kind = read_number(&mut self.output)?;
        Ok((kind, read_part(&mut self.output)?))
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.input = None;
        // It waits for input or has ended, or it has failed to answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers requests until the input or the output ends.
fn answer(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    loop {
        let arch = Arch { major: read_number(&mut input)?, minor: read_number(&mut input)? };
        let source = String::from_utf8_lossy(&read_part(&mut input)?).into_owned();
        alarm(MOST_SECONDS);
        let (kind, part) = if arch == PREPARE {
            nvrtc::warm_up();
            (FRESH, Vec::new())
        } else {
            match nvrtc::compile_here(&source, arch) {
                Ok((image, false)) => (FRESH, image),
                Ok((image, true)) => (CACHED, image),
                Err(log) => (REJECTED, log.into_bytes()),
            }
        };
        alarm(0);
        output.write_all(&kind.to_le_bytes())?;
        write_part(&mut output, &part)?;
        output.flush()?;
    }
}

/// Lets the C library keep freed memory for the next compilation: much of a compilation's time is spent on fresh pages.
fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the calls set parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TOP_PAD, 16 << 20);
    }
}

/// Ends the process by a signal after this time; never with 0.
fn alarm(seconds: u32) {
    #[cfg(unix)]
    // SAFETY: the call sets a timer.
    unsafe {
        libc::alarm(seconds)
    };
    #[cfg(not(unix))]
    let _ = seconds;
}

fn write_part(output: &mut impl Write, part: &[u8]) -> io::Result<()> {
    let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    output.write_all(&length.to_le_bytes())?;
    output.write_all(part)
}

fn read_number(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_part(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = u64::from(read_number(input)?);
    let mut part = Vec::new();
    // Grows with what arrives.
    match input.take(length).read_to_end(&mut part)? as u64 == length {
        true => Ok(part),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(source: &str) -> Vec<u8> {
        let mut bytes = [9u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
        write_part(&mut bytes, source.as_bytes()).unwrap();
        bytes
    }

    #[test]
    fn requests_are_answered_in_order_until_the_input_ends() {
        if nvrtc::arch_list().is_empty() {
            return super::super::skip("NVRTC", "NVRTC is not installed");
        }
        let good = r#"extern "C" __global__ void f(float* x) { x[0] = 1.25f; }"#;
        let input = [request(good), request("no kernel"), request(good), vec![9, 0, 0]].concat();
        let mut output = Vec::new();
        assert_eq!(answer(&input[..], &mut output).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut replies = &output[..];
        let mut next = || (read_number(&mut replies).unwrap(), read_part(&mut replies).unwrap());
        let (kind, image) = next();
        assert!(kind <= CACHED && image.starts_with(b"\x7fELF"));
        let (kind, log) = next();
        assert_eq!(kind, REJECTED);
        assert!(String::from_utf8_lossy(&log).contains("error"), "{log:?}");
        assert_eq!(next().1, image);
        assert!(replies.is_empty());
    }

    #[test]
    fn a_part_that_ends_early_is_an_error() {
        let bytes = [&5u32.to_le_bytes()[..], b"abc"].concat();
        assert!(read_part(&mut &bytes[..]).is_err());
        // No memory is requested for what does not arrive.
        assert!(read_part(&mut &u32::MAX.to_le_bytes()[..]).is_err());
    }
}
