//! System functions: files, environment, time, input.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::core::owned;
use super::files::open::{put, read_text};
use super::files::whole::open_in_place;
use super::{input, optional, takes, text_param};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param};
use crate::vm::{NativeDef, Value, Values, Vm, error};

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "read",
        receiver: "",
        signature: takes(&[text_param("path")]),
        doc: "The text of a file.",
        example: "let path = files.temp_folder() ++ \"/note.txt\"\nwrite(path, \"hello\")\nassert(read(path) == \"hello\")",
        run: read,
    },
    NativeDef {
        name: "write",
        receiver: "",
        signature: takes(&[
            text_param("path"),
            text_param("text"),
            Param::or("append", Kind::Bool, Default::Bool(false)),
        ]),
        doc: "Writes a string to a file, replacing the whole file, or appending to it with `append`. If replacing fails, the old file stays.",
        example: "let path = files.temp_folder() ++ \"/log.txt\"\nwrite(path, \"one\\n\")\nwrite(path, \"two\\n\", append = true)\nassert(read(path).splitlines() == [\"one\", \"two\"])",
        run: write,
    },
    NativeDef {
        name: "exists",
        receiver: "",
        signature: takes(&[text_param("path")]),
        doc: "Whether a file or folder exists at a path.",
        example: "assert(not exists(\"no-such-file.txt\"))",
        run: |vm, args| {
            let path = allowed(vm, &args[0])?;
            Ok(Value::Bool(std::path::Path::new(&path).exists()))
        },
    },
    NativeDef {
        name: "env",
        receiver: "",
        signature: takes(&[text_param("name"), optional("default", Kind::Any)]),
        doc: "The value of an environment variable, or the default.",
        example: "assert(env(\"NO_SUCH_VARIABLE\", \"none\") == \"none\")",
        run: |vm, args| {
            let found = if vm.limits.environment { std::env::var(owned(&args[0])).ok() } else { None };
            Ok(found.map_or_else(|| args[1].clone(), Value::str))
        },
    },
    NativeDef {
        name: "args",
        receiver: "",
        signature: takes(&[]),
        doc: "The arguments that the script was started with.",
        example: "assert(type(args()) == \"list\")",
        run: |vm, _| {
            Ok(Value::list(vm.script_args.iter().map(|a| Value::str(a.as_str())).collect::<Values>()))
        },
    },
    NativeDef {
        name: "input",
        receiver: "",
        signature: takes(&[Param::or("prompt", Kind::Str, Default::Str(""))]),
        doc: "Prints the prompt and reads a line of the standard input; `none` at its end. An interrupt ends the wait. \
              In a program that embeds Runnel it reads the lines of `Builder::input`, and is an error without that.",
        example: "",
        run: |vm, args| {
            let prompt = owned(&args[0]);
            vm.write(&prompt)?;
            vm.rt.flush()?;
            match input::line(vm)? {
                None => Ok(Value::None),
                Some(line) => Ok(Value::str(line.trim_end_matches(['\n', '\r']))),
            }
        },
    },
    NativeDef {
        name: "exit",
        receiver: "",
        signature: takes(&[Param::or("status", Kind::Int, Default::Int(0))]),
        doc: "Ends the script: deferred code runs, contexts are left, and `try` does not catch it. `status`, 0 to 255, is the program's exit status; 0 means success. An embedding program receives an error with this status, and continues.",
        example: "if len(args()) > 9 {\n    print(\"too many arguments\")\n    exit(2)\n}",
        run: |_, args| {
            let status = args[0].as_int().unwrap_or(0);
            match u8::try_from(status) {
                Ok(status) => Err(error::exit(status)),
                Err(_) => {
                    Err(error::bad_value(0, format!("an exit status goes from 0 to 255, not {status}")))
                }
            }
        },
    },
    NativeDef {
        name: "time",
        receiver: "",
        signature: takes(&[]),
        doc: "Seconds since 1970, as a float.",
        example: "assert(time() > 0)",
        run: |_, _| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            Ok(Value::Float(since.as_secs_f64()))
        },
    },
    NativeDef {
        name: "clock",
        receiver: "",
        signature: takes(&[]),
        doc: "Seconds of a monotonic clock, for measurements. Tensor work is asynchronous: wait for it first.",
        example: "let start = clock()\nassert(clock() >= start)",
        run: |vm, _| Ok(Value::Float(vm.uptime().as_secs_f64())),
    },
    NativeDef {
        name: "sleep",
        receiver: "",
        signature: takes(&[Param::new("seconds", Kind::Float)]),
        doc: "Waits for a number of seconds. Devices continue to work.",
        example: "sleep(0)",
        run: |vm, args| {
            let seconds = args[0].as_float().unwrap_or(0.0);
            if seconds.is_nan() || seconds < 0.0 {
                return Err(error::bad_value(0, "a pause takes 0 seconds or more"));
            }
            // Devices work during the pause.
            vm.rt.flush()?;
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < seconds {
                vm.poll()?;
                let left = seconds - start.elapsed().as_secs_f64();
                std::thread::sleep(Duration::from_secs_f64(left.clamp(0.0, 0.01)));
            }
            Ok(Value::None)
        },
    },
];

/// The reason of an I/O error, as the system words it but without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "access is denied".into(),
        std::io::ErrorKind::IsADirectory => "it is a folder".into(),
        _ => error.to_string(),
    }
}

/// The path to use, if scripts may: the only access check of functions that take a path.
pub(super) fn allowed(vm: &Vm, path: &Value) -> Result<String> {
    vm.limits.files.resolve(&owned(path))
}

fn read(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let text = read_text(&allowed(vm, &args[0])?)?;
    vm.charge(text.len() / 64)?;
    Ok(Value::str(text))
}

fn write(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    use std::io::Write;
    let path = allowed(vm, &args[0])?;
    let bytes = args[1].as_str().unwrap_or("").as_bytes();
    if !matches!(args[2], Value::Bool(true)) {
        return put(&path, bytes).map(|()| Value::None);
    }
    let added = open_in_place(path.as_ref(), true).and_then(|mut file| file.write_all(bytes));
    added.map(|()| Value::None).map_err(|e| error::file(&path, &reason(&e)))
}
