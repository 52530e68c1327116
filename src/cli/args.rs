//! The command line grammar.
//!
//! `runnel FILE ...` is short for `runnel run FILE ...`. Everything after FILE belongs to the script,
//! including options; [`normalized`] inserts a `--` there before clap parses the line.

use crate::base::bytes_from;
use crate::device::{Backend, Config};
use crate::driver::Schedule;
use crate::plan::RaceMode;
use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold());

const EXAMPLES: &str = "\
Examples:
  runnel train.rnl --epochs 5      run a file; what follows it belongs to the script
  runnel train.rnl --help          the script's own options
  runnel -e 'print(arange(6))'     run a line of code
  runnel                           interactive session
  runnel explain E0401             what an error means and how to fix it";

/// Run tensor scripts on CUDA devices, or on emulated ones.
#[derive(Parser, Debug)]
#[command(name = "runnel", version, styles = STYLES, after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(
    override_usage = "runnel [OPTIONS] FILE [ARGS]...\n       runnel [OPTIONS] -e CODE [ARGS]...\n       runnel [OPTIONS] [COMMAND]"
)]
pub struct Cli {
    #[command(flatten)]
    pub options: Options,
    /// Run CODE instead of a file
    #[arg(short = 'e', long = "eval", value_name = "CODE")]
    pub code: Option<String>,
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Arguments of the script
    #[arg(hide = true, trailing_var_arg = true, requires = "code")]
    pub args: Vec<OsString>,
}

/// The command to run.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a script; `-` reads it from the standard input
    Run {
        /// The file and its own arguments
        #[arg(value_name = "FILE", required = true, num_args = 1.., trailing_var_arg = true)]
        #[arg(value_hint = ValueHint::FilePath)]
        program: Vec<OsString>,
    },
    /// Run a script, hide its output, and list the kernels that it launches
    Plan {
        /// The file and its own arguments
        #[arg(value_name = "FILE", required = true, num_args = 1.., trailing_var_arg = true)]
        #[arg(value_hint = ValueHint::FilePath)]
        program: Vec<OsString>,
    },
    /// Check scripts for errors without running them
    Check {
        /// The files; `-` is the standard input
        #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        files: Vec<OsString>,
        /// Write the reports as JSON to the standard output
        #[arg(long)]
        json: bool,
    },
    /// Run the `test "name" { }` blocks of scripts
    Test {
        /// Files, or folders whose `.rnl` files are run
        #[arg(value_name = "FILE", default_value = ".", value_hint = ValueHint::AnyPath)]
        files: Vec<OsString>,
        /// Run only the tests whose name contains TEXT
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
    },
    /// Format scripts: indentation, spaces, comments; line breaks stay
    Fmt {
        /// The files; `-` formats the standard input to the standard output
        #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        files: Vec<OsString>,
        /// Change nothing; list the files that would change, and exit with status 1 if there are any
        #[arg(long)]
        check: bool,
    },
    /// Start the language server: LSP over the standard streams
    Lsp,
    /// List the devices that scripts can use
    Devices,
    /// Show how much disk space the compiled kernels take; limit or remove them
    Cache {
        #[command(subcommand)]
        action: Option<CacheAction>,
    },
    /// Explain error codes; without one, list them all
    Explain {
        /// Such as E0401
        #[arg(value_name = "CODE")]
        codes: Vec<String>,
    },
    /// Show the documentation of functions, methods and types; without a name, list them all
    Doc {
        /// Such as `matmul`, `tensor.sum` or `stream`
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Print a completion script for a shell: `source <(runnel completions bash)`
    Completions {
        /// bash, elvish, fish, powershell or zsh
        #[arg(value_name = "SHELL", hide_possible_values = true)]
        shell: Shell,
    },
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Options of every command.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Where tensors live: CUDA GPUs, emulated devices, or CUDA if there is a GPU
    #[arg(long, global = true, value_name = "auto|cuda|emu", hide_possible_values = true)]
    #[arg(value_parser = one_of(Backend::NAMED.iter().map(|&(name, _)| name), crate::engine::backend))]
    pub backend: Option<Backend>,
    /// Number of emulated devices [default: 4]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub devices: Option<u16>,
    /// Memory of each emulated device, such as 512MiB [default: 4GiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    pub device_memory: Option<u64>,
    /// What to do about a missing wait between streams: raise an error, warn and insert it, insert it, or nothing
    #[arg(long, global = true, value_name = "deny|warn|fix|allow", hide_possible_values = true)]
    #[arg(value_parser = one_of(["deny", "warn", "fix", "allow"], RaceMode::from_name))]
    pub races: Option<RaceMode>,
    /// Launch every operation separately; the results are the same
    #[arg(long, global = true)]
    pub no_fuse: bool,
    /// Run the queues of emulated devices in an order drawn from a seed, evenly or by priorities
    #[arg(long, global = true, value_name = "seed:N|pct:N", value_parser = schedule)]
    pub schedule: Option<Schedule>,
    /// Write what the script does on the devices to FILE, which Perfetto (ui.perfetto.dev) opens
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<PathBuf>,
    /// Draw the streams of the devices after the script has ended
    #[arg(long, global = true)]
    pub timeline: bool,
    /// When to use colours: `auto` on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "auto|always|never",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub color: Color,
    /// Print no notices
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

impl Options {
    /// Overrides the device settings of the environment by those of the command line.
    pub fn configure(&self, config: &mut Config) {
        config.backend = self.backend.unwrap_or(config.backend);
        config.devices = self.devices.map(usize::from).or(config.devices);
        config.device_memory = self.device_memory.or(config.device_memory);
        config.schedule = self.schedule.clone().or(config.schedule.take());
    }
}

/// A value with one of these names; shells complete them.
fn one_of<T: Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = &'static str>,
    of: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(move |name| of(&name).ok_or("this name is unknown"))
}

