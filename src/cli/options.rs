//! The options that a script declares with `option("--name", ...)` and `flag("--name", ...)`, read from its
//! source: for `runnel FILE --help`, and to reject unknown options before the script runs.

use crate::base::{Error, SourceMap, Span, suggest};
use crate::syntax::ast::{Arg, Block, Expr, ExprKind, Stmt, StmtKind, StrPiece};
use crate::syntax::{Class, classify};
use crate::vm::error::OPTION;
use clap::CommandFactory;

/// The declarations of a script.
pub struct Declared {
    options: Vec<Declaration>,
    /// The comment at the start.
    about: Option<String>,
    /// Whether it may take other arguments: it calls `args`, imports files, or does not parse.
    open: bool,
}

struct Declaration {
    name: String,
    /// The default's text; `None` for a flag.
    default: Option<String>,
    help: String,
}

/// Returns whether runnel itself has an option.
fn is_own(name: &str) -> bool {
    let options = super::args::Cli::command();
    options.get_arguments().filter_map(|own| own.get_long()).any(|own| name.strip_prefix("--") == Some(own))
}

impl Declared {
    /// The declarations of a program, without running it.
    pub fn of(text: &str) -> Declared {
        let mut found = Declared { options: Vec::new(), about: about(text), open: false };
        // Most programs have neither options nor arguments: avoid parsing them twice.
        if !["option", "flag"].iter().any(|word| text.contains(word)) {
            found.open = true;
            return found;
        }
        let mut sources = SourceMap::default();
        let Some((_, base)) = sources.add("", text) else { return found };
        let parsed = crate::syntax::parse(base, text);
        let reads_args = || {
            let is_args =
                |(place, class)| matches!(class, Class::Name | Class::Function) && &text[place] == "args";
            text.contains("args") && classify(text).into_iter().any(is_args)
        };
        found.open = !parsed.errors.is_empty() || text.contains("import \"") || reads_args();
        found.block(&parsed.block, &sources);
        found
    }

    /// Returns whether the arguments ask for the list of options. A script without declarations receives
    /// `--help` itself.
    pub fn asks_for_help(&self, args: &[String]) -> bool {
        let mut own = args.iter().take_while(|arg| *arg != "--");
        own.any(|arg| arg == "--help" || arg == "-h") && !self.options.iter().any(|o| o.name == "--help")
    }

