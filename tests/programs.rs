//! Random programs compared with a model: tensors of all dtypes and their views, also empty and overlapping
//! ones, in-place writes, several streams, and reused memory. See `programs/`.
//!
//! A program prints the same fused and unfused, in every order of the queues, and its output equals that of
//! the model. If a wait is missing the script is rejected, and `fix` and `warn` give the output of the model.
//!
//! `RUNNEL_PROGRAMS=10000` sets the number of programs; `RUNNEL_PROGRAM=17` shows and runs one program. With
//! `RUNNEL_BACKEND=cuda` they run on a GPU. The test needs no files: its binary can run on another machine.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "programs/generate.rs"]
mod generate;
#[path = "programs/graphs.rs"]
mod graphs;
#[path = "programs/model.rs"]
mod model;
#[path = "programs/moves.rs"]
mod moves;
#[path = "programs/operations.rs"]
mod operations;
#[path = "programs/order.rs"]
mod order;
#[path = "programs/several.rs"]
mod several;

use generate::{Program, program};
use model::{Dtype, Num, Val};
use runnel::plan::RaceMode;
use runnel::{Backend, Engine};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One way to run a program.
#[derive(Clone, Copy, Debug)]
struct Way {
    fuse: bool,
    races: RaceMode,
    schedule: Schedule,
    /// The byte that fresh memory is filled with.
    poison: Option<u8>,
    /// Small values are computed again by their readers, as large ones.
    keep: bool,
    /// Another tensor takes most of the device's memory.
    is_full: bool,
}

#[derive(Clone, Copy, Debug)]
enum Schedule {
    None,
    Seed(u64),
    Priorities(u64),
}

fn is_cuda() -> bool {
    std::env::var("RUNNEL_BACKEND").is_ok_and(|name| name == "cuda")
}

fn devices() -> usize {
    match is_cuda() {
        true => 1,
        false => 2,
    }
}

/// The output of a program, or the line and the code of its error.
fn run(text: &str, way: Way) -> Result<String, (usize, String)> {
    let printed = Arc::new(Mutex::new(String::new()));
    let sink = printed.clone();
    let mut builder = Engine::builder()
        .fuse(way.fuse)
        .races(way.races)
        .warnings(|_, _| {})
        .output(move |piece| sink.lock().unwrap().push_str(piece));
    builder = match is_cuda() {
        true => builder.backend(Backend::Cuda),
        false => builder.backend(Backend::Emu).devices(devices()).device_memory(64 << 20),
    };
    builder = match way.schedule {
        Schedule::None => builder,
        Schedule::Seed(seed) => builder.schedule(seed),
        Schedule::Priorities(seed) => builder.priorities(seed),
    };
    if let Some(byte) = way.poison {
        builder = builder.poison(byte);
    }
    if way.keep {
        builder = builder.kept_from(0).mapped_from(1);
    }
    let mut engine = builder.build().unwrap();
    // In the first line: reports name lines.
    let filled = match way.is_full && !is_cuda() {
        true => format!("let filler = empty(49 << 20, dtype=u8, device=cuda:0); {text}"),
        false => text.to_string(),
    };
    match engine.eval::<()>(&filled) {
        Ok(()) => Ok(printed.lock().unwrap().clone()),
        Err(error) => {
            let report = engine.report(&error).to_string();
            let line = report.split(":").nth(3).and_then(|l| l.parse().ok()).unwrap_or(0);
            Err((line, report))
        }
    }
}

/// The output of a program according to the model, in the form of [`told`].
fn wanted(program: &Program) -> Vec<String> {
    let say = |(name, dtype, shape, elements): &(String, Dtype, Vec<usize>, Vec<Val>)| {
        let numbers = elements.iter().flat_map(|element| element[..dtype.parts()].to_vec());
        let numbers: Vec<String> = numbers.map(|number| say_number(*dtype, number)).collect();
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("{name} {} ({}) {}", dtype.name(), shape.join(", "), numbers.join(" "))
    };
    program.prints.iter().map(say).collect()
}

fn say_number(dtype: Dtype, number: Num) -> String {
    match number {
        Num::I(i) if dtype == Dtype::Bool => (i != 0).to_string(),
        Num::I(i) => i.to_string(),
        // The sign of a zero result of an extreme is unspecified.
        Num::F(f) => format!("{:?}", f + 0.0),
    }
}

