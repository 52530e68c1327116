//! A test harness for cases that are found when the test runs, such as one for each script of a folder. It takes the
//! arguments and prints the lines of Rust's own harness, so `cargo test --test scripts NAME` runs the cases of that name.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One case.
pub struct Case<'a> {
    pub name: String,
    /// Why it cannot run here: it counts as ignored.
    pub ignored: Option<&'static str>,
    /// Returns the failure.
    pub run: Box<dyn Fn() -> Result<(), String> + Send + Sync + 'a>,
}

/// The parsed arguments.
#[derive(Default)]
struct Wanted {
    names: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
}

impl Wanted {
    fn of(mut args: impl Iterator<Item = String>) -> Wanted {
        let mut wanted = Wanted::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--exact" => wanted.exact = true,
                "--list" => wanted.list = true,
                "--skip" => wanted.skipped.extend(args.next()),
                "--test-threads" | "--format" | "--color" | "-Z" => drop(args.next()),
                option if option.starts_with('-') => {}
                _ => wanted.names.push(arg),
            }
        }
        wanted
    }

    fn includes(&self, name: &str) -> bool {
        let is = |wanted: &String| if self.exact { wanted == name } else { name.contains(wanted.as_str()) };
        (self.names.is_empty() || self.names.iter().any(is)) && !self.skipped.iter().any(is)
    }
}

/// Runs the cases that the arguments select, on this many threads.
pub fn run(cases: &[Case<'_>], threads: usize) -> ExitCode {
    let wanted = Wanted::of(std::env::args().skip(1));
    let (named, others): (Vec<_>, Vec<_>) = cases.iter().partition(|case| wanted.includes(&case.name));
    if wanted.list {
        named.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", named.len());
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = named.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = match case.ignored {
                Some(why) => {
                    println!("test {} ... ignored, {why}", case.name);
                    continue;
                }
                None => on_own_stack(case),
            };
            println!("test {} ... {}", case.name, if outcome.is_ok() { "ok" } else { "FAILED" });
            if let (Err(reason), Ok(mut failures)) = (outcome, failures.lock()) {
                failures.push(format!("---- {} ----\n{reason}\n", case.name));
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap_or_default();
    failures.iter().for_each(|failure| println!("\n{failure}"));
    let (failed, ignored) = (failures.len(), named.iter().filter(|case| case.ignored.is_some()).count());
    println!(
        "\ntest result: {}. {} passed; {failed} failed; {ignored} ignored; 0 measured; {} filtered out\n",
        if failed == 0 { "ok" } else { "FAILED" },
        named.len() - failed - ignored,
        others.len(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a case on a stack of known size: a script must never need more.
fn on_own_stack(case: &Case<'_>) -> Result<(), String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(4 << 20).spawn_scoped(scope, || (case.run)());
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("it panicked".to_string()),
            Err(reason) => Err(reason.to_string()),
        }
    })
}