    /// The list of options.
    pub fn help(&self, program: &str) -> String {
        let mut text = String::new();
        if let Some(about) = &self.about {
            text.push_str(&format!("{about}\n\n"));
        }
        text.push_str(&format!(
            "Usage: runnel {program}{}\n",
            if self.options.is_empty() { " [ARGS]..." } else { " [OPTIONS]" }
        ));
        if self.options.is_empty() {
            text.push_str("\nThe script declares no options.\n");
            return text;
        }
        text.push_str("\nOptions:\n");
        let shown = |o: &Declaration| match &o.default {
            Some(_) => format!("{} VALUE", o.name),
            None => o.name.clone(),
        };
        let width = self.options.iter().map(|o| shown(o).chars().count()).max().unwrap_or(0).max(6);
        for option in &self.options {
            let default = match &option.default {
                Some(default) => format!(" [default: {default}]"),
                None => String::new(),
            };
            let about = format!("{}{default}", option.help);
            let line = format!("  {:<width$}  {}", shown(option), about.trim());
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.push_str(&format!("  {:<width$}  show this list\n", "--help"));
        text
    }

    /// Rejects an undeclared option, and one without its value.
    ///
    /// # Errors
    ///
    /// E0905, with the arguments as its source.
    pub fn check(&self, args: &[String]) -> Result<(), (Error, SourceMap)> {
        if self.open || self.options.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        while at < args.len() && args[at] != "--" {
            let name = args[at].split('=').next().unwrap_or_default();
            let is_option = name.starts_with("--")
                || (name.starts_with('-') && name.len() > 1 && name.parse::<f64>().is_err());
            if is_option {
                match self.options.iter().find(|o| o.name == name) {
                    None => {
                        let known = self.options.iter().map(|o| o.name.as_str());
                        let help = match suggest(name, known) {
                            _ if is_own(name) => {
                                format!("`{name}` is an option of runnel: write it before the file")
                            }
                            Some(near) => format!("did you mean `{near}`?"),
                            None => "`--help` after the file lists the script's options".to_string(),
                        };
                        return Err(pointed(args, at, &format!("the script has no option `{name}`"), &help));
                    }
                    Some(option) if option.default.is_some() && name == args[at] => {
                        at += 1;
                        if at >= args.len() {
                            let message = format!("`{name}` needs a value");
                            return Err(pointed(args, at - 1, &message, &format!("write `{name} VALUE`")));
                        }
                    }
                    Some(option) if option.default.is_none() && name != args[at] => {
                        let message = format!("`{name}` takes no value");
                        return Err(pointed(args, at, &message, &format!("write `{name}`, or leave it out")));
                    }
                    Some(_) => {}
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn block(&mut self, block: &Block, sources: &SourceMap) {
        block.body.iter().for_each(|stmt| self.stmt(stmt, sources));
    }

    fn stmt(&mut self, stmt: &Stmt, sources: &SourceMap) {
        match &stmt.kind {
            StmtKind::Let(_, e) | StmtKind::Assign(_, e) | StmtKind::Expr(e) | StmtKind::Discard(e) => {
                self.expr(e, sources)
            }
            StmtKind::Fn(_, function) => self.block(&function.body, sources),
            _ => {}
        }
    }

    fn expr(&mut self, expr: &Expr, sources: &SourceMap) {
        match &expr.kind {
            ExprKind::Call(function, args) => {
                if let ExprKind::Name(name) = &function.kind
                    && matches!(name.as_ref(), "option" | "flag")
                {
                    self.declare(name, args, sources);
                }
                for arg in args {
                    let (Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e)) = arg;
                    self.expr(e, sources);
                }
            }
            ExprKind::Paren(e) | ExprKind::Unary(_, e) | ExprKind::Member(e, _) => self.expr(e, sources),
            ExprKind::Binary(_, a, b) | ExprKind::And(a, b) | ExprKind::Or(a, b) | ExprKind::On(a, b) => {
                self.expr(a, sources);
                self.expr(b, sources);
            }
            ExprKind::Chain(first, rest) => {
                self.expr(first, sources);
                rest.iter().for_each(|(_, e)| self.expr(e, sources));
            }
            ExprKind::If(arms, last) => {
                for (condition, block) in arms {
                    self.expr(condition, sources);
                    self.block(block, sources);
                }
                if let Some(block) = last {
                    self.block(block, sources);
                }
            }
            ExprKind::Block(block) => self.block(block, sources),
            ExprKind::With(_, block) => self.block(block, sources),
            _ => {}
        }
    }

    fn declare(&mut self, function: &str, args: &[Arg], sources: &SourceMap) {
        let given = |place: usize, name: &str| {
            let by_place = args.get(place).and_then(|arg| if let Arg::One(e) = arg { Some(e) } else { None });
            let by_name = args.iter().find_map(|arg| match arg {
                Arg::Named(n, e) if n.text.as_ref() == name => Some(e),
                _ => None,
            });
            by_place.or(by_name)
        };
        let Some(name) = given(0, "name").and_then(literal) else {
            self.open = true;
            return;
        };
        let is_flag = function == "flag";
        let default = match is_flag {
            true => None,
            false => Some(given(1, "default").map_or(String::new(), |e| sources.snippet(e.span).to_string())),
        };
        let help = given(if is_flag { 1 } else { 2 }, "help").and_then(literal).unwrap_or_default();
        if !self.options.iter().any(|o| o.name == name) {
            self.options.push(Declaration { name, default, help });
        }
    }
}

/// The characters of a string without interpolation.
fn literal(expr: &Expr) -> Option<String> {
    let ExprKind::Str(pieces) = &expr.kind else { return None };
    pieces
        .iter()
        .map(|piece| if let StrPiece::Text(text) = piece { Some(text.as_ref()) } else { None })
        .collect()
}

/// The comment at the start of a script.
fn about(text: &str) -> Option<String> {
    let lines = text.lines().skip_while(|line| line.starts_with("#!") || line.trim().is_empty());
    let comment: Vec<&str> = lines.map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
    let joined = comment.join("\n");
    (!joined.trim().is_empty()).then(|| joined.trim().to_string())
}

/// An error that points at one of the arguments.
fn pointed(args: &[String], at: usize, message: &str, help: &str) -> (Error, SourceMap) {
    let line = args.join(" ").replace('\n', " ");
    let start: usize = args[..at].iter().map(|arg| arg.len() + 1).sum();
    let mut sources = SourceMap::default();
    let error = Error::new(&OPTION, message).help(help);
    let error = match sources.add("arguments", &line) {
        Some((_, base)) => {
            error.at(Span::new(base + start as u32, base + (start + args[at].len()) as u32), "")
        }
        None => error,
    };
    (error, sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/usr/bin/env runnel\n# Trains a small network.\n# Reads nothing.\n\n\
        let epochs = option(\"--epochs\", 10, \"how many passes\")\n\
        let off = flag(\"--disable-cuda\", \"stay on the host\")\n\
        let lr = option(\"--lr\", default=1e-3)\n";

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn help_lists_what_the_script_declares() {
        insta::assert_snapshot!(Declared::of(SCRIPT).help("train.rnl"));
        insta::assert_snapshot!(Declared::of("print(1)").help("-"));
    }

    #[test]
    fn undeclared_options_are_refused_before_the_script_runs() {
        let declared = Declared::of(SCRIPT);
        for good in ["", "a b", "--epochs 3 --disable-cuda", "--lr=2 x -5", "--epochs -3", "-- --what"] {
            assert!(declared.check(&args(good)).is_ok(), "{good}");
        }
        for (bad, help) in [
            ("--epoch 3", "--epochs"),
            ("x --disable_cuda", "--disable-cuda"),
            ("--epochs", "VALUE"),
            ("--disable-cuda=false", "leave it out"),
            ("-x", "--help"),
        ] {
            let (error, sources) = declared.check(&args(bad)).unwrap_err();
            assert!(error.help_text().unwrap().contains(help), "{bad}: {error:?}");
            assert!(bad.contains(sources.snippet(error.span())));
        }
    }

    #[test]
    fn a_script_that_reads_its_arguments_takes_any() {
        assert!(Declared::of("let a = args()\nflag(\"--x\")").check(&args("--y")).is_ok());
        assert!(Declared::of("let a = 1").check(&args("--y")).is_ok());
        assert!(Declared::of("option(").check(&args("--y")).is_ok());
        assert!(Declared::of(SCRIPT).asks_for_help(&args("a --help")));
        assert!(!Declared::of(SCRIPT).asks_for_help(&args("-- --help")));
    }
}
