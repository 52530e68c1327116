//! The program from the user's side: exit statuses, output streams and messages.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "common/command.rs"]
mod command;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `runnel` in an empty folder, on emulated devices, without the user's environment.
struct Program {
    folder: tempfile::TempDir,
}

struct Ended {
    status: i32,
    out: String,
    err: String,
}

impl Program {
    fn new() -> Program {
        Program { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Program {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command::runnel();
        command.args(args).current_dir(self.folder.path()).env("RUNNEL_BACKEND", "emu");
        for name in ["NO_COLOR", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "RUNNEL_ALLOC_CONF"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    fn run_with(&self, args: &[&str], stdin: &str) -> Ended {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that reads nothing may have ended already.
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
        ended(child.wait_with_output().unwrap())
    }
}

fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Ended {
        status: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

#[test]
fn a_check_knows_the_names_of_imported_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("util.rnl", "fn step(x, by = 1) { x + by }\nlet rate = 0.5\n");
    write("right.rnl", "import \"util.rnl\" as u\nprint(u.step(1, by=2), u.rate)\n");
    write("wrong.rnl", "import \"util.rnl\" as u\nprint(u.stpe(1), u.step(), u.missing)\n");
    write("alone.rnl", "import \"nowhere.rnl\" as n\nprint(n.anything)\n");
    let check = |name: &str| {
        let mut command = command::runnel();
        let done = command.args(["check", &folder.path().join(name).to_string_lossy()]).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(check("right.rnl"), (Some(0), String::new()));
    assert_eq!(check("alone.rnl"), (Some(0), String::new()));
    let (status, said) = check("wrong.rnl");
    assert_eq!(status, Some(1));
    for part in [
        "`util.rnl` has no `stpe`",
        "did you mean `step`?",
        "`step` lacks a value for `x`",
        "it has `step`, `rate`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn errors_in_imported_files_are_reported_before_the_run() {
    let program = Program::new();
    program.file("deep/most.rnl", "fn outer() { fn inner() { undefined_here + 1 }\n inner() }\n");
    program.file("deep/half.rnl", "fn go(x) { import \"most.rnl\" as m\n m.outer() + x }\n");
    program.file("syntax.rnl", "let x = = 1\n");
    program.file("util.rnl", "fn step(x, by = 1) { x + by }\nlet rate = 0.5\n");
    program.file("writes.rnl", "fn all() { write(\"log.txt\", \"\") }\n");
    // Errors found before the first line runs; `check` reports the same ones.
    let refused = [
        ("print(1)\nimport \"deep/most.rnl\" as m\n", "`undefined_here`", "deep/most.rnl:1:"),
        ("import \"deep/half.rnl\" as h\nprint(1)\nh.go(1)", "`undefined_here`", "deep/most.rnl:1:"),
        (
            "fn f() { import \"./deep/half.rnl\" as h\n h.go(2) }\nprint(1)\nf()",
            "`undefined_here`",
            "deep/most.rnl:1:",
        ),
        ("print(1)\nimport \"syntax.rnl\" as s", "E01", "syntax.rnl:1:"),
        (
            "print(1)\nimport \"util.rnl\" as u\nfn late() { u.stpe(1) }",
            "did you mean `step`?",
            "main.rnl:3:",
        ),
        ("print(1)\nimport \"util.rnl\" as u\nu.step()", "`step` lacks a value for `x`", "main.rnl:3:"),
        ("print(1)\nif false { import \"deep/most.rnl\" as m }", "`undefined_here`", "deep/most.rnl:1:"),
        (
            "print(1)\nimport \"writes.rnl\" as w\nimport \"deep/most.rnl\" as m",
            "`undefined_here`",
            "most.rnl:1:",
        ),
    ];
    for (text, said, place) in refused {
        program.file("main.rnl", text);
        let run = program.run(&["main.rnl"]);
        assert_eq!((run.status, run.out.as_str()), (1, ""), "{text}\n{}", run.err);
        assert!(run.err.contains(said) && run.err.contains(place), "{text}\n{}", run.err);
        let check = program.run(&["check", "main.rnl"]);
        assert_eq!(check.status, 1, "{text}");
        assert!(check.err.contains(said) && check.err.contains(place), "{text}\n{}", check.err);
    }
    program.file("main.rnl", refused[0].0);
    let both = program.run(&["check", "main.rnl", "deep/most.rnl"]);
    assert_eq!(both.err.matches("`undefined_here`").count(), 1, "{}", both.err);
    // Programs that must still run: code that may succeed, or that never runs, is not rejected.
    let run = [
        ("if false { import \"nowhere.rnl\" as n }\nprint(1)", "1\n"),
        ("try { import \"deep/most.rnl\" as m\n m.outer() } catch e { print(e.kind) }", "Name\n"),
        ("try { import \"nowhere.rnl\" as n } catch e { print(e.kind) }", "Io\n"),
        (
            "fn load() { import \"syntax.rnl\" as s\n s }\ntry { load() } catch e { print(e.kind) }",
            "Syntax\n",
        ),
        (
            "fn a() { load() }\nfn load() { import \"syntax.rnl\" as s\n s }\ntry { a() } catch e { print(e.kind) }",
            "Syntax\n",
        ),
        ("let load = || { import \"syntax.rnl\" as s\n s }\nprint(2)", "2\n"),
        ("fn unused() { import \"syntax.rnl\" as s\n s }\nprint(3)", "3\n"),
        (
            "try { write(\"syntax.rnl\", \"let x = 5\") } catch e { throw e }\nimport \"syntax.rnl\" as s\nprint(s.x)",
            "5\n",
        ),
        (
            "let name = \"deep/most\"\nwrite(\"{name}.rnl\", \"fn new() {{ 6 }}\")\nimport \"deep/most.rnl\" as m\nprint(m.new())",
            "6\n",
        ),
        (
            "import \"util.rnl\" as u\nlet p = \"util.rnl\"\nu.rate = u.rate * 2\nprint(u.step(1), u.rate)\nwrite(p, \"\")",
            "2 1.0\n",
        ),
    ];
    for (text, printed) in run {
        program.file("main.rnl", text);
        let run = program.run(&["main.rnl"]);
        assert_eq!((run.status, run.out.as_str()), (0, printed), "{text}\n{}", run.err);
    }
    // Circular imports are reported at the import, and each file is read once.
    program.file("a.rnl", "import \"b.rnl\" as b\nfn f() { b.g() }");
    program.file("b.rnl", "fn g() { import \"a.rnl\" as a\n 7 }");
    program.file("main.rnl", "import \"a.rnl\" as a\nprint(a.f())");
    let run = program.run(&["main.rnl"]);
    assert_eq!((run.status, run.out.as_str()), (0, "7\n"), "{}", run.err);
}

#[test]
fn a_plan_lists_the_kernels_of_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rnl");
    let text =
        "let rows = option(\"--rows\", 2, \"how many\")\nlet x = randn(rows, 4)\nprint((x * 2 + 1).sum(1))\n";
    std::fs::write(&path, text).unwrap();
    let run = |args: &[&str]| {
        let mut command = command::runnel();
        command.args(["--backend", "emu", "plan", path.to_str().unwrap()]).args(args).output().unwrap()
    };
    let done = run(&["--rows", "3"]);
    let shown = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && shown.contains("over [3, 4] on cuda:0"), "{shown}");
    assert!(shown.ends_with("1 kernel\n") && !shown.contains("tensor("), "{shown}");
    assert_eq!(run(&["--row", "3"]).status.code(), Some(2));
    let done = run(&["--help"]);
    let shown = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && shown.contains("--rows VALUE  how many [default: 2]"), "{shown}");
    let done = run(&["--", "--help"]);
    assert!(done.status.success() && done.stdout.ends_with(b"1 kernel\n"), "behind `--` it is the script's");
}

#[test]
fn a_file_runs_and_prints() {
    let program = Program::new();
    program.file("hello.rnl", "#!/usr/bin/env runnel\nprint(\"hello\", 1 + 1)\n");
    for args in
        [&["hello.rnl"][..], &["run", "hello.rnl"], &["--", "hello.rnl"], &["--quiet", "run", "hello.rnl"]]
    {
        let ended = program.run(args);
        assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (0, "hello 2\n", ""), "{args:?}");
    }
}

#[test]
fn code_and_standard_input_run() {
    let program = Program::new();
    let ended = program.run(&["-e", "print(args())", "a", "--flag", "-e"]);
    assert_eq!((ended.status, ended.out.as_str()), (0, "[\"a\", \"--flag\", \"-e\"]\n"), "{}", ended.err);
    for args in [&["-"][..], &["run", "-"], &[]] {
        let ended = program.run_with(args, "let x = 20\nprint(x + 1)\n");
        assert_eq!((ended.status, ended.out.as_str()), (0, "21\n"), "{args:?} {}", ended.err);
    }
}

#[test]
fn results_that_are_wrong_without_an_error_are_warned_of_when_a_script_runs() {
    let program = Program::new();
    for (text, code) in [
        ("print([0] * 3)", "W0207"),
        ("let net = (n = 0, forward = |self| { self.n += 1; 2 })\nprint(net())", "W0208"),
    ] {
        program.file("warned.rnl", text);
        for arguments in [&["warned.rnl"][..], &["run", "warned.rnl"], &["-e", text]] {
            let ended = program.run(arguments);
            assert_eq!(ended.status, 0, "{}", ended.err);
            assert!(ended.err.contains(code) && ended.err.contains("help: "), "{text}: {}", ended.err);
        }
    }
}

#[test]
fn bad_values_of_the_script_s_options_are_status_2() {
    let program = Program::new();
    let text = "print(option(\"--rows\", 2), flag(\"--fast\"))\n";
    program.file("options.rnl", text).file("open.rnl", format!("{text}args()\n"));
    for name in ["options.rnl", "open.rnl"] {
        let ended = program.run(&[name, "--rows=3", "--fast"]);
        assert_eq!((ended.status, ended.out.as_str()), (0, "3 true\n"), "{}", ended.err);
        for (args, said) in [
            (&["--rows", "x"][..], "takes an int, not `x`"),
            (&["--rows"], "`--rows` needs a value"),
            (&["--fast=true"], "`--fast` takes no value"),
        ] {
            let ended = program.run(&[&[name], args].concat());
            assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{name} {args:?}");
            assert!(ended.err.contains("E0905") && ended.err.contains(said), "{name} {args:?} {}", ended.err);
        }
    }
}

#[test]
fn options_that_a_script_does_not_have_are_status_2() {
    let program = Program::new();
    // `args` in another name or a comment is not a call.
    program.file("sorted.rnl", "print(tensor([2, 1]).argsort(), flag(\"--quick\")) # kwargs, args\n");
    for (given, help) in [("--qiuck", "did you mean `--quick`?"), ("--no-fuse", "before the file")] {
        let ended = program.run(&["sorted.rnl", given]);
        assert_eq!((ended.status, ended.out.as_str()), (2, ""));
        assert!(ended.err.contains("E0905") && ended.err.contains(help), "{given} {}", ended.err);
    }
}

#[test]
fn an_uncaught_error_is_status_1_with_its_line() {
    let program = Program::new();
    program.file("bad.rnl", "print(\"before\")\nlet x = [1, 2]\nx[7]\n");
    let ended = program.run(&["bad.rnl"]);
    assert_eq!((ended.status, ended.out.as_str()), (1, "before\n"));
    assert!(ended.err.contains("E0315") && ended.err.contains("bad.rnl:3:"), "{}", ended.err);
    assert!(!ended.err.contains('\x1b'), "no colours where nobody looks: {:?}", ended.err);
    let coloured = program.run(&["--color", "always", "bad.rnl"]);
    assert!(coloured.err.contains('\x1b'));
}

#[test]
fn a_syntax_error_keeps_the_program_from_running() {
    let program = Program::new();
    program.file("bad.rnl", "print(\"before\")\nlet = 1\nprint(]\n");
    for args in [&["bad.rnl"][..], &["check", "bad.rnl"]] {
        let ended = program.run(args);
        assert_eq!((ended.status, ended.out.as_str()), (1, ""));
        assert!(ended.err.contains("bad.rnl:2:5") && ended.err.contains("bad.rnl:3:"), "{}", ended.err);
    }
}

#[test]
fn a_wrong_command_line_is_status_2_and_points_at_the_word() {
    let program = Program::new();
    for (args, parts) in [
        (&["--bakend", "emu", "x.rnl"][..], &["E0951", "`--bakend`", "did you mean `--backend`?"][..]),
        (&["--backend", "cpu", "x.rnl"], &["E0951", "`cpu`", "`auto`, `cuda` or `emu`"]),
        (&["--device-memory=4GB", "x.rnl"], &["E0951", "`4GB`", "`4GiB`"]),
        (&["--devices", "1000", "devices"], &["E0951", "`1000`"]),
        (&["--devices"], &["E0951", "`--devices` needs a value"]),
        (&["--races", "never", "x.rnl"], &["E0951", "deny"]),
        (&["--schedule", "7", "x.rnl"], &["E0951", "seed:"]),
        (&["run"], &["E0951", "FILE", "missing"]),
        (&["check"], &["E0951", "FILE"]),
        (&["explain", "E9999"], &["E0954", "E9999"]),
        (&["doc", "matmull"], &["E0954", "did you mean `matmul`?"]),
    ] {
        let ended = program.run(args);
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{args:?}: {}", ended.err);
        for part in parts {
            assert!(ended.err.contains(part), "{args:?} should say {part}:\n{}", ended.err);
        }
    }
}

#[test]
fn a_program_that_cannot_be_read_is_status_2() {
    let program = Program::new();
    program.file("train.rnl", "").file("lib/util.rnl", "").file("binary.rnl", b"let x = 1\nlet \xff = 2\n");
    for (args, parts) in [
        (&["trian.rnl"][..], &["E0952", "`trian.rnl`", "did you mean `train.rnl`?"][..]),
        (&["train"], &["E0952", "did you mean `train.rnl`?"]),
        (&["lib/utils.rnl"], &["E0952", "did you mean `lib/util.rnl`?"]),
        (&["lib"], &["E0953", "directory", "lib/util.rnl"]),
        (&["nowhere/at/all.rnl"], &["E0952"]),
        (&["binary.rnl"], &["E0113", "0xff", "line 2, column 5"]),
        (&["check", "train.rnl", "gone.rnl"], &["E0952"]),
    ] {
        let ended = program.run(args);
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{args:?}: {}", ended.err);
        for part in parts {
            assert!(ended.err.contains(part), "{args:?} should say {part}:\n{}", ended.err);
        }
    }
}

#[test]
fn a_script_has_its_own_options() {
    let program = Program::new();
    let text = "# Trains.\nlet n = option(\"--epochs\", 10, \"how many passes\")\n\
                let off = flag(\"--disable-cuda\", \"stay on the host\")\nprint(n, off)\n";
    program.file("train.rnl", text);
    assert_eq!(program.run(&["train.rnl"]).out, "10 false\n");
    assert_eq!(program.run(&["train.rnl", "--epochs", "3", "--disable-cuda"]).out, "3 true\n");
    let help = program.run(&["train.rnl", "--help"]);
    assert_eq!(help.status, 0);
    for part in ["Trains.", "--epochs VALUE", "how many passes", "[default: 10]", "--disable-cuda"] {
        assert!(help.out.contains(part), "{}", help.out);
    }
    let ended = program.run(&["train.rnl", "--epoch", "3"]);
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("did you mean `--epochs`?"), "{}", ended.err);
    assert_eq!(program.run(&["train.rnl", "--epochs", "many"]).status, 2);
}

#[test]
fn help_and_version_go_to_the_standard_output() {
    let program = Program::new();
    let help = program.run(&["--help"]);
    assert_eq!((help.status, help.err.as_str()), (0, ""));
    for name in ["run", "check", "devices", "explain", "doc", "--backend", "--device-memory"] {
        assert!(help.out.contains(name), "{}", help.out);
        if !name.starts_with('-') {
            assert_eq!(program.run(&[name, "--help"]).status, 0, "{name}");
        }
    }
    let version = program.run(&["--version"]);
    assert_eq!(
        (version.status, version.out.as_str()),
        (0, concat!("runnel ", env!("CARGO_PKG_VERSION"), "\n"))
    );
}

#[test]
fn check_reports_as_json() {
    let program = Program::new();
    program.file("good.rnl", "let x = 1\n").file("bad.rnl", "let = 1\n");
    let good = program.run(&["check", "good.rnl", "--json"]);
    assert_eq!((good.status, good.out.as_str()), (0, "[]\n"));
    let bad = program.run(&["check", "good.rnl", "bad.rnl", "--json"]);
    assert_eq!((bad.status, bad.err.as_str()), (1, ""));
    assert!(bad.out.contains("\"file\":\"bad.rnl\",\"line\":1,\"column\":5"), "{}", bad.out);
}

#[test]
fn devices_are_listed() {
    let program = Program::new();
    let ended = program.run(&["--devices", "2", "devices"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert!(ended.out.contains("cuda:1") && !ended.out.contains("cuda:2") && ended.out.contains("cpu"));
}

#[test]
fn explain_and_doc_print_pages() {
    let program = Program::new();
    let all = program.run(&["explain"]);
    assert!(all.out.lines().count() > 80 && all.status == 0, "{}", all.out);
    for id in all.out.lines().filter_map(|line| line.split("  ").next()) {
        let page = program.run(&["explain", id]);
        assert!(page.status == 0 && page.out.starts_with(id), "{id}: {}", page.err);
    }
    assert_eq!(program.run(&["explain", "e0101", "102"]).status, 0);
    assert!(program.run(&["doc", "len"]).out.starts_with("len("));
    assert!(program.run(&["doc"]).out.lines().count() > 50);
    let page = program.run(&["doc", "parallel.parallel_apply"]).out;
    assert!(page.starts_with("parallel.parallel_apply(functions, inputs, devices=none)\n\nRuns"), "{page}");
    assert!(page.contains("Example:\n    > import parallel"), "{page}");
    assert!(program.run(&["doc", "parallel"]).out.contains("parallel.replicate"));
    // PyTorch's names, and names with a type.
    for (asked, found) in [
        ("torch.cuda.memory_stats", "cuda.memory_stats("),
        ("torch.cuda.Stream.wait_event", "stream.wait_event("),
        ("torch.cuda.CUDAGraph.replay", "graph.replay("),
        ("Stream.priority", "stream.priority\n"),
        ("Event.from_ipc_handle", "Event.from_ipc_handle("),
        ("Tensor.is_cuda", "tensor.is_cuda\n"),
    ] {
        let page = program.run(&["doc", asked]).out;
        assert!(page.starts_with(found), "{asked}: {page}");
    }
}

#[test]
fn an_error_inside_a_module_of_the_library_shows_its_place_and_the_call() {
    let program = Program::new();
    let ended = program.run(&["-e", "import parallel\nparallel.parallel_apply([abs], [])"]);
    assert_eq!(ended.status, 1);
    for part in ["<parallel>:", "there are 1 functions for 0 inputs", "called from <-e>:2"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

#[test]
fn bad_settings_in_the_environment_are_refused() {
    let program = Program::new();
    let output = program.command(&["-e", "1"]).env("RUNNEL_BACKEND", "gpu").output().unwrap();
    let ended = ended(output);
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("E0962") && ended.err.contains("RUNNEL_BACKEND"), "{}", ended.err);
    for wrong in ["512MB", "1.5GiB", "-1", "99999999999999TiB"] {
        for args in [&["-e", "1"][..], &["cache"]] {
            let mut command = program.command(args);
            let refused = self::ended(command.env("RUNNEL_CACHE_LIMIT", wrong).output().unwrap());
            assert_eq!(refused.status, 2, "{wrong}");
            assert!(refused.err.contains("E0962") && refused.err.contains(wrong), "{}", refused.err);
        }
    }
}

#[test]
fn a_closed_pipe_is_quiet() {
    let program = Program::new();
    program.file("long.rnl", "for i in 0..200000 { print(i) }\n");
    let mut child =
        program.command(&["long.rnl"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}

#[test]
fn the_same_script_prints_the_same_bytes_twice() {
    let program = Program::new();
    program.file("a.rnl", "let d = dict()\nfor i in 0..50 { d[\"k{i}\"] = i }\nprint(d)\n");
    let first = program.run(&["a.rnl"]);
    assert_eq!(first.status, 0, "{}", first.err);
    assert_eq!(first.out, program.run(&["a.rnl"]).out);
}

#[test]
fn allowed_races_are_reported_with_both_lines() {
    let program = Program::new();
    program.file("race.rnl", "let x = randn(1000)\nlet s = Stream()\nwith stream(s) {\n    x.sum()\n}\n");
    let denied = program.run(&["--quiet", "race.rnl"]);
    let warned = program.run(&["--quiet", "--races", "warn", "race.rnl"]);
    let fixed = program.run(&["--quiet", "--races", "fix", "race.rnl"]);
    assert_eq!((denied.status, warned.status, fixed.status), (1, 0, 0));
    assert_eq!(fixed.err, "");
    for text in [denied.err, warned.err] {
        for part in ["E0601", "1 │ let x", "4 │     x.sum()", "s.wait_stream(cuda.default_stream())"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }
}

#[test]
fn capture_errors_show_the_line_where_the_capture_began() {
    let program = Program::new();
    let text = "let x = ones(3)\nwith graph(Graph()) {\n    let y = x + 1\n    print(y)\n}\n";
    program.file("read.rnl", text);
    let refused = program.run(&["--quiet", "read.rnl"]);
    assert_eq!((refused.status, refused.out.as_str()), (1, ""));
    for part in ["E0820", "2 │ with graph", "the capture begins here", "4 │     print(y)"] {
        assert!(refused.err.contains(part), "{part} is missing:\n{}", refused.err);
    }
    assert!(!refused.err.contains("E0821"), "one error is enough:\n{}", refused.err);
    program.file("empty.rnl", "let g = Graph()\nwith graph(g) { 1 + 1 }\ng.replay()\n");
    let warned = program.run(&["--quiet", "empty.rnl"]);
    assert_eq!(warned.status, 0);
    assert!(warned.err.contains("the CUDA Graph is empty"), "{}", warned.err);
}

#[test]
fn dropped_imaginary_parts_are_reported_once() {
    let program = Program::new();
    program
        .file("drop.rnl", "let z = complex([1.0], [2.0])\nz.to(f32)\nones(1).copy_(z)\nz.real\nz.bool()\n");
    let warned = program.run(&["--quiet", "drop.rnl"]);
    assert_eq!(warned.status, 0);
    assert_eq!(warned.err.matches("discards the imaginary").count(), 1, "{}", warned.err);
}

#[test]
fn examples_exist_where_the_readme_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for word in readme.split(|c: char| c.is_whitespace() || "`()[]\"".contains(c)) {
        let is_path = ["examples/", "docs/", "tests/", "src/"].iter().any(|start| word.starts_with(start));
        if is_path && !word.contains('*') {
            assert!(root.join(word.trim_end_matches(['.', ',', ':'])).exists(), "README names `{word}`");
        }
    }
}

#[test]
fn fmt_lays_out_and_checks() {
    let program = Program::new();
    program
        .file("a.rnl", "let x=f(1,k = 2)   # c\nif x{\n1\n}\n")
        .file("b.rnl", "let y = 1\n")
        .file("bad.rnl", "let = 1");
    let check = program.run(&["fmt", "--check", "a.rnl", "b.rnl"]);
    assert_eq!((check.status, check.out.as_str(), check.err.as_str()), (1, "a.rnl\n", ""));
    let done = program.run(&["fmt", "a.rnl", "b.rnl"]);
    assert_eq!((done.status, done.out.as_str(), done.err.as_str()), (0, "", ""));
    let text = std::fs::read_to_string(program.folder.path().join("a.rnl")).unwrap();
    assert_eq!(text, "let x = f(1, k=2)  # c\nif x {\n    1\n}\n");
    assert_eq!(std::fs::read_dir(program.folder.path()).unwrap().count(), 3, "nothing is left beside them");
    assert_eq!(program.run(&["fmt", "--check", "a.rnl", "b.rnl"]).status, 0);
    let piped = program.run_with(&["fmt", "-"], "1+1");
    assert_eq!((piped.status, piped.out.as_str()), (0, "1 + 1\n"));
    let bad = program.run(&["fmt", "bad.rnl"]);
    assert_eq!(bad.status, 1);
    assert!(bad.err.contains("E01"), "{}", bad.err);
    assert_eq!(std::fs::read_to_string(program.folder.path().join("bad.rnl")).unwrap(), "let = 1");
    assert_eq!(program.run(&["fmt", "gone.rnl"]).status, 2);
}

#[test]
fn fmt_keeps_every_script_of_ours() {
    let program = Program::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    for folder in ["examples", "stdlib", "stdlib/nn", "tests/lang", "tests/conformance", "benches"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "rnl") {
                let name = format!("{}/{}", folder, path.file_name().unwrap().to_str().unwrap());
                program.file(&name, std::fs::read(&path).unwrap());
                names.push(name);
            }
        }
    }
    assert!(names.len() > 100);
    // What readers take as a pattern is laid out.
    let mut args = vec!["fmt", "--check"];
    let shown = |name: &&str| name.starts_with("examples") || name.starts_with("stdlib");
    args.extend(names.iter().map(String::as_str).filter(shown));
    assert_eq!(program.run(&args).out, "", "write `runnel fmt` over these");
    let mut args = vec!["fmt"];
    args.extend(names.iter().map(String::as_str));
    let done = program.run(&args);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    args.insert(1, "--check");
    assert_eq!(program.run(&args).out, "", "formatting twice changes something");
}

#[test]
fn tests_of_scripts_run() {
    let program = Program::new();
    program.file(
        "t/a.rnl",
        "fn double(x) { 2 * x }\ntest \"doubles\" { assert(double(2) == 4) }\ntest \"fails\" {\n    assert(double(2) == 5, \"no\")\n}\n",
    );
    program.file("t/b/c.rnl", "let x = ones(3)\ntest \"sums\" { assert(x.sum().item() == 3.0) }");
    program.file("t/none.rnl", "assert(true)");
    let ended = program.run(&["test", "t"]);
    let expected = "t/a.rnl\n  ok      doubles\n  FAILED  fails\nt/b/c.rnl\n  ok      sums\n3 tests: 2 passed, 1 failed\n";
    assert_eq!((ended.status, ended.out.as_str()), (1, expected));
    assert!(ended.err.contains("E0901") && ended.err.contains("a.rnl:4"), "{}", ended.err);
    let some = program.run(&["test", "--filter", "ou", "t"]);
    assert_eq!(some.status, 0, "{}", some.err);
    assert!(some.out.ends_with("1 test: 1 passed, 2 left out\n"), "{}", some.out);
    program.file("t/bad.rnl", "1 // 0");
    let broken = program.run(&["test", "t/bad.rnl"]);
    assert_eq!((broken.status, broken.out.as_str()), (1, "t/bad.rnl\n0 tests: 0 passed, 1 file broken\n"));
    program.file("t/d.rnl", "import \"a.rnl\" as a\ntest \"own\" { assert(a.double(1) == 2) }");
    assert_eq!(program.run(&["test", "t/d.rnl"]).out, "t/d.rnl\n  ok      own\n1 test: 1 passed\n");
    assert_eq!(program.run(&["test", "gone.rnl"]).status, 2);
    assert_eq!(program.run(&["t/a.rnl"]).status, 0, "without the command they do not run");
}

#[test]
fn shells_complete_command_lines() {
    let program = Program::new();
    for (shell, part) in
        [("bash", "complete -F _runnel"), ("zsh", "#compdef runnel"), ("fish", "complete -c runnel")]
    {
        let ended = program.run(&["completions", shell]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{shell}");
        assert!(ended.out.contains(part), "{shell}");
        let backend = if shell == "fish" { "-l backend" } else { "--backend" };
        assert!(ended.out.contains("explain") && ended.out.contains(backend), "{shell}");
    }
    assert!(program.run(&["completions", "zsh"]).out.contains("{_runnel_commands; _files}"));
    let ended = program.run(&["completions", "basch"]);
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    assert!(ended.err.contains("`basch` is not a value of"), "{}", ended.err);
}

#[cfg(unix)]
#[test]
fn bash_completes_commands_options_values_and_files() {
    let program = Program::new();
    program.file("completions", program.run(&["completions", "bash"]).out);
    let complete = |words: &str| {
        let script = format!(
            "source ./completions; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _runnel runnel \
             \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\" 2>/dev/null; echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        let run = bash.args(["--norc", "-c", &script]).current_dir(program.folder.path()).output().unwrap();
        String::from_utf8(run.stdout).unwrap().trim().to_string()
    };
    assert_eq!(complete("runnel expl"), "explain");
    assert_eq!(complete("runnel --no-"), "--no-fuse");
    assert_eq!(complete("runnel --backend c"), "cuda");
    // Without candidates, bash completes file names.
    assert_eq!(complete("runnel check tr"), "");
    assert_eq!(complete("runnel tr"), "");
}

#[test]
fn progress_is_silent_without_a_terminal() {
    let program = Program::new();
    let ended = program.run(&["-e", "for x in progress(0..3, \"loop\") { print(x) }"]);
    assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (0, "0\n1\n2\n", ""));
}

#[test]
fn exit_ends_a_script_in_good_order_with_its_status() {
    let program = Program::new();
    program.file(
        "exit.rnl",
        "fn work() {\n    defer print(\"closed\")\n    with device(1) { exit(3) }\n}\ntry { work() } catch e { print(e.kind) }\nprint(\"never\")\n",
    );
    let ended = program.run(&["exit.rnl"]);
    assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (3, "closed\n", ""));
    let ended = program.run(&["-e", "print(map(|x| if x > 1 { exit() } else { x }, [1, 2]))"]);
    assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (0, "", ""));
    let ended = program.run(&["-e", "exit(256)"]);
    assert_eq!(ended.status, 1);
    assert!(ended.err.contains("an exit status goes from 0 to 255, not 256"), "{}", ended.err);
    // `exit` in a module ends the whole program, and a failing `defer` is reported.
    program.file("stops.rnl", "exit(4)");
    assert_eq!(program.run(&["-e", "try { import \"stops.rnl\" as s } catch e { }"]).status, 4);
    // Tests: after a file calls `exit(0)`, its tests still count; a test that calls it has failed.
    program.file("t.rnl", "test \"ends\" { exit(0) }\ntest \"holds\" { assert(true) }\nexit()\n");
    let ended = program.run(&["test", "t.rnl"]);
    assert_eq!(ended.status, 1, "{}", ended.out);
    assert!(
        ended.out.contains("FAILED  ends") && ended.out.contains("2 tests: 1 passed, 1 failed"),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("the script ended with status 0"), "{}", ended.err);
}

/// Sends Ctrl-C to a program once it has written the file `going`; returns how it ended.
#[cfg(unix)]
fn interrupted(program: &Program, args: &[&str]) -> Ended {
    let mut command = program.command(args);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let going = program.folder.path().join("going");
    let process = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    let patience = std::time::Instant::now();
    while !going.exists() && patience.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::fs::remove_file(going).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    ended(child.wait_with_output().unwrap())
}

#[cfg(unix)]
#[test]
fn an_interrupted_test_runs_its_deferred_code() {
    let program = Program::new();
    let endless = "defer print(\"closed\")\n    write(\"going\", \"\")\n    let end = clock() + 60\n    while clock() < end { }";
    let tests = format!("test \"first\" {{\n    {endless}\n}}\ntest \"second\" {{ print(\"never\") }}\n");
    program.file("t.rnl", tests);
    program.file("run.rnl", format!("fn f() {{\n    {endless}\n}}\nf()\n"));
    for args in [&["test", "t.rnl"][..], &["run.rnl"]] {
        let ended = interrupted(&program, args);
        assert_eq!(ended.status, 130, "{args:?}: {}", ended.err);
        assert!(ended.out.contains("closed\n") && !ended.out.contains("never"), "{args:?}: {}", ended.out);
        assert!(ended.err.contains("E1004"), "{args:?}: {}", ended.err);
    }
}

#[test]
fn the_cache_of_kernels_is_shown_limited_and_cleared() {
    let program = Program::new();
    let home = program.folder.path().join("home");
    let kernels = home.join(".cache/runnel/kernels");
    let run = |args: &[&str], set: &[(&str, &str)]| {
        let mut command = program.command(args);
        command.env("HOME", &home).env_remove("XDG_CACHE_HOME").env_remove("RUNNEL_CACHE");
        ended(command.env_remove("RUNNEL_CACHE_LIMIT").envs(set.iter().copied()).output().unwrap())
    };
    let field = |ended: &Ended, name: &str| {
        assert_eq!(ended.status, 0, "{}", ended.err);
        let line = ended.out.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
        line[name.len()..].trim().to_string()
    };
    let shown = run(&["cache"], &[]);
    assert_eq!(field(&shown, "path"), kernels.display().to_string());
    assert_eq!((field(&shown, "entries"), field(&shown, "limit")), ("0".into(), "1.00 GiB".into()));
    // Entries of equal size, used in order, and another program's file.
    std::fs::create_dir_all(&kernels).unwrap();
    for number in 0..10u64 {
        let path = kernels.join(format!("{number:032x}"));
        std::fs::write(&path, vec![0; 1 << 10]).unwrap();
        let used = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000 + number);
        std::fs::File::open(&path).unwrap().set_modified(used).unwrap();
    }
    std::fs::write(kernels.join("notes.txt"), "mine").unwrap();
    let shown = run(&["cache"], &[("RUNNEL_CACHE_LIMIT", "8KiB")]);
    assert_eq!((field(&shown, "entries"), field(&shown, "size")), ("10".into(), "10.00 KiB".into()));
    assert_eq!(field(&shown, "limit"), "8.00 KiB (RUNNEL_CACHE_LIMIT)");
    let limited = run(&["cache", "limit", "5KiB"], &[]);
    assert_eq!(field(&limited, "limit"), "5.00 KiB (`runnel cache limit`)");
    assert_eq!(field(&limited, "entries"), "4");
    assert!(kernels.join(format!("{:032x}", 9)).exists() && !kernels.join(format!("{:032x}", 0)).exists());
    assert_eq!(field(&run(&["cache"], &[]), "limit"), "5.00 KiB (`runnel cache limit`)");
    assert_eq!(run(&["cache", "clear"], &[]).out, "removed 4 kernels, 4.00 KiB\n");
    assert_eq!(field(&run(&["cache", "limit", "default"], &[]), "limit"), "1.00 GiB");
    assert_eq!(std::fs::read_dir(&kernels).unwrap().count(), 1, "somebody's file stays");
    // Wrong sizes, no home, a cache that is switched off, and one that cannot be written.
    assert_eq!(run(&["cache", "limit", "5KB"], &[]).status, 2);
    assert_eq!(run(&["cache", "grow"], &[]).status, 2);
    assert!(run(&["cache"], &[("RUNNEL_CACHE", "")]).out.contains("RUNNEL_CACHE is empty"));
    assert!(run(&["cache"], &[("HOME", "")]).out.contains("no home folder"));
    let refused = run(&["cache", "limit", "1MiB"], &[("RUNNEL_CACHE", "/dev/null")]);
    assert_eq!(refused.status, 2);
    assert!(refused.err.contains("E0956"), "{}", refused.err);
    assert_eq!(run(&["-e", "print(1)"], &[("RUNNEL_CACHE", "/dev/null"), ("HOME", "")]).out, "1\n");
}

#[test]
fn a_loader_without_devices_warns_once_that_nothing_is_page_locked() {
    let program = Program::new();
    let code = "import data\nfor _ in 0..2 { for batch in data.loader(arange(4, device=cpu), pin_memory=true) { print(batch) } }";
    let ended = program.run(&["--devices", "0", "-e", code]);
    assert_eq!((ended.status, ended.out.lines().count()), (0, 8), "{}", ended.err);
    assert_eq!(ended.err.matches("E0708: `pin_memory` has no effect").count(), 1, "{}", ended.err);
    // It shows the script's line, not the module's.
    assert!(ended.err.contains("<-e>:2:") && !ended.err.contains("<data>"), "{}", ended.err);
    let ended = program.run(&["--devices", "1", "-e", code]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    // A missing device is an error at the loader's line.
    let code = "import data\nlet x = arange(4, device=cpu)\nlet loader = data.loader(x, device=\"foo:0\")";
    let ended = program.run(&["-e", code]);
    assert!(ended.err.contains("E0501") && ended.err.contains("<-e>:3:"), "{}", ended.err);
}

#[test]
fn the_time_between_events_of_two_devices_is_an_error_with_help() {
    let code = "let (a, b) = (Event(timing=true), Event(timing=true))\na.record()\nwith device(1) { b.record() }\ncuda.synchronize()\ncuda.synchronize(1)\na.elapsed_time(b)";
    let ended = Program::new().run(&["-e", code]);
    assert_eq!(ended.status, 1);
    let said = ended.err.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["recorded on cuda:0 and the end on cuda:1", "both events on streams of one device", "`clock()`"]
    {
        assert!(said.contains(part), "{}", ended.err);
    }
}
