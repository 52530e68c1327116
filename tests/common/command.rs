//! The program under test.

use std::process::Command;

/// The command `runnel` as a terminal starts it: a test that runs in the background, or under `nohup`, would pass on
/// that signals are ignored.
pub fn runnel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runnel"));
    #[cfg(unix)]
    // SAFETY: `signal` is safe between `fork` and `exec`.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}
