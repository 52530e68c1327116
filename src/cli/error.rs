//! Errors of the command line: E095x.

use crate::base::{Code, Error, ErrorKind, SourceMap, Span, suggest};
use clap::error::{ContextKind, ContextValue, ErrorKind as Refusal};
use std::ffi::OsString;
use std::path::Path;

/// Every code of this directory.
pub static CODES: &[&Code] = &[&USAGE, &NO_FILE, &UNREADABLE, &UNKNOWN_TOPIC, &UNKNOWN_COMMAND, &UNWRITABLE];

/// An invalid command line.
pub static USAGE: Code = Code {
    id: "E0951",
    kind: ErrorKind::Value,
    title: "wrong command line",
    page: "An option is unknown, has a wrong value, or lacks its value. Options of `runnel` come before the \
           file; what follows the file belongs to the script.\n\n`runnel --help` lists the options and \
           commands, `runnel FILE --help` those of a script.",
    example: "",
};

/// A missing program file.
pub static NO_FILE: Code = Code {
    id: "E0952",
    kind: ErrorKind::Io,
    title: "no such file",
    page: "No file has the given name. The help lists files nearby with similar names.\n\nTo run a file that \
           has the name of a command (`check`), write `runnel run check`.",
    example: "",
};

/// An unreadable program file.
pub static UNREADABLE: Code = Code {
    id: "E0953",
    kind: ErrorKind::Io,
    title: "a program cannot be read",
    page: "The path is a directory or something else that is not a file, or the operating system refuses to \
           read it; the message gives the reason.",
    example: "",
};

/// `runnel explain` or `runnel doc` with an unknown topic.
pub static UNKNOWN_TOPIC: Code = Code {
    id: "E0954",
    kind: ErrorKind::Name,
    title: "no documentation for this name",
    page: "`runnel explain` without a code lists the error codes, `runnel doc` without a name the functions, \
           methods and types.",
    example: "",
};

/// An unknown `:` command of the interactive session.
pub static UNKNOWN_COMMAND: Code = Code {
    id: "E0955",
    kind: ErrorKind::Name,
    title: "no such session command",
    page: "Lines that begin with `:` are commands of the interactive session; `:help` lists them.",
    example: "",
};

/// `runnel fmt` cannot write the result.
pub static UNWRITABLE: Code = Code {
    id: "E0956",
    kind: ErrorKind::Io,
    title: "a file cannot be written",
    page: "The operating system refuses to write a program, a session, or the cache of compiled kernels; the \
           message gives the reason. The file is unchanged. `:save` of the session overwrites only a file \
           that it has written before.\n\n`runnel fmt -` formats the standard input to the standard output.",
    example: "",
};

pub(super) fn no_file(path: &Path) -> Error {
    if path.as_os_str().is_empty() {
        return Error::new(&NO_FILE, "the name of the file is empty");
    }
    let error = Error::new(&NO_FILE, format!("there is no file `{}`", path.display()));
    let near = near_files(path);
    match near.as_slice() {
        [] => error,
        [one] => error.help(format!("did you mean `{one}`?")),
        several => error.help(format!("near names: `{}`", several.join("`, `"))),
    }
}

pub(super) fn directory(path: &Path) -> Error {
    let error = Error::new(&UNREADABLE, format!("`{}` is a directory, not a program", path.display()));
    let mut inside = scripts_in(path);
    inside.sort();
    match inside.first() {
        Some(first) => error.help(format!("name a file in it, such as `{}`", path.join(first).display())),
        None => error,
    }
}

/// A file that is not a saved session.
pub(super) fn not_ours(path: &Path) -> Error {
    Error::new(&UNWRITABLE, format!("`{}` already exists, and no session has written it", path.display()))
        .help("name another file, or remove this one")
}

pub(super) fn unreadable(path: &Path, reason: &std::io::Error) -> Error {
    Error::new(&UNREADABLE, format!("cannot read `{}`: {}", path.display(), reason_text(reason)))
}

pub fn unwritable(path: &Path, reason: &std::io::Error) -> Error {
    Error::new(&UNWRITABLE, format!("cannot write `{}`: {}", path.display(), reason_text(reason)))
}

fn reason_text(reason: &std::io::Error) -> String {
    match reason.kind() {
        std::io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        _ => reason.to_string(),
    }
}

pub(super) fn unknown_code<'a>(code: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::new(&UNKNOWN_TOPIC, format!("there is no error code `{code}`"));
    match suggest(code, known) {
        Some(near) => error.help(format!("did you mean `{near}`? `runnel explain` lists all codes")),
        None => error.help("`runnel explain` lists all codes"),
    }
}

pub(super) fn unknown_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::new(&UNKNOWN_TOPIC, format!("nothing named `{name}` is documented"));
    match suggest(name, known) {
        Some(near) => error.help(format!("did you mean `{near}`? `runnel doc` lists all names")),
        None => error.help("`runnel doc` lists all names"),
    }
}

