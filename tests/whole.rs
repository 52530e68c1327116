//! Files that scripts write are replaced atomically: on full disks, after kills, and through links.
#![cfg(unix)]
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "common/command.rs"]
mod command;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn command(code: &str, folder: &Path) -> Command {
    let mut command = command::runnel();
    command.args(["--backend", "emu", "--quiet", "-e", code]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(code: &str, folder: &Path) -> Output {
    let done = command(code, folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Every function that replaces a file, with the file it writes.
const WRITERS: &[(&str, &str)] = &[
    ("a.txt", "write(\"a.txt\", \"x\" * 200000)"),
    ("a.npy", "save(\"a.npy\", zeros(300, 300))"),
    ("a.npz", "save(\"a.npz\", (a = zeros(300, 300), b = ones(3)))"),
    ("b.npz", "save(\"b.npz\", dict(map(|i| (\"t{i}\", zeros(9, 9)), 0..300)))"),
    ("a.safetensors", "save(\"a.safetensors\", (a = zeros(300, 300)))"),
    ("a.csv", "save(\"a.csv\", zeros(300, 300))"),
    ("a.raw", "save(\"a.raw\", zeros(300, 300))"),
    ("a.png", "save(\"a.png\", (rand(3, 300, 300) * 255).to(u8))"),
    ("a.ppm", "save(\"a.ppm\", (rand(3, 300, 300) * 255).to(u8))"),
    ("a.json", "with profile(\"a.json\") { for i in 0..2000 { ones(2).sum().item() } }"),
];

#[test]
fn a_full_disk_leaves_the_old_content_and_nothing_else() {
    for (name, code) in WRITERS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        for old in [Some("what was there before"), None] {
            old.inspect(|old| std::fs::write(&file, old).unwrap());
            // No file may grow past 40 blocks of 512 bytes.
            let code = format!("try {{ {code} }} catch e {{ print(\"refused:\", e) }}");
            let mut limited = Command::new("sh");
            limited.args(["-c", "ulimit -f 40; exec \"$0\" --backend emu -q -e \"$1\""]);
            limited.arg(env!("CARGO_BIN_EXE_runnel")).arg(&code).current_dir(folder.path());
            let done = limited.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.starts_with("refused:"), "{code}: {done:?}");
            assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{code}");
            assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), old, "{code}");
            assert_eq!(
                names(folder.path()).len(),
                usize::from(old.is_some()),
                "{code}: {:?}",
                names(folder.path())
            );
            std::fs::remove_file(&file).ok();
        }
        // The same code without the limit writes it.
        run(code, folder.path());
        assert_eq!(names(folder.path()), [*name]);
    }
}

#[test]
fn permissions_and_links_stay() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["plain", "target", "shared"] {
        std::fs::write(at(name), "a text that is longer than the new one").unwrap();
    }
    std::fs::set_permissions(at("plain"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("target", at("link")).unwrap();
    symlink("nowhere yet", at("dangling")).unwrap();
    std::fs::hard_link(at("shared"), at("other name")).unwrap();
    let code = "for name in [\"plain\", \"link\", \"dangling\", \"shared\", \"fresh\"] { write(name, name) }\nwrite(\"plain\", \"!\", append=true)\nwrite(\"/dev/null\", \"gone\")\nwrite(\"/dev/stdout\", \"shown\")";
    assert_eq!(run(code, folder.path()).stdout, b"shown");
    let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    assert_eq!(text("plain"), "plain!");
    assert_eq!(at("plain").metadata().unwrap().mode() & 0o777, 0o640);
    assert_eq!(text("target"), "link");
    assert_eq!(text("nowhere yet"), "dangling");
    assert!(at("link").is_symlink() && at("dangling").is_symlink());
    assert_eq!(text("other name"), "shared");
    assert_eq!(at("shared").metadata().unwrap().nlink(), 2);
    assert_eq!(names(folder.path()).len(), 8);
}

#[test]
fn a_file_that_may_be_written_is_written_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    for (name, mode) in [("open", 0o666), ("closed", 0o444)] {
        std::fs::write(inner.join(name), "before").unwrap();
        std::fs::set_permissions(inner.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o555)).unwrap();
    let code = "for name in [\"open\", \"closed\", \"new\"] { try { write(\"inner/\" ++ name, \"after\") } catch e { print(name) } }";
    let said = run(code, folder.path()).stdout;
    std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(std::fs::read_to_string(inner.join("open")).unwrap(), "after");
    // The superuser may write any file.
    if !rustix::process::geteuid().is_root() {
        assert_eq!(said, b"closed\nnew\n");
        assert_eq!(std::fs::read_to_string(inner.join("closed")).unwrap(), "before");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_script_leaves_the_old_content_or_the_new() {
    let (old, new) = ("o".repeat(300_000), "n".repeat(300_000));
    let code = "let (old, new) = (\"o\" * 300000, \"n\" * 300000)\nprint(\"begun\")\nwhile true { write(\"file\", new); write(\"file\", old) }";
    const KILLS: u64 = 30;
    let mut left = 0;
    for round in 0..KILLS {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), &old).unwrap();
        let mut child = command(code, folder.path()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        std::thread::sleep(Duration::from_micros(round * 1_100));
        child.kill().unwrap();
        child.wait().unwrap();
        let text = std::fs::read_to_string(folder.path().join("file")).unwrap();
        assert!(text == old || text == new, "{} bytes", text.len());
        // The last step runs outside the killed process, and may take a moment longer.
        let is_left = || names(folder.path()).len() > 1;
        let mut waits = 0..200;
        while is_left() && waits.next().is_some() {
            std::thread::sleep(Duration::from_millis(10));
        }
        left += usize::from(is_left());
    }
    // If files have a name from the start, a kill leaves the partial file.
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::WRONLY;
    if rustix::fs::open(std::env::temp_dir(), flags, rustix::fs::Mode::RUSR).is_ok() {
        assert_eq!(left, 0, "leftovers of {KILLS} kills");
    }
}
