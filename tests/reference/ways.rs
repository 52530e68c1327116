//! Reports that no script alone ends in: those of the command line, of limits, of several files.

use runnel::base::{Code, SourceMap};
use runnel::engine::report::{Look, Severity, render};
use runnel::{Backend, Builder, DeviceId, Engine, Error, FileAccess};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How a report comes about, and the report.
pub struct Shown {
    /// What its reader would do.
    pub how: String,
    /// What is said then.
    pub text: String,
}

/// Codes that have no report here, and why.
pub const WITHOUT: &[(&str, &str)] = &[
    ("E0503", "Only a machine without a GPU says it."),
    ("E0534", "It needs a port at which another program listens."),
    ("E0535", "It needs several processes, one of which fails."),
    ("E0536", "It needs several processes, one of which does not come."),
    ("E0537", "It needs several processes."),
    ("E0539", "It needs a launcher, and an engine that does not allow groups."),
    ("E0706", "It follows the failure of another operation, which has a report of its own."),
    ("E0803", "It needs Ctrl-C while the host waits for a device."),
    ("E0805", "It needs a GPU whose context fails."),
    ("E0810", "Only a machine without a driver says it."),
    ("E0811", "It needs a driver that shows no device."),
    ("E0812", "It needs an old driver."),
    ("E0813", "It needs a GPU without CUDA's libraries."),
    ("E0814", "It needs a GPU, whose compiler writes the message."),
    ("E0815", "It needs a GPU."),
    ("E0919", "It needs a compressed file that unpacks to more than 64 MiB."),
    ("E0925", "It needs a disk that fails."),
    ("E0955", "A session says it, at a terminal."),
    ("E0956", "It needs a folder that refuses to be written to."),
    ("E0966", "It needs a method of Rust that is given its own receiver."),
    ("E0967", "It needs memory of another library."),
    ("E1003", "The numbers are those of the machine."),
    ("E1006", "The number is that of the machine's stack."),
    ("E1007", "It needs a function of megabytes."),
];

/// The report of a code, where it takes more than a script.
pub fn shown(code: &Code) -> Option<Shown> {
    on_the_command_line(code.id).or_else(|| in_a_program(code.id))
}

type Files = &'static [(&'static str, &'static [u8])];

type Environment = &'static [(&'static str, &'static str)];

/// Code, files, environment, arguments.
const COMMANDS: &[(&str, Files, Environment, &[&str])] = &[
    ("E0113", &[("latin1.rnl", b"print(\"caf\xe9\")\n")], &[], &["latin1.rnl"]),
    ("E0530", &[], &[("RANK", "5"), ("WORLD_SIZE", "2")], &["-e", "dist.init()"]),
    (
        "E0531",
        &[],
        &[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "4")],
        &["--devices", "2", "-e", "dist.init()"],
    ),
    (
        "E0533",
        &[],
        &[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")],
        &["-e", "dist.init(timeout=0.1)"],
    ),
    ("E0514", &[], &[("RUNNEL_FAULT", "lunch:3")], &["-e", "zeros(2)"]),
    ("E0703", &[], &[("RUNNEL_ALLOC_CONF", "max_split_size_mb:1")], &["-e", "zeros(2)"]),
    ("E0705", &[], &[], &["-e", "cuda.memory_cached()"]),
    ("E0707", &[], &[], &["-e", "complex([1.0], [2.0]).to(f32)"]),
    ("E0801", &[], &[("RUNNEL_FAULT", "launch:1")], &["-e", "print(ones(2) + 1)"]),
    ("E0824", &[], &[], &["-e", "with graph(Graph()) { }"]),
    (
        "E0904",
        &[("a.rnl", b"import \"b.rnl\" as b\n"), ("b.rnl", b"import \"a.rnl\" as a\nlet x = 1\n")],
        &[],
        &["a.rnl"],
    ),
    (
        "E0905",
        &[("train.rnl", b"let epochs = option(\"--epochs\", 10, \"how many passes\")\nprint(epochs)\n")],
        &[],
        &["train.rnl", "--epoch", "3"],
    ),
    (
        "E0917",
        &[(
            "a.npy",
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }                                                             \n\x80\x04K\x01.",
        )],
        &[],
        &["-e", "load(\"a.npy\")"],
    ),
    ("E0951", &[], &[], &["--bakend", "emu", "train.rnl"]),
    ("E0952", &[("train.rnl", b"")], &[], &["trian.rnl"]),
    ("E0953", &[("lib/util.rnl", b"")], &[], &["lib"]),
    ("E0954", &[], &[], &["explain", "E9999"]),
    ("E0962", &[], &[("RUNNEL_BACKEND", "gpu")], &["-e", "zeros(2)"]),
];