/// The printed lines, without brackets, and with one zero.
fn told(printed: &str) -> Vec<String> {
    let line = |line: &str| {
        let (head, list) = line.split_once(')').unwrap();
        let numbers = list.split(|c: char| "[], ".contains(c)).filter(|word| !word.is_empty());
        let numbers: Vec<&str> = numbers.map(|word| if word == "-0.0" { "0.0" } else { word }).collect();
        format!("{}) {}", head.replace(",)", ")"), numbers.join(" ")).replace(",)", ")")
    };
    printed.lines().map(line).collect()
}

/// The failure of a seed's runs, if any.
fn check(seed: u64) -> Option<String> {
    let program = program(seed, devices());
    let wanted = wanted(&program);
    let deny = Way {
        fuse: true,
        races: RaceMode::Deny,
        schedule: Schedule::None,
        poison: None,
        keep: false,
        is_full: false,
    };
    let (drawn, ranked) = (Schedule::Seed(seed), Schedule::Priorities(seed));
    let mut ways = Vec::new();
    if let Some(&race) = program.races.first() {
        for (fuse, keep) in [(true, seed.is_multiple_of(2)), (false, false)] {
            let way = Way { fuse, keep, ..deny };
            match run(&program.text, way) {
                Err((line, report)) if report.contains("E0601") && line <= race => {}
                Err((line, report)) => {
                    return Some(format!("{way:?}: not the race of line {race}, but at {line}\n{report}"));
                }
                Ok(_) => return Some(format!("{way:?}: no race is reported, of line {race}")),
            }
        }
        let fix = Way { races: RaceMode::Fix, ..deny };
        ways.push(Way { schedule: ranked, poison: Some(0xa5), ..fix });
        ways.push(Way { races: RaceMode::Warn, schedule: drawn, keep: true, is_full: true, ..fix });
        ways.push(Way { fuse: false, schedule: ranked, ..fix });
    } else {
        ways.push(deny);
        ways.push(Way { fuse: false, ..deny });
        ways.push(Way { schedule: drawn, keep: true, is_full: seed.is_multiple_of(2), ..deny });
        ways.push(Way { schedule: ranked, poison: Some(0xa5), keep: true, ..deny });
        ways.push(Way { fuse: false, schedule: ranked, ..deny });
    }
    if is_cuda() {
        ways.retain(|way| matches!(way.schedule, Schedule::None) || way.races != RaceMode::Deny);
    }
    let mut first: Option<String> = None;
    for way in ways {
        match run(&program.text, way) {
            Err((_, report)) => return Some(format!("{way:?}:\n{report}")),
            Ok(printed) => {
                let told = told(&printed);
                if told != wanted {
                    return Some(format!("{way:?}:\n{}", differences(&told, &wanted)));
                }
                if first.get_or_insert_with(|| printed.clone()) != &printed {
                    return Some(format!("{way:?} prints other bits than the first way"));
                }
            }
        }
    }
    None
}

fn differences(told: &[String], wanted: &[String]) -> String {
    let mut text = String::new();
    for (told, wanted) in told.iter().zip(wanted).filter(|(told, wanted)| told != wanted) {
        let _ = writeln!(text, "printed  {told}\nthe model {wanted}");
    }
    if told.len() != wanted.len() {
        let _ = writeln!(text, "{} lines, not {}", told.len(), wanted.len());
    }
    text
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_programs_match_the_model() {
    if let Some(seed) = number("RUNNEL_PROGRAM") {
        let program = program(seed, devices());
        println!("{}\nraces: {:?}\n{}", program.text, program.races, wanted(&program).join("\n"));
        assert_eq!(check(seed), None);
        return;
    }
    let count = number("RUNNEL_PROGRAMS").unwrap_or(400);
    let first = number("RUNNEL_FIRST").unwrap_or(1);
    let next = AtomicU64::new(first);
    let (raced, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..if is_cuda() { 1 } else { 2 } {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.lock().unwrap().len() >= 20 {
                        return;
                    }
                    raced.fetch_add(
                        usize::from(!program(seed, devices()).races.is_empty()),
                        Ordering::Relaxed,
                    );
                    if let Some(what) = check(seed) {
                        failed.lock().unwrap().push((seed, what));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("{count} programs, {} of them with a missing wait", raced.into_inner());
    for (seed, what) in &failed {
        println!("--- RUNNEL_PROGRAM={seed}\n{}\n{what}", program(*seed, devices()).text);
    }
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "programs that fail: {seeds:?}");
}
