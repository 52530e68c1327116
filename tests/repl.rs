//! The interactive session on a pseudo-terminal: the tests type input and read the screen.
#![cfg(unix)]
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "common/command.rs"]
mod command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A session with simulated typing.
struct Typist {
    keys: std::fs::File,
    shown: Receiver<Vec<u8>>,
    child: Child,
    /// Output that was not yet waited for.
    text: String,
    _folder: tempfile::TempDir,
}

impl Typist {
    fn new() -> Typist {
        Typist::with(tempfile::tempdir().unwrap(), false)
    }

    fn with(folder: tempfile::TempDir, color: bool) -> Typist {
        let mut typist = Typist::start(folder, color, &["--quiet"]);
        typist.wait_for(">>");
        typist.wait_for(" ");
        typist
    }

    /// Runs a command on a terminal.
    fn start(folder: tempfile::TempDir, color: bool, args: &[&str]) -> Typist {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = std::ffi::OsString::from_vec(ptsname(&master, Vec::new()).unwrap().into_bytes());
        let slave = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let child = command::runnel()
            .args(["--backend", "emu"])
            .args(args)
            .env("TERM", "xterm")
            .env("NO_COLOR", if color { "" } else { "1" })
            .env("RUNNEL_HISTORY", folder.path().join("history"))
            .current_dir(folder.path())
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .unwrap();
        let keys = std::fs::File::from(master);
        let mut screen = keys.try_clone().unwrap();
        let (send, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the other side has closed the terminal.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Typist { keys, shown, child, text: String::new(), _folder: folder }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line, and waits for the answer and the next prompt.
    fn line(&mut self, line: &str, answer: &str) {
        self.press(&format!("{line}\r"));
        self.wait_for("\n");
        self.wait_for(answer);
        self.wait_for(">> ");
    }

    /// Waits until `part` is shown, and forgets everything up to it.
    fn wait_for(&mut self, part: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text.find(part) {
                self.text.drain(..at + part.len());
                return;
            }
            match self.shown.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.child.kill().ok();
                    panic!("`{part}` was never shown; there is:\n{}", self.text)
                }
            }
        }
    }

    fn interrupt(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    }

    fn leave(mut self) -> (ExitStatus, tempfile::TempDir) {
        // A key between two inputs, while the editor does not own the terminal, is lost, so try again.
        let status = (0..300).find_map(|_| {
            let _ = self.keys.write_all(b"\x04");
            std::thread::sleep(Duration::from_millis(200));
            self.child.try_wait().unwrap()
        });
        let status = status.expect("Ctrl-D ends the session");
        (status, std::mem::replace(&mut self._folder, tempfile::tempdir().unwrap()))
    }
}

#[test]
fn a_session_shows_values_and_errors_and_ends() {
    let mut typist = Typist::new();
    typist.line("let x = 20", "");
    typist.line("x + 1", "21");
    typist.line("_ * 2", "42");
    typist.line("[1.0, 2.0] on cuda:1", "f32[2] on cuda:1");
    typist.line("nowhere", "E0201");
    typist.line("x", "20");
    assert!(typist.leave().0.success());
}

#[test]
fn an_incomplete_input_continues_on_the_next_line() {
    let mut typist = Typist::new();
    typist.press("fn twice(n) {\r");
    typist.press("n * 2\r");
    typist.press("}; twice(21)\r");
    typist.wait_for("42\r\n");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
}

#[test]
fn control_c_clears_the_line_and_stops_a_script() {
    let mut typist = Typist::new();
    typist.press("let broken = \x03");
    typist.wait_for(">> ");
    typist.line("let kept = 7", "");
    typist.press("print(\"running\"); while true { }\r");
    typist.wait_for("running\r\n");
    typist.interrupt();
    typist.wait_for("E1004");
    typist.wait_for(">> ");
    typist.line("kept", "7");
    assert!(typist.leave().0.success());
}

#[test]
fn words_are_completed() {
    let mut typist = Typist::new();
    typist.line("let remarkable = 5", "");
    typist.press("remark\t + 1\r");
    typist.wait_for("6");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
}

#[test]
fn history_outlives_the_session() {
    let mut typist = Typist::new();
    typist.line("100 + 11", "111");
    let (status, folder) = typist.leave();
    assert!(status.success());
    let mut typist = Typist::with(folder, false);
    typist.press("\x1b[A");
    typist.wait_for("100 + 11");
    typist.press("\r");
    typist.wait_for("111");
    assert!(typist.leave().0.success());
}