fn on_the_command_line(id: &str) -> Option<Shown> {
    let folder = tempfile::tempdir().unwrap();
    let (mut how, mut env, mut args) = (String::new(), Vec::new(), Vec::new());
    if let Some((_, files, with, given)) = COMMANDS.iter().find(|(of, ..)| *of == id) {
        for (name, text) in *files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            let binary = text.is_empty() || text.starts_with(b"\x93");
            if let (false, Ok(text)) = (binary, std::str::from_utf8(text)) {
                how += &format!("```rnl\n# {name}\n{text}```\n\n");
            }
        }
        env.extend(with.iter().copied());
        args.extend(given.iter().map(ToString::to_string));
    } else if id == "E0110" {
        args.extend(["-e".to_string(), format!("{}1{}", "[".repeat(201), "]".repeat(201))]);
    } else if id == "E0921" {
        link(folder.path())?;
        args.extend(["-e", "load(\"link.npy\")"].map(str::to_string));
    } else {
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_runnel"));
    command
        .args(&args)
        .current_dir(folder.path())
        .env("RUNNEL_BACKEND", "emu")
        .env_remove("RUNNEL_ALLOC_CONF");
    let text = String::from_utf8(command.envs(env.clone()).output().unwrap().stderr).unwrap();
    let quoted = |arg: &String| match arg.contains([' ', '(', '"']) {
        true => format!("'{arg}'"),
        false => arg.clone(),
    };
    let words: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .chain(["runnel".to_string()])
        .chain(args.iter().filter(|arg| arg.len() < 100).map(quoted))
        .collect();
    if id != "E0110" {
        how += &format!("```console\n$ {}\n```\n", words.join(" "));
    } else {
        how += "201 brackets within one another:\n";
    }
    text.contains(id).then_some(Shown { how, text })
}

#[cfg(unix)]
fn link(folder: &Path) -> Option<()> {
    std::os::unix::fs::symlink("elsewhere.npy", folder.join("link.npy")).ok()
}

#[cfg(not(unix))]
fn link(_: &Path) -> Option<()> {
    None
}

fn engine() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(2)
}

/// A script within limits.
fn limited(how: &str, builder: Builder, script: &str) -> Option<Shown> {
    let mut engine = builder.build().unwrap();
    let error = engine.eval::<()>(script).unwrap_err();
    Some(Shown {
        how: format!("In an engine with `.{how}`:\n\n```rnl\n{script}\n```\n"),
        text: engine.report(&error),
    })
}

fn plain(how: &str, error: &Error) -> Option<Shown> {
    let text = render(error, &SourceMap::default(), Severity::Error, Look::PLAIN);
    Some(Shown { how: format!("```rust\n{how}\n```\n"), text })
}

fn in_a_program(id: &str) -> Option<Shown> {
    let mut e = engine().build().unwrap();
    match id {
        "E0328" => plain("engine.call::<i64>(\"step\", ())", &e.call::<i64>("step", ()).unwrap_err()),
        "E0511" => plain("Engine::builder().devices(1000)", &engine().devices(1000).build().err().unwrap()),
        "E0704" => limited("device_limit(1 << 20)", engine().device_limit(1 << 20), "zeros(1 << 20)"),
        "E0908" => {
            limited("files(FileAccess::None)", engine().files(FileAccess::None), "read(\"secret.txt\")")
        }
        "E0961" => plain("engine.eval::<i64>(\"[1, 2]\")", &e.eval::<i64>("[1, 2]").unwrap_err()),
        "E0963" => {
            e.register_fn("fetch", |_: i64| Err::<i64, _>("no answer".to_string()));
            let error = e.eval::<i64>("1 + fetch(7)").unwrap_err();
            Some(Shown { how: "```rnl\n1 + fetch(7)\n```\n".to_string(), text: e.report(&error) })
        }
        "E0964" => plain(
            "engine.tensor(&[1i64], &[2], DeviceId::Cpu)",
            &e.tensor(&[1i64], &[2], DeviceId::Cpu).unwrap_err(),
        ),
        "E0965" => {
            let x = engine().build().unwrap().tensor(&[1i64], &[1], DeviceId::Cpu).unwrap();
            plain("one.set(\"x\", &tensor_of_another)", &e.set("x", &x).unwrap_err())
        }
        "E1002" => limited("fuel(1000)", engine().fuel(1000), "while true { }"),
        "E1004" => {
            e.interrupt_handle().interrupt();
            let error = e.eval::<()>("while true { }").unwrap_err();
            Some(Shown {
                how: "After Ctrl-C:\n\n```rnl\nwhile true { }\n```\n".to_string(),
                text: e.report(&error),
            })
        }
        "E1008" => limited(
            "time(Duration::from_millis(20))",
            engine().time(Duration::from_millis(20)),
            "while true { }",
        ),
        "E1009" => limited("tensors(2)", engine().tensors(2), "let kept = [ones(1), ones(1), ones(1)]"),
        "E1010" => limited("output_limit(10)", engine().output_limit(10), "print(\"a long story\")"),
        _ => None,
    }
}