fn schedule(text: &str) -> Result<Schedule, String> {
    text.parse().map_err(|()| "write `seed:` or `pct:` and a number, such as `seed:7`".into())
}

/// `4GiB`, `512MiB`, `64KiB`, `4096`: bytes, at least one.
fn size(text: &str) -> Result<u64, String> {
    match bytes_from(text)? {
        0 => Err("write a size such as `4GiB`, `512MiB` or a number of bytes".into()),
        bytes => Ok(bytes),
    }
}

/// Actions on the cache of compiled kernels.
#[derive(Subcommand, Clone, Copy, Debug)]
pub enum CacheAction {
    /// Keep at most SIZE from now on, such as 512MiB, or `default`: 1 GiB
    Limit {
        /// Bytes; the least recently used kernels are removed first
        #[arg(value_name = "SIZE", value_parser = cache_limit)]
        limit: CacheLimit,
    },
    /// Remove all kernels; they are compiled again when they are needed
    Clear,
}

/// A limit, or the default.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimit(pub Option<u64>);

fn cache_limit(text: &str) -> Result<CacheLimit, String> {
    match text {
        "default" => Ok(CacheLimit(None)),
        text => bytes_from(text).map(|bytes| CacheLimit(Some(bytes))),
    }
}

/// The arguments with `run` and `--` inserted around the script's name, so that clap does not parse the
/// script's own arguments.
pub fn normalized(given: &[OsString]) -> Vec<OsString> {
    let command = Cli::command();
    let run = command.find_subcommand("run");
    let known = |word: &str| command.find_subcommand(word).is_some();
    // Whether an option's value is a separate argument. In a word of short options (`-qe CODE`), the first
    // one with a value takes the rest of the word or the next word.
    let all = || command.get_arguments().chain(run.into_iter().flat_map(|c| c.get_arguments()));
    let takes = |arg: Option<&clap::Arg>| arg.is_some_and(|arg| arg.get_action().takes_values());
    let takes_value = |token: &str| match token.strip_prefix("--") {
        Some(long) => takes(all().find(|arg| arg.get_long() == Some(long))),
        None => {
            let letters: Vec<char> = token.chars().skip(1).collect();
            let first = letters.iter().position(|&c| takes(all().find(|arg| arg.get_short() == Some(c))));
            first.is_some_and(|at| at + 1 == letters.len())
        }
    };
    let is_code = |token: &str| match token.strip_prefix("--") {
        Some(long) => long == "eval" || long.starts_with("eval="),
        None => token.contains('e'),
    };
    let mut out: Vec<OsString> = given.iter().take(1).cloned().collect();
    let (mut has_code, mut has_run) = (false, false);
    let mut at = 1;
    while at < given.len() {
        let token = given[at].to_string_lossy();
        let is_option = token.starts_with('-') && token != "-";
        if !is_option || token == "--" {
            if has_code || has_run {
                out.push("--".into());
            } else if !is_option && known(&token) {
                out.push(given[at].clone());
                if !matches!(&*token, "run" | "plan") {
                    out.extend_from_slice(&given[at + 1..]);
                    return out;
                }
                has_run = true;
                at += 1;
                continue;
            } else {
                out.extend(["run".into(), "--".into()]);
            }
            out.extend_from_slice(&given[at + usize::from(token == "--")..]);
            return out;
        }
        has_code |= is_code(&token);
        out.push(given[at].clone());
        if takes_value(&token) && at + 1 < given.len() {
            at += 1;
            out.push(given[at].clone());
        }
        at += 1;
    }
    out
}