#[test]
fn commands_work() {
    let mut typist = Typist::new();
    typist.line(":help", ":time CODE");
    typist.line(":type ones(2, 3)", "tensor f32[2, 3] on cuda:0");
    typist.line(":mem", "cuda:0");
    typist.line(":streams", "default");
    typist.press(":quit\r");
    assert!(typist.child.wait().unwrap().success());
}

#[test]
fn input_is_coloured_unless_no_color_is_set() {
    let mut typist = Typist::with(tempfile::tempdir().unwrap(), true);
    typist.press("let x = 1");
    typist.wait_for("\x1b[35mlet\x1b[0m x = \x1b[33m1\x1b[0m");
    typist.press("\r");
    typist.wait_for(">>");
    assert!(typist.leave().0.success());
    let mut typist = Typist::new();
    typist.press("let x = 1");
    typist.wait_for("let x = 1");
    typist.line("; x + 1", "2");
    assert!(typist.leave().0.success());
}

#[test]
fn a_call_is_hinted_and_its_arguments_completed() {
    let mut typist = Typist::new();
    typist.line("let x = ones(2, 3)", "");
    typist.press("x.sum(1");
    typist.wait_for(", keepdim=false");
    typist.press(", ke\ttrue).sha\t\r");
    typist.wait_for("(2, 1)");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
}

#[test]
fn a_session_is_saved_reset_and_loaded() {
    let mut typist = Typist::new();
    typist.line("let x = 20", "");
    typist.line("x + 1", "21");
    typist.line("print(_ * 2)", "42");
    typist.line(":save kept.rnl", "saved 3 inputs");
    typist.line(":reset", "");
    typist.line("x", "E0201");
    typist.line(":load ke\t", "42");
    typist.line(":plan ones(2) + 1", "none was run");
    typist.line(":time x", "median");
    assert!(typist.leave().0.success());
}

#[test]
fn control_c_stops_work_of_a_device() {
    let mut typist = Typist::new();
    typist.line("let kept = 7", "");
    typist.press(
        "print(\"busy\"); while true { let x = ones(100, 100) @ ones(100, 100); cuda.synchronize() }\r",
    );
    typist.wait_for("busy\r\n");
    typist.interrupt();
    typist.wait_for("interrupted");
    typist.wait_for(">> ");
    typist.line("(ones(2) + kept).sum().item()", "16");
    assert!(typist.leave().0.success());
}

#[test]
fn loops_show_how_far_they_are() {
    let code = "for x in progress(0..3, \"outer\") { sleep(0.06); print(\"at {x}\"); for y in progress(0..2) { y } }";
    let mut typist = Typist::start(tempfile::tempdir().unwrap(), false, &["-e", code]);
    typist.wait_for("outer   0% [");
    typist.wait_for("at 0");
    typist.wait_for("outer  33% [");
    typist.wait_for("at 2");
    typist.wait_for("outer 100% [");
    typist.wait_for("3/3");
    assert!(typist.child.wait().unwrap().success());

    let open = "for x in progress(0.., \"open\") { sleep(0.06); if x == 3 { break } }\nprint(\"end\")";
    let mut typist = Typist::start(tempfile::tempdir().unwrap(), false, &["-e", open]);
    typist.wait_for("open 0 ");
    typist.wait_for("end");
    assert!(typist.child.wait().unwrap().success());
    let mut quiet = Typist::start(tempfile::tempdir().unwrap(), false, &["--quiet", "-e", code]);
    quiet.wait_for("at 2");
    assert!(quiet.child.wait().unwrap().success());
    assert!(!quiet.text.contains("outer"));
}

#[test]
fn control_c_stops_a_script_and_runs_deferred_code() {
    let folder = tempfile::tempdir().unwrap();
    let code = "fn work() { defer print(\"put\", \"away\")\n print(\"begun\"); while true { } }\ntry { work() } catch { print(\"caught\") }";
    let mut typist = Typist::start(folder, false, &["-e", code]);
    typist.wait_for("begun\r\n");
    typist.interrupt();
    typist.wait_for("put away");
    typist.wait_for("E1004: interrupted");
    assert_eq!(typist.child.wait().unwrap().code(), Some(130));
    // The report shows the line with `catch`, but the handler did not print.
    assert!(!typist.text.contains("\ncaught"));

    // Also while it waits for input.
    let mut typist = Typist::start(tempfile::tempdir().unwrap(), false, &["-e", "input(\"name? \")"]);
    typist.wait_for("name? ");
    std::thread::sleep(Duration::from_millis(100));
    typist.interrupt();
    typist.wait_for("E1004");
    assert_eq!(typist.child.wait().unwrap().code(), Some(130));
}