pub fn unknown_command<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::new(&UNKNOWN_COMMAND, format!("there is no command `:{name}`"));
    match suggest(name, known) {
        Some(near) => error.help(format!("did you mean `:{near}`? `:help` lists the commands")),
        None => error.help("`:help` lists the commands"),
    }
}

pub(super) fn command_misses(name: &str, usage: &str) -> Error {
    Error::new(&USAGE, format!("`:{name}` needs an argument")).help(format!("write `{usage}`"))
}

/// Scripts in a directory, sorted by name; only a few hundred entries are read.
fn scripts_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(1000);
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".rnl"))
        .collect()
}

/// Files next to a missing one with similar names, best first.
fn near_files(path: &Path) -> Vec<String> {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return Vec::new() };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let all = scripts_in(folder.unwrap_or(Path::new(".")));
    let stem = name.strip_suffix(".rnl").unwrap_or(name);
    let mut near: Vec<&str> = Vec::new();
    let with_ending = all.iter().find(|n| n.strip_suffix(".rnl") == Some(name)).map(String::as_str);
    near.extend(with_ending.or_else(|| suggest(name, all.iter().map(String::as_str))));
    let begins = |n: &&String| stem.len() > 2 && n.starts_with(stem) && !near.contains(&n.as_str());
    let others: Vec<&str> = all.iter().filter(begins).map(String::as_str).take(3).collect();
    near.extend(others);
    let full = |n: &str| folder.map_or(n.to_string(), |f| f.join(n).display().to_string());
    near.into_iter().map(full).collect()
}

/// Converts clap's error to one that points into the command line.
pub(super) fn from_clap(refused: &clap::Error, given: &[OsString]) -> (Error, SourceMap) {
    let text = |kind| match refused.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    // `--backend <auto|cuda|emu>`: the option alone.
    let option = argument.split([' ', '=']).next().unwrap_or_default().to_string();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let mut pointed = option.clone();
    let (message, mut help) = match refused.kind() {
        Refusal::UnknownArgument => (
            format!("there is no option `{option}`"),
            text(ContextKind::SuggestedArg)
                .map(|near| format!("did you mean `{}`?", near.split(' ').next().unwrap_or(&near))),
        ),
        Refusal::InvalidValue if value.is_empty() => {
            (format!("`{option}` needs a value"), valid_values(refused))
        }
        Refusal::InvalidValue => {
            pointed.clone_from(&value);
            (format!("`{value}` is not a value of `{option}`"), valid_values(refused))
        }
        Refusal::ValueValidation => {
            pointed.clone_from(&value);
            let reason = std::error::Error::source(refused).map(ToString::to_string);
            (format!("`{value}` is not a value of `{option}`"), reason)
        }
        Refusal::MissingRequiredArgument => {
            let name = argument.trim_end_matches("...").trim_matches(['<', '>']);
            (format!("`{name}` is missing"), None)
        }
        Refusal::ArgumentConflict => {
            let other = text(ContextKind::PriorArg).unwrap_or_default();
            if option == other.split(' ').next().unwrap_or_default() {
                (format!("`{option}` is given twice"), None)
            } else {
                (format!("`{option}` cannot be combined with `{other}`"), None)
            }
        }
        _ => {
            let line = refused.to_string();
            let line = line.lines().next().unwrap_or_default().trim_start_matches("error: ");
            (line.trim_end_matches('.').to_string(), None)
        }
    };
    if help.is_none() {
        help = Some("`runnel --help` lists the options and commands".into());
    }
    let mut error = Error::new(&USAGE, message);
    if let Some(help) = help {
        error = error.help(help);
    }
    let is_meant = |word: &str| {
        !pointed.is_empty()
            && (word == pointed || (!option.is_empty() && word.starts_with(&format!("{option}="))))
    };
    let (line, found) = command_line(given, is_meant);
    let mut sources = SourceMap::default();
    if let Some((_, base)) = sources.add("command line", &line)
        && let Some((lo, hi)) = found
    {
        error = error.at(Span::new(base + lo as u32, base + hi as u32), "");
    }
    (error, sources)
}

/// The command line as one line of text, and the position of the last word that satisfies `is_meant`.
fn command_line(given: &[OsString], is_meant: impl Fn(&str) -> bool) -> (String, Option<(usize, usize)>) {
    let (mut line, mut found) = ("runnel".to_string(), None);
    for word in given.iter().skip(1).map(|word| word.to_string_lossy()) {
        line.push(' ');
        if is_meant(&word) {
            found = Some((line.len(), line.len() + word.len()));
        }
        line.push_str(&word.replace('\n', " "));
    }
    (line, found)
}

fn valid_values(refused: &clap::Error) -> Option<String> {
    match refused.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) => {
            let (last, others) = valid.split_last()?;
            Some(match others {
                [] => format!("write `{last}`"),
                others => format!("write `{}` or `{last}`", others.join("`, `")),
            })
        }
        _ => None,
    }
}
