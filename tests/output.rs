//! Output to a pipe or a file: when it arrives, and the effect of signals, closed pipes and full disks.
#![cfg(unix)]
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "common/command.rs"]
mod command;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

fn runnel(code: &str) -> Command {
    let mut command = command::runnel();
    command.args(["--backend", "emu", "--quiet", "-e", code]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(code: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = runnel(code).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_string()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Status, the rest of the output, the standard error.
fn end(mut child: Child, mut output: BufReader<ChildStdout>) -> (Option<i32>, String, String) {
    let (mut rest, mut errors) = (String::new(), String::new());
    output.read_to_string(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (child.wait().unwrap().code(), rest, errors)
}

#[test]
fn each_line_arrives_while_the_script_runs() {
    // What follows a print: nothing, work, more prints that do not fill the buffer.
    let rests = [
        "sleep(60)",
        "while true { }",
        "let x = 0.0; while true { x = (ones(50, 50) @ ones(50, 50)).sum().item() }",
        "input()",
    ];
    for rest in rests {
        for print in ["print(\"first\")", "print(\"first\\nsec\", end=\"\")", "print(\"first\", flush=true)"]
        {
            let mut command = runnel(&format!("{print}; {rest}"));
            // `input()` waits for this pipe.
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            // The line would never arrive if it waited for the end or a full buffer.
            assert_eq!(line(&mut output), "first", "{print}; {rest}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn lines_arrive_soon_after_they_are_printed() {
    let (child, mut output) = start("for i in 0..8 { print(time()); sleep(0.05) }");
    let mut late = 0;
    for _ in 0..8 {
        let printed: f64 = line(&mut output).parse().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        late += usize::from(now - printed > 0.1);
    }
    // A busy machine may delay some of them.
    assert!(late < 8, "every line came late");
    assert_eq!(end(child, output).0, Some(0));
}

#[test]
fn signals_unwind_the_script_and_lose_nothing() {
    let code = "let folder = files.temp_folder()\nfn work() {\n    defer print(\"put away\")\n    print(folder)\n    for i in 0..1000 { print(i) }\n    print(\"busy\")\n    while true { }\n}\nwork()";
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let (child, mut output) = start(code);
        let folder = line(&mut output);
        assert!(Path::new(&folder).is_dir());
        while line(&mut output) != "busy" {}
        send(&child, signal);
        let (ended, rest, errors) = end(child, output);
        assert_eq!((ended, rest.as_str()), (Some(status), "put away\n"), "{errors}");
        assert!(errors.contains("E1004"), "{errors}");
        assert!(!Path::new(&folder).exists());
    }
}

#[test]
fn a_signal_that_the_parent_ignores_stays_ignored() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" --backend emu -q -e 'print(1); sleep(0.3); print(2)'"]);
    command
        .arg(env!("CARGO_BIN_EXE_runnel"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(line(&mut output), "1");
    send(&child, Signal::HUP);
    let (status, rest, errors) = end(child, output);
    assert_eq!((status, rest.as_str()), (Some(0), "2\n"), "{errors}");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    for work in [
        "while true { print(\"more\") }",
        "print(\"more\"); sleep(60)",
        "print(\"more\", flush=true); while true { }",
    ] {
        let code = format!("let folder = files.temp_folder(); print(folder); sleep(0.2); {work}");
        let (child, mut output) = start(&code);
        let folder = line(&mut output);
        assert!(Path::new(&folder).is_dir());
        drop(output);
        let done = child.wait_with_output().unwrap();
        assert_eq!(
            (done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()),
            (Some(0), ""),
            "{work}"
        );
        assert!(!Path::new(&folder).exists(), "{work}");
    }
    let (child, output) = start("print(\"only\")");
    drop(output);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn unwritable_output_is_reported_once() {
    for code in ["print(1)", "while true { print(1) }", "print(1); sleep(60)", "print(1); exit(0)"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = runnel(code).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{code}");
        assert!(
            errors.contains("cannot write to the standard output") && errors.lines().count() == 1,
            "{errors}"
        );
    }
}

#[test]
fn a_reader_that_does_not_read_keeps_no_program_alive() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (mut child, output) = start("while true { print(\"a long line into a full pipe\") }");
        std::thread::sleep(Duration::from_millis(500));
        send(&child, signal);
        let asked = Instant::now();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert!(asked.elapsed() < Duration::from_secs(20));
        drop(output);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn many_prints_are_few_writes() {
    let file = tempfile::tempfile().unwrap();
    let code = "for i in 0..20000 { print(i) }\nfor line in read(\"/proc/self/io\").splitlines() { if line.startswith(\"syscw\") { print(line) } }";
    let done = runnel(code).stdout(file.try_clone().unwrap()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut text = String::new();
    std::io::Seek::rewind(&mut &file).unwrap();
    (&file).read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!((0..20_000).all(|i| lines[i] == i.to_string()));
    let writes: usize = lines[20_000].split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(writes < 5_000, "{writes} writes for 20,000 prints");
}