#[test]
fn input_returns_one_line_per_call() {
    let code = "let a = input(\"a? \")\nlet b = input(\"b? \")\nprint(\"{b}-{a}\")";
    let mut typist = Typist::start(tempfile::tempdir().unwrap(), false, &["-e", code]);
    typist.wait_for("a? ");
    typist.press("first\r");
    typist.wait_for("b? ");
    typist.press("second\r");
    typist.wait_for("second-first");
    assert!(typist.child.wait().unwrap().success());
}

#[test]
fn tab_shows_the_candidates_at_the_cursor() {
    let mut typist = Typist::new();
    typist.line("let x = zeros(2, 3)", "");
    typist.press("x.arg\t");
    typist.wait_for("argmax");
    typist.wait_for("argmin");
    typist.press("\x15zeros(2, dtype=bf\t).dtype\r");
    typist.wait_for("bf16\r\n");
    typist.wait_for(">> ");
    typist.press(":hel\t argmax\r");
    typist.wait_for("Example:");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
}

#[test]
fn tab_completes_devices_dtypes_paths_and_command_arguments() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("numbers.csv"), "1,2,3").unwrap();
    let mut typist = Typist::with(folder, false);
    typist.line("let remarkable = ones(2, 3)", "");
    typist.press("remarkable on cuda:\t");
    typist.wait_for("cuda:0");
    typist.wait_for("cuda:3");
    typist.press("\x15Generator(device=\"cp\t\").device\r");
    typist.wait_for("cpu\r\n");
    typist.wait_for(">> ");
    typist.press("with device(\"cuda:\t");
    typist.wait_for("cuda:2");
    typist.press("\x15ones(2, dtype=f1\t).dtype\r");
    typist.wait_for("f16\r\n");
    typist.wait_for(">> ");
    typist.press("len(read(\"numb\t\"))\r");
    typist.wait_for("5\r\n");
    typist.wait_for(">> ");
    typist.press(":type remark\t\r");
    typist.wait_for("tensor f32[2, 3] on cuda:0");
    typist.wait_for(">> ");
    typist.press(":help data.loa\t\r");
    typist.wait_for("Example:");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
}

