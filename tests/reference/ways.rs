//! Reports that a script alone cannot cause: those of the command line, of limits, of several files.

use runnel::base::{Code, SourceMap};
use runnel::engine::report::{Look, Severity, render};
use runnel::{Backend, Builder, DeviceId, Dtype, Engine, Error, FileAccess, RawTensor, Shared};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How to cause a report, and the report.
pub struct Shown {
    /// The commands or code that cause it.
    pub how: String,
    /// The report.
    pub text: String,
}

/// The report of a code, if a script alone cannot cause it.
pub fn shown(code: &Code) -> Option<Shown> {
    on_the_command_line(code.id)
        .or_else(|| in_a_program(code.id))
        .or_else(|| in_a_group(code.id))
        .or_else(|| elsewhere(code.id))
}

/// Scripts run by two processes, whose rank 0 reports the code.
const GROUPS: &[(&str, &str)] = &[
    (
        "E0535",
        "dist.init()\nlet data = ones(2 + dist.rank())\nif dist.rank() == 1 { data += ones(2) }\ndist.all_reduce(data)",
    ),
    ("E0536", "dist.init(timeout=1)\nif dist.rank() == 0 { dist.all_reduce(ones(2)) } else { sleep(60) }"),
    ("E0537", "dist.init()\nlet part = ones(4 + dist.rank())\ndist.all_reduce(part)"),
];

/// The report of rank 0 of two processes, and the reports when rank 0 is missing.
fn in_a_group(id: &str) -> Option<Shown> {
    // A listener reserves the port until the processes need it.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let start = |script: &str, rank: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runnel"));
        command
            .args(["-e", script])
            .env("RUNNEL_BACKEND", "emu")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        for (name, value) in [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "2")] {
            command.env(name, value);
        }
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env_remove("TORCHELASTIC_USE_AGENT_STORE").env_remove("TORCHELASTIC_RUN_ID");
        command.spawn().unwrap()
    };
    let report = |child: Child| {
        let text = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        text.replace(&format!(":{port}"), ":29500")
    };
    if id == "E0534" {
        let how = "```console\n$ RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 runnel -e 'dist.init()'\n```\n\n\
                   A web server listens at port 29500:\n";
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
            }
        });
        return Some(Shown { how: how.to_string(), text: report(start("dist.init()", "1")) });
    }
    let (_, script) = GROUPS.iter().find(|(of, _)| *of == id)?;
    drop(listener);
    let (first, mut second) = (start(script, "0"), start(script, "1"));
    let text = report(first);
    second.kill().ok();
    second.wait().unwrap();
    let how = format!("Two processes run this, and rank 0 reports the error:\n\n```rnl\n{script}\n```\n");
    text.contains(id).then_some(Shown { how, text })
}

