//! Measures code: its time, and its kernel launches.

use super::{Repl, show};
use crate::base::{Error, Result};
use crate::cli::plan::kernels;
use crate::plan::{Listing, Runtime};
use crate::vm::{Mode, Value, Vm};
use std::time::{Duration, Instant};

/// Runs repeat until this much time has passed.
const LONG_ENOUGH: Duration = Duration::from_millis(400);
/// Maximum number of runs.
const MOST_RUNS: usize = 1_000;

/// `:time`: the median of many runs; each ends when the devices have finished its work.
pub fn time(repl: &mut Repl, code: &str) -> Result<String> {
    let name = repl.next_name();
    let block = repl.session.engine.checked(&name, code)?;
    let vm = repl.session.engine.vm();
    let emulated = vm.rt.machine().has_virtual_time();
    let shown = vm.within(|vm| {
        let function = vm.prepare(&block, Mode::Input)?;
        show::settle(vm)?;
        let begun = Instant::now();
        let mut times: Vec<Duration> = Vec::new();
        let mut kind = String::new();
        while times.is_empty() || (begun.elapsed() < LONG_ENOUGH && times.len() < MOST_RUNS) {
            let start = Instant::now();
            let value = vm.call(&function, &[])?;
            show::settle(vm)?;
            times.push(start.elapsed());
            if kind.is_empty() {
                kind = show::kind(&value);
            }
        }
        // The first run compiles kernels.
        let first = times[0];
        if times.len() > 2 {
            times.remove(0);
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        let shown = match times.len() {
            1 => format!("{} in 1 run", text_of(median)),
            count => format!(
                "{} (median of {count} runs, the fastest {}; the first took {})",
                text_of(median),
                text_of(times[0]),
                text_of(first)
            ),
        };
        let note = if emulated { ", on emulated devices" } else { "" };
        Ok(format!("{shown}{note}\n{kind}\n"))
    });
    vm.forget_unset();
    shown
}

/// Formats with three digits: `12.3 µs`.
fn text_of(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// `:plan`: lists the kernels that code launches. The launches are suppressed; if the code needs their results, it runs
/// again for real.
pub fn plan(repl: &mut Repl, code: &str) -> Result<String> {
    let name = repl.next_name();
    let block = repl.session.engine.checked(&name, code)?;
    let vm = repl.session.engine.vm();
    let run = |vm: &mut Vm, hold: bool| -> Result<(Listing, Result<()>)> {
        let before = vm.globals();
        vm.rt.start_listing(hold)?;
        let result = vm.within(|vm| {
            let function = vm.prepare(&block, Mode::Input)?;
            let value = vm.call(&function, &[])?;
            // Values without references are not computed.
            let flushed = vm.flush();
            drop(value);
            flushed
        });
        let listing = vm.rt.stop_listing();
        if hold {
            restore(vm, before);
        }
        vm.forget_unset();
        Ok((listing, result))
    };
    let (listing, result) = match run(vm, true)? {
        (_, Err(error)) if Runtime::needs_results(&error) => {
            let (listing, result) = run(vm, false)?;
            return shown(&listing, Some(&error), result);
        }
        done => done,
    };
    shown(&listing, None, result)
}

/// Restores the values of the session's names.
fn restore(vm: &mut Vm, before: Vec<(std::rc::Rc<str>, Value)>) {
    for (name, _) in vm.globals() {
        if !before.iter().any(|(known, _)| *known == name) {
            vm.forget(&name);
        }
    }
    for (name, value) in before {
        vm.set_global(&name, value);
    }
}

fn shown(listing: &Listing, needs: Option<&Error>, result: Result<()>) -> Result<String> {
    result?;
    let count = listing.launches.len() + listing.dropped;
    let some_ran = listing.launches.iter().any(|listed| listed.has_run);
    Ok(kernels(
        listing,
        match (count, needs, some_ran) {
            (0, ..) => "",
            (_, Some(_), _) => "; the code reads results, so it was run",
            (_, None, true) => "; those on the host and on other streams were run",
            (_, None, false) => "; none was run",
        },
    ))
}