/// The value of `--color` in a command line that clap rejected.
pub fn color_of(given: &[OsString]) -> Color {
    let mut color = Color::default();
    for (at, token) in given.iter().enumerate() {
        let token = token.to_string_lossy();
        let value = match token.strip_prefix("--color") {
            Some("") => given.get(at + 1).map(|v| v.to_string_lossy().into_owned()),
            Some(rest) => rest.strip_prefix('=').map(str::to_string),
            None => None,
        };
        if let Some(value) = value.and_then(|v| Color::from_str(&v, false).ok()) {
            color = value;
        }
    }
    color
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn norm(line: &str) -> String {
        normalized(&words(line)).iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_file_is_recognised_and_its_arguments_are_kept() {
        for (given, expected) in [
            ("runnel", "runnel"),
            ("runnel a.rnl --help -x run", "runnel run -- a.rnl --help -x run"),
            ("runnel --backend emu a.rnl --backend", "runnel --backend emu run -- a.rnl --backend"),
            ("runnel --backend=emu -q - a", "runnel --backend=emu -q run -- - a"),
            ("runnel run --no-fuse check --races", "runnel run --no-fuse -- check --races"),
            ("runnel run -- check", "runnel run -- check"),
            ("runnel plan a.rnl --rows 3", "runnel plan -- a.rnl --rows 3"),
            ("runnel check a.rnl --json", "runnel check a.rnl --json"),
            ("runnel --devices 2 check a.rnl", "runnel --devices 2 check a.rnl"),
            ("runnel -e 1+1", "runnel -e 1+1"),
            ("runnel -e 1+1 --quiet check --x", "runnel -e 1+1 --quiet -- check --x"),
            ("runnel -qe 1+1 a --x", "runnel -qe 1+1 -- a --x"),
            ("runnel -e1+1 a", "runnel -e1+1 -- a"),
            ("runnel -q a.rnl", "runnel -q run -- a.rnl"),
            ("runnel -- --odd.rnl a", "runnel run -- --odd.rnl a"),
        ] {
            assert_eq!(norm(given), expected);
        }
    }

    #[test]
    fn clap_agrees() {
        Cli::command().debug_assert();
        let cli =
            Cli::try_parse_from(normalized(&words("runnel --races warn a.rnl --help --races x"))).unwrap();
        assert_eq!(cli.options.races, Some(RaceMode::Warn));
        match cli.command {
            Some(Command::Run { program }) => assert_eq!(program, words("a.rnl --help --races x")),
            other => panic!("{other:?}"),
        }
        let cli = Cli::try_parse_from(normalized(&words("runnel -e 1 -q a --b"))).unwrap();
        assert_eq!((cli.code.as_deref(), cli.options.quiet), (Some("1"), true));
        assert_eq!(cli.args, words("a --b"));
    }

    #[test]
    fn sizes_are_bytes_in_powers_of_1024() {
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("1_024"), Ok(1024));
        for bad in ["", "GiB", "4GB", "0", "99999999999999999999", "18446744073709551615KiB", "-1", "1.5GiB"]
        {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