/// Errors that need another machine, a terminal or a failing disk, made directly.
fn elsewhere(id: &str) -> Option<Shown> {
    use runnel::driver::cuda::error as cuda;
    use runnel::driver::error as device;
    use runnel::group::error as group;
    let (when, error) = match id {
        "E0503" => (
            "`runnel --backend cuda FILE` on a machine without a driver",
            device::no_backend("cuda", "no usable NVIDIA driver: `libcuda.so.1` was not found"),
        ),
        "E0539" => {
            ("`dist.init()` under `torchrun`, in an engine without `.groups(true)`", group::forbidden())
        }
        "E0805" => (
            "A GPU that fails permanently",
            device::device_failed("CUDA", "cuStreamSynchronize", "an illegal memory access was encountered"),
        ),
        "E0810" => ("A machine without a driver", cuda::no_driver("`libcuda.so.1` was not found")),
        "E0811" => {
            ("A driver without a visible device, such as with `CUDA_VISIBLE_DEVICES=`", cuda::no_device())
        }
        "E0812" => ("A driver of 2022", cuda::old_driver(11_080)),
        "E0813" => (
            "A GPU without CUDA's libraries",
            cuda::no_library("NVRTC", &["libnvrtc.so.13", "libnvrtc.so.12"], "the CUDA toolkit"),
        ),
        "E0814" => (
            "A kernel that this version of NVRTC rejects",
            cuda::kernel_rejected("map", "runnel.cu(12): error: identifier \"f\" is undefined"),
        ),
        "E0815" => ("A GPU, and tensors of very many dimensions", cuda::program_too_large(1_100)),
        "E0925" => (
            "A disk that is full",
            runnel::files::error::reading(std::io::Error::from(std::io::ErrorKind::StorageFull)),
        ),
        "E0928" => (
            "`dist.init()` in a program that embeds Runnel without the feature `dist`",
            runnel::library::left_out("dist"),
        ),
        "E0955" => {
            let known = ["help", "type", "mem", "streams", "plan", "time", "load", "save", "reset", "quit"];
            ("`:stream` in a session", runnel::cli::error::unknown_command("stream", known.into_iter()))
        }
        "E0956" => {
            let refused = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
            let path = Path::new("/usr/share/session.rnl");
            ("`:save /usr/share/session.rnl` in a session", runnel::cli::error::unwritable(path, &refused))
        }
        "E1006" => (
            "```rnl\nfn f(x) { map(f, [x]) }\nf(1)\n```\n\nOn a machine with the default stack size",
            runnel::vm::error::callback_depth(100),
        ),
        "E1007" => ("A function with 60,001 variables", runnel::vm::error::function_size()),
        _ => return None,
    };
    let text = render(&error, &SourceMap::default(), Severity::Error, Look::PLAIN);
    Some(Shown { how: format!("{when}:\n"), text })
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
    ("E0708", &[], &[], &["-e", "warn(\"the learning rate is 0\")"]),
    ("E0707", &[], &[], &["-e", "complex([1.0], [2.0]).to(f32)"]),
    (
        "E0706",
        &[],
        &[("RUNNEL_FAULT", "launch:1")],
        &["-e", "let y = ones(2) + 1\ntry { print(y) } catch e { print(e.kind) }\nprint(y)"],
    ),
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
    } else if id == "E0919" {
        bomb(&folder.path().join("large.npz"));
        args.extend(["-e", "load(\"large.npz\")"].map(str::to_string));
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
        how += "201 nested brackets:\n";
    }
    text.contains(id).then_some(Shown { how, text })
}

/// A compressed file of 100 MB of zeros.
fn bomb(path: &Path) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    zip.start_file("x.npy", zip::write::SimpleFileOptions::default()).unwrap();
    let header = format!("{:117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (100000000,), }");
    zip.write_all(b"\x93NUMPY\x01\x00\x76\x00").unwrap();
    zip.write_all(header.as_bytes()).unwrap();
    for _ in 0..100 {
        zip.write_all(&vec![0; 1_000_000]).unwrap();
    }
    zip.finish().unwrap();
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
        "E0803" => {
            let handle = e.interrupt_handle();
            e.register_fn("ctrl_c", move || handle.interrupt());
            let waiting = "let x = ones(600, 600)\nlet y = x @ x\nctrl_c()\ncuda.synchronize()";
            let error = e.eval::<()>(waiting).unwrap_err();
            let how = "Ctrl-C while the host waits:\n".to_string();
            Some(Shown { how, text: render(&error, e.sources(), Severity::Error, Look::PLAIN) })
        }
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
        "E0927" => {
            let error = e.eval::<()>("input(\"your name: \")").unwrap_err();
            let how =
                "In an engine without `.input(...)`:\n\n```rnl\ninput(\"your name: \")\n```\n".to_string();
            Some(Shown { how, text: e.report(&error) })
        }
        "E0966" => {
            struct Box(i64);
            e.register_type::<Box>("box").method("take", |this: &mut Box, other: Shared<Box>| {
                other.with(|other| this.0 += std::mem::take(&mut other.0))
            });
            e.set("b", Shared::new(Box(1))).unwrap();
            let error = e.eval::<()>("b.take(b)").unwrap_err();
            let how =
                "A method of Rust that is given its own receiver:\n\n```rnl\nb.take(b)\n```\n".to_string();
            Some(Shown { how, text: e.report(&error) })
        }
        "E0967" => {
            let (dtype, device) = (Dtype::F32, DeviceId::Cpu);
            let raw = RawTensor { ptr: 0, shape: &[2], strides: None, dtype, device };
            // SAFETY: it is rejected before any code reads it.
            let taken = unsafe { e.tensor_from_raw(raw, || {}) };
            plain(
                "engine.tensor_from_raw(RawTensor { ptr: 0, shape: &[2], strides: None, dtype, device }, release)",
                &taken.unwrap_err(),
            )
        }
        "E1003" => limited(
            "host_memory(1 << 20)",
            engine().host_memory(1 << 20),
            "let s = \"0123456789abcdef\"\nwhile true { s = s ++ s }",
        ),
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