#[test]
fn exit_leaves_with_its_status() {
    let mut typist = Typist::new();
    typist.line("let x = 3", "");
    typist.press("defer print(\"closed\"); exit(x)\r");
    typist.wait_for("closed");
    assert_eq!(typist.child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_reset_session_outlives_every_control_c() {
    let mut typist = Typist::new();
    typist.line("1 + 1", "2");
    typist.line(":reset", "");
    for _ in 0..2 {
        typist.press("print(\"run\" ++ \"ning\"); while true { }\r");
        typist.wait_for("running\r\n");
        typist.interrupt();
        typist.wait_for("E1004");
        typist.wait_for(">> ");
    }
    typist.line("2 + 3", "5");
    assert!(typist.leave().0.success());
}

/// Sends all inputs at once; returns their output, in order.
fn burst(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\r").collect()
}

#[test]
fn lines_that_are_typed_ahead_run_in_order() {
    let mut typist = Typist::new();
    typist.press("100+11\r200+22\r300+33\r");
    for sum in ["111\r\n", "222\r\n", "333\r\n"] {
        typist.wait_for(sum);
    }
    typist.line("let seen = []", "");
    // Numbers around the sizes of the buffers between terminal and session.
    for count in [2, 30, 100, 400] {
        let lines = (0..count).map(|i| format!("seen.append({i})"));
        typist.press(&burst(lines.chain(["print(\"all\" ++ \"{len(seen)}\")".to_string()])));
        typist.wait_for(&format!("all{count}\r\n"));
        typist.wait_for(">> ");
        typist.line(&format!("print(\"order \", seen == list(0..{count})); seen.clear()"), "order  true");
    }
    assert!(typist.leave().0.success());
}

#[test]
fn blocks_and_lines_are_typed_ahead_in_any_mixture() {
    let mut typist = Typist::new();
    let blocks = [
        ("fn f(x) {\r  x * 2\r}\rf(21)\r", "42"),
        // Two empty lines end an incomplete input only if they are typed, not pasted.
        ("fn g(x) {\r\r\r\r  x * 3\r}\rg(21)\r", "63"),
        ("sum([1,\r2,\r3])\r", "6"),
        ("for i in 0..2 {\r  if i > 0 {\r    print(\"i is {i}\")\r  }\r}\r", "i is 1"),
        ("let t = \"\"\"a\rb\"\"\"\rlen(t)\r", "3"),
        ("7 * 11\r\n8 * 11\r\n", "88"),
        ("nowhere\r5 * 11\r", "55"),
        (":type 1.5\r6 * 111\r", "666"),
    ];
    for (keys, shown) in blocks {
        typist.press(keys);
        typist.wait_for(&format!("\n{shown}\r\n"));
    }
    // All of them at once, while an input runs.
    typist.press("print(\"run\" ++ \"ning\"); sleep(0.5)\r");
    typist.wait_for("running\r\n");
    typist.press(&blocks.map(|(keys, _)| keys).concat());
    for (_, shown) in blocks {
        typist.wait_for(&format!("\n{shown}\r\n"));
    }
    assert!(typist.leave().0.success());
}

#[test]
fn input_reads_text_typed_ahead() {
    let mut typist = Typist::new();
    typist.press("let a = input(\"a? \")\rfirst\rlet b = input()\r(open\rprint(\"{b}+{a}\")\r");
    typist.wait_for("(open+first\r\n");
    // After text on the same line, and after the end of the input.
    typist.press("print(\"so \", end=\"\"); let c = input(\"far? \")\r");
    typist.wait_for("so far? ");
    typist.press("yes\rlet d = input()\r\x04print(c, d)\r");
    typist.wait_for("yes none\r\n");
    // The end of the session, typed while an input runs.
    typist.press("print(\"run\" ++ \"ning\"); sleep(0.5)\r");
    typist.wait_for("running\r\n");
    typist.press("print(\"la\" ++ \"st\")\r\x04");
    typist.wait_for("last\r\n");
    assert!(typist.child.wait().unwrap().success());
}

#[test]
fn control_c_drops_text_typed_before_it() {
    let mut typist = Typist::new();
    typist.press("let broken = \x03print(\"af\" ++ \"ter\")\r");
    typist.wait_for("after\r\n");
    // Text read together with the running line, and typed while it runs.
    typist.press("print(\"run\" ++ \"ning\"); while true { }\rprint(\"ear\" ++ \"ly\")\r");
    typist.wait_for("running\r\n");
    typist.press("print(\"la\" ++ \"te\")\r");
    std::thread::sleep(Duration::from_millis(200));
    typist.interrupt();
    typist.wait_for("E1004");
    typist.wait_for(">> ");
    typist.press("print(\"go\" ++ \"es on\")\r");
    typist.wait_for(">> ");
    assert!(!typist.text.contains("early") && !typist.text.contains("late"), "{}", typist.text);
    typist.line("1 + 1", "2");
    // Neither ran before the answer appeared.
    assert!(typist.leave().0.success());
}

#[test]
fn output_on_the_last_line_is_kept() {
    let mut typist = Typist::new();
    typist.press("print(\"XYZ\", end=\"\")\r");
    typist.wait_for("\r\nXYZ\r\n");
    typist.wait_for(">> ");
    typist.press("print(\"a\", end=\"\"); print(\"b\", end=\"\"); [1, 2]\r");
    typist.wait_for("\r\nab[1, 2]\r\n");
    typist.wait_for(">> ");
    typist.press("print(\"torn\", end=\"\"); nowhere.x\r");
    typist.wait_for("E0201");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
    let mut typist = Typist::start(tempfile::tempdir().unwrap(), false, &[]);
    typist.wait_for(">> ");
    typist.press("for x in progress(0..2) { sleep(0.06) }\r");
    typist.wait_for("2/2");
    typist.wait_for("\n");
    typist.wait_for(">> ");
    assert!(typist.leave().0.success());
}

#[test]
fn signals_end_a_session_at_its_prompt_and_in_an_input() {
    use rustix::process::{Pid, Signal, kill_process};
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        for busy in ["", "while true { }\r", "input(\"name? \")\r"] {
            let mut typist = Typist::new();
            typist.line("let folder = files.temp_folder()", "");
            typist.press("print(\"in\" ++ \"<{folder}>\")\r");
            typist.wait_for("in<");
            typist.wait_for(">\r\n");
            typist.wait_for(">> ");
            typist.press(busy);
            std::thread::sleep(Duration::from_millis(300));
            kill_process(Pid::from_child(&typist.child), signal).unwrap();
            assert_eq!(typist.child.wait().unwrap().code(), Some(status), "{busy}");
        }
    }
}
